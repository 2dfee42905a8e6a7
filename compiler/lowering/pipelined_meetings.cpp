// pipelined_meetings.cpp — reductions over the blocks of a cluster (D20), and tickets (D26).
#include <algorithm>

#include "compiler/lowering/pipelined.h"
#include "ir/code/walk.h"

namespace braze {

namespace {

constexpr int64_t kVectorBytes = 16;
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

// A reduction that runs once has a buffer and an mbarrier of its own. If reductions are counted,
// two of each alternate: a block at reduction n + 1 knows that all blocks have read the values of
// reduction n - 1.
void PipelinedLowering::fold_cluster(const FoldOp& op, const Statement& s) {
  const ValueId tile = op.operand.value;
  const auto axes = axes_of(tile);
  const ValueOperand value = as_array(op.operand, axes);
  const ValueType type = type_of(value);
  const Layout& layout = layouts_[tile];
  const int64_t blocks = phase_->cluster_size;
  // Neighbouring lanes have neighbouring numbers.
  std::vector<Digit> digits = thread_digits(layout);
  std::ranges::sort(digits, {}, [](const Digit& digit) {
    return std::pair(digit.resource != Resource::Lane, digit.stride);
  });
  const auto [thread, threads] = number_among(digits);
  const int64_t count = type.count(), part = count * threads;
  const auto bytes = static_cast<int64_t>(size_of(type.dtype));
  const bool counted = static_cast<bool>(meetings_.value);
  const int64_t slots = counted ? 2 : 1;
  const MemoryId parts =
      shared("parts", type.dtype, role_.op->copies * slots * blocks * part, 128, exchanges_);
  const Expr number = counted ? value_symbol(kernel_, meetings_.value) : Expr(meeting_++);
  const Expr turn = role_.copy * Expr(slots) + mod(number, slots);
  const Place barrier{meeting_barriers_,
                      role_.copy * Expr(meeting_slots_) + mod(number, meeting_slots_)};
  int64_t together = kVectorBytes / bytes;
  while (count % together != 0) together /= 2;
  // The vectors of neighbouring threads lie side by side, in different banks.
  const auto at = [&](const Expr& block, const Expr& vector) {
    const Expr all = (turn * Expr(blocks) + block) * Expr(count / together) + vector;
    return (all * Expr(threads) + thread) * Expr(together);
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
  const Expr rank = grid_symbol(phase_->cluster, blocks);
  const auto send = [&](const Expr& target) {
    const ValueOperand flat = reshaped(value, {count});
    for (int64_t i = 0; i < count; i += together) {
      const ValueId some = together == count ? flat.value
                                             : builder_.view(ViewKind::Slice, flat,
                                                             {type.dtype, 1, {together}}, {i});
      Place place{parts, at(rank, i / together)}, full = barrier;
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
  builder_.instruction(Instruction::mbarrier_wait,
                       {barrier, mod(floordiv(number, meeting_slots_), 2)});

  const auto lanes = static_cast<int32_t>(together);
  const Expr from = at(position_symbol('e', 0, blocks), position_symbol('e', 1, count / together));
  LoadOp load{parts, {together > 1 ? from + lane_symbol(lanes) : from}, {}};
  load.align = together * bytes;
  const ValueOperand loaded = builder_.append(
      std::move(load), {{type.dtype, lanes, {blocks, count / together}}}, "parts")[0];
  const ValueOperand all = builder_.regroup(loaded, {type.dtype, 1, {blocks, count}});
  const ValueOperand folded = builder_.fold(op.monoid, all, {0});
  set(s.results[0], reshaped(folded, type.extents), axes);
  if (!counted) return;
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
