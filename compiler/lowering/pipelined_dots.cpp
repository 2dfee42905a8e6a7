// pipelined_dots.cpp — dots as matrix instructions of four warps: D21 to D24.
#include <algorithm>

#include "compiler/lowering/pipelined.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The instruction for operands of a dtype, and how many indices of the contracted axis one
// instruction takes.
struct MatrixInstruction {
  Instruction instruction;
  int64_t depth;
};
std::optional<MatrixInstruction> instruction_for(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return MatrixInstruction{Instruction::wgmma_bf16, 16};
    case DType::F16:
      return MatrixInstruction{Instruction::wgmma_f16, 16};
    case DType::F32:
      return MatrixInstruction{Instruction::wgmma_tf32, 8};
    default:
      return std::nullopt;
  }
}

}  // namespace

// D22: step `step` along k of an operand in on-chip storage. `contracted` is an axis of the window.
Place PipelinedLowering::matrix_operand(MemoryId window, int64_t contracted, int64_t step,
                                        int64_t depth) const {
  const OnChip place = on_chip(window);
  const Memory& memory = tile_[place.tile];
  const Matrix m = matrix(place.tile);
  MatrixLayout layout;
  layout.k_major = contracted == 1;
  layout.swizzle = memory.swizzle;
  layout.stride = 8 * memory.swizzle;
  layout.leading =
      layout.k_major ? 16 : m.panel_elements() * static_cast<int64_t>(size_of(memory.dtype));
  const int64_t k = step * depth;
  const int64_t ahead =
      layout.k_major ? k / m.panel * m.panel_elements() + k % m.panel : k * m.panel;
  return {place.memory, origin(place) + ahead, {}, layout};
}

// D21: the value to which a dot adds.
ValueOperand PipelinedLowering::accumulator(const StartDotOp& op) {
  const ValueId c = op.c.value;
  const bool zero = op.fresh && op.fresh_when.empty();
  if (!zero || !constants_.contains(c)) return as_flat(c);
  return builder_.undefined({DType::F32, 1, {array_type(DType::F32, axes_of(c)).count()}});
}

// D23: an operand in registers. A thread holds 8 elements (4 in tf32) for each step along k.
std::vector<ValueOperand> PipelinedLowering::fragments(const ValueOperand& tile, int64_t steps) {
  const auto axes = axes_of(tile.value);
  const ValueOperand array = as_array(tile, axes);
  const ValueType type = type_of(array);
  const int64_t lanes = size_of(type.dtype) == 2 ? 2 : 1;
  std::vector<ValueOperand> out;
  for (int64_t step = 0; step < steps; ++step) {
    ValueType part = type;
    part.extents[0] /= steps;
    std::vector<int64_t> at(type.rank());
    at[0] = step * part.extents[0];
    const ValueOperand own =
        steps == 1 ? array : builder_.view(MovementKind::Slice, array, part, at);
    out.emplace_back(builder_.regroup(own, {type.dtype, static_cast<int32_t>(lanes), {4}}));
  }
  return out;
}

// D21: 0 if the accumulator is taken as zero, otherwise 1.
InstructionOperand PipelinedLowering::first_scale(const StartDotOp& op) {
  if (!op.fresh) return Expr(1);
  if (op.fresh_when.empty()) return Expr(0);
  const Condition when = uniform(op.fresh_when);
  if (when.size() == 1 && when[0].kind == IndexComparison::Kind::Eq) {
    for (const Expr& difference : {when[0].left - when[0].right, when[0].right - when[0].left})
      if (difference.range().min >= 0) return min(difference, 1);
  }
  const ValueId fresh = builder_.test(when, {DType::Bool, 1, {}});
  const ValueId keep = builder_.row(ElementwiseOp::logical_not, {fresh});
  return value_symbol(kernel_, builder_.row(ElementwiseOp::convert, {keep}, DType::I32));
}

void PipelinedLowering::lower_op(const StartDotOp& op, const Statement& s) {
  const ValueType b = memory_type(tile_[op.b_window]);
  const auto found = instruction_for(b.dtype);
  if (!found || b.rank() != 2) not_lowered("a dot of these operands", s);
  const int64_t steps = b.extents[static_cast<size_t>(op.contract_b)] / found->depth;
  const int64_t columns = b.extents[static_cast<size_t>(1 - op.contract_b)];
  if (op.a_window) before_async_read(on_chip(op.a_window));
  before_async_read(on_chip(op.b_window));
  std::vector<InstructionOperand> fenced = {accumulator(op)};
  if (!op.a_window)
    for (const ValueOperand& fragment : fragments(op.a, steps)) fenced.emplace_back(fragment);
  const auto ready = builder_.instruction(Instruction::wgmma_fence, fenced);
  const InstructionOperand scale = first_scale(op);
  ValueOperand sum = ready[0];
  for (int64_t step = 0; step < steps; ++step) {
    InstructionOperand a =
        op.a_window
            ? InstructionOperand(matrix_operand(op.a_window, op.contract_a, step, found->depth))
            : InstructionOperand(ValueOperand(ready[static_cast<size_t>(step) + 1]));
    sum = builder_.instruction(
        found->instruction,
        {std::move(a), matrix_operand(op.b_window, op.contract_b, step, found->depth), sum,
         step == 0 ? scale : InstructionOperand(Expr(1))},
        columns)[0];
  }
  builder_.instruction(Instruction::wgmma_commit);
  const ValueId result = s.results[0];
  set(result, sum, axes_of(result), /*flat=*/true);
  in_flight_[result] = {ready.begin() + 1, ready.end()};
  // Before a thread overwrites what the dot reads, it must wait for all warps.
  for (const MemoryId window : {op.a_window, op.b_window})
    if (window && tile_[on_chip(window).tile].space == MemorySpace::Local)
      accesses_.note({on_chip(window).memory, false});
}

// D24: waits for dots, and keeps their register operands alive until then.
void PipelinedLowering::lower_op(const WaitDotOp& op, const Statement& s) {
  std::vector<InstructionOperand> operands = {Expr(op.pending)};
  for (const ValueOperand& value : op.operands) operands.emplace_back(as_flat(value.value));
  for (const ValueOperand& value : op.operands)
    for (const ValueOperand& fragment : in_flight_[value.value]) operands.emplace_back(fragment);
  const auto waited = builder_.instruction(Instruction::wgmma_wait, operands);
  size_t next = op.operands.size();
  for (size_t i = 0; i < op.operands.size(); ++i) {
    // The results of the wait are the values that stay alive.
    std::vector<ValueOperand> alive;
    for (size_t n = in_flight_[op.operands[i].value].size(); n-- > 0;)
      alive.emplace_back(waited[next++]);
    set(s.results[i], waited[i], axes_of(s.results[i]), /*flat=*/true);
    if (op.pending > 0) in_flight_[s.results[i]] = std::move(alive);
  }
}

void PipelinedLowering::lower_dot(const TileDotOp& op, const Statement& s) {
  if (!op.b_buffer) not_lowered("a dot whose second operand is in registers", s);
  StartDotOp start{op.a, op.a_buffer, op.b_buffer, op.c, op.contract_a, op.contract_b, op.tf32};
  lower_op(start, s);
  lower_op(WaitDotOp{0, {s.results[0]}}, s);
}

}  // namespace braze
