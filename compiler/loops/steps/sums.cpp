#include "compiler/loops/steps/sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

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

// For each step: whether its value may differ along the axes.
std::vector<bool> varying_steps(const LoopTree& tree, const LoopBody& body,
                                const std::vector<size_t>& axes) {
  const auto uses = [&](const Expr& e) {
    for (const std::string& symbol : e.symbols())
      if (loaded_step(symbol)) return true;
    return std::ranges::any_of(axes, [&](size_t axis) { return e.uses(tree.axes[axis].name); });
  };
  std::vector<bool> varies;
  for (const LoopStep& s : body.steps) {
    bool own = false;
    for_each_expr(s, [&](const Expr& e) { own = own || uses(e); });
    for (const uint32_t argument : s.arguments) own = own || varies[argument];
    varies.push_back(own);
  }
  return varies;
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
  const std::vector<bool> stays = varying_steps(tree, body, task.over);
  for (size_t result = 0; result < body.results.size(); ++result) {
    Drawn out{result, {body.results[result]}, 0, 0, ElementwiseOp::mul};
    const LoopStep& first = body.steps[out.path[0]];
    if (first.kind == LoopStep::Kind::Apply && first.op == ElementwiseOp::convert &&
        is_floating(body.steps[first.arguments[0]].dtype))
      out.path.push_back(first.arguments[0]);
    std::set<uint32_t> tried;  // factors of several products
    const std::function<bool()> find = [&] {
      const LoopStep& s = body.steps[out.path.back()];
      if (s.kind != LoopStep::Kind::Apply || !is_floating(s.dtype)) return false;
      const bool divides = s.op == ElementwiseOp::div;
      if (s.op != ElementwiseOp::mul && s.op != ElementwiseOp::neg && !divides) return false;
      for (const size_t leaving : {1, 0}) {
        if (s.arguments.size() < 2 || (leaving == 0 && divides)) continue;
        if (stays[s.arguments[leaving]] || !stays[s.arguments[1 - leaving]]) continue;
        out.leaves = s.arguments[leaving];
        out.stays = s.arguments[1 - leaving];
        out.op = s.op;
        return true;
      }
      // A 16-bit product is rounded; without this operand, it would be rounded otherwise.
      if (is_half(s.dtype)) return false;
      for (size_t i = 0; i < (divides ? 1 : s.arguments.size()); ++i) {
        if (!tried.insert(s.arguments[i]).second) continue;
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
  ByStep<uint32_t> copies;
  const std::function<uint32_t(uint32_t)> copy = [&](uint32_t n) {
    return copies(from.steps[n], [&] {
      LoopStep s = from.steps[n];
      for (uint32_t& argument : s.arguments) argument = copy(argument);
      for_each_expr(s, [&](Expr& e) { e = e.substitute(at); });
      return push(to, std::move(s));
    });
  };
  return copy(number);
}

uint32_t convert_to(LoopBody& body, uint32_t number, DType dtype) {
  if (body.steps[number].dtype == dtype) return number;
  return push(body, {.dtype = dtype, .op = ElementwiseOp::convert, .arguments = {number}});
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
  for_each_task(tree, [&](const LoopTask& reader, const auto&) {
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
    made = push(body, std::move(row));
  }
  body.results[drawn.result] = made;
  remove_dead_steps(body);
  task.unrounded = task.unrounded && sums_products(task);
  const DType sum = finds_extreme(task) ? old : compute_type(old);
  tree.values[value].dtype = sum;
  const auto& axes = tree.values[value].axes;
  change_tasks(tree, [&](LoopTask& reader) {
    LoopBody changed;
    std::vector<uint32_t> number;
    for (const LoopStep& s : reader.body.steps) {
      LoopStep own = s;
      for (uint32_t& argument : own.arguments) argument = number[argument];
      const bool reads = s.kind == LoopStep::Kind::Read && s.source == value;
      if (reads) own.dtype = sum;
      number.push_back(push(changed, std::move(own)));
      if (!reads) continue;
      std::unordered_map<std::string, Expr> at;
      for (size_t i = 0; i < axes.size(); ++i)
        at.insert_or_assign(tree.axes[axes[i]].name, s.at[i]);
      const uint32_t other = convert_to(changed, copy_step(with, drawn.leaves, changed, at), sum);
      const uint32_t both =
          push(changed, {.dtype = sum, .op = drawn.op, .arguments = {number.back(), other}});
      number.back() = convert_to(changed, both, old);
    }
    for (const uint32_t result : reader.body.results) changed.results.push_back(number[result]);
    reader.body = std::move(changed);
  });
  return tree;
}

}  // namespace braze
