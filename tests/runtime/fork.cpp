// fork.cpp — children that are forked before, while and after their parent uses devices.
#include "ir/support/fork.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "braze/braze.h"
#include "runtime/devices/cpu/thread_pool.h"
#include "tests/runtime/child.h"
#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

std::atomic<bool> gate_open{false};

void gated_kernel(void* const* buffers, const int64_t* scalars, void* scratch, int64_t begin,
                  int64_t end) {
  while (!gate_open) std::this_thread::yield();
  add_kernel(buffers, scalars, scratch, begin, end);
}

std::vector<Array> run(const Executable& executable, std::vector<Array> arguments) {
  return executable.run(arguments);
}

const auto kRefused = AllOf(StartsWith("forked-child"), HasSubstr("forked from one that had used"),
                            HasSubstr("fork before the first use"));

TEST(Fork, AChildOfWorkInFlightIsRefusedAndEnds) {
  Maker gated = add_program();
  gated.program->artifacts[0] = function_artifact("gated", {gated_kernel});
  const Executable slow = gated.load(), sum = add_program().load();
  const Array x = filled(100'000, 1);
  gate_open = false;
  const Array pending = run(slow, {x, x})[0];
  const std::vector<Array> queued = run(sum, {pending, x});
  const auto f = jit([](Tensor t) { return t + t; });
  EXPECT_EQ(fate_of_child([&] {
              EXPECT_THAT(error_of([&] { run(sum, {x, x}); }), kRefused);
              EXPECT_THAT(error_of([&] { pending.to_vector<float>(); }), kRefused);
              EXPECT_THAT(error_of([&] { queued[0].wait(); }), kRefused);
              EXPECT_THAT(error_of([&] { synchronize("cpu"); }), kRefused);
              EXPECT_THAT(error_of([&] { filled(10, 1); }), kRefused);
              EXPECT_THAT(error_of([&] { f(x); }), kRefused);
              EXPECT_THAT(error_of([&] { ones({2}, f32, "interpreter"); }), kRefused);
              EXPECT_THAT(x.to_vector<float>(), Each(1.f)) << "it is in the memory of the child";
            }),
            "");
  gate_open = true;
  EXPECT_THAT(queued[0].to_vector<float>(), Each(3.f));
  EXPECT_THAT(f(x).to_vector<float>(), Each(2.f));
}

TEST(Fork, AChildThatDoesNotUseDevicesEnds) {
  Maker gated = add_program();
  gated.program->artifacts[0] = function_artifact("gated", {gated_kernel});
  const Executable slow = gated.load();
  const Array x = filled(100'000, 1);
  gate_open = false;
  // In the child they are destroyed at its exit, with the work that is still to be done.
  static auto held = std::make_unique<std::vector<Array>>();
  *held = run(slow, {x, x});
  held->push_back(filled(1000, 1));
  EXPECT_EQ(fate_of_child([] {}), "");
  EXPECT_EQ(fate_of_child([] { held.reset(); }), "");
  gate_open = true;
  EXPECT_THAT((*held)[0].to_vector<float>(), Each(2.f));
  held->clear();
}

TEST(Fork, PoolsAndStreamsOfTheParentAreDestroyedWithoutWaiting) {
  auto pool = std::make_unique<ThreadPool>();
  pool->set_threads(3);
  pool->run(100, true, [](int64_t, int64_t, int) {});
  auto stream = std::make_unique<WorkQueue>(WorkQueue::Mode::Background);
  // Workers fall asleep after a while: that is where a child would wait for them.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(fate_of_child([&] {
              EXPECT_THAT(error_of([&] { pool->run(100, true, [](int64_t, int64_t, int) {}); }),
                          kRefused);
              EXPECT_THAT(error_of([&] { stream->drain(); }), kRefused);
              pool.reset();
              stream.reset();
            }),
            "");
}

// In a process of its own, in which nothing was used so far.
TEST(Fork, AChildBeforeTheFirstUseWorks) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto parent = [] {
    const std::string fate = fate_of_child([] {
      const Array x = filled(100'000, 1);
      EXPECT_THAT(run(add_program().load(), {x, x})[0].to_vector<float>(), Each(2.f));
      // And is a parent like any other.
      EXPECT_EQ(fate_of_child([&] { EXPECT_THAT(error_of([&] { filled(10, 1); }), kRefused); }),
                "");
    });
    EXPECT_EQ(fate, "");
    EXPECT_FALSE(is_forked());
    EXPECT_THAT(filled(10, 1).to_vector<float>(), Each(1.f));
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(parent(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace braze::test
