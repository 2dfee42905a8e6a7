// pipelined_values.cpp — tiles in registers, and how they are loaded and stored: D3 to D6, D25.
#include <algorithm>
#include <bit>
#include <numeric>

#include "compiler/lowering/pipelined.h"
#include "compiler/lowering/rows.h"
#include "ir/code/vectors.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kVectorBytes = 16;

std::vector<int64_t> extents_of(const std::vector<RegisterDigit>& axes) {
  std::vector<int64_t> out;
  for (const RegisterDigit& axis : axes) out.push_back(axis.extent);
  return out;
}

bool same_place(const RegisterDigit& a, const RegisterDigit& b) {
  return a.axis == b.axis && a.weight == b.weight;
}

std::vector<RegisterDigit> without_units(std::vector<RegisterDigit> axes) {
  std::erase_if(axes, [](const RegisterDigit& axis) { return axis.extent == 1; });
  return axes;
}

// `axes` in the order of `frame`, with extent 1 for the axes of the frame that the tile lacks.
std::vector<RegisterDigit> framed(const std::vector<RegisterDigit>& axes,
                                  const std::vector<RegisterDigit>& frame) {
  std::vector<RegisterDigit> out = frame;
  for (RegisterDigit& axis : out) {
    const bool has = std::any_of(axes.begin(), axes.end(), [&](const RegisterDigit& own) {
      return same_place(own, axis) && own.extent > 1;
    });
    if (!has) axis.extent = 1;
  }
  return out;
}

// Rounding makes sums and products depend on their order. All other folds may use the cheapest
// order.
bool order_matters(Monoid monoid, DType dtype) {
  return is_floating(dtype) && (monoid == Monoid::Sum || monoid == Monoid::Prod);
}

}  // namespace

// --- Arrays -------------------------------------------------------------------------------------

ValueType PipelinedLowering::array_type(DType dtype, const std::vector<RegisterDigit>& axes) {
  return {dtype, 1, extents_of(axes)};
}

void PipelinedLowering::set(ValueId tile, ValueOperand value, std::vector<RegisterDigit> axes,
                            bool flat) {
  tiles_[tile.index] = {value, std::move(axes), flat};
  define(tile, value);
}

// One view serves the rest of its region.
ValueOperand PipelinedLowering::reshaped(const ValueOperand& value,
                                         const std::vector<int64_t>& extents) {
  const ValueType& from = type_of(value);
  if (from.extents == extents) return value;
  auto& [made, scope] = shapes_[{value.value, extents}];
  if (scope == builder_.scope()) return made;
  if (extents.empty())
    made = builder_.append(GetOp{value, std::vector<int64_t>(from.rank())},
                           {{from.dtype, from.lanes, {}}}, kernel_[value.value].name)[0];
  else
    made = builder_.append(ViewOp{ViewKind::Reshape, value, {}},
                           {{from.dtype, from.lanes, extents}}, kernel_[value.value].name)[0];
  scope = builder_.scope();
  return made;
}

// D3: the array of a tile with the given axes.
ValueOperand PipelinedLowering::as_array(const ValueOperand& tile,
                                         const std::vector<RegisterDigit>& axes) {
  if (tile.is_literal()) return tile;
  const Value& source = tile_[tile.value];
  if (const auto bits = constants_.find(tile.value); bits != constants_.end())
    return builder_.append(ConstOp{bits->second},
                           {array_type(source.type.dtype, framed(axes_of(tile.value), axes))},
                           source.name)[0];
  const TileValue& own = tiles_[tile.value.index];
  if (source.type.rank() == 0) return own.value;
  const auto mine = without_units(own.axes);
  const auto wanted = framed(mine, axes);
  const auto order = without_units(wanted);
  ValueOperand value = own.value;
  if (order != mine) {  // the registers are numbered in another way
    value = reshaped(value, extents_of(mine));
    std::vector<int64_t> permutation;
    for (const RegisterDigit& axis : order)
      permutation.push_back(std::find(mine.begin(), mine.end(), axis) - mine.begin());
    value = builder_.append(ViewOp{ViewKind::Transpose, value, permutation},
                            {array_type(source.type.dtype, order)}, source.name)[0];
  }
  return reshaped(value, order.empty() && !axes.empty() && type_of(value).rank() == 0
                             ? std::vector<int64_t>()
                             : extents_of(wanted));
}

ValueOperand PipelinedLowering::as_flat(ValueId tile) {
  const auto axes = axes_of(tile);
  const std::vector<int64_t> count = {array_type(DType::F32, axes).count()};
  if (const auto bits = constants_.find(tile); bits != constants_.end())
    return builder_.append(ConstOp{bits->second}, {{tile_[tile].type.dtype, 1, count}},
                           tile_[tile].name)[0];
  const TileValue& own = tiles_[tile.index];
  return own.flat ? own.value : reshaped(as_array(tile, axes), count);
}

// Notes the axes that the first row that reads a value wants. Loads use these.
void PipelinedLowering::note_frames(const Region& region) {
  for (const Statement& s : region.statements) {
    if (const auto* row = s.as<RowOp>()) {
      const auto axes = axes_of(s.results[0]);
      for (const ValueOperand& operand : row->operands)
        if (!operand.is_literal()) frames_.emplace(operand.value, axes);
    }
    for (const Region* inner : regions_of(s)) note_frames(*inner);
  }
}

// --- Positions ----------------------------------------------------------------------------------

Expr PipelinedLowering::thread_digit(const Digit& digit) const {
  const Expr number = digit.resource == Resource::Warp ? role_.warp
                      : digit.resource == Resource::Lane
                          ? role_.lane
                          : grid_symbol(phase_->cluster, phase_->cluster_size);
  return mod(floordiv(number, digit.stride), digit.extent);
}

PipelinedLowering::ArrayForm PipelinedLowering::form(ValueId tile,
                                                     const std::vector<RegisterDigit>& axes,
                                                     int64_t lanes) const {
  return form(layouts_[tile], tile_[tile].type.dtype, axes, lanes);
}

PipelinedLowering::ArrayForm PipelinedLowering::form(const Layout& layout, DType dtype,
                                                     const std::vector<RegisterDigit>& axes,
                                                     int64_t lanes) const {
  ArrayForm out{axes, lanes, array_type(dtype, axes), renamed_};
  out.type.lanes = static_cast<int32_t>(lanes);
  if (lanes > 1) {
    out.type.extents.back() /= lanes;
    if (out.type.extents.back() == 1) out.type.extents.pop_back();
  }
  const auto register_value = [&](size_t axis, int64_t weight) {
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].axis != axis || axes[i].weight != weight || axes[i].extent == 1) continue;
      if (lanes == 1 || i + 1 < axes.size()) return position_symbol('e', i, axes[i].extent);
      const Expr lane = lane_symbol(static_cast<int32_t>(lanes));
      const int64_t vectors = axes[i].extent / lanes;
      return vectors == 1 ? lane : position_symbol('e', i, vectors) * Expr(lanes) + lane;
    }
    return Expr(0);
  };
  for (size_t axis = 0; axis < layout.rank(); ++axis) {
    Expr sum;
    int64_t weight = layout.extent(axis);
    for (const Digit& digit : layout.axes[axis]) {
      weight /= digit.extent;
      sum += Expr(weight) * (digit.resource == Resource::Register ? register_value(axis, weight)
                                                                  : thread_digit(digit));
    }
    out.positions.insert_or_assign("d" + std::to_string(axis), sum);
  }
  return out;
}

// D4: neighbours at the end of the innermost axis become lanes. There are as many as the alignment
// of the address allows and no guard divides.
PipelinedLowering::ArrayForm PipelinedLowering::vector_form(ValueId tile,
                                                            const std::vector<RegisterDigit>& axes,
                                                            MemoryId memory,
                                                            const std::vector<Expr>& at,
                                                            const Guard& guard) const {
  const ArrayForm single = form(tile, axes, 1);
  const ValueType& type = tile_[tile].type;
  const bool last = !axes.empty() && axes.back().axis + 1 == type.rank() &&
                    axes.back().weight == 1 && axes.back().extent > 1;
  if (!last || guard.mask) return single;
  const auto bytes = static_cast<int64_t>(size_of(type.dtype));
  const auto extent = static_cast<uint64_t>(axes.back().extent);
  const int64_t most = int64_t{1} << std::countr_zero(extent);
  for (int64_t lanes = std::min(kVectorBytes / bytes, most); lanes > 1; lanes /= 2) {
    ArrayForm vector = form(tile, axes, lanes);
    if (is_on_chip(memory)) {
      if (chip_neighbours(on_chip(memory), at, vector)) return vector;
      continue;
    }
    const Expr address = offset(memory, at, vector.positions);
    const bool neighbours = address.coefficient_of("lane").value_or(Expr(0)).is_constant(1);
    if (neighbours && alignment(memory, address) >= lanes * bytes &&
        !divides_vectors(lower_guard(guard, memory, at, vector).condition, lanes))
      return vector;
  }
  return single;
}

// Whether a condition can hold for some lanes of a vector and fail for others.
bool PipelinedLowering::divides_vectors(const Condition& condition, int64_t lanes) {
  return !std::ranges::all_of(condition,
                              [&](const IndexComparison& c) { return is_cut_whole(c, lanes); });
}

// D5: of the threads that hold the same element, the one whose other digits are 0 stores it.
Condition PipelinedLowering::single_store(const Layout& layout) const {
  Condition out;
  const auto unused = [&](Resource resource, const Expr& number, int64_t count) {
    std::vector<Digit> used;
    for (const std::vector<Digit>& axis : layout.axes)
      std::copy_if(axis.begin(), axis.end(), std::back_inserter(used),
                   [&](const Digit& digit) { return digit.resource == resource; });
    used.push_back({resource, count, 1});
    std::sort(used.begin(), used.end(),
              [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
    int64_t next = 1;
    for (const Digit& digit : used) {
      if (digit.stride > next)
        out.push_back(
            {mod(floordiv(number, next), digit.stride / next), IndexComparison::Kind::Eq, 0});
      next = digit.stride * digit.extent;
    }
  };
  unused(Resource::Warp, role_.warp, role_.op->warps);
  unused(Resource::Lane, role_.lane, kWarpThreads);
  return out;
}

std::vector<Digit> PipelinedLowering::thread_digits(const Layout& layout) {
  std::vector<Digit> out;
  for (const std::vector<Digit>& axis : layout.axes)
    std::copy_if(axis.begin(), axis.end(), std::back_inserter(out), is_thread_digit);
  return out;
}

bool PipelinedLowering::uses(const Layout& layout, Resource resource) {
  const auto digits = thread_digits(layout);
  return std::any_of(digits.begin(), digits.end(),
                     [&](const Digit& digit) { return digit.resource == resource; });
}

std::pair<Expr, int64_t> PipelinedLowering::number_among(const std::vector<Digit>& digits) const {
  Expr number;
  int64_t count = 1;
  for (const Digit& digit : digits) {
    number += thread_digit(digit) * Expr(count);
    count *= digit.extent;
  }
  return {number, count};
}

// L6. `clip` becomes the condition that all coordinates are inside.
Guard PipelinedLowering::lower_guard(const Guard& guard, MemoryId memory,
                                     const std::vector<Expr>& at, const ArrayForm& form) const {
  Guard out;
  out.condition = substitute(guard.condition, form.positions);
  if (guard.mask) out.mask = tiles_[guard.mask.index].value.value;
  for (size_t axis = 0; guard.clip && axis < at.size(); ++axis) {
    const Expr place = at[axis].substitute(form.positions);
    const Expr& extent = tile_[memory].shape[axis];
    if (place.range().min < 0) out.condition.push_back({place, IndexComparison::Kind::Ge, 0});
    if (proves_less(place, extent) != true)
      out.condition.push_back({place, IndexComparison::Kind::Lt, extent});
  }
  return out;
}

// --- Statements ---------------------------------------------------------------------------------

// A literal remains a literal until an array of it is needed.
void PipelinedLowering::lower_op(const ConstOp& op, const Statement& s) {
  if (result_type(s).rank() == 0) return set(s.results[0], emit(op, result_type(s), s), {});
  constants_[s.results[0]] = op.bits;
}

void PipelinedLowering::lower_op(const IndexOp& op, const Statement& s) {
  const ArrayForm own = form(s.results[0], axes_of(s.results[0]), 1);
  set(s.results[0], emit(IndexOp{op.value.substitute(own.positions)}, own.type, s), own.axes);
}

void PipelinedLowering::lower_op(const TestOp& op, const Statement& s) {
  const ArrayForm own = form(s.results[0], axes_of(s.results[0]), 1);
  set(s.results[0], emit(TestOp{substitute(op.condition, own.positions)}, own.type, s), own.axes);
}

void PipelinedLowering::lower_op(const LoadOp& op, const Statement& s) {
  const ValueId tile = s.results[0];
  auto axes = axes_of(tile);
  if (const auto frame = frames_.find(tile); frame != frames_.end() && !axes.empty())
    if (const auto wanted = framed(axes, frame->second); without_units(wanted) == axes)
      axes = wanted;
  const ArrayForm own = vector_form(tile, axes, op.memory, op.at, op.guard);
  LoadOp load{op.memory, {}, lower_guard(op.guard, op.memory, op.at, own), op.fill, 0, op.cache};
  if (is_on_chip(op.memory)) {
    const OnChip place = on_chip(op.memory);
    before_load(place);
    load.memory = place.memory;
    load.at = {chip_address(place, op.at, own)};
  } else {
    load.memory = memories_[op.memory.index];
    load.at = {offset(op.memory, op.at, own.positions)};
    load.align = alignment(op.memory, load.at[0]);
  }
  ValueOperand value = emit(std::move(load), own.type, s);
  if (own.lanes > 1) value = builder_.regroup(value, array_type(own.type.dtype, axes));
  set(tile, value, axes);
}

void PipelinedLowering::lower_op(const StoreOp& op, const Statement& s) {
  if (op.value.is_literal()) not_lowered("a store of a literal", s);
  const ValueId tile = op.value.value;
  if (is_on_chip(op.memory)) {
    const OnChip place = on_chip(op.memory);
    before_store(place);
    if (stores_matrices(op, place)) return store_matrices(op, place, s);
  }
  const auto axes = axes_of(tile);
  const ArrayForm own = vector_form(tile, axes, op.memory, op.at, op.guard);
  ValueOperand value = as_array(tile, axes);
  if (own.lanes > 1) value = builder_.regroup(value, own.type);
  StoreOp store{value, op.memory, {}, lower_guard(op.guard, op.memory, op.at, own), 0, op.cache};
  const Condition single = single_store(layouts_[tile]);
  if (store.guard.mask && !single.empty()) not_lowered("a masked store of a replicated tile", s);
  store.guard.condition.insert(store.guard.condition.end(), single.begin(), single.end());
  if (is_on_chip(op.memory)) {
    const OnChip place = on_chip(op.memory);
    store.memory = place.memory;
    store.at = {chip_address(place, op.at, own)};
  } else {
    store.memory = memories_[op.memory.index];
    store.at = {offset(op.memory, op.at, own.positions)};
    store.align = alignment(op.memory, store.at[0]);
  }
  builder_.append(std::move(store), {}, "s", s.location);
}

void PipelinedLowering::lower_op(const RowOp& op, const Statement& s) {
  const auto axes = axes_of(s.results[0]);
  std::vector<ValueOperand> operands;
  bool all_literal = true;
  for (const ValueOperand& operand : op.operands) {
    const auto bits = operand.is_literal() ? constants_.end() : constants_.find(operand.value);
    operands.push_back(bits == constants_.end()
                           ? as_array(operand, axes)
                           : ValueOperand::literal(tile_[operand.value].type.dtype, bits->second));
    all_literal = all_literal && operands.back().is_literal();
  }
  // Literals have no extents. If no other operand has an axis, a literal must become an array.
  const auto covered = [&](size_t axis) {
    return axes[axis].extent == 1 ||
           std::any_of(operands.begin(), operands.end(), [&](const ValueOperand& operand) {
             if (operand.is_literal()) return false;
             const auto& extents = type_of(operand).extents;
             return axis < extents.size() && extents[axis] > 1;
           });
  };
  bool whole = !all_literal;
  for (size_t axis = 0; axis < axes.size(); ++axis) whole = whole && covered(axis);
  for (size_t i = 0; !whole && i < operands.size(); ++i)
    if (!op.operands[i].is_literal() && operands[i].is_literal())
      operands[i] = as_array(op.operands[i], axes);
  if (is_machine(op.op))
    set(s.results[0], emit(RowOp{op.op, operands}, array_type(result_type(s).dtype, axes), s),
        axes);
  else
    set(s.results[0], emit_body(builder_, op.op, operands, result_type(s).dtype), axes);  // L9
}

// D6: folds registers, lanes and warps, in the order of the fold unless the order cannot matter.
void PipelinedLowering::lower_op(const FoldOp& op, const Statement& s) {
  if (op.cluster) return fold_cluster(op, s);
  const ValueId tile = op.operand.value;
  auto axes = axes_of(tile);
  ValueOperand value = as_array(op.operand, axes);
  Layout rest = layouts_[tile];
  for (const int64_t at : op.axes) {
    const auto axis = static_cast<size_t>(at);
    std::vector<std::pair<Digit, int64_t>> digits;  // with their weights
    int64_t weight = rest.extent(axis);
    for (const Digit& digit : rest.axes[axis]) digits.emplace_back(digit, weight /= digit.extent);
    if (!order_matters(op.monoid, type_of(value).dtype))
      std::stable_sort(digits.begin(), digits.end(), [](const auto& a, const auto& b) {
        return a.first.resource > b.first.resource;  // registers, lanes, warps
      });
    for (const auto& [digit, own_weight] : digits) {
      std::erase(rest.axes[axis], digit);
      if (digit.resource != Resource::Register) {
        value = fold_digit(op.monoid, value, digit, thread_digits(rest));
        continue;
      }
      for (size_t i = 0; i < axes.size(); ++i) {
        if (axes[i].axis != axis || axes[i].weight != own_weight || axes[i].extent == 1) continue;
        value = builder_.fold(op.monoid, value, {static_cast<int64_t>(i)});
        axes[i].extent = 1;
      }
    }
  }
  if (without_units(axes).empty()) {
    value = reshaped(value, {});
    axes.clear();
  }
  set(s.results[0], value, axes);
}

// Folds a lane or warp digit. `others` are the digits of threads that hold other elements.
ValueOperand PipelinedLowering::fold_digit(Monoid monoid, const ValueOperand& value,
                                           const Digit& digit, const std::vector<Digit>& others) {
  if (digit.resource == Resource::Warp) return fold_warps(monoid, value, digit, others);
  if (!std::has_single_bit(static_cast<uint64_t>(digit.extent)))
    not_lowered(
        fmt::format("a reduction over {} lanes, which is not a power of two,", digit.extent));
  ValueOperand out = value;
  for (int64_t step = digit.extent / 2; step >= 1; step /= 2)
    out = row(info(monoid).combine, {out, swapped(out, digit.stride * step)});
  return out;
}

// All warps store their values, and each thread loads those of all warps that it needs.
ValueOperand PipelinedLowering::fold_warps(Monoid monoid, const ValueOperand& value,
                                           const Digit& digit, const std::vector<Digit>& others) {
  const ValueType type = type_of(value);
  const auto [thread, threads] = number_among(others);
  Expr element;
  int64_t weight = 1;
  for (size_t axis = type.rank(); axis-- > 0; weight *= type.extents[axis])
    element += position_symbol('e', axis, type.extents[axis]) * Expr(weight);
  const int64_t count = digit.extent * type.count() * threads;
  const MemoryId place = shared("exchange", type.dtype, role_.op->copies * count, 128, exchanges_);
  const auto at = [&](const Expr& warp) {
    return role_.copy * Expr(count) + (warp * Expr(type.count()) + element) * Expr(threads) +
           thread;
  };
  Layout storing{{others}};
  storing.axes[0].push_back(digit);
  copy_barrier();  // the previous turn has read it
  builder_.store(value, place, {at(thread_digit(digit))}, {single_store(storing), {}});
  copy_barrier();
  ValueType all = type;
  all.extents.push_back(digit.extent);
  const ValueOperand loaded =
      builder_.load(place, {at(position_symbol('e', type.rank(), digit.extent))}, all);
  const ValueOperand folded = builder_.fold(monoid, loaded, {static_cast<int64_t>(type.rank())});
  return reshaped(folded, type.extents);
}

void PipelinedLowering::lower_op(const ViewOp& op, const Statement& s) {
  const ValueId tile = s.results[0];
  switch (op.kind) {
    case ViewKind::Slice:
      return slice(op, s);
    case ViewKind::Broadcast: {
      const auto axes = axes_of(tile);
      const ValueType type = array_type(result_type(s).dtype, axes);
      const ValueOperand part = as_array(op.operand, axes);
      return set(
          tile, type_of(part) == type ? part : emit(ViewOp{ViewKind::Broadcast, part, {}}, type, s),
          axes);
    }
    case ViewKind::Transpose: {  // only the names of axes change
      const ValueId from = op.operand.value;
      if (constants_.contains(from))
        constants_[tile] = constants_.at(from);
      else
        set(tile, as_array(from, axes_of(from)), axes_of(tile));
      return;
    }
    case ViewKind::Reshape:
      break;
  }
  // The digits keep their order. Only their axes and weights change.
  const ValueId from = op.operand.value;
  if (constants_.contains(from)) {
    constants_[tile] = constants_.at(from);
    return;
  }
  const auto digits_in_order = [&](ValueId id) {
    auto digits = axes_of(id);
    std::sort(digits.begin(), digits.end(), [](const RegisterDigit& a, const RegisterDigit& b) {
      return std::pair(a.axis, -a.weight) < std::pair(b.axis, -b.weight);
    });
    return digits;
  };
  const auto before = digits_in_order(from), after = digits_in_order(tile);
  if (before.size() != after.size()) not_lowered("a reshape that splits a digit of a layout", s);
  const ValueOperand value = as_array(from, axes_of(from));
  auto axes = axes_of(from);
  for (RegisterDigit& axis : axes)
    axis =
        after[static_cast<size_t>(std::find(before.begin(), before.end(), axis) - before.begin())];
  set(tile, value, axes);
}

// D25: an axis can be cut in its outermost register digit.
void PipelinedLowering::slice(const ViewOp& op, const Statement& s) {
  const ValueId from = op.operand.value, tile = s.results[0];
  const TileValue& own = tiles_[from.index];
  const auto axes = axes_of(from);
  std::vector<Expr> offsets(axes.size());
  auto cut = axes;
  for (size_t axis = 0; axis < result_type(s).rank(); ++axis) {
    const Expr offset = op.offsets.empty() ? Expr(op.arguments[axis]) : uniform(op.offsets[axis]);
    const int64_t ratio = tile_[from].type.extents[axis] / result_type(s).extents[axis];
    if (ratio == 1) continue;
    size_t outermost = axes.size();
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i].axis == axis &&
          (outermost == axes.size() || axes[i].weight > axes[outermost].weight))
        outermost = i;
    const bool whole = outermost < axes.size() && axes[outermost].extent % ratio == 0 &&
                       offset.is_multiple_of(axes[outermost].weight);
    if (!whole) not_lowered("a slice that splits several digits of a layout", s);
    cut[outermost].extent /= ratio;
    offsets[outermost] = floordiv(offset, axes[outermost].weight);
  }
  const auto view = [&](const ValueOperand& value, const std::vector<Expr>& at,
                        std::vector<int64_t> extents) {
    ViewOp out{ViewKind::Slice, value, {}};
    const bool constant = std::all_of(at.begin(), at.end(),
                                      [](const Expr& e) { return e.as_constant().has_value(); });
    if (constant)
      for (const Expr& e : at) out.arguments.push_back(*e.as_constant());
    else
      out.offsets = at;
    return emit(std::move(out), {type_of(value).dtype, 1, std::move(extents)}, s);
  };
  const bool outer_only = std::equal(axes.begin() + 1, axes.end(), cut.begin() + 1);
  if (own.flat && outer_only) {
    const int64_t count = array_type(DType::F32, cut).count();
    const int64_t stride = count / cut[0].extent;
    return set(tile, view(own.value, {offsets[0] * Expr(stride)}, {count}), axes_of(tile),
               /*flat=*/true);
  }
  const ValueOperand value = as_array(from, axes);
  const ValueId part = view(value, offsets, extents_of(cut));
  // Digits of extent 1 are not digits of the result.
  set(tile, part, cut);
}

// --- Loops --------------------------------------------------------------------------------------

// Whether a carried value is an accumulator, which is carried as one flat array: a dot in the body,
// or in a loop inside it, takes or gives it.
bool PipelinedLowering::carries_flat(const ForOp& op, size_t i) const {
  const ValueId inside = op.carried[i].first;
  bool flat = false;
  const std::function<void(const Region&)> look = [&](const Region& region) {
    for (const Statement& s : region.statements) {
      if (const auto* dot = s.as<StartDotOp>()) flat |= dot->c == ValueOperand(inside);
      if (const auto* dot = s.as<TileDotOp>()) flat |= dot->c == ValueOperand(inside);
      if (const auto* wait = s.as<WaitDotOp>())
        flat |= std::find(wait->operands.begin(), wait->operands.end(), ValueOperand(inside)) !=
                wait->operands.end();
      if (const auto* loop = s.as<ForOp>())
        for (size_t j = 0; j < loop->carried.size(); ++j)
          if (loop->carried[j].second == ValueOperand(inside)) flat |= carries_flat(*loop, j);
      for (const Region* inner : regions_of(s)) look(*inner);
    }
  };
  look(*op.body);
  return flat;
}

// D21: whether only one dot reads the first value, and takes it as zero in the first turn of a loop
// that surely has a turn.
bool PipelinedLowering::only_zero(const ForOp& op, size_t i) const {
  const auto& [inside, first] = op.carried[i];
  if (first.is_literal() || !constants_.contains(first.value)) return false;
  if (!carries_flat(op, i) || proves_less(uniform(op.low), uniform(op.high)) != true) return false;
  int uses = 0, zeros = 0;
  const std::function<void(const Region&)> look = [&](const Region& region) {
    for (const Statement& s : region.statements) {
      for_each_value(s, [&](ValueId value) { uses += value == inside; });
      const auto* dot = s.as<StartDotOp>();
      if (dot && dot->c == ValueOperand(inside) && dot->fresh) {
        const Condition first_turn = {
            {Expr::symbol(op.symbol, {}), IndexComparison::Kind::Eq, op.low}};
        zeros += dot->fresh_when.empty() || dot->fresh_when == first_turn;
      }
      for (const Region* inner : regions_of(s)) look(*inner);
    }
  };
  look(*op.body);
  return uses == 1 && zeros == 1;
}

}  // namespace braze
