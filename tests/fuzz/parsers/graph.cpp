// graph.cpp — Graph IR as text.
// By the first header: verify and to_text are found where the types are declared.
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = true;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  braze::fuzz::check_text(data, size, braze::parse_graph);
  return 0;
}
