// emit_kept.cpp — values that a plain program keeps in memory (E18): in buffers on chip, which
// other loops of an instance read, and in workspaces, which other phases read.
#include <algorithm>
#include <numeric>

#include "compiler/loops/emit_p.h"
#include "compiler/loops/steps/places.h"
#include "ir/support/text.h"

namespace braze {

// --- On chip ------------------------------------------------------------------------------------

namespace {

constexpr int64_t kLineBytes = 64;  // the size of a cache line
constexpr int64_t kMostRoom = int64_t{1} << 30;

// The regions around a task, the outermost first.
std::vector<const LoopRegion*> regions_of(const LoopRegion& phase,
                                          const std::vector<const Loop*>& around) {
  std::vector<const LoopRegion*> out = {&phase};
  for (const Loop* loop : around) out.push_back(&loop->body);
  return out;
}

}  // namespace

// Notes for each value in memory where it lives: in the innermost region that holds its task and
// all its readers. The sums of a placed reduction are always in memory.
void TreeEmitter::plan_kept(const LoopRegion& phase) {
  born_.clear();
  if (tree_.roles) return;
  std::map<size_t, std::vector<const LoopRegion*>> lives;  // by value: regions, the outermost first
  const auto note = [&](size_t value, const std::vector<const LoopRegion*>& regions) {
    const auto [found, added] = lives.try_emplace(value, regions);
    auto& known = found->second;
    const auto [end, ignored] = std::ranges::mismatch(known, regions);
    if (!added) known.erase(end, known.end());
  };
  for_each_task(phase, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    const auto regions = regions_of(phase, around);
    // A value of a ring lives in the slots of the ring.
    if (!around.empty() && around.back()->ring > 0 && is_made_ahead(tree_, task)) return;
    const bool kept = task.kind == LoopTask::Kind::Place ||
                      (task.makes_value() && task.kind != LoopTask::Kind::Stage &&
                       tree_.values[task.target].storage == Storage::Chip);
    if (kept) {
      // A state lives in the region that holds the loop which carries it.
      auto outside = regions;
      for (size_t i = around.size(); i-- > 0;)
        if (runs_over_any(*around[i], task.over)) outside.resize(i + 1);
      note(task.target, outside);
      if (auto slabs = slabs_of(task, around); !slabs.empty()) slabs_[task.target] = slabs;
    }
    for (const LoopBody* body : {&task.body, task.rescale ? &*task.rescale : nullptr})
      for (size_t i = 0; body && i < body->steps.size(); ++i)
        if (const LoopStep& s = body->steps[i];
            s.kind == LoopStep::Kind::Read && lives.contains(s.source))
          note(s.source, regions);
  });
  for (const auto& [value, regions] : lives) born_[regions.back()].push_back(value);
}

// How many indices of each axis the buffer of a value must hold. Whole tiles are stored and read,
// so there must be room for all of the last one.
std::vector<int64_t> TreeEmitter::room_of(size_t value, const LoopRegion& items) const {
  const LoopValue& kept = tree_.values[value];
  std::vector<int64_t> out;
  for (const size_t axis : kept.axes) {
    int64_t extent = extent_of(axis, axes_);
    if (extent == 0) extent = tree_.axes[axis].extent.range().max;
    if (extent > kMostRoom)
      refuse({}, fmt::format("%{} is kept on chip, but {} may be of any length there", kept.name,
                             name_of(axis)));
    int64_t room = extent;
    for_each_task(items, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
      const bool makes = task.makes_value() && task.target == value;
      if (!makes && !reads(task.body, value)) return;
      int64_t turn = 1;
      for (const Loop* loop : around)
        for (const LoopLevel& level : loop->levels)
          if (level.axis == axis) turn = level.turn;
      room = std::max(room, (extent + turn - 1) / turn * turn);
    });
    out.push_back(room);
  }
  return out;
}

// Declares the buffers of the values that live in a region. On a CPU, rows are an odd number of
// cache lines apart, so that they do not fall into the same sets of the cache.
void TreeEmitter::declare_kept(const LoopRegion& items) {
  const auto born = born_.find(&items);
  if (born == born_.end()) return;
  for (const size_t value : born->second) {
    const LoopValue& kept = tree_.values[value];
    if (kept.storage == Storage::Result) continue;
    const LoopTask& maker = task_at(tree_, maker_of(tree_, value));
    const bool placed = maker.kind == LoopTask::Kind::Place;
    const DType dtype = placed                   ? sums_dtype(maker)
                        : slabs_.contains(value) ? state_dtype(maker)
                                                 : kept.dtype;
    OnChip chip{.memory = {}, .item = {}, .begin = {}, .extents = room_of(value, items)};
    chip.order.resize(kept.axes.size());
    std::iota(chip.order.begin(), chip.order.end(), size_t{0});
    for (const size_t axis : kept.axes) chip.begin.push_back(axes_[axis].begin);
    // Of a dot's sums, vectors are stored and loaded, which lie along the last dimension of tiles.
    if (maker.kind == LoopTask::Kind::Dot)
      std::ranges::sort(chip.order, {}, [&](size_t i) { return kept.axes[i]; });
    std::vector<int64_t> extents;
    for (const size_t i : chip.order)
      if (chip.extents[i] > 1) extents.push_back(chip.extents[i]);
    if (extents.empty()) extents.push_back(1);
    const int64_t line = kLineBytes / static_cast<int64_t>(size_of(dtype));
    if (kept.panel > 0 && chip.extents.back() > 1) {
      chip.panel = kept.panel;
      extents.insert(extents.begin(), (extents.back() + kept.panel - 1) / kept.panel);
      extents.back() = kept.panel;
    } else if (int64_t& row = extents.back();
               code_.warps == 0 && !placed && extents.size() > 1 && row > line)
      row = ((row + line - 1) / line | 1) * line;
    chip.memory = builder_.buffer(kept.name, dtype, extents);
    kept_.insert(value);
    chips_[value] = std::move(chip);
  }
}

// The coordinates of an element: its index, or with panels the panel and the index in it.
std::vector<Expr> TreeEmitter::in_panels(std::vector<Expr> at, int64_t panel) {
  if (panel == 0) return at;
  const Expr last = at.back();
  at.back() = mod(last, panel);
  at.insert(at.begin(), floordiv(last, panel));
  return at;
}

// The coordinates of an element of a value in its buffer.
std::vector<Expr> TreeEmitter::place_in_buffer(const OnChip& chip,
                                               const std::vector<Expr>& at) const {
  std::vector<Expr> out;
  if (chip.slot) out.push_back(*chip.slot);
  for (size_t n = 0; n < at.size(); ++n) {
    const size_t i = chip.order.empty() ? n : chip.order[n];
    if (chip.extents[i] > 1) out.push_back(at[i] - chip.begin[i]);
  }
  if (out.empty() && !code_[chip.memory].shape.empty()) out.emplace_back(0);
  return in_panels(std::move(out), chip.panel);
}

// The coordinates of the tile of a value in its buffer.
std::vector<Expr> TreeEmitter::place_in_buffer(size_t value, const TaskTile& tile) const {
  std::vector<Expr> at;
  for (const size_t axis : tree_.values[value].axes) at.push_back(tile.index.at(name_of(axis)));
  return place_in_buffer(chips_.at(value), at);
}

// The tile of a task whose value is stored to panels. Vectors must run along the last axis of the
// value, so a tile in which they run along another one is transposed.
TreeEmitter::TaskTile TreeEmitter::along_panels(const LoopValue& kept, const TaskTile& tile,
                                                ValueId& value) {
  TaskTile own = tile;
  if (kept.panel == 0 || tile.dims.size() != 2 || tile.dims[0] != kept.axes.back()) return own;
  std::swap(own.dims[0], own.dims[1]);
  std::swap(own.extents[0], own.extents[1]);
  own.index = tile_of({}, axes_).index;
  for (size_t d = 0; d < own.dims.size(); ++d)
    own.index[name_of(own.dims[d])] += position_symbol('d', d, own.extents[d]);
  value = builder_.view(MovementKind::Transpose, value, {kept.dtype, 1, own.extents}, {1, 0});
  return own;
}

// Stores a part of a value to its buffer. The part may reach beyond the end of its axis, but not
// beyond the buffer. For tasks of the same turn it remains in registers, too.
void TreeEmitter::keep_in_buffer(const LoopTask& task, ValueId value, const TaskTile& tile) {
  value = rounded(value, tree_.values[task.target].dtype);
  const TaskTile own = along_panels(tree_.values[task.target], tile, value);
  builder_.store(value, chips_.at(task.target).memory, place_in_buffer(task.target, own));
  fresh_.push_back(task.target);
  forget_reads(task.target);
}

// Whether registers hold what is read: a running total, or the tile that this turn has made.
bool TreeEmitter::has_in_registers(const LoopStep& s) const {
  if (states_.contains(s.source)) return true;
  const auto tile = tiles_of_.find(s.source);
  if (tile == tiles_of_.end()) return false;
  const LoopValue& value = tree_.values[s.source];
  for (size_t i = 0; i < value.axes.size(); ++i)
    if (!(s.at[i] == tree_.axes[value.axes[i]].index())) return false;
  const auto& [made, dims, begin, digits] = tile->second;
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != kNone && (extent_of(dims[d], axes_) != code_[made].type.extents[d] ||
                             !(axes_[dims[d]].begin == begin[d])))
      return false;
  return true;
}

// Whether the loop makes or reads parts, along the axis, of a value that is kept around it.
bool TreeEmitter::takes_kept_parts(const Loop& loop, size_t axis) const {
  return std::ranges::any_of(kept_, [&](size_t value) {
    const auto& axes = tree_.values[value].axes;
    if (std::ranges::count(axes, axis) == 0) return false;
    bool out = read_in(loop.body, value);
    for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
      out |= task.makes_value() && task.target == value;
    });
    return out;
  });
}

// Whether the loop only fills buffers. It then fills them to their ends; beyond the end of an axis,
// an element that exists is stored again.
bool TreeEmitter::fills_buffers(const Loop& loop) const {
  bool out = true;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    out = out && task.kind == LoopTask::Kind::Compute && kept_.contains(task.target);
  });
  return out;
}

// Stores zeros to what is kept of the dots in a loop that leaves out turns beyond the end of its
// axis. Their readers take whole tiles.
void TreeEmitter::fill_kept(const Loop& loop) {
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    if (task.kind != LoopTask::Kind::Dot || !kept_.contains(task.target) ||
        in_slabs_.contains(task.target))
      return;
    const MemoryId memory = chips_.at(task.target).memory;
    const TaskTile tile = tile_of(tree_.values[task.target].axes, axes_);
    const ValueId zeros = builder_.constant({code_[memory].dtype, 1, tile.extents}, 0);
    builder_.store(zeros, memory, place_in_buffer(task.target, tile));
  });
}

ValueId TreeEmitter::read_chip(const OnChip& from, const LoopStep& s, const TaskTile& tile) {
  const auto place = [&](const TaskTile& along) {
    return place_in_buffer(from, substituted(s.at, along));
  };
  const LoopValue& value_read = tree_.values[s.source];
  if (!from.item && !value_read.axes.empty()) {
    const size_t last = value_read.axes.back();
    if (s.at.back() == tree_.axes[last].index())
      if (const auto part = part_of_steps(from, last, place, tile)) return *part;
  }
  const std::vector<Expr> at = place(tile);
  MemoryId memory = from.memory;
  if (from.item) {
    std::vector<int64_t> extents;
    for (const int64_t extent : from.extents)
      if (extent > 1) extents.push_back(extent);
    memory = window(from, std::vector<Expr>(extents.size(), Expr(0)), extents);
  }
  const ValueId value = builder_.load(memory, at, type_along(at, tile, code_[memory].dtype));
  lay_out(value, tile);
  return value;
}

// --- In workspaces ------------------------------------------------------------------------------

// Stores a value that later phases read to a workspace in device memory.
void TreeEmitter::keep_in_workspace(const LoopTask& task, ValueId value, const TaskTile& tile) {
  const LoopValue& kept = tree_.values[task.target];
  const auto [found, added] = workspaces_.try_emplace(task.target);
  if (added) {
    std::vector<Expr> shape;
    for (const size_t axis : kept.axes) shape.push_back(tree_.axes[axis].extent);
    if (kept.panel > 0) {
      shape.insert(shape.begin(), ceildiv(shape.back(), kept.panel));
      shape.back() = kept.panel;
    }
    found->second = builder_.add_memory({.name = kept.name,
                                         .space = MemorySpace::Workspace,
                                         .mode = Mode::InOut,
                                         .dtype = kept.dtype,
                                         .shape = std::move(shape),
                                         .align = kept.panel > 0 ? kLineBytes : 0});
  }
  value = rounded(value, kept.dtype);
  const TaskTile own = along_panels(kept, tile, value);
  std::vector<Expr> at;
  for (const size_t axis : kept.axes) at.push_back(own.index.at(name_of(axis)));
  // The last panel has room for all of its indices, so its end needs no mask.
  std::vector<size_t> ends;
  for (const size_t axis : own.dims)
    if (axis != kNone && (kept.panel == 0 || axis != kept.axes.back())) ends.push_back(axis);
  builder_.store(value, found->second, in_panels(std::move(at), kept.panel),
                 {before_ends(ends, own), {}});
}

ValueId TreeEmitter::read_workspace(MemoryId memory, const LoopStep& s, const TaskTile& tile) {
  const LoopValue& kept = tree_.values[s.source];
  const auto at = substituted(s.at, tile);
  const ValueType type = type_along(at, tile, code_[memory].dtype);
  std::vector<size_t> own = axes_along(type, tile);
  if (kept.panel > 0) std::erase(own, kept.axes.back());
  const ValueId value =
      builder_.load(memory, in_panels(at, kept.panel), type, {before_ends(own, tile), {}});
  lay_out(value, tile);
  return value;
}

}  // namespace braze
