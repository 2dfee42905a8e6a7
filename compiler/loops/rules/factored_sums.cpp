#include "compiler/loops/rules/factored_sums.h"

#include <algorithm>
#include <cmath>

namespace braze {

namespace {

std::optional<Refusal> find_tasks(const LoopTree& tree, FactoredSums& out) {
  auto found = find_summed_nest(tree);
  if (auto* refusal = std::get_if<Refusal>(&found)) return std::move(*refusal);
  static_cast<SummedNest&>(out) = std::move(std::get<SummedNest>(found));
  for (const LoopItem& item : *out.inside) {
    const auto* task = std::get_if<LoopTask>(&item);
    if (!task || (task->kind != LoopTask::Kind::Dot && task->kind != LoopTask::Kind::Fold))
      return no_rule("a loop contains other tasks than folds and dots");
    if (std::ranges::any_of(task->body.steps,
                            [](const LoopStep& s) { return s.kind == LoopStep::Kind::Read; }))
      return no_rule("a sum reads a value that the kernel makes");
    out.sums.push_back(task);
  }
  if (out.sums.size() != 1)
    return no_rule("the tree has several sums, and their blocks would not fit in the registers");
  return std::nullopt;
}

// The axes along which a load varies.
struct Touched {
  std::set<size_t> axes;
  bool indirect = false;
};
std::vector<Touched> loads_of(const LoopTree& tree, const std::vector<const LoopTask*>& tasks) {
  std::vector<Touched> out;
  for (const LoopTask* task : tasks) {
    const auto axes = axes_of_steps(tree, task->body);
    for (size_t i = 0; i < axes.size(); ++i) {
      const LoopStep& s = task->body.steps[i];
      if (s.kind != LoopStep::Kind::Load) continue;
      Touched& load = out.emplace_back(axes[i]);
      for (const Expr& e : s.at)
        for (const std::string& symbol : e.symbols())
          load.indirect |= loaded_step(symbol).has_value();
    }
  }
  return out;
}

// Finds the axes of rows and lanes: every load varies along at most one of them. Along the lanes,
// more loads and stores are contiguous.
std::optional<Refusal> find_block(const LoopTree& tree, FactoredSums& sums) {
  const auto loads = loads_of(tree, sums.sums);
  const auto read = accesses(tree, sums.sums), stored = accesses(tree, sums.stores);
  const LoopAxis& inner = tree.axes[sums.summed.back()];
  const auto contiguous = [&](size_t axis) {
    double score = 0;
    for (const TreeAccess& load : read)
      score += load.offset.uses(inner.name) && load.stride(tree.axes[axis]) == 1;
    for (const TreeAccess& access : stored)
      score += access.store && access.stride(tree.axes[axis]) == 1 ? 0.75 : 0;
    return score;
  };
  double best = -1;
  for (size_t l = 0; l < sums.nest.size(); ++l)
    for (size_t r = 0; r < sums.nest.size(); ++r) {
      const size_t lane = sums.nest[l], row = sums.nest[r];
      if (lane == row) continue;
      bool by_lane = false, by_row = false, by_both = false, indirect = false;
      for (const Touched& load : loads) {
        const bool along = load.axes.contains(lane), across = load.axes.contains(row);
        by_lane |= along;
        by_row |= across;
        by_both |= along && across;
        indirect |= load.indirect && (along || across);
      }
      if (!by_lane || !by_row || by_both || indirect) continue;
      // Among equals, longer axes win, and then rows that lie close to each other.
      const double extents = static_cast<double>(planned_extent(tree, lane)) *
                             static_cast<double>(planned_extent(tree, row));
      const double score = contiguous(lane) + 1e-3 * std::log2(extents + 1) +
                           1e-6 * static_cast<double>(l) + 1e-7 * static_cast<double>(r);
      if (score <= best) continue;
      best = score;
      sums.lanes = lane;
      sums.rows = row;
    }
  if (best < 0) return no_rule("no two axes separate the factors of the sum");
  return std::nullopt;
}

}  // namespace

std::variant<FactoredSums, Refusal> find_factored_sums(const LoopTree& tree) {
  FactoredSums out;
  if (auto refusal = find_tasks(tree, out)) return *refusal;
  if (out.stores.empty()) return no_rule("no store follows the product");
  if (auto refusal = find_block(tree, out)) return *refusal;
  return out;
}

void join_digits(Scheduled& out, int64_t few) {
  for (bool again = true; again;) {
    again = false;
    FactoredSums sums;
    if (find_tasks(out.tree, sums)) return;
    for (size_t i = sums.summed.size(); i-- > 1 && !again;) {
      const LoopAxis outer = out.tree.axes[sums.summed[i - 1]];
      const LoopAxis inner = out.tree.axes[sums.summed[i]];
      bool one = false, beside = inner.extent.range().max < few;
      for (const LoopStep& s : sums.sums[0]->body.steps) {
        if (s.kind != LoopStep::Kind::Load) continue;
        one |= std::ranges::any_of(
            s.at, [&](const Expr& e) { return e.uses(outer.name) && e.uses(inner.name); });
        const Expr offset = linear_offset(s.at, out.tree.tensors[s.source].type.shape);
        const auto a = offset.coefficient_of(outer.name), b = offset.coefficient_of(inner.name);
        beside = beside && a && b && *a == *b * inner.extent;
      }
      again = (one || beside) && !asks_outside(out.tree, sums.summed[i - 1], sums.summed[i]) &&
              out.try_take(CollapseStep{{outer.name}, {inner.name}});
    }
  }
}

void sort_nest(Scheduled& out, const std::vector<size_t>& nest,
               const std::vector<std::string>& wanted) {
  std::vector<std::string> order = names_of(out.tree, nest);
  for (size_t i = 0; i < wanted.size(); ++i)
    for (auto at = static_cast<size_t>(std::ranges::find(order, wanted[i]) - order.begin()); at > i;
         --at) {
      out.take(ReorderStep{{order[at - 1]}, {order[at]}});
      std::swap(order[at - 1], order[at]);
    }
}

int64_t product_of(const LoopTree& tree, const std::vector<size_t>& axes,
                   const std::function<bool(size_t)>& counts) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t out = 1;
  for (const size_t axis : axes)
    if (counts(axis)) out = std::min(out * planned_extent(tree, axis), kMost);
  return out;
}

double operations_after(const LoopTree& tree) {
  return operations(tree, {}, [](const LoopTask& task) { return task.makes_value() ? 0.0 : 1.0; })
      .varying;
}

}  // namespace braze
