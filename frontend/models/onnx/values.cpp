// values.cpp — operators that make values (constants, shapes, ranges), and branches whose condition
// is known at import.
#include <cmath>
#include <numbers>

#include "frontend/builder/builder.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

Tensor graph_constant(HostTensor value) {
  const auto& builder = detail::current_builder({});
  return detail::wrap(builder, build::constant(builder->graph, std::move(value)));
}

HostTensor list_of(DType dtype, const std::vector<double>& values) {
  HostTensor out(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) out.set_double(static_cast<int64_t>(i), values[i]);
  return out;
}
HostTensor list_of(const std::vector<int64_t>& values) {
  HostTensor out(DType::I64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) out.set_int(static_cast<int64_t>(i), values[i]);
  return out;
}

Tensor constant_value(OnnxNode& n) {
  if (const TensorData* data = n.tensor("value")) {
    const Value value = n.around().weight(*data);
    n.set_bits(value.bits);
    return value.tensor;
  }
  if (n.has_attribute("value_float")) {
    HostTensor out(DType::F32, {});
    out.set_double(0, n.real("value_float"));
    return graph_constant(std::move(out));
  }
  if (n.has_attribute("value_int")) {
    HostTensor out(DType::I64, {});
    out.set_int(0, n.integer("value_int"));
    return graph_constant(std::move(out));
  }
  if (n.has_attribute("value_floats"))
    return graph_constant(list_of(DType::F32, n.reals("value_floats")));
  if (n.has_attribute("value_ints")) return graph_constant(list_of(n.integers("value_ints")));
  n.refuse("a constant that is no dense tensor of numbers");
}

Tensor constant_of_shape(OnnxNode& n) {
  const Dims shape = n.sizes(0, "shape");
  Tensor value;
  if (const TensorData* data = n.tensor("value"))
    value = reshape(n.around().weight(*data).tensor, {});
  else
    value = graph_constant(HostTensor(DType::F32, {}));
  return broadcast_to(value, shape);
}

Tensor expressions(const std::vector<Expr>& values) {
  const auto& builder = detail::current_builder({});
  Tensors parts;
  for (const Expr& value : values)
    parts.push_back(reshape(detail::wrap(builder, build::size(builder->graph, value)), {1}));
  return parts.empty() ? graph_constant(HostTensor(DType::I64, {0})) : concat(parts);
}

Tensor shape_of(OnnxNode& n) {
  const Dims shape = n[0].shape();
  const auto rank = static_cast<int64_t>(shape.size());
  const auto place = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t start = place(n.integer("start", 0)), end = place(n.integer("end", rank));
  std::vector<Expr> extents;
  for (int64_t i = start; i < end; ++i) extents.push_back(to_expr(shape[static_cast<size_t>(i)]));
  return expressions(extents);
}

Tensor size_of_all(OnnxNode& n) { return reshape(expressions({to_expr(n[0].numel())}), {}); }

Tensor range_of(OnnxNode& n) {
  const DType dtype = n[0].dtype();
  if (is_integer(dtype)) {
    const Dims start = n.sizes(0, "start"), limit = n.sizes(1, "limit");
    const int64_t delta = n.number(2, "delta");
    if (start.size() != 1 || limit.size() != 1 || delta == 0 || delta == INT64_MIN)
      n.refuse("start, limit and delta are no range");
    const Expr span =
        delta > 0 ? to_expr(limit[0]) - to_expr(start[0]) : to_expr(start[0]) - to_expr(limit[0]);
    const Expr count = max(ceildiv(span, delta > 0 ? delta : -delta), 0);
    return arange(dtype, to_dim(count)) * delta + reshape(n[0], {});
  }
  const double start = n.real(0, "start"), limit = n.real(1, "limit"), delta = n.real(2, "delta");
  const double count = std::max(std::ceil((limit - start) / delta), 0.0);
  if (!(count < 1e9)) n.refuse("start, limit and delta are no range");
  return cast(
      arange(compute_type(dtype), Dim(static_cast<int64_t>(count))) * widened(reshape(n[2], {})) +
          widened(reshape(n[0], {})),
      dtype);
}

Tensor identity_like(OnnxNode& n) {
  const DType dtype = n.has_attribute("dtype") ? n.type("dtype").dtype : n[0].dtype();
  if (n[0].rank() != 2) n.refuse("not two axes");
  const int64_t k = n.integer("k", 0);
  const Dims shape = n[0].shape();
  return cast(arange(i64, shape, 0) + k == arange(i64, shape, 1), dtype);
}

// A window function, which falls towards both ends: a sum of cosines with these coefficients.
template <int a0, int a1, int a2>
Tensor window(OnnxNode& n) {
  const int64_t size = n.number(0, "size");
  const bool periodic = n.integer("periodic", 1) != 0;
  const DType dtype = n.type("output_datatype", 1).dtype;
  if (size < 0 || size > (1 << 20)) n.refuse("the size is no length");
  n.take_memory(size * static_cast<int64_t>(sizeof(double) + size_of(dtype)));
  const double length = static_cast<double>(periodic ? size : size - 1);
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    const double x = 2 * std::numbers::pi * static_cast<double>(i) / length;
    values.push_back(a0 * 1e-6 - a1 * 1e-6 * std::cos(x) + a2 * 1e-6 * std::cos(2 * x));
  }
  return graph_constant(list_of(dtype, values));
}

// The branch is chosen at import. It can use the values around the node.
Tensors branch(OnnxNode& n) {
  const bool is_then = n.number(0, "the condition") != 0;
  const GraphData* chosen = n.graph(is_then ? "then_branch" : "else_branch");
  n.ignore(is_then ? "else_branch" : "then_branch");
  if (!chosen) n.refuse("a branch is missing");
  Tensors out;
  for (const Value& value : n.around().inlined(*chosen)) {
    if (value.failed) n.refuse("the branch has nodes that cannot be imported");
    out.push_back(value.tensor);
  }
  return out;
}

}  // namespace

const Rows& value_rows() {
  static const Rows kRows = {
      {"BlackmanWindow", window<420000, 500000, 80000>, 17},
      {"Constant", constant_value},
      {"ConstantOfShape", constant_of_shape, 9},
      {"EyeLike", identity_like, 9},
      {"HammingWindow", window<543478, 456522, 0>, 17},
      {"HannWindow", window<500000, 500000, 0>, 17},
      {"If", branch},
      {"Range", range_of, 11},
      {"Shape", shape_of},
      {"Size", size_of_all},
  };
  return kRows;
}

}  // namespace braze::onnx
