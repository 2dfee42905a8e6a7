#include "braze/nn.h"

#include <cmath>
#include <string>
#include <vector>

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

namespace {

/// The losses of rows, 0 where the label is ignored, and whether a row counts.
std::pair<Tensor, Tensor> row_losses(const Tensor& logits, const Tensor& labels,
                                     int64_t ignore_index) {
  const Tensor z = shifted(widen(logits), -1);
  const int64_t classes = z.dim(-1).value();
  const Tensor chosen = sum(braze::where(one_hot(labels, classes, boolean), z, 0), -1);
  const Tensor loss = log(sum(exp(z), -1)) - chosen;
  // The shift only cancels if a class is chosen. Rows without a class must be left out as a whole.
  const Tensor label = cast(labels, i64);
  const Tensor is_class = (label >= 0) & (label < classes), counts = label != ignore_index;
  const Tensor other = braze::where(counts, full_like(loss, NAN), 0);
  return {braze::where(is_class & counts, loss, other), counts};
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t ignore_index,
                     Where where) {
  const detail::Place place(where);
  check_labels("cross_entropy", logits, labels);
  const auto [losses, counts] = row_losses(logits, labels, ignore_index);
  const Tensor total = sum(losses);
  return cast(total / cast(sum(cast(counts, i64)), total.dtype()), logits.dtype());
}

Tensor cross_entropy_rows(const Tensor& logits, const Tensor& labels, int64_t ignore_index,
                          Where where) {
  const detail::Place place(where);
  check_labels("cross_entropy_rows", logits, labels);
  return cast(row_losses(logits, labels, ignore_index).first, logits.dtype());
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
  // A factor can be exchanged with others of a product, such as the divisor of a softmax.
  return x * braze::where(kept, full(x.dtype(), {}, 1 / (1 - rate)), 0);
}

Tensor embedding(const Tensor& table, const Tensor& ids, Where where) {
  const detail::Place place(where, "embedding");
  return take(table, ids, 0);
}

// ---- Attention ----------------------------------------------------------------------------------

namespace {

[[noreturn]] void fail_attention(const char* op, const std::string& message, const char* fix,
                                 Where where) {
  fail(codes::kShapeMismatch, fmt::format("{}: {}", op, message),
       {.location = detail::place(where), .node = op, .fix = fix});
}

/// A position that is given as a scalar or [1], or 0, as an i32 scalar.
Tensor scalar_position(const Tensor& position, const Tensor& like, const char* op, Where where) {
  if (!position.valid()) return reshape(arange(i32, Dim(1)), {});
  detail::builder_of(like, op, detail::place(where));
  const bool is_one = position.rank() == 0 || position.shape() == Dims{1};
  if (!is_integer(position.dtype()) || !is_one)
    fail_attention(op, fmt::format("{} is no position", position.to_string()),
                   "give an integer scalar, or an integer tensor with one element", where);
  return cast(reshape(position, {}), i32);
}

}  // namespace

Tensor rope(const Tensor& x, const Tensor& positions, const RopeOptions& options, Where where) {
  const detail::Place place(where, "rope");
  const bool fits = is_floating(x.dtype()) && x.rank() >= 3 && x.dim(-1).is_constant() &&
                    x.dim(-1).value() % 2 == 0 && is_integer(positions.dtype()) &&
                    positions.rank() + 2 <= x.rank();
  if (!fits)
    fail_attention(
        "rope",
        fmt::format("{} cannot be turned by positions {}", x.to_string(), positions.to_string()),
        "x is [..., n, heads, width] with an even width, and positions are integers [n] "
        "or [..., n]",
        where);
  const DType dtype = compute_type(x.dtype());
  const int64_t width = x.dim(-1).value(), pairs = width / 2;
  const bool halves = options.pairs == RopePairs::Halves;
  std::vector<double> turns;
  for (int64_t i = 0; i < pairs; ++i)
    turns.push_back(
        std::pow(options.base, -2 * static_cast<double>(i) / static_cast<double>(width)));
  // The axis of two along which a pair lies, before the pairs or behind them.
  const auto numbers = [&](const std::vector<double>& values, bool along_pairs) {
    const auto count = static_cast<int64_t>(values.size());
    const std::vector<int64_t> shape =
        along_pairs == halves ? std::vector<int64_t>{1, count} : std::vector<int64_t>{count, 1};
    return cast(constant(Array::from(values, shape, "cpu")), dtype);
  };
  Dims rows = positions.shape();
  rows.insert(rows.end(), {1, 1, 1});  // heads, and the two axes of the pairs
  const Tensor angles = reshape(cast(positions, dtype), rows) * numbers(turns, true);
  Dims paired = x.shape();
  paired.back() = halves ? 2 : pairs;
  paired.emplace_back(halves ? pairs : 2);
  const Tensor parts = reshape(widen(x), paired);
  const Tensor turned = parts * cos(angles) +
                        reverse(parts, halves ? -2 : -1) * (sin(angles) * numbers({-1, 1}, false));
  return cast(reshape(turned, x.shape()), x.dtype());
}

Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const AttentionOptions& options, Where where) {
  const detail::Place place(where, "attention");
  const size_t rank = queries.rank();
  const auto misfit = [&] {
    fail_attention(
        "attention",
        fmt::format("queries {}, keys {} and values {}", queries.to_string(), keys.to_string(),
                    values.to_string()),
        "give [..., n, heads, width], [..., m, groups, width] and [..., m, groups, v] of "
        "one floating dtype, where the groups divide the heads",
        where);
  };
  if (rank < 3 || keys.rank() != rank || values.rank() != rank || !is_floating(queries.dtype()) ||
      keys.dtype() != queries.dtype() || values.dtype() != queries.dtype())
    misfit();
  const size_t lead = rank - 3;
  const Dim n = queries.dim(-3), m = keys.dim(-3), heads = queries.dim(-2), groups = keys.dim(-2);
  bool fits = keys.dim(-1) == queries.dim(-1) && values.dim(-3) == m && values.dim(-2) == groups &&
              heads.is_constant() && groups.is_constant() && groups.value() > 0 &&
              heads.value() % groups.value() == 0;
  for (size_t i = 0; i < lead; ++i) {
    const auto axis = static_cast<int64_t>(i);
    fits &= keys.dim(axis) == queries.dim(axis) && values.dim(axis) == queries.dim(axis);
  }
  if (!fits) misfit();
  const Dim shared = heads.value() / groups.value();  // heads that read the same keys

  // Queries as [..., groups, shared, n, width], so that heads come before rows.
  const auto first = static_cast<int64_t>(lead);
  std::vector<int64_t> leading, order, batch;
  for (int64_t i = 0; i < first; ++i) leading.push_back(i);
  order = batch = leading;
  order.insert(order.end(), {first + 1, first + 2, first, first + 3});
  std::vector<int64_t> batch_queries = leading, batch_keys = leading;
  batch_queries.push_back(first);
  batch_keys.push_back(first + 1);
  Dims grouped = queries.shape();
  grouped[lead + 1] = groups;
  grouped.insert(grouped.begin() + first + 2, shared);
  const Tensor rows = permute(reshape(queries, grouped), order);
  const DType wide = compute_type(queries.dtype());
  const double scale =
      options.scale ? *options.scale : 1 / std::sqrt(static_cast<double>(queries.dim(-1).value()));
  Tensor scores = dot_general(rows, keys,
                              {.batch_left = batch_queries,
                               .batch_right = batch_keys,
                               .contract_left = {first + 3},
                               .contract_right = {first + 2},
                               .result = wide}) *
                  scale;

  // What has an axis of heads gets one of groups and one of heads in a group.
  const auto spread = [&](const char* name, const Tensor& x) {
    Dims shape = x.shape();
    const bool fit_heads =
        shape.size() < 3 || shape[shape.size() - 3] == Dim(1) || shape[shape.size() - 3] == heads;
    if (!fit_heads || shape.size() > rank)
      fail_attention("attention",
                     fmt::format("the {} {} does not fit queries {} and keys {}", name,
                                 x.to_string(), queries.to_string(), keys.to_string()),
                     "give what can be broadcast to [..., heads, n, m]", where);
    if (shape.size() < 3) return x;
    const auto at = shape.end() - 3;
    const bool one = *at == Dim(1);
    *at = one ? Dim(1) : groups;
    shape.insert(at + 1, one ? Dim(1) : shared);
    return reshape(x, shape);
  };
  if (options.bias.valid()) {
    if (!is_floating(options.bias.dtype()))
      fail_attention("attention",
                     fmt::format("the bias {} is not floating", options.bias.to_string()),
                     "cast it, or give a bool as the mask", where);
    scores = scores + cast(spread("bias", options.bias), wide);
  }
  Tensor visible;
  if (options.causal) {
    Tensor last = reshape(arange(i32, n), {n, 1});
    if (options.position.valid()) {
      const Tensor position = scalar_position(options.position, queries, "attention", where);
      // The index of a single row is 0. A mask that only compares is made again for each head.
      last = n == Dim(1) ? reshape(position, {1, 1}) : last + position;
    }
    visible = reshape(arange(i32, m), {1, m}) <= last;
  }
  if (options.mask.valid()) {
    if (options.mask.dtype() != boolean)
      fail_attention("attention", fmt::format("the mask {} is not bool", options.mask.to_string()),
                     "compare it with something, or give numbers as the bias", where);
    const Tensor mask = spread("mask", options.mask);
    visible = visible.valid() ? visible & mask : mask;
  }
  if (visible.valid()) scores = braze::where(visible, scores, -INFINITY);

  const Tensor weights = cast(softmax(scores), values.dtype());
  const Tensor mixed = dot_general(weights, values,
                                   {.batch_left = batch_queries,
                                    .batch_right = batch_keys,
                                    .contract_left = {first + 3},
                                    .contract_right = {first}});
  // [..., groups, shared, n, v]: the batch has the groups, and the free axes follow.
  std::vector<int64_t> back = leading;
  back.insert(back.end(), {first + 2, first, first + 1, first + 3});
  Dims shape = queries.shape();
  shape.back() = values.dim(-1);
  return reshape(permute(mixed, back), shape);
}

KeyValueCache<Array> key_value_cache(const std::vector<int64_t>& shape, DType dtype,
                                     const Device& device) {
  return {zeros(shape, dtype, device), zeros(shape, dtype, device)};
}

KeyValueCache<Tensor> append(const KeyValueCache<Tensor>& cache, const Tensor& keys,
                             const Tensor& values, const Tensor& position, Where where) {
  const detail::Place place(where, "append");
  const auto with_rows = [&](const Tensor& all, const Tensor& rows) {
    const Tensor row = scalar_position(position, all, "append", where);
    std::vector<Tensor> start(all.rank(), zeros_like(row));
    if (all.rank() < 3)
      fail_attention("append", fmt::format("{} is no cache of keys or values", all.to_string()),
                     "give [..., capacity, groups, width]", where);
    start[all.rank() - 3] = row;
    return update(all, dynamic_update(all, rows, start));
  };
  return {with_rows(cache.keys, keys), with_rows(cache.values, values)};
}

Parameters multi_head_attention_parameters(int64_t width, int64_t heads, random::Key key,
                                           int64_t groups, const Initializer& weight, DType dtype) {
  if (groups == 0) groups = heads;
  if (heads < 1 || groups < 1 || width % heads != 0 || heads % groups != 0)
    fail(codes::kBadAttribute,
         fmt::format("multi_head_attention_parameters: {} heads in {} groups of width {}", heads,
                     groups, width),
         {.node = "multi_head_attention_parameters",
          .fix = "the width is a multiple of the heads, and the heads of the groups"});
  Parameters out;
  const auto add = [&](const char* name, int64_t columns) {
    out.add(name, linear_parameters(width, columns, key.fold_in(name), weight, dtype));
  };
  add("query", width);
  add("key", width / heads * groups);
  add("value", width / heads * groups);
  add("output", width);
  return out;
}

namespace {

struct Projected {
  Tensor queries, keys, values;  // [..., n, heads or groups, width of a head]
};

Projected project(const Weights& layer, const Tensor& x, const MultiHeadOptions& options,
                  Where where) {
  const int64_t groups = options.groups == 0 ? options.heads : options.groups;
  const auto heads_of = [&](const char* name, int64_t count) {
    const Tensor columns = linear(layer.group(name), x);
    Dims shape = columns.shape();
    if (x.rank() < 2 || count < 1 || !shape.back().is_constant() ||
        shape.back().value() % count != 0)
      fail_attention("multi_head_attention",
                     fmt::format("{} {} of x {} cannot be divided into {} heads", name,
                                 columns.to_string(), x.to_string(), count),
                     "x is [..., n, in], and the columns are a multiple of the heads", where);
    const Dim width = shape.back().value() / count;
    shape.back() = count;
    shape.push_back(width);
    return reshape(columns, shape);
  };
  Projected out{heads_of("query", options.heads), heads_of("key", groups),
                heads_of("value", groups)};
  if (!options.rope) return out;
  Tensor positions = arange(i32, x.dim(-2));
  if (options.attention.position.valid())
    positions =
        positions + scalar_position(options.attention.position, x, "multi_head_attention", where);
  out.queries = rope(out.queries, positions, *options.rope);
  out.keys = rope(out.keys, positions, *options.rope);
  return out;
}

/// The output layer of [..., n, heads, width].
Tensor joined(const Weights& layer, const Tensor& heads) {
  Dims shape = heads.shape();
  const Dim width = shape.back();
  shape.pop_back();
  shape.back() = shape.back() * width;
  return linear(layer.group("output"), reshape(heads, shape));
}

}  // namespace

Tensor multi_head_attention(const Weights& layer, const Tensor& x, const MultiHeadOptions& options,
                            Where where) {
  const detail::Place place(where, "multi_head_attention");
  const Projected of = project(layer, x, options, where);
  return joined(layer, attention(of.queries, of.keys, of.values, options.attention));
}

CachedAttention multi_head_attention(const Weights& layer, const Tensor& x,
                                     const KeyValueCache<Tensor>& cache,
                                     const MultiHeadOptions& options, std::optional<Dim> rows,
                                     Where where) {
  const detail::Place place(where, "multi_head_attention");
  const Projected of = project(layer, x, options, where);
  AttentionOptions seen = options.attention;
  seen.causal = true;
  const KeyValueCache<Tensor> updated = append(cache, of.keys, of.values, seen.position);
  const auto looked_at = [&](const Tensor& all) {
    return rows ? slice(all, static_cast<int64_t>(all.rank()) - 3, 0, *rows) : all;
  };
  return {joined(layer,
                 attention(of.queries, looked_at(updated.keys), looked_at(updated.values), seen)),
          updated};
}

}  // namespace nn
}  // namespace braze
