// Kernels for GPUs without a GPU: what PTX they become, and what an assembler says of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/constant_division.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/code/text.h"
#include "ir/kernel/verify.h"
#include "ir/ops/machine_semantics.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/strided_copy.h"
#include "tests/compiler/kernel_runner.h"

namespace braze::test {
namespace {

constexpr const char* kNoNvrtc = "no NVRTC here: install the CUDA toolkit or nvidia-cuda-nvrtc";
constexpr const char* kNoAssembler =
    "no PTX assembler here: put ptxas on the PATH or build the plugin (docs/guides/gpu.md)";

Kernel parsed(std::string_view text, std::string_view name = "test.braze") {
  Kernel kernel = parse_kernel(text, name);
  for (const Diagnostic& finding : verify(kernel)) ADD_FAILURE() << finding.to_string();
  return kernel;
}

// Instructions of the text that begin so, with their predicates left out.
size_t count(const std::string& ptx, std::string_view instruction) {
  size_t found = 0;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    std::string_view rest = line;
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (rest.starts_with('@'))
      rest.remove_prefix(std::min(rest.find_first_of("\t ") + 1, rest.size()));
    found += rest.starts_with(instruction);
  }
  return found;
}

void expect_clean(const Artifact& artifact, const Kernel& kernel) {
  ASSERT_EQ(artifact.format, "cubin");
  ASSERT_EQ(artifact.facts.size(), kernel.phases.size());
  for (size_t i = 0; i < artifact.facts.size(); ++i) {
    const CodeFacts& facts = artifact.facts[i];
    EXPECT_GT(facts.registers, 0) << artifact.entry_names[i];
    EXPECT_EQ(facts.spill_bytes, 0) << artifact.entry_names[i];
    EXPECT_EQ(facts.local_bytes, 0) << artifact.entry_names[i];
    for (const std::string& warning : facts.warnings) ADD_FAILURE() << warning;
  }
}

void expect_clean(const Kernel& kernel, std::string_view target_name) {
  expect_clean(generate_gpu(kernel, target(target_name)), kernel);
}

std::string ptx_of(std::string_view text) { return assembly_text(parsed(text), target("sm_90a")); }

// --- Divisions by constants ----------------------------------------------------------------------

TEST(ConstantDivision, IsTheQuotient) {
  using codegen::constant_division;
  constexpr uint64_t kEnd = uint64_t{1} << 31;
  for (uint32_t d = 3; d < kEnd; d = d < 5000 ? d + 1 : d + d / 7 + 12345) {
    if (std::has_single_bit(d)) continue;
    const auto [multiplier, shift] = constant_division(d);
    ASSERT_GE(shift, 1);
    for (uint64_t k : {uint64_t{0}, uint64_t{1}, uint64_t{2}, kEnd / d / 2, kEnd / d}) {
      for (uint64_t x : {k * d, k * d + d / 2, k * d + d - 1, kEnd - 1, kEnd}) {
        x = std::min(x, kEnd);
        ASSERT_EQ(x * multiplier >> 32 >> shift, x / d) << x << " / " << d;
      }
    }
  }
}

TEST(ConstantDivision, DivisorsMakeARangePositive) {
  using codegen::divisors_until_positive;
  EXPECT_EQ(divisors_until_positive({0, 100}, 5), 0);
  EXPECT_EQ(divisors_until_positive({-5, 100}, 5), 1);
  EXPECT_EQ(divisors_until_positive({-6, 100}, 5), 2);
  EXPECT_EQ(divisors_until_positive({-1, INT32_MAX - 4}, 5), std::nullopt);
  EXPECT_EQ(divisors_until_positive({INT64_MIN, 0}, 5), std::nullopt);
}

// A sum of the high half of a product and a constant is what the assembler gets wrong.
TEST(ConstantDivision, AConstantIsNeverAddedToAHighHalf) {
  const std::string ptx = assembly_text(parsed(R"(braze 1 kernel

kernel @quotients(%x: in global f32[64] align 64, %y: out global f32[32] align 64) target "sm_90a" {
  phase grid() block 32 {
    %a = load %x[floordiv(tid + 2, 5) + 6] : f32[1]
    %b = load %x[floordiv(tid + 22, 5) - 4] : f32[1]
    %c = load %x[mod(tid + 2, 3) + 6] : f32[1]
    %d = load %x[floordiv(tid - 9, 5) + 7] : f32[1]
    %ab = add %a, %b : f32[1]
    %cd = add %c, %d : f32[1]
    %sum = add %ab, %cd : f32[1]
    store %sum, %y[tid]
  }
}
)"),
                                        target("sm_90a"));
  EXPECT_EQ(count(ptx, "mul.hi"), 0u) << ptx;
  EXPECT_EQ(count(ptx, "shr.u64"), 3u) << ptx;
}

// --- Rows ----------------------------------------------------------------------------------------

// A condition for all lanes of a vector chooses between words. Conditions of lanes choose lanes.
TEST(GpuRows, OneConditionChoosesWords) {
  const auto chosen = [](std::string_view condition) {
    return ptx_of(fmt::format(R"(braze 1 kernel
kernel @choose(%x: in global bf16[1024] align 64, %z: out global bf16[1024] align 64) target "sm_90a" {{
  phase grid() block 128 {{
    %a = load %x[8*tid + lane] align 16 : bf16x8
    {}
    %s = select %c, %a, 1.0 : bf16x8
    store %s, %z[8*tid + lane] align 16
  }}
}}
)",
                              condition));
  };
  const std::string alike = chosen("%p = test (tid < 100) : bool\n    %c = splat %p : boolx8");
  EXPECT_EQ(count(alike, "selp.b32"), 4u) << alike;
  EXPECT_EQ(count(alike, "selp.b16"), 0u);
  const std::string apart = chosen("%c = test (5*tid + lane < 300) : boolx8");
  EXPECT_EQ(count(apart, "selp.b16"), 8u) << apart;
}

// A kernel with a phase for each row and dtype: y[tid] = row(x[tid], ..).
class RowKernel {
 public:
  RowKernel() {
    kernel_.name = "rows";
    kernel_.target = "sm_90a";
    for (DType dtype : kAllDTypes) {
      in_.push_back(b_.add_memory({.name = "x", .dtype = dtype, .shape = {Expr(1024)}}));
      out_.push_back(
          b_.add_memory({.name = "y", .mode = Mode::Out, .dtype = dtype, .shape = {Expr(1024)}}));
    }
  }

  void add(ElementwiseOp op, const std::vector<DType>& operands, DType result, int32_t lanes) {
    Phase phase;
    phase.block = 32;
    b_.enter(phase.body);
    const Expr at = thread_symbol(32) * Expr(4) + (lanes == 1 ? Expr(0) : lane_symbol(lanes));
    std::vector<ValueOperand> values;
    for (size_t i = 0; i < operands.size(); ++i)
      values.emplace_back(b_.load(in_[static_cast<size_t>(operands[i])],
                                  {at + Expr(static_cast<int64_t>(128 * i))},
                                  {operands[i], lanes, {}}));
    b_.store(b_.append(RowOp{op, values}, {{result, lanes, {}}})[0],
             out_[static_cast<size_t>(result)], {at});
    b_.leave();
    kernel_.phases.push_back(std::move(phase));
  }

  const Kernel& kernel() const { return kernel_; }

 private:
  Kernel kernel_;
  CodeBuilder b_{kernel_};
  std::vector<MemoryId> in_, out_;
};

// `inner`: rows for bodies alone too, which may approximate.
Kernel all_rows(int32_t lanes, bool inner) {
  RowKernel rows;
  for (size_t i = 0; i < kMachineOpCount; ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    for (DType dtype : kAllDTypes)
      for (DType result : kAllDTypes) {
        const ElementwiseInfo& row = info(op);
        if (row.inner && !inner) continue;
        const bool chosen = op == ElementwiseOp::convert || op == ElementwiseOp::bitcast;
        if (!chosen && result != result_dtype(row.result, dtype, dtype)) continue;
        if (!machine_function(op, dtype, result)) continue;
        std::vector<DType> operands(row.arity, dtype);
        if (op == ElementwiseOp::select) operands[0] = DType::Bool;
        rows.add(op, operands, result, lanes);
      }
  }
  return rows.kernel();
}

class GpuCode : public testing::TestWithParam<std::string_view> {};

TEST_P(GpuCode, EveryRowIsPtxWithoutImports) {
  for (int32_t lanes : {1, 2, 4}) {
    const std::string ptx = assembly_text(all_rows(lanes, false), target(GetParam()));
    EXPECT_EQ(count(ptx, ".extern"), 0u);
    EXPECT_EQ(ptx.find(".local"), std::string::npos);
    // Nothing may flush subnormals, approximate, or be free to contract.
    EXPECT_EQ(ptx.find(".ftz"), std::string::npos);
    EXPECT_EQ(ptx.find(".approx"), std::string::npos);
    for (const char* op : {"add.f32", "mul.f32", "sub.f32", "add.f64", "mul.f64", "sub.f64"})
      EXPECT_EQ(count(ptx, op), 0u) << op;
  }
}

TEST_P(GpuCode, EveryRowAssembles) {
  if (!ptx_assembler()) GTEST_SKIP() << kNoAssembler;
  for (int32_t lanes : {1, 4}) expect_clean(all_rows(lanes, true), GetParam());
}

// --- Accesses ------------------------------------------------------------------------------------

constexpr std::string_view kScaled = R"(braze 1 kernel
symbol n: 1..1048576 % 4

kernel @scaled(%x: in global f32[n] align 16, %y: out global bf16[n] align 16) target "sm_90a" {
  phase grid(p: floordiv(n + 1023, 1024)) block 128 {
    %v = load %x[1024*p + 8*tid + 4*e0 + lane] mask (1024*p + 8*tid + 4*e0 + lane < n) fill 0.0 align 16 : f32x4[2]
    %r = regroup %v : f32[8]
    %f = fma %r, 2.0, 1.0 : f32[8]
    %h = convert %f : bf16[8]
    %o = regroup %h : bf16x4[2]
    store %o, %y[1024*p + 8*tid + 4*e0 + lane] mask (1024*p + 8*tid + 4*e0 + lane < n) align 8
  }
}
)";

TEST(GpuAccesses, VectorsPairsAndNarrowIndices) {
  const std::string ptx = ptx_of(kScaled);
  EXPECT_EQ(count(ptx, "ld.global.nc.v4.b32"), 2u) << ptx;
  EXPECT_EQ(count(ptx, "ld.global"), 2u);
  EXPECT_EQ(count(ptx, "st.global.v2.b32"), 2u);
  EXPECT_EQ(count(ptx, "st.global"), 2u);
  EXPECT_EQ(count(ptx, "cvt.rn.bf16x2.f32"), 4u);
  EXPECT_EQ(count(ptx, "fma.rn.f32"), 8u);
  // n and every index fit in 32 bits: 64 are for addresses only.
  EXPECT_EQ(count(ptx, "mul.lo.s64") + count(ptx, "setp.lt.s64") + count(ptx, "setp.gt.s64"), 0u);
  EXPECT_NE(ptx.find(".maxntid 128"), std::string::npos);
}

TEST(GpuAccesses, StreamsLeaveTheCachesAlone) {
  std::string text(kScaled);
  text.insert(text.find(" : f32x4[2]"), " cache stream");
  text.insert(text.find(" align 8\n") + 8, " cache stream");
  const std::string ptx = ptx_of(text);
  EXPECT_EQ(count(ptx, "ld.global.nc.L1::no_allocate.v4.b32"), 2u) << ptx;
  EXPECT_EQ(count(ptx, "st.global.cs.v2.b32"), 2u);
  if (ptx_assembler()) expect_clean(parsed(text), "sm_90a");
}

// Lanes that are turned around, or pairs of which each has one element, are vectors in memory.
TEST(GpuAccesses, NeighboursInAnotherOrderAreLoadedAtOnce) {
  const std::string ptx = ptx_of(R"(braze 1 kernel
kernel @others(%x: in global bf16[4096] align 64, %y: in global bf16[2048] align 64, %z: out global bf16[4096] align 64) target "sm_90a" {
  phase grid(p: 4) block 128 {
    %a = load %x[4095 - 1024*p - 8*tid - lane] : bf16x8
    %b = load %y[512*p + 4*tid + floordiv(lane, 2)] mask (mod(lane, 2) < 1) fill 0.0 align 8 : bf16x8
    %t = test (mod(lane, 2) < 1) : boolx8
    %c = select %t, %b, %a : bf16x8
    store %c, %z[1024*p + 8*tid + lane] align 16
  }
}
)");
  EXPECT_EQ(count(ptx, "ld.global"), 2u) << ptx;
  EXPECT_EQ(count(ptx, "ld.global.nc.v4.b32"), 1u) << ptx;
  EXPECT_EQ(count(ptx, "bra"), 0u) << ptx;
}

// What may not be aligned is loaded one by one.
TEST(GpuAccesses, NeighboursAtAnyPlaceStayApart) {
  const std::string ptx = ptx_of(R"(braze 1 kernel
kernel @others(%x: in global bf16[4097] align 64, %z: out global bf16[4096] align 64) target "sm_90a" {
  phase grid(p: 4) block 128 {
    %a = load %x[4096 - 1024*p - 8*tid - lane] : bf16x8
    store %a, %z[1024*p + 8*tid + lane] align 16
  }
}
)");
  EXPECT_EQ(count(ptx, "ld.global.nc.v4.b32"), 0u) << ptx;
}

// Bounds that lie between vectors decide about whole vectors, on whichever side they are. What lies
// beyond them for all threads is not even asked.
TEST(GpuAccesses, BoundsBetweenVectorsAreAskedOnceOrNever) {
  const auto halves = [](std::string_view from) {
    return ptx_of(fmt::format(R"(braze 1 kernel
kernel @halves(%x: in global bf16[4096] align 64, %y: out global bf16[8192] align 64) target "sm_90a" {{
  phase grid(p: 1) block 32 {{
    %a = load %x[8*e0 + 2*mod(tid, 4) + lane] mask (8*e0 + 2*mod(tid, 4) + lane - {} >= 0) fill 0.0 align 4 : bf16x2[16]
    store %a, %y[8*e0 + 2*mod(tid, 4) + lane] align 4
  }}
}}
)",
                              from));
  };
  const std::string decided = halves("64");
  EXPECT_EQ(count(decided, "ld.global"), 8u) << decided;
  EXPECT_EQ(count(decided, "setp"), 0u) << decided;
  const std::string once = halves("66");  // of four threads, the first has no such element
  EXPECT_EQ(count(once, "ld.global"), 8u) << once;
  EXPECT_EQ(count(once, "setp"), 1u) << once;
  const std::string apart = halves("67");  // divides a vector
  EXPECT_GT(count(apart, "ld.global"), 8u) << apart;
}

// No thread has the first vector, nor the whole of the second one, but one has a part of it.
TEST(GpuAccesses, APartOfAVectorBehindOneThatNoThreadHas) {
  const std::string ptx = ptx_of(R"(braze 1 kernel
kernel @tail(%x: in global i64[4] align 64, %y: out global i64[512] align 64) target "sm_90a" {
  phase grid() block 32 {
    %a = load %x[256*e0 + 8*tid + lane - 256] mask (0 <= 256*e0 + 8*tid - 256 and 256*e0 + 8*tid + lane - 256 < 4) fill 0 align 64 : i64x8[2]
    store %a, %y[256*e0 + 8*tid + lane] align 64
  }
}
)");
  EXPECT_EQ(count(ptx, "ld.global"), 4u) << ptx;
}

TEST(GpuAccesses, WideIndicesWhereNothingIsProven) {
  std::string text(kScaled);
  text.replace(text.find("1048576"), 7, "109951162777600");
  EXPECT_NE(ptx_of(text).find(".s64"), std::string::npos);
}

TEST(GpuAccesses, SymbolsThatAreNoMultipleCutVectors) {
  std::string text(kScaled);
  text.replace(text.find(" % 4"), 4, "");
  for (const char* align : {"align 16 : f32x4", "align 8\n"})
    text.replace(text.find(align), 8, align[6] == '1' ? "align 4" : "align 2 ");
  const std::string ptx = ptx_of(text);
  EXPECT_EQ(count(ptx, "ld.global.nc.b32"), 8u) << ptx;
  EXPECT_EQ(count(ptx, "st.global.b16"), 8u);
}

// What a kernel before this one may still write is not read past the coherent caches.
TEST(GpuAccesses, AfterAWaitForOthersLoadsAreCoherent) {
  std::string text(kScaled);
  text.insert(text.find("    %v = load"), "    griddep.wait\n");
  const std::string ptx = ptx_of(text);
  EXPECT_EQ(count(ptx, "ld.global.nc"), 0u);
  EXPECT_EQ(count(ptx, "ld.global.v4.b32"), 2u);
}

TEST(GpuAccesses, LinesOfTheSource) {
  const std::string ptx = ptx_of(kScaled);
  EXPECT_NE(ptx.find(".file\t1 \"./test.braze\""), std::string::npos);
  for (const char* line : {".loc\t1 6 ", ".loc\t1 11 "})
    EXPECT_NE(ptx.find(line), std::string::npos) << line;
}

// --- Instructions --------------------------------------------------------------------------------

// The kernels of a text file, which "// ----" lines divide.
std::vector<Kernel> kernels_of(const std::string& file) {
  std::ifstream stream(std::string(BRAZE_SOURCE_DIR) + "/tests/kernel/" + file);
  std::vector<Kernel> out;
  std::string text;
  const auto flush = [&] {
    if (text.find("kernel @") != std::string::npos) out.push_back(parsed(text, file));
    text.clear();
  };
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with("// ----"))
      flush();
    else
      text += line + "\n";
  flush();
  return out;
}

TEST(GpuInstructions, EveryRowAssembles) {
  const std::vector<Kernel> kernels = kernels_of("gpu_instructions.braze");
  ASSERT_FALSE(kernels.empty());
  for (const Kernel& kernel : kernels) {
    if (!ptx_assembler()) GTEST_SKIP() << kNoAssembler;
    expect_clean(kernel, kernel.target);
  }
}

// Two roles, tensor copies, wgmma with 128 accumulators and an epilogue: no register may spill, and
// nothing may make the assembler serialise the matrix instructions.
TEST(GpuInstructions, WarpSpecialisedMatrixProduct) {
  const std::vector<Kernel> kernels = kernels_of("gpu_linear_gelu.braze");
  ASSERT_EQ(kernels.size(), 1u);
  const std::string ptx = assembly_text(kernels[0], target("sm_90a"));
  EXPECT_EQ(count(ptx, "{ .reg .pred s; setp.ne.b32 s,"), 4u);
  // The left factor lies along the contracted axis, the right one across it.
  EXPECT_NE(ptx.find("s, 1, 1, 0, 1; }"), std::string::npos);
  EXPECT_EQ(count(ptx, "setmaxnreg.dec.sync.aligned.u32"), 1u);
  EXPECT_EQ(count(ptx, "setmaxnreg.inc.sync.aligned.u32"), 1u);
  EXPECT_EQ(ptx.find(".local"), std::string::npos);
  if (!ptx_assembler()) GTEST_SKIP() << kNoAssembler;
  expect_clean(kernels[0], "sm_90a");
  EXPECT_EQ(generate_gpu(kernels[0], target("sm_90a")).facts[0].registers, 168);
}

// --- Assembling ----------------------------------------------------------------------------------

TEST(PtxLog, FactsOfEachEntry) {
  const auto facts = read_ptx_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to ... in the function 'a_p1'\n"
      "ptxas info    : Compiling entry function 'a_p1' for 'sm_90a'\n"
      "ptxas info    : Function properties for a_p1\n"
      "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size\n"
      "ptxas info    : Compiling entry function 'a_p0' for 'sm_90a'\n"
      "ptxas info    : Function properties for a_p0\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 12 registers, used 0 barriers\n",
      {"a_p0", "a_p1"});
  ASSERT_EQ(facts.size(), 2u);
  EXPECT_EQ(facts[0].registers, 12);
  EXPECT_EQ(facts[0].spill_bytes, 0);
  EXPECT_TRUE(facts[0].warnings.empty());
  EXPECT_EQ(facts[1].registers, 255);
  EXPECT_EQ(facts[1].spill_bytes, 20);
  EXPECT_EQ(facts[1].local_bytes, 16);
  EXPECT_EQ(facts[1].warnings.size(), 1u);
}

TEST(PtxAssembling, RefusedTextIsAnErrorWithTheReason) {
  if (!ptx_assembler()) GTEST_SKIP() << kNoAssembler;
  try {
    ptx_assembler()->assemble(".version 8.0\n.target sm_90a\nnonsense\n", "sm_90a", {"k"});
    FAIL() << "assembled";
  } catch (const Error& error) {
    EXPECT_EQ(&error.code(), &codes::kPtxRefused);
    EXPECT_NE(std::string(error.what()).find("nonsense"), std::string::npos) << error.what();
  }
}

// The one kernel that the runtime brings itself.
TEST(PtxAssembling, StridedCopiesAssembleForEveryGpu) {
  if (!ptx_assembler()) GTEST_SKIP() << kNoAssembler;
  std::vector<std::string> entries;
  for (const int unit : StridedCopies::kUnits) entries.push_back(StridedCopies::entry(unit));
  for (const char* gpu : {"sm_80", "sm_90a"}) {
    const Assembled made = ptx_assembler()->assemble(StridedCopies::ptx(), gpu, entries);
    for (const CodeFacts& facts : made.facts) {
      EXPECT_EQ(facts.spill_bytes, 0) << gpu;
      EXPECT_EQ(facts.local_bytes, 0) << gpu << ": the parameters were copied";
      EXPECT_TRUE(facts.warnings.empty()) << gpu;
    }
  }
}

// --- NVRTC ---------------------------------------------------------------------------------------

TEST_P(GpuCode, EveryRowCompilesByNvrtc) {
  if (nvrtc_name().empty()) GTEST_SKIP() << kNoNvrtc;
  if (!ptx_assembler()) GTEST_SKIP() << kNoAssembler;
  for (int32_t lanes : {1, 4}) {
    const Kernel kernel = all_rows(lanes, true);
    expect_clean(generate_nvrtc(kernel, target(GetParam())), kernel);
  }
}

TEST(Nvrtc, InstructionsAndMatrixProduct) {
  if (nvrtc_name().empty()) GTEST_SKIP() << kNoNvrtc;
  if (!ptx_assembler()) GTEST_SKIP() << kNoAssembler;
  for (const char* file : {"gpu_instructions.braze", "gpu_linear_gelu.braze"})
    for (const Kernel& kernel : kernels_of(file))
      expect_clean(generate_nvrtc(kernel, target(kernel.target)), kernel);
}

TEST(Nvrtc, TextSaysWhatTheKernelSays) {
  const std::string text = cuda_text(parsed(kScaled));
  EXPECT_NE(text.find("extern \"C\" __global__ void __launch_bounds__(128) scaled_p0("),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("__ldg((const uint4*)"), std::string::npos);
  EXPECT_NE(text.find("__fmaf_rn("), std::string::npos);
  EXPECT_NE(text.find("#line 6 \"test.braze\""), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Targets, GpuCode, testing::Values("sm_80", "sm_90a"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace braze::test
