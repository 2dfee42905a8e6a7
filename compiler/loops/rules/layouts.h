// layouts.h — how rules for GPUs deal tiles to threads: the digits of tiled axes, and the layouts
// made of them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "ir/code/layout.h"

namespace braze {

/// The digits of the list that have several values.
std::vector<Digit> digits(std::initializer_list<Digit> list);
/// The digits of `count` threads along an axis, whose numbers in the block are `stride` apart.
std::vector<Digit> threads_along(int64_t stride, int64_t count);

/// An axis of a tile, and its digits.
struct TiledAxis {
  std::string name;
  int64_t tile = 1;
  std::vector<Digit> digits;
};
/// Binds every value and store, or those of one phase: the layout of a tile has the digits of those
/// axes in `tiled` that the tile has.
void bind_layouts(Scheduled& out, const std::vector<TiledAxis>& tiled,
                  std::optional<size_t> phase = std::nullopt);

}  // namespace braze
