// parse.cpp — parses text to structured code: the statements by the parts of their rows in
// statements.def.
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

#include "ir/code/comparisons.h"
#include "ir/code/layout_text.h"
#include "ir/code/limits.h"
#include "ir/code/statements.h"
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
    IndexComparison out;
    out.left = index();
    const auto* sign =
        std::ranges::find_if(kComparisonSigns, [&](std::string_view s) { return scanner_.at(s); });
    if (sign == std::end(kComparisonSigns))
      scanner_.fail_here("expected a comparison such as < or ==");
    scanner_.next();
    out.kind = static_cast<IndexComparison::Kind>(sign - std::begin(kComparisonSigns));
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

  void members() {
    code_.members = scanner_.expect_integer();
    if (!scanner_.accept("sizes")) return;
    do {
      std::vector<int64_t>& sizes = code_.member_sizes.emplace_back();
      scanner_.expect("[");
      do sizes.push_back(scanner_.expect_integer());
      while (scanner_.accept(","));
      scanner_.expect("]");
    } while (scanner_.accept(","));
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
        members();
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
      scanner_.expect("grid");
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

  // --- Statements -------------------------------------------------------------------------------

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
    Reader in(*this, made, results);
    if (const auto row = parse_elementwise(word)) {
      made.op = RowOp{*row, {}};
      in.read<RowOp>();
    } else if (const Keyword* const found = find_keyword(word)) {
      in.read(*found);
    } else if (const auto special = is_tile() ? std::nullopt : parse_instruction(word)) {
      made.op = InstructionOp{special->instruction, {}, special->columns};
      in.read<InstructionOp>();
    } else {
      fail_at(where, fmt::format("{} is not a statement", quote(word.substr(0, 40))));
    }
    if (made.results.size() != results.size() && info(made).results != ResultTypes::Names)
      fail_at(made.location, fmt::format("{} has {} results, but {} names are given", word,
                                         made.results.size(), results.size()));
    out.statements.push_back(std::move(made));
  }

  class Reader;
  // A keyword of a row of statements.def.
  struct Keyword {
    std::string_view word, second;  // "reduce", "argmax"
    size_t which = 0;               // of the row's alternatives
    uint8_t levels = 0;
    void (*read)(Reader&) = nullptr;
  };
  template <class Op>
  static void add_keywords(std::vector<Keyword>& out) {
    std::string_view rest = kInfoOf<Op>.keywords;
    for (size_t which = 0; !rest.empty(); ++which) {
      const std::string_view text = rest.substr(0, rest.find('|'));
      rest.remove_prefix(std::min(text.size() + 1, rest.size()));
      const size_t space = std::min(text.find(' '), text.size());
      out.push_back({text.substr(0, space), text.substr(std::min(space + 1, text.size())), which,
                     kInfoOf<Op>.levels, [](Reader& in) { in.begin<Op>(); }});
    }
  }
  const Keyword* find_keyword(std::string_view word) {
    static const std::vector<Keyword> keywords = []<class... Op>(std::variant<Op...>*) {
      std::vector<Keyword> out;
      (add_keywords<Op>(out), ...);
      std::ranges::stable_partition(out, [](const Keyword& k) { return !k.second.empty(); });
      return out;
    }(static_cast<StatementOp*>(nullptr));
    for (const Keyword& keyword : keywords)
      if (keyword.word == word && (keyword.levels & level()) &&
          (keyword.second.empty() || scanner_.accept(keyword.second)))
        return &keyword;
    return nullptr;
  }
  // What is known about the program: kernels do not say whether they are for a CPU or a GPU.
  int level() const {
    if (!is_tile()) return Level::Kernel;
    return code_.pipelined ? Level::Pipelined : Level::PlainTile;
  }

  // Reads one statement: the parts of its row in statements.def, and the types of its results.
  class Reader {
   public:
    Reader(CodeParser& parser, Statement& s, const std::vector<Result>& results)
        : parser_(parser), scanner_(parser.scanner_), code_(parser.code_), s_(s), names_(results) {}

    void read(const Keyword& keyword) {
      which_ = keyword.which;
      keyword.read(*this);
    }
    template <class Op>
    void begin() {
      s_.op.emplace<Op>();
      read<Op>();
    }
    template <class Op>
    void read() {
      visit_parts(*s_.as<Op>(), *this);
      parser_.positions_.reset();
      scope_.reset();
      if (const auto* let = s_.as<LetOp>())
        parser_.define(symbol_, let_symbol(symbol_, let->value));
      if (has_written_types()) parser_.result_types(s_, names_);
      if (kInfoOf<Op>.results == ResultTypes::Known) parser_.give_types(s_, names_, known_types());
      set_literals();
    }

    void operator()(auto&&... parts) { (part(parts), ...); }

    int level() const { return parser_.level(); }
    bool at(std::string_view text) const { return scanner_.at(text); }
    bool at_memory() const { return parser_.at_memory(); }
    bool accept(std::string_view text) {
      return scanner_.accept(text.substr(std::min(text.find_first_not_of(' '), text.size())));
    }
    size_t keyword() const { return which_; }
    std::string role_name() {
      return std::string(scanner_.expect_identifier("the name of a role"));
    }
    int64_t few(std::string_view what) { return parser_.few(what); }
    int64_t in_flight() { return parser_.in_flight(); }

    template <class At, class Rank>
    void access(MemoryId& memory, At& at, Rank& rank) {
      memory = parser_.memory();
      if constexpr (std::is_same_v<Rank, std::optional<Expr>>) rank = parser_.rank();
      if constexpr (std::is_same_v<At, Expr>) (*this)("[", at, "]");
      if constexpr (std::is_same_v<At, std::vector<Expr>>) (*this)(at);
    }

    // Literals wait for their dtypes until all of the statement is read.
    void literal_or_value(uint64_t& bits, const parts::TheResult&) {
      literal_ = parser_.literal();
      bits_ = &bits;
    }
    void literal_or_value(uint64_t& bits, const MemoryId& memory) {
      bits = bits_of(parser_.literal(), code_[memory].dtype);
    }
    void literal_or_value(ValueOperand& operand, const ValueOperand& like) {
      operand = parser_.operand(parser_.term(), code_[like.value].type.dtype);
    }
    void literal_or_value(ValueOperand& operand, const MemoryId& memory) {
      const Term term = parser_.term();
      operand = term.value;
      literal_ = term.literal;
      operand_ = &operand;
      memory_ = &memory;
    }
    void literal_or_value(std::vector<ValueOperand>& operands, const auto&) {
      do operands.emplace_back(terms_.emplace_back(parser_.term()).value);
      while (scanner_.accept(","));
      const auto* row = s_.as<RowOp>();
      if (row && operands.size() != braze::info(row->op).arity)
        fail_at(s_.location, fmt::format("{} takes {} operands, but {} are given", name(row->op),
                                         braze::info(row->op).arity, operands.size()));
    }

    void positions(const parts::TheResult&) { parser_.positions_ = parser_.type_ahead(); }
    void positions(const ValueOperand& value) {
      parser_.positions_ = value.is_literal() ? ValueType{} : code_[value.value].type;
    }
    void positions(const MemoryId& memory) {
      parser_.positions_ = parser_.constant_type(memory ? memory : memory_ahead());
    }

    // Integers, or expressions over symbols that count as constants.
    void constants(std::vector<int64_t>& numbers, std::vector<Expr>& exprs) {
      if (at("]") || at(")")) return;
      do exprs.push_back(parser_.index());
      while (accept(","));
      for (const Expr& e : exprs)
        if (!e.as_constant()) return;
      for (const Expr& e : exprs) numbers.push_back(*e.as_constant());
      exprs.clear();
    }
    int64_t one_axis() {
      const SourceLocation where = scanner_.location();
      const std::vector<int64_t> axes = parser_.integers("(", ")");
      if (axes.size() != 1) fail_at(where, "a scan runs along one axis");
      return axes[0];
    }
    void two_axes(int64_t& a, int64_t& b) {
      const SourceLocation where = scanner_.location();
      const std::vector<int64_t> axes = parser_.integers("(", ")");
      if (axes.size() != 2) fail_at(where, "contract takes two axes, one of each operand");
      a = axes[0];
      b = axes[1];
    }

    void new_symbol(std::string& name) { name = symbol_ = parser_.new_symbol(); }
    void carry(std::vector<std::pair<ValueId, ValueOperand>>& list) {
      open();
      if (accept("carry")) list = parser_.carried();
    }
    Region body(std::string_view ending) {
      open();
      return parser_.region(ending, known_types());
    }

    void declaration(MemoryId& id) {
      const bool is_buffer = s_.as<BufferOp>(), is_alloc = is_buffer && which_ == 1;
      if (is_buffer && is_alloc == parser_.is_tile())
        fail_at(s_.location, is_alloc ? "a tile program writes `buffer` instead of `alloc`"
                                      : "a kernel writes `alloc` instead of `buffer`");
      if (names_.size() != 1)
        fail_at(s_.location, fmt::format("the {} needs one name", is_buffer ? "buffer" : "view"));
      Memory memory{.name = std::string(names_[0].token.text),
                    .space = is_buffer ? MemorySpace::Local : MemorySpace::Window,
                    .mode = Mode::InOut};
      if (is_buffer)
        parser_.buffer(memory);
      else
        parser_.window(memory);
      id = parser_.add_memory(names_[0].token, names_[0].where, std::move(memory));
    }
    void declaration(ChannelId& id) { id = parser_.channel(); }
    void declaration(TokenId& id) { id = parser_.token(); }

   private:
    template <class Part>
    requires requires(Part& part, Reader& in) { part.read(in); }
    void part(Part& part) { part.read(*this); }
    // Skips the words and punctuation of a text.
    void part(std::string_view text) {
      while (true) {
        text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
        if (text.empty()) return;
        size_t size = text.starts_with("..") ? 2 : 1;
        if (text[0] >= 'a' && text[0] <= 'z')
          size = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), text.size());
        scanner_.expect(text.substr(0, size));
        text.remove_prefix(size);
      }
    }
    void part(int64_t& number) { number = scanner_.expect_integer(); }
    void part(std::vector<int64_t>& numbers) { numbers = parser_.integers("(", ")"); }
    void part(Monoid& monoid) { monoid = parser_.monoid(); }
    void part(Combiner& combiner) { combiner = parse_combiner(scanner_); }
    void part(ValueOperand& operand) { operand = parser_.value(); }
    void part(std::vector<ValueOperand>& operands) {
      do operands.emplace_back(parser_.value());
      while (scanner_.accept(","));
    }
    void part(ValueId& value) { value = parser_.value(); }
    void part(Expr& index) { index = parser_.index(); }
    void part(std::vector<Expr>& at) { at = parser_.indices(); }
    void part(Condition& condition) { condition = parser_.condition(); }
    void part(Guard& guard) { guard = parser_.guard(); }
    void part(CacheHint& hint) { hint = parser_.cache_hint(); }
    void part(ChannelId& id) { id = parser_.named<ChannelId>("a channel"); }
    void part(TokenId& id) { id = parser_.named<TokenId>("a token"); }
    // Reads the operands as the letters of the row say. The last letter may repeat if it is 'V'.
    void part(std::vector<InstructionOperand>& operands) {
      const std::string_view letters = braze::info(s_.as<InstructionOp>()->instruction).operands;
      for (size_t i = 0; i < letters.size(); ++i) {
        if (i > 0) scanner_.expect(",");
        do operands.push_back(parser_.instruction_operand(letters[i]));
        while (letters[i] == 'V' && accept(","));
      }
    }

    // The memory object after the next comma outside of brackets.
    MemoryId memory_ahead() {
      const Scanner here = scanner_;
      for (int depth = 0; depth > 0 || !at(",");) {
        if (scanner_.at_end()) scanner_.fail_here("a copy must end with \", %channel.field\"");
        if (at("(") || at("[")) ++depth;
        if (at(")") || at("]")) --depth;
        scanner_.next();
      }
      scanner_.expect(",");
      const MemoryId found = parser_.memory();
      scanner_ = here;
      return found;
    }

    // Begins the scope of the symbols and carried values that the body sees.
    void open() {
      if (scope_) return;
      if (const auto* loop = s_.as<ForOp>()) {
        scope_.emplace(parser_);
        parser_.define(symbol_, loop_symbol(symbol_, loop->low, loop->high, loop->step));
      } else if (const auto* tile = s_.as<TileRoleOp>()) {
        scope_.emplace(parser_);
        if (!tile->symbol.empty()) parser_.define(symbol_, grid_symbol(symbol_, tile->copies));
      } else if (const auto* role = s_.as<RoleOp>()) {
        constexpr int64_t kWarps = kMaxBlock / 32;
        if (role->begin < 0 || role->end <= role->begin || role->end > kWarps)
          fail_at(s_.location,
                  fmt::format("the warps of a role are a range FIRST..END, within 0..{}", kWarps));
        if (parser_.symbols_.contains("rtid"))
          fail_at(s_.location, "a role cannot stand inside another role");
        scope_.emplace(parser_);
        parser_.define("rtid", role_thread_symbol(role->end - role->begin));
      }
    }

    // The types of results that follow from the operands, and of the values that leave the body.
    std::vector<ValueType> known_types() const {
      std::vector<ValueType> out;
      const auto add = [&](const ValueOperand& operand) {
        out.push_back(code_[operand.value].type);
      };
      if (s_.as<TicketOp>()) out.push_back({DType::Bool, 1, {}});
      if (const auto* dot = s_.as<StartDotOp>()) add(dot->c);
      if (const auto* wait = s_.as<WaitDotOp>()) std::ranges::for_each(wait->operands, add);
      if (const auto* branch = s_.as<IfOp>(); branch && branch->then)
        std::ranges::for_each(branch->then->yields, add);
      if (const auto* loop = s_.as<ForOp>())
        for (const auto& [inside, first] : loop->carried) add(inside);
      return out;
    }
    bool has_written_types() const {
      const auto* special = s_.as<InstructionOp>();
      if (special && braze::info(special->instruction).result == InstructionResult::None)
        return false;
      return braze::info(s_).results == ResultTypes::Written;
    }

    void set_literals() {
      if (bits_) *bits_ = bits_of(*literal_, code_[s_.results[0]].type.dtype);
      if (operand_ && literal_) *operand_ = parser_.operand({{}, literal_}, code_[*memory_].dtype);
      if (auto* pack = s_.as<PackOp>())
        for (size_t i = 0; i < terms_.size(); ++i)
          pack->operands[i] = parser_.operand(terms_[i], code_[s_.results[0]].type.dtype);
      if (auto* row = s_.as<RowOp>()) set_literals(*row);
    }
    // A literal has the dtype of the operands that are not literals, or of the result.
    void set_literals(RowOp& row) {
      const size_t first = row.op == ElementwiseOp::select ? 1 : 0;
      std::optional<DType> fixed;
      for (size_t i = first; i < terms_.size(); ++i)
        if (!terms_[i].literal) fixed = code_[terms_[i].value].type.dtype;
      if (!fixed && braze::info(row.op).result == ResultRule::Same)
        fixed = code_[s_.results[0]].type.dtype;
      for (size_t i = 0; i < terms_.size(); ++i) {
        if (terms_[i].literal && i >= first && !fixed)
          fail_at(terms_[i].literal->where,
                  "nothing gives this literal a dtype; write the value as a `const` with a type "
                  "first");
        row.operands[i] =
            parser_.operand(terms_[i], i < first ? DType::Bool : fixed.value_or(DType::F32));
      }
    }

    CodeParser& parser_;
    Scanner& scanner_;
    KernelCode& code_;
    Statement& s_;
    const std::vector<Result>& names_;
    size_t which_ = 0;         // of the row's keywords
    std::string_view symbol_;  // that the statement defines
    std::optional<Nested> scope_;
    std::vector<Term> terms_;         // the operands of a row or a pack
    std::optional<Literal> literal_;  // of *bits_ or *operand_
    uint64_t* bits_ = nullptr;
    ValueOperand* operand_ = nullptr;
    const MemoryId* memory_ = nullptr;  // whose dtype *operand_ has
  };

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

  Monoid monoid() {
    if (scanner_.at("argmin") || scanner_.at("argmax"))
      scanner_.fail_here(
          "kernels have no argmin and argmax; write them as comparisons and selects");
    const auto found = parse_monoid(scanner_.peek().text);
    if (!found) scanner_.fail_here("expected sum, prod, min, max, and or or");
    scanner_.next();
    return *found;
  }

  // Whether the next name is that of a memory object.
  bool at_memory() const {
    const auto found = visible_.find(scanner_.peek().text);
    return scanner_.peek().kind == TokenKind::Value && found != visible_.end() &&
           std::holds_alternative<MemoryId>(found->second);
  }

  void buffer(Memory& memory) {
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
  }
  void window(Memory& memory) {
    scanner_.expect(":");
    const ValueType part = type();
    memory.dtype = part.dtype;
    for (const int64_t extent : part.extents) memory.shape.emplace_back(extent);
  }

  // "carry(%inside = %first, ...)"; defines the inside names in the current scope.
  std::vector<std::pair<ValueId, ValueOperand>> carried() {
    std::vector<std::pair<ValueId, ValueOperand>> out;
    std::vector<Result> names;
    scanner_.expect("(");
    do {
      names.push_back({scanner_.peek(), scanner_.location()});
      scanner_.expect_value();
      scanner_.expect("=");
      out.emplace_back(ValueId(), value());
    } while (scanner_.accept(","));
    scanner_.expect(")");
    for (size_t i = 0; i < names.size(); ++i)
      out[i].first = new_value(names[i].token, names[i].where, code_[out[i].second.value].type);
    return out;
  }

  InstructionOperand instruction_operand(char letter) {
    switch (letter) {
      case 'i':
      case '#':
        return index();
      case 'v':
      case 'V':
        return value();
      case 't':
      case 'T': {
        MapPlace out{named<TensorMapId>("a tensor map")};
        if (letter == 't') out.at = indices();
        return out;
      }
      case 'M':
        if (!at_memory()) return value();
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

  ChannelId channel() {
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
    return id;
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

  TokenId token() {
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
    return id;
  }

  // The type of the memory of which a window shows a part. It fails for parameters, whose extents
  // are not constant.
  ValueType constant_type(MemoryId id) const {
    const MemorySpace space = code_[id].space;
    if (space != MemorySpace::Field && space != MemorySpace::Window && space != MemorySpace::Local)
      scanner_.fail_here(fmt::format("%{} is not on-chip memory", code_[id].name));
    return memory_type(code_[id]);
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
