// models.h — turns a piece of text into ids: by merged pairs, or by the longest pieces.
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

/// Finds a string_view in a map of strings.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

class TextModel {
 public:
  virtual ~TextModel() = default;
  /// Appends the ids of a piece, which is UTF-8 and not empty.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

/// Byte pair encoding: a piece is bytes or characters. The pair that comes first in a list is
/// joined again and again, the leftmost one first.
class PairModel final : public TextModel {
 public:
  struct Options {
    bool bytes = false;         ///< single bytes to begin with, else characters
    bool whole_pieces = false;  ///< a piece that is a token is that token, whatever its pairs are
    bool byte_fallback =
        false;  ///< a character that is not a token becomes its bytes, "<0x0A>" each ...
    std::optional<int32_t> unknown;  ///< ... or this; nullopt: nothing
    bool fuse_unknown = false;       ///< several of them in a row become one
  };
  PairModel(Vocabulary vocabulary, Options options);

  /// Joins these two; pairs that are added earlier come first. False if one of the three is not a
  /// token.
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
  std::array<int32_t, 256> bytes_;  // -1: no token
  std::unordered_map<uint64_t, Joined> pairs_;
};

/// WordPiece: the longest token with which a word begins, then the longest one with the prefix of
/// continuations, and so on. A word that leaves a rest is unknown as a whole.
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
