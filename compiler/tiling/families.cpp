#include "compiler/tiling/families.h"

#include <algorithm>
#include <cmath>

namespace braze {

int64_t AccessInfo::stride(const SpaceAxis& axis) const {
  const auto coefficient = offset.coefficient_of(axis.symbol.symbol_name());
  if (!coefficient) return 2;
  const auto constant = coefficient->as_constant();
  return constant && *constant >= 0 ? *constant : 2;
}

std::vector<AccessInfo> accesses(const TilingRequest& request, const Pass& pass) {
  const Graph& graph = request.forms.graph();
  std::vector<AccessInfo> out;
  const auto add = [&](NodeId node, const std::vector<Expr>& at, bool store, bool irregular) {
    const TensorType& type = graph[node].type;
    AccessInfo access{node, linear_offset(at, type.shape), size_of(type.dtype), store, irregular};
    const bool known = std::any_of(out.begin(), out.end(), [&](const AccessInfo& a) {
      return a.node == node && a.store == store && a.offset == access.offset;
    });
    if (!known) out.push_back(std::move(access));
  };
  const auto add_loads = [&](const SpaceTask& task) {
    for (const MemoryAccess& load : trace(request.forms, request.fusion, task).loads)
      add(load.node, load.at, false, load.conditional || load.indirect);
  };
  for (const SpaceTask& task : pass.reduces) add_loads(task);
  for (const SpaceTask& task : pass.stores) {
    add_loads(task);
    add(task.node, task.at, true, false);
  }
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

int64_t planned_extent(const Expr& extent) {
  return std::min<int64_t>(extent.range().max, int64_t{1} << 40);
}

int64_t planned_elements(const std::vector<SpaceAxis>& axes) {
  int64_t n = 1;
  for (const SpaceAxis& axis : axes)
    n = std::min<int64_t>(n * std::max<int64_t>(planned_extent(axis.extent), 1), int64_t{1} << 40);
  return n;
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
