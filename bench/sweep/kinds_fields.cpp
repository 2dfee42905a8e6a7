// kinds_fields.cpp — workloads from other fields than language models: images, sequences and
// science, and parts of networks that few people tune. They are kinds as those of kinds.cpp.
#include <numbers>

#include "bench/sweep/kinds_p.h"

namespace braze::sweep {

namespace {

Tensor einsum_of(std::string_view equation, const Tensor& x, const Tensor& y) {
  return einsum(equation, {x, y});
}

// --- Images
// --------------------------------------------------------------------------------------

// Hu et al.: Squeeze-and-Excitation Networks. Channels are scaled by a network of their means.
Inputs squeeze_excite_inputs(S s) {
  const int64_t channels = s["channels"], inner = s["inner"];
  return {values("x", s.dtype(), image(s, channels)),
          weight("w1", s.dtype(), {channels, inner}, channels), values("bias1", s.dtype(), {inner}),
          weight("w2", s.dtype(), {inner, channels}, inner),
          values("bias2", s.dtype(), {channels})};
}
Results squeeze_excite(S s, W in) {
  const Tensor x = in["x"], squeezed = mean(x, {1, 2});
  const Tensor hidden = relu(dot(squeezed, in["w1"]) + in["bias1"]);
  const Tensor gates = sigmoid(dot(hidden, in["w2"]) + in["bias2"]);
  return {{x * reshape(gates, {s["batch"], 1, 1, s["channels"]})}};
}

// Liu et al.: A ConvNet for the 2020s. Each channel is filtered; then two layers along channels.
Inputs convnext_inputs(S s) {
  const int64_t channels = s["channels"], window = s["window"];
  return {values("x", s.dtype(), image(s, channels)),
          weight("w", s.dtype(), {window, window, 1, channels}, window * window),
          between("scale", s.dtype(), {channels}, 0.5, 1.5),
          values("shift", s.dtype(), {channels}),
          weight("w1", s.dtype(), {channels, 4 * channels}, channels),
          values("bias1", s.dtype(), {4 * channels}),
          weight("w2", s.dtype(), {4 * channels, channels}, 4 * channels),
          between("gain", s.dtype(), {channels}, 0.1, 0.5)};
}
Results convnext(S s, W in) {
  const Tensor x = in["x"];
  const Dim edge = s["window"] / 2;
  const Tensor mixed =
      conv(x, in["w"], {.low = {edge, edge}, .high = {edge, edge}, .groups = s["channels"]});
  const Tensor hidden = dot(nn::layer_norm(mixed, in["scale"], in["shift"]), in["w1"]);
  return {{x + dot(gelu(hidden + in["bias1"]), in["w2"]) * in["gain"]}};
}

// Twice as many rows and columns, interpolated between the centres of elements.
Inputs image_inputs(S s) { return {values("x", s.dtype(), image(s, s["channels"]))}; }
Tensor interpolated(const Tensor& x, int64_t axis, int64_t extent) {
  const Tensor at = clamp((cast(arange(i32, 2 * extent), f32) + 0.5) * 0.5 - 0.5, 0.0,
                          static_cast<double>(extent - 1));
  const Tensor low = cast(at, i32), high = minimum(low + 1, extent - 1);
  Dims shape(x.shape().size(), 1);
  shape[static_cast<size_t>(axis)] = 2 * extent;
  const Tensor part = cast(reshape(at - cast(low, f32), shape), x.dtype());
  return take(x, low, axis) * (1.0 - part) + take(x, high, axis) * part;
}
Results resize(S s, W in) {
  return {{interpolated(interpolated(in["x"], 1, s["height"]), 2, s["width"])}};
}

// Wang et al.: Image Quality Assessment. The mean likeness of windows of two images.
Inputs likeness_inputs(S s) {
  return {between("x", s.dtype(), image(s, s["channels"]), 0, 1),
          between("y", s.dtype(), image(s, s["channels"]), 0, 1)};
}
Results likeness(S s, W in) {
  const Tensor x = in["x"], y = in["y"];
  const auto smooth = [&](const Tensor& t) {
    return avg_pool(t, {s["window"], s["window"]}, {.strides = {1, 1}});
  };
  const Tensor mx = smooth(x), my = smooth(y);
  const Tensor vx = smooth(x * x) - mx * mx, vy = smooth(y * y) - my * my;
  const Tensor both = smooth(x * y) - mx * my;
  const Tensor map = ((mx * my * 2.0 + 1e-4) * (both * 2.0 + 9e-4)) /
                     ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4));
  return {{mean(map)}};
}

// Liu et al.: Swin Transformer. Attention within windows of an image, with a bias for each pair of
// places.
Extents image_of_windows(S s, int64_t channels) {
  return {s["batch"], s["rows"] * s["window"], s["cols"] * s["window"], channels};
}
Inputs window_attention_inputs(S s) {
  const int64_t places = s["window"] * s["window"];
  return {values("qkv", s.dtype(), image_of_windows(s, 3 * s["heads"] * s["dim"])),
          values("bias", s.dtype(), {s["heads"], places, places})};
}
Results window_attention(S s, W in) {
  const int64_t batch = s["batch"], rows = s["rows"], cols = s["cols"], window = s["window"];
  const int64_t heads = s["heads"], dim = s["dim"], places = window * window;
  const Tensor split = reshape(in["qkv"], {batch, rows, window, cols, window, 3, heads, dim});
  const Tensor windows = reshape(permute(split, {5, 0, 1, 3, 6, 2, 4, 7}),
                                 {3, batch * rows * cols, heads, places, dim});
  const auto part = [&](int64_t i) { return squeeze(slice(windows, 0, i, i + 1), {0}); };
  const Tensor scores =
      einsum_of("bhqd,bhkd->bhqk", part(0), part(1)) * (1 / std::sqrt(static_cast<double>(dim)));
  const Tensor weights = nn::softmax(widen(scores) + widen(in["bias"]));
  const Tensor y = einsum_of("bhqk,bhkd->bhqd", cast(weights, s.dtype()), part(2));
  const Tensor grid = reshape(y, {batch, rows, cols, heads, window, window, dim});
  const Dims whole = {batch, rows * window, cols * window, heads * dim};
  return {{reshape(permute(grid, {0, 1, 4, 2, 5, 3, 6}), whole)}};
}

// --- Sequences
// -----------------------------------------------------------------------------------

Inputs heads_inputs(S s) {
  const Extents shape = {s["batch"], s["heads"], s["length"], s["dim"]};
  return {values("q", s.dtype(), shape), values("k", s.dtype(), shape),
          values("v", s.dtype(), shape)};
}

// Katharopoulos et al.: Transformers are RNNs. Without a mask: keys and values are summed first.
Results linear_attention(S, W in) {
  const auto feature = [](const Tensor& x) {
    return where(x > 0.0, x + 1.0, exp(minimum(x, 0.0)));
  };
  const Tensor q = feature(in["q"]), k = feature(in["k"]);
  const Tensor pairs = einsum_of("bhld,bhle->bhde", k, in["v"]);
  const Tensor sums = sum(widen(k), {2});
  const Tensor norms = cast(einsum_of("bhld,bhd->bhl", widen(q), sums), f32);
  const Tensor y = einsum_of("bhld,bhde->bhle", q, pairs);
  return {{cast(widen(y) / expand_dims(norms, 3), q.dtype())}};
}

// Sun et al.: Retentive Network. Attention with powers of a decay in place of a softmax.
Inputs retention_inputs(S s) {
  Inputs inputs = heads_inputs(s);
  inputs.push_back(between("decay", DType::F32, {s["heads"]}, -0.1, -0.005));
  return inputs;
}
Results retention(S s, W in) {
  const int64_t length = s["length"];
  const Tensor query = arange(i32, {length, length}, 0), key = arange(i32, {length, length}, 1);
  const Tensor distance = cast(query - key, f32);
  const Tensor powers =
      where(key <= query, exp(reshape(in["decay"], {s["heads"], 1, 1}) * distance), 0.0);
  const Tensor scores = einsum_of("bhqd,bhkd->bhqk", in["q"], in["k"]) *
                        (1 / std::sqrt(static_cast<double>(s["dim"])));
  return {{einsum_of("bhqk,bhkd->bhqd", cast(widen(scores) * powers, s.dtype()), in["v"])}};
}

// Raffel et al.: T5. A bias for each distance, which a table has.
Inputs relative_inputs(S s) {
  Inputs inputs = heads_inputs(s);
  inputs.push_back(values("table", s.dtype(), {s["heads"], 2 * s["reach"] + 1}));
  return inputs;
}
Results relative(S s, W in) {
  const int64_t length = s["length"], reach = s["reach"];
  const Tensor distance = arange(i32, {length, length}, 1) - arange(i32, {length, length}, 0);
  const Tensor bias = take(in["table"], clamp(distance, -reach, reach) + reach, 1);
  const Tensor scores = einsum_of("bhqd,bhkd->bhqk", in["q"], in["k"]);
  const Tensor weights = nn::softmax(widen(scores) * 0.125 + widen(bias));
  return {{einsum_of("bhqk,bhkd->bhqd", cast(weights, s.dtype()), in["v"])}};
}

// Gu and Dao: Mamba. A recurrence of `states` numbers for each channel, which are never results.
Inputs selective_inputs(S s) {
  const int64_t batch = s["batch"], length = s["length"], width = s["width"], states = s["states"];
  return {values("x", s.dtype(), {batch, length, width}),
          between("step", s.dtype(), {batch, length, width}, 0.001, 0.1),
          between("a", s.dtype(), {width, states}, -4, -0.5),
          values("b", s.dtype(), {batch, length, states}),
          values("c", s.dtype(), {batch, length, states})};
}
Results selective(S, W in) {
  const Tensor x = in["x"], step = expand_dims(in["step"], 3);
  const Tensor decay = exp(step * in["a"]);
  const Tensor given = step * expand_dims(x, 3) * expand_dims(in["b"], 2);
  return {{sum(recurrence(decay, given, 1) * expand_dims(in["c"], 2), {3})}};
}

// The power spectrum of frames of sound, in bands, on a logarithmic scale.
Inputs spectrum_inputs(S s) {
  return {values("sound", s.dtype(), {s["batch"], s["hop"] * (s["frames"] - 1) + s["window"]}),
          between("bands", s.dtype(), {s["window"] / 2 + 1, s["bands"]}, 0, 0.1)};
}
Results spectrum(S s, W in) {
  const int64_t window = s["window"], bins = window / 2 + 1;
  const Tensor place = cast(arange(i32, {window}, 0), f32);
  const double turn = 2 * std::numbers::pi / static_cast<double>(window);
  const Tensor hann = 0.5 - cos(place * turn) * 0.5;
  // The product of place and bin modulo the window, so that the angle is small.
  const Tensor product = arange(i32, {window, bins}, 0) * arange(i32, {window, bins}, 1);
  const Tensor angle = cast(product % window, f32) * turn;
  const Tensor at =
      expand_dims(arange(i32, {s["frames"]}, 0) * s["hop"], 1) + arange(i32, {window}, 0);
  const Tensor frames = take(in["sound"], at, 1) * hann;
  const Tensor real = dot(frames, cos(angle)), imaginary = dot(frames, sin(angle));
  return {{log(dot(real * real + imaginary * imaginary, in["bands"]) + 1e-6)}};
}

// --- Parts of networks
// -----------------------------------------------------------------------------------

// Hu et al.: LoRA. A layer, and an update of it of low rank.
Inputs low_rank_inputs(S s) {
  const int64_t width = s["width"], rank = s["rank"];
  return {values("x", s.dtype(), {s["rows"], width}), weight("w", s.dtype(), {width, width}, width),
          weight("down", s.dtype(), {width, rank}, width),
          weight("up", s.dtype(), {rank, width}, rank)};
}
Results low_rank(S, W in) {
  const Tensor x = in["x"];
  return {{dot(x, in["w"]) + dot(dot(x, in["down"]), in["up"]) * 2.0}};
}

// A mixture of experts: each row goes through the one that a router prefers.
Inputs experts_inputs(S s) {
  const int64_t experts = s["experts"], width = s["width"], inner = s["inner"];
  return {values("x", s.dtype(), {s["rows"], width}),
          weight("router", s.dtype(), {width, experts}, width),
          weight("w1", s.dtype(), {experts, width, inner}, width),
          weight("w2", s.dtype(), {experts, inner, width}, inner)};
}
Results experts(S s, W in) {
  const Tensor x = in["x"];
  const Tensor chances = nn::softmax(widen(dot(x, in["router"])));
  const Tensor best = max(chances, {1}, true);
  const Tensor gates = where(chances == best, chances, 0.0);
  const Tensor hidden = gelu(einsum_of("td,edf->etf", x, in["w1"]));
  const Tensor each = einsum_of("etf,efd->etd", hidden, in["w2"]);
  const Tensor gate = reshape(transpose(gates), {s["experts"], s["rows"], 1});
  return {{cast(sum(widen(each) * gate, {0}), s.dtype())}};
}

// Kipf and Welling: Graph Convolutional Networks. Rows travel along weighted edges and are added.
Inputs graph_layer_inputs(S s) {
  return {values("x", s.dtype(), {s["nodes"], s["width"]}),
          indices("from", {s["edges"]}, s["nodes"]), indices("to", {s["edges"]}, s["nodes"]),
          between("strength", s.dtype(), {s["edges"], 1}, 0, 1),
          weight("w", s.dtype(), {s["width"], s["width"]}, s["width"])};
}
Results graph_layer(S, W in) {
  const Tensor made = dot(in["x"], in["w"]);
  const Tensor sent = take(made, in["from"], 0) * in["strength"];
  return {{relu(scatter_add(zeros_like(made), in["to"], sent))}};
}

// Radford et al.: CLIP. Each row of one side belongs to the same row of the other.
Inputs contrastive_inputs(S s) {
  return {values("x", s.dtype(), {s["rows"], s["width"]}),
          values("y", s.dtype(), {s["rows"], s["width"]})};
}
Results contrastive(S s, W in) {
  const auto unit = [&](const Tensor& t) {
    const Tensor wide = widen(t);
    return cast(wide * rsqrt(sum(wide * wide, {1}, true) + 1e-12), s.dtype());
  };
  const Tensor logits = widen(einsum_of("id,jd->ij", unit(in["x"]), unit(in["y"]))) * 10.0;
  const Tensor row = arange(i32, {s["rows"], s["rows"]}, 0);
  const Tensor own = sum(where(row == arange(i32, {s["rows"], s["rows"]}, 1), logits, 0.0), {1});
  return {{mean(logsumexp(logits, {1}) + logsumexp(logits, {0}) - own * 2.0) * 0.5}};
}

// Lin et al.: Focal Loss, of independent classes.
Inputs focal_inputs(S s) {
  return {values("logits", s.dtype(), {s["rows"], s["cols"]}),
          between("targets", s.dtype(), {s["rows"], s["cols"]}, 0, 1)};
}
Results focal(S, W in) {
  const Tensor x = in["logits"], y = in["targets"];
  const Tensor chance = sigmoid(x);
  const Tensor loss = maximum(x, 0.0) - x * y + log1p(exp(-abs(x)));
  const Tensor missed = chance * (1.0 - y) + (1.0 - chance) * y;
  return {{mean(loss * missed * missed)}};
}

// Shazeer and Stern: Adafactor. Second moments of a matrix are kept for its rows and columns.
Inputs adafactor_inputs(S s) {
  const Extents shape = {s["rows"], s["cols"]};
  return {values("p", s.dtype(), shape), values("g", s.dtype(), shape),
          between("of_rows", s.dtype(), {s["rows"]}, 0.5, 1),
          between("of_cols", s.dtype(), {s["cols"]}, 0.5, 1)};
}
Results adafactor(S s, W in) {
  const Tensor p = in["p"], g = in["g"], squares = g * g + 1e-30;
  const Tensor rows = in["of_rows"] * 0.99 + mean(squares, {1}) * 0.01;
  const Tensor cols = in["of_cols"] * 0.99 + mean(squares, {0}) * 0.01;
  const Tensor moments = reshape(rows / mean(rows), {s["rows"], 1}) * cols;
  const Tensor step = g * rsqrt(moments);
  const Tensor length = sqrt(mean(step * step));
  const Tensor next = p - step / maximum(length, 1.0) * 0.01;
  return {{update(p, next), update(in["of_rows"], rows), update(in["of_cols"], cols)}};
}

// Jordan et al.: Muon. Five products of a polynomial make the singular values of a matrix alike.
Inputs matrix_inputs(S s) { return {values("x", s.dtype(), {s["rows"], s["cols"]})}; }
Results orthogonal(S s, W in) {
  const Tensor wide = widen(in["x"]);
  Tensor x = cast(wide * rsqrt(sum(wide * wide) + 1e-7), s.dtype());
  for (int i = 0; i < 5; ++i) {
    const Tensor a = einsum_of("ik,jk->ij", x, x);
    const Tensor b = a * -4.775 + dot(a, a) * 2.0315;
    x = x * 3.4445 + dot(b, x);
  }
  return {{x}};
}

// --- Science
// -----------------------------------------------------------------------------------

// The acceleration of bodies that attract each other.
Inputs bodies_inputs(S s) {
  return {values("x", s.dtype(), {s["bodies"], 3}),
          between("mass", s.dtype(), {s["bodies"]}, 0.5, 1.5)};
}
Results bodies(S, W in) {
  const Tensor away = expand_dims(in["x"], 0) - expand_dims(in["x"], 1);
  const Tensor inverse = rsqrt(sum(away * away, {2}) + 0.01);
  const Tensor force = in["mass"] * inverse * inverse * inverse;
  return {{sum(expand_dims(force, 2) * away, {1})}};
}

// Cuturi: Sinkhorn Distances. Rows and columns are scaled in turns until both add up to one.
Inputs pairs_inputs(S s) { return {values("cost", s.dtype(), {s["batch"], s["rows"], s["rows"]})}; }
Results transport(S s, W in) {
  const Tensor kernel = in["cost"] * -2.0;
  Tensor cols = zeros_like(sum(kernel, {1}, true)), rows;
  for (int64_t i = 0; i < s["turns"]; ++i) {
    rows = -logsumexp(kernel + cols, {2}, true);
    cols = -logsumexp(kernel + rows, {1}, true);
  }
  return {{exp(kernel + rows + cols)}};
}

// Lloyd's algorithm: each point goes to the nearest centre, which moves to the mean of its points.
Inputs clusters_inputs(S s) {
  return {values("x", s.dtype(), {s["points"], s["dim"]}),
          values("centres", s.dtype(), {s["clusters"], s["dim"]})};
}
Results clusters(S s, W in) {
  const Tensor x = in["x"], centres = in["centres"];
  const Tensor distances = sum(centres * centres, {1}) - dot(x, transpose(centres)) * 2.0;
  const Tensor chosen = one_hot(argmin(distances, 1), s["clusters"], s.dtype());
  const Tensor sums = einsum_of("nk,nd->kd", chosen, x);
  return {{sums / maximum(expand_dims(sum(chosen, {0}), 1), 1.0)}};
}

// Two steps of heat in a cube whose opposite faces touch.
Inputs cube_inputs(S s) {
  return {values("x", s.dtype(), {s["extent"], s["extent"], s["extent"]})};
}
Results heat(S s, W in) {
  Tensor x = in["x"];
  const int64_t n = s["extent"];
  for (int i = 0; i < 2; ++i) {
    Tensor around = x * -6.0;
    for (int64_t axis = 0; axis < 3; ++axis) {
      const Tensor up = concat({slice(x, axis, 1, n), slice(x, axis, 0, 1)}, axis);
      const Tensor down = concat({slice(x, axis, n - 1, n), slice(x, axis, 0, n - 1)}, axis);
      around = around + up + down;
    }
    x = x + around * 0.1;
  }
  return {{x}};
}

// The covariance of columns.
Results covariance(S s, W in) {
  const Tensor x = in["x"], centred = x - mean(x, {0}, true);
  return {{einsum_of("ni,nj->ij", centred, centred) / static_cast<double>(s["rows"] - 1)}};
}

}  // namespace

std::map<std::string, Kind, std::less<>> kinds_of_fields() {
  return {
      {"squeeze_excite", {squeeze_excite_inputs, squeeze_excite}},
      {"convnext", {convnext_inputs, convnext}},
      {"resize", {image_inputs, resize}},
      {"likeness", {likeness_inputs, likeness}},
      {"window_attention", {window_attention_inputs, window_attention}},
      {"linear_attention", {heads_inputs, linear_attention}},
      {"retention", {retention_inputs, retention}},
      {"relative", {relative_inputs, relative}},
      {"selective", {selective_inputs, selective}},
      {"spectrum", {spectrum_inputs, spectrum}},
      {"low_rank", {low_rank_inputs, low_rank}},
      {"experts", {experts_inputs, experts}},
      {"graph_layer", {graph_layer_inputs, graph_layer}},
      {"contrastive", {contrastive_inputs, contrastive}},
      {"focal", {focal_inputs, focal}},
      {"adafactor", {adafactor_inputs, adafactor}},
      {"orthogonal", {matrix_inputs, orthogonal}},
      {"bodies", {bodies_inputs, bodies}},
      {"transport", {pairs_inputs, transport}},
      {"clusters", {clusters_inputs, clusters}},
      {"heat", {cube_inputs, heat}},
      {"covariance", {matrix_inputs, covariance}},
  };
}

}  // namespace braze::sweep
