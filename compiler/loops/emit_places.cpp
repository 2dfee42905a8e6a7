// emit_places.cpp — placed reductions, whose terms say where they are added (E18).
#include <algorithm>

#include "compiler/loops/emit_p.h"
#include "ir/support/text.h"

namespace braze {

// A placed reduction keeps its sums in memory: in a buffer, or in the memory of the result. Each
// turn of the loop that carries it adds one term at the place that the term names, if this place
// belongs to the instance.

// The most indices of the axis that a turn of a task which reads the value takes; 0: no loop.
int64_t TreeEmitter::turn_of_reader(size_t value, size_t axis) const {
  int64_t out = 0;
  for_each_task(tree_, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
    if (!reads(task.body, value)) return;
    int64_t innermost = 0;
    for (const Loop* loop : around)
      for (const LoopLevel& level : loop->levels)
        if (level.axis == axis) innermost = level.turn;
    out = std::max(out, innermost);
  });
  return out;
}

// The store of a value that lives in the memory of the result.
const LoopTask& TreeEmitter::store_of(size_t value) const {
  const LoopTask* out = nullptr;
  for_each_task(tree_, [&](const LoopTask& task, const auto&) {
    if (!task.makes_value() && reads(task.body, value)) out = &task;
  });
  if (!out) refuse({}, fmt::format("%{} is stored nowhere", tree_.values[value].name));
  return *out;
}

bool TreeEmitter::is_there(const LoopTask& store) const {
  return std::ranges::any_of(store.body.steps, [&](const LoopStep& s) {
    return s.kind == LoopStep::Kind::Read && tree_.values[s.source].storage == Storage::Result;
  });
}

// Notes the places of this instance: `lowest` to `highest`, as numbers of the dtype that is loaded.
// A number beyond the ends of the axis counts as its first or last place.
void TreeEmitter::note_places(const LoopTask& task) {
  Places own;
  const DType loaded = task.body.steps[task.body.results[1]].dtype;
  Expr all = 1, rest = 1;
  for (size_t i = 0; i < task.along.size(); ++i) {
    const Expr& extent = tree_.axes[task.along[i]].extent;
    all *= extent;
    if (i == 0) continue;
    rest *= extent;
    if (axes_[task.along[i]].turn > 0)
      refuse(task.location, "only the outermost digit of places can be dealt to instances");
  }
  own.count = all;
  own.dtype = loaded == DType::I32 && all.range().max <= INT32_MAX ? DType::I32 : DType::I64;
  own.dealt = !task.along.empty() && axes_[task.along[0]].turn > 0;
  if (own.dealt) {
    const AxisNow& now = axes_[task.along[0]];
    const Expr& extent = tree_.axes[task.along[0]].extent;
    const Expr first = builder_.let("first", now.begin * rest);
    const Expr end = builder_.let("end", min(now.begin + now.turn, extent) * rest);
    const Interval range = own.dtype == DType::I32 ? Interval{INT32_MIN, INT32_MAX} : Interval{};
    const ValueType scalar{own.dtype, 1, {}}, flag{DType::Bool, 1, {}};
    const auto unless = [&](const Expr& a, const Expr& b, int64_t limit, const Expr& value) {
      return builder_.row(ElementwiseOp::select,
                          {builder_.test({{a, IndexComparison::Kind::Eq, b}}, flag),
                           ValueOperand::literal(own.dtype, constant_bits_int(own.dtype, limit)),
                           builder_.iota(value, scalar)});
    };
    own.lowest = unless(first, 0, range.min, first);
    own.highest = unless(end, all, range.max, end - 1);
  }
  places_[task.target] = own;
}

// Begins the sums that live in a region, before the item that combines them.
void TreeEmitter::begin_placed(const LoopItem& item, const LoopRegion& items) {
  const auto born = born_.find(&items);
  if (born == born_.end()) return;
  const auto begin = [&](const LoopTask& task) {
    if (task.kind == LoopTask::Kind::Place && std::ranges::count(born->second, task.target) > 0)
      begin_sums(task);
  };
  if (const auto* task = std::get_if<LoopTask>(&item)) return begin(*task);
  for_each_task(std::get<Box<Loop>>(item)->body,
                [&](const LoopTask& task, const auto&) { begin(task); });
}

// Sets the sums to what they begin with. Sums in the memory of the result have these values
// already.
void TreeEmitter::begin_sums(const LoopTask& task) {
  note_places(task);
  const LoopValue& value = tree_.values[task.target];
  if (value.storage == Storage::Result) return;
  std::vector<int64_t> turns;
  for (const size_t axis : value.axes) {
    turns.push_back(turn_of_reader(task.target, axis));
    if (turns.back() == 0) turns.back() = extent_of(axis, axes_);
  }
  const std::function<void(size_t)> walk = [&](size_t n) {
    if (n == value.axes.size()) {
      const TaskTile tile = tile_of(value.axes, axes_);
      const uint32_t start = task.body.results[2];
      const ValueOperand first =
          converted(body(task.body, start, tile), task.body.steps[start].dtype, sums_dtype(task));
      builder_.store(full(first, tile, sums_dtype(task)), chips_.at(task.target).memory,
                     place_of_sums(task, tile));
      return;
    }
    const size_t axis = value.axes[n];
    const Expr begin = axes_[axis].begin;
    const int64_t extent = extent_of(axis, axes_);
    if (turns[n] >= extent) return in_turn({axis, turns[n]}, begin, true, [&] { walk(n + 1); });
    const Expr end = begin + extent;
    const Expr& last = tree_.axes[axis].extent;
    builder_.for_loop(turn_name(axis), begin, proves_at_most(end, last) ? end : min(end, last),
                      turns[n], {}, [&](const Expr& index, const auto&) {
                        in_turn({axis, turns[n]}, index, true, [&] { walk(n + 1); });
                        return std::vector<ValueOperand>();
                      });
  };
  walk(0);
  forget();
}

// The coordinates of the sums of this tile in their memory.
std::vector<Expr> TreeEmitter::place_of_sums(const LoopTask& task, const TaskTile& tile) {
  const LoopValue& value = tree_.values[task.target];
  if (value.storage == Storage::Result) return substituted(store_of(task.target).at, tile);
  return place_in_buffer(task.target, tile);
}

// The numbers of the places that the terms of a tile name.
ValueOperand TreeEmitter::loaded_places(const LoopTask& task, const TaskTile& tile) {
  const uint32_t step = task.body.results[1];
  const DType dtype = places_.at(task.target).dtype;
  const ValueOperand out =
      converted(body(task.body, step, tile), task.body.steps[step].dtype, dtype);
  return full(out, tile, dtype);
}

ValueId TreeEmitter::among(const LoopTask& task, const ValueOperand& loaded) {
  const Places& own = places_.at(task.target);
  return builder_.row(ElementwiseOp::logical_and,
                      {builder_.row(ElementwiseOp::ge, {loaded, own.lowest}),
                       builder_.row(ElementwiseOp::le, {loaded, own.highest})});
}

// The number of a place, clamped to the places that exist.
Expr TreeEmitter::clamped(const LoopTask& task, const ValueOperand& loaded) {
  const Places& own = places_.at(task.target);
  const ValueId last = builder_.iota(own.count - 1, {DType::I64, 1, {}});
  const ValueId most = builder_.row(ElementwiseOp::min,
                                    {converted(loaded, own.dtype, DType::I64), ValueOperand(last)});
  return value_symbol(
      code_, builder_.row(ElementwiseOp::max, {most, ValueOperand::literal(DType::I64, 0)}));
}

void TreeEmitter::place(const LoopTask& task) {
  for (const size_t axis : task.over)
    if (extent_of(axis, axes_) != 1)
      refuse(task.location, "the terms of a placed reduction are taken one by one, in a loop");
  if (const auto found = sought_.find(task.target); found != sought_.end())
    return add_term(task, found->second);
  const ValueOperand loaded = loaded_places(task, tile_of({}, axes_));
  if (!places_.at(task.target).dealt) return add_term(task, clamped(task, loaded));
  Region region;
  const ValueId own = among(task, loaded);
  builder_.enter(region);
  add_term(task, clamped(task, loaded));
  builder_.leave();
  builder_.append(IfOp{{}, own, std::move(region), {}}, {});
}

void TreeEmitter::add_term(const LoopTask& task, Expr place) {
  const LoopValue& value = tree_.values[task.target];
  const AxesNow axes = axes_;
  for (size_t i = task.along.size(); i-- > 0;) {
    const Expr& extent = tree_.axes[task.along[i]].extent;
    axes_[task.along[i]] = {i == 0 ? place : mod(place, extent), 1};
    place = floordiv(place, extent);
  }
  const TaskTile tile = tile_of(value.axes, axes_);
  const DType dtype = sums_dtype(task);
  const uint32_t result = task.body.results[0];
  const ValueId term = full(
      converted(body(task.body, result, tile), task.body.steps[result].dtype, dtype), tile, dtype);
  const bool there = value.storage == Storage::Result;
  const MemoryId memory =
      there ? MemoryId(store_of(task.target).target) : chips_.at(task.target).memory;
  const std::vector<Expr> at = place_of_sums(task, tile);
  const Guard guard = there ? Guard{before_ends(tile.dims, tile), {}} : Guard{};
  ValueId sum = term;
  if (!task.replaces) {
    const ValueId before = builder_.load(memory, at, {dtype, 1, tile.extents}, guard);
    sum = builder_.row(info(task.monoid).combine, {before, term});
  }
  builder_.store(sum, memory, at, guard);
  axes_ = axes;
}

// Runs the turns of a loop whose terms belong to this instance. If a turn of a loop around holds a
// constant number of terms, all their places are compared at once, and a loop takes the matching
// terms: each turn takes the term with the least number above that of the turn before.
void TreeEmitter::seek(const Stream& stream) {
  const Loop& loop = stream.loop;
  const size_t axis = loop.levels[0].axis;
  const LoopTask* task = nullptr;
  for_each_task(loop.body, [&](const LoopTask& t, const auto&) {
    if (t.kind == LoopTask::Kind::Place) task = &t;
  });
  const auto take = [&](const ValueOperand& loaded) {
    sought_.insert_or_assign(task->target, clamped(*task, loaded));
    region(loop.body);
    sought_.erase(task->target);
  };
  const auto loaded_here = [&] { return loaded_places(*task, tile_of({}, axes_)); };
  const int64_t group = axes_[axis].turn;
  if (!places_.at(task->target).dealt) {
    builder_.for_loop(turn_name(axis), stream.first(), stream.last(), 1, {},
                      [&](const Expr& index, const auto&) {
                        in_turn({axis, 1}, index, true, [&] { take(loaded_here()); });
                        return std::vector<ValueOperand>();
                      });
  } else if (group > 1) {
    const TaskTile tile = tile_of({axis}, axes_);
    const Expr first = axes_[axis].begin;
    if (!code_.layouts.empty()) note_layout(spread({group}, {code_.warps * kWarpThreads}, 1));
    const ValueType scalar{DType::I32, 1, {}}, numbers{DType::I32, 1, {group}};
    const ValueOperand none =
        ValueOperand::literal(DType::I32, constant_bits_int(DType::I32, group));
    const auto all = [&](Monoid monoid, const ValueOperand& value) {
      return builder_.view(MovementKind::Reshape, builder_.fold(monoid, value, {0}), scalar);
    };
    ValueId own = among(*task, loaded_places(*task, tile));
    own = without_tail(own, {axis}, tile, 0);
    const ValueId number = builder_.iota(position_symbol('d', 0, group), numbers);
    const ValueId mine = builder_.row(ElementwiseOp::select, {own, number, none});
    // Most groups have no term of this instance. Only the others are counted.
    const ValueId first_hit = all(Monoid::Min, mine);
    Region hits;
    const ValueId any = builder_.row(ElementwiseOp::lt, {first_hit, none});
    builder_.enter(hits);
    const ValueId count =
        all(Monoid::Sum, builder_.row(ElementwiseOp::convert,
                                      {builder_.row(ElementwiseOp::lt, {mine, none})}, DType::I32));
    builder_.for_loop(
        "hit", 0, value_symbol(code_, count), 1, {first_hit},
        [&](const Expr&, const std::vector<ValueId>& now) {
          in_turn({axis, 1}, first + value_symbol(code_, now[0]), true,
                  [&] { take(loaded_here()); });
          const ValueId after = builder_.row(ElementwiseOp::gt, {mine, now[0]});
          const ValueId rest = builder_.row(ElementwiseOp::select, {after, mine, none});
          return std::vector<ValueOperand>{all(Monoid::Min, rest)};
        });
    builder_.leave();
    builder_.append(IfOp{{}, any, std::move(hits), {}}, {});
  } else {
    builder_.for_loop(turn_name(axis), stream.first(), stream.last(), 1, {},
                      [&](const Expr& index, const auto&) {
                        in_turn({axis, 1}, index, true, [&] {
                          Region taken;
                          const ValueOperand loaded = loaded_here();
                          const ValueId own = among(*task, loaded);
                          builder_.enter(taken);
                          take(loaded);
                          builder_.leave();
                          builder_.append(IfOp{{}, own, std::move(taken), {}}, {});
                        });
                        return std::vector<ValueOperand>();
                      });
  }
}

}  // namespace braze
