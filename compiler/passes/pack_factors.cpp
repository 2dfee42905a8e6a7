#include "compiler/passes/pack_factors.h"

#include <algorithm>

#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/reordered.h"
#include "ir/graph/rewrite.h"
#include "ir/target/features.h"

namespace braze {

namespace {

// The number of uses of each element from which on a copy is worth its time.
constexpr double kLeastUses = 512;

// How many times the product uses each element of an operand: the number of free elements of the
// other operand.
double uses(const Shape& other, const std::vector<int64_t>& batch,
            const std::vector<int64_t>& contract) {
  double out = 1;
  for (const int64_t axis : other_axes(other.rank(), batch, contract))
    out *= static_cast<double>(other[static_cast<size_t>(axis)].range().max);
  return out;
}

// The operand with its contracted axes joined to one, and with zeros after the end of that axis.
NodeId with_zeros(Graph& graph, NodeId x, const std::vector<int64_t>& contract, bool last,
                  int64_t zeros, const SourceLocation& where) {
  const Shape shape = graph[x].type.shape;
  std::vector<Expr> dims, low, high;
  Expr terms = 1;
  for (const int64_t axis : contract) terms *= shape[static_cast<size_t>(axis)];
  if (!last) dims.push_back(terms);
  for (const int64_t axis : other_axes(shape.rank(), contract))
    dims.push_back(shape[static_cast<size_t>(axis)]);
  if (last) dims.push_back(terms);
  low.assign(dims.size(), 0);
  high = low;
  (last ? high.back() : high.front()) = zeros;
  const DType dtype = graph[x].type.dtype;
  const NodeId flat = build::reshape(graph, x, Shape(std::move(dims)), where);
  const NodeId zero = build::constant(graph, HostTensor(dtype, {}), where);
  const std::vector<int64_t> interior(low.size());
  return build::pad(graph, flat, zero, std::move(low), std::move(high), interior, where);
}

// The last axis of a factor that is neither batched nor summed; none if there is no such axis.
std::optional<int64_t> last_free_axis(size_t rank, const std::vector<int64_t>& batch,
                                      const std::vector<int64_t>& contract) {
  const Axes free = other_axes(rank, batch, contract);
  return free.empty() ? std::nullopt : std::optional(free.back());
}

// A product of windows and a matrix whose rows are no multiple of 16 bytes becomes one with longer
// rows; none for other products.
std::optional<NodeId> with_whole_rows(const Rewriting& step, const DotOp& dot) {
  Graph& graph = step.result;
  const NodeId x = step.operands[0], y = step.operands[1];
  const TensorType left = graph[x].type, right = graph[y].type;
  const Axes first = axes_from(0, dot.contract_right.size());
  if (!graph[x].as<WindowsOp>() || !is_half(left.dtype) || right.dtype != left.dtype ||
      !dot.batch_left.empty() || !left.shape.is_static() || !right.shape.is_static() ||
      !are_last(dot.contract_left, left.shape.rank()) || dot.contract_right != first)
    return std::nullopt;
  int64_t terms = 1;
  for (const int64_t axis : dot.contract_right)
    terms *= right.shape[static_cast<size_t>(axis)].range().max;
  const int64_t inner = left.shape[left.shape.rank() - 1].range().max;
  const auto whole = kCopiedRowBytes / static_cast<int64_t>(size_of(left.dtype));
  const double work = static_cast<double>(left.shape.numel().range().max) *
                      static_cast<double>(right.shape.numel().range().max / terms);
  if (terms % whole == 0 || inner % whole == 0 || work < kLeastAsynchronousDot) return std::nullopt;
  const int64_t zeros = whole - terms % whole;
  const SourceLocation& where = step.node.location;
  DotOp packed;
  packed.contract_left = {static_cast<int64_t>(left.shape.rank() - dot.contract_left.size())};
  packed.contract_right = {0};
  return build::dot(graph, with_zeros(graph, x, dot.contract_left, true, zeros, where),
                    with_zeros(graph, y, dot.contract_right, false, zeros, where), packed,
                    step.node.type.dtype, where);
}

// The value in memory of which a factor is a transpose (or the factor itself), and for each axis of
// the factor the axis of that value.
struct Stored {
  NodeId value;
  std::vector<int64_t> axes;
};
Stored stored(const Graph& graph, NodeId factor) {
  Stored out{factor, axes_from(0, graph[factor].type.shape.rank())};
  while (const auto* transpose = graph[out.value].as<TransposeOp>()) {
    const bool in_memory = stored_in_other_order(graph, out.value).has_value();
    for (int64_t& axis : out.axes) axis = transpose->permutation[static_cast<size_t>(axis)];
    out.value = graph[out.value].operands[0];
    if (in_memory) break;
  }
  return out;
}

// The factor with `zeros` more elements along each axis. The axes in `longer` become longer. Other
// axes keep their extent: the added elements are only in memory, and a slice hides them.
NodeId padded(Graph& graph, NodeId factor, const std::vector<int64_t>& zeros,
              const std::vector<int64_t>& longer, const SourceLocation& where) {
  if (std::ranges::count(zeros, 0) == std::ssize(zeros)) return factor;
  const auto [value, axes] = stored(graph, factor);
  const Shape shape = graph[factor].type.shape;
  std::vector<Expr> low(zeros.size()), high(zeros.size());
  for (size_t i = 0; i < zeros.size(); ++i) high[static_cast<size_t>(axes[i])] = zeros[i];
  const NodeId zero = build::constant(graph, HostTensor(graph[factor].type.dtype, {}), where);
  NodeId out = build::pad(graph, value, zero, std::move(low), std::move(high),
                          std::vector<int64_t>(zeros.size()), where);
  if (value != factor) out = build::transpose(graph, out, axes, where);
  std::vector<Expr> starts(zeros.size()), limits = graph[out].type.shape.dims();
  for (size_t i = 0; i < zeros.size(); ++i)
    if (!contains(longer, static_cast<int64_t>(i))) limits[i] = shape[i];
  if (limits == graph[out].type.shape.dims()) return out;
  return build::slice(graph, out, std::move(starts), std::move(limits),
                      std::vector<int64_t>(zeros.size(), 1), where);
}

// The number of zeros that make the length of a row a multiple of 16 bytes. If few zeros suffice,
// it becomes a multiple of a memory line, or of a large part of one, because such rows are read
// faster. With `lines`, this is also done to rows that are multiples of 16 bytes.
int64_t zeros_behind(int64_t extent, DType dtype, bool lines) {
  constexpr int64_t kFew = 32;  // zeros are few if there are this many elements for each
  const auto size = static_cast<int64_t>(size_of(dtype));
  const auto missing = [&](int64_t bytes) {
    return (bytes / size - extent % (bytes / size)) % (bytes / size);
  };
  if (missing(kCopiedRowBytes) == 0)
    return lines && missing(kRowLineBytes) * kFew <= extent ? missing(kRowLineBytes) : 0;
  int64_t bytes = kRowLineBytes;
  while (bytes > kCopiedRowBytes && missing(bytes) * kFew > extent) bytes /= 2;
  return missing(bytes);
}

// A product whose factors are used often, with zeros after the rows of factors whose rows are no
// multiple of 16 bytes; none for other products. If the result has the rows of such a factor, the
// product has the zeros as well, because a kernel stores whole memory lines several times as fast,
// and the result is a slice of the product.
std::optional<NodeId> with_aligned_rows(const Rewriting& step, const DotOp& dot,
                                        bool may_fill_lines) {
  Graph& graph = step.result;
  const TensorType left = graph[step.operands[0]].type, right = graph[step.operands[1]].type;
  if (!is_half(left.dtype) || right.dtype != left.dtype || !left.shape.is_static() ||
      !right.shape.is_static())
    return std::nullopt;
  const std::vector<int64_t>* contract[] = {&dot.contract_left, &dot.contract_right};
  const std::vector<int64_t>* batch[] = {&dot.batch_left, &dot.batch_right};
  const Shape* shapes[] = {&left.shape, &right.shape};
  std::vector<int64_t> zeros[2];
  const auto uses_of = [&](size_t side) {
    return uses(*shapes[1 - side], *batch[1 - side], *contract[1 - side]);
  };
  // Long sums over factors without batches, of which each element is used very often and neither
  // has rows of whole lines.
  double terms = 1;
  for (const int64_t axis : dot.contract_left)
    terms *= static_cast<double>(left.shape[static_cast<size_t>(axis)].range().max);
  const auto leaves_lines = [&](size_t side) {
    const Stored in = stored(graph, step.operands[side]);
    return !(graph[in.value].type.shape.dims().back() * static_cast<int64_t>(size_of(left.dtype)))
                .is_multiple_of(kRowLineBytes);
  };
  const bool lines = may_fill_lines && dot.batch_left.empty() &&
                     std::min({terms, uses_of(0), uses_of(1)}) >= kLeastUsesOfLines &&
                     leaves_lines(0) && leaves_lines(1);
  double work = 1;
  for (size_t side : {0, 1}) {
    const Shape& shape = *shapes[side];
    zeros[side].resize(shape.rank());
    const Stored in = stored(graph, step.operands[side]);
    // What movement ops make of a value in another order is not in memory.
    const bool is_moved = reordered_source(graph, in.value).has_value();
    for (size_t i = 0; i < shape.rank(); ++i) {
      const int64_t extent = shape[i].range().max;
      if (side == 0 || (!contains(*contract[1], static_cast<int64_t>(i)) &&
                        !contains(*batch[1], static_cast<int64_t>(i))))
        work *= static_cast<double>(extent);
      if (!is_moved && in.axes[i] + 1 == std::ssize(in.axes))
        zeros[side][i] = zeros_behind(extent, left.dtype, lines);
    }
    for (const int64_t axis : *batch[side])
      if (zeros[side][static_cast<size_t>(axis)] > 0) return std::nullopt;
  }
  if (work < kLeastAsynchronousDot) return std::nullopt;
  for (size_t i = 0; i < dot.contract_left.size(); ++i) {
    int64_t& a = zeros[0][static_cast<size_t>(dot.contract_left[i])];
    int64_t& b = zeros[1][static_cast<size_t>(dot.contract_right[i])];
    a = b = std::max(a, b);
  }
  bool any = false;
  for (size_t side : {0, 1}) {
    if (std::ranges::count(zeros[side], 0) == std::ssize(zeros[side])) continue;
    any = true;
    if (uses_of(side) < kLeastUses) return std::nullopt;
  }
  if (!any) return std::nullopt;
  constexpr int64_t kFewColumns = 8;  // columns of the result for each column of zeros
  std::vector<int64_t> longer[] = {*contract[0], *contract[1]};
  int64_t added = 0;
  if (const auto last = last_free_axis(shapes[1]->rank(), *batch[1], *contract[1])) {
    const auto axis = static_cast<size_t>(*last);
    const bool is_whole = shapes[1]->dims()[axis].is_multiple_of(
        kCopiedRowBytes / static_cast<int64_t>(size_of(left.dtype)));
    if (!is_whole && zeros[1][axis] * kFewColumns <= (*shapes[1])[axis].range().max)
      added = zeros[1][axis];
    if (added > 0) longer[1].push_back(*last);
  }
  const SourceLocation& where = step.node.location;
  NodeId out = build::dot(graph, padded(graph, step.operands[0], zeros[0], longer[0], where),
                          padded(graph, step.operands[1], zeros[1], longer[1], where), dot,
                          step.node.type.dtype, where);
  if (added == 0) return out;
  const std::vector<Expr>& limits = step.node.type.shape.dims();
  return build::slice(graph, out, std::vector<Expr>(limits.size()), limits,
                      std::vector<int64_t>(limits.size(), 1), where);
}

}  // namespace

Graph pack_factors(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    if (const auto* dot = step.node.as<DotOp>()) {
      if (const auto packed = with_whole_rows(step, *dot)) return *packed;
      if (const auto packed = with_aligned_rows(step, *dot, /*may_fill_lines=*/true))
        return *packed;
    }
    return step.keep();
  });
}

Graph align_factors(const Graph& graph) {
  return rewrite(graph, [](const Rewriting& step) {
    if (const auto* dot = step.node.as<DotOp>())
      if (const auto packed = with_aligned_rows(step, *dot, /*may_fill_lines=*/false))
        return *packed;
    return step.keep();
  });
}

}  // namespace braze
