// gpu_dots.cpp — dots on the matrix units of warps, and factors that are loaded in the registers
// that these take: D30.
#include <algorithm>
#include <array>
#include <numeric>

#include "compiler/lowering/gpu.h"
#include "ir/code/dot_layouts.h"
#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"

namespace braze {

// Dots of tiles with the layouts of `warp_dot_layouts`: each warp multiplies its own matrices, of
// 16 x 16 and 16 x 8 elements of 16 bits, or of 16 x 8 and 8 x 8 in tf32 or f64.
void GpuLowering::lower_dot(const TileDotOp& op, const Statement& s) {
  if (op.a_buffer || op.b_buffer || op.contract_a != 1 || op.contract_b != 0)
    not_lowered("a dot of buffers, or one that does not contract the last axis with the first,", s);
  const ValueType& left = tile_[op.a.value].type;
  const ValueType& right = tile_[op.b.value].type;
  const ValueType& sums = result_type(s);
  const bool halves = is_half(left.dtype);
  if (left.dtype != right.dtype ||
      !(halves || left.dtype == DType::F64 || (left.dtype == DType::F32 && op.tf32)))
    not_lowered(fmt::format("a dot of {} and {}{}", name(left.dtype), name(right.dtype),
                            op.tf32 ? "" : " without tf32"),
                s);
  const AxisDigits rows = digits(sums, 0), columns = digits(sums, 1);
  const int64_t vector = columns.lanes;
  const bool shaped = !rows.spread.empty() && !columns.spread.empty() && vector >= 2 &&
                      (!halves || vector == 2) && rows.array % 2 == 0;
  const auto threads = [&](const AxisDigits& axis) {
    int64_t out = 1;
    for (const Digit& digit : axis.spread) out *= digit.extent;
    return out;
  };
  const auto fits = [&] {
    if (!shaped || threads(rows) < 8 || threads(columns) < 4) return false;
    const DotLayouts wanted = warp_dot_layouts(sums.extents, {threads(rows), threads(columns)},
                                               vector, halves ? kHalfDotDepth : kTf32DotDepth);
    return lies_as(sums, wanted.sums) && lies_as(left, wanted.left) && lies_as(right, wanted.right);
  };
  if (!fits())
    fail(kLayouts,
         fmt::format("kernel @{}: no matrix instruction of a warp takes {} {}, {} {} and {} {}",
                     tile_.name, left.to_string(), layout(left).to_string(), right.to_string(),
                     layout(right).to_string(), sums.to_string(), layout(sums).to_string()),
         {s.location, {}, "give the tiles layouts of matrices of 16 x 8 sums"});
  const int64_t blocks = vector / 2;
  const auto a = left_fragments(op.a, rows.array / 2),
             b = right_fragments(op.b, columns.array * blocks);
  std::vector<ValueOperand> sum = array_elements(scalars(mapped(op.c)));
  for (size_t i = 0; i < a.size(); ++i)
    for (int64_t n = 0; n < columns.array * blocks; ++n) {
      // The columns of one matrix are `blocks` apart in the tile.
      const auto first = static_cast<size_t>(
          (2 * static_cast<int64_t>(i) * columns.array + n / blocks) * vector + n % blocks);
      const auto below = first + static_cast<size_t>(columns.array * vector);
      const size_t apart = static_cast<size_t>(blocks);
      const std::array<size_t, 4> at = {first, first + apart, below, below + apart};
      const ValueOperand c = packed({sum[at[0]], sum[at[1]], sum[at[2]], sum[at[3]]});
      const ValueOperand product =
          multiply_matrices(left.dtype, a[i], b[static_cast<size_t>(n)], c);
      for (size_t r = 0; r < at.size(); ++r) sum[at[r]] = element(product, static_cast<int64_t>(r));
    }
  define(s.results[0], builder_.regroup(packed(std::move(sum)), lower_type(sums)));
}

// The sums `c` plus the product of the fragments `a` and `b`, which have elements of `dtype`.
ValueId GpuLowering::multiply_matrices(DType dtype, const ValueOperand& a, const ValueOperand& b,
                                       const ValueOperand& c) {
  const auto multiply = [&](Instruction instruction, const ValueOperand& x, const ValueOperand& y,
                            const ValueOperand& sums) {
    return builder_.instruction(instruction, {x, y, sums})[0];
  };
  if (dtype == DType::BF16) return multiply(Instruction::mma_bf16, a, b, c);
  if (dtype == DType::F16) return multiply(Instruction::mma_f16, a, b, c);
  if (dtype == DType::F32) return multiply(Instruction::mma_tf32, a, b, c);
  if (has_instruction(target_, Instruction::mma_f64_wide))
    return multiply(Instruction::mma_f64_wide, a, b, c);
  // The upper and the lower eight rows, each with both halves of the depth.
  const auto part = [&](const ValueOperand& x, int64_t n) { return packed({element(x, n)}); };
  std::vector<ValueOperand> sums;
  for (const int64_t lower : {0, 1}) {
    ValueOperand sum = packed({element(c, 2 * lower), element(c, 2 * lower + 1)});
    for (const int64_t half : {0, 1})
      sum = multiply(Instruction::mma_f64, part(a, 2 * half + lower), part(b, half), sum);
    sums.push_back(element(sum, 0));
    sums.push_back(element(sum, 1));
  }
  return packed(std::move(sums)).value;
}

bool GpuLowering::lies_as(const ValueType& tile, const Layout& wanted) const {
  for (size_t axis = 0; axis < wanted.rank(); ++axis)
    if (digits(tile, axis) != digits(wanted.axes[axis], axis + 1 == wanted.rank())) return false;
  return true;
}

// The left operands of matrix instructions, for each 16 rows of a warp. A thread has two rows of
// a fragment, which are neighbours in its array.
std::vector<ValueOperand> GpuLowering::left_fragments(const ValueOperand& tile, int64_t count) {
  if (const auto found = fragments_.find(tile.value); found != fragments_.end())
    return found->second;
  const ValueOperand x = scalars(mapped(tile));
  const int64_t pair = is_half(type_of(x).dtype) ? 2 : 1, row = 2 * pair;
  std::vector<ValueOperand> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(fragment(
        x, {2 * i * row, (2 * i + 1) * row, 2 * i * row + pair, (2 * i + 1) * row + pair}));
  return out;
}

// The right operands, for each 8 columns of a warp.
std::vector<ValueOperand> GpuLowering::right_fragments(const ValueOperand& tile, int64_t count) {
  if (const auto found = fragments_.find(tile.value); found != fragments_.end())
    return found->second;
  const ValueOperand x = scalars(mapped(tile));
  const int64_t pair = is_half(type_of(x).dtype) ? 2 : 1;
  std::vector<ValueOperand> out;
  for (int64_t n = 0; n < count; ++n) out.push_back(fragment(x, {n, pair * count + n}, count));
  return out;
}

// A register for each number in `first`: the element with that number or, of 16-bit elements, the
// pair of it and the element `apart` numbers behind it.
ValueOperand GpuLowering::fragment(const ValueOperand& x, const std::vector<int64_t>& first,
                                   int64_t apart) {
  const bool halves = is_half(type_of(x).dtype);
  std::vector<ValueOperand> elements;
  for (const int64_t n : first) {
    elements.push_back(element(x, n));
    if (halves) elements.push_back(element(x, n + apart));
  }
  const ValueOperand all = packed(std::move(elements));
  if (!halves) return all;
  return builder_.regroup(all, {type_of(x).dtype, 2, {static_cast<int64_t>(first.size())}});
}

// The elements of an array as scalars: array positions first, then lanes.
ValueOperand GpuLowering::scalars(const ValueOperand& value) {
  const ValueType& type = type_of(value);
  return builder_.regroup(value, {type.dtype, 1, {type.count() * type.lanes}});
}

ValueOperand GpuLowering::element(const ValueOperand& value, int64_t at) {
  return builder_.append(GetElementOp{value, {at}}, {{type_of(value).dtype, 1, {}}}, "get")[0];
}

ValueOperand GpuLowering::packed(std::vector<ValueOperand> elements) {
  ValueType type = type_of(elements[0]);
  type.extents = {static_cast<int64_t>(elements.size())};
  return Lowering::packed(std::move(elements), type);
}

// --- Factors loaded as fragments -----------------------------------------------------------------

// A value that a loop carries has the role of those from which it comes; a load has that of the
// dots to which its value goes.
void GpuLowering::find_dot_roles(const Region& phase) {
  fragments_.clear();
  dot_roles_.clear();
  std::vector<uint32_t> same(tile_.values.size());  // values that a loop carries as one
  std::iota(same.begin(), same.end(), 0u);
  const auto first_of_same = [&](uint32_t v) {
    while (same[v] != v) v = same[v];
    return v;
  };
  struct Uses {
    std::array<int64_t, 2> dots = {};  // as the left and as the right factor
    int64_t carried = 0;
    const Statement* load = nullptr;
    bool is_carried = false;
  };
  std::map<uint32_t, Uses> uses;
  const auto join = [&](ValueId inside, const ValueOperand& from) {
    if (from.is_literal()) return;
    ++uses[from.value.index].carried;
    same[first_of_same(from.value.index)] = first_of_same(inside.index);
  };
  for_each_statement(phase, [&](const Statement& s) {
    if (s.as<LoadOp>()) uses[s.results[0].index].load = &s;
    if (const auto* loop = s.as<ForOp>())
      for (size_t i = 0; i < loop->carried.size(); ++i) {
        const auto& [inside, first] = loop->carried[i];
        uses[inside.index].is_carried = uses[s.results[i].index].is_carried = true;
        join(inside, first);
        join(inside, loop->body->yields[i]);
        same[first_of_same(s.results[i].index)] = first_of_same(inside.index);
      }
    const auto* dot = s.as<TileDotOp>();
    if (!dot || dot->contract_a != 1 || dot->contract_b != 0) return;
    if (!dot->a_buffer) ++uses[dot->a.value.index].dots[0];
    if (!dot->b_buffer) ++uses[dot->b.value.index].dots[1];
  });
  for (const size_t role : {0, 1}) {
    std::set<uint32_t> used, refused;
    for (const auto& [v, use] : uses)
      if (use.dots[role] > 0) used.insert(first_of_same(v));
    for (const auto& [v, use] : uses) {
      const uint32_t first = first_of_same(v);
      if (!used.contains(first)) continue;
      const bool only = use.dots[role] + use.carried == uses_[v];
      if (!only || (!use.is_carried && !use.load)) refused.insert(first);
      // What a loop carries consists of fragments in all of its turns.
      if (use.load && use.carried > 0 && !rows_of_fragments(*use.load, static_cast<int>(role)))
        refused.insert(first);
    }
    for (const auto& [v, use] : uses)
      if (const uint32_t first = first_of_same(v); used.contains(first) && !refused.contains(first))
        dot_roles_.emplace(ValueId(v), static_cast<int>(role));
  }
}

// D30: what only dots of 16-bit factors read from a buffer is loaded by ldmatrix, in the
// registers of their fragments, if eight neighbours along one of its axes lie together in memory.
std::optional<GpuLowering::FragmentRows> GpuLowering::rows_of_fragments(const Statement& s,
                                                                        int role) const {
  const LoadOp& op = *s.as<LoadOp>();
  const ValueType& tile = result_type(s);
  if (!is_half(tile.dtype) || tile.rank() != 2 || op.guard ||
      tile_[op.memory].space != MemorySpace::Local)
    return std::nullopt;
  // The axis of rows or columns (`own`), and the contracted one.
  const size_t own = role == 0 ? 0 : 1, contracted = 1 - own;
  constexpr int64_t kSide = 8;  // of the matrices that ldmatrix loads
  if (tile.extents[contracted] != kHalfDotDepth) return std::nullopt;
  const AxisDigits blocks = digits(tile, own);
  const bool shaped = blocks.inner == 1 && blocks.lanes == 1 && !blocks.spread.empty() &&
                      blocks.spread.size() <= 2 &&
                      blocks.spread.back() == Digit{Resource::Lane, 4, kSide} &&
                      (own == 1 || blocks.array % 2 == 0);
  if (!shaped) return std::nullopt;
  int64_t apart = kSide;  // what the number of a block of a warp is worth
  Expr warp;
  if (blocks.spread.size() == 2) {
    warp = digit_value(blocks.spread[0]) * Expr(kSide);
    apart *= blocks.spread[0].extent;
  }
  const auto address = [&](const Expr& index, const Expr& k) {
    Positions map = renamed_;
    map["d" + std::to_string(own)] = index;
    map["d" + std::to_string(contracted)] = k;
    return offset(op.memory, op.at, map);
  };
  const Expr x = Expr::symbol("fragment.x", {0, tile.extents[own] - 1}),
             k = Expr::symbol("fragment.k", {0, kHalfDotDepth - 1});
  const auto runs_along = [&](const Expr& symbol) {
    const auto stride = address(x, k).coefficient_of(symbol.symbol_name());
    return stride && stride->is_constant(1);
  };
  FragmentRows out{.along = runs_along(k), .blocks = blocks.array, .rows = {}};
  if (!out.along && !runs_along(x)) return std::nullopt;
  // Lane l gives row `mod(l, 8)` of matrix `floordiv(l, 8)`. The rows lie along the axis whose
  // neighbours lie together in memory.
  const Expr lane = mod(thread_, kWarpThreads), row = mod(lane, kSide),
             matrix = floordiv(lane, kSide);
  const auto row_of = [&](const Expr& block, const Expr& half) {
    const Expr index = block * Expr(apart) + warp, first = half * Expr(kSide);
    return out.along ? address(index + row, first) : address(index, first + row);
  };
  // Of a left fragment, two blocks of rows come first, and then the second half along the depth.
  // Right fragments of two blocks of columns are loaded together, each with both halves.
  for (int64_t block = 0; block < blocks.array; block += 2) {
    const int64_t next = std::min<int64_t>(1, blocks.array - 1 - block);
    out.rows.push_back(own == 0 ? row_of(mod(matrix, 2) + block, floordiv(matrix, 2))
                                : row_of(floordiv(matrix, 2) * Expr(next) + block, mod(matrix, 2)));
    if (alignment(op.memory, out.rows.back()) < kSide * 2) return std::nullopt;
  }
  return out;
}

bool GpuLowering::lower_fragments(const LoadOp& op, const Statement& s) {
  const ValueId value = s.results[0];
  const auto role = dot_roles_.find(value);
  if (role == dot_roles_.end()) return false;
  const DType dtype = result_type(s).dtype;
  const MemoryId memory = memories_[op.memory.index];
  const auto from = rows_of_fragments(s, role->second);
  if (!from) return false;
  before_access(memory, /*store=*/false, uniform_slot(op.at));
  std::vector<ValueOperand>& out = fragments_[value];
  const ValueType half{dtype, 2, {2}};
  for (int64_t block = 0; block < from->blocks; block += 2) {
    const ValueId loaded = builder_.instruction(
        from->along ? Instruction::ldmatrix_x4 : Instruction::ldmatrix_x4_trans,
        {Place{memory, from->rows[static_cast<size_t>(block / 2)]}}, /*columns=*/0, dtype)[0];
    if (role->second == 0) {
      out.push_back(loaded);
      continue;
    }
    for (int64_t n = block; n < std::min(block + 2, from->blocks); ++n)
      out.push_back(builder_.view(MovementKind::Slice, loaded, half, {2 * (n - block)}));
  }
  return true;
}

const std::vector<ValueOperand>* GpuLowering::parts_of(const ValueOperand& value) const {
  const auto found = value.is_literal() ? fragments_.end() : fragments_.find(value.value);
  return found == fragments_.end() ? nullptr : &found->second;
}

void GpuLowering::define_parts(ValueId value, std::vector<ValueOperand> parts) {
  fragments_.insert_or_assign(value, std::move(parts));
}

}  // namespace braze
