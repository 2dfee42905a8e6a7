#include "ir/support/suggest.h"

#include <fmt/format.h>

#include <algorithm>

namespace braze {

namespace {

// The number of letters that have to be added, removed, replaced or swapped with their neighbour to
// turn a into b.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  // One letter in three may be wrong. A word of one letter gets no suggestion, because any other
  // letter would do.
  size_t least = wrong.size() < 2 ? 0 : std::max<size_t>(1, wrong.size() / 3) + 1;
  for (const std::string& candidate : known) {
    // With two arguments, minmax would return references, here to temporary sizes. With a list it
    // returns values.
    const auto [shorter, longer] = std::minmax({wrong.size(), candidate.size()});
    if (longer - shorter >= least) continue;  // saves time, because names from files can be long
    const size_t distance = edit_distance(wrong, candidate);
    if (distance >= least) continue;
    least = distance;
    best = &candidate;
  }
  return best ? fmt::format("; did you mean \"{}\"?", *best) : "";
}

}  // namespace braze
