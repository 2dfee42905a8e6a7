// pattern.h — regular expressions over UTF-8, by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace braze {

/// A compiled pattern; \s and \S are Unicode's white space, whatever PCRE2 takes them for. May be
/// used by several threads at once.
class Pattern {
 public:
  /// kTokenizerFormat if the pattern is malformed; `file` is for the message.
  Pattern(std::string_view pattern, std::string_view file);
  /// A pattern that matches this text.
  static std::string literal(std::string_view text);

  /// Calls found(begin, end, mark) for every match in `text`, which is UTF-8, from left to right.
  /// `mark` is the number N of the (*MARK:N) that the match passed, else -1. Matches of no
  /// characters are skipped. kTokenizerLimit if matching would take too long.
  using Found = std::function<void(size_t begin, size_t end, int mark)>;
  void each(std::string_view text, const Found& found) const;

 private:
  std::shared_ptr<void> code_;
};

}  // namespace braze
