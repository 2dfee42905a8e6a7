// Decoding on a GPU, or on the fake driver with the simulator: the position is a value on the
// device, so calls at all positions are one call to the driver.
#include "braze/compile.h"
#include "braze/jit.h"
#include "braze/nn.h"
#include "ir/graph/check.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/cuda/simulated.h"

namespace braze::test {
namespace {

TEST_F(Cuda, OneRecordServesAllPositions) {
  constexpr int64_t kCapacity = 512, kHeads = 4, kGroups = 2, kWidth = 32;
  constexpr int kCalls = 40, kFirst = 12;
  const auto step = jit([](Tensor keys, Tensor values, Tensor x, Tensor at) {
    const Tensor rows = slice(x, 1, 0, kGroups);
    const auto cache = nn::append({keys, values}, rows, rows * 0.5, at);
    const Tensor y = nn::attention(x, cache.keys, cache.values, {.causal = true, .position = at});
    return std::tuple{cache.keys, cache.values, y, at + 1};
  });
  const Spec rows = spec(f32, {kCapacity, kGroups, kWidth});
  const Graph graph =
      parse_graph(step.graph(rows, rows, spec(f32, {1, kHeads, kWidth}), spec(i32, {1})), "test");
  if (fake_cuda()) simulate_on_fake();
  const Program program = fake_cuda() ? for_fake(compile(graph, Device("sim:sm_80").target()))
                                      : compile(graph, gpu_.target());
  const Executable executable = Executable::load(std::make_shared<const Program>(program), gpu_);

  std::vector<HostTensor> expected;
  for (const NodeId input : graph.inputs())
    expected.emplace_back(graph[input].type.dtype, Sizes()(graph[input].type.shape));
  std::vector<Array> state;
  for (const HostTensor& zeros : expected) state.push_back(Array::from_host(zeros, gpu_));
  int recorded = 0;
  for (int call = 0; call < kCalls; ++call) {
    HostTensor& x = expected[2];
    for (int64_t i = 0; i < x.numel(); ++i) x.set_double(i, (i * 7 + call * 3) % 11 - 5);
    std::vector<Array> out = run(executable, {std::move(state[0]), std::move(state[1]),
                                              Array::from_host(x, gpu_), std::move(state[3])});
    const std::vector<HostTensor> right = interpret(graph, expected);
    const CheckResult result =
        check_outputs(graph, expected, std::vector{right[0], right[1], out[2].to_host(), right[3]});
    EXPECT_TRUE(result.ok) << "at " << call << ": " << result.summary();
    state = {out[0], out[1], Array(), out[3]};
    expected[0] = right[0];
    expected[1] = right[1];
    expected[3] = right[3];
    if (fake_cuda() && call == kFirst) recorded = fake_cuda()->calls["cuGraphInstantiateWithFlags"];
  }
  if (fake_cuda()) {
    EXPECT_GT(recorded, 0);
    EXPECT_EQ(fake_cuda()->calls["cuGraphInstantiateWithFlags"], recorded)
        << "later positions are recorded again";
    EXPECT_GE(fake_cuda()->calls["cuGraphLaunch"], kCalls - kFirst);
  }
}

}  // namespace
}  // namespace braze::test
