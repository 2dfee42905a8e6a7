// families.h — the blocks and tiles for which spaces are priced, by families of kernels. Each has
// one rule, in one file.
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

/// One memory access of a space, with what rules ask of it.
struct AccessInfo {
  NodeId node;
  Expr offset;       ///< in elements, over the space's symbols
  size_t bytes = 4;  ///< of one element
  bool store = false;
  bool conditional = false;
  bool indirect = false;  ///< at an index that is loaded

  bool uses(const SpaceAxis& axis) const { return offset.uses(axis.symbol.symbol_name()); }
  /// 1: contiguous along the axis; 0: constant along it; other numbers are strides, and 2 also
  /// stands for an access that is not linear.
  int64_t stride(const SpaceAxis& axis) const;
};

/// Passes all loads and stores of a pass to `each`.
void for_each_access(const LoopForms& forms, const Fusion& fusion, const Pass& pass,
                     const std::function<void(const MemoryAccess& access, bool store)>& each);
/// All loads and stores of a pass; several at one place count once.
std::vector<AccessInfo> accesses(const TilingRequest& request, const Pass& pass);
/// Machine operations for an element of a pass.
double flops_per_element(const TilingRequest& request, const Pass& pass);

/// An operand of a contraction: it varies along the reduced axes and along one of two parallel
/// ones.
struct Factor {
  ValueAt value;
  bool lanes = false;     ///< along the axis of the vectors, else along that of the rows
  bool computed = false;  ///< needs operations, at least a conversion
};
/// The factors of the reductions of the space's first pass, those with most behind them.
std::vector<Factor> factors(const TilingRequest& request, const Space& space, const SpaceAxis& lane,
                            const SpaceAxis& row);

/// The two values whose product, in f32, the reduction of `task` sums; none if it sums others.
/// `is_factor`: whether a value counts as one, whatever it is made of.
std::vector<ValueAt> product_of(const TilingRequest& request, const SpaceTask& task,
                                const std::function<bool(const ValueAt&)>& is_factor);

/// Whether the reductions of the first pass sum products of the two factors that matrix units of
/// warps multiply: 16-bit floats, or f32 where tf32 will do.
bool sums_matrix_products(const TilingRequest& request, const Space& space,
                          const std::vector<Factor>& found);

/// How well vectors run along `axis`: the share of bytes in accesses that are contiguous or
/// constant along it, times the share of full lanes.
double lane_quality(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis, int64_t lanes);

/// The axis along which vectors run best; of equally good axes, the innermost. 0 and -1 if there is
/// none.
struct LaneAxis {
  size_t index = 0;
  double quality = -1;
};
LaneAxis best_lane_axis(const std::vector<AccessInfo>& accesses, const std::vector<SpaceAxis>& axes,
                        int64_t lanes);

/// The pass with the most inner work.
const Pass& longest_pass(const Space& space);

/// The extent to plan for: the extent itself or, if it is symbolic, its greatest value.
int64_t planned_extent(const Expr& extent);

/// The product of the planned extents, at least 1 each.
int64_t planned_elements(const std::vector<SpaceAxis>& axes);
/// Whether the space is one pass of reductions that can be cut into chunks.
bool splittable(const TilingRequest& request, const Space& space);
/// The parallel axes (lanes, rows) of a product of factors that each run along one of them only,
/// lanes along the one with more contiguous accesses; none if every pair of axes shares a load, or
/// the space is no such product.
std::optional<std::pair<size_t, size_t>> factor_axes(const TilingRequest& request,
                                                     const Space& space);

std::optional<Schedule> schedule_reduction(const TilingRequest& request, const Space& space);

// The same for GPUs.

/// Neighbours along `axis` that one thread should access together: as many as 16 bytes hold, if all
/// contiguous accesses are then aligned.
int64_t gpu_vector(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis);
std::optional<Schedule> schedule_gpu_contraction(const TilingRequest& request, const Space& space);
std::optional<Schedule> schedule_gpu_reduction(const TilingRequest& request, const Space& space);

}  // namespace braze
