// Every graph op on cases small enough to work out by hand.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/values/philox.h"

namespace braze {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  HostTensor x(dtype, std::move(shape));
  EXPECT_EQ(x.numel(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) x.set_double(static_cast<int64_t>(i), values[i]);
  return x;
}
HostTensor f32(std::vector<int64_t> shape, const std::vector<double>& values) {
  return tensor(DType::F32, std::move(shape), values);
}

/// A graph of constants with one output, which it computes.
struct Constants {
  Graph graph;

  NodeId operator()(HostTensor value) { return build::constant(graph, std::move(value)); }
  HostTensor run(NodeId output) {
    graph.set_outputs({{output, "y", {}}});
    return interpret(graph, {})[0];
  }
};

void expect_equal(const HostTensor& got, const HostTensor& expected) {
  EXPECT_TRUE(identical(got, expected)) << got.to_string() << "\nexpected " << expected.to_string();
}

HostTensor run_map(ElementwiseOp op, std::vector<HostTensor> operands,
                   std::optional<DType> to = {}) {
  Constants c;
  std::vector<NodeId> ids;
  for (HostTensor& x : operands) ids.push_back(c(std::move(x)));
  return c.run(build::map(c.graph, op, ids, {}, to));
}

TEST(InterpretMap, MachineRowsAreTheirDefinition) {
  using enum DType;
  const auto x = f32({4}, {1, -2, 0.5, kInf}), y = f32({4}, {3, 4, -8, -kInf});
  expect_equal(run_map(ElementwiseOp::add, {x, y}), f32({4}, {4, 2, -7.5, kNaN}));
  expect_equal(run_map(ElementwiseOp::mul, {x, y}), f32({4}, {3, -8, -4, -kInf}));
  expect_equal(run_map(ElementwiseOp::lt, {x, y}), tensor(Bool, {4}, {1, 1, 0, 0}));
  expect_equal(run_map(ElementwiseOp::select, {tensor(Bool, {4}, {1, 0, 1, 0}), x, y}),
               f32({4}, {1, 4, 0.5, -kInf}));
  expect_equal(
      run_map(ElementwiseOp::div, {tensor(I32, {3}, {7, -7, 1}), tensor(I32, {3}, {2, 2, 0})}),
      tensor(I32, {3}, {3, -3, 0}));
  expect_equal(run_map(ElementwiseOp::max, {f32({3}, {-0.0, kNaN, 1}), f32({3}, {0.0, 1, 2})}),
               f32({3}, {0.0, kNaN, 2}));
  expect_equal(run_map(ElementwiseOp::convert, {f32({4}, {2.9, -2.9, kNaN, 1e10})}, I32),
               tensor(I32, {4}, {2, -2, 0, 2147483647}));
}

TEST(InterpretMap, ScalarsMeetTensors) {
  expect_equal(run_map(ElementwiseOp::sub, {f32({2, 2}, {1, 2, 3, 4}), f32({}, {1})}),
               f32({2, 2}, {0, 1, 2, 3}));
  expect_equal(run_map(ElementwiseOp::sub, {f32({}, {1}), f32({0}, {})}), f32({0}, {}));
}

TEST(InterpretMap, MathRowsRoundOnce) {
  const auto x = f32({4}, {0, 1, -1, 20});
  const HostTensor y = run_map(ElementwiseOp::exp, {x});
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(y.as<const float>()[i], static_cast<float>(std::exp(x.get_double(i))));
  expect_equal(run_map(ElementwiseOp::log, {f32({3}, {0, -1, 1})}), f32({3}, {-kInf, kNaN, 0}));
  // Neither end overflows on the way.
  expect_equal(run_map(ElementwiseOp::sigmoid, {f32({3}, {-kInf, 0, kInf})}),
               f32({3}, {0, 0.5, 1}));
  EXPECT_GT(run_map(ElementwiseOp::sigmoid, {tensor(DType::F64, {1}, {-720})}).get_double(0), 0);
}

TEST(InterpretMap, FormulaRowsAreTheirBodies) {
  expect_equal(run_map(ElementwiseOp::relu, {f32({4}, {-1, 0, 2, kNaN})}),
               f32({4}, {0, 0, 2, kNaN}));
  expect_equal(run_map(ElementwiseOp::sign, {f32({4}, {-3, -0.0, 5, kNaN})}),
               f32({4}, {-1, -0.0, 1, kNaN}));
  expect_equal(
      run_map(ElementwiseOp::clamp, {tensor(DType::I32, {3}, {-5, 2, 9}),
                                     tensor(DType::I32, {}, {0}), tensor(DType::I32, {}, {3})}),
      tensor(DType::I32, {3}, {0, 2, 3}));
  // Each step of an f32 body rounds.
  const float x = 1.7F;
  const auto s = static_cast<float>(1 / (1 + std::exp(-double{x})));
  EXPECT_EQ(run_map(ElementwiseOp::silu, {f32({}, {double{x}})}).as<const float>()[0], x * s);
}

TEST(InterpretMap, SixteenBitFormulasRoundOnce) {
  // 1 / sqrt(x) in f32, then to bf16. Rounding sqrt(x) to bf16 first gives another number for some
  // x.
  int differ = 0;
  for (int i = 1; i < 200; ++i) {
    const HostTensor x = tensor(DType::BF16, {}, {i * 0.25});
    const float value = 1.0F / std::sqrt(static_cast<float>(x.get_double(0)));
    expect_equal(run_map(ElementwiseOp::rsqrt, {x}), tensor(DType::BF16, {}, {double{value}}));
    const HostTensor twice = run_map(
        ElementwiseOp::div, {tensor(DType::BF16, {}, {1}), run_map(ElementwiseOp::sqrt, {x})});
    differ += !identical(twice, run_map(ElementwiseOp::rsqrt, {x}));
  }
  EXPECT_GT(differ, 0);
}

TEST(InterpretMovement, EachOp) {
  Constants c;
  const NodeId m = c(f32({2, 3}, {1, 2, 3, 4, 5, 6})), v = c(f32({3}, {1, 2, 3})),
               zero = c(f32({}, {0}));
  expect_equal(c.run(build::broadcast(c.graph, v, {2, 3}, {1})), f32({2, 3}, {1, 2, 3, 1, 2, 3}));
  expect_equal(c.run(build::broadcast(c.graph, v, {3, 2}, {0})), f32({3, 2}, {1, 1, 2, 2, 3, 3}));
  expect_equal(c.run(build::broadcast_to(c.graph, c(f32({2, 1}, {7, 8})), {2, 2})),
               f32({2, 2}, {7, 7, 8, 8}));
  expect_equal(c.run(build::reshape(c.graph, m, {3, 2})), f32({3, 2}, {1, 2, 3, 4, 5, 6}));
  expect_equal(c.run(build::transpose(c.graph, m, {1, 0})), f32({3, 2}, {1, 4, 2, 5, 3, 6}));
  expect_equal(c.run(build::slice(c.graph, m, {1, 0}, {2, 3}, {1, 2})), f32({1, 2}, {4, 6}));
  expect_equal(c.run(build::pad(c.graph, v, zero, {1}, {2}, {1})),
               f32({8}, {0, 1, 0, 2, 0, 3, 0, 0}));
  // Along one tap, with a stride, a gap and what lies outside.
  const NodeId taps = build::broadcast(c.graph, v, {3, 2}, {0});
  expect_equal(c.run(build::windows(c.graph, taps, zero, {{0}, {1}, {2}, {1}, {1}, {1}}, {2, 2})),
               f32({2, 2}, {0, 1, 2, 3}));
  expect_equal(c.run(build::windows(c.graph, taps, zero, {{0}, {1}, {1}, {-1}, {2}, {-1}}, {4, 2})),
               f32({4, 2}, {0, 1, 2, 0, 0, 2, 3, 0}));
  expect_equal(c.run(build::windows(c.graph, m, zero, {{1}, {0}, {1}, {1}, {1}, {0}}, {2, 3})),
               f32({2, 3}, {1, 2, 3, 5, 6, 0}));
  expect_equal(c.run(build::concat(c.graph, {m, m}, 0)),
               f32({4, 3}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  expect_equal(c.run(build::concat(c.graph, {m, c(f32({2, 1}, {8, 9})), m}, 1)),
               f32({2, 7}, {1, 2, 3, 8, 1, 2, 3, 4, 5, 6, 9, 4, 5, 6}));
  expect_equal(c.run(build::reverse(c.graph, m, {0, 1})), f32({2, 3}, {6, 5, 4, 3, 2, 1}));
  expect_equal(c.run(build::reverse(c.graph, m, {1})), f32({2, 3}, {3, 2, 1, 6, 5, 4}));
  expect_equal(c.run(build::iota(c.graph, {DType::BF16, {2, 3}}, 1)),
               tensor(DType::BF16, {2, 3}, {0, 1, 2, 0, 1, 2}));
}

TEST(InterpretMovement, GatherAndScatter) {
  Constants c;
  const NodeId m = c(f32({3, 2}, {1, 2, 3, 4, 5, 6}));
  const NodeId rows = c(tensor(DType::I64, {2, 2}, {2, 0, 0, 1}));
  expect_equal(c.run(build::gather(c.graph, m, rows, 0)), f32({2, 2, 2}, {5, 6, 1, 2, 1, 2, 3, 4}));
  const NodeId columns = c(tensor(DType::I32, {3}, {1, 1, 0}));
  expect_equal(c.run(build::gather(c.graph, m, columns, 1)),
               f32({3, 3}, {2, 2, 1, 4, 4, 3, 6, 6, 5}));
  const NodeId updates = c(f32({2, 2, 2}, {10, 20, 30, 40, 50, 60, 70, 80}));
  expect_equal(c.run(build::scatter_add(c.graph, m, rows, updates, 0)),
               f32({3, 2}, {81, 102, 73, 84, 15, 26}));
}

TEST(InterpretMovement, ScatterAddsInRowMajorOrder) {
  Constants c;
  // (1 + 2^24) + (-2^24) loses the 1 in f32; any other order keeps it.
  const NodeId x = c(f32({1}, {1})), rows = c(tensor(DType::I32, {2}, {0, 0}));
  expect_equal(c.run(build::scatter_add(c.graph, x, rows, c(f32({2}, {0x1p25, -0x1p25})), 0)),
               f32({1}, {0}));
}

TEST(InterpretMovement, IndexOutOfRangeIsNamed) {
  for (const double index : {-1.0, 3.0}) {
    Constants c;
    const NodeId m = c(f32({3}, {1, 2, 3}));
    const NodeId gathered = build::gather(c.graph, m, c(tensor(DType::I32, {2}, {0, index})), 0);
    try {
      c.run(gathered);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
      EXPECT_NE(error.message().find("index " + std::to_string(static_cast<int>(index)) +
                                     " at position 1"),
                std::string::npos)
          << error.message();
    }
  }
}

TEST(InterpretReduce, EachMonoid) {
  Constants c;
  const NodeId m = c(f32({2, 3}, {1, -2, 3, 4, 5, -6}));
  const auto reduce = [&](Monoid monoid, NodeId x, std::vector<int64_t> axes) {
    return c.run(build::reduce(c.graph, monoid, x, std::move(axes)));
  };
  expect_equal(reduce(Monoid::Sum, m, {1}), f32({2}, {2, 3}));
  expect_equal(reduce(Monoid::Sum, m, {0}), f32({3}, {5, 3, -3}));
  expect_equal(reduce(Monoid::Sum, m, {0, 1}), f32({}, {5}));
  expect_equal(reduce(Monoid::Prod, m, {1}), f32({2}, {-6, -120}));
  expect_equal(reduce(Monoid::Max, m, {1}), f32({2}, {3, 5}));
  expect_equal(reduce(Monoid::Min, m, {0}), f32({3}, {1, -2, -6}));
  expect_equal(reduce(Monoid::Max, c(f32({3}, {1, kNaN, 2})), {0}), f32({}, {kNaN}));
  const NodeId bits = c(tensor(DType::I32, {2}, {6, 3}));
  expect_equal(reduce(Monoid::And, bits, {0}), tensor(DType::I32, {}, {2}));
  expect_equal(reduce(Monoid::Or, bits, {0}), tensor(DType::I32, {}, {7}));
  const NodeId flags = c(tensor(DType::Bool, {2, 2}, {1, 0, 1, 1}));
  expect_equal(reduce(Monoid::And, flags, {0}), tensor(DType::Bool, {2}, {1, 0}));
  expect_equal(reduce(Monoid::Or, flags, {1}), tensor(DType::Bool, {2}, {1, 1}));
}

TEST(InterpretReduce, SumsAreAccurateAndIntegersWrap) {
  Constants c;
  const auto sum = [&](HostTensor x) {
    return c.run(build::reduce(c.graph, Monoid::Sum, c(std::move(x)), {0}));
  };
  expect_equal(sum(f32({3}, {0x1p30, 1, -0x1p30})), f32({}, {1}));
  expect_equal(sum(tensor(DType::F64, {3}, {0x1p60, 1, -0x1p60})), tensor(DType::F64, {}, {1}));
  HostTensor ones(DType::BF16, {1000});
  for (int64_t i = 0; i < 1000; ++i) ones.set_double(i, 1);
  expect_equal(sum(ones), tensor(DType::BF16, {}, {1000}));
  expect_equal(sum(tensor(DType::I32, {2}, {2147483647, 1})),
               tensor(DType::I32, {}, {-2147483648.0}));
  const NodeId factors = c(tensor(DType::F64, {3}, {3, 0x1p-1, 0.1}));
  expect_equal(c.run(build::reduce(c.graph, Monoid::Prod, factors, {0})),
               tensor(DType::F64, {}, {1.5 * 0.1}));
}

TEST(InterpretReduce, EmptyAxesGiveTheIdentity) {
  Constants c;
  const NodeId empty = c(f32({2, 0}, {}));
  const auto reduce = [&](Monoid monoid, NodeId x) {
    return c.run(build::reduce(c.graph, monoid, x, {1}));
  };
  expect_equal(reduce(Monoid::Sum, empty), f32({2}, {0, 0}));
  expect_equal(reduce(Monoid::Prod, empty), f32({2}, {1, 1}));
  expect_equal(reduce(Monoid::Max, empty), f32({2}, {-kInf, -kInf}));
  expect_equal(reduce(Monoid::Min, empty), f32({2}, {kInf, kInf}));
  expect_equal(reduce(Monoid::Max, c(HostTensor(DType::I32, {1, 0}))),
               tensor(DType::I32, {1}, {-2147483648.0}));
  expect_equal(c.run(build::reduce(c.graph, Monoid::Sum, empty, {0})), f32({0}, {}));
}

TEST(InterpretReduce, ArgReduceTakesTheFirst) {
  Constants c;
  const auto arg = [&](bool is_max, HostTensor x, int64_t axis) {
    return c.run(build::arg_reduce(c.graph, is_max, c(std::move(x)), axis));
  };
  const HostTensor m = f32({2, 3}, {1, 5, 5, 0, -0.0, -7});
  expect_equal(arg(true, m, 1), tensor(DType::I64, {2}, {1, 0}));
  expect_equal(arg(false, m, 1), tensor(DType::I64, {2}, {0, 2}));
  expect_equal(arg(true, m, 0), tensor(DType::I64, {3}, {0, 0, 0}));
  expect_equal(arg(true, f32({4}, {1, kNaN, kInf, kNaN}), 0), tensor(DType::I64, {}, {1}));
  expect_equal(arg(false, f32({4}, {1, kNaN, -kInf, kNaN}), 0), tensor(DType::I64, {}, {1}));
  expect_equal(arg(true, tensor(DType::Bool, {3}, {0, 1, 1}), 0), tensor(DType::I64, {}, {1}));
}

TEST(InterpretDot, MatricesAndBatches) {
  Constants c;
  const NodeId a = c(f32({2, 3}, {1, 2, 3, 4, 5, 6})), b = c(f32({3, 2}, {1, 0, 0, 1, 1, 1}));
  expect_equal(c.run(build::dot(c.graph, a, b, {{}, {}, {1}, {0}})), f32({2, 2}, {4, 5, 10, 11}));
  expect_equal(c.run(build::dot(c.graph, a, a, {{}, {}, {1}, {1}})), f32({2, 2}, {14, 32, 32, 77}));
  expect_equal(c.run(build::dot(c.graph, a, a, {{0}, {0}, {1}, {1}})), f32({2}, {14, 77}));
  expect_equal(c.run(build::dot(c.graph, a, a, {{1}, {1}, {}, {}})),
               f32({3, 2, 2}, {1, 4, 4, 16, 4, 10, 10, 25, 9, 18, 18, 36}));
  expect_equal(c.run(build::dot(c.graph, a, b, {{}, {}, {0, 1}, {1, 0}})),
               f32({}, {1 + 3 + 5 + 6}));
  const NodeId i = c(tensor(DType::I32, {2}, {65536, 3}));
  expect_equal(c.run(build::dot(c.graph, i, i, {{}, {}, {0}, {0}})), tensor(DType::I32, {}, {9}));
}

TEST(InterpretDot, SixteenBitOperandsAndEmptyDepth) {
  Constants c;
  const NodeId x = c(tensor(DType::BF16, {3}, {256, 1, 1}));
  expect_equal(c.run(build::dot(c.graph, x, x, {{}, {}, {0}, {0}})),
               tensor(DType::BF16, {}, {65538}));
  expect_equal(c.run(build::dot(c.graph, x, x, {{}, {}, {0}, {0}}, DType::F32)), f32({}, {65538}));
  const NodeId a = c(f32({2, 0}, {})), b = c(f32({0, 3}, {}));
  expect_equal(c.run(build::dot(c.graph, a, b, {{}, {}, {1}, {0}})),
               f32({2, 3}, {0, 0, 0, 0, 0, 0}));
  const NodeId d = c(f32({0, 2}, {}));
  expect_equal(c.run(build::dot(c.graph, d, a, {{}, {}, {1}, {0}})), f32({0, 0}, {}));
}

TEST(InterpretRandom, PhiloxKnownAnswers) {
  // From the authors' distribution, Random123: tests/kat_vectors.
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(InterpretRandom, BitsFollowTheCounter) {
  Constants c;
  HostTensor key(DType::U32, {2});
  const HostTensor bits = c.run(build::random_bits(c.graph, c(key), {2, 3}));
  const std::vector<uint32_t> expected{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(bits.as<const uint32_t>()[i], expected[i]);
  EXPECT_EQ(bits.as<const uint32_t>()[5], philox4x32({1, 0, 0, 0}, {0, 0})[1]);
}

// Graphs: inputs, sizes, outputs.

TEST(InterpretGraph, OutputsMayRepeatAndBeInputs) {
  Graph graph;
  const NodeId x = build::input(graph, "x", {DType::F32, {2}});
  const NodeId y = build::map(graph, ElementwiseOp::neg, {x});
  graph.set_outputs({{x, "a", {}}, {y, "b", 0}, {y, "c", {}}});
  const auto outputs = interpret(graph, std::vector{f32({2}, {1, 2})});
  expect_equal(outputs[0], f32({2}, {1, 2}));
  expect_equal(outputs[1], f32({2}, {-1, -2}));
  expect_equal(outputs[2], outputs[1]);
}

class Sizing : public testing::Test {
 protected:
  Expr n = Expr::symbol("n", {1, 64}), m = Expr::symbol("m", {8, 64}, 8);

  /// The error of a call with inputs declared and given so; "" if there is none.
  std::string error(const std::vector<Shape>& declared,
                    const std::vector<std::vector<int64_t>>& given) {
    Graph graph;
    std::vector<HostTensor> inputs;
    for (const Shape& shape : declared)
      build::input(graph, "x" + std::to_string(graph.inputs().size()), {DType::F32, shape});
    for (const auto& shape : given) inputs.emplace_back(DType::F32, shape);
    try {
      sizes = check_inputs(graph, inputs);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::InvalidArgument);
      return e.message();
    }
  }
  Sizes sizes;
};

TEST_F(Sizing, SolvesLinearExtents) {
  EXPECT_EQ(error({{4 * n, 3}}, {{20, 3}}), "");
  EXPECT_EQ(sizes("n"), 5);
  EXPECT_EQ(error({{n + m}, {n}}, {{19}, {3}}), "");
  EXPECT_EQ(sizes("m"), 16);
  EXPECT_EQ(error({{n * m}, {m}}, {{48}, {16}}), "");
  EXPECT_EQ(sizes("n"), 3);
}

TEST_F(Sizing, ErrorsNameInputSymbolAndRange) {
  EXPECT_EQ(error({{n}}, {{65}}),
            "input 'x0' is declared as [n], but [65] was given: n = 65, but n must be in 1..64");
  EXPECT_EQ(
      error({{m}}, {{12}}),
      "input 'x0' is declared as [m], but [12] was given: m = 12, but m must be a multiple of 8 "
      "in 8..64");
  EXPECT_EQ(error({{n}, {n, 2}}, {{3}, {4, 2}}),
            "input 'x1' is declared as [n, 2], but [4, 2] was given: axis 0 must be 3, not 4 (n = "
            "3 from the other extents)");
  EXPECT_EQ(error({{2, 3}}, {{2, 4}}),
            "input 'x0' is declared as [2, 3], but [2, 4] was given: axis 1 must be 3, not 4");
  EXPECT_EQ(error({{4 * n}}, {{6}}),
            "input 'x0' is declared as [4*n], but [6] was given: no integer n makes 4*n equal 6");
  EXPECT_EQ(error({{2}}, {{2, 2}}),
            "input 'x0' is declared as [2], but [2, 2] was given: its rank must be 1");
  EXPECT_EQ(error({{n + m}}, {{19}}), "the shapes of the inputs do not determine the size m");
  EXPECT_EQ(error({{2}}, {}), "graph 'main' has 1 inputs, but 0 were given");
}

TEST_F(Sizing, OneGraphServesARangeOfShapes) {
  Graph graph;
  const NodeId x = build::input(graph, "x", {DType::F32, {n, 2}});
  const NodeId flat = build::reshape(graph, x, {2 * n});
  graph.set_outputs({{build::concat(graph, {flat, flat}, 0), "y", {}}});
  for (int64_t size : {1, 3, 64}) {
    const auto y = interpret(graph, std::vector{HostTensor(DType::F32, {size, 2})});
    EXPECT_EQ(y[0].shape(), (std::vector<int64_t>{4 * size}));
  }
}

// A training step of a network for digits, 64-256-128-10 with batch 64, is what the test suite runs
// hundreds of times.
TEST(InterpretGraph, TrainingStepIsQuick) {
  Graph graph;
  const auto parameter = [&](const char* name, Shape shape) {
    return build::input(graph, name, {DType::F32, std::move(shape)});
  };
  const auto map = [&](ElementwiseOp op, std::vector<NodeId> operands) {
    return build::map(graph, op, std::move(operands));
  };
  const NodeId x = parameter("x", {64, 64}), target = parameter("target", {64, 10});
  const NodeId weights[] = {parameter("w0", {64, 256}), parameter("w1", {256, 128}),
                            parameter("w2", {128, 10})};

  std::vector<NodeId> activations{x};
  for (NodeId w : weights) {
    const NodeId z = build::dot(graph, activations.back(), w, {{}, {}, {1}, {0}});
    activations.push_back(activations.size() < 3 ? map(ElementwiseOp::relu, {z}) : z);
  }
  const NodeId e = map(ElementwiseOp::exp, {activations.back()});
  const NodeId sums =
      build::broadcast(graph, build::reduce(graph, Monoid::Sum, e, {1}), {64, 10}, {0});
  NodeId gradient = map(ElementwiseOp::sub, {map(ElementwiseOp::div, {e, sums}), target});
  std::vector<GraphOutput> outputs;
  for (uint32_t layer = 3; layer-- > 0;) {
    const NodeId dw = build::dot(graph, activations[layer], gradient, {{}, {}, {0}, {0}});
    const NodeId step = map(ElementwiseOp::mul, {dw, build::scalar(graph, DType::F32, 0.01)});
    outputs.push_back(
        {map(ElementwiseOp::sub, {weights[layer], step}), "w" + std::to_string(layer), layer + 2});
    if (layer == 0) break;
    const NodeId dx = build::dot(graph, gradient, weights[layer], {{}, {}, {1}, {1}});
    const NodeId positive =
        map(ElementwiseOp::gt, {activations[layer], build::scalar(graph, DType::F32, 0)});
    gradient = map(ElementwiseOp::select, {positive, dx, build::scalar(graph, DType::F32, 0)});
  }
  graph.set_outputs(std::move(outputs));

  std::vector<HostTensor> inputs;
  for (NodeId id : graph.inputs()) {
    inputs.emplace_back(DType::F32, graph[id].type.shape.static_dims());
    for (int64_t i = 0; i < inputs.back().numel(); ++i)
      inputs.back().set_double(i, std::sin(static_cast<double>(i)) * 0.1);
  }
  auto fastest = std::chrono::nanoseconds::max();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    interpret(graph, inputs);
    fastest = std::min<std::chrono::nanoseconds>(fastest, std::chrono::steady_clock::now() - start);
  }
  const double ms = std::chrono::duration<double, std::milli>(fastest).count();
  RecordProperty("milliseconds", std::to_string(ms));
  printf("one step: %.1f ms\n", ms);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(ms, 100);
#endif
}

}  // namespace
}  // namespace braze
