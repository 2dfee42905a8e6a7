// kernel.cpp — Kernel IR as text.
// By the first header: verify and to_text are found where the types are declared.
#include "ir/code/text.h"
#include "ir/kernel/verify.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = true;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  braze::fuzz::check_text(data, size, braze::parse_kernel);
  return 0;
}
