// gpu.cpp — lowers plain tile programs for a GPU: sections 7.3, 7.5 and 10 of docs/ir/languages.md.
// An instance is a thread block or a cluster of blocks. A layout says which thread of which block
// holds each element of a tile, and in which register.
//
// A tile keeps its axes. The outermost register digit of an axis becomes an extent of the array,
// and the innermost register digit of the last axis becomes the lanes of vector accesses.
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "compiler/lowering/threads.h"
#include "ir/code/dot_layouts.h"
#include "ir/code/index_program.h"
#include "ir/code/layout.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr Code kSharedMemory{"shared-memory", ErrorKind::Unsupported,
                             "A kernel needs more on-chip storage than a block can have."};
constexpr Code kLayouts{
    "layouts-disagree", ErrorKind::InvalidArgument,
    "The layouts of a tile program put tiles that are combined in different threads."};
constexpr int64_t kDefaultWarps = 4;
constexpr int64_t kSharedAlign = 128;
constexpr int64_t kMostLanes = 64;  // of a value of the Kernel IR

// The digits of an axis: an array in registers, threads and blocks, and lanes of a vector access.
// `inner` neighbours of each thread along the axis are the innermost part of the array.
struct AxisDigits {
  int64_t array = 1, inner = 1;
  std::vector<Digit> spread;  // the most significant first
  int64_t lanes = 1;
};

class GpuLowering : public ThreadLowering {
 public:
  GpuLowering(const TileProgram& program, const Target& target)
      : ThreadLowering(program, target),
        block_threads_((program.warps > 0 ? program.warps : kDefaultWarps) * kWarpThreads),
        thread_(thread_symbol(block_threads_)),
        cluster_(program.cluster) {
    threads_ = {{thread_, block_threads_}};
    for (const Value& value : program.values)
      if (value.type.rank() == 0) scalars_.insert("%" + value.name);
    if (cluster_ > 1) block_ = {grid_symbol(builder_.fresh_name("rank"), cluster_), cluster_};
  }

 private:
  void lower_phase(const Phase& phase) override {
    Phase lowered;
    lowered.grid = phase.grid;
    lowered.barrier = phase.barrier;
    lowered.block = block_threads_;
    lowered.registers = tile_.registers;
    if (cluster_ > 1) lowered.cluster = block_.value.symbol_name();
    lowered.cluster_size = cluster_;
    shared_ = 0;
    cluster_exchange_ = {};
    accesses_.clear();
    under_way_.clear();
    count_uses(phase.body);
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
  void check_shared() const {
    if (shared_ <= target_.l1_bytes) return;
    fail(kSharedMemory,
         fmt::format("kernel @{} needs {} bytes of shared memory, but a block of {} has only {}",
                     tile_.name, shared_, target_.name, target_.l1_bytes),
         {{}, {}, "choose a schedule with smaller tiles"});
  }

  // --- Layouts ----------------------------------------------------------------------------------

  const Layout& layout(const ValueType& tile) const {
    auto [found, added] = layouts_.try_emplace(tile.extents);
    if (added) found->second = layout_of(tile_.layouts, tile.extents, block_threads_);
    return found->second;
  }

  // Along every axis that both have, the elements of `part` must be in the same threads and
  // registers as those of `whole`.
  void check_agrees(const ValueType& part, const ValueType& whole, const Statement& s) const {
    for (size_t axis = 0; axis < part.rank() && part.rank() == whole.rank(); ++axis) {
      if (part.extents[axis] == 1 || part.extents[axis] != whole.extents[axis]) continue;
      const auto own = digits(part, axis), other = digits(whole, axis);
      if (same_digits(own, other)) continue;
      fail(kLayouts,
           fmt::format("kernel @{}: axis {} of {} has the layout {}, but that of {} has {}, so "
                       "their elements are in different threads",
                       tile_.name, axis, part.to_string(), layout(part).to_string(),
                       whole.to_string(), layout(whole).to_string()),
           {s.location,
            {},
            "define one layout that fits both, and put it before the other layouts"});
    }
  }

  std::vector<ValueOperand> row_operands(const RowOp& op, const Statement& s) override {
    for (const ValueOperand& operand : op.operands)
      if (!operand.is_literal()) check_agrees(tile_[operand.value].type, result_type(s), s);
    return Lowering::row_operands(op, s);
  }

  // Whether an extent can be the lanes of a vector. A row in one thread may have any extent.
  static bool is_vector(int64_t extent) {
    return std::has_single_bit(static_cast<uint64_t>(extent)) && extent <= kMostLanes;
  }

  // Nothing if the digits have another order than arrays, threads and vectors need.
  static std::optional<AxisDigits> digits(const std::vector<Digit>& list, bool last_axis) {
    AxisDigits out;
    for (size_t i = 0; i < list.size(); ++i) {
      const bool last = i + 1 == list.size();
      if (is_spread(list[i])) {
        out.spread.push_back(list[i]);
      } else if (last && last_axis && list[i].stride == 1 && is_vector(list[i].extent)) {
        out.lanes = list[i].extent;
      } else if (i == 0) {
        out.array = list[i].extent;
      } else if (last && !out.spread.empty()) {
        out.inner = list[i].extent;
        out.array *= out.inner;
      } else {
        return std::nullopt;
      }
    }
    return out;
  }
  AxisDigits digits(const ValueType& tile, size_t axis) const {
    auto found = digits(layout(tile).axes[axis], axis + 1 == tile.rank());
    if (!found) not_lowered(fmt::format("the layout {}", layout(tile).to_string()));
    return *std::move(found);
  }

  ValueType lower_type(const ValueType& tile) const {
    ValueType out = tile;
    for (size_t axis = 0; axis < tile.rank(); ++axis) {
      const AxisDigits own = digits(tile, axis);
      out.extents[axis] = own.array;
      if (axis + 1 == tile.rank()) out.lanes = static_cast<int32_t>(own.lanes);
    }
    return out;
  }

  ValueType array_type(ValueId tile) const override { return lower_type(tile_[tile].type); }
  Form form(ValueId tile) const override {
    const ValueType& type = tile_[tile].type;
    return {lower_type(type), positions(type)};
  }
  Positions positions(const ValueType& tile) const {
    Positions map = renamed_;
    for (size_t axis = 0; axis < tile.rank(); ++axis)
      map["d" + std::to_string(axis)] = position(axis, tile);
    return map;
  }

  // If a bound and the other terms of the compared coordinate are multiples of the lanes, the bound
  // never divides a vector.
  Condition per_vector(Condition condition, int32_t lanes) const override {
    const auto begins = [&](const Expr& e) {
      const Expr first = e.substitute("lane", 0);
      return first.is_multiple_of(lanes) &&
             (e - first == Expr(0) || e - first == lane_symbol(lanes));
    };
    for (IndexComparison& c : condition) {
      if (lanes == 1 || !begins(c.left) || !begins(c.right)) continue;
      const bool below = c.kind == IndexComparison::Kind::Lt && !c.right.uses("lane");
      const bool above = c.kind == IndexComparison::Kind::Le && !c.left.uses("lane");
      if (below) c.left = c.left.substitute("lane", 0);
      if (above) c.right = c.right.substitute("lane", 0);
    }
    return condition;
  }

  // D3: the sum of the digits' values times their weights.
  Expr position(size_t axis, const ValueType& tile) const {
    const AxisDigits own = digits(tile, axis);
    Expr sum;
    int64_t weight = 1;
    if (own.lanes > 1) sum += lane_symbol(static_cast<int32_t>(own.lanes));
    weight *= own.lanes;
    const Expr element = position_symbol('e', axis, own.array);
    if (own.inner > 1) sum += mod(element, own.inner) * Expr(weight);
    weight *= own.inner;
    // Digits whose numbers continue each other are combined to one digit.
    for (size_t i = own.spread.size(); i-- > 0;) {
      const Number& number = number_of(own.spread[i]);
      const int64_t stride = stride_of(own.spread[i]);
      int64_t extent = own.spread[i].extent;
      while (i > 0 && &number_of(own.spread[i - 1]) == &number &&
             stride_of(own.spread[i - 1]) == stride * extent)
        extent *= own.spread[--i].extent;
      sum += part_of(number, stride, extent) * Expr(weight);
      weight *= extent;
    }
    if (own.array > own.inner) sum += floordiv(element, own.inner) * Expr(weight);
    return sum;
  }

  std::vector<Digit> spread_digits(const ValueType& tile) const {
    std::vector<Digit> out;
    for (const std::vector<Digit>& axis : layout(tile).axes)
      std::copy_if(axis.begin(), axis.end(), std::back_inserter(out), is_spread);
    return out;
  }
  // D5: of all threads that hold an element, only one stores it.
  Condition single_store(ValueId tile) const override { return single_store(tile_[tile].type); }
  Condition single_store(const ValueType& tile) const {
    const std::vector<Digit> used = spread_digits(tile);
    Condition out = first_of(used);
    if (cluster_ == 1) return out;
    const Condition block = first_of(used, block_);
    out.insert(out.end(), block.begin(), block.end());
    return out;
  }

  // --- Shared memory and barriers ---------------------------------------------------------------

  void place_buffer(Memory& lowered, int64_t bytes) override {
    lowered.space = MemorySpace::Shared;
    lowered.scratch_offset = shared_;
    claim_shared(bytes);
  }
  void claim_shared(int64_t bytes) {
    shared_ += (bytes + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
  }

  // Whether values can pass between the threads of a block through this memory.
  static bool passes_values(const Memory& memory) {
    return memory.space != MemorySpace::Parameter || memory.mode != Mode::In;
  }

  std::optional<Access> shared_access(MemoryId tile, const std::vector<Expr>& at,
                                      bool store) const override {
    const MemoryId memory = memories_[tile.index];
    if (!memory || !passes_values(tile_[tile]) || is_private(memory)) return std::nullopt;
    return Access{memory, store, uniform_slot(at)};
  }
  // D16: inserts the waits and barriers that an access needs. A buffer needs none if each of its
  // elements is accessed by one thread only.
  void before_access(MemoryId memory, bool store, const Slot& slot) override {
    if (passes_values(kernel_[memory]) && !is_private(memory)) wait_for({memory, store, slot});
  }
  void wait_for(const Access& access) override {
    land(access.memory, access.slot);
    wait_for_threads(access);
    accesses_.note(access);
  }
  void wait_for_threads(const Access& access) {
    if (!accesses_.needs_barrier(access)) return;
    if (cluster_ > 1 && kernel_[access.memory].space != MemorySpace::Shared)
      cluster_barrier();
    else
      barrier();
  }

  // A place to which asynchronous copies may still write. A thread waits for its groups of copies
  // in the order in which it started them. A barrier then makes them visible to the other threads.
  struct Copied {
    MemoryId memory;  // a memory of the tile program
    Slot slot;
    friend bool operator==(const Copied&, const Copied&) = default;
  };
  using Group = std::vector<Copied>;

  // The copies of a loop whose body is being lowered.
  struct Turns {
    std::set<std::string> symbols;      // symbols that differ between turns
    std::optional<size_t> copies = {};  // the greatest number of groups under way between turns
    Group targets = {};                 // where these copies write
  };

  void enter_turns(const ForOp& loop, const std::vector<Access>& turn) override {
    Turns turns{symbols_of_turns(loop)};
    enter_copies(loop, turns);
    if (!turns.copies)
      for (const Access& access : turn) land(access.memory, access.slot);
    loops_.push_back(std::move(turns));
  }

  // If it is known what a turn leaves pending, every turn begins with that. Where it is more than
  // what is pending before the loop, one barrier in front of the loop serves the first turn.
  void enter_loop(const ForOp& loop) override {
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

  Expr turn_symbol(const ForOp& loop) const {
    return loop_symbol(loop.symbol, uniform(loop.low), uniform(loop.high), uniform(loop.step));
  }

  // What a turn of the loop leaves pending, over its own symbol: what it does after its last
  // barrier. This is known for turns that only load, store and compute, because these can be gone
  // through in advance. Called with everything pending that a turn does.
  std::optional<Accesses::State> left_by_turn(const ForOp& loop) {
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

  void leave_loop() override {
    const Turns turns = std::move(loops_.back());
    loops_.pop_back();
    for (Group& group : under_way_)
      for (Copied& copied : group) copied.slot = same_in_turns(copied.slot, turns.symbols);
    // If no turn ran, what was pending before the loop is pending after it.
    while (under_way_.size() < turns.copies.value_or(0))
      under_way_.insert(under_way_.begin(), turns.targets);
    ThreadLowering::leave_loop();
  }

  void enter_branches() override {
    branches_.push_back(under_way_);
    ThreadLowering::enter_branches();
  }
  void leave_branch() override {
    under_way_ = branches_.back();
    ThreadLowering::leave_branch();
  }
  void leave_branches() override {
    branches_.pop_back();
    ThreadLowering::leave_branches();
  }

  // --- Asynchronous copies: D29 -----------------------------------------------------------------

  // Waits for the copies that may overlap with an access.
  void land(MemoryId memory, const Slot& slot) {
    const auto meets = [&](const Group& group) {
      return std::any_of(group.begin(), group.end(), [&](const Copied& copied) {
        return memories_[copied.memory.index] == memory && may_meet(copied.slot, slot);
      });
    };
    const auto youngest = std::find_if(under_way_.rbegin(), under_way_.rend(), meets);
    if (youngest == under_way_.rend()) return;
    wait_for_copies(static_cast<size_t>(youngest - under_way_.rbegin()));
    barrier();
  }
  // Waits until at most `left` groups may be under way.
  void wait_for_copies(size_t left) {
    if (under_way_.size() <= left) return;
    if (!rehearses_)
      builder_.instruction(Instruction::cp_async_wait, {Expr(static_cast<int64_t>(left))});
    under_way_.erase(under_way_.begin(), under_way_.end() - static_cast<std::ptrdiff_t>(left));
  }
  // Waits until the `left` youngest groups of copies may be under way. A barrier before the next
  // access makes the others visible.
  void end_copies(size_t left = 0) {
    for (size_t i = 0; i + left < under_way_.size(); ++i)
      for (const Copied& copied : under_way_[i])
        accesses_.note_stored(memories_[copied.memory.index]);
    wait_for_copies(left);
  }

  // Notes the copies under way when a turn begins. The copies that stand before the loop are those
  // that earlier turns would have made; as many stay under way between turns. Copies in inner loops
  // end with each turn.
  void enter_copies(const ForOp& loop, Turns& turns) {
    const std::vector<Group> groups = copies_of(*loop.body);
    bool inside = false;
    for (const Statement& s : loop.body->statements) inside = inside || has_copies_inside(s);
    if (groups.empty() && !inside) return;
    const Expr low = uniform(loop.low), step = uniform(loop.step);
    const Expr symbol = loop_symbol(loop.symbol, low, uniform(loop.high), step);
    const auto turn_at = [&](const Expr& index) {
      std::vector<Group> made = groups;
      for (Group& group : made)
        for (Copied& copied : group)
          copied.slot = copied.slot->substitute(symbol.symbol_name(), index);
      return made;
    };
    size_t count = 0;
    if (!inside) {
      for (auto last = under_way_.end();
           std::cmp_less_equal(groups.size(), last - under_way_.begin()); ++count) {
        const auto first = last - static_cast<std::ptrdiff_t>(groups.size());
        const auto made = turn_at(low - Expr(static_cast<int64_t>(count) + 1) * step);
        if (!std::equal(first, last, made.begin())) break;
        last = first;
      }
    }
    end_copies(count * groups.size());
    for (const Group& group : groups)
      for (const Copied& copied : group) turns.targets.push_back({copied.memory, std::nullopt});
    turns.copies = inside ? 0 : std::max<size_t>(count, 1) * groups.size();
    under_way_.clear();
    for (size_t before = *turns.copies / std::max<size_t>(groups.size(), 1); before > 0; --before)
      for (Group& group : turn_at(symbol - Expr(static_cast<int64_t>(before)) * step))
        under_way_.push_back(std::move(group));
  }
  void end_body() override {
    const std::optional<size_t> left = loops_.empty() ? 0 : loops_.back().copies;
    if (left == 0u)
      end_copies();
    else if (left)
      wait_for_copies(*left);
  }
  size_t lower_copies(const Region& region, size_t first) override {
    Group group;
    size_t at = first;
    for (; joins(group, region, at); at += 2) {
      const auto& load = *region.statements[at].as<LoadOp>();
      const auto& store = *region.statements[at + 1].as<StoreOp>();
      const MemoryId target = memories_[store.memory.index];
      const auto slot = uniform_slot(store.at);
      land(target, slot);
      wait_for_threads({target, true, slot});
      if (!rehearses_) copy(load, store, result_type(region.statements[at]));
      group.push_back({store.memory, slot});
    }
    if (group.empty()) return 0;
    if (!rehearses_) builder_.instruction(Instruction::cp_async_commit);
    under_way_.push_back(std::move(group));
    return at - first;
  }

  // Whether the copy at `at` joins the group. Copies side by side are one group, except copies to
  // the same memory.
  bool joins(const Group& group, const Region& region, size_t at) {
    if (!is_copy(region, at)) return false;
    const MemoryId target = region.statements[at + 1].as<StoreOp>()->memory;
    return std::none_of(group.begin(), group.end(),
                        [&](const Copied& copied) { return copied.memory == target; });
  }
  std::vector<Group> copies_of(const Region& region) {
    std::vector<Group> groups;
    for (size_t at = 0; at < region.statements.size(); ++at) {
      if (!is_copy(region, at)) continue;
      Group group;
      for (; joins(group, region, at); at += 2) {
        const auto& store = *region.statements[at + 1].as<StoreOp>();
        group.push_back({store.memory, uniform_slot(store.at)});
      }
      groups.push_back(std::move(group));
      --at;
    }
    return groups;
  }
  bool has_copies(const Region& region) {
    for (size_t at = 0; at < region.statements.size(); ++at)
      if (is_copy(region, at) || has_copies_inside(region.statements[at])) return true;
    return false;
  }
  // Branches have no asynchronous copies, because it would be unknown which copies are under way
  // after them.
  bool has_copies_inside(const Statement& s) {
    const auto regions = regions_of(s);
    return !s.as<IfOp>() && std::any_of(regions.begin(), regions.end(),
                                        [&](const Region* region) { return has_copies(*region); });
  }

  // Whether a load and the store after it are an asynchronous copy: the store puts what was loaded
  // into a buffer, in the same layout, and nothing else uses the value. This is decided once,
  // because loops look ahead.
  bool is_copy(const Region& region, size_t at) {
    if (at + 1 >= region.statements.size()) return false;
    const Statement& s = region.statements[at];
    const auto* load = s.as<LoadOp>();
    const auto* store = region.statements[at + 1].as<StoreOp>();
    if (!load || !store || store->value.is_literal() || store->value.value != s.results[0])
      return false;
    const auto [known, added] = decided_.try_emplace(&s, false);
    if (added) known->second = passes(*load, *store, result_type(s));
    return known->second;
  }
  bool passes(const LoadOp& load, const StoreOp& store, const ValueType& tile) const {
    const bool in_branch = !branches_.empty();
    const Memory &from = tile_[load.memory], &to = tile_[store.memory];
    const bool plain = from.space == MemorySpace::Parameter && from.mode == Mode::In &&
                       to.space == MemorySpace::Local &&
                       std::ranges::count(private_, store.memory) == 0 && !load.guard.mask &&
                       !store.guard.mask && store.guard.condition.empty() &&
                       (load.guard.condition.empty() || load.fill == 0) && uniform_slot(store.at) &&
                       is_floating(tile.dtype);
    if (in_branch || cluster_ > 1 || !plain || uses_[store.value.value.index] != 1 ||
        !single_store(tile).empty())
      return false;
    const ValueType type = lower_type(tile);
    const auto size = static_cast<int64_t>(size_of(type.dtype));
    const int64_t bytes = type.lanes * size;
    const Positions map = positions(tile);
    const auto in_a_row = [&](MemoryId memory, const std::vector<Expr>& at) {
      const Expr e = offset(memory, at, map);
      return bytes == size || (e - e.substitute("lane", 0) == lane_symbol(type.lanes) &&
                               alignment(memory, e) >= bytes);
    };
    const auto whole = [&](const IndexComparison& c) {
      return is_ascending(c) && !c.left.uses("lane") && !c.right.uses("lane");
    };
    const Condition condition =
        per_vector(ascending(substitute(load.guard.condition, map)), type.lanes);
    return (bytes == 4 || bytes == 8 || bytes == 16) && in_a_row(load.memory, load.at) &&
           in_a_row(store.memory, store.at) &&
           std::all_of(condition.begin(), condition.end(), whole);
  }

  static bool is_ascending(const IndexComparison& c) {
    return c.kind == IndexComparison::Kind::Lt || c.kind == IndexComparison::Kind::Le;
  }
  // The same condition by `<` and `<=` in place of `>` and `>=`.
  static Condition ascending(Condition condition) {
    for (IndexComparison& c : condition) {
      const bool greater = c.kind == IndexComparison::Kind::Gt;
      if (!greater && c.kind != IndexComparison::Kind::Ge) continue;
      std::swap(c.left, c.right);
      c.kind = greater ? IndexComparison::Kind::Lt : IndexComparison::Kind::Le;
    }
    return condition;
  }

  // Copies one vector at a time. If its condition is false, no byte of the vector is read.
  void copy(const LoadOp& load, const StoreOp& store, const ValueType& tile) {
    const ValueType type = lower_type(tile);
    const int64_t bytes = type.lanes * static_cast<int64_t>(size_of(type.dtype));
    const Positions map = positions(tile);
    Expr read = bytes;
    for (const IndexComparison& c :
         per_vector(ascending(substitute(load.guard.condition, map)), type.lanes)) {
      const bool less = c.kind == IndexComparison::Kind::Lt;
      read = read * min(max(c.right - c.left + Expr(less ? 0 : 1), 0), 1);
    }
    const Expr source = offset(load.memory, load.at, map).substitute("lane", 0),
               target = offset(store.memory, store.at, map).substitute("lane", 0);
    for (int64_t n = 0; n < type.count(); ++n) {
      Positions element;
      int64_t rest = n;
      for (size_t axis = type.rank(); axis-- > 0; rest /= type.extents[axis])
        element["e" + std::to_string(axis)] = rest % type.extents[axis];
      builder_.instruction(Instruction::cp_async,
                           {Place{memories_[store.memory.index], target.substitute(element)},
                            Place{memories_[load.memory.index], source.substitute(element)},
                            Expr(bytes), read.substitute(element)});
    }
  }

  void count_uses(const Region& phase) {
    uses_.assign(tile_.values.size(), 0);
    const auto count = [this](ValueId value) { ++uses_[value.index]; };
    for_each_statement(phase, [&](const Statement& s) {
      for_each_value(s, count);
      for (const Region* region : regions_of(s))
        for (const ValueOperand& yielded : region->yields)
          if (!yielded.is_literal()) count(yielded.value);
    });
    find_dot_roles(phase);
  }

  // A value that a loop carries has the role of those from which it comes; a load has that of the
  // dots to which its value goes.
  void find_dot_roles(const Region& phase) {
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
        if (const uint32_t first = first_of_same(v);
            used.contains(first) && !refused.contains(first))
          dot_roles_.emplace(ValueId(v), static_cast<int>(role));
    }
  }

  const std::vector<ValueOperand>* parts_of(const ValueOperand& value) const override {
    const auto found = value.is_literal() ? fragments_.end() : fragments_.find(value.value);
    return found == fragments_.end() ? nullptr : &found->second;
  }
  void define_parts(ValueId value, std::vector<ValueOperand> parts) override {
    fragments_.insert_or_assign(value, std::move(parts));
  }

  void by_first_thread(const std::function<void()>& then) override {
    builder_.if_then({{thread_, IndexComparison::Kind::Eq, 0}}, then);
  }
  void barrier() override {
    if (!rehearses_) builder_.barrier(0, block_threads_);
    accesses_.clear();
  }
  // A barrier for all threads of the cluster.
  void cluster_barrier() {
    wait_for_cluster();
    builder_.instruction(Instruction::cluster_arrive);
    builder_.instruction(Instruction::cluster_wait);
    accesses_.clear();
  }

  // Notes the memory that needs no barriers, because every access gives each element to the same
  // thread: accesses at (base + d_k) with one layout, with bases that are multiples of the tile's
  // extents, after coordinates that are the same for all threads.
  void note_private_buffers(const Region& phase) {
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
  bool same_for_all(const Expr& e) const {
    const std::vector<std::string> names = e.symbols();
    return std::none_of(names.begin(), names.end(), [&](const std::string& name) {
      return is_position_symbol(name, 'd') || (name[0] == '%' && !scalars_.contains(name));
    });
  }

  // Each block of a cluster has its own copy of a buffer, so it can load only what it stored
  // itself.
  void check_buffers(const Region& phase) const {
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
  bool lies_in_blocks(const ValueType& tile) const {
    return !numbered(spread_digits(tile), block_).empty();
  }

  bool is_private(MemoryId memory) const {
    return std::any_of(private_.begin(), private_.end(),
                       [&](MemoryId tile) { return memories_[tile.index] == memory; });
  }

  // Each exchange has its own place; only the turns of a loop share one.
  Exchange exchange(DType dtype, int64_t count) override {
    Memory memory{.name = "exchange",
                  .space = MemorySpace::Local,
                  .mode = Mode::InOut,
                  .dtype = dtype,
                  .shape = {Expr(count)}};
    place_buffer(memory, count * static_cast<int64_t>(size_of(dtype)));
    const MemoryId id = builder_.add_memory(std::move(memory));
    builder_.append(BufferOp{id}, {});
    return {id};
  }

  // --- Reductions: D6 ---------------------------------------------------------------------------

  // The tile type with an axis folded.
  static ValueType folded(ValueType tile, size_t axis) {
    tile.extents[axis] = 1;
    return tile;
  }

  void lower_fold(const FoldOp& op, const Statement& s) override {
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

  void lower_arg_fold(const ArgFoldOp& op, const Statement& s) override {
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

  // L12: a scan along registers of a thread, lanes of a warp or warps of a block. A scan along
  // several of these goes through shared memory, step by step.
  void lower_scan(const TileScanOp& op, const Statement& s) override {
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

  Scanned scan_registers(const TileScanOp& op, const Tuple& parts, size_t axis) {
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

  // Whether the digit's value in this thread is at least `n`, counted in the direction of the scan.
  ValueOperand at_least(const TileScanOp& op, const Digit& digit, int64_t n) {
    const Expr at = digit_value(digit);
    const Expr order = op.reverse ? Expr(digit.extent - 1) - at : at;
    return builder_.test({{order, IndexComparison::Kind::Ge, n}}, {DType::Bool, 1, {}});
  }

  Scanned scan_lanes(const TileScanOp& op, Tuple parts, const Digit& digit) {
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
        out.push_back(
            row(ElementwiseOp::select, {flag(condition, then[i]), then[i], otherwise[i]}));
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

  // A condition in the form that a row with `like` needs.
  ValueOperand flag(const ValueOperand& condition, const ValueOperand& like) {
    return splat_to(condition, type_of(like));
  }

  // Every thread scans the values of all warps, and selects its own result.
  Scanned scan_warps(const TileScanOp& op, const Tuple& parts, const Digit& digit,
                     const std::vector<Digit>& others) {
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
            dropped(builder_.view(ViewKind::Slice, scanned, slice, std::move(at)));
        const Condition own{{digit_value(digit), IndexComparison::Kind::Eq, warp}};
        part = warp == 0
                   ? of_warp
                   : row(ElementwiseOp::select,
                         {flag(builder_.test(own, {DType::Bool, 1, {}}), of_warp), of_warp, part});
      }
    }
    return out;
  }

  // --- Clusters: D20 ----------------------------------------------------------------------------

  // The exchanges between blocks in a phase. Each has its own place and mbarrier, which are made
  // before the blocks of the cluster first meet.
  struct ClusterExchange {
    Region prologue;
    MemoryId mbarriers;
    int64_t count = 0;         // number of mbarriers
    bool waits = false;        // whether the first meeting is over
    bool waits_first = false;  // whether that meeting stands in the prologue
  };

  Meeting begin_meeting(DType dtype, int64_t size, const Statement& s) override {
    const MemoryId place = add_meeting(dtype, size);
    const Expr met = cluster_exchange_.count++;
    const Expr turn = turn_number(s);
    wait_for_cluster();
    if (!enclosing().empty())
      cluster_barrier();  // then all blocks have read what the previous turn sent
    return {{place}, cluster_exchange_.mbarriers, met, mod(turn, 2)};
  }

  // How many times the statement has run before in this phase.
  Expr turn_number(const Statement& s) const {
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

  MemoryId add_meeting(DType dtype, int64_t count) {
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
  void wait_for_cluster() {
    if (cluster_exchange_.waits) return;
    cluster_exchange_.waits = true;
    if (enclosing().empty())
      builder_.instruction(Instruction::cluster_wait);
    else
      cluster_exchange_.waits_first = true;
  }

  void init_mbarriers() {
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

  void begin_cluster(Region& body) {
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

  // --- Views ------------------------------------------------------------------------------------

  // A digit of the flattened tile. Neighbouring digits that continue each other are joined.
  struct FlatDigit {
    bool spread = false, block = false;
    int64_t stride = 0;  // in threads or blocks
    int64_t extent = 1;
    friend bool operator==(const FlatDigit&, const FlatDigit&) = default;
  };
  std::vector<FlatDigit> flattened(const ValueType& tile) const {
    std::vector<FlatDigit> out;
    for (const std::vector<Digit>& axis : layout(tile).axes) {
      for (const Digit& digit : axis) {
        const bool spread = is_spread(digit);
        const FlatDigit next{spread, of_block(digit), spread ? stride_of(digit) : 0, digit.extent};
        const bool joins = !out.empty() && out.back().spread == spread &&
                           out.back().block == next.block &&
                           (!spread || out.back().stride == next.stride * next.extent);
        if (joins) {
          out.back().stride = next.stride;
          out.back().extent *= next.extent;
        } else {
          out.push_back(next);
        }
      }
    }
    return out;
  }

  bool renames(const ViewOp& op, ValueId source, ValueId result) const override {
    const ValueType &from = tile_[source].type, &to = tile_[result].type;
    if (op.kind == ViewKind::Slice && slices_registers(op, from, to)) return true;
    if (op.kind == ViewKind::Reshape && flattened(from) == flattened(to) &&
        lower_type(from).lanes == lower_type(to).lanes)
      return true;
    // Elements can only move through the memory of one block.
    for (const ValueType& tile : {from, to})
      if (lies_in_blocks(tile))
        fail(kLayouts,
             fmt::format(
                 "kernel @{}: a view of {} with the layout {} would move elements between blocks",
                 tile_.name, tile.to_string(), layout(tile).to_string()),
             {{}, {}, "leave the digits of blocks (b) on one axis, unchanged"});
    return false;
  }

  // Whether every sliced axis is cut between registers of each thread.
  bool slices_registers(const ViewOp& op, const ValueType& from, const ValueType& to) const {
    for (size_t axis = 0; axis < from.rank(); ++axis) {
      const AxisDigits own = digits(from, axis), other = digits(to, axis);
      if (own.spread != other.spread) return false;
      if (from.extents[axis] == to.extents[axis]) {
        if (!same_digits(own, other)) return false;
      } else if (own.spread.empty()) {
        if (own.lanes != other.lanes && to.extents[axis] > 1) return false;
      } else if (own.lanes != other.lanes || own.inner > 1 || other.inner > 1 ||
                 op.arguments.empty() || op.arguments[axis] % (from.extents[axis] / own.array)) {
        return false;
      }
    }
    return true;
  }

  ValueOperand rename(const ViewOp& op, const ValueOperand& value, const Statement& s) override {
    if (op.kind != ViewKind::Slice) return Lowering::rename(op, value, s);
    const ValueType& from = tile_[op.operand.value].type;
    const ValueType to = lower_type(result_type(s));
    const int32_t lanes = type_of(value).lanes;
    std::vector<int64_t> at = op.arguments;
    // Along an axis that threads share, the cut lies between parts of all of them.
    for (size_t axis = 0; axis < at.size(); ++axis)
      if (const AxisDigits own = digits(from, axis); !own.spread.empty())
        at[axis] /= from.extents[axis] / own.array / (axis + 1 == at.size() ? lanes : 1);
    const int64_t lane = at.back() % lanes;
    at.back() /= lanes;
    ValueType part = to;
    part.lanes = lanes;
    const ValueOperand cut = part == type_of(value)
                                 ? value
                                 : ValueOperand(builder_.view(ViewKind::Slice, value, part, at));
    return to.lanes == lanes ? cut : ValueOperand(emit(LaneOp{false, cut, {}, lane}, to, s));
  }

  // With this padding, the threads of a warp read a column from different banks of 4 bytes.
  int64_t row_padding(const ValueType& tile) const override {
    return std::max<int64_t>(4 / static_cast<int64_t>(size_of(tile.dtype)), 1);
  }

  // --- Dots -------------------------------------------------------------------------------------

  // Dots of tiles with the layouts of `warp_dot_layouts`: each warp multiplies its own matrices, of
  // 16 x 16 and 16 x 8 elements of 16 bits, or of 16 x 8 and 8 x 8 in tf32.
  void lower_dot(const TileDotOp& op, const Statement& s) override {
    if (op.a_buffer || op.b_buffer || op.contract_a != 1 || op.contract_b != 0)
      not_lowered("a dot of buffers, or one that does not contract the last axis with the first,",
                  s);
    const ValueType& left = tile_[op.a.value].type;
    const ValueType& right = tile_[op.b.value].type;
    const ValueType& sums = result_type(s);
    const bool halves = is_half(left.dtype);
    if (left.dtype != right.dtype || !(halves || (left.dtype == DType::F32 && op.tf32)))
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
      return lies_as(sums, wanted.sums) && lies_as(left, wanted.left) &&
             lies_as(right, wanted.right);
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
    const Instruction multiply = !halves                     ? Instruction::mma_tf32
                                 : left.dtype == DType::BF16 ? Instruction::mma_bf16
                                                             : Instruction::mma_f16;
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
            builder_.instruction(multiply, {a[i], b[static_cast<size_t>(n)], c})[0];
        for (size_t r = 0; r < at.size(); ++r)
          sum[at[r]] = element(product, static_cast<int64_t>(r));
      }
    define(s.results[0], builder_.regroup(packed(std::move(sum)), lower_type(sums)));
  }

  bool lies_as(const ValueType& tile, const Layout& wanted) const {
    for (size_t axis = 0; axis < wanted.rank(); ++axis)
      if (!same_digits(digits(tile, axis),
                       digits(wanted.axes[axis], axis + 1 == wanted.rank()).value()))
        return false;
    return true;
  }

  // The left operands of matrix instructions, for each 16 rows of a warp. A thread has two rows of
  // a fragment, which are neighbours in its array.
  std::vector<ValueOperand> left_fragments(const ValueOperand& tile, int64_t count) {
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
  std::vector<ValueOperand> right_fragments(const ValueOperand& tile, int64_t count) {
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
  ValueOperand fragment(const ValueOperand& x, const std::vector<int64_t>& first,
                        int64_t apart = 1) {
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

  // The rows of matrices that the lanes of a warp give to ldmatrix, for every two blocks of rows or
  // columns.
  struct FragmentRows {
    bool along = false;      // whether they lie along the contracted axis
    int64_t blocks = 0;      // of 8 rows or columns
    std::vector<Expr> rows;  // offsets
  };
  // D30: what only dots of 16-bit factors read from a buffer is loaded by ldmatrix, in the
  // registers of their fragments, if eight neighbours along one of its axes lie together in memory.
  std::optional<FragmentRows> rows_of_fragments(const Statement& s, int role) const {
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
      out.rows.push_back(own == 0
                             ? row_of(mod(matrix, 2) + block, floordiv(matrix, 2))
                             : row_of(floordiv(matrix, 2) * Expr(next) + block, mod(matrix, 2)));
      if (alignment(op.memory, out.rows.back()) < kSide * 2) return std::nullopt;
    }
    return out;
  }

  bool lower_fragments(const LoadOp& op, const Statement& s) override {
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
        out.push_back(builder_.view(ViewKind::Slice, loaded, half, {2 * (n - block)}));
    }
    return true;
  }
  static bool same_digits(const AxisDigits& a, const AxisDigits& b) {
    return a.array == b.array && a.inner == b.inner && a.spread == b.spread && a.lanes == b.lanes;
  }
  // The elements of an array as scalars: array positions first, then lanes.
  ValueOperand scalars(const ValueOperand& value) {
    const ValueType& type = type_of(value);
    return builder_.regroup(value, {type.dtype, 1, {type.count() * type.lanes}});
  }
  ValueOperand element(const ValueOperand& value, int64_t at) {
    return builder_.append(GetOp{value, {at}}, {{type_of(value).dtype, 1, {}}}, "get")[0];
  }
  using Lowering::packed;
  ValueOperand packed(std::vector<ValueOperand> elements) {
    ValueType type = type_of(elements[0]);
    type.extents = {static_cast<int64_t>(elements.size())};
    return Lowering::packed(std::move(elements), type);
  }

  // --- Tickets: D26 -----------------------------------------------------------------------------

  // Elements that a thread has behind one another along an axis are loaded as vectors. Lanes do
  // this along the last axis. If that has one element, it is done here along the axis before it.
  Form load_form(const LoadOp& op, ValueId tile) const override {
    Form out = form(tile);
    size_t axis = out.type.rank();
    while (axis > 0 && out.type.extents[axis - 1] == 1) --axis;
    if (out.type.lanes > 1 || axis == 0 || op.guard.mask) return out;
    const std::string symbol = "e" + std::to_string(--axis);
    const int64_t extent = out.type.extents[axis];
    const auto size = static_cast<int64_t>(size_of(out.type.dtype));
    const Expr at = offset(op.memory, op.at, out.positions);
    if (!in_a_row(at, substitute(op.guard.condition, out.positions), symbol)) return out;
    for (int64_t lanes = 16 / size; lanes > 1; lanes /= 2) {
      if (extent % lanes != 0) continue;
      const auto width = static_cast<int32_t>(lanes);
      const Expr vector =
          extent > lanes ? position_symbol('e', axis, extent / lanes) * lanes : Expr(0);
      const Expr element = vector + lane_symbol(width);
      if (alignment(op.memory, at.substitute(symbol, element)) < lanes * size) continue;
      for (auto& [name, position] : out.positions)
        if (is_position_symbol(name, 'd')) position = position.substitute(symbol, element);
      out.type.lanes = width;
      out.type.extents[axis] /= lanes;
      return out;
    }
    return out;
  }
  // Whether elements along a register axis are neighbours in memory, and all or none are loaded.
  static bool in_a_row(const Expr& at, const Condition& guard, const std::string& symbol) {
    const auto gathers = [](const std::string& name) { return name[0] == '%'; };
    const auto divides = [&](const IndexComparison& c) {
      return c.left.uses(symbol) || c.right.uses(symbol);
    };
    const auto step = at.coefficient_of(symbol);
    return step && step->is_constant(1) && std::ranges::none_of(at.symbols(), gathers) &&
           std::ranges::none_of(guard, divides);
  }
  void define_in_form(ValueId tile, const ValueOperand& value, const Form& form) override {
    const ValueType type = array_type(tile);
    define(tile, form.type == type ? value : ValueOperand(builder_.regroup(value, type)));
  }

  const int64_t block_threads_;
  const Expr thread_;
  const int64_t cluster_;  // blocks of an instance
  ClusterExchange cluster_exchange_;
  mutable std::map<std::vector<int64_t>, Layout> layouts_;  // by extents of tiles
  int64_t shared_ = 0;
  std::set<std::string> scalars_;  // scalars of the tile program, as "%name"
  std::vector<MemoryId> private_;  // memory of the tile program that needs no barriers
  std::vector<Turns> loops_;       // the innermost last
  bool rehearses_ = false;         // whether waits and barriers are only noted, not emitted
  std::vector<std::vector<Group>> branches_;  // what was under way before the branches around
  std::vector<Group> under_way_;              // groups of copies, the oldest first
  std::map<const Statement*, bool> decided_;  // whether the load begins an asynchronous copy
  std::vector<int64_t> uses_;                 // how often each value of the phase is used
  // Values that only dots use: 0 as their left factors, 1 as their right ones. Of those that were
  // loaded as fragments, the registers.
  std::map<ValueId, int> dot_roles_;
  std::map<ValueId, std::vector<ValueOperand>> fragments_;
};

}  // namespace

Kernel lower_for_gpu(const TileProgram& program, const Target& target) {
  return GpuLowering(program, target).run();
}

}  // namespace braze
