// split.h — cuts a text into the pieces that a tokenizer's model takes one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/text/pattern.h"

namespace braze {

/// What happens to the matches of a pattern.
enum class Matches : uint8_t {
  Removed,
  Isolated,            ///< a piece of their own
  MergedWithPrevious,  ///< part of the piece before
  MergedWithNext,      ///< part of the piece after
  Contiguous,          ///< a piece of their own, joined with matches that follow at once
};

/// One step.
struct SplitStep {
  Pattern pattern;
  Matches matches = Matches::Isolated;
  bool inverted = false;  ///< swaps matches and what lies between them
};

/// The pieces of `text`, from left to right. They are views of it, and none is empty.
std::vector<std::string_view> split(std::string_view text, const SplitStep& step);

}  // namespace braze
