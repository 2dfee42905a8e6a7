#include "compiler/loops/steps/places.h"

#include <algorithm>
#include <map>

#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Finds the place of the first item for which `wanted` holds, in the order of the text.
bool find(const LoopRegion& region, const std::function<bool(const LoopItem&)>& wanted,
          std::vector<size_t>& items) {
  for (size_t i = 0; i < region.size(); ++i) {
    items.push_back(i);
    if (wanted(region[i])) return true;
    const auto* loop = std::get_if<Box<Loop>>(&region[i]);
    if (loop && find((*loop)->body, wanted, items)) return true;
    items.pop_back();
  }
  return false;
}

std::optional<ItemPlace> find(const LoopTree& tree,
                              const std::function<bool(const LoopItem&)>& wanted) {
  ItemPlace place;
  for (; place.phase < tree.phases.size(); ++place.phase)
    if (find(tree.phases[place.phase], wanted, place.items)) return place;
  return std::nullopt;
}

template <class Things>
std::optional<size_t> named(const Things& things, std::string_view name) {
  for (size_t i = 0; i < things.size(); ++i)
    if (things[i].name == name) return i;
  return std::nullopt;
}

}  // namespace

std::string LoopName::to_string() const {
  return number == 1 ? axis : fmt::format("{}.{}", axis, number);
}

std::optional<ItemPlace> find_loop(const LoopTree& tree, const LoopName& name) {
  const auto axis = find_axis(tree, name.axis);
  if (!axis) return std::nullopt;
  int64_t seen = 0;
  return find(tree, [&](const LoopItem& item) {
    const auto* loop = std::get_if<Box<Loop>>(&item);
    return loop && runs_over(**loop, *axis) && ++seen == name.number;
  });
}

std::optional<ItemPlace> find_task(const LoopTree& tree,
                                   const std::function<bool(const LoopTask&)>& wanted) {
  return find(tree, [&](const LoopItem& item) {
    const auto* task = std::get_if<LoopTask>(&item);
    return task && wanted(*task);
  });
}

std::optional<ItemPlace> find_made(const LoopTree& tree, const MadeName& made) {
  const auto number = made.is_value ? find_value(tree, made.name) : find_tensor(tree, made.name);
  if (!number) return std::nullopt;
  return find_task(tree, [&](const LoopTask& task) {
    return task.target == *number && task.makes_value() == made.is_value;
  });
}

std::set<size_t> own_axes(const LoopTree& tree, const LoopTask& task) {
  if (!task.makes_value()) return axes_used(tree, task);
  const auto& axes = tree.values[task.target].axes;
  return {axes.begin(), axes.end()};
}

std::optional<size_t> find_axis(const LoopTree& tree, std::string_view name) {
  return named(tree.axes, name);
}
const LoopAxis& axis_of(const LoopTree& tree, std::string_view name) {
  return tree.axes[find_axis(tree, name).value()];
}
std::optional<size_t> find_value(const LoopTree& tree, std::string_view name) {
  return named(tree.values, name);
}
std::optional<size_t> find_tensor(const LoopTree& tree, std::string_view name) {
  return named(tree.tensors, name);
}

ItemPlace maker_of(const LoopTree& tree, size_t value) {
  return find_task(tree, [&](const LoopTask& t) { return t.makes_value() && t.target == value; })
      .value();
}

std::vector<const Loop*> loops_around(const LoopTree& tree, const ItemPlace& place) {
  std::vector<const Loop*> out;
  const LoopRegion* region = &tree.phases[place.phase];
  for (size_t depth = 0; depth + 1 < place.items.size(); ++depth) {
    out.push_back(&*std::get<Box<Loop>>((*region)[place.items[depth]]));
    region = &out.back()->body;
  }
  return out;
}

const Loop* as_loop(const LoopItem& item) {
  const auto* box = std::get_if<Box<Loop>>(&item);
  return box ? &**box : nullptr;
}

const Loop* only_child(const Loop& loop) {
  return loop.body.size() == 1 ? as_loop(loop.body[0]) : nullptr;
}

Expr extent_in(const LoopTree& tree, const std::vector<const Loop*>& around, size_t axis,
               bool groups) {
  for (size_t i = around.size(); i-- > 0;)
    for (const LoopLevel& level : around[i]->levels)
      if (level.axis == axis && (groups || around[i]->on != Machine::Group)) return level.turn;
  return tree.axes[axis].extent;
}

bool is_cut(const std::vector<const Loop*>& around, size_t axis) {
  return std::any_of(around.begin(), around.end(),
                     [&](const Loop* loop) { return runs_over(*loop, axis); });
}

bool is_one_turn(const Expr& extent, int64_t turn) { return extent.range().max <= turn; }

void change_tasks(LoopRegion& region, const std::function<void(LoopTask&)>& change) {
  for (LoopItem& item : region) {
    if (auto* task = std::get_if<LoopTask>(&item))
      change(*task);
    else
      change_tasks(std::get<Box<Loop>>(item)->body, change);
  }
}

void change_tasks(LoopTree& tree, const std::function<void(LoopTask&)>& change) {
  for (LoopRegion& phase : tree.phases) change_tasks(phase, change);
}

void visit_loops(const LoopRegion& region, const std::function<void(const Loop&)>& visit) {
  for (const LoopItem& item : region)
    if (const auto* loop = std::get_if<Box<Loop>>(&item)) {
      visit(**loop);
      visit_loops((*loop)->body, visit);
    }
}

void visit_loops(const LoopTree& tree, const std::function<void(const Loop&)>& visit) {
  for (const LoopRegion& phase : tree.phases) visit_loops(phase, visit);
}

void renumber_axes(LoopTree& tree, const std::function<size_t(size_t)>& number) {
  const auto change = [&](std::vector<size_t>& axes) {
    for (size_t& axis : axes) axis = number(axis);
  };
  for (LoopValue& value : tree.values) change(value.axes);
  const std::function<void(LoopRegion&)> renumber = [&](LoopRegion& items) {
    for (LoopItem& item : items) {
      if (auto* task = std::get_if<LoopTask>(&item)) {
        change(task->over);
        change(task->along);
        continue;
      }
      Loop& loop = *std::get<Box<Loop>>(item);
      for (LoopLevel& level : loop.levels) level.axis = number(level.axis);
      for (Deal& deal : loop.deal) deal.axis = number(deal.axis);
      renumber(loop.body);
    }
  };
  for (LoopRegion& phase : tree.phases) renumber(phase);
}

bool has_loaded_coordinates(const LoopBody& body) {
  bool out = false;
  for_each_expr(body, [&](const Expr& e) {
    for (const std::string& symbol : e.symbols()) out = out || loaded_step(symbol);
  });
  return out;
}

std::set<size_t> tile_axes(const LoopTree& tree, const LoopTask& task) {
  std::set<size_t> out = own_axes(tree, task);
  out.insert(task.over.begin(), task.over.end());
  return out;
}

LoopTask with_factor(const LoopTask& dot, size_t factor) {
  LoopTask out = dot;
  out.body = part_of(std::move(out.body), dot.body.results[factor]);
  out.rescale.reset();
  return out;
}

std::set<size_t> axes_of_factor(const LoopTree& tree, const LoopTask& dot, size_t factor) {
  return axes_used(tree, with_factor(dot, factor));
}

std::set<size_t> values_made(const LoopRegion& region) {
  std::set<size_t> out;
  for_each_task(region, [&](const LoopTask& task, const auto&) {
    if (task.makes_value()) out.insert(task.target);
  });
  return out;
}

void visit_steps(const LoopRegion& region, LoopStep::Kind kind,
                 const std::function<void(const LoopTask&, const LoopStep&)>& visit) {
  for_each_task(region, [&](const LoopTask& task, const auto&) {
    for (const LoopBody* body : {&task.body, task.rescale ? &*task.rescale : nullptr}) {
      if (!body) continue;
      for (const LoopStep& s : body->steps)
        if (s.kind == kind) visit(task, s);
    }
  });
}

void visit_steps(const LoopTree& tree, LoopStep::Kind kind,
                 const std::function<void(const LoopTask&, const LoopStep&)>& visit) {
  for (const LoopRegion& phase : tree.phases) visit_steps(phase, kind, visit);
}

bool reads(const LoopItem& item, size_t value) {
  if (const auto* task = std::get_if<LoopTask>(&item))
    return reads(task->body, value) || (task->rescale && reads(*task->rescale, value));
  return std::ranges::any_of(std::get<Box<Loop>>(item)->body,
                             [&](const LoopItem& inner) { return reads(inner, value); });
}

LoopStep own_read(const LoopTree& tree, size_t value) {
  const LoopValue& read = tree.values[value];
  LoopStep out{.kind = LoopStep::Kind::Read, .dtype = read.dtype, .source = value};
  for (const size_t axis : read.axes) out.at.push_back(tree.axes[axis].index());
  return out;
}

std::vector<bool> steps_of_start(const LoopTask& task) {
  std::vector<bool> out(task.body.steps.size());
  if (task.kind != LoopTask::Kind::Place) return out;
  out[task.body.results[2]] = true;
  for (size_t i = out.size(); i-- > 0;) {
    if (!out[i]) continue;
    const LoopStep& step = task.body.steps[i];
    for (const uint32_t argument : step.arguments) out[argument] = true;
    for_each_expr(step, [&](const Expr& e) {
      for (const std::string& symbol : e.symbols())
        if (const auto k = loaded_step(symbol); k && *k < i) out[*k] = true;
    });
  }
  return out;
}

std::string unused_value(const LoopTree& tree, const std::string& wanted) {
  std::string out = wanted;
  for (int n = 2; find_value(tree, out); ++n) out = wanted + std::to_string(n);
  return out;
}

std::string unused_axis(const LoopTree& tree, const std::string& wanted) {
  const auto taken = [&](const std::string& name) {
    return is_reserved_symbol(name) || find_axis(tree, name) ||
           std::any_of(tree.symbols.begin(), tree.symbols.end(),
                       [&](const Expr& size) { return size.uses(name); });
  };
  std::string out = wanted;
  for (int n = 2; taken(out); ++n) out = wanted + std::to_string(n);
  return out;
}

Refusal no_such(std::string_view what, const std::string& name) {
  return {&codes::kNoSuchName, fmt::format("there is no {} {}", what, name),
          "print the tree that the steps before this make, and use a name that stands in it"};
}

std::optional<Refusal> parallel(const LoopTree& tree, const Loop& loop) {
  if (!loop.parallel) return std::nullopt;
  return Refusal{&codes::kKindsDiffer, fmt::format("`{}` is not a stream", to_text(tree, loop)),
                 "name a stream"};
}

std::optional<Refusal> marked(const LoopTree& tree, const Loop& loop, bool limit_allowed) {
  const bool early = std::any_of(loop.body.begin(), loop.body.end(), [](const LoopItem& item) {
    const auto* task = std::get_if<LoopTask>(&item);
    return task && task->ahead > 0;
  });
  if (loop.ring == 0 && loop.unroll == 0 && loop.partial == 0 && !loop.turns && !loop.seek &&
      loop.deal.empty() && loop.parts.empty() && !early && (limit_allowed || !loop.limit))
    return std::nullopt;
  return Refusal{&codes::kMarked,
                 fmt::format("`{}` has marks that this step would make wrong", to_text(tree, loop)),
                 "take steps that mark a loop after the steps that change it"};
}

std::optional<Refusal> bounds_use(const LoopTree& tree, const LoopRegion& region, size_t axis) {
  std::optional<Refusal> out;
  const std::string& name = tree.axes[axis].name;
  const std::string end = end_symbol(tree.axes[axis]).symbol_name();
  visit_loops(region, [&](const Loop& loop) {
    std::vector<Expr> bounds;
    if (loop.bounds) bounds = {loop.bounds->first, loop.bounds->second};
    if (loop.limit)
      for (const LoopStep& s : loop.limit->steps)
        bounds.insert(bounds.end(), s.at.begin(), s.at.end());
    if (loop.picks) bounds.insert(bounds.end(), loop.picks->at.begin(), loop.picks->at.end());
    for (const Expr& bound : bounds)
      if (bound.uses(name) || bound.uses(end))
        out = Refusal{
            &codes::kBoundsDepend,
            fmt::format("the bounds of `{}` depend on the turn of {}", to_text(tree, loop), name),
            "take this step before the loop has bounds"};
  });
  return out;
}

std::optional<Refusal> reads_other_turns(const LoopTree& tree, const LoopRegion& region,
                                         size_t axis) {
  std::optional<Refusal> out;
  const std::set<size_t> made = values_made(region);
  visit_steps(region, LoopStep::Kind::Read, [&](const LoopTask&, const LoopStep& s) {
    if (!made.contains(s.source)) return;
    const LoopValue& value = tree.values[s.source];
    for (size_t i = 0; i < value.axes.size(); ++i)
      if (value.axes[i] == axis && !(s.at[i] == tree.axes[axis].index()))
        out = Refusal{&codes::kOtherTurn,
                      fmt::format("%{} is read at {} along {}, which another turn makes",
                                  value.name, s.at[i].to_string(), tree.axes[axis].name),
                      "leave the order of these turns as it is"};
  });
  return out;
}

namespace {

// Adds the axes whose indices determine the coordinate uniquely: it is a sum of multiples of them,
// and no part of the sum reaches the next multiple.
void note_told_apart(const LoopTree& tree, const Expr& e, std::set<size_t>& out) {
  std::vector<std::pair<int64_t, size_t>> terms;
  for (const std::string& symbol : e.symbols()) {
    const auto axis = find_axis(tree, symbol);
    const auto slope = axis ? e.coefficient_of(symbol) : std::nullopt;
    if (!axis || !slope || slope->as_constant().value_or(0) < 1) return;
    terms.emplace_back(*slope->as_constant(), *axis);
  }
  std::ranges::sort(terms);
  int64_t reached = 0;
  for (const auto& [slope, axis] : terms) {
    if (slope <= reached) return;
    const int64_t last = tree.axes[axis].extent.range().max - 1;
    if (terms.size() > 1 && last > INT32_MAX) return;
    reached += slope * last;
  }
  for (const auto& [slope, axis] : terms) out.insert(axis);
}

}  // namespace

std::optional<Refusal> reads_what_it_writes(const LoopTree& tree, const LoopRegion& region,
                                            const std::vector<size_t>& axes) {
  std::map<size_t, std::vector<std::vector<Expr>>> written;
  for_each_task(region, [&](const LoopTask& task, const auto&) {
    if (!task.makes_value()) written[task.target].push_back(task.at);
  });
  // All accesses to the tensor must be at one place, which differs between turns of the axes.
  const auto is_own = [&](const std::vector<std::vector<Expr>>& places,
                          const std::vector<Expr>& at) {
    std::set<size_t> told_apart;
    for (const Expr& e : at) note_told_apart(tree, e, told_apart);
    return std::ranges::all_of(places, [&](const auto& place) { return place == at; }) &&
           std::ranges::all_of(axes, [&](size_t axis) { return told_apart.contains(axis); });
  };
  std::optional<Refusal> out;
  visit_steps(region, LoopStep::Kind::Load, [&](const LoopTask&, const LoopStep& s) {
    const auto found = written.find(s.source);
    if (found != written.end() && !is_own(found->second, s.at))
      out = Refusal{&codes::kMemoryOrder,
                    fmt::format("{} is both read and written here", tree.tensors[s.source].name),
                    "leave the order of these turns as it is"};
  });
  return out;
}

}  // namespace braze
