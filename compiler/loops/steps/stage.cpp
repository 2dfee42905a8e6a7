#include "compiler/loops/steps/stage.h"

#include <algorithm>
#include <ranges>

#include "compiler/loops/text.h"
#include "ir/code/boxes.h"
#include "ir/support/text.h"
#include "ir/target/target.h"

namespace braze {

// --- apart --------------------------------------------------------------------------------------

namespace {

bool same_load(const LoopStep& a, const LoopStep& b) {
  return a.at == b.at && a.conditions == b.conditions && a.otherwise == b.otherwise;
}

// The different ways in which the tree reads a tensor, in the order of their first loads.
std::vector<LoopStep> ways_of_reading(const LoopTree& tree, size_t tensor) {
  std::vector<LoopStep> out;
  visit_steps(tree, LoopStep::Kind::Load, [&](const LoopTask&, const LoopStep& s) {
    if (s.source == tensor &&
        std::ranges::none_of(out, [&](const LoopStep& known) { return same_load(known, s); }))
      out.push_back(s);
  });
  return out;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const ApartStep& step) {
  const auto tensor = find_tensor(tree, step.tensor);
  if (!tensor) return no_such("tensor", step.tensor);
  if (tree.tensors[*tensor].mode != Mode::In)
    return Refusal{&codes::kMemoryOrder, fmt::format("{} is written", step.tensor),
                   "name a tensor that is only read"};
  if (ways_of_reading(tree, *tensor).size() < 2)
    return Refusal{&codes::kSeenApart, fmt::format("{} is read in one way only", step.tensor),
                   "it stays as it is"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const ApartStep& step) {
  const size_t tensor = find_tensor(tree, step.tensor).value();
  const std::vector<LoopStep> ways = ways_of_reading(tree, tensor);
  std::vector<size_t> names = {tensor};
  for (size_t way = 1; way < ways.size(); ++way) {
    LoopTensor again = tree.tensors[tensor];
    again.same = tree.tensors[tensor].same.value_or(tensor);
    for (size_t number = 2; find_tensor(tree, again.name); ++number)
      again.name = fmt::format("{}_{}", step.tensor, number);
    names.push_back(tree.tensors.size());
    tree.tensors.push_back(std::move(again));
  }
  const auto rename = [&](LoopBody& body) {
    for (LoopStep& s : body.steps)
      if (s.kind == LoopStep::Kind::Load && s.source == tensor)
        for (size_t way = 0; way < ways.size(); ++way)
          if (same_load(ways[way], s)) s.source = names[way];
  };
  change_tasks(tree, [&](LoopTask& task) {
    rename(task.body);
    if (task.rescale) rename(*task.rescale);
  });
  return tree;
}

// --- Copies of tensors --------------------------------------------------------------------------

namespace {

// Where the copy of a part of a tensor stands, and what it copies.
struct CopySite {
  size_t tensor;
  ItemPlace loop;
  bool groups;  // whether each group has its own copy
};

// The loads of the tensor in the loop; loads of the same form count once.
std::vector<LoopStep> ways_of_reading(const LoopTree& tree, const CopySite& site) {
  std::vector<LoopStep> out;
  for_each_task(loop_at(tree, site.loop).body, [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Stage) return;
    const std::vector<bool> start = steps_of_start(task);
    for (size_t i = 0; i < task.body.steps.size(); ++i) {
      const LoopStep& s = task.body.steps[i];
      if (s.kind == LoopStep::Kind::Load && s.source == site.tensor && !start[i] &&
          std::none_of(out.begin(), out.end(),
                       [&](const LoopStep& known) { return same_load(known, s); }))
        out.push_back(s);
    }
  });
  return out;
}

std::vector<const Loop*> loops_of_copy(const LoopTree& tree, const CopySite& site) {
  auto around = loops_around(tree, site.loop);
  around.push_back(&loop_at(tree, site.loop));
  return around;
}

// The axes along which a coordinate varies within a turn, the largest stride first.
std::vector<size_t> varying_axes(const LoopTree& tree, const CopySite& site, const Expr& e) {
  const auto around = loops_of_copy(tree, site);
  std::vector<size_t> out;
  for (const std::string& symbol : e.symbols())
    if (const auto axis = find_axis(tree, symbol))
      if (!extent_in(tree, around, *axis, site.groups).is_constant(1)) out.push_back(*axis);
  const auto stride = [&](size_t axis) {
    const auto slope = e.coefficient_of(tree.axes[axis].name);
    return slope ? slope->as_constant().value_or(0) : 0;
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](size_t a, size_t b) { return stride(a) > stride(b); });
  return out;
}

// Whether a coordinate runs through an interval: either along one axis, or along the digits of one
// number.
bool is_interval(const LoopTree& tree, const Expr& e, const std::vector<size_t>& axes) {
  Expr below = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const LoopAxis& axis = tree.axes[axes[i]];
    const auto slope = e.coefficient_of(axis.name);
    if (!slope) return false;
    if (axes.size() > 1 && !(*slope == below)) return false;
    below = *slope * axis.extent;
  }
  return true;
}

// The axes in the order of memory. An axis that was composed lies where its innermost digit does.
std::vector<size_t> axes_of_copy(const LoopTree& tree, const CopySite& site, const LoopStep& load) {
  std::vector<size_t> out;
  for (const Expr& e : std::views::reverse(load.at)) {
    const std::vector<size_t> axes = varying_axes(tree, site, e);
    for (const size_t axis : std::views::reverse(axes))
      if (!contains(out, axis)) out.push_back(axis);
  }
  std::ranges::reverse(out);
  return out;
}

// Whether the elements of a copy, in the order of its axes, are a box of the tensor. Axes that were
// composed run through several coordinates as digits.
bool is_box(const LoopTree& tree, const CopySite& site, const LoopStep& load) {
  const auto around = loops_of_copy(tree, site);
  std::unordered_map<std::string, Expr> position;
  std::vector<int64_t> extents;
  for (const size_t axis : axes_of_copy(tree, site, load)) {
    extents.push_back(extent_in(tree, around, axis, site.groups).as_constant().value_or(1));
    position.insert_or_assign(tree.axes[axis].name,
                              position_symbol('d', extents.size() - 1, extents.back()));
  }
  std::vector<Expr> at;
  for (const Expr& e : load.at) at.push_back(e.substitute(position));
  // Copies to chip are made of panels.
  constexpr int64_t kPanelBytes = 128;
  const int64_t panel = kPanelBytes / static_cast<int64_t>(size_of(load.dtype));
  return find_box(at, extents) || has_panel_boxes(at, extents, panel);
}

// `boxes`: whether the copy must be a box of the tensor. A value in registers may have any
// elements.
std::optional<Refusal> refuse_copy(const LoopTree& tree, const CopySite& site, bool boxes) {
  const Loop& loop = loop_at(tree, site.loop);
  const std::string& name = tree.tensors[site.tensor].name;
  const auto loads = ways_of_reading(tree, site);
  if (loads.empty())
    return Refusal{&codes::kNoSuchName,
                   fmt::format("`{}` does not read {}", to_text(tree, loop), name),
                   "name a tensor that it reads"};
  if (tree.tensors[site.tensor].mode != Mode::In)
    return Refusal{&codes::kMemoryOrder,
                   fmt::format("the kernel writes {}, so a copy could be out of date", name),
                   "name a tensor that the kernel does not write"};
  if (!site.groups && loop.on == Machine::Group)
    return Refusal{&codes::kNesting,
                   "the copy serves all groups, so it cannot stand at the loop on group",
                   "name a loop outside or inside of the loop on group"};
  const auto around = loops_of_copy(tree, site);
  for (const LoopStep& load : loads) {
    for (const Expr& e : load.at)
      for (const std::string& symbol : e.symbols())
        if (loaded_step(symbol) && !find_axis(tree, symbol))
          return Refusal{&codes::kComputedAddress,
                         fmt::format("{} is read at an index that is loaded", name),
                         "name a tensor that is read at affine coordinates only"};
    const std::vector<size_t> axes = axes_of_copy(tree, site, load);
    const bool box = !boxes || is_box(tree, site, load);
    for (const Expr& e : load.at)
      if (!box && !is_interval(tree, e, varying_axes(tree, site, e)))
        return Refusal{
            &codes::kNotABox,
            fmt::format("a turn reads {} at {}, which is not an interval", name, e.to_string()),
            "name a tensor, or a loop, whose turns read intervals"};
    for (const RangeCondition& c : load.conditions)
      for (const Expr* e : {&c.value, &c.min, &c.limit})
        for (const size_t axis : varying_axes(tree, site, *e))
          if (!contains(axes, axis))
            return Refusal{
                &codes::kNotABox,
                fmt::format("whether {} is read depends on {}, so a turn does not read an interval",
                            name, tree.axes[axis].name),
                "name a tensor, or a loop, whose turns read intervals"};
    for (const size_t axis : axes)
      if (!extent_in(tree, around, axis, site.groups).as_constant())
        return Refusal{&codes::kNotConstant,
                       fmt::format("a turn reads all of {}, whose extent is not constant",
                                   tree.axes[axis].name),
                       fmt::format("name a loop inside of the loop over {}", tree.axes[axis].name)};
  }
  return std::nullopt;
}

bool is_load(const LoopItem& item) {
  const auto* task = std::get_if<LoopTask>(&item);
  if (!task) return false;
  if (task->kind == LoopTask::Kind::Stage) return true;
  return task->kind == LoopTask::Kind::Compute && task->body.steps.size() == 1 &&
         task->body.steps[0].kind == LoopStep::Kind::Load;
}

// The top of a loop: after the loads that stand there already.
LoopRegion::iterator top_of(Loop& loop) {
  return std::find_if_not(loop.body.begin(), loop.body.end(), is_load);
}

std::vector<Expr> own_index(const LoopTree& tree, const std::vector<size_t>& axes) {
  std::vector<Expr> out;
  for (const size_t axis : axes) out.push_back(tree.axes[axis].index());
  return out;
}

void read_copies(LoopTree& tree, Loop& loop, size_t tensor, const LoopStep& load, size_t value) {
  change_tasks(loop.body, [&](LoopTask& task) {
    if (task.kind == LoopTask::Kind::Stage) return;
    const std::vector<bool> start = steps_of_start(task);
    for (size_t i = 0; i < task.body.steps.size(); ++i) {
      LoopStep& s = task.body.steps[i];
      if (s.kind == LoopStep::Kind::Load && s.source == tensor && !start[i] && same_load(s, load))
        s = {.kind = LoopStep::Kind::Read,
             .dtype = s.dtype,
             .source = value,
             .at = own_index(tree, tree.values[value].axes)};
    }
  });
}

// The load in the form of the copy: without an index along axes of one element.
LoopStep without_single_axes(const LoopTree& tree, const CopySite& site, LoopStep load) {
  const auto around = loops_of_copy(tree, site);
  for (size_t axis = 0; axis < tree.axes.size(); ++axis) {
    if (is_cut(around, axis) || !tree.axes[axis].extent.is_constant(1)) continue;
    const std::string& name = tree.axes[axis].name;
    for_each_expr(load, [&](Expr& e) { e = e.substitute(name, 0); });
  }
  return load;
}

LoopTree with_copies(const LoopTree& tree, const CopySite& site, LoopTask::Kind kind,
                     Storage storage, const std::string& name, bool transposed) {
  LoopTree out = tree;
  for (const LoopStep& load : ways_of_reading(tree, site)) {
    LoopValue value{.name = unused_value(out, name),
                    .dtype = load.dtype,
                    .axes = axes_of_copy(tree, site, load),
                    .storage = storage};
    const size_t rank = value.axes.size();
    if (transposed && rank > 1) std::swap(value.axes[rank - 1], value.axes[rank - 2]);
    LoopTask task;
    task.kind = kind;
    task.target = out.values.size();
    task.body = {{without_single_axes(tree, site, load)}, {0}};
    out.values.push_back(std::move(value));
    Loop& loop = loop_at(out, site.loop);
    read_copies(out, loop, site.tensor, load, task.target);
    loop.body.insert(top_of(loop), std::move(task));
  }
  return out;
}

std::optional<Refusal> refuse_copy(const LoopTree& tree, const std::string& name,
                                   const LoopName& loop_name, bool groups, bool boxes) {
  const auto tensor = find_tensor(tree, name);
  if (!tensor) return no_such("tensor", name);
  const auto loop = find_loop(tree, loop_name);
  if (!loop) return no_such("loop", loop_name.to_string());
  return refuse_copy(tree, CopySite{*tensor, *loop, groups}, boxes);
}
CopySite site_of(const LoopTree& tree, const std::string& tensor, const LoopName& loop,
                 bool groups) {
  return {find_tensor(tree, tensor).value(), find_loop(tree, loop).value(), groups};
}

// --- Copies of values ---------------------------------------------------------------------------

// Refuses if tasks read a value at other indices than those of their turn, along an axis that loops
// take in turns.
std::optional<Refusal> reads_at_other_index(const LoopTree& tree, const LoopRegion& region,
                                            size_t value, const std::vector<const Loop*>& loops) {
  std::optional<Refusal> out;
  visit_steps(region, LoopStep::Kind::Read, [&](const LoopTask&, const LoopStep& s) {
    if (s.source != value) return;
    for (size_t i = 0; i < s.at.size(); ++i) {
      const LoopAxis& axis = tree.axes[tree.values[value].axes[i]];
      if (is_cut(loops, tree.values[value].axes[i]) && !(s.at[i] == axis.index()))
        out = Refusal{&codes::kOtherTurn,
                      fmt::format("%{} is read at {} along {}, which another turn makes",
                                  tree.values[value].name, s.at[i].to_string(), axis.name),
                      "leave it where it is, for all turns"};
    }
  });
  return out;
}

LoopRegion::iterator first_reader(Loop& loop, size_t value) {
  return std::find_if(loop.body.begin(), loop.body.end(),
                      [&](const LoopItem& item) { return reads(item, value); });
}

std::optional<Refusal> refuse_copy_of_value(const LoopTree& tree, const StageStep& step) {
  const auto value = find_value(tree, step.source.name);
  if (!value) return no_such("value", step.source.to_string());
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  Loop loop = loop_at(tree, *place);
  const auto reader = first_reader(loop, *value);
  if (reader == loop.body.end())
    return Refusal{
        &codes::kNoSuchName,
        fmt::format("`{}` reads nothing of {}", to_text(tree, loop), step.source.to_string()),
        "name a loop that reads it"};
  const LoopRegion rest(reader, loop.body.end());
  if (values_made(rest).contains(*value))
    return Refusal{&codes::kIsState,
                   fmt::format("{} is read in a loop that also makes it", step.source.to_string()),
                   "name a loop after the one that makes it"};
  auto around = loops_around(tree, *place);
  around.push_back(&loop);
  const LoopTask& maker = task_at(tree, maker_of(tree, *value));
  if (std::ranges::any_of(maker.over, [&](size_t axis) { return is_cut(around, axis); }))
    return Refusal{
        &codes::kIsState,
        fmt::format("{} is not final in `{}`", step.source.to_string(), to_text(tree, loop)),
        "name a loop after the one that carries it"};
  std::optional<Refusal> begins;
  for_each_task(rest, [&](const LoopTask& task, const auto&) {
    const std::vector<bool> start = steps_of_start(task);
    for (size_t i = 0; i < start.size(); ++i)
      if (start[i] && task.body.steps[i].kind == LoopStep::Kind::Read &&
          task.body.steps[i].source == *value)
        begins = Refusal{&codes::kIsState,
                         fmt::format("%{} begins with {}, which it needs before its loops",
                                     tree.values[task.target].name, step.source.to_string()),
                         "it stays where it is"};
  });
  if (begins) return begins;
  for (const size_t axis : tree.values[*value].axes)
    if (!extent_in(tree, around, axis).as_constant())
      return Refusal{&codes::kNotConstant,
                     fmt::format("a turn reads all of {}", tree.axes[axis].name),
                     fmt::format("name a loop inside of the one over {}", tree.axes[axis].name)};
  return reads_at_other_index(tree, rest, *value, around);
}

LoopTree with_copy_of_value(const LoopTree& tree, const StageStep& step) {
  LoopTree out = tree;
  const size_t value = find_value(out, step.source.name).value();
  LoopValue copy = out.values[value];
  copy.name = unused_value(out, copy.name + "s");
  copy.storage = Storage::Chip;
  copy.panel = 0;
  copy.node = {};
  const std::vector<Expr> at = own_index(out, copy.axes);
  const size_t rank = copy.axes.size();
  if (step.transposed && rank > 1) std::swap(copy.axes[rank - 1], copy.axes[rank - 2]);
  LoopTask task;
  task.kind = LoopTask::Kind::Compute;
  task.target = out.values.size();
  task.body = {{{.kind = LoopStep::Kind::Read, .dtype = copy.dtype, .source = value, .at = at}},
               {0}};
  Loop& loop = loop_at(out, find_loop(out, step.loop).value());
  change_tasks(loop.body, [&](LoopTask& reader) {
    for (LoopStep& s : reader.body.steps) {
      if (s.kind != LoopStep::Kind::Read || s.source != value) continue;
      s.source = task.target;
      if (step.transposed && rank > 1) std::swap(s.at[rank - 1], s.at[rank - 2]);
    }
  });
  out.values.push_back(std::move(copy));
  loop.body.insert(first_reader(loop, task.target), std::move(task));
  return out;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const StageStep& step) {
  if (step.source.is_value) return refuse_copy_of_value(tree, step);
  return refuse_copy(tree, step.source.name, step.loop, /*groups=*/false, /*boxes=*/true);
}
LoopTree take(const LoopTree& tree, const StageStep& step) {
  if (step.source.is_value) return with_copy_of_value(tree, step);
  return with_copies(tree, site_of(tree, step.source.name, step.loop, /*groups=*/false),
                     LoopTask::Kind::Stage, Storage::Chip, step.source.name + "s", step.transposed);
}

std::optional<Refusal> legal(const LoopTree& tree, const LoadStep& step) {
  if (auto refusal = refuse_copy(tree, step.tensor, step.loop, /*groups=*/true, /*boxes=*/false))
    return refusal;
  // What has been loaded is all that the loop reads of the tensor.
  const CopySite site = site_of(tree, step.tensor, step.loop, /*groups=*/true);
  for (const LoopItem& item : loop_at(tree, site.loop).body)
    if (is_load(item) && std::get<LoopTask>(item).body.steps[0].source == site.tensor)
      return Refusal{&codes::kNoSuchName,
                     fmt::format("{} is loaded there already", tree.tensors[site.tensor].name),
                     "leave this step out"};
  return std::nullopt;
}
LoopTree take(const LoopTree& tree, const LoadStep& step) {
  return with_copies(tree, site_of(tree, step.tensor, step.loop, /*groups=*/true),
                     LoopTask::Kind::Compute, Storage::Registers, step.tensor,
                     /*transposed=*/false);
}

// --- keep ---------------------------------------------------------------------------------------

namespace {

// The most elements along an axis that a buffer can have room for if the extent is not constant.
constexpr int64_t kMostKept = int64_t{1} << 20;

// The loops around the maker and all readers of a value. The value lives in one turn of them.
std::vector<const Loop*> loops_of_life(const LoopTree& tree, size_t value) {
  std::vector<const Loop*> out = loops_around(tree, maker_of(tree, value));
  for_each_task(tree, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    for (const LoopStep& s : task.body.steps) {
      if (s.kind != LoopStep::Kind::Read || s.source != value) continue;
      size_t common = 0;
      while (common < out.size() && common < around.size() && out[common] == around[common])
        ++common;
      out.resize(common);
    }
  });
  return out;
}

// Whether the sums of a placed reduction may be in the memory of the result. They must begin with
// what is there, and nothing else may read that memory or the sums.
bool begins_in_result(const LoopTree& tree, size_t value) {
  const LoopTask& placed = task_at(tree, maker_of(tree, value));
  if (placed.kind != LoopTask::Kind::Place || sums_dtype(placed) != tree.values[value].dtype)
    return false;
  const LoopTask* store = nullptr;
  size_t reads = 0;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    for (const LoopStep& s : task.body.steps) {
      if (s.kind != LoopStep::Kind::Read || s.source != value) continue;
      ++reads;
      const bool alone = !task.makes_value() && task.body.steps.size() == 1 &&
                         s.at == own_index(tree, tree.values[value].axes);
      if (alone) store = &task;
    }
  });
  if (!store || reads != 1) return false;
  const uint32_t first = placed.body.results[2];
  const LoopStep& start = placed.body.steps[first];
  // Terms that are made from it too would be read while sums replace it.
  const bool only_start = std::ranges::count(placed.body.results, first) == 1 &&
                          std::ranges::none_of(placed.body.steps, [&](const LoopStep& s) {
                            return std::ranges::count(s.arguments, first) > 0;
                          });
  size_t loads = 0;
  visit_steps(tree, LoopStep::Kind::Load,
              [&](const LoopTask&, const LoopStep& s) { loads += s.source == store->target; });
  return start.kind == LoopStep::Kind::Load && start.source == store->target &&
         start.conditions.empty() && start.at == store->at && loads == 1 && only_start;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const KeepStep& step) {
  const auto value = find_value(tree, step.value);
  if (!value) return no_such("value", "%" + step.value);
  const LoopTask& maker = task_at(tree, maker_of(tree, *value));
  if (maker.kind == LoopTask::Kind::Stage && step.storage == Storage::Registers)
    return Refusal{
        &codes::kNoRoom,
        fmt::format("%{} is a copy for all threads, so it cannot be in registers", step.value),
        "keep it on chip"};
  if (step.storage == Storage::Workspace) return std::nullopt;
  if (step.storage == Storage::Result) {
    if (begins_in_result(tree, *value)) return std::nullopt;
    return Refusal{&codes::kMemoryOrder,
                   fmt::format("%{} does not begin with what is in the memory of its store, or is "
                               "read by others",
                               step.value),
                   "keep it on chip"};
  }
  if (tree.values[*value].panel > 0 && tree.values[*value].storage == Storage::Workspace)
    return Refusal{&codes::kMarked,
                   fmt::format("%{} is in panels, which all instances share", step.value),
                   "leave it in the workspace"};
  const auto around = loops_of_life(tree, *value);
  Expr bytes = static_cast<int64_t>(size_of(tree.values[*value].dtype));
  for (const size_t axis : tree.values[*value].axes) {
    const Expr extent = extent_in(tree, around, axis);
    const bool bounded = step.storage == Storage::Chip && extent.range().max <= kMostKept &&
                         maker.kind == LoopTask::Kind::Compute;
    if (!extent.as_constant() && !bounded)
      return Refusal{&codes::kNotConstant,
                     fmt::format("a reader of %{} needs all of {}, whose extent is not constant",
                                 step.value, tree.axes[axis].name),
                     "keep it in the workspace, or merge the loops that read it"};
    bytes *= extent;
  }
  const auto target = find_target(tree.target);
  if (step.storage == Storage::Chip && target && bytes.range().max > target->l1_bytes)
    return Refusal{&codes::kNoRoom,
                   fmt::format("%{} takes {} bytes, but only {} are on chip", step.value,
                               bytes.to_string(), target->l1_bytes),
                   "take smaller tiles"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const KeepStep& step) {
  tree.values[find_value(tree, step.value).value()].storage = step.storage;
  return tree;
}

// --- again --------------------------------------------------------------------------------------

namespace {

// How a value is computed again.
struct Again {
  size_t value;
  ItemPlace maker, reader;         // `reader` is the loop
  std::vector<const Loop*> loops;  // loops around the maker that the copy needs too
  std::vector<const Loop*> met;    // loops around the maker over whose turns the reader runs itself
  std::vector<const Loop*> turns;  // loops around the readers only; the copy stands in their turns
};

Again again(const LoopTree& tree, const AgainStep& step) {
  Again out;
  out.value = find_value(tree, step.value).value();
  out.maker = maker_of(tree, out.value);
  out.reader = find_loop(tree, step.loop).value();
  const auto from = loops_around(tree, out.maker);
  auto to = loops_around(tree, out.reader);
  to.push_back(&loop_at(tree, out.reader));
  size_t common = 0;
  while (common < from.size() && common < to.size() && from[common] == to[common]) ++common;
  out.turns.assign(to.begin() + static_cast<std::ptrdiff_t>(common), to.end());
  for (size_t i = common; i < from.size(); ++i) {
    const bool met = std::ranges::any_of(out.turns, [&](const Loop* loop) {
      return loop->levels == from[i]->levels && loop->bounds == from[i]->bounds;
    });
    (met ? out.met : out.loops).push_back(from[i]);
  }
  return out;
}

// Removes an item, and the loops that have become empty.
void remove_item(LoopTree& tree, ItemPlace place) {
  while (!place.items.empty()) {
    LoopRegion& region = region_of(tree, place);
    region.erase(region.begin() + static_cast<std::ptrdiff_t>(place.items.back()));
    if (!region.empty()) return;
    place.items.pop_back();
  }
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const AgainStep& step) {
  const auto value = find_value(tree, step.value);
  if (!value) return no_such("value", "%" + step.value);
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& reader = loop_at(tree, *place);
  if (reads_of(reader.body, *value) == 0)
    return Refusal{&codes::kNoSuchName,
                   fmt::format("nothing in `{}` reads %{}", to_text(tree, reader), step.value),
                   "name a loop that reads it"};
  const auto refuse = [&](const Code& code, std::string why, std::string fix) {
    return Refusal{&code, std::move(why), std::move(fix)};
  };
  if (values_made(reader.body).contains(*value))
    return refuse(codes::kIsState,
                  fmt::format("%{} is made inside `{}` itself", step.value, to_text(tree, reader)),
                  "name a loop after the one that makes it");
  const Again copy = again(tree, step);
  if (copy.maker.phase != copy.reader.phase)
    return refuse(codes::kNesting, fmt::format("%{} is made in a different phase", step.value),
                  "keep it in the workspace instead");
  const LoopTask& task = task_at(tree, copy.maker);
  auto around = loops_around(tree, *place);
  around.push_back(&reader);
  if (task.kind == LoopTask::Kind::Stage)
    return refuse(codes::kMarked, fmt::format("%{} is a copy of a tensor", step.value),
                  "take the step `stage` for each loop instead, after this step");
  if (task.combine != Combine::None ||
      std::any_of(task.over.begin(), task.over.end(),
                  [&](size_t axis) { return is_cut(around, axis); }))
    return refuse(codes::kIsState,
                  fmt::format("%{} combines the indices of an axis that `{}` takes in turns",
                              step.value, to_text(tree, reader)),
                  "merge the loops instead");
  for (const Loop* loop : copy.loops) {
    if (loop->bounds)
      return refuse(codes::kBoundsDepend, fmt::format("`{}` has bounds", to_text(tree, *loop)),
                    "take this step before the loop has bounds");
    for (const LoopLevel& level : loop->levels)
      if (is_cut(around, level.axis) &&
          !extent_in(tree, around, level.axis).is_multiple_of(level.turn))
        return refuse(
            codes::kLevelsDiffer,
            fmt::format("%{} is made in the turns of `{}`, which do not fit those of the reader",
                        step.value, to_text(tree, *loop)),
            "split both loops alike");
  }
  for (const LoopStep& s : task.body.steps)
    if (s.kind == LoopStep::Kind::Load && tree.tensors[s.source].mode != Mode::In)
      return refuse(codes::kMemoryOrder,
                    fmt::format("%{} reads {}, which the kernel writes", step.value,
                                tree.tensors[s.source].name),
                    "leave it where it is computed");
  // What the copy reads must exist where it stands, so loops that are not copied must not make it.
  std::set<size_t> inside;
  for (const auto* list : {&copy.loops, &copy.met})
    for (const Loop* loop : *list) inside.merge(values_made(loop->body));
  inside.erase(*value);
  for (const LoopStep& s : task.body.steps)
    if (s.kind == LoopStep::Kind::Read && inside.contains(s.source))
      return refuse(codes::kIsState,
                    fmt::format("%{} is made from %{}, which has loops of its own", step.value,
                                tree.values[s.source].name),
                    fmt::format("take the step `again %{}` first", tree.values[s.source].name));
  std::optional<Refusal> refusal;
  for_each_task(reader.body, [&](const LoopTask& reading, const auto&) {
    const std::vector<bool> start = steps_of_start(reading);
    for (size_t i = 0; i < start.size(); ++i)
      if (start[i] && reading.body.steps[i].kind == LoopStep::Kind::Read &&
          reading.body.steps[i].source == *value)
        refusal = refuse(codes::kIsState,
                         fmt::format("%{} needs %{} before its loops begin",
                                     tree.values[reading.target].name, step.value),
                         "leave it where it is");
  });
  if (refusal) return refusal;
  return reads_at_other_index(tree, reader.body, *value, copy.turns);
}

LoopTree take(const LoopTree& tree, const AgainStep& step) {
  LoopTree out = tree;
  const Again copy = again(tree, step);
  Loop& reader = loop_at(out, copy.reader);
  const bool moves = reads_of(reader.body, copy.value) == reads_of(tree, copy.value);
  LoopTask task = task_at(out, copy.maker);
  task.ahead = 0;
  if (!moves) {
    task.target = out.values.size();
    LoopValue value = out.values[copy.value];
    value.name = unused_value(out, value.name);
    out.values.push_back(std::move(value));
    change_tasks(reader.body, [&](LoopTask& reading) {
      for (LoopBody* body : {&reading.body, reading.rescale ? &*reading.rescale : nullptr}) {
        if (!body) continue;
        for (LoopStep& s : body->steps)
          if (s.kind == LoopStep::Kind::Read && s.source == copy.value) s.source = task.target;
      }
    });
  }
  LoopItem item = std::move(task);
  for (size_t i = copy.loops.size(); i-- > 0;) {
    Loop loop;
    loop.parallel = copy.loops[i]->parallel;
    loop.levels = copy.loops[i]->levels;
    loop.down = copy.loops[i]->down;
    loop.body.push_back(std::move(item));
    item = std::move(loop);
  }
  reader.body.insert(top_of(reader), std::move(item));
  if (moves) remove_item(out, copy.maker);
  return out;
}

}  // namespace braze
