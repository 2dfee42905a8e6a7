// Pipelined tile programs: interpreted, and lowered to kernels that the simulator runs. Neither may
// find anything, and the values are compared with sums in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "compiler/lowering/lower.h"
#include "ir/code/interpret.h"
#include "ir/code/text.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/target/target.h"
#include "ir/tile/verify.h"
#include "ir/values/half.h"
#include "tests/source_path.h"

namespace braze {
namespace {

// The cases of a text test, without what is expected of them.
std::vector<std::string> cases(const std::string& name) {
  std::ifstream file(test::source_path("tests/tile/" + name));
  std::vector<std::string> out(1);
  bool expected = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("// ----")) {
      out.emplace_back();
      expected = false;
    }
    expected = expected || line.starts_with("// run:");
    if (!expected) out.back() += line + "\n";
  }
  return out;
}

std::string joined(const std::vector<Diagnostic>& findings) {
  std::string out;
  for (const Diagnostic& finding : findings) out += finding.to_string() + "\n";
  return out;
}

// Runs the program and its kernel; `check` looks at the outputs, and forgets them, after each.
void run(const std::string& text, std::span<const std::span<std::byte>> memories,
         std::span<const int64_t> sizes, const std::function<void()>& check) {
  const TileProgram program = parse_tile(text, "tile");
  ASSERT_EQ(joined(verify(program)), "");
  {
    SCOPED_TRACE("interpreted");
    ASSERT_EQ(joined(run_code(program, memories, sizes)), "");
    check();
  }
  SCOPED_TRACE("simulated");
  const Kernel kernel = lower(program, find_target(program.target).value());
  ASSERT_EQ(joined(verify(kernel)), "");
  EXPECT_EQ(to_text(parse_kernel(to_text(kernel), "kernel")), to_text(kernel));
  ASSERT_EQ(joined(run_kernel(kernel, memories, sizes)), "");
  check();
}

// Small numbers that every run repeats.
class Numbers {
 public:
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 40) / (1 << 24) - 0.5;
  }
  std::vector<uint16_t> halves(size_t count, double scale = 1) {
    std::vector<uint16_t> out(count);
    for (uint16_t& v : out) v = float_to_bf16(static_cast<float>(next() * scale));
    return out;
  }
  std::vector<float> floats(size_t count) {
    std::vector<float> out(count);
    for (float& v : out) v = static_cast<float>(next());
    return out;
  }

 private:
  uint64_t state_ = 1;
};

template <class T>
std::span<std::byte> bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

void check(std::vector<uint16_t>& got, const std::vector<double>& expected) {
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(bf16_to_float(got[i]), expected[i], 2e-2 * std::max(1.0, std::fabs(expected[i])))
        << "element " << i;
  std::fill(got.begin(), got.end(), 0x7fc0);  // NaN
}

void check_gelu(const std::string& text, int64_t m, int64_t n, int64_t k) {
  Numbers numbers;
  const auto size = [](int64_t count) { return static_cast<size_t>(count); };
  auto x = numbers.halves(size(m * k)), w = numbers.halves(size(k * n));
  auto b = numbers.floats(size(n));
  std::vector<uint16_t> y(size(m * n), 0x7fc0);
  const std::span<std::byte> memories[] = {bytes(x), bytes(w), bytes(b), bytes(y)};
  const int64_t sizes[] = {m, n, k};
  std::vector<double> expected(y.size());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double v = static_cast<double>(b[size(j)]);
      for (int64_t l = 0; l < k; ++l)
        v += static_cast<double>(bf16_to_float(x[size(i * k + l)])) *
             static_cast<double>(bf16_to_float(w[size(l * n + j)]));
      expected[size(i * n + j)] = v / (1 + std::exp(-v * (1.5957691 + 0.0713548 * v * v)));
    }
  }
  run(text, memories, sizes, [&] { check(y, expected); });
}

TEST(Pipelined, DotCooperative) { check_gelu(cases("linear_gelu.braze")[0], 200, 264, 136); }
TEST(Pipelined, DotSmallerThanATile) { check_gelu(cases("linear_gelu.braze")[0], 5, 8, 8); }
TEST(Pipelined, DotPingPong) { check_gelu(cases("linear_gelu.braze")[1], 150, 264, 136); }
TEST(Pipelined, DotMulticast) { check_gelu(cases("linear_gelu.braze")[2], 300, 264, 136); }

TEST(Pipelined, Attention) {
  constexpr size_t kHeads = 2, kRows = 200, kWidth = 128;
  Numbers numbers;
  auto q = numbers.halves(kHeads * kRows * kWidth, 2), k = numbers.halves(q.size(), 2),
       v = numbers.halves(q.size());
  std::vector<uint16_t> o(q.size(), 0x7fc0);
  const std::span<std::byte> memories[] = {bytes(q), bytes(k), bytes(v), bytes(o)};
  const int64_t sizes[] = {kHeads, kRows};
  std::vector<double> expected(o.size());
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t i = 0; i < kRows; ++i) {
      double sum = 0;
      double* const row = &expected[(h * kRows + i) * kWidth];
      for (size_t j = 0; j <= i; ++j) {
        double score = 0;
        for (size_t d = 0; d < kWidth; ++d)
          score += static_cast<double>(bf16_to_float(q[(h * kRows + i) * kWidth + d])) *
                   static_cast<double>(bf16_to_float(k[(h * kRows + j) * kWidth + d]));
        const double p = std::exp2(0.12751743 * score);
        sum += p;
        for (size_t d = 0; d < kWidth; ++d)
          row[d] += p * static_cast<double>(bf16_to_float(v[(h * kRows + j) * kWidth + d]));
      }
      for (size_t d = 0; d < kWidth; ++d) row[d] /= sum;
    }
  }
  run(cases("attention.braze")[0], memories, sizes, [&] { check(o, expected); });
}

}  // namespace
}  // namespace braze
