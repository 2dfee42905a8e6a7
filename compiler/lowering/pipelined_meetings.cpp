// pipelined_meetings.cpp — reductions over the blocks of a cluster (D20), and tickets (D26).
#include <algorithm>

#include "compiler/lowering/pipelined.h"
#include "ir/code/walk.h"

namespace braze {

namespace {

const ValueType kI32{DType::I32, 1, {}};

// The number of reductions over the cluster in a region, or in its loops only.
int64_t count_meetings(const Region& region, bool in_loops = false) {
  int64_t out = 0;
  for (const Statement& s : region.statements) {
    const auto* fold = s.as<FoldOp>();
    out += !in_loops && fold && fold->cluster;
    for (const Region* inner : regions_of(s))
      out += count_meetings(*inner, in_loops && !s.as<ForOp>());
  }
  return out;
}

}  // namespace

bool PipelinedLowering::has_meeting(const Region& region) { return count_meetings(region) > 0; }

// Prepares the mbarriers of the reductions over the cluster. If loops contain some, all reductions
// are counted, and loops and branches carry their number.
void PipelinedLowering::begin_meetings(const Region& role) {
  meetings_ = {};
  meeting_ = 0;
  meeting_slots_ = count_meetings(role);
  if (meeting_slots_ == 0) return;
  if (count_meetings(role, /*in_loops=*/true) > 0) {
    meetings_ = builder_.constant(kI32, 0);
    meeting_slots_ = 2;
  }
  meeting_barriers_ = mbarriers("meeting", meeting_slots_ * role_.op->copies);
  plain_barriers_.emplace_back(meeting_barriers_, meeting_slots_ * role_.op->copies);
}

ValueOperand* PipelinedLowering::counter(const Region& region) {
  return meetings_.value && has_meeting(region) ? &meetings_ : nullptr;
}

void PipelinedLowering::fold_cluster(const FoldOp& op, const Statement& s) {
  const ValueId tile = op.operand.value;
  const auto axes = axes_of(tile);
  const Digit blocks{Resource::Block, 1, phase_->cluster_size};
  set(s.results[0],
      fold_digit(folder(op.monoid), {as_array(op.operand, axes)}, blocks,
                 thread_digits(layouts_[tile]), s)[0],
      axes);
  if (!meetings_.value) return;
  barrier();
  meetings_ = row(ElementwiseOp::add, {meetings_, builder_.constant(kI32, 1)});
}

// A reduction that runs once has a buffer and an mbarrier of its own. If reductions are counted,
// two of each alternate: a block at reduction n + 1 knows that all blocks have read the values of
// reduction n - 1.
PipelinedLowering::Meeting PipelinedLowering::begin_meeting(DType dtype, int64_t size,
                                                            const Statement&) {
  const bool counted = static_cast<bool>(meetings_.value);
  const int64_t slots = counted ? 2 : 1;
  const MemoryId parts = shared("parts", dtype, role_.op->copies * slots * size, 128, exchanges_);
  const Expr number = counted ? value_symbol(kernel_, meetings_.value) : Expr(meeting_++);
  const Expr turn = role_.copy * Expr(slots) + mod(number, slots);
  return {{parts, turn * Expr(size)},
          meeting_barriers_,
          role_.copy * Expr(meeting_slots_) + mod(number, meeting_slots_),
          mod(floordiv(number, meeting_slots_), 2)};
}

void PipelinedLowering::begin_ticket(const Statement&) {
  if (role_.stores_start)
    by_first_thread([&] { builder_.instruction(Instruction::bulk_wait, {Expr(0)}); });
}

void PipelinedLowering::end_ticket() {
  if (role_.puts) builder_.instruction(Instruction::fence_proxy_async);
}

}  // namespace braze
