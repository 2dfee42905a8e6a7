// safetensors.cpp — weights in files.
#include "runtime/io/safetensors.h"

#include <algorithm>
#include <vector>

#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = false;

namespace {

using namespace braze;

// The file of the tensors whose types Braze has.
std::string written_again(const SafetensorsFile& file) {
  std::vector<TensorHeader> headers;
  for (const auto& [name, tensor] : file.tensors())
    if (tensor.dtype) headers.push_back({name, *tensor.dtype, tensor.shape});
  std::sort(headers.begin(), headers.end(), stored_before);
  std::string out = safetensors_header(headers, file.metadata(), "written");
  for (const TensorHeader& header : headers) {
    const std::span<const std::byte> bytes = file.at(header.name).bytes;
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

SafetensorsFile read(std::string_view bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "input");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string written;
  const bool sound = fuzz::accepts([&] {
    const SafetensorsFile file = read(bytes);
    size_t total = 0;
    for (const auto& [name, tensor] : file.tensors()) total += tensor.bytes.size();
    if (total > size) fuzz::stop("more data than the file has", "");
    written = written_again(file);
  });
  if (!sound) return 0;
  const SafetensorsFile again = read(written);
  if (written_again(again) != written) fuzz::stop("reading changes what was written", written);
  return 0;
}
