// creation.cpp — values without operands: constants and indices in graphs, and new Arrays.
#include "braze/creation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "frontend/builder/builder.h"
#include "ir/support/text.h"
#include "ir/values/host_tensor.h"
#include "ir/values/value_of.h"

namespace braze {

Tensor constant(const Array& value, Where where) {
  const SourceLocation at = detail::place(where);
  return detail::as_tensor(Operand(value, where), detail::current_builder(at), value.dtype(),
                           "constant", at);
}

Tensor full(DType dtype, const Dims& shape, double value, Where where) {
  const SourceLocation at = detail::place(where);
  const auto& builder = detail::current_builder(at);
  const Tensor scalar = detail::as_tensor(Operand(value, where), builder, dtype, "full", at);
  return detail::wrap(
      builder, build::broadcast_to(builder->graph, detail::node_of(scalar), to_shape(shape), at));
}

Tensor full_like(const Tensor& x, double value, Where where) {
  const SourceLocation at = detail::place(where);
  const auto& builder = detail::builder_of(x, "full_like", at);
  const Tensor scalar =
      detail::as_tensor(Operand(value, where), builder, x.dtype(), "full_like", at);
  return detail::wrap(builder, build::broadcast_to(builder->graph, detail::node_of(scalar),
                                                   to_shape(x.shape()), at));
}

Tensor zeros_like(const Tensor& x, Where where) { return full_like(x, 0, where); }
Tensor ones_like(const Tensor& x, Where where) { return full_like(x, 1, where); }

Tensor arange(DType dtype, const Dims& shape, int64_t axis, Where where) {
  const SourceLocation at = detail::place(where);
  const auto& builder = detail::current_builder(at);
  axis = detail::to_axis(axis, shape.size(), "arange", at);
  return detail::wrap(builder, build::iota(builder->graph, {dtype, to_shape(shape)}, axis, at));
}

Tensor arange(DType dtype, const Dim& size, Where where) { return arange(dtype, {size}, 0, where); }

Tensor count(const Tensor& x, const Axes& axes, DType dtype, Where where) {
  const detail::Place place(where);
  const SourceLocation at = detail::place(where);
  const auto& builder = detail::builder_of(x, "count", at);
  const Dims dims = x.shape();
  Expr product = 1;
  for (const int64_t axis : detail::to_axes(axes, dims.size(), "count", at))
    product *= to_expr(dims[static_cast<size_t>(axis)]);
  const auto known = product.as_constant();
  if (known && !(is_integer(dtype) && size_of(dtype) == 8))  // rounded once
    return detail::wrap(builder,
                        build::scalar(builder->graph, dtype, static_cast<double>(*known), at));
  return cast(detail::wrap(builder, build::size(builder->graph, product, at)), dtype);
}

// ---- Arrays -----------------------------------------------------------------------------------

namespace {

void check_value(const char* op, double value, DType dtype) {
  if (!is_value(value, dtype))
    fail(codes::kBadNumber,
         fmt::format("{}: {} is not a value of {}", op, number_text(value), name(dtype)),
         {.node = op,
          .fix = fmt::format("choose a dtype that has this value, such as {}",
                             is_floating(dtype) ? "f64" : "f32")});
}

}  // namespace

Array zeros(std::vector<int64_t> shape, DType dtype, const Device& device) {
  return Array::from_host(HostTensor(dtype, std::move(shape)), device);
}

Array ones(std::vector<int64_t> shape, DType dtype, const Device& device) {
  return full(std::move(shape), 1, dtype, device);
}

Array full(std::vector<int64_t> shape, double value, DType dtype, const Device& device) {
  check_value("full", value, dtype);
  HostTensor host(dtype, std::move(shape));
  if (host.numel() > 0) host.set_double(0, value);
  // The filled part is copied behind itself, so each copy doubles it.
  const size_t size = host.size_bytes();
  for (size_t filled = size_of(dtype); filled < size; filled *= 2)
    std::memcpy(host.data() + filled, host.data(), std::min(filled, size - filled));
  return Array::from_host(host, device);
}

Array arange(double start, double stop, double step, DType dtype, const Device& device) {
  const double count = std::ceil((stop - start) / step);
  if (step == 0 || !(std::abs(count) < 0x1p53))
    fail(codes::kBadDim, fmt::format("arange({}, {}, {}) does not end", number_text(start),
                                     number_text(stop), number_text(step)));
  HostTensor host(dtype, {static_cast<int64_t>(std::max(count, 0.0))});
  for (int64_t i = 0; i < host.numel(); ++i) {
    const double value = start + static_cast<double>(i) * step;
    check_value("arange", value, dtype);
    host.set_double(i, value);
  }
  return Array::from_host(host, device);
}

Array arange(int64_t count, DType dtype, const Device& device) {
  HostTensor host(dtype, {count});
  if (count > 0 && !is_floating(dtype) && size_of(dtype) < 8)
    check_value("arange", static_cast<double>(count - 1), dtype);
  for (int64_t i = 0; i < count; ++i) {
    if (is_floating(dtype))
      host.set_double(i, static_cast<double>(i));
    else
      host.set_int(i, i);
  }
  return Array::from_host(host, device);
}

}  // namespace braze
