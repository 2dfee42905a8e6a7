// emit_tasks.cpp — bodies as rows over tiles, folds, dots on vector units, and stores (E6 to E9,
// E15 to E18).
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
  std::set<size_t> out(task.over.begin(), task.over.end());
  if (task.makes_value()) {
    const auto& own = tree_.values[task.target].axes;
    out.insert(own.begin(), own.end());
    return {out.begin(), out.end()};
  }
  const auto note = [&](const Expr& e) {
    for (size_t axis = 0; axis < tree_.axes.size(); ++axis)
      if (e.uses(name_of(axis))) out.insert(axis);
  };
  for (const Expr& e : task.at) note(e);
  for (const LoopStep& s : task.body.steps) {
    for (const Expr& e : s.at) note(e);
    for (const RangeCondition& c : s.conditions)
      for (const Expr* e : {&c.value, &c.min, &c.limit}) note(*e);
  }
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

ValueOperand TreeEmitter::body(const LoopBody& body, uint32_t result, const TaskTile& tile) {
  memo_.assign(body.steps.size(), {});
  LoopBody only = body;
  only.results = {result};
  const std::vector<bool> needed = needed_steps(only);
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
    question.ends = before_ends(axes_along(type_along(all, tile, s.dtype), tile), tile);
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
    const IndexComparison tail{tree_.axes[axis].index(), IndexComparison::Kind::Lt,
                               tree_.axes[axis].extent};
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

ValueOperand TreeEmitter::load(const LoopStep& s, const TaskTile& whole) {
  const TaskTile tile = with_rows_that_exist(whole);
  const auto at = substituted(s.at, tile);
  const Shape& shape = tree_.tensors[s.source].type.shape;
  // The tree states the conditions, or the value outside of the tensor.
  Condition condition = conditions(s.conditions, tile);
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
      const Condition tails = before_ends(axes_along(type, tile), tile);
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

// As long as no element was seen, bodies and ratios use 0 in place of the identity.
ValueId TreeEmitter::guarded(size_t value, ValueId running) {
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

// --- Tasks --------------------------------------------------------------------------------------

void TreeEmitter::task(const LoopTask& task) {
  const bool by_rank =
      task.combine == Combine::Rank && is_asynchronous(task) && !task.rescale.has_value();
  if (task.combine != Combine::None && !by_rank)
    refuse(task.location,
           "of combined tasks, only sums of asynchronous dots over ranks can be emitted yet");
  if (const auto state = states_.find(task.target); state != states_.end()) {
    before_[task.target] = state->second;
    if (task.rescale) rescale(task);
  }
  switch (task.kind) {
    case LoopTask::Kind::Compute: {
      if (const auto& layout = tree_.values[task.target].layout; layout && !tree_.roles)
        return turned(task, layout->layout);
      if (tree_.roles && is_kept_on_chip(task)) return keep_on_chip(task);
      TaskTile tile = tile_of(axes_of(task), axes_);
      lay_as_accumulator(tile);
      const DType dtype = body_dtype(task);
      const ValueId value = full(body(task.body, task.body.results[0], tile), tile, dtype);
      return define(task, value, tile);
    }
    case LoopTask::Kind::Fold:
      return fold(task);
    case LoopTask::Kind::Scan:
      return scan(task);
    case LoopTask::Kind::Arg:
      return arg_reduce(task);
    case LoopTask::Kind::Dot:
      return is_asynchronous(task) ? start_dot(task) : dot(task);
    case LoopTask::Kind::Place:
      return place(task);
    default:
      BRAZE_CHECK(false, "stages and stores are emitted by their regions");
  }
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

// The state brought to the present values of the totals on which it depends, by its ratio or its
// shift. If a total has seen no element yet, the ratio is replaced by 0; a shift is 0 then.
ValueId TreeEmitter::rescaled(const LoopTask& task, ValueId state, const TaskTile& tile) {
  ValueOperand ratio = body(*task.rescale, task.rescale->results[0], tile);
  if (task.shifts) return builder_.row(ElementwiseOp::add, {state, ratio});
  const ValueOperand zero = ValueOperand::literal(body_dtype(task), 0);
  for (const LoopStep& s : task.rescale->steps) {
    if (s.kind != LoopStep::Kind::Read || !s.before) continue;
    Tile before = rescaling_ == Rescaling::InTurn
                      ? tile_now(before_.at(s.source), state_tiles_.at(s.source))
                      : parts_.at(s.source);
    before.value = seen_nothing(s.source, before.value);
    if (before.value)
      ratio = builder_.row(ElementwiseOp::select, {read_tile(before, s, tile), zero, ratio});
  }
  return builder_.row(ElementwiseOp::mul, {state, ratio});
}

void TreeEmitter::rescale(const LoopTask& task) {
  settle(task.target);
  states_[task.target] = rescaled(task, states_.at(task.target), state_tiles_.at(task.target));
}

// The state after the loop. Where a total has seen no element, its guard (0 in its place) is
// undone.
ValueId TreeEmitter::last_rescale(const LoopTask& task, ValueId state, const TaskTile& tile) {
  rescaling_ = Rescaling::Unguarded;
  const ValueOperand ratio = body(*task.rescale, task.rescale->results[0], tile);
  rescaling_ = Rescaling::InTurn;
  const DType dtype = body_dtype(task);
  for (const LoopStep& s : task.rescale->steps) {
    if (s.kind != LoopStep::Kind::Read || !s.before) continue;
    Tile total = tiles_of_.at(s.source);
    total.value = seen_nothing(s.source, total.value);
    if (!total.value) continue;
    const ValueOperand one = ValueOperand::literal(dtype, constant_bits(dtype, 1.0));
    const ValueId factor =
        builder_.row(ElementwiseOp::select, {read_tile(total, s, tile), ratio, one});
    state = builder_.row(ElementwiseOp::mul, {state, factor});
  }
  return state;
}

// The dimensions of its tile that a fold combines in each turn. The others are combined after the
// loop: registers before lanes, lanes before warps, warps before blocks.
std::vector<int64_t> TreeEmitter::folded_in_turn(const LoopTask& task, const TaskTile& tile) const {
  struct Dimension {
    int64_t number;
    Digit digit;
  };
  std::vector<Dimension> all;
  for (const int64_t d : positions(task.over, tile))
    all.push_back({d, tile.digits[static_cast<size_t>(d)]});
  const auto rank = [](const Dimension& d) {
    constexpr Resource kOrder[] = {Resource::Register, Resource::Lane, Resource::Warp,
                                   Resource::Block};
    return std::find(std::begin(kOrder), std::end(kOrder), d.digit.resource) - kOrder;
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Dimension& a, const Dimension& b) { return rank(a) < rank(b); });
  const bool threads =
      std::any_of(all.begin(), all.end(), [](const Dimension& d) { return is_spread(d.digit); });
  if (unfolded_.contains(task.target)) {
    // On a CPU, each lane of a vector has its own part of a running value.
    const bool running = parted_.contains(task.target);
    if (threads)
      std::erase_if(all, [](const Dimension& d) { return is_spread(d.digit); });
    else if (running && !all.empty())
      all.pop_back();
    else
      all.clear();
  }
  std::vector<int64_t> out;
  for (const Dimension& d : all) out.push_back(d.number);
  return out;
}

// A factor of a dot, in the dtype in which it computes.
ValueOperand TreeEmitter::factor_of(const LoopTask& task, size_t n, const TaskTile& tile) {
  ValueOperand operand = body(task.body, task.body.results[n], tile);
  if (operand.is_literal()) operand = full(operand, tile, operand.dtype);
  return rounded(operand.value, body_dtype(task));
}

std::vector<ValueOperand> TreeEmitter::factors_of(const LoopTask& task, const TaskTile& tile) {
  std::vector<ValueOperand> out;
  for (size_t n = 0; n < task.body.results.size(); ++n) out.push_back(factor_of(task, n, tile));
  return out;
}

ValueId TreeEmitter::read_factor(const LoopTask& task, size_t n, const OnChip& from,
                                 const TaskTile& tile) {
  std::vector<Expr> at;
  for (const size_t axis : axes_of_result(task, n)) at.push_back(tile.index.at(name_of(axis)));
  at = place_in_buffer(from, at);
  return builder_.load(from.memory, at, type_along(at, tile, code_[from.memory].dtype));
}

// A fold in registers is one number along axes on which its terms do not depend.
void TreeEmitter::drop_constant(const LoopTask& task, TaskTile& tile) const {
  const LoopValue& value = tree_.values[task.target];
  if (tree_.roles || task.kind != LoopTask::Kind::Fold || task.rescale ||
      value.storage != Storage::Registers)
    return;
  const std::set<size_t> used = axes_used(tree_, task);
  std::vector<size_t> constant;
  for (const size_t axis : value.axes)
    if (!used.contains(axis)) constant.push_back(axis);
  drop(tile, positions(constant, tile));
}

void TreeEmitter::fold(const LoopTask& task) {
  TaskTile tile = tile_of(axes_of(task), axes_);
  lay_as_accumulator(tile);
  drop_constant(task, tile);
  const DType dtype = state_dtype(task);
  const auto state = states_.find(task.target);
  auto axes = folded_in_turn(task, tile);
  ValueId value;
  const bool added = state != states_.end() && axes.empty() && before_ends(task.over, tile).empty();
  if (task.kind == LoopTask::Kind::Dot) {
    std::vector<ValueOperand> factors = factors_of(task, tile);
    if (added && is_floating(dtype)) {
      factors.emplace_back(state->second);
      state->second = builder_.row(ElementwiseOp::fma, std::move(factors));
      return;
    }
    if (const auto dim = multiplied_in_registers(task, tile, axes)) {
      std::optional<ValueOperand> sum;
      if (state != states_.end() && axes.size() == 1) sum = state->second;
      value = added_products(factors, tile, *dim, sum);
      drop(tile, {*dim});
      std::erase(axes, *dim);
      if (sum) {
        state->second = value;
        return;
      }
    } else {
      value = full(builder_.row(ElementwiseOp::mul, std::move(factors)), tile, dtype);
    }
  } else {
    value = full(body(task.body, task.body.results[0], tile), tile, body_dtype(task));
    if (added && task.unrounded)
      if (const auto sum = product_added(task, state->second)) {
        state->second = *sum;
        return;
      }
    value = rounded(value, dtype);
  }
  value = without_tail(value, task.over, tile, info(task.monoid).padding(dtype));
  if (!axes.empty()) value = builder_.fold(task.monoid, value, axes);
  if (state == states_.end()) {
    drop(tile, axes);
    return define(task, rounded(value, tree_.values[task.target].dtype), tile);
  }
  state->second = builder_.row(info(task.monoid).combine, {state->second, value});
}

// The dimension of a dot's tile along which each thread of a GPU has a few products that it may add
// by `fma`, if there is one.
std::optional<int64_t> TreeEmitter::multiplied_in_registers(
    const LoopTask& task, const TaskTile& tile, const std::vector<int64_t>& folded) const {
  constexpr int64_t kMostProducts = 8;
  if (code_.warps == 0 || !is_floating(state_dtype(task)) || !before_ends(task.over, tile).empty())
    return std::nullopt;
  for (const int64_t dim : folded) {
    const Digit& digit = tile.digits[static_cast<size_t>(dim)];
    if (digit.resource == Resource::Register && digit.extent <= kMostProducts) return dim;
  }
  return std::nullopt;
}

// The sum of products along a dimension, added to `sum` if there is one.
ValueId TreeEmitter::added_products(const std::vector<ValueOperand>& factors, const TaskTile& tile,
                                    int64_t dim, std::optional<ValueOperand> sum) {
  const auto at = static_cast<size_t>(dim);
  const auto part = [&](const ValueOperand& factor, int64_t i) -> ValueOperand {
    if (factor.is_literal() || code_[factor.value].type.extents[at] == 1) return factor;
    ValueType type = code_[factor.value].type;
    type.extents[at] = 1;
    std::vector<int64_t> offsets(type.extents.size());
    offsets[at] = i;
    return builder_.view(MovementKind::Slice, factor, type, std::move(offsets));
  };
  for (int64_t i = 0; i < tile.extents[at]; ++i) {
    const ValueOperand a = part(factors[0], i), b = part(factors[1], i);
    sum = sum ? builder_.row(ElementwiseOp::fma, {a, b, *sum})
              : builder_.row(ElementwiseOp::mul, {a, b});
  }
  TaskTile own = tile;
  own.extents[at] = 1;
  return full(*sum, own, code_[sum->value].type.dtype);
}

// Adds to the state the product in which the task's body ends, by one `fma`. The steps of the body
// have been made before.
std::optional<ValueId> TreeEmitter::product_added(const LoopTask& task, ValueId state) {
  const LoopStep& product = task.body.steps[task.body.results[0]];
  if (product.dtype != state_dtype(task)) return std::nullopt;
  const ValueOperand &a = memo_[product.arguments[0]], &b = memo_[product.arguments[1]];
  if (a.is_literal() || b.is_literal()) return std::nullopt;
  return builder_.row(ElementwiseOp::fma, {a, b, state});
}

void TreeEmitter::drop(TaskTile& tile, const std::vector<int64_t>& dims) {
  for (const int64_t d : dims) {
    tile.dims[static_cast<size_t>(d)] = kNone;
    tile.extents[static_cast<size_t>(d)] = 1;
  }
}

// Whether the tile of products would be larger than the factors and the sums: each factor has rows
// that the other one does not have.
bool TreeEmitter::is_outer_product(const LoopTask& task, const AxesNow& axes) const {
  if (task.body.results.size() != 2 || task.over.size() != 1) return false;
  const auto has_own_rows = [&](size_t factor) {
    const auto own = axes_of_result(task, factor), other = axes_of_result(task, 1 - factor);
    return std::ranges::any_of(
        own, [&](size_t axis) { return !other.contains(axis) && extent_of(axis, axes) > 1; });
  };
  return has_own_rows(0) && has_own_rows(1);
}

// Whether a dot without a unit sums a tile of products, as a fold does.
bool TreeEmitter::is_summed_as_fold(const LoopTask& task, const AxesNow& axes) const {
  return task.unit == Unit::None && !tree_.roles &&
         !positions(task.over, tile_of(axes_of(task), axes)).empty() &&
         (code_.warps > 0 || !is_outer_product(task, axes));
}

// The factors of a dot whose vectors run along the summed axis, in buffers: those that do not run
// along the last axis of the sums. A loop over the summed axis reads their elements there.
std::map<size_t, TreeEmitter::OnChip> TreeEmitter::buffered_factors(const LoopTask& task) {
  std::map<size_t, OnChip> out;
  const size_t lanes = tree_.values[task.target].axes.back();
  for (size_t n = 0; n < task.body.results.size(); ++n) {
    const std::set<size_t> axes = axes_of_result(task, n);
    const auto is_long = [&](size_t axis) { return extent_of(axis, axes_) > 1; };
    if (axes.contains(lanes) || std::ranges::none_of(task.over, is_long)) continue;
    const TaskTile tile = tile_of({axes.begin(), axes.end()}, axes_);
    OnChip chip{.memory = {}, .item = {}, .begin = {}, .extents = {}};
    std::vector<Expr> at;
    for (const size_t axis : axes) {
      chip.extents.push_back(extent_of(axis, axes_));
      chip.begin.push_back(axes_[axis].begin);
      at.push_back(tile.index.at(name_of(axis)));
    }
    const DType dtype = body_dtype(task);
    const ValueId value = full(factor_of(task, n, tile), tile, dtype);
    std::vector<int64_t> extents;
    for (const int64_t extent : chip.extents)
      if (extent > 1) extents.push_back(extent);
    chip.memory = builder_.buffer("factor", dtype, extents);
    builder_.store(value, chip.memory, place_in_buffer(chip, at));
    out.emplace(n, std::move(chip));
  }
  return out;
}

// A dot on vector units: a loop over the summed axes, with one `fma` of [m, 1] and [1, n] tiles.
// Without a unit, a tile of products is summed as a fold is if it is not larger than the factors.
void TreeEmitter::dot(const LoopTask& task) {
  constexpr int64_t kUnrolledTurns = 4;
  if (is_summed_as_fold(task, axes_)) return fold(task);
  if (task.unit == Unit::Mma) return multiply_matrices(task);
  std::map<size_t, OnChip> buffered;
  if (task.unit == Unit::None && !tree_.roles && is_outer_product(task, axes_))
    buffered = buffered_factors(task);
  const DType dtype = body_dtype(task);
  const auto& own = tree_.values[task.target].axes;
  const TaskTile all = tile_of(own, axes_);
  ValueId state =
      states_.contains(task.target)
          ? states_.at(task.target)
          : builder_.constant({dtype, 1, all.extents}, info(Monoid::Sum).padding(dtype));
  const std::function<ValueId(size_t, ValueId)> summed = [&](size_t n, ValueId sum) -> ValueId {
    if (n == task.over.size()) {
      const TaskTile tile = tile_of(own, axes_);
      std::vector<ValueOperand> operands;
      for (size_t f = 0; f < task.body.results.size(); ++f)
        operands.push_back(buffered.contains(f)
                               ? ValueOperand(read_factor(task, f, buffered.at(f), tile))
                               : factor_of(task, f, tile));
      if (!is_floating(dtype))
        return builder_.row(ElementwiseOp::add,
                            {sum, builder_.row(ElementwiseOp::mul, std::move(operands))});
      operands.emplace_back(sum);
      return builder_.row(ElementwiseOp::fma, std::move(operands));
    }
    const size_t axis = task.over[n];
    const int64_t extent = extent_of(axis, axes_);
    const Expr begin = axes_[axis].begin;
    if (extent == 1) return summed(n + 1, sum);
    const bool whole =
        proves_at_most(begin + extent, tree_.axes[axis].extent) ||
        is_decided({tree_.axes[axis].index(), IndexComparison::Kind::Lt, tree_.axes[axis].extent});
    if (whole && ring_) {
      steps_ = Steps{.level = {axis, begin, extent}};
      for (int64_t i = 0; i < extent; ++i)
        in_turn({axis, 1}, begin + i, false, [&] { sum = summed(n + 1, sum); });
      steps_.reset();
      return sum;
    }
    const Expr high = whole ? Expr(extent) : min(extent, tree_.axes[axis].extent - begin);
    return builder_.for_loop(
        turn_name(axis), 0, high, 1, {sum},
        [&](const Expr& index, const std::vector<ValueId>& carried) {
          ValueId out;
          in_turn({axis, 1}, begin + index, false, [&] { out = summed(n + 1, carried[0]); });
          return std::vector<ValueOperand>{out};
        },
        buffered.empty() ? 1 : kUnrolledTurns)[0];
  };
  const ValueId sum = summed(0, state);
  if (states_.contains(task.target))
    states_[task.target] = sum;
  else
    define(task, rounded(sum, tree_.values[task.target].dtype), all);
}

void TreeEmitter::buffered_stage(const LoopTask& task) {
  const LoopValue& value = tree_.values[task.target];
  const TaskTile tile = value.layout ? fetched_tile(task, 0) : tile_of(value.axes, shared_);
  const ValueId copied = full(body(task.body, task.body.results[0], tile), tile, value.dtype);
  // The buffer has its axes in the order of the value's axes.
  std::vector<Expr> at;
  std::vector<int64_t> extents;
  for (const size_t axis : value.axes)
    for (const int64_t d : positions({axis}, tile)) {
      extents.push_back(tile.extents[static_cast<size_t>(d)]);
      at.push_back(position_symbol('d', static_cast<size_t>(d), extents.back()));
    }
  if (extents.size() > 1) extents.back() += matrix_padding(task.target);
  const MemoryId memory = builder_.buffer(value.name, value.dtype, extents);
  builder_.store(copied, memory, at);
  OnChip chip{memory, std::nullopt, {}, {}};
  for (const size_t axis : value.axes) {
    chip.begin.push_back(shared_[axis].begin);
    chip.extents.push_back(extent_of(axis, shared_));
  }
  chips_[task.target] = std::move(chip);
}

// The elements behind each row of a buffer from which warps load matrices of 16-bit factors.
// ldmatrix takes eight rows of 16 bytes at once: with 16 bytes behind each row, of an odd number of
// such pieces, they lie in different banks.
int64_t TreeEmitter::matrix_padding(size_t value) const {
  constexpr int64_t kPieceBytes = 16;
  bool multiplied = false;
  for (const LoopRegion& phase : tree_.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      multiplied |= task.unit == Unit::Mma && reads_value(task, value);
    });
  const DType dtype = tree_.values[value].dtype;
  return multiplied && is_half(dtype) ? kPieceBytes / static_cast<int64_t>(size_of(dtype)) : 0;
}

// Makes stores that stand side by side. If one may overwrite what another reads, all values are
// computed before the first is stored: an output may take over the memory of an input.
void TreeEmitter::stores(std::span<const LoopItem> run) {
  if (!ranks_) return stores_here(run);
  // What blocks of a cluster have combined, all of them have, and the first block stores it.
  const auto apart = std::ranges::count_if(run, [&](const LoopItem& item) {
    return contains(axes_of(std::get<LoopTask>(item)), ranks_->levels[0].axis);
  });
  if (apart == std::ssize(run)) return stores_here(run);
  if (apart > 0)
    refuse(std::get<LoopTask>(run.front()).location,
           "stores side by side must all differ along the ranks of a cluster, or none of them");
  builder_.if_then({{rank_, IndexComparison::Kind::Eq, 0}}, [&] { stores_here(run); });
}

void TreeEmitter::stores_here(std::span<const LoopItem> run) {
  const bool together = part_ == Part::All || share_memory(run);
  std::vector<Stored> values;
  for (const LoopItem& item : run) {
    const auto& task = std::get<LoopTask>(item);
    if (is_there(task)) continue;
    const LoopTensor& tensor = tree_.tensors[task.target];
    TaskTile tile = tile_of(axes_of(task), axes_);
    lay_as_accumulator(tile);
    const ValueId value =
        full(body(task.body, task.body.results[0], tile), tile, tensor.type.dtype);
    values.push_back({task, value, std::move(tile)});
    if (!together) store(values.back());
  }
  if (together)
    for (const Stored& s : values) store(s);
  if (together || part_ == Part::All) forget();
}

// Whether some of these stores read what others write.
bool TreeEmitter::share_memory(std::span<const LoopItem> run) const {
  for (const LoopItem& a : run)
    for (const LoopItem& b : run) {
      const auto &reader = std::get<LoopTask>(a), &writer = std::get<LoopTask>(b);
      if (&reader != &writer && std::ranges::any_of(reader.body.steps, [&](const LoopStep& s) {
            return s.kind == LoopStep::Kind::Load && s.source == writer.target;
          }))
        return true;
    }
  return false;
}

namespace {

bool has_digits(const Expr& e) {
  const bool digit = e.kind() == Expr::Kind::FloorDiv || e.kind() == Expr::Kind::Mod;
  return digit || std::ranges::any_of(e.operands(), has_digits);
}

}  // namespace

void TreeEmitter::store(const Stored& stored) {
  const auto& [task, value, tile] = stored;
  if (const auto gathered = gathered_.find(&task); gathered != gathered_.end()) {
    const auto& [chip, all] = gathered->second;
    std::vector<Expr> at;
    for (size_t d = 0; d < tile.dims.size(); ++d)
      at.push_back(tile.index.at(name_of(tile.dims[d])) - chip.begin[d]);
    builder_.store(value, chip.memory, std::move(at));
  } else if (tree_.roles && moves_by_boxes(task, tile)) {
    store_through_chip(task, value, tile);
  } else {
    auto at = substituted(task.at, tile);
    Guard guard{before_ends(tile.dims, tile), {}};
    // The digits of a composed axis may lie beyond the end of the axis that was composed.
    const Shape& shape = tree_.tensors[task.target].type.shape;
    for (size_t d = 0; tree_.roles && d < at.size(); ++d)
      if (has_digits(task.at[d]) && !proves_in_bounds(task.at[d], shape[d]))
        guard.condition.push_back({at[d], IndexComparison::Kind::Lt, shape[d]});
    builder_.store(value, MemoryId(task.target), std::move(at), std::move(guard), task.cache);
  }
}

void TreeEmitter::note_layouts() {
  if (tree_.roles) return;
  for (const LoopRegion& phase : tree_.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      if (task.layout) note_layout(*task.layout);
    });
}

// Makes a transposed tile, for readers with another layout: the value is computed with its two
// dimensions exchanged and transposed then. A plain program, which finds layouts by extents, can
// thus distinguish the two layouts.
void TreeEmitter::turned(const LoopTask& task, const Layout& layout) {
  const TaskTile tile = tile_of(axes_of(task), axes_);
  const DType dtype = body_dtype(task);
  if (layout.rank() != 2) refuse(task.location, "only a tile of two dimensions can be transposed");
  TaskTile other = tile;
  Layout lies = layout;
  std::swap(other.dims[0], other.dims[1]);
  std::swap(other.extents[0], other.extents[1]);
  std::swap(lies.axes[0], lies.axes[1]);
  other.index = tile_of({}, axes_).index;
  for (size_t d = 0; d < other.dims.size(); ++d)
    other.index[name_of(other.dims[d])] += position_symbol('d', d, other.extents[d]);
  note_layout(lies);
  forget();
  const ValueId value = full(body(task.body, task.body.results[0], other), other, dtype);
  forget();
  const ValueType type{dtype, 1, tile.extents};
  define(task, builder_.view(MovementKind::Transpose, value, type, {1, 0}), tile);
}

// Declares a layout. A plain program finds the layouts of tiles by their extents.
void TreeEmitter::note_layout(const Layout& layout) {
  for (const std::vector<Digit>& axis : layout.axes)
    for (const Digit& digit : axis) {
      if (digit.resource == Resource::Warp)
        code_.warps = std::max(code_.warps, digit.stride * digit.extent);
      else if (digit.resource == Resource::Block)
        code_.cluster = std::max(code_.cluster, digit.stride * digit.extent);
    }
  code_.warps = std::max<int64_t>(code_.warps, 1);
  if (std::all_of(layout.axes.begin(), layout.axes.end(),
                  [](const std::vector<Digit>& axis) { return axis.empty(); }))
    return;
  const bool known = std::any_of(code_.layouts.begin(), code_.layouts.end(),
                                 [&](const NamedLayout& named) { return named.layout == layout; });
  if (!known) code_.layouts.push_back({fmt::format("t{}", code_.layouts.size()), layout});
}

}  // namespace braze
