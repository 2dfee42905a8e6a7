// movement.cpp — reshaping, slicing, joining and indexing of Tensors.
#include <algorithm>
#include <numeric>

#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze {

using detail::builder_of;
using detail::node_of;
using detail::place;
using detail::to_axis;
using detail::wrap;

namespace {

/// The axis as a position in a vector.
size_t at_axis(int64_t axis) { return static_cast<size_t>(axis); }

/// The builder that `x` and `y` have in common, for a call of `op`.
const std::shared_ptr<detail::Builder>& builder_of_two(const Tensor& x, const Tensor& y,
                                                       const char* op, SourceLocation where) {
  const Tensor* both[] = {&x, &y};
  return builder_of(both, op, where);
}

void check_rank(size_t got, const Tensor& x, const char* op, const char* what,
                SourceLocation where) {
  if (got != x.rank())
    fail(codes::kBadAttribute,
         fmt::format("{}: {} has {} entries for {}", op, what, got, x.to_string()),
         {.location = where, .node = op, .fix = "give one for each axis"});
}

}  // namespace

Tensor reshape(const Tensor& x, Dims shape, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "reshape", where);
  const auto open = std::find(shape.begin(), shape.end(), Dim(-1));
  if (open != shape.end()) {
    Expr known = 1;
    for (const Dim& dim : shape)
      if (!(dim == Dim(-1))) known *= to_expr(dim);
    const Expr all = to_expr(x.numel());
    const bool divides = known.range().min > 0;
    const Expr rest = divides ? floordiv(all, known) : Expr(0);
    if (!divides || !(rest * known == all))
      fail(codes::kShapeMismatch,
           fmt::format("reshape: {} has no extent for -1 in {}", x.to_string(),
                       to_shape(shape).to_string()),
           {.location = where,
            .node = "reshape",
            .fix = "give every extent, the product must be "
                   "the number of elements"});
    *open = to_dim(rest);
  }
  return wrap(builder, build::reshape(builder->graph, node_of(x), to_shape(shape), where));
}

Tensor permute(const Tensor& x, std::vector<int64_t> permutation, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "permute", where);
  check_rank(permutation.size(), x, "permute", "the permutation", where);
  for (int64_t& axis : permutation) axis = to_axis(axis, x.rank(), "permute", where);
  if (std::is_sorted(permutation.begin(), permutation.end()) &&
      std::adjacent_find(permutation.begin(), permutation.end()) == permutation.end())
    return x;
  return wrap(builder, build::transpose(builder->graph, node_of(x), std::move(permutation), where));
}

Tensor transpose(const Tensor& x, Where call) {
  std::vector<int64_t> permutation(x.rank());
  std::iota(permutation.rbegin(), permutation.rend(), int64_t{0});
  return permute(x, std::move(permutation), call);
}

Tensor transpose(const Tensor& x, int64_t axis1, int64_t axis2, Where call) {
  const SourceLocation where = place(call);
  std::vector<int64_t> permutation(x.rank());
  std::iota(permutation.begin(), permutation.end(), int64_t{0});
  std::swap(permutation[at_axis(to_axis(axis1, x.rank(), "transpose", where))],
            permutation[at_axis(to_axis(axis2, x.rank(), "transpose", where))]);
  return permute(x, std::move(permutation), call);
}

Tensor broadcast_to(const Tensor& x, const Dims& shape, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "broadcast_to", where);
  return wrap(builder, build::broadcast_to(builder->graph, node_of(x), to_shape(shape), where));
}

Tensor expand_dims(const Tensor& x, int64_t axis, Where call) {
  Dims shape = x.shape();
  axis = to_axis(axis, x.rank() + 1, "expand_dims", place(call));
  shape.insert(shape.begin() + axis, Dim(1));
  return reshape(x, std::move(shape), call);
}

Tensor squeeze(const Tensor& x, const Axes& axes, Where call) {
  const SourceLocation where = place(call);
  const Dims dims = x.shape();
  Dims shape;
  const std::vector<int64_t> chosen = detail::to_axes(axes, x.rank(), "squeeze", where);
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool named = std::binary_search(chosen.begin(), chosen.end(), static_cast<int64_t>(i));
    const bool removable = dims[i] == Dim(1);
    if (named && !removable && !axes.all())
      fail(codes::kShapeMismatch,
           fmt::format("squeeze: axis {} of {} has the extent {}, not 1", i, x.to_string(),
                       dims[i].to_string()),
           {.location = where, .node = "squeeze"});
    if (!named || !removable) shape.push_back(dims[i]);
  }
  return shape.size() == dims.size() ? x : reshape(x, std::move(shape), call);
}

Tensor slice(const Tensor& x, const Dims& starts, const Dims& limits, std::vector<int64_t> strides,
             Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "slice", where);
  if (strides.empty()) strides.assign(x.rank(), 1);
  check_rank(starts.size(), x, "slice", "starts", where);
  check_rank(limits.size(), x, "slice", "limits", where);
  check_rank(strides.size(), x, "slice", "strides", where);
  // A negative number counts from the end. An expression is taken as it is.
  const auto resolve = [&](const Dims& places) {
    std::vector<Expr> out;
    for (size_t i = 0; i < places.size(); ++i) {
      const bool from_end = places[i].is_constant() && places[i].value() < 0;
      const Dim extent = x.dim(static_cast<int64_t>(i));
      if (from_end && extent.is_constant() && extent.value() + places[i].value() < 0)
        fail(codes::kBadAttribute,
             fmt::format("slice: {} counts from the end of axis {} of {}, which is shorter",
                         places[i].to_string(), i, x.to_string()),
             {.location = where, .node = "slice"});
      out.push_back(to_expr(from_end ? extent + places[i] : places[i]));
    }
    return out;
  };
  return wrap(builder, build::slice(builder->graph, node_of(x), resolve(starts), resolve(limits),
                                    std::move(strides), where));
}

Tensor slice(const Tensor& x, int64_t axis, const Dim& start, const Dim& limit, int64_t stride,
             Where call) {
  axis = to_axis(axis, x.rank(), "slice", place(call));
  Dims starts(x.rank(), Dim(0)), limits = x.shape();
  std::vector<int64_t> strides(x.rank(), 1);
  starts[at_axis(axis)] = start;
  limits[at_axis(axis)] = limit;
  strides[at_axis(axis)] = stride;
  return slice(x, starts, limits, std::move(strides), call);
}

Tensor pad(const Tensor& x, const Dims& low, const Dims& high, const Operand& value,
           std::vector<int64_t> interior, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "pad", where);
  if (interior.empty()) interior.assign(x.rank(), 0);
  check_rank(low.size(), x, "pad", "low", where);
  check_rank(high.size(), x, "pad", "high", where);
  check_rank(interior.size(), x, "pad", "interior", where);
  const Tensor filler = detail::as_tensor(value, builder, x.dtype(), "pad", where);
  builder_of_two(x, filler, "pad", where);
  return wrap(builder, build::pad(builder->graph, node_of(x), node_of(filler), to_exprs(low),
                                  to_exprs(high), std::move(interior), where));
}

Tensor concat(const std::vector<Tensor>& parts, int64_t axis, Where call) {
  const SourceLocation where = place(call);
  if (parts.empty())
    fail(codes::kBadAttribute, "concat: there is nothing to join",
         {.location = where, .node = "concat"});
  std::vector<const Tensor*> tensors;
  std::vector<NodeId> nodes;
  for (const Tensor& part : parts) {
    tensors.push_back(&part);
    nodes.push_back(node_of(part));
  }
  const auto& builder = builder_of(tensors, "concat", where);
  axis = to_axis(axis, parts[0].rank(), "concat", where);
  return wrap(builder, build::concat(builder->graph, std::move(nodes), axis, where));
}

Tensor stack(const std::vector<Tensor>& parts, int64_t axis, Where call) {
  const detail::Place all(call);
  std::vector<Tensor> expanded;
  for (const Tensor& part : parts) expanded.push_back(expand_dims(part, axis));
  return concat(expanded, axis);
}

Tensor reverse(const Tensor& x, const Axes& axes, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "reverse", where);
  return wrap(builder, build::reverse(builder->graph, node_of(x),
                                      detail::to_axes(axes, x.rank(), "reverse", where), where));
}

Tensor take(const Tensor& x, const Tensor& indices, int64_t axis, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of_two(x, indices, "take", where);
  axis = to_axis(axis, x.rank(), "take", where);
  return wrap(builder, build::gather(builder->graph, node_of(x), node_of(indices), axis, where));
}

Tensor scatter_add(const Tensor& x, const Tensor& indices, const Tensor& updates, int64_t axis,
                   Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of_two(x, indices, "scatter_add", where);
  builder_of_two(x, updates, "scatter_add", where);
  axis = to_axis(axis, x.rank(), "scatter_add", where);
  return wrap(builder, build::scatter_add(builder->graph, node_of(x), node_of(indices),
                                          node_of(updates), axis, where));
}

Tensor scatter(const Tensor& x, const Tensor& indices, const Tensor& updates, Scatter how,
               int64_t axis, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of_two(x, indices, "scatter", where);
  builder_of_two(x, updates, "scatter", where);
  const ScatterOp op{detail::monoid_of(how), to_axis(axis, x.rank(), "scatter", where)};
  return wrap(builder, build::scatter(builder->graph, op, node_of(x), node_of(indices),
                                      node_of(updates), where));
}

namespace {

// The places [start, start + count) of an axis, moved so that all lie within the axis.
Tensor places_from(const Tensor& start, const Dim& extent, const Dim& count) {
  const auto& builder = start.builder();
  const NodeId most = build::size(builder->graph, to_expr(extent - count));
  const Tensor first = minimum(maximum(cast(start, i64), 0), wrap(builder, most));
  return first + arange(i64, count);
}

void check_part(const Tensor& x, const std::vector<Tensor>& starts, const Dims& sizes,
                const char* op, SourceLocation where) {
  check_rank(starts.size(), x, op, "starts", where);
  check_rank(sizes.size(), x, op, "sizes", where);
  for (size_t i = 0; i < sizes.size(); ++i) {
    builder_of_two(x, starts[i], op, where);
    if (!is_integer(starts[i].dtype()) || starts[i].rank() != 0)
      fail(codes::kBadAttribute,
           fmt::format("{}: the start of axis {} is {}, no integer of rank 0", op, i,
                       starts[i].to_string()),
           {.location = where, .node = op});
    const Dim extent = x.dim(static_cast<int64_t>(i));
    if (!proves_at_most(to_expr(sizes[i]), to_expr(extent)))
      fail(codes::kShapeMismatch,
           fmt::format("{}: a part of {} along axis {} of {}", op, sizes[i].to_string(), i,
                       x.to_string()),
           {.location = where, .node = op});
  }
}

}  // namespace

Tensor dynamic_slice(const Tensor& x, const std::vector<Tensor>& starts, const Dims& sizes,
                     Where call) {
  const detail::Place all(call, "dynamic_slice");
  check_part(x, starts, sizes, "dynamic_slice", place(call));
  Tensor out = x;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (x.dim(axis) == sizes[i]) continue;  // the part is the whole axis
    out = take(out, places_from(starts[i], x.dim(axis), sizes[i]), axis);
  }
  return out;
}

Tensor dynamic_update(const Tensor& x, const Tensor& update, const std::vector<Tensor>& starts,
                      Where call) {
  const detail::Place all(call, "dynamic_update");
  const Dims sizes = update.shape(), shape = x.shape();
  const SourceLocation where = place(call);
  builder_of_two(x, update, "dynamic_update", where);
  if (x.dtype() != update.dtype())
    fail(codes::kDTypeMismatch,
         fmt::format("dynamic_update: {} has no part {}", x.to_string(), update.to_string()),
         {.location = where, .node = "dynamic_update", .fix = "cast the part"});
  check_part(x, starts, sizes, "dynamic_update", where);
  size_t first = 0, end = sizes.size();
  while (first < end && shape[first] == sizes[first]) ++first;
  while (end > first && shape[end - 1] == sizes[end - 1]) --end;
  if (first == end) return update;  // the part is all of x
  // The axes from `first` to `end` become one, along which every element has its place.
  const Dims box(sizes.begin() + static_cast<ptrdiff_t>(first),
                 sizes.begin() + static_cast<ptrdiff_t>(end));
  Tensor places;
  Dim extent = 1;
  for (size_t i = first; i < end; ++i) {
    Dims aligned(box.size(), Dim(1));
    aligned[i - first] = sizes[i];
    const Tensor along = reshape(places_from(starts[i], shape[i], sizes[i]), aligned);
    if (i == first) {
      places = along;
    } else {
      const auto& builder = x.builder();
      places = places * wrap(builder, build::size(builder->graph, to_expr(shape[i]))) + along;
    }
    extent = extent * shape[i];
  }
  Dims flat(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(first));
  flat.push_back(extent);
  flat.insert(flat.end(), shape.begin() + static_cast<ptrdiff_t>(end), shape.end());
  const auto axis = static_cast<int64_t>(first);
  return reshape(scatter(reshape(x, flat), broadcast_to(places, box), update, Scatter::Set, axis),
                 shape);
}

Tensor one_hot(const Tensor& x, int64_t classes, DType dtype, Where call) {
  const detail::Place all(call);
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "one_hot", where);
  if (!is_integer(x.dtype()))
    fail(codes::kDTypeMismatch,
         fmt::format("one_hot: {} is not of an integer dtype", x.to_string()),
         {.location = where, .node = "one_hot", .fix = "cast it to i32 or i64"});
  // A short dtype may be too small for the classes' numbers.
  const Tensor wide = size_of(x.dtype()) < 4 ? cast(x, i32) : x;
  const Tensor index =
      wrap(builder, build::iota(builder->graph, {wide.dtype(), Shape{Expr(classes)}}, 0, where));
  return cast(expand_dims(wide, -1) == index, dtype);
}

Tensor update(const Tensor& argument, const Tensor& value, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of_two(argument, value, "update", where);
  if (!(detail::type_of(argument) == detail::type_of(value)))
    fail(codes::kBadDonation,
         fmt::format("update: {} cannot take over the memory of {}", value.to_string(),
                     argument.to_string()),
         {.location = where, .node = "update", .fix = "both need the same type"});
  builder->updates.emplace_back(node_of(value), node_of(argument));
  return value;
}

}  // namespace braze
