// emit_ring.cpp — streams of plain programs whose factors are made ahead, in a ring of slots on
// chip. While the threads of a block multiply the contents of one slot, they fetch what later turns
// need. Copies bypass the registers, and begin as soon as the first step of a turn has read its
// slot. Computed factors wait in registers until the turn has ended.
#include <algorithm>
#include <utility>

#include "compiler/loops/emit_p.h"
#include "compiler/loops/steps/marks.h"
#include "compiler/loops/steps/places.h"
#include "ir/code/dot_layouts.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The dimension along which a thread has neighbours. If a thread has one element, that of a warp.
size_t fastest(const Layout& layout) {
  for (const Resource resource : {Resource::Register, Resource::Lane})
    for (size_t d = 0; d < layout.rank(); ++d) {
      const std::vector<Digit>& digits = layout.axes[d];
      if (!digits.empty() && digits.back().resource == resource && digits.back().stride == 1)
        return d;
    }
  return layout.rank() - 1;
}

bool has_matrices(const Loop& loop) {
  bool out = false;
  for_each_task(loop.body,
                [&](const LoopTask& task, const auto&) { out |= task.unit == Unit::Mma; });
  return out;
}

// Whether dots multiply the tiles of whole turns.
bool multiplies_turns(const Loop& loop) {
  return has_matrices(loop) || std::ranges::any_of(loop.body, [](const LoopItem& item) {
           const auto* task = std::get_if<LoopTask>(&item);
           return task && task->unit == Unit::Fma;
         });
}

}  // namespace

// The axes of a value that have several indices in a turn. The axis along which threads fetch
// neighbours comes last.
std::vector<size_t> TreeEmitter::fetched_axes(size_t value) const {
  const LoopValue& kept = tree_.values[value];
  std::vector<size_t> out;
  for (size_t axis = 0; axis < tree_.axes.size(); ++axis)
    if (contains(kept.axes, axis) && extent_of(axis, axes_) != 1) out.push_back(axis);
  if (!kept.layout || out.empty()) return out;
  const auto last = out.begin() + static_cast<std::ptrdiff_t>(fastest(kept.layout->layout));
  std::rotate(last, last + 1, out.end());
  return out;
}

// The tile in which factor `number` of a ring is fetched. The tiles of different factors have
// different ranks, because plain programs find layouts by extents and theirs differ.
TreeEmitter::TaskTile TreeEmitter::fetched_tile(const LoopTask& task, size_t number) {
  TaskTile tile = tile_of({}, axes_);
  Layout layout;
  const auto add = [&](size_t axis, int64_t extent, std::vector<Digit> digits) {
    tile.dims.push_back(axis);
    tile.extents.push_back(extent);
    tile.digits.push_back({.extent = extent});
    layout.axes.push_back(std::move(digits));
  };
  for (size_t i = 0; i <= number; ++i) add(kNone, 1, {});
  const auto order = fetched_axes(task.target);
  const auto& bound = tree_.values[task.target].layout;
  for (const size_t axis : order) {
    const int64_t extent = extent_of(axis, axes_);
    tile.index[name_of(axis)] += position_symbol('d', tile.dims.size(), extent);
    const auto d = std::ranges::count_if(order, [&](size_t other) { return other < axis; });
    add(axis, extent, bound ? bound->layout.axes[static_cast<size_t>(d)] : std::vector<Digit>());
  }
  if (bound) note_layout(layout);
  return tile;
}

// Declares the slots of a factor. The rows that a warp accesses together begin in different banks.
void TreeEmitter::declare_slots(const LoopTask& task, const Loop& loop) {
  const LoopValue& value = tree_.values[task.target];
  OnChip chip;
  std::vector<int64_t> extents = {loop.ring};
  for (const size_t axis : value.axes) {
    chip.begin.push_back(axes_[axis].begin);
    chip.extents.push_back(extent_of(axis, axes_));
    if (chip.extents.back() > 1) extents.push_back(chip.extents.back());
  }
  bool along = false;  // whether the rows of a slot run along the summed axis
  for_each_task(loop.body, [&](const LoopTask& reader, const auto&) {
    along |= reads(reader.body, task.target) && !value.axes.empty() &&
             contains(reader.over, value.axes.back());
  });
  const auto order = fetched_axes(task.target);
  const bool turned = !order.empty() && order.back() != value.axes.back();
  const int64_t access = kAccessBytes / static_cast<int64_t>(size_of(value.dtype));
  if (extents.size() > 2) {
    if (const int64_t padding = row_padding(task.target))
      extents.back() += padding;
    else if (along || turned)
      // Eight rows of four elements, as lanes of a warp read for matrices of f32 and f64.
      extents.back() += has_matrices(loop) ? std::max<int64_t>(access, 4) : access;
    else if (has_matrices(loop))
      extents.back() += 2 * access;
  }
  chip.memory = builder_.buffer(value.name, value.dtype, extents);
  chip.slot = 0;
  chips_[task.target] = std::move(chip);
  kept_.insert(task.target);
}

void TreeEmitter::ring(const Stream& stream) {
  const auto [axis, length] = stream.loop.levels[0];
  Ring ring{.slots = stream.loop.ring, .zeros = multiplies_turns(stream.loop), .summed = {axis}};
  ring.exact = tree_.axes[axis].extent.is_multiple_of(length) &&
               stream.low.is_multiple_of(length) && stream.turns.range().min >= 1;
  // Tiles of whole turns multiply the zeros beyond the end. Other sums stop at the end.
  const bool whole = ring.exact || ring.zeros;
  // Whether nothing is left behind the whole turns.
  const bool ends = stream.low.is_multiple_of(length) && stream.high.is_multiple_of(length);
  if ((stream.behind || stream.loop.picks) && !whole && !ends)
    refuse(stream.loop.location,
           "a ring whose middle is kept whole must end with a whole turn, or multiply "
           "tiles of whole turns");
  // In the rest of a chunk, loops inside know where the chunk ends, but tiles do not.
  const auto in_tile = [&](const LoopItem& item) {
    const auto* task = std::get_if<LoopTask>(&item);
    return task && !is_made_ahead(tree_, *task) && length > 1 &&
           tile_axes(tree_, *task).contains(axis);
  };
  if (!whole && !ends && stream.loop.bounds && std::ranges::any_of(stream.loop.body, in_tile))
    refuse(stream.loop.location,
           "a ring within bounds must end with a whole turn if its turns are tiles");
  ring.turns = builder_.let(
      "turns", whole ? stream.turns : floordiv(max(stream.high - stream.low, 0), length));
  for (const LoopItem& item : stream.loop.body)
    if (const auto* task = std::get_if<LoopTask>(&item); task && is_made_ahead(tree_, *task))
      ring.tasks.push_back(task);
  in_turn(stream.loop.levels[0], stream.low, /*shared=*/false, [&] {
    for (const LoopTask* task : ring.tasks) declare_slots(*task, stream.loop);
    declare_factors(stream.loop);
  });
  for (int64_t n = 0; n + 1 < ring.slots; ++n) {
    put(stream, ring, n, fetch(stream, ring, n));
    copy(stream, ring, n);
  }
  ring.ahead = dot_ahead(stream, ring);
  if (ring.ahead.dot)
    in_turn(stream.loop.levels[0], stream.low, /*shared=*/false, [&] { load_ahead(ring, 0, 0); });
  Ring* around = std::exchange(ring_, &ring);
  // First come the turns in which a condition is not decided, and then those in which it holds.
  const Expr cut = undecided(stream);
  const bool cuts = !cut.is_constant(0);
  if (cuts) turns(stream, 0, cut);
  in_decided(stream, cuts, [&] { turns(stream, cut, ring.turns); });
  if (!whole && !ends) {
    ring.rest = true;
    turn(stream, ring.turns);
  }
  ring_ = around;
  factors_.clear();
  for (const LoopTask* task : ring.tasks) {
    chips_.erase(task->target);
    kept_.erase(task->target);
  }
}

// Makes one turn of a ring: its slot is read, and the slot of a later turn is filled.
void TreeEmitter::ring_turn(const Stream& stream, const Expr& index) {
  Ring& ring = *ring_;
  const size_t axis = stream.loop.levels[0].axis;
  const Expr next = index + (ring.slots - 1);
  std::vector<ValueId> fetched;
  if (!ring.rest) {
    fetched = fetch(stream, ring, next);
    const bool copies = std::ranges::any_of(
        ring.tasks, [](const LoopTask* task) { return task->kind == LoopTask::Kind::Stage; });
    if (copies) ring.after_step = [&, next] { copy(stream, ring, next); };
    ring.scope = builder_.scope();
  }
  for (const LoopTask* task : ring.tasks) {
    OnChip& chip = chips_.at(task->target);
    chip.slot = mod(index, ring.slots);
    const auto& axes = tree_.values[task->target].axes;
    for (size_t i = 0; i < axes.size(); ++i) chip.begin[i] = axes_[axes[i]].begin;
  }
  ring.ahead.turn = index;
  ring.ahead.step = 0;
  if (ring.rest) axes_[axis].end = stream.high;
  const size_t decided = ring.decided = decided_.size();
  if (!ring.rest && (ring.exact || !ring.zeros)) decided_.push_back(before_end(tree_.axes[axis]));
  region(stream.loop.body);
  decided_.resize(decided);
  after_step();
  if (!ring.rest) put(stream, ring, next, fetched);
}

// Called after a step has read its slot. When the first step has, all threads have left the slot of
// the turn before, and copies into that slot may begin. Steps in an inner loop do not count,
// because they are repeated.
void TreeEmitter::after_step() {
  if (!ring_ || !ring_->after_step || ring_->scope != builder_.scope()) return;
  std::exchange(ring_->after_step, nullptr)();
}

// Runs `body` in turn `number` of the stream. Numbers beyond the last turn stand for the last turn
// if all turns are whole, or if the stream runs down; otherwise they fetch nothing.
void TreeEmitter::in_turn_of(const Stream& stream, const Ring& ring, const Expr& number,
                             const std::function<void()>& body) {
  const auto [axis, length] = stream.loop.levels[0];
  const bool last = ring.exact || stream.loop.down || stream.behind || stream.loop.picks;
  const Expr turn = last ? min(number, ring.turns - 1) : number;
  Expr begin = begin_of(stream, stream.loop.picks ? max(0, turn) : turn);
  // A turn of one index has no tile along the axis that could be masked. Beyond the end it stands
  // for the last index.
  const Expr& extent = tree_.axes[axis].extent;
  if (!ring.exact && length == 1) {
    if (extent.range().min < 1)
      refuse(stream.loop.location, "a ring in turns of one index must not be empty");
    begin = min(begin, extent - 1);
  }
  in_turn(stream.loop.levels[0], begin, /*shared=*/true, [&] {
    axes_[axis].whole = ring.exact || length == 1;
    axes_[axis].early = stream.loop.bounds && !proves_at_most(0, begin);
    // Conditions that hold in the turn that multiplies need not hold in this one.
    const std::vector<IndexComparison> decided = decided_;
    decided_.resize(std::min(ring.decided, decided.size()));
    forget();
    body();
    forget();
    decided_ = decided;
  });
}

ValueId TreeEmitter::fetched(const LoopTask& task, const TaskTile& tile, const Ring& ring) {
  const LoopStep& result = task.body.steps[task.body.results[0]];
  const ValueId value =
      full(body(task.body, task.body.results[0], tile), tile, tree_.values[task.target].dtype);
  if (!ring.zeros || (result.kind == LoopStep::Kind::Load && result.otherwise.value_or(0) == 0))
    return value;
  return without_tail(value, ring.summed, tile, 0);
}

// Fetches the computed factors of a turn into registers.
std::vector<ValueId> TreeEmitter::fetch(const Stream& stream, const Ring& ring,
                                        const Expr& number) {
  std::vector<ValueId> out(ring.tasks.size());
  for (size_t i = 0; i < out.size(); ++i)
    if (ring.tasks[i]->kind != LoopTask::Kind::Stage)
      in_turn_of(stream, ring, number,
                 [&] { out[i] = fetched(*ring.tasks[i], fetched_tile(*ring.tasks[i], i), ring); });
  return out;
}

void TreeEmitter::put(const LoopTask& task, ValueId value, const TaskTile& tile, const Expr& slot) {
  std::vector<Expr> at = {slot};
  for (const size_t axis : tree_.values[task.target].axes)
    for (const int64_t d : positions({axis}, tile))
      at.push_back(
          position_symbol('d', static_cast<size_t>(d), tile.extents[static_cast<size_t>(d)]));
  builder_.store(value, chips_.at(task.target).memory, std::move(at));
}

void TreeEmitter::put(const Stream& stream, const Ring& ring, const Expr& number,
                      const std::vector<ValueId>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (ring.tasks[i]->kind != LoopTask::Kind::Stage)
      in_turn_of(stream, ring, number, [&] {
        put(*ring.tasks[i], values[i], fetched_tile(*ring.tasks[i], i), mod(number, ring.slots));
      });
}

// Copies the factors of a turn that need no computation into their slot.
void TreeEmitter::copy(const Stream& stream, const Ring& ring, const Expr& number) {
  for (size_t i = 0; i < ring.tasks.size(); ++i)
    if (ring.tasks[i]->kind == LoopTask::Kind::Stage)
      in_turn_of(stream, ring, number, [&] {
        const TaskTile tile = fetched_tile(*ring.tasks[i], i);
        put(*ring.tasks[i], fetched(*ring.tasks[i], tile, ring), tile, mod(number, ring.slots));
      });
}

// --- Dots of what slots hold --------------------------------------------------------------------

// The dot whose factors are loaded one step ahead, while matrix units multiply those of the step
// before. It is the only task of the turns besides those that fill slots, it takes its 16-bit
// factors from slots as they are, and the slot of the next turn is full before the last step of
// this one.
TreeEmitter::Ring::Ahead TreeEmitter::dot_ahead(const Stream& stream, const Ring& ring) const {
  constexpr int64_t kLeastSlots = 3;
  if (!ring.zeros || ring.slots < kLeastSlots || stream.loop.partial > 0) return {};
  const Loop* steps = nullptr;
  for (const LoopItem& item : stream.loop.body) {
    const auto* task = std::get_if<LoopTask>(&item);
    if (task && is_made_ahead(tree_, *task)) continue;
    if (task || steps) return {};
    steps = &*std::get<Box<Loop>>(item);
  }
  const auto [summed, length] = stream.loop.levels[0];
  if (!steps || steps->body.size() != 1 || steps->levels.size() != 1 || steps->bounds) return {};
  const auto* dot = std::get_if<LoopTask>(&steps->body[0]);
  if (!dot || dot->unit != Unit::Mma || !is_half(warp_dot_dtype(*dot)) ||
      dot->over.back() != summed)
    return {};
  const int64_t depth = warp_dot_depth(*dot);
  if (steps->levels[0].axis != summed || steps->levels[0].turn != depth || length % depth != 0)
    return {};
  // Behind the last turn of a chunk stands what belongs to the next one.
  const bool ends = !stream.loop.bounds || (stream.low.is_multiple_of(length) &&
                                            bounds_of(stream.loop).second.is_multiple_of(length));
  if (!ends || axes_[summed].end || axes_[summed].turn % length != 0) return {};
  const auto in_slot = [&](uint32_t result) {
    const LoopStep& s = dot->body.steps[result];
    return s.kind == LoopStep::Kind::Read && contains(tree_.values[s.source].axes, summed) &&
           std::ranges::any_of(ring.tasks,
                               [&](const LoopTask* task) { return task->target == s.source; });
  };
  if (!std::ranges::all_of(dot->body.results, in_slot)) return {};
  return {.dot = dot, .turns = &stream.loop, .steps = length / depth};
}

// Loads the factors of a step. Steps beyond the end of the turn are those of the next turn.
void TreeEmitter::load_ahead(Ring& ring, const Expr& turn, int64_t step) {
  Ring::Ahead& ahead = ring.ahead;
  const LoopTask& dot = *ahead.dot;
  const size_t summed = dot.over.back();
  const int64_t depth = warp_dot_depth(dot);
  Expr begin;
  const auto enter = [&](const Expr& slot) {
    for (const uint32_t result : dot.body.results) {
      const size_t value = dot.body.steps[result].source;
      OnChip& chip = chips_.at(value);
      chip.slot = mod(slot, ring.slots);
      const auto& axes = tree_.values[value].axes;
      begin = chip.begin[static_cast<size_t>(std::ranges::find(axes, summed) - axes.begin())];
    }
  };
  enter(turn + step / ahead.steps);
  in_turn({summed, depth}, begin + step % ahead.steps * depth, /*shared=*/false, [&] {
    forget();
    for (const size_t d : {0, 1}) ahead.next[d] = matrix_factor(dot, d, 0, depth);
    forget();
  });
  enter(turn);
}

// The factors of the present step. Those of the step after it are loaded, and then copies into the
// slot that is free may begin.
std::array<ValueId, 2> TreeEmitter::take_ahead() {
  const auto factors = ring_->ahead.next;
  load_ahead(*ring_, ring_->ahead.turn, ++ring_->ahead.step);
  after_step();
  return factors;
}

// The factor of a dot that varies along an axis of the sums.
uint32_t TreeEmitter::result_along(const LoopTask& task, size_t axis) const {
  return task.body.results[axes_of_result(task, 0).contains(axis) ? 0 : 1];
}

// The factor along dimension d of the sums of a dot on the matrix units of warps, for `count`
// summed indices from `first` on.
ValueId TreeEmitter::matrix_factor(const LoopTask& task, size_t d, int64_t first, int64_t count) {
  const TaskTile own = tile_of(tree_.values[task.target].axes, axes_);
  const size_t summed = task.over.back();
  TaskTile tile = tile_of({}, axes_);
  tile.dims = d == 0 ? std::vector{own.dims[0], summed} : std::vector{summed, own.dims[1]};
  tile.index[name_of(summed)] += Expr(first);
  for (size_t k = 0; k < 2; ++k) {
    const int64_t extent = k == d ? own.extents[d] : count;
    tile.extents.push_back(extent);
    tile.digits.push_back({.extent = extent});
    tile.index[name_of(tile.dims[k])] += position_symbol('d', k, extent);
  }
  const uint32_t step = result_along(task, own.dims[d]);
  const DType dtype = warp_dot_dtype(task);
  const ValueOperand operand =
      converted(body(task.body, step, tile), task.body.steps[step].dtype, dtype);
  const ValueId whole = full(operand, tile, dtype);
  return is_zero_beyond(task, step) ? whole : without_tail(whole, task.over, tile, 0);
}

// A dot on the matrix units of warps, as many summed indices at once as an instruction takes. A
// factor that is made of tiles in registers is a tile of sums, of which each instruction takes a
// part; it lies in the threads in which it is needed.
void TreeEmitter::multiply_matrices(const LoopTask& task) {
  const LoopValue& value = tree_.values[task.target];
  const TaskTile own = tile_of(value.axes, axes_);
  if (own.dims.size() != 2 || !value.layout)
    refuse(task.location, "the sums of an mma must be a tile of two axes with a bound layout");
  const size_t summed = task.over.back();
  const int64_t length = extent_of(summed, axes_), depth = warp_dot_depth(task);
  // The number of threads along an axis of the sums.
  const auto threads = [&](size_t d) {
    int64_t out = 1;
    for (const Digit& digit : value.layout->layout.axes[d])
      if (is_thread_digit(digit)) out *= digit.extent;
    return out;
  };
  const auto layouts_of = [&](int64_t columns) {
    return warp_dot_layouts({own.extents[0], columns}, {threads(0), threads(1)},
                            value.layout->layout.axes[1].back().extent, depth);
  };
  const DType dtype = warp_dot_dtype(task);
  const DotLayouts layouts = layouts_of(own.extents[1]);
  if (!(layouts.sums == value.layout->layout) || length % depth != 0 ||
      std::ranges::any_of(
          task.over, [&](size_t axis) { return axis != summed && extent_of(axis, axes_) > 1; }))
    refuse(task.location, "the layout of the sums of an mma is not that of the unit");
  if (own.extents[0] == depth || own.extents[1] == depth)
    refuse(
        task.location,
        fmt::format("a plain program, which finds layouts by extents, cannot tell the sums of an "
                    "mma from its factors if they have {} rows or columns",
                    depth));
  for (const Layout& layout : {layouts.sums, layouts.left, layouts.right}) note_layout(layout);
  const bool carried = states_.contains(task.target);
  if (!carried) {  // values of whole rows lie as the rows of the sums do
    Layout rows{{layouts.sums.axes[0]}};
    renumber_registers(rows);
    note_layout(rows);
  }
  const auto result_of = [&](size_t d) { return result_along(task, own.dims[d]); };
  const auto factor = [&](size_t d, int64_t first, int64_t count) {
    return matrix_factor(task, d, first, count);
  };
  // The left factor if it is made of tiles in registers.
  ValueId left;
  if (makes_of_registers(task, result_of(0), summed)) {
    if (own.dims[0] > summed)
      refuse(task.location,
             "the rows of a factor in registers must be declared before the summed axis");
    note_layout(layouts_of(length).sums);
    left = factor(0, 0, length);
  }
  if (makes_of_registers(task, result_of(1), summed))
    refuse(task.location, "the factor of an mma with its columns must not be in registers");
  const auto part = [&](size_t d, int64_t first) {
    if (d == 0 && left) {
      const ValueType type{dtype, 1, {own.extents[0], depth}};
      return length == depth ? left : builder_.view(MovementKind::Slice, left, type, {0, first});
    }
    forget();
    const ValueId out = factor(d, first, depth);
    forget();
    return out;
  };
  const ValueType type{dtype == DType::F64 ? dtype : DType::F32, 1, own.extents};
  ValueId sum = carried ? states_.at(task.target) : builder_.constant(type, 0);
  const bool ahead = ring_ && ring_->ahead.dot == &task;
  for (int64_t first = 0; first < length; first += depth) {
    const auto [a, b] =
        ahead ? take_ahead() : std::array<ValueId, 2>{part(0, first), part(1, first)};
    TileDotOp dot{
        .a = a, .b = b, .c = sum, .a_buffer = {}, .b_buffer = {}, .tf32 = dtype == DType::F32};
    sum = builder_.append(std::move(dot), {code_[sum].type}, "dot")[0];
  }
  if (carried)
    states_.at(task.target) = sum;
  else
    define(task, sum, own);
}

// Whether a factor of a dot is made of tiles in registers that run along the summed axis.
bool TreeEmitter::makes_of_registers(const LoopTask& task, uint32_t result, size_t summed) const {
  return std::ranges::any_of(part_of(task.body, result).steps, [&](const LoopStep& s) {
    return s.kind == LoopStep::Kind::Read && !chips_.contains(s.source) &&
           contains(tree_.values[s.source].axes, summed);
  });
}

// The axes along which a factor of a dot varies.
std::set<size_t> TreeEmitter::axes_of_result(const LoopTask& task, size_t factor) const {
  LoopTask only = task;
  only.body.results = {task.body.results[factor]};
  remove_dead_steps(only.body);
  std::set<size_t> out;
  for (const LoopStep& s : only.body.steps)
    for (const Expr& e : s.at)
      for (size_t axis = 0; axis < tree_.axes.size(); ++axis)
        if (e.uses(name_of(axis))) out.insert(axis);
  return out;
}

// Elements that several steps of a dot read side by side in a slot: one load fetches all of them,
// and each step takes a part.
std::optional<ValueId> TreeEmitter::part_of_steps(
    const OnChip& from, size_t last, const std::function<std::vector<Expr>(const TaskTile&)>& place,
    const TaskTile& tile) {
  if (!steps_ || steps_->level.axis != last) return std::nullopt;
  const auto& [axis, begin, count] = steps_->level;
  TaskTile wide = tile;
  Layout layout = layout_of(code_.layouts, tile.extents, code_.warps * kWarpThreads);
  const auto add = [&](size_t dim, int64_t extent, std::vector<Digit> digits) {
    wide.dims.push_back(dim);
    wide.extents.push_back(extent);
    wide.digits.push_back({.extent = extent});
    layout.axes.push_back(std::move(digits));
  };
  // A part of the tile has the rows or the columns of the sums. Where the layout of another tile
  // fits it as well, further dimensions tell the two apart.
  const auto is_taken = [&] {
    TaskTile one = wide;
    one.extents.push_back(1);
    one.dims.push_back(axis);
    one.index[name_of(axis)] = begin;
    const ValueType part = type_along(place(one), one, code_[from.memory].dtype);
    const size_t found = first_that_fits(code_.layouts, part.extents);
    if (found == code_.layouts.size()) return false;
    for (size_t d = 0; d + 1 < part.extents.size(); ++d)
      if (part.extents[d] > 1 && code_.layouts[found].layout.axes[d] != layout.axes[d]) return true;
    return false;
  };
  while (is_taken()) add(kNone, 1, {});
  add(axis, count, {{Resource::Register, 1, count}});
  wide.index[name_of(axis)] = begin + position_symbol('d', wide.dims.size() - 1, count);
  const auto at = place(wide);
  const ValueType type = type_along(at, wide, code_[from.memory].dtype);
  // A thread may have neighbours along one dimension only.
  const auto has_neighbours = [](const std::vector<Digit>& digits) {
    return !digits.empty() && digits.back().resource == Resource::Register &&
           digits.back().stride == 1 && digits.back().extent > 1;
  };
  for (size_t d = 0; d < tile.dims.size(); ++d)
    if (type.extents[d] > 1 && has_neighbours(layout.axes[d])) return std::nullopt;
  auto [loaded, added] = steps_->loaded.try_emplace(from.memory);
  if (added) {
    note_layout(layout);
    loaded->second = builder_.load(from.memory, at, type);
  }
  std::vector<int64_t> offsets(type.extents.size());
  offsets.back() = (axes_[axis].begin - begin).as_constant().value();
  ValueType part = type;
  part.extents.back() = 1;
  const ValueId one = builder_.view(MovementKind::Slice, loaded->second, part, offsets);
  part.extents.resize(tile.extents.size());
  return builder_.view(MovementKind::Reshape, one, part);
}

}  // namespace braze
