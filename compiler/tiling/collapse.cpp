#include <algorithm>

#include "compiler/tiling/emitter.h"

namespace braze {

namespace {

// Whether every access steps from one index of `outer` to the next as from the last index of
// `inner` to the one after it.
bool runs_through(const std::vector<Expr>& offsets, const SpaceAxis& outer,
                  const SpaceAxis& inner) {
  return std::all_of(offsets.begin(), offsets.end(), [&](const Expr& offset) {
    const auto a = offset.coefficient_of(outer.symbol.symbol_name());
    const auto b = offset.coefficient_of(inner.symbol.symbol_name());
    return a && b && *a == *b * inner.extent;
  });
}

}  // namespace

Space collapse(const LoopForms& forms, const Fusion& fusion, const Space& space) {
  if (space.passes.size() != 1 || !space.passes[0].reduces.empty() ||
      !space.passes[0].inner.empty())
    return space;
  std::vector<Expr> offsets;
  for (const SpaceTask& task : space.passes[0].stores) {
    offsets.push_back(linear_offset(task.at, forms.graph()[task.node].type.shape));
    for (const MemoryAccess& load : trace(forms, fusion, task).loads) {
      if (load.conditional || load.indirect) return space;
      offsets.push_back(linear_offset(load.at, forms.graph()[load.node].type.shape));
    }
  }
  Space result = space;
  // Merge from the inside: the merged axis is the inner one of the next pair.
  for (size_t p = result.parallel.size(); p-- > 1;) {
    const SpaceAxis outer = result.parallel[p - 1], inner = result.parallel[p];
    if (!runs_through(offsets, outer, inner)) continue;
    const Expr extent = outer.extent * inner.extent;
    const Expr merged =
        Expr::symbol(outer.symbol.symbol_name() + "." + inner.symbol.symbol_name().substr(2),
                     {0, std::max<int64_t>(extent.range().max, 1) - 1});
    const Expr divisor = max(inner.extent, 1);  // without elements there is nothing to index
    const std::unordered_map<std::string, Expr> split = {
        {outer.symbol.symbol_name(), floordiv(merged, divisor)},
        {inner.symbol.symbol_name(), mod(merged, divisor)}};
    for (SpaceTask& task : result.passes[0].stores)
      for (Expr& e : task.at) e = e.substitute(split);
    for (Expr& e : offsets) e = e.substitute(split);
    result.parallel[p - 1] = {merged, extent};
    result.parallel.erase(result.parallel.begin() + static_cast<ptrdiff_t>(p));
  }
  return result;
}

}  // namespace braze
