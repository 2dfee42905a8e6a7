// emit_roles.cpp — channels between roles, what is copied and released when, and asynchronous dots
// (E4, E10).
#include <algorithm>
#include <tuple>

#include "compiler/loops/emit_p.h"
#include "compiler/loops/steps/places.h"
#include "ir/support/text.h"

namespace braze {

// --- Channels -----------------------------------------------------------------------------------

bool TreeEmitter::depends_on_grid(const LoopTask& stage) const {
  const LoopStep& load = stage.body.steps[stage.body.results[0]];
  return std::any_of(grid_->levels.begin(), grid_->levels.end(), [&](const LoopLevel& level) {
    return std::any_of(load.at.begin(), load.at.end(),
                       [&](const Expr& e) { return e.uses(name_of(level.axis)); });
  });
}

// Declares the channels of a region. Stages whose readers stand in one turn share a channel. If
// instances are persistent, a stage that is the same in all turns of the grid is copied once,
// before these turns.
void TreeEmitter::plan_pipes(const LoopRegion& region, int64_t ring, bool in_grid) {
  std::vector<const LoopTask*> each, once, late;
  for (const LoopItem& item : region) {
    const auto* task = std::get_if<LoopTask>(&item);
    if (!task || task->kind != LoopTask::Kind::Stage) continue;
    (in_grid && persistent_ > 0 && !depends_on_grid(*task) ? once
     : is_late(region, *task)                              ? late
                                                           : each)
        .push_back(task);
  }
  if (in_grid) pipes_.clear();
  for (const auto* stages : {&once, &each, &late}) {
    if (stages->empty()) continue;
    Pipe pipe{.region = &region, .stages = *stages, .once = stages == &once};
    Channel channel{.name = builder_.fresh_name("pipe"), .depth = pipe.once ? 1 : ring};
    channel.producer = "load";
    channel.receiver = "mma";
    for (const LoopTask* stage : *stages) {
      pipe_of_[stage->target] = pipes_.size();
      channel.fields.push_back(field(*stage, channel));
    }
    pipe.channel = ChannelId(code_.channels.size());
    code_.channels.push_back(std::move(channel));
    builder_.append(ChannelOp{pipe.channel}, {});
    pipes_.push_back(std::move(pipe));
  }
  for (const LoopItem& item : region) {
    const auto* loop = std::get_if<Box<Loop>>(&item);
    if (!loop) continue;
    plan_pipes((*loop)->body, std::max<int64_t>((*loop)->ring, 1), false);
  }
}

// A field of a channel: the box that holds what all groups read in one turn. Its last two axes are
// a matrix.
MemoryId TreeEmitter::field(const LoopTask& stage, Channel& channel) {
  constexpr int64_t kSwizzle = 128;
  const LoopValue& value = tree_.values[stage.target];
  Memory out{.name = channel.name + "." + value.name,
             .space = MemorySpace::Field,
             .mode = Mode::In,
             .dtype = value.dtype};
  // The turns of all loops around the stage, except those on group.
  std::vector<int64_t> turns(tree_.axes.size());
  for_each_task(grid_->body, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    if (&task != &stage) return;
    std::vector<const Loop*> loops = {grid_};
    loops.insert(loops.end(), around.begin(), around.end());
    for (const Loop* loop : loops)
      for (const LoopLevel& level : loop->levels)
        if (loop->on != Machine::Group) turns[level.axis] = level.turn;
  });
  for (const size_t axis : value.axes) {
    const int64_t extent =
        turns[axis] > 0 ? turns[axis] : tree_.axes[axis].extent.as_constant().value_or(0);
    if (extent != 1) out.shape.emplace_back(extent);
  }
  // The rows of a matrix are whole panels. If a turn does not need all of the last panel, the rest
  // of it is not read.
  const int64_t panel = kSwizzle / static_cast<int64_t>(size_of(value.dtype));
  if (out.shape.size() >= 2) {
    out.shape.back() = ceildiv(out.shape.back(), panel) * Expr(panel);
    out.swizzle = kSwizzle;
  }
  code_.memories.push_back(std::move(out));
  return MemoryId(code_.memories.size() - 1);
}

void TreeEmitter::put(Pipe& pipe) {
  PutOp put{pipe.channel, pipe.once ? Expr(0) : item()};
  Region copies;
  builder_.enter(copies);
  const Channel& channel = code_[pipe.channel];
  for (size_t i = 0; i < pipe.stages.size(); ++i) {
    const LoopTask& stage = *pipe.stages[i];
    const LoopStep& load = stage.body.steps[stage.body.results[0]];
    if (!load.conditions.empty() || load.otherwise.value_or(0) != 0)
      refuse(stage.location, "a copy can have no condition, and must be 0 outside of the tensor");
    // Positions count in the field, whose axes are in the order of the value's axes.
    TaskTile tile = tile_of({}, shared_);
    size_t d = 0;
    for (const size_t axis : tree_.values[stage.target].axes) {
      if (extent_of(axis, shared_) == 1) continue;
      const int64_t extent = code_[channel.fields[i]].shape[d].as_constant().value();
      tile.index[name_of(axis)] += position_symbol('d', d++, extent);
    }
    CopyOp copy{.memory = MemoryId(load.source), .at = substituted(load.at, tile)};
    copy.guard = clipped(load.at, copy.at, tree_.tensors[load.source].type.shape);
    copy.field = channel.fields[i];
    builder_.append(std::move(copy), {});
  }
  builder_.leave();
  put.body = std::move(copies);
  builder_.append(std::move(put), {});
}

void TreeEmitter::get(Pipe& pipe) {
  const Expr number = pipe.once ? Expr(0) : item();
  builder_.append(GetItemOp{pipe.channel, number}, {});
  pipe.held = number;
  pipe.depth = counters_.size();
  const Channel& channel = code_[pipe.channel];
  for (size_t i = 0; i < pipe.stages.size(); ++i) {
    OnChip chip{channel.fields[i], number, {}, {}};
    for (const size_t axis : tree_.values[pipe.stages[i]->target].axes) {
      chip.begin.push_back(shared_[axis].begin);
      chip.extents.push_back(extent_of(axis, shared_));
    }
    chips_[pipe.stages[i]->target] = std::move(chip);
  }
}

void TreeEmitter::release(Pipe& pipe, const Expr& number) {
  builder_.append(ReleaseOp{pipe.channel, number}, {});
}

MemoryId TreeEmitter::window(const OnChip& from, const std::vector<Expr>& offsets,
                             const std::vector<int64_t>& extents) {
  const Memory& source = code_[from.memory];
  Memory part{.name = builder_.fresh_name("part"),
              .space = MemorySpace::Window,
              .mode = Mode::InOut,
              .dtype = source.dtype,
              .swizzle = source.swizzle};
  for (const int64_t extent : extents) part.shape.emplace_back(extent);
  const MemoryId window(code_.memories.size());
  code_.memories.push_back(std::move(part));
  builder_.append(MemoryViewOp{window, from.memory, from.item, offsets}, {});
  return window;
}

// --- Asynchronous dots --------------------------------------------------------------------------

// The matrix of a factor within its field, and whether its last axis is the summed one. `own` is
// set to the other axis of the factor.
std::pair<MemoryId, bool> TreeEmitter::factor_window(const LoopTask& task, size_t factor,
                                                     size_t& own) {
  const LoopStep& s = task.body.steps[task.body.results[factor]];
  const auto chip = s.kind == LoopStep::Kind::Read ? chips_.find(s.source) : chips_.end();
  if (chip == chips_.end()) refuse(task.location, "a factor of a wgmma must be a stage on chip");
  const TaskTile here = tile_of({}, axes_);
  const auto place = substituted(s.at, here);
  std::vector<Expr> offsets;
  std::vector<int64_t> extents;
  std::vector<size_t> axes;
  for (size_t i = 0; i < s.at.size(); ++i) {
    if (chip->second.extents[i] == 1) continue;
    offsets.push_back(place[i] - chip->second.begin[i]);
    for (size_t axis = 0; axis < tree_.axes.size(); ++axis) {
      if (!s.at[i].uses(name_of(axis)) || extent_of(axis, axes_) == 1) continue;
      axes.push_back(axis);
      extents.push_back(extent_of(axis, axes_));
    }
  }
  if (axes.size() != 2)
    refuse(task.location,
           "a factor of a wgmma must be a matrix, with an axis of its own and the summed axis");
  const auto summed = [&](size_t axis) { return contains(task.over, axis); };
  if (summed(axes[0]) == summed(axes[1]))
    refuse(task.location, "one axis of a factor must be summed, and the other must not");
  own = summed(axes[0]) ? axes[1] : axes[0];
  Pipe& pipe = pipes_[pipe_of_.at(s.source)];
  if (!pipe.once) pipe.readers.insert(started_ + 1);
  return {window(chip->second, offsets, extents), summed(axes[1])};
}

// The tile of a dot's left factor, if it is in registers.
TreeEmitter::TaskTile TreeEmitter::factor_tile(const LoopTask& task) const {
  std::vector<size_t> axes = task.over;
  axes.push_back(tile_of(tree_.values[task.target].axes, axes_).dims[0]);
  return tile_of(axes, axes_);
}

// Makes the left factor of a dot in registers.
ValueId TreeEmitter::left_factor(const LoopTask& task) {
  const uint32_t number = task.body.results[task.swap ? 1 : 0];
  const LoopStep& left = task.body.steps[number];
  const size_t rows = tile_of(tree_.values[task.target].axes, axes_).dims[0];
  TaskTile factor = factor_tile(task);
  if (factor.dims.size() != 2 || factor.dims[0] != rows)
    refuse(task.location,
           "the rows of a factor in registers must be declared before the summed axis");
  lay_as_accumulator(factor);
  const ValueId value = full(body(task.body, number, factor), factor, left.dtype);
  return is_zero_beyond(task, number) ? value : without_tail(value, task.over, factor, 0);
}

// Whether a factor of a dot needs no mask beyond the end of the summed axis. There the other factor
// is 0, because it is copied; this factor must be finite. The copies of plain programs are 0, and
// so is what another task has made for this. What is computed here from sums or from what is loaded
// may be anything (exp(0 - m) is infinite if m is low enough), and so may sums of another dot, of
// an infinite row times the zeros there.
bool TreeEmitter::is_zero_beyond(const LoopTask& task, uint32_t result) const {
  return std::ranges::all_of(part_of(task.body, result).steps, [&](const LoopStep& s) {
    const bool converts = s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::convert;
    const bool reads_zero = s.kind == LoopStep::Kind::Read &&
                            (!tree_.roles || !chips_.contains(s.source)) &&
                            task_at(tree_, maker_of(tree_, s.source)).kind != LoopTask::Kind::Dot;
    return reads_zero || converts;
  });
}

void TreeEmitter::start_dot(const LoopTask& task, ValueId factor) {
  TaskTile tile = tile_of(tree_.values[task.target].axes, axes_);
  if (tile.dims.size() != 2)
    refuse(task.location, "the result of a wgmma must be a tile of two axes");
  lay_as_accumulator(tile);
  StartDotOp dot;
  size_t rows = tile.dims[0], columns = kNone;
  bool a_last = true;
  const size_t first = task.swap ? 1 : 0;
  const LoopStep& left = task.body.steps[task.body.results[first]];
  const bool from_chip = left.kind == LoopStep::Kind::Read && chips_.contains(left.source);
  if (from_chip) {
    std::tie(dot.a_window, a_last) = factor_window(task, first, rows);
  } else {
    dot.a = factor ? factor : left_factor(task);
  }
  const auto [b, b_last] = factor_window(task, 1 - first, columns);
  if (tile.dims != std::vector<size_t>{rows, columns})
    refuse(task.location,
           "the rows of a wgmma must be declared before its columns, and both must be the axes of "
           "the value");
  const bool carried = states_.contains(task.target);
  const ValueType type{body_dtype(task), 1, tile.extents};
  dot.b_window = b;
  dot.contract_a = a_last ? 1 : 0;
  dot.contract_b = b_last ? 1 : 0;
  dot.tf32 = task.tf32;
  // The sum begins anew in the first turn of the loops that carry it.
  dot.fresh = true;
  if (carried) {
    dot.c = states_.at(task.target);
    for (size_t i = state_depth_.at(task.target); i < counters_.size(); ++i) {
      const Expr& index = counters_[i].index;
      if (index.range().min > 0) dot.fresh = false;
      if (!index.as_constant()) dot.fresh_when.push_back({index, IndexComparison::Kind::Eq, 0});
    }
    if (!dot.fresh) dot.fresh_when.clear();
  } else {
    const ValueId zero = builder_.constant(type, 0);
    lay_out(zero, tile);
    dot.c = zero;
  }
  if (group_turn_ && !group_turn_->taken) {
    builder_.append(TakeOp{token_, copy_, group_turn_->item}, {});
    group_turn_->taken = true;
  }
  const ValueId result = builder_.append(std::move(dot), {type}, "dot")[0];
  flying_[task.target] = ++started_;
  if (!from_chip) from_registers_.insert(task.target);
  if (carried)
    states_[task.target] = result;
  else
    define(task, result, tile);
}

// Waits until at most `pending` dots are in flight. All dots in flight get new names, and those
// that are complete leave the list. What only they read is free.
void TreeEmitter::wait(int64_t pending) {
  // From here on, the other group multiplies while this group continues with its results.
  if (group_turn_ && group_turn_->taken && !group_turn_->passed) {
    builder_.append(PassOp{token_, Expr(1) - copy_, group_turn_->item + copy_}, {});
    group_turn_->passed = true;
  }
  WaitDotOp wait{pending, {}};
  std::vector<ValueType> types;
  const auto name = [&](size_t value) -> ValueId& {
    const auto state = states_.find(value);
    return state != states_.end() ? state->second : tiles_of_.at(value).value;
  };
  std::vector<std::pair<int64_t, size_t>> order;
  for (const auto& [value, number] : flying_) order.emplace_back(number, value);
  std::sort(order.begin(), order.end());
  for (const auto& [number, value] : order) {
    wait.operands.emplace_back(name(value));
    types.push_back(code_[name(value)].type);
  }
  const auto results = builder_.append(std::move(wait), types, "sum");
  for (size_t i = 0; i < order.size(); ++i) {
    name(order[i].second) = results[i];
    if (order[i].first > started_ - pending) continue;
    flying_.erase(order[i].second);
    from_registers_.erase(order[i].second);
  }
  const int64_t done = started_ - pending;
  for (Pipe& pipe : pipes_)
    std::erase_if(pipe.readers, [&](int64_t reader) { return reader <= done; });
}

// Waits for a dot before its result is read.
void TreeEmitter::settle(size_t value) {
  const auto flying = flying_.find(value);
  if (flying == flying_.end()) return;
  wait(started_ - flying->second);
}

}  // namespace braze
