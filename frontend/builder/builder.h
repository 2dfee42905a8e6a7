// builder.h — what the Tensor functions share: the graph under construction, places, conversions.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "braze/tensor.h"
#include "ir/graph/build.h"
#include "ir/graph/graph.h"
#include "ir/graph/infer.h"
#include "ir/graph/shards.h"

namespace braze {

namespace codes {
inline constexpr Code kNoTensor{
    "no-tensor", ErrorKind::InvalidArgument,
    "An empty Tensor, or a call that needs a graph under construction."};
inline constexpr Code kForeignTensor{"foreign-tensor", ErrorKind::InvalidArgument,
                                     "A Tensor is used outside the function that it belongs to."};
inline constexpr Code kBadNumber{"bad-number", ErrorKind::InvalidArgument,
                                 "The dtype of an operand cannot represent a number."};
inline constexpr Code kBadDim{"bad-dim", ErrorKind::InvalidArgument,
                              "An extent or its declaration is malformed."};
inline constexpr Code kBadAxis{"bad-axis", ErrorKind::InvalidArgument,
                               "An axis does not exist or is named twice."};
inline constexpr Code kBadName{"bad-name", ErrorKind::InvalidArgument,
                               "A named parameter is missing, double or badly named."};
inline constexpr Code kBadDonation{"bad-donation", ErrorKind::InvalidArgument,
                                   "A donated argument cannot become a result."};
inline constexpr Code kNotDifferentiable{
    "not-differentiable", ErrorKind::InvalidArgument,
    "The gradient of this value, or with respect to it, is undefined."};
}  // namespace codes

namespace detail {

/// The mesh that a function under construction will run over.
struct TracedMesh {
  std::vector<MeshAxis> axes;
  /// For each argument the axes along which the devices have values of their own.
  std::vector<std::vector<MeshAxis>> varying;
  /// The axis over which losses are averaged (data_parallel); empty: none.
  std::string averaged = {};
};

/// The graph under construction.
struct Builder {
  explicit Builder(std::string name) : graph(std::move(name)), varying(graph) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Graph graph;
  VaryingAxes varying;             // of the graph so far
  std::optional<TracedMesh> mesh;  // none: for one device
  /// (value, argument): `update` was called on them.
  std::vector<std::pair<NodeId, NodeId>> updates;
  /// (argument, dtype, line): a number that took the dtype of a Tensor.
  std::vector<std::tuple<NodeId, DType, SourceLocation>> number_uses;
};

struct Handle {
  std::shared_ptr<Builder> builder;
  NodeId node;
  bool is_number = false;
};

inline NodeId node_of(const Tensor& tensor) { return NodeId(tensor.id()); }

/// Makes `builder` the one that values without operands (`arange`, `full` ...) belong to, in this
/// thread, for a scope.
class BuilderScope {
 public:
  explicit BuilderScope(std::shared_ptr<Builder> builder);
  ~BuilderScope();
  BuilderScope(const BuilderScope&) = delete;
  BuilderScope& operator=(const BuilderScope&) = delete;

 private:
  std::shared_ptr<Builder> outer_;
};

/// The innermost scope's builder; InvalidArgument outside of any.
const std::shared_ptr<Builder>& current_builder(SourceLocation where);

/// While one exists, everything built in this thread is attributed to the place of the outermost
/// one: a function made of other functions opens one with its caller's line, and with its own name
/// if errors in those are to name it.
class Place {
 public:
  explicit Place(SourceLocation where, const char* function = nullptr);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  bool outermost_;
};

/// `where`, or the outermost Place.
SourceLocation place(Where where);
/// What errors in `op` name: the function of the outermost Place, if it gave its name, else `op`.
const char* called(const char* op);

/// Letters, digits, '_', and dots between them.
bool is_name(std::string_view text);

}  // namespace detail

Expr to_expr(const Dim& dim);
Dim to_dim(const Expr& expr);
Shape to_shape(const Dims& dims);
Dims to_dims(const Shape& shape);
std::vector<Expr> to_exprs(const Dims& dims);

namespace detail {

/// The axis counted from the front. InvalidArgument names `op` if it does not exist.
int64_t to_axis(int64_t axis, size_t rank, const char* op, SourceLocation where);
/// The same for several, sorted; all axes if none are given.
std::vector<int64_t> to_axes(const Axes& axes, size_t rank, const char* op, SourceLocation where);

/// The common builder of tensors. InvalidArgument if one is empty or belongs elsewhere.
const std::shared_ptr<Builder>& builder_of(std::span<const Tensor* const> tensors, const char* op,
                                           SourceLocation where);
inline const std::shared_ptr<Builder>& builder_of(const Tensor& tensor, const char* op,
                                                  SourceLocation where) {
  const Tensor* one = &tensor;
  return builder_of({&one, 1}, op, where);
}

/// The bits of a number (an Operand that is neither Tensor nor Array), rounded if `dtype` is
/// floating; nullopt if it is not a value of `dtype`.
std::optional<uint64_t> number_bits(const Operand& number, DType dtype);
/// Throws for such a number. `subject` is what the message begins with, `op` the node.
[[noreturn]] void fail_number(const Operand& number, DType dtype, std::string_view subject,
                              const char* op, SourceLocation where);

/// The operand as a Tensor; numbers take `dtype`, and must be a value of it. Those that are known
/// only when the function runs are converted, where their kind has values of `dtype`.
Tensor as_tensor(const Operand& operand, const std::shared_ptr<Builder>& builder, DType dtype,
                 const char* op, SourceLocation where);

/// The shape that operands of an elementwise op broadcast to. InvalidArgument shows their types.
Shape broadcast_shape(const Graph& graph, std::span<const NodeId> operands, const char* op,
                      SourceLocation where);

/// One row of the elementwise table: numbers become constants, shapes broadcast, types are checked.
Tensor elementwise(ElementwiseOp op, std::span<const Operand> operands, Where where);

inline Tensor wrap(const std::shared_ptr<Builder>& builder, NodeId node) {
  return Tensor(Handle{builder, node});
}
inline const TensorType& type_of(const Tensor& tensor) {
  return tensor.builder()->graph[node_of(tensor)].type;
}

}  // namespace detail
}  // namespace braze
