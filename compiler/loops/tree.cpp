#include "compiler/loops/tree.h"

#include <algorithm>
#include <charconv>

#include "ir/code/comparisons.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"

namespace braze {

DType body_dtype(const LoopTask& task) {
  const DType own = task.body.steps[task.body.results[task.part]].dtype;
  return task.kind == LoopTask::Kind::Dot ? accumulation_type(Monoid::Sum, own) : own;
}

std::optional<uint32_t> loaded_step(std::string_view symbol) {
  uint32_t step = 0;
  const char* end = symbol.data() + symbol.size();
  if (symbol.size() < 2 || symbol[0] != 'e' ||
      std::from_chars(symbol.data() + 1, end, step).ptr != end)
    return std::nullopt;
  return step;
}

Expr loaded_symbol(uint32_t step, int64_t limit) {
  return Expr::symbol("e" + std::to_string(step), {0, std::max<int64_t>(limit, 1) - 1});
}

Expr end_symbol(const LoopAxis& axis) {
  return Expr::symbol(axis.name + ".end", {0, axis.extent.range().max});
}

IndexComparison before_end(const LoopAxis& axis) {
  return {axis.index(), IndexComparison::Kind::Lt, axis.extent};
}

Expr limit_symbol(const LoopAxis& axis, size_t n) {
  return Expr::symbol(axis.name + ".limit" + (n == 0 ? "" : std::to_string(n)), kLimits);
}

bool contains(const std::vector<size_t>& list, size_t element) {
  return std::ranges::find(list, element) != list.end();
}

bool runs_over(const Loop& loop, size_t axis) {
  return std::ranges::find(loop.levels, axis, &LoopLevel::axis) != loop.levels.end();
}

bool runs_over_any(const Loop& loop, const std::vector<size_t>& axes) {
  return std::ranges::any_of(axes, [&](size_t axis) { return runs_over(loop, axis); });
}

bool compares_limit(const LoopTree& tree, const Loop& loop, const IndexComparison& part) {
  for (size_t n = 0; loop.limit && n < loop.limit->results.size(); ++n) {
    const std::string symbol = limit_symbol(tree.axes[loop.levels[0].axis], n).symbol_name();
    if (part.left.uses(symbol) || part.right.uses(symbol)) return true;
  }
  return false;
}

bool surely_has_turn(const LoopTree& tree, const Loop& loop, const std::vector<int64_t>& turns) {
  const Expr& extent = tree.axes[loop.levels[0].axis].extent;
  if (extent.range().min < 1) return false;
  if (!loop.bounds) return true;
  const auto& [first, end] = *loop.bounds;
  // Where an earlier phase has found the bounds, they begin before the axis ends.
  if (loop.limit && loop.limit->results.size() > 1 && end.kind() == Expr::Kind::Max)
    return std::ranges::find(end.operands(), first + 1) != end.operands().end();
  std::unordered_map<std::string, Expr> ends;
  for (size_t axis = 0; axis < tree.axes.size(); ++axis)
    if (turns[axis] > 0)
      ends.emplace(end_symbol(tree.axes[axis]).symbol_name(),
                   tree.axes[axis].index() + turns[axis]);
  return proves_less(first, end.substitute(ends)) == true && proves_less(first, extent) == true;
}

std::optional<IndexComparison> comparison_of_indices(const LoopBody& body, const LoopStep& s) {
  const ComparisonRow* row = s.kind == LoopStep::Kind::Apply ? comparison_row(s.op) : nullptr;
  if (!row) return std::nullopt;
  const auto as_index = [](const LoopStep& operand) -> std::optional<Expr> {
    if (operand.kind == LoopStep::Kind::Index) return operand.at[0];
    if (operand.kind != LoopStep::Kind::Constant || !is_integer(operand.dtype)) return std::nullopt;
    const int64_t value = bits_to_int(operand.dtype, operand.bits);
    // The greatest numbers of 64 bits are no indices: INT64_MAX would mean "unbounded".
    const bool is_index = is_unsigned_integer(operand.dtype)
                              ? value >= 0 && value <= kLimits.max
                              : kLimits.min <= value && value <= kLimits.max;
    return is_index ? std::optional<Expr>(value) : std::nullopt;
  };
  const auto a = as_index(body.steps[s.arguments[0]]), b = as_index(body.steps[s.arguments[1]]);
  if (!a || !b) return std::nullopt;
  return IndexComparison{*a, row->kind, *b};
}

DType sums_dtype(const LoopTask& task) {
  return task.replaces ? body_dtype(task) : compute_type(body_dtype(task));
}

bool is_made_ahead(const LoopTree& tree, const LoopTask& task) {
  if (task.kind == LoopTask::Kind::Stage) return true;
  return !tree.roles && task.kind == LoopTask::Kind::Compute &&
         tree.values[task.target].storage == Storage::Chip &&
         std::ranges::none_of(task.body.steps,
                              [](const LoopStep& s) { return s.kind == LoopStep::Kind::Read; });
}

Monoid monoid_of(const LoopTask& task) {
  return task.kind == LoopTask::Kind::Dot ? Monoid::Sum : task.monoid;
}

bool sums_products(const LoopTask& task) {
  const LoopStep& last = task.body.steps[task.body.results[0]];
  return task.kind == LoopTask::Kind::Fold && task.monoid == Monoid::Sum &&
         is_floating(last.dtype) && last.kind == LoopStep::Kind::Apply &&
         last.op == ElementwiseOp::mul;
}

std::optional<std::string> no_partial_sums(const LoopTree& tree, const Loop& loop) {
  if (loop.ring > 0 || tree.roles) return "a stream that fetches ahead has no partial sums";
  std::optional<std::string> why;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!task.has_state() || !runs_over_any(loop, task.over)) return;
    const std::string& name = tree.values[task.target].name;
    if (task.kind != LoopTask::Kind::Fold && task.kind != LoopTask::Kind::Dot)
      why = fmt::format("%{} is no fold, and parts of it cannot be added", name);
    else if (task.rescale)
      why = fmt::format("%{} follows a running value, so each turn needs the one before", name);
  });
  return why;
}

Expr linear_offset(const std::vector<Expr>& at, const Shape& shape) {
  Expr offset;
  for (size_t axis = 0; axis < at.size(); ++axis) offset = offset * shape[axis] + at[axis];
  return offset;
}

uint64_t hash_of(const LoopStep& step) {
  uint64_t hash = hash_combine(static_cast<uint64_t>(step.kind), static_cast<uint64_t>(step.op));
  hash = hash_combine(hash, hash_combine(step.source, step.bits));
  for (const Expr& e : step.at) hash = hash_combine(hash, e.hash());
  for (const RangeCondition& c : step.conditions) hash = hash_combine(hash, c.value.hash());
  for (const uint32_t argument : step.arguments) hash = hash_combine(hash, argument);
  return hash;
}

std::vector<bool> needed_steps(const LoopBody& body) {
  std::vector<bool> needed(body.steps.size());
  const auto need = [&](const Expr& e) {
    for (const std::string& symbol : e.symbols())
      if (const auto step = loaded_step(symbol)) needed[*step] = true;
  };
  for (const uint32_t result : body.results) needed[result] = true;
  for (size_t i = body.steps.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const LoopStep& s = body.steps[i];
    for (const uint32_t argument : s.arguments) needed[argument] = true;
    for_each_expr(s, need);
  }
  return needed;
}

void remove_dead_steps(LoopBody& body) {
  const std::vector<bool> needed = needed_steps(body);
  if (std::ranges::find(needed, false) == needed.end()) return;
  std::vector<uint32_t> number(body.steps.size());
  std::unordered_map<std::string, Expr> symbols;
  std::vector<LoopStep> kept;
  for (uint32_t i = 0; i < body.steps.size(); ++i) {
    if (!needed[i]) continue;
    LoopStep& s = body.steps[i];
    for (uint32_t& argument : s.arguments) argument = number[argument];
    for_each_expr(s, [&](Expr& e) { e = e.substitute(symbols); });
    number[i] = static_cast<uint32_t>(kept.size());
    symbols.insert_or_assign(loaded_symbol(i).symbol_name(), loaded_symbol(number[i]));
    kept.push_back(std::move(s));
  }
  for (uint32_t& result : body.results) result = number[result];
  body.steps = std::move(kept);
}

LoopBody part_of(LoopBody body, uint32_t step) {
  body.results = {step};
  remove_dead_steps(body);
  return body;
}

uint32_t push(LoopBody& body, LoopStep step) {
  body.steps.push_back(std::move(step));
  return static_cast<uint32_t>(body.steps.size() - 1);
}

bool reads(const LoopBody& body, size_t value) {
  return std::ranges::any_of(body.steps, [&](const LoopStep& s) {
    return s.kind == LoopStep::Kind::Read && s.source == value;
  });
}

namespace {

void walk(const LoopRegion& region, std::vector<const Loop*>& around,
          const std::function<void(const LoopTask&, const std::vector<const Loop*>&)>& visit) {
  for (const LoopItem& item : region) {
    if (const auto* task = std::get_if<LoopTask>(&item)) {
      visit(*task, around);
      continue;
    }
    const Loop& loop = *std::get<Box<Loop>>(item);
    around.push_back(&loop);
    walk(loop.body, around, visit);
    around.pop_back();
  }
}

}  // namespace

void for_each_task(
    const LoopRegion& region,
    const std::function<void(const LoopTask&, const std::vector<const Loop*>&)>& visit) {
  std::vector<const Loop*> around;
  walk(region, around, visit);
}
void for_each_task(
    const LoopTree& tree,
    const std::function<void(const LoopTask&, const std::vector<const Loop*>&)>& visit) {
  for (const LoopRegion& phase : tree.phases) for_each_task(phase, visit);
}

bool has_kind(const LoopTree& tree, LoopTask::Kind kind) {
  bool out = false;
  for_each_task(tree, [&](const LoopTask& task, const auto&) { out |= task.kind == kind; });
  return out;
}

std::optional<IndexComparison> with_axes(const LoopTree& tree, const IndexComparison& condition) {
  std::unordered_map<std::string, Expr> symbols;
  for (const LoopAxis& axis : tree.axes) symbols.insert_or_assign(axis.name, axis.index());
  for (const Expr& size : tree.symbols) symbols.insert_or_assign(size.symbol_name(), size);
  for (const Expr* e : {&condition.left, &condition.right})
    for (const std::string& symbol : e->symbols())
      if (!symbols.contains(symbol)) return std::nullopt;
  return IndexComparison{condition.left.substitute(symbols), condition.kind,
                         condition.right.substitute(symbols)};
}

}  // namespace braze
