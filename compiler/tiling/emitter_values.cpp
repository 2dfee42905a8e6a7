// emitter_values.cpp — values: what the Inliner asks for, conversions, loads and stores.
#include <algorithm>
#include <cctype>

#include "compiler/lowering/rows.h"
#include "compiler/tiling/emitter_p.h"

namespace braze {

template class Inliner<TileSink>;

namespace {

Condition to_condition(const Conditions& conditions) {
  Condition out;
  for (const RangeCondition& c : conditions) {
    if (!proves_at_most(c.min, c.value)) out.push_back({c.min, IndexComparison::Kind::Le, c.value});
    if (proves_less(c.value, c.limit) != true)
      out.push_back({c.value, IndexComparison::Kind::Lt, c.limit});
  }
  return out;
}

}  // namespace

// --- What the Inliner asks for -------------------------------------------------------------------

TileValue TileSink::load(NodeId node, std::vector<Expr> at, const Conditions& conditions) {
  TileEmitter& e = emitter_;
  if (conditions.empty())
    if (const auto staged = e.staged_value(node, at)) return *staged;
  const DType dtype = e.graph_[node].type.dtype;
  Condition condition = to_condition(conditions);
  std::vector<bool> uses(e.dims_.size());
  for (const Expr& coordinate : at) e.note_uses(coordinate, uses);
  for (const IndexComparison& c : condition) {
    e.note_uses(c.left, uses);
    e.note_uses(c.right, uses);
  }
  for (size_t k = 0; k < e.dims_.size(); ++k) {
    const TileDim& dim = e.dims_[k];
    if (uses[k] && dim.lane) e.add_inside(k, condition);
  }
  const Expr offset = linear_offset(at, e.graph_[node].type.shape);
  const MemoryId memory = e.memory_of_.at({node.index, false});
  const ValueType type = e.tile_type(dtype, uses);
  if (const auto contiguous = e.crossing_dim(offset, type))
    return {e.load_across(memory, offset, condition, type, *contiguous), dtype};
  return {e.builder_.load(memory, e.place(node, std::move(at)), type, {condition, {}}), dtype};
}

TileValue TileSink::reduced(NodeId node, const std::vector<Expr>&, const Conditions&) {
  return emitter_.reduced_.at(node.index);
}

TileValue TileSink::index(const Expr& value, DType dtype) {
  std::vector<bool> uses(emitter_.dims_.size());
  emitter_.note_uses(value, uses);
  return {emitter_.builder_.iota(value, emitter_.tile_type(dtype, uses)), dtype};
}

TileValue TileSink::inside(const Conditions& conditions) {
  const Condition condition = to_condition(conditions);
  if (condition.empty()) return constant(DType::Bool, 1);
  std::vector<bool> uses(emitter_.dims_.size());
  for (const IndexComparison& c : condition) {
    emitter_.note_uses(c.left, uses);
    emitter_.note_uses(c.right, uses);
  }
  return {emitter_.builder_.test(condition, emitter_.tile_type(DType::Bool, uses)), DType::Bool};
}

TileValue TileSink::apply(ElementwiseOp op, std::span<const Value> arguments, DType result) {
  CodeBuilder& builder = emitter_.builder_;
  if (op == ElementwiseOp::convert) return emitter_.converted(arguments[0], result);
  if (op == ElementwiseOp::select && arguments[0].operand.is_literal())
    return arguments[0].operand.bits ? arguments[1] : arguments[2];
  const bool literals = std::all_of(arguments.begin(), arguments.end(),
                                    [](const Value& v) { return v.operand.is_literal(); });
  if (literals && is_machine(op)) {
    uint64_t bits[3] = {};
    for (size_t i = 0; i < arguments.size(); ++i) bits[i] = arguments[i].operand.bits;
    return constant(
        result, evaluate_machine(op, arguments.back().dtype, result, bits[0], bits[1], bits[2]));
  }
  // Moves of 16-bit values need no arithmetic. Everything else is computed in f32 and rounded once.
  const bool moves = op == ElementwiseOp::select || op == ElementwiseOp::bitcast;
  std::vector<ValueOperand> operands;
  for (const Value& argument : arguments)
    operands.push_back(moves ? argument.operand : emitter_.widened(argument).operand);
  if (literals) {
    const Value first = moves ? arguments[0] : emitter_.widened(arguments[0]);
    operands[0] =
        builder.constant(emitter_.tile_type(first.dtype, std::vector<bool>(emitter_.dims_.size())),
                         first.operand.bits);
  }
  if (has_half_body(op, result))
    return emitter_.converted({emit_half_body(builder, op, operands, result), DType::F32}, result);
  const DType computed = moves ? result : compute_type(result);
  const Value value{
      builder.row(op, operands,
                  op == ElementwiseOp::bitcast ? std::optional(result) : std::nullopt),
      computed};
  return emitter_.converted(value, result);
}

Expr TileSink::as_index(const Value& value, const Expr& extent) {
  CodeBuilder& builder = emitter_.builder_;
  const std::vector<bool> none(emitter_.dims_.size());
  const ValueId last = builder.iota(extent - 1, emitter_.tile_type(DType::I64, none));
  ValueOperand clamped =
      builder.row(ElementwiseOp::min, {value.operand.is_literal()
                                           ? ValueOperand::literal(DType::I64, value.operand.bits)
                                           : value.operand,
                                       last});
  clamped = builder.row(ElementwiseOp::max, {clamped, ValueOperand::literal(DType::I64, 0)});
  const Expr symbol = value_symbol(builder.code(), clamped.value);
  emitter_.value_extents_[symbol.symbol_name()] = builder.code()[clamped.value].type.extents;
  return symbol;
}

std::optional<TileValue> TileSink::cached(NodeId node, const std::vector<Expr>& at) {
  TileEmitter& e = emitter_;
  if (const auto staged = e.staged_value(node, at)) return staged;
  for (const KeptValue& kept : e.kept_) {
    if (kept.node != node || kept.first_pass >= e.current_pass_ || e.bound(kept.at) != at) continue;
    const DType dtype = e.graph_[node].type.dtype;
    return Value{e.builder_.load(kept.buffer, e.kept_place(kept), e.full_type(dtype)), dtype};
  }
  return std::nullopt;
}

// --- Tiles --------------------------------------------------------------------------------------

// The type of a value that depends on the dimensions in `uses`.
ValueType TileEmitter::tile_type(DType dtype, const std::vector<bool>& uses) const {
  ValueType type{dtype, 1, {}};
  for (size_t k = 0; k < dims_.size(); ++k) type.extents.push_back(uses[k] ? dims_[k].tile : 1);
  return type;
}

ValueType TileEmitter::full_type(DType dtype) const {
  return tile_type(dtype, std::vector<bool>(dims_.size(), true));
}

// The dimensions on which an expression depends, through positions and through loaded indices.
void TileEmitter::note_uses(const Expr& e, std::vector<bool>& uses) const {
  for (const std::string& symbol : e.symbols()) {
    if (symbol[0] == '%') {
      const auto& extents = value_extents_.at(symbol);
      for (size_t k = 0; k < extents.size(); ++k) uses[k] = uses[k] || extents[k] > 1;
    } else if (symbol[0] == 'd' && symbol.size() > 1 &&
               std::isdigit(static_cast<unsigned char>(symbol[1])) &&
               symbol.find('.') == std::string::npos) {
      const size_t k = std::stoul(symbol.substr(1));
      if (k < uses.size()) uses[k] = true;
    }
  }
}

// Indices that are not clamped.
Bindings TileEmitter::exact_bindings() const {
  Bindings bindings = bindings_;
  for (const auto& [axis, index] : store_bindings_) bindings[axis] = index;
  return bindings;
}

// Where the tile at hand lies inside of dimension `k`.
void TileEmitter::add_inside(size_t k, Condition& condition) const {
  const TileDim& dim = dims_[k];
  if (dim.before) condition.push_back({0, IndexComparison::Kind::Le, dim.base + position(k)});
  if (dim.partial)
    condition.push_back({dim.base + position(k), IndexComparison::Kind::Lt, dim.extent});
}

// Where it lies inside of all its axes; for loads, which clamp all others, of those along lanes.
Condition TileEmitter::inside_extents(bool only_lanes) const {
  Condition condition;
  for (size_t k = 0; k < dims_.size(); ++k) {
    const TileDim& dim = dims_[k];
    if (dim.tile > 1 && (dim.lane || !only_lanes)) add_inside(k, condition);
  }
  return condition;
}

// --- Values -------------------------------------------------------------------------------------

TileValue TileEmitter::evaluate(const ValueAt& value) {
  return inliner_.value(value.node, bound(value.at));
}

// 16-bit floats are storage: arithmetic is in f32.
TileValue TileEmitter::widened(const TileValue& value) {
  if (!is_half(value.dtype)) return value;
  if (value.operand.is_literal())
    return {
        ValueOperand::literal(
            DType::F32, constant_bits(DType::F32, bits_to_double(value.dtype, value.operand.bits))),
        DType::F32};
  auto [found, added] = widened_.try_emplace(value.operand.value.index);
  if (added) found->second = builder_.row(ElementwiseOp::convert, {value.operand}, DType::F32);
  return {found->second, DType::F32};
}

TileValue TileEmitter::converted(const TileValue& value, DType to) {
  if (value.dtype == to) return value;
  if (is_half(value.dtype) && to == DType::F32) return widened(value);
  if (value.operand.is_literal()) {
    const uint64_t bits =
        evaluate_machine(ElementwiseOp::convert, value.dtype, to, value.operand.bits);
    return {ValueOperand::literal(to, bits), to};
  }
  return {builder_.row(ElementwiseOp::convert, {value.operand}, to), to};
}

// `value` broadcast to all dimensions, as carried state must be.
ValueOperand TileEmitter::full(ValueOperand value, DType dtype) {
  const ValueType type = full_type(dtype);
  if (!value.is_literal() && result_.program[value.value].type == type) return value;
  if (value.is_literal()) return builder_.constant(type, value.bits);
  return builder_.view(ViewKind::Broadcast, value, type);
}

void TileEmitter::store_output(const SpaceTask& task, const TileValue& value) {
  // Every active dimension must be in the stored tile, or the store would be incomplete.
  const Condition condition = inside_extents();
  const ValueOperand stored = full(value.operand, value.dtype);
  const MemoryId memory = memory_of_.at({task.node.index, true});
  // An update in place has its lines in the cache already.
  const bool streams = schedule_.stream && result_.program[memory].mode == Mode::Out;
  builder_.store(stored, memory, place(task.node, substitute(task.at, exact_bindings())),
                 {condition, {}}, streams ? CacheHint::Stream : CacheHint::None);
}

void TileEmitter::new_scope() {
  if (!keeps_scope_) forget_values();
}

void TileEmitter::forget_values() {
  inliner_.forget();
  widened_.clear();
}

// --- Values kept between passes
// -------------------------------------------------------------------

// An expensive value that several passes compute at the same coordinates is kept in a buffer.
void TileEmitter::plan_kept_values() {
  kept_.clear();
  if (space_.passes.size() < 2 || rows_in_registers()) return;
  for (const SharedValue& candidate : shared_values(request_.forms, request_.fusion, space_)) {
    const Pass& pass = space_.passes[candidate.first_pass];
    std::vector<int64_t> extents;
    std::vector<Expr> place;
    int64_t elements = 1;
    for (size_t k = 0; k < dims_.size(); ++k) {
      if (static_cast<int>(k) == inner_dim_) continue;
      extents.push_back(dims_[k].tile);
      place.push_back(position_of_axis(dims_[k]));
      elements *= dims_[k].tile;
    }
    for (const SpaceAxis& axis : pass.inner) {
      const int64_t most = axis.extent.range().max;
      if (most > (int64_t{1} << 20)) return;
      // Whole tiles are stored, so the last one needs its room.
      const int64_t room = inner_dim_ >= 0 ? (most + schedule_.inner_tile - 1) /
                                                 schedule_.inner_tile * schedule_.inner_tile
                                           : most;
      extents.push_back(std::max<int64_t>(room, 1));
      place.push_back(axis.symbol);
      elements *= extents.back();
    }
    const DType dtype = graph_[candidate.node].type.dtype;
    if (elements * static_cast<int64_t>(size_of(dtype)) > kept_room()) continue;
    kept_.push_back({candidate.node, candidate.at, builder_.buffer("row", dtype, extents),
                     candidate.first_pass, place});
  }
}

// The number of bytes for values that passes share. On a CPU they should leave the cache some room;
// on a GPU the sums that threads exchange need little.
int64_t TileEmitter::kept_room() const {
  constexpr int64_t kExchangeBytes = 4096;
  int64_t room =
      on_gpu() ? request_.target.l1_bytes - kExchangeBytes : request_.target.l2_bytes / 4;
  for (const KeptValue& kept : kept_) {
    const Memory& memory = result_.program[kept.buffer];
    int64_t bytes = static_cast<int64_t>(size_of(memory.dtype));
    for (const Expr& extent : memory.shape) bytes *= extent.as_constant().value_or(1);
    if (on_gpu()) room -= bytes;
  }
  return room;
}

std::vector<Expr> TileEmitter::kept_place(const KeptValue& kept) const {
  Bindings bindings = bindings_;
  for (size_t k = 0; k < dims_.size(); ++k)
    if (static_cast<int>(k) != inner_dim_) bindings[position_name(dims_[k].axis)] = position(k);
  return substitute(kept.place, bindings);
}

void TileEmitter::keep_values() {
  for (const KeptValue& kept : kept_) {
    if (kept.first_pass != current_pass_) continue;
    const TileValue value = evaluate({kept.node, kept.at});
    builder_.store(full(value.operand, value.dtype), kept.buffer, kept_place(kept));
  }
}

}  // namespace braze
