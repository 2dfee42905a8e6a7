// node.h — an operation of StableHLO as the function that builds it sees it: operands, attributes,
// regions, and what is known about them.
//
// A function throws an Error if something does not fit. The importer adds the name of the
// operation.
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

/// Applies a function of scalars, which is a region, to each element of tensors. The tensors are
/// broadcast.
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
  /// Operand `i`. It throws if there is none.
  const Tensor& operator[](size_t i) const;
  Tensors operands(size_t begin, size_t end) const;
  /// The type of result `i`.
  const TensorType& result(size_t i = 0) const;

  /// Region `i`. It throws if there is none.
  const Block& region(size_t i) const;
  /// Applies a function of scalars with `results` results to each element of tensors.
  Tensors apply(const Block& block, const Tensors& arguments, size_t results) const;

  // Attributes. The importer refuses an operation if no function has asked for one of its
  // attributes (`unread`). Attributes of other dialects, whose names begin with the dialect's, are
  // left out.

  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  bool flag(std::string_view name, bool otherwise) const;
  /// The generic form has the attribute in the dictionary `within`, so it is searched too.
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
  /// Whether every element of x is known to have these bits.
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

/// The row of an operation, which says how it is built.
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

// The rows are grouped by subject, and each subject has a file.
using Rows = std::vector<Row>;
const Rows& elementwise_rows();  ///< functions of scalars may have only these
const Rows& movement_rows();
const Rows& indexing_rows();
const Rows& reduction_rows();
const Rows& product_rows();

/// The row of an operation. It is null if there is none.
const Row* find_row(std::string_view name);
bool is_elementwise(const Row& row);
/// Every operation that has a row, sorted.
std::vector<std::string> imported_ops();

// What several rows use.

/// The monoid that a region of two scalars computes. It is nullopt if there is none.
std::optional<Monoid> monoid_of(const Block& block);
/// A tensor of rank 0.
Tensor scalar_bits(DType dtype, uint64_t bits);
Tensor scalar(DType dtype, double value);
Dims to_extents(const std::vector<int64_t>& list);
/// The extent of an axis of x. It must be a number.
int64_t extent(const Tensor& x, size_t axis);
std::vector<int64_t> extents(const Tensor& x);
/// Floats as whole numbers whose order is -NaN < -inf < ... < -0 < 0 < ... < inf < NaN.
Tensor total_order(const Tensor& x);
/// The reduction of x by a monoid.
Tensor reduced(Monoid monoid, const Tensor& x, std::vector<int64_t> axes);
Tensor combined(Monoid monoid, const Tensor& x, const Tensor& y);

}  // namespace stablehlo
}  // namespace braze
