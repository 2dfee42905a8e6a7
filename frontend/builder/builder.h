// builder.h — what the Tensor functions share: the graph under construction, places, conversions.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "braze/custom_call.h"
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

/// The mesh over which a function under construction will run.
struct TracedMesh {
  std::vector<MeshAxis> axes;
  /// For each argument: the axes of the mesh along which the devices hold different values.
  std::vector<std::vector<MeshAxis>> varying;
  /// The axis over which losses are averaged (data_parallel). It is empty if there is none.
  std::string averaged = {};
};

/// The graph under construction.
struct Builder {
  explicit Builder(std::string name) : graph(std::move(name)), varying(graph) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Graph graph;
  VaryingAxes varying;             // for all nodes that the graph has so far
  std::optional<TracedMesh> mesh;  // nullopt if the function runs on one device
  /// The pairs (value, argument) on which `update` was called.
  std::vector<std::pair<NodeId, NodeId>> updates;
  /// The gradients of custom calls that are like these, in the order in which they were given.
  std::vector<std::pair<CustomCallOp, CustomGradient>> custom_gradients;
  /// (argument, dtype, line): this number argument took the dtype of a Tensor at this line.
  std::vector<std::tuple<NodeId, DType, SourceLocation>> number_uses;
};

struct Handle {
  std::shared_ptr<Builder> builder;
  NodeId node;
  bool is_number = false;
};

inline NodeId node_of(const Tensor& tensor) { return NodeId(tensor.id()); }

/// For a scope and in this thread, values without operands (`arange`, `full` and so on) belong to
/// `builder`.
class BuilderScope {
 public:
  explicit BuilderScope(std::shared_ptr<Builder> builder);
  ~BuilderScope();
  BuilderScope(const BuilderScope&) = delete;
  BuilderScope& operator=(const BuilderScope&) = delete;

 private:
  std::shared_ptr<Builder> outer_;
};

/// The builder of the innermost scope. It throws InvalidArgument if there is no scope.
const std::shared_ptr<Builder>& current_builder(SourceLocation where);

/// While a Place exists, every node that this thread builds has the source line of the outermost
/// Place. A function that is made of other functions opens a Place with its caller's line. It also
/// gives its own name if errors in those functions are to name it.
class Place {
 public:
  explicit Place(SourceLocation where, const char* function = nullptr);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  bool outermost_;
};

/// The line of the outermost Place, or `where` if there is none.
SourceLocation place(Where where);
/// The function that errors in `op` name: that of the outermost Place if it gave a name, else `op`.
const char* called(const char* op);

/// True if `text` consists of letters, digits and '_', with dots between them.
bool is_name(std::string_view text);

}  // namespace detail

Expr to_expr(const Dim& dim);
Dim to_dim(const Expr& expr);
Shape to_shape(const Dims& dims);
Dims to_dims(const Shape& shape);
std::vector<Expr> to_exprs(const Dims& dims);

namespace detail {

/// The axis, counted from the front. If it does not exist, it throws InvalidArgument, which names
/// `op`.
int64_t to_axis(int64_t axis, size_t rank, const char* op, SourceLocation where);
/// The same for several axes. The result is sorted. If none are given, it holds all axes.
std::vector<int64_t> to_axes(const Axes& axes, size_t rank, const char* op, SourceLocation where);

/// The builder that all tensors have in common. It throws InvalidArgument if a tensor is empty or
/// belongs to another builder.
const std::shared_ptr<Builder>& builder_of(std::span<const Tensor* const> tensors, const char* op,
                                           SourceLocation where);
inline const std::shared_ptr<Builder>& builder_of(const Tensor& tensor, const char* op,
                                                  SourceLocation where) {
  const Tensor* one = &tensor;
  return builder_of({&one, 1}, op, where);
}

/// The bits of a number (an Operand that is neither Tensor nor Array) in `dtype`. The number is
/// rounded if `dtype` is floating. The result is nullopt if the number is not a value of `dtype`.
std::optional<uint64_t> number_bits(const Operand& number, DType dtype);
/// Throws the error for a number without such bits. The message begins with `subject`, and `op` is
/// the function that the number was passed to.
[[noreturn]] void fail_number(const Operand& number, DType dtype, std::string_view subject,
                              const char* op, SourceLocation where);

/// The operand as a Tensor. A number takes `dtype`, and must be a value of it. A number that is
/// known only when the function runs is converted if its kind of number can become `dtype`.
Tensor as_tensor(const Operand& operand, const std::shared_ptr<Builder>& builder, DType dtype,
                 const char* op, SourceLocation where);

/// The shape to which operands of an elementwise op broadcast. If there is none, it throws
/// InvalidArgument, which shows the operands' types.
Shape broadcast_shape(const Graph& graph, std::span<const NodeId> operands, const char* op,
                      SourceLocation where);

/// The op of one row of the elementwise table. Numbers become constants, shapes are broadcast, and
/// types are checked.
Tensor elementwise(ElementwiseOp op, std::span<const Operand> operands, Where where);

/// What combines an element with the updates that go there. It is nullopt for Scatter::Set.
inline std::optional<Monoid> monoid_of(Scatter how) {
  constexpr std::optional<Monoid> kMonoids[] = {
      std::nullopt, Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min, Monoid::And, Monoid::Or};
  return kMonoids[static_cast<size_t>(how)];
}

inline Tensor wrap(const std::shared_ptr<Builder>& builder, NodeId node) {
  return Tensor(Handle{builder, node});
}
inline const TensorType& type_of(const Tensor& tensor) {
  return tensor.builder()->graph[node_of(tensor)].type;
}

}  // namespace detail
}  // namespace braze
