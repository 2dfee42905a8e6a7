#include "ir/ops/elementwise.h"

#include <string>
#include <unordered_map>

#include "braze/error.h"
#include "ir/ops/formulas.h"
#include "ir/ops/math_bodies.h"

namespace braze {
namespace {

// Functions that the bodies and gradients in elementwise.def use.

Scalar zero(const Scalar& x) { return x.constant(0); }
Scalar one(const Scalar& x) { return x.constant(1); }

// The share of the gradient of r = min(a, b) or max(a, b) that a receives: 1, 0, or a half if a and
// b are equal.
Scalar share(const Scalar& a, const Scalar& b, const Scalar& r) {
  return select(eq(a, b), a.constant(0.5), select(eq(a, r), one(a), zero(a)));
}

const Scalar NONE;

using S = const Scalar&;

struct Derivative {
  Gradients (*gradient)(S g, S r, S x, S y, S z) = nullptr;
  bool through_body = false;
};

#define GRAD(...)                                                                              \
  Derivative {                                                                                 \
    []([[maybe_unused]] S g, [[maybe_unused]] S r, [[maybe_unused]] S x, [[maybe_unused]] S y, \
       [[maybe_unused]] S z) { return Gradients{{__VA_ARGS__}}; }                              \
  }
#define NO_GRAD \
  Derivative {}
#define THROUGH_BODY \
  Derivative { nullptr, true }
#define HALF_BODY(name, ...)                             \
  [](S x, [[maybe_unused]] S y, DType dtype) -> Scalar { \
    return math::name##_16(__VA_ARGS__, dtype);          \
  }
#define BODY(...) \
  [](S x, [[maybe_unused]] S y, [[maybe_unused]] S z) -> Scalar { return __VA_ARGS__; }

// The operands of a row with a body in math_bodies.h.
#define OPERANDS_1 x
#define OPERANDS_2 x, y

constexpr ElementwiseInfo row(std::string_view name, OpClass op_class, uint8_t arity, TypeSet types,
                              ResultRule result, std::string_view meaning,
                              Scalar (*body)(S x, S y, S z), Derivative derivative,
                              Scalar (*half_body)(S x, S y, DType dtype) = nullptr,
                              bool inner = false) {
  return {name,
          op_class,
          arity,
          types,
          result,
          meaning,
          body,
          half_body,
          derivative.gradient,
          derivative.through_body,
          inner};
}

constexpr ElementwiseInfo kTable[] = {
#define MACHINE(name, arity, types, result, meaning, grad) \
  row(#name, OpClass::Machine, arity, types, ResultRule::result, meaning, nullptr, grad),
#define INNER(name, arity, types, meaning)                                                         \
  row(#name, OpClass::Machine, arity, types, ResultRule::Same, meaning, nullptr, NO_GRAD, nullptr, \
      true),
#define MATH(name, arity, types, meaning, grad)                      \
  row(#name, OpClass::Math, arity, types, ResultRule::Same, meaning, \
      BODY(math::name(OPERANDS_##arity)), grad, HALF_BODY(name, OPERANDS_##arity)),
#define FORMULA(name, arity, types, body, meaning, grad) \
  row(#name, OpClass::Formula, arity, types, ResultRule::Same, meaning, BODY(body), grad),
#define ROUNDED(name, arity, types, body, meaning, grad)                                  \
  row(#name, OpClass::Formula, arity, types, ResultRule::Same, meaning, BODY(body), grad, \
      HALF_BODY(name, OPERANDS_##arity)),
#include "ir/ops/elementwise.def"
#undef MACHINE
#undef MATH
#undef FORMULA
};

}  // namespace

std::span<const ElementwiseInfo> elementwise_table() { return kTable; }

const ElementwiseInfo& info(ElementwiseOp op) { return kTable[static_cast<size_t>(op)]; }

bool has_half_body(ElementwiseOp op, DType dtype) {
  const ElementwiseInfo& row = info(op);
  if (!row.half_body) return false;
  return row.op_class == OpClass::Formula ? dtype == DType::BF16 : is_half(dtype);
}

DType body_type(ElementwiseOp op, DType dtype) {
  return has_half_body(op, dtype) ? DType::F64 : compute_type(dtype);
}

std::optional<ElementwiseOp> parse_elementwise(std::string_view text) {
  static const auto* const by_name = [] {
    auto* map = new std::unordered_map<std::string_view, ElementwiseOp>;
    for (size_t i = 0; i < std::size(kTable); ++i)
      map->emplace(kTable[i].name, static_cast<ElementwiseOp>(i));
    return map;
  }();
  const auto found = by_name->find(text);
  if (found == by_name->end()) return std::nullopt;
  return found->second;
}

Scalar emit_elementwise(ElementwiseOp op, std::span<const Scalar> operands) {
  const ElementwiseInfo& row = info(op);
  const auto context = [&] { return "in the body of " + std::string(row.name); };
  BRAZE_CHECK(operands.size() == row.arity && row.result != ResultRule::Chosen, context());
  // The condition of select is the only operand of another dtype.
  const bool has_condition = op == ElementwiseOp::select;
  if (has_condition) BRAZE_CHECK(operands[0].dtype() == DType::Bool, context());
  const DType dtype = operands.back().dtype();
  BRAZE_CHECK(row.types.contains(dtype), context());
  for (const Scalar& operand : operands)
    BRAZE_CHECK(operand.emitter() && operand.emitter() == operands[0].emitter(), context());
  for (const Scalar& operand : operands.subspan(has_condition ? 1 : 0))
    BRAZE_CHECK(operand.dtype() == dtype, context());
  return operands[0].emitter()->apply(op, operands,
                                      row.result == ResultRule::Boolean ? DType::Bool : dtype);
}

}  // namespace braze
