#include "compiler/loops/steps/axes.h"

#include <algorithm>
#include <functional>

#include "compiler/fusion/space.h"
#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

// --- last ---------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const LastStep& step) {
  if (!find_axis(tree, step.axis)) return no_such("axis", step.axis);
  bool bound = false;
  for (const LoopValue& value : tree.values) bound |= value.layout.has_value();
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase,
                  [&](const LoopTask& task, const auto&) { bound |= task.layout.has_value(); });
  if (!bound) return std::nullopt;
  return Refusal{
      &codes::kMarked,
      "a task already has a layout, which is for the dimensions of the tiles as they are",
      "take this step before `bind`"};
}

LoopTree take(LoopTree tree, const LastStep& step) {
  const size_t moved = find_axis(tree, step.axis).value();
  const size_t last = tree.axes.size() - 1;
  LoopAxis own = std::move(tree.axes[moved]);
  tree.axes.erase(tree.axes.begin() + static_cast<std::ptrdiff_t>(moved));
  tree.axes.push_back(std::move(own));
  renumber_axes(tree, [&](size_t axis) { return axis == moved ? last : axis - (axis > moved); });
  return tree;
}

// --- lead ---------------------------------------------------------------------------------------

namespace {

// The number of x's element at which the axis begins, if that is one number for a turn of the loop
// and grows by 1 along the axis.
std::optional<Expr> first_of_row(const LoopTree& tree, const ItemPlace& place, size_t tensor) {
  const Loop& loop = loop_at(tree, place);
  const std::string& axis = tree.axes[loop.levels[0].axis].name;
  std::set<std::string> known;
  for (const Loop* around : loops_around(tree, place))
    for (const LoopLevel& level : around->levels)
      if (level.turn == 1) known.insert(tree.axes[level.axis].name);
  for (const Expr& size : tree.symbols) known.insert(size.symbol_name());
  std::optional<Expr> out;
  const auto note = [&](const std::vector<Expr>& at) {
    const Expr offset = linear_offset(at, tree.tensors[tensor].type.shape);
    const auto slope = offset.coefficient_of(axis);
    if (!slope || !slope->is_constant(1)) return;
    const Expr first = offset.substitute(axis, 0);
    const auto symbols = first.symbols();
    if (std::all_of(symbols.begin(), symbols.end(),
                    [&](const std::string& name) { return known.contains(name); }))
      out = first;
  };
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      for (const LoopStep& s : task.body.steps)
        if (s.kind == LoopStep::Kind::Load && s.source == tensor && s.conditions.empty())
          note(s.at);
      if (!task.makes_value() && task.target == tensor) note(task.at);
    });
  return out;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const LeadStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const auto tensor = find_tensor(tree, step.tensor);
  if (!tensor) return no_such("tensor", step.tensor);
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = marked(tree, loop)) return refusal;
  if (loop.bounds || loop.levels.size() != 1 || loop.on != Machine::None || loop.down ||
      is_cut(loops_around(tree, *place), loop.levels[0].axis))
    return Refusal{&codes::kBoundsDepend,
                   fmt::format("`{}` has bounds, is dealt, or runs over a part of its axis only",
                               to_text(tree, loop)),
                   "name a loop that runs over all of one axis"};
  if (!first_of_row(tree, *place, *tensor))
    return Refusal{
        &codes::kNotAffine,
        fmt::format("{} is not read or written along {} by single elements that begin at one place",
                    step.tensor, step.loop.axis),
        "name the last axis of a tensor, and take the axes before it in single turns"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const LeadStep& step) {
  const ItemPlace place = find_loop(tree, step.loop).value();
  const Expr first = first_of_row(tree, place, find_tensor(tree, step.tensor).value()).value();
  Loop& loop = loop_at(tree, place);
  const Expr lead = mod(first, step.number);
  if (!lead.is_constant(0)) loop.bounds.emplace(-lead, tree.axes[loop.levels[0].axis].extent);
  return tree;
}

// --- flatten ------------------------------------------------------------------------------------

namespace {

// Sums of multiples of symbols.
bool is_linear(const Expr& e) {
  const bool sum = e.kind() == Expr::Kind::Sum || e.kind() == Expr::Kind::Product;
  return e.kind() == Expr::Kind::Constant || e.kind() == Expr::Kind::Symbol ||
         (sum && std::ranges::all_of(e.operands(), is_linear));
}

// The number that the coordinates from `first` to `last` are digits of.
Expr joined(const std::vector<Expr>& at, const Shape& shape, size_t first, size_t last) {
  Expr out = at[first];
  for (size_t d = first + 1; d <= last; ++d) out = out * shape[d] + at[d];
  return out;
}

// Dimensions, the first and the last of a run, that all accesses to the tensor run through as one;
// so they do through one of a single element and its neighbour.
std::optional<std::pair<size_t, size_t>> run_of(const LoopTree& tree, size_t tensor) {
  const Shape& shape = tree.tensors[tensor].type.shape;
  std::vector<const std::vector<Expr>*> accesses;
  bool fits = tree.tensors[tensor].strides.empty();
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      if (!task.makes_value() && task.target == tensor) accesses.push_back(&task.at);
      for (const LoopStep& s : task.body.steps) {
        if (s.kind != LoopStep::Kind::Load || s.source != tensor) continue;
        accesses.push_back(&s.at);
        fits &= !s.otherwise || !s.conditions.empty();  // else what lies outside is asked for
      }
    });
  if (!fits || accesses.empty()) return std::nullopt;
  for (size_t last = shape.rank(); last-- > 1;)
    if (shape[last].is_constant(1) || shape[last - 1].is_constant(1))
      return std::pair(last - 1, last);
  for (size_t last = shape.rank(); last-- > 1;)
    for (size_t first = last; first-- > 0;)
      if (std::ranges::all_of(accesses, [&](const std::vector<Expr>* at) {
            return is_linear(joined(*at, shape, first, last)) && !is_linear((*at)[first]) &&
                   !is_linear((*at)[last]);
          }))
        return std::pair(first, last);
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const FlattenStep& step) {
  const auto tensor = find_tensor(tree, step.tensor);
  if (!tensor) return no_such("tensor", step.tensor);
  if (run_of(tree, *tensor)) return std::nullopt;
  return Refusal{&codes::kSeenApart,
                 fmt::format("no dimensions of {} are run through as one", step.tensor),
                 "it stays as it is"};
}

LoopTree take(LoopTree tree, const FlattenStep& step) {
  const size_t tensor = find_tensor(tree, step.tensor).value();
  while (const auto run = run_of(tree, tensor)) {
    const auto [first, last] = *run;
    const Shape shape = tree.tensors[tensor].type.shape;
    const auto join = [&](std::vector<Expr>& at) {
      at[first] = joined(at, shape, first, last);
      at.erase(at.begin() + static_cast<std::ptrdiff_t>(first) + 1,
               at.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    };
    for (LoopRegion& phase : tree.phases)
      change_tasks(phase, [&](LoopTask& task) {
        if (!task.makes_value() && task.target == tensor) join(task.at);
        for (LoopStep& s : task.body.steps)
          if (s.kind == LoopStep::Kind::Load && s.source == tensor) join(s.at);
      });
    std::vector<Expr> dims = shape.dims();
    for (size_t d = last; d > first; --d) {
      dims[d - 1] *= dims[d];
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
    }
    tree.tensors[tensor].type.shape = Shape(std::move(dims));
  }
  return tree;
}

}  // namespace braze
