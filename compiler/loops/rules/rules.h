// rules.h — which steps make a kernel fast: section 7 of docs/design/0003-loop-tree.md.
//
// A rule looks at facts of the tree (extents, strides, bytes, operations) and at fields of Target,
// and at nothing else. What no rule serves yet is refused, with the reason.
#pragma once

#include <variant>

#include "compiler/loops/steps/text.h"
#include "ir/target/target.h"

namespace braze {

namespace codes {
inline constexpr Code kNoRule{"no-rule", ErrorKind::Unsupported,
                              "No rule can choose the steps of such a loop tree yet."};
}  // namespace codes

/// A tree, and the steps that made it of the first one.
struct Scheduled {
  LoopTree tree;
  LoopTreeSteps steps = {};

  /// Takes a step that is legal; else it changes nothing and is false.
  bool try_take(StepKind step);
  /// Takes a step whose legality the rule knows.
  void take(StepKind step);
};

/// The first tree with the steps that the rules choose for the machine.
std::variant<Scheduled, Refusal> schedule(LoopTree tree, const Target& target);

// The rules, in the order in which they are tried. Each takes its steps.

/// collapse: axes of nested loops, the outermost first, that all accesses run through as one become
/// one.
void collapse_axes(Scheduled& out, const std::vector<size_t>& nest);
/// tiles: loops without reductions; vectors along the axis that is contiguous in most bytes.
void tile_for_cpu(Scheduled& out, const Target& target);
void tile_for_gpu(Scheduled& out, const Target& target);
/// reductions: rows and columns, and what is made of them.
std::optional<Refusal> tile_reductions_for_cpu(Scheduled& out, const Target& target);
std::optional<Refusal> tile_reductions_for_gpu(Scheduled& out, const Target& target);
/// scans: loops that carry running values, and nothing else.
bool serves_scans(const LoopTree& tree);
std::optional<Refusal> tile_scans(Scheduled& out, const Target& target);
/// dots: one walk in which dots take what other dots make as factors.
std::optional<Refusal> tile_cascade(Scheduled& out, const Target& target);
/// Results that the last-level cache cannot hold until they are read do not pass through it.
void mark_streaming(Scheduled& out, const Target& target);

}  // namespace braze
