// Custom calls in graphs, on every device that the host has.
#include <thread>
#include <vector>

#include "braze/c.h"
#include "braze/compile.h"
#include "braze/executable.h"
#include "braze/pack.h"
#include "braze/package.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "ir/program/package.h"
#include "ir/program/program.h"
#include "ir/program/text.h"
#include "ir/program/verify.h"
#include "tests/custom/functions.h"
#include "tests/temporary_folder.h"

namespace braze {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kDevices[] = {"interpreter", "cpu", "sim:cpu", "sim:sm_80", "sim:sm_90"};

class CustomCalls : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_functions(); }
};

Graph graph_of(std::string_view text) { return parse_graph(text, "test.braze"); }

Program compiled(const Graph& graph, const Device& device) {
  // Through a file's bytes, as packages and caches have it.
  const std::string bytes = encode(compile(graph, device.target()));
  return decode(std::as_bytes(std::span(bytes)), "test");
}

std::vector<HostTensor> run(const Executable& executable, std::span<const HostTensor> inputs) {
  std::vector<Array> arguments;
  for (const HostTensor& input : inputs)
    arguments.push_back(Array::from_host(input, executable.device()));
  std::vector<HostTensor> out;
  for (const Array& result : executable.run(arguments)) out.push_back(result.to_host());
  return out;
}

Executable loaded(const Graph& graph, const Device& device) {
  return Executable::load(std::make_shared<const Program>(compiled(graph, device)), device);
}

HostTensor counting(std::vector<int64_t> shape) {
  HostTensor out(DType::F32, std::move(shape));
  for (int64_t i = 0; i < out.numel(); ++i) out.set_double(i, static_cast<double>(i % 13));
  return out;
}

std::vector<double> values(const HostTensor& x) {
  std::vector<double> out;
  for (int64_t i = 0; i < x.numel(); ++i) out.push_back(x.get_double(i));
  return out;
}

std::vector<std::vector<double>> values(const std::vector<HostTensor>& tensors) {
  std::vector<std::vector<double>> out;
  for (const HostTensor& x : tensors) out.push_back(values(x));
  return out;
}

template <class Run>
std::optional<Error> error_of(Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Small whole numbers, so that every device gives the same bits.
const char* const kNeighbours = R"(braze 1 graph
symbol n: 0..4096
graph @neighbours(%x: f32[n, 3], %w: f32[3]) {
  %b = broadcast %w {axes: [1]} : f32[n, 3]
  %y = mul %x, %b : f32[n, 3]
  %t = transpose %y {permutation: [1, 0]} : f32[3, n]
  %c = custom_call %t, %w {target: "test.scale", attributes: "2"} : f32[3, n]
  %r = reduce sum %c {axes: [0]} : f32[n]
  %u = transpose %c {permutation: [1, 0]} : f32[n, 3]
  %z = add %u, %y : f32[n, 3]
  return %r, %z, %c
}
)";

TEST_F(CustomCalls, AllDevicesAgreeWithTheInterpreter) {
  const Graph graph = graph_of(kNeighbours);
  for (const char* device : kDevices) {
    const Executable executable = loaded(graph, device);
    for (const int64_t n : {0, 1, 7, 130, 4096}) {
      const std::vector<HostTensor> inputs = {counting({n, 3}), counting({3})};
      EXPECT_EQ(values(run(executable, inputs)), values(interpret(graph, inputs)))
          << device << ", n = " << n;
    }
  }
}

TEST_F(CustomCalls, ACallIsALaunchBetweenFusedKernels) {
  for (const char* device : {"cpu", "sim:sm_90"}) {
    const Program program = compiled(graph_of(kNeighbours), device);
    std::string kinds;
    for (const Launch& launch : program.launches)
      kinds += launch.artifact == Launch::kCustomCall ? "c" : launch.is_kernel() ? "k" : "?";
    EXPECT_EQ(kinds, "kck") << to_text(program);
    const Launch& call = program.launches[1];
    EXPECT_EQ(call.custom, (CustomCallOp{"test.scale", "2"}));
    EXPECT_EQ(call.buffers.size(), 3u);
    EXPECT_EQ(call.bytes_read.to_string(), "12*n + 12");
    EXPECT_EQ(to_text(parse_program(to_text(program), "text", blobs_of(program))),
              to_text(program));
  }
}

TEST_F(CustomCalls, FunctionsGetShapesAndMayReturnAnyDtype) {
  const Graph graph = graph_of(R"(braze 1 graph
symbol n: 0..64
graph @f(%x: i64[n], %s: bf16[]) {
  %r = reshape %x : i64[1, n, 1]
  %o = custom_call %x {target: "test.odd"} : bool[n]
  %i = convert %o : i32[n]
  %e = custom_call %r {target: "test.extents"} : i64[3]
  %t = custom_call %s {target: "test.extents"} : i64[0]
  return %i, %o, %e, %t
}
)");
  HostTensor x(DType::I64, {5});
  for (int64_t i = 0; i < 5; ++i) x.set_int(i, i);
  for (const char* device : kDevices) {
    const auto out = run(loaded(graph, device), std::vector{x, HostTensor(DType::BF16, {})});
    EXPECT_THAT(values(out[0]), ElementsAre(0, 1, 0, 1, 0)) << device;
    EXPECT_THAT(values(out[1]), ElementsAre(0, 1, 0, 1, 0)) << device;
    EXPECT_THAT(values(out[2]), ElementsAre(1, 5, 1)) << device;
  }
}

TEST_F(CustomCalls, EqualCallsAreOneAndUnneededOnesNoneWithoutSideEffects) {
  const Graph graph = graph_of(R"(braze 1 graph
graph @pure(%x: f32[2]) {
  %a = custom_call %x {target: "test.count"} : f32[2]
  %b = custom_call %x {target: "test.count"} : f32[2]
  %c = custom_call %x {target: "test.count", attributes: "unneeded"} : f32[2]
  return %a, %b
}
)");
  for (const char* device : kDevices) {
    const Executable executable = loaded(graph, device);
    const int before = testing::calls_of_count;
    const auto out = run(executable, std::vector{counting({2})});
    EXPECT_EQ(testing::calls_of_count - before, 1) << device;
    EXPECT_EQ(values(out[0]), values(out[1])) << device;
  }
}

TEST_F(CustomCalls, CallsWithSideEffectsAreMadeExactlyOnceEach) {
  const Graph graph = graph_of(R"(braze 1 graph
graph @effects(%x: f32[2]) {
  %a = custom_call %x {target: "test.count", side_effects: true} : f32[2]
  %b = custom_call %x {target: "test.count", side_effects: true} : f32[2]
  %y = add %x, %x : f32[2]
  %c = custom_call %y {target: "test.count", side_effects: true} : f32[0]
  %d = custom_call {target: "test.count", side_effects: true} : f32[]
  return %a, %y
}
)");
  EXPECT_EQ(graph.size(), 6u);
  for (const char* device : kDevices) {
    const Executable executable = loaded(graph, device);
    for (int call = 0; call < 3; ++call) {
      const int before = testing::calls_of_count;
      EXPECT_THAT(values(run(executable, std::vector{counting({2})})[1]), ElementsAre(0, 2));
      EXPECT_EQ(testing::calls_of_count - before, 4) << device;
    }
  }
}

TEST_F(CustomCalls, UpdatesADonatedArgumentInALoop) {
  // The call reads what it updates, so the result is copied over it.
  const Graph graph = graph_of(R"(braze 1 graph
graph @step(%x: f32[300], %k: f32[300]) {
  %one = constant 1.0 : f32[]
  %y = add %x, %one : f32[300]
  %c = custom_call %y, %k {target: "test.scale", attributes: "1"} : f32[300]
  %d = custom_call %x {target: "test.scale", attributes: "0.5"} : f32[300]
  return %c updates %x, %d updates %k
}
)");
  for (const char* device : kDevices) {
    const Executable executable = loaded(graph, device);
    std::vector<HostTensor> expected = {counting({300}), counting({300})};
    std::vector<Array> state;
    for (const HostTensor& x : expected) state.push_back(Array::from_host(x, device));
    for (int turn = 0; turn < 20; ++turn) {
      state = executable.run(state);
      expected = interpret(graph, expected);
    }
    EXPECT_EQ(values(state[0].to_host()), values(expected[0])) << device;
    EXPECT_EQ(values(state[1].to_host()), values(expected[1])) << device;
  }
}

TEST_F(CustomCalls, AFailureNamesFunctionNodeAndLine) {
  const auto graph = [](std::string_view call) {
    return graph_of("braze 1 graph\ngraph @f(%x: f32[4]) {\n  %y = exp %x : f32[4]\n  %bad = " +
                    std::string(call) + " : f32[4]\n  %z = exp %bad : f32[4]\n  return %z\n}\n");
  };
  for (const char* device : kDevices) {
    for (const auto& [call, reason] :
         {std::pair(R"(custom_call %y {target: "test.fail", attributes: "no \"luck\""})",
                    R"(the function "test.fail" failed: no "luck")"),
          std::pair(R"(custom_call %y {target: "test.throw"})",
                    R"(the function "test.throw" failed: it was thrown)"),
          std::pair(R"(custom_call {target: "test.fail", attributes: "x"})",
                    R"(the function "test.fail" failed: x)")}) {
      const Executable executable = loaded(graph(call), device);
      for (int again = 0; again < 2; ++again) {
        const auto error = error_of([&] { run(executable, std::vector{counting({4})}); });
        ASSERT_TRUE(error) << device;
        EXPECT_EQ(error->code().name, "custom-call-failed");
        EXPECT_EQ(error->message(), reason) << device;
        EXPECT_EQ(error->node(), "bad") << device;
        EXPECT_EQ(error->location().to_string(), "test.braze:4:3") << device;
      }
    }
    // The device goes on.
    const auto good = graph(R"(custom_call %y {target: "test.scale", attributes: "0"})");
    EXPECT_THAT(values(run(loaded(good, device), std::vector{counting({4})})[0]), Each(1));
  }
}

TEST_F(CustomCalls, AMissingFunctionIsFoundWhenTheProgramIsLoaded) {
  const Graph graph = graph_of(R"(braze 1 graph
graph @f(%x: f32[4]) {
  %y = custom_call %x {target: "test.scael"} : f32[4]
  return %y
}
)");
  for (const char* device : kDevices) {
    const auto error = error_of([&] { loaded(graph, device); });
    ASSERT_TRUE(error) << device;
    EXPECT_EQ(error->code().name, "no-custom-function");
    EXPECT_THAT(error->message(),
                AllOf(HasSubstr("\"test.scael\""), HasSubstr("did you mean \"test.scale\""),
                      HasSubstr(device == kDevices[0] ? "interpreter" : device)));
    EXPECT_THAT(error->fix(), HasSubstr("register_custom_call(\"test.scael\", DeviceKind::Cpu"));
    EXPECT_EQ(error->location().to_string(), "test.braze:3:3") << device;
  }
}

TEST_F(CustomCalls, OnlyANewNameOfAKindIsRegistered) {
  const auto code = [](std::string name, DeviceKind kind, CustomFunction function) {
    const auto error =
        error_of([&] { register_custom_call(std::move(name), kind, std::move(function)); });
    return error ? error->code().name : "";
  };
  EXPECT_EQ(code("test.scale", DeviceKind::Cpu, testing::scale), "custom-function-twice");
  EXPECT_EQ(code("", DeviceKind::Cpu, testing::scale), "bad-custom-function");
  EXPECT_EQ(code("test.empty", DeviceKind::Cpu, {}), "bad-custom-function");
  EXPECT_EQ(code("test.sim", DeviceKind::Simulator, testing::scale), "bad-custom-function");
  EXPECT_EQ(code("test.sim", DeviceKind::Interpreter, testing::scale), "bad-custom-function");
}

TEST_F(CustomCalls, ManyThreadsCallAtTheSameTime) {
  const Graph graph = graph_of(kNeighbours);
  const std::vector<HostTensor> inputs = {counting({97, 3}), counting({3})};
  const auto expected = values(interpret(graph, inputs));
  set_cpu_device_count(2);
  std::vector<Executable> executables;
  for (const char* device : {"cpu:0", "cpu:1", "interpreter"})
    executables.push_back(loaded(graph, device));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        if (values(run(executables[static_cast<size_t>(t) % 3], inputs)) != expected) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CustomCalls, PackagesKeepTheNames) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path / "neighbours.bzp";
  save_package(path, {{kNeighbours, "test.braze"}});
  const LoadedFunction function = Package::load(path).function().load("cpu");
  const std::vector<HostTensor> inputs = {counting({10, 3}), counting({3})};
  const auto results =
      function(Array::from_host(inputs[0], "cpu"), Array::from_host(inputs[1], "cpu"));
  const std::vector<HostTensor> expected = interpret(graph_of(kNeighbours), inputs);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(values(results[i].to_host()), values(expected[i]));
}

TEST_F(CustomCalls, ADamagedProgramIsRefused) {
  const Program good = compiled(graph_of(kNeighbours), "cpu");
  const auto finding = [&](auto&& damage) {
    Program program = good;
    damage(program.launches[1]);
    const auto findings = verify(program);
    return findings.empty() ? std::string() : findings[0].message;
  };
  EXPECT_THAT(finding([](Launch& l) { l.custom.target = ""; }), HasSubstr("name its function"));
  EXPECT_THAT(finding([](Launch& l) { l.buffers = {}; }), HasSubstr("no result"));
  EXPECT_THAT(finding([](Launch& l) { l.buffers[0] = l.buffers.back(); }), HasSubstr("it reads"));
  EXPECT_THAT(finding([](Launch& l) { l.buffers[0] = 1000; }), HasSubstr("does not exist"));
}

// --- The interface in C
// ---------------------------------------------------------------------------

int user_of_c = 0;

const char* sum_in_c(const braze_custom_arguments* call) {
  float sum = 0;
  if (call->size != sizeof(braze_custom_arguments) || call->user != &user_of_c || call->stream)
    return "the structure is wrong";
  for (size_t o = 0; o < call->operand_count; ++o)
    for (size_t i = 0; i < call->operands[o]->bytes / sizeof(float); ++i)
      sum += static_cast<const float*>(call->operands[o]->data)[i];
  if (call->attributes_bytes != 3 || std::memcmp(call->attributes, "a\0b", 4) != 0)
    return "the attributes are wrong";
  *static_cast<float*>(call->result->data) = sum;
  return sum < 0 ? "the sum is negative" : nullptr;
}

TEST_F(CustomCalls, FunctionsInC) {
  static const braze_status registered =  // once for the process, also if tests are repeated
      braze_register_custom_call("test.c", "cpu", sum_in_c, &user_of_c);
  ASSERT_EQ(registered, BRAZE_OK) << braze_last_error();
  EXPECT_EQ(braze_register_custom_call("test.c", "cpu", sum_in_c, nullptr), BRAZE_INVALID_ARGUMENT);
  EXPECT_EQ(braze_register_custom_call("test.c", "gpu", sum_in_c, nullptr), BRAZE_INVALID_ARGUMENT);
  EXPECT_EQ(braze_register_custom_call("test.d", "cpu", nullptr, nullptr), BRAZE_INVALID_ARGUMENT);
  EXPECT_EQ(braze_register_custom_call(nullptr, "cpu", sum_in_c, nullptr), BRAZE_INVALID_ARGUMENT);
  const Graph graph = graph_of(R"(braze 1 graph
graph @f(%x: f32[4], %y: f32[]) {
  %s = custom_call %x, %y {target: "test.c", attributes: "a\x00b"} : f32[]
  return %s
}
)");
  for (const char* device : kDevices) {
    const Executable executable = loaded(graph, device);
    HostTensor y(DType::F32, {});
    EXPECT_THAT(values(run(executable, std::vector{counting({4}), y})[0]), ElementsAre(6));
    y.set_double(0, -7);
    const auto error = error_of([&] { run(executable, std::vector{counting({4}), y}); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->message(), HasSubstr("the sum is negative"));
  }
}

TEST_F(CustomCalls, LibrariesThatAreNone) {
  const auto code = [](const std::string& path) {
    const auto error = error_of([&] { load_custom_calls(path); });
    return error ? std::string(error->code().name) : "";
  };
  EXPECT_EQ(code("/no/such/library.so"), "no-custom-library");
  EXPECT_EQ(code(BRAZE_SOURCE_DIR "/README.md"), "bad-custom-library");
  EXPECT_EQ(code(BRAZE_OTHER_LIBRARY), "bad-custom-library") << "it has no braze_custom_calls";
  EXPECT_EQ(braze_load_custom_calls("/no/such/library.so"), BRAZE_NOT_FOUND);
}

}  // namespace
}  // namespace braze
