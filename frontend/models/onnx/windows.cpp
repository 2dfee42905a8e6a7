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

// The most of a number that says how windows lie. Products of two are still far from overflow.
constexpr int64_t kMostPlaces = int64_t{1} << 30;

// A list with `count` numbers, each of which is at least `least`.
std::vector<int64_t> list(const OnnxNode& n, std::string_view name, size_t count, int64_t otherwise,
                          int64_t least) {
  auto out = n.integers(name, std::vector<int64_t>(count, otherwise));
  if (out.empty()) out.assign(count, otherwise);
  if (out.size() != count)
    n.refuse(fmt::format("{} has {} numbers, and this node needs {}", name, out.size(), count),
             fmt::format("give {} one number for each spatial axis{}", name,
                         name == "pads" ? " and each side of it" : ""));
  if (std::ranges::any_of(out, [&](int64_t value) { return value < least || value > kMostPlaces; }))
    n.refuse(fmt::format("{} is [{}]", name, fmt::join(out, ", ")),
             fmt::format("give {} numbers from {} to {}", name, least, kMostPlaces));
  return out;
}
std::vector<int64_t> strides_of(const OnnxNode& n, size_t count) {
  return list(n, "strides", count, 1, 1);
}
std::vector<int64_t> dilations_of(const OnnxNode& n, size_t count) {
  return list(n, "dilations", count, 1, 1);
}
// The padding before each axis, and then behind each.
std::vector<int64_t> pads_of(const OnnxNode& n, size_t count) {
  return list(n, "pads", 2 * count, 0, 0);
}

std::string automatic_padding(const OnnxNode& n) {
  const std::string automatic = n.text("auto_pad", "NOTSET");
  constexpr std::string_view kKnown[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
  if (std::ranges::find(kKnown, automatic) == std::end(kKnown))
    n.refuse(fmt::format("auto_pad is {}", automatic),
             fmt::format("auto_pad is one of {}", fmt::join(kKnown, ", ")));
  return automatic;
}

// A convolution cannot have both.
void check_one_padding(const OnnxNode& n, const std::string& automatic,
                       const std::vector<int64_t>& pads) {
  if (automatic == "NOTSET" || std::ranges::all_of(pads, [](int64_t pad) { return pad == 0; }))
    return;
  n.refuse(fmt::format("auto_pad is {}, and pads is [{}]", automatic, fmt::join(pads, ", ")),
           "remove one of the two attributes");
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
  g.strides = strides_of(n, count);
  g.dilations = dilations_of(n, count);
  const std::string automatic = automatic_padding(n);
  const auto pads = pads_of(n, count);
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
  if (n.has_attribute("kernel_shape") && n.integers("kernel_shape") != sizes)
    n.refuse(fmt::format("kernel_shape is [{}], and the filters {} have windows of [{}]",
                         fmt::join(n.integers("kernel_shape"), ", "), filters.to_string(),
                         fmt::join(sizes, ", ")),
             "remove kernel_shape, or give it the extents of the filters");
  return sizes;
}

Tensor with_bias(OnnxNode& n, const Tensor& y, size_t bias) {
  if (!n.has(bias)) return y;
  Dims shape(y.rank(), Dim(1));
  shape[1] = n[bias].dim(0);
  return y + reshape(n[bias], shape);
}

Tensor conv_of(OnnxNode& n) { return with_bias(n, convolved(n, n[0], n[1]), 2); }

// The padding of a transposed convolution whose result has a given extent along axis i. It may be
// negative: the result then reaches beyond what x contributes to, by less than a stride.
Dim padding_for(const OnnxNode& n, const Geometry& g, size_t i, const Dim& extent,
                const Dim& result, int64_t more) {
  const Dim total = (extent - Dim(1)) * Dim(g.strides[i]) + Dim(more + span(g, i)) - result;
  if (total.is_constant() && total.value() <= -g.strides[i])
    n.refuse(fmt::format("output_shape has {} along spatial axis {}, where {} elements with stride "
                         "{} reach {} at most",
                         result.to_string(), i, extent.to_string(), g.strides[i],
                         (result + total).value() + g.strides[i] - 1),
             "give output_shape a smaller number there, or strides a larger one");
  return total;
}

Tensor transposed_conv(OnnxNode& n) {
  const Tensor &x = n[0], &filters = n[1];
  const size_t count = spatial_axes(n, x);
  const std::string automatic = automatic_padding(n);
  const auto pads = pads_of(n, count);
  std::vector<int64_t> shape = n.integers("output_shape", std::vector<int64_t>());
  if (!shape.empty()) shape = list(n, "output_shape", count, 1, 1);
  const auto more = list(n, "output_padding", count, 0, 0);
  Geometry g;
  g.sizes = filter_sizes(n, filters);
  if (g.sizes.size() != count) n.refuse("the filters do not fit the spatial axes");
  g.strides = strides_of(n, count);
  g.dilations = dilations_of(n, count);
  g.low.assign(count, 0);
  g.high.assign(count, 0);
  check_one_padding(n, automatic, pads);
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  for (size_t i = 0; i < count; ++i) {
    if (more[i] >= std::max(g.strides[i], g.dilations[i]))
      n.refuse(
          fmt::format("output_padding is {} along spatial axis {}, with stride {} and dilation "
                      "{}",
                      more[i], i, g.strides[i], g.dilations[i]),
          "output_padding must be less than the stride or the dilation");
    if (shape.empty() && !same) {
      if (automatic == "NOTSET") {
        g.low[i] = pads[i];
        g.high[i] = pads[count + i];
      }
      continue;
    }
    const Dim extent = x.dim(static_cast<int64_t>(i) + 2);
    const Dim result = shape.empty() ? extent * Dim(g.strides[i]) : Dim(shape[i]);
    share(g, i, padding_for(n, g, i, extent, result, more[i]), automatic == "SAME_UPPER");
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

// The windows of a pool. None of them may lie in the padding alone.
Geometry pool_geometry(const OnnxNode& n, const Tensor& x) {
  const size_t count = spatial_axes(n, x);
  n.integers("kernel_shape");  // must be there
  Geometry g = geometry(n, x, list(n, "kernel_shape", count, 1, 1));
  if (automatic_padding(n) != "NOTSET") return g;
  const auto pads = pads_of(n, count);
  for (size_t i = 0; i < pads.size(); ++i)
    if (pads[i] >= g.sizes[i % count])
      n.refuse(fmt::format("pads is [{}], with windows of [{}]", fmt::join(pads, ", "),
                           fmt::join(g.sizes, ", ")),
               "padding must be less than the window");
  return g;
}

PoolOptions pool_options(const OnnxNode& n, const Geometry& g) {
  return {.strides = g.strides,
          .dilations = g.dilations,
          .low = g.low,
          .high = g.high,
          .ceil_mode = n.integer("ceil_mode", 0) != 0,
          .channels = Channels::First};
}

Tensor average_pool(OnnxNode& n) {
  const Geometry g = pool_geometry(n, n[0]);
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
  const bool by_columns = n.integer("storage_order", 0) == 1;
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
  const Geometry g = pool_geometry(n, n[0]);
  const Tensor y = max_pool(n[0], g.sizes, pool_options(n, g));
  const int64_t order = n.integer("storage_order", 0);
  if (order != 0 && order != 1)
    n.refuse(fmt::format("storage_order is {}", order),
             "give storage_order 0, by rows, or 1, by columns");
  if (n.wants(1)) return {y, places_of_greatest(n, g)};
  return {y};
}

Tensor lp_pool(OnnxNode& n) {
  const Tensor x = abs(widened(n[0]));
  const auto p = static_cast<double>(n.integer("p", 2));
  if (n.integer("ceil_mode", 0) != 0) n.refuse("windows that reach beyond the padding");
  const Tensor taps = taps_of(x, pool_geometry(n, x), 0.0);
  return cast(pow(sum(pow(taps, p), -1), 1 / p), n[0].dtype());
}

}  // namespace

Tensor convolved(const OnnxNode& n, const Tensor& x, const Tensor& filters) {
  const Geometry g = geometry(n, x, filter_sizes(n, filters));
  check_one_padding(n, automatic_padding(n), pads_of(n, g.sizes.size()));
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
