#include "ir/graph/build.h"

#include <numeric>

#include "ir/graph/infer.h"
#include "ir/support/text.h"

namespace braze::build {

NodeId node(Graph& graph, Op op, std::vector<NodeId> operands, const TensorType& wanted,
            SourceLocation where, std::string label) {
  std::vector<const TensorType*> types;
  for (const NodeId operand : operands) types.push_back(&graph[operand].type);
  TensorType type = infer_type(op, types, wanted, where);
  return graph.add({std::move(op), std::move(operands), std::move(type), where, std::move(label)});
}

NodeId input(Graph& graph, std::string name, TensorType type, SourceLocation where,
             std::vector<MeshAxis> varying) {
  if (graph.find_input(name))
    fail(codes::kBadAttribute, fmt::format("there are two inputs with the name {}", quote(name)),
         {.location = where, .node = "input", .fix = "rename one"});
  return node(graph, InputOp{std::move(name), std::move(varying)}, {}, type, where);
}

NodeId constant(Graph& graph, HostTensor value, SourceLocation where) {
  return node(graph, ConstantOp{std::make_shared<const HostTensor>(std::move(value))}, {}, {},
              where);
}

NodeId scalar(Graph& graph, DType dtype, double value, SourceLocation where) {
  return scalar_bits(graph, dtype, constant_bits(dtype, value), where);
}

NodeId scalar_bits(Graph& graph, DType dtype, uint64_t bits, SourceLocation where) {
  HostTensor value(dtype, {});
  value.set_bits(0, bits);
  return constant(graph, std::move(value), where);
}

NodeId map(Graph& graph, ElementwiseOp op, std::vector<NodeId> operands, SourceLocation where,
           std::optional<DType> result) {
  Shape shape;
  for (const NodeId operand : operands)
    if (shape.rank() == 0) shape = graph[operand].type.shape;
  for (NodeId& operand : operands)
    if (graph[operand].type.shape.rank() != shape.rank() && graph[operand].type.shape.rank() == 0)
      operand = broadcast(graph, operand, shape, {}, where);
  return node(graph, MapOp{op}, std::move(operands), {result.value_or(DType::F32), {}}, where);
}

NodeId convert(Graph& graph, NodeId x, DType to, SourceLocation where) {
  return map(graph, ElementwiseOp::convert, {x}, where, to);
}

NodeId bitcast(Graph& graph, NodeId x, DType to, SourceLocation where) {
  return map(graph, ElementwiseOp::bitcast, {x}, where, to);
}

NodeId broadcast(Graph& graph, NodeId x, Shape shape, std::vector<int64_t> axes,
                 SourceLocation where) {
  return node(graph, BroadcastOp{std::move(axes)}, {x}, {graph[x].type.dtype, std::move(shape)},
              where);
}

NodeId broadcast_to(Graph& graph, NodeId x, Shape shape, SourceLocation where) {
  const TensorType& type = graph[x].type;
  if (type.shape == shape) return x;
  const size_t rank = type.shape.rank();
  if (rank > shape.rank())
    fail(codes::kShapeMismatch,
         fmt::format("broadcast_to({}): the shape {} has fewer axes", type.to_string(),
                     shape.to_string()),
         {.location = where, .node = "broadcast", .fix = ""});
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(shape.rank() - rank));
  return broadcast(graph, x, std::move(shape), std::move(axes), where);
}

NodeId reshape(Graph& graph, NodeId x, Shape shape, SourceLocation where) {
  return node(graph, ReshapeOp{}, {x}, {graph[x].type.dtype, std::move(shape)}, where);
}

NodeId transpose(Graph& graph, NodeId x, std::vector<int64_t> permutation, SourceLocation where) {
  return node(graph, TransposeOp{std::move(permutation)}, {x}, {}, where);
}

NodeId slice(Graph& graph, NodeId x, std::vector<Expr> starts, std::vector<Expr> limits,
             std::vector<int64_t> strides, SourceLocation where) {
  return node(graph, SliceOp{std::move(starts), std::move(limits), std::move(strides)}, {x}, {},
              where);
}

NodeId pad(Graph& graph, NodeId x, NodeId value, std::vector<Expr> low, std::vector<Expr> high,
           std::vector<int64_t> interior, SourceLocation where) {
  return node(graph, PadOp{std::move(low), std::move(high), std::move(interior)}, {x, value}, {},
              where);
}

NodeId windows(Graph& graph, NodeId x, NodeId fill, WindowsOp attributes, Shape shape,
               SourceLocation where) {
  const DType dtype = graph[x].type.dtype;
  return node(graph, std::move(attributes), {x, fill}, {dtype, std::move(shape)}, where);
}

NodeId concat(Graph& graph, std::vector<NodeId> parts, int64_t axis, SourceLocation where) {
  return node(graph, ConcatOp{axis}, std::move(parts), {}, where);
}

NodeId reverse(Graph& graph, NodeId x, std::vector<int64_t> axes, SourceLocation where) {
  return node(graph, ReverseOp{std::move(axes)}, {x}, {}, where);
}

NodeId iota(Graph& graph, TensorType type, int64_t axis, SourceLocation where) {
  return node(graph, IotaOp{axis}, {}, type, where);
}

NodeId size(Graph& graph, Expr value, SourceLocation where) {
  if (const auto known = value.as_constant())
    return scalar_bits(graph, DType::I64, static_cast<uint64_t>(*known), where);
  return node(graph, SizeOp{std::move(value)}, {}, {}, where);
}

NodeId gather(Graph& graph, NodeId x, NodeId indices, int64_t axis, SourceLocation where) {
  return node(graph, GatherOp{axis}, {x, indices}, {}, where);
}

NodeId scatter(Graph& graph, ScatterOp attributes, NodeId x, NodeId indices, NodeId updates,
               SourceLocation where) {
  return node(graph, attributes, {x, indices, updates}, {}, where);
}
NodeId scatter_add(Graph& graph, NodeId x, NodeId indices, NodeId updates, int64_t axis,
                   SourceLocation where) {
  return scatter(graph, {Monoid::Sum, axis}, x, indices, updates, where);
}

NodeId reduce(Graph& graph, Monoid monoid, NodeId x, std::vector<int64_t> axes,
              SourceLocation where) {
  return node(graph, ReduceOp{monoid, std::move(axes)}, {x}, {}, where);
}

NodeId arg_reduce(Graph& graph, bool is_max, NodeId x, int64_t axis, SourceLocation where) {
  return node(graph, ArgReduceOp{is_max, axis}, {x}, {}, where);
}

NodeId arg_sort(Graph& graph, ArgSortOp attributes, NodeId x, int64_t count, SourceLocation where) {
  Shape shape = graph[x].type.shape;
  if (attributes.axis >= 0 && attributes.axis < static_cast<int64_t>(shape.rank()))
    shape[static_cast<size_t>(attributes.axis)] = Expr(count);
  return node(graph, attributes, {x}, {DType::I64, std::move(shape)}, where);
}

NodeId scan(Graph& graph, ScanOp attributes, NodeId x, SourceLocation where) {
  return scan(graph, std::move(attributes), std::vector{x}, where);
}
NodeId scan(Graph& graph, ScanOp attributes, std::vector<NodeId> operands, SourceLocation where) {
  return node(graph, std::move(attributes), std::move(operands), {}, where);
}

NodeId dot(Graph& graph, NodeId left, NodeId right, DotOp attributes, std::optional<DType> result,
           SourceLocation where) {
  const DType dtype = result.value_or(graph[left].type.dtype);
  return node(graph, std::move(attributes), {left, right}, {dtype, {}}, where);
}

NodeId random_bits(Graph& graph, NodeId key, Shape shape, SourceLocation where) {
  return node(graph, RandomBitsOp{}, {key}, {DType::U32, std::move(shape)}, where);
}

NodeId barrier(Graph& graph, NodeId x, std::span<const NodeId> others, BarrierOp attributes,
               SourceLocation where) {
  std::vector<NodeId> operands{x};
  operands.insert(operands.end(), others.begin(), others.end());
  return node(graph, attributes, std::move(operands), {}, where);
}

NodeId collective(Graph& graph, CollectiveOp attributes, NodeId x, SourceLocation where) {
  return node(graph, std::move(attributes), {x}, {}, where);
}

NodeId axis_index(Graph& graph, MeshAxis axis, SourceLocation where) {
  return node(graph, AxisIndexOp{std::move(axis)}, {}, {}, where);
}

NodeId custom_call(Graph& graph, CustomCallOp attributes, std::vector<NodeId> operands,
                   const TensorType& result, SourceLocation where) {
  return node(graph, std::move(attributes), std::move(operands), result, where);
}

NodeId rebuild(Graph& graph, const Node& original, std::vector<NodeId> operands) {
  return node(graph, original.op, std::move(operands), original.type, original.location,
              original.label);
}

}  // namespace braze::build
