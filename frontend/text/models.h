// models.h — turns a piece of text into ids: by joined pairs, or by the longest tokens.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braze {

/// A hash that lets a map of strings be searched for a string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

class TextModel {
 public:
  virtual ~TextModel() = default;
  /// Appends the ids of a piece. The piece is UTF-8 and not empty.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

/// Byte pair encoding. At first, the symbols of a piece are its bytes or characters. Then pairs of
/// symbols are joined, as long as there are any: always the pair that comes first in a list, and of
/// several such pairs the leftmost one.
class PairModel final : public TextModel {
 public:
  struct Options {
    bool bytes = false;         ///< the first symbols are bytes, else characters
    bool whole_pieces = false;  ///< a piece that is a token becomes that token at once
    /// A character that is not a token becomes the tokens of its bytes, such as "<0x0A>".
    bool byte_fallback = false;
    std::optional<int32_t> unknown;  ///< the token for other unknown characters; nullopt: no token
    bool fuse_unknown = false;       ///< several unknown characters in a row become one token
  };
  PairModel(Vocabulary vocabulary, Options options);

  /// Adds the pair of these two to the list. Returns false if one of the two, or the joined text,
  /// is not a token.
  bool add_pair(std::string_view left, std::string_view right);

  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Joined {
    int32_t rank, id;
  };
  std::vector<int32_t> begin(std::string_view piece) const;
  void join(std::vector<int32_t>& symbols) const;
  const Joined* find_pair(int32_t left, int32_t right) const {
    const auto found =
        pairs_.find(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right));
    return found == pairs_.end() ? nullptr : &found->second;
  }

  Vocabulary vocabulary_;
  Options options_;
  std::array<int32_t, 256> bytes_;  // -1 if the byte is no token
  std::unordered_map<uint64_t, Joined> pairs_;
};

/// WordPiece. The first token is the longest one with which the word begins. The next tokens are
/// the longest ones that have the prefix of continuations. If some rest of the word has no token,
/// then the whole word is unknown.
class WordModel final : public TextModel {
 public:
  WordModel(Vocabulary vocabulary, std::string prefix, int32_t unknown, size_t most_characters)
      : vocabulary_(std::move(vocabulary)),
        prefix_(std::move(prefix)),
        unknown_(unknown),
        most_characters_(most_characters) {}

  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary vocabulary_;
  std::string prefix_;
  int32_t unknown_;
  size_t most_characters_;
};

}  // namespace braze
