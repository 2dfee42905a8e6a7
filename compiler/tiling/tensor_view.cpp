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

// Whether the coordinates from `first` to `last`, and not already those behind `first`, are the
// digits of what counts through all of these axes.
bool run_as_one(const std::vector<Expr>& at, const std::vector<Expr>& dims, size_t first,
                size_t last) {
  Expr low = at[first + 1], extent = dims[first + 1];
  for (size_t axis = first + 2; axis <= last; ++axis) {
    low = low * dims[axis] + at[axis];
    extent *= dims[axis];
  }
  const Expr whole = at[first] * extent + low;
  if (first + 1 < last && (is_linear(low) || is_linear(at[last]))) return false;
  if (whole.kind() == Expr::Kind::Symbol) return at[first].kind() != Expr::Kind::Constant;
  return is_linear(whole) && !is_linear(at[last]);
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
  for (size_t last = std::max<size_t>(dims.size(), 1) - 1; last > 0;) {
    const auto as_one = [&](size_t first) {
      return !accesses.empty() &&
             std::all_of(accesses.begin(), accesses.end(),
                         [&](const auto& at) { return run_as_one(at, dims, first, last); });
    };
    size_t first = last;  // the shortest run, if there is one
    for (size_t tried = last; first == last && tried-- > 0;)
      if (as_one(tried)) first = tried;
    if (first == last) {
      --last;
      continue;
    }
    for (; last > first; --last) {
      for (std::vector<Expr>& at : accesses) join(at, Shape(dims), last);
      dims[last - 1] *= dims[last];
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(last));
      joined_.push_back(last);
    }
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
