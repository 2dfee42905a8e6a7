#include "compiler/loops/rules/facts.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "compiler/fusion/recompute.h"
#include "compiler/loops/steps/factors.h"
#include "compiler/loops/steps/places.h"

namespace braze {

int64_t TreeAccess::stride(const LoopAxis& axis) const {
  if (loaded_along.contains(axis.name)) return 2;
  const auto coefficient = offset.coefficient_of(axis.name);
  if (!coefficient) return 2;
  const auto constant = coefficient->as_constant();
  return constant && *constant >= 0 ? *constant : 2;
}

bool TreeAccess::uses(const LoopAxis& axis) const {
  return offset.uses(axis.name) || loaded_along.contains(axis.name);
}

std::vector<TreeAccess> accesses(const LoopTree& tree, const LoopTask& task) {
  std::vector<TreeAccess> out;
  std::vector<std::set<size_t>> axes;  // by step, found if an index is loaded
  const auto add = [&](size_t tensor, const std::vector<Expr>& at, bool store, bool conditional) {
    const TensorType& type = tree.tensors[tensor].type;
    TreeAccess access{tensor, linear_offset(at, type.shape), size_of(type.dtype), store,
                      conditional};
    for (const std::string& symbol : access.offset.symbols()) {
      const auto index = loaded_step(symbol);
      if (!index) continue;
      access.irregular = true;
      if (axes.empty()) axes = axes_of_steps(tree, task.body);
      for (const size_t axis : axes[*index]) access.loaded_along.insert(tree.axes[axis].name);
    }
    out.push_back(std::move(access));
  };
  for (const LoopStep& s : task.body.steps)
    if (s.kind == LoopStep::Kind::Load) add(s.source, s.at, false, !s.conditions.empty());
  if (!task.makes_value()) add(task.target, task.at, true, false);
  return out;
}

std::vector<TreeAccess> accesses(const LoopTree& tree, const std::vector<const LoopTask*>& tasks) {
  std::vector<TreeAccess> out;
  for (const LoopTask* task : tasks)
    for (TreeAccess& access : accesses(tree, *task)) {
      const auto same = [&](const TreeAccess& other) {
        return other.tensor == access.tensor && other.store == access.store &&
               other.offset == access.offset;
      };
      if (std::ranges::none_of(out, same)) out.push_back(std::move(access));
    }
  return out;
}

std::vector<TreeAccess> accesses(const LoopTree& tree) {
  std::vector<const LoopTask*> tasks;
  for_each_task(tree, [&](const LoopTask& task, const auto&) { tasks.push_back(&task); });
  return accesses(tree, tasks);
}

std::vector<std::vector<bool>> first_steps(const LoopTree& tree) {
  std::vector<std::vector<bool>> out;
  std::vector<LoopStep> known;  // their arguments are numbers in this list
  std::unordered_multimap<uint64_t, uint32_t> by_hash;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    std::vector<uint32_t> numbers;
    std::vector<bool>& first = out.emplace_back();
    for (LoopStep step : task.body.steps) {
      for (uint32_t& argument : step.arguments) argument = numbers[argument];
      const uint64_t hash = hash_of(step);
      const auto [begin, end] = by_hash.equal_range(hash);
      const auto same =
          std::find_if(begin, end, [&](const auto& entry) { return known[entry.second] == step; });
      first.push_back(same == end);
      numbers.push_back(same == end ? static_cast<uint32_t>(known.size()) : same->second);
      if (same != end) continue;
      by_hash.emplace(hash, numbers.back());
      known.push_back(std::move(step));
    }
  });
  return out;
}

double elementwise_rate(const Target& target) {
  // Most operations are single additions and multiplications, and few are the multiply-adds whose
  // rate the target gives.
  constexpr double kEfficiency = 0.25;
  return target.flops_per_second * kEfficiency;
}

Operations operations(const LoopTree& tree, std::optional<size_t> lane,
                      const std::function<double(const LoopTask&)>& times) {
  Operations out;
  const auto along_lane = [&](const Expr& e) {
    if (e.uses(tree.axes[*lane].name)) return true;
    const auto symbols = e.symbols();
    return std::any_of(symbols.begin(), symbols.end(),
                       [](const std::string& symbol) { return loaded_step(symbol).has_value(); });
  };
  const auto first = first_steps(tree);
  auto is_first = first.begin();
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    const double weight = times ? times(task) : 1;
    std::vector<bool> varies;
    for (const LoopStep& step : task.body.steps) {
      bool own = !lane || std::any_of(step.at.begin(), step.at.end(), along_lane) ||
                 std::any_of(step.arguments.begin(), step.arguments.end(),
                             [&](uint32_t argument) { return varies[argument]; });
      for (const RangeCondition& c : step.conditions) own = own || along_lane(c.value);
      if (step.kind == LoopStep::Kind::Apply && (*is_first)[varies.size()])
        (own ? out.varying : out.uniform) += weight * operation_cost(step.op);
      varies.push_back(own);
    }
    ++is_first;
  });
  return out;
}

std::optional<std::vector<size_t>> nest_axes(const LoopTree& tree) {
  std::vector<size_t> out;
  if (tree.phases.size() != 1) return std::nullopt;
  for (const LoopRegion* region = &tree.phases[0];;) {
    const auto is_loop = [](const LoopItem& item) {
      return std::holds_alternative<Box<Loop>>(item);
    };
    if (std::none_of(region->begin(), region->end(), is_loop)) return out;
    if (region->size() != 1) return std::nullopt;
    const Loop& loop = *std::get<Box<Loop>>((*region)[0]);
    if (!loop.parallel || loop.levels.size() != 1) return std::nullopt;
    out.push_back(loop.levels[0].axis);
    region = &loop.body;
  }
}

// Whether `count` neighbours along the axis, from a multiple of `count` on, lie within `count`
// elements of memory in any order: they are the same element, pairs, or reversed.
static bool are_together(const TreeAccess& access, const LoopAxis& axis, int64_t count) {
  if (count <= 1) return true;
  if (access.loaded_along.contains(axis.name)) return false;
  // Elements in even steps lie within so few only if the step is at most one.
  if (const auto step = access.offset.coefficient_of(axis.name)) {
    const auto elements = step->as_constant();
    return elements && -1 <= *elements && *elements <= 1;
  }
  const Expr turn = Expr::symbol("vector.turn", {0, axis.extent.range().max / count});
  const Expr first = access.offset.substitute(axis.name, turn * count);
  Interval reach{0, 0};
  for (int64_t i = 1; i < count; ++i) {
    const auto distance =
        (access.offset.substitute(axis.name, turn * count + i) - first).as_constant();
    if (!distance) return false;
    reach = {std::min(reach.min, *distance), std::max(reach.max, *distance)};
    if (reach.max - reach.min >= count) return false;
  }
  return true;
}

size_t best_lane_axis(const LoopTree& tree, const std::vector<TreeAccess>& accesses,
                      const std::vector<size_t>& axes, int64_t lanes, bool any_order) {
  // A small table that many elements read stays in the caches, whatever axis lanes are on.
  const auto footprint = [&](const TreeAccess& access) {
    double out = 1;
    for (const size_t axis : axes)
      if (access.stride(tree.axes[axis]) != 0)
        out *= static_cast<double>(planned_extent(tree, axis));
    // A window reads each element several times, but its memory is counted once.
    const auto elements = tree.tensors[access.tensor].type.shape.numel().range().max;
    return std::min(out, static_cast<double>(elements));
  };
  double largest = 1;
  for (const TreeAccess& access : accesses) largest = std::max(largest, footprint(access));
  size_t best = axes.front();
  double most = -1;
  for (size_t i = axes.size(); i-- > 0;) {
    double all = 0, good = 0;
    for (const TreeAccess& access : accesses) {
      // A store counts more, because it moves its line into the cache and out again.
      const double bytes = static_cast<double>(access.bytes) * (access.store ? 1.5 : 1.0) *
                           footprint(access) / largest;
      const int64_t stride = access.stride(tree.axes[axes[i]]);
      all += bytes;
      const bool together =
          any_order && stride > 1 &&
          are_together(access, tree.axes[axes[i]], std::min(lanes, planned_extent(tree, axes[i])));
      if (stride == 1 || together)
        good += bytes;
      else if (stride == 0 && !access.store)
        good += 0.75 * bytes;
    }
    const int64_t extent = planned_extent(tree, axes[i]);
    const double filled =
        static_cast<double>(extent) / static_cast<double>((extent + lanes - 1) / lanes * lanes);
    const double quality = all == 0 ? filled : good / all * filled;
    if (quality <= most * 1.001) continue;
    most = quality;
    best = axes[i];
  }
  return best;
}

std::optional<std::set<int64_t>> boundaries_along(const LoopTree& tree, size_t axis) {
  const LoopAxis& along = tree.axes[axis];
  std::optional<std::set<int64_t>> out(std::in_place);
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    for (const LoopStep& s : task.body.steps)
      for (const RangeCondition& c : s.conditions) {
        if (!c.value.uses(along.name)) continue;
        for (const Expr& end : {c.min, c.limit}) {
          const auto boundary = (end - c.value + along.index()).as_constant();
          if (!boundary) {
            out.reset();
          } else if (out && *boundary > 0 && proves_less(*boundary, along.extent) == true) {
            out->insert(*boundary);
          }
        }
      }
  });
  return out;
}

int64_t vector_along(const std::vector<TreeAccess>& accesses, const LoopAxis& axis) {
  constexpr int64_t kAccessBytes = 16;
  int64_t vector = kAccessBytes / 2;
  size_t least = kAccessBytes;
  for (const TreeAccess& access : accesses) {
    // A thread that has several places that are found anywhere has more loads under way.
    if (access.loaded_along.contains(axis.name)) continue;
    if (access.stride(axis) != 1) {
      // Neighbours that are apart in memory are separate accesses, even if one thread has them.
      while (vector > 1 && access.stride(axis) > 1 && !are_together(access, axis, vector))
        vector /= 2;
      continue;
    }
    least = std::min(least, access.bytes);
    const int64_t divisor = access.offset.substitute(axis.name, 0).divisor();
    while (vector > 1 && divisor % vector != 0) vector /= 2;
  }
  return std::min(vector, std::max<int64_t>(kAccessBytes / static_cast<int64_t>(least), 1));
}

int64_t planned_extent(const LoopTree& tree, size_t axis) {
  return std::clamp<int64_t>(tree.axes[axis].extent.range().max, 1, int64_t{1} << 40);
}

std::vector<std::string> names_of(const LoopTree& tree, const std::vector<size_t>& axes) {
  std::vector<std::string> out;
  for (const size_t axis : axes) out.push_back(tree.axes[axis].name);
  return out;
}

int64_t floor_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
int64_t ceil_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t count_loops(const LoopTree& tree, const std::string& axis) {
  int64_t out = 0;
  visit_loops(tree, [&](const Loop& loop) { out += runs_over(loop, *find_axis(tree, axis)); });
  return out;
}

}  // namespace braze
