// Checked mode: the first op that goes wrong is named, with its line and the element; a sound call
// with infinite masks passes and gives what it gives unchecked.
#include <limits>

#include "tests/frontend/support.h"

namespace braze {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

JitOptions checked() { return {.name = "watched", .checked = true}; }

std::string here(int line) { return "checked_test.cpp:" + std::to_string(line); }

/// Numbers between -1 and 1, different ones for each `phase`.
Array wave(std::vector<int64_t> shape, double phase, const Device& device = default_device()) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(std::sin(phase + 0.7 * static_cast<double>(i))));
  return Array::from(values, std::move(shape), device);
}

/// f32 unless said otherwise.
Array numbers(const std::vector<float>& values, std::vector<int64_t> shape) {
  return Array::from(values, std::move(shape));
}

// On the reference, the compiled CPU, and the simulators of both machines.
class Checked : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceGuard guard_{Device(GetParam())};
};

TEST_P(Checked, NamesTheFirstIndexOutOfRange) {
  int line = 0;
  const auto pick = jit(
      [&](Tensor x, Tensor rows) {
        line = __LINE__ + 1;
        const Tensor y = take(x, rows, 1);
        return sum(y * y);
      },
      checked());
  const Array x = wave({2, 5}, 0);
  EXPECT_NO_THROW(pick(x, Array::from(Longs{0, 4, 2, 1}, {2, 2})));
  const std::string above = error_of([&] { pick(x, Array::from(Longs{0, 4, 5, 9}, {2, 2})); });
  EXPECT_CONTAINS(above,
                  "gather: index 5 at [1, 0] of i64[2, 2] is not within axis 1 of f32[2, 5]");
  EXPECT_CONTAINS(above, here(line));
  EXPECT_CONTAINS(above, "index-out-of-range");
  const std::string below = error_of([&] { pick(x, Array::from(Longs{0, -1, 5, 9}, {2, 2})); });
  EXPECT_CONTAINS(below, "gather: index -1 at [0, 1] of i64[2, 2]");
  const std::string far = error_of([&] {
    pick(x, Array::from(std::vector<int32_t>{0, INT32_MIN}, {2}));
  });
  EXPECT_CONTAINS(far, "gather: index -2147483648 at [1] of i32[2]");
}

TEST_P(Checked, NamesTheFirstIndexOfScatterAdd) {
  int line = 0;
  const auto add = jit(
      [&](Tensor x, Tensor rows, Tensor updates) {
        line = __LINE__ + 1;
        return scatter_add(x, rows, updates);
      },
      checked());
  const Array x = zeros({3, 2}), updates = ones({2, 2});
  expect_near(add(x, Array::from(Longs{2, 0}, {2}), updates), {1, 1, 0, 0, 1, 1}, 0);
  const std::string text = error_of([&] { add(x, Array::from(Longs{2, 3}, {2}), updates); });
  EXPECT_CONTAINS(text, "scatter_add: index 3 at [1] of i64[2] is not within axis 0 of f32[3, 2]");
  EXPECT_CONTAINS(text, here(line));
  // What it adds up.
  EXPECT_CONTAINS(error_of([&] {
                    add(full({3, 2}, 3e38), Array::from(Longs{1, 1}, {2}), full({2, 2}, 3e38));
                  }),
                  "scatter_add makes infinity at [1, 0] of f32[3, 2]");
  EXPECT_NO_THROW(add(full({3, 2}, kInf), Array::from(Longs{1, 1}, {2}), updates));
}

TEST_P(Checked, NamesTheOpThatMakesANan) {
  int line = 0;
  const auto logarithm = jit(
      [&](Tensor x) {
        const Tensor scaled = x * 2;
        line = __LINE__ + 1;
        const Tensor y = log(scaled);
        return exp(y) + 1;
      },
      checked());
  const std::string text = error_of([&] { logarithm(numbers({1, 2, 3, 4, -5, 6}, {2, 3})); });
  EXPECT_CONTAINS(text, "log makes NaN at [1, 1] of f32[2, 3] from operands that are not NaN");
  EXPECT_CONTAINS(text, here(line));
  EXPECT_CONTAINS(text, "not-finite");

  const auto divide = jit([](Tensor x, Tensor y) { return x / y; }, checked());
  EXPECT_CONTAINS(error_of([&] {
                    divide(numbers({1, 0}, {2}), numbers({1, 0}, {2}));
                  }),
                  "div makes NaN at [1] of f32[2]");
  EXPECT_CONTAINS(error_of([&] {
                    divide(numbers({1, -1}, {2}), numbers({1, 0}, {2}));
                  }),
                  "div makes infinity at [1] of f32[2] from operands that are finite there");
  // Infinite operands excuse an infinity, no NaN.
  EXPECT_NO_THROW(divide(full({2}, kInf), ones({2})));
  EXPECT_CONTAINS(error_of([&] { divide(full({2}, kInf), full({2}, kInf)); }), "div makes NaN");
}

TEST_P(Checked, NamesTheOpThatOverflows) {
  const auto f = jit([](Tensor x) { return 1 / exp(x); }, checked());
  EXPECT_CONTAINS(error_of([&] {
                    f(numbers({1, 100, 200}, {3}));
                  }),
                  "exp makes infinity at [1] of f32[3]");
  const auto narrow = jit([](Tensor x) { return cast(x, f16); }, checked());
  EXPECT_CONTAINS(error_of([&] {
                    narrow(numbers({1, -70000}, {2}));
                  }),
                  "convert makes infinity at [1] of f16[2]");
  // In f32 the sum would see nothing.
  const auto half = jit([](Tensor x) { return sum(cast(cast(x, f16) * 300, f32)); }, checked());
  EXPECT_CONTAINS(error_of([&] {
                    half(numbers({1, 300}, {2}));
                  }),
                  "mul makes infinity at [1] of f16[2]");
}

TEST_P(Checked, JudgesSumsAndProductsByWhatTheyAreMadeOf) {
  const auto rows = jit([](Tensor x) { return sum(x, {1}); }, checked());
  EXPECT_CONTAINS(error_of([&] {
                    rows(numbers({1, 2, 3e38F, 3e38F}, {2, 2}));
                  }),
                  "reduce makes infinity at [1] of f32[2]");
  EXPECT_NO_THROW(rows(numbers({1, 2, 3, static_cast<float>(kInf)}, {2, 2})));
  EXPECT_CONTAINS(
      error_of([&] {
        rows(numbers({static_cast<float>(kInf), -static_cast<float>(kInf), 3, 4}, {2, 2}));
      }),
      "reduce makes NaN at [0] of f32[2]");

  const auto product = jit([](Tensor x, Tensor y) { return dot(x, y); }, checked());
  const Array y = numbers({1, 2, 0, 4, 5, 3e38F}, {2, 3});
  EXPECT_NO_THROW(product(numbers({1, 1, 0, 1}, {2, 2}), y));
  EXPECT_CONTAINS(error_of([&] {
                    product(numbers({1, 1, 0, 2}, {2, 2}), y);
                  }),
                  "dot makes infinity at [1, 2] of f32[2, 3]");
  // The first row has the infinity itself; the second is finite.
  EXPECT_CONTAINS(error_of([&] {
                    product(numbers({static_cast<float>(kInf), 1, 0, 2}, {2, 2}), y);
                  }),
                  "dot makes NaN at [0, 2] of f32[2, 3]");
}

TEST_P(Checked, AcceptsSumsOfNothing) {
  const auto f = jit(
      [](Tensor x, Tensor y) {
        return std::tuple{sum(x, {0}), dot(y, x)};
      },
      {spec(f32, {"n:0..8", 3}), spec(f32, {2, "n:0..8"})}, checked());
  for (const int64_t n : {0, 2}) {
    const auto [total, product] = f(ones({n, 3}), ones({2, n}));
    expect_near(total, Doubles(3, static_cast<double>(n)), 0);
    expect_near(product, Doubles(6, static_cast<double>(n)), 0);
  }
}

TEST_P(Checked, BlamesNoOpForWhatArgumentsAndConstantsHold) {
  const auto f = jit([](Tensor x) { return relu(x) + 1; }, checked());
  const std::string text = error_of([&] { f(numbers({1, 2, static_cast<float>(kNan)}, {3})); });
  EXPECT_CONTAINS(text, "the argument \"arg0\" is NaN at [2] of f32[3]; no op made it");
  EXPECT_NO_THROW(f(full({3}, kInf)));
  const auto constant = jit(
      [](Tensor x) { return where(x > 0, x, -kInf) + exp(log(0 * full(f32, {3}, 1))); }, checked());
  EXPECT_NO_THROW(constant(ones({3})));
}

TEST_P(Checked, NamesANanOfConstantsThatIsMadeUseOf) {
  const auto f = jit([](Tensor x) { return where(x > 1, full_like(x, kNan), x) * 2; }, checked());
  EXPECT_NO_THROW(f(ones({3})));
  EXPECT_CONTAINS(error_of([&] { f(numbers({1, 2, 3}, {3})); }), "NaN at [1] of f32[3]");
  const auto root = jit([](Tensor x) { return x + sqrt(full(f32, {2}, -1)); }, checked());
  EXPECT_CONTAINS(error_of([&] { root(ones({2})); }),
                  "computed from constants alone, is NaN at [0]");
  // A label that is no class.
  const auto loss = jit([](Tensor x, Tensor c) { return nn::cross_entropy(x, c); }, checked());
  EXPECT_NO_THROW(loss(ones({2, 3}), Array::from(Longs{0, 2}, {2})));
  EXPECT_CONTAINS(error_of([&] { loss(ones({2, 3}), Array::from(Longs{3, 1}, {2})); }), "NaN");
}

TEST_P(Checked, LeavesOutWhatNothingIsMadeOf) {
  const auto f = value_and_grad([](Tensor x) { return sum(max(x, 0)); });
  const auto watched = jit([=](Tensor x) { return std::get<1>(f(x)); }, checked());
  EXPECT_EQ(watched(zeros({0, 3})).numel(), 0);
}

TEST_P(Checked, LeavesOutWhatSelectsDrop) {
  const auto f = jit(
      [](Tensor x) {
        const Tensor y = log(x) * 2;
        return where(x > 0, y, 0) + elu(x, 1.0);
      },
      checked());
  expect_near(f(numbers({1, 0}, {2})), {1, 0}, 1e-6);
  EXPECT_NO_THROW(f(numbers({-1, 2}, {2})));
  // The gradient of elu computes e^x where x > 0, and drops it.
  const auto slope = jit(grad([](Tensor x) { return sum(elu(x, 1.0)); }), checked());
  expect_near(slope(numbers({100, -1}, {2})), {1, std::exp(-1)}, 1e-6);
  // One that is read elsewhere too counts.
  const auto both = jit(
      [](Tensor x) {
        const Tensor y = log(x);
        return std::tuple{where(x > 0, y, 0), sum(y)};
      },
      checked());
  EXPECT_CONTAINS(error_of([&] { both(numbers({1, -1}, {2})); }), "log makes NaN at [1]");
}

// One head of attention under a causal mask of -inf, a normalised layer with gelu, and a loss.
Tensor loss_of(Tensor table, Tensor weight, Tensor ids, Tensor labels) {
  const Tensor x = nn::embedding(table, ids);  // [tokens, width]
  const Tensor scores = dot(x, transpose(x)) * 0.25;
  const Dims square = {x.dim(0), x.dim(0)};
  const Tensor mask =
      where(arange(i64, square, 1) <= arange(i64, square, 0), full(f32, square, 0), -kInf);
  const Tensor attended = dot(nn::softmax(scores + mask), x);
  const Tensor hidden = nn::rms_norm(gelu(dot(attended, weight)), full(f32, {x.dim(1)}, 1));
  return nn::cross_entropy(dot(hidden, weight), labels);
}

TEST_P(Checked, PassesASoundTrainingStep) {
  const auto step = [](Tensor table, Tensor weight, Tensor ids, Tensor labels) {
    const auto [loss, slopes] = value_and_grad<0, 1>(loss_of)(table, weight, ids, labels);
    const auto& [table_slope, weight_slope] = slopes;
    return std::tuple{table - table_slope * 0.1, weight - weight_slope * 0.1, loss};
  };
  const std::vector<Spec> specs = {as_given, as_given, spec(i64, {"tokens:1..64"}),
                                   spec(i64, {"tokens:1..64"})};
  const auto arguments = [](auto&& function, Longs ids, const Longs& labels) {
    const auto tokens = static_cast<int64_t>(ids.size());
    return function(wave({7, 4}, 1), wave({4, 4}, 2), Array::from(ids, {tokens}),
                    Array::from(labels, {tokens}));
  };
  const auto plain = jit(step, specs, {.compile = {.precision = Precision::Strict}});
  JitOptions options = checked();
  options.donate = {0, 1};
  const auto watched = jit(step, specs, options);
  for (const Longs& ids : {Longs{1}, Longs{3, 0, 6, 6, 2}}) {
    const Longs labels(ids.size(), 2);
    const auto [table, weight, loss] = arguments(watched, ids, labels);
    const auto [plain_table, plain_weight, plain_loss] = arguments(plain, ids, labels);
    expect_near(table, to_doubles(plain_table), 1e-5);
    expect_near(weight, to_doubles(plain_weight), 1e-5);
    expect_near(loss, to_doubles(plain_loss), 1e-5);
  }
  EXPECT_CONTAINS(error_of([&] {
                    arguments(watched, {0, 7}, {0, 0});
                  }),
                  "index 7 at [1] of i64[2]");
}

TEST_P(Checked, ARowWithoutAnythingToAttendToIsANan) {
  const auto f = jit([](Tensor x) { return nn::softmax(x); }, checked());
  EXPECT_NO_THROW(f(numbers({1, -static_cast<float>(kInf)}, {1, 2})));
  EXPECT_CONTAINS(error_of([&] { f(full({2, 2}, -kInf)); }), "sub makes NaN at [0, 0]");
}

INSTANTIATE_TEST_SUITE_P(Devices, Checked,
                         ::testing::Values("interpreter", "cpu", "sim:cpu", "sim:sm_90"),
                         [](const auto& device) {
                           std::string name = device.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

class CheckedCall : public OnDevice {};

TEST_F(CheckedCall, HasTheResultsOfTheFunctionAlone) {
  const auto f = jit([](Tensor x) { return std::tuple{exp(x), x + 1}; }, checked());
  const auto [a, b] = f(ones({2}));
  expect_near(a, {std::exp(1), std::exp(1)}, 1e-6);
  expect_near(b, {2, 2}, 0);
  EXPECT_TRUE(f.check(ones({2})).ok);
  EXPECT_CONTAINS(error_of([&] { f.check(full({2}, 100)); }), "exp makes infinity");
}

TEST_F(CheckedCall, TakesDonatedArgumentsAlsoWhereItFails) {
  JitOptions options = checked();
  options.donate = {0};
  const auto f = jit([](Tensor x, Tensor y) { return x * y; }, options);
  Array x = full({2}, 1e30);
  expect_near(f(x, ones({2})), {1e30, 1e30}, 1e-6);
  x = full({2}, 1e30);
  EXPECT_CONTAINS(error_of([&] { f(x, full({2}, 1e30)); }), "mul makes infinity at [0] of f32[2]");
  EXPECT_CONTAINS(error_of([&] { x.wait(); }), "donated");
}

TEST_F(CheckedCall, TakesEmptyArraysAndScalars) {
  const auto f = jit([](Tensor x, Tensor i) { return take(log(x), i); },
                     {spec(f32, {"n:1..8"}), spec(i64, {"m:0..8"})}, checked());
  EXPECT_EQ(f(ones({3}), Array::from(Longs{}, {0})).numel(), 0);
  const auto scalar = jit([](Tensor x) { return log(x); }, checked());
  EXPECT_CONTAINS(error_of([&] { scalar(full({}, -1)); }), "log makes NaN at [] of f32[]");
}

}  // namespace
}  // namespace braze
