// Walks that an integer bounds which the kernel loads: positions of tokens, lengths of rows.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "braze/jit.h"
#include "braze/nn.h"
#include "braze/tensor.h"
#include "ir/code/text.h"
#include "ir/kernel/simulate.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

/// Attention of n tokens from a position on, which is a value on the device.
struct Step {
  int64_t tokens = 1, capacity = 0, heads = 4, groups = 2, width = 64;
  DType dtype = DType::F32;

  Graph graph() const {
    const auto step = jit([](Tensor queries, Tensor keys, Tensor values, Tensor at) {
      return nn::attention(queries, keys, values, {.causal = true, .position = at});
    });
    const Spec rows = spec(dtype, {capacity, groups, width});
    return parse_graph(step.graph(spec(dtype, {tokens, heads, width}), rows, rows, spec(i32, {1})),
                       "test");
  }
  std::vector<HostTensor> inputs(const Graph& graph, int64_t position) const {
    std::vector<HostTensor> out = fuzz::random_inputs(graph, 5);
    for (size_t i = 0; i < 3; ++i)
      for (int64_t k = 0; k < out[i].numel(); ++k)
        out[i].set_double(k, std::sin(static_cast<double>(k * (i + 1))));
    out[3].set_int(0, position);
    return out;
  }
};

bool is_limited(const Program& program) {
  return std::ranges::any_of(program.launches, [](const Launch& launch) {
    return launch.schedule.find("limit ") != std::string::npos;
  });
}

// Whether tiles that a mask of loaded integers leaves out are known before the walk.
bool leaves_out_tiles(const Program& program) {
  return is_limited(program) || std::ranges::any_of(program.launches, [](const Launch& launch) {
           return launch.schedule.find("pick ") != std::string::npos;
         });
}

std::vector<Device> devices() {
  return {Device("cpu"), Device("sim:cpu"), Device("sim:sm_80"), Device("sim:sm_90")};
}

// Positions before the first row and behind the last one are what the interpreter takes them for.
TEST(Limits, AnyPositionAgreesWithTheInterpreter) {
  for (const Step& step : {Step{.capacity = 1024}, Step{.capacity = 300, .heads = 2},
                           Step{.tokens = 3, .capacity = 700}, Step{.capacity = 1, .width = 32},
                           Step{.capacity = 2048, .width = 128, .dtype = DType::BF16},
                           Step{.tokens = 130, .capacity = 400, .dtype = DType::BF16},
                           Step{.tokens = 40, .capacity = 400}}) {
    const Graph graph = step.graph();
    const int64_t last = step.capacity - 1;
    for (const Device& device : devices()) {
      const auto program = testing::compile_for(device, graph);
      for (const int64_t position :
           {int64_t{0}, int64_t{10}, last / 2, last - step.tokens, last, last + 5, int64_t{-1},
            int64_t{INT32_MIN}, int64_t{INT32_MAX}}) {
        const auto inputs = step.inputs(graph, position);
        const CheckResult result =
            testing::check(graph, inputs, testing::run(program, device, inputs));
        EXPECT_TRUE(result.ok) << device.name() << " " << step.capacity << " rows, " << step.tokens
                               << " tokens at " << position << ": " << result.summary();
      }
    }
  }
}

// Keys and values of rows behind the position are not loaded, so it does not matter what they are.
TEST(Limits, RowsBehindThePositionAreNotTouched) {
  const Step step{.capacity = 4096};
  const Graph graph = step.graph();
  constexpr int64_t kPosition = 10, kTurn = 512;  // no turn of a walk is longer
  std::vector<HostTensor> inputs = step.inputs(graph, kPosition);
  for (size_t i = 1; i < 3; ++i)
    for (int64_t k = kTurn * step.groups * step.width; k < inputs[i].numel(); ++k)
      inputs[i].set_double(k, std::numeric_limits<double>::quiet_NaN());
  for (const Device& device : devices()) {
    const auto program = testing::compile_for(device, graph);
    EXPECT_TRUE(is_limited(*program)) << device.name();
    const HostTensor y = testing::run(program, device, inputs)[0];
    for (int64_t k = 0; k < y.numel(); ++k)
      ASSERT_TRUE(std::isfinite(y.get_double(k))) << device.name() << " " << k;
  }
}

// The statements that all threads of the simulated GPU run.
uint64_t statements(const Step& step, int64_t position) {
  const Graph graph = step.graph();
  const Device device("sim:sm_90");
  const auto program = testing::compile_for(device, graph);
  EXPECT_EQ(program->launches.size(), 1u) << program->report;
  const KernelCode kernel = parse_kernel(program->artifacts[0].code, "test");
  Simulator simulator(kernel);
  std::vector<HostTensor> memories = step.inputs(graph, position);
  for (const Memory& memory : kernel.memories)
    if (memory.space == MemorySpace::Parameter && memory.mode == Mode::Out) {
      std::vector<int64_t> shape;
      for (const Expr& extent : memory.shape) shape.push_back(*extent.as_constant());
      memories.emplace_back(memory.dtype, shape);
    }
  std::vector<std::span<std::byte>> spans;
  for (HostTensor& memory : memories)
    spans.push_back(
        std::span(memory.data(), static_cast<size_t>(memory.numel()) * size_of(memory.dtype())));
  EXPECT_TRUE(simulator.run(spans, {}).empty());
  return simulator.thread_statements();
}

TEST(Limits, WorkDependsOnThePositionAndNotOnTheCapacity) {
  // Both are cut into as many chunks as there can be.
  const uint64_t small = statements({.capacity = 16384}, 10);
  const uint64_t large = statements({.capacity = 65536}, 10);
  const uint64_t half = statements({.capacity = 16384}, 8191);
  EXPECT_EQ(large, small);
  EXPECT_GT(half, 2 * large);
}

// --- Comparisons of integers along the walk -----------------------------------------------------

/// Attention whose queries see keys of their own document.
struct Documents {
  int64_t queries = 130, keys = 600, heads = 1, width = 64;
  DType dtype = DType::BF16;
  bool causal = false;
  static constexpr int64_t kBatch = 2;

  Graph graph() const {
    const auto attend = jit([*this](Tensor q, Tensor k, Tensor v, Tensor rows, Tensor columns) {
      const DotAxes along{.batch_left = {0, 1},
                          .batch_right = {0, 1},
                          .contract_left = {3},
                          .contract_right = {3},
                          .result = f32};
      const DotAxes over{
          .batch_left = {0, 1}, .batch_right = {0, 1}, .contract_left = {3}, .contract_right = {2}};
      Tensor seen =
          reshape(rows, {kBatch, 1, queries, 1}) == reshape(columns, {kBatch, 1, 1, keys});
      if (causal)
        seen = seen & (arange(i32, {queries, keys}, 1) <=
                       arange(i32, {queries, keys}, 0) + (keys - queries));
      const Tensor scores = where(seen, dot_general(q, k, along) * 0.125, -INFINITY);
      return dot_general(cast(nn::softmax(scores), v.dtype()), v, over);
    });
    const Spec all = spec(dtype, {kBatch, heads, keys, width});
    return parse_graph(attend.graph(spec(dtype, {kBatch, heads, queries, width}), all, all,
                                    spec(i32, {kBatch, queries}), spec(i32, {kBatch, keys})),
                       "test");
  }
  /// The document of each row and key of the batch.
  using Of = std::function<int64_t(int64_t batch, int64_t row)>;
  std::vector<HostTensor> inputs(const Graph& graph, const Of& rows, const Of& columns) const {
    std::vector<HostTensor> out = fuzz::random_inputs(graph, 5);
    for (size_t i = 0; i < 3; ++i)
      for (int64_t k = 0; k < out[i].numel(); ++k)
        out[i].set_double(k, std::sin(static_cast<double>(k * (i + 1))));
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < queries; ++i) out[3].set_int(b * queries + i, rows(b, i));
      for (int64_t i = 0; i < keys; ++i) out[4].set_int(b * keys + i, columns(b, i));
    }
    return out;
  }
};

// However short the walk is here.
CompileOptions as_one_kernel() {
  CompileOptions options;
  options.by_cost = false;
  return options;
}

TEST(Limits, DocumentsAgreeWithTheInterpreter) {
  for (const Documents& given :
       {Documents{}, Documents{.queries = 300, .keys = 300, .causal = true},
        Documents{.queries = 40, .keys = 400, .dtype = DType::F32, .causal = true}}) {
    const Graph graph = given.graph();
    const int64_t behind = given.keys - given.queries;
    struct Case {
      const char* name;
      Documents::Of rows, columns;
    };
    const auto alike = [&](const char* name, const std::function<int64_t(int64_t, int64_t)>& of) {
      return Case{name, [=](int64_t b, int64_t i) { return of(b, i + behind); }, of};
    };
    const Case cases[] = {
        alike("one document", [](int64_t, int64_t) { return 3; }),
        alike("all different", [](int64_t, int64_t i) { return i; }),
        alike("packed, other lengths in each row of the batch",
              [](int64_t b, int64_t i) { return i < 150 + 100 * b ? 0 : 1 + i / 260; }),
        alike("down", [](int64_t b, int64_t i) { return -(i / (90 + b)); }),
        alike("mixed", [](int64_t, int64_t i) { return i * 7 % 3; }),
        {"rows that see nothing", [](int64_t, int64_t i) { return i / 50; },
         [](int64_t b, int64_t i) { return b == 0 ? 1 + i / 200 : -1; }},
    };
    for (const Device& device : devices()) {
      const auto program = testing::compile_for(device, graph, as_one_kernel());
      EXPECT_TRUE(leaves_out_tiles(*program) || given.dtype == DType::F32) << device.name();
      for (const auto& [name, rows, columns] : cases) {
        const auto inputs = given.inputs(graph, rows, columns);
        const CheckResult result =
            testing::check(graph, inputs, testing::run(program, device, inputs));
        EXPECT_TRUE(result.ok) << device.name() << ", " << given.queries << " queries, "
                               << given.keys << " keys, " << name << ": " << result.summary();
      }
    }
  }
}

// Turns without keys of the row's document are left out, so it does not matter what is there.
TEST(Limits, KeysOfOtherDocumentsAreNotTouched) {
  const Documents given{.queries = 128, .keys = 1024};
  const Graph graph = given.graph();
  constexpr int64_t kFirst = 256, kLast = 512;  // whole turns of all walks
  const auto inside = [&](int64_t i) { return kFirst <= i && i < kLast; };
  std::vector<HostTensor> inputs = given.inputs(
      graph, [](int64_t, int64_t) { return 1; },
      [&](int64_t, int64_t i) { return inside(i) ? 1 : 2; });
  for (size_t n = 1; n < 3; ++n)
    for (int64_t i = 0; i < inputs[n].numel(); ++i)
      if (!inside(i / given.width % given.keys))
        inputs[n].set_double(i, std::numeric_limits<double>::quiet_NaN());
  for (const Device& device : devices()) {
    const auto program = testing::compile_for(device, graph, as_one_kernel());
    const HostTensor y = testing::run(program, device, inputs)[0];
    for (int64_t k = 0; k < y.numel(); ++k)
      ASSERT_TRUE(std::isfinite(y.get_double(k))) << device.name() << " " << k;
  }
}

}  // namespace
}  // namespace braze
