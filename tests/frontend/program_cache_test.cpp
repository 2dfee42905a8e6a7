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
#include "ir/support/trace.h"
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

// --- Codes of kernels ----------------------------------------------------------------------------

// The distances of rows to their greatest element, and the sums of the columns of another tensor.
// They are two kernels. `name` is the first in the names of values.
Graph rows_and_columns(const std::string& name, const std::string& rows,
                       const std::string& columns) {
  std::string text =
      "braze 1 graph\n"
      "graph @NAME(%NAME: f32[ROWS, 80], %c: f32[COLUMNS, 48]) {\n"
      "  %NAME_m = reduce max %NAME {axes: [1]} : f32[ROWS]\n"
      "  %NAME_b = broadcast %NAME_m {axes: [0]} : f32[ROWS, 80]\n"
      "  %NAME_d = sub %NAME, %NAME_b : f32[ROWS, 80]\n"
      "  %t = reduce sum %c {axes: [0]} : f32[48]\n"
      "  return %NAME_d as \"d\", %t as \"t\"\n"
      "}\n";
  for (const auto& [what, by] :
       {std::pair("NAME", name), std::pair("ROWS", rows), std::pair("COLUMNS", columns)})
    for (size_t at = 0; (at = text.find(what)) != std::string::npos;)
      text.replace(at, std::string_view(what).size(), by);
  return parse_graph(text, name + ".braze");
}

// How often a code generator runs, and an assembler.
struct Generated {
  int64_t codes = 0, assembled = 0;
  friend bool operator==(const Generated&, const Generated&) = default;
};
template <class Compile>
Generated generated(const Compile& compile) {
  trace::SpanRecorder recorder;
  compile();
  Generated out;
  for (const trace::EndedSpan& span : recorder.take()) {
    out.codes += span.name.starts_with("generate ");
    out.assembled += span.name.starts_with("assemble ");
  }
  return out;
}

// Other programs of this process, and of others that use the same folder, do not make the code of
// an equal kernel again.
TEST_F(ProgramCacheTest, ProgramsShareTheCodesOfKernels) {
  for (const char* machine : {"x86-64-v3", "sm_90a"}) {
    const Target target = *find_target(machine);
    const auto compiled = [&](const std::string& name, const std::string& columns) {
      return generated([&] {
        DiskCache cache(settings());
        const auto program =
            cached_program(rows_and_columns(name, "24", columns), target, CompileOptions(), cache);
        EXPECT_EQ(program->launches.size(), 2u);
        EXPECT_EQ(program->artifacts.size(), 2u);
        for (const Launch& launch : program->launches)
          EXPECT_EQ(program->artifacts[launch.artifact].kernel, launch.name);
      });
    };
    const Generated first = compiled("x", "100");
    EXPECT_EQ(first.codes, 2) << machine;
    // The names of everything in the shared kernel are others.
    const Generated second = compiled("y", "101");
    EXPECT_EQ(second.codes, 1) << machine;
    EXPECT_EQ(2 * second.assembled, first.assembled) << machine;
  }
}

// The keys of kernels say what decides their code, and nothing else.
TEST_F(ProgramCacheTest, TheKeyOfAKernelIsOfItsCode) {
  const Target target = *find_target("sm_90a");
  const std::string base = kernel_code_key("a kernel", target, {}).text();
  EXPECT_TRUE(is_kernel_code(base));
  EXPECT_FALSE(is_kernel_code(program_key(example(), target, {}).text()));
  const auto with = [&](auto&& change) {
    CompileOptions changed;
    change(changed);
    return kernel_code_key("a kernel", target, changed).text();
  };
  EXPECT_EQ(with([](CompileOptions& o) { o.precision = Precision::Fast; }), base);
  EXPECT_EQ(with([](CompileOptions& o) { o.fuse = false; }), base);
  EXPECT_NE(with([](CompileOptions& o) { o.gpu_code = GpuCode::Nvrtc; }), base);
  EXPECT_NE(with([](CompileOptions& o) { o.assemble = false; }), base);
  EXPECT_NE(kernel_code_key("other", target, {}).text(), base);
  EXPECT_NE(kernel_code_key("a kernel", *find_target("sm_80"), {}).text(), base);
}

TEST_F(ProgramCacheTest, SharedCodesRun) {
  const Device device("cpu");
  HostTensor x(DType::F32, {25, 80}), c(DType::F32, {77, 48});
  for (int64_t i = 0; i < x.numel(); ++i) x.set_double(i, static_cast<double>(i % 7) - 3);
  for (int64_t i = 0; i < c.numel(); ++i) c.set_double(i, static_cast<double>(i % 5));
  const Graph graph = rows_and_columns("run", "25", "77");
  const auto results = [&](const Program& program) {
    return Executable::load(std::make_shared<const Program>(program), device)
        .run({{Array::from_host(x, device), Array::from_host(c, device)}});
  };
  DiskCache cache(settings());
  const auto alone = results(compile(graph, device.target()));
  // The second finds all codes in memory.
  for (int i = 0; i < 2; ++i) {
    const auto shared = results(compile_sharing(graph, device.target(), {}, cache));
    ASSERT_EQ(alone.size(), shared.size());
    for (size_t k = 0; k < alone.size(); ++k)
      EXPECT_TRUE(identical(alone[k].to_host(), shared[k].to_host()));
  }
  EXPECT_EQ(cache.stats().stored, 2u);
}

}  // namespace
}  // namespace braze::test
