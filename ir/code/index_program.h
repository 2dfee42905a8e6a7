// index_program.h — index expressions and conditions compiled for evaluation over whole arrays.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/code/code.h"

namespace braze {

/// What an index expression of an operation reads, besides uniform symbols.
struct IndexContext {
  ValueType type;     ///< of the operation; position symbols refer to it
  char letter = 'd';  ///< of the position symbols: 'd', or 'e' beside `lane`
  /// The slot of a uniform symbol.
  std::function<size_t(const std::string&)> slot;
  /// The array of a value ("%name") and its type.
  std::function<std::pair<const std::vector<uint64_t>*, ValueType>(const std::string&)> value;
};

/// Elements of `to` that read which element of `from`, lanes innermost; empty if each its own.
std::vector<uint32_t> broadcast_map(const ValueType& from, const ValueType& to);

/// a op b for the operations of an Expr; wraps, and a divisor below 1 gives 0.
int64_t combine_indices(Expr::Kind kind, int64_t a, int64_t b);
/// True for "lane" beside `letter` 'e', and for "<letter><axis>".
bool is_position_symbol(const std::string& name, char letter);
/// The position along `axis` of every element of `type`; the axis behind the last is the lane.
std::vector<int64_t> element_positions(const ValueType& type, size_t axis);

/// Elements of `to` that read which element of `from`, for a transpose or slice.
std::vector<uint32_t> part_map(const ViewOp& view, const ValueType& from, const ValueType& to);

/// A compiled expression. What depends on positions alone is computed when it is compiled.
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
    const std::vector<uint64_t>* value = nullptr;  // a gather's index
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
