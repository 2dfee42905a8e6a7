// tokenizer.cpp — tokenizer.json.
#include "braze/tokenizer.h"

#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = true;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braze;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::accepts([&] {
    const Tokenizer tokenizer = Tokenizer::from_json(text, "input");
    if (tokenizer.size() > 8 * size + 8) fuzz::stop("more tokens than the file pays for", "");
    // Encoding may run into a pattern's limits, and a text of any tokens is one to decode.
    const auto ids = tokenizer.encode("a b  <s>\n\xc3\xa9 1\xe2\x96\x81 [CLS]");
    for (const int32_t id : ids) tokenizer.piece(id, true);
    tokenizer.decode(ids);
  });
  return 0;
}
