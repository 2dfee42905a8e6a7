#include "compiler/lowering/lower.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "compiler/lowering/lowering.h"
#include "compiler/lowering/rows.h"
#include "ir/code/index_program.h"
#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr Code kNotLowered{"not-lowered", ErrorKind::Unsupported,
                           "The lowering for this target has no rule for an operation."};

constexpr Code kTileSize{"tile-size", ErrorKind::Unsupported,
                         "A thread would hold more elements of a tile than a value can have."};
constexpr int64_t kMostElements = 256;  // elements of a value of the Kernel IR: K3

std::vector<Expr> row_major(const std::vector<Expr>& shape) {
  std::vector<Expr> strides(shape.size());
  Expr stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride = stride * shape[axis])
    strides[axis] = stride;
  return strides;
}

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

ProgramLowering::ProgramLowering(const TileProgram& program, const Target& target)
    : tile_(program), target_(target), builder_(kernel_) {
  kernel_.target = target.name;
}

void ProgramLowering::lower_signature() {
  kernel_.name = builder_.fresh_name(tile_.name);
  kernel_.schedule = tile_.schedule;
  kernel_.resident = tile_.resident;
  kernel_.symbols = tile_.symbols;
  for (const Expr& symbol : tile_.symbols) builder_.fresh_name(symbol.symbol_name());
  memories_.resize(tile_.memories.size());
  for (const Memory& memory : tile_.memories)
    strides_.push_back(memory.strides.empty() ? row_major(memory.shape) : memory.strides);
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

Kernel Lowering::run() {
  lower_signature();
  for (const Phase& phase : tile_.phases) {
    Phase lowered;
    lowered.grid = phase.grid;
    lowered.barrier = phase.barrier;
    begin_phase(lowered);
    lowered.body = region(phase.body, [this] { end_body(); });
    end_phase(lowered);
    kernel_.phases.push_back(std::move(lowered));
  }
  remove_dead_code(kernel_);
  return std::move(kernel_);
}

// L4, L16: memory of the kernel has one dimension.
void ProgramLowering::add_memory(MemoryId id) {
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

Positions Lowering::positions(const ValueType& tile, const ValueType& lowered) const {
  Positions map = renamed_;
  for (size_t axis = 0; axis < tile.rank(); ++axis)
    map["d" + std::to_string(axis)] = position(axis, tile, lowered);
  return map;
}

std::optional<Expr> Lowering::uniform_slot(const std::vector<Expr>& at) const {
  if (at.size() < 2) return std::nullopt;
  for (const std::string& symbol : at[0].symbols())
    if (symbol[0] == '%' || is_position_symbol(symbol, 'd')) return std::nullopt;
  return uniform(at[0]);
}

Condition ProgramLowering::substitute(const Condition& condition, const Positions& map) {
  Condition out;
  for (const IndexComparison& c : condition)
    out.push_back({c.left.substitute(map), c.kind, c.right.substitute(map)});
  return out;
}

void ProgramLowering::define(ValueId tile, ValueOperand kernel) {
  values_[tile.index] = kernel;
  if (!kernel.is_literal())
    renamed_.insert_or_assign("%" + tile_[tile].name, value_symbol(kernel_, kernel.value));
}

std::string_view ProgramLowering::hint(const Statement& statement, size_t i) const {
  const std::string& name = tile_[statement.results[i]].name;
  return std::string_view(name).substr(0, name.find('.'));
}

ValueId ProgramLowering::emit(StatementOp op, const ValueType& type, const Statement& from) {
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

Region Lowering::region(const Region& body, const std::function<void()>& at_end) {
  Region out;
  builder_.enter(out);
  lower_region(body);
  if (at_end) at_end();
  for (const ValueOperand& yielded : body.yields) {
    if (const auto* parts = parts_of(yielded))
      out.yields.insert(out.yields.end(), parts->begin(), parts->end());
    else
      out.yields.push_back(mapped(yielded));
  }
  builder_.leave();
  return out;
}

// --- One overload for each operation -------------------------------------------------------------

void Lowering::lower_op(const LetOp& op, const Statement&) {
  builder_.fresh_name(op.symbol);
  builder_.append(LetOp{op.symbol, uniform(op.value)}, {});
}

void Lowering::lower_op(const ConstOp& op, const Statement& s) {
  define(s.results[0], emit(op, lower_type(result_type(s)), s));
}

void Lowering::lower_op(const IndexOp& op, const Statement& s) {  // L7
  const ValueType type = lower_type(result_type(s));
  define(s.results[0],
         emit(IndexOp{op.value.substitute(positions(result_type(s), type))}, type, s));
}

void Lowering::lower_op(const TestOp& op, const Statement& s) {  // L7
  const ValueType type = lower_type(result_type(s));
  define(s.results[0],
         emit(TestOp{substitute(op.condition, positions(result_type(s), type))}, type, s));
}

// L5: the number of an element from the coordinates of its place.
Expr ProgramLowering::offset(MemoryId memory, const std::vector<Expr>& at,
                             const Positions& map) const {
  Expr sum;
  for (size_t axis = 0; axis < at.size(); ++axis)
    sum += at[axis].substitute(map) * strides_[memory.index][axis];
  return sum;
}

// L6: the alignment in bytes, as far as it is proven for the address of lane 0.
int64_t ProgramLowering::alignment(MemoryId memory, const Expr& at) const {
  const Memory& m = tile_[memory];
  const int64_t bytes = static_cast<int64_t>(size_of(m.dtype));
  const int64_t base = m.space == MemorySpace::Parameter ? std::max(m.align, bytes) : 64;
  const Expr first = at.substitute("lane", 0);
  int64_t align = base & -base;
  while (align > bytes && !first.is_multiple_of(align / bytes) &&
         !mod(first, align / bytes).is_constant(0))
    align /= 2;
  return align > bytes ? align : 0;
}

// L3: excludes lanes beyond the tile's innermost extent, and threads for which `more` does not
// hold.
Guard Lowering::lower_guard(const Guard& guard, const ValueType& tile, const ValueType& lowered,
                            const Positions& map, Condition more) {
  Guard out;
  out.condition = per_vector(substitute(guard.condition, map), lowered.lanes);
  out.condition.insert(out.condition.end(), more.begin(), more.end());
  if (padded(tile, lowered)) {
    const size_t last = tile.rank() - 1;
    out.condition.push_back(
        {position(last, tile, lowered), IndexComparison::Kind::Lt, tile.extents[last]});
  }
  if (guard.mask) {
    ValueOperand mask = splat_to(values_[guard.mask.index], lowered);
    if (!out.condition.empty()) {
      const ValueId inside =
          builder_.append(TestOp{out.condition}, {flags_of(lowered)}, "inside")[0];
      mask = row(ElementwiseOp::logical_and, {mask, inside});
      out.condition.clear();
    }
    out.mask = mask.value;
  }
  return out;
}

void Lowering::lower_op(const LoadOp& op, const Statement& s) {
  if (lower_fragments(op, s)) return;
  const ValueType& tile = result_type(s);
  const ValueType type = lower_type(tile);
  const Positions map = positions(tile, type);
  const MemoryId memory = memories_[op.memory.index];
  before_access(memory, /*store=*/false, uniform_slot(op.at));
  LoadOp load{
      memory,  {offset(op.memory, op.at, map)}, lower_guard(op.guard, tile, type, map), op.fill, 0,
      op.cache};
  load.align = alignment(op.memory, load.at[0]);
  define(s.results[0], lower_load(std::move(load), op.memory, type, s));
}

void Lowering::lower_op(const StoreOp& op, const Statement& s) {
  const ValueOperand value = mapped(op.value);
  const ValueType& tile = tile_[op.value.value].type;
  const ValueType& type = type_of(value);
  const Positions map = positions(tile, type);
  const MemoryId memory = memories_[op.memory.index];
  before_access(memory, /*store=*/true, uniform_slot(op.at));
  StoreOp store{value,
                memory,
                {offset(op.memory, op.at, map)},
                lower_guard(op.guard, tile, type, map, single_store(tile)),
                0,
                op.cache};
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

void Lowering::lower_op(const RowOp& op, const Statement& s) {
  const ValueType type = lower_type(result_type(s));
  check_row(op, s);
  std::vector<ValueOperand> operands;
  for (const ValueOperand& operand : op.operands)
    operands.push_back(splat_to(mapped(operand), type));
  if (op.op == ElementwiseOp::approx_exp2 && target_.kind == TargetKind::Cpu) {
    // The result is an f32 that is not rounded further, so the interpreter computes the same rows.
    define(s.results[0], emit_approximate_power(builder_, operands[0]));
  } else if (is_machine(op.op)) {
    define(s.results[0], emit(RowOp{op.op, operands}, type, s));
  } else {
    define(s.results[0], emit_body(builder_, op.op, operands, type.dtype));  // L9
  }
}

ValueOperand Lowering::select_inside(const ValueOperand& value, const ValueType& tile,
                                     const ValueType& type, uint64_t identity) {
  const size_t last = tile.rank() - 1;
  const ValueId inside = builder_.append(
      TestOp{{{position(last, tile, type), IndexComparison::Kind::Lt, tile.extents[last]}}},
      {flags_of(type)}, "inside")[0];
  return row(ElementwiseOp::select, {inside, value, ValueOperand::literal(type.dtype, identity)});
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
    out.emplace_back(builder_.append(GetOp{value, at}, {{type.dtype, type.lanes, {}}}, "get")[0]);
  }
  return out;
}

ValueOperand Lowering::packed(std::vector<ValueOperand> elements, const ValueType& type) {
  return builder_.append(PackOp{std::move(elements)}, {type}, "pack")[0];
}

Lowering::Tuple Lowering::mapped(const Tuple& parts) const {
  Tuple out;
  for (const ValueOperand& part : parts) out.push_back(ProgramLowering::mapped(part));
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
  return builder_.view(ViewKind::Slice, value, type, offsets);
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
    elements.emplace_back(
        builder_.append(GetOp{from_b ? b : a, place}, {{type.dtype, type.lanes, {}}}, "get")[0]);
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
void Lowering::lower_op(const ViewOp& op, const Statement& s) {
  const ValueType& from = tile_[op.operand.value].type;
  const ValueType& to = result_type(s);
  const ValueType type = lower_type(to);
  ValueOperand value = mapped(op.operand);
  if (op.kind == ViewKind::Broadcast) {
    value = splat_to(value, type);
    if (type_of(value) == type)
      define(s.results[0], value);
    else
      define(s.results[0], emit(ViewOp{ViewKind::Broadcast, value, {}}, type, s));
  } else if (renames(op, from, to)) {
    define(s.results[0], rename(op, value, s));
  } else {
    define(s.results[0], move_through_memory(op, value, from, to, s));
  }
}

ValueOperand Lowering::rename(const ViewOp& op, const ValueOperand& value, const Statement& s) {
  return emit(ViewOp{op.kind, value, op.arguments}, lower_type(result_type(s)), s);
}

ValueOperand Lowering::move_through_memory(const ViewOp& op, const ValueOperand& value,
                                           const ValueType& from, const ValueType& to,
                                           const Statement& s) {
  std::vector<int64_t> stored = dense_strides(from);
  int64_t count = from.count();
  if (op.kind == ViewKind::Transpose) {
    const int64_t padding = row_padding(from), inner = from.extents.back();
    for (size_t axis = 0; axis + 1 < from.rank(); ++axis)
      stored[axis] = stored[axis] / inner * (inner + padding);
    count = count / inner * (inner + padding);
  }
  Memory memory{.name = "moved",
                .space = MemorySpace::Local,
                .mode = Mode::InOut,
                .dtype = from.dtype,
                .shape = {Expr(count)}};
  place_buffer(memory, count * static_cast<int64_t>(size_of(from.dtype)));
  const MemoryId id = builder_.add_memory(std::move(memory));
  builder_.append(BufferOp{id}, {});
  const auto flat = [this](const ValueType& tile, const ValueType& low,
                           const std::vector<int64_t>& strides, int64_t start) {
    Expr sum = start;
    for (size_t axis = 0; axis < tile.rank(); ++axis)
      sum += position(axis, tile, low) * Expr(strides[axis]);
    return sum;
  };
  const ValueType lowered = type_of(value), type = lower_type(to);
  before_access(id, /*store=*/true);
  builder_.append(StoreOp{value,
                          id,
                          {flat(from, lowered, stored, 0)},
                          lower_guard({}, from, lowered, {}, single_store(from)),
                          0,
                          CacheHint::None},
                  {});
  std::vector<int64_t> read = dense_strides(to);
  int64_t start = 0;
  if (op.kind == ViewKind::Transpose)
    for (size_t axis = 0; axis < to.rank(); ++axis)
      read[axis] = stored[static_cast<size_t>(op.arguments[axis])];
  if (op.kind == ViewKind::Slice) {
    read = stored;
    for (size_t axis = 0; axis < to.rank(); ++axis) start += op.arguments[axis] * stored[axis];
  }
  before_access(id, /*store=*/false);
  return emit(
      LoadOp{
          id, {flat(to, type, read, start)}, lower_guard({}, to, type, {}), 0, 0, CacheHint::None},
      type, s);
}

void Lowering::lower_op(const BufferOp& op, const Statement&) {
  add_memory(op.memory);
  builder_.append(BufferOp{memories_[op.memory.index]}, {});
}

// L17: loops remain loops. Carried tiles become carried arrays.
void Lowering::lower_op(const ForOp& op, const Statement& s) {
  ForOp loop{.symbol = op.symbol,
             .low = uniform(op.low),
             .high = uniform(op.high),
             .step = uniform(op.step),
             .unroll = op.unroll};
  builder_.fresh_name(op.symbol);
  std::vector<ValueType> types;
  const auto carry = [&](const ValueType& type, const ValueOperand& first) {
    types.push_back(type);
    return loop.carried.emplace_back(builder_.declare("carry", type), first).first;
  };
  for (const auto& [inside, first] : op.carried) {
    if (const auto* parts = parts_of(first)) {
      std::vector<ValueOperand> own;
      for (const ValueOperand& part : *parts) own.emplace_back(carry(type_of(part), part));
      define_parts(inside, std::move(own));
    } else {
      define(inside, carry(lower_type(tile_[inside].type), mapped(first)));
    }
  }
  enclosing_.push_back(&s);
  enter_loop(op);
  loop.body = region(*op.body, [this] { end_body(); });
  leave_loop();
  enclosing_.pop_back();
  const auto results = builder_.append(std::move(loop), types, "for", s.location);
  auto next = results.begin();
  for (size_t i = 0; i < s.results.size(); ++i) {
    if (const auto* parts = parts_of(op.carried[i].first)) {
      const auto end = next + std::ssize(*parts);
      define_parts(s.results[i], {next, end});
      next = end;
    } else {
      define(s.results[i], *next++);
    }
  }
}

void Lowering::lower_op(const IfOp& op, const Statement& s) {
  IfOp branch;
  branch.condition = uniform(op.condition);
  if (op.flag) branch.flag = values_[op.flag.index].value;
  enclosing_.push_back(&s);
  enter_branches();
  branch.then = region(*op.then);
  leave_branch();
  if (op.otherwise) branch.otherwise = region(*op.otherwise);
  leave_branch();
  leave_branches();
  enclosing_.pop_back();
  std::vector<ValueType> types;
  for (ValueId result : s.results) types.push_back(lower_type(tile_[result].type));
  const auto results = builder_.append(std::move(branch), types, "if", s.location);
  for (size_t i = 0; i < results.size(); ++i) define(s.results[i], results[i]);
}

// Threads exchange 32-bit words. Bools and short integers are converted to them.
bool ProgramLowering::needs_word(DType dtype) { return !is_floating(dtype) && size_of(dtype) < 4; }

ValueOperand ProgramLowering::as_word(const ValueOperand& value) {
  return builder_.row(ElementwiseOp::convert, {value}, DType::I32);
}

ValueOperand ProgramLowering::from_word(const ValueOperand& word, DType dtype) {
  if (dtype == DType::Bool)
    return row(ElementwiseOp::ne, {word, ValueOperand::literal(DType::I32, 0)});
  return builder_.row(ElementwiseOp::convert, {word}, dtype);
}

// Shuffles move 32-bit words, so other values are converted or divided into words.
ValueOperand ProgramLowering::shuffled(Instruction shuffle, const ValueOperand& value,
                                       const Expr& lane) {
  const ValueType type = type_of(value);
  const DType dtype = type.dtype;
  if (type.lanes > 1) {
    const ValueType array{dtype, 1, {type.count() * type.lanes}};
    return builder_.regroup(shuffled(shuffle, builder_.regroup(value, array), lane), type);
  }
  if (needs_word(dtype)) return from_word(shuffled(shuffle, as_word(value), lane), dtype);
  if (size_of(dtype) == 8) {
    const auto convert = [&](const ValueOperand& v, DType to) {
      return ValueOperand(builder_.row(ElementwiseOp::convert, {v}, to));
    };
    const auto bitcast = [&](const ValueOperand& v, DType to) {
      return ValueOperand(builder_.row(ElementwiseOp::bitcast, {v}, to));
    };
    const ValueOperand bits = dtype == DType::I64 ? value : bitcast(value, DType::I64);
    const ValueOperand half = ValueOperand::literal(DType::I64, 32);
    const ValueOperand low = shuffled(shuffle, convert(bits, DType::U32), lane);
    const ValueOperand high =
        shuffled(shuffle, convert(row(ElementwiseOp::shr, {bits, half}), DType::U32), lane);
    const ValueOperand joined =
        row(ElementwiseOp::logical_or,
            {row(ElementwiseOp::shl, {convert(high, DType::I64), half}), convert(low, DType::I64)});
    return dtype == DType::I64 ? joined : bitcast(joined, dtype);
  }
  return builder_.shuffle(shuffle, value, lane);
}

// The kernels after this one can begin as soon as all blocks of this one have. They wait in turn,
// and take only the room that this one leaves.
void ProgramLowering::await_predecessors() {
  if (!has_instruction(target_, Instruction::griddep_wait)) return;
  builder_.instruction(Instruction::griddep_launch);
  builder_.instruction(Instruction::griddep_wait);
}

void ProgramLowering::not_lowered(std::string_view what, const Statement& s) const {
  fail(kNotLowered,
       fmt::format("tile program {}: {} cannot be lowered to a kernel for {}", tile_.name, what,
                   target_.name),
       {s.location, {}, {}});
}

namespace {

void check_sizes(const Kernel& kernel, const Region& region) {
  for (const Statement& s : region.statements) {
    for (const ValueId result : s.results)
      if (const Value& value = kernel[result]; value.type.count() > kMostElements)
        fail(kTileSize,
             fmt::format("kernel @{}: one thread or task would hold %{}, {}, but it can hold only "
                         "{} elements",
                         kernel.name, value.name, value.type.to_string(), kMostElements),
             {s.location, {}, "use smaller tiles, or more threads for them"});
    for (const Region* inner : regions_of(s)) check_sizes(kernel, *inner);
  }
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
