#include "tests/fuzz/tile_shrink.h"

#include <sstream>
#include <vector>

namespace braze::fuzz {
namespace {

using Lines = std::vector<std::string>;

std::string joined(const Lines& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

/// One past the statement that begins at line `at`: the end of its block, if it has one.
size_t end_of(const Lines& lines, size_t at) {
  int depth = 0;
  for (size_t i = at; i < lines.size(); ++i) {
    for (const char c : lines[i]) depth += (c == '{') - (c == '}');
    if (depth <= 0) return i + 1;
  }
  return lines.size();
}

}  // namespace

std::string shrink_lines(const std::string& text,
                         const std::function<bool(const std::string&)>& fails) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (bool shorter = true; shorter;) {
    shorter = false;
    // What uses a value stands behind it, so the last lines go first.
    for (size_t at = lines.size(); at-- > 0;) {
      Lines fewer = lines;
      fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(at),
                  fewer.begin() + static_cast<ptrdiff_t>(end_of(lines, at)));
      if (!fails(joined(fewer))) continue;
      lines = std::move(fewer);
      shorter = true;
    }
  }
  return joined(lines);
}

}  // namespace braze::fuzz
