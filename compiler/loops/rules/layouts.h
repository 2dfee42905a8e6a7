// layouts.h — what rules for GPUs say of threads: the digits of tiled axes, and layouts made of
// them.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "compiler/loops/rules/rules.h"
#include "ir/code/layout.h"

namespace braze {

int64_t floor_power_of_two(int64_t n);
int64_t ceil_power_of_two(int64_t n);
int64_t ceil_divide(int64_t a, int64_t b);

/// Those of the digits that have several values.
std::vector<Digit> digits(std::initializer_list<Digit> list);
/// Threads `first`, `first + stride`, .. of a block along an axis.
std::vector<Digit> threads_along(int64_t stride, int64_t count);

/// An axis of a tile, and its digits.
struct TiledAxis {
  std::string name;
  int64_t tile = 1;
  std::vector<Digit> digits;
};
/// Binds all that is made and stored: a tile has the digits of those of its axes that have them.
void bind_layouts(Scheduled& out, const std::vector<TiledAxis>& tiled);

}  // namespace braze
