#include "compiler/loops/steps/chunk.h"

#include <algorithm>

#include "compiler/loops/text.h"
#include "ir/support/text.h"
#include "ir/target/target.h"

namespace braze {

namespace {

bool is_over(const LoopTask& task, const Loop& loop) {
  return std::any_of(task.over.begin(), task.over.end(),
                     [&](size_t axis) { return runs_over(loop, axis); });
}

// Refuses if work stands before the loop that must not be repeated, as every chunk would do.
std::optional<Refusal> stands_before(const LoopTree& tree, const ItemPlace& place) {
  const LoopRegion& region = region_of(tree, place);
  for (size_t i = 0; i < place.items.back(); ++i) {
    const auto* task = std::get_if<LoopTask>(&region[i]);
    if (task && (task->kind == LoopTask::Kind::Stage || task->kind == LoopTask::Kind::Compute))
      continue;
    return Refusal{&codes::kBetween, "every chunk would repeat what stands before the loop",
                   "chunk the first loop, or merge the loops"};
  }
  return std::nullopt;
}

// Refuses if something outside the loop on grid reads, in the same phase, what chunks make: the
// parts of chunks are only combined where that loop ends.
std::optional<Refusal> read_elsewhere(const LoopTree& tree, const ItemPlace& place) {
  if (place.items.size() < 2) return std::nullopt;
  const LoopRegion& phase = tree.phases[place.phase];
  const std::set<size_t> made = values_made(loop_at(tree, place).body);
  std::optional<Refusal> refusal;
  for (size_t i = 0; i < phase.size(); ++i) {
    if (i == place.items[0]) continue;
    const auto check = [&](const LoopTask& task) {
      for (const LoopStep& s : task.body.steps)
        if (s.kind == LoopStep::Kind::Read && made.contains(s.source))
          refusal =
              Refusal{&codes::kBetween,
                      fmt::format("`{}` reads %{} outside of the loop that is dealt to the grid",
                                  to_text(tree, task), tree.values[s.source].name),
                      "leave this loop whole"};
    };
    if (const auto* alone = std::get_if<LoopTask>(&phase[i]))
      check(*alone);
    else
      for_each_task(std::get<Box<Loop>>(phase[i])->body,
                    [&](const LoopTask& task, const auto&) { check(task); });
  }
  return refusal;
}

// The scan of the loop, if it is its only task apart from stores.
const LoopTask* only_scan(const Loop& loop) {
  const LoopTask* scan = nullptr;
  for (const LoopItem& item : loop.body) {
    const auto* task = std::get_if<LoopTask>(&item);
    const bool next = task && task->kind == LoopTask::Kind::Scan && !scan;
    if (!task || (!next && task->makes_value())) return nullptr;
    if (next) scan = task;
  }
  return scan;
}

std::optional<Refusal> refuse_states(const LoopTree& tree, const Loop& loop, Combine how) {
  if (how == Combine::Phase && tree.phases.size() == 1 && only_scan(loop)) return std::nullopt;
  bool carries = false;
  std::optional<Refusal> refusal;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!task.has_state() || !is_over(task, loop)) return;
    carries = true;
    const std::string& name = tree.values[task.target].name;
    const bool combines = task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot;
    if (!combines || task.combine != Combine::None)
      refusal = Refusal{&codes::kIsState, fmt::format("the parts of %{} cannot be combined", name),
                        "chunk a loop with folds or dots that are not chunked yet; `phase` "
                        "combines one scan too"};
  });
  if (refusal) return refusal;
  if (!carries)
    return Refusal{
        &codes::kKindsDiffer,
        fmt::format("`{}` carries no state that chunks could share", to_text(tree, loop)),
        "split the loop, and put one of the two on grid"};
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const ChunkStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (loop.parallel || loop.levels.size() != 1)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("`{}` is not a stream over one level", to_text(tree, loop)),
                   "name a stream over one axis"};
  if (auto refusal = marked(tree, loop)) return refusal;
  if (loop.bounds)
    return Refusal{&codes::kBoundsDepend, fmt::format("`{}` has bounds", to_text(tree, loop)),
                   "take this step before the loop has bounds"};
  const auto around = loops_around(tree, *place);
  const bool outermost = around.empty() && step.how != Combine::Rank;
  if (!outermost && (around.size() != 1 || around[0]->on != Machine::Grid))
    return Refusal{
        &codes::kNesting,
        fmt::format("`{}` must stand directly inside a loop on grid", to_text(tree, loop)),
        "put the loops around it `on` grid first, and groups later"};
  if (!around.empty())
    if (auto refusal = marked(tree, *around[0])) return refusal;
  if (is_cut(around, loop.levels[0].axis))
    return Refusal{&codes::kLevelsDiffer, "the loop around it runs over the same axis",
                   "chunk the axis before it is split"};
  if (auto refusal = stands_before(tree, *place)) return refusal;
  const bool alone = region_of(tree, *place).size() == 1 && tree.phases[0].size() == 1;
  if (step.how == Combine::Phase && only_scan(loop) && !alone)
    return Refusal{&codes::kBetween,
                   "every phase of the scan would repeat what stands beside the loop",
                   "chunk a scan that is alone in its kernel"};
  // A part of the machine inside the loop would have to continue as a whole.
  for (const LoopItem& item : region_of(tree, *place))
    if (const auto* inner = std::get_if<Box<Loop>>(&item); inner && (*inner)->on != Machine::None)
      return Refusal{&codes::kNesting, "a loop inside is already dealt to a part of the machine",
                     "deal loops to groups and ranks after this step"};
  const auto target = find_target(tree.target);
  if (step.how == Combine::Rank && target && step.number > target->cluster_blocks)
    return Refusal{&codes::kNoRoom,
                   fmt::format("a cluster can have at most {} blocks", target->cluster_blocks),
                   "take fewer chunks, or another way to combine them"};
  if (auto refusal = read_elsewhere(tree, *place)) return refusal;
  return refuse_states(tree, loop, step.how);
}

namespace {

// Replaces reads of a value by what `add` makes of its combined form.
void replace_reads(LoopBody& body, size_t value, const std::function<uint32_t(uint32_t)>& add) {
  // Steps are numbered in order, so each step moves behind the steps that were inserted before it.
  LoopBody old = std::move(body);
  body = {};
  std::vector<uint32_t> now;
  std::unordered_map<std::string, Expr> coordinates;
  for (LoopStep& s : old.steps) {
    const auto own = static_cast<uint32_t>(now.size());
    for (uint32_t& argument : s.arguments) argument = now[argument];
    for (Expr& e : s.at) e = e.substitute(coordinates);
    const bool read = s.kind == LoopStep::Kind::Read && s.source == value;
    body.steps.push_back(std::move(s));
    auto number = static_cast<uint32_t>(body.steps.size() - 1);
    if (read) number = add(number);
    now.push_back(number);
    if (number != own)
      coordinates.insert_or_assign("e" + std::to_string(own), loaded_symbol(number));
  }
  for (const uint32_t result : old.results) body.results.push_back(now[result]);
}

// Makes three phases: every chunk is folded, the totals are scanned, and every chunk is scanned by
// itself. Its readers combine it with the value before the chunk.
LoopTree chunk_scan(LoopTree out, const ItemPlace& place, size_t chunk) {
  const LoopTask scan = *only_scan(loop_at(out, place));
  const DType dtype = body_dtype(scan);
  const LoopValue made = out.values[scan.target];
  const auto add_value = [&](std::string_view end) {
    LoopValue value{.name = unused_value(out, made.name + std::string(end)), .dtype = dtype};
    for (const size_t axis : made.axes)
      if (axis != scan.over[0]) value.axes.push_back(axis);
    value.axes.push_back(chunk);
    value.storage = Storage::Workspace;
    out.values.push_back(std::move(value));
    return out.values.size() - 1;
  };
  const size_t total = add_value("_total"), before = add_value("_before");
  const auto read = [&](size_t value) {
    LoopStep s{.kind = LoopStep::Kind::Read, .dtype = dtype, .source = value};
    for (const size_t axis : out.values[value].axes) s.at.push_back(out.axes[axis].index());
    return s;
  };

  LoopRegion folds = out.phases[0], scans = folds;
  ItemPlace inner = place;
  LoopTree of_folds = out;
  Loop& loop = loop_at(of_folds, inner);
  LoopTask fold = scan;
  fold.kind = LoopTask::Kind::Fold;
  fold.target = total;
  fold.reverse = fold.exclusive = false;
  loop.down = false;
  loop.body.clear();
  loop.body.emplace_back(std::move(fold));

  LoopTask of_totals;
  of_totals.kind = LoopTask::Kind::Scan;
  of_totals.target = before;
  of_totals.over = {chunk};
  of_totals.monoid = scan.monoid;
  of_totals.reverse = scan.reverse;
  of_totals.exclusive = true;
  of_totals.body.steps = {read(total)};
  of_totals.body.results = {0};
  of_totals.location = scan.location;
  LoopRegion middle;
  middle.emplace_back(std::move(of_totals));
  if (auto* grid = std::get_if<Box<Loop>>(&scans.front()); (*grid)->levels[0].axis != chunk) {
    Loop lines = **grid;
    std::erase_if(lines.levels, [&](const LoopLevel& level) { return level.axis == chunk; });
    for (LoopLevel& level : lines.levels) level.turn = 1;
    lines.parts.clear();
    lines.body = std::move(middle);
    middle.clear();
    middle.emplace_back(std::move(lines));
  }

  // What a store reads of a chunk is combined with the value before the chunk.
  out.values[scan.target].dtype = dtype;
  const ElementwiseOp combine = info(scan.monoid).combine;
  change_tasks(loop_at(out, place).body, [&](LoopTask& task) {
    if (task.makes_value()) return;
    replace_reads(task.body, scan.target, [&](uint32_t own) {
      std::vector<LoopStep>& steps = task.body.steps;
      const auto apply = [&](ElementwiseOp op, DType to, std::vector<uint32_t> arguments) {
        steps.push_back({.kind = LoopStep::Kind::Apply,
                         .dtype = to,
                         .op = op,
                         .arguments = std::move(arguments)});
        return static_cast<uint32_t>(steps.size() - 1);
      };
      steps[own].dtype = dtype;
      steps.push_back(read(before));
      const auto first = static_cast<uint32_t>(steps.size() - 1);
      const uint32_t all = apply(combine, dtype, {first, own});
      return made.dtype == dtype ? all : apply(ElementwiseOp::convert, made.dtype, {all});
    });
  });
  out.phases.insert(out.phases.begin(), std::move(middle));
  out.phases.insert(out.phases.begin(), std::move(of_folds.phases[0]));
  return out;
}

// Whether a second phase can fold what the loop carries: sums without a rescale, and nothing stands
// before the loop. Stores in the loop read none of the sums and stay with their chunk.
bool folds_by_phase(const LoopTree& tree, const ItemPlace& place, Combine how) {
  const Loop& loop = loop_at(tree, place);
  bool out = how == Combine::Phase && tree.phases.size() == 1 && place.items.back() == 0;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!task.makes_value()) return;
    const bool sums = task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot;
    out = out && sums && !task.rescale && is_over(task, loop);
  });
  return out;
}

// Makes two phases: every chunk is folded into a workspace, and then the chunks are combined before
// what follows the loop. `place` is that of the loop, inside the loop on grid that has the chunks.
LoopTree fold_chunks(LoopTree out, const ItemPlace& place, size_t chunk) {
  Loop second = loop_at(out, {place.phase, {place.items[0]}});
  std::erase_if(second.levels, [&](const LoopLevel& level) { return level.axis == chunk; });
  LoopRegion& region = region_of(out, place);
  LoopRegion rest(std::make_move_iterator(region.begin() + 1),
                  std::make_move_iterator(region.end()));
  region.erase(region.begin() + 1, region.end());
  LoopRegion folds;
  change_tasks(region, [&](LoopTask& task) {
    if (!task.makes_value()) return;
    const LoopValue made = out.values[task.target];
    LoopValue part{.name = unused_value(out, made.name + "_part"),
                   .dtype = compute_type(body_dtype(task)),
                   .axes = {chunk},
                   .storage = Storage::Workspace};
    part.axes.insert(part.axes.end(), made.axes.begin(), made.axes.end());
    LoopTask fold;
    fold.kind = LoopTask::Kind::Fold;
    fold.target = task.target;
    fold.over = {chunk};
    fold.monoid = task.kind == LoopTask::Kind::Dot ? Monoid::Sum : task.monoid;
    fold.location = task.location;
    LoopStep read{.kind = LoopStep::Kind::Read, .dtype = part.dtype, .source = out.values.size()};
    for (const size_t axis : part.axes) read.at.push_back(out.axes[axis].index());
    fold.body.steps = {std::move(read)};
    fold.body.results = {0};
    folds.emplace_back(std::move(fold));
    task.target = out.values.size();
    out.values.push_back(std::move(part));
  });
  folds.insert(folds.end(), std::make_move_iterator(rest.begin()),
               std::make_move_iterator(rest.end()));
  if (second.levels.empty()) {
    out.phases.push_back(std::move(folds));
  } else {
    second.body = std::move(folds);
    LoopRegion phase;
    phase.emplace_back(std::move(second));
    out.phases.push_back(std::move(phase));
  }
  return out;
}

}  // namespace

LoopTree take(const LoopTree& tree, const ChunkStep& step) {
  LoopTree out = tree;
  const ItemPlace place = find_loop(out, step.loop).value();
  Loop& loop = loop_at(out, place);
  const auto [axis, turn] = loop.levels[0];
  const size_t chunk = out.axes.size();
  out.axes.push_back({unused_axis(out, out.axes[axis].name + "c"), step.number});
  const Expr turns = ceildiv(out.axes[axis].extent, turn), c = out.axes[chunk].index();
  loop.bounds.emplace(floordiv(c * turns, step.number) * turn,
                      floordiv((c + 1) * turns, step.number) * turn);
  const bool scans = only_scan(loop) != nullptr;
  const bool by_phase = folds_by_phase(out, place, step.how);
  change_tasks(loop.body, [&](LoopTask& task) {
    if (scans || by_phase || !task.has_state() || !is_over(task, loop)) return;
    task.over.insert(task.over.begin(), chunk);
    task.combine = step.how;
  });
  LoopRegion& region = region_of(out, place);
  if (place.items.size() > 1 && step.how != Combine::Rank) {
    ItemPlace grid = place;
    grid.items.pop_back();
    loop_at(out, grid).levels.push_back({chunk});
    if (by_phase) return fold_chunks(std::move(out), place, chunk);
    return scans ? chunk_scan(std::move(out), place, chunk) : out;
  }
  Loop chunks;
  chunks.parallel = true;
  chunks.levels = {{chunk}};
  chunks.on = step.how == Combine::Rank ? Machine::Rank : Machine::Grid;
  chunks.body = std::move(region);
  region.clear();
  region.emplace_back(std::move(chunks));
  if (!scans && !by_phase) return out;
  ItemPlace inside = place;
  inside.items.push_back(0);
  inside.items[0] = 0;
  return by_phase ? fold_chunks(std::move(out), inside, chunk)
                  : chunk_scan(std::move(out), inside, chunk);
}

}  // namespace braze
