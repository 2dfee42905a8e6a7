// Layers, losses, random numbers and optimizers against values made by hand.
#include "tests/frontend/support.h"

namespace braze {
namespace {

class Nn : public OnDevice {};
class Optim : public OnDevice {};
class Random : public OnDevice {};

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

TEST_F(Nn, CrossEntropyLeavesOutRowsWithoutAClass) {
  const auto loss = [](Tensor x, Tensor y) { return nn::cross_entropy(x, y); };
  const Array logits = Array::from(Doubles{0, 1, 2, 5, 5, 5, 1, 1, 1, 9, 2, 0}, {4, 3});
  const Array labels = Array::from(Longs{1, -100, 3, 0}, {4});
  const double z0 = 1 + std::exp(1) + std::exp(2), z3 = 1 + std::exp(-7) + std::exp(-9);
  const auto [value, gradient] = jit(value_and_grad(loss))(logits, labels);
  expect_near(value, {(std::log(z0) - 1 + std::log(z3)) / 4}, 1e-15);
  expect_near(gradient,
              {1 / z0 / 4, (std::exp(1) / z0 - 1) / 4, std::exp(2) / z0 / 4, 0, 0, 0, 0, 0, 0,
               (1 / z3 - 1) / 4, std::exp(-7) / z3 / 4, std::exp(-9) / z3 / 4},
              1e-15);
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
  expect_near(f(model, random::normal({4, 3})), Doubles(8, 0), 0);
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

TEST_F(Random, HostAndGraphAgree) {
  // Bit for bit where math rows are those of the host's library.
  const DeviceGuard exact("interpreter");
  for (const DType dtype : {f32, f64, f16, bf16}) {
    SCOPED_TRACE(name(dtype));
    const random::Key key(0x123456789abcdef);
    const auto uniform = jit([=](Tensor k) { return random::uniform(k, {3, 7}, dtype); });
    EXPECT_EQ(to_doubles(uniform(key.array())),
              to_doubles(random::uniform({3, 7}, 0, 1, dtype, key)));
    const auto normal = jit([=](Tensor k) { return random::normal(k, {3, 7}, dtype); });
    EXPECT_EQ(to_doubles(normal(key.array())),
              to_doubles(random::normal({3, 7}, 0, 1, dtype, key)));
  }
}

TEST_F(Random, KnownWords) {
  // Philox4x32-10, counter and key zero: the first test vector of the Random123 distribution.
  const auto f = jit([](Tensor key) { return random::bits(key, {4}); });
  EXPECT_EQ(f(random::Key().array()).to_vector<uint32_t>(),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST_F(Random, Moments) {
  double sum = 0, squares = 0, least = 1, greatest = 0;
  for (const double value : to_doubles(random::normal({20000}))) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
  for (const double value : to_doubles(random::uniform({20000}))) {
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  EXPECT_TRUE(least >= 0 && least < 0.001 && greatest < 1 && greatest > 0.999);
}

TEST_F(Random, UniformStaysBelowItsLimit) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    for (const double value : to_doubles(random::uniform({20000}, 1, 2, dtype)))
      ASSERT_TRUE(value >= 1 && value < 2) << name(dtype) << " " << value;
    for (const double value : to_doubles(random::uniform({20000}, -1.5, -1, dtype)))
      ASSERT_TRUE(value >= -1.5 && value < -1) << name(dtype) << " " << value;
  }
  // No number is between these, and the nearest to half of the way is the limit.
  const double next = std::nextafter(1, 2);
  expect_near(random::uniform({8}, 1, next, f64), Doubles(8, 1), 0);
  expect_near(random::uniform({3}, 0.5, 0.5), Doubles(3, 0.5), 0);
  // Every bf16 from 1 to 2 is as likely: 128 of them.
  int ends = 0;
  for (const double value : to_doubles(random::uniform({51200}, 1, 2, bf16)))
    ends += value == 1 || value == 2 - 0x1p-7;
  EXPECT_NEAR(ends, 800, 120);
}

TEST_F(Random, KeysDiffer) {
  const random::Key key(7);
  const auto first = [](random::Key k) { return to_doubles(random::uniform({4}, k)); };
  const std::vector<random::Key> keys = key.split(3);
  EXPECT_NE(first(keys[0]), first(keys[1]));
  EXPECT_NE(first(key), first(keys[0]));
  EXPECT_EQ(first(key.fold_in(2)), first(keys[2]));
  const auto f =
      jit([](Tensor k, Tensor i) { return random::uniform(random::fold_in(k, i), {4}); });
  EXPECT_NE(to_doubles(f(key.array(), zeros({}, u32))), to_doubles(f(key.array(), ones({}, u32))));
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
  Parameters w = nn::linear_parameters(1, 1);
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
