#include "ir/type/tensor_type.h"

#include "ir/support/hash.h"
#include "ir/support/text.h"

namespace braze {

Shape Shape::of(std::span<const int64_t> dims) {
  return Shape(std::vector<Expr>(dims.begin(), dims.end()));
}

Expr Shape::numel() const {
  // An empty tensor has no elements, whatever the product of its other extents is.
  for (const Expr& extent : dims_) {
    if (extent.is_constant(0)) return 0;
  }
  Expr product = 1;
  for (const Expr& extent : dims_) product *= extent;
  return product;
}

bool Shape::is_static() const {
  for (const Expr& extent : dims_) {
    if (!extent.as_constant()) return false;
  }
  return true;
}

std::vector<int64_t> Shape::static_dims() const {
  std::vector<int64_t> dims;
  for (const Expr& extent : dims_) {
    BRAZE_CHECK(extent.as_constant(), fmt::format("the shape {} is not static", to_string()));
    dims.push_back(*extent.as_constant());
  }
  return dims;
}

std::vector<int64_t> Shape::evaluate(const std::function<int64_t(std::string_view)>& lookup) const {
  std::vector<int64_t> dims;
  for (const Expr& extent : dims_) dims.push_back(extent.evaluate(lookup));
  return dims;
}

std::string Shape::to_string() const {
  return "[" + join(dims_, ", ", [](const Expr& extent) { return extent.to_string(); }) + "]";
}

std::string TensorType::to_string() const {
  return fmt::format("{}{}", name(dtype), shape.to_string());
}

uint64_t TensorType::hash() const {
  uint64_t hash = hash_combine(static_cast<uint64_t>(dtype), shape.rank());
  for (const Expr& extent : shape) hash = hash_combine(hash, extent.hash());
  return hash;
}

std::vector<Expr> row_major_strides(const Shape& shape) {
  std::vector<Expr> strides(shape.rank(), 1);
  for (size_t axis = shape.rank(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * shape[axis];
  }
  return strides;
}

}  // namespace braze
