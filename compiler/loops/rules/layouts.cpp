#include "compiler/loops/rules/layouts.h"

#include <algorithm>
#include <bit>
#include <set>

namespace braze {

std::vector<Digit> digits(std::initializer_list<Digit> list) {
  std::vector<Digit> out;
  std::copy_if(list.begin(), list.end(), std::back_inserter(out),
               [](const Digit& digit) { return digit.extent > 1; });
  return out;
}

std::vector<Digit> threads_along(int64_t stride, int64_t count) {
  const int64_t lanes = std::clamp<int64_t>(kWarpThreads / stride, 1, count);
  return digits({{Resource::Warp, std::max<int64_t>(stride / kWarpThreads, 1), count / lanes},
                 {Resource::Lane, lanes > 1 ? stride : 1, lanes}});
}

void bind_layouts(Scheduled& out, const std::vector<TiledAxis>& tiled,
                  std::optional<size_t> phase) {
  const LoopTree& tree = out.tree;
  std::vector<std::pair<MadeName, Layout>> bound;
  std::set<size_t> folded;
  for (const LoopRegion& region : tree.phases)
    for_each_task(region, [&](const LoopTask& task, const auto&) {
      folded.insert(task.over.begin(), task.over.end());
    });
  const auto layout_over = [&](const std::set<size_t>& axes,
                               const std::vector<const Loop*>& around) {
    Layout layout;
    for (const size_t axis : axes) {
      const auto extent = extent_in(tree, around, axis).as_constant().value_or(1);
      for (const TiledAxis& t : tiled)
        if (t.name == tree.axes[axis].name && extent == t.tile && t.tile > 1)
          layout.axes.push_back(t.digits);
    }
    if (layout.axes.empty()) layout.axes.emplace_back();
    return layout;
  };
  for (size_t p = 0; p < tree.phases.size(); ++p) {
    if (phase && *phase != p) continue;
    for_each_task(
        tree.phases[p], [&](const LoopTask& task, const std::vector<const Loop*>& around) {
          const std::set<size_t> axes = tile_axes(tree, task);
          const bool value = task.makes_value();
          // A store along a folded axis gets its layout from the terms.
          const auto along = [&](size_t axis) {
            const auto extent = extent_in(tree, around, axis).as_constant();
            return folded.contains(axis) && extent.value_or(1) > 1;
          };
          if (!value && std::any_of(axes.begin(), axes.end(), along)) return;
          bound.push_back(
              {{value, value ? tree.values[task.target].name : tree.tensors[task.target].name},
               layout_over(axes, around)});
        });
  }
  for (auto& [made, layout] : bound) out.try_take(BindStep{made, std::move(layout)});
}

}  // namespace braze
