// gpu_folds.cpp — reductions and scans over registers, lanes, warps and blocks: D6, L12.
#include <algorithm>

#include "compiler/lowering/gpu.h"

namespace braze {

void GpuLowering::lower_fold(const FoldOp& op, const Statement& s) {
  ValueOperand value = mapped(op.operand);
  ValueType tile = tile_[op.operand.value].type;
  for (const int64_t at : op.axes) {
    const auto axis = static_cast<size_t>(at);
    const AxisDigits own = digits(tile, axis);
    if (own.array > 1) value = builder_.fold(op.monoid, value, {at});
    std::vector<Digit> others = spread_digits(folded(tile, axis));
    others.insert(others.end(), own.spread.begin(), own.spread.end());
    for (const Digit& digit : own.spread) {
      others.erase(std::find(others.begin(), others.end(), digit));
      value = fold_digit(folder(op.monoid), {value}, digit, others, s)[0];
    }
    if (own.lanes > 1) value = fold_lanes(op.monoid, value);
    check_agrees(folded(tile, axis), tile, s);
    tile = folded(std::move(tile), axis);
  }
  define(s.results[0], value);
}

void GpuLowering::lower_arg_fold(const ArgFoldOp& op, const Statement& s) {
  BRAZE_CHECK(op.axes.size() == 1, "an arg-reduction must have one axis");
  const auto axis = static_cast<size_t>(op.axes[0]);
  const ValueType& tile = tile_[op.values.value].type;
  ValueOperand values = mapped(op.values), indices = mapped(op.indices);
  indices = splat_to(indices, type_of(values));
  const AxisDigits own = digits(tile, axis);
  check_agrees(folded(tile, axis), tile, s);
  // The winner does not depend on the order, so the nearest values are combined first.
  std::tie(values, indices) = arg_fold_array(op.is_max, values, indices, axis);
  if (own.lanes > 1) std::tie(values, indices) = arg_fold_lanes(op.is_max, values, indices);
  std::vector<Digit> others = spread_digits(folded(tile, axis));
  others.insert(others.end(), own.spread.begin(), own.spread.end());
  std::vector<Digit> nearest_first = own.spread;
  std::stable_sort(nearest_first.begin(), nearest_first.end(),
                   [](const Digit& a, const Digit& b) { return a.resource > b.resource; });
  for (const Digit& digit : nearest_first) {
    others.erase(std::find(others.begin(), others.end(), digit));
    const Values winners = fold_digit(arg_folder(op.is_max), {values, indices}, digit, others, s);
    values = winners[0], indices = winners[1];
  }
  define(s.results[0], values);
  define(s.results[1], indices);
}

// --- Scans ---------------------------------------------------------------------------------------

// L12: a scan along registers of a thread, lanes of a warp or warps of a block. A scan along
// several of these goes through shared memory, step by step.
void GpuLowering::lower_scan(const TileScanOp& op, const Statement& s) {
  const Tuple parts = mapped(op.operands);
  const ValueType& tile = tile_[op.operands[0].value].type;
  const auto axis = static_cast<size_t>(op.axis);
  const AxisDigits own = digits(tile, axis);
  const bool of_digit = own.array == 1 && own.lanes == 1 && own.spread.size() == 1;
  if (std::any_of(own.spread.begin(), own.spread.end(), of_block))
    not_lowered("a scan over the blocks of a cluster", s);
  if (own.spread.empty())
    define_scan(s, scan_registers(op, parts, axis));
  else if (of_digit && own.spread[0].resource == Resource::Lane)
    define_scan(s, scan_lanes(op, parts, own.spread[0]));
  else if (of_digit)
    define_scan(s, scan_warps(op, parts, own.spread[0], spread_digits(folded(tile, axis))));
  else {
    for (size_t i = 0; i < parts.size() && op.totals; ++i) {
      const ValueType& part = tile_[op.operands[i].value].type;
      check_agrees(folded(part, axis), part, s);
    }
    define_scan(s, scan_through_memory(op, parts, s));
  }
}

GpuLowering::Scanned GpuLowering::scan_registers(const TileScanOp& op, const Tuple& parts,
                                                 size_t axis) {
  const ValueType first = type_of(parts[0]);
  if (axis + 1 < first.rank() || first.lanes == 1) return scan_array(op, parts, axis);
  Tuple scalars;
  for (const ValueOperand& part : parts) {
    ValueType type = type_of(part);
    type.extents.back() *= std::exchange(type.lanes, 1);
    scalars.emplace_back(builder_.regroup(part, std::move(type)));
  }
  Scanned out = scan_array(op, scalars, axis);
  for (size_t i = 0; i < parts.size(); ++i)
    out.each[i] = builder_.regroup(out.each[i], type_of(parts[i]));
  return out;
}

GpuLowering::Scanned GpuLowering::scan_lanes(const TileScanOp& op, Tuple parts,
                                             const Digit& digit) {
  const auto before = [&](int64_t distance) {
    Tuple out;
    for (const ValueOperand& part : parts)
      out.push_back(shuffled(op.reverse ? Instruction::shfl_down : Instruction::shfl_up, part,
                             digit.stride * distance));
    return out;
  };
  // `then` in the threads whose digit is at least `n`, and `otherwise` in the others.
  const auto from = [&](int64_t n, const Tuple& then, const Tuple& otherwise) {
    const ValueOperand condition = at_least(op, digit, n);
    Tuple out;
    for (size_t i = 0; i < then.size(); ++i)
      out.push_back(row(ElementwiseOp::select, {flag(condition, then[i]), then[i], otherwise[i]}));
    return out;
  };
  for (int64_t shift = 1; shift < digit.extent; shift *= 2)
    parts = from(shift, combined(op.combiner, before(shift), parts), parts);
  Scanned out;
  if (op.totals) {
    const int64_t last = op.reverse ? 0 : digit.extent - 1;
    const Expr lane =
        mod(thread_, kWarpThreads) + (Expr(last) - digit_value(digit)) * Expr(digit.stride);
    for (const ValueOperand& part : parts)
      out.total.push_back(shuffled(Instruction::shfl_idx, part, lane));
  }
  if (op.exclusive) {
    Tuple nothing;
    for (size_t i = 0; i < parts.size(); ++i) {
      const DType dtype = type_of(parts[i]).dtype;
      nothing.push_back(ValueOperand::literal(dtype, op.combiner.identity(i, dtype)));
    }
    parts = from(1, before(1), nothing);
  }
  out.each = std::move(parts);
  return out;
}

// Every thread scans the values of all warps, and selects its own result.
GpuLowering::Scanned GpuLowering::scan_warps(const TileScanOp& op, const Tuple& parts,
                                             const Digit& digit, const std::vector<Digit>& others) {
  Tuple all;
  for (const ValueOperand& part : parts) all.push_back(gathered(part, digit, others));
  Scanned out = scan_array(op, all, type_of(all[0]).rank() - 1);
  for (ValueOperand& total : out.total) total = dropped(total);
  for (ValueOperand& part : out.each) {
    const ValueOperand scanned = part;
    const ValueType type = type_of(scanned);
    ValueType slice = type;
    slice.extents.back() = 1;
    for (int64_t warp = 0; warp < digit.extent; ++warp) {
      std::vector<int64_t> at(type.rank());
      at.back() = warp;
      const ValueOperand of_warp =
          dropped(builder_.view(MovementKind::Slice, scanned, slice, std::move(at)));
      const Condition own{{digit_value(digit), IndexComparison::Kind::Eq, warp}};
      part = warp == 0
                 ? of_warp
                 : row(ElementwiseOp::select,
                       {flag(builder_.test(own, {DType::Bool, 1, {}}), of_warp), of_warp, part});
    }
  }
  return out;
}

// Whether the digit's value in this thread is at least `n`, counted in the direction of the scan.
ValueOperand GpuLowering::at_least(const TileScanOp& op, const Digit& digit, int64_t n) {
  const Expr at = digit_value(digit);
  const Expr order = op.reverse ? Expr(digit.extent - 1) - at : at;
  return builder_.test({{order, IndexComparison::Kind::Ge, n}}, {DType::Bool, 1, {}});
}

// A condition in the form that a row with `like` needs.
ValueOperand GpuLowering::flag(const ValueOperand& condition, const ValueOperand& like) {
  return splat_to(condition, type_of(like));
}

}  // namespace braze
