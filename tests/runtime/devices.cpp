#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/sim/sim_driver.h"
#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// These tests are of the CPU, also where a GPU would be the default. Ends with the process.
[[maybe_unused]] const auto* const kOnTheCpu = new DeviceGuard("cpu");

TEST(Device, Names) {
  for (const char* name : {"cpu", "interpreter", "sim:cpu", "sim:x86-64-v3", "sim:x86-64-v4"}) {
    EXPECT_EQ(Device(name).name(), name);
    EXPECT_THAT(devices(), Contains(Device(name)));
  }
  EXPECT_EQ(Device("cpu:0"), Device("cpu"));
  EXPECT_EQ(Device(), Device("cpu"));
  EXPECT_EQ(Device("interpreter").kind(), DeviceKind::Interpreter);
  for (const char* name : {"", "gpu", "cpu:", "cpu:-1", "cpu:1x", "cpu:99", "sim:", "sim:mars"}) {
    EXPECT_THAT(error_of([&] { Device{name}; }),
                AllOf(StartsWith("no-such-device"), HasSubstr("the devices are cpu, ")))
        << name;
  }
}

TEST(Device, SeveralCpus) {
  set_cpu_device_count(3);
  EXPECT_EQ(device_count(DeviceKind::Cpu), 3);
  const Device last("cpu:2");
  EXPECT_EQ(last.index(), 2);
  EXPECT_NE(last, Device("cpu"));
  const Array a = filled(3, 1, last);
  set_cpu_device_count(1);
  EXPECT_EQ(device_count(DeviceKind::Cpu), 1);
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(1, 1, 1)) << "devices in use stay";
  EXPECT_THAT(error_of([] { Device("cpu:2"); }), HasSubstr("set_cpu_device_count"));
  EXPECT_THAT(error_of([] { set_cpu_device_count(0); }), StartsWith("bad-setting"));
}

TEST(Device, GuardsNest) {
  EXPECT_EQ(default_device(), Device("cpu"));
  {
    const DeviceGuard outer("interpreter");
    EXPECT_EQ(default_device().name(), "interpreter");
    {
      const DeviceGuard inner("sim:cpu");
      EXPECT_EQ(default_device().name(), "sim:cpu");
    }
    EXPECT_EQ(Array::from(std::vector<float>{1}, {1}).device().name(), "interpreter");
  }
  EXPECT_EQ(default_device(), Device("cpu"));
}

TEST(Target, TextReadsBack) {
  for (const Target& row : target_table()) {
    EXPECT_EQ(parse_target(row.to_string()), row);
    EXPECT_EQ(parse_target(row.name), row);
  }
  const Target simulated = *find_target("sim:x86-64-v4");
  EXPECT_TRUE(simulated.simulated);
  EXPECT_EQ(parse_target(simulated.to_string()), simulated);
  EXPECT_EQ(find_target("sim:interpreter"), std::nullopt);
  EXPECT_EQ(find_target("z80"), std::nullopt);
  for (const char* bad : {"", "z80", "x86-64-v3 cores", "x86-64-v3 cores=x", "x86-64-v3 cores=-1",
                          "x86-64-v3 wheels=4", "x86-64-v3  cores=1"}) {
    EXPECT_THAT(error_of([&] { parse_target(bad); }), StartsWith("target-text")) << bad;
  }
}

TEST(Target, ChosenByWhatTheProcessorHas) {
  const std::vector<std::string_view> v3 = {"avx",  "avx2", "bmi",   "bmi2",
                                            "f16c", "fma",  "lzcnt", "movbe"};
  std::vector<std::string_view> v4 = v3;
  for (const auto* f : {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) v4.push_back(f);
  EXPECT_EQ(choose_target(v3, {}).name, "x86-64-v3");
  EXPECT_EQ(choose_target(v4, {}).name, "x86-64-v4");
  EXPECT_EQ(choose_target(v4, "x86-64-v3").name, "x86-64-v3");
  EXPECT_THAT(error_of([&] { choose_target(v3, "x86-64-v4"); }),
              AllOf(StartsWith("unsupported-cpu"), HasSubstr("avx512f")));
  EXPECT_THAT(error_of([&] { choose_target({"avx"}, {}); }),
              AllOf(StartsWith("unsupported-cpu"), HasSubstr("it lacks avx2,"), HasSubstr("fma"),
                    HasSubstr("interpreter"), HasSubstr("sim:cpu")));
  EXPECT_THAT(error_of([&] { choose_target(v4, "sparc"); }),
              AllOf(StartsWith("environment"), HasSubstr("BRAZE_CPU_TARGET"), HasSubstr("sparc")));
}

TEST(Target, OfThisHost) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_EQ(Device("interpreter").target().kind, TargetKind::Interpreter);
  EXPECT_TRUE(Device("sim:cpu").target().simulated);
  EXPECT_EQ(Device("sim:x86-64-v3").target().name, "x86-64-v3");
  if (!missing_features(*find_target("x86-64-v3"), host_features()).empty())
    GTEST_SKIP() << "this processor has no AVX2";
  const Target target = Device("cpu").target();
  EXPECT_EQ(target.kind, TargetKind::Cpu);
  EXPECT_GE(target.l1_bytes, 8 << 10);
  EXPECT_EQ(target.name, Device("sim:cpu").target().name);
  EXPECT_THAT(missing_features(target, host_features()), IsEmpty());
}

TEST(Interpreter, RunsGraphs) {
  Maker m("scale", {Expr::symbol("n", {1, 64})});
  const Expr n = m.program->symbols[0];
  m.program->target = *find_target("interpreter");
  const uint32_t x = m.input("x", {DType::F32, {n, 2}});
  const uint32_t p = m.input("p", {DType::F32, {2}});
  const uint32_t y = m.output("y", {DType::F32, {n, 2}});
  const uint32_t next = m.output("p_next", {DType::F32, {2}}, 1);
  Launch& launch = m.launch("scale", {}, {x, p, y, next}, {n}, 0);
  launch.instances.clear();
  m.program->artifacts[0] = {"graph",
                             "scale",
                             R"(braze 1 graph
symbol n: 1..64
graph @scale(%x: f32[n, 2], %p: f32[2]) {
  %0 = add %x, %x : f32[n, 2]
  %1 = add %p, %p : f32[2]
  return %0 as "y", %1 as "p_next" updates %p
}
)",
                             {}};
  const Device device("interpreter");
  const Executable scale = m.load(device);
  for (const int64_t size : {1, 5, 64}) {
    const Array a =
        Array::from(std::vector<float>(static_cast<size_t>(2 * size), 1.5f), {size, 2}, device);
    const Array b = Array::from(std::vector<float>{1, 2}, {2}, device);
    const std::vector<Array> out = scale.run(std::vector<Array>{a, b});
    EXPECT_THAT(out[0].shape(), ElementsAre(size, 2));
    EXPECT_THAT(out[0].to_vector<float>(), testing::Each(3.f));
    EXPECT_THAT(out[1].to_vector<float>(), ElementsAre(2, 4));
    EXPECT_THAT(error_of([&] { b.wait(); }), HasSubstr("@scale"));
  }
  EXPECT_THAT(to_text(*m.program), AllOf(HasSubstr("program @scale"), HasSubstr("symbol n: 1..64"),
                                         HasSubstr("updates input 1")));
}

TEST(Simulator, RunsKernelsAndSaysWhatTheyBreak) {
  SimDriver driver("sim:cpu");
  Maker m("fill", {});
  const uint32_t y = m.output("y", vector_type(2));
  m.launch("fill", {}, {y}, {}, 1);
  m.program->launches[0].ops = {"iota.3 : f32[2] at model.cpp:7"};
  EXPECT_THAT(error_of([&] { driver.load(m.program); }), HasSubstr("\"kernel\""));
  const auto text = [](std::string_view place) {
    return "braze 1 kernel\nkernel @fill(%y: out global f32[2]) target \"x86-64-v3\" {\n"
           "  phase grid(i: 2) {\n    %v = const 5.0 : f32\n    store %v, %y[" +
           std::string(place) + "]\n  }\n}\n";
  };
  float memory[2] = {};
  void* const buffers[] = {memory};
  const uint64_t sizes[] = {8};
  const int64_t instances[] = {2};
  const auto launch = [&](std::string_view place) {
    m.program->artifacts[0] = {"kernel", "fill", text(place), {}};
    driver.load(m.program)->launch(
        {.launch = 0, .buffers = buffers, .sizes = sizes, .instances = instances});
  };
  launch("i");
  EXPECT_THAT(memory, testing::Each(5.f));
  EXPECT_THAT(error_of([&] { launch("2*i"); }),
              AllOf(StartsWith("simulated-fault"), HasSubstr("@fill"), HasSubstr("%y[2*i]"),
                    HasSubstr("i = 1"), HasSubstr("model.cpp:7"), HasSubstr("does not write")));
}

}  // namespace
}  // namespace braze::test
