// emit_tasks.cpp — what is done with the values of bodies: folds, dots on vector units, and stores
// (E7 to E9, E16, E18).
#include <algorithm>

#include "compiler/loops/emit_p.h"
#include "compiler/loops/steps/places.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

void TreeEmitter::task(const LoopTask& task) {
  const bool by_rank =
      task.combine == Combine::Rank && is_asynchronous(task) && !task.rescale.has_value();
  if (task.combine != Combine::None && !by_rank)
    refuse(task.location,
           "of combined tasks, only sums of asynchronous dots over ranks can be emitted yet");
  if (in_slabs_.contains(task.target)) return add_to_slab(task);
  if (const auto state = states_.find(task.target); state != states_.end()) {
    before_[task.target] = state->second;
    if (task.rescale) rescale(task);
  }
  switch (task.kind) {
    case LoopTask::Kind::Compute: {
      if (const auto& layout = tree_.values[task.target].layout; layout && !tree_.roles)
        return turned(task, layout->layout);
      if (tree_.roles && is_kept_on_chip(task)) return keep_on_chip(task);
      TaskTile tile = tile_of(axes_of(task), axes_);
      lay_as_accumulator(tile);
      const DType dtype = body_dtype(task);
      const ValueId value = full(body(task.body, task.body.results[0], tile), tile, dtype);
      return define(task, value, tile);
    }
    case LoopTask::Kind::Fold:
      return fold(task);
    case LoopTask::Kind::Scan:
      return scan(task);
    case LoopTask::Kind::Arg:
      return arg_reduce(task);
    case LoopTask::Kind::Dot:
      return is_asynchronous(task) ? start_dot(task) : dot(task);
    case LoopTask::Kind::Place:
      return place(task);
    default:
      BRAZE_CHECK(false, "stages and stores are emitted by their regions");
  }
}

// The state brought to the present values of the totals on which it depends, by its ratio or its
// shift. If a total has seen no element yet, the ratio is replaced by 0; a shift is 0 then.
ValueId TreeEmitter::rescaled(const LoopTask& task, ValueId state, const TaskTile& tile) {
  ValueOperand ratio = body(*task.rescale, task.rescale->results[0], tile);
  if (task.shifts) return builder_.row(ElementwiseOp::add, {state, ratio});
  const ValueOperand zero = ValueOperand::literal(body_dtype(task), 0);
  for (const LoopStep& s : task.rescale->steps) {
    if (s.kind != LoopStep::Kind::Read || !s.before) continue;
    Tile before = rescaling_ == Rescaling::InTurn
                      ? tile_now(before_.at(s.source), state_tiles_.at(s.source))
                      : parts_.at(s.source);
    before.value = seen_nothing(s.source, before.value);
    if (before.value)
      ratio = builder_.row(ElementwiseOp::select, {read_tile(before, s, tile), zero, ratio});
  }
  return builder_.row(ElementwiseOp::mul, {state, ratio});
}

void TreeEmitter::rescale(const LoopTask& task) {
  settle(task.target);
  states_[task.target] = rescaled(task, states_.at(task.target), state_tiles_.at(task.target));
}

// Whether a total on which the task depends is guarded.
bool TreeEmitter::is_guarded(const LoopTask& task) const {
  return std::ranges::any_of(task.rescale->steps, [&](const LoopStep& s) {
    return s.kind == LoopStep::Kind::Read && s.before && guards_[s.source];
  });
}

// The state after the loop. Where a total has seen no element, its guard (0 in its place) is
// undone.
ValueId TreeEmitter::last_rescale(const LoopTask& task, ValueId state, const TaskTile& tile) {
  rescaling_ = Rescaling::Unguarded;
  const ValueOperand ratio = body(*task.rescale, task.rescale->results[0], tile);
  rescaling_ = Rescaling::InTurn;
  const DType dtype = body_dtype(task);
  for (const LoopStep& s : task.rescale->steps) {
    if (s.kind != LoopStep::Kind::Read || !s.before || !guards_[s.source]) continue;
    Tile total = tiles_of_.at(s.source);
    total.value = seen_nothing(s.source, total.value);
    if (!total.value) continue;
    const ValueOperand one = ValueOperand::literal(dtype, constant_bits(dtype, 1.0));
    const ValueId factor =
        builder_.row(ElementwiseOp::select, {read_tile(total, s, tile), ratio, one});
    state = builder_.row(ElementwiseOp::mul, {state, factor});
  }
  return state;
}

// The dimensions of its tile that a fold combines in each turn. The others are combined after the
// loop: registers before lanes, lanes before warps, warps before blocks.
std::vector<int64_t> TreeEmitter::folded_in_turn(const LoopTask& task, const TaskTile& tile) const {
  struct Dimension {
    int64_t number;
    Digit digit;
  };
  std::vector<Dimension> all;
  for (const int64_t d : positions(task.over, tile))
    all.push_back({d, tile.digits[static_cast<size_t>(d)]});
  const auto rank = [](const Dimension& d) {
    constexpr Resource kOrder[] = {Resource::Register, Resource::Lane, Resource::Warp,
                                   Resource::Block};
    return std::find(std::begin(kOrder), std::end(kOrder), d.digit.resource) - kOrder;
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Dimension& a, const Dimension& b) { return rank(a) < rank(b); });
  const bool threads =
      std::any_of(all.begin(), all.end(), [](const Dimension& d) { return is_spread(d.digit); });
  if (unfolded_.contains(task.target)) {
    // On a CPU, each lane of a vector has its own part of a running value.
    const bool running = parted_.contains(task.target);
    if (threads)
      std::erase_if(all, [](const Dimension& d) { return is_spread(d.digit); });
    else if (running && !all.empty())
      all.pop_back();
    else
      all.clear();
  }
  std::vector<int64_t> out;
  for (const Dimension& d : all) out.push_back(d.number);
  return out;
}

// A factor of a dot, in the dtype in which it computes.
ValueOperand TreeEmitter::factor_of(const LoopTask& task, size_t n, const TaskTile& tile) {
  ValueOperand operand = body(task.body, task.body.results[n], tile);
  if (operand.is_literal()) operand = full(operand, tile, operand.dtype);
  return rounded(operand.value, body_dtype(task));
}

std::vector<ValueOperand> TreeEmitter::factors_of(const LoopTask& task, const TaskTile& tile) {
  std::vector<ValueOperand> out;
  for (size_t n = 0; n < task.body.results.size(); ++n) out.push_back(factor_of(task, n, tile));
  return out;
}

// A factor of a dot, with zeros beyond the end of the summed axes if the dot multiplies what lies
// there.
ValueOperand TreeEmitter::zero_beyond(const LoopTask& task, size_t n, const ValueOperand& factor,
                                      const TaskTile& tile) {
  if (!ring_ || !ring_->zeros || factor.is_literal() || is_zero_beyond(task, task.body.results[n]))
    return factor;
  return without_tail(factor.value, task.over, tile, 0);
}

ValueId TreeEmitter::read_factor(const LoopTask& task, size_t n, const OnChip& from,
                                 const TaskTile& tile) {
  const std::set<size_t> axes = axes_of_result(task, n);
  const auto place = [&](const TaskTile& along) {
    std::vector<Expr> at;
    for (const size_t axis : axes) at.push_back(along.index.at(name_of(axis)));
    return place_in_buffer(from, at);
  };
  if (const auto part = part_of_steps(from, *axes.rbegin(), place, tile)) return *part;
  const std::vector<Expr> at = place(tile);
  return builder_.load(from.memory, at, type_along(at, tile, code_[from.memory].dtype));
}

// A fold in registers is one number along axes on which its terms do not depend.
void TreeEmitter::drop_constant(const LoopTask& task, TaskTile& tile) const {
  const LoopValue& value = tree_.values[task.target];
  if (tree_.roles || task.kind != LoopTask::Kind::Fold || task.rescale ||
      value.storage != Storage::Registers)
    return;
  const std::set<size_t> used = axes_used(tree_, task);
  std::vector<size_t> constant;
  for (const size_t axis : value.axes)
    if (!used.contains(axis)) constant.push_back(axis);
  drop(tile, positions(constant, tile));
}

void TreeEmitter::fold(const LoopTask& task) {
  TaskTile tile = tile_of(axes_of(task), axes_);
  lay_as_accumulator(tile);
  drop_constant(task, tile);
  tile.looks_after_tails = task.kind == LoopTask::Kind::Fold;
  const DType dtype = state_dtype(task);
  const auto state = states_.find(task.target);
  auto axes = folded_in_turn(task, tile);
  ValueId value;
  const bool added = state != states_.end() && axes.empty() && before_ends(task.over, tile).empty();
  std::vector<ValueOperand> factors;
  if (task.kind == LoopTask::Kind::Dot) {
    factors = factors_of(task, tile);
    if (added && is_floating(dtype)) {
      factors.emplace_back(state->second);
      state->second = builder_.row(ElementwiseOp::fma, std::move(factors));
      return;
    }
  } else {
    value = full(body(task.body, task.body.results[0], tile), tile, body_dtype(task));
    if (task.unrounded) factors = factors_made(task);
    if (added && !factors.empty()) {
      factors.emplace_back(state->second);
      state->second = builder_.row(ElementwiseOp::fma, std::move(factors));
      return;
    }
    value = rounded(value, dtype);
  }
  std::optional<ValueOperand> sum;
  if (state != states_.end() && axes.size() == 1) sum = state->second;
  const bool multiplies = !factors.empty() && (task.kind == LoopTask::Kind::Dot || sum);
  const auto dim = multiplies ? multiplied_in_registers(task, tile, axes) : std::nullopt;
  if (dim) {
    value = added_products(factors, tile, *dim, sum);
    drop(tile, {*dim});
    std::erase(axes, *dim);
    if (sum) {
      state->second = value;
      return;
    }
  } else if (task.kind == LoopTask::Kind::Dot) {
    value = full(builder_.row(ElementwiseOp::mul, std::move(factors)), tile, dtype);
  }
  value = without_tail(value, task.over, tile, info(task.monoid).padding(dtype));
  if (!axes.empty()) value = builder_.fold(task.monoid, value, axes);
  if (state == states_.end()) {
    drop(tile, axes);
    return define(task, rounded(value, tree_.values[task.target].dtype), tile);
  }
  state->second = builder_.row(info(task.monoid).combine, {state->second, value});
}

// The dimension of a dot's tile along which each thread of a GPU has a few products that it may add
// by `fma`, if there is one.
std::optional<int64_t> TreeEmitter::multiplied_in_registers(
    const LoopTask& task, const TaskTile& tile, const std::vector<int64_t>& folded) const {
  constexpr int64_t kMostProducts = 8, kFewSums = 4;
  if (code_.warps == 0 || !is_floating(state_dtype(task)) || !before_ends(task.over, tile).empty())
    return std::nullopt;
  // The products of one sum wait for each other, so a thread needs several sums.
  int64_t registers = 1;
  if (const auto& bound = tree_.values[task.target].layout)
    for (const auto& axis : bound->layout.axes)
      for (const Digit& digit : axis)
        if (digit.resource == Resource::Register) registers *= digit.extent;
  for (const int64_t dim : folded) {
    const Digit& digit = tile.digits[static_cast<size_t>(dim)];
    if (digit.resource != Resource::Register || digit.extent > kMostProducts) continue;
    if (task.kind == LoopTask::Kind::Dot || registers / digit.extent >= kFewSums) return dim;
  }
  return std::nullopt;
}

// The sum of products along a dimension, added to `sum` if there is one.
ValueId TreeEmitter::added_products(const std::vector<ValueOperand>& factors, const TaskTile& tile,
                                    int64_t dim, std::optional<ValueOperand> sum) {
  const auto at = static_cast<size_t>(dim);
  const auto part = [&](const ValueOperand& factor, int64_t i) -> ValueOperand {
    if (factor.is_literal() || code_[factor.value].type.extents[at] == 1) return factor;
    ValueType type = code_[factor.value].type;
    type.extents[at] = 1;
    std::vector<int64_t> offsets(type.extents.size());
    offsets[at] = i;
    return builder_.view(MovementKind::Slice, factor, type, std::move(offsets));
  };
  for (int64_t i = 0; i < tile.extents[at]; ++i) {
    const ValueOperand a = part(factors[0], i), b = part(factors[1], i);
    sum = sum ? builder_.row(ElementwiseOp::fma, {a, b, *sum})
              : builder_.row(ElementwiseOp::mul, {a, b});
  }
  TaskTile own = tile;
  own.extents[at] = 1;
  return full(*sum, own, code_[sum->value].type.dtype);
}

// The factors of the product in which the body of a fold ends, if it ends in one. The steps of the
// body have been made before.
std::vector<ValueOperand> TreeEmitter::factors_made(const LoopTask& task) const {
  const LoopStep& product = task.body.steps[task.body.results[0]];
  if (product.dtype != state_dtype(task)) return {};
  const ValueOperand &a = memo_[product.arguments[0]], &b = memo_[product.arguments[1]];
  if (a.is_literal() || b.is_literal()) return {};
  return {a, b};
}

void TreeEmitter::drop(TaskTile& tile, const std::vector<int64_t>& dims) {
  for (const int64_t d : dims) {
    tile.dims[static_cast<size_t>(d)] = kNone;
    tile.extents[static_cast<size_t>(d)] = 1;
  }
}

// Whether the tile of products would be larger than the factors and the sums: each factor has rows
// that the other one does not have.
bool TreeEmitter::is_outer_product(const LoopTask& task, const AxesNow& axes) const {
  if (task.body.results.size() != 2 || task.over.size() != 1) return false;
  const auto has_own_rows = [&](size_t factor) {
    const auto own = axes_of_result(task, factor), other = axes_of_result(task, 1 - factor);
    return std::ranges::any_of(
        own, [&](size_t axis) { return !other.contains(axis) && extent_of(axis, axes) > 1; });
  };
  return has_own_rows(0) && has_own_rows(1);
}

// Whether a dot without a unit sums a tile of products, as a fold does.
bool TreeEmitter::is_summed_as_fold(const LoopTask& task, const AxesNow& axes) const {
  return task.unit == Unit::None && !tree_.roles &&
         !positions(task.over, tile_of(axes_of(task), axes)).empty() &&
         (code_.warps > 0 || !is_outer_product(task, axes));
}

// Whether a factor of a dot lies in registers along the summed axis, so that a loop over that axis
// reads it from a buffer. On a GPU these are factors that are made of tiles, and on a CPU those
// that do not run along the last axis of the sums.
bool TreeEmitter::needs_buffer(const LoopTask& task, size_t n) const {
  const auto is_long = [&](size_t axis) { return extent_of(axis, axes_) > 1; };
  if (tree_.roles || std::ranges::none_of(task.over, is_long)) return false;
  if (task.unit == Unit::Fma)
    return makes_of_registers(task, task.body.results[n], task.over.back());
  const auto& own = tree_.values[task.target].axes;
  return is_outer_product(task, axes_) &&
         !axes_of_result(task, n).contains(*std::ranges::max_element(own));
}

// Declares the buffer for a factor of a dot.
TreeEmitter::OnChip TreeEmitter::declare_factor(const LoopTask& task, size_t n) {
  OnChip out{.memory = {}, .item = {}, .begin = {}, .extents = {}};
  std::vector<int64_t> extents;
  for (const size_t axis : axes_of_result(task, n)) {
    out.begin.push_back(axes_[axis].begin);
    out.extents.push_back(extent_of(axis, axes_));
    if (out.extents.back() > 1) extents.push_back(out.extents.back());
  }
  const DType dtype = body_dtype(task);
  if (task.unit == Unit::Fma) extents.back() += kAccessBytes / static_cast<int64_t>(size_of(dtype));
  out.memory = builder_.buffer("factor", dtype, extents);
  return out;
}

// Declares the buffers of all factors that turns of a loop make. The parts of the loop share them.
void TreeEmitter::declare_factors(const Loop& loop) {
  for (const LoopItem& item : loop.body)
    if (const auto* task = std::get_if<LoopTask>(&item); task && task->unit == Unit::Fma)
      for (size_t n = 0; n < task->body.results.size(); ++n)
        if (needs_buffer(*task, n)) factors_.emplace(std::pair(task, n), declare_factor(*task, n));
}

// Stores a factor of a dot to its buffer.
TreeEmitter::OnChip TreeEmitter::buffered_factor(const LoopTask& task, size_t n) {
  const std::set<size_t> axes = axes_of_result(task, n);
  const TaskTile tile = tile_of({axes.begin(), axes.end()}, axes_);
  std::vector<Expr> at;
  for (const size_t axis : axes) at.push_back(tile.index.at(name_of(axis)));
  const ValueId value =
      full(zero_beyond(task, n, factor_of(task, n, tile), tile), tile, body_dtype(task));
  const auto declared = factors_.find({&task, n});
  OnChip chip = declared == factors_.end() ? declare_factor(task, n) : declared->second;
  size_t i = 0;
  for (const size_t axis : axes) chip.begin[i++] = axes_[axis].begin;
  builder_.store(value, chip.memory, place_in_buffer(chip, at));
  return chip;
}

// The factors of a dot that are in buffers. They are stored here if they have not been before.
std::map<size_t, TreeEmitter::OnChip> TreeEmitter::buffered_factors(const LoopTask& task) {
  std::map<size_t, OnChip> out;
  for (size_t n = 0; n < task.body.results.size(); ++n)
    if (const auto raised = raised_factors_.find({&task, n}); raised != raised_factors_.end())
      out.insert({n, raised->second});
    else if (needs_buffer(task, n))
      out.emplace(n, buffered_factor(task, n));
  return out;
}

// A dot on vector units: a loop over the summed axes, with one `fma` of [m, 1] and [1, n] tiles.
// Without a unit, a tile of products is summed as a fold is if it is not larger than the factors.
void TreeEmitter::dot(const LoopTask& task) {
  constexpr int64_t kUnrolledTurns = 4;
  // Indices of a summed axis whose elements a thread loads at once, and how often the loop over
  // them is unrolled.
  constexpr int64_t kSteps = 4, kUnrolledSteps = 2;
  if (is_summed_as_fold(task, axes_)) return fold(task);
  if (task.unit == Unit::Mma) return multiply_matrices(task);
  const std::map<size_t, OnChip> buffered = buffered_factors(task);
  const DType dtype = body_dtype(task);
  const auto& own = tree_.values[task.target].axes;
  const TaskTile all = tile_of(own, axes_);
  ValueId state =
      states_.contains(task.target)
          ? states_.at(task.target)
          : builder_.constant({dtype, 1, all.extents}, info(Monoid::Sum).padding(dtype));
  const std::function<ValueId(size_t, ValueId)> summed = [&](size_t n, ValueId sum) -> ValueId {
    if (n == task.over.size()) {
      const TaskTile tile = tile_of(own, axes_);
      std::vector<ValueOperand> operands;
      for (size_t f = 0; f < task.body.results.size(); ++f)
        operands.push_back(buffered.contains(f)
                               ? ValueOperand(read_factor(task, f, buffered.at(f), tile))
                               : zero_beyond(task, f, factor_of(task, f, tile), tile));
      if (!is_floating(dtype))
        return builder_.row(ElementwiseOp::add,
                            {sum, builder_.row(ElementwiseOp::mul, std::move(operands))});
      operands.emplace_back(sum);
      return builder_.row(ElementwiseOp::fma, std::move(operands));
    }
    const size_t axis = task.over[n];
    const int64_t extent = extent_of(axis, axes_);
    const Expr begin = axes_[axis].begin;
    if (extent == 1) return summed(n + 1, sum);
    const bool whole = (ring_ && ring_->zeros) ||
                       proves_at_most(begin + extent, tree_.axes[axis].extent) ||
                       is_decided(before_end(tree_.axes[axis]));
    const auto steps = [&](const Expr& first, int64_t count, ValueId before) {
      steps_ = Steps{.level = {axis, first, count}};
      for (int64_t i = 0; i < count; ++i)
        in_turn({axis, 1}, first + i, false, [&] { before = summed(n + 1, before); });
      steps_.reset();
      return before;
    };
    if (whole && ring_ && extent <= kMostUnrolledSums) return steps(begin, extent, sum);
    if (whole && ring_) {
      const int64_t rest = extent % kSteps;
      sum = builder_.for_loop(
          turn_name(axis), 0, extent - rest, kSteps, {sum},
          [&](const Expr& index, const std::vector<ValueId>& carried) {
            forget();
            const ValueId out = steps(begin + index, kSteps, carried[0]);
            forget();
            return std::vector<ValueOperand>{out};
          },
          kUnrolledSteps)[0];
      return rest == 0 ? sum : steps(begin + (extent - rest), rest, sum);
    }
    const Expr high = whole ? Expr(extent) : min(extent, tree_.axes[axis].extent - begin);
    return builder_.for_loop(
        turn_name(axis), 0, high, 1, {sum},
        [&](const Expr& index, const std::vector<ValueId>& carried) {
          ValueId out;
          in_turn({axis, 1}, begin + index, false, [&] { out = summed(n + 1, carried[0]); });
          return std::vector<ValueOperand>{out};
        },
        buffered.empty() ? 1 : kUnrolledTurns)[0];
  };
  const ValueId sum = summed(0, state);
  if (states_.contains(task.target))
    states_[task.target] = sum;
  else
    define(task, rounded(sum, tree_.values[task.target].dtype), all);
}

void TreeEmitter::buffered_stage(const LoopTask& task) {
  const LoopValue& value = tree_.values[task.target];
  const TaskTile tile = value.layout ? fetched_tile(task, 0) : tile_of(value.axes, shared_);
  const ValueId copied = full(body(task.body, task.body.results[0], tile), tile, value.dtype);
  // The buffer has its axes in the order of the value's axes.
  std::vector<Expr> at;
  std::vector<int64_t> extents;
  for (const size_t axis : value.axes)
    for (const int64_t d : positions({axis}, tile)) {
      extents.push_back(tile.extents[static_cast<size_t>(d)]);
      at.push_back(position_symbol('d', static_cast<size_t>(d), extents.back()));
    }
  if (extents.size() > 1) extents.back() += row_padding(task.target);
  const MemoryId memory = builder_.buffer(value.name, value.dtype, extents);
  builder_.store(copied, memory, at);
  OnChip chip{memory, std::nullopt, {}, {}};
  for (const size_t axis : value.axes) {
    chip.begin.push_back(shared_[axis].begin);
    chip.extents.push_back(extent_of(axis, shared_));
  }
  chips_[task.target] = std::move(chip);
}

// The elements behind each row of a buffer, so that the rows which a warp reads together begin in
// different banks. For matrices of 16-bit factors, ldmatrix takes eight rows of 16 bytes at once;
// threads that multiply read as much along rows that run along what is summed.
int64_t TreeEmitter::row_padding(size_t value) const {
  const LoopValue& kept = tree_.values[value];
  bool padded = false;
  for_each_task(tree_, [&](const LoopTask& task, const auto&) {
    if (!reads(task.body, value)) return;
    padded |= task.unit == Unit::Mma && is_half(kept.dtype);
    padded |= task.unit == Unit::Fma && !kept.axes.empty() && contains(task.over, kept.axes.back());
  });
  return padded ? kAccessBytes / static_cast<int64_t>(size_of(kept.dtype)) : 0;
}

// Makes stores that stand side by side. If one may overwrite what another reads, all values are
// computed before the first is stored: an output may take over the memory of an input.
void TreeEmitter::stores(std::span<const LoopItem> run) {
  if (!ranks_) return stores_here(run);
  // What blocks of a cluster have combined, all of them have, and the first block stores it.
  const auto apart = std::ranges::count_if(run, [&](const LoopItem& item) {
    return contains(axes_of(std::get<LoopTask>(item)), ranks_->levels[0].axis);
  });
  if (apart == std::ssize(run)) return stores_here(run);
  if (apart > 0)
    refuse(std::get<LoopTask>(run.front()).location,
           "stores side by side must all differ along the ranks of a cluster, or none of them");
  builder_.if_then({{rank_, IndexComparison::Kind::Eq, 0}}, [&] { stores_here(run); });
}

void TreeEmitter::stores_here(std::span<const LoopItem> run) {
  const bool together = part_ == Part::All || share_memory(run);
  std::vector<Stored> values;
  for (const LoopItem& item : run) {
    const auto& task = std::get<LoopTask>(item);
    if (is_there(task)) continue;
    const LoopTensor& tensor = tree_.tensors[task.target];
    TaskTile tile = tile_of(axes_of(task), axes_);
    lay_as_accumulator(tile);
    const ValueId value =
        full(body(task.body, task.body.results[0], tile), tile, tensor.type.dtype);
    values.push_back({task, value, std::move(tile)});
    if (!together) store(values.back());
  }
  if (together)
    for (const Stored& s : values) store(s);
  if (together || part_ == Part::All) forget();
}

// Whether some of these stores read what others write.
bool TreeEmitter::share_memory(std::span<const LoopItem> run) const {
  for (const LoopItem& a : run)
    for (const LoopItem& b : run) {
      const auto &reader = std::get<LoopTask>(a), &writer = std::get<LoopTask>(b);
      if (&reader != &writer && std::ranges::any_of(reader.body.steps, [&](const LoopStep& s) {
            return s.kind == LoopStep::Kind::Load && s.source == writer.target;
          }))
        return true;
    }
  return false;
}

namespace {

bool has_digits(const Expr& e) {
  const bool digit = e.kind() == Expr::Kind::FloorDiv || e.kind() == Expr::Kind::Mod;
  return digit || std::ranges::any_of(e.operands(), has_digits);
}

}  // namespace

void TreeEmitter::store(const Stored& stored) {
  const auto& [task, value, tile] = stored;
  if (const auto gathered = gathered_.find(&task); gathered != gathered_.end()) {
    const auto& [chip, all] = gathered->second;
    // The tile of a turn has no dimension of the axis along which it is one index.
    std::vector<Expr> at;
    for (size_t d = 0; d < all.dims.size(); ++d)
      at.push_back(tile.index.at(name_of(all.dims[d])) - chip.begin[d]);
    builder_.store(value, chip.memory, std::move(at));
  } else if (tree_.roles && moves_by_boxes(task, tile)) {
    store_through_chip(task, value, tile);
  } else {
    auto at = substituted(task.at, tile);
    Guard guard{before_ends(tile.dims, tile), {}};
    // The digits of a composed axis may lie beyond the end of the axis that was composed, and the
    // indices of a padded axis beyond its old end.
    const Shape& shape = tree_.tensors[task.target].type.shape;
    const auto may_leave = [&](const Expr& e) {
      return e.kind() == Expr::Kind::Symbol || (tree_.roles && has_digits(e));
    };
    for (size_t d = 0; d < at.size(); ++d)
      if (may_leave(task.at[d]) && !proves_in_bounds(task.at[d], shape[d]))
        guard.condition.push_back({at[d], IndexComparison::Kind::Lt, shape[d]});
    builder_.store(value, MemoryId(task.target), std::move(at), std::move(guard), task.cache);
  }
}

void TreeEmitter::note_layouts() {
  if (tree_.roles) return;
  for_each_task(tree_, [&](const LoopTask& task, const auto&) {
    if (task.layout) note_layout(*task.layout);
  });
}

// Makes a transposed tile, for readers with another layout: the value is computed with its two
// dimensions exchanged and transposed then. A plain program, which finds layouts by extents, can
// thus distinguish the two layouts.
void TreeEmitter::turned(const LoopTask& task, const Layout& layout) {
  const TaskTile tile = tile_of(axes_of(task), axes_);
  const DType dtype = body_dtype(task);
  if (layout.rank() != 2) refuse(task.location, "only a tile of two dimensions can be transposed");
  TaskTile other = tile;
  Layout lies = layout;
  std::swap(other.dims[0], other.dims[1]);
  std::swap(other.extents[0], other.extents[1]);
  std::swap(lies.axes[0], lies.axes[1]);
  other.index = tile_of({}, axes_).index;
  for (size_t d = 0; d < other.dims.size(); ++d)
    other.index[name_of(other.dims[d])] += position_symbol('d', d, other.extents[d]);
  note_layout(lies);
  forget();
  const ValueId value = full(body(task.body, task.body.results[0], other), other, dtype);
  forget();
  const ValueType type{dtype, 1, tile.extents};
  define(task, builder_.view(MovementKind::Transpose, value, type, {1, 0}), tile);
}

// Declares a layout. A plain program finds the layouts of tiles by their extents.
void TreeEmitter::note_layout(const Layout& layout) {
  for (const std::vector<Digit>& axis : layout.axes)
    for (const Digit& digit : axis) {
      if (digit.resource == Resource::Warp)
        code_.warps = std::max(code_.warps, digit.stride * digit.extent);
      else if (digit.resource == Resource::Block)
        code_.cluster = std::max(code_.cluster, digit.stride * digit.extent);
    }
  code_.warps = std::max<int64_t>(code_.warps, 1);
  if (std::all_of(layout.axes.begin(), layout.axes.end(),
                  [](const std::vector<Digit>& axis) { return axis.empty(); }))
    return;
  const bool known = std::any_of(code_.layouts.begin(), code_.layouts.end(),
                                 [&](const NamedLayout& named) { return named.layout == layout; });
  if (!known) code_.layouts.push_back({fmt::format("t{}", code_.layouts.size()), layout});
}

}  // namespace braze
