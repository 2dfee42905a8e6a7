// cost_work.cpp — how often a tree does what, and its operations and products.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <unordered_map>

#include "compiler/fusion/recompute.h"
#include "compiler/loops/cost.h"
#include "compiler/loops/cost_p.h"
#include "compiler/loops/rules/asynchronous.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/sliced_tiles.h"
#include "compiler/loops/steps/factors.h"
#include "compiler/loops/steps/marks.h"
#include "ir/target/occupancy.h"

namespace braze {

double most(const Expr& extent) {
  return static_cast<double>(std::max<int64_t>(extent.range().max, 1));
}

double mean_length(const LoopTree& tree, const std::vector<const Loop*>& outside,
                   const Loop& loop) {
  const size_t axis = loop.levels[0].axis;
  const double whole = most(extent_in(tree, outside, axis));
  if (!loop.bounds) return whole;
  constexpr int kSamples = 5;
  using Values = std::unordered_map<std::string, Expr>;
  const auto values_at = [&](int sample) {
    Values values;
    for (const Expr& size : tree.symbols) values.emplace(size.symbol_name(), size.range().max);
    for (const Loop* other : outside)
      for (const auto& [outer, turn] : other->levels) {
        const int64_t extent = planned_extent(tree, outer);
        const int64_t begin = (extent - 1) / turn * sample / (kSamples - 1) * turn;
        values.insert_or_assign(tree.axes[outer].name, Expr(begin));
        values.insert_or_assign(end_symbol(tree.axes[outer]).symbol_name(),
                                Expr(std::min(begin + turn, extent)));
      }
    return values;
  };
  // Any number of the axis may be loaded. What an earlier phase has found may leave everything.
  const auto set_limits = [&](Values& values, int sample, bool begins) {
    for (size_t n = 0; loop.limit && n < loop.limit->results.size(); ++n) {
      const bool found = loop.limit->steps[loop.limit->results[n]].kind == LoopStep::Kind::Read;
      const int64_t extent = planned_extent(tree, axis);
      values.insert_or_assign(
          limit_symbol(tree.axes[axis], n).symbol_name(),
          found ? Expr(begins ? 0 : extent) : Expr(extent * sample / (kSamples - 1)));
    }
  };
  double sum = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    Values values = values_at(sample);
    set_limits(values, sample, /*begins=*/true);
    const auto first = loop.bounds->first.substitute(values).as_constant();
    set_limits(values, sample, /*begins=*/false);
    const auto last = loop.bounds->second.substitute(values).as_constant();
    if (!first || !last) return whole;
    sum += std::clamp(static_cast<double>(*last - *first), 0.0, whole);
  }
  return sum / kSamples;
}

double times(const LoopTree& tree, const std::vector<const Loop*>& around,
             const std::set<size_t>& axes) {
  double out = 1;
  for (const size_t axis : axes) out *= most(extent_in(tree, around, axis));
  size_t depth = around.size();
  const auto varies = [&](const Loop& loop) {
    return std::ranges::any_of(loop.levels,
                               [&](const LoopLevel& level) { return axes.contains(level.axis); });
  };
  while (depth > 0 && !varies(*around[depth - 1])) --depth;
  double parallel = 1;  // turns of the parallel loops so far
  for (size_t i = 0; i < depth; ++i) {
    const std::vector<const Loop*> outside(around.begin(),
                                           around.begin() + static_cast<std::ptrdiff_t>(i));
    for (const auto& [axis, turn] : around[i]->levels) {
      const double length = around[i]->bounds ? mean_length(tree, outside, *around[i])
                                              : most(extent_in(tree, outside, axis));
      const double turns = std::max(length / static_cast<double>(turn), 1.0);
      out *= around[i]->seek ? std::max(turns / parallel, 1.0) : turns;
      if (around[i]->parallel) parallel *= turns;
    }
  }
  return out;
}

std::set<size_t> all_axes(const LoopTree& tree, const LoopTask& task) {
  std::set<size_t> out = own_axes(tree, task);
  // Each term of a placed reduction has one place.
  if (task.kind == LoopTask::Kind::Place)
    for (const size_t axis : task.along) out.erase(axis);
  out.insert(task.over.begin(), task.over.end());
  return out;
}

double elements_along(const LoopTree& tree, const std::set<size_t>& axes) {
  double out = 1;
  for (const size_t axis : axes) out *= static_cast<double>(planned_extent(tree, axis));
  return out;
}

double bytes_of(const LoopTensor& tensor) {
  return most(tensor.type.shape.numel()) * static_cast<double>(size_of(tensor.type.dtype));
}

namespace {

// The number of blocks: the turns of the loop on grid, times those of a loop on rank.
double instances_of(const LoopTree& tree, const LoopRegion& phase, const Loop* grid = nullptr) {
  const auto* only = phase.size() == 1 ? std::get_if<Box<Loop>>(&phase[0]) : nullptr;
  if (!only || (*only)->on != (grid ? Machine::Rank : Machine::Grid)) return 1;
  const Loop& loop = **only;
  double out = grid ? 1 : instances_of(tree, loop.body, &loop);
  for (const auto& [axis, turn] : loop.levels) {
    const double extent = grid ? most(extent_in(tree, {grid}, axis))
                               : static_cast<double>(planned_extent(tree, axis));
    out *= std::ceil(extent / static_cast<double>(turn));
  }
  return out;
}

// Whether a matrix unit computes the task.
bool on_matrix_units(const LoopTask& task) {
  return task.kind == LoopTask::Kind::Dot && (task.unit == Unit::Mma || task.unit == Unit::Wgmma);
}

// How many times as many results the tiles of all blocks have as turns of mean length: asynchronous
// units multiply whole tiles, also beyond the ends of axes. An axis that is shorter than a tile
// counts as a whole tile everywhere (`times`).
double whole_tiles(const LoopTree& tree, const std::vector<const Loop*>& around) {
  double out = 1;
  for (const Loop* loop : around)
    if (loop->on == Machine::Grid && !loop->bounds)
      for (const auto& [axis, turn] : loop->levels) {
        const double turns =
            static_cast<double>(planned_extent(tree, axis)) / static_cast<double>(turn);
        out *= std::ceil(turns) / std::max(turns, 1.0);
      }
  return out;
}

// Whether threads multiply a tile of which they sum many indices, from buffers on chip.
bool multiplies_tile(const LoopTree& tree, const LoopTask& task,
                     const std::vector<const Loop*>& around) {
  return task.kind == LoopTask::Kind::Dot && task.unit == Unit::Fma &&
         std::ranges::any_of(task.over, [&](size_t axis) {
           return most(extent_in(tree, around, axis)) > kMostUnrolledSums;
         });
}

// Bytes of shared memory for what is kept on chip, and for factors that turns make.
int64_t chip_bytes(const LoopTree& tree) {
  double out = 0;
  for_each_task(tree, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    const auto extents = [&](const auto& axes) {
      double elements = 1;
      for (const size_t axis : axes) elements *= most(extent_in(tree, around, axis));
      return elements;
    };
    if (task.makes_value() && tree.values[task.target].storage == Storage::Chip) {
      const LoopValue& value = tree.values[task.target];
      const double slots =
          around.empty() ? 1 : static_cast<double>(std::max<int64_t>(around.back()->ring, 1));
      out += extents(value.axes) * static_cast<double>(size_of(value.dtype)) * slots;
    }
    if (!multiplies_tile(tree, task, around)) return;
    for (size_t n = 0; n < task.body.results.size(); ++n) {
      if (task.body.steps[task.body.results[n]].kind != LoopStep::Kind::Apply) continue;
      const LoopTask factor = with_factor(task, n);
      out += extents(axes_used(tree, factor)) * static_cast<double>(size_of(body_dtype(task)));
    }
  });
  return static_cast<int64_t>(out);
}

// The share of the rate of all ordinary units that threads reach which multiply such a tile.
double share_of_tile(const LoopTree& tree, const LoopValue& sums, const Target& target) {
  constexpr int64_t kRegisters = 200;  // of a thread
  double warps = 1, rows = 1, columns = 1;
  if (sums.layout)
    for (size_t axis = 0; axis < sums.layout->layout.rank(); ++axis)
      for (const Digit& digit : sums.layout->layout.axes[axis]) {
        const auto extent = static_cast<double>(digit.extent);
        if (digit.resource == Resource::Warp) warps *= extent;
        if (digit.resource == Resource::Register) (axis == 0 ? rows : columns) *= extent;
      }
  const int64_t resident =
      resident_blocks(target, {.threads = static_cast<int64_t>(warps) * kWarpThreads,
                               .registers = kRegisters,
                               .shared_bytes = chip_bytes(tree)});
  const double each = instances_of(tree, tree.phases.front()) / target.cores;
  const double held = std::clamp(each, 1.0, static_cast<double>(std::max<int64_t>(resident, 1)));
  return tile_share(warps * held, rows, columns);
}

// How often the factors of a dot are computed: once for all columns.
double factor_elements(const LoopTree& tree, const LoopTask& dot,
                       const std::vector<const Loop*>& around) {
  double out = 0;
  for (size_t n = 0; n < dot.body.results.size(); ++n)
    if (dot.body.steps[dot.body.results[n]].kind == LoopStep::Kind::Apply)
      out = std::max(out, elements_along(tree, axes_of_factor(tree, dot, n)));
  std::vector<const Loop*> outside;
  for (const Loop* loop : around) {
    if (loop->bounds)
      out *=
          mean_length(tree, outside, *loop) / most(extent_in(tree, outside, loop->levels[0].axis));
    outside.push_back(loop);
  }
  return out;
}

// How many of a dot's factors are made from loads alone. A factor that reads a value of the tree is
// in registers when it is multiplied, whatever else it was computed from.
int64_t loaded_factors(const LoopTask& dot) {
  return std::ranges::count_if(dot.body.results, [&](uint32_t result) {
    const LoopBody factor = part_of(dot.body, result);
    return std::ranges::any_of(factor.steps,
                               [](const LoopStep& s) { return s.kind == LoopStep::Kind::Load; }) &&
           std::ranges::none_of(factor.steps,
                                [](const LoopStep& s) { return s.kind == LoopStep::Kind::Read; });
  });
}

// What a step of a body takes on a GPU, in operations.
double gpu_cost(const LoopBody& body, const LoopStep& s) {
  using Op = ElementwiseOp;
  // Two values are rounded to 16 bits at once, but each is taken out of its register by itself, and
  // bodies for 16 bits are shorter. The unit for approximations takes a quarter of the threads at a
  // time.
  constexpr double kRound = 0.5, kWiden = 1, kShortBody = 0.5, kApproximation = 4;
  const auto is = [&](size_t argument, LoopStep::Kind kind) {
    return body.steps[s.arguments[argument]].kind == kind;
  };
  // A sign is changed by the operation that reads it, and what is not loaded keeps a constant.
  if (s.op == Op::neg || s.op == Op::abs) return 0;
  if (s.op == Op::select && is(0, LoopStep::Kind::Inside) && is(1, LoopStep::Kind::Load) &&
      is(2, LoopStep::Kind::Constant))
    return 0;
  if (s.op == Op::convert) return is_half(body.steps[s.arguments[0]].dtype) ? kWiden : kRound;
  if (s.op == Op::min || s.op == Op::max) return 1;
  if (s.op == Op::approx_exp2 || s.op == Op::approx_inverse) return kApproximation;
  const bool is_short = !is_machine(s.op) && (s.coarse || is_half(s.dtype));
  return operation_cost(s.op) * (is_short ? kShortBody : 1);
}

// The divisions and conditions of a body's indices, each once, and what they take on a GPU.
void add_index_costs(const Expr& e, std::map<Expr, double>& out) {
  constexpr double kDivision = 4;
  if (e.kind() == Expr::Kind::FloorDiv || e.kind() == Expr::Kind::Mod) {
    const auto divisor = e.operands()[1].as_constant();
    out.emplace(e, divisor && std::has_single_bit(uint64_t(*divisor)) ? 1 : kDivision);
  }
  for (const Expr& operand : e.operands()) add_index_costs(operand, out);
}
std::map<Expr, double> index_costs(const LoopBody& body) {
  constexpr double kCondition = 2;
  std::map<Expr, double> out;
  for (const LoopStep& s : body.steps) {
    for (const Expr& e : s.at) add_index_costs(e, out);
    for (const RangeCondition& c : s.conditions) {
      add_index_costs(c.value, out);
      out.insert_or_assign(c.value, kCondition);
    }
  }
  return out;
}

// Whether the loops around a task are cut where the condition, or the one on which a select
// depends, becomes decided.
bool is_decided(const LoopBody& body, const LoopStep& s, const std::vector<const Loop*>& around) {
  if (s.op == ElementwiseOp::select) return is_decided(body, body.steps[s.arguments[0]], around);
  const auto comparison = comparison_of_indices(body, s);
  return comparison && std::ranges::any_of(around, [&](const Loop* loop) {
           return std::ranges::find(loop->parts, *comparison) != loop->parts.end();
         });
}

// Whether a vector on a CPU cannot load or compute the step at once, because what it takes jumps
// along the lanes.
bool jumps(const LoopTree& tree, const LoopStep& s, const LoopAxis& lane, int64_t lanes) {
  if (s.kind != LoopStep::Kind::Load && s.kind != LoopStep::Kind::Index) return false;
  const Expr at = s.kind == LoopStep::Kind::Index
                      ? s.at[0]
                      : linear_offset(s.at, tree.tensors[s.source].type.shape);
  if (at.coefficient_of(lane.name)) return false;
  const Expr turn = Expr::symbol("vector.turn", {0, lane.extent.range().max / lanes});
  return !(at.substitute(lane.name, turn * lanes + (lanes - 1)) -
           at.substitute(lane.name, turn * lanes))
              .as_constant();
}

// A CPU has no unit for approximations: a power of two is a polynomial.
double cpu_cost(const LoopStep& s) {
  constexpr double kPower = 12;
  return s.op == ElementwiseOp::approx_exp2 ? kPower : operation_cost(s.op);
}

// The operations with which the blocks of a GPU look for their own terms: each block makes the
// places of all terms, and compares them.
double seeking_operations(const LoopTree& tree, const LoopTask& task,
                          const std::vector<const Loop*>& around) {
  constexpr double kComparing = 6;
  const bool seeks = std::ranges::any_of(around, [](const Loop* loop) { return loop->seek; });
  if (task.kind != LoopTask::Kind::Place || !seeks) return 0;
  const std::vector<LoopStep>& steps = task.body.steps;
  std::vector<bool> needed(steps.size());
  needed[task.body.results[1]] = true;
  double each = kComparing;
  for (size_t i = steps.size(); i-- > 0;) {
    if (!needed[i]) continue;
    if (steps[i].kind == LoopStep::Kind::Apply) each += gpu_cost(task.body, steps[i]);
    for (const uint32_t argument : steps[i].arguments) needed[argument] = true;
  }
  double terms = 1, blocks = 1;
  for (const size_t axis : task.over) terms *= most(tree.axes[axis].extent);
  for (const Loop* loop : around)
    if (loop->parallel)
      for (const auto& [axis, turn] : loop->levels)
        blocks *= std::ceil(most(tree.axes[axis].extent) / static_cast<double>(turn));
  return each * terms * blocks;
}

// The operations of bodies. On a CPU, one whose result is the same for all lanes of a vector runs
// beside those on vectors, and takes a part of their time. On a GPU, each thread of a block
// computes for itself what is the same for several of its elements.
double body_operations(const LoopTree& tree, const Target& target) {
  // A thread has some neighbours along the lanes, and what depends on nothing else it computes for
  // each of them.
  constexpr double kElementsOfThread = 8, kThreads = 256, kOfNeighbours = 0.25;
  constexpr double kScalar = 0.25;  // of the time of an operation on a vector
  constexpr double kPairs = 2;      // a shuffle and an operation, on vectors
  constexpr double kJump = 32;      // of an element that a vector takes alone
  const bool gpu = target.kind == TargetKind::Gpu;
  const int lanes = target.vector_lanes(4);
  double out = 0;
  const auto first = first_steps(tree);
  auto is_first = first.begin();
  std::set<Expr> counted;
  for (const LoopRegion& phase : tree.phases) {
    const double instances = instances_of(tree, phase);
    for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
      const std::vector<bool>& counts = *is_first++;
      const std::set<size_t> all = all_axes(tree, task);
      std::set<size_t> tile;
      for (const size_t axis : all)
        if (!extent_in(tree, around, axis).is_constant(1)) tile.insert(axis);
      const auto along_lanes = [&](const auto& axes) {  // the last dimension of the tile
        return !tile.empty() && std::ranges::count(axes, *tile.rbegin()) > 0;
      };
      // A vector takes as long if some of its lanes have nothing to do.
      double idle = 1;
      if (!gpu && !tile.empty()) {
        const size_t lane = *tile.rbegin();
        const double used =
            std::min(most(extent_in(tree, around, lane)), most(tree.axes[lane].extent));
        idle = std::ceil(used / lanes) * lanes / used;
      }
      // The factors of a dot of tiles are made once, before they are multiplied.
      const bool tiles = gpu && (on_matrix_units(task) || multiplies_tile(tree, task, around));
      const double factors = tiles ? factor_elements(tree, task, around) : 0;
      const auto evaluations = [&](const std::set<size_t>& along) {
        if (tiles) return factors;
        const double changes = times(tree, around, along);
        if (!gpu) return changes * (along_lanes(along) ? idle : lanes * kScalar);
        std::set<size_t> repeated = tile;
        repeated.insert(along.begin(), along.end());
        const double threads = times(tree, around, repeated) / kElementsOfThread;
        return std::max(changes, std::min(threads, std::max(changes, instances) * kThreads) /
                                     (along_lanes(along) ? kOfNeighbours : 1));
      };
      if (gpu) out += seeking_operations(tree, task, around);
      // The lanes of a state are combined pair by pair.
      if (!gpu && task.kind == LoopTask::Kind::Fold && along_lanes(task.over))
        out += kPairs * lanes * std::log2(lanes) * elements_along(tree, own_axes(tree, task));
      const auto axes = axes_of_steps(tree, task.body);
      for (size_t i = 0; i < axes.size(); ++i) {
        const LoopStep& s = task.body.steps[i];
        if (!counts[i]) continue;
        if (!gpu && along_lanes(axes[i]) && jumps(tree, s, tree.axes[*tile.rbegin()], lanes))
          out += kJump * times(tree, around, axes[i]);
        // Bools are taken out of the words in which they are loaded.
        if (gpu && s.kind == LoopStep::Kind::Load && s.dtype == DType::Bool)
          out += evaluations(axes[i]);
        if (s.kind != LoopStep::Kind::Apply || (gpu && is_decided(task.body, s, around))) continue;
        out += (gpu ? gpu_cost(task.body, s) : cpu_cost(s)) * evaluations(axes[i]);
      }
      if (!gpu || tiles) return;
      for (const auto& [index, cost] : index_costs(task.body)) {
        if (!counted.insert(index).second) continue;
        std::set<size_t> along;
        for (const std::string& symbol : index.symbols()) {
          if (const auto axis = find_axis(tree, symbol)) along.insert(*axis);
          if (const auto step = loaded_step(symbol))
            along.insert(axes[*step].begin(), axes[*step].end());
        }
        out += cost * evaluations(along);
      }
    });
  }
  return out;
}

}  // namespace

Work work_of(const LoopTree& tree, const Target& target) {
  // tf32 products run at half the rate of products of 16-bit factors, and products on a CPU that
  // load both factors for each multiplication at half the rate of those that keep one.
  constexpr double kHalfRate = 2;
  Work out;
  add_traffic(tree, target, out);
  std::set<size_t> folded, computed;
  for (const LoopRegion& phase : tree.phases) {
    out.instances = std::max(out.instances, instances_of(tree, phase));
    for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
      double tile = 1;
      for (const size_t axis : all_axes(tree, task)) tile *= most(extent_in(tree, around, axis));
      out.tile = std::max(out.tile, tile);
      out.folds |= task.has_state() && task.kind != LoopTask::Kind::Dot;
      for (const LoopStep& s : task.body.steps)
        out.waits |= s.kind == LoopStep::Kind::Read && folded.contains(s.source) &&
                     all_axes(tree, task).size() > tree.values[s.source].axes.size();
      if (task.kind == LoopTask::Kind::Fold) folded.insert(task.target);
      if (tree.roles && task.kind == LoopTask::Kind::Stage)
        out.bulk_lines += bulk_lines(tree, task, around);
      const double indices = times(tree, around, all_axes(tree, task));
      // A product that is summed before it is rounded is added by the multiplication.
      if (task.kind == LoopTask::Kind::Fold && !task.unrounded) out.operations += indices;
      const auto is_load = [](const LoopStep& s) { return s.kind == LoopStep::Kind::Load; };
      if (!std::ranges::all_of(task.body.steps, is_load)) computed.insert(task.target);
      if (task.kind != LoopTask::Kind::Dot) return;
      const bool matrix = on_matrix_units(task);
      out.multiplies |= matrix;
      out.asynchronous |= task.unit == Unit::Wgmma;
      // Warps that compute a factor multiply no faster than in tf32 if the factor goes through
      // their registers before it lies on chip.
      const bool warps = task.unit == Unit::Mma;
      const bool computes = warps && std::ranges::any_of(task.body.steps, [&](const LoopStep& s) {
                              return s.kind == LoopStep::Kind::Read &&
                                     computed.contains(s.source) &&
                                     tree.values[s.source].storage == Storage::Chip;
                            });
      if (warps && is_half(warp_dot_dtype(task)) && !computes) {
        out.warp_products += 2 * indices;
        return;
      }
      // Matrix units multiply f64 as fast as ordinary units multiply f32.
      if (matrix && warp_dot_dtype(task) == DType::F64) {
        out.products += 2 * indices;
        return;
      }
      if (multiplies_tile(tree, task, around)) {
        out.tile_products += 2 * indices;
        out.tile_time += 2 * indices / share_of_tile(tree, tree.values[task.target], target);
        return;
      }
      const bool half = matrix ? task.tf32 || computes
                               : target.kind == TargetKind::Cpu && loaded_factors(task) > 1;
      double sums = 1;
      for (const size_t axis : tree.values[task.target].axes)
        sums *= most(extent_in(tree, around, axis));
      const double products = 2 * indices * (half ? kHalfRate : 1) *
                              (task.unit == Unit::Wgmma ? whole_tiles(tree, around) : 1);
      (matrix ? out.matrix_products : out.products) += products;
      if (warps)
        out.small_tiles += products / tf32_tile_speed(static_cast<int64_t>(sums)) - products;
    });
  }
  out.operations += body_operations(tree, target);
  if (out.asynchronous) add_beside_products(tree, out);
  return out;
}

}  // namespace braze
