#include "compiler/loops/cost.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "compiler/fusion/space.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/steps/factors.h"
#include "ir/target/features.h"

namespace braze {

namespace {

// The turns of the loops over an axis that run on `machine` (None: on any), the outermost first.
std::vector<int64_t> turns_of(const LoopTree& tree, size_t axis, Machine machine) {
  std::vector<int64_t> out;
  const std::function<void(const LoopRegion&)> walk = [&](const LoopRegion& region) {
    for (const LoopItem& item : region) {
      const auto* loop = std::get_if<Box<Loop>>(&item);
      if (!loop) continue;
      for (const LoopLevel& level : (*loop)->levels)
        if (level.axis == axis && (machine == Machine::None || (*loop)->on == machine))
          out.push_back(level.turn);
      walk((*loop)->body);
    }
  };
  walk(tree.phases[0]);
  return out;
}

}  // namespace

namespace {

// How often a task does something that depends on `axes` only, over its tile and the loops around
// it. What does not depend on an axis is done once in each turn along it, and it is done before
// inner loops over axes on which it does not depend.
double times(const LoopTree& tree, const std::vector<const Loop*>& around,
             const std::set<size_t>& axes) {
  double out = 1;
  for (const size_t axis : axes) out *= static_cast<double>(planned_extent(tree, axis));
  bool varies = false;
  for (size_t i = around.size(); i-- > 0;) {
    const std::vector<const Loop*> outside(around.begin(),
                                           around.begin() + static_cast<std::ptrdiff_t>(i));
    for (const auto& [axis, turn] : around[i]->levels) varies |= axes.contains(axis);
    for (const auto& [axis, turn] : around[i]->levels) {
      const auto extent = extent_in(tree, outside, axis).as_constant();
      const auto all = static_cast<double>(extent ? *extent : planned_extent(tree, axis));
      if (varies && !axes.contains(axis)) out *= std::ceil(all / static_cast<double>(turn));
    }
  }
  return out;
}

std::set<size_t> axes_of(const LoopTree& tree, const LoopTask& task) {
  std::set<size_t> out = own_axes(tree, task);
  out.insert(task.over.begin(), task.over.end());
  return out;
}

// The operations of bodies on a CPU. An operation whose result is the same for all lanes of a
// vector takes as long as one on a vector.
double vector_operations(const LoopTree& tree, const Target& target) {
  double out = 0;
  const auto first = first_steps(tree);
  auto is_first = first.begin();
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
      const std::vector<bool>& counts = *is_first++;
      std::optional<size_t> lane;  // the last dimension of the tile
      for (const size_t axis : axes_of(tree, task))
        if (!extent_in(tree, around, axis).is_constant(1)) lane = axis;
      const auto axes = axes_of_steps(tree, task.body);
      for (size_t i = 0; i < axes.size(); ++i) {
        const LoopStep& s = task.body.steps[i];
        if (s.kind != LoopStep::Kind::Apply || !counts[i]) continue;
        const bool splat = lane && !axes[i].contains(*lane);
        out += operation_cost(s.op) * times(tree, around, axes[i]) *
               static_cast<double>(splat ? target.vector_lanes(4) : 1);
      }
    });
  return out;
}

// What follows asynchronous dots and takes time of its own: the threads that multiply move it, a
// few accesses at a time.
void add_beside_products(const LoopTree& tree, TreeWork& out) {
  // Shares of the rate of memory, measured on an H200: of what is loaded and stored row by row
  // beside a slab of sums on chip, of what is loaded for sums in registers, and of rows of results
  // that bulk copies cannot store.
  constexpr double kByRows = 0.25, kByRegisters = 0.5, kOddRows = 0.1;
  bool asynchronous = false, by_rows = false;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    asynchronous |= task.unit == Unit::Wgmma;
    by_rows |=
        task.kind == LoopTask::Kind::Compute && tree.values[task.target].storage == Storage::Chip;
  });
  if (!asynchronous) return;
  std::set<size_t> moved;
  const auto add = [&](size_t tensor, double rate) {
    if (!moved.insert(tensor).second) return;
    const TensorType& type = tree.tensors[tensor].type;
    const double bytes = static_cast<double>(type.shape.numel().range().max) *
                         static_cast<double>(size_of(type.dtype));
    out.beside_products += bytes;
    out.slowly += bytes / rate;
  };
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    if (task.makes_value()) return;
    const TensorType& type = tree.tensors[task.target].type;
    const Expr row = type.shape[type.shape.rank() - 1] * static_cast<int64_t>(size_of(type.dtype));
    if (by_rows)
      add(task.target, kByRows);
    else if (!row.is_multiple_of(kCopiedRowBytes))
      add(task.target, kOddRows);
    for (const LoopStep& s : task.body.steps)
      if (s.kind == LoopStep::Kind::Load) add(s.source, by_rows ? kByRows : kByRegisters);
  });
}

// The work of a tree with reductions: each task is counted by itself.
TreeWork work_of_tasks(const LoopTree& tree, const Target& target) {
  TreeWork out;
  const auto on_vectors = [](const LoopTask& task) {
    return task.unit == Unit::None || task.unit == Unit::Fma;
  };
  const auto indices = [&](const LoopTask& wanted) {
    double count = 1;
    for (const LoopRegion& phase : tree.phases)
      for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
        if (&task == &wanted) count = times(tree, around, axes_of(tree, task));
      });
    return count;
  };
  // A matrix unit takes a factor that was computed once for all columns.
  const auto evaluated = [&](const LoopTask& task) {
    if (task.kind != LoopTask::Kind::Dot || on_vectors(task)) return indices(task);
    double count = 0;
    for (const uint32_t result : task.body.results) {
      if (task.body.steps[result].kind != LoopStep::Kind::Apply) continue;
      LoopTask factor = task;
      factor.body.results = {result};
      factor.rescale.reset();
      remove_dead_steps(factor.body);
      double elements = 1;
      for (const size_t axis : axes_used(tree, factor))
        elements *= static_cast<double>(planned_extent(tree, axis));
      count = std::max(count, elements);
    }
    return count;
  };
  for (const LoopRegion& phase : tree.phases) {
    const auto* only = phase.size() == 1 ? std::get_if<Box<Loop>>(&phase[0]) : nullptr;
    double instances = 1;
    if (only && (*only)->on == Machine::Grid)
      for (const LoopLevel& level : (*only)->levels)
        instances *= std::ceil(static_cast<double>(planned_extent(tree, level.axis)) /
                               static_cast<double>(level.turn));
    out.instances = std::max(out.instances, instances);
    for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
      std::set<size_t> axes = own_axes(tree, task);
      axes.insert(task.over.begin(), task.over.end());
      double tile = 1;
      for (const size_t axis : axes)
        tile *= static_cast<double>(extent_in(tree, around, axis).range().max);
      out.tile = std::max(out.tile, tile);
      if (task.kind == LoopTask::Kind::Dot)
        (on_vectors(task) ? out.products : out.matrix_products) += 2 * indices(task);
      if (task.kind == LoopTask::Kind::Fold) out.operations += indices(task);
    });
  }
  out.operations += target.kind == TargetKind::Cpu ? vector_operations(tree, target)
                                                   : operations(tree, {}, evaluated).varying;
  add_beside_products(tree, out);
  return out;
}

}  // namespace

TreeWork work_of(const LoopTree& tree, const Target& target) {
  TreeWork out;
  bool reduces = tree.phases.size() != 1;
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) { reduces |= task.has_state(); });
  if (reduces) return work_of_tasks(tree, target);
  double elements = 1, along = 1;
  std::optional<size_t> lane;
  for (size_t axis = 0; axis < tree.axes.size(); ++axis) {
    const auto extent = static_cast<double>(planned_extent(tree, axis));
    const auto turns = turns_of(tree, axis, Machine::None);
    const auto dealt = turns_of(tree, axis, Machine::Grid);
    const double share = dealt.empty() ? extent : static_cast<double>(dealt[0]);
    elements *= extent;
    out.instances *= std::ceil(extent / share);
    out.tile *= share;
    // The vectors of a CPU run along the axis whose innermost turns take several indices.
    const int64_t innermost = turns.empty() ? planned_extent(tree, axis) : turns.back();
    if (target.kind == TargetKind::Cpu && innermost > 1) {
      lane = axis;
      along = std::max(share / target.vector_lanes(4), 1.0);
    }
  }
  // On a CPU, a value that does not vary along the vectors is computed once. Each thread of a GPU
  // computes it for itself.
  const Operations each = operations(tree, lane);
  out.operations = elements * (each.varying + each.uniform / along);
  return out;
}

size_t count_walks(const LoopTree& tree) {
  const LoopRegion* region = &tree.phases[0];
  const auto first_loop = [&] {
    return region->empty() ? nullptr : std::get_if<Box<Loop>>(&region->front());
  };
  for (const auto* loop = first_loop(); loop && (*loop)->parallel && region->size() == 1;
       loop = first_loop())
    region = &(*loop)->body;
  size_t out = 0;
  for (const LoopItem& item : *region)
    if (const auto* loop = std::get_if<Box<Loop>>(&item)) {
      const LoopLevel& level = (*loop)->levels[0];
      out += planned_extent(tree, level.axis) > level.turn;
    }
  return out;
}

}  // namespace braze
