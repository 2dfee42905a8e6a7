// Graph IR through its C++ interface: building, errors, verifying, rewriting, and text at random.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/graph/origins.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "tests/source_path.h"

namespace braze {
namespace {

using build::broadcast_to;
using build::input;
using build::map;
using build::scalar;
using enum ElementwiseOp;

const Expr n = Expr::symbol("n", {1, 64});

template <class Function>
Error error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(codes::kInternal, "", {});
}

TEST(Graph, EqualNodesAreOne) {
  Graph graph;
  const NodeId x = input(graph, "x", {DType::F32, {n, 4}});
  const NodeId a = map(graph, add, {x, x}, std::source_location::current());
  EXPECT_EQ(map(graph, add, {x, x}), a);
  EXPECT_NE(map(graph, mul, {x, x}), a);
  EXPECT_EQ(scalar(graph, DType::F32, 0.5), scalar(graph, DType::F32, 0.5));
  EXPECT_NE(scalar(graph, DType::F32, 0.0), scalar(graph, DType::F32, -0.0));
  EXPECT_EQ(build::reduce(graph, Monoid::Sum, x, {0}), build::reduce(graph, Monoid::Sum, x, {0}));
  EXPECT_NE(build::reduce(graph, Monoid::Sum, x, {0}), build::reduce(graph, Monoid::Sum, x, {1}));
  EXPECT_NE(build::convert(graph, x, DType::F16), build::convert(graph, x, DType::BF16));
  EXPECT_NE(input(graph, "y", {DType::F32, {n, 4}}), x);
  EXPECT_EQ(graph[a].location.line, graph[a].location.line);
  EXPECT_EQ(graph.inputs().size(), 2u);
}

TEST(Graph, TheFirstLabelStays) {
  Graph graph;
  const NodeId x = input(graph, "x", {DType::F32, {}});
  const NodeId y = build::node(graph, MapOp{neg}, {x}, {}, {}, "");
  build::node(graph, MapOp{neg}, {x}, {}, {}, "first");
  build::node(graph, MapOp{neg}, {x}, {}, {}, "second");
  EXPECT_EQ(graph[y].label, "first");
}

TEST(Graph, HashIsOfWhatIsComputed) {
  const auto make = [](double constant, std::string label, std::string output) {
    Graph graph;
    const NodeId x = input(graph, "x", {DType::F32, {n}});
    const NodeId y = map(graph, mul, {x, scalar(graph, DType::F32, constant)});
    graph.set_label(y, std::move(label));
    graph.set_outputs({{y, std::move(output), std::nullopt}});
    return graph.hash();
  };
  EXPECT_EQ(make(2, "a", "y"), make(2, "b", "y"));
  EXPECT_NE(make(2, "a", "y"), make(3, "a", "y"));
  EXPECT_NE(make(2, "a", "y"), make(2, "a", "z"));
}

TEST(Graph, SymbolsAreThoseOfTypesAndAttributes) {
  Graph graph;
  const Expr m = Expr::symbol("m", {8, 64}, 8);
  const NodeId x = input(graph, "x", {DType::F32, {m}});
  const Expr start = Expr::symbol("a", {0, 4});
  build::slice(graph, x, {start}, {start + 4}, {1});
  const std::vector<Expr> symbols = graph.symbols();
  ASSERT_EQ(symbols.size(), 2u);
  EXPECT_EQ(symbols[0], start);
  EXPECT_EQ(symbols[1].divisor(), 8);
}

TEST(Build, ErrorsNameTypesOpLineAndFix) {
  Graph graph;
  const NodeId x = input(graph, "x", {DType::F32, {n, 64}});
  const NodeId y = input(graph, "y", {DType::F16, {n, 64}});
  const uint32_t line = __LINE__ + 1;
  const Error error = error_of([&] { map(graph, add, {x, y}, std::source_location::current()); });
  EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
  EXPECT_EQ(&error.code(), &codes::kDTypeMismatch);
  EXPECT_EQ(error.node(), "add");
  EXPECT_EQ(error.location().line, line);
  EXPECT_EQ(error.fix(), "insert convert(operand 1, f32)");
  for (const char* part : {"f32[n, 64]", "f16[n, 64]", "add", "graph_test.cpp"})
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
}

TEST(Build, ScalarsBroadcastAndShapesFollowNumPy) {
  Graph graph;
  const NodeId x = input(graph, "x", {DType::F32, {n, 4}});
  const NodeId row = input(graph, "row", {DType::F32, {4}});
  const NodeId column = input(graph, "column", {DType::F32, {n, 1}});
  const Shape shape{n, 4};
  const NodeId twice = map(graph, mul, {scalar(graph, DType::F32, 2), x});
  EXPECT_EQ(graph[twice].type.shape, shape);
  EXPECT_EQ(broadcast_to(graph, x, shape), x);
  EXPECT_EQ(graph[broadcast_to(graph, row, shape)].type.shape, shape);
  EXPECT_EQ(graph[broadcast_to(graph, column, shape)].type.shape, shape);
  EXPECT_EQ(&error_of([&] { map(graph, add, {x, row}); }).code(), &codes::kShapeMismatch);
  EXPECT_EQ(&error_of([&] { broadcast_to(graph, x, {4}); }).code(), &codes::kShapeMismatch);
  EXPECT_EQ(&error_of([&] { input(graph, "x", {}); }).code(), &codes::kBadAttribute);
}

// Every invariant, broken.
TEST(Verify, FindsEveryViolation) {
  Graph graph;
  const NodeId x = input(graph, "x", {DType::F32, {n}});
  const auto raw = [&](Op op, std::vector<NodeId> operands, TensorType type) {
    return graph.add({std::move(op), std::move(operands), std::move(type), {}, ""});
  };
  EXPECT_TRUE(verify(graph).empty());
  raw(MapOp{neg}, {NodeId(size_t{99})}, {DType::F32, {n}});
  raw(MapOp{neg}, {x}, {DType::F16, {n}});
  raw(MapOp{add}, {x}, {DType::F32, {n}});
  raw(InputOp{"x"}, {}, {DType::F32, {}});
  raw(InputOp{""}, {}, {DType::F32, {}});
  raw(InputOp{"z"}, {}, {DType::F32, {Expr(-1)}});
  raw(InputOp{"m"}, {}, {DType::F32, {Expr::symbol("n", {1, 63})}});
  raw(ReduceOp{Monoid::Sum, {1}}, {x}, {DType::F32, {}});
  graph.set_outputs({{x, "a", std::nullopt},
                     {x, "a", std::nullopt},
                     {NodeId(size_t{1000}), "b", std::nullopt},
                     {x, "c", 0},
                     {x, "d", 0},
                     {x, "e", 1},
                     {x, "f", 77}});
  std::vector<std::string> found;
  for (const Diagnostic& finding : verify(graph)) found.push_back(finding.message);
  const std::vector<std::string> expected = {
      "operand 0 does not come before its user",
      "the type is f16[n], but the result of the op has the type f32[n]",
      "add(f32[n]): the op takes 2 operands, not 1",
      "input(): the type f32[-1] has the extent -1, which may be negative",
      "the symbol n occurs with two different ranges",
      "reduce(f32[n]): axis 1 does not exist, because the rank is 1",
      "there are two inputs with the name \"x\"",
      "an input has no name",
      "there are two outputs with the name \"a\"",
      "an output is not a node of the graph",
      "the input \"x\" is updated twice",
      "an output of type f32[n] cannot update the input \"x\" of type f32[]",
      "an output updates an input that does not exist",
  };
  EXPECT_EQ(found, expected);
}

TEST(Rewrite, KeepsInputsOutputsLabelsAndDropsDeadCode) {
  Graph graph("step");
  const NodeId x = input(graph, "x", {DType::F32, {n}});
  input(graph, "unused", {DType::I32, {}});
  const NodeId y =
      map(graph, mul, {x, scalar(graph, DType::F32, 1)}, std::source_location::current());
  map(graph, exp, {y});
  const NodeId z = map(graph, neg, {y});
  graph.set_label(z, "z");
  graph.set_outputs({{z, "result", 0}});

  const Graph result = rewrite(graph, [&](const Rewriting& step) {
    // x * 1 is x, and neg becomes 0 - x.
    const auto* op = step.node.as<MapOp>();
    if (op && op->op == mul) return step.operands[0];
    if (op && op->op == neg)
      return map(step.result, sub, {scalar(step.result, DType::F32, 0), step.operands[0]});
    return step.keep();
  });
  EXPECT_EQ(to_text(result),
            "braze 1 graph\n"
            "symbol n: 1..64\n"
            "graph @step(%x: f32[n], %unused: i32[]) {\n"
            "  %0 = constant 0 : f32[]\n"
            "  %z = sub %0, %x : f32[n]\n"
            "  return %z as \"result\" updates %x\n"
            "}\n");
}

TEST(GraphText, LocationsAreWrittenOnRequest) {
  Graph graph;
  const NodeId x = input(graph, "x", {DType::F32, {}}, SourceLocation("model.cpp", 3, 0));
  map(graph, neg, {x}, SourceLocation("a \"b\".cpp", 4, 7));
  const std::string text = to_text(graph, {.locations = true});
  EXPECT_NE(text.find("(%x: f32[] loc(\"model.cpp\":3))"), std::string::npos) << text;
  EXPECT_NE(text.find("neg %x : f32[] loc(\"a \\\"b\\\".cpp\":4:7)"), std::string::npos) << text;
  EXPECT_EQ(to_text(parse_graph(text, "text"), {.locations = true}), text);
}

TEST(GraphText, RepeatedLabelsGetNumbers) {
  Graph graph;
  const NodeId x = input(graph, "x", {DType::F32, {}});
  for (const auto op : {neg, abs, sqrt, floor}) graph.set_label(map(graph, op, {x}), "h");
  graph.set_label(map(graph, ceil, {x}), "h.2");
  graph.set_label(map(graph, trunc, {x}), "not a name");
  graph.set_label(map(graph, sin, {x}), "x");
  graph.set_label(map(graph, cos, {x}), "17");
  const std::string text = to_text(graph);
  for (const char* line : {"%h = neg", "%h.2 = abs", "%h.3 = sqrt", "%h.4 = floor", "%h.2.2 = ceil",
                           "%0 = trunc", "%x.2 = sin", "%1 = cos"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
  EXPECT_EQ(to_text(parse_graph(text, "text")), text);
}

// ---- At random
// ------------------------------------------------------------------------------------

class RandomGraph {
  static constexpr DType kTypes[] = {DType::F32, DType::F32, DType::F32,
                                     DType::F16, DType::I32, DType::Bool};

  size_t below(size_t limit) { return random_() % limit; }
  template <class List>
  auto pick(const List& list) {
    return list[below(std::size(list))];
  }

 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {}

  Graph make() {
    const size_t inputs = 1 + below(3);
    for (size_t i = 0; i < inputs; ++i)
      values_.push_back(input(graph_, "in" + std::to_string(i), {pick(kTypes), shape()}));
    for (size_t steps = below(25); steps > 0; --steps) step();
    std::vector<GraphOutput> outputs;
    for (size_t i = 0; i <= below(3); ++i)
      outputs.push_back({pick(values_), below(2) ? "out" + std::to_string(i) : "", std::nullopt});
    graph_.set_outputs(std::move(outputs));
    return std::move(graph_);
  }

 private:
  Shape shape() {
    const Expr extents[] = {n,    Expr(2), Expr(3), Expr(1), Expr(0), Expr::symbol("m", {0, 64}, 4),
                            2 * n};
    std::vector<Expr> dims;
    for (size_t rank = below(4); rank > 0; --rank) dims.push_back(pick(extents));
    return Shape(dims);
  }

  // One op that fits, or none if the first that comes to mind does not.
  void step() {
    const NodeId x = pick(values_), y = pick(values_);
    const auto rank = static_cast<int64_t>(graph_[x].type.shape.rank());
    const int64_t axis = rank ? static_cast<int64_t>(below(static_cast<size_t>(rank))) : 0;
    try {
      NodeId made;
      switch (below(16)) {
        case 0:
          made = build::reduce(graph_, Monoid::Max, x, {axis});
          break;
        case 1:
          made = build::reverse(graph_, x, {axis});
          break;
        case 2:
          made = build::iota(graph_, {DType::I32, graph_[x].type.shape}, axis);
          break;
        case 3:
          made = build::concat(graph_, {x, y}, axis);
          break;
        case 4:
          made = build::reshape(graph_, x, {graph_[x].type.shape.numel()});
          break;
        case 5:
          made = broadcast_to(graph_, x, shape());
          break;
        case 6:
          made = build::convert(graph_, x, pick(kAllDTypes));
          break;
        case 7:
          made = scalar(graph_, pick(kTypes),
                        pick(std::vector<double>{0.1, -0.0, 3, 1e-30, INFINITY}));
          break;
        case 8:
          made = constant();
          break;
        case 9:
          made = build::dot(graph_, x, y, {{}, {}, {axis}, {0}});
          break;
        case 11:
          made = build::windows(graph_, x, scalar(graph_, graph_[x].type.dtype, 1),
                                {{axis}, {rank > 1 ? (axis + 1) % rank : 0}, {2}, {-1}, {3}, {1}},
                                graph_[x].type.shape);
          break;
        case 10: {
          std::vector<Expr> none(static_cast<size_t>(rank), 0), one(static_cast<size_t>(rank), 1);
          const NodeId fill = scalar(graph_, graph_[x].type.dtype, 1);
          made = build::pad(graph_, x, fill, one, none,
                            std::vector<int64_t>(static_cast<size_t>(rank), 1));
          break;
        }
        default:
          const auto op = static_cast<ElementwiseOp>(below(elementwise_table().size()));
          std::vector<NodeId> operands = {x, below(2) ? x : y, pick(values_)};
          operands.resize(info(op).arity);
          made = map(graph_, op, operands, {}, graph_[x].type.dtype);
      }
      if (below(3) == 0)
        graph_.set_label(made,
                         pick(std::vector<std::string>{"h", "x", "in0", "layer.1", "7", "a b"}));
      values_.push_back(made);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
    }
  }

  NodeId constant() {
    HostTensor value(pick(kTypes),
                     {static_cast<int64_t>(below(3)), static_cast<int64_t>(below(60))});
    for (int64_t i = 0; i < value.numel(); ++i) value.set_double(i, static_cast<double>(below(4)));
    return build::constant(graph_, std::move(value));
  }

  std::mt19937_64 random_;
  Graph graph_;
  std::vector<NodeId> values_;
};

TEST(GraphText, RandomGraphsRoundTrip) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Graph graph = RandomGraph(seed).make();
    ASSERT_TRUE(verify(graph).empty()) << to_text(graph);
    const std::string text = to_text(graph);
    const Graph read = parse_graph(text, "text");
    ASSERT_EQ(to_text(read), text);
    // Without dead code the nodes are the same and in the same order, except for implicit
    // broadcasts.
    ASSERT_EQ(without_dead_code(read).size(), without_dead_code(graph).size());
    ASSERT_EQ(without_dead_code(read).hash(), without_dead_code(parse_graph(text, "text")).hash());
  }
}

std::vector<std::string> sample_texts() {
  std::vector<std::string> texts;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("tests/ir/graph"))) {
    std::ifstream file(entry.path());
    std::stringstream content;
    content << file.rdbuf();
    const std::string all = content.str();
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = std::min(all.find("// ----", begin), all.size());
      texts.push_back(all.substr(begin, end - begin));
      begin = end + 8;
    }
  }
  for (uint64_t seed = 0; seed < 40; ++seed) texts.push_back(to_text(RandomGraph(seed).make()));
  return texts;
}

// Text with mistakes is read or refused, and never an internal error.
TEST(GraphText, DamagedTextIsRefused) {
  std::mt19937_64 random(1);
  const std::vector<std::string> texts = sample_texts();
  const std::string_view pieces[] = {
      "%",      "[",   "]", "{", "}",         "(",   ")",  ":", ",",  "9223372036854775807",
      "-1",     "0",   "n", "*", "floordiv(", "f32", "\"", "=", "..", "hex",
      "return", "loc("};
  for (int round = 0; round < 20000; ++round) {
    std::string text = texts[random() % texts.size()];
    for (uint64_t edits = 1 + random() % 3; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text.resize(at);
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text[at] = static_cast<char>(random());
          break;
        case 3:
          text.insert(at, pieces[random() % std::size(pieces)]);
          break;
        case 4:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
      }
    }
    try {
      const Graph graph = parse_graph(text, "text");
      ASSERT_EQ(to_text(parse_graph(to_text(graph), "text")), to_text(graph));
    } catch (const Error& error) {
      ASSERT_NE(error.kind(), ErrorKind::Internal) << error.what() << "\n" << text;
    }
  }
}

TEST(GraphText, HostileTextIsRefusedQuickly) {
  const auto refuse = [](const std::string& text) {
    EXPECT_NE(error_of([&] { parse_graph(text, "text"); }).kind(), ErrorKind::Internal);
  };
  const std::string head = "braze 1 graph\nsymbol n: 1..8\ngraph @main(%x: ";
  const auto repeat = [](std::string_view part, size_t times) {
    std::string text;
    for (size_t i = 0; i < times; ++i) text += part;
    return text;
  };
  refuse(head + "f32[" + repeat("1, ", 100000) + "1]) { return }");
  refuse(head + "f32[" + repeat("(", 100000) + "1" + repeat(")", 100000) + "]) { return }");
  refuse(head + "f32[" + repeat("n * ", 100000) + "n]) { return }");
  refuse(head + "f32[" + repeat("max(n, ", 100000));
  refuse(head + "f32[]) { %0 = constant " + repeat("[", 100000) + " : f32[] return }");
  refuse(head + "f32[]) { %0 = constant 0 : f64[1000000, 1000000, 1000000] return }");
  refuse(head + "f32[9223372036854775807 + 9223372036854775807]) { return }");
  refuse(head + "f32[9223372036854775807 * n]) { return }");
}

TEST(Origins, GoThroughPassesAndBack) {
  const Graph source = parse_graph(
      "braze 1 graph\ngraph @main(%x: f32[4]) {\n  %dead = neg %x : f32[4]\n"
      "  %y = exp %x : f32[4] loc(\"model.cpp\":7)\n"
      "  %z = add %y, %x : f32[4] loc(\"model.cpp\":9:2)\n  return %z\n}\n",
      "main.braze");
  // Nodes are numbered anew by a pass, and know where they come from all the same.
  const Graph passed = without_dead_code(with_origins(source));
  EXPECT_EQ(passed.size(), source.size() - 1);
  const NodeId add = passed.outputs()[0].node;
  EXPECT_EQ(origin_of(passed[add].location), 3u);
  EXPECT_EQ(passed[add].location.to_string(), "node:3");
  const Graph located = with_locations(passed, locations_of(source));
  EXPECT_EQ(located[add].location.to_string(), "model.cpp:9:2");
  EXPECT_EQ(located[located[add].operands[0]].location.to_string(), "model.cpp:7");
  // Without origins nodes stay where they are; an origin that there is not is no place.
  EXPECT_EQ(with_locations(located, {})[add].location.to_string(), "model.cpp:9:2");
  EXPECT_FALSE(with_locations(passed, {})[add].location);
}

TEST(Origins, StandAtTheEndsOfLines) {
  const std::vector<SourceLocation> locations = {{"model.cpp", 7, 0}, {}};
  const auto text = [&](std::string_view t) { return with_locations(t, locations); };
  EXPECT_EQ(text("a  at node:0\nb at node:1\nc  at node:2"), "a  at model.cpp:7\nb\nc");
  for (const std::string other : {"", "\n", "a at node:0 b\n", "at node:0",
                                  "a at node:", "a at node:-1", "a at node:99999999999\n\n"})
    EXPECT_EQ(text(other), other);
}

}  // namespace
}  // namespace braze
