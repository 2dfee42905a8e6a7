#include "braze/tokenizer.h"

#include <algorithm>
#include <charconv>

#include "braze/gguf.h"
#include "frontend/text/codes.h"
#include "frontend/text/split.h"
#include "frontend/text/tokenizer_p.h"
#include "ir/support/text.h"
#include "ir/support/utf8.h"
#include "runtime/io/mapped_file.h"

namespace braze {

const char* const kWordsOfGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// --- Added tokens ------------------------------------------------------------------------------

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::string_view file) {
  if (tokens.empty()) return;
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.name.size() > b.name.size(); });
  std::string pattern;
  for (const AddedToken& token : tokens) {
    pattern +=
        fmt::format("{}{}{}{}(*MARK:{})", ids_.empty() ? "" : "|", token.takes_left ? "\\s*" : "",
                    Pattern::literal(token.name), token.takes_right ? "\\s*" : "", ids_.size());
    ids_.push_back(token.id);
  }
  pattern_.emplace(pattern, file);
}

void Tokenizer::State::add_tokens(const std::vector<AddedToken>& tokens) {
  std::vector<AddedToken> kinds[2][2];  // [normalized][without special tokens]
  special.resize(names.size());
  for (const AddedToken& token : tokens) {
    special[static_cast<size_t>(token.id)] = token.special;
    if (token.name.empty()) continue;
    kinds[token.normalized][0].push_back(token);
    if (!token.special) kinds[token.normalized][1].push_back(token);
  }
  raw = AddedTokens(kinds[0][0], file);
  raw_without_special = AddedTokens(kinds[0][1], file);
  late = AddedTokens(kinds[1][0], file);
  late_without_special = AddedTokens(kinds[1][1], file);
}

// --- Steps -------------------------------------------------------------------------------------

Tokenizer::State::Cut cut_by(SplitStep step) {
  return [step = std::move(step)](std::string_view piece, bool, std::vector<std::string>& out) {
    for (const std::string_view part : split(piece, step)) out.emplace_back(part);
  };
}

void cut_at_words(Tokenizer::State& state) {
  state.cuts.push_back(cut_by({Pattern(R"(\s+)", state.file), Matches::Removed}));
  state.cuts.push_back(cut_by({Pattern(R"([!-/:-@\[-`{-~\p{P}])", state.file)}));
}

std::optional<std::string> bytes_of_name(std::string_view name) {
  std::string out;
  for (size_t at = 0, length = 0; at < name.size(); at += length) {
    length = utf8_length(name.substr(at));
    if (length == 0 || length > 2) return std::nullopt;
    const auto lead = static_cast<uint8_t>(name[at]);
    unsigned c = lead;
    if (length == 2) c = (lead & 0x1fu) << 6 | (static_cast<uint8_t>(name[at + 1]) & 0x3fu);
    // Printable bytes stand for themselves. The characters from U+0100 on stand for the other bytes
    // in turn.
    const auto prints = [](unsigned byte) {
      return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
    };
    if (c >= 0x100) {
      unsigned byte = 0, left = c - 0x100;
      while (byte < 0x100 && (prints(byte) || left-- > 0)) ++byte;
      c = byte;
    } else if (!prints(c)) {
      return std::nullopt;
    }
    if (c >= 0x100) return std::nullopt;
    out += static_cast<char>(c);
  }
  return out;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; !from.empty() && (at = text.find(from)) != std::string_view::npos;) {
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  return out += text;
}

std::optional<char> byte_of_name(std::string_view name) {
  unsigned byte = 0;
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  const auto result = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
  if (result.ptr != name.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

// --- A text and its ids ------------------------------------------------------------------------

void Tokenizer::State::encode(std::string_view text, bool special_names,
                              std::vector<int32_t>& out) const {
  const auto token = [&out](int32_t id) { out.push_back(id); };
  const auto encode_part = [&](std::string_view part, bool first) {
    std::vector<std::string> pieces{std::string(part)};
    for (const Cut& cut : cuts) {
      std::vector<std::string> next;
      for (size_t i = 0; i < pieces.size(); ++i) cut(pieces[i], first && i == 0, next);
      pieces = std::move(next);
    }
    for (const std::string& piece : pieces)
      if (!piece.empty()) model->encode(piece, out);
  };
  const auto normalize_part = [&](std::string_view part) {
    const bool first = part.data() == text.data();
    std::string normal(part);
    for (const Normalize& step : normalizers) normal = step(normal);
    bool begins = first;
    (special_names ? late : late_without_special)
        .each(
            normal, [&](std::string_view rest) { encode_part(rest, std::exchange(begins, false)); },
            [&](int32_t id) {
              begins = false;
              token(id);
            });
  };
  (special_names ? raw : raw_without_special).each(text, normalize_part, token);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (!is_utf8(text))
    fail(codes::kTokenizerText, "encode: the text is not UTF-8",
         {.fix = "replace the malformed bytes, for example by U+FFFD"});
  std::vector<int32_t> out;
  if (options.frame) out = state_->before;
  state_->encode(text, options.special, out);
  if (options.frame) out.insert(out.end(), state_->behind.begin(), state_->behind.end());
  return out;
}

std::string Tokenizer::piece(int32_t id, bool special) const {
  const auto at = static_cast<size_t>(id);
  if (id < 0 || at >= size() || (state_->special[at] && !special)) return "";
  return state_->bytes[at];
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool special) const {
  std::string out;
  for (const int32_t id : ids) out += piece(id, special);
  if (state_->spelling != Spelling::Bytes && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

size_t Tokenizer::size() const { return state_->names.size(); }

std::optional<int32_t> Tokenizer::id(std::string_view token) const {
  const auto found = state_->ids.find(token);
  if (found == state_->ids.end()) return std::nullopt;
  return found->second;
}

Tokenizer Tokenizer::open(const std::string& path) {
  if (path.ends_with(".gguf")) return from_gguf(GgufFile::open(path));
  const auto file = MappedFile::open_stable(path);
  const auto bytes = file->bytes();
  return from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace braze
