// collapse.cpp — joins axes of loops, and dimensions of tensors, through which all accesses run as
// one. Most rules begin with it.
#include <algorithm>
#include <map>
#include <string>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

// Whether the inner axis is too short for the lanes of a warp, and everything that is read either
// is constant along it or continues from the outer axis. If both axes are joined, stores run over
// whole warps, and a few lanes read the same element.
bool is_short_digit(const LoopTree& tree, size_t outer, size_t inner) {
  const auto extent = tree.axes[inner].extent.as_constant();
  if (!extent || *extent >= kWarpThreads || asks_outside(tree, outer, inner)) return false;
  for (const TreeAccess& access : accesses(tree)) {
    const auto symbols = access.offset.symbols();
    const auto is_loaded = [](const std::string& symbol) {
      return loaded_step(symbol).has_value();
    };
    const auto of_outer = access.offset.coefficient_of(tree.axes[outer].name);
    const auto of_inner = access.offset.coefficient_of(tree.axes[inner].name);
    if (std::ranges::any_of(symbols, is_loaded) || !of_outer || !of_inner) return false;
    const bool constant = of_inner->is_constant(0) && !access.store;
    if (!constant && !(*of_outer == *of_inner * *extent)) return false;
  }
  return true;
}

}  // namespace

bool asks_outside(const LoopTree& tree, size_t outer, size_t inner) {
  bool out = false;
  const auto visit = [&](const LoopStep& s) {
    if (s.kind != LoopStep::Kind::Load || !s.otherwise || !s.conditions.empty()) return;
    const Shape& shape = tree.tensors[s.source].type.shape;
    int coordinates = 0;
    bool leaves = false;
    for (size_t d = 0; d < s.at.size(); ++d) {
      if (!s.at[d].uses(tree.axes[outer].name) && !s.at[d].uses(tree.axes[inner].name)) continue;
      ++coordinates;
      leaves |= !proves_in_bounds(s.at[d], shape[d]);
    }
    out |= leaves && coordinates > 1;
  };
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    std::ranges::for_each(task.body.steps, visit);
  });
  return out;
}

void collapse_axes(Scheduled& out, const std::vector<size_t>& nest) {
  // From the inside outwards, because a joined axis is the inner axis of the next pair.
  std::vector<std::string> names = names_of(out.tree, nest);
  for (size_t i = names.size(); i-- > 1;) {
    const size_t outer = *find_axis(out.tree, names[i - 1]), inner = *find_axis(out.tree, names[i]);
    const CollapseStep step{{names[i - 1]}, {names[i]}};
    std::optional<LoopTree> through = run_through(out.tree, step);
    const bool runs = through.has_value();
    if (runs) out.accept(step, *std::move(through));
    if (runs || (is_short_digit(out.tree, outer, inner) && out.try_take(step)))
      names[i - 1] = out.tree.axes[outer - (inner < outer)].name;
  }
}

void join_axes(Scheduled& out) {
  for (bool again = true; again;) {
    again = false;
    std::vector<CollapseStep> pairs;
    visit_loops(out.tree.phases[0], [&](const Loop& loop) {
      if (const Loop* child = only_child(loop))
        pairs.push_back({{out.tree.axes[loop.levels[0].axis].name},
                         {out.tree.axes[child->levels[0].axis].name}});
    });
    for (size_t i = pairs.size(); i-- > 0 && !again;) {
      std::optional<LoopTree> joined = run_through(out.tree, pairs[i]);
      again = joined.has_value();
      if (again) out.accept(pairs[i], *std::move(joined));
    }
  }
}

void flatten_tensors(Scheduled& out) {
  std::vector<std::string> tensors;
  for (const LoopTensor& tensor : out.tree.tensors) tensors.push_back(tensor.name);
  for (const std::string& tensor : tensors) out.try_take(FlattenStep{tensor});
}

void read_apart(Scheduled& out) {
  std::map<std::string, int> factors;
  for_each_task(out.tree, [&](const LoopTask& task, const auto&) {
    for (const uint32_t result : task.body.results) {
      const LoopStep& s = task.body.steps[result];
      if (task.kind == LoopTask::Kind::Dot && s.kind == LoopStep::Kind::Load &&
          out.tree.tensors[s.source].mode == Mode::In)
        ++factors[out.tree.tensors[s.source].name];
    }
  });
  for (const auto& [tensor, count] : factors)
    if (count > 1) out.try_take(ApartStep{tensor});
}

}  // namespace braze
