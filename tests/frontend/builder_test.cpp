// What the Tensor functions build, and how they refuse.
#include "tests/frontend/support.h"

namespace braze {
namespace {

class BuilderTest : public OnDevice {};

Array vector(const Doubles& values) {
  return Array::from(values, {static_cast<int64_t>(values.size())});
}

/// The line of the caller, as errors show it.
std::string here(int offset, Where where = Where::current()) {
  return "builder_test.cpp:" + std::to_string(where.line() + static_cast<uint32_t>(offset));
}

TEST_F(BuilderTest, NumbersTakeTheDtype) {
  for (const DType dtype : {f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64}) {
    const auto f = jit([](Tensor x) { return 1 + x * 2 - 1; });
    const Array x = full({3}, 3, dtype);
    const Array y = f(x);
    EXPECT_EQ(y.dtype(), dtype);
    expect_near(y, {6, 6, 6}, 0);
  }
}

// A number that is an argument is judged when it comes, and the error names it and the line.
TEST_F(BuilderTest, NumbersAsArgumentsMustBeValues) {
  const auto f =
      jit([](Tensor x, Tensor k) { return x + k; }, {.name = "shift", .inputs = {"x", "by"}});
  const std::string line = here(-1);
  expect_near(f(full({2}, 1, i8), 126), {127, 127}, 0);
  for (const int64_t wrong : {200, -129}) {
    const std::string text = error_of([&] { f(full({2}, 1, i8), wrong); });
    EXPECT_CONTAINS(text, "shift: by: " + std::to_string(wrong) + " is not a value of i8");
    EXPECT_CONTAINS(text, "choose a dtype that has this value, such as i64");
    EXPECT_CONTAINS(text, line);
  }
  expect_near(f(full({2}, 1, i8), -128), {-127, -127}, 0);
  EXPECT_CONTAINS(error_of([&] { f(full({2}, 1, u64), -1); }), "-1 is not a value of u64");
  EXPECT_CONTAINS(error_of([&] { f(full({2}, 1, f16), 1e6); }), "1e+06 is not a value of f16");
  EXPECT_EQ(f(full({2}, 0, u64), UINT64_MAX).to_vector<uint64_t>()[1], UINT64_MAX);
  expect_near(f(full({2}, 0, f64), UINT64_MAX), {0x1p64, 0x1p64}, 0);
  EXPECT_CONTAINS(error_of([&] { f(full({2}, 1, i64), UINT64_MAX); }),
                  "18446744073709551615 is not a value of i64");
  // In trees too, and where a function calls another with a number that is known.
  const auto pair = jit([](std::pair<Tensor, Tensor> p) { return p.first * p.second; });
  EXPECT_CONTAINS(error_of([&] {
                    pair(std::pair{full({2}, 1, u8), 256});
                  }),
                  "arg0.1: 256 is not a value of u8");
  expect_near(jit([&](Tensor x) { return f(x, UINT64_MAX); })(full({2}, 0, f64)), {0x1p64, 0x1p64},
              0);
  const auto outer = jit([&](Tensor x) { return f(x, 300); });
  EXPECT_CONTAINS(error_of([&] { outer(full({2}, 1, i8)); }), "300 is not a value of i8");
}

// Numbers of one kind have one signature, whatever their C++ types.
TEST_F(BuilderTest, TypesOfNumbersCompileOnce) {
  const auto f = jit([](Tensor x, Tensor k) { return x * k; });
  const Array x = full({2}, 3);
  for (const auto& y : {f(x, 2), f(x, 2L), f(x, 2u), f(x, char{2}), f(x, uint64_t{2})})
    expect_near(y, {6, 6}, 0);
  EXPECT_EQ(f.compile_count(), 1);
  expect_near(f(x, 2.0), {6, 6}, 0);
  expect_near(f(x, 2.0f), {6, 6}, 0);
  EXPECT_EQ(f.compile_count(), 2) << "a real number is f64, an integer i64";
  // An Array is not a number, although it has the same type.
  EXPECT_CONTAINS(error_of([&] { f(x, full({}, 2, f64)); }), "have different dtypes");
}

TEST_F(BuilderTest, NumbersMustBeValues) {
  const Array x = full({2}, 1, i32);
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return t * 0.5; })(x); }),
                  "0.5 is not a value of i32");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return t + 3000000000; })(x); }),
                  "3000000000 is not a value of i32");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return cast(t, u32) + -1; })(x); }),
                  "-1 is not a value of u32");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return t + UINT64_MAX; })(zeros({1}, i64)); }),
                  "18446744073709551615 is not a value of i64");
  expect_near(jit([](Tensor t) { return t + UINT64_MAX; })(zeros({1}, f64)), {0x1p64}, 0);
  EXPECT_EQ(jit([](Tensor t) { return t + UINT64_MAX; })(zeros({1}, u64)).to_vector<uint64_t>()[0],
            UINT64_MAX);
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return cast(t, i8) + 200; })(x); }),
                  "200 is not a value of i8");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return cast(t, u8) - -1; })(x); }),
                  "-1 is not a value of u8");
  const std::string text = error_of([] { jit([] { return full(i32, {3}, 0.5); })(); });
  EXPECT_CONTAINS(text, "full: 0.5 is not a value of i32");
  EXPECT_CONTAINS(text, "choose a dtype that has this value, such as f32");
  for (const double value : {1e30, 0.5, -1e10, std::nan("")})
    EXPECT_CONTAINS(error_of([&] { full({2}, value, i32); }), "is not a value of i32");
  for (const double value : {1e39, -1e39})
    EXPECT_CONTAINS(error_of([&] { jit([=](Tensor t) { return t + value; })(zeros({1})); }),
                    "e+39 is not a value of f32");
  EXPECT_CONTAINS(error_of([&] { full({2}, 65520, f16); }), "65520 is not a value of f16");
  EXPECT_CONTAINS(error_of([&] { full({2}, 0x1.ffp127, bf16); }), "is not a value of bf16");
  EXPECT_CONTAINS(error_of([&] { full({2}, 0x1.ffffffp127); }), "is not a value of f32");
  expect_near(full({1}, 65519.99, f16), {65504}, 0);
  expect_near(full({1}, 0x1.fefffffp127, bf16), {0x1.fep127}, 0);
  expect_near(full({1}, 0x1.fffffefp127), {0x1.fffffep127}, 0);
  EXPECT_EQ(full({1}, INFINITY, f16).item(), INFINITY);
  EXPECT_CONTAINS(error_of([] { Dim(UINT64_MAX); }), "18446744073709551615 is too large");
  EXPECT_EQ(error_of([&] { jit([](Tensor t) { return t * 2.0; })(x); }), "");
}

TEST_F(BuilderTest, OperatorErrorsNameTypesLineAndFix) {
  const auto f = jit([](Tensor x, Tensor y) { return x * 2 + y; });
  const std::string line = here(-1);
  const std::string shapes = error_of([&] { f(zeros({4, 3}), zeros({5})); });
  EXPECT_CONTAINS(shapes, "add: f32[4, 3] and f32[5] do not broadcast");
  EXPECT_CONTAINS(shapes, line);
  EXPECT_CONTAINS(shapes, "axes align at the end");
  const std::string dtypes = error_of([&] { f(zeros({4}), zeros({4}, f16)); });
  EXPECT_CONTAINS(dtypes, "f32[4] and f16[4]");
  EXPECT_CONTAINS(dtypes, "cast(..., f32)");
  EXPECT_CONTAINS(dtypes, line);
}

TEST_F(BuilderTest, EveryKindOfCallNamesTheLine) {
  const Array x = zeros({2, 3});
  const auto expect_here = [&](auto function, Where where = Where::current()) {
    const std::string text = error_of([&] { jit(function)(x); });
    EXPECT_CONTAINS(text, here(0, where));
  };
  expect_here([](Tensor t) { return logical_and(t, t); });
  expect_here([](Tensor t) { return reshape(t, {4, 2}); });
  expect_here([](Tensor t) { return reshape(t, {4, -1}); });
  expect_here([](Tensor t) { return permute(t, {0, 0}); });
  expect_here([](Tensor t) { return permute(t, {0}); });
  expect_here([](Tensor t) { return broadcast_to(t, {2, 4}); });
  expect_here([](Tensor t) { return squeeze(t, 0); });
  expect_here([](Tensor t) { return expand_dims(t, 5); });
  expect_here([](Tensor t) { return slice(t, 0, 1, 9); });
  expect_here([](Tensor t) { return slice(t, {0}, {1}); });
  expect_here([](Tensor t) { return pad(t, {-1, 0}, {0, 0}); });
  expect_here([](Tensor t) { return concat({t, expand_dims(t, 0)}); });
  expect_here([](Tensor t) { return concat({}, t.rank() > 9); });
  expect_here([](Tensor t) { return stack({t, t * 2, transpose(t)}); });
  expect_here([](Tensor t) { return take(t, t); });
  expect_here([](Tensor t) { return one_hot(t, 3); });
  expect_here([](Tensor t) { return sum(t, 2); });
  expect_here([](Tensor t) { return sum(t, {0, -2}); });
  expect_here([](Tensor t) { return any(t); });
  expect_here([](Tensor t) { return mean(cast(t, i64)); });
  expect_here([](Tensor t) { return var(cast(t, i64)); });
  expect_here([](Tensor t) { return logsumexp(cast(t, i64)); });
  expect_here([](Tensor t) { return argmax(t, 2); });
  expect_here([](Tensor t) { return argsort(t, 2); });
  expect_here([](Tensor t) { return sort(t, -3); });
  expect_here([](Tensor t) { return top_k(t, 1 << 20).values; });
  expect_here([](Tensor t) { return top_k(t, -1).indices; });
  expect_here([](Tensor t) { return cumsum(t, 2); });
  expect_here([](Tensor t) { return cumprod(t > 0); });
  expect_here([](Tensor t) { return dot(t, t); });
  const DotAxes crossed{.contract_left = {0}, .contract_right = {1}};
  expect_here([=](Tensor t) { return dot_general(t, t, crossed); });
  expect_here([](Tensor t) { return bitcast(t, f64); });
  expect_here([](Tensor t) { return nn::layer_norm(t, slice(t, 1, 0, 2), t); });
  expect_here([](Tensor t) { return nn::cross_entropy(t, t); });
  expect_here([](Tensor t) { return nn::linear({{"weight", t}}, t); });
  expect_here([](Tensor t) { return random::normal(t, {2}); });
  expect_here([](Tensor t) { return update(t, sum(t)); });
  expect_here([](Tensor t) { return where(t, t, t); });
  expect_here([](Tensor) { return add(1.0, 2); });
  expect_here([](Tensor t) { return t + Tensor(); });
}

TEST_F(BuilderTest, PowersOfTensorsAndNumbers) {
  const Array x = Array::from(Doubles{0, 0.25, 4, 9}, {4}), y = Array::from(Doubles{2, -1}, {2, 1});
  expect_near(jit([](Tensor t) { return pow(t, 0.5); })(x), {0, 0.5, 2, 3}, 1e-15);
  expect_near(jit([](Tensor t) { return pow(t, 0.5f); })(x), {0, 0.5, 2, 3}, 1e-15);
  expect_near(jit([](Tensor t) { return pow(2.0, t); })(x), {1, std::exp2(0.25), 16, 512}, 1e-15);
  expect_near(
      jit([](Tensor s, Tensor t) { return pow(s, t); })(Array::from(Doubles{4, 0.5}, {2}), y),
      {16, 0.25, 0.25, 2}, 1e-15);
  // Integer exponents of floats: their own values, whatever products of x do in between.
  const Array small = Array::from(std::vector<float>{1e-20f, -1e20f, 1.5f}, {3});
  EXPECT_EQ(jit([](Tensor t) { return pow(t, -2); })(small).to_vector<float>(),
            (std::vector<float>{INFINITY, 1e-40f, 1 / 2.25f}));
  EXPECT_EQ(to_doubles(jit([](Tensor t) { return pow(cast(t, bf16), 257); })(
                Array::from(Doubles{-1, 1, -2}, {3}))),
            (Doubles{-1, 1, -INFINITY}));
  const Array integers = Array::from(Longs{-3, 0, 2}, {3});
  expect_near(jit([](Tensor t) { return pow(t, 5); })(integers), {-243, 0, 32}, 0);
  expect_near(jit([](Tensor t) { return pow(t, 0); })(integers), {1, 1, 1}, 0);
  expect_near(jit([](Tensor t) { return pow(t, size_t{3}); })(integers), {-27, 0, 8}, 0);
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return pow(t, 0.5); })(integers); }),
                  "pow: 0.5 is not a value of i64");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return pow(t, UINT64_MAX); })(x); }),
                  "is out of range");
}

TEST_F(BuilderTest, ErrorsNameTheFunctionThatWasCalled) {
  const Array x = zeros({2, 3}), i = zeros({2, 3}, i32);
  const auto text = [](auto function, const Array& argument) {
    return error_of([&] { jit(function)(argument); });
  };
  EXPECT_CONTAINS(text([](Tensor t) { return any(t); }, x), "any: is not defined on f32[2, 3]");
  EXPECT_CONTAINS(text([](Tensor t) { return pow(t, -2); }, i),
                  "pow: i32[2, 3] to the power -2 has no integer values");
  EXPECT_CONTAINS(text([](Tensor t) { return nn::layer_norm(t, full(f32, {4}, 1), t); }, x),
                  "layer_norm: scale f32[4] does not fit the last axis of f32[2, 3]");
  EXPECT_CONTAINS(text([](Tensor t) { return nn::dropout(t, 0.5, t); }, x),
                  "dropout: f32[2, 3] is not a key");
  EXPECT_CONTAINS(text([](Tensor t) { return where(t, t, t); }, x),
                  "where: the condition is f32[2, 3], not bool");
  // Functions called afterwards are themselves again.
  EXPECT_CONTAINS(text([](Tensor t) { return reciprocal(t); }, i), "reciprocal: is not defined");
}

TEST_F(BuilderTest, DTypesPrint) {
  std::ostringstream out;
  out << bf16 << ' ' << boolean;
  EXPECT_EQ(out.str(), "bf16 bool");
}

TEST_F(BuilderTest, TensorsStayInTheirFunction) {
  Tensor kept;
  jit([&](Tensor x) { return kept = x; })(zeros({2}));
  EXPECT_CONTAINS(error_of([&] { jit([&](Tensor x) { return x + kept; })(zeros({2})); }),
                  "belong to two functions");
  EXPECT_CONTAINS(error_of([&] { jit([&](Tensor) { return kept; })(zeros({2})); }),
                  "a Tensor of another function");
  EXPECT_CONTAINS(error_of([] { arange(f32, {3}, 0); }), "no graph is under construction");
  EXPECT_CONTAINS(error_of([] { Tensor().dtype(); }), "empty");
}

TEST_F(BuilderTest, Comparisons) {
  const auto f = jit([](Tensor x) {
    return stack({x<2, x <= 2, x> 2, x >= 2, x == 2, x != 2, !(x < 2), (x > 1) & (x < 3)});
  });
  expect_near(f(vector({1, 2, 3})),
              {1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0}, 0);
}

TEST_F(BuilderTest, NextAfterIsThatOfC) {
  const auto check = [](const auto& x, const auto& y) {
    using T = typename std::decay_t<decltype(x)>::value_type;
    const auto count = static_cast<int64_t>(x.size());
    const auto got = jit([](Tensor a, Tensor b) { return next_after(a, b); })(
        Array::from(x, {count}), Array::from(y, {count}));
    const std::vector<T> values = got.template to_vector<T>();
    for (size_t i = 0; i < x.size(); ++i) {
      const T expected = std::nextafter(x[i], y[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(values[i])) << i;
      } else {
        EXPECT_EQ(values[i], expected) << i;
        EXPECT_EQ(std::signbit(values[i]), std::signbit(expected)) << i;
      }
    }
  };
  const std::vector<float> x = {1, 1, -1, -1, 0, -0.0f, 2, INFINITY, NAN, 1, -1e-45f, 3.4e38f, 0};
  const std::vector<float> y = {2, 0, 0, -2, 1, -1, 2, 0, 1, NAN, 1, INFINITY, -0.0f};
  check(x, y);
  check(Doubles(x.begin(), x.end()), Doubles(y.begin(), y.end()));
  // 16 bits have their own neighbours, and a number takes the dtype.
  for (const DType dtype : {f16, bf16}) {
    const auto f = jit([=](Tensor t) {
      const Tensor one = cast(t, dtype);
      return std::pair(cast(next_after(one, 2), f32) - 1, cast(next_after(0.0, one), f32));
    });
    const auto [above, least] = f(Array::from(std::vector<float>{1}, {1}));
    EXPECT_EQ(to_doubles(above)[0], dtype == f16 ? 0x1p-10 : 0x1p-7);
    EXPECT_EQ(to_doubles(least)[0], dtype == f16 ? 0x1p-24 : 0x1p-133);
  }
  EXPECT_CONTAINS(
      error_of([] { jit([](Tensor t) { return next_after(t, t); }).graph(spec(i32, {2})); }),
      "next_after");
}

TEST_F(BuilderTest, FiniteAndInfinite) {
  const std::vector<float> x = {0, -1, 65504, INFINITY, -INFINITY, NAN};
  for (const DType dtype : {f16, bf16, f32, f64, f8e5m2, f8e4m3}) {
    const auto f = jit([=](Tensor t) {
      const Tensor y = cast(t, dtype);
      return std::pair(cast(is_finite(y), i32), cast(is_inf(y), i32));
    });
    const auto [finite, infinite] = f(Array::from(x, {6}));
    // 8 bits have no 65504; f8e4m3 has no infinities either.
    const bool is_short = size_of(dtype) == 1, has_infinity = dtype != f8e4m3;
    const int32_t most = is_short ? 0 : 1;
    EXPECT_EQ(finite.to_vector<int32_t>(), (std::vector<int32_t>{1, 1, most, 0, 0, 0}))
        << name(dtype);
    const int32_t inf = has_infinity ? 1 : 0, great = dtype == f8e5m2 ? 1 : 0;
    EXPECT_EQ(infinite.to_vector<int32_t>(), (std::vector<int32_t>{0, 0, great, inf, inf, 0}))
        << name(dtype);
  }
  EXPECT_CONTAINS(
      error_of([] { jit([](Tensor t) { return is_finite(t); }).graph(spec(i32, {2})); }),
      "every integer is finite");
}

TEST_F(BuilderTest, CompoundAssignment) {
  const auto f = jit([](Tensor x) {
    x += 1;
    x *= x;
    x -= 2;
    x /= 2;
    return x;
  });
  expect_near(f(vector({1, 2})), {1, 3.5}, 0);
}

TEST_F(BuilderTest, ArraysAreConstants) {
  const Array table = vector({10, 20});
  const auto f = jit([&](Tensor x) { return x + table * constant(table); });
  expect_near(f(vector({1, 2})), {101, 402}, 0);
}

TEST_F(BuilderTest, Movement) {
  const Array x = arange(0, 6, 1, f64);
  const auto run = [&](auto function) { return jit(function)(x); };
  expect_near(run([](Tensor t) { return transpose(reshape(t, {2, -1})); }), {0, 3, 1, 4, 2, 5}, 0);
  expect_near(run([](Tensor t) { return slice(t, 0, -3, -1); }), {3, 4}, 0);
  expect_near(run([](Tensor t) { return slice(t, 0, 1, 6, 2); }), {1, 3, 5}, 0);
  expect_near(run([](Tensor t) { return pad(slice(t, 0, 1, 3), {1}, {2}, 9, {1}); }),
              {9, 1, 9, 2, 9, 9}, 0);
  expect_near(run([](Tensor t) { return reverse(t); }), {5, 4, 3, 2, 1, 0}, 0);
  EXPECT_EQ(run([](Tensor t) { return stack({t, t}, 1); }).shape(), (Longs{6, 2}));
  EXPECT_EQ(run([](Tensor t) { return squeeze(reshape(t, {1, 6, 1})); }).shape(), Longs{6});
  EXPECT_EQ(run([](Tensor t) {
              return squeeze(reshape(t, {1, 6, 1}), -1);
            }).shape(),
            (Longs{1, 6}));
}

TEST_F(BuilderTest, OneHot) {
  const auto f = jit([](Tensor x) { return one_hot(x, 3); });
  expect_near(f(Array::from(Longs{2, 0, 7}, {3})), {0, 0, 1, 1, 0, 0, 0, 0, 0}, 0);
}

TEST_F(BuilderTest, RunningValues) {
  const Array x = Array::from(Doubles{1, 2, 3, 4, 5, 9}, {2, 3});
  const auto run = [&](auto function) { return jit(function)(x); };
  expect_near(run([](Tensor t) { return cumsum(t); }), {1, 3, 6, 4, 9, 18}, 0);
  expect_near(run([](Tensor t) { return cumsum(t, 0); }), {1, 2, 3, 5, 7, 12}, 0);
  expect_near(run([](Tensor t) { return cumsum(t, 1, {.reverse = true}); }), {6, 5, 3, 18, 14, 9},
              0);
  expect_near(run([](Tensor t) { return cumprod(t, -1, {.exclusive = true}); }),
              {1, 1, 2, 1, 4, 20}, 0);
  expect_near(run([](Tensor t) { return cummax(5 - abs(t - 2)); }), {4, 5, 5, 3, 3, 3}, 0);
  expect_near(run([](Tensor t) { return cummin(t, 0, {.reverse = true}); }), {1, 2, 3, 4, 5, 9}, 0);
}

TEST_F(BuilderTest, ScansOfTuples) {
  using Parts = std::vector<Tensor>;
  const Array a = Array::from(Doubles{0.5, -0.25, 2, 1, 0, 3}, {2, 3});
  const Array b = Array::from(Doubles{1, 2, -3, 2, 1, 4}, {2, 3});
  const auto run = [&](auto function) { return jit(function)(a, b); };
  expect_near(run([](Tensor x, Tensor y) { return recurrence(x, y); }), {1, 1.75, 0.5, 2, 1, 7},
              1e-15);
  expect_near(run([](Tensor x, Tensor y) { return recurrence(x, y, 0); }), {1, 2, -3, 3, 1, -5},
              1e-15);
  const auto combine = [](const Parts& x, const Parts& y) -> Parts {
    return {x[0] * y[0], x[1] * y[0] + y[1]};
  };
  expect_near(run([=](Tensor x, Tensor y) {
                return scan(combine, {x, y}, {1, 0}, 1, {.exclusive = true})[1];
              }),
              {0, 1, 1.75, 0, 2, 1}, 1e-15);
  expect_near(run([=](Tensor x, Tensor y) {
                return scan(combine, {x, y}, {1, 0}, 1)[0];
              }),
              {0.5, -0.125, -0.25, 1, 0, 0}, 1e-15);
  const auto rejected = [&](auto function, const std::string& part) {
    try {
      run(function);
      ADD_FAILURE() << "no error with " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const auto first = [](const Parts& x, const Parts&) -> Parts { return x; };
  rejected(
      [=](Tensor x, Tensor y) {
        return scan(first, {x, y}, {1}, 1)[0];
      },
      "2 parts and an identity of 1 numbers");
  rejected(
      [=](Tensor x, Tensor y) {
        return scan(first, {x, sum(y, 0)}, {1, 0}, 0)[0];
      },
      "the shapes of operands 0 and 1 differ");
  rejected([=](Tensor x, Tensor) { return scan(first, {x}, {0}, 2)[0]; }, "axis 2");
  rejected(
      [](Tensor x, Tensor y) {
        const auto captures = [=](const Parts& l, const Parts&) -> Parts { return {l[0] + y}; };
        return scan(captures, {x}, {0})[0];
      },
      "belong to two functions");
  rejected(
      [](Tensor x, Tensor) {
        const auto two = [](const Parts& l, const Parts& r) -> Parts { return {l[0], r[0]}; };
        return scan(two, {x}, {0})[0];
      },
      "returns 2 tensors for tuples of 1");
  rejected(
      [](Tensor x, Tensor) {
        const auto casts = [](const Parts& l, const Parts&) -> Parts {
          return {cast(cast(l[0], i32), f64)};
        };
        return scan(casts, {x}, {0})[0];
      },
      "`combine` uses convert");
  rejected(
      [](Tensor x, Tensor) {
        const auto flags = [](const Parts& l, const Parts& r) -> Parts { return {l[0] < r[0]}; };
        return scan(flags, {x}, {0})[0];
      },
      "part 0 is f64, but `combine` returns bool");
}

TEST_F(BuilderTest, Reductions) {
  const Array x = Array::from(Doubles{1, 2, 3, 4, 5, 9}, {2, 3});
  const auto run = [&](auto function) { return jit(function)(x); };
  expect_near(run([](Tensor t) { return mean(t, 1); }), {2, 6}, 0);
  expect_near(run([](Tensor t) { return var(t, 1); }), {2.0 / 3, 14.0 / 3}, 1e-15);
  expect_near(run([](Tensor t) { return prod(t); }), {1080}, 0);
  expect_near(run([](Tensor t) { return argmin(t, 0); }), {0, 0, 0}, 0);
  EXPECT_EQ(run([](Tensor t) { return argmax(t, 1, true); }).shape(), (Longs{2, 1}));
  EXPECT_EQ(run([](Tensor t) { return sum(t, {0, 1}, true); }).shape(), (Longs{1, 1}));
  expect_near(run([](Tensor t) { return all(t > 0, 1); }), {1, 1}, 0);
  expect_near(run([](Tensor t) { return any(t > 4, 1); }), {0, 1}, 0);
}

TEST_F(BuilderTest, Sorts) {
  const Array x = Array::from(Doubles{3, 1, 2, 5, 5, 4}, {2, 3});
  const auto run = [&](auto function) { return jit(function)(x); };
  expect_near(run([](Tensor t) { return argsort(t); }), {1, 2, 0, 2, 0, 1}, 0);
  expect_near(run([](Tensor t) { return argsort(t, 1, true); }), {0, 2, 1, 0, 1, 2}, 0);
  expect_near(run([](Tensor t) { return sort(t); }), {1, 2, 3, 4, 5, 5}, 0);
  expect_near(run([](Tensor t) { return sort(t, 0, true); }), {5, 5, 4, 3, 1, 2}, 0);
  expect_near(run([](Tensor t) { return top_k(t, 2).values; }), {3, 2, 5, 5}, 0);
  expect_near(run([](Tensor t) { return top_k(t, 2).indices; }), {0, 2, 0, 1}, 0);
  expect_near(run([](Tensor t) { return top_k(t, 1, 0, false).values; }), {3, 1, 2}, 0);
  EXPECT_EQ(run([](Tensor t) { return top_k(t, 0).values; }).shape(), (Longs{2, 0}));
}

TEST_F(BuilderTest, LogSumExp) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto f = jit([](Tensor x) { return logsumexp(x, 1); });
  const Array y = f(Array::from(Doubles{1000, 1000, -inf, -inf, inf, 0}, {3, 2}));
  const Doubles values = y.to_vector<double>();
  EXPECT_NEAR(values[0], 1000 + std::log(2), 1e-12);
  EXPECT_EQ(values[1], -inf);
  EXPECT_EQ(values[2], inf);
}

TEST_F(BuilderTest, MeanOfSixteenBits) {
  // The sum is beyond f16, the mean is not.
  const auto f = jit([](Tensor x) { return mean(x); });
  expect_near(f(full({1000}, 200, f16)), {200}, 0);
}

TEST_F(BuilderTest, DotShapes) {
  const auto shape = [](Longs x, Longs y) {
    return jit([](Tensor a, Tensor b) { return dot(a, b); })(zeros(std::move(x)),
                                                             zeros(std::move(y)))
        .shape();
  };
  EXPECT_EQ(shape({3}, {3}), Longs{});
  EXPECT_EQ(shape({2, 3}, {3}), Longs{2});
  EXPECT_EQ(shape({3}, {3, 4}), Longs{4});
  EXPECT_EQ(shape({5, 2, 3}, {3, 4}), (Longs{5, 2, 4}));
  EXPECT_EQ(shape({2, 3}, {5, 6, 3, 4}), (Longs{5, 6, 2, 4}));
  EXPECT_EQ(shape({3}, {5, 3, 4}), (Longs{5, 4}));
  EXPECT_EQ(shape({5, 1, 2, 3}, {6, 3, 4}), (Longs{5, 6, 2, 4}));
}

TEST_F(BuilderTest, DotKeepsF32OfSixteenBits) {
  const auto f = jit([](Tensor a, Tensor b) { return dot(a, b, f32); });
  const Array y = f(full({1, 4}, 0.1, bf16), full({4, 1}, 1, bf16));
  EXPECT_EQ(y.dtype(), f32);
}

TEST_F(BuilderTest, DimsAreDeclaredInText) {
  EXPECT_EQ(Dim("n:1..64").to_string(), "n");
  EXPECT_EQ((Dim("n:1..64") * 4 + 2 - Dim("n:1..64")).to_string(),
            (Dim("n:1..64") * 3 + 2).to_string());
  for (const char* bad : {"n", "n:", "n:1", "n:1..", "n:4..1", ":1..4", "1n:1..4", "n:1..4%0",
                          "n:1..4%", "n:5..7%8", "n:1..4 ", "n:-1..4", "n:1..99999999999999999999"})
    EXPECT_CONTAINS(error_of([&] { Dim dim(bad); }), "does not declare a symbolic extent");
  EXPECT_CONTAINS(error_of([] { Dim("n:1..4").value(); }), "symbolic");
  for (const char* reserved : {"d0:1..4", "lane:1..4", "tid:1..4", "e12:1..4"})
    EXPECT_CONTAINS(error_of([&] { Dim dim(reserved); }), "is a reserved name");
}

TEST_F(BuilderTest, NamesAreShown) {
  const std::string text =
      jit([](Tensor x) { return (x * 2).label("doubled") + 1; }).graph(spec(f32, {2}));
  EXPECT_CONTAINS(text, "%doubled");
}

// Two codes a byte, the low half first; a scale for each row.
TEST_F(BuilderTest, FourBitWeightsAreAnExpressionOverBytes) {
  const auto f = jit([](Tensor x, Tensor w, Tensor scale) {
    const Tensor low = expand_dims(w & 15, -1), high = expand_dims(shr(w, 4), -1);
    const Tensor codes = reshape(concat({low, high}, -1), {w.dim(0), 2 * w.dim(1)});
    return dot(x, transpose((cast(codes, f32) - 8) * expand_dims(scale, -1)));
  });
  const Array w = Array::from(std::vector<uint8_t>{0x98, 0xf0, 0x07, 0x18}, {2, 2});
  const Array x = Array::from(std::vector<float>{1, 2, 3, 4}, {1, 4});
  const Array scale = Array::from(std::vector<float>{0.5f, 2}, {2});
  // Rows 0 1 -8 7 and -1 -8 0 -7.
  expect_near(f(x, w, scale), {0.5 * (2 - 24 + 28), 2 * (-1 - 16 - 28)}, 0);
  EXPECT_EQ(f.summary().kernels, 1);
}

TEST_F(BuilderTest, IntegerProductsInAWiderDtype) {
  const Array x = Array::from(std::vector<int8_t>{-128, 127, 100, -100}, {2, 2});
  const auto f = jit([](Tensor a) { return std::tuple(dot(a, a, i32), dot(a, a)); });
  const auto [wide, wrapped] = f(x);
  EXPECT_EQ(wide.to_vector<int32_t>(), (std::vector<int32_t>{29084, -28956, -22800, 22700}));
  EXPECT_EQ(wrapped.to_vector<int8_t>(), (std::vector<int8_t>{-100, -28, -16, -84}));
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor a) { return dot(a, a, f32); })(x); }),
                  "the dtype of the result cannot be f32");
}

TEST_F(BuilderTest, StoredFloatsAreCastBeforeAnythingIsComputed) {
  const Array x = Array::from(std::vector<float>{1, 0.3f, 465, -448}, {4});
  const Array stored = jit([](Tensor t) { return cast(t, f8e4m3); })(x);
  const auto bits = stored.to_vector<F8E4M3Bits>();
  EXPECT_EQ(static_cast<int>(bits[0]), 0x38);
  EXPECT_EQ(static_cast<int>(bits[2]), 0x7f) << "NaN";
  const auto back = jit([](Tensor t) { return cast(t, f32) * 2; })(stored).to_vector<float>();
  EXPECT_EQ(back[1], 0.625f);
  EXPECT_EQ(back[3], -896.0f);
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return t + t; })(stored); }),
                  "cast the operands to f32");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return sum(t); })(stored); }),
                  "is not defined on f8e4m3");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return mean(t); })(stored); }),
                  "is not floating");
  EXPECT_CONTAINS(error_of([&] { jit(grad([](Tensor t) { return sum(cast(t, f32)); }))(stored); }),
                  "no derivative with respect to");
}

TEST_F(BuilderTest, NamedCollections) {
  Parameters parameters;
  parameters.add("a", zeros({1}));
  parameters.add("layer", Parameters{{"w", zeros({2})}, {"b", zeros({3})}});
  EXPECT_EQ(parameters.names(), (std::vector<std::string>{"a", "layer.w", "layer.b"}));
  EXPECT_EQ(parameters.group("layer").names(), (std::vector<std::string>{"w", "b"}));
  EXPECT_CONTAINS(error_of([&] { parameters.at("c"); }), "no parameter \"c\" among [a, layer.w");
  EXPECT_CONTAINS(error_of([&] { parameters.add("a", zeros({1})); }), "there is a parameter");
  for (const char* bad : {"", ".a", "a.", "a..b", "a b", "a/b"})
    EXPECT_CONTAINS(error_of([&] { parameters.add(bad, zeros({1})); }), "cannot be the name");
}

TEST_F(BuilderTest, Creation) {
  expect_near(arange(3), {0, 1, 2}, 0);
  EXPECT_EQ(arange(3).dtype(), i64);
  expect_near(arange(1, 2, 0.25), {1, 1.25, 1.5, 1.75}, 0);
  expect_near(arange(3, 0, -1, i32), {3, 2, 1}, 0);
  expect_near(arange(3, 0), {}, 0);
  expect_near(full({2}, 7, u32), {7, 7}, 0);
  EXPECT_EQ(ones({0, 3}).shape(), (Longs{0, 3}));
  EXPECT_CONTAINS(error_of([] { arange(0, 1, 0); }), "does not end");
  EXPECT_CONTAINS(error_of([] { arange(0, 5, 0.5, i32); }), "0.5 is not a value of i32");
  EXPECT_CONTAINS(error_of([] { arange(1, -2, -1, u32); }), "-1 is not a value of u32");
}

}  // namespace
}  // namespace braze
