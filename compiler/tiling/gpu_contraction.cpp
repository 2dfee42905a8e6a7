// gpu_contraction.cpp — the tiles of products on a GPU's ordinary units and the matrix units of
// warps, as compiler/loops/rules/products_gpu.cpp chooses them, for the price of a space.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "compiler/loops/rules/sliced_tiles.h"
#include "compiler/tiling/families.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

// One side of a block's tile: its threads, and the elements of each.
struct Side {
  int64_t threads = 16, each = 4;
  int64_t tile() const { return threads * each; }
};

Side side_of(int64_t extent) {
  Side side;
  const int64_t wanted = ceil_power_of_two(extent);
  while (side.each > 1 && side.threads * side.each > wanted) side.each /= 2;
  while (side.threads > 1 && side.threads > wanted) side.threads /= 2;
  return side;
}

// Whether slices of factors on chip pay: the product is large, and there are factors on both sides.
bool slices_pay(const std::vector<Factor>& found, double products, int64_t depth) {
  const auto lanes =
      std::count_if(found.begin(), found.end(), [](const Factor& f) { return f.lanes; });
  const auto all = std::ssize(found);
  return lanes > 0 && lanes < all && found.size() <= kMostFactors && depth >= kLeastDepth &&
         products >= kLeastProducts;
}

// The schedule of a product of m x n sums with slices. None if slices do not pay.
std::optional<Schedule> schedule_slices(const TilingRequest& request, const Space& space,
                                        size_t lane, size_t row, int64_t m, int64_t n,
                                        int64_t batches) {
  const size_t rank = space.parallel.size();
  const std::vector<SpaceAxis>& inner = space.passes[0].inner;
  const auto found = factors(request, space, space.parallel[lane], space.parallel[row]);
  const int64_t depth = std::max<int64_t>(planned_extent(inner.back().extent), 1);
  const double products = static_cast<double>(m) * static_cast<double>(n) *
                          static_cast<double>(batches) *
                          static_cast<double>(planned_elements(inner));
  const LoopForm* form = request.forms.find(space.passes[0].reduces[0].node);
  if (!form->monoid || !slices_pay(found, products, depth)) return std::nullopt;
  Schedule schedule{.family = "dot",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  schedule.lane_axis = static_cast<int64_t>(lane);
  const bool matrices = sums_matrix_products(request, space, found);
  const bool ahead = matrices && std::none_of(found.begin(), found.end(),
                                              [](const Factor& factor) { return factor.computed; });
  const auto [tile, chunks] =
      best_tile(matrices, {m, n, batches, depth, ahead},
                inner.size() == 1 && splittable(request, space), request.target);
  const SlicedTile& best = *tile;
  // Sums of eight bytes take two registers each.
  const auto bytes = static_cast<int64_t>(size_of(compute_type(form->accumulator)));
  const int64_t narrower = std::max<int64_t>(bytes / 4, 1);
  schedule.tile[row] = schedule.block[row] = best.rows / narrower;
  schedule.tile[lane] = schedule.block[lane] = best.lanes;
  schedule.threads = {best.row_threads, best.lane_threads};
  schedule.split = chunks;
  return schedule;
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
      // Among equals, longer axes win, and then rows that lie close to each other.
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

std::optional<Schedule> schedule_gpu_contraction(const TilingRequest& request, const Space& space) {
  const auto axes = factor_axes(request, space);
  if (!axes) return std::nullopt;
  const auto [lane, row] = *axes;
  const size_t rank = space.parallel.size();
  const int64_t n = std::max<int64_t>(planned_extent(space.parallel[lane].extent), 1);
  const int64_t m = std::max<int64_t>(planned_extent(space.parallel[row].extent), 1);
  Side columns = side_of(n), rows = side_of(m);
  // If one side is short, its threads work along the other.
  while (columns.threads * rows.threads < 256 && columns.tile() < n) columns.threads *= 2;
  while (columns.threads * rows.threads < 256 && rows.tile() < m) rows.threads *= 2;
  int64_t batches = 1;
  for (size_t p = 0; p < rank; ++p)
    if (p != lane && p != row)
      batches *= std::max<int64_t>(planned_extent(space.parallel[p].extent), 1);
  if (const auto slices = schedule_slices(request, space, lane, row, m, n, batches)) return slices;
  // There should be blocks for all multiprocessors; if necessary, threads take fewer elements.
  const auto blocks = [&] {
    return batches * ((n + columns.tile() - 1) / columns.tile()) *
           ((m + rows.tile() - 1) / rows.tile());
  };
  while (rows.each > 1 && blocks() < request.target.cores) rows.each /= 2;
  while (columns.each > 1 && blocks() < request.target.cores) columns.each /= 2;

  Schedule schedule{.family = "dot",
                    .block = std::vector<int64_t>(rank, 1),
                    .tile = std::vector<int64_t>(rank, 1)};
  schedule.lane_axis = static_cast<int64_t>(lane);
  schedule.tile[lane] = schedule.block[lane] = columns.tile();
  schedule.tile[row] = schedule.block[row] = rows.tile();
  int64_t used = columns.threads * rows.threads;
  if (used < kWarpThreads) columns.threads *= kWarpThreads / used;
  if (schedule.tile[row] > 1)
    schedule.threads = {rows.threads, columns.threads};
  else
    schedule.threads = {columns.threads * rows.threads};
  return schedule;
}

}  // namespace braze
