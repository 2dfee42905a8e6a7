#include "compiler/loops/steps/sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "compiler/loops/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

// --- draw ---------------------------------------------------------------------------------------

namespace {

// A product or quotient in a summed expression, and its operand that leaves the sum.
struct Drawn {
  size_t result;               // a result of the body: the factor of a dot, or 0
  std::vector<uint32_t> path;  // the steps from the result down to the product
  uint32_t stays, leaves;      // operands of the product
  ElementwiseOp op;            // how the operand that left is applied to the sum
};

bool varies(const LoopTree& tree, const LoopBody& body, uint32_t number,
            const std::vector<size_t>& axes) {
  const LoopStep& s = body.steps[number];
  const auto uses = [&](const Expr& e) {
    for (const std::string& symbol : e.symbols())
      if (loaded_step(symbol)) return true;
    return std::ranges::any_of(axes, [&](size_t axis) { return e.uses(tree.axes[axis].name); });
  };
  if (std::ranges::any_of(s.at, uses)) return true;
  for (const RangeCondition& c : s.conditions)
    if (uses(c.value) || uses(c.min) || uses(c.limit)) return true;
  return std::ranges::any_of(s.arguments,
                             [&](uint32_t argument) { return varies(tree, body, argument, axes); });
}

bool finds_extreme(const LoopTask& task) {
  return task.kind == LoopTask::Kind::Fold && is_floating(body_dtype(task)) &&
         (task.monoid == Monoid::Max || task.monoid == Monoid::Min);
}

// The number, if the step is a constant.
std::optional<double> number_of(const LoopBody& body, uint32_t number) {
  const LoopStep& s = body.steps[number];
  if (s.kind != LoopStep::Kind::Constant) return std::nullopt;
  return bits_to_double(s.dtype, s.bits);
}

// Finds a product with a positive number, which changes neither the order of values nor infinities.
// It may stand where another part of the terms is infinite.
std::optional<Drawn> find_scale(const LoopTask& task) {
  const LoopBody& body = task.body;
  Drawn out{0, {body.results[0]}, 0, 0, ElementwiseOp::mul};
  while (true) {
    const LoopStep& s = body.steps[out.path.back()];
    if (s.kind != LoopStep::Kind::Apply) return std::nullopt;
    if (s.op == ElementwiseOp::mul) {
      for (const size_t leaving : {1, 0}) {
        const auto scale = number_of(body, s.arguments[leaving]);
        if (!scale || !(*scale > 0) || std::isinf(*scale)) continue;
        out.leaves = s.arguments[leaving];
        out.stays = s.arguments[1 - leaving];
        return out;
      }
      return std::nullopt;
    }
    if (s.op != ElementwiseOp::select) return std::nullopt;
    const auto infinite = [&](size_t arm) {
      const auto number = number_of(body, s.arguments[arm]);
      return number && std::isinf(*number);
    };
    if (infinite(1) == infinite(2)) return std::nullopt;
    out.path.push_back(s.arguments[infinite(2) ? 1 : 2]);
  }
}

// Finds such a product. It may stand inside other products, and inside one conversion of all of
// them.
std::optional<Drawn> find_drawn(const LoopTree& tree, const LoopTask& task) {
  if (finds_extreme(task)) return find_scale(task);
  const LoopBody& body = task.body;
  const auto stays = [&](uint32_t number) { return varies(tree, body, number, task.over); };
  for (size_t result = 0; result < body.results.size(); ++result) {
    Drawn out{result, {body.results[result]}, 0, 0, ElementwiseOp::mul};
    const LoopStep& first = body.steps[out.path[0]];
    if (first.kind == LoopStep::Kind::Apply && first.op == ElementwiseOp::convert &&
        is_floating(body.steps[first.arguments[0]].dtype))
      out.path.push_back(first.arguments[0]);
    const std::function<bool()> find = [&] {
      const LoopStep& s = body.steps[out.path.back()];
      if (s.kind != LoopStep::Kind::Apply || !is_floating(s.dtype)) return false;
      const bool divides = s.op == ElementwiseOp::div;
      if (s.op != ElementwiseOp::mul && s.op != ElementwiseOp::neg && !divides) return false;
      for (const size_t leaving : {1, 0}) {
        if (s.arguments.size() < 2 || (leaving == 0 && divides)) continue;
        if (stays(s.arguments[leaving]) || !stays(s.arguments[1 - leaving])) continue;
        out.leaves = s.arguments[leaving];
        out.stays = s.arguments[1 - leaving];
        out.op = s.op;
        return true;
      }
      // A 16-bit product is rounded; without this operand, it would be rounded otherwise.
      if (is_half(s.dtype)) return false;
      for (size_t i = 0; i < (divides ? 1 : s.arguments.size()); ++i) {
        out.path.push_back(s.arguments[i]);
        if (find()) return true;
        out.path.pop_back();
      }
      return false;
    };
    if (find()) return out;
  }
  return std::nullopt;
}

// Copies a step of a body, and the steps that it needs, to another body.
uint32_t copy_step(const LoopBody& from, uint32_t number, LoopBody& to,
                   const std::unordered_map<std::string, Expr>& at) {
  LoopStep s = from.steps[number];
  for (uint32_t& argument : s.arguments) argument = copy_step(from, argument, to, at);
  for (Expr& e : s.at) e = e.substitute(at);
  for (RangeCondition& c : s.conditions)
    for (Expr* e : {&c.value, &c.min, &c.limit}) *e = e->substitute(at);
  to.steps.push_back(std::move(s));
  return static_cast<uint32_t>(to.steps.size() - 1);
}

uint32_t convert_to(LoopBody& body, uint32_t number, DType dtype) {
  if (body.steps[number].dtype == dtype) return number;
  body.steps.push_back({.dtype = dtype, .op = ElementwiseOp::convert, .arguments = {number}});
  return static_cast<uint32_t>(body.steps.size() - 1);
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const DrawStep& step) {
  const auto value = find_value(tree, step.value);
  if (!value) return no_such("value", "%" + step.value);
  const ItemPlace place = maker_of(tree, *value);
  const LoopTask& task = task_at(tree, place);
  const bool sums = task.kind == LoopTask::Kind::Dot ||
                    (task.kind == LoopTask::Kind::Fold && task.monoid == Monoid::Sum &&
                     is_floating(body_dtype(task)));
  if (!sums && !finds_extreme(task))
    return Refusal{&codes::kNotADot,
                   fmt::format("%{} is neither a dot nor a sum nor an extreme", step.value),
                   "name a dot, a sum or an extreme"};
  if (task.rescale || task.combine != Combine::None || task.unit != Unit::None || task.ahead > 0)
    return Refusal{&codes::kMarked,
                   fmt::format("%{} has marks that this step would make wrong", step.value),
                   "take this step before others"};
  const auto drawn = find_drawn(tree, task);
  if (!drawn && !sums)
    return Refusal{&codes::kNotSeparable,
                   fmt::format("no term of %{} is multiplied by a positive number", step.value),
                   "leave it as it is"};
  if (!drawn)
    return Refusal{
        &codes::kNotSeparable,
        fmt::format("{} %{} is multiplied or divided by a part that does not vary along {}",
                    task.kind == LoopTask::Kind::Dot ? "no factor of" : "no term of", step.value,
                    join(task.over, ", ", [&](size_t a) { return tree.axes[a].name; })),
        "leave it as it is"};
  for (const size_t axis : task.over)
    if (tree.axes[axis].extent.range().min < 1)
      return Refusal{
          &codes::kNotSeparable,
          fmt::format("the axis {} may be empty, and then the sum must be 0 whatever the factor is",
                      tree.axes[axis].name),
          "leave it as it is"};
  std::optional<Refusal> refusal;
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& reader, const auto&) {
      for (const LoopStep& s : reader.body.steps)
        if (s.kind == LoopStep::Kind::Read && s.source == *value &&
            has_loaded_coordinates(reader.body))
          refusal = Refusal{&codes::kComputedAddress,
                            fmt::format("a task that reads %{} computes addresses", step.value),
                            "leave it as it is"};
    });
  return refusal;
}

LoopTree take(LoopTree tree, const DrawStep& step) {
  const size_t value = find_value(tree, step.value).value();
  LoopTask& task = task_at(tree, maker_of(tree, value));
  const Drawn drawn = find_drawn(tree, task).value();
  const LoopBody with = task.body;
  const DType old = tree.values[value].dtype;
  // What stays is summed, with the same conversions. The sum is not rounded before it is read.
  LoopBody& body = task.body;
  const auto stay = [&](uint32_t number) {
    return convert_to(body, number, with.steps[drawn.path.back()].dtype);
  };
  uint32_t made = stay(drawn.stays);
  for (size_t i = drawn.path.size() - 1; i-- > 0;) {
    LoopStep row = with.steps[drawn.path[i]];
    *std::ranges::find(row.arguments, drawn.path[i + 1]) = made;
    body.steps.push_back(std::move(row));
    made = static_cast<uint32_t>(body.steps.size() - 1);
  }
  body.results[drawn.result] = made;
  remove_dead_steps(body);
  const DType sum = finds_extreme(task) ? old : compute_type(old);
  tree.values[value].dtype = sum;
  const auto& axes = tree.values[value].axes;
  for (LoopRegion& phase : tree.phases)
    change_tasks(phase, [&](LoopTask& reader) {
      LoopBody changed;
      std::vector<uint32_t> number;
      for (const LoopStep& s : reader.body.steps) {
        LoopStep own = s;
        for (uint32_t& argument : own.arguments) argument = number[argument];
        const bool reads = s.kind == LoopStep::Kind::Read && s.source == value;
        if (reads) own.dtype = sum;
        changed.steps.push_back(own);
        number.push_back(static_cast<uint32_t>(changed.steps.size() - 1));
        if (!reads) continue;
        std::unordered_map<std::string, Expr> at;
        for (size_t i = 0; i < axes.size(); ++i)
          at.insert_or_assign(tree.axes[axes[i]].name, s.at[i]);
        const uint32_t other = convert_to(changed, copy_step(with, drawn.leaves, changed, at), sum);
        changed.steps.push_back(
            {.dtype = sum, .op = drawn.op, .arguments = {number.back(), other}});
        number.back() = convert_to(changed, static_cast<uint32_t>(changed.steps.size() - 1), old);
      }
      for (const uint32_t result : reader.body.results) changed.results.push_back(number[result]);
      reader.body = std::move(changed);
    });
  return tree;
}

// --- skip ---------------------------------------------------------------------------------------

namespace {

// The value of a body where the condition is false: a known number, or anything.
struct Known {
  enum class Kind : uint8_t { Anything, Number } kind = Kind::Anything;
  double number = 0;
};

class WhereFalse {
 public:
  WhereFalse(const LoopTree& tree, const IndexComparison& condition)
      : tree_(tree), condition_(condition) {}

  /// Visits all tasks of the loop in order, and finds a reason why one of them would change
  /// something.
  std::optional<Refusal> run(const Loop& loop) {
    std::optional<Refusal> out;
    for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
      const auto changes = [&](std::string why) {
        if (!out)
          out =
              Refusal{&codes::kIsState,
                      fmt::format("if the condition is false, `{}` {}", to_text(tree_, task), why),
                      "leave this step out, so that all turns are taken"};
      };
      const bool carried =
          std::ranges::any_of(task.over, [&](size_t axis) { return runs_over(loop, axis); });
      if (!task.makes_value()) return changes("stores");
      if (task.kind == LoopTask::Kind::Compute)
        values_[task.target] = step(task.body, task.body.results[0]);
      if (!carried) return;
      if (task.kind == LoopTask::Kind::Dot) {
        const bool none = std::ranges::any_of(task.body.results, [&](uint32_t result) {
          const Known factor = step(task.body, result);
          return factor.kind == Known::Kind::Number && factor.number == 0;
        });
        if (!none) changes("has no factor that is 0");
      } else if (task.kind == LoopTask::Kind::Fold) {
        const Known body = step(task.body, task.body.results[0]);
        const DType dtype = body_dtype(task);
        const double identity = bits_to_double(dtype, info(task.monoid).identity(dtype));
        if (body.kind != Known::Kind::Number || body.number != identity)
          return changes("combines a value that is not known to be the monoid's identity");
        if (task.monoid == Monoid::Max || task.monoid == Monoid::Min) running_.insert(task.target);
      } else {
        changes("is not a fold or a dot");
      }
    });
    return out;
  }

 private:
  Known step(const LoopBody& body, uint32_t number) const {
    const LoopStep& s = body.steps[number];
    const auto argument = [&](size_t i) { return step(body, s.arguments[i]); };
    const auto known = [](double x) { return Known{Known::Kind::Number, x}; };
    if (s.kind == LoopStep::Kind::Constant && is_floating(s.dtype))
      return known(bits_to_double(s.dtype, s.bits));
    if (s.kind == LoopStep::Kind::Read) {
      const auto found = values_.find(s.source);
      return found == values_.end() ? Known{} : found->second;
    }
    if (s.kind != LoopStep::Kind::Apply) return {};
    switch (s.op) {
      case ElementwiseOp::select: {
        if (is_false(body, s.arguments[0])) return argument(2);
        const Known a = argument(1), b = argument(2);
        return a.kind == b.kind && a.number == b.number ? a : Known{};
      }
      case ElementwiseOp::convert:
      case ElementwiseOp::neg: {
        Known x = argument(0);
        if (!is_floating(s.dtype)) return {};
        if (s.op == ElementwiseOp::neg) x.number = -x.number;
        return x;
      }
      case ElementwiseOp::sub:
      case ElementwiseOp::add: {
        // -inf minus a finite extreme is -inf. (Bodies use 0 in place of the identity of a running
        // extreme.) If the extreme is NaN, the value that made it NaN makes the sum NaN too.
        const Known a = argument(0), b = argument(1);
        if (s.op == ElementwiseOp::sub && is_infinite(a) && a.number < 0 &&
            is_extreme(body, s.arguments[1]))
          return a;
        if (a.kind == Known::Kind::Number && b.kind == Known::Kind::Number)
          return known(s.op == ElementwiseOp::add ? a.number + b.number : a.number - b.number);
        return {};
      }
      case ElementwiseOp::fma: {
        // -inf * positive - extreme
        const Known a = argument(0), b = argument(1);
        const LoopStep& last = body.steps[s.arguments[2]];
        const bool extreme = last.kind == LoopStep::Kind::Apply && last.op == ElementwiseOp::neg &&
                             is_extreme(body, last.arguments[0]);
        if (extreme && is_infinite(a) && a.number < 0 && b.kind == Known::Kind::Number &&
            b.number > 0)
          return a;
        return {};
      }
      case ElementwiseOp::mul: {
        // 0 times anything counts as 0, because terms of sums are finite, as the factors of a dot
        // are.
        const Known a = argument(0), b = argument(1);
        if (a.kind == Known::Kind::Number && b.kind == Known::Kind::Number)
          return known(a.number * b.number);
        return is_zero(a) || is_zero(b) ? known(0) : Known{};
      }
      case ElementwiseOp::div:
        return is_zero(argument(0)) ? known(0) : Known{};
      case ElementwiseOp::exp:
      case ElementwiseOp::exp2:
      case ElementwiseOp::approx_exp2: {
        const Known x = argument(0);
        return is_infinite(x) && x.number < 0 ? known(0) : Known{};
      }
      default:
        return {};
    }
  }

  static bool is_zero(const Known& x) { return x.kind == Known::Kind::Number && x.number == 0; }
  static bool is_infinite(const Known& x) {
    return x.kind == Known::Kind::Number && std::isinf(x.number);
  }
  // Whether this is a running extreme or a finite one from memory, or a positive multiple of
  // either.
  bool is_extreme(const LoopBody& body, uint32_t number) const {
    const LoopStep& s = body.steps[number];
    if (s.kind == LoopStep::Kind::Load) return tree_.tensors[s.source].finite;
    if (s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::mul)
      return std::ranges::all_of(s.arguments, [&](uint32_t argument) {
        const LoopStep& factor = body.steps[argument];
        return is_extreme(body, argument) || (factor.kind == LoopStep::Kind::Constant &&
                                              bits_to_double(factor.dtype, factor.bits) > 0);
      });
    return s.kind == LoopStep::Kind::Read && running_.contains(s.source);
  }

  // Whether a condition cannot hold where the condition of the step does not hold.
  bool is_false(const LoopBody& body, uint32_t number) const {
    const LoopStep& s = body.steps[number];
    if (s.kind != LoopStep::Kind::Apply) return false;
    if (s.op == ElementwiseOp::logical_and)
      return is_false(body, s.arguments[0]) || is_false(body, s.arguments[1]);
    const auto same = comparison_of_indices(body, s);
    return same && *same == condition_;
  }

  const LoopTree& tree_;
  const IndexComparison& condition_;
  std::map<size_t, Known> values_;
  std::set<size_t> running_;
};

// The bounds of the loop within which a condition `axis <= limit` or `axis >= limit` may hold.
struct Limits {
  std::optional<Expr> low, high;
};

std::optional<Limits> limits_of(const LoopTree& tree, const IndexComparison& condition,
                                size_t axis) {
  using Kind = IndexComparison::Kind;
  if (condition.kind == Kind::Eq || condition.kind == Kind::Ne) return std::nullopt;
  const bool less = condition.kind == Kind::Lt || condition.kind == Kind::Le;
  const bool strict = condition.kind == Kind::Lt || condition.kind == Kind::Gt;
  // The condition is `above <= 0`.
  Expr above = less ? condition.left - condition.right : condition.right - condition.left;
  if (strict) above = above + 1;
  const std::string& name = tree.axes[axis].name;
  const auto slope = above.coefficient_of(name);
  if (!slope || !(slope->is_constant(1) || slope->is_constant(-1))) return std::nullopt;
  const bool up = slope->is_constant(1);
  Expr rest = above.substitute(name, 0);  // axis <= -rest, or axis >= rest
  // Bounds must be the widest over the turns of other axes.
  for (size_t other = 0; other < tree.axes.size(); ++other) {
    const std::string& symbol = tree.axes[other].name;
    if (!rest.uses(symbol)) continue;
    const auto by = rest.coefficient_of(symbol);
    if (!by || !by->as_constant()) return std::nullopt;
    // In a turn, `rest` is least at the end of the axis.
    if (*by->as_constant() < 0) rest = rest.substitute(symbol, end_symbol(tree.axes[other]) - 1);
  }
  if (up) return Limits{{}, 1 - rest};
  return Limits{rest, {}};
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

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const SkipStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = marked(tree, loop)) return refusal;
  const auto condition = with_axes(tree, step.condition);
  if (!condition)
    return Refusal{&codes::kNoSuchName, "the condition uses a name that is not an axis or a size",
                   "use the names of axes and sizes of the tree"};
  if (loop.levels.size() != 1 || loop.parallel)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("`{}` is not a stream over one axis", to_text(tree, loop)),
                   "name a stream"};
  const auto limits = limits_of(tree, *condition, loop.levels[0].axis);
  if (!limits)
    return Refusal{&codes::kNotAffine,
                   fmt::format("the condition does not bound {} by a sum of other indices",
                               tree.axes[loop.levels[0].axis].name),
                   "compare sums of indices"};
  // Bounds may use only the axes of the loops around.
  const auto around = loops_around(tree, *place);
  for (size_t axis = 0; axis < tree.axes.size(); ++axis)
    for (const auto* e : {&limits->low, &limits->high})
      if (*e &&
          ((*e)->uses(tree.axes[axis].name) ||
           (*e)->uses(end_symbol(tree.axes[axis]).symbol_name())) &&
          !is_cut(around, axis))
        return Refusal{&codes::kBoundsDepend,
                       fmt::format("no loop around runs over {}", tree.axes[axis].name),
                       "split that axis first"};
  return WhereFalse(tree, *condition).run(loop);
}

LoopTree take(LoopTree tree, const SkipStep& step) {
  Loop& loop = loop_at(tree, find_loop(tree, step.loop).value());
  const size_t axis = loop.levels[0].axis;
  const auto condition = with_axes(tree, step.condition).value();
  const Limits limits = limits_of(tree, condition, axis).value();
  auto bounds = loop.bounds.value_or(std::pair(Expr(0), tree.axes[axis].extent));
  if (limits.low)
    bounds.first =
        bounds.first.is_constant(0) ? max(0, *limits.low) : max(bounds.first, *limits.low);
  if (limits.high) bounds.second = *limits.high;
  loop.bounds = bounds;
  return tree;
}

}  // namespace braze
