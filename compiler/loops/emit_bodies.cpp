// emit_bodies.cpp — bodies as rows over tiles: which tile a task makes, and how each step of its
// body becomes one (E6, E15, E17).
#include <algorithm>
#include <numeric>

#include "compiler/loops/emit_p.h"
#include "compiler/loops/steps/places.h"
#include "compiler/lowering/rows.h"
#include "ir/code/comparisons.h"
#include "ir/graph/coarse.h"
#include "ir/ops/scalar.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"

namespace braze {

// --- Tiles --------------------------------------------------------------------------------------

// The axes over which a task runs: those of its value and those along which it combines. A store
// runs over all axes that it names.
std::vector<size_t> TreeEmitter::axes_of(const LoopTask& task) const {
  const std::set<size_t> out = tile_axes(tree_, task);
  return {out.begin(), out.end()};
}

TreeEmitter::TaskTile TreeEmitter::tile_of(std::vector<size_t> axes,
                                           const AxesNow& axes_now) const {
  TaskTile out;
  std::sort(axes.begin(), axes.end());
  for (const size_t axis : axes) {
    const int64_t extent = extent_of(axis, axes_now);
    if (extent == 0)
      refuse(tree_.axes[axis].location,
             fmt::format("no loop runs over {}, whose extent is not constant", name_of(axis)));
    if (extent == 1) continue;
    const auto digits = digits_.find({axis, extent});
    const size_t count = digits == digits_.end() ? 1 : digits->second.size();
    for (size_t d = 0; d < count; ++d) {
      out.dims.push_back(axis);
      out.digits.push_back(digits == digits_.end() ? Digit{.extent = extent} : digits->second[d]);
      out.extents.push_back(out.digits.back().extent);
    }
  }
  for (size_t axis = 0; axis < tree_.axes.size(); ++axis)
    out.index.insert_or_assign(name_of(axis), axes_now[axis].begin);
  int64_t weight = 1;  // the weight of a digit in its axis
  for (size_t d = out.dims.size(); d-- > 0; weight *= out.extents[d]) {
    if (d + 1 == out.dims.size() || out.dims[d] != out.dims[d + 1]) weight = 1;
    out.index[name_of(out.dims[d])] += position_symbol('d', d, out.extents[d]) * Expr(weight);
  }
  return out;
}

std::vector<int64_t> TreeEmitter::positions(const std::vector<size_t>& axes, const TaskTile& tile) {
  std::vector<int64_t> out;
  for (const size_t axis : axes)
    for (size_t d = 0; d < tile.dims.size(); ++d)
      if (tile.dims[d] == axis) out.push_back(static_cast<int64_t>(d));
  return out;
}

std::vector<Expr> TreeEmitter::substituted(const std::vector<Expr>& at, const TaskTile& tile) {
  std::vector<Expr> out;
  for (const Expr& e : at) {
    std::unordered_map<std::string, Expr> index = tile.index;
    for (const std::string& symbol : e.symbols()) {
      const auto step = loaded_step(symbol);
      if (!step) continue;
      if (tree_.roles) refuse({}, "a computed coordinate cannot be emitted with roles");
      const ValueOperand& loaded = memo_[*step];
      if (loaded.is_literal()) {
        index.insert_or_assign(symbol, static_cast<int64_t>(loaded.bits));
        continue;
      }
      const Expr value = value_symbol(code_, loaded.value);
      loaded_extents_[value.symbol_name()] = code_[loaded.value].type.extents;
      index.insert_or_assign(symbol, value);
    }
    out.push_back(e.substitute(index));
  }
  return out;
}

// The type of a tile at these coordinates. Its extent is 1 along dimensions on which they do not
// depend.
ValueType TreeEmitter::type_along(const std::vector<Expr>& at, const TaskTile& tile,
                                  DType dtype) const {
  ValueType out{dtype, 1, tile.extents};
  std::vector<bool> uses(tile.extents.size());
  for (const Expr& e : at)
    for (const std::string& symbol : e.symbols()) {
      if (const auto loaded = loaded_extents_.find(symbol); loaded != loaded_extents_.end())
        for (size_t d = 0; d < uses.size(); ++d) uses[d] = uses[d] || loaded->second[d] > 1;
      for (size_t d = 0; d < uses.size(); ++d)
        uses[d] = uses[d] || symbol == position_symbol('d', d, tile.extents[d]).symbol_name();
    }
  for (size_t d = 0; d < out.extents.size(); ++d)
    if (!uses[d]) out.extents[d] = 1;
  return out;
}

// In roles every tile has a layout: that of the task, as far as it has the task's dimensions.
void TreeEmitter::lay_out(ValueId value, const TaskTile& tile) {
  Value& made = code_.values[value.index];
  if (!tree_.roles || made.type.extents.empty()) return;  // every thread has a scalar
  if (!tile.layout) refuse({}, fmt::format("nothing determines the layout of %{}", made.name));
  Layout layout = *tile.layout;
  for (size_t d = 0; d < layout.rank(); ++d)
    if (made.type.extents[d] == 1) layout.axes[d].clear();
  renumber_registers(layout);
  made.layout = NamedLayout{"", std::move(layout)};
}

// Gives a tile of a consumer the layout that the sums of dots have. A tile with rows alone has one
// column. If there are more rows than a matrix unit makes, each thread has some of them; if there
// are fewer, each takes neighbours in a row.
void TreeEmitter::lay_as_accumulator(TaskTile& tile) const {
  constexpr int64_t kRows = 64, kColumns = 8, kThreads = 4 * kWarpThreads;
  if (!tree_.roles || tile.extents.empty() || tile.extents.size() > 2) return;
  const int64_t rows = tile.extents[0];
  const bool by_threads = rows % kThreads == 0;
  if (tile.extents.size() == 1) {
    if (rows != kRows && !by_threads) return;
    tile.dims.push_back(kNone);
    tile.extents.push_back(1);
    tile.digits.emplace_back();
    tile.layout =
        by_threads ? spread(tile.extents, {kThreads, 1}, 1) : accumulator_layout(kColumns);
    return;
  }
  if (rows == kRows) {
    tile.layout = accumulator_layout(tile.extents[1]);
    return;
  }
  if (by_threads) {
    tile.layout = spread(tile.extents, {kThreads, 1}, 1);
    return;
  }
  const int64_t neighbours = std::max<int64_t>(rows * tile.extents[1] / kThreads, 1);
  const int64_t along = tile.extents[1] / neighbours;
  tile.layout = spread(tile.extents, {kThreads / along, along}, neighbours);
}

ValueId TreeEmitter::full(const ValueOperand& operand, const TaskTile& tile, DType dtype) {
  const ValueType type{dtype, 1, tile.extents};
  if (operand.is_literal()) {
    const ValueId value = builder_.constant(type, operand.bits);
    lay_out(value, tile);
    return value;
  }
  if (code_[operand.value].type == type) return operand.value;
  const ValueId value = builder_.view(MovementKind::Broadcast, operand, type);
  lay_out(value, tile);
  return value;
}

ValueId TreeEmitter::rounded(ValueId value, DType dtype) {
  if (code_[value].type.dtype == dtype) return value;
  return builder_.row(ElementwiseOp::convert, {value}, dtype);
}

void TreeEmitter::define(const LoopTask& task, ValueId value, const TaskTile& tile) {
  if (tree_.values[task.target].storage == Storage::Workspace) {
    keep_in_workspace(task, value, tile);
    if (tree_.roles) return;
  }
  if (kept_.contains(task.target)) keep_in_buffer(task, value, tile);
  std::vector<Expr> begin;
  for (const size_t axis : tile.dims) begin.push_back(axis == kNone ? Expr(0) : axes_[axis].begin);
  tiles_of_[task.target] = {value, tile.dims, std::move(begin), tile.digits};
}

// --- Bodies -------------------------------------------------------------------------------------

namespace {

// A choice between what is loaded where conditions hold and a constant elsewhere is a load that
// gives this constant elsewhere: the thread tests the conditions anyway, to skip the load.
void fill_outside(LoopBody& body) {
  std::vector<size_t> uses(body.steps.size());
  for (const LoopStep& s : body.steps)
    for (const uint32_t argument : s.arguments) ++uses[argument];
  for (const uint32_t result : body.results) ++uses[result];
  for (LoopStep& chosen : body.steps) {
    if (chosen.op != ElementwiseOp::select || chosen.arguments.size() != 3) continue;
    const LoopStep &inside = body.steps[chosen.arguments[0]],
                   &none = body.steps[chosen.arguments[2]];
    LoopStep load = body.steps[chosen.arguments[1]];
    if (inside.kind != LoopStep::Kind::Inside || load.kind != LoopStep::Kind::Load ||
        none.kind != LoopStep::Kind::Constant || load.otherwise || uses[chosen.arguments[1]] > 1 ||
        !(inside.conditions == load.conditions))
      continue;
    load.otherwise = none.bits;
    chosen = std::move(load);
  }
}

}  // namespace

ValueOperand TreeEmitter::body(const LoopBody& whole, uint32_t result, const TaskTile& tile) {
  memo_.assign(whole.steps.size(), {});
  LoopBody body = whole;
  body.results = {result};
  if (is_of_threads()) fill_outside(body);
  const std::vector<bool> needed = needed_steps(body);
  for (uint32_t i = 0; i <= result; ++i)
    if (needed[i]) memo_[i] = made(body, body.steps[i], tile);
  return memo_[result];
}

// The value of a step. If a task of this region has made an equal value, that is taken.
ValueOperand TreeEmitter::made(const LoopBody& body, const LoopStep& s, const TaskTile& tile) {
  if (scope_ != builder_.scope()) forget();
  // A value in a turn's own buffer or slot does not change within the turn. Everything else that
  // tasks make may change, and is read again.
  const auto chip = s.kind == LoopStep::Kind::Read ? chips_.find(s.source) : chips_.end();
  if (s.kind == LoopStep::Kind::Read &&
      (chip == chips_.end() || states_.contains(s.source) || totals_.contains(s.source)))
    return step(body, s, tile);
  Question question{s, {}, tile.extents, {}, {}};
  question.step.arguments.clear();
  question.step.at = substituted(s.at, tile);
  if (chip != chips_.end() && chip->second.item) question.step.at.push_back(*chip->second.item);
  for (const RaisedLoad& raised : raised_)
    if (raised.step == question.step && raised.extents == tile.extents) return raised.value;
  for (RangeCondition& c : question.step.conditions) {
    const auto at = substituted({c.value, c.min, c.limit}, tile);
    c = {at[0], at[1], at[2]};
  }
  if (s.kind == LoopStep::Kind::Load && !tree_.roles) {
    std::vector<Expr> all = question.step.at;
    for (const RangeCondition& c : question.step.conditions)
      all.insert(all.end(), {c.value, c.min, c.limit});
    question.ends = ends_of(s, !s.conditions.empty(), type_along(all, tile, s.dtype), tile);
  }
  uint64_t hash = hash_of(question.step);
  for (const uint32_t argument : s.arguments) {
    const ValueOperand& operand = question.operands.emplace_back(memo_[argument]);
    hash = hash_combine(hash, operand.is_literal() ? operand.bits : operand.value.index);
  }
  std::vector<Question>& asked = asked_[hash];
  const auto found = std::find_if(asked.begin(), asked.end(),
                                  [&](const Question& other) { return other.is_like(question); });
  if (found != asked.end()) return found->answer;
  question.answer = step(body, s, tile);
  return asked_[hash].emplace_back(std::move(question)).answer;
}

void TreeEmitter::forget() {
  asked_.clear();
  widened_.clear();
  rounded_.clear();
  guarded_.clear();
  scope_ = builder_.scope();
}

// Drops what was read of a value, because the value has been made anew.
void TreeEmitter::forget_reads(size_t value) {
  for (auto& [hash, questions] : asked_)
    std::erase_if(questions, [&](const Question& q) {
      return q.step.kind == LoopStep::Kind::Read && q.step.source == value;
    });
}

Condition TreeEmitter::conditions(const std::vector<RangeCondition>& list, const TaskTile& tile) {
  Condition out;
  for (const RangeCondition& c : list) {
    const auto at = substituted({c.min, c.value, c.limit}, tile);
    if (!proves_at_most(at[0], at[1])) out.push_back({at[0], IndexComparison::Kind::Le, at[1]});
    if (proves_less(at[1], at[2]) != true) out.push_back({at[1], IndexComparison::Kind::Lt, at[2]});
  }
  return out;
}

namespace {

std::vector<Expr> expressions(const Condition& condition) {
  std::vector<Expr> out;
  for (const IndexComparison& c : condition) {
    out.push_back(c.left);
    out.push_back(c.right);
  }
  return out;
}

}  // namespace

ValueOperand TreeEmitter::step(const LoopBody& body, const LoopStep& s, const TaskTile& tile) {
  const auto test = [&](const Condition& condition) {
    const ValueId value =
        builder_.test(condition, type_along(expressions(condition), tile, DType::Bool));
    lay_out(value, tile);
    return value;
  };
  switch (s.kind) {
    case LoopStep::Kind::Load:
      return load(s, tile);
    case LoopStep::Kind::Read:
      return read(s, tile);
    case LoopStep::Kind::Constant:
      return ValueOperand::literal(s.dtype, s.bits);
    case LoopStep::Kind::Inside: {
      const Condition condition = conditions(s.conditions, tile);
      return condition.empty() ? ValueOperand::literal(DType::Bool, 1) : test(condition);
    }
    case LoopStep::Kind::Index: {
      const auto at = substituted(s.at, tile);
      const ValueId value = builder_.iota(at[0], type_along(at, tile, s.dtype));
      lay_out(value, tile);
      return value;
    }
    case LoopStep::Kind::Apply:
      break;
  }
  if (is_kept(s) && keeps_comparisons()) return ValueOperand::literal(DType::Bool, 1);
  // Comparisons of indices need no tiles of integers.
  if (const auto compared = comparison_of_indices(body, s)) {
    if (is_decided(*compared)) return ValueOperand::literal(DType::Bool, 1);
    const auto at = substituted({compared->left, compared->right}, tile);
    return test({{at[0], compared->kind, at[1]}});
  }
  if (const auto compared = compared_with_index(body, s, tile)) return *compared;
  return apply(body, s, tile);
}

// Compares an index with an integer that is the same for many positions of the tile. Integers
// beyond the range of the index compare alike, so 32 bits are enough for it. What the index does
// not count along the last dimension is subtracted from the integer, and not added to the index at
// each position, which then costs one comparison with a constant.
std::optional<ValueOperand> TreeEmitter::compared_with_index(const LoopBody& body,
                                                             const LoopStep& s,
                                                             const TaskTile& tile) {
  if (!comparison_row(s.op)) return std::nullopt;
  const auto is_index = [&](size_t i) {
    return body.steps[s.arguments[i]].kind == LoopStep::Kind::Index;
  };
  const size_t index = is_index(0) ? 0 : 1, other = 1 - index;
  const ValueOperand integer = memo_[s.arguments[other]];
  if (!is_index(index) || is_index(other) || integer.is_literal()) return std::nullopt;
  const LoopStep& counted = body.steps[s.arguments[index]];
  const Expr e = substituted(counted.at, tile)[0];
  const Interval range = e.range();
  const auto fits = [](int64_t min, int64_t max) { return min >= INT32_MIN && max <= INT32_MAX; };
  const bool is_known = std::ranges::none_of(
      e.symbols(), [&](const auto& name) { return loaded_extents_.contains(name); });
  if (!is_known || range.min <= INT32_MIN || range.max >= INT32_MAX) return std::nullopt;
  const ValueType all = type_along({e}, tile, DType::I32);
  const auto count = [](const ValueType& type) {
    return std::accumulate(type.extents.begin(), type.extents.end(), int64_t{1}, std::multiplies());
  };
  if (count(code_[integer.value].type) >= count(all)) return std::nullopt;

  ValueOperand same = integer;
  Interval values{INT32_MIN, INT32_MAX};
  if (counted.dtype == DType::I64) {
    values = {range.min - 1, range.max + 1};
    const auto literal = [](int64_t x) {
      return ValueOperand::literal(DType::I64, static_cast<uint64_t>(x));
    };
    same = builder_.row(ElementwiseOp::min, {same, literal(values.max)});
    same = builder_.row(ElementwiseOp::max, {same, literal(values.min)});
    same = builder_.row(ElementwiseOp::convert, {same}, DType::I32);
  } else if (counted.dtype != DType::I32) {
    return std::nullopt;
  }
  size_t last = all.extents.size() - 1;
  while (all.extents[last] == 1) --last;
  const Expr position = position_symbol('d', last, tile.extents[last]);
  const Expr before = e.substitute(position.symbol_name(), 0), own = e - before;
  const Interval first = before.range();
  const bool wraps = !fits(values.min - first.max, values.max - first.min);
  const bool only_equality = s.op == ElementwiseOp::eq || s.op == ElementwiseOp::ne;
  Expr left = e;
  const auto counts = [&](const Expr& expr) {
    const ValueId value = builder_.iota(expr, type_along({expr}, tile, DType::I32));
    lay_out(value, tile);
    return value;
  };
  const auto is_own = own.coefficient_of(position.symbol_name());
  if (is_own && is_own->as_constant() && !before.is_constant(0) && (only_equality || !wraps)) {
    same = builder_.row(ElementwiseOp::sub, {same, counts(before)});
    left = own;
  }
  std::vector<ValueOperand> operands = {counts(left), same};
  if (index == 1) std::swap(operands[0], operands[1]);
  return builder_.row(s.op, std::move(operands));
}

// 16-bit floats are for storage only. Arithmetic on them is done in f32 and rounded once.
ValueOperand TreeEmitter::apply(const LoopBody& body, const LoopStep& s, const TaskTile& tile) {
  const auto dtype_of = [&](size_t i) { return body.steps[s.arguments[i]].dtype; };
  std::vector<ValueOperand> operands;
  for (const uint32_t argument : s.arguments) operands.push_back(memo_[argument]);
  if (s.op == ElementwiseOp::convert) return converted(operands[0], dtype_of(0), s.dtype);
  if (s.op == ElementwiseOp::select && operands[0].is_literal())
    return operands[operands[0].bits ? 1 : 2];
  const bool literals = std::all_of(operands.begin(), operands.end(),
                                    [](const ValueOperand& o) { return o.is_literal(); });
  if (literals && is_machine(s.op)) {
    uint64_t bits[3] = {};
    for (size_t i = 0; i < operands.size(); ++i) bits[i] = operands[i].bits;
    return ValueOperand::literal(s.dtype, evaluate_machine(s.op, dtype_of(operands.size() - 1),
                                                           s.dtype, bits[0], bits[1], bits[2]));
  }
  const bool moves = s.op == ElementwiseOp::select || s.op == ElementwiseOp::bitcast;
  if (!moves)
    for (size_t i = 0; i < operands.size(); ++i) operands[i] = widened(operands[i], dtype_of(i));
  if (literals) {
    const ValueType none{operands[0].dtype, 1, std::vector<int64_t>(tile.extents.size(), 1)};
    operands[0] = builder_.constant(none, operands[0].bits);
    lay_out(operands[0].value, tile);
  }
  if (s.coarse) return emit_coarse_body(builder_, s.op, operands[0]);
  if (has_short_body(s.op, s.dtype)) return emit_short_body(builder_, s.op, operands[0]);
  if (has_half_body(s.op, s.dtype))
    return converted(emit_half_body(builder_, s.op, operands, s.dtype), DType::F32, s.dtype);
  const bool chosen = s.op == ElementwiseOp::bitcast;
  const ValueId value =
      builder_.row(s.op, std::move(operands), chosen ? std::optional(s.dtype) : std::nullopt);
  return converted(value, moves ? s.dtype : compute_type(s.dtype), s.dtype);
}

ValueOperand TreeEmitter::widened(const ValueOperand& operand, DType dtype) {
  if (!is_half(dtype)) return operand;
  if (operand.is_literal())
    return ValueOperand::literal(DType::F32,
                                 constant_bits(DType::F32, bits_to_double(dtype, operand.bits)));
  auto [found, added] = widened_.try_emplace(operand.value);
  if (added) found->second = builder_.row(ElementwiseOp::convert, {operand}, DType::F32);
  return found->second;
}

ValueOperand TreeEmitter::converted(const ValueOperand& operand, DType from, DType to) {
  if (from == to) return operand;
  if (is_half(from) && to == DType::F32) return widened(operand, from);
  if (operand.is_literal())
    return ValueOperand::literal(to,
                                 evaluate_machine(ElementwiseOp::convert, from, to, operand.bits));
  return builder_.row(ElementwiseOp::convert, {operand}, to);
}

// The condition under which coordinates lie inside the tensor, as far as this is not proven. An
// axis is never negative, and `before_ends` says where it ends.
Condition TreeEmitter::inside(const std::vector<Expr>& original, const std::vector<Expr>& at,
                              const Shape& shape) const {
  Condition out;
  for (size_t axis = 0; axis < at.size(); ++axis) {
    if (proves_in_bounds(at[axis], shape[axis])) continue;
    if (!proves_at_most(0, original[axis]) && !proves_at_most(0, at[axis]))
      out.push_back({at[axis], IndexComparison::Kind::Ge, 0});
    if (!proves_less(at[axis], shape[axis]).value_or(false))
      out.push_back({at[axis], IndexComparison::Kind::Lt, shape[axis]});
  }
  return out;
}
// The guard of an asynchronous copy, which can only be clipped at the ends of the tensor.
Guard TreeEmitter::clipped(const std::vector<Expr>& original, const std::vector<Expr>& at,
                           const Shape& shape) const {
  Guard out;
  out.clip = !inside(original, at, shape).empty();
  return out;
}

// Whether all tiles of the grid along the axis are whole. If turns are dealt in groups, some lie
// beyond the end.
bool TreeEmitter::ends_with_tiles(size_t axis) const {
  if (!tree_.roles || !grid_) return false;
  const bool grouped = std::ranges::any_of(grid_->deal, [&](const Deal& deal) {
    return deal.order == Deal::Order::Grouped && deal.axis == axis;
  });
  return !grouped && std::ranges::any_of(grid_->levels, [&](const LoopLevel& level) {
    return level.axis == axis && tree_.axes[axis].extent.is_multiple_of(level.turn);
  });
}

// The axes of the dimensions along which the value has several elements.
std::vector<size_t> TreeEmitter::axes_along(const ValueType& type, const TaskTile& tile) {
  std::vector<size_t> out;
  for (size_t d = 0; d < type.extents.size(); ++d)
    if (type.extents[d] > 1) out.push_back(tile.dims[d]);
  return out;
}

Condition TreeEmitter::before_ends(const std::vector<size_t>& axes, const TaskTile& tile) const {
  Condition out;
  for (const size_t axis : axes) {
    if (axis == kNone || axes_[axis].whole) continue;
    const Expr& index = tile.index.at(name_of(axis));
    const IndexComparison tail = before_end(tree_.axes[axis]);
    const IndexComparison inside{index, IndexComparison::Kind::Lt, tail.right};
    const IndexComparison begun{0, IndexComparison::Kind::Le, index};
    const bool early = axes_[axis].early && !proves_at_most(0, index);
    if (early && std::find(out.begin(), out.end(), begun) == out.end()) out.push_back(begun);
    if (std::find(out.begin(), out.end(), inside) != out.end() || ends_with_tiles(axis)) continue;
    if (!is_decided(tail) && !is_implied(axis) && !proves_less(index, tail.right).value_or(false))
      out.push_back(inside);
  }
  return out;
}

ValueId TreeEmitter::without_tail(ValueId value, const std::vector<size_t>& axes,
                                  const TaskTile& tile, uint64_t nothing) {
  const Condition within = before_ends(axes, tile);
  if (within.empty()) return value;
  const DType dtype = code_[value].type.dtype;
  const ValueId test = builder_.test(within, type_along(expressions(within), tile, DType::Bool));
  lay_out(test, tile);
  return builder_.row(ElementwiseOp::select, {test, value, ValueOperand::literal(dtype, nothing)});
}

// On a CPU, vector lanes beyond the end of an axis are masked. Rows beyond it are not: they compute
// some existing row again, which nothing reads.
TreeEmitter::TaskTile TreeEmitter::with_rows_that_exist(TaskTile tile) const {
  if (tree_.roles || code_.warps > 0) return tile;
  for (size_t axis = 0; axis < tree_.axes.size(); ++axis) {
    const bool lanes = !tile.dims.empty() && tile.dims.back() == axis;
    const bool rows = std::ranges::count(tile.dims, axis) > 0 && !lanes;
    if (!rows && !axes_[axis].beyond) continue;
    if (!before_ends({axis}, tile).empty()) {
      Expr& index = tile.index.at(name_of(axis));
      index = min(index, tree_.axes[axis].extent - 1);
    }
  }
  return tile;
}

// Whether the element that a load names is there at all indices, whatever its conditions say.
bool TreeEmitter::exists(const LoopStep& load) const {
  const Shape& shape = tree_.tensors[load.source].type.shape;
  for (size_t d = 0; d < load.at.size(); ++d)
    if (!proves_in_bounds(load.at[d], shape[d])) return false;
  return true;
}

// The ends before which a load must stay. A fold looks after its own tails. Where the load's own
// conditions keep the coordinates inside the tensor, and are its guard, elements beyond the end of
// the axis may be loaded: then neighbours that read one element, of which some lie beyond the end,
// have one guard.
Condition TreeEmitter::ends_of(const LoopStep& load, bool has_conditions, const ValueType& type,
                               const TaskTile& tile) const {
  std::vector<size_t> axes = axes_along(type, tile);
  const Shape& shape = tree_.tensors[load.source].type.shape;
  const auto is_kept_inside = [&](size_t d) {
    return has_conditions && std::ranges::any_of(load.conditions, [&](const RangeCondition& c) {
             return c.value == load.at[d] && proves_at_most(0, c.min) &&
                    proves_at_most(c.limit, shape[d]);
           });
  };
  if (tile.looks_after_tails && is_of_threads())
    std::erase_if(axes, [&](size_t axis) {
      bool used = false, kept = true;
      for (size_t d = 0; axis != kNone && d < load.at.size(); ++d)
        if (load.at[d].uses(name_of(axis))) {
          used = true;
          kept &= is_kept_inside(d);
        }
      return used && kept;
    });
  return before_ends(axes, tile);
}

ValueOperand TreeEmitter::load(const LoopStep& s, const TaskTile& whole) {
  const TaskTile tile = with_rows_that_exist(whole);
  const auto at = substituted(s.at, tile);
  const Shape& shape = tree_.tensors[s.source].type.shape;
  // The tree states the conditions, or the value outside of the tensor.
  Condition condition = conditions(s.conditions, tile);
  // A load that is the same for several elements is made once for all of them, if it may be made
  // where the conditions do not hold.
  const auto extents_of = [&](const Condition& guard) {
    auto all = at;
    for (const Expr& e : expressions(guard)) all.push_back(e);
    return type_along(all, tile, s.dtype).extents;
  };
  if (is_of_threads() && !s.otherwise && exists(s) && extents_of(condition) != extents_of({}))
    condition.clear();
  const bool own = !condition.empty();
  if (tree_.roles || (s.conditions.empty() && s.otherwise)) {
    Condition inner = inside(s.at, at, shape);
    inner.insert(inner.end(), condition.begin(), condition.end());
    condition = std::move(inner);
  }
  auto all = at;
  for (const Expr& e : expressions(condition)) all.push_back(e);
  const ValueType type = type_along(all, tile, s.dtype);
  Guard guarded;
  if (tree_.roles && !own && s.otherwise.value_or(0) == 0) {
    guarded.clip = !condition.empty();
  } else {
    if (!tree_.roles) {
      const Condition tails = ends_of(s, own, type, tile);
      condition.insert(condition.end(), tails.begin(), tails.end());
    }
    guarded.condition = std::move(condition);
  }
  const uint64_t fill = guarded ? s.otherwise.value_or(0) : 0;
  const ValueId value = builder_.load(MemoryId(s.source), at, type, std::move(guarded), fill);
  lay_out(value, tile);
  return value;
}

ValueOperand TreeEmitter::read(const LoopStep& s, const TaskTile& tile) {
  // Running values are at hand, and so are totals where states are brought to them.
  const auto state = states_.find(s.source);
  const bool running = state != states_.end();
  const auto written = workspaces_.find(s.source);
  if (written != workspaces_.end() && !running && rescaling_ == Rescaling::InTurn)
    return read_workspace(written->second, s, tile);
  if (const auto chip = chips_.find(s.source); chip != chips_.end() && !has_in_registers(s))
    return rounded(read_chip(chip->second, s, tile), s.dtype);
  settle(s.source);
  if (running) {
    const ValueId value = s.before ? before_.at(s.source) : guarded(s.source, state->second);
    return rounded(read_tile(tile_now(value, state_tiles_.at(s.source)), s, tile),
                   tree_.values[s.source].dtype);
  }
  const auto found = tiles_of_.find(s.source);
  if (found == tiles_of_.end() || (s.before && rescaling_ == Rescaling::InTurn))
    refuse({}, fmt::format("%{} is not available where it is read", tree_.values[s.source].name));
  const bool part = s.before && rescaling_ == Rescaling::ToTotal;
  Tile from = part ? parts_.at(s.source) : found->second;
  if (s.before || rescaling_ == Rescaling::ToTotal)
    from.value = rounded(guarded(s.source, from.value), tree_.values[s.source].dtype);
  const ValueId out = read_tile(from, s, tile);
  const DType dtype = tree_.values[s.source].dtype;
  if (code_[out].type.dtype == dtype) return out;
  if (scope_ != builder_.scope()) forget();
  const auto [kept, added] = rounded_.try_emplace({out, dtype});
  if (added) kept->second = rounded(out, dtype);
  return kept->second;
}

// A value with the dimensions of a task, in the present turns.
TreeEmitter::Tile TreeEmitter::tile_now(ValueId value, const TaskTile& own) const {
  std::vector<Expr> begin;
  for (const size_t axis : own.dims) begin.push_back(axis == kNone ? Expr(0) : axes_[axis].begin);
  return {value, own.dims, begin, own.digits};
}

ValueId TreeEmitter::seen_nothing(size_t value, ValueId running) {
  const auto nothing = nothing_.find(value);
  if (nothing == nothing_.end() || nothing->second == 0) return {};
  const DType dtype = compute_type(code_[running].type.dtype);
  return builder_.row(ElementwiseOp::eq,
                      {rounded(running, dtype), ValueOperand::literal(dtype, nothing->second)});
}

// As long as no element was seen, bodies and ratios use 0 in place of an identity that spreads.
ValueId TreeEmitter::guarded(size_t value, ValueId running) {
  if (!guards_[value]) return running;
  const auto [found, added] = guarded_.try_emplace(running, running);
  if (!added) return found->second;
  const ValueId nothing = seen_nothing(value, running);
  if (!nothing) return running;
  const ValueOperand zero = ValueOperand::literal(code_[running].type.dtype, 0);
  return found->second = builder_.row(ElementwiseOp::select, {nothing, zero, running});
}

// The part of a tile that the present task reads, with the dimensions of that task.
ValueId TreeEmitter::read_tile(const Tile& from, const LoopStep& s, const TaskTile& tile) {
  const LoopValue& value = tree_.values[s.source];
  for (size_t i = 0; i < value.axes.size(); ++i)
    if (!(s.at[i] == tree_.axes[value.axes[i]].index()))
      refuse({}, fmt::format("%{} is in registers, but is read at an index other than its own",
                             value.name));
  ValueId out = from.value;
  const ValueType type = code_[out].type;
  // Nothing changes if every dimension is the same, or was folded and is broadcast by its reader.
  bool same = from.dims.size() == tile.dims.size();
  for (size_t d = 0; same && d < from.dims.size(); ++d)
    same = type.extents[d] == 1 ||
           (from.dims[d] == tile.dims[d] && type.extents[d] == tile.extents[d]);
  if (same) return out;
  // The dimension of the task that is the same digit, or else the first one of the axis.
  const auto dimension = [&](size_t d, bool exactly) -> std::optional<size_t> {
    for (const bool same_digit : {true, false})
      for (size_t at = 0; at < tile.dims.size() && (same_digit || !exactly); ++at)
        if (tile.dims[at] == from.dims[d] && (!same_digit || tile.digits[at] == from.digits[d]))
          return at;
    return std::nullopt;
  };
  std::vector<Expr> offsets;
  ValueType part = type;
  bool cut = false;
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const size_t axis = from.dims[d];
    offsets.emplace_back(0);
    if (axis == kNone || dimension(d, /*exactly=*/true) ||
        extent_of(axis, axes_) == type.extents[d])
      continue;
    cut = true;
    part.extents[d] = extent_of(axis, axes_);
    offsets.back() = axes_[axis].begin - from.begin[d];
  }
  if (cut) {
    if (scope_ != builder_.scope()) forget();
    Question question{s, {out}, part.extents, {}, {}};
    question.step.at = offsets;
    std::vector<Question>& asked = asked_[hash_combine(hash_of(question.step), out.index)];
    const auto known =
        std::ranges::find_if(asked, [&](const Question& other) { return other.is_like(question); });
    MovementOp slice{MovementKind::Slice, out, {}, offsets};
    if (std::all_of(offsets.begin(), offsets.end(),
                    [](const Expr& e) { return e.as_constant(); })) {
      for (const Expr& e : offsets) slice.arguments.push_back(*e.as_constant());
      slice.offsets.clear();
    }
    if (known != asked.end()) {
      out = known->answer.value;
    } else {
      out = builder_.append(std::move(slice), {part}, value.name)[0];
      question.answer = out;
      asked.push_back(std::move(question));
    }
  }
  // Puts the dimensions in the order of the task. Dimensions that the tile lacks have extent 1.
  ValueType wanted{type.dtype, 1, std::vector<int64_t>(tile.dims.size(), 1)};
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (part.extents[d] == 1) continue;
    const auto at = dimension(d, /*exactly=*/false);
    if (!at)
      refuse({},
             fmt::format("%{} has an axis that the task that reads it does not have", value.name));
    wanted.extents[*at] = part.extents[d];
  }
  if (wanted == part) return out;
  if (scope_ != builder_.scope()) forget();
  Question question{{.kind = LoopStep::Kind::Read}, {out}, wanted.extents, {}, {}};
  std::vector<Question>& asked = asked_[hash_combine(hash_of(question.step), out.index)];
  const auto known =
      std::ranges::find_if(asked, [&](const Question& other) { return other.is_like(question); });
  if (known != asked.end()) return known->answer.value;
  const ValueId view = builder_.view(MovementKind::Reshape, out, wanted);
  lay_out(view, tile);
  question.answer = view;
  asked.push_back(std::move(question));
  return view;
}

}  // namespace braze
