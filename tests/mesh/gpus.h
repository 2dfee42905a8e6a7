// gpus.h — meshes of GPUs for tests that also run on CPU devices: those of this machine, or eight
// of the fake driver, where NCCL is a fake one too, everything comes as late as it may, and the
// simulator runs the kernels. BRAZE_TEST_MESH=cuda chooses them.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/devices/cuda/cuda_system.h"
#include "tests/mesh/run.h"
#include "tests/runtime/cuda/fake_cuda.h"
#include "tests/runtime/cuda/simulated.h"

namespace braze::testing {

inline bool on_gpus() {
  const char* text = std::getenv("BRAZE_TEST_MESH");
  return text && std::string_view(text) == "cuda";
}

/// NCCL has no reductions of some integers.
inline bool can_be_combined(DType dtype) {
  return !on_gpus() || (dtype != DType::I16 && dtype != DType::U16);
}
inline bool can_be_combined(const Graph& graph) {
  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph[NodeId(i)];
    const auto* op = node.as<CollectiveOp>();
    if (!op || can_be_combined(node.type.dtype)) continue;
    if (op->kind == CollectiveKind::AllReduce || op->kind == CollectiveKind::ReduceScatter)
      return false;
  }
  return true;
}

/// Before anybody asks which GPUs there are.
inline void prepare_fake() {
  constexpr int kMost = 8;
  if (!test::fake_cuda()) return;
  test::fake_cuda()->devices = kMost;
  test::simulate_on_fake();
}

/// Devices with these axes: CPU devices, or GPUs if `on_gpus`. None if there are fewer GPUs.
inline std::optional<Mesh> mesh_of(const std::vector<MeshAxis>& axes) {
  if (!on_gpus()) return cpu_mesh(axes);
  prepare_fake();
  int64_t count = 1;
  for (const MeshAxis& axis : axes) count *= axis.size;
  if (device_count(DeviceKind::Cuda) < count) {
    EXPECT_FALSE(test::fake_cuda()) << CudaSystem::get().missing();
    return std::nullopt;
  }
  const DeviceGuard guard("cuda:0");
  return Mesh(axes);
}

inline Program compiled_for(const Graph& graph, const Mesh& mesh) {
  Target target = mesh.devices()[0].target();
  if (!on_gpus() || !test::fake_cuda()) return compile(graph, target);
  target.simulated = true;
  return test::for_fake(compile(graph, target));
}

/// Says what the fake driver found wrong so far.
inline void expect_no_misuse() {
  if (!on_gpus() || !test::fake_cuda()) return;
  EXPECT_THAT(test::fake_cuda()->misuse, ::testing::IsEmpty());
  test::fake_cuda()->misuse.clear();
}

/// Expects that the fake driver ran so many kernels, and some collectives. Forgets them.
inline void expect_work_of_fake(size_t kernels) {
  if (!on_gpus() || !test::fake_cuda()) return;
  test::FakeCuda& fake = *test::fake_cuda();
  EXPECT_GT(fake.executed.size(), kernels);
  const auto is_collective = [](const auto& call) { return call.first.starts_with("nccl "); };
  EXPECT_GT(std::ranges::count_if(fake.calls, is_collective), 3);
  fake.reset();
}

}  // namespace braze::testing
