#include "compiler/loops/steps/axes.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "compiler/loops/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

// --- last ---------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const LastStep& step) {
  if (!find_axis(tree, step.axis)) return no_such("axis", step.axis);
  bool bound = false;
  for (const LoopValue& value : tree.values) bound |= value.layout.has_value();
  for_each_task(tree, [&](const LoopTask& task, const auto&) { bound |= task.layout.has_value(); });
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

// The number of x's element at which the axis begins. It exists if it is one number for a turn of
// the loop and grows by 1 along the axis.
std::optional<Expr> first_of_row(const LoopTree& tree, const ItemPlace& place, size_t tensor) {
  const Loop& loop = loop_at(tree, place);
  const std::string& axis = tree.axes[loop.levels[0].axis].name;
  std::set<std::string> known;
  for (const Loop* around : loops_around(tree, place))
    for (const LoopLevel& level : around->levels)
      if (level.turn == 1 && around->on != Machine::Group) known.insert(tree.axes[level.axis].name);
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
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    if (!task.makes_value() && task.target == tensor) note(task.at);
  });
  visit_steps(tree, LoopStep::Kind::Load, [&](const LoopTask&, const LoopStep& s) {
    if (s.source == tensor && s.conditions.empty()) note(s.at);
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
        fmt::format(
            "the accesses to {} do not run along {} element by element from one first element",
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

void change_loads(LoopTree& tree, size_t tensor, const std::function<void(LoopStep&)>& change) {
  const auto change_body = [&](LoopBody& body) {
    for (LoopStep& s : body.steps)
      if (s.kind == LoopStep::Kind::Load && s.source == tensor) change(s);
  };
  change_tasks(tree, [&](LoopTask& task) {
    change_body(task.body);
    if (task.rescale) change_body(*task.rescale);
  });
}

// Whether the expression is a sum of multiples of symbols.
bool is_linear(const Expr& e) {
  const bool sum = e.kind() == Expr::Kind::Sum || e.kind() == Expr::Kind::Product;
  return e.kind() == Expr::Kind::Constant || e.kind() == Expr::Kind::Symbol ||
         (sum && std::ranges::all_of(e.operands(), is_linear));
}

// The number of which the coordinates from `first` to `last` are the digits.
Expr joined(const std::vector<Expr>& at, const Shape& shape, size_t first, size_t last) {
  Expr out = at[first];
  for (size_t d = first + 1; d <= last; ++d) out = out * shape[d] + at[d];
  return out;
}

// The first and the last dimension of a run that all accesses to the tensor run through as one. A
// dimension of one element always joins its neighbour.
std::optional<std::pair<size_t, size_t>> run_of(const LoopTree& tree, size_t tensor) {
  const Shape& shape = tree.tensors[tensor].type.shape;
  std::vector<const std::vector<Expr>*> accesses, asking;
  const bool fits = tree.tensors[tensor].strides.empty();
  for (const LoopRegion& phase : tree.phases) {
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      if (!task.makes_value() && task.target == tensor) accesses.push_back(&task.at);
    });
    visit_steps(phase, LoopStep::Kind::Load, [&](const LoopTask&, const LoopStep& s) {
      if (s.source != tensor) return;
      accesses.push_back(&s.at);
      // A load with `otherwise` and without conditions asks what lies outside.
      if (s.otherwise && s.conditions.empty()) asking.push_back(&s.at);
    });
  }
  if (!fits || accesses.empty()) return std::nullopt;
  // What lies outside is outside of the joined dimension too, if only the first coordinate leaves
  // its dimension.
  const auto stays_outside = [&](size_t first, size_t last) {
    return std::ranges::all_of(asking, [&](const std::vector<Expr>* at) {
      for (size_t d = first + 1; d <= last; ++d)
        if (!proves_in_bounds((*at)[d], shape[d])) return false;
      return true;
    });
  };
  for (size_t last = shape.rank(); last-- > 1;)
    if ((shape[last].is_constant(1) || shape[last - 1].is_constant(1)) &&
        stays_outside(last - 1, last))
      return std::pair(last - 1, last);
  for (size_t last = shape.rank(); last-- > 1;)
    for (size_t first = last; first-- > 0;)
      if (stays_outside(first, last) &&
          std::ranges::all_of(accesses, [&](const std::vector<Expr>* at) {
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
  return Refusal{
      &codes::kSeenApart,
      fmt::format("no two dimensions of {} are read and written as one dimension", step.tensor),
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
    change_tasks(tree, [&](LoopTask& task) {
      if (!task.makes_value() && task.target == tensor) join(task.at);
    });
    change_loads(tree, tensor, [&](LoopStep& load) { join(load.at); });
    std::vector<Expr> dims = shape.dims();
    for (size_t d = last; d > first; --d) {
      dims[d - 1] *= dims[d];
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
    }
    tree.tensors[tensor].type.shape = Shape(std::move(dims));
  }
  return tree;
}

// --- residues -----------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const ResiduesStep& step) {
  const auto tensor = find_tensor(tree, step.tensor);
  if (!tensor) return no_such("tensor", step.tensor);
  const LoopTensor& x = tree.tensors[*tensor];
  if (x.mode != Mode::In || !x.strides.empty())
    return Refusal{&codes::kMemoryOrder, fmt::format("{} is written, or has strides", step.tensor),
                   "name a tensor without strides that is only read"};
  const auto d = static_cast<size_t>(step.dimension);
  if (d >= x.type.shape.rank())
    return Refusal{&codes::kNotAnAxis,
                   fmt::format("{} has {} dimensions", step.tensor, x.type.shape.rank()),
                   "dimensions are counted from 0"};
  if (!x.type.shape[d].is_multiple_of(step.number))
    return Refusal{
        &codes::kNotConstant,
        fmt::format("{} does not divide {}, the extent of dimension {} of {}", step.number,
                    x.type.shape[d].to_string(), step.dimension, step.tensor),
        "take a divisor of that number"};
  return std::nullopt;
}

// An element lies outside the new dimensions exactly where it lay outside the old one.
LoopTree take(LoopTree tree, const ResiduesStep& step) {
  const size_t tensor = find_tensor(tree, step.tensor).value();
  const auto d = static_cast<size_t>(step.dimension);
  const Shape shape = tree.tensors[tensor].type.shape;
  bool joins = d + 1 < shape.rank();
  change_loads(tree, tensor, [&](const LoopStep& load) {
    joins = joins && proves_in_bounds(load.at[d + 1], shape[d + 1]);
  });
  change_loads(tree, tensor, [&](LoopStep& load) {
    const Expr e = load.at[d], remainder = mod(e, step.number);
    load.at[d] = floordiv(e, step.number);
    if (joins)
      load.at[d + 1] += remainder * shape[d + 1];
    else
      load.at.insert(load.at.begin() + static_cast<std::ptrdiff_t>(d) + 1, remainder);
  });
  std::vector<Expr> dims = shape.dims();
  dims[d] = floordiv(dims[d], step.number);
  if (joins)
    dims[d + 1] *= step.number;
  else
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(d) + 1, step.number);
  tree.tensors[tensor].type.shape = Shape(std::move(dims));
  return tree;
}

// --- compose ------------------------------------------------------------------------------------

namespace {

constexpr int64_t kMostComposed = int64_t{1} << 24;

// The axes that are composed, the outermost first.
std::vector<size_t> composed_axes(const LoopTree& tree, const ComposeStep& step) {
  std::vector<size_t> out;
  for (const AxisTurn& digit : step.digits) out.push_back(find_axis(tree, digit.axis).value());
  return out;
}

// Why a task does not permit that the axes become digits of one.
std::optional<Refusal> refuse_task(const LoopTree& tree, const ComposeStep& step,
                                   const LoopTask& task, const std::vector<size_t>& axes,
                                   bool summed) {
  const auto among = [&](const std::vector<size_t>& list) {
    return std::ranges::any_of(axes, [&](size_t axis) { return contains(list, axis); });
  };
  if (among(task.along) || (among(task.over) && !summed))
    return Refusal{&codes::kIsState,
                   "something is combined along an axis that would become a digit",
                   "name axes along which nothing is combined, or streams along all of which sums "
                   "run"};
  if (!summed) return std::nullopt;
  // The terms change their order, and there must be none beyond the end of an axis.
  const bool in_any_order =
      (task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot) && !task.rescale &&
      task.combine == Combine::None;
  if (among(task.over) && (!in_any_order || !std::ranges::all_of(axes, [&](size_t axis) {
        return contains(task.over, axis);
      })))
    return Refusal{&codes::kIsState, "something depends on the order of the turns",
                   "name streams along all of which sums run"};
  for (const AxisTurn& digit : step.digits)
    if (!axis_of(tree, digit.axis).extent.is_multiple_of(digit.turn))
      return Refusal{&codes::kNotConstant,
                     fmt::format("{} does not divide the extent of {}, which is summed", digit.turn,
                                 digit.axis),
                     "take turns that leave nothing over"};
  return std::nullopt;
}

// Refuses a store that would not leave out what lies beyond the end of a digit: at a coordinate
// that the axis shares with others, it is an element of another turn.
std::optional<Refusal> refuse_store(const LoopTree& tree, const ComposeStep& step,
                                    const LoopTask& task) {
  if (task.makes_value()) return std::nullopt;
  const Shape& shape = tree.tensors[task.target].type.shape;
  for (const AxisTurn& digit : step.digits) {
    const LoopAxis& axis = axis_of(tree, digit.axis);
    if (axis.extent.is_multiple_of(digit.turn)) continue;
    for (size_t d = 0; d < task.at.size(); ++d) {
      if (!task.at[d].uses(axis.name)) continue;
      const auto slope = task.at[d].coefficient_of(axis.name);
      const Expr beyond = task.at[d].substitute(axis.name, axis.extent);
      if (slope && proves_at_most(1, *slope) && proves_at_most(shape[d], beyond)) continue;
      return Refusal{&codes::kOtherTurn,
                     fmt::format("`{}` would store what lies beyond the end of {} where another "
                                 "turn stores",
                                 to_text(tree, task), axis.name),
                     "take turns that leave nothing over"};
    }
  }
  return std::nullopt;
}

// Refuses if something in the loop reads what its earlier turns have combined, or stores.
std::optional<Refusal> refuse_running(const LoopTree& tree, const Loop& loop,
                                      const std::vector<size_t>& axes) {
  std::set<size_t> running;
  bool stores = false;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    stores = stores || !task.makes_value();
    if (std::ranges::any_of(task.over, [&](size_t axis) { return contains(axes, axis); }))
      running.insert(task.target);
  });
  bool reads = false;
  visit_steps(loop.body, LoopStep::Kind::Read, [&](const LoopTask&, const LoopStep& s) {
    reads = reads || running.contains(s.source);
  });
  if (!stores && !reads) return std::nullopt;
  return Refusal{&codes::kHasState,
                 fmt::format("the turns of `{}` must run in order", to_text(tree, loop)),
                 "name axes of parallel loops, or of streams that only sum"};
}

// Refuses unless each axis has exactly one loop, which is neither cut nor dealt, and these loops
// stand one inside the other. All of them are parallel, or all are streams.
std::optional<Refusal> refuse_loops(const LoopTree& tree, const ComposeStep& step) {
  std::vector<const Loop*> inside;  // the loops so far
  for (const AxisTurn& digit : step.digits) {
    const size_t axis = find_axis(tree, digit.axis).value();
    if (find_loop(tree, {digit.axis, 2}))
      return Refusal{&codes::kLevelsDiffer, fmt::format("several loops run over {}", digit.axis),
                     "compose axes before their loops are split"};
    const auto place = find_loop(tree, {digit.axis});
    if (!place) return no_such("loop", digit.axis);
    const Loop& loop = loop_at(tree, *place);
    if (auto refusal = marked(tree, loop)) return refusal;
    if (!inside.empty() && loop.parallel != inside.front()->parallel)
      return Refusal{&codes::kHasState,
                     fmt::format("the turns of `{}` must run in order, and those of `{}` need not",
                                 to_text(tree, loop.parallel ? *inside.front() : loop),
                                 to_text(tree, loop.parallel ? loop : *inside.front())),
                     "name axes of parallel loops, or of streams"};
    if (loop.levels.size() != 1 || loop.levels[0].turn != 1 || loop.on != Machine::None)
      return Refusal{&codes::kLevelsDiffer,
                     fmt::format("the turns of `{}` are cut or dealt already", to_text(tree, loop)),
                     "compose axes before their loops are split"};
    if (loop.bounds)
      return Refusal{&codes::kBoundsDepend, fmt::format("`{}` has bounds", to_text(tree, loop)),
                     "take this step before the loop has bounds"};
    if (auto refusal = bounds_use(tree, loop.body, axis)) return refusal;
    const auto around = loops_around(tree, *place);
    for (const Loop* other : inside)
      if (std::ranges::count(around, other) == 0)
        return Refusal{&codes::kBetween,
                       fmt::format("`{}` does not stand inside `{}`", to_text(tree, loop),
                                   to_text(tree, *other)),
                       "name the axes of loops one inside the other, the outermost first"};
    inside.push_back(&loop);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const ComposeStep& step) {
  if (find_axis(tree, step.composed))
    return Refusal{&codes::kNotAnAxis, fmt::format("{} is an axis already", step.composed),
                   "give the new axis a name of its own"};
  int64_t count = 1;
  std::set<std::string> names;
  for (const AxisTurn& digit : step.digits) {
    if (!find_axis(tree, digit.axis)) return no_such("axis", digit.axis);
    if (!names.insert(digit.axis).second)
      return Refusal{&codes::kNotAnAxis, fmt::format("{} is named twice", digit.axis),
                     "name each axis once"};
    count *= std::min(digit.turn, kMostComposed);
    if (count > kMostComposed)
      return Refusal{&codes::kNotConstant, "the new axis is too long", "take smaller turns"};
  }
  if (step.digits.empty())
    return Refusal{&codes::kNotAnAxis, "no axes are named", "name at least one, with its turn"};
  if (auto refusal = refuse_loops(tree, step)) return refusal;
  const std::vector<size_t> axes = composed_axes(tree, step);
  const ItemPlace innermost = find_loop(tree, {step.digits.back().axis}).value();
  const Loop* const within = &loop_at(tree, innermost);
  const bool summed = !within->parallel;
  if (summed)
    if (auto refusal = refuse_running(
            tree, loop_at(tree, find_loop(tree, {step.digits.front().axis}).value()), axes))
      return refusal;
  std::optional<Refusal> out;
  for_each_task(tree, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    const std::set<size_t> used = axes_used(tree, task);
    std::vector<size_t> own(used.begin(), used.end());
    if (task.makes_value()) {
      const auto& made = tree.values[task.target].axes;
      own.insert(own.end(), made.begin(), made.end());
    }
    const bool uses = std::ranges::any_of(axes, [&](size_t axis) { return contains(own, axis); });
    if (auto refusal = refuse_task(tree, step, task, axes, summed))
      out = std::move(refusal);
    else if (auto other = refuse_store(tree, step, task))
      out = std::move(other);
    else if (uses && std::ranges::count(around, within) == 0)
      out = Refusal{&codes::kBetween,
                    fmt::format("a task outside of `{}` uses its axes", to_text(tree, *within)),
                    "name axes that are used only inside of all their loops"};
    if (task.makes_value() && uses && tree.values[task.target].layout)
      out =
          Refusal{&codes::kMarked, "a value already has a layout", "take this step before `bind`"};
  });
  if (out) return out;
  visit_steps(tree, LoopStep::Kind::Read, [&](const LoopTask&, const LoopStep& s) {
    const auto& own = tree.values[s.source].axes;
    for (size_t i = 0; i < own.size(); ++i)
      if (contains(axes, own[i]) && !(s.at[i] == tree.axes[own[i]].index()))
        out = Refusal{&codes::kOtherTurn,
                      fmt::format("%{} is read at another index of {}", tree.values[s.source].name,
                                  tree.axes[own[i]].name),
                      "name axes along which values are read at their own index"};
  });
  return out;
}

LoopTree take(LoopTree tree, const ComposeStep& step) {
  const size_t composed = composed_axes(tree, step).back() + 1;
  renumber_axes(tree, [&](size_t axis) { return axis + (axis >= composed); });
  int64_t count = 1;
  for (const AxisTurn& digit : step.digits) count *= digit.turn;
  tree.axes.insert(tree.axes.begin() + static_cast<std::ptrdiff_t>(composed),
                   {step.composed, count});
  const Expr d = tree.axes[composed].index();
  const std::vector<size_t> axes = composed_axes(tree, step);
  std::unordered_map<std::string, Expr> index;
  std::set<size_t> gone;  // axes that have only one turn
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t turn = step.digits[i].turn;
    const Expr digit = floordiv(mod(d, count), count / turn);
    count /= turn;
    LoopAxis& axis = tree.axes[axes[i]];
    axis.extent = ceildiv(axis.extent, turn);
    const bool one = axis.extent.is_constant(1);
    if (one) gone.insert(axes[i]);
    index.insert_or_assign(axis.name, one ? digit : axis.index() * Expr(turn) + digit);
  }
  // A value, or a sum, has the new axis after the last of its axes that were composed.
  const auto last_of = [&](const std::vector<size_t>& own) {
    const auto is_composed = [&](size_t axis) { return contains(axes, axis); };
    return static_cast<size_t>(std::find_if(own.rbegin(), own.rend(), is_composed).base() -
                               own.begin());
  };
  const auto with_composed = [&](std::vector<size_t>& own) {
    const size_t last = last_of(own);
    if (last > 0) own.insert(own.begin() + static_cast<std::ptrdiff_t>(last), composed);
    std::erase_if(own, [&](size_t axis) { return gone.contains(axis); });
  };
  const auto change = [&](Expr& e) { e = e.substitute(index); };
  const auto change_body = [&](LoopBody& body) {
    for (LoopStep& s : body.steps) {
      if (s.kind != LoopStep::Kind::Read) continue;
      const std::vector<size_t>& own = tree.values[s.source].axes;
      std::vector<Expr> at;
      for (size_t i = 0; i < own.size(); ++i) {
        if (!contains(axes, own[i]))
          at.push_back(s.at[i].substitute(index));
        else if (!gone.contains(own[i]))
          at.push_back(tree.axes[own[i]].index());
        if (i + 1 == last_of(own)) at.push_back(d);
      }
      s.at = std::move(at);
      for (RangeCondition& c : s.conditions)
        for (Expr* e : {&c.value, &c.min, &c.limit}) change(*e);
    }
    LoopBody reads = body;  // reads have their new coordinates already
    for_each_expr(body, change);
    for (size_t i = 0; i < body.steps.size(); ++i)
      if (body.steps[i].kind == LoopStep::Kind::Read) body.steps[i] = std::move(reads.steps[i]);
  };
  change_tasks(tree, [&](LoopTask& task) {
    change_body(task.body);
    if (task.rescale) change_body(*task.rescale);
    for (Expr& e : task.at) change(e);
    with_composed(task.over);
  });
  for (LoopValue& value : tree.values) with_composed(value.axes);
  Loop& innermost = loop_at(tree, find_loop(tree, {step.digits.back().axis}).value());
  Loop loop;
  loop.parallel = innermost.parallel;
  loop.levels = {{composed, 1}};
  loop.location = innermost.location;
  loop.body = std::move(innermost.body);
  innermost.body.clear();
  innermost.body.emplace_back(std::move(loop));
  for (const size_t axis : gone) {
    const ItemPlace place = find_loop(tree, {tree.axes[axis].name}).value();
    LoopRegion& region = region_of(tree, place);
    const auto at = region.begin() + static_cast<std::ptrdiff_t>(place.items.back());
    LoopRegion body = std::move(std::get<Box<Loop>>(*at)->body);
    region.insert(region.erase(at), std::make_move_iterator(body.begin()),
                  std::make_move_iterator(body.end()));
  }
  return tree;
}

// --- pad ----------------------------------------------------------------------------------------

namespace {

// Whether the coordinates lie outside of the shape exactly where they are beyond the end of the
// axis.
bool ends_with(const std::vector<Expr>& at, const Shape& shape, const LoopAxis& axis) {
  size_t along = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    if (!at[d].uses(axis.name)) continue;
    if (at[d] != axis.index() || shape[d] != axis.extent) return false;
    ++along;
  }
  return along == 1;
}

// Whether a load can be 0 beyond the end of the axis.
bool may_be_0(const LoopTree& tree, const LoopStep& load, const LoopAxis& axis) {
  return load.conditions.empty() && load.otherwise.value_or(0) == 0 &&
         ends_with(load.at, tree.tensors[load.source].type.shape, axis);
}

// By step of the body: whether it is 0 where the loads along the axis are.
std::vector<bool> zeros(const LoopTree& tree, const LoopBody& body, const LoopAxis& axis) {
  std::vector<bool> out;
  for (const LoopStep& s : body.steps) {
    const auto argument = [&](size_t i) { return out[s.arguments[i]]; };
    const auto is_finite = [&](size_t i) {
      const LoopStep& constant = body.steps[s.arguments[i]];
      return constant.kind == LoopStep::Kind::Constant && is_floating(constant.dtype) &&
             std::isfinite(bits_to_double(constant.dtype, constant.bits));
    };
    bool is_zero = false;
    if (s.kind == LoopStep::Kind::Load)
      is_zero = may_be_0(tree, s, axis);
    else if (s.kind == LoopStep::Kind::Apply &&
             (s.op == ElementwiseOp::convert || s.op == ElementwiseOp::neg))
      is_zero = argument(0);
    else if (s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::mul)
      is_zero = (argument(0) && (argument(1) || is_finite(1))) || (argument(1) && is_finite(0));
    out.push_back(is_zero);
  }
  return out;
}

// Whether an address is computed from what changes along the axis. Beyond the end nobody knows what
// it is. `stored` is where the body's results go.
bool computes_addresses(const LoopBody& body, const std::vector<Expr>& stored,
                        const LoopAxis& axis) {
  std::vector<bool> changes;  // by step
  bool out = false;
  const auto uses = [&](const std::vector<Expr>& at) {
    bool along = false;
    for (const Expr& e : at)
      for (const std::string& symbol : e.symbols()) {
        const auto step = loaded_step(symbol);
        out = out || (step && changes[*step]);
        along = along || symbol == axis.name || (step && changes[*step]);
      }
    return along;
  };
  for (const LoopStep& s : body.steps) {
    bool along = uses(s.at);
    for (const RangeCondition& c : s.conditions) along |= uses({c.value, c.min, c.limit});
    for (const uint32_t argument : s.arguments) along = along || changes[argument];
    changes.push_back(along);
  }
  uses(stored);
  return out;
}

// Why the task does not permit that the axis becomes longer than it is.
std::optional<Refusal> refuse_longer(const LoopTree& tree, const LoopTask& task, size_t number) {
  const LoopAxis& axis = tree.axes[number];
  const auto uses = [&](const Expr& e) { return e.uses(axis.name); };
  const std::string made =
      task.makes_value() ? "%" + tree.values[task.target].name : tree.tensors[task.target].name;
  if (contains(task.along, number) || (task.makes_value() && tree.values[task.target].layout))
    return Refusal{&codes::kIsState, fmt::format("{} is made along {}", made, axis.name),
                   "name an axis along which dots sum, before layouts are bound"};
  if (contains(task.over, number)) {
    const bool sums =
        task.kind == LoopTask::Kind::Dot && !task.rescale && task.combine == Combine::None;
    const std::vector<bool> is_zero = zeros(tree, task.body, axis);
    if (!sums ||
        !std::ranges::all_of(task.body.results, [&](uint32_t result) { return is_zero[result]; }))
      return Refusal{
          &codes::kIsState,
          fmt::format("{} combines more than zeros beyond the end of {}", made, axis.name),
          "name an axis along which dots sum, and which ends where their factors end"};
  }
  if (!task.makes_value() && std::ranges::any_of(task.at, uses) &&
      !ends_with(task.at, tree.tensors[task.target].type.shape, axis))
    return Refusal{&codes::kSeenApart,
                   fmt::format("{} continues beyond the end of {}", made, axis.name),
                   "name an axis that ends where the tensors end"};
  if (computes_addresses(task.body, task.at, axis) ||
      (task.rescale && computes_addresses(*task.rescale, {}, axis)))
    return Refusal{&codes::kSeenApart,
                   fmt::format("{} computes addresses along {}", made, axis.name),
                   "name an axis along which no addresses are computed"};
  for (const LoopBody* body : {&task.body, task.rescale ? &*task.rescale : nullptr})
    for (const LoopStep& s : body ? body->steps : std::vector<LoopStep>()) {
      const bool along = std::ranges::any_of(s.at, uses);
      const bool is_same =
          s.kind == LoopStep::Kind::Load ? may_be_0(tree, s, axis)
          : s.kind == LoopStep::Kind::Read
              ? std::ranges::all_of(s.at,
                                    [&](const Expr& e) { return !uses(e) || e == axis.index(); })
              : true;
      if (along && !is_same)
        return Refusal{&codes::kSeenApart,
                       fmt::format("{} reads along {} what does not end where {} ends", made,
                                   axis.name, axis.name),
                       "name an axis that ends where the tensors end"};
    }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const PadStep& step) {
  const auto number = find_axis(tree, step.axis);
  if (!number) return no_such("axis", step.axis);
  const LoopAxis& axis = tree.axes[*number];
  const auto extent = axis.extent.as_constant();
  if (!extent || step.extent <= *extent)
    return Refusal{&codes::kNotConstant,
                   fmt::format("{} is not greater than the extent of {}, which is {}", step.extent,
                               step.axis, axis.extent.to_string()),
                   "name an axis of constant extent, and a greater one"};
  std::optional<Refusal> out;
  for (const LoopRegion& phase : tree.phases) {
    visit_loops(phase, [&](const Loop& loop) {
      if (!runs_over(loop, *number) || out) return;
      out = marked(tree, loop);
      if (!out) out = bounds_use(tree, loop.body, *number);
      if (loop.levels.size() != 1 || loop.levels[0].turn != 1 || loop.bounds ||
          loop.on != Machine::None)
        out = Refusal{&codes::kLevelsDiffer,
                      fmt::format("`{}` is cut, dealt, or has bounds", to_text(tree, loop)),
                      "pad an axis before its loops are split"};
    });
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      if (!out) out = refuse_longer(tree, task, *number);
    });
  }
  return out;
}

LoopTree take(LoopTree tree, const PadStep& step) {
  LoopAxis& axis = tree.axes[find_axis(tree, step.axis).value()];
  axis.extent = step.extent;
  const Expr index = axis.index();
  change_tasks(tree, [&](LoopTask& task) {
    const auto load_zeros = [&](LoopBody& body) {
      for (LoopStep& s : body.steps)
        if (s.kind == LoopStep::Kind::Load &&
            std::ranges::any_of(s.at, [&](const Expr& e) { return e.uses(axis.name); }))
          s.otherwise = 0;
    };
    load_zeros(task.body);
    if (task.rescale) load_zeros(*task.rescale);
    for_each_expr(task, [&](Expr& e) { e = e.substitute(axis.name, index); });
  });
  return tree;
}

}  // namespace braze
