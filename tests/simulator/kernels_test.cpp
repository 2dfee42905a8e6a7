// Kernels for GPUs written by hand, run on the simulator: what the instructions compute.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/code/text.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/values/half.h"

namespace braze {
namespace {

Kernel sound(std::string_view text) {
  Kernel kernel = parse_kernel(text, "kernel");
  fail_if_any(verify(kernel), "verify");
  return kernel;
}

std::string file(const std::string& name) {
  std::ifstream stream(BRAZE_TESTS "/kernel/" + name);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
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

std::string text_of(const std::vector<Diagnostic>& findings) {
  std::string out;
  for (const Diagnostic& d : findings) out += d.to_string() + "\n";
  return out;
}

// The persistent, specialised kernel of the language page, with ragged sizes.
TEST(SimulatedKernels, LinearGelu) {
  const Kernel kernel = sound(file("gpu_linear_gelu.braze"));
  Simulator simulator(kernel);
  const size_t m = 200, n = 264, k = 136;
  std::vector<uint16_t> x = random_bf16(m * k, 1), w = random_bf16(k * n, 2), y(m * n);
  std::vector<float> b(n, 0.25F);
  const std::vector<std::span<std::byte>> memories = {bytes(x), bytes(w), bytes(b), bytes(y)};
  const std::vector<int64_t> sizes = {m, n, k};
  EXPECT_EQ(text_of(simulator.run(memories, sizes)), "");
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

}  // namespace
}  // namespace braze
