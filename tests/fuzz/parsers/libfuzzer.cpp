// libfuzzer.cpp — half of libFuzzer's inputs to text targets are changed by words.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/parsers/mutate.h"
#include "tests/fuzz/parsers/target.h"

extern "C" {
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size,
                                 uint8_t* out, size_t max_size, unsigned seed);
}

namespace {

size_t put(std::string_view text, uint8_t* out, size_t max_size) {
  const size_t size = std::min(text.size(), max_size);
  std::memcpy(out, text.data(), size);
  return size;
}

std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  braze::fuzz::Random random(seed);
  if (!braze::fuzz::kIsText || random.one_in(2)) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text(text_of(data, size));
  return put(braze::fuzz::mutate_text(text, text, random), data, max_size);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size,
                                 uint8_t* out, size_t max_size, unsigned seed) {
  braze::fuzz::Random random(seed);
  const std::string_view first = text_of(a, a_size), second = text_of(b, b_size);
  if (braze::fuzz::kIsText)
    return put(braze::fuzz::mutate_text(first, second, random), out, max_size);
  const auto cut = [&random](std::string_view s) {
    return static_cast<size_t>(random.below(static_cast<int64_t>(s.size()) + 1));
  };
  return put(std::string(first.substr(0, cut(first))) + std::string(second.substr(cut(second))),
             out, max_size);
}
