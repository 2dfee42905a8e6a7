// cascades_gpu.cpp — the rule for cascades of dots on the matrix units of a GPU. The result of the
// first dots is a tile that never leaves the instance.
//
// The rows of all dots are along one parallel axis, the walk goes along another axis, and their
// other axes are whole. Reductions along the walk join it by the online rule. The two kinds of
// matrix units differ in who copies and in the tiles:
//
//   asynchronous units   one role copies boxes; groups of 64 rows multiply what lies on chip
//   the units of warps   all threads copy ahead, into a ring; each warp has 16 or 32 rows
//
// So few rows that one warp multiplies them take no longer than reading what they walk over. Then
// the units of warps are as fast as the others and waste least, several instances share a
// multiprocessor, and chunks of the walk give all multiprocessors work.
#include <algorithm>

#include "compiler/loops/rules/asynchronous.h"
#include "compiler/loops/rules/cascade.h"
#include "compiler/loops/rules/layouts.h"
#include "ir/code/dot_layouts.h"
#include "ir/support/text.h"
#include "ir/target/features.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

// Figures of asynchronous dots.
using asynchronous::kGroupRows;
using asynchronous::kGroups;
using asynchronous::kPanelBytes;
using asynchronous::kSlab;
constexpr int64_t kMostTurn = 128;  // indices of a turn of the walk
constexpr int64_t kSlots = 2;       // of the ring
constexpr int64_t kCopyRegisters = 24, kGroupRegisters = 240;
constexpr int64_t kMostGrouped = 8;
// A thread of the phase that looks at integers from memory has those of one turn of the walk. A
// plain program, which finds layouts by extents, takes them one by one.
constexpr WalkRanges kRanges{128, 32}, kPlainRanges{128, 1};

// Figures of the matrix units of warps. With 32 rows of a warp, each fragment of the other factor
// is multiplied twice, so shared memory keeps up with the units; with 16 rows, the sums of a thread
// take half of the registers.
struct WarpRows {
  int64_t warps, rows;  // rows of each warp
};
constexpr WarpRows kWarpRows[] = {{4, 32}, {8, 16}, {4, 16}, {2, 16}};
constexpr int64_t kMostWarpTurn = 64, kLeastWarpTurn = 32;
constexpr int64_t kOtherRegisters = 44;
constexpr int64_t kCopiedBytes = 16;  // of a thread at once; also the padding of rows on chip

// What an instance walks in the time that a second phase takes to combine chunks.
constexpr int64_t kPhaseBytes = 64 << 10;
constexpr int64_t kMostChunks = 128;

// --- What both kinds of units have in common ----------------------------------------------------

// A dot by name, which steps do not change.
struct NamedDot {
  std::string name;
  bool swap;      // whether the right factor has the rows
  bool is_first;  // whether its sums are complete in a turn of the walk
};

// A factor to be staged, which is read directly from memory.
struct Staged {
  std::string tensor;
  bool in_walk;
  int64_t row_bytes;      // bytes of a row of the tile
  bool has_rows = false;  // whether it varies along the rows
  bool across = false;    // whether neighbours in memory are of different rows
};

struct Factors {
  std::vector<NamedDot> dots;
  std::set<size_t> tiled;  // the axes of the dots' tiles
  std::vector<Staged> staged;
  int64_t columns = 0;       // of all sums that are carried
  int64_t most_columns = 0;  // of the sums of one such dot
  int64_t first_dots = 0;    // dots whose sums are complete in a turn
  double walked_bytes = 0;   // bytes that all tiles of rows read in their walks
};

bool is_load(const LoopStep& s) { return s.kind == LoopStep::Kind::Load; }

// The dots, and the factors that are copied. Bulk copies cannot fetch all factors.
std::optional<Refusal> find_factors(const LoopTree& tree, const Cascade& cascade, bool by_boxes,
                                    Factors& out) {
  const auto is_whole = [&](size_t axis) {
    return axis != *cascade.rows &&
           !(contains(cascade.nest, axis) || cascade.around.contains(axis));
  };
  for (const auto& [dot, rows_factor] : cascade.dots) {
    const bool carried = contains(dot->over, cascade.walk);
    out.dots.push_back({tree.values[dot->target].name, rows_factor == 1, !carried});
    std::vector<size_t> axes = tree.values[dot->target].axes;
    int64_t own = 1;
    for (const size_t axis : axes)
      if (is_whole(axis)) own *= planned_extent(tree, axis);
    (carried ? out.columns : out.first_dots) += carried ? own : 1;
    if (carried) out.most_columns = std::max(out.most_columns, own);
    axes.insert(axes.end(), dot->over.begin(), dot->over.end());
    for (const size_t axis : axes)
      if (axis == *cascade.rows || is_whole(axis)) out.tiled.insert(axis);
  }
  for (const auto& [dot, rows_factor] : cascade.dots)
    for (size_t factor = 0; factor < 2; ++factor) {
      const LoopTask only = with_factor(*dot, factor);
      const LoopStep& last = only.body.steps[only.body.results[0]];
      if (!is_half(last.dtype))
        return no_rule("the dots of a cascade need factors of 16 bits here");
      if (!is_load(last)) {
        if (factor != rows_factor)
          return no_rule("the factor of a dot without the rows must be loaded, but is computed");
        continue;
      }
      if (by_boxes)
        if (auto refusal = refuse_copies(tree, last, out.tiled, cascade.walk, 0)) return refusal;
      Staged copy{tree.tensors[last.source].name, false, 2};
      for (const size_t axis : axes_used(tree, only)) {
        if ((axis == cascade.walk || axis == *cascade.rows) &&
            last.at.back().uses(tree.axes[axis].name))
          copy.across = true;
        if (axis == *cascade.rows) copy.has_rows = true;
        if (axis == cascade.walk)
          copy.in_walk = true;
        else if (out.tiled.contains(axis) && axis != *cascade.rows)
          copy.row_bytes *= planned_extent(tree, axis);
      }
      if (std::ranges::any_of(out.staged, [&](const Staged& s) { return s.tensor == copy.tensor; }))
        continue;
      // A copy outside of the walk has all indices of the loops around the walk.
      if (!copy.in_walk)
        for (const size_t axis : axes_used(tree, only))
          if (cascade.around.contains(axis)) copy.row_bytes *= planned_extent(tree, axis);
      out.staged.push_back(copy);
      if (copy.in_walk)
        out.walked_bytes += static_cast<double>(copy.row_bytes) *
                            static_cast<double>(planned_extent(tree, cascade.walk));
    }
  return std::nullopt;
}

// A longer axis would be mostly zeros.
constexpr int64_t kMostPadding = 2;

// Pads what the first dots sum to whole fragments of the matrix units. Of heads that lie side by
// side in the rows of a tensor, each gets a row of its own, which ends where the axis does.
void pad_sums(Scheduled& out, const Cascade& cascade) {
  std::map<std::string, int64_t> extents;
  for (const auto& [dot, rows_factor] : cascade.dots)
    if (dot->over.size() == 1 && dot->over[0] != cascade.walk)
      if (const auto extent = out.tree.axes[dot->over[0]].extent.as_constant())
        extents.emplace(out.tree.axes[dot->over[0]].name, *extent);
  for (const auto& [axis, extent] : extents) {
    const int64_t padded = ceil_divide(extent, kHalfDotDepth) * kHalfDotDepth;
    if (padded == extent || padded > kMostPadding * extent) continue;
    std::map<std::string, size_t> joined;  // a dimension of a tensor in which rows lie side by side
    visit_steps(out.tree.phases[0], LoopStep::Kind::Load, [&](const LoopTask&, const LoopStep& s) {
      const LoopTensor& tensor = out.tree.tensors[s.source];
      for (size_t d = 0; d < s.at.size(); ++d)
        if (s.at[d].uses(axis) && tensor.type.shape[d].as_constant() != extent)
          joined.emplace(tensor.name, d);
    });
    Scheduled next = out;
    for (const auto& [tensor, dimension] : joined)
      next.try_take(ResiduesStep{tensor, static_cast<int64_t>(dimension), extent});
    if (next.try_take(PadStep{axis, padded})) out = std::move(next);
  }
}

// Rows become the first dimension of all tiles, and the columns of the dots later ones.
void put_rows_first(Scheduled& out, const Cascade& cascade) {
  std::vector<std::string> columns;
  for (const auto& [dot, rows_factor] : cascade.dots)
    for (const size_t axis : out.tree.values[dot->target].axes)
      if (axis < *cascade.rows && !contains(cascade.nest, axis) && !cascade.around.contains(axis) &&
          axis != cascade.walk)
        columns.push_back(out.tree.axes[axis].name);
  for (const std::string& axis : std::set<std::string>(columns.begin(), columns.end()))
    out.take(LastStep{axis});
}

std::optional<Refusal> take_legal(Scheduled& out, StepKind step) {
  auto refusal = std::visit([&](const auto& kind) { return legal(out.tree, kind); }, step);
  if (!refusal) out.take(std::move(step));
  return refusal;
}

// The loop that is dealt to the grid, by the name of its first axis.
std::string grid_of(const LoopTree& tree, const Cascade& cascade) {
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows) return tree.axes[axis].name;
  return tree.axes[*cascade.rows].name;
}

// Whether an instance, which has so many rows, has all of them, and another axis is on the grid.
bool is_one_tile(const LoopTree& tree, const Cascade& cascade, int64_t rows) {
  return cascade.nest.size() > 1 && tree.axes[*cascade.rows].extent.is_constant(rows);
}

// How the rows are cut inside of an instance, and which of these loops are dealt to the machine.
struct RowSteps {
  std::vector<StepKind> cut, dealt;
  bool one_tile = false;  // whether an instance has all rows
};

// Deals the rows to instances; then walks in turns of `turn` indices, in so many chunks, and stages
// the factors.
std::optional<Refusal> walk_in_turns(Scheduled& out, const Cascade& cascade, const Factors& factors,
                                     RowSteps row_steps, int64_t turn, int64_t chunks,
                                     const WalkRanges& ranges) {
  auto& [cut, dealt, one_tile] = row_steps;
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::string rows = name(*cascade.rows), walk = name(cascade.walk),
                    grid = grid_of(out.tree, cascade);
  for (size_t i = 0; i + 1 < cascade.nest.size(); ++i)
    if (cascade.nest[i] == *cascade.rows)
      for (size_t k = i; k + 1 < cascade.nest.size(); ++k)
        if (auto refusal = take_legal(out, ReorderStep{{rows}, {name(cascade.nest[k + 1])}}))
          return refusal;
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows && name(axis) != grid)
      cut.emplace_back(TupleStep{{grid}, {name(axis)}});
  if (grid != rows && !one_tile) cut.emplace_back(TupleStep{{grid}, {rows}});
  cut.emplace_back(OnStep{{grid}, Machine::Grid});
  cut.insert(cut.end(), dealt.begin(), dealt.end());
  for (StepKind& step : cut)
    if (auto refusal = take_legal(out, std::move(step))) return refusal;
  std::set<size_t> walked = cascade.around;
  walked.insert(cascade.walk);
  make_whole(out, walked);
  if (auto refusal = join_walk(out, cascade.walk, turn)) return refusal;
  if (chunks > 1) {
    Scheduled parts = out;
    limit_walk(parts, cascade.walk);
    if (parts.try_take(ChunkStep{{walk}, chunks, Combine::Phase, /*apart=*/true}) &&
        parts.tree.phases.size() > 1)
      out = std::move(parts);
  }
  if (out.tree.phases.size() == 1) part_walk(out, cascade.walk, turn, ranges);
  for (const Staged& s : factors.staged)
    if (auto refusal = take_legal(out, StageStep{{false, s.tensor}, {s.in_walk ? walk : grid}}))
      return refusal;
  return std::nullopt;
}

// Deals the tiles: instances that walk over the same data run at the same time, as many as the
// shared cache can serve. If walks end with their rows, the longest come first.
void deal_tiles(Scheduled& out, const Cascade& cascade, double walked_bytes, const Target& target) {
  const LoopTree& tree = out.tree;
  const Loop& grid = *std::get<Box<Loop>>(tree.phases.back().front());
  std::vector<DealOrder> orders;
  std::optional<size_t> widest;
  for (const LoopLevel& level : grid.levels)
    if (level.axis != *cascade.rows &&
        (!widest || planned_extent(tree, level.axis) > planned_extent(tree, *widest)))
      widest = level.axis;
  int64_t number = kMostGrouped;
  while (number > 1 && static_cast<double>(number) * walked_bytes > target.l3_bytes / 2)
    number /= 2;
  while (widest && number > 1 && !tree.axes[*widest].extent.is_multiple_of(number)) number /= 2;
  if (widest && number > 1)
    orders.push_back({Deal::Order::Grouped, number, tree.axes[*widest].name});
  bool ends_with_rows = false;
  visit_loops(tree.phases.back(), [&](const Loop& loop) {
    if (loop.bounds)
      ends_with_rows |= loop.picks || loop.bounds->second.uses(
                                          end_symbol(tree.axes[*cascade.rows]).symbol_name());
  });
  if (ends_with_rows && grid.levels.back().axis == *cascade.rows)
    orders.push_back({Deal::Order::Longest, 0, ""});
  if (!orders.empty()) out.take(DealStep{{tree.axes[grid.levels[0].axis].name}, orders});
}

// --- Asynchronous dots --------------------------------------------------------------------------

// Whether the walk surely has a turn and ends in its only carried dot, and nothing else reads the
// copied factors of that dot, which stay a turn longer. It reads no other copies.
bool may_run_ahead(const LoopTree& tree, size_t walk) {
  bool out = false;
  std::vector<int64_t> turns(tree.axes.size());  // of the loops around the walk, without groups
  visit_loops(tree.phases.back(), [&](const Loop& loop) {
    if (!runs_over(loop, walk)) {
      for (const LoopLevel& level : loop.levels)
        if (loop.on != Machine::Group) turns[level.axis] = level.turn;
      return;
    }
    // The end of a turn is greater than 0.
    const bool to_end =
        loop.bounds && loop.bounds->first.is_constant(0) &&
        (loop.bounds->second.kind() == Expr::Kind::Symbol || loop.bounds->second.range().min > 0);
    const bool has_end = to_end && loop.bounds->second.kind() == Expr::Kind::Symbol;
    const bool nonempty = has_end || surely_has_turn(tree, loop, turns) ||
                          (to_end && tree.axes[walk].extent.range().min > 0);
    size_t carried = 0;
    for (const LoopItem& item : loop.body) {
      const auto* task = std::get_if<LoopTask>(&item);
      if (!task) return;
      carried += task->kind == LoopTask::Kind::Dot && contains(task->over, walk);
    }
    const auto& last = std::get<LoopTask>(loop.body.back());
    std::set<size_t> read_early, read_late;
    for (const LoopItem& item : loop.body)
      for (const LoopStep& s : std::get<LoopTask>(item).body.steps)
        if (s.kind == LoopStep::Kind::Read)
          (&std::get<LoopTask>(item) == &last ? read_late : read_early).insert(s.source);
    const auto is_copied = [&](size_t value) {
      return task_at(tree, maker_of(tree, value)).kind == LoopTask::Kind::Stage;
    };
    // What the last dot computes of copies is computed in the turn itself.
    bool shares = std::ranges::any_of(
        read_late, [&](size_t value) { return read_early.contains(value) && is_copied(value); });
    for (uint32_t i = 0; i < last.body.steps.size(); ++i) {
      const LoopStep& s = last.body.steps[i];
      shares = shares || (s.kind == LoopStep::Kind::Read && is_copied(s.source) &&
                          std::ranges::count(last.body.results, i) == 0);
    }
    out = nonempty && carried == 1 && last.kind == LoopTask::Kind::Dot && !shares;
  });
  return out;
}

std::optional<Refusal> take_asynchronous(Scheduled& out, const Cascade& cascade,
                                         const Target& target, bool picks) {
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::string rows = name(*cascade.rows), walk = name(cascade.walk);
  Factors factors;
  if (auto refusal = find_factors(out.tree, cascade, /*by_boxes=*/true, factors)) return refusal;
  const std::set<size_t>& tiled = factors.tiled;

  // Vectors that vary only along the walk are copied with the factors.
  const auto read_along_walk = [&](size_t tensor) {
    std::optional<LoopStep> read;
    for_each_task(out.tree.phases.back(), [&](const LoopTask& task, const auto&) {
      for (const LoopStep& s : task.body.steps)
        if (is_load(s) && s.source == tensor) read = s;
    });
    const auto varies = [&](size_t axis) {
      return std::ranges::any_of(read->at, [&](const Expr& e) { return e.uses(name(axis)); });
    };
    if (read && (!varies(cascade.walk) || std::ranges::any_of(tiled, [&](size_t axis) {
          return axis != cascade.walk && varies(axis);
        })))
      read.reset();
    return read;
  };
  std::vector<std::string> vectors;
  int64_t vector_bytes = 0;  // bytes for one index of the walk
  for (size_t i = 0; i < out.tree.tensors.size(); ++i) {
    if (!read_along_walk(i)) continue;
    const std::string& tensor = out.tree.tensors[i].name;
    out.try_take(FlattenStep{tensor});
    if (refuse_copies(out.tree, *read_along_walk(i), tiled, cascade.walk, 0)) continue;
    vectors.push_back(tensor);
    vector_bytes += static_cast<int64_t>(size_of(out.tree.tensors[i].type.dtype));
  }

  // The tiles: rows for two groups, or for one if all rows fit, and turns of the walk as long as
  // the registers and the chip allow.
  const bool one_group = out.tree.axes[*cascade.rows].extent.range().max <= kGroupRows;
  const int64_t groups = one_group ? 1 : kGroups;
  const auto fits = [&](int64_t turn) {
    // Results are stored through the chip, in slabs if they are wide.
    int64_t bytes = groups * kGroupRows * std::min<int64_t>(factors.columns, 2 * kSlab) * 2 +
                    vector_bytes * turn * kSlots;
    for (const Staged& s : factors.staged) {
      const int64_t row = (s.row_bytes + kPanelBytes - 1) / kPanelBytes * kPanelBytes;
      bytes += row * (s.in_walk ? turn * kSlots : 1) *
               (s.in_walk && !s.has_rows ? 1 : groups * kGroupRows);
    }
    const int64_t registers = (factors.columns + turn + turn / 2) * kGroupRows / 128 + 40;
    return bytes + 1024 <= target.l1_bytes && registers <= kGroupRegisters;
  };
  // A walk has more than one turn, or a turn that is not whole.
  const auto is_one = [&](int64_t length) {
    return out.tree.axes[cascade.walk].extent.is_constant(length);
  };
  int64_t turn = kMostTurn;
  while (turn > 16 && (!fits(turn) || is_one(turn))) turn /= 2;
  if (!fits(turn)) return no_rule("the sums or the copies of a turn do not fit into the machine");

  // The loops over rows: on the grid, unless an instance has all rows; over groups; over the rows
  // of one of them.
  RowSteps row_steps{
      .cut = {}, .dealt = {}, .one_tile = is_one_tile(out.tree, cascade, groups * kGroupRows)};
  int64_t loop = 1;
  if (!row_steps.one_tile)
    row_steps.cut.emplace_back(SplitStep{{rows, loop++}, groups * kGroupRows, true});
  if (!one_group) {
    row_steps.cut.emplace_back(SplitStep{{rows, loop}, kGroupRows, true});
    row_steps.dealt.emplace_back(OnStep{{rows, loop++}, Machine::Group});
  }
  row_steps.cut.emplace_back(WholeStep{{rows, loop}});
  if (auto refusal = walk_in_turns(out, cascade, factors, std::move(row_steps), turn, /*chunks=*/1,
                                   {kRanges.turns, kRanges.indices, picks}))
    return refusal;
  // A copy that two turns read keeps the first dots from running ahead. What is read only in few of
  // the turns is loaded there instead.
  const Loop& walked = loop_at(out.tree, find_loop(out.tree, {walk}).value());
  const bool ranged = std::ranges::any_of(walked.parts, [&](const IndexComparison& part) {
    return compares_limit(out.tree, walked, part);
  });
  if (!ranged || !may_run_ahead(out.tree, cascade.walk))
    for (const std::string& vector : vectors) out.try_take(StageStep{{false, vector}, {walk}});
  if (auto refusal = take_legal(out, RingStep{{walk}, kSlots})) return refusal;
  if (auto refusal = take_legal(out, RolesStep{kCopyRegisters, kGroupRegisters})) return refusal;
  for (const NamedDot& dot : factors.dots)
    if (auto refusal = take_legal(out, UnitStep{dot.name, Unit::Wgmma, dot.swap})) return refusal;
  // A walk of one turn has no other turn to overlap with.
  const Loop& bounded = loop_at(out.tree, find_loop(out.tree, {walk}).value());
  const bool walks = out.tree.axes[cascade.walk].extent.range().max > turn &&
                     (!bounded.bounds || bounded.bounds->second.range().max > turn);
  if (walks && groups == 2)
    if (auto refusal = take_legal(out, TurnsStep{{walk}})) return refusal;
  // The first dots of the next turn run while this turn computes.
  if (walks && may_run_ahead(out.tree, cascade.walk))
    for (const NamedDot& dot : factors.dots)
      if (dot.is_first) out.try_take(AheadStep{dot.name, 1});
  struct Slab {
    std::string tensor, axis;
  };
  std::vector<Slab> slabs;
  for_each_task(out.tree.phases.back(), [&](const LoopTask& task, const auto&) {
    if (task.makes_value()) return;
    for (const size_t axis : own_axes(out.tree, task))
      if (axis != *cascade.rows && tiled.contains(axis) && axis != cascade.walk &&
          planned_extent(out.tree, axis) > 2 * kSlab)
        slabs.push_back({out.tree.tensors[task.target].name, name(axis)});
  });
  for (const Slab& slab : slabs) out.try_take(SlabsStep{{false, slab.tensor}, slab.axis, kSlab});
  deal_tiles(out, cascade, factors.walked_bytes, target);
  return std::nullopt;
}

// --- The matrix units of warps -----------------------------------------------------------------

// The rows of an instance, the turns of the walk, and the slots of its ring.
struct WarpTile {
  WarpRows shape;
  int64_t turn;
  int64_t slots = kSlots;
  int64_t rows() const { return shape.warps * shape.rows; }
  int64_t threads() const { return shape.warps * kWarpThreads; }
};

// Bytes of shared memory that an instance needs. Neighbours in memory lie side by side, with
// padding behind each line of them.
int64_t chip_bytes(const Factors& factors, const WarpTile& tile) {
  constexpr int64_t kElement = 2;
  int64_t out = 0;
  for (const Staged& s : factors.staged) {
    const int64_t rows = (s.in_walk ? tile.turn : 1) * (s.in_walk && !s.has_rows ? 1 : tile.rows());
    const int64_t lines = s.across ? s.row_bytes / kElement : rows,
                  line_bytes = s.across ? rows * kElement : s.row_bytes;
    out += lines * (line_bytes + kCopiedBytes) * (s.in_walk ? tile.slots : 1);
  }
  return out;
}

// Whether one warp multiplies all rows at once.
bool has_rows_of_one_warp(const LoopTree& tree, const Cascade& cascade) {
  return tree.axes[*cascade.rows].extent.range().max <= kOneWarpRows;
}

// The instances if all rows are one tile.
int64_t instances_of(const LoopTree& tree, const Cascade& cascade) {
  int64_t out = 1;
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows) out *= planned_extent(tree, axis);
  return out;
}

// The registers of a thread. What is made of the sums of the first dots lies beside them: a factor
// of 16 bits, and what several dots have in common.
int64_t registers_of(const Factors& factors, const WarpTile& tile) {
  const int64_t first = factors.first_dots;
  const int64_t sums = factors.columns + first * tile.turn * (3 + 2 * first) / 4;
  return sums * tile.shape.rows / kWarpThreads + kOtherRegisters;
}

bool fits(const LoopTree& tree, const Cascade& cascade, const Factors& factors,
          const WarpTile& tile, const Target& target) {
  const bool alone = cascade.nest.size() == 1;  // whether the rows are the only loop on the grid
  if (alone && tree.axes[*cascade.rows].extent.is_constant(tile.rows())) return false;
  return chip_bytes(factors, tile) + 1024 <= target.l1_bytes &&
         registers_of(factors, tile) <= kMostThreadRegisters;
}

// The first tile that fits the registers and the chip. A smaller one is better if there are too few
// rows for it, or if some multiprocessor would have no instance.
std::optional<WarpTile> choose_warps(const LoopTree& tree, const Cascade& cascade,
                                     const Factors& factors, const Target& target) {
  const int64_t rows = planned_extent(tree, *cascade.rows);
  const int64_t instances = instances_of(tree, cascade);
  std::optional<WarpTile> out;
  for (const WarpRows& shape : kWarpRows) {
    WarpTile tile{shape, std::clamp(ceil_power_of_two(planned_extent(tree, cascade.walk)),
                                    kLeastWarpTurn, kMostWarpTurn)};
    const auto fits_here = [&] { return fits(tree, cascade, factors, tile, target); };
    // A walk has more than one turn, or a turn that is not whole.
    const auto is_one = [&] { return tree.axes[cascade.walk].extent.is_constant(tile.turn); };
    while (tile.turn > kLeastWarpTurn && (!fits_here() || is_one())) tile.turn /= 2;
    if (is_one()) tile.turn *= 2;
    if (!fits_here() || (out && tile.rows() == out->rows())) continue;
    const bool is_empty = out && 2 * rows <= out->rows();
    const bool has_few = out && instances * ceil_divide(rows, out->rows()) < target.cores;
    // Few warps take longer to copy what they walk over.
    if (out && !is_empty && !(has_few && shape.warps >= 4)) break;
    out = tile;
  }
  return out;
}

// The tile for rows that one warp multiplies. Short turns need little room, so that a
// multiprocessor has many instances, whose copies are under way together.
std::optional<WarpTile> choose_one_warp(const LoopTree& tree, const Cascade& cascade,
                                        const Factors& factors, const Target& target) {
  constexpr int64_t kOneWarpSlots = 3;
  const WarpTile tile{kWarpRows[std::size(kWarpRows) - 1], kLeastWarpTurn, kOneWarpSlots};
  if (tree.axes[cascade.walk].extent.is_constant(tile.turn) ||
      !fits(tree, cascade, factors, tile, target))
    return std::nullopt;
  return tile;
}

// The columns of which a thread stores neighbours at once, and the threads along a row of them.
struct Columns {
  int64_t extent, vector, threads;
};

Columns dealt_columns(int64_t extent, int64_t threads) {
  constexpr int64_t kNeighbours = 8;
  const int64_t vector = std::min(kNeighbours, extent & -extent);
  const int64_t vectors = extent / vector;
  return {extent, vector, std::min(threads, vectors & -vectors)};
}

// In how many chunks the walks are cut, so that all instances that the multiprocessors can hold
// have work, as long as a chunk takes longer than combining it.
int64_t count_chunks(const LoopTree& tree, const Cascade& cascade, const Factors& factors,
                     const WarpTile& tile, const Target& target) {
  const int64_t resident = resident_blocks(target, {.threads = tile.threads(),
                                                    .registers = registers_of(factors, tile),
                                                    .shared_bytes = chip_bytes(factors, tile)});
  const int64_t instances =
      instances_of(tree, cascade) * ceil_divide(planned_extent(tree, *cascade.rows), tile.rows());
  int64_t index_bytes = 0;
  for (const Staged& s : factors.staged)
    if (s.in_walk) index_bytes += s.row_bytes;
  const int64_t length = planned_extent(tree, cascade.walk);
  const int64_t chunks = floor_power_of_two(
      std::min({kMostChunks, target.cores * resident / instances,
                length * index_bytes / kPhaseBytes, ceil_divide(length, tile.turn)}));
  // Each line of the threads that combine chunks has one.
  const Columns columns = dealt_columns(std::max<int64_t>(factors.most_columns, 1), tile.threads());
  return chunks > 1 ? std::max(chunks, tile.threads() / columns.threads) : 1;
}

// Binds the layout in which a staged factor is copied: neighbours in memory belong to one thread.
void bind_copy(Scheduled& out, size_t value, int64_t threads) {
  const LoopTree& tree = out.tree;
  const ItemPlace place = maker_of(tree, value);
  const LoopTask& task = task_at(tree, place);
  const auto around = loops_around(tree, place);
  std::vector<size_t> axes;
  std::vector<int64_t> extents;
  for (const size_t axis : tree.values[value].axes)
    if (const auto extent = extent_in(tree, around, axis).as_constant(); extent != 1) {
      axes.push_back(axis);
      extents.push_back(extent.value_or(0));
    }
  if (axes.size() != 2 || std::ranges::count(extents, 0) > 0) return;
  const LoopAxis& last = tree.axes[axes[1]];
  const LoopStep& load = task.body.steps[task.body.results[0]];
  if (!is_load(load)) return;
  const int64_t vector = std::min(
      vector_along({{load.source, linear_offset(load.at, tree.tensors[load.source].type.shape),
                     size_of(load.dtype)}},
                   last),
      extents[1] & -extents[1]);
  const int64_t vectors = extents[1] / vector, along = std::min(threads, vectors & -vectors);
  Layout layout = spread(extents, {threads / along, along}, vector);
  if (axes[0] > axes[1]) std::swap(layout.axes[0], layout.axes[1]);
  out.try_take(BindStep{{true, tree.values[value].name}, layout});
}

// The dots of the cascade by the names that they have after their walk was cut into chunks.
void rename_parts(const LoopTree& tree, Factors& factors) {
  size_t next = 0;
  for_each_task(tree.phases.front(), [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Dot) factors.dots[next++].name = tree.values[task.target].name;
  });
}

// Tasks beside the dots have tiles of rows and columns only, as much as the threads can hold.
std::optional<Refusal> refuse_tiles(const LoopTree& tree, int64_t threads) {
  constexpr int64_t kMostElements = 128;  // of a thread, as the registers beside the dots permit
  std::optional<Refusal> out;
  for_each_task(tree.phases.front(), [&](const LoopTask& task, const auto& around) {
    if (task.kind == LoopTask::Kind::Stage || task.kind == LoopTask::Kind::Dot) return;
    std::set<size_t> axes = own_axes(tree, task);
    axes.insert(task.over.begin(), task.over.end());
    int64_t dims = 0, elements = 1;
    for (const size_t axis : axes)
      if (const auto extent = extent_in(tree, around, axis).as_constant(); extent != 1) {
        ++dims;
        elements *= extent.value_or(kMostElements * threads + 1);
      }
    if (dims > 2 || elements > kMostElements * threads)
      out = no_rule("what is beside the dots has other tiles than rows and columns");
  });
  return out;
}

// Deals what combines the chunks to the threads: each has neighbours in a row, as in the copies,
// and every so many chunks.
std::optional<Refusal> deal_chunks(Scheduled& out, int64_t threads) {
  size_t chunk = 0;
  for_each_task(out.tree.phases.back(), [&](const LoopTask& task, const auto&) {
    if (!task.over.empty()) chunk = task.over[0];
  });
  const int64_t chunks = planned_extent(out.tree, chunk);
  std::vector<std::pair<MadeName, Layout>> bound;
  std::optional<Refusal> refusal;
  std::optional<Columns> columns;
  const auto own = [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    std::vector<size_t> axes;
    for (const size_t axis : own_axes(out.tree, task))
      if (!extent_in(out.tree, around, axis).is_constant(1)) axes.push_back(axis);
    return axes;
  };
  for_each_task(out.tree.phases.back(), [&](const LoopTask& task, const auto& around) {
    for (const size_t axis : own(task, around)) {
      const auto extent = out.tree.axes[axis].extent.as_constant();
      if (axis == chunk || (columns && columns->extent == extent)) continue;
      if (columns || !extent)
        refusal = no_rule("what combines chunks has several kinds of columns");
      columns = dealt_columns(extent.value_or(1), threads);
    }
  });
  if (refusal) return refusal;
  if (!columns) columns = dealt_columns(1, threads);
  const int64_t lines = threads / columns->threads;
  if (chunks % lines != 0) return no_rule("there are fewer chunks than lines of threads");
  const Layout both = spread({chunks, columns->extent}, {lines, columns->threads}, columns->vector);
  for_each_task(out.tree.phases.back(), [&](const LoopTask& task, const auto& around) {
    Layout layout;
    const bool folds = contains(task.over, chunk);
    if (folds) layout.axes.push_back(both.axes[0]);
    if (!own(task, around).empty()) layout.axes.push_back(both.axes[1]);
    if (layout.axes.empty()) return;
    const bool value = task.makes_value();
    bound.push_back(
        {{value, value ? out.tree.values[task.target].name : out.tree.tensors[task.target].name},
         std::move(layout)});
  });
  for (auto& [made, layout] : bound)
    if (auto refused = take_legal(out, BindStep{made, std::move(layout)})) return refused;
  return std::nullopt;
}

std::optional<Refusal> take_warps(Scheduled& out, const Cascade& cascade, const Target& target,
                                  bool picks) {
  Factors factors;
  if (auto refusal = find_factors(out.tree, cascade, /*by_boxes=*/false, factors)) return refusal;
  const std::string rows = out.tree.axes[*cascade.rows].name,
                    walk = out.tree.axes[cascade.walk].name;
  const bool one_warp = has_rows_of_one_warp(out.tree, cascade);
  const auto tile = one_warp ? choose_one_warp(out.tree, cascade, factors, target)
                             : choose_warps(out.tree, cascade, factors, target);
  if (!tile) return no_rule("the sums or the copies of a turn do not fit into the machine");
  const int64_t chunks =
      one_warp ? count_chunks(out.tree, cascade, factors, *tile, target) : int64_t{1};
  const size_t values = out.tree.values.size();
  RowSteps row_steps{.cut = {SplitStep{{rows}, tile->rows(), true}, WholeStep{{rows, 2}}},
                     .dealt = {},
                     .one_tile = is_one_tile(out.tree, cascade, tile->rows())};
  if (row_steps.one_tile) row_steps.cut = {WholeStep{{rows}}};
  if (auto refusal = walk_in_turns(out, cascade, factors, std::move(row_steps), tile->turn, chunks,
                                   {kPlainRanges.turns, kPlainRanges.indices, picks}))
    return refusal;
  const bool has_chunks = out.tree.phases.size() > 1 && chunks > 1;
  if (has_chunks) rename_parts(out.tree, factors);
  if (auto refusal = refuse_tiles(out.tree, tile->threads())) return refusal;
  if (auto refusal = take_legal(out, RingStep{{walk}, tile->slots})) return refusal;
  for (const NamedDot& dot : factors.dots)
    if (auto refusal = take_legal(out, UnitStep{dot.name, Unit::Mma})) return refusal;
  if (!has_chunks) deal_tiles(out, cascade, factors.walked_bytes, target);
  // Rows are the first dimension of all tiles.
  const auto columns_of = [&](const std::string& dot) {
    std::vector<std::pair<std::string, int64_t>> columns;
    const size_t value = *find_value(out.tree, dot);
    const auto around = loops_around(out.tree, maker_of(out.tree, value));
    for (const size_t axis : out.tree.values[value].axes)
      if (const auto extent = extent_in(out.tree, around, axis).as_constant();
          extent != 1 && out.tree.axes[axis].name != rows)
        columns.emplace_back(out.tree.axes[axis].name, extent.value_or(0));
    return columns;
  };
  for (const NamedDot& dot : factors.dots)
    for (const auto& [axis, extent] : columns_of(dot.name))
      if ((has_chunks && !dot.is_first) || *find_axis(out.tree, axis) < *find_axis(out.tree, rows))
        out.take(LastStep{axis});
  const int64_t threads = tile->threads();
  const auto sums = [&](int64_t columns) {
    return warp_dot_layouts({tile->rows(), columns}, {threads / 4, 4}, 2, kHalfDotDepth).sums;
  };
  for (const NamedDot& dot : factors.dots) {
    const auto columns = columns_of(dot.name);
    if (columns.size() != 1) return no_rule("the sums of a dot have more than one axis of columns");
    if (auto refusal = take_legal(out, BindStep{{true, dot.name}, sums(columns[0].second)}))
      return refusal;
  }
  for (size_t value = values; value < out.tree.values.size(); ++value)
    if (out.tree.values[value].storage == Storage::Chip) bind_copy(out, value, threads);
  return has_chunks ? deal_chunks(out, threads) : std::nullopt;
}

}  // namespace

std::optional<Refusal> tile_cascade_for_gpu(Scheduled& out, const Target& target) {
  const auto found = find_cascade(out.tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  draw_factors(out);
  if (target.matrix_speed == 0)
    return no_rule("no rule can choose the steps for dots without a matrix unit");
  // Factors may be parts of one tensor, of which some are copied in the walk.
  read_apart(out);
  pad_sums(out, std::get<Cascade>(find_cascade(out.tree)));
  put_rows_first(out, std::get<Cascade>(find_cascade(out.tree)));
  // The tasks of the cascade stay those of the tree before the steps.
  const Scheduled before = out;
  const auto cascade = std::get<Cascade>(find_cascade(before.tree));
  // Where one warp multiplies the rows, and instances with whole walks leave multiprocessors idle,
  // the units of warps come first, whose walks are cut into chunks.
  const bool cuts = has_rows_of_one_warp(before.tree, cascade) &&
                    2 * instances_of(before.tree, cascade) <= target.cores;
  std::optional<Refusal> refused;
  if (cuts) {
    refused = take_warps(out, cascade, target, /*picks=*/false);
    if (!refused || !target.asynchronous_dots) return refused;
    out = before;
  }
  if (target.asynchronous_dots) {
    refused = take_with_picks(out, target, [&](Scheduled& tree, bool picks) {
      return take_asynchronous(tree, cascade, target, picks);
    });
    if (!refused || cuts) return refused;
    out = before;
  }
  auto refusal = take_with_picks(out, target, [&](Scheduled& tree, bool picks) {
    return take_warps(tree, cascade, target, picks);
  });
  if (!refusal) out.refused = std::move(refused);
  return refusal && refused ? refused : refusal;
}

}  // namespace braze
