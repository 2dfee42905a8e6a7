// emit_boxes.cpp — in roles: results that leave as asynchronous boxes, and values that are kept on
// chip (E16).
#include <algorithm>

#include "compiler/loops/emit_p.h"
#include "ir/code/boxes.h"

namespace braze {

// Whether a stored tile can leave by asynchronous boxes: it consists of whole panels, the rows of
// its tensor begin where boxes may begin, and a tail is clipped by the end of the tensor.
bool TreeEmitter::moves_by_boxes(const LoopTask& task, const TaskTile& tile) const {
  constexpr int64_t kBytes = 16, kPanel = 128;
  constexpr size_t kMostRank = 5;
  const TensorType& type = tree_.tensors[task.target].type;
  const auto size = static_cast<int64_t>(size_of(type.dtype));
  if (tile.extents.size() != 2 || type.shape.rank() < 2 || type.shape.rank() > kMostRank ||
      tile.dims[1] == kNone)
    return false;
  // The columns must be the last dimension of the tensor. The rows are one other dimension, or
  // several of which they are digits.
  std::vector<Expr> at;
  for (const Expr& e : task.at) at.push_back(e.substitute(tile.index));
  const auto box = find_box(at, tile.extents);
  if (!box || box->extents.back() != tile.extents[1]) return false;
  for (const size_t axis : tile.dims) {
    if (axis == kNone || before_ends({axis}, tile).empty()) continue;
    bool ends = false;
    for (size_t d = 0; d < task.at.size(); ++d)
      ends |= task.at[d] == tree_.axes[axis].index() && type.shape[d] == tree_.axes[axis].extent;
    if (!ends) return false;
  }
  return tile.extents.back() * size % kPanel == 0 &&
         (type.shape[type.shape.rank() - 1] * size).is_multiple_of(kBytes);
}

// Stores a tile through a buffer, from which the store runs while the next tile is made. If a role
// stores more than one tile, two buffers alternate.
void TreeEmitter::store_through_chip(const LoopTask& task, ValueId value, const TaskTile& tile) {
  const bool several = !counters_.empty();
  std::vector<int64_t> extents = tile.extents;
  if (several) extents.insert(extents.begin(), 2);
  OnChip chip{own_buffer(task, "out", tree_.tensors[task.target].type.dtype, std::move(extents)),
              std::nullopt,
              {},
              {}};
  std::vector<Expr> offsets(tile.extents.size() + several, Expr(0));
  if (several) {
    offsets[0] = mod(item(), 2);
    chip.memory = window(chip, offsets, tile.extents);
    builder_.append(WaitStoreOp{2 * boxes_beside() - 1}, {});
  }
  std::vector<Expr> positions;
  for (size_t d = 0; d < tile.extents.size(); ++d)
    positions.push_back(position_symbol('d', d, tile.extents[d]));
  builder_.store(value, chip.memory, positions);
  if (!several) chip.memory = window(chip, offsets, tile.extents);
  send_box(task, chip, tile);
}

// A buffer on chip that belongs to the role and to this task.
MemoryId TreeEmitter::own_buffer(const LoopTask& task, std::string_view name, DType dtype,
                                 std::vector<int64_t> extents) {
  constexpr int64_t kSwizzle = 128;
  const auto [found, added] = buffers_.try_emplace(&task);
  if (!added) return found->second;
  builder_.enter(front_);
  found->second = builder_.buffer(name, dtype, std::move(extents));
  builder_.leave();
  code_.memories[found->second.index].swizzle = kSwizzle;
  return found->second;
}

void TreeEmitter::send_box(const LoopTask& task, const OnChip& chip, const TaskTile& tile) {
  const auto at = substituted(task.at, tile);
  StartStoreOp start{chip.memory, MemoryId(task.target), at};
  start.guard = clipped(task.at, at, tree_.tensors[task.target].type.shape);
  builder_.append(std::move(start), {});
}

// The number of stores in the current region that leave as boxes, one after the other.
int64_t TreeEmitter::boxes_beside() const {
  return std::ranges::count_if(*path_.back().first, [&](const LoopItem& item) {
    const auto* task = std::get_if<LoopTask>(&item);
    return task && task->kind == LoopTask::Kind::Store &&
           moves_by_boxes(*task, tile_of(axes_of(*task), axes_));
  });
}

// Opens a buffer for each store of which the turns of the loop make parts. They fill it, and it is
// stored after the loop.
void TreeEmitter::open_boxes(const Loop& loop) {
  bool waited = false;
  for (const LoopItem& item : loop.body) {
    const auto* task = std::get_if<LoopTask>(&item);
    if (!task || task->kind != LoopTask::Kind::Store || is_static(loop)) continue;
    const TaskTile tile = tile_of(axes_of(*task), axes_);
    const bool parts = std::ranges::count(tile.dims, loop.levels[0].axis) > 0;
    if (!parts || !moves_by_boxes(*task, tile)) continue;
    if (!waited) builder_.append(WaitStoreOp{0}, {});
    waited = true;
    const OnChip buffer{
        own_buffer(*task, "out", tree_.tensors[task->target].type.dtype, tile.extents),
        std::nullopt,
        {},
        {}};
    OnChip chip{
        window(buffer, std::vector<Expr>(tile.dims.size(), Expr(0)), tile.extents), {}, {}, {}};
    for (const size_t axis : tile.dims) chip.begin.push_back(axes_[axis].begin);
    gathered_.emplace(task, Gathered{std::move(chip), tile});
  }
}

void TreeEmitter::send_boxes(const Loop& loop) {
  for (const LoopItem& item : loop.body) {
    const auto found = gathered_.find(std::get_if<LoopTask>(&item));
    if (found == gathered_.end()) continue;
    send_box(*found->first, found->second.chip, found->second.tile);
    gathered_.erase(found);
  }
}

// Moves loads that a loop at run time repeats to the front of the region that holds the loop, where
// they run while threads wait for each other. The registers for it are spent only on loads of one
// number for each row, and on loads of stores.
void TreeEmitter::raise_loads(const LoopRegion& items) {
  for (const LoopItem& item : items) {
    const auto* box = std::get_if<Box<Loop>>(&item);
    if (!box || (*box)->on != Machine::None || (*box)->levels.size() != 1) continue;
    const Loop& loop = **box;
    const LoopLevel level = loop.levels[0];
    if (is_static(loop)) continue;
    for (const LoopItem& inner : loop.body) {
      const auto* task = std::get_if<LoopTask>(&inner);
      if (!task || task->kind == LoopTask::Kind::Stage) continue;
      const bool stores = task->kind == LoopTask::Kind::Store;
      in_turn(level, axes_[level.axis].begin, /*shared=*/false, [&] {
        TaskTile tile =
            is_asynchronous(*task) ? factor_tile(*task) : tile_of(axes_of(*task), axes_);
        lay_as_accumulator(tile);
        if (!tile.layout) return;
        for (const LoopStep& s : task->body.steps) {
          const auto varies = [&](const Expr& e) {
            const auto symbols = e.symbols();
            const auto along = [&](size_t axis) { return axis != kNone && e.uses(name_of(axis)); };
            return e.uses(name_of(level.axis)) ||
                   (!stores && std::any_of(tile.dims.begin() + 1, tile.dims.end(), along)) ||
                   std::ranges::any_of(symbols, [](const std::string& name) {
                     return loaded_step(name).has_value();
                   });
          };
          if (s.kind != LoopStep::Kind::Load || !s.conditions.empty() ||
              tree_.tensors[s.source].mode != Mode::In || std::ranges::any_of(s.at, varies))
            continue;
          LoopStep here = s;
          here.at = substituted(s.at, tile);
          const auto known = [&](const RaisedLoad& r) {
            return r.step == here && r.extents == tile.extents;
          };
          if (std::ranges::none_of(raised_, known))
            raised_.push_back({std::move(here), tile.extents, load(s, tile).value});
        }
      });
    }
  }
}

// Puts a tile into a buffer. A turn at run time selects its part of a tile in registers by
// comparing numbers.
void TreeEmitter::keep_on_chip(const LoopTask& task) {
  const LoopValue& kept = tree_.values[task.target];
  TaskTile whole = tile_of(kept.axes, axes_);
  const MemoryId memory = own_buffer(task, kept.name, kept.dtype, whole.extents);
  OnChip chip{memory, std::nullopt, {}, {}};
  for (const size_t axis : kept.axes) {
    chip.begin.push_back(axes_[axis].begin);
    chip.extents.push_back(extent_of(axis, axes_));
  }
  const auto fill = [&] {
    TaskTile tile = tile_of(axes_of(task), axes_);
    lay_as_accumulator(tile);
    const ValueId value = full(body(task.body, task.body.results[0], tile), tile, kept.dtype);
    std::vector<Expr> at;
    for (const size_t axis : kept.axes)
      for (const int64_t d : positions({axis}, tile))
        at.push_back(
            position_symbol('d', static_cast<size_t>(d), tile.extents[static_cast<size_t>(d)]));
    builder_.store(value, memory, std::move(at));
  };
  const std::function<void(size_t)> choose = [&](size_t n) {
    if (n == runtime_turns_.size()) return fill();
    const RuntimeTurn now = runtime_turns_[n];
    if (!reads_registers(task, now.level.axis)) return choose(n + 1);
    for_static("part", now.count, [&](const Expr& part) {
      builder_.if_then({{now.index, IndexComparison::Kind::Eq, part}}, [&] {
        in_turn(now.level, now.low + part * Expr(now.level.turn), /*shared=*/false,
                [&] { choose(n + 1); });
      });
    });
  };
  choose(0);
  chips_[task.target] = std::move(chip);
  forget();
}

}  // namespace braze
