// windows.cpp — operators on windows of an image: convolution and pooling.
#include "braze/windows.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "frontend/builder/builder.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

// The windows of a node over [n, c, spatial..]. The lists have an entry for each spatial axis.
struct Geometry {
  std::vector<int64_t> sizes, strides, dilations;
  Dims low, high;  // padding
};

std::vector<int64_t> list(const OnnxNode& n, std::string_view name, size_t count,
                          int64_t otherwise) {
  auto out = n.integers(name, std::vector<int64_t>(count, otherwise));
  if (out.empty()) out.assign(count, otherwise);
  if (out.size() != count)
    n.refuse(fmt::format("{} has {} numbers for {} spatial axes", name, out.size(), count));
  return out;
}

size_t spatial_axes(const OnnxNode& n, const Tensor& x) {
  if (x.rank() < 3) n.refuse("there is no axis behind the channels");
  return x.rank() - 2;
}

int64_t span(const Geometry& g, size_t i) { return (g.sizes[i] - 1) * g.dilations[i] + 1; }

// Divides padding between both sides. If it is odd, the side at the end gets more if `behind`.
void share(Geometry& g, size_t i, const Dim& total, bool behind) {
  const Dim less = total / Dim(2), more = total - less;
  g.low[i] = behind ? less : more;
  g.high[i] = behind ? more : less;
}

Geometry geometry(const OnnxNode& n, const Tensor& x, std::vector<int64_t> sizes) {
  const size_t count = spatial_axes(n, x);
  Geometry g;
  if (sizes.size() != count) n.refuse("the sizes of the windows do not fit the spatial axes");
  g.sizes = std::move(sizes);
  g.strides = list(n, "strides", count, 1);
  g.dilations = list(n, "dilations", count, 1);
  const std::string automatic = n.text("auto_pad", "NOTSET");
  const auto pads = list(n, "pads", 2 * count, 0);
  g.low.assign(count, 0);
  g.high.assign(count, 0);
  for (size_t i = 0; i < count; ++i) {
    if (automatic == "NOTSET") {
      g.low[i] = pads[i];
      g.high[i] = pads[count + i];
    } else if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const Expr extent = to_expr(x.dim(static_cast<int64_t>(i) + 2));
      const Expr windows = floordiv(extent + Expr(g.strides[i] - 1), g.strides[i]);
      const Expr total =
          max((windows - Expr(1)) * g.strides[i] + Expr(span(g, i)) - extent, Expr(0));
      share(g, i, to_dim(total), automatic == "SAME_UPPER");
    } else if (automatic != "VALID") {
      n.refuse(fmt::format("auto_pad is {}", automatic));
    }
  }
  return g;
}

// ---- Convolution --------------------------------------------------------------------------------

// The sizes of the filters. The attribute must agree with the filters' shape.
std::vector<int64_t> filter_sizes(const OnnxNode& n, const Tensor& filters) {
  std::vector<int64_t> sizes;
  for (size_t i = 2; i < filters.rank(); ++i) {
    const auto size = to_expr(filters.dim(static_cast<int64_t>(i))).as_constant();
    if (!size) n.refuse("the extents of the filters are not known");
    sizes.push_back(*size);
  }
  if (list(n, "kernel_shape", sizes.size(), 0) != sizes && n.has_attribute("kernel_shape"))
    n.refuse("kernel_shape differs from the filters' shape");
  return sizes;
}

Tensor with_bias(OnnxNode& n, const Tensor& y, size_t bias) {
  if (!n.has(bias)) return y;
  Dims shape(y.rank(), Dim(1));
  shape[1] = n[bias].dim(0);
  return y + reshape(n[bias], shape);
}

Tensor conv_of(OnnxNode& n) { return with_bias(n, convolved(n, n[0], n[1]), 2); }

Tensor transposed_conv(OnnxNode& n) {
  const Tensor &x = n[0], &filters = n[1];
  const size_t count = spatial_axes(n, x);
  const std::string automatic = n.text("auto_pad", "NOTSET");
  const auto pads = list(n, "pads", 2 * count, 0);
  const auto shape = n.integers("output_shape", std::vector<int64_t>());
  const auto more = list(n, "output_padding", count, 0);
  Geometry g;
  g.sizes = filter_sizes(n, filters);
  if (g.sizes.size() != count) n.refuse("the filters do not fit the spatial axes");
  g.strides = list(n, "strides", count, 1);
  g.dilations = list(n, "dilations", count, 1);
  g.low.assign(count, 0);
  g.high.assign(count, 0);
  if (automatic != "NOTSET" && automatic != "VALID" && !automatic.starts_with("SAME_"))
    n.refuse(fmt::format("auto_pad is {}", automatic));
  if (!shape.empty() && shape.size() != count)
    n.refuse("output_shape does not fit the spatial axes");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  for (size_t i = 0; i < count; ++i) {
    if (shape.empty() && !same) {
      if (automatic == "NOTSET") {
        g.low[i] = pads[i];
        g.high[i] = pads[count + i];
      }
      continue;
    }
    const Dim extent = x.dim(static_cast<int64_t>(i) + 2);
    const Dim result = shape.empty() ? extent * Dim(g.strides[i]) : Dim(shape[i]);
    share(g, i, (extent - Dim(1)) * Dim(g.strides[i]) + Dim(more[i] + span(g, i)) - result,
          automatic == "SAME_UPPER");
  }
  const Tensor y = conv_transpose(x, filters,
                                  {.strides = g.strides,
                                   .dilations = g.dilations,
                                   .low = g.low,
                                   .high = g.high,
                                   .groups = n.integer("group", 1),
                                   .channels = Channels::First},
                                  more);
  return with_bias(n, y, 2);
}

// ---- Pooling ------------------------------------------------------------------------------------

std::vector<int64_t> pool_sizes(const OnnxNode& n) { return n.integers("kernel_shape"); }

PoolOptions pool_options(const OnnxNode& n, const Geometry& g) {
  return {.strides = g.strides,
          .dilations = g.dilations,
          .low = g.low,
          .high = g.high,
          .ceil_mode = n.integer("ceil_mode", 0) != 0,
          .channels = Channels::First};
}

Tensor average_pool(OnnxNode& n) {
  const Geometry g = geometry(n, n[0], pool_sizes(n));
  PoolOptions options = pool_options(n, g);
  options.count_include_pad = n.integer("count_include_pad", 0) != 0;
  return avg_pool(n[0], g.sizes, options);
}

// The windows of x, with all taps as one last axis.
Tensor taps_of(const Tensor& x, const Geometry& g, const Operand& fill) {
  std::vector<Window> list;
  for (size_t i = 0; i < g.sizes.size(); ++i)
    list.push_back({.axis = static_cast<int64_t>(i) + 2,
                    .size = g.sizes[i],
                    .stride = g.strides[i],
                    .dilation = g.dilations[i],
                    .low = g.low[i],
                    .high = g.high[i]});
  const Tensor all = windows(x, list, fill);
  const Dims shape = all.shape();
  Dims flat(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(x.rank()));
  flat.emplace_back(
      std::accumulate(g.sizes.begin(), g.sizes.end(), int64_t{1}, std::multiplies<>()));
  return reshape(all, flat);
}

// For each window, the place of its greatest element in the whole tensor.
Tensor places_of_greatest(OnnxNode& n, const Geometry& g) {
  if (n.integer("ceil_mode", 0) != 0) n.refuse("the indices of windows that reach beyond the end");
  const Tensor& x = n[0];
  Dims order = x.shape();
  const bool by_columns = n.integer("storage_order", 0) != 0;
  Tensor place = arange(i64, x.numel());
  if (by_columns) {  // the first spatial axis is the fastest
    std::vector<int64_t> permutation(x.rank());
    std::iota(permutation.begin(), permutation.end(), int64_t{0});
    std::reverse(permutation.begin() + 2, permutation.end());
    for (size_t i = 2; i < x.rank(); ++i) order[i] = x.shape()[at(permutation[i])];
    place = permute(reshape(place, order), permutation);
  } else {
    place = reshape(place, order);
  }
  const Operand least = is_floating(x.dtype()) ? Operand(-std::numeric_limits<double>::infinity())
                                               : Operand(is_signed_integer(x.dtype()) ? -128 : 0);
  const Tensor greatest = argmax(taps_of(x, g, least), -1, true);
  const Tensor found = take_along_axis(taps_of(place, g, 0), greatest, -1);
  return squeeze(found, -1);
}

Tensors max_pool_of(OnnxNode& n) {
  const Geometry g = geometry(n, n[0], pool_sizes(n));
  const Tensor y = max_pool(n[0], g.sizes, pool_options(n, g));
  if (n.wants(1)) return {y, places_of_greatest(n, g)};
  n.ignore("storage_order");
  return {y};
}

Tensor lp_pool(OnnxNode& n) {
  const Tensor x = abs(widened(n[0]));
  const auto p = static_cast<double>(n.integer("p", 2));
  if (n.integer("ceil_mode", 0) != 0) n.refuse("windows that reach beyond the padding");
  const Tensor taps = taps_of(x, geometry(n, x, pool_sizes(n)), 0.0);
  return cast(pow(sum(pow(taps, p), -1), 1 / p), n[0].dtype());
}

}  // namespace

Tensor convolved(const OnnxNode& n, const Tensor& x, const Tensor& filters) {
  const Geometry g = geometry(n, x, filter_sizes(n, filters));
  return conv(x, filters,
              {.strides = g.strides,
               .dilations = g.dilations,
               .low = g.low,
               .high = g.high,
               .groups = n.integer("group", 1),
               .channels = Channels::First});
}

const Rows& window_rows() {
  static const Rows kRows = {
      {"AveragePool", average_pool}, {"Conv", conv_of},        {"ConvTranspose", transposed_conv},
      {"LpPool", lp_pool, 2},        {"MaxPool", max_pool_of},
  };
  return kRows;
}

}  // namespace braze::onnx
