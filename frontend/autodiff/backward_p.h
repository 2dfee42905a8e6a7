// backward_p.h — the gradients of one node's operands, from the gradient of its result.
//
// `operand_gradients` calls the `backward` of the node's op. There is one for each kind of op;
// movement.cpp, reductions.cpp, gather_scatter.cpp, scans.cpp, dot.cpp and collectives.cpp hold
// those that take more than a line. gradient.cpp walks from node to node.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace braze::autodiff {

using Axes64 = std::vector<int64_t>;

inline size_t at(int64_t axis) { return static_cast<size_t>(axis); }
/// The axes of a tensor of this rank that are in neither list.
Axes64 other_axes(size_t rank, const Axes64& a, const Axes64& b = {});

/// A node whose operands get gradients, and shorthands for nodes that are added to its graph. They
/// get its source line.
struct Backward {
  Graph& graph;
  NodeId id;
  Node node;                        ///< a copy, because nodes move when others are added
  NodeId gradient;                  ///< of the node's result
  const std::vector<bool>& wanted;  ///< says of each operand whether its gradient is needed
  std::vector<NodeId> out;          ///< the gradient of each operand; empty if there is none

  SourceLocation where() const { return node.location; }
  const TensorType& type(NodeId x) const { return graph[x].type; }
  TensorType operand_type(size_t i) const { return type(node.operands[i]); }
  bool wants(size_t i) const { return wanted[i]; }

  NodeId scalar(DType dtype, double value);
  NodeId map(ElementwiseOp op, std::vector<NodeId> operands);
  NodeId convert(NodeId x, DType to);
  NodeId zeros(const TensorType& like);
  /// `x`, which was reduced along `axes`, broadcast along them again.
  NodeId spread(NodeId x, const Shape& shape, const Axes64& axes);
};

// Each sets those of `b.out` that are wanted, and may set others.

// Leaves, and ops that have no gradient.
inline void backward(Backward&, const InputOp&) {}
inline void backward(Backward&, const ConstantOp&) {}
inline void backward(Backward&, const IotaOp&) {}
inline void backward(Backward&, const SizeOp&) {}
inline void backward(Backward&, const ArgReduceOp&) {}
inline void backward(Backward&, const ArgSortOp&) {}
inline void backward(Backward&, const RandomBitsOp&) {}
inline void backward(Backward&, const AxisIndexOp&) {}

inline void backward(Backward& b, const BarrierOp&) { b.out[0] = b.gradient; }
// How a value is spread does not decide how its gradient is spread. The users of the gradient
// decide it.
inline void backward(Backward& b, const ConstrainOp&) { b.out[0] = b.gradient; }
/// Not to be called: the gradient of a custom call is a function of the user.
void backward(Backward& b, const CustomCallOp& op);

void backward(Backward& b, const MapOp& op);
void backward(Backward& b, const BroadcastOp& op);
void backward(Backward& b, const ReshapeOp& op);
void backward(Backward& b, const TransposeOp& op);
void backward(Backward& b, const ReverseOp& op);
void backward(Backward& b, const SliceOp& op);
void backward(Backward& b, const PadOp& op);
void backward(Backward& b, const WindowsOp& op);
void backward(Backward& b, const ConcatOp& op);
void backward(Backward& b, const GatherOp& op);
void backward(Backward& b, const ScatterOp& op);
void backward(Backward& b, const ReduceOp& op);
void backward(Backward& b, const ScanOp& op);
void backward(Backward& b, const DotOp& op);
void backward(Backward& b, const CollectiveOp& op);

/// The gradient of each operand of node `id`, whose result has the gradient `gradient`. An empty id
/// means that there is none. Only the gradients of `wanted` operands are needed.
std::vector<NodeId> operand_gradients(Graph& graph, NodeId id, NodeId gradient,
                                      const std::vector<bool>& wanted);

}  // namespace braze::autodiff
