#include "compiler/lowering/lower.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "compiler/lowering/lowering.h"
#include "compiler/lowering/rows.h"
#include "ir/code/index_program.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"
#include "ir/type/tensor_type.h"

namespace braze {

namespace {

constexpr Code kNotLowered{"not-lowered", ErrorKind::Unsupported,
                           "The lowering for this target has no rule for an operation."};

constexpr Code kTileSize{"tile-size", ErrorKind::Unsupported,
                         "A thread would hold more elements of a tile than a value can have."};
constexpr int64_t kMostElements = 256;  // elements of a value of the Kernel IR: K3

ValueType flags_of(ValueType type) {
  type.dtype = DType::Bool;
  return type;
}

}  // namespace

int64_t power_of_two_at_least(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

std::vector<int64_t> dense_strides(const ValueType& tile) {
  std::vector<int64_t> strides(tile.rank());
  int64_t stride = 1;
  for (size_t axis = tile.rank(); axis-- > 0; stride *= tile.extents[axis]) strides[axis] = stride;
  return strides;
}

Lowering::Lowering(const TileProgram& program, const Target& target)
    : tile_(program), target_(target), builder_(kernel_) {
  kernel_.target = target.name;
}

MemoryId Lowering::new_buffer(std::string name, DType dtype, int64_t count) {
  Memory memory{.name = std::move(name),
                .space = MemorySpace::Local,
                .mode = Mode::InOut,
                .dtype = dtype,
                .shape = {Expr(count)}};
  place_buffer(memory, count * static_cast<int64_t>(size_of(dtype)));
  const MemoryId id = builder_.add_memory(std::move(memory));
  builder_.append(BufferOp{id}, {});
  return id;
}

Kernel Lowering::run() {
  lower_signature();
  for (const Phase& phase : tile_.phases) lower_phase(phase);
  remove_dead_code(kernel_);
  return std::move(kernel_);
}

// Symbols keep their names, so nothing else may take them.
void Lowering::lower_signature() {
  kernel_.name = builder_.fresh_name(tile_.name);
  kernel_.schedule = tile_.schedule;
  kernel_.resident = tile_.resident;
  kernel_.symbols = tile_.symbols;
  for (const Expr& symbol : tile_.symbols) builder_.fresh_name(symbol.symbol_name());
  for (const Phase& phase : tile_.phases) {
    for (const GridAxis& axis : phase.grid) builder_.fresh_name(axis.symbol);
    for_each_statement(phase.body, [this](const Statement& s) {
      if (const auto* let = s.as<LetOp>()) builder_.fresh_name(let->symbol);
      if (const auto* loop = s.as<ForOp>()) builder_.fresh_name(loop->symbol);
      if (const auto* role = s.as<TileRoleOp>()) builder_.fresh_name(role->symbol);
    });
  }
  memories_.resize(tile_.memories.size());
  for (const Memory& memory : tile_.memories)
    strides_.push_back(memory.strides.empty() ? row_major_strides(Shape(memory.shape))
                                              : memory.strides);
  values_.resize(tile_.values.size());
  for (const auto& parameter : tile_.parameters) {
    if (const auto* memory = std::get_if<MemoryId>(&parameter)) {
      add_memory(*memory);
    } else {
      const Value& value = tile_[std::get<ValueId>(parameter)];
      define(std::get<ValueId>(parameter),
             builder_.add_scalar_parameter(value.name, value.type.dtype));
    }
  }
  for (size_t i = 0; i < tile_.memories.size(); ++i)
    if (tile_.memories[i].space == MemorySpace::Workspace) add_memory(MemoryId(i));
}

// L4, L16: memory of the kernel has one dimension.
void Lowering::add_memory(MemoryId id) {
  const Memory& memory = tile_[id];
  Memory lowered = memory;
  const std::vector<Expr>& strides = strides_[id.index];
  if (memory.strides.empty()) {
    lowered.shape = {std::accumulate(memory.shape.begin(), memory.shape.end(), Expr(1),
                                     [](const Expr& a, const Expr& b) { return a * b; })};
  } else {
    Expr length = 1;
    for (size_t axis = 0; axis < memory.shape.size(); ++axis)
      length += (memory.shape[axis] - 1) * strides[axis];
    lowered.shape = {length};
  }
  lowered.strides.clear();
  if (memory.space == MemorySpace::Local)
    place_buffer(lowered, lowered.shape[0].as_constant().value() *
                              static_cast<int64_t>(size_of(memory.dtype)));
  memories_[id.index] = builder_.add_memory(std::move(lowered));
}

std::optional<Expr> Lowering::uniform_slot(const std::vector<Expr>& at) const {
  if (at.size() < 2) return std::nullopt;
  for (const std::string& symbol : at[0].symbols())
    if (symbol[0] == '%' || is_position_symbol(symbol, 'd')) return std::nullopt;
  return uniform(at[0]);
}

Condition Lowering::substitute(const Condition& condition, const Positions& map) {
  Condition out;
  for (const IndexComparison& c : condition)
    out.push_back({c.left.substitute(map), c.kind, c.right.substitute(map)});
  return out;
}

void Lowering::define(ValueId tile, ValueOperand kernel) {
  values_[tile.index] = kernel;
  if (!kernel.is_literal())
    renamed_.insert_or_assign("%" + tile_[tile].name, value_symbol(kernel_, kernel.value));
}

std::string_view Lowering::hint(const Statement& statement, size_t i) const {
  const std::string& name = tile_[statement.results[i]].name;
  return std::string_view(name).substr(0, name.find('.'));
}

ValueId Lowering::emit(StatementOp op, const ValueType& type, const Statement& from) {
  return builder_.append(std::move(op), {type}, hint(from), from.location)[0];
}

void Lowering::lower_region(const Region& region) {
  for (size_t i = 0; i < region.statements.size(); ++i) {
    if (const size_t copies = lower_copies(region, i)) {
      i += copies - 1;
      continue;
    }
    const Statement& statement = region.statements[i];
    std::visit([&](const auto& op) { lower_op(op, statement); }, statement.op);
  }
}

// --- One overload for each operation -------------------------------------------------------------

void Lowering::lower_op(const LetOp& op, const Statement&) {
  meanings_[op.symbol] = resolved(uniform(op.value));
  builder_.append(LetOp{op.symbol, uniform(op.value)}, {});
}

void Lowering::lower_const(const ConstOp& op, const Statement& s) {
  define(s.results[0], emit(op, array_type(s.results[0]), s));
}

void Lowering::lower_op(const IndexOp& op, const Statement& s) {  // L7
  const Form own = form(s.results[0]);
  define(s.results[0], emit(IndexOp{op.value.substitute(own.positions)}, own.type, s));
}

void Lowering::lower_op(const TestOp& op, const Statement& s) {  // L7
  const Form own = form(s.results[0]);
  define(s.results[0], emit(TestOp{substitute(op.condition, own.positions)}, own.type, s));
}

// L5: the number of an element from the coordinates of its place.
Expr Lowering::offset(MemoryId memory, const std::vector<Expr>& at, const Positions& map) const {
  Expr sum;
  for (size_t axis = 0; axis < at.size(); ++axis)
    sum += at[axis].substitute(map) * strides_[memory.index][axis];
  return sum;
}

// The expression in terms of what lets and loops begin with. What is known of a symbol alone is
// less: a sum with it may be a multiple of a number although the symbol is not.
Expr Lowering::resolved(const Expr& e) const {
  Expr out = e;
  for (const std::string& symbol : e.symbols())
    if (const auto found = meanings_.find(symbol); found != meanings_.end())
      out = out.substitute(symbol, found->second);
  return out;
}

// L6: the alignment in bytes, as far as it is proven for the address of lane 0.
int64_t Lowering::alignment(MemoryId memory, const Expr& at) const {
  const Memory& m = tile_[memory];
  const int64_t bytes = static_cast<int64_t>(size_of(m.dtype));
  const int64_t base = m.space == MemorySpace::Parameter ? std::max(m.align, bytes) : 64;
  const Expr first = resolved(at.substitute("lane", 0));
  int64_t align = base & -base;
  while (align > bytes && !first.is_multiple_of(align / bytes) &&
         !mod(first, align / bytes).is_constant(0))
    align /= 2;
  return align > bytes ? align : 0;
}

Condition Lowering::clipped(MemoryId memory, const std::vector<Expr>& at, const Form& form) const {
  Condition out;
  for (size_t axis = 0; axis < at.size(); ++axis) {
    const Expr place = at[axis].substitute(form.positions);
    const Expr& extent = tile_[memory].shape[axis];
    if (place.range().min < 0) out.push_back({place, IndexComparison::Kind::Ge, 0});
    if (proves_less(place, extent) != true)
      out.push_back({place, IndexComparison::Kind::Lt, extent});
  }
  return out;
}

// L6, L3: excludes lanes beyond the tile's innermost extent, and threads for which `more` does not
// hold. `clip` becomes the condition that all coordinates are inside.
Guard Lowering::lower_guard(const Guard& guard, MemoryId memory, const std::vector<Expr>& at,
                            const Form& form, Condition more) {
  Guard out;
  out.condition = per_vector(substitute(guard.condition, form.positions), form.type.lanes);
  for (const Condition& part :
       {guard.clip ? clipped(memory, at, form) : Condition(), std::move(more), form.inside})
    out.condition.insert(out.condition.end(), part.begin(), part.end());
  if (guard.mask) {
    ValueOperand mask = splat_to(values_[guard.mask.index], form.type);
    if (!out.condition.empty()) {
      const ValueId inside =
          builder_.append(TestOp{out.condition}, {flags_of(form.type)}, "inside")[0];
      mask = row(ElementwiseOp::logical_and, {mask, inside});
      out.condition.clear();
    }
    out.mask = mask.value;
  }
  return out;
}

void Lowering::lower_op(const LoadOp& op, const Statement& s) {
  if (lower_fragments(op, s)) return;
  const ValueId tile = s.results[0];
  const Form own = load_form(op, tile);
  const MemoryId memory = memory_of(op.memory);
  before_access(memory, /*store=*/false, uniform_slot(op.at));
  Guard guard = lower_guard(op.guard, op.memory, op.at, own);
  LoadOp load{memory, {address(op.memory, op.at, own)}, std::move(guard), op.fill, 0, op.cache};
  load.align = alignment(op.memory, load.at[0]);
  define_in_form(tile, emit(std::move(load), own.type, s), own);
}

void Lowering::lower_op(const StoreOp& op, const Statement& s) {
  if (op.value.is_literal()) not_lowered("a store of a literal", s);
  const ValueId tile = op.value.value;
  const MemoryId memory = memory_of(op.memory);
  before_access(memory, /*store=*/true, uniform_slot(op.at));
  if (lower_matrix_store(op)) return;
  const Form own = store_form(op, tile);
  const ValueOperand value = in_form(op.value, own);
  Guard guard = lower_guard(op.guard, op.memory, op.at, own, single_store(tile));
  StoreOp store{value, memory, {address(op.memory, op.at, own)}, std::move(guard), 0, op.cache};
  store.align = alignment(op.memory, store.at[0]);
  builder_.append(std::move(store), {}, "s", s.location);
}

// L8: an operand with one lane stands for all lanes.
ValueOperand Lowering::splat_to(const ValueOperand& operand, const ValueType& result) {
  if (operand.is_literal() || result.lanes == 1 || type_of(operand).lanes == result.lanes)
    return operand;
  // One splat serves the rest of its region.
  auto& [splat, scope] = splats_[{operand.value, result.lanes}];
  if (scope == builder_.scope()) return splat;
  ValueType type = type_of(operand);
  type.lanes = result.lanes;
  splat = builder_.append(SplatOp{operand}, {type}, "splat")[0];
  scope = builder_.scope();
  return splat;
}

std::vector<ValueOperand> Lowering::row_operands(const RowOp& op, const Statement& s) {
  const ValueType type = array_type(s.results[0]);
  std::vector<ValueOperand> out;
  for (const ValueOperand& operand : op.operands) out.push_back(splat_to(mapped(operand), type));
  return out;
}

void Lowering::lower_op(const RowOp& op, const Statement& s) {
  const ValueType type = array_type(s.results[0]);
  std::vector<ValueOperand> operands = row_operands(op, s);
  if (op.op == ElementwiseOp::approx_exp2 && target_.kind == TargetKind::Cpu) {
    // The result is an f32 that is not rounded further, so the interpreter computes the same rows.
    define(s.results[0], emit_approximate_power(builder_, operands[0]));
  } else if (is_machine(op.op)) {
    define(s.results[0], emit(RowOp{op.op, std::move(operands)}, type, s));
  } else {
    define(s.results[0], emit_body(builder_, op.op, operands, type.dtype));  // L9
  }
}

ValueOperand Lowering::fold_lanes(Monoid monoid, const ValueOperand& value) {
  ValueType scalar = type_of(value);
  scalar.lanes = 1;
  return builder_.append(FoldOp{monoid, value, {}, true}, {scalar}, name(monoid))[0];
}

// Works on whole arrays: slices the upper part off, combines it with the lower one, and joins the
// rest.
std::pair<ValueOperand, ValueOperand> Lowering::arg_fold_array(bool is_max, ValueOperand values,
                                                               ValueOperand indices, size_t axis) {
  const int64_t extent = type_of(values).extents[axis];
  for (int64_t n = extent, half = power_of_two_at_least(n) / 2; half >= 1; n = half, half /= 2) {
    if (n <= half) continue;
    const auto low_values = part(values, axis, 0, half), low_indices = part(indices, axis, 0, half);
    const auto [v, i] =
        better(is_max, part(low_values, axis, 0, n - half), part(low_indices, axis, 0, n - half),
               part(values, axis, half, n - half), part(indices, axis, half, n - half));
    const bool all = n - half == half;
    values = all ? v : joined(v, part(low_values, axis, n - half, 2 * half - n), axis);
    indices = all ? i : joined(i, part(low_indices, axis, n - half, 2 * half - n), axis);
  }
  return {values, indices};
}

std::pair<ValueOperand, ValueOperand> Lowering::arg_fold_lanes(bool is_max, ValueOperand values,
                                                               ValueOperand indices) {
  for (int32_t half = type_of(values).lanes / 2; half >= 1; half /= 2)
    std::tie(values, indices) =
        better(is_max, some_lanes(values, 0, half), some_lanes(indices, 0, half),
               some_lanes(values, half, half), some_lanes(indices, half, half));
  return {values, indices};
}

std::vector<ValueOperand> Lowering::array_elements(const ValueOperand& value) {
  const ValueType type = type_of(value);
  std::vector<ValueOperand> out;
  std::vector<int64_t> at(type.rank());
  for (int64_t n = 0; n < type.count(); ++n) {
    int64_t rest = n;
    for (size_t i = type.rank(); i-- > 0; rest /= type.extents[i]) at[i] = rest % type.extents[i];
    out.emplace_back(
        builder_.append(GetElementOp{value, at}, {{type.dtype, type.lanes, {}}}, "get")[0]);
  }
  return out;
}

ValueOperand Lowering::packed(std::vector<ValueOperand> elements, const ValueType& type) {
  return builder_.append(PackOp{std::move(elements)}, {type}, "pack")[0];
}

Lowering::Tuple Lowering::mapped(const Tuple& parts) const {
  Tuple out;
  for (const ValueOperand& part : parts) out.push_back(mapped(part));
  return out;
}

Lowering::Tuple Lowering::combined(const Combiner& combiner, const Tuple& left,
                                   const Tuple& right) {
  return combiner.combine(
      left, right,
      [&](ElementwiseOp op, Tuple operands, std::optional<DType> dtype) {
        return is_machine(op) ? row(op, std::move(operands))
                              : emit_body(builder_, op, operands, dtype.value());
      },
      [](DType dtype, uint64_t bits) { return ValueOperand::literal(dtype, bits); });
}

void Lowering::define_scan(const Statement& s, const Scanned& scanned) {
  const size_t parts = scanned.each.size();
  for (size_t i = 0; i < s.results.size(); ++i)
    define(s.results[i], i < parts ? scanned.each[i] : scanned.total[i - parts]);
}

void Lowering::scan_list(const TileScanOp& op, std::vector<Tuple>& list) {
  for (size_t shift = 1; shift < list.size(); shift *= 2)
    for (size_t x = list.size(); x-- > shift;)
      list[x] = combined(op.combiner, list[x - shift], list[x]);
}

Lowering::Scanned Lowering::scan_array(const TileScanOp& op, const Tuple& parts, size_t axis) {
  std::vector<Tuple> elements, totals;  // of each part
  std::vector<ValueType> types;
  for (const ValueOperand& part : parts) {
    types.push_back(type_of(part));
    elements.push_back(array_elements(part));
  }
  const auto extent = static_cast<size_t>(types[0].extents[axis]);
  size_t inner = 1;
  for (size_t i = axis + 1; i < types[0].rank(); ++i)
    inner *= static_cast<size_t>(types[0].extents[i]);
  totals.resize(parts.size());
  for (size_t line = 0; line < elements[0].size() / extent; ++line) {
    const auto at = [&](size_t x) {
      return (line / inner * extent + (op.reverse ? extent - 1 - x : x)) * inner + line % inner;
    };
    std::vector<Tuple> list(extent);
    for (size_t x = 0; x < extent; ++x)
      for (const Tuple& part : elements) list[x].push_back(part[at(x)]);
    scan_list(op, list);
    for (size_t i = 0; i < parts.size(); ++i) totals[i].push_back(list.back()[i]);
    if (op.exclusive) {
      Tuple nothing;
      for (size_t i = 0; i < parts.size(); ++i)
        nothing.emplace_back(builder_.constant({types[i].dtype, types[i].lanes, {}},
                                               op.combiner.identity(i, types[i].dtype)));
      list.insert(list.begin(), std::move(nothing));
      list.pop_back();
    }
    for (size_t x = 0; x < extent; ++x)
      for (size_t i = 0; i < parts.size(); ++i) elements[i][at(x)] = list[x][i];
  }
  Scanned out;
  for (size_t i = 0; i < parts.size(); ++i) {
    out.each.push_back(packed(std::move(elements[i]), types[i]));
    if (!op.totals) continue;
    types[i].extents[axis] = 1;
    out.total.push_back(packed(std::move(totals[i]), types[i]));
  }
  return out;
}

ValueOperand Lowering::part(const ValueOperand& value, size_t axis, int64_t from, int64_t count) {
  ValueType type = type_of(value);
  if (from == 0 && count == type.extents[axis]) return value;
  std::vector<int64_t> offsets(type.rank());
  offsets[axis] = from;
  type.extents[axis] = count;
  return builder_.view(MovementKind::Slice, value, type, offsets);
}

ValueOperand Lowering::joined(const ValueOperand& a, const ValueOperand& b, size_t axis) {
  ValueType type = type_of(a);
  const int64_t count_a = type.extents[axis], total = count_a + type_of(b).extents[axis];
  type.extents[axis] = total;
  std::vector<ValueOperand> elements;
  std::vector<int64_t> at(type.rank());
  for (int64_t n = 0; n < type.count(); ++n) {
    int64_t rest = n;
    for (size_t i = type.rank(); i-- > 0; rest /= type.extents[i]) at[i] = rest % type.extents[i];
    auto place = at;
    const bool from_b = place[axis] >= count_a;
    if (from_b) place[axis] -= count_a;
    elements.emplace_back(builder_.append(GetElementOp{from_b ? b : a, place},
                                          {{type.dtype, type.lanes, {}}}, "get")[0]);
  }
  return builder_.append(PackOp{elements}, {type}, "pack")[0];
}

// If a whole f64 vector is rotated and compared with itself, and only the first result is used,
// LLVM 22 takes the wrong lane. It is correct for halves of vectors.
ValueOperand Lowering::some_lanes(const ValueOperand& value, int32_t first, int32_t count) {
  ValueType type = type_of(value);
  type.lanes = count;
  std::vector<int64_t> lanes;
  for (int32_t lane = 0; lane < count; ++lane) lanes.push_back(first + lane);
  return builder_.append(ShuffleOp{value, value, lanes}, {type}, "shuffle")[0];
}

std::pair<ValueOperand, ValueOperand> Lowering::better(bool is_max, const ValueOperand& v,
                                                       const ValueOperand& i, const ValueOperand& w,
                                                       const ValueOperand& j) {
  ValueOperand wins = row(is_max ? ElementwiseOp::gt : ElementwiseOp::lt, {w, v});
  ValueOperand ties = row(ElementwiseOp::eq, {w, v});
  if (is_floating(type_of(v).dtype)) {
    const ValueOperand v_nan = row(ElementwiseOp::is_nan, {v}),
                       w_nan = row(ElementwiseOp::is_nan, {w});
    wins = row(
        ElementwiseOp::logical_or,
        {wins, row(ElementwiseOp::logical_and, {w_nan, row(ElementwiseOp::logical_not, {v_nan})})});
    ties = row(ElementwiseOp::logical_or, {ties, row(ElementwiseOp::logical_and, {w_nan, v_nan})});
  }
  const ValueOperand earlier =
      row(ElementwiseOp::logical_and, {ties, row(ElementwiseOp::lt, {j, i})});
  const ValueOperand take = row(ElementwiseOp::logical_or, {wins, earlier});
  return {row(ElementwiseOp::select, {take, w, v}), row(ElementwiseOp::select, {take, j, i})};
}

// L13, L14: views are operations on arrays if whole vectors move, and go through memory otherwise.
void Lowering::lower_view(const MovementOp& op, const Statement& s) {
  const ValueId from = op.operand.value, to = s.results[0];
  const ValueType type = array_type(to);
  ValueOperand value = mapped(op.operand);
  if (op.kind == MovementKind::Broadcast) {
    value = splat_to(value, type);
    define(to, type_of(value) == type
                   ? value
                   : ValueOperand(emit(MovementOp{MovementKind::Broadcast, value, {}}, type, s)));
  } else if (renames(op, from, to)) {
    define(to, rename(op, value, s));
  } else {
    define(to, move_through_memory(op, value, from, to, s));
  }
}

ValueOperand Lowering::rename(const MovementOp& op, const ValueOperand& value, const Statement& s) {
  return emit(MovementOp{op.kind, value, op.arguments}, array_type(s.results[0]), s);
}

ValueOperand Lowering::move_through_memory(const MovementOp& op, const ValueOperand& value,
                                           ValueId source, ValueId result, const Statement& s) {
  const ValueType &from = tile_[source].type, &to = tile_[result].type;
  std::vector<int64_t> stored = dense_strides(from);
  int64_t count = from.count();
  if (op.kind == MovementKind::Transpose) {
    const int64_t padding = row_padding(from), inner = from.extents.back();
    for (size_t axis = 0; axis + 1 < from.rank(); ++axis)
      stored[axis] = stored[axis] / inner * (inner + padding);
    count = count / inner * (inner + padding);
  }
  const MemoryId id = new_buffer("moved", from.dtype, count);
  const auto flat = [](const Form& form, const std::vector<int64_t>& strides, int64_t start) {
    Expr sum = start;
    for (size_t axis = 0; axis < strides.size(); ++axis)
      sum += form.positions.at("d" + std::to_string(axis)) * Expr(strides[axis]);
    return sum;
  };
  const Form before = form(source), after = form(result);
  before_access(id, /*store=*/true);
  builder_.append(StoreOp{value,
                          id,
                          {flat(before, stored, 0)},
                          lower_guard({}, {}, {}, before, single_store(source)),
                          0,
                          CacheHint::None},
                  {});
  std::vector<int64_t> read = dense_strides(to);
  int64_t start = 0;
  if (op.kind == MovementKind::Transpose)
    for (size_t axis = 0; axis < to.rank(); ++axis)
      read[axis] = stored[static_cast<size_t>(op.arguments[axis])];
  if (op.kind == MovementKind::Slice) {
    read = stored;
    for (size_t axis = 0; axis < to.rank(); ++axis) start += op.arguments[axis] * stored[axis];
  }
  before_access(id, /*store=*/false);
  return emit(
      LoadOp{id, {flat(after, read, start)}, lower_guard({}, {}, {}, after), 0, 0, CacheHint::None},
      after.type, s);
}

void Lowering::lower_buffer(const BufferOp& op) {
  add_memory(op.memory);
  builder_.append(BufferOp{memories_[op.memory.index]}, {});
}

// L17: loops remain loops. Carried tiles become carried arrays.
void Lowering::lower_op(const ForOp& op, const Statement& s) {
  ForOp loop{.symbol = op.symbol,
             .low = uniform(op.low),
             .high = uniform(op.high),
             .step = uniform(op.step),
             .unroll = op.unroll,
             .is_static = op.is_static};
  std::vector<ValueType> types;
  const auto carry = [&](const ValueOperand& first, const ValueType& type, std::string_view name) {
    types.push_back(type);
    loop.carried.emplace_back(builder_.declare(name, type), first);
    return loop.carried.back().first;
  };
  for (size_t i = 0; i < op.carried.size(); ++i) {
    const ValueId inside = op.carried[i].first;
    if (const auto* parts = parts_of(op.carried[i].second)) {
      std::vector<ValueOperand> own;
      for (const ValueOperand& part : *parts)
        own.emplace_back(carry(part, type_of(part), tile_[inside].name));
      define_parts(inside, std::move(own));
      continue;
    }
    const ValueOperand first = first_carried(op, i);
    const ValueType type = first.is_literal() ? array_type(inside) : type_of(first);
    define_carried(op, i, inside, carry(first, type, tile_[inside].name));
  }
  const Expr turn = Expr::symbol(op.symbol + ".turn", {0, INT64_MAX});
  meanings_[op.symbol] = resolved(loop.low) + loop.step * turn;
  enclosing_.push_back(&s);
  enter_loop(op);
  ValueOperand* const count = counter(*op.body);
  if (count) *count = carry(*count, type_of(*count), "count");
  Region body;
  builder_.enter(body);
  lower_region(*op.body);
  end_body();
  for (size_t i = 0; i < op.carried.size(); ++i) {
    if (const auto* parts = parts_of(op.body->yields[i]))
      body.yields.insert(body.yields.end(), parts->begin(), parts->end());
    else
      body.yields.push_back(yielded_by_turn(op, i, op.body->yields[i]));
  }
  if (count) body.yields.push_back(*count);
  builder_.leave();
  loop.body = std::move(body);
  leave_loop();
  enclosing_.pop_back();
  const auto results = builder_.append(
      std::move(loop), types, s.results.empty() ? "for" : tile_[s.results[0]].name, s.location);
  auto next = results.begin();
  for (size_t i = 0; i < s.results.size(); ++i) {
    if (const auto* parts = parts_of(op.carried[i].first)) {
      const auto end = next + std::ssize(*parts);
      define_parts(s.results[i], {next, end});
      next = end;
    } else {
      define_carried(op, i, s.results[i], *next++);
    }
  }
  if (count) *count = results.back();
}

void Lowering::lower_op(const IfOp& op, const Statement& s) {
  IfOp branch;
  branch.condition = uniform(op.condition);
  if (op.flag) branch.flag = values_[op.flag.index].value;
  enclosing_.push_back(&s);
  enter_branches();
  ValueOperand* count = counter(*op.then);
  if (!count && op.otherwise) count = counter(*op.otherwise);
  const ValueOperand before = count ? *count : ValueOperand();
  const auto lowered = [&](const Region& body) {
    Region out;
    builder_.enter(out);
    if (count) *count = before;
    lower_region(body);
    for (size_t i = 0; i < s.results.size(); ++i)
      out.yields.push_back(yielded_by_branch(s.results[i], body.yields[i]));
    if (count) out.yields.push_back(*count);
    builder_.leave();
    return out;
  };
  branch.then = lowered(*op.then);
  leave_branch();
  if (op.otherwise || count) branch.otherwise = lowered(op.otherwise ? *op.otherwise : Region());
  leave_branch();
  leave_branches();
  enclosing_.pop_back();
  std::vector<ValueType> types;
  for (size_t i = 0; i < s.results.size(); ++i) {
    const ValueOperand& yielded = branch.then->yields[i];
    types.push_back(yielded.is_literal() ? array_type(s.results[i]) : type_of(yielded));
  }
  if (count) types.push_back(type_of(*count));
  const auto results = builder_.append(std::move(branch), types, "if", s.location);
  for (size_t i = 0; i < s.results.size(); ++i) define(s.results[i], results[i]);
  if (count) *count = results.back();
}

ValueId Lowering::arrive(const TicketOp& op, const std::function<void(ValueId)>& tell) {
  const MemoryId counter = memories_[op.memory.index];
  const Expr at = offset(op.memory, op.at, renamed_);
  const ValueType i32{DType::I32, 1, {}};
  const ValueId one = builder_.constant(i32, 1);
  const ValueId before = builder_.append(AtomicOp{counter, at, one}, {i32}, "arrived")[0];
  const ValueId count = builder_.iota(uniform(op.count) - 1, i32);
  const ValueId last = builder_.row(ElementwiseOp::eq, {before, count});
  if (tell) tell(last);
  IfOp reset;
  reset.flag = last;
  Region zero;
  builder_.enter(zero);
  builder_.store(builder_.constant(i32, 0), counter, {at});
  builder_.leave();
  reset.then = std::move(zero);
  builder_.append(std::move(reset), {});
  return last;
}

void Lowering::not_lowered(std::string_view what, const Statement& s) const {
  fail(kNotLowered,
       fmt::format("tile program {}: {} cannot be lowered to a kernel for {}", tile_.name, what,
                   target_.name),
       {s.location, {}, {}});
}

namespace {

void check_sizes(const Kernel& kernel, const Region& region) {
  for_each_statement(region, [&](const Statement& s) {
    for (const ValueId result : s.results)
      if (const Value& value = kernel[result]; value.type.count() > kMostElements)
        fail(kTileSize,
             fmt::format("kernel @{}: one thread or task would hold %{}, {}, but it can hold only "
                         "{} elements",
                         kernel.name, value.name, value.type.to_string(), kMostElements),
             {s.location, {}, "use smaller tiles, or more threads for them"});
  });
}

}  // namespace

Kernel lower(const TileProgram& program, const Target& target) {
  Kernel kernel = program.pipelined                ? lower_pipelined(program, target)
                  : target.kind == TargetKind::Gpu ? lower_for_gpu(program, target)
                                                   : lower_for_cpu(program, target);
  for (const Phase& phase : kernel.phases) check_sizes(kernel, phase.body);
  return kernel;
}

}  // namespace braze
