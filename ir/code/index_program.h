// index_program.h — compiles index expressions, so that they can be evaluated for whole arrays.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "ir/code/code.h"

namespace braze {

/// What an index expression of an operation can read.
struct IndexContext {
  ValueType type;     ///< of the operation; position symbols refer to it
  char letter = 'd';  ///< of the position symbols: 'd', or 'e' beside `lane`
  /// The slot of a uniform symbol.
  std::function<size_t(const std::string&)> slot;
  /// The array of a value ("%name") and its type.
  std::function<std::pair<const std::vector<uint64_t>*, ValueType>(const std::string&)> value;
};

/// The row-major number of an element of a register array, and the element with a number.
int64_t flatten(const std::vector<int64_t>& at, const std::vector<int64_t>& extents);
std::vector<int64_t> unflatten(int64_t index, const std::vector<int64_t>& extents);
/// The number of the element that a broadcast from an array of extents `from` reads for `at`.
int64_t broadcast_index(const std::vector<int64_t>& from, std::vector<int64_t> at);

/// For each element of `to`, lanes innermost, the element of `from` that it reads in a broadcast;
/// empty if each element reads the element with its own number.
std::vector<uint32_t> broadcast_map(const ValueType& from, const ValueType& to);

/// Calls `use` with a function of two numbers that is an Expr's operation. It wraps, and a divisor
/// below 1 gives 0. Which operation it is, is decided once for a whole loop over numbers.
template <class Use>
auto with_operation(Expr::Kind kind, const Use& use) {
  const auto wrap = [](uint64_t x) { return static_cast<int64_t>(x); };
  const auto divide = [](int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); };
  switch (kind) {
    case Expr::Kind::Sum:
      return use([=](int64_t a, int64_t b) { return wrap(uint64_t(a) + uint64_t(b)); });
    case Expr::Kind::Product:
      return use([=](int64_t a, int64_t b) { return wrap(uint64_t(a) * uint64_t(b)); });
    case Expr::Kind::FloorDiv:
      return use([=](int64_t a, int64_t b) { return b < 1 ? 0 : divide(a, b); });
    case Expr::Kind::Mod:
      return use([=](int64_t a, int64_t b) { return b < 1 ? 0 : a - divide(a, b) * b; });
    case Expr::Kind::Min:
      return use([](int64_t a, int64_t b) { return std::min(a, b); });
    default:
      return use([](int64_t a, int64_t b) { return std::max(a, b); });
  }
}
/// The same for functions of one number, where the second operand is `b`. Divisors are mostly
/// powers of two, and a division takes much longer than a shift.
template <class Use>
void with_operation_by(Expr::Kind kind, int64_t b, const Use& use) {
  if (kind == Expr::Kind::FloorDiv && b > 0 && std::has_single_bit(uint64_t(b)))
    return use([shift = std::countr_zero(uint64_t(b))](int64_t a) { return a >> shift; });
  if (kind == Expr::Kind::Mod && b > 0 && std::has_single_bit(uint64_t(b)))
    return use([mask = b - 1](int64_t a) { return a & mask; });
  with_operation(kind, [&](auto op) { use([=](int64_t a) { return op(a, b); }); });
}
/// Whether a name is a position symbol: "<letter><axis>", or "lane" if the letter is 'e'.
bool is_position_symbol(const std::string& name, char letter);
/// The position along `axis` of every element of `type`. The axis after the last one is the lane.
std::vector<int64_t> element_positions(const ValueType& type, size_t axis);

/// For each element of `to`, the element of `from` that it reads in a transpose or slice.
std::vector<uint32_t> part_map(const MovementOp& view, const ValueType& from, const ValueType& to);

/// A compiled expression. Parts that depend only on positions are computed when it is compiled.
class IndexProgram {
 public:
  IndexProgram() = default;
  IndexProgram(const Expr& e, const IndexContext& context);

  /// True if all elements have one value.
  bool uniform() const { return nodes_.back().form == Form::Uniform; }
  int64_t scalar(const std::vector<int64_t>& symbols) const;
  /// The value of every element; the result lives until the next call.
  const std::vector<int64_t>& array(const std::vector<int64_t>& symbols) const;

 private:
  enum class Form : uint8_t { Uniform, Table, Array };
  struct Node {
    Expr::Kind kind = Expr::Kind::Constant;
    Form form = Form::Uniform;
    int64_t constant = 0;
    size_t slot = 0;
    const std::vector<uint64_t>* value = nullptr;  // of a gather: the array of indices
    DType dtype = DType::I64;
    std::vector<uint32_t> map;
    std::vector<size_t> operands;
    mutable int64_t scalar = 0;
    mutable std::vector<int64_t> table;
  };
  size_t add(const Expr& e, const IndexContext& context);
  void evaluate(const Node& node, const std::vector<int64_t>& symbols) const;

  size_t count_ = 1;
  std::vector<Node> nodes_;  // operands before their users
};

}  // namespace braze
