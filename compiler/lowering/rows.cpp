#include "compiler/lowering/rows.h"

#include <algorithm>

#include "ir/graph/coarse.h"
#include "ir/ops/approximate_power.h"

namespace braze {

namespace {

// Makes statements from the operations of a body. Operations on constants are computed here.
class StatementEmitter : public ScalarEmitter {
 public:
  explicit StatementEmitter(CodeBuilder& builder) : builder_(builder) {}

  Scalar constant(DType dtype, uint64_t bits) override {
    return add(ValueOperand::literal(dtype, bits), dtype);
  }

  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    std::vector<ValueOperand> list;
    for (const Scalar& s : operands) list.push_back(values_[s.id()]);
    if (!is_machine(op)) {
      const auto& body = *info(op).body;
      return body(operands[0], operands.size() > 1 ? operands[1] : Scalar(),
                  operands.size() > 2 ? operands[2] : Scalar());
    }
    if (op == ElementwiseOp::select && list[0].is_literal())
      return list[0].bits ? operands[1] : operands[2];
    if (std::all_of(list.begin(), list.end(),
                    [](const ValueOperand& o) { return o.is_literal(); })) {
      uint64_t bits[3] = {};
      for (size_t i = 0; i < list.size(); ++i) bits[i] = list[i].bits;
      return constant(
          result, evaluate_machine(op, operands.back().dtype(), result, bits[0], bits[1], bits[2]));
    }
    const bool chosen = info(op).result == ResultRule::Chosen;
    return add(builder_.row(op, std::move(list), chosen ? std::optional(result) : std::nullopt),
               result);
  }

  Scalar add(ValueOperand operand, DType dtype) {
    values_.push_back(operand);
    return Scalar(this, static_cast<uint32_t>(values_.size() - 1), dtype);
  }
  ValueOperand operand(const Scalar& s) const { return values_[s.id()]; }

 private:
  CodeBuilder& builder_;
  std::vector<ValueOperand> values_;
};

// Runs `body` on scalars that stand for `operands`.
template <class Body>
ValueOperand emit(CodeBuilder& builder, const std::vector<ValueOperand>& operands, DType result,
                  Body&& body) {
  ValueType shape;
  for (const ValueOperand& operand : operands)
    if (!operand.is_literal()) shape = builder.code()[operand.value].type;
  StatementEmitter emitter(builder);
  Scalar scalars[3];
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType type =
        operands[i].is_literal() ? operands[i].dtype : builder.code()[operands[i].value].type.dtype;
    scalars[i] = emitter.add(operands[i], type);
  }
  const ValueOperand value = emitter.operand(body(scalars[0], scalars[1], scalars[2]));
  if (!value.is_literal()) return value;
  return builder.constant({result, shape.lanes, shape.extents}, value.bits);
}

}  // namespace

ValueOperand emit_body(CodeBuilder& builder, ElementwiseOp op,
                       const std::vector<ValueOperand>& operands, DType dtype) {
  return emit(builder, operands, dtype, info(op).body);
}

ValueOperand emit_half_body(CodeBuilder& builder, ElementwiseOp op,
                            const std::vector<ValueOperand>& operands, DType dtype) {
  return emit(builder, operands, DType::F32, [&](const Scalar& x, const Scalar& y, const Scalar&) {
    return info(op).half_body(x, y, dtype);
  });
}

ValueOperand emit_short_body(CodeBuilder& builder, ElementwiseOp op, const ValueOperand& operand) {
  return emit(builder, {operand}, DType::F32,
              [&](const Scalar& x, const Scalar&, const Scalar&) { return short_body(op, x); });
}

ValueOperand emit_coarse_body(CodeBuilder& builder, ElementwiseOp op, const ValueOperand& operand) {
  return emit(builder, {operand}, DType::F32,
              [&](const Scalar& x, const Scalar&, const Scalar&) { return coarse_body(op, x); });
}

ValueOperand emit_approximate_power(CodeBuilder& builder, const ValueOperand& operand) {
  return emit(builder, {operand}, DType::F32, [&](const Scalar& x, const Scalar&, const Scalar&) {
    return math::approximate_power(x);
  });
}

}  // namespace braze
