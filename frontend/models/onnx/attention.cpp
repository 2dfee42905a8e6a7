// attention.cpp — attention, and operators that go with it: rotary embeddings, gated units.
#include <cmath>
#include <limits>

#include "frontend/builder/builder.h"
#include "frontend/models/onnx/node.h"
#include "frontend/models/onnx/rotated.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Turns [batch, length, heads * width] into [batch, heads, length, width].
Tensor by_heads(OnnxNode& n, const Tensor& x, int64_t heads) {
  if (x.rank() == 4) return x;
  if (x.rank() != 3 || heads < 1)
    n.refuse("queries, keys or values have neither three nor four axes");
  return permute(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / Dim(heads)}), {0, 2, 1, 3});
}

Tensor size_of(const Tensor& like, const Dim& size) {
  return cast(detail::wrap(like.builder(), build::size(like.builder()->graph, to_expr(size))), i64);
}

// Which keys each query may see.
struct Sight {
  Tensor bias;     // is added to the scores; invalid if there is none
  Tensor allowed;  // a bool for each pair; invalid if every key may be seen
  void allow(const Tensor& more) { allowed = allowed.valid() ? allowed & more : more; }
};

Tensor mask_of(OnnxNode& n, const Tensor& keys) {
  const Tensor& mask = n[3];
  const Dim missing = keys.dim(2) - mask.dim(-1);
  if (missing == Dim(0) || mask.dim(-1) == Dim(1)) return mask;
  Dims low(mask.rank(), Dim(0)), high = low;
  high.back() = missing;
  const bool is_bool = mask.dtype() == boolean;
  return is_bool ? pad(mask, low, high, false) : pad(mask, low, high, -kInfinity);
}

Sight sight_of(OnnxNode& n, const Tensor& q, const Tensor& keys) {
  Sight sight;
  if (n.has(3)) {
    const Tensor mask = mask_of(n, keys);
    if (mask.dtype() == boolean)
      sight.allow(mask);
    else
      sight.bias = widened(mask);
  }
  const bool is_causal = n.integer("is_causal", 0) != 0;
  const int64_t left = n.integer("left_window_size", -1),
                right = n.integer("right_window_size", -1);
  const Dims pairs = {q.dim(2), keys.dim(2)};
  const Tensor key = arange(i64, pairs, 1);
  Tensor query = arange(i64, pairs, 0);
  // The keys that come before the first query shift its place.
  if (n.has(4))
    query = query + size_of(query, n[4].dim(2));
  else if (n.has(6))
    query = query + (reshape(cast(n[6], i64), {n[6].numel(), 1, 1, 1}) - size_of(query, q.dim(2)));
  if (is_causal) sight.allow(key <= query);
  if (left >= 0) sight.allow(query - key <= left);
  if (right >= 0) sight.allow(key - query <= right);
  if (n.has(6)) sight.allow(key < reshape(cast(n[6], i64), {n[6].numel(), 1, 1, 1}));
  return sight;
}

Tensors attention(OnnxNode& n) {
  const int64_t q_heads = n.integer("q_num_heads", 0), kv_heads = n.integer("kv_num_heads", 0);
  n.ignore("softmax_precision");  // it is always f32 or wider
  const DType dtype = n[0].dtype();
  const Tensor q = by_heads(n, n[0], q_heads);
  Tensor k = by_heads(n, n[1], kv_heads), v = by_heads(n, n[2], kv_heads);
  if (n.has(4)) k = concat({n[4], k}, 2);
  if (n.has(5)) v = concat({n[5], v}, 2);
  const Tensor present_key = k, present_value = v;
  if (!(q.dim(1) == k.dim(1))) {
    if (!q.dim(1).is_constant() || !k.dim(1).is_constant() || k.dim(1).value() < 1)
      n.refuse("the numbers of heads are not known");
    const int64_t shared = q.dim(1).value() / k.dim(1).value();
    k = repeat(k, shared, 1);
    v = repeat(v, shared, 1);
  }
  double scale = 0;
  if (n.has_attribute("scale")) scale = n.real("scale");
  if (scale == 0) {
    if (!q.dim(3).is_constant()) n.refuse("the width of a head is not known");
    scale = 1 / std::sqrt(static_cast<double>(q.dim(3).value()));
  }
  Tensor scores = dot(widened(q), permute(widened(k), {0, 1, 3, 2})) * scale;
  const int64_t shown = n.integer("qk_matmul_output_mode", 0);
  Tensor seen = scores;
  if (const double cap = n.real("softcap", 0.0); cap > 0) scores = tanh(scores / cap) * cap;
  if (shown == 1) seen = scores;
  const Sight sight = sight_of(n, q, k);
  if (sight.bias.valid()) scores = scores + sight.bias;
  if (sight.allowed.valid())
    scores = where(sight.allowed, scores, full(scores.dtype(), {}, -kInfinity));
  if (shown == 2) seen = scores;
  // A query that may see no key gets zeros.
  const Tensor greatest = max(scores, Axes(-1), true);
  const Tensor is_blind = greatest == -kInfinity;
  const Tensor e = exp(scores - where(is_blind, full_like(greatest, 0.0), greatest));
  const Tensor total = sum(e, Axes(-1), true);
  const Tensor shares = e / where(is_blind, full_like(total, 1.0), total);
  if (shown == 3) seen = shares;
  Tensor y = cast(dot(cast(shares, dtype), v), dtype);
  if (n[0].rank() == 3) {
    y = permute(y, {0, 2, 1, 3});
    y = reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)});
  }
  return {y, present_key, present_value, cast(seen, dtype)};
}

// Rotates pairs of numbers by angles. The cosines and sines are given for each place.
Tensor rotary(OnnxNode& n) {
  const Tensor& x = n[0];
  const int64_t heads = n.integer("num_heads", 0), turned = n.integer("rotary_embedding_dim", 0);
  const bool interleaved = n.integer("interleaved", 0) != 0;
  if (x.rank() == 3 && heads < 1) n.refuse("num_heads is missing");
  const Tensor all = x.rank() == 4 ? permute(x, {0, 2, 1, 3})
                                   : reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / Dim(heads)});
  const auto table = [&](size_t i) { return n.has(3) ? take(n[i], n[3], 0) : n[i]; };
  const Tensor y = rotated(all, table(1), table(2), turned ? Dim(turned) : all.dim(3), interleaved);
  return x.rank() == 4 ? permute(y, {0, 2, 1, 3}) : reshape(y, x.shape());
}

Tensor gated(OnnxNode& n) {
  const double alpha = n.real("alpha", 1.0);
  const Tensor x = widened(n[0]);
  return cast(x * sigmoid(x * alpha) * widened(n[1]), n[0].dtype());
}

}  // namespace

Tensor rotated(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Dim& width,
               bool interleaved) {
  const Tensor cosine = expand_dims(widened(cosines), 2), sine = expand_dims(widened(sines), 2);
  const Dim half = width / Dim(2);
  const Tensor part = widened(slice(x, 3, Dim(0), width));
  const Tensor first =
      interleaved ? slice(part, 3, Dim(0), width, 2) : slice(part, 3, Dim(0), half);
  const Tensor second =
      interleaved ? slice(part, 3, Dim(1), width, 2) : slice(part, 3, half, width);
  const Tensor real = cosine * first - sine * second, imaginary = sine * first + cosine * second;
  const Tensor y = interleaved ? reshape(stack({real, imaginary}, -1), part.shape())
                               : concat({real, imaginary}, 3);
  return concat({cast(y, x.dtype()), slice(x, 3, width, x.dim(3))}, 3);
}

const Rows& attention_rows() {
  static const Rows kRows = {
      {"Attention", attention, 23},
      {"RotaryEmbedding", rotary, 23},
      {"SwiGLU", gated, 28},
  };
  return kRows;
}

}  // namespace braze::onnx
