// gpu.cpp — the phases of a plain program for a GPU, on-chip memory, and the barriers and waits
// that accesses need: D16.
#include "compiler/lowering/gpu.h"

#include <algorithm>
#include <utility>

#include "compiler/lowering/shared_loads.h"
#include "ir/code/index_program.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr Code kSharedMemory{"shared-memory", ErrorKind::Unsupported,
                             "A kernel needs more on-chip storage than a block can have."};
constexpr int64_t kDefaultWarps = 4;
constexpr int64_t kSharedAlign = 128;

}  // namespace

GpuLowering::GpuLowering(const TileProgram& program, const Target& target)
    : ThreadLowering(program, target),
      block_threads_((program.warps > 0 ? program.warps : kDefaultWarps) * kWarpThreads),
      thread_(thread_symbol(block_threads_)),
      cluster_(program.cluster) {
  threads_ = {{thread_, block_threads_}};
  for (const Value& value : program.values)
    if (value.type.rank() == 0) scalars_.insert("%" + value.name);
  if (cluster_ > 1) block_ = {grid_symbol(builder_.fresh_name("rank"), cluster_), cluster_};
}

void GpuLowering::lower_phase(const Phase& phase) {
  Phase lowered;
  lowered.grid = phase.grid;
  lowered.block = block_threads_;
  lowered.registers = tile_.registers;
  if (cluster_ > 1) lowered.cluster = block_.value.symbol_name();
  lowered.cluster_size = cluster_;
  shared_ = 0;
  cluster_exchange_ = {};
  accesses_.clear();
  under_way_.clear();
  count_uses(phase.body);
  find_dot_roles(phase.body);
  note_private_buffers(phase.body);
  if (cluster_ > 1) check_buffers(phase.body);
  Region body;
  builder_.enter(body);
  lower_region(phase.body);
  end_body();
  builder_.leave();
  lowered.body = std::move(body);
  if (cluster_exchange_.waits) begin_cluster(lowered.body);
  lowered.shared_bytes = shared_;
  check_shared();
  kernel_.phases.push_back(std::move(lowered));
}

void GpuLowering::check_shared() const {
  if (shared_ <= target_.l1_bytes) return;
  fail(kSharedMemory,
       fmt::format("kernel @{} needs {} bytes of shared memory, but a block of {} has only {}",
                   tile_.name, shared_, target_.name, target_.l1_bytes),
       {{}, {}, "choose a schedule with smaller tiles"});
}

void GpuLowering::count_uses(const Region& phase) {
  uses_.assign(tile_.values.size(), 0);
  const auto count = [this](ValueId value) { ++uses_[value.index]; };
  for_each_statement(phase, [&](const Statement& s) {
    for_each_value(s, count);
    for (const Region* region : regions_of(s))
      for (const ValueOperand& yielded : region->yields)
        if (!yielded.is_literal()) count(yielded.value);
  });
}

void GpuLowering::by_first_thread(const std::function<void()>& then) {
  builder_.if_then({{thread_, IndexComparison::Kind::Eq, 0}}, then);
}

// --- Memory --------------------------------------------------------------------------------------

void GpuLowering::place_buffer(Memory& lowered, int64_t bytes) {
  lowered.space = MemorySpace::Shared;
  lowered.scratch_offset = shared_;
  claim_shared(bytes);
}

void GpuLowering::claim_shared(int64_t bytes) {
  shared_ += (bytes + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
}

// Each exchange has its own place; only the turns of a loop share one.
GpuLowering::Exchange GpuLowering::exchange(DType dtype, int64_t count) {
  return {new_buffer("exchange", dtype, count)};
}

// Whether values can pass between the threads of a block through this memory.
bool GpuLowering::passes_values(const Memory& memory) {
  return memory.space != MemorySpace::Parameter || memory.mode != Mode::In;
}

// Notes the memory that needs no barriers, because every access gives each element to the same
// thread: accesses at (base + d_k) with one layout, with bases that are multiples of the tile's
// extents, after coordinates that are the same for all threads.
void GpuLowering::note_private_buffers(const Region& phase) {
  private_.clear();
  std::map<uint32_t, std::vector<int64_t>> shape;  // extents of the tiles that access a memory
  std::map<uint32_t, bool> shared;
  const auto note = [&](MemoryId memory, const std::vector<Expr>& at, const ValueType& tile) {
    if (!passes_values(tile_[memory])) return;
    const auto [known, added] = shape.try_emplace(memory.index, tile.extents);
    const size_t lead = at.size() - std::min(at.size(), tile.rank());
    bool own = known->second == tile.extents && at.size() >= tile.rank() &&
               std::all_of(at.begin(), at.begin() + static_cast<ptrdiff_t>(lead),
                           [&](const Expr& e) { return same_for_all(e); });
    int64_t threads = 1;
    for (const Digit& digit : spread_digits(tile)) threads *= digit.extent;
    own = own && threads == block_threads_ * cluster_;
    for (size_t axis = 0; own && axis < tile.rank(); ++axis) {
      const std::string d = "d" + std::to_string(axis);
      const Expr& coordinate = at[lead + axis];
      const Expr base = coordinate.substitute(d, 0);
      own = base.is_multiple_of(tile.extents[axis]) &&
            (tile.extents[axis] == 1 ||
             coordinate.coefficient_of(d).value_or(Expr(0)).is_constant(1));
    }
    shared[memory.index] = shared[memory.index] || !own;
  };
  std::set<MemoryId> loaded, stored;
  for_each_statement(phase, [&](const Statement& s) {
    if (const auto* load = s.as<LoadOp>()) {
      loaded.insert(load->memory);
      note(load->memory, load->at, result_type(s));
    }
    if (const auto* store = s.as<StoreOp>()) {
      stored.insert(store->memory);
      if (!store->value.is_literal())
        note(store->memory, store->at, tile_[store->value.value].type);
    }
  });
  // Values cannot pass through device memory that is only loaded or only stored.
  const auto one_way = [&](MemoryId id) {
    return tile_[id].space != MemorySpace::Local && !(loaded.contains(id) && stored.contains(id));
  };
  for (const auto& [memory, is_shared] : shared)
    if (!is_shared || one_way(MemoryId(memory))) private_.push_back(MemoryId(memory));
}

// Whether this coordinate is the same for all elements of an access.
bool GpuLowering::same_for_all(const Expr& e) const {
  const std::vector<std::string> names = e.symbols();
  return std::none_of(names.begin(), names.end(), [&](const std::string& name) {
    return is_position_symbol(name, 'd') || (name[0] == '%' && !scalars_.contains(name));
  });
}

bool GpuLowering::is_private(MemoryId memory) const {
  return std::any_of(private_.begin(), private_.end(),
                     [&](MemoryId tile) { return memories_[tile.index] == memory; });
}

// --- Barriers ------------------------------------------------------------------------------------

std::optional<Access> GpuLowering::shared_access(MemoryId tile, const std::vector<Expr>& at,
                                                 bool store) const {
  const MemoryId memory = memories_[tile.index];
  if (!memory || !passes_values(tile_[tile]) || is_private(memory)) return std::nullopt;
  return Access{memory, store, uniform_slot(at)};
}

// D16: inserts the waits and barriers that an access needs. A buffer needs none if each of its
// elements is accessed by one thread only.
void GpuLowering::before_access(MemoryId memory, bool store, const Slot& slot) {
  if (passes_values(kernel_[memory]) && !is_private(memory)) wait_for({memory, store, slot});
}

void GpuLowering::wait_for(const Access& access) {
  wait_for_copies_to(access.memory, access.slot);
  wait_for_threads(access);
  accesses_.note(access);
}

void GpuLowering::wait_for_threads(const Access& access) {
  if (!accesses_.needs_barrier(access)) return;
  if (cluster_ > 1 && kernel_[access.memory].space != MemorySpace::Shared)
    cluster_barrier();
  else
    barrier();
}

void GpuLowering::barrier() {
  if (!rehearses_) builder_.barrier(0, block_threads_);
  accesses_.clear();
}

// --- Loops and branches --------------------------------------------------------------------------

void GpuLowering::enter_turns(const ForOp& loop, const std::vector<Access>& turn) {
  Turns turns{symbols_of_turns(loop)};
  enter_copies(loop, turns);
  if (!turns.copies)
    for (const Access& access : turn) wait_for_copies_to(access.memory, access.slot);
  loops_.push_back(std::move(turns));
}

// If it is known what a turn leaves pending, every turn begins with that. Where it is more than
// what is pending before the loop, one barrier in front of the loop serves the first turn.
void GpuLowering::enter_loop(const ForOp& loop) {
  ThreadLowering::enter_loop(loop);
  const auto left = left_by_turn(loop);
  if (!left) return;
  const Expr step = uniform(loop.step);
  if (!accesses_.precedes_turns(left->at(loop.symbol, uniform(loop.low) - step))) {
    barrier();
    accesses_.forget_before_turns();
  }
  accesses_.begin_turns(left->at(loop.symbol, turn_symbol(loop) - step));
}

Expr GpuLowering::turn_symbol(const ForOp& loop) const {
  return loop_symbol(loop.symbol, uniform(loop.low), uniform(loop.high), uniform(loop.step));
}

// What a turn of the loop leaves pending, over its own symbol: what it does after its last
// barrier. This is known for turns that only load, store and compute, because these can be gone
// through in advance. Called with everything pending that a turn does.
std::optional<Accesses::State> GpuLowering::left_by_turn(const ForOp& loop) {
  const auto is_plain = [](const Statement& s) {
    return s.as<LetOp>() || s.as<ConstOp>() || s.as<IndexOp>() || s.as<TestOp>() ||
           s.as<LoadOp>() || s.as<StoreOp>() || s.as<RowOp>() || s.as<TileDotOp>();
  };
  if (cluster_ > 1 || !std::ranges::all_of(loop.body->statements, is_plain)) return std::nullopt;
  const Accesses everything = accesses_;
  std::set<std::string> symbols = loops_.back().symbols;
  symbols.erase(loop.symbol);
  const auto end_of_turn = [&] {
    const auto under_way = under_way_;
    rehearses_ = true;
    for (size_t i = 0; i < loop.body->statements.size(); ++i) {
      const Statement& s = loop.body->statements[i];
      if (const size_t copies = lower_copies(*loop.body, i)) {
        i += copies - 1;
      } else if (const auto* load = s.as<LoadOp>()) {
        before_access(memories_[load->memory.index], /*store=*/false, uniform_slot(load->at));
      } else if (const auto* store = s.as<StoreOp>()) {
        before_access(memories_[store->memory.index], /*store=*/true, uniform_slot(store->at));
      }
    }
    end_body();
    rehearses_ = false;
    under_way_ = under_way;
    Accesses::State out = accesses_.state().same_in_turns(symbols);
    accesses_ = everything;
    return out;
  };
  const Accesses::State first = end_of_turn();
  accesses_.set_state(first.at(loop.symbol, turn_symbol(loop) - uniform(loop.step)));
  const Accesses::State next = end_of_turn();
  if (!first.covers(next)) return std::nullopt;
  return first;
}

void GpuLowering::end_body() {
  const std::optional<size_t> left = loops_.empty() ? 0 : loops_.back().copies;
  if (left == 0u)
    end_copies();
  else if (left)
    wait_for_copies(*left);
}

void GpuLowering::leave_loop() {
  const Turns turns = std::move(loops_.back());
  loops_.pop_back();
  for (Group& group : under_way_)
    for (Copied& copied : group) copied.slot = same_in_turns(copied.slot, turns.symbols);
  // If no turn ran, what was pending before the loop is pending after it.
  while (under_way_.size() < turns.copies.value_or(0))
    under_way_.insert(under_way_.begin(), turns.targets);
  ThreadLowering::leave_loop();
}

void GpuLowering::enter_branches() {
  branches_.push_back(under_way_);
  ThreadLowering::enter_branches();
}

void GpuLowering::leave_branch() {
  under_way_ = branches_.back();
  ThreadLowering::leave_branch();
}

void GpuLowering::leave_branches() {
  branches_.pop_back();
  ThreadLowering::leave_branches();
}

Kernel lower_for_gpu(const TileProgram& program, const Target& target) {
  Kernel kernel = GpuLowering(program, target).run();
  share_loads(kernel);
  return kernel;
}

}  // namespace braze
