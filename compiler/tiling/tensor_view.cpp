#include "compiler/tiling/tensor_view.h"

#include <algorithm>

namespace braze {

namespace {

// All coordinates at which the tasks of the space read or write a tensor.
std::vector<std::vector<Expr>> all_coordinates(const TilingRequest& request, const Space& space,
                                               const std::vector<NodeId>& nodes) {
  std::vector<std::vector<Expr>> out;
  for (const Pass& pass : space.passes) {
    for_each_access(request.forms, request.fusion, pass, [&](const MemoryAccess& access, bool) {
      if (std::find(nodes.begin(), nodes.end(), access.node) != nodes.end())
        out.push_back(access.at);
    });
  }
  return out;
}

// Sums of multiples of symbols.
bool is_linear(const Expr& e) {
  const bool sum = e.kind() == Expr::Kind::Sum || e.kind() == Expr::Kind::Product;
  return e.kind() == Expr::Kind::Constant || e.kind() == Expr::Kind::Symbol ||
         (sum && std::all_of(e.operands().begin(), e.operands().end(), is_linear));
}

// Whether two coordinates are the halves of what counts through both axes.
bool run_as_one(const Expr& outer, const Expr& inner, const Expr& inner_extent) {
  const Expr whole = outer * inner_extent + inner;
  if (whole.kind() == Expr::Kind::Symbol) return outer.kind() != Expr::Kind::Constant;
  return is_linear(whole) && !is_linear(inner);
}

void join(std::vector<Expr>& at, const Shape& tensor, size_t axis) {
  at[axis - 1] = at[axis - 1] * tensor[axis] + at[axis];
  at.erase(at.begin() + static_cast<ptrdiff_t>(axis));
}

}  // namespace

TensorView::TensorView(const TilingRequest& request, const Space& space, std::vector<NodeId> nodes)
    : tensor_(request.forms.graph()[nodes[0]].type.shape) {
  auto accesses = all_coordinates(request, space, nodes);
  std::vector<Expr> dims = tensor_.dims();
  for (size_t axis = dims.size(); axis-- > 1;) {
    const bool as_one =
        !accesses.empty() &&
        std::all_of(accesses.begin(), accesses.end(), [&](const std::vector<Expr>& at) {
          return run_as_one(at[axis - 1], at[axis], dims[axis]);
        });
    if (!as_one) continue;
    for (std::vector<Expr>& at : accesses) join(at, Shape(dims), axis);
    dims[axis - 1] *= dims[axis];
    dims.erase(dims.begin() + static_cast<ptrdiff_t>(axis));
    joined_.push_back(axis);
  }
  shape_ = Shape(std::move(dims));
}

std::vector<Expr> TensorView::at(std::vector<Expr> coordinates) const {
  std::vector<Expr> dims = tensor_.dims();
  for (const size_t axis : joined_) {
    join(coordinates, Shape(dims), axis);
    dims[axis - 1] *= dims[axis];
    dims.erase(dims.begin() + static_cast<ptrdiff_t>(axis));
  }
  return coordinates;
}

}  // namespace braze
