#include "compiler/lowering/lower.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "compiler/lowering/rows.h"
#include "ir/support/text.h"

namespace braze {

namespace {

int64_t power_of_two_at_least(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

std::vector<Expr> row_major(const std::vector<Expr>& shape) {
  std::vector<Expr> strides(shape.size());
  Expr stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride = stride * shape[axis])
    strides[axis] = stride;
  return strides;
}

class Lowering {
 public:
  Lowering(const TileProgram& program, const Target& target)
      : tile_(program), lanes_(target.vector_lanes(4)), builder_(kernel_) {
    kernel_.target = target.name;
  }

  Kernel run() {
    kernel_.name = builder_.fresh_name(tile_.name);
    kernel_.schedule = tile_.schedule;
    kernel_.symbols = tile_.symbols;
    for (const Expr& symbol : tile_.symbols) builder_.fresh_name(symbol.symbol_name());
    memories_.resize(tile_.memories.size());
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
    for (const Phase& phase : tile_.phases) {
      scratch_ = 0;
      Region region;
      builder_.enter(region);
      lower_region(phase.body);
      builder_.leave();
      Phase lowered;
      lowered.grid = phase.grid;
      lowered.body = std::move(region);
      lowered.barrier = phase.barrier;
      lowered.scratch_bytes = scratch_;
      kernel_.phases.push_back(std::move(lowered));
    }
    remove_dead_code(kernel_);
    return std::move(kernel_);
  }

 private:
  // L4, L16: memory has one dimension.
  void add_memory(MemoryId id) {
    const Memory& memory = tile_[id];
    Memory lowered = memory;
    const auto strides = memory.strides.empty() ? row_major(memory.shape) : memory.strides;
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
    if (memory.space == MemorySpace::Local) {
      const int64_t bytes =
          lowered.shape[0].as_constant().value() * static_cast<int64_t>(size_of(memory.dtype));
      lowered.scratch_offset = scratch_;
      scratch_ += (bytes + 63) / 64 * 64;
    }
    memories_[id.index] = builder_.add_memory(std::move(lowered));
    strides_.resize(std::max<size_t>(strides_.size(), id.index + 1));
    strides_[id.index] = strides;
  }

  // L1.
  ValueType lower_type(const ValueType& type) const {
    if (type.rank() == 0) return type;
    ValueType out = type;
    const int64_t inner = type.extents.back();
    out.lanes = static_cast<int32_t>(lanes_of(inner));
    out.extents.back() = (inner + out.lanes - 1) / out.lanes;
    return out;
  }
  int64_t lanes_of(int64_t inner) const {
    return inner == 1 ? 1 : std::min<int64_t>(lanes_, power_of_two_at_least(inner));
  }
  static bool padded(const ValueType& tile, const ValueType& lowered) {
    return tile.rank() > 0 && tile.extents.back() % lowered.lanes != 0;
  }

  // L2: positions of a tile type in terms of those of its lowered type.
  std::unordered_map<std::string, Expr> positions(const ValueType& tile,
                                                  const ValueType& lowered) const {
    std::unordered_map<std::string, Expr> map = renamed_;
    for (size_t axis = 0; axis < tile.rank(); ++axis)
      map["d" + std::to_string(axis)] = position(axis, tile, lowered);
    return map;
  }
  static Expr position(size_t axis, const ValueType& tile, const ValueType& lowered) {
    const Expr element =
        lowered.extents[axis] == 1 ? Expr(0) : position_symbol('e', axis, lowered.extents[axis]);
    if (axis + 1 < tile.rank() || lowered.lanes == 1) return element;
    return element * Expr(lowered.lanes) + lane_symbol(lowered.lanes);
  }
  static Expr substitute(const Expr& e, const std::unordered_map<std::string, Expr>& map) {
    return e.substitute(map);
  }
  static Condition substitute(const Condition& condition,
                              const std::unordered_map<std::string, Expr>& map) {
    Condition out;
    for (const IndexComparison& c : condition)
      out.push_back({c.left.substitute(map), c.kind, c.right.substitute(map)});
    return out;
  }
  Expr uniform(const Expr& e) const { return e.substitute(renamed_); }
  Condition uniform(const Condition& c) const { return substitute(c, renamed_); }

  void define(ValueId tile, Operand kernel) {
    values_[tile.index] = kernel;
    if (!kernel.is_literal())
      renamed_.insert_or_assign("%" + tile_[tile].name, value_symbol(kernel_, kernel.value));
  }
  Operand mapped(const Operand& operand) const {
    return operand.is_literal() ? operand : values_[operand.value.index];
  }
  const ValueType& type_of(const Operand& operand) const { return kernel_[operand.value].type; }

  void lower_region(const Region& region) {
    for (const Statement& statement : region.statements)
      std::visit([&](const auto& op) { lower_op(op, statement); }, statement.op);
  }

  const ValueType& result_type(const Statement& statement, size_t i = 0) const {
    return tile_[statement.results[i]].type;
  }
  std::string_view hint(const Statement& statement, size_t i = 0) const {
    const std::string& name = tile_[statement.results[i]].name;
    return std::string_view(name).substr(0, name.find('.'));
  }
  ValueId emit(StatementOp op, const ValueType& type, const Statement& from) {
    return builder_.append(std::move(op), {type}, hint(from), from.location)[0];
  }

  // --- One overload an operation ----------------------------------------------------------------

  void lower_op(const LetOp& op, const Statement&) {
    builder_.fresh_name(op.symbol);
    builder_.append(LetOp{op.symbol, uniform(op.value)}, {});
  }

  void lower_op(const ConstOp& op, const Statement& s) {
    define(s.results[0], emit(op, lower_type(result_type(s)), s));
  }

  void lower_op(const IndexOp& op, const Statement& s) {  // L7
    const ValueType type = lower_type(result_type(s));
    define(s.results[0],
           emit(IndexOp{substitute(op.value, positions(result_type(s), type))}, type, s));
  }

  void lower_op(const TestOp& op, const Statement& s) {  // L7
    const ValueType type = lower_type(result_type(s));
    define(s.results[0],
           emit(TestOp{substitute(op.condition, positions(result_type(s), type))}, type, s));
  }

  // L5.
  Expr offset(MemoryId memory, const std::vector<Expr>& at,
              const std::unordered_map<std::string, Expr>& map) const {
    Expr sum;
    for (size_t axis = 0; axis < at.size(); ++axis)
      sum += at[axis].substitute(map) * strides_[memory.index][axis];
    return sum;
  }

  // L6: what is known of the address of lane 0.
  int64_t alignment(MemoryId memory, const Expr& at) const {
    const Memory& m = tile_[memory];
    const int64_t bytes = static_cast<int64_t>(size_of(m.dtype));
    const int64_t base = m.space == MemorySpace::Parameter ? std::max(m.align, bytes) : 64;
    const int64_t divisor = at.substitute("lane", 0).divisor();
    int64_t align = divisor == 0 ? base : std::gcd(base, divisor * bytes);
    align &= -align;
    return align > bytes ? align : 0;
  }

  // L3: lanes beyond the tile's innermost extent take no part.
  Guard lower_guard(const Guard& guard, const ValueType& tile, const ValueType& lowered,
                    const std::unordered_map<std::string, Expr>& map) {
    Guard out;
    out.condition = substitute(guard.condition, map);
    if (padded(tile, lowered)) {
      const size_t last = tile.rank() - 1;
      out.condition.push_back(
          {position(last, tile, lowered), IndexComparison::Kind::Lt, tile.extents[last]});
    }
    if (guard.mask) {
      Operand mask = splat_to(values_[guard.mask.index], lowered);
      if (!out.condition.empty()) {
        ValueType flags = lowered;
        flags.dtype = DType::Bool;
        const ValueId inside = builder_.append(TestOp{out.condition}, {flags}, "inside")[0];
        mask = builder_.row(ElementwiseOp::logical_and, {mask, inside});
        out.condition.clear();
      }
      out.mask = mask.value;
    }
    return out;
  }

  void lower_op(const LoadOp& op, const Statement& s) {
    const ValueType& tile = result_type(s);
    const ValueType type = lower_type(tile);
    const auto map = positions(tile, type);
    LoadOp load{memories_[op.memory.index],
                {offset(op.memory, op.at, map)},
                lower_guard(op.guard, tile, type, map),
                op.fill,
                0,
                op.cache};
    load.align = alignment(op.memory, load.at[0]);
    define(s.results[0], emit(std::move(load), type, s));
  }

  void lower_op(const StoreOp& op, const Statement& s) {
    const Operand value = mapped(op.value);
    const ValueType& tile = tile_[op.value.value].type;
    const ValueType& type = type_of(value);
    const auto map = positions(tile, type);
    StoreOp store{value,
                  memories_[op.memory.index],
                  {offset(op.memory, op.at, map)},
                  lower_guard(op.guard, tile, type, map),
                  0,
                  op.cache};
    store.align = alignment(op.memory, store.at[0]);
    builder_.append(std::move(store), {}, "s", s.location);
  }

  // L8: an operand with one lane stands for all lanes.
  Operand splat_to(const Operand& operand, const ValueType& result) {
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

  void lower_op(const RowOp& op, const Statement& s) {
    const ValueType type = lower_type(result_type(s));
    std::vector<Operand> operands;
    for (const Operand& operand : op.operands) operands.push_back(splat_to(mapped(operand), type));
    if (is_machine(op.op)) {
      define(s.results[0], emit(RowOp{op.op, operands}, type, s));
    } else {
      define(s.results[0], emit_body(builder_, op.op, operands, type.dtype));  // L9
    }
  }

  // L10.
  void lower_op(const FoldOp& op, const Statement& s) {
    Operand value = mapped(op.operand);
    const ValueType& tile = tile_[op.operand.value].type;
    const size_t last = tile.rank() - 1;
    ValueType now = tile;
    for (int64_t axis : op.axes) {
      const ValueType type = type_of(value);
      if (static_cast<size_t>(axis) != last || type.lanes == 1) {
        value = builder_.fold(op.monoid, value, {axis});
      } else {
        if (padded(now, type))
          value = select_inside(value, now, type, info(op.monoid).padding(type.dtype));
        value = builder_.fold(op.monoid, value, {axis});
        ValueType scalar = type_of(value);
        scalar.lanes = 1;
        value = builder_.append(FoldOp{op.monoid, value, {}, true}, {scalar}, name(op.monoid))[0];
      }
      now.extents[static_cast<size_t>(axis)] = 1;
    }
    define(s.results[0], value);
  }

  Operand select_inside(const Operand& value, const ValueType& tile, const ValueType& type,
                        uint64_t identity) {
    const size_t last = tile.rank() - 1;
    ValueType flags = type;
    flags.dtype = DType::Bool;
    const ValueId inside = builder_.append(
        TestOp{{{position(last, tile, type), IndexComparison::Kind::Lt, tile.extents[last]}}},
        {flags}, "inside")[0];
    return builder_.row(ElementwiseOp::select,
                        {inside, value, Operand::literal(type.dtype, identity)});
  }

  // L11: the fold's steps over pairs, on elements of the register array, then on lanes.
  void lower_op(const ArgFoldOp& op, const Statement& s) {
    Operand values = mapped(op.values), indices = mapped(op.indices);
    ValueType tile = tile_[op.values.value].type;
    BRAZE_CHECK(op.axes.size() == 1, "an arg-reduction has one axis");
    const auto axis = static_cast<size_t>(op.axes[0]);
    const ValueType type = type_of(values);
    indices = splat_to(indices, type);
    if (padded(tile, type) && axis + 1 == tile.rank()) {
      const Monoid monoid = op.is_max ? Monoid::Max : Monoid::Min;
      values = select_inside(values, tile, type, info(monoid).identity(type.dtype));
      indices = select_inside(indices, tile, type_of(indices), INT64_MAX);
    }
    // Axis positions move through views of whole arrays: slice, combine, join.
    for (int64_t n = type.extents[axis], half = power_of_two_at_least(n) / 2; half >= 1;
         n = half, half /= 2) {
      if (n <= half) continue;
      const auto low_values = part(values, axis, 0, half),
                 low_indices = part(indices, axis, 0, half);
      const auto [v, i] = better(
          op.is_max, part(low_values, axis, 0, n - half), part(low_indices, axis, 0, n - half),
          part(values, axis, half, n - half), part(indices, axis, half, n - half));
      values =
          n - half == half ? v : joined(v, part(low_values, axis, n - half, 2 * half - n), axis);
      indices =
          n - half == half ? i : joined(i, part(low_indices, axis, n - half, 2 * half - n), axis);
    }
    if (axis + 1 == tile.rank() && type.lanes > 1) {
      for (int32_t half = type.lanes / 2; half >= 1; half /= 2) {
        const auto [v, i] =
            better(op.is_max, values, indices, shifted(values, half), shifted(indices, half));
        values = v;
        indices = i;
      }
      values = first_lane(values);
      indices = first_lane(indices);
    }
    define(s.results[0], values);
    define(s.results[1], indices);
  }

  Operand part(const Operand& value, size_t axis, int64_t from, int64_t count) {
    ValueType type = type_of(value);
    if (from == 0 && count == type.extents[axis]) return value;
    std::vector<int64_t> offsets(type.rank());
    offsets[axis] = from;
    type.extents[axis] = count;
    return builder_.view(ViewKind::Slice, value, type, offsets);
  }
  Operand joined(const Operand& a, const Operand& b, size_t axis) {
    ValueType type = type_of(a);
    const int64_t count_a = type.extents[axis], total = count_a + type_of(b).extents[axis];
    type.extents[axis] = total;
    std::vector<Operand> elements;
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
  Operand shifted(const Operand& value, int32_t by) {
    const ValueType type = type_of(value);
    std::vector<int64_t> lanes;
    for (int32_t lane = 0; lane < type.lanes; ++lane) lanes.push_back((lane + by) % type.lanes);
    return builder_.append(ShuffleOp{value, value, lanes}, {type}, "shuffle")[0];
  }
  Operand first_lane(const Operand& value) {
    ValueType type = type_of(value);
    type.lanes = 1;
    return builder_.append(LaneOp{false, value, {}, 0}, {type}, "lane")[0];
  }
  // (v, i) against (w, j): see `reduce argmax` of the language page.
  std::pair<Operand, Operand> better(bool is_max, const Operand& v, const Operand& i,
                                     const Operand& w, const Operand& j) {
    const auto row = [&](ElementwiseOp op, std::vector<Operand> operands) {
      return Operand(builder_.row(op, std::move(operands)));
    };
    Operand wins = row(is_max ? ElementwiseOp::gt : ElementwiseOp::lt, {w, v});
    Operand ties = row(ElementwiseOp::eq, {w, v});
    if (is_floating(type_of(v).dtype)) {
      const Operand v_nan = row(ElementwiseOp::is_nan, {v}),
                    w_nan = row(ElementwiseOp::is_nan, {w});
      wins = row(ElementwiseOp::logical_or,
                 {wins, row(ElementwiseOp::logical_and,
                            {w_nan, row(ElementwiseOp::logical_not, {v_nan})})});
      ties =
          row(ElementwiseOp::logical_or, {ties, row(ElementwiseOp::logical_and, {w_nan, v_nan})});
    }
    const Operand earlier = row(ElementwiseOp::logical_and, {ties, row(ElementwiseOp::lt, {j, i})});
    const Operand take = row(ElementwiseOp::logical_or, {wins, earlier});
    return {row(ElementwiseOp::select, {take, w, v}), row(ElementwiseOp::select, {take, j, i})};
  }

  // L13, L14.
  void lower_op(const ViewOp& op, const Statement& s) {
    const ValueType& from = tile_[op.operand.value].type;
    const ValueType& to = result_type(s);
    const ValueType type = lower_type(to);
    Operand value = mapped(op.operand);
    if (op.kind == ViewKind::Broadcast) {
      value = splat_to(value, type);
      if (type_of(value) == type)
        define(s.results[0], value);
      else
        define(s.results[0], emit(ViewOp{ViewKind::Broadcast, value, {}}, type, s));
      return;
    }
    const bool lanes_stay = from.rank() > 0 && to.rank() > 0 &&
                            from.extents.back() == to.extents.back() &&
                            !padded(from, type_of(value)) &&
                            (op.kind == ViewKind::Reshape ||
                             (op.kind == ViewKind::Transpose &&
                              op.arguments.back() + 1 == static_cast<int64_t>(from.rank())) ||
                             (op.kind == ViewKind::Slice && op.arguments.back() == 0));
    if (lanes_stay) {
      define(s.results[0], emit(ViewOp{op.kind, value, op.arguments}, type, s));
      return;
    }
    define(s.results[0], move_through_memory(op, value, from, to, type, s));
  }

  Operand move_through_memory(const ViewOp& op, const Operand& value, const ValueType& from,
                              const ValueType& to, const ValueType& type, const Statement& s) {
    const int64_t count = from.count();
    Memory memory{.name = "moved",
                  .space = MemorySpace::Local,
                  .mode = Mode::InOut,
                  .dtype = from.dtype,
                  .shape = {Expr(count)}};
    memory.scratch_offset = scratch_;
    scratch_ += (count * static_cast<int64_t>(size_of(from.dtype)) + 63) / 64 * 64;
    const MemoryId id = builder_.add_memory(std::move(memory));
    builder_.append(BufferOp{id}, {});
    const ValueType lowered = type_of(value);
    const auto flat = [](const ValueType& tile, const ValueType& low,
                         const std::vector<int64_t>& strides, int64_t start) {
      Expr sum = start;
      for (size_t axis = 0; axis < tile.rank(); ++axis)
        sum += position(axis, tile, low) * Expr(strides[axis]);
      return sum;
    };
    const auto dense = [](const ValueType& tile) {
      std::vector<int64_t> strides(tile.rank());
      int64_t stride = 1;
      for (size_t axis = tile.rank(); axis-- > 0; stride *= tile.extents[axis])
        strides[axis] = stride;
      return strides;
    };
    const std::vector<int64_t> stored = dense(from);
    builder_.append(StoreOp{value,
                            id,
                            {flat(from, lowered, stored, 0)},
                            lower_guard({}, from, lowered, {}),
                            0,
                            CacheHint::None},
                    {});
    std::vector<int64_t> read = dense(to);
    int64_t start = 0;
    if (op.kind == ViewKind::Transpose)
      for (size_t axis = 0; axis < to.rank(); ++axis)
        read[axis] = stored[static_cast<size_t>(op.arguments[axis])];
    if (op.kind == ViewKind::Slice) {
      read = stored;
      for (size_t axis = 0; axis < to.rank(); ++axis) start += op.arguments[axis] * stored[axis];
    }
    return emit(LoadOp{id,
                       {flat(to, type, read, start)},
                       lower_guard({}, to, type, {}),
                       0,
                       0,
                       CacheHint::None},
                type, s);
  }

  void lower_op(const BufferOp& op, const Statement&) {  // L16
    add_memory(op.memory);
    builder_.append(BufferOp{memories_[op.memory.index]}, {});
  }

  // L17.
  void lower_op(const ForOp& op, const Statement& s) {
    ForOp loop{.symbol = op.symbol,
               .low = uniform(op.low),
               .high = uniform(op.high),
               .step = uniform(op.step),
               .unroll = op.unroll};
    builder_.fresh_name(op.symbol);
    std::vector<ValueType> types;
    for (const auto& [inside, first] : op.carried) {
      types.push_back(lower_type(tile_[inside].type));
      const ValueId carried = builder_.declare("carry", types.back());
      define(inside, carried);
      loop.carried.emplace_back(carried, mapped(first));
    }
    loop.body = region(*op.body);
    const auto results = builder_.append(std::move(loop), types, "for", s.location);
    for (size_t i = 0; i < results.size(); ++i) define(s.results[i], results[i]);
  }

  Region region(const Region& body) {
    Region out;
    builder_.enter(out);
    lower_region(body);
    for (const Operand& yielded : body.yields) out.yields.push_back(mapped(yielded));
    builder_.leave();
    return out;
  }

  void lower_op(const IfOp& op, const Statement& s) {
    IfOp branch;
    branch.condition = uniform(op.condition);
    if (op.flag) branch.flag = values_[op.flag.index].value;
    branch.then = region(*op.then);
    if (op.otherwise) branch.otherwise = region(*op.otherwise);
    std::vector<ValueType> types;
    for (ValueId result : s.results) types.push_back(lower_type(tile_[result].type));
    const auto results = builder_.append(std::move(branch), types, "if", s.location);
    for (size_t i = 0; i < results.size(); ++i) define(s.results[i], results[i]);
  }

  void lower_op(const AwaitOp&, const Statement&) {}  // L19

  void lower_op(const TicketOp& op, const Statement& s) {  // L18
    const MemoryId memory = memories_[op.memory.index];
    const Expr at = offset(op.memory, op.at, renamed_);
    const ValueType i32{DType::I32, 1, {}};
    const ValueId one = builder_.constant(i32, 1);
    const ValueId before =
        builder_.append(AtomicOp{false, memory, at, one, true}, {i32}, "arrived")[0];
    const ValueId count = builder_.iota(uniform(op.count) - 1, i32);
    const ValueId last = builder_.row(ElementwiseOp::eq, {before, count});
    IfOp reset;
    reset.flag = last;
    Region then;
    builder_.enter(then);
    builder_.store(builder_.constant(i32, 0), memory, {at});
    builder_.leave();
    reset.then = std::move(then);
    builder_.append(std::move(reset), {});
    define(s.results[0], last);
  }

  // Tile operations that CPU schedules do not make yet.
  void lower_op(const ScanOp&, const Statement& s) { not_lowered("scan", s); }
  void lower_op(const TileDotOp&, const Statement& s) { not_lowered("dot", s); }
  template <class KernelOnly>
  void lower_op(const KernelOnly&, const Statement& s) {
    not_lowered("an operation of the Kernel IR", s);
  }
  [[noreturn]] void not_lowered(std::string_view what, const Statement& s) {
    static constexpr Code kNotLowered{
        "not-lowered", ErrorKind::Unsupported,
        "The lowering for this target has no rule for the operation."};
    fail(kNotLowered,
         fmt::format("tile program {}: {} has no lowering to a CPU kernel", tile_.name, what),
         {s.location, {}, {}});
  }

  const TileProgram& tile_;
  const int64_t lanes_;
  Kernel kernel_;
  CodeBuilder builder_;
  std::vector<MemoryId> memories_;
  std::vector<std::vector<Expr>> strides_;
  std::vector<Operand> values_;
  std::unordered_map<std::string, Expr> renamed_;  // "%tile value" -> "%kernel value"
  std::map<std::pair<ValueId, int32_t>, std::pair<Operand, uint64_t>>
      splats_;  // and the region's number
  int64_t scratch_ = 0;
};

}  // namespace

Kernel lower(const TileProgram& program, const Target& target) {
  return Lowering(program, target).run();
}

}  // namespace braze
