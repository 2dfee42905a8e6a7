#include "ir/graph/interchange.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>

#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/loop_form.h"
#include "ir/graph/reference.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"

namespace braze {

namespace {

using Factor = Interchange::Factor;
using Use = Factor::Use;

// The other product must have at most this share of the elements: the sum reads two tensors of its
// size, and it may be a kernel more.
constexpr double kMuchSmaller = 0.5;

// A term is opened into at most so many factors, because a value that is used twice doubles them.
constexpr size_t kMostFactors = 32;

double most(const Shape& shape) { return static_cast<double>(shape.numel().range().max); }

bool is_empty(const Shape& shape) {
  return std::ranges::any_of(shape, [](const Expr& e) { return e.range().max == 0; });
}

// The index along an axis; 0 if there is no other, so that no coordinate contains it.
Expr index_along(char letter, size_t axis, const Expr& extent) {
  return extent.is_constant(1) ? Expr(0) : Expr::index(letter + std::to_string(axis), extent);
}

Expr position(const std::vector<Expr>& at, const Shape& shape) {
  Expr out;
  for (size_t axis = 0; axis < shape.rank(); ++axis) out = out * shape[axis] + at[axis];
  return out;
}

// The index of the element at a row-major position.
std::vector<Expr> index_of(Expr position, const Shape& shape) {
  std::vector<Expr> at(shape.rank());
  for (size_t axis = shape.rank(); axis-- > 1;) {
    const Expr extent = max(shape[axis], 1);  // an extent that may be 0 cannot be a divisor
    at[axis] = mod(position, extent);
    position = floordiv(position, extent);
  }
  if (!at.empty()) at[0] = position;
  return at;
}

// The axes of a dot's operand that are neither batched nor contracted.
Axes free_axes(const Graph& graph, NodeId dot, size_t side) {
  return free_axes(*graph[dot].as<DotOp>(), side, graph[graph[dot].operands[side]].type.shape);
}

// Coordinates of a dot's operand, where its result is read at `at`, and contracted axes have the
// coordinates `contracted`.
std::vector<Expr> operand_at(const Graph& graph, NodeId dot, size_t side,
                             const std::vector<Expr>& at, const std::vector<Expr>& contracted) {
  const DotOp& op = *graph[dot].as<DotOp>();
  const Axes &batch = braze::batch(op, side), &contract = braze::contract(op, side);
  const Axes free = free_axes(graph, dot, side);
  std::vector<Expr> out(graph[graph[dot].operands[side]].type.shape.rank());
  for (size_t i = 0; i < batch.size(); ++i) out[static_cast<size_t>(batch[i])] = at[i];
  for (size_t i = 0; i < contract.size(); ++i)
    out[static_cast<size_t>(contract[i])] = contracted[i];
  const size_t first = batch.size() + (side == 0 ? 0 : free_axes(graph, dot, 0).size());
  for (size_t i = 0; i < free.size(); ++i) out[static_cast<size_t>(free[i])] = at[first + i];
  return out;
}

// --- Factors
// --------------------------------------------------------------------------------------

// What is multiplied to make a value.
struct Factors {
  std::vector<Factor> list;
  bool negative = false;
  bool seen = false;  // something between the value and its factors keeps its roundings
  bool too_many = false;
};

bool is_ordinary(DType dtype) {
  return is_half(dtype) || dtype == DType::F32 || dtype == DType::F64;
}

class Opener {
 public:
  Opener(const Graph& graph, const std::vector<bool>& relaxed) : graph_(graph), relaxed_(relaxed) {}

  Factors open(NodeId node, std::vector<Expr> at) {
    out_ = {};
    visited_ = 0;
    add(node, std::move(at), Use::Times);
    return std::move(out_);
  }

 private:
  void add(NodeId id, std::vector<Expr> at, Use use) {
    const Node& node = graph_[id];
    if (++visited_ > 4 * kMostFactors || out_.list.size() > kMostFactors) {
      out_.too_many = true;
      return;
    }
    if (node.type.shape.rank() == 0) at.clear();  // it is broadcast
    if (node.as<BroadcastOp>() || node.as<ReshapeOp>() || node.as<TransposeOp>()) {
      add(node.operands[0], moved(id, at), use);
    } else if (use == Use::If || use == Use::Unless || !open_row(id, node, at, use)) {
      leaf(id, std::move(at), use);
    }
  }

  // Whether the node is a row that multiplies or rounds; then its operands are added.
  bool open_row(NodeId id, const Node& node, const std::vector<Expr>& at, Use use) {
    const auto* map = node.as<MapOp>();
    if (!map || !is_ordinary(node.type.dtype)) return false;
    const auto operand = [&](size_t i) { return node.operands[i]; };
    const auto inverse = [&] { return use == Use::Times ? Use::Over : Use::Times; };
    const auto opened = [&] { out_.seen = out_.seen || !relaxed_[id.index]; };
    switch (map->op) {
      case ElementwiseOp::mul:
        opened();
        add(operand(0), at, use);
        add(operand(1), at, use);
        return true;
      case ElementwiseOp::div:
        opened();
        add(operand(0), at, use);
        add(operand(1), at, inverse());
        return true;
      case ElementwiseOp::neg:
        opened();
        out_.negative = !out_.negative;
        add(operand(0), at, use);
        return true;
      case ElementwiseOp::convert: {
        const DType from = graph_[operand(0)].type.dtype;
        const bool widens = is_ordinary(from) && size_of(from) < size_of(node.type.dtype);
        const bool narrows = from == DType::F32 && is_half(node.type.dtype);
        if (!widens && !narrows) return false;
        opened();
        // The sum reads what is rounded here, or what is not, in place of the other.
        if (narrows) out_.seen = out_.seen || !relaxed_[operand(0).index];
        add(operand(0), at, use);
        return true;
      }
      case ElementwiseOp::select: {
        if (use != Use::Times) return false;
        const bool where = splat(graph_, operand(2)) == 0.0;
        if (!where && splat(graph_, operand(1)) != 0.0) return false;
        opened();
        add(operand(0), at, where ? Use::If : Use::Unless);
        add(operand(where ? 1 : 2), at, use);
        return true;
      }
      default:
        return false;
    }
  }

  void leaf(NodeId id, std::vector<Expr> at, Use use) {
    if ((use == Use::Times || use == Use::Over) && splat(graph_, id) == 1.0) return;
    const Shape& shape = graph_[id].type.shape;
    for (size_t axis = 0; axis < at.size(); ++axis)
      if (shape[axis].is_constant(1)) at[axis] = Expr(0);
    Factor factor{id, std::move(at), use};
    const bool condition = use == Use::If || use == Use::Unless;
    if (!condition || !std::ranges::count(out_.list, factor))
      out_.list.push_back(std::move(factor));
  }

  // The coordinates of the operand of a movement.
  std::vector<Expr> moved(NodeId id, const std::vector<Expr>& at) {
    auto& form = forms_[id.index];
    if (!form) form = loop_form(graph_, id);
    std::unordered_map<std::string, Expr> bindings;
    for (size_t i = 0; i < at.size(); ++i) bindings.emplace("d" + std::to_string(i), at[i]);
    std::vector<Expr> out;
    for (const Expr& e : form->body.front().index) out.push_back(e.substitute(bindings));
    return out;
  }

  const Graph& graph_;
  const std::vector<bool>& relaxed_;
  std::unordered_map<uint32_t, std::optional<LoopForm>> forms_;
  Factors out_;
  size_t visited_ = 0;
};

// Removes the elements of `parts` from `list`; false if one of them is missing.
bool remove_all(std::vector<Factor>& list, const std::vector<Factor>& parts) {
  for (const Factor& part : parts) {
    const auto found = std::ranges::find(list, part);
    if (found == list.end()) return false;
    list.erase(found);
  }
  return true;
}

// --- Layouts
// --------------------------------------------------------------------------------------

// How a value at some coordinates becomes a tensor over all symbols: by a reshape alone, or by
// leaving out axes of one element, a transpose and a broadcast.
struct Arrangement {
  bool flat = false;
  Axes kept, order;  // axes of the value; of those that are kept
  Axes axes;         // of the result
};

std::optional<Arrangement> arrangement(const Shape& from, const std::vector<Expr>& at,
                                       std::span<const Expr> symbols, const Shape& to) {
  Arrangement out;
  Axes places;
  bool plain = true;
  for (size_t axis = 0; axis < from.rank() && plain; ++axis) {
    if (from[axis].is_constant(1)) continue;
    const auto found = std::ranges::find(symbols, at[axis]);
    const auto place = found - symbols.begin();
    plain = found != symbols.end() && from[axis] == to[static_cast<size_t>(place)] &&
            !contains(places, place);
    out.kept.push_back(static_cast<int64_t>(axis));
    places.push_back(place);
  }
  if (plain) {
    out.order.resize(places.size());
    std::iota(out.order.begin(), out.order.end(), 0);
    std::ranges::sort(out.order, {}, [&](int64_t i) { return places[static_cast<size_t>(i)]; });
    out.axes = places;
    std::ranges::sort(out.axes);
    return out;
  }
  const std::vector<Expr> all(symbols.begin(), symbols.end());
  if (!(from.numel() == to.numel()) || !(position(at, from) == position(all, to)))
    return std::nullopt;
  out.flat = true;
  return out;
}

NodeId arranged(Graph& graph, NodeId x, const Arrangement& how, const Shape& to,
                SourceLocation where) {
  const Shape from = graph[x].type.shape;
  if (from == to && how.kept == how.axes && std::ranges::is_sorted(how.order)) return x;
  if (how.flat) return build::reshape(graph, x, to, where);
  if (how.kept.size() < from.rank()) {
    std::vector<Expr> dims;
    for (const int64_t axis : how.kept) dims.push_back(from[static_cast<size_t>(axis)]);
    x = build::reshape(graph, x, Shape(std::move(dims)), where);
  }
  if (!std::ranges::is_sorted(how.order)) x = build::transpose(graph, x, how.order, where);
  if (how.axes.size() < to.rank()) x = build::broadcast(graph, x, to, how.axes, where);
  return x;
}

// --- Sums
// -----------------------------------------------------------------------------------------

// The left side of an exchange: how the sum reads the product b x v.
struct Left {
  NodeId dot, b, v;
  std::vector<Expr> b_at, v_at;
  Axes b_free, v_free, contract;  // the last are axes of v
  Factors a;
};

class Finder {
 public:
  Finder(const Graph& graph, Precision precision)
      : graph_(graph), relaxed_(relaxed_nodes(graph, precision)), opener_(graph, relaxed_) {
    const std::vector<bool> needed = needed_nodes(graph);
    for (size_t i = 0; i < graph.size(); ++i)
      if (needed[i] && graph[NodeId(i)].as<DotOp>()) dots_.push_back(NodeId(i));
    if (dots_.empty()) return;
    for (size_t i = 0; i < graph.size(); ++i)
      if (needed[i]) visit(NodeId(i));
  }

  std::vector<Interchange> take() { return std::move(found_); }

 private:
  void visit(NodeId sum) {
    const auto* reduce = graph_[sum].as<ReduceOp>();
    if (!reduce || reduce->monoid != Monoid::Sum || !is_ordinary(graph_[sum].type.dtype)) return;
    const NodeId term = graph_[sum].operands[0];
    const Shape& shape = graph_[term].type.shape;
    if (is_empty(shape)) return;
    Interchange out{.sum = sum, .product = {}};
    std::vector<Expr> at;
    summed_.clear();
    summed_extents_.clear();
    for (size_t axis = 0; axis < shape.rank(); ++axis) {
      at.push_back(index_along('i', axis, shape[axis]));
      if (contains(reduce->axes, static_cast<int64_t>(axis))) {
        summed_.push_back(at.back());
        summed_extents_.push_back(shape[axis]);
      } else {
        out.symbols.push_back(at.back());
      }
    }
    out.shape = graph_[sum].type.shape;
    const Factors factors = opener_.open(term, at);
    if (factors.too_many) return;
    for (size_t i = 0; i < factors.list.size(); ++i) {
      const Factor& factor = factors.list[i];
      if (factor.use != Use::Times || !graph_[factor.node].as<DotOp>() || !varies(factor) ||
          is_empty(graph_[graph_[factor.node].operands[0]].type.shape))
        continue;
      out.product = factor.node;
      found_.push_back(judged(out, factors, i));
    }
  }

  bool varies(const Expr& e) const {
    return std::ranges::any_of(summed_, [&](const Expr& s) {
      return s.kind() == Expr::Kind::Symbol && e.uses(s.symbol_name());
    });
  }
  bool varies(const Factor& factor) const {
    return std::ranges::any_of(factor.at, [&](const Expr& e) { return varies(e); });
  }

  // `out` with the verdict on the sum over `factors`, of which number `of_product` is the result of
  // a dot. Either operand of the dot can be v.
  Interchange judged(const Interchange& out, const Factors& factors, size_t of_product) {
    Interchange best = out;
    best.verdict = &interchanges::kVaries;
    for (const size_t side : {0, 1}) {
      Interchange one = judged(out, factors, of_product, side);
      const bool done = one.verdict == &interchanges::kInterchanged;
      if (one.verdict != &interchanges::kVaries) best = std::move(one);
      if (done) break;
    }
    return best;
  }

  Interchange judged(Interchange out, const Factors& factors, size_t of_product, size_t side) {
    const Factor& product = factors.list[of_product];
    const DotOp& op = *graph_[product.node].as<DotOp>();
    Left left{.dot = product.node,
              .b = graph_[product.node].operands[1 - side],
              .v = graph_[product.node].operands[side],
              .b_at = {},
              .v_at = {},
              .b_free = free_axes(graph_, product.node, 1 - side),
              .v_free = free_axes(graph_, product.node, side),
              .contract = contract(op, side),
              .a = factors};
    left.a.list.erase(left.a.list.begin() + static_cast<std::ptrdiff_t>(of_product));
    std::vector<Expr> contracted;
    for (const int64_t axis : left.contract) {
      const Expr& extent = graph_[left.v].type.shape[static_cast<size_t>(axis)];
      contracted.push_back(index_along('c', contracted.size(), extent));
    }
    left.b_at = operand_at(graph_, product.node, 1 - side, product.at, contracted);
    left.v_at = operand_at(graph_, product.node, side, product.at, contracted);
    out.verdict = &interchanges::kVaries;
    if (!sums_free_axes(left)) return out;
    out.verdict = &interchanges::kSeen;
    if (factors.seen || !relaxed_[product.node.index]) return out;
    out.verdict = &interchanges::kNoOther;
    for (size_t i = 0; i < contracted.size(); ++i) {
      out.symbols.push_back(contracted[i]);
      std::vector<Expr> dims = out.shape.dims();
      dims.push_back(graph_[left.v].type.shape[static_cast<size_t>(left.contract[i])]);
      out.shape = Shape(std::move(dims));
    }
    out.b = {left.b, left.b_at};
    for (const NodeId other : dots_) {
      for (const size_t other_side : {0, 1}) {
        if (other == product.node || graph_[other].operands[other_side] != left.v) continue;
        const DotOp& other_op = *graph_[other].as<DotOp>();
        if (!std::ranges::is_permutation(
                other_side == 0 ? other_op.contract_left : other_op.contract_right, left.v_free) ||
            !std::ranges::is_permutation(free_axes(graph_, other, other_side), left.contract))
          continue;
        Interchange one = out;
        one.verdict = &judge(one, left, other, other_side);
        if (one.verdict == &interchanges::kInterchanged) return one;
        out.verdict = one.verdict;
      }
    }
    return out;
  }

  // Whether the axes of the sum are the free axes of v, and b does not vary along them.
  bool sums_free_axes(const Left& left) const {
    if (std::ranges::any_of(left.b_at, [&](const Expr& e) { return varies(e); })) return false;
    const Shape& shape = graph_[left.v].type.shape;
    std::vector<Expr> at, extents;
    for (const int64_t axis : left.v_free) {
      at.push_back(left.v_at[static_cast<size_t>(axis)]);
      extents.push_back(shape[static_cast<size_t>(axis)]);
    }
    const Shape own{std::move(extents)}, summed{summed_extents_};
    const auto how = arrangement(own, at, summed_, summed);
    if (!how) return false;
    // Each index of the sum is another one of v, if no axis of the sum is left out.
    if (how->flat) return true;
    return how->axes.size() + count_ones(summed) == summed.rank();
  }

  static size_t count_ones(const Shape& shape) {
    return static_cast<size_t>(
        std::ranges::count_if(shape, [](const Expr& e) { return e.is_constant(1); }));
  }

  // Whether `other`, in which v is operand `side`, multiplies v by what the sum multiplies the
  // product by. If so, `out` is complete.
  const Code& judge(Interchange& out, const Left& left, NodeId other, size_t side) {
    const DotOp& op = *graph_[other].as<DotOp>();
    const auto of_v = [&](const Axes& axes) {
      std::vector<Expr> at;
      for (const int64_t axis : axes) at.push_back(left.v_at[static_cast<size_t>(axis)]);
      return at;
    };
    // The free axes of a are taken to be those of b, in the same order; the coordinates of the
    // factors show whether they are.
    const Shape b_shape = extents_along(left.b, left.b_free);
    const Shape a_shape =
        extents_along(graph_[other].operands[1 - side], free_axes(graph_, other, 1 - side));
    std::vector<Expr> of_a;
    for (const int64_t axis : left.b_free) of_a.push_back(left.b_at[static_cast<size_t>(axis)]);
    if (!(a_shape == b_shape)) {
      if (!(a_shape.numel() == b_shape.numel())) return interchanges::kFactorsDiffer;
      of_a = index_of(position(of_a, b_shape), a_shape);
    }
    std::vector<Expr> at = of_v(batch(op, side));
    const std::vector<Expr> own = of_v(free_axes(graph_, other, side));
    for (const std::vector<Expr>* part : {side == 0 ? &own : &of_a, side == 0 ? &of_a : &own})
      at.insert(at.end(), part->begin(), part->end());
    const std::vector<Expr> contracted = of_v(contract(op, side));
    const Factors a = opener_.open(graph_[other].operands[1 - side],
                                   operand_at(graph_, other, 1 - side, at, contracted));
    std::vector<Factor> outer, inner, outer_of_a, inner_of_a;
    for (const Factor& f : left.a.list) (varies(f) ? inner : outer).push_back(f);
    for (const Factor& f : a.list) (varies(f) ? inner_of_a : outer_of_a).push_back(f);
    if (a.too_many || inner.size() != inner_of_a.size() || !remove_all(inner, inner_of_a) ||
        !remove_all(outer, outer_of_a))
      return interchanges::kFactorsDiffer;
    if (a.seen) return interchanges::kSeen;
    if (op.tf32 && !graph_[left.dot].as<DotOp>()->tf32) return interchanges::kCoarser;
    for (const NodeId operand : graph_[other].operands)
      if (operand.index >= out.sum.index) return interchanges::kLater;
    if (most(graph_[other].type.shape) > kMuchSmaller * most(graph_[left.dot].type.shape))
      return interchanges::kNotSmaller;
    out.other = other;
    out.of_other = {other, std::move(at)};
    out.outer = std::move(outer);
    out.negative = left.a.negative != a.negative;
    return has_layout(out) ? interchanges::kInterchanged : interchanges::kLayout;
  }

  Shape extents_along(NodeId node, const Axes& axes) const {
    std::vector<Expr> out;
    for (const int64_t axis : axes)
      out.push_back(graph_[node].type.shape[static_cast<size_t>(axis)]);
    return Shape(std::move(out));
  }

  // Whether movement ops give everything that the interchanged form reads the axes of the form.
  bool has_layout(const Interchange& form) const {
    const auto fits = [&](const Factor& f, std::span<const Expr> symbols, const Shape& shape) {
      return arrangement(graph_[f.node].type.shape, f.at, symbols, shape).has_value();
    };
    const Shape& kept = graph_[form.sum].type.shape;
    const auto first = std::span(form.symbols).first(kept.rank());
    return fits(form.b, form.symbols, form.shape) &&
           fits(form.of_other, form.symbols, form.shape) &&
           std::ranges::all_of(form.outer, [&](const Factor& f) { return fits(f, first, kept); });
  }

  const Graph& graph_;
  const std::vector<bool> relaxed_;
  Opener opener_;
  std::vector<NodeId> dots_;
  std::vector<Expr> summed_, summed_extents_;  // the axes of the present sum
  std::vector<Interchange> found_;
};

}  // namespace

std::vector<Interchange> find_interchanges(const Graph& graph, Precision precision) {
  return Finder(graph, precision).take();
}

NodeId interchanged(Graph& graph, const Graph& source, const Interchange& form,
                    const std::function<NodeId(NodeId)>& place) {
  const Node& sum = source[form.sum];
  const SourceLocation where = sum.location;
  const DType dtype = compute_type(sum.type.dtype);
  const Shape& kept = sum.type.shape;
  const auto value = [&](const Factor& f, size_t axes) {
    const Shape to(std::vector<Expr>(form.shape.begin(),
                                     form.shape.begin() + static_cast<std::ptrdiff_t>(axes)));
    const auto how =
        arrangement(source[f.node].type.shape, f.at, std::span(form.symbols).first(axes), to);
    BRAZE_CHECK(how, "a factor of an interchanged sum has no layout");
    return arranged(graph, place(f.node), *how, to, where);
  };
  const auto number = [&](NodeId x) {
    return graph[x].type.dtype == dtype ? x : build::convert(graph, x, dtype, where);
  };
  const NodeId product = build::map(
      graph, ElementwiseOp::mul,
      {number(value(form.b, form.shape.rank())), number(value(form.of_other, form.shape.rank()))},
      where);
  Axes summed = axes_from(static_cast<int64_t>(kept.rank()), form.shape.rank() - kept.rank());
  NodeId out = build::reduce(graph, Monoid::Sum, product, std::move(summed), where);
  if (form.negative) out = build::map(graph, ElementwiseOp::neg, {out}, where);
  for (const Factor& f : form.outer) {
    const NodeId x = value(f, kept.rank());
    const NodeId zero = build::scalar(graph, dtype, 0, where);
    switch (f.use) {
      case Use::Times:
        out = build::map(graph, ElementwiseOp::mul, {out, number(x)}, where);
        break;
      case Use::Over:
        out = build::map(graph, ElementwiseOp::div, {out, number(x)}, where);
        break;
      case Use::If:
        out = build::map(graph, ElementwiseOp::select, {x, out, zero}, where);
        break;
      case Use::Unless:
        out = build::map(graph, ElementwiseOp::select, {x, zero, out}, where);
        break;
    }
  }
  return dtype == sum.type.dtype ? out : build::convert(graph, out, sum.type.dtype, where);
}

}  // namespace braze
