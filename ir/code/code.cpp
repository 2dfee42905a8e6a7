#include "ir/code/code.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>

#include "ir/support/text.h"

namespace braze {

namespace {

// The extents of a row's result: operands without extents are scalars; the extents of the others
// are equal or 1.
ValueType broadcast_type(const ValueType& a, const ValueType& b) {
  if (a.rank() == 0) return {a.dtype, std::max(a.lanes, b.lanes), b.extents};
  if (b.rank() == 0) return {a.dtype, std::max(a.lanes, b.lanes), a.extents};
  BRAZE_CHECK(a.rank() == b.rank(), fmt::format("a row combines {} and {}, which do not broadcast",
                                                a.to_string(), b.to_string()));
  ValueType out{a.dtype, std::max(a.lanes, b.lanes), a.extents};
  for (size_t i = 0; i < out.extents.size(); ++i) {
    BRAZE_CHECK(a.extents[i] == b.extents[i] || a.extents[i] == 1 || b.extents[i] == 1,
                fmt::format("a row combines {} and {}, which do not broadcast", a.to_string(),
                            b.to_string()));
    out.extents[i] = std::max(a.extents[i], b.extents[i]);
  }
  return out;
}

Interval dtype_range(DType dtype) {
  if (dtype == DType::Bool) return {0, 1};
  if (!is_integer(dtype) || size_of(dtype) == 8) return {};
  const auto width = static_cast<int>(8 * size_of(dtype));
  if (is_unsigned_integer(dtype)) return {0, (int64_t{1} << width) - 1};
  return {-(int64_t{1} << (width - 1)), (int64_t{1} << (width - 1)) - 1};
}

}  // namespace

int64_t ValueType::count() const {
  int64_t n = 1;
  for (int64_t extent : extents) n *= extent;
  return n;
}

std::string ValueType::to_string() const {
  std::string out(braze::name(dtype));
  if (lanes != 1) out += fmt::format("x{}", lanes);
  if (!extents.empty())
    out += "[" + join(extents, ", ", [](int64_t e) { return std::to_string(e); }) + "]";
  return out;
}

bool holds(IndexComparison::Kind kind, int64_t left, int64_t right) {
  switch (kind) {
    case IndexComparison::Kind::Lt:
      return left < right;
    case IndexComparison::Kind::Le:
      return left <= right;
    case IndexComparison::Kind::Gt:
      return left > right;
    case IndexComparison::Kind::Ge:
      return left >= right;
    case IndexComparison::Kind::Eq:
      return left == right;
    case IndexComparison::Kind::Ne:
      return left != right;
  }
  return false;
}

bool holds_always(const IndexComparison& comparison) {
  const Expr &left = comparison.left, &right = comparison.right;
  switch (comparison.kind) {
    case IndexComparison::Kind::Lt:
      return proves_less(left, right) == true;
    case IndexComparison::Kind::Le:
      return proves_at_most(left, right);
    case IndexComparison::Kind::Gt:
      return proves_less(right, left) == true;
    case IndexComparison::Kind::Ge:
      return proves_at_most(right, left);
    case IndexComparison::Kind::Eq:
    case IndexComparison::Kind::Ne:
      return false;
  }
  return false;
}

ValueOperand ValueOperand::literal(DType dtype, uint64_t bits) {
  ValueOperand operand;
  operand.dtype = dtype;
  operand.bits = bits;
  return operand;
}

Expr value_symbol(const KernelCode& code, ValueId value) {
  const Value& v = code[value];
  return Expr::symbol("%" + v.name, dtype_range(v.type.dtype));
}

Expr position_symbol(char letter, size_t axis, int64_t extent) {
  return Expr::symbol(letter + std::to_string(axis), {0, extent - 1});
}

Expr lane_symbol(int32_t lanes) { return Expr::symbol("lane", {0, lanes - 1}); }

Expr loop_symbol(std::string_view name, const Expr& low, const Expr& high, const Expr& step) {
  const Interval from = low.range(), to = high.range();
  const int64_t last = to.max == INT64_MAX || to.max == INT64_MIN ? to.max : to.max - 1;
  const Interval range{from.min, std::max(from.min, last)};
  const int64_t divisor = std::gcd(low.divisor(), step.divisor());
  return Expr::symbol(name, range, std::max<int64_t>(divisor, 1));
}

Expr grid_symbol(std::string_view name, const Expr& extent) {
  return Expr::symbol(name, {0, std::max<int64_t>(extent.range().max, 1) - 1});
}

Expr let_symbol(std::string_view name, const Expr& value) {
  return Expr::symbol(name, value.range(), std::max<int64_t>(value.divisor(), 1));
}

ValueType row_type(const KernelCode& code, ElementwiseOp op,
                   const std::vector<ValueOperand>& operands, std::optional<DType> result) {
  std::optional<ValueType> type;
  for (const ValueOperand& operand : operands) {
    if (operand.is_literal()) continue;
    type = type ? broadcast_type(*type, code[operand.value].type) : code[operand.value].type;
  }
  BRAZE_CHECK(type.has_value(), fmt::format("{} has only literals as operands", name(op)));
  const auto dtype_of = [&](const ValueOperand& o) {
    return o.is_literal() ? o.dtype : code[o.value].type.dtype;
  };
  switch (info(op).result) {
    case ResultRule::Boolean:
      type->dtype = DType::Bool;
      break;
    case ResultRule::Same:
      type->dtype = dtype_of(operands.back());
      break;
    case ResultRule::Chosen:
      type->dtype = result.value();
      break;
  }
  return *type;
}

Expr thread_symbol(int64_t block) { return Expr::symbol("tid", {0, block - 1}); }
Expr role_thread_symbol(int64_t warps) { return Expr::symbol("rtid", {0, 32 * warps - 1}); }

Expr item_symbol() { return Expr::symbol("item", {0, (int64_t{1} << 47) - 1}); }

ValueType memory_type(const Memory& memory) {
  ValueType type{memory.dtype, 1, {}};
  for (const Expr& extent : memory.shape) type.extents.push_back(extent.as_constant().value());
  return type;
}

std::vector<ValueType> instruction_types(const KernelCode& code, const InstructionOp& op,
                                         DType dtype) {
  std::vector<ValueType> values;
  for (const InstructionOperand& operand : op.operands)
    if (const auto* value = std::get_if<ValueOperand>(&operand); value && !value->is_literal())
      values.push_back(code[value->value].type);
  const InstructionInfo& row = info(op.instruction);
  BRAZE_CHECK(!values.empty() || row.result < InstructionResult::First ||
                  row.result == InstructionResult::Fragment,
              fmt::format("{} has no operand that is a value", row.text));
  switch (row.result) {
    case InstructionResult::None:
      return {};
    case InstructionResult::First:
      return {values.front()};
    case InstructionResult::Tied:
      return values;
    case InstructionResult::Fragment:
      return {{dtype, 2, {4}}};
    case InstructionResult::Accumulator:
      return {values.back()};
  }
  return {};
}

std::string CodeBuilder::fresh_name(std::string_view hint) {
  // Digits at the end of the hint would merge with the number that follows.
  std::string base(hint.empty() ? "v" : hint);
  for (char& c : base)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') c = '_';
  if (std::isdigit(static_cast<unsigned char>(base.front()))) base.insert(0, "v");
  uint32_t& used = names_[base];
  std::string candidate = used == 0 ? base : fmt::format("{}.{}", base, used);
  ++used;
  return candidate;
}

MemoryId CodeBuilder::add_memory(Memory memory) {
  memory.name = fresh_name(memory.name);
  const MemoryId id(code_.memories.size());
  if (memory.space == MemorySpace::Parameter) code_.parameters.emplace_back(id);
  code_.memories.push_back(std::move(memory));
  return id;
}

ValueId CodeBuilder::add_scalar_parameter(std::string name, DType dtype) {
  const ValueId id(code_.values.size());
  code_.values.push_back({fresh_name(name), {dtype, 1, {}}});
  code_.scalar_parameters.push_back(id);
  code_.parameters.emplace_back(id);
  return id;
}

std::vector<ValueId> CodeBuilder::append(StatementOp op, const std::vector<ValueType>& result_types,
                                         std::string_view hint, SourceLocation where) {
  Statement statement{std::move(op), {}, where};
  for (const ValueType& type : result_types) {
    statement.results.emplace_back(code_.values.size());
    code_.values.push_back({fresh_name(hint), type});
  }
  std::vector<ValueId> results = statement.results;
  regions_.back()->statements.push_back(std::move(statement));
  return results;
}

ValueId CodeBuilder::declare(std::string_view hint, ValueType type) {
  code_.values.push_back({fresh_name(hint), std::move(type)});
  return ValueId(code_.values.size() - 1);
}

Expr CodeBuilder::let(std::string_view hint, const Expr& value) {
  if (value.operands().empty()) return value;
  const std::string symbol = fresh_name(hint);
  append(LetOp{symbol, value}, {});
  return let_symbol(symbol, value);
}

ValueId CodeBuilder::constant(ValueType type, uint64_t bits) {
  return append(ConstOp{bits}, {std::move(type)}, "c")[0];
}

ValueId CodeBuilder::iota(const Expr& value, ValueType type) {
  return append(IndexOp{value}, {std::move(type)}, "i")[0];
}

ValueId CodeBuilder::test(Condition condition, ValueType type) {
  return append(TestOp{std::move(condition)}, {std::move(type)}, "p")[0];
}

ValueId CodeBuilder::load(MemoryId memory, std::vector<Expr> at, ValueType type, Guard guard,
                          uint64_t fill, CacheHint cache) {
  const std::string hint = code_[memory].name;
  return append(LoadOp{memory, std::move(at), std::move(guard), fill, 0, cache}, {std::move(type)},
                hint)[0];
}

void CodeBuilder::store(ValueOperand value, MemoryId memory, std::vector<Expr> at, Guard guard,
                        CacheHint cache) {
  append(StoreOp{value, memory, std::move(at), std::move(guard), 0, cache}, {});
}

ValueId CodeBuilder::row(ElementwiseOp op, std::vector<ValueOperand> operands,
                         std::optional<DType> result) {
  const ValueType type = row_type(code_, op, operands, result);
  return append(RowOp{op, std::move(operands)}, {type}, name(op))[0];
}

ValueId CodeBuilder::fold(Monoid monoid, ValueOperand operand, std::vector<int64_t> axes) {
  ValueType type = code_[operand.value].type;
  for (int64_t axis : axes) type.extents[static_cast<size_t>(axis)] = 1;
  return append(FoldOp{monoid, operand, std::move(axes), false}, {type}, name(monoid))[0];
}

std::pair<ValueId, ValueId> CodeBuilder::arg_fold(bool is_max, ValueOperand values,
                                                  ValueOperand indices, std::vector<int64_t> axes) {
  ValueType value_type = code_[values.value].type, index_type = code_[indices.value].type;
  for (int64_t axis : axes) {
    value_type.extents[static_cast<size_t>(axis)] = 1;
    index_type.extents[static_cast<size_t>(axis)] = 1;
  }
  const auto results = append(ArgFoldOp{is_max, values, indices, std::move(axes)},
                              {value_type, index_type}, is_max ? "argmax" : "argmin");
  return {results[0], results[1]};
}

ValueId CodeBuilder::view(MovementKind kind, ValueOperand operand, ValueType type,
                          std::vector<int64_t> arguments) {
  return append(MovementOp{kind, operand, std::move(arguments)}, {std::move(type)}, "view")[0];
}

MemoryId CodeBuilder::buffer(std::string_view hint, DType dtype, std::vector<int64_t> extents) {
  Memory memory{.name = std::string(hint),
                .space = MemorySpace::Local,
                .mode = Mode::InOut,
                .dtype = dtype,
                .shape = {extents.begin(), extents.end()}};
  const MemoryId id = add_memory(std::move(memory));
  append(BufferOp{id}, {});
  return id;
}

MemoryId CodeBuilder::shared_memory(std::string_view hint, DType dtype, int64_t count,
                                    int64_t offset) {
  Memory memory{.name = std::string(hint),
                .space = MemorySpace::Shared,
                .mode = Mode::InOut,
                .dtype = dtype,
                .shape = {count},
                .scratch_offset = offset};
  const MemoryId id = add_memory(std::move(memory));
  append(BufferOp{id}, {});
  return id;
}

MemoryId CodeBuilder::mbarriers(std::string_view hint, int64_t count, int64_t offset) {
  const MemoryId id = shared_memory(hint, DType::I64, count, offset);
  code_.memories[id.index].mbarrier = true;
  return id;
}

TensorMapId CodeBuilder::add_tensor_map(TensorMap map) {
  map.name = fresh_name(map.name);
  const TensorMapId id(code_.tensor_maps.size());
  code_.parameters.emplace_back(id);
  code_.tensor_maps.push_back(std::move(map));
  return id;
}

std::vector<ValueId> CodeBuilder::instruction(Instruction instruction,
                                              std::vector<InstructionOperand> operands,
                                              int64_t columns, DType dtype) {
  InstructionOp op{instruction, std::move(operands), columns};
  const std::vector<ValueType> types = instruction_types(code_, op, dtype);
  std::string hint(info(instruction).text);
  return append(std::move(op), types, hint.substr(0, hint.find('.')));
}

void CodeBuilder::barrier(const Expr& id, int64_t threads) {
  instruction(Instruction::bar_sync, {id, Expr(threads)});
}

ValueId CodeBuilder::shuffle(Instruction shuffle, ValueOperand value, const Expr& lane) {
  return instruction(shuffle, {value, lane})[0];
}

ValueId CodeBuilder::undefined(ValueType type) {
  return append(UndefOp{}, {std::move(type)}, "undef")[0];
}

ValueId CodeBuilder::regroup(ValueOperand value, ValueType type) {
  return append(RegroupOp{value}, {std::move(type)}, "regroup")[0];
}

void CodeBuilder::role(std::string_view name, int64_t begin, int64_t end, int64_t registers,
                       const std::function<void(Expr)>& body) {
  RoleOp op{std::string(name), begin, end, registers, {}};
  Region region;
  enter(region);
  body(role_thread_symbol(end - begin));
  leave();
  op.body = std::move(region);
  append(std::move(op), {});
}

std::vector<ValueId> CodeBuilder::for_loop(
    std::string_view hint, const Expr& low, const Expr& high, const Expr& step,
    std::vector<ValueOperand> initial,
    const std::function<std::vector<ValueOperand>(Expr, std::vector<ValueId>)>& body,
    int64_t unroll) {
  ForOp loop{.symbol = fresh_name(hint), .low = low, .high = high, .step = step, .unroll = unroll};
  std::vector<ValueType> types;
  std::vector<ValueId> inside;
  for (const ValueOperand& first : initial) {
    types.push_back(code_[first.value].type);
    inside.push_back(declare("carry", types.back()));
    loop.carried.emplace_back(inside.back(), first);
  }
  const Expr symbol = loop_symbol(loop.symbol, low, high, step);
  Region region;
  enter(region);
  region.yields = body(symbol, inside);
  leave();
  loop.body = std::move(region);
  return append(std::move(loop), types, "for");
}

void CodeBuilder::if_then(Condition condition, const std::function<void()>& then,
                          const std::function<void()>& otherwise) {
  IfOp statement;
  statement.condition = std::move(condition);
  Region region;
  enter(region);
  then();
  leave();
  statement.then = std::move(region);
  if (otherwise) {
    Region other;
    enter(other);
    otherwise();
    leave();
    statement.otherwise = std::move(other);
  }
  append(std::move(statement), {});
}

}  // namespace braze
