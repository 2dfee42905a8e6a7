// Random tile programs: printed and read back, interpreted, lowered for every machine of their kind
// and run on its simulator. Nothing may be found, and both must give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <optional>

#include "compiler/lowering/lower.h"
#include "ir/code/interpret.h"
#include "ir/code/text.h"
#include "ir/graph/sizes.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/support/text.h"
#include "ir/target/target.h"
#include "ir/tile/verify.h"
#include "ir/values/host_tensor.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/tile_generator.h"
#include "tests/fuzz/tile_shrink.h"
#include "tests/source_path.h"

namespace braze {
namespace {

using fuzz::TileCase;
using fuzz::TileKind;

constexpr uint64_t kProgramsATest = 20;

struct Failure {
  std::string stage;  // what failed: the shrunk program fails there too
  std::string what;
};

std::string joined(const std::vector<Diagnostic>& findings) {
  std::string out;
  for (const Diagnostic& finding : findings) out += finding.to_string() + "\n";
  return out;
}

std::vector<std::string> targets(TileKind kind, bool clusters = false) {
  if (kind == TileKind::Cpu) return {"x86-64-v3"};
  if (kind == TileKind::Gpu && !clusters) return {"sm_80", "sm_90a"};
  return {"sm_90a"};
}

/// The memory of the parameters. Inputs are small whole numbers, halves of them where the sums of
/// them stay exact; outputs begin as bytes that no program writes by chance.
std::vector<HostTensor> parameters(const TileProgram& program, const TileCase& given,
                                   uint64_t seed) {
  fuzz::Random random(seed);
  Sizes sizes;
  for (size_t i = 0; i < program.symbols.size(); ++i)
    sizes.set(program.symbols[i].symbol_name(), given.sizes[i]);
  std::vector<HostTensor> out;
  for (const Memory& memory : program.memories) {
    if (memory.space != MemorySpace::Parameter) continue;
    HostTensor& tensor = out.emplace_back(memory.dtype, sizes(Shape(memory.shape)));
    std::fill_n(tensor.data(), tensor.size_bytes(), std::byte{0xa5});
    if (memory.mode == Mode::Out) continue;
    const int64_t least = is_unsigned_integer(memory.dtype) ? 0 : -3;
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.set_double(i, static_cast<double>(random.within(least, 3)));
  }
  return out;
}

/// Where the first element differs; all NaNs are equal.
std::optional<std::string> difference(const HostTensor& a, const HostTensor& b) {
  const size_t size = size_of(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    if (is_floating(a.dtype()) && std::isnan(a.get_double(i)) && std::isnan(b.get_double(i)))
      continue;
    return fmt::format("element {}: {} interpreted, {} simulated", i, a.get_double(i),
                       b.get_double(i));
  }
  return std::nullopt;
}

std::optional<Failure> check(const TileCase& given, TileKind kind, uint64_t seed, int& refused) {
  const auto failure = [](std::string stage, std::string what) {
    return Failure{std::move(stage), std::move(what)};
  };
  std::string stage = "parse";
  try {
    const TileProgram program = parse_tile(given.text, "tile");
    const std::string text = to_text(program);
    if (to_text(parse_tile(text, "printed")) != text) return failure("print", text);
    stage = "verify";
    if (const auto findings = verify(program); !findings.empty())
      return failure("verify", joined(findings));
    std::vector<HostTensor> expected = parameters(program, given, seed);
    const auto run = [&](std::vector<HostTensor>& tensors, const auto& runs) {
      std::vector<std::span<std::byte>> memories;
      for (HostTensor& tensor : tensors) memories.emplace_back(tensor.data(), tensor.size_bytes());
      return joined(runs(memories));
    };
    stage = "interpret";
    const std::string findings = run(
        expected, [&](const auto& memories) { return run_code(program, memories, given.sizes); });
    if (!findings.empty()) return failure("interpret", findings);
    for (const std::string& name : targets(kind, program.cluster > 1)) {
      std::optional<Kernel> kernel;
      stage = "lower for " + name;
      try {
        kernel = lower(program, find_target(name).value());
      } catch (const Error& error) {
        // What the lowering has no rule for, or has no room for, it may refuse.
        if (error.kind() == ErrorKind::Internal) throw;
        ++refused;
        continue;
      }
      stage = "verify the kernel for " + name;
      if (const auto found = verify(*kernel); !found.empty())
        return failure(stage, joined(found) + to_text(*kernel));
      stage = "print the kernel for " + name;
      const std::string printed = to_text(*kernel);
      if (to_text(parse_kernel(printed, "kernel")) != printed) return failure(stage, printed);
      stage = "simulate " + name;
      std::vector<HostTensor> got = parameters(program, given, seed);
      const std::string found = run(
          got, [&](const auto& memories) { return run_kernel(*kernel, memories, given.sizes); });
      if (!found.empty()) return failure(stage, found);
      stage = "compare " + name;
      for (size_t i = 0; i < got.size(); ++i)
        if (const auto differs = difference(expected[i], got[i]))
          return failure(stage, fmt::format("parameter {}, {}", i, *differs));
    }
  } catch (const std::exception& error) {
    return failure(stage, error.what());
  }
  return std::nullopt;
}

/// The failure of a seed in full, and its shrunk program.
void report(const TileCase& given, TileKind kind, uint64_t seed, const Failure& failure) {
  TileCase fewer = given;
  const bool is_sound = failure.stage != "parse" && failure.stage != "verify";
  if (is_sound)
    fewer.text = fuzz::shrink_lines(given.text, [&](const std::string& text) {
      int refused = 0;
      const auto again = check({text, given.sizes}, kind, seed, refused);
      return again && again->stage == failure.stage;
    });
  int refused = 0;
  const auto shrunk = check(fewer, kind, seed, refused);
  ADD_FAILURE() << "seed " << seed << " fails to " << failure.stage << ":\n"
                << failure.what << "\nfor n = " << given.sizes[0] << " of\n"
                << given.text << "\nShrunk:\n"
                << fewer.text << "\nwhich gives: " << (shrunk ? shrunk->what : "");
}

void run_seeds(TileKind kind, uint64_t first) {
  int refused = 0;
  for (uint64_t seed = first; seed < first + kProgramsATest; ++seed) {
    const TileCase given = fuzz::random_tile_program(seed, kind);
    // The first one of a few seeds is enough to look at.
    if (const auto failure = check(given, kind, seed, refused))
      return report(given, kind, seed, *failure);
  }
  // Programs that are refused show nothing.
  const auto lowered = static_cast<int>(kProgramsATest * targets(kind).size());
  EXPECT_LE(refused, lowered / 4);
}

/// The cases of a file of tests/tile.
std::vector<std::string> cases(const std::string& name) {
  std::ifstream file(test::source_path("tests/tile/" + name));
  std::vector<std::string> texts(1);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("// ----"))
      texts.emplace_back();
    else
      texts.back() += line + "\n";
  }
  return texts;
}

/// A plain program that says nothing of warps is a CPU's.
TileKind kind_of(const TileProgram& program) {
  if (program.pipelined) return TileKind::Pipelined;
  return program.warps > 0 ? TileKind::Gpu : TileKind::Cpu;
}

class TileCorners : public ::testing::TestWithParam<const char*> {};
TEST_P(TileCorners, GiveTheInterpretersBits) {
  const std::vector<std::string> texts = cases(GetParam());
  ASSERT_GE(texts.size(), 7u);
  for (const std::string& text : texts) {
    const TileKind kind = kind_of(parse_tile(text, "tile"));
    for (const int64_t n : {0, 1, 8}) {
      int refused = 0;
      const auto failure = check({text, {n}}, kind, 1, refused);
      EXPECT_FALSE(failure.has_value()) << failure->stage << ":\n"
                                        << failure->what << "for n = " << n << " of\n"
                                        << text;
      EXPECT_EQ(refused, 0) << text;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Files, TileCorners, ::testing::Values("corners.braze", "lowered.braze"));

// A thread has no room for a tile that lies in it as a whole.
TEST(TileSizes, TooManyElementsAThread) {
  const TileProgram program = parse_tile(R"(braze 1 tile
kernel @wide(%p: in f32[16, 33], %y: out f32[16, 33]) warps 1 {
  layout @t = (r33:16 | r1:33)
  phase grid() {
    %a = load %p[d0, d1] : f32[16, 33]
    store %a, %y[d0, d1]
  }
}
)",
                                         "wide");
  try {
    lower(program, find_target("sm_80").value());
    FAIL() << "it was lowered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code().name, "tile-size") << error.what();
    EXPECT_NE(std::string(error.what()).find("smaller tiles"), std::string::npos) << error.what();
  }
}

class RandomCpuTiles : public ::testing::TestWithParam<uint64_t> {};
TEST_P(RandomCpuTiles, GiveTheInterpretersBits) { run_seeds(TileKind::Cpu, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCpuTiles, ::testing::Range<uint64_t>(0, 500, kProgramsATest));

class RandomGpuTiles : public ::testing::TestWithParam<uint64_t> {};
TEST_P(RandomGpuTiles, GiveTheInterpretersBits) { run_seeds(TileKind::Gpu, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGpuTiles, ::testing::Range<uint64_t>(0, 700, kProgramsATest));

class RandomPipelinedTiles : public ::testing::TestWithParam<uint64_t> {};
TEST_P(RandomPipelinedTiles, GiveTheInterpretersBits) {
  run_seeds(TileKind::Pipelined, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomPipelinedTiles,
                         ::testing::Range<uint64_t>(0, 800, kProgramsATest));

}  // namespace
}  // namespace braze
