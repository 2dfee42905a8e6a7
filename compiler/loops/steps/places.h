// places.h — how steps find loops, tasks and values in a tree.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/loops/steps/refusal.h"
#include "compiler/loops/tree.h"

namespace braze {

/// The name of a loop: `j`, or `j.2` for the second loop over j in the order of the text.
struct LoopName {
  std::string axis;
  int64_t number = 1;
  std::string to_string() const;
};

/// The name of what a task makes: a value, or the tensor to which it stores.
struct MadeName {
  bool is_value = false;
  std::string name;
  std::string to_string() const { return (is_value ? "%" : "") + name; }
};

/// Where a loop or task stands: the phase, and its number in each region, from the outermost region
/// on.
struct ItemPlace {
  size_t phase = 0;
  std::vector<size_t> items = {};
};

std::optional<ItemPlace> find_loop(const LoopTree& tree, const LoopName& name);
/// The first task for which `wanted` holds.
std::optional<ItemPlace> find_task(const LoopTree& tree,
                                   const std::function<bool(const LoopTask&)>& wanted);
std::optional<ItemPlace> find_made(const LoopTree& tree, const MadeName& made);
/// The axes along which a task's tile has dimensions, without the axes that the task combines.
std::set<size_t> own_axes(const LoopTree& tree, const LoopTask& task);
std::optional<size_t> find_axis(const LoopTree& tree, std::string_view name);
std::optional<size_t> find_value(const LoopTree& tree, std::string_view name);
std::optional<size_t> find_tensor(const LoopTree& tree, std::string_view name);
/// The task that makes a value.
ItemPlace maker_of(const LoopTree& tree, size_t value);

/// The region in which an item stands, in a tree or a const tree.
template <class Tree>
auto& region_of(Tree& tree, const ItemPlace& place) {
  auto* region = &tree.phases[place.phase];
  for (size_t depth = 0; depth + 1 < place.items.size(); ++depth)
    region = &std::get<Box<Loop>>((*region)[place.items[depth]])->body;
  return *region;
}
template <class Tree>
auto& loop_at(Tree& tree, const ItemPlace& place) {
  return *std::get<Box<Loop>>(region_of(tree, place)[place.items.back()]);
}
template <class Tree>
auto& task_at(Tree& tree, const ItemPlace& place) {
  return std::get<LoopTask>(region_of(tree, place)[place.items.back()]);
}
/// The loops around an item, the outermost first.
std::vector<const Loop*> loops_around(const LoopTree& tree, const ItemPlace& place);
/// The only item in a loop, if it is a loop.
const Loop* only_child(const Loop& loop);

bool runs_over(const Loop& loop, size_t axis);
bool contains(const std::vector<size_t>& list, size_t element);
/// How much a turn of the innermost of `around` over the axis takes; without such a loop, the whole
/// axis.
Expr extent_in(const LoopTree& tree, const std::vector<const Loop*>& around, size_t axis,
               bool groups = true);
/// Whether a loop of `around` runs over the axis.
bool is_cut(const std::vector<const Loop*>& around, size_t axis);
/// Whether turns of `turn` need no second turn.
bool is_one_turn(const Expr& extent, int64_t turn);

/// Every task in a region, at any depth.
void change_tasks(LoopRegion& region, const std::function<void(LoopTask&)>& change);
void visit_loops(const LoopRegion& region, const std::function<void(const Loop&)>& visit);
/// Gives axes new numbers wherever numbers name them.
void renumber_axes(LoopTree& tree, const std::function<size_t(size_t)>& number);
/// Every index expression of a body, or of a task with its coordinates and its ratio.
void change_exprs(LoopBody& body, const std::function<void(Expr&)>& change);
void change_exprs(LoopTask& task, const std::function<void(Expr&)>& change);
/// The axes that a task's body and coordinates use.
std::set<size_t> axes_used(const LoopTree& tree, const LoopTask& task);
/// The values that tasks of a region make.
std::set<size_t> values_made(const LoopRegion& region);
/// Calls `visit` for every step of a kind in the bodies and ratios of a region.
void visit_steps(const LoopRegion& region, LoopStep::Kind kind,
                 const std::function<void(const LoopTask&, const LoopStep&)>& visit);
/// By step of a body: whether it computes what a placed reduction begins with. That is needed
/// before the loops that carry the state, wherever the task stands in them.
std::vector<bool> steps_of_start(const LoopTask& task);
/// `wanted`, or `wanted` with the first number that makes it new.
std::string unused_value(const LoopTree& tree, const std::string& wanted);
std::string unused_axis(const LoopTree& tree, const std::string& wanted);

// Checks that several steps share. Nullopt: the step is legal as far as this check goes.
Refusal no_such(std::string_view what, const std::string& name);
/// The loop is parallel, but the step is for streams.
std::optional<Refusal> parallel(const LoopTree& tree, const Loop& loop);
/// Marks come last, because they speak of the turns of a finished loop.
std::optional<Refusal> marked(const LoopTree& tree, const Loop& loop);
/// Finds loops in the region whose bounds use an axis.
std::optional<Refusal> bounds_use(const LoopTree& tree, const LoopRegion& region, size_t axis);
/// Finds reads, at another index of an axis, of what the same region makes.
std::optional<Refusal> reads_other_turns(const LoopTree& tree, const LoopRegion& region,
                                         size_t axis);
/// Tensors that the region both reads and writes, but for those of which each turn of these axes
/// has elements of its own.
std::optional<Refusal> reads_what_it_writes(const LoopTree& tree, const LoopRegion& region,
                                            const std::vector<size_t>& axes);

}  // namespace braze
