// gguf.cpp — models in files.
#include "braze/gguf.h"

#include <algorithm>

#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = false;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braze;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::accepts([&] {
    const GgufFile file = GgufFile::parse(std::as_bytes(std::span(bytes)), "input");
    size_t total = 0;
    for (const std::string& name : file.tensors()) total += file.tensor(name).bytes.size();
    if (total > size) fuzz::stop("more data than the file has", "");
    // Whatever kind a value has, one of these reads it, and the others refuse it.
    for (const std::string& key : file.keys()) {
      int readers = 0;
      const auto read = [&](const auto& reader) { readers += fuzz::accepts(reader) ? 1 : 0; };
      read([&] { file.string(key); });
      read([&] { file.integer(key); });
      read([&] { file.number(key); });
      read([&] { file.strings(key); });
      read([&] { file.integers(key); });
      read([&] { file.numbers(key); });
      if (readers > 2) fuzz::stop("a value of several kinds", key);
    }
    for (const std::string& name : file.tensors()) {
      const GgufTensor& tensor = file.tensor(name);
      fuzz::accepts([&] { file.load(name, "cpu"); });
      if (!tensor.blocks || tensor.shape.size() != 2) continue;
      const Quantized<Array> parts = file.load_quantized(name, "cpu");
      size_t used = parts.low.size_bytes() + parts.scales.size_bytes();
      for (const Array& part : parts.high) used += part.size_bytes();
      for (const Array& part : parts.offsets) used += part.size_bytes();
      // The scales of K blocks are kept as products, f32.
      if (used > 2 * tensor.bytes.size()) fuzz::stop("parts larger than their blocks", name);
    }
  });
  return 0;
}
