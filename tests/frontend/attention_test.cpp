// Rotary positions and attention against PyTorch, written-out formulas and each other.
#include <tuple>

#include "tests/frontend/pytorch_figures.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

class Attention : public OnDevice {};

/// The numbers of pytorch_figures.py.
Array wave(const Longs& shape, double phase) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  Doubles values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(0.37 * static_cast<double>(i) + phase));
  return Array::from(values, shape);
}

Array wave_f32(const Longs& shape, double phase) {
  return jit([](Tensor x) { return cast(x, f32); })(wave(shape, phase));
}

const auto kAttend = [](nn::AttentionOptions options) {
  return jit([=](Tensor q, Tensor k, Tensor v) { return nn::attention(q, k, v, options); })(
      wave({2, 3, 4, 4}, 0.1), wave({2, 5, 2, 4}, 0.2), wave({2, 5, 2, 2}, 0.3));
};

TEST_F(Attention, IsPyTorchs) {
  expect_near(kAttend({}), pytorch::kAttention, 1e-14);
  const auto later = jit([](Tensor q, Tensor k, Tensor v, Tensor position) {
    return nn::attention(q, k, v, {.causal = true, .position = position, .scale = 0.75});
  });
  for (const Longs& shape : {Longs{}, Longs{1}})
    expect_near(later(wave({2, 3, 4, 4}, 0.1), wave({2, 5, 2, 4}, 0.2), wave({2, 5, 2, 2}, 0.3),
                      full(shape, 1, i32)),
                pytorch::kCausalAttention, 1e-14);
  const auto biased = jit([](Tensor q, Tensor k, Tensor v, Tensor bias) {
    return nn::attention(q, k, v, {.mask = arange(i32, Dim(5)) != 2, .bias = bias});
  });
  expect_near(biased(wave({2, 3, 4, 4}, 0.1), wave({2, 5, 2, 4}, 0.2), wave({2, 5, 2, 2}, 0.3),
                     wave({4, 3, 5}, 1.1)),
              pytorch::kBiasedAttention, 1e-14);
}

TEST_F(Attention, RopeIsLlamas) {
  const Array x = wave({2, 3, 2, 6}, 0.4), positions = Array::from(Longs{0, 1, 7}, {3});
  const auto turned = [&](nn::RopePairs pairs) {
    return jit([=](Tensor t, Tensor at) { return nn::rope(t, at, {.base = 100, .pairs = pairs}); })(
        x, positions);
  };
  expect_near(turned(nn::RopePairs::Halves), pytorch::kHalvesRope, 1e-14);
  expect_near(turned(nn::RopePairs::Neighbours), pytorch::kNeighboursRope, 1e-14);
}

// What rope is for: products depend on the distance alone. Each row of a batch has positions of its
// own.
TEST_F(Attention, ProductsOfTurnedVectorsDependOnTheDistance) {
  const auto product = jit(
      [](Tensor q, Tensor k, Tensor at) { return sum(nn::rope(q, at) * nn::rope(k, at + 5), -1); });
  const Array q = wave({1, 3, 1, 8}, 0.1), k = wave({1, 3, 1, 8}, 0.7);
  const Doubles first = to_doubles(product(q, k, Array::from(Longs{0, 0, 0}, {1, 3})));
  expect_near(product(q, k, Array::from(Longs{11, 3, 500}, {1, 3})), first, 1e-12);
}

TEST_F(Attention, AQueryThatSeesNoKeyGetsNaN) {
  const auto attend = jit([](Tensor q, Tensor k) {
    return nn::attention(q, k, k, {.mask = arange(i32, {3, 1}, 0) != 1});
  });
  const Doubles y = to_doubles(attend(wave({3, 1, 2}, 0), wave({4, 1, 2}, 1)));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 2 == 1) << i;
}

Parameters layer_of_pytorch() {
  const Array weight = wave({24, 8}, 0.5), bias = wave({24}, 0.6);
  const auto part = jit([](Tensor x, Tensor row) {
    return transpose(dynamic_slice(x, {reshape(row, {}), zeros_like(reshape(row, {}))}, {8, 8}));
  });
  const auto section =
      jit([](Tensor x, Tensor row) { return dynamic_slice(x, {reshape(row, {})}, {8}); });
  Parameters out;
  const char* names[] = {"query", "key", "value"};
  for (int i = 0; i < 3; ++i) {
    const Array row = full({1}, 8 * i, i32);
    out.add(std::string(names[i]) + ".weight", part(weight, row));
    out.add(std::string(names[i]) + ".bias", section(bias, row));
  }
  out.add("output.weight", jit([](Tensor x) { return transpose(x); })(wave({8, 8}, 0.7)));
  out.add("output.bias", wave({8}, 0.8));
  return out;
}

TEST_F(Attention, MultiHeadIsPyTorchs) {
  const auto f = jit([](Weights w, Tensor x) {
    return nn::multi_head_attention(w, x, {.heads = 4, .attention = {.causal = true}});
  });
  expect_near(f(layer_of_pytorch(), wave({2, 3, 8}, 0.9)), pytorch::kMultiHead, 1e-14);
}

TEST_F(Attention, ParametersHaveTheSizesOfTheHeads) {
  const Parameters layer = nn::multi_head_attention_parameters(12, 6, random::Key(1), 2);
  EXPECT_EQ(layer.at("query.weight").shape(), (Longs{12, 12}));
  EXPECT_EQ(layer.at("key.weight").shape(), (Longs{12, 4}));
  EXPECT_EQ(layer.at("value.bias").shape(), (Longs{4}));
  EXPECT_EQ(layer.at("output.weight").shape(), (Longs{12, 12}));
  const auto f = jit([](Weights w, Tensor x) {
    return nn::multi_head_attention(w, x, {.heads = 6, .groups = 2});
  });
  EXPECT_EQ(f(layer, ones({7, 12})).shape(), (Longs{7, 12}));
  EXPECT_CONTAINS(error_of([] { nn::multi_head_attention_parameters(12, 6, random::Key(1), 4); }),
                  "6 heads in 4 groups");
}

// A text in pieces, with all that came before in the cache, is the text as a whole.
TEST_F(Attention, PiecesWithACacheAreTheWhole) {
  constexpr int64_t kLength = 9, kCapacity = 16;
  const nn::MultiHeadOptions options{
      .heads = 4, .groups = 2, .rope = nn::RopeOptions{}, .attention = {.causal = true}};
  Parameters layer = nn::multi_head_attention_parameters(16, 4, random::Key(3), 2);
  layer = layer.map([](const Array& x) { return jit([](Tensor t) { return cast(t, f64); })(x); });
  const Array x = wave({2, kLength, 16}, 0.2);
  const Doubles expected = to_doubles(
      jit([&](Weights w, Tensor t) { return nn::multi_head_attention(w, t, options); })(layer, x));

  for (const bool all_rows : {false, true}) {
    const auto step = jit(
        [&](Weights w, nn::KeyValueCache<Tensor> cache, Tensor piece, Tensor at) {
          nn::MultiHeadOptions here = options;
          here.attention.position = at;
          const nn::CachedAttention out = nn::multi_head_attention(
              w, piece, cache, here, all_rows ? std::optional<Dim>() : Dim(kLength));
          return std::tuple{out.cache, out.value};
        },
        {as_given, as_given, spec(f64, {2, "n:1..16", 16}), as_given});
    auto cache = nn::key_value_cache({2, kCapacity, 2, 4}, f64);
    const auto memory = [](const Array& a) { return a.shape(); };
    Doubles got(expected.size());
    int64_t at = 0;
    for (const int64_t n : {4, 1, 3, 1}) {
      const Array piece = jit([&](Tensor t) { return slice(t, 1, at, at + n); })(x);
      const Array before = cache.keys;
      Array value;
      std::tie(cache, value) = step(layer, cache, piece, full({1}, static_cast<double>(at), i32));
      EXPECT_FALSE(before.valid() && error_of([&] { before.wait(); }).empty())
          << "the cache is donated";
      EXPECT_EQ(memory(cache.keys), (Longs{2, kCapacity, 2, 4}));
      const Doubles rows = to_doubles(value);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t i = 0; i < n * 16; ++i)
          got[static_cast<size_t>(b * kLength * 16 + at * 16 + i)] =
              rows[static_cast<size_t>(b * n * 16 + i)];
      at += n;
    }
    ASSERT_EQ(at, kLength);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-13) << i;
  }
}

// Scores of 16-bit values are f32, so that long sums of large products do not overflow.
TEST_F(Attention, SixteenBitsHaveScoresInF32) {
  const auto half = [](const Array& x) {
    return jit([](Tensor t) { return cast(t * 300, f16); })(x);
  };
  const auto f = jit([](Tensor q, Tensor k, Tensor v) { return nn::attention(q, k, v); });
  const Array y =
      f(half(wave_f32({4, 1, 64}, 0)), half(wave_f32({5, 1, 64}, 0)), half(wave_f32({5, 1, 8}, 0)));
  EXPECT_EQ(y.dtype(), f16);
  for (const double value : to_doubles(y)) EXPECT_TRUE(std::isfinite(value));
}

TEST_F(Attention, WhatDoesNotFitIsRefused) {
  const auto attend = [](Longs q, Longs k, Longs v, nn::AttentionOptions options = {}) {
    return error_of([&] {
      jit([&](Tensor a, Tensor b, Tensor c) { return nn::attention(a, b, c, options); })(
          ones(q), ones(k), ones(v));
    });
  };
  EXPECT_EQ(attend({3, 4, 2}, {5, 2, 2}, {5, 2, 7}), "");
  EXPECT_CONTAINS(attend({3, 4, 2}, {5, 3, 2}, {5, 3, 2}), "groups divide the heads");
  EXPECT_CONTAINS(attend({3, 4, 2}, {5, 2, 3}, {5, 2, 2}), "attention: queries f32[3, 4, 2]");
  EXPECT_CONTAINS(attend({3, 4, 2}, {5, 2, 2}, {6, 2, 2}), "attention: queries");
  EXPECT_CONTAINS(attend({2, 3, 4, 2}, {5, 2, 2}, {5, 2, 2}), "attention: queries");
  const auto with = [](auto options_of) {
    return error_of([&] {
      jit([&](Tensor q, Tensor k) { return nn::attention(q, k, k, options_of(q)); })(
          ones({3, 4, 2}), ones({5, 2, 2}));
    });
  };
  using Options = nn::AttentionOptions;
  EXPECT_CONTAINS(with([](Tensor) { return Options{.mask = arange(i32, Dim(5))}; }), "is not bool");
  EXPECT_CONTAINS(with([](Tensor) { return Options{.bias = arange(i32, Dim(5))}; }),
                  "is not floating");
  EXPECT_CONTAINS(with([](Tensor) {
                    return Options{.bias = full(f32, {3, 3, 5}, 0)};
                  }),
                  "the bias f32[3, 3, 5] does not fit");
  EXPECT_CONTAINS(
      with([](Tensor) { return Options{.causal = true, .position = arange(i32, Dim(2))}; }),
      "i32[2] is no position");
  const auto turn = [](Longs x, Longs positions, DType dtype) {
    return error_of([&] {
      jit([](Tensor t, Tensor at) { return nn::rope(t, at); })(ones(x), ones(positions, dtype));
    });
  };
  EXPECT_EQ(turn({3, 2, 4}, {3}, i64), "");
  EXPECT_CONTAINS(turn({3, 2, 5}, {3}, i64), "with an even width");
  EXPECT_CONTAINS(turn({3, 2, 4}, {3}, f32), "positions are integers");
}

}  // namespace
}  // namespace braze
