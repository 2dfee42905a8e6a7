#include "frontend/builder/program_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "braze/array.h"
#include "braze/device.h"
#include "braze/executable.h"
#include "ir/code/text.h"
#include "ir/graph/origins.h"
#include "ir/graph/text.h"
#include "ir/program/package.h"
#include "ir/program/text.h"
#include "runtime/cache/build_id.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;
using testing::SizeIs;

class ProgramCacheTest : public testing::Test {
 protected:
  CacheSettings settings() const { return {.folder = folder_}; }

  std::shared_ptr<const Program> get(const Graph& graph, const Target& target,
                                     const CompileOptions& options = {}) {
    DiskCache cache(settings());
    const CacheKey key = program_key(graph, target, options);
    const auto program = cached_program(
        key,
        [&] {
          ++compilations_;
          return compile(graph, target, options);
        },
        cache);
    EXPECT_GT(program->compile_seconds, 0);
    return program;
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path;
  int compilations_ = 0;
};

Graph example(const std::string& operation = "exp") {
  return parse_graph("braze 1 graph\ngraph @example(%x: f32[8, 100]) {\n  %y = " + operation +
                         " %x : f32[8, 100]\n  %z = add %y, %x : f32[8, 100]\n"
                         "  return %z as \"z\"\n}\n",
                     "example.braze");
}

TEST_F(ProgramCacheTest, SecondTimeNothingIsCompiled) {
  for (const char* device : {"cpu", "sim:cpu", "sim:sm_90", "interpreter"}) {
    compilations_ = 0;
    const Target& target = Device(device).target();
    const auto first = get(example(), target), second = get(example(), target);
    EXPECT_EQ(compilations_, 1) << device;
    EXPECT_EQ(encode(*first), encode(*second)) << device;
  }
}

TEST_F(ProgramCacheTest, WhatIsLoadedRuns) {
  const Device device("cpu");
  HostTensor x(DType::F32, {8, 100});
  for (int64_t i = 0; i < x.numel(); ++i) x.set_double(i, static_cast<double>(i % 7) - 3);
  std::vector<HostTensor> results;
  for (int i = 0; i < 2; ++i)
    results.push_back(Executable::load(get(example(), device.target()), device)
                          .run({{Array::from_host(x, device)}})[0]
                          .to_host());
  EXPECT_EQ(compilations_, 1);
  EXPECT_TRUE(identical(results[0], results[1]));
}

TEST_F(ProgramCacheTest, WhateverDecidesTheProgramIsInTheKey) {
  const Target target = *find_target("x86-64-v3");
  const CompileOptions options;
  const std::string base = program_key(example(), target, options).text();
  const auto differs_in = [&](const CacheKey& key, const std::string& part) {
    const std::vector<KeyDifference> found = differences(base, key.text());
    ASSERT_THAT(found, SizeIs(1)) << part;
    EXPECT_EQ(found[0].name, part);
  };
  EXPECT_EQ(program_key(example(), target, options).text(), base);
  differs_in(program_key(example("log"), target, options), "graph");
  Target other = target;
  other.cores += 1;
  differs_in(program_key(example(), other, options), "target");
  const auto with = [&](auto&& change) {
    CompileOptions changed;
    change(changed);
    return program_key(example(), target, changed);
  };
  differs_in(with([](CompileOptions& o) { o.precision = Precision::Fast; }), "precision");
  differs_in(with([](CompileOptions& o) { o.fuse = false; }), "fuse");
  differs_in(with([](CompileOptions& o) { o.by_cost = false; }), "by_cost");
  differs_in(with([](CompileOptions& o) { o.gpu_code = GpuCode::Nvrtc; }), "gpu_code");
  differs_in(with([](CompileOptions& o) { o.assemble = false; }), "assemble");
  differs_in(with([](CompileOptions& o) { o.schedules["a"] = "b"; }), "schedule");
}

/// The same graph wherever its nodes are, by file and line.
Graph placed(const std::string& exp_place, const std::string& add_place) {
  return parse_graph(
      "braze 1 graph\ngraph @example(%x: f32[8, 100]) {\n  %y = exp %x : f32[8, 100] loc(" +
          exp_place + ")\n  %z = add %y, %x : f32[8, 100] loc(" + add_place + ")\n  return %z\n}\n",
      "example.braze");
}

TEST_F(ProgramCacheTest, LinesThatMoveAreNoOtherProgram) {
  for (const char* device : {"cpu", "sim:cpu", "sim:sm_90", "interpreter"}) {
    fs::remove_all(folder_);
    compilations_ = 0;
    const Target& target = Device(device).target();
    const auto get_placed = [&](const std::string& exp_place, const std::string& add_place) {
      const Graph graph = placed(exp_place, add_place);
      return with_locations_of(graph, get(graph, target));
    };
    // Two ops on one line, then on lines of their own, then elsewhere.
    const auto first = get_placed(R"("model.cpp":3)", R"("model.cpp":3)");
    const auto moved = get_placed(R"("model.cpp":4)", R"("model.cpp":5)");
    const auto other = get_placed(R"("other.braze":8:2)", R"("model.cpp":9)");
    EXPECT_EQ(compilations_, 1) << device;
    if (first->launches[0].ops.empty()) continue;
    const auto texts = [](const Program& program) {
      return op_texts(program, program.launches[0]);
    };
    EXPECT_THAT(texts(*first), testing::ElementsAre("y : f32[8, 100] at model.cpp:3",
                                                    "z : f32[8, 100] at model.cpp:3"));
    EXPECT_THAT(texts(*moved), testing::ElementsAre("y : f32[8, 100] at model.cpp:4",
                                                    "z : f32[8, 100] at model.cpp:5"));
    EXPECT_THAT(texts(*other), testing::ElementsAre("y : f32[8, 100] at other.braze:8:2",
                                                    "z : f32[8, 100] at model.cpp:9"));
    EXPECT_THAT(with_locations(moved->report, moved->locations),
                AllOf(testing::HasSubstr(" at model.cpp:4\n"),
                      testing::HasSubstr(" at model.cpp:5\n"), Not(testing::HasSubstr("node:"))));
    const std::string bytes = encode(*moved);
    EXPECT_EQ(decode(std::as_bytes(std::span(bytes)), "moved").locations.size(),
              moved->locations.size());
  }
}

TEST_F(ProgramCacheTest, LinesOfAGraphAreNowhereInItsKey) {
  const std::string key =
      program_key(placed(R"("model.cpp":3)", R"("model.cpp":3)"), *find_target("x86-64-v3"), {})
          .text();
  EXPECT_THAT(key, Not(testing::HasSubstr("model.cpp")));
  EXPECT_THAT(key, Not(testing::HasSubstr("example.braze")));
}

std::vector<std::string> part_names(const CacheKey& key) {
  std::vector<std::string> names;
  for (const KeyDifference& part : differences(key.text(), "")) names.push_back(part.name);
  return names;
}

TEST_F(ProgramCacheTest, TheKeyNamesBuildsAndTools) {
  EXPECT_THAT(part_names(program_key(example(), *find_target("x86-64-v4"), {})),
              IsSupersetOf({"braze", "compiler-build", "runtime-build", "llvm", "target",
                            "precision", "fuse", "by_cost", "graph"}));
  const auto gpu = part_names(program_key(example(), *find_target("sm_90a"), {}));
  EXPECT_THAT(gpu, Contains("llvm"));
  EXPECT_THAT(gpu, Contains("assembler"));
  const auto nvrtc =
      part_names(program_key(example(), *find_target("sm_80"), {.gpu_code = GpuCode::Nvrtc}));
  EXPECT_THAT(nvrtc, Contains("nvrtc"));
  EXPECT_THAT(nvrtc, Not(Contains("llvm")));
  EXPECT_THAT(part_names(program_key(example(), *find_target("sim:sm_80"), {})),
              Not(Contains("assembler")));
  EXPECT_EQ(runtime_build_id().size(), 40u);
  static const char kHere = 0;  // this program is no library of Braze's
  EXPECT_NE(build_id_around(&kHere), runtime_build_id());
}

TEST_F(ProgramCacheTest, EntriesThatAreNoProgramsAreMadeAnew) {
  const Target& target = Device("cpu").target();
  const CacheKey key = program_key(example(), target, {});
  const std::string good = encode(*get(example(), target));
  for (const std::string& bad : {std::string(), std::string("no program"), good.substr(0, 100),
                                 good + "x", std::string(good.size(), '\0')}) {
    fs::remove(folder_ / key.name());
    DiskCache(settings()).store(key, bad);  // whole, and of this key
    compilations_ = 0;
    EXPECT_EQ(encode(*get(example(), target)), good);
    EXPECT_EQ(compilations_, 1);
    EXPECT_EQ(DiskCache(settings()).load(key), good) << "and replaced";
  }
}

TEST_F(ProgramCacheTest, CompilationsThatAreWatchedHappen) {
  const Target& target = Device("sim:cpu").target();
  int phases = 0;
  DiskCache cache(settings());
  CompileOptions watched;
  watched.observer = [&](const CompilePhase&) { ++phases; };
  for (int i = 0; i < 2; ++i) {
    phases = 0;
    cached_program(example(), target, watched, cache);
    EXPECT_GT(phases, 3);
  }
  EXPECT_FALSE(may_be_cached({.dump_folder = "x"}));
  EXPECT_EQ(cache.stats().hits + cache.stats().stored, 0u);
  cached_program(example(), target, {}, cache);
  setenv("BRAZE_DUMP", (folder_ / "dump").c_str(), 1);
  cached_program(example(), target, {}, cache);
  unsetenv("BRAZE_DUMP");
  EXPECT_EQ(cache.stats().hits, 0u);
  EXPECT_FALSE(fs::is_empty(folder_ / "dump"));
  cached_program(example(), target, {}, cache);
  EXPECT_EQ(cache.stats().hits, 1u);
}

TEST_F(ProgramCacheTest, ErrorsAreNotKept) {
  DiskCache cache(settings());
  const auto failing = []() -> Program { throw std::runtime_error("not today"); };
  CacheKey key;
  key.add("a", "key");
  for (int i = 0; i < 2; ++i) EXPECT_THROW(cached_program(key, failing, cache), std::runtime_error);
  EXPECT_EQ(cache.stats().misses, 2u);
  EXPECT_EQ(cache.stats().stored, 0u);
}

TEST_F(ProgramCacheTest, TileAndKernelTextToo) {
  TileProgram tile;
  std::string kernel_text;
  CompileOptions observed;
  observed.observer = [&](const CompilePhase& phase) {
    if (phase.stage == "tile") tile = parse_tile(phase.text(), "tile");
    if (phase.stage == "kernel") kernel_text = phase.text();
  };
  const Target& target = Device("sim:cpu").target();
  compile(example(), target, observed);
  const Kernel kernel = parse_kernel(kernel_text, "kernel");
  DiskCache cache(settings());
  for (int i = 0; i < 2; ++i) {
    cached_program(tile, target, {}, cache);
    cached_program(kernel, target, {}, cache);
  }
  EXPECT_EQ(cache.stats().stored, 2u);
  EXPECT_EQ(cache.stats().hits, 2u);
}

}  // namespace
}  // namespace braze::test
