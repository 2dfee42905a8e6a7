// kinds.cpp — the inputs and results of each kind of workload, built with the public builder only,
// as a user would write them. peers_torch.py and peers_jax.py have the same in their languages.
#include "bench/sweep/kinds_p.h"

namespace braze::sweep {

namespace {

Extents rows_and_cols(S s) { return {s["rows"], s["cols"]}; }

// One input x of the setting `shape`.
Inputs one_array(S s) { return {values("x", s.dtype(), s.list("shape"))}; }
Inputs two_arrays(S s) {
  return {values("x", s.dtype(), s.list("shape")), values("y", s.dtype(), s.list("shape"))};
}

Axes axes_of(S s) { return Axes(s.list("axes")); }

Tensor activation(const std::string& name, const Tensor& x) {
  if (name == "gelu") return gelu(x);
  if (name == "gelu_tanh") return gelu_tanh(x);
  if (name == "silu") return silu(x);
  if (name == "relu") return relu(x);
  return x;
}

// --- Elementwise
// ----------------------------------------------------------------------------------

// Into memory that is there already.
Results copy(S, W in) { return {{update(in["y"], in["x"])}}; }
Results scale(S, W in) { return {{in["x"] * 1.5}}; }
Results axpy(S, W in) { return {{in["x"] * 1.5 + in["y"]}}; }

Inputs activations_inputs(S s) {
  Inputs inputs = two_arrays(s);
  inputs.push_back(values("b", s.dtype(), {s.list("shape").back()}));
  return inputs;
}
Results activations(S, W in) {
  const Tensor x = in["x"], y = in["y"];
  return {{tanh(x * 1.5 + in["b"]) * sigmoid(y) + gelu_tanh(x - y)}};
}
Results chain(S, W in) {
  Tensor x = in["x"];
  for (int i = 0; i < 5; ++i) x = tanh(x * 1.01 + 0.1) - 0.05;
  return {{x}};
}
Results gated(S s, W in) { return {{activation(s.text("activation", "silu"), in["x"]) * in["y"]}}; }
Results activate(S s, W in) { return {{activation(s.text("activation", "gelu"), in["x"])}}; }

// --- Norms
// ----------------------------------------------------------------------------------------

Inputs norm_inputs(S s) {
  Inputs inputs = {values("x", s.dtype(), rows_and_cols(s)),
                   between("scale", s.dtype(), {s["cols"]}, 0.5, 1.5)};
  if (s.get("residual", 0)) inputs.push_back(values("residual", s.dtype(), rows_and_cols(s)));
  return inputs;
}
Inputs layer_norm_inputs(S s) {
  Inputs inputs = norm_inputs(s);
  inputs.push_back(values("shift", s.dtype(), {s["cols"]}));
  return inputs;
}
// With a residual, the sum that was normed is a result too.
Results normed(W in, const std::function<Tensor(const Tensor&)>& norm) {
  if (!in.contains("residual")) return {{norm(in["x"])}};
  const Tensor sum = in["x"] + in["residual"];
  return {{norm(sum), sum}};
}
Results layer_norm(S, W in) {
  return normed(in, [&](Tensor x) { return nn::layer_norm(x, in["scale"], in["shift"]); });
}
Results rms_norm(S, W in) {
  return normed(in, [&](Tensor x) { return nn::rms_norm(x, in["scale"]); });
}

// (x - mean) / deviation over `axes`, in f32.
Tensor standardized(const Tensor& x, const Axes& axes) {
  const Tensor wide = widen(x), centred = wide - mean(wide, axes, true);
  return centred * rsqrt(mean(centred * centred, axes, true) + 1e-5);
}

Inputs channel_norm_inputs(S s) {
  const int64_t channels = s.get("groups", 1) * s["channels"];
  return {values("x", s.dtype(), image(s, channels)),
          between("scale", s.dtype(), {channels}, 0.5, 1.5),
          values("shift", s.dtype(), {channels})};
}
// `channels` is of each group.
Results group_norm(S s, W in) {
  const Tensor x = in["x"];
  const Tensor grouped =
      reshape(x, {s["batch"], s["height"], s["width"], s["groups"], s["channels"]});
  const Tensor unit = reshape(standardized(grouped, {1, 2, 4}), x.shape());
  return {{cast(unit * widen(in["scale"]) + widen(in["shift"]), x.dtype())}};
}
// Of training: by the statistics of the batch, which are results too.
Results batch_norm(S, W in) {
  const Tensor wide = widen(in["x"]);
  const Tensor average = mean(wide, {0, 1, 2}), centred = wide - average;
  const Tensor variance = mean(centred * centred, {0, 1, 2});
  const Tensor y = centred * rsqrt(variance + 1e-5) * widen(in["scale"]) + widen(in["shift"]);
  return {{cast(y, in["x"].dtype()), average, variance}};
}
// Of inference: by statistics that are given, and the activation that follows.
Inputs batch_norm_inference_inputs(S s) {
  Inputs inputs = channel_norm_inputs(s);
  inputs.push_back(values("mean", DType::F32, {s["channels"]}));
  inputs.push_back(between("variance", DType::F32, {s["channels"]}, 0.5, 1.5));
  return inputs;
}
Results batch_norm_inference(S, W in) {
  const Tensor unit = (widen(in["x"]) - in["mean"]) * rsqrt(in["variance"] + 1e-5);
  const Tensor y = relu(unit * widen(in["scale"]) + widen(in["shift"]));
  return {{cast(y, in["x"].dtype())}};
}
Results unit_length(S, W in) {
  const Tensor x = widen(in["x"]);
  return {{cast(x * rsqrt(sum(x * x, -1, true) + 1e-12), in["x"].dtype())}};
}

// --- Losses
// ---------------------------------------------------------------------------------------

Inputs class_inputs(S s) {
  return {values("logits", s.dtype(), {s["rows"], s["classes"]}),
          indices("labels", {s["rows"]}, s["classes"])};
}
Results cross_entropy(S, W in) { return {{nn::cross_entropy(in["logits"], in["labels"])}}; }
// Labels share a tenth of their weight with all classes.
Results smoothed_cross_entropy(S s, W in) {
  const Tensor logits = widen(in["logits"]), total = logsumexp(logits, -1);
  const Tensor is_label = one_hot(in["labels"], s["classes"], boolean);
  const Tensor chosen = sum(where(is_label, logits, 0.0), -1);
  return {{mean(total - 0.9 * chosen - 0.1 * mean(logits, -1))}};
}
// With the square of the logarithm of the sum, as large language models are trained.
Results z_loss(S s, W in) {
  const Tensor logits = widen(in["logits"]), total = logsumexp(logits, -1);
  const Tensor is_label = one_hot(in["labels"], s["classes"], boolean);
  const Tensor chosen = sum(where(is_label, logits, 0.0), -1);
  return {{mean(total - chosen + 1e-4 * total * total)}};
}
Inputs target_inputs(S s) {
  return {values("x", s.dtype(), s.list("shape")),
          between("target", s.dtype(), s.list("shape"), 0, 1)};
}
Results squared_error(S, W in) {
  const Tensor d = widen(in["x"]) - widen(in["target"]);
  return {{mean(d * d)}};
}
Results huber(S, W in) {
  const Tensor d = widen(in["x"]) - widen(in["target"]), a = abs(d);
  return {{mean(where(a < 1.0, 0.5 * d * d, a - 0.5))}};
}
Results binary_cross_entropy(S, W in) {
  const Tensor x = widen(in["x"]), t = widen(in["target"]);
  return {{mean(maximum(x, 0.0) - x * t + log1p(exp(-abs(x))))}};
}
// Of a student to its teacher.
Results divergence(S, W in) {
  const Tensor student = nn::log_softmax(widen(in["x"])), teacher = nn::log_softmax(widen(in["y"]));
  return {{mean(sum(exp(teacher) * (teacher - student), -1))}};
}

// --- Softmax and reductions
// -----------------------------------------------------------------------

Results softmax(S s, W in) { return {{nn::softmax(in["x"], s["axis"])}}; }
Results log_softmax(S s, W in) { return {{nn::log_softmax(in["x"], s["axis"])}}; }
// Of scores [..., queries, keys]; a query does not see the keys after it.
Results causal_softmax(S s, W in) {
  const Extents shape = s.list("shape");
  const int64_t queries = shape[shape.size() - 2], keys = shape.back();
  const Tensor seen = arange(i32, {queries, keys}, 1) <= arange(i32, {queries, keys}, 0);
  return {{nn::softmax(where(seen, in["x"] * 0.125, -INFINITY))}};
}

Results reduce(S s, W in) {
  const std::string op = s.text("op", "sum");
  const Tensor x = in["x"];
  const Axes axes = axes_of(s);
  const auto narrow = [&](const Tensor& y) { return cast(y, x.dtype()); };
  if (op == "sum") return {{sum(x, axes)}};
  if (op == "max") return {{max(x, axes)}};
  if (op == "min") return {{min(x, axes)}};
  if (op == "mean") return {{mean(x, axes)}};
  if (op == "prod") return {{prod(x, axes)}};
  if (op == "argmax") return {{argmax(x, axes.values()[0])}};
  if (op == "any") return {{any(x > 1.7, axes)}};
  if (op == "norm") return {{narrow(sqrt(sum(square(widen(x)), axes)))}};
  if (op == "absmax") return {{max(abs(x), axes)}};
  if (op == "logsumexp") return {{narrow(logsumexp(widen(x), axes))}};
  const Tensor wide = widen(x), centred = wide - mean(wide, axes, true);  // op=moments
  return {{narrow(mean(wide, axes)), narrow(mean(centred * centred, axes))}};
}

Results scan(S s, W in) {
  const std::string op = s.text("op", "sum");
  const Tensor x = in["x"];
  const int64_t axis = s["axis"];
  if (op == "prod") return {{cumprod(x, axis)}};
  if (op == "max") return {{cummax(x, axis)}};
  if (op == "sum") return {{cumsum(x, axis)}};
  // op=logsumexp, against the greatest of the line: of numbers that are not far apart.
  const Tensor greatest = stop_gradient(max(x, axis, true));
  return {{log(cumsum(exp(x - greatest), axis)) + greatest}};
}

Results sorted(S s, W in) {
  const std::string op = s.text("op", "sort");
  const Tensor x = in["x"];
  const int64_t axis = s["axis"];
  if (op == "argsort") return {{argsort(x, axis)}};
  if (op == "sort") return {{sort(x, axis)}};
  const Chosen chosen = top_k(x, s["top"], axis);  // op=top_k
  return {{chosen.values, chosen.indices}};
}

// The distance of each point to the nearest of others.
Inputs nearest_inputs(S s) {
  return {values("x", s.dtype(), {s["rows"], s["width"]}),
          values("y", s.dtype(), {s["cols"], s["width"]})};
}
Results nearest(S, W in) {
  const Tensor d = expand_dims(in["x"], 1) - expand_dims(in["y"], 0);
  return {{min(sum(d * d, -1), 1)}};
}

// --- Index work
// -----------------------------------------------------------------------------------

Inputs rotary_inputs(S s) {
  const Extents table = {s["length"], s["dim"] / 2};
  Inputs inputs = {values("x", s.dtype(), {s["batch"], s["length"], s["heads"], s["dim"]}),
                   between("cos", s.dtype(), table, -1, 1),
                   between("sin", s.dtype(), table, -1, 1)};
  if (s.get("norm", 0)) inputs.push_back(between("scale", s.dtype(), {s["dim"]}, 0.5, 1.5));
  return inputs;
}
// Rotates pairs of features: neighbours, or those of the two halves. x [..., length, heads, dim].
Tensor rotated(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool neighbours) {
  const Tensor c = expand_dims(cosine, 1), s = expand_dims(sine, 1);
  const int64_t half = x.dim(-1).value() / 2;
  const Tensor a = neighbours ? slice(x, -1, 0, 2 * half, 2) : slice(x, -1, 0, half);
  const Tensor b = neighbours ? slice(x, -1, 1, 2 * half, 2) : slice(x, -1, half, 2 * half);
  const Tensor first = a * c - b * s, second = b * c + a * s;
  return neighbours ? reshape(stack({first, second}, -1), x.shape()) : concat({first, second}, -1);
}
Results rotary(S s, W in) {
  Tensor x = in["x"];
  if (in.contains("scale")) x = nn::rms_norm(x, in["scale"]);
  return {{rotated(x, in["cos"], in["sin"], s.text("pairs", "halves") == "neighbours")}};
}

Inputs table_inputs(S s) {
  return {values("table", s.dtype(), {s["count"], s["width"]}),
          indices("ids", {s["tokens"]}, s["count"])};
}
Results embedding(S, W in) { return {{nn::embedding(in["table"], in["ids"])}}; }

Results permute_axes(S s, W in) { return {{permute(in["x"], s.list("order"))}}; }
Inputs transpose_add_inputs(S s) {
  const Extents shape = s.list("shape");
  return {values("x", s.dtype(), shape), values("y", s.dtype(), {shape[1], shape[0]})};
}
Results transpose_add(S, W in) { return {{transpose(in["x"]) + in["y"]}}; }
Results join(S s, W in) { return {{concat({in["x"], in["y"]}, s["axis"])}}; }
Results interleave(S, W in) {
  const Tensor x = in["x"];
  Dims shape = x.shape();
  shape.back() = shape.back() * 2;
  return {{reshape(stack({x, in["y"]}, -1), shape)}};
}
Results roll(S s, W in) {
  const Tensor x = in["x"];
  const int64_t axis = s["axis"], size = x.dim(axis).value(), by = s["by"];
  return {{concat({slice(x, axis, size - by, size), slice(x, axis, 0, size - by)}, axis)}};
}
Results flip(S s, W in) { return {{reverse(in["x"], s["axis"])}}; }
// Each value and its four neighbours, if they exist.
Results stencil(S s, W in) {
  const Extents shape = s.list("shape");
  const Tensor x = pad(in["x"], {1, 1}, {1, 1});
  const auto at = [&](int64_t row, int64_t col) {
    return slice(x, {row, col}, {row + shape[0], col + shape[1]});
  };
  return {{at(1, 1) * 0.5 + (at(0, 1) + at(2, 1) + at(1, 0) + at(1, 2)) * 0.125}};
}
Inputs image_inputs(S s) { return {values("x", s.dtype(), image(s, s["channels"]))}; }
// Images twice as wide and high.
Results upsample(S s, W in) {
  const Dims apart = {s["batch"], s["height"], 1, s["width"], 1, s["channels"]},
             wide = {s["batch"], s["height"], 2, s["width"], 2, s["channels"]};
  return {{reshape(broadcast_to(reshape(in["x"], apart), wide),
                   {s["batch"], 2 * s["height"], 2 * s["width"], s["channels"]})}};
}
// Squares of an image as rows of features.
Results patches(S s, W in) {
  const int64_t patch = s["patch"], down = s["height"] / patch, across = s["width"] / patch;
  const int64_t rows = down * patch, cols = across * patch;
  const Tensor whole = slice(slice(in["x"], 1, 0, rows), 2, 0, cols);
  const Tensor cut = reshape(whole, {s["batch"], down, patch, across, patch, s["channels"]});
  return {{reshape(permute(cut, {0, 1, 3, 2, 4, 5}),
                   {s["batch"], down * across, patch * patch * s["channels"]})}};
}
Inputs one_hot_inputs(S s) { return {indices("ids", {s["rows"]}, s["classes"])}; }
Results one_hot_rows(S s, W in) { return {{one_hot(in["ids"], s["classes"], s.dtype())}}; }

// --- Quantising
// -----------------------------------------------------------------------------------

// Blocks of `block` values share a scale, and become multiples of it.
Inputs block_inputs(S s) { return {values("x", s.dtype(), {s["rows"], s["blocks"], s["block"]})}; }
Results quantize_blocks(S, W in) {
  const Tensor x = widen(in["x"]);
  const Tensor step = maximum(max(abs(x), -1, true) / 127.0, 1e-12);
  return {{cast(clamp(round_even(x / step), -127.0, 127.0) * step, in["x"].dtype())}};
}
// The same, kept as bytes and their scales.
Results quantize_bytes(S, W in) {
  const Tensor x = widen(in["x"]);
  const Tensor step = maximum(max(abs(x), -1, true) / 127.0, 1e-12);
  return {{cast(clamp(round_even(x / step), -127.0, 127.0), DType::I8), step}};
}
// Each i32 holds eight 4-bit numbers, and `group` numbers share a scale.
Inputs packed_inputs(S s) {
  const int64_t words = s["words"], per_group = s["group"] / 8;
  return {
      between("packed", DType::I32, {s["rows"], words * per_group}, -2147483648.0, 2147483648.0),
      between("scales", s.dtype(), {s["rows"], words}, 0.01, 0.02)};
}
Tensor unpacked(S s, W in) {
  const int64_t rows = s["rows"], groups = s["words"], group = s["group"];
  const Tensor places = arange(i32, Dims{1, 1, 8}, 2) * 4;
  const Tensor nibbles = shr(expand_dims(in["packed"], 2), places) & 15;
  const Tensor numbers = reshape(cast(nibbles - 8, s.dtype()), {rows, groups, group});
  return reshape(numbers * expand_dims(in["scales"], 2), {rows, groups * group});
}
Results dequantize(S s, W in) { return {{unpacked(s, in)}}; }
// A product with weights of 4 bits.
Inputs packed_product_inputs(S s) {
  Inputs inputs = packed_inputs(s);
  inputs.push_back(values("x", s.dtype(), {s["m"], s["words"] * s["group"]}));
  return inputs;
}
Results packed_product(S s, W in) { return {{dot(in["x"], transpose(unpacked(s, in))) * 0.05}}; }

// --- Scans, pooling, convolutions
// -----------------------------------------------------------------

Inputs recurrence_inputs(S s) {
  const Extents shape = s.list("shape");
  return {between("decay", s.dtype(), shape, 0.5, 1), values("x", s.dtype(), shape)};
}

Results decayed_sums(S, W in) { return {{recurrence(in["decay"], in["x"], 1)}}; }

Results pool(S s, W in) {
  const int64_t window = s["window"], stride = s["stride"];
  const Dim edge = s.get("padding", 0);
  const PoolOptions options{.strides = {stride, stride}, .low = {edge, edge}, .high = {edge, edge}};
  const auto of = s.text("op", "max") == "max" ? max_pool : avg_pool;
  return {{of(in["x"], {window, window}, options, Where::current())}};
}

ConvOptions padded(const Dim& edge) { return {.low = {edge, edge}, .high = {edge, edge}}; }

// `in` and `out` are channels of each of `groups`. Settings: padding (default: with it a stride of
// 1 keeps the image, if the window is odd), transposed, tf32, and layout=first, where images are
// [batch, channels, height, width] and weights [out, in, window, window].
bool is_channels_first(S s) { return s.text("layout", "last") == "first"; }
Inputs convolution_inputs(S s) {
  const int64_t window = s["window"], groups = s.get("groups", 1), channels = groups * s["in"];
  const int64_t out = groups * s["out"];
  const bool is_first = is_channels_first(s);
  const Extents image_shape =
      is_first ? Extents{s["batch"], channels, s["height"], s["width"]} : image(s, channels);
  const Extents weight_shape =
      is_first ? Extents{out, s["in"], window, window} : Extents{window, window, s["in"], out};
  Inputs inputs = {values("x", s.dtype(), image_shape),
                   weight("w", s.dtype(), weight_shape, window * window * s["in"])};
  if (s.get("bias", 0)) inputs.push_back(values("bias", s.dtype(), {out}));
  return inputs;
}
Results convolution(S s, W in) {
  const bool is_first = is_channels_first(s);
  const int64_t stride = s.get("stride", 1);
  ConvOptions options = padded(s.get("padding", s["window"] / 2));
  options.strides = {stride, stride};
  options.groups = s.get("groups", 1);
  options.channels = is_first ? Channels::First : Channels::Last;
  options.tf32 = s.get("tf32", 0) != 0;
  Tensor y = s.get("transposed", 0) ? conv_transpose(in["x"], in["w"], options)
                                    : conv(in["x"], in["w"], options);
  if (in.contains("bias")) {
    const Tensor bias = in["bias"];
    y = y + (is_first ? reshape(bias, {bias.dim(0), 1, 1}) : bias);
  }
  return {{activation(s.text("activation", "none"), y)}};
}

// --- Products and chains of them
// ------------------------------------------------------------------

// layout: which operands are stored transposed, as in BLAS: nn, nt, tn.
Inputs product_inputs(S s) {
  const std::string layout = s.text("layout", "nn");
  const int64_t m = s["m"], k = s["k"], n = s["n"], batch = s.get("batch", 0);
  Extents x = layout[0] == 't' ? Extents{k, m} : Extents{m, k};
  Extents w = layout[1] == 't' ? Extents{n, k} : Extents{k, n};
  if (batch) {
    x.insert(x.begin(), batch);
    w.insert(w.begin(), s.get("shared", 0) ? 1 : batch);
  }
  Inputs inputs = {values("x", s.dtype(), x), weight("w", s.dtype(), w, k)};
  if (s.get("bias", 0)) inputs.push_back(values("bias", s.dtype(), {n}));
  if (s.get("residual", 0)) inputs.push_back(values("residual", s.dtype(), {m, n}));
  return inputs;
}
Results product(S s, W in) {
  const std::string layout = s.text("layout", "nn");
  const Tensor x = layout[0] == 't' ? transpose(in["x"], -1, -2) : in["x"];
  const Tensor w = layout[1] == 't' ? transpose(in["w"], -1, -2) : in["w"];
  Tensor y =
      s.get("tf32", 0)
          ? dot_general(x, w,
                        {.contract_left = {1}, .contract_right = {0}, .result = {}, .tf32 = true})
          : dot(x, w);
  if (in.contains("bias")) y = y + in["bias"];
  y = activation(s.text("activation", "none"), y);
  if (in.contains("residual")) y = y + in["residual"];
  return {{y}};
}
// The output of attention's heads, [batch, heads, length, dim], through a layer.
Inputs merged_heads_inputs(S s) {
  const int64_t width = s["heads"] * s["dim"];
  return {values("x", s.dtype(), {s["batch"], s["heads"], s["length"], s["dim"]}),
          weight("w", s.dtype(), {width, width}, width)};
}
Results merged_heads(S s, W in) {
  const Dims merged = {s["batch"], s["length"], s["heads"] * s["dim"]};
  return {{dot(reshape(permute(in["x"], {0, 2, 1, 3}), merged), in["w"])}};
}

// activation(x·gate) * (x·up), and with `down` a product back to the width.
Inputs gated_mlp_inputs(S s) {
  const int64_t width = s["width"], inner = s["inner"];
  Inputs inputs = {values("x", s.dtype(), {s["rows"], width}),
                   weight("gate", s.dtype(), {width, inner}, width),
                   weight("up", s.dtype(), {width, inner}, width)};
  if (s.get("norm", 0)) inputs.push_back(between("scale", s.dtype(), {width}, 0.5, 1.5));
  if (s.get("down", 0)) inputs.push_back(weight("down", s.dtype(), {inner, width}, inner));
  return inputs;
}
Results gated_mlp(S s, W in) {
  const Tensor x = in.contains("scale") ? nn::rms_norm(in["x"], in["scale"]) : in["x"];
  const Tensor h = activation(s.text("activation", "silu"), dot(x, in["gate"])) * dot(x, in["up"]);
  return {{in.contains("down") ? dot(h, in["down"]) : h}};
}
// Layers of these sizes, with activations between them.
Inputs mlp_inputs(S s) {
  const Extents sizes = s.list("sizes");
  Inputs inputs = {values("x", s.dtype(), {s["rows"], sizes[0]})};
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    inputs.push_back(
        weight(std::to_string(i) + ".weight", s.dtype(), {sizes[i], sizes[i + 1]}, sizes[i]));
    inputs.push_back(values(std::to_string(i) + ".bias", s.dtype(), {sizes[i + 1]}));
  }
  return inputs;
}
Tensor mlp_of(S s, W layers, Tensor x) {
  const int64_t count = static_cast<int64_t>(s.list("sizes").size()) - 1;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) x = activation(s.text("activation", "relu"), x);
    x = nn::linear(layers.group(std::to_string(i)), x);
  }
  return x;
}
Results mlp(S s, W in) { return {{mlp_of(s, in, in["x"])}}; }

// --- Attention
// ------------------------------------------------------------------------------------

// Arrays are [batch, heads, length, dim]. Settings: kv_heads (fewer than heads: groups of heads
// share keys), causal, window (keys that a query sees), cap (soft cap of the scores), bias=full
// (an array) or slopes (by distance), padding (a mask of keys by batch), documents (how many lie
// one after the other in a row of the batch; queries see keys of their own document).
Inputs attention_inputs(S s) {
  const int64_t batch = s["batch"], heads = s["heads"], group = s.get("group", 1);
  const int64_t queries = s["queries"], keys = s.get("keys", queries), dim = s["dim"];
  const std::string bias = s.text("bias", "none");
  Inputs inputs = {values("q", s.dtype(), {batch, heads * group, queries, dim}),
                   values("k", s.dtype(), {batch, heads, keys, dim}),
                   values("v", s.dtype(), {batch, heads, keys, dim})};
  if (bias == "full") inputs.push_back(values("bias", s.dtype(), {heads * group, queries, keys}));
  if (bias == "slopes") inputs.push_back(between("slopes", DType::F32, {heads * group}, 0.01, 0.5));
  if (s.get("padding", 0)) inputs.push_back({"seen", DType::Bool, {batch, keys}, 0, 1});
  if (s.has("documents"))
    inputs.push_back({.name = "documents",
                      .dtype = DType::I32,
                      .shape = {batch, keys},
                      .high = static_cast<double>(s["documents"]),
                      .runs = true});
  return inputs;
}
Tensor attended(S s, W in) {
  const Tensor q = in["q"], k = in["k"], v = in["v"];
  const int64_t batch = s["batch"], heads = s["heads"], group = s.get("group", 1);
  const int64_t queries = s["queries"], keys = s.get("keys", queries), dim = s["dim"];
  const std::string bias = s.text("bias", "none");
  const Tensor grouped = reshape(q, {batch, heads, group, queries, dim});
  const DotAxes along = {.batch_left = {0, 1},
                         .batch_right = {0, 1},
                         .contract_left = {4},
                         .contract_right = {3},
                         .result = is_narrow(q.dtype()) ? std::optional(f32) : std::nullopt};
  Tensor scores = dot_general(grouped, k, along) * (1 / std::sqrt(static_cast<double>(dim)));
  const double cap = static_cast<double>(s.get("cap", 0));
  if (cap > 0) scores = tanh(scores / cap) * cap;
  // Position of the last query is that of the last key.
  const Tensor query = arange(i32, {queries, keys}, 0) + (keys - queries),
               key = arange(i32, {queries, keys}, 1);
  if (bias == "full")
    scores = scores + cast(reshape(in["bias"], {heads, group, queries, keys}), scores.dtype());
  if (bias == "slopes")
    scores = scores + cast(reshape(in["slopes"], {heads, group, 1, 1}) * cast(key - query, f32),
                           scores.dtype());
  Tensor seen;
  const auto also = [&](const Tensor& condition) {
    seen = seen.valid() ? seen & condition : condition;
  };
  if (s.get("causal", 0)) also(key <= query);
  if (s.has("window")) also(query - key < s["window"]);
  if (s.get("padding", 0)) also(reshape(in["seen"], {batch, 1, 1, 1, keys}));
  if (s.has("documents"))
    also(reshape(in["documents"], {batch, 1, 1, queries, 1}) ==
         reshape(in["documents"], {batch, 1, 1, 1, keys}));
  if (seen.valid()) scores = where(seen, scores, -INFINITY);
  const Tensor weights = cast(nn::softmax(scores), v.dtype());
  const DotAxes over = {
      .batch_left = {0, 1}, .batch_right = {0, 1}, .contract_left = {4}, .contract_right = {2}};
  return reshape(dot_general(weights, v, over), {batch, heads * group, queries, dim});
}
Results attention(S s, W in) { return {{attended(s, in)}}; }

// --- Optimizers
// -----------------------------------------------------------------------------------

// The parameters of `layers` layers of a transformer, or one array of `count`.
std::vector<Extents> parameter_shapes(S s) {
  if (s.has("count")) return {{s["count"]}};
  const int64_t w = s["width"];
  std::vector<Extents> shapes;
  for (int64_t i = 0; i < s["layers"]; ++i)
    for (const Extents& shape : {Extents{w},
                                 {w},
                                 {w, 3 * w},
                                 {3 * w},
                                 {w, w},
                                 {w},
                                 {w},
                                 {w},
                                 {w, 4 * w},
                                 {4 * w},
                                 {4 * w, w},
                                 {w}})
      shapes.push_back(shape);
  return shapes;
}
Inputs optimizer_inputs(S s, const std::vector<std::string>& states, bool counts) {
  Inputs inputs;
  const std::vector<Extents> shapes = parameter_shapes(s);
  const auto add = [&](const std::string& group, DType dtype, double low, double high) {
    for (size_t i = 0; i < shapes.size(); ++i)
      inputs.push_back(between(group + "." + std::to_string(i), dtype, shapes[i], low, high));
  };
  add("parameter", s.dtype(), -1, 1);
  add("gradient", s.dtype(), -1, 1);
  for (const std::string& state : states) add(state, DType::F32, 0, 0.1);
  if (counts) inputs.push_back(indices("step", {}, 1));
  return inputs;
}
// New values take the place of the old ones.
std::vector<Tensor> replaced(const Weights& old, const Weights& now) {
  std::vector<Tensor> results;
  for (const auto& [name, tensor] : old) results.push_back(update(tensor, now[name]));
  return results;
}
std::vector<Tensor> joined(std::vector<Tensor> a, const std::vector<Tensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Weights adamw_state_of(W in) {
  Weights state;
  state.add("step", in["step"]);
  state.add("m", in.group("m"));
  state.add("v", in.group("v"));
  return state;
}
Inputs adamw_inputs(S s) { return optimizer_inputs(s, {"m", "v"}, true); }
Results adamw(S, W in) {
  const Weights parameters = in.group("parameter"), state = adamw_state_of(in);
  const auto [now, next] = optim::adamw(parameters, in.group("gradient"), state);
  return joined(replaced(parameters, now), replaced(state, next));
}
Inputs momentum_inputs(S s) { return optimizer_inputs(s, {"v"}, false); }
Results momentum(S, W in) {
  const Weights parameters = in.group("parameter");
  Weights state;
  state.add("v", in.group("v"));
  const auto [now, next] = optim::momentum(parameters, in.group("gradient"), state);
  return joined(replaced(parameters, now), replaced(state, next));
}
Inputs sgd_inputs(S s) { return optimizer_inputs(s, {}, false); }
Results sgd(S, W in) {
  const Weights parameters = in.group("parameter");
  return replaced(parameters, optim::sgd(parameters, in.group("gradient")));
}
// Chen et al.: Symbolic Discovery of Optimization Algorithms.
Inputs lion_inputs(S s) { return optimizer_inputs(s, {"m"}, false); }
Results lion(S, W in) {
  const Weights parameters = in.group("parameter"), gradients = in.group("gradient"),
                m = in.group("m");
  const Weights step = m.zip(gradients, [](const Tensor& a, const Tensor& g) {
    return sign(a * 0.9 + cast(g, f32) * 0.1);
  });
  const Weights now = parameters.zip(step, [](const Tensor& p, const Tensor& d) {
    return cast(cast(p, f32) * (1 - 1e-4 * 0.1) - d * 1e-4, p.dtype());
  });
  const Weights next = m.zip(
      gradients, [](const Tensor& a, const Tensor& g) { return a * 0.99 + cast(g, f32) * 0.01; });
  return joined(replaced(parameters, now), replaced(m, next));
}
// Gradients scaled so that their common length is at most one.
Results clip(S, W in) {
  const Weights gradients = in.group("gradient");
  Tensor total;
  for (const auto& [name, g] : gradients) {
    const Tensor squares = sum(square(cast(g, f32)));
    total = total.valid() ? total + squares : squares;
  }
  const Tensor factor = minimum(1.0 / (sqrt(total) + 1e-6), 1.0);
  return replaced(gradients, gradients.map([&](const Tensor& g) {
    return cast(cast(g, f32) * factor, g.dtype());
  }));
}
// A moving average of parameters.
Inputs average_inputs(S s) { return optimizer_inputs(s, {"average"}, false); }
Results average(S, W in) {
  const Weights averages = in.group("average");
  return replaced(averages,
                  averages.zip(in.group("parameter"), [](const Tensor& a, const Tensor& p) {
                    return a * 0.999 + cast(p, f32) * 0.001;
                  }));
}
// Sums of gradients that come in 16 bits.
Inputs accumulate_inputs(S s) { return optimizer_inputs(s, {"sum"}, false); }
Results accumulate(S, W in) {
  const Weights sums = in.group("sum");
  return replaced(sums, sums.zip(in.group("gradient"), [](const Tensor& a, const Tensor& g) {
    return a + cast(g, f32);
  }));
}

// --- Blocks and steps
// -----------------------------------------------------------------------------

// style=llama: rms norm, rotary embedding, groups of heads, gated MLP; causal.
// style=gpt: layer norm first, gelu MLP; causal. style=bert: layer norm last, everything is seen.
Inputs block_weights(S s, const std::string& prefix) {
  const int64_t heads = s["heads"], group = s.get("group", 1), dim = s["dim"], inner = s["inner"];
  const int64_t width = heads * group * dim, kept = heads * dim;
  const bool is_llama = s.text("style", "gpt") == "llama";
  Inputs inputs;
  const auto matrix = [&](const std::string& name, int64_t from, int64_t to) {
    inputs.push_back(weight(prefix + name + ".weight", s.dtype(), {from, to}, from));
    // A bias of the keys adds the same number to all scores of a query, so it would change nothing.
    if (!is_llama && name != "k")
      inputs.push_back(between(prefix + name + ".bias", s.dtype(), {to}, -0.1, 0.1));
  };
  const auto norm = [&](const std::string& name) {
    inputs.push_back(between(prefix + name + ".scale", s.dtype(), {width}, 0.5, 1.5));
    if (!is_llama)
      inputs.push_back(between(prefix + name + ".shift", s.dtype(), {width}, -0.1, 0.1));
  };
  norm("norm1");
  matrix("q", width, width);
  matrix("k", width, kept);
  matrix("v", width, kept);
  matrix("o", width, width);
  norm("norm2");
  if (is_llama) matrix("gate", width, inner);
  matrix("up", width, inner);
  matrix("down", inner, width);
  return inputs;
}
Inputs rotary_tables(S s) {
  const Extents table = {s["length"], s["dim"] / 2};
  return {between("cos", s.dtype(), table, -1, 1), between("sin", s.dtype(), table, -1, 1)};
}
Inputs block_inputs_of(S s) {
  const int64_t width = s["heads"] * s.get("group", 1) * s["dim"];
  Inputs inputs = {values("x", s.dtype(), {s["batch"], s["length"], width})};
  for (const Input& input : block_weights(s, "")) inputs.push_back(input);
  if (s.text("style", "gpt") == "llama")
    for (const Input& input : rotary_tables(s)) inputs.push_back(input);
  return inputs;
}
Tensor block_of(S s, W w, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  const std::string style = s.text("style", "gpt");
  const bool is_llama = style == "llama", is_bert = style == "bert";
  const int64_t batch = s["batch"], length = s["length"], dim = s["dim"];
  const auto norm = [&](const std::string& name, const Tensor& t) {
    const Weights n = w.group(name);
    return is_llama ? nn::rms_norm(t, n["scale"]) : nn::layer_norm(t, n["scale"], n["shift"]);
  };
  const auto layer = [&](const std::string& name, const Tensor& t) {
    return nn::linear(w.group(name), t);
  };
  const auto heads = [&](const std::string& name, const Tensor& t) {
    return reshape(layer(name, t), {batch, length, -1, dim});
  };
  const auto attend = [&](const Tensor& t) {
    Tensor q = heads("q", t), k = heads("k", t);
    if (is_llama) q = rotated(q, cosine, sine, false), k = rotated(k, cosine, sine, false);
    Weights in;
    in.add("q", permute(q, {0, 2, 1, 3}));
    in.add("k", permute(k, {0, 2, 1, 3}));
    in.add("v", permute(heads("v", t), {0, 2, 1, 3}));
    Settings settings = s;
    settings.set("queries=" + std::to_string(length));
    settings.set(is_bert ? "causal=0" : "causal=1");
    const Tensor merged = permute(attended(settings, in), {0, 2, 1, 3});
    return layer("o", reshape(merged, {batch, length, -1}));
  };
  const auto feed = [&](const Tensor& t) {
    if (is_llama) return layer("down", silu(layer("gate", t)) * layer("up", t));
    return layer("down", gelu(layer("up", t)));
  };
  if (is_bert) {
    const Tensor h = norm("norm1", x + attend(x));
    return norm("norm2", h + feed(h));
  }
  const Tensor h = x + attend(norm("norm1", x));
  return h + feed(norm("norm2", h));
}
Results block(S s, W in) {
  const bool is_llama = s.text("style", "gpt") == "llama";
  const Tensor cosine = is_llama ? in["cos"] : Tensor(), sine = is_llama ? in["sin"] : Tensor();
  return {{block_of(s, in, in["x"], cosine, sine)}};
}

// A recurrent cell: one step of time.
Inputs lstm_inputs(S s) {
  const int64_t rows = s["rows"], width = s["width"];
  return {values("x", s.dtype(), {rows, width}),
          values("h", s.dtype(), {rows, width}),
          values("c", s.dtype(), {rows, width}),
          weight("w", s.dtype(), {width, 4 * width}, 2 * width),
          weight("u", s.dtype(), {width, 4 * width}, 2 * width),
          values("bias", s.dtype(), {4 * width})};
}
// The next hidden state and the next state of the cell.
std::vector<Tensor> next_states(const Tensor& gates, const Tensor& c, int64_t width) {
  const auto gate = [&](int64_t i) { return slice(gates, -1, i * width, (i + 1) * width); };
  const Tensor next = sigmoid(gate(1)) * c + sigmoid(gate(0)) * tanh(gate(2));
  return {sigmoid(gate(3)) * tanh(next), next};
}
Results lstm_cell(S s, W in) {
  const Tensor gates = dot(in["x"], in["w"]) + dot(in["h"], in["u"]) + in["bias"];
  return next_states(gates, in["c"], s["width"]);
}
// The cell over `length` steps.
Inputs lstm_sequence_inputs(S s) {
  Inputs inputs = lstm_inputs(s);
  inputs[0].shape = {s["length"], s["rows"], s["width"]};
  return inputs;
}
Results lstm(S s, W in) {
  const Tensor given = dot(in["x"], in["w"]) + in["bias"];
  Tensor h = in["h"], c = in["c"];
  std::vector<Tensor> all;
  for (int64_t t = 0; t < s["length"]; ++t) {
    const Tensor gates = reshape(slice(given, 0, t, t + 1), {s["rows"], -1}) + dot(h, in["u"]);
    const std::vector<Tensor> next = next_states(gates, c, s["width"]);
    h = next[0], c = next[1];
    all.push_back(expand_dims(h, 0));
  }
  return {{concat(all, 0), c}};
}
// Two layers of channels mixed along patches, then along features.
Inputs mixer_inputs(S s) {
  const int64_t length = s["length"], width = s["width"], inner = s["inner"];
  return {values("x", s.dtype(), {s["batch"], length, width}),
          between("scale1", s.dtype(), {width}, 0.5, 1.5),
          values("shift1", s.dtype(), {width}),
          weight("w1", s.dtype(), {length, inner}, length),
          weight("w2", s.dtype(), {inner, length}, inner),
          between("scale2", s.dtype(), {width}, 0.5, 1.5),
          values("shift2", s.dtype(), {width}),
          weight("w3", s.dtype(), {width, inner}, width),
          weight("w4", s.dtype(), {inner, width}, inner)};
}
Results mixer(S, W in) {
  const Tensor x = in["x"];
  const Tensor along = transpose(nn::layer_norm(x, in["scale1"], in["shift1"]), 1, 2);
  const Tensor h = x + transpose(dot(gelu(dot(along, in["w1"])), in["w2"]), 1, 2);
  const Tensor across = nn::layer_norm(h, in["scale2"], in["shift2"]);
  return {{h + dot(gelu(dot(across, in["w3"])), in["w4"])}};
}
// A residual block of ResNet-50: 1x1, 3x3, 1x1, each with a norm of the batch.
Inputs residual_block_inputs(S s) {
  const int64_t wide = 4 * s["channels"], narrow = s["channels"];
  return {values("x", s.dtype(), image(s, wide)),
          weight("w1", s.dtype(), {1, 1, wide, narrow}, wide),
          weight("w2", s.dtype(), {3, 3, narrow, narrow}, 9 * narrow),
          weight("w3", s.dtype(), {1, 1, narrow, wide}, narrow),
          between("scale1", s.dtype(), {narrow}, 0.5, 1.5),
          between("scale2", s.dtype(), {narrow}, 0.5, 1.5),
          between("scale3", s.dtype(), {wide}, 0.5, 1.5),
          values("shift1", s.dtype(), {narrow}),
          values("shift2", s.dtype(), {narrow}),
          values("shift3", s.dtype(), {wide})};
}
Results residual_block(S, W in) {
  const auto layer = [&](const Tensor& x, const std::string& number) {
    const Tensor w = in["w" + number];
    const Tensor y = conv(x, w, padded(w.dim(0).value() / 2));
    return nn::batch_norm(y, in["scale" + number], in["shift" + number]).value;
  };
  return {{relu(in["x"] + layer(relu(layer(relu(layer(in["x"], "1")), "2")), "3"))}};
}

// A training step: loss, gradients of every parameter, AdamW in place.
std::vector<Tensor> trained(W in, const std::function<Tensor(W)>& loss_of) {
  const Weights parameters = in.group("parameter"), state = adamw_state_of(in);
  const auto [loss, gradients] = value_and_grad(loss_of)(parameters);
  const auto [now, next] = optim::adamw(parameters, gradients, state);
  return joined(joined({loss}, replaced(parameters, now)), replaced(state, next));
}
// `model` as parameters with their state.
Inputs trained_inputs(const Inputs& model) {
  Inputs inputs;
  for (Input input : model) {
    input.name = "parameter." + input.name;
    inputs.push_back(input);
  }
  for (const char* state : {"m.", "v."})
    for (const Input& input : model)
      inputs.push_back(between(state + input.name, DType::F32, input.shape, 0, 0.1));
  inputs.push_back(indices("step", {}, 1));
  return inputs;
}
Inputs mlp_step_inputs(S s) {
  Inputs model = mlp_inputs(s);
  const Input x = model[0];
  model.erase(model.begin());
  Inputs inputs = trained_inputs(model);
  inputs.push_back(x);
  inputs.push_back(indices("labels", {s["rows"]}, s.list("sizes").back()));
  return inputs;
}
Results mlp_step(S s, W in) {
  return trained(in, [&](W w) { return nn::cross_entropy(mlp_of(s, w, in["x"]), in["labels"]); });
}
Inputs transformer_step_inputs(S s) {
  const int64_t width = s["heads"] * s.get("group", 1) * s["dim"], vocabulary = s["vocabulary"];
  Inputs model = {between("embedding", s.dtype(), {vocabulary, width}, -1, 1)};
  if (s.text("style", "gpt") != "llama")
    model.push_back(between("positions", s.dtype(), {s["length"], width}, -1, 1));
  for (int64_t i = 0; i < s["layers"]; ++i)
    for (const Input& input : block_weights(s, "layer" + std::to_string(i) + "."))
      model.push_back(input);
  model.push_back(weight("head", s.dtype(), {width, vocabulary}, width));
  Inputs inputs = trained_inputs(model);
  inputs.push_back(indices("tokens", {s["batch"], s["length"]}, vocabulary));
  inputs.push_back(indices("labels", {s["batch"], s["length"]}, vocabulary));
  if (s.text("style", "gpt") == "llama")
    for (const Input& input : rotary_tables(s)) inputs.push_back(input);
  return inputs;
}
Results transformer_step(S s, W in) {
  const bool is_llama = s.text("style", "gpt") == "llama";
  const Tensor cosine = is_llama ? in["cos"] : Tensor(), sine = is_llama ? in["sin"] : Tensor();
  return trained(in, [&](W w) {
    Tensor x = nn::embedding(w["embedding"], in["tokens"]);
    if (!is_llama) x = x + w["positions"];
    for (int64_t i = 0; i < s["layers"]; ++i)
      x = block_of(s, w.group("layer" + std::to_string(i)), x, cosine, sine);
    return nn::cross_entropy(widen(dot(x, w["head"])), in["labels"]);
  });
}

}  // namespace

const std::map<std::string, Kind, std::less<>>& kinds() {
  static const std::map<std::string, Kind, std::less<>> all = [] {
    std::map<std::string, Kind, std::less<>> out = {
        {"copy", {two_arrays, copy}},
        {"scale", {one_array, scale}},
        {"axpy", {two_arrays, axpy}},
        {"activations", {activations_inputs, activations}},
        {"chain", {one_array, chain}},
        {"gated", {two_arrays, gated}},
        {"activate", {one_array, activate}},
        {"layer_norm", {layer_norm_inputs, layer_norm}},
        {"rms_norm", {norm_inputs, rms_norm}},
        {"group_norm", {channel_norm_inputs, group_norm}},
        {"batch_norm", {channel_norm_inputs, batch_norm}},
        {"batch_norm_inference", {batch_norm_inference_inputs, batch_norm_inference}},
        {"unit_length", {one_array, unit_length}},
        {"cross_entropy", {class_inputs, cross_entropy}},
        {"smoothed_cross_entropy", {class_inputs, smoothed_cross_entropy}},
        {"z_loss", {class_inputs, z_loss}},
        {"squared_error", {target_inputs, squared_error}},
        {"huber", {target_inputs, huber}},
        {"binary_cross_entropy", {target_inputs, binary_cross_entropy}},
        {"divergence", {two_arrays, divergence}},
        {"softmax", {one_array, softmax}},
        {"log_softmax", {one_array, log_softmax}},
        {"causal_softmax", {one_array, causal_softmax}},
        {"reduce", {one_array, reduce}},
        {"nearest", {nearest_inputs, nearest}},
        {"rotary", {rotary_inputs, rotary}},
        {"embedding", {table_inputs, embedding}},
        {"permute", {one_array, permute_axes}},
        {"transpose_add", {transpose_add_inputs, transpose_add}},
        {"join", {two_arrays, join}},
        {"interleave", {two_arrays, interleave}},
        {"roll", {one_array, roll}},
        {"flip", {one_array, flip}},
        {"stencil", {one_array, stencil}},
        {"upsample", {image_inputs, upsample}},
        {"patches", {image_inputs, patches}},
        {"one_hot", {one_hot_inputs, one_hot_rows}},
        {"quantize_blocks", {block_inputs, quantize_blocks}},
        {"quantize_bytes", {block_inputs, quantize_bytes}},
        {"dequantize", {packed_inputs, dequantize}},
        {"packed_product", {packed_product_inputs, packed_product}},
        {"scan", {one_array, scan}},
        {"sort", {one_array, sorted}},
        {"recurrence", {recurrence_inputs, decayed_sums}},
        {"pool", {image_inputs, pool}},
        {"convolution", {convolution_inputs, convolution}},
        {"product", {product_inputs, product}},
        {"merged_heads", {merged_heads_inputs, merged_heads}},
        {"gated_mlp", {gated_mlp_inputs, gated_mlp}},
        {"mlp", {mlp_inputs, mlp}},
        {"attention", {attention_inputs, attention}},
        {"adamw", {adamw_inputs, adamw}},
        {"momentum", {momentum_inputs, momentum}},
        {"sgd", {sgd_inputs, sgd}},
        {"lion", {lion_inputs, lion}},
        {"clip", {sgd_inputs, clip}},
        {"average", {average_inputs, average}},
        {"accumulate", {accumulate_inputs, accumulate}},
        {"block", {block_inputs_of, block}},
        {"lstm_cell", {lstm_inputs, lstm_cell}},
        {"lstm", {lstm_sequence_inputs, lstm}},
        {"mixer", {mixer_inputs, mixer}},
        {"residual_block", {residual_block_inputs, residual_block}},
        {"mlp_step", {mlp_step_inputs, mlp_step}},
        {"transformer_step", {transformer_step_inputs, transformer_step}},
    };
    out.merge(kinds_of_fields());
    return out;
  }();
  return all;
}

}  // namespace braze::sweep
