// node.h — a node of an ONNX graph as the function that builds it sees it: operands, attributes,
// and what is known about them.
//
// A function throws an Error if something does not fit. The importer adds the name of the node.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "braze/elementwise.h"
#include "braze/tensor.h"
#include "frontend/models/known.h"
#include "frontend/models/onnx/file.h"
#include "frontend/models/onnx/types.h"

namespace braze {

namespace codes {
inline constexpr Code kOnnxNode{"onnx-node", ErrorKind::Unsupported,
                                "A node of a model that cannot be imported."};
inline constexpr Code kOnnxUnknown{
    "onnx-unknown", ErrorKind::Unsupported,
    "A node of a model needs a value at import, and the value is computed from inputs."};
}  // namespace codes

namespace onnx {

/// A value of the model. `bits` is 4 or 2 for integers of that many bits, and else 0. Each of them
/// is kept in a byte of its own.
struct Value {
  Tensor tensor;
  int bits = 0;
  bool failed = false;  ///< it depends on a node that could not be imported
};
using Tensors = std::vector<Tensor>;

/// What the building of nodes needs from the importer.
class Surroundings {
 public:
  virtual KnownValues& known() = 0;
  /// A constant of the model. If it is large it becomes a weight, else a constant of the graph.
  virtual Value weight(const TensorData& data) = 0;
  /// The results of a graph within a node. That graph can use the values around the node.
  virtual std::vector<Value> inlined(const GraphData& graph) = 0;

 protected:
  ~Surroundings() = default;
};

class OnnxNode {
 public:
  OnnxNode(Surroundings& around, const NodeData& data, int64_t opset, std::vector<Value> inputs)
      : around_(around), data_(data), opset_(opset), inputs_(std::move(inputs)) {}

  const NodeData& data() const { return data_; }
  int64_t opset() const { return opset_; }  ///< that of its domain

  // Operands.

  size_t count() const { return inputs_.size(); }
  bool has(size_t i) const {
    used_.insert(i);
    return i < inputs_.size() && inputs_[i].tensor.valid();
  }
  /// Operand `i`. It throws if that is omitted.
  const Tensor& operator[](size_t i) const;
  int bits(size_t i) const { return has(i) ? inputs_[i].bits : 0; }
  /// All operands. It throws if one of them is omitted.
  Tensors all() const;
  size_t outputs() const { return data_.outputs.size(); }
  /// Counts operand `i` as used, because it does not affect the values.
  void ignore(size_t i) const { used_.insert(i); }
  /// The operands that no function has asked for. The importer refuses a node that has any.
  std::vector<size_t> unused() const;
  /// Whether output `i` exists and may be read.
  bool wants(size_t i) const { return i < data_.outputs.size() && !data_.outputs[i].empty(); }

  // Known values of operand `i`. These throw if it is not known. The message calls it `what`.

  /// Whole numbers that may depend on sizes.
  Dims sizes(size_t i, std::string_view what) const;
  /// Whole numbers that do not depend on sizes.
  std::vector<int64_t> numbers(size_t i, std::string_view what) const;
  int64_t number(size_t i, std::string_view what) const;
  std::shared_ptr<const HostTensor> constant(size_t i, std::string_view what) const;
  /// The only element of a constant.
  double real(size_t i, std::string_view what) const;
  std::optional<std::vector<Expr>> try_integers(const Tensor& tensor) const;
  std::shared_ptr<const HostTensor> try_constant(const Tensor& tensor) const;

  // Attributes. The importer refuses a node if no function has asked for one of its attributes
  // (`unread`).

  bool has_attribute(std::string_view name) const { return find(name, nullptr) != nullptr; }
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  double real(std::string_view name, std::optional<double> otherwise = {}) const;
  std::string text(std::string_view name, std::optional<std::string> otherwise = {}) const;
  std::vector<int64_t> integers(std::string_view name,
                                std::optional<std::vector<int64_t>> otherwise = {}) const;
  std::vector<double> reals(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  const TensorData* tensor(std::string_view name) const;
  const GraphData* graph(std::string_view name) const;
  /// The element type whose number an attribute gives. It throws if Braze does not have the type.
  ElementType type(std::string_view name, std::optional<int32_t> otherwise = {}) const;
  /// Counts an attribute as read, because it does not affect the values.
  void ignore(std::string_view name) const { read_.insert(std::string(name)); }
  std::vector<std::string> unread() const;

  /// The axes that an attribute gives, or operand `i` in newer versions. It is nullopt if there is
  /// neither.
  std::optional<std::vector<int64_t>> axes(size_t i) const;
  /// `axis` counted from the front. It throws if a tensor of this rank does not have it.
  int64_t axis(int64_t axis, size_t rank) const;
  std::vector<int64_t> axes_of(const std::vector<int64_t>& axes, size_t rank) const;

  [[noreturn]] void refuse(std::string reason, std::string fix = {}) const;
  /// Counts memory for constants that are not in the file. It throws if a file of this size must
  /// not take so much.
  void take_memory(int64_t bytes) const;
  Surroundings& around() const { return around_; }
  /// Says that the results are integers of this many bits.
  void set_bits(int bits) { result_bits_ = bits; }
  int result_bits() const { return result_bits_; }

 private:
  const Attribute* find(std::string_view name, const Attribute::Kind* kind) const;
  const Attribute* find(std::string_view name, Attribute::Kind kind) const {
    return find(name, &kind);
  }
  [[noreturn]] void fail_unknown(size_t i, std::string_view what) const;
  [[noreturn]] void fail_missing(std::string_view attribute) const;

  Surroundings& around_;
  const NodeData& data_;
  int64_t opset_;
  std::vector<Value> inputs_;
  int result_bits_ = 0;
  mutable std::set<std::string, std::less<>> read_;
  mutable std::set<size_t> used_;
};

/// How an operator is built in the versions `since` to `until` of its operator set.
struct OpRow {
  using One = Tensor (*)(OnnxNode&);
  using Several = Tensors (*)(OnnxNode&);

  template <class Build>
  OpRow(const char* op_name, const Build& build, int from = 1, int to = kNewest)
      : name(op_name), since(from), until(to) {
    if constexpr (std::is_same_v<decltype(build(std::declval<OnnxNode&>())), Tensor>)
      one = build;
    else
      several = build;
  }

  Tensors operator()(OnnxNode& node) const { return one ? Tensors{one(node)} : several(node); }

  static constexpr int kNewest = 1000;
  const char* name;
  int since, until;
  One one = nullptr;
  Several several = nullptr;
};

// The rows are grouped by subject, and each subject has a file.
using Rows = std::vector<OpRow>;
const Rows& elementwise_rows();
const Rows& movement_rows();
const Rows& indexing_rows();
const Rows& reduction_rows();
const Rows& product_rows();
const Rows& layer_rows();
const Rows& window_rows();
const Rows& attention_rows();
const Rows& quantization_rows();
const Rows& recurrent_rows();
const Rows& value_rows();
const Rows& microsoft_rows();

/// The row of an operator. If there is none it is null, and `other` says whether another version of
/// the operator has a row.
const OpRow* find_row(std::string_view domain, std::string_view op, int64_t opset,
                      bool* other = nullptr);

/// Refuses a node of ONNX's own domain if its operator does not have one of the node's attributes
/// or operands in the node's opset.
void check_node_version(const OnnxNode& node);

/// Every operator that has a row ("Add", "com.microsoft:FastGelu"), sorted, with its versions.
std::vector<std::pair<std::string, std::string>> imported_ops();

/// The result of a node whose operator is a function of the host program: a call of `function`,
/// with a result of this type. The attributes of the call are those of the node, as a JSON object.
Tensors called(OnnxNode& node, const std::string& function, const TensorType& result);

// What several rows use.

/// The convolution of x [n, c, spatial..] and filters [f, c / group, taps..] that the attributes
/// of Conv describe.
Tensor convolved(const OnnxNode& node, const Tensor& x, const Tensor& filters);
/// x in the type in which it is computed. For floats shorter than f32, that is f32.
Tensor widened(const Tensor& x);
/// The shape to which both are broadcast, by NumPy's rule.
Dims broadcast_dims(const Dims& a, const Dims& b, const OnnxNode& node);
/// Whether two shapes can be equal. Extents that are not known yet can be any.
bool may_equal(const Dims& a, const Dims& b);
/// A shape as messages write it.
std::string text_of(const Dims& shape);
/// `indices` counted from the start. Negative ones count from the end.
Tensor from_start(const Tensor& indices, const Dim& extent);

}  // namespace onnx
}  // namespace braze
