// Windows, convolution and pooling against loops written out here, their gradients against
// differences in f64, and batch norm.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/frontend/support.h"

namespace braze {
namespace {

class Windows : public OnDevice {
 protected:
  Array random(Longs shape, double low = -2, double high = 2) {
    Doubles values(static_cast<size_t>(product(shape)));
    std::uniform_real_distribution<double> distribution(low, high);
    for (double& value : values) value = distribution(random_);
    return Array::from(values, std::move(shape));
  }
  static int64_t product(const Longs& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  std::mt19937_64 random_{11};
};

/// Values with the axes of an image as with channels first.
struct Image {
  Longs shape;
  Doubles values;

  double at(const Longs& index) const {
    int64_t place = 0;
    for (size_t i = 0; i < shape.size(); ++i) place = place * shape[i] + index[i];
    return values[static_cast<size_t>(place)];
  }
};

/// Calls `visit` with every index into `shape`, in row-major order.
void for_each_index(const Longs& shape, const std::function<void(const Longs&)>& visit) {
  Longs index(shape.size(), 0);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  for (;;) {
    visit(index);
    size_t axis = shape.size();
    while (axis-- > 0 && ++index[axis] == shape[axis]) index[axis] = 0;
    if (axis == SIZE_MAX) return;
  }
}

Image permuted(const Array& x, const Longs& order) {
  Image source{x.shape(), to_doubles(x)}, out;
  for (const int64_t axis : order) out.shape.push_back(source.shape[static_cast<size_t>(axis)]);
  for_each_index(out.shape, [&](const Longs& index) {
    Longs from(index.size());
    for (size_t i = 0; i < order.size(); ++i) from[static_cast<size_t>(order[i])] = index[i];
    out.values.push_back(source.at(from));
  });
  return out;
}

/// Channels from the end to behind the batch.
Image channels_first(const Array& x, Channels channels) {
  Longs order(x.shape().size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (channels == Channels::Last) std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return permuted(x, order);
}

/// [taps.., c, f] as [f, c, taps..].
Image filters_first(const Array& w, Channels channels) {
  Longs order(w.shape().size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (channels == Channels::Last) {
    std::rotate(order.begin(), order.end() - 2, order.end());
    std::swap(order[0], order[1]);
  }
  return permuted(w, order);
}

int64_t number(const Longs& list, size_t i) { return list.empty() ? 1 : list[i]; }
int64_t padding(const Dims& list, size_t i) { return list.empty() ? 0 : list[i].value(); }

/// Convolution as its definition says, with channels first.
Image plain_conv(const Image& x, const Image& w, const ConvOptions& o) {
  const size_t n = x.shape.size() - 2;
  Image y;
  y.shape = {x.shape[0], w.shape[0]};
  Longs taps;
  for (size_t i = 0; i < n; ++i) {
    const int64_t extent = x.shape[i + 2], size = w.shape[i + 2];
    const int64_t places = (extent == 0 ? 0 : (extent - 1) * number(o.gaps, i) + 1) +
                           padding(o.low, i) + padding(o.high, i);
    const int64_t free = places - (size - 1) * number(o.dilations, i) - 1;
    y.shape.push_back(free < 0 ? 0 : free / number(o.strides, i) + 1);
    taps.push_back(size);
  }
  const int64_t c_share = x.shape[1] / o.groups, f_share = w.shape[0] / o.groups;
  for_each_index(y.shape, [&](const Longs& at) {
    double total = 0;
    for (int64_t c = 0; c < c_share; ++c) {
      for_each_index(taps, [&](const Longs& tap) {
        Longs from = {at[0], at[1] / f_share * c_share + c}, of = {at[1], c};
        bool inside = true;
        for (size_t i = 0; i < n; ++i) {
          const int64_t place = at[i + 2] * number(o.strides, i) + tap[i] * number(o.dilations, i) -
                                padding(o.low, i);
          const int64_t gap = number(o.gaps, i);
          inside = inside && place >= 0 && place % gap == 0 && place / gap < x.shape[i + 2];
          from.push_back(place / gap);
          of.push_back(tap[i]);
        }
        if (inside) total += x.at(from) * w.at(of);
      });
    }
    y.values.push_back(total);
  });
  return y;
}

struct ConvCase {
  const char* name;
  Longs x, w;  ///< with channels first
  ConvOptions options;
};

Longs images_last(Longs shape) {
  std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  return shape;
}
Longs filters_last(Longs shape) {
  std::swap(shape[0], shape[1]);
  std::rotate(shape.begin(), shape.begin() + 2, shape.end());
  return shape;
}

const std::vector<ConvCase> kConvolutions = {
    {"line", {2, 3, 7}, {4, 3, 3}, {}},
    {"line of strides", {1, 2, 9}, {3, 2, 4}, {.strides = {3}, .low = {2}, .high = {1}}},
    {"square", {2, 3, 6, 5}, {4, 3, 3, 3}, {.low = {1, 1}, .high = {1, 1}}},
    {"one tap", {2, 5, 4, 4}, {3, 5, 1, 1}, {}},
    {"one tap, strides", {2, 5, 5, 4}, {3, 5, 1, 1}, {.strides = {2, 2}}},
    {"uneven", {1, 2, 8, 7}, {3, 2, 3, 2}, {.strides = {2, 1}, .low = {0, 1}, .high = {1, 0}}},
    {"dilated", {1, 2, 9, 8}, {2, 2, 3, 2}, {.dilations = {2, 3}, .low = {1, 0}, .high = {2, 2}}},
    {"gaps", {1, 2, 4, 3}, {2, 2, 3, 3}, {.gaps = {2, 3}, .low = {2, 1}, .high = {1, 2}}},
    {"gaps and strides",
     {1, 2, 4, 3},
     {2, 2, 2, 3},
     {.strides = {3, 2}, .gaps = {2, 3}, .low = {1, 1}}},
    {"cropped", {1, 2, 8, 7}, {2, 2, 3, 3}, {.low = {-1, -2}, .high = {0, -1}}},
    {"groups", {2, 6, 5, 5}, {4, 3, 3, 3}, {.low = {1, 1}, .high = {1, 1}, .groups = 2}},
    {"depthwise", {2, 4, 5, 6}, {4, 1, 3, 3}, {.low = {1, 1}, .high = {1, 1}, .groups = 4}},
    {"depthwise, two each", {1, 3, 5, 5}, {6, 1, 3, 3}, {.strides = {2, 2}, .groups = 3}},
    {"cube", {1, 2, 4, 5, 3}, {3, 2, 2, 3, 2}, {.low = {0, 1, 1}, .high = {1, 1, 0}}},
    {"no image", {0, 2, 4, 4}, {3, 2, 3, 3}, {}},
    {"no channel", {2, 0, 4, 4}, {3, 0, 3, 3}, {}},
    {"no filter", {2, 2, 4, 4}, {0, 2, 3, 3}, {}},
};

TEST_F(Windows, ConvolutionsAreTheirDefinition) {
  for (const ConvCase& c : kConvolutions) {
    for (const Channels channels : {Channels::Last, Channels::First}) {
      SCOPED_TRACE(std::string(c.name) + (channels == Channels::Last ? ", last" : ", first"));
      const bool last = channels == Channels::Last;
      const Array x = random(last ? images_last(c.x) : c.x);
      const Array w = random(last ? filters_last(c.w) : c.w);
      ConvOptions options = c.options;
      options.channels = channels;
      const Array y = jit([&](Tensor a, Tensor b) { return conv(a, b, options); })(x, w);
      const Image expected =
          plain_conv(channels_first(x, channels), filters_first(w, channels), options);
      EXPECT_EQ(channels_first(y, channels).shape, expected.shape);
      const Image got = channels_first(y, channels);
      ASSERT_EQ(got.values.size(), expected.values.size());
      for (size_t i = 0; i < got.values.size(); ++i)
        ASSERT_NEAR(got.values[i], expected.values[i], 1e-12 * (1 + std::abs(expected.values[i])))
            << "at " << i;
    }
  }
}

/// A scalar that weighs every element of y differently.
Tensor weigh(const Tensor& y) {
  const Tensor flat = reshape(y, {-1});
  return sum(flat * cos(arange(y.dtype(), flat.shape(), 0) + 0.5));
}

using Function = std::function<Tensor(std::vector<Tensor>)>;

/// d weigh(f) / d inputs against central differences along random directions.
void check_gradient(const Function& f, const std::vector<Array>& inputs, double tolerance = 1e-6) {
  const auto scalar = [f](std::vector<Tensor> x) { return weigh(f(std::move(x))); };
  const auto value = jit(scalar);
  const std::vector<Array> gradients = jit(grad(scalar))(inputs);
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> distribution(-1, 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Doubles x = to_doubles(inputs[i]), g = to_doubles(gradients[i]);
    ASSERT_EQ(x.size(), g.size());
    for (int turn = 0; turn < 4; ++turn) {
      Doubles direction(x.size()), moved(x.size());
      double expected = 0;
      for (size_t k = 0; k < x.size(); ++k) {
        direction[k] = distribution(random);
        expected += direction[k] * g[k];
      }
      const auto at = [&](double step) {
        for (size_t k = 0; k < x.size(); ++k) moved[k] = x[k] + step * direction[k];
        std::vector<Array> arguments = inputs;
        arguments[i] = Array::from(moved, inputs[i].shape());
        return value(arguments).item();
      };
      const double difference = (at(1e-5) - at(-1e-5)) / 2e-5;
      EXPECT_NEAR(expected, difference, tolerance * std::max(1.0, std::abs(difference)))
          << "of input " << i;
    }
  }
}

TEST_F(Windows, GradientsOfConvolutions) {
  for (const ConvCase& c : kConvolutions) {
    for (const Channels channels : {Channels::Last, Channels::First}) {
      SCOPED_TRACE(std::string(c.name) + (channels == Channels::Last ? ", last" : ", first"));
      const bool last = channels == Channels::Last;
      ConvOptions options = c.options;
      options.channels = channels;
      check_gradient(
          [&](std::vector<Tensor> v) { return conv(v[0], v[1], options); },
          {random(last ? images_last(c.x) : c.x), random(last ? filters_last(c.w) : c.w)});
    }
  }
}

TEST_F(Windows, SecondGradientsOfConvolutions) {
  const ConvOptions options{.strides = {2, 1}, .low = {1, 0}, .high = {1, 1}};
  check_gradient(
      [&](std::vector<Tensor> v) {
        return grad([&](Tensor x) { return sum(square(conv(x, v[1], options))); })(v[0]);
      },
      {random({1, 5, 4, 2}), random({3, 2, 2, 2})}, 1e-5);
}

// <conv(x), y> = <x, conv_transpose(y)> for filters of the same numbers.
TEST_F(Windows, TransposedConvolutionIsTheTranspose) {
  struct Case {
    Longs x, w;
    ConvOptions options;
    Longs more;  // what the strides leave over
  };
  const std::vector<Case> cases = {
      {{2, 3, 7}, {4, 3, 3}, {}, {}},
      {{1, 2, 9, 8}, {4, 2, 3, 2}, {.strides = {2, 3}, .low = {1, 0}, .high = {1, 1}}, {0, 1}},
      {{1, 4, 8, 9}, {6, 2, 3, 3}, {.strides = {2, 2}, .dilations = {1, 2}, .groups = 2}, {1, 0}},
      {{2, 3, 6, 6}, {3, 1, 3, 3}, {.low = {1, 1}, .high = {1, 1}, .groups = 3}, {}},
  };
  for (const Case& c : cases) {
    ConvOptions options = c.options;
    options.channels = Channels::First;
    const Array x = random(c.x), w = random(c.w);
    const Array y = jit([&](Tensor a, Tensor b) { return conv(a, b, options); })(x, w);
    const Array g = random(y.shape());
    // Filters [f, c / groups, taps..] of one are [c, f / groups, taps..] of the other.
    const Array back =
        jit([&](Tensor a, Tensor b) { return conv_transpose(a, b, options, c.more); })(g, w);
    ASSERT_EQ(back.shape(), x.shape());
    const Array expected = jit([&](Tensor a, Tensor b, Tensor weight) {
      return grad([&](Tensor v) { return sum(conv(v, b, options) * weight); })(a);
    })(x, w, g);
    expect_near(back, to_doubles(expected), 1e-12);
    check_gradient(
        [&](std::vector<Tensor> v) { return conv_transpose(v[0], v[1], options, c.more); }, {g, w});
  }
}

TEST_F(Windows, TransposedConvolutionWithChannelsLast) {
  const Array x = random({1, 4, 3, 2}), w = random({3, 2, 2, 5});
  const ConvOptions options{.strides = {2, 3}, .low = {1, 0}, .high = {0, 0}};
  const Array y = jit([&](Tensor a, Tensor b) { return conv_transpose(a, b, options); })(x, w);
  ConvOptions first = options;
  first.channels = Channels::First;
  const Array z = jit([&](Tensor a, Tensor b) {
    const Tensor image = permute(a, {0, 3, 1, 2}), filter = permute(b, {2, 3, 0, 1});
    return permute(conv_transpose(image, filter, first), {0, 2, 3, 1});
  })(x, w);
  ASSERT_EQ(y.shape(), (Longs{1, 8, 8, 5}));
  expect_near(y, to_doubles(z), 1e-12);
}

struct PoolCase {
  const char* name;
  Longs x, sizes;  ///< with channels first
  PoolOptions options;
};

const std::vector<PoolCase> kPools = {
    {"plain", {2, 3, 6, 6}, {2, 2}, {}},
    {"rest", {1, 2, 7, 5}, {2, 2}, {}},
    {"rest, up", {1, 2, 7, 5}, {2, 2}, {.ceil_mode = true}},
    {"overlap", {1, 2, 8, 7}, {3, 3}, {.strides = {2, 2}, .low = {1, 1}, .high = {1, 1}}},
    {"overlap, up",
     {1, 2, 8, 7},
     {3, 3},
     {.strides = {2, 2}, .low = {1, 1}, .high = {1, 1}, .ceil_mode = true}},
    {"without padding",
     {1, 2, 8, 7},
     {3, 3},
     {.strides = {2, 2},
      .low = {1, 1},
      .high = {1, 1},
      .ceil_mode = true,
      .count_include_pad = false}},
    {"no last window", {1, 1, 4}, {1}, {.strides = {3}, .ceil_mode = true}},
    {"beyond the end", {1, 1, 5}, {2}, {.strides = {4}, .ceil_mode = true}},
    {"dilated", {2, 1, 9}, {3}, {.strides = {1}, .dilations = {2}, .low = {2}, .high = {0}}},
    {"cube", {1, 2, 4, 4, 3}, {2, 2, 3}, {}},
};

/// The pool of each window; `average` over what `options` says, else the greatest.
Image plain_pool(const Image& x, const Longs& sizes, const PoolOptions& o, bool average) {
  const size_t n = sizes.size();
  Image y;
  y.shape = {x.shape[0], x.shape[1]};
  const auto stride = [&](size_t i) { return o.strides.empty() ? sizes[i] : o.strides[i]; };
  for (size_t i = 0; i < n; ++i) {
    const int64_t padded = x.shape[i + 2] + padding(o.low, i) + padding(o.high, i);
    const int64_t free = padded - (sizes[i] - 1) * number(o.dilations, i) - 1;
    int64_t count = (o.ceil_mode ? (free + stride(i) - 1) / stride(i) : free / stride(i)) + 1;
    if (o.ceil_mode && (count - 1) * stride(i) >= x.shape[i + 2] + padding(o.low, i)) --count;
    y.shape.push_back(count);
  }
  for_each_index(y.shape, [&](const Longs& at) {
    double total = 0, greatest = -INFINITY;
    int64_t covered = 0;
    for_each_index(sizes, [&](const Longs& tap) {
      Longs from = {at[0], at[1]};
      bool inside = true, counted = true;
      for (size_t i = 0; i < n; ++i) {
        const int64_t place =
            at[i + 2] * stride(i) + tap[i] * number(o.dilations, i) - padding(o.low, i);
        inside = inside && place >= 0 && place < x.shape[i + 2];
        counted = counted && place < x.shape[i + 2] + padding(o.high, i);
        from.push_back(place);
      }
      covered += o.count_include_pad ? counted : inside;
      if (!inside) return;
      total += x.at(from);
      greatest = std::max(greatest, x.at(from));
    });
    y.values.push_back(average ? total / static_cast<double>(covered) : greatest);
  });
  return y;
}

TEST_F(Windows, PoolsAreTheirDefinition) {
  for (const PoolCase& c : kPools) {
    for (const Channels channels : {Channels::Last, Channels::First}) {
      for (const bool average : {false, true}) {
        SCOPED_TRACE(std::string(c.name) + (channels == Channels::Last ? ", last" : ", first") +
                     (average ? ", average" : ", greatest"));
        const Array x = random(channels == Channels::Last ? images_last(c.x) : c.x);
        PoolOptions options = c.options;
        options.channels = channels;
        const auto pool = [&](Tensor t) {
          return average ? avg_pool(t, c.sizes, options) : max_pool(t, c.sizes, options);
        };
        const Image got = channels_first(jit(pool)(x), channels);
        const Image expected = plain_pool(channels_first(x, channels), c.sizes, options, average);
        ASSERT_EQ(got.shape, expected.shape);
        for (size_t i = 0; i < got.values.size(); ++i)
          ASSERT_NEAR(got.values[i], expected.values[i], 1e-12) << "at " << i;
        check_gradient([&](std::vector<Tensor> v) { return pool(v[0]); }, {x});
      }
    }
  }
}

TEST_F(Windows, PoolsOfOtherTypes) {
  const auto pool = [](Tensor t) { return max_pool(t, {2}, {.low = {1}, .high = {1}}); };
  const Array x = Array::from(std::vector<int32_t>{-5, -7, -2, -9}, {1, 4, 1});
  EXPECT_EQ(to_doubles(jit(pool)(x)), (Doubles{-5, -2, -9}));
  const Array bytes = jit([](Tensor t) { return cast(t + 10, u8); })(x);
  EXPECT_EQ(to_doubles(jit(pool)(bytes)), (Doubles{5, 8, 1}));
  const Array nan = Array::from(Doubles{1, NAN, 3, 4}, {1, 4, 1});
  const Doubles got = to_doubles(jit(pool)(nan));
  EXPECT_EQ(got[0], 1);
  EXPECT_TRUE(std::isnan(got[1]));
}

TEST_F(Windows, OfSymbolicExtents) {
  const auto f = jit(
      [](Tensor x, Tensor w) {
        const Tensor y = conv(x, w, {.strides = {2, 1}, .low = {1, 1}, .high = {1, 1}});
        return avg_pool(y, {2, 2},
                        {.strides = {1, 1}, .ceil_mode = true, .count_include_pad = false});
      },
      {spec(f64, {"n:0..8", "h:1..32", "w:1..32", 2}), as_given});
  for (const Longs& shape :
       {Longs{1, 7, 5, 2}, Longs{3, 1, 1, 2}, Longs{0, 4, 4, 2}, Longs{2, 12, 9, 2}}) {
    const Array x = random(shape), w = random({3, 3, 2, 3});
    const Image y = plain_conv(channels_first(x, Channels::Last), filters_first(w, Channels::Last),
                               {.strides = {2, 1}, .low = {1, 1}, .high = {1, 1}});
    if (y.shape[2] < 2 || y.shape[3] < 2) {
      EXPECT_EQ(f(x, w).shape()[0], shape[0]);
      continue;
    }
    const Image expected = plain_pool(
        y, {2, 2}, {.strides = {1, 1}, .ceil_mode = true, .count_include_pad = false}, true);
    const Image got = channels_first(f(x, w), Channels::Last);
    ASSERT_EQ(got.shape, expected.shape);
    for (size_t i = 0; i < got.values.size(); ++i)
      ASSERT_NEAR(got.values[i], expected.values[i], 1e-10) << "at " << i;
  }
}

TEST_F(Windows, WindowsPlaceTheirTapsBehind) {
  const Array x = Array::from(Doubles{1, 2, 3, 4, 5}, {5});
  const auto taken = [&](Window w) {
    return to_doubles(jit([&](Tensor t) { return windows(t, {w}, -1); })(x));
  };
  EXPECT_EQ(taken({.size = 2}), (Doubles{1, 2, 2, 3, 3, 4, 4, 5}));
  EXPECT_EQ(taken({.size = 2, .stride = 3, .low = 1}), (Doubles{-1, 1, 3, 4}));
  EXPECT_EQ(taken({.size = 2, .stride = 2, .dilation = -1}), (Doubles{2, 1, 4, 3}));
  EXPECT_EQ(taken({.size = 2, .stride = 4, .gap = 2, .high = 1}), (Doubles{1, -1, 3, -1, 5, -1}));
  EXPECT_EQ(taken({.size = 0}), Doubles{});
  EXPECT_EQ(taken({.size = 6}), Doubles{});
}

TEST_F(Windows, MistakesNameTheFunctionAndTheFix) {
  const Array x = random({2, 5, 5, 3}), w = random({3, 3, 3, 4});
  const auto of_conv = [&](const Array& a, const Array& b, ConvOptions o) {
    return error_of([&] { jit([&](Tensor s, Tensor t) { return conv(s, t, o); })(a, b); });
  };
  EXPECT_CONTAINS(of_conv(x, random({3, 3, 2, 4}), {}), "conv: f64[2, 5, 5, 3] with filters");
  EXPECT_CONTAINS(of_conv(x, random({3, 3, 2, 4}), {}), "[taps.., c / groups, f]");
  EXPECT_CONTAINS(of_conv(x, random({3, 3, 4}), {}), "the ranks differ");
  EXPECT_CONTAINS(of_conv(x, w, {.groups = 2}), "multiples of the groups");
  EXPECT_CONTAINS(of_conv(x, w, {.strides = {2}}), "1 strides for the 2 spatial axes");
  EXPECT_CONTAINS(of_conv(x, w, {.strides = {0, 1}}), "stride 0");
  EXPECT_CONTAINS(of_conv(x, random({7, 3, 3, 4}), {}), "a window of 7 places does not fit");
  EXPECT_CONTAINS(of_conv(random({5, 5}), w, {}), "is no batch of images");
  EXPECT_CONTAINS(of_conv(x, w, {.strides = {0, 1}}), "windows_test.cpp");
  EXPECT_CONTAINS(error_of([&] { jit([](Tensor t) { return max_pool(t, {2}); })(x); }), "max_pool");
  EXPECT_CONTAINS(error_of([&] {
                    jit([](Tensor t) {
                      return windows(t, {{.axis = 1, .size = 2}, {.axis = 1, .size = 2}});
                    })(x);
                  }),
                  "axis 1 has two windows");
}

TEST_F(Windows, SamePaddingIsThatOfTheOthers) {
  const Array x = random({1, 7, 8, 1});
  const Array y = jit([](Tensor t) {
    const ConvOptions o = same_padding(t, {3, 3}, {.strides = {2, 2}});
    EXPECT_EQ(o.low, (Dims{1, 0}));
    EXPECT_EQ(o.high, (Dims{1, 1}));
    return conv(t, full(f64, {3, 3, 1, 1}, 1), o);
  })(x);
  EXPECT_EQ(y.shape(), (Longs{1, 4, 4, 1}));
}

TEST_F(Windows, BatchNorm) {
  const Array x = random({4, 3, 2, 5}), scale = random({3}), shift = random({3});
  const auto train = [](std::vector<Tensor> v) {
    return nn::batch_norm(v[0], v[1], v[2], 1e-5, 1).value;
  };
  const Array y = jit(train)(std::vector<Array>{x, scale, shift});
  const Image image{x.shape(), to_doubles(x)}, got{y.shape(), to_doubles(y)};
  const Doubles scales = to_doubles(scale), shifts = to_doubles(shift);
  Doubles means(3), variances(3);
  for (const bool second : {false, true})
    for_each_index(x.shape(), [&](const Longs& at) {
      const auto c = static_cast<size_t>(at[1]);
      if (!second)
        means[c] += image.at(at) / 40;
      else
        variances[c] += (image.at(at) - means[c]) * (image.at(at) - means[c]) / 40;
    });
  for_each_index(x.shape(), [&](const Longs& at) {
    const auto c = static_cast<size_t>(at[1]);
    const double normal = (image.at(at) - means[c]) / std::sqrt(variances[c] + 1e-5);
    EXPECT_NEAR(got.at(at), normal * scales[c] + shifts[c], 1e-10);
  });
  check_gradient(train, {x, scale, shift}, 1e-5);

  // Running statistics take the variance over n - 1; with them nothing of the batch counts.
  const auto moved = jit([](Weights old, Tensor t, Tensor a, Tensor b) {
    return nn::running_statistics(old, nn::batch_norm(t, a, b, 1e-5, 1), 0.25);
  })(nn::batch_norm_statistics(3), x, scale, shift);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(to_doubles(moved.at("mean"))[c], 0.25 * means[c], 1e-6);
    EXPECT_NEAR(to_doubles(moved.at("variance"))[c], 0.75 + 0.25 * variances[c] * 40 / 39, 1e-6);
  }
  const Array given = jit([](Tensor t, Tensor a, Tensor b, Weights s) {
    return nn::batch_norm(t, a, b, s.at("mean"), s.at("variance"), 1e-5, 1);
  })(x, scale, shift, moved);
  const double mean = to_doubles(moved.at("mean"))[1],
               variance = to_doubles(moved.at("variance"))[1];
  const Image inferred{given.shape(), to_doubles(given)};
  EXPECT_NEAR(inferred.at({3, 1, 0, 2}),
              (image.at({3, 1, 0, 2}) - mean) / std::sqrt(variance + 1e-5) * scales[1] + shifts[1],
              1e-10);
}

TEST_F(Windows, LayersOfConvolutions) {
  const Parameters layer = nn::conv_parameters({3, 3}, 4, 6, random::Key(1), init::he_normal(), 2);
  EXPECT_EQ(layer.at("weight").shape(), (Longs{3, 3, 2, 6}));
  const Array x = jit([](Tensor t) { return cast(t, f32); })(random({2, 5, 5, 4}));
  const Array y = jit([](Weights w, Tensor t) { return nn::conv(w, t, {.groups = 2}); })(layer, x);
  const Array z = jit([](Weights w, Tensor t) {
    return conv(t, w.at("weight"), {.groups = 2}) + w.at("bias");
  })(layer, x);
  EXPECT_EQ(to_doubles(y), to_doubles(z));
}

}  // namespace
}  // namespace braze
