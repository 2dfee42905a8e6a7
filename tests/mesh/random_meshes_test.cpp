// Random graphs with collectives among their ops, on meshes of 1 to 8 devices: each device returns
// what the graph of all devices says, interpreted, and compiled for one device. With
// BRAZE_TEST_MESH=cuda on GPUs, as many as there are (gpus.h).
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <random>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/support/text.h"
#include "tests/fuzz/generator.h"
#include "tests/mesh/gpus.h"

namespace braze {
namespace {

constexpr uint64_t kGraphsATest = 20;

/// The number of graphs: BRAZE_TEST_GRAPHS, or as many as a test has time for.
uint64_t graph_count() {
  const char* text = std::getenv("BRAZE_TEST_GRAPHS");
  return text ? std::strtoull(text, nullptr, 10) : 240;
}

std::vector<MeshAxis> random_mesh(std::mt19937_64& random) {
  const std::vector<std::vector<MeshAxis>> meshes = {
      {{"data", 1}},
      {{"data", 2}},
      {{"data", 3}},
      {{"data", 4}},
      {{"data", 2}, {"model", 2}},
      {{"data", 8}},
      {{"data", 2}, {"model", 1}, {"pipe", 3}},
      {{"data", 2}, {"model", 2}, {"pipe", 2}},
  };
  return meshes[random() % meshes.size()];
}

/// For every node: whether an index of a gather or scatter is computed from it. Such indices are
/// right only if their parts belong together, as those of the gradient of a running maximum do.
std::vector<bool> index_parts(const Graph& graph) {
  std::vector<bool> is_part(graph.size(), false);
  for (size_t i = graph.size(); i-- > 0;) {
    const Node& node = graph[NodeId(i)];
    if (node.as<GatherOp>() || node.as<ScatterOp>()) is_part[node.operands[1].index] = true;
    if (is_part[i])
      for (const NodeId operand : node.operands) is_part[operand.index] = true;
  }
  return is_part;
}

/// `graph` with inputs that vary, and collectives behind some of its values.
Graph with_collectives(const Graph& graph, std::span<const MeshAxis> mesh,
                       std::mt19937_64& random) {
  Graph named(graph.name());
  for (size_t i = 0; i < graph.size(); ++i) {
    Node node = graph[NodeId(i)];
    if (auto* input = std::get_if<InputOp>(&node.op))
      for (const MeshAxis& axis : mesh)
        if (random() % 2 == 0) input->varying.push_back(axis);
    named.add(std::move(node));
  }
  std::vector<GraphOutput> outputs = graph.outputs();
  for (GraphOutput& output : outputs) output.updates.reset();
  named.set_outputs(std::move(outputs));
  const std::vector<bool> is_index_part = index_parts(named);
  return rewrite(named, [&](const Rewriting& step) {
    const NodeId x = step.keep();
    const TensorType type = step.result[x].type;
    const MeshAxis axis = mesh[random() % mesh.size()];
    const auto together = [&](CollectiveKind kind, NodeId of, Monoid monoid = Monoid::Sum,
                              int64_t offset = 0) {
      return build::collective(step.result, {kind, axis, monoid, offset}, of);
    };
    if (random() % 3 != 0 || is_index_part[step.id.index]) return x;
    const auto any_offset = static_cast<int64_t>(random() % static_cast<uint64_t>(axis.size));
    // Integers, which may decide something, stay within what they were.
    const bool free = is_arithmetic_float(type.dtype);
    switch (random() % 8) {
      case 0:
        return together(CollectiveKind::Permute, x, Monoid::Sum, any_offset);
      case 1:
        return together(CollectiveKind::BroadcastOver, x, Monoid::Sum, any_offset);
      case 2:
        if (type.shape.rank() == 0 || !type.shape[0].is_multiple_of(axis.size)) return x;
        return together(CollectiveKind::AllToAll, x);
      case 3:
        return free ? together(CollectiveKind::AllReduce, x) : x;
      case 4: {
        const Monoid monoids[] = {Monoid::Max, Monoid::Min, Monoid::Prod};
        const Monoid monoid = monoids[random() % (free ? 3 : 2)];
        const bool fits =
            info(monoid).types.contains(type.dtype) && testing::can_be_combined(type.dtype);
        return fits ? together(CollectiveKind::AllReduce, x, monoid) : x;
      }
      case 5: {
        if (type.shape.rank() == 0 || !free) return x;
        const NodeId all = together(CollectiveKind::AllGather, x);
        return together(CollectiveKind::ReduceScatter, all,
                        random() % 2 ? Monoid::Sum : Monoid::Max);
      }
      case 6: {
        if (type.shape.rank() == 0 || !free) return x;
        // The last device's part of all parts.
        const NodeId all = together(CollectiveKind::AllGather, x);
        std::vector<Expr> starts(type.shape.rank(), Expr(0)), limits = type.shape.dims();
        starts[0] = type.shape[0] * Expr(axis.size - 1);
        limits[0] = type.shape[0] * Expr(axis.size);
        return build::slice(step.result, all, starts, limits,
                            std::vector<int64_t>(type.shape.rank(), 1));
      }
      default: {
        if (!free) return x;
        const NodeId place =
            build::convert(step.result, build::axis_index(step.result, axis), type.dtype);
        return build::map(step.result, ElementwiseOp::add, {x, place});
      }
    }
  });
}

/// Also returns sums over devices, as gradients are: of several values, along one axis, which
/// nothing else needs.
Graph with_sums(Graph graph, std::span<const MeshAxis> mesh, std::mt19937_64& random) {
  constexpr int kMost = 6;
  const MeshAxis axis = mesh[random() % mesh.size()];
  const size_t count = graph.size();
  std::vector<GraphOutput> outputs = graph.outputs();
  for (int i = 0; i < kMost; ++i) {
    const NodeId x(random() % count);
    if (!is_arithmetic_float(graph[x].type.dtype)) continue;
    const NodeId sum = build::collective(graph, {CollectiveKind::AllReduce, axis}, x);
    outputs.push_back(
        {build::map(graph, ElementwiseOp::neg, {sum}), "sum" + std::to_string(i), {}});
  }
  graph.set_outputs(std::move(outputs));
  return graph;
}

/// Inputs of every device; those that do not vary are equal.
std::vector<std::vector<HostTensor>> random_inputs_of(const Graph& graph,
                                                      std::span<const MeshAxis> mesh,
                                                      uint64_t seed) {
  const AllShards all = all_shards(graph, mesh);
  // One draw for each device, so that sizes are the same on all.
  std::vector<std::vector<HostTensor>> draws(all.inputs.size());
  const std::vector<HostTensor> first = fuzz::random_inputs(graph, seed);
  for (size_t device = 0; device < draws.size(); ++device) {
    draws[device] = first;
    for (HostTensor& value : draws[device]) {
      if (device == 0 || value.numel() < 2) continue;
      // The same numbers in another order.
      HostTensor turned = value;
      for (int64_t i = 0; i < value.numel(); ++i)
        turned.set_bits(i, value.get_bits((i + static_cast<int64_t>(device)) % value.numel()));
      value = std::move(turned);
    }
  }
  std::vector<std::vector<HostTensor>> out(draws.size());
  std::vector<const HostTensor*> shared(all.graph.inputs().size());
  for (size_t device = 0; device < draws.size(); ++device) {
    for (size_t i = 0; i < draws[device].size(); ++i) {
      const HostTensor*& value = shared[all.inputs[device][i]];
      if (!value) value = &draws[device][i];
      out[device].push_back(*value);
    }
  }
  return out;
}

class RandomMeshes : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomMeshes, AgreeWithTheInterpreterAndWithOneDevice) {
  for (uint64_t seed = GetParam(); seed < GetParam() + kGraphsATest; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::vector<MeshAxis> axes = random_mesh(random);
    const std::optional<Mesh> found = testing::mesh_of(axes);
    if (!found) continue;
    const Mesh& mesh = *found;
    const fuzz::GraphOptions small{.max_nodes = 16, .max_elements = 256, .max_products = 1 << 12};
    const Graph graph =
        with_sums(with_collectives(fuzz::random_graph(seed, small), axes, random), axes, random);
    ASSERT_EQ(to_text(parse_graph(to_text(graph), "text")), to_text(graph));
    const auto inputs = random_inputs_of(graph, axes, seed);
    const Program program = testing::compiled_for(graph, mesh);
    EXPECT_TRUE(testing::agrees(mesh, graph, inputs, &program));
    testing::expect_no_misuse();
    if (testing::on_gpus() || seed % 8 != 0) continue;
    // The graph of all devices on one of them.
    const AllShards all = all_shards(graph, axes);
    std::vector<Array> arguments;
    for (const HostTensor& input : inputs_of(all, inputs))
      arguments.push_back(Array::from_host(input, "cpu"));
    std::vector<HostTensor> got;
    for (const Array& output :
         Executable::load(
             std::make_shared<const Program>(compile(all.graph, Device("cpu").target())), "cpu")
             .run(arguments))
      got.push_back(output.to_host());
    const CheckResult result = check_outputs(all.graph, inputs_of(all, inputs), got);
    EXPECT_TRUE(result.ok) << result.summary();
  }
  testing::expect_work_of_fake(kGraphsATest);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomMeshes,
                         ::testing::Range<uint64_t>(0, graph_count(), kGraphsATest));

// The same program over the same mesh, several times: large enough that NCCL divides it, with a
// bucket of members whose sums depend on their order, and in 16 bits.
TEST(RepeatedMeshes, GiveTheSameBits) {
  for (const int64_t devices : {2, 4, 8}) {
    const std::optional<Mesh> mesh = testing::mesh_of({{"data", devices}});
    if (!mesh) continue;
    const Graph graph = testing::parse(
        fmt::format("mesh data: {}\n"
                    "graph @g(%x: f32[40000] varying [data], %y: bf16[40000] varying [data]) {{\n"
                    "  %a = all_reduce sum %x {{over: data}} : f32[40000]\n"
                    "  %n = neg %x : f32[40000]\n"
                    "  %b = all_reduce prod %n {{over: data}} : f32[40000]\n"
                    "  %c = all_reduce sum %y {{over: data}} : bf16[40000]\n"
                    "  %d = reduce_scatter sum %y {{over: data}} : bf16[{}]\n"
                    "  return %a as \"a\", %b as \"b\", %c as \"c\", %d as \"d\"\n"
                    "}}\n",
                    devices, 40000 / devices));
    std::vector<std::vector<HostTensor>> inputs;
    for (int64_t device = 0; device < devices; ++device) {
      std::mt19937_64 random(static_cast<uint64_t>(device));
      std::normal_distribution<double> normal;
      std::vector<HostTensor>& own = inputs.emplace_back();
      for (const DType dtype : {DType::F32, DType::BF16}) {
        HostTensor& x = own.emplace_back(dtype, std::vector<int64_t>{40000});
        for (int64_t i = 0; i < x.numel(); ++i) x.set_double(i, normal(random));
      }
    }
    const Program program = testing::compiled_for(graph, *mesh);
    EXPECT_TRUE(testing::agrees(*mesh, graph, inputs, &program));
    const auto first = testing::run_program(*mesh, program, inputs);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto again = testing::run_program(*mesh, program, inputs);
      for (size_t device = 0; device < first.size(); ++device)
        for (size_t o = 0; o < first[device].size(); ++o) {
          const std::span<const std::byte> a(first[device][o].data(),
                                             first[device][o].size_bytes()),
              b(again[device][o].data(), again[device][o].size_bytes());
          EXPECT_TRUE(std::ranges::equal(a, b)) << "output " << o << " on device " << device;
        }
    }
    testing::expect_no_misuse();
  }
}

}  // namespace
}  // namespace braze
