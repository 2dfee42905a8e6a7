// Meshes, shardings, arrays over a mesh, and what happens to a call when a device fails.
#include <gmock/gmock.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <thread>

#include "braze/custom_function.h"
#include "braze/io.h"
#include "ir/support/text.h"
#include "ir/values/host_tensor.h"
#include "tests/error_of.h"
#include "tests/mesh/run.h"
#include "tests/no_threads.h"

namespace braze {
namespace {

using test::error_of;
using ::testing::AllOf;
using testing::cpu_mesh;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Array counting(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return Array::from(values, std::move(shape), "cpu");
}

TEST(Meshes, DevicesInRows) {
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 3}});
  EXPECT_EQ(mesh.size(), 6u);
  EXPECT_EQ(mesh.size("model"), 3);
  EXPECT_EQ(mesh.to_string(), "data: 2, model: 3");
  EXPECT_EQ(mesh.devices()[5].name(), "cpu:5");
  EXPECT_THAT(places_of(mesh.axes(), 4), ElementsAre(1, 1));
  EXPECT_THAT(group_of(mesh.axes(), "data", 4), ElementsAre(1, 4));
  EXPECT_THAT(group_of(mesh.axes(), "model", 4), ElementsAre(3, 4, 5));
}

TEST(Meshes, RefuseWhatIsNone) {
  cpu_mesh({{"data", 1}});
  const DeviceGuard guard("cpu");
  EXPECT_THAT(error_of([] { Mesh({{"data", 9}}); }), HasSubstr("set_cpu_device_count(9)"));
  EXPECT_THAT(error_of([] {
                Mesh({{"data", 2}, {"data", 2}});
              }),
              HasSubstr("two axes called \"data\""));
  EXPECT_THAT(error_of([] { Mesh({{"", 2}}); }), HasSubstr("has a name"));
  // Programs are kept as text, with the names of the axes.
  for (const char* name : {"a b", "a //", "none", "1", "größe", "a\n"})
    EXPECT_THAT(error_of([&] {
                  Mesh({{name, 1}});
                }),
                HasSubstr("cannot be the name of an axis"))
        << name;
  EXPECT_EQ(Mesh({{"layer.2_x", 1}}).size(), 1u);
  EXPECT_THAT(error_of([] {
                Mesh({{"data", 2}}, {"cpu", "cpu"});
              }),
              HasSubstr("cpu is in the mesh twice"));
  EXPECT_THAT(error_of([] { Mesh({{"data", 2}}, {"cpu"}); }), HasSubstr("1 are given"));
  EXPECT_THAT(error_of([] {
                Mesh({{"data", 1}}, {"interpreter"});
              }),
              HasSubstr("made of CPUs or of GPUs"));
  EXPECT_THAT(error_of([] { Mesh({{"data", 1}}).size("model"); }), HasSubstr("no axis \"model\""));
  EXPECT_FALSE(Mesh({{"data", 2}}, {"cpu", "cpu:1"}) == Mesh({{"data", 2}}, {"cpu:1", "cpu"}));
}

TEST(Shardings, CutArraysAndPutThemTogether) {
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 2}});
  const Array x = counting({4, 3, 2});
  const Sharding ways[] = {replicated,
                           sharded("data"),
                           sharded("model"),
                           sharded({"data", none, "model"}),
                           sharded({none, none, "data"}),
                           sharded({"model", none, "data"})};
  for (const Sharding& way : ways) {
    const Array spread = x.to(mesh, way);
    EXPECT_EQ(spread.to_vector<float>(), x.to_vector<float>()) << way.to_string();
    EXPECT_EQ(spread.shape(), x.shape());
    EXPECT_EQ(spread.shards().size(), 4u);
    EXPECT_EQ(spread.to("cpu").to_vector<float>(), x.to_vector<float>());
  }
  const Array spread = x.to(mesh, sharded({"data", none, "model"}));
  EXPECT_EQ(spread.shards()[3].shape(), (std::vector<int64_t>{2, 3, 1}));
  EXPECT_THAT(spread.shards()[2].to_vector<float>(), ElementsAre(12, 14, 16, 18, 20, 22));
  EXPECT_EQ(spread.shards()[3].device().name(), "cpu:3");
  EXPECT_EQ(spread.sharding().to_string(), "sharded(data, none, model)");
  EXPECT_THAT(spread.to_string(),
              HasSubstr("on the mesh data: 2, model: 2, sharded(data, none, model)"));
}

TEST(Shardings, RefuseWhatDoesNotFit) {
  const Mesh mesh = cpu_mesh({{"data", 4}});
  const Array x = counting({6, 2});
  EXPECT_THAT(error_of([&] { x.to(mesh, sharded("data")); }),
              HasSubstr("its axis 0 has extent 6, which 4 devices do not divide"));
  EXPECT_THAT(error_of([&] { x.to(mesh, sharded("data")); }),
              HasSubstr("pad it to 8, with a mask for what is added, or leave out the last 2"));
  EXPECT_THAT(error_of([&] { x.to(mesh, sharded("model")); }), HasSubstr("no axis \"model\""));
  EXPECT_THAT(error_of([&] {
                counting({4, 4}).to(mesh, sharded({"data", "data"}));
              }),
              HasSubstr("cuts one axis only"));
  EXPECT_THAT(error_of([&] {
                counting({4}).to(mesh, sharded({none, "data"}));
              }),
              HasSubstr("it has 1 axes"));
}

// What needs one device says so.
TEST(SpreadArrays, AreNoDevicesArrays) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const Array x = counting({4}).to(mesh, sharded("data"));
  for (const std::string& error :
       {error_of([&] { x.device(); }), error_of([&] { x.data(); }), error_of([&] {
          const Graph graph = testing::parse(
              "graph @g(%x: f32[4]) {\n  %y = neg %x : f32[4]\n  return %y as \"y\"\n}\n");
          const Executable run = Executable::load(
              std::make_shared<const Program>(compile(graph, Device("cpu").target())), "cpu");
          run.run(std::vector<Array>{x});
        })})
    EXPECT_THAT(error, HasSubstr("is spread over the 2 devices of the mesh data: 2"));
  EXPECT_EQ(counting({1}).to(mesh, replicated).item(), 0);
  EXPECT_EQ(Array().is_spread(), false);
}

Graph sum_graph() {
  return testing::parse(R"(mesh data: 2
graph @total(%x: f32[1024] varying [data]) {
  %y = all_reduce sum %x {over: data} : f32[1024]
  %z = neg %y : f32[1024]
  return %z as "z" updates %x
}
)");
}

// Threads that call at the same time: each call meets its own parts on all devices.
TEST(MeshCalls, OfSeveralThreadsKeepOneOrder) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto program =
      std::make_shared<const Program>(compile(sum_graph(), mesh.devices()[0].target()));
  const MeshExecutable run = MeshExecutable::load(program, mesh);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const auto number = static_cast<float>(t * 1000 + i);
        const std::vector<float> values(1024, number);
        std::vector<std::vector<Array>> arguments;
        for (const Device& device : mesh.devices())
          arguments.push_back({Array::from(values, {1024}, device)});
        for (const auto& device : run.run(arguments))
          wrong += device[0].to_vector<float>()[7] != -2 * number;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

// Calls far ahead of what is read: the thread that submits helps out, and nothing stands still.
TEST(MeshCalls, AheadOfTheirResults) {
  const Mesh mesh = cpu_mesh({{"data", 4}});
  Graph graph("g");
  graph = testing::parse(R"(mesh data: 4
graph @next(%x: f32[16] varying [data]) {
  %y = permute %x {over: data, shift: 1} : f32[16]
  return %y as "y" updates %x
}
)");
  const MeshExecutable run = MeshExecutable::load(
      std::make_shared<const Program>(compile(graph, mesh.devices()[0].target())), mesh);
  std::vector<std::vector<Array>> state;
  for (size_t d = 0; d < 4; ++d)
    state.push_back({Array::from(std::vector<float>(16, float(d)), {16}, mesh.devices()[d])});
  for (int i = 0; i < 301; ++i) state = run.run(state);
  for (size_t d = 0; d < 4; ++d) EXPECT_EQ(state[d][0].to_vector<float>()[3], float((d + 3) % 4));
}

// Memory runs out on one device: nothing has happened on any, and the donated arguments live.
TEST(MeshCalls, MemoryIsTakenEverywhereBeforeAnythingRuns) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const Graph graph = testing::parse(R"(mesh data: 2
graph @big(%x: f32[4] varying [data]) {
  %s = all_reduce sum %x {over: data} : f32[4]
  %b = broadcast %s {axes: [1]} : f32[4000000, 4]
  return %b as "b", %s as "s" updates %x
}
)");
  const MeshExecutable run = MeshExecutable::load(
      std::make_shared<const Program>(compile(graph, mesh.devices()[0].target())), mesh);
  std::vector<std::vector<Array>> arguments;
  for (const Device& device : mesh.devices())
    arguments.push_back({Array::from(std::vector<float>{1, 2, 3, 4}, {4}, device)});
  empty_cache(mesh.devices()[1]);
  set_memory_limit(mesh.devices()[1], memory_stats(mesh.devices()[1]).live_bytes + 4096);
  const uint64_t before = memory_stats(mesh.devices()[0]).live_bytes;
  EXPECT_THAT(error_of([&] { run.run(arguments); }), HasSubstr("cpu:1"));
  EXPECT_EQ(memory_stats(mesh.devices()[0]).live_bytes, before);
  set_memory_limit(mesh.devices()[1], std::nullopt);
  const auto results = run.run(arguments);
  EXPECT_THAT(results[1][1].to_vector<float>(), ElementsAre(2, 4, 6, 8));
}

/// Ones for each device of the mesh.
std::vector<std::vector<Array>> ones_on(const Mesh& mesh) {
  std::vector<std::vector<Array>> out;
  for (const Device& device : mesh.devices())
    out.push_back({Array::from(std::vector<float>(1024, 1.0f), {1024}, device)});
  return out;
}

// It is found before anything is submitted.
TEST(MeshCalls, WhatWasDonatedIsRefused) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const MeshExecutable run = MeshExecutable::load(
      std::make_shared<const Program>(compile(sum_graph(), mesh.devices()[0].target())), mesh);
  const auto arguments = ones_on(mesh);
  const auto taken = run.run(arguments);
  EXPECT_THAT(error_of([&] { run.run(arguments); }), HasSubstr("was donated to a call of @total"));
  EXPECT_EQ(taken[0][0].to_vector<float>()[0], -2);
}

// Each device needs one, because it blocks where it waits for the others. Nothing was submitted, so
// the next call works. In a process of its own, where no device has a thread yet.
TEST(MeshCallsDeathTest, ADeviceWithoutAThreadIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto child = [] {
    const Mesh mesh = cpu_mesh({{"data", 2}});
    const MeshExecutable run = MeshExecutable::load(
        std::make_shared<const Program>(compile(sum_graph(), mesh.devices()[0].target())), mesh);
    const auto arguments = ones_on(mesh);
    {
      const test::NoThreads none;
      fmt::print(stderr, "{}\n", error_of([&] { run.run(arguments); }));
    }
    fmt::print(stderr, "then {}\n", run.run(arguments)[1][0].to_vector<float>()[0]);
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0),
              "no-thread.: no thread can be started for cpu(.|\n)*then -2\n");
}

// One device fails while the others wait for it, before the first collective or before the second.
// They are told, and all go on.
TEST(MeshCalls, AFailureReachesAllDevices) {
  static std::once_flag registered;
  std::call_once(registered, [] {
    register_custom_call("test.small", DeviceKind::Cpu, [](const CustomArguments& call) {
      const std::span<const float> x = call.operands[0].as<float>();
      std::ranges::copy(x, call.result.as<float>().begin());
      return std::string(x[0] < 100 ? "" : "it is not small");
    });
  });
  const Mesh mesh = cpu_mesh({{"data", 3}});
  const Graph graph = testing::parse(R"(mesh data: 3
graph @twice(%x: f32[4] varying [data], %y: f32[4] varying [data]) {
  %a = custom_call %x {target: "test.small"} : f32[4]
  %b = all_reduce sum %a {over: data} : f32[4]
  %c = mul %b, %y : f32[4]
  %d = custom_call %c {target: "test.small"} : f32[4]
  %e = all_reduce sum %d {over: data} : f32[4]
  return %e as "e"
}
)");
  const MeshExecutable run = MeshExecutable::load(
      std::make_shared<const Program>(compile(graph, mesh.devices()[0].target())), mesh);
  for (int repeat = 0; repeat < 10; ++repeat) {
    for (const bool early : {true, false}) {
      std::vector<std::vector<Array>> arguments(3);
      for (size_t d = 0; d < 3; ++d)
        for (const float value : {d == 1 && early ? 200.0f : 1.0f, d == 1 && !early ? 50.0f : 1.0f})
          arguments[d].push_back(Array::from(std::vector<float>(4, value), {4}, mesh.devices()[d]));
      const auto results = run.run(arguments);
      for (size_t d = 0; d < 3; ++d)
        EXPECT_THAT(error_of([&] { results[d][0].to_host(); }),
                    AllOf(HasSubstr(d == 1 ? "custom-call-failed" : "the call failed on cpu:1: "),
                          HasSubstr("it is not small")))
            << "device " << d;
      for (size_t d = 0; d < 3; ++d)
        for (Array& argument : arguments[d])
          argument = Array::from(std::vector<float>(4, 2.0f), {4}, mesh.devices()[d]);
      EXPECT_EQ(run.run(arguments)[0][0].to_vector<float>()[0], 36);
    }
  }
}

}  // namespace
}  // namespace braze
