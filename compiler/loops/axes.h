// axes.h — which axes the values of a kernel share.
//
// Every root of a kernel (what is reduced, contracted or stored) begins with axes of its own. Each
// read gives an equation between an axis of the value that is read and a coordinate over the axes
// of the reader. Equations join axes, and cut them into digits where a coordinate is a floordiv, a
// mod, or a sum of them: the heads and groups of an attention layer, merged and split dimensions.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/index/expr.h"

namespace braze {

class Axes {
 public:
  /// A new axis of `owner`: of one root, or one tensor in memory. Returns its number.
  size_t add(const Expr& extent, size_t owner);
  /// The index along the axis, in the form that coordinates use.
  Expr symbol(size_t axis) const;

  /// `axis` is read at `coordinate`, an expression over symbols. The equation joins axes as far as
  /// it speaks of whole digits. Other parts (strides, distances, indices read at run time) join
  /// nothing.
  void equate(size_t axis, const Expr& coordinate);

  /// The digits of an axis, most significant first. Digits with one number are one axis.
  std::vector<size_t> digits(size_t axis) const;
  const Expr& extent(size_t digit) const { return nodes_[digit].extent; }

 private:
  struct Node {
    Expr extent;
    size_t joined;  // another owner, or itself
    std::set<size_t> owners = {};
    size_t outer = 0, inner = 0;  // the digits into which it was cut; both 0: none
    bool cut() const { return outer != inner; }
  };
  // `coefficient` times the digit of an axis from `low` on, of `extent` values.
  struct Part {
    size_t axis;
    Expr low, extent, coefficient;
  };

  size_t root(size_t node) const;
  void collect(size_t node, std::vector<size_t>& out) const;
  std::optional<std::vector<Part>> parts(const Expr& coordinate) const;
  std::optional<Part> part(const Expr& term) const;
  bool cut_at(size_t axis, const Expr& weight);
  std::vector<size_t> digits_between(size_t axis, const Expr& low, const Expr& extent);
  void join(std::vector<size_t> a, std::vector<size_t> b);

  std::vector<Node> nodes_;
};

}  // namespace braze
