#include "braze/nn.h"

#include <cmath>
#include <string>

#include "braze/creation.h"
#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze {

// ---- Initializers -----------------------------------------------------------------------------

namespace init {
namespace {

struct Fans {
  double in, out;
};

/// The numbers of a weight [in, out]. Any axes before the last two multiply both.
Fans fans(const std::vector<int64_t>& shape) {
  if (shape.empty()) return {1, 1};
  double spread = 1;
  for (size_t i = 0; i + 2 < shape.size(); ++i) spread *= static_cast<double>(shape[i]);
  const auto last = static_cast<double>(shape.back());
  const auto before = shape.size() > 1 ? static_cast<double>(shape[shape.size() - 2]) : last;
  return {spread * before, spread * last};
}

Initializer scaled_normal(double (*variance)(Fans)) {
  return [variance](const std::vector<int64_t>& shape, DType dtype, random::Key key) {
    return random::normal(shape, key, 0, std::sqrt(variance(fans(shape))), dtype);
  };
}

/// Uniform numbers of the same variance: on [-b, b) the variance is b^2 / 3.
Initializer scaled_uniform(double (*variance)(Fans)) {
  return [variance](const std::vector<int64_t>& shape, DType dtype, random::Key key) {
    const double bound = std::sqrt(3 * variance(fans(shape)));
    return random::uniform(shape, key, -bound, bound, dtype);
  };
}

double xavier(Fans fans) { return 2 / std::max(fans.in + fans.out, 1.0); }
double he(Fans fans) { return 2 / std::max(fans.in, 1.0); }

}  // namespace

Initializer constant(double value) {
  return [value](const std::vector<int64_t>& shape, DType dtype, random::Key) {
    return full(shape, value, dtype);
  };
}
Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }
Initializer normal(double deviation, double mean) {
  return [=](const std::vector<int64_t>& shape, DType dtype, random::Key key) {
    return random::normal(shape, key, mean, deviation, dtype);
  };
}
Initializer uniform(double low, double high) {
  return [=](const std::vector<int64_t>& shape, DType dtype, random::Key key) {
    return random::uniform(shape, key, low, high, dtype);
  };
}
Initializer xavier_normal() { return scaled_normal(xavier); }
Initializer xavier_uniform() { return scaled_uniform(xavier); }
Initializer he_normal() { return scaled_normal(he); }
Initializer he_uniform() { return scaled_uniform(he); }

}  // namespace init

namespace nn {

Parameters linear_parameters(int64_t in, int64_t out, random::Key key, const Initializer& weight,
                             DType dtype) {
  return {{"weight", weight({in, out}, dtype, key.fold_in("weight"))},
          {"bias", zeros({out}, dtype)}};
}

Parameters mlp_parameters(const std::vector<int64_t>& sizes, random::Key key,
                          const Initializer& weight, DType dtype) {
  Parameters out;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const std::string layer = std::to_string(i);
    out.add(layer, linear_parameters(sizes[i], sizes[i + 1], key.fold_in(layer), weight, dtype));
  }
  return out;
}

Parameters conv_parameters(const std::vector<int64_t>& taps, int64_t in, int64_t out,
                           random::Key key, const Initializer& weight, int64_t groups,
                           DType dtype) {
  if (groups < 1 || in % groups != 0 || out % groups != 0)
    fail(codes::kBadAttribute,
         fmt::format("conv_parameters: {} groups of {} channels in and {} out", groups, in, out),
         {.node = "conv_parameters", .fix = "both are multiples of the groups"});
  std::vector<int64_t> shape = taps;
  shape.push_back(in / groups);
  shape.push_back(out);
  return {{"weight", weight(shape, dtype, key.fold_in("weight"))}, {"bias", zeros({out}, dtype)}};
}

Parameters batch_norm_parameters(int64_t channels, DType dtype) {
  return {{"scale", ones({channels}, dtype)}, {"shift", zeros({channels}, dtype)}};
}

Parameters batch_norm_statistics(int64_t channels) {
  return {{"mean", zeros({channels}, f32)}, {"variance", ones({channels}, f32)}};
}

// ---- Layers -----------------------------------------------------------------------------------

namespace {

/// Converts 16-bit floats to f32, for functions of many ops, which would round after each of them.
Tensor widen(const Tensor& x) { return cast(x, compute_type(x.dtype())); }

/// x minus its maximum. The shift changes no result, so no gradient flows through it.
Tensor shifted(const Tensor& x, int64_t axis) { return x - stop_gradient(max(x, axis, true)); }

void check_labels(const char* op, const Tensor& logits, const Tensor& labels) {
  Dims rows = logits.shape();
  if (!rows.empty()) rows.pop_back();
  if (logits.rank() > 0 && is_floating(logits.dtype()) && is_integer(labels.dtype()) &&
      rows == labels.shape())
    return;
  fail(codes::kShapeMismatch,
       fmt::format("{}: {} cannot be labels of {}", op, labels.to_string(), logits.to_string()),
       {.location = detail::place(Where::current()),
        .node = op,
        .fix = "give integers in the shape of the logits without the last axis"});
}

/// A parameter for the last axis of a value must be a vector of that length. Other shapes would be
/// broadcast, and a layer whose parameters are swapped would train.
void check_last_axis(const char* op, const char* name, const Tensor& parameter, const Tensor& x) {
  if (x.rank() > 0 && parameter.rank() == 1 && parameter.dim(0) == x.dim(-1)) return;
  fail(codes::kShapeMismatch,
       fmt::format("{}: {} {} does not fit the last axis of {}", op, name, parameter.to_string(),
                   x.to_string()),
       {.location = detail::place(Where::current()),
        .node = op,
        .fix = "give one element for each element of the last axis"});
}

}  // namespace

Tensor linear(const Weights& layer, const Tensor& x, Where where) {
  const detail::Place place(where, "linear");
  const Tensor product = dot(x, layer.at("weight"));
  if (!layer.contains("bias")) return product;
  check_last_axis("linear", "bias", layer.at("bias"), product);
  return product + layer.at("bias");
}

Tensor mlp(const Weights& layers, const Tensor& x, const std::function<Tensor(Tensor)>& activation,
           Where where) {
  const detail::Place place(where);
  Tensor out = x;
  for (int i = 0;; ++i) {
    out = linear(layers.group(std::to_string(i)), out);
    if (!layers.contains(fmt::format("{}.weight", i + 1))) return out;
    out = activation(out);
  }
}

Tensor conv(const Weights& layer, const Tensor& x, const ConvOptions& options, Where where) {
  const detail::Place place(where);
  const Tensor product = braze::conv(x, layer.at("weight"), options);
  if (!layer.contains("bias")) return product;
  Tensor bias = layer.at("bias");
  if (options.channels == Channels::First) {
    Dims shape(x.rank() - 1, Dim(1));
    shape[0] = bias.dim(0);
    bias = reshape(bias, shape);
  }
  return product + bias;
}

Tensor softmax(const Tensor& x, int64_t axis, Where where) {
  const detail::Place place(where, "softmax");
  const Tensor e = exp(shifted(widen(x), axis));
  return cast(e / sum(e, axis, true), x.dtype());
}

Tensor log_softmax(const Tensor& x, int64_t axis, Where where) {
  const detail::Place place(where, "log_softmax");
  const Tensor z = shifted(widen(x), axis);
  return cast(z - log(sum(exp(z), axis, true)), x.dtype());
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t ignore_index,
                     Where where) {
  const detail::Place place(where);
  check_labels("cross_entropy", logits, labels);
  const Tensor z = shifted(widen(logits), -1);
  const int64_t classes = z.dim(-1).value();
  const Tensor chosen = sum(braze::where(one_hot(labels, classes, boolean), z, 0), -1);
  const Tensor loss = log(sum(exp(z), -1)) - chosen;
  // The shift only cancels if a class is chosen. Rows without a class must be left out as a whole.
  const Tensor label = cast(labels, i64);
  const Tensor is_class = (label >= 0) & (label < classes), counts = label != ignore_index;
  const Tensor other = braze::where(counts, full_like(loss, NAN), 0);
  const Tensor total = sum(braze::where(is_class & counts, loss, other));
  return cast(total / cast(sum(cast(counts, i64)), total.dtype()), logits.dtype());
}

Tensor mse(const Tensor& x, const Tensor& y, Where where) {
  const detail::Place place(where, "mse");
  return mean(square(x - y));
}

Tensor accuracy(const Tensor& logits, const Tensor& labels, Where where) {
  const detail::Place place(where);
  check_labels("accuracy", logits, labels);
  return mean(cast(argmax(logits, -1) == cast(labels, i64), f32));
}

Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon,
                  Where where) {
  const detail::Place place(where, "layer_norm");
  check_last_axis("layer_norm", "scale", scale, x);
  check_last_axis("layer_norm", "shift", shift, x);
  const Tensor wide = widen(x);
  const Tensor centered = wide - mean(wide, -1, true);
  const Tensor normal = centered * rsqrt(mean(square(centered), -1, true) + epsilon);
  return cast(normal * widen(scale) + widen(shift), x.dtype());
}

Tensor rms_norm(const Tensor& x, const Tensor& scale, double epsilon, Where where) {
  const detail::Place place(where, "rms_norm");
  check_last_axis("rms_norm", "scale", scale, x);
  const Tensor wide = widen(x);
  const Tensor normal = wide * rsqrt(mean(square(wide), -1, true) + epsilon);
  return cast(normal * widen(scale), x.dtype());
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& scale, const Tensor& shift,
                  double epsilon, int64_t channels, Where where) {
  const detail::Place place(where, "group_norm");
  const SourceLocation at = detail::place(where);
  const int64_t axis = detail::to_axis(channels, x.rank(), "group_norm", at);
  const Dim extent = x.dim(axis);
  const bool divides = groups >= 1 && extent.is_constant() && extent.value() % groups == 0;
  if (axis == 0 || !divides || scale.shape() != Dims{extent} || shift.shape() != Dims{extent})
    fail(codes::kShapeMismatch,
         fmt::format("group_norm: {} groups of axis {} of {}, with scale {} and shift {}", groups,
                     axis, x.to_string(), scale.to_string(), shift.to_string()),
         {.location = at,
          .node = "group_norm",
          .fix = "choose an axis other than the first, whose extent is a multiple of the groups, "
                 "and give scale and shift that extent"});
  Dims grouped = x.shape();
  grouped[static_cast<size_t>(axis)] = extent / groups;
  grouped.insert(grouped.begin() + axis, Dim(groups));
  std::vector<int64_t> together;
  for (int64_t i = 1; i < static_cast<int64_t>(grouped.size()); ++i)
    if (i != axis) together.push_back(i);
  const Tensor wide = reshape(widen(x), grouped);
  const Tensor centered = wide - mean(wide, together, true);
  const Tensor normal = centered * rsqrt(mean(square(centered), together, true) + epsilon);
  Dims along(x.rank(), Dim(1));
  along[static_cast<size_t>(axis)] = extent;
  const Tensor scaled = reshape(normal, x.shape()) * reshape(widen(scale), along);
  return cast(scaled + reshape(widen(shift), along), x.dtype());
}

namespace {

/// Gives vectors with one number for each channel a shape that broadcasts to the shape of x.
struct ByChannel {
  int64_t axis;
  Dims shape;

  ByChannel(const Tensor& x, int64_t channels, const std::vector<Tensor>& given, Where where) {
    const SourceLocation at = detail::place(where);
    axis = detail::to_axis(channels, x.rank(), "batch_norm", at);
    for (const Tensor& t : given)
      if (t.shape() != Dims{x.dim(axis)})
        fail(codes::kShapeMismatch,
             fmt::format("batch_norm: {} is not one number for each of the {} channels of {}",
                         t.to_string(), x.dim(axis).to_string(), x.to_string()),
             {.location = at, .node = "batch_norm"});
    shape.assign(x.rank(), Dim(1));
    shape[static_cast<size_t>(axis)] = x.dim(axis);
  }
  Tensor operator()(const Tensor& t) const { return reshape(widen(t), shape); }
};

}  // namespace

BatchNormed batch_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon,
                       int64_t channels, Where where) {
  const detail::Place place(where, "batch_norm");
  const ByChannel spread(x, channels, {scale, shift}, where);
  std::vector<int64_t> others;
  for (int64_t i = 0; i < static_cast<int64_t>(x.rank()); ++i)
    if (i != spread.axis) others.push_back(i);
  const Tensor wide = widen(x);
  const Tensor average = mean(wide, others, true);
  const Tensor centered = wide - average;
  const Tensor variance = mean(square(centered), others, true);
  const Tensor normal = centered * rsqrt(variance + epsilon);
  const Dims flat = {x.dim(spread.axis)};
  return {cast(normal * spread(scale) + spread(shift), x.dtype()), reshape(average, flat),
          reshape(variance, flat), count(x, others, wide.dtype())};
}

Tensor batch_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& mean,
                  const Tensor& variance, double epsilon, int64_t channels, Where where) {
  const detail::Place place(where, "batch_norm");
  const ByChannel spread(x, channels, {scale, shift, mean, variance}, where);
  const Tensor wide = widen(x);
  const DType dtype = wide.dtype();
  // One factor and one summand for each channel.
  const Tensor factor = widen(scale) * rsqrt(cast(variance, dtype) + epsilon);
  const Tensor term = widen(shift) - cast(mean, dtype) * factor;
  return cast(wide * spread(factor) + spread(term), x.dtype());
}

Weights running_statistics(const Weights& statistics, const BatchNormed& batch, double momentum,
                           Where where) {
  const detail::Place place(where, "running_statistics");
  const auto moved = [&](const char* name, const Tensor& now) {
    const Tensor old = statistics.at(name);
    return old + (cast(stop_gradient(now), old.dtype()) - old) * momentum;
  };
  const Tensor unbiased = batch.variance * (batch.count / (batch.count - 1));
  return {{"mean", moved("mean", batch.mean)}, {"variance", moved("variance", unbiased)}};
}

Tensor dropout(const Tensor& x, double rate, const Tensor& key, Where where) {
  const detail::Place place(where, "dropout");
  if (!(rate >= 0 && rate < 1))
    fail(codes::kBadAttribute, fmt::format("dropout: the rate {} is not in [0, 1)", rate),
         {.location = detail::place(where), .node = "dropout"});
  const Tensor kept = random::uniform(key, x.shape(), f32) >= rate;
  return braze::where(kept, x * (1 / (1 - rate)), 0);
}

Tensor embedding(const Tensor& table, const Tensor& ids, Where where) {
  const detail::Place place(where, "embedding");
  return take(table, ids, 0);
}

}  // namespace nn
}  // namespace braze
