#include "compiler/passes/split_dots.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>
#include <set>

#include "compiler/passes/moved_axes.h"
#include "compiler/passes/product_prices.h"
#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/rewrite.h"
#include "ir/target/features.h"

namespace braze {

namespace {

constexpr int64_t kTile = 128;  // rows and columns of a tile, approximately
constexpr int64_t kLeastSum =
    1024;  // the number of terms from which on a partial sum is worth writing
constexpr int64_t kSumMultiple = 64;    // of the terms, for bulk copies
constexpr int64_t kCopiedElements = 8;  // of 16 bits, whose multiples bulk copies move

// A CPU divides sums of many terms, because tasks read the factors of a part again from their
// caches. The numbers are no facts of a machine, so that all CPUs add in the same order.
constexpr int64_t kDeepSum = 5120, kTermsOfPart = 1024;
constexpr int64_t kManyRows = 56;       // from which on several tasks read a factor
constexpr int64_t kFewResults = 1024;   // which are too few tasks without parts
constexpr int64_t kShareOfResults = 4;  // factors have at least so many elements for each result

// On a GPU with asynchronous units, the estimate decides. These numbers of parts are tried, and one
// has to take less than this share of the time of the rule's. Of 62 products with 40 to 700 rows on
// an H200 that gave nine another number: eight were up to 1.6 times as fast, and one 2 % slower.
constexpr int64_t kTriedParts[] = {2, 3, 4, 6, 8};
constexpr double kClearly = 0.9;
constexpr std::ptrdiff_t kTriedEqual = 4;  // cuts into equal parts, the most parts first

int64_t elements(const Shape& shape, const std::vector<int64_t>& axes) {
  int64_t out = 1;
  for (const int64_t axis : axes) out *= shape[static_cast<size_t>(axis)].range().max;
  return out;
}

// Whether the factor is made from another dot through a reduction. With few rows, such dots may be
// one kernel, of which parts of the walk become chunks.
bool is_made_by_reductions(const Graph& graph, NodeId factor) {
  bool dots = false, reduces = false;
  std::set<NodeId> seen;
  std::vector<NodeId> open = {factor};
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    reduces = reduces || graph[node].as<ReduceOp>();
    if (graph[node].as<DotOp>())
      dots = true;
    else
      open.insert(open.end(), graph[node].operands.begin(), graph[node].operands.end());
  }
  return dots && reduces;
}

// How a product is divided: the contracted axis with this number becomes so many parts of so many
// terms. Beyond the end of the axis, the terms of the last part are 0.
struct Cut {
  size_t pair = 0;
  int64_t parts = 1;
  int64_t terms = 0;
};

// The extents of a product.
struct Extents {
  int64_t rows = 1, columns = 1, matrices = 1, terms = 1;
};

std::optional<Extents> extents_of(const Graph& graph, const std::vector<NodeId>& operands,
                                  const DotOp& dot) {
  const Shape& left = graph[operands[0]].type.shape;
  const Shape& right = graph[operands[1]].type.shape;
  if (!left.is_static() || !right.is_static() || dot.contract_left.empty()) return std::nullopt;
  return Extents{elements(left, free_axes(dot, 0, left)), elements(right, free_axes(dot, 1, right)),
                 elements(left, dot.batch_left), elements(left, dot.contract_left)};
}

// One part if the product stays whole. The parts have about `kTermsOfPart` terms, whose factors
// stay in a cache near a core, and are so few that adding them is little work.
Cut cut_for_cpu(const Graph& graph, const std::vector<NodeId>& operands, const DotOp& dot) {
  const std::optional<Extents> all = extents_of(graph, operands, dot);
  if (!all || all->terms < kDeepSum) return {};
  const bool few = all->rows > 1 && all->columns > 1 && all->rows * all->columns <= kFewResults;
  const bool many = std::min(all->rows, all->columns) >= kManyRows;
  const double results = static_cast<double>(all->rows) * static_cast<double>(all->columns);
  const double factors =
      static_cast<double>(kTermsOfPart) * static_cast<double>(all->rows + all->columns);
  if (!(few || many) || results * kShareOfResults > factors) return {};
  // Several dots may be one kernel with one walk, which parts would divide.
  if (std::ranges::any_of(operands,
                          [&](NodeId factor) { return is_made_by_reductions(graph, factor); }))
    return {};
  Cut out;
  const Shape& left = graph[operands[0]].type.shape;
  const double wanted = static_cast<double>(all->terms) / kTermsOfPart;
  const auto away = [&](int64_t parts) {
    return std::abs(std::log(static_cast<double>(parts) / wanted));
  };
  for (size_t pair = 0; pair < dot.contract_left.size(); ++pair) {
    const int64_t extent = left[static_cast<size_t>(dot.contract_left[pair])].range().max;
    for (int64_t parts = 2; parts <= std::min(extent, static_cast<int64_t>(2 * wanted)); ++parts)
      if (extent % parts == 0 && away(parts) < away(out.parts)) out = {pair, parts, extent / parts};
  }
  return out;
}

// Whether parts may end beyond the end of the only axis that is contracted: bulk copies alone find
// zeros there, in rows of whole 16 bytes.
bool may_be_padded(const Graph& graph, const std::vector<NodeId>& operands, const DotOp& dot,
                   const Target& target) {
  const auto is_copied = [&](NodeId factor) {
    const Shape& shape = graph[factor].type.shape;
    return shape[shape.rank() - 1].is_multiple_of(kCopiedElements);
  };
  return dot.contract_left.size() == 1 && target.asynchronous_dots &&
         std::ranges::all_of(operands, is_copied);
}

// At most so many parts of equal numbers of terms, of which the last may be too long.
Cut padded_cut(int64_t terms, int64_t parts) {
  const int64_t part = (terms + parts * kSumMultiple - 1) / (parts * kSumMultiple) * kSumMultiple;
  return {0, (terms + part - 1) / part, part};
}

// The greatest number of parts that all run at the same time.
int64_t most_parts(const Extents& extents, const Target& target) {
  const auto [rows, columns, matrices, terms] = extents;
  // Asynchronous units have all of few rows in one tile, and half as many columns.
  const auto tiles = [](int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; };
  const bool few = target.asynchronous_dots && rows <= kFewProductRows;
  const int64_t all =
      matrices * (few ? tiles(columns, kTile / 2) : tiles(rows, kTile) * tiles(columns, kTile));
  return std::min(target.cores / all, terms / kLeastSum);
}

// The cuts into equal parts, at most so many, that begin at multiples of a turn. Of axes that give
// as many parts, the outermost is cut.
std::vector<Cut> equal_cuts(const Shape& left, const DotOp& dot, int64_t terms, int64_t most) {
  std::map<int64_t, Cut> out;
  for (size_t pair = 0; pair < dot.contract_left.size(); ++pair) {
    const int64_t extent = left[static_cast<size_t>(dot.contract_left[pair])].range().max;
    for (int64_t parts = most; parts > 1; --parts)
      if (extent % parts == 0 && terms / parts % kSumMultiple == 0)
        out.try_emplace(parts, Cut{pair, parts, extent / parts});
  }
  const auto cuts = std::views::values(out);
  return {cuts.begin(), cuts.end()};
}

// One part if the product stays whole. If no number of parts is a divisor, the only axis is cut
// where bulk copies begin.
Cut cut_for_gpu(const Graph& graph, const std::vector<NodeId>& operands, const DotOp& dot,
                const Target& target) {
  const std::optional<Extents> extents = extents_of(graph, operands, dot);
  if (!extents) return {};
  const auto [rows, columns, matrices, terms] = *extents;
  const double work = static_cast<double>(rows * columns) * static_cast<double>(matrices * terms);
  if (work < kLeastAsynchronousDot) return {};
  if (rows <= kOneWarpRows && std::ranges::any_of(operands, [&](NodeId factor) {
        return is_made_by_reductions(graph, factor);
      }))
    return {};
  // A product of one row is a reduction, which has chunks of its own.
  const bool few = target.asynchronous_dots && rows <= kFewProductRows;
  if (few && rows == 1) return {};
  const int64_t most = most_parts(*extents, target);
  // The blocks of a cluster share the depth without memory between them.
  if (few && rows <= kFewClusterRows && most <= kClusterParts) return {};
  const std::vector<Cut> cuts = equal_cuts(graph[operands[0]].type.shape, dot, terms, most);
  const Cut out = cuts.empty() ? Cut() : cuts.back();
  if (2 * out.parts > most || !may_be_padded(graph, operands, dot, target)) return out;
  return padded_cut(terms, most);
}

// `x` with the axis as two axes: the parts, and the places within a part.
NodeId cut(Graph& graph, NodeId x, size_t axis, const Cut& cut, const SourceLocation& where) {
  const int64_t all = cut.parts * cut.terms;
  if (const Expr missing = Expr(all) - graph[x].type.shape[axis]; !missing.is_constant(0)) {
    const size_t rank = graph[x].type.shape.rank();
    std::vector<Expr> low(rank, 0), high(rank, 0);
    high[axis] = missing;
    const NodeId zero = build::scalar(graph, graph[x].type.dtype, 0, where);
    x = build::pad(graph, x, zero, std::move(low), std::move(high), std::vector<int64_t>(rank),
                   where);
  }
  std::vector<Expr> dims = graph[x].type.shape.dims();
  dims[axis] = cut.terms;
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(axis), cut.parts);
  return build::reshape(graph, x, Shape(std::move(dims)), where);
}

// The axes after `axis` was divided in two; the second of the two stays in the list.
std::vector<int64_t> shifted(std::vector<int64_t> axes, int64_t axis) {
  for (int64_t& a : axes) a += a >= axis;
  return axes;
}

// The sum of a batch of partial products.
NodeId sum_of_parts(Graph& graph, const std::vector<NodeId>& factors, const DotOp& dot,
                    const Node& product, const Cut& into) {
  const SourceLocation where = product.location;
  const int64_t left = dot.contract_left[into.pair], right = dot.contract_right[into.pair];
  const NodeId x = cut(graph, factors[0], static_cast<size_t>(left), into, where);
  const NodeId y = cut(graph, factors[1], static_cast<size_t>(right), into, where);
  DotOp partial = dot;
  partial.batch_left = shifted(dot.batch_left, left);
  partial.batch_right = shifted(dot.batch_right, right);
  partial.contract_left = shifted(dot.contract_left, left);
  partial.contract_right = shifted(dot.contract_right, right);
  partial.batch_left.insert(partial.batch_left.begin(), left);
  partial.batch_right.insert(partial.batch_right.begin(), right);
  const NodeId products = dot_along_memory(graph, x, y, partial, DType::F32, where);
  if (!product.label.empty()) graph.set_label(products, product.label + "_parts");
  const NodeId sum = build::reduce(graph, Monoid::Sum, products, {0}, where);
  return product.type.dtype == DType::F32 ? sum
                                          : build::convert(graph, sum, product.type.dtype, where);
}

Cut cut_of_rule(const Graph& graph, const std::vector<NodeId>& factors, const DotOp& dot,
                const Target& target) {
  return target.kind == TargetKind::Cpu ? cut_for_cpu(graph, factors, dot)
                                        : cut_for_gpu(graph, factors, dot, target);
}

// Another cut than the rule's if it is estimated to be clearly faster. Dots that share a kernel
// with others are left to the rule: those of reductions, and those that fill the machine.
Cut clearly_faster_cut(const Rewriting& step, const DotOp& dot, const Cut& of_rule,
                       const Target& target, ProductPrices& prices) {
  const Graph& graph = step.result;
  const std::optional<Extents> extents = extents_of(graph, step.operands, dot);
  if (!extents || !target.asynchronous_dots) return of_rule;
  const auto [rows, columns, matrices, terms] = *extents;
  const int64_t tiles = matrices * ((rows + kTile - 1) / kTile) * ((columns + kTile - 1) / kTile);
  if (std::min(rows, columns) == 1 || terms < 2 * kLeastSum || tiles > 2 * target.cores ||
      std::ranges::any_of(step.operands,
                          [&](NodeId factor) { return is_made_by_reductions(graph, factor); }))
    return of_rule;
  const Graph whole = alone(step);
  const auto seconds_of = [&](const Cut& cut) {
    return prices
        .of(rewrite(whole,
                    [&](const Rewriting& inner) {
                      const auto* same = inner.node.as<DotOp>();
                      return same && cut.parts > 1 ? sum_of_parts(inner.result, inner.operands,
                                                                  *same, inner.node, cut)
                                                   : inner.keep();
                    }))
        .seconds;
  };
  std::vector<Cut> tried;
  if (may_be_padded(graph, step.operands, dot, target)) {
    for (const int64_t parts : kTriedParts) tried.push_back(padded_cut(terms, parts));
    std::erase_if(tried, [](const Cut& cut) { return cut.terms < kLeastSum; });
  } else if (dot.contract_left.size() > 1) {
    // The tiles of windows are those of single taps, so that there may be more of them than the
    // rule counts, and fewer parts serve better.
    tried =
        equal_cuts(graph[step.operands[0]].type.shape, dot, terms, most_parts(*extents, target));
    const auto more = std::max<std::ptrdiff_t>(std::ssize(tried) - kTriedEqual, 0);
    tried.erase(tried.begin(), tried.begin() + more);
  }
  std::erase_if(tried, [&](const Cut& cut) { return cut.parts == of_rule.parts; });
  if (tried.empty()) return of_rule;
  Cut best = of_rule;
  double least = kClearly * seconds_of(of_rule);
  for (const Cut& cut : tried) {
    if (const double seconds = seconds_of(cut); seconds < least) {
      best = cut;
      least = seconds;
    }
  }
  return best;
}

}  // namespace

std::optional<NodeId> in_parts(Graph& graph, const std::vector<NodeId>& factors, const DotOp& dot,
                               const Node& product, const Target& target) {
  const Cut into = cut_of_rule(graph, factors, dot, target);
  if (into.parts == 1) return std::nullopt;
  return sum_of_parts(graph, factors, dot, product, into);
}

Graph split_dots(const Graph& graph, const Target& target) {
  ProductPrices prices(target, Precision::Standard);
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* dot = step.node.as<DotOp>();
    if (!dot) return step.keep();
    const DType dtype = step.result[step.operands[0]].type.dtype;
    const bool alike = step.result[step.operands[1]].type.dtype == dtype;
    const bool served = target.kind == TargetKind::Cpu
                            ? dtype == DType::F32 && step.node.type.dtype == dtype
                            : is_half(dtype);
    if (!alike || !served) return step.keep();
    const Cut of_rule = cut_of_rule(step.result, step.operands, *dot, target);
    const Cut into = clearly_faster_cut(step, *dot, of_rule, target, prices);
    return into.parts > 1 ? sum_of_parts(step.result, step.operands, *dot, step.node, into)
                          : step.keep();
  });
}

}  // namespace braze
