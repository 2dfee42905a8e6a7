// loops.cpp — loop trees as text.
// By the first header: verify and to_text are found where the types are declared.
#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = true;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  braze::fuzz::check_text(data, size, braze::parse_loops);
  return 0;
}
