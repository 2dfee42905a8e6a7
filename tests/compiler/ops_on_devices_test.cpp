// Every elementwise row, conversion, reduction and movement op, on every dtype that it takes and on
// the classes of shapes: empty, one, odd, large, strided, broadcast, transposed.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/graph/build.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

std::vector<DType> dtypes_of(TypeSet set) {
  std::vector<DType> out;
  for (DType dtype : kAllDTypes)
    if (set.contains(dtype)) out.push_back(dtype);
  return out;
}

// One graph holds one op on all classes of shapes.
class Cases {
 public:
  NodeId input(DType dtype, const Shape& shape) {
    return build::input(graph_, "x" + std::to_string(inputs_++), {dtype, shape});
  }
  void output(NodeId node) {
    outputs_.push_back({node, "y" + std::to_string(outputs_.size()), {}});
  }
  Graph& graph() { return graph_; }

  // Operands of one dtype in every class of shape.
  std::vector<std::vector<NodeId>> operands(const std::vector<DType>& dtypes) {
    std::vector<std::vector<NodeId>> out;
    for (const Shape& shape :
         {Shape{0}, Shape{}, Shape{1}, Shape{17}, Shape{1023}, Shape{3, 0, 2}}) {
      std::vector<NodeId> list;
      for (DType dtype : dtypes) list.push_back(input(dtype, shape));
      out.push_back(std::move(list));
    }
    std::vector<NodeId> strided, spread, turned;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      const NodeId wide = input(dtypes[i], {7, 40});
      strided.push_back(build::slice(graph_, wide, {1, 3}, {7, 40}, {2, 3}));
      spread.push_back(build::broadcast(graph_, input(dtypes[i], i % 2 ? Shape{5} : Shape{33}),
                                        {5, 33}, {i % 2 ? 0 : 1}));
      turned.push_back(i % 2 ? input(dtypes[i], {19, 21})
                             : build::transpose(graph_, input(dtypes[i], {21, 19}), {1, 0}));
    }
    out.push_back(strided);
    out.push_back(spread);
    out.push_back(turned);
    return out;
  }

  bool empty() const { return outputs_.empty(); }
  ::testing::AssertionResult agree(uint64_t seed, const Device& device = testing::test_device()) {
    graph_.set_outputs(outputs_);
    return testing::agrees(graph_, fuzz::random_inputs(graph_, seed), device);
  }

 private:
  Graph graph_;
  std::vector<GraphOutput> outputs_;
  int inputs_ = 0;
};

class EveryRow : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryRow, OnEveryDTypeAndShape) {
  const auto op = static_cast<ElementwiseOp>(GetParam());
  const ElementwiseInfo& row = info(op);
  for (DType dtype : dtypes_of(row.types)) {
    SCOPED_TRACE(std::string(row.name) + " on " + std::string(name(dtype)));
    std::vector<DType> types(row.arity, dtype);
    if (op == ElementwiseOp::select) types[0] = DType::Bool;
    Cases cases;
    for (auto& operands : cases.operands(types))
      cases.output(build::map(cases.graph(), op, operands));
    for (uint64_t seed : {1, 2}) EXPECT_TRUE(cases.agree(seed));
  }
}

// Conversions have tests of their own, below.
std::vector<size_t> rows_of_one_dtype() {
  std::vector<size_t> rows;
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const ElementwiseInfo& row = elementwise_table()[i];
    if (row.result != ResultRule::Chosen && !row.inner) rows.push_back(i);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryRow, ::testing::ValuesIn(rows_of_one_dtype()),
                         [](const auto& row) {
                           return std::string(elementwise_table()[row.param].name);
                         });

// All numbers of a 16-bit type, `stride` apart: an odd stride visits each of them.
HostTensor every_number(DType dtype, uint64_t stride) {
  HostTensor x(dtype, {65536});
  for (uint64_t i = 0; i < 65536; ++i) x.set_bits(static_cast<int64_t>(i), i * stride % 65536);
  return x;
}

TEST(SixteenBits, EveryNumberOfRowsThatRoundOnce) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    for (size_t i = 0; i < elementwise_table().size(); ++i) {
      const auto op = static_cast<ElementwiseOp>(i);
      if (!has_half_body(op, dtype)) continue;
      Graph graph;
      std::vector<NodeId> operands;
      std::vector<HostTensor> numbers;
      for (int k = 0; k < info(op).arity; ++k) {
        operands.push_back(build::input(graph, fmt::format("x{}", k), {dtype, {65536}}));
        numbers.push_back(every_number(dtype, k == 0 ? 1 : 40503));
      }
      graph.set_outputs({{build::map(graph, op, operands), "y", {}}});
      EXPECT_TRUE(testing::agrees(graph, numbers)) << info(op).name << " on " << name(dtype);
    }
  }
}

TEST(SixteenBits, ArithmeticOnEveryNumber) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    Graph graph;
    const NodeId x = build::input(graph, "x", {dtype, {65536}});
    const NodeId y = build::input(graph, "y", {dtype, {65536}});
    std::vector<GraphOutput> outputs;
    const auto output = [&](ElementwiseOp op, NodeId a, NodeId b) {
      outputs.push_back({build::map(graph, op, {a, b}), "y" + std::to_string(outputs.size()), {}});
    };
    for (const auto op : {ElementwiseOp::add, ElementwiseOp::sub, ElementwiseOp::mul}) {
      output(op, x, y);
      for (const double value : {1.5, -0.1, 0x1p-9, 0x1.02p-11, 0x1p-20, 3e4}) {
        const NodeId literal = build::broadcast(
            graph, build::scalar_bits(graph, dtype, constant_bits(dtype, value)), {65536}, {});
        output(op, x, literal);
        output(op, literal, x);
      }
    }
    graph.set_outputs(outputs);
    for (const uint64_t stride : {3, 40503, 25173}) {
      const HostTensor numbers[] = {every_number(dtype, 1), every_number(dtype, stride)};
      EXPECT_TRUE(testing::agrees(graph, numbers)) << name(dtype) << " " << stride;
    }
  }
}

TEST(Conversions, BetweenAllDTypes) {
  for (DType from : kAllDTypes) {
    Cases cases;
    for (auto& operands : cases.operands({from})) {
      for (DType to : kAllDTypes) {
        cases.output(build::convert(cases.graph(), operands[0], to));
        if (size_of(to) == size_of(from) && from != DType::Bool && to != DType::Bool)
          cases.output(build::bitcast(cases.graph(), operands[0], to));
      }
    }
    EXPECT_TRUE(cases.agree(3)) << name(from);
  }
}

TEST(Reductions, EveryMonoidDTypeAndAxes) {
  for (Monoid monoid :
       {Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min, Monoid::And, Monoid::Or}) {
    for (DType dtype : dtypes_of(info(monoid).types)) {
      SCOPED_TRACE(std::string(name(monoid)) + " on " + std::string(name(dtype)));
      Cases cases;
      for (const auto& [shape, axes] :
           std::vector<std::pair<Shape, std::vector<int64_t>>>{{{0}, {0}},
                                                               {{1}, {0}},
                                                               {{5, 0}, {1}},
                                                               {{0, 5}, {1}},
                                                               {{100}, {0}},
                                                               {{65, 33}, {1}},
                                                               {{65, 33}, {0}},
                                                               {{9, 10, 11}, {0, 2}},
                                                               {{9, 10, 11}, {1}},
                                                               {{9, 10, 11}, {0, 1, 2}},
                                                               {{3, 70000}, {1}},
                                                               {{4096, 3}, {0}}})
        cases.output(build::reduce(cases.graph(), monoid, cases.input(dtype, shape), axes));
      EXPECT_TRUE(cases.agree(4));
    }
  }
}

const ScanOp kWays[] = {
    {}, {.reverse = true}, {.exclusive = true}, {.reverse = true, .exclusive = true}};

/// On a device; empty: the one that tests run on.
class Scans : public ::testing::TestWithParam<const char*> {
 protected:
  static Device device() {
    const std::string name = GetParam();
    return name.empty() ? testing::test_device() : Device(name);
  }
};

TEST_P(Scans, EveryMonoidDTypeAndAxis) {
  for (Monoid monoid :
       {Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min, Monoid::And, Monoid::Or}) {
    for (DType dtype : dtypes_of(info(monoid).types)) {
      SCOPED_TRACE(std::string(name(monoid)) + " on " + std::string(name(dtype)));
      Cases cases;
      for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{{{0}, 0},
                                                                              {{1}, 0},
                                                                              {{5, 0}, 1},
                                                                              {{0, 5}, 1},
                                                                              {{100}, 0},
                                                                              {{65, 33}, 1},
                                                                              {{65, 33}, 0},
                                                                              {{9, 10, 11}, 1},
                                                                              {{3, 1, 7}, 1},
                                                                              {{2, 5000}, 1},
                                                                              {{3000, 3}, 0}})
        for (ScanOp op : kWays) {
          op.combiner = monoid;
          op.axis = axis;
          cases.output(build::scan(cases.graph(), op, cases.input(dtype, shape)));
        }
      EXPECT_TRUE(cases.agree(6, device()));
    }
  }
}

// Infinities, NaN and zeros of both signs, at the beginning, the end and in the middle.
TEST_P(Scans, SpecialValues) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double specials[] = {0.0, -0.0, kInf, -kInf, std::nan(""), 1e30, -1e-30};
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    Graph graph("specials");
    constexpr int64_t kRows = 3 * 7, kColumns = 150;
    const NodeId x = build::input(graph, "x", {dtype, {kRows, kColumns}});
    std::vector<GraphOutput> outputs;
    for (const Monoid monoid : {Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min})
      for (ScanOp op : kWays)
        for (const int64_t axis : {0, 1}) {
          op.combiner = monoid;
          op.axis = axis;
          outputs.push_back({build::scan(graph, op, x), fmt::format("y{}", outputs.size()), {}});
        }
    graph.set_outputs(outputs);
    HostTensor rows(dtype, {kRows, kColumns});
    for (int64_t i = 0; i < rows.numel(); ++i) rows.set_double(i, i % 3 == 0 ? -0.75 : 1.25);
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t at[] = {0, kColumns / 2, kColumns - 1};
      rows.set_double(row * kColumns + at[row % 3], specials[row / 3]);
    }
    EXPECT_TRUE(testing::agrees(graph, std::vector{rows}, device())) << name(dtype);
  }
}

// What is computed of an element before it is combined, and after, and of several running values.
TEST_P(Scans, WithWhatStandsAroundThem) {
  for (const int64_t axis : {0, 1, 2}) {
    Graph graph("around");
    const Shape shape{6, 35, 70};
    const NodeId x = build::input(graph, "x", {DType::F32, shape});
    const NodeId w = build::input(graph, "w", {DType::F32, {70}});
    const NodeId scaled =
        build::map(graph, ElementwiseOp::mul, {x, build::broadcast_to(graph, w, shape)});
    const NodeId sums = build::scan(graph, ScanOp{Monoid::Sum, axis}, scaled);
    const NodeId peaks = build::scan(graph, ScanOp{Monoid::Max, axis}, sums);
    const NodeId below = build::map(graph, ElementwiseOp::sub, {peaks, sums});
    const NodeId back = build::scan(graph, ScanOp{Monoid::Sum, axis, true}, below);
    const NodeId total = build::reduce(graph, Monoid::Sum, below, {axis});
    graph.set_outputs({{below, "below", {}},
                       {build::convert(graph, sums, DType::BF16), "rounded", {}},
                       {back, "back", {}},
                       {total, "total", {}}});
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, 7), device())) << axis;
  }
}

TEST_P(Scans, OfSymbolicExtents) {
  const auto n = Expr::symbol("n", {0, 4096}), m = Expr::symbol("m", {1, 64});
  for (const int64_t axis : {0, 1}) {
    Graph graph("symbolic");
    const NodeId x = build::input(graph, "x", {DType::F32, {m, n}});
    std::vector<GraphOutput> outputs;
    for (ScanOp op : kWays) {
      op.axis = axis;
      outputs.push_back({build::scan(graph, op, x), fmt::format("y{}", outputs.size()), {}});
    }
    graph.set_outputs(outputs);
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {1, 1}, {3, 1}, {64, 33}, {5, 2500}}) {
      HostTensor values(DType::F32, {rows, columns});
      for (int64_t i = 0; i < values.numel(); ++i)
        values.set_double(i, static_cast<double>(i % 17) - 8);
      EXPECT_TRUE(testing::agrees(graph, std::vector{values}, device()))
          << rows << " x " << columns;
    }
  }
}

// Few lines: a GPU cuts them into chunks.
TEST_P(Scans, LongLines) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::I64})
    for (const Monoid monoid : {Monoid::Sum, Monoid::Max}) {
      Cases cases;
      for (const auto& [shape, axis] :
           std::vector<std::pair<Shape, int64_t>>{{{70'001}, 0}, {{2, 65'536}, 1}, {{9'000, 6}, 0}})
        for (ScanOp op : kWays) {
          op.combiner = monoid;
          op.axis = axis;
          const NodeId x =
              build::map(cases.graph(), ElementwiseOp::neg, {cases.input(dtype, shape)});
          cases.output(
              build::map(cases.graph(), ElementwiseOp::abs, {build::scan(cases.graph(), op, x)}));
        }
      EXPECT_TRUE(cases.agree(8, device())) << name(monoid) << " on " << name(dtype);
    }
}

/// Combiners of tuples: first-order recurrences, the greatest and its index, sums of exponentials,
/// the mean with the squared distances from it, and products of 2 by 2 matrices, which do not
/// commute.
struct Tuples {
  const char* name;
  std::vector<DType> parts;
  const char* combiner;
};
const std::vector<Tuples> kTuples = {
    {"recurrence",
     {DType::F32, DType::F32},
     "from (f32 1, f32 0) by (mul(x0, y0), fma(x1, y0, y1))"},
    {"halves", {DType::BF16, DType::F16}, "from (f32 1, f32 0) by (mul(x0, y0), fma(x1, y0, y1))"},
    {"doubles", {DType::F64, DType::F64}, "from (f64 1, f64 0) by (mul(x0, y0), fma(x1, y0, y1))"},
    {"integers",
     {DType::I64, DType::I64},
     "from (i64 1, i64 0) by (mul(x0, y0), add(mul(x1, y0), y1))"},
    {"greatest",
     {DType::F32, DType::I32},
     "from (f32 -inf, i32 0) by let e0 = gt(y0, x0), (select(e0, y0, x0), select(e0, y1, x1))"},
    {"flags",
     {DType::Bool, DType::F32},
     "from (bool false, f32 0) by (logical_or(x0, y0), select(y0, y1, add(x1, y1)))"},
    {"logsumexp",
     {DType::F32},
     "from (f32 -inf) by (select(eq(x0, y0), add(x0, f32 0.6931472), "
     "add(max(x0, y0), log1p(exp(sub(min(x0, y0), max(x0, y0)))))))"},
    {"moments",
     {DType::F32, DType::F32, DType::F32},
     "from (f32 0, f32 0, f32 0) by let e0 = add(x0, y0), let e1 = sub(y1, x1), "
     "let e2 = div(y0, max(e0, f32 1)), "
     "(e0, fma(e1, e2, x1), add(add(x2, y2), mul(mul(e1, e1), mul(x0, e2))))"},
    {"matrices",
     {DType::F32, DType::F32, DType::F32, DType::F32},
     "from (f32 1, f32 0, f32 0, f32 1) by "
     "(fma(x0, y0, mul(x1, y2)), fma(x0, y1, mul(x1, y3)), "
     "fma(x2, y0, mul(x3, y2)), fma(x2, y1, mul(x3, y3)))"},
};

Combiner combiner_of(const Tuples& tuples) {
  Scanner scanner(tuples.combiner, "combiner");
  return parse_combiner(scanner);
}

/// Numbers from -0.75 to 0.75, small integers and flags, so that nothing overflows.
HostTensor small_numbers(DType dtype, const std::vector<int64_t>& shape, uint64_t seed) {
  HostTensor out(dtype, shape);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (int64_t i = 0; i < out.numel(); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const auto draw = static_cast<int64_t>(state >> 40);
    if (dtype == DType::Bool)
      out.set_bits(i, draw % 5 == 0);
    else if (is_floating(dtype))
      out.set_double(i, static_cast<double>(draw % 1001 - 500) / 667);
    else
      out.set_int(i, draw % 5 - 2);
  }
  return out;
}

/// Values for a part of these tuples. Moments are those of single numbers: a count of 1, and no
/// distance from the mean.
HostTensor values_of(const Tuples& tuples, size_t part, const std::vector<int64_t>& shape) {
  HostTensor out = small_numbers(tuples.parts[part], shape, part + 1);
  if (std::string_view(tuples.name) == "moments" && part != 1)
    for (int64_t i = 0; i < out.numel(); ++i) out.set_double(i, part == 0 ? 1 : 0);
  return out;
}

::testing::AssertionResult scans_agree(const Tuples& tuples, const Shape& shape, int64_t axis,
                                       const Device& device, const std::vector<int64_t>& extents) {
  Graph graph("tuples");
  std::vector<NodeId> parts;
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < tuples.parts.size(); ++i) {
    parts.push_back(build::input(graph, fmt::format("x{}", i), {tuples.parts[i], shape}));
    inputs.push_back(values_of(tuples, i, extents));
  }
  std::vector<GraphOutput> outputs;
  for (ScanOp op : kWays)
    for (size_t i = 0; i < parts.size(); ++i) {
      op.combiner = combiner_of(tuples);
      op.axis = axis;
      op.part = static_cast<int64_t>(i);
      outputs.push_back({build::scan(graph, op, parts), fmt::format("y{}", outputs.size()), {}});
    }
  graph.set_outputs(outputs);
  return testing::agrees(graph, inputs, device);
}

TEST_P(Scans, OfTuples) {
  for (const Tuples& tuples : kTuples)
    for (const auto& [shape, axis] :
         std::vector<std::pair<std::vector<int64_t>, int64_t>>{{{0}, 0},
                                                               {{1}, 0},
                                                               {{5, 0}, 1},
                                                               {{0, 5}, 1},
                                                               {{100}, 0},
                                                               {{65, 33}, 1},
                                                               {{65, 33}, 0},
                                                               {{9, 10, 11}, 1},
                                                               {{3, 1, 7}, 1},
                                                               {{2, 1500}, 1},
                                                               {{600, 3}, 0}})
      EXPECT_TRUE(scans_agree(tuples, Shape::of(shape), axis, device(), shape))
          << tuples.name << " of " << Shape::of(shape).to_string() << " along " << axis;
}

TEST_P(Scans, OfTuplesAlongSymbolicExtents) {
  const auto n = Expr::symbol("n", {0, 4096}), m = Expr::symbol("m", {1, 64});
  for (const Tuples& tuples : kTuples)
    for (const int64_t axis : {0, 1})
      for (const auto& extents :
           std::vector<std::vector<int64_t>>{{1, 0}, {1, 1}, {3, 1}, {64, 33}, {5, 700}})
        EXPECT_TRUE(scans_agree(tuples, {m, n}, axis, device(), extents))
            << tuples.name << " of " << extents[0] << " x " << extents[1] << " along " << axis;
}

// One scan with few lines: a GPU cuts them into chunks. The parts are computed before the scan, and
// its result is used after it.
TEST_P(Scans, OfTuplesAlongLongLines) {
  for (const Tuples& tuples : kTuples)
    for (const auto& [extents, axis] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{
             {{9'001}, 0}, {{2, 8'192}, 1}, {{4'000, 6}, 0}})
      for (ScanOp op : kWays) {
        Graph graph("long");
        std::vector<NodeId> parts;
        std::vector<HostTensor> inputs;
        for (size_t i = 0; i < tuples.parts.size(); ++i) {
          const NodeId x =
              build::input(graph, fmt::format("x{}", i), {tuples.parts[i], Shape::of(extents)});
          const bool number = tuples.parts[i] != DType::Bool && i + 1 == tuples.parts.size();
          parts.push_back(number ? build::map(graph, ElementwiseOp::neg, {x}) : x);
          inputs.push_back(values_of(tuples, i, extents));
        }
        op.combiner = combiner_of(tuples);
        op.axis = axis;
        op.part = static_cast<int64_t>(parts.size()) - 1;
        const NodeId y = build::scan(graph, op, parts);
        graph.set_outputs({{build::map(graph, ElementwiseOp::neg, {y}), "y", {}}});
        EXPECT_TRUE(testing::agrees(graph, inputs, device()))
            << tuples.name << " of " << Shape::of(extents).to_string() << " along " << axis;
      }
}

INSTANTIATE_TEST_SUITE_P(Devices, Scans, ::testing::Values("", "sim:cpu", "sim:sm_90"),
                         [](const auto& device) {
                           const std::string name = device.param;
                           return name.empty() ? "Own" : name == "sim:cpu" ? "SimCpu" : "SimSm90";
                         });

TEST(Reductions, ArgMaxAndArgMin) {
  for (DType dtype : dtypes_of(kOrdered)) {
    Cases cases;
    for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{
             {{1}, 0}, {{100}, 0}, {{65, 33}, 1}, {{65, 33}, 0}, {{4, 5, 6}, 1}})
      for (bool is_max : {true, false})
        cases.output(build::arg_reduce(cases.graph(), is_max, cases.input(dtype, shape), axis));
    EXPECT_TRUE(cases.agree(5)) << name(dtype);
  }
}

// Row j of n has its greatest and its least values at j and behind it, so each place wins once.
TEST(Reductions, ArgMaxAndArgMinAtEveryPlace) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::I64, DType::I32, DType::I8,
                            DType::U16, DType::U64}) {
    for (const int64_t n : {2, 3, 4, 5, 8, 16, 17}) {
      Graph graph("places");
      const NodeId x = build::input(graph, "x", {dtype, {n, n}});
      std::vector<GraphOutput> outputs;
      for (const int64_t axis : {0, 1})
        for (const bool is_max : {false, true})
          outputs.push_back(
              {build::arg_reduce(graph, is_max, x, axis), fmt::format("y{}", outputs.size()), {}});
      graph.set_outputs(outputs);
      for (const double sign : {1.0, -1.0}) {
        HostTensor rows(dtype, {n, n});
        for (int64_t j = 0; j < n; ++j)
          for (int64_t k = 0; k < n; ++k)
            rows.set_double(j * n + k, k == j || k == (j + 5) % n ? sign : 0);
        EXPECT_TRUE(testing::agrees(graph, std::vector{rows})) << name(dtype) << " of " << n;
      }
    }
  }
}

TEST(Dots, EveryNumericDTypeAndKindOfShape) {
  for (DType dtype : dtypes_of(kNumeric)) {
    SCOPED_TRACE(name(dtype));
    Cases cases;
    Graph& graph = cases.graph();
    const auto dot = [&](const Shape& left, const Shape& right, DotOp op) {
      cases.output(build::dot(graph, cases.input(dtype, left), cases.input(dtype, right), op));
    };
    const auto plain = DotOp{{}, {}, {1}, {0}};
    dot({1, 1}, {1, 1}, plain);
    dot({0, 5}, {5, 3}, plain);
    dot({3, 0}, {0, 4}, plain);
    dot({7, 129}, {129, 33}, plain);
    dot({64, 64}, {64, 64}, plain);
    dot({1, 300}, {300, 40}, plain);
    dot({40, 300}, {300, 1}, plain);
    dot({33, 47}, {47, 130}, plain);
    dot({33, 47}, {130, 47}, {{}, {}, {1}, {1}});
    dot({47, 33}, {47, 130}, {{}, {}, {0}, {0}});
    dot({5, 9, 17}, {5, 17, 12}, {{0}, {0}, {2}, {1}});
    dot({3, 4, 5}, {4, 3, 6}, {{}, {}, {0, 1}, {1, 0}});
    dot({6}, {7}, {{}, {}, {}, {}});
    dot({19}, {19}, {{}, {}, {0}, {0}});
    EXPECT_TRUE(cases.agree(6));
  }
}

// Small results of long sums: a GPU cuts the sums into chunks, and a second phase with tiles of its
// own adds them. Its tiles must fit every number of rows and columns.
TEST(Dots, OfLongSums) {
  struct Factors {
    const char* device;
    DType dtype;
    bool tf32;
  };
  for (const Factors& factors :
       {Factors{"sim:sm_90", DType::F32, false}, Factors{"sim:sm_90", DType::F32, true},
        Factors{"sim:sm_90", DType::F64, false}, Factors{"sim:sm_90", DType::BF16, false},
        Factors{"sim:sm_80", DType::BF16, false}}) {
    Cases cases;
    const auto dot = [&](Shape left, Shape right, DotOp op) {
      op.tf32 = factors.tf32;
      cases.output(build::dot(cases.graph(), cases.input(factors.dtype, left),
                              cases.input(factors.dtype, right), op));
    };
    dot({64, 16'384}, {16'384, 10}, {{}, {}, {1}, {0}});
    dot({65'600, 1}, {65'600, 130}, {{}, {}, {0}, {0}});
    dot({8'000, 40}, {8'000, 33}, {{}, {}, {0}, {0}});
    dot({16, 33'000}, {16, 33'000}, {{}, {}, {1}, {1}});
    EXPECT_TRUE(cases.agree(6, testing::gpu_or(factors.device)))
        << name(factors.dtype) << (factors.tf32 ? " as tf32 on " : " on ") << factors.device;
  }
}

// Each pair of an integer dtype and a wider one that holds it.
TEST(Dots, OfIntegersWithWiderSums) {
  for (DType dtype : dtypes_of(kInteger)) {
    SCOPED_TRACE(name(dtype));
    Cases cases;
    for (DType sums : dtypes_of(kInteger)) {
      if (!is_wider_integer(sums, dtype)) continue;
      for (const auto& [left, right] :
           {std::pair(Shape{7, 129}, Shape{129, 33}), std::pair(Shape{64, 64}, Shape{64, 64}),
            std::pair(Shape{1, 300}, Shape{300, 40})})
        cases.output(build::dot(cases.graph(), cases.input(dtype, left), cases.input(dtype, right),
                                DotOp{{}, {}, {1}, {0}}, sums));
    }
    if (!cases.empty()) {
      EXPECT_TRUE(cases.agree(6));
    }
  }
}

// Weights of 4 bits are an expression over bytes: two to a byte, low half first, a scale for each
// 32 of a row. The product's kernel reads the bytes.
TEST(Dots, OfFourBitWeights) {
  const Graph graph =
      testing::parse(R"(graph @main(%x: f32[5, 128], %w: u8[48, 64], %s: f16[48, 4]) {
  %mask = constant 15 : u8[]
  %masks = broadcast %mask {axes: []} : u8[48, 64]
  %four = constant 4 : u8[]
  %fours = broadcast %four {axes: []} : u8[48, 64]
  %low = logical_and %w, %masks : u8[48, 64]
  %high = shr %w, %fours : u8[48, 64]
  %low1 = reshape %low : u8[48, 64, 1]
  %high1 = reshape %high : u8[48, 64, 1]
  %pairs = concat %low1, %high1 {axis: 2} : u8[48, 64, 2]
  %codes = reshape %pairs : u8[48, 128]
  %numbers = convert %codes : f32[48, 128]
  %eight = constant 8 : f32[]
  %eights = broadcast %eight {axes: []} : f32[48, 128]
  %centred = sub %numbers, %eights : f32[48, 128]
  %scale = convert %s : f32[48, 4]
  %scale1 = broadcast %scale {axes: [0, 1]} : f32[48, 4, 32]
  %scales = reshape %scale1 : f32[48, 128]
  %weights = mul %centred, %scales : f32[48, 128]
  %y = dot %x, %weights {contract: [1] x [1]} : f32[5, 48]
  return %y
})");
  const auto inputs = fuzz::random_inputs(graph, 3);
  for (const std::string& device : {testing::test_device().name(), std::string("sim:sm_90")}) {
    EXPECT_TRUE(testing::agrees(graph, inputs, Device(device)));
    const auto program = testing::compile_for(Device(device), graph, {.by_cost = false});
    EXPECT_EQ(program->launches.size(), 1u) << device;
  }
}

// Every dtype on the simulator of GPUs: memory, conversions, sums and greatest values within and
// between threads, places of the greatest, gathered rows.
TEST(DTypes, OnTheSimulator) {
  for (DType dtype : kAllDTypes) {
    SCOPED_TRACE(name(dtype));
    Cases cases;
    Graph& graph = cases.graph();
    const NodeId x = cases.input(dtype, {70, 40}), y = cases.input(dtype, {70, 40});
    for (DType to : kAllDTypes) cases.output(build::convert(graph, x, to));
    cases.output(build::transpose(graph, x, {1, 0}));
    cases.output(build::gather(graph, x,
                               build::constant(graph,
                                               [] {
                                                 HostTensor t(DType::I32, {3});
                                                 for (int64_t i = 0; i < 3; ++i)
                                                   t.set_int(i, 30 * i);
                                                 return t;
                                               }()),
                               0));
    if (kOrdered.contains(dtype)) {
      cases.output(build::map(graph, ElementwiseOp::max, {x, y}));
      cases.output(build::map(graph, ElementwiseOp::lt, {x, y}));
      for (const int64_t axis : {0, 1}) {
        cases.output(build::reduce(graph, Monoid::Max, x, {axis}));
        cases.output(build::arg_reduce(graph, false, x, axis));
      }
    }
    if (kNumeric.contains(dtype)) {
      for (const auto op : {ElementwiseOp::add, ElementwiseOp::mul, ElementwiseOp::div})
        cases.output(build::map(graph, op, {x, y}));
      for (const int64_t axis : {0, 1}) cases.output(build::reduce(graph, Monoid::Sum, x, {axis}));
      cases.output(build::dot(graph, x, y, DotOp{{}, {}, {1}, {1}}));
    }
    if (kInteger.contains(dtype))
      for (const auto op : {ElementwiseOp::shl, ElementwiseOp::shr, ElementwiseOp::rem})
        cases.output(build::map(graph, op, {x, y}));
    EXPECT_TRUE(cases.agree(9, Device("sim:sm_90")));
  }
}

TEST(Movement, OnEveryDType) {
  for (DType dtype : kAllDTypes) {
    SCOPED_TRACE(name(dtype));
    Cases cases;
    Graph& graph = cases.graph();
    const NodeId x = cases.input(dtype, {6, 10}), y = cases.input(dtype, {6, 3}),
                 fill = cases.input(dtype, {});
    const NodeId index = build::constant(graph, [] {
      HostTensor t(DType::I32, {4});
      for (int64_t i = 0; i < 4; ++i) t.set_int(i, (i * 5 + 1) % 6);
      return t;
    }());
    cases.output(build::reshape(graph, x, {3, 4, 5}));
    cases.output(build::transpose(graph, x, {1, 0}));
    cases.output(build::slice(graph, x, {1, 2}, {6, 9}, {2, 3}));
    cases.output(build::pad(graph, x, fill, {1, 0}, {2, 3}, {0, 2}));
    cases.output(build::windows(graph, x, fill, {{0}, {1}, {2}, {1}, {1}, {3}}, {5, 10}));
    cases.output(build::windows(graph, x, fill, {{1}, {0}, {1}, {-2}, {3}, {-4}}, {6, 17}));
    cases.output(build::concat(graph, {x, y, x}, 1));
    cases.output(build::reverse(graph, x, {0, 1}));
    cases.output(build::gather(graph, x, index, 0));
    cases.output(build::broadcast(graph, y, {6, 3, 4}, {0, 1}));
    if (kNumeric.contains(dtype)) {
      cases.output(build::iota(graph, {dtype, {5, 7}}, 1));
      cases.output(build::scatter_add(graph, x, index, build::gather(graph, x, index, 0), 0));
    }
    EXPECT_TRUE(cases.agree(7));
  }
}

TEST(Movement, CropsOfSeveralSymbolicSizes) {
  const Graph graph = testing::parse(R"(symbol n: 2..64
symbol m: 4..9
graph @main(%x: f32[n, n], %y: f32[n, m]) {
  %z = slice %x {starts: [1, 1], limits: [n, n], strides: [1, 1]} : f32[n - 1, n - 1]
  %w = slice %y {starts: [1, 2], limits: [n, m], strides: [1, 1]} : f32[n - 1, m - 2]
  %e = neg %z : f32[n - 1, n - 1]
  %s = reduce sum %w {axes: [1]} : f32[n - 1]
  %r = reshape %w : f32[(n - 1) * (m - 2)]
  return %e, %s, %r
})");
  for (const uint64_t seed : {1, 2, 3})
    EXPECT_TRUE(testing::agrees(graph, fuzz::random_inputs(graph, seed)));
}

TEST(Random, BitsAreTheInterpretersBits) {
  Cases cases;
  const NodeId key = cases.input(DType::U32, {2});
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{1000}, Shape{13, 5}})
    cases.output(build::random_bits(cases.graph(), key, shape));
  EXPECT_TRUE(cases.agree(8));
}

}  // namespace
}  // namespace braze
