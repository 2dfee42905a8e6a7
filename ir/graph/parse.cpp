#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "ir/graph/build.h"
#include "ir/graph/constant_text.h"
#include "ir/graph/infer.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"

namespace braze {
namespace {

using fmt::format;

// An attribute, written `name: value` in braces. Attributes stand in any order, each at most once.
struct Attribute {
  std::string_view name;
  std::function<void()> read;
  bool optional = false;
};

// The ops that are not elementwise and have nothing to read before their operands.
const std::pair<std::string_view, Op> kOps[] = {
    {"argmax", ArgReduceOp{true, 0}},
    {"argmin", ArgReduceOp{false, 0}},
    {"argsort", ArgSortOp{}},
    {"broadcast", BroadcastOp{}},
    {"reshape", ReshapeOp{}},
    {"transpose", TransposeOp{}},
    {"slice", SliceOp{}},
    {"pad", PadOp{}},
    {"windows", WindowsOp{}},
    {"concat", ConcatOp{}},
    {"reverse", ReverseOp{}},
    {"iota", IotaOp{}},
    {"size", SizeOp{}},
    {"gather", GatherOp{}},
    {"scatter_set", ScatterOp{std::nullopt}},
    {"scatter_add", ScatterOp{Monoid::Sum}},
    {"scatter_mul", ScatterOp{Monoid::Prod}},
    {"scatter_max", ScatterOp{Monoid::Max}},
    {"scatter_min", ScatterOp{Monoid::Min}},
    {"scatter_and", ScatterOp{Monoid::And}},
    {"scatter_or", ScatterOp{Monoid::Or}},
    {"dot", DotOp{}},
    {"random_bits", RandomBitsOp{}},
    {"barrier", BarrierOp{}},
    {"axis_index", AxisIndexOp{}},
    {"constrain", ConstrainOp{}},
    {"custom_call", CustomCallOp{}},
};

class GraphParser {
 public:
  GraphParser(std::string_view text, std::string_view file_name) : scanner_(text, file_name) {}

  Graph parse() {
    expect_header(scanner_, "graph");
    while (scanner_.accept("symbol")) {
      const std::string_view name = scanner_.peek().text;
      if (symbols_.contains(name))
        scanner_.fail_here(format("the symbol {} is declared twice", name));
      declarations_.push_back(scanner_.peek());
      symbols_.emplace(name, parse_symbol(scanner_));
    }
    while (scanner_.accept("mesh")) {
      mesh_.push_back(scanner_.peek());
      if (!mesh_sizes_.emplace(scanner_.peek().text, 0).second)
        scanner_.fail_here(format("the axis {} of the mesh is declared twice", mesh_.back().text));
      mesh_sizes_[mesh_.back().text] = parse_mesh_axis(scanner_).size;
    }
    scanner_.expect("graph");
    graph_ = Graph(std::string(scanner_.expect_symbol()));
    parse_inputs();
    scanner_.expect("{");
    while (scanner_.peek().kind == TokenKind::Value) parse_node();
    parse_outputs();
    scanner_.expect("}");
    if (!scanner_.at_end()) scanner_.fail_here("a file holds one graph, but more text follows it");
    // All that can still be wrong is that outputs do not fit each other.
    std::vector<Diagnostic> findings = verify(graph_);
    for (Diagnostic& finding : findings) finding.location = return_location_;
    fail_if_any(findings, "the graph breaks rules of its language");
    check_declarations();
    check_mesh();
    return std::move(graph_);
  }

 private:
  Expr symbol(std::string_view name) const {
    const auto found = symbols_.find(name);
    if (found == symbols_.end()) scanner_.fail_here(format("the symbol {} is not declared", name));
    return found->second;
  }
  TensorType parse_type() {
    return braze::parse_type(scanner_, [this](std::string_view name) { return symbol(name); });
  }

  // Defines %name as `id`.
  void define(const Token& name, NodeId id) {
    if (!values_.emplace(name.text, id).second)
      fail(codes::kSyntax, format("%{} is defined twice", name.text), {.location = locate(name)});
  }
  NodeId parse_value() {
    const auto found = values_.find(scanner_.peek().text);
    if (scanner_.peek().kind == TokenKind::Value && found == values_.end())
      scanner_.fail_here(format("%{} is not defined before this use", scanner_.peek().text),
                         codes::kUndefinedOperand);
    scanner_.expect_value();
    return found->second;
  }
  SourceLocation locate(const Token& token) const {
    SourceLocation location = scanner_.location();
    location.line = token.line;
    location.column = token.column;
    return location;
  }

  void check_declarations() const {
    const std::vector<Expr> used = graph_.symbols();
    for (const Token& declaration : declarations_) {
      const auto is_this = [&](const Expr& symbol) {
        return symbol.symbol_name() == declaration.text;
      };
      if (std::none_of(used.begin(), used.end(), is_this))
        fail(codes::kSyntax, format("the symbol {} is not used", declaration.text),
             {.location = locate(declaration), .fix = "remove its declaration"});
    }
  }

  void check_mesh() const {
    const std::vector<MeshAxis> used = graph_.mesh_axes();
    for (const Token& declaration : mesh_) {
      if (std::ranges::any_of(used,
                              [&](const MeshAxis& axis) { return axis.name == declaration.text; }))
        continue;
      fail(codes::kSyntax, format("the axis {} of the mesh is not used", declaration.text),
           {.location = locate(declaration), .fix = "remove its declaration"});
    }
  }
  MeshAxis parse_used_axis() {
    const std::string_view name = scanner_.peek().text;
    const auto found = mesh_sizes_.find(name);
    if (found == mesh_sizes_.end())
      scanner_.fail_here(
          format("the axis {} of the mesh is not declared", quote(name.substr(0, 60))));
    scanner_.next();
    return {std::string(name), found->second};
  }
  std::function<void()> sharding(Sharding& sharding) {
    return [&] {
      std::vector<std::string> axes;
      list([&] {
        const std::string_view axis = scanner_.expect_identifier("an axis of a mesh, or none");
        axes.emplace_back(axis == "none" ? std::string_view() : axis);
      });
      sharding = Sharding(std::move(axes));
    };
  }
  std::function<void()> mesh_axis(MeshAxis& axis) {
    return [this, &axis] { axis = parse_used_axis(); };
  }

  static bool is_number(std::string_view name) {
    return name.find_first_not_of("0123456789") == std::string_view::npos;
  }

  void parse_inputs() {
    scanner_.expect("(");
    while (!scanner_.accept(")")) {
      if (!graph_.inputs().empty()) scanner_.expect(",");
      const SourceLocation here = scanner_.location();
      const Token token = scanner_.peek();
      std::string name(scanner_.expect_value());
      if (scanner_.peek().kind == TokenKind::String) name = unquote(scanner_.expect_string());
      scanner_.expect(":");
      TensorType type = parse_type();
      std::vector<MeshAxis> varying;
      if (scanner_.accept("varying")) list([&] { varying.push_back(parse_used_axis()); });
      const SourceLocation where = parse_location().value_or(here);
      define(token,
             build::input(graph_, std::move(name), std::move(type), where, std::move(varying)));
    }
  }

  // %name = op ... : type
  void parse_node() {
    const SourceLocation here = scanner_.location();
    const Token token = scanner_.next();
    scanner_.expect("=");
    const std::string_view name = scanner_.expect_identifier("an op");
    const Scanner literal = scanner_;
    Op op = parse_op(name, here);
    std::vector<NodeId> operands = parse_operands();
    parse_attributes(op);
    scanner_.expect(":");
    const SourceLocation type_location = scanner_.location();
    const TensorType type = parse_type();
    const SourceLocation where = parse_location().value_or(here);
    if (auto* constant = std::get_if<ConstantOp>(&op))
      constant->value = parse_literal(literal, type, here);

    std::vector<const TensorType*> types;
    for (NodeId& operand : operands) {
      // A scalar operand of a map op stands for its broadcast.
      if (std::get_if<MapOp>(&op) && graph_[operand].type.shape.rank() == 0 &&
          type.shape.rank() > 0)
        operand = build::broadcast(graph_, operand, type.shape, {}, where);
    }
    for (const NodeId operand : operands) types.push_back(&graph_[operand].type);
    TensorType inferred = infer_type(op, types, type, here);
    if (inferred != type)
      fail(codes::kWrongType,
           format("the written type is {}, but the result of {} has the type {}", type.to_string(),
                  op_name(op), inferred.to_string()),
           {.location = type_location, .node = std::string(name)});
    std::string label = is_number(token.text) ? "" : std::string(token.text);
    define(token, graph_.add({std::move(op), std::move(operands), std::move(inferred), where,
                              std::move(label)}));
  }

  // Reads the name of an op. Its attributes follow later.
  Op parse_op(std::string_view name, SourceLocation here) {
    if (const auto row = parse_elementwise(name)) return MapOp{*row};
    if (name == "constant") {
      skip_literal();
      return ConstantOp{};
    }
    if (name == "reduce") return ReduceOp{expect_monoid(), {}};
    if (name == "scan") return ScanOp{parse_combiner(scanner_)};
    if (const auto kind = parse_collective(name)) {
      CollectiveOp op{.kind = *kind};
      if (reduces(*kind)) op.monoid = expect_monoid();
      return op;
    }
    for (const auto& [known, op] : kOps)
      if (name == known) return op;
    fail_unknown(name, here);
  }

  Monoid expect_monoid() {
    const SourceLocation at = scanner_.location();
    const std::string_view combine = scanner_.expect_identifier("a monoid");
    const auto monoid = parse_monoid(combine);
    if (!monoid)
      fail(codes::kSyntax,
           format("{} is not a monoid; the monoids are sum, prod, max, min, and, or", combine),
           {.location = at});
    return *monoid;
  }

  [[noreturn]] static void fail_unknown(std::string_view name, SourceLocation here) {
    std::vector<std::string> known = {"constant", "reduce", "scan"};
    for (const ElementwiseInfo& row : elementwise_table())
      if (!row.inner) known.emplace_back(row.name);
    for (const auto& [op, value] : kOps) known.emplace_back(op);
    for (int kind = 0; kind <= static_cast<int>(CollectiveKind::AllToAll); ++kind)
      known.emplace_back(braze::name(static_cast<CollectiveKind>(kind)));
    name = name.substr(0, 60);
    fail(codes::kSyntax, format("there is no op {}{}", quote(name), did_you_mean(name, known)),
         {.location = here});
  }

  std::vector<NodeId> parse_operands() {
    std::vector<NodeId> operands;
    if (scanner_.peek().kind != TokenKind::Value) return operands;
    do operands.push_back(parse_value());
    while (scanner_.accept(","));
    return operands;
  }

  void parse_attributes(Op& op) {
    struct Parse {
      GraphParser& p;
      void operator()(BroadcastOp& op) { p.attributes({{"axes", p.integers(op.axes)}}); }
      void operator()(TransposeOp& op) {
        p.attributes({{"permutation", p.integers(op.permutation)}});
      }
      void operator()(SliceOp& op) {
        p.attributes({{"starts", p.expressions(op.starts)},
                      {"limits", p.expressions(op.limits)},
                      {"strides", p.integers(op.strides)}});
      }
      void operator()(PadOp& op) {
        p.attributes({{"low", p.expressions(op.low)},
                      {"high", p.expressions(op.high)},
                      {"interior", p.integers(op.interior)}});
      }
      void operator()(WindowsOp& op) {
        p.attributes({{"axes", p.integers(op.axes)},
                      {"taps", p.integers(op.taps)},
                      {"strides", p.integers(op.strides)},
                      {"dilations", p.integers(op.dilations)},
                      {"gaps", p.integers(op.gaps)},
                      {"low", p.expressions(op.low)}});
      }
      void operator()(ConcatOp& op) { p.attributes({{"axis", p.integer(op.axis)}}); }
      void operator()(ReverseOp& op) { p.attributes({{"axes", p.integers(op.axes)}}); }
      void operator()(IotaOp& op) { p.attributes({{"axis", p.integer(op.axis)}}); }
      void operator()(SizeOp& op) { p.attributes({{"value", p.expression(op.value)}}); }
      void operator()(GatherOp& op) { p.attributes({{"axis", p.integer(op.axis)}}); }
      void operator()(ScatterOp& op) { p.attributes({{"axis", p.integer(op.axis)}}); }
      void operator()(ReduceOp& op) { p.attributes({{"axes", p.integers(op.axes)}}); }
      void operator()(ArgReduceOp& op) { p.attributes({{"axis", p.integer(op.axis)}}); }
      void operator()(ArgSortOp& op) {
        p.attributes({{"axis", p.integer(op.axis)}, {"descending", p.flag(op.descending), true}});
      }
      void operator()(ScanOp& op) {
        p.attributes({{"axis", p.integer(op.axis)},
                      {"reverse", p.flag(op.reverse), true},
                      {"exclusive", p.flag(op.exclusive), true},
                      {"part", p.integer(op.part), true}});
      }
      void operator()(DotOp& op) {
        p.attributes({{"batch", p.pairs(op.batch_left, op.batch_right), true},
                      {"contract", p.pairs(op.contract_left, op.contract_right)},
                      {"tf32", p.flag(op.tf32), true}});
      }
      void operator()(BarrierOp& op) {
        if (p.scanner_.at("{")) p.attributes({{"recompute", p.flag(op.recompute)}});
      }
      void operator()(CollectiveOp& op) {
        std::vector<Attribute> known = {{"over", p.mesh_axis(op.axis)}};
        if (const std::string_view word = offset_word(op.kind); !word.empty())
          known.push_back({word, p.integer(op.offset)});
        p.attributes(known);
      }
      void operator()(AxisIndexOp& op) { p.attributes({{"over", p.mesh_axis(op.axis)}}); }
      void operator()(ConstrainOp& op) { p.attributes({{"axes", p.sharding(op.sharding)}}); }
      void operator()(CustomCallOp& op) {
        p.attributes({{"target", p.string(op.target)},
                      {"attributes", p.string(op.attributes), true},
                      {"side_effects", p.flag(op.has_side_effects), true}});
      }
      void operator()(InputOp&) {}
      void operator()(ConstantOp&) {}
      void operator()(MapOp&) {}
      void operator()(ReshapeOp&) {}
      void operator()(RandomBitsOp&) {}
    };
    std::visit(Parse{*this}, op);
  }

  void attributes(const std::vector<Attribute>& known) {
    std::vector<bool> seen(known.size());
    scanner_.expect("{");
    while (!scanner_.at("}")) {
      size_t i = 0;
      while (i < known.size() && (seen[i] || !scanner_.at(known[i].name))) ++i;
      if (i == known.size()) fail_attribute(known);
      seen[i] = true;
      scanner_.next();
      scanner_.expect(":");
      known[i].read();
      if (!scanner_.accept(",")) break;
    }
    for (size_t i = 0; i < known.size(); ++i)
      if (!seen[i] && !known[i].optional)
        scanner_.fail_here(format("the attribute {} is missing", known[i].name));
    scanner_.expect("}");
  }

  [[noreturn]] void fail_attribute(const std::vector<Attribute>& known) {
    for (const Attribute& attribute : known)
      if (scanner_.at(attribute.name))
        scanner_.fail_here(format("the attribute {} is given twice", attribute.name));
    const auto name_of = [](const Attribute& attribute) { return std::string(attribute.name); };
    scanner_.fail_here(
        format("the op has no such attribute; its attributes are {}", join(known, ", ", name_of)));
  }

  template <class ReadElement>
  void list(ReadElement&& read_element) {
    scanner_.expect("[");
    if (scanner_.accept("]")) return;
    do read_element();
    while (scanner_.accept(","));
    scanner_.expect("]");
  }
  std::function<void()> integer(int64_t& value) {
    return [this, &value] { value = scanner_.expect_integer(); };
  }
  std::function<void()> flag(bool& value) {
    return [this, &value] {
      value = scanner_.accept("true");
      if (!value) scanner_.expect("false");
    };
  }
  std::function<void()> string(std::string& value) {
    return [this, &value] { value = unquote(scanner_.expect_string()); };
  }
  std::function<void()> integers(std::vector<int64_t>& values) {
    return [this, &values] { list([&] { values.push_back(scanner_.expect_integer()); }); };
  }
  Expr read_expression() {
    return parse_expr(scanner_, [this](std::string_view name) { return symbol(name); });
  }
  std::function<void()> expression(Expr& value) {
    return [this, &value] { value = read_expression(); };
  }
  std::function<void()> expressions(std::vector<Expr>& values) {
    return [this, &values] { list([&] { values.push_back(read_expression()); }); };
  }
  std::function<void()> pairs(std::vector<int64_t>& left, std::vector<int64_t>& right) {
    return [this, &left, &right] {
      integers(left)();
      scanner_.expect("x");
      integers(right)();
    };
  }

  // Skips a literal, which is read later, when the type that follows it is known.
  void skip_literal() {
    while (!scanner_.at_end() && !scanner_.at(":") && !scanner_.at("}")) scanner_.next();
  }
  std::shared_ptr<const HostTensor> parse_literal(Scanner literal, const TensorType& type,
                                                  SourceLocation here) {
    infer_type(InputOp{}, {}, type, here);  // checks the limits of types
    auto value = std::make_shared<const HostTensor>(parse_constant(literal, type));
    literal.expect(":");
    return value;
  }

  // loc("file":line:column). It is optional, and so is the column.
  std::optional<SourceLocation> parse_location() {
    if (!scanner_.accept("loc")) return std::nullopt;
    scanner_.expect("(");
    const std::string file = unquote(scanner_.expect_string());
    scanner_.expect(":");
    const uint32_t line = parse_u32();
    const uint32_t column = scanner_.accept(":") ? parse_u32() : 0;
    scanner_.expect(")");
    return SourceLocation(file, line, column);
  }
  uint32_t parse_u32() {
    const int64_t value = scanner_.expect_integer();
    if (value < 0 || value > UINT32_MAX)
      scanner_.fail_here("the number before this is not a line or column");
    return static_cast<uint32_t>(value);
  }

  void parse_outputs() {
    return_location_ = scanner_.location();
    scanner_.expect("return");
    std::vector<GraphOutput> outputs;
    if (!scanner_.at("}")) {
      do outputs.push_back(parse_output());
      while (scanner_.accept(","));
    }
    graph_.set_outputs(std::move(outputs));
  }
  GraphOutput parse_output() {
    GraphOutput output{parse_value(), "", std::nullopt};
    if (scanner_.accept("as")) output.name = unquote(scanner_.expect_string());
    if (!scanner_.accept("updates")) return output;
    const SourceLocation here = scanner_.location();
    const NodeId updated = parse_value();
    const auto& inputs = graph_.inputs();
    // Inputs are the first nodes, in order.
    if (updated.index >= inputs.size())
      fail(codes::kBadOutput, "an output can update an input only", {.location = here});
    output.updates = updated.index;
    return output;
  }

  Scanner scanner_;
  Graph graph_;
  SourceLocation return_location_;
  std::unordered_map<std::string_view, Expr> symbols_;
  std::vector<Token> declarations_;  // of symbols
  std::vector<Token> mesh_;          // declarations of the mesh's axes
  std::unordered_map<std::string_view, int64_t> mesh_sizes_;
  std::unordered_map<std::string_view, NodeId> values_;
};

}  // namespace

Graph parse_graph(std::string_view text, std::string_view file_name) {
  return GraphParser(text, file_name).parse();
}

Expr parse_symbol(Scanner& scanner) {
  const std::string_view name = scanner.expect_identifier("a symbol");
  scanner.expect(":");
  const int64_t min = scanner.expect_integer();
  scanner.expect("..");
  const int64_t max = scanner.expect_integer();
  int64_t divisor = 1;
  // "%8" is one token, because it could be the name of a value.
  if (scanner.peek().kind == TokenKind::Value) {
    const std::string_view digits = scanner.next().text;
    const char* end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, divisor).ptr != end) divisor = 0;
  }
  if (divisor < 1)
    scanner.fail_here("the divisor of the symbol before this is no number from 1 on");
  const auto beyond_multiple = [&] { return max % divisor + (max % divisor < 0 ? divisor : 0); };
  if (min > max || static_cast<uint64_t>(max) - static_cast<uint64_t>(min) <
                       static_cast<uint64_t>(beyond_multiple()))
    scanner.fail_here("the range of the symbol before this has no values");
  return Expr::symbol(name, {min, max}, divisor);
}

MeshAxis parse_mesh_axis(Scanner& scanner) {
  const std::string_view name = scanner.expect_identifier("an axis of a mesh");
  scanner.expect(":");
  const int64_t size = scanner.expect_integer();
  if (size < 1 || size > kMostDevices)
    scanner.fail_here(format("an axis of a mesh must have 1 to {} devices", kMostDevices));
  return {std::string(name), size};
}

TensorType parse_type(Scanner& scanner, const std::function<Expr(std::string_view)>& lookup) {
  const auto dtype = parse_dtype(scanner.peek().text);
  if (!dtype || scanner.peek().kind != TokenKind::Identifier)
    scanner.fail_here("expected a type such as f32[n, 64]");
  scanner.next();
  std::vector<Expr> dims;
  scanner.expect("[");
  if (!scanner.at("]")) {
    do dims.push_back(parse_expr(scanner, lookup));
    while (scanner.accept(","));
  }
  scanner.expect("]");
  return {*dtype, Shape(std::move(dims))};
}

}  // namespace braze
