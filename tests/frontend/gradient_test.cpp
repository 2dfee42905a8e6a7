// Gradients against central differences in f64, and where differences cannot tell: ties, zeros,
// second derivatives, values far from zero.
#include <algorithm>
#include <random>

#include "frontend/builder/builder.h"
#include "ir/ops/elementwise.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

using Function = std::function<Tensor(std::vector<Tensor>)>;

class Gradients : public OnDevice {
 protected:
  /// Values of [low, high), none close to zero.
  Array random(Longs shape, double low = -2, double high = 2) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    std::uniform_real_distribution<double> distribution(low, high);
    Doubles values(static_cast<size_t>(count));
    for (double& value : values) do
        value = distribution(random_);
      while (std::abs(value) < 0.05);
    return Array::from(values, std::move(shape));
  }

  std::mt19937_64 random_{7};
};

/// A scalar that weighs every element of y differently.
Tensor weigh(const Tensor& y) {
  const Tensor flat = reshape(y, {-1});
  return sum(flat * cos(arange(y.dtype(), flat.shape(), 0) + 0.5));
}

/// d weigh(f) / d inputs against differences.
void check(const Function& f, const std::vector<Array>& inputs, double tolerance = 2e-7) {
  const auto scalar = [f](std::vector<Tensor> x) { return weigh(f(std::move(x))); };
  const auto value = jit(scalar);
  const std::vector<Array> got = jit(grad(scalar))(inputs);
  ASSERT_EQ(got.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(got[i].shape(), inputs[i].shape());
    ASSERT_EQ(got[i].dtype(), inputs[i].dtype());
    Doubles x = inputs[i].to_vector<double>();
    const Doubles gradient = got[i].to_vector<double>();
    for (size_t k = 0; k < x.size(); ++k) {
      const double step = 1e-5, at = x[k];
      const auto moved = [&](double to) {
        x[k] = to;
        std::vector<Array> arguments = inputs;
        arguments[i] = Array::from(x, inputs[i].shape());
        x[k] = at;
        return value(arguments).item();
      };
      const double difference = (moved(at + step) - moved(at - step)) / (2 * step);
      EXPECT_NEAR(gradient[k], difference, tolerance * std::max(1.0, std::abs(difference)))
          << "input " << i << " element " << k << " at " << at;
    }
  }
}

TEST_F(Gradients, OfIndicesAndParts) {
  using Tensors = std::vector<Tensor>;
  check(
      [](Tensors v) {
        return v[0][{Slice({}, {}, -2), ellipsis, 1, new_axis}];
      },
      {random({5, 2, 3})});
  check(
      [](Tensors v) {
        const Tensors parts = chunk(v[0], 3, 1);
        return concat({parts[2] * 2, parts[0] * parts[1]}, 1);
      },
      {random({2, 8})});
  check([](Tensors v) { return concat(split(v[0], {1, 2, 1}, 0), 1 - 1) * 3; }, {random({4, 2})});
  check([](Tensors v) { return repeat(v[0], 3, 1); }, {random({2, 3})});
  check([](Tensors v) { return tile(v[0], {2, 2}); }, {random({2, 3})});
  check([](Tensors v) { return tril(v[0], -1) + triu(v[0], 1) * 2; }, {random({2, 4, 3})});
  const auto taken = [](Tensors v) {
    const Tensor indices = cast(rem(arange(i64, {1, 4, 5}, 1) * 3, 3), i32);
    return take_along_axis(v[0], indices, 0);
  };
  check(taken, {random({3, 4, 5})});
}

TEST_F(Gradients, OfGeneralGatherAndScatter) {
  using Tensors = std::vector<Tensor>;
  // Windows of 2 x 3 in each of 3 batches, with positions that overlap and leave x.
  const GatherAxes windows{
      .indexed = {2, 1}, .windows = {1, 3}, .batch = {0}, .index_batch = {1}, .vector = 0};
  const Array places =
      Array::from(std::vector<int32_t>{0, 1, 2, 3, -1, 9, 1, 1, 0, 2, 0, -2}, {2, 3, 2});
  const Dims sizes = {1, 2, 3};
  for (const Outside outside : {Outside::Clamp, Outside::Drop}) {
    SCOPED_TRACE(static_cast<int>(outside));
    check([=](Tensors v) { return gather(v[0], constant(places), sizes, windows, outside, 0.5); },
          {random({3, 4, 5})});
    for (const Scatter how : {Scatter::Add, Scatter::Mul, Scatter::Max, Scatter::Min})
      check([=](Tensors v) { return scatter(v[0], constant(places), v[1], windows, how, outside); },
            {random({3, 4, 5}), random({3, 2, 2, 3})});
  }
  // The last of several updates of one element is the one that stays.
  const GatherAxes elements{.indexed = {1, 0}, .collapsed = {0, 1}};
  const Array twice = Array::from(std::vector<int64_t>{1, 0, 2, 1, 1, 0, 7, 0}, {4, 2});
  for (const Outside outside : {Outside::Clamp, Outside::Drop})
    check(
        [=](Tensors v) {
          return scatter(v[0], constant(twice), v[1], elements, Scatter::Set, outside);
        },
        {random({2, 3}), random({4})});
}

TEST_F(Gradients, OfEinsum) {
  const auto sums = [](const char* equation) {
    return [=](std::vector<Tensor> v) { return einsum(equation, v); };
  };
  check(sums("ij,jk,kl->li"), {random({2, 3}), random({3, 4}), random({4, 2})});
  check(sums("ii->i"), {random({4, 4})});
  check(sums("...ii->..."), {random({2, 3, 3})});
  check(sums("bij,j,b->i"), {random({2, 3, 4}), random({4}), random({2})});
  check(sums("...ij,...jk"), {random({2, 1, 2, 3}), random({3, 3, 2})});
  check(sums("ij,ij->i"), {random({3, 4}), random({3, 1})});
}

TEST_F(Gradients, OfGroupNorm) {
  check([](std::vector<Tensor> v) { return nn::group_norm(v[0], 2, v[1], v[2]); },
        {random({2, 4, 3}), random({4}), random({4})});
}

TEST_F(Gradients, OfAttention) {
  using Tensors = std::vector<Tensor>;
  const auto inputs = [&] {
    return std::vector<Array>{random({2, 3, 4, 2}), random({2, 5, 2, 2}), random({2, 5, 2, 3})};
  };
  check([](Tensors v) { return nn::attention(v[0], v[1], v[2]); }, inputs());
  check([](Tensors v) { return nn::attention(v[0], v[1], v[2], {.causal = true}); }, inputs());
  std::vector<Array> biased = inputs();
  biased.push_back(random({4, 3, 5}));
  check(
      [](Tensors v) {
        const Tensor key = arange(i32, {3, 5}, 1);
        return nn::attention(v[0], v[1], v[2], {.mask = key != 2, .bias = v[3]});
      },
      biased);
}

TEST_F(Gradients, OfRope) {
  for (const auto pairs : {nn::RopePairs::Halves, nn::RopePairs::Neighbours})
    check(
        [=](std::vector<Tensor> v) {
          return nn::rope(v[0], arange(i32, Dim(3)) + 4, {.pairs = pairs});
        },
        {random({2, 3, 2, 4})});
}

TEST_F(Gradients, OfMultiHeadAttention) {
  check(
      [](std::vector<Tensor> v) {
        const Weights layer = {{"query.weight", v[1]},
                               {"query.bias", v[2]},
                               {"key.weight", v[3]},
                               {"value.weight", v[4]},
                               {"output.weight", v[5]}};
        return nn::multi_head_attention(layer, v[0],
                                        {.heads = 2,
                                         .groups = 1,
                                         .rope = nn::RopeOptions{.base = 10},
                                         .attention = {.causal = true}});
      },
      {random({2, 3, 4}), random({4, 4}), random({4}), random({4, 2}), random({4, 2}),
       random({4, 3})});
}

// The gradient of a product of gradients.
TEST_F(Gradients, SecondOfAttention) {
  check(
      [](std::vector<Tensor> v) {
        const auto loss = [&](Tensor q) {
          return weigh(nn::attention(q, v[1], v[2], {.causal = true}));
        };
        return grad(loss)(v[0]);
      },
      {random({3, 2, 2}), random({4, 1, 2}), random({4, 1, 2})}, 2e-6);
}

// How many elements a slice takes depends on the size; for some there is none.
TEST_F(Gradients, OfSlicesOfSymbolicExtents) {
  const auto slope = jit(grad([](Tensor x) {
                           const Dim n = x.dim(0);
                           return sum(square(slice(reshape(x, {n}), 0, 3, n, 4)));
                         }),
                         {spec(f64, {"n:3..64"})});
  for (const int64_t n : {3, 4, 7, 8, 33}) {
    const Array x = random({n}, 1, 2);
    std::vector<double> expected = to_doubles(x);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] *= i % 4 == 3 ? 2 : 0;
    EXPECT_EQ(to_doubles(slope(x)), expected) << n;
  }
}

// ---- Elementwise rows -------------------------------------------------------------------------

TEST_F(Gradients, EveryElementwiseRow) {
  int rows = 0;
  for (const ElementwiseInfo& row : elementwise_table()) {
    if (!row.gradient && !row.through_body) continue;
    const auto op = *parse_elementwise(row.name);
    if (row.result == ResultRule::Chosen || op == ElementwiseOp::select) continue;
    ++rows;
    using enum ElementwiseOp;
    const bool is_arc = op == asin || op == acos || op == atanh || op == erfinv;
    const bool positive =
        row.name.starts_with("log") || row.name.ends_with("sqrt") || op == ElementwiseOp::pow;
    const double low = op == acosh                                 ? 1.2
                       : positive || op == lgamma || op == digamma ? 0.2
                       : is_arc || op == tan                       ? -0.9
                                                                   : -2;
    const double high = is_arc || op == tan ? 0.9 : 2;
    for (const Longs& shape : {Longs{}, Longs{0}, Longs{1}, Longs{2, 3}}) {
      SCOPED_TRACE(row.name);
      std::vector<Array> inputs;
      for (int i = 0; i < row.arity; ++i) inputs.push_back(random(shape, low, high));
      if (op == ElementwiseOp::clamp) inputs[1] = random(shape, -1, -0.5);
      if (op == ElementwiseOp::clamp) inputs[2] = random(shape, 0.5, 1);
      check(
          [op](const std::vector<Tensor>& x) {
            const std::vector<Operand> operands(x.begin(), x.end());
            return detail::elementwise(op, operands, Where::current());
          },
          inputs);
    }
  }
  EXPECT_GE(rows, 30);
}

TEST_F(Gradients, SelectAndConvert) {
  check([](auto x) { return where(x[0] > x[1], x[0] * x[1], x[1] * 3); },
        {random({2, 3}), random({2, 3})});
  check([](auto x) { return cast(cast(x[0], f64) * 2, f64); }, {random({3})});
  // f32 in between: differences in f64 see its rounding, so exact values.
  const auto through = jit(grad([](Tensor x) { return sum(cast(square(cast(x, f32)), f64)); }));
  expect_near(through(Array::from(Doubles{1, -2, 0.5}, {3})), {2, -4, 1}, 0);
}

TEST_F(Gradients, Broadcasting) {
  check([](auto x) { return x[0] * x[1] + x[2]; }, {random({2, 1, 3}), random({4, 1}), random({})});
  check([](auto x) { return x[0] / x[1]; }, {random({1, 3}), random({2, 3})});
  check([](auto x) { return x[0] - x[1]; }, {random({0, 3}), random({3})});
}

TEST_F(Gradients, Powers) {
  for (const int exponent : {0, 1, 2, 3, 7, -1, -2})
    check([=](auto x) { return pow(x[0], exponent); }, {random({3})});
  const auto positive = [](const Tensor& x) { return square(x) + 0.5; };
  check([=](auto x) { return pow(positive(x[0]), 0.5); }, {random({3})});
  check([=](auto x) { return pow(positive(x[0]), x[1]); }, {random({3}), random({2, 1})});
  check([=](auto x) { return pow(2.5, x[0]); }, {random({3})});
}

TEST_F(Gradients, OfPowersAtZeroAreNumbersWhereThePowerHasASlope) {
  const auto slopes = [](double exponent) {
    return jit(grad([=](Tensor x) { return sum(pow(x, exponent)); }))(
        Array::from(Doubles{0, 2, -2}, {3}));
  };
  expect_near(slopes(0), {0, 0, 0}, 0);
  expect_near(slopes(1), {1, 1, 1}, 1e-15);
  expect_near(slopes(2), {0, 4, -4}, 1e-15);
  expect_near(slopes(3), {0, 12, 12}, 1e-15);
  const auto by_exponent = jit(grad([](Tensor y) { return sum(pow(0.0, y)); }));
  expect_near(by_exponent(Array::from(Doubles{0, 2}, {2})), {0, 0}, 0);
}

// ---- Movement ---------------------------------------------------------------------------------

TEST_F(Gradients, Reshapes) {
  check([](auto x) { return reshape(x[0], {3, -1}); }, {random({2, 3})});
  check([](auto x) { return permute(x[0], {2, 0, 1}); }, {random({2, 3, 2})});
  check([](auto x) { return transpose(x[0]); }, {random({0, 3})});
  check([](auto x) { return broadcast_to(x[0], {4, 2, 3}); }, {random({2, 1})});
  check([](auto x) { return expand_dims(x[0], 1) * squeeze(x[1]); },
        {random({2}), random({1, 3, 1})});
  check([](auto x) { return reverse(x[0], {0, 2}); }, {random({2, 1, 3})});
}

TEST_F(Gradients, Slices) {
  check([](auto x) { return slice(x[0], 0, 1, -1); }, {random({5, 2})});
  check([](auto x) { return slice(x[0], 0, 1, 6, 2); }, {random({7})});
  check([](auto x) { return slice(x[0], 0, 0, 7, 3); }, {random({7})});
  check([](auto x) { return slice(x[0], 0, 2, 2, 2); }, {random({5})});
  check([](auto x) { return slice(x[0], {0, 1}, {2, 3}); }, {random({3, 3})});
}

TEST_F(Gradients, Pads) {
  check([](auto x) { return pad(x[0], {1, 0}, {2, 1}); }, {random({2, 3})});
  check([](auto x) { return pad(x[0], {1}, {0}, x[1], {2}); }, {random({3}), random({})});
  check([](auto x) { return pad(x[0], {1}, {2}, x[1], {1}); }, {random({0}), random({})});
  check([](auto x) { return pad(x[0], {0}, {0}, 0, {3}); }, {random({1})});
}

TEST_F(Gradients, Joins) {
  check([](auto x) { return concat({x[0], x[1], x[0]}, 1); }, {random({2, 1}), random({2, 3})});
  check([](auto x) { return concat({x[0], x[1]}); }, {random({0, 2}), random({3, 2})});
  check([](auto x) { return stack({x[0], x[1]}, -1); }, {random({3}), random({3})});
}

TEST_F(Gradients, Indices) {
  const Array index = Array::from(Longs{2, 0, 2, 1}, {2, 2});
  check([=](auto x) { return take(x[0], constant(index)); }, {random({3, 2})});
  check([=](auto x) { return take(x[0], constant(index), 1); }, {random({2, 3})});
  check([=](auto x) { return scatter_add(x[0], constant(index), x[1], 1); },
        {random({2, 3}), random({2, 2, 2})});
  // Of the terms that go to one place the last stays, or they share.
  for (const Scatter how : {Scatter::Set, Scatter::Add, Scatter::Mul, Scatter::Max, Scatter::Min})
    check([=](auto x) { return scatter(x[0], constant(index), x[1], how, 1); },
          {random({2, 3}), random({2, 2, 2})});
  const Array start = Array::from(Longs{1}, {});
  const auto starts = [=] { return std::vector<Tensor>{constant(start), constant(start)}; };
  check([=](auto x) { return dynamic_slice(x[0], starts(), {2, 3}); }, {random({4, 3})});
  check([=](auto x) { return dynamic_update(x[0], x[1], starts()); },
        {random({4, 3}), random({2, 2})});
}

// ---- Reductions -------------------------------------------------------------------------------

using Reduce = Tensor (*)(const Tensor&, const Axes&, bool, Where);

TEST_F(Gradients, Reductions) {
  for (const Reduce reduce : {Reduce(sum), Reduce(prod), Reduce(max), Reduce(min), Reduce(mean),
                              Reduce(var), Reduce(logsumexp)})
    for (const bool keep : {false, true}) {
      check([=](auto x) { return reduce(x[0], {}, keep, Where::current()); }, {random({2, 3})});
      check([=](auto x) { return reduce(x[0], 1, keep, Where::current()); }, {random({2, 3})});
      check(
          [=](auto x) {
            return reduce(x[0], {0, 2}, keep, Where::current());
          },
          {random({3, 1, 2})});
    }
  check([](auto x) { return sum(x[0], 0); }, {random({0, 3})});
  check([](auto x) { return prod(x[0], 0); }, {random({0, 3})});
}

// Axes that go in a circle, so that their order and its inverse are two; all of one length, so that
// nothing but the values tells them apart.
TEST_F(Gradients, Scans) {
  for (const Longs& shape : {Longs{5}, Longs{1}, Longs{0}, Longs{3, 4}, Longs{2, 7, 3}})
    for (int64_t axis = 0; axis < std::ssize(shape); ++axis)
      for (const Running how :
           {Running{}, Running{true, false}, Running{false, true}, Running{true, true}}) {
        SCOPED_TRACE(axis);
        check([=](auto x) { return cumsum(x[0], axis, how); }, {random(shape)});
        check([=](auto x) { return cumprod(x[0], axis, how); }, {random(shape)}, 2e-6);
        // The elements that none were combined with are infinite.
        const auto finite = [](const Tensor& y) { return clamp(y, -100.0, 100.0); };
        check([=](auto x) { return finite(cummax(x[0], axis, how)); }, {random(shape)});
        check([=](auto x) { return finite(cummin(x[0], axis, how)); }, {random(shape)});
      }
}

TEST_F(Gradients, ScansOfTuples) {
  using Parts = std::vector<Tensor>;
  const auto logsum = [](const Parts& x, const Parts& y) -> Parts {
    const Tensor most = maximum(x[0], y[0]), least = minimum(x[0], y[0]);
    return {where(x[0] == y[0], x[0] + std::log(2.0), most + log1p(exp(least - most)))};
  };
  // Pairs of which both parts contribute to later ones, so that their gradient has four products.
  const auto rotation = [](const Parts& x, const Parts& y) -> Parts {
    return {x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]};
  };
  for (const Longs& shape : {Longs{5}, Longs{1}, Longs{0}, Longs{3, 4}})
    for (int64_t axis = 0; axis < std::ssize(shape); ++axis)
      for (const Running how :
           {Running{}, Running{true, false}, Running{false, true}, Running{true, true}}) {
        SCOPED_TRACE(axis);
        check([=](auto x) { return recurrence(x[0], x[1], axis, how); },
              {random(shape), random(shape)}, 2e-6);
        check([=](auto x) { return recurrence(x[0], x[0], axis, how); }, {random(shape)}, 2e-6);
        const auto finite = [](const Tensor& y) { return clamp(y, -100.0, 100.0); };
        check([=](auto x) { return finite(scan(logsum, {x[0]}, {-HUGE_VAL}, axis, how)[0]); },
              {random(shape)}, 2e-6);
        check(
            [=](auto x) {
              const Parts y = scan(rotation, {x[0], x[1]}, {1, 0}, axis, how);
              return y[0] * 2 + y[1] * x[1];
            },
            {random(shape), random(shape)}, 2e-6);
      }
}

// The values are those of jax.grad of a sum of jax.lax.associative_scan with these weights.
TEST_F(Gradients, RecurrencesAreThoseOfJax) {
  const Array a = Array::from(Doubles{0.5, -0.25, 2, 0.125, -1}, {1, 5});
  const Array b = Array::from(Doubles{1, 2, -3, 4, 8}, {1, 5});
  const Array w = Array::from(Doubles{1, -2, 3, 0.5, 2}, {1, 5});
  const auto loss = [](Tensor x, Tensor y, Tensor z) { return sum(recurrence(x, y, 1) * z); };
  const auto [of_a, of_b] = jit(grad<0, 1>(loss))(a, b, w);
  EXPECT_EQ(to_doubles(of_a), (Doubles{0, 3.625, 4.921875, -0.75, 8.125}));
  EXPECT_EQ(to_doubles(of_b), (Doubles{0.09375, 3.625, 2.8125, -1.5, 2}));
}

TEST_F(Gradients, ScansOfTuplesOfManyParts) {
  using Parts = std::vector<Tensor>;
  const auto matrices = [](const Parts& x, const Parts& y) -> Parts {
    return {x[0] * y[0] + x[1] * y[2], x[0] * y[1] + x[1] * y[3], x[2] * y[0] + x[3] * y[2],
            x[2] * y[1] + x[3] * y[3]};
  };
  // The gradient of one entry needs those of its row: two by two, and the vector.
  check(
      [=](auto x) {
        return scan(matrices, {x[0], x[1], x[2], x[3]}, {1, 0, 0, 1}, 0)[0];
      },
      {random({4}), random({4}), random({4}), random({4})}, 2e-6);
  const auto all = [](const Parts& x, const Parts& y) -> Parts {
    Tensor total = x[0] * y[0];
    for (size_t i = 1; i < x.size(); ++i) total = total + x[i] * y[i];
    return Parts(x.size(), total);
  };
  try {
    jit(grad([=](Tensor t) {
      return sum(scan(all, {t, t, t, t}, {1, 0, 0, 0}, 0)[0]);
    }))(Array::from(Doubles{1, 2}, {2}));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("at most 16"), std::string::npos) << error.what();
  }
}

TEST_F(Gradients, ScansOfProductsHoldAtZeros) {
  const auto of = [](const Doubles& x, Running how) {
    const auto shape = Longs{std::ssize(x)};
    return to_doubles(
        jit(grad([=](Tensor t) { return sum(cumprod(t, 0, how)); }))(Array::from(x, shape)));
  };
  // x, xy, xyz: 1 + y + yz, x + xz, xy.
  EXPECT_EQ(of({2, 0, 5}, {}), (Doubles{1, 12, 0}));
  EXPECT_EQ(of({0, 0, 5}, {}), (Doubles{1, 0, 0}));
  EXPECT_EQ(of({0, 3, 5}, {}), (Doubles{19, 0, 0}));
  EXPECT_EQ(of({5, 0, 2}, {.reverse = true}), (Doubles{0, 12, 1}));
  EXPECT_EQ(of({2, 0, 5}, {.exclusive = true}), (Doubles{1, 2, 0}));
  // The second derivatives of xyz alone are z, y and x.
  const auto hessian_row = [](Doubles x) {
    const auto last = [](const Tensor& t) { return sum(slice(cumprod(t, 0), 0, 2, 3)); };
    const auto slope = [=](const Tensor& t) { return sum(slice(grad(last)(t), 0, 0, 1)); };
    return to_doubles(jit(grad(slope))(Array::from(x, {3})));
  };
  EXPECT_EQ(hessian_row({2, 0, 5}), (Doubles{0, 5, 0}));
  EXPECT_EQ(hessian_row({0, 3, 0}), (Doubles{0, 0, 3}));
}

TEST_F(Gradients, OfRunningExtremesGoToWhereTheyCameFrom) {
  const auto of = [](const Doubles& x, Running how) {
    const auto weights = [](const Tensor& t) { return arange(f64, t.shape(), 0) + 1; };
    const auto shape = Longs{std::ssize(x)};
    return to_doubles(jit(grad([=](Tensor t) {
      return sum(
          where(how.exclusive ? arange(i64, t.shape(), 0) > 0 : arange(i64, t.shape(), 0) >= 0,
                cummax(t, 0, how), 0.0) *
          weights(t));
    }))(Array::from(x, shape)));
  };
  EXPECT_EQ(of({1, 3, 2, 5, 4}, {}), (Doubles{1, 5, 0, 9, 0}));
  EXPECT_EQ(of({3, 1, 3, 3, 0}, {}), (Doubles{3, 0, 3, 9, 0}));  // of equal ones the latest
  EXPECT_EQ(of({1, 3, 2, 5, 4}, {.reverse = true}), (Doubles{0, 0, 0, 10, 5}));
  EXPECT_EQ(of({1, 3, 2, 5, 4}, {.exclusive = true}), (Doubles{2, 7, 0, 5, 0}));
}

TEST_F(Gradients, OrdersThatAreNotTheirOwnInverse) {
  const Longs cube = {2, 2, 2};
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{2}, Axes{0, 1}, Axes{0, 2}, Axes{1, 2}})
    for (const auto reduce : {Reduce(prod), Reduce(max), Reduce(mean), Reduce(logsumexp)})
      check([=](auto x) { return reduce(x[0], axes, false, Where::current()); }, {random(cube)});
  check([](auto x) { return prod(x[0], {0, 2}); }, {random({2, 2, 2, 2})});
  for (const Longs& order : {Longs{1, 2, 0}, Longs{2, 0, 1}})
    check([=](auto x) { return permute(x[0], order); }, {random(cube)});
  check([](auto x) { return permute(x[0], {1, 2, 3, 0}); }, {random({2, 2, 2, 2})});
  check(
      [](auto x) {
        return broadcast_to(permute(x[0], {1, 2, 0}), {2, 2, 2, 2});
      },
      {random(cube)});
  check([](auto x) { return reverse(permute(x[0], {2, 0, 1}), {0}); }, {random(cube)});
}

TEST_F(Gradients, ProductWithZeros) {
  const auto f = jit(grad([](Tensor x) { return sum(prod(x, 1)); }));
  const Array x = Array::from(Doubles{2, 3, 4, 2, 0, 4, 0, 0, 4}, {3, 3});
  expect_near(f(x), {12, 8, 6, 0, 8, 0, 0, 0, 0}, 0);
}

// d2 prod(x) / dxi dxj is the product of the others, zeros or not.
TEST_F(Gradients, OfTheGradientOfProdHoldAtZeros) {
  const auto row = [](int64_t i) {
    return jit(grad([i](Tensor x) {
      return sum(slice(grad([](Tensor y) { return prod(y); })(x), {i}, {i + 1}));
    }));
  };
  const auto at = [](std::vector<double> values) {
    return Array::from(values, {static_cast<int64_t>(values.size())}, test_device());
  };
  const Array one_zero = at({2, 0, 3, 5});
  expect_near(row(0)(one_zero), {0, 15, 0, 0}, 0);
  expect_near(row(1)(one_zero), {15, 0, 10, 6}, 0);
  const Array two_zeros = at({0, 7, 0, 5, 2});
  expect_near(row(0)(two_zeros), {0, 0, 70, 0, 0}, 0);
  expect_near(row(1)(two_zeros), {0, 0, 0, 0, 0}, 0);
}

TEST_F(Gradients, TiesShareEqually) {
  const Array x = Array::from(Doubles{1, 3, 3, -1, 3}, {5});
  const auto greatest = jit(grad([](Tensor t) { return max(t) * 6; }));
  expect_near(greatest(x), {0, 2, 2, 0, 2}, 0);
  const auto pairwise = jit(grad<0, 1>([](Tensor a, Tensor b) { return sum(minimum(a, b)); }));
  const auto [a, b] =
      pairwise(Array::from(Doubles{1, 2, 3}, {3}), Array::from(Doubles{2, 2, 2}, {3}));
  expect_near(a, {1, 0.5, 0}, 0);
  expect_near(b, {0, 0.5, 1}, 0);
}

// ---- Contractions -----------------------------------------------------------------------------

TEST_F(Gradients, Dots) {
  const Function matmul = [](const std::vector<Tensor>& x) { return dot(x[0], x[1]); };
  check(matmul, {random({2, 3}), random({3, 2})});
  check(matmul, {random({3}), random({3})});
  check(matmul, {random({3}), random({3, 2})});
  check(matmul, {random({2, 3}), random({3})});
  check(matmul, {random({2, 2, 3}), random({3, 2})});
  check(matmul, {random({2, 3}), random({2, 3, 1})});
  check(matmul, {random({2, 1, 3}), random({2, 3, 2})});
  check(matmul, {random({2, 1, 1, 3}), random({2, 3, 2})});
  check(matmul, {random({0, 3}), random({3, 2})});
  check(matmul, {random({2, 0}), random({0, 3})});
}

TEST_F(Gradients, GeneralDots) {
  // Two contracted axes in crossed order, a batch axis that is not the first.
  check(
      [](auto x) {
        return dot_general(x[0], x[1],
                           {.batch_left = {1},
                            .batch_right = {2},
                            .contract_left = {3, 0},
                            .contract_right = {0, 3}});
      },
      {random({2, 2, 1, 3}), random({3, 2, 2, 2})});
  check(
      [](auto x) {
        return dot_general(x[0], x[1], {.contract_left = {0, 1}, .contract_right = {1, 0}});
      },
      {random({2, 3}), random({3, 2})});
  check([](auto x) { return dot_general(x[0], x[1], {}); }, {random({2}), random({3})});
  // Three axes in a circle: contracted, as batches, and both beside free ones.
  const Longs cube = {2, 2, 2};
  check(
      [](auto x) {
        return dot_general(x[0], x[1], {.contract_left = {0, 1, 2}, .contract_right = {1, 2, 0}});
      },
      {random(cube), random(cube)});
  check(
      [](auto x) {
        return dot_general(x[0], x[1], {.batch_left = {0, 1, 2}, .batch_right = {2, 0, 1}});
      },
      {random(cube), random(cube)});
  check(
      [](auto x) {
        return dot_general(x[0], x[1],
                           {.batch_left = {2},
                            .batch_right = {0},
                            .contract_left = {3, 0},
                            .contract_right = {2, 3}});
      },
      {random({2, 2, 2, 2}), random({2, 2, 2, 2})});
}

// ---- Compositions -----------------------------------------------------------------------------

TEST_F(Gradients, Compositions) {
  check([](auto x) { return nn::softmax(dot(x[0], x[1]) + x[2]); },
        {random({2, 3}), random({3, 4}), random({4})});
  check([](auto x) { return nn::layer_norm(x[0], x[1], x[2]); },
        {random({2, 5}), random({5}), random({5})});
  check([](auto x) { return nn::rms_norm(gelu(x[0]), x[1]); }, {random({2, 5}), random({5})});
  const Array labels = Array::from(Longs{2, 0, 1}, {3});
  check([=](auto x) { return nn::cross_entropy(x[0], constant(labels)); }, {random({3, 4})});
  check([](auto x) { return tanh(x[0]) * x[0] + exp(x[0] * x[0]) / (x[0] + 3); }, {random({3})});
}

TEST_F(Gradients, SecondDerivatives) {
  // The gradient of the gradient's weighted sum, checked as any gradient.
  const auto twice = [&](const Function& f, const std::vector<Array>& inputs) {
    check(
        [f](std::vector<Tensor> x) {
          std::vector<Tensor> parts;
          for (const Tensor& g :
               grad([f](std::vector<Tensor> y) { return weigh(f(std::move(y))); })(x))
            parts.push_back(reshape(g, {-1}));
          return concat(parts);
        },
        inputs, 1e-6);
  };
  twice([](auto x) { return pow(x[0], 3) * x[1]; }, {random({2}), random({2})});
  twice([](auto x) { return tanh(dot(x[0], x[1])); }, {random({2, 2}), random({2, 2})});
  twice([](auto x) { return nn::log_softmax(x[0]); }, {random({2, 3})});
  twice([](auto x) { return nn::layer_norm(x[0], x[1], x[1]); }, {random({2, 3}), random({3})});
  twice([](auto x) { return prod(x[0], 0) + max(x[0], 0); }, {random({3})});
  twice([](auto x) { return gelu(x[0]) + silu(x[0]) + softplus(x[0]); }, {random({3})});
  twice([](auto x) { return pad(slice(x[0] * x[0], 0, 1, 3), {1}, {0}) / x[0]; }, {random({3})});
}

TEST_F(Gradients, EqualArgumentsAreToldApart) {
  // Both arguments are one node, yet only the first is varied.
  const auto f = [](Tensor a, Tensor b) { return sum(a * b); };
  const auto first = jit([&](Tensor x) { return grad(f)(x, x); });
  expect_near(first(Array::from(Doubles{3}, {1})), {3}, 0);
  // exp(x) outside and the argument are one node as well.
  const auto outside = jit([](Tensor x) {
    const Tensor e = exp(x);
    return grad([&](Tensor y) { return sum(y * exp(x)); })(e);
  });
  expect_near(outside(Array::from(Doubles{0}, {1})), {1}, 0);
}

TEST_F(Gradients, NoPathGivesZeros) {
  const auto f = jit(grad<0, 1>([](Tensor x, Tensor y) {
    return sum(floor(x)) + sum(cast(x > y, f64)) + sum(stop_gradient(x * 2)) +
           sum(cast(argmax(x), f64)) + sum(cast(argsort(x), f64));
  }));
  const auto [x, y] = f(Array::from(Doubles{1.5, 2.5}, {2}), Array::from(Doubles{1, 3}, {2}));
  expect_near(x, {0, 0}, 0);
  expect_near(y, {0, 0}, 0);
}

TEST_F(Gradients, SortedElementsComeFromTheirPlaces) {
  const auto f =
      jit(grad([](Tensor x) { return sum(sort(x) * arange(f64, 4)) + sum(top_k(x, 2).values); }));
  expect_near(f(Array::from(Doubles{4, 1, 3, 2}, {4})), {4, 0, 3, 1}, 0);
}

TEST_F(Gradients, StopGradientLeavesNoTrace) {
  const std::string text = jit([](Tensor x) { return nn::softmax(x); }).graph(spec(f32, {2, 3}));
  EXPECT_EQ(text.find("bitcast"), std::string::npos) << text;
}

TEST_F(Gradients, ValueComesWithExtras) {
  const auto f =
      jit(value_and_grad([](Tensor x, Tensor y) { return std::pair(sum(x * y), x + y); }));
  const auto [value, gradient] =
      f(Array::from(Doubles{1, 2}, {2}), Array::from(Doubles{3, 4}, {2}));
  EXPECT_EQ(value.first.item(), 11);
  expect_near(value.second, {4, 6}, 0);
  expect_near(gradient, {3, 4}, 0);
}

TEST_F(Gradients, StructuresAreKept) {
  const Parameters parameters = {{"a", Array::from(Doubles{2}, {})},
                                 {"b.c", Array::from(Doubles{5}, {})}};
  const auto f = jit(grad([](Weights w) { return w.at("a") * w.at("a") * w.at("b.c"); }));
  const Parameters gradient = f(parameters);
  EXPECT_EQ(gradient.names(), parameters.names());
  EXPECT_EQ(gradient.at("a").item(), 20);
  EXPECT_EQ(gradient.at("b.c").item(), 4);
}

TEST_F(Gradients, FiniteFarFromZero) {
  const std::vector<float> far = {-1e4f, -100, -1, 0, 1, 100, 1e4f};
  const Array x = Array::from(far, {7});
  for (const ElementwiseInfo& row : elementwise_table()) {
    const auto op = *parse_elementwise(row.name);
    const bool activation = (row.op_class == OpClass::Formula || row.name == "tanh" ||
                             row.name == "sigmoid" || row.name == "erf" || row.name == "erfc") &&
                            (row.gradient || row.through_body);
    // These have poles, overflow, or no value somewhere.
    using enum ElementwiseOp;
    const auto limited = {rsqrt, reciprocal, tan,    asin,   acos,    sinh, cosh,
                          acosh, atanh,      erfinv, lgamma, digamma, cbrt};
    if (!activation || std::ranges::find(limited, op) != limited.end()) continue;
    for (const DType dtype : {f32, f64, f16, bf16}) {
      SCOPED_TRACE(std::string(row.name) + " " + std::string(name(dtype)));
      const auto f = jit([&](Tensor t) {
        return cast(grad([&](Tensor u) {
                      std::vector<Operand> operands = {u};
                      while (operands.size() < row.arity) operands.emplace_back(Operand(0.5));
                      return sum(detail::elementwise(op, operands, Where::current()));
                    })(cast(t, dtype)),
                    f64);
      });
      // Squares of 1e4 are no f16.
      if (dtype == f16 && op == ElementwiseOp::square) continue;
      for (const double value : f(x).to_vector<double>()) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST_F(Gradients, Of16BitRowsAreRoundedOnce) {
  const auto of_gelu = grad([](Tensor t) { return sum(gelu(t)); });  // through the row's body
  const auto of_erf = grad([](Tensor t) { return sum(erf(t)); });    // by the row's own formula
  const auto slopes = jit([=](Tensor t) { return std::pair(of_gelu(t), of_erf(t)); });
  for (const DType dtype : {f16, bf16}) {
    const Array x = arange(-2, 2, 1.0 / 32, dtype);
    const auto [gelus, erfs] = slopes(x);
    const auto [exact_gelus, exact_erfs] = slopes(Array::from(to_doubles(x), x.shape()));
    for (const auto& [got, exact] : {std::pair(to_doubles(gelus), to_doubles(exact_gelus)),
                                     std::pair(to_doubles(erfs), to_doubles(exact_erfs))}) {
      for (size_t i = 0; i < got.size(); ++i) {
        // Half a unit of the last place, and what f32 adds to it.
        const double unit = std::ldexp(std::abs(exact[i]), dtype == f16 ? -11 : -8);
        EXPECT_NEAR(got[i], exact[i], std::abs(exact[i]) < 0.05 ? 1e-3 : 1.01 * unit) << i;
      }
    }
  }
}

// What the gradient needs of a value that the program has anyway is that value, also behind a row
// that is differentiated through its body.
TEST_F(Gradients, OfFormulasComputeNoProductAgain) {
  const auto loss = [](Tensor x, Tensor w, Tensor v) { return sum(dot(gelu(dot(x, w)), v)); };
  const auto step = jit(
      [=](Tensor x, Tensor w, Tensor v) { return std::pair(loss(x, w, v), grad(loss)(x, w, v)); });
  for (const DType dtype : {bf16, f32}) {
    const std::string text =
        step.graph(spec(dtype, {2, 3}), spec(dtype, {3, 5}), spec(dtype, {5, 7}));
    size_t products = 0;
    for (size_t at = text.find(" = dot "); at != std::string::npos;
         at = text.find(" = dot ", at + 1))
      ++products;
    // Two forward, the gradient of gelu's result, and that of x.
    EXPECT_EQ(products, 4U) << text;
  }
}

TEST_F(Gradients, LossesAreFiniteFarFromZero) {
  const Array logits = Array::from(std::vector<float>{-1e4f, 0, 1e4f, 1e4f, 1e4f, -1e4f}, {2, 3});
  const Array labels = Array::from(Longs{0, 2}, {2});
  const auto f = jit(value_and_grad([](Tensor x, Tensor y) { return nn::cross_entropy(x, y); }));
  const auto [loss, gradient] = f(logits, labels);
  EXPECT_NEAR(loss.item(), (2e4 + 2e4 + std::log(2)) / 2, 1e-2);
  expect_near(gradient, {-0.5, 0, 0.5, 0.25, 0.25, -0.5}, 1e-6);
}

TEST_F(Gradients, Errors) {
  const Array x = Array::from(Doubles{1, 2}, {2});
  std::string text = error_of([&] { jit(grad([](Tensor t) { return t * 2; }))(x); });
  EXPECT_CONTAINS(text, "f64[2]");
  EXPECT_CONTAINS(text, "not a floating scalar");
  EXPECT_CONTAINS(text, "gradient_test.cpp");
  text = error_of(
      [&] { jit(grad([](Tensor t) { return sum(cast(t, f32)); }))(Array::from(Longs{1}, {1})); });
  EXPECT_CONTAINS(text, "no derivative with respect to i64[1]");
}

}  // namespace
}  // namespace braze
