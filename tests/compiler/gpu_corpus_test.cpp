// The kernels of random graphs as GPU code, both ways: all of it assembles, nothing spills.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>

#include "braze/compile.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/graph/text.h"
#include "ir/program/program.h"
#include "ir/support/text.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

// Each way is cut in parts, so that they can run at the same time.
constexpr uint64_t kParts = 4;

// BRAZE_TEST_KERNELS asks for another number of them, each way.
size_t wanted_kernels() {
  const char* text = std::getenv("BRAZE_TEST_KERNELS");
  return (text ? std::strtoul(text, nullptr, 10) : 1500) / kParts;
}

// No bound is set on the registers of these kernels, but the assembler trades a value or two of a
// few of them for more threads on a multiprocessor.
constexpr int64_t kMostSpilled = 32;
constexpr size_t kOneIn = 100;

class GpuCorpus : public testing::TestWithParam<std::tuple<GpuCode, uint64_t>> {};

TEST_P(GpuCorpus, AssemblesWithoutSpills) {
  if (!ptx_assembler()) GTEST_SKIP() << "no PTX assembler here (docs/guides/gpu.md)";
  const auto [code, part] = GetParam();
  if (code == GpuCode::Nvrtc && nvrtc_name().empty())
    GTEST_SKIP() << "no NVRTC here (docs/guides/gpu.md)";
  const Target targets[] = {*find_target("sm_90a"), *find_target("sm_80")};
  size_t kernels = 0, spilling = 0;
  for (uint64_t seed = part; kernels < wanted_kernels(); seed += kParts) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(seed);
    Program program;
    try {
      program = compile(graph, targets[seed / kParts % 2], {.gpu_code = code});
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      ++kernels;
      continue;
    }
    for (const Artifact& artifact : program.artifacts) {
      ++kernels;
      EXPECT_EQ(artifact.format, "cubin");
      EXPECT_FALSE(artifact.facts.empty());
      for (size_t i = 0; i < artifact.facts.size(); ++i) {
        EXPECT_LE(artifact.facts[i].spill_bytes, kMostSpilled) << artifact.entry_names[i] << " of\n"
                                                               << to_text(graph);
        spilling += artifact.facts[i].spill_bytes > 0;
        for (const std::string& warning : artifact.facts[i].warnings) ADD_FAILURE() << warning;
      }
    }
  }
  EXPECT_LE(spilling * kOneIn, kernels);
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuCorpus,
                         testing::Combine(testing::Values(GpuCode::Ptx, GpuCode::Nvrtc),
                                          testing::Range<uint64_t>(0, kParts)),
                         [](const auto& i) {
                           return (std::get<0>(i.param) == GpuCode::Ptx ? "ptx" : "nvrtc") +
                                  std::to_string(std::get<1>(i.param));
                         });

// Products by the rule's own schedules: f32, tf32 and 16-bit floats in every orientation.
class GpuProducts : public testing::TestWithParam<GpuCode> {};

TEST_P(GpuProducts, AssembleWithoutSpills) {
  if (!ptx_assembler()) GTEST_SKIP() << "no PTX assembler here (docs/guides/gpu.md)";
  if (GetParam() == GpuCode::Nvrtc && nvrtc_name().empty())
    GTEST_SKIP() << "no NVRTC here (docs/guides/gpu.md)";
  for (const char* machine : {"sm_80", "sm_90a"})
    for (const auto& [dtype, attribute] :
         {std::pair("f32", ""), std::pair("f32", ", tf32: true"), std::pair("bf16", "")})
      for (const auto& [x, w, axes] : {std::tuple("1000, 512", "512, 1500", "[1] x [0]"),
                                       std::tuple("1000, 512", "1500, 512", "[1] x [1]"),
                                       std::tuple("512, 1000", "512, 1500", "[0] x [0]")}) {
        const std::string text = fmt::format(R"(braze 1 graph
graph @main(%x: {0}[{1}], %w: {0}[{2}]) {{
  %y = dot %x, %w {{contract: {3}{4}}} : {0}[1000, 1500]
  return %y
}})",
                                             dtype, x, w, axes, attribute);
        SCOPED_TRACE(machine + ("\n" + text));
        const Program program =
            compile(parse_graph(text, "test"), *find_target(machine), {.gpu_code = GetParam()});
        ASSERT_FALSE(program.artifacts.empty());
        for (const Artifact& artifact : program.artifacts) {
          EXPECT_FALSE(artifact.facts.empty());
          for (const auto& facts : artifact.facts) EXPECT_LE(facts.spill_bytes, kMostSpilled);
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuProducts, testing::Values(GpuCode::Ptx, GpuCode::Nvrtc),
                         [](const auto& i) { return i.param == GpuCode::Ptx ? "ptx" : "nvrtc"; });

}  // namespace
}  // namespace braze
