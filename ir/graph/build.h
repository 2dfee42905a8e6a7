// build.h — one function for each graph op: it infers the type, checks the operands, and adds the
// node.
//
// All of them throw InvalidArgument with both types, the op and `where` if the operands do not fit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/infer.h"

namespace braze::build {

/// Adds a node of any op. `wanted` gives the parts of the type that the operands do not determine
/// (infer.h).
NodeId node(Graph& graph, Op op, std::vector<NodeId> operands, const TensorType& wanted,
            SourceLocation where = {}, std::string label = {});

NodeId input(Graph& graph, std::string name, TensorType type, SourceLocation where = {},
             std::vector<MeshAxis> varying = {});
NodeId constant(Graph& graph, HostTensor value, SourceLocation where = {});
/// A rank-0 constant, rounded once to `dtype`.
NodeId scalar(Graph& graph, DType dtype, double value, SourceLocation where = {});
NodeId scalar_bits(Graph& graph, DType dtype, uint64_t bits, SourceLocation where = {});

/// Operands of equal shape; rank-0 operands are broadcast. `result` only for convert and bitcast.
NodeId map(Graph& graph, ElementwiseOp op, std::vector<NodeId> operands, SourceLocation where = {},
           std::optional<DType> result = {});
NodeId convert(Graph& graph, NodeId x, DType to, SourceLocation where = {});
NodeId bitcast(Graph& graph, NodeId x, DType to, SourceLocation where = {});

NodeId broadcast(Graph& graph, NodeId x, Shape shape, std::vector<int64_t> axes,
                 SourceLocation where = {});
/// Broadcasts as in NumPy: axes are aligned at the end.
NodeId broadcast_to(Graph& graph, NodeId x, Shape shape, SourceLocation where = {});
NodeId reshape(Graph& graph, NodeId x, Shape shape, SourceLocation where = {});
NodeId transpose(Graph& graph, NodeId x, std::vector<int64_t> permutation,
                 SourceLocation where = {});
NodeId slice(Graph& graph, NodeId x, std::vector<Expr> starts, std::vector<Expr> limits,
             std::vector<int64_t> strides, SourceLocation where = {});
NodeId pad(Graph& graph, NodeId x, NodeId value, std::vector<Expr> low, std::vector<Expr> high,
           std::vector<int64_t> interior, SourceLocation where = {});
/// `shape` gives the extents that the windowed axes have in the result.
NodeId windows(Graph& graph, NodeId x, NodeId fill, WindowsOp attributes, Shape shape,
               SourceLocation where = {});
NodeId concat(Graph& graph, std::vector<NodeId> parts, int64_t axis, SourceLocation where = {});
NodeId reverse(Graph& graph, NodeId x, std::vector<int64_t> axes, SourceLocation where = {});
NodeId iota(Graph& graph, TensorType type, int64_t axis, SourceLocation where = {});
/// The value of an expression over the sizes, as i64. It is a constant if the value is known.
NodeId size(Graph& graph, Expr value, SourceLocation where = {});
NodeId gather(Graph& graph, NodeId x, NodeId indices, int64_t axis, SourceLocation where = {});
NodeId scatter(Graph& graph, ScatterOp attributes, NodeId x, NodeId indices, NodeId updates,
               SourceLocation where = {});
/// A scatter that adds the updates.
NodeId scatter_add(Graph& graph, NodeId x, NodeId indices, NodeId updates, int64_t axis,
                   SourceLocation where = {});
NodeId reduce(Graph& graph, Monoid monoid, NodeId x, std::vector<int64_t> axes,
              SourceLocation where = {});
NodeId arg_reduce(Graph& graph, bool is_max, NodeId x, int64_t axis, SourceLocation where = {});
/// The first `count` indices of the sorted elements.
NodeId arg_sort(Graph& graph, ArgSortOp attributes, NodeId x, int64_t count,
                SourceLocation where = {});
NodeId scan(Graph& graph, ScanOp attributes, NodeId x, SourceLocation where = {});
NodeId scan(Graph& graph, ScanOp attributes, std::vector<NodeId> operands,
            SourceLocation where = {});
NodeId dot(Graph& graph, NodeId left, NodeId right, DotOp attributes,
           std::optional<DType> result = {}, SourceLocation where = {});
NodeId random_bits(Graph& graph, NodeId key, Shape shape, SourceLocation where = {});
/// The value of x, but not before all of `others` are computed.
NodeId barrier(Graph& graph, NodeId x, std::span<const NodeId> others, BarrierOp attributes = {},
               SourceLocation where = {});

NodeId collective(Graph& graph, CollectiveOp attributes, NodeId x, SourceLocation where = {});
NodeId axis_index(Graph& graph, MeshAxis axis, SourceLocation where = {});

/// `result` is the type that the function gives.
NodeId custom_call(Graph& graph, CustomCallOp attributes, std::vector<NodeId> operands,
                   const TensorType& result, SourceLocation where = {});

/// Adds a copy of `node` (of another graph) on new operands, with its type inferred again.
NodeId rebuild(Graph& graph, const Node& node, std::vector<NodeId> operands);

}  // namespace braze::build
