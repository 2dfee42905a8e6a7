// print.cpp — prints structured code as text. There is one overload for each operation, in the
// order of the grammar.
#include <bit>
#include <cmath>

#include "ir/code/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"
#include "ir/values/half.h"

namespace braze {

namespace {

enum class Language : uint8_t { Tile, Kernel };

std::string_view symbol_of(IndexComparison::Kind kind) {
  constexpr std::string_view kSymbols[] = {"<", "<=", ">", ">=", "==", "!="};
  return kSymbols[static_cast<size_t>(kind)];
}

std::string condition_text(const Condition& condition) {
  return join(condition, " and ", [](const IndexComparison& c) {
    return fmt::format("{} {} {}", c.left.to_string(), symbol_of(c.kind), c.right.to_string());
  });
}

// A literal that reads back to the same bits. NaNs with a payload of their own are written as bits.
std::string literal_text(DType dtype, uint64_t bits) {
  if (dtype == DType::Bool) return bits ? "true" : "false";
  if (!is_floating(dtype)) return integer_text(dtype, bits);
  const double value = bits_to_double(dtype, bits);
  if (std::isnan(value) && constant_bits(dtype, value) != bits)
    return fmt::format("bits(0x{:x})", bits);
  std::string text =
      dtype == DType::F64 ? number_text(value) : fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

class Printer {
 public:
  Printer(const KernelCode& code, Language language) : code_(code), language_(language) {}

  std::string file() {
    out_ = fmt::format("braze 1 {}\n", language_ == Language::Tile ? "tile" : "kernel");
    for (const Expr& symbol : code_.symbols) {
      const Interval range = symbol.range();
      out_ += fmt::format("symbol {}: {}..{}", symbol.symbol_name(), range.min, range.max);
      if (symbol.divisor() > 1) out_ += fmt::format(" % {}", symbol.divisor());
      out_ += '\n';
    }
    out_ += fmt::format("\nkernel @{}({})", code_.name,
                        join(code_.parameters, ", ", [&](const auto& p) { return parameter(p); }) +
                            (language_ == Language::Kernel ? work_parameters() : ""));
    if (code_.pipelined) out_ += " pipelined";
    if (!code_.target.empty()) out_ += fmt::format(" target \"{}\"", code_.target);
    if (!code_.schedule.empty()) out_ += fmt::format(" schedule \"{}\"", code_.schedule);
    if (code_.resident) out_ += " resident";
    if (code_.members != 1) out_ += fmt::format(" members {}", code_.members);
    if (code_.warps > 0) out_ += fmt::format(" warps {}", code_.warps);
    if (code_.cluster > 1) out_ += fmt::format(" cluster {}", code_.cluster);
    if (code_.registers > 0) out_ += fmt::format(" registers {}", code_.registers);
    out_ += " {\n";
    for (const NamedLayout& named : code_.layouts)
      out_ += fmt::format("  layout @{} = {}\n", named.name, named.layout.to_string());
    if (language_ == Language::Tile)
      for (const Memory& memory : code_.memories)
        if (memory.space == MemorySpace::Workspace)
          out_ += fmt::format("  workspace %{}: {}{}{}\n", memory.name, name(memory.dtype),
                              list(memory.shape), memory.zeroed ? " zero" : "");
    for (size_t p = 0; p < code_.phases.size(); ++p) {
      const Phase& phase = code_.phases[p];
      if (p > 0)
        out_ +=
            fmt::format("  barrier {}\n", phase.barrier == PhaseBarrier::Grid ? "grid" : "block");
      out_ += fmt::format("  phase grid({})", join(phase.grid, ", ", [](const GridAxis& a) {
                            return a.symbol + ": " + a.extent.to_string();
                          }));
      if (phase.scratch_bytes > 0) out_ += fmt::format(" scratch {}", phase.scratch_bytes);
      if (!phase.cluster.empty())
        out_ += fmt::format(" cluster({}: {})", phase.cluster, phase.cluster_size);
      if (phase.block > 0) out_ += block_text(phase);
      out_ += " ";
      region(phase.body, 1, "yield");
      out_ += "\n";
    }
    out_ += "}\n";
    return std::move(out_);
  }

  std::string statement(const Statement& s) {
    line(s, 0, /*with_regions=*/false);
    return std::move(out_);
  }

 private:
  static std::string exprs(const std::vector<Expr>& list) {
    return join(list, ", ", [](const Expr& e) { return e.to_string(); });
  }
  static std::string list(const std::vector<Expr>& list) { return "[" + exprs(list) + "]"; }
  static std::string numbers(const std::vector<int64_t>& values) {
    return join(values, ", ", [](int64_t v) { return std::to_string(v); });
  }
  static std::string integers(const std::vector<int64_t>& values) {
    return "(" + numbers(values) + ")";
  }

  static std::string block_text(const Phase& phase) {
    std::string out = fmt::format(" block {}", phase.block);
    if (phase.shared_bytes > 0) out += fmt::format(" shared {}", phase.shared_bytes);
    if (phase.registers > 0) out += fmt::format(" registers {}", phase.registers);
    return out;
  }

  std::string parameter(const std::variant<MemoryId, ValueId, TensorMapId>& p) const {
    if (const auto* map = std::get_if<TensorMapId>(&p)) return map_text(code_[*map]);
    if (const auto* scalar = std::get_if<ValueId>(&p))
      return fmt::format("%{}: {}", code_[*scalar].name, code_[*scalar].type.to_string());
    const Memory& memory = code_[std::get<MemoryId>(p)];
    constexpr std::string_view kModes[] = {"in", "out", "inout"};
    return memory_text(memory, kModes[static_cast<size_t>(memory.mode)]);
  }
  std::string map_text(const TensorMap& map) const {
    std::string out =
        fmt::format("%{}: tensormap(%{}: {}{} box[{}]", map.name, code_[map.memory].name,
                    name(map.dtype), list(map.extents), numbers(map.box));
    if (map.swizzle > 0) out += fmt::format(" swizzle {}", map.swizzle);
    return out + ")";
  }
  std::string work_parameters() const {
    std::string out;
    for (const Memory& memory : code_.memories)
      if (memory.space == MemorySpace::Workspace)
        out += (code_.parameters.empty() && out.empty() ? "" : ", ") +
               memory_text(memory, memory.zeroed ? "work zero" : "work");
    return out;
  }
  std::string memory_text(const Memory& memory, std::string_view mode) const {
    std::string out = fmt::format("%{}: {} {}{}{}", memory.name, mode,
                                  language_ == Language::Kernel ? "global " : "",
                                  name(memory.dtype), list(memory.shape));
    if (!memory.strides.empty()) out += " strides " + list(memory.strides);
    if (memory.align > 0) out += fmt::format(" align {}", memory.align);
    return out;
  }

  static std::string type(const Value& value) {
    std::string out = value.type.to_string();
    if (!value.layout) return out;
    const NamedLayout& layout = *value.layout;
    return out + " " + (layout.name.empty() ? layout.layout.to_string() : "@" + layout.name);
  }

  std::string value(const ValueOperand& operand) const {
    return operand.is_literal() ? literal_text(operand.dtype, operand.bits)
                                : "%" + code_[operand.value].name;
  }
  std::string value(ValueId id) const { return "%" + code_[id].name; }
  std::string place(MemoryId memory, const std::vector<Expr>& at,
                    const std::optional<Expr>& rank = {}) const {
    return "%" + code_[memory].name + (rank ? "@" + rank_text(*rank) : "") + list(at);
  }
  // A rank after "@". A name or number has no parentheses around it, and everything else has.
  static std::string rank_text(const Expr& rank) {
    const bool alone = rank.operands().empty() && rank.as_constant().value_or(0) >= 0;
    return alone ? rank.to_string() : "(" + rank.to_string() + ")";
  }
  std::string operand_text(const ValueOperand& operand) const { return value(operand); }
  std::string operand_text(const Expr& index) const { return index.to_string(); }
  std::string operand_text(const Place& p) const {
    std::string out = place(p.memory, {p.at}, p.rank);
    if (p.matrix)
      out += fmt::format(" {} lbo {} sbo {} swizzle {}", p.matrix->k_major ? "k" : "mn",
                         p.matrix->leading, p.matrix->stride, p.matrix->swizzle);
    return out;
  }
  std::string operand_text(const MapPlace& p) const {
    return "%" + code_[p.map].name + (p.at.empty() ? "" : list(p.at));
  }
  std::string guard(const Guard& g) const {
    if (g.clip) return " clip";
    if (g.mask) return " mask " + value(g.mask);
    return g.condition.empty() ? "" : " mask (" + condition_text(g.condition) + ")";
  }
  static std::string cache(CacheHint hint) {
    return hint == CacheHint::Stream ? " cache stream"
           : hint == CacheHint::Keep ? " cache keep"
                                     : "";
  }
  static std::string align(int64_t bytes) {
    return bytes > 0 ? fmt::format(" align {}", bytes) : "";
  }
  std::string values(const std::vector<ValueOperand>& list) const {
    return join(list, ", ", [&](const ValueOperand& o) { return value(o); });
  }
  std::string carried(const std::vector<std::pair<ValueId, ValueOperand>>& list) const {
    return " carry(" +
           join(list, ", ",
                [&](const auto& c) { return value(c.first) + " = " + value(c.second); }) +
           ")";
  }

  void region(const Region& body, int depth, std::string_view yield) {
    out_ += "{\n";
    for (const Statement& s : body.statements) line(s, depth + 1, true);
    if (!body.yields.empty())
      out_ += fmt::format("{:{}}{} {}\n", "", 2 * (depth + 1), yield, values(body.yields));
    out_ += fmt::format("{:{}}}}", "", 2 * depth);
  }

  void line(const Statement& s, int depth, bool with_regions) {
    out_ += fmt::format("{:{}}", "", 2 * depth);
    if (!s.results.empty())
      out_ += join(s.results, ", ", [&](ValueId r) { return value(r); }) + " = ";
    depth_ = depth;
    with_regions_ = with_regions;
    if (!s.results.empty()) result_dtype_ = code_[s.results[0]].type.dtype;
    std::visit([&](const auto& op) { print(op); }, s.op);
    const bool typed = !s.results.empty() && !s.as<ForOp>() && !s.as<IfOp>() && !s.as<WhileOp>() &&
                       !s.as<TicketOp>() && !s.as<StartDotOp>() && !s.as<WaitDotOp>();
    if (typed) out_ += " : " + join(s.results, ", ", [&](ValueId r) { return type(code_[r]); });
    out_ += "\n";
  }

  void nested(const Region& body, std::string_view yield = "yield") {
    const int depth = depth_;
    if (with_regions_)
      region(body, depth, yield);
    else
      out_ += "{ ... }";
    depth_ = depth;
  }

  void print(const LetOp& op) {
    out_ += fmt::format("let {} = {}", op.symbol, op.value.to_string());
  }
  void print(const ConstOp& op) { out_ += "const " + literal_of_result(op.bits); }
  void print(const IndexOp& op) { out_ += "iota (" + op.value.to_string() + ")"; }
  void print(const TestOp& op) { out_ += "test (" + condition_text(op.condition) + ")"; }
  void print(const LoadOp& op) {
    out_ += "load " + place(op.memory, op.at, op.rank) + guard(op.guard);
    if (op.guard && !op.guard.clip)
      out_ += " fill " + literal_text(code_[op.memory].dtype, op.fill);
    out_ += align(op.align) + cache(op.cache);
  }
  void print(const StoreOp& op) {
    out_ += "store " + value(op.value) + ", " + place(op.memory, op.at, op.rank) + guard(op.guard) +
            align(op.align) + cache(op.cache);
  }
  void print(const RowOp& op) { out_ += fmt::format("{} {}", name(op.op), values(op.operands)); }
  void print(const FoldOp& op) {
    out_ += fmt::format("reduce {} {} {}", name(op.monoid), value(op.operand),
                        op.cluster ? "cluster"
                        : op.lanes ? "lanes"
                                   : "axes" + integers(op.axes));
  }
  void print(const ArgFoldOp& op) {
    out_ += fmt::format("reduce {} {}, {} axes{}", op.is_max ? "argmax" : "argmin",
                        value(op.values), value(op.indices), integers(op.axes));
  }
  void print(const TileScanOp& op) {
    out_ += fmt::format("scan {} {} axes({}){}{}{}", op.combiner.to_string(), values(op.operands),
                        op.axis, op.reverse ? " reverse" : "", op.exclusive ? " exclusive" : "",
                        op.totals ? " totals" : "");
  }
  void print(const TileDotOp& op) {
    const auto side = [&](const ValueOperand& o, MemoryId buffer) {
      return buffer ? "%" + code_[buffer].name : value(o);
    };
    out_ += fmt::format("dot {}, {}, {}", side(op.a, op.a_buffer), side(op.b, op.b_buffer),
                        value(op.c)) +
            contract(op);
  }
  template <class Dot>
  static std::string contract(const Dot& op) {
    const bool given = op.contract_a != 1 || op.contract_b != 0;
    return (given ? fmt::format(" contract({}, {})", op.contract_a, op.contract_b) : "") +
           (op.tf32 ? " tf32" : "");
  }
  void print(const ViewOp& op) {
    constexpr std::string_view kNames[] = {"reshape", "broadcast", "transpose", "slice"};
    out_ += fmt::format("{} {}", kNames[static_cast<size_t>(op.kind)], value(op.operand));
    if (op.kind == ViewKind::Transpose) out_ += " perm" + integers(op.arguments);
    if (op.kind != ViewKind::Slice) return;
    if (op.offsets.empty())
      out_ += integers(op.arguments);
    else
      out_ += "(" + exprs(op.offsets) + ")";
  }
  void print(const BufferOp& op) {
    const Memory& memory = code_[op.memory];
    const std::string_view how = language_ == Language::Tile           ? "buffer"
                                 : memory.space == MemorySpace::Shared ? "alloc shared"
                                                                       : "alloc local";
    out_ += fmt::format("%{} = {} {}{}", memory.name, how,
                        memory.mbarrier ? "mbarrier" : name(memory.dtype), list(memory.shape));
    if (memory.swizzle > 0) out_ += fmt::format(" swizzle {}", memory.swizzle);
    if (memory.align > 0) out_ += align(memory.align);
    if (memory.scratch_offset >= 0) out_ += fmt::format(" at {}", memory.scratch_offset);
  }
  void print(const ForOp& op) {
    out_ += fmt::format("for {}: {}..{}", op.symbol, op.low.to_string(), op.high.to_string());
    if (!op.step.is_constant(1)) out_ += " step " + op.step.to_string();
    if (op.is_static) out_ += " static";
    if (op.unroll != 1) out_ += fmt::format(" unroll {}", op.unroll);
    if (!op.carried.empty()) out_ += carried(op.carried);
    out_ += " ";
    nested(*op.body);
  }
  void print(const IfOp& op) {
    out_ += op.flag ? "if " + value(op.flag) + " " : "if (" + condition_text(op.condition) + ") ";
    nested(*op.then);
    if (op.otherwise) {
      out_ += " else ";
      nested(*op.otherwise);
    }
  }
  void print(const TicketOp& op) {
    out_ += fmt::format("ticket {} of ({})", place(op.memory, op.at), op.count.to_string());
  }
  void print(const AwaitOp&) { out_ += "await_predecessors"; }
  void print(const SplatOp& op) { out_ += "splat " + value(op.operand); }
  void print(const LaneOp& op) {
    out_ += op.insert ? fmt::format("insert {}, {} lane {}", value(op.operand), value(op.element),
                                    op.lane)
                      : fmt::format("extract {} lane {}", value(op.operand), op.lane);
  }
  void print(const ShuffleOp& op) {
    out_ += fmt::format("shuffle {}, {} {}", value(op.a), value(op.b), integers(op.lanes));
  }
  void print(const GetOp& op) {
    out_ += "get " + value(op.operand) +
            (op.positions.empty() ? "[" + numbers(op.at) + "]" : list(op.positions));
  }
  void print(const PackOp& op) { out_ += "pack " + values(op.operands); }
  void print(const AtomicOp& op) {
    out_ += fmt::format("atomic {} {}, {} order {}", op.is_max ? "max" : "add",
                        place(op.memory, {op.at}), value(op.value),
                        op.acquire_release ? "acq_rel" : "relaxed");
  }
  void print(const RoleOp& op) {
    out_ += fmt::format("role {} warps {}..{} ", op.name, op.begin, op.end);
    if (op.registers > 0) out_ += fmt::format("registers {} ", op.registers);
    nested(*op.body);
  }
  void print(const UndefOp&) { out_ += "undef"; }
  void print(const RegroupOp& op) { out_ += "regroup " + value(op.operand); }
  void print(const InstructionOp& op) {
    out_ += name(op.instruction, op.columns);
    std::string_view separator = " ";
    for (const InstructionOperand& operand : op.operands) {
      out_ += separator;
      out_ += std::visit([&](const auto& o) { return operand_text(o); }, operand);
      separator = ", ";
    }
  }
  void print(const WhileOp& op) {
    out_ += "while" + carried(op.carried) + " ";
    nested(*op.body, "continue");
  }

  // --- Pipelined programs

  void print(const ChannelOp& op) {
    const Channel& channel = code_[op.channel];
    out_ += fmt::format("channel %{} depth {} from {} to {}", channel.name, channel.depth,
                        channel.producer, channel.receiver);
    if (channel.only) out_ += " only (" + channel.only->to_string() + ")";
    out_ += " {";
    for (const MemoryId id : channel.fields) {
      const Memory& field = code_[id];
      out_ += fmt::format("\n{:{}}{}: {}{}", "", 2 * (depth_ + 1),
                          field.name.substr(channel.name.size() + 1), name(field.dtype),
                          list(field.shape));
      if (field.swizzle > 0) out_ += fmt::format(" swizzle {}", field.swizzle);
    }
    out_ += fmt::format("\n{:{}}}}", "", 2 * depth_);
  }
  void print(const TurnsOp& op) {
    const TurnToken& token = code_[op.token];
    out_ += fmt::format("token %{}[{}] among {} first {}", token.name, token.count, token.among,
                        token.first);
  }
  void print(const CopiesOp& op) {
    out_ += "role " + op.name;
    if (!op.symbol.empty()) out_ += fmt::format("({}: {})", op.symbol, op.copies);
    out_ += fmt::format(" warps {} ", op.warps);
    if (op.registers > 0) out_ += fmt::format("registers {} ", op.registers);
    nested(*op.body);
  }
  std::string item(ChannelId channel, const Expr& item) const {
    return fmt::format("%{}[{}]", code_[channel].name, item.to_string());
  }
  void print(const PutOp& op) {
    out_ += "put " + item(op.channel, op.item) + " ";
    nested(*op.body);
  }
  void print(const ReceiveOp& op) { out_ += "get " + item(op.channel, op.item); }
  void print(const ReleaseOp& op) { out_ += "release " + item(op.channel, op.item); }
  void print(const CopyOp& op) {
    out_ += "copy " + place(op.memory, op.at) + guard(op.guard) + cache(op.cache) + ", %" +
            code_[op.field].name;
  }
  template <class Turn>
  std::string turn(const Turn& op) const {
    return "%" + code_[op.token].name + list({op.element, op.item});
  }
  void print(const PassOp& op) { out_ += "pass " + turn(op); }
  void print(const TakeOp& op) { out_ += "take " + turn(op); }
  void print(const WindowOp& op) {
    const Memory& window = code_[op.window];
    out_ += fmt::format("%{} = view %{}", window.name, code_[op.source].name);
    if (op.item) out_ += list({*op.item});
    out_ += fmt::format("({}) : {}{}", exprs(op.offsets), name(window.dtype), list(window.shape));
  }
  void print(const StartDotOp& op) {
    const std::string a = op.a_window ? "%" + code_[op.a_window].name : value(op.a);
    out_ += fmt::format("dot.start {}, %{}, {}", a, code_[op.b_window].name, value(op.c)) +
            contract(op);
    if (op.fresh) out_ += " fresh";
    if (!op.fresh_when.empty()) out_ += " (" + condition_text(op.fresh_when) + ")";
  }
  void print(const WaitDotOp& op) {
    out_ += fmt::format("dot.wait {}, {}", op.pending, values(op.operands));
  }
  void print(const StartStoreOp& op) {
    out_ += fmt::format("store.start %{}, ", code_[op.window].name) + place(op.memory, op.at) +
            guard(op.guard);
  }
  void print(const WaitStoreOp& op) { out_ += fmt::format("store.wait {}", op.pending); }
  void print(const RelayoutOp& op) { out_ += "relayout " + value(op.operand); }

  std::string literal_of_result(uint64_t bits) const { return literal_text(result_dtype_, bits); }

  const KernelCode& code_;
  Language language_;
  std::string out_;
  int depth_ = 0;
  bool with_regions_ = true;
  DType result_dtype_ = DType::F32;
};

}  // namespace

std::string to_text(const TileProgram& program) { return Printer(program, Language::Tile).file(); }
std::string to_text(const Kernel& kernel) { return Printer(kernel, Language::Kernel).file(); }
std::string to_text(const KernelCode& code, const Statement& statement) {
  const bool tile = code.target.empty() || code.pipelined;
  return Printer(code, tile ? Language::Tile : Language::Kernel).statement(statement);
}

}  // namespace braze
