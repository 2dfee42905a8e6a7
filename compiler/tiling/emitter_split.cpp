// emitter_split.cpp — reductions in chunks, added up in a second phase.

#include "compiler/tiling/emitter_p.h"

namespace braze {

// Each chunk of the outermost reduction axis leaves its sums in a workspace.
void TileEmitter::emit_partial_phase() {
  const Pass& pass = space_.passes.front();
  std::vector<Expr> shape{schedule_.split};
  for (const SpaceAxis& axis : space_.parallel) shape.push_back(axis.extent);
  for (const SpaceTask& task : pass.reduces) {
    const LoopForm* form = request_.forms.find(task.node);
    BRAZE_CHECK(!form->arg_max, "arg-reductions are not split");
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
