// The general gather and scatter at random axes, against loops that follow their definition.
#include <algorithm>
#include <numeric>
#include <random>

#include "ir/values/host_tensor.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

using Places = std::vector<int64_t>;

int64_t product(const Places& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

/// The index of an element in row-major order, and back.
int64_t number_of(const Places& place, const Places& extents) {
  int64_t out = 0;
  for (size_t i = 0; i < extents.size(); ++i) out = out * extents[i] + place[i];
  return out;
}
Places place_of(int64_t number, const Places& extents) {
  Places out(extents.size());
  for (size_t i = extents.size(); i-- > 0;) {
    out[i] = number % extents[i];
    number /= extents[i];
  }
  return out;
}

bool has(const std::vector<int64_t>& list, size_t axis) {
  return std::ranges::find(list, static_cast<int64_t>(axis)) != list.end();
}

/// One call: its axes, extents and numbers.
struct Case {
  Places x_shape, indices_shape, windows_shape, sizes;
  GatherAxes axes;
  Outside outside = Outside::Clamp;
  std::vector<int64_t> x, indices, updates;

  std::string text() const {
    const auto list = [](const Places& values) {
      std::string out = "[";
      for (const int64_t value : values) out += std::to_string(value) + " ";
      return out + "]";
    };
    return "x " + list(x_shape) + " indices " + list(indices_shape) + " sizes " + list(sizes) +
           " indexed " + list(axes.indexed) + " windows " + list(axes.windows) + " collapsed " +
           list(axes.collapsed) + " batch " + list(axes.batch) + " index_batch " +
           list(axes.index_batch) + " vector " + std::to_string(axes.vector) + " outside " +
           std::to_string(static_cast<int>(outside)) + " at " + list(indices);
  }

  /// Where in x this element of the tensor of windows is. It is -1 if that is outside.
  int64_t source(const Places& element) const {
    Places batch, window;
    for (size_t i = 0; i < element.size(); ++i)
      (has(axes.windows, i) ? window : batch).push_back(element[i]);
    const bool is_bare = axes.vector == static_cast<int64_t>(indices_shape.size());
    const auto index_of = [&](int64_t k) {
      Places place = batch;
      if (!is_bare) place.insert(place.begin() + axes.vector, k);
      return indices[static_cast<size_t>(number_of(place, indices_shape))];
    };
    Places at(x_shape.size());
    bool is_outside = false;
    size_t next = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      for (size_t k = 0; k < axes.indexed.size(); ++k)
        if (axes.indexed[k] == static_cast<int64_t>(i)) at[i] = index_of(static_cast<int64_t>(k));
      if (outside == Outside::Clamp) at[i] = std::clamp<int64_t>(at[i], 0, x_shape[i] - sizes[i]);
      for (size_t k = 0; k < axes.batch.size(); ++k)
        if (axes.batch[k] == static_cast<int64_t>(i)) {
          const int64_t along = axes.index_batch[k];
          at[i] = batch[static_cast<size_t>(along > axes.vector ? along - 1 : along)];
        }
      if (!has(axes.collapsed, i) && !has(axes.batch, i)) at[i] += window[next++];
      is_outside |= at[i] < 0 || at[i] >= x_shape[i];
    }
    return is_outside ? -1 : number_of(at, x_shape);
  }

  std::vector<int64_t> gathered(int64_t fill) const {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < product(windows_shape); ++i) {
      const int64_t from = source(place_of(i, windows_shape));
      out.push_back(from < 0 ? fill : x[static_cast<size_t>(from)]);
    }
    return out;
  }

  std::vector<int64_t> scattered(const std::function<int64_t(int64_t, int64_t)>& combine) const {
    // In the order of the index vectors: the axes of the batch first, those of windows behind them.
    std::vector<std::pair<Places, int64_t>> order;
    for (int64_t i = 0; i < product(windows_shape); ++i) {
      const Places place = place_of(i, windows_shape);
      Places key;
      for (const bool of_window : {false, true})
        for (size_t axis = 0; axis < place.size(); ++axis)
          if (has(axes.windows, axis) == of_window) key.push_back(place[axis]);
      order.emplace_back(key, i);
    }
    std::ranges::sort(order);
    std::vector<int64_t> out = x;
    for (const auto& [key, i] : order) {
      const int64_t to = source(place_of(i, windows_shape));
      if (to < 0) continue;
      int64_t& element = out[static_cast<size_t>(to)];
      element = combine(element, updates[static_cast<size_t>(i)]);
    }
    return out;
  }
};

class RandomCases {
 public:
  explicit RandomCases(uint64_t seed) : random_(seed) {}

  Case next() {
    Case c;
    c.outside = static_cast<Outside>(below(3));
    const int64_t rank = 1 + below(4);
    Places index_batches;  // the extents of those axes of the indices
    for (int64_t axis = 0; axis < rank; ++axis) {
      const int64_t extent = pick({0, 1, 1, 2, 3, 4, 5});
      c.x_shape.push_back(extent);
      c.sizes.push_back(below(2) ? extent : below(extent + 1));
      switch (below(4)) {
        case 0:
          c.axes.batch.push_back(axis);
          index_batches.push_back(below(3) ? extent : below(extent + 1));
          c.sizes.back() = 1;
          break;
        case 1:
          c.x_shape.back() = std::max<int64_t>(extent, 1);  // it has a position
          c.axes.collapsed.push_back(axis);
          c.sizes.back() = 1;
          if (below(4)) c.axes.indexed.push_back(axis);
          break;
        case 2:
          c.axes.indexed.push_back(axis);
          break;
        default:
          break;
      }
    }
    std::ranges::shuffle(c.axes.indexed, random_);
    // The axes of the indices, in any order: paired ones, and others.
    Places batch = index_batches;
    for (int64_t i = below(3); i > 0; --i) batch.push_back(pick({1, 1, 2, 3, 0}));
    std::vector<size_t> order(batch.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::shuffle(order, random_);
    for (const size_t i : order) c.indices_shape.push_back(batch[i]);
    const auto count = static_cast<int64_t>(c.axes.indexed.size());
    const bool is_bare = count == 1 && below(2);
    c.axes.vector = is_bare ? static_cast<int64_t>(c.indices_shape.size())
                            : below(static_cast<int64_t>(c.indices_shape.size()) + 1);
    if (!is_bare) c.indices_shape.insert(c.indices_shape.begin() + c.axes.vector, count);
    for (size_t i = 0; i < index_batches.size(); ++i) {
      const auto along = std::ranges::find(order, i) - order.begin();
      c.axes.index_batch.push_back(along + (along >= c.axes.vector ? 1 : 0));
    }
    // Where the axes of windows are.
    Places windows;
    for (size_t i = 0; i < c.x_shape.size(); ++i)
      if (!has(c.axes.collapsed, i) && !has(c.axes.batch, i)) windows.push_back(c.sizes[i]);
    std::vector<int> is_window(windows.size() + batch.size());
    std::fill(is_window.begin(), is_window.begin() + static_cast<ptrdiff_t>(windows.size()), 1);
    std::ranges::shuffle(is_window, random_);
    size_t next_window = 0, next_batch = 0;
    for (size_t i = 0; i < is_window.size(); ++i) {
      if (is_window[i]) c.axes.windows.push_back(static_cast<int64_t>(i));
      c.windows_shape.push_back(is_window[i] ? windows[next_window++] : batch[order[next_batch++]]);
    }
    fill(c.x, c.x_shape);
    fill(c.updates, c.windows_shape);
    for (int64_t i = 0; i < product(c.indices_shape); ++i) {
      Places place = place_of(i, c.indices_shape);
      const auto k = is_bare ? 0 : static_cast<size_t>(place[static_cast<size_t>(c.axes.vector)]);
      const auto axis = static_cast<size_t>(c.axes.indexed[k]);
      const int64_t last = c.x_shape[axis] - c.sizes[axis];
      c.indices.push_back(c.outside == Outside::Never ? below(last + 1) : below(last + 7) - 3);
    }
    return c;
  }

 private:
  int64_t below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
  }
  int64_t pick(std::initializer_list<int64_t> list) {
    return list.begin()[below(static_cast<int64_t>(list.size()))];
  }
  void fill(std::vector<int64_t>& values, const Places& shape) {
    for (int64_t i = 0; i < product(shape); ++i) values.push_back(below(7) - 3);
  }

  std::mt19937_64 random_;
};

Array array_of(const std::vector<int64_t>& values, const Places& shape, DType dtype) {
  HostTensor out(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i)
    is_floating(dtype) ? out.set_double(static_cast<int64_t>(i), static_cast<double>(values[i]))
                       : out.set_int(static_cast<int64_t>(i), values[i]);
  return Array::from_host(out);
}

Dims dims_of(const Places& extents) { return {extents.begin(), extents.end()}; }

Doubles real(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

using Gathers = OnDevice;

/// A device that compiles takes its time for each case.
int number_of_cases() { return test_device().name() == "interpreter" ? 400 : 60; }

TEST_F(Gathers, OfRandomAxes) {
  RandomCases cases(11);
  for (int i = 0; i < number_of_cases(); ++i) {
    const Case c = cases.next();
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    const DType index = i % 3 ? i32 : i64, dtype = i % 2 ? f32 : i16;
    const auto f = jit([&](Tensor x, Tensor at) {
      return gather(x, at, dims_of(c.sizes), c.axes, c.outside, -7);
    });
    const Array got =
        f(array_of(c.x, c.x_shape, dtype), array_of(c.indices, c.indices_shape, index));
    EXPECT_EQ(got.shape(), c.windows_shape);
    EXPECT_EQ(to_doubles(got), real(c.gathered(-7)));
  }
}

TEST_F(Gathers, ScattersOfRandomAxes) {
  using Combine = std::function<int64_t(int64_t, int64_t)>;
  const std::pair<Scatter, Combine> ways[] = {
      {Scatter::Set, [](int64_t, int64_t b) { return b; }},
      {Scatter::Add, std::plus<>()},
      {Scatter::Mul, std::multiplies<>()},
      {Scatter::Max, [](int64_t a, int64_t b) { return std::max(a, b); }},
      {Scatter::Min, [](int64_t a, int64_t b) { return std::min(a, b); }},
      {Scatter::And, std::bit_and<>()},
      {Scatter::Or, std::bit_or<>()},
  };
  RandomCases cases(12);
  for (int i = 0; i < number_of_cases(); ++i) {
    const Case c = cases.next();
    const auto& [how, combine] = ways[static_cast<size_t>(i) % std::size(ways)];
    SCOPED_TRACE("case " + std::to_string(i) + ": " + c.text());
    const bool is_float = i % 2 && how != Scatter::And && how != Scatter::Or;
    const DType dtype = is_float ? f64 : i64;
    const Scatter way = how;
    const auto f = jit([&](Tensor x, Tensor at, Tensor updates) {
      return scatter(x, at, updates, c.axes, way, c.outside);
    });
    const Array got =
        f(array_of(c.x, c.x_shape, dtype), array_of(c.indices, c.indices_shape, i % 3 ? i32 : i64),
          array_of(c.updates, c.windows_shape, dtype));
    EXPECT_EQ(got.shape(), c.x_shape);
    EXPECT_EQ(to_doubles(got), real(c.scattered(combine)));
  }
}

// A symbolic number of rows and of indices.
TEST_F(Gathers, OfSymbolicExtents) {
  const GatherAxes rows{.indexed = {0}, .windows = {1}, .collapsed = {0}};
  const auto f = jit(
      [=](Tensor x, Tensor at) {
        const Tensor taken = gather(x, at, {1, 3}, rows, Outside::Drop, -1);
        return std::pair(taken, scatter(x, at, taken * 2, rows, Scatter::Set, Outside::Drop));
      },
      {spec(f32, {"n:1..9", 3}), spec(i32, {"k:0..9", 1})});
  for (const int64_t n : {1, 4}) {
    Doubles values(static_cast<size_t>(3 * n));
    std::iota(values.begin(), values.end(), 0);
    const std::vector<float> numbers(values.begin(), values.end());
    const auto [taken, changed] =
        f(Array::from(numbers, {n, 3}), Array::from(std::vector<int32_t>{0, -1, 3}, {3, 1}));
    Doubles expected = {0, 1, 2, -1, -1, -1, -1, -1, -1}, doubled = values;
    for (size_t i = 0; i < 3; ++i) {
      if (n == 4) expected[6 + i] = values[9 + i];
      doubled[i] *= 2;
      if (n == 4) doubled[9 + i] *= 2;
    }
    EXPECT_EQ(to_doubles(taken), expected);
    EXPECT_EQ(to_doubles(changed), doubled);
  }
}

TEST_F(Gathers, WhatDoesNotFitIsNamed) {
  const auto failure = [](const Dims& indices, const Dims& sizes, const GatherAxes& axes) {
    return error_of([&] {
      jit([&](Tensor x, Tensor at) {
        return gather(x, at, sizes, axes);
      }).graph(spec(f32, {4, 5}), spec(i32, indices));
    });
  };
  const GatherAxes rows{.indexed = {0}, .windows = {1}, .collapsed = {0}};
  EXPECT_EQ(failure({3, 1}, {1, 5}, rows), "");
  EXPECT_CONTAINS(failure({3, 2}, {1, 5}, rows), "no vectors of 1");
  EXPECT_CONTAINS(failure({3, 1}, {2, 5}, rows), "a window of 2 along axis 0");
  EXPECT_CONTAINS(failure({3, 1}, {1, 6}, rows), "a window of 6 along axis 1");
  EXPECT_CONTAINS(failure({3, 1}, {1}, rows), "1 sizes");
  EXPECT_CONTAINS(failure({3, 1}, {1, 5}, {.indexed = {0}, .collapsed = {0}}),
                  "names 0 axes of windows");
  EXPECT_CONTAINS(failure({3, 1}, {1, 5}, {.indexed = {2}, .windows = {1}, .collapsed = {0}}),
                  "axis 2");
  EXPECT_CONTAINS(
      failure({3, 1}, {1, 5}, {.indexed = {1}, .windows = {1}, .batch = {0}, .index_batch = {}}),
      "1 batch axes");
  EXPECT_CONTAINS(
      failure({6, 1}, {1, 5}, {.indexed = {1}, .windows = {1}, .batch = {0}, .index_batch = {0}}),
      "more batches");
  EXPECT_CONTAINS(error_of([] {
                    jit([](Tensor x, Tensor at, Tensor y) {
                      return scatter(x, at, y, {.indexed = {0}, .windows = {1}, .collapsed = {0}});
                    }).graph(spec(f32, {4, 5}), spec(i32, {3, 1}), spec(f32, {2, 5}));
                  }),
                  "are not those of indices");
}

}  // namespace
}  // namespace braze
