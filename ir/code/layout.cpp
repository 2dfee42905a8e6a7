#include "ir/code/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/code/dot_layouts.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The greatest power of two that divides n and is at most `most`.
int64_t power_of_two_part(int64_t n, int64_t most) {
  int64_t part = 1;
  while (part * 2 <= most && n % (part * 2) == 0) part *= 2;
  return part;
}

// Adds `extent` threads that are `stride` threads apart, as lane and warp digits.
void add_thread_digits(std::vector<Digit>& digits, int64_t stride, int64_t extent) {
  const int64_t lanes = std::clamp<int64_t>(kWarpThreads / stride, 1, extent);
  const int64_t warps = extent / lanes;
  if (warps > 1)
    digits.push_back({Resource::Warp, std::max<int64_t>(stride * lanes / kWarpThreads, 1), warps});
  if (lanes > 1) digits.push_back({Resource::Lane, stride, lanes});
}

}  // namespace

int64_t Layout::extent(size_t axis) const {
  int64_t n = 1;
  for (const Digit& digit : axes[axis]) n *= digit.extent;
  return n;
}

std::string Layout::to_string() const {
  constexpr char kLetters[] = {'b', 'w', 'l', 'r'};
  return "(" +
         join(axes, " | ",
              [&](const std::vector<Digit>& digits) {
                if (digits.empty()) return std::string("-");
                return join(digits, " ", [&](const Digit& digit) {
                  return fmt::format("{}{}:{}", kLetters[static_cast<size_t>(digit.resource)],
                                     digit.stride, digit.extent);
                });
              }) +
         ")";
}

bool is_thread_digit(const Digit& digit) {
  return digit.resource == Resource::Warp || digit.resource == Resource::Lane;
}

bool is_spread(const Digit& digit) { return digit.resource != Resource::Register; }

int64_t thread_stride(const Digit& digit) {
  return digit.resource == Resource::Warp ? digit.stride * kWarpThreads : digit.stride;
}

void renumber_registers(Layout& layout) {
  std::vector<Digit*> registers;
  for (std::vector<Digit>& axis : layout.axes)
    for (Digit& digit : axis)
      if (digit.resource == Resource::Register) registers.push_back(&digit);
  // If strides are equal, because they come from different operands, the last axis is innermost.
  std::reverse(registers.begin(), registers.end());
  std::stable_sort(registers.begin(), registers.end(),
                   [](const Digit* a, const Digit* b) { return a->stride < b->stride; });
  int64_t stride = 1;
  for (Digit* digit : registers) {
    digit->stride = stride;
    stride *= digit->extent;
  }
}

std::vector<RegisterDigit> register_digits(const Layout& layout) {
  std::vector<std::pair<int64_t, RegisterDigit>> found;
  for (size_t axis = 0; axis < layout.rank(); ++axis) {
    int64_t weight = layout.extent(axis);
    for (const Digit& digit : layout.axes[axis]) {
      weight /= digit.extent;
      if (digit.resource == Resource::Register)
        found.push_back({digit.stride, {axis, weight, digit.extent}});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<RegisterDigit> out;
  for (const auto& [stride, digit] : found) out.push_back(digit);
  return out;
}

namespace {
// The layout of a fragment of a matrix with these columns. The rows are those of all fragments:
// groups of 8 lanes, and four warps with 16 rows each.
Layout fragment(int64_t row_stride, std::vector<Digit> columns) {
  std::erase_if(columns, [](const Digit& digit) { return digit.extent == 1; });
  return {{{{Resource::Warp, 1, 4}, {Resource::Register, row_stride, 2}, {Resource::Lane, 4, 8}},
           std::move(columns)}};
}
}  // namespace

Layout accumulator_layout(int64_t columns) {
  return fragment(
      2,
      {{Resource::Register, 4, columns / 8}, {Resource::Lane, 1, 4}, {Resource::Register, 1, 2}});
}

Layout dot_operand_layout(int64_t depth, bool tf32) {
  if (!tf32) return accumulator_layout(depth);
  return fragment(1, {{Resource::Register, 2, depth / 4}, {Resource::Lane, 1, 4}});
}

Layout spread(const std::vector<int64_t>& extents, const std::vector<int64_t>& threads,
              int64_t vector, int64_t cluster) {
  const size_t rank = extents.size();
  Layout layout{std::vector<std::vector<Digit>>(rank)};
  std::vector<int64_t> in_registers(rank);
  int64_t stride = 1, neighbours = 1;
  for (size_t axis = rank; axis-- > 0;) {
    int64_t rest = extents[axis];
    if (axis + 1 == rank) {
      neighbours = power_of_two_part(rest, vector);
      rest /= neighbours;
    }
    const int64_t used = power_of_two_part(rest, threads[axis]);
    rest /= used;
    const int64_t blocks = axis + 1 == rank ? power_of_two_part(rest, cluster) : 1;
    if (blocks > 1) layout.axes[axis].push_back({Resource::Block, 1, blocks});
    if (used > 1) add_thread_digits(layout.axes[axis], stride, used);
    in_registers[axis] = rest / blocks;
    stride *= threads[axis];
  }
  int64_t number = neighbours;
  for (size_t axis = rank; axis-- > 0;) {
    std::vector<Digit>& digits = layout.axes[axis];
    if (in_registers[axis] > 1)
      digits.insert(digits.begin(), {Resource::Register, number, in_registers[axis]});
    number *= in_registers[axis];
  }
  if (neighbours > 1) layout.axes.back().push_back({Resource::Register, 1, neighbours});
  return layout;
}

Layout product_layout(const std::vector<int64_t>& extents, const std::vector<int64_t>& threads,
                      int64_t vector) {
  constexpr int64_t kLanesAlong = 8;
  int64_t along = std::min(kLanesAlong, threads[1]);
  const int64_t across = std::min(kWarpThreads / along, threads[0]);
  along = kWarpThreads / across;
  const int64_t pairs = across > 1 ? 2 : 1;
  const int64_t warps = threads[1] / along, in_row = extents[1] / (threads[1] * vector);
  Layout layout{{{{Resource::Register, in_row * vector, extents[0] / threads[0]},
                  {Resource::Warp, warps, threads[0] / across},
                  {Resource::Lane, pairs * along, across / pairs},
                  {Resource::Lane, 1, pairs}},
                 {{Resource::Register, vector, in_row},
                  {Resource::Warp, 1, warps},
                  {Resource::Lane, pairs, along},
                  {Resource::Register, 1, vector}}}};
  for (std::vector<Digit>& digits : layout.axes)
    std::erase_if(digits, [](const Digit& digit) { return digit.extent == 1; });
  return layout;
}

DotLayouts warp_dot_layouts(const std::vector<int64_t>& extents,
                            const std::vector<int64_t>& threads, int64_t vector, int64_t depth) {
  constexpr int64_t kRows = 8, kColumns = 4;
  const int64_t warp_rows = threads[0] / kRows, warp_columns = threads[1] / kColumns;
  const int64_t in_row = extents[1] / (threads[1] * vector);
  // A thread has one summed index of every four with tf32, and a pair of every eight with 16 bits.
  const int64_t pair = depth / kTf32DotDepth;
  const std::vector<Digit> rows = {
      {Resource::Register, 2 * vector * in_row, extents[0] / threads[0]},
      {Resource::Warp, warp_columns, warp_rows},
      {Resource::Lane, kColumns, kRows}};
  const std::vector<Digit> blocks = {{Resource::Register, vector, in_row},
                                     {Resource::Warp, 1, warp_columns}};
  const std::vector<Digit> left_depth = {
      {Resource::Register, pair, 2}, {Resource::Lane, 1, kColumns}, {Resource::Register, 1, pair}};
  const std::vector<Digit> right_depth = {{Resource::Register, 2 * vector * in_row, 2},
                                          {Resource::Lane, 1, kColumns},
                                          {Resource::Register, vector * in_row, pair}};
  std::vector<Digit> columns = blocks, right_columns = blocks;
  columns.push_back({Resource::Lane, 1, kColumns});
  columns.push_back({Resource::Register, 1, vector});
  right_columns.push_back({Resource::Lane, kColumns, kRows});
  right_columns.push_back({Resource::Register, 1, vector / 2});
  DotLayouts layouts{{{rows, columns}}, {{rows, left_depth}}, {{right_depth, right_columns}}};
  for (Layout* layout : {&layouts.sums, &layouts.left, &layouts.right}) {
    for (std::vector<Digit>& digits : layout->axes)
      std::erase_if(digits, [](const Digit& digit) { return digit.extent == 1; });
    renumber_registers(*layout);
  }
  return layouts;
}

Layout default_layout(const std::vector<int64_t>& extents, int64_t threads) {
  constexpr int64_t kVector = 4;
  std::vector<int64_t> dealt(extents.size(), 1);
  int64_t left = threads;
  for (size_t axis = extents.size(); axis-- > 0;) {
    int64_t rest = extents[axis];
    if (axis + 1 == extents.size()) rest /= power_of_two_part(rest, kVector);
    dealt[axis] = power_of_two_part(rest, left);
    left /= dealt[axis];
  }
  return spread(extents, dealt, kVector);
}

size_t first_that_fits(const std::vector<NamedLayout>& defined,
                       const std::vector<int64_t>& extents) {
  const auto fits = [&](const NamedLayout& named) {
    if (named.layout.rank() != extents.size()) return false;
    for (size_t axis = 0; axis < extents.size(); ++axis)
      if (extents[axis] != 1 && extents[axis] != named.layout.extent(axis)) return false;
    return true;
  };
  return static_cast<size_t>(std::ranges::find_if(defined, fits) - defined.begin());
}

Layout layout_of(const std::vector<NamedLayout>& defined, const std::vector<int64_t>& extents,
                 int64_t threads) {
  const size_t first = first_that_fits(defined, extents);
  if (first == defined.size()) return default_layout(extents, threads);
  Layout out = defined[first].layout;
  for (size_t axis = 0; axis < extents.size(); ++axis)
    if (extents[axis] == 1) out.axes[axis].clear();
  return out;
}

}  // namespace braze
