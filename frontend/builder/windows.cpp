#include "braze/windows.h"

#include <algorithm>
#include <numeric>

#include "frontend/builder/builder.h"
#include "ir/ops/monoid.h"
#include "ir/support/text.h"

namespace braze {

using detail::place;

namespace {

/// The quotient, rounded up. `by` is positive.
Dim ceil_div(const Dim& x, int64_t by) { return (x + Dim(by - 1)) / Dim(by); }

Dim least(const Dim& a, const Dim& b) { return to_dim(min(to_expr(a), to_expr(b))); }
Dim not_negative(const Dim& x) { return to_dim(max(to_expr(x), Expr(0))); }

[[noreturn]] void reject(const char* op, const Code& code, std::string message,
                         std::string fix = "") {
  fail(code, fmt::format("{}: {}", detail::called(op), message),
       {.location = place(Where::current()),
        .node = std::string(detail::called(op)),
        .fix = std::move(fix)});
}

/// The number of places on the axis, with its padding and gaps.
Dim places(const Dim& extent, const Window& w) {
  const Dim elements =
      w.gap == 1 ? extent : to_dim(max(to_expr(extent) * w.gap - Expr(w.gap - 1), Expr(0)));
  return elements + w.low + w.high;
}

Dim span(const Window& w) {
  return w.size == 0 ? Dim(1) : Dim((w.size - 1) * std::abs(w.dilation) + 1);
}

void check(const char* op, const Window& w) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto within = [](int64_t value, int64_t least) { return least <= value && value <= kMost; };
  if (!within(w.size, 0) || !within(w.stride, 1) || !within(w.gap, 1) ||
      !within(std::abs(w.dilation), 0) || (w.size > 1 && std::abs(w.dilation) > kMost / w.size))
    reject(op, codes::kBadAttribute,
           fmt::format("a window of {} taps with stride {}, dilation {} and gap {} over axis {}",
                       w.size, w.stride, w.dilation, w.gap, w.axis),
           "sizes are 0 or more, strides and gaps 1 or more, all of them below 2^30");
}

/// Windows, with the given number of them along each axis. The taps are new axes before axis
/// `tap_axis` of x, or at the end. With a negative dilation, the last tap is at the window's
/// beginning.
Tensor windows_of(const Tensor& x, const std::vector<Window>& list, const Dims& counts,
                  const Operand& fill, const char* op, size_t tap_axis) {
  const SourceLocation where = place(Where::current());
  const auto& builder = detail::builder_of(x, op, where);
  const Tensor filler = detail::as_tensor(fill, builder, x.dtype(), op, where);
  // The result's axis for an axis of x.
  const auto moved = [&](int64_t axis) {
    return axis + (axis < static_cast<int64_t>(tap_axis) ? 0 : static_cast<int64_t>(list.size()));
  };
  std::vector<size_t> order(list.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<int64_t> axes;
  for (const Window& w : list) axes.push_back(moved(detail::to_axis(w.axis, x.rank(), op, where)));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return axes[a] < axes[b]; });

  Dims spread = x.shape(), taps;
  for (const Window& w : list) taps.emplace_back(w.size);
  spread.insert(spread.begin() + static_cast<ptrdiff_t>(tap_axis), taps.begin(), taps.end());
  Dims shape = spread;
  WindowsOp attributes;
  for (const size_t i : order) {
    const Window& w = list[i];
    if (!attributes.axes.empty() && attributes.axes.back() == axes[i])
      reject(op, codes::kBadAxis, fmt::format("axis {} has two windows", w.axis));
    const int64_t back = w.dilation < 0 && w.size > 0 ? (w.size - 1) * -w.dilation : 0;
    attributes.axes.push_back(axes[i]);
    attributes.taps.push_back(static_cast<int64_t>(tap_axis + i));
    attributes.strides.push_back(w.stride);
    attributes.dilations.push_back(w.dilation);
    attributes.gaps.push_back(w.gap);
    attributes.low.push_back(to_expr(w.low) - Expr(back));
    shape[static_cast<size_t>(axes[i])] = counts[i];
  }
  std::vector<int64_t> kept;
  for (size_t i = 0; i < x.rank(); ++i) kept.push_back(moved(static_cast<int64_t>(i)));
  const NodeId wide =
      build::broadcast(builder->graph, detail::node_of(x), to_shape(spread), kept, where);
  return detail::wrap(builder, build::windows(builder->graph, wide, detail::node_of(filler),
                                              std::move(attributes), to_shape(shape), where));
}

Dims counts_of(const Tensor& x, const std::vector<Window>& list, const char* op) {
  Dims counts;
  for (const Window& w : list) {
    check(op, w);
    detail::to_axis(w.axis, x.rank(), op, place(Where::current()));
    const Dim free = places(x.dim(w.axis), w) - span(w);
    counts.push_back(not_negative(free / Dim(w.stride) + Dim(1)));
  }
  return counts;
}

/// The spatial axes of an image, and lists with an entry for each of them.
struct Spatial {
  const char* op;
  const Tensor& x;
  Channels channels;
  int64_t count;  ///< the number of spatial axes

  Spatial(const char* name, const Tensor& image, Channels where)
      : op(name), x(image), channels(where) {
    if (x.rank() < 3)
      reject(op, codes::kShapeMismatch, fmt::format("{} is no batch of images", x.to_string()),
             where == Channels::Last ? "x is [n, spatial.., c]" : "x is [n, c, spatial..]");
    count = static_cast<int64_t>(x.rank()) - 2;
  }
  int64_t axis(int64_t i) const { return channels == Channels::Last ? i + 1 : i + 2; }
  int64_t channel_axis() const { return channels == Channels::Last ? count + 1 : 1; }

  template <class T>
  std::vector<T> list(const std::vector<T>& given, const std::vector<T>& otherwise,
                      const char* what) const {
    const std::vector<T>& chosen = given.empty() ? otherwise : given;
    if (chosen.size() != static_cast<size_t>(count))
      reject(op, codes::kBadAttribute,
             fmt::format("{} {} for the {} spatial axes of {}", chosen.size(), what, count,
                         x.to_string()));
    return chosen;
  }
  template <class T>
  std::vector<T> list(const std::vector<T>& given, T otherwise, const char* what) const {
    return list(given, std::vector<T>(static_cast<size_t>(count), otherwise), what);
  }
};

Dim constant_only(const char* op, const Dim& extent, const Tensor& filters) {
  if (!extent.is_constant())
    reject(
        op, codes::kShapeMismatch,
        fmt::format("the taps and channels of the filters {} are symbolic", filters.to_string()));
  return extent;
}

/// A convolution. Its windows and how many there are along each axis are given.
struct Convolution {
  const char* op;
  const Tensor& x;
  const Tensor& filters;
  Channels channels;
  int64_t groups;
  bool tf32;
  /// If channels come first, the filters are [f, c / groups, taps..], or [c, f / groups, taps..] if
  /// `transposed`.
  bool transposed = false;

  Tensor operator()(const std::vector<Window>& list, const Dims& counts) const {
    const size_t n = list.size();
    const bool last = channels == Channels::Last;
    // The windows are [n, places.., taps.., c] or [n, c, taps.., places..]. The summed axes are in
    // the order of the filters, so they are one run of memory if the windows are stored.
    const Tensor under = windows_of(x, list, counts, 0, op, last ? n + 1 : 2);
    std::vector<int64_t> taps(n), under_taps(n);
    std::iota(taps.begin(), taps.end(), last ? 0 : 2);
    std::iota(under_taps.begin(), under_taps.end(), static_cast<int64_t>(last ? n + 1 : 2));
    return groups == 1 ? one_group(under, under_taps, taps) : grouped(under, under_taps, taps);
  }

  Tensor product(const Tensor& left, const Tensor& right, DotAxes axes) const {
    axes.tf32 = tf32;
    return dot_general(left, right, axes);
  }

  Tensor one_group(const Tensor& under, std::vector<int64_t> under_taps,
                   std::vector<int64_t> taps) const {
    const auto n = static_cast<int64_t>(taps.size());
    if (channels == Channels::Last) {
      under_taps.push_back(2 * n + 1);
      taps.push_back(n);
      return product(under, filters, {.contract_left = under_taps, .contract_right = taps});
    }
    under_taps.insert(under_taps.begin(), 1);
    taps.insert(taps.begin(), transposed ? 0 : 1);
    // The product is [f, n, places..], so rows of places stay rows.
    const Tensor y = product(filters, under, {.contract_left = taps, .contract_right = under_taps});
    std::vector<int64_t> order(static_cast<size_t>(n) + 2);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::swap(order[0], order[1]);
    return permute(y, order);
  }

  /// `t` with one axis cut into two: the groups, and the elements of each group.
  Tensor cut(const Tensor& t, int64_t axis) const {
    Dims shape = t.shape();
    const auto i = static_cast<size_t>(axis);
    shape[i] = Dim(shape[i].value() / groups);
    shape.insert(shape.begin() + axis, Dim(groups));
    return reshape(t, shape);
  }

  Tensor grouped(const Tensor& under, std::vector<int64_t> under_taps,
                 std::vector<int64_t> taps) const {
    const auto n = static_cast<int64_t>(taps.size());
    const bool last = channels == Channels::Last;
    // The windows become [n, places.., taps.., g, c] or [n, g, c, taps.., places..].
    const int64_t channel = last ? 2 * n + 1 : 1;
    const Tensor u = cut(under, channel);
    // The filters become [taps.., c, g, f], or [g, f, c, taps..], or if transposed [g, c, f,
    // taps..].
    const Tensor w = cut(filters, last ? n + 1 : 0);
    const int64_t group = last ? n + 1 : 0,
                  in = last         ? n
                       : transposed ? 1
                                    : 2,
                  out = last         ? n + 2
                        : transposed ? 2
                                     : 1;
    if (!last)
      for (std::vector<int64_t>* list : {&under_taps, &taps})
        for (int64_t& axis : *list) ++axis;
    if (w.dim(in) == Dim(1)) return alone(u, w, under_taps, taps, group, in, out);
    std::vector<int64_t> order;
    Tensor y;
    if (last) {  // [g, n, places.., f] to [n, places.., g, f]
      under_taps.push_back(channel + 1);
      taps.push_back(in);
      y = product(u, w,
                  {.batch_left = {channel},
                   .batch_right = {group},
                   .contract_left = under_taps,
                   .contract_right = taps});
      for (int64_t i = 1; i <= n + 1; ++i) order.push_back(i);
      order.push_back(0);
      order.push_back(n + 2);
    } else {  // [g, f, n, places..] to [n, g, f, places..]
      under_taps.insert(under_taps.begin(), channel + 1);
      taps.insert(taps.begin(), in);
      y = product(w, u,
                  {.batch_left = {group},
                   .batch_right = {channel},
                   .contract_left = taps,
                   .contract_right = under_taps});
      order = {2, 0, 1};
      for (int64_t i = 3; i < n + 3; ++i) order.push_back(i);
    }
    return joined(permute(y, order));
  }

  /// Every group has one channel, so the products of elements are summed over the taps only.
  Tensor alone(const Tensor& u, const Tensor& w, const std::vector<int64_t>& under_taps,
               const std::vector<int64_t>& taps, int64_t group, int64_t in, int64_t out) const {
    const auto n = static_cast<int64_t>(taps.size());
    const DType wide = compute_type(x.dtype());
    // u is [n, places.., taps.., g, 1] or [n, g, 1, taps.., places..]. Its axis of extent 1 meets
    // the filters' axis f.
    std::vector<int64_t> order;
    Dims shape;
    if (channels == Channels::Last) {
      order = taps;
      order.insert(order.end(), {in, group, out});
    } else {
      order = {in, group, out};
      order.insert(order.end(), taps.begin(), taps.end());
    }
    Tensor filter = permute(cast(w, wide), order);
    shape = filter.shape();
    if (channels == Channels::Last) {
      shape.erase(shape.end() - 3);
    } else {
      shape.erase(shape.begin());
      shape.insert(shape.end(), static_cast<size_t>(n), Dim(1));
    }
    filter = reshape(filter, shape);
    return joined(cast(sum(cast(u, wide) * filter, under_taps), x.dtype()));
  }

  /// `y` with the groups and each group's filters as one axis.
  Tensor joined(const Tensor& y) const {
    Dims shape = y.shape();
    const auto axis =
        static_cast<ptrdiff_t>(channels == Channels::Last ? shape.size() - 2 : size_t{1});
    shape[static_cast<size_t>(axis)] =
        shape[static_cast<size_t>(axis)] * shape[static_cast<size_t>(axis) + 1];
    shape.erase(shape.begin() + axis + 1);
    return reshape(y, shape);
  }
};

/// Checks the rank, the dtypes and the numbers of channels.
void check_filters(const char* op, const Spatial& s, const Tensor& filters, int64_t groups,
                   bool transposed) {
  const Tensor& x = s.x;
  const bool last = s.channels == Channels::Last;
  const char* form = last         ? "[taps.., c / groups, f]"
                     : transposed ? "[c, f / groups, taps..]"
                                  : "[f, c / groups, taps..]";
  const auto misfit = [&](std::string why) {
    reject(op, codes::kShapeMismatch,
           fmt::format("{} with filters {} and {} groups: {}", x.to_string(), filters.to_string(),
                       groups, why),
           fmt::format("filters are {}", form));
  };
  if (filters.rank() != x.rank()) misfit("the ranks differ");
  if (filters.dtype() != x.dtype() || !is_floating(x.dtype()) || is_stored_float(x.dtype()))
    reject(op, codes::kDTypeMismatch,
           fmt::format("x is {} and the filters are {}", name(x.dtype()), name(filters.dtype())),
           "both are of one floating dtype; cast one");
  for (int64_t i = 0; i < static_cast<int64_t>(filters.rank()); ++i)
    constant_only(op, filters.dim(i), filters);
  const Dim c = x.dim(s.channel_axis());
  if (!c.is_constant()) misfit("the channels are symbolic");
  const bool by_input = transposed && !last;  // axis 0 has the channels of all groups
  const int64_t shared = filters.dim(last ? s.count : by_input ? 0 : 1).value();
  const int64_t own = filters.dim(last ? s.count + 1 : by_input ? 1 : 0).value();
  if (groups < 1 || c.value() % groups != 0 || (!by_input && own % groups != 0))
    misfit("channels and filters are multiples of the groups");
  if (shared != (by_input ? c.value() : c.value() / groups))
    misfit(fmt::format("the channels do not fit: {} of x", c.value()));
}

std::vector<int64_t> taps_of(const Spatial& s, const Tensor& filters) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < s.count; ++i)
    sizes.push_back(filters.dim(s.channels == Channels::Last ? i : i + 2).value());
  return sizes;
}

/// Throws if a window is longer than the whole padded axis, as far as that is known.
void check_fits(const char* op, const Tensor& x, const Window& w) {
  const Dim all = places(x.dim(w.axis), w);
  if (all.is_constant() && all.value() < span(w).value() && all.value() >= 0 &&
      !(x.dim(w.axis) == Dim(0)))
    reject(op, codes::kShapeMismatch,
           fmt::format("a window of {} places does not fit into the {} of axis {} of {}",
                       span(w).value(), all.value(), w.axis, x.to_string()),
           "pad more, or take a smaller window");
}

std::vector<Window> pool_windows(const Spatial& s, const std::vector<int64_t>& sizes,
                                 const PoolOptions& options) {
  std::vector<Window> list;
  const auto size = s.list(sizes, sizes, "sizes");
  const auto strides = s.list(options.strides, sizes, "strides");
  const auto dilations = s.list(options.dilations, int64_t{1}, "dilations");
  const auto low = s.list(options.low, Dim(0), "entries of low");
  const auto high = s.list(options.high, Dim(0), "entries of high");
  for (int64_t i = 0; i < s.count; ++i) {
    const auto at = static_cast<size_t>(i);
    list.push_back({.axis = s.axis(i),
                    .size = size[at],
                    .stride = strides[at],
                    .dilation = dilations[at],
                    .low = low[at],
                    .high = high[at]});
    check(s.op, list.back());
    const auto negative = [](const Dim& d) { return d.is_constant() && d.value() < 0; };
    if (size[at] < 1 || dilations[at] < 1 || negative(low[at]) || negative(high[at]))
      reject(s.op, codes::kBadAttribute,
             fmt::format("a window of size {}, dilation {} and padding {}, {}", size[at],
                         dilations[at], low[at].to_string(), high[at].to_string()),
             "sizes and dilations are 1 or more, padding is not negative");
    if (!options.ceil_mode) check_fits(s.op, s.x, list.back());
  }
  return list;
}

Dims pool_counts(const Spatial& s, const std::vector<Window>& list, bool ceil_mode) {
  if (!ceil_mode) return counts_of(s.x, list, s.op);
  Dims counts;
  for (const Window& w : list) {
    const Dim extent = s.x.dim(w.axis);
    // The last window must begin before the padding at the end.
    const Dim all = ceil_div(places(extent, w) - span(w), w.stride) + Dim(1);
    counts.push_back(not_negative(least(all, ceil_div(extent + w.low, w.stride))));
  }
  return counts;
}

std::vector<int64_t> tap_axes(const Tensor& x, size_t count) {
  std::vector<int64_t> axes(count);
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(x.rank()));
  return axes;
}

}  // namespace

Tensor windows(const Tensor& x, const std::vector<Window>& list, const Operand& fill, Where where) {
  const detail::Place at(where, "windows");
  return windows_of(x, list, counts_of(x, list, "windows"), fill, "windows", x.rank());
}

ConvOptions same_padding(const Tensor& x, const std::vector<int64_t>& sizes, ConvOptions options,
                         Where where) {
  const detail::Place at(where, "same_padding");
  const Spatial s("same_padding", x, options.channels);
  const auto size = s.list(sizes, sizes, "sizes");
  const auto strides = s.list(options.strides, int64_t{1}, "strides");
  const auto dilations = s.list(options.dilations, int64_t{1}, "dilations");
  options.low.clear();
  options.high.clear();
  for (int64_t i = 0; i < s.count; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t reach = (size[k] - 1) * dilations[k] + 1;
    int64_t all = reach - 1;
    if (strides[k] != 1) {
      const int64_t extent = x.dim(s.axis(i)).value();
      all = std::max<int64_t>(
          ((extent + strides[k] - 1) / strides[k] - 1) * strides[k] + reach - extent, 0);
    }
    options.low.emplace_back(all / 2);
    options.high.emplace_back(all - all / 2);
  }
  return options;
}

Tensor conv(const Tensor& x, const Tensor& filters, const ConvOptions& options, Where where) {
  const detail::Place at(where, "conv");
  const Spatial s("conv", x, options.channels);
  check_filters("conv", s, filters, options.groups, false);
  const std::vector<int64_t> sizes = taps_of(s, filters);
  const auto strides = s.list(options.strides, int64_t{1}, "strides");
  const auto dilations = s.list(options.dilations, int64_t{1}, "dilations");
  const auto gaps = s.list(options.gaps, int64_t{1}, "gaps");
  const auto low = s.list(options.low, Dim(0), "entries of low");
  const auto high = s.list(options.high, Dim(0), "entries of high");
  std::vector<Window> list;
  for (int64_t i = 0; i < s.count; ++i) {
    const auto k = static_cast<size_t>(i);
    list.push_back({s.axis(i), sizes[k], strides[k], dilations[k], gaps[k], low[k], high[k]});
    check("conv", list.back());
    check_fits("conv", x, list.back());
  }
  return Convolution{"conv", x, filters, options.channels, options.groups, options.tf32}(
      list, counts_of(x, list, "conv"));
}

Tensor conv_transpose(const Tensor& x, const Tensor& filters, const ConvOptions& options,
                      std::vector<int64_t> output_padding, Where where) {
  const detail::Place at(where, "conv_transpose");
  constexpr const char* op = "conv_transpose";
  const Spatial s(op, x, options.channels);
  check_filters(op, s, filters, options.groups, true);
  if (!options.gaps.empty())
    reject(op, codes::kBadAttribute, "gaps are the strides of a transposed convolution",
           "give strides");
  const std::vector<int64_t> sizes = taps_of(s, filters);
  const auto strides = s.list(options.strides, int64_t{1}, "strides");
  const auto dilations = s.list(options.dilations, int64_t{1}, "dilations");
  const auto low = s.list(options.low, Dim(0), "entries of low");
  const auto high = s.list(options.high, Dim(0), "entries of high");
  const auto more = s.list(output_padding, int64_t{0}, "entries of output_padding");
  std::vector<Window> list;
  Dims counts;
  for (int64_t i = 0; i < s.count; ++i) {
    const auto k = static_cast<size_t>(i);
    // The taps go backwards over the elements, which have gaps between them. The last tap is at
    // `low`.
    const int64_t reach = (sizes[k] - 1) * dilations[k];
    list.push_back(
        {s.axis(i), sizes[k], 1, -dilations[k], strides[k], Dim(reach) - low[k], Dim(0)});
    check(op, list.back());
    const Dim spread =
        to_dim(max(to_expr(x.dim(s.axis(i))) * strides[k] - Expr(strides[k] - 1), Expr(0)));
    const Dim count = spread + Dim(reach) - low[k] - high[k] + Dim(more[k]);
    if (count.is_constant() && count.value() < 0)
      reject(op, codes::kShapeMismatch,
             fmt::format("axis {} of {} would have {} places", s.axis(i), x.to_string(),
                         count.value()));
    counts.push_back(not_negative(count));
  }
  return Convolution{op, x, filters, options.channels, options.groups, options.tf32, true}(list,
                                                                                           counts);
}

Tensor max_pool(const Tensor& x, const std::vector<int64_t>& sizes, const PoolOptions& options,
                Where where) {
  const detail::Place at(where, "max_pool");
  const Spatial s("max_pool", x, options.channels);
  const std::vector<Window> list = pool_windows(s, sizes, options);
  const auto& builder = x.builder();
  const Tensor lowest = detail::wrap(
      builder, build::scalar_bits(builder->graph, x.dtype(), info(Monoid::Max).identity(x.dtype()),
                                  place(where)));
  const Tensor under =
      windows_of(x, list, pool_counts(s, list, options.ceil_mode), lowest, "max_pool", x.rank());
  return max(under, tap_axes(x, list.size()));
}

Tensor avg_pool(const Tensor& x, const std::vector<int64_t>& sizes, const PoolOptions& options,
                Where where) {
  const detail::Place at(where, "avg_pool");
  const Spatial s("avg_pool", x, options.channels);
  if (!is_floating(x.dtype()))
    reject("avg_pool", codes::kDTypeMismatch, fmt::format("{} is not floating", x.to_string()),
           "cast it to f32");
  const std::vector<Window> list = pool_windows(s, sizes, options);
  const Dims counts = pool_counts(s, list, options.ceil_mode);
  const DType wide = compute_type(x.dtype());
  const Tensor total = sum(cast(windows_of(x, list, counts, 0, "avg_pool", x.rank()), wide),
                           tap_axes(x, list.size()));
  // The number of places that a window covers is a product with one factor for each axis.
  Tensor result = total;
  int64_t whole = 1;
  for (size_t i = 0; i < list.size(); ++i) {
    Window w = list[i];
    const bool plain =
        !options.ceil_mode && (options.count_include_pad || (w.low == Dim(0) && w.high == Dim(0)));
    if (plain) {
      whole *= w.size;
      continue;
    }
    Dim covered = x.dim(w.axis);
    if (options.count_include_pad) {  // places up to the end of the padding count
      covered = covered + w.low + w.high;
      w.low = Dim(0);
    }
    const Tensor ones = full(wide, {covered}, 1);
    const int64_t axis = w.axis;
    w.axis = 0;
    const Tensor number = sum(windows_of(ones, {w}, {counts[i]}, 0, "avg_pool", 1), 1);
    Dims along(x.rank(), Dim(1));
    along[static_cast<size_t>(axis)] = counts[i];
    result = result / reshape(number, along);
  }
  if (whole != 1) result = result / static_cast<double>(whole);
  return cast(result, x.dtype());
}

}  // namespace braze
