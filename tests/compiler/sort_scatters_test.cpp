// Scatters of random shapes whose terms are sorted by place: what the pass makes of them, by the
// interpreter and by the kernels of all machines.
#include "compiler/passes/sort_scatters.h"

#include <gtest/gtest.h>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/random.h"

namespace braze {
namespace {

/// A machine for which comparisons take so long that every scatter is worth a sort.
Target slow() {
  Target target = find_target("sm_90a").value();
  target.flops_per_second = 1;
  return target;
}

struct RandomScatter {
  Graph graph{"scatter"};
  std::vector<HostTensor> inputs;
  bool is_sorted = true;  // for a machine that is slow

  RandomScatter(uint64_t seed, int64_t most_terms) {
    fuzz::Random random(seed);
    const auto rank = random.within(1, 3), axis = random.within(0, rank - 1);
    std::vector<Expr> dims, of_updates, of_indices;
    for (int64_t a = 0; a < rank; ++a) dims.emplace_back(random.within(1, a == axis ? 40 : 5));
    of_indices.emplace_back(random.within(2, most_terms));
    if (random.one_in(3)) of_indices.emplace_back(random.within(1, 3));
    of_updates.assign(dims.begin(), dims.begin() + axis);
    of_updates.insert(of_updates.end(), of_indices.begin(), of_indices.end());
    of_updates.insert(of_updates.end(), dims.begin() + axis + 1, dims.end());
    const DType dtype =
        random.pick({DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32,
                     DType::U8, DType::I16, DType::U32, DType::I64, DType::U64, DType::Bool});
    const NodeId x = build::input(graph, "x", {dtype, Shape(dims)});
    const NodeId indices =
        build::input(graph, "i", {random.pick({DType::I32, DType::I64}), Shape(of_indices)});
    const NodeId updates = build::input(graph, "u", {dtype, Shape(of_updates)});
    ScatterOp op{.axis = axis};
    if (random.one_in(3)) op.monoid = random.pick({Monoid::Max, Monoid::Min, Monoid::Prod});
    if (dtype == DType::Bool) op.monoid = random.pick({Monoid::And, Monoid::Or});
    if (random.one_in(5)) op.monoid.reset();
    is_sorted = dtype != DType::U64 || !op.monoid;  // a scan of tuples has no parts of u64
    graph.set_outputs({{build::scatter(graph, op, x, indices, updates), "y", {}}});
    inputs = fuzz::random_inputs(graph, seed);
    // Many terms at few places, and places without terms.
    const int64_t places = *dims[static_cast<size_t>(axis)].as_constant();
    const int64_t used = random.one_in(2) ? places : random.within(1, std::min<int64_t>(places, 3));
    for (int64_t i = 0; i < inputs[1].numel(); ++i)
      inputs[1].set_int(i, places - 1 - random.within(0, used - 1));
  }
};

bool scatters(const Graph& graph) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (graph[NodeId(i)].as<ScatterOp>()) return true;
  return false;
}

TEST(SortScatters, OfRandomShapes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const RandomScatter of(seed, 90);
    const Graph sorted = sort_scatters(of.graph, slow());
    ASSERT_EQ(!scatters(sorted), of.is_sorted);
    const CheckResult result = check_outputs(of.graph, of.inputs, interpret(sorted, of.inputs));
    EXPECT_TRUE(result.ok) << result.summary() << to_text(of.graph) << to_text(sorted);
  }
}

TEST(SortScatters, OnAllMachines) {
  for (const char* name : {"cpu", "sim:sm_90", "sim:sm_80"}) {
    const Device device(name);
    for (uint64_t seed = 1000; seed < 1008; ++seed) {
      SCOPED_TRACE(fmt::format("{} on {}", seed, name));
      const RandomScatter of(seed, 150);
      const auto program = testing::compile_for(device, sort_scatters(of.graph, slow()));
      const CheckResult result =
          testing::check(of.graph, of.inputs, testing::run(program, device, of.inputs));
      EXPECT_TRUE(result.ok) << result.summary() << to_text(of.graph);
    }
  }
}

// What decides: many terms are sorted, few are not, and none are where they leave most of x alone.
TEST(SortScatters, OnlyWhereThereAreManyTerms) {
  const auto is_sorted = [](int64_t terms, int64_t places, int64_t width, bool in_place) {
    Graph graph("scatter");
    const NodeId x = build::input(graph, "x", {DType::F32, Shape({places, width})});
    const NodeId i = build::input(graph, "i", {DType::I64, Shape({terms})});
    const NodeId u = build::input(graph, "u", {DType::F32, Shape({terms, width})});
    const NodeId y = build::scatter_add(graph, x, i, u, 0);
    graph.set_outputs({{y, "y", in_place ? std::optional<uint32_t>(0) : std::nullopt}});
    return !scatters(sort_scatters(graph, find_target("sm_90a").value()));
  };
  EXPECT_TRUE(is_sorted(200000, 20000, 128, false));
  EXPECT_TRUE(is_sorted(4194304, 4194304, 1, false));
  EXPECT_FALSE(is_sorted(1000, 20000, 128, false));
  EXPECT_TRUE(is_sorted(40000, 1 << 24, 128, false));
  EXPECT_FALSE(is_sorted(40000, 1 << 24, 128, true));
}

}  // namespace
}  // namespace braze
