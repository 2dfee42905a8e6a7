// emitter_slices.cpp — slices of factors on a GPU: a block multiplies one of each while it fetches
// the next ones.
#include <algorithm>

#include "compiler/tiling/emitter_p.h"

namespace braze {

namespace {

// A factor, and how its slices are fetched.
struct SlicedFactor {
  StagedFactor staged;
  bool lanes = false;   // along the axis of the lanes, else along that of the rows
  bool across = false;  // lies in memory along the reduced axis
  bool computed = false;
  bool ahead = false;  // copied while earlier slices are multiplied, else fetched and then stored
  int64_t vector = 1;  // neighbours that one thread fetches
};

// The symbol, in places of slices, of the one that is meant.
Expr slot_symbol() { return Expr::symbol("slice.slot", {0, kMostSlots - 1}); }

}  // namespace

class SliceLoop {
 public:
  SliceLoop(TileEmitter& emitter, const Pass& pass, const std::vector<Accumulator>& accumulators)
      : emitter_(emitter),
        builder_(emitter.builder_),
        schedule_(emitter.schedule_),
        dims_(emitter.dims_),
        bindings_(emitter.bindings_),
        group_(emitter.group_),
        pass_(pass),
        accumulators_(accumulators) {}

  // Indices [begin, end) of the reduced axis.
  std::vector<ValueOperand> run(const Expr& begin, const Expr& end,
                                std::vector<ValueOperand> state);

 private:
  using Body = TileEmitter::Body;
  using LoopBody = TileEmitter::LoopBody;

  int64_t slots() const { return std::max<int64_t>(schedule_.stages, 2); }
  void declare_slices();
  void at_fetch(size_t factor, const Expr& begin, const Expr& end, bool partial, const Body& body);
  ValueOperand fetch(size_t factor, const Expr& begin, const Expr& end, bool partial);
  ValueOperand zero_beyond(const ValueOperand& tile, const Expr& end);
  void put(size_t factor, const ValueOperand& values, const Expr& slot);
  std::vector<ValueOperand> steps(const Expr& count, int64_t each, std::vector<ValueOperand> state,
                                  int64_t unroll, const Body& copy, const LoopBody& body);
  std::vector<ValueOperand> multiply_matrices(std::vector<ValueOperand> state, const Body& copy);
  ValueId matrix(const StagedFactor& staged, bool right, const Expr& step);
  std::vector<ValueOperand> multiply_slice(const Expr& begin, const Expr& count,
                                           std::vector<ValueOperand> state, const Body& copy);

  TileEmitter& emitter_;
  CodeBuilder& builder_;
  const Schedule& schedule_;
  std::vector<TileDim>& dims_;
  Bindings& bindings_;
  StepGroup& group_;
  const Pass& pass_;
  const std::vector<Accumulator>& accumulators_;
  std::vector<SlicedFactor> slices_;
};

// Two slices of each factor: [slot, reduced axis, lanes or rows]; a factor of the rows that lies
// along the reduced axis stays so, and several steps are read at once.
void SliceLoop::declare_slices() {
  constexpr int64_t kAccessBytes = 16;
  const SpaceAxis& inner = pass_.inner.back();
  group_.axis = inner.symbol.symbol_name();
  const Expr step = Expr::symbol(position_name(group_.axis), {0, schedule_.slice - 1});
  for (const Factor& factor : emitter_.factors_) {
    const TileDim& dim = dims_[factor.lanes ? 1 : 0];
    const DType dtype = compute_type(emitter_.graph_[factor.value.node].type.dtype);
    const int64_t vector = kAccessBytes / static_cast<int64_t>(size_of(dtype));
    SlicedFactor slice{{factor.value, {}, {}, dtype},
                       factor.lanes,
                       factor.across,
                       factor.computed,
                       schedule_.stages > 0 && !factor.computed,
                       factor.vector};
    std::vector<int64_t> extents{slots(), schedule_.slice, dim.tile};
    slice.staged.place = {slot_symbol(), step, position_of_axis(dim)};
    if (factor.across && (schedule_.mma || !factor.lanes)) {
      std::swap(extents[1], extents[2]);
      std::swap(slice.staged.place[1], slice.staged.place[2]);
      // The tile that one load takes must differ from that of the sums.
      if (!schedule_.mma && schedule_.slice % vector == 0 && dims_[1].tile > vector)
        slice.staged.together = vector;
    }
    // Rows that are read, or written, side by side by one warp lie in different banks.
    if (schedule_.mma)
      extents[2] += factor.across ? vector : 2 * vector;
    else if (factor.across)
      extents[2] += vector;
    slice.staged.memory = builder_.buffer("slices", dtype, extents);
    slices_.push_back(std::move(slice));
  }
}

// Runs the body with the tile of a factor's slice in place of the kernel's. The tiles of factors
// have ranks of their own, and so layouts of their own.
void SliceLoop::at_fetch(size_t factor, const Expr& begin, const Expr& end, bool partial,
                         const Body& body) {
  const SlicedFactor& slice = slices_[factor];
  TileDim along = dims_[slice.lanes ? 1 : 0];
  along.lane = true;
  TileDim reduced{.axis = group_.axis,
                  .extent = end,
                  .tile = schedule_.slice,
                  .base = begin,
                  .lane = true,
                  .partial = partial};
  std::vector<TileDim> dims(factor + 1);
  dims.push_back(slice.across ? along : reduced);
  dims.push_back(slice.across ? reduced : along);
  Bindings bindings = bindings_;
  std::swap(dims_, dims);
  for (size_t k = factor + 1; k < dims_.size(); ++k) {
    bindings_[dims_[k].axis] = dims_[k].base + emitter_.position(k);
    bindings_[position_name(dims_[k].axis)] = emitter_.position(k);
  }
  std::vector<int64_t> extents, threads(dims_.size(), 1);
  for (const TileDim& dim : dims_) extents.push_back(dim.tile);
  const int64_t all = emitter_.result_.program.warps * kWarpThreads;
  threads.back() = std::min(all, std::max<int64_t>(extents.back() / slice.vector, 1));
  threads[threads.size() - 2] = all / threads.back();
  emitter_.add_layout(spread(extents, threads, slice.vector));
  emitter_.fetching_ = true;
  emitter_.new_scope();
  body();
  emitter_.new_scope();
  emitter_.fetching_ = false;
  std::swap(dims_, dims);
  bindings_ = std::move(bindings);
}

ValueOperand SliceLoop::fetch(size_t factor, const Expr& begin, const Expr& end, bool partial) {
  ValueOperand tile;
  at_fetch(factor, begin, end, partial, [&] {
    const ValueAt& at = slices_[factor].staged.value;
    const TileValue value = emitter_.widened(emitter_.evaluate(at));
    tile = emitter_.full(value.operand, value.dtype);
    // Matrices take what lies beyond as they take the rest: it must be zero.
    if (schedule_.mma && partial && slices_[factor].computed) tile = zero_beyond(tile, end);
  });
  return tile;
}

ValueOperand SliceLoop::zero_beyond(const ValueOperand& tile, const Expr& end) {
  const auto reduced = std::find_if(dims_.begin(), dims_.end(),
                                    [&](const TileDim& dim) { return dim.axis == group_.axis; });
  const auto k = static_cast<size_t>(reduced - dims_.begin());
  std::vector<bool> uses(dims_.size());
  uses[k] = true;
  const ValueId inside =
      builder_.test({{reduced->base + emitter_.position(k), IndexComparison::Kind::Lt, end}},
                    emitter_.tile_type(DType::Bool, uses));
  return builder_.row(ElementwiseOp::select, {inside, tile, ValueOperand::literal(DType::F32, 0)});
}

void SliceLoop::put(size_t factor, const ValueOperand& values, const Expr& slot) {
  const StagedFactor& staged = slices_[factor].staged;
  Bindings bindings = bindings_;
  bindings_[slot_symbol().symbol_name()] = slot;
  at_fetch(factor, 0, schedule_.slice, false,
           [&] { builder_.store(values, staged.memory, emitter_.bound(staged.place)); });
  bindings_ = std::move(bindings);
}

// While a slice is multiplied the next ones are under way. What lies beyond the reduced axis is
// fetched as zeros, and multiplied by matrix units alone.
std::vector<ValueOperand> SliceLoop::run(const Expr& begin, const Expr& end,
                                         std::vector<ValueOperand> state) {
  const int64_t length = schedule_.slice;
  const bool whole = (end - begin).is_multiple_of(length) && (end - begin).range().min >= length;
  // Matrices multiply the zeros beyond: their last slice is like the others.
  const Expr turns = builder_.let(
      "turns", schedule_.mma ? ceildiv(end - begin, length) : floordiv(end - begin, length));
  declare_slices();
  // The last turns of whole slices fetch the last once more.
  const auto fetched = [&](size_t factor, const Expr& n) {
    const Expr first = begin + (whole ? min(n, turns - 1) : n) * Expr(length);
    return fetch(factor, first, end, !whole);
  };
  const auto fetch_all = [&](const Expr& n) {
    std::vector<ValueOperand> values(slices_.size());
    for (size_t i = 0; i < slices_.size(); ++i)
      if (!slices_[i].ahead) values[i] = fetched(i, n);
    return values;
  };
  const auto put_all = [&](const std::vector<ValueOperand>& values, const Expr& slot) {
    for (size_t i = 0; i < slices_.size(); ++i)
      if (!slices_[i].ahead) put(i, values[i], slot);
  };
  const auto copy_ahead = [&](const Expr& n, const Expr& slot) {
    for (size_t i = 0; i < slices_.size(); ++i)
      if (slices_[i].ahead) put(i, fetched(i, n), slot);
  };
  for (int64_t n = 0; n + 1 < slots(); ++n) {
    put_all(fetch_all(n), n);
    copy_ahead(n, n);
  }
  const size_t staged = emitter_.staged_.size();
  for (const SlicedFactor& slice : slices_) emitter_.staged_.push_back(slice.staged);
  const auto at_slot = [&](const Expr& slot) { bindings_[slot_symbol().symbol_name()] = slot; };
  state = emitter_.loop("slice", 0, turns, 1, std::move(state), 1,
                        [&](const Expr& turn, std::vector<ValueOperand> carried) {
                          const Expr slot = mod(turn, slots()), next = turn + (slots() - 1);
                          const auto values = fetch_all(next);
                          at_slot(slot);
                          const auto copy = [&] { copy_ahead(next, mod(next, slots())); };
                          carried = schedule_.mma
                                        ? multiply_matrices(std::move(carried), copy)
                                        : multiply_slice(begin + turn * Expr(length), length,
                                                         std::move(carried), copy);
                          put_all(values, mod(next, slots()));
                          return carried;
                        });
  if (!whole && !schedule_.mma) {
    at_slot(mod(turns, slots()));
    const Expr rest = begin + turns * Expr(length);
    state = multiply_slice(rest, end - rest, std::move(state), {});
  }
  emitter_.staged_.resize(staged);
  return state;
}

// The steps of a slice, `each` at a time. What the first reads is there, so what is copied from
// then on cannot overwrite what others still read.
std::vector<ValueOperand> SliceLoop::steps(const Expr& count, int64_t each,
                                           std::vector<ValueOperand> state, int64_t unroll,
                                           const Body& copy, const LoopBody& body) {
  const bool ahead = copy && std::any_of(slices_.begin(), slices_.end(),
                                         [](const SlicedFactor& slice) { return slice.ahead; });
  if (!ahead) return emitter_.loop("k", 0, count, each, std::move(state), unroll, body);
  state = body(0, std::move(state));
  copy();
  if (count.is_constant(each)) return state;
  return emitter_.loop("k", each, count, each, std::move(state), unroll, body);
}

// Eight steps at a time, by the matrix units of the warps.
std::vector<ValueOperand> SliceLoop::multiply_matrices(std::vector<ValueOperand> state,
                                                       const Body& copy) {
  const SlicedFactor& first = slices_[0];
  const StagedFactor &left = slices_[first.lanes ? 1 : 0].staged,
                     &right = slices_[first.lanes ? 0 : 1].staged;
  return steps(schedule_.slice, kMatrixDepth, std::move(state), schedule_.slice / kMatrixDepth,
               copy, [&](const Expr& k, std::vector<ValueOperand> carried) {
                 TileDotOp dot{.a = matrix(left, false, k),
                               .b = matrix(right, true, k),
                               .c = carried[0],
                               .a_buffer = {},
                               .b_buffer = {},
                               .tf32 = true};
                 return std::vector<ValueOperand>{
                     builder_.append(std::move(dot), {emitter_.full_type(DType::F32)}, "dot")[0]};
               });
}

// Rows x steps, or steps x lanes, of the slice at hand.
ValueId SliceLoop::matrix(const StagedFactor& staged, bool right, const Expr& step) {
  Bindings bindings = bindings_;
  bindings[position_name(group_.axis)] = step + position_symbol('d', right ? 0 : 1, kMatrixDepth);
  ValueType type = emitter_.full_type(staged.dtype);
  type.extents[right ? 0 : 1] = kMatrixDepth;
  return builder_.load(staged.memory, substitute(staged.place, bindings), type);
}

// The steps of the slice that begins at index `begin`. Only a count that is known is unrolled.
std::vector<ValueOperand> SliceLoop::multiply_slice(const Expr& begin, const Expr& count,
                                                    std::vector<ValueOperand> state,
                                                    const Body& copy) {
  const bool known = count.as_constant().has_value();
  int64_t together = 1;
  for (StagedFactor& staged : emitter_.staged_) {
    if (!known) staged.together = 1;
    together = std::max(together, staged.together);
  }
  return steps(count, together, std::move(state), known ? schedule_.slice / together : 1, copy,
               [&](const Expr& k, std::vector<ValueOperand> carried) {
                 group_.loaded.clear();
                 group_.begin = k;
                 for (group_.at = 0; group_.at < together; ++group_.at) {
                   bindings_[group_.axis] = begin + k + group_.at;
                   bindings_[position_name(group_.axis)] = k + group_.at;
                   emitter_.new_scope();
                   carried = emitter_.inner_step(pass_, accumulators_, std::move(carried));
                 }
                 return carried;
               });
}

const TileDim* TileEmitter::row_dim() const {
  for (const TileDim& dim : dims_)
    if (!dim.lane) return &dim;
  return nullptr;
}

void TileEmitter::plan_factors() {
  if (schedule_.slice == 0) return;
  const SpaceAxis* row = nullptr;
  for (const SpaceAxis& axis : space_.parallel)
    if (row_dim() && axis.symbol.symbol_name() == row_dim()->axis) row = &axis;
  BRAZE_CHECK(row && schedule_.lane_axis >= 0, "a contraction must have rows and lanes");
  factors_ =
      factors(request_, space_, space_.parallel[static_cast<size_t>(schedule_.lane_axis)], *row);
  if (schedule_.mma && !sums_matrix_products(request_, space_, factors_))
    refuse(kScheduleThreads,
           "matrix units sum products of two factors of 16-bit floats, or of f32 if tf32 is "
           "allowed; this kernel has none",
           "remove mma= from the schedule");
}

std::optional<TileValue> TileEmitter::staged_value(NodeId node, const std::vector<Expr>& at) {
  if (fetching_) return std::nullopt;
  for (const StagedFactor& staged : staged_) {
    if (staged.value.node != node || bound(staged.value.at) != at) continue;
    std::vector<bool> uses(dims_.size());
    for (const Expr& coordinate : at) note_uses(coordinate, uses);
    const ValueId value = load_staged(staged, uses);
    const DType dtype = graph_[node].type.dtype;
    if (dtype == staged.dtype) return TileValue{value, dtype};
    // Widening the narrowed value gives it back.
    const ValueId narrow = builder_.row(ElementwiseOp::convert, {value}, dtype);
    widened_[narrow.index] = value;
    return TileValue{narrow, dtype};
  }
  return std::nullopt;
}

// Several steps of a row's factor lie side by side: one load takes them, each is a part of it.
ValueId TileEmitter::load_staged(const StagedFactor& staged, const std::vector<bool>& uses) {
  if (staged.together == 1)
    return builder_.load(staged.memory, bound(staged.place), tile_type(staged.dtype, uses));
  const ValueType one = tile_type(staged.dtype, uses);
  auto [group, added] = group_.loaded.try_emplace(staged.memory);
  if (added) {
    ValueType type = one;
    type.extents.back() = staged.together;
    Layout layout =
        layout_of(result_.program.layouts, one.extents, result_.program.warps * kWarpThreads);
    layout.axes.back() = {{Resource::Register, 1, staged.together}};
    add_layout(std::move(layout));
    Bindings bindings = bindings_;
    bindings[position_name(group_.axis)] =
        group_.begin + position_symbol('d', type.rank() - 1, staged.together);
    group->second = builder_.load(staged.memory, substitute(staged.place, bindings), type);
  }
  return builder_.view(ViewKind::Slice, group->second, one, {0, group_.at});
}

std::vector<ValueOperand> TileEmitter::slice_loop(const Pass& pass, const Expr& begin,
                                                  const Expr& end,
                                                  const std::vector<Accumulator>& accumulators,
                                                  std::vector<ValueOperand> state) {
  return SliceLoop(*this, pass, accumulators).run(begin, end, std::move(state));
}

}  // namespace braze
