// accesses.h — the accesses to on-chip memory, and to memory that a launch shares, which no barrier
// separates yet: D16, and section 7.5 of docs/ir/languages.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/code/code.h"

namespace braze {

/// The first coordinate of an access, if it is the same for all elements. Accesses with provably
/// different slots do not conflict; nullopt means any slot.
using Slot = std::optional<Expr>;
bool may_meet(const Slot& a, const Slot& b);

/// An access of the threads to a memory object of the kernel.
struct Access {
  MemoryId memory;
  bool store = false;
  Slot slot = {};
};

/// Symbols that differ between the turns of a loop: its own, and those that its body defines.
std::set<std::string> symbols_of_turns(const ForOp& loop);
/// The slot if it is the same in all turns; otherwise nullopt.
Slot same_in_turns(const Slot& slot, const std::set<std::string>& symbols);

class Accesses {
 public:
  /// What is pending, by memory.
  using Slots = std::vector<Slot>;
  struct Pending {
    Slots stored, loaded;
  };
  struct State {
    std::map<MemoryId, Pending> memories = {};
    std::set<MemoryId> unfenced = {};
    bool all_loaded = false;
    void add(const Access& access);
    void add(const State& more);
    /// The slots in the turn that `index` stands for, or those that are the same in all turns.
    State at(const std::string& symbol, const Expr& index) const;
    State same_in_turns(const std::set<std::string>& symbols) const;
    bool covers(const State& part) const;
  };

  /// Whether a barrier must stand before the access: since the last one, another thread may have
  /// stored what it reads, or may still read what it overwrites.
  bool needs_barrier(const Access& access);
  void note(const Access& access);
  /// Whether the threads stored to the memory since their last fence for asynchronous readers.
  bool unfenced(MemoryId memory) const { return state_.unfenced.contains(memory); }
  void note_fence() { state_.unfenced.clear(); }
  /// Other threads may have stored anything in the memory; or may still load from any memory.
  void note_stored(MemoryId memory) { note({memory, true, std::nullopt}); }
  void note_all_loaded() { state_.all_loaded = true; }
  /// A barrier, or the beginning of a phase.
  void clear() { state_ = {.unfenced = std::move(state_.unfenced)}; }

  /// Whether one barrier in front of a loop serves all its turns: the loop loads what was stored
  /// before it, and does not store it.
  bool waits_before_loop(const std::vector<Access>& turn) const;
  /// The accesses of a turn are still pending when the next turn begins. Their slots are the same
  /// in all turns. `may_skip` says that the loop may have no turn.
  void enter_loop(const ForOp& loop, const std::vector<Access>& turn, bool may_skip);
  void leave_loop();
  /// For a loop that has just been entered, and of which it is known what every turn leaves
  /// pending. precedes_turns: whether the first turn, which may begin with `left`, may begin with
  /// what is pending before the loop, too. begin_turns: turns begin with `left`, and with what is
  /// pending before the loop at memory that they do not access.
  bool precedes_turns(const State& left) const;
  void forget_before_turns() { loops_.back().before = {}; }
  void begin_turns(State left);
  const State& state() const { return state_; }
  void set_state(State state) { state_ = std::move(state); }
  /// Both branches of an `if` begin with the same state. What either of them leaves pending is
  /// pending after the `if`.
  void enter_branches() { branches_.push_back({state_, {}}); }
  void leave_branch();
  void leave_branches();

 private:
  struct Turns {
    std::set<std::string> symbols;
    State before;                 // what is pending before the first turn
    std::set<MemoryId> memories;  // that the turns access
    bool may_skip = false;
  };
  struct Branches {
    State before, after;
  };
  static bool may_meet(const Slots& slots, const Slot& slot);

  State state_;
  std::set<MemoryId> seen_;
  std::vector<Turns> loops_;  // the innermost last
  std::vector<Branches> branches_;
};

}  // namespace braze
