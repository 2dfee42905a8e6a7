// axes.h — which axes the values of a kernel share. The test of shared axes asks whether they do,
// and build.cpp makes the first tree of them.
//
// Every root of a kernel (a reduction, a contraction or a result that is stored) begins with its
// own axes. Each read gives an equation between an axis of the value that is read and a coordinate
// over the axes of the reader. Equations join axes. Where a coordinate is a floordiv, a mod, or a
// sum of them, they also cut axes into digits: heads and groups of an attention layer, merged and
// split dimensions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/index/expr.h"

namespace braze {

class Axes {
 public:
  /// Adds an axis that belongs to `owner`, which is a root or a tensor in memory. Returns its
  /// number.
  size_t add(const Expr& extent, size_t owner);
  /// The index along the axis, in the form that coordinates use.
  Expr symbol(size_t axis) const;
  /// The axis whose index `coordinate` is, if it is one.
  static std::optional<size_t> axis_of(const Expr& coordinate);

  /// States that `axis` is read at `coordinate`, an expression over symbols. Axes are joined as far
  /// as the coordinate consists of whole digits. Other parts (strides, distances, indices that are
  /// loaded) join nothing. Returns whether all digits of the axis are digits of the coordinate now.
  bool equate(size_t axis, const Expr& coordinate);

  /// The digits of an axis, the most significant first. Two digits with the same number are one
  /// axis.
  std::vector<size_t> digits(size_t axis) const;
  const Expr& extent(size_t digit) const { return nodes_[digit].extent; }

 private:
  struct Node {
    Expr extent;
    size_t joined;                    // the node with which it was joined, or itself
    std::vector<size_t> owners = {};  // sorted
    size_t outer = 0, inner = 0;      // the digits into which it was cut; both are 0 if it was not
    bool cut() const { return outer != inner; }
  };
  // The digit of an axis that has the weight `low` and takes `extent` values, times `coefficient`.
  struct Part {
    size_t axis;
    Expr low, extent, coefficient;
  };

  size_t root(size_t node) const;
  bool is_whole(size_t axis) const { return !nodes_[root(axis)].cut(); }
  void collect(size_t node, std::vector<size_t>& out) const;
  std::optional<std::vector<Part>> parts(const Expr& coordinate) const;
  std::optional<Part> part(const Expr& term) const;
  bool cut_at(size_t axis, const Expr& weight);
  std::vector<size_t> digits_between(size_t axis, const Expr& low, const Expr& extent);
  bool join(std::vector<size_t> a, std::vector<size_t> b);

  std::vector<Node> nodes_;
};

}  // namespace braze
