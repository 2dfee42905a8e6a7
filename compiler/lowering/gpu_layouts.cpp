// gpu_layouts.cpp — which threads and registers hold the elements of a tile, and which of them are
// the lanes of vectors: D3 to D5.
#include <algorithm>
#include <bit>

#include "compiler/lowering/gpu.h"
#include "ir/code/index_program.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kMostLanes = 64;  // of a value of the Kernel IR

// Whether an extent can be the lanes of a vector. A row in one thread may have any extent.
bool is_vector(int64_t extent) {
  return std::has_single_bit(static_cast<uint64_t>(extent)) && extent <= kMostLanes;
}

// Whether elements along a register axis are neighbours in memory, and all or none are loaded.
bool in_a_row(const Expr& at, const Condition& guard, const std::string& symbol) {
  const auto gathers = [](const std::string& name) { return name[0] == '%'; };
  const auto divides = [&](const IndexComparison& c) {
    return c.left.uses(symbol) || c.right.uses(symbol);
  };
  const auto step = at.coefficient_of(symbol);
  return step && step->is_constant(1) && std::ranges::none_of(at.symbols(), gathers) &&
         std::ranges::none_of(guard, divides);
}

}  // namespace

const Layout& GpuLowering::layout(const ValueType& tile) const {
  auto [found, added] = layouts_.try_emplace(tile.extents);
  if (added) found->second = layout_of(tile_.layouts, tile.extents, block_threads_);
  return found->second;
}

// Nothing if the digits have another order than arrays, threads and vectors need.
std::optional<GpuLowering::AxisDigits> GpuLowering::digits(const std::vector<Digit>& list,
                                                           bool last_axis) {
  AxisDigits out;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool last = i + 1 == list.size();
    if (is_spread(list[i])) {
      out.spread.push_back(list[i]);
    } else if (last && last_axis && list[i].stride == 1 && is_vector(list[i].extent)) {
      out.lanes = list[i].extent;
    } else if (i == 0) {
      out.array = list[i].extent;
    } else if (last && !out.spread.empty()) {
      out.inner = list[i].extent;
      out.array *= out.inner;
    } else {
      return std::nullopt;
    }
  }
  return out;
}

GpuLowering::AxisDigits GpuLowering::digits(const ValueType& tile, size_t axis) const {
  auto found = digits(layout(tile).axes[axis], axis + 1 == tile.rank());
  if (!found) not_lowered(fmt::format("the layout {}", layout(tile).to_string()));
  return *std::move(found);
}

std::vector<Digit> GpuLowering::spread_digits(const ValueType& tile) const {
  std::vector<Digit> out;
  for (const std::vector<Digit>& axis : layout(tile).axes)
    std::copy_if(axis.begin(), axis.end(), std::back_inserter(out), is_spread);
  return out;
}

// The tile type with an axis folded.
ValueType GpuLowering::folded(ValueType tile, size_t axis) {
  tile.extents[axis] = 1;
  return tile;
}

// Along every axis that both have, the elements of `part` must be in the same threads and
// registers as those of `whole`.
void GpuLowering::check_agrees(const ValueType& part, const ValueType& whole,
                               const Statement& s) const {
  for (size_t axis = 0; axis < part.rank() && part.rank() == whole.rank(); ++axis) {
    if (part.extents[axis] == 1 || part.extents[axis] != whole.extents[axis]) continue;
    const auto own = digits(part, axis), other = digits(whole, axis);
    if (own == other) continue;
    fail(kLayouts,
         fmt::format("kernel @{}: axis {} of {} has the layout {}, but that of {} has {}, so "
                     "their elements are in different threads",
                     tile_.name, axis, part.to_string(), layout(part).to_string(),
                     whole.to_string(), layout(whole).to_string()),
         {s.location, {}, "define one layout that fits both, and put it before the other layouts"});
  }
}

std::vector<ValueOperand> GpuLowering::row_operands(const RowOp& op, const Statement& s) {
  for (const ValueOperand& operand : op.operands)
    if (!operand.is_literal()) check_agrees(tile_[operand.value].type, result_type(s), s);
  return Lowering::row_operands(op, s);
}

// --- Forms ---------------------------------------------------------------------------------------

ValueType GpuLowering::lower_type(const ValueType& tile) const {
  ValueType out = tile;
  for (size_t axis = 0; axis < tile.rank(); ++axis) {
    const AxisDigits own = digits(tile, axis);
    out.extents[axis] = own.array;
    if (axis + 1 == tile.rank()) out.lanes = static_cast<int32_t>(own.lanes);
  }
  return out;
}

Form GpuLowering::form(ValueId tile) const {
  const ValueType& type = tile_[tile].type;
  return {lower_type(type), positions(type)};
}

Positions GpuLowering::positions(const ValueType& tile) const {
  Positions map = renamed_;
  for (size_t axis = 0; axis < tile.rank(); ++axis)
    map["d" + std::to_string(axis)] = position(axis, tile);
  return map;
}

// D3: the sum of the digits' values times their weights.
Expr GpuLowering::position(size_t axis, const ValueType& tile) const {
  const AxisDigits own = digits(tile, axis);
  Expr sum;
  int64_t weight = 1;
  if (own.lanes > 1) sum += lane_symbol(static_cast<int32_t>(own.lanes));
  weight *= own.lanes;
  const Expr element = position_symbol('e', axis, own.array);
  if (own.inner > 1) sum += mod(element, own.inner) * Expr(weight);
  weight *= own.inner;
  // Digits whose numbers continue each other are combined to one digit.
  for (size_t i = own.spread.size(); i-- > 0;) {
    const Number& number = number_of(own.spread[i]);
    const int64_t stride = stride_of(own.spread[i]);
    int64_t extent = own.spread[i].extent;
    while (i > 0 && &number_of(own.spread[i - 1]) == &number &&
           stride_of(own.spread[i - 1]) == stride * extent)
      extent *= own.spread[--i].extent;
    sum += part_of(number, stride, extent) * Expr(weight);
    weight *= extent;
  }
  if (own.array > own.inner) sum += floordiv(element, own.inner) * Expr(weight);
  return sum;
}

Condition GpuLowering::single_store(const ValueType& tile) const {
  const std::vector<Digit> used = spread_digits(tile);
  Condition out = first_of(used);
  if (cluster_ == 1) return out;
  const Condition block = first_of(used, block_);
  out.insert(out.end(), block.begin(), block.end());
  return out;
}

// If a bound and the other terms of the compared coordinate are multiples of the lanes, the bound
// never divides a vector.
Condition GpuLowering::per_vector(Condition condition, int32_t lanes) const {
  const auto begins = [&](const Expr& e) {
    const Expr first = e.substitute("lane", 0);
    return first.is_multiple_of(lanes) && (e - first == Expr(0) || e - first == lane_symbol(lanes));
  };
  for (IndexComparison& c : condition) {
    if (lanes == 1 || !begins(c.left) || !begins(c.right)) continue;
    const bool below = c.kind == IndexComparison::Kind::Lt && !c.right.uses("lane");
    const bool above = c.kind == IndexComparison::Kind::Le && !c.left.uses("lane");
    if (below) c.left = c.left.substitute("lane", 0);
    if (above) c.right = c.right.substitute("lane", 0);
  }
  return condition;
}

// --- Elements as vectors -------------------------------------------------------------------------

// Elements that a thread has behind one another along an axis are loaded as vectors. Lanes do
// this along the last axis. If that has one element, it is done here along the axis before it.
Form GpuLowering::load_form(const LoadOp& op, ValueId tile) const {
  Form out = form(tile);
  size_t axis = out.type.rank();
  while (axis > 0 && out.type.extents[axis - 1] == 1) --axis;
  if (out.type.lanes > 1 || axis == 0 || op.guard.mask) return out;
  const std::string symbol = "e" + std::to_string(--axis);
  const int64_t extent = out.type.extents[axis];
  const auto size = static_cast<int64_t>(size_of(out.type.dtype));
  const Expr at = offset(op.memory, op.at, out.positions);
  if (!in_a_row(at, substitute(op.guard.condition, out.positions), symbol)) return out;
  for (int64_t lanes = 16 / size; lanes > 1; lanes /= 2) {
    if (extent % lanes != 0) continue;
    const auto width = static_cast<int32_t>(lanes);
    const Expr vector =
        extent > lanes ? position_symbol('e', axis, extent / lanes) * lanes : Expr(0);
    const Expr element = vector + lane_symbol(width);
    if (alignment(op.memory, at.substitute(symbol, element)) < lanes * size) continue;
    for (auto& [name, position] : out.positions)
      if (is_position_symbol(name, 'd')) position = position.substitute(symbol, element);
    out.type.lanes = width;
    out.type.extents[axis] /= lanes;
    return out;
  }
  return out;
}

void GpuLowering::define_in_form(ValueId tile, const ValueOperand& value, const Form& form) {
  const ValueType type = array_type(tile);
  define(tile, form.type == type ? value : ValueOperand(builder_.regroup(value, type)));
}

}  // namespace braze
