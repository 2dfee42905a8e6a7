#include "compiler/loops/steps/share.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/fusion/recompute.h"
#include "compiler/loops/steps/own_names.h"
#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Numbers the expressions of all bodies, each body once. Equal expressions have one number.
class Expressions {
 public:
  struct Known {
    LoopStep step;  // with the numbers of expressions as arguments and in computed coordinates
    std::vector<uint32_t> parts = {};
    bool may = true;  // whether it has the same value in another loop
    std::set<size_t> axes = {}, values = {}, tensors = {};  // on which it depends
    double most = 0;  // its cost is at most this: what parts have in common counts more than once
  };

  explicit Expressions(const LoopTree& tree) : tree_(tree) {}

  const Known& operator[](uint32_t number) const { return known_[number]; }

  // The number of operations and loads, each counted once.
  double cost(uint32_t number) const {
    double out = 0;
    std::vector<uint32_t> open = {number};
    std::set<uint32_t> seen = {number};
    while (!open.empty()) {
      const Known& known = known_[open.back()];
      open.pop_back();
      out += own_cost(known.step);
      for (const uint32_t part : known.parts)
        if (seen.insert(part).second) open.push_back(part);
    }
    return out;
  }

  // The numbers of the expressions of a body, by step.
  std::vector<uint32_t> numbers(const LoopBody& body) {
    std::vector<uint32_t> out;
    for (const LoopStep& s : body.steps) out.push_back(number(s, out));
    return out;
  }
  // Those of the body of a task of the tree.
  const std::vector<uint32_t>& numbers(const LoopTask& task) {
    const auto [known, added] = of_task_.try_emplace(&task);
    if (added) known->second = numbers(task.body);
    return known->second;
  }

 private:
  static double own_cost(const LoopStep& s) {
    if (s.kind == LoopStep::Kind::Apply) return operation_cost(s.op);
    return s.kind == LoopStep::Kind::Load ? 1 : 0;
  }

  uint32_t number(LoopStep s, const std::vector<uint32_t>& before) {
    std::vector<uint32_t> parts;
    std::set<size_t> axes;
    const auto note = [&](Expr& e) {
      std::unordered_map<std::string, Expr> symbols;
      for (const std::string& symbol : e.symbols()) {
        if (const auto axis = find_axis(tree_, symbol)) axes.insert(*axis);
        const auto step = loaded_step(symbol);
        if (!step) continue;
        symbols.insert_or_assign(symbol, loaded_symbol(before[*step]));
        parts.push_back(before[*step]);
      }
      if (!symbols.empty()) e = e.substitute(symbols);
    };
    for (uint32_t& argument : s.arguments) {
      argument = before[argument];
      parts.push_back(argument);
    }
    for_each_expr(s, note);
    const uint64_t hash = hash_of(s);
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto it = first; it != last; ++it)
      if (known_[it->second].step == s) return it->second;
    Known next{.step = std::move(s), .parts = std::move(parts), .axes = std::move(axes)};
    next.most = own_cost(next.step);
    for (const uint32_t part : next.parts) {
      const Known& known = known_[part];
      next.most += known.most;
      next.may = next.may && known.may;
      next.axes.insert(known.axes.begin(), known.axes.end());
      next.values.insert(known.values.begin(), known.values.end());
      next.tensors.insert(known.tensors.begin(), known.tensors.end());
    }
    if (next.step.kind == LoopStep::Kind::Load) next.tensors.insert(next.step.source);
    if (next.step.kind == LoopStep::Kind::Read) {
      next.values.insert(next.step.source);
      next.may = next.may && !next.step.before;
    }
    known_.push_back(std::move(next));
    const auto added = static_cast<uint32_t>(known_.size() - 1);
    by_hash_.emplace(hash, added);
    return added;
  }

  const LoopTree& tree_;
  std::vector<Known> known_;
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;
  std::unordered_map<const LoopTask*, std::vector<uint32_t>> of_task_;
};

// The axes over which the loop and the loops inside it run.
std::set<size_t> axes_walked(const Loop& loop) {
  std::set<size_t> out;
  visit_loops(loop.body, [&](const Loop& inner) {
    for (const LoopLevel& level : inner.levels) out.insert(level.axis);
  });
  for (const LoopLevel& level : loop.levels) out.insert(level.axis);
  return out;
}

// The expression that the step makes a value.
std::optional<uint32_t> find_shared(const LoopTree& tree, const ShareStep& step,
                                    Expressions& expressions) {
  const ItemPlace place = find_loop(tree, step.loop).value();
  const LoopRegion& region = region_of(tree, place);
  const Loop& loop = loop_at(tree, place);
  const std::set<size_t> walked = axes_walked(loop), made = values_made(loop.body);
  const auto meets = [](const std::set<size_t>& a, const std::set<size_t>& b) {
    return std::ranges::any_of(a, [&](size_t n) { return b.contains(n); });
  };
  const auto least = static_cast<double>(step.least);
  std::set<uint32_t> here;   // what the loop computes and may share
  std::set<size_t> written;  // tensors
  const auto note_written = [&](const Loop& walk) {
    for_each_task(walk.body, [&](const LoopTask& task, const auto&) {
      if (!task.makes_value()) written.insert(task.target);
    });
  };
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    for (const uint32_t number : expressions.numbers(task)) {
      const Expressions::Known& known = expressions[number];
      const bool may = known.may && known.step.kind == LoopStep::Kind::Apply &&
                       std::ranges::includes(known.axes, walked) && !meets(known.values, made);
      if (may && known.most >= least) here.insert(number);
    }
  });
  if (here.empty()) return std::nullopt;
  note_written(loop);
  std::optional<uint32_t> best;
  double most = 0;
  for (size_t i = place.items.back() + 1; i < region.size(); ++i) {
    const Loop* other = as_loop(region[i]);
    if (!other) continue;
    for_each_task(other->body, [&](const LoopTask& task, const auto&) {
      for (const uint32_t number : expressions.numbers(task)) {
        if (!here.contains(number) || meets(expressions[number].tensors, written)) continue;
        const double cost = expressions.cost(number);
        if (cost < least || cost <= most) continue;
        best = number;
        most = cost;
      }
    });
    note_written(*other);
  }
  return best;
}

std::optional<Refusal> refuse(const LoopTree& tree, const ShareStep& step,
                              Expressions& expressions) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (loop.bounds)
    return Refusal{&codes::kBoundsDepend, fmt::format("`{}` has bounds", to_text(tree, loop)),
                   "take this step before the loop has bounds"};
  if (find_shared(tree, step, expressions)) return std::nullopt;
  return Refusal{
      &codes::kNothingAlike,
      fmt::format("no loop after `{}` computes, at the same index, what it computes in {} "
                  "operations and loads or more",
                  to_text(tree, loop), step.least),
      "leave the loops as they are"};
}

// Calls `change` for the region and number of the first task in the loop for which `wanted` holds.
bool at_first_task(Loop& loop, const std::function<bool(const LoopTask&)>& wanted,
                   const std::function<void(LoopRegion&, size_t)>& change) {
  for (size_t i = 0; i < loop.body.size(); ++i) {
    if (auto* inner = std::get_if<Box<Loop>>(&loop.body[i])) {
      if (at_first_task(**inner, wanted, change)) return true;
    } else if (wanted(std::get<LoopTask>(loop.body[i]))) {
      change(loop.body, i);
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const ShareStep& step) {
  Expressions expressions(tree);
  return refuse(tree, step, expressions);
}

std::vector<ShareStep> legal_ones(const LoopTree& tree, std::vector<ShareStep> steps) {
  Expressions expressions(tree);
  std::erase_if(steps,
                [&](const ShareStep& step) { return refuse(tree, step, expressions).has_value(); });
  return steps;
}

LoopTree take(const LoopTree& tree, const ShareStep& step) {
  Expressions expressions(tree);
  const uint32_t shared = find_shared(tree, step, expressions).value();
  LoopTree out = tree;
  const ItemPlace place = find_loop(out, step.loop).value();
  const auto step_of = [&](const LoopBody& body) -> std::optional<uint32_t> {
    const auto numbers = expressions.numbers(body);
    const auto found = std::ranges::find(numbers, shared);
    if (found == numbers.end()) return std::nullopt;
    return static_cast<uint32_t>(found - numbers.begin());
  };
  // If a value is equal to the expression already, it is taken.
  std::optional<size_t> value;
  at_first_task(
      loop_at(out, place), [&](const LoopTask& task) { return step_of(task.body).has_value(); },
      [&](LoopRegion& region, size_t i) {
        const auto& first = std::get<LoopTask>(region[i]);
        const uint32_t number = *step_of(first.body);
        if (first.kind == LoopTask::Kind::Compute && first.body.results[0] == number) {
          value = first.target;
          return;
        }
        const Expressions::Known& known = expressions[shared];
        LoopTask task;
        task.kind = LoopTask::Kind::Compute;
        task.target = out.values.size();
        task.body = part_of(first.body, number);
        task.location = first.location;
        out.values.push_back({.name = unused_value(out, std::string(kSharedName)),
                              .dtype = known.step.dtype,
                              .axes = {known.axes.begin(), known.axes.end()}});
        value = task.target;
        region.insert(region.begin() + static_cast<std::ptrdiff_t>(i), std::move(task));
      });
  LoopStep read = own_read(out, *value);
  read.dtype = expressions[shared].step.dtype;
  LoopRegion& region = region_of(out, place);
  for (size_t i = place.items.back(); i < region.size(); ++i) {
    auto* loop = std::get_if<Box<Loop>>(&region[i]);
    if (!loop) continue;
    change_tasks((*loop)->body, [&](LoopTask& task) {
      if (task.makes_value() && task.target == *value) return;
      const auto number = step_of(task.body);
      if (!number) return;
      task.body.steps[*number] = read;
      remove_dead_steps(task.body);
      task.unrounded = task.unrounded && sums_products(task);
    });
  }
  return out;
}

}  // namespace braze
