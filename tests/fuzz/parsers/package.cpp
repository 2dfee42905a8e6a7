// package.cpp — packages. A checksum would refuse every change, so they are made right first: what
// is read is what someone could have written on purpose.
#include "ir/program/package.h"

#include <cstring>

#include "ir/support/hash.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = false;

namespace {

constexpr size_t kHeader = 64, kRow = 32, kHash = 16;

void put_hash(std::string& bytes, size_t at, std::string_view of) {
  const braze::Hash128 hash = braze::hash128(of);
  std::memcpy(bytes.data() + at, &hash, kHash);
}

uint64_t number(const std::string& bytes, size_t at, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, size);
  return value;
}

void sign(std::string& bytes) {
  if (bytes.size() < kHeader) return;
  const uint64_t size = bytes.size(), sections = number(bytes, 12, 4);
  std::memcpy(bytes.data() + 16, &size, sizeof(size));
  if (sections > (bytes.size() - kHeader) / kRow) return;
  for (size_t i = 0; i < sections; ++i) {
    const size_t row = kHeader + i * kRow;
    const uint64_t offset = number(bytes, row, 8), length = number(bytes, row + 8, 8);
    if (offset > size || length > size - offset) continue;
    put_hash(bytes, row + kRow - kHash, std::string_view(bytes).substr(offset, length));
  }
  std::memset(bytes.data() + kHeader - kHash, 0, kHash);
  put_hash(bytes, kHeader - kHash, std::string_view(bytes).substr(0, kHeader + sections * kRow));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braze;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  sign(bytes);
  fuzz::accepts([&] {
    const PackageReader reader(std::as_bytes(std::span(bytes)), "input");
    reader.weight_bytes();
    for (const auto& function : reader.functions()) {
      for (const auto& variant : function.variants) {
        const Program program = reader.program(variant);
        // What was read can be written, and reads the same.
        const std::string written = encode(program);
        if (encode(decode(std::as_bytes(std::span(written)), "written")) != written)
          fuzz::stop("reading changes what was written", "");
      }
    }
  });
  return 0;
}
