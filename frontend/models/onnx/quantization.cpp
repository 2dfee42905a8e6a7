// quantization.cpp — numbers that are stored as scaled integers or as 8-bit floats, and their
// products.
#include <algorithm>

#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

// The least and the greatest number of a type.
struct Range {
  double low, high;
};
Range range_of(const ElementType& type) {
  if (type.dtype == DType::F8E4M3) return {-448, 448};
  if (type.dtype == DType::F8E5M2) return {-57344, 57344};
  const int width = type.bits ? type.bits : static_cast<int>(8 * size_of(type.dtype));
  const double all = static_cast<double>(uint64_t{1} << width);
  return is_signed_integer(type.dtype) ? Range{-all / 2, all / 2 - 1} : Range{0, all - 1};
}

// A scale or zero point in a shape that broadcasts to x. There may be one for all elements, one for
// each place on `axis`, or one for each `block` elements along it.
Tensor spread(OnnxNode& n, const Tensor& scale, const Tensor& x, int64_t axis, int64_t block) {
  if (scale.rank() == 0 || scale.numel() == Dim(1)) return reshape(scale, {});
  if (scale.rank() == 1 && block == 0) {
    Dims shape(x.rank(), Dim(1));
    shape[at(n.axis(axis, x.rank()))] = scale.dim(0);
    return reshape(scale, shape);
  }
  if (block == 0 || scale.rank() != x.rank()) n.refuse("the scale does not fit the data");
  axis = n.axis(axis, x.rank());
  const Tensor repeated = repeat(scale, block, axis);
  return slice(repeated, axis, Dim(0), x.dim(axis));
}

// Rounds to whole numbers within the range of the type. The number `zero` stands for zero.
Tensor quantized(const Tensor& x, const Tensor& zero, const ElementType& type) {
  const auto [low, high] = range_of(type);
  if (is_stored_float(type.dtype)) {
    const Tensor within = where(is_nan(x), x, clamp(x, low, high));
    return cast(within, type.dtype);
  }
  Tensor whole = round_even(x);
  if (zero.valid()) whole = whole + cast(zero, whole.dtype());
  return cast(clamp(whole, low, high), type.dtype);
}

Tensor quantize(OnnxNode& n) {
  n.ignore("precision");
  const Tensor x = cast(n[0], is_floating(n[0].dtype()) ? compute_type(n[0].dtype()) : f32);
  const int64_t axis = n.integer("axis", 1), block = n.integer("block_size", 0);
  const bool saturates = n.integer("saturate", 1) != 0;
  ElementType type{DType::U8};
  if (n.has_attribute("output_dtype") && n.integer("output_dtype") != 0)
    type = n.type("output_dtype");
  if (n.has(2)) type = {n[2].dtype(), n.bits(2)};
  const Tensor ratio = x / cast(spread(n, n[1], x, axis, block), x.dtype());
  n.set_bits(type.bits);
  if (is_stored_float(type.dtype) && !saturates) return cast(ratio, type.dtype);
  const bool has_zero = n.has(2) && !is_stored_float(type.dtype);
  return quantized(ratio, has_zero ? spread(n, n[2], x, axis, block) : Tensor(), type);
}

Tensor dequantize_of(OnnxNode& n) {
  const int64_t axis = n.integer("axis", 1), block = n.integer("block_size", 0);
  DType result = n[1].dtype();
  if (n.has_attribute("output_dtype") && n.integer("output_dtype") != 0)
    result = n.type("output_dtype").dtype;
  const DType inner = compute_type(n[1].dtype());
  Tensor x;
  if (n.has(2) && is_integer(n[0].dtype())) {
    const Tensor zero = spread(n, n[2], n[0], axis, block);
    x = cast(cast(n[0], i32) - cast(zero, i32), inner);
  } else {
    x = cast(n[0], inner);
  }
  return cast(x * cast(spread(n, n[1], n[0], axis, block), inner), result);
}

Tensors dynamic_quantize(OnnxNode& n) {
  const Tensor& x = n[0];
  const Tensor low = minimum(min(x), 0.0), high = maximum(max(x), 0.0);
  const Tensor span = (high - low) / 255;
  const Tensor scale = where(span == 0, full_like(span, 1.0), span);
  const Tensor zero = cast(clamp(round_even(-low / scale), 0.0, 255.0), u8);
  return {quantized(x / scale, zero, {DType::U8}), scale, zero};
}

// 8-bit integers, converted to i32, minus their zero point.
Tensor centered(OnnxNode& n, size_t i, size_t zero_at, bool is_left) {
  const Tensor x = cast(n[i], i32);
  if (!n.has(zero_at)) return x;
  const Tensor zero = cast(n[zero_at], i32);
  if (zero.rank() == 0 || zero.numel() == Dim(1)) return x - reshape(zero, {});
  if (zero.rank() > 1) return x - zero;
  return x - (is_left ? expand_dims(zero, -1) : zero);  // for each row, or for each column
}

Tensor product_of_integers(OnnxNode& n) {
  return dot(centered(n, 0, 2, true), centered(n, 1, 3, false));
}

Tensor quantized_product(OnnxNode& n) {
  const Tensor product = dot(centered(n, 0, 2, true), centered(n, 3, 5, false));
  const auto scale = [&](size_t i, bool is_left) {
    const Tensor s = widened(n[i]);
    if (s.rank() == 0 || s.numel() == Dim(1)) return reshape(s, {});
    return s.rank() == 1 && is_left ? expand_dims(s, -1) : s;
  };
  const Tensor factor = scale(1, true) * scale(4, false) / scale(6, true);
  const Tensor zero = reshape(n[7], {});
  return quantized(cast(product, f32) * factor, zero, {n[7].dtype(), n.bits(7)});
}

// 8-bit images and filters are convolved in f64. All sums are exact there, so the result is exact.
Tensor conv_of_centered(OnnxNode& n, size_t x_zero, size_t filters_at, size_t filters_zero) {
  Tensor filters = cast(n[filters_at], i32);
  if (n.has(filters_zero)) {
    Tensor zero = cast(n[filters_zero], i32);
    Dims shape(filters.rank(), Dim(1));
    if (zero.rank() == 1) shape[0] = zero.dim(0);  // there is one for each filter
    filters = filters - reshape(zero, shape);
  }
  const Tensor x = centered(n, 0, x_zero, true);
  return cast(convolved(n, cast(x, f64), cast(filters, f64)), i32);
}

Tensor conv_of_integers(OnnxNode& n) { return conv_of_centered(n, 2, 1, 3); }

Tensor quantized_conv(OnnxNode& n) {
  Tensor sum = conv_of_centered(n, 2, 3, 5);
  const auto by_channel = [&](const Tensor& x) {
    Dims shape(sum.rank(), Dim(1));
    if (x.rank() == 1) shape[1] = x.dim(0);
    return reshape(x, shape);
  };
  if (n.has(8)) sum = sum + by_channel(n[8]);
  const Tensor factor = reshape(n[1], {}) * by_channel(n[4]) / reshape(n[6], {});
  return quantized(cast(sum, f32) * factor, reshape(n[7], {}), {n[7].dtype(), n.bits(7)});
}

}  // namespace

const Rows& quantization_rows() {
  static const Rows kRows = {
      {"ConvInteger", conv_of_integers, 10},
      {"DequantizeLinear", dequantize_of, 10},
      {"DynamicQuantizeLinear", dynamic_quantize, 11},
      {"MatMulInteger", product_of_integers, 10},
      {"QLinearConv", quantized_conv, 10},
      {"QLinearMatMul", quantized_product, 10},
      {"QuantizeLinear", quantize, 10},
  };
  return kRows;
}

}  // namespace braze::onnx
