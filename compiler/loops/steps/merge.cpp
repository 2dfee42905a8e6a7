#include "compiler/loops/steps/merge.h"

#include <algorithm>
#include <map>

#include "compiler/loops/steps/means.h"
#include "compiler/loops/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// --- Separability -------------------------------------------------------------------------------

// How an expression depends on a running value y: not at all, as a term `rest + sign * constants *
// g(y)`, or as a factor `rest * op(sign * constants * g(y))`.
struct Dependence {
  bool reads = false;
  bool negative = false;
  std::vector<uint64_t> constants = {};  // as bits of the dtype in which y is computed
  ElementwiseOp op = ElementwiseOp::exp;
  std::vector<LoopStep> of = {};  // g: its last step is the result, and it reads only y
  friend bool operator==(const Dependence&, const Dependence&) = default;
};

// Finds how the bodies of a loop depend on y. Nullopt if a body does not separate.
class Separation {
 public:
  Separation(const LoopTree& tree, size_t y, const std::map<size_t, const LoopTask*>& computed)
      : tree_(tree), y_(y), computed_(computed) {}

  bool reads(const LoopBody& body, uint32_t number) const {
    return reads_(body.steps[number], [&] { return find_reads(body, number); });
  }

  // How the expression depends on y as a factor of a product.
  std::optional<Dependence> factor(const LoopBody& body, uint32_t number) const {
    return factors_(body.steps[number], [&] { return find_factor(body, number); });
  }

 private:
  bool find_reads(const LoopBody& body, uint32_t number) const {
    const LoopStep& s = body.steps[number];
    if (s.kind == LoopStep::Kind::Read) {
      if (s.source == y_) return true;
      const auto maker = computed_.find(s.source);
      return maker != computed_.end() && reads(maker->second->body, maker->second->body.results[0]);
    }
    return std::any_of(s.arguments.begin(), s.arguments.end(),
                       [&](uint32_t argument) { return reads(body, argument); });
  }

  std::optional<Dependence> find_factor(const LoopBody& body, uint32_t number) const {
    if (!reads(body, number)) return Dependence{};
    const LoopStep& s = body.steps[number];
    if (const auto* maker = maker_of(s)) return factor(maker->body, maker->body.results[0]);
    if (s.kind != LoopStep::Kind::Apply) return std::nullopt;
    switch (s.op) {
      case ElementwiseOp::exp:
      case ElementwiseOp::exp2:
      case ElementwiseOp::approx_exp2: {
        auto out = term(body, s.arguments[0]);
        if (out) out->op = s.op;
        return out;
      }
      case ElementwiseOp::neg:
      case ElementwiseOp::convert:
        return is_floating(s.dtype) ? factor(body, s.arguments[0]) : std::nullopt;
      case ElementwiseOp::mul:
        return of_one(body, s, &Separation::factor);
      case ElementwiseOp::div:
        return reads(body, s.arguments[1]) ? std::nullopt : factor(body, s.arguments[0]);
      case ElementwiseOp::add:
      case ElementwiseOp::sub:
        return alike(body, s.arguments[0], s.arguments[1]);
      case ElementwiseOp::select:
        return reads(body, s.arguments[0]) ? std::nullopt
                                           : alike(body, s.arguments[1], s.arguments[2]);
      default:
        return std::nullopt;
    }
  }

  const LoopTask* maker_of(const LoopStep& s) const {
    if (s.kind != LoopStep::Kind::Read) return nullptr;
    const auto maker = computed_.find(s.source);
    return maker == computed_.end() ? nullptr : maker->second;
  }

  // For a row with two operands of which one reads y: how that operand depends on y.
  std::optional<Dependence> of_one(const LoopBody& body, const LoopStep& s,
                                   std::optional<Dependence> (Separation::*how)(const LoopBody&,
                                                                                uint32_t)
                                       const) const {
    const bool first = reads(body, s.arguments[0]);
    if (first && reads(body, s.arguments[1])) return std::nullopt;
    return (this->*how)(body, s.arguments[first ? 0 : 1]);
  }

  static bool is_zero(const LoopStep& s) {
    return s.kind == LoopStep::Kind::Constant && bits_to_double(s.dtype, s.bits) == 0;
  }
  // The dependence that both operands have; an operand that is 0 has any.
  std::optional<Dependence> alike(const LoopBody& body, uint32_t a, uint32_t b) const {
    const auto of_a = factor(body, a), of_b = factor(body, b);
    if (is_zero(body.steps[a])) return of_b;
    if (is_zero(body.steps[b])) return of_a;
    return of_a == of_b ? of_a : std::nullopt;
  }

  // How the expression depends on y as a term of a sum. If it reads only y, all of it is g(y).
  std::optional<Dependence> term(const LoopBody& body, uint32_t number) const {
    if (!reads(body, number)) return Dependence{};
    if (auto out = composed_term(body, number)) return out;
    std::vector<LoopStep> of;
    ByStep<std::optional<uint32_t>> copies;
    const auto result = copy_function(body, number, of, copies);
    if (!result) return std::nullopt;
    const DType dtype = compute_type(tree_.values[y_].dtype);
    if (of[*result].kind == LoopStep::Kind::Read && of[*result].dtype != dtype)
      of.push_back({.dtype = dtype, .op = ElementwiseOp::convert, .arguments = {*result}});
    if (of.back().dtype != dtype) return std::nullopt;
    return Dependence{.reads = true, .of = std::move(of)};
  }
  std::optional<Dependence> composed_term(const LoopBody& body, uint32_t number) const {
    const LoopStep& s = body.steps[number];
    if (const auto* maker = maker_of(s)) return term(maker->body, maker->body.results[0]);
    if (s.kind != LoopStep::Kind::Apply) return std::nullopt;
    switch (s.op) {
      case ElementwiseOp::neg:
        return negated(term(body, s.arguments[0]), true);
      case ElementwiseOp::convert:
        return is_floating(s.dtype) ? term(body, s.arguments[0]) : std::nullopt;
      case ElementwiseOp::add:
        return of_one(body, s, &Separation::term);
      case ElementwiseOp::sub:
        return negated(of_one(body, s, &Separation::term), reads(body, s.arguments[1]));
      case ElementwiseOp::fma:
        if (reads(body, s.arguments[0]) || reads(body, s.arguments[1])) return std::nullopt;
        return term(body, s.arguments[2]);
      case ElementwiseOp::mul: {
        const bool first = reads(body, s.arguments[0]);
        const LoopStep& other = body.steps[s.arguments[first ? 1 : 0]];
        if (other.kind != LoopStep::Kind::Constant) return std::nullopt;
        auto out = term(body, s.arguments[first ? 0 : 1]);
        const DType dtype = compute_type(tree_.values[y_].dtype);
        if (out)
          out->constants.push_back(constant_bits(dtype, bits_to_double(other.dtype, other.bits)));
        return out;
      }
      default:
        return std::nullopt;
    }
  }
  // Appends the steps of an expression that reads only y, and returns the number of its result.
  std::optional<uint32_t> copy_function(const LoopBody& body, uint32_t number,
                                        std::vector<LoopStep>& to,
                                        ByStep<std::optional<uint32_t>>& copies) const {
    return copies(body.steps[number], [&] { return make_copy(body, number, to, copies); });
  }
  std::optional<uint32_t> make_copy(const LoopBody& body, uint32_t number,
                                    std::vector<LoopStep>& to,
                                    ByStep<std::optional<uint32_t>>& copies) const {
    LoopStep s = body.steps[number];
    if (const auto* maker = maker_of(s))
      return copy_function(maker->body, maker->body.results[0], to, copies);
    const bool known = s.kind == LoopStep::Kind::Constant || s.kind == LoopStep::Kind::Apply ||
                       (s.kind == LoopStep::Kind::Read && s.source == y_ && !s.before);
    if (!known) return std::nullopt;
    for (uint32_t& argument : s.arguments) {
      const auto copied = copy_function(body, argument, to, copies);
      if (!copied) return std::nullopt;
      argument = *copied;
    }
    const auto same = std::find(to.begin(), to.end(), s);
    const auto out = static_cast<uint32_t>(same - to.begin());
    if (same == to.end()) to.push_back(std::move(s));
    return out;
  }
  static std::optional<Dependence> negated(std::optional<Dependence> out, bool is) {
    if (out && is) out->negative = !out->negative;
    return out;
  }

  const LoopTree& tree_;
  size_t y_;
  const std::map<size_t, const LoopTask*>& computed_;
  mutable ByStep<bool> reads_;
  mutable ByStep<std::optional<Dependence>> factors_;
};

// The ratio op(constants * (g(y) - g(y'))), by which a state is multiplied if y was y' before.
LoopBody ratio(const LoopTree& tree, size_t y, const Dependence& dependence) {
  const DType dtype = compute_type(tree.values[y].dtype);
  LoopBody out;
  const auto read = [&](bool before) {
    const auto first = static_cast<uint32_t>(out.steps.size());
    for (LoopStep step : dependence.of) {
      if (step.kind == LoopStep::Kind::Read) step.before = before;
      for (uint32_t& argument : step.arguments) argument += first;
      push(out, std::move(step));
    }
    return static_cast<uint32_t>(out.steps.size() - 1);
  };
  const auto apply = [&](ElementwiseOp op, std::vector<uint32_t> arguments) {
    return push(out, {.dtype = dtype, .op = op, .arguments = std::move(arguments)});
  };
  const uint32_t first = read(dependence.negative), second = read(!dependence.negative);
  uint32_t change = apply(ElementwiseOp::sub, {first, second});
  for (const uint64_t bits : dependence.constants)
    change = apply(
        ElementwiseOp::mul,
        {change, push(out, {.kind = LoopStep::Kind::Constant, .dtype = dtype, .bits = bits})});
  out.results = {apply(dependence.op, {change})};
  return out;
}

// --- What merging needs -------------------------------------------------------------------------

struct Merging {
  std::optional<Refusal> refusal = {};
  std::map<size_t, LoopBody> ratios = {};  // ratios of sums in the second loop, by value
  std::map<size_t, size_t> means = {};     // sums in the second loop that follow the mean of a sum
};

class Merger {
 public:
  Merger(const LoopTree& tree, const Loop& first, const Loop& second)
      : tree_(tree), first_(first), second_(second), made_(values_made(first.body)) {
    for_each_task(first.body, [&](const LoopTask& task, const std::vector<const Loop*>& inside) {
      if (!task.makes_value()) return;
      makers_[task.target] = &task;
      inside_[task.target] = inside;
    });
    for (const Loop* loop : {&first, &second})
      for_each_task(loop->body, [&](const LoopTask& task, const auto&) {
        if (task.kind == LoopTask::Kind::Compute) computed_[task.target] = &task;
      });
  }

  Merging run() {
    Merging out;
    // Values that were computed from a running value -> that value.
    std::map<size_t, size_t> running;
    for_each_task(first_.body, [&](const LoopTask& task, const auto&) {
      if (task.kind != LoopTask::Kind::Compute) return;
      for (const LoopStep& s : task.body.steps) {
        if (s.kind != LoopStep::Kind::Read || !made_.contains(s.source)) continue;
        if (const auto found = running.find(s.source); found != running.end())
          running[task.target] = found->second;
        else if (!is_there(s))
          running[task.target] = s.source;
      }
    });
    for_each_task(second_.body, [&](const LoopTask& task, const std::vector<const Loop*>& inside) {
      const std::vector<bool> start = steps_of_start(task);
      for (size_t i = 0; i < start.size(); ++i)
        if (const LoopStep& s = task.body.steps[i];
            start[i] && s.kind == LoopStep::Kind::Read && made_.contains(s.source))
          out.refusal = needs_final(s.source, task);
      std::set<size_t> follows;
      for (const LoopStep& s : task.body.steps) {
        if (s.kind != LoopStep::Kind::Read) continue;
        if (const auto found = running.find(s.source); found != running.end())
          follows.insert(found->second);
        else if (made_.contains(s.source) && !is_there(s))
          follows.insert(s.source);
      }
      if (task.rescale)
        for (const LoopStep& s : task.rescale->steps)
          if (s.kind == LoopStep::Kind::Read && made_.contains(s.source) && !is_there(s))
            out.refusal = needs_final(s.source, task);
      if (follows.empty() || out.refusal) return;
      const size_t y = *follows.begin();
      const bool sums = is_running(y, {Monoid::Sum});
      if ((!sums && !is_running(y, {Monoid::Max, Monoid::Min})) ||
          (sums && task.kind != LoopTask::Kind::Fold)) {
        out.refusal = needs_final(y, task);
      } else if (follows.size() > 1) {
        out.refusal = not_separable(task, "it reads two running values");
      } else if (sums) {
        follow(task, inside, y, out);
      } else if (task.kind == LoopTask::Kind::Compute) {
        running[task.target] = y;
      } else if (task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot) {
        separate(task, inside, y, out);
      } else {
        out.refusal = needs_final(y, task);
      }
    });
    // A value that was computed from a running value has no meaning after the loop.
    for (const auto& [value, y] : running)
      for_each_task(tree_, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
        for (const Loop* loop : around)
          if (loop == &first_ || loop == &second_) return;
        for (const LoopStep& s : task.body.steps)
          if (s.kind == LoopStep::Kind::Read && s.source == value)
            out.refusal = needs_final(y, task);
      });
    return out;
  }

 private:
  // Whether a turn of the first loop has the value that `s` reads.
  bool is_there(const LoopStep& s) const {
    const LoopValue& value = tree_.values[s.source];
    for (const LoopLevel& level : first_.levels) {
      bool own = false;
      for (size_t i = 0; i < value.axes.size(); ++i)
        if (value.axes[i] == level.axis) own = s.at[i] == tree_.axes[level.axis].index();
      if (!own) return false;
    }
    return true;
  }

  // Whether loops inside the merged loop change a state more than once in a turn.
  bool over_inside(const LoopTask& task, const std::vector<const Loop*>& inside) const {
    return std::ranges::any_of(inside, [&](const Loop* loop) {
      return std::ranges::any_of(loop->levels, [&](const LoopLevel& level) {
        return contains(task.over, level.axis) &&
               !is_one_turn(tree_.axes[level.axis].extent, level.turn);
      });
    });
  }
  bool over_merged(const LoopTask& task) const {
    return std::ranges::all_of(
        first_.levels, [&](const LoopLevel& level) { return contains(task.over, level.axis); });
  }

  bool is_running(size_t value, std::initializer_list<Monoid> monoids) const {
    const LoopTask& maker = *makers_.at(value);
    if (over_inside(maker, inside_.at(value))) return false;
    return maker.kind == LoopTask::Kind::Fold && runs_over_any(first_, maker.over) &&
           !maker.rescale && maker.combine == Combine::None &&
           std::ranges::count(monoids, maker.monoid) > 0;
  }

  // Why a task cannot follow the running value y by itself.
  std::optional<std::string> unfit(const LoopTask& task, const std::vector<const Loop*>& inside,
                                   size_t y) const {
    const LoopValue& value = tree_.values[task.target];
    const bool sums = task.kind == LoopTask::Kind::Dot || task.monoid == Monoid::Sum;
    if (!sums || !over_merged(task) || over_inside(task, inside))
      return "only a sum over the merged loop itself can be rescaled";
    if (task.rescale || task.combine != Combine::None) return "it is already rescaled or combined";
    if (body_dtype(task) != compute_type(tree_.values[y].dtype))
      return "its dtype is not that of the running value";
    // The ratio is one number for each element of the state.
    for (const size_t axis : tree_.values[y].axes)
      if (!contains(value.axes, axis))
        return "the running value has an axis that the sum does not have";
    if (!reads_own(task, y))
      return "the running value is read at an index other than the sum's own";
    return std::nullopt;
  }

  void separate(const LoopTask& task, const std::vector<const Loop*>& inside, size_t y,
                Merging& out) const {
    const auto refuse = [&](std::string why) { out.refusal = not_separable(task, std::move(why)); };
    if (auto why = unfit(task, inside, y)) return refuse(*std::move(why));
    const Separation separation(tree_, y, computed_);
    std::optional<Dependence> found;
    for (const uint32_t result : task.body.results) {
      if (!separation.reads(task.body, result)) continue;
      if (found) return refuse("both factors read the running value");
      found = separation.factor(task.body, result);
      if (!found)
        return refuse(
            "its body is not a product of a factor with the running value and a factor without it");
    }
    out.ratios.emplace(task.target, ratio(tree_, y, found.value()));
  }

  // The terms of a sum that follows a mean are rounded with the mean of those before them.
  void follow(const LoopTask& task, const std::vector<const Loop*>& inside, size_t y,
              Merging& out) const {
    const auto refuse = [&](std::string why) { out.refusal = not_separable(task, std::move(why)); };
    if (auto why = unfit(task, inside, y)) return refuse(*std::move(why));
    const LoopTask& sum = *makers_.at(y);
    if (sum.over != task.over || tree_.values[y].dtype != body_dtype(task))
      return refuse("the mean is one of other terms, or is rounded before it is read");
    if (!task.unrounded) return refuse("its terms must be rounded as they are written");
    const auto followed = follow_mean(tree_, sum, task, y);
    if (const auto* why = std::get_if<std::string>(&followed)) return refuse(*why);
    out.means.emplace(task.target, y);
  }

  // Whether the task reads y, also through computed values, only at the indices of its own state.
  bool reads_own(const LoopTask& task, size_t y) const {
    for (const LoopStep& s : task.body.steps) {
      if (s.kind != LoopStep::Kind::Read) continue;
      const LoopValue& value = tree_.values[s.source];
      const auto maker = computed_.find(s.source);
      const bool computed = maker != computed_.end();
      if (s.source != y && !computed) continue;
      for (size_t i = 0; i < s.at.size(); ++i)
        if (contains(tree_.values[y].axes, value.axes[i]) &&
            !(s.at[i] == tree_.axes[value.axes[i]].index()))
          return false;
      if (computed && !reads_own(*maker->second, y)) return false;
    }
    return true;
  }

  Refusal needs_final(size_t value, const LoopTask& task) const {
    return {&codes::kNeedsFinal,
            fmt::format("`{}` reads %{}, which is ready only after the last turn",
                        to_text(tree_, task), tree_.values[value].name),
            "leave the two loops as they are"};
  }
  Refusal not_separable(const LoopTask& task, std::string why) const {
    return {&codes::kNotSeparable, fmt::format("`{}`: {}", to_text(tree_, task), why),
            "leave the two loops as they are, or write the graph in another form"};
  }

  const LoopTree& tree_;
  const Loop &first_, &second_;
  std::set<size_t> made_;
  std::map<size_t, const LoopTask*> makers_, computed_;
  // By value: the loops inside the first loop around its maker.
  std::map<size_t, std::vector<const Loop*>> inside_;
};

std::set<size_t> tensors(const LoopRegion& region, bool written) {
  std::set<size_t> out;
  for_each_task(region, [&](const LoopTask& task, const auto&) {
    if (written && !task.makes_value()) out.insert(task.target);
    if (!written)
      for (const LoopStep& s : task.body.steps)
        if (s.kind == LoopStep::Kind::Load) out.insert(s.source);
  });
  return out;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const MergeStep& step) {
  const auto place = find_loop(tree, step.first), other = find_loop(tree, step.second);
  if (!place) return no_such("loop", step.first.to_string());
  if (!other) return no_such("loop", step.second.to_string());
  ItemPlace behind = *place;
  ++behind.items.back();
  if (behind.phase != other->phase || behind.items != other->items)
    return Refusal{&codes::kBetween,
                   fmt::format("{} does not stand directly after {}", step.second.to_string(),
                               step.first.to_string()),
                   "name two loops, the second directly after the first"};
  const Loop &first = loop_at(tree, *place), &second = loop_at(tree, *other);
  for (const Loop* loop : {&first, &second})
    if (auto refusal = marked(tree, *loop)) return refusal;
  if (first.levels != second.levels || first.bounds != second.bounds || first.on != second.on ||
      first.down != second.down)
    return Refusal{
        &codes::kLevelsDiffer,
        fmt::format("`{}` and `{}` do not run over the same turns", to_text(tree, first),
                    to_text(tree, second)),
        "split both alike, give both the same bounds, and run both in the same direction"};
  for (const Loop* loop : {&first, &second}) {
    std::optional<Refusal> refusal;
    for_each_task(loop->body, [&](const LoopTask& task, const auto&) {
      if (task.combine != Combine::None)
        refusal = Refusal{
            &codes::kHasState,
            fmt::format("%{} is combined from the parts of chunks", tree.values[task.target].name),
            "merge the loops before they are cut into chunks"};
    });
    if (refusal) return refusal;
  }
  for (const bool first_writes : {true, false})
    for (const size_t tensor : tensors(first.body, first_writes))
      if (tensors(second.body, !first_writes).contains(tensor))
        return Refusal{
            &codes::kMemoryOrder,
            fmt::format("{} is read and written by these loops", tree.tensors[tensor].name),
            "leave the two loops as they are"};
  return Merger(tree, first, second).run().refusal;
}

LoopTree take(const LoopTree& tree, const MergeStep& step) {
  LoopTree out = tree;
  const ItemPlace place = find_loop(tree, step.first).value();
  const ItemPlace other = find_loop(tree, step.second).value();
  auto [refusal, ratios, means] = Merger(tree, loop_at(tree, place), loop_at(tree, other)).run();
  Loop& first = loop_at(out, place);
  Loop second = std::move(loop_at(out, other));
  change_tasks(second.body, [&](LoopTask& task) {
    if (const auto found = ratios.find(task.target); task.makes_value() && found != ratios.end())
      task.rescale = std::move(found->second);
  });
  first.parallel &= second.parallel;
  first.body.insert(first.body.end(), std::make_move_iterator(second.body.begin()),
                    std::make_move_iterator(second.body.end()));
  LoopRegion& region = region_of(out, other);
  region.erase(region.begin() + static_cast<std::ptrdiff_t>(other.items.back()));
  for (const auto& [value, of] : means) make_follow(out, loop_at(out, place), value, of);
  return out;
}

}  // namespace braze
