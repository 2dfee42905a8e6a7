#include "compiler/loops/steps/skips.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <variant>

#include "compiler/loops/steps/ranges.h"
#include "compiler/loops/text.h"
#include "ir/code/comparisons.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

// --- skip ---------------------------------------------------------------------------------------

namespace {

// The value of a body where the condition is false: a known number, or anything.
struct Known {
  enum class Kind : uint8_t { Anything, Number } kind = Kind::Anything;
  double number = 0;
};

class WhereFalse {
 public:
  WhereFalse(const LoopTree& tree, IsCondition is_condition)
      : tree_(tree), is_condition_(std::move(is_condition)) {}

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
      const bool carried = runs_over_any(loop, task.over);
      if (!task.makes_value()) return changes("stores");
      if (!carried && is_read_outside(loop, task.target))
        return changes("is read outside of the loop");
      if (task.kind == LoopTask::Kind::Compute)
        values_[task.target] = result_of(task.body, task.body.results[0]);
      if (!carried) return;
      if (task.kind == LoopTask::Kind::Dot) {
        const bool none = std::ranges::any_of(task.body.results, [&](uint32_t result) {
          const Known factor = result_of(task.body, result);
          return factor.kind == Known::Kind::Number && factor.number == 0;
        });
        if (!none) changes("has no factor that is 0");
      } else if (task.kind == LoopTask::Kind::Fold) {
        const Known body = result_of(task.body, task.body.results[0]);
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
  bool is_read_outside(const Loop& loop, size_t value) const {
    return reads_of(tree_, value) > reads_of(loop.body, value);
  }

  // What the result of a body is, of values that are known by now.
  Known result_of(const LoopBody& body, uint32_t result) {
    known_.clear();
    for (ByStep<bool>* said : {&extreme_, &finite_, &false_}) said->clear();
    return step(body, result);
  }
  Known step(const LoopBody& body, uint32_t number) {
    return known_(body.steps[number], [&] { return find_step(body, number); });
  }
  Known find_step(const LoopBody& body, uint32_t number) {
    const LoopStep& s = body.steps[number];
    const auto argument = [&](size_t i) { return step(body, s.arguments[i]); };
    const auto known = [](double x) { return Known{Known::Kind::Number, x}; };
    if (s.kind == LoopStep::Kind::Constant) {
      // Not every integer of 64 bits is a double.
      constexpr int64_t kExact = int64_t{1} << 53;
      const int64_t integer = is_integer(s.dtype) ? bits_to_int(s.dtype, s.bits) : 0;
      if (integer < -kExact || integer > kExact) return {};
      return known(bits_to_double(s.dtype, s.bits));
    }
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
        if (is_floating(s.dtype) && a.kind == Known::Kind::Number && b.kind == Known::Kind::Number)
          return known(s.op == ElementwiseOp::add ? a.number + b.number : a.number - b.number);
        if (s.op == ElementwiseOp::add)
          for (size_t i = 0; i < 2; ++i)
            if (const Known x = argument(i); is_infinite(x) && is_finite(body, s.arguments[1 - i]))
              return x;
        return {};
      }
      case ElementwiseOp::fma: {
        // -inf * positive - extreme, or finite * finite - inf
        const Known a = argument(0), b = argument(1);
        if (const Known c = argument(2);
            is_infinite(c) && is_finite(body, s.arguments[0]) && is_finite(body, s.arguments[1]))
          return c;
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
        if (is_floating(s.dtype) && a.kind == Known::Kind::Number && b.kind == Known::Kind::Number)
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
  bool is_extreme(const LoopBody& body, uint32_t number) {
    return extreme_(body.steps[number], [&] { return find_extreme(body, number); });
  }
  bool find_extreme(const LoopBody& body, uint32_t number) {
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

  // Whether this is finite, because the sums of dots are: constants, dots, and what is made of them
  // by rows that keep small numbers finite.
  bool is_finite(const LoopBody& body, uint32_t number) {
    return finite_(body.steps[number], [&] { return find_finite(body, number); });
  }
  bool find_finite(const LoopBody& body, uint32_t number) {
    const LoopStep& s = body.steps[number];
    switch (s.kind) {
      case LoopStep::Kind::Constant:
        return std::isfinite(bits_to_double(s.dtype, s.bits));
      case LoopStep::Kind::Index:
        return true;
      case LoopStep::Kind::Load:
        return tree_.tensors[s.source].finite;
      case LoopStep::Kind::Read:
        return task_at(tree_, maker_of(tree_, s.source)).kind == LoopTask::Kind::Dot;
      case LoopStep::Kind::Inside:
        return false;
      case LoopStep::Kind::Apply:
        break;
    }
    constexpr ElementwiseOp kRows[] = {
        ElementwiseOp::add, ElementwiseOp::sub,  ElementwiseOp::mul,    ElementwiseOp::fma,
        ElementwiseOp::neg, ElementwiseOp::tanh, ElementwiseOp::convert};
    return std::ranges::find(kRows, s.op) != std::end(kRows) &&
           std::ranges::all_of(s.arguments,
                               [&](uint32_t argument) { return is_finite(body, argument); });
  }

  // Whether a condition cannot hold where the condition of the step does not hold.
  bool is_false(const LoopBody& body, uint32_t number) {
    return false_(body.steps[number], [&] { return find_false(body, number); });
  }
  bool find_false(const LoopBody& body, uint32_t number) {
    const LoopStep& s = body.steps[number];
    if (is_condition_(body, s)) return true;
    return s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::logical_and &&
           s.dtype == DType::Bool &&
           (is_false(body, s.arguments[0]) || is_false(body, s.arguments[1]));
  }

  const LoopTree& tree_;
  IsCondition is_condition_;
  std::map<size_t, Known> values_;
  std::set<size_t> running_;
  // Of the body at hand.
  ByStep<Known> known_;
  ByStep<bool> extreme_, finite_, false_;
};

}  // namespace

std::optional<Refusal> changes_where_false(const LoopTree& tree, const Loop& loop,
                                           const IsCondition& is_condition) {
  return WhereFalse(tree, is_condition).run(loop);
}

namespace {

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

// Bounds may use only the axes of the loops around.
std::optional<Refusal> uses_other_axes(const LoopTree& tree, const Limits& limits,
                                       const std::vector<const Loop*>& around) {
  for (size_t axis = 0; axis < tree.axes.size(); ++axis)
    for (const auto* e : {&limits.low, &limits.high})
      if (*e &&
          ((*e)->uses(tree.axes[axis].name) ||
           (*e)->uses(end_symbol(tree.axes[axis]).symbol_name())) &&
          !is_cut(around, axis))
        return Refusal{&codes::kBoundsDepend,
                       fmt::format("no loop around runs over {}", tree.axes[axis].name),
                       "split that axis first"};
  return std::nullopt;
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
  if (auto refusal = uses_other_axes(tree, *limits, loops_around(tree, *place))) return refusal;
  return changes_where_false(tree, loop, [&](const LoopBody& body, const LoopStep& s) {
    const auto same = comparison_of_indices(body, s);
    return same && *same == *condition;
  });
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

// --- limit --------------------------------------------------------------------------------------

namespace {

// A comparison of the loop's index with an integer that is loaded where the loop begins.
struct LoadedBound {
  LoopBody limit;             // the integer
  IndexComparison condition;  // over indices and the symbol of the limit
};

class LoadedBounds {
 public:
  LoadedBounds(const LoopTree& tree, const Loop& loop, std::vector<const Loop*> around)
      : tree_(tree), axis_(tree.axes[loop.levels[0].axis]), around_(std::move(around)) {}

  /// The comparison that a step makes, if it bounds the loop. `why` says why a comparison with
  /// something that is no index does not.
  std::optional<LoadedBound> find(const LoopBody& body, const LoopStep& s,
                                  std::string* why = nullptr) const {
    if (s.kind != LoopStep::Kind::Apply || comparison_of_indices(body, s)) return std::nullopt;
    const ComparisonRow* row = comparison_row(s.op);
    if (!row || s.op == ElementwiseOp::eq || s.op == ElementwiseOp::ne) return std::nullopt;
    for (const bool swapped : {false, true}) {
      const LoopStep& index = body.steps[s.arguments[swapped ? 1 : 0]];
      if (index.kind != LoopStep::Kind::Index || !index.at[0].uses(axis_.name)) continue;
      const ComparisonRow& from_index = swapped ? *comparison_row(row->swapped) : *row;
      return bound(body, index, from_index.kind, s.arguments[swapped ? 0 : 1], why);
    }
    return std::nullopt;
  }

 private:
  std::optional<LoadedBound> bound(const LoopBody& body, const LoopStep& index,
                                   IndexComparison::Kind kind, uint32_t number,
                                   std::string* why) const {
    using Kind = IndexComparison::Kind;
    const auto fail = [&](std::string reason) -> std::optional<LoadedBound> {
      if (why) *why = std::move(reason);
      return std::nullopt;
    };
    const auto slope = index.at[0].coefficient_of(axis_.name);
    if (!slope || !(slope->is_constant(1) || slope->is_constant(-1)))
      return fail(
          fmt::format("the index that is compared does not grow with {} by one", axis_.name));
    // u64 has numbers that are no indices.
    if (index.dtype == DType::U64 || !holds(index.dtype, index.at[0]))
      return fail(
          fmt::format("{} does not hold all indices that are compared, or i64 not all of "
                      "its numbers",
                      name(index.dtype)));
    // What is added to the loaded integer may wrap around in the dtype of the comparison, but not
    // in the bound. It leaves the integer only where more comparisons would then hold, not fewer.
    const bool is_less = kind == Kind::Lt || kind == Kind::Le;
    Expr rest = 0;
    uint32_t loaded = number;
    for (;;) {
      const LoopStep& s = body.steps[loaded];
      const bool adds = s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::add;
      const bool subtracts = s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::sub;
      if (!adds && !subtracts) break;
      std::optional<Expr> added = as_index(body, s.arguments[1]);
      uint32_t other = s.arguments[0];
      if (!added && adds) {
        added = as_index(body, s.arguments[0]);
        other = s.arguments[1];
      }
      if (!added) break;
      if (subtracts) added = 0 - *added;
      const Interval range = added->range();
      const bool is_wider = is_less ? range.min >= 0 : range.max <= 0;
      if (!is_wider || !kLimits.contains(range.min) || !kLimits.contains(range.max)) break;
      rest += *added;
      loaded = other;
    }
    std::string reason;
    if (!is_fixed(body, loaded, reason)) return fail(std::move(reason));
    return LoadedBound{part_of(body, loaded), {index.at[0], kind, limit_symbol(axis_) + rest}};
  }

  // An integer that is made of indices and constants, and does not wrap around.
  static std::optional<Expr> as_index(const LoopBody& body, uint32_t number) {
    std::vector<std::optional<Expr>> known;
    for (const LoopStep& s : part_of(body, number).steps) {
      std::optional<Expr> out;
      if (s.kind == LoopStep::Kind::Index) out = s.at[0];
      if (s.kind == LoopStep::Kind::Constant && is_integer(s.dtype))
        out = Expr(bits_to_int(s.dtype, s.bits));
      if (s.kind == LoopStep::Kind::Apply &&
          (s.op == ElementwiseOp::add || s.op == ElementwiseOp::sub)) {
        const auto &a = known[s.arguments[0]], &b = known[s.arguments[1]];
        if (a && b) out = s.op == ElementwiseOp::add ? *a + *b : *a - *b;
      }
      const bool is_index = is_integer(s.dtype) && s.dtype != DType::U64;
      known.push_back(is_index && out && holds(s.dtype, *out) ? out : std::nullopt);
    }
    return known.back();
  }
  // Whether the dtype has all values of an index.
  static bool holds(DType dtype, const Expr& e) {
    const Interval own = int_range(dtype), range = e.range();
    return own.contains(range.min) && own.contains(range.max);
  }
  static Interval int_range(DType dtype) {
    const int bits = static_cast<int>(size_of(dtype)) * 8;
    if (bits == 64) return kLimits;  // no sum of two of these numbers overflows
    if (is_unsigned_integer(dtype)) return {0, (int64_t{1} << bits) - 1};
    return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
  }

  // Whether a step has one value for all that the loop does, which can be loaded before.
  bool is_fixed(const LoopBody& body, uint32_t number, std::string& why) const {
    return std::ranges::all_of(part_of(body, number).steps,
                               [&](const LoopStep& s) { return is_fixed(s, why); });
  }
  bool is_fixed(const LoopStep& s, std::string& why) const {
    if (s.kind == LoopStep::Kind::Read) {
      why = fmt::format("%{} is computed in this kernel, not loaded", tree_.values[s.source].name);
      return false;
    }
    if (s.kind == LoopStep::Kind::Load && tree_.tensors[s.source].mode != Mode::In) {
      why = fmt::format("the kernel also writes {}", tree_.tensors[s.source].name);
      return false;
    }
    bool out = true;
    for_each_expr(s, [&](const Expr& e) {
      for (const std::string& symbol : e.symbols()) {
        if (loaded_step(symbol)) {
          why = "the integer is loaded at an index that is loaded";
          out = false;
        }
        const auto axis = find_axis(tree_, symbol);
        if (!axis || extent_in(tree_, around_, *axis).is_constant(1)) continue;
        why = fmt::format("the integer differs along {}, of which a turn takes several indices",
                          symbol);
        out = false;
      }
    });
    return out;
  }

  const LoopTree& tree_;
  const LoopAxis& axis_;
  std::vector<const Loop*> around_;
};

// A limit for the loop, and what it bounds; or a reason why there is none.
struct FoundLimit {
  LoopBody limit;
  std::vector<Limits> bounds;
};
std::variant<FoundLimit, Refusal> find_limit(const LoopTree& tree, const ItemPlace& place) {
  const Loop& loop = loop_at(tree, place);
  const auto around = loops_around(tree, place);
  const LoadedBounds bounds(tree, loop, around);
  FoundLimit out;
  std::optional<Refusal> refusal;
  const auto refuse = [&](const Code& code, std::string why) {
    if (!refusal)
      refusal = Refusal{&code, std::move(why), "leave this step out, so that all turns are taken"};
  };
  const auto add = [&](const LoopBody& body, const LoopStep& s) {
    std::string why;
    const auto found = bounds.find(body, s, &why);
    if (!why.empty()) refuse(codes::kNotAffine, std::move(why));
    if (!found || (!out.bounds.empty() && out.limit != found->limit)) return;
    const auto limits = limits_of(tree, found->condition, loop.levels[0].axis);
    if (!limits)
      return refuse(codes::kNotAffine,
                    fmt::format("the comparison does not bound {} by a sum of other indices",
                                tree.axes[loop.levels[0].axis].name));
    const auto is_found = [&](const LoopBody& other, const LoopStep& step) {
      const auto same = bounds.find(other, step);
      return same && same->condition == found->condition && same->limit == found->limit;
    };
    auto changes = uses_other_axes(tree, *limits, around);
    if (!changes) changes = changes_where_false(tree, loop, is_found);
    if (changes) return refuse(*changes->code, changes->why);
    const auto known = [&](const Limits& other) {
      return other.low == limits->low && other.high == limits->high;
    };
    if (std::ranges::none_of(out.bounds, known)) out.bounds.push_back(*limits);
    out.limit = found->limit;
  };
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    for (const LoopStep& s : task.body.steps) add(task.body, s);
  });
  if (!out.bounds.empty()) return out;
  refuse(codes::kNoLimit,
         fmt::format("no task compares the index of {} with an integer that is loaded",
                     tree.axes[loop.levels[0].axis].name));
  return *refusal;
}

}  // namespace

std::optional<Refusal> refuse_loaded_limit(const LoopTree& tree, const LimitStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = marked(tree, loop)) return refusal;
  if (loop.levels.size() != 1 || loop.parallel)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("`{}` is not a stream over one axis", to_text(tree, loop)),
                   "name a stream"};
  const auto found = find_limit(tree, *place);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  return std::nullopt;
}

std::optional<Refusal> legal(const LoopTree& tree, const LimitStep& step) {
  auto refusal = refuse_loaded_limit(tree, step);
  if (!refusal) return std::nullopt;
  if (refusal->code == &codes::kNoSuchName || refusal->code == &codes::kKindsDiffer) return refusal;
  const ItemPlace place = find_loop(tree, step.loop).value();
  // Conditions that cut the loop do not matter here.
  Loop head = loop_at(tree, place);
  head.parts.clear();
  if (marked(tree, head, /*limit_allowed=*/true)) return refusal;
  auto refused = refuse_range(tree, place);
  if (!refused) return std::nullopt;
  const bool says_more = refusal->code == &codes::kNoLimit && refused->code != &codes::kNoRange;
  return says_more ? refused : refusal;
}

LoopTree take(LoopTree tree, const LimitStep& step) {
  const ItemPlace place = find_loop(tree, step.loop).value();
  if (refuse_loaded_limit(tree, step)) return find_range(tree, place);
  auto found = std::get<FoundLimit>(find_limit(tree, place));
  Loop& loop = loop_at(tree, place);
  const Expr end = tree.axes[loop.levels[0].axis].extent;
  auto bounds = loop.bounds.value_or(std::pair(Expr(0), end));
  for (const Limits& limits : found.bounds) {
    if (limits.low)
      bounds.first =
          bounds.first.is_constant(0) ? max(0, *limits.low) : max(bounds.first, *limits.low);
    if (limits.high)
      bounds.second = bounds.second == end ? *limits.high : min(bounds.second, *limits.high);
  }
  // One turn changes nothing either, and a loop that surely has a turn has a first one.
  if (bounds.first.is_constant(0)) bounds.second = max(1, bounds.second);
  loop.bounds = std::move(bounds);
  loop.limit = std::move(found.limit);
  return tree;
}

}  // namespace braze
