// families.h — the families of kernels for which the blocks and tiles of a space are chosen, to
// price it. Each family has one rule, in one file.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/fusion/space.h"
#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/tile_loops.h"
#include "compiler/tiling/schedule.h"

namespace braze {

/// One memory access of a space, with the facts that rules need.
struct AccessInfo {
  NodeId node;
  Expr offset;       ///< in elements, over the space's symbols
  size_t bytes = 4;  ///< of one element
  bool store = false;
  bool conditional = false;
  bool indirect = false;  ///< whether an index is loaded

  bool uses(const SpaceAxis& axis) const { return offset.uses(axis.symbol.symbol_name()); }
  /// How many elements neighbours along the axis are apart: 1 if they are contiguous, and 0 if the
  /// access does not depend on the axis. An access that is not linear has 2.
  int64_t stride(const SpaceAxis& axis) const;
};

/// Calls `each` for all loads and stores of a pass.
void for_each_access(const LoopForms& forms, const Fusion& fusion, const Pass& pass,
                     const std::function<void(const MemoryAccess& access, bool store)>& each);
/// All loads and stores of a pass. Several at one place count once.
std::vector<AccessInfo> accesses(const TilingRequest& request, const Pass& pass);
/// The number of machine operations for one element of a pass.
double flops_per_element(const TilingRequest& request, const Pass& pass);

/// A factor of a contraction: it varies along the reduced axes and along one of two parallel axes.
struct Factor {
  ValueAt value;
  /// Whether that is the axis of the lanes; otherwise it is that of the rows.
  bool lanes = false;
  bool computed = false;  ///< whether it needs operations, at least a conversion
};
/// The factors of the reductions in the space's first pass. A factor is as large as it can be.
std::vector<Factor> factors(const TilingRequest& request, const Space& space, const SpaceAxis& lane,
                            const SpaceAxis& row);

/// The two values whose product, in f32, the reduction of `task` sums. The list is empty if the
/// terms are not such products. `is_factor` says whether a value counts as a factor, however it is
/// made.
std::vector<ValueAt> product_of(const TilingRequest& request, const SpaceTask& task,
                                const std::function<bool(const ValueAt&)>& is_factor);

/// Whether the reductions of the first pass sum products of the two factors that matrix units of
/// warps can multiply: they have 16 bits, or are f32 and may be rounded to tf32.
bool sums_matrix_products(const TilingRequest& request, const Space& space,
                          const std::vector<Factor>& found);

/// How well vectors run along `axis`: the share of bytes in accesses that are contiguous or
/// constant along it, times the share of full lanes.
double lane_quality(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis, int64_t lanes);

/// The axis along which vectors run best; among equals, the innermost. If there is none, the
/// quality is -1.
struct LaneAxis {
  size_t index = 0;
  double quality = -1;
};
LaneAxis best_lane_axis(const std::vector<AccessInfo>& accesses, const std::vector<SpaceAxis>& axes,
                        int64_t lanes);

/// The pass with the most inner work.
const Pass& longest_pass(const Space& space);

/// The extent for which rules plan: the extent itself, or the greatest value of a symbolic one.
int64_t planned_extent(const Expr& extent);

/// The product of the planned extents, each of which counts as at least 1.
int64_t planned_elements(const std::vector<SpaceAxis>& axes);
/// Whether the space is one pass of reductions that can be cut into chunks.
bool splittable(const TilingRequest& request, const Space& space);
/// The parallel axes (lanes, rows) of a product each of whose factors runs along only one of them.
/// More accesses are contiguous along the lanes. None if some load runs along both axes of every
/// pair, or if the space is no such product.
std::optional<std::pair<size_t, size_t>> factor_axes(const TilingRequest& request,
                                                     const Space& space);

std::optional<Schedule> schedule_reduction(const TilingRequest& request, const Space& space);

// The families for GPUs.

/// How many neighbours along `axis` one thread should access together: as many as 16 bytes hold and
/// the alignment of all contiguous accesses allows.
int64_t gpu_vector(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis);
std::optional<Schedule> schedule_gpu_contraction(const TilingRequest& request, const Space& space);
std::optional<Schedule> schedule_gpu_reduction(const TilingRequest& request, const Space& space);

}  // namespace braze
