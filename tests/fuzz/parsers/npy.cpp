// npy.cpp — arrays in files.
#include "runtime/io/npy.h"

#include "ir/values/compare.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = false;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braze;
  const auto bytes = std::as_bytes(std::span(data, size));
  HostTensor value;
  if (!fuzz::accepts([&] { value = parse_npy(bytes, "input"); })) return 0;
  if (value.size_bytes() > size) fuzz::stop("more data than the file has", "");
  const std::vector<std::byte> written = npy_bytes(value);
  const HostTensor again = parse_npy(written, "written");
  if (again.dtype() != value.dtype() || again.shape() != value.shape() ||
      npy_bytes(again) != written)
    fuzz::stop("reading changes what was written", "");
  return 0;
}
