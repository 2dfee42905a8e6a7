// Precision: what each may change, that it decides the program, and that results are judged by it.
#include "ir/program/program.h"
#include "ir/program/text.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

template <class F>
auto at(Precision precision, F function) {
  return jit(std::move(function), JitOptions{.compile = {.precision = precision}});
}

// The interpreter has no precision: in its place the compiler is tested.
Device compiled_device() {
  return test_device().kind() == DeviceKind::Interpreter ? Device("cpu") : test_device();
}

Array vector(const std::vector<float>& values) {
  return Array::from(values, {static_cast<int64_t>(values.size())});
}

class PrecisionTest : public ::testing::Test {
 protected:
  DeviceGuard guard_{compiled_device()};
};

TEST(Precision, ChangesNothingInTheInterpreter) {
  const DeviceGuard guard("interpreter");
  const auto third = [](Tensor x) { return x / 3.f; };
  const Array x = vector({1, 2, 5, 7, 11, 13});
  EXPECT_EQ(to_doubles(at(Precision::Fast, third)(x)), to_doubles(at(Precision::Strict, third)(x)));
}

// The graph is the same; only the options tell the programs apart.
TEST_F(PrecisionTest, DecidesTheProgram) {
  const auto third = [](Tensor x) { return x / 3.f; };
  const Array x = vector({1, 2, 5, 7, 11, 13});
  const auto standard = at(Precision::Standard, third), strict = at(Precision::Strict, third),
             fast = at(Precision::Fast, third);
  const Doubles exact = to_doubles(standard(x));
  EXPECT_EQ(to_doubles(strict(x)), exact);
  EXPECT_NE(to_doubles(fast(x)), exact) << "one division for all";
  EXPECT_EQ(fast.program()->precision, Precision::Fast);
  EXPECT_CONTAINS(fast.explain(), "precision fast");
  EXPECT_CONTAINS(standard.explain(), "precision standard");
  EXPECT_CONTAINS(to_text(*fast.program()), "precision fast");
  EXPECT_TRUE(fast.check(x).ok) << fast.check(x).text;
}

TEST_F(PrecisionTest, FastJoinsProductsAndSums) {
  const auto f = [](Tensor x, Tensor y, Tensor z) {
    return std::tuple{x * y + z, x * y - z, z - x * y, x * 3.f * 5.f};
  };
  // (1 + e)^2 = 1 + 2e + e^2, of which a rounded product loses e^2.
  const float e = 0x1p-12f;
  const Array x = vector({1 + e, 3}), z = vector({-(1 + 2 * e), 1});
  const auto standard = at(Precision::Standard, f), fast = at(Precision::Fast, f);
  EXPECT_EQ(to_doubles(std::get<0>(standard(x, x, z))), (Doubles{0, 10}));
  const auto [sum, difference, reverse, scaled] = fast(x, x, z);
  EXPECT_EQ(to_doubles(sum), (Doubles{0x1p-24, 10}));
  EXPECT_EQ(to_doubles(difference)[1], 8);
  EXPECT_EQ(to_doubles(reverse)[1], -8);
  EXPECT_EQ(to_doubles(scaled)[1], 45);
  EXPECT_TRUE(fast.check(x, x, z).ok);
}

TEST_F(PrecisionTest, StrictRoundsProductsBeforeTheirSum) {
  const auto f = [](Tensor x, Tensor y) { return sum(x * y, {0}); };
  const float e = 0x1p-12f;
  std::vector<float> xs(16, 1), ys(16, -(1 + 2 * e));
  for (size_t i = 8; i < 16; ++i) xs[i] = ys[i] = 1 + e;
  const Array x = Array::from(xs, {2, 8}), y = Array::from(ys, {2, 8});
  const auto strict = at(Precision::Strict, f);
  EXPECT_EQ(to_doubles(strict(x, y)), Doubles(8, 0.0));
  EXPECT_TRUE(strict.check(x, y).ok);
  // Standard may keep the product's last bits. On a CPU it does, one sum after the other.
  if (test_device().kind() != DeviceKind::Cuda) {
    EXPECT_EQ(to_doubles(at(Precision::Standard, f)(x, y)), Doubles(8, 0x1p-24));
  }
}

// A product that is also a result, or decides a bool, is rounded before it is summed.
TEST_F(PrecisionTest, ProductsThatAreSeenAreRoundedBeforeTheirSum) {
  const float e = 0x1p-12f;
  std::vector<float> xs(16, 1), ys(16, -(1 + 2 * e));
  for (size_t i = 8; i < 16; ++i) xs[i] = ys[i] = 1 + e;
  const Array x = Array::from(xs, {2, 8}, test_device()),
              y = Array::from(ys, {2, 8}, test_device());
  const auto seen = jit([](Tensor a, Tensor b) { return std::pair{a * b, sum(a * b, {0})}; });
  EXPECT_EQ(to_doubles(seen(x, y).second), Doubles(8, 0.0));
  const auto compared = jit([](Tensor a, Tensor b) {
    const Tensor product = a * b;
    return std::pair{sum(product, {0}), sum(where(product > 0.f, b, a), {0})};
  });
  EXPECT_EQ(to_doubles(compared(x, y).first), Doubles(8, 0.0));
}

// Functions of many ops agree with the reference within what their precision allows.
TEST_F(PrecisionTest, FunctionsOfManyOpsAreWithinTheirBounds) {
  const auto f = [](Tensor x, Tensor w) {
    const Tensor h = nn::softmax(dot(gelu(x) * 0.5f * 0.25f + 1.f, w));
    const Tensor m = mean(square(h), {1}, true);
    return std::tuple{h / sqrt(m + 1e-6f), tanh(x) / 7.f - x * x,
                      cast(x, bf16) * cast(x, bf16) + cast(x, bf16)};
  };
  const Array x = random::normal({33, 40}, random::Key(1)),
              w = random::normal({40, 24}, random::Key(2));
  for (const Precision precision : {Precision::Strict, Precision::Standard, Precision::Fast}) {
    const auto compiled = at(precision, f);
    const CheckReport report = compiled.check(x, w);
    EXPECT_TRUE(report.ok) << name(precision) << "\n" << report.text;
  }
}

}  // namespace
}  // namespace braze
