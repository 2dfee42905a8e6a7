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
  Lowering::define(tile, value);
}

// One view serves the rest of its region.
ValueOperand PipelinedLowering::reshaped(const ValueOperand& value,
                                         const std::vector<int64_t>& extents) {
  const ValueType& from = type_of(value);
  if (from.extents == extents) return value;
  auto& [made, scope] = shapes_[{value.value, extents}];
  if (scope == builder_.scope()) return made;
  if (extents.empty())
    made = builder_.append(GetElementOp{value, std::vector<int64_t>(from.rank())},
                           {{from.dtype, from.lanes, {}}}, kernel_[value.value].name)[0];
  else
    made = builder_.append(MovementOp{MovementKind::Reshape, value, {}},
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
    value = builder_.append(MovementOp{MovementKind::Transpose, value, permutation},
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
  for_each_statement(region, [&](const Statement& s) {
    const auto* row = s.as<RowOp>();
    if (!row) return;
    const auto axes = axes_of(s.results[0]);
    for (const ValueOperand& operand : row->operands)
      if (!operand.is_literal()) frames_.emplace(operand.value, axes);
  });
}

// --- Positions ----------------------------------------------------------------------------------

Form PipelinedLowering::form(ValueId tile, const std::vector<RegisterDigit>& axes,
                             int64_t lanes) const {
  return form(layouts_[tile], tile_[tile].type.dtype, axes, lanes);
}

Form PipelinedLowering::form(const Layout& layout, DType dtype,
                             const std::vector<RegisterDigit>& axes, int64_t lanes) const {
  Form out{array_type(dtype, axes), renamed_, {}, axes};
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
                                                                  : digit_value(digit));
    }
    out.positions.insert_or_assign("d" + std::to_string(axis), sum);
  }
  return out;
}

// D4: neighbours at the end of the innermost axis become lanes. There are as many as the alignment
// of the address allows and no guard divides.
Form PipelinedLowering::vector_form(ValueId tile, const std::vector<RegisterDigit>& axes,
                                    MemoryId memory, const std::vector<Expr>& at,
                                    const Guard& guard) const {
  const Form single = form(tile, axes, 1);
  const ValueType& type = tile_[tile].type;
  const bool last = !axes.empty() && axes.back().axis + 1 == type.rank() &&
                    axes.back().weight == 1 && axes.back().extent > 1;
  if (!last || guard.mask) return single;
  const auto bytes = static_cast<int64_t>(size_of(type.dtype));
  const auto extent = static_cast<uint64_t>(axes.back().extent);
  const int64_t most = int64_t{1} << std::countr_zero(extent);
  for (int64_t lanes = std::min(kVectorBytes / bytes, most); lanes > 1; lanes /= 2) {
    Form vector = form(tile, axes, lanes);
    if (is_on_chip(memory)) {
      if (chip_neighbours(on_chip(memory), at, vector)) return vector;
      continue;
    }
    const Expr address = offset(memory, at, vector.positions);
    const bool neighbours = address.coefficient_of("lane").value_or(Expr(0)).is_constant(1);
    if (neighbours && alignment(memory, address) >= lanes * bytes &&
        !divides_vectors(guard, memory, at, vector))
      return vector;
  }
  return single;
}

// Whether a guard can hold for some lanes of a vector and fail for others.
bool PipelinedLowering::divides_vectors(const Guard& guard, MemoryId memory,
                                        const std::vector<Expr>& at, const Form& form) const {
  const auto divides = [&](const IndexComparison& c) { return !is_cut_whole(c, form.type.lanes); };
  return std::ranges::any_of(substitute(guard.condition, form.positions), divides) ||
         (guard.clip && std::ranges::any_of(clipped(memory, at, form), divides));
}

std::vector<Digit> PipelinedLowering::thread_digits(const Layout& layout) {
  std::vector<Digit> out;
  for (const std::vector<Digit>& axis : layout.axes)
    std::copy_if(axis.begin(), axis.end(), std::back_inserter(out), is_thread_digit);
  return out;
}

// --- Statements ---------------------------------------------------------------------------------

// A literal remains a literal until an array of it is needed.
void PipelinedLowering::lower_const(const ConstOp& op, const Statement& s) {
  if (result_type(s).rank() == 0) return set(s.results[0], emit(op, result_type(s), s), {});
  constants_[s.results[0]] = op.bits;
}

Form PipelinedLowering::load_form(const LoadOp& op, ValueId tile) const {
  auto axes = axes_of(tile);
  if (const auto frame = frames_.find(tile); frame != frames_.end() && !axes.empty())
    if (const auto wanted = framed(axes, frame->second); without_units(wanted) == axes)
      axes = wanted;
  return vector_form(tile, axes, op.memory, op.at, op.guard);
}

Form PipelinedLowering::store_form(const StoreOp& op, ValueId tile) const {
  return vector_form(tile, axes_of(tile), op.memory, op.at, op.guard);
}

ValueOperand PipelinedLowering::in_form(const ValueOperand& tile, const Form& form) {
  const ValueOperand value = as_array(tile, form.axes);
  return form.type.lanes > 1 ? ValueOperand(builder_.regroup(value, form.type)) : value;
}

void PipelinedLowering::define_in_form(ValueId tile, const ValueOperand& value, const Form& form) {
  const ValueType type = array_type(form.type.dtype, form.axes);
  set(tile, form.type.lanes > 1 ? ValueOperand(builder_.regroup(value, type)) : value, form.axes);
}

std::vector<ValueOperand> PipelinedLowering::row_operands(const RowOp& op, const Statement& s) {
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
  return operands;
}

// D6: folds registers, lanes and warps, in the order of the fold unless the order cannot matter.
void PipelinedLowering::lower_fold(const FoldOp& op, const Statement& s) {
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
        value = fold_digit(folder(op.monoid), {value}, digit, thread_digits(rest), s)[0];
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

void PipelinedLowering::lower_view(const MovementOp& op, const Statement& s) {
  const ValueId tile = s.results[0];
  switch (op.kind) {
    case MovementKind::Slice:
      return slice(op, s);
    case MovementKind::Broadcast: {
      const auto axes = axes_of(tile);
      const ValueType type = array_type(result_type(s).dtype, axes);
      const ValueOperand part = as_array(op.operand, axes);
      return set(tile,
                 type_of(part) == type
                     ? part
                     : emit(MovementOp{MovementKind::Broadcast, part, {}}, type, s),
                 axes);
    }
    case MovementKind::Transpose: {  // only the names of axes change
      const ValueId from = op.operand.value;
      if (constants_.contains(from))
        constants_[tile] = constants_.at(from);
      else
        set(tile, as_array(from, axes_of(from)), axes_of(tile));
      return;
    }
    case MovementKind::Reshape:
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
void PipelinedLowering::slice(const MovementOp& op, const Statement& s) {
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
    MovementOp out{MovementKind::Slice, value, {}};
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
  for_each_statement(*op.body, [&](const Statement& s) {
    if (const auto* dot = s.as<StartDotOp>()) flat |= dot->c == ValueOperand(inside);
    if (const auto* dot = s.as<TileDotOp>()) flat |= dot->c == ValueOperand(inside);
    if (const auto* wait = s.as<WaitDotOp>())
      flat |= std::ranges::find(wait->operands, ValueOperand(inside)) != wait->operands.end();
    if (const auto* loop = s.as<ForOp>())
      for (size_t j = 0; j < loop->carried.size(); ++j)
        if (loop->carried[j].second == ValueOperand(inside)) flat |= carries_flat(*loop, j);
  });
  return flat;
}

// D21: whether only one dot reads the first value, and takes it as zero in the first turn of a loop
// that surely has a turn.
bool PipelinedLowering::only_zero(const ForOp& op, size_t i) const {
  const auto& [inside, first] = op.carried[i];
  if (first.is_literal() || !constants_.contains(first.value)) return false;
  if (!carries_flat(op, i) || proves_less(uniform(op.low), uniform(op.high)) != true) return false;
  int uses = 0, zeros = 0;
  for_each_statement(*op.body, [&](const Statement& s) {
    for_each_value(s, [&, &inside = inside](ValueId value) { uses += value == inside; });
    const auto* dot = s.as<StartDotOp>();
    if (!dot || dot->c != ValueOperand(inside) || !dot->fresh) return;
    const Condition first_turn = {{Expr::symbol(op.symbol, {}), IndexComparison::Kind::Eq, op.low}};
    zeros += dot->fresh_when.empty() || dot->fresh_when == first_turn;
  });
  return uses == 1 && zeros == 1;
}

ValueOperand PipelinedLowering::first_carried(const ForOp& op, size_t i) {
  const auto& [inside, first] = op.carried[i];
  const auto axes = axes_of(inside);
  if (only_zero(op, i))  // D21
    return builder_.undefined(
        {tile_[inside].type.dtype, 1, {array_type(DType::F32, axes).count()}});
  return carries_flat(op, i) ? as_flat(first.value) : as_array(first, axes);
}

void PipelinedLowering::define_carried(const ForOp& op, size_t i, ValueId tile, ValueId value) {
  set(tile, value, axes_of(tile), carries_flat(op, i));
}

ValueOperand PipelinedLowering::yielded_by_turn(const ForOp& op, size_t i,
                                                const ValueOperand& yielded) {
  return carries_flat(op, i) ? as_flat(yielded.value)
                             : as_array(yielded, axes_of(op.carried[i].first));
}

ValueOperand PipelinedLowering::yielded_by_branch(ValueId result, const ValueOperand& yielded) {
  return as_array(yielded, axes_of(result));
}

PipelinedLowering::Exchange PipelinedLowering::exchange(DType dtype, int64_t count) {
  return {shared("exchange", dtype, role_.op->copies * count, 128, exchanges_),
          role_.copy * Expr(count)};
}

void PipelinedLowering::lower_scan(const TileScanOp& op, const Statement& s) {
  if (!op.combiner.monoid() || op.totals) not_lowered("a scan of tuples, or with totals,", s);
  Tuple parts;
  for (const ValueOperand& part : op.operands) parts.push_back(as_array(part, axes_of(part.value)));
  define_scan(s, scan_through_memory(op, std::move(parts), s));
}

}  // namespace braze
