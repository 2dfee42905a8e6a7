// npz.cpp — archives of arrays.
#include "runtime/io/npz.h"

#include <vector>

#include "runtime/io/npy.h"
#include "runtime/io/zip.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = false;

namespace {

using namespace braze;

std::vector<std::byte> written_again(const std::map<std::string, HostTensor>& values) {
  std::vector<std::byte> out;
  ZipWriter archive(
      [&](std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  for (const auto& [name, value] : values)
    archive.add(name + ".npy", {npy_bytes(value)}, value.size_bytes() > 4096);
  archive.finish();
  return out;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, HostTensor> values;
  if (!fuzz::accepts([&] { values = parse_npz(std::as_bytes(std::span(data, size)), "input"); }))
    return 0;
  size_t total = 0;
  for (const auto& item : values) total += item.second.size_bytes();
  if (total / 1032 > size) fuzz::stop("more data than the file can have", "");
  const std::vector<std::byte> written = written_again(values);
  if (written_again(parse_npz(written, "written")) != written)
    fuzz::stop("reading changes what was written", "");
  return 0;
}
