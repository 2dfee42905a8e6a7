// parse.cpp — parses text to structured code. There is one function for each operation, which is
// found by its keyword.
//
// Names and syntax are checked here; the verifiers check types, ranges and all other rules. Memory
// grows only with the length of the text, because types and regions are limited.
#include <algorithm>
#include <bit>
#include <charconv>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "ir/code/layout_text.h"
#include "ir/code/limits.h"
#include "ir/code/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/scanner.h"
#include "ir/support/text.h"

namespace braze {

namespace {

enum class Language : uint8_t { Tile, Kernel };

constexpr size_t kMaxDepth = 64;           // of regions
constexpr int64_t kMaxElements = 1 << 20;  // of a value, lanes included
constexpr int64_t kMaxBlock = 1024;        // threads
constexpr int64_t kMostWarps = 32;
constexpr int64_t kMostBlocks = 8;   // of a cluster on every machine that has clusters
constexpr int64_t kMostCopies = 32;  // of a role, slots of a channel, elements of a token
constexpr int64_t kMaxSymbol = (int64_t{1} << 47) - 1;

// A number as it is written. Its dtype becomes known later.
struct Literal {
  enum class Kind : uint8_t { Boolean, Integer, Number, Bits };
  Kind kind = Kind::Number;
  SourceLocation where;
  uint64_t bits = 0;
  WholeNumber integer;
  double number = 0;
  float single = 0;  // rounded once from the text
};

// A value, or a literal that waits for its dtype.
struct Term {
  ValueId value;
  std::optional<Literal> literal;
};

// "l4:8": a digit of 8 lanes that are 4 apart.
Digit digit(Scanner& scanner) {
  constexpr std::string_view kLetters = "bwlr";
  const SourceLocation where = scanner.location();
  const std::string_view text = scanner.expect_identifier("a digit of a layout");
  const size_t letter = kLetters.find(text[0]);
  Digit digit;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + 1, end, digit.stride);
  scanner.expect(":");
  digit.extent = scanner.expect_integer();
  if (letter == kLetters.npos || read.ec != std::errc() || read.ptr != end || digit.stride < 1 ||
      digit.stride > kMaxElements || digit.extent < 2 || digit.extent > kMaxElements)
    fail(codes::kSyntax,
         "a digit of a layout is b, w, l or r, followed by its stride, \":\" and its extent, as in "
         "l4:8",
         {.location = where, .node = "", .fix = ""});
  digit.resource = static_cast<Resource>(letter);
  return digit;
}

class CodeParser {
 public:
  CodeParser(std::string_view text, std::string_view file_name, Language language, KernelCode& code)
      : scanner_(text, file_name), language_(language), code_(code) {}

  void parse() {
    expect_header(scanner_, language_ == Language::Tile ? "tile" : "kernel");
    scopes_.emplace_back();
    while (scanner_.accept("symbol")) size_symbol();
    scanner_.expect("kernel");
    code_.name = scanner_.expect_symbol();
    parameters();
    attributes();
    scanner_.expect("{");
    while (language_ == Language::Tile && scanner_.accept("layout")) layout();
    while (language_ == Language::Tile && scanner_.accept("workspace")) workspace();
    do phase();
    while (!scanner_.at("}"));
    scanner_.expect("}");
    if (!scanner_.at_end()) scanner_.fail_here("a file holds one kernel, but more text follows it");
  }

 private:
  bool is_tile() const { return language_ == Language::Tile; }

  [[noreturn]] static void fail_at(const SourceLocation& where, std::string message) {
    fail(codes::kSyntax, std::move(message), {.location = where, .node = "", .fix = ""});
  }

  // --- Names ------------------------------------------------------------------------------------

  struct Scope {
    std::vector<std::string_view> symbols, names;
  };
  // A scope for names, which is open as long as this object lives.
  class Nested {
   public:
    explicit Nested(CodeParser& parser) : parser_(parser) {
      if (parser_.scopes_.size() > kMaxDepth)
        parser_.scanner_.fail_here("regions are nested too deeply");
      parser_.scopes_.emplace_back();
    }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() {
      for (const std::string_view s : parser_.scopes_.back().symbols) parser_.symbols_.erase(s);
      for (const std::string_view n : parser_.scopes_.back().names) parser_.visible_.erase(n);
      parser_.scopes_.pop_back();
    }

   private:
    CodeParser& parser_;
  };

  bool is_position(std::string_view name) const {
    if (!is_tile() && name == "lane") return true;
    return name.size() > 1 && name[0] == (is_tile() ? 'd' : 'e') &&
           name.find_first_not_of("0123456789", 1) == std::string_view::npos;
  }

  std::string_view new_symbol() {
    constexpr std::string_view kReserved[] = {"and", "ceildiv", "false", "floordiv", "inf",
                                              "max", "min",     "mod",   "nan",      "true"};
    const SourceLocation where = scanner_.location();
    const std::string_view name = scanner_.expect_identifier("the name of a symbol");
    if (symbols_.contains(name))
      fail_at(where, fmt::format("the symbol {} is already defined", name));
    if (is_position(name) ||
        std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved))
      fail_at(where, fmt::format("{} is a word of the language and cannot name a symbol", name));
    return name;
  }
  void define(std::string_view name, Expr symbol) {
    symbols_.emplace(name, std::move(symbol));
    scopes_.back().symbols.push_back(name);
  }

  using Named = std::variant<ValueId, MemoryId, TensorMapId, ChannelId, TokenId>;
  void define(const Token& token, const SourceLocation& where, Named named) {
    if (!known_.insert(token.text).second)
      fail_at(where, fmt::format("%{} is defined twice", token.text));
    visible_.emplace(token.text, named);
    scopes_.back().names.push_back(token.text);
  }
  ValueId new_value(const Token& token, const SourceLocation& where, ValueType type) {
    const ValueId id(code_.values.size());
    define(token, where, id);
    code_.values.push_back({std::string(token.text), std::move(type)});
    return id;
  }

  template <class T>
  T named(std::string_view what) {
    if (scanner_.peek().kind == TokenKind::Value) {
      const auto found = visible_.find(scanner_.peek().text);
      if (found == visible_.end())
        scanner_.fail_here(fmt::format("%{} is not defined here", scanner_.peek().text));
      if (const T* id = std::get_if<T>(&found->second)) {
        scanner_.next();
        return *id;
      }
    }
    scanner_.fail_here(fmt::format("expected {}", what));
  }
  ValueId value() { return named<ValueId>("a value"); }
  MemoryId memory() { return named<MemoryId>("a parameter, workspace or buffer"); }

  // --- Types, index expressions, literals
  // ---------------------------------------------------------

  DType dtype() {
    const auto found = parse_dtype(scanner_.peek().text);
    if (!found || scanner_.peek().kind != TokenKind::Identifier)
      scanner_.fail_here("expected a dtype such as f32");
    scanner_.next();
    return *found;
  }

  ValueType type() {
    const SourceLocation where = scanner_.location();
    ValueType out;
    const std::string_view word = scanner_.expect_identifier("a type such as f32[64]");
    const size_t cross = is_tile() ? word.npos : word.find('x');
    const auto found = parse_dtype(word.substr(0, cross));
    if (!found) fail_at(where, fmt::format("{} is not a type", quote(word.substr(0, 40))));
    out.dtype = *found;
    if (cross != word.npos) {
      const std::string_view digits = word.substr(cross + 1);
      const auto end = digits.data() + digits.size();
      const auto result = std::from_chars(digits.data(), end, out.lanes);
      if (result.ec != std::errc() || result.ptr != end || out.lanes < 1 || out.lanes > 1024)
        fail_at(where, "the number of lanes is not a power of two from 1 to 64");
    }
    if (scanner_.at("[")) out.extents = integers("[", "]");
    int64_t count = out.lanes;
    for (const int64_t extent : out.extents) {
      if (extent < 1) fail_at(where, "an extent is less than 1");
      if (extent > kMaxElements || (count *= extent) > kMaxElements)
        fail_at(where, "a value cannot have more than 2^20 elements");
    }
    if (out.rank() > kMostAxesOfValue) fail_at(where, "the type has too many extents");
    return out;
  }

  std::vector<int64_t> integers(std::string_view open, std::string_view close) {
    std::vector<int64_t> out;
    scanner_.expect(open);
    if (scanner_.accept(close)) return out;
    do out.push_back(scanner_.expect_integer());
    while (scanner_.accept(","));
    scanner_.expect(close);
    return out;
  }

  Expr lookup(std::string_view name) {
    if (name[0] == '%') {
      const auto found = visible_.find(name.substr(1));
      const auto* id = found == visible_.end() ? nullptr : std::get_if<ValueId>(&found->second);
      if (!id) scanner_.fail_here(fmt::format("the value {} is not defined here", name));
      return value_symbol(code_, *id);
    }
    if (is_position(name)) return position(name);
    const auto found = symbols_.find(name);
    if (found == symbols_.end())
      scanner_.fail_here(fmt::format("the symbol {} is not defined here", name));
    return found->second;
  }
  Expr position(std::string_view name) {
    if (!positions_)
      scanner_.fail_here(fmt::format(
          "{} has no meaning here, because no tile stands here whose position it could be", name));
    if (name == "lane") return lane_symbol(positions_->lanes);
    size_t axis = kMostAxesOfValue;
    std::from_chars(name.data() + 1, name.data() + name.size(), axis);
    if (axis >= positions_->rank())
      scanner_.fail_here(
          fmt::format("{} names an axis that {} does not have", name, positions_->to_string()));
    return position_symbol(name[0], axis, positions_->extents[axis]);
  }
  Expr index() {
    return parse_expr(scanner_, [this](std::string_view name) { return lookup(name); });
  }
  std::vector<Expr> indices() {
    std::vector<Expr> out;
    scanner_.expect("[");
    if (scanner_.accept("]")) return out;
    do out.push_back(index());
    while (scanner_.accept(","));
    scanner_.expect("]");
    return out;
  }

  IndexComparison comparison() {
    constexpr std::string_view kKinds[] = {"<", "<=", ">", ">=", "==", "!="};
    IndexComparison out;
    out.left = index();
    size_t kind = 0;
    while (kind < std::size(kKinds) && !scanner_.at(kKinds[kind])) ++kind;
    if (kind == std::size(kKinds)) scanner_.fail_here("expected a comparison such as < or ==");
    scanner_.next();
    out.kind = static_cast<IndexComparison::Kind>(kind);
    out.right = index();
    return out;
  }
  Condition condition() {
    Condition out;
    scanner_.expect("(");
    do out.push_back(comparison());
    while (scanner_.accept("and"));
    scanner_.expect(")");
    return out;
  }

  Literal literal() {
    Literal out;
    out.where = scanner_.location();
    if (scanner_.at("true") || scanner_.at("false")) {
      out.kind = Literal::Kind::Boolean;
      out.bits = scanner_.next().text == "true";
    } else if (scanner_.accept("bits")) {
      scanner_.expect("(");
      const Token token = scanner_.next();
      const char* const end = token.text.data() + token.text.size();
      if (!token.text.starts_with("0x") ||
          std::from_chars(token.text.data() + 2, end, out.bits, 16).ptr != end)
        fail_at(out.where, "expected bits(0x...)");
      scanner_.expect(")");
      out.kind = Literal::Kind::Bits;
    } else {
      number(out);
    }
    return out;
  }

  void number(Literal& out) {
    const bool negative = scanner_.at("-");
    const Token token = negative ? scanner_.peek_second() : scanner_.peek();
    const char* const end = token.text.data() + token.text.size();
    if (token.kind == TokenKind::Integer) {
      out.integer.negative = negative;
      if (std::from_chars(token.text.data(), end, out.integer.magnitude).ec == std::errc())
        out.kind = Literal::Kind::Integer;
    }
    out.number = scanner_.expect_number();
    out.single = static_cast<float>(out.number);
    // Decimal text is converted to f32 in one step. By way of f64 it would be rounded twice.
    float direct = 0;
    const bool decimal = token.kind != TokenKind::Identifier && !token.text.starts_with("0x");
    if (decimal && std::from_chars(token.text.data(), end, direct).ec == std::errc())
      out.single = negative ? -direct : direct;
  }

  static uint64_t bits_of(const Literal& literal, DType dtype) {
    const auto unfit = [&] {
      fail_at(literal.where, fmt::format("this literal is not a value of {}", name(dtype)));
    };
    const bool whole = literal.kind == Literal::Kind::Integer;
    switch (literal.kind) {
      case Literal::Kind::Boolean:
        if (dtype != DType::Bool) unfit();
        return literal.bits;
      case Literal::Kind::Bits:
        if (!is_floating(dtype) ||
            (size_of(dtype) < 8 && literal.bits >> (8 * size_of(dtype)) != 0))
          unfit();
        return literal.bits;
      default:
        break;
    }
    if (dtype == DType::F32) return constant_bits(dtype, static_cast<double>(literal.single));
    if (is_floating(dtype)) return constant_bits(dtype, literal.number);
    if (dtype == DType::Bool || !whole) unfit();
    const auto bits = integer_bits(dtype, literal.integer.negative, literal.integer.magnitude);
    if (!bits) unfit();
    return *bits;
  }

  bool at_literal() const {
    const TokenKind kind = scanner_.peek().kind;
    return kind == TokenKind::Integer || kind == TokenKind::Float || scanner_.at("-") ||
           scanner_.at("true") || scanner_.at("false") || scanner_.at("inf") ||
           scanner_.at("nan") || scanner_.at("bits");
  }
  Term term() {
    if (at_literal()) return {{}, literal()};
    return {value(), {}};
  }
  ValueOperand operand(const Term& term, DType dtype) const {
    return term.literal ? ValueOperand::literal(dtype, bits_of(*term.literal, dtype))
                        : ValueOperand(term.value);
  }
  // An operand whose dtype nothing else determines.
  ValueOperand plain_operand() { return value(); }

  // --- The head of a kernel
  // -----------------------------------------------------------------------

  void size_symbol() {
    const SourceLocation where = scanner_.location();
    const std::string_view name = new_symbol();
    scanner_.expect(":");
    const int64_t least = scanner_.expect_integer();
    scanner_.expect("..");
    const int64_t greatest = scanner_.expect_integer();
    int64_t divisor = 1;
    if (scanner_.accept("%")) {
      divisor = scanner_.expect_integer();
    } else if (scanner_.peek().kind == TokenKind::Value) {  // "%8" is one token
      const std::string_view digits = scanner_.next().text;
      const char* end = digits.data() + digits.size();
      if (std::from_chars(digits.data(), end, divisor).ptr != end) divisor = 0;
    }
    if (least < 0 || least > greatest || greatest > kMaxSymbol || divisor < 1 ||
        greatest / divisor * divisor < least)
      fail_at(where, fmt::format("the range of the symbol {} contains no possible size", name));
    define(name, Expr::symbol(name, {least, greatest}, divisor));
    code_.symbols.push_back(lookup(name));
  }

  void parameters() {
    scanner_.expect("(");
    while (!scanner_.accept(")")) {
      if (!code_.memories.empty() || !code_.scalar_parameters.empty()) scanner_.expect(",");
      parameter();
    }
  }

  void parameter() {
    const SourceLocation where = scanner_.location();
    const Token token = scanner_.peek();
    scanner_.expect_value();
    scanner_.expect(":");
    if (!is_tile() && scanner_.accept("tensormap")) return tensor_map(token, where);
    constexpr std::string_view kModes[] = {"in", "out", "inout"};
    std::optional<Mode> mode;
    for (size_t i = 0; i < std::size(kModes); ++i)
      if (scanner_.accept(kModes[i])) mode = static_cast<Mode>(i);
    const bool work = !mode && !is_tile() && scanner_.accept("work");
    if (!mode && !work) {
      const ValueId id = new_value(token, where, {dtype(), 1, {}});
      code_.scalar_parameters.push_back(id);
      code_.parameters.emplace_back(id);
      return;
    }
    Memory memory{.name = std::string(token.text),
                  .space = work ? MemorySpace::Workspace : MemorySpace::Parameter};
    memory.mode = mode.value_or(Mode::InOut);
    memory.zeroed = work && scanner_.accept("zero");
    if (!is_tile()) scanner_.expect("global");
    memory.dtype = dtype();
    memory.shape = indices();
    if (is_tile() && scanner_.accept("strides")) memory.strides = indices();
    if (scanner_.accept("align")) memory.align = scanner_.expect_integer();
    if (!work && !code_.memories.empty() && code_.memories.back().space == MemorySpace::Workspace)
      fail_at(where, "`work` parameters must follow all other parameters");
    add_memory(token, where, std::move(memory));
  }

  void tensor_map(const Token& token, const SourceLocation& where) {
    TensorMap map{.name = std::string(token.text)};
    scanner_.expect("(");
    map.memory = memory();
    scanner_.expect(":");
    map.dtype = dtype();
    map.extents = indices();
    scanner_.expect("box");
    map.box = integers("[", "]");
    if (scanner_.accept("swizzle")) map.swizzle = scanner_.expect_integer();
    scanner_.expect(")");
    const TensorMapId id(code_.tensor_maps.size());
    define(token, where, id);
    code_.parameters.emplace_back(id);
    code_.tensor_maps.push_back(std::move(map));
  }

  MemoryId add_memory(const Token& token, const SourceLocation& where, Memory memory) {
    const MemoryId id(code_.memories.size());
    define(token, where, id);
    if (memory.space == MemorySpace::Parameter) code_.parameters.emplace_back(id);
    code_.memories.push_back(std::move(memory));
    return id;
  }

  void attributes() {
    while (!scanner_.at("{")) {
      if (scanner_.accept("schedule"))
        code_.schedule = unquote(scanner_.expect_string());
      else if (scanner_.accept("target"))
        code_.target = unquote(scanner_.expect_string());
      else if (scanner_.accept("resident"))
        code_.resident = true;
      else if (!is_tile() && scanner_.accept("members"))
        code_.members = scanner_.expect_integer();
      else if (is_tile() && scanner_.accept("pipelined"))
        code_.pipelined = true;
      else if (is_tile() && scanner_.accept("warps"))
        code_.warps = power_of_two("warps of a block", kMostWarps);
      else if (is_tile() && scanner_.accept("cluster"))
        code_.cluster = power_of_two("blocks of a cluster", kMostBlocks);
      else if (is_tile() && scanner_.accept("registers"))
        code_.registers = registers();
      else
        scanner_.fail_here("expected an attribute of the kernel, or \"{\"");
    }
    if (!is_tile() && code_.target.empty())
      scanner_.fail_here("the kernel does not name its target");
    if (is_tile() && code_.target.empty() == code_.pipelined)
      scanner_.fail_here("a pipelined tile program must name a target, and a plain one cannot");
  }

  int64_t power_of_two(std::string_view what, int64_t most) {
    const SourceLocation where = scanner_.location();
    const int64_t count = scanner_.expect_integer();
    if (count < 1 || count > most || !std::has_single_bit(static_cast<uint64_t>(count)))
      fail_at(where,
              fmt::format("the number of {} is 1, 2, 4, .. or {}, not {}", what, most, count));
    return count;
  }

  int64_t registers() {
    constexpr int64_t kLeast = 24, kMost = 255;
    const SourceLocation where = scanner_.location();
    const int64_t count = scanner_.expect_integer();
    if (count < kLeast || count > kMost)
      fail_at(where,
              fmt::format("a thread can have {} to {} registers, not {}", kLeast, kMost, count));
    return count;
  }

  // "layout @name = (w1:4 r2:2 l4:8 | -)".
  void layout() {
    NamedLayout named{std::string(scanner_.expect_symbol()), {}};
    scanner_.expect("=");
    named.layout = parse_layout(scanner_);
    code_.layouts.push_back(std::move(named));
  }

  // The layout after a type of a pipelined program: "@name" or the digits.
  std::optional<NamedLayout> type_layout() {
    if (!code_.pipelined || scanner_.at_line_start()) return std::nullopt;
    if (scanner_.at("(")) return NamedLayout{"", parse_layout(scanner_)};
    if (scanner_.peek().kind != TokenKind::Symbol) return std::nullopt;
    for (const NamedLayout& named : code_.layouts) {
      if (named.name != scanner_.peek().text) continue;
      scanner_.next();
      return named;
    }
    scanner_.fail_here(fmt::format("there is no layout @{}", scanner_.peek().text));
  }

  void workspace() {
    const SourceLocation where = scanner_.location();
    const Token token = scanner_.peek();
    scanner_.expect_value();
    scanner_.expect(":");
    Memory memory{
        .name = std::string(token.text), .space = MemorySpace::Workspace, .mode = Mode::InOut};
    memory.dtype = dtype();
    memory.shape = indices();
    memory.zeroed = scanner_.accept("zero");
    add_memory(token, where, std::move(memory));
  }

  void phase() {
    Phase out;
    if (!code_.phases.empty()) {
      scanner_.expect("barrier");
      out.barrier = scanner_.accept("block") ? PhaseBarrier::Block : PhaseBarrier::Grid;
      if (out.barrier == PhaseBarrier::Grid) scanner_.expect("grid");
    }
    scanner_.expect("phase");
    scanner_.expect("grid");
    scanner_.expect("(");
    const Nested scope(*this);
    std::vector<std::pair<std::string_view, Expr>> axes;
    while (!scanner_.accept(")")) {
      if (!axes.empty()) scanner_.expect(",");
      const std::string_view name = new_symbol();
      scanner_.expect(":");
      axes.emplace_back(name, index());
    }
    for (const auto& [name, extent] : axes) {
      if (symbols_.contains(name))
        scanner_.fail_here(fmt::format("the grid has two axes with the name {}", name));
      out.grid.push_back({std::string(name), extent});
      define(name, grid_symbol(name, extent));
    }
    if (!is_tile() && scanner_.accept("scratch")) out.scratch_bytes = scanner_.expect_integer();
    if (!is_tile() || code_.pipelined) cluster(out);
    if (!is_tile()) block(out);
    out.body = region("", {});
    code_.phases.push_back(std::move(out));
  }

  void cluster(Phase& out) {
    const SourceLocation where = scanner_.location();
    if (!scanner_.accept("cluster")) return;
    scanner_.expect("(");
    const std::string_view name = new_symbol();
    out.cluster = name;
    scanner_.expect(":");
    out.cluster_size = scanner_.expect_integer();
    if (out.cluster_size < 1 || out.cluster_size > 16)
      fail_at(where, "a cluster can have 1 to 16 blocks");
    scanner_.expect(")");
    define(name, grid_symbol(name, out.cluster_size));
  }

  void block(Phase& out) {
    if (!out.cluster.empty())
      scanner_.expect("block");
    else if (!scanner_.accept("block"))
      return;
    const SourceLocation where = scanner_.location();
    out.block = scanner_.expect_integer();
    if (out.block < 1 || out.block > kMaxBlock)
      fail_at(where, fmt::format("a block can have 1 to {} threads", kMaxBlock));
    define("tid", thread_symbol(out.block));
    if (scanner_.accept("shared")) out.shared_bytes = scanner_.expect_integer();
    if (scanner_.accept("registers")) out.registers = scanner_.expect_integer();
  }

  // --- Statements
  // ---------------------------------------------------------------------------------

  struct Result {
    Token token;
    SourceLocation where;
  };

  // Reads a region. The statement `ending` ("yield", "continue" or none) gives the values that
  // leave it; literals among them take the dtypes `given`.
  Region region(std::string_view ending, const std::vector<ValueType>& given) {
    Region out;
    const Nested scope(*this);
    scanner_.expect("{");
    while (!scanner_.at("}")) {
      if (!ending.empty() && scanner_.accept(ending)) {
        do {
          const Term yielded = term();
          const size_t i = out.yields.size();
          if (yielded.literal && i >= given.size())
            fail_at(yielded.literal->where,
                    "nothing gives this literal a dtype; write the value as a `const` with a type "
                    "first");
          out.yields.push_back(operand(yielded, i < given.size() ? given[i].dtype : DType::F32));
        } while (scanner_.accept(","));
        break;
      }
      if (!scanner_.at_line_start() && !out.statements.empty())
        scanner_.fail_here("a statement must begin on a new line");
      statement(out);
    }
    scanner_.expect("}");
    return out;
  }

  void statement(Region& out) {
    Statement made;
    made.location = scanner_.location();
    std::vector<Result> results;
    while (scanner_.peek().kind == TokenKind::Value) {
      results.push_back({scanner_.peek(), scanner_.location()});
      scanner_.next();
      if (!scanner_.accept(",")) break;
    }
    if (!results.empty()) scanner_.expect("=");
    const SourceLocation where = scanner_.location();
    const std::string_view word = scanner_.expect_identifier("a statement");
    if (const auto row = parse_elementwise(word)) {
      this->row(*row, made, results);
    } else {
      const Keyword* found = nullptr;
      for (const Keyword& keyword : keywords())
        if (keyword.name == word && keyword.in(language_, code_.pipelined)) found = &keyword;
      const auto special = is_tile() ? std::nullopt : parse_instruction(word);
      if (found)
        (this->*found->parse)(made, results);
      else if (special)
        instruction(*special, made, results);
      else
        fail_at(where, fmt::format("{} is not a statement", quote(word.substr(0, 40))));
    }
    if (made.results.size() != results.size() && !made.as<BufferOp>() && !made.as<WindowOp>())
      fail_at(made.location, fmt::format("{} has {} results, but {} names are given", word,
                                         made.results.size(), results.size()));
    out.statements.push_back(std::move(made));
  }

  using ParseStatement = void (CodeParser::*)(Statement&, const std::vector<Result>&);
  struct Keyword {
    enum Where : uint8_t { Both, Tiles, Kernels, Pipelines };
    std::string_view name;
    Where where;
    ParseStatement parse;
    bool in(Language language, bool pipelined) const {
      if (where == Pipelines) return pipelined;
      return where == Both || (where == Tiles) == (language == Language::Tile);
    }
  };
  static std::span<const Keyword> keywords() {
    using P = CodeParser;
    static constexpr Keyword kKeywords[] = {
        {"let", Keyword::Both, &P::let},
        {"const", Keyword::Both, &P::constant},
        {"iota", Keyword::Both, &P::iota},
        {"test", Keyword::Both, &P::test},
        {"load", Keyword::Both, &P::load},
        {"store", Keyword::Both, &P::store},
        {"reduce", Keyword::Both, &P::reduce},
        {"scan", Keyword::Tiles, &P::scan},
        {"dot", Keyword::Tiles, &P::dot},
        {"reshape", Keyword::Both, &P::view<ViewKind::Reshape>},
        {"broadcast", Keyword::Both, &P::view<ViewKind::Broadcast>},
        {"transpose", Keyword::Both, &P::view<ViewKind::Transpose>},
        {"slice", Keyword::Both, &P::view<ViewKind::Slice>},
        {"buffer", Keyword::Tiles, &P::buffer},
        {"alloc", Keyword::Kernels, &P::buffer},
        {"for", Keyword::Both, &P::for_loop},
        {"if", Keyword::Both, &P::branch},
        {"ticket", Keyword::Tiles, &P::ticket},
        {"await_predecessors", Keyword::Tiles, &P::await},
        {"splat", Keyword::Kernels, &P::splat},
        {"extract", Keyword::Kernels, &P::extract},
        {"insert", Keyword::Kernels, &P::insert},
        {"shuffle", Keyword::Kernels, &P::shuffle},
        {"get", Keyword::Kernels, &P::get},
        {"pack", Keyword::Kernels, &P::pack},
        {"atomic", Keyword::Kernels, &P::atomic},
        {"while", Keyword::Kernels, &P::while_loop},
        {"role", Keyword::Kernels, &P::role},
        {"role", Keyword::Pipelines, &P::copies},
        {"channel", Keyword::Pipelines, &P::channel},
        {"token", Keyword::Pipelines, &P::token},
        {"put", Keyword::Pipelines, &P::put},
        {"get", Keyword::Pipelines, &P::item<ReceiveOp>},
        {"release", Keyword::Pipelines, &P::item<ReleaseOp>},
        {"copy", Keyword::Pipelines, &P::copy},
        {"pass", Keyword::Pipelines, &P::turn<PassOp>},
        {"take", Keyword::Pipelines, &P::turn<TakeOp>},
        {"view", Keyword::Pipelines, &P::window},
        {"dot.start", Keyword::Pipelines, &P::start_dot},
        {"dot.wait", Keyword::Pipelines, &P::wait_dot},
        {"store.start", Keyword::Pipelines, &P::start_store},
        {"store.wait", Keyword::Pipelines, &P::wait_store},
        {"relayout", Keyword::Pipelines, &P::relayout},
        {"undef", Keyword::Kernels, &P::undefined},
        {"regroup", Keyword::Kernels, &P::regroup},
    };
    return kKeywords;
  }

  // Reads ": type", and defines the results with it.
  void result_types(Statement& s, const std::vector<Result>& results) {
    scanner_.expect(":");
    for (const Result& result : results) {
      if (!s.results.empty()) scanner_.expect(",");
      s.results.push_back(new_value(result.token, result.where, type()));
      code_.values[s.results.back().index].layout = type_layout();
    }
    if (results.empty()) fail_at(s.location, "the result of this statement needs a name");
  }
  void give_types(Statement& s, const std::vector<Result>& results,
                  const std::vector<ValueType>& types) {
    if (results.size() != types.size() && !results.empty())
      fail_at(s.location,
              fmt::format("{} names are given for {} results", results.size(), types.size()));
    for (size_t i = 0; i < results.size(); ++i)
      s.results.push_back(new_value(results[i].token, results[i].where, types[i]));
  }

  // The type after this statement's ":". Position symbols need it before the parser gets there.
  ValueType type_ahead() {
    const Scanner here = scanner_;
    int depth = 0;
    for (bool first = true; !scanner_.at_end(); first = false) {
      if (depth == 0 && !first && scanner_.at_line_start()) break;
      if (depth == 0 && scanner_.accept(":")) {
        const ValueType found = type();
        scanner_ = here;
        return found;
      }
      if (scanner_.at("(") || scanner_.at("[")) ++depth;
      if (scanner_.at(")") || scanner_.at("]")) --depth;
      scanner_.next();
    }
    scanner_ = here;
    scanner_.fail_here("this statement needs its type at the end, as in `: f32[64]`");
  }
  // Calls `parse`, in which position symbols are those of `type`.
  template <class F>
  void with_positions(const ValueType& type, F&& parse) {
    positions_ = type;
    parse();
    positions_.reset();
  }

  void let(Statement& s, const std::vector<Result>&) {
    const std::string_view name = new_symbol();
    scanner_.expect("=");
    Expr e = index();
    define(name, let_symbol(name, e));
    s.op = LetOp{std::string(name), std::move(e)};
  }

  void constant(Statement& s, const std::vector<Result>& results) {
    const Literal value = literal();
    result_types(s, results);
    s.op = ConstOp{bits_of(value, code_[s.results[0]].type.dtype)};
  }

  void iota(Statement& s, const std::vector<Result>& results) {
    IndexOp op;
    with_positions(type_ahead(), [&] {
      scanner_.expect("(");
      op.value = index();
      scanner_.expect(")");
    });
    s.op = std::move(op);
    result_types(s, results);
  }

  void test(Statement& s, const std::vector<Result>& results) {
    TestOp op;
    with_positions(type_ahead(), [&] { op.condition = condition(); });
    s.op = std::move(op);
    result_types(s, results);
  }

  Guard guard() {
    Guard out;
    out.clip = code_.pipelined && scanner_.accept("clip");
    if (out.clip || !scanner_.accept("mask")) return out;
    if (scanner_.at("("))
      out.condition = condition();
    else
      out.mask = value();
    return out;
  }
  template <class Access>
  void access_tail(Access& op) {
    if (!is_tile() && scanner_.accept("align")) op.align = scanner_.expect_integer();
    op.cache = cache_hint();
  }
  CacheHint cache_hint() {
    if (!scanner_.accept("cache")) return CacheHint::None;
    if (scanner_.accept("stream")) return CacheHint::Stream;
    scanner_.expect("keep");
    return CacheHint::Keep;
  }

  // "@rank" of a place in another block; the scanner reads "@name" as one token.
  std::optional<Expr> rank() {
    if (is_tile()) return std::nullopt;
    if (scanner_.peek().kind == TokenKind::Symbol) {
      const std::string_view text = scanner_.peek().text;
      int64_t number = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
      const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
      const Expr out = whole ? Expr(number) : lookup(text);
      scanner_.next();
      return out;
    }
    if (!scanner_.accept("@")) return std::nullopt;
    if (scanner_.peek().kind == TokenKind::Value) return value_symbol(code_, value());
    scanner_.expect("(");
    const Expr out = index();
    scanner_.expect(")");
    return out;
  }

  // Integers, or expressions over symbols that count as constants.
  void constants(std::string_view open, std::string_view close, std::vector<int64_t>& numbers,
                 std::vector<Expr>& exprs) {
    scanner_.expect(open);
    bool constant = true;
    if (!scanner_.at(close)) {
      do exprs.push_back(index());
      while (scanner_.accept(","));
    }
    scanner_.expect(close);
    for (const Expr& e : exprs) constant &= e.as_constant().has_value();
    if (!constant) return;
    for (const Expr& e : exprs) numbers.push_back(*e.as_constant());
    exprs.clear();
  }

  void load(Statement& s, const std::vector<Result>& results) {
    LoadOp op;
    with_positions(type_ahead(), [&] {
      op.memory = memory();
      op.rank = rank();
      op.at = indices();
      op.guard = guard();
      if (op.guard && !op.guard.clip) {
        scanner_.expect("fill");
        op.fill = bits_of(literal(), code_[op.memory].dtype);
      }
      access_tail(op);
    });
    s.op = std::move(op);
    result_types(s, results);
  }

  void store(Statement& s, const std::vector<Result>&) {
    StoreOp op;
    const Term stored = term();
    scanner_.expect(",");
    op.memory = memory();
    op.rank = rank();
    op.value = operand(stored, code_[op.memory].dtype);
    with_positions(stored.literal ? ValueType{} : code_[stored.value].type, [&] {
      op.at = indices();
      op.guard = guard();
      access_tail(op);
    });
    s.op = std::move(op);
  }

  // A literal has the dtype of the operands that are not literals, or of the result.
  void row(ElementwiseOp op, Statement& s, const std::vector<Result>& results) {
    std::vector<Term> terms;
    do terms.push_back(term());
    while (scanner_.accept(","));
    if (terms.size() != info(op).arity)
      fail_at(s.location, fmt::format("{} takes {} operands, but {} are given", name(op),
                                      info(op).arity, terms.size()));
    result_types(s, results);
    const size_t first = op == ElementwiseOp::select ? 1 : 0;
    std::optional<DType> fixed;
    for (size_t i = first; i < terms.size(); ++i)
      if (!terms[i].literal) fixed = code_[terms[i].value].type.dtype;
    if (!fixed && info(op).result == ResultRule::Same) fixed = code_[s.results[0]].type.dtype;
    RowOp made{op, {}};
    for (size_t i = 0; i < terms.size(); ++i) {
      if (terms[i].literal && i >= first && !fixed)
        fail_at(
            terms[i].literal->where,
            "nothing gives this literal a dtype; write the value as a `const` with a type first");
      made.operands.push_back(
          operand(terms[i], i < first ? DType::Bool : fixed.value_or(DType::F32)));
    }
    s.op = std::move(made);
  }

  std::vector<int64_t> axes() {
    scanner_.expect("axes");
    return integers("(", ")");
  }

  void reduce(Statement& s, const std::vector<Result>& results) {
    if (scanner_.at("argmin") || scanner_.at("argmax")) {
      if (!is_tile())
        scanner_.fail_here(
            "kernels have no argmin and argmax; write them as comparisons and selects");
      ArgFoldOp op;
      op.is_max = scanner_.next().text == "argmax";
      op.values = plain_operand();
      scanner_.expect(",");
      op.indices = plain_operand();
      op.axes = axes();
      s.op = std::move(op);
    } else {
      FoldOp op;
      op.monoid = monoid();
      op.operand = plain_operand();
      op.lanes = !is_tile() && scanner_.accept("lanes");
      op.cluster = code_.pipelined && scanner_.accept("cluster");
      if (!op.lanes && !op.cluster) op.axes = axes();
      s.op = std::move(op);
    }
    result_types(s, results);
  }
  Monoid monoid() {
    const auto found = parse_monoid(scanner_.peek().text);
    if (!found) scanner_.fail_here("expected sum, prod, min, max, and or or");
    scanner_.next();
    return *found;
  }

  void scan(Statement& s, const std::vector<Result>& results) {
    TileScanOp op;
    op.combiner = parse_combiner(scanner_);
    do op.operands.push_back(plain_operand());
    while (scanner_.accept(","));
    const SourceLocation where = scanner_.location();
    const std::vector<int64_t> along = axes();
    if (along.size() != 1) fail_at(where, "a scan runs along one axis");
    op.axis = along[0];
    op.reverse = scanner_.accept("reverse");
    op.exclusive = scanner_.accept("exclusive");
    op.totals = scanner_.accept("totals");
    s.op = std::move(op);
    result_types(s, results);
  }

  void dot(Statement& s, const std::vector<Result>& results) {
    TileDotOp op;
    const auto side = [&](ValueOperand& operand, MemoryId& buffer) {
      const auto found = visible_.find(scanner_.peek().text);
      const bool is_memory = scanner_.peek().kind == TokenKind::Value && found != visible_.end() &&
                             std::holds_alternative<MemoryId>(found->second);
      if (is_memory)
        buffer = memory();
      else
        operand = plain_operand();
      scanner_.expect(",");
    };
    side(op.a, op.a_buffer);
    side(op.b, op.b_buffer);
    op.c = plain_operand();
    contract(op);
    s.op = std::move(op);
    result_types(s, results);
  }
  template <class Dot>
  void contract(Dot& op) {
    if (scanner_.accept("contract")) {
      const SourceLocation where = scanner_.location();
      const std::vector<int64_t> pair = integers("(", ")");
      if (pair.size() != 2) fail_at(where, "contract takes two axes, one of each operand");
      op.contract_a = pair[0];
      op.contract_b = pair[1];
    }
    op.tf32 = scanner_.accept("tf32");
  }

  template <ViewKind kKind>
  void view(Statement& s, const std::vector<Result>& results) {
    ViewOp op{kKind, plain_operand(), {}};
    if (kKind == ViewKind::Transpose) scanner_.expect("perm");
    if (kKind == ViewKind::Transpose) op.arguments = integers("(", ")");
    if (kKind == ViewKind::Slice) constants("(", ")", op.arguments, op.offsets);
    s.op = std::move(op);
    result_types(s, results);
  }

  void buffer(Statement& s, const std::vector<Result>& results) {
    if (results.size() != 1) fail_at(s.location, "the buffer needs one name");
    Memory memory{.name = std::string(results[0].token.text),
                  .space = MemorySpace::Local,
                  .mode = Mode::InOut};
    if (!is_tile() && scanner_.accept("shared"))
      memory.space = MemorySpace::Shared;
    else if (!is_tile())
      scanner_.expect("local");
    memory.mbarrier = memory.space == MemorySpace::Shared && scanner_.accept("mbarrier");
    memory.dtype = memory.mbarrier ? DType::I64 : dtype();
    for (const int64_t extent : integers("[", "]")) memory.shape.emplace_back(extent);
    swizzle(memory);
    if (!is_tile() && scanner_.accept("align")) memory.align = scanner_.expect_integer();
    if (!is_tile() && scanner_.accept("at")) {
      memory.scratch_offset = scanner_.expect_integer();
      if (memory.scratch_offset < 0) scanner_.fail_here("a place in scratch cannot be negative");
    }
    s.op = BufferOp{add_memory(results[0].token, results[0].where, std::move(memory))};
  }

  // "carry(%inside = %first, ...)"; defines the inside names in the current scope.
  std::vector<std::pair<ValueId, ValueOperand>> carried(std::vector<ValueType>& types) {
    std::vector<std::pair<ValueId, ValueOperand>> out;
    std::vector<Result> names;
    scanner_.expect("(");
    do {
      names.push_back({scanner_.peek(), scanner_.location()});
      scanner_.expect_value();
      scanner_.expect("=");
      const ValueId first = value();
      types.push_back(code_[first].type);
      out.emplace_back(ValueId(), first);
    } while (scanner_.accept(","));
    scanner_.expect(")");
    for (size_t i = 0; i < names.size(); ++i)
      out[i].first = new_value(names[i].token, names[i].where, types[i]);
    return out;
  }

  void for_loop(Statement& s, const std::vector<Result>& results) {
    std::vector<ValueType> types;
    ForOp op;
    {
      const Nested scope(*this);
      const std::string_view name = new_symbol();
      op.symbol = name;
      scanner_.expect(":");
      op.low = index();
      scanner_.expect("..");
      op.high = index();
      if (scanner_.accept("step")) op.step = index();
      op.is_static = (!is_tile() || code_.pipelined) && scanner_.accept("static");
      if (scanner_.accept("unroll")) op.unroll = scanner_.expect_integer();
      define(name, loop_symbol(name, op.low, op.high, op.step));
      if (scanner_.accept("carry")) op.carried = carried(types);
      op.body = region("yield", types);
    }
    s.op = std::move(op);
    give_types(s, results, types);
  }

  void branch(Statement& s, const std::vector<Result>& results) {
    IfOp op;
    if (scanner_.at("("))
      op.condition = condition();
    else
      op.flag = value();
    op.then = region("yield", {});
    std::vector<ValueType> types;
    for (const ValueOperand& yielded : op.then->yields) types.push_back(code_[yielded.value].type);
    if (scanner_.accept("else")) op.otherwise = region("yield", types);
    s.op = std::move(op);
    give_types(s, results, types);
  }

  void while_loop(Statement& s, const std::vector<Result>& results) {
    std::vector<ValueType> types;
    WhileOp op;
    {
      const Nested scope(*this);
      scanner_.expect("carry");
      op.carried = carried(types);
      std::vector<ValueType> given = types;
      given.insert(given.begin(), {DType::Bool, 1, {}});
      op.body = region("continue", given);
    }
    s.op = std::move(op);
    give_types(s, results, types);
  }

  void ticket(Statement& s, const std::vector<Result>& results) {
    TicketOp op;
    op.memory = memory();
    op.at = indices();
    scanner_.expect("of");
    scanner_.expect("(");
    op.count = index();
    scanner_.expect(")");
    s.op = std::move(op);
    give_types(s, results, {{DType::Bool, 1, {}}});
  }

  void await(Statement& s, const std::vector<Result>&) { s.op = AwaitOp{}; }

  void splat(Statement& s, const std::vector<Result>& results) {
    s.op = SplatOp{plain_operand()};
    result_types(s, results);
  }
  void extract(Statement& s, const std::vector<Result>& results) {
    LaneOp op;
    op.operand = plain_operand();
    scanner_.expect("lane");
    op.lane = scanner_.expect_integer();
    s.op = std::move(op);
    result_types(s, results);
  }
  void insert(Statement& s, const std::vector<Result>& results) {
    LaneOp op;
    op.insert = true;
    op.operand = plain_operand();
    scanner_.expect(",");
    const Term element = term();
    op.element = operand(element, code_[op.operand.value].type.dtype);
    scanner_.expect("lane");
    op.lane = scanner_.expect_integer();
    s.op = std::move(op);
    result_types(s, results);
  }
  void shuffle(Statement& s, const std::vector<Result>& results) {
    ShuffleOp op;
    op.a = plain_operand();
    scanner_.expect(",");
    op.b = plain_operand();
    op.lanes = integers("(", ")");
    s.op = std::move(op);
    result_types(s, results);
  }
  void get(Statement& s, const std::vector<Result>& results) {
    GetOp op;
    op.operand = plain_operand();
    constants("[", "]", op.at, op.positions);
    s.op = std::move(op);
    result_types(s, results);
  }
  void pack(Statement& s, const std::vector<Result>& results) {
    std::vector<Term> terms;
    do terms.push_back(term());
    while (scanner_.accept(","));
    result_types(s, results);
    PackOp op;
    for (const Term& t : terms) op.operands.push_back(operand(t, code_[s.results[0]].type.dtype));
    s.op = std::move(op);
  }
  void atomic(Statement& s, const std::vector<Result>& results) {
    AtomicOp op;
    op.is_max = scanner_.accept("max");
    if (!op.is_max) scanner_.expect("add");
    op.memory = memory();
    scanner_.expect("[");
    op.at = index();
    scanner_.expect("]");
    scanner_.expect(",");
    op.value = operand(term(), code_[op.memory].dtype);
    scanner_.expect("order");
    op.acquire_release = scanner_.accept("acq_rel");
    if (!op.acquire_release) scanner_.expect("relaxed");
    s.op = std::move(op);
    result_types(s, results);
  }

  // --- Kernels for a GPU

  void role(Statement& s, const std::vector<Result>&) {
    RoleOp op;
    op.name = scanner_.expect_identifier("the name of a role");
    scanner_.expect("warps");
    op.begin = scanner_.expect_integer();
    scanner_.expect("..");
    op.end = scanner_.expect_integer();
    if (op.begin < 0 || op.end <= op.begin || op.end > kMaxBlock / 32)
      fail_at(s.location, fmt::format("the warps of a role are a range FIRST..END, within 0..{}",
                                      kMaxBlock / 32));
    if (scanner_.accept("registers")) op.registers = scanner_.expect_integer();
    const Nested scope(*this);
    if (symbols_.contains("rtid")) fail_at(s.location, "a role cannot stand inside another role");
    define("rtid", role_thread_symbol(op.end - op.begin));
    op.body = region("", {});
    s.op = std::move(op);
  }
  void undefined(Statement& s, const std::vector<Result>& results) {
    s.op = UndefOp{};
    result_types(s, results);
  }
  void regroup(Statement& s, const std::vector<Result>& results) {
    s.op = RegroupOp{plain_operand()};
    result_types(s, results);
  }

  // Reads the operands as the letters of the row say. The last letter may repeat if it is 'V'.
  void instruction(const NamedInstruction& named, Statement& s,
                   const std::vector<Result>& results) {
    InstructionOp op{named.instruction, {}, named.columns};
    const std::string_view letters = info(named.instruction).operands;
    for (size_t i = 0; i < letters.size(); ++i) {
      if (i > 0) scanner_.expect(",");
      op.operands.push_back(instruction_operand(letters[i]));
      while (letters[i] == 'V' && scanner_.accept(","))
        op.operands.push_back(instruction_operand('V'));
    }
    s.op = std::move(op);
    if (info(named.instruction).result != InstructionResult::None) result_types(s, results);
  }
  InstructionOperand instruction_operand(char letter) {
    switch (letter) {
      case 'i':
      case '#':
        return index();
      case 'v':
      case 'V':
        return plain_operand();
      case 't':
      case 'T': {
        MapPlace out{named<TensorMapId>("a tensor map")};
        if (letter == 't') out.at = indices();
        return out;
      }
      case 'M':
        if (const auto found = visible_.find(scanner_.peek().text);
            found != visible_.end() && std::holds_alternative<ValueId>(found->second))
          return plain_operand();
        return place(true);
      default:
        return place(letter == 'B');
    }
  }
  Place place(bool matrix) {
    Place out{memory(), {}};
    out.rank = rank();
    scanner_.expect("[");
    out.at = index();
    scanner_.expect("]");
    if (matrix) out.matrix = matrix_layout();
    return out;
  }
  MatrixLayout matrix_layout() {
    MatrixLayout out;
    out.k_major = scanner_.accept("k");
    if (!out.k_major) scanner_.expect("mn");
    scanner_.expect("lbo");
    out.leading = scanner_.expect_integer();
    scanner_.expect("sbo");
    out.stride = scanner_.expect_integer();
    scanner_.expect("swizzle");
    out.swizzle = scanner_.expect_integer();
    return out;
  }

  // --- Pipelined programs

  void swizzle(Memory& memory) {
    if (!code_.pipelined || !scanner_.accept("swizzle")) return;
    const SourceLocation where = scanner_.location();
    memory.swizzle = scanner_.expect_integer();
    if (memory.swizzle != 32 && memory.swizzle != 64 && memory.swizzle != 128)
      fail_at(where, "the swizzle must be 32, 64 or 128 bytes");
  }
  /// Reads the number of operations that may still be under way.
  int64_t in_flight() {
    const SourceLocation where = scanner_.location();
    const int64_t count = scanner_.expect_integer();
    if (count < 0)
      fail_at(where, "the number of operations that may stay in flight cannot be negative");
    return count;
  }
  int64_t few(std::string_view what) {
    const SourceLocation where = scanner_.location();
    const int64_t count = scanner_.expect_integer();
    if (count < 1 || count > kMostCopies)
      fail_at(where, fmt::format("the {} must be from 1 to {}", what, kMostCopies));
    return count;
  }

  void channel(Statement& s, const std::vector<Result>&) {
    const Token token = scanner_.peek();
    const SourceLocation where = scanner_.location();
    Channel out{std::string(scanner_.expect_value())};
    scanner_.expect("depth");
    out.depth = few("depth of a channel");
    scanner_.expect("from");
    out.producer = scanner_.expect_identifier("the name of a role");
    scanner_.expect("to");
    out.receiver = scanner_.expect_identifier("the name of a role");
    if (scanner_.accept("only")) {
      const Nested scope(*this);
      if (symbols_.contains("item")) fail_at(where, "the symbol item is already defined");
      define("item", item_symbol());
      scanner_.expect("(");
      out.only = index();
      scanner_.expect(")");
    }
    const ChannelId id(code_.channels.size());
    define(token, where, id);
    scanner_.expect("{");
    while (!scanner_.accept("}")) out.fields.push_back(field(token.text));
    code_.channels.push_back(std::move(out));
    s.op = ChannelOp{id};
  }
  MemoryId field(std::string_view channel) {
    const SourceLocation where = scanner_.location();
    const std::string_view name = scanner_.expect_identifier("a field");
    Token token = scanner_.peek();
    token.text = field_names_.emplace_back(fmt::format("{}.{}", channel, name));
    scanner_.expect(":");
    Memory memory{.name = std::string(token.text), .space = MemorySpace::Field, .mode = Mode::In};
    memory.dtype = dtype();
    for (const int64_t extent : integers("[", "]")) memory.shape.emplace_back(extent);
    swizzle(memory);
    return add_memory(token, where, std::move(memory));
  }

  void token(Statement& s, const std::vector<Result>&) {
    const Token token = scanner_.peek();
    const SourceLocation where = scanner_.location();
    TurnToken out{std::string(scanner_.expect_value())};
    scanner_.expect("[");
    out.count = few("number of a token's elements");
    scanner_.expect("]");
    scanner_.expect("among");
    out.among = scanner_.expect_identifier("the name of a role");
    scanner_.expect("first");
    out.first = scanner_.expect_integer();
    const TokenId id(code_.tokens.size());
    define(token, where, id);
    code_.tokens.push_back(std::move(out));
    s.op = TurnsOp{id};
  }

  void copies(Statement& s, const std::vector<Result>&) {
    CopiesOp op;
    op.name = scanner_.expect_identifier("the name of a role");
    const Nested scope(*this);
    if (scanner_.accept("(")) {
      const std::string_view symbol = new_symbol();
      op.symbol = symbol;
      scanner_.expect(":");
      op.copies = few("number of a role's copies");
      define(symbol, grid_symbol(symbol, op.copies));
      scanner_.expect(")");
    }
    scanner_.expect("warps");
    op.warps = few("number of a copy's warps");
    if (scanner_.accept("registers")) op.registers = scanner_.expect_integer();
    op.body = region("", {});
    s.op = std::move(op);
  }

  // The type of the memory of which a window shows a part. It fails for parameters, whose extents
  // are not constant.
  ValueType constant_type(MemoryId id) const {
    const MemorySpace space = code_[id].space;
    if (space != MemorySpace::Field && space != MemorySpace::Window && space != MemorySpace::Local)
      scanner_.fail_here(fmt::format("%{} is not on-chip memory", code_[id].name));
    return memory_type(code_[id]);
  }

  ChannelId channel() { return named<ChannelId>("a channel"); }
  Expr item_of() {
    scanner_.expect("[");
    Expr out = index();
    scanner_.expect("]");
    return out;
  }
  void put(Statement& s, const std::vector<Result>&) {
    PutOp op{channel(), item_of()};
    op.body = region("", {});
    s.op = std::move(op);
  }
  template <class Op>
  void item(Statement& s, const std::vector<Result>&) {
    Op op{channel(), {}};
    op.item = item_of();
    s.op = std::move(op);
  }
  template <class Op>
  void turn(Statement& s, const std::vector<Result>&) {
    Op op{named<TokenId>("a token"), {}, {}};
    const SourceLocation where = scanner_.location();
    const std::vector<Expr> at = indices();
    if (at.size() != 2) fail_at(where, "a turn is written [element, item]");
    op.element = at[0];
    op.item = at[1];
    s.op = std::move(op);
  }

  // The position symbols before the comma depend on the field after it, which is therefore read
  // first.
  void copy(Statement& s, const std::vector<Result>&) {
    CopyOp op;
    const Scanner here = scanner_;
    for (int depth = 0; depth > 0 || !scanner_.at(",");) {
      if (scanner_.at_end()) scanner_.fail_here("a copy must end with \", %channel.field\"");
      if (scanner_.at("(") || scanner_.at("[")) ++depth;
      if (scanner_.at(")") || scanner_.at("]")) --depth;
      scanner_.next();
    }
    scanner_.expect(",");
    op.field = memory();
    scanner_ = here;
    with_positions(constant_type(op.field), [&] {
      op.memory = memory();
      op.at = indices();
      op.guard = guard();
      op.cache = cache_hint();
    });
    scanner_.expect(",");
    memory();
    s.op = std::move(op);
  }

  void window(Statement& s, const std::vector<Result>& results) {
    if (results.size() != 1) fail_at(s.location, "the view needs one name");
    WindowOp op;
    op.source = memory();
    if (scanner_.at("[")) op.item = item_of();
    scanner_.expect("(");
    do op.offsets.push_back(index());
    while (scanner_.accept(","));
    scanner_.expect(")");
    scanner_.expect(":");
    Memory memory{.name = std::string(results[0].token.text),
                  .space = MemorySpace::Window,
                  .mode = Mode::InOut};
    const ValueType window = type();
    memory.dtype = window.dtype;
    for (const int64_t extent : window.extents) memory.shape.emplace_back(extent);
    op.window = add_memory(results[0].token, results[0].where, std::move(memory));
    s.op = std::move(op);
  }

  void start_dot(Statement& s, const std::vector<Result>& results) {
    StartDotOp op;
    const auto found = visible_.find(scanner_.peek().text);
    if (found != visible_.end() && std::holds_alternative<MemoryId>(found->second))
      op.a_window = memory();
    else
      op.a = plain_operand();
    scanner_.expect(",");
    op.b_window = memory();
    scanner_.expect(",");
    op.c = plain_operand();
    contract(op);
    op.fresh = scanner_.accept("fresh");
    if (op.fresh && scanner_.at("(")) op.fresh_when = condition();
    const ValueType type = code_[op.c.value].type;
    s.op = std::move(op);
    give_types(s, results, {type});
  }
  void wait_dot(Statement& s, const std::vector<Result>& results) {
    WaitDotOp op{in_flight()};
    std::vector<ValueType> types;
    while (scanner_.accept(",")) {
      op.operands.push_back(plain_operand());
      types.push_back(code_[op.operands.back().value].type);
    }
    s.op = std::move(op);
    give_types(s, results, types);
  }
  void start_store(Statement& s, const std::vector<Result>&) {
    StartStoreOp op;
    op.window = memory();
    scanner_.expect(",");
    with_positions(constant_type(op.window), [&] {
      op.memory = memory();
      op.at = indices();
      op.guard = guard();
    });
    s.op = std::move(op);
  }
  void wait_store(Statement& s, const std::vector<Result>&) { s.op = WaitStoreOp{in_flight()}; }
  void relayout(Statement& s, const std::vector<Result>& results) {
    s.op = RelayoutOp{plain_operand()};
    result_types(s, results);
  }

  Scanner scanner_;
  const Language language_;
  KernelCode& code_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string_view, Expr> symbols_;   // visible here
  std::unordered_map<std::string_view, Named> visible_;  // %names
  std::unordered_set<std::string_view> known_;           // all %names of the kernel
  std::optional<ValueType> positions_;                   // the type of position symbols
  std::deque<std::string> field_names_;  // "channel.field", which no text contains as one token
};

template <class Code>
Code parse(std::string_view text, std::string_view file_name, Language language) {
  Code code;
  CodeParser(text, file_name, language, code).parse();
  return code;
}

}  // namespace

Layout parse_layout(Scanner& scanner) {
  Layout out;
  scanner.expect("(");
  do {
    std::vector<Digit>& axis = out.axes.emplace_back();
    if (scanner.accept("-")) continue;
    while (scanner.peek().kind == TokenKind::Identifier) axis.push_back(digit(scanner));
  } while (scanner.accept("|"));
  scanner.expect(")");
  if (out.rank() > kMostAxesOfValue) scanner.fail_here("the layout has too many axes");
  return out;
}

TileProgram parse_tile(std::string_view text, std::string_view file_name) {
  return parse<TileProgram>(text, file_name, Language::Tile);
}
Kernel parse_kernel(std::string_view text, std::string_view file_name) {
  return parse<Kernel>(text, file_name, Language::Kernel);
}

}  // namespace braze
