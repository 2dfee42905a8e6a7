// emit_args.cpp — arg-reductions, whose states are pairs of a value and a number.
#include "compiler/loops/emit_p.h"

namespace braze {

// An arg-reduction carries the best value that it has seen, and the number of its element along the
// reduced axes. Numbers of 32 bits are enough for most axes, and cost half the work.
DType TreeEmitter::number_dtype(const LoopTask& task) const {
  Expr count = 1;
  for (const size_t axis : task.over) count *= tree_.axes[axis].extent;
  return count.range().max <= INT32_MAX ? DType::I32 : DType::I64;
}

// The number that stands for no element; it is greater than all others.
uint64_t TreeEmitter::no_number(const LoopTask& task) const {
  return info(Monoid::Min).identity(number_dtype(task));
}

namespace {

// The value that loses against every element.
uint64_t worst(const LoopTask& task, DType dtype) {
  return info(task.arg_max ? Monoid::Max : Monoid::Min).identity(dtype);
}

}  // namespace

TreeEmitter::Best TreeEmitter::nothing_found(const LoopTask& task, const TaskTile& tile) {
  const DType dtype = state_dtype(task);
  return {builder_.constant({dtype, 1, tile.extents}, worst(task, dtype)),
          builder_.constant({number_dtype(task), 1, tile.extents}, no_number(task))};
}

// The better of two. A NaN beats every number. Of equal values, the one with the least number wins.
TreeEmitter::Best TreeEmitter::better(const LoopTask& task, const Best& a, const Best& b) {
  const auto row = [&](ElementwiseOp op, std::vector<ValueOperand> operands) {
    return builder_.row(op, std::move(operands));
  };
  const auto both = [&](ValueId x, ValueId y) { return row(ElementwiseOp::logical_and, {x, y}); };
  const auto either = [&](ValueId x, ValueId y) { return row(ElementwiseOp::logical_or, {x, y}); };
  ValueId wins = row(task.arg_max ? ElementwiseOp::gt : ElementwiseOp::lt, {a.value, b.value});
  ValueId ties = row(ElementwiseOp::eq, {a.value, b.value});
  if (is_floating(state_dtype(task))) {
    const ValueId is_nan = row(ElementwiseOp::is_nan, {a.value});
    const ValueId was_nan = row(ElementwiseOp::is_nan, {b.value});
    wins = either(wins, both(is_nan, row(ElementwiseOp::logical_not, {was_nan})));
    ties = either(ties, both(is_nan, was_nan));
  }
  const ValueId earlier = both(ties, row(ElementwiseOp::lt, {a.number, b.number}));
  const ValueId taken = either(wins, earlier);
  return {row(ElementwiseOp::select, {taken, a.value, b.value}),
          row(ElementwiseOp::select, {taken, a.number, b.number})};
}

// The best values along the reduced dimensions of the tile, which are dropped.
TreeEmitter::Best TreeEmitter::best_along(const LoopTask& task, Best best, TaskTile& tile) {
  const auto dims = folded_in_turn(task, tile);
  for (const int64_t d : dims)
    std::tie(best.value, best.number) =
        builder_.arg_fold(task.arg_max, best.value, best.number, {d});
  drop(tile, dims);
  return best;
}

void TreeEmitter::arg_reduce(const LoopTask& task) {
  TaskTile tile = tile_of(axes_of(task), axes_);
  ValueId value = full(body(task.body, task.body.results[0], tile), tile, body_dtype(task));
  value = rounded(value, state_dtype(task));
  Expr number = 0;
  for (const size_t axis : task.over)
    number = number * tree_.axes[axis].extent + tile.index.at(name_of(axis));
  const DType dtype = number_dtype(task);
  ValueId numbers = full(builder_.iota(number, type_along({number}, tile, dtype)), tile, dtype);
  value = without_tail(value, task.over, tile, worst(task, state_dtype(task)));
  numbers = without_tail(numbers, task.over, tile, no_number(task));
  const Best best = best_along(task, {value, numbers}, tile);
  const auto state = states_.find(task.target);
  if (state == states_.end())
    return define(task, rounded(best.number, tree_.values[task.target].dtype), tile);
  ValueId& number_found = numbers_.at(task.target);
  const Best found = better(task, best, {state->second, number_found});
  state->second = found.value;
  number_found = found.number;
}

}  // namespace braze
