// nn.h — functions of neural networks, and initial parameters.
//
// The compiler knows none of these functions: `softmax` is the max, exp, sum and division that you
// would write, in the numerically safe form. Statistics of f16 and bf16 inputs are computed in f32.
// Unless a comment says otherwise, inputs are floating and results have the shape and dtype of x.
// If arguments do not fit, the functions throw InvalidArgument, which names your line.
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
/// Each element becomes zero with probability `rate` (in [0, 1)), and x / (1 - rate) otherwise.
/// `key` is u32[2]. One key gives one pattern.
Tensor dropout(const Tensor& x, double rate, const Tensor& key, Where where = Where::current());
/// The rows of `table` [count, width] (any dtype) at `ids` (i32 or i64). The shape is ids.shape +
/// [width]. Ids out of range are treated as in `take`.
Tensor embedding(const Tensor& table, const Tensor& ids, Where where = Where::current());

}  // namespace nn
}  // namespace braze
