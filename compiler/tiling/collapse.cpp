// collapse.cpp — merges neighbouring axes of a space through which all accesses run as one.
#include <algorithm>
#include <functional>
#include <unordered_map>

#include "compiler/tiling/families.h"
#include "compiler/tiling/tile.h"

namespace braze {

namespace {

constexpr int64_t kVector = 16;  // elements of the longest vectors

// Whether every access steps from one index of `outer` to the next by the same distance as from the
// last index of `inner` to the one after it.
bool runs_through(const std::vector<Expr>& offsets, const SpaceAxis& outer,
                  const SpaceAxis& inner) {
  return std::all_of(offsets.begin(), offsets.end(), [&](const Expr& offset) {
    const auto a = offset.coefficient_of(outer.symbol.symbol_name());
    const auto b = offset.coefficient_of(inner.symbol.symbol_name());
    return a && b && *a == *b * inner.extent;
  });
}

using Replacements = std::unordered_map<std::string, Expr>;

void replace(std::vector<Expr>& list, const Replacements& replacements) {
  for (Expr& e : list) e = e.substitute(replacements);
}

// Merges neighbours of the list, from the innermost pair outwards: the merged axis is the inner
// axis of the next pair. An inner axis with at least `longest` indices is not merged. `each` is
// told what the axes of a pair have become.
void merge(std::vector<SpaceAxis>& axes, int64_t longest, std::vector<Expr>& offsets,
           const std::function<void(const Replacements&)>& each) {
  for (size_t p = axes.size(); p-- > 1;) {
    const SpaceAxis outer = axes[p - 1], inner = axes[p];
    if (inner.extent.range().max >= longest) continue;
    if (!runs_through(offsets, outer, inner)) continue;
    const Expr extent = outer.extent * inner.extent;
    const Expr merged =
        Expr::symbol(outer.symbol.symbol_name() + "." + inner.symbol.symbol_name().substr(2),
                     {0, std::max<int64_t>(extent.range().max, 1) - 1});
    const Expr divisor = max(inner.extent, 1);  // so that it is valid without elements, too
    const Replacements split = {{outer.symbol.symbol_name(), floordiv(merged, divisor)},
                                {inner.symbol.symbol_name(), mod(merged, divisor)}};
    replace(offsets, split);
    each(split);
    axes[p - 1] = {merged, extent};
    axes.erase(axes.begin() + static_cast<ptrdiff_t>(p));
  }
}

}  // namespace

Space collapse(const LoopForms& forms, const Fusion& fusion, const Space& space) {
  std::vector<Expr> offsets;
  bool conditional = false, indirect = false;
  const auto add = [&](const MemoryAccess& access, bool) {
    conditional = conditional || access.conditional;
    indirect = indirect || access.indirect;
    offsets.push_back(linear_offset(access.at, forms.graph()[access.node].type.shape));
  };
  for (const Pass& pass : space.passes) for_each_access(forms, fusion, pass, add);
  if (indirect) return space;
  Space result = space;
  const auto replace_in = [](Pass& pass, const Replacements& split) {
    for (SpaceTask& task : pass.reduces) {
      replace(task.at, split);
      replace(task.reduction, split);
    }
    for (SpaceTask& task : pass.stores) replace(task.at, split);
  };
  // If an inner axis joins an outer axis that has a condition, the condition applies to parts of
  // vectors. That pays only if the inner axis alone would not fill a vector, and if it is reduced.
  if (!conditional)
    merge(result.parallel, INT64_MAX, offsets, [&](const Replacements& split) {
      for (Pass& pass : result.passes) replace_in(pass, split);
    });
  // Passes may share axes. Each pass merges them for itself, and all decide by the same accesses.
  for (Pass& pass : result.passes) {
    std::vector<Expr> seen = offsets;
    merge(pass.inner, conditional ? kVector : INT64_MAX, seen,
          [&](const Replacements& split) { replace_in(pass, split); });
  }
  return result;
}

}  // namespace braze
