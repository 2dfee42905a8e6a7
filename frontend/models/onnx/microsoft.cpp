// microsoft.cpp — operators of the domain com.microsoft, which exported transformers use:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>

#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

template <Tensor (*f)(const Tensor&, Where)>
Tensor activation(OnnxNode& n) {
  Tensor x = widened(n[0]);
  if (n.has(1)) x = x + widened(n[1]);
  return cast(f(x, Where::current()), n[0].dtype());
}

Tensor quick_gelu(OnnxNode& n) {
  const double alpha = n.real("alpha", double{1.702f});
  const Tensor x = widened(n[0]);
  return cast(x * sigmoid(x * alpha), n[0].dtype());
}

// The norm of the sum of x and others. The further results are the mean, 1 / deviation and the sum.
Tensors skip_norm(OnnxNode& n) {
  const double epsilon = n.real("epsilon", double{1e-12f});
  const DType dtype = n[0].dtype();
  Tensor x = widened(n[0]) + widened(n[1]);
  if (n.has(4)) x = x + widened(n[4]);
  const Tensor m = mean(x, Axes(-1), true), inverse = rsqrt(var(x, Axes(-1), true) + epsilon);
  Tensor y = (x - m) * inverse * widened(n[2]);
  if (n.has(3)) y = y + widened(n[3]);
  return {cast(y, dtype), m, inverse, cast(x, dtype)};
}

Tensors skip_rms_norm(OnnxNode& n) {
  const double epsilon = n.real("epsilon", double{1e-12f});
  const DType dtype = n[0].dtype();
  Tensor x = widened(n[0]) + widened(n[1]);
  if (n.has(3)) x = x + widened(n[3]);
  const Tensor inverse = rsqrt(mean(square(x), Axes(-1), true) + epsilon);
  return {cast(x * inverse * widened(n[2]), dtype), inverse, inverse, cast(x, dtype)};
}

Tensor fused_product(OnnxNode& n) {
  if (n.integer("transBatchA", 0) != 0 || n.integer("transBatchB", 0) != 0)
    n.refuse("batches that are transposed");
  const Tensor a = n.integer("transA", 0) ? transpose(n[0], -1, -2) : n[0];
  const Tensor b = n.integer("transB", 0) ? transpose(n[1], -1, -2) : n[1];
  const double alpha = n.real("alpha", 1.0);
  return alpha == 1 ? dot(a, b) : dot(a, b) * alpha;
}

// Each byte holds two numbers of 4 bits, the first one in the low bits.
Tensor nibbles(const Tensor& x) {
  const Tensor both = stack({x & 15, shr(x, 4)}, -1);
  Dims shape = x.shape();
  shape.back() = shape.back() * Dim(2);
  return reshape(both, shape);
}

// x times the transpose of a weight [n, k] of 4-bit numbers. The weight is divided into blocks
// along k. Each block has a scale and a zero point.
Tensor product_of_nibbles(OnnxNode& n) {
  const int64_t k = n.integer("K"), columns = n.integer("N");
  const int64_t bits = n.integer("bits", 4), block = n.integer("block_size");
  n.ignore("accuracy_level");  // it would allow to round x
  if (bits != 4) n.refuse(fmt::format("weights of {} bits", bits));
  if (n.has(4)) n.refuse("an order of the rows");
  if (k < 1 || columns < 1 || block < 2 || block % 2 ||
      std::max({k, columns, block}) > (int64_t{1} << 30))
    n.refuse("K, N or block_size cannot be");
  const int64_t blocks = (k + block - 1) / block;
  const Tensor quantized = reshape(nibbles(n[1]), {columns, blocks, block});
  const Tensor scales = reshape(widened(n[2]), {columns, blocks, 1});
  const DType inner = scales.dtype();
  Tensor zero;
  if (n.has(3) && n[3].dtype() == u8) {
    const Tensor all = nibbles(reshape(n[3], {columns, (blocks + 1) / 2}));
    zero = cast(reshape(slice(all, 1, 0, blocks), {columns, blocks, 1}), inner);
  } else if (n.has(3)) {
    zero = reshape(widened(n[3]), {columns, blocks, 1});
  }
  const Tensor number = cast(quantized, inner);
  const Tensor weight = (zero.valid() ? number - zero : number - 8) * scales;
  const Tensor rows = slice(reshape(weight, {columns, blocks * block}), 1, 0, k);
  const Tensor y = dot(n[0], transpose(cast(rows, n[0].dtype())));
  return n.has(5) ? y + n[5] : y;
}

}  // namespace

const Rows& microsoft_rows() {
  static const Rows kRows = {
      {"BiasGelu", activation<gelu>},        {"FastGelu", activation<gelu_tanh>},
      {"FusedMatMul", fused_product},        {"Gelu", activation<gelu>},
      {"MatMulNBits", product_of_nibbles},   {"QuickGelu", quick_gelu},
      {"SkipLayerNormalization", skip_norm}, {"SkipSimplifiedLayerNormalization", skip_rms_norm},
  };
  return kRows;
}

}  // namespace braze::onnx
