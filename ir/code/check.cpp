#include "ir/code/check.h"

#include <algorithm>

#include "ir/code/statements.h"
#include "ir/code/static_loops.h"
#include "ir/code/text.h"
#include "ir/code/walk.h"
#include "ir/ops/machine_semantics.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kMaxSymbol = (int64_t{1} << 47) - 1;
constexpr int64_t kMostStaticTurns = 256;
// The greatest number of copies of one statement. Unrolled loops inside each other multiply, and
// the length of the code with them.
constexpr int64_t kMostCopies = 4096;
// The greatest alignment is the size of a page. No machine promises more, and LLVM accepts little
// more.
constexpr int64_t kMostAlign = 4096;
// Limits of a loop's bounds and step. Sums and differences of such bounds, and of 256 steps, fit in
// 64 bits.
constexpr int64_t kMostBound = int64_t{1} << 60, kMostStep = int64_t{1} << 50;

// Rows that can take 16-bit floats: moves and conversions.
bool is_move(ElementwiseOp op) {
  return op == ElementwiseOp::select || op == ElementwiseOp::bitcast ||
         op == ElementwiseOp::convert;
}

bool all_bounded(const Expr& e) {
  if (!e.range().bounded()) return false;
  return std::all_of(e.operands().begin(), e.operands().end(), all_bounded);
}
bool divisors_positive(const Expr& e) {
  const bool divides = e.kind() == Expr::Kind::FloorDiv || e.kind() == Expr::Kind::Mod;
  if (divides && e.operands()[1].range().min < 1) return false;
  return std::all_of(e.operands().begin(), e.operands().end(), divisors_positive);
}

}  // namespace

bool broadcasts(const ValueType& from, const ValueType& to) {
  if (from.lanes != 1 && from.lanes != to.lanes) return false;
  if (from.rank() == 0) return true;
  if (from.rank() != to.rank()) return false;
  for (size_t i = 0; i < to.rank(); ++i)
    if (from.extents[i] != 1 && from.extents[i] != to.extents[i]) return false;
  return true;
}

Diagnostic broken_rule(const KernelCode& code, const Statement* statement, const char* rule,
                       const std::string& message) {
  Diagnostic finding{
      &codes::kBrokenRule, {}, "@" + code.name, fmt::format("{}: {}", rule, message)};
  if (statement) {
    finding.location = statement->location;
    finding.context = to_text(code, *statement);
    while (!finding.context.empty() && finding.context.back() == '\n') finding.context.pop_back();
  }
  return finding;
}

void CodeChecker::expect(bool holds, const char* rule, const std::string& message) {
  if (!holds && rule) findings.push_back(broken_rule(code_, statement_, rule, message));
}

void CodeChecker::run() {
  check_symbols();
  check_memories();
  for (size_t p = 0; p < code_.phases.size(); ++p) check_phase(p);
  statement_ = nullptr;
  expect(!code_.phases.empty(), rules_.names, "this kernel has no phase; it needs at least one");
  check_kernel();
}

// --- Names
// ----------------------------------------------------------------------------------------

bool CodeChecker::is_position(const std::string& name) const {
  if (letter_ == 'e' && name == "lane") return true;
  return name.size() > 1 && name[0] == letter_ &&
         name.find_first_not_of("0123456789", 1) == std::string::npos;
}

void CodeChecker::define(ValueId value) {
  const std::string& name = code_[value].name;
  expect(names_.insert(name).second, rules_.names, fmt::format("%{} is defined twice", name));
  values_.insert("%" + name);
  check_type(code_[value].type);
}
void CodeChecker::define_symbol(const std::string& name) {
  expect(!is_position(name), rules_.names,
         fmt::format("{} names a position of a tile and cannot be defined", name));
  expect(symbols_.insert(name).second, rules_.names,
         fmt::format("the symbol {} is defined twice", name));
}
void CodeChecker::use(ValueId value) {
  expect(values_.contains("%" + code_[value].name), rules_.names,
         fmt::format("%{} is not defined here", code_[value].name));
}

void CodeChecker::check_symbols() {
  for (const Expr& symbol : code_.symbols) {
    const Interval range = symbol.range();
    define_symbol(symbol.symbol_name());
    sizes_.insert(symbol.symbol_name());
    expect(range.min >= 0 && range.min <= range.max && range.max <= kMaxSymbol, rules_.symbols,
           fmt::format("the symbol {} has the range {}..{}, which is empty, or has values below 0 "
                       "or above the greatest size",
                       symbol.symbol_name(), range.min, range.max));
  }
}

void CodeChecker::check_memories() {
  const auto sizes = [&](const Memory& memory, const std::vector<Expr>& exprs,
                         std::string_view what) {
    for (const Expr& e : exprs) {
      for (const std::string& symbol : e.symbols())
        expect(sizes_.contains(symbol), rules_.extents,
               fmt::format("the {} of %{} uses {}, which is not a symbol of the kernel", what,
                           memory.name, symbol));
      expect(proves_at_most(0, e), rules_.extents,
             fmt::format("the {} of %{} may be negative: {}", what, memory.name, e.to_string()));
    }
  };
  for (size_t i = 0; i < code_.memories.size(); ++i) {
    const Memory& memory = code_.memories[i];
    if (!is_device_memory(memory)) continue;
    expect(names_.insert(memory.name).second, rules_.names,
           fmt::format("%{} is defined twice", memory.name));
    memories_.insert(MemoryId(i));
    sizes(memory, memory.shape, "extent");
    sizes(memory, memory.strides, "stride");
    expect(memory.strides.empty() || memory.strides.size() == memory.shape.size(), rules_.extents,
           fmt::format("%{} needs one stride for each extent", memory.name));
    check_align(memory.align, rules_.extents, fmt::format("%{}", memory.name));
  }
  for (const ValueId scalar : code_.scalar_parameters) {
    define(scalar);
    expect(type_of(scalar).rank() == 0 && type_of(scalar).lanes == 1, rules_.type,
           fmt::format("the parameter %{} must be a scalar with one lane", code_[scalar].name));
  }
}

void CodeChecker::check_align(int64_t align, const char* rule, std::string_view what) {
  const bool is_power = align >= 0 && (align & (align - 1)) == 0;
  expect(is_power && align <= kMostAlign, rule,
         fmt::format("the alignment {} of {} is not a power of two from 1 to {}", align, what,
                     kMostAlign));
}

// --- Index expressions
// ------------------------------------------------------------------------------

void CodeChecker::check_index(const Expr& e, const ValueType* positions) {
  bool wide = false;  // it has 64-bit values, whose range is too wide for an analysis
  for (const std::string& symbol : e.symbols()) {
    if (symbol[0] == '%') {
      expect(values_.contains(symbol), rules_.names, fmt::format("{} is not defined here", symbol));
      const auto found = std::find_if(code_.values.begin(), code_.values.end(),
                                      [&](const Value& v) { return v.name == symbol.substr(1); });
      if (found == code_.values.end()) continue;
      wide |= size_of(found->type.dtype) == 8;
      expect(is_integer(found->type.dtype), rules_.index,
             fmt::format("{} is not an integer", symbol));
      const bool fits = positions ? broadcasts(found->type, *positions)
                                  : found->type.rank() == 0 && found->type.lanes == 1;
      expect(fits, rules_.index,
             fmt::format("{} : {} does not have one element for each position of the result",
                         symbol, found->type.to_string()));
    } else if (is_position(symbol)) {
      const bool lane = symbol == "lane";
      const bool known = positions && (lane || std::stoul(symbol.substr(1)) < positions->rank());
      expect(
          known, rules_.positions,
          fmt::format("{} has no meaning here, because the result has no such position", symbol));
    } else {
      expect(symbols_.contains(symbol), rules_.names,
             fmt::format("the symbol {} is not defined here", symbol));
    }
  }
  expect(wide || all_bounded(e), rules_.index,
         fmt::format("{} may not fit in 64 bits", e.to_string()));
  expect(divisors_positive(e), rules_.index,
         fmt::format("a divisor in {} cannot be proven positive", e.to_string()));
}

void CodeChecker::check_condition(const Condition& condition, const ValueType* positions) {
  for (const IndexComparison& c : condition) {
    check_index(c.left, positions);
    check_index(c.right, positions);
  }
}

void CodeChecker::check_guard(const Guard& guard, const ValueType& type) {
  check_condition(guard.condition, &type);
  if (!guard.mask) return;
  const ValueType& mask = type_of(guard.mask);
  expect(mask.dtype == DType::Bool && broadcasts(mask, type), rules_.guards,
         fmt::format("the mask has the type {}, which is not a bool that broadcasts to {}",
                     mask.to_string(), type.to_string()));
  expect(letter_ == 'd' || mask.lanes == type.lanes, rules_.guards,
         "the mask and its access have different numbers of lanes");
}

void CodeChecker::check_visible(MemoryId id) {
  expect(memories_.contains(id), rules_.names,
         fmt::format("%{} is not defined here", code_[id].name));
}

// Checks that an access is in bounds. If it is proven to be outside, it is a finding; if nothing is
// proven, it is a note.
void CodeChecker::check_bounds(MemoryId id, const std::vector<Expr>& at) {
  const Memory& memory = code_[id];
  for (size_t axis = 0; axis < std::min(at.size(), memory.shape.size()); ++axis) {
    const Expr place = lets_.empty() ? at[axis] : at[axis].substitute(lets_);
    const Interval range = place.range();
    const bool outside =
        range.max < 0 || range.min >= std::max<int64_t>(memory.shape[axis].range().max, 1);
    const std::string text =
        fmt::format("coordinate {} of %{}, which has the extent {} there,", at[axis].to_string(),
                    memory.name, memory.shape[axis].to_string());
    expect(!outside || branches_ > 0, rules_.bounds, text + " is outside");
    if (outside || proves_in_bounds(place, memory.shape[axis], bounds_)) continue;
    Diagnostic note{&codes::kUnprovenAccess, statement_->location, to_text(code_, *statement_),
                    fmt::format("{}: {} cannot be proven to be inside", rules_.bounds, text)};
    notes.push_back(std::move(note));
  }
}

// --- Phases and statements
// ----------------------------------------------------------------------------

void CodeChecker::check_phase(size_t p) {
  const Phase& phase = code_.phases[p];
  statement_ = nullptr;
  phase_ = p;
  const auto symbols = symbols_;
  for (const GridAxis& axis : phase.grid) {
    for (const std::string& symbol : axis.extent.symbols())
      expect(sizes_.contains(symbol), rules_.extents,
             fmt::format("the grid uses {}, which is not a symbol of the kernel", symbol));
    expect(proves_at_most(0, axis.extent), rules_.extents,
           fmt::format("the grid extent {} may be negative", axis.extent.to_string()));
    define_symbol(axis.symbol);
    bounds_.push_back({axis.symbol, 0, axis.extent - 1});
  }
  const auto thread_name = [&](const std::string& symbol, int64_t count) {
    define_symbol(symbol);
    bounds_.push_back({symbol, 0, count - 1});
  };
  if (!phase.cluster.empty()) thread_name(phase.cluster, phase.cluster_size);
  if (phase.block > 0) thread_name("tid", phase.block);
  check_region(phase.body, {}, nullptr, nullptr);
  statement_ = nullptr;
  expect(phase.body.yields.empty(), rules_.loops, "a phase cannot yield values");
  bounds_.clear();
  symbols_ = symbols;
}

void CodeChecker::check_region(const Region& region, const std::vector<ValueId>& defined,
                               const std::string* symbol, const Expr* range) {
  const auto symbols = symbols_;
  const auto values = values_;
  const auto memories = memories_;
  const auto lets = lets_;
  if (symbol) {
    define_symbol(*symbol);
    bounds_.push_back({*symbol, range[0], range[1]});
  }
  for (const ValueId value : defined) define(value);
  ++depth_;
  const Statement* const outer = statement_;
  for (const Statement& statement : region.statements) check(statement);
  statement_ = outer;
  for (const ValueOperand& yielded : region.yields)
    if (!yielded.is_literal()) use(yielded.value);
  --depth_;
  leave_region(region);
  if (symbol) bounds_.pop_back();
  symbols_ = symbols;
  values_ = values;
  memories_ = memories;
  lets_ = lets;
}

// Checks the parts of a statement in the order of its row in statements.def.
class CodeChecker::PartChecker : public LeafVisitor<PartChecker> {
 public:
  explicit PartChecker(CodeChecker& checker) : checker_(checker) {}
  // Whether later checks can read the types of the operands.
  bool is_sound() const { return sound_; }

  void operator()(const auto&... parts) { (part(parts), ...); }

  void value(const ValueOperand& operand) {
    sound_ = sound_ && !operand.is_literal();
    checker_.expect(!operand.is_literal(), checker_.rules_.literals,
                    "a literal cannot stand here, because nothing gives it a type");
  }
  void value(ValueId) {}
  void index(const Expr& e) { checker_.check_index(e, positions()); }
  void memory(MemoryId id, MemoryUse) { checker_.check_visible(id); }
  void region(const Region&) {}

 private:
  const ValueType* positions() const { return type_ ? &*type_ : nullptr; }

  template <class Part>
  void part(const Part& part) {
    if (!sound_) return;
    if constexpr (requires { check(part); })
      check(part);
    else
      leaf(part);
  }
  template <class T>
  void check(const parts::Over<T>& over) {
    if constexpr (std::is_same_v<T, const MemoryId>) {
      const Memory& memory = checker_.code_[over.source];
      sound_ = std::ranges::all_of(memory.shape,
                                   [](const Expr& e) { return e.as_constant().has_value(); });
      checker_.expect(sound_, checker_.rules_.type,
                      fmt::format("%{} is not on-chip memory", memory.name));
      if (sound_) type_ = memory_type(memory);
    } else if constexpr (std::is_same_v<T, const ValueOperand>) {
      type_ = over.source.is_literal() ? ValueType{over.source.dtype, 1, {}}
                                       : checker_.type_of(over.source);
    } else {
      type_ = checker_.result_type();
    }
  }
  template <class... T>
  void check(const parts::Access<const MemoryId, T...>& access) {
    checker_.check_visible(access.memory);
    if constexpr (requires { access.at.size(); }) {
      const size_t axes = checker_.code_[access.memory].shape.size();
      checker_.expect(access.at.size() == axes, checker_.rules_.places,
                      fmt::format("the access has {} coordinates, but its memory has {} axes",
                                  access.at.size(), axes));
    }
    leaf(access.at);
    const auto type = std::exchange(type_, std::nullopt);  // the rank is the same for all elements
    leaf(access.rank);
    type_ = type;
  }
  void check(const Guard& guard) { checker_.check_guard(guard, *type_); }
  // These can be literals.
  template <class... T>
  void check(const parts::Like<T...>&) {}
  void check(const parts::Carry<const std::vector<std::pair<ValueId, ValueOperand>>>&) {}
  void check(const std::vector<InstructionOperand>& operands) {
    for (const InstructionOperand& operand : operands)
      if (!std::holds_alternative<ValueOperand>(operand)) leaf(operand);
  }

  CodeChecker& checker_;
  std::optional<ValueType> type_;  // of the tile whose positions the indices can use
  bool sound_ = true;
};

bool CodeChecker::check_level(const Statement& s) {
  const int levels = info(s).levels, language = letter_ == 'd' ? Level::Tile : Level::Kernel;
  if (levels & level_) return true;
  if (!(levels & language))
    expect(false, rules_.operands, "this statement belongs to another language");
  else
    expect(false, rules_.level,
           levels == Level::Gpu
               ? "this statement is for GPUs only, and this kernel is for a CPU"
               : "this statement is for pipelined programs, and this program is not pipelined");
  return false;
}

bool CodeChecker::check_parts(const Statement& s) {
  PartChecker checker(*this);
  std::visit([&](const auto& op) { visit_parts(op, checker); }, s.op);
  return checker.is_sound();
}

void CodeChecker::check(const Statement& statement) {
  statement_ = &statement;
  for_each_value(statement, [&](ValueId value) { use(value); });
  if (check_level(statement) && check_parts(statement)) {
    check_common(statement);
    check_own(statement);
  }
  statement_ = &statement;
  for (const ValueId result : statement.results) define(result);
}

void CodeChecker::expect_type(const ValueType& expected) {
  expect(result_type() == expected, rules_.operands,
         fmt::format("the result has the type {}, but {} is written", expected.to_string(),
                     result_type().to_string()));
}

bool CodeChecker::axis_of(int64_t axis, const ValueType& type) {
  const bool inside = axis >= 0 && axis < static_cast<int64_t>(type.rank());
  expect(inside, rules_.axes, fmt::format("{} has no axis {}", type.to_string(), axis));
  return inside;
}

void CodeChecker::check_common(const Statement& s) {
  if (const auto* let = s.as<LetOp>()) {
    define_symbol(let->symbol);
    lets_.insert_or_assign(let->symbol, lets_.empty() ? let->value : let->value.substitute(lets_));
  } else if (s.as<IndexOp>()) {
    expect(is_integer(result_type().dtype), rules_.operands,
           "the result of iota must be an integer type");
  } else if (s.as<TestOp>()) {
    expect(result_type().dtype == DType::Bool, rules_.operands, "the result of test must be bool");
  } else if (const auto* load = s.as<LoadOp>()) {
    expect(result_type().dtype == code_[load->memory].dtype, rules_.places,
           "the dtype of the result is not that of the memory");
    if (!load->guard) check_bounds(load->memory, load->at);
    check_access(load->memory, load->at, load->guard, result_type(), false);
  } else if (const auto* store = s.as<StoreOp>()) {
    const Memory& memory = code_[store->memory];
    const ValueType type =
        store->value.is_literal() ? ValueType{store->value.dtype, 1, {}} : type_of(store->value);
    expect(type.dtype == memory.dtype, rules_.places,
           "the dtype of the value is not that of the memory");
    expect(memory.space != MemorySpace::Parameter || memory.mode != Mode::In, rules_.places,
           fmt::format("%{} is an `in` parameter and cannot be stored to", memory.name));
    if (!store->guard) check_bounds(store->memory, store->at);
    check_access(store->memory, store->at, store->guard, type, true);
  } else if (const auto* row = s.as<RowOp>()) {
    check_row_types(*row);
    check_row(*row);
  } else if (const auto* fold = s.as<FoldOp>()) {
    check_fold(*fold);
  } else if (const auto* view = s.as<MovementOp>()) {
    check_view(*view);
  } else if (const auto* buffer = s.as<BufferOp>()) {
    declare(buffer->memory);
    check_alloc(*buffer);
  } else if (const auto* loop = s.as<ForOp>()) {
    check_loop(*loop);
  } else if (const auto* branch = s.as<IfOp>()) {
    check_branch(*branch);
  }
}

void CodeChecker::declare(MemoryId id) {
  const Memory& memory = code_[id];
  expect(names_.insert(memory.name).second, rules_.names,
         fmt::format("%{} is defined twice", memory.name));
  memories_.insert(id);
  int64_t bytes = static_cast<int64_t>(size_of(memory.dtype));
  constexpr int64_t kMostBytes = int64_t{1} << 28;
  for (const Expr& extent : memory.shape) {
    const int64_t n = extent.as_constant().value_or(0);
    expect(n >= 1 && n <= kMostBytes, rules_.type,
           fmt::format("the extent {} of a buffer is not a constant from 1 to 2^28",
                       extent.to_string()));
    bytes = std::min<int64_t>(bytes * std::clamp<int64_t>(n, 1, kMostBytes), 4 * kMostBytes);
  }
  expect(bytes <= kMostBytes, rules_.type, "a buffer cannot have more than 2^28 bytes");
}

void CodeChecker::check_row_types(const RowOp& op) {
  expect(op.operands.size() == info(op.op).arity, rules_.operands,
         fmt::format("{} takes {} operands", name(op.op), info(op.op).arity));
  if (op.operands.size() != info(op.op).arity) return;
  const bool select = op.op == ElementwiseOp::select;
  std::optional<DType> dtype;
  bool any_value = false;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ValueOperand& o = op.operands[i];
    any_value |= !o.is_literal();
    const DType own = o.is_literal() ? o.dtype : type_of(o).dtype;
    if (select && i == 0) {
      expect(own == DType::Bool, rules_.operands, "the first operand of select must be bool");
      continue;
    }
    expect(!dtype || *dtype == own, rules_.operands,
           fmt::format("{} cannot combine {} and {}; its operands must have one dtype", name(op.op),
                       name(dtype.value_or(own)), name(own)));
    dtype = own;
  }
  expect(any_value, rules_.literals,
         "one operand must be a value, because literals alone have no type");
  if (!any_value) return;
  const ValueType& result = result_type();
  std::vector<int64_t> extents;
  for (const ValueOperand& o : op.operands) {
    if (o.is_literal()) continue;
    const ValueType& type = type_of(o);
    expect(broadcasts(type, result), rules_.operands,
           fmt::format("{} does not broadcast to {}", type.to_string(), result.to_string()));
    if (extents.empty()) extents.assign(type.extents.begin(), type.extents.end());
    for (size_t i = 0; i < std::min(extents.size(), type.rank()); ++i)
      extents[i] = std::max(extents[i], type.extents[i]);
  }
  expect(extents == result.extents, rules_.operands,
         fmt::format("the result {} is larger than its operands", result.to_string()));
  const DType expected = result_dtype(info(op.op).result, *dtype, result.dtype);
  expect(result.dtype == expected, rules_.operands,
         fmt::format("the result of {} is {}, but {} is written", name(op.op), name(expected),
                     name(result.dtype)));
  expect(info(op.op).types.contains(*dtype), rules_.operands,
         fmt::format("{} is not defined on {}", name(op.op), name(*dtype)));
  expect(!is_half(*dtype) || is_move(op.op), rules_.operands,
         fmt::format("{} cannot compute in {}; convert 16-bit floats to f32 first", name(op.op),
                     name(*dtype)));
  if (op.op == ElementwiseOp::bitcast)
    expect(size_of(*dtype) == size_of(result.dtype) && *dtype != DType::Bool &&
               result.dtype != DType::Bool,
           rules_.operands,
           fmt::format("bitcast from {} to {} is not possible; it needs two dtypes of one size "
                       "other than bool",
                       name(*dtype), name(result.dtype)));
}

void CodeChecker::check_fold(const FoldOp& op) {
  ValueType type = type_of(op.operand);
  expect(info(op.monoid).types.contains(type.dtype) && !is_half(type.dtype), rules_.operands,
         fmt::format("{} is not defined on {}", name(op.monoid), name(type.dtype)));
  std::set<int64_t> seen;
  for (const int64_t axis : op.axes) {
    if (!axis_of(axis, type)) return;
    expect(seen.insert(axis).second, rules_.axes, fmt::format("axis {} is named twice", axis));
    type.extents[static_cast<size_t>(axis)] = 1;
  }
  if (op.lanes) type.lanes = 1;
  expect(!op.cluster || code_.pipelined, rules_.operands,
         "`cluster` is for pipelined programs only");
  expect_type(type);
}

void CodeChecker::check_offsets(const std::vector<Expr>& offsets, const ValueType& from,
                                const ValueType& to) {
  const bool same_rank = offsets.size() == from.rank() && from.rank() == to.rank();
  expect(same_rank, rules_.axes,
         "the slice needs one offset for each axis, and an operand of the result's rank");
  for (size_t i = 0; same_rank && i < to.rank(); ++i) {
    for (const std::string& symbol : offsets[i].symbols())
      expect(statics_.contains(symbol), rules_.axes,
             fmt::format("{} is not the symbol of a static loop", symbol));
    const Interval range = offsets[i].range();
    expect(range.min >= 0 && range.max <= from.extents[i] - to.extents[i], rules_.axes,
           fmt::format("the slice is not inside {1} along axis {0}", i, from.to_string()));
  }
}

void CodeChecker::check_view(const MovementOp& op) {
  const ValueType &from = type_of(op.operand), &to = result_type();
  expect(from.dtype == to.dtype && from.lanes == to.lanes, rules_.operands,
         fmt::format("a view cannot change the dtype or the lanes, from {} to {}", from.to_string(),
                     to.to_string()));
  const bool same_rank = from.rank() == to.rank() && op.arguments.size() == to.rank();
  switch (op.kind) {
    case MovementKind::Reshape:
      expect(from.count() == to.count(), rules_.axes,
             fmt::format("{} and {} have different numbers of elements", from.to_string(),
                         to.to_string()));
      break;
    case MovementKind::Broadcast:
      expect(broadcasts(from, to), rules_.axes,
             fmt::format("{} does not broadcast to {}", from.to_string(), to.to_string()));
      break;
    case MovementKind::Transpose: {
      std::set<int64_t> seen(op.arguments.begin(), op.arguments.end());
      bool right = same_rank && seen.size() == to.rank();
      for (size_t i = 0; right && i < to.rank(); ++i)
        right = op.arguments[i] >= 0 && op.arguments[i] < static_cast<int64_t>(to.rank()) &&
                to.extents[i] == from.extents[static_cast<size_t>(op.arguments[i])];
      expect(right, rules_.axes,
             fmt::format("{}, transposed, does not have the type {}", from.to_string(),
                         to.to_string()));
      break;
    }
    case MovementKind::Slice:
      if (!op.offsets.empty()) return check_offsets(op.offsets, from, to);
      expect(same_rank, rules_.axes,
             "the slice needs one offset for each axis, and an operand of the result's rank");
      for (size_t i = 0; same_rank && i < to.rank(); ++i)
        expect(op.arguments[i] >= 0 && op.arguments[i] <= from.extents[i] - to.extents[i],
               rules_.axes,
               fmt::format("the slice is not inside {1} along axis {0}", i, from.to_string()));
      break;
  }
}

void CodeChecker::check_carried(const std::vector<std::pair<ValueId, ValueOperand>>& carried,
                                const std::vector<ValueOperand>& yields) {
  expect(yields.size() == carried.size(), rules_.loops,
         fmt::format("the body yields {} values, but the loop carries {}", yields.size(),
                     carried.size()));
  expect(statement_->results.empty() || statement_->results.size() == carried.size(), rules_.loops,
         "the loop needs one result for each carried value, or none");
  for (size_t i = 0; i < std::min(carried.size(), yields.size()); ++i) {
    const ValueType& type = type_of(carried[i].first);
    const bool first = carried[i].second.is_literal() || type_of(carried[i].second) == type;
    const bool yielded =
        yields[i].is_literal() ? yields[i].dtype == type.dtype : type_of(yields[i]) == type;
    const bool result = i >= statement_->results.size() || result_type(i) == type;
    expect(first && yielded && result, rules_.loops,
           fmt::format(
               "the first value, the yielded value or the result of %{} does not have its type {}",
               code_[carried[i].first].name, type.to_string()));
  }
}

bool CodeChecker::check_loop_bounds(const ForOp& op) {
  const Interval step = op.step.range();
  expect(step.min >= 1, rules_.loops,
         fmt::format("the step {} cannot be proven positive", op.step.to_string()));
  bool small = step.max <= kMostStep;
  for (const Expr* e : {&op.low, &op.high})
    small = small && -kMostBound <= e->range().min && e->range().max <= kMostBound;
  expect(small, rules_.loops, "the bounds of this loop may exceed 2^60, or its step 2^50");
  return small && step.min >= 1;
}

int64_t CodeChecker::copies_of(const ForOp& op) { return body_copies(op); }

void CodeChecker::check_loop(const ForOp& op) {
  if (!check_loop_bounds(op)) return;
  std::vector<ValueId> inside;
  for (const auto& [value, first] : op.carried) inside.push_back(value);
  const auto plain = [&](const Expr& e) { return lets_.empty() ? e : e.substitute(lets_); };
  note_loop(op);
  const Expr range[2] = {plain(op.low), plain(op.high) - 1};
  if (op.is_static) {
    const auto low = op.low.as_constant(), high = op.high.as_constant(),
               step = op.step.as_constant();
    expect(
        low && high && step && *high - *low <= kMostStaticTurns * *step, rules_.loops,
        fmt::format("a static loop needs constant bounds and a constant step, and at most {} turns",
                    kMostStaticTurns));
    statics_.insert(op.symbol);
  }
  expect(op.unroll >= 0, rules_.loops,
         fmt::format("a loop cannot be unrolled {} times", op.unroll));
  const int64_t copies = std::clamp<int64_t>(copies_of(op), 1, kMostCopies + 1);
  const int64_t outside = copies_;
  copies_ = std::min(copies_ * copies, kMostCopies + 1);
  expect(copies_ <= kMostCopies || outside > kMostCopies, rules_.loops,
         fmt::format("unrolled loops make more than {} copies of a statement", kMostCopies));
  check_region(*op.body, inside, &op.symbol, range);
  copies_ = outside;
  statics_.erase(op.symbol);
  check_carried(op.carried, op.body->yields);
}

void CodeChecker::check_branch(const IfOp& op) {
  if (op.flag)
    expect(type_of(op.flag) == ValueType{DType::Bool, 1, {}}, rules_.loops,
           "the condition of `if` must be a bool scalar");
  ++branches_;
  check_region(*op.then, {}, nullptr, nullptr);
  if (op.otherwise) check_region(*op.otherwise, {}, nullptr, nullptr);
  --branches_;
  const size_t count = statement_->results.size();
  const auto yields = [&](const Region& region) {
    bool same = region.yields.size() == count || count == 0;
    for (size_t i = 0; same && i < count; ++i)
      same = region.yields[i].is_literal() ? region.yields[i].dtype == result_type(i).dtype
                                           : type_of(region.yields[i]) == result_type(i);
    return same;
  };
  expect(count == 0 || op.otherwise, rules_.loops, "an `if` with results needs an `else`");
  expect(yields(*op.then) && (!op.otherwise || yields(*op.otherwise)), rules_.loops,
         "a region of this `if` does not yield values of the results' types");
}

}  // namespace braze
