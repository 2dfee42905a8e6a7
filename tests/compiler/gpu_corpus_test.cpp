// The kernels of random graphs as GPU code, both ways: all of it assembles, nothing spills.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "braze/compile.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/program/program.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

// BRAZE_TEST_KERNELS asks for more of them: 1500 is the sample that a release is tested with.
size_t wanted_kernels() {
  const char* text = std::getenv("BRAZE_TEST_KERNELS");
  return text ? std::strtoul(text, nullptr, 10) : 60;
}

class GpuCorpus : public testing::TestWithParam<GpuCode> {};

TEST_P(GpuCorpus, AssemblesWithoutSpills) {
  if (!ptx_assembler()) GTEST_SKIP() << "no PTX assembler here (docs/guides/gpu.md)";
  if (GetParam() == GpuCode::Nvrtc && nvrtc_name().empty())
    GTEST_SKIP() << "no NVRTC here (docs/guides/gpu.md)";
  const Target targets[] = {*find_target("sm_90a"), *find_target("sm_80")};
  size_t kernels = 0;
  for (uint64_t seed = 0; kernels < wanted_kernels(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = fuzz::random_graph(seed);
    Program program;
    try {
      program = compile(graph, targets[seed % 2], {.gpu_code = GetParam()});
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      ++kernels;
      continue;
    }
    for (const Artifact& artifact : program.artifacts) {
      ++kernels;
      EXPECT_EQ(artifact.format, "cubin");
      for (size_t i = 0; i < artifact.facts.size(); ++i) {
        EXPECT_EQ(artifact.facts[i].spill_bytes, 0) << artifact.entry_names[i];
        for (const std::string& warning : artifact.facts[i].warnings) ADD_FAILURE() << warning;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuCorpus, testing::Values(GpuCode::Ptx, GpuCode::Nvrtc),
                         [](const auto& i) { return i.param == GpuCode::Ptx ? "ptx" : "nvrtc"; });

}  // namespace
}  // namespace braze
