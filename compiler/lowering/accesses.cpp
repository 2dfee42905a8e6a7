#include "compiler/lowering/accesses.h"

#include <algorithm>

#include "compiler/lowering/lowering.h"
#include "ir/code/walk.h"

namespace braze {

bool may_meet(const Slot& a, const Slot& b) {
  if (!a || !b) return true;
  if (a->kind() == Expr::Kind::Mod && b->kind() == Expr::Kind::Mod &&
      a->operands()[1] == b->operands()[1]) {
    const auto apart = mod(a->operands()[0] - b->operands()[0], a->operands()[1]).as_constant();
    if (apart.value_or(0) != 0) return false;
  }
  const Expr difference = *a - *b;
  return difference.range().contains(0) && !mod(difference, 2).is_constant(1);
}

std::set<std::string> symbols_of_turns(const ForOp& loop) {
  std::set<std::string> out = symbols_of(*loop.body);
  out.insert(loop.symbol);
  return out;
}

Slot same_in_turns(const Slot& slot, const std::set<std::string>& symbols) {
  if (!slot) return std::nullopt;
  const bool differs = std::ranges::any_of(
      slot->symbols(), [&](const std::string& name) { return symbols.contains(name); });
  return differs ? std::nullopt : slot;
}

bool Accesses::may_meet(const Slots& slots, const Slot& slot) {
  return std::ranges::any_of(slots,
                             [&](const Slot& touched) { return braze::may_meet(touched, slot); });
}

void Accesses::State::add(const Access& access) {
  Pending& pending = memories[access.memory];
  Slots& slots = access.store ? pending.stored : pending.loaded;
  if (std::ranges::find(slots, access.slot) == slots.end()) slots.push_back(access.slot);
  if (access.store) unfenced.insert(access.memory);
}

void Accesses::State::add(const State& more) {
  for (const auto& [memory, pending] : more.memories) {
    for (const Slot& slot : pending.stored) add(Access{memory, true, slot});
    for (const Slot& slot : pending.loaded) add(Access{memory, false, slot});
  }
  unfenced.insert(more.unfenced.begin(), more.unfenced.end());
  all_loaded = all_loaded || more.all_loaded;
}

bool Accesses::needs_barrier(const Access& access) {
  // A memory that a loop declares was accessed by the previous turn.
  if (seen_.insert(access.memory).second && !loops_.empty())
    state_.memories[access.memory] = {{std::nullopt}, {std::nullopt}};
  const Pending& before = state_.memories[access.memory];
  return may_meet(before.stored, access.slot) ||
         (access.store && (state_.all_loaded || may_meet(before.loaded, access.slot)));
}

void Accesses::note(const Access& access) { state_.add(access); }

bool Accesses::waits_before_loop(const std::vector<Access>& turn) const {
  const auto waits = [&](const Access& access) {
    const auto found = state_.memories.find(access.memory);
    return !access.store && found != state_.memories.end() &&
           may_meet(found->second.stored, access.slot) &&
           std::ranges::none_of(turn, [&](const Access& other) {
             return other.store && other.memory == access.memory;
           });
  };
  return std::ranges::any_of(turn, waits);
}

void Accesses::enter_loop(const ForOp& loop, const std::vector<Access>& turn, bool may_skip) {
  loops_.push_back({symbols_of_turns(loop), state_, {}, may_skip});
  for (const Access& access : turn) {
    seen_.insert(access.memory);
    state_.add(access);
    loops_.back().memories.insert(access.memory);
  }
}

bool Accesses::precedes_turns(const State& left) const {
  State accessed = loops_.back().before;
  std::erase_if(accessed.memories,
                [&](const auto& entry) { return !loops_.back().memories.contains(entry.first); });
  return left.covers(accessed);
}

void Accesses::begin_turns(State left) {
  State others = loops_.back().before;
  std::erase_if(others.memories,
                [&](const auto& entry) { return loops_.back().memories.contains(entry.first); });
  others.add(left);
  others.unfenced.insert(state_.unfenced.begin(), state_.unfenced.end());
  state_ = std::move(others);
}

// If no turn ran, what was pending before the loop is pending after it.
void Accesses::leave_loop() {
  state_ = state_.same_in_turns(loops_.back().symbols);
  if (loops_.back().may_skip) state_.add(loops_.back().before);
  loops_.pop_back();
}

Accesses::State Accesses::State::at(const std::string& symbol, const Expr& index) const {
  State out = *this;
  for (auto& [memory, pending] : out.memories)
    for (Slots* slots : {&pending.stored, &pending.loaded})
      for (Slot& slot : *slots)
        if (slot) slot = slot->substitute(symbol, index);
  return out;
}

Accesses::State Accesses::State::same_in_turns(const std::set<std::string>& symbols) const {
  State out = *this;
  for (auto& [memory, pending] : out.memories)
    for (Slots* slots : {&pending.stored, &pending.loaded})
      for (Slot& slot : *slots) slot = braze::same_in_turns(slot, symbols);
  return out;
}

bool Accesses::State::covers(const State& part) const {
  const auto holds = [](const Slots& all, const Slots& some) {
    return std::ranges::all_of(some,
                               [&](const Slot& slot) { return std::ranges::count(all, slot) > 0; });
  };
  return std::ranges::all_of(part.memories, [&](const auto& entry) {
    const auto& [memory, pending] = entry;
    const auto known = memories.find(memory);
    if (known == memories.end()) return pending.stored.empty() && pending.loaded.empty();
    return holds(known->second.stored, pending.stored) &&
           holds(known->second.loaded, pending.loaded);
  });
}

void Accesses::leave_branch() {
  branches_.back().after.add(state_);
  state_ = branches_.back().before;
}

void Accesses::leave_branches() {
  state_ = std::move(branches_.back().after);
  branches_.pop_back();
}

}  // namespace braze
