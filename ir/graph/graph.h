// graph.h — Graph IR: what is computed, as dataflow over tensors, without loops.
//
// A Graph owns its nodes in a vector; a node's operands come before it. Nodes are immutable and
// hash-consed: adding a node that exists (same op, attributes, operands and type) returns the one
// there, and source locations do not take part in that comparison. Passes are functions from Graph
// to Graph; copying only what the outputs reach removes dead code.
//
// Invariants (verify.h checks them all): operands precede users; every type is what infer.h says;
// input names are unique; extents are >= 0; an axis of the mesh has one size; an output that
// updates an input has that input's type, and no input is updated twice.
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
#include "ir/ops/elementwise.h"
#include "ir/ops/monoid.h"
#include "ir/support/ids.h"
#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze {

using NodeId = Id<struct NodeTag>;

// Attributes, one struct per op (family). Result shapes that operands do not determine stand in
// the node's type.

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
/// One row of elementwise.def on operands of equal shape.
struct MapOp {
  ElementwiseOp op;
  friend bool operator==(const MapOp&, const MapOp&) = default;
};
/// Operand axis i becomes result axis `axes[i]` (increasing); other result axes are new, and an
/// operand extent of 1 may become any extent.
struct BroadcastOp {
  std::vector<int64_t> axes;
  friend bool operator==(const BroadcastOp&, const BroadcastOp&) = default;
};
/// Same elements in row-major order.
struct ReshapeOp {
  friend bool operator==(const ReshapeOp&, const ReshapeOp&) = default;
};
/// Result axis i is operand axis `permutation[i]`.
struct TransposeOp {
  std::vector<int64_t> permutation;
  friend bool operator==(const TransposeOp&, const TransposeOp&) = default;
};
/// Result element i is operand element `start + i * stride`; the extent is
/// ceildiv(limit - start, stride). 0 <= start <= limit <= extent, stride >= 1.
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
/// Along each of `axes` (increasing) the element at index d is operand element e with
/// e * gap = d * stride + k * dilation - low, where k is the index along the axis `taps` names,
/// which is none of `axes`; operand 1 (rank 0) stands where no such e exists. Result extents of
/// `axes` are in the type. For a given k this is one to one, so that the transposed op is one, too:
/// stride and gap change places, and dilation and low their signs.
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
/// The value of an expression over the sizes: an i64 scalar.
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
/// scatter(x, indices, updates): x, with every slice of `updates` (shaped as gather's result)
/// combined into what is at its index, in increasing row-major order of `indices`. Without a
/// monoid a slice takes the place of what is there, so that the last one stays.
struct ScatterOp {
  std::optional<Monoid> monoid = Monoid::Sum;
  int64_t axis = 0;
  friend bool operator==(const ScatterOp&, const ScatterOp&) = default;
};
/// Combines along `axes` (increasing), which disappear.
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
/// Every element is combined with all before it along `axis`, itself included, or with `exclusive`
/// not: the first is then the monoid's identity. `reverse`: with all behind it.
struct ScanOp {
  Monoid monoid;
  int64_t axis = 0;
  bool reverse = false, exclusive = false;
  friend bool operator==(const ScanOp&, const ScanOp&) = default;
};
/// Sum of products over pairs of contracted axes. Result axes: batch pairs, then the free axes of
/// the left, then of the right operand. 16-bit floats accumulate in f32 and round to the node's
/// dtype, which is the operands' or f32.
struct DotOp {
  std::vector<int64_t> batch_left, batch_right, contract_left, contract_right;
  bool tf32 = false;
  friend bool operator==(const DotOp&, const DotOp&) = default;
};
/// Philox4x32-10 bits: element i (row-major) of the u32 result is word i % 4 of the block with
/// counter i / 4 under the key (operand 0: u32[2]).
struct RandomBitsOp {
  friend bool operator==(const RandomBitsOp&, const RandomBitsOp&) = default;
};
/// The value of operand 0, computed after all other operands exist, of which nothing is read. A
/// node made from it is not the same as a node made from operand 0, and is computed later.
struct BarrierOp {
  /// Between the other operands and operand 0 stands what a gradient computes again instead of
  /// keeping it. Only graphs under construction have this.
  bool recompute = false;
  friend bool operator==(const BarrierOp&, const BarrierOp&) = default;
};

/// What the devices along an axis of a mesh do together.
struct CollectiveOp {
  CollectiveKind kind = CollectiveKind::AllReduce;
  MeshAxis axis = {};
  Monoid monoid = Monoid::Sum;  ///< of all_reduce and reduce_scatter
  int64_t offset = 0;           ///< root of broadcast_over, shift of permute: both below the size
  friend bool operator==(const CollectiveOp&, const CollectiveOp&) = default;
};
/// The place of the device along an axis of the mesh: an i64 scalar.
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
                        ReduceOp, ArgReduceOp, ScanOp, DotOp, RandomBitsOp, BarrierOp, CollectiveOp,
                        AxisIndexOp, ConstrainOp>;

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

  /// Adds a node whose type is already inferred, or returns the equal one that exists. Inputs are
  /// always new. build.h has a function per op that infers and checks.
  NodeId add(Node node);
  void set_outputs(std::vector<GraphOutput> outputs) { outputs_ = std::move(outputs); }
  void set_label(NodeId id, std::string label) { nodes_[id.index].label = std::move(label); }

  std::optional<NodeId> find_input(const std::string& name) const;

  /// The symbols in types and attributes, each once, by name.
  std::vector<Expr> symbols() const;
  /// The axes of the mesh that inputs and nodes name, each once, by name.
  std::vector<MeshAxis> mesh_axes() const;
  /// A hash of what is computed: ops, types, inputs, outputs; not of locations and labels.
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
