#include "runtime/execution/expr_program.h"

#include <algorithm>

#include "ir/support/text.h"

namespace braze {

ExprProgram::ExprProgram(std::span<const Expr> symbols) : symbol_count_(symbols.size()) {
  for (const Expr& symbol : symbols) {
    values_.emplace(symbol, static_cast<uint32_t>(values_.size()));
  }
  BRAZE_CHECK(values_.size() == symbol_count_, "a program names a symbol twice");
}

uint32_t ExprProgram::push(Step step) {
  steps_.push_back(step);
  return static_cast<uint32_t>(symbol_count_ + steps_.size() - 1);
}

uint32_t ExprProgram::add(const Expr& e) {
  if (const auto found = values_.find(e); found != values_.end()) return found->second;
  Operation operation = Operation::Constant;
  switch (e.kind()) {
    case Expr::Kind::Constant:
      return values_[e] = push({.operation = operation, .constant = *e.as_constant()});
    case Expr::Kind::Symbol:
      BRAZE_CHECK(false, "a program uses the symbol " + e.to_string() + " without naming it");
    case Expr::Kind::Sum:
      operation = Operation::Add;
      break;
    case Expr::Kind::Product:
      operation = Operation::Multiply;
      break;
    case Expr::Kind::FloorDiv:
      operation = Operation::FloorDiv;
      break;
    case Expr::Kind::Mod:
      operation = Operation::Mod;
      break;
    case Expr::Kind::Min:
      operation = Operation::Min;
      break;
    case Expr::Kind::Max:
      operation = Operation::Max;
      break;
  }
  const std::span<const Expr> operands = e.operands();
  uint32_t value = add(operands[0]);
  for (const Expr& operand : operands.subspan(1)) {
    const uint32_t right = add(operand);
    value = push({.operation = operation, .a = value, .b = right});
  }
  return values_[e] = value;
}

std::vector<int64_t> ExprProgram::run(std::span<const int64_t> symbols) const {
  BRAZE_CHECK(symbols.size() == symbol_count_, "a value for every symbol");
  std::vector<int64_t> values(symbol_count_ + steps_.size());
  std::copy(symbols.begin(), symbols.end(), values.begin());
  int64_t* out = values.data() + symbol_count_;
  bool overflow = false;
  for (const Step& step : steps_) {
    const int64_t a = values[step.a];
    const int64_t b = values[step.b];
    int64_t result = 0;
    switch (step.operation) {
      case Operation::Constant:
        result = step.constant;
        break;
      case Operation::Add:
        overflow |= __builtin_add_overflow(a, b, &result);
        break;
      case Operation::Multiply:
        overflow |= __builtin_mul_overflow(a, b, &result);
        break;
      case Operation::FloorDiv:
      case Operation::Mod: {
        BRAZE_CHECK(b > 0, "divisors are positive");
        const int64_t remainder = a % b + (a % b < 0 ? b : 0);
        result = step.operation == Operation::Mod ? remainder : a / b - (a % b < 0);
        break;
      }
      case Operation::Min:
        result = std::min(a, b);
        break;
      case Operation::Max:
        result = std::max(a, b);
        break;
    }
    *out++ = result;
  }
  if (overflow) fail(codes::kSizeOverflow, "a size of this call does not fit 64 bits");
  return values;
}

}  // namespace braze
