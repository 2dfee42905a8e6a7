// contraction.cpp — reductions of products whose factors run along different parallel axes: a block
// of accumulators in registers, one axis along vectors, the reduced axes walked in order.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "compiler/tiling/families.h"

namespace braze {

namespace {

constexpr double kInstanceFlops = 16e6;
constexpr double kMostFlopsUnrolled = 8;  // of an element of a tile, after its sum
constexpr int64_t kLeastPanels = 2;       // of a block, so that copied rows are used more than once
constexpr int64_t kNearTiles = 4;         // between rows of a factor that lie near each other
constexpr int64_t kLeastStagedDepth = 16;  // copies of shorter rows cost more than they save

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The rows of the register block: the most that fit, among those that waste least of the extent.
int64_t rows_of_tile(int64_t extent, int64_t most) {
  int64_t best = 1;
  double best_cost = 1e300;
  for (int64_t rows = 1; rows <= most; ++rows) {
    // Every tile loads its lanes' operand once; the cost of that is added to the cost of the rows.
    const double tiles = static_cast<double>((extent + rows - 1) / rows);
    const double cost = tiles * (static_cast<double>(rows) + 2.0);
    if (cost <= best_cost) {
      best_cost = cost;
      best = rows;
    }
  }
  return best;
}

}  // namespace

std::optional<std::pair<size_t, size_t>> factor_axes(const TilingRequest& request,
                                                     const Space& space) {
  if (space.passes.empty() || space.passes[0].reduces.size() != 1 || space.passes[0].inner.empty())
    return std::nullopt;
  const bool one_reduction =
      std::all_of(space.passes.begin() + 1, space.passes.end(),
                  [](const Pass& p) { return p.reduces.empty() && p.inner.empty(); });
  if (!one_reduction || !space.passes[0].stores.empty()) return std::nullopt;
  const auto loads = accesses(request, space.passes[0]);
  const size_t rank = space.parallel.size();
  const auto stores = accesses(request, space.passes.back());
  const auto contiguous = [&](const SpaceAxis& axis) {
    double score = 0;
    for (const AccessInfo& load : loads)
      score += load.uses(space.passes[0].inner.back()) && load.stride(axis) == 1;
    for (const AccessInfo& access : stores)
      score += access.store && access.stride(axis) == 1 ? 0.75 : 0;
    return score;
  };
  std::optional<std::pair<size_t, size_t>> best;
  double best_score = -1;
  for (size_t lane = 0; lane < rank; ++lane) {
    for (size_t row = 0; row < rank; ++row) {
      if (lane == row) continue;
      bool by_lane = false, by_row = false, by_both = false, indirect = false;
      for (const AccessInfo& load : loads) {
        const bool l = load.uses(space.parallel[lane]), r = load.uses(space.parallel[row]);
        by_lane = by_lane || l;
        by_row = by_row || r;
        by_both = by_both || (l && r);
        indirect = indirect || (load.indirect && (l || r));
      }
      if (!by_lane || !by_row || by_both || indirect) continue;
      // Ties go to the larger axes, and to rows that lie close to each other.
      const double extents = static_cast<double>(planned_extent(space.parallel[lane].extent)) *
                             static_cast<double>(planned_extent(space.parallel[row].extent));
      const double score = contiguous(space.parallel[lane]) + 1e-3 * std::log2(extents + 1) +
                           1e-6 * static_cast<double>(lane) + 1e-7 * static_cast<double>(row);
      if (score > best_score) {
        best_score = score;
        best = {lane, row};
      }
    }
  }
  return best;
}

std::optional<Schedule> schedule_contraction(const TilingRequest& request, const Space& space) {
  const auto axes = factor_axes(request, space);
  if (!axes) return std::nullopt;
  const auto loads = accesses(request, space.passes[0]);
  const auto [lane, row] = *axes;
  const size_t rank = space.parallel.size();

  const int64_t lanes = request.target.vector_lanes(4);
  const int64_t n = std::max<int64_t>(planned_extent(space.parallel[lane].extent), 1);
  const int64_t m = std::max<int64_t>(planned_extent(space.parallel[row].extent), 1);
  int64_t k = 1;
  for (const SpaceAxis& axis : space.passes[0].inner)
    k *= std::max<int64_t>(planned_extent(axis.extent), 1);

  // Accumulators, one row of the lanes' operand and one splat must fit the registers.
  const LoopForm* form = request.forms.find(space.passes[0].reduces[0].node);
  const auto width = static_cast<int64_t>(std::max<size_t>(size_of(form->accumulator) / 4, 1));
  int64_t columns = n <= lanes || width > 1 ? 1 : m < 4 ? 4 : 2;
  const auto rows_at_most = [&] {
    const int64_t used = columns * width;
    return std::max<int64_t>((request.target.vector_registers - used - 1) / used, 1);
  };
  int64_t most_rows = rows_at_most();
  // Fewer rows and more lanes take as many accumulators, and leave the rows in the first cache. A
  // machine with so many registers multiplies by a number in memory, which needs no register.
  const bool spills = std::min(m, most_rows) * k * 4 * width > request.target.l1_bytes / 2;
  if (columns == 2 && n >= 4 * lanes && spills && request.target.vector_registers >= 32) {
    columns = 4;
    most_rows = request.target.vector_registers / columns - 1;
  }
  Schedule schedule{.family = "dot",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  schedule.lane_axis = static_cast<int64_t>(lane);
  schedule.tile[lane] = lanes * columns;
  schedule.tile[row] = rows_of_tile(m, most_rows);
  schedule.unroll = 4;

  // Blocks: enough instances for the cores, each with enough work. All cores read the panels of a
  // block again for each tile of rows, so together they may use half of the last-level cache.
  const double flops_per_tile =
      2.0 * static_cast<double>(schedule.tile[lane] * schedule.tile[row] * k);
  int64_t batches = 1;
  for (size_t p = 0; p < rank; ++p)
    if (p != lane && p != row)
      batches *= std::max<int64_t>(planned_extent(space.parallel[p].extent), 1);
  const int64_t m_tiles = (m + schedule.tile[row] - 1) / schedule.tile[row];
  const int64_t n_tiles = (n + schedule.tile[lane] - 1) / schedule.tile[lane];
  const int64_t tiles = m_tiles * n_tiles * batches;
  const int64_t by_work =
      std::max<int64_t>(static_cast<int64_t>(kInstanceFlops / flops_per_tile), 1);
  const int64_t by_cores = std::max<int64_t>(tiles / (16 * request.target.cores), 1);
  const int64_t tiles_each = std::min(by_work, by_cores);
  const int64_t panel_bytes = schedule.tile[lane] * k * 4 * width;
  const int64_t by_cache =
      std::max<int64_t>(request.target.l3_bytes / 2 / std::max<int64_t>(panel_bytes, 1), 1);
  const int64_t n_most = std::min({n_tiles, std::max(tiles_each, kLeastPanels), by_cache});
  // Of equal sizes.
  const auto shared = [](int64_t count, int64_t most) {
    const int64_t parts = (count + most - 1) / most;
    return (count + parts - 1) / parts;
  };
  int64_t n_block = shared(n_tiles, n_most);
  int64_t m_block = std::min(m_tiles, std::max<int64_t>(tiles_each / n_block, 1));

  // Copies pay if the inner loop would read badly, or often: across the vectors, with operations on
  // the way, or from an array that is too large for the second-level cache and whose rows are far
  // from each other. Rows of a tile that follow each other are what a copy would be.
  bool across = false, computed = false, misplaced = false, rows_computed = false;
  int64_t bytes = 0, row_factors = 0, reused = m_tiles * batches;
  for (const Factor& f : factors(request, space, space.parallel[lane], space.parallel[row])) {
    row_factors += !f.lanes;
    rows_computed = rows_computed || (!f.lanes && f.computed);
    if (!f.lanes) continue;
    across = across || f.across;
    computed = computed || f.computed;
    misplaced = misplaced || !f.moved || !f.step || *f.step < schedule.tile[lane] ||
                *f.step > kNearTiles * schedule.tile[lane];
    bytes += 4 * width;
    // Panels serve all rows of the batches that their factor does not depend on.
    int64_t own = 1;
    for (size_t p = 0; p < rank; ++p)
      if (p != lane && p != row &&
          std::any_of(f.value.at.begin(), f.value.at.end(), [&](const Expr& e) {
            return e.uses(space.parallel[p].symbol.symbol_name());
          }))
        own *= std::max<int64_t>(planned_extent(space.parallel[p].extent), 1);
    reused = std::min(reused, m_tiles * batches / own);
  }
  const bool large = round_up(n, lanes) * k * bytes > request.target.l2_bytes / 4;
  schedule.pack =
      reused > 1 && bytes > 0 && (across || ((large || computed) && misplaced && reused >= 4));
  // A panel that is read where it lies comes from far away, once for all rows of a block.
  if (large && !schedule.pack && !misplaced) {
    m_block = shared(m_tiles, std::max<int64_t>(tiles_each, 1));
    n_block = shared(n_tiles, std::max<int64_t>(tiles_each / m_block, 1));
  }
  schedule.block[lane] = n_block * schedule.tile[lane];
  schedule.block[row] = m_block * schedule.tile[row];
  const int64_t row_bytes = schedule.tile[row] * k * 4 * width * row_factors;
  schedule.stage = schedule.tile[row] > 1 && (n_block > 1 || rows_computed) &&
                   k >= kLeastStagedDepth && row_factors > 0 &&
                   row_bytes <= request.target.l3_bytes / 8;

  double flops_after = 0;
  for (const Pass& pass : std::span(space.passes).subspan(1))
    flops_after += flops_per_element(request, pass);
  schedule.by_row = schedule.tile[row] > 1 && flops_after > kMostFlopsUnrolled;
  return schedule;
}

}  // namespace braze
