// graph.h — Graph IR: what is computed, as dataflow over tensors, without loops.
//
// A Graph owns its nodes in a vector; a node's operands come before it. Nodes are immutable and
// hash-consed: adding a node that exists already (with the same op, attributes, operands and type)
// returns the existing one. Source locations are not compared. A node with side effects is never
// equal to another. Passes are functions from Graph to
// Graph. They copy only nodes that the outputs reach, which removes dead code.
//
// Invariants (verify.h checks all of them): operands come before their users; every type is the one
// that infer.h derives; input names are unique; extents are >= 0; an axis of the mesh has the same
// size everywhere; an output that updates an input has that input's type, and no input is updated
// twice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "braze/error.h"
#include "braze/sharding.h"
#include "ir/ops/collective.h"
#include "ir/ops/combiner.h"
#include "ir/ops/custom_call.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/monoid.h"
#include "ir/support/ids.h"
#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze {

using NodeId = Id<struct NodeTag>;

// Attributes, in one struct for each op or family of ops. Result shapes that operands do not
// determine are in the node's type.

/// A parameter of the graph.
struct InputOp {
  std::string name;
  /// The axes of the mesh along which every device has a value of its own (shards.h).
  std::vector<MeshAxis> varying = {};
  friend bool operator==(const InputOp&, const InputOp&) = default;
};
/// A literal tensor of static shape. Scalars (rank 0) are broadcast where needed.
struct ConstantOp {
  std::shared_ptr<const HostTensor> value;
  friend bool operator==(const ConstantOp& a, const ConstantOp& b);
};
/// Applies one row of elementwise.def to operands of equal shape.
struct MapOp {
  ElementwiseOp op;
  friend bool operator==(const MapOp&, const MapOp&) = default;
};
/// Operand axis i becomes result axis `axes[i]`, in increasing order. The other axes of the result
/// are new, and an operand extent of 1 may become any extent.
struct BroadcastOp {
  std::vector<int64_t> axes;
  friend bool operator==(const BroadcastOp&, const BroadcastOp&) = default;
};
/// The same elements in row-major order.
struct ReshapeOp {
  friend bool operator==(const ReshapeOp&, const ReshapeOp&) = default;
};
/// Result axis i is operand axis `permutation[i]`.
struct TransposeOp {
  std::vector<int64_t> permutation;
  friend bool operator==(const TransposeOp&, const TransposeOp&) = default;
};
/// Along each axis, result element i is operand element `start + i * stride`. The extent of the
/// result is ceildiv(limit - start, stride), with 0 <= start <= limit <= extent and stride >= 1.
struct SliceOp {
  std::vector<Expr> starts, limits;
  std::vector<int64_t> strides;
  friend bool operator==(const SliceOp&, const SliceOp&) = default;
};
/// Operand 1 (rank 0) fills `low` places before, `high` after and `interior` between elements.
struct PadOp {
  std::vector<Expr> low, high;
  std::vector<int64_t> interior;
  friend bool operator==(const PadOp&, const PadOp&) = default;
};
/// Along each of `axes` (in increasing order) the element at index d is operand element e with
/// e * gap = d * stride + k * dilation - low. Here k is the index along the axis that `taps` names,
/// which is none of `axes`. If there is no such e, the element is operand 1 (rank 0). The result's
/// extents along `axes` are in the type. For a given k, this relation is one to one, so the
/// transposed op is a WindowsOp too: stride and gap change places, and dilation and low change
/// their signs.
struct WindowsOp {
  std::vector<int64_t> axes, taps;
  std::vector<int64_t> strides, dilations, gaps;  ///< stride and gap >= 1, dilation any
  std::vector<Expr> low;
  friend bool operator==(const WindowsOp&, const WindowsOp&) = default;
};
struct ConcatOp {
  int64_t axis;
  friend bool operator==(const ConcatOp&, const ConcatOp&) = default;
};
struct ReverseOp {
  std::vector<int64_t> axes;
  friend bool operator==(const ReverseOp&, const ReverseOp&) = default;
};
/// The index along `axis`, converted to the dtype.
struct IotaOp {
  int64_t axis;
  friend bool operator==(const IotaOp&, const IotaOp&) = default;
};
/// The value of an expression over the sizes, as an i64 scalar.
struct SizeOp {
  Expr value;
  friend bool operator==(const SizeOp&, const SizeOp&) = default;
};
/// gather(x, indices): result shape = x.shape[:axis] + indices.shape + x.shape[axis+1:], reading
/// x[..., indices[...], ...]. Indices are i32 or i64.
struct GatherOp {
  int64_t axis;
  friend bool operator==(const GatherOp&, const GatherOp&) = default;
};
/// scatter(x, indices, updates): x, where each slice of `updates` (which has the shape of gather's
/// result) is combined with the slice at its index, in increasing row-major order of `indices`.
/// Without a monoid a slice replaces the one at its index, so that the last one stays.
struct ScatterOp {
  std::optional<Monoid> monoid = Monoid::Sum;
  int64_t axis = 0;
  friend bool operator==(const ScatterOp&, const ScatterOp&) = default;
};
/// Combines elements along `axes` (in increasing order), which disappear.
struct ReduceOp {
  Monoid monoid;
  std::vector<int64_t> axes;
  friend bool operator==(const ReduceOp&, const ReduceOp&) = default;
};
/// The i64 index of the first greatest (or least) element along `axis`, which disappears; a NaN
/// counts as greatest (or least).
struct ArgReduceOp {
  bool is_max;
  int64_t axis;
  friend bool operator==(const ArgReduceOp&, const ArgReduceOp&) = default;
};
/// The i64 indices of the elements along `axis` in their order: the least first, or with
/// `descending` the greatest. Equal elements keep their order, -0 equals +0, and a NaN counts as
/// the greatest. The result's extent along `axis`, which is in the type, is the number of indices
/// that are wanted.
struct ArgSortOp {
  int64_t axis = 0;
  bool descending = false;
  friend bool operator==(const ArgSortOp&, const ArgSortOp&) = default;
};
/// Each result element combines the elements along `axis` up to its own, in the order of the scan.
/// With `exclusive`, its own is left out, and the first result is the identity. With `reverse`, the
/// order is from the last element to the first. An element is a tuple with a part of each operand;
/// these have one shape. The result is part `part` of the combined tuples, in the dtype of that
/// operand.
struct ScanOp {
  Combiner combiner;
  int64_t axis = 0;
  bool reverse = false, exclusive = false;
  int64_t part = 0;
  friend bool operator==(const ScanOp&, const ScanOp&) = default;
};
/// The sum of products over pairs of contracted axes. The axes of the result are the batch pairs,
/// then the free axes of the left operand, and then those of the right one. 16-bit floats are
/// accumulated in f32 and rounded to the node's dtype, which is that of the operands or f32.
struct DotOp {
  std::vector<int64_t> batch_left, batch_right, contract_left, contract_right;
  bool tf32 = false;
  friend bool operator==(const DotOp&, const DotOp&) = default;
};
/// Random bits by Philox4x32-10: element i (in row-major order) of the u32 result is word i % 4 of
/// the block with counter i / 4 under the key, which is operand 0 (u32[2]).
struct RandomBitsOp {
  friend bool operator==(const RandomBitsOp&, const RandomBitsOp&) = default;
};
/// The value of operand 0, computed after all other operands exist. These are not read. A node that
/// is made from the barrier is not the same as one that is made from operand 0, and is computed
/// later.
struct BarrierOp {
  /// A gradient computes the nodes between the other operands and operand 0 again, instead of
  /// keeping their values. Only graphs under construction have such barriers.
  bool recompute = false;
  friend bool operator==(const BarrierOp&, const BarrierOp&) = default;
};

/// A collective of the devices along an axis of a mesh.
struct CollectiveOp {
  CollectiveKind kind = CollectiveKind::AllReduce;
  MeshAxis axis = {};
  Monoid monoid = Monoid::Sum;  ///< of all_reduce and reduce_scatter
  int64_t offset = 0;  ///< root of broadcast_over, shift of permute; less than the axis's size
  friend bool operator==(const CollectiveOp&, const CollectiveOp&) = default;
};
/// The place of the device along an axis of the mesh, as an i64 scalar.
struct AxisIndexOp {
  MeshAxis axis = {};
  friend bool operator==(const AxisIndexOp&, const AxisIndexOp&) = default;
};

/// The value of operand 0, which is spread over a mesh in this way where the graph is distributed
/// (compiler/passes/distribute.h). On one device it says nothing. It has no sizes: one graph fits
/// meshes of any size.
struct ConstrainOp {
  Sharding sharding;
  friend bool operator==(const ConstrainOp&, const ConstrainOp&) = default;
};

using Op = std::variant<InputOp, ConstantOp, MapOp, BroadcastOp, ReshapeOp, TransposeOp, SliceOp,
                        PadOp, WindowsOp, ConcatOp, ReverseOp, IotaOp, SizeOp, GatherOp, ScatterOp,
                        ReduceOp, ArgReduceOp, ArgSortOp, ScanOp, DotOp, RandomBitsOp, BarrierOp,
                        CollectiveOp, AxisIndexOp, ConstrainOp, CustomCallOp>;

struct Node {
  Op op;
  std::vector<NodeId> operands;
  TensorType type;
  SourceLocation location;
  std::string label;  ///< the user's name for the value, if any; no part of its identity

  template <class T>
  const T* as() const {
    return std::get_if<T>(&op);
  }
};

/// Whether the node must be computed exactly once each time the graph runs, needed or not.
bool has_side_effects(const Node& node);
/// "scatter_add", "scatter_set" ...
std::string_view scatter_name(std::optional<Monoid> monoid);
/// "add", "reduce", "dot" ...: the op's name in text.
std::string_view op_name(const Op& op);

struct GraphOutput {
  NodeId node;
  std::string name;
  /// The position in `inputs()` of the input whose memory this output takes over: the caller's
  /// argument is donated and replaced by the output.
  std::optional<uint32_t> updates;
};

class Graph {
 public:
  explicit Graph(std::string name = "main") : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  size_t size() const { return nodes_.size(); }
  const Node& operator[](NodeId id) const { return nodes_[id.index]; }
  const std::vector<NodeId>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }

  /// Adds a node whose type is already inferred, or returns the equal one that exists. Inputs and
  /// nodes with side effects are always new. build.h has a function for each op, which infers the
  /// type and checks the operands.
  NodeId add(Node node);
  void set_outputs(std::vector<GraphOutput> outputs) { outputs_ = std::move(outputs); }
  void set_label(NodeId id, std::string label) { nodes_[id.index].label = std::move(label); }

  std::optional<NodeId> find_input(const std::string& name) const;

  /// The symbols in types and attributes, each once, ordered by name.
  std::vector<Expr> symbols() const;
  /// The axes of the mesh that inputs and nodes name, each once, ordered by name.
  std::vector<MeshAxis> mesh_axes() const;
  /// A hash of ops, types, inputs and outputs. Locations and labels do not change it.
  uint64_t hash() const;

 private:
  std::string name_;
  std::vector<Node> nodes_;
  std::vector<NodeId> inputs_;
  std::vector<GraphOutput> outputs_;
  std::unordered_multimap<uint64_t, NodeId> by_hash_;
  std::unordered_map<std::string, NodeId> input_by_name_;
};

}  // namespace braze
