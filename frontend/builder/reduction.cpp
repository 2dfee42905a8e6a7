// reduction.cpp — sums and other reductions, and contractions.
#include <algorithm>
#include <limits>
#include <numeric>

#include "braze/elementwise.h"
#include "frontend/builder/builder.h"
#include "ir/ops/monoid.h"
#include "ir/support/text.h"

namespace braze {

using detail::builder_of;
using detail::node_of;
using detail::place;
using detail::wrap;

namespace {

/// The shape of x with the extents of `axes` (sorted) set to 1.
Dims keep_dims(const Tensor& x, const std::vector<int64_t>& axes) {
  Dims shape = x.shape();
  for (const int64_t axis : axes) shape[static_cast<size_t>(axis)] = Dim(1);
  return shape;
}

void check_dtype(Monoid monoid, const Tensor& x, const char* op, const SourceLocation& where) {
  if (!info(monoid).types.contains(x.dtype()))
    fail(codes::kDTypeMismatch, fmt::format("{}: is not defined on {}", op, x.to_string()),
         {.location = where, .node = op, .fix = "cast it first"});
}

Tensor reduce(const char* function, Monoid monoid, const Tensor& x, const Axes& axes, bool keepdims,
              Where call) {
  const SourceLocation where = place(call);
  const char* op = detail::called(function);
  const auto& builder = builder_of(x, op, where);
  check_dtype(monoid, x, op, where);
  const std::vector<int64_t> which = detail::to_axes(axes, x.rank(), op, where);
  if (which.empty()) return x;
  const Tensor reduced =
      wrap(builder, build::reduce(builder->graph, monoid, node_of(x), which, where));
  return keepdims ? reshape(reduced, keep_dims(x, which), call) : reduced;
}

Tensor scan(const char* function, Monoid monoid, const Tensor& x, int64_t axis, Running how,
            Where call) {
  const SourceLocation where = place(call);
  const char* op = detail::called(function);
  const auto& builder = builder_of(x, op, where);
  check_dtype(monoid, x, op, where);
  axis = detail::to_axis(axis, x.rank(), op, where);
  const ScanOp attributes{monoid, axis, how.reverse, how.exclusive};
  return wrap(builder, build::scan(builder->graph, attributes, node_of(x), where));
}

void check_floating(const Tensor& x, const char* op) {
  if (!is_arithmetic_float(x.dtype()))
    fail(codes::kDTypeMismatch, fmt::format("{}: {} is not floating", op, x.to_string()),
         {.location = place(Where::current()), .node = op, .fix = "cast it to f32 first"});
}

Tensor arg_reduce(bool is_max, const Tensor& x, int64_t axis, bool keepdims, Where call) {
  const SourceLocation where = place(call);
  const char* op = is_max ? "argmax" : "argmin";
  const auto& builder = builder_of(x, op, where);
  axis = detail::to_axis(axis, x.rank(), op, where);
  const Tensor index =
      wrap(builder, build::arg_reduce(builder->graph, is_max, node_of(x), axis, where));
  return keepdims ? reshape(index, keep_dims(x, {axis}), call) : index;
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("sum", Monoid::Sum, x, axes, keepdims, where);
}
Tensor prod(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("prod", Monoid::Prod, x, axes, keepdims, where);
}
Tensor max(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("max", Monoid::Max, x, axes, keepdims, where);
}
Tensor min(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("min", Monoid::Min, x, axes, keepdims, where);
}
Tensor any(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("any", Monoid::Or, x, axes, keepdims, where);
}
Tensor all(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("all", Monoid::And, x, axes, keepdims, where);
}

Tensor mean(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  const detail::Place place(where);
  check_floating(x, "mean");
  // The sum of a 16-bit tensor may exceed the dtype's range even if the mean does not.
  const DType wide = compute_type(x.dtype());
  return cast(sum(cast(x, wide), axes, keepdims) / count(x, axes, wide), x.dtype());
}

Tensor var(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  const detail::Place place(where);
  check_floating(x, "var");
  const Tensor wide = cast(x, compute_type(x.dtype()));
  return cast(mean(square(wide - mean(wide, axes, true)), axes, keepdims), x.dtype());
}

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  const detail::Place place(where);
  check_floating(x, "logsumexp");
  const Tensor greatest = stop_gradient(max(x, axes, true));
  // An infinite maximum is not subtracted, because inf - inf is NaN.
  const Tensor shift =
      braze::where(abs(greatest) < std::numeric_limits<double>::infinity(), greatest, 0);
  const Tensor total = log(sum(exp(x - shift), axes, true)) + shift;
  if (keepdims) return total;
  Dims shape;
  const std::vector<int64_t> gone = detail::to_axes(axes, x.rank(), "logsumexp", where);
  for (int64_t i = 0; i < static_cast<int64_t>(x.rank()); ++i)
    if (!std::binary_search(gone.begin(), gone.end(), i)) shape.push_back(x.dim(i));
  return reshape(total, std::move(shape));
}

Tensor argmax(const Tensor& x, int64_t axis, bool keepdims, Where where) {
  return arg_reduce(true, x, axis, keepdims, where);
}
Tensor argmin(const Tensor& x, int64_t axis, bool keepdims, Where where) {
  return arg_reduce(false, x, axis, keepdims, where);
}

Tensor cumsum(const Tensor& x, int64_t axis, Running how, Where where) {
  return scan("cumsum", Monoid::Sum, x, axis, how, where);
}
Tensor cumprod(const Tensor& x, int64_t axis, Running how, Where where) {
  return scan("cumprod", Monoid::Prod, x, axis, how, where);
}
Tensor cummax(const Tensor& x, int64_t axis, Running how, Where where) {
  return scan("cummax", Monoid::Max, x, axis, how, where);
}
Tensor cummin(const Tensor& x, int64_t axis, Running how, Where where) {
  return scan("cummin", Monoid::Min, x, axis, how, where);
}

Tensor dot_general(const Tensor& x, const Tensor& y, const DotAxes& axes, Where call) {
  const SourceLocation where = place(call);
  const Tensor* both[] = {&x, &y};
  const auto& builder = builder_of(both, "dot", where);
  DotOp op{axes.batch_left, axes.batch_right, axes.contract_left, axes.contract_right, axes.tf32};
  for (int64_t& axis : op.batch_left) axis = detail::to_axis(axis, x.rank(), "dot", where);
  for (int64_t& axis : op.contract_left) axis = detail::to_axis(axis, x.rank(), "dot", where);
  for (int64_t& axis : op.batch_right) axis = detail::to_axis(axis, y.rank(), "dot", where);
  for (int64_t& axis : op.contract_right) axis = detail::to_axis(axis, y.rank(), "dot", where);
  return wrap(builder, build::dot(builder->graph, node_of(x), node_of(y), std::move(op),
                                  axes.result, where));
}

namespace {

[[noreturn]] void fail_dot(const Tensor& x, const Tensor& y, const std::string& why,
                           SourceLocation where) {
  fail(codes::kShapeMismatch,
       fmt::format("dot: {} and {} do not multiply: {}", x.to_string(), y.to_string(), why),
       {.location = where,
        .node = "dot",
        .fix = "the last axis of the left operand is summed with the second to last (or only) axis "
               "of the right"});
}

/// 0, 1 ... count - 1.
std::vector<int64_t> first_axes(size_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), int64_t{0});
  return out;
}

}  // namespace

Tensor dot(const Tensor& x, const Tensor& y, std::optional<DType> result, Where call) {
  const detail::Place all(call);
  const SourceLocation where = place(call);
  const Tensor* both[] = {&x, &y};
  builder_of(both, "dot", where);
  if (x.rank() == 0 || y.rank() == 0) fail_dot(x, y, "a scalar has no axis to sum over", where);
  const int64_t y_axis = y.rank() == 1 ? 0 : static_cast<int64_t>(y.rank()) - 2;
  if (!(x.dim(-1) == y.dim(y_axis)))
    fail_dot(x, y, fmt::format("{} is not {}", x.dim(-1).to_string(), y.dim(y_axis).to_string()),
             where);
  DotAxes axes{.contract_left = {-1}, .contract_right = {y_axis}, .result = result};

  // The usual case: y has no batch axes, so those of x just pass through.
  if (y.rank() <= 2) return dot_general(x, y, axes);
  if (x.rank() <= 2) {
    // The product's axes are m, the batch of y, and n. The batch must come first.
    const Tensor product = dot_general(x, y, axes);
    if (x.rank() == 1) return product;
    std::vector<int64_t> order;
    for (size_t i = 1; i + 1 < product.rank(); ++i) order.push_back(static_cast<int64_t>(i));
    order.push_back(0);
    order.push_back(static_cast<int64_t>(product.rank()) - 1);
    return permute(product, std::move(order));
  }

  const Dims x_dims = x.shape(), y_dims = y.shape();
  const size_t batch = std::max(x.rank(), y.rank()) - 2;
  Dims shape(batch, Dim(1));
  for (const Dims* dims : {&x_dims, &y_dims})
    for (size_t i = 0; i + 2 < dims->size(); ++i) {
      Dim& dim = shape[batch - (dims->size() - 2) + i];
      if (dim == (*dims)[i] || (*dims)[i] == Dim(1)) continue;
      if (!(dim == Dim(1)))
        fail_dot(x, y,
                 fmt::format("the batch extents {} and {} do not broadcast", dim.to_string(),
                             (*dims)[i].to_string()),
                 where);
      dim = (*dims)[i];
    }
  const auto with_batch = [&shape](const Tensor& tensor) {
    Dims dims = shape;
    dims.push_back(tensor.dim(-2));
    dims.push_back(tensor.dim(-1));
    return broadcast_to(tensor, dims);
  };
  axes.batch_left = axes.batch_right = first_axes(batch);
  axes.contract_right = {-2};
  return dot_general(with_batch(x), with_batch(y), axes);
}

}  // namespace braze
