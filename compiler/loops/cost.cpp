#include "compiler/loops/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "compiler/fusion/recompute.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/sliced_tiles.h"
#include "compiler/loops/steps/factors.h"
#include "compiler/loops/steps/marks.h"
#include "ir/support/text.h"
#include "ir/target/features.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

// --- What a tree does ---------------------------------------------------------------------------

struct Work {
  double instances = 1;   // of the grid
  double tile = 1;        // elements that one instance works on at a time
  double operations = 0;  // for all elements
  double products = 0;    // operations of dots on vector units
  // Operations of dots on matrix units, as if their factors had 16 bits.
  double matrix_products = 0;
  // What small tiles of tf32 take longer than large ones, in operations like `matrix_products`.
  double small_tiles = 0;
  double warp_products = 0;    // operations of dots of 16-bit factors on the matrix units of warps
  double read = 0;             // bytes of tensors that are read; what is read again counts once
  double written = 0;          // bytes of tensors that are written
  double loaded = 0;           // bytes that all instances load
  double lines = 0;            // bytes of the lines that the warps of a GPU load
  double cached_again = 0;     // bytes that later loops load again and that the shared cache holds
  double read_again = 0;       // bytes that later loops load again and that it does not hold
  double beside_products = 0;  // bytes that follow asynchronous dots and do not move beside them
  double slowly = 0;           // what these bytes cost, in bytes at the rate of memory
  double bulk_lines = 0;       // lines of bulk copies
  double turns = 1;            // of loops in which an instance waits for what it loads
  // Operations of dots of tiles that threads multiply on chip; and the same divided by the share of
  // the rate that they reach.
  double tile_products = 0, tile_time = 0;
  bool folds = false, multiplies = false, asynchronous = false;
  bool waits = false;  // whether elements are computed from folds over a tile with these elements
};

double most(const Expr& extent) {
  return static_cast<double>(std::max<int64_t>(extent.range().max, 1));
}

// The number of indices that a loop takes each time that it runs: the mean over the turns of the
// loops around it on which its bounds depend.
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

// How often a task does something that depends on `axes` only, over its tile and the loops around
// it. It is done before inner loops over axes on which it does not depend, and once in each turn of
// all other loops. Where a loop looks for its terms, each of them is found by one instance.
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
  constexpr double kMany = 8;
  return task.kind == LoopTask::Kind::Dot && task.unit == Unit::Fma &&
         std::ranges::any_of(
             task.over, [&](size_t axis) { return most(extent_in(tree, around, axis)) > kMany; });
}

// Bytes of shared memory for what is kept on chip, and for factors that turns make.
int64_t chip_bytes(const LoopTree& tree) {
  double out = 0;
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
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
      for (const uint32_t result : task.body.results) {
        if (task.body.steps[result].kind != LoopStep::Kind::Apply) continue;
        LoopTask factor = task;
        factor.body.results = {result};
        factor.rescale.reset();
        remove_dead_steps(factor.body);
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
  for (const uint32_t result : dot.body.results) {
    if (dot.body.steps[result].kind != LoopStep::Kind::Apply) continue;
    LoopTask factor = dot;
    factor.body.results = {result};
    factor.rescale.reset();
    remove_dead_steps(factor.body);
    out = std::max(out, elements_along(tree, axes_used(tree, factor)));
  }
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
    LoopBody factor{.steps = dot.body.steps, .results = {result}};
    remove_dead_steps(factor);
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

// What follows asynchronous dots and takes time of its own: the threads that multiply move it, a
// few accesses at a time.
void add_beside_products(const LoopTree& tree, Work& out) {
  // Shares of the rate of memory, measured on an H200: of what is loaded and stored row by row
  // beside a slab of sums on chip, of what is loaded for sums in registers, and of rows of results
  // that bulk copies cannot store.
  constexpr double kByRows = 0.25, kByRegisters = 0.35, kOddRows = 0.1;
  bool by_rows = false;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    by_rows |=
        task.kind == LoopTask::Kind::Compute && tree.values[task.target].storage == Storage::Chip;
  });
  std::set<size_t> moved;
  const auto add = [&](size_t tensor, double rate) {
    if (!moved.insert(tensor).second) return;
    const double bytes = bytes_of(tree.tensors[tensor]);
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

// The lines of memory that bulk copies bring on chip. They go by rows of 128 bytes or less. If the
// rows of the tensor are no whole lines, some of these lie in two, and if they are no whole
// sectors, they take a part of one sector more.
double bulk_lines(const LoopTree& tree, const LoopTask& task,
                  const std::vector<const Loop*>& around) {
  constexpr double kLine = 128, kSector = 32;
  const LoopStep& load = task.body.steps[task.body.results[0]];
  if (load.kind != LoopStep::Kind::Load || load.at.empty()) return 0;
  const auto size = static_cast<int64_t>(size_of(load.dtype));
  std::set<size_t> axes;
  auto row = static_cast<double>(size);
  for (const Expr& e : load.at)
    for (const std::string& symbol : e.symbols())
      if (const auto axis = find_axis(tree, symbol)) axes.insert(*axis);
  double elements = times(tree, around, axes);
  // Groups, and blocks of a cluster with tiles of their own, share a copy if they do not differ in
  // what they read.
  const Loop* block = around.front();
  for (const Loop* loop : around) {
    for (const auto& [axis, turn] : loop->levels)
      if ((loop->on == Machine::Group || (loop->on == Machine::Rank && turn > 1)) &&
          !axes.contains(axis))
        elements /= most(extent_in(tree, {block}, axis)) / static_cast<double>(turn);
    if (loop->on == Machine::Rank) block = loop;
  }
  for (const size_t axis : axes)
    if (const auto slope = load.at.back().coefficient_of(tree.axes[axis].name);
        slope && slope->is_constant(1))
      row *= most(extent_in(tree, around, axis));
  row = std::min(row, kLine);
  const Shape& shape = tree.tensors[load.source].type.shape;
  auto divisor = static_cast<int64_t>(kLine);  // of the place where a row begins
  while (shape.rank() > 1 && divisor > 1 &&
         !(shape[shape.rank() - 1] * size).is_multiple_of(divisor))
    divisor /= 2;
  const auto start = static_cast<double>(divisor);
  const double lines = 1 + std::max(row - start, 0.0) / kLine;
  const double sectors = start < kSector ? 1 + kSector / std::max(row, kSector) : 1;
  return elements * static_cast<double>(size) / row * lines * sectors;
}

// The bytes of the lines of the nearest cache that a warp's load touches, for each of its elements:
// a line for each lane where neighbouring lanes are far apart in memory. `tile`: the axes of the
// task.
double line_bytes(const LoopTree& tree, const LoopTask& task, const std::set<size_t>& tile,
                  const std::vector<const Loop*>& around, const Expr& offset, double element) {
  constexpr int64_t kLanes = 32;
  constexpr double kLine = 128, kAccess = 16;
  const Layout* layout = task.layout ? &*task.layout : nullptr;
  if (task.makes_value() && tree.values[task.target].layout)
    layout = &tree.values[task.target].layout->layout;
  if (!layout) return element;
  std::vector<int64_t> strides;  // in elements, of each dimension of the tile
  for (const size_t axis : tile) {
    if (extent_in(tree, around, axis).is_constant(1)) continue;
    const auto coefficient = offset.coefficient_of(tree.axes[axis].name);
    const auto stride = coefficient ? coefficient->as_constant() : std::nullopt;
    if (!stride) return element;
    strides.push_back(*stride);
  }
  if (strides.size() != layout->rank()) return element;
  std::set<int64_t> lines;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    int64_t place = 0;
    for (size_t d = 0; d < strides.size(); ++d) {
      int64_t weight = strides[d];
      for (auto digit = layout->axes[d].rbegin(); digit != layout->axes[d].rend(); ++digit) {
        if (digit->resource == Resource::Lane)
          place += lane / digit->stride % digit->extent * weight;
        weight *= digit->extent;
      }
    }
    lines.insert(static_cast<int64_t>(std::floor(static_cast<double>(place) * element / kLine)));
  }
  // Neighbours in registers are loaded together.
  double together = 1;
  for (size_t d = 0; d < strides.size(); ++d)
    if (strides[d] == 1 && !layout->axes[d].empty() &&
        layout->axes[d].back().resource == Resource::Register)
      together = std::min(static_cast<double>(layout->axes[d].back().extent), kAccess / element);
  const double touched = kLine * static_cast<double>(lines.size()) / (kLanes * together);
  return touched <= kLine / 8 ? element : touched;
}

// A turn that a loop leaves out because its term has another place takes this share of the time of
// a turn that loads.
constexpr double kSought = 0.125;

// The memory that the tasks load and store.
class Traffic {
 public:
  Traffic(const LoopTree& tree, const Target& target, Work& out)
      : tree_(tree), target_(target), out_(out), read_(tree.tensors.size()) {}

  void add() {
    std::vector<double> written(tree_.tensors.size());
    for (const LoopRegion& phase : tree_.phases)
      for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
        const auto axes = axes_of_steps(tree_, task.body);
        const std::set<size_t> tile = all_axes(tree_, task);
        for (size_t i = 0; i < axes.size(); ++i)
          if (task.body.steps[i].kind == LoopStep::Kind::Load)
            add_load(task, task.body.steps[i], axes[i], tile, around);
        if (!task.makes_value())
          written[task.target] +=
              elements_along(tree_, stored_axes(task, axes)) *
              static_cast<double>(size_of(tree_.tensors[task.target].type.dtype));
      });
    for (size_t t = 0; t < tree_.tensors.size(); ++t) {
      out_.read += std::min(read_[t], bytes_of(tree_.tensors[t]));
      out_.written += std::min(written[t], bytes_of(tree_.tensors[t]));
    }
    if (target_.kind == TargetKind::Gpu) add_workspaces();
  }

 private:
  // Fitted to products of few rows in `blocks/bert-short` and `steps/mlp` on an H200.
  static constexpr double kNearTurn = 0.45;

  // A place that was loaded, and the innermost loop around the load that runs its turns in order.
  struct Seen {
    size_t tensor;
    Expr offset;
    const Loop* walk;
  };

  // Whether a loop has at most one turn. What tasks of such loops load alike is loaded once.
  bool is_one_turn(const Loop& loop) const {
    return loop.levels.size() == 1 && loop.levels[0].turn > 1 &&
           tree_.axes[loop.levels[0].axis].extent.range().max <= loop.levels[0].turn;
  }

  // What one phase leaves for the next one is written and read.
  void add_workspaces() {
    for (const LoopValue& value : tree_.values) {
      if (value.storage != Storage::Workspace) continue;
      const double bytes = elements_along(tree_, {value.axes.begin(), value.axes.end()}) *
                           static_cast<double>(size_of(value.dtype));
      const bool cached = bytes <= static_cast<double>(target_.l3_bytes);
      (cached ? out_.cached_again : out_.read_again) += 2 * bytes;
    }
  }

  void add_load(const LoopTask& task, const LoopStep& load, const std::set<size_t>& axes,
                const std::set<size_t>& tile, const std::vector<const Loop*>& around) {
    const LoopTensor& tensor = tree_.tensors[load.source];
    const Expr offset = linear_offset(load.at, tensor.type.shape);
    const Loop* walk = nullptr;
    double turns = 1;
    bool seeks = false;
    for (size_t i = 0; i < around.size(); ++i)
      if (const Loop* loop = around[i]; !loop->parallel && !is_one_turn(*loop)) {
        walk = loop;
        seeks |= loop->seek;
        // With a ring, several turns wait for their data at the same time, and so do turns that are
        // written one after the other. These take elements one by one, mostly from near caches.
        if (loop->ring > 2) turns /= static_cast<double>(loop->ring - 1);
        if (loop->unroll > 1) turns *= kNearTurn / static_cast<double>(loop->unroll);
        for (const auto& [axis, turn] : loop->levels)
          turns *= std::max(
              mean_length(tree_, {around.begin(), around.begin() + static_cast<std::ptrdiff_t>(i)},
                          *loop) /
                  static_cast<double>(turn),
              1.0);
      }
    out_.turns = std::max(out_.turns, turns * (seeks ? kSought : 1));
    bool again = false;
    for (const Seen& other : seen_) {
      if (other.tensor != load.source || !(other.offset == offset)) continue;
      if (other.walk == walk) return;
      again = true;
    }
    seen_.push_back({load.source, offset, walk});
    const auto element = static_cast<double>(size_of(tensor.type.dtype));
    const double bytes = elements_along(tree_, axes) * element;
    // What a multiprocessor can keep beside other data, it loads once.
    const double keeps = static_cast<double>(target_.l1_bytes) / 2;
    // One of the conditions, as those of the parts of a concatenation, holds in half of all places.
    const double share = load.conditions.empty() ? 1 : 0.5;
    const double all = seeks ? bytes : times(tree_, around, axes) * element * share;
    if (target_.kind == TargetKind::Gpu)
      out_.lines += all / element * line_bytes(tree_, task, tile, around, offset, element);
    out_.loaded += bytes <= keeps ? std::min(bytes * target_.cores, all) : all;
    if (!again) {
      read_[load.source] += bytes;
      return;
    }
    double instances = 1;
    for (const Loop* loop : around)
      for (const auto& [axis, turn] : loop->levels)
        if (loop->on == Machine::Grid && axes.contains(axis))
          instances *= std::ceil(static_cast<double>(planned_extent(tree_, axis)) /
                                 static_cast<double>(turn));
    const double own = bytes / instances;
    const double at_once = std::min(instances, static_cast<double>(target_.cores));
    if (own <= static_cast<double>(target_.l2_bytes)) return;
    const bool cached = own * at_once <= static_cast<double>(target_.l3_bytes);
    (cached ? out_.cached_again : out_.read_again) += bytes;
  }

  std::set<size_t> stored_axes(const LoopTask& task,
                               const std::vector<std::set<size_t>>& axes) const {
    std::set<size_t> out;
    for (const Expr& e : task.at)
      for (const std::string& symbol : e.symbols()) {
        if (const auto axis = find_axis(tree_, symbol)) out.insert(*axis);
        if (const auto step = loaded_step(symbol))
          out.insert(axes[*step].begin(), axes[*step].end());
      }
    return out;
  }

  const LoopTree& tree_;
  const Target& target_;
  Work& out_;
  std::vector<double> read_;
  std::vector<Seen> seen_;
};

Work work_of(const LoopTree& tree, const Target& target) {
  // tf32 products run at half the rate of products of 16-bit factors, and products on a CPU that
  // load both factors for each multiplication at half the rate of those that keep one.
  constexpr double kHalfRate = 2;
  Work out;
  Traffic(tree, target, out).add();
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

// --- How long that takes ------------------------------------------------------------------------

// What kernels reach on one kind of machine.
struct Reached {
  double memory, cache;  // shares of the Target's rates
  double contractions;   // of products on vector units, a share of the Target's rate
  // The share of the shared cache whose content is there because of the kernel before, or remains
  // there for its next use.
  double resident;
  // The shorter one of memory time and compute time is hidden by the longer one, except for this
  // share; the second is for kernels that compute elements from folds over their own tile.
  double not_overlapped, not_overlapped_after_folds;
  // The same for kernels with dots on matrix units, which load before and store after their loops,
  // and for the operations beside asynchronous dots, which mostly wait for each other.
  double not_overlapped_by_dots, not_overlapped_beside_dots;
  // In launches: what a kernel takes besides its phases, and what a phase with folds or with matrix
  // units takes besides a launch.
  double start, folding, multiplying;
};
// The speeds of a CPU are those that the runtime knows for its class (host_target).
constexpr Reached kCpu{.memory = 1,
                       .cache = 1,
                       .contractions = 0.8,
                       .resident = 1,
                       .not_overlapped = 0.25,
                       .not_overlapped_after_folds = 0.25,
                       .not_overlapped_by_dots = 0.25,
                       .not_overlapped_beside_dots = 1,
                       .start = 0,
                       .folding = 0,
                       .multiplying = 0};
// The speeds of a GPU are those of its data sheet. Fitted on one half of the kernels of the sweep
// on an H200, and judged on the other half (bench/sweep/predictions.py).
constexpr Reached kGpu{.memory = 0.76,
                       .cache = 0.9,
                       .contractions = 0.5,
                       .resident = 0.25,
                       .not_overlapped = 0.1,
                       .not_overlapped_after_folds = 0.2,
                       .not_overlapped_by_dots = 0.5,
                       .not_overlapped_beside_dots = 0.6,
                       .start = 0.25,
                       .folding = 0.1,
                       .multiplying = 0.67};

// The shares of their rates that dots on matrix units reach; the last one, of 16-bit factors, is a
// share of what the matrix units of warps can do.
constexpr double kAsynchronousDots = 0.8, kWarpDots = 0.25, kWarpHalfDots = 0.62;
// Where there are asynchronous instructions, those of warps reach this share of the rate.
constexpr double kBesideAsynchronous = 0.62;
// A multiprocessor needs so long for each line of a bulk copy: convolutions with rows of 32 to 128
// bytes took up to 2 ns, all in all, on an H200, and products with rows inside of lines 2.9.
constexpr double kBulkLineSeconds = 1.5e-9;
// What is loaded often comes faster than from the shared cache, by this factor, because a part of
// it is in a closer one.
constexpr double kCloser = 2.25;
// In the time of 160 operations, a multiprocessor loads a line of 128 bytes from its nearest cache.
constexpr double kLineBytesPerFlop = 0.8;
// The number of tile elements that must be under way to keep the memory busy for one
// multiprocessor.
constexpr double kElementsToFill = 2400;
// A multiprocessor whose dots need data can draw this multiple of its share of the memory's rate.
constexpr double kDrawn = 2;
// The blocks of products on the matrix units of warps load, multiply and store one after the other,
// so they reach this share of the memory's rate.
constexpr double kWarpDotsMoving = 0.6;
// A turn of a loop that loads what it needs takes at least so long. A multiprocessor runs about so
// many blocks at once.
constexpr double kTurnSeconds = 0.8e-6, kResidentBlocks = 12;

// The share of the machine that the instances keep busy.
double busy_share(const Work& work, const Target& target) {
  const double waves = work.instances / std::max(target.cores, 1);
  if (target.kind != TargetKind::Gpu) return std::min(waves, 1.0);
  if (work.multiplies) return waves / std::ceil(waves);
  return std::min({waves, 1.0, waves * work.tile / kElementsToFill});
}

// The share of the memory's rate that the instances can draw.
double drawn_share(const Work& work, const Target& target) {
  if (target.kind != TargetKind::Gpu || !work.multiplies) return busy_share(work, target);
  return std::min(work.instances / std::max(target.cores, 1) * kDrawn, 1.0);
}

}  // namespace

double matrix_rate(const Target& target) {
  return target.asynchronous_dots
             ? target.flops_per_second * target.matrix_speed * kAsynchronousDots
             : target.flops_per_second * warp_matrix_speed(target) * kWarpHalfDots;
}

double warp_matrix_speed(const Target& target) {
  return target.matrix_speed * (target.asynchronous_dots ? kBesideAsynchronous : 1);
}

double tile_share(double warps, double rows, double columns) {
  constexpr double kMost = 0.9, kUnits = 4, kHiddenWarps = 1.5;
  return kMost * std::min(warps / kUnits, 1.0) * warps / (warps + kHiddenWarps) * rows * columns /
         (rows * columns + rows + columns);
}

Cost cost_of(const LoopTree& tree, const Target& target) {
  const Work work = work_of(tree, target);
  const bool gpu = target.kind == TargetKind::Gpu;
  const Reached& reached = gpu ? kGpu : kCpu;
  const double memory = target.memory_bytes_per_second * reached.memory;
  const double cache = target.cache_bytes_per_second * reached.cache;
  const double beside = work.read + work.written - work.beside_products;
  const double resident = std::min(beside, static_cast<double>(target.l3_bytes) * reached.resident);
  double moving =
      (resident + work.cached_again) / cache + (beside - resident + work.read_again) / memory;
  if (gpu && !work.multiplies)
    moving = std::max(moving, (work.loaded + work.written) / (cache * kCloser));
  if (gpu) moving = std::max(moving, work.lines / (target.flops_per_second * kLineBytesPerFlop));
  if (gpu && work.multiplies && !work.asynchronous) moving /= kWarpDotsMoving;
  const double operations = work.operations / elementwise_rate(target);
  double products = work.products / (target.flops_per_second * reached.contractions);
  products += work.tile_time / target.flops_per_second;
  if (work.multiplies)
    products +=
        (work.matrix_products + work.small_tiles) /
            (work.asynchronous ? matrix_rate(target)
                               : target.flops_per_second * target.matrix_speed * kWarpDots) +
        work.warp_products / (target.flops_per_second * warp_matrix_speed(target) * kWarpHalfDots);
  const auto beside_each_other = [](double a, double b, double not_overlapped) {
    return std::max(a, b) + not_overlapped * std::min(a, b);
  };
  const double copying = work.bulk_lines * kBulkLineSeconds / std::max(target.cores, 1);
  const double computing =
      beside_each_other(operations, std::max(products, copying),
                        work.asynchronous ? reached.not_overlapped_beside_dots : 1);
  double running =
      beside_each_other(moving / drawn_share(work, target), computing / busy_share(work, target),
                        work.multiplies ? reached.not_overlapped_by_dots
                        : work.waits    ? reached.not_overlapped_after_folds
                                        : reached.not_overlapped);
  if (gpu && !work.asynchronous)
    running =
        std::max(running, work.turns * kTurnSeconds *
                              std::max(1.0, work.instances / (kResidentBlocks * target.cores)));
  const double phase = 1 + (work.multiplies ? reached.multiplying
                            : work.folds    ? reached.folding
                                            : 0);
  Cost out;
  out.bytes_read = work.read;
  out.bytes_written = work.written;
  out.flops = work.operations + work.products + work.tile_products + work.matrix_products +
              work.warp_products;
  out.instances = work.instances;
  out.start_seconds =
      target.launch_seconds * (reached.start + phase * static_cast<double>(tree.phases.size()));
  out.seconds = out.start_seconds + work.slowly / memory + running;
  return out;
}

std::string Cost::to_string() const {
  const bool long_time = seconds >= 1e-3;
  return fmt::format("{:.3g} {}: {} read, {} written, {:.3g} Mflop, {} instances",
                     seconds * (long_time ? 1e3 : 1e6), long_time ? "ms" : "us",
                     bytes_text(static_cast<uint64_t>(bytes_read)),
                     bytes_text(static_cast<uint64_t>(bytes_written)), flops * 1e-6,
                     static_cast<int64_t>(instances));
}

}  // namespace braze
