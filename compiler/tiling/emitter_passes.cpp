// emitter_passes.cpp — the passes over one tile: loops, accumulated values, folds; reductions in
// chunks.

#include <algorithm>

#include "compiler/tiling/emitter_p.h"

namespace braze {

DType accumulator_type(const LoopForm& form) {
  // Terms that are not combined stay as they are.
  const bool combines = form.monoid || form.arg_max;
  return combines ? compute_type(form.accumulator) : form.accumulator;
}

uint64_t identity_bits(const LoopForm& form) {
  const Monoid monoid = form.monoid ? *form.monoid : *form.arg_max ? Monoid::Max : Monoid::Min;
  return info(monoid).identity(accumulator_type(form));
}

void TileEmitter::emit_passes(bool first_from_partials) {
  plan_kept_values();
  keeps_scope_ = rows_in_registers() && !first_from_partials;
  for (size_t n = 0; n < space_.passes.size(); ++n) {
    if (n == 0 && first_from_partials) {
      combine_partials(space_.passes[0]);
    } else {
      emit_pass(n);
    }
  }
  keeps_scope_ = false;
  kept_.clear();
  reduced_.clear();
}

// Runs pass n over its inner axes, the outermost of them within [low, high) if given, and leaves
// the reductions' folded values in `reduced_`.
void TileEmitter::emit_pass(size_t n, const Expr& low, const std::optional<Expr>& high) {
  const Pass& pass = space_.passes[n];
  current_pass_ = n;
  new_scope();
  set_inner_tile(pass);
  // Values in scope have the tile, and the mask, of the pass that computed them.
  if (inner_dim_ >= 0 && !pass.inner.empty()) {
    const TileDim& dim = dims_[static_cast<size_t>(inner_dim_)];
    if (dim.tile != scope_tile_ || !(dim.extent == scope_extent_)) forget_values();
    scope_tile_ = dim.tile;
    scope_extent_ = dim.extent;
  }
  std::vector<Accumulator> accumulators;
  std::vector<ValueOperand> state;
  const bool covered = inner_dim_ >= 0 && pass.inner.size() == 1 && !high &&
                       fits_tile(pass.inner[0].extent) && pass.inner[0].extent.range().max > 0;
  for (const SpaceTask& task : pass.reduces) {
    const LoopForm* form = request_.forms.find(task.node);
    accumulators.push_back({&task, form, state.size()});
    const DType dtype = accumulator_type(*form);
    const uint64_t identity = identity_bits(*form);
    // If a tile covers the whole row, its values are the sum.
    if (covered && !form->arg_max)
      state.push_back(ValueOperand::literal(dtype, identity));
    else
      state.emplace_back(builder_.constant(full_type(dtype), identity));
    if (form->arg_max) state.emplace_back(builder_.constant(full_type(DType::I64), INT64_MAX));
  }
  state = inner_loops(pass, 0, low, high, accumulators, std::move(state));
  new_scope();
  fold(accumulators, state);
  set_inner_tile({});
}

void TileEmitter::set_inner_tile(const Pass& pass) {
  if (inner_dim_ < 0) return;
  TileDim& dim = dims_[static_cast<size_t>(inner_dim_)];
  dim.tile = pass.inner.empty()
                 ? 1
                 : std::min(schedule_.inner_tile,
                            ceil_power_of_two((pass.inner.back().extent + lead_).range().max));
  dim.axis = pass.inner.empty() ? "" : pass.inner.back().symbol.symbol_name();
  dim.extent = pass.inner.empty() ? Expr(1) : pass.inner.back().extent;
  dim.base = 0;
  dim.partial = dim.before = false;
  if (on_gpu() && !pass.inner.empty()) define_layout();
}

std::vector<ValueOperand> TileEmitter::inner_loops(const Pass& pass, size_t depth, const Expr& low,
                                                   const std::optional<Expr>& high,
                                                   const std::vector<Accumulator>& accumulators,
                                                   std::vector<ValueOperand> state) {
  if (depth == pass.inner.size()) return inner_step(pass, accumulators, state);
  const SpaceAxis& axis = pass.inner[depth];
  if (axis.extent.range().max <= 0) return state;  // an empty sum, whose body may have no meaning
  const Expr first = depth == 0 ? low : Expr(0);
  const Expr end = depth == 0 && high ? *high : axis.extent;
  const bool innermost = depth + 1 == pass.inner.size();
  if (innermost && schedule_.slice > 0 && !pass.reduces.empty())
    return slice_loop(pass, first, end, accumulators, std::move(state));
  const auto body = [&](const Expr& index, std::vector<ValueOperand> carried) {
    bindings_[axis.symbol.symbol_name()] = index;
    new_scope();
    return inner_loops(pass, depth + 1, 0, std::nullopt, accumulators, std::move(carried));
  };
  if (!innermost || inner_dim_ < 0) {
    return loop("k", first, end, 1, std::move(state), innermost ? schedule_.unroll : 1,
                [&](const Expr& k, std::vector<ValueOperand> carried) {
                  return body(k, std::move(carried));
                });
  }
  TileDim& dim = dims_[static_cast<size_t>(inner_dim_)];
  const auto at_tile = [&](const Expr& base, bool partial, std::vector<ValueOperand> carried) {
    dim.base = base;
    dim.partial = partial;
    return body(base + position(static_cast<size_t>(inner_dim_)), std::move(carried));
  };
  Expr begin = first, length = end - first;
  if (const Expr lead = lead_.substitute(bindings_); !lead.is_constant(0)) {
    dim.before = true;
    state = at_tile(first - lead, true, std::move(state));
    dim.before = false;
    if (fits_tile(length)) return state;
    begin = first - lead + dim.tile;
    length = max(end - begin, 0);
  }
  if (fits_tile(length)) return at_tile(begin, !length.is_constant(dim.tile), std::move(state));
  const Expr whole = floordiv(length, dim.tile) * Expr(dim.tile);
  const Expr whole_end = begin + whole;
  if (!(whole.is_constant(0))) {
    if (length.is_constant(dim.tile)) {
      state = at_tile(begin, false, std::move(state));
    } else {
      state = loop("k", begin, whole_end, dim.tile, std::move(state), 1,
                   [&](const Expr& k, std::vector<ValueOperand> carried) {
                     return at_tile(k, false, std::move(carried));
                   });
    }
  }
  if (length.is_multiple_of(dim.tile)) return state;
  // The tail: a loop of at most one turn, so that it can carry values.
  if (whole.is_constant(0) && length.as_constant().value_or(0) > 0)
    return at_tile(begin, true, std::move(state));
  return loop("k", whole_end, end, dim.tile, std::move(state), 1,
              [&](const Expr& k, std::vector<ValueOperand> carried) {
                return at_tile(k, true, std::move(carried));
              });
}

std::vector<ValueOperand> TileEmitter::loop(std::string_view hint, const Expr& low,
                                            const Expr& high, const Expr& step,
                                            std::vector<ValueOperand> state, int64_t unroll,
                                            const LoopBody& body) {
  const auto results = builder_.for_loop(
      hint, low, high, step, std::move(state),
      [&](Expr k, const std::vector<ValueId>& carried) {
        return body(k, {carried.begin(), carried.end()});
      },
      unroll);
  new_scope();
  return {results.begin(), results.end()};
}

// One tile of the innermost loop: fill caches, accumulate, store.
std::vector<ValueOperand> TileEmitter::inner_step(const Pass& pass,
                                                  const std::vector<Accumulator>& accumulators,
                                                  std::vector<ValueOperand> state) {
  keep_values();
  for (const Accumulator& accumulator : accumulators) accumulate(accumulator, state);
  // All values are computed before the first store, because an output may take over the memory of
  // an input.
  std::vector<TileValue> values;
  for (const SpaceTask& task : pass.stores) values.push_back(evaluate({task.node, task.at}));
  for (size_t i = 0; i < values.size(); ++i) store_output(pass.stores[i], values[i]);
  return state;
}

void TileEmitter::accumulate(const Accumulator& accumulator, std::vector<ValueOperand>& state) {
  const LoopForm& form = *accumulator.form;
  const DType dtype = accumulator_type(form);
  TileValue value = inliner_.reduction_body(accumulator.task->node, bound(accumulator.task->at),
                                            bound(accumulator.task->reduction));
  value = converted(value, dtype);
  ValueOperand& sum = state[accumulator.first];
  const bool padded = inner_dim_ >= 0 && dims_[static_cast<size_t>(inner_dim_)].partial;
  if (form.arg_max) {
    accumulate_arg(accumulator, value, padded, state);
    return;
  }
  const auto padded_addend = [&] {
    return padded ? select_inside(value.operand, dtype, identity_bits(form)) : value.operand;
  };
  if (sum.is_literal()) {
    sum = full(padded_addend(), dtype);
    return;
  }
  const RowOp* product = *form.monoid == Monoid::Sum && is_floating(dtype) && !padded &&
                                 may_join(accumulator.task->node, form)
                             ? last_product(value)
                             : nullptr;
  if (product) {
    const std::vector<ValueOperand> operands = {product->operands[0], product->operands[1], sum};
    sum = full(builder_.row(ElementwiseOp::fma, operands), dtype);
    return;
  }
  sum = full(builder_.row(info(*form.monoid).combine, {sum, padded_addend()}), dtype);
}

// Whether a sum of products may take them before they are rounded: those of the op that sums, and
// products that nothing else needs in rounded form.
bool TileEmitter::may_join(NodeId sum, const LoopForm& form) const {
  if (form.body.back().kind == BodyStep::Kind::Apply) return true;
  NodeId summed = graph_[sum].operands[0];
  while (!graph_[summed].as<MapOp>() && !graph_[summed].operands.empty())
    summed = graph_[summed].operands[0];  // through movement
  return request_.relaxed && (*request_.relaxed)[summed.index];
}

// The statement just emitted, if it is the product that made `value`.
const RowOp* TileEmitter::last_product(const TileValue& value) const {
  const Statement* last = builder_.last_statement();
  if (value.operand.is_literal() || !last) return nullptr;
  const RowOp* row = last->as<RowOp>();
  const bool made = row && row->op == ElementwiseOp::mul && last->results[0] == value.operand.value;
  return made && !row->operands[0].is_literal() && !row->operands[1].is_literal() ? row : nullptr;
}

// (v, i) replaces the kept pair if v is a NaN where the kept value is none, or wins by order;
// equal values keep the lesser index.
void TileEmitter::accumulate_arg(const Accumulator& accumulator, const TileValue& value,
                                 bool padded, std::vector<ValueOperand>& state) {
  const LoopForm& form = *accumulator.form;
  const DType dtype = accumulator_type(form);
  ValueOperand& best = state[accumulator.first];
  ValueOperand& best_index = state[accumulator.first + 1];
  ValueOperand candidate = value.operand;
  ValueOperand index = sink_.index(bound(accumulator.task->reduction)[0], DType::I64).operand;
  if (padded) {
    candidate = select_inside(candidate, dtype, identity_bits(form));
    index = select_inside(index, DType::I64, INT64_MAX);
  }
  if (candidate.is_literal()) candidate = builder_.constant(full_type(dtype), candidate.bits);
  const auto row = [&](ElementwiseOp op, std::vector<ValueOperand> operands) {
    return ValueOperand(builder_.row(op, std::move(operands)));
  };
  ValueOperand wins = row(*form.arg_max ? ElementwiseOp::gt : ElementwiseOp::lt, {candidate, best});
  ValueOperand ties = row(ElementwiseOp::eq, {candidate, best});
  if (is_floating(dtype)) {
    const ValueOperand is_nan = row(ElementwiseOp::is_nan, {candidate});
    const ValueOperand was_nan = row(ElementwiseOp::is_nan, {best});
    wins = row(ElementwiseOp::logical_or,
               {wins, row(ElementwiseOp::logical_and,
                          {is_nan, row(ElementwiseOp::logical_not, {was_nan})})});
    ties =
        row(ElementwiseOp::logical_or, {ties, row(ElementwiseOp::logical_and, {is_nan, was_nan})});
  }
  const ValueOperand earlier =
      row(ElementwiseOp::logical_and, {ties, row(ElementwiseOp::lt, {index, best_index})});
  const ValueOperand take = row(ElementwiseOp::logical_or, {wins, earlier});
  best = full(row(ElementwiseOp::select, {take, candidate, best}), dtype);
  best_index = full(row(ElementwiseOp::select, {take, index, best_index}), DType::I64);
}

// `value` where the tile lies inside the inner extent, `identity` beyond.
ValueOperand TileEmitter::select_inside(ValueOperand value, DType dtype, uint64_t identity) {
  std::vector<bool> uses(dims_.size());
  uses[static_cast<size_t>(inner_dim_)] = true;
  Condition inside;
  add_inside(static_cast<size_t>(inner_dim_), inside);
  const ValueId in = builder_.test(std::move(inside), tile_type(DType::Bool, uses));
  if (value.is_literal()) value = builder_.constant(tile_type(dtype, uses), value.bits);
  return builder_.row(ElementwiseOp::select, {in, value, ValueOperand::literal(dtype, identity)});
}

void TileEmitter::fold(const std::vector<Accumulator>& accumulators,
                       const std::vector<ValueOperand>& state) {
  const bool fold_inner = inner_dim_ >= 0 && dims_[static_cast<size_t>(inner_dim_)].tile > 1;
  for (const Accumulator& accumulator : accumulators) {
    const LoopForm& form = *accumulator.form;
    const DType dtype = accumulator_type(form);
    if (form.arg_max) {
      ValueOperand best = state[accumulator.first], index = state[accumulator.first + 1];
      if (fold_inner) index = builder_.arg_fold(*form.arg_max, best, index, {inner_dim_}).second;
      reduced_[accumulator.task->node.index] = {index, DType::I64};
      continue;
    }
    ValueOperand total = state[accumulator.first];
    if (fold_inner)
      total = on_gpu() ? fold_digits(*form.monoid, total)
                       : ValueOperand(builder_.fold(*form.monoid, total, {inner_dim_}));
    // Partial results keep the accumulator's precision.
    reduced_[accumulator.task->node.index] =
        partial_ ? TileValue{total, dtype} : converted({total, dtype}, form.result);
  }
}

// --- In chunks, added up in a second phase
// ---------------------------------------------------------

// Each chunk of the outermost reduction axis leaves its sums in a workspace.
void TileEmitter::emit_partial_phase() {
  const Pass& pass = space_.passes.front();
  std::vector<Expr> shape{schedule_.split};
  for (const SpaceAxis& axis : space_.parallel) shape.push_back(axis.extent);
  for (const SpaceTask& task : pass.reduces) {
    const LoopForm* form = request_.forms.find(task.node);
    BRAZE_CHECK(!form->arg_max, "an arg-reduction cannot be split");
    partials_.push_back(builder_.add_memory({.name = "partial",
                                             .space = MemorySpace::Workspace,
                                             .mode = Mode::InOut,
                                             .dtype = accumulator_type(*form),
                                             .shape = shape,
                                             .align = 64}));
  }
  const std::string chunk_name = builder_.fresh_name("chunk");
  const Expr chunk = grid_symbol(chunk_name, schedule_.split);
  const Expr& extent = pass.inner.front().extent;
  const int64_t unit = pass.inner.size() == 1 ? std::max(schedule_.inner_tile, schedule_.slice) : 1;
  const Expr length = ceildiv(extent, schedule_.split * unit) * Expr(unit);
  emit_phase(
      [&] {
        const Expr low = builder_.let("low", min(chunk * length, extent));
        // Of chunks of one length, the length is known.
        const Expr high = extent.is_multiple_of(schedule_.split * unit)
                              ? low + length
                              : builder_.let("high", min(chunk * length + length, extent));
        partial_ = true;
        emit_pass(0, low, high);
        partial_ = false;
        const Bindings bindings = exact_bindings();
        for (size_t i = 0; i < pass.reduces.size(); ++i) {
          const TileValue& sum = reduced_.at(pass.reduces[i].node.index);
          builder_.store(full(sum.operand, sum.dtype), partials_[i], partial_place(chunk, bindings),
                         {inside_extents(), {}});
        }
        reduced_.clear();
      },
      {{chunk_name, schedule_.split}});
}

// Adds the chunks in order.
void TileEmitter::combine_partials(const Pass& pass) {
  current_pass_ = 0;
  set_inner_tile({});
  if (on_gpu() && holds_chunks()) {
    fold_partials(pass);
    return;
  }
  std::vector<ValueOperand> state;
  for (const SpaceTask& task : pass.reduces) {
    const LoopForm* form = request_.forms.find(task.node);
    const DType dtype = accumulator_type(*form);
    state.emplace_back(builder_.constant(full_type(dtype), identity_bits(*form)));
  }
  state = loop("chunk", 0, schedule_.split, 1, std::move(state), 1,
               [&](const Expr& chunk, std::vector<ValueOperand> carried) {
                 for (size_t i = 0; i < pass.reduces.size(); ++i) {
                   const LoopForm* form = request_.forms.find(pass.reduces[i].node);
                   const ValueId part = builder_.load(partials_[i], partial_place(chunk, bindings_),
                                                      full_type(accumulator_type(*form)),
                                                      {inside_extents(/*only_lanes=*/true), {}});
                   carried[i] = builder_.row(info(*form->monoid).combine, {carried[i], part});
                 }
                 return carried;
               });
  for (size_t i = 0; i < pass.reduces.size(); ++i) {
    const LoopForm* form = request_.forms.find(pass.reduces[i].node);
    reduced_[pass.reduces[i].node.index] =
        converted({state[i], accumulator_type(*form)}, form->result);
  }
}

// Whether a thread's registers hold its elements of all chunks.
bool TileEmitter::holds_chunks() const {
  constexpr int64_t kMost = 128;
  int64_t elements = schedule_.split;
  for (const TileDim& dim : dims_) elements *= dim.tile;
  return schedule_.slice == 0 || elements <= kMost * result_.program.warps * kWarpThreads;
}

// The same with all chunks at once: one more axis of a tile.
void TileEmitter::fold_partials(const Pass& pass) {
  const auto chunk_axis = static_cast<int64_t>(dims_.size());
  for (size_t i = 0; i < pass.reduces.size(); ++i) {
    const LoopForm* form = request_.forms.find(pass.reduces[i].node);
    const ValueType type = full_type(accumulator_type(*form));
    ValueType chunks = type;
    chunks.extents.push_back(schedule_.split);
    add_layout(default_layout(chunks.extents, result_.program.warps * kWarpThreads));
    const Expr chunk = position_symbol('d', dims_.size(), schedule_.split);
    const ValueId parts =
        builder_.load(partials_[i], partial_place(chunk, bindings_), chunks,
                      {inside_extents(/*only_lanes=*/true), {}}, identity_bits(*form));
    const ValueId sum = builder_.fold(*form->monoid, parts, {chunk_axis});
    const ValueId value = builder_.view(ViewKind::Reshape, sum, type);
    reduced_[pass.reduces[i].node.index] =
        converted({value, accumulator_type(*form)}, form->result);
  }
}

// Where the partial results of a chunk lie: [chunk, parallel axes].
std::vector<Expr> TileEmitter::partial_place(const Expr& chunk, const Bindings& bindings) const {
  std::vector<Expr> place{chunk};
  for (const SpaceAxis& axis : space_.parallel) place.push_back(axis.symbol.substitute(bindings));
  return place;
}

}  // namespace braze
