// Planted faults: mutants of kernels that the compiler made and of those written by hand. A mutant
// is caught if the verifier or the simulator reports something, or if it gives other values: the
// share of those is printed and must be at least 95 %, and at least 80 % must be reported.
//
// Left out, being the kernel again: what mutants() leaves out, and faults in statements that no
// thread runs for these sizes.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "ir/code/text.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"
#include "tests/simulator/mutate.h"

namespace braze {
namespace {

struct Subject {
  std::string text;
  std::map<std::string, int64_t> sizes;
};

struct Outcome {
  std::vector<Diagnostic> findings;
  std::vector<HostTensor> tensors;
  std::set<uint32_t> lines;  // that some thread ran
};

// Small numbers of every dtype.
HostTensor random_tensor(DType dtype, int64_t count, std::mt19937& engine) {
  HostTensor out(dtype, {count});
  std::uniform_real_distribution<double> real(-1, 1);
  for (int64_t i = 0; i < count; ++i) {
    if (is_floating(dtype))
      out.set_double(i, real(engine));
    else
      out.set_int(i, static_cast<int64_t>(engine() % 2));
  }
  return out;
}

Outcome run(const Kernel& kernel, const std::map<std::string, int64_t>& sizes) {
  std::mt19937 engine(1);
  Outcome out;
  std::vector<int64_t> scalars;
  for (const Expr& symbol : kernel.symbols) scalars.push_back(sizes.at(symbol.symbol_name()));
  scalars.resize(scalars.size() + kernel.scalar_parameters.size());
  for (const Memory& memory : kernel.memories) {
    if (memory.space != MemorySpace::Parameter) continue;
    const int64_t count = memory.shape[0].evaluate(
        [&](std::string_view name) { return sizes.at(std::string(name)); });
    out.tensors.push_back(memory.mode == Mode::Out ? HostTensor(memory.dtype, {count})
                                                   : random_tensor(memory.dtype, count, engine));
  }
  std::vector<std::span<std::byte>> memories;
  for (HostTensor& tensor : out.tensors) memories.emplace_back(tensor.data(), tensor.size_bytes());
  Simulator simulator(kernel);
  out.findings = simulator.run(memories, scalars);
  out.lines = simulator.lines_run();
  return out;
}

bool same(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!std::equal(a[i].data(), a[i].data() + a[i].size_bytes(), b[i].data())) return false;
  return true;
}

struct Tally {
  size_t mutants = 0, reported = 0, other_values = 0;
  std::string missed;
};

// Tries every `each`-th mutant.
void plant(const Subject& subject, size_t each, Tally& tally) {
  const Kernel kernel = parse_kernel(subject.text, "kernel");
  ASSERT_TRUE(verify(kernel).empty());
  const Outcome clean = run(kernel, subject.sizes);
  ASSERT_TRUE(clean.findings.empty()) << clean.findings[0].to_string();
  const std::vector<testing::Mutant> all = testing::mutants(kernel);
  for (size_t i = 0; i < all.size(); i += each) {
    if (!clean.lines.contains(all[i].line)) continue;  // no thread runs it: the same kernel here
    ++tally.mutants;
    if (!verify(all[i].kernel).empty()) {
      ++tally.reported;
      continue;
    }
    const Outcome outcome = run(all[i].kernel, subject.sizes);
    if (!outcome.findings.empty())
      ++tally.reported;
    else if (!same(outcome.tensors, clean.tensors))
      ++tally.other_values;
    else
      tally.missed += fmt::format("@{}: {}", kernel.name, all[i].fault);
  }
}

void expect_caught(const Tally& tally, size_t least) {
  const size_t caught = tally.reported + tally.other_values;
  ::testing::Test::RecordProperty("mutants", static_cast<int>(tally.mutants));
  std::printf("%zu mutants: %zu reported, %zu with other values, %zu missed\n%s", tally.mutants,
              tally.reported, tally.other_values, tally.mutants - caught, tally.missed.c_str());
  EXPECT_GE(tally.mutants, least);
  EXPECT_GE(100 * caught, 95 * tally.mutants) << tally.missed;
  EXPECT_GE(100 * tally.reported, 80 * tally.mutants);
}

std::vector<std::string> cases(const std::string& name) {
  std::ifstream stream(BRAZE_TESTS "/kernel/" + name);
  std::stringstream text;
  text << stream.rdbuf();
  std::vector<std::string> out;
  std::string rest = text.str();
  for (size_t end = 0; end != rest.npos;) {
    end = rest.find("// ----");
    out.push_back(rest.substr(0, end));
    if (end != rest.npos) rest = rest.substr(end + 7);
  }
  return out;
}

TEST(PlantedFaults, KernelsByHand) {
  Tally tally;
  plant({cases("gpu_gemm_cp_async.braze")[0], {{"m", 100}, {"n", 64}, {"k", 80}}}, 1, tally);
  plant({cases("gpu_clusters.braze")[0], {{"m", 2}}}, 1, tally);
  plant({cases("gpu_clusters.braze")[1], {{"m", 64}}}, 1, tally);
  for (const std::string& text : cases("gpu_wgmma.braze")) plant({text, {}}, 1, tally);
  // One block walks all four tiles, so that the rings come round.
  std::string gelu = cases("gpu_linear_gelu.braze")[0];
  for (size_t at = 0; (at = gelu.find("132", at)) != gelu.npos;) gelu.replace(at, 3, "1");
  plant({gelu, {{"m", 200}, {"n", 264}, {"k", 392}}}, 2, tally);
  expect_caught(tally, 200);
}

// Sizes near the wanted one that the kernel takes.
std::map<std::string, int64_t> sizes_near(const Kernel& kernel, int64_t wanted) {
  std::map<std::string, int64_t> sizes;
  for (const Expr& symbol : kernel.symbols) {
    const Interval range = symbol.range();
    const int64_t size = std::clamp(wanted, range.min, range.max);
    sizes[symbol.symbol_name()] =
        std::min((size + symbol.divisor() - 1) / symbol.divisor() * symbol.divisor(),
                 range.max / symbol.divisor() * symbol.divisor());
  }
  return sizes;
}

// The kernels of a graph, as text.
std::vector<std::string> kernels_of(const Graph& graph, CompileOptions options = {}) {
  std::vector<std::string> texts;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == "kernel") texts.push_back(phase.text());
  };
  compile(graph, find_target("sim:sm_90").value(), options);
  return texts;
}

// Kernels in which threads meet.
TEST(PlantedFaults, KernelsOfTheCompiler) {
  constexpr size_t kKernels = 80;
  Tally tally;
  size_t kernels = 0;
  for (uint64_t seed = 0; kernels < kKernels && seed < 400; ++seed) {
    for (const std::string& text : kernels_of(fuzz::random_graph(seed, {}))) {
      if (text.find("bar.sync") == text.npos || text.size() > 20000) continue;
      SCOPED_TRACE("seed " + std::to_string(seed));
      plant({text, sizes_near(parse_kernel(text, "kernel"), 7)}, 6, tally);
      ++kernels;
      break;
    }
  }
  EXPECT_EQ(kernels, kKernels);
  expect_caught(tally, 200);
}

// Kernels of the compiler in which roles, or the blocks of a cluster, meet: by given schedules.
TEST(PlantedFaults, KernelsOfRolesAndClusters) {
  const Graph product = testing::parse(R"(symbol m: 1..400
graph @main(%x: bf16[m, 136], %w: bf16[136, 328], %b: bf16[328]) {
  %p = dot %x, %w {contract: [1] x [0]} : bf16[m, 328]
  %c = broadcast %b {axes: [1]} : bf16[m, 328]
  %s = add %p, %c : bf16[m, 328]
  return %s
})");
  const Graph softmax = testing::parse(R"(graph @main(%x: f32[3, 250]) {
  %m = reduce max %x {axes: [1]} : f32[3]
  %mb = broadcast %m {axes: [0]} : f32[3, 250]
  %c = sub %x, %mb : f32[3, 250]
  %e = exp %c : f32[3, 250]
  %s = reduce sum %e {axes: [1]} : f32[3]
  %sb = broadcast %s {axes: [0]} : f32[3, 250]
  %y = div %e, %sb : f32[3, 250]
  return %y
})");
  struct Planted {
    const Graph* graph;
    const char* schedule;
    size_t each;
  };
  const std::string tiles =
      "split i 128 padded; split i.2 64 padded; whole i.3; split j 64 padded; whole j.2; reorder "
      "i.2 j; tuple i j; on i grid; on i.2 group; split r 64 padded; whole r.2; stage x r; stage w "
      "r; ring r 2; roles 40 232; unit %p wgmma; ";
  const std::string rows = tiles + "deal i rows, persistent 1",
                    bands = tiles + "deal i band 2, persistent 2",
                    on_chip = tiles + "slabs s i 16; stage %p i.2; deal i rows, persistent 1";
  // Rows that the blocks of a cluster share, each in a cluster of its own or one after the other.
  const std::string row =
      "split j 256 padded; whole j.2; split j.2 256 padded; whole j.3; split j.3 256 padded; whole "
      "j.4; ";
  const std::string shared = "on i grid; " + row +
                             "bind %m (b1:4 w1:2 l1:32); bind %s (b1:4 w1:2 l1:32)",
                    in_a_loop = row + "bind %m (r1:4 b1:2 l1:32); bind %s (r1:4 b1:2 l1:32)";
  Tally tally;
  for (const Planted& planted : {
           Planted{&product, rows.c_str(), 3},
           {&product, bands.c_str(), 4},
           {&product, on_chip.c_str(), 3},
           {&softmax, shared.c_str(), 1},
           {&softmax, in_a_loop.c_str(), 1},
       }) {
    SCOPED_TRACE(planted.schedule);
    CompileOptions options;
    const auto program = compile(*planted.graph, find_target("sim:sm_90").value(), options);
    options.schedules[program.launches[0].name] = planted.schedule;
    const std::vector<std::string> texts = kernels_of(*planted.graph, options);
    ASSERT_EQ(texts.size(), 1u);
    plant({texts[0], sizes_near(parse_kernel(texts[0], "kernel"), 200)}, planted.each, tally);
  }
  expect_caught(tally, 200);
}

}  // namespace
}  // namespace braze
