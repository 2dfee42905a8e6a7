// rules.h — chooses the steps that make a kernel fast (0003, section 7).
//
// A rule looks only at facts of the tree (extents, strides, bytes, operations) and at fields of
// Target. If no rule can serve a tree, the tree is refused with the reason.
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

/// A tree, and the steps that made it from the first tree.
struct Scheduled {
  LoopTree tree;
  LoopTreeSteps steps = {};
  /// Why its dots are not asynchronous, if it has any that are not.
  std::optional<Refusal> refused = {};
  /// Why an integer that is loaded, and with which a task compares the index of its walk, does not
  /// bound the walk.
  std::optional<Refusal> unlimited = {};

  /// Takes a step if it is legal. Otherwise it changes nothing and returns false.
  bool try_take(StepKind step);
  /// Takes a step that the rule knows to be legal.
  void take(StepKind step);
  /// Takes a step whose tree the rule has made already.
  void accept(StepKind step, LoopTree made);
};

/// Takes a step, or says why it is not legal.
std::optional<Refusal> take_legal(Scheduled& out, StepKind step);
/// Makes one loop of nested ones, which are given by name, and deals it to the grid.
template <class Names>
void deal_out(Scheduled& out, const Names& loops) {
  for (size_t i = 1; i < loops.size(); ++i) out.take(TupleStep{{loops[0]}, {loops[i]}});
  if (!loops.empty()) out.take(OnStep{{loops[0]}, Machine::Grid});
}
/// Separates the whole tiles of a loop, which need no masks, if the last of several tiles reaches
/// beyond the end of the axis.
void part_tail(Scheduled& out, const LoopName& loop, int64_t tile);

/// The first tree after the steps that the rules choose for the machine.
std::variant<Scheduled, Refusal> schedule(LoopTree tree, const Target& target);

// The rules. Each takes its own steps, and returns a refusal if it cannot serve the tree.

/// Whether a load asks what lies outside of its tensor at coordinates of both axes. If these were
/// joined, each coordinate would keep its digit.
bool asks_outside(const LoopTree& tree, size_t outer, size_t inner);
/// collapse: joins the axes of a nest, the outermost first, if all accesses run through them as
/// through one axis.
void collapse_axes(Scheduled& out, const std::vector<size_t>& nest);
/// The same for every loop of a first tree that is alone in another loop.
void join_axes(Scheduled& out);
/// Joins dimensions of tensors that all accesses run through as one.
void flatten_tensors(Scheduled& out);

/// Gives each way in which a tensor is read a name of its own for it, if the tensor is several
/// factors of dots.
void read_apart(Scheduled& out);
/// tiles: loops without reductions. Vectors run along the axis that is contiguous in most bytes.
void tile_for_cpu(Scheduled& out, const Target& target);
void tile_for_gpu(Scheduled& out, const Target& target);
/// reductions: along rows and columns, with everything that is made from them.
std::optional<Refusal> tile_reductions_for_cpu(Scheduled& out, const Target& target);
std::optional<Refusal> tile_reductions_for_gpu(Scheduled& out, const Target& target);
/// crossed reductions: along rows and along the columns of the same data, in one walk.
std::optional<Refusal> tile_crossed_for_gpu(Scheduled& out, const Target& target);
/// scans: loops that carry running values and contain nothing else.
bool serves_scans(const LoopTree& tree);
std::optional<Refusal> tile_scans(Scheduled& out, const Target& target);
/// places: a placed reduction, with what is made from it.
std::optional<Refusal> tile_places(Scheduled& out, const Target& target);
/// products: dots on asynchronous matrix units, if their factors are in memory and all dots run
/// over the same axes. The rule also schedules the operations that follow the dots.
std::optional<Refusal> tile_products(Scheduled& out, const Target& target);
/// products on a CPU: sums whose factors run along different parallel axes.
std::optional<Refusal> tile_products_for_cpu(Scheduled& out, const Target& target);
/// products on a GPU's ordinary units and on the matrix units of warps: sums of the same form.
std::optional<Refusal> tile_products_for_gpu(Scheduled& out, const Target& target);
/// cascades: one walk in which dots take the results of other dots as factors.
std::optional<Refusal> tile_cascade_for_cpu(Scheduled& out, const Target& target);
std::optional<Refusal> tile_cascade_for_gpu(Scheduled& out, const Target& target);
/// The same for few rows on a GPU's ordinary units, and on a CPU if an integer that is loaded
/// bounds the walk.
std::optional<Refusal> tile_cascade_by_threads(Scheduled& out, const Target& target);
std::optional<Refusal> tile_few_rows_for_cpu(Scheduled& out, const Target& target);
/// Marks results that the last-level cache cannot hold until they are read, so that they bypass it.
void mark_streaming(Scheduled& out, const Target& target);

}  // namespace braze
