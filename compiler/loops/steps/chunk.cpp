#include "compiler/loops/steps/chunk.h"

#include <algorithm>
#include <map>

#include "compiler/loops/steps/means.h"
#include "compiler/loops/text.h"
#include "ir/support/text.h"
#include "ir/target/target.h"

namespace braze {

namespace {

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

// Whether the loop stands directly in a loop on grid. The blocks of a cluster may share what stands
// in loops that are not dealt to the machine, if nothing stands beside these: they run all of it.
bool stands_in_grid(const std::vector<const Loop*>& around, Combine how) {
  if (around.empty() || around[0]->on != Machine::Grid) return false;
  for (size_t i = 1; i < around.size(); ++i)
    if (how != Combine::Rank || !around[i]->parallel || around[i]->on != Machine::None ||
        around[i - 1]->body.size() != 1)
      return false;
  return true;
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
    const bool next = task && task->kind == LoopTask::Kind::Scan && !task->begins_after() && !scan;
    if (!task || (!next && task->makes_value())) return nullptr;
    if (next) scan = task;
  }
  return scan;
}

// Whether a task of the region, from this item on, reads the value.
bool is_read_from(const LoopRegion& region, size_t item, size_t value) {
  bool out = false;
  for (size_t i = item; i < region.size(); ++i) {
    if (const auto* task = std::get_if<LoopTask>(&region[i])) {
      out = out || reads(task->body, value);
      continue;
    }
    for_each_task(std::get<Box<Loop>>(region[i])->body,
                  [&](const LoopTask& task, const auto&) { out = out || reads(task.body, value); });
  }
  return out;
}

std::optional<Refusal> refuse_states(const LoopTree& tree, const ItemPlace& place, Combine how) {
  const Loop& loop = loop_at(tree, place);
  if (how == Combine::Phase && tree.phases.size() == 1 && only_scan(loop)) return std::nullopt;
  bool carries = false;
  std::optional<Refusal> refusal;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!task.makes_value()) return;
    const std::string& name = tree.values[task.target].name;
    if (!task.has_state() || !runs_over_any(loop, task.over)) {
      if (is_read_from(region_of(tree, place), place.items.back() + 1, task.target))
        refusal = Refusal{
            &codes::kOtherTurn,
            fmt::format("%{} is read after the loop, and a chunk makes only a part of it", name),
            "compute it again for what reads it, with the step `again`"};
      return;
    }
    carries = true;
    const bool combines = task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot;
    if (!combines || task.combine != Combine::None || (task.shifts && how != Combine::Phase))
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

bool is_sum(const LoopTask& task) {
  return task.kind == LoopTask::Kind::Dot ||
         (task.kind == LoopTask::Kind::Fold && task.monoid == Monoid::Sum);
}

// Whether a second phase can fold what the loop carries: folds, of which only sums have ratios, and
// nothing stands before the loop. What the loop makes for them, and stores in it, which read none
// of the sums, stay with their chunk.
bool folds_by_phase(const LoopTree& tree, const ItemPlace& place) {
  const Loop& loop = loop_at(tree, place);
  bool out = tree.phases.size() == 1 && place.items.back() == 0;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (!task.makes_value() || !runs_over_any(loop, task.over)) return;
    const bool sums = task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot;
    out = out && sums && (!task.rescale || task.shifts || is_sum(task));
  });
  return out;
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
  if (auto refusal = marked(tree, loop, /*limit_allowed=*/true)) return refusal;
  if (loop.bounds && !loop.limit)
    return Refusal{&codes::kBoundsDepend, fmt::format("`{}` has bounds", to_text(tree, loop)),
                   "take this step before the loop has bounds"};
  const auto around = loops_around(tree, *place);
  const bool outermost = around.empty() && step.how != Combine::Rank;
  if (!outermost && !stands_in_grid(around, step.how))
    return Refusal{
        &codes::kNesting,
        fmt::format("`{}` must stand directly inside a loop on grid", to_text(tree, loop)),
        "put the loops around it `on` grid first, and groups later"};
  if (!around.empty())
    if (auto refusal = marked(tree, *around[0])) return refusal;
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
  if (auto refusal = refuse_states(tree, *place, step.how)) return refusal;
  if (step.how != Combine::Phase || only_scan(loop) || folds_by_phase(tree, *place))
    return std::nullopt;
  return Refusal{&codes::kIsState, "no second phase can combine what the loop carries",
                 "chunk the first loop of a kernel of one phase, in which only sums are rescaled"};
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
    uint32_t number = push(body, std::move(s));
    if (read) number = add(number);
    now.push_back(number);
    if (number != own)
      coordinates.insert_or_assign("e" + std::to_string(own), loaded_symbol(number));
  }
  for (const uint32_t result : old.results) body.results.push_back(now[result]);
}

// Makes three phases: every chunk is combined, the totals are scanned, and every chunk is scanned
// by itself. Readers of a monoid's scan combine it with the value before the chunk; a scan of
// tuples begins with the tuple before its chunk.
class ChunkScan {
 public:
  ChunkScan(LoopTree out, ItemPlace place, size_t chunk)
      : out_(std::move(out)),
        place_(std::move(place)),
        chunk_(chunk),
        scan_(*only_scan(loop_at(out_, place_))),
        made_(out_.values[scan_.target]) {}

  LoopTree take() && {
    const std::vector<size_t> totals = add_values("_total"), befores = add_values("_before");
    LoopRegion middle = out_.phases[0];
    LoopTree of_totals = out_;
    Loop& loop = loop_at(of_totals, place_);
    loop.body.clear();
    for (size_t part = 0; part < totals.size(); ++part)
      loop.body.emplace_back(total(totals[part], part));
    if (scan_.combiner.monoid()) loop.down = false;

    LoopRegion scans;
    for (size_t part = 0; part < befores.size(); ++part)
      scans.emplace_back(scan_of_totals(totals, befores[part], part));
    auto* grid = std::get_if<Box<Loop>>(&middle.front());
    if ((*grid)->levels[0].axis != chunk_) {
      Loop lines = **grid;
      std::erase_if(lines.levels, [&](const LoopLevel& level) { return level.axis == chunk_; });
      for (LoopLevel& level : lines.levels) level.turn = 1;
      lines.parts.clear();
      lines.body = std::move(scans);
      scans.clear();
      scans.emplace_back(std::move(lines));
    }
    if (scan_.combiner.monoid())
      combine_in_readers(befores[0]);
    else
      begin_after(befores);
    out_.phases.insert(out_.phases.begin(), std::move(scans));
    out_.phases.insert(out_.phases.begin(), std::move(of_totals.phases[0]));
    return std::move(out_);
  }

 private:
  DType part_dtype(size_t part) const {
    const DType own = scan_.body.steps[scan_.body.results[part]].dtype;
    return scan_.combiner.body() ? scan_.combiner.accumulation(part, own) : own;
  }

  // Values for all parts of a tuple, one for each chunk.
  std::vector<size_t> add_values(const std::string& end) {
    std::vector<size_t> out;
    for (size_t part = 0; part < scan_.combiner.parts(); ++part) {
      const std::string number = scan_.combiner.monoid() ? "" : std::to_string(part);
      LoopValue value{.name = unused_value(out_, made_.name + end + number),
                      .dtype = part_dtype(part)};
      for (const size_t axis : made_.axes)
        if (axis != scan_.over[0]) value.axes.push_back(axis);
      value.axes.push_back(chunk_);
      value.storage = Storage::Workspace;
      out.push_back(out_.values.size());
      out_.values.push_back(std::move(value));
    }
    return out;
  }

  // A part of what all elements of a chunk make.
  LoopTask total(size_t target, size_t part) const {
    LoopTask out = scan_;
    out.target = target;
    out.exclusive = false;
    out.part = part;
    if (const auto monoid = scan_.combiner.monoid()) {
      out.kind = LoopTask::Kind::Fold;
      out.monoid = *monoid;
      out.combiner = {};
      out.reverse = false;
    }
    return out;
  }

  // A part of what comes before each chunk.
  LoopTask scan_of_totals(const std::vector<size_t>& totals, size_t target, size_t part) const {
    LoopTask out;
    out.kind = LoopTask::Kind::Scan;
    out.target = target;
    out.over = {chunk_};
    out.combiner = scan_.combiner;
    out.part = part;
    out.reverse = scan_.reverse;
    out.exclusive = true;
    for (const size_t total : totals)
      out.body.results.push_back(push(out.body, own_read(out_, total)));
    out.location = scan_.location;
    return out;
  }

  // What a store reads of a chunk is combined with the value before the chunk.
  void combine_in_readers(size_t before) {
    const DType dtype = part_dtype(0);
    const ElementwiseOp combine = info(*scan_.combiner.monoid()).combine;
    out_.values[scan_.target].dtype = dtype;
    change_tasks(loop_at(out_, place_).body, [&](LoopTask& task) {
      if (task.makes_value()) return;
      replace_reads(task.body, scan_.target, [&](uint32_t own) {
        const auto apply = [&](ElementwiseOp op, DType to, std::vector<uint32_t> arguments) {
          return push(task.body, {.dtype = to, .op = op, .arguments = std::move(arguments)});
        };
        task.body.steps[own].dtype = dtype;
        const uint32_t first = push(task.body, own_read(out_, before));
        const uint32_t all = apply(combine, dtype, {first, own});
        return made_.dtype == dtype ? all : apply(ElementwiseOp::convert, made_.dtype, {all});
      });
    });
  }

  void begin_after(const std::vector<size_t>& befores) {
    change_tasks(loop_at(out_, place_).body, [&](LoopTask& task) {
      if (!task.makes_value()) return;
      for (const size_t before : befores)
        task.body.results.push_back(push(task.body, own_read(out_, before)));
    });
  }

  LoopTree out_;
  const ItemPlace place_;
  const size_t chunk_;
  const LoopTask scan_;
  const LoopValue made_;
};

LoopTree chunk_scan(LoopTree out, const ItemPlace& place, size_t chunk) {
  return ChunkScan(std::move(out), place, chunk).take();
}

// The sums of one chunk after another, each in a workspace, and how a phase combines them.
class ChunkFolds {
 public:
  ChunkFolds(LoopTree& out, const Loop& loop, size_t chunk, const LoopRegion& rest)
      : out_(out), chunk_(chunk) {
    const Expr end = out.axes[loop.levels[0].axis].extent;
    axis_ = loop.levels[0].axis;
    length_ = min(loop.bounds->second, end) - min(loop.bounds->first, end);
    for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
      if (task.makes_value() && runs_over_any(loop, task.over)) tasks_.push_back(task);
    });
    for (const LoopTask& task : tasks_) {
      const bool later = is_read_from(rest, 0, task.target);
      const bool followed = later || is_followed(task.target, /*before=*/false);
      const bool parts_only = !followed && is_followed(task.target, /*before=*/true);
      if (later || !counts(task)) add_part(task, parts_only);
      if (!parts_only) totals_.insert(task.target);
    }
  }

  // The tasks of the loop, whose sums are those of a chunk.
  void make_parts(LoopRegion& region) const {
    const auto rename = [&](LoopBody& body) {
      for (LoopStep& s : body.steps)
        if (s.kind == LoopStep::Kind::Read && parts_.contains(s.source)) read_part(s);
    };
    change_tasks(region, [&](LoopTask& task) {
      rename(task.body);
      if (task.rescale) rename(*task.rescale);
      if (const auto part = parts_.find(task.target); task.makes_value() && part != parts_.end())
        task.target = part->second;
    });
  }

  // Chunks are combined in order. What follows a mean is brought to that of all chunks, and what is
  // rescaled to the extreme of all chunks.
  LoopRegion folds() const {
    LoopRegion out;
    for (const LoopTask& task : tasks_) {
      if (!totals_.contains(task.target) || !parts_.contains(task.target)) continue;
      LoopTask fold;
      fold.kind = LoopTask::Kind::Fold;
      fold.target = task.target;
      fold.over = {chunk_};
      fold.monoid = monoid_of(task);
      fold.location = task.location;
      const DType dtype = out_.values[parts_.at(task.target)].dtype;
      if (task.rescale) fold.body = shift(task);
      LoopStep own = own_read(out_, task.target);
      own.dtype = dtype;
      read_part(own);
      uint32_t result = push(fold.body, std::move(own));
      if (task.rescale) {
        result = push(fold.body, {.dtype = dtype,
                                  .op = task.shifts ? ElementwiseOp::add : ElementwiseOp::mul,
                                  .arguments = {result, fold.body.results[0]}});
        if (!task.shifts) result = without_empty(task, fold.body, result);
      }
      fold.body.results = {result};
      remove_dead_steps(fold.body);
      out.emplace_back(std::move(fold));
    }
    return out;
  }

 private:
  // Whether a shift reads a value, or what it was before.
  bool is_followed(size_t value, bool before) const {
    return std::ranges::any_of(tasks_, [&](const LoopTask& task) {
      return task.rescale && std::ranges::any_of(task.rescale->steps, [&](const LoopStep& s) {
               return s.kind == LoopStep::Kind::Read && s.source == value && s.before == before;
             });
    });
  }

  void add_part(const LoopTask& task, bool parts_only) {
    const LoopValue made = out_.values[task.target];
    LoopValue part{.name = unused_value(out_, made.name + "_part"),
                   .dtype = compute_type(body_dtype(task)),
                   .axes = {chunk_},
                   .storage = Storage::Workspace};
    part.axes.insert(part.axes.end(), made.axes.begin(), made.axes.end());
    parts_[task.target] = parts_only ? task.target : out_.values.size();
    if (parts_only)
      out_.values[task.target] = std::move(part);
    else
      out_.values.push_back(std::move(part));
  }
  void read_part(LoopStep& s) const {
    s.source = parts_.at(s.source);
    s.at.insert(s.at.begin(), out_.axes[chunk_].index());
  }

  // A chunk whose extreme is the identity, though that of all chunks is not, has seen nothing that
  // counts: its sum is 0, and the ratio of the two extremes means nothing.
  uint32_t without_empty(const LoopTask& task, LoopBody& body, uint32_t result) const {
    const DType dtype = body.steps[result].dtype;
    const auto apply = [&](ElementwiseOp op, DType to, std::vector<uint32_t> arguments) {
      return push(body, {.dtype = to, .op = op, .arguments = std::move(arguments)});
    };
    const auto constant = [&](DType of, uint64_t bits) {
      return push(body, {.kind = LoopStep::Kind::Constant, .dtype = of, .bits = bits});
    };
    for (const LoopStep& s : task.rescale->steps) {
      if (s.kind != LoopStep::Kind::Read || !s.before) continue;
      const auto extreme = std::ranges::find(tasks_, s.source, &LoopTask::target);
      const uint32_t none = constant(s.dtype, info(extreme->monoid).identity(s.dtype));
      LoopStep total = s, part = s;
      total.before = part.before = false;
      read_part(part);
      const uint32_t all = push(body, std::move(total)), here = push(body, std::move(part));
      const uint32_t some = apply(ElementwiseOp::ne, DType::Bool, {all, none});
      const uint32_t empty = apply(ElementwiseOp::eq, DType::Bool, {here, none});
      const uint32_t skipped = apply(ElementwiseOp::logical_and, DType::Bool, {some, empty});
      result = apply(ElementwiseOp::select, dtype, {skipped, constant(dtype, 0), result});
    }
    return result;
  }

  // How far the sum of a chunk moves, or by what it is multiplied: of what follows the mean or the
  // extreme of the chunk, the value before is that of the chunk.
  LoopBody shift(const LoopTask& task) const {
    LoopBody body = *task.rescale;
    for (const LoopTask& other : tasks_) {
      if (parts_.contains(other.target)) continue;
      // What counts terms is known without being counted.
      Expr all = 1, here = 1;
      for (const size_t axis : other.over) {
        all *= out_.axes[axis].extent;
        here *= axis == axis_ ? length_ : out_.axes[axis].extent;
      }
      replace_reads(body, other.target, [&](uint32_t own) {
        const LoopStep read = body.steps[own];
        const uint32_t index = push(
            body,
            {.kind = LoopStep::Kind::Index, .dtype = DType::I64, .at = {read.before ? here : all}});
        return push(body,
                    {.dtype = read.dtype, .op = ElementwiseOp::convert, .arguments = {index}});
      });
    }
    for (LoopStep& s : body.steps)
      if (s.kind == LoopStep::Kind::Read && s.before && parts_.contains(s.source)) {
        s.before = false;
        read_part(s);
      }
    return body;
  }

  LoopTree& out_;
  size_t chunk_, axis_ = 0;
  Expr length_;  // of a chunk, in indices of its axis
  std::vector<LoopTask> tasks_;
  std::map<size_t, size_t> parts_;  // by value
  std::set<size_t> totals_;         // values of which more than parts are needed
};

// The region of a loop, or of the loops in it, in which everything that the rest reads of a value
// reads it at its own index; these loops run over exactly the value's own axes. Null if there is no
// such region.
LoopRegion* region_of_readers(const LoopTree& tree, LoopRegion& rest, size_t value,
                              std::set<size_t> axes) {
  LoopItem* reader = nullptr;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (!is_read_from({rest[i]}, 0, value)) continue;
    if (reader) return nullptr;
    reader = &rest[i];
  }
  bool own = !axes.empty();
  visit_steps(rest, LoopStep::Kind::Read, [&](const LoopTask&, const LoopStep& s) {
    for (size_t i = 0; s.source == value && i < s.at.size(); ++i)
      own = own && s.at[i] == tree.axes[tree.values[value].axes[i]].index();
  });
  while (reader && own) {
    auto* loop = std::get_if<Box<Loop>>(reader);
    if (!loop || !(*loop)->parallel || (*loop)->bounds) return nullptr;
    for (const LoopLevel& level : (*loop)->levels)
      if (level.turn != 1 || axes.erase(level.axis) == 0) return nullptr;
    if (axes.empty()) return &(*loop)->body;
    reader = (*loop)->body.size() == 1 ? &(*loop)->body[0] : nullptr;
  }
  return nullptr;
}

// Folds of chunks stand in the loops that read them, if these run over the same axes. Such loops
// can then be dealt to the machine with all that they contain.
void move_to_readers(const LoopTree& tree, LoopRegion& folds, LoopRegion& rest,
                     const std::vector<LoopLevel>& around) {
  const auto reads_totals = [&](const LoopItem& fold) {
    return std::ranges::any_of(std::get<LoopTask>(fold).body.steps, [&](const LoopStep& s) {
      return s.kind == LoopStep::Kind::Read && tree.values[s.source].storage != Storage::Workspace;
    });
  };
  if (std::ranges::any_of(folds, reads_totals)) return;
  std::map<LoopRegion*, size_t> moved;  // how many stand in a region already
  std::erase_if(folds, [&](LoopItem& fold) {
    auto& task = std::get<LoopTask>(fold);
    const auto& own = tree.values[task.target].axes;
    std::set<size_t> axes(own.begin(), own.end());
    for (const LoopLevel& level : around) axes.erase(level.axis);
    LoopRegion* region = region_of_readers(tree, rest, task.target, std::move(axes));
    if (!region) return false;
    region->insert(region->begin() + static_cast<std::ptrdiff_t>(moved[region]++), std::move(task));
    return true;
  });
}

// Makes two phases: every chunk is folded into a workspace, and then the chunks are combined before
// what follows the loop. `place` is that of the loop, inside the loop on grid that has the chunks.
LoopTree fold_chunks(LoopTree out, const ItemPlace& place, size_t chunk, bool apart) {
  Loop second = loop_at(out, {place.phase, {place.items[0]}});
  std::erase_if(second.levels, [&](const LoopLevel& level) { return level.axis == chunk; });
  for (LoopLevel& level : second.levels)
    if (apart) level.turn = 1;
  LoopRegion& region = region_of(out, place);
  LoopRegion rest(std::make_move_iterator(region.begin() + 1),
                  std::make_move_iterator(region.end()));
  region.erase(region.begin() + 1, region.end());
  const ChunkFolds chunks(out, loop_at(out, place), chunk, rest);
  chunks.make_parts(region);
  LoopRegion folds = chunks.folds();
  move_to_readers(out, folds, rest, second.levels);
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

LoopTree take(LoopTree tree, const ChunkStep& step) {
  const ItemPlace place = find_loop(tree, step.loop).value();
  Loop& loop = loop_at(tree, place);
  const auto [axis, turn] = loop.levels[0];
  const size_t chunk = tree.axes.size();
  tree.axes.push_back({unused_axis(tree, tree.axes[axis].name + "c"), step.number});
  // What a limit leaves of the axis is dealt to the chunks evenly.
  const Expr low = loop.bounds ? loop.bounds->first : Expr(0), end = tree.axes[axis].extent;
  const Expr length = loop.bounds ? max(0, min(loop.bounds->second, end) - low) : end;
  const Expr turns = ceildiv(length, turn), c = tree.axes[chunk].index();
  loop.bounds.emplace(low + floordiv(c * turns, step.number) * turn,
                      low + floordiv((c + 1) * turns, step.number) * turn);
  const bool scans = only_scan(loop) != nullptr, ranks = step.how == Combine::Rank;
  change_tasks(loop.body, [&](LoopTask& task) {
    if (!ranks || !task.has_state() || !runs_over_any(loop, task.over)) return;
    task.over.insert(task.over.begin(), chunk);
    task.combine = Combine::Rank;
  });
  LoopRegion& region =
      ranks ? loop_at(tree, {place.phase, {place.items[0]}}).body : region_of(tree, place);
  if (place.items.size() > 1 && !ranks) {
    ItemPlace grid = place;
    grid.items.pop_back();
    loop_at(tree, grid).levels.push_back({chunk});
    return scans ? chunk_scan(std::move(tree), place, chunk)
                 : fold_chunks(std::move(tree), place, chunk, step.apart);
  }
  Loop chunks;
  chunks.parallel = true;
  chunks.levels = {{chunk}};
  chunks.on = ranks ? Machine::Rank : Machine::Grid;
  chunks.body = std::move(region);
  region.clear();
  region.emplace_back(std::move(chunks));
  if (ranks) return tree;
  ItemPlace inside = place;
  inside.items.push_back(0);
  inside.items[0] = 0;
  return scans ? chunk_scan(std::move(tree), inside, chunk)
               : fold_chunks(std::move(tree), inside, chunk, step.apart);
}

}  // namespace braze
