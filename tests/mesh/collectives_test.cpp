// Every collective: its text, its types, its meaning, and the same on CPU devices.
#include <gmock/gmock.h>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/graph/verify.h"
#include "ir/program/text.h"
#include "ir/support/text.h"
#include "runtime/devices/registry.h"
#include "runtime/execution/plan.h"
#include "tests/mesh/run.h"

namespace braze {
namespace {

using testing::agrees;
using testing::cpu_mesh;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::numbers;
using testing::parse;
using testing::run_on;

/// One input "x" that differs between all devices.
std::vector<std::vector<HostTensor>> one_each(const Mesh& mesh, DType dtype,
                                              const std::vector<int64_t>& shape) {
  std::vector<std::vector<HostTensor>> inputs;
  for (size_t device = 0; device < mesh.size(); ++device)
    inputs.push_back({numbers(dtype, shape, 1 + 10 * static_cast<double>(device))});
  return inputs;
}

std::vector<int64_t> integers(const HostTensor& x) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < x.numel(); ++i) out.push_back(x.get_int(i));
  return out;
}

std::string one_op(const std::string& line, const std::string& in, const std::string& out) {
  return "mesh data: 2\ngraph @g(%x: " + in + " varying [data]) {\n  %y = " + line + " : " + out +
         "\n  return %y as \"y\"\n}\n";
}

/// What the two devices of `data` return for i64 operands that begin with 1 and 11.
std::vector<std::vector<int64_t>> on_two(const std::string& line, const std::string& in,
                                         const std::string& out) {
  const Graph graph = parse(one_op(line, "i64[" + in + "]", "i64[" + out + "]"));
  EXPECT_EQ(to_text(graph),
            "braze 1 graph\n" + one_op(line, "i64[" + in + "]", "i64[" + out + "]"));
  const Mesh mesh = cpu_mesh({{"data", 2}});
  std::vector<int64_t> shape;
  if (!in.empty()) shape = graph[graph.inputs()[0]].type.shape.static_dims();
  const auto inputs = one_each(mesh, DType::I64, shape);
  std::vector<std::vector<int64_t>> values;
  for (const auto& device : interpret(graph, mesh.axes(), inputs))
    values.push_back(integers(device[0]));
  EXPECT_TRUE(agrees(mesh, graph, inputs));
  return values;
}

TEST(Collectives, AllReduce) {
  EXPECT_THAT(on_two("all_reduce sum %x {over: data}", "3", "3"),
              ElementsAre(ElementsAre(12, 14, 16), ElementsAre(12, 14, 16)));
  EXPECT_THAT(on_two("all_reduce prod %x {over: data}", "2", "2"),
              ElementsAre(ElementsAre(11, 24), ElementsAre(11, 24)));
  EXPECT_THAT(on_two("all_reduce max %x {over: data}", "2", "2"),
              ElementsAre(ElementsAre(11, 12), ElementsAre(11, 12)));
  EXPECT_THAT(on_two("all_reduce min %x {over: data}", "", ""),
              ElementsAre(ElementsAre(1), ElementsAre(1)));
}

TEST(Collectives, AllGather) {
  EXPECT_THAT(on_two("all_gather %x {over: data}", "2", "4"),
              ElementsAre(ElementsAre(1, 2, 11, 12), ElementsAre(1, 2, 11, 12)));
}

TEST(Collectives, ReduceScatter) {
  EXPECT_THAT(on_two("reduce_scatter sum %x {over: data}", "4", "2"),
              ElementsAre(ElementsAre(12, 14), ElementsAre(16, 18)));
}

TEST(Collectives, BroadcastOver) {
  EXPECT_THAT(on_two("broadcast_over %x {over: data, root: 1}", "2", "2"),
              ElementsAre(ElementsAre(11, 12), ElementsAre(11, 12)));
}

TEST(Collectives, Permute) {
  EXPECT_THAT(on_two("permute %x {over: data, shift: 1}", "2", "2"),
              ElementsAre(ElementsAre(11, 12), ElementsAre(1, 2)));
}

TEST(Collectives, AllToAll) {
  EXPECT_THAT(on_two("all_to_all %x {over: data}", "4", "4"),
              ElementsAre(ElementsAre(1, 2, 11, 12), ElementsAre(3, 4, 13, 14)));
}

TEST(Collectives, AxisIndex) {
  const Graph graph = parse(
      "mesh data: 2\nmesh model: 3\ngraph @g() {\n  %i = axis_index {over: data} : i64[]\n  "
      "%j = axis_index {over: model} : i64[]\n  return %i as \"i\", %j as \"j\"\n}\n");
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 3}});
  const std::vector<std::vector<HostTensor>> inputs(6);
  const auto got = testing::run_on(mesh, graph, inputs);
  for (int64_t device = 0; device < 6; ++device) {
    EXPECT_EQ(got[static_cast<size_t>(device)][0].get_int(0), device / 3);
    EXPECT_EQ(got[static_cast<size_t>(device)][1].get_int(0), device % 3);
  }
  EXPECT_TRUE(agrees(mesh, graph, inputs));
}

// Groups along both axes of a mesh, all dtypes that the monoid takes, sizes around the ends.
TEST(Collectives, EveryKindDTypeAndSizeAgrees) {
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 4}});
  for (const MeshAxis& axis : mesh.axes()) {
    for (int k = 0; k <= static_cast<int>(CollectiveKind::AllToAll); ++k) {
      const auto kind = static_cast<CollectiveKind>(k);
      for (const Monoid monoid : {Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::And}) {
        if (!reduces(kind) && monoid != Monoid::Sum) continue;
        // All dtypes in one graph, since a compilation takes long.
        Graph graph("g");
        std::vector<GraphOutput> outputs;
        std::vector<std::vector<HostTensor>> inputs(mesh.size());
        for (const DType dtype : kAllDTypes) {
          if (reduces(kind) && !info(monoid).types.contains(dtype)) continue;
          for (const int64_t rows : {0, 4, 12}) {
            const std::string text = fmt::format("{}.{}", name(dtype), rows);
            const NodeId x =
                build::input(graph, text, {dtype, {rows, 3}}, {}, {{"data", 2}, {"model", 4}});
            const int64_t offset = offset_word(kind).empty() ? 0 : 1;
            outputs.push_back(
                {build::collective(graph, {kind, axis, monoid, offset}, x), text, {}});
            for (size_t device = 0; device < mesh.size(); ++device)
              inputs[device].push_back(
                  numbers(dtype, {rows, 3}, is_floating(dtype) ? 0.25 * double(device) : device));
          }
        }
        graph.set_outputs(std::move(outputs));
        EXPECT_TRUE(agrees(mesh, graph, inputs)) << name(kind) << " " << name(monoid);
      }
    }
  }
}

// Devices combine a large operand piece by piece.
TEST(Collectives, OfSeveralPieces) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  constexpr int64_t kCount = (int64_t{1} << 20) + 6;  // more than two pieces of 1 MiB a device
  for (const auto& [line, result] : {std::pair{"reduce_scatter sum %x {over: data}", kCount / 2},
                                     std::pair{"all_reduce sum %x {over: data}", kCount}}) {
    const Graph graph =
        parse(one_op(line, fmt::format("i32[{}]", kCount), fmt::format("i32[{}]", result)));
    EXPECT_TRUE(agrees(mesh, graph, one_each(mesh, DType::I32, {kCount})));
  }
}

// What NaN, infinities and signed zeros come to is what the rows say.
TEST(Collectives, ExtremesOfSpecialNumbers) {
  for (const char* monoid : {"max", "min", "sum"}) {
    const Graph graph =
        parse(one_op(std::string("all_reduce ") + monoid + " %x {over: data}", "f32[4]", "f32[4]"));
    const Mesh mesh = cpu_mesh({{"data", 2}});
    std::vector<std::vector<HostTensor>> inputs = one_each(mesh, DType::F32, {4});
    const double a[] = {NAN, 0.0, -INFINITY, 3}, b[] = {1, -0.0, INFINITY, NAN};
    for (int64_t i = 0; i < 4; ++i) {
      inputs[0][0].set_double(i, a[i]);
      inputs[1][0].set_double(i, b[i]);
    }
    EXPECT_TRUE(agrees(mesh, graph, inputs)) << monoid;
  }
}

TEST(Collectives, SymbolicSizes) {
  const Graph graph = parse(
      "symbol n: 0..64%4\nmesh data: 4\ngraph @g(%x: f32[n, 2] varying [data]) {\n"
      "  %y = reduce_scatter sum %x {over: data} : f32[floordiv(n, 4), 2]\n"
      "  %z = all_gather %y {over: data} : f32[n, 2]\n  return %z as \"z\"\n}\n");
  const Mesh mesh = cpu_mesh({{"data", 4}});
  for (const int64_t n : {0, 4, 64})
    EXPECT_TRUE(agrees(mesh, graph, one_each(mesh, DType::F32, {n, 2}))) << n;
}

// The blocks of such an extent are numbers, and what is joined of them is still n.
TEST(Collectives, SymbolsOfOneValue) {
  const Graph graph = parse(
      "symbol n: 8..8%2\nmesh data: 2\ngraph @g(%x: f32[n] varying [data]) {\n"
      "  %y = all_to_all %x {over: data} : f32[n]\n"
      "  %z = add %x, %y : f32[n]\n  return %z as \"z\"\n}\n");
  const Mesh mesh = cpu_mesh({{"data", 2}});
  EXPECT_TRUE(agrees(mesh, graph, one_each(mesh, DType::F32, {8})));
}

// All_reduces whose operands kernels write one behind another are one: three values, and what lies
// between them belongs to nobody. They have the bits that they have one by one.
TEST(Collectives, BucketsAreOneAllReduce) {
  for (const char* dtype : {"f32", "bf16", "i8"}) {
    std::string text = R"(symbol n: 1..64
mesh data: 3
graph @g(%x: T[n, 5] varying [data]) {
  %a = reduce sum %x {axes: [1]} : T[n]
  %b = reduce max %x {axes: [0]} : T[5]
  %c = neg %x : T[n, 5]
  %sum_a = all_reduce sum %a {over: data} : T[n]
  %sum_b = all_reduce sum %b {over: data} : T[5]
  %sum_c = all_reduce sum %c {over: data} : T[n, 5]
  %p = neg %sum_a : T[n]
  %q = neg %sum_b : T[5]
  %r = neg %sum_c : T[n, 5]
  return %p, %q, %r
}
)";
    for (size_t at = 0; (at = text.find("T[", at)) != std::string::npos;)
      text.replace(at, 1, dtype);
    const Graph graph = parse(text);
    const Mesh mesh = cpu_mesh({{"data", 3}});
    const auto program =
        std::make_shared<const Program>(compile(graph, mesh.devices()[0].target()));
    const Plan plan(program, Registry::get().driver(mesh.devices()[0]));
    for (const int64_t n : {1, 16, 63}) {
      SCOPED_TRACE(std::string(dtype) + ", n = " + std::to_string(n));
      const auto inputs = one_each(mesh, *parse_dtype(dtype), {n, 5});
      const Array argument = Array::from_host(inputs[0][0], mesh.devices()[0]);
      size_t launches = 0, exchanges = 0;
      for (const auto& launch : plan.bind({&argument, 1})->launches) {
        launches += !launch.exchanges.empty();
        exchanges += launch.exchanges.size();
      }
      EXPECT_EQ(launches, 1u);
      EXPECT_EQ(exchanges, 1u);
      EXPECT_TRUE(agrees(mesh, graph, inputs));
      const auto packed = run_on(mesh, graph, inputs),
                 alone = run_on(mesh, graph, inputs, {.fuse = false});
      for (size_t device = 0; device < mesh.size(); ++device)
        for (size_t o = 0; o < 3; ++o)
          EXPECT_TRUE(identical(packed[device][o], alone[device][o]))
              << "device " << device << ", " << o;
    }
  }
}

/// What is exchanged where values of three sizes go through collectives that `line` gives for a
/// value and the factor by which its size grows: the number of launches, and that of exchanges.
std::pair<size_t, size_t> exchanged(const std::string& line, const std::string& result) {
  std::string text =
      "symbol n: 1..64%3\nmesh data: 3\nmesh model: 2\n"
      "graph @g(%x: f32[n, 5] varying [data, model]) {\n";
  const char* const sizes[] = {"n, 5", "n, 1", "n, 3"};
  const auto filled = [](std::string form, int i, const std::string& more) {
    for (const auto& [from, to] :
         {std::pair<std::string, std::string>{"%v", "%v" + std::to_string(i)}, {"$", more}})
      for (size_t at = 0; (at = form.find(from, at)) != std::string::npos; at += to.size())
        form.replace(at, from.size(), to);
    return form;
  };
  for (int i = 0; i < 3; ++i) {
    const std::string size(sizes[i]), columns = size.substr(3);
    text += fmt::format(
        "  %w{0} = slice %x {{starts: [0, 0], limits: [n, {1}], strides: [1, 1]}} : f32[{2}]\n"
        "  %v{0} = neg %w{0} : f32[{2}]\n",
        i, columns, size);
    text += fmt::format("  %s{0} = {1} : f32[{2}, {3}]\n  %y{0} = neg %s{0} : f32[{2}, {3}]\n", i,
                        filled(line, i, columns), result, columns);
  }
  text += "  return %y0, %y1, %y2\n}\n";
  const Graph graph = parse(text);
  const Mesh mesh = cpu_mesh({{"data", 3}, {"model", 2}});
  const auto inputs = one_each(mesh, DType::F32, {6, 5});
  EXPECT_TRUE(agrees(mesh, graph, inputs));
  const auto together = run_on(mesh, graph, inputs),
             alone = run_on(mesh, graph, inputs, {.fuse = false});
  for (size_t device = 0; device < mesh.size(); ++device)
    for (size_t o = 0; o < 3; ++o)
      EXPECT_TRUE(identical(together[device][o], alone[device][o])) << device << ", " << o;
  const auto program = std::make_shared<const Program>(compile(graph, mesh.devices()[0].target()));
  const Plan plan(program, Registry::get().driver(mesh.devices()[0]));
  const Array argument = Array::from_host(inputs[0][0], mesh.devices()[0]);
  std::pair<size_t, size_t> out{0, 0};
  for (const auto& launch : plan.bind({&argument, 1})->launches) {
    out.first += !launch.exchanges.empty();
    out.second += launch.exchanges.size();
  }
  return out;
}

// Collectives that move elements to other places are done at once, too, each in memory of its own.
TEST(Collectives, AllKindsAreDoneAtOnce) {
  using ::testing::Pair;
  EXPECT_THAT(exchanged("broadcast_over %v {over: data, root: 1}", "n"), Pair(1, 1));
  EXPECT_THAT(exchanged("permute %v {over: data, shift: 2}", "n"), Pair(1, 1));
  EXPECT_THAT(exchanged("all_reduce max %v {over: model}", "n"), Pair(1, 1));
  EXPECT_THAT(exchanged("reduce_scatter sum %v {over: data}", "floordiv(n, 3)"), Pair(1, 3));
  EXPECT_THAT(exchanged("all_gather %v {over: data}", "3*n"), Pair(1, 3));
  EXPECT_THAT(exchanged("all_to_all %v {over: data}", "n"), Pair(1, 3));
}

// What differs in more than its size, or needs what another makes, is done apart.
TEST(Collectives, WhatDiffersIsDoneApart) {
  const Graph graph = parse(R"(mesh data: 2
mesh model: 2
graph @g(%x: f32[4, 2] varying [data, model]) {
  %a = permute %x {over: data, shift: 1} : f32[4, 2]
  %b = permute %x {over: model, shift: 1} : f32[4, 2]
  %c = reduce_scatter sum %x {over: data} : f32[2, 2]
  %d = reduce_scatter max %x {over: data} : f32[2, 2]
  %e = all_gather %c {over: data} : f32[4, 2]
  %f = all_gather %d {over: data} : f32[4, 2]
  %h = convert %x : bf16[4, 2]
  %i = permute %h {over: data, shift: 1} : bf16[4, 2]
  return %a, %b, %e, %f, %i
}
)");
  std::vector<std::string> names;
  for (const Launch& launch : compile(graph, parse_target("x86-64-v3")).launches)
    if (launch.artifact == Launch::kCollective)
      names.push_back(fmt::format("{} {}", name(launch.collective.kind), launch.member_count()));
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("permute 1", "permute 1", "permute 1",
                                                     "reduce_scatter 1", "reduce_scatter 1",
                                                     "all_gather 2"));
}

// Without a latency worth speaking of, nothing is won by waiting for more.
TEST(Collectives, BucketsAreAsLargeAsTheLinksAskFor) {
  std::string text = "mesh data: 2\ngraph @g(";
  for (int i = 0; i < 8; ++i)
    text += fmt::format("{}%x{}: f32[{}] varying [data]", i > 0 ? ", " : "", i, 1000 + i);
  text += ") {\n";
  for (int i = 0; i < 8; ++i)
    text += fmt::format(
        "  %n{0} = neg %x{0} : f32[{1}]\n  %s{0} = all_reduce sum %n{0} {{over: data}} : "
        "f32[{1}]\n  %y{0} = neg %s{0} : f32[{1}]\n",
        i, 1000 + i);
  text += "  return %y0, %y1, %y2, %y3, %y4, %y5, %y6, %y7\n}\n";
  const Graph graph = parse(text);
  const auto members = [&](const char* target) {
    std::vector<size_t> out;
    for (const Launch& launch : compile(graph, parse_target(target)).launches)
      if (launch.artifact == Launch::kCollective) out.push_back(launch.member_count());
    return out;
  };
  EXPECT_THAT(members("x86-64-v3"), ElementsAre(8));
  // Four latencies are what 10,000 bytes take: of two devices each receives about 4,000 of each.
  EXPECT_THAT(members("x86-64-v3 link=0.0025 links=1e+06"), ElementsAre(3, 3, 2));
  EXPECT_THAT(members("x86-64-v3 link=1e-09 links=1e+06"), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
}

/// The steps of a chain of products with weights that are kept in blocks and gathered: "gather 2",
/// "dot".
std::vector<std::string> steps_of_gathered_chain(int layers, const std::string& target) {
  std::string text = "mesh data: 4\ngraph @g(%x0: bf16[2048, 1024] varying [data]";
  for (int i = 0; i < layers; ++i) text += fmt::format(", %w{}: bf16[256, 1024] varying [data]", i);
  text += ") {\n";
  for (int i = 0; i < layers; ++i)
    text += fmt::format(
        "  %g{0} = all_gather %w{0} {{over: data}} : bf16[1024, 1024]\n"
        "  %x{1} = dot %x{0}, %g{0} {{contract: [1] x [0]}} : bf16[2048, 1024]\n",
        i, i + 1);
  text += fmt::format("  return %x{}\n}}\n", layers);
  CompileOptions options;
  options.assemble = false;
  std::vector<std::string> out;
  for (const Launch& launch : compile(parse(text), parse_target(target), options).launches)
    out.push_back(launch.artifact == Launch::kCollective
                      ? fmt::format("gather {}", launch.member_count())
                      : "dot");
  return out;
}

// On a GPU, weights are gathered while the layers before them run.
TEST(Collectives, StartEarlyEnoughToBeHidden) {
  EXPECT_THAT(steps_of_gathered_chain(5, "sm_90a link=5e-6 links=2.5e+11"),
              ElementsAre("gather 4", "dot", "dot", "dot", "gather 1", "dot", "dot"));
  // A bucket holds less than one more of the weights, so there is no memory to gather the last one
  // earlier.
  EXPECT_THAT(steps_of_gathered_chain(3, "sm_90a link=1e-9 links=2.5e+14"),
              ElementsAre("gather 1", "gather 1", "dot", "dot", "gather 1", "dot"));
  // A CPU device does one step after the other.
  EXPECT_THAT(steps_of_gathered_chain(3, "x86-64-v3 link=1e-9 links=2.5e+14"),
              ElementsAre("gather 1", "dot", "gather 1", "dot", "gather 1", "dot"));
}

// A collective keeps its order beside kernels, its slots stay until it has read them, and a result
// may take over an argument's memory.
TEST(Collectives, AmongKernels) {
  const Graph graph = parse(R"(mesh data: 2
mesh model: 2
graph @g(%x: f32[8, 8] varying [data, model], %w: f32[8, 8]) {
  %p = dot %x, %w {contract: [1] x [0]} : f32[8, 8]
  %q = all_reduce sum %p {over: model} : f32[8, 8]
  %t = tanh %q : f32[8, 8]
  %s = reduce_scatter sum %t {over: data} : f32[4, 8]
  %a = all_gather %s {over: data} : f32[8, 8]
  %u = add %a, %x : f32[8, 8]
  %v = mul %q, %w : f32[8, 8]
  return %u as "u", %v as "v" updates %w
}
)");
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 2}});
  std::vector<std::vector<HostTensor>> inputs = one_each(mesh, DType::F32, {8, 8});
  for (auto& device : inputs) {
    for (int64_t i = 0; i < 64; ++i) device[0].set_double(i, device[0].get_double(i) * 0.01);
    device.push_back(numbers(DType::F32, {8, 8}, 0.125));
  }
  EXPECT_TRUE(agrees(mesh, graph, inputs));
}

TEST(Collectives, ProgramTextIsExact) {
  const Graph graph = parse(R"(mesh data: 2
graph @g(%x: f32[4] varying [data]) {
  %i = axis_index {over: data} : i64[]
  %f = convert %i : f32[]
  %y = add %x, %f : f32[4]
  %p = permute %y {over: data, shift: 1} : f32[4]
  %s = all_reduce max %p {over: data} : f32[4]
  return %s as "s"
}
)");
  const Program program = compile(graph, Device("cpu").target());
  const std::string text = to_text(program);
  EXPECT_THAT(text, HasSubstr("mesh data: 2"));
  EXPECT_THAT(text, HasSubstr("collective permute over data shift 1 slot"));
  EXPECT_THAT(text, HasSubstr("collective all_reduce max over data slot"));
  EXPECT_THAT(text, HasSubstr("varying [data]"));
  EXPECT_EQ(to_text(parse_program(text, "test", blobs_of(program))), text);
  // With a bound of blocks, as programs for GPUs have.
  Program bounded = program;
  for (Launch& launch : bounded.launches)
    if (launch.artifact == Launch::kCollective) launch.collective.blocks = 4;
  const std::string of_bounded = to_text(bounded);
  EXPECT_THAT(of_bounded, HasSubstr("collective permute over data shift 1 blocks 4 slot"));
  EXPECT_EQ(to_text(parse_program(of_bounded, "test", blobs_of(bounded))), of_bounded);
}

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CollectivesRefused, WhatDoesNotFit) {
  EXPECT_THAT(refusal(one_op("reduce_scatter sum %x {over: data}", "f32[3]", "f32[1]")),
              HasSubstr("cannot be divided by the 2 devices along data"));
  EXPECT_THAT(refusal(one_op("all_gather %x {over: data}", "f32[]", "f32[2]")),
              HasSubstr("a scalar cannot be divided into blocks"));
  EXPECT_THAT(refusal(one_op("all_reduce sum %x {over: rows}", "f32[3]", "f32[3]")),
              HasSubstr("the axis \"rows\" of the mesh is not declared"));
  EXPECT_THAT(refusal(one_op("permute %x {over: data, shift: 2}", "f32[3]", "f32[3]")),
              HasSubstr("the shift 2 must be below 2, the number of devices along data"));
  EXPECT_THAT(refusal(one_op("all_reduce sum %x {over: data}", "bool[3]", "bool[3]")),
              HasSubstr("operand 0 is bool"));
  EXPECT_THAT(refusal("mesh data: 0\ngraph @g() {\n  return\n}\n"), HasSubstr("1 to 4096 devices"));
  EXPECT_THAT(refusal("mesh data: 2\ngraph @g() {\n  return\n}\n"),
              HasSubstr("the axis data of the mesh is not used"));
}

TEST(CollectivesRefused, AnAxisOfTwoSizes) {
  Graph graph("g");
  const NodeId x = build::input(graph, "x", {DType::F32, {4}}, {}, {{"data", 2}});
  graph.set_outputs(
      {{build::collective(graph, {CollectiveKind::AllReduce, {"data", 4}}, x), "y", {}}});
  const std::vector<Diagnostic> findings = verify(graph);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].message, HasSubstr("two different sizes"));
}

TEST(CollectivesRefused, OneDeviceAlone) {
  const Graph graph = parse(one_op("all_reduce sum %x {over: data}", "f32[4]", "f32[4]"));
  const std::vector<HostTensor> inputs = {numbers(DType::F32, {4}, 0)};
  const auto message = [](auto&& run) -> std::string {
    try {
      run();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] { interpret(graph, inputs); }), HasSubstr("for the devices of a mesh"));
  EXPECT_THAT(message([&] {
                Executable::load(
                    std::make_shared<const Program>(compile(graph, Device("cpu").target())), "cpu");
              }),
              HasSubstr("is for the devices of a mesh (data: 2), not for cpu alone"));
}

TEST(Varying, FollowsFromTheOps) {
  const Graph graph = parse(R"(mesh data: 2
mesh model: 2
graph @g(%x: f32[4] varying [data], %w: f32[4] varying [model], %c: f32[4]) {
  %a = add %x, %w : f32[4]
  %b = all_reduce sum %a {over: data} : f32[4]
  %d = mul %b, %c : f32[4]
  %e = permute %c {over: data, shift: 1} : f32[4]
  return %a as "a", %b as "b", %d as "d", %e as "e"
}
)");
  const std::vector<AxisSet> varying = varying_axes(graph);
  const auto of = [&](size_t output) {
    std::vector<std::string> names;
    for (const MeshAxis& axis : varying[graph.outputs()[output].node.index])
      names.push_back(axis.name);
    return names;
  };
  EXPECT_THAT(of(0), ElementsAre("data", "model"));
  EXPECT_THAT(of(1), ElementsAre("model"));
  EXPECT_THAT(of(2), ElementsAre("model"));
  EXPECT_THAT(of(3), ElementsAre("data"));
}

}  // namespace
}  // namespace braze
