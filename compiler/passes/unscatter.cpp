#include "compiler/passes/unscatter.h"

#include <algorithm>

#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"

namespace braze {

namespace {

// What a comparison takes with all that belongs to it, in flops of the target's rate: the index,
// the select and the sum. An H100 makes 5e12 of them in a second.
constexpr double kComparisonFlops = 13.4;
// The share of the memory's rate that reading and writing the result reach.
constexpr double kMemoryShare = 0.9;
// Seconds of one term in its place, if all terms have to wait for each other there: barriers of a
// block and ways to the cache, of which no rate of a target tells.
constexpr double kTermSeconds = 0.57e-6;
// The share of all terms that go to one place, if there are many places: a few indices are frequent
// in most data. The greatest share decides when the last block ends.
constexpr double kFrequentShare = 1.0 / 32;

double most(const Shape& shape) { return static_cast<double>(shape.numel().range().max); }

// Seconds for reading and writing all of what the scatter updates.
double moving_seconds(const Node& scatter, const Target& target) {
  const double bytes = most(scatter.type.shape) * static_cast<double>(size_of(scatter.type.dtype));
  return 2 * bytes / (target.memory_bytes_per_second * kMemoryShare);
}

// Whether a reduction for all elements takes less time than the scatter. A scatter that takes over
// the memory of x does not have to move the elements that no term reaches.
bool pays(const Node& scatter, const Shape& indices, bool in_place, const Target& target) {
  const double comparisons = most(scatter.type.shape) * most(indices);
  const double comparing = comparisons * kComparisonFlops / target.flops_per_second;
  const double moving = in_place ? moving_seconds(scatter, target) : 0;
  return comparing + moving < waiting_seconds(scatter, indices);
}

// From this number of terms on, indices of 64 bits are stored as 32 bits before a scatter searches
// them. Each of its blocks looks at all of them, and compares half as many bits.
constexpr double kLeastNarrowed = 32768;

// A scatter as a reduction over its terms.
struct Scatter {
  const Rewriting& step;
  const ScatterOp& op;
  Graph& graph = step.result;
  SourceLocation where = step.node.location;
  NodeId x = step.operands[0], indices = step.operands[1], updates = step.operands[2];
  TensorType x_type = graph[x].type;
  Shape index_shape = graph[indices].type.shape;
  DType index_type = graph[indices].type.dtype;
  Expr extent = x_type.shape[static_cast<size_t>(op.axis)];
  size_t axis = static_cast<size_t>(op.axis), index_rank = index_shape.rank();

  // The indices, clamped as gather clamps them.
  NodeId clamped() const {
    const NodeId last =
        build::convert(graph, build::size(graph, extent - 1, where), index_type, where);
    const NodeId below = build::map(graph, ElementwiseOp::min, {indices, last}, where);
    return build::map(graph, ElementwiseOp::max,
                      {below, build::scalar(graph, index_type, 0, where)}, where);
  }

  // The same scatter with clamped indices of 32 bits.
  NodeId narrowed() const {
    return build::scatter(graph, op, x, build::convert(graph, clamped(), DType::I32, where),
                          updates, where);
  }
  // Places are compared in the dtype of the indices.
  bool holds_places() const {
    return index_type == DType::I64 || extent.range().max - 1 <= INT32_MAX;
  }
  bool is_narrowed() const {
    return index_type == DType::I64 && most(index_shape) >= kLeastNarrowed &&
           extent.range().max <= INT32_MAX;
  }

  // The terms, over the result's axes before `axis`, the indices' axes, and the result's axes from
  // `axis` on. A term is the update if its index is that of the element, and the monoid's identity
  // otherwise.
  NodeId combined() const {
    std::vector<Expr> dims(x_type.shape.begin(), x_type.shape.begin() + op.axis);
    dims.insert(dims.end(), index_shape.begin(), index_shape.end());
    dims.insert(dims.end(), x_type.shape.begin() + op.axis, x_type.shape.end());
    const Shape space(dims);
    const size_t place = axis + index_rank;  // of the scattered axis
    const NodeId at = build::iota(graph, {index_type, space}, static_cast<int64_t>(place), where);
    const NodeId index = build::broadcast(graph, clamped(), space,
                                          axes_from(static_cast<int64_t>(axis), index_rank), where);
    std::vector<int64_t> update_axes = axes_from(0, place);
    for (int64_t a : axes_from(static_cast<int64_t>(place) + 1, x_type.shape.rank() - axis - 1))
      update_axes.push_back(a);
    const NodeId spread = build::broadcast(graph, updates, space, update_axes, where);
    const NodeId hit = build::map(graph, ElementwiseOp::eq, {at, index}, where);
    const uint64_t nothing = info(*op.monoid).padding(x_type.dtype);
    const NodeId term =
        build::map(graph, ElementwiseOp::select,
                   {hit, spread, build::scalar_bits(graph, x_type.dtype, nothing, where)}, where);
    // 16-bit updates are summed with x in f32 and rounded once.
    const DType wide = accumulation_type(*op.monoid, x_type.dtype);
    const NodeId total = build::reduce(graph, *op.monoid, build::convert(graph, term, wide, where),
                                       axes_from(static_cast<int64_t>(axis), index_rank), where);
    const NodeId all = build::map(graph, info(*op.monoid).combine,
                                  {build::convert(graph, x, wide, where), total}, where);
    return build::convert(graph, all, x_type.dtype, where);
  }

  // Finds for each place the number of the last term that is put there, and takes that term.
  NodeId replaced() const {
    const Expr terms = index_shape.numel();
    const Shape pairs({terms, extent});
    const NodeId line = build::reshape(graph, clamped(), Shape({terms}), where);
    const NodeId hit = build::map(graph, ElementwiseOp::eq,
                                  {build::broadcast(graph, line, pairs, {0}, where),
                                   build::iota(graph, {index_type, pairs}, 1, where)},
                                  where);
    const NodeId none = build::scalar(graph, DType::I32, -1, where);
    const NodeId number =
        build::map(graph, ElementwiseOp::select,
                   {hit, build::iota(graph, {DType::I32, pairs}, 0, where), none}, where);
    const NodeId last = build::reduce(graph, Monoid::Max, number, {0}, where);
    const NodeId zero = build::scalar(graph, DType::I32, 0, where);
    std::vector<Expr> dims(x_type.shape.begin(), x_type.shape.begin() + op.axis);
    dims.push_back(terms);
    dims.insert(dims.end(), x_type.shape.begin() + op.axis + 1, x_type.shape.end());
    const NodeId rows = build::reshape(graph, updates, Shape(std::move(dims)), where);
    const NodeId term = build::gather(
        graph, rows, build::map(graph, ElementwiseOp::max, {last, zero}, where), op.axis, where);
    const NodeId is_there = build::map(graph, ElementwiseOp::ge, {last, zero}, where);
    return build::map(graph, ElementwiseOp::select,
                      {build::broadcast(graph, is_there, x_type.shape, {op.axis}, where), term, x},
                      where);
  }
};

// The value of which `id` is a reshape to the shape that it has.
NodeId without_reshapes(const Graph& graph, NodeId id) {
  while (graph[id].as<ReshapeOp>() && graph[graph[id].operands[0]].type == graph[id].type)
    id = graph[id].operands[0];
  return id;
}

// Without indices, a gather would have nothing to read. The numbers of terms have to fit in i32.
bool has_terms(const Shape& indices) {
  const Interval count = indices.numel().range();
  return count.min >= 1 && count.max <= INT32_MAX;
}

}  // namespace

double waiting_seconds(const Node& scatter, const Shape& indices) {
  const auto axis = static_cast<size_t>(scatter.as<ScatterOp>()->axis);
  const double places = most(Shape({scatter.type.shape[axis]}));
  return most(indices) * kTermSeconds * std::max(kFrequentShare, 1 / places);
}

bool moving_pays(const Node& scatter, const Shape& indices, const Target& target) {
  return moving_seconds(scatter, target) < waiting_seconds(scatter, indices);
}

std::vector<bool> scatters_in_place(const Graph& graph) {
  std::vector<bool> out(graph.size());
  for (const GraphOutput& output : graph.outputs()) {
    if (!output.updates) continue;
    const NodeId value = without_reshapes(graph, output.node);
    const Node& node = graph[value];
    if (node.as<ScatterOp>() &&
        without_reshapes(graph, node.operands[0]) == graph.inputs()[*output.updates])
      out[value.index] = true;
  }
  return out;
}

Graph unscatter(const Graph& graph, const Target& target) {
  const std::vector<bool> in_place = scatters_in_place(graph);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* scatter = step.node.as<ScatterOp>();
    if (!scatter) return step.keep();
    const Shape& indices = step.result[step.operands[1]].type.shape;
    const Scatter made{step, *scatter};
    const bool may_pay = made.holds_places() && (scatter->monoid || has_terms(indices));
    if (!may_pay || !pays(step.node, indices, in_place[step.id.index], target))
      return made.is_narrowed() ? made.narrowed() : step.keep();
    return scatter->monoid ? made.combined() : made.replaced();
  });
}

}  // namespace braze
