// pipelined_meetings.cpp — reductions over the blocks of a cluster (D20), and tickets (D26).
#include <algorithm>

#include "compiler/lowering/pipelined.h"
#include "ir/code/walk.h"

namespace braze {

namespace {

constexpr int64_t kVectorBytes = 16;
const ValueType kI32{DType::I32, 1, {}};

bool meets(const Statement& s) {
  const auto* fold = s.as<FoldOp>();
  if (fold && fold->cluster) return true;
  const auto inner = regions_of(s);
  return std::any_of(inner.begin(), inner.end(), [](const Region* region) {
    return std::any_of(region->statements.begin(), region->statements.end(), meets);
  });
}

}  // namespace

bool PipelinedLowering::has_meeting(const Region& region) {
  return std::any_of(region.statements.begin(), region.statements.end(), meets);
}

// Begins to count the reductions over the cluster. Loops and branches carry this number.
void PipelinedLowering::begin_meetings(const Region& role) {
  meetings_ = {};
  if (!has_meeting(role)) return;
  meetings_ = builder_.constant(kI32, 0);
  meeting_barriers_ = mbarriers("meeting", 2 * role_.op->copies);
  plain_barriers_.emplace_back(meeting_barriers_, 2 * role_.op->copies);
}

// Two buffers and mbarriers alternate. A block at reduction n + 1 knows that all blocks have read
// the values of reduction n - 1.
void PipelinedLowering::fold_cluster(const FoldOp& op, const Statement& s) {
  const ValueId tile = op.operand.value;
  const auto axes = axes_of(tile);
  const ValueOperand value = as_array(op.operand, axes);
  const ValueType type = type_of(value);
  const Layout& layout = layouts_[tile];
  const int64_t blocks = phase_->cluster_size;
  const auto [thread, threads] = number_among(thread_digits(layout));
  const int64_t count = type.count(), part = count * threads;
  const auto bytes = static_cast<int64_t>(size_of(type.dtype));
  const MemoryId parts =
      shared("parts", type.dtype, role_.op->copies * 2 * blocks * part, 128, exchanges_);
  const Expr number = value_symbol(kernel_, meetings_.value);
  const Expr turn = role_.copy * Expr(2) + mod(number, 2);
  const Place barrier{meeting_barriers_, turn};
  const auto at = [&](const Expr& block, const Expr& element) {
    return ((turn * Expr(blocks) + block) * Expr(threads) + thread) * Expr(count) + element;
  };

  by_first_thread([&] {
    builder_.instruction(Instruction::mbarrier_expect, {barrier, Expr(blocks * part * bytes)});
  });
  // If several lanes hold the same value, each of them sends it to one block.
  const bool spare = blocks <= kWarpThreads && !uses(layout, Resource::Lane);
  Condition senders = single_store(layout);
  if (spare) {
    std::erase_if(senders, [&](const IndexComparison& c) { return c.left == role_.lane; });
    senders.push_back({role_.lane, IndexComparison::Kind::Lt, blocks});
  }
  int64_t together = kVectorBytes / bytes;
  while (count % together != 0) together /= 2;
  const Expr rank = grid_symbol(phase_->cluster, blocks);
  const auto send = [&](const Expr& target) {
    const ValueOperand flat = reshaped(value, {count});
    for (int64_t i = 0; i < count; i += together) {
      const ValueId some = together == count ? flat.value
                                             : builder_.view(ViewKind::Slice, flat,
                                                             {type.dtype, 1, {together}}, {i});
      Place place{parts, at(rank, i)}, full = barrier;
      place.rank = full.rank = target;
      builder_.instruction(Instruction::st_async, {place, ValueOperand(some), full});
    }
  };
  const auto send_all = [&] {
    if (spare) return send(role_.lane);
    for (int64_t block = 0; block < blocks; ++block) send(block);
  };
  if (senders.empty())
    send_all();
  else
    builder_.if_then(senders, send_all);
  builder_.instruction(Instruction::mbarrier_wait, {barrier, mod(floordiv(number, 2), 2)});

  ValueType all{type.dtype, 1, {blocks, count}};
  const ValueOperand loaded = builder_.load(
      parts, {at(position_symbol('e', 0, blocks), position_symbol('e', 1, count))}, all);
  const ValueOperand folded = builder_.fold(op.monoid, loaded, {0});
  set(s.results[0], reshaped(folded, type.extents), axes);
  copy_barrier();
  meetings_ = row(ElementwiseOp::add, {meetings_, builder_.constant(kI32, 1)});
}

// D26, L18: the first thread arrives for all threads.
void PipelinedLowering::lower_op(const TicketOp& op, const Statement& s) {
  const MemoryId counter = memories_[op.memory.index];
  const Expr at = offset(op.memory, op.at, renamed_);
  const MemoryId told = shared("told", DType::Bool, role_.op->copies, 128, exchanges_);
  if (role_.stores_start)
    by_first_thread([&] { builder_.instruction(Instruction::bulk_wait, {Expr(0)}); });
  copy_barrier();
  by_first_thread([&] {
    const ValueId before = builder_.append(
        AtomicOp{false, counter, at, builder_.constant(kI32, 1), true}, {kI32}, "arrived")[0];
    const ValueId count = builder_.iota(uniform(op.count) - 1, kI32);
    const ValueId last = builder_.row(ElementwiseOp::eq, {before, count});
    builder_.store(last, told, {role_.copy});
    IfOp reset;
    reset.flag = last;
    Region zero;
    builder_.enter(zero);
    builder_.store(builder_.constant(kI32, 0), counter, {at});
    builder_.leave();
    reset.then = std::move(zero);
    builder_.append(std::move(reset), {});
  });
  copy_barrier();
  set(s.results[0], builder_.load(told, {role_.copy}, {DType::Bool, 1, {}}), {});
  if (role_.puts) builder_.instruction(Instruction::fence_proxy_async);
}

}  // namespace braze
