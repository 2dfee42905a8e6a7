// index_program.h — compiles index expressions, so that they can be evaluated for whole arrays.
#pragma once

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

/// For each element of `to`, lanes innermost, the element of `from` that it reads in a broadcast;
/// empty if each element reads the element with its own number.
std::vector<uint32_t> broadcast_map(const ValueType& from, const ValueType& to);

/// The result of an Expr's operation on a and b. It wraps, and a divisor below 1 gives 0.
int64_t combine_indices(Expr::Kind kind, int64_t a, int64_t b);
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
