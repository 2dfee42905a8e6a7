// Gradients through collectives: what every device gets is the gradient of what all of them
// compute, as the graph of all devices, which has no collectives, says.
#include <gtest/gtest.h>

#include <random>

#include "frontend/autodiff/gradient.h"
#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/support/text.h"
#include "tests/mesh/run.h"

namespace braze {
namespace {

/// Compares d (sum of the losses) / d inputs: devices along which the loss does not vary share one.
::testing::AssertionResult gradients_agree(const Graph& graph, std::span<const MeshAxis> mesh,
                                           std::span<const std::vector<HostTensor>> inputs) {
  // On every device.
  Graph local = graph;
  const NodeId loss = graph.outputs()[0].node;
  const std::vector<NodeId> grads = differentiate(local, loss, local.inputs());
  std::vector<GraphOutput> outputs;
  for (const NodeId grad : grads) outputs.push_back({grad, "", {}});
  local.set_outputs(outputs);
  // A gradient varies as its input does, or less.
  const std::vector<AxisSet> varying = varying_axes(local);
  for (size_t i = 0; i < grads.size(); ++i)
    if (!without(varying[grads[i].index], varying[local.inputs()[i].index]).empty())
      return ::testing::AssertionFailure() << "gradient " << i << " varies\n" << to_text(local);
  const auto got = interpret(local, mesh, inputs);

  // Of all devices.
  AllShards all = all_shards(graph, mesh);
  // One loss for all devices that share it.
  const AxisSet differs = varying_axes(graph)[loss.index];
  NodeId total;
  for (size_t device = 0; device < all.inputs.size(); ++device) {
    const std::vector<int64_t> places = places_of(mesh, static_cast<int64_t>(device));
    bool first = true;
    for (size_t k = 0; k < mesh.size(); ++k)
      first &= places[k] == 0 || contains(differs, mesh[k].name);
    if (!first) continue;
    const NodeId one = all.graph.outputs()[device].node;
    total = total ? build::map(all.graph, ElementwiseOp::add, {total, one}) : one;
  }
  const std::vector<NodeId> wanted = differentiate(all.graph, total, all.graph.inputs());
  outputs.clear();
  for (const NodeId grad : wanted) outputs.push_back({grad, "", {}});
  all.graph.set_outputs(outputs);
  const std::vector<HostTensor> expected = interpret(all.graph, inputs_of(all, inputs));

  for (size_t device = 0; device < got.size(); ++device) {
    for (size_t i = 0; i < got[device].size(); ++i) {
      const HostTensor& x = got[device][i];
      const HostTensor& y = expected[all.inputs[device][i]];
      for (int64_t k = 0; k < x.numel(); ++k)
        if (!(std::abs(x.get_double(k) - y.get_double(k)) <=
              1e-9 * std::max(1.0, std::abs(y.get_double(k)))))
          return ::testing::AssertionFailure()
                 << "device " << device << ", input " << i << ", element " << k << ": "
                 << x.get_double(k) << " and not " << y.get_double(k) << "\n"
                 << to_text(graph) << to_text(local);
    }
  }
  return ::testing::AssertionSuccess();
}

/// Random smooth functions of a few inputs that vary over some axes each.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {
    if (pick(2) == 0)
      mesh_ = {{"data", 1 + pick(4)}};
    else
      mesh_ = {{"data", 2}, {"model", 1 + pick(3)}};
    lines_ = 1;
    for (const MeshAxis& axis : mesh_) lines_ *= axis.size;  // divides into all of them
  }

  Graph run() {
    const TensorType type{DType::F64, {lines_, 2}};
    for (int i = 0; i < 3; ++i) {
      std::vector<MeshAxis> varying;
      for (const MeshAxis& axis : mesh_)
        if (pick(2) == 0) varying.push_back(axis);
      values_.push_back(build::input(graph_, fmt::format("x{}", i), type, {}, varying));
    }
    for (int64_t step = 3 + pick(8); step > 0; --step) values_.push_back(next());
    NodeId sum = values_.back();
    for (size_t i = 0; i < 2; ++i) sum = build::map(graph_, ElementwiseOp::add, {sum, any()});
    NodeId loss = build::reduce(graph_, Monoid::Sum, sum, {0, 1});
    // Of one value on all devices, on most of them, or not.
    const bool whole = pick(4) != 0;
    const AxisSet differs = varying_axes(graph_)[loss.index];
    for (const MeshAxis& axis : differs)
      if (whole || pick(2) == 0)
        loss = build::collective(graph_, {CollectiveKind::AllReduce, axis}, loss);
    graph_.set_outputs({{loss, "loss", {}}});
    return graph_;
  }

  std::vector<std::vector<HostTensor>> inputs() {
    const AllShards all = all_shards(graph_, mesh_);
    std::vector<HostTensor> values;
    std::uniform_real_distribution<double> number(0.5, 1.5);
    for (size_t i = 0; i < all.graph.inputs().size(); ++i) {
      HostTensor& x = values.emplace_back(DType::F64, std::vector<int64_t>{lines_, 2});
      for (int64_t k = 0; k < x.numel(); ++k) x.set_double(k, number(random_));
    }
    std::vector<std::vector<HostTensor>> out(all.inputs.size());
    for (size_t device = 0; device < out.size(); ++device)
      for (const uint32_t input : all.inputs[device]) out[device].push_back(values[input]);
    return out;
  }
  const std::vector<MeshAxis>& mesh() const { return mesh_; }

 private:
  int64_t pick(int64_t count) { return static_cast<int64_t>(random_() % uint64_t(count)); }
  NodeId any() { return values_[static_cast<size_t>(pick(static_cast<int64_t>(values_.size())))]; }

  NodeId next() {
    const NodeId x = any();
    const MeshAxis axis = mesh_[static_cast<size_t>(pick(static_cast<int64_t>(mesh_.size())))];
    const auto together = [&](CollectiveKind kind, Monoid monoid = Monoid::Sum,
                              int64_t offset = 0) {
      return build::collective(graph_, {kind, axis, monoid, offset}, x);
    };
    switch (pick(10)) {
      case 0:
        return build::map(graph_, ElementwiseOp::mul, {x, any()});
      case 1:
        return build::map(graph_, ElementwiseOp::add, {x, any()});
      case 2:
        return build::map(graph_, ElementwiseOp::tanh, {x});
      case 3:
        return together(CollectiveKind::AllReduce);
      case 4: {
        const Monoid monoids[] = {Monoid::Prod, Monoid::Max, Monoid::Min};
        return together(CollectiveKind::AllReduce, monoids[pick(3)]);
      }
      case 5: {
        // Gathered, used in its own way on each device, and scattered.
        const NodeId all = together(CollectiveKind::AllGather);
        const NodeId place = build::convert(graph_, build::axis_index(graph_, axis), DType::F64);
        const NodeId own = build::map(graph_, ElementwiseOp::add, {all, place});
        const NodeId used = pick(2) == 0 ? all : build::map(graph_, ElementwiseOp::mul, {all, own});
        const Monoid monoid = pick(2) == 0 ? Monoid::Sum : Monoid::Max;
        return build::collective(graph_, {CollectiveKind::ReduceScatter, axis, monoid}, used);
      }
      case 6:
        return together(CollectiveKind::BroadcastOver, Monoid::Sum, pick(axis.size));
      case 7:
        return together(CollectiveKind::Permute, Monoid::Sum, pick(axis.size));
      case 8:
        return together(CollectiveKind::AllToAll);
      default: {
        const NodeId place = build::convert(graph_, build::axis_index(graph_, axis), DType::F64);
        return build::map(graph_, ElementwiseOp::mul, {x, place});
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<MeshAxis> mesh_;
  int64_t lines_ = 1;
  Graph graph_{"f"};
  std::vector<NodeId> values_;
};

TEST(MeshGradients, OfRandomFunctions) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator generator(seed);
    const Graph graph = generator.run();
    ASSERT_TRUE(gradients_agree(graph, generator.mesh(), generator.inputs()));
  }
}

int64_t count(const Graph& graph, CollectiveKind kind) {
  int64_t found = 0;
  for (size_t i = 0; i < graph.size(); ++i) {
    const auto* op = graph[NodeId(i)].as<CollectiveOp>();
    found += op && op->kind == kind;
  }
  return found;
}

Graph gradient_of(const std::string& text) {
  Graph graph = testing::parse(text);
  const NodeId loss = graph.outputs()[0].node;
  const std::vector<NodeId> grads = differentiate(graph, loss, graph.inputs());
  std::vector<GraphOutput> outputs;
  for (const NodeId grad : grads) outputs.push_back({grad, "", {}});
  graph.set_outputs(outputs);
  return graph;
}

// A shared weight that is used twice has its gradient summed up once.
TEST(MeshGradients, OneSumForAllUses) {
  const Graph graph = gradient_of(R"(mesh data: 2
graph @f(%w: f64[4], %x: f64[4] varying [data]) {
  %a = mul %w, %x : f64[4]
  %b = add %w, %x : f64[4]
  %c = mul %a, %b : f64[4]
  %l = reduce sum %c {axes: [0]} : f64[]
  %m = all_reduce sum %l {over: data} : f64[]
  return %m as "m"
}
)");
  EXPECT_EQ(count(graph, CollectiveKind::AllReduce), 2);  // the loss's own, and one for w
}

// What is gathered for use gets its gradient by reduce_scatter: parameters that are sharded.
TEST(MeshGradients, OfWhatIsGatheredIsScattered) {
  const Graph graph = gradient_of(R"(mesh data: 2
graph @f(%w: f64[2] varying [data], %x: f64[4] varying [data]) {
  %all = all_gather %w {over: data} : f64[4]
  %a = mul %all, %x : f64[4]
  %l = reduce sum %a {axes: [0]} : f64[]
  %m = all_reduce sum %l {over: data} : f64[]
  return %m as "m"
}
)");
  EXPECT_EQ(count(graph, CollectiveKind::ReduceScatter), 1);
  EXPECT_EQ(count(graph, CollectiveKind::AllReduce), 1);
}

}  // namespace
}  // namespace braze
