// gpu_copies.cpp — asynchronous copies from device memory to buffers: D29.
#include <algorithm>

#include "compiler/lowering/gpu.h"
#include "ir/code/walk.h"

namespace braze {

namespace {

bool is_ascending(const IndexComparison& c) {
  return c.kind == IndexComparison::Kind::Lt || c.kind == IndexComparison::Kind::Le;
}

// The same condition by `<` and `<=` in place of `>` and `>=`.
Condition ascending(Condition condition) {
  for (IndexComparison& c : condition) {
    const bool greater = c.kind == IndexComparison::Kind::Gt;
    if (!greater && c.kind != IndexComparison::Kind::Ge) continue;
    std::swap(c.left, c.right);
    c.kind = greater ? IndexComparison::Kind::Lt : IndexComparison::Kind::Le;
  }
  return condition;
}

}  // namespace

// --- Copies under way ----------------------------------------------------------------------------

// Waits for the copies that may overlap with an access.
void GpuLowering::wait_for_copies_to(MemoryId memory, const Slot& slot) {
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
void GpuLowering::wait_for_copies(size_t left) {
  if (under_way_.size() <= left) return;
  if (!rehearses_)
    builder_.instruction(Instruction::cp_async_wait, {Expr(static_cast<int64_t>(left))});
  under_way_.erase(under_way_.begin(), under_way_.end() - static_cast<std::ptrdiff_t>(left));
}

// Waits until the `left` youngest groups of copies may be under way. A barrier before the next
// access makes the others visible.
void GpuLowering::end_copies(size_t left) {
  for (size_t i = 0; i + left < under_way_.size(); ++i)
    for (const Copied& copied : under_way_[i])
      accesses_.note_stored(memories_[copied.memory.index]);
  wait_for_copies(left);
}

// Notes the copies under way when a turn begins. The copies that stand before the loop are those
// that earlier turns would have made; as many stay under way between turns. Copies in inner loops
// end with each turn.
void GpuLowering::enter_copies(const ForOp& loop, Turns& turns) {
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

// --- Which loads and stores are copies -----------------------------------------------------------

std::vector<GpuLowering::Group> GpuLowering::copies_of(const Region& region) {
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

bool GpuLowering::has_copies(const Region& region) {
  for (size_t at = 0; at < region.statements.size(); ++at)
    if (is_copy(region, at) || has_copies_inside(region.statements[at])) return true;
  return false;
}

// Branches have no asynchronous copies, because it would be unknown which copies are under way
// after them.
bool GpuLowering::has_copies_inside(const Statement& s) {
  const auto regions = regions_of(s);
  return !s.as<IfOp>() && std::any_of(regions.begin(), regions.end(),
                                      [&](const Region* region) { return has_copies(*region); });
}

// Whether the copy at `at` joins the group. Copies side by side are one group, except copies to
// the same memory.
bool GpuLowering::joins(const Group& group, const Region& region, size_t at) {
  if (!is_copy(region, at)) return false;
  const MemoryId target = region.statements[at + 1].as<StoreOp>()->memory;
  return std::none_of(group.begin(), group.end(),
                      [&](const Copied& copied) { return copied.memory == target; });
}

// Whether a load and the store after it are an asynchronous copy: the store puts what was loaded
// into a buffer, in the same layout, and nothing else uses the value. This is decided once,
// because loops look ahead.
bool GpuLowering::is_copy(const Region& region, size_t at) {
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

bool GpuLowering::passes(const LoadOp& load, const StoreOp& store, const ValueType& tile) const {
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
         in_a_row(store.memory, store.at) && std::all_of(condition.begin(), condition.end(), whole);
}

// --- Starting copies -----------------------------------------------------------------------------

size_t GpuLowering::lower_copies(const Region& region, size_t first) {
  Group group;
  size_t at = first;
  for (; joins(group, region, at); at += 2) {
    const auto& load = *region.statements[at].as<LoadOp>();
    const auto& store = *region.statements[at + 1].as<StoreOp>();
    const MemoryId target = memories_[store.memory.index];
    const auto slot = uniform_slot(store.at);
    wait_for_copies_to(target, slot);
    wait_for_threads({target, true, slot});
    if (!rehearses_) copy(load, store, result_type(region.statements[at]));
    group.push_back({store.memory, slot});
  }
  if (group.empty()) return 0;
  if (!rehearses_) builder_.instruction(Instruction::cp_async_commit);
  under_way_.push_back(std::move(group));
  return at - first;
}

// Copies one vector at a time. If its condition is false, no byte of the vector is read.
void GpuLowering::copy(const LoadOp& load, const StoreOp& store, const ValueType& tile) {
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

}  // namespace braze
