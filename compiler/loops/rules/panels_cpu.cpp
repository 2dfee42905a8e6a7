#include "compiler/loops/rules/panels_cpu.h"

#include <algorithm>

#include "compiler/loops/rules/summed_nest.h"

namespace braze {

namespace {

bool has_sums(const Loop& loop) {
  bool out = false;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) { out |= task.has_state(); });
  return out;
}

int64_t loops_before(const LoopTree& tree, const std::string& axis, size_t phase) {
  int64_t out = 0;
  for (size_t p = 0; p < phase; ++p)
    visit_loops(tree.phases[p],
                [&](const Loop& loop) { out += runs_over(loop, *find_axis(tree, axis)); });
  return out;
}

}  // namespace

std::optional<LoopName> loop_over(const LoopTree& tree, const std::string& axis,
                                  const std::function<bool(const Loop&)>& wanted) {
  for (LoopName name{axis}; const auto place = find_loop(tree, name); ++name.number)
    if (wanted(loop_at(tree, *place))) return name;
  return std::nullopt;
}

std::optional<LoopName> sum_loop(const Scheduled& out, const std::string& axis) {
  return loop_over(out.tree, axis,
                   [](const Loop& loop) { return !loop.parallel && has_sums(loop); });
}

void pack_lanes(Scheduled& out, const std::vector<std::string>& summed, const PackedFactor& factor,
                const Target& target) {
  const size_t phases = out.tree.phases.size();
  if (!out.try_take(
          PackStep{sum_loop(out, summed[0]).value(), factor.lanes, factor.rows, factor.panel}))
    return;
  const std::string& inner = summed.back();
  for (size_t p = 0; p + phases < out.tree.phases.size(); ++p) {
    const auto loop = [&](const std::string& axis, int64_t number = 1) {
      return LoopName{axis, loops_before(out.tree, axis, p) + number};
    };
    std::vector<std::string> grid;
    for (const Loop* l = only_loop(out.tree.phases[p]); l; l = only_child(*l)) {
      const std::string& axis = out.tree.axes[l->levels[0].axis].name;
      if (std::ranges::count(summed, axis) == 0) grid.push_back(axis);
    }
    if (axis_of(out.tree, factor.lanes).extent.is_constant(factor.panel)) {
      std::erase(grid, factor.lanes);
      out.take(WholeStep{loop(factor.lanes)});
    } else {
      out.take(SplitStep{loop(factor.lanes), factor.panel, /*padded=*/true});
      out.take(WholeStep{loop(factor.lanes, 2)});
    }
    // Factors that are contiguous along the summed axis are read along it, and transposed tile by
    // tile.
    if (factor.across && find_loop(out.tree, loop(inner))) {
      const Expr extent = axis_of(out.tree, inner).extent;
      int64_t turn = target.vector_lanes(4);
      while (turn > 1 && turn / 2 >= extent.range().max) turn /= 2;
      if (extent.is_constant(turn)) {
        out.take(WholeStep{loop(inner)});
      } else {
        out.take(SplitStep{loop(inner), turn, /*padded=*/true});
        out.take(WholeStep{loop(inner, 2)});
        if (!extent.is_multiple_of(turn) && extent.range().max > turn) {
          out.take(SerialStep{loop(inner)});
          out.take(PartStep{loop(inner), before_end(axis_of(out.tree, inner))});
        }
      }
    }
    std::vector<LoopName> dealt;
    for (const std::string& axis : grid) dealt.push_back(loop(axis));
    deal_out(out, dealt);
  }
}

}  // namespace braze
