#include "compiler/tiling/families.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace braze {

int64_t AccessInfo::stride(const SpaceAxis& axis) const {
  const auto coefficient = offset.coefficient_of(axis.symbol.symbol_name());
  if (!coefficient) return 2;
  const auto constant = coefficient->as_constant();
  return constant && *constant >= 0 ? *constant : 2;
}

void for_each_access(const LoopForms& forms, const Fusion& fusion, const Pass& pass,
                     const std::function<void(const MemoryAccess& access, bool store)>& each) {
  const auto visit_loads = [&](const SpaceTask& task) {
    for (const MemoryAccess& load : trace(forms, fusion, task).loads) each(load, false);
  };
  for (const SpaceTask& task : pass.reduces) visit_loads(task);
  for (const SpaceTask& task : pass.stores) {
    visit_loads(task);
    each({task.node, task.at}, true);
  }
}

std::vector<AccessInfo> accesses(const TilingRequest& request, const Pass& pass) {
  const Graph& graph = request.forms.graph();
  std::vector<AccessInfo> out;
  for_each_access(request.forms, request.fusion, pass, [&](const MemoryAccess& a, bool store) {
    const TensorType& type = graph[a.node].type;
    AccessInfo access{
        a.node,    linear_offset(a.at, type.shape), size_of(type.dtype), store, a.conditional,
        a.indirect};
    const bool known = std::any_of(out.begin(), out.end(), [&](const AccessInfo& other) {
      return other.node == access.node && other.store == store && other.offset == access.offset;
    });
    if (!known) out.push_back(std::move(access));
  });
  return out;
}

double flops_per_element(const TilingRequest& request, const Pass& pass) {
  return trace(request.forms, request.fusion, pass).flops;
}

double lane_quality(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis, int64_t lanes) {
  double all = 0, good = 0;
  for (const AccessInfo& access : accesses) {
    const auto bytes = static_cast<double>(access.bytes) * (access.store ? 1.5 : 1.0);
    all += bytes;
    const int64_t stride = access.stride(axis);
    if (stride == 1)
      good += bytes;
    else if (stride == 0 && !access.store)
      good += 0.75 * bytes;
  }
  const int64_t extent = std::max<int64_t>(planned_extent(axis.extent), 1);
  const double filled =
      static_cast<double>(extent) / static_cast<double>((extent + lanes - 1) / lanes * lanes);
  return all == 0 ? filled : good / all * filled;
}

LaneAxis best_lane_axis(const std::vector<AccessInfo>& accesses, const std::vector<SpaceAxis>& axes,
                        int64_t lanes) {
  LaneAxis best;
  for (size_t p = axes.size(); p-- > 0;) {
    const double quality = lane_quality(accesses, axes[p], lanes);
    if (quality > best.quality * 1.001) best = {p, quality};
  }
  return best;
}

const Pass& longest_pass(const Space& space) {
  return *std::max_element(space.passes.begin(), space.passes.end(),
                           [](const Pass& a, const Pass& b) {
                             return planned_elements(a.inner) < planned_elements(b.inner);
                           });
}

int64_t planned_extent(const Expr& extent) {
  return std::min<int64_t>(extent.range().max, int64_t{1} << 40);
}

int64_t planned_elements(const std::vector<SpaceAxis>& axes) {
  int64_t n = 1;
  for (const SpaceAxis& axis : axes)
    n = std::min<int64_t>(n * std::max<int64_t>(planned_extent(axis.extent), 1), int64_t{1} << 40);
  return n;
}

int64_t gpu_vector(const std::vector<AccessInfo>& accesses, const SpaceAxis& axis) {
  constexpr int64_t kAccessBytes = 16;
  int64_t vector = 8;
  size_t least = 16;
  for (const AccessInfo& access : accesses) {
    if (access.stride(axis) != 1) {
      // Neighbours that are apart in memory are separate accesses, even if one thread has them.
      if (access.stride(axis) > 1) vector = 1;
      continue;
    }
    least = std::min(least, access.bytes);
    // A vector is one access only if it begins at a multiple of its size.
    const int64_t divisor = access.offset.substitute(axis.symbol.symbol_name(), 0).divisor();
    while (vector > 1 && divisor % vector != 0) vector /= 2;
  }
  return std::min(vector, std::max<int64_t>(kAccessBytes / static_cast<int64_t>(least), 1));
}

bool splittable(const TilingRequest& request, const Space& space) {
  const bool single_pass =
      std::all_of(space.passes.begin() + 1, space.passes.end(),
                  [](const Pass& p) { return p.inner.empty() && p.reduces.empty(); });
  const Pass& first = space.passes.front();
  return single_pass && !first.inner.empty() && first.stores.empty() &&
         std::all_of(first.reduces.begin(), first.reduces.end(), [&](const SpaceTask& task) {
           return request.forms.find(task.node)->monoid.has_value();
         });
}

}  // namespace braze
