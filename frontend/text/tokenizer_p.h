// tokenizer_p.h — the parts of a tokenizer, in the order in which a text passes them.
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

/// A token that is looked for in the text itself, before the model sees it.
struct AddedToken {
  std::string name;
  int32_t id = 0;
  bool special = false;
  bool takes_left = false, takes_right = false;  ///< white space beside it is part of it
  bool normalized = false;                       ///< looked for in the normalised text
};

/// The added tokens of one kind. The leftmost one in a text is found first, and the longest of
/// several.
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
  std::vector<int32_t> ids_;  // by the number that the pattern marks them with
};

/// How ids become text.
enum class Spelling : uint8_t {
  Bytes,       ///< the tokens' bytes, one after another
  FirstBlank,  ///< the same, without a blank at the beginning
  Words,       ///< tokens that continue a word follow at once, others after a blank
};

struct Tokenizer::State {
  using Normalize = std::function<std::string(std::string_view)>;
  /// Cuts, or changes, one piece; `first`: it begins the text.
  using Cut =
      std::function<void(std::string_view piece, bool first, std::vector<std::string>& out)>;

  std::string file;                ///< for messages
  std::vector<std::string> names;  ///< by id
  std::vector<std::string> bytes;  ///< by id: what the token adds to a text
  std::vector<bool> special;       ///< by id
  Vocabulary ids;                  ///< by name

  AddedTokens raw, raw_without_special;    ///< in the text as it is
  AddedTokens late, late_without_special;  ///< in the normalised text
  std::vector<Normalize> normalizers;
  std::vector<Cut> cuts;
  std::unique_ptr<TextModel> model;
  std::vector<int32_t> before, behind;  ///< the frame
  Spelling spelling = Spelling::Bytes;

  /// Sets `raw` and the like, and marks what is special.
  void add_tokens(const std::vector<AddedToken>& tokens);
  void encode(std::string_view text, bool special_names, std::vector<int32_t>& out) const;
};

// Steps that several kinds of file name.

Tokenizer::State::Cut cut_by(SplitStep step);
/// Cuts at white space, which is dropped, and around each mark of punctuation, as BERT does.
void cut_at_words(Tokenizer::State& state);
/// The token's bytes, if each character of its name stands for one; nullopt if one does not.
std::optional<std::string> bytes_of_name(std::string_view name);
/// The pattern of GPT-2, which byte level tokenizers use if they have no other.
extern const char* const kWordsOfGpt2;
/// The blank as SentencePiece writes it: U+2581.
inline constexpr std::string_view kBlank = "\xe2\x96\x81";
/// `text` with every `from` replaced.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);
/// "<0x0A>" as its byte.
std::optional<char> byte_of_name(std::string_view name);

}  // namespace braze
