// Masks as users write them (tests/graphs/masks.braze): what they leave out, and that nothing else
// changes.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include "ir/code/text.h"
#include "ir/graph/sizes.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/random.h"
#include "tests/source_path.h"

namespace braze {
namespace {

/// A graph, and of a line `// turns WORD ..` what leaves out turns of its walk; of a line
/// `// turns on TARGET WORD ..`, what does so on that target.
struct MaskCase {
  std::string text, turns;
  std::map<std::string, std::string> turns_on;
};

std::vector<MaskCase> cases() {
  constexpr std::string_view kTurns = "// turns ", kTurnsOn = "// turns on ";
  std::ifstream file(test::source_path("tests/graphs/masks.braze"));
  std::vector<MaskCase> out(1);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("// ----"))
      out.emplace_back();
    else if (line.starts_with(kTurnsOn)) {
      const size_t space = line.find(' ', kTurnsOn.size());
      out.back().turns_on[line.substr(kTurnsOn.size(), space - kTurnsOn.size())] =
          line.substr(space + 1);
    } else if (line.starts_with(kTurns))
      out.back().turns = line.substr(kTurns.size());
    else
      out.back().text += line + "\n";
  }
  return out;
}

CompileOptions whole() {
  CompileOptions options;
  options.by_cost = false;  // however short the walks are here
  return options;
}

/// What the numbers and flags are that masks look at.
enum class Data { Runs, Random, None, All };

std::vector<HostTensor> inputs_of(const Graph& graph, int64_t n, int64_t m, Data data) {
  fuzz::Random random(static_cast<uint64_t>(17 * n + m));
  Sizes sizes;
  sizes.set("n", n);
  sizes.set("m", m);
  std::vector<HostTensor> out;
  for (const NodeId id : graph.inputs()) {
    HostTensor& x = out.emplace_back(graph[id].type.dtype, sizes(graph[id].type.shape));
    const int64_t row = x.shape().back();
    for (int64_t k = 0; k < x.numel(); ++k) {
      const int64_t run = k % row / 70;
      if (x.dtype() == DType::Bool) {
        const bool any = data == Data::Runs ? (run + k / row / 64) % 3 == 0 : random.one_in(3);
        x.set_int(k, data == Data::All || (any && data != Data::None) ? 1 : 0);
      } else if (x.dtype() == DType::I32) {
        x.set_int(k, data == Data::Runs ? run - 1 : random.within(-3, m + 3));
      } else {
        x.set_double(k, static_cast<double>(random.within(-64, 64)) / 32);
      }
    }
  }
  return out;
}

/// Values on `device`; what leaves out turns stands in the schedule of `planned`, or in its own.
/// With `floats`, all floats are f32.
void expect_masks(const Device& device, std::optional<Device> planned = {}, bool floats = false) {
  const std::vector<MaskCase> all = cases();
  ASSERT_GE(all.size(), 20u);
  for (const MaskCase& given : all) {
    const Graph graph =
        parse_graph(floats ? testing::with_floats(given.text) : given.text, "masks.braze");
    SCOPED_TRACE(graph.name());
    const auto program = testing::compile_for(device, graph, whole());
    const auto shown = planned ? testing::compile_for(*planned, graph, whole()) : program;
    ASSERT_EQ(shown->launches.size(), 1u);
    const std::string& schedule = shown->launches[0].schedule;
    const auto own = given.turns_on.find(shown->target.name);
    const std::string& turns = own == given.turns_on.end() ? given.turns : own->second;
    for (const std::string word : {"pick", "limit", "skip"})
      EXPECT_EQ(schedule.find("; " + word + " ") != std::string::npos,
                turns.find(word) != std::string::npos)
          << word << "\n"
          << schedule;
    struct {
      int64_t n, m;
      Data data;
    } const kRuns[] = {
        {1, 1, Data::None}, {1, 1, Data::All}, {40, 290, Data::Runs}, {130, 150, Data::Random}};
    for (const auto& [n, m, data] : kRuns) {
      const auto inputs = inputs_of(graph, n, m, data);
      const CheckResult result =
          testing::check(graph, inputs, testing::run(program, device, inputs));
      EXPECT_TRUE(result.ok) << n << " rows, " << m << " keys: " << result.summary();
    }
  }
}

TEST(Masks, OnAsynchronousUnits) { expect_masks(testing::gpu_or("sim:sm_90")); }
TEST(Masks, OnUnitsOfWarps) { expect_masks(Device("sim:sm_80")); }
TEST(Masks, InFloats) { expect_masks(testing::gpu_or("sim:sm_90"), {}, /*floats=*/true); }
TEST(Masks, OnCpus) { expect_masks(Device("cpu"), Device("sim:x86-64-v4")); }

// Keys that no row sees are not loaded, so it does not matter what they are.
TEST(Masks, TurnsThatNoRowNeedsAreNotTouched) {
  for (const MaskCase& given : cases()) {
    if (given.turns != "pick") continue;
    const Graph graph = parse_graph(given.text, "masks.braze");
    if (graph.name() != "table" && graph.name() != "padding") continue;
    SCOPED_TRACE(graph.name());
    constexpr int64_t kRows = 30, kKeys = 600, kSeen = 128;
    auto inputs = inputs_of(graph, kRows, kKeys, Data::All);
    HostTensor& seen = inputs.back();
    for (int64_t k = 0; k < seen.numel(); ++k) seen.set_int(k, k % kKeys < kSeen ? 1 : 0);
    for (size_t i = 1; i < 3; ++i) {
      HostTensor& factor = inputs[i];
      const int64_t width = factor.shape().back();
      for (int64_t k = 0; k < factor.numel(); ++k)
        if (k / width % kKeys >= kSeen)
          factor.set_double(k, std::numeric_limits<double>::quiet_NaN());
    }
    for (const char* name : {"sim:sm_90", "cpu"}) {
      const Device device(name);
      const auto program = testing::compile_for(device, graph, whole());
      const HostTensor y = testing::run(program, device, inputs)[0];
      for (int64_t k = 0; k < y.numel(); ++k)
        ASSERT_TRUE(std::isfinite(y.get_double(k))) << name << " " << k;
    }
  }
}

}  // namespace
}  // namespace braze
