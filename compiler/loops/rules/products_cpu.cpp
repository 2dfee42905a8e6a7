// products_cpu.cpp — the rule for products on a CPU (sums whose factors run along different
// parallel axes): a block of sums in registers, one axis along vectors, and the summed axes walked
// in order.
//
// If it pays, the factors of the lanes are laid out in panels as wide as a block: by each task for
// itself, in its core's cache, or by an earlier phase for all cores, if several batches read them.
// Each tile of rows may lay its factors side by side in a core's cache too.
#include <algorithm>
#include <bit>
#include <cmath>

#include "compiler/loops/rules/factored_sums.h"
#include "compiler/loops/rules/panels_cpu.h"
#include "compiler/loops/rules/partial_sums.h"
#include "compiler/loops/rules/summed_nest.h"

namespace braze {

namespace {

constexpr double kInstanceOperations = 128e6;
constexpr double kMostOperationsUnrolled = 8;  // operations on an element of a block after its sum
// Panels of an instance, so that copies of rows are used again: of rows as they are, and of rows
// that are computed.
constexpr int64_t kLeastPanels = 4, kLeastPanelsOfComputed = 16;
constexpr int64_t kLeastStagedDepth = 16;  // copies of shorter rows cost more than they save
constexpr int64_t kNearTiles = 4;          // tiles between rows that count as near each other
constexpr int64_t kUnrolled = 4;
constexpr int64_t kLeastLanes = 4;
constexpr int64_t kLineElements = 16;  // of a memory line
constexpr double kPanelRows = 4;       // rows that take as long as reading a panel from a far cache
constexpr int64_t kTasksOfCore = 4;
// Rows that are read where they are: their lines are often far apart by the same distance, and a
// cache holds few of those at once.
constexpr int64_t kRowsInPlace = 8;
constexpr int64_t kPanelsInPlace = 2;  // of the other factor, for each of which rows are read
// Results of rows in place lie across the lanes, which shorter sums do not pay for.
constexpr int64_t kLeastDepthInPlace = 256, kDepthOfResult = 16;
constexpr int64_t kCopyVectors = 4;  // vectors of one step of a copy
// What a task that makes its own panels takes, beside its sums: to read or compute a row of the
// other factor takes as long as so many columns of sums, and to lay out a column, as it lies or
// transposed, as long as so many rows of them. Then the operations that could be done while a task
// is started, and the part of a task by which the last core ends after the others. (Fitted on
// products of 384 to 1024 rows on two cores.)
constexpr double kReadRowColumns = 8, kComputedRowColumns = 60;
constexpr double kPanelColumnRows = 14, kTransposedColumnRows = 40;
constexpr double kTaskOperations = 200e3, kBehind = 0.125;

// What a schedule must know about the factors along one axis.
struct Factors {
  size_t count = 0;
  bool computed = false;  // whether there are operations, at least a conversion or a choice
  bool across = false;    // whether they are contiguous along the innermost summed axis
  // The distance in memory of neighbours along the innermost summed axis. It exists if all factors
  // are plain loads with the same distance that may be contiguous along their own axis.
  std::optional<int64_t> step = 0;
  std::set<size_t> axes;
};

// `Factors::step` of one load.
std::optional<int64_t> step_of(const TreeAccess& load, const LoopAxis& inner, const LoopAxis& own) {
  const auto along = [&](const LoopAxis& axis) -> std::optional<int64_t> {
    const auto coefficient = load.offset.coefficient_of(axis.name);
    return coefficient ? coefficient->as_constant() : std::nullopt;
  };
  return along(own).value_or(1) == 1 ? along(inner) : std::nullopt;
}

// Whether vectors along an axis are read as they lie: neighbours are neighbours in memory, at least
// within a vector. Merged axes, such as heads and what each is wide, lie so in runs.
bool lies_along(const TreeAccess& load, const LoopAxis& axis, int64_t lanes) {
  if (load.stride(axis) == 1) return true;
  if (!axis.extent.is_multiple_of(lanes)) return false;
  const Expr lane = Expr::index("lane", lanes);
  const Expr first = Expr::index("vector", floordiv(axis.extent, lanes)) * lanes;
  const auto at = [&](const Expr& e) { return load.offset.substitute({{axis.name, e}}); };
  return at(first + lane) - at(first) == lane;
}

Factors facts_of(const LoopTree& tree, const FactoredSums& sums, size_t along, size_t without,
                 int64_t lanes) {
  Factors out;
  const LoopAxis &own = tree.axes[along], &inner = tree.axes[sums.summed.back()];
  for (const LoopBody& body : factors_of(tree, *sums.loop, along, without)) {
    ++out.count;
    int64_t lies = 0;
    for (const LoopStep& s : body.steps) {
      out.computed |= s.kind == LoopStep::Kind::Apply || !s.conditions.empty() || s.otherwise;
      if (s.kind != LoopStep::Kind::Load) continue;
      const TreeAccess load{s.source, linear_offset(s.at, tree.tensors[s.source].type.shape)};
      // What varies along one of the two only is read once for all of the other, and lies nowhere.
      if (load.stride(inner) != 0 && load.stride(own) != 0)
        lies += lies_along(load, inner, lanes) - (load.stride(own) == 1);
      const auto step = step_of(load, inner, own);
      out.step = step && out.step ? std::optional(std::max(*step, *out.step)) : std::nullopt;
    }
    out.across |= lies > 0;
    out.axes.merge(axes_used(tree, body));
  }
  if (out.computed) out.step.reset();
  return out;
}

// The sizes of blocks and tasks, and what is done with the factors.
struct Tiling {
  int64_t rows = 1, lanes = 1;  // of a block
  int64_t rows_of_task = 1, lanes_of_task = 1;
  // Blocks side by side may have an axis of their own, if the factor of the lanes lies in panels.
  std::optional<size_t> panels;
  int64_t panels_of_task = 1;
  // If the axis of the rows is short, a block has several indices of another axis, for each of
  // which it has all rows.
  std::optional<size_t> rows_beside;
  int64_t beside_of_block = 1;
  bool pack = false, stage = false;
  bool own_panels = false;    // whether each task makes its panels for itself
  bool rows_outside = false;  // whether a task walks its blocks row by row
  bool by_row = false;        // whether what follows takes one row of a block at a time
  bool rows_across = false, lanes_across = false;
  bool in_place = false;  // whether rows are read where they are
};

// The number of rows of a block: at most `most`, with the least cost for the whole extent.
int64_t rows_of_block(int64_t extent, int64_t most) {
  int64_t best = 1;
  double best_cost = 1e300;
  for (int64_t rows = 1; rows <= most; ++rows) {
    // Every block loads the factors of its lanes once, which costs as much as two rows.
    const double blocks = static_cast<double>((extent + rows - 1) / rows);
    const double cost = blocks * (static_cast<double>(rows) + 2.0);
    if (cost > best_cost) continue;
    best_cost = cost;
    best = rows;
  }
  return best;
}

// Whether neighbours along the axis read elements of one memory line.
bool shares_lines(const LoopTree& tree, const FactoredSums& sums, size_t axis) {
  for (const LoopStep& s : sums.sums[0]->body.steps) {
    if (s.kind != LoopStep::Kind::Load) continue;
    const auto step =
        linear_offset(s.at, tree.tensors[s.source].type.shape).coefficient_of(tree.axes[axis].name);
    const auto distance = step ? step->as_constant() : std::nullopt;
    if (distance && *distance > 0 && *distance < kLineElements) return true;
  }
  return false;
}

// Adds a second axis of rows to a block that has only few of them, if that reads the panels less
// often. The panels must be the same for all indices of this axis.
void take_rows_beside(const LoopTree& tree, const FactoredSums& sums, const Factors& of_lanes,
                      int64_t most_rows, Tiling& out) {
  if (!tree.axes[sums.rows].extent.is_constant(out.rows) || out.rows < 2) return;
  double best = static_cast<double>(out.rows) + kPanelRows;
  for (const size_t axis : sums.nest) {
    if (axis == sums.lanes || axis == sums.rows || of_lanes.axes.contains(axis)) continue;
    const int64_t extent = planned_extent(tree, axis);
    if (!tree.axes[axis].extent.as_constant()) continue;
    for (int64_t count = 2; count <= std::min(extent, most_rows / out.rows); ++count) {
      const auto blocks = static_cast<double>((extent + count - 1) / count);
      const double cost = blocks * (static_cast<double>(count * out.rows) + kPanelRows) /
                          static_cast<double>(extent);
      if (cost >= best) continue;
      best = cost;
      out.rows_beside = axis;
      out.beside_of_block = count;
    }
  }
}

// The size of the largest part, if `count` is divided into as few equal parts of at most `most` as
// possible.
int64_t shared(int64_t count, int64_t most) {
  const int64_t parts = (count + most - 1) / most;
  return (count + parts - 1) / parts;
}

// Whether few rows become the lanes. If both factors lie along what is summed, the lanes' one must
// be transposed into panels. For few rows this takes longer than the sums, while the other factor
// is small, and a block of rows reads the large one where it is.
bool has_few_rows_in_place(const LoopTree& tree, const FactoredSums& sums, const Target& target) {
  const int64_t lanes = target.vector_lanes(4), panel = target.panel_columns();
  const int64_t m = planned_extent(tree, sums.rows), n = planned_extent(tree, sums.lanes);
  const int64_t k = planned_extent(tree, sums.summed.back());
  if (!tree.axes[sums.rows].extent.as_constant()) return false;
  if (m < 2 || n < 2 * m || k < std::max(kLeastDepthInPlace, kDepthOfResult * m)) return false;
  // Of several panels, few lanes may be idle.
  const int64_t panels = (m + panel - 1) / panel;
  if (panels > kPanelsInPlace || (panels > 1 && 8 * m < 7 * panels * panel)) return false;
  const Factors of_lanes = facts_of(tree, sums, sums.lanes, sums.rows, lanes);
  const Factors of_rows = facts_of(tree, sums, sums.rows, sums.lanes, lanes);
  return of_lanes.across && !of_lanes.computed && of_lanes.count == 1 && of_rows.across;
}

// Blocks of a product, or of one of its tasks.
struct Blocks {
  int64_t rows = 1, lanes = 1;
};

// The sizes of a product, and what is known of its factors.
struct Product {
  int64_t rows = 1, lanes = 1, depth = 1;  // extents; the depth is that of all summed axes
  int64_t width = 1;                       // of a sum, in units of 4 bytes
  Factors of_rows, of_lanes;
  Blocks blocks;
  // All batches, and those with lanes' factors of their own.
  int64_t batches = 1, batches_of_lanes = 1;

  int64_t bytes(const Factors& factors) const {
    return static_cast<int64_t>(factors.count) * 4 * width;
  }
};

Product product_of_sums(const LoopTree& tree, const FactoredSums& sums, const Target& target) {
  const int64_t lanes = target.vector_lanes(4);
  Product out;
  out.rows = planned_extent(tree, sums.rows);
  out.lanes = planned_extent(tree, sums.lanes);
  out.depth = product_of(tree, sums.summed, [](size_t) { return true; });
  out.width = static_cast<int64_t>(
      std::max<size_t>(size_of(compute_type(body_dtype(*sums.sums.front()))) / 4, 1));
  out.of_rows = facts_of(tree, sums, sums.rows, sums.lanes, lanes);
  out.of_lanes = facts_of(tree, sums, sums.lanes, sums.rows, lanes);
  return out;
}

// Counts what a block does not hold.
void count_blocks(const LoopTree& tree, const FactoredSums& sums, const Tiling& block,
                  Product& out) {
  const auto is_batch = [&](size_t axis) {
    return axis != sums.lanes && axis != sums.rows && axis != block.rows_beside;
  };
  const int64_t besides = block.rows_beside ? planned_extent(tree, *block.rows_beside) : 1;
  out.blocks = {ceil_divide(out.rows, block.rows), ceil_divide(out.lanes, block.lanes)};
  out.batches = product_of(tree, sums.nest, is_batch) * ceil_divide(besides, block.beside_of_block);
  out.batches_of_lanes = product_of(tree, sums.nest, [&](size_t axis) {
    return is_batch(axis) && out.of_lanes.axes.contains(axis);
  });
}

// The blocks that are enough work for an instance.
int64_t blocks_of_instance(const Product& product, const Tiling& block) {
  const double work = 2.0 * static_cast<double>(block.lanes * block.rows * block.beside_of_block) *
                      static_cast<double>(product.depth);
  return std::max<int64_t>(static_cast<int64_t>(kInstanceOperations / work), 1);
}

// The tasks with which a product of so many blocks ends soonest if each makes its own panels, of at
// most `most_lanes` blocks of lanes.
Blocks tasks_with_own_panels(const Blocks& all, const Product& product, int64_t most_lanes,
                             const Tiling& block, const Target& target) {
  const double laid_out = block.lanes_across ? kTransposedColumnRows : kPanelColumnRows;
  const double read = product.of_rows.computed ? kComputedRowColumns : kReadRowColumns;
  const double start = kTaskOperations / (2.0 * static_cast<double>(product.depth));
  Blocks best;
  double best_time = 1e300;
  for (int64_t lanes = 1; lanes <= std::min(most_lanes, all.lanes); ++lanes)
    for (int64_t row_parts = 1; row_parts <= std::min(all.rows, kTasksOfCore * target.cores);
         ++row_parts) {
      const int64_t rows = ceil_divide(all.rows, row_parts);
      const double tasks = static_cast<double>(product.batches) *
                           static_cast<double>(ceil_divide(all.lanes, lanes)) *
                           static_cast<double>(ceil_divide(all.rows, rows));
      const auto columns = static_cast<double>(lanes * block.lanes);
      const double task =
          static_cast<double>(rows * block.rows) * (columns + read) + columns * laid_out + start;
      const double time = (std::ceil(tasks / target.cores) + kBehind) * task;
      if (time >= best_time) continue;
      best_time = time;
      best = {rows, lanes};
    }
  return best;
}

// The block of sums in registers.
Tiling choose_block(const LoopTree& tree, const FactoredSums& sums, const Product& product,
                    bool in_place, const Target& target) {
  const int64_t lanes = target.vector_lanes(4), n = product.lanes, m = product.rows;
  // The sums, one row of the lanes' factors and one splat must fit in the registers.
  const int64_t columns = n <= lanes || product.width > 1 ? 1
                          : m < 4                         ? 4
                                                          : target.panel_columns() / lanes;
  const int64_t used = columns * product.width;
  const int64_t most_rows = std::max<int64_t>((target.vector_registers - used - 1) / used, 1);
  Tiling out;
  out.in_place = in_place;
  out.lanes = lanes * columns;
  // A result narrower than a vector has vectors as wide as itself, so that it needs no masks.
  if (tree.axes[sums.lanes].extent.as_constant() && n < lanes)
    out.lanes =
        std::max(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))), kLeastLanes);
  out.rows = rows_of_block(m, in_place ? std::min(most_rows, kRowsInPlace) : most_rows);
  take_rows_beside(tree, sums, product.of_lanes, most_rows, out);
  return out;
}

// Decides whether the factors of the lanes are laid out in panels. This pays if the inner loop
// would read them badly or often: across the vectors, with operations on the way, or from an array
// that exceeds the second-level cache and whose rows are far apart. Rows that follow each other
// within a few tiles are already what a copy would be.
bool packs(const LoopTree& tree, const FactoredSums& sums, const Product& product,
           const Tiling& block, const Target& target) {
  const Factors& factors = product.of_lanes;
  const auto is_empty = [&](size_t axis) { return tree.axes[axis].extent.range().max == 0; };
  const int64_t reused = product.blocks.rows * product.batches / product.batches_of_lanes;
  if (reused <= 1 || factors.count == 0 || std::ranges::any_of(sums.summed, is_empty)) return false;
  if (factors.across) return true;
  const int64_t lanes = target.vector_lanes(4);
  const double size = static_cast<double>((product.lanes + lanes - 1) / lanes * lanes) *
                      static_cast<double>(product.depth * product.bytes(factors));
  const bool near =
      factors.step && *factors.step >= block.lanes && *factors.step <= kNearTiles * block.lanes;
  return (size > static_cast<double>(target.l2_bytes) / 4 || factors.computed) && !near &&
         reused >= 4;
}

// Gives each task its own panels, if no other batch reads them. They stay in its core's cache,
// where it reads them for all of its rows, which it takes where they are. Returns whether that is
// possible.
bool take_own_panels(const LoopTree& tree, const FactoredSums& sums, const Product& product,
                     const Target& target, Tiling& out) {
  const int64_t bytes = out.lanes * product.depth * product.bytes(product.of_lanes);
  const int64_t most = target.l2_bytes / 2 / std::max<int64_t>(bytes, 1);
  if (!out.pack || product.lanes < out.lanes || product.batches_of_lanes != product.batches ||
      out.panels || out.rows_beside || out.in_place || most == 0)
    return false;
  Blocks all = product.blocks;
  // Tasks must suffice for fewer rows than there can be, too.
  if (!tree.axes[sums.rows].extent.as_constant())
    all.rows = std::min(all.rows, blocks_of_instance(product, out));
  const Blocks task = tasks_with_own_panels(all, product, most, out, target);
  out.own_panels = out.rows_outside = true;
  out.rows_of_task = task.rows * out.rows;
  out.lanes_of_task = task.lanes * out.lanes;
  out.stage = out.rows > 1 && product.of_rows.count > 0 &&
              (product.of_rows.computed || !product.of_rows.across);
  return true;
}

// Chooses tasks that read panels which all cores share, or the factors of the lanes as they are.
// Tasks should suffice for all cores, and each should have enough work. A panel serves all rows of
// a task, so their copies and the panel should lie in the second-level cache.
void share_panels(const LoopTree& tree, const Product& product, const Target& target, Tiling& out) {
  const Blocks& all = product.blocks;
  const int64_t batches = product.batches,
                row_bytes = out.rows * out.beside_of_block * product.depth * 4 * product.width;
  const int64_t by_cores =
      std::max<int64_t>(all.rows * all.lanes * batches / (16 * target.cores), 1);
  const int64_t each = std::min(blocks_of_instance(product, out), by_cores);
  const int64_t by_cache = target.l2_bytes / 4 / std::max<int64_t>(row_bytes, 1);
  int64_t panels = product.of_rows.computed ? kLeastPanelsOfComputed : kLeastPanels;
  while (panels > kLeastPanels &&
         all.rows * batches * ((all.lanes + panels - 1) / panels) < kTasksOfCore * target.cores)
    panels /= 2;
  const int64_t beside = out.panels ? planned_extent(tree, *out.panels) : all.lanes;
  const int64_t least = out.rows == 1 ? 1 : std::min(panels, beside);
  // If all panels stay in the cache, a task takes all of them and stores whole rows.
  const int64_t panel_bytes = out.lanes * product.depth * 4 * product.width;
  const int64_t kept_bytes = target.l2_bytes / 4;
  const bool takes_all = beside <= each && beside * panel_bytes <= kept_bytes;
  const int64_t rows_in_task = shared(
      all.rows, std::max<int64_t>(takes_all ? each / beside : std::min(each / least, by_cache), 1));
  const int64_t lanes_in_task = shared(beside, std::max(each / rows_in_task, least));
  (out.panels ? out.panels_of_task : out.lanes_of_task) = lanes_in_task;
  out.lanes_of_task *= out.lanes;
  out.rows_of_task = rows_in_task * out.rows;
  const Factors& rows = product.of_rows;
  out.stage = out.rows > 1 && !out.in_place && (lanes_in_task > 1 || rows.computed) &&
              product.depth >= kLeastStagedDepth && rows.count > 0 &&
              row_bytes * static_cast<int64_t>(rows.count) <= target.l3_bytes / 8;
  // If the panels of a task stay in the cache, all of them take one block of rows after the other,
  // so that results are stored row by row. Copies with the rows side by side are as wide as a
  // block, so that each line of them serves one block, and rows that are read where they are stay
  // in the cache from panel to panel.
  out.rows_outside =
      lanes_in_task * panel_bytes <= kept_bytes || out.in_place || (out.stage && !rows.across);
}

Tiling choose_tiling(const LoopTree& tree, const FactoredSums& sums, bool in_place,
                     const Target& target) {
  Product product = product_of_sums(tree, sums, target);
  Tiling out = choose_block(tree, sums, product, in_place, target);
  count_blocks(tree, sums, out, product);
  const auto is_beside = [&](size_t axis) {
    return axis != sums.lanes && axis != sums.rows && axis != out.rows_beside &&
           product.of_lanes.axes.contains(axis) && !product.of_rows.axes.contains(axis);
  };
  if (product.blocks.lanes == 1)
    for (const size_t axis : sums.nest)
      if (is_beside(axis)) out.panels = axis;
  out.lanes_across = product.of_lanes.across;
  out.rows_across = product.of_rows.across;
  out.by_row = out.rows > 1 && !in_place && operations_after(tree) > kMostOperationsUnrolled;
  out.pack = packs(tree, sums, product, out, target);
  if (!take_own_panels(tree, sums, product, target, out)) share_panels(tree, product, target, out);
  return out;
}

// --- Steps --------------------------------------------------------------------------------------

// The axes by name, because steps change their numbers.
struct Names {
  std::vector<std::string> batch, summed;
  std::string rows, lanes;
  std::optional<std::string> rows_beside, panels;  // the former is one of `batch`
};

// Which loops `cut` made for an axis.
struct Levels {
  bool tasks = false, blocks = false;
  int64_t count() const { return tasks + blocks; }
};

// Cuts an axis into tasks, the blocks of a task, and the tile of a block.
Levels cut(Scheduled& out, const std::string& axis, int64_t of_task, int64_t block) {
  const Expr extent = axis_of(out.tree, axis).extent;
  Levels made;
  if (extent.range().max > of_task) {
    out.take(SplitStep{{axis}, of_task});
    made.tasks = true;
  }
  const bool one = made.tasks ? of_task == block : extent.is_constant(block);
  if (!one) {
    out.take(SplitStep{{axis, made.count() + 1}, block, /*padded=*/true});
    made.blocks = true;
  }
  out.take(WholeStep{{axis, made.count() + 1}});
  return made;
}

// Cuts the axis of panels into tasks. A block is one panel.
Levels cut_panels(Scheduled& out, const std::string& axis, int64_t of_task) {
  const bool tasks = axis_of(out.tree, axis).extent.range().max > of_task;
  if (tasks && of_task > 1) out.take(SplitStep{{axis}, of_task});
  return {.tasks = tasks, .blocks = !tasks || of_task > 1};
}

// Cuts the copy of a value into steps along an axis. Whole steps need no masks.
void cut_copy(Scheduled& out, const std::string& value, const std::string& axis, int64_t step) {
  const LoopAxis along = axis_of(out.tree, axis);
  if (along.extent.range().max <= step) return;
  out.take(SlabsStep{{true, value}, axis, step});
  if (step == 1 || along.extent.is_multiple_of(step)) return;
  const auto copy = loop_over(out.tree, axis, [&](const Loop& loop) {
    return loop.levels[0].turn == step && loop.parts.empty();
  });
  out.take(PartStep{*copy, before_end(along)});
}

// Copies the factors of a tile of rows into the cache of a core: with the rows side by side if they
// are contiguous along the summed axis, and unchanged otherwise.
void stage_rows(Scheduled& out, const Names& names, const Tiling& tiling, const LoopName& at,
                const Target& target) {
  const size_t before = out.tree.values.size();
  if (!out.try_take(FactorStep{sum_loop(out, names.summed[0]).value(), names.rows, names.lanes, at,
                               /*transposed=*/!tiling.rows_across}))
    return;
  for (size_t v = before; v < out.tree.values.size(); ++v) {
    const std::string value = out.tree.values[v].name;
    out.take(KeepStep{value, Storage::Chip});
    const int64_t most = kCopyVectors * target.vector_lanes(4);
    for (const std::string& axis : names_of(out.tree, out.tree.values[v].axes)) {
      const bool vectors = tiling.rows_across && axis == names.summed.back();
      if (tiling.rows_across || axis != names.rows) cut_copy(out, value, axis, vectors ? most : 1);
    }
  }
}

// Makes the panels that a turn of a loop needs, at its top. Returns whether that is possible.
bool make_own_panels(Scheduled& out, const Names& names, const Tiling& tiling, const LoopName& at,
                     const Target& target) {
  const size_t before = out.tree.values.size();
  if (!out.try_take(FactorStep{sum_loop(out, names.summed[0]).value(), names.lanes, names.rows, at,
                               /*transposed=*/true, tiling.lanes}))
    return false;
  const int64_t turn = tiling.lanes_across ? target.vector_lanes(4) : 1;
  for (size_t v = before; v < out.tree.values.size(); ++v) {
    const std::string value = out.tree.values[v].name;
    out.take(KeepStep{value, Storage::Chip});
    if (tiling.lanes_of_task > tiling.lanes) cut_copy(out, value, names.lanes, tiling.lanes);
    for (const std::string& axis : names_of(out.tree, out.tree.values[v].axes))
      if (axis != names.lanes) cut_copy(out, value, axis, axis == names.summed.back() ? turn : 1);
  }
  return true;
}

void take_steps(Scheduled& out, const FactoredSums& sums, const Tiling& tiling,
                const Target& target) {
  Names names;
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  names.rows = name(sums.rows);
  names.lanes = name(sums.lanes);
  names.summed = names_of(out.tree, sums.summed);
  if (tiling.panels) names.panels = name(*tiling.panels);
  // Batches that share memory lines come last, so that a task finds them in its cache.
  for (const bool shared : {false, true})
    for (const size_t axis : sums.nest)
      if (axis != sums.rows && axis != sums.lanes && axis != tiling.panels &&
          shares_lines(out.tree, sums, axis) == shared)
        names.batch.push_back(name(axis));
  if (tiling.rows_beside) names.rows_beside = name(*tiling.rows_beside);
  std::vector<std::string> values;
  for (const LoopTask* sum : sums.sums) values.push_back(out.tree.values[sum->target].name);
  const std::string store = out.tree.tensors[sums.stores[0]->target].name;

  std::vector<std::string> order = names.batch;
  order.push_back(names.rows);
  if (names.panels) order.push_back(*names.panels);
  order.push_back(names.lanes);
  sort_nest(out, sums.nest, order);
  if (sums.rows > sums.lanes) out.take(LastStep{names.lanes});
  if (tiling.pack && tiling.lanes_across) out.take(LastStep{names.summed.back()});
  if (names.rows_beside) {
    if (axis_of(out.tree, *names.rows_beside).extent.is_constant(tiling.beside_of_block)) {
      out.take(WholeStep{{*names.rows_beside}});
      std::erase(names.batch, *names.rows_beside);
    } else {
      out.take(SplitStep{{*names.rows_beside}, tiling.beside_of_block, /*padded=*/true});
      out.take(WholeStep{{*names.rows_beside, 2}});
    }
  }
  const Levels rows = cut(out, names.rows, tiling.rows_of_task, tiling.rows);
  Levels lanes = cut(out, names.lanes, tiling.lanes_of_task, tiling.lanes);
  if (names.panels) lanes = cut_panels(out, *names.panels, tiling.panels_of_task);
  const std::string beside = names.panels.value_or(names.lanes);
  const LoopName row_blocks{names.rows, rows.count()}, lane_blocks{beside, lanes.count()};
  if (rows.blocks && lanes.tasks) out.take(ReorderStep{row_blocks, {beside}});
  std::vector<LoopName> grid;
  for (const std::string& axis : names.batch) grid.push_back({axis});
  if (rows.tasks) grid.push_back({names.rows});
  if (lanes.tasks) grid.push_back({beside});
  const bool rows_outside = tiling.own_panels || tiling.in_place ||
                            (tiling.stage && (tiling.rows_outside || grid.empty()));
  if (rows.blocks && lanes.blocks && !rows_outside) out.take(ReorderStep{row_blocks, lane_blocks});
  deal_out(out, grid);
  out.take(UnrollStep{{names.summed.back()}, kUnrolled});
  if (tiling.by_row) {
    for (const std::string& value : values) out.try_take(KeepStep{value, Storage::Chip});
    out.try_take(SlabsStep{{false, store}, names.rows, 1, /*beside=*/true});
  }
  // Whole blocks need no masks.
  const LoopAxis lane = axis_of(out.tree, names.lanes);
  if (!lane.extent.is_multiple_of(tiling.lanes) && lanes.count() > 0 && !names.panels)
    out.take(PartStep{lane_blocks, before_end(lane)});
  const bool made =
      tiling.own_panels && !grid.empty() && make_own_panels(out, names, tiling, grid[0], target);
  if (tiling.stage && (rows.blocks || !grid.empty()))
    stage_rows(out, names, tiling, rows.blocks && rows_outside ? row_blocks : grid[0], target);
  if (tiling.pack && !made)
    pack_lanes(out, names.summed, {names.lanes, names.rows, tiling.lanes, tiling.lanes_across},
               target);
}

}  // namespace

std::optional<Refusal> tile_products_for_cpu(Scheduled& out, const Target& target) {
  join_axes(out);
  join_digits(out, target.vector_lanes(4));
  flatten_tensors(out);  // so that coordinates have no digits
  const LoopTree tree = out.tree;
  auto found = find_factored_sums(tree);
  if (auto* refusal = std::get_if<Refusal>(&found)) return std::move(*refusal);
  auto& sums = std::get<FactoredSums>(found);
  const bool in_place = has_few_rows_in_place(tree, sums, target);
  if (in_place) std::swap(sums.rows, sums.lanes);
  take_steps(out, sums, choose_tiling(tree, sums, in_place, target), target);
  sum_in_parts(out);
  mark_streaming(out, target);
  return std::nullopt;
}

}  // namespace braze
