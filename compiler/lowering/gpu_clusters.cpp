// gpu_clusters.cpp — where the blocks of a cluster meet and exchange values: D20.
#include <iterator>

#include "compiler/lowering/gpu.h"
#include "ir/code/index_program.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

GpuLowering::Meeting GpuLowering::begin_meeting(DType dtype, int64_t size, const Statement& s) {
  const MemoryId place = add_meeting(dtype, size);
  const Expr met = cluster_exchange_.count++;
  const Expr turn = turn_number(s);
  wait_for_cluster();
  if (!enclosing().empty())
    cluster_barrier();  // then all blocks have read what the previous turn sent
  return {{place}, cluster_exchange_.mbarriers, met, mod(turn, 2)};
}

// How many times the statement has run before in this phase.
Expr GpuLowering::turn_number(const Statement& s) const {
  Expr turn;
  std::vector<Expr> outer;
  for (const Statement* around : enclosing()) {
    const auto* loop = around->as<ForOp>();
    if (!loop) {
      if (!outer.empty()) not_lowered("an exchange between blocks under an `if` in a loop", s);
      continue;
    }
    const Expr low = uniform(loop->low), high = uniform(loop->high), step = uniform(loop->step);
    const Expr turns = max(ceildiv(high - low, step), 0);
    for (const Expr& symbol : outer)
      if (turns.uses(symbol.symbol_name()))
        not_lowered("an exchange between blocks in a loop of changing length", s);
    outer.push_back(loop_symbol(loop->symbol, low, high, step));
    turn = turn * turns + floordiv(outer.back() - low, step);
  }
  return turn;
}

MemoryId GpuLowering::add_meeting(DType dtype, int64_t count) {
  builder_.enter(cluster_exchange_.prologue);
  if (cluster_exchange_.count == 0)
    // `begin_cluster` sets the number of mbarriers.
    cluster_exchange_.mbarriers = builder_.mbarriers("met", 1, 0);
  const MemoryId id = builder_.shared_memory("blocks", dtype, count, shared_);
  builder_.leave();
  claim_shared(count * static_cast<int64_t>(size_of(dtype)));
  return id;
}

// Waits, before the first access to another block's memory, until all blocks run and their
// mbarriers are ready.
void GpuLowering::wait_for_cluster() {
  if (cluster_exchange_.waits) return;
  cluster_exchange_.waits = true;
  if (enclosing().empty())
    builder_.instruction(Instruction::cluster_wait);
  else
    cluster_exchange_.waits_first = true;
}

// A barrier for all threads of the cluster.
void GpuLowering::cluster_barrier() {
  wait_for_cluster();
  builder_.instruction(Instruction::cluster_arrive);
  builder_.instruction(Instruction::cluster_wait);
  accesses_.clear();
}

void GpuLowering::begin_cluster(Region& body) {
  Region& prologue = cluster_exchange_.prologue;
  builder_.enter(prologue);
  if (cluster_exchange_.count > 0) init_mbarriers();
  builder_.instruction(Instruction::cluster_arrive);
  if (cluster_exchange_.waits_first) builder_.instruction(Instruction::cluster_wait);
  builder_.leave();
  body.statements.insert(body.statements.begin(),
                         std::make_move_iterator(prologue.statements.begin()),
                         std::make_move_iterator(prologue.statements.end()));
}

void GpuLowering::init_mbarriers() {
  const MemoryId id = cluster_exchange_.mbarriers;
  kernel_.memories[id.index].shape = {cluster_exchange_.count};
  kernel_.memories[id.index].scratch_offset = shared_;
  claim_shared(cluster_exchange_.count * 8);
  by_first_thread([&] {
    for (int64_t n = 0; n < cluster_exchange_.count; ++n)
      builder_.instruction(Instruction::mbarrier_init, {Place{id, n}, Expr(1)});
    builder_.instruction(Instruction::fence_mbarrier_init);
  });
}

// --- What lies in one block ----------------------------------------------------------------------

// Each block of a cluster has its own copy of a buffer, so it can load only what it stored
// itself.
void GpuLowering::check_buffers(const Region& phase) const {
  const auto check = [&](MemoryId id, const ValueType& tile, const Statement& s) {
    const bool own = std::find(private_.begin(), private_.end(), id) != private_.end();
    if (tile_[id].space != MemorySpace::Local || own || !lies_in_blocks(tile)) return;
    fail(kLayouts,
         fmt::format("kernel @{}: buffer %{} holds {} with the layout {}, so threads of other "
                     "blocks would access it",
                     tile_.name, tile_[id].name, tile.to_string(), layout(tile).to_string()),
         {s.location, {}, "exchange values between blocks by `reduce` only"});
  };
  for_each_statement(phase, [&](const Statement& s) {
    if (const auto* load = s.as<LoadOp>()) check(load->memory, result_type(s), s);
    const auto* store = s.as<StoreOp>();
    if (store && !store->value.is_literal())
      check(store->memory, tile_[store->value.value].type, s);
  });
}

bool GpuLowering::lies_in_blocks(const ValueType& tile) const {
  return !numbered(spread_digits(tile), block_).empty();
}

}  // namespace braze
