// cuda_text.cpp — Kernel IR as CUDA C++, with one function for each phase.
//
// Every lane of every element of a value is a C++ expression: a variable that is assigned once, a
// literal, or the expression of another value if an operation only renames (views, pack, splat,
// regroup). What loops and branches carry are variables.
//
//   m<i>   memory i (a pointer)        v<i>_<k>   lane-element k of value i
//   s_<n>  index symbol n              t<i>       a tensor map
//
// Index expressions are `int` if interval analysis proves that they fit, else `i64`.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <unordered_map>

#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/constant_division.h"
#include "compiler/codegen/instruction_text.h"
#include "compiler/codegen/nvrtc/nvrtc_p.h"
#include "ir/code/comparisons.h"
#include "ir/code/index_program.h"
#include "ir/code/static_loops.h"
#include "ir/code/vectors.h"
#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace codegen {
namespace {

using Names = std::vector<std::string>;

struct Position {
  std::vector<int64_t> at, extents;
  int64_t lane = 0;
};

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel), names_(kernel.values.size()) {
    for (size_t i = 0; i < kernel.values.size(); ++i)
      values_by_name_.emplace(kernel.values[i].name, ValueId(i));
    waits_for_others_ = std::ranges::any_of(kernel.phases, awaits_predecessors);
  }

  std::string run() {
    out_ = cuda_preamble();
    if (kernel_.members > 1) arrays();
    for (size_t i = 0; i < kernel_.phases.size(); ++i) phase(i);
    return std::move(out_);
  }

 private:
  // ---------------------------------------------------------------- lines

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_.append(static_cast<size_t>(2 * depth_), ' ');
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  template <class... Args>
  void open(fmt::format_string<Args...> format, Args&&... args) {
    line(format, std::forward<Args>(args)...);
    ++depth_;
  }
  void close(std::string_view end = "}") {
    --depth_;
    line("{}", end);
  }
  void locate(const Statement& s) {
    if (!s.location || (s.location.line == line_ && file_ == s.location.file)) return;
    line_ = s.location.line;
    file_ = s.location.file;
    line("#line {} {}", line_, quote(file_));
  }

  [[noreturn]] void refuse(const Statement& s, std::string_view what) const {
    fail(codes::kCodegenKernel, fmt::format("kernel @{}: {}", kernel_.name, what),
         {.location = s.location, .node = "", .fix = ""});
  }

  // ---------------------------------------------------------------- values

  const ValueType& type_of(ValueId id) const { return kernel_[id].type; }
  ValueType type_of(const ValueOperand& o) const {
    return o.is_literal() ? ValueType{o.dtype, 1, {}} : type_of(o.value);
  }
  static size_t width(const ValueType& type) {
    return static_cast<size_t>(type.count() * type.lanes);
  }

  /// Lane-element k of an operand of `lanes`. All elements of a literal are the same.
  std::string element(const ValueOperand& o, size_t k) const {
    return o.is_literal() ? cuda_literal(o.dtype, o.bits) : names_[o.value.index].at(k);
  }
  Names elements(const ValueOperand& o) const {
    return o.is_literal() ? Names{element(o, 0)} : names_[o.value.index];
  }

  // Lane `lane` of the element of `o` that stands for position `at`.
  std::string broadcast(const ValueOperand& o, const std::vector<int64_t>& at, int64_t lane) const {
    if (o.is_literal()) return element(o, 0);
    const ValueType& type = type_of(o.value);
    const int64_t i = broadcast_index(type.extents, at);
    return element(o, static_cast<size_t>(i * type.lanes + (type.lanes == 1 ? 0 : lane)));
  }

  std::string variable(ValueId id, size_t k) const { return fmt::format("v{}_{}", id.index, k); }

  // Calls make(position, lane) for all lane-elements and gives each a variable.
  template <class Make>
  void define(ValueId id, const Make& make) {
    const ValueType& type = type_of(id);
    Names names;
    for (int64_t i = 0; i < type.count(); ++i)
      for (int64_t l = 0; l < type.lanes; ++l) {
        names.push_back(variable(id, names.size()));
        line("{} {} = {};", cuda_type(type.dtype), names.back(),
             make(unflatten(i, type.extents), l));
      }
    names_[id.index] = std::move(names);
  }
  void rename(ValueId id, Names names) { names_[id.index] = std::move(names); }
  Names declare(ValueId id, const Names& initial = {}) {
    const ValueType& type = type_of(id);
    Names names;
    for (size_t k = 0; k < width(type); ++k) {
      names.push_back(variable(id, k));
      if (initial.empty())
        line("{} {};", cuda_type(type.dtype), names.back());
      else
        line("{} {} = {};", cuda_type(type.dtype), names.back(), initial[k]);
    }
    names_[id.index] = names;
    return names;
  }
  // The expressions of an operand, one for each lane-element of `type`.
  Names spread(const ValueOperand& o, const ValueType& type) const {
    return o.is_literal() ? Names(width(type), element(o, 0)) : names_[o.value.index];
  }

  // ---------------------------------------------------------------- index expressions

  static bool is_narrow(Interval range) { return range.min >= INT32_MIN && range.max <= INT32_MAX; }
  static bool is_narrow(const Expr& e) { return is_narrow(e.range()); }
  static std::string_view index_type(const Expr& e) { return is_narrow(e) ? "int" : "i64"; }

  static std::string symbol_name(std::string_view symbol) {
    std::string name = fmt::format("s_{}", symbol);
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
  }

  // An index expression as `int` or `i64`, by index_type. Position symbols become numbers.
  std::string index(const Expr& e, const Position& position = {}) const {
    return print(place(e, position), position);
  }
  Expr place(const Expr& e, const Position& position) const {
    std::unordered_map<std::string, Expr> numbers{{"lane", Expr(position.lane)}};
    for (size_t d = 0; d < position.at.size(); ++d)
      numbers.emplace(fmt::format("e{}", d), Expr(position.at[d]));
    return e.substitute(numbers);
  }
  std::string wide(const Expr& e, const Position& position) const {
    return is_narrow(e) ? fmt::format("(i64){}", print(e, position)) : print(e, position);
  }

  std::string print(const Expr& e, const Position& position) const {
    const auto operands = e.operands();
    switch (e.kind()) {
      case Expr::Kind::Constant:
        return is_narrow(e) ? fmt::format("({})", *e.as_constant())
                            : fmt::format("({}ll)", *e.as_constant());
      case Expr::Kind::Symbol:
        return symbol(e, position);
      case Expr::Kind::Sum:
        return chain(
            e, " + ", [](const Expr& a, const Expr& b) { return a + b; }, position);
      case Expr::Kind::Product:
        return chain(
            e, " * ", [](const Expr& a, const Expr& b) { return a * b; }, position);
      case Expr::Kind::FloorDiv:
      case Expr::Kind::Mod:
        return division(e, operands[0], operands[1], position);
      case Expr::Kind::Min:
      case Expr::Kind::Max: {
        const bool all_narrow = std::all_of(operands.begin(), operands.end(),
                                            [](const Expr& x) { return is_narrow(x); });
        std::string best;
        for (const Expr& x : operands) {
          const std::string one = all_narrow ? print(x, position) : wide(x, position);
          best = best.empty()
                     ? one
                     : fmt::format("b::{}({}, {})",
                                   e.kind() == Expr::Kind::Min ? "minimum" : "maximum", best, one);
        }
        return is_narrow(e) && !all_narrow ? fmt::format("(int){}", best) : best;
      }
    }
    return {};
  }

  // Signed operators must not overflow in partial results, so 32 bits are used only if every
  // partial result fits.
  template <class Join>
  std::string chain(const Expr& e, std::string_view op, const Join& join_two,
                    const Position& position) const {
    const auto operands = e.operands();
    bool narrow = is_narrow(operands[0]);
    Expr partial = operands[0];
    for (size_t i = 1; i < operands.size() && narrow; ++i) {
      partial = join_two(partial, operands[i]);
      narrow = is_narrow(operands[i]) && is_narrow(partial);
    }
    const std::string text = join(operands, op, [&](const Expr& x) {
      return narrow ? print(x, position) : wide(x, position);
    });
    return fmt::format("{}({})", is_narrow(e) && !narrow ? "(int)" : "", text);
  }

  std::string division(const Expr& e, const Expr& left, const Expr& right,
                       const Position& position) const {
    const bool is_mod = e.kind() == Expr::Kind::Mod;
    const bool narrow = is_narrow(left) && is_narrow(right);
    const auto constant = right.as_constant();
    if (const auto added = constant ? divisors_until_positive(left.range(), *constant)
                                    : std::optional<int64_t>()) {
      std::string x = "(u32)" + print(left, position);
      if (*added > 0) x = fmt::format("({} + {}u)", x, *added * *constant);
      if (is_mod) return "(int)" + divide(x, *constant, true);
      const std::string quotient = "(int)" + divide(x, *constant, false);
      return *added > 0 ? fmt::format("({} - {})", quotient, *added) : quotient;
    }
    if (left.range().min >= 0) {
      const std::string_view type = narrow ? "u32" : "u64";
      return fmt::format("({})(({}){} {} ({}){})", index_type(e), type, print(left, position),
                         is_mod ? "%" : "/", type, print(right, position));
    }
    return fmt::format("({})b::{}({}, {})", index_type(e), is_mod ? "mod" : "floordiv",
                       wide(left, position), wide(right, position));
  }

  // The quotient or the remainder of a u32 of at most 2^31 and a constant.
  static std::string divide(const std::string& x, int64_t divisor, bool is_mod) {
    if (std::has_single_bit(static_cast<uint64_t>(divisor)))
      return fmt::format("({} {} {}u)", x, is_mod ? '%' : '/', divisor);
    const auto [multiplier, shift] = constant_division(static_cast<uint32_t>(divisor));
    return is_mod ? fmt::format("b::rest<{}u, {}>({}, {}u)", multiplier, shift, x, divisor)
                  : fmt::format("b::quotient<{}u, {}>({})", multiplier, shift, x);
  }

  ValueId value_named(const std::string& symbol) const {
    const auto it = values_by_name_.find(std::string_view(symbol).substr(1));
    BRAZE_CHECK(it != values_by_name_.end(), "there is no value " + symbol);
    return it->second;
  }

  std::string symbol(const Expr& e, const Position& position) const {
    const std::string& name = e.symbol_name();
    if (name[0] != '%') return symbol_name(name);
    const ValueId id = value_named(name);
    return fmt::format("({}){}", index_type(e),
                       broadcast(ValueOperand(id), position.at, position.lane));
  }

  std::string compare(const IndexComparison& c, const Position& position) const {
    const Expr left = place(c.left, position), right = place(c.right, position);
    const bool narrow = is_narrow(left) && is_narrow(right);
    return fmt::format("({} {} {})", narrow ? print(left, position) : wide(left, position),
                       kComparisonSigns[static_cast<size_t>(c.kind)],
                       narrow ? print(right, position) : wide(right, position));
  }
  // Leaves out comparisons that the ranges of threads and loops prove.
  std::string all_of(const Condition& condition, const Position& position) const {
    std::vector<std::string> terms;
    for (const IndexComparison& c : condition) {
      if (!holds_always({place(c.left, position), c.kind, place(c.right, position)}))
        terms.push_back(compare(c, position));
    }
    return terms.empty() ? "true" : join(terms, " && ", [](const std::string& t) { return t; });
  }

  // ---------------------------------------------------------------- phases

  bool is_constant(const Memory& memory) const {
    return memory.space == MemorySpace::Parameter && memory.mode == Mode::In && !waits_for_others_;
  }
  static std::string_view memory_type(DType dtype) {
    return dtype == DType::Bool ? "u8" : cuda_type(dtype);
  }

  void phase(size_t number) {
    const Phase& phase = kernel_.phases[number];
    phase_ = &phase;
    std::vector<std::string> parameters;
    if (kernel_.members > 1)
      parameters.push_back("const __grid_constant__ Pointers pointers");
    else
      for (size_t i = 0; i < kernel_.memories.size(); ++i)
        if (is_device_memory(kernel_.memories[i])) parameters.push_back(pointer(i));
    for (const Expr& symbol : kernel_.passed_symbols())
      parameters.push_back("i64 p_" + symbol_name(symbol.symbol_name()));
    for (ValueId id : kernel_.scalar_parameters)
      parameters.push_back(fmt::format("u64 p{}", id.index));
    if (kernel_.members > 1 && !kernel_.tensor_maps.empty())
      parameters.push_back("const __grid_constant__ TensorMaps maps");
    else
      for (size_t i = 0; i < kernel_.tensor_maps.size(); ++i)
        parameters.push_back(fmt::format("const __grid_constant__ TensorMap t{}", i));
    if (!kernel_.member_sizes.empty()) member_tables(number);
    line("extern __shared__ __align__(1024) u8 shared_memory[];");
    open("extern \"C\" __global__ void {}{}{}({}) {{", launch_bounds(phase),
         phase.cluster_size > 1 ? fmt::format("__cluster_dims__({}) ", phase.cluster_size) : "",
         gpu_entry_name(kernel_, number), join(parameters, ", ", std::identity()));
    if (kernel_.members > 1) bind_member(number);
    bind_parameters();
    bind_instance(number);
    statements(phase.body);
    close();
  }

  std::string pointer(size_t memory) const {
    // The compiler may load what __restrict__ makes constant past the coherent caches, and before
    // a wait for the kernels that write it.
    return fmt::format("{}*{} m{}", memory_type(kernel_.memories[memory].dtype),
                       waits_for_others_ ? "" : " __restrict__", memory);
  }

  // The types of parameters with the pointers and the tensor maps of all members.
  void arrays() {
    const auto memories = std::ranges::count_if(kernel_.memories, is_device_memory);
    line("struct Pointers {{ void* at[{}]; }};", kernel_.members * memories);
    if (!kernel_.tensor_maps.empty())
      line("struct TensorMaps {{ TensorMap at[{}]; }};",
           kernel_.members * static_cast<int64_t>(kernel_.tensor_maps.size()));
  }
  // Where each member's blocks begin, and its sizes.
  void member_tables(size_t number) {
    const auto text = [](auto n) { return fmt::format("{}", n); };
    line("__constant__ const u32 firsts_{}[] = {{{}}};", number,
         join(first_blocks(kernel_, *phase_), ", ", text));
    std::vector<int64_t> sizes;
    for (const std::vector<int64_t>& of_member : kernel_.member_sizes)
      sizes.insert(sizes.end(), of_member.begin(), of_member.end());
    line("__constant__ const i64 sizes_{}[] = {{{}}};", number, join(sizes, ", ", text));
  }
  void bind_member(size_t number) {
    if (kernel_.member_sizes.empty()) {
      line("const u32 member = blockIdx.y;");
    } else {
      line("u32 member = 0;");
      for (size_t step = first_blocks(kernel_, *phase_).size() / 2; step > 0; step /= 2)
        line("if (firsts_{0}[member + {1}] <= blockIdx.x) member += {1};", number, step);
      const size_t symbols = kernel_.symbols.size();
      for (size_t i = 0; i < symbols; ++i)
        line("const i64 p_{} = sizes_{}[{} * member + {}];",
             symbol_name(kernel_.symbols[i].symbol_name()), number, symbols, i);
    }
    const auto memories = std::ranges::count_if(kernel_.memories, is_device_memory);
    int64_t next = 0;
    for (size_t i = 0; i < kernel_.memories.size(); ++i)
      if (const Memory& memory = kernel_.memories[i]; is_device_memory(memory))
        line("{} = ({}*)pointers.at[{} * member + {}];", pointer(i), memory_type(memory.dtype),
             memories, next++);
    const size_t maps = kernel_.tensor_maps.size();
    for (size_t i = 0; i < maps; ++i)
      line("const TensorMap& t{} = maps.at[{} * member + {}];", i, maps, i);
  }

  static std::string launch_bounds(const Phase& phase) {
    const bool moves_registers = std::any_of(phase.body.statements.begin(),
                                             phase.body.statements.end(), [](const Statement& s) {
                                               const auto* role = s.as<RoleOp>();
                                               return role && role->registers > 0;
                                             });
    // A limit on registers can be given only as the number of blocks that share a multiprocessor.
    const int64_t blocks = phase.registers > 0
                               ? (kMultiprocessorRegisters + phase.registers * phase.block - 1) /
                                     (phase.registers * phase.block)
                               : moves_registers;
    return blocks > 0 ? fmt::format("__launch_bounds__({}, {}) ", phase.block, blocks)
                      : fmt::format("__launch_bounds__({}) ", phase.block);
  }

  void bind_parameters() {
    for (const Expr& symbol : kernel_.symbols) {
      const std::string name = symbol_name(symbol.symbol_name());
      line("const {0} {1} = ({0})p_{1};", index_type(symbol), name);
    }
    for (ValueId id : kernel_.scalar_parameters) {
      const DType dtype = type_of(id).dtype;
      const std::string bits = fmt::format("p{}", id.index);
      std::string value = fmt::format("({}){}", cuda_type(dtype), bits);
      if (dtype == DType::Bool) value = fmt::format("({} != 0)", bits);
      if (dtype == DType::F32) value = fmt::format("b::real((u32){})", bits);
      if (dtype == DType::F64) value = fmt::format("b::real({})", bits);
      rename(id, {fmt::format("v{}_0", id.index)});
      line("const {} v{}_0 = {};", cuda_type(dtype), id.index, value);
    }
  }

  void bind_instance(size_t number) {
    line("const int s_tid = threadIdx.x;");
    line("u32 instance = blockIdx.x{};",
         kernel_.member_sizes.empty() ? "" : fmt::format(" - firsts_{}[member]", number));
    if (phase_->cluster_size > 1) {
      const int64_t size = phase_->cluster_size;
      line("const int {} = {};", symbol_name(phase_->cluster), divide("instance", size, true));
      line("instance = {};", divide("instance", size, false));
    }
    for (size_t i = phase_->grid.size(); i-- > 0;) {
      const GridAxis& axis = phase_->grid[i];
      if (i == 0) {
        line("const int {} = instance;", symbol_name(axis.symbol));
        break;
      }
      const auto constant = axis.extent.as_constant();
      const std::string extent = index(axis.extent);
      line("const int {} = {};", symbol_name(axis.symbol),
           constant ? divide("instance", *constant, true)
                    : fmt::format("instance % (u32){}", extent));
      line("instance = {};", constant ? divide("instance", *constant, false)
                                      : fmt::format("instance / (u32){}", extent));
    }
  }

  // ---------------------------------------------------------------- statements

  void statements(const Region& region) {
    for (const Statement& s : region.statements) statement(s);
  }

  void statement(const Statement& s) {
    locate(s);
    if (const auto* op = s.as<LetOp>())
      return line("const {} {} = {};", index_type(op->value), symbol_name(op->symbol),
                  index(op->value));
    if (const auto* op = s.as<StoreOp>()) return store(*op);
    if (const auto* op = s.as<LoadOp>()) return load(*op, s.results[0]);
    if (const auto* op = s.as<ForOp>()) return for_loop(*op, s);
    if (const auto* op = s.as<IfOp>()) return if_else(*op, s);
    if (const auto* op = s.as<BufferOp>()) return buffer(op->memory);
    if (const auto* op = s.as<AtomicOp>()) return atomic(*op, s.results[0]);
    if (const auto* op = s.as<RoleOp>()) return role(*op);
    if (const auto* op = s.as<InstructionOp>()) return instruction(*op, s);
    value(s);
  }

  void value(const Statement& s) {
    const ValueId id = s.results.at(0);
    const ValueType& type = type_of(id);
    if (const auto* op = s.as<ConstOp>()) {
      rename(id, Names(width(type), cuda_literal(type.dtype, op->bits)));
      return;
    }
    if (const auto* op = s.as<RowOp>()) {
      row(*op, id);
      return;
    }
    if (const auto* op = s.as<IndexOp>()) {
      define(id, [&](const std::vector<int64_t>& at, int64_t lane) {
        return fmt::format("({}){}", cuda_type(type.dtype),
                           index(op->value, {at, type.extents, lane}));
      });
      return;
    }
    if (const auto* op = s.as<TestOp>()) {
      define(id, [&](const std::vector<int64_t>& at, int64_t lane) {
        return all_of(op->condition, {at, type.extents, lane});
      });
      return;
    }
    if (const auto* op = s.as<SplatOp>()) {
      reorder(id, [&](int64_t i, int64_t) {
        return broadcast(op->operand, unflatten(i, type.extents), 0);
      });
      return;
    }
    if (const auto* op = s.as<LaneOp>()) {
      lane(*op, id);
      return;
    }
    if (const auto* op = s.as<ShuffleOp>()) {
      const int64_t lanes = type_of(op->a.is_literal() ? op->b : op->a).lanes;
      reorder(id, [&](int64_t i, int64_t l) {
        const int64_t from = op->lanes[static_cast<size_t>(l)];
        return broadcast(from < lanes ? op->a : op->b, unflatten(i, type.extents), from % lanes);
      });
      return;
    }
    if (const auto* op = s.as<FoldOp>()) {
      fold(*op, id);
      return;
    }
    if (const auto* op = s.as<GetElementOp>()) {
      const ValueType& from = type_of(op->operand.value);
      const int64_t i = flatten(op->at, from.extents);
      reorder(id, [&](int64_t, int64_t l) {
        return element(op->operand, static_cast<size_t>(i * from.lanes + l));
      });
      return;
    }
    if (const auto* op = s.as<PackOp>()) {
      reorder(id, [&](int64_t i, int64_t l) {
        const ValueOperand& o = op->operands[static_cast<size_t>(i)];
        return element(o, o.is_literal() ? 0 : static_cast<size_t>(l));
      });
      return;
    }
    if (const auto* op = s.as<MovementOp>()) {
      view(*op, id);
      return;
    }
    if (s.as<UndefOp>()) {
      declare(id);
      return;
    }
    if (const auto* op = s.as<RegroupOp>()) {
      rename(id, spread(op->operand, type));
      return;
    }
    refuse(s, "this operation has no translation to CUDA C++");
  }

  // Gives each lane-element the name that `name` returns for its element and lane.
  template <class Name>
  void reorder(ValueId id, const Name& name) {
    const ValueType& type = type_of(id);
    Names names;
    for (int64_t i = 0; i < type.count(); ++i)
      for (int64_t l = 0; l < type.lanes; ++l) names.push_back(name(i, l));
    rename(id, std::move(names));
  }

  void lane(const LaneOp& op, ValueId id) {
    const int64_t lanes = type_of(op.operand).lanes;
    reorder(id, [&](int64_t i, int64_t) {
      return element(op.operand, static_cast<size_t>(i * lanes + op.lane));
    });
  }

  void view(const MovementOp& op, ValueId id) {
    const ValueType& type = type_of(id);
    const std::vector<int64_t>& from = type_of(op.operand).extents;
    reorder(id, [&](int64_t i, int64_t l) {
      std::vector<int64_t> at = unflatten(i, type.extents);
      switch (op.kind) {
        case MovementKind::Reshape:
          return element(op.operand, static_cast<size_t>(i * type.lanes + l));
        case MovementKind::Broadcast:
          return broadcast(op.operand, at, l);
        case MovementKind::Slice:
          for (size_t d = 0; d < at.size(); ++d) at[d] += op.arguments[d];
          break;
        case MovementKind::Transpose: {
          std::vector<int64_t> source(at.size());
          for (size_t d = 0; d < at.size(); ++d)
            source[static_cast<size_t>(op.arguments[d])] = at[d];
          at = source;
          break;
        }
      }
      return element(op.operand, static_cast<size_t>(flatten(at, from) * type.lanes + l));
    });
  }

  void row(const RowOp& op, ValueId id) {
    const ValueType& type = type_of(id);
    const DType operand = type_of(op.operands.back()).dtype;
    if (op.op == ElementwiseOp::convert && operand == DType::F32 && is_half(type.dtype) &&
        width(type) % 2 == 0)
      return narrow_pairs(op.operands[0], id);
    define(id, [&](const std::vector<int64_t>& at, int64_t l) {
      Names operands;
      for (const ValueOperand& o : op.operands) operands.push_back(broadcast(o, at, l));
      return cuda_row(op.op, operand, type.dtype, operands);
    });
  }

  // The machine can narrow two floats at once.
  void narrow_pairs(const ValueOperand& operand, ValueId id) {
    const ValueType& type = type_of(id);
    Names names;
    for (size_t k = 0; k < width(type); k += 2) {
      const std::string pair = fmt::format("w{}_{}", id.index, k);
      line("const u32 {} = b::f32_to_{}x2({}, {});", pair, name(type.dtype),
           element_at(operand, type, k), element_at(operand, type, k + 1));
      names.push_back(fmt::format("(u16){}", pair));
      names.push_back(fmt::format("(u16)({} >> 16)", pair));
    }
    rename(id, std::move(names));
  }
  std::string element_at(const ValueOperand& o, const ValueType& type, size_t k) const {
    const auto at = static_cast<int64_t>(k);
    return broadcast(o, unflatten(at / type.lanes, type.extents), at % type.lanes);
  }

  // The fold of section 2.6: while N > 1, x[i] = op(x[i], x[i + N/2]); pairs beyond the end are
  // left out.
  std::string fold(Monoid monoid, DType dtype, Names x, ValueId id) {
    size_t n = 1;
    while (n < x.size()) n *= 2;
    for (size_t h = n / 2; h > 0; h /= 2)
      for (size_t i = 0; i < h && i + h < x.size(); ++i) {
        const std::string name = fmt::format("f{}_{}", id.index, folds_++);
        line("const {} {} = {};", cuda_type(dtype), name,
             cuda_row(info(monoid).combine, dtype, dtype, {x[i], x[i + h]}));
        x[i] = name;
      }
    return x[0];
  }

  void fold(const FoldOp& op, ValueId id) {
    const ValueType& type = type_of(id);
    ValueType from = type_of(op.operand);
    Names x = spread(op.operand, from);
    const auto fold_one = [&](int64_t inner, int64_t extent) {
      Names out;
      for (size_t outer = 0; outer * static_cast<size_t>(inner * extent) < x.size(); ++outer)
        for (int64_t i = 0; i < inner; ++i) {
          Names line_of;
          for (int64_t k = 0; k < extent; ++k)
            line_of.push_back(x[outer * static_cast<size_t>(inner * extent) +
                                static_cast<size_t>(k * inner + i)]);
          out.push_back(fold(op.monoid, type.dtype, std::move(line_of), id));
        }
      x = std::move(out);
    };
    if (op.lanes) fold_one(1, from.lanes);
    for (const int64_t axis : op.axes) {
      int64_t inner = from.lanes;
      for (size_t d = static_cast<size_t>(axis) + 1; d < from.rank(); ++d) inner *= from.extents[d];
      fold_one(inner, from.extents[static_cast<size_t>(axis)]);
      from.extents[static_cast<size_t>(axis)] = 1;
    }
    rename(id, std::move(x));
  }

  // ---------------------------------------------------------------- memory

  void buffer(MemoryId id) {
    const Memory& memory = kernel_[id];
    const std::string_view type = memory_type(memory.dtype);
    if (memory.space == MemorySpace::Shared)
      return line("{0}* const m{1} = ({0}*)(shared_memory + {2});", type, id.index,
                  memory.scratch_offset);
    int64_t count = 1;
    for (const Expr& extent : memory.shape) count *= extent.as_constant().value_or(0);
    line("alignas(16) {} m{}[{}];", type, id.index, count);
  }

  // One load or store instruction: `lanes` lane-elements from number `first` on.
  struct Piece {
    Position position;
    size_t first = 0;
    int64_t lanes = 1;
    bool splat = false;
    std::string condition = {};
    std::vector<Piece> apart = {};  // the lanes to move one by one if only a part exists
  };

  bool varies_by_vector(const Expr& e) const {
    for (const std::string& name : e.symbols())
      if (name[0] == '%' && type_of(value_named(name)).lanes > 1) return true;
    return false;
  }

  std::vector<Piece> pieces(const Expr& at, const Guard& guard, const ValueType& type,
                            int64_t align, bool is_load) const {
    const auto stride = at.coefficient_of("lane");
    const bool known = !varies_by_vector(at);
    const bool together =
        known && !(guard.mask && type_of(guard.mask).lanes > 1) &&
        std::all_of(guard.condition.begin(), guard.condition.end(), [&](const IndexComparison& c) {
          return !varies_by_vector(c.left) && !varies_by_vector(c.right) &&
                 is_cut_whole(c, type.lanes);
        });
    const bool in_a_row = stride && stride->is_constant(1);
    const bool whole = type.lanes == 1 || (together && in_a_row);
    const bool splat = !whole && is_load && together && stride && stride->is_constant(0);
    const auto bytes = static_cast<int64_t>(size_of(type.dtype)) * type.lanes;
    const bool at_edges = !whole && known && in_a_row && align >= bytes;
    std::vector<Piece> out;
    for (int64_t i = 0; i < type.count(); ++i) {
      std::vector<Piece> lanes;
      for (int64_t l = 0; l < (whole || splat ? 1 : type.lanes); ++l) {
        const Position position{unflatten(i, type.extents), type.extents, l};
        const auto first = static_cast<size_t>(i * type.lanes + l);
        lanes.push_back(
            {position, first, whole ? type.lanes : 1, splat, condition(guard, position)});
      }
      if (!at_edges) {
        std::move(lanes.begin(), lanes.end(), std::back_inserter(out));
        continue;
      }
      std::vector<std::string> terms;  // of the guards of all lanes
      for (const Piece& lane : lanes)
        if (!lane.condition.empty() &&
            std::find(terms.begin(), terms.end(), lane.condition) == terms.end())
          terms.push_back(lane.condition);
      Piece vector{lanes[0].position, lanes[0].first, type.lanes, false,
                   join(terms, " && ", std::identity())};
      const auto alike = [&](const Piece& lane) { return lane.condition == vector.condition; };
      if (!std::all_of(lanes.begin(), lanes.end(), alike)) vector.apart = std::move(lanes);
      out.push_back(std::move(vector));
    }
    return out;
  }

  std::string condition(const Guard& guard, const Position& position) const {
    std::vector<std::string> terms;
    if (std::string holds = all_of(guard.condition, position); holds != "true")
      terms.push_back(std::move(holds));
    if (guard.mask)
      terms.push_back(broadcast(ValueOperand(guard.mask), position.at, position.lane));
    return join(terms, " && ", std::identity());
  }

  // The address of the elements that a piece moves.
  template <class Op>
  std::string address(const Op& op, const Piece& piece) const {
    std::string base = fmt::format("m{}", op.memory.index);
    if (op.rank)
      base =
          fmt::format("(({}*)__cluster_map_shared_rank({}, {}))",
                      memory_type(kernel_[op.memory].dtype), base, index(*op.rank, piece.position));
    return fmt::format("({} + {})", base, index(op.at[0], piece.position));
  }

  // The C++ type that moves some bytes at once, in words of at most 32 bits.
  struct Transfer {
    std::string_view type;
    size_t words = 1, word_bytes = 4;
  };
  static Transfer transfer(size_t bytes) {
    switch (bytes) {
      case 1:
        return {"u8", 1, 1};
      case 2:
        return {"u16", 1, 2};
      case 4:
        return {"u32", 1, 4};
      case 8:
        return {"uint2", 2, 4};
      default:
        return {"uint4", 4, 4};
    }
  }

  // The lanes of one access: it moves at most 16 bytes, and not more than the vector's alignment.
  static size_t access_lanes(const ValueType& type, int64_t lanes, int64_t align) {
    const auto size = static_cast<int64_t>(size_of(type.dtype));
    if (lanes == 1) return 1;
    return static_cast<size_t>(
        std::max<int64_t>(1, std::min({int64_t{16}, size * lanes, align}) / size));
  }

  static std::string word(const Transfer& t, size_t i) {
    return t.words == 1 ? "w" : fmt::format("w.{}", "xyzw"[i]);
  }
  // Element i of what was moved.
  static std::string unpacked(DType dtype, const Transfer& t, size_t i) {
    const size_t size = size_of(dtype);
    if (size == 8) {
      const std::string both =
          fmt::format("({} | (u64){} << 32)", word(t, 2 * i), word(t, 2 * i + 1));
      return dtype == DType::F64 ? fmt::format("b::real({})", both)
                                 : fmt::format("({}){}", cuda_type(dtype), both);
    }
    const size_t per_word = t.word_bytes / size;
    const std::string part =
        fmt::format("({} >> {})", word(t, i / per_word), 8 * size * (i % per_word));
    if (dtype == DType::Bool) return fmt::format("({} & 0xff) != 0", part);
    if (dtype == DType::F32) return fmt::format("b::real({})", word(t, i));
    return fmt::format("({}){}", cuda_type(dtype), part);
  }
  // The elements packed into the words of an access.
  static std::string packed(DType dtype, const Transfer& t, const Names& elements) {
    const size_t size = size_of(dtype);
    Names words;
    if (size == 8) {
      for (const std::string& e : elements) {
        const std::string both =
            dtype == DType::F64 ? fmt::format("b::bits({})", e) : fmt::format("(u64){}", e);
        words.push_back(fmt::format("(u32)({})", both));
        words.push_back(fmt::format("(u32)({} >> 32)", both));
      }
    } else if (size == 4) {
      for (const std::string& e : elements)
        words.push_back(dtype == DType::F32 ? fmt::format("b::bits({})", e)
                                            : fmt::format("(u32){}", e));
    } else {
      const size_t per_word = t.word_bytes / size;
      for (size_t w = 0; w < t.words; ++w) {
        Names parts;
        for (size_t i = 0; i < per_word; ++i)
          parts.push_back(fmt::format("(u32)({})({}) << {}", size == 1 ? "u8" : "u16",
                                      elements[w * per_word + i], 8 * size * i));
        words.push_back(per_word == 1 ? fmt::format("({})({})", t.type, elements[w])
                                      : fmt::format("({})({})", t.words == 1 ? t.type : "u32",
                                                    join(parts, " | ", std::identity())));
      }
    }
    return t.words == 1 ? words[0]
                        : fmt::format("{}{{{}}}", t.type, join(words, ", ", std::identity()));
  }

  // Emits body(piece) for each piece, under the piece's condition.
  template <class Body>
  void guarded(const std::vector<Piece>& pieces, const Body& body) {
    for (const Piece& piece : pieces) {
      if (piece.condition.empty()) {
        body(piece);
        continue;
      }
      open("if ({}) {{", piece.condition);
      body(piece);
      if (!piece.apart.empty()) {
        close("} else {");
        ++depth_;
        guarded(piece.apart, body);
      }
      close();
    }
  }

  std::string_view read_function(const LoadOp& op) const {
    const Memory& memory = kernel_[op.memory];
    if (!is_constant(memory)) return "*";
    return op.cache == CacheHint::Stream ? "__ldcs" : "__ldg";
  }

  void load(const LoadOp& op, ValueId id) {
    const ValueType& type = type_of(id);
    Names names =
        declare(id, op.guard ? Names(width(type), cuda_literal(type.dtype, op.fill)) : Names());
    guarded(pieces(op.at[0], op.guard, type, op.align, /*is_load=*/true), [&](const Piece& part) {
      const size_t lanes = access_lanes(type, part.lanes, op.align);
      const Transfer t = transfer(lanes * size_of(type.dtype));
      for (size_t l = 0; l < static_cast<size_t>(part.lanes); l += lanes) {
        std::string body = fmt::format("const {0} w = {1}((const {0}*)({2} + {3}));", t.type,
                                       read_function(op), address(op, part), l);
        for (size_t i = 0; i < lanes; ++i)
          body += fmt::format(" {} = {};", names[part.first + l + i], unpacked(type.dtype, t, i));
        line("{{ {} }}", body);
      }
      for (int64_t l = 1; part.splat && l < type.lanes; ++l)
        names[part.first + static_cast<size_t>(l)] = names[part.first];
    });
    rename(id, std::move(names));
  }

  void store(const StoreOp& op) {
    ValueType type{kernel_[op.memory].dtype, 1, {}};
    if (!op.value.is_literal()) type = type_of(op.value.value);
    const Names values = spread(op.value, type);
    const bool streams = op.cache == CacheHint::Stream && is_device_memory(kernel_[op.memory]);
    guarded(pieces(op.at[0], op.guard, type, op.align, /*is_load=*/false), [&](const Piece& part) {
      const size_t lanes = access_lanes(type, part.lanes, op.align);
      const Transfer t = transfer(lanes * size_of(type.dtype));
      for (size_t l = 0; l < static_cast<size_t>(part.lanes); l += lanes) {
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(part.first + l);
        const Names moved(first, first + static_cast<std::ptrdiff_t>(lanes));
        const std::string at = fmt::format("({}*)({} + {})", t.type, address(op, part), l);
        const std::string word = packed(type.dtype, t, moved);
        line("{}", fmt::format(fmt::runtime(streams ? "__stcs({}, {});" : "*{} = {};"), at, word));
      }
    });
  }

  void atomic(const AtomicOp& op, ValueId id) {
    const DType dtype = kernel_[op.memory].dtype;
    // CUDA has no atomic addition of signed 64-bit integers. The unsigned one gives the same bits.
    const std::string_view type = dtype == DType::I64 ? "u64" : cuda_type(dtype);
    line("__threadfence();");
    define(id, [&](const std::vector<int64_t>&, int64_t) {
      return fmt::format("atomicAdd(({0}*)(m{1} + {2}), ({0}){3})", type, op.memory.index,
                         index(op.at), element(op.value, 0));
    });
    line("__threadfence();");
  }

  // ---------------------------------------------------------------- instructions

  void instruction(const InstructionOp& op, const Statement& s) {
    if (info(op.instruction).result == InstructionResult::First) return by_element(op, s);
    std::vector<AsmOperand> operands;
    Names inputs;
    const std::string_view letters = info(op.instruction).operands;
    for (size_t i = 0; i < op.operands.size(); ++i)
      add_operand(letters[std::min(i, letters.size() - 1)], op.operands[i], operands, inputs, s);
    std::vector<AsmOperand> results;
    for (ValueId id : s.results)
      results.push_back({static_cast<size_t>(type_of(id).count()), letter_of(type_of(id), s)});
    const Names out = emit(asm_text(op, operands, results), inputs);
    size_t next = 0;
    for (ValueId id : s.results) {
      Names names;
      for (int64_t i = 0; i < type_of(id).count(); ++i) add_lanes(out[next++], type_of(id), names);
      rename(id, std::move(names));
    }
  }

  // A shuffle moves one register, so each element of an array has its own shuffle.
  void by_element(const InstructionOp& op, const Statement& s) {
    const ValueType& type = type_of(s.results[0]);
    const char letter = letter_of(type, s);
    const std::string_view letters = info(op.instruction).operands;
    Names names;
    for (const std::string& element : registers(std::get<ValueOperand>(op.operands[0]), type)) {
      std::vector<AsmOperand> operands = {{1, letter}};
      Names inputs = {element};
      for (size_t i = 1; i < op.operands.size(); ++i)
        add_operand(letters[i], op.operands[i], operands, inputs, s);
      const AsmText text = asm_text(op, operands, {{1, letter}});
      add_lanes(emit(text, inputs)[0], type, names);
    }
    rename(s.results[0], std::move(names));
  }

  static void add_lanes(const std::string& name, const ValueType& type, Names& out) {
    for (int32_t l = 0; l < type.lanes; ++l) out.push_back(from_register(name, type, l));
  }

  char letter_of(const ValueType& type, const Statement& s) const {
    const auto letter = register_letter(type);
    if (!letter) refuse(s, "no instruction can take " + type.to_string());
    return *letter;
  }

  void add_operand(char letter, const InstructionOperand& operand,
                   std::vector<AsmOperand>& operands, Names& inputs, const Statement& s) const {
    const auto add = [&](AsmOperand made, const Names& registers) {
      made.registers = registers.size();
      operands.push_back(made);
      inputs.insert(inputs.end(), registers.begin(), registers.end());
    };
    const auto small = [&](const Expr& e) { return "(int)" + index(e); };
    if (const auto* e = std::get_if<Expr>(&operand)) {
      add({.constant = e->as_constant()}, letter == '#' ? Names{} : Names{small(*e)});
    } else if (const auto* value = std::get_if<ValueOperand>(&operand)) {
      const ValueType type = type_of(*value);
      add({.letter = letter_of(type, s)}, registers(*value, type));
    } else if (const auto* map = std::get_if<MapPlace>(&operand)) {
      Names parts = {fmt::format("(u64)&t{}", map->map.index)};
      for (const Expr& x : map->at) parts.push_back(small(x));
      add({}, parts);
    } else {
      const auto& place = std::get<Place>(operand);
      if (place.matrix) return add({.matrix = place.matrix}, {descriptor(place)});
      const auto [begin, behind] = addressed(letter, place, kernel_[place.memory].dtype);
      Names parts = {letter == 'P'
                         ? fmt::format("(u64)(m{} + {})", place.memory.index, index(begin))
                         : shared_address(place.memory, begin)};
      if (place.rank) parts.push_back(small(*place.rank));
      add({.has_rank = place.rank.has_value(), .behind = behind}, parts);
    }
  }

  // The address of a place within the block's shared memory, 32 bits.
  std::string shared_address(MemoryId memory, const Expr& at) const {
    return fmt::format("(u32)__cvta_generic_to_shared(m{} + {})", memory.index, index(at));
  }
  std::string descriptor(const Place& place) const {
    const uint64_t rest = uint64_t{descriptor_high(*place.matrix)} << 32 |
                          static_cast<uint64_t>(place.matrix->leading / 16) << 16;
    return fmt::format("(({} & {:#x}) >> 4 | {:#x}ull)", shared_address(place.memory, place.at),
                       kDescriptorAddress, rest);
  }

  // Pairs of 16 bits are one register.
  Names registers(const ValueOperand& o, const ValueType& type) const {
    const Names all = spread(o, type);
    if (type.lanes == 1) return all;
    Names out;
    for (size_t k = 0; k < all.size(); k += 2)
      out.push_back(fmt::format("b::pack({}, {})", all[k], all[k + 1]));
    return out;
  }

  static std::string_view register_type(char letter) {
    return letter == 'f' ? "float" : letter == 'd' ? "double" : letter == 'l' ? "u64" : "u32";
  }
  // Emits an asm statement, whose results are the variables r<n>_<i>. A tied input is the first
  // value of its result.
  Names emit(const AsmText& text, const Names& inputs) {
    const size_t number = instructions_++;
    const auto result = [&](size_t i) { return fmt::format("r{}_{}", number, i); };
    std::vector<std::string> outs, ins;
    std::vector<std::string> holes(text.results.size() + inputs.size());
    std::vector<std::string> first(text.results.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (text.ties[i] >= 0) first[static_cast<size_t>(text.ties[i])] = inputs[i];
    for (size_t i = 0; i < text.results.size(); ++i) {
      line("{} {}{};", register_type(text.results[i]), result(i),
           first[i].empty() ? "" : " = " + first[i]);
      outs.push_back(
          fmt::format("\"{}{}\"({})", first[i].empty() ? "=" : "+", text.results[i], result(i)));
      holes[i] = fmt::format("%{}", i);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (text.ties[i] >= 0) continue;
      holes[text.results.size() + i] = fmt::format("%{}", outs.size() + ins.size());
      ins.push_back(fmt::format("\"{}\"({})", text.inputs[i], as_input(inputs[i], text.inputs[i])));
    }
    line("asm{}({} : {} : {}{});", text.effects || text.converges ? " volatile" : "",
         quote(filled(text.text, holes)), join(outs, ", ", std::identity()),
         join(ins, ", ", std::identity()), text.effects ? " : \"memory\"" : "");
    Names names;
    for (size_t i = 0; i < text.results.size(); ++i) names.push_back(result(i));
    return names;
  }
  static std::string as_input(const std::string& input, char letter) {
    // A float goes unchanged into a register for bits (of tf32, or for a shuffle).
    return letter == 'f' || letter == 'd'
               ? input
               : fmt::format("b::word{}({})", letter == 'l' ? 64 : 32, input);
  }
  static std::string from_register(const std::string& name, const ValueType& type, int32_t lane) {
    if (type.dtype == DType::Bool) return fmt::format("({} != 0)", name);
    if (type.lanes == 2) return fmt::format("(u16)({} >> {})", name, 16 * lane);
    return type.dtype == DType::F32 || type.dtype == DType::F64
               ? name
               : fmt::format("({}){}", cuda_type(type.dtype), name);
  }
  // Replaces each "$n" in the text by holes[n].
  static std::string filled(const std::string& text, const std::vector<std::string>& holes) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '$') {
        out += text[i];
        continue;
      }
      size_t number = 0;
      while (i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i + 1])))
        number = 10 * number + static_cast<size_t>(text[++i] - '0');
      out += holes.at(number);
    }
    return out;
  }

  // Roles stand last in a phase, and each ends its threads. The number of the warp comes from a
  // shuffle, so that the assembler knows that the branch is uniform.
  void role(const RoleOp& op) {
    open("if (const u32 warp = __shfl_sync(~0u, s_tid >> 5, 0); warp >= {} && warp < {}) {{",
         op.begin, op.end);
    const int64_t at_launch =
        phase_->registers > 0 ? phase_->registers : launch_registers(phase_->block);
    if (op.registers > 0 && op.registers != at_launch)
      line("asm volatile(\"setmaxnreg.{}.sync.aligned.u32 {};\");",
           op.registers < at_launch ? "dec" : "inc", op.registers);
    line("const int s_rtid = s_tid - {};", 32 * op.begin);
    statements(*op.body);
    line("return;");
    close();
  }

  // ---------------------------------------------------------------- control

  using Carried = std::vector<std::pair<ValueId, ValueOperand>>;

  // Declares variables for the values that a loop carries, with their first values.
  void begin_carried(const Carried& carried) {
    for (const auto& [id, first] : carried) declare(id, spread(first, type_of(id)));
  }
  // Assigns all yields at once, because a yield may name the old value of another variable.
  void next_carried(const Carried& carried, const ValueOperand* yields) {
    std::vector<std::pair<std::string, std::string>> moves;
    for (size_t i = 0; i < carried.size(); ++i) {
      const ValueType& type = type_of(carried[i].first);
      const Names next = spread(yields[i], type);
      for (size_t k = 0; k < next.size(); ++k) {
        const std::string variable_name = variable(carried[i].first, k);
        if (next[k] == variable_name) continue;
        line("const {} n{} = {};", cuda_type(type.dtype), variable_name, next[k]);
        moves.emplace_back(variable_name, "n" + variable_name);
      }
    }
    for (const auto& [to, from] : moves) line("{} = {};", to, from);
  }
  void end_carried(const Carried& carried, const Statement& s) {
    for (size_t i = 0; i < carried.size(); ++i) {
      Names names;
      for (size_t k = 0; k < width(type_of(carried[i].first)); ++k)
        names.push_back(variable(carried[i].first, k));
      rename(s.results[i], std::move(names));
    }
  }

  void for_loop(const ForOp& op, const Statement& s) {
    begin_carried(op.carried);
    const auto low = op.low.as_constant(), high = op.high.as_constant(),
               step = op.step.as_constant();
    if (op.unroll <= 0 && low && high && step)
      line("#pragma unroll");
    else
      line("#pragma unroll {}", std::max<int64_t>(1, op.unroll));
    // The loop also computes the first k beyond its end, which must fit into the type of k as well.
    const Interval from = op.low.range(), to = op.high.range(), by = op.step.range();
    const bool narrow = is_narrow(from) && is_narrow(to) && is_narrow(by) &&
                        is_narrow(Interval{from.min, to.max + by.max});
    const std::string k = symbol_name(op.symbol);
    const std::string end = fmt::format("end_{}", k), by_name = fmt::format("by_{}", k);
    const std::string_view type = narrow ? "int" : "i64";
    open("for ({0} {1} = {2}, {3} = {4}, {5} = {6}; {1} < {3}; {1} += {5}) {{", type, k,
         index(op.low), end, index(op.high), by_name, index(op.step));
    statements(*op.body);
    next_carried(op.carried, op.body->yields.data());
    close();
    end_carried(op.carried, s);
  }

  void if_else(const IfOp& op, const Statement& s) {
    for (ValueId id : s.results) declare(id);
    std::vector<Names> results;
    for (ValueId id : s.results) results.push_back(names_[id.index]);
    const auto arm = [&](const Region& region) {
      statements(region);
      for (size_t i = 0; i < s.results.size(); ++i) {
        const Names values = spread(region.yields[i], type_of(s.results[i]));
        for (size_t k = 0; k < values.size(); ++k) line("{} = {};", results[i][k], values[k]);
      }
    };
    std::vector<std::string> terms;
    if (!op.condition.empty()) terms.push_back(all_of(op.condition, {}));
    if (op.flag) terms.push_back(element(ValueOperand(op.flag), 0));
    open("if ({}) {{", join(terms, " && ", std::identity()));
    arm(*op.then);
    if (op.otherwise) {
      --depth_;
      open("}} else {{");
      arm(*op.otherwise);
    }
    close();
  }

  const Kernel& kernel_;
  const Phase* phase_ = nullptr;
  std::unordered_map<std::string_view, ValueId> values_by_name_;
  std::vector<Names> names_;  // of every lane-element, by value
  bool waits_for_others_ = false;
  std::string out_, file_;
  uint32_t line_ = 0;
  int depth_ = 0;
  size_t instructions_ = 0, folds_ = 0;
};

}  // namespace
}  // namespace codegen

std::string cuda_text(const Kernel& kernel) {
  Kernel expanded = kernel;
  expand_static_loops(expanded);
  return codegen::Printer(expanded).run();
}

}  // namespace braze
