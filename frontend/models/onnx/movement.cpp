// movement.cpp — operators that move elements: shapes, parts, copies.
#include <algorithm>
#include <numeric>

#include "frontend/builder/builder.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

// Greater numbers in a file are not extents. Sums of numbers below this limit do not overflow.
constexpr int64_t kMostPlaces = int64_t{1} << 30;

// The product of the extents [begin, end).
Dim product(const Dims& dims, size_t begin, size_t end) {
  Dim out = 1;
  for (size_t i = begin; i < end; ++i) out = out * dims[i];
  return out;
}

Tensor reshape_to(OnnxNode& n) {
  // Before version 5 the shape is an attribute.
  Dims shape;
  if (n.has_attribute("shape"))
    for (const int64_t extent : n.integers("shape")) shape.emplace_back(extent);
  else
    shape = n.sizes(1, "shape");
  const bool zero_stays = n.integer("allowzero", 0) == 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!(shape[i] == Dim(0)) || !zero_stays) continue;
    if (i >= n[0].rank())
      n.refuse(fmt::format("shape keeps the extent of axis {}, and there is none", i));
    shape[i] = n[0].dim(static_cast<int64_t>(i));
  }
  // If there are no elements, -1 cannot be determined.
  const auto open = std::ranges::find(shape, Dim(-1));
  if (open != shape.end() && n[0].numel() == Dim(0)) {
    *open = Dim(1);
    *open = product(shape, 0, shape.size()) == Dim(0) ? Dim(1) : Dim(0);
  }
  return reshape(n[0], shape);
}

Tensor flatten(OnnxNode& n) {
  const Dims shape = n[0].shape();
  int64_t axis = n.integer("axis", 1);
  if (axis < 0) axis += static_cast<int64_t>(shape.size());
  if (axis < 0 || at(axis) > shape.size()) n.refuse(fmt::format("there is no axis {}", axis));
  return reshape(n[0], {product(shape, 0, at(axis)), product(shape, at(axis), shape.size())});
}

Tensor transposed(OnnxNode& n) {
  std::vector<int64_t> backwards(n[0].rank());
  std::iota(backwards.rbegin(), backwards.rend(), int64_t{0});
  const auto order = n.integers("perm", backwards);
  if (std::ranges::any_of(order, [](int64_t axis) { return axis < 0; }))
    n.refuse(fmt::format("perm is [{}]", fmt::join(order, ", ")),
             "count axes from the front, from 0 on");
  return permute(n[0], order);
}

Tensor squeezed(OnnxNode& n) {
  const auto axes = n.axes(1);
  if (!axes) return squeeze(n[0]);
  return axes->empty() ? n[0] : squeeze(n[0], Axes(n.axes_of(*axes, n[0].rank())));
}

Tensor unsqueezed(OnnxNode& n) {
  const auto given = n.axes(1);
  if (!given) n.refuse("there are no axes");
  if (n[0].rank() + given->size() > kMaxRank) n.refuse("there are too many axes");
  std::vector<int64_t> axes = n.axes_of(*given, n[0].rank() + given->size());
  std::ranges::sort(axes);
  Dims shape = n[0].shape();
  for (const int64_t axis : axes) shape.insert(shape.begin() + axis, Dim(1));
  return reshape(n[0], shape);
}

Tensor joined(OnnxNode& n) {
  const Tensors parts = n.all();
  return concat(parts, n.integer("axis", n.opset() < 4 ? std::optional<int64_t>(1) : std::nullopt));
}

Tensors split_into(OnnxNode& n) {
  const int64_t axis = n.axis(n.integer("axis", 0), n[0].rank());
  if (n.has_attribute("split") || n.has(1)) {
    Dims sizes;
    if (n.has(1))
      sizes = n.sizes(1, "split");
    else
      for (const int64_t size : n.integers("split")) sizes.emplace_back(size);
    n.ignore("num_outputs");
    return split(n[0], sizes, axis);
  }
  const int64_t count = n.integer("num_outputs", static_cast<int64_t>(n.outputs()));
  const Dim extent = n[0].dim(axis);
  if (count != static_cast<int64_t>(n.outputs()))
    n.refuse(fmt::format("{} parts for {} results", count, n.outputs()));
  if (!extent.is_constant()) {
    const Dim size = extent / Dim(count);
    if (!(size * Dim(count) == extent))
      n.refuse(
          fmt::format("the extent {} is not known to be cut in {}", extent.to_string(), count));
    return split(n[0], Dims(at(count), size), axis);
  }
  const int64_t size = (extent.value() + count - 1) / count;
  Dims sizes;
  for (int64_t left = extent.value(), i = 0; i < count; ++i) {
    sizes.emplace_back(std::min(size, left));
    left -= std::min(size, left);
  }
  return split(n[0], sizes, axis);
}

// ---- Slice --------------------------------------------------------------------------------------

// A place on an axis, limited to [low, high]. A negative one counts from the end.
Expr clamped(const Dim& place, const Expr& extent, const Expr& low, const Expr& high) {
  Expr at = to_expr(place);
  const Interval range = at.range();
  // An expression may be negative for some sizes only. The factor of the extent is 1 there, else 0.
  if (range.max < 0)
    at = at + extent;
  else if (range.min < 0)
    at = at + extent * min(max(0 - at, 0), 1);
  return min(max(at, low), high);
}

Tensor sliced(OnnxNode& n) {
  Dims starts, ends;
  std::vector<int64_t> axes, steps;
  const Tensor& x = n[0];
  if (n.opset() < 10) {
    for (const int64_t start : n.integers("starts")) starts.emplace_back(start);
    for (const int64_t end : n.integers("ends")) ends.emplace_back(end);
  } else {
    starts = n.sizes(1, "starts");
    ends = n.sizes(2, "ends");
  }
  std::vector<int64_t> all(starts.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  axes = n.axes(3).value_or(all);
  steps = n.has(4) ? n.numbers(4, "steps") : std::vector<int64_t>(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    n.refuse("starts, ends, axes and steps are of different lengths");
  axes = n.axes_of(axes, x.rank());
  Dims first(x.rank(), Dim(0)), last = x.shape();
  std::vector<int64_t> strides(x.rank(), 1), backwards;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t axis = at(axes[i]);
    const Expr extent = to_expr(x.dim(axes[i]));
    if (steps[i] == 0 || steps[i] == INT64_MIN) n.refuse("a step is 0");
    if (steps[i] > 0) {
      const Expr start = clamped(starts[i], extent, 0, extent);
      first[axis] = to_dim(start);
      last[axis] = to_dim(max(clamped(ends[i], extent, 0, extent), start));
      strides[axis] = std::min(steps[i], int64_t{1} << 40);
      continue;
    }
    // The elements go from `start` down to the one after `end`. They are sliced upwards and then
    // reversed.
    const int64_t step = std::min(-steps[i], int64_t{1} << 40);
    const Expr start = clamped(starts[i], extent, -1, extent - 1);
    const Expr end = clamped(ends[i], extent, -1, extent - 1);
    const Expr count = ceildiv(max(start - end, 0), step);
    const Expr low = start - (count - 1) * step;
    const bool is_empty = count.is_constant(0);
    first[axis] = is_empty ? Dim(0) : to_dim(low);
    last[axis] = is_empty ? Dim(0) : to_dim(start + 1);
    strides[axis] = step;
    backwards.push_back(axes[i]);
  }
  const Tensor part = slice(x, first, last, strides);
  return backwards.empty() ? part : reverse(part, Axes(backwards));
}

// ---- Copies -------------------------------------------------------------------------------------

Tensor expanded(OnnxNode& n) {
  return broadcast_to(n[0], broadcast_dims(n[0].shape(), n.sizes(1, "shape"), n));
}

Tensor tiled(OnnxNode& n) {
  const Dims counts = n.sizes(1, "repeats");
  const Dims shape = n[0].shape();
  if (counts.size() != shape.size()) n.refuse("repeats are not one for each axis");
  // [a, b] becomes [r, a, s, b], and then [r a, s b].
  Dims split_shape, copied, result;
  for (size_t i = 0; i < shape.size(); ++i) {
    split_shape.insert(split_shape.end(), {Dim(1), shape[i]});
    copied.insert(copied.end(), {counts[i], shape[i]});
    result.push_back(counts[i] * shape[i]);
  }
  return reshape(broadcast_to(reshape(n[0], split_shape), copied), result);
}

// Puts a copy of a part of x before or after x along an axis. The mode of padding says which part.
Tensor edge_of(OnnxNode& n, const Tensor& x, int64_t axis, int64_t count, bool before,
               const std::string& mode) {
  if (mode == "edge") {
    const Dim first = before ? Dim(0) : x.dim(axis) - Dim(1);
    Dims shape = x.shape();
    shape[at(axis)] = Dim(count);
    return broadcast_to(slice(x, axis, first, first + Dim(1)), shape);
  }
  const int64_t skipped = mode == "reflect" ? 1 : 0;
  const Dim extent = x.dim(axis);
  if (!extent.is_constant() && to_expr(extent).range().min < count + skipped)
    n.refuse(
        fmt::format("the extent {} may be smaller than what it is padded by", extent.to_string()));
  if (extent.is_constant() && extent.value() < count + skipped)
    n.refuse(fmt::format("{} of an axis of {} by {}", mode, extent.value(), count));
  const bool from_front = before == (mode == "reflect");
  const Dim first = from_front ? Dim(skipped) : extent - Dim(count + skipped);
  const Tensor part = slice(x, axis, first, first + Dim(count));
  return mode == "reflect" ? reverse(part, Axes(axis)) : part;
}

Tensor padded(OnnxNode& n) {
  const std::string mode = n.text("mode", "constant");
  Tensor x = n[0];
  const std::vector<int64_t> pads =
      n.opset() < 11 ? n.integers(n.has_attribute("paddings") ? "paddings" : "pads")
                     : n.numbers(1, "pads");
  std::vector<int64_t> axes(x.rank());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (n.has(3)) axes = n.axes_of(n.numbers(3, "axes"), x.rank());
  if (pads.size() != 2 * axes.size()) n.refuse("pads are not two for each axis");
  Tensor value = n.has(2) ? reshape(n[2], {}) : Tensor();
  if (!value.valid()) {
    const auto& builder = x.builder();
    const double number = n.opset() < 11 ? n.real("value", 0.0) : 0.0;
    value = detail::wrap(builder, build::scalar(builder->graph, x.dtype(), number));
  }
  Dims low(x.rank(), Dim(0)), high(x.rank(), Dim(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t before = pads[i], after = pads[i + axes.size()];
    if (std::max(before, after) > kMostPlaces || std::min(before, after) < -kMostPlaces)
      n.refuse(fmt::format("padding by {} and {}", before, after));
    // Elements that negative padding removes are removed first.
    if (before < 0 || after < 0)
      x = slice(x, axes[i], Dim(std::max<int64_t>(0, -before)),
                x.dim(axes[i]) - Dim(std::max<int64_t>(0, -after)));
    low[at(axes[i])] = Dim(std::max<int64_t>(0, before));
    high[at(axes[i])] = Dim(std::max<int64_t>(0, after));
  }
  if (mode == "constant") return pad(x, low, high, value);
  if (mode == "wrap" && n.opset() < 19)
    n.refuse("the mode is wrap, which is there from opset 19 on");
  if (mode != "edge" && mode != "reflect" && mode != "wrap")
    n.refuse(fmt::format("the mode is {}", mode));
  for (const int64_t axis : axes) {
    Tensors parts;
    const int64_t before = low[at(axis)].value(), after = high[at(axis)].value();
    if (before > 0) parts.push_back(edge_of(n, x, axis, before, true, mode));
    parts.push_back(x);
    if (after > 0) parts.push_back(edge_of(n, x, axis, after, false, mode));
    x = concat(parts, axis);
  }
  return x;
}

// ---- Blocks -------------------------------------------------------------------------------------

void check_blocks(OnnxNode& n, int64_t size) {
  if (n[0].rank() != 4 || size < 1 || size > kMostPlaces)
    n.refuse("not four axes and blocks of 1 or more");
}

Tensor depth_to_space(OnnxNode& n) {
  const Dims s = n[0].shape();
  const int64_t b = n.integer("blocksize");
  const std::string mode = n.text("mode", "DCR");
  check_blocks(n, b);
  const Dim depth = s[1] / Dim(b * b);
  const bool is_dcr = mode == "DCR";
  if (!is_dcr && mode != "CRD") n.refuse(fmt::format("the mode is {}", mode));
  const Tensor cut = is_dcr ? reshape(n[0], {s[0], b, b, depth, s[2], s[3]})
                            : reshape(n[0], {s[0], depth, b, b, s[2], s[3]});
  const Tensor moved = is_dcr ? permute(cut, {0, 3, 4, 1, 5, 2}) : permute(cut, {0, 1, 4, 2, 5, 3});
  return reshape(moved, {s[0], depth, s[2] * Dim(b), s[3] * Dim(b)});
}

Tensor space_to_depth(OnnxNode& n) {
  const Dims s = n[0].shape();
  const int64_t b = n.integer("blocksize");
  if (n.text("mode", "DCR") != "DCR") n.refuse("the mode is not DCR");
  check_blocks(n, b);
  const Dim height = s[2] / Dim(b), width = s[3] / Dim(b);
  const Tensor cut = reshape(n[0], {s[0], s[1], height, b, width, b});
  return reshape(permute(cut, {0, 3, 5, 1, 2, 4}), {s[0], s[1] * Dim(b * b), height, width});
}

Tensor center_crop_pad(OnnxNode& n) {
  Tensor x = n[0];
  const std::vector<int64_t> shape = n.numbers(1, "shape");
  std::vector<int64_t> axes(x.rank());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (n.has_attribute("axes")) axes = n.axes_of(n.integers("axes"), x.rank());
  if (axes.size() != shape.size()) n.refuse("shape is not one number for each axis");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (shape[i] < 0) n.refuse(fmt::format("an extent of {}", shape[i]));
    const int64_t extent = x.dim(axes[i]).value(), cut = extent - shape[i];
    if (cut > 0) x = slice(x, axes[i], Dim(cut / 2), Dim(cut / 2 + shape[i]));
    Dims low(x.rank(), Dim(0)), high(x.rank(), Dim(0));
    low[at(axes[i])] = Dim(std::max<int64_t>(0, -cut) / 2);
    high[at(axes[i])] = Dim(std::max<int64_t>(0, -cut) - std::max<int64_t>(0, -cut) / 2);
    if (cut < 0) x = pad(x, low, high);
  }
  return x;
}

Tensor triangle(OnnxNode& n) {
  const int64_t k = n.has(1) ? n.number(1, "k") : 0;
  const int64_t near = std::clamp<int64_t>(k, -(int64_t{1} << 40), int64_t{1} << 40);
  return n.integer("upper", 1) != 0 ? triu(n[0], near) : tril(n[0], near);
}

}  // namespace

const Rows& movement_rows() {
  static const Rows kRows = {
      {"CenterCropPad", center_crop_pad, 18},
      {"Concat", joined},
      {"DepthToSpace", depth_to_space},
      {"Expand", expanded, 8},
      {"Flatten", flatten},
      {"Pad", padded},
      {"Reshape", reshape_to},
      {"Slice", sliced},
      {"SpaceToDepth", space_to_depth},
      {"Split", split_into},
      {"Squeeze", squeezed},
      {"Tile", tiled, 6},
      {"Transpose", transposed},
      {"Trilu", triangle, 14},
      {"Unsqueeze", unsqueezed},
  };
  return kRows;
}

}  // namespace braze::onnx
