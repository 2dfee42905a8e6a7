// Custom calls in CUDA streams: on a GPU, or on the fake driver, which does the work of a stream as
// late as it may.
#include <mutex>
#include <vector>

#include "braze/compile.h"
#include "braze/custom_function.h"
#include "braze/stream.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "runtime/devices/cuda/driver_api.h"
#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/cuda/simulated.h"

namespace braze::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<void*> streams_seen;

/// The second half of operand 0, then the first, by copies in the stream.
std::string swap_halves(const CustomArguments& call) {
  const cuda::Api& api = *CudaSystem::get().api();
  const auto from = reinterpret_cast<uintptr_t>(call.operands[0].data);
  const auto to = reinterpret_cast<uintptr_t>(call.result.data);
  const size_t half = call.result.bytes / 2;
  const auto stream = static_cast<cuda::CUstream>(call.stream);
  streams_seen.push_back(call.stream);
  if (call.attributes == "fail") return "it was told to fail";
  if (half == 0) return "";
  const bool done = api.memcpy_d_to_d_async(to, from + half, half, stream) == cuda::CUDA_SUCCESS &&
                    api.memcpy_d_to_d_async(to + half, from, half, stream) == cuda::CUDA_SUCCESS;
  return done ? "" : "a copy failed";
}

std::string swap_on_host(const CustomArguments& call) {
  const std::span<float> from = call.operands[0].as<float>(), to = call.result.as<float>();
  const size_t half = to.size() / 2;
  for (size_t i = 0; i < to.size(); ++i) to[i] = from[(i + half) % to.size()];
  return "";
}

class CustomCallsInStreams : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    if (IsSkipped()) return;
    static std::once_flag once;
    std::call_once(once, [] {
      register_custom_call("test.swap", DeviceKind::Cuda, swap_halves);
      register_custom_call("test.swap", DeviceKind::Cpu, swap_on_host);
      register_custom_call("test.host", DeviceKind::Cpu, swap_on_host);
    });
    if (fake_cuda()) simulate_on_fake();
    streams_seen.clear();
  }

  Program compiled(std::string_view call) const { return compiled_graph(graph_of(call)); }
  static Graph graph_of(std::string_view call) {
    return parse_graph(
        "braze 1 graph\ngraph @f(%x: f32[512]) {\n  %y = add %x, %x : f32[512]\n  %z = " +
            std::string(call) + " : f32[512]\n  %w = add %z, %y : f32[512]\n  return %w, %z\n}\n",
        "test.braze");
  }
  Program compiled_graph(const Graph& graph) const {
    if (fake_cuda()) return for_fake(compile(graph, Device("sim:sm_80").target()));
    return compile(graph, gpu_.target());
  }
  Executable loaded(std::string_view call) const {
    return Executable::load(std::make_shared<const Program>(compiled(call)), gpu_);
  }
};

constexpr const char* kSwap = R"(custom_call %y {target: "test.swap"})";

TEST_F(CustomCallsInStreams, TheWorkIsInOrderWithKernels) {
  const Executable executable = loaded(kSwap);
  const Graph graph = graph_of(kSwap);
  // Often enough that calls would be recorded if they could be.
  for (int call = 0; call < 5; ++call) {
    HostTensor x(DType::F32, {512});
    for (int i = 0; i < 512; ++i) x.set_double(i, i + 1000 * call);
    const std::vector<Array> results = run(executable, {Array::from_host(x, gpu_)});
    const std::vector<HostTensor> expected = interpret(graph, {&x, 1});
    for (size_t i = 0; i < 2; ++i) {
      const std::span<const float> right = expected[i].as<float>();
      EXPECT_EQ(results[i].to_vector<float>(), Floats(right.begin(), right.end())) << call;
    }
  }
  EXPECT_EQ(streams_seen.size(), 5u) << "the function is called in every call";
  EXPECT_THAT(streams_seen, Each(Stream::main(gpu_).native()));
}

TEST_F(CustomCallsInStreams, TheFunctionGetsTheStreamOfTheCall) {
  const Executable executable = loaded(kSwap);
  const Stream other(gpu_);
  const Array x = filled(512, 3, gpu_);
  Array w;
  {
    const StreamGuard guard(other);
    w = run(executable, {x})[0];
  }
  EXPECT_THAT(streams_seen, ElementsAre(other.native()));
  // The main stream waits for it.
  const std::vector<Array> next = run(executable, {w});
  EXPECT_THAT(next[0].to_vector<float>(), Each(48));
  EXPECT_THAT(w.to_vector<float>(), Each(12));
}

TEST_F(CustomCallsInStreams, AFailureIsThatOfTheCall) {
  const Executable bad = loaded(R"(custom_call %y {target: "test.swap", attributes: "fail"})");
  const std::vector<Array> results = run(bad, {filled(512, 1, gpu_)});
  try {
    results[0].wait();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code().name, "custom-call-failed");
    EXPECT_THAT(error.what(), HasSubstr("it was told to fail"));
    EXPECT_EQ(error.location().to_string(), "test.braze:4:3");
  }
  EXPECT_THAT(run(loaded(kSwap), {filled(512, 1, gpu_)})[0].to_vector<float>(), Each(4));
}

TEST_F(CustomCallsInStreams, AFunctionForTheHostDoesNotServeAGpu) {
  try {
    loaded(R"(custom_call %y {target: "test.host"})");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code().name, "no-custom-function");
    EXPECT_THAT(error.message(), HasSubstr("the one of this name is for memory of the host"));
    EXPECT_THAT(error.fix(), HasSubstr("DeviceKind::Cuda"));
  }
}

}  // namespace
}  // namespace braze::test
