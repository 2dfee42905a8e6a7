// tokenizer.h — from text to the numbers that a language model takes, and back.
//
//   Tokenizer tokenizer = Tokenizer::open("tokenizer.json");      // or "model.gguf"
//   std::vector<int32_t> ids = tokenizer.encode("Hello, world");
//   std::string text = tokenizer.decode(ids);
//
// Three kinds of model: pairs of bytes that are merged (GPT-2 and its heirs), pairs of characters
// that are merged, with bytes for what is unknown (SentencePiece BPE), and the longest pieces of
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

struct EncodeOptions {
  /// With the tokens that the file puts around every text, such as [CLS] and [SEP].
  bool frame = true;
  /// Names of special tokens that stand in the text ("<|im_end|>") mean those tokens. Text of other
  /// people is encoded without.
  bool special = true;
};

/// A tokenizer. A cheap handle; may be used by several threads at once.
class Tokenizer {
 public:
  /// Reads a tokenizer.json, or the tokenizer that a .gguf file holds. Errors: those of reading
  /// files; InvalidArgument for a file that is malformed; Unsupported, which names the part, for a
  /// tokenizer of a kind that Braze does not have.
  static Tokenizer open(const std::string& path);
  /// The text of a tokenizer.json. `name` is for messages.
  static Tokenizer from_json(std::string_view text, std::string name);
  static Tokenizer from_gguf(const GgufFile& file);

  /// InvalidArgument for a text that is not UTF-8.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The text of ids; of those that are none, nothing. Special tokens are left out unless
  /// `special`.
  std::string decode(std::span<const int32_t> ids, bool special = false) const;
  /// What one more token adds to a text: bytes, which can be a part of a character.
  std::string piece(int32_t id, bool special = false) const;

  size_t size() const;                                      ///< one more than the greatest id
  std::optional<int32_t> id(std::string_view token) const;  ///< of a token by its name in the file

  struct State;  ///< frontend/text/tokenizer_p.h
  explicit Tokenizer(std::shared_ptr<const State> state)
      : state_(std::move(state)) {}  ///< for Braze itself

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace braze
