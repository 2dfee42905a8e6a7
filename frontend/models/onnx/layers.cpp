// layers.cpp — operators that are layers of networks: normalisations, softmax, losses.
//
// Floats shorter than f32 are computed in f32, and rounded once at the end.
#include <algorithm>
#include <numeric>

#include "braze/nn.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

std::vector<int64_t> axes_from(int64_t first, size_t rank) {
  std::vector<int64_t> axes(rank - at(first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// Checks that x has axes for the batch and the channels.
void check_channels(OnnxNode& n) {
  if (n[0].rank() < 2) n.refuse("there is no axis of channels");
}

// A vector, reshaped to lie along axis 1 of a tensor of this rank.
Tensor by_channel(const Tensor& x, size_t rank) {
  Dims shape(rank, Dim(1));
  if (rank < 2)
    shape = {x.numel()};
  else
    shape[1] = x.numel();
  return reshape(widened(x), shape);
}

// ---- Softmax ------------------------------------------------------------------------------------

// Applies f along an axis. Before version 13, all axes from `axis` on count as one.
template <class F>
Tensor along_axis(OnnxNode& n, const F& f) {
  const Tensor& x = n[0];
  if (n.opset() >= 13) return f(x, n.axis(n.integer("axis", -1), x.rank()));
  const size_t axis = at(n.axis(n.integer("axis", 1), x.rank()));
  Dim rows = 1, columns = 1;
  const Dims shape = x.shape();
  for (size_t i = 0; i < shape.size(); ++i)
    (i < axis ? rows : columns) = (i < axis ? rows : columns) * shape[i];
  return reshape(f(reshape(x, {rows, columns}), int64_t{1}), shape);
}
Tensor softmax_of(OnnxNode& n) {
  return along_axis(n, [](const Tensor& x, int64_t axis) { return nn::softmax(x, axis); });
}
Tensor log_softmax_of(OnnxNode& n) {
  return along_axis(n, [](const Tensor& x, int64_t axis) { return nn::log_softmax(x, axis); });
}
Tensor hardmax(OnnxNode& n) {
  return along_axis(n, [](const Tensor& x, int64_t axis) {
    return cast(arange(i64, x.shape(), axis) == argmax(x, axis, true), x.dtype());
  });
}

// ---- Normalisations -----------------------------------------------------------------------------

Tensors batch_norm(OnnxNode& n) {
  const Tensor x = widened(n[0]);
  const double epsilon = n.real("epsilon", 1e-5), momentum = n.real("momentum", double{0.9f});
  n.ignore("spatial");
  check_channels(n);
  const size_t rank = x.rank();
  const auto result = [&](const Tensor& mean, const Tensor& variance) {
    const Tensor y =
        (x - mean) * rsqrt(variance + epsilon) * by_channel(n[1], rank) + by_channel(n[2], rank);
    return cast(y, n[0].dtype());
  };
  if (n.integer("training_mode", 0) == 0)
    return {result(by_channel(n[3], rank), by_channel(n[4], rank))};
  std::vector<int64_t> axes = axes_from(0, rank);
  axes.erase(axes.begin() + 1);
  const Tensor m = mean(x, axes), v = var(x, axes);
  const auto running = [&](size_t i, const Tensor& now) {
    return cast(widened(n[i]) * momentum + now * (1 - momentum), n[i].dtype());
  };
  return {result(by_channel(m, rank), by_channel(v, rank)), running(3, m), running(4, v)};
}

Tensor instance_norm(OnnxNode& n) {
  check_channels(n);
  const double epsilon = n.real("epsilon", 1e-5);
  const Tensor x = widened(n[0]);
  const std::vector<int64_t> axes = axes_from(2, x.rank());
  const Tensor y = (x - mean(x, axes, true)) * rsqrt(var(x, axes, true) + epsilon);
  return cast(y * by_channel(n[1], x.rank()) + by_channel(n[2], x.rank()), n[0].dtype());
}

Tensors layer_norm_of(OnnxNode& n) {
  n.ignore("stash_type");  // values in between are always f32 or wider
  const Tensor x = widened(n[0]);
  const double epsilon = n.real("epsilon", 1e-5);
  const std::vector<int64_t> axes = axes_from(n.axis(n.integer("axis", -1), x.rank()), x.rank());
  const Tensor m = mean(x, axes, true), inverse = rsqrt(var(x, axes, true) + epsilon);
  Tensor y = (x - m) * inverse * widened(n[1]);
  if (n.has(2)) y = y + widened(n[2]);
  return {cast(y, n[0].dtype()), m, inverse};
}

Tensor rms_norm_of(OnnxNode& n) {
  n.ignore("stash_type");
  const Tensor x = widened(n[0]);
  const double epsilon = n.real("epsilon", 1e-5);
  const std::vector<int64_t> axes = axes_from(n.axis(n.integer("axis", -1), x.rank()), x.rank());
  const Tensor y = x * rsqrt(mean(square(x), axes, true) + epsilon);
  return cast(y * widened(n[1]), n[0].dtype());
}

Tensor group_norm_of(OnnxNode& n) {
  n.ignore("stash_type");
  const int64_t groups = n.integer("num_groups");
  const double epsilon = n.real("epsilon", 1e-5);
  Tensor scale = n[1], shift = n[2];
  const Dim channels = n[0].dim(1);
  // Before version 21 there is one scale and one bias for each group.
  if (n.opset() < 21 && channels.is_constant() && groups > 0) {
    scale = repeat(scale, channels.value() / groups, 0);
    shift = repeat(shift, channels.value() / groups, 0);
  }
  return nn::group_norm(n[0], groups, scale, shift, epsilon);
}

Tensor lp_norm(OnnxNode& n) {
  const Tensor x = widened(n[0]);
  const int64_t axis = n.axis(n.integer("axis", -1), x.rank()), p = n.integer("p", 2);
  if (p != 1 && p != 2) n.refuse(fmt::format("p is {}", p));
  const Tensor length = p == 1 ? sum(abs(x), axis, true) : sqrt(sum(square(x), axis, true));
  const Tensor zero = full_like(x, 0.0);
  return cast(where(length == 0, zero, x / length), n[0].dtype());
}

Tensor mean_variance(OnnxNode& n) {
  const Tensor x = widened(n[0]);
  const Axes axes(n.axes_of(n.integers("axes", std::vector<int64_t>{0, 2, 3}), x.rank()));
  return cast((x - mean(x, axes, true)) / (sqrt(var(x, axes, true)) + 1e-9), n[0].dtype());
}

// The sum of squares over neighbouring channels.
Tensor local_response(OnnxNode& n) {
  const Tensor x = widened(n[0]);
  const int64_t size = n.integer("size");
  const double alpha = n.real("alpha", double{1e-4f}), beta = n.real("beta", 0.75);
  const double bias = n.real("bias", 1.0);
  check_channels(n);
  if (size < 1 || size > 4096) n.refuse(fmt::format("size is {}", size));
  Dims low(x.rank(), Dim(0)), high = low;
  low[1] = Dim((size - 1) / 2);
  high[1] = Dim(size / 2);
  const Tensor squares = pad(square(x), low, high);
  Tensor total;
  for (int64_t i = 0; i < size; ++i) {
    const Tensor part = slice(squares, 1, Dim(i), Dim(i) + x.dim(1));
    total = total.valid() ? total + part : part;
  }
  return cast(x / pow(total * (alpha / static_cast<double>(size)) + bias, beta), n[0].dtype());
}

template <Tensor (*reduce)(const Tensor&, const Axes&, bool, Where)>
Tensor global_pool(OnnxNode& n) {
  check_channels(n);
  const Tensor y = reduce(widened(n[0]), Axes(axes_from(2, n[0].rank())), true, Where::current());
  return cast(y, n[0].dtype());
}

Tensor global_lp_pool(OnnxNode& n) {
  check_channels(n);
  const Tensor x = abs(widened(n[0]));
  const auto p = static_cast<double>(n.integer("p", 2));
  return cast(pow(sum(pow(x, p), axes_from(2, x.rank()), true), 1 / p), n[0].dtype());
}

// ---- Losses -------------------------------------------------------------------------------------

// The loss of log-probabilities [batch, classes, ...]: those of the labels are weighted and summed.
Tensor likelihood_loss(OnnxNode& n, const Tensor& logs, const Tensor& labels, size_t weight_at) {
  const std::string reduction = n.text("reduction", "mean");
  Tensor label = cast(labels, i64), weight;
  Tensor is_kept;
  if (n.has_attribute("ignore_index")) {
    is_kept = label != n.integer("ignore_index");
    label = where(is_kept, label, 0);
  }
  const Tensor picked = squeeze(take_along_axis(logs, expand_dims(label, 1), 1), Axes(1));
  weight = n.has(weight_at) ? take(widened(n[weight_at]), label, 0) : full_like(picked, 1.0);
  if (is_kept.valid()) weight = where(is_kept, weight, full_like(weight, 0.0));
  const Tensor loss = where(weight == 0, full_like(picked, 0.0), -picked * weight);
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  if (reduction == "mean") return sum(loss) / sum(weight);
  n.refuse(fmt::format("the reduction is {}", reduction));
}

Tensor negative_log_likelihood(OnnxNode& n) {
  return cast(likelihood_loss(n, widened(n[0]), n[1], 2), n[0].dtype());
}
Tensors softmax_cross_entropy(OnnxNode& n) {
  const Tensor logs = nn::log_softmax(widened(n[0]), 1);
  return {cast(likelihood_loss(n, logs, n[1], 2), n[0].dtype()), cast(logs, n[0].dtype())};
}

// When a model is not trained, dropout drops nothing.
Tensors dropout_of(OnnxNode& n) {
  n.ignore("seed");
  n.ignore("ratio");
  n.ignore("is_test");
  const bool trains = n.has(2) && n.number(2, "training_mode") != 0;
  const double ratio = n.has(1) ? n.real(1, "ratio") : 0.5;
  if (trains && ratio != 0) n.refuse("dropout that trains: its random numbers are not specified");
  const Tensor ones =
      cast(arange(i32, n[0].shape().empty() ? Dims{Dim(1)} : n[0].shape(), 0) >= 0, boolean);
  return {n[0], reshape(ones, n[0].shape())};
}

}  // namespace

const Rows& layer_rows() {
  static const Rows kRows = {
      {"BatchNormalization", batch_norm, 7},
      {"Dropout", dropout_of},
      {"GlobalAveragePool", global_pool<mean>},
      {"GlobalLpPool", global_lp_pool, 2},
      {"GlobalMaxPool", global_pool<max>},
      {"GroupNormalization", group_norm_of, 18},
      {"Hardmax", hardmax},
      {"InstanceNormalization", instance_norm, 6},
      {"LRN", local_response},
      {"LayerNormalization", layer_norm_of},  // ONNX Runtime writes it in opsets before 17 too
      {"LogSoftmax", log_softmax_of},
      {"LpNormalization", lp_norm},
      {"MeanVarianceNormalization", mean_variance, 9},
      {"NegativeLogLikelihoodLoss", negative_log_likelihood, 12},
      {"RMSNormalization", rms_norm_of, 23},
      {"Softmax", softmax_of},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy, 12},
  };
  return kRows;
}

}  // namespace braze::onnx
