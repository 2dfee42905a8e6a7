// rules.h — chooses the steps that make a kernel fast: section 7 of docs/design/0003-loop-tree.md.
//
// A rule looks at facts of the tree (extents, strides, bytes, operations) and at fields of Target,
// and at nothing else. A tree that no rule can serve yet is refused, with the reason.
#pragma once

#include <optional>
#include <variant>

#include "compiler/loops/steps/text.h"
#include "ir/target/target.h"

namespace braze {

namespace codes {
inline constexpr Code kNoRule{"no-rule", ErrorKind::Unsupported,
                              "No rule can choose the steps of such a loop tree yet."};
}  // namespace codes

inline Refusal no_rule(std::string why) { return {&codes::kNoRule, std::move(why), ""}; }

/// A tree, and the steps that made it of the first one.
struct Scheduled {
  LoopTree tree;
  LoopTreeSteps steps = {};
  /// Why it has no asynchronous products, if it has dots.
  std::optional<Refusal> refused = {};

  /// Takes a step if it is legal; else it changes nothing and returns false.
  bool try_take(StepKind step);
  /// Takes a step that the rule knows to be legal.
  void take(StepKind step);
};

/// The first tree with the steps that the rules choose for the machine.
std::variant<Scheduled, Refusal> schedule(LoopTree tree, const Target& target);

// The rules, in the order in which they are tried. Each takes its own steps.

/// collapse: axes of nested loops that all accesses run through as one become one, the outermost
/// first.
void collapse_axes(Scheduled& out, const std::vector<size_t>& nest);
/// The same for all loops of a first tree that stand alone in another.
void join_axes(Scheduled& out);
/// Dimensions of tensors that all accesses run through as one become one.
void flatten_tensors(Scheduled& out);
/// tiles: loops without reductions; vectors run along the axis that is contiguous in most bytes.
void tile_for_cpu(Scheduled& out, const Target& target);
void tile_for_gpu(Scheduled& out, const Target& target);
/// reductions: rows and columns, and values made from them.
std::optional<Refusal> tile_reductions_for_cpu(Scheduled& out, const Target& target);
std::optional<Refusal> tile_reductions_for_gpu(Scheduled& out, const Target& target);
/// scans: loops that carry running values, and nothing else.
bool serves_scans(const LoopTree& tree);
std::optional<Refusal> tile_scans(Scheduled& out, const Target& target);
/// places: a reduction whose terms say where they are added, with what is made of it.
bool has_placed(const LoopTree& tree);
std::optional<Refusal> tile_places(Scheduled& out, const Target& target);
/// products: dots of factors in memory that run over the same, on asynchronous matrix units, with
/// what follows them.
std::optional<Refusal> tile_products(Scheduled& out, const Target& target);
/// products on a CPU: sums whose factors run along different parallel axes.
std::optional<Refusal> tile_products_for_cpu(Scheduled& out, const Target& target);
/// products on a GPU's ordinary units and on matrix units of warps: such sums.
std::optional<Refusal> tile_products_for_gpu(Scheduled& out, const Target& target);
/// dots: one walk in which dots take what other dots make as factors.
std::optional<Refusal> tile_cascade(Scheduled& out, const Target& target);
/// Results that the last-level cache cannot hold until they are read should bypass it.
void mark_streaming(Scheduled& out, const Target& target);

}  // namespace braze
