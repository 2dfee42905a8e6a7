#include "compiler/loops/rules/asynchronous.h"

#include "ir/code/boxes.h"
#include "ir/target/features.h"

namespace braze {

// Whether a box can hold all indices of an axis.
static bool is_box_along(const LoopTree& tree, const LoopStep& load, size_t axis) {
  const auto extent = tree.axes[axis].extent.as_constant();
  std::vector<Expr> at;
  for (const Expr& e : load.at)
    at.push_back(e.substitute(tree.axes[axis].name, position_symbol('d', 0, extent.value_or(1))));
  return extent && find_box(at, {*extent});
}

std::optional<Refusal> refuse_copies(const LoopTree& tree, const LoopStep& load,
                                     const std::set<size_t>& tiled, size_t summed, int64_t turn) {
  constexpr size_t kMostRank = 5;
  const TensorType& type = tree.tensors[load.source].type;
  const auto size = static_cast<int64_t>(size_of(type.dtype));
  if (!load.conditions.empty()) return no_rule("a factor is read under conditions");
  if (load.otherwise.value_or(0) != 0)
    return no_rule(
        "a factor must be 0 outside of its tensor, as copies make it, but has another value");
  if (type.shape.rank() == 0 || type.shape.rank() > kMostRank)
    return no_rule("a factor has too many dimensions for an asynchronous copy");
  if (!(type.shape[type.shape.rank() - 1] * size).is_multiple_of(kCopiedRowBytes))
    return no_rule("the rows of a factor are not multiples of 16 bytes");
  Expr first = load.at.back() * Expr(size);  // the byte of a row at which a box begins
  for (const size_t axis : tiled) first = first.substitute(tree.axes[axis].name, 0);
  if (!first.is_multiple_of(kCopiedRowBytes))
    return no_rule("a copy of a factor would begin inside of 16 bytes, at " +
                   load.at.back().to_string());
  // Each coordinate may vary along at most one tiled axis, and either contains it without a factor
  // or has its digits in the form of a box.
  for (const Expr& e : load.at) {
    size_t along = 0;
    for (const std::string& symbol : e.symbols()) {
      const auto axis = find_axis(tree, symbol);
      if (!axis) return no_rule("a factor is read at an index that is loaded");
      if (!tiled.contains(*axis)) continue;
      ++along;
      const auto slope = e.coefficient_of(symbol);
      if (slope ? !slope->is_constant(1) : !is_box_along(tree, load, *axis))
        return no_rule("a factor is read with strides, at " + e.to_string());
    }
    if (along > 1) return no_rule("a factor is read along two axes in one dimension");
  }
  // Beyond the end of the summed axis, a copy must find the end of the tensor, which gives 0, or
  // turns must be whole.
  for (size_t d = 0; d < load.at.size(); ++d) {
    const LoopAxis& axis = tree.axes[summed];
    if (!load.at[d].uses(axis.name)) continue;
    const bool ends = load.at[d] == axis.index() && type.shape[d] == axis.extent;
    const bool whole = turn > 0 && axis.extent.is_multiple_of(turn);
    if (!ends && !whole)
      return no_rule("the memory of a factor continues beyond the end of the summed axis");
  }
  return std::nullopt;
}

}  // namespace braze
