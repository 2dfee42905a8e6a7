// node.h — an operation of StableHLO, in the form in which the function that builds it sees it:
// operands, attributes, regions, and what is known about them.
//
// Whatever does not fit throws an Error; the importer names the operation.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "braze/elementwise.h"
#include "braze/tensor.h"
#include "frontend/builder/builder.h"
#include "frontend/models/known.h"
#include "frontend/models/stablehlo/syntax.h"

namespace braze {

namespace codes {
inline constexpr Code kStablehloNode{"stablehlo-node", ErrorKind::Unsupported,
                                     "An operation of StableHLO that cannot be imported."};
}  // namespace codes

namespace stablehlo {

using Tensors = std::vector<Tensor>;

/// A function of scalars in a region, applied to each element of tensors that broadcast.
class Scalars {
 public:
  virtual Tensors operator()(const Block& block, const Tensors& arguments) = 0;

 protected:
  ~Scalars() = default;
};

class Node {
 public:
  Node(const Operation& operation, Tensors operands, KnownValues& known, Scalars& scalars)
      : operation_(operation), operands_(std::move(operands)), known_(known), scalars_(scalars) {}

  const Operation& operation() const { return operation_; }
  std::string_view name() const { return operation_.name; }

  size_t count() const { return operands_.size(); }
  /// Operand `i`; an error if there is none.
  const Tensor& operator[](size_t i) const;
  Tensors operands(size_t begin, size_t end) const;
  /// The type of result `i`.
  const TensorType& result(size_t i = 0) const;

  /// The region `i`, an error if there is none.
  const Block& region(size_t i) const;
  /// Applies a function of scalars with `results` results to each element of tensors.
  Tensors apply(const Block& block, const Tensors& arguments, size_t results) const;

  // Attributes. One that no function asks for is an error of the importer's (`unread`), unless it
  // is of another dialect, which has its name in front.

  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  bool flag(std::string_view name, bool otherwise) const;
  /// Also looks into the dictionary `within`, where the generic form has the attribute.
  std::vector<int64_t> integers(std::string_view name,
                                std::optional<std::vector<int64_t>> otherwise = {},
                                std::string_view within = {}) const;
  std::string word(std::string_view name, std::optional<std::string> otherwise = {}) const;
  const Attribute* find(std::string_view name) const;
  void ignore(std::string_view name) const { read_.insert(std::string(name)); }
  std::vector<std::string> unread() const;

  std::shared_ptr<const HostTensor> known(const Tensor& x) const {
    return known_.constant(detail::node_of(x));
  }
  /// Whether every element of x is known to be of these bits.
  bool is_all(const Tensor& x, uint64_t bits) const;

  [[noreturn]] void refuse(std::string reason) const;

 private:
  std::vector<int64_t> numbers(const Attribute& attribute, std::string_view name) const;

  const Operation& operation_;
  Tensors operands_;
  KnownValues& known_;
  Scalars& scalars_;
  mutable std::set<std::string, std::less<>> read_;
};

/// The row of an operation: how it is built.
struct Row {
  using One = Tensor (*)(Node&);
  using Several = Tensors (*)(Node&);

  template <class Build>
  Row(const char* op_name, const Build& build) : name(op_name) {
    if constexpr (std::is_same_v<decltype(build(std::declval<Node&>())), Tensor>)
      one = build;
    else
      several = build;
  }

  std::string_view name;
  One one = nullptr;
  Several several = nullptr;
};

// The rows by subject, with one file for each subject.
using Rows = std::vector<Row>;
const Rows& elementwise_rows();  ///< only these may occur in functions of scalars
const Rows& movement_rows();
const Rows& indexing_rows();
const Rows& reduction_rows();
const Rows& product_rows();

/// The row of an operation; null if there is none.
const Row* find_row(std::string_view name);
bool is_elementwise(const Row& row);
/// Every operation with a row, sorted.
std::vector<std::string> imported_ops();

// What rows share.

/// The monoid that a region of two scalars computes; nullopt for others.
std::optional<Monoid> monoid_of(const Block& block);
/// A tensor of rank 0.
Tensor scalar_bits(DType dtype, uint64_t bits);
Tensor scalar(DType dtype, double value);
Dims to_extents(const std::vector<int64_t>& list);
/// One extent of a shape whose extents are numbers.
int64_t extent(const Tensor& x, size_t axis);
std::vector<int64_t> extents(const Tensor& x);
/// Floats as whole numbers in the order -NaN < -inf < ... < -0 < 0 < ... < inf < NaN.
Tensor total_order(const Tensor& x);
/// Reduction by a monoid.
Tensor reduced(Monoid monoid, const Tensor& x, std::vector<int64_t> axes);
Tensor combined(Monoid monoid, const Tensor& x, const Tensor& y);

}  // namespace stablehlo
}  // namespace braze
