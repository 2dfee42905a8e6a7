// products.cpp — the rule for dots on asynchronous matrix units whose factors are in memory, with
// what follows them.
//
// A persistent grid of blocks walks the tiles of the results. One role copies the factors to a ring
// of slots. Two groups of the other role multiply half a tile each and then do what follows, slab
// by slab: with sums in registers or, if much follows, row by row with a slab of sums on chip.
// Several dots over the same axes share the factors that they have in common.
//
// The matrix unit always takes 64 rows, but any multiple of 8 columns. If the results have few
// rows, rows and columns are therefore exchanged: the tile has the long axis as its rows and all of
// the short one as its columns, and each factor is copied once. If there are then few tiles, the
// blocks of a cluster share the depth of one. The estimated time decides.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ranges>

#include "compiler/loops/cost.h"
#include "compiler/loops/rules/asynchronous.h"
#include "compiler/loops/rules/factored_sums.h"
#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/rules/summed_nest.h"
#include "ir/code/boxes.h"
#include "ir/target/features.h"

namespace braze {

namespace {

using asynchronous::kGroupRows;
using asynchronous::kGroups;
using asynchronous::kPanelBytes;
using asynchronous::kSlab;
constexpr int64_t kRows = kGroups * kGroupRows;  // rows of a tile
constexpr int64_t kMostColumns = 256;            // columns of all sums of a group
constexpr int64_t kLeastColumns = 128;           // columns of each of several products
constexpr int64_t kColumnMultiple = 8;           // of the columns that the unit multiplies at once
constexpr int64_t kMostSlots = 8, kLeastSlots = 2;
constexpr int64_t kCopyRegisters = 40, kGroupRegisters = 232;
constexpr int64_t kBarrierBytes = 1024;
constexpr int64_t kMostRoom = 8;      // cores that are left to others
constexpr int64_t kThreads = 128;     // threads of a group
constexpr int64_t kAccessBytes = 16;  // bytes that a thread accesses at once
// If more operations than this follow each sum, the code is not unrolled for all sums of a thread:
// it would exceed the cache of instructions and take long to compile.
constexpr double kMostUnrolled = 12;
// Pairs of blocks must be estimated to take less than this share of the time of single ones,
// besides what it takes them to begin together. With many rows beyond the end they were slower than
// estimated.
constexpr double kClearly = 0.95, kPairSeconds = 1e-6, kMostRows = 1.25;

struct Products : SummedNest {
  std::vector<const LoopTask*> dots;
  // Parallel axes of the factor that has the rows, the outermost first.
  std::vector<size_t> row_axes;
  size_t rows = 0, columns = 0;
  bool swap = false;       // whether the right factor has the rows
  bool exchanged = false;  // whether the results are contiguous along the rows
};

bool lies_along(const Expr& e, const LoopAxis& axis) {
  const auto slope = e.coefficient_of(axis.name);
  return slope && slope->is_constant(1);
}

// Whether the last dimension of a load runs along an axis, or along whole panels of it: rows may be
// composed of several axes, of which the inner one is the last dimension.
bool lies_in_panels(const LoopTree& tree, const LoopStep& load, size_t axis) {
  const LoopAxis& own = tree.axes[axis];
  if (lies_along(load.at.back(), own)) return true;
  const auto extent = own.extent.as_constant();
  if (!extent) return false;
  std::vector<Expr> at;
  for (const Expr& e : load.at)
    at.push_back(e.substitute(own.name, position_symbol('d', 0, *extent)));
  return has_panel_boxes(at, {*extent}, kPanelBytes / static_cast<int64_t>(size_of(load.dtype)));
}

std::optional<Refusal> find_tasks(const LoopTree& tree, Products& out) {
  auto found = find_summed_nest(tree);
  if (auto* refusal = std::get_if<Refusal>(&found)) return std::move(*refusal);
  static_cast<SummedNest&>(out) = std::move(std::get<SummedNest>(found));
  for (const LoopItem& item : *out.inside) {
    const auto* task = std::get_if<LoopTask>(&item);
    if (!task || task->kind != LoopTask::Kind::Dot)
      return no_rule("the terms of the sum are not products of two factors");
    out.dots.push_back(task);
  }
  return std::nullopt;
}

bool has_computed_coordinates(const LoopTask& task) {
  const auto is_computed = [](const Expr& e) {
    return std::ranges::any_of(
        e.symbols(), [](const std::string& symbol) { return loaded_step(symbol).has_value(); });
  };
  return std::ranges::any_of(task.at, is_computed) ||
         std::ranges::any_of(task.body.steps, [&](const LoopStep& s) {
           return std::ranges::any_of(s.at, is_computed);
         });
}

// The axis among `axes` along which most stored bytes are contiguous, if there is one.
std::optional<size_t> stored_along(const LoopTree& tree, const Products& products,
                                   const std::vector<size_t>& axes) {
  std::optional<size_t> best;
  size_t most = 0;
  for (const size_t axis : axes) {
    if (planned_extent(tree, axis) < kColumnMultiple) continue;
    size_t bytes = 0;
    for (const LoopTask* store : products.stores)
      if (lies_along(store->at.back(), tree.axes[axis]))
        bytes += size_of(tree.tensors[store->target].type.dtype);
    if (bytes > most) best = axis;
    most = std::max(most, bytes);
  }
  return best;
}

// The longest of the axes; among equals, the innermost.
size_t longest(const LoopTree& tree, const std::vector<size_t>& axes) {
  return *std::ranges::max_element(std::views::reverse(axes), {},
                                   [&](size_t a) { return planned_extent(tree, a); });
}

// `rows` names the axis of which the rows were composed. Without one, the longest axis has the
// rows.
std::variant<Products, Refusal> find_products(const LoopTree& tree, const std::string& rows = "") {
  Products out;
  if (auto refusal = find_tasks(tree, out)) return *refusal;
  if (out.stores.empty()) return no_rule("no store follows the product");
  for (const LoopTask* store : out.stores)
    if (store->at.empty()) return no_rule("a result has no dimensions");
  for (const LoopAxis& axis : tree.axes)
    if (axis.extent.range().min < 1) return no_rule("an axis may be empty");
  // Threads of roles cannot compute their own coordinates.
  for (const LoopTask* store : out.stores)
    if (has_computed_coordinates(*store))
      return no_rule("a store has a computed coordinate, which threads of roles cannot have");
  // The parallel axes that only one factor has. They must be the same in all dots.
  std::vector<size_t> own[2];
  for (const LoopTask* dot : out.dots) {
    const std::set<size_t> left = axes_of_factor(tree, *dot, 0),
                           right = axes_of_factor(tree, *dot, 1);
    std::vector<size_t> apart[2];
    for (const size_t axis : out.nest)
      if (left.contains(axis) != right.contains(axis))
        apart[right.contains(axis) ? 1 : 0].push_back(axis);
    if (dot != out.dots.front() && (apart[0] != own[0] || apart[1] != own[1]))
      return no_rule("the products run along different axes");
    own[0] = apart[0];
    own[1] = apart[1];
  }
  // Products that share no factor would only take each other's room.
  const auto factor_of = [&](const LoopTask* dot, size_t factor) -> const LoopStep& {
    return dot->body.steps[dot->body.results[factor]];
  };
  const auto shared = [&](size_t factor) {
    const LoopStep& first = factor_of(out.dots[0], factor);
    return std::ranges::all_of(out.dots, [&](const LoopTask* dot) {
      const LoopStep& s = factor_of(dot, factor);
      return s.kind == LoopStep::Kind::Load && s.source == first.source && s.at == first.at;
    });
  };
  if (out.dots.size() > 1 && !shared(0) && !shared(1))
    return no_rule("the products share no factor");
  if (own[0].empty() || own[1].empty())
    return no_rule("a factor has no axis of its own, so nothing is read twice");
  std::vector<size_t> both = own[0];
  both.insert(both.end(), own[1].begin(), own[1].end());
  out.columns = stored_along(tree, out, both).value_or(longest(tree, own[1]));
  out.swap = contains(own[0], out.columns);
  out.row_axes = own[out.swap ? 1 : 0];
  out.rows = find_axis(tree, rows).value_or(longest(tree, out.row_axes));
  return out;
}

// If a factor reads every second, third, .. element along an axis of tiles, splits the dimension
// into residues, so that it reads neighbours. The axes of tiles are those of the rows, the columns,
// and `summed`.
void take_residues(Scheduled& out, const Products& products, const std::vector<size_t>& summed) {
  std::vector<ResiduesStep> steps;
  std::vector<size_t> tiled = products.row_axes;
  tiled.push_back(products.columns);
  tiled.insert(tiled.end(), summed.begin(), summed.end());
  for (const LoopTask* dot : products.dots)
    for (const uint32_t result : dot->body.results) {
      const LoopStep& load = dot->body.steps[result];
      if (load.kind != LoopStep::Kind::Load) continue;
      // The last dimension comes first, because a step does not change the numbers of those before
      // it.
      for (size_t d = load.at.size(); d-- > 0;)
        for (const size_t axis : tiled) {
          const auto slope = load.at[d].coefficient_of(out.tree.axes[axis].name);
          const int64_t stride = slope ? slope->as_constant().value_or(0) : 0;
          if (stride > 1 && d + 1 < load.at.size())
            steps.push_back({out.tree.tensors[load.source].name, static_cast<int64_t>(d), stride});
        }
    }
  for (const ResiduesStep& step : steps) out.try_take(step);
}

// The rows of a tile as a box: powers of two of several axes, chosen so that tiles reach beyond the
// ends of axes as little as possible. Among equal boxes, the one that is longest along the inner
// axes wins. The list is empty if one axis serves as well.
std::vector<AxisTurn> choose_box(const LoopTree& tree, const std::vector<size_t>& axes) {
  constexpr double kWorth = 0.95;  // share of the tiles that a box may need at most
  double alone = HUGE_VAL, best = HUGE_VAL;
  std::vector<int64_t> turns(axes.size(), 1), chosen;
  const std::function<void(size_t, int64_t)> choose = [&](size_t n, int64_t left) {
    const bool last = n + 1 == axes.size();
    for (int64_t turn = last ? left : 1; turn <= left; turn *= 2) {
      turns[n] = turn;
      if (!last) {
        choose(n + 1, left / turn);
        continue;
      }
      double tiles = 1;
      for (size_t i = 0; i < axes.size(); ++i)
        tiles *= std::ceil(static_cast<double>(planned_extent(tree, axes[i])) /
                           static_cast<double>(turns[i]));
      if (std::ranges::count(turns, 1) + 1 == std::ssize(turns)) alone = std::min(alone, tiles);
      if (tiles >= best) continue;
      best = tiles;
      chosen = turns;
    }
  };
  choose(0, kRows);
  std::vector<AxisTurn> out;
  if (best > kWorth * alone) return out;
  for (size_t i = 0; i < axes.size(); ++i)
    if (chosen[i] > 1) out.push_back({chosen[i], tree.axes[axes[i]].name});
  return out;
}

// If one axis does not fill tiles, composes the rows of several axes, and returns the name of the
// new axis; otherwise returns nothing.
std::string compose_rows(Scheduled& out, const Products& products) {
  if (contains(products.row_axes, products.columns) || products.row_axes.size() < 2) return "";
  ComposeStep step{unused_axis(out.tree, "p"), choose_box(out.tree, products.row_axes)};
  const std::string name = step.composed;
  return !step.digits.empty() && out.try_take(std::move(step)) ? name : "";
}

// What a turn sums, as a box of summed axes: powers of two that divide their extents, as long as
// possible along the inner axes. None if there are no such numbers. The innermost axis is always
// among them, so that the box is the innermost sum, and alone if it serves.
std::vector<AxisTurn> choose_sums(const LoopTree& tree, const Products& products, int64_t depth) {
  std::vector<AxisTurn> out;
  for (const size_t axis : std::views::reverse(products.summed)) {
    int64_t turn = 1;
    while (turn < depth && tree.axes[axis].extent.is_multiple_of(2 * turn)) turn *= 2;
    depth /= turn;
    out.insert(out.begin(), {turn, tree.axes[axis].name});
    if (depth == 1) break;
  }
  return depth == 1 ? out : std::vector<AxisTurn>();
}

// The tensors that are copied for a turn, each once.
struct Factors {
  std::vector<std::string> tensors;
  int64_t depth = 0;        // indices of the innermost summed axis in a turn
  int64_t slot_panels = 0;  // rows and columns of all panels of a slot
};

// How many elements a row of a panel has.
int64_t panel_elements(const LoopStep& load) {
  return kPanelBytes / static_cast<int64_t>(size_of(load.dtype));
}

// What is copied if a turn sums `depth` indices of the innermost summed axis.
std::variant<Factors, Refusal> find_factors(const LoopTree& tree, const Products& products,
                                            int64_t rows, int64_t columns, int64_t depth) {
  Factors out{.tensors = {}, .depth = depth};
  const size_t along = products.summed.back();
  const LoopStep& first = products.dots[0]->body.steps[products.dots[0]->body.results[0]];
  for (const LoopTask* dot : products.dots)
    for (size_t factor = 0; factor < 2; ++factor) {
      const LoopStep& load = dot->body.steps[dot->body.results[factor]];
      if (load.kind != LoopStep::Kind::Load)
        return no_rule("a factor is computed, so it cannot be copied from memory");
      if (!is_half(load.dtype) && !(load.dtype == DType::F32 && dot->tf32))
        return no_rule("asynchronous products have factors of 16 bits, or may round to tf32");
      if (tree.tensors[load.source].mode != Mode::In)
        return no_rule("a factor's memory is written");
      const int64_t panel = panel_elements(load);
      if (panel != panel_elements(first))
        return no_rule("the factors have dtypes of different sizes");
      const bool is_left = (factor == 0) != products.swap;
      const size_t own = is_left ? products.rows : products.columns;
      if (auto refusal = refuse_copies(tree, load, {own, along}, along, depth)) return *refusal;
      const bool last = lies_along(load.at.back(), tree.axes[along]);
      if (!last && !lies_in_panels(tree, load, own))
        return no_rule("a factor is not contiguous along an axis of its tile");
      if (!last && load.dtype == DType::F32)
        return no_rule("a factor that is rounded to tf32 must be contiguous along the summed axis");
      const std::string& name = tree.tensors[load.source].name;
      const bool known =
          std::ranges::count(out.tensors, name) > 0 &&
          std::ranges::any_of(products.dots, [&](const LoopTask* other) {
            const LoopStep& same = other->body.steps[other->body.results[factor]];
            return &same != &load && same.source == load.source && same.at == load.at;
          });
      // Panels lie along the summed axis, or across it.
      const int64_t lines = is_left ? rows : columns;
      if (!known)
        out.slot_panels +=
            last ? ceil_divide(depth, panel) * lines : ceil_divide(lines, panel) * depth;
      if (std::ranges::count(out.tensors, name) == 0) out.tensors.push_back(name);
    }
  return out;
}

// With turns of whole panels; where the memory of a factor goes on beyond the end of the summed
// axis, with a divisor of its extent, or with all of it.
std::variant<Factors, Refusal> find_factors(const LoopTree& tree, const Products& products,
                                            int64_t rows, int64_t columns) {
  const LoopStep& first = products.dots[0]->body.steps[products.dots[0]->body.results[0]];
  const int64_t panel = panel_elements(first);
  auto out = find_factors(tree, products, rows, columns, panel);
  const auto extent = tree.axes[products.summed.back()].extent.as_constant();
  if (std::holds_alternative<Factors>(out) || !extent) return out;
  const int64_t step = kWgmmaBytes / static_cast<int64_t>(size_of(first.dtype));
  std::vector<int64_t> depths;
  for (int64_t depth = panel - step; 2 * depth >= panel; depth -= step)
    if (*extent % depth == 0) depths.push_back(depth);
  if (*extent % step == 0 && *extent <= 2 * panel) depths.push_back(*extent);
  for (const int64_t depth : depths)
    if (auto other = find_factors(tree, products, rows, columns, depth);
        std::holds_alternative<Factors>(other))
      return other;
  return out;
}

// The shape of the tiles.
struct Tiling {
  int64_t rows = kRows, columns = 128, slots = 0;
  int64_t ranks = 1;         // blocks of a cluster that share the depth of a tile
  int64_t blocks = 1;        // blocks of a cluster with neighbouring tiles, which share one factor
  int64_t rows_at_once = 0;  // rows of a slab that what follows takes at once; 0: all, in registers
  int64_t band = 0;          // rows of tiles that are walked together
};

// The number of rows of tiles in a band, so that the tiles of all blocks together are about a
// square; 0 if there are no more rows than that.
int64_t band_of(int64_t columns, int64_t blocks, int64_t row_tiles) {
  const double square = static_cast<double>(blocks * columns) / static_cast<double>(kRows);
  const auto band = std::max<int64_t>(std::lround(std::sqrt(square)), 1);
  return row_tiles <= band ? 0 : band;
}

// The tile, of which the number of rows is given.
std::variant<Tiling, Refusal> choose_tiling(const LoopTree& tree, const Products& products,
                                            int64_t rows, const Target& target) {
  const auto extent = [&](size_t axis) { return planned_extent(tree, axis); };
  const int64_t m = extent(products.rows), n = extent(products.columns);
  Tiling out{.rows = rows};
  double work = 1, tiles = std::ceil(static_cast<double>(m) / static_cast<double>(out.rows));
  for (const size_t axis : products.nest) {
    work *= static_cast<double>(extent(axis));
    if (axis != products.rows && axis != products.columns)
      tiles *= static_cast<double>(extent(axis));
  }
  for (const size_t axis : products.summed) work *= static_cast<double>(extent(axis));
  if (work < kLeastAsynchronousDot) return no_rule("the product is too small for copies ahead");
  const auto count = static_cast<int64_t>(products.dots.size());
  int64_t most = kMostColumns;
  while (most * count > kMostColumns) most /= 2;
  if (most < kLeastColumns)
    return no_rule("the sums of so many products do not fit in the registers");
  // Wide tiles read less. They are chosen if the multiprocessor that has most tiles is done sooner
  // with them; so are narrow ones, if there are few tiles.
  out.columns = n <= kSlab ? kSlab : std::min<int64_t>(most, 128);
  const auto all_tiles = [&](int64_t columns) {
    return tiles * std::ceil(static_cast<double>(n) / static_cast<double>(columns));
  };
  // The cost of the multiprocessor that has most tiles.
  const auto cost = [&](int64_t columns) {
    // Shared memory takes in the rows of a tile and gives them to the units in the time of this
    // many columns. The widest tiles take as long as their products: 64, 128, 192 and 256 columns
    // with 8,192 terms 36, 50, 65 and 85 us on an H200.
    constexpr double kReading = 90, kMultiplying = 1.45;
    const auto wide = static_cast<double>(columns);
    return std::ceil(all_tiles(columns) / static_cast<double>(target.cores)) *
           std::max(wide + kReading, wide * kMultiplying);
  };
  constexpr double kEqual = 1.02;  // of two tiles that take about as long, the wide one reads less
  for (int64_t wide = out.columns + kSlab; wide <= most && n > out.columns; wide += kSlab)
    if (cost(wide) < kEqual * cost(out.columns)) out.columns = wide;
  if (count == 1 && all_tiles(out.columns) < target.cores && cost(kSlab) < cost(out.columns))
    out.columns = kSlab;
  int64_t result_bytes = 0, sum_bytes = 0;
  DType sums = DType::F32;
  for (const LoopTask* store : products.stores)
    result_bytes += static_cast<int64_t>(size_of(tree.tensors[store->target].type.dtype));
  for (const LoopTask* dot : products.dots) {
    sums = tree.values[dot->target].dtype;
    sum_bytes += static_cast<int64_t>(size_of(sums));
  }
  if (operations_after(tree) > kMostUnrolled)
    out.rows_at_once = kThreads * (kAccessBytes / static_cast<int64_t>(size_of(sums))) / kSlab;
  // As many slots as fit. Beside them stand two slabs of each result for each group (one is written
  // while the other is stored), or one slab of each result and one of the sums.
  const bool by_rows = out.rows_at_once > 0;
  const int64_t slabs =
      out.rows * kSlab * ((by_rows ? 1 : 2) * result_bytes + (by_rows ? sum_bytes : 0));
  const auto slots = [&]() -> int64_t {
    const auto factors = find_factors(tree, products, out.rows, out.columns);
    const int64_t slot = std::get<Factors>(factors).slot_panels * kPanelBytes;
    return (target.l1_bytes - slabs - kBarrierBytes) / slot;
  };
  while (slots() < 3 && out.columns > kSlab) out.columns = out.columns > 128 ? 128 : kSlab;
  if (slots() < kLeastSlots) return no_rule("two turns of the factors do not fit on chip");
  out.slots = std::min(slots(), kMostSlots * kRows / out.rows);
  out.band = band_of(out.columns, target.cores, (m + kRows - 1) / kRows);
  return out;
}

// --- Few rows -----------------------------------------------------------------------------------

int64_t tiles_of(const LoopTree& tree, const Products& products, const Tiling& tiling) {
  int64_t out = 1;
  for (const size_t axis : products.nest)
    out *= ceil_divide(planned_extent(tree, axis), axis == products.rows      ? tiling.rows
                                                   : axis == products.columns ? tiling.columns
                                                                              : 1);
  return out;
}

// The estimated time of all tiles, without what follows the sums.
double seconds_of(const LoopTree& tree, const Products& products, const Factors& factors,
                  const Tiling& tiling, const Target& target) {
  // The unit reads its left factor from shared memory for every instruction, which takes the time
  // of this many columns more than half of those that it multiplies.
  constexpr double kLeftFactor = 32;
  // Of the rates of memory and of the cache that all share; a multiprocessor can draw several times
  // its part of the first.
  constexpr double kMemory = 0.85, kCache = 2, kDrawn = 1.5;
  constexpr double kMeeting = 1.5e-6;  // seconds, of the blocks of a cluster
  // The share of what takes less time that is not hidden by what takes most.
  constexpr double kBeside = 0.03;
  const double cores = target.cores;
  const auto columns = static_cast<double>(tiling.columns);
  double depth = 1, bytes = 0;
  for (const size_t axis : products.summed)
    depth *= static_cast<double>(planned_extent(tree, axis));
  for (const std::string& name : factors.tensors) {
    const auto tensor = std::ranges::find(tree.tensors, name, &LoopTensor::name);
    bytes += static_cast<double>(tensor->type.shape.numel().range().max) *
             static_cast<double>(size_of(tensor->type.dtype));
  }
  const double blocks = static_cast<double>(tiles_of(tree, products, tiling) * tiling.ranks);
  const double all = std::ceil(blocks / cores) * cores;  // with those that have nothing to do
  const double each = depth / static_cast<double>(tiling.ranks);
  const double multiplying = all * static_cast<double>(products.dots.size()) * 2 * each *
                             static_cast<double>(tiling.rows) *
                             std::max(columns, kLeftFactor + columns / 2) / matrix_rate(target);
  const double copying = all * each / static_cast<double>(factors.depth) *
                         static_cast<double>(factors.slot_panels * kPanelBytes) /
                         (target.cache_bytes_per_second * kCache);
  // The last blocks can draw more than their part if they are few.
  const double last = std::fmod(blocks, cores);
  const double drawn = blocks - last + (last > 0 ? std::max(last, cores / kDrawn) : 0);
  const double loading = bytes / (target.memory_bytes_per_second * kMemory) * drawn / blocks;
  const double longest = std::max({multiplying, copying, loading});
  return longest + kBeside * (multiplying + copying + loading - longest) +
         (tiling.ranks > 1 ? kMeeting : 0);
}

// Exchanges rows and columns: what were the rows are all in each tile.
std::variant<Products, Refusal> exchanged(const LoopTree& tree, const Products& products) {
  if (products.row_axes.size() != 1) return no_rule("the rows are composed of several axes");
  const auto rows = tree.axes[products.rows].extent.as_constant();
  const auto count = static_cast<int64_t>(products.dots.size());
  if (!rows || *rows > kFewProductRows ||
      ceil_divide(*rows, kColumnMultiple) * kColumnMultiple * count > kMostColumns)
    return no_rule("the rows do not fit into one tile");
  Products out = products;
  std::swap(out.rows, out.columns);
  out.row_axes = {out.rows};
  out.swap = !out.swap;
  out.exchanged = true;
  return out;
}

// The tile, and the number of blocks that share it, with the least estimated time.
std::optional<std::pair<double, Tiling>> choose_exchanged(const LoopTree& tree,
                                                          const Products& products,
                                                          const Target& target) {
  constexpr int64_t kLeastTurns = 8;  // of each block
  if (operations_after(tree) > kMostUnrolled && planned_extent(tree, products.columns) > kSlab)
    return std::nullopt;
  const int64_t most_ranks = planned_extent(tree, products.columns) <= kFewClusterRows
                                 ? std::min<int64_t>(kClusterParts, target.cluster_blocks)
                                 : 1;
  // A result that is contiguous along the columns is stored through two buffers.
  int64_t buffered = 0;
  for (const LoopTask* store : products.stores)
    if (lies_along(store->at.back(), tree.axes[products.columns]))
      buffered += 2 * static_cast<int64_t>(size_of(tree.tensors[store->target].type.dtype));
  std::optional<std::pair<double, Tiling>> best;
  for (const int64_t groups : {kGroups, int64_t{1}})
    for (int64_t ranks = 1; ranks <= most_ranks; ranks *= 2) {
      Tiling tiling{.rows = groups * kGroupRows, .ranks = ranks};
      tiling.columns =
          ceil_divide(planned_extent(tree, products.columns), kColumnMultiple) * kColumnMultiple;
      const auto found = find_factors(tree, products, tiling.rows, tiling.columns);
      const auto* factors = std::get_if<Factors>(&found);
      if (!factors) return std::nullopt;
      const int64_t turns =
          ceil_divide(planned_extent(tree, products.summed.back()), factors->depth);
      if (ranks > 1 && (products.summed.size() > 1 || turns < ranks * kLeastTurns)) continue;
      // Each block of a cluster gets the sums of all blocks.
      const int64_t sums = static_cast<int64_t>(products.dots.size() * size_of(DType::F32)) *
                           ranks * tiling.rows * tiling.columns;
      const int64_t room = target.l1_bytes - kBarrierBytes - (ranks > 1 ? sums : 0) -
                           buffered * tiling.rows * tiling.columns;
      tiling.slots =
          std::min(room / (factors->slot_panels * kPanelBytes), kMostSlots * kRows / tiling.rows);
      if (tiling.slots < 3) continue;
      const double seconds = seconds_of(tree, products, *factors, tiling, target);
      if (!best || seconds < best->first) best.emplace(seconds, tiling);
    }
  return best;
}

// Takes steps until one of them is refused.
class Taker {
 public:
  explicit Taker(Scheduled& out) : out_(out) {}
  template <class Step>
  Taker& operator()(Step step) {
    if (!refusal_) refusal_ = take_legal(out_, std::move(step));
    return *this;
  }
  const std::optional<Refusal>& refusal() const { return refusal_; }

 private:
  Scheduled& out_;
  std::optional<Refusal> refusal_;
};

// Cuts what follows into slabs, and, if `tiling` says so, takes some rows of a slab at a time.
void cut_stores(Scheduled& out, const std::string& store, const std::string& row,
                const std::string& column, const Tiling& tiling,
                const std::vector<std::string>& dots) {
  const int64_t groups = count_loops(out.tree, row), tiles = count_loops(out.tree, column);
  const auto cut = [&](const std::string& axis, int64_t turn) {
    return out.try_take(SlabsStep{{false, store}, axis, turn, /*beside=*/true});
  };
  if (!cut(column, kSlab) || tiling.rows_at_once == 0 || !cut(row, tiling.rows_at_once)) return;
  const bool slabs = count_loops(out.tree, column) > tiles;
  const LoopName loop = slabs ? LoopName{column, tiles + 1} : LoopName{row, groups};
  for (const std::string& dot : dots) out.try_take(StageStep{{true, dot}, loop});
}

// The blocks that walk the tiles. In the last round of their walk, some may have no tile. If all
// tiles are done in as many rounds by fewer blocks, a few cores are left for what another queue
// does at the same time, such as a collective: if that held a core that a block needs, this block
// would do all its rounds after the others.
int64_t count_blocks(const LoopTree& tree, const std::vector<std::string>& grid,
                     const std::map<std::string, int64_t>& turns, int64_t cores, int64_t room) {
  int64_t tiles = 1;
  for (const std::string& axis : grid) {
    const auto extent = axis_of(tree, axis).extent.as_constant();
    if (!extent) return cores;
    const auto turn = turns.find(axis);
    tiles *= turn == turns.end() ? *extent : (*extent + turn->second - 1) / turn->second;
  }
  if (tiles <= cores) return cores;  // blocks without a tile leave their cores at once
  const int64_t rounds = (tiles + cores - 1) / cores;
  const int64_t fewest = std::max<int64_t>(cores - room, 1);
  return std::max((tiles + rounds - 1) / rounds, fewest);
}

std::optional<Refusal> take_products(Scheduled& out, const Products& products,
                                     const Factors& factors, const Tiling& tiling,
                                     const Target& target) {
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::string row = name(products.rows), column = name(products.columns);
  const std::string store = out.tree.tensors[products.stores[0]->target].name;
  std::vector<std::string> nest = {row, column}, dots, summed;
  // Along the axes of which rows are composed, neighbours come one after the other.
  const auto is_other = [&](size_t axis) {
    return axis != products.rows && axis != products.columns;
  };
  for (const size_t axis : std::views::reverse(products.row_axes))
    if (is_other(axis)) nest.push_back(name(axis));
  for (const size_t axis : products.nest)
    if (is_other(axis) && !contains(products.row_axes, axis)) nest.push_back(name(axis));
  for (const size_t axis : products.summed) summed.push_back(name(axis));
  for (const LoopTask* dot : products.dots) dots.push_back(out.tree.values[dot->target].name);
  const auto is_constant = [&](const std::string& axis, int64_t n) {
    return axis_of(out.tree, axis).extent.is_constant(n);
  };
  std::vector<std::string> order = names_of(out.tree, products.nest);

  Taker take(out);
  if (products.rows > products.columns) take(LastStep{column});
  // Rows come outermost, then columns, then the axes of which each index has matrices of its own.
  for (size_t i = 0; i < nest.size(); ++i) {
    auto at = std::ranges::find(order, nest[i]) - order.begin();
    for (; at > static_cast<std::ptrdiff_t>(i); --at) {
      const auto k = static_cast<size_t>(at);
      take(ReorderStep{{order[k - 1]}, {order[k]}});
      std::swap(order[k - 1], order[k]);
    }
  }
  std::vector<std::string> grid;  // the levels of its loop
  LoopName groups{row};
  const int64_t rows_of_cluster = tiling.rows * tiling.blocks;
  if (!is_constant(row, rows_of_cluster)) {
    grid.push_back(row);
    take(SplitStep{{row}, rows_of_cluster, true});
    ++groups.number;
  }
  const LoopName blocks = groups;
  if (tiling.blocks > 1) {
    take(SplitStep{blocks, tiling.rows, true});
    ++groups.number;
  }
  const bool has_groups = tiling.rows > kGroupRows;
  if (has_groups)
    take(SplitStep{groups, kGroupRows, true})(WholeStep{{row, groups.number + 1}});
  else
    take(WholeStep{groups});
  if (is_constant(column, tiling.columns)) {
    take(WholeStep{{column}});
  } else {
    grid.push_back(column);
    take(SplitStep{{column}, tiling.columns, true})(WholeStep{{column, 2}});
  }
  grid.insert(grid.end(), nest.begin() + 2, nest.end());
  if (grid.empty()) return no_rule("there is one tile");
  for (const std::string& axis : grid)
    if (axis != row) {
      if (has_groups) take(ReorderStep{groups, {axis}});
      if (tiling.blocks > 1) take(ReorderStep{blocks, {axis}});
    }
  for (size_t i = 1; i < grid.size(); ++i) take(TupleStep{{grid[0]}, {grid[i]}});
  take(OnStep{{grid[0]}, Machine::Grid});
  if (tiling.blocks > 1) take(OnStep{blocks, Machine::Rank});
  if (has_groups && tiling.ranks == 1) take(OnStep{groups, Machine::Group});
  // The turns along all summed axes are counted as one.
  if (is_constant(summed.back(), factors.depth)) {
    take(WholeStep{{summed.back()}});
    summed.pop_back();
  } else {
    take(SplitStep{{summed.back()}, factors.depth, true})(WholeStep{{summed.back(), 2}});
  }
  const LoopName turns{summed.empty() ? grid[0] : summed[0]};
  for (size_t i = 1; i < summed.size(); ++i) take(TupleStep{turns, {summed[i]}});
  if (tiling.ranks > 1) {
    take(ChunkStep{turns, tiling.ranks, Combine::Rank});
    if (has_groups) take(OnStep{groups, Machine::Group});
  }
  for (const std::string& tensor : factors.tensors) take(StageStep{{false, tensor}, turns});
  take(RingStep{turns, tiling.slots})(RolesStep{kCopyRegisters, kGroupRegisters});
  for (const std::string& dot : dots) take(UnitStep{dot, Unit::Wgmma, products.swap});
  if (take.refusal()) return take.refusal();
  if (!products.exchanged) cut_stores(out, store, row, column, tiling, dots);
  std::vector<DealOrder> deal = {{Deal::Order::Rows}};
  if (tiling.ranks == 1) {
    const int64_t clusters =
        count_blocks(out.tree, grid, {{row, rows_of_cluster}, {column, tiling.columns}},
                     target.cores / tiling.blocks, kMostRoom / tiling.blocks);
    deal.push_back({Deal::Order::Persistent, clusters});
  }
  if (tiling.band > 0 && grid.size() > 1 && grid[0] == row && grid[1] == column)
    deal[0] = {Deal::Order::Band, ceil_divide(tiling.band, tiling.blocks)};
  take(DealStep{{grid[0]}, deal});
  return take.refusal();
}

// Whether it may pay that two blocks of a cluster have neighbouring tiles along the rows, so that
// each of them copies half of the columns' factor for both. Where the rows of factors begin inside
// of lines of memory, copies of them take about twice as long: then products of 464 x 14416 x 8168
// took 190 us in pairs instead of 274 on an H200. Where they are whole lines, pairs were 3 % slower
// in nine of ten sizes, and where those of one factor are, up to 1.3 times as slow as other forms.
bool may_be_pairs(const LoopTree& tree, const Products& products, const Tiling& tiling,
                  const Target& target) {
  const auto rows = tree.axes[products.rows].extent.as_constant();
  if (target.cluster_blocks < 2 || tiling.ranks > 1 || tiling.rows != kRows || !rows ||
      *rows <= kRows || products.dots.size() > 1)
    return false;
  const int64_t tiles = ceil_divide(*rows, kRows);
  if (static_cast<double>(tiles + tiles % 2) > kMostRows * static_cast<double>(tiles)) return false;
  const LoopTask& dot = *products.dots.front();
  const auto load_of = [&](bool of_rows) -> const LoopStep& {
    return dot.body.steps[dot.body.results[of_rows == products.swap ? 1 : 0]];
  };
  const auto has_lines = [&](const LoopStep& load) {
    const Shape& shape = tree.tensors[load.source].type.shape;
    return (shape[shape.rank() - 1] * static_cast<int64_t>(size_of(load.dtype)))
        .is_multiple_of(kRowLineBytes);
  };
  return !has_lines(load_of(false)) && !has_lines(load_of(true)) &&
         std::ranges::any_of(load_of(true).at, [&](const Expr& e) {
           return lies_along(e, tree.axes[products.rows]);
         });
}

// A way to form the tiles.
struct Form {
  Scheduled out;
  Products products;
  std::variant<Factors, Refusal> factors;
};

// With rows composed of several axes if that fills tiles better.
Form with_rows(Scheduled out, const Products& first) {
  take_residues(out, first, {});
  const std::string rows = compose_rows(out, std::get<Products>(find_products(out.tree)));
  auto products = std::get<Products>(find_products(out.tree, rows));
  auto factors = find_factors(out.tree, products, kRows, kSlab);
  return {std::move(out), std::move(products), std::move(factors)};
}

// With what a turn sums composed of several axes, where one does not serve; none if there is no
// such box. Rows along which a factor has windows move through the same dimensions as that box, so
// they are not composed. Units of warps serve the products that do not fill half of a group.
std::optional<Form> with_sums(Scheduled out, const Products& first) {
  const LoopTask& dot = *first.dots.front();
  const DType dtype = dot.body.steps[dot.body.results[0]].dtype;
  const auto digits =
      choose_sums(out.tree, first, kPanelBytes / static_cast<int64_t>(size_of(dtype)));
  if (digits.empty()) return std::nullopt;
  std::vector<size_t> summed;
  for (const AxisTurn& digit : digits) summed.push_back(*find_axis(out.tree, digit.axis));
  take_residues(out, first, summed);
  ComposeStep step{unused_axis(out.tree, "q"), digits};
  if (digits.size() > 1 && !out.try_take(std::move(step))) return std::nullopt;
  auto products = std::get<Products>(find_products(out.tree));
  if (2 * planned_extent(out.tree, products.rows) <= kGroupRows) return std::nullopt;
  auto factors = find_factors(out.tree, products, kRows, kSlab);
  return Form{std::move(out), std::move(products), std::move(factors)};
}

// The first way to form tiles that bulk copies can fetch.
std::variant<Form, Refusal> find_form(const Scheduled& out) {
  const auto first = find_products(out.tree);
  if (const auto* refusal = std::get_if<Refusal>(&first)) return *refusal;
  // The tasks of the products stay those of the tree before the steps that follow.
  Form form = with_rows(out, std::get<Products>(first));
  const auto* refusal = std::get_if<Refusal>(&form.factors);
  if (!refusal) return {std::move(form)};
  auto other = with_sums(out, std::get<Products>(first));
  if (other && std::holds_alternative<Factors>(other->factors)) return *std::move(other);
  return *refusal;
}

}  // namespace

std::optional<Refusal> tile_products(Scheduled& out, const Target& target) {
  if (!target.asynchronous_dots) return no_rule("the target has no asynchronous dots");
  Scheduled joined = out;
  join_axes(joined);
  flatten_tensors(joined);
  auto found = find_form(joined);
  if (const auto* refusal = std::get_if<Refusal>(&found)) {
    // Joined axes may run through several dimensions of a factor, of which a box needs each.
    auto apart = find_form(out);
    if (std::holds_alternative<Refusal>(apart)) return *refusal;
    found = std::move(apart);
  }
  Form& form = std::get<Form>(found);
  out = form.out;
  const auto other = exchanged(form.out.tree, form.products);
  // One group has few rows that cannot be columns.
  const bool few = std::holds_alternative<Refusal>(other) &&
                   planned_extent(form.out.tree, form.products.rows) <= kGroupRows;
  const auto chosen = choose_tiling(form.out.tree, form.products, few ? kGroupRows : kRows, target);
  if (const auto* refusal = std::get_if<Refusal>(&chosen)) return *refusal;
  const auto& tiling = std::get<Tiling>(chosen);
  const auto& factors = std::get<Factors>(form.factors);
  if (const auto* products = std::get_if<Products>(&other)) {
    const auto all = find_factors(form.out.tree, form.products, tiling.rows, tiling.columns);
    const double seconds =
        seconds_of(form.out.tree, form.products, std::get<Factors>(all), tiling, target);
    const auto best = choose_exchanged(form.out.tree, *products, target);
    if (best && best->first < seconds)
      return take_products(out, *products, factors, best->second, target);
  }
  Scheduled pairs = out;
  if (auto refusal = take_products(out, form.products, factors, tiling, target)) return refusal;
  if (!may_be_pairs(pairs.tree, form.products, tiling, target)) return std::nullopt;
  Tiling paired = tiling;
  paired.blocks = 2;
  if (!take_products(pairs, form.products, factors, paired, target) &&
      cost_of(pairs.tree, target).seconds + kPairSeconds <
          kClearly * cost_of(out.tree, target).seconds)
    out = std::move(pairs);
  return std::nullopt;
}

}  // namespace braze
