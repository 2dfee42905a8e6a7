#include "frontend/builder/kernel_checks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "braze/array.h"
#include "braze/executable.h"
#include "ir/graph/interpret.h"
#include "ir/graph/reference.h"
#include "ir/support/parallel.h"
#include "ir/support/progress.h"

namespace braze {

namespace {

/// The values of all nodes that some launch reads, as the interpreter computes them.
class Values {
 public:
  Values(const SingleLaunches& all, std::span<const HostTensor> inputs)
      : sizes_(check_inputs(all.graph, inputs)) {
    Graph graph = all.graph;
    std::vector<GraphOutput> outputs;
    for (const SingleLaunch& launch : all.launches)
      for (const NodeId node : launch.values)
        if (place_.emplace(node, outputs.size()).second) outputs.push_back({node, "", {}});
    graph.set_outputs(std::move(outputs));
    values_ = interpret(graph, inputs);
  }

  /// The inputs of the graph of a launch.
  std::vector<HostTensor> inputs_of(const SingleLaunch& launch) const {
    std::vector<HostTensor> out;
    for (const NodeId node : launch.values) out.push_back(values_[place_.at(node)]);
    for (size_t i = out.size(); i < launch.graph.inputs().size(); ++i) {
      const TensorType& type = launch.graph[launch.graph.inputs()[i]].type;
      out.emplace_back(type.dtype, sizes_(type.shape));
    }
    return out;
  }

 private:
  const Sizes sizes_;
  std::map<NodeId, size_t> place_;
  std::vector<HostTensor> values_;
};

// The same elements, in the shapes that the passes have given to the inputs.
std::vector<HostTensor> shaped(const Graph& graph, std::span<const HostTensor> inputs) {
  std::vector<HostTensor> out(inputs.begin(), inputs.end());
  for (size_t i = 0; i < std::min(out.size(), graph.inputs().size()); ++i) {
    const Shape& wanted = graph[graph.inputs()[i]].type.shape;
    if (wanted.numel() != Expr(out[i].numel()) || Shape::of(out[i].shape()) == wanted) continue;
    // Of an empty tensor some extents may be symbols.
    std::vector<int64_t> shape;
    for (const Expr& extent : wanted)
      if (const auto constant = extent.as_constant()) shape.push_back(*constant);
    if (shape.size() != wanted.rank()) continue;
    HostTensor other(out[i].dtype(), std::move(shape));
    std::memcpy(other.data(), out[i].data(), out[i].size_bytes());
    out[i] = std::move(other);
  }
  return out;
}

bool is_exact(const Bounded& expected) {
  return std::ranges::all_of(expected.bound, [](double bound) { return bound == 0; });
}

KernelCheck check_launch(const SingleLaunch& launch, std::span<const HostTensor> inputs,
                         const Device& device) {
  std::vector<Array> arguments;
  for (const HostTensor& input : inputs) arguments.push_back(Array::from_host(input, device));
  const auto program = std::make_shared<const Program>(launch.program);
  const std::vector<Array> results = Executable::load(program, device).run(arguments);
  const std::vector<Bounded> expected = reference(launch.graph, inputs, launch.leeways);
  KernelCheck out{launch.name, launch.members, launch.nodes, {}};
  for (size_t i = 0; i < results.size(); ++i) {
    OutputCheck check{launch.graph.outputs()[i].name, is_exact(expected[i]),
                      compare(results[i].to_host(), expected[i])};
    out.result.ok &= check.comparison.ok;
    out.result.outputs.push_back(std::move(check));
  }
  return out;
}

}  // namespace

double KernelCheck::tightness() const {
  double least = -1;
  for (const OutputCheck& output : result.outputs) {
    const double median = output.comparison.median_ratio;
    if (median >= 0) least = least < 0 ? median : std::min(least, median);
  }
  return least;
}

std::vector<KernelCheck> check_kernels(const SingleLaunches& all,
                                       std::span<const HostTensor> inputs, const Device& device) {
  const Values values = [&] {
    const Progress progress("interpreting " + all.graph.name());
    return Values(all, shaped(all.graph, inputs));
  }();
  std::vector<KernelCheck> out(all.launches.size());
  Progress progress("judging " + all.graph.name(), "kernel", out.size());
  parallel_for(out.size(), [&](size_t i) {
    const SingleLaunch& launch = all.launches[i];
    out[i] = check_launch(launch, values.inputs_of(launch), device);
    progress.advance();
  });
  return out;
}

std::vector<KernelCheck> check_kernels(const Graph& graph, std::span<const HostTensor> inputs,
                                       const Device& device, const CompileOptions& options) {
  check_inputs(graph, inputs);
  return check_kernels(compile_single_launches(graph, device.target(), options), inputs, device);
}

}  // namespace braze
