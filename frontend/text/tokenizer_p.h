// tokenizer_p.h — the parts of a tokenizer, in the order in which a text passes through them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braze/tokenizer.h"
#include "frontend/text/models.h"
#include "frontend/text/pattern.h"
#include "frontend/text/split.h"

namespace braze {

/// A token that is searched for in the text itself, before the model gets the text.
struct AddedToken {
  std::string name;
  int32_t id = 0;
  bool special = false;
  bool takes_left = false, takes_right = false;  ///< takes white space on this side too
  bool normalized = false;                       ///< searched for in the normalised text
};

/// The added tokens of one kind. In a text, the leftmost one is found first. If several begin
/// there, the longest is found.
class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, std::string_view file);

  /// Calls text(part) and token(id) for the parts of `content` from left to right.
  template <class Text, class Token>
  void each(std::string_view content, const Text& text, const Token& token) const {
    size_t end = 0;
    if (pattern_)
      pattern_->each(content, [&](size_t from, size_t to, int number) {
        if (from > end) text(content.substr(end, from - end));
        token(ids_[static_cast<size_t>(number)]);
        end = to;
      });
    if (end < content.size()) text(content.substr(end));
  }

 private:
  std::optional<Pattern> pattern_;
  std::vector<int32_t> ids_;  // indexed by the number of the pattern's mark
};

/// How ids become text.
enum class Spelling : uint8_t {
  Bytes,       ///< the tokens' bytes, one after another
  FirstBlank,  ///< the same, but a blank at the beginning is dropped
  Words,       ///< a blank stands before each token that does not continue a word
};

struct Tokenizer::State {
  using Normalize = std::function<std::string(std::string_view)>;
  /// Cuts one piece, or changes it. `first` is true for the piece that begins the text.
  using Cut =
      std::function<void(std::string_view piece, bool first, std::vector<std::string>& out)>;

  std::string file;                ///< named in messages
  std::vector<std::string> names;  ///< the name of each id
  std::vector<std::string> bytes;  ///< for each id, what it adds to a text
  std::vector<bool> special;       ///< for each id
  Vocabulary ids;                  ///< the id of each name

  AddedTokens raw, raw_without_special;    ///< searched for in the text as it is
  AddedTokens late, late_without_special;  ///< searched for in the normalised text
  std::vector<Normalize> normalizers;
  std::vector<Cut> cuts;
  std::unique_ptr<TextModel> model;
  std::vector<int32_t> before, behind;  ///< tokens around the text
  Spelling spelling = Spelling::Bytes;

  /// Sets the four AddedTokens, and `special`.
  void add_tokens(const std::vector<AddedToken>& tokens);
  void encode(std::string_view text, bool special_names, std::vector<int32_t>& out) const;
};

// Steps that several formats of files have.

Tokenizer::State::Cut cut_by(SplitStep step);
/// Cuts at white space, which is dropped, and around each punctuation character, as BERT does.
void cut_at_words(Tokenizer::State& state);
/// The bytes of a token whose name has one character for each byte. It is nullopt if a character
/// stands for no byte.
std::optional<std::string> bytes_of_name(std::string_view name);
/// The pattern of GPT-2. Byte level tokenizers use it if they have no other pattern.
extern const char* const kWordsOfGpt2;
/// What SentencePiece writes for a blank: U+2581.
inline constexpr std::string_view kBlank = "\xe2\x96\x81";
/// `text` with every `from` replaced by `to`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);
/// The byte that a name such as "<0x0A>" stands for.
std::optional<char> byte_of_name(std::string_view name);

}  // namespace braze
