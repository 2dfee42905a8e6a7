// tensor_type.h — shapes and tensor types.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braze/dtype.h"
#include "ir/index/expr.h"

namespace braze {

/// The extents of a tensor, outermost first. An extent is an Expr >= 0; rank 0 is a scalar.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Expr> dims) : dims_(dims) {}
  explicit Shape(std::vector<Expr> dims) : dims_(std::move(dims)) {}
  static Shape of(std::span<const int64_t> dims);

  size_t rank() const { return dims_.size(); }
  const Expr& operator[](size_t axis) const { return dims_[axis]; }
  Expr& operator[](size_t axis) { return dims_[axis]; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  const std::vector<Expr>& dims() const { return dims_; }

  /// The number of elements.
  Expr numel() const;
  bool is_static() const;
  /// The extents as integers. It is an internal error if one of them is symbolic.
  std::vector<int64_t> static_dims() const;
  /// The extents if each symbol has the value that `lookup` returns for it.
  std::vector<int64_t> evaluate(const std::function<int64_t(std::string_view)>& lookup) const;
  /// "[n, 64]".
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<Expr> dims_;
};

/// Element type and shape.
struct TensorType {
  DType dtype = DType::F32;
  Shape shape;

  /// "f32[n, 64]"; "f32[]" for a scalar.
  std::string to_string() const;
  uint64_t hash() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// Row-major strides in elements.
std::vector<Expr> row_major_strides(const Shape& shape);

}  // namespace braze
