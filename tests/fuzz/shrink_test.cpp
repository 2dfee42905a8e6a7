#include "tests/fuzz/shrink.h"

#include <gtest/gtest.h>

#include "ir/graph/build.h"
#include "ir/graph/check.h"
#include "ir/graph/interpret.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"
#include "tests/fuzz/generator.h"

namespace braze::fuzz {
namespace {

/// A compiler with a bug: max(x, y) as `x < y ? y : x`, which loses a NaN in y and the order of
/// zeros.
std::vector<HostTensor> wrong_max(const Case& c) {
  const Graph compiled = rewrite(c.graph, [](const Rewriting& step) {
    const MapOp* map = step.node.as<MapOp>();
    if (!map || map->op != ElementwiseOp::max) return step.keep();
    const NodeId x = step.operands[0], y = step.operands[1];
    const NodeId less = build::map(step.result, ElementwiseOp::lt, {x, y});
    return build::map(step.result, ElementwiseOp::select, {less, y, x});
  });
  return interpret(compiled, c.inputs);
}

/// A compiler with another bug: sums over the last axis forget its last element.
std::vector<HostTensor> short_sum(const Case& c) {
  const Graph compiled = rewrite(c.graph, [](const Rewriting& step) {
    const ReduceOp* reduce = step.node.as<ReduceOp>();
    if (!reduce || reduce->monoid != Monoid::Sum) return step.keep();
    const Shape shape = step.result[step.operands[0]].type.shape;
    if (!shape.is_static()) return step.keep();
    const size_t axis = static_cast<size_t>(reduce->axes.back());
    if (shape[axis].is_constant(0)) return step.keep();
    std::vector<Expr> starts(shape.rank(), 0), limits = shape.dims();
    limits[axis] = limits[axis] - 1;
    const NodeId cut = build::slice(step.result, step.operands[0], starts, limits,
                                    std::vector<int64_t>(shape.rank(), 1));
    return build::rebuild(step.result, step.node, {cut});
  });
  return interpret(compiled, c.inputs);
}

void expect_shrinks(std::vector<HostTensor> (*compiler)(const Case&), size_t most_nodes) {
  const auto fails = [&](const Case& c) {
    return !check_outputs(c.graph, c.inputs, compiler(c)).ok;
  };
  int found = 0;
  for (uint64_t seed = 2'000; seed < 14'000 && found < 3; ++seed) {
    Case c{random_graph(seed), {}};
    c.inputs = random_inputs(c.graph, seed);
    if (c.graph.size() < 10 || !fails(c)) continue;
    ++found;
    const Case small = shrink(c, fails);
    EXPECT_TRUE(fails(small));
    EXPECT_LE(small.graph.size(), most_nodes) << "seed " << seed << "\n" << to_text(small.graph);
    for (const HostTensor& x : small.inputs)
      EXPECT_LE(x.numel(), 8) << "seed " << seed << "\n" << to_text(small.graph);
    // The text alone fails as the case does.
    const Case again{parse_graph(reproducer(small), "reproducer"), {}};
    EXPECT_TRUE(fails(again)) << reproducer(small);
  }
  EXPECT_EQ(found, 3);
}

TEST(Shrink, FindsTheWrongMaximum) { expect_shrinks(wrong_max, 6); }
TEST(Shrink, FindsTheShortSum) { expect_shrinks(short_sum, 4); }

}  // namespace
}  // namespace braze::fuzz
