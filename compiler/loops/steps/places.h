// places.h — how steps find and change loops, tasks and values of a tree, and the checks that
// several steps share.
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

/// Where a loop or task stands: its phase, and the number of an item in each region on the way to
/// it, from the outermost region on.
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
/// The axis of this name, which the tree has.
const LoopAxis& axis_of(const LoopTree& tree, std::string_view name);
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
/// The item if it is a loop; otherwise null.
const Loop* as_loop(const LoopItem& item);
/// The only item of a loop if that is a loop; otherwise null.
const Loop* only_child(const Loop& loop);

/// How many indices of the axis a turn of the innermost loop of `around` over it takes. If there is
/// no such loop, the whole extent.
Expr extent_in(const LoopTree& tree, const std::vector<const Loop*>& around, size_t axis,
               bool groups = true);
/// Whether a loop of `around` runs over the axis.
bool is_cut(const std::vector<const Loop*>& around, size_t axis);
/// Whether one turn of `turn` indices surely covers the extent.
bool is_one_turn(const Expr& extent, int64_t turn);

/// Calls `change` for every task in a region or tree, at any depth.
void change_tasks(LoopRegion& region, const std::function<void(LoopTask&)>& change);
void change_tasks(LoopTree& tree, const std::function<void(LoopTask&)>& change);
void visit_loops(const LoopRegion& region, const std::function<void(const Loop&)>& visit);
void visit_loops(const LoopTree& tree, const std::function<void(const Loop&)>& visit);
/// Renumbers axes everywhere in the tree.
void renumber_axes(LoopTree& tree, const std::function<size_t(size_t)>& number);
/// Whether an expression of the body uses an integer that the body loads.
bool has_loaded_coordinates(const LoopBody& body);
/// The axes that the index expressions of a step, body or task use.
template <class Of>
std::set<size_t> axes_used(const LoopTree& tree, const Of& of) {
  std::set<size_t> out;
  for_each_expr(of, [&](const Expr& e) {
    for (const std::string& symbol : e.symbols())
      if (const auto axis = find_axis(tree, symbol)) out.insert(*axis);
  });
  return out;
}
/// The axes along which the tile of a task has dimensions.
std::set<size_t> tile_axes(const LoopTree& tree, const LoopTask& task);
/// The task of a dot, with this one of its factors as the only result.
LoopTask with_factor(const LoopTask& dot, size_t factor);
/// The axes along which this factor of the dot varies.
std::set<size_t> axes_of_factor(const LoopTree& tree, const LoopTask& dot, size_t factor);
/// The values that tasks of a region make.
std::set<size_t> values_made(const LoopRegion& region);
/// Calls `visit` for every step of this kind in the bodies and ratios of a region or tree.
void visit_steps(const LoopRegion& region, LoopStep::Kind kind,
                 const std::function<void(const LoopTask&, const LoopStep&)>& visit);
void visit_steps(const LoopTree& tree, LoopStep::Kind kind,
                 const std::function<void(const LoopTask&, const LoopStep&)>& visit);
/// How many steps of a region or tree read the value.
template <class Place>
size_t reads_of(const Place& place, size_t value) {
  size_t out = 0;
  visit_steps(place, LoopStep::Kind::Read,
              [&](const LoopTask&, const LoopStep& s) { out += s.source == value; });
  return out;
}
/// Whether a body or rescale of the item reads the value.
bool reads(const LoopItem& item, size_t value);
/// A read of a value at the index of this turn.
LoopStep own_read(const LoopTree& tree, size_t value);
/// For each step of a body: whether it computes the values with which a placed reduction begins.
/// These are needed before the loops that carry the state, even if the task stands inside them.
std::vector<bool> steps_of_start(const LoopTask& task);
/// `wanted` if no value (or axis) has that name; otherwise `wanted` with the first number that
/// makes it new.
std::string unused_value(const LoopTree& tree, const std::string& wanted);
std::string unused_axis(const LoopTree& tree, const std::string& wanted);

// Checks that several steps share. Nullopt means that the step is legal as far as this check goes.
Refusal no_such(std::string_view what, const std::string& name);
/// Refuses a parallel loop, because the step is for streams.
std::optional<Refusal> parallel(const LoopTree& tree, const Loop& loop);
/// Refuses a loop with marks. Marks come last, because they describe the turns of a finished loop.
/// So does a limit, unless `limit_allowed`.
std::optional<Refusal> marked(const LoopTree& tree, const Loop& loop, bool limit_allowed = false);
/// Refuses if the bounds of some loop in the region use the axis.
std::optional<Refusal> bounds_use(const LoopTree& tree, const LoopRegion& region, size_t axis);
/// Refuses if something in the region reads, at another index of the axis, what the region makes.
std::optional<Refusal> reads_other_turns(const LoopTree& tree, const LoopRegion& region,
                                         size_t axis);
/// Refuses if the region both reads and writes a tensor, unless each turn of these axes has its own
/// elements of it.
std::optional<Refusal> reads_what_it_writes(const LoopTree& tree, const LoopRegion& region,
                                            const std::vector<size_t>& axes);

}  // namespace braze
