// indexing.cpp — operators that read or write at places that other tensors contain (gather,
// scatter, top-k), and resampling, which reads at places that are known at import.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontend/builder/builder.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

// The most elements of a resampled axis. It is limited because the sources of each are listed.
constexpr int64_t kMostResampled = int64_t{1} << 16;
// The most elements of the source for one of the result, because each of them is a node.
constexpr size_t kMostTaps = size_t{1} << 10;

// Operand `i`, which holds indices, in a type that all ops accept.
Tensor index_of(const OnnxNode& n, size_t i) {
  const Tensor& x = n[i];
  if (is_floating(x.dtype()) || x.dtype() == boolean)
    n.refuse(fmt::format("the indices (operand {}) are {}", i, x.to_string()),
             "give indices as INT64; a Cast in front of the node converts them");
  return x.dtype() == i32 || x.dtype() == i64 ? x : cast(x, i64);
}

Dim product(const Dims& dims, size_t begin, size_t end) {
  Dim out = 1;
  for (size_t i = begin; i < end; ++i) out = out * dims[i];
  return out;
}

Dims part(const Dims& dims, size_t begin, size_t end) {
  return {dims.begin() + static_cast<std::ptrdiff_t>(begin),
          dims.begin() + static_cast<std::ptrdiff_t>(end)};
}

// A size as a tensor of rank 0.
Tensor size_as(const Tensor& like, const Dim& size) {
  const auto& builder = like.builder();
  const NodeId node = build::size(builder->graph, to_expr(size));
  return cast(detail::wrap(builder, node), like.dtype());
}

// ---- Gather -----------------------------------------------------------------------------------

Tensor gathered(OnnxNode& n) {
  const int64_t axis = n.axis(n.integer("axis", 0), n[0].rank());
  return take(n[0], from_start(index_of(n, 1), n[0].dim(axis)), axis);
}

// x, which is cut to the extents of the indices along all axes but `axis`.
Tensor cut_to(const Tensor& x, const Tensor& indices, int64_t axis) {
  Dims limits = indices.shape();
  limits[at(axis)] = x.dim(axis);
  return slice(x, Dims(x.rank(), Dim(0)), limits);
}

Tensor gather_elements(OnnxNode& n) {
  const int64_t axis = n.axis(n.integer("axis", 0), n[0].rank());
  if (n[1].rank() != n[0].rank()) n.refuse("the indices have another rank than the data");
  const Tensor indices = from_start(index_of(n, 1), n[0].dim(axis));
  return take_along_axis(cut_to(n[0], indices, axis), indices, axis);
}

// The axes 0, 1 .. of which there are `count`, from `first` on.
std::vector<int64_t> axes_from(int64_t first, size_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// Index vectors in the last axis of operand 1, for the axes [batch, batch + their length) of x.
struct Tuples {
  Tensor indices;
  GatherAxes axes;
  size_t end;  // the first axis of x that they do not index
};

Tuples tuples_of(OnnxNode& n, size_t batch) {
  const Tensor& x = n[0];
  Tensor indices = index_of(n, 1);
  if (indices.rank() == 0 || !indices.dim(-1).is_constant())
    n.refuse("the indices are not vectors of a known length");
  const size_t tuple = at(indices.dim(-1).value());
  if (tuple > x.rank() || batch > x.rank() - tuple || batch >= indices.rank())
    n.refuse("the indices are longer than the data has axes");
  std::vector<Tensor> counted;
  for (size_t i = 0; i < tuple; ++i) {
    const auto k = static_cast<int64_t>(i);
    counted.push_back(
        from_start(slice(indices, -1, k, k + 1), x.dim(static_cast<int64_t>(batch) + k)));
  }
  if (tuple > 0) indices = concat(counted, -1);
  const size_t end = batch + tuple;
  GatherAxes axes{.indexed = axes_from(static_cast<int64_t>(batch), tuple),
                  .windows = axes_from(static_cast<int64_t>(indices.rank()) - 1, x.rank() - end),
                  .collapsed = axes_from(static_cast<int64_t>(batch), tuple),
                  .batch = axes_from(0, batch),
                  .index_batch = axes_from(0, batch)};
  return {indices, std::move(axes), end};
}

Tensor gather_nd(OnnxNode& n) {
  const Tuples tuples = tuples_of(n, at(n.integer("batch_dims", 0)));
  Dims sizes(tuples.end, Dim(1));
  const Dims rest = part(n[0].shape(), tuples.end, n[0].rank());
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return gather(n[0], tuples.indices, sizes, tuples.axes, Outside::Never);
}

// ---- Scatter ------------------------------------------------------------------------------------

Scatter reduction_of(OnnxNode& n) {
  const std::string reduction = n.text("reduction", "none");
  if ((reduction == "max" || reduction == "min") && n.opset() < 18)
    n.refuse(fmt::format("the reduction is {}, which is there from opset 18 on", reduction));
  if (reduction == "none") return Scatter::Set;
  if (reduction == "add") return Scatter::Add;
  if (reduction == "mul") return Scatter::Mul;
  if (reduction == "max") return Scatter::Max;
  if (reduction == "min") return Scatter::Min;
  n.refuse(fmt::format("the reduction is {}", reduction));
}

// Every update has its own index along one axis, and its own place along the others.
Tensor scatter_elements(OnnxNode& n) {
  const Tensor& x = n[0];
  const int64_t axis = n.axis(n.integer("axis", 0), x.rank());
  if (n[1].rank() != x.rank()) n.refuse("the indices have another rank than the data");
  GatherAxes axes{.indexed = {axis}, .collapsed = {axis}};
  for (int64_t other = 0; other < static_cast<int64_t>(x.rank()); ++other)
    if (other != axis) axes.batch.push_back(other);
  axes.index_batch = axes.batch;
  axes.vector = static_cast<int64_t>(x.rank());
  return scatter(x, from_start(index_of(n, 1), x.dim(axis)), n[2], axes, reduction_of(n),
                 Outside::Never);
}

Tensor scatter_nd(OnnxNode& n) {
  const Tuples tuples = tuples_of(n, 0);
  const Dims x = n[0].shape(), indices = n[1].shape();
  Dims wanted = part(indices, 0, indices.size() - 1);
  const Dims rest = part(x, tuples.end, x.size());
  wanted.insert(wanted.end(), rest.begin(), rest.end());
  if (!may_equal(n[2].shape(), wanted))
    n.refuse(fmt::format("the updates (operand 2) are {}, and with these data and indices they are "
                         "{}",
                         n[2].to_string(), text_of(wanted)),
             "give one slice of the data for each index");
  return scatter(n[0], tuples.indices, n[2], tuples.axes, reduction_of(n), Outside::Never);
}

// A cache in which `update` overwrites rows. Each batch element has its own first row.
Tensor tensor_scatter(OnnxNode& n) {
  const Tensor &past = n[0], &update = n[1];
  const int64_t axis = n.axis(n.integer("axis", -2), past.rank());
  const std::string mode = n.text("mode", "linear");
  if (mode != "linear" && mode != "circular") n.refuse(fmt::format("the mode is {}", mode));
  const Dim extent = past.dim(axis), count = update.dim(axis);
  Tensor place = arange(i64, past.shape(), axis);
  if (n.has(2)) {
    Dims aligned(past.rank(), Dim(1));
    aligned[0] = n[2].dim(0);
    place = place - reshape(n[2], aligned);
  }
  if (mode == "circular") place = where(place < 0, place + size_as(place, extent), place);
  const Tensor is_new = (place >= 0) & (place < size_as(place, count));
  const Tensor within = minimum(maximum(place, 0), size_as(place, count - Dim(1)));
  return where(is_new, take_along_axis(update, within, axis), past);
}

// ---- By values ----------------------------------------------------------------------------------

Tensor one_hot_of(OnnxNode& n) {
  const Tensor indices = is_floating(n[0].dtype()) ? cast(n[0], i64) : index_of(n, 0);
  const Dims depth = n.sizes(1, "depth");
  if (depth.size() != 1) n.refuse("depth is not one number");
  if (depth[0].is_constant() && depth[0].value() < 1)
    n.refuse(fmt::format("depth is {}", depth[0].value()), "depth is a positive number");
  if (!may_equal(n[2].shape(), {Dim(2)}))
    n.refuse(fmt::format("the values (operand 2) are {}", n[2].to_string()),
             "give two values, off and on");
  const int64_t axis = n.axis(n.integer("axis", -1), indices.rank() + 1);
  Dims shape = indices.shape();
  shape.insert(shape.begin() + axis, depth[0]);
  const Tensor hit =
      arange(indices.dtype(), shape, axis) == expand_dims(from_start(indices, depth[0]), axis);
  const Tensor off = slice(n[2], 0, Dim(0), Dim(1)), on = slice(n[2], 0, Dim(1), Dim(2));
  return where(hit, reshape(on, {}), reshape(off, {}));
}

Tensor compressed(OnnxNode& n) {
  const auto condition = n.constant(1, "the condition, which decides the shape,");
  const bool is_flat = !n.has_attribute("axis");
  const Tensor x = is_flat ? reshape(n[0], {n[0].numel()}) : n[0];
  const int64_t axis = is_flat ? 0 : n.axis(n.integer("axis"), x.rank());
  if (!proves_at_most(condition->numel(), to_expr(x.dim(axis))))
    n.refuse(fmt::format("the condition has {} elements, and axis {} of {}", condition->numel(),
                         axis, x.to_string()));
  int64_t count = 0;
  for (int64_t i = 0; i < condition->numel(); ++i) count += condition->get_int(i) != 0;
  n.take_memory(count * static_cast<int64_t>(sizeof(int64_t)));
  HostTensor places(DType::I64, {count});
  for (int64_t i = 0, next = 0; i < condition->numel(); ++i)
    if (condition->get_int(i)) places.set_int(next++, i);
  const auto& builder = x.builder();
  return take(x, detail::wrap(builder, build::constant(builder->graph, std::move(places))), axis);
}

Tensors greatest(OnnxNode& n) {
  const Tensor& x = n[0];
  const int64_t k = n.opset() < 10 ? n.integer("k") : n.number(1, "k");
  const int64_t axis = n.axis(n.integer("axis", -1), x.rank());
  n.ignore("sorted");  // the result is always sorted
  const Dim extent = x.dim(axis);
  if (!extent.is_constant())
    n.refuse(fmt::format("the {} greatest of an axis whose extent, {}, is no number", k,
                         extent.to_string()));
  if (k < 0 || k > extent.value()) n.refuse(fmt::format("k is {}, of {}", k, extent.value()));
  const Chosen chosen = top_k(x, k, axis, n.integer("largest", 1) != 0);
  return {chosen.values, chosen.indices};
}

Tensor reversed_sequence(OnnxNode& n) {
  const Tensor& x = n[0];
  const int64_t batch = n.axis(n.integer("batch_axis", 1), x.rank());
  const int64_t time = n.axis(n.integer("time_axis", 0), x.rank());
  if (batch == time)
    n.refuse(fmt::format("batch_axis and time_axis are both {}", batch),
             "one of them is 0, and the other 1");
  Dims aligned(x.rank(), Dim(1)), places(x.rank(), Dim(1));
  aligned[at(batch)] = x.dim(batch);
  places[at(batch)] = x.dim(batch);
  places[at(time)] = x.dim(time);
  const Tensor length = reshape(cast(n[1], i64), aligned), t = arange(i64, places, time);
  return take_along_axis(x, where(t < length, length - 1 - t, t), time);
}

// The places of the elements that are not 0. The elements must be known.
Tensor places_of_nonzero(OnnxNode& n) {
  const auto x = n.constant(0, "the data, which decide the shape,");
  int64_t count = 0;
  for (int64_t i = 0; i < x->numel(); ++i) count += x->get_double(i) != 0;
  const auto rank = static_cast<int64_t>(x->shape().size());
  n.take_memory(count * (rank + 1) * static_cast<int64_t>(sizeof(int64_t)));
  std::vector<int64_t> found;
  for (int64_t i = 0; i < x->numel(); ++i)
    if (x->get_double(i) != 0) found.push_back(i);
  HostTensor places(DType::I64, {rank, static_cast<int64_t>(found.size())});
  for (size_t i = 0; i < found.size(); ++i) {
    int64_t rest = found[i];
    for (int64_t axis = rank; axis-- > 0;) {
      const int64_t extent = x->shape()[at(axis)];
      places.set_int(axis * static_cast<int64_t>(found.size()) + static_cast<int64_t>(i),
                     rest % extent);
      rest /= extent;
    }
  }
  const auto& builder = n[0].builder();
  return detail::wrap(builder, build::constant(builder->graph, std::move(places)));
}

// ---- Resampling ---------------------------------------------------------------------------------

// An element of the source that contributes to an element of the result, and its weight.
struct Tap {
  int64_t place = 0;
  double weight = 1;
};
using Taps = std::vector<Tap>;  // all of them for one element of the result

struct Resampling {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, outside = 0;
  bool exclude_outside = false, antialias = false;
};

// The place in the source that corresponds to element `i` of the result.
double source_of(OnnxNode& n, const Resampling& how, int64_t i, int64_t in, int64_t out,
                 double scale, double start, double end) {
  const auto x = static_cast<double>(i);
  const double length = static_cast<double>(in) * scale;  // that of the result, before rounding
  if (how.coordinates == "half_pixel") return (x + 0.5) / scale - 0.5;
  if (how.coordinates == "pytorch_half_pixel") return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
  if (how.coordinates == "asymmetric") return x / scale;
  if (how.coordinates == "align_corners")
    return out == 1 ? 0 : x * static_cast<double>(in - 1) / (length - 1);
  if (how.coordinates == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(out) / length;
    const double center = static_cast<double>(in) / 2;
    return center * (1 - adjustment) + (x + 0.5) / scale - 0.5;
  }
  if (how.coordinates == "tf_crop_and_resize") {
    const double last = static_cast<double>(in - 1);
    if (out == 1) return 0.5 * (start + end) * last;
    return start * last + x * (end - start) * last / static_cast<double>(out - 1);
  }
  n.refuse(fmt::format("the coordinates are {}", how.coordinates));
}

double rounded(OnnxNode& n, const std::string& nearest, double x) {
  if (nearest == "round_prefer_floor") return std::ceil(x - 0.5);
  if (nearest == "round_prefer_ceil") return std::floor(x + 0.5);
  if (nearest == "floor") return std::floor(x);
  if (nearest == "ceil") return std::ceil(x);
  n.refuse(fmt::format("nearest_mode is {}", nearest));
}

double weight_of(const Resampling& how, double distance) {
  const double d = std::abs(distance), a = how.cubic;
  if (how.mode == "linear") return std::max(0.0, 1 - d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

Taps taps_of(OnnxNode& n, const Resampling& how, double source, double scale, int64_t in) {
  const auto clip = [&](double place) {
    return static_cast<int64_t>(std::clamp(place, 0.0, static_cast<double>(in - 1)));
  };
  if (how.mode == "nearest") return {{clip(rounded(n, how.nearest, source)), 1}};
  // If the axis shrinks, the window is wider, so that every element of the source contributes.
  const double stretch = how.antialias ? std::min(scale, 1.0) : 1;
  const double reach = (how.mode == "linear" ? 1 : 2) / stretch;
  Taps taps;
  double total = 0;
  const double first = std::floor(source - reach) + 1;
  if (2 * reach > static_cast<double>(kMostTaps))
    n.refuse(fmt::format("each element is computed of {} elements, and {} are the most", 2 * reach,
                         kMostTaps));
  for (double place = first; place < source + reach; ++place) {
    double weight = weight_of(how, (place - source) * stretch);
    const bool is_outside = place < 0 || place > static_cast<double>(in - 1);
    if (how.exclude_outside && is_outside) weight = 0;
    taps.push_back({clip(place), weight});
    total += weight;
  }
  if (how.exclude_outside || how.antialias)
    for (Tap& tap : taps) tap.weight /= total;
  return taps;
}

Tensor constant_of(const Tensor& like, DType dtype, const std::vector<double>& values,
                   std::vector<int64_t> shape) {
  HostTensor host(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) host.set_double(static_cast<int64_t>(i), values[i]);
  return detail::wrap(like.builder(), build::constant(like.builder()->graph, std::move(host)));
}

// x with one axis resampled. `taps` has a list for each element of the result.
Tensor resampled(const Tensor& x, int64_t axis, const std::vector<Taps>& taps) {
  size_t most = 0;
  for (const Taps& of_one : taps) most = std::max(most, of_one.size());
  const auto count = static_cast<int64_t>(taps.size());
  std::vector<int64_t> aligned(x.rank(), 1);
  aligned[at(axis)] = count;
  Tensor out;
  for (size_t i = 0; i < most; ++i) {
    std::vector<double> places, weights;
    for (const Taps& of_one : taps) {
      const Tap tap = i < of_one.size() ? of_one[i] : Tap{of_one[0].place, 0};
      places.push_back(static_cast<double>(tap.place));
      weights.push_back(tap.weight);
    }
    const Tensor part = take(x, constant_of(x, i64, places, {count}), axis);
    const bool is_whole = std::ranges::all_of(weights, [](double w) { return w == 1; });
    const Tensor term = is_whole ? part : part * constant_of(x, x.dtype(), weights, aligned);
    out = out.valid() ? out + term : term;
  }
  return out;
}

// The scales of the axes, and the extents of the result.
struct Stretch {
  std::vector<double> scales;
  std::vector<int64_t> sizes;
};

std::vector<double> extents_of(OnnxNode& n, const std::vector<int64_t>& axes) {
  std::vector<double> extents;
  for (const int64_t axis : axes) {
    const Dim extent = n[0].dim(axis);
    if (!extent.is_constant())
      n.refuse(fmt::format("axis {} has the extent {}, which depends on a size", axis,
                           extent.to_string()),
               "give that size a number at import");
    extents.push_back(static_cast<double>(extent.value()));
  }
  return extents;
}

// The extent that a stretched axis has. Scales may be any numbers, NaN and infinities too.
int64_t whole(OnnxNode& n, double extent) {
  if (!(extent >= 0 && extent < 0x1p53))
    n.refuse(fmt::format("an axis becomes one of {} elements", extent));
  return static_cast<int64_t>(std::floor(extent));
}

Stretch stretch_of(OnnxNode& n, const std::vector<int64_t>& axes, size_t scales_at,
                   size_t sizes_at) {
  Stretch out;
  const bool has_scales = n.has(scales_at) && !(n[scales_at].numel() == Dim(0));
  const std::vector<double> extents = extents_of(n, axes);
  if (has_scales) {
    const auto scales = n.constant(scales_at, "scales");
    if (scales->numel() != static_cast<int64_t>(axes.size()))
      n.refuse("scales are not one for each axis");
    for (size_t i = 0; i < axes.size(); ++i) {
      out.scales.push_back(scales->get_double(static_cast<int64_t>(i)));
      out.sizes.push_back(whole(n, extents[i] * out.scales[i]));
    }
    return out;
  }
  out.sizes = n.numbers(sizes_at, "sizes");
  if (out.sizes.size() != axes.size()) n.refuse("sizes are not one for each axis");
  for (size_t i = 0; i < axes.size(); ++i)
    out.scales.push_back(static_cast<double>(out.sizes[i]) / extents[i]);
  const std::string policy = n.text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch" || axes.empty()) return out;
  const double scale =
      policy == "not_larger" ? std::ranges::min(out.scales) : std::ranges::max(out.scales);
  for (size_t i = 0; i < axes.size(); ++i) {
    out.scales[i] = scale;
    out.sizes[i] = whole(n, scale * extents[i] + 0.5);
  }
  return out;
}

Tensor resample(OnnxNode& n, const Resampling& how, const std::vector<int64_t>& axes,
                const Stretch& stretch, const std::vector<double>& region) {
  Tensor x = widened(n[0]);
  Tensor is_outside;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t in = n[0].dim(axes[i]).value(), out = stretch.sizes[i];
    const double scale = stretch.scales[i];
    const bool has_region = how.coordinates == "tf_crop_and_resize";
    if (in == out && scale == 1 && !has_region) continue;
    if (in < 1 || in > kMostResampled || out < 1 || out > kMostResampled)
      n.refuse(fmt::format("an axis of {} elements becomes one of {}", in, out));
    std::vector<Taps> taps;
    std::vector<double> beyond;
    for (int64_t place = 0; place < out; ++place) {
      const double source = source_of(n, how, place, in, out, scale, has_region ? region[i] : 0,
                                      has_region ? region[i + axes.size()] : 1);
      if (!(std::abs(source) < 1e9)) n.refuse("an element lies nowhere");
      beyond.push_back(source < 0 || source > static_cast<double>(in - 1) ? 1 : 0);
      taps.push_back(taps_of(n, how, source, scale, in));
      // A constant of places and one of weights have as many elements as there are taps.
      n.take_memory(static_cast<int64_t>(sizeof(Taps) + 2 * sizeof(Tap) * taps.back().size()));
    }
    x = resampled(x, axes[i], taps);
    if (!has_region) continue;
    std::vector<int64_t> aligned(x.rank(), 1);
    aligned[at(axes[i])] = out;
    const Tensor here = constant_of(x, boolean, beyond, aligned);
    is_outside = is_outside.valid() ? is_outside | here : here;
  }
  if (is_outside.valid()) x = where(is_outside, full_like(x, how.outside), x);
  return cast(is_integer(n[0].dtype()) ? round_even(x) : x, n[0].dtype());
}

Tensor resized(OnnxNode& n) {
  Resampling how{.mode = n.text("mode", "nearest"),
                 .coordinates = n.text("coordinate_transformation_mode",
                                       n.opset() < 11 ? "asymmetric" : "half_pixel"),
                 .nearest = n.text("nearest_mode", n.opset() < 11 ? "floor" : "round_prefer_floor"),
                 .cubic = n.real("cubic_coeff_a", -0.75),
                 .outside = n.real("extrapolation_value", 0.0),
                 .exclude_outside = n.integer("exclude_outside", 0) != 0,
                 .antialias = n.integer("antialias", 0) != 0};
  if (how.mode != "nearest" && how.mode != "linear" && (how.mode != "cubic" || n.opset() < 11))
    n.refuse(fmt::format("the mode is {}", how.mode));
  if (how.coordinates == "half_pixel_symmetric" && n.opset() < 19)
    n.refuse("the coordinates are half_pixel_symmetric, which are there from opset 19 on");
  std::vector<int64_t> axes(n[0].rank());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (n.has_attribute("axes")) axes = n.axes_of(n.integers("axes"), n[0].rank());
  const bool is_old = n.opset() < 11;
  const Stretch stretch = stretch_of(n, axes, is_old ? 1 : 2, 3);
  std::vector<double> region;
  if (how.coordinates == "tf_crop_and_resize") {
    const auto given = n.constant(1, "roi");
    for (int64_t i = 0; i < given->numel(); ++i) region.push_back(given->get_double(i));
    if (region.size() != 2 * axes.size()) n.refuse("roi is not two numbers for each axis");
  } else if (!is_old) {
    n.ignore(1);  // only those coordinates have a region, but opset 11 asks for one
  }
  n.ignore("keep_aspect_ratio_policy");
  return resample(n, how, axes, stretch, region);
}

Tensor upsampled(OnnxNode& n) {
  const Resampling how{
      .mode = n.text("mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
  std::vector<int64_t> axes(n[0].rank());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  Stretch stretch;
  if (n.has(1)) return resample(n, how, axes, stretch_of(n, axes, 1, 1), {});
  stretch.scales = n.reals("scales");
  if (stretch.scales.size() != axes.size()) n.refuse("scales are not one for each axis");
  const std::vector<double> extents = extents_of(n, axes);
  for (size_t i = 0; i < axes.size(); ++i)
    stretch.sizes.push_back(whole(n, extents[i] * stretch.scales[i]));
  return resample(n, how, axes, stretch, {});
}

// ---- Samples at places that are computed --------------------------------------------------------

// One axis of the tensor that GridSample reads. All members have the type of the places.
struct SampledAxis {
  Tensor extent;
  Tensor place;      // may lie between elements
  Tensor low, high;  // the bounds of the places inside
  std::string padding;

  Tensor is_outside(const Tensor& x) const { return (x < low) | (x > high); }
  Tensor clamped(const Tensor& x) const { return minimum(maximum(x, 0), extent - 1); }
  Tensor reflected(const Tensor& x) const {
    const Tensor span = high - low, from_low = x - low;
    const Tensor turn = from_low - floor(from_low / (span * 2)) * (span * 2);
    return low + minimum(turn, span * 2 - turn);
  }
  void pad() {
    if (padding == "border") place = where(is_outside(place), clamped(place), place);
    if (padding == "reflection") place = where(is_outside(place), reflected(place), place);
  }
};

// An element that a sample reads along one axis.
struct SampledTap {
  Tensor element;  // its index, in i64
  Tensor weight;   // invalid if it is 1
};

std::vector<SampledTap> sampled_taps(const SampledAxis& axis, const std::string& mode, DType type) {
  const Tensor first = mode == "nearest" ? axis.place : floor(axis.place);
  std::vector<Tensor> weights(1);
  if (mode == "linear") {
    const Tensor t = axis.place - first;
    weights = {1 - t, t};
  } else if (mode == "cubic") {
    constexpr double a = -0.75;
    const auto near = [](const Tensor& d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto far = [](const Tensor& d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    const Tensor t = axis.place - first;
    weights = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  }
  std::vector<SampledTap> taps;
  for (size_t i = 0; i < weights.size(); ++i) {
    Tensor element = first + (static_cast<double>(i) - (mode == "cubic" ? 1 : 0));
    Tensor weight = weights[i].valid() ? cast(weights[i], type) : Tensor();
    if (axis.padding == "zeros") {
      const Tensor is_inside = cast((element >= 0) & (element <= axis.extent - 1), type);
      weight = weight.valid() ? weight * is_inside : is_inside;
    } else if (axis.padding == "reflection") {
      element = where(axis.is_outside(element), axis.reflected(element), element);
    }
    taps.push_back({cast(axis.clamped(element), i64), weight});
  }
  return taps;
}

// The sum over the taps of the axes from `axis` on. `places` are the row-major places in the axes
// before it.
Tensor sampled(const Tensor& flat, const std::vector<std::vector<SampledTap>>& taps,
               const Dims& extents, size_t axis, const Tensor& places) {
  if (axis == taps.size()) return take(flat, places, 0);
  Tensor sum;
  for (const SampledTap& tap : taps[axis]) {
    const Tensor inner = sampled(flat, taps, extents, axis + 1,
                                 places * size_as(places, extents[axis]) + tap.element);
    const Tensor term = tap.weight.valid() ? inner * tap.weight : inner;
    sum = sum.valid() ? sum + term : term;
  }
  return sum;
}

Tensor grid_sampled(OnnxNode& n) {
  // Opset 20 has other names for the modes.
  const bool is_old = n.opset() < 20;
  const std::string given = n.text("mode", is_old ? "bilinear" : "linear");
  std::string mode = given;
  if (is_old && mode == "bilinear")
    mode = "linear";
  else if (is_old && mode == "bicubic")
    mode = "cubic";
  else if (is_old && mode != "nearest")
    mode = "";
  const std::string padding = n.text("padding_mode", "zeros");
  const bool corners = n.integer("align_corners", 0) != 0;
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    n.refuse(fmt::format("the mode is {}", given));
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    n.refuse(fmt::format("the padding is {}", padding));
  const Tensor x = widened(n[0]), grid = widened(n[1]);
  const size_t rank = x.rank();
  if (rank < 3 || rank > 5 || (is_old && rank != 4) || grid.rank() != rank ||
      !(grid.dim(-1) == Dim(static_cast<int64_t>(rank - 2))))
    n.refuse("the grid has not one place for each axis");
  const Dims out = part(grid.shape(), 1, rank - 1), extents = part(x.shape(), 2, rank);
  const Dim batch = x.dim(0), channels = x.dim(1), count = product(out, 0, out.size());
  std::vector<std::vector<SampledTap>> taps;
  for (size_t i = 0; i < extents.size(); ++i) {
    const auto from_end =
        static_cast<int64_t>(extents.size() - 1 - i);  // a grid lists the last axis first
    const Tensor place =
        reshape(slice(grid, -1, Dim(from_end), Dim(from_end + 1)), {batch, Dim(1), count});
    const Tensor extent = size_as(place, extents[i]);
    SampledAxis axis{
        .extent = extent,
        .place = corners ? (place + 1) * 0.5 * (extent - 1) : ((place + 1) * extent - 1) * 0.5,
        .low = full_like(extent, corners ? 0 : -0.5),
        .high = corners ? extent - 1 : extent - 0.5,
        .padding = padding};
    if (mode == "nearest") axis.place = round_even(axis.place);
    axis.pad();
    taps.push_back(sampled_taps(axis, mode, x.dtype()));
  }
  const Dims rows{batch, channels, Dim(1)};
  const Tensor first = arange(i64, rows, 0);
  const Tensor row = first * size_as(first, channels) + arange(i64, rows, 1);
  const Tensor flat = reshape(x, {product(x.shape(), 0, rank)});
  Dims shape{batch, channels};
  shape.insert(shape.end(), out.begin(), out.end());
  return cast(reshape(sampled(flat, taps, extents, 0, row), shape), n[0].dtype());
}

}  // namespace

const Rows& indexing_rows() {
  static const Rows kRows = {
      {"Compress", compressed, 9},
      {"Gather", gathered},
      {"GatherElements", gather_elements, 11},
      {"GatherND", gather_nd, 11},
      {"GridSample", grid_sampled, 16},
      {"NonZero", places_of_nonzero, 9},
      {"OneHot", one_hot_of, 9},
      {"Resize", resized, 10},
      {"ReverseSequence", reversed_sequence, 10},
      {"Scatter", scatter_elements, 9, 10},
      {"ScatterElements", scatter_elements, 11},
      {"ScatterND", scatter_nd, 11},
      {"TensorScatter", tensor_scatter, 24},
      {"TopK", greatest},
      {"Upsample", upsampled, 7, 9},
  };
  return kRows;
}

}  // namespace braze::onnx
