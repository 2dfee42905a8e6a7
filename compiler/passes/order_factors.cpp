#include "compiler/passes/order_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "compiler/fusion/inliner.h"
#include "compiler/passes/moved_axes.h"
#include "compiler/passes/product_prices.h"
#include "compiler/passes/split_dots.h"
#include "ir/graph/axis_lists.h"
#include "ir/graph/build.h"
#include "ir/graph/reordered.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"
#include "ir/support/text.h"
#include "ir/target/features.h"

namespace braze {

namespace {

// Something is clearly better if it takes at most this part of the time.
constexpr double kClearly = 0.9;

// An axis of the product along which a factor lies in memory: the dimension of the value that the
// factor is made from, and how many neighbours there are.
struct Run {
  int64_t dimension = 0;
  int64_t length = 0;
  std::optional<size_t> pair;  // of summed axes; none: the axis is one of the result
};

// One side of a product: the value that is in memory, and the movement ops that make the factor.
struct Factor {
  NodeId source;
  std::vector<NodeId> moves = {};  // the first one first
  Shape shape;                     // of the source
  std::vector<Run> runs = {};      // the longest ones first

  const Run* along(int64_t dimension) const {
    const auto found = std::ranges::find(runs, dimension, &Run::dimension);
    return found == runs.end() ? nullptr : &*found;
  }
};

// Notes at which coordinates a factor reads its source.
struct Coordinates {
  struct Value {};
  std::vector<Expr> at;

  Value load(NodeId, std::vector<Expr> coordinates, const Conditions&) {
    at = std::move(coordinates);
    return {};
  }
  Value reduced(NodeId, const std::vector<Expr>&, const Conditions&) { return {}; }
  Value index(const Expr&, DType) { return {}; }
  Value constant(DType, uint64_t) { return {}; }
  Value inside(const Conditions&) { return {}; }
  Value apply(ElementwiseOp, std::span<const Value>, DType) { return {}; }
  Expr as_index(const Value&, const Expr&) { return 0; }
  std::optional<Value> cached(NodeId, const std::vector<Expr>&) { return std::nullopt; }
};

// A transpose of a transpose is one transpose, or none: a pair of them would say that the value
// between is in memory.
NodeId transposed(Graph& graph, NodeId x, Axes order, const SourceLocation& where) {
  if (const auto* inner = graph[x].as<TransposeOp>()) {
    for (int64_t& axis : order) axis = inner->permutation[static_cast<size_t>(axis)];
    x = graph[x].operands[0];
  }
  const bool same = std::ranges::is_sorted(order);
  return same ? x : build::transpose(graph, x, std::move(order), where);
}

// The factor with its summed axes innermost; both lists of axes get the new numbers.
NodeId with_axes_last(Graph& graph, NodeId x, Axes& batch, Axes& contract,
                      const SourceLocation& where) {
  const size_t rank = graph[x].type.shape.rank();
  if (are_last(contract, rank)) return x;
  Axes order = other_axes(rank, contract);
  for (int64_t& axis : batch) axis = std::ranges::find(order, axis) - order.begin();
  const auto first = static_cast<int64_t>(order.size());
  order.insert(order.end(), contract.begin(), contract.end());
  std::iota(contract.begin(), contract.end(), first);
  return transposed(graph, x, std::move(order), where);
}

// A value in memory: the order in which it lies there has its first two axes swapped, because only
// another order than its own can be said.
NodeId stored_with_axes_swapped(Graph& graph, NodeId x, const SourceLocation& where) {
  Axes order = axes_from(0, graph[x].type.shape.rank());
  std::swap(order[0], order[1]);
  return build::transpose(graph, build::transpose(graph, x, order, where), order, where);
}

// How the factors of a product lie, and in which order their axes are summed.
struct Choice {
  std::array<Axes, 2> orders = {};   // of each source; empty: as it is
  std::optional<size_t> last;        // the pair of axes that is summed innermost; none: as it is
  std::array<bool, 2> packed = {};   // whether a factor is copied with all summed axes innermost
  std::array<bool, 2> as_read = {};  // whether a factor is copied as the product reads it
  bool in_parts = false;             // whether partial products are added (split_dots.h)
};

// The orders to which values are copied.
using Copies = std::map<NodeId, std::set<Axes>>;

class Product {
 public:
  Product(const Rewriting& step, const DotOp& dot, const Target& target)
      : step_(step), dot_(dot), target_(target) {
    for (const size_t side : {0, 1}) {
      Factor& factor = factors_[side];
      factor.source = step.operands[side];
      while (is_movement(graph()[factor.source])) {
        factor.moves.insert(factor.moves.begin(), factor.source);
        factor.source = graph()[factor.source].operands[0];
      }
      factor.shape = graph()[factor.source].type.shape;
    }
    alone_ = made({});
    find_runs();
  }

  const Graph& alone() const { return alone_; }
  // Whether it is known along which axes the sources are read: not where a reshape cuts an axis.
  bool is_linear() const { return is_linear_[0] && is_linear_[1]; }

  // Copies of the factors that are read along axes which a reshape cuts, as the product reads them.
  std::optional<Choice> as_read() const {
    Choice out;
    for (const size_t side : {0, 1})
      out.as_read[side] = !is_linear_[side] && graph()[step_.operands[side]].type.shape.rank() > 2;
    return out.as_read[0] || out.as_read[1] ? std::optional(out) : std::nullopt;
  }

  // The orders that are worth a price: each source as it is, or with the longest run innermost that
  // it has along the same pair of summed axes or, if `along_results`, along an axis of the result.
  std::vector<Choice> choices(bool along_results) const {
    std::vector<Choice> out;
    std::set<size_t> pairs;
    for (const Factor& factor : factors_)
      for (const Run& run : factor.runs)
        if (run.pair) pairs.insert(*run.pair);
    for (const size_t pair : pairs) {
      const std::array both{orders(factors_[0], pair, along_results),
                            orders(factors_[1], pair, along_results)};
      for (const Axes& left : both[0])
        for (const Axes& right : both[1])
          if (!left.empty() || !right.empty() || pair + 1 < dot_.contract_left.size())
            out.push_back({{left, right}, pair});
    }
    return out;
  }

  // Both factors with all summed axes innermost, as asynchronous units read tf32, or one of them.
  std::vector<Choice> packed() const {
    std::vector<Choice> out = {{.packed = {true, true}}};
    const bool last[] = {has_sums_last(0), has_sums_last(1)};
    if (!last[0] && !last[1])
      out.insert(out.end(), {{.packed = {true}}, {.packed = {false, true}}});
    return out;
  }

  // Whether the choice takes copies that are there already, of all sources that have any.
  bool takes_again(const Choice& choice, const Copies& copies) const {
    bool any = false;
    for (const size_t side : {0, 1}) {
      const auto found = copies.find(factors_[side].source);
      if (found == copies.end()) continue;
      if (!found->second.contains(choice.orders[side])) return false;
      any = true;
    }
    return any;
  }
  void note(const Choice& choice, Copies& copies) const {
    for (const size_t side : {0, 1})
      if (!choice.orders[side].empty()) copies[factors_[side].source].insert(choice.orders[side]);
  }

  // Whether the product, with this choice, can be the sum of partial products.
  bool divides(Choice choice) const {
    choice.in_parts = true;
    const Graph parts = made(choice);
    NodeId made = parts.outputs()[0].node;
    while (is_movement(parts[made])) made = parts[made].operands[0];
    return !parts[made].as<DotOp>();
  }

  // A graph that computes nothing else, whose inputs are the sources.
  Graph made(const Choice& choice) const {
    Graph out("product");
    std::array<NodeId, 2> sources;
    for (const size_t side : {0, 1}) {
      const NodeId source = factors_[side].source;
      sources[side] = side == 1 && source == factors_[0].source
                          ? sources[0]
                          : build::input(out, side == 0 ? "x" : "y", graph()[source].type);
    }
    std::map<NodeId, NodeId> others;
    const auto other = [&](NodeId node) {
      const auto [place, added] = others.try_emplace(node);
      if (added)
        place->second =
            graph()[node].as<ConstantOp>()
                ? build::rebuild(out, graph()[node], {})
                : build::input(out, fmt::format("fill{}", others.size()), graph()[node].type);
      return place->second;
    };
    const NodeId product = add(out, choice, sources, other);
    out.set_outputs({{product, "product", {}}});
    return out;
  }

  // The product in the graph that is rewritten.
  NodeId take(const Choice& choice) const {
    return add(step_.result, choice, {factors_[0].source, factors_[1].source},
               [](NodeId node) { return node; });
  }

  // What is done before the product: the sources that are copied, and to which orders.
  std::vector<std::string> copies(const Choice& choice, const GraphPrinter& printer) const {
    std::vector<std::string> out;
    for (const size_t side : {0, 1}) {
      NodeId source = step_.node.operands[side];
      if (choice.as_read[side]) out.push_back(printer.value(source) + " as it is read");
      if (choice.packed[side] && !has_sums_last(side))
        out.push_back(printer.value(source) + " with its summed axes last");
      if (choice.orders[side].empty()) continue;
      while (is_movement(step_.source[source])) source = step_.source[source].operands[0];
      out.push_back(fmt::format(
          "{} as [{}]", printer.value(source),
          join(choice.orders[side], ", ", [](int64_t d) { return std::to_string(d); })));
    }
    return out;
  }

 private:
  const Graph& graph() const { return step_.result; }

  bool has_sums_last(size_t side) const {
    return are_last(contract(dot_, side), graph()[step_.operands[side]].type.shape.rank());
  }

  // Adds the product to a graph that has its sources, and in which `other` gives the other operands
  // of movement ops.
  template <class Other>
  NodeId add(Graph& to, const Choice& choice, std::array<NodeId, 2> values, Other&& other) const {
    const SourceLocation where = step_.node.location;
    for (const size_t side : {0, 1}) {
      NodeId& value = values[side];
      if (const Axes& order = choice.orders[side]; !order.empty()) {
        value =
            build::transpose(to, build::transpose(to, value, order, where), inverse(order), where);
      }
      for (const NodeId move : factors_[side].moves) {
        const Node node = graph()[move];
        std::vector<NodeId> operands = {value};
        for (size_t i = 1; i < node.operands.size(); ++i)
          operands.push_back(other(node.operands[i]));
        value = build::rebuild(to, node, std::move(operands));
      }
      if (choice.as_read[side]) value = stored_with_axes_swapped(to, value, where);
    }
    DotOp dot = dot_;
    if (choice.packed[0])
      values[0] = with_axes_last(to, values[0], dot.batch_left, dot.contract_left, where);
    if (choice.packed[1])
      values[1] = with_axes_last(to, values[1], dot.batch_right, dot.contract_right, where);
    if (choice.last)
      for (Axes* list : {&dot.contract_left, &dot.contract_right}) {
        const auto pair = list->begin() + static_cast<std::ptrdiff_t>(*choice.last);
        std::rotate(pair, pair + 1, list->end());
      }
    if (choice.in_parts)
      if (const auto sum = braze::in_parts(to, {values[0], values[1]}, dot, step_.node, target_))
        return *sum;
    const bool copied = !choice.orders[0].empty() || !choice.orders[1].empty();
    const DType dtype = step_.node.type.dtype;
    return copied ? dot_along_memory(to, values[0], values[1], dot, dtype, where)
                  : build::dot(to, values[0], values[1], dot, dtype, where);
  }

  void find_runs() {
    const LoopForms forms(alone_);
    std::vector<bool> inside(alone_.size());
    for (size_t i = 0; i < alone_.size(); ++i) inside[i] = forms.find(NodeId(i)) != nullptr;
    const Node& product = alone_[alone_.outputs()[0].node];
    for (const size_t side : {0, 1}) {
      const NodeId factor = product.operands[side];
      const Shape& shape = alone_[factor].type.shape;
      const Axes& contract = braze::contract(dot_, side);
      std::vector<Expr> at;
      for (size_t axis = 0; axis < shape.rank(); ++axis)
        at.push_back(domain_symbol(axis, shape[axis]));
      Coordinates read;
      Inliner<Coordinates>(forms, inside, read).value(factor, at);
      for (size_t axis = 0; axis < shape.rank(); ++axis)
        for (const Expr& e : read.at)
          is_linear_[side] =
              is_linear_[side] && e.coefficient_of(domain_symbol(axis, shape[axis]).to_string());
      find_runs(factors_[side], read.at, shape, contract);
    }
  }

  // A dimension has runs along an axis if no other dimension is read along it, and if it is the
  // lowest digit of the coordinate: axes besides it make steps of at least its extent.
  static void find_runs(Factor& out, const std::vector<Expr>& at, const Shape& axes,
                        const Axes& contract) {
    for (size_t axis = 0; axis < axes.rank(); ++axis) {
      const auto extent = axes[axis].as_constant();
      const std::string symbol = domain_symbol(axis, axes[axis]).to_string();
      const auto reads = [&](const Expr& e) { return e.uses(symbol); };
      if (!extent || *extent == 1 || std::ranges::count_if(at, reads) != 1) continue;
      const auto found = std::ranges::find_if(at, reads);
      const auto slope = found->coefficient_of(symbol);
      if (!slope || !slope->is_constant(1) || !found->substitute(symbol, 0).is_multiple_of(*extent))
        continue;
      const auto pair = std::ranges::find(contract, static_cast<int64_t>(axis)) - contract.begin();
      out.runs.push_back({found - at.begin(), *extent, {}});
      if (pair < std::ssize(contract)) out.runs.back().pair = static_cast<size_t>(pair);
    }
    std::ranges::stable_sort(out.runs, std::greater(), &Run::length);
  }

  // The orders of a source for a product that sums a pair of axes innermost.
  static std::vector<Axes> orders(const Factor& factor, size_t pair, bool along_results) {
    std::vector<Axes> out;
    const auto last = innermost_axis(factor.shape);
    if (!last) return {{}};
    const auto fits = [&](const Run& run) { return !run.pair || *run.pair == pair; };
    if (const Run* run = factor.along(*last); run && fits(*run)) out.push_back({});
    for (const bool summed : {true, false}) {
      if (!summed && !along_results) break;
      const auto run = std::ranges::find_if(
          factor.runs, [&](const Run& r) { return r.pair.has_value() == summed && fits(r); });
      if (run == factor.runs.end() || run->dimension == *last) continue;
      Axes order = axes_from(0, factor.shape.rank());
      order.erase(order.begin() + run->dimension);
      order.push_back(run->dimension);
      out.push_back(std::move(order));
    }
    return out;
  }

  const Rewriting& step_;
  const DotOp& dot_;
  const Target& target_;
  std::array<Factor, 2> factors_;
  Graph alone_;
  std::array<bool, 2> is_linear_ = {true, true};
};

// Whether matrix units could multiply the factors.
bool may_use_matrix_units(const Graph& graph, const Node& node, const DotOp& dot) {
  const TensorType& left = graph[node.operands[0]].type;
  const TensorType& right = graph[node.operands[1]].type;
  if (left.dtype != right.dtype) return false;
  // Without rows or columns there is nothing to use twice, and memory decides.
  const auto extent = [](const TensorType& type, const Axes& axes) {
    double out = 1;
    for (const int64_t axis : axes)
      out *= static_cast<double>(type.shape[static_cast<size_t>(axis)].range().max);
    return out;
  };
  const auto own = [&](const TensorType& type, const Axes& batch, const Axes& contract) {
    return static_cast<double>(type.shape.numel().range().max) /
           (extent(type, batch) * extent(type, contract));
  };
  if (own(left, dot.batch_left, dot.contract_left) <= 1 ||
      own(right, dot.batch_right, dot.contract_right) <= 1)
    return false;
  const double work =
      static_cast<double>(node.type.shape.numel().range().max) * extent(left, dot.contract_left);
  return work >= kLeastAsynchronousDot &&
         (is_half(left.dtype) || (dot.tf32 && left.dtype == DType::F32));
}

}  // namespace

std::string FactorOrders::to_string() const {
  constexpr double kMicro = 1e6;
  std::string out = fmt::format("{}: {:.3g} us as it is, ", product, as_it_is * kMicro);
  if (in_order == 0) return out + "and there is no better order";
  out += fmt::format("{:.3g} us ", in_order * kMicro);
  if (!changed) return out + "in another form, which is not taken";
  if (!copies.empty())
    out += "with copies of " + join(copies, " and ", std::identity());
  else if (!in_parts)
    out += "with its axes summed in another order";
  return in_parts ? out + (copies.empty() ? "as" : ", as") + " a sum of partial products" : out;
}

namespace {

// A product whose factors may be copied as it reads them.
struct CopiedAsRead {
  std::string product;
  std::vector<std::string> copies;
  bool is_read;  // whether the best units read the factors of this product alone as they are
};

// With `copies_as_read`, factors that are read along axes which a reshape cuts are copied.
OrderedFactors order_factors(const Graph& graph, const Target& target, Precision precision,
                             bool copies_as_read, std::vector<CopiedAsRead>& copied_as_read) {
  OrderedFactors out;
  const GraphPrinter printer(graph);
  Copies made;
  ProductPrices prices(target, precision);
  const auto priced = [&](const Graph& product) { return prices.of(product); };
  out.graph = rewrite(graph, [&](const Rewriting& step) {
    const auto* dot = step.node.as<DotOp>();
    if (!dot || !may_use_matrix_units(step.source, step.node, *dot)) return step.keep();
    const Product product(step, *dot, target);
    const ProductKernels as_it_is = priced(product.alone());
    if (!product.is_linear()) {
      const std::optional<Choice> choice = product.as_read();
      if (!choice) return step.keep();
      const bool is_read = target.asynchronous_dots ? as_it_is.asynchronous : as_it_is.by_copies;
      copied_as_read.push_back({printer.value(step.id), product.copies(*choice, printer), is_read});
      return copies_as_read ? product.take(*choice) : step.keep();
    }
    // The asynchronous units read tf32 only along the summed axes, those of warps along any.
    const bool is_packed_for =
        target.asynchronous_dots && !is_half(step.source[step.node.operands[0]].type.dtype);
    const bool is_direct =
        as_it_is.by_copies && as_it_is.count == 1 && (as_it_is.asynchronous || !is_packed_for);
    // Where units of warps read 16-bit factors as they are, asynchronous ones may read them if
    // their axes are summed in another order, which takes no copies.
    const bool takes_no_copies =
        is_direct && !is_packed_for && !as_it_is.asynchronous && target.asynchronous_dots;
    if (is_direct && !is_packed_for && !takes_no_copies) return step.keep();
    FactorOrders verdict{.product = printer.value(step.id), .as_it_is = as_it_is.seconds};
    // Factors that units read by copies already are left as they are in case of doubt.
    const double most = (as_it_is.by_copies ? kClearly : 1) * as_it_is.seconds;
    // The best choice of a kind.
    enum class Kind : uint8_t { Again, Summed, Any };
    const auto best_of = [&](Kind kind) {
      std::optional<std::pair<Choice, ProductKernels>> found;
      if (is_direct && !takes_no_copies) return found;
      for (Choice& choice : product.choices(/*along_results=*/kind != Kind::Summed)) {
        if (kind == Kind::Again && !product.takes_again(choice, made)) continue;
        if (takes_no_copies && !(choice.orders[0].empty() && choice.orders[1].empty())) continue;
        const ProductKernels kernels = priced(product.made(choice));
        if (!kernels.by_copies || (takes_no_copies && !kernels.asynchronous)) continue;
        if (!found || kernels.seconds < found->second.seconds)
          found.emplace(std::move(choice), kernels);
      }
      return found;
    };
    // A copy that is there already is taken again. Otherwise a summed axis is innermost, unless an
    // axis of the result is clearly better.
    std::optional<std::pair<Choice, ProductKernels>> best = best_of(Kind::Again);
    if (!best || best->second.seconds >= most) {
      best = best_of(Kind::Summed);
      auto other = best_of(Kind::Any);
      if (other && (!best || other->second.seconds < kClearly * best->second.seconds))
        best = std::move(other);
    }
    const auto try_choice = [&](const Choice& choice) {
      const ProductKernels kernels = priced(product.made(choice));
      if (kernels.by_copies && (!best || kernels.seconds < best->second.seconds))
        best.emplace(choice, kernels);
    };
    if (is_packed_for && !is_direct)
      for (const Choice& choice : product.packed()) try_choice(choice);
    if (Choice choice = best ? best->first : Choice(); is_packed_for && product.divides(choice)) {
      choice.in_parts = true;
      try_choice(choice);
    }
    if (is_direct && !best) return step.keep();
    if (best) verdict.in_order = best->second.seconds;
    const bool changed = verdict.changed = best && best->second.seconds < most;
    if (changed) {
      verdict.copies = product.copies(best->first, printer);
      verdict.in_parts = best->first.in_parts;
      product.note(best->first, made);
    }
    out.verdicts.push_back(std::move(verdict));
    return changed ? product.take(best->first) : step.keep();
  });
  return out;
}

// A product that is better alone in another form may keep others from being one kernel with it. If
// all kernels together take no less time, all products stay as they were.
void leave_if_slower(const Graph& graph, const Target& target, Precision precision,
                     OrderedFactors& out) {
  size_t products = 0;
  for (size_t i = 0; i < graph.size(); ++i) products += graph[NodeId(i)].as<DotOp>() != nullptr;
  if (products < 2 || std::ranges::none_of(out.verdicts, &FactorOrders::changed)) return;
  if (seconds_of(out.graph, target, precision) < seconds_of(graph, target, precision)) return;
  out.graph = graph;
  for (FactorOrders& verdict : out.verdicts) verdict.changed = false;
}

}  // namespace

OrderedFactors order_factors(const Graph& graph, const Target& target, Precision precision) {
  std::vector<CopiedAsRead> products;
  OrderedFactors out = order_factors(graph, target, precision, /*copies_as_read=*/false, products);
  leave_if_slower(graph, target, precision, out);
  if (products.empty() || (products.size() == 1 && products[0].is_read)) return out;
  // Such copies pay where several products become one kernel, so only all kernels together tell.
  std::vector<CopiedAsRead> same;
  OrderedFactors copied = order_factors(graph, target, precision, /*copies_as_read=*/true, same);
  FactorOrders verdict{
      .product = join(products, ", ", [](const CopiedAsRead& p) { return p.product; }),
      .as_it_is = seconds_of(out.graph, target, precision),
      .in_order = seconds_of(copied.graph, target, precision)};
  verdict.changed = verdict.in_order < kClearly * verdict.as_it_is;
  if (verdict.changed) {
    for (const CopiedAsRead& p : products)
      verdict.copies.insert(verdict.copies.end(), p.copies.begin(), p.copies.end());
    out = std::move(copied);
  }
  out.verdicts.push_back(std::move(verdict));
  return out;
}

}  // namespace braze
