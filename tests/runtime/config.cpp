// config.cpp — the configuration of the process, and that GPUs are left alone until somebody asks.
// Every test is a process of its own, for there is one configuration in a process.
#include "braze/config.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "braze/compile.h"
#include "ir/graph/text.h"
#include "ir/support/warning.h"
#include "ir/target/target.h"
#include "runtime/cache/cache_settings.h"
#include "tests/runtime/child.h"
#include "tests/runtime/programs.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Whether CUDA's driver, here the fake one, has been opened.
bool is_driver_open() {
  void* const handle = dlopen(std::getenv("BRAZE_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  if (handle) dlclose(handle);
  return handle != nullptr;
}

TEST(Config, GoesBeforeTheEnvironment) {
  const auto child = [] {
    setenv("BRAZE_CACHE", "on", 1);
    setenv("BRAZE_CACHE_DIR", "/from/the/environment", 1);
    setenv("BRAZE_CACHE_SIZE", "5M", 1);
    setenv("BRAZE_THREADS", "7", 1);
    setenv("BRAZE_MEMORY_LIMIT", "9000000", 1);
    configure(
        {.cache = "readonly", .cache_folder = "/given", .threads = 3, .memory_limit = 1 << 20});
    const CacheSettings settings = CacheSettings::of_process();
    EXPECT_EQ(settings.mode, CacheMode::ReadOnly);
    EXPECT_EQ(settings.folder, "/given");
    EXPECT_EQ(settings.max_bytes, 5u << 20) << "what is not given is the environment's";
    EXPECT_EQ(Device("cpu").target().cores, 3);
    EXPECT_THAT(error_of([] { filled(1 << 20, 0); }),
                AllOf(StartsWith("out-of-memory"), HasSubstr("1.0 MiB allowed")));
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Config, TheEnvironmentFillsWhatIsNotGiven) {
  const auto child = [] {
    setenv("BRAZE_THREADS", "2", 1);
    setenv("BRAZE_CACHE", "off", 1);
    configure({});
    EXPECT_EQ(Device("cpu").target().cores, 2);
    EXPECT_EQ(CacheSettings::of_process().mode, CacheMode::Off);
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Config, IsGivenOnceAndBeforeAnythingElse) {
  const auto twice = [] {
    configure({});
    EXPECT_THAT(error_of([] { configure({}); }),
                AllOf(StartsWith("configured-late"), HasSubstr("already")));
  };
  const auto late = [] {
    filled(4, 1);
    EXPECT_THAT(error_of([] { configure({}); }),
                AllOf(StartsWith("configured-late"), HasSubstr("already used")));
  };
  const auto after_an_error = [] {
    EXPECT_THAT(error_of([] { configure({.threads = 0}); }),
                AllOf(StartsWith("bad-setting"), HasSubstr("1 to 1024")));
    EXPECT_THAT(error_of([] { configure({.cache = "yes"}); }),
                AllOf(StartsWith("bad-setting"), HasSubstr("\"yes\"")));
    configure({.threads = 1});
  };
  EXPECT_EQ(fate_of_child(twice), "");
  EXPECT_EQ(fate_of_child(late), "");
  EXPECT_EQ(fate_of_child(after_an_error), "");
}

TEST(Config, TheLogGoesToTheHostApplication) {
  const auto child = [] {
    static std::vector<std::string> lines;
    configure({.log = [](LogLevel level, std::string_view text) {
      lines.push_back(std::string(name(level)) + ": " + std::string(text));
    }});
    testing::internal::CaptureStderr();
    warn("something");
    alignas(64) static float memory[8] = {};
    Array::borrow({.data = memory + 1, .shape = {4}, .device = "cpu"});
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_THAT(lines, ElementsAre("warning: something",
                                   AllOf(StartsWith("warning: "), HasSubstr("f32[4]"))));
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Config, WithoutALogItGoesToStderr) {
  const auto child = [] {
    testing::internal::CaptureStderr();
    warn("something");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "braze: warning: something\n");
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Config, ThreadsOfTheHostApplicationDoTheWork) {
  const auto child = [] {
    static std::atomic<int> loops{0}, tasks{0};
    configure({.threads = 4, .parallel_for = [](int count, const ParallelTask& task) {
                 ++loops;
                 EXPECT_EQ(count, 4);
                 std::vector<std::thread> threads;
                 for (int i = 0; i < count; ++i)
                   threads.emplace_back([&, i] {
                     ++tasks;
                     task(i);
                   });
                 for (std::thread& thread : threads) thread.join();
               }});
    constexpr int64_t kN = 1 << 20;
    const Array x = filled(kN, 1);
    const Array y = add_program().load().run(std::vector{x, x})[0];
    EXPECT_THAT(y.to_vector<float>(), testing::Each(2));
    EXPECT_EQ(loops, 1);
    EXPECT_EQ(tasks, 4);
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Config, AHostApplicationMayDoThePartsOneByOneOrLeaveSomeOut) {
  const auto with = [](int done) {
    return [done] {
      configure({.threads = 4, .parallel_for = [done](int count, const ParallelTask& task) {
                   for (int i = 0; i < std::min(count, done); ++i) task(i);
                 }});
      const Array x = filled(1 << 20, 1);
      EXPECT_THAT(add_program().load().run(std::vector{x, x})[0].to_vector<float>(),
                  testing::Each(2));
    };
  };
  EXPECT_EQ(fate_of_child(with(4)), "");
  EXPECT_EQ(fate_of_child(with(0)), "");
}

TEST(Config, AHostApplicationThatDoesAPartTwiceGetsAnError) {
  const auto with = [](std::vector<int> indices, const char* said) {
    return [indices, said] {
      configure({.threads = 4, .parallel_for = [indices](int, const ParallelTask& task) {
                   for (const int index : indices) task(index);
                 }});
      const Array x = filled(1 << 20, 1);
      EXPECT_THAT(error_of([&] {
                    add_program().load().run(std::vector{x, x})[0].wait();
                  }),
                  AllOf(StartsWith("host-loop"), HasSubstr(said), HasSubstr("from 0 to 3")));
    };
  };
  EXPECT_EQ(fate_of_child(with({0, 1, 1}, "index 1, which it had called before")), "");
  EXPECT_EQ(fate_of_child(with({4}, "index 4, of 4 parts")), "");
  EXPECT_EQ(fate_of_child(with({-1, 0}, "index -1, of 4 parts")), "");
}

TEST(Config, AnExceptionOfTheHostApplicationsLoopFailsTheCall) {
  const auto child = [] {
    static int call = 0;
    configure({.threads = 2, .parallel_for = [](int count, const ParallelTask& task) {
                 if (++call == 1) throw std::runtime_error("the pool is closed");
                 if (call == 2) throw 7;
                 for (int i = 0; i < count; ++i) task(i);
               }});
    const Executable sum = add_program().load();
    const Array x = filled(1 << 20, 1);
    const auto run = [&] { return sum.run(std::vector{x, x})[0].to_vector<float>()[0]; };
    EXPECT_THAT(error_of(run), AllOf(StartsWith("host-loop"), HasSubstr("host program threw"),
                                     HasSubstr("the pool is closed")));
    EXPECT_THAT(error_of(run), AllOf(StartsWith("host-loop"), HasSubstr("host program threw"),
                                     HasSubstr("not a std::exception")));
    EXPECT_EQ(run(), 2) << "the next call is right";
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Config, ReproducersGoWhereTheHostProgramSays) {
  // A fault of Braze in the middle of a compilation.
  const auto failure = [] {
    const Graph graph = parse_graph(
        "braze 1 graph\ngraph @f(%x: f32[4]) { %y = exp %x : f32[4] return %y as \"y\" }", "f");
    CompileOptions options;
    options.observer = [](const CompilePhase& phase) {
      BRAZE_CHECK(phase.stage == "graph", "a fault of Braze");
    };
    return error_of([&] { compile(graph, find_target("x86-64-v3").value(), options); });
  };
  const TemporaryFolder folder;
  const auto files = [&folder] {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      paths.push_back(entry.path());
    return paths;
  };
  const auto given = [&] {
    configure({.reproducer_folder = folder.path.string()});
    const std::string error = failure();
    ASSERT_EQ(files().size(), 1u) << error;
    const std::string path = files()[0].string();
    EXPECT_THAT(error, HasSubstr("braze inspect " + path + " --stage=program --target x86-64-v3"));
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(parse_graph(text.str(), path).name(), "f");
  };
  const auto none = [&] {
    configure({.reproducer_folder = ""});
    EXPECT_THAT(failure(), AllOf(HasSubstr("a fault of Braze"), Not(HasSubstr("braze inspect"))));
  };
  EXPECT_EQ(fate_of_child(none), "");
  EXPECT_THAT(files(), testing::IsEmpty());
  EXPECT_EQ(fate_of_child(given), "");
}

TEST(Config, NamesTheDefaultDevice) {
  const auto child = [] {
    setenv("BRAZE_CPU_DEVICES", "2", 1);
    configure({.default_device = "cpu:1"});
    EXPECT_EQ(default_device(), Device("cpu:1"));
    const DeviceGuard guard("cpu");
    EXPECT_EQ(default_device(), Device("cpu"));
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Config, ADefaultDeviceThatIsNoneIsNamedAsTheConfigurations) {
  const auto child = [] {
    for (const char* wrong : {"", "gpu", "cpu:", "cpu:64", "cuda:-1", "cuda:x", "sim:none", "CPU"})
      EXPECT_THAT(error_of([&] { configure({.default_device = wrong}); }),
                  AllOf(StartsWith("no-such-device"), HasSubstr("\"" + std::string(wrong) + "\""),
                        HasSubstr("such as \"cpu\"")));
    EXPECT_FALSE(is_driver_open());
    configure({.default_device = "cpu:7"});
    EXPECT_THAT(
        error_of([] { default_device(); }),
        AllOf(StartsWith("no-such-device"), HasSubstr("default device of the configuration")));
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Gpus, AreLeftAloneUntilSomebodyAsks) {
  const auto child = [] {
    const Array x = filled(1000, 1, "cpu");
    const Array y = add_program().load("cpu").run(std::vector{x, x})[0];
    EXPECT_EQ(y.to("interpreter").to_vector<float>()[0], 2);
    synchronize("cpu");
    const DeviceGuard guard("cpu");
    EXPECT_EQ(default_device(), Device("cpu"));
    EXPECT_EQ(device_count(DeviceKind::Cpu), 1);
    EXPECT_THAT(error_of([] { Device("cpu:9"); }), StartsWith("no-such-device"));
    EXPECT_THAT(error_of([] { Device("sim:none"); }), StartsWith("no-such-device"));
    EXPECT_FALSE(is_driver_open());
    EXPECT_EQ(device_count(DeviceKind::Cuda), 2);
    EXPECT_TRUE(is_driver_open());
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Gpus, AreLeftAloneWhereTheDefaultIsAnotherDevice) {
  const auto child = [] {
    configure({.default_device = "cpu"});
    EXPECT_EQ(Array::from(std::vector<float>{1}, {1}).device(), Device("cpu"));
    EXPECT_FALSE(is_driver_open());
  };
  EXPECT_EQ(fate_of_child(child), "");
}

TEST(Gpus, TheFirstIsTheDefault) {
  const auto child = [] { EXPECT_EQ(default_device(), Device("cuda:0")); };
  EXPECT_EQ(fate_of_child(child), "");
}

}  // namespace
}  // namespace braze::test
