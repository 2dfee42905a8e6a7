// print.cpp — prints structured code as text: the statements from the parts of their rows in
// statements.def.
#include <bit>
#include <cmath>

#include "ir/code/comparisons.h"
#include "ir/code/statements.h"
#include "ir/code/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"
#include "ir/values/half.h"

namespace braze {

namespace {

enum class Language : uint8_t { Tile, Kernel };

std::string_view sign_of(IndexComparison::Kind kind) {
  return kComparisonSigns[static_cast<size_t>(kind)];
}

std::string condition_text(const Condition& condition) {
  return join(condition, " and ", [](const IndexComparison& c) {
    return fmt::format("{} {} {}", c.left.to_string(), sign_of(c.kind), c.right.to_string());
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
    for (size_t m = 0; m < code_.member_sizes.size(); ++m)
      out_ += fmt::format(
          "{} [{}]", m == 0 ? " sizes" : ",",
          join(code_.member_sizes[m], ", ", [](int64_t size) { return std::to_string(size); }));
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
                              extents(memory.shape), memory.zeroed ? " zero" : "");
    for (size_t p = 0; p < code_.phases.size(); ++p) {
      const Phase& phase = code_.phases[p];
      if (p > 0) out_ += "  barrier grid\n";
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
  static std::string extents(const std::vector<Expr>& list) { return "[" + exprs(list) + "]"; }
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
                    name(map.dtype), extents(map.extents), numbers(map.box));
    return out + swizzle(map.swizzle) + ")";
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
                                  name(memory.dtype), extents(memory.shape));
    if (!memory.strides.empty()) out += " strides " + extents(memory.strides);
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
  // A rank after "@". A name or number has no parentheses around it, and everything else has.
  static std::string rank_text(const Expr& rank) {
    const bool alone = rank.operands().empty() && rank.as_constant().value_or(0) >= 0;
    return alone ? rank.to_string() : "(" + rank.to_string() + ")";
  }
  std::string values(const std::vector<ValueOperand>& list) const {
    return join(list, ", ", [&](const ValueOperand& o) { return value(o); });
  }
  static std::string swizzle(int64_t bytes) {
    return bytes > 0 ? fmt::format(" swizzle {}", bytes) : "";
  }

  void region(const Region& body, int depth, std::string_view yield) {
    out_ += "{\n";
    for (const Statement& s : body.statements) line(s, depth + 1, true);
    if (!body.yields.empty())
      out_ += fmt::format("{:{}}{} {}\n", "", 2 * (depth + 1), yield, values(body.yields));
    out_ += fmt::format("{:{}}}}", "", 2 * depth);
  }

  // --- Statements

  void line(const Statement& s, int depth, bool with_regions) {
    out_ += fmt::format("{:{}}", "", 2 * depth);
    if (!s.results.empty())
      out_ += join(s.results, ", ", [&](ValueId r) { return value(r); }) + " = ";
    depth_ = depth;
    with_regions_ = with_regions;
    statement_ = &s;
    std::visit([&](const auto& op) { statement(op); }, s.op);
    if (!s.results.empty() && info(s).results == ResultTypes::Written)
      out_ += " : " + join(s.results, ", ", [&](ValueId r) { return type(code_[r]); });
    out_ += "\n";
  }
  template <class Op>
  void statement(const Op& op) {
    constexpr std::string_view kKeywords = kInfoOf<Op>.keywords;
    keywords_ = kKeywords;
    if constexpr (std::is_same_v<Op, BufferOp>) out_ += "%" + code_[op.memory].name + " = ";
    if constexpr (std::is_same_v<Op, MemoryViewOp>) out_ += "%" + code_[op.window].name + " = ";
    if constexpr (std::is_same_v<Op, RowOp>) keyword(name(op.op));
    if constexpr (std::is_same_v<Op, InstructionOp>) keyword(name(op.instruction, op.columns));
    if constexpr (!kKeywords.empty() && kKeywords.find('|') == kKeywords.npos) keyword(kKeywords);
    visit_parts(op, *this);
    if (out_.back() == ' ') out_.pop_back();
  }
  // --- Parts of statements.def

 public:
  void operator()(const auto&... parts) { (part(parts), ...); }

  void keyword(std::string_view word) {
    out_ += word;
    out_ += ' ';
  }
  void keyword(size_t which) {
    std::string_view words = keywords_;
    for (; which > 0; --which) words.remove_prefix(words.find('|') + 1);
    keyword(words.substr(0, words.find('|')));
  }
  void list(const std::vector<int64_t>& values) {
    part(join(values, ", ", [](int64_t v) { return std::to_string(v); }));
  }
  void list(const std::vector<Expr>& values) { part(exprs(values)); }
  template <class At, class Rank>
  void access(MemoryId memory, const At& at, const Rank& rank) {
    std::optional<Expr> block;
    if constexpr (std::is_same_v<Rank, std::optional<Expr>>) block = rank;
    part(place(memory, block));
    if constexpr (std::is_same_v<At, Expr>)
      (*this)("[", at, "]");
    else if constexpr (std::is_same_v<At, std::vector<Expr>>)
      part(at);
  }
  template <class Operand, class Source>
  void literal_or_value(const Operand& operand, const Source& source) {
    if constexpr (!std::is_same_v<Operand, uint64_t>)
      part(operand);
    else if constexpr (std::is_same_v<Source, MemoryId>)
      part(literal_text(code_[source].dtype, operand));
    else
      part(literal_text(code_[statement_->results.at(0)].type.dtype, operand));
  }
  void carry(const std::vector<std::pair<ValueId, ValueOperand>>& list) {
    std::string_view before = " carry(";
    for (const auto& [inside, first] : list)
      (*this)(std::exchange(before, ", "), inside, " = ", first);
    if (!list.empty()) part(")");
  }
  void body(const Region& body, std::string_view ending) {
    const int depth = depth_;
    part(" ");
    if (with_regions_)
      region(body, depth, ending);
    else
      part("{ ... }");
    depth_ = depth;
  }

  void declaration(MemoryId id) {
    const Memory& memory = code_[id];
    if (memory.space == MemorySpace::Window)
      return (*this)(" : ", name(memory.dtype), memory.shape);
    part(language_ == Language::Tile           ? "buffer "
         : memory.space == MemorySpace::Shared ? "alloc shared "
                                               : "alloc local ");
    (*this)(memory.mbarrier ? "mbarrier" : name(memory.dtype), memory.shape,
            parts::Option{" swizzle", memory.swizzle, 0}, parts::Option{" align", memory.align, 0},
            parts::Option{" at", memory.scratch_offset, -1});
  }
  void declaration(ChannelId id) {
    const Channel& channel = code_[id];
    (*this)("%", channel.name, " depth ", channel.depth, " from ", channel.producer, " to ",
            channel.receiver);
    if (channel.only) (*this)(" only (", *channel.only, ")");
    part(" {");
    for (const MemoryId field_id : channel.fields) {
      const Memory& field = code_[field_id];
      part(fmt::format("\n{:{}}", "", 2 * (depth_ + 1)));
      (*this)(field.name.substr(channel.name.size() + 1), ": ", name(field.dtype), field.shape,
              parts::Option{" swizzle", field.swizzle, 0});
    }
    part(fmt::format("\n{:{}}}}", "", 2 * depth_));
  }
  void declaration(TokenId id) {
    const TurnToken& token = code_[id];
    (*this)("%", token.name, "[", token.count, "] among ", token.among, " first ", token.first);
  }

 private:
  template <class Part>
  requires requires(const Part& part, Printer& out) { part.print(out); }
  void part(const Part& part) { part.print(*this); }
  // A space at the end of the text and one at the beginning of the next part are one.
  void part(std::string_view text) {
    if (text.starts_with(' ') && out_.back() == ' ') text.remove_prefix(1);
    out_ += text;
  }
  void part(int64_t number) { part(std::to_string(number)); }
  void part(Monoid monoid) { part(name(monoid)); }
  void part(const Combiner& combiner) { part(combiner.to_string()); }
  void part(ValueId id) { (*this)("%", code_[id].name); }
  void part(ChannelId id) { (*this)("%", code_[id].name); }
  void part(TokenId id) { (*this)("%", code_[id].name); }
  void part(const ValueOperand& operand) { part(value(operand)); }
  void part(const Expr& index) { part(index.to_string()); }
  void part(const std::vector<int64_t>& numbers) { part(integers(numbers)); }
  void part(const std::vector<Expr>& at) { part("[" + exprs(at) + "]"); }
  void part(const std::vector<ValueOperand>& operands) { part(values(operands)); }
  void part(const Condition& condition) { (*this)("(", condition_text(condition), ")"); }
  void part(const Guard& guard) {
    if (guard.clip)
      part(" clip");
    else if (guard.mask)
      (*this)(" mask ", guard.mask);
    else if (!guard.condition.empty())
      (*this)(" mask ", guard.condition);
  }
  void part(CacheHint hint) {
    if (hint != CacheHint::None) part(hint == CacheHint::Stream ? " cache stream" : " cache keep");
  }
  void part(const std::vector<InstructionOperand>& operands) {
    std::string_view separator;
    for (const InstructionOperand& operand : operands) {
      part(std::exchange(separator, ", "));
      std::visit([&](const auto& o) { part(o); }, operand);
    }
  }
  void part(const Place& p) {
    access(p.memory, p.at, p.rank);
    if (p.matrix)
      (*this)(p.matrix->k_major ? " k" : " mn", " lbo ", p.matrix->leading, " sbo ",
              p.matrix->stride, " swizzle ", p.matrix->swizzle);
  }
  void part(const MapPlace& p) {
    (*this)("%", code_[p.map].name);
    if (!p.at.empty()) part(p.at);
  }
  std::string place(MemoryId memory, const std::optional<Expr>& rank) const {
    return "%" + code_[memory].name + (rank ? "@" + rank_text(*rank) : "");
  }

  const KernelCode& code_;
  Language language_;
  std::string out_;
  int depth_ = 0;
  bool with_regions_ = true;
  std::string_view keywords_;  // of the statement
  const Statement* statement_ = nullptr;
};

}  // namespace

std::string to_text(const TileProgram& program) { return Printer(program, Language::Tile).file(); }
std::string to_text(const Kernel& kernel) { return Printer(kernel, Language::Kernel).file(); }
std::string to_text(const KernelCode& code, const Statement& statement) {
  const bool tile = code.target.empty() || code.pipelined;
  return Printer(code, tile ? Language::Tile : Language::Kernel).statement(statement);
}

}  // namespace braze
