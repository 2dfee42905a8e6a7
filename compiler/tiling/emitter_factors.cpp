// emitter_factors.cpp — contractions: factors copied to where the inner loop reads them.

#include <algorithm>

#include "compiler/tiling/emitter_p.h"

namespace braze {

namespace {

constexpr int64_t kCopyVectors = 4;    // of one step of a copy
constexpr int64_t kLineElements = 16;  // of four bytes in a cache line

}  // namespace

const TileDim* TileEmitter::row_dim() const {
  for (const TileDim& dim : dims_)
    if (!dim.lane) return &dim;
  return nullptr;
}

void TileEmitter::plan_factors() {
  if (!schedule_.pack && !schedule_.stage && schedule_.slice == 0) return;
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

// Panels of the lanes' factor, as wide as a tile: [batch axes, panel, inner axes, lane]. The inner
// loop reads them front to back.
void TileEmitter::emit_pack_phase(const Factor& factor) {
  const SpaceAxis& lane = space_.parallel[static_cast<size_t>(schedule_.lane_axis)];
  const int64_t width = schedule_.tile[static_cast<size_t>(schedule_.lane_axis)];
  const std::string& lane_name = lane.symbol.symbol_name();
  StagedFactor staged{factor.value, {}, {}, compute_type(graph_[factor.value.node].type.dtype)};
  std::vector<Expr> shape;
  std::vector<GridAxis> grid;
  Bindings bindings;
  for (const SpaceAxis& axis : space_.parallel) {
    const std::string& name = axis.symbol.symbol_name();
    const bool used = std::any_of(factor.value.at.begin(), factor.value.at.end(),
                                  [&](const Expr& e) { return e.uses(name); });
    if (name == lane_name || !used) continue;
    const std::string symbol = builder_.fresh_name("g");
    grid.push_back({symbol, axis.extent});
    bindings[name] = grid_symbol(symbol, axis.extent);
    shape.push_back(axis.extent);
    staged.place.push_back(axis.symbol);
  }
  const Expr panels = ceildiv(lane.extent, width);
  const std::string panel = builder_.fresh_name("panel");
  grid.push_back({panel, panels});
  shape.push_back(panels);
  staged.place.push_back(floordiv(lane.symbol, width));
  for (const SpaceAxis& axis : space_.passes.front().inner) {
    shape.push_back(axis.extent);
    staged.place.push_back(axis.symbol);
  }
  shape.push_back(width);
  staged.place.push_back(mod(lane.symbol, width));
  staged.memory = builder_.add_memory({.name = "panels",
                                       .space = MemorySpace::Workspace,
                                       .mode = Mode::InOut,
                                       .dtype = staged.dtype,
                                       .shape = shape,
                                       .align = 64});

  // A factor that lies along the inner axis is read along it and transposed tile by tile.
  std::vector<TileDim> dims{{.axis = lane_name,
                             .extent = lane.extent,
                             .tile = width,
                             .base = grid_symbol(panel, panels) * Expr(width),
                             .lane = !factor.across,
                             .partial = !lane.extent.is_multiple_of(width)}};
  const Expr column = dims[0].base + position_symbol('d', 0, width);
  const bool clamped = factor.across && dims[0].partial;
  bindings[lane_name] = clamped ? min(column, lane.extent - 1) : column;
  const auto loops = inner_copy_loops(dims, factor.across);
  Region region;
  builder_.enter(region);
  copy_factor(staged, std::move(dims), std::move(bindings), loops, factor.across);
  builder_.leave();
  add_phase(std::move(grid), std::move(region));
  staged_.push_back(std::move(staged));
}

// Buffers for the rows' factors of one tile: [row, inner axes], or [inner axes, row] where the rows
// are contiguous.
void TileEmitter::declare_row_buffers() {
  row_buffers_.clear();
  if (!schedule_.stage) return;
  const TileDim& row = *row_dim();
  for (const Factor& factor : factors_) {
    if (factor.lanes) continue;
    StagedFactor staged{factor.value, {}, {}, compute_type(graph_[factor.value.node].type.dtype)};
    std::vector<int64_t> extents;
    for (const SpaceAxis& axis : space_.passes.front().inner) {
      extents.push_back(std::max<int64_t>(axis.extent.range().max, 1));
      staged.place.push_back(axis.symbol);
    }
    if (factor.across) {
      // Whole vectors are stored. Rows an odd number of lines apart do not share a cache set.
      const int64_t unit = kCopyVectors * request_.target.vector_lanes(4);
      extents.back() = (extents.back() + unit - 1) / unit * unit + kLineElements;
      extents.insert(extents.begin(), row.tile);
      staged.place.insert(staged.place.begin(), position_of_axis(row));
    } else {
      extents.push_back(ceil_power_of_two(row.tile));
      staged.place.push_back(position_of_axis(row));
    }
    staged.memory = builder_.buffer("rows", staged.dtype, extents);
    row_buffers_.push_back(std::move(staged));
  }
}

// Fills the buffers for the tile of rows at hand.
void TileEmitter::stage_rows(const TileDim& row) {
  size_t next = 0;
  for (const Factor& factor : factors_) {
    if (factor.lanes || row_buffers_.empty()) continue;
    const StagedFactor& staged = row_buffers_[next++];
    std::vector<TileDim> dims;
    Bindings bindings = bindings_;
    std::vector<CopyLoop> loops;
    if (factor.across) {
      loops = inner_copy_loops(dims, true);
      CopyLoop rows{row.axis, row.base, row.tile};
      if (row.partial) rows.last = row.extent - 1;
      loops.insert(loops.begin(), std::move(rows));
    } else {
      dims.push_back(row);
      dims[0].lane = true;
      bindings[row.axis] = row.base + position_symbol('d', 0, row.tile);
      loops = inner_copy_loops(dims, false);
    }
    copy_factor(staged, std::move(dims), std::move(bindings), loops, false);
    staged_.push_back(staged);
  }
}

// The loops over the inner axes; the last in steps of vectors, which become the tile's last
// dimension, if `tile_last`.
std::vector<CopyLoop> TileEmitter::inner_copy_loops(std::vector<TileDim>& dims,
                                                    bool tile_last) const {
  std::vector<CopyLoop> loops;
  const auto& inner = space_.passes.front().inner;
  for (const SpaceAxis& axis : inner) loops.push_back({axis.symbol.symbol_name(), 0, axis.extent});
  if (!tile_last) return loops;
  CopyLoop& last = loops.back();
  last.step = std::min<int64_t>(kCopyVectors * request_.target.vector_lanes(4),
                                ceil_power_of_two(last.count.range().max));
  if (!dims.empty()) last.step = std::min<int64_t>(last.step, request_.target.vector_lanes(4));
  last.dim = static_cast<int>(dims.size());
  dims.push_back({.axis = last.axis, .extent = last.count, .tile = last.step, .lane = true});
  return loops;
}

// Runs the loops with tiles along `dims` in place of the kernel's.
void TileEmitter::copy_factor(const StagedFactor& staged, std::vector<TileDim> dims,
                              Bindings bindings, std::span<const CopyLoop> loops, bool across) {
  std::swap(dims_, dims);
  std::swap(bindings_, bindings);
  new_scope();
  copy_loops(staged, loops, across);
  new_scope();
  std::swap(dims_, dims);
  std::swap(bindings_, bindings);
}

void TileEmitter::copy_loops(const StagedFactor& staged, std::span<const CopyLoop> loops,
                             bool across) {
  if (loops.empty()) return copy_tile(staged, across);
  const CopyLoop& loop = loops.front();
  const auto turn = [&](const Expr& begin, bool partial) {
    Expr index = loop.base + begin;
    if (loop.dim >= 0) {
      TileDim& dim = dims_[static_cast<size_t>(loop.dim)];
      dim.base = index;
      dim.partial = partial;
      index += position(static_cast<size_t>(loop.dim));
    }
    bindings_[loop.axis] = loop.last ? min(index, *loop.last) : index;
    bindings_[position_name(loop.axis)] = begin;
    new_scope();
    copy_loops(staged, loops.subspan(1), across);
  };
  const Expr whole = floordiv(loop.count, loop.step) * Expr(loop.step);
  if (!whole.is_constant(0))
    loop_or_once(0, whole, loop.step, whole.is_constant(loop.step),
                 [&](const Expr& begin) { turn(begin, false); });
  if (!loop.count.is_multiple_of(loop.step))
    builder_.if_then({{whole, IndexComparison::Kind::Lt, loop.count}}, [&] { turn(whole, true); });
}

void TileEmitter::copy_tile(const StagedFactor& staged, bool across) {
  const TileValue value = widened(evaluate(staged.value));
  ValueOperand tile = full(value.operand, value.dtype);
  if (across)
    tile = builder_.view(ViewKind::Transpose, tile,
                         {value.dtype, 1, {dims_[1].tile, dims_[0].tile}}, {1, 0});
  Bindings bindings = bindings_;
  Guard guard;
  for (size_t k = 0; k < dims_.size(); ++k) {
    const TileDim& dim = dims_[k];
    const Expr position = position_symbol('d', across ? 1 - k : k, dim.tile);
    bindings[dim.axis] = dim.base + position;
    bindings[position_name(dim.axis)] = position;
    // Panels have no room beyond the inner axes, buffers have.
    if (across && k == 1 && dim.partial)
      guard.condition.push_back({dim.base + position, IndexComparison::Kind::Lt, dim.extent});
  }
  builder_.store(tile, staged.memory, substitute(staged.place, bindings), guard);
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

}  // namespace braze
