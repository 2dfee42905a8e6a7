// Random graphs of many small kernels that are equal, or equal up to their sizes: those that do not
// depend on each other are one launch, and no value changes. The simulator finds members that share
// memory.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

constexpr uint64_t kGraphs = 96;
constexpr uint64_t kGraphsATest = 8;

// Matrices, square weights and vectors, in layers of equal ops over random values.
class Siblings {
 public:
  explicit Siblings(uint64_t seed) : engine_(seed), half_(seed % 3 == 0) {}

  std::string text() {
    for (int i = 0; i < 3; ++i) matrices_.push_back(input(matrix()));
    for (int i = 0; i < 3; ++i) weights_.push_back(input(square()));
    vectors_.push_back(input(vector()));
    for (int layer = 0; layer < 5; ++layer) {
      const size_t kind = below(6), count = 1 + below(5);
      // What all ops of a layer make becomes known at its end or at once, so that some depend on
      // each other.
      for (size_t i = 0; i < count; ++i) add(kind);
    }
    update();
    std::string returned;
    for (const auto& [value, used] : used_)
      if (!used || below(4) == 0) returned += fmt::format(", {}", value);
    for (const std::string& update : updates_) returned += ", " + update;
    return fmt::format("graph @siblings({}) {{\n{}  return {}\n}}\n", inputs_, body_,
                       returned.substr(2));
  }

 private:
  static constexpr int kRows = 64, kColumns = 64;
  std::string dtype() const { return half_ ? "bf16" : "f32"; }
  std::string matrix() const { return fmt::format("{}[{}, {}]", dtype(), kRows, kColumns); }
  std::string square() const { return fmt::format("{}[{}, {}]", dtype(), kColumns, kColumns); }
  std::string vector() const { return fmt::format("{}[{}]", dtype(), kColumns); }

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }
  const std::string& any(const std::vector<std::string>& list) {
    const std::string& value = list[below(list.size())];
    if (const auto found = used_.find(value); found != used_.end()) found->second = true;
    return value;
  }
  std::string input(const std::string& type) {
    const std::string name = fmt::format("%in{}", next_++);
    inputs_ += fmt::format("{}{}: {}", inputs_.empty() ? "" : ", ", name, type);
    return name;
  }
  std::string op(const std::string& what, const std::string& type, bool result = true) {
    const std::string name = fmt::format("%v{}", next_++);
    body_ += fmt::format("  {} = {} : {}\n", name, what, type);
    if (result) used_[name] = false;
    return name;
  }

  void add(size_t kind) {
    if (kind == 0) {  // a product
      matrices_.push_back(
          op(fmt::format("dot {}, {} {{contract: [1] x [0]}}", any(matrices_), any(weights_)),
             matrix()));
    } else if (kind == 1) {  // with a bias
      const std::string y =
          op(fmt::format("dot {}, {} {{contract: [1] x [0]}}", any(matrices_), any(weights_)),
             matrix(), false);
      const std::string b =
          op(fmt::format("broadcast {} {{axes: [1]}}", any(vectors_)), matrix(), false);
      matrices_.push_back(op(fmt::format("add {}, {}", y, b), matrix()));
    } else if (kind == 2) {  // a row's distance from its maximum
      const std::string& x = any(matrices_);
      const std::string m = op(fmt::format("reduce max {} {{axes: [1]}}", x),
                               fmt::format("{}[{}]", dtype(), kRows), false);
      const std::string b = op(fmt::format("broadcast {} {{axes: [0]}}", m), matrix(), false);
      matrices_.push_back(op(fmt::format("sub {}, {}", x, b), matrix()));
    } else if (kind == 3) {  // sums of columns
      vectors_.push_back(op(fmt::format("reduce max {} {{axes: [0]}}", any(matrices_)), vector()));
    } else if (kind == 4) {  // gradients of weights
      weights_.push_back(
          op(fmt::format("dot {}, {} {{contract: [0] x [0]}}", any(matrices_), any(matrices_)),
             square()));
    } else {  // sums along rows
      matrices_.push_back(op(fmt::format("scan max {} {{axis: 1}}", any(matrices_)), matrix()));
    }
  }

  // Weights go over each other: some are still read then.
  void update() {
    std::vector<std::string> olds;
    for (const std::string& weight : weights_)
      if (weight.starts_with("%in")) olds.push_back(weight);
    for (const std::string& old : olds) {
      if (below(3) == 0) continue;
      const std::string g = any(weights_);
      const std::string next = op(fmt::format("sub {}, {}", old, g), square(), false);
      updates_.push_back(fmt::format("{} updates {}", next, old));
    }
  }

  std::mt19937_64 engine_;
  const bool half_;
  int next_ = 0;
  std::string inputs_, body_;
  std::vector<std::string> matrices_, weights_, vectors_, updates_;
  std::map<std::string, bool> used_;  // results
};

// Kernels that differ in their sizes: many updates, conversions, maxima of rows and products of one
// input with unlike weights.
class UnlikeSiblings {
 public:
  explicit UnlikeSiblings(uint64_t seed) : engine_(seed) {}

  std::string text() {
    const size_t kinds = 1 + below(3);
    for (size_t i = 0; i < kinds; ++i) {
      const size_t kind = below(5), count = 2 + below(12);
      const int64_t fixed = extent(40);
      const std::string shared = kind == 4 ? input(fmt::format("f32[24, {}]", fixed)) : "";
      for (size_t n = 0; n < count; ++n) add(kind, fixed, shared);
    }
    return fmt::format("graph @siblings({}) {{\n{}  return {}\n}}\n", inputs_.substr(2), body_,
                       results_.substr(2));
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }
  int64_t extent(size_t most) {
    const size_t corner = below(12);
    if (corner < 2) return static_cast<int64_t>(corner);
    return static_cast<int64_t>(corner < 4 ? 8 * below(9) : 1 + below(most));
  }
  std::string shape() {
    std::string out = std::to_string(extent(300));
    for (size_t rank = below(3); rank > 0; --rank) out += fmt::format(", {}", extent(9));
    return "[" + out + "]";
  }
  std::string input(const std::string& type) {
    const std::string name = fmt::format("%in{}", next_++);
    inputs_ += fmt::format(", {}: {}", name, type);
    return name;
  }
  std::string op(const std::string& what, const std::string& type) {
    const std::string name = fmt::format("%v{}", next_++);
    body_ += fmt::format("  {} = {} : {}\n", name, what, type);
    return name;
  }

  void add(size_t kind, int64_t fixed, const std::string& shared) {
    if (kind == 0) {  // an update, in place or not
      const std::string type = "f32" + shape();
      const std::string old = input(type), g = input(type);
      const std::string square = op(fmt::format("mul {}, {}", g, g), type);
      results_ += ", " + op(fmt::format("sub {}, {}", old, square), type);
      if (below(2) == 0) results_ += " updates " + old;
    } else if (kind == 1) {  // a conversion
      const std::string dims = shape();
      results_ += ", " + op(fmt::format("convert {}", input("f32" + dims)), "bf16" + dims);
    } else if (kind == 2) {  // a row's distance from its maximum
      const int64_t rows = extent(50);
      const std::string type = fmt::format("f32[{}, {}]", rows, fixed + 1);
      const std::string x = input(type);
      const std::string m =
          op(fmt::format("reduce max {} {{axes: [1]}}", x), fmt::format("f32[{}]", rows));
      const std::string b = op(fmt::format("broadcast {} {{axes: [0]}}", m), type);
      results_ += ", " + op(fmt::format("sub {}, {}", x, b), type);
    } else if (kind == 3) {  // a transposition
      const int64_t rows = extent(70), columns = extent(70);
      results_ += ", " + op(fmt::format("transpose {} {{permutation: [1, 0]}}",
                                        input(fmt::format("f32[{}, {}]", rows, columns))),
                            fmt::format("f32[{}, {}]", columns, rows));
    } else {  // a product
      const int64_t columns = extent(70);
      const std::string w = input(fmt::format("f32[{}, {}]", fixed, columns));
      results_ += ", " + op(fmt::format("dot {}, {} {{contract: [1] x [0]}}", shared, w),
                            fmt::format("f32[24, {}]", columns));
    }
  }

  std::mt19937_64 engine_;
  int next_ = 0;
  std::string inputs_, body_, results_;
};

// Whether the graph has the same values on all machines. Returns the number of members, and of
// those that are unlike.
std::pair<size_t, size_t> expect_agreement(const Graph& graph, uint64_t seed) {
  size_t joined = 0, unlike = 0;
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
  for (const std::string machine : {"sim:sm_80", "sim:sm_90", "cpu"}) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " on " + machine);
    try {
      const Device device(machine);
      const auto program = testing::compile_for(device, graph);
      for (const Launch& launch : program->launches) {
        joined += launch.members.size();
        if (launch.unlike) unlike += launch.members.size();
      }
      const CheckResult result =
          testing::check(graph, inputs, testing::run(program, device, inputs));
      EXPECT_TRUE(result.ok) << result.summary() << to_text(graph);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << to_text(graph);
    }
  }
  return {joined, unlike};
}

class GpuSiblings : public ::testing::TestWithParam<uint64_t> {};

TEST_P(GpuSiblings, AreOneLaunchWithTheSameValues) {
  size_t joined = 0;
  for (uint64_t seed = GetParam(); seed < GetParam() + kGraphsATest; ++seed) {
    joined += expect_agreement(testing::parse(Siblings(seed).text()), seed).first;
  }
  EXPECT_GT(joined, 20U);
}

TEST_P(GpuSiblings, OfUnlikeSizesAreOneLaunchWithTheSameValues) {
  size_t unlike = 0;
  for (uint64_t seed = GetParam(); seed < GetParam() + kGraphsATest; ++seed)
    unlike += expect_agreement(testing::parse(UnlikeSiblings(seed).text()), seed).second;
  EXPECT_GT(unlike, 20U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuSiblings, ::testing::Range<uint64_t>(0, kGraphs, kGraphsATest));

}  // namespace
}  // namespace braze
