// From graphs of whole tensors to what one device does: which collectives, where, and that all
// devices together return the same.
#include "compiler/passes/distribute.h"

#include <gmock/gmock.h>

#include "tests/mesh/whole.h"

namespace braze {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Mesh2 = std::vector<MeshAxis>;
const Mesh2 kData = {{"data", 2}};
const Mesh2 kBoth = {{"data", 2}, {"model", 2}};

Graph parse(const std::string& text) { return parse_graph("braze 1 graph\n" + text, "test"); }

Sharding cut(std::vector<std::string> axes) { return Sharding(std::move(axes)); }

std::vector<HostTensor> numbers_for(const Graph& graph) {
  std::vector<HostTensor> inputs;
  int64_t n = 0;
  for (const NodeId id : graph.inputs()) {
    const TensorType& type = graph[id].type;
    HostTensor& x = inputs.emplace_back(type.dtype, type.shape.static_dims());
    for (int64_t i = 0; i < x.numel(); ++i, ++n) {
      if (is_floating(type.dtype))
        x.set_double(i, 0.125 * double(n * 7 % 23) - 1);
      else
        x.set_int(i, n % 3);
    }
  }
  return inputs;
}

struct Result {
  Distributed made;
  std::vector<std::string> collectives;
};

/// Distributes, judges the values, and lists "kind axis reason".
Result distributed(const Graph& graph, const Mesh2& mesh, std::vector<std::optional<Sharding>> in,
                   std::vector<std::optional<Sharding>> out = {}) {
  Result result{distribute(graph, mesh, in, out), {}};
  for (const InsertedCollective& c : result.made.collectives)
    result.collectives.push_back(std::string(name(c.op.kind)) + " " + c.op.axis.name + " " +
                                 std::string(c.reason->name));
  EXPECT_TRUE(testing::is_as_whole(graph, result.made, mesh, numbers_for(graph)));
  return result;
}

std::string refusal(const Graph& graph, const Mesh2& mesh,
                    std::vector<std::optional<Sharding>> in) {
  try {
    distribute(graph, mesh, in, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Distribute, TextOfConstrainIsExact) {
  const std::string text = R"(graph @g(%x: f32[4, 2, 6]) {
  %y = constrain %x {axes: [data, none, model]} : f32[4, 2, 6]
  %z = constrain %y {axes: []} : f32[4, 2, 6]
  return %z as "z"
}
)";
  EXPECT_EQ(to_text(parse(text)), "braze 1 graph\n" + text);
  const auto fails = [](const std::string& axes) -> std::string {
    try {
      parse("graph @g(%x: f32[4]) {\n  %y = constrain %x {axes: " + axes +
            "} : f32[4]\n  return %y as \"y\"\n}\n");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(fails("[data, model]"), HasSubstr("too few to be sharded(data, model)"));
}

TEST(Distribute, ElementwiseTakesBlocksOfWhatIsWhole) {
  const Graph graph = parse(R"(graph @g(%x: f32[4, 6], %b: f32[6], %t: f32[4, 6]) {
  %w = broadcast %b {axes: [1]} : f32[4, 6]
  %y = add %x, %w : f32[4, 6]
  %z = mul %y, %t : f32[4, 6]
  return %z as "z"
}
)");
  const Result r = distributed(graph, kBoth, {cut({"data", "model"}), {}, {}});
  EXPECT_THAT(r.collectives, IsEmpty());
  EXPECT_EQ(r.made.outputs[0], cut({"data", "model"}));
}

TEST(Distribute, ContractionsOverCutAxesArePartial) {
  const Graph graph = parse(R"(graph @g(%x: f32[4, 8], %w: f32[8, 6]) {
  %y = dot %x, %w {contract: [1] x [0]} : f32[4, 6]
  return %y as "y"
}
)");
  EXPECT_THAT(distributed(graph, kData, {cut({"", "data"}), cut({"data"})}).collectives,
              ElementsAre("all_reduce data partial"));
  // What is whole is cut as the other factor is.
  EXPECT_THAT(distributed(graph, kData, {cut({"", "data"}), {}}).collectives,
              ElementsAre("all_reduce data partial"));
  // If a block of the sum is wanted, that is what is made.
  EXPECT_THAT(distributed(graph, kData, {cut({"", "data"}), cut({"data"})}, {cut({"", "data"})})
                  .collectives,
              ElementsAre("reduce_scatter data partial"));
  // Rows and columns need nothing.
  const Result r = distributed(graph, kBoth, {cut({"data"}), cut({"", "model"})});
  EXPECT_THAT(r.collectives, IsEmpty());
  EXPECT_EQ(r.made.outputs[0], cut({"data", "model"}));
}

TEST(Distribute, ReductionsCombineAsTheirMonoidSays) {
  const Graph graph = parse(R"(graph @softmax(%x: f32[4, 6]) {
  %m = reduce max %x {axes: [1]} : f32[4]
  %mb = broadcast %m {axes: [0]} : f32[4, 6]
  %d = sub %x, %mb : f32[4, 6]
  %e = exp %d : f32[4, 6]
  %s = reduce sum %e {axes: [1]} : f32[4]
  %sb = broadcast %s {axes: [0]} : f32[4, 6]
  %y = div %e, %sb : f32[4, 6]
  return %y as "y"
}
)");
  const Result r = distributed(graph, kData, {cut({"", "data"})});
  EXPECT_THAT(r.collectives, ElementsAre("all_reduce data partial", "all_reduce data partial"));
  EXPECT_THAT(to_text(r.made.graph), HasSubstr("all_reduce max"));
  EXPECT_EQ(r.made.outputs[0], cut({"", "data"}));
  EXPECT_THAT(distributed(graph, kData, {cut({"data"})}).collectives, IsEmpty());
}

// Heads: axes are split and merged, and stay cut where blocks stay blocks.
TEST(Distribute, ReshapesCarryBlocks) {
  const Graph graph = parse(R"(graph @g(%x: f32[4, 12]) {
  %h = reshape %x : f32[4, 4, 3]
  %t = transpose %h {permutation: [1, 0, 2]} : f32[4, 4, 3]
  %e = tanh %t : f32[4, 4, 3]
  %b = transpose %e {permutation: [1, 0, 2]} : f32[4, 4, 3]
  %y = reshape %b : f32[4, 12]
  return %y as "y"
}
)");
  const Result r = distributed(graph, kBoth, {cut({"data", "model"})});
  EXPECT_THAT(r.collectives, IsEmpty());
  EXPECT_EQ(r.made.outputs[0], cut({"data", "model"}));
  // Three heads of four do not divide: the reader needs the axis whole.
  const Graph odd = parse(R"(graph @g(%x: f32[12]) {
  %h = reshape %x : f32[3, 4]
  %y = tanh %h : f32[3, 4]
  return %y as "y"
}
)");
  EXPECT_THAT(distributed(odd, kData, {cut({"data"})}).collectives,
              ElementsAre("all_gather data whole"));
}

TEST(Distribute, ConstraintsMoveBlocks) {
  const Graph graph = parse(R"(graph @g(%x: f32[4, 6]) {
  %a = constrain %x {axes: [none, data]} : f32[4, 6]
  %b = tanh %a : f32[4, 6]
  %c = constrain %b {axes: []} : f32[4, 6]
  %d = tanh %c : f32[4, 6]
  %e = constrain %d {axes: [data]} : f32[4, 6]
  return %e as "e"
}
)");
  const Result r = distributed(graph, kData, {cut({"data"})});
  EXPECT_THAT(r.collectives, ElementsAre("all_to_all data said", "all_gather data said"));
  EXPECT_EQ(r.made.outputs[0], cut({"data"}));
  // An argument of which nothing is said comes as its constraint says.
  EXPECT_EQ(distributed(graph, kData, {}).made.inputs[0], cut({"", "data"}));
}

// A table that is looked up: rows of updates on each device, and what they are added to counts
// once.
TEST(Distribute, PlacedSums) {
  const Graph graph = parse(R"(graph @g(%t: f32[3, 4], %i: i64[6], %u: f32[6, 4]) {
  %y = scatter_add %t, %i, %u {axis: 0} : f32[3, 4]
  %g = gather %t, %i {axis: 0} : f32[6, 4]
  return %y as "y", %g as "g"
}
)");
  const Result r = distributed(graph, kData, {{}, cut({"data"}), cut({"data"})});
  EXPECT_THAT(r.collectives, ElementsAre("all_reduce data partial"));
  EXPECT_EQ(r.made.outputs[1], cut({"data"}));
  // If a block of the result is wanted, the sums become blocks, and a block is what they are added
  // to.
  EXPECT_THAT(distributed(graph, kData, {{}, cut({"data"}), cut({"data"})}, {cut({"", "data"}), {}})
                  .collectives,
              ElementsAre("reduce_scatter data partial"));
  EXPECT_THAT(distributed(graph, kBoth, {cut({"", "model"}), {}, {}}).collectives, IsEmpty());
}

TEST(Distribute, WhatReadsAcrossBlocksGathers) {
  const Graph graph = parse(R"(graph @g(%x: f32[4, 3]) {
  %a = scan sum %x {axis: 0} : f32[4, 3]
  %b = reverse %x {axes: [0]} : f32[4, 3]
  %c = add %a, %b : f32[4, 3]
  %i = argmax %x {axis: 0} : i64[3]
  return %c as "c", %i as "i"
}
)");
  // One gathering serves all.
  EXPECT_THAT(distributed(graph, kData, {cut({"data"})}).collectives,
              ElementsAre("all_gather data whole"));
}

// Three parts of one sum, as the gradients of queries, keys and values are: combined once.
TEST(Distribute, PartsAreAddedUpBeforeTheyAreCombined) {
  const Graph graph =
      parse(R"(graph @g(%a: f32[4, 8], %b: f32[4, 8], %c: f32[4, 8], %w: f32[8, 6]) {
  %p = dot %a, %w {contract: [1] x [0]} : f32[4, 6]
  %q = dot %b, %w {contract: [1] x [0]} : f32[4, 6]
  %r = dot %c, %w {contract: [1] x [0]} : f32[4, 6]
  %t = transpose %r {permutation: [1, 0]} : f32[6, 4]
  %u = transpose %t {permutation: [1, 0]} : f32[4, 6]
  %s = add %p, %q : f32[4, 6]
  %y = sub %s, %u : f32[4, 6]
  %z = tanh %y : f32[4, 6]
  return %z as "z"
}
)");
  const std::optional<Sharding> columns = cut({"", "data"});
  EXPECT_THAT(distributed(graph, kData, {columns, columns, columns, cut({"data"})}).collectives,
              ElementsAre("all_reduce data partial"));
}

// A parameter that is kept in blocks: gathered for its use, its new value made of blocks of the
// gradient's sum.
TEST(Distribute, FullyShardedParameters) {
  const Graph graph = parse(R"(graph @step(%w: f32[8, 6], %x: f32[4, 8], %g: f32[4, 6]) {
  %all = constrain %w {axes: []} : f32[8, 6]
  %y = dot %x, %all {contract: [1] x [0]} : f32[4, 6]
  %d = dot %x, %g {contract: [0] x [0]} : f32[8, 6]
  %rate = constant 0.1 : f32[]
  %s = mul %d, %rate : f32[8, 6]
  %q = mul %s, %d : f32[8, 6]
  %n = sub %w, %q : f32[8, 6]
  return %y as "y", %n as "n" updates %w
}
)");
  const Result r = distributed(graph, kData, {cut({"data"}), cut({"data"}), cut({"data"})});
  EXPECT_THAT(r.collectives, ElementsAre("all_gather data said", "reduce_scatter data partial"));
  EXPECT_EQ(r.made.outputs[1], cut({"data"}));
  const std::string text = r.made.explanation(parse_target("sm_90a link=1e-05 links=1e+07"));
  EXPECT_THAT(text, HasSubstr("all_gather"));
  EXPECT_THAT(
      text,
      HasSubstr("96 bytes      29.2 us"));  // half of the parameter comes from the other device
  EXPECT_THAT(text, HasSubstr("Each device has combined its part only."));
}

// Between the divided layers the rows are divided too: parts are combined into blocks of rows,
// which the next layer gathers. That moves what an all_reduce would, and what stands between is
// divided.
TEST(Distribute, RowsBetweenDividedLayers) {
  const Graph graph =
      parse(R"(graph @g(%x: f32[4, 8], %up: f32[8, 6], %down: f32[6, 8], %w: f32[8, 6]) {
  %u = dot %x, %up {contract: [1] x [0]} : f32[4, 6]
  %a = tanh %u : f32[4, 6]
  %d = dot %a, %down {contract: [1] x [0]} : f32[4, 8]
  %rows = constrain %d {axes: [model]} : f32[4, 8]
  %t = tanh %rows : f32[4, 8]
  %all = constrain %t {axes: []} : f32[4, 8]
  %y = dot %all, %w {contract: [1] x [0]} : f32[4, 6]
  return %y as "y"
}
)");
  const Result r = distributed(graph, {{"model", 2}},
                               {{}, cut({"", "model"}), cut({"model"}), cut({"", "model"})});
  EXPECT_THAT(r.collectives, ElementsAre("reduce_scatter model partial", "all_gather model said"));
  EXPECT_EQ(r.made.outputs[0], cut({"", "model"}));
}

TEST(Distribute, AnAxisOfOneDeviceCutsNothing) {
  const Graph graph = parse(R"(graph @g(%x: f32[4, 8], %w: f32[8, 6]) {
  %y = dot %x, %w {contract: [1] x [0]} : f32[4, 6]
  return %y as "y"
}
)");
  EXPECT_THAT(distributed(graph, {{"data", 1}}, {cut({"data", ""}), cut({"data"})}).collectives,
              IsEmpty());
}

TEST(Distribute, SymbolicSizes) {
  const Graph graph = parse(R"(symbol n: 2..64%2
graph @g(%x: f32[n, 8], %w: f32[8, 6]) {
  %y = dot %x, %w {contract: [1] x [0]} : f32[n, 6]
  %s = reduce sum %y {axes: [0]} : f32[6]
  return %y as "y", %s as "s"
}
)");
  const std::vector<std::optional<Sharding>> in = {cut({"data"}), {}};
  const Distributed made = distribute(graph, kData, in, {});
  EXPECT_TRUE(verify(made.graph).empty());
  ASSERT_EQ(made.collectives.size(), 1u);
  EXPECT_EQ(made.outputs[0], cut({"data"}));
  EXPECT_THAT(refusal(graph, {{"data", 3}}, in), HasSubstr("declare it as a multiple of 3"));
}

TEST(Distribute, ConflictsAreErrorsWithAFix) {
  const Graph add = parse(R"(graph @g(%x: f32[4, 4], %y: f32[4, 4]) {
  %z = add %x, %y : f32[4, 4]
  return %z as "z"
}
)");
  EXPECT_THAT(refusal(add, kBoth, {cut({"data"}), cut({"model"})}),
              HasSubstr("axis 0 of the result would be cut along \"data\" (by operand 0, f32[4, 4] "
                        "sharded(data)) and along \"model\""));
  EXPECT_THAT(refusal(add, kBoth, {cut({"data"}), cut({"", "data"})}),
              HasSubstr("\"data\" of the mesh would cut axis 0 of the result"));
  EXPECT_THAT(refusal(add, kBoth, {cut({"data"}), cut({"", "data"})}),
              HasSubstr("constrain(x, replicated) gathers it"));
  EXPECT_THAT(refusal(add, kBoth, {cut({"rows"}), {}}),
              HasSubstr("the mesh has no axis \"rows\"; it has data, model"));
  EXPECT_THAT(refusal(add, {{"data", 3}}, {cut({"data"}), {}}),
              HasSubstr("extent 4, which 3 devices do not divide"));
  const Graph two = parse(R"(graph @g(%x: f32[4, 4]) {
  %y = constrain %x {axes: [data]} : f32[4, 4]
  %z = constrain %x {axes: [none, data]} : f32[4, 4]
  return %y as "y", %z as "z"
}
)");
  EXPECT_THAT(refusal(two, kBoth, {}), HasSubstr("is sharded(data) and sharded(none, data)"));
  const Graph together = parse(R"(mesh data: 2
graph @g(%x: f32[4] varying [data]) {
  %y = all_reduce sum %x {over: data} : f32[4]
  return %y as "y"
}
)");
  EXPECT_THAT(refusal(together, kData, {}), HasSubstr("give the function to spmd"));
}

}  // namespace
}  // namespace braze
