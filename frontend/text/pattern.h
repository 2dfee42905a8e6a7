// pattern.h — regular expressions over UTF-8, with PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace braze {

/// A compiled pattern. \s and \S follow Unicode's definition of white space, not that of PCRE2.
/// Several threads may use it at once.
class Pattern {
 public:
  /// Throws kTokenizerFormat if the pattern is malformed. The message names `file`.
  Pattern(std::string_view pattern, std::string_view file);
  /// The pattern that matches exactly this text.
  static std::string literal(std::string_view text);

  /// Calls found(begin, end, mark) for every match in `text`, which is UTF-8, from left to right.
  /// `mark` is the number N of the (*MARK:N) that the match passed, or -1 if it passed none. Empty
  /// matches are skipped. It throws kTokenizerLimit if matching would take too long.
  using Found = std::function<void(size_t begin, size_t end, int mark)>;
  void each(std::string_view text, const Found& found) const;

 private:
  std::shared_ptr<void> code_;
};

}  // namespace braze
