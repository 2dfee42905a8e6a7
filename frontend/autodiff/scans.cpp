// scans.cpp — gradients of scans. Each is a scan in the other direction, of the gradients of the
// results; those of products and tuples weigh them by what the elements make of earlier totals.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "compiler/passes/graph_emitter.h"
#include "frontend/autodiff/backward_p.h"
#include "frontend/builder/builder.h"
#include "ir/graph/build.h"
#include "ir/support/text.h"

namespace braze::autodiff {
namespace {

/// At each index along the scan's axis: the element of x that comes `distance` steps later in the
/// order of the scan, or `fill` after the end.
NodeId later(Backward& b, NodeId x, const ScanOp& op, int64_t distance, NodeId fill) {
  const TensorType x_type = b.type(x);
  const size_t rank = x_type.shape.rank();
  std::vector<Expr> low(rank, Expr(0)), high(rank, Expr(0)), starts(rank, Expr(0));
  (op.reverse ? low : high)[at(op.axis)] = distance;
  std::vector<Expr> limits = x_type.shape.dims();
  if (!op.reverse) {
    starts[at(op.axis)] = distance;
    limits[at(op.axis)] += distance;
  }
  const NodeId padded =
      build::pad(b.graph, x, fill, std::move(low), std::move(high), Axes64(rank, 0), b.where());
  return build::slice(b.graph, padded, std::move(starts), std::move(limits), Axes64(rank, 1),
                      b.where());
}
NodeId later(Backward& b, NodeId x, const ScanOp& op, int64_t distance, double fill) {
  return later(b, x, op, distance, b.scalar(b.type(x).dtype, fill));
}

/// The gradient of the results of the inclusive scan. The last element of an exclusive scan
/// contributes to no result.
NodeId gradient_of_inclusive(Backward& b, const ScanOp& op) {
  const NodeId g = b.convert(b.gradient, compute_type(b.node.type.dtype));
  return op.exclusive ? later(b, g, op, 1, 0) : g;
}

/// In y[i], the factor of x[j] is the product of all elements before j, times the product of
/// those between j and i. So the gradient of x[j] is the first product times a sum, and these
/// sums are S[j] = g[j] + x[j+1] * S[j+1], a recurrence. There is no division, so they are right
/// for zeros, and so are their own gradients.
NodeId running_product_gradient(Backward& b, const ScanOp& op) {
  const NodeId x = b.convert(b.node.operands[0], compute_type(b.node.type.dtype));
  const ScanOp back{linear_recurrence(b.type(x).dtype), op.axis, !op.reverse, false, 1};
  const NodeId sum = build::scan(
      b.graph, back, std::vector{later(b, x, op, 1, 1), gradient_of_inclusive(b, op)}, b.where());
  const NodeId before = build::scan(
      b.graph, ScanOp{Monoid::Prod, op.axis, op.reverse, /*exclusive=*/true}, x, b.where());
  return b.convert(b.map(ElementwiseOp::mul, {before, sum}), b.node.type.dtype);
}

/// The gradient goes to the element that last set the running extreme. Of equal elements that is
/// the latest. The same holds for NaNs, because a NaN stays the extreme.
NodeId running_extreme_gradient(Backward& b, const ScanOp& op) {
  const NodeId x = b.node.operands[0];
  const TensorType x_type = b.type(x);
  const Shape& shape = x_type.shape;
  ScanOp inclusive = op;
  inclusive.exclusive = false;
  const NodeId y = op.exclusive ? build::scan(b.graph, inclusive, x, b.where()) : b.id;
  const NodeId taken = b.map(ElementwiseOp::logical_or,
                             {b.map(ElementwiseOp::eq, {x, y}), b.map(ElementwiseOp::is_nan, {x})});
  // The index of that element along the axis. The first element always sets the extreme.
  const NodeId own = build::iota(b.graph, {DType::I64, shape}, op.axis, b.where());
  const double none = op.reverse ? 0x1p62 : -1;
  const NodeId candidate = b.map(ElementwiseOp::select, {taken, own, b.scalar(DType::I64, none)});
  const Monoid latest = op.reverse ? Monoid::Min : Monoid::Max;
  const NodeId source =
      build::scan(b.graph, ScanOp{latest, op.axis, op.reverse}, candidate, b.where());
  // Its row-major index among all elements.
  Expr inner = 1;
  for (size_t i = at(op.axis) + 1; i < shape.rank(); ++i) inner *= shape[i];
  const Shape line({shape.numel()});
  const NodeId position = build::reshape(
      b.graph, build::iota(b.graph, {DType::I64, line}, 0, b.where()), shape, b.where());
  const NodeId distance = b.map(ElementwiseOp::sub, {source, own});
  const NodeId target = b.map(
      ElementwiseOp::add,
      {position, b.map(ElementwiseOp::mul, {distance, build::size(b.graph, inner, b.where())})});
  const NodeId g = gradient_of_inclusive(b, op);
  const NodeId sums = build::scatter_add(b.graph, b.zeros({b.type(g).dtype, line}),
                                         build::reshape(b.graph, target, line, b.where()),
                                         build::reshape(b.graph, g, line, b.where()), 0, b.where());
  return b.convert(build::reshape(b.graph, sums, shape, b.where()), x_type.dtype);
}

/// Derivatives of the results of a combiner's body by its tuples, at given tuples.
class Derivatives {
 public:
  Derivatives(Backward& outer, const CombinerBody& body, const std::vector<NodeId>& left,
              const std::vector<NodeId>& right)
      : outer_(outer), body_(body) {
    GraphEmitter emitter(outer.graph, outer.where(), /*expand_formulas=*/true);
    for (const CombinerStep& step : body.steps) {
      std::vector<Scalar> arguments;
      switch (step.kind) {
        case CombinerStep::Kind::Left:
          values_.push_back(left[step.part]);
          break;
        case CombinerStep::Kind::Right:
          values_.push_back(right[step.part]);
          break;
        case CombinerStep::Kind::Constant:
          values_.push_back(GraphEmitter::node(emitter.constant(step.dtype, step.bits)));
          break;
        case CombinerStep::Kind::Apply:
          for (const uint32_t a : step.arguments) arguments.push_back(emitter.value(values_[a]));
          values_.push_back(GraphEmitter::node(emitter.apply(step.op, arguments, step.dtype)));
          break;
      }
    }
  }

  /// The gradients of the parts of one tuple, if those of some results are `seeds`. An empty id
  /// means zero.
  std::vector<NodeId> of(const std::map<size_t, NodeId>& seeds, CombinerStep::Kind tuple) const {
    GraphEmitter emitter(outer_.graph, outer_.where(), /*expand_formulas=*/true);
    std::vector<NodeId> gradient(values_.size());
    const auto add = [&](uint32_t step, NodeId more) {
      NodeId& sum = gradient[step];
      sum = sum ? outer_.map(ElementwiseOp::add, {sum, more}) : more;
    };
    for (const auto& [part, seed] : seeds) add(body_.results[part], seed);
    std::vector<NodeId> out(body_.dtypes.size());
    for (size_t i = values_.size(); i-- > 0;) {
      const CombinerStep& step = body_.steps[i];
      if (!gradient[i] || !is_floating(step.dtype)) continue;
      if (step.kind == tuple) out[step.part] = gradient[i];
      if (step.kind != CombinerStep::Kind::Apply || !info(step.op).gradient) continue;
      std::array<Scalar, 3> x;
      for (size_t k = 0; k < step.arguments.size(); ++k)
        x[k] = emitter.value(values_[step.arguments[k]]);
      const Gradients parts = info(step.op).gradient(emitter.value(gradient[i]),
                                                     emitter.value(values_[i]), x[0], x[1], x[2]);
      for (size_t k = 0; k < step.arguments.size(); ++k)
        if (parts.of[k] && is_floating(body_.steps[step.arguments[k]].dtype))
          add(step.arguments[k], GraphEmitter::node(parts.of[k]));
    }
    return out;
  }

 private:
  Backward& outer_;
  const CombinerBody& body_;
  std::vector<NodeId> values_;
};

NodeId spread_scalar(Backward& b, NodeId x) {
  return build::broadcast_to(b.graph, x, b.node.type.shape, b.where());
}

/// Of a matrix: the values at (row, column). Other entries are zero for all t.
using Entries = std::map<std::pair<size_t, size_t>, NodeId>;

/// Adds entries, so that the products of such matrices have none elsewhere: they lead where paths
/// of entries lead. The identity has those of the diagonal.
void close_under_products(Entries& entries, const std::vector<size_t>& active,
                          const std::function<NodeId(size_t part)>& zeros_of) {
  for (const size_t i : active)
    if (!entries.contains({i, i})) entries[{i, i}] = zeros_of(i);
  for (const size_t k : active)
    for (const size_t i : active)
      for (const size_t j : active)
        if (entries.contains({i, k}) && entries.contains({k, j}) && !entries.contains({i, j}))
          entries[{i, j}] = zeros_of(i);
}

void check_part_count(const Backward& b, size_t count) {
  if (count <= kMostCombinerParts) return;
  fail(codes::kNotDifferentiable,
       fmt::format("grad: the gradient of this scan is a scan of tuples of {} values, and at most "
                   "{} are possible",
                   count, kMostCombinerParts),
       {.location = b.where(),
        .node = "scan",
        .fix = "scan fewer parts at once, or give the elements as stop_gradient(x)"});
}

/// The parts `active` of l[t] = M[t] l[t + 1] + g[t], where M has these entries.
std::vector<NodeId> scanned_gradients(Backward& b, const ScanOp& op, const CombinerBody& of,
                                      const std::vector<size_t>& active, Entries entries) {
  const auto zeros_of = [&](size_t part) { return b.zeros({of.dtypes[part], b.node.type.shape}); };
  close_under_products(entries, active, zeros_of);
  check_part_count(b, entries.size() + active.size());
  CombinerBody body;
  std::vector<NodeId> elements;
  std::map<std::pair<size_t, size_t>, uint32_t> matrix;  // numbers of parts
  std::map<size_t, uint32_t> vector;
  const auto add_part = [&](NodeId element, double identity) {
    const DType dtype = b.type(element).dtype;
    body.dtypes.push_back(dtype);
    body.identity.push_back(constant_bits(dtype, identity));
    elements.push_back(element);
    return static_cast<uint32_t>(elements.size() - 1);
  };
  for (const auto& [at, element] : entries)
    matrix[at] = add_part(element, at.first == at.second ? 1 : 0);
  for (const size_t i : active)
    vector[i] =
        add_part(i == static_cast<size_t>(op.part) ? gradient_of_inclusive(b, op) : zeros_of(i), 0);
  const auto value = [&](CombinerStep::Kind kind, uint32_t part) {
    return body.add({.kind = kind, .dtype = body.dtypes[part], .part = part});
  };
  // Sums of products of the right matrix (that of the earlier element) with the left tuple.
  const auto product = [&](size_t row, const auto& left, std::optional<uint32_t> sum) {
    for (const size_t k : active) {
      const auto factor = matrix.find({row, k});
      const std::optional<uint32_t> other = left(k);
      if (factor == matrix.end() || !other) continue;
      const uint32_t x = value(CombinerStep::Kind::Right, factor->second),
                     y = value(CombinerStep::Kind::Left, *other);
      sum = sum ? add_row(body, ElementwiseOp::fma, {x, y, *sum})
                : add_row(body, ElementwiseOp::mul, {x, y});
    }
    return *sum;
  };
  for (const auto& [at, part] : matrix) {
    const size_t column = at.second;
    body.results.push_back(product(
        at.first,
        [&](size_t k) {
          const auto found = matrix.find({k, column});
          return found == matrix.end() ? std::nullopt : std::optional(found->second);
        },
        std::nullopt));
  }
  for (const size_t i : active)
    body.results.push_back(product(
        i, [&](size_t k) { return std::optional(vector.at(k)); },
        value(CombinerStep::Kind::Right, vector.at(i))));
  const Combiner combiner(std::move(body));
  std::vector<NodeId> out;
  for (const size_t i : active)
    out.push_back(build::scan(
        b.graph, ScanOp{combiner, op.axis, !op.reverse, false, static_cast<int64_t>(vector.at(i))},
        elements, b.where()));
  return out;
}

/// The gradient of a scan of tuples. The tuples s[t] = F(s[t - 1], x[t]) are computed by the
/// combiner F, so the gradients of s are l[t] = g[t] + J[t + 1]' l[t + 1], where J[t + 1] holds
/// the derivatives of F by its left tuple at t + 1. These are a scan of matrices and vectors (J',
/// g) in the other direction. Parts of l that are zero for all t, and entries of J that are zero,
/// are left out, so the gradient of a first-order recurrence is one more such recurrence. Then
/// x[t] gets the derivatives of F by its right tuple, times l[t].
void tuple_gradient(Backward& b, const ScanOp& op) {
  const CombinerBody& body = *op.combiner.body();
  const size_t parts = body.dtypes.size();
  std::vector<NodeId> elements;
  for (size_t i = 0; i < parts; ++i)
    elements.push_back(b.convert(b.node.operands[i], body.dtypes[i]));
  std::vector<NodeId> before;  // s[t - 1]
  for (size_t i = 0; i < parts; ++i) {
    ScanOp own = op;
    own.part = static_cast<int64_t>(i);
    const NodeId totals = build::scan(b.graph, own, elements, b.where());
    ScanOp back = op;
    back.reverse = !op.reverse;
    const NodeId none = build::scalar_bits(b.graph, body.dtypes[i], body.identity[i], b.where());
    before.push_back(op.exclusive ? totals : later(b, totals, back, 1, none));
  }
  const Derivatives derivatives(b, body, before, elements);

  // The parts of l, and for each the parts of l that come later and contribute to it.
  std::vector<size_t> active = {static_cast<size_t>(op.part)};
  Entries entries;
  for (size_t n = 0; n < active.size(); ++n) {
    const size_t from = active[n];
    const NodeId one = b.scalar(body.dtypes[from], 1);
    const std::vector<NodeId> left = derivatives.of({{from, one}}, CombinerStep::Kind::Left);
    for (size_t to = 0; to < parts; ++to) {
      if (!left[to]) continue;
      entries[{to, from}] = later(b, spread_scalar(b, left[to]), op, 1, 0);
      if (std::find(active.begin(), active.end(), to) == active.end()) active.push_back(to);
    }
  }
  std::vector<NodeId> sums = scanned_gradients(b, op, body, active, entries);
  std::map<size_t, NodeId> seeds;
  for (size_t n = 0; n < active.size(); ++n) seeds[active[n]] = sums[n];
  const std::vector<NodeId> right = derivatives.of(seeds, CombinerStep::Kind::Right);
  for (size_t i = 0; i < parts; ++i)
    if (b.wants(i) && right[i])
      b.out[i] = b.convert(spread_scalar(b, right[i]), b.operand_type(i).dtype);
}

}  // namespace

void backward(Backward& b, const ScanOp& op) {
  if (op.combiner.body()) return tuple_gradient(b, op);
  switch (*op.combiner.monoid()) {
    case Monoid::Sum:
      b.out[0] = build::scan(b.graph, ScanOp{Monoid::Sum, op.axis, !op.reverse, op.exclusive},
                             b.gradient, b.where());
      break;
    case Monoid::Prod:
      b.out[0] = running_product_gradient(b, op);
      break;
    case Monoid::Max:
    case Monoid::Min:
      b.out[0] = running_extreme_gradient(b, op);
      break;
    case Monoid::And:
    case Monoid::Or:
      break;
  }
}

}  // namespace braze::autodiff
