// cascades_warps.cpp — cascades of dots on the matrix units of warps and on threads. All threads
// copy what the walk reads ahead, into a ring, and each warp has some of the rows.
//
// Matrix units take the results of the first dots as factors from the registers in which they were
// made. Threads that multiply f32 factors take them one by one, from a buffer on chip.
#include <algorithm>

#include "compiler/loops/cost.h"
#include "compiler/loops/rules/cascades_gpu.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/layouts.h"
#include "ir/code/dot_layouts.h"
#include "ir/support/text.h"
#include "ir/target/features.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

constexpr int64_t kSlots = 2;  // of the ring
// A plain program, which finds layouts by extents, takes integers from memory one by one.
constexpr WalkRanges kPlainRanges{128, 1};

// With 32 rows of a warp, each fragment of the other factor is multiplied twice, so shared memory
// keeps up with the units; with 16 rows, the sums of a thread take half of the registers.
struct WarpRows {
  int64_t warps, rows;  // rows of each warp
};
constexpr WarpRows kWarpRows[] = {{4, 32}, {8, 16}, {4, 16}, {2, 16}};
constexpr int64_t kMostWarpTurn = 64, kLeastWarpTurn = 32;
constexpr int64_t kOtherRegisters = 44;
constexpr int64_t kCopiedBytes = 16;  // of a thread at once; also the padding of rows on chip

// Figures of threads that multiply: the threads of a warp along rows and columns, the elements that
// each reads at once, and the registers of a thread besides sums and factors.
constexpr int64_t kThreadRows = 4, kThreadColumns = 8, kFloatVector = 4, kThreadRegisters = 64;

// What an instance walks in the time that a second phase takes to combine chunks.
constexpr int64_t kPhaseBytes = 64 << 10;
constexpr int64_t kMostChunks = 128;

// --- Matrix units of warps, and threads --------------------------------------------------------

// The rows of an instance, the turns of the walk, and the slots of its ring.
struct WarpTile {
  WarpRows shape;
  int64_t turn;
  int64_t slots = kSlots;
  CascadeUnit unit = CascadeUnit::Warps;
  int64_t rows() const { return shape.warps * shape.rows; }
  int64_t threads() const { return shape.warps * kWarpThreads; }
};

// Bytes of shared memory that an instance needs. Neighbours in memory lie side by side, with
// padding behind each line of them.
int64_t chip_bytes(const CascadeFactors& factors, const WarpTile& tile) {
  const int64_t element = factors.element_bytes;
  int64_t out = 0;
  for (const StagedFactor& s : factors.staged) {
    const int64_t rows = (s.in_walk ? tile.turn : 1) * (s.in_walk && !s.has_rows ? 1 : tile.rows());
    // A line across has neighbours along one axis only: the turn, or the rows of the tile.
    const int64_t neighbours = s.in_walk && s.has_rows ? std::min(tile.turn, tile.rows()) : rows;
    const int64_t lines = s.across ? s.row_bytes / element * (rows / neighbours) : rows,
                  line_bytes = s.across ? neighbours * element : s.row_bytes;
    out += lines * (line_bytes + kCopiedBytes) * (s.in_walk ? tile.slots : 1);
  }
  if (tile.unit == CascadeUnit::Threads)
    out += factors.made * tile.rows() * (tile.turn * element + kCopiedBytes);
  return out;
}

// The registers of a thread. What is made of the sums of the first dots lies beside them: a factor
// of 16 bits, and what several dots have in common. Threads that multiply have some elements of
// both factors as well.
int64_t registers_of(const CascadeFactors& factors, const WarpTile& tile) {
  const int64_t first = factors.first_dots;
  if (tile.unit == CascadeUnit::Threads) {
    const int64_t rows = tile.shape.rows / kThreadRows;
    return (factors.columns + first * tile.turn) / kThreadColumns * rows +
           (rows + tile.turn / kThreadColumns) * kFloatVector + kThreadRegisters;
  }
  const int64_t sums = factors.columns + first * tile.turn * (3 + 2 * first) / 4;
  return sums * tile.shape.rows / kWarpThreads + kOtherRegisters;
}

bool fits(const LoopTree& tree, const Cascade& cascade, const CascadeFactors& factors,
          const WarpTile& tile, const Target& target) {
  const bool alone = cascade.nest.size() == 1;  // whether the rows are the only loop on the grid
  if (alone && tree.axes[*cascade.rows].extent.is_constant(tile.rows())) return false;
  return chip_bytes(factors, tile) + 1024 <= target.l1_bytes &&
         registers_of(factors, tile) <= kMostThreadRegisters;
}

BlockNeeds needs_of(const CascadeFactors& factors, const WarpTile& tile) {
  return {.threads = tile.threads(),
          .registers = registers_of(factors, tile),
          .shared_bytes = chip_bytes(factors, tile)};
}

// The share of the rate of all multiprocessors that the threads reach with a tile.
double speed_of(const LoopTree& tree, const Cascade& cascade, const CascadeFactors& factors,
                const WarpTile& tile, const Target& target) {
  const int64_t rows_of_all = planned_extent(tree, *cascade.rows);
  const int64_t tiles = ceil_divide(rows_of_all, tile.rows());
  const double each =
      static_cast<double>(instances_of(tree, cascade) * tiles) / static_cast<double>(target.cores);
  const double full = static_cast<double>(rows_of_all) / static_cast<double>(tiles * tile.rows());
  const auto resident = static_cast<double>(resident_blocks(target, needs_of(factors, tile)));
  const double warps =
      static_cast<double>(tile.shape.warps) * std::clamp(each, 1.0, std::max(resident, 1.0));
  return full * std::min(each, 1.0) *
         tile_share(warps, static_cast<double>(tile.shape.rows / kThreadRows),
                    static_cast<double>(tile.turn / kThreadColumns));
}

// The tile with which threads multiply fastest, in turns that are as good as can be. A walk has
// more than one turn, or a turn that is not whole. Sums with as many columns as a turn has would
// have to lie in threads as a turn does (`thread_layout`).
std::optional<WarpTile> choose_threads(const LoopTree& tree, const Cascade& cascade,
                                       const CascadeFactors& factors, const Target& target) {
  constexpr int64_t kTurns[] = {32, 64, 16};
  std::optional<WarpTile> out;
  for (const int64_t turn : kTurns) {
    const bool as_many_columns = std::ranges::any_of(
        factors.dots, [&](const NamedDot& dot) { return !dot.is_first && dot.columns == turn; });
    if (as_many_columns || tree.axes[cascade.walk].extent.is_constant(turn)) continue;
    double best = 0;
    for (const WarpRows& shape : kWarpRows) {
      const WarpTile tile{shape, turn, kSlots, CascadeUnit::Threads};
      if (!fits(tree, cascade, factors, tile, target)) continue;
      const double speed = speed_of(tree, cascade, factors, tile, target);
      if (speed > best) out = tile;
      best = std::max(best, speed);
    }
    if (out) break;
  }
  return out;
}

// How the sums of a dot lie in the threads that multiply: 4 x 8 threads of a warp. Columns that run
// along the walk have no neighbours in a thread, so that the threads read rows of the other factor
// that begin in different banks; of all others a thread has neighbours, which it reads at once.
Layout thread_layout(const WarpTile& tile, int64_t columns) {
  const int64_t vectors = columns / kThreadColumns;
  const int64_t vector = columns == tile.turn ? 1 : std::min(kFloatVector, vectors & -vectors);
  return spread({tile.rows(), columns}, {tile.threads() / kThreadColumns, kThreadColumns}, vector);
}

// The first tile that fits the registers and the chip. A smaller one is better if there are too few
// rows for it, or if some multiprocessor would have no instance.
std::optional<WarpTile> choose_warps(const LoopTree& tree, const Cascade& cascade,
                                     const CascadeFactors& factors, const Target& target) {
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
                                        const CascadeFactors& factors, const Target& target) {
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
int64_t count_chunks(const LoopTree& tree, const Cascade& cascade, const CascadeFactors& factors,
                     const WarpTile& tile, const Target& target) {
  const int64_t resident = resident_blocks(target, needs_of(factors, tile));
  const int64_t instances =
      instances_of(tree, cascade) * ceil_divide(planned_extent(tree, *cascade.rows), tile.rows());
  int64_t index_bytes = 0;
  for (const StagedFactor& s : factors.staged)
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
// Extents that few threads divide would leave most of the copy to each of them.
std::optional<Refusal> bind_copy(Scheduled& out, size_t value, int64_t threads) {
  constexpr int64_t kMostCopied = 64;  // elements of a thread
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
  if (axes.size() != 2 || std::ranges::count(extents, 0) > 0) return std::nullopt;
  const LoopAxis& last = tree.axes[axes[1]];
  const LoopStep& load = task.body.steps[task.body.results[0]];
  if (!is_load(load)) return std::nullopt;
  const int64_t vector = std::min(
      vector_along({{load.source, linear_offset(load.at, tree.tensors[load.source].type.shape),
                     size_of(load.dtype)}},
                   last),
      extents[1] & -extents[1]);
  const int64_t vectors = extents[1] / vector, along = std::min(threads, vectors & -vectors);
  Layout layout = spread(extents, {threads / along, along}, vector);
  int64_t each = 1;
  for (const std::vector<Digit>& axis : layout.axes)
    for (const Digit& digit : axis)
      if (digit.resource == Resource::Register) each *= digit.extent;
  if (each > kMostCopied && each * threads > extents[0] * extents[1])
    return no_rule("few threads divide a copied factor");
  if (axes[0] > axes[1]) std::swap(layout.axes[0], layout.axes[1]);
  out.try_take(BindStep{{true, tree.values[value].name}, layout});
  return std::nullopt;
}

// The dots of the cascade by the names that they have after their walk was cut into chunks.
void rename_parts(const LoopTree& tree, CascadeFactors& factors) {
  size_t next = 0;
  for_each_task(tree.phases.front(), [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Dot) factors.dots[next++].name = tree.values[task.target].name;
  });
}

// What an instance copies for all turns of the walk must not be read along the walk as well, unless
// all turns are whole: the last one reads beyond the end of the copy.
std::optional<Refusal> refuse_walked_copies(const LoopTree& tree, const Cascade& cascade,
                                            const CascadeFactors& factors, int64_t turn) {
  const LoopAxis& walk = tree.axes[cascade.walk];
  if (walk.extent.is_multiple_of(turn)) return std::nullopt;
  bool walked = false;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    for (const LoopStep& s : task.body.steps)
      walked |= is_load(s) &&
                std::ranges::any_of(factors.staged,
                                    [&](const StagedFactor& staged) {
                                      return !staged.in_walk &&
                                             staged.tensor == tree.tensors[s.source].name;
                                    }) &&
                std::ranges::any_of(s.at, [&](const Expr& e) { return e.uses(walk.name); });
  });
  return walked ? std::optional(no_rule("a factor that is copied once is read along the walk, too"))
                : std::nullopt;
}

// Tasks beside the dots have tiles of rows and columns only, as much as the threads can hold, and
// with the columns of a turn or of a dot, whose layouts are bound.
std::optional<Refusal> refuse_tiles(const LoopTree& tree, const LoopRegion& phase,
                                    const std::string& rows, const CascadeFactors& factors,
                                    const WarpTile& tile) {
  constexpr int64_t kMostElements = 128;  // of a thread, as the registers beside the dots permit
  std::optional<Refusal> out;
  for_each_task(phase, [&](const LoopTask& task, const auto& around) {
    if (task.kind == LoopTask::Kind::Stage || task.kind == LoopTask::Kind::Dot) return;
    const std::set<size_t> axes = tile_axes(tree, task);
    const auto is_bound = [&](size_t axis, std::optional<int64_t> extent) {
      if (tree.axes[axis].name == rows) return true;
      return extent == tile.turn || std::ranges::any_of(factors.dots, [&](const NamedDot& dot) {
               return !dot.is_first && extent == dot.columns;
             });
    };
    int64_t dims = 0, elements = 1;
    bool bound = true;
    for (const size_t axis : axes)
      if (const auto extent = extent_in(tree, around, axis).as_constant(); extent != 1) {
        ++dims;
        bound = bound && is_bound(axis, extent);
        elements *= extent.value_or(kMostElements * tile.threads() + 1);
      }
    if (dims > 2 || !bound || elements > kMostElements * tile.threads())
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

}  // namespace

std::optional<Refusal> tile_cascade_by_warps(Scheduled& out, const Cascade& cascade,
                                             const Target& target, CascadeUnit unit, bool picks) {
  const bool threads_multiply = unit == CascadeUnit::Threads;
  CascadeFactors factors;
  if (auto refusal = find_factors(out.tree, cascade, unit, factors)) return refusal;
  if (threads_multiply && std::ranges::any_of(factors.dots, [](const NamedDot& dot) {
        return !dot.is_first && dot.columns % kThreadColumns != 0;
      }))
    return no_rule("the columns of a dot do not lie on the threads of a warp");
  const std::string rows = out.tree.axes[*cascade.rows].name,
                    walk = out.tree.axes[cascade.walk].name;
  const bool one_warp = has_rows_of_one_warp(out.tree, cascade);
  const auto tile = threads_multiply ? choose_threads(out.tree, cascade, factors, target)
                    : one_warp       ? choose_one_warp(out.tree, cascade, factors, target)
                                     : choose_warps(out.tree, cascade, factors, target);
  if (!tile) return no_rule("the sums or the copies of a turn do not fit into the machine");
  if (auto refusal = refuse_walked_copies(out.tree, cascade, factors, tile->turn)) return refusal;
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
  const LoopRegion& walked = has_chunks ? out.tree.phases.front() : out.tree.phases.back();
  if (auto refusal = refuse_tiles(out.tree, walked, rows, factors, *tile)) return refusal;
  if (auto refusal = take_legal(out, RingStep{{walk}, tile->slots})) return refusal;
  for (const NamedDot& dot : factors.dots)
    if (auto refusal =
            take_legal(out, UnitStep{dot.name, threads_multiply ? Unit::Fma : Unit::Mma}))
      return refusal;
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
    if (threads_multiply) return thread_layout(*tile, columns);
    return warp_dot_layouts({tile->rows(), columns}, {threads / 4, 4}, 2, kHalfDotDepth).sums;
  };
  for (const NamedDot& dot : factors.dots) {
    const auto columns = columns_of(dot.name);
    if (columns.size() != 1) return no_rule("the sums of a dot have more than one axis of columns");
    if (auto refusal = take_legal(out, BindStep{{true, dot.name}, sums(columns[0].second)}))
      return refusal;
  }
  for (size_t value = values; value < out.tree.values.size(); ++value)
    if (out.tree.values[value].storage == Storage::Chip)
      if (auto refusal = bind_copy(out, value, threads)) return refusal;
  return has_chunks ? deal_chunks(out, threads) : std::nullopt;
}

}  // namespace braze
