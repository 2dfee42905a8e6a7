// Kernels for GPUs written by hand, run on the simulator: what the instructions compute.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/code/text.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/support/text.h"
#include "ir/values/half.h"

namespace braze {
namespace {

Kernel sound(std::string_view text) {
  Kernel kernel = parse_kernel(text, "kernel");
  fail_if_any(verify(kernel), "verify");
  return kernel;
}

// A case of a text test.
std::string file(const std::string& name, size_t number = 0) {
  std::ifstream stream(BRAZE_TESTS "/kernel/" + name);
  std::stringstream text;
  text << stream.rdbuf();
  std::string rest = text.str();
  for (; number > 0; --number) rest = rest.substr(rest.find("// ----") + 7);
  return rest.substr(0, rest.find("// ----"));
}

template <class T>
std::span<std::byte> bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

std::vector<uint16_t> random_bf16(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> real(-1, 1);
  std::vector<uint16_t> out(count);
  for (uint16_t& x : out) x = float_to_bf16(real(engine));
  return out;
}

// The findings, as text.
std::string run(Simulator& simulator, const std::vector<std::span<std::byte>>& memories,
                const std::vector<size_t>& sizes) {
  std::string out;
  for (const Diagnostic& d :
       simulator.run(memories, std::vector<int64_t>(sizes.begin(), sizes.end())))
    out += d.to_string() + "\n";
  return out;
}

// The persistent, specialised kernel of the language page, with ragged sizes.
TEST(SimulatedKernels, LinearGelu) {
  const Kernel kernel = sound(file("gpu_linear_gelu.braze"));
  Simulator simulator(kernel);
  const size_t m = 200, n = 264, k = 136;
  std::vector<uint16_t> x = random_bf16(m * k, 1), w = random_bf16(k * n, 2), y(m * n);
  std::vector<float> b(n, 0.25F);
  EXPECT_EQ(run(simulator, {bytes(x), bytes(w), bytes(b), bytes(y)}, {m, n, k}), "");
  for (size_t i = 0; i < m; i += 7)
    for (size_t j = 0; j < n; ++j) {
      double sum = b[j];
      for (size_t l = 0; l < k; ++l)
        sum += double{bf16_to_float(x[i * k + l])} * bf16_to_float(w[l * n + j]);
      const double gelu = sum / (1 + std::exp(-sum * (1.5957691 + 0.0713548 * sum * sum)));
      ASSERT_NEAR(bf16_to_float(y[i * n + j]), gelu, 0.01 + std::abs(gelu) / 128)
          << "at " << i << ", " << j;
    }
}

TEST(KernelRules, TensorMaps) {
  const Kernel kernel = parse_kernel(R"(braze 1 kernel
kernel @g7(%x: in global bf16[4096], %m: tensormap(%x: bf16[64, 64] box[64, 64] swizzle 64)) target "sm_90a" {
  phase grid() block 32 {
    bar.warp
  }
})",
                                     "kernel");
  const auto findings = verify(kernel);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_NE(
      findings[0].message.find("G7: the tensor map %m: the innermost box extent has 128 bytes"),
      std::string::npos);
}

// One kernel for several sets of memories, on both kinds of machine.
TEST(SimulatedKernels, MembersAreIndependent) {
  constexpr std::string_view kGpu = R"(braze 1 kernel
kernel @twice(%x: in global f32[64], %y: out global f32[64]) target "sm_90a" members 3 {
  phase grid(i: 2) block 32 {
    %a = load %x[32*i + tid] : f32
    %b = add %a, %a : f32
    store %b, %y[32*i + tid]
  }
})";
  constexpr std::string_view kCpu = R"(braze 1 kernel
kernel @twice(%x: in global f32[64], %y: out global f32[64]) target "x86-64-v3" members 3 {
  phase grid(i: 8) {
    %a = load %x[8*i + lane] : f32x8
    %b = add %a, %a : f32x8
    store %b, %y[8*i + lane]
  }
})";
  for (const std::string_view text : {kGpu, kCpu}) {
    const Kernel kernel = parse_kernel(text, "kernel");
    ASSERT_TRUE(verify(kernel).empty());
    EXPECT_EQ(kernel.members, 3);
    EXPECT_EQ(parse_kernel(to_text(kernel), "kernel").members, 3);
    const auto findings = [&](const std::vector<std::span<std::byte>>& memories) {
      std::string out;
      for (const Diagnostic& d : run_kernel(kernel, memories, {})) out += d.to_string() + "\n";
      return out;
    };
    std::vector<float> x(64), y(64), z(64), other(64, 5);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    std::vector<float> from_other(64);
    EXPECT_EQ(findings({bytes(x), bytes(y), bytes(other), bytes(from_other), bytes(x), bytes(z)}),
              "");
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i], 2 * x[i]);
      ASSERT_EQ(z[i], 2 * x[i]);
      ASSERT_EQ(from_other[i], 10);
    }
    EXPECT_NE(findings({bytes(x), bytes(y), bytes(y), bytes(z), bytes(x), bytes(other)})
                  .find("member 0 writes %y, whose memory member 1 uses too"),
              std::string::npos);
    EXPECT_NE(findings({bytes(x), bytes(y), bytes(other), bytes(z), bytes(x), bytes(z)})
                  .find("member 1 writes %y, whose memory member 2 uses too"),
              std::string::npos);
    EXPECT_NE(findings({bytes(x), bytes(y), bytes(x), bytes(z)}).find("bad-launch"),
              std::string::npos);
  }
}

// Members with sizes of their own: each runs with its own, and the launch passes none.
TEST(SimulatedKernels, MembersHaveTheirSizes) {
  const Kernel kernel = parse_kernel(R"(braze 1 kernel
symbol n: 1..100
kernel @twice(%x: in global f32[n], %y: out global f32[n]) target "sm_90a" members 3 sizes [64], [5], [100] {
  phase grid(i: floordiv(n + 31, 32)) block 32 {
    %a = load %x[32*i + tid] mask (32*i + tid < n) fill 0.0 : f32
    %b = add %a, %a : f32
    store %b, %y[32*i + tid] mask (32*i + tid < n)
  }
})",
                                     "kernel");
  ASSERT_TRUE(verify(kernel).empty());
  EXPECT_EQ(to_text(parse_kernel(to_text(kernel), "kernel")), to_text(kernel));
  EXPECT_EQ(first_instances(kernel, kernel.phases[0]), (std::vector<int64_t>{0, 2, 3, 7}));
  std::vector<std::vector<float>> x, y;
  std::vector<std::span<std::byte>> memories;
  for (const size_t size : {64, 5, 100}) {
    x.emplace_back(size, static_cast<float>(size));
    y.emplace_back(size);
  }
  for (size_t m = 0; m < x.size(); ++m) {
    memories.push_back(bytes(x[m]));
    memories.push_back(bytes(y[m]));
  }
  EXPECT_TRUE(run_kernel(kernel, memories, {}).empty());
  for (size_t m = 0; m < x.size(); ++m)
    for (const float value : y[m]) ASSERT_EQ(value, 2 * x[m][0]);
  memories[3] = bytes(y[2]);
  memories[5] = bytes(y[1]);
  EXPECT_FALSE(run_kernel(kernel, memories, {}).empty()) << "memory of other sizes";
}

TEST(KernelRules, SizesOfMembers) {
  const auto first = [](std::string_view target, std::string_view attributes) {
    const Kernel kernel =
        parse_kernel(fmt::format(R"(braze 1 kernel
symbol n: 32..1099511627776 % 32
kernel @k16(%y: out global f32[n]) target "{}" {} {{
  phase grid(i: floordiv(n, 32)){} {{
    store 0.0, %y[{}]
  }}
}})",
                                 target, attributes, target == "sm_90a" ? " block 32" : "",
                                 target == "sm_90a" ? "32*i + tid" : "32*i"),
                     "kernel");
    const auto findings = verify(kernel);
    return findings.empty() ? "" : findings[0].message;
  };
  EXPECT_EQ(first("sm_90a", "members 2 sizes [32], [64]"), "");
  EXPECT_EQ(first("sm_90a", "members 3 sizes [32], [64]"),
            "K16: there are sizes for 2 members, but the kernel has 3");
  EXPECT_EQ(first("sm_90a", "members 2 sizes [32], [64, 1]"),
            "K16: member 1 has 2 sizes, but the kernel has 1 symbols");
  EXPECT_EQ(first("sm_90a", "members 2 sizes [32], [63]"),
            "K16: member 1 has the size 63, which n cannot be");
  EXPECT_EQ(first("sm_90a", "members 2 sizes [549755813888], [549755813888]"),
            "K16: the members together have more than 2^31 - 1 blocks");
  EXPECT_EQ(first("x86-64-v3", "members 2 sizes [32], [64]"),
            "K16: members of a kernel for a CPU cannot have sizes of their own");
}

TEST(KernelRules, Members) {
  const auto first = [](std::string_view parameters, std::string_view attributes) {
    const Kernel kernel = parse_kernel(fmt::format(R"(braze 1 kernel
kernel @k16(%y: out global f32[32]{}) target "sm_90a" {} {{
  phase grid() block 32 {{
    store 0.0, %y[tid]
  }}
}})",
                                                   parameters, attributes),
                                       "kernel");
    const auto findings = verify(kernel);
    return findings.empty() ? "" : findings[0].message;
  };
  EXPECT_EQ(first("", "members 128"), "");
  EXPECT_EQ(first("", "members 129"), "K16: the number of members, 129, is not from 1 to 128");
  EXPECT_EQ(first("", "members 0"), "K16: the number of members, 0, is not from 1 to 128");
  EXPECT_EQ(first("", "members 2 resident"),
            "K16: instances of a kernel with several members cannot wait for each other");
  const std::string_view map =
      ", %x: in global f32[4096], %m: tensormap(%x: f32[64, 64] box[8, 8])";
  EXPECT_EQ(first(map, "members 28"), "");
  EXPECT_EQ(first(map, "members 29"),
            "K16: the parameters of all members have 4224 bytes, more than 4096");
}

TEST(SimulatedKernels, GemmThroughCpAsync) {
  Simulator simulator(sound(file("gpu_gemm_cp_async.braze")));
  const size_t m = 100, n = 64, k = 80;
  std::vector<uint16_t> x = random_bf16(m * k, 3), w = random_bf16(k * n, 4);
  std::vector<float> y(m * n);
  EXPECT_EQ(run(simulator, {bytes(x), bytes(w), bytes(y)}, {m, n, k}), "");
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l)
        sum += double{bf16_to_float(x[i * k + l])} * bf16_to_float(w[l * n + j]);
      ASSERT_NEAR(y[i * n + j], sum, 1e-4) << "at " << i << ", " << j;
    }
}

TEST(SimulatedKernels, ClusterSum) {
  Simulator simulator(sound(file("gpu_clusters.braze")));
  const size_t m = 3;
  std::vector<float> x(512 * m), y(512 * m);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7 + 1);
  EXPECT_EQ(run(simulator, {bytes(x), bytes(y)}, {m}), "");
  for (size_t i = 0; i < m; ++i) {
    double sum = 0;
    for (size_t j = 0; j < 512; ++j) sum += x[512 * i + j];
    for (size_t j = 0; j < 512; ++j) ASSERT_NEAR(y[512 * i + j], x[512 * i + j] / sum, 1e-6);
  }
}

TEST(SimulatedKernels, Multicast) {
  Simulator simulator(sound(file("gpu_clusters.braze", 1)));
  const size_t m = 128;
  std::vector<uint16_t> x = random_bf16(64 * m, 5), y(128 * m), z(64 * m);
  EXPECT_EQ(run(simulator, {bytes(x), bytes(y), bytes(z)}, {m}), "");
  EXPECT_EQ(z, x);
  EXPECT_EQ(std::vector<uint16_t>(y.begin(), y.begin() + 64 * m), x);
  EXPECT_EQ(std::vector<uint16_t>(y.begin() + 64 * m, y.end()), x);
}

TEST(SimulatedKernels, WgmmaOfRegisters) {
  Simulator simulator(sound(file("gpu_wgmma.braze")));
  std::vector<uint16_t> a(64 * 32), b(64 * 32);
  std::vector<float> y(64 * 64);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = float_to_f16(static_cast<float>(i % 11) - 5);
    b[i] = float_to_f16(static_cast<float>(i % 13) - 6);
  }
  EXPECT_EQ(run(simulator, {bytes(a), bytes(b), bytes(y)}, {}), "");
  for (size_t i = 0; i < 64; ++i)
    for (size_t j = 0; j < 64; ++j) {
      float sum = 0;
      for (size_t k = 0; k < 32; ++k)
        sum += f16_to_float(a[i * 32 + k]) * f16_to_float(b[j * 32 + k]);
      ASSERT_EQ(y[i * 64 + j], sum) << "at " << i << ", " << j;
    }
}

TEST(SimulatedKernels, WgmmaOfTf32) {
  Simulator simulator(sound(file("gpu_wgmma.braze", 1)));
  std::vector<float> a(64 * 8), b(16 * 8), y(64 * 16);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 11) - 5;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13) - 6;
  EXPECT_EQ(run(simulator, {bytes(a), bytes(b), bytes(y)}, {}), "");
  for (size_t i = 0; i < 64; ++i)
    for (size_t j = 0; j < 16; ++j) {
      float sum = 0;
      for (size_t k = 0; k < 8; ++k) sum += a[i * 8 + k] * b[j * 8 + k];
      ASSERT_EQ(y[i * 16 + j], sum) << "at " << i << ", " << j;
    }
}

}  // namespace
}  // namespace braze
