// Memory of the host that runs out: at every allocation, with work queued and on several threads.
// Every shortage is std::bad_alloc or ResourceExhausted and leaves the arguments as they were, no
// thread waiting for ever and nothing behind; the next call works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "ir/support/text.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "runtime/devices/cuda/releaser.h"
#include "runtime/memory/array_state.h"
#include "tests/runtime/cuda/kernels.h"
#include "tests/runtime/watchdog.h"

namespace {

// Allocations of the process, by any thread: while `armed`, those that find `before_failure` at 0
// fail, the first only or all from then on.
std::atomic<bool> armed{false}, fails_on{false};
std::atomic<int64_t> before_failure{0};
std::atomic<int64_t> live_objects{0};

bool must_fail() {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const int64_t before = before_failure.fetch_sub(1);
  return before == 0 || (before < 0 && fails_on);
}

void* checked(void* memory) {
  if (!memory) throw std::bad_alloc();
  ++live_objects;
  return memory;
}

void let_go(void* memory) {
  if (memory) --live_objects;
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) {
  return checked(must_fail() ? nullptr : std::malloc(std::max<size_t>(size, 1)));
}
void* operator new(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return checked(must_fail() ? nullptr
                             : std::aligned_alloc(align, (size + align - 1) / align * align));
}
void operator delete(void* memory) noexcept { let_go(memory); }
void operator delete(void* memory, size_t) noexcept { let_go(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { let_go(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { let_go(memory); }

namespace braze::test {
namespace {

using testing::Each;
using testing::StartsWith;

std::vector<Array> run(const Executable& executable, std::vector<Array> arguments) {
  return executable.run(arguments);
}

/// From its construction to its end, the allocation behind `served` others fails; if `on`, so do
/// those after it.
class Shortage {
 public:
  Shortage(int64_t served, bool on) {
    before_failure = served;
    fails_on = on;
    armed = true;
  }
  ~Shortage() { armed = false; }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

  /// Whether an allocation has failed so far.
  static bool happened() { return before_failure < 0; }
};

enum class Outcome : uint8_t { Success, Shortage, OtherError };

/// Without memory of its own.
template <class Function>
Outcome outcome_of(const Function& function) {
  try {
    function();
  } catch (const std::bad_alloc&) {
    return Outcome::Shortage;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::ResourceExhausted ? Outcome::Shortage : Outcome::OtherError;
  } catch (...) {
    return Outcome::OtherError;
  }
  return Outcome::Success;
}

std::atomic<bool> gate_open{true};

void gate_kernel(void* const* buffers, const int64_t* scalars, void* scratch, int64_t begin,
                 int64_t end) {
  while (!gate_open) std::this_thread::yield();
  add_kernel(buffers, scalars, scratch, begin, end);
}

/// z = x + y with temporaries and scratch, once the gate is open.
Maker gated_program() {
  Maker m = add_program();
  m.program->artifacts[0] = function_artifact("gated", {gate_kernel});
  m.program->launches[0].scratch_bytes = 5000;
  return m;
}

/// Runs a scenario with a shortage at every one of its allocations, until one run meets none.
class AtEveryAllocation {
 public:
  explicit AtEveryAllocation(const Device& device) : device_(device) {
    settle();
    live_ = memory_stats(device_).live_bytes;
  }

  /// `scenario` gets the arguments of a Shortage and returns whether it happened. Returns how many
  /// did.
  template <class Scenario>
  int64_t run(const Scenario& scenario) {
    int64_t shortages = 0;
    for (const bool on : {false, true}) {
      for (int64_t served = 0;; ++served, ++shortages) {
        SCOPED_TRACE(fmt::format("{} behind {} allocations", on ? "all" : "one", served));
        const Watchdog watchdog("a shortage of the host's memory");
        const bool happened = scenario(served, on);
        settle();
        EXPECT_EQ(memory_stats(device_).live_bytes, live_) << "memory is left behind";
        if (testing::Test::HasFailure()) return shortages;
        if (!happened) break;
        // Lists that grow once in a while settle within the first runs.
        if (served == 20) objects_ = live_objects;
      }
    }
    EXPECT_LE(live_objects, objects_ + 8) << "objects are left behind";
    return shortages;
  }

 private:
  void settle() {
    try {
      synchronize(device_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::ResourceExhausted) << error.what();
    }
    empty_cache(device_);
  }

  const Device device_;
  uint64_t live_ = 0;
  int64_t objects_ = 0;
};

void check(const Array& array, float value) { EXPECT_THAT(array.to_vector<float>(), Each(value)); }

TEST(HostMemory, CallsBehindQueuedWork) {
  constexpr int64_t kMany = 300;
  const Executable gated = gated_program().load(), triple = triple_program().load();
  const Executable step = step_program().load();
  const Array x = filled(kMany, 1), one = filled(kMany, 1);
  Array p = filled(kMany, 0);
  float steps = 0;
  check(run(gated, {run(triple, {x})[0], x})[0], 4);  // threads and scratch are there from now on
  AtEveryAllocation every("cpu");
  const int64_t shortages = every.run([&](int64_t served, bool on) {
    gate_open = false;
    const Array queued = run(gated, {x, x})[0], behind = run(triple, {queued})[0];
    bool happened = false;
    Outcome outcome{};
    Array again, last;
    {
      const Shortage shortage(served, on);
      outcome = outcome_of([&] {
        again = run(gated, {queued, x})[0];
        p = run(step, {p, one})[0];
        ++steps;
        last = run(triple, {again})[0];
      });
      happened = Shortage::happened();
      gate_open = true;
      // What is submitted needs no more memory of the host.
      EXPECT_EQ(outcome_of([&] { synchronize("cpu"); }), Outcome::Success);
    }
    EXPECT_EQ(outcome, happened ? Outcome::Shortage : Outcome::Success);
    check(x, 1);
    check(queued, 2);
    check(behind, 6);
    check(p, steps);
    if (again.valid()) check(again, 3);
    if (last.valid()) check(last, 9);
    check(run(triple, {x})[0], 3);
    return happened;
  });
  EXPECT_GT(shortages, 40);
}

TEST(HostMemory, SeveralThreads) {
  constexpr int kThreads = 4;
  constexpr int64_t kMany = 300;
  const Executable triple = triple_program().load(), step = step_program().load();
  struct Caller {
    Array x, p, one, y;
    float steps = 0;
    Outcome outcome = Outcome::Success;
    std::thread thread;
  };
  std::vector<Caller> callers(kThreads);
  for (Caller& caller : callers) {
    caller.x = filled(kMany, 2);
    caller.p = filled(kMany, 0);
    caller.one = filled(kMany, 1);
  }
  check(run(triple, {callers[0].x})[0], 6);  // the pool's threads are there from now on
  AtEveryAllocation every("cpu");
  const int64_t shortages = every.run([&](int64_t served, bool on) {
    std::atomic<int> waiting{0}, over{0};
    std::atomic<bool> go{false}, end{false};
    for (Caller& caller : callers) {
      caller.thread = std::thread([&] {
        ++waiting;
        while (!go) std::this_thread::yield();
        caller.outcome = outcome_of([&] {
          caller.y = run(triple, {caller.x})[0];
          caller.p = run(step, {caller.p, caller.one})[0];
          ++caller.steps;
          caller.y = run(triple, {caller.y})[0];
          caller.y.wait();
        });
        ++over;
        while (!end) std::this_thread::yield();
      });
    }
    while (waiting < kThreads) std::this_thread::yield();
    bool happened = false;
    {
      const Shortage shortage(served, on);
      go = true;
      while (over < kThreads) std::this_thread::yield();
      happened = Shortage::happened();
    }
    end = true;
    for (Caller& caller : callers) caller.thread.join();
    int short_ones = 0;
    for (Caller& caller : callers) {
      EXPECT_NE(caller.outcome, Outcome::OtherError);
      short_ones += caller.outcome == Outcome::Shortage;
      check(caller.x, 2);
      check(caller.p, caller.steps);
      if (caller.outcome == Outcome::Success) check(caller.y, 18);
      caller.y = {};
      check(run(triple, {caller.x})[0], 6);
    }
    EXPECT_LE(on ? 0 : short_ones, 1);
    EXPECT_EQ(short_ones > 0, happened);
    return happened;
  });
  EXPECT_GT(shortages, 100);
}

// Its kernels take memory as they go, so that a call may fail after it was submitted.
TEST(HostMemory, WorkThatNeedsMemory) {
  Maker m("scale", {});
  m.program->target = *find_target("interpreter");
  const uint32_t x = m.input("x", vector_type(8));
  const uint32_t y = m.output("y", vector_type(8));
  m.launch("scale", {}, {x, y}, {}, 0).instances.clear();
  m.program->artifacts[0] = {"graph",
                             "scale",
                             R"(braze 1 graph
graph @scale(%x: f32[8]) {
  %0 = add %x, %x : f32[8]
  return %0 as "y"
}
)",
                             {}};
  const Device device("interpreter");
  const Executable scale = m.load(device);
  const Array a = filled(8, 1, device);
  AtEveryAllocation every(device);
  const int64_t shortages = every.run([&](int64_t served, bool on) {
    bool happened = false;
    Outcome outcome{};
    {
      const Shortage shortage(served, on);
      outcome = outcome_of([&] {
        const Array once = run(scale, {a})[0], twice = run(scale, {once})[0];
        twice.wait();
      });
      happened = Shortage::happened();
    }
    EXPECT_EQ(outcome, happened ? Outcome::Shortage : Outcome::Success);
    check(a, 1);
    outcome_of([&] { synchronize(device); });
    check(run(scale, {a})[0], 2);
    return happened;
  });
  EXPECT_GT(shortages, 40);
}

TEST(HostMemory, AnErrorThatCannotBeKeptIsAShortage) {
  CapturedError kept, lost, foreign, shortage;
  const auto capture = [](const auto& thrown, bool without_memory) {
    const Shortage none(without_memory ? 0 : INT64_MAX, true);
    try {
      throw thrown;
    } catch (...) {
      return CapturedError::current();
    }
  };
  const auto planted = [] {
    try {
      fail(codes::kInternal, "planted, with a text that is too long to be kept within a string");
    } catch (const Error& error) {
      return error;
    }
  }();
  kept = capture(planted, false);
  lost = capture(planted, true);
  foreign = capture(std::runtime_error("of another library"), false);
  shortage = capture(std::bad_alloc(), false);
  EXPECT_FALSE(CapturedError());
  EXPECT_THAT(error_of([&] { kept.rethrow(); }), StartsWith("internal: "));
  EXPECT_THAT(error_of([&] { foreign.rethrow(); }), StartsWith("internal: "));
  for (const CapturedError& error : {lost, shortage}) {
    EXPECT_TRUE(error);
    EXPECT_THAT(error_of([&] { error.rethrow(); }), StartsWith("out-of-memory: "));
  }
}

TEST(HostMemory, ToFreeTakesNone) {
  Allocator allocator("test", std::make_unique<HostMemory>(), [] {}, {});
  std::vector<Buffer> buffers;
  for (size_t bytes = 64; bytes < size_t{1} << 26; bytes += bytes / 7) {
    for (int i = 0; i < 5; ++i) buffers.push_back(allocator.allocate(bytes, nullptr));
  }
  {
    const Shortage none(0, true);
    buffers.clear();
    allocator.empty_cache();
    EXPECT_FALSE(Shortage::happened());
  }
  EXPECT_EQ(allocator.stats().live_bytes, 0u);
}

class ClosedFence : public Fence {
 public:
  void open() { open_ = true; }
  void wait() override {
    while (!open_) std::this_thread::yield();
  }
  bool done() override { return open_; }

 private:
  std::atomic<bool> open_{false};
};

// Memory of others that a GPU still uses is rather kept for ever.
TEST(HostMemory, WhatCannotBeNotedForReleaseIsNotReleased) {
  constexpr size_t kMany = 100;
  std::atomic<int> released{0};
  const auto fence = std::make_shared<ClosedFence>();
  std::vector<std::vector<std::shared_ptr<Fence>>> fences(kMany, {fence});
  std::vector<std::shared_ptr<const void>> owners;
  for (size_t i = 0; i < kMany; ++i)
    owners.emplace_back(&released, [&](const void*) { ++released; });
  Releaser releaser;
  {
    const Shortage none(0, true);
    for (size_t i = 0; i < kMany; ++i) releaser.add(std::move(fences[i]), std::move(owners[i]));
    EXPECT_TRUE(Shortage::happened());
  }
  EXPECT_EQ(released, 0);
  fence->open();
}

TEST(HostMemory, FencesOfAGpuGoWithoutAny) {
  if (!CudaSystem::get().missing().empty()) GTEST_SKIP() << CudaSystem::get().missing();
  const Device gpu("cuda:0");
  const Executable sum = gpu_add_program().load(gpu);
  const Array x = filled(100, 1, gpu);
  for (const size_t most : {10u, 900u}) {
    std::vector<Array> results;
    for (size_t i = 0; i < most; ++i) results.push_back(run(sum, {x, x})[0]);
    results.back().wait();
    {
      const Shortage none(0, true);
      results.clear();
    }
    check(run(sum, {x, x})[0], 2);
  }
}

}  // namespace
}  // namespace braze::test
