// tensor_view.h — tensors as bulk copies see them: with fewer axes than the graph gives them.
#pragma once

#include <vector>

#include "compiler/tiling/families.h"

namespace braze {

/// A row-major tensor with adjacent axes seen as one, where every access of a space runs through
/// them as one.
class TensorView {
 public:
  /// Of the tensor of `nodes`, which share one memory: several if an output takes over an input's.
  TensorView(const TilingRequest& request, const Space& space, std::vector<NodeId> nodes);

  const Shape& shape() const { return shape_; }
  /// Coordinates in the view of coordinates in the tensor.
  std::vector<Expr> at(std::vector<Expr> coordinates) const;

 private:
  Shape tensor_;
  Shape shape_;
  std::vector<size_t> joined_;  // axes of the tensor that continue the one before, last first
};

}  // namespace braze
