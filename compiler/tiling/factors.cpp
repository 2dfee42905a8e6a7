// factors.cpp — what a contraction multiplies: the operands that a schedule may copy to where its
// inner loop reads them best.
#include <algorithm>

#include "compiler/tiling/families.h"

namespace braze {

namespace {

bool uses(const std::vector<Expr>& at, const SpaceAxis& axis) {
  return std::any_of(at.begin(), at.end(),
                     [&](const Expr& e) { return e.uses(axis.symbol.symbol_name()); });
}

// What the value is made of, in memory.
std::vector<AccessInfo> sources(const TilingRequest& request, const ValueAt& value) {
  std::vector<AccessInfo> found;
  const SpaceTask task{value.node, value.at, {}};
  for (const MemoryAccess& load : trace(request.forms, request.fusion, task).loads) {
    const TensorType& type = request.forms.graph()[load.node].type;
    found.push_back({load.node, linear_offset(load.at, type.shape), size_of(type.dtype)});
  }
  return found;
}

// Whether more of them runs along `axis` than along `other`.
bool lies_along(const std::vector<AccessInfo>& loads, const SpaceAxis& axis,
                const SpaceAxis& other) {
  int64_t along = 0;
  for (const AccessInfo& load : loads)
    along += (load.stride(axis) == 1) - (load.stride(other) == 1);
  return along > 0;
}

bool is_computed(const TilingRequest& request, const ValueAt& value) {
  const auto& nodes = request.fusion.nodes;
  return is_half(request.forms.graph()[value.node].type.dtype) ||
         std::find(nodes.begin(), nodes.end(), value.node) != nodes.end();
}

}  // namespace

std::vector<Factor> factors(const TilingRequest& request, const Space& space, const SpaceAxis& lane,
                            const SpaceAxis& row) {
  const Pass& pass = space.passes.front();
  const SpaceAxis& inner = pass.inner.back();
  std::vector<Factor> found;
  std::vector<SharedValue> kept;
  const auto is_new = [&](const ValueAt& value) {
    const bool by_lane = uses(value.at, lane), by_row = uses(value.at, row);
    return by_lane != by_row && uses(value.at, inner) &&
           std::none_of(found.begin(), found.end(), [&](const Factor& f) {
             return f.value.node == value.node && f.value.at == value.at;
           });
  };
  // A value found hides what it is made of, so each search begins anew.
  for (const SpaceTask& task : pass.reduces) {
    for (bool searching = true; searching;) {
      const auto values = visited_values(request.forms, request.fusion, task, kept);
      const auto next = std::find_if(values.begin(), values.end(), is_new);
      searching = next != values.end();
      if (!searching) break;
      const bool lanes = uses(next->at, lane);
      const SpaceAxis& own = lanes ? lane : row;
      const auto loads = sources(request, *next);
      const bool across = lies_along(loads, inner, own);
      found.push_back({*next, lanes, is_computed(request, *next), across,
                       gpu_vector(loads, across ? inner : own)});
      kept.push_back({next->node, next->at, 0});
    }
  }
  return found;
}

}  // namespace braze
