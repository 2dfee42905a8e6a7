// recording_failure_test.cpp — recordings of calls that fail, by the driver or for want of memory:
// what was queued before and what comes after is computed all the same, nothing is left behind, and
// calls are recorded again once they can be.
#include <atomic>
#include <string>
#include <thread>

#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/cuda/host_shortage.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// A call is recorded when its addresses come for the second time, and repeated from then on.
constexpr int kUntilRecorded = 1;
// More calls than pass between two attempts to record.
constexpr int kManyCalls = 40;

template <class Calls>
std::string warnings_of(const Calls& calls) {
  testing::internal::CaptureStderr();
  calls();
  return testing::internal::GetCapturedStderr();
}

class RecordingFailure : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    if (!IsSkipped() && !HasFatalFailure() && !fake_cuda()) GTEST_SKIP() << "needs the fake driver";
  }

  void expect_sixteen(const Executable& sixteen) const {
    EXPECT_THAT(run(sixteen, {x_})[0].to_vector<float>(), Each(16.f));
  }
  int repeated() const { return fake_cuda()->calls["cuGraphLaunch"]; }

  const Array x_ = gpu_.kind() == DeviceKind::Cuda ? filled(100, 1, gpu_) : Array();
};

TEST_F(RecordingFailure, CallsAreLaunchedAndRecordedLater) {
  struct Step {
    const char* function;
    int after;  // calls of it by launches, which succeed
  };
  // A call is four launches: the first one is made, the second one recorded.
  constexpr Step kSteps[] = {{"cuStreamBeginCapture", 0},
                             {"cuLaunchKernelEx", 4},
                             {"cuLaunchKernelEx", 7},
                             {"cuStreamEndCapture", 0},
                             {"cuGraphInstantiateWithFlags", 0},
                             {"cuGraphLaunch", 0}};
  const int graphs = fake_cuda()->live_graphs;
  const Executable sum = gpu_add_program().load(gpu_);
  for (const Step& step : kSteps) {
    fake_cuda()->reset();
    const Executable sixteen = sixteen_program(gpu_);
    const Array before = run(sum, {x_, x_})[0];
    fake_cuda()->failures = {
        {step.function, {step.after, cuda::CUDA_ERROR_INVALID_VALUE, /*times=*/1}}};
    const std::string text = warnings_of([&] {
      for (int i = 0; i < kUntilRecorded + 1; ++i) expect_sixteen(sixteen);
    });
    EXPECT_LE(fake_cuda()->failures[step.function].times, 0) << step.function << " did not fail";
    EXPECT_THAT(text,
                AllOf(HasSubstr("braze: warning: cuda:0: a call of @sixteen cannot be recorded"),
                      HasSubstr("CUDA_ERROR_INVALID_VALUE")))
        << step.function;
    EXPECT_THAT(before.to_vector<float>(), Each(2.f)) << step.function;
    const int failed = repeated();
    EXPECT_THAT(warnings_of([&] {
                  for (int i = 0; i < kManyCalls; ++i) expect_sixteen(sixteen);
                }),
                IsEmpty());
    EXPECT_GT(repeated(), failed + 5) << step.function << ": not recorded again";
  }
  fake_cuda()->failures.clear();
  EXPECT_EQ(fake_cuda()->live_graphs, graphs);
}

TEST_F(RecordingFailure, ADriverThatCannotRecordIsAskedRarely) {
  const Executable sixteen = sixteen_program(gpu_);
  fake_cuda()->failures = {{"cuStreamBeginCapture", {0, cuda::CUDA_ERROR_INVALID_VALUE}}};
  const std::string text = warnings_of([&] {
    for (int i = 0; i < 1000; ++i) expect_sixteen(sixteen);
  });
  EXPECT_EQ(text.find("warning"), text.rfind("warning")) << text;
  const int attempts = fake_cuda()->calls["cuStreamBeginCapture"];
  EXPECT_GE(attempts, 4);
  EXPECT_LE(attempts, 8);
}

constexpr auto kNoShortage = "the thread sanitizer has an operator new of its own";

TEST_F(RecordingFailure, NothingOfOursIsAllocatedWhileTheDriverCaptures) {
  if (!HostShortage::kIsPossible) GTEST_SKIP() << kNoShortage;
  // An allocation that fails while the driver captures could leave the capture open.
  const Executable sixteen = sixteen_program(gpu_);
  expect_sixteen(sixteen);
  static int64_t begun, ended;
  fake_cuda()->at_capture = [](bool begins) {
    (begins ? begun : ended) = HostShortage::allocations();
  };
  {
    const HostShortage counting(INT64_MAX);
    run(sixteen, {x_})[0].wait();
  }
  fake_cuda()->at_capture = nullptr;
  EXPECT_GT(begun, 0);
  EXPECT_EQ(begun, ended);
}

/// The Shortage that `calls` may end in is no failure of the test; any other exception is.
template <class Calls>
void tolerate_shortage(const Calls& calls) {
  try {
    calls();
  } catch (const std::bad_alloc&) {
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::ResourceExhausted) << error.what();
  }
}

TEST_F(RecordingFailure, EveryAllocationMayFail) {
  if (!HostShortage::kIsPossible) GTEST_SKIP() << kNoShortage;
  const Executable sum = gpu_add_program().load(gpu_);
  const int graphs = fake_cuda()->live_graphs;
  synchronize(gpu_);
  const uint64_t live = memory_stats(gpu_).live_bytes;
  int failures = 0;
  for (int64_t served = 0;; ++served) {
    fake_cuda()->executed.clear();
    bool happened = false;
    {
      const Executable sixteen = sixteen_program(gpu_);
      for (int i = 0; i < kUntilRecorded; ++i) expect_sixteen(sixteen);
      const Array before = run(sum, {x_, x_})[0];
      std::vector<Array> out;
      std::string text;
      tolerate_shortage([&] {
        const std::vector<Array> arguments = {x_};
        const HostShortage shortage(served);
        out = sixteen.run(arguments);
      });
      happened = HostShortage::happened();
      // Work behind it goes to the GPU's queue, not into a record that nobody repeats.
      const Array after = run(sum, {x_, x_})[0];
      EXPECT_THAT(after.to_vector<float>(), Each(2.f)) << "allocation " << served;
      EXPECT_THAT(before.to_vector<float>(), Each(2.f)) << "allocation " << served;
      tolerate_shortage([&] {
        if (!out.empty()) {
          EXPECT_THAT(out[0].to_vector<float>(), Each(16.f));
        }
      });
      for (int i = 0; i < 3; ++i) expect_sixteen(sixteen);
    }
    try {
      synchronize(gpu_);  // forgets the error of the work
    } catch (const Error&) {
    }
    EXPECT_EQ(fake_cuda()->live_graphs, graphs) << "allocation " << served;
    EXPECT_EQ(memory_stats(gpu_).live_bytes, live) << "allocation " << served;
    if (!happened) break;
    ++failures;
  }
  EXPECT_GT(failures, 8) << "a call and its recording take memory at more places";
  const int events = fake_cuda()->live_events;
  for (int i = 0; i < 10; ++i) expect_sixteen(sixteen_program(gpu_));
  EXPECT_LE(fake_cuda()->live_events, events) << "events were lost";
}

TEST_F(RecordingFailure, ShortagesOfOneThreadAreNotTheOthers) {
  if (!HostShortage::kIsPossible) GTEST_SKIP() << kNoShortage;
  const Executable sum = gpu_add_program().load(gpu_);
  std::vector<std::thread> threads;
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t, sixteen = sixteen_program(gpu_)] {
      const auto value = static_cast<float>(t + 1);
      while (!stop) {
        tolerate_shortage([&] {
          const Array x = filled(200 + t, value, gpu_);
          const Floats w = run(sixteen, {x})[0].to_vector<float>();
          wrong += w != Floats(static_cast<size_t>(200 + t), 16 * value);
        });
      }
    });
  }
  for (int64_t served = 0; served < 300; ++served) {
    const HostShortage shortage(served % 100);
    while (!HostShortage::happened()) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  try {
    synchronize(gpu_);
  } catch (const Error&) {
  }
  EXPECT_THAT(run(sum, {x_, x_})[0].to_vector<float>(), Each(2.f));
}

}  // namespace
}  // namespace braze::test
