// Indexing, parts, repetitions, einsum and group_norm against NumPy and PyTorch.
#include "tests/frontend/numpy_figures.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

class Words : public OnDevice {};

/// Whole numbers without order, as in numpy_figures.py.
Array numbers(Longs shape, double add = 0, double scale = 1) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  Doubles values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back((static_cast<double>(i * 7 % 11) - 5) * scale + add);
  return Array::from(values, std::move(shape));
}

void expect_figure(const Array& got, const numpy::Figure& figure, double tolerance = 0) {
  EXPECT_EQ(got.shape(), figure.shape);
  expect_near(got, figure.values, tolerance);
}

/// The type and the message of `function` of a tensor.
template <class F>
std::string error_of_graph(F function, const Array& x) {
  return error_of([&] { jit(function)(x); });
}

const Longs kShape = {3, 4, 5};

TEST_F(Words, IndicesAreNumPys) {
  const Array x = numbers(kShape);
  const auto expect = [&](auto function, const numpy::Figure& figure) {
    expect_figure(jit(function)(x), figure);
  };
  expect([](Tensor t) { return t[1]; }, numpy::kPlace);
  expect([](Tensor t) { return t[{-1, 2}]; }, numpy::kPlaces);
  expect([](Tensor t) { return t[{Slice(), Slice(1, -1)}]; }, numpy::kRange);
  expect(
      [](Tensor t) {
        return t[{Slice({}, {}, 2), Slice(1, {}, 2), Slice(4, 0, -2)}];
      },
      numpy::kSteps);
  expect(
      [](Tensor t) {
        return t[{Slice({}, {}, -1), ellipsis, Slice({}, {}, -1)}];
      },
      numpy::kBackwards);
  expect([](Tensor t) { return t[{new_axis, ellipsis, 0, new_axis}]; }, numpy::kNewAxes);
  expect([](Tensor t) { return t[{1, ellipsis}]; }, numpy::kPlace);
  EXPECT_EQ(to_doubles(jit([](Tensor t) { return t[{}]; })(x)), to_doubles(x));
}

TEST_F(Words, IndicesOfSymbolicExtents) {
  const auto last = jit(
      [](Tensor t) {
        return t[{Slice({}, {}, -2), -1}];
      },
      {spec(f64, {"n:1..64", 2})});
  const Array x = numbers({6, 2});
  expect_near(last(x),
              {x.to_vector<double>()[11], x.to_vector<double>()[7], x.to_vector<double>()[3]}, 0);
  EXPECT_EQ(last(numbers({5, 2})).shape(), (Longs{3}));
  EXPECT_EQ(last.compile_count(), 1);
}

TEST_F(Words, IndicesThatDoNotFit) {
  const Array x = numbers({3, 4});
  const auto expect = [&](auto function, std::string_view message, Where where = Where::current()) {
    const std::string text = error_of_graph(function, x);
    EXPECT_CONTAINS(text, std::string(message));
    EXPECT_CONTAINS(text, "words_test.cpp:" + std::to_string(where.line()));
  };
  expect([](Tensor t) { return t[{0, 0, 0}]; }, "3 indices and 0 ellipses for f64[3, 4]");
  expect([](Tensor t) { return t[{ellipsis, ellipsis}]; }, "0 indices and 2 ellipses");
  expect([](Tensor t) { return t[{Slice({}, {}, 0)}]; }, "the step of axis 0 is 0");
  expect([](Tensor t) { return t[3]; }, "there is no index 3 on axis 0 of f64[3, 4]");
  expect([](Tensor t) { return t[{0, -5}]; }, "there is no index -5 on axis 1 of f64[3, 4]");
  expect([](Tensor t) { return t[{Slice(1, 9)}]; }, "from or to 9 is out of range on axis 0");
  expect([](Tensor t) { return t[{Slice(-4, {})}]; }, "from or to -4 is out of range on axis 0");
  expect([](Tensor t) { return t[{Slice(2, 1)}]; },
         "a slice from 2 to 1 of 3 elements must not end before it begins");
  expect([](Tensor t) { return slice(t, 1, -5, 2); },
         "slice: -5 counts from the end of axis 1 of f64[3, 4], which is shorter");
  expect([](Tensor t) { return slice(t, 1, 1, 9); },
         "axis 1: a slice from 1 to 9 of 4 elements must not end after the last element");
}

TEST_F(Words, Parts) {
  const Array x = numbers({2, 7});
  const Doubles values = to_doubles(x);
  const auto expect_extents = [&](auto function, const Longs& extents) {
    const std::vector<Array> parts = jit(function)(x);
    ASSERT_EQ(parts.size(), extents.size());
    size_t start = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSERT_EQ(parts[i].shape(), (Longs{2, extents[i]}));
      const Doubles part = to_doubles(parts[i]);
      for (size_t k = 0; k < part.size(); ++k) {
        const size_t width = part.size() / 2;
        EXPECT_EQ(part[k], values[k / width * 7 + start + k % width]);
      }
      start += static_cast<size_t>(extents[i]);
    }
  };
  expect_extents([](Tensor t) { return split(t, 3, 1); }, {3, 3, 1});
  expect_extents([](Tensor t) { return split(t, 9, -1); }, {7});
  expect_extents([](Tensor t) { return split(t, {4, 1, 2}, 1); }, {4, 1, 2});
  expect_extents([](Tensor t) { return chunk(t, 3, 1); }, {3, 3, 1});
  expect_extents([](Tensor t) { return chunk(t, 4, 1); }, {2, 2, 2, 1});
  expect_extents([](Tensor t) { return chunk(t, 9, 1); }, {1, 1, 1, 1, 1, 1, 1});
  expect_figure(jit([](Tensor t) {
                  std::vector<Tensor> flat;
                  for (const Tensor& part : chunk(t, 3, 2)) flat.push_back(reshape(part, {-1}));
                  return concat(flat);
                })(numbers(kShape)),
                numpy::kChunk);
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) {
                                   return split(t, {4, 4}, 1);
                                 })(x); }),
                  "split: the sizes add up to 8, but axis 1 of f64[2, 7] has 7");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return chunk(t, 0); })(x); }),
                  "chunk: axis 0 of f64[2, 7] cannot be divided by 0");
  EXPECT_CONTAINS(error_of([&] {
                    jit([](Tensor t) { return split(t, 2); }, {spec(f64, {"n:1..9", 7})})(x);
                  }),
                  "split: axis 0 of f64[n, 7] cannot be divided by 2");
}

TEST_F(Words, Repetitions) {
  const Array x = numbers(kShape);
  expect_figure(jit([](Tensor t) { return repeat(t, 2, 1); })(x), numpy::kRepeat);
  expect_figure(jit([](Tensor t) { return tile(t, {1, 2, 2}); })(x), numpy::kTile);
  EXPECT_EQ(jit([](Tensor t) { return repeat(t, 0, 1); })(x).shape(), (Longs{3, 0, 5}));
  EXPECT_CONTAINS(error_of_graph([](Tensor t) { return repeat(t, -1, 1); }, x),
                  "repeat: the count -1 is negative");
  EXPECT_CONTAINS(error_of_graph([](Tensor t) { return tile(t, {2}); }, x), "1 counts for f64");
}

TEST_F(Words, Triangles) {
  const Array x = numbers(kShape);
  expect_figure(jit([](Tensor t) { return tril(t); })(x), numpy::kTril);
  expect_figure(jit([](Tensor t) { return tril(t, 1); })(x), numpy::kTrilAbove);
  expect_figure(jit([](Tensor t) { return triu(t); })(x), numpy::kTriu);
  expect_figure(jit([](Tensor t) { return triu(t, -1); })(x), numpy::kTriuBelow);
  // What is left out is not computed with.
  expect_near(jit([](Tensor t) { return tril(t); })(Array::from(Doubles{1, NAN, 2, 3}, {2, 2})),
              {1, 0, 2, 3}, 0);
  expect_near(jit([](Tensor t) { return triu(t > 0); })(numbers({2, 2})), {0, 1, 0, 1}, 0);
  EXPECT_CONTAINS(error_of_graph([](Tensor t) { return tril(t); }, numbers({3})),
                  "tril: f64[3] is not a matrix");
}

TEST_F(Words, TakeAlongAxis) {
  const Array x = numbers(kShape);
  const auto first = jit([](Tensor t, Tensor i) { return take_along_axis(t, i, 0); });
  const auto last = jit([](Tensor t, Tensor i) { return take_along_axis(t, i, -1); });
  expect_figure(first(x, Array::from(Longs{2, 0, 1, 2}, {1, 4, 1})), numpy::kTakeFirst);
  expect_figure(last(x, Array::from(std::vector<int32_t>{4, 0}, {1, 1, 2})), numpy::kTakeLast);
  EXPECT_CONTAINS(error_of([&] { first(x, Array::from(Longs{0}, {1})); }),
                  "i64[1] cannot be indices along axis 0 of f64[3, 4, 5]");
  EXPECT_CONTAINS(error_of([&] {
                    last(x, Array::from(Longs{0, 0}, {2, 1, 1}));
                  }),
                  "cannot be indices");
  const auto checked =
      jit([](Tensor t, Tensor i) { return take_along_axis(t, i, 1); }, {.checked = true});
  for (const int64_t wrong : {-1, 2})
    EXPECT_CONTAINS(error_of([&] {
                      checked(numbers({2, 2}), Array::from(Longs{wrong}, {1, 1}));
                    }),
                    "index " + std::to_string(wrong) +
                        " at [0, 0] of i64[1, 1] is not within axis 0 of i64[2]");
}

// Out of range, an index is the first or the last of its own axis, as for `take`.
TEST_F(Words, TakeAlongAxisClamps) {
  const auto both = jit([](Tensor t, Tensor i) {
    return std::pair{take_along_axis(t, i, 1), take(t, i[0], 1)};
  });
  const Array x = Array::from(Doubles{1, 2, 3, 4, 5, 6}, {2, 3});
  const Array indices = Array::from(Longs{-7, 3, INT64_MAX, INT64_MIN}, {1, 4});
  if (test_device().kind() == DeviceKind::Interpreter) {
    EXPECT_CONTAINS(error_of([&] { both(x, indices).first.wait(); }), "index -7");
    return;
  }
  const auto [along, taken] = both(x, indices);
  expect_near(along, {1, 3, 3, 1, 4, 6, 6, 4}, 0);
  expect_near(taken, {1, 3, 3, 1, 4, 6, 6, 4}, 0);
}

TEST_F(Words, EinsumIsNumPys) {
  const Array x = numbers(kShape), a = numbers({3, 4}), b = numbers({4, 5}), c = numbers({5, 2});
  const Array s = numbers({4, 4}), t = numbers({2, 3, 4, 4});
  const auto expect = [](const char* equation, const std::vector<Array>& operands,
                         const numpy::Figure& figure) {
    const auto f = jit([=](std::vector<Tensor> tensors) { return einsum(equation, tensors); });
    SCOPED_TRACE(equation);
    expect_figure(f(operands), figure);
  };
  const auto part = jit([](Tensor v) { return std::tuple{v[0], v[{Slice(), 0}]}; });
  const auto [row_a, column_a] = part(a);
  const Array row_b = std::get<0>(part(b));
  const auto plus_one = jit([](Tensor v) { return std::pair{v + 1, transpose(v) + 1}; });
  expect("ij,jk->ik", {a, b}, numpy::kProduct);
  expect("ij,jk", {a, b}, numpy::kImplied);
  expect("ba", {a}, numpy::kSorted);
  expect("ij, jk -> ki", {a, b}, numpy::kTransposed);
  expect("ii->i", {s}, numpy::kDiagonal);
  expect("ii", {s}, numpy::kTrace);
  expect("...ii->...", {t}, numpy::kTraces);
  expect("ijk->j", {x}, numpy::kSum);
  expect("i,j->ij", {row_a, row_b}, numpy::kOuter);
  expect("ij,ij->ij", {a, plus_one(a).first}, numpy::kElementwise);
  expect("ij,jk,kl->il", {a, b, c}, numpy::kThree);
  expect("bij,bkj->bik", {x, plus_one(x).first}, numpy::kBatched);
  expect("...ij,jk->...ik", {t, s}, numpy::kRest);
  expect("...ij,...jk->...ik", {t, numbers({3, 4, 2})}, numpy::kBroadcast);
  expect("ij,ji->i", {a, plus_one(a).second}, numpy::kDiagonalOfProduct);
  expect("bij,j,b->i", {x, row_b, column_a}, numpy::kWeighted);
  expect("ij,ij->i", {a, jit([](Tensor v) { return v[{Slice(), Slice(0, 1)}]; })(a)}, numpy::kOne);
}

TEST_F(Words, EinsumOfSymbolicExtents) {
  const auto diagonal =
      jit([](Tensor v) { return einsum("ii->i", {v}); }, {spec(f64, {"n:1..9", "n:1..9"})});
  for (const int64_t n : {1, 4}) {
    const Array x = numbers({n, n});
    const Doubles values = to_doubles(x);
    Doubles expected;
    for (int64_t i = 0; i < n; ++i) expected.push_back(values[static_cast<size_t>(i * (n + 1))]);
    expect_near(diagonal(x), expected, 0);
  }
  EXPECT_EQ(diagonal.compile_count(), 1);
}

TEST_F(Words, EquationsThatDoNotFit) {
  const Array a = numbers({3, 4});
  const auto expect = [&](const char* equation, int operands, std::string_view message) {
    const auto f = [=](Tensor v) {
      return einsum(equation, std::vector<Tensor>(static_cast<size_t>(operands), v));
    };
    EXPECT_CONTAINS(error_of_graph(f, a), std::string(message));
  };
  expect("ij,jk->ik", 1, "there are fewer operands than terms");
  expect("ij->ij", 2, "there are more operands than terms");
  expect("ijk->ij", 1, "the term \"ijk\" does not have the axes of f64[3, 4]");
  expect("ij->ik", 1, "no operand has the axis 'k' of the result");
  expect("ij->ii", 1, "the result names an axis twice");
  expect("ii->i", 1, "the axes 'i' of f64[3, 4] differ in extent");
  expect("ij,ji->ij", 2, "3 is not 4");
  expect("i1->i", 1, "\"1\" is not a letter");
  expect("...j->j", 1, "the result does not name the axes of \"...\"");
  expect("", 0, "there are no operands");
}

TEST_F(Words, GroupNormIsPyTorchs) {
  const auto f = jit([](Tensor x, Tensor s, Tensor b) { return nn::group_norm(x, 3, s, b); });
  const Array x = numbers({2, 6, 2, 3}, 0, 0.25), scale = numbers({6}, 0, 0.5),
              shift = numbers({6});
  expect_figure(f(x, scale, shift), numpy::kGroupNorm, 1e-14);
  // The same with the channels last.
  const auto last = jit([](Tensor v, Tensor s, Tensor b) {
    return permute(nn::group_norm(permute(v, {0, 2, 3, 1}), 3, s, b, 1e-5, -1), {0, 3, 1, 2});
  });
  expect_figure(last(x, scale, shift), numpy::kGroupNorm, 1e-14);
  EXPECT_CONTAINS(error_of([&] {
                    jit([](Tensor v, Tensor s) { return nn::group_norm(v, 4, s, s); })(x, scale);
                  }),
                  "group_norm: 4 groups of axis 1 of f64[2, 6, 2, 3]");
}

}  // namespace
}  // namespace braze
