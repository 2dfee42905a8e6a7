#include "compiler/passes/sort_scatters.h"

#include <algorithm>
#include <cmath>

#include "compiler/passes/graph_emitter.h"
#include "compiler/passes/search_by_halves.h"
#include "compiler/passes/unscatter.h"
#include "ir/graph/rewrite.h"
#include "ir/ops/combiner.h"
#include "ir/ops/elementwise.h"

namespace braze {

namespace {

// What a block takes to look at one place of another block, in flops of the target's rate: on an
// H200, 1,539 blocks look at 200,000 places each in about 200 us.
constexpr double kSeekFlops = 44;
// Bytes of sums that a block keeps on chip, and the least number of blocks of a multiprocessor.
constexpr double kBlockBytes = 6656, kLeastBlocks = 12;
// What a merge moves of each term, the share of the memory's rate that it reaches, and the launches
// that a short one takes as long as.
constexpr double kMergedBytes = 24, kMergeShare = 0.67, kMergeLaunches = 1.7;
// Terms that are sorted before the first merge, and the kernels before and after all merges.
constexpr double kSortedAtOnce = 32, kOtherKernels = 6;
// How often the terms are moved: read to find the totals of chunks, read again and written.
constexpr double kTermMoves = 3;
// The sort has many kernels more, and places are seldom as uneven as the estimate of the scatter
// assumes. So it has to be faster by this factor.
constexpr double kLeastGain = 4;

double most(const Shape& shape) { return static_cast<double>(shape.numel().range().max); }

bool pays(const Node& scatter, const Shape& indices, const Target& target) {
  const double terms = most(indices), elements = most(scatter.type.shape);
  const auto axis = static_cast<size_t>(scatter.as<ScatterOp>()->axis);
  const double places = std::max(most(Shape({scatter.type.shape[axis]})), 1.0);
  const auto size = static_cast<double>(size_of(compute_type(scatter.type.dtype)));
  const double blocks = std::clamp(
      elements * size / kBlockBytes,
      std::min(places, kLeastBlocks * static_cast<double>(target.cores)), std::max(places, 1.0));
  const double seeking =
      blocks * terms * kSeekFlops / target.flops_per_second + waiting_seconds(scatter, indices);
  const double merges = std::ceil(std::log2(std::max(terms / kSortedAtOnce, 1.0)));
  const double sorting =
      (merges + kOtherKernels) * kMergeLaunches * target.launch_seconds +
      merges * terms * kMergedBytes / (kMergeShare * target.memory_bytes_per_second) +
      kTermMoves * terms * elements / places * size / target.memory_bytes_per_second;
  return seeking > kLeastGain * sorting;
}

// Combines pairs of a flag and a value: a value with a flag forgets what is before it.
Combiner restarting(Monoid monoid, DType dtype) {
  CombinerBody body{{DType::I32, dtype}, {0, info(monoid).padding(dtype)}, {}, {}};
  const auto part = [&](CombinerStep::Kind kind, uint32_t number) {
    return body.add({.kind = kind, .dtype = body.dtypes[number], .part = number});
  };
  const uint32_t begun = part(CombinerStep::Kind::Left, 0),
                 before = part(CombinerStep::Kind::Left, 1);
  const uint32_t begins = part(CombinerStep::Kind::Right, 0),
                 own = part(CombinerStep::Kind::Right, 1);
  const uint32_t zero =
      body.add({.kind = CombinerStep::Kind::Constant, .dtype = DType::I32, .bits = 0});
  const uint32_t restarts = add_row(body, ElementwiseOp::gt, {begins, zero});
  const uint32_t both = add_row(body, info(monoid).combine, {before, own});
  body.results = {add_row(body, ElementwiseOp::max, {begun, begins}),
                  add_row(body, ElementwiseOp::select, {restarts, own, both})};
  return Combiner(std::move(body));
}

// The dtype in which terms are combined: sums of narrow integers wrap when they are stored.
DType combined_in(DType dtype) {
  const bool narrow = !is_floating(dtype) && dtype != DType::Bool && size_of(dtype) < 4;
  return narrow ? DType::I32 : compute_type(dtype);
}

// A scan of tuples has no parts of u64 (combiner.h).
bool can_be_scanned(const ScatterOp& op, DType dtype) { return !op.monoid || dtype != DType::U64; }

struct SortedScatter {
  const Rewriting& step;
  const ScatterOp& op;
  int64_t terms;
  Graph& graph = step.result;
  SourceLocation where = step.node.location;
  NodeId x = step.operands[0], indices = step.operands[1], updates = step.operands[2];
  TensorType x_type = graph[x].type;
  Expr extent = x_type.shape[static_cast<size_t>(op.axis)];
  GraphEmitter emitter{graph, where, /*expand_formulas=*/true};

  Scalar value(NodeId node) { return emitter.value(node); }
  static NodeId node(const Scalar& scalar) { return GraphEmitter::node(scalar); }

  NodeId run() {
    const NodeId places = places_of_terms();
    const NodeId order = build::arg_sort(graph, {0, false}, places, terms, where);
    const NodeId sorted = build::gather(graph, places, order, 0, where);
    const Scalar place = value(build::iota(graph, {DType::I32, Shape({extent})}, 0, where));
    const Scalar zero = place.constant(0), last = max(count_up_to(sorted, place) - 1, zero);
    const Scalar there = eq(value(build::gather(graph, sorted, node(last), 0, where)), place);
    const NodeId is_there = build::broadcast(graph, node(there), x_type.shape, {op.axis}, where);
    const NodeId taken = op.monoid ? combined(order, sorted, last) : replaced(order, last);
    return build::map(graph, ElementwiseOp::select, {is_there, taken, x}, where);
  }

  // The places, clamped as gather clamps indices, in one line.
  NodeId places_of_terms() {
    const NodeId end = build::size(graph, extent - 1, where);
    Scalar place =
        convert(value(build::reshape(graph, indices, Shape({Expr(terms)}), where)), DType::I64);
    place = max(min(place, value(end)), place.constant(0));
    return node(convert(place, DType::I32));
  }

  // How many of the sorted places are at most each of some places.
  Scalar count_up_to(NodeId sorted, const Scalar& place) {
    const auto number = [&](int64_t n) { return place.constant(static_cast<double>(n)); };
    const Scalar none = number(0), all = number(terms);
    return search_by_halves(none, all, terms, [&](const Scalar& middle) {
      const Scalar there = min(middle, number(terms - 1));
      return le(value(build::gather(graph, sorted, node(there), 0, where)), place);
    });
  }

  // The updates in the order of their places: one axis in the place of the scattered one.
  NodeId rows(NodeId order) {
    std::vector<Expr> dims = x_type.shape.dims();
    dims[static_cast<size_t>(op.axis)] = Expr(terms);
    const NodeId lines = build::reshape(graph, updates, Shape(std::move(dims)), where);
    return build::gather(graph, lines, order, op.axis, where);
  }

  // x combined with the total of each place's terms.
  NodeId combined(NodeId order, NodeId sorted, const Scalar& last) {
    const Monoid monoid = *op.monoid;
    const DType wide = combined_in(x_type.dtype);
    const NodeId values = build::convert(graph, rows(order), wide, where);
    const NodeId none = build::scalar(graph, DType::I32, -1, where);
    const NodeId before =
        build::pad(graph, build::slice(graph, sorted, {Expr(0)}, {Expr(terms - 1)}, {1}, where),
                   none, {Expr(1)}, {Expr(0)}, {0}, where);
    const NodeId begins = node(convert(ne(value(sorted), value(before)), DType::I32));
    const NodeId flags =
        build::broadcast(graph, begins, graph[values].type.shape, {op.axis}, where);
    const ScanOp scan{restarting(monoid, wide), op.axis, false, false, 1};
    const NodeId totals = build::scan(graph, scan, {flags, values}, where);
    const NodeId own = build::gather(graph, totals, node(last), op.axis, where);
    const NodeId all = build::map(graph, info(monoid).combine,
                                  {build::convert(graph, x, wide, where), own}, where);
    return build::convert(graph, all, x_type.dtype, where);
  }

  // The last term of each place.
  NodeId replaced(NodeId order, const Scalar& last) {
    return build::gather(graph, rows(order), node(last), op.axis, where);
  }
};

}  // namespace

Graph sort_scatters(const Graph& graph, const Target& target) {
  const std::vector<bool> in_place = scatters_in_place(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* scatter = step.node.as<ScatterOp>();
    if (!scatter) return step.keep();
    const Shape& indices = step.result[step.operands[1]].type.shape;
    const auto terms = indices.numel().as_constant();
    const Interval places = step.node.type.shape[static_cast<size_t>(scatter->axis)].range();
    if (!terms || *terms < 2 || *terms > INT32_MAX / 2 || places.min < 1 ||
        places.max > INT32_MAX || !can_be_scanned(*scatter, step.node.type.dtype) ||
        !pays(step.node, indices, target) ||
        (in_place[step.id.index] && !moving_pays(step.node, indices, target)))
      return step.keep();
    return SortedScatter{step, *scatter, *terms}.run();
  });
}

}  // namespace braze
