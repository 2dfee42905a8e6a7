#include "braze/executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "runtime/memory/array_state.h"
#include "tests/runtime/programs.h"
#include "tests/runtime/watchdog.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<Array> run(const Executable& executable, std::vector<Array> arguments) {
  return executable.run(arguments);
}

TEST(Executable, ComputesForEverySize) {
  const Executable sum = add_program().load();
  for (const int64_t n : {1, 2, 63, 64, 65, 1000, 100'000, 64, 1}) {
    const std::vector<Array> out = run(sum, {filled(n, 2), filled(n, 0.5f)});
    ASSERT_EQ(out.size(), 1u);
    EXPECT_THAT(out[0].shape(), ElementsAre(n));
    EXPECT_THAT(out[0].to_vector<float>(), Each(2.5f));
  }
}

TEST(Executable, MoreSizesThanAreRemembered) {
  const Executable sum = add_program().load();
  for (int round = 0; round < 2; ++round) {
    for (int64_t n = 1; n < 200; ++n) {
      EXPECT_EQ(run(sum, {filled(n, 1), filled(n, 1)})[0].to_vector<float>().back(), 2);
    }
  }
}

TEST(Executable, TemporariesLiveInTheArena) {
  EXPECT_THAT(run(triple_program().load(), {filled(1000, 2)})[0].to_vector<float>(), Each(6.f));
}

TEST(Executable, CopiesAllOfEverySize) {
  Maker m("copied");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.output("y", vector_type(n));
  m.launch("copy", {}, {x, y}, {}, 0).artifact = Launch::kCopy;
  m.program->artifacts.clear();
  const Executable copied = m.load();
  // Around the size of a part, and many parts, the last of which is short.
  for (const int64_t count : {0, 1, 65'535, 65'536, 65'537, 1'000'003}) {
    std::vector<float> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), 1.f);
    EXPECT_EQ(run(copied, {Array::from(values, {count})})[0].to_vector<float>(), values);
  }
}

TEST(Executable, ZeroesAllOfEverySize) {
  Maker m("zeroed");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.output("y", vector_type(n), 0u);
  m.launch("nothing", {[](auto...) {}}, {x, y}, {}, 1).zeroed = {y};
  const Executable zeroed = m.load();
  for (const int64_t count : {1, 65'537, 1'000'003})
    EXPECT_THAT(run(zeroed, {filled(count, 7)})[0].to_vector<float>(), Each(0.f));
}

TEST(Executable, EmptyTensorsLaunchNothing) {
  Maker m("empty");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.output("y", vector_type(n));
  m.launch("never", {[](auto...) { FAIL() << "launched"; }}, {x, y}, {n}, ceildiv(n, kBlock));
  const std::vector<Array> out = run(m.load(), {filled(0, 1)});
  EXPECT_THAT(out[0].shape(), ElementsAre(0));
  EXPECT_TRUE(out[0].to_vector<float>().empty());
}

TEST(Executable, ArgumentErrorsNameTheArgument) {
  const Executable sum = add_program().load();
  const Array x = filled(4, 1);
  EXPECT_THAT(error_of([&] { run(sum, {x}); }),
              AllOf(HasSubstr("@sum takes 2 arguments, 1 given"),
                    HasSubstr("give, in this order, x: f32[n], y: f32[n]")));
  EXPECT_THAT(error_of([&] {
                run(sum, {x, Array()});
              }),
              AllOf(StartsWith("empty-array"), HasSubstr("argument 1 (\"y\") of @sum")));
  const Array wrong_dtype = Array::from(std::vector<int32_t>{1, 2, 3, 4}, {4});
  EXPECT_THAT(error_of([&] {
                run(sum, {x, wrong_dtype});
              }),
              AllOf(StartsWith("argument-mismatch"), HasSubstr("argument 1 (\"y\")"),
                    HasSubstr("i32[4]"), HasSubstr("f32[n]")));
  const Array wrong_rank = Array::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  EXPECT_THAT(error_of([&] { run(sum, {wrong_rank, x}); }), HasSubstr("f32[2, 2]"));
}

TEST(Executable, SizeErrorsNameTheSymbol) {
  const Executable sum = add_program().load();
  EXPECT_THAT(error_of([&] {
                run(sum, {filled(3, 1), filled(4, 1)});
              }),
              AllOf(StartsWith("bad-inputs"), HasSubstr("'y'"),
                    HasSubstr("axis 0 must be 3, not 4 (n = 3")));
  EXPECT_THAT(error_of([&] {
                run(sum, {filled((1 << 20) + 1, 1), filled((1 << 20) + 1, 1)});
              }),
              AllOf(StartsWith("bad-inputs"), HasSubstr("1048576")));
}

TEST(Executable, OutputsMayBeInputsConstantsAndTheSame) {
  Maker m("echo", {});
  const TensorType type = vector_type(2);
  const uint32_t x = m.input("x", type);
  const uint32_t y = m.output("y", type);
  m.program->outputs.push_back({"again", type, y, {}});
  m.program->outputs.push_back({"x", type, x, {}});
  HostTensor constant(DType::F32, {2});
  constant.as<float>()[1] = 7;
  m.program->constants.push_back(std::make_shared<const HostTensor>(constant));
  const uint32_t c = m.slot(Slot::Kind::Constant, 0, type, "c");
  m.program->outputs.push_back({"c", type, c, {}});
  m.launch("add", {add_kernel}, {x, c, y}, {2}, 1);
  const std::vector<Array> out = run(m.load(), {filled(2, 1)});
  EXPECT_THAT(out[0].to_vector<float>(), ElementsAre(1, 8));
  EXPECT_EQ(out[1].state(), out[0].state());
  EXPECT_THAT(out[2].to_vector<float>(), ElementsAre(1, 1));
  EXPECT_THAT(out[3].to_vector<float>(), ElementsAre(0, 7));
}

TEST(Executable, PhasesRunInOrderAndWorkersHaveTheirOwnScratch) {
  Maker m("phases", {});
  constexpr int64_t kCount = 10'000;
  const uint32_t x = m.output("x", vector_type(kCount, DType::I64));
  const auto first = [](void* const* buffers, const int64_t*, void* scratch, int64_t begin,
                        int64_t end) {
    auto* mine = static_cast<int64_t*>(scratch);
    for (int64_t i = begin; i < end; ++i) {
      mine[0] = i;
      mine[127] = 2 * i;
      static_cast<int64_t*>(buffers[0])[i] = mine[0] + mine[127];
    }
  };
  const auto second = [](void* const* buffers, const int64_t*, void*, int64_t begin, int64_t end) {
    auto* data = static_cast<int64_t*>(buffers[0]);
    for (int64_t i = begin; i < end; ++i) data[i] += 1;
  };
  m.launch("count", {first, second}, {x}, {}, kCount).scratch_bytes = 1024;
  const std::vector<int64_t> got = run(m.load(), {})[0].to_vector<int64_t>();
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], 3 * i + 1);
}

TEST(Executable, MembersOfALaunchHaveTheirOwnBuffers) {
  Maker m("members", {});
  constexpr int64_t kCount = 3001;
  const uint32_t x = m.output("x", vector_type(kCount, DType::I64)),
                 y = m.output("y", vector_type(kCount, DType::I64)),
                 z = m.output("z", vector_type(kCount, DType::I64));
  const auto fill = [](void* const* buffers, const int64_t*, void*, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) static_cast<int64_t*>(buffers[0])[i] = i;
  };
  const auto add = [](void* const* buffers, const int64_t*, void*, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) static_cast<int64_t*>(buffers[0])[i] += 1;
  };
  Launch& launch = m.launch("count", {fill, add}, {x, y, z}, {}, kCount);
  launch.members = {"count", "count_1", "count_2"};
  for (const Array& out : run(m.load(), {})) {
    const std::vector<int64_t> got = out.to_vector<int64_t>();
    for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], i + 1);
  }
}

TEST(Executable, ZeroedSlotsAreZero) {
  Maker m("counter", {});
  const uint32_t t = m.temporary("t", vector_type(16), 0);
  const uint32_t y = m.output("y", vector_type(16));
  m.program->arena_bytes = 64;
  const auto dirty = [](void* const* buffers, const int64_t*, void*, int64_t, int64_t) {
    std::memcpy(buffers[1], buffers[0], 64);
    std::memset(buffers[0], 0x55, 64);
  };
  m.launch("dirty", {dirty}, {t, y}, {}, 1).zeroed = {t};
  const Executable executable = m.load();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(run(executable, {})[0].to_vector<float>(), Each(0.f));
}

constexpr unsigned char kTripleImage[] = {
    // y[i] = x[i] * 3 for begin <= i < end; entry at 16, the constant at 64.
    0xcc, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f,
    0x1f, 0x40, 0x00, 0x48, 0x8b, 0x07,              // mov rax, [rdi]
    0x48, 0x8b, 0x57, 0x08,                          // mov rdx, [rdi+8]
    0x4c, 0x39, 0xc1,                                // cmp rcx, r8
    0x7d, 0x1a,                                      // jge done
    0xf3, 0x0f, 0x10, 0x04, 0x88,                    // next: movss xmm0, [rax+rcx*4]
    0xf3, 0x0f, 0x59, 0x05, 0x17, 0x00, 0x00, 0x00,  // mulss xmm0, [rip+factor]
    0xf3, 0x0f, 0x11, 0x04, 0x8a,                    // movss [rdx+rcx*4], xmm0
    0x48, 0xff, 0xc1,                                // inc rcx
    0x4c, 0x39, 0xc1,                                // cmp rcx, r8
    0x7c, 0xe6,                                      // jl next
    0xc3,                                            // done: ret
    0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x40, 0x40,  // factor: 3.0f
};

Maker image_program(std::vector<uint64_t> entries) {
  Maker m("image");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.output("y", vector_type(n));
  m.launch("triple", {add_kernel}, {x, y}, {}, n);
  m.program->artifacts[0] = {"image",
                             "triple",
                             {reinterpret_cast<const char*>(kTripleImage), sizeof kTripleImage},
                             std::move(entries)};
  return m;
}

TEST(Executable, RunsMachineCode) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the code is for x86-64";
#endif
  EXPECT_THAT(run(image_program({16}).load(), {filled(1000, 1.5f)})[0].to_vector<float>(),
              Each(4.5f));
}

TEST(Executable, RefusesMalformedPrograms) {
  const auto error = [](const Maker& m) { return error_of([&] { m.load(); }); };
  EXPECT_THAT(error(image_program({sizeof kTripleImage})), StartsWith("malformed-program"));
  EXPECT_THAT(error(image_program({})), StartsWith("malformed-program"));
  Maker m = add_program();
  m.program->launches[0].buffers[1] = 99;
  EXPECT_THAT(error(m), StartsWith("malformed-program"));
  m = add_program();
  m.program->outputs[0].slot = 99;
  EXPECT_THAT(error(m), StartsWith("malformed-program"));
  m = add_program();
  m.program->slots[1].index = 2;
  EXPECT_THAT(error(m), StartsWith("malformed-program"));
  m = add_program();
  m.program->slots[2].type = vector_type(symbol_n(), DType::F64);
  EXPECT_THAT(error(m), StartsWith("malformed-program"));
  m = triple_program();
  m.program->arena_bytes = 64;
  EXPECT_THAT(error_of([&] { run(m.load(), {filled(17, 1)}); }), StartsWith("malformed-program"));
}

TEST(Executable, RefusesCodeThatTheDeviceCannotRun) {
  Maker m = add_program();
  m.program->artifacts[0].format = "ptx";
  m.program->artifacts[0].entry_names = {"add_p0"};
  m.program->launches[0].gpu = {{.block = 32}};
  EXPECT_THAT(error_of([&] { m.load(); }),
              AllOf(StartsWith("unsupported-program"), HasSubstr("\"ptx\"")));
  m = add_program();
  m.program->target = *find_target("interpreter");
  EXPECT_THAT(error_of([&] { m.load(); }), HasSubstr("device cpu does not run program @sum"));
  EXPECT_THAT(error_of([&] { add_program().load("interpreter"); }),
              StartsWith("unsupported-program"));
}

TEST(Donation, TheResultTakesTheMemory) {
  const Executable step = step_program().load();
  const Array p = filled(100, 1), g = filled(100, 2);
  const Array copy_of_handle = p;
  const void* const memory = p.state()->data;
  const Array next = run(step, {p, g})[0];
  EXPECT_THAT(next.to_vector<float>(), Each(3.f));
  EXPECT_EQ(next.state()->data, memory);
  for (const Array& dead : {p, copy_of_handle}) {
    const auto is_dead =
        AllOf(StartsWith("donated-array"), HasSubstr("f32[100]"), HasSubstr("@step"));
    EXPECT_THAT(error_of([&] { dead.to_vector<float>(); }), is_dead);
    EXPECT_THAT(error_of([&] { dead.wait(); }), is_dead);
    EXPECT_THAT(error_of([&] { (void)dead.to_string(); }), is_dead);
    EXPECT_THAT(error_of([&] { (void)dead.to("interpreter"); }), is_dead);
    EXPECT_THAT(error_of([&] { run(step, {dead, g}); }), is_dead);
    EXPECT_THAT(error_of([&] { run(step, {next, dead}); }), is_dead);
  }
  EXPECT_THAT(next.to_vector<float>(), Each(3.f)) << "a refused call changes nothing";
  EXPECT_THAT(g.to_vector<float>(), Each(2.f));
}

TEST(Arguments, OfAnotherExtentAreErrors) {
  Maker m("fixed", {});
  const TensorType type = vector_type(Expr(8));
  const uint32_t x = m.input("x", type), z = m.output("z", type);
  m.launch("add", {add_kernel}, {x, x, z}, {8}, 1);
  const Executable twice = m.load();
  EXPECT_THAT(run(twice, {filled(8, 1)})[0].to_vector<float>(), Each(2.f));
  for (const int64_t extent : {7, 9, 0})
    EXPECT_THAT(error_of([&] { run(twice, {filled(extent, 1)}); }),
                HasSubstr("but f32[8] is expected"));
}

TEST(Arguments, AResultLargerThanMemoryCanBeIsAnError) {
  Maker m("cube");
  const Expr n = symbol_n();
  m.input("x", vector_type(n));
  m.output("z", {DType::F32, Shape{n, n, n, n}});
  EXPECT_THAT(error_of([&] { run(m.load(), {filled(1 << 16, 1)}); }), StartsWith("size-overflow"));
  EXPECT_EQ(run(m.load(), {filled(0, 1)})[0].numel(), 0);
}

TEST(Constants, AreEachTheirOwn) {
  Maker m("constants", {});
  const TensorType type = vector_type(Expr(4));
  std::vector<uint32_t> slots;
  for (const double value : {1.0, 10.0}) {
    HostTensor constant(DType::F32, {4});
    for (int64_t i = 0; i < 4; ++i) constant.set_double(i, value);
    m.program->constants.push_back(std::make_shared<const HostTensor>(std::move(constant)));
    slots.push_back(m.slot(Slot::Kind::Constant, slots.size(), type, "constant"));
  }
  const uint32_t z = m.output("z", type);
  m.launch("add", {add_kernel}, {slots[0], slots[1], z}, {4}, 1);
  EXPECT_THAT(run(m.load(), {})[0].to_vector<float>(), Each(11.f));
}

TEST(Donation, NotTwiceInOneCall) {
  const Array p = filled(4, 1);
  EXPECT_THAT(error_of([&] {
                run(step_program().load(), {p, p});
              }),
              AllOf(StartsWith("donated-twice"), HasSubstr("\"p\""), HasSubstr("\"g\"")));
  EXPECT_THAT(p.to_vector<float>(), Each(1.f));
}

TEST(Donation, OneOfManyThreadsWins) {
  const Executable step = step_program().load();
  for (int round = 0; round < 50; ++round) {
    const Array p = filled(1000, 1), g = filled(1000, 2);
    std::atomic<int> winners{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        try {
          const Array next = run(step, {p, g})[0];
          ++winners;
          EXPECT_THAT(next.to_vector<float>(), Each(3.f));
        } catch (const Error& error) {
          EXPECT_STREQ(error.code().name.data(), "donated-array");
        }
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(winners, 1);
  }
}

TEST(Donation, ReadersSeeTheOldValueOrAnError) {
  const Executable step = step_program().load();
  for (int round = 0; round < 50; ++round) {
    Array p = filled(10'000, 1);
    const Array g = filled(10'000, 1);
    std::thread reader([p] {
      for (;;) {
        try {
          EXPECT_THAT(p.to_vector<float>(), Each(1.f));
        } catch (const Error& error) {
          EXPECT_STREQ(error.code().name.data(), "donated-array");
          return;
        }
      }
    });
    for (int i = 0; i < 5; ++i) p = run(step, {p, g})[0];
    EXPECT_THAT(p.to_vector<float>(), Each(6.f));
    reader.join();
  }
}

TEST(Memory, ThePlanIsWhatIsAllocated) {
  const Executable triple = triple_program().load();
  synchronize("cpu");
  for (const int64_t n : {0, 1, 1000, 12'345, 1 << 20}) {
    const Array x = filled(n, 1);
    const MemoryPlan plan = triple.memory_plan(std::vector<Array>{x});
    empty_cache("cpu");
    const MemoryStats before = memory_stats("cpu");
    const Array y = run(triple, {x})[0];
    y.wait();
    const MemoryStats after = memory_stats("cpu");
    EXPECT_EQ(after.live_bytes - before.live_bytes, plan.output_bytes);
    EXPECT_EQ(after.cached_bytes, plan.temporary_bytes);
    EXPECT_EQ(plan.peak_bytes, plan.output_bytes + plan.temporary_bytes);
    EXPECT_GE(plan.output_bytes, static_cast<uint64_t>(4 * n));
    EXPECT_LE(static_cast<double>(plan.output_bytes), 4 * static_cast<double>(n) * 1.125 + 64);
  }
}

TEST(Memory, TheUpdateOfAnArgumentTakesNone) {
  const Executable step = step_program().load();
  EXPECT_EQ(step.memory_plan(std::vector<Array>{filled(8, 1), filled(8, 1)}).peak_bytes, 0u);
}

TEST(Memory, ShortageLeavesEverythingAsItWas) {
  // A call that donates and needs memory of its own.
  Maker m("train");
  const Expr n = symbol_n();
  const uint32_t p = m.input("p", vector_type(n));
  const uint32_t g = m.input("g", vector_type(n));
  const uint32_t next = m.output("p_next", vector_type(n), 0);
  const uint32_t loss = m.output("loss", vector_type(n));
  m.launch("update", {add_kernel}, {p, g, next}, {n}, ceildiv(n, kBlock));
  m.launch("loss", {add_kernel}, {g, g, loss}, {n}, ceildiv(n, kBlock));
  const Executable train = m.load();

  constexpr int64_t kMany = 1 << 20;
  const Array x = filled(kMany, 1), y = filled(kMany, 2);
  synchronize("cpu");
  empty_cache("cpu");
  const uint64_t live = memory_stats("cpu").live_bytes;
  set_memory_limit("cpu", live + (1 << 20));
  const std::string error = error_of([&] { run(train, {x, y}); });
  EXPECT_THAT(error, AllOf(StartsWith("out-of-memory"), HasSubstr("cpu has no 4.0 MiB"),
                           HasSubstr("loss (result of @train)"), HasSubstr("The largest")));
  EXPECT_EQ(memory_stats("cpu").live_bytes, live);
  EXPECT_THAT(x.to_vector<float>(), Each(1.f));
  EXPECT_THAT(y.to_vector<float>(), Each(2.f));
  set_memory_limit("cpu", live + (5 << 20));
  const std::vector<Array> out = run(train, {x, y});
  EXPECT_THAT(out[0].to_vector<float>(), Each(3.f));
  EXPECT_THAT(out[1].to_vector<float>(), Each(4.f));
  set_memory_limit("cpu", std::nullopt);
}

TEST(Memory, ShortageWaitsForPendingCalls) {
  const Executable triple = triple_program().load();
  constexpr int64_t kMany = 1 << 18;  // 1 MiB a tensor
  const Array x = filled(kMany, 1);
  synchronize("cpu");
  empty_cache("cpu");
  // One result and one arena at a time.
  set_memory_limit("cpu", memory_stats("cpu").live_bytes + (2 << 20) + (1 << 16));
  for (int i = 0; i < 100; ++i)
    run(triple, {x});  // results are dropped, their memory is not yet free
  EXPECT_THAT(run(triple, {x})[0].to_vector<float>(), Each(3.f));
  set_memory_limit("cpu", std::nullopt);
}

std::atomic<bool> gate_open{true};

void gate_kernel(void* const* buffers, const int64_t* scalars, void* scratch, int64_t begin,
                 int64_t end) {
  while (!gate_open) std::this_thread::yield();
  add_kernel(buffers, scalars, scratch, begin, end);
}

Maker gated_program() {
  Maker m = add_program();
  m.program->artifacts[0] = function_artifact("gated", {gate_kernel});
  return m;
}

/// z = x + y over f32[n], which waits at the gate; every worker writes and reads all its scratch.
Maker scratch_program(int64_t scratch_bytes) {
  Maker m("scratch");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.input("y", vector_type(n));
  const uint32_t z = m.output("z", vector_type(n));
  const auto kernel = [](void* const* buffers, const int64_t* scalars, void* scratch, int64_t begin,
                         int64_t end) {
    std::memset(scratch, static_cast<int>(begin % 256), static_cast<size_t>(scalars[1]));
    gate_kernel(buffers, scalars, scratch, begin, end);
    for (int64_t i = 0; i < scalars[1]; ++i) {
      if (static_cast<unsigned char*>(scratch)[i] != begin % 256)
        fail(codes::kInternal, "another thread wrote there");
    }
  };
  m.launch("add", {kernel}, {x, y, z}, {n, scratch_bytes}, ceildiv(n, kBlock)).scratch_bytes =
      scratch_bytes;
  return m;
}

TEST(Scratch, MoreOfItWaitsForQueuedCalls) {
  const Watchdog watchdog("a call that needs more scratch than queued ones, at a limit");
  set_cpu_threads(2);
  const Executable little = scratch_program(1 << 20).load();
  const Executable more = scratch_program((1 << 20) + 4096).load();
  const Array x = filled(100 * kBlock, 1);
  run(little, {x, x})[0].wait();
  synchronize("cpu");
  gate_open = false;
  std::vector<Array> queued;
  for (int i = 0; i < 3; ++i) queued.push_back(run(little, {x, x})[0]);
  empty_cache("cpu");
  set_memory_limit("cpu", memory_stats("cpu").live_bytes + (512 << 10));
  std::jthread opener([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    gate_open = true;
  });
  const Array y = run(more, {x, x})[0];
  EXPECT_THAT(y.to_vector<float>(), Each(2.f));
  for (const Array& z : queued) EXPECT_THAT(z.to_vector<float>(), Each(2.f));
  set_memory_limit("cpu", std::nullopt);
}

TEST(Scratch, QueuedCallsKeepTheirsWhenThreadsBecomeMore) {
  const Watchdog watchdog("more threads while calls with scratch are queued, at a limit");
  set_cpu_threads(2);
  const Executable program = scratch_program(1 << 20).load();
  const Array x = filled(100 * kBlock, 1);
  gate_open = false;
  std::vector<Array> queued;
  for (int i = 0; i < 3; ++i) queued.push_back(run(program, {x, x})[0]);
  empty_cache("cpu");
  set_memory_limit("cpu", memory_stats("cpu").live_bytes + 1000);
  set_cpu_threads(8);
  gate_open = true;
  for (const Array& z : queued) EXPECT_THAT(z.to_vector<float>(), Each(2.f));
  synchronize("cpu");
  set_memory_limit("cpu", std::nullopt);
  EXPECT_THAT(run(program, {x, x})[0].to_vector<float>(), Each(2.f)) << "with eight threads";
  set_cpu_threads(2);
  EXPECT_THAT(run(program, {x, x})[0].to_vector<float>(), Each(2.f)) << "with two of the eight";
}

TEST(Memory, ShortageAtEveryRequestBehindQueuedCalls) {
  const Executable gated = gated_program().load(), step = step_program().load();
  const Executable triple = triple_program().load(), scratch = scratch_program(5000).load();
  constexpr int64_t kMany = 1000;
  const Array x = filled(kMany, 1);
  Array p = filled(kMany, 0);
  run(scratch, {x, x})[0].wait();
  Allocator& allocator = x.state()->driver.allocator();
  float steps = 0;
  int shortages = 0;
  for (uint64_t served = 0;; ++served) {
    SCOPED_TRACE("failing the request behind " + std::to_string(served));
    const Watchdog watchdog("a shortage behind queued calls");
    synchronize("cpu");
    empty_cache("cpu");
    const uint64_t live = memory_stats("cpu").live_bytes;
    gate_open = false;
    std::string error;
    {
      const Array queued = run(gated, {x, x})[0];
      // A shortage waits for what is queued.
      std::jthread opener([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        gate_open = true;
      });
      std::vector<Array> results;
      allocator.fail_request(served);
      error = error_of([&] {
        results.push_back(run(triple, {queued})[0]);
        p = run(step, {p, x})[0];
        ++steps;
        results.push_back(run(scratch, {results[0], x})[0]);
        results.push_back(run(triple, {results[1]})[0]);
      });
      allocator.fail_request(std::nullopt);
      opener.join();
      EXPECT_THAT(x.to_vector<float>(), Each(1.f));
      EXPECT_THAT(p.to_vector<float>(), Each(steps));
      const float values[] = {6, 7, 21};
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_THAT(results[i].to_vector<float>(), Each(values[i]));
      }
      EXPECT_THAT(run(triple, {queued})[0].to_vector<float>(), Each(6.f));
    }
    synchronize("cpu");
    EXPECT_EQ(memory_stats("cpu").live_bytes, live) << "memory is left behind";
    if (error.empty()) break;
    EXPECT_THAT(error, StartsWith("out-of-memory"));
    ++shortages;
  }
  EXPECT_GE(shortages, 5);
}

TEST(Memory, ShortageAtEveryRequestOfSeveralThreads) {
  constexpr int kThreads = 4;
  constexpr int64_t kMany = 1000;
  const Executable triple = triple_program().load(), step = step_program().load();
  const Executable scratch = scratch_program(5000).load();
  const Array x = filled(kMany, 1);
  run(scratch, {x, x})[0].wait();
  struct Caller {
    Array p = filled(kMany, 0), y;
    float steps = 0;
    std::string error;
  };
  std::vector<Caller> callers(kThreads);
  Allocator& allocator = x.state()->driver.allocator();
  uint64_t served = 0;
  for (;; ++served) {
    SCOPED_TRACE("failing the request behind " + std::to_string(served));
    const Watchdog watchdog("a shortage among several threads");
    synchronize("cpu");
    empty_cache("cpu");
    const uint64_t live = memory_stats("cpu").live_bytes;
    allocator.fail_request(served);
    {
      std::vector<std::jthread> threads;
      for (Caller& caller : callers) {
        threads.emplace_back([&] {
          caller.error = error_of([&] {
            caller.y = run(triple, {x})[0];
            caller.p = run(step, {caller.p, x})[0];
            ++caller.steps;
            caller.y = run(scratch, {run(triple, {caller.y})[0], x})[0];
          });
        });
      }
    }
    allocator.fail_request(std::nullopt);
    int shortages = 0;
    for (Caller& caller : callers) {
      EXPECT_THAT(caller.p.to_vector<float>(), Each(caller.steps));
      if (caller.error.empty()) {
        EXPECT_THAT(caller.y.to_vector<float>(), Each(10.f));
      } else {
        EXPECT_THAT(caller.error, StartsWith("out-of-memory"));
        ++shortages;
      }
      caller.y = {};
    }
    EXPECT_THAT(x.to_vector<float>(), Each(1.f));
    EXPECT_THAT(run(triple, {x})[0].to_vector<float>(), Each(3.f));
    synchronize("cpu");
    EXPECT_EQ(memory_stats("cpu").live_bytes, live) << "memory is left behind";
    if (shortages == 0) break;
    ASSERT_EQ(shortages, 1);
  }
  EXPECT_EQ(served, kThreads * 5u);
}

TEST(Donation, ACallWaitsAsleepForReaders) {
  const Watchdog watchdog("a call that waits for readers of what it overwrites");
  const Executable step = step_program().load();
  const Array x = filled(1000, 1), one = filled(1000, 1);
  // A thread that looks again and again takes time, or where others want it, turns. Threads of
  // other tests may still be about to fall asleep.
  const auto is_quiet = [] {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    getrusage(RUSAGE_SELF, &after);
    const auto turns = [](const rusage& u) { return u.ru_nvcsw + u.ru_nivcsw; };
    const auto microseconds = [](const timeval& t) { return t.tv_sec * 1'000'000 + t.tv_usec; };
    return turns(after) - turns(before) < 30 &&
           microseconds(after.ru_utime) - microseconds(before.ru_utime) < 50'000;
  };
  Array next;
  {
    const ArrayPin reader(*x.state());
    next = run(step, {x, one})[0];
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the device's thread has begun
    int windows = 1;
    while (!is_quiet() && windows < 20) ++windows;
    EXPECT_LT(windows, 20);
    EXPECT_FALSE(next.state()->ready->done());
  }
  EXPECT_THAT(next.to_vector<float>(), Each(2.f));
}

TEST(Async, RunReturnsBeforeTheWorkIsDone) {
  const Executable gated = gated_program().load();
  const Executable sum = add_program().load();
  const Array x = filled(100, 1);
  gate_open = false;
  const Array y = run(gated, {x, x})[0];
  const Array z = run(sum, {y, y})[0];
  EXPECT_FALSE(y.state()->ready->done());
  EXPECT_FALSE(z.state()->ready->done());
  gate_open = true;
  EXPECT_THAT(z.to_vector<float>(), Each(4.f));
  EXPECT_TRUE(y.state()->ready->done());
}

TEST(Async, WorkHappensWithoutAnyoneWaiting) {
  const Executable sum = add_program().load();
  for (int i = 0; i < 3; ++i) {
    const Array y = run(sum, {filled(100, 1), filled(100, 1)})[0];
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!y.state()->ready->done() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(y.state()->ready->done());
    // Long enough for the background thread to fall asleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
  }
}

TEST(Async, DroppedResultsAreFreed) {
  const Executable triple = triple_program().load();
  const Array x = filled(1000, 1);
  synchronize("cpu");
  const uint64_t live = memory_stats("cpu").live_bytes;
  for (int i = 0; i < 1000; ++i) run(triple, {x});
  synchronize("cpu");
  EXPECT_EQ(memory_stats("cpu").live_bytes, live);
}

TEST(Async, ManyPendingCalls) {
  const Executable sum = add_program().load();
  const Array one = filled(200, 1);
  Array x = filled(200, 0);
  for (int i = 0; i < 5000; ++i) x = run(sum, {x, one})[0];
  EXPECT_THAT(x.to_vector<float>(), Each(5000.f));
}

void failing_kernel(void* const*, const int64_t*, void*, int64_t, int64_t) {
  fail(codes::kInternal, "planted");
}

TEST(Async, ErrorsAreKeptUntilSomeoneLooks) {
  Maker m = add_program();
  m.program->artifacts[0] = function_artifact("failing", {failing_kernel});
  const Executable failing = m.load();
  const Executable sum = add_program().load();
  for (const int64_t n :
       {int64_t{10}, 100 * kBlock}) {  // one instance, and many on several threads
    const Array x = filled(n, 1);
    const Array y = run(failing, {x, x})[0];
    const Array z = run(sum, {y, x})[0];
    EXPECT_THAT(error_of([&] { y.to_vector<float>(); }), HasSubstr("planted"));
    EXPECT_THAT(error_of([&] { y.wait(); }), HasSubstr("planted"));
    EXPECT_THAT(error_of([&] { z.to_vector<float>(); }), HasSubstr("planted")) << "it spreads";
    EXPECT_THAT(error_of([&] { synchronize("cpu"); }), HasSubstr("planted"));
    EXPECT_EQ(error_of([&] { synchronize("cpu"); }), "");
    EXPECT_THAT(run(sum, {x, x})[0].to_vector<float>(), Each(2.f)) << "the device works on";
  }
}

TEST(Threads, SixteenThreadsOfAThousandCalls) {
  const Executable sum = add_program().load();
  const Executable step = step_program().load();
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      const int64_t n = 1 + 37 * t;
      const Array one = filled(n, 1);
      Array x = filled(n, 0), p = filled(n, 0);
      for (int i = 0; i < 1000; ++i) {
        x = run(sum, {x, one})[0];
        p = run(step, {p, x})[0];
        if (i % 100 == t) {
          ASSERT_EQ(x.to_vector<float>()[0], static_cast<float>(i + 1));
        }
      }
      EXPECT_THAT(x.to_vector<float>(), Each(1000.f));
      EXPECT_THAT(p.to_vector<float>(), Each(500500.f));
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Threads, TheNumberMayChangeAtAnyTime) {
  const Executable triple = triple_program().load();
  const Array x = filled(1 << 17, 1);
  for (const int threads : {1, 3, 2, 8, 1, 2}) {
    set_cpu_threads(threads);
    EXPECT_EQ(Device("cpu").target().cores, threads);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(run(triple, {x})[0].to_vector<float>(), std::vector<float>(1 << 17, 3.f));
    }
  }
  EXPECT_THAT(error_of([] { set_cpu_threads(0); }), StartsWith("bad-setting"));
}

TEST(Devices, ArgumentsOfAnotherDeviceAreAnErrorThatNamesBoth) {
  set_cpu_device_count(2);
  const Executable sum = add_program().load("cpu:1");
  const Array here = filled(4, 1, "cpu:1"), there = filled(4, 1, "cpu");
  EXPECT_THAT(
      error_of([&] {
        run(sum, {here, there});
      }),
      AllOf(StartsWith("device-mismatch"), HasSubstr("argument 1 (\"y\") of @sum is on cpu,"),
            HasSubstr("loaded on cpu:1"), HasSubstr(".to(\"cpu:1\")")));
  const Array z = run(sum, {here, there.to("cpu:1")})[0];
  EXPECT_EQ(z.device(), Device("cpu:1"));
  EXPECT_THAT(z.to("cpu").to_vector<float>(), Each(2.f));
  set_cpu_device_count(1);
}

TEST(Devices, SeveralWorkAtOnce) {
  set_cpu_device_count(3);
  std::vector<std::thread> threads;
  for (const char* name : {"cpu", "cpu:1", "cpu:2"}) {
    threads.emplace_back([name] {
      const DeviceGuard guard(name);
      const Executable triple = triple_program().load(default_device());
      for (int i = 0; i < 200; ++i) {
        const Array x = Array::from(std::vector<float>(3000, 2), {3000});
        EXPECT_EQ(x.device().name(), name);
        EXPECT_THAT(run(triple, {x})[0].to_vector<float>(), Each(6.f));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  set_cpu_device_count(1);
}

TEST(History, RecordsLaunchesWhenAsked) {
  const Executable triple = triple_program().load();
  const Executable sum = add_program().load();
  const Array x = filled(100, 1);
  run(sum, {x, x})[0].wait();
  clear_launch_history();
  EXPECT_TRUE(launch_history().empty());
  record_launches(true);
  run(sum, {x, x})[0].wait();
  run(triple, {x})[0].wait();
  record_launches(false);
  run(sum, {x, x})[0].wait();
  const std::vector<LaunchRecord> history = launch_history();
  ASSERT_EQ(history.size(), 3u);
  EXPECT_EQ(history[0].kernel, "add");
  EXPECT_EQ(history[0].program, "sum");
  EXPECT_EQ(history[0].device, Device("cpu"));
  EXPECT_EQ(history[0].bytes, 1200u);
  EXPECT_EQ(history[0].flops, 100u);
  EXPECT_GT(history[0].seconds, 0);
  EXPECT_EQ(history[1].kernel, "double");
  EXPECT_EQ(history[2].kernel, "triple");
  clear_launch_history();
  EXPECT_TRUE(launch_history().empty());
}

TEST(Executable, EmptyHandle) {
  const Executable none;
  EXPECT_FALSE(none);
  EXPECT_THAT(error_of([&] { run(none, {}); }), StartsWith("empty-executable"));
  EXPECT_THAT(error_of([&] { (void)none.program(); }), StartsWith("empty-executable"));
}

}  // namespace
}  // namespace braze::test
