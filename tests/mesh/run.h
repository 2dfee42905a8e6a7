// run.h — runs graphs over meshes of CPU devices and judges the results.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/compile.h"
#include "braze/mesh.h"
#include "ir/graph/check.h"
#include "ir/graph/shards.h"
#include "ir/graph/text.h"
#include "ir/program/package.h"
#include "ir/target/target.h"
#include "runtime/mesh/mesh_executable.h"

namespace braze::testing {

/// first, first + 0.37 .. for floats, first, first + 1 .. for integers; of bools every third is
/// true.
inline HostTensor numbers(DType dtype, std::vector<int64_t> shape, double first) {
  HostTensor x(dtype, std::move(shape));
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (dtype == DType::Bool)
      x.set_bits(i, (i + static_cast<int64_t>(first)) % 3 == 0);
    else if (is_floating(dtype))
      x.set_double(i, first + 0.37 * static_cast<double>(i));
    else
      x.set_int(i, static_cast<int64_t>(first) + i);
  }
  return x;
}

/// CPU devices with these axes.
inline Mesh cpu_mesh(std::vector<MeshAxis> axes) {
  set_cpu_device_count(8);
  const DeviceGuard guard("cpu");
  return Mesh(std::move(axes));
}

/// What every device returns, by device.
inline std::vector<std::vector<HostTensor>> run_program(
    const Mesh& mesh, const Program& compiled, std::span<const std::vector<HostTensor>> inputs) {
  // Through a file's bytes, as packages and caches have it.
  const std::string bytes = encode(compiled);
  const auto program =
      std::make_shared<const Program>(decode(std::as_bytes(std::span(bytes)), "test"));
  std::vector<std::vector<Array>> arguments(mesh.size());
  for (size_t device = 0; device < mesh.size(); ++device)
    for (const HostTensor& input : inputs[device])
      arguments[device].push_back(Array::from_host(input, mesh.devices()[device]));
  // It lives until all is read: its end waits for what is under way.
  const MeshExecutable run = MeshExecutable::load(program, mesh);
  std::vector<std::vector<HostTensor>> out;
  for (const std::vector<Array>& device : run.run(arguments)) {
    std::vector<HostTensor>& values = out.emplace_back();
    for (const Array& result : device) values.push_back(result.to_host());
  }
  return out;
}

inline std::vector<std::vector<HostTensor>> run_on(const Mesh& mesh, const Graph& graph,
                                                   std::span<const std::vector<HostTensor>> inputs,
                                                   const CompileOptions& options = {}) {
  return run_program(mesh, compile(graph, mesh.devices()[0].target(), options), inputs);
}

/// Runs `graph` on every device, as `compiled` if that is given, and compares with what the graph
/// of all devices says.
inline ::testing::AssertionResult agrees(const Mesh& mesh, const Graph& graph,
                                         std::span<const std::vector<HostTensor>> inputs,
                                         const Program* compiled = nullptr) {
  std::vector<HostTensor> got;
  for (std::vector<HostTensor>& device :
       compiled ? run_program(mesh, *compiled, inputs) : run_on(mesh, graph, inputs))
    for (HostTensor& value : device) got.push_back(std::move(value));
  const AllShards all = all_shards(graph, mesh.axes());
  std::span<const NodeId> by_nccl;
  if (mesh.devices()[0].kind() == DeviceKind::Cuda) by_nccl = all.combinations;
  const CheckResult result =
      check_outputs(all.graph, inputs_of(all, inputs), got, Precision::Standard, by_nccl);
  if (result.ok) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "over " << mesh.to_string() << "\n"
                                       << result.summary() << "\n"
                                       << to_text(graph);
}

inline Graph parse(const std::string& text) {
  return parse_graph("braze 1 graph\n" + text, "test");
}

}  // namespace braze::testing
