// Members with sizes of their own on a GPU, or on the fake driver with the simulator: one launch
// through a stored program, and the same in recorded calls.
#include "braze/compile.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "ir/program/package.h"
#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/cuda/simulated.h"

namespace braze::test {
namespace {

// The same of six sizes, one of which is 0, and two products that are no one kernel: enough
// launches for a recorded call.
constexpr std::string_view kGraph = R"(braze 1 graph
graph @f(%s: f32[40, 40], %a: f32[30, 7], %b: f32[1000], %c: f32[5], %d: f32[0], %e: f32[128], %g: f32[3, 3, 3], %u: f32[9, 40]) {
  %xa = mul %a, %a : f32[30, 7]
  %ya = sub %a, %xa : f32[30, 7]
  %xb = mul %b, %b : f32[1000]
  %yb = sub %b, %xb : f32[1000]
  %xc = mul %c, %c : f32[5]
  %yc = sub %c, %xc : f32[5]
  %xd = mul %d, %d : f32[0]
  %yd = sub %d, %xd : f32[0]
  %xe = mul %e, %e : f32[128]
  %ye = sub %e, %xe : f32[128]
  %xg = mul %g, %g : f32[3, 3, 3]
  %yg = sub %g, %xg : f32[3, 3, 3]
  %p = dot %s, %s {contract: [1] x [0]} : f32[40, 40]
  %q = dot %p, %u {contract: [0] x [1]} : f32[40, 9]
  return %ya, %yb, %yc, %yd, %ye, %yg, %q
}
)";

TEST_F(Cuda, MembersOfUnlikeSizesAreOneLaunch) {
  const Graph graph = parse_graph(kGraph, "test.braze");
  if (fake_cuda()) simulate_on_fake();
  Program program = fake_cuda() ? for_fake(compile(graph, Device("sim:sm_80").target()))
                                : compile(graph, gpu_.target());
  const std::string bytes = encode(program);
  program = decode(std::as_bytes(std::span(bytes)), "test");
  const auto list = std::ranges::find(program.launches, true, &Launch::unlike);
  ASSERT_NE(list, program.launches.end()) << to_text(graph);
  EXPECT_GE(list->members.size(), 3u);
  EXPECT_EQ(list->grid_rows(), 1u);
  EXPECT_TRUE(list->scalars.empty()) << "the sizes are in the code";
  const Executable executable = Executable::load(std::make_shared<const Program>(program), gpu_);
  for (int call = 0; call < 6; ++call) {
    std::vector<HostTensor> values;
    std::vector<Array> arguments;
    for (const NodeId input : graph.inputs()) {
      HostTensor& x = values.emplace_back(DType::F32, Sizes()(graph[input].type.shape));
      for (int64_t i = 0; i < x.numel(); ++i) x.set_double(i, static_cast<double>(i % 17 + call));
      arguments.push_back(Array::from_host(x, gpu_));
    }
    const std::vector<HostTensor> expected = interpret(graph, values);
    const std::vector<Array> results = run(executable, arguments);
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::span<const float> right = expected[i].as<float>();
      EXPECT_EQ(results[i].to_vector<float>(), Floats(right.begin(), right.end()))
          << "result " << i << " of call " << call;
    }
  }
  if (fake_cuda()) {
    EXPECT_GT(fake_cuda()->calls["cuGraphInstantiateWithFlags"], 0);
  }
}

}  // namespace
}  // namespace braze::test
