// nn.h — neural network functions, as ordinary functions over ops, and parameters to start from.
//
// Nothing here is known to the compiler: `softmax` is the max, exp, sum and division you would
// write, in the numerically safe form. f16 and bf16 inputs compute statistics in f32. Inputs are
// floating unless said otherwise; results have the shape and dtype of x unless said otherwise. What
// does not fit is InvalidArgument, with your line.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "braze/array.h"
#include "braze/elementwise.h"
#include "braze/named.h"
#include "braze/random.h"
#include "braze/tensor.h"
#include "braze/windows.h"

namespace braze {

/// A way to fill a new parameter. Below, fan_in is what one output sums over and fan_out what one
/// input reaches: the extents of a weight [in, out], times those of any axes before.
using Initializer = std::function<Array(const std::vector<int64_t>& shape, DType, random::Key)>;

namespace init {

Initializer zeros();  ///< every element 0
Initializer ones();   ///< every element 1
/// Every element `value`, rounded to the dtype.
Initializer constant(double value);
/// Normal with this standard deviation and mean.
Initializer normal(double deviation = 1, double mean = 0);
/// Uniform in [low, high).
Initializer uniform(double low, double high);
/// Xavier (Glorot): deviation sqrt(2 / (fan_in + fan_out)), for layers without rectifiers.
Initializer xavier_normal();
/// Uniform of the same deviation: between -+sqrt(6 / (fan_in + fan_out)).
Initializer xavier_uniform();
/// He (Kaiming): deviation sqrt(2 / fan_in), for layers followed by a rectifier.
Initializer he_normal();
/// Uniform of the same deviation: between -+sqrt(6 / fan_in).
Initializer he_uniform();

}  // namespace init

namespace nn {

// Each parameter is drawn under the key that its name, of each group and its own, is folded into:
// the weight of layer "0" under key.fold_in("0").fold_in("weight"). Layers of one model need keys
// of their own: linear_parameters(64, 64, key.fold_in("layer1")).

/// "weight" [in, out] and "bias" [out] (zeros).
Parameters linear_parameters(int64_t in, int64_t out, random::Key key,
                             const Initializer& weight = init::xavier_uniform(), DType dtype = f32);
/// Parameters of linear layers "0", "1" ... between consecutive `sizes`.
Parameters mlp_parameters(const std::vector<int64_t>& sizes, random::Key key,
                          const Initializer& weight = init::he_normal(), DType dtype = f32);

/// "weight" [taps.., in / groups, out] and "bias" [out] (zeros) for `conv` with channels last.
Parameters conv_parameters(const std::vector<int64_t>& taps, int64_t in, int64_t out,
                           random::Key key, const Initializer& weight = init::he_normal(),
                           int64_t groups = 1, DType dtype = f32);
/// "scale" (ones) and "shift" (zeros), both [channels], for `batch_norm`.
Parameters batch_norm_parameters(int64_t channels, DType dtype = f32);
/// "mean" (zeros) and "variance" (ones), both f32 [channels]: what `batch_norm` takes where
/// nothing is trained, to be updated by `running_statistics`.
Parameters batch_norm_statistics(int64_t channels);

/// x·weight + bias over the last axis of x [..., in]: [..., out]. "weight" [in, out] and "bias"
/// [out] are of x's dtype; a collection without "bias" adds none.
Tensor linear(const Weights& layer, const Tensor& x, Where where = Where::current());
/// Linear layers "0", "1" ... with `activation` between them: x [..., in of the first] to [..., out
/// of the last].
Tensor mlp(
    const Weights& layers, const Tensor& x,
    const std::function<Tensor(Tensor)>& activation = [](Tensor t) { return relu(t); },
    Where where = Where::current());

/// `braze::conv` of x with "weight", plus "bias" [filters] for each channel of the result; a
/// collection without "bias" adds none. The layout is that of `options`.
Tensor conv(const Weights& layer, const Tensor& x, const ConvOptions& options = {},
            Where where = Where::current());

/// exp(x) / sum(exp(x)) along `axis`, from differences to the maximum.
Tensor softmax(const Tensor& x, int64_t axis = -1, Where where = Where::current());
/// log(softmax(x)) without the loss of small probabilities.
Tensor log_softmax(const Tensor& x, int64_t axis = -1, Where where = Where::current());

/// The mean of -log_softmax(logits)[label] over the rows whose label is not `ignore_index`; NaN if
/// there is none. `logits` [..., classes] floating, `labels` [...] integer. Ignored rows have no
/// gradient. Any other label outside of [0, classes) makes the result NaN. A scalar of the logits'
/// dtype; the number of classes must not be symbolic.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t ignore_index = -100,
                     Where where = Where::current());
/// The mean of (x - y)^2 over all elements: a scalar. The two have one dtype and broadcast.
Tensor mse(const Tensor& x, const Tensor& y, Where where = Where::current());
/// The share of rows whose greatest logit is that of the label, f32 scalar. `logits` [..., classes]
/// floating, `labels` [...] integer.
Tensor accuracy(const Tensor& logits, const Tensor& labels, Where where = Where::current());

/// (x - mean) / sqrt(var + epsilon) over the last axis, times `scale` plus `shift` (its extent).
Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon = 1e-5,
                  Where where = Where::current());
/// x / sqrt(mean(x^2) + epsilon) over the last axis, times `scale`.
Tensor rms_norm(const Tensor& x, const Tensor& scale, double epsilon = 1e-6,
                Where where = Where::current());
/// (x - mean) / sqrt(var + epsilon) over groups of channels, times `scale` plus `shift`. Axis
/// `channels` (not the first), of an extent that `groups` divides, is cut into `groups` of
/// neighbours; mean and variance are those of one group with all other axes but the first. `scale`
/// and `shift` have the extent of the channels. One group normalises all channels together, as many
/// as channels each alone.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& scale, const Tensor& shift,
                  double epsilon = 1e-5, int64_t channels = 1, Where where = Where::current());
/// A batch made normal, and by what.
struct BatchNormed {
  Tensor value;           ///< of x's type
  Tensor mean, variance;  ///< [channels] of this batch, in f32 for 16-bit x
  Tensor count;           ///< how many elements of a channel they are of: a scalar
};
/// (x - mean) / sqrt(variance + epsilon) of each channel over all other axes, times `scale` plus
/// `shift` ([channels], of x's dtype): for training.
BatchNormed batch_norm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                       double epsilon = 1e-5, int64_t channels = -1,
                       Where where = Where::current());
/// The same by a mean and variance that are given, f32 [channels] or of x's dtype: for inference.
Tensor batch_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& mean,
                  const Tensor& variance, double epsilon = 1e-5, int64_t channels = -1,
                  Where where = Where::current());
/// "mean" and "variance" moved by the share `momentum` towards those of a batch, whose variance is
/// taken over count - 1, as PyTorch does. No gradient flows through them.
Weights running_statistics(const Weights& statistics, const BatchNormed& batch,
                           double momentum = 0.1, Where where = Where::current());
/// Each element is zero with probability `rate` (in [0, 1)), else x / (1 - rate). `key` u32[2]; one
/// key gives one pattern.
Tensor dropout(const Tensor& x, double rate, const Tensor& key, Where where = Where::current());
/// Rows of `table` [count, width] (any dtype) at `ids` (i32 or i64): ids.shape + [width]. Ids out
/// of range as in `take`.
Tensor embedding(const Tensor& table, const Tensor& ids, Where where = Where::current());

}  // namespace nn
}  // namespace braze
