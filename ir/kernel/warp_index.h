// warp_index.h — evaluates index expressions for all threads of a warp and all elements at once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/code/code.h"

namespace braze {

constexpr size_t kWarpLanes = 32;
/// One number for each thread of a warp.
using Lanes = std::array<int64_t, kWarpLanes>;
/// The elements of a value in a warp, as bits: all threads of element 0, then of element 1, .. The
/// lanes of a vector are its innermost elements.
using WarpValue = std::vector<uint64_t>;

/// What an index expression can read besides its positions.
struct WarpScope {
  const std::vector<Lanes>* symbols = nullptr;
  const std::vector<WarpValue>* values = nullptr;
};

class WarpIndex {
 public:
  struct Symbol {
    size_t slot = 0;
    bool uniform = true;  ///< it is equal in all threads of a warp, and only Lanes[0] has it
  };
  struct Names {
    std::function<Symbol(const std::string&)> symbol;
    std::function<std::pair<ValueId, ValueType>(const std::string&)> value;
  };

  WarpIndex() = default;
  /// `type` is that of the operation, which gives positions their meaning.
  WarpIndex(const Expr& e, const ValueType& type, const Names& names);

  /// Whether all threads and elements have the same value.
  bool uniform() const { return nodes_.back().form == 0; }
  int64_t scalar(const WarpScope& scope) const;
  /// The value of element 0 in every thread.
  const int64_t* threads(const WarpScope& scope) const;
  /// The value of every element in every thread, in the order of a WarpValue. Pointers stay valid
  /// until the next call.
  const int64_t* all(const WarpScope& scope) const;

 private:
  enum Form : uint8_t { kByThread = 1, kByElement = 2 };
  struct Node {
    Expr::Kind kind = Expr::Kind::Constant;
    uint8_t form = 0;    // bits of Form
    bool fixed = false;  // known when compiled
    size_t a = 0, b = 0;
    Symbol symbol;
    ValueId value;
    DType dtype = DType::I64;
    std::vector<uint32_t> map;  // of the value's elements
    mutable std::vector<int64_t> data;
    mutable bool changed = false;  // by the latest evaluation
  };
  size_t add(const Expr& e, const ValueType& type, const Names& names);
  size_t add_symbol(const std::string& name, const ValueType& type, const Names& names);
  size_t combine(Expr::Kind kind, size_t a, size_t b);
  size_t push(Node node);
  void evaluate(const Node& node, const WarpScope& scope) const;
  void evaluate_pair(const Node& node) const;
  void evaluate_all(const WarpScope& scope) const;

  size_t count_ = 1;
  std::vector<Node> nodes_;  // operands before their users
  mutable std::vector<int64_t> spread_;
  mutable bool evaluated_ = false;  // before, so that what has not changed is there
};

}  // namespace braze
