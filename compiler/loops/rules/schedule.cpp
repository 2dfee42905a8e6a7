// schedule.cpp — finds the rule that serves a tree on a target.
#include <algorithm>
#include <set>

#include "compiler/loops/rules/crossed_gpu.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

bool Scheduled::try_take(StepKind step) {
  const bool legal_here =
      !std::visit([&](const auto& kind) { return legal(tree, kind).has_value(); }, step);
  if (legal_here) take(std::move(step));
  return legal_here;
}

void Scheduled::take(StepKind step) {
  LoopTree made =
      std::visit([&](const auto& kind) { return braze::take(std::move(tree), kind); }, step);
  accept(std::move(step), std::move(made));
}

void Scheduled::accept(StepKind step, LoopTree made) {
  tree = std::move(made);
  steps.push_back({std::move(step)});
}

std::optional<Refusal> take_legal(Scheduled& out, StepKind step) {
  auto refusal = std::visit([&](const auto& kind) { return legal(out.tree, kind); }, step);
  if (!refusal) out.take(std::move(step));
  return refusal;
}

void part_tail(Scheduled& out, const LoopName& loop, int64_t tile) {
  const LoopAxis& axis = axis_of(out.tree, loop.axis);
  if (!axis.extent.is_multiple_of(tile) && axis.extent.range().max > tile)
    out.try_take(PartStep{loop, before_end(axis)});
}

namespace {

// A reduction over no axis is its one element.
bool is_of_one(const LoopTask& task) {
  const bool reduces = task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Arg ||
                       task.kind == LoopTask::Kind::Dot;
  return reduces && task.over.empty();
}

bool reduces(const LoopTree& tree) {
  bool out = false;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    out = out || (task.makes_value() && !is_of_one(task));
  });
  return out;
}

size_t count_dots(const LoopTree& tree) {
  size_t out = 0;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    out += task.kind == LoopTask::Kind::Dot && !is_of_one(task);
  });
  return out;
}

// Whether a fold runs along an axis of a dot's result.
bool sums_of_dots(const LoopTree& tree) {
  std::set<size_t> made;
  bool out = false;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Dot) {
      const auto& axes = tree.values[task.target].axes;
      made.insert(axes.begin(), axes.end());
    }
    if (task.kind == LoopTask::Kind::Fold)
      out = out || std::ranges::any_of(task.over, [&](size_t a) { return made.contains(a); });
  });
  return out;
}

// The number of instances, as far as it is known.
int64_t grid_turns(const LoopTree& tree) {
  int64_t out = 1;
  visit_loops(tree.phases.back(), [&](const Loop& loop) {
    if (loop.on != Machine::Grid) return;
    for (const LoopLevel& level : loop.levels)
      out *= (planned_extent(tree, level.axis) + level.turn - 1) / level.turn;
  });
  return out;
}

bool has_chunks(const Scheduled& scheduled) {
  return std::ranges::any_of(scheduled.steps, [](const LoopTreeStep& step) {
    return std::holds_alternative<ChunkStep>(step.kind);
  });
}

}  // namespace

void mark_streaming(Scheduled& out, const Target& target) {
  int64_t bytes = 0;
  for (const LoopTensor& tensor : out.tree.tensors)
    if (tensor.mode != Mode::In)
      bytes +=
          tensor.type.shape.numel().range().min * static_cast<int64_t>(size_of(tensor.type.dtype));
  if (bytes < target.l3_bytes) return;
  // An update in place has its lines in the cache already.
  for (size_t i = 0; i < out.tree.tensors.size(); ++i)
    if (out.tree.tensors[i].mode == Mode::Out)
      out.take(CacheStep{out.tree.tensors[i].name, CacheHint::Stream});
}

std::variant<Scheduled, Refusal> schedule(LoopTree tree, const Target& target) {
  if (has_kind(tree, LoopTask::Kind::Scan)) {
    Scheduled out{std::move(tree)};
    if (auto refusal = tile_scans(out, target)) return *refusal;
    mark_streaming(out, target);
    return out;
  }
  if (has_kind(tree, LoopTask::Kind::Place)) {
    Scheduled out{std::move(tree)};
    if (auto refusal = tile_places(out, target)) return *refusal;
    mark_streaming(out, target);
    return out;
  }
  const bool gpu = target.kind == TargetKind::Gpu;
  std::optional<Refusal> refused;
  if (const size_t dots = count_dots(tree); dots > 0 && gpu) {
    Scheduled out{tree};
    refused = tile_products(out, target);
    if (!refused) return out;
  }
  if (reduces(tree)) {
    Scheduled out{tree, {}, refused};
    const auto refusal =
        gpu ? tile_products_for_gpu(out, target) : tile_products_for_cpu(out, target);
    if (!refusal) return out;
  }
  if (count_dots(tree) > 1 || sums_of_dots(tree)) {
    Scheduled out{tree}, of_few{tree};
    auto refusal = gpu ? tile_cascade_for_gpu(out, target) : tile_cascade_for_cpu(out, target);
    // Threads cut the walk into chunks where the rows are too few for the machine, if matrix units
    // do not.
    const bool is_busy = !gpu || has_chunks(out) || 2 * grid_turns(out.tree) > target.cores;
    if (!refusal && is_busy) return out;
    const auto refused_few =
        gpu ? tile_cascade_by_threads(of_few, target) : tile_few_rows_for_cpu(of_few, target);
    if (!refused_few) return of_few;
    if (!refusal) return out;
    if (gpu) refused = std::move(refusal);
  }
  if (gpu && crosses(tree)) {
    Scheduled out{std::move(tree), {}, std::move(refused)};
    if (auto refusal = tile_crossed_for_gpu(out, target)) return *refusal;
    mark_streaming(out, target);
    return out;
  }
  // Several loops that follow each other are served as walks, even if they reduce nothing.
  if (reduces(tree) || !nest_axes(tree)) {
    Scheduled out{std::move(tree), {}, std::move(refused)};
    if (auto refusal =
            gpu ? tile_reductions_for_gpu(out, target) : tile_reductions_for_cpu(out, target))
      return out.refused.value_or(*refusal);  // the rule that is for such trees knows best
    mark_streaming(out, target);
    return out;
  }
  Scheduled out{std::move(tree)};
  collapse_axes(out, nest_axes(out.tree).value());
  if (target.kind == TargetKind::Gpu)
    tile_for_gpu(out, target);
  else
    tile_for_cpu(out, target);
  mark_streaming(out, target);
  return out;
}

}  // namespace braze
