// tokenizer.h — conversion between text and the token ids of a language model.
//
//   Tokenizer tokenizer = Tokenizer::open("tokenizer.json");      // or "model.gguf"
//   std::vector<int32_t> ids = tokenizer.encode("Hello, world");
//   std::string text = tokenizer.decode(ids);
//
// There are three kinds of model: byte pair encoding of bytes (GPT-2 and its successors), byte pair
// encoding of characters with bytes for unknown ones (SentencePiece BPE), and the longest pieces of
// words (WordPiece). The ids are those of the library `tokenizers` for the same file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

class GgufFile;

/// How a text is encoded.
struct EncodeOptions {
  /// Adds the tokens that the file puts around every text, such as [CLS] and [SEP].
  bool frame = true;
  /// Names of special tokens in the text ("<|im_end|>") mean those tokens. Set it to false for text
  /// that other people wrote.
  bool special = true;
};

/// A tokenizer. It is a cheap handle, and several threads may use it at once.
class Tokenizer {
 public:
  /// Reads a tokenizer.json, or the tokenizer in a .gguf file. It throws the errors of reading
  /// files, and InvalidArgument for a malformed file. If Braze does not have the kind of tokenizer,
  /// it throws Unsupported, which names the part of the file.
  static Tokenizer open(const std::string& path);
  /// Reads the text of a tokenizer.json. Messages use `name`.
  static Tokenizer from_json(std::string_view text, std::string name);
  /// Reads the tokenizer in a .gguf file.
  static Tokenizer from_gguf(const GgufFile& file);

  /// The ids of a text. It throws InvalidArgument if the text is not UTF-8.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The text of ids. Unknown ids give nothing. Special tokens are left out unless `special` is
  /// true.
  std::string decode(std::span<const int32_t> ids, bool special = false) const;
  /// The bytes that one more token adds to a text. They can be a part of a character.
  std::string piece(int32_t id, bool special = false) const;

  size_t size() const;  ///< one more than the greatest id
  /// The id of a token, by its name in the file.
  std::optional<int32_t> id(std::string_view token) const;

  struct State;  ///< frontend/text/tokenizer_p.h
  explicit Tokenizer(std::shared_ptr<const State> state)
      : state_(std::move(state)) {}  ///< for Braze itself

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace braze
