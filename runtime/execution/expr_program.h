// expr_program.h — compiles many Exprs to one straight line of integer operations.
//
// The sizes, offsets and scalars of a call share most of their subexpressions. Each of these is
// computed once, without names or trees.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "braze/error.h"
#include "ir/index/expr.h"

namespace braze {

namespace codes {
inline constexpr Code kSizeOverflow{"size-overflow", ErrorKind::ResourceExhausted,
                                    "A size of a call does not fit 64 bits."};
}  // namespace codes

class ExprProgram {
 public:
  /// `symbols` are the names that expressions may use, in the order of the values given to `run`.
  explicit ExprProgram(std::span<const Expr> symbols);

  /// Adds the computation of `e`, and returns where `run` puts its value.
  uint32_t add(const Expr& e);
  /// Computes all values, for these values of the symbols.
  std::vector<int64_t> run(std::span<const int64_t> symbols) const;

 private:
  enum class Operation : uint8_t { Constant, Add, Multiply, FloorDiv, Mod, Min, Max };
  struct Step {
    Operation operation;
    uint32_t a = 0, b = 0;
    int64_t constant = 0;
  };

  uint32_t push(Step step);

  size_t symbol_count_;
  std::vector<Step> steps_;
  std::unordered_map<Expr, uint32_t> values_;
};

}  // namespace braze
