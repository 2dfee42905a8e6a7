// What a training loop is made of: numbers as arguments, schedules, gradients before the step, and
// layers that are computed again.
#include "ir/program/program.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

class Numbers : public OnDevice {};
class Schedules : public OnDevice {};
class BeforeTheStep : public OnDevice {};
class Checkpoint : public OnDevice {};

Array vector(const Doubles& values, DType dtype = f64) {
  const Array array = Array::from(values, {static_cast<int64_t>(values.size())});
  return jit([=](Tensor x) { return cast(x, dtype); })(array);
}

// ---- Numbers as arguments ---------------------------------------------------------------------

TEST_F(Numbers, AreWhatConstantsAre) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const auto f = jit([](Tensor x, Tensor rate) { return x - rate * x; });
    const Array x = vector({1, -3, 0.3}, dtype);
    for (const double rate : {0.1, 0.25, 1e-3}) {
      const Array got = f(x, rate);
      EXPECT_EQ(got.dtype(), dtype);
      EXPECT_EQ(to_doubles(got), to_doubles(jit([=](Tensor t) { return t - rate * t; })(x)));
    }
    EXPECT_EQ(f.compile_count(), 1);
  }
}

TEST_F(Numbers, IntegersBecomeAnyNumericDtype) {
  const auto f = jit([](Tensor x, Tensor n) { return (x + n) * (n * 2); });
  for (const DType dtype : {bf16, f32, f64, i32, i64, u32}) {
    const Array got = f(full({1}, 4, dtype), 3);
    EXPECT_EQ(got.dtype(), dtype);
    expect_near(got, {42}, 0);
  }
}

TEST_F(Numbers, WithoutATensorKeepTheirOwn) {
  const auto f = jit([](Tensor x, Tensor n) { return std::pair{x * n, n + 1}; });
  const auto [product, sum] = f(0.5, 3);
  EXPECT_EQ(product.dtype(), f64);
  EXPECT_EQ(sum.dtype(), i64);
  EXPECT_EQ(product.item(), 1.5);
  EXPECT_EQ(sum.item(), 4);
  EXPECT_EQ(f(0.25, 4).first.item(), 1);
  EXPECT_EQ(f.compile_count(), 1);
}

TEST_F(Numbers, ConditionsAreBool) {
  const auto f = jit([](Tensor x, Tensor on) { return where(on, x, -x); });
  const Array x = vector({1, 2});
  expect_near(f(x, true), {1, 2}, 0);
  expect_near(f(x, false), {-1, -2}, 0);
  EXPECT_EQ(f.compile_count(), 1);
}

TEST_F(Numbers, StandInTrees) {
  const auto f = jit([](Tensor x, Named<Tensor> options, std::vector<Tensor> more) {
    return x * options["rate"] + more[0] + more[1];
  });
  const Named<double> options = {{"rate", 0.5}};
  expect_near(f(vector({2, 4}), options, std::vector<double>{1, 2}), {4, 5}, 0);
}

TEST_F(Numbers, ReachFunctionsInside) {
  const auto scaled = jit([](Tensor x, Tensor by) { return x * by; });
  const auto f = jit([=](Tensor x, Tensor by) { return scaled(x, by) + scaled(x, 0.5); });
  expect_near(f(full({1}, 2), 3), {7}, 0);
}

TEST_F(Numbers, AreDifferentiated) {
  const auto f = jit(
      value_and_grad<0, 1>([](Tensor x, Tensor scale) { return sum(square(x) * (scale * 2)); }));
  const auto [value, gradients] = f(vector({1, 2}, f32), 0.5);
  EXPECT_EQ(value.item(), 5);
  expect_near(std::get<0>(gradients), {2, 4}, 0);
  EXPECT_EQ(std::get<1>(gradients).dtype(), f64);
  EXPECT_EQ(std::get<1>(gradients).item(), 10);
}

TEST_F(Numbers, OfOtherKindsAreErrors) {
  const auto f = jit([](Tensor x, Tensor y) { return x + y; });
  EXPECT_CONTAINS(error_of([&] { f(zeros({2}, i32), 0.5); }), "i32[2] and f64[]");
  EXPECT_CONTAINS(error_of([&] { f(zeros({2}), true); }), "f32[2] and bool[]");
  EXPECT_CONTAINS(error_of([&] { f(zeros({2}, boolean), 1); }), "bool[2] and i64[]");
  // What is cast says what it is.
  const auto cast_first = jit([](Tensor x, Tensor y) { return x + cast(y, f64); });
  EXPECT_CONTAINS(error_of([&] { cast_first(zeros({2}), 0.5); }), "f32[2] and f64[]");
}

// ---- Schedules --------------------------------------------------------------------------------

TEST_F(Schedules, AreTheirFormulas) {
  const auto cosine = optim::cosine(1, 4, 0.2);
  const double half = 0.2 + 0.8 * 0.5 * (1 + std::cos(M_PI / 4));
  EXPECT_DOUBLE_EQ(cosine(0), 1);
  EXPECT_DOUBLE_EQ(cosine(1), half);
  EXPECT_DOUBLE_EQ(cosine(2), 0.6);
  EXPECT_DOUBLE_EQ(cosine(4), 0.2);
  EXPECT_DOUBLE_EQ(cosine(40), 0.2);
  const auto decay = optim::step_decay(1, 3, 0.5);
  EXPECT_EQ(decay(2), 1);
  EXPECT_EQ(decay(3), 0.5);
  EXPECT_EQ(decay(8), 0.25);
  const auto warm = optim::warmup(4, optim::constant(2));
  EXPECT_EQ(warm(0), 0.5);
  EXPECT_EQ(warm(3), 2);
  EXPECT_EQ(warm(9), 2);
  const auto both = optim::warmup(2, optim::cosine(1, 4, 0.2));
  EXPECT_EQ(both(1), 1);
  EXPECT_EQ(both(2), 1);
  EXPECT_DOUBLE_EQ(both(3), half);
}

TEST_F(Schedules, AreTheSameInGraphs) {
  const optim::Schedule schedules[] = {
      optim::constant(3e-4), optim::cosine(1e-3, 7, 1e-5), optim::step_decay(0.1, 3, 0.5),
      optim::warmup(3, optim::cosine(1e-3, 7)), optim::warmup(2, optim::step_decay(1, 2, 0.1))};
  for (const optim::Schedule& schedule : schedules) {
    const auto f = jit([&](Tensor step) { return schedule(step); });
    for (int64_t step = 0; step < 12; ++step) expect_near(f(step), {schedule(step)}, 1e-14);
    EXPECT_EQ(f.compile_count(), 1);
  }
}

TEST_F(Schedules, OfWrongStepsAreErrors) {
  EXPECT_CONTAINS(error_of([] { optim::cosine(1, 0); }),
                  "cosine: the number of steps must be at least 1, not 0");
  EXPECT_CONTAINS(error_of([] { optim::warmup(-1, optim::constant(1)); }),
                  "warmup: the number of steps must be at least 1, not -1");
  const auto f = jit([](Tensor step) { return optim::constant(1)(step); });
  EXPECT_CONTAINS(error_of([&] { f(zeros({2})); }), "an integer scalar, not f32[2]");
}

/// Five steps of an optimizer whose options are given by `options(step, rate)`.
template <class Step>
Doubles trained(Step step) {
  const auto f = jit([=](Weights w, Tensor rate) {
    const Weights g = w.map([](const Tensor& t) { return t * t - 1; });
    return step(w, g, rate);
  });
  Parameters w = {{"a", vector({0.5, -2, 3}, f32)}};
  const auto rate = optim::cosine(0.1, 4, 0.01);
  for (int64_t i = 0; i < 5; ++i) w = f(w, rate(i));
  EXPECT_EQ(f.compile_count(), 1);
  return to_doubles(w["a"]);
}

TEST_F(Schedules, DriveOptimizersWithoutCompilingAgain) {
  const Doubles got = trained([](Weights w, Weights g, Tensor rate) {
    return optim::sgd(w, g, {.learning_rate = rate, .weight_decay = 0.1});
  });
  // The same with the rates as constants.
  Parameters w = {{"a", vector({0.5, -2, 3}, f32)}};
  const auto rate = optim::cosine(0.1, 4, 0.01);
  for (int64_t i = 0; i < 5; ++i)
    w = jit([&](Weights v) {
      const Weights g = v.map([](const Tensor& t) { return t * t - 1; });
      return optim::sgd(v, g, {.learning_rate = rate(i), .weight_decay = 0.1});
    })(w);
  EXPECT_EQ(got, to_doubles(w["a"]));
}

TEST_F(Schedules, EveryOptionMayBeATensor) {
  const Parameters w = {{"a", vector({0.5, -2, 3}, f32)}}, g = {{"a", vector({1, 0.25, -1}, f32)}};
  const auto expect_same = [&](auto with_numbers, auto with_tensors, const Parameters& state) {
    const auto a = jit(with_numbers)(w, g, state), b = jit(with_tensors)(w, g, state);
    for (const auto& [name, array] : a.first) expect_near(b.first[name], to_doubles(array), 1e-6);
    for (const auto& [name, array] : a.second) expect_near(b.second[name], to_doubles(array), 1e-6);
  };
  const auto number = [](double value) { return full(f32, {}, value); };
  expect_same(
      [](Weights p, Weights q, Weights s) {
        return optim::adamw(p, q, s, {.learning_rate = 0.1, .beta1 = 0.8, .weight_decay = 0.5});
      },
      [=](Weights p, Weights q, Weights s) {
        return optim::adamw(p, q, s,
                            {.learning_rate = number(0.1),
                             .beta1 = number(0.8),
                             .beta2 = number(0.999),
                             .epsilon = number(1e-8),
                             .weight_decay = number(0.5)});
      },
      optim::adamw_state(w));
  expect_same(
      [](Weights p, Weights q, Weights s) {
        return optim::momentum(p, q, s, {.learning_rate = 0.1, .momentum = 0.5, .nesterov = true});
      },
      [=](Weights p, Weights q, Weights s) {
        return optim::momentum(p, q, s,
                               {.learning_rate = number(0.1),
                                .momentum = number(0.5),
                                .nesterov = true,
                                .weight_decay = number(0)});
      },
      optim::momentum_state(w));
  const auto f = jit(
      [](Weights p, Weights q, Tensor rate) { return optim::sgd(p, q, {.learning_rate = rate}); });
  EXPECT_CONTAINS(error_of([&] { f(w, g, vector({1, 2})); }), "the optimizer's learning_rate is ");
}

// ---- Gradients before the step ----------------------------------------------------------------

TEST_F(BeforeTheStep, NormsAreClippedTogether) {
  const auto f = jit([](Weights g, Tensor most) {
    return std::pair{optim::clip_by_global_norm(g, most), optim::global_norm(g)};
  });
  const Parameters g = {{"a", vector({2, 4}, f32)}, {"b", vector({4}, bf16)}};
  const auto [clipped, norm] = f(g, 1.5);
  EXPECT_EQ(norm.dtype(), f32);
  EXPECT_EQ(norm.item(), 6);
  expect_near(clipped["a"], {0.5, 1}, 0);
  expect_near(clipped["b"], {1}, 0);
  EXPECT_EQ(clipped["b"].dtype(), bf16);
  expect_near(f(g, 6.0).first["a"], {2, 4}, 0);
  expect_near(f(g, 100.0).first["a"], {2, 4}, 0);
  EXPECT_EQ(f.compile_count(), 1);
}

TEST_F(BeforeTheStep, GradientsOfSeveralCallsAddUp) {
  const Parameters w = {{"a", vector({1, 2}, bf16)}};
  const auto f = jit([](Weights g, Weights sums) {
    const auto [gradients, ready, next] = optim::accumulate(g, sums, 3);
    return std::tuple{gradients, ready, next};
  });
  Parameters sums = optim::accumulation_state(w);
  EXPECT_EQ(sums["sum.a"].dtype(), f32);
  for (int call = 1; call <= 6; ++call) {
    const Parameters g = {{"a", vector({1.0 * call, -3}, bf16)}};
    const auto [gradients, ready, next] = f(g, sums);
    EXPECT_EQ(ready.item(), call % 3 == 0);
    if (call == 3) expect_near(gradients["a"], {2, -3}, 0);
    if (call == 6) expect_near(gradients["a"], {5, -3}, 0);
    sums = next;
  }
  expect_near(sums["sum.a"], {0, 0}, 0);
  EXPECT_EQ(f.compile_count(), 1);
}

// ---- Layers that are computed again -------------------------------------------------------------

Tensor block(const Weights& layer, const Tensor& x) {
  return x + dot(gelu(dot(x, layer["up"])), layer["down"]);
}

struct Model {
  std::vector<Parameters> layers;
  Array x;

  explicit Model(int64_t count, int64_t rows = 4, int64_t width = 8) {
    const random::Key key(1);
    for (int64_t i = 0; i < count; ++i) {
      const random::Key own = key.fold_in(static_cast<uint64_t>(i));
      layers.push_back({{"up", random::normal({width, 4 * width}, own.fold_in("up"), 0, 0.2)},
                        {"down", random::normal({4 * width, width}, own.fold_in("down"), 0, 0.2)}});
    }
    x = random::normal({rows, width}, key);
  }
};

/// Gradients by layers and by x of a model of blocks.
template <class Block>
auto gradients_of(Block one) {
  return jit(value_and_grad<0, 1>([=](std::vector<Weights> layers, Tensor x) {
    for (const Weights& layer : layers) x = one(layer, x);
    return mean(square(x));
  }));
}

TEST_F(Checkpoint, KeepsValuesAndGradients) {
  const Model model(3);
  const auto [value, kept] = gradients_of(block)(model.layers, model.x);
  const auto [again_value, again] = gradients_of(checkpoint(block))(model.layers, model.x);
  EXPECT_EQ(value.item(), again_value.item());
  for (size_t i = 0; i < model.layers.size(); ++i)
    for (const char* name : {"up", "down"})
      expect_near(std::get<0>(again)[i][name], to_doubles(std::get<0>(kept)[i][name]), 1e-5);
  expect_near(std::get<1>(again), to_doubles(std::get<1>(kept)), 1e-5);
}

TEST_F(Checkpoint, TakesLessMemory) {
  const DeviceGuard on_cpu{Device("cpu")};
  const Model model(8, 64, 32);
  const auto arena = [&](auto one) {
    const auto f = gradients_of(one);
    f(model.layers, model.x);
    return f.program()->arena_bytes.as_constant().value();
  };
  // One layer keeps its hidden activations, before and after gelu, of 64 x 128 numbers of 4 bytes.
  const int64_t hidden = int64_t{64} * 128 * 4;
  const int64_t kept = arena(block), again = arena(checkpoint(block));
  EXPECT_GE(kept, 8 * hidden);
  EXPECT_LE(again, kept / 2);
}

TEST_F(Checkpoint, SeesWhatTheFunctionCaptures) {
  const auto f = jit(grad([](Tensor x) {
    const Tensor y = exp(x);
    const auto inner = checkpoint([=](const Tensor& z) { return sin(z * y); });
    return sum(inner(x));
  }));
  const Doubles x = {0.5, -1};
  Doubles expected;
  for (const double v : x)
    expected.push_back(std::cos(v * std::exp(v)) * (std::exp(v) + v * std::exp(v)));
  expect_near(f(vector(x)), expected, 1e-12);
}

TEST_F(Checkpoint, OfSeveralResultsNestedAndTwiceDifferentiated) {
  const auto pair = [](const Tensor& x) { return std::pair{sin(x), exp(x)}; };
  const auto loss = [=](const Tensor& x) {
    const auto inner = checkpoint([=](const Tensor& y) {
      const auto [s, e] = checkpoint(pair)(y * 2);
      return std::pair{s * e, e};
    });
    const auto [product, e] = inner(x);
    return sum(product + e * e);
  };
  const auto plain = [=](const Tensor& x) {
    const auto [s, e] = pair(x * 2);
    return sum(s * e + e * e);
  };
  const Array x = vector({0.3, -0.7});
  expect_near(jit(grad(loss))(x), to_doubles(jit(grad(plain))(x)), 1e-12);
  const auto twice = [](auto f) {
    return jit(grad([=](const Tensor& v) { return sum(square(grad(f)(v))); }));
  };
  expect_near(twice(loss)(x), to_doubles(twice(plain)(x)), 1e-12);
}

TEST_F(Checkpoint, DropsTheSameElementsAgain) {
  const auto f = [](auto layer) {
    return jit(grad([=](Tensor x, Tensor key) { return sum(square(layer(x, key))); }));
  };
  const auto layer = [](const Tensor& x, const Tensor& key) { return nn::dropout(x, 0.5, key); };
  const Array x = full({64}, 1, f64), key = random::Key(5).array();
  EXPECT_EQ(to_doubles(f(checkpoint(layer))(x, key)), to_doubles(f(layer)(x, key)));
}

TEST_F(Checkpoint, LeavesNothingInForwardGraphs) {
  const auto f = jit([](Tensor x) { return checkpoint([](Tensor t) { return sin(t) + 1; })(x); });
  EXPECT_EQ(f.graph(spec(f32, {4})).find("barrier"), std::string::npos);
}

}  // namespace
}  // namespace braze
