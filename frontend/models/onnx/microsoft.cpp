// microsoft.cpp — operators of the domain com.microsoft, which exported transformers use:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>
#include <cmath>
#include <limits>

#include "braze/nn.h"
#include "frontend/models/onnx/node.h"
#include "frontend/models/onnx/rotated.h"
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

// Pairs of numbers are rotated by angles, whose cosines and sines are given for each place. The
// places are given, or only the first one.
Tensor rotary(OnnxNode& n) {
  const Tensor& x = n[0];
  const int64_t heads = n.integer("num_heads", 0), turned = n.integer("rotary_embedding_dim", 0);
  const bool interleaved = n.integer("interleaved", 0) != 0;
  if (n.integer("is_packed_batching", 0) != 0) n.refuse("batches that are packed");
  if (n.real("scale", 1.0) != 1) n.refuse("a scale");
  if (x.rank() != 3 && x.rank() != 4) n.refuse("the operand has neither three nor four axes");
  if (x.rank() == 3 && turned != 0 && heads < 1) n.refuse("num_heads is missing");
  const Dim width = turned != 0 ? Dim(turned) : n[2].dim(1) * Dim(2);
  const Dim size = x.rank() == 4 ? x.dim(3) : turned != 0 ? x.dim(2) / Dim(heads) : width;
  const Tensor all = x.rank() == 4 ? permute(x, {0, 2, 1, 3})
                                   : reshape(x, {x.dim(0), x.dim(1), x.dim(2) / size, size});
  const Tensor places =
      n[1].rank() == 1 ? reshape(n[1], {1, 1}) + arange(i64, {1, all.dim(1)}, 1) : n[1];
  const Tensor y = rotated(all, take(n[2], places, 0), take(n[3], places, 0), width, interleaved);
  return x.rank() == 4 ? permute(y, {0, 2, 1, 3}) : reshape(y, x.shape());
}

// What a mask adds to the scores of all pairs [batch, heads, queries, keys]: 0 for pairs that may
// be seen, and `hidden` for others. A mask of one axis has the end of each text, or all ends and
// then all beginnings.
Tensor bias_of_mask(OnnxNode& n, const Tensor& mask, const Dim& batch, const Dim& queries,
                    const Dim& keys, double hidden) {
  const auto bias = [&](const Tensor& is_hidden) { return cast(is_hidden, f32) * hidden; };
  if (mask.rank() == 2) return bias(reshape(mask <= 0, {mask.dim(0), 1, 1, mask.dim(1)}));
  if (mask.rank() == 3) return bias(reshape(mask <= 0, {mask.dim(0), 1, mask.dim(1), mask.dim(2)}));
  if (mask.rank() == 4)
    return bias(slice(slice(mask, 2, keys - queries, keys), 3, Dim(0), keys) <= 0);
  const Tensor key = arange(mask.dtype(), {1, 1, 1, keys}, 3);
  const auto limits = [&](const Dim& from) {
    return reshape(slice(mask, 0, from, from + batch), {batch, 1, 1, 1});
  };
  if (mask.dim(0) == batch) return bias(key >= limits(0));
  if (!(mask.dim(0) == batch * Dim(2))) n.refuse("a mask of texts that are packed");
  return bias((key >= limits(0)) | (key < limits(batch)));
}

// Attention with the product that makes queries, keys and values. The further result is the keys
// and values [2, batch, heads, length, size], those of the past before the new ones.
Tensors attention(OnnxNode& n) {
  const int64_t heads = n.integer("num_heads");
  const std::vector<int64_t> given = n.integers("qkv_hidden_sizes", std::vector<int64_t>{});
  const double hidden = n.real("mask_filter_value", -10000.0);
  n.ignore("rotary_embedding_dim");
  if (n.integer("do_rotary", 0) != 0) n.refuse("rotary embeddings inside");
  if (n.integer("past_present_share_buffer", 0) != 0 || n.has(6))
    n.refuse("past keys and values that share memory with the result");
  if (heads < 1 || (!given.empty() && given.size() != 3)) n.refuse("sizes that cannot be");
  const DType dtype = n[0].dtype();
  Tensor all = dot(n[0], n[1]);
  if (n.has(2)) all = all + n[2];
  Dim from = 0;
  const auto part = [&](size_t i) {
    const Dim width = given.empty() ? all.dim(2) / Dim(3) : Dim(given[i]);
    const Tensor x = slice(all, 2, from, from + width);
    from = from + width;
    return permute(reshape(x, {x.dim(0), x.dim(1), heads, width / Dim(heads)}), {0, 2, 1, 3});
  };
  const Tensor q = part(0);
  Tensor k = part(1), v = part(2);
  if (n.has(4)) {
    const auto past = [&](int64_t i) {
      const Tensor& both = n[4];
      return reshape(slice(both, 0, Dim(i), Dim(i + 1)),
                     {both.dim(1), both.dim(2), both.dim(3), both.dim(4)});
    };
    k = concat({past(0), k}, 2);
    v = concat({past(1), v}, 2);
  }
  const Dim queries = q.dim(2), keys = k.dim(2);
  double scale = n.real("scale", 0.0);
  if (scale == 0) {
    if (!q.dim(3).is_constant()) n.refuse("the width of a head is not known");
    scale = 1 / std::sqrt(static_cast<double>(q.dim(3).value()));
  }
  Tensor scores = dot(widened(q), permute(widened(k), {0, 1, 3, 2})) * scale;
  if (n.has(3))
    scores = scores + cast(bias_of_mask(n, n[3], q.dim(0), queries, keys, hidden), scores.dtype());
  if (n.has(5)) scores = scores + widened(n[5]);
  if (n.integer("unidirectional", 0) != 0) {
    const Tensor later = arange(i64, {queries, keys}, 1) - arange(i64, {queries, keys}, 0);
    const Tensor first = cast(count(k, 2, i64) - count(q, 2, i64), i64);
    scores = where(later <= first, scores, -std::numeric_limits<double>::infinity());
  }
  const Tensor y = permute(cast(dot(cast(nn::softmax(scores), dtype), v), dtype), {0, 2, 1, 3});
  Tensors results = {reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)})};
  if (k.dim(3) == v.dim(3))
    results.push_back(stack({k, v}, 0));
  else if (n.wants(1))
    n.refuse("keys and values of different sizes in one result");
  return results;
}

}  // namespace

const Rows& microsoft_rows() {
  static const Rows kRows = {
      {"Attention", attention},
      {"BiasGelu", activation<gelu>},
      {"FastGelu", activation<gelu_tanh>},
      {"FusedMatMul", fused_product},
      {"Gelu", activation<gelu>},
      {"MatMulNBits", product_of_nibbles},
      {"QuickGelu", quick_gelu},
      {"RotaryEmbedding", rotary},
      {"SkipLayerNormalization", skip_norm},
      {"SkipSimplifiedLayerNormalization", skip_rms_norm},
  };
  return kRows;
}

}  // namespace braze::onnx
