// program.cpp — Programs as text. Their blobs are as the seeds name them: 16 bytes of code for each
// artifact, 12 bytes for each constant, and a report.
#include <algorithm>
#include <array>
#include <vector>

#include "ir/program/text.h"
#include "ir/program/verify.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = true;

namespace {

size_t count(std::string_view text, std::string_view word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return std::min<size_t>(n, 64);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  braze::fuzz::check_text(data, size, [](std::string_view text, std::string_view file) {
    static constexpr std::array<std::byte, 16> kBytes = {};
    std::vector<std::span<const std::byte>> blobs(count(text, "\nartifact "), kBytes);
    blobs.resize(blobs.size() + count(text, "\nconstant "), std::span(kBytes).first(12));
    blobs.emplace_back();
    return braze::parse_program(text, file, blobs);
  });
  return 0;
}
