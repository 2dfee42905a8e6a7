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
constexpr int64_t kLeastStagedDepth = 16;  // copies of shorter rows cost more than they save

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The rows of the register block: the most that fit, among those that waste least of the extent.
int64_t rows_of_tile(int64_t extent, int64_t most) {
  int64_t best = 1;
  double best_cost = 1e300;
  for (int64_t rows = 1; rows <= most; ++rows) {
    // Every tile loads its lanes' operand once: charge that besides the rows themselves.
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
      bool by_lane = false, by_row = false, by_both = false, irregular = false;
      for (const AccessInfo& load : loads) {
        const bool l = load.uses(space.parallel[lane]), r = load.uses(space.parallel[row]);
        by_lane = by_lane || l;
        by_row = by_row || r;
        by_both = by_both || (l && r);
        irregular = irregular || (load.irregular && (l || r));
      }
      if (!by_lane || !by_row || by_both || irregular) continue;
      // Ties go to the larger axes.
      const double extents = static_cast<double>(planned_extent(space.parallel[lane].extent)) *
                             static_cast<double>(planned_extent(space.parallel[row].extent));
      const double score = contiguous(space.parallel[lane]) + 1e-3 * std::log2(extents + 1) +
                           1e-6 * static_cast<double>(lane);
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
  const int64_t columns = n <= lanes || width > 1 ? 1 : m < 4 ? 4 : 2;
  const int64_t used = columns * width;
  const int64_t most_rows =
      std::max<int64_t>((request.target.vector_registers - used - 1) / used, 1);
  Schedule schedule{.family = "dot",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  schedule.lane_axis = static_cast<int64_t>(lane);
  schedule.tile[lane] = lanes * columns;
  schedule.tile[row] = rows_of_tile(m, most_rows);
  schedule.unroll = 4;

  // Blocks: enough instances for the cores, each with enough work. All cores read the panels of a
  // block again for each tile of rows: they share half of the last-level cache.
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
  const int64_t n_blocks = (n_tiles + n_most - 1) / n_most;
  const int64_t n_block = (n_tiles + n_blocks - 1) / n_blocks;  // of equal sizes
  schedule.block[lane] = n_block * schedule.tile[lane];
  schedule.block[row] =
      std::min(m_tiles, std::max<int64_t>(tiles_each / n_block, 1)) * schedule.tile[row];

  // Copies pay when the inner loop would read badly, or often: across the vectors, with operations
  // on the way, or from too large an array to stay in the second-level cache.
  bool across = false, computed = false;
  int64_t bytes = 0, row_factors = 0;
  for (const Factor& f : factors(request, space, space.parallel[lane], space.parallel[row])) {
    row_factors += !f.lanes;
    if (!f.lanes) continue;
    across = across || f.across;
    computed = computed || f.computed;
    bytes += 4 * width;
  }
  const bool large = round_up(n, lanes) * k * bytes > request.target.l2_bytes / 4;
  schedule.pack = m_tiles > 1 && bytes > 0 && (across || ((large || computed) && m_tiles >= 4));
  const int64_t row_bytes = schedule.tile[row] * k * 4 * width * row_factors;
  schedule.stage = schedule.tile[row] > 1 && n_block > 1 && k >= kLeastStagedDepth &&
                   row_factors > 0 && row_bytes <= request.target.l3_bytes / 8;

  double flops_after = 0;
  for (const Pass& pass : std::span(space.passes).subspan(1))
    flops_after += flops_per_element(request, pass);
  schedule.by_row = schedule.tile[row] > 1 && flops_after > kMostFlopsUnrolled;
  return schedule;
}

}  // namespace braze
