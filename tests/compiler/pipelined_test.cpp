// Pipelined tile programs: interpreted, and lowered to kernels that the simulator runs. Neither may
// find anything, and the values are compared with sums in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <tuple>

#include "braze/compile.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "compiler/lowering/lower.h"
#include "ir/code/interpret.h"
#include "ir/code/text.h"
#include "ir/graph/check.h"
#include "ir/graph/sizes.h"
#include "ir/graph/text.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/target/target.h"
#include "ir/tile/verify.h"
#include "ir/values/half.h"
#include "tests/compiler/run.h"
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

// The inputs of `graph` for these sizes.
std::vector<HostTensor> random_inputs(const Graph& graph, const Sizes& sizes) {
  Numbers numbers;
  std::vector<HostTensor> out;
  for (const NodeId input : graph.inputs()) {
    const TensorType& type = graph[input].type;
    HostTensor& tensor = out.emplace_back(type.dtype, sizes(type.shape));
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.set_double(i, numbers.next());
  }
  return out;
}

// Runs a program of a text and its kernel, and compares with the graph of the same parameters:
// within the bound that the reference gives.
void expect_graph(const std::string& tile_name, const std::string& graph_name,
                  const std::map<std::string, int64_t>& given, size_t number = 0) {
  const std::string text = cases(tile_name)[number];
  const Graph graph = parse_graph(cases("graphs/" + graph_name)[number], graph_name);
  const TileProgram program = parse_tile(text, tile_name);
  Sizes sizes;
  std::vector<int64_t> scalars;
  for (const auto& [name, value] : given) sizes.set(name, value);
  for (const Expr& symbol : program.symbols) scalars.push_back(sizes(symbol.symbol_name()));
  std::vector<HostTensor> inputs = random_inputs(graph, sizes), outputs;
  for (const GraphOutput& output : graph.outputs()) {
    const TensorType& type = graph[output.node].type;
    outputs.emplace_back(type.dtype, sizes(type.shape));
  }
  std::vector<std::span<std::byte>> memories;
  for (auto* list : {&inputs, &outputs})
    for (HostTensor& tensor : *list) memories.emplace_back(tensor.data(), tensor.size_bytes());
  run(text, memories, scalars, [&] {
    const CheckResult result = testing::check(graph, inputs, outputs);
    EXPECT_TRUE(result.ok) << result.summary();
    for (HostTensor& output : outputs)
      std::memset(output.data(), 0xff, output.size_bytes());  // NaN
  });
}

void check_linear(const std::string& text, int64_t m, int64_t n, int64_t k,
                  const std::function<double(double)>& epilogue) {
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
      expected[size(i * n + j)] = epilogue(v);
    }
  }
  run(text, memories, sizes, [&] { check(y, expected); });
}

void check_gelu(const std::string& text, int64_t m, int64_t n, int64_t k) {
  check_linear(text, m, n, k,
               [](double v) { return v / (1 + std::exp(-v * (1.5957691 + 0.0713548 * v * v))); });
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

TEST(Pipelined, AttentionGraph) {
  expect_graph("attention.braze", "attention.braze", {{"h", 1}, {"s", 150}});
}
// A last block of few keys and of few queries, rows of several blocks.
TEST(Pipelined, AttentionGradients) {
  for (const char* text : {"attention_queries.braze", "attention_keys.braze"})
    for (const auto& [h, s] : {std::pair{9, 20}, {1, 70}, {1, 300}})
      expect_graph(text, text, {{"h", h}, {"s", s}});
}
TEST(Pipelined, GatedProduct) {
  expect_graph("gated_product.braze", "gated_product.braze", {{"m", 200}, {"n", 264}, {"k", 136}});
}
// Rows that are boxes of pixels, zeros around the picture, and pictures that are no whole boxes.
TEST(Pipelined, Convolution) { expect_graph("convolution.braze", "convolution.braze", {{"n", 2}}); }
TEST(Pipelined, ConvolutionOfManyChannels) {
  expect_graph("convolution.braze", "convolution.braze", {{"n", 2}}, 1);
}
TEST(Pipelined, LayerNormBackward) {
  // Two turns for the first cluster, few rows in the second.
  expect_graph("layer_norm_backward_gpu.braze", "layer_norm_backward.braze", {{"m", 521}});
}
TEST(Pipelined, StreamK) {
  // Fewer steps than blocks, all pieces; then shares that span tiles.
  expect_graph("stream_k.braze", "product.braze", {{"m", 200}, {"n", 264}, {"k", 136}});
  expect_graph("stream_k.braze", "product.braze", {{"m", 300}, {"n", 392}, {"k", 768}});
}

TEST(Pipelined, CopiesByThreads) {
  expect_graph("odd_product.braze", "product.braze", {{"m", 100}, {"n", 264}, {"k", 131}});
}

// What only moves and scans elements gives the same bits at both levels.
void expect_same_bits(const std::string& tile_name) {
  const std::string text = cases(tile_name)[0];
  const TileProgram program = parse_tile(text, tile_name);
  Numbers numbers;
  std::vector<std::vector<float>> tensors, interpreted;
  std::vector<std::span<std::byte>> memories;
  for (const Memory& memory : program.memories) {
    if (memory.space != MemorySpace::Parameter) continue;
    tensors.push_back(numbers.floats(static_cast<size_t>(memory_type(memory).count())));
  }
  for (auto& tensor : tensors) memories.push_back(bytes(tensor));
  run(text, memories, {}, [&] {
    if (interpreted.empty()) interpreted = tensors;
    EXPECT_EQ(tensors, interpreted);
    for (size_t i = 1; i < tensors.size(); ++i)
      std::fill(tensors[i].begin(), tensors[i].end(), 7.0f);
  });
}

TEST(Pipelined, ElementsThatChangeThreads) { expect_same_bits("moves.braze"); }

TEST(Pipelined, StoredValuesAreFencedForDots) {
  Numbers numbers;
  std::vector<uint16_t> p = numbers.halves(64 * 64);
  std::vector<float> y(64 * 64);
  const auto at = [&](size_t row, size_t k) { return double(bf16_to_float(p[64 * row + k])); };
  double most = -1;
  for (const uint16_t value : p) most = std::max(most, double(bf16_to_float(value)));
  const std::vector<std::span<std::byte>> memories = {bytes(p), bytes(y)};
  run(cases("stored_for_dots.braze")[0], memories, {}, [&] {
    for (size_t row = 0; row < 64; ++row)
      for (size_t column = 0; column < 64; ++column) {
        double expected = most;
        for (size_t k = 0; k < 64; ++k) expected += at(row, k) * at(column, k);
        ASSERT_NEAR(y[64 * row + column], expected, 1e-4) << row << ", " << column;
      }
    std::fill(y.begin(), y.end(), 7.0f);
  });
}

// One step more of the text by hand: a narrower tile, three stages, another epilogue.
TEST(Pipelined, EditedByHand) {
  std::string text = cases("linear_gelu.braze")[0];
  const auto edit = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  edit("r4:32", "r4:16");
  edit("256", "128");
  edit("depth 4", "depth 3");
  edit("for g: 0..4", "for g: 0..2");
  edit("%h = div %v, %e1", "%h = max %v, 0.0");
  check_linear(text, 200, 264, 136, [](double v) { return std::max(v, 0.0); });
}

// Both ways to a cubin: nothing spills, and the assembler serialises no matrix instruction.
class PipelinedCode : public ::testing::TestWithParam<std::tuple<const char*, GpuCode>> {};

TEST_P(PipelinedCode, Assembles) {
  const auto [name, way] = GetParam();
  if (!ptx_assembler()) GTEST_SKIP() << "no PTX assembler here (docs/guides/gpu.md)";
  if (way == GpuCode::Nvrtc && nvrtc_name().empty())
    GTEST_SKIP() << "no NVRTC here (docs/guides/gpu.md)";
  const TileProgram program = parse_tile(cases(std::string(name) + ".braze")[0], name);
  const Target target = find_target(program.target).value();
  const Kernel kernel = lower(program, target);
  const Artifact artifact =
      way == GpuCode::Ptx ? generate_gpu(kernel, target) : generate_nvrtc(kernel, target);
  ASSERT_EQ(artifact.format, "cubin");
  for (const CodeFacts& facts : artifact.facts) {
    EXPECT_EQ(facts.spill_bytes, 0);
    EXPECT_EQ(facts.local_bytes, 0);
    for (const std::string& warning : facts.warnings) ADD_FAILURE() << warning;
  }
}

std::string text_and_way(const ::testing::TestParamInfo<PipelinedCode::ParamType>& info) {
  return std::string(std::get<0>(info.param)) +
         (std::get<1>(info.param) == GpuCode::Ptx ? "_ptx" : "_nvrtc");
}

INSTANTIATE_TEST_SUITE_P(
    Texts, PipelinedCode,
    ::testing::Combine(::testing::Values("linear_gelu", "attention", "attention_queries",
                                         "gated_product", "convolution", "layer_norm_backward_gpu",
                                         "stream_k", "moves", "odd_product"),
                       ::testing::Values(GpuCode::Ptx, GpuCode::Nvrtc)),
    text_and_way);
// Of this NVRTC spills 136 bytes: its two sums and two blocks of scores take nearly all registers.
INSTANTIATE_TEST_SUITE_P(ManyRegisters, PipelinedCode,
                         ::testing::Combine(::testing::Values("attention_keys"),
                                            ::testing::Values(GpuCode::Ptx)),
                         text_and_way);

}  // namespace
}  // namespace braze
