#include "compiler/loops/steps/factors.h"

#include <algorithm>

#include "compiler/loops/steps/marks.h"
#include "compiler/loops/steps/own_names.h"
#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The steps whose results a step uses directly.
std::set<uint32_t> needs(const LoopStep& s) {
  std::set<uint32_t> out(s.arguments.begin(), s.arguments.end());
  for_each_expr(s, [&](const Expr& e) {
    for (const std::string& symbol : e.symbols())
      if (const auto k = loaded_step(symbol)) out.insert(*k);
  });
  return out;
}

// The sums of a loop.
std::vector<const LoopTask*> sums_of(const Loop& loop) {
  std::vector<const LoopTask*> out;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot) out.push_back(&task);
  });
  return out;
}

// The steps of a sum that are factors. A factor is as large as it can be: no step that uses it is
// computed along the one axis and not along the other.
std::vector<uint32_t> factor_steps(const LoopTree& tree, const LoopTask& task, size_t along,
                                   size_t without) {
  const std::vector<LoopStep>& steps = task.body.steps;
  const auto axes = axes_of_steps(tree, task.body);
  std::vector<bool> loads(steps.size()), reads(steps.size()), is_factor(steps.size());
  for (uint32_t i = 0; i < steps.size(); ++i) {
    loads[i] = steps[i].kind == LoopStep::Kind::Load;
    reads[i] = steps[i].kind == LoopStep::Kind::Read;
    for (const uint32_t k : needs(steps[i])) {
      loads[i] = loads[i] || loads[k];
      reads[i] = reads[i] || reads[k];
    }
    const bool sums =
        std::ranges::any_of(task.over, [&](size_t axis) { return axes[i].contains(axis); });
    is_factor[i] =
        loads[i] && !reads[i] && sums && axes[i].contains(along) && !axes[i].contains(without);
  }
  std::vector<bool> needed(steps.size());
  for (const uint32_t result : task.body.results) needed[result] = true;
  for (uint32_t i = 0; i < steps.size(); ++i)
    if (!is_factor[i])
      for (const uint32_t k : needs(steps[i])) needed[k] = true;
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < steps.size(); ++i)
    if (is_factor[i] && needed[i]) out.push_back(i);
  return out;
}

// Whether a dot multiplies factors of 16 bits as they are.
bool takes_halves(const LoopTask& task) {
  return task.kind == LoopTask::Kind::Dot && task.unit == Unit::Mma &&
         is_half(warp_dot_dtype(task));
}

// Converts results of 16 bits to f32, in which other dots compute.
void widen_results(LoopBody& body) {
  for (uint32_t& result : body.results) {
    if (!is_half(body.steps[result].dtype)) continue;
    result = push(body, {.dtype = DType::F32, .op = ElementwiseOp::convert, .arguments = {result}});
  }
}

// The body of a task that makes this factor alone.
LoopBody factor_body(const LoopTask& task, uint32_t step) {
  LoopBody out = task.body;
  out.results = {step};
  const bool is_result = std::ranges::none_of(
      task.body.steps, [&](const LoopStep& s) { return needs(s).contains(step); });
  if (task.kind == LoopTask::Kind::Dot && is_result && !takes_halves(task)) widen_results(out);
  remove_dead_steps(out);
  return out;
}

std::optional<Refusal> refuse_factors(const LoopTree& tree, const LoopName& name,
                                      const std::string& along, const std::string& without) {
  const auto place = find_loop(tree, name);
  if (!place) return no_such("loop", name.to_string());
  for (const std::string& axis : {along, without})
    if (!find_axis(tree, axis)) return no_such("axis", axis);
  const Loop& loop = loop_at(tree, *place);
  const auto factors =
      factors_of(tree, loop, find_axis(tree, along).value(), find_axis(tree, without).value());
  if (factors.empty())
    return Refusal{&codes::kNoSuchName,
                   fmt::format("`{}` sums nothing that runs along {} and not along {}",
                               to_text(tree, loop), along, without),
                   "name two axes of what is summed, and the loop that sums it"};
  for (const LoopBody& body : factors)
    for (const LoopStep& s : body.steps)
      if (s.kind == LoopStep::Kind::Load && tree.tensors[s.source].mode != Mode::In)
        return Refusal{&codes::kMemoryOrder,
                       fmt::format("the kernel writes {}, so what is made of it before could be "
                                   "out of date",
                                   tree.tensors[s.source].name),
                       "leave the factor where it is"};
  return std::nullopt;
}

std::string name_of(const LoopTree& tree, const LoopBody& body, std::string_view end) {
  for (const LoopStep& s : body.steps)
    if (s.kind == LoopStep::Kind::Load)
      return unused_value(tree, tree.tensors[s.source].name + std::string(end));
  return unused_value(tree, std::string(end));
}

// Replaces the factor, in all sums of the loop, by reads of the value.
void read_factor(LoopTree& tree, Loop& loop, const LoopBody& factor, size_t value, size_t along,
                 size_t without) {
  const LoopStep read = own_read(tree, value);
  change_tasks(loop.body, [&](LoopTask& task) {
    if (task.kind != LoopTask::Kind::Fold && task.kind != LoopTask::Kind::Dot) return;
    std::vector<uint32_t> read_here;
    for (const uint32_t step : factor_steps(tree, task, along, without))
      if (factor_body(task, step) == factor) read_here.push_back(step);
    if (read_here.empty()) return;
    for (const uint32_t step : read_here) task.body.steps[step] = read;
    if (task.kind == LoopTask::Kind::Dot && read.dtype == DType::F32) widen_results(task.body);
    remove_dead_steps(task.body);
  });
}

// The axes of a factor in the order of the loops around the sum, with those that are summed behind
// the others; the axis `along` comes last.
std::vector<size_t> axes_in_order(const LoopTree& tree, const ItemPlace& place,
                                  const LoopBody& body, size_t along) {
  const std::set<size_t> used = axes_used(tree, body);
  std::vector<size_t> out;
  const auto note = [&](size_t axis) {
    if (axis != along && used.contains(axis) && !contains(out, axis)) out.push_back(axis);
  };
  for (const Loop* loop : loops_around(tree, place))
    for (const LoopLevel& level : loop->levels) note(level.axis);
  const auto is_summed = [&](size_t axis) {
    return std::ranges::any_of(sums_of(loop_at(tree, place)), [&](const LoopTask* task) {
      return std::ranges::count(task->over, axis) > 0;
    });
  };
  for (const size_t axis : used)
    if (!is_summed(axis)) note(axis);
  const Loop* loop = &loop_at(tree, place);
  for (; loop; loop = only_child(*loop)) note(loop->levels[0].axis);
  for (const size_t axis : used) note(axis);
  out.push_back(along);
  return out;
}

bool is_load(const LoopItem& item) {
  const auto* task = std::get_if<LoopTask>(&item);
  return task && task->kind == LoopTask::Kind::Stage;
}

}  // namespace

std::vector<std::set<size_t>> axes_of_steps(const LoopTree& tree, const LoopBody& body) {
  std::vector<std::set<size_t>> out;
  for (const LoopStep& s : body.steps) {
    std::set<size_t> own = axes_used(tree, s);
    for (const uint32_t k : needs(s)) own.insert(out[k].begin(), out[k].end());
    out.push_back(std::move(own));
  }
  return out;
}

std::vector<LoopBody> factors_of(const LoopTree& tree, const Loop& loop, size_t along,
                                 size_t without) {
  std::vector<LoopBody> out;
  for (const LoopTask* task : sums_of(loop))
    for (const uint32_t step : factor_steps(tree, *task, along, without)) {
      LoopBody body = factor_body(*task, step);
      if (std::ranges::find(out, body) == out.end()) out.push_back(std::move(body));
    }
  return out;
}

// --- factor -------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const FactorStep& step) {
  if (auto refusal = refuse_factors(tree, step.loop, step.along, step.without)) return refusal;
  const ItemPlace place = find_loop(tree, step.loop).value();
  const auto at = find_loop(tree, step.at);
  if (!at) return no_such("loop", step.at.to_string());
  auto around = loops_around(tree, place);
  const Loop& outer = loop_at(tree, *at);
  if (std::ranges::find(around, &outer) == around.end())
    return Refusal{&codes::kNesting,
                   fmt::format("`{}` does not stand around `{}`", to_text(tree, outer),
                               to_text(tree, loop_at(tree, place))),
                   "name a loop around what is summed"};
  auto here = loops_around(tree, *at);
  here.push_back(&outer);
  if (step.panel > 0 && !step.transposed)
    return Refusal{&codes::kMarked,
                   fmt::format("{} would not be the last axis of what is in panels", step.along),
                   "make the factor transposed"};
  const size_t along = find_axis(tree, step.along).value(),
               without = find_axis(tree, step.without).value();
  for (const LoopBody& body : factors_of(tree, loop_at(tree, place), along, without))
    for (const size_t axis : axes_used(tree, body))
      if (!extent_in(tree, here, axis).as_constant())
        return Refusal{&codes::kNotConstant,
                       fmt::format("a turn needs all of {}, whose extent is not constant",
                                   tree.axes[axis].name),
                       fmt::format("name a loop inside of the one over {}", tree.axes[axis].name)};
  return std::nullopt;
}

LoopTree take(const LoopTree& tree, const FactorStep& step) {
  LoopTree out = tree;
  const ItemPlace at = find_loop(tree, step.at).value();
  auto here = loops_around(tree, at);
  here.push_back(&loop_at(tree, at));
  const size_t along = find_axis(tree, step.along).value(),
               without = find_axis(tree, step.without).value();
  const ItemPlace place = find_loop(tree, step.loop).value();
  std::vector<LoopItem> made;
  for (const LoopBody& body : factors_of(tree, loop_at(tree, place), along, without)) {
    LoopValue value{.name = name_of(out, body, kFactorName),
                    .dtype = body.steps[body.results[0]].dtype};
    for (const size_t axis : axes_in_order(tree, place, body, along))
      if (!is_cut(here, axis) || !extent_in(tree, here, axis).is_constant(1))
        value.axes.push_back(axis);
    if (!step.transposed && !value.axes.empty() && value.axes.back() == along)
      std::rotate(value.axes.begin(), value.axes.end() - 1, value.axes.end());
    if (!value.axes.empty() && value.axes.back() == along) value.panel = step.panel;
    LoopTask task;
    task.kind = LoopTask::Kind::Compute;
    task.target = out.values.size();
    task.body = body;
    out.values.push_back(std::move(value));
    read_factor(out, loop_at(out, place), body, task.target, along, without);
    made.emplace_back(std::move(task));
  }
  Loop& outer = loop_at(out, at);
  outer.body.insert(std::find_if_not(outer.body.begin(), outer.body.end(), is_load),
                    std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
  return out;
}

// --- pack ---------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const PackStep& step) {
  return refuse_factors(tree, step.loop, step.along, step.without);
}

LoopTree take(const LoopTree& tree, const PackStep& step) {
  LoopTree out = tree;
  const size_t along = find_axis(tree, step.along).value(),
               without = find_axis(tree, step.without).value();
  const ItemPlace place = find_loop(tree, step.loop).value();
  const Loop& loop = loop_at(tree, place);
  // The tasks that make factors, by the axes of what they make.
  std::vector<std::pair<std::vector<size_t>, LoopRegion>> phases;
  for (const LoopBody& body : factors_of(tree, loop, along, without)) {
    LoopValue value{.name = name_of(out, body, kPanelName),
                    .dtype = body.steps[body.results[0]].dtype,
                    .axes = axes_in_order(tree, place, body, along),
                    .storage = Storage::Workspace,
                    .panel = step.panel};
    LoopTask task;
    task.kind = LoopTask::Kind::Compute;
    task.target = out.values.size();
    task.body = body;
    out.values.push_back(value);
    read_factor(out, loop_at(out, place), body, task.target, along, without);
    auto phase = std::ranges::find_if(phases, [&](const auto& p) { return p.first == value.axes; });
    if (phase == phases.end()) phase = phases.insert(phases.end(), {value.axes, {}});
    phase->second.emplace_back(std::move(task));
  }
  std::set<size_t> summed;
  for (const LoopTask* task : sums_of(loop)) summed.insert(task->over.begin(), task->over.end());
  std::vector<LoopRegion> front;
  for (auto& [axes, region] : phases) {
    // The loops of a phase have the order in which panels lie in memory.
    std::stable_partition(axes.begin(), axes.end(), [&](size_t a) { return !summed.contains(a); });
    for (size_t i = axes.size(); i-- > 0;) {
      Loop around;
      around.parallel = true;
      around.levels = {{axes[i]}};
      around.body = std::move(region);
      region.clear();
      region.emplace_back(std::move(around));
    }
    front.push_back(std::move(region));
  }
  out.phases.insert(out.phases.begin(), std::make_move_iterator(front.begin()),
                    std::make_move_iterator(front.end()));
  return out;
}

}  // namespace braze
