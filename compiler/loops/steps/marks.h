// marks.h — steps that change only the marks of a tree, from which emission reads how things are
// done: `deal`, `turns`, `ring`, `roles`, `registers`, `unit`, `ahead`, `unroll`, `partial`,
// `part`, `bind` and `cache`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// One order of turns. `grouped` has the name of an axis.
struct DealOrder {
  Deal::Order order = Deal::Order::Rows;
  int64_t number = 0;
  std::string axis = {};
};

/// `deal n band 8, persistent 132`: how the turns of a loop on grid are numbered.
struct DealStep {
  static constexpr std::string_view kName = "deal";
  LoopName loop;
  std::vector<DealOrder> orders;
  void fields(auto& visit) {
    visit(loop);
    visit(orders);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const DealStep& step);
LoopTree take(LoopTree tree, const DealStep& step);

/// `turns l`: the two groups start the dots of l one after the other.
struct TurnsStep {
  static constexpr std::string_view kName = "turns";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const TurnsStep& step);
LoopTree take(LoopTree tree, const TurnsStep& step);

/// `ring l 4`: the stages of l run up to 3 turns early, into 4 slots.
struct RingStep {
  static constexpr std::string_view kName = "ring";
  LoopName loop;
  int64_t slots = 1;
  void fields(auto& visit) {
    visit(loop);
    visit(slots);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const RingStep& step);
LoopTree take(LoopTree tree, const RingStep& step);

/// `roles 40 232`: stages become the work of one role, and everything else the work of another
/// role.
struct RolesStep {
  static constexpr std::string_view kName = "roles";
  int64_t stages = 0, rest = 0;  ///< registers of a thread
  void fields(auto& visit) {
    visit(stages);
    visit(rest);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const RolesStep& step);
LoopTree take(LoopTree tree, const RolesStep& step);

/// `registers 128`: a thread has at most 128 registers, so that a multiprocessor holds more blocks.
struct RegistersStep {
  static constexpr std::string_view kName = "registers";
  int64_t most = 0;
  void fields(auto& visit) { visit(most); }
};
std::optional<Refusal> legal(const LoopTree& tree, const RegistersStep& step);
LoopTree take(LoopTree tree, const RegistersStep& step);

/// An asynchronous unit multiplies so many bytes along the summed axes at once.
inline constexpr int64_t kWgmmaBytes = 32;

/// `unit %v wgmma swap`: which unit computes a dot. With `swap`, the rows are the right factor's
/// axis.
struct UnitStep {
  static constexpr std::string_view kName = "unit";
  std::string value;
  Unit unit = Unit::Fma;
  bool swap = false;
  void fields(auto& visit) {
    visit.value(value);
    visit(unit);
    visit.flag(swap, "swap");
  }
};
/// What the matrix units of warps (`mma`) multiply: the factors themselves if both have the same
/// 16-bit dtype, and otherwise f32, rounded to tf32.
DType warp_dot_dtype(const LoopTask& dot);
/// The number of summed indices that one instruction of these units multiplies.
int64_t warp_dot_depth(const LoopTask& dot);
std::optional<Refusal> legal(const LoopTree& tree, const UnitStep& step);
LoopTree take(LoopTree tree, const UnitStep& step);

/// `ahead %v 1`: the task that makes v runs one turn of its loop early.
struct AheadStep {
  static constexpr std::string_view kName = "ahead";
  std::string value;
  int64_t turns = 1;
  void fields(auto& visit) {
    visit.value(value);
    visit(turns);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const AheadStep& step);
LoopTree take(LoopTree tree, const AheadStep& step);

/// `unroll j 4`: 4 turns of a stream are written one after the other.
struct UnrollStep {
  static constexpr std::string_view kName = "unroll";
  LoopName loop;
  int64_t turns = 1;
  void fields(auto& visit) {
    visit(loop);
    visit(turns);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const UnrollStep& step);
LoopTree take(LoopTree tree, const UnrollStep& step);

/// `partial j 256`: the sums of a stream begin at zero every 256 turns, and are then added to the
/// sums of the turns before. A long sum of shorter ones is rounded less often.
struct PartialStep {
  static constexpr std::string_view kName = "partial";
  LoopName loop;
  int64_t turns = 1;
  void fields(auto& visit) {
    visit(loop);
    visit(turns);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const PartialStep& step);
LoopTree take(LoopTree tree, const PartialStep& step);

/// `part j (j <= i)`: emission cuts the loop where the condition becomes decided.
struct PartStep {
  static constexpr std::string_view kName = "part";
  LoopName loop;
  /// Over symbols of any range, in whose place those of the tree are put.
  IndexComparison condition;
  void fields(auto& visit) {
    visit(loop);
    visit(condition);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const PartStep& step);
LoopTree take(LoopTree tree, const PartStep& step);

/// `bind y (w1:8 l1:32 r1:4)`: which thread and register holds which element of a task's tile.
struct BindStep {
  static constexpr std::string_view kName = "bind";
  MadeName made;
  Layout layout;
  void fields(auto& visit) {
    visit(made);
    visit(layout);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const BindStep& step);
LoopTree take(LoopTree tree, const BindStep& step);

/// `cache y stream`: what is stored to y will not be read again soon.
struct CacheStep {
  static constexpr std::string_view kName = "cache";
  std::string tensor;
  CacheHint hint = CacheHint::Stream;
  void fields(auto& visit) {
    visit.tensor(tensor);
    visit(hint);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const CacheStep& step);
LoopTree take(LoopTree tree, const CacheStep& step);

}  // namespace braze
