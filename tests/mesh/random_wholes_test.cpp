// Random graphs of whole tensors, spread at random over meshes of 1 to 8 devices: all devices
// together return what the graph says, interpreted, and for some of them on CPU devices. With
// BRAZE_TEST_MESH=cuda those run on GPUs (gpus.h), and the others are left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "tests/fuzz/generator.h"
#include "tests/mesh/gpus.h"
#include "tests/mesh/whole.h"

namespace braze {
namespace {

constexpr uint64_t kGraphs = 2000;
constexpr uint64_t kGraphsATest = 100;
constexpr uint64_t kCompiled = 20;  // one of so many

using Random = std::mt19937_64;

std::vector<MeshAxis> random_mesh(Random& random) {
  const std::vector<std::vector<MeshAxis>> meshes = {
      {{"data", 1}},
      {{"data", 2}},
      {{"data", 3}},
      {{"data", 4}},
      {{"data", 2}, {"model", 2}},
      {{"data", 5}},
      {{"data", 2}, {"model", 3}},
      {{"data", 7}},
      {{"data", 2}, {"model", 1}, {"pipe", 3}},
      {{"data", 2}, {"model", 2}, {"pipe", 2}},
      {{"data", 4}, {"model", 2}},
  };
  return meshes[random() % meshes.size()];
}

Sharding random_sharding(const TensorType& type, std::span<const MeshAxis> mesh, Random& random) {
  std::vector<std::string> axes;
  for (const Expr& extent : type.shape) {
    std::string& axis = axes.emplace_back();
    const MeshAxis& by = mesh[random() % mesh.size()];
    if (random() % 3 != 0 && extent.is_multiple_of(by.size) &&
        std::ranges::find(axes, by.name) == axes.end())
      axis = by.name;
  }
  return Sharding(std::move(axes));
}

/// Some values are said to be spread in some way: one of `rarity`.
Graph constrained(const Graph& graph, std::span<const MeshAxis> mesh, uint64_t rarity,
                  Random& random) {
  return rewrite(graph, [&](const Rewriting& step) {
    const NodeId x = step.keep();
    if (random() % rarity != 0) return x;
    const Sharding sharding = random_sharding(step.result[x].type, mesh, random);
    return build::node(step.result, ConstrainOp{sharding}, {x}, {});
  });
}

class RandomWholes : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomWholes, AreWhatAllDevicesDo) {
  uint64_t with_collectives = 0;
  for (uint64_t seed = GetParam(); seed < GetParam() + kGraphsATest; ++seed) {
    const bool runs = seed % kCompiled == 0;
    if (testing::on_gpus() && !runs) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const std::vector<MeshAxis> axes = random_mesh(random);
    const fuzz::GraphOptions small{
        .max_nodes = 16, .max_elements = 256, .max_products = 1 << 12, .symbolic = false};
    const Graph plain = fuzz::random_graph(seed, small);
    // Statements that exclude each other are refused. Then fewer are made.
    std::optional<Graph> graph;
    std::optional<Distributed> made;
    for (uint64_t rarity = 3; !made; rarity *= 2) {
      graph = constrained(plain, axes, rarity, random);
      ASSERT_EQ(to_text(parse_graph(to_text(*graph), "text")), to_text(*graph));
      std::vector<std::optional<Sharding>> in;
      for (const NodeId input : graph->inputs()) {
        in.emplace_back();
        if (random() % rarity < 2) in.back() = random_sharding((*graph)[input].type, axes, random);
      }
      try {
        made = distribute(*graph, axes, in, {});
      } catch (const Error& error) {
        ASSERT_EQ(error.code().name, "sharding-conflict") << error.what();
        ASSERT_LT(rarity, uint64_t{1} << 40);
      }
    }
    with_collectives += !made->collectives.empty();
    const std::vector<HostTensor> inputs = fuzz::random_inputs(*graph, seed);
    EXPECT_TRUE(testing::is_as_whole(*graph, *made, axes, inputs));
    if (runs && testing::can_be_combined(made->graph)) {
      const std::optional<Mesh> mesh = testing::mesh_of(axes);
      if (!mesh) continue;
      const auto shards = testing::shards_of(inputs, made->inputs, axes);
      const Program program = testing::compiled_for(made->graph, *mesh);
      EXPECT_TRUE(testing::agrees(*mesh, made->graph, shards, &program));
      testing::expect_no_misuse();
    }
    if (HasFailure()) return;
  }
  const uint64_t least = testing::on_gpus() ? 0 : kGraphsATest / 5;  // few are left there
  EXPECT_GE(with_collectives, least);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomWholes, ::testing::Range<uint64_t>(0, kGraphs, kGraphsATest));

}  // namespace
}  // namespace braze
