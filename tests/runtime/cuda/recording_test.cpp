// recording_test.cpp — calls that come again, and how they show in histories and timelines.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "ir/support/trace.h"
#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/trace_reader.h"

namespace braze::test {
namespace {

using testing::Contains;
using testing::Each;
using testing::SizeIs;

TEST_F(Cuda, CallsThatComeAgainAreRepeatedAsOne) {
  const Executable sixteen = sixteen_program(gpu_);
  constexpr int kCalls = 60;
  for (int i = 0; i < kCalls; ++i) {
    const int64_t n = i % 3 == 2 ? 700 : 300;  // the same memory for another size
    const auto value = static_cast<float>(i);
    EXPECT_THAT(run(sixteen, {filled(n, value, gpu_)})[0].to_vector<float>(), Each(16 * value));
  }
  if (fake_cuda()) {
    std::map<std::string, int>& calls = fake_cuda()->calls;
    EXPECT_EQ(fake_cuda()->executed.size(), 4u * kCalls);
    EXPECT_GT(calls["cuGraphLaunch"], kCalls / 2);
    EXPECT_EQ(calls["cuLaunchKernelEx"],
              4 * (kCalls - calls["cuGraphLaunch"]) + 4 * calls["cuGraphInstantiateWithFlags"]);
  }
}

TEST_F(Cuda, RecordedCallsAreTimedOneByOneWhenAsked) {
  const Executable sixteen = sixteen_program(gpu_);
  const Array x = filled(100, 1, gpu_);
  for (int i = 0; i < 5; ++i) run(sixteen, {x});
  clear_launch_history();
  record_launches(true);
  run(sixteen, {x});
  record_launches(false);
  EXPECT_EQ(launch_history().size(), 4u);
  clear_launch_history();
}

TEST_F(Cuda, TimelineHasTheTimesOfTheDevice) {
  const Executable sixteen = sixteen_program(gpu_);
  const Array x = filled(100, 1, gpu_);
  // Recorded by now; under a timeline launches are made one by one all the same.
  for (int i = 0; i < 5; ++i) run(sixteen, {x});
  synchronize(gpu_);
  const std::string path = testing::TempDir() + "cuda-trace.json";
  const int64_t begun = trace::now();
  ASSERT_TRUE(start_trace(path));
  record_launches(true);
  clear_launch_history();
  const Array y = Array::from(counting(100), {100}, gpu_);
  for (int i = 0; i < 2; ++i) run(sixteen, {y})[0].to_vector<float>();
  synchronize(gpu_);
  const int64_t ended = trace::now();
  const uint64_t live = memory_stats(gpu_).live_bytes;
  record_launches(false);
  stop_trace();
  const std::vector<TraceEvent> events = read_trace(path);
  check_nesting(events);
  EXPECT_THAT(names_of(in_category(events, "launch")), SizeIs(8));
  const std::vector<TraceEvent> kernels = in_category(events, "kernel", "cuda:0");
  const std::vector<LaunchRecord> history = launch_history();
  ASSERT_EQ(kernels.size(), 8u);
  ASSERT_EQ(history.size(), 8u);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_TRUE(kernels[i].has(R"("ops":["add.1 : f32[n] at model.cpp:7"])")) << kernels[i].text;
    EXPECT_TRUE(kernels[i].has(R"("blocks":[1],"threads":[128])")) << kernels[i].text;
    EXPECT_NEAR(static_cast<double>(kernels[i].end - kernels[i].begin), 1e9 * history[i].seconds,
                2);
    if (fake_cuda()) continue;  // its time is another
    EXPECT_GE(kernels[i].begin, begun - 20'000) << kernels[i].text;
    EXPECT_LE(kernels[i].end, ended + 20'000) << kernels[i].text;
  }
  std::vector<std::string> copies;
  for (const TraceEvent& copy : in_category(events, "copy", "cuda:0")) {
    copies.push_back(copy.name);
    EXPECT_TRUE(copy.has(R"("bytes":400)")) << copy.text;
  }
  EXPECT_THAT(copies, testing::UnorderedElementsAre("from the host", "to the host", "to the host"));
  EXPECT_THAT(names_of(in_category(events, "trace", "cuda:0")), Contains("clocks aligned"));
  std::string last;
  for (const TraceEvent& event : in_category(events, "memory", "cuda:0"))
    if (event.phase == 'C') last = trace_value(event.text, "bytes");
  EXPECT_EQ(last, std::to_string(live));
  clear_launch_history();
  std::filesystem::remove(path);
}

TEST_F(Cuda, AddressesThatNeverComeAgainAreNotRecordedForEver) {
  const Executable sixteen = sixteen_program(gpu_);
  std::vector<Array> kept;
  for (int i = 0; i < 400; ++i) {
    const Array x = filled(100, static_cast<float>(i), gpu_);
    for (int j = 0; j < 2; ++j) kept.push_back(run(sixteen, {x})[0]);
    if (i % 50 == 0) {
      EXPECT_THAT(kept.back().to_vector<float>(), Each(16.f * static_cast<float>(i)));
    }
  }
  if (fake_cuda()) {
    EXPECT_LE(fake_cuda()->calls["cuGraphInstantiateWithFlags"], 64);
  }
}

TEST_F(Cuda, ThreadsCopyWhileOthersRecord) {
  const Executable sixteen = sixteen_program(gpu_);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const auto value = static_cast<float>(t * 100 + i);
        const Floats w = run(sixteen, {filled(200 + t, value, gpu_)})[0].to_vector<float>();
        right += w == Floats(static_cast<size_t>(200 + t), 16 * value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

/// Seconds of the host for one call, the best of some rounds.
double host_cost(const Executable& executable, const std::vector<Array>& arguments) {
  double best = 1;
  for (int round = 0; round < 20; ++round) {
    synchronize(executable.device());
    const auto start = std::chrono::steady_clock::now();
    // Fewer than fill the driver's queue.
    for (int i = 0; i < 200; ++i) executable.run(arguments);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count() / 200);
  }
  return best;
}

TEST_F(Cuda, HostCostOfACall) {
  const Array x = filled(1000, 1, gpu_);
  const double one = host_cost(gpu_add_program().load(gpu_), {x, x});
  const double four = host_cost(sixteen_program(gpu_), {x});
  std::printf("host cost of a call: %.2f us with one launch, %.2f us with four\n", one * 1e6,
              four * 1e6);
  if (!fake_cuda()) {
    EXPECT_LT(one, 20e-6);
    EXPECT_LT(four, 20e-6);
  }
}

}  // namespace
}  // namespace braze::test
