#include "frontend/text/split.h"

#include <algorithm>

namespace braze {

namespace {

struct Part {
  size_t begin, end;
  bool is_match;
};

/// The parts from left to right. A part is joined with the one before it if join(part, before).
template <class Join>
std::vector<Part> joined(const std::vector<Part>& parts, const Join& join) {
  std::vector<Part> out;
  const Part* before = nullptr;
  for (const Part& part : parts) {
    if (before != nullptr && join(part, *before))
      out.back().end = part.end;
    else
      out.push_back(part);
    before = &part;
  }
  return out;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, const SplitStep& step) {
  std::vector<Part> parts;
  size_t end = 0;
  const auto add = [&](size_t to, bool is_match) {
    if (to > end) parts.push_back({end, to, is_match != step.inverted});
    end = to;
  };
  step.pattern.each(text, [&](size_t from, size_t to, int) {
    add(from, false);
    add(to, true);
  });
  add(text.size(), false);

  switch (step.matches) {
    case Matches::Removed:
      parts.erase(
          std::remove_if(parts.begin(), parts.end(), [](const Part& p) { return p.is_match; }),
          parts.end());
      break;
    case Matches::Isolated:
      break;
    case Matches::MergedWithPrevious:
      parts = joined(parts, [](const Part& part, const Part& before) {
        return part.is_match && !before.is_match;
      });
      break;
    case Matches::MergedWithNext:
      parts = joined(parts, [](const Part& part, const Part& before) {
        return before.is_match && !part.is_match;
      });
      break;
    case Matches::Contiguous:
      parts = joined(parts, [](const Part& part, const Part& before) {
        return part.is_match == before.is_match;
      });
      break;
  }
  std::vector<std::string_view> out;
  for (const Part& part : parts) out.push_back(text.substr(part.begin, part.end - part.begin));
  return out;
}

}  // namespace braze
