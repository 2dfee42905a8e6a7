// nn.h — functions of neural networks, and initial parameters.
//
// The compiler knows none of these functions: `softmax` is the max, exp, sum and division that you
// would write, in the numerically safe form. Statistics of f16 and bf16 inputs are computed in f32.
// Unless a comment says otherwise, inputs are floating and results have the shape and dtype of x.
// If arguments do not fit, the functions throw InvalidArgument, which names your line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "braze/array.h"
#include "braze/elementwise.h"
#include "braze/named.h"
#include "braze/random.h"
#include "braze/tensor.h"
#include "braze/tree.h"
#include "braze/windows.h"

namespace braze {

/// A function that fills a new parameter. Below, fan_in is the number of elements over which one
/// output sums, and fan_out is the number of outputs that one input reaches. For a weight [in, out]
/// these are its extents, multiplied by the extents of any axes before them.
using Initializer = std::function<Array(const std::vector<int64_t>& shape, DType, random::Key)>;

/// Initializers.
namespace init {

Initializer zeros();  ///< every element 0
Initializer ones();   ///< every element 1
/// Every element is `value`, rounded to the dtype.
Initializer constant(double value);
/// A normal distribution with this standard deviation and mean.
Initializer normal(double deviation = 1, double mean = 0);
/// A uniform distribution over [low, high).
Initializer uniform(double low, double high);
/// Xavier (Glorot): normal, deviation sqrt(2 / (fan_in + fan_out)), for layers without rectifiers.
Initializer xavier_normal();
/// Uniform with the same deviation: between -+sqrt(6 / (fan_in + fan_out)).
Initializer xavier_uniform();
/// He (Kaiming): normal, deviation sqrt(2 / fan_in), for layers before a rectifier.
Initializer he_normal();
/// Uniform with the same deviation: between -+sqrt(6 / fan_in).
Initializer he_uniform();

}  // namespace init

/// Layers, norms and losses as functions over ops.
namespace nn {

// The key of each parameter is derived from the names of its groups and its own name: the weight of
// layer "0" uses key.fold_in("0").fold_in("weight"). Different layers of one model need different
// keys: linear_parameters(64, 64, key.fold_in("layer1")).

/// Parameters of a linear layer: "weight" [in, out] and "bias" [out] (zeros).
Parameters linear_parameters(int64_t in, int64_t out, random::Key key,
                             const Initializer& weight = init::xavier_uniform(), DType dtype = f32);
/// Parameters of the linear layers "0", "1" ... between consecutive `sizes`.
Parameters mlp_parameters(const std::vector<int64_t>& sizes, random::Key key,
                          const Initializer& weight = init::he_normal(), DType dtype = f32);

/// "weight" [taps.., in / groups, out] and "bias" [out] (zeros) for `conv` with channels last.
Parameters conv_parameters(const std::vector<int64_t>& taps, int64_t in, int64_t out,
                           random::Key key, const Initializer& weight = init::he_normal(),
                           int64_t groups = 1, DType dtype = f32);
/// "scale" (ones) and "shift" (zeros), both [channels], for `batch_norm`.
Parameters batch_norm_parameters(int64_t channels, DType dtype = f32);
/// "mean" (zeros) and "variance" (ones), both f32 [channels]. `batch_norm` takes them for
/// inference, and `running_statistics` updates them during training.
Parameters batch_norm_statistics(int64_t channels);

/// x·weight + bias over the last axis of x [..., in]. The result is [..., out]. "weight" [in, out]
/// and "bias" [out] have the dtype of x. Without "bias" nothing is added.
Tensor linear(const Weights& layer, const Tensor& x, Where where = Where::current());
/// The linear layers "0", "1" ... with `activation` between them. x is [..., in of the first], and
/// the result is [..., out of the last].
Tensor mlp(
    const Weights& layers, const Tensor& x,
    const std::function<Tensor(Tensor)>& activation = [](Tensor t) { return relu(t); },
    Where where = Where::current());

/// `braze::conv` of x with "weight", plus "bias" [filters] for each channel of the result. Without
/// "bias" nothing is added. `options` gives the layout.
Tensor conv(const Weights& layer, const Tensor& x, const ConvOptions& options = {},
            Where where = Where::current());

/// exp(x) / sum(exp(x)) along `axis`, computed from x minus its maximum.
Tensor softmax(const Tensor& x, int64_t axis = -1, Where where = Where::current());
/// log(softmax(x)) without the loss of small probabilities.
Tensor log_softmax(const Tensor& x, int64_t axis = -1, Where where = Where::current());

/// The mean of -log_softmax(logits)[label] over the rows whose label is not `ignore_index`. It is
/// NaN if there is no such row. `logits` [..., classes] is floating and `labels` [...] is integer.
/// Ignored rows have no gradient. Any other label outside [0, classes) makes the result NaN. The
/// result is a scalar of the dtype of the logits. The number of classes must not be symbolic.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t ignore_index = -100,
                     Where where = Where::current());
/// The terms of that mean: -log_softmax(logits)[label] of each row, [...], in the dtype of the
/// logits. It is 0 for a row whose label is `ignore_index`, and NaN for one whose label is no
/// class. With `masked_mean` they make the loss of a batch that is padded for several devices.
Tensor cross_entropy_rows(const Tensor& logits, const Tensor& labels, int64_t ignore_index = -100,
                          Where where = Where::current());
/// The mean of (x - y)^2 over all elements, a scalar. x and y have one dtype, and are broadcast.
Tensor mse(const Tensor& x, const Tensor& y, Where where = Where::current());
/// The share of rows whose greatest logit is that of the label, as an f32 scalar. `logits` [...,
/// classes] is floating and `labels` [...] is integer.
Tensor accuracy(const Tensor& logits, const Tensor& labels, Where where = Where::current());

/// (x - mean) / sqrt(var + epsilon) over the last axis, times `scale`, plus `shift`. Both have the
/// extent of that axis.
Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon = 1e-5,
                  Where where = Where::current());
/// x / sqrt(mean(x^2) + epsilon) over the last axis, times `scale`.
Tensor rms_norm(const Tensor& x, const Tensor& scale, double epsilon = 1e-6,
                Where where = Where::current());
/// (x - mean) / sqrt(var + epsilon) over groups of channels, times `scale`, plus `shift`. The axis
/// `channels` (not the first axis) is divided into `groups` groups of neighbouring channels, so
/// `groups` must divide its extent. Mean and variance are taken over one group and all other axes
/// except the first. `scale` and `shift` have the extent of the channel axis. With one group, all
/// channels are normalised together. With as many groups as channels, each is normalised alone.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& scale, const Tensor& shift,
                  double epsilon = 1e-5, int64_t channels = 1, Where where = Where::current());
/// The result of `batch_norm` in training: the normalised batch, and its statistics.
struct BatchNormed {
  Tensor value;     ///< of x's type
  Tensor mean;      ///< [channels], of this batch; f32 if x is 16-bit
  Tensor variance;  ///< the same
  Tensor count;     ///< a scalar: the number of elements of one channel
};
/// For training: (x - mean) / sqrt(variance + epsilon), times `scale`, plus `shift`. The mean and
/// variance of a channel are taken over all other axes. `scale` and `shift` are [channels], of x's
/// dtype.
BatchNormed batch_norm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                       double epsilon = 1e-5, int64_t channels = -1,
                       Where where = Where::current());
/// For inference: the same with a given mean and variance, which are [channels], of f32 or x's
/// dtype.
Tensor batch_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& mean,
                  const Tensor& variance, double epsilon = 1e-5, int64_t channels = -1,
                  Where where = Where::current());
/// "mean" and "variance", moved towards those of a batch. `momentum` is the share of the way. As in
/// PyTorch, the batch's variance is divided by count - 1. No gradient flows through them.
Weights running_statistics(const Weights& statistics, const BatchNormed& batch,
                           double momentum = 0.1, Where where = Where::current());
/// Each element is multiplied by 0 with probability `rate` (in [0, 1)), and by 1 / (1 - rate)
/// otherwise. `key` is u32[2]. One key gives one pattern.
Tensor dropout(const Tensor& x, double rate, const Tensor& key, Where where = Where::current());
/// The rows of `table` [count, width] (any dtype) at `ids` (i32 or i64). The shape is ids.shape +
/// [width]. Ids out of range are treated as in `take`.
Tensor embedding(const Tensor& table, const Tensor& ids, Where where = Where::current());

// ---- Attention ----------------------------------------------------------------------------------

/// Which elements of a vector `rope` turns together.
enum class RopePairs : uint8_t {
  Halves,      ///< i and i + width / 2: GPT-NeoX, Hugging Face's Llama
  Neighbours,  ///< 2i and 2i + 1: RoFormer, GPT-J, Meta's Llama
};

/// Options of `rope`.
struct RopeOptions {
  double base = 10000;                  ///< pair i turns by base^(-2i / width) for each position
  RopePairs pairs = RopePairs::Halves;  ///< the elements of a pair
};
/// Rotary position embedding: turns each pair of elements of the last axis by an angle that is
/// proportional to the position of its row. x is [..., n, heads, width], and width is even.
/// `positions` [n] or [..., n] is integer; it is broadcast over x's axes before the last two. The
/// result has the type of x. 16-bit values are turned in f32 and rounded once.
Tensor rope(const Tensor& x, const Tensor& positions, const RopeOptions& options = {},
            Where where = Where::current());

/// Options of `attention`.
struct AttentionOptions {
  /// Whether query i sees only the keys 0 to `position` + i.
  bool causal = false;
  /// The place of the first query among the keys: an integer scalar or [1]. It is 0 if empty. It
  /// has no effect without `causal`.
  Tensor position = {};
  /// Bool, true where a query sees a key. It is broadcast to [..., heads, n, m].
  Tensor mask = {};
  /// Floating, added to the scaled scores. It is broadcast to [..., heads, n, m].
  Tensor bias = {};
  std::optional<double> scale = {};  ///< multiplies the scores; by default 1 / sqrt(width)
};
/// softmax(scale * queries·keys + bias)·values for each head. `queries` are [..., n, heads, width],
/// `keys` [..., m, groups, width] and `values` [..., m, groups, v], of one floating dtype; the
/// result is [..., n, heads, v] of that dtype. The axes before are equal. `groups` divides `heads`,
/// and heads / groups neighbouring heads read the same keys and values. Scores of 16-bit types are
/// f32, and the probabilities are rounded to the dtype before they meet the values. Keys that a
/// query does not see have the score -inf. A query that sees no key gets NaN.
Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const AttentionOptions& options = {}, Where where = Where::current());

/// The keys and values of what was seen so far. Rows that nothing was written to are not seen, but
/// must be finite.
template <class T>
struct KeyValueCache {
  T keys;    ///< [..., capacity, groups, width]
  T values;  ///< the same
};
BRAZE_TREE(KeyValueCache, keys, values)

/// A cache of zeros. `shape` is [..., capacity, groups, width].
KeyValueCache<Array> key_value_cache(const std::vector<int64_t>& shape, DType dtype = f32,
                                     const Device& device = default_device());
/// The cache with the rows `keys` and `values` [..., n, groups, width] from row `position` (an
/// integer scalar or [1]) on. Both members of `cache` are arguments of the function under
/// construction. They are donated, so only the new rows are written. A position from which the rows
/// would go beyond the capacity is moved back, as by `dynamic_update`.
KeyValueCache<Tensor> append(const KeyValueCache<Tensor>& cache, const Tensor& keys,
                             const Tensor& values, const Tensor& position,
                             Where where = Where::current());

/// Parameters of `multi_head_attention`: the linear layers "query" [width, width], "key" and
/// "value" [width, groups * width / heads], and "output" [width, width]. `heads` divides `width`,
/// and `groups` (0: as many as heads) divides `heads`.
Parameters multi_head_attention_parameters(int64_t width, int64_t heads, random::Key key,
                                           int64_t groups = 0,
                                           const Initializer& weight = init::xavier_uniform(),
                                           DType dtype = f32);

/// Options of `multi_head_attention`.
struct MultiHeadOptions {
  int64_t heads = 1;                     ///< of the queries
  int64_t groups = 0;                    ///< of keys and values, as in `attention`; 0: `heads`
  std::optional<RopeOptions> rope = {};  ///< turns queries and keys, counted from the position
  AttentionOptions attention = {};       ///< what each head sees
};
/// Self-attention of x [..., n, in]: the linear layers "query", "key" and "value" of x, `rope` if
/// it is asked for, `attention` of each head, and the linear layer "output". The result is
/// [..., n, out], of x's dtype. The number of queries' columns is a multiple of the heads, that of
/// keys and values of the groups. Layers without "bias" add nothing.
Tensor multi_head_attention(const Weights& layer, const Tensor& x,
                            const MultiHeadOptions& options = {}, Where where = Where::current());

/// The result of `multi_head_attention` with a cache.
struct CachedAttention {
  Tensor value;                 ///< [..., n, out]
  KeyValueCache<Tensor> cache;  ///< with n rows more
};
/// The same where x follows what is in the cache: its keys and values are appended at
/// `options.attention.position` (0 if empty), and each query sees all rows up to its own. Only the
/// first `rows` rows are looked at, which is faster; by default all are.
CachedAttention multi_head_attention(const Weights& layer, const Tensor& x,
                                     const KeyValueCache<Tensor>& cache,
                                     const MultiHeadOptions& options = {},
                                     std::optional<Dim> rows = {}, Where where = Where::current());

}  // namespace nn
}  // namespace braze
