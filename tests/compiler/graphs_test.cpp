// The graphs of tests/graphs: each shows one step of the compiler that others seldom need. They run
// on the simulators, which take no time to compile for.
#include <gtest/gtest.h>

#include <fstream>

#include "ir/code/text.h"
#include "ir/tile/verify.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/source_path.h"

namespace braze {
namespace {

constexpr std::string_view kSchedule = "// schedule ";

constexpr std::string_view kKernels = "// kernels ";

/// One graph and, of a line `// schedule DEVICE TEXT`, how its first kernel is made, and where; of
/// a line `// kernels N`, how many there are.
struct GraphCase {
  std::string text, device, schedule;
  size_t kernels = 1;
};

std::vector<GraphCase> cases(const std::string& name) {
  std::ifstream file(test::source_path("tests/graphs/" + name));
  std::vector<GraphCase> out(1);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("// ----")) {
      out.emplace_back();
    } else if (line.starts_with(kSchedule)) {
      const size_t space = line.find(' ', kSchedule.size());
      out.back().device = line.substr(kSchedule.size(), space - kSchedule.size());
      out.back().schedule = line.substr(space + 1);
    } else if (line.starts_with(kKernels)) {
      out.back().kernels = std::stoul(line.substr(kKernels.size()));
    } else {
      out.back().text += line + "\n";
    }
  }
  return out;
}

/// Tile programs as they are made hold to the rules, those too that no simulator looks at.
CompileOptions verifying() {
  CompileOptions options;
  options.observer = [](const CompilePhase& phase) {
    if (phase.stage != "tile") return;
    for (const Diagnostic& finding : verify(parse_tile(phase.text(), "tile")))
      ADD_FAILURE() << finding.to_string() << "\n" << phase.text();
  };
  return options;
}

TEST(Graphs, GiveTheInterpretersValues) {
  const std::vector<GraphCase> all = cases("tilings.braze");
  ASSERT_GE(all.size(), 10u);
  for (const GraphCase& given : all) {
    const Graph graph = parse_graph(given.text, "tilings.braze");
    SCOPED_TRACE(graph.name());
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    if (given.device.empty()) {
      for (const char* device : {"sim:cpu", "sim:sm_90"})
        EXPECT_TRUE(testing::agrees(graph, inputs, Device(device), verifying())) << device;
      continue;
    }
    const Device device(given.device);
    CompileOptions options = verifying();
    options.schedules[testing::compile_for(device, graph)->launches[0].name] = given.schedule;
    EXPECT_TRUE(testing::agrees(graph, inputs, device, options)) << given.device;
  }
}

// However short they are here.
TEST(Graphs, CascadesOfDotsAreOneKernel) {
  const std::vector<GraphCase> all = cases("cascades.braze");
  ASSERT_GE(all.size(), 10u);
  const Device device("sim:sm_90");
  CompileOptions options = verifying();
  options.by_cost = false;
  for (const GraphCase& given : all) {
    const Graph graph = parse_graph(given.text, "cascades.braze");
    SCOPED_TRACE(graph.name());
    const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
    EXPECT_EQ(testing::compile_for(device, graph, options)->launches.size(), given.kernels);
    EXPECT_TRUE(testing::agrees(graph, inputs, device, options));
    EXPECT_TRUE(testing::agrees(graph, inputs, Device("sim:cpu"), verifying()));
  }
}

}  // namespace
}  // namespace braze
