// Layers, losses, random numbers and optimizers against values made by hand.
#include "tests/frontend/pytorch_figures.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

class Nn : public OnDevice {};
class Optim : public OnDevice {};
class Random : public OnDevice {};
class Layers : public OnDevice {};

Array row(const Doubles& values) {
  return Array::from(values, {1, static_cast<int64_t>(values.size())});
}

TEST_F(Nn, Softmax) {
  const double a = std::exp(1), b = std::exp(2), s = 1 + a + b;
  expect_near(jit([](Tensor x) { return nn::softmax(x); })(row({0, 1, 2})), {1 / s, a / s, b / s},
              1e-15);
  expect_near(jit([](Tensor x) { return nn::softmax(x); })(row({1e4, 1e4, -1e4})), {0.5, 0.5, 0},
              0);
  expect_near(jit([](Tensor x) { return nn::log_softmax(x); })(row({0, 1, 2})),
              {-std::log(s), 1 - std::log(s), 2 - std::log(s)}, 1e-15);
  expect_near(jit([](Tensor x) { return nn::log_softmax(x); })(row({0, 1e4})), {-1e4, 0}, 0);
}

TEST_F(Nn, CrossEntropy) {
  const auto f = jit([](Tensor x, Tensor y) { return nn::cross_entropy(x, y); });
  const Array logits = Array::from(Doubles{0, 1, 2, 5, 5, 5}, {2, 3});
  const double first = std::log(1 + std::exp(1) + std::exp(2)) - 1, second = std::log(3);
  for (const DType dtype : {i32, i64, u32}) {
    const Array labels =
        jit([dtype](Tensor t) { return cast(t, dtype); })(Array::from(Longs{1, 2}, {2}));
    expect_near(f(logits, labels), {(first + second) / 2}, 1e-15);
  }
}

TEST_F(Nn, CrossEntropyAndItsGradientArePyTorchs) {
  struct Case {
    Longs labels;
    int64_t ignore_index;
    const Doubles &loss, &gradient;
  };
  const Case cases[] = {
      {{1, 2, 0, 0}, -100, pytorch::kAllLoss, pytorch::kAllGradient},
      {{1, -100, 2, 0}, -100, pytorch::kSomeLoss, pytorch::kSomeGradient},
      {{-100, -100, -100, -100}, -100, pytorch::kIgnoredLoss, pytorch::kIgnoredGradient},
      {{1, 2, 0, 2}, 2, pytorch::kOtherLoss, pytorch::kOtherGradient},
  };
  const Array logits = Array::from(Doubles{0, 1, 2, 5, 5, 5, 1, 1, 1, 9, 2, 0}, {4, 3});
  for (const Case& c : cases) {
    const auto loss = [&](Tensor x, Tensor y) { return nn::cross_entropy(x, y, c.ignore_index); };
    const auto [value, gradient] = jit(value_and_grad(loss))(logits, Array::from(c.labels, {4}));
    if (std::isnan(c.loss[0]))
      EXPECT_TRUE(std::isnan(value.item()));
    else
      expect_near(value, c.loss, 1e-14);
    expect_near(gradient, c.gradient, 1e-14);
  }
}

TEST_F(Nn, CrossEntropyOfRowsIsNotTheirMean) {
  const auto f = jit([](Tensor x, Tensor y) { return nn::cross_entropy_rows(x, y, 2); });
  const Array logits = Array::from(Doubles{0, 1, 2, 5, 5, 5, 1, 2, 3, 0, 0, 0}, {4, 3});
  const std::vector<double> got =
      f(logits, Array::from(Longs{1, 0, 2, 7}, {4})).to_vector<double>();
  EXPECT_NEAR(got[0], std::log(1 + std::exp(1) + std::exp(2)) - 1, 1e-14);
  EXPECT_NEAR(got[1], std::log(3), 1e-14);
  EXPECT_EQ(got[2], 0);
  EXPECT_TRUE(std::isnan(got[3]));
}

TEST_F(Nn, CrossEntropyOfALabelThatIsNoClassIsNaN) {
  const auto f = jit([](Tensor x, Tensor y) { return nn::cross_entropy(x, y); });
  const Array logits = Array::from(Doubles{0, 1, 2, 5, 5, 5}, {2, 3});
  for (const int64_t label : {-1, 3})
    EXPECT_TRUE(std::isnan(f(logits, Array::from(Longs{1, label}, {2})).item())) << label;
}

TEST_F(Nn, Accuracy) {
  const auto f = jit([](Tensor x, Tensor y) { return nn::accuracy(x, y); });
  expect_near(f(Array::from(Doubles{0, 1, 5, 2}, {2, 2}), Array::from(Longs{1, 1}, {2})), {0.5}, 0);
}

TEST_F(Nn, Norms) {
  const Array one = Array::from(Doubles{1, 1, 2}, {3}), zero = Array::from(Doubles{0, 0, 1}, {3});
  const auto layer = jit([](Tensor x, Tensor s, Tensor b) { return nn::layer_norm(x, s, b, 0); });
  const double r = std::sqrt(1.5);
  expect_near(layer(row({1, 2, 3}), one, zero), {-r, 0, 2 * r + 1}, 1e-14);
  const auto rms = jit([](Tensor x, Tensor s) { return nn::rms_norm(x, s, 0); });
  const double q = std::sqrt(14.0 / 3);
  expect_near(rms(row({1, 2, 3}), one), {1 / q, 2 / q, 6 / q}, 1e-14);
  // A large offset cancels before it is squared.
  expect_near(layer(row({1e8 + 1, 1e8 + 2, 1e8 + 3}), one, zero), {-r, 0, 2 * r + 1}, 1e-7);
}

TEST_F(Nn, LinearAndMlp) {
  const Parameters layer = {{"weight", Array::from(Doubles{1, 2, 3, 4}, {2, 2})},
                            {"bias", Array::from(Doubles{10, 20}, {2})}};
  expect_near(jit([](Weights w, Tensor x) { return nn::linear(w, x); })(layer, row({1, -1})),
              {8, 18}, 0);
  const Parameters model = nn::mlp_parameters({3, 5, 2}, random::Key(1));
  EXPECT_EQ(model.names(), (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"}));
  const auto f = jit([](Weights w, Tensor x) {
    const Tensor hidden = relu(dot(x, w.at("0.weight")) + w.at("0.bias"));
    return nn::mlp(w, x) - (dot(hidden, w.at("1.weight")) + w.at("1.bias"));
  });
  expect_near(f(model, random::normal({4, 3}, random::Key(2))), Doubles(8, 0), 0);
}

TEST_F(Nn, EmbeddingAndDropout) {
  const Array table = Array::from(Doubles{1, 2, 3, 4, 5, 6}, {3, 2});
  expect_near(jit([](Tensor t, Tensor i) { return nn::embedding(t, i); })(
                  table, Array::from(Longs{2, 0}, {2})),
              {5, 6, 1, 2}, 0);
  const auto drop = jit([](Tensor x, Tensor key) { return nn::dropout(x, 0.25, key); });
  const Doubles dropped = to_doubles(drop(ones({4000}), random::Key(3).array()));
  int zeros = 0;
  for (const double value : dropped) {
    zeros += value == 0;
    EXPECT_TRUE(value == 0 || std::abs(value - 4.0 / 3) < 1e-6);
  }
  EXPECT_NEAR(zeros, 1000, 100);
}

// Rows that were read several times get the sum of what comes back, others nothing; the step of an
// optimizer takes it from there.
TEST_F(Nn, EmbeddingGradient) {
  const auto loss = [](Tensor table, Tensor ids, Tensor g) {
    return sum(nn::embedding(table, ids) * g);
  };
  const Array table = Array::from(Doubles{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  const Array ids = Array::from(Longs{2, 0, 2}, {3});
  const Array g = Array::from(Doubles{10, 20, 30, 40, 50, 60}, {3, 2});
  expect_near(jit(grad(loss))(table, ids, g), {30, 40, 0, 0, 60, 80, 0, 0}, 0);
  const auto step =
      jit([=](Tensor t, Tensor i, Tensor u) { return t - grad(loss)(t, i, u) * 0.5; }, donate{0});
  expect_near(step(table, ids, g), {-14, -18, 3, 4, -25, -34, 7, 8}, 0);
}

TEST_F(Nn, InitializersHaveTheirVariance) {
  const auto variance = [](const Initializer& initializer) {
    double total = 0;
    const Doubles values = to_doubles(initializer({100, 300}, f32, random::Key(5)));
    for (const double value : values) total += value * value;
    return total / static_cast<double>(values.size());
  };
  EXPECT_NEAR(variance(init::xavier_normal()), 2.0 / 400, 2e-4);
  EXPECT_NEAR(variance(init::xavier_uniform()), 2.0 / 400, 2e-4);
  EXPECT_NEAR(variance(init::he_normal()), 2.0 / 100, 8e-4);
  EXPECT_NEAR(variance(init::he_uniform()), 2.0 / 100, 8e-4);
  EXPECT_NEAR(variance(init::normal(0.5)), 0.25, 0.01);
  EXPECT_NEAR(variance(init::uniform(-1, 1)), 1.0 / 3, 0.01);
  EXPECT_EQ(variance(init::zeros()), 0);
  EXPECT_EQ(variance(init::ones()), 1);
}

// ---- Random -----------------------------------------------------------------------------------

// Devices of every kind, and threads in every number: what differs between them is not the numbers.
// Sums of equal terms drift most, because each step of a long sum is rounded in the same direction.
TEST_F(Layers, LongSumsAreSumsOfSums) {
  const auto sums = jit([](Tensor x) { return sum(x); });
  const int64_t n = int64_t{1} << 22;
  const double got = sums(full({n}, 0.1F, f32)).to_vector<float>()[0];
  EXPECT_NEAR(got / (static_cast<double>(0.1F) * static_cast<double>(n)), 1, 1e-5);
}

// Columns that are too few for many vectors have several sums each.
TEST_F(Layers, SumsOfFewColumnsAreSumsOfSums) {
  const auto sums = jit([](Tensor x) { return sum(x, 0); });
  for (const float got : sums(full({512, 16}, 0.1F, f32)).to_vector<float>())
    EXPECT_NEAR(got / (static_cast<double>(0.1F) * 512), 1, 2e-6);
}

// A parameter of another shape would broadcast, and train.
TEST_F(Layers, ParametersHaveTheLastAxisOfTheirInput) {
  const auto shapes = [](auto f, std::vector<int64_t> x, std::vector<int64_t> parameter) {
    return error_of([&] { jit(f)(ones(x, f32), ones(parameter, f32)); });
  };
  const auto rms = [](Tensor x, Tensor scale) { return nn::rms_norm(x, scale); };
  const auto layer = [](Tensor x, Tensor p) { return nn::layer_norm(x, p, p); };
  const auto linear = [](Tensor x, Tensor bias) {
    const Tensor weight = broadcast_to(sum(x) * 0, {3, 4});
    return nn::linear(Weights(std::map<std::string, Tensor>{{"weight", weight}, {"bias", bias}}),
                      x);
  };
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{1}, {2, 4}, {5}, {}}) {
    EXPECT_CONTAINS(shapes(rms, {2, 4}, wrong), "rms_norm: scale");
    EXPECT_CONTAINS(shapes(layer, {2, 4}, wrong), "layer_norm: scale");
    EXPECT_CONTAINS(shapes(linear, {2, 3}, wrong), "linear: bias");
  }
  EXPECT_EQ(shapes(rms, {2, 4}, {4}), "");
  EXPECT_EQ(shapes(layer, {2, 4}, {4}), "");
  EXPECT_EQ(shapes(linear, {2, 3}, {4}), "");
}

TEST_F(Random, BitsAreTheSameOnEveryDevice) {
  const auto words = [](const Array& array) {
    std::vector<std::byte> bytes(array.size_bytes());
    array.copy_to_host(bytes);
    return bytes;
  };
  const random::Key key(0x123456789abcdef);
  for (const DType dtype : {f32, f64, f16, bf16}) {
    SCOPED_TRACE(name(dtype));
    const auto draw = [&](const Device& device) {
      return std::pair(words(random::normal({37, 43}, key, 0.5, 3, dtype, device)),
                       words(random::uniform({37, 43}, key, -1, 2, dtype, device)));
    };
    const auto in_graph = jit([=](Tensor k) {
      return std::pair(random::normal(k, {37, 43}, dtype), random::uniform(k, {37, 43}, dtype));
    });
    const auto graph = [&](const Device& device) {
      const auto [normal, uniform] = in_graph(key.array(device));
      return std::pair(words(normal), words(uniform));
    };
    const auto expected = draw("interpreter");
    const auto expected_in_graph = graph("interpreter");
    for (const char* device : {"cpu", "sim:cpu", "sim:sm_90"}) {
      EXPECT_EQ(draw(device), expected) << device;
      EXPECT_EQ(graph(device), expected_in_graph) << device;
    }
    EXPECT_EQ(words(random::normal({37, 43}, key, 0, 1, dtype, "interpreter")),
              expected_in_graph.first);
    EXPECT_EQ(words(random::uniform({37, 43}, key, 0, 1, dtype, "interpreter")),
              expected_in_graph.second);
  }
}

TEST_F(Random, ShapesOfAnyRankAndSize) {
  const random::Key key(4);
  const Doubles line = to_doubles(random::normal({24}, key));
  EXPECT_EQ(to_doubles(random::normal({2, 3, 4}, key)), line);
  EXPECT_EQ(random::normal({2, 3, 4}, key).shape(), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(random::normal({}, key).numel(), 1);
  EXPECT_EQ(random::normal({0}, key).numel(), 0);
  EXPECT_EQ(random::uniform({3, 0, 2}, key).numel(), 0);
  EXPECT_CONTAINS(error_of([&] { random::normal({2}, key, 0, 1, i32); }), "not a floating dtype");
  EXPECT_CONTAINS(error_of([&] { random::normal({-1}, key); }),
                  "the shape [-1] has a negative extent");
}

TEST_F(Random, KnownWords) {
  // Philox4x32-10, counter and key zero: the first test vector of the Random123 distribution.
  const auto f = jit([](Tensor key) { return random::bits(key, {4}); });
  EXPECT_EQ(f(random::Key(0).array()).to_vector<uint32_t>(),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST_F(Random, Moments) {
  double sum = 0, squares = 0, least = 1, greatest = 0;
  for (const double value : to_doubles(random::normal({20000}, random::Key(0)))) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
  for (const double value : to_doubles(random::uniform({20000}, random::Key(0)))) {
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  EXPECT_TRUE(least >= 0 && least < 0.001 && greatest < 1 && greatest > 0.999);
}

TEST_F(Random, UniformStaysBelowItsLimit) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    for (const double value : to_doubles(random::uniform({20000}, random::Key(0), 1, 2, dtype)))
      ASSERT_TRUE(value >= 1 && value < 2) << name(dtype) << " " << value;
    for (const double value : to_doubles(random::uniform({20000}, random::Key(0), -1.5, -1, dtype)))
      ASSERT_TRUE(value >= -1.5 && value < -1) << name(dtype) << " " << value;
  }
  // No number is between these, and the nearest to half of the way is the limit.
  const double next = std::nextafter(1, 2);
  expect_near(random::uniform({8}, random::Key(0), 1, next, f64), Doubles(8, 1), 0);
  expect_near(random::uniform({3}, random::Key(0), 0.5, 0.5), Doubles(3, 0.5), 0);
  // Every bf16 from 1 to 2 is as likely: 128 of them.
  int ends = 0;
  for (const double value : to_doubles(random::uniform({51200}, random::Key(0), 1, 2, bf16)))
    ends += value == 1 || value == 2 - 0x1p-7;
  EXPECT_NEAR(ends, 800, 120);
}

TEST_F(Random, UniformIsAsDenseAtALowEndBelowZero) {
  // 256 shares of the way from -2 to -1, two for each of the 128 numbers.
  int at_the_end = 0;
  for (const double value : to_doubles(random::uniform({20000}, random::Key(0), -2, -1, bf16)))
    at_the_end += value == -2;
  EXPECT_NEAR(at_the_end, 20000.0 / 128, 35);
}

TEST_F(Random, ParametersAreFiniteNumbersOfTheDtype) {
  const random::Key key(1);
  EXPECT_CONTAINS(error_of([&] { random::uniform({4}, key, 0, 70000, f16); }),
                  "high is 70000, which is not a finite number of f16");
  EXPECT_CONTAINS(error_of([&] { random::uniform({4}, key, 0, 1e39); }),
                  "not a finite number of f32");
  EXPECT_CONTAINS(error_of([&] { random::uniform({4}, key, NAN, 1); }), "low is nan");
  EXPECT_CONTAINS(error_of([&] { random::uniform({4}, key, 1, 0); }), "low is 1, above high");
  EXPECT_CONTAINS(error_of([&] { random::uniform({4}, key, -1e308, 1e308, f64); }),
                  "high - low is inf");
  EXPECT_CONTAINS(error_of([&] { random::normal({4}, key, 0, 1e39); }), "deviation is 1e+39");
  EXPECT_CONTAINS(error_of([&] { random::normal({4}, key, -INFINITY, 1); }), "mean is -inf");
  EXPECT_EQ(to_doubles(random::uniform({2}, key, 3, 3)), Doubles(2, 3));
}

TEST_F(Random, KeysDiffer) {
  const random::Key key(7);
  const auto first = [](random::Key k) { return to_doubles(random::uniform({4}, k)); };
  const std::vector<random::Key> keys = key.split(3);
  EXPECT_NE(first(keys[0]), first(keys[1]));
  EXPECT_NE(first(key), first(keys[0]));
  EXPECT_EQ(first(key.fold_in(2)), first(keys[2]));
  EXPECT_NE(first(key.fold_in("layer1.weight")), first(key.fold_in("layer2.weight")));
  EXPECT_NE(first(key.fold_in("0")), first(key.fold_in(0)));
}

TEST_F(Random, KeysFoldedInsideOfGraphsAreThoseOfTheHost) {
  const random::Key key(0xfedcba9876543210);
  const auto words = [](const Array& a) { return a.to_vector<uint32_t>(); };
  const auto folded = jit([](Tensor k, Tensor i) { return random::fold_in(k, i); });
  for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{77}, int64_t{1} << 40})
    EXPECT_EQ(words(folded(key.array(), Array::from(Longs{i}, {}))),
              words(key.fold_in(static_cast<uint64_t>(i)).array()));
  EXPECT_EQ(words(folded(key.array(), full({}, 5, u32))), words(key.fold_in(5).array()));
  EXPECT_EQ(words(jit([](Tensor k) { return random::fold_in(k, 3); })(key.array())),
            words(key.fold_in(3).array()));
}

TEST_F(Nn, EveryParameterIsDrawnUnderItsName) {
  const random::Key key(9);
  const auto weight = [&](random::Key k) {
    return to_doubles(nn::linear_parameters(4, 4, k).at("weight"));
  };
  EXPECT_NE(weight(key.fold_in("a")), weight(key.fold_in("b")));
  const Parameters model = nn::mlp_parameters({4, 4, 4}, key);
  EXPECT_NE(to_doubles(model.at("0.weight")), to_doubles(model.at("1.weight")));
  EXPECT_EQ(to_doubles(model.at("1.weight")),
            to_doubles(init::he_normal()({4, 4}, f32, key.fold_in("1").fold_in("weight"))));
}

// ---- Optimizers -------------------------------------------------------------------------------

TEST_F(Optim, Sgd) {
  const auto f = jit([](Weights w, Weights g) {
    return optim::sgd(w, g, {.learning_rate = 0.1, .weight_decay = 0.5});
  });
  const Parameters w = {{"a", Array::from(Doubles{2}, {1})}};
  const Parameters g = {{"a", Array::from(Doubles{3}, {1})}};
  EXPECT_DOUBLE_EQ(f(w, g).at("a").item(), 2 - 0.1 * (3 + 0.5 * 2));
}

TEST_F(Optim, Momentum) {
  for (const bool nesterov : {false, true}) {
    const auto f = jit([=](Weights w, Weights g, Weights s) {
      return optim::momentum(w, g, s,
                             {.learning_rate = 0.1, .momentum = 0.5, .nesterov = nesterov});
    });
    Parameters w = {{"a", Array::from(Doubles{1}, {1})}};
    const Parameters g = {{"a", Array::from(Doubles{2}, {1})}};
    Parameters state = optim::momentum_state(w);
    double expected = 1, velocity = 0;
    for (int i = 0; i < 3; ++i) {
      std::tie(w, state) = f(w, g, state);
      velocity = 0.5 * velocity + 2;
      expected -= 0.1 * (nesterov ? 2 + 0.5 * velocity : velocity);
      EXPECT_NEAR(w.at("a").item(), expected, 1e-15);
    }
  }
}

TEST_F(Optim, AdamW) {
  const optim::AdamWOptions options{.learning_rate = 0.01, .weight_decay = 0.1};
  const auto f =
      jit([=](Weights w, Weights g, Weights s) { return optim::adamw(w, g, s, options); });
  Parameters w = {{"a", Array::from(Doubles{1, -2}, {2})}};
  Parameters state = optim::adamw_state(w);
  double expected[2] = {1, -2}, m[2] = {0, 0}, v[2] = {0, 0};
  for (int step = 1; step <= 5; ++step) {
    const Doubles gradient = {0.5 * step, -3.0};
    std::tie(w, state) = f(w, Parameters{{"a", Array::from(gradient, {2})}}, state);
    for (int i = 0; i < 2; ++i) {
      const double g = gradient[static_cast<size_t>(i)];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, step));
      const double v_hat = v[i] / (1 - std::pow(0.999, step));
      expected[i] -= 0.01 * 0.1 * expected[i];
      expected[i] -= 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
    expect_near(w.at("a"), {expected[0], expected[1]}, 1e-13);
  }
  EXPECT_EQ(state.at("step").item(), 5);
}

// A gradient that becomes small: what does not forget the large ones makes steps that are too
// small. In bf16, beta2 and 1 round to one number.
TEST_F(Optim, MomentsOfHalfParametersAreF32) {
  const auto f = jit([](Weights w, Weights g, Weights s) {
    return optim::adamw(w, g, s, {.learning_rate = 0.01, .weight_decay = 0.1});
  });
  const auto run = [&](DType dtype, const Doubles& parameters, const Doubles& first,
                       const Doubles& second) {
    SCOPED_TRACE(name(dtype));
    const auto half = jit([=](Tensor x) { return cast(x, dtype); });
    Parameters w = {{"a", half(Array::from(Doubles{1, -0.5, 0.25, 2}, {4}))}};
    Parameters state = optim::adamw_state(w);
    for (int step = 1; step <= 60; ++step) {
      Doubles g;
      for (int i = 0; i < 4; ++i)
        g.push_back((step <= 10 ? 1 : 0x1p-7) * (1 + i % 3) * (i % 2 ? -1 : 1));
      std::tie(w, state) = f(w, Parameters{{"a", half(Array::from(g, {4}))}}, state);
    }
    EXPECT_EQ(w.at("a").dtype(), dtype);
    expect_near(state.at("m.a"), first, 1e-6);
    expect_near(state.at("v.a"), second, 1e-6);
    // One unit in the last place of bf16, for what was rounded the other way.
    expect_near(w.at("a"), parameters, dtype == bf16 ? 0x1p-8 : 0x1p-11);
  };
  run(bf16, pytorch::kGivenBf16Parameters, pytorch::kGivenBf16First, pytorch::kGivenBf16Second);
  run(f16, pytorch::kGivenF16Parameters, pytorch::kGivenF16First, pytorch::kGivenF16Second);
}

TEST_F(Optim, StateOfAnotherDTypeIsRefused) {
  const Parameters w = {{"a", full({2}, 1, bf16)}};
  Parameters state = optim::adamw_state(w);
  state.set("v.a", full({2}, 0, bf16));
  const auto f = jit([](Weights p, Weights s) { return optim::adamw(p, p, s); });
  EXPECT_CONTAINS(error_of([&] { f(w, state); }), "the optimizer's state v.a is bf16[2], not f32");
}

/// The training run of pytorch_figures.py: a small network, 16 points, three classes.
class Training {
 public:
  explicit Training(DType dtype) : dtype_(dtype) {}

  Parameters parameters() const {
    return {{"w1", half(grid(8, 16, 3, 7, 13, 16))}, {"w2", half(grid(16, 3, 5, 3, 7, 8))}};
  }
  Array points() const { return half(grid(16, 8, 7, 5, 11, 5)); }
  Array labels() const {
    Longs out;
    for (int64_t i = 0; i < 16; ++i) out.push_back((i * i + 1) % 3);
    return Array::from(out, {16});
  }
  static Tensor loss(const Weights& w, const Tensor& x, const Tensor& y) {
    const Tensor logits = dot(relu(dot(x, w.at("w1"))), w.at("w2"));
    return nn::cross_entropy(cast(logits, f32), y);
  }

 private:
  static Array grid(int64_t rows, int64_t columns, int64_t a, int64_t b, int64_t modulus,
                    double scale) {
    std::vector<float> values;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        values.push_back(static_cast<float>(
            static_cast<double>((i * a + j * b) % modulus - modulus / 2) / scale));
    return Array::from(values, {rows, columns});
  }
  Array half(const Array& x) const {
    return jit([to = dtype_](Tensor t) { return cast(t, to); })(x);
  }

  DType dtype_;
};

template <class Step>
void train_in_bf16(const Parameters& first_state, const Doubles& expected, Step optimizer) {
  const Training training(bf16);
  const auto step = jit(
      [=](Weights w, Weights state, Tensor x, Tensor y) {
        const auto [loss, gradient] = value_and_grad(Training::loss)(w, x, y);
        const auto [updated, next] = optimizer(w, gradient, state);
        return std::tuple{updated, next, loss};
      },
      donate{0, 1});
  Parameters w = training.parameters(), state = first_state;
  for (const double loss : expected) {
    Array got;
    std::tie(w, state, got) = step(w, state, training.points(), training.labels());
    EXPECT_NEAR(got.item(), loss, 0.01);
  }
  EXPECT_EQ(w.at("w1").dtype(), bf16);
}

TEST_F(Optim, TrainingInBf16GoesAsPyTorchs) {
  const Parameters w = Training(bf16).parameters();
  train_in_bf16(optim::adamw_state(w, {.master_weights = true}), pytorch::kBf16AdamWLosses,
                [](const Weights& p, const Weights& g, const Weights& s) {
                  return optim::adamw(p, g, s, {.learning_rate = 0.01, .weight_decay = 0.1});
                });
  train_in_bf16(optim::momentum_state(w, {.master_weights = true}), pytorch::kBf16MomentumLosses,
                [](const Weights& p, const Weights& g, const Weights& s) {
                  return optim::momentum(
                      p, g, s, {.learning_rate = 0.05, .nesterov = true, .weight_decay = 0.01});
                });
}

// The same steps are left out, for the same scales.
TEST_F(Optim, TrainingInF16WithAScaledLossGoesAsPyTorchs) {
  const Training training(f16);
  const optim::LossScaleOptions options{.initial = 0x1p24, .interval = 6};
  const auto step = jit([=](Weights w, Weights state, Weights scale, Tensor x, Tensor y) {
    const auto scaled = [](Weights p, Weights s, Tensor a, Tensor b) {
      return optim::scale_loss(Training::loss(p, a, b), s);
    };
    const auto [loss, gradient] = value_and_grad(scaled)(w, scale, x, y);
    const optim::Unscaled slopes = optim::unscale(gradient, scale, options);
    const auto [updated, next] =
        optim::adamw(w, slopes.gradients, state, {.learning_rate = 0.01, .weight_decay = 0.1});
    return std::tuple{optim::where(slopes.finite, updated, w),
                      optim::where(slopes.finite, next, state), slopes.scale,
                      loss / scale.at("scale")};
  });
  Parameters w = training.parameters(), scale = optim::loss_scale_state(options);
  Parameters state = optim::adamw_state(w, {.master_weights = true});
  Doubles scales;
  for (const double loss : pytorch::kF16Losses) {
    Array got;
    std::tie(w, state, scale, got) = step(w, state, scale, training.points(), training.labels());
    EXPECT_NEAR(got.item(), loss, 0.003);
    scales.push_back(scale.at("scale").item());
  }
  EXPECT_EQ(scales, pytorch::kF16Scales);
  EXPECT_LT(state.at("step").item(), 40);
}

TEST_F(Optim, AStaticScaleStaysAndA16BitLossIsRefused) {
  const optim::LossScaleOptions options{.initial = 1024, .interval = 0};
  const auto f = jit([=](Weights g, Weights scale) {
    const optim::Unscaled out = optim::unscale(g, scale, options);
    return std::tuple{out.gradients, out.finite, out.scale};
  });
  const Parameters scale = optim::loss_scale_state(options);
  for (const double gradient : {2048.0, double(INFINITY), double(NAN)}) {
    const auto [g, finite, next] = f(Parameters{{"a", full({1}, gradient, f16)}}, scale);
    EXPECT_EQ(finite.item(), std::isfinite(gradient));
    EXPECT_EQ(next.at("scale").item(), 1024);
    EXPECT_EQ(g.at("a").dtype(), f32);
    if (std::isfinite(gradient)) {
      EXPECT_EQ(g.at("a").item(), 2);
    }
  }
  const auto half = jit([](Tensor x, Weights s) { return optim::scale_loss(x, s); });
  EXPECT_CONTAINS(error_of([&] { half(full({}, 1, f16), scale); }), "the loss is f16[]");
}

TEST_F(Optim, ALossScaleNeverGrowsToInfinity) {
  const optim::LossScaleOptions options{.initial = 0x1p126, .growth = 4, .interval = 1};
  const auto f =
      jit([=](Weights g, Weights scale) { return optim::unscale(g, scale, options).scale; });
  Parameters scale = optim::loss_scale_state(options);
  const Parameters gradients{{"a", ones({1})}};
  for (int i = 0; i < 3; ++i) {
    scale = f(gradients, scale);
    EXPECT_EQ(scale.at("scale").item(), 0x1p126);
  }
}

TEST_F(Optim, WholeStepIsOneFunction) {
  // y = 2x - 1 is found by one compiled step with donated parameters.
  auto step = jit(
      [](Weights w, Weights state, Tensor x, Tensor y) {
        const auto loss = [](Weights v, Tensor a, Tensor b) {
          return nn::mse(nn::linear(v, a), b);
        };
        const auto [value, gradient] = value_and_grad(loss)(w, x, y);
        const auto [updated, next] = optim::adamw(w, gradient, state, {.learning_rate = 0.1});
        return std::tuple{updated, next, value};
      },
      donate{0, 1});
  Parameters w = nn::linear_parameters(1, 1, random::Key(1));
  Parameters state = optim::adamw_state(w);
  const Array x = Array::from(std::vector<float>{-1, 0, 1, 2}, {4, 1});
  const Array y = Array::from(std::vector<float>{-3, -1, 1, 3}, {4, 1});
  double loss = 1e9;
  for (int i = 0; i < 150; ++i) {
    Array value;
    std::tie(w, state, value) = step(w, state, x, y);
    loss = value.item();
  }
  EXPECT_LT(loss, 1e-2);
  EXPECT_EQ(step.compile_count(), 1);
}

}  // namespace
}  // namespace braze
