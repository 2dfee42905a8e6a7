#include "compiler/loops/steps/means.h"

#include <algorithm>
#include <map>

#include "compiler/loops/steps/places.h"
#include "ir/ops/scalar.h"

namespace braze {

namespace {

// Appends steps to a body, where equal ones are one.
class Body {
 public:
  explicit Body(DType dtype) : dtype_(dtype) {}

  uint32_t push(LoopStep step) {
    auto& steps = body.steps;
    const auto same = std::find(steps.begin(), steps.end(), step);
    const auto number = static_cast<uint32_t>(same - steps.begin());
    if (same == steps.end()) steps.push_back(std::move(step));
    return number;
  }
  uint32_t apply(ElementwiseOp op, std::vector<uint32_t> arguments) {
    return push({.dtype = dtype_, .op = op, .arguments = std::move(arguments)});
  }
  uint32_t constant(double number) {
    return push(
        {.kind = LoopStep::Kind::Constant, .dtype = dtype_, .bits = constant_bits(dtype_, number)});
  }
  uint32_t times(uint32_t step, double factor) {
    return factor == 1 ? step : apply(ElementwiseOp::mul, {step, constant(factor)});
  }
  uint32_t read(const LoopTree& tree, size_t value, bool before) {
    LoopStep s{.kind = LoopStep::Kind::Read, .dtype = dtype_, .source = value, .before = before};
    for (const size_t axis : tree.values[value].axes) s.at.push_back(tree.axes[axis].index());
    return push(std::move(s));
  }
  // The mean of the terms so far: 0 if there are none.
  uint32_t mean(const LoopTree& tree, size_t sum, size_t count, bool before) {
    const uint32_t n = apply(ElementwiseOp::max, {read(tree, count, before), constant(1)});
    return apply(ElementwiseOp::mul,
                 {read(tree, sum, before), apply(ElementwiseOp::div, {constant(1), n})});
  }

  LoopBody body;

 private:
  DType dtype_;
};

bool is_widening(const LoopBody& body, const LoopStep& s) {
  return s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::convert &&
         is_half(body.steps[s.arguments[0]].dtype) && !is_half(s.dtype) && is_floating(s.dtype);
}

// Whether two expressions are the same, however wide the floats are that hold them.
bool same_expression(const LoopBody& a, uint32_t i, const LoopBody& b, uint32_t k) {
  if (is_widening(a, a.steps[i])) return same_expression(a, a.steps[i].arguments[0], b, k);
  if (is_widening(b, b.steps[k])) return same_expression(a, i, b, b.steps[k].arguments[0]);
  LoopStep x = a.steps[i], y = b.steps[k];
  const auto of_x = std::move(x.arguments), of_y = std::move(y.arguments);
  x.arguments = y.arguments = {};
  if (!(x == y) || of_x.size() != of_y.size()) return false;
  for (size_t n = 0; n < of_x.size(); ++n)
    if (!same_expression(a, of_x[n], b, of_y[n])) return false;
  return true;
}

// factor * rest, or the factor alone.
struct Product {
  double factor = 0;
  std::optional<uint32_t> rest = {};
};

// A body over the running mean, and its derivatives by it.
class Following {
 public:
  Following(const LoopTree& tree, const LoopTask& sum, const LoopTask& task, size_t count)
      : tree_(tree), sum_(sum), task_(task), count_(count), out_(body_dtype(task)) {}

  std::variant<FollowedMean, std::string> run() {
    if (has_loaded_coordinates(task_.body)) return "it computes addresses";
    const auto result = copy(task_.body.results[0]);
    if (!result) return "it reads the total otherwise than as the mean of all terms";
    if (!reads_distances()) return "it reads the mean otherwise than subtracted from a term of it";
    const auto first = derivative(*result);
    if (!first || first->factor == 0) return kNoPolynomial;
    FollowedMean out{.term = part_of(out_.body, *result), .by_mean = first->factor};
    if (!first->rest) return out;
    const auto second = derivative(*first->rest);
    if (!second || second->rest) return kNoPolynomial;
    out.slope = part_of(out_.body, *first->rest);
    out.slope_by_mean = second->factor;
    return out;
  }

 private:
  // If squares had weights, terms that count little could move the mean far, and what the others
  // were then would cancel later.
  static constexpr const char* kNoPolynomial =
      "its term is not linear in the mean, or a square that counts the same in all terms";

  // --- The body ---------------------------------------------------------------------------------

  bool is_total(uint32_t number) const {
    const LoopStep& s = task_.body.steps[number];
    return s.kind == LoopStep::Kind::Read && s.source == sum_.target && !s.before;
  }
  bool is_one(uint32_t number) const {
    const LoopStep& s = task_.body.steps[number];
    return s.kind == LoopStep::Kind::Constant && bits_to_double(s.dtype, s.bits) == 1;
  }
  // Whether a step is the number of terms, or its reciprocal.
  bool is_number(uint32_t number, bool reciprocal) const {
    const Expr count = count_of(tree_, task_.over);
    const LoopStep* s = &task_.body.steps[number];
    if (s->kind == LoopStep::Kind::Constant && count.as_constant()) {
      const auto n = static_cast<double>(*count.as_constant());
      return s->bits == constant_bits(s->dtype, reciprocal ? 1 / n : n);
    }
    if (reciprocal && s->kind == LoopStep::Kind::Apply && s->op == ElementwiseOp::div)
      return is_one(s->arguments[0]) && is_number(s->arguments[1], false);
    while (s->kind == LoopStep::Kind::Apply && s->op == ElementwiseOp::convert)
      s = &task_.body.steps[s->arguments[0]];
    return !reciprocal && s->kind == LoopStep::Kind::Index && s->at[0] == count;
  }
  bool is_mean(const LoopStep& s) const {
    if (s.kind != LoopStep::Kind::Apply) return false;
    if (s.op == ElementwiseOp::div)
      return is_total(s.arguments[0]) && is_number(s.arguments[1], false);
    if (s.op != ElementwiseOp::mul) return false;
    return (is_total(s.arguments[0]) && is_number(s.arguments[1], true)) ||
           (is_total(s.arguments[1]) && is_number(s.arguments[0], true));
  }

  std::optional<uint32_t> copy(uint32_t number) {
    if (const auto known = copied_.find(number); known != copied_.end()) return known->second;
    LoopStep s = task_.body.steps[number];
    if (is_total(number)) return std::nullopt;
    if (is_mean(s)) {
      mean_ = out_.mean(tree_, sum_.target, count_, /*before=*/false);
      return copied_[number] = *mean_;
    }
    for (uint32_t& argument : s.arguments) {
      const auto own = copy(argument);
      if (!own) return std::nullopt;
      argument = *own;
    }
    return copied_[number] = out_.push(std::move(s));
  }

  bool reads_mean(uint32_t number) const {
    if (!mean_) return false;
    return needed_steps({out_.body.steps, {number}})[*mean_];
  }
  // Every step that reads the mean itself subtracts it from a term, or the other way around.
  bool reads_distances() const {
    for (const auto& [from, number] : copied_) {
      const LoopStep& s = out_.body.steps[number];
      if (number == mean_ || std::ranges::count(s.arguments, *mean_) == 0) continue;
      if (s.op != ElementwiseOp::sub) return false;
      const uint32_t other = s.arguments[s.arguments[0] == *mean_ ? 1 : 0];
      if (!same_expression(out_.body, other, sum_.body, sum_.body.results[0])) return false;
    }
    return mean_ && copied_.at(task_.body.results[0]) != *mean_;
  }

  // --- Derivatives ------------------------------------------------------------------------------

  uint32_t step_of(const Product& product) {
    return product.rest ? out_.times(*product.rest, product.factor) : out_.constant(product.factor);
  }
  Product multiplied(Product product, uint32_t by) {
    if (product.factor == 0) return {};
    if (const LoopStep& s = out_.body.steps[by]; s.kind == LoopStep::Kind::Constant) {
      product.factor *= bits_to_double(s.dtype, s.bits);
      return product;
    }
    product.rest = product.rest ? out_.apply(ElementwiseOp::mul, {*product.rest, by}) : by;
    return product;
  }
  Product sum(const Product& a, const Product& b) {
    if (a.factor == 0) return b;
    if (b.factor == 0) return a;
    if (a.rest == b.rest) return {a.factor + b.factor, a.rest};
    return {1, out_.apply(ElementwiseOp::add, {step_of(a), step_of(b)})};
  }

  // By the mean; nullopt if it is none that the rules know.
  std::optional<Product> derivative(uint32_t number) {
    if (const auto known = derivatives_.find(number); known != derivatives_.end())
      return known->second;
    const auto out = find_derivative(number);
    return derivatives_[number] = out;
  }
  std::optional<Product> find_derivative(uint32_t number) {
    if (number == mean_) return Product{1};
    if (!reads_mean(number)) return Product{};
    const LoopStep s = out_.body.steps[number];
    if (s.kind != LoopStep::Kind::Apply || s.dtype != body_dtype(task_)) return std::nullopt;
    const auto of = [&](size_t i) { return derivative(s.arguments[i]); };
    const auto product = [&](size_t i, size_t k) -> std::optional<Product> {
      const auto a = of(i), b = of(k);
      if (!a || !b) return std::nullopt;
      return sum(multiplied(*a, s.arguments[k]), multiplied(*b, s.arguments[i]));
    };
    const auto scaled = [](std::optional<Product> out, double by) {
      if (out) out->factor *= by;
      return out;
    };
    const auto added = [&](const std::optional<Product>& a, const std::optional<Product>& b) {
      return a && b ? std::optional(sum(*a, *b)) : std::nullopt;
    };
    switch (s.op) {
      case ElementwiseOp::neg:
        return scaled(of(0), -1);
      case ElementwiseOp::add:
        return added(of(0), of(1));
      case ElementwiseOp::sub:
        return added(of(0), scaled(of(1), -1));
      case ElementwiseOp::mul:
        return product(0, 1);
      case ElementwiseOp::fma:
        return added(product(0, 1), of(2));
      case ElementwiseOp::div: {
        const auto out = of(0);
        if (!out || reads_mean(s.arguments[1])) return std::nullopt;
        const uint32_t rest = out->rest ? *out->rest : out_.constant(1);
        return Product{out->factor, out_.apply(ElementwiseOp::div, {rest, s.arguments[1]})};
      }
      case ElementwiseOp::select: {
        // Where it jumps, it has none; but then the condition reads the mean, and so does the rest,
        // of which the second derivative has a rest again, as no polynomial here may have.
        const auto a = of(1), b = of(2);
        if (!a || !b) return std::nullopt;
        return Product{
            1, out_.apply(ElementwiseOp::select, {s.arguments[0], step_of(*a), step_of(*b)})};
      }
      default:
        return std::nullopt;
    }
  }

  const LoopTree& tree_;
  const LoopTask &sum_, &task_;
  size_t count_;
  Body out_;
  std::optional<uint32_t> mean_;
  std::map<uint32_t, uint32_t> copied_;
  std::map<uint32_t, std::optional<Product>> derivatives_;
};

// The region of a loop that holds the task which makes a value, and its number there.
std::optional<std::pair<LoopRegion*, size_t>> find_maker(LoopRegion& region, size_t value) {
  for (size_t i = 0; i < region.size(); ++i) {
    if (auto* loop = std::get_if<Box<Loop>>(&region[i])) {
      if (const auto found = find_maker((*loop)->body, value)) return found;
    } else if (const auto& task = std::get<LoopTask>(region[i]);
               task.makes_value() && task.target == value) {
      return std::pair(&region, i);
    }
  }
  return std::nullopt;
}

}  // namespace

bool counts(const LoopTask& task) {
  if (task.kind != LoopTask::Kind::Fold || task.monoid != Monoid::Sum || task.rescale) return false;
  const LoopStep& s = task.body.steps[task.body.results[0]];
  return s.kind == LoopStep::Kind::Constant && bits_to_double(s.dtype, s.bits) == 1;
}

Expr count_of(const LoopTree& tree, const std::vector<size_t>& over) {
  Expr out = 1;
  for (const size_t axis : over) out *= tree.axes[axis].extent;
  return out;
}

std::variant<FollowedMean, std::string> follow_mean(const LoopTree& tree, const LoopTask& sum,
                                                    const LoopTask& task, size_t count) {
  return Following(tree, sum, task, count).run();
}

void make_follow(LoopTree& tree, Loop& loop, size_t value, size_t of) {
  const auto [region, at] = find_maker(loop.body, value).value();
  const auto [home, place] = find_maker(loop.body, of).value();
  LoopTask task = std::get<LoopTask>((*region)[at]);
  const DType dtype = body_dtype(task);
  std::vector<LoopTask> before;
  const auto add_sum = [&](const std::string& name, size_t like, LoopBody body) {
    LoopTask out;
    out.kind = LoopTask::Kind::Fold;
    out.target = tree.values.size();
    out.over = task.over;
    out.body = std::move(body);
    out.monoid = Monoid::Sum;
    out.location = task.location;
    tree.values.push_back(
        {.name = unused_value(tree, name), .dtype = dtype, .axes = tree.values[like].axes});
    before.push_back(std::move(out));
    return before.back().target;
  };
  size_t count = tree.values.size();
  for_each_task(loop.body, [&](const LoopTask& t, const auto&) {
    const bool alike = counts(t) && t.over == task.over && body_dtype(t) == dtype;
    if (alike && tree.values[t.target].axes == tree.values[of].axes) count = t.target;
  });
  if (count == tree.values.size()) {
    Body one(dtype);
    const uint32_t result = one.constant(1);
    add_sum(tree.values[of].name + "_count", of, part_of(std::move(one.body), result));
  }
  const LoopTask& sum = std::get<LoopTask>((*home)[place]);
  const auto mean = std::get<FollowedMean>(follow_mean(tree, sum, task, count));
  const size_t slope =
      mean.slope ? add_sum(tree.values[value].name + "_slope", value, *mean.slope) : count;

  // By how much the mean moved; the sums of derivatives are those before this turn.
  const auto shift = [&](const auto& by) {
    Body body(dtype);
    const uint32_t moved = body.apply(
        ElementwiseOp::sub, {body.mean(tree, of, count, false), body.mean(tree, of, count, true)});
    const uint32_t result = by(body, moved);
    return part_of(std::move(body.body), result);
  };
  const auto product = [](Body& body, uint32_t a, uint32_t b) {
    return body.apply(ElementwiseOp::mul, {a, b});
  };
  if (mean.slope && mean.slope_by_mean != 0) {
    before.back().rescale = shift([&](Body& body, uint32_t moved) {
      return product(body, body.times(moved, mean.slope_by_mean), body.read(tree, count, true));
    });
    before.back().shifts = true;
  }
  task.body = mean.term;
  task.shifts = true;
  task.rescale = shift([&](Body& body, uint32_t moved) {
    uint32_t rate = body.read(tree, slope, true);
    if (mean.slope && mean.slope_by_mean != 0)
      rate = body.apply(ElementwiseOp::fma, {body.times(moved, mean.slope_by_mean / 2),
                                             body.read(tree, count, true), rate});
    return product(body, body.times(moved, mean.by_mean), rate);
  });
  (*region)[at] = std::move(task);
  region->insert(region->begin() + static_cast<std::ptrdiff_t>(at),
                 std::make_move_iterator(before.begin()), std::make_move_iterator(before.end()));
}

}  // namespace braze
