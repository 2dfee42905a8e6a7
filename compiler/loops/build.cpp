// build.cpp — builds the first tree of a kernel (0003, sections 1.2 and 1.3).
#include "compiler/loops/build.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <ranges>
#include <set>

#include "compiler/loops/axes.h"
#include "compiler/loops/finite.h"
#include "ir/graph/coarse.h"
#include "ir/ops/scalar.h"

namespace braze {

namespace {

/// The Inliner's sink, which collects the steps of a body. Until all axes are known, the source of
/// a load or read is the number of its node, and its coordinates are those of the node.
struct BodySink {
  using Value = uint32_t;
  std::vector<LoopStep>* steps = nullptr;

  Value push(LoopStep step) {
    steps->push_back(std::move(step));
    return static_cast<Value>(steps->size() - 1);
  }
  Value memory(LoopStep::Kind kind, NodeId node, std::vector<Expr> at,
               const Conditions& conditions) {
    return push({.kind = kind,
                 .dtype = graph->operator[](node).type.dtype,
                 .source = node.index,
                 .at = std::move(at),
                 .conditions = conditions});
  }
  Value load(NodeId node, std::vector<Expr> at, const Conditions& conditions) {
    return memory(LoopStep::Kind::Load, node, std::move(at), conditions);
  }
  Value reduced(NodeId node, std::vector<Expr> at, const Conditions& conditions) {
    return memory(LoopStep::Kind::Read, node, std::move(at), conditions);
  }
  Value index(const Expr& value, DType dtype) {
    return push({.kind = LoopStep::Kind::Index, .dtype = dtype, .at = {value}});
  }
  Value constant(DType dtype, uint64_t bits) {
    return push({.kind = LoopStep::Kind::Constant, .dtype = dtype, .bits = bits});
  }
  Value inside(const Conditions& conditions) {
    return push({.kind = LoopStep::Kind::Inside, .dtype = DType::Bool, .conditions = conditions});
  }
  Value apply(ElementwiseOp op, std::span<const Value> arguments, DType result) {
    if (const auto at = as_index(op, arguments, result)) return index(*at, result);
    if (op == ElementwiseOp::exp && is_relaxed() && may_approximate(result))
      return approximate_exp(arguments[0], result);
    if (op == ElementwiseOp::add && is_relaxed() && result == DType::F32)
      if (const auto sum = multiply_add(arguments)) return *sum;
    if (op == ElementwiseOp::exp && result == DType::F32 &&
        (is_among(powers) || (origin == summed_power && below_own_greatest(arguments[0]))))
      return power_of_two(arguments[0]);
    return push({.kind = LoopStep::Kind::Apply,
                 .dtype = result,
                 .op = op,
                 .coarse = result == DType::F32 && has_coarse_body(op) && is_among(coarse),
                 .arguments = {arguments.begin(), arguments.end()}});
  }
  // Arithmetic on indices remains an index expression if no integer can wrap around.
  std::optional<Expr> as_index(ElementwiseOp op, std::span<const Value> arguments, DType result) {
    if (!is_integer(result)) return std::nullopt;
    std::vector<Expr> at;
    bool any = false;
    for (const Value argument : arguments) {
      const LoopStep& s = (*steps)[argument];
      any = any || s.kind == LoopStep::Kind::Index;
      if (s.kind == LoopStep::Kind::Index)
        at.push_back(s.at[0]);
      else if (s.kind == LoopStep::Kind::Constant && is_integer(s.dtype))
        at.emplace_back(bits_to_int(s.dtype, s.bits));
      else
        return std::nullopt;
    }
    if (!any) return std::nullopt;
    Expr out;
    if (op == ElementwiseOp::convert)
      out = at[0];
    else if (op == ElementwiseOp::add)
      out = at[0] + at[1];
    else if (op == ElementwiseOp::sub)
      out = at[0] - at[1];
    else
      return std::nullopt;
    const auto range = out.range();
    const bool fits = range.min >= INT32_MIN && range.max <= INT32_MAX &&
                      (result == DType::I32 || result == DType::I64);
    return fits ? std::optional(out) : std::nullopt;
  }
  bool is_relaxed() const { return is_among(relaxed); }
  // Indices that the Inliner computes belong to no node.
  bool is_among(const std::vector<bool>* nodes) const {
    return nodes && origin.index < nodes->size() && (*nodes)[origin.index];
  }
  static bool may_approximate(DType dtype) { return dtype == DType::F32 || is_half(dtype); }
  Value approximate_exp(Value value, DType result) {
    const auto in_f32 = [&](ElementwiseOp op, std::vector<Value> arguments) {
      return push({.dtype = DType::F32, .op = op, .arguments = std::move(arguments)});
    };
    if (is_half(result)) value = in_f32(ElementwiseOp::convert, {value});
    const Value log2_e = constant(DType::F32, constant_bits(DType::F32, 1.4426950408889634));
    // Where a multiple of x has a value subtracted that other elements share, the factor is applied
    // to that value once for all of them, and each element costs one `fma`. Without a multiple the
    // difference comes first: it is 0 at the greatest x, however large that is, while the rounded
    // product of a large value would be off by more than exponents reach.
    const LoopStep difference = (*steps)[value];
    const bool from_total = difference.kind == LoopStep::Kind::Apply &&
                            difference.op == ElementwiseOp::sub &&
                            is_shared(difference.arguments[1], difference.arguments[0]);
    const auto [x, factor] =
        from_total ? without_factor(difference.arguments[0]) : std::pair{value, 1.0};
    if (factor != 1) {
      const Value total = in_f32(ElementwiseOp::mul, {difference.arguments[1], log2_e});
      value =
          in_f32(ElementwiseOp::fma,
                 {x, constant(DType::F32, constant_bits(DType::F32, factor * 1.4426950408889634)),
                  in_f32(ElementwiseOp::neg, {total})});
    } else {
      value = in_f32(ElementwiseOp::mul, {value, log2_e});
    }
    value = in_f32(ElementwiseOp::approx_exp2, {value});
    if (!is_half(result)) return value;
    return push({.dtype = result, .op = ElementwiseOp::convert, .arguments = {value}});
  }
  Value power_of_two(Value value) {
    const Value log2_e = constant(DType::F32, constant_bits(DType::F32, 1.4426950408889634));
    const Value scaled =
        push({.dtype = DType::F32, .op = ElementwiseOp::mul, .arguments = {value, log2_e}});
    return push({.dtype = DType::F32, .op = ElementwiseOp::approx_exp2, .arguments = {scaled}});
  }
  // Whether the value is a difference whose subtrahend was reduced from the row of this element.
  bool below_own_greatest(Value value) const {
    const LoopStep& difference = (*steps)[value];
    return difference.op == ElementwiseOp::sub && reads_own(difference.arguments[1]);
  }
  bool reads_own(Value value) const {
    bool out = true;
    visit_parts(value, [&](const LoopStep& s) {
      out = out && (s.kind != LoopStep::Kind::Read || s.at == *own);
    });
    return out;
  }
  // Visits the steps of which a value is made, each once.
  template <class Visit>
  void visit_parts(Value value, Visit visit) const {
    std::vector<Value> left = {value};
    std::set<Value> seen = {value};
    while (!left.empty()) {
      const LoopStep& s = (*steps)[left.back()];
      left.pop_back();
      visit(s);
      for (const Value argument : s.arguments)
        if (seen.insert(argument).second) left.push_back(argument);
    }
  }
  // A sum with a product as one `fma`, which rounds once.
  std::optional<Value> multiply_add(std::span<const Value> arguments) {
    for (const size_t i : {0, 1}) {
      const LoopStep product = (*steps)[arguments[i]];
      if (product.kind != LoopStep::Kind::Apply || product.op != ElementwiseOp::mul) continue;
      return push({.dtype = DType::F32,
                   .op = ElementwiseOp::fma,
                   .arguments = {product.arguments[0], product.arguments[1], arguments[1 - i]}});
    }
    return std::nullopt;
  }
  // Whether `value` varies along fewer axes than `other`.
  bool is_shared(Value value, Value other) const {
    std::set<std::string> fewer, all;
    note_axes(value, fewer);
    note_axes(other, all);
    return fewer.size() < all.size() && std::ranges::includes(all, fewer);
  }
  void note_axes(Value value, std::set<std::string>& out) const {
    visit_parts(value, [&](const LoopStep& s) {
      for_each_expr(s, [&](const Expr& e) {
        for (const std::string& symbol : e.symbols()) out.insert(symbol);
      });
    });
  }
  // Splits a value into another value and a positive constant by which that is multiplied. It also
  // looks into a `select` whose other branch is -infinity.
  std::pair<Value, double> without_factor(Value value) {
    const LoopStep s = (*steps)[value];
    const auto number = [&](Value argument) -> std::optional<double> {
      const LoopStep& c = (*steps)[argument];
      if (c.kind != LoopStep::Kind::Constant || !is_floating(c.dtype)) return std::nullopt;
      return bits_to_double(c.dtype, c.bits);
    };
    if (s.kind != LoopStep::Kind::Apply || s.dtype != DType::F32) return {value, 1};
    if (s.op == ElementwiseOp::mul)
      for (const size_t i : {1, 0})
        if (const auto c = number(s.arguments[i]); c && *c > 0 && std::isfinite(*c))
          return {s.arguments[1 - i], *c};
    if (s.op == ElementwiseOp::select && number(s.arguments[2]) == -HUGE_VAL) {
      const auto [x, factor] = without_factor(s.arguments[1]);
      if (factor != 1)
        return {push({.dtype = DType::F32,
                      .op = ElementwiseOp::select,
                      .arguments = {s.arguments[0], x, s.arguments[2]}}),
                factor};
    }
    return {value, 1};
  }
  // An index that is out of range is clamped, as an i32 if it is one and the axis is no longer: a
  // comparison of 64 bits takes a GPU two instructions.
  Expr as_index(Value value, const Expr& extent) {
    if (const LoopStep& s = (*steps)[value];
        s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::convert &&
        (*steps)[s.arguments[0]].dtype == DType::I32 && extent.range().max <= INT32_MAX)
      value = s.arguments[0];
    const DType dtype = (*steps)[value].dtype;
    const Value bounds[] = {index(extent - 1, dtype), constant(dtype, 0)};
    const Value most[] = {value, bounds[0]};
    const Value least[] = {apply(ElementwiseOp::min, most, dtype), bounds[1]};
    return loaded_symbol(apply(ElementwiseOp::max, least, dtype), extent.range().max);
  }
  std::optional<Value> cached(NodeId node, const std::vector<Expr>& at) {
    if (contains(*stored, node)) visited.emplace_back(node, at);
    return std::nullopt;
  }
  static bool contains(const std::vector<NodeId>& list, NodeId node) {
    return std::find(list.begin(), list.end(), node) != list.end();
  }

  const Graph* graph = nullptr;
  const std::vector<NodeId>* stored = nullptr;
  const std::vector<bool>* relaxed = nullptr;
  const std::vector<bool>* coarse = nullptr;
  const std::vector<bool>* powers = nullptr;
  // The node (see power_in) whose exp may be computed as 2^x.
  std::optional<NodeId> summed_power = {};
  const std::vector<Expr>* own = nullptr;  // the coordinates of the value under computation
  NodeId origin = {};                      // the node whose loop form the Inliner walks
  // Nodes of `stored` that were met.
  std::vector<std::pair<NodeId, std::vector<Expr>>> visited = {};
};

/// A node that has its own loops: a reduction, or a node that is stored.
struct Root {
  NodeId node;
  LoopTask task;
  std::vector<size_t> domain, reduction;  // numbers in Axes; kNone for extents of 1
  std::vector<size_t> loops;              // axes of the tree that its loops run over
  std::set<size_t> reduced;               // the axes in `loops` that it reduces
  std::optional<size_t> running;          // the axis in `loops` along which a scan runs
  // Other stored nodes that it computes on the way.
  std::vector<std::pair<NodeId, std::vector<Expr>>> visited;
};
constexpr size_t kNone = SIZE_MAX;

class TreeBuilder {
 public:
  TreeBuilder(const LoopForms& forms, const Fusion& fusion, std::string_view name,
              const std::map<NodeId, NodeId>& aliases, const std::vector<bool>* relaxed,
              const std::vector<bool>* coarse, const std::vector<bool>* powers)
      : forms_(forms),
        graph_(forms.graph()),
        fusion_(fusion),
        aliases_(aliases),
        inside_(membership(graph_, fusion)),
        relaxed_(relaxed),
        coarse_(coarse),
        powers_(powers) {
    tree_.name = name;
    const auto dots = std::ranges::count_if(fusion.nodes, [&](NodeId node) {
      const LoopForm* form = forms.find(node);
      return form && form->is_dot;
    });
    cascade_ = dots > 1;
    if (cascade_) approximated_ = relaxed;
    if (!cascade_ && relaxed) stored_ = nodes_of_stores();
    for (const NodeId node : fusion.nodes) {
      const LoopForm* form = forms.find(node);
      if (form && form->reduces()) add_root(node, form);
    }
    for (const NodeId node : fusion.outputs) add_root(node, nullptr);
  }

  LoopTree build() {
    if (!may_cut()) join_running();
    // Axes are joined first by what roots read of each other, then by what they read of one memory.
    for (const auto kind : {LoopStep::Kind::Read, LoopStep::Kind::Load})
      for (size_t r = 0; r < roots_.size(); ++r) add_equations(r, kind);
    if (may_cut()) join_stores();
    number_axes();
    declare();
    for (Root& root : roots_) resolve(root);
    if (approximated_) widen_sums();
    name_sizes();
    std::vector<std::vector<size_t>> left;
    for (const Root& root : roots_) left.push_back(root.loops);
    tree_.phases.push_back(nest(order(), left));
    return std::move(tree_);
  }

 private:
  // Adds a root for a node that is a reduction (with its form) or whose value is stored (without
  // one).
  void add_root(NodeId node, const LoopForm* form) {
    const size_t number = roots_.size();
    Root root;
    const Shape& shape = graph_[node].type.shape;
    const auto new_axis = [&](const Expr& extent) {
      return extent.is_constant(1) ? kNone : axes_.add(extent, number);
    };
    for (const Expr& extent : shape) root.domain.push_back(new_axis(extent));
    root.node = node;
    if (form && form->running) {
      size_t& along = root.domain[form->running->axis];
      if (along == kNone) along = axes_.add(shape[form->running->axis], number);
      root.reduction = {along};
      root.task.kind = LoopTask::Kind::Scan;
      root.task.combiner = form->running->combiner;
      root.task.part = form->running->part;
      root.task.reverse = form->running->reverse;
      root.task.exclusive = form->running->exclusive;
      root_of_[node] = number;
    } else if (form) {
      for (const Expr& extent : form->reduction) root.reduction.push_back(new_axis(extent));
      root.task.kind = form->placement ? LoopTask::Kind::Place
                       : form->arg_max ? LoopTask::Kind::Arg
                       : form->is_dot  ? LoopTask::Kind::Dot
                                       : LoopTask::Kind::Fold;
      root_of_[node] = number;
    }
    LoopBody& body = root.task.body;
    BodySink sink{.steps = &body.steps,
                  .graph = &graph_,
                  .stored = &fusion_.outputs,
                  .relaxed = approximated_,
                  .coarse = coarse_,
                  .powers = powers_};
    const auto at = symbols(root.domain);
    sink.own = &at;
    if (form) sink.summed_power = power_in(node, *form);
    Inliner<BodySink> inliner(forms_, inside_, sink);
    if (form && form->placement) {
      // The values with which the sums begin come first, because they are read before any term.
      const uint32_t start = inliner.start(node, at);
      const uint32_t place = inliner.place(node, symbols(root.reduction));
      body.results = {inliner.reduction_body(node, at, symbols(root.reduction)), place, start};
    } else if (form && form->running) {
      body.results = inliner.scanned_parts(node, at, symbols(root.reduction));
    } else {
      body.results = {form ? inliner.reduction_body(node, at, symbols(root.reduction))
                           : inliner.value(node, at)};
    }
    if (form && form->is_dot && root.task.kind == LoopTask::Kind::Dot) {
      take_factors(body);
      fill_outside(body);
    }
    if (form && form->monoid) root.task.monoid = *form->monoid;
    if (form && form->placement) root.task.replaces = !form->monoid;
    if (form) root.task.arg_max = form->arg_max.value_or(false);
    root.task.tf32 = form && form->is_dot && form->tf32;
    root.task.unrounded = form && sums_products(root.task) && may_join(node, *form);
    if (!form) root.task.at = at;
    root.task.location = graph_[node].location;
    root.visited = std::move(sink.visited);
    roots_.push_back(std::move(root));
  }

  // Whether a sum of products may add them before they are rounded. It may if the summing op itself
  // multiplies, or if nothing else needs the products in rounded form.
  bool may_join(NodeId sum, const LoopForm& form) const {
    if (form.body.back().kind == BodyStep::Kind::Apply) return true;
    NodeId summed = graph_[sum].operands[0];
    while (!graph_[summed].as<MapOp>() && !graph_[summed].operands.empty())
      summed = graph_[summed].operands[0];  // walks through movement ops
    return relaxed_ && (*relaxed_)[summed.index];
  }

  // For each node: whether a result is computed from it without a reduction in between.
  std::vector<bool> nodes_of_stores() const {
    std::vector<bool> out(graph_.size());
    std::vector<NodeId> left = fusion_.outputs;
    while (!left.empty()) {
      const NodeId node = left.back();
      left.pop_back();
      if (out[node.index] || !inside_[node.index]) continue;
      out[node.index] = true;
      const LoopForm* form = forms_.find(node);
      if (!form || !form->reduces())
        left.insert(left.end(), graph_[node].operands.begin(), graph_[node].operands.end());
    }
    return out;
  }
  // The node e^(x - g) that `node` sums, if an approximate 2^x may compute it (ir/graph/coarse.h).
  // If a result needs the term itself, it is computed exactly, and the sum takes that value.
  std::optional<NodeId> power_in(NodeId node, const LoopForm& form) const {
    if (stored_.empty() || form.is_dot) return std::nullopt;
    const auto power = summed_power(graph_, graph_[node]);
    if (!power || stored_[power->index] || !inside_[power->index]) return std::nullopt;
    return power;
  }

  // A dot takes its factors in the dtype that they have before they are widened for the product.
  static void take_factors(LoopBody& body) {
    const LoopStep& product = body.steps[body.results[0]];
    BRAZE_CHECK(product.op == ElementwiseOp::mul, "the body of a dot must end in a product");
    body.results = product.arguments;
    const auto widened = [&](uint32_t step) {
      const LoopStep& s = body.steps[step];
      return s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::convert &&
             s.dtype == DType::F32 && is_half(body.steps[s.arguments[0]].dtype);
    };
    const uint32_t left = body.results[0], right = body.results[1];
    if (widened(left) && widened(right)) {
      const uint32_t a = body.steps[left].arguments[0], b = body.steps[right].arguments[0];
      if (body.steps[a].dtype == body.steps[b].dtype) body.results = {a, b};
    }
  }

  // A factor that is read from memory where conditions hold, and is a constant elsewhere, becomes
  // one load, so that it can be copied. If the conditions only say "inside the tensor", they are
  // dropped.
  void fill_outside(LoopBody& body) const {
    for (uint32_t& result : body.results) {
      const LoopStep chosen = body.steps[result];
      if (chosen.op != ElementwiseOp::select || chosen.arguments.size() != 3) continue;
      const LoopStep &inside = body.steps[chosen.arguments[0]],
                     &none = body.steps[chosen.arguments[2]];
      LoopStep load = body.steps[chosen.arguments[1]];
      if (inside.kind != LoopStep::Kind::Inside || load.kind != LoopStep::Kind::Load ||
          none.kind != LoopStep::Kind::Constant || !(inside.conditions == load.conditions))
        continue;
      load.otherwise = none.bits;
      if (says_inside(load)) load.conditions.clear();
      result = push(body, std::move(load));
    }
    remove_dead_steps(body);
  }
  // Whether the conditions hold exactly where all coordinates are inside the tensor.
  bool says_inside(const LoopStep& load) const {
    const Shape& shape = graph_[NodeId(load.source)].type.shape;
    const auto is_bound = [&](const RangeCondition& c, size_t d) {
      return c.value == load.at[d] && c.min.is_constant(0) && c.limit == shape[d];
    };
    for (const RangeCondition& c : load.conditions) {
      bool any = false;
      for (size_t d = 0; d < load.at.size(); ++d) any |= is_bound(c, d);
      if (!any) return false;
    }
    for (size_t d = 0; d < load.at.size(); ++d)
      if (!proves_in_bounds(load.at[d], shape[d]) &&
          std::ranges::none_of(load.conditions,
                               [&](const RangeCondition& c) { return is_bound(c, d); }))
        return false;
    return true;
  }

  std::vector<Expr> symbols(const std::vector<size_t>& axes) const {
    std::vector<Expr> out;
    for (const size_t axis : axes) out.push_back(axis == kNone ? Expr(0) : axes_.symbol(axis));
    return out;
  }

  // What a root reads (`kind`: values or memory) says which axes are the same.
  void add_equations(size_t r, LoopStep::Kind kind) {
    for (const LoopStep& s : roots_[r].task.body.steps) {
      if (s.kind != kind) continue;
      const NodeId node{s.source};
      if (s.kind == LoopStep::Kind::Read) {
        equate(roots_[root_of_.at(node)].domain, s.at);
      } else if (s.kind == LoopStep::Kind::Load) {
        auto [found, added] = memory_.try_emplace(node);
        if (added)
          for (const Expr& extent : graph_[node].type.shape)
            found->second.push_back(
                extent.is_constant(1) ? kNone : axes_.add(extent, roots_.size() + node.index));
        equate(found->second, s.at);
      }
    }
  }
  // One loop may store several results. Therefore a result that is computed on the way to another
  // one shares its axes, and results of equal extents share axes.
  void join_stores() {
    std::vector<size_t> stores;
    for (size_t r = 0; r < roots_.size(); ++r)
      if (roots_[r].task.kind == LoopTask::Kind::Store) stores.push_back(r);
    for (const Root& root : roots_)
      for (const auto& [node, at] : root.visited)
        for (const size_t r : stores)
          if (roots_[r].node == node) equate(roots_[r].domain, at);
    const auto long_axes = [&](size_t r) {
      std::vector<size_t> out = roots_[r].domain;
      std::erase(out, kNone);
      return out;
    };
    const auto extent = [&](size_t axis) { return axes_.extent(axis); };
    for (size_t i = 1; i < stores.size(); ++i) {
      const std::vector<size_t> axes = long_axes(stores[i]);
      for (size_t k = 0; k < i; ++k) {
        const std::vector<size_t> first = long_axes(stores[k]);
        if (!std::ranges::equal(first, axes, {}, extent, extent)) continue;
        equate(axes, symbols(first));
        break;
      }
    }
  }
  // A scan runs along one axis. In a kernel with scans, accesses to memory therefore do not cut
  // axes into digits.
  bool may_cut() const {
    return std::none_of(roots_.begin(), roots_.end(),
                        [](const Root& root) { return root.task.kind == LoopTask::Kind::Scan; });
  }
  // Everything that is stored beside a scan is computed in its walk. If a root computes again what
  // another root stores, they compute it at the same index, wherever they read memory.
  void join_running() {
    for (const Root& root : roots_) {
      for (const LoopStep& s : root.task.body.steps)
        if (s.kind == LoopStep::Kind::Read)
          equate(roots_[root_of_.at(NodeId(s.source))].domain, s.at);
      for (const auto& [node, at] : root.visited)
        for (const Root& other : roots_)
          if (other.node == node && &other != &root) equate(other.domain, at);
    }
  }
  void equate(const std::vector<size_t>& axes, const std::vector<Expr>& at) {
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] != kNone && (at[i].kind() == Expr::Kind::Symbol || may_cut()))
        axes_.equate(axes[i], at[i]);
  }

  // --- Names --------------------------------------------------------------------------------

  std::string unused(std::string_view letters, std::set<std::string>& taken) {
    for (int round = 0;; ++round)
      for (const char letter : letters) {
        std::string name(1, letter);
        if (round > 0) name += std::to_string(round);
        if (taken.insert(name).second) return name;
      }
  }

  // Gives each digit over which a loop runs a number in the tree: first those of the results, in
  // order, and then those that are reduced.
  void number_axes() {
    std::set<std::string> taken;
    for (const Expr& symbol : forms_.symbols()) taken.insert(symbol.symbol_name());
    const auto number = [&](size_t axis, std::string_view letters) {
      if (axis == kNone) return;
      for (const size_t digit : axes_.digits(axis)) {
        const auto [found, added] = axis_of_.try_emplace(digit, tree_.axes.size());
        if (added) tree_.axes.push_back({unused(letters, taken), axes_.extent(digit)});
      }
    };
    for (size_t r = roots_.size(); r-- > 0;)
      for (const size_t axis : roots_[r].domain) number(axis, "ijklmnopq");
    for (const Root& root : roots_)
      for (const size_t axis : root.reduction) number(axis, "rstuw");
    std::unordered_map<std::string, Expr> index;
    for (const Root& root : roots_)
      for (const auto* list : {&root.domain, &root.reduction})
        for (const size_t axis : *list)
          if (axis != kNone) index.insert_or_assign(axes_.symbol(axis).symbol_name(), whole(axis));
    for (Root& root : roots_) rename(root, index);
  }

  // The whole index along the axis, composed of its digits.
  Expr whole(size_t axis) const {
    Expr out;
    for (const size_t digit : axes_.digits(axis))
      out = out * axes_.extent(digit) + tree_.axes[axis_of_.at(digit)].index();
    return out;
  }

  void rename(Root& root, const std::unordered_map<std::string, Expr>& index) {
    const auto bind = [&](Expr& e) { e = e.substitute(index); };
    LoopTask& task = root.task;
    for_each_expr(task, bind);
    const LoopForm* form = forms_.find(root.node);
    for (size_t i = 0; i < root.domain.size(); ++i) {
      if (root.domain[i] == kNone) continue;
      for (const size_t digit : axes_.digits(root.domain[i])) {
        // No loop runs over the places of a placed reduction, because its terms name their places.
        const bool placed = task.kind == LoopTask::Kind::Place && form->placement->axis == i;
        (placed ? task.along : root.loops).push_back(axis_of_.at(digit));
      }
    }
    for (const size_t axis : root.reduction) {
      if (axis == kNone) continue;
      for (const size_t digit : axes_.digits(axis)) {
        task.over.push_back(axis_of_.at(digit));
        if (task.kind == LoopTask::Kind::Scan) {
          root.running = axis_of_.at(digit);
          continue;
        }
        root.loops.push_back(axis_of_.at(digit));
        root.reduced.insert(axis_of_.at(digit));
      }
    }
  }

  // Declares the tree's values and tensors.
  void declare() {
    std::set<std::string> taken;
    const auto add = [&](NodeId node, Mode mode, std::map<NodeId, size_t>& numbers) {
      if (!numbers.try_emplace(node, tree_.tensors.size()).second) return;
      std::string name = forms_.printer().value(node).substr(1);
      if (name[0] >= '0' && name[0] <= '9') name = "t" + name;
      while (!taken.insert(name).second) name += "_";
      tree_.tensors.push_back({.name = name,
                               .mode = mode,
                               .type = graph_[node].type,
                               .align = 64,
                               .finite = mode == Mode::In && cascade_ && is_finite(forms_, node),
                               .node = node});
    };
    for (const NodeId node : fusion_.inputs)
      if (memory_.contains(node) && !aliases_.contains(node)) add(node, Mode::In, read_);
    for (const auto& [node, axes] : memory_)
      if (!aliases_.contains(node)) add(node, Mode::In, read_);
    for (const Root& root : roots_) {
      if (root.task.kind == LoopTask::Kind::Store) {
        const auto input = std::find_if(aliases_.begin(), aliases_.end(),
                                        [&](const auto& a) { return a.second == root.node; });
        const bool in_place = input != aliases_.end();
        add(root.node, in_place ? Mode::InOut : Mode::Out, written_);
        if (in_place) read_[input->first] = written_.at(root.node);
        continue;
      }
      value_of_[root.node] = tree_.values.size();
      LoopValue value{.name = forms_.printer().value(root.node).substr(1),
                      .dtype = graph_[root.node].type.dtype,
                      .node = root.node};
      for (const size_t axis : root.domain)
        if (axis != kNone)
          for (const size_t digit : axes_.digits(axis)) value.axes.push_back(axis_of_.at(digit));
      tree_.values.push_back(std::move(value));
    }
  }

  // Lists the sizes that the kernel uses, in the order of the graph.
  void name_sizes() {
    std::set<std::string> used;
    const auto note = [&](const Expr& e) {
      for (const std::string& symbol : e.symbols()) used.insert(symbol);
    };
    const auto note_all = [&](const Shape& shape) {
      for (const Expr& extent : shape) note(extent);
    };
    for (const LoopTensor& tensor : tree_.tensors) note_all(tensor.type.shape);
    for (const LoopAxis& axis : tree_.axes) note(axis.extent);
    for (const Root& root : roots_) for_each_expr(root.task.body, note);
    for (const Expr& symbol : forms_.symbols())
      if (used.contains(symbol.symbol_name())) tree_.symbols.push_back(symbol);
  }

  // Replaces the numbers of nodes by those of tensors and values. A value gets a coordinate for
  // each of its digits.
  void resolve(Root& root) {
    LoopTask& task = root.task;
    task.target = task.makes_value() ? value_of_.at(root.node) : written_.at(root.node);
    for (LoopStep& s : task.body.steps) {
      const NodeId node{s.source};
      if (s.kind == LoopStep::Kind::Load) s.source = read_.at(node);
      if (s.kind != LoopStep::Kind::Read) continue;
      s.source = value_of_.at(node);
      const Root& read = roots_[root_of_.at(node)];
      std::vector<Expr> at;
      for (size_t i = 0; i < s.at.size(); ++i)
        if (read.domain[i] != kNone) append_digits(read.domain[i], s.at[i], at);
      s.at = std::move(at);
    }
    remove_dead_steps(task.body);
  }
  // If all readers of a 16-bit dot widen its result again, and the result is relaxed, it stays in
  // f32 and is not rounded in between.
  void widen_sums() {
    for (size_t v = 0; v < tree_.values.size(); ++v) {
      LoopValue& value = tree_.values[v];
      const Root& maker = roots_[root_of_.at(value.node)];
      if (maker.task.kind != LoopTask::Kind::Dot || !is_half(value.dtype) ||
          !(*approximated_)[value.node.index])
        continue;
      const auto reads = [&](const LoopStep& s) {
        return s.kind == LoopStep::Kind::Read && s.source == v;
      };
      const auto widens = [&](const Root& root) {
        const auto& steps = root.task.body.steps;
        for (size_t i = 0; i < steps.size(); ++i) {
          if (!reads(steps[i])) continue;
          if (std::ranges::count(root.task.body.results, i) > 0) return false;
          for (const LoopStep& s : steps)
            if (std::ranges::count(s.arguments, i) > 0 &&
                (s.op != ElementwiseOp::convert || s.dtype != DType::F32))
              return false;
        }
        return true;
      };
      if (!std::ranges::all_of(roots_, widens)) continue;
      value.dtype = DType::F32;
      for (Root& root : roots_) {
        LoopBody& body = root.task.body;
        for (size_t i = 0; i < body.steps.size(); ++i) {
          LoopStep& s = body.steps[i];
          if (reads(s)) s.dtype = DType::F32;
          if (s.kind != LoopStep::Kind::Apply || s.op != ElementwiseOp::convert ||
              !reads(body.steps[s.arguments[0]]))
            continue;
          const uint32_t sum = s.arguments[0];
          const auto replace = [&](uint32_t& number) {
            if (number == i) number = sum;
          };
          for (LoopStep& other : body.steps) std::ranges::for_each(other.arguments, replace);
          std::ranges::for_each(body.results, replace);
        }
        remove_dead_steps(body);
      }
    }
  }
  void append_digits(size_t axis, const Expr& coordinate, std::vector<Expr>& out) const {
    const auto digits = axes_.digits(axis);
    std::vector<Expr> reversed;
    Expr below = 1;
    for (size_t d = digits.size(); d-- > 0; below *= axes_.extent(digits[d])) {
      const Expr above = floordiv(coordinate, below);
      reversed.push_back(d == 0 ? above : mod(above, axes_.extent(digits[d])));
    }
    out.insert(out.end(), reversed.rbegin(), reversed.rend());
  }

  // --- Loops --------------------------------------------------------------------------------

  // The numbers of the roots that a root reads.
  std::set<size_t> read_by(const Root& root) const {
    std::set<size_t> out;
    for (const LoopStep& s : root.task.body.steps)
      if (s.kind == LoopStep::Kind::Read) out.insert(root_of_.at(tree_.values[s.source].node));
    return out;
  }
  // The root and all roots that depend on it.
  std::set<size_t> made_of(size_t r) const {
    std::set<size_t> out = {r};
    for (size_t later = 0; later < roots_.size(); ++later) {
      const std::set<size_t> read = read_by(roots_[later]);
      if (std::ranges::any_of(read, [&](size_t q) { return out.contains(q); })) out.insert(later);
    }
    return out;
  }
  std::set<size_t> loaded_by(const Root& root) const {
    std::set<size_t> out;
    for (const LoopStep& s : root.task.body.steps)
      if (s.kind == LoopStep::Kind::Load) out.insert(s.source);
    return out;
  }

  // The order in which roots are nested: that of the graph, with one exception. A fold for which no
  // later walk waits moves to the last walk that reads the same memory, because a walk with fewer
  // folds can be merged with the walk before it more often.
  std::vector<size_t> order() const {
    const auto stores = [](const Root& root) { return !root.task.makes_value(); };
    if (std::ranges::all_of(roots_, stores)) return order_of_stores();
    std::vector<size_t> out(roots_.size());
    std::iota(out.begin(), out.end(), 0);
    std::vector<size_t> depth(roots_.size());  // how many folds must be complete before
    for (size_t r = 0; r < roots_.size(); ++r)
      for (const size_t q : read_by(roots_[r]))
        depth[r] = std::max(depth[r], depth[q] + !roots_[q].reduced.empty());
    // In a cascade, dots that wait for no other dot come first: the matrix unit is busy with them
    // while others wait. So do stores that wait for fewer dots, since they stand in the turns of
    // the walk that makes what they store.
    if (cascade_) {
      std::ranges::stable_sort(out, {},
                               [&](size_t r) { return std::pair(stores(roots_[r]), depth[r]); });
      return out;
    }
    if (!may_cut()) return out;
    // A result over fewer axes than the others is stored after them, so that its loops do not stand
    // between loops that can be merged.
    const auto axes = [&](size_t r) { return roots_[r].loops.size(); };
    const size_t most = std::ranges::max(out | std::views::transform(axes));
    std::ranges::stable_partition(out,
                                  [&](size_t r) { return !stores(roots_[r]) || axes(r) == most; });
    // Of rows that are reduced beside the columns of all rows, a walk stores last, when nothing is
    // read any more.
    if (crosses()) {
      std::ranges::stable_partition(out, [&](size_t r) { return !stores(roots_[r]); });
      return out;
    }
    // Memory that is overwritten in place cannot be read later, so walks are not moved.
    if (!aliases_.empty()) return out;
    // If no walk needs the result of another walk's fold, all walks can become one. The readers of
    // the totals come after it.
    const auto waits = [&](size_t r) { return depth[r] > 0 && walks(roots_[r]); };
    if (std::ranges::none_of(out, waits))
      std::ranges::stable_sort(out, {}, [&](size_t r) { return depth[r]; });
    for (size_t r = 0; r < roots_.size(); ++r) {
      const Root& fold = roots_[r];
      if (fold.task.kind != LoopTask::Kind::Fold || depth[r] == 0) continue;
      const std::set<size_t> delayed = made_of(r);
      const auto goes_with = [&](size_t s) {
        const Root& root = roots_[s];
        const auto runs = [&](size_t axis) { return std::ranges::count(root.loops, axis) > 0; };
        return depth[s] > depth[r] && !delayed.contains(s) &&
               std::ranges::all_of(fold.loops, runs) &&
               std::ranges::includes(loaded_by(root), loaded_by(fold));
      };
      const auto last = std::find_if(out.rbegin(), out.rend(), goes_with);
      const auto first = std::find(out.begin(), out.end(), r);
      if (last == out.rend() || last.base() < first) continue;
      std::stable_partition(first, last.base(), [&](size_t s) { return !delayed.contains(s); });
    }
    return out;
  }

  // If nothing is reduced, stores over the same axes come together, because one loop makes them.
  // Loops that read the memory which an output takes over come before the loop that stores that
  // output.
  std::vector<size_t> order_of_stores() const {
    std::vector<std::vector<size_t>> groups;
    for (size_t r = 0; r < roots_.size(); ++r) {
      const auto found = std::ranges::find_if(groups, [&](const std::vector<size_t>& group) {
        return roots_[group[0]].loops == roots_[r].loops;
      });
      if (found == groups.end())
        groups.push_back({r});
      else
        found->push_back(r);
    }
    const auto reads_what = [&](const std::vector<size_t>& reader, size_t writer) {
      return std::ranges::any_of(reader, [&](size_t r) {
        return loaded_by(roots_[r]).contains(roots_[writer].task.target);
      });
    };
    std::vector<size_t> out;
    while (!groups.empty()) {
      auto next = std::ranges::find_if(groups, [&](const std::vector<size_t>& group) {
        return std::ranges::none_of(groups, [&](const std::vector<size_t>& other) {
          return &other != &group && std::ranges::any_of(group, [&](size_t writer) {
            return reads_what(other, writer);
          });
        });
      });
      if (next == groups.end()) next = groups.begin();  // no order serves; a rule refuses the tree
      out.insert(out.end(), next->begin(), next->end());
      groups.erase(next);
    }
    return out;
  }

  // Whether each of two roots reduces an axis that the other one keeps.
  bool crosses() const {
    const auto reduces_of = [](const Root& root, const Root& other) {
      return std::ranges::any_of(root.reduced, [&](size_t axis) {
        return std::ranges::count(other.loops, axis) > 0 && !other.reduced.contains(axis);
      });
    };
    return std::ranges::any_of(roots_, [&](const Root& a) {
      return std::ranges::any_of(roots_, [&](const Root& b) {
        return !b.reduced.empty() && reduces_of(a, b) && reduces_of(b, a);
      });
    });
  }
  // Whether the root runs over an axis that some root reduces.
  bool walks(const Root& root) const {
    return std::ranges::any_of(root.loops, [&](size_t axis) {
      return std::ranges::any_of(roots_, [&](const Root& r) { return r.reduced.contains(axis); });
    });
  }
  // Whether, in a turn of a loop over `axis`, `reader` needs only what `read` makes in that turn.
  bool turn_by_turn(const Root& read, const Root& reader, size_t axis) const {
    if (read.reduced.contains(axis)) return false;
    const std::vector<size_t>& axes = tree_.values[value_of_.at(read.node)].axes;
    for (const LoopStep& s : reader.task.body.steps) {
      if (s.kind != LoopStep::Kind::Read || s.source != read.task.target) continue;
      for (size_t i = 0; i < axes.size(); ++i)
        if (axes[i] == axis && !(s.at[i] == tree_.axes[axis].index())) return false;
    }
    return true;
  }
  bool shares(const std::vector<size_t>& run, size_t axis,
              const std::vector<std::vector<size_t>>& left) const {
    if (goes(run, axis, true) && goes(run, axis, false)) return false;
    if (carries(run, axis) && !stores_fit(run, left)) return false;
    for (const size_t r : run) {
      // Terms that replace each other must come in their order.
      const Root& root = roots_[r];
      const auto reduced = [&](size_t a) { return root.reduced.contains(a); };
      if (root.task.replaces && reduced(axis) && *std::ranges::find_if(left[r], reduced) != axis)
        return false;
      if (std::find(left[r].begin(), left[r].end(), axis) == left[r].end()) return false;
      for (const LoopStep& s : roots_[r].task.body.steps) {
        if (s.kind != LoopStep::Kind::Read) continue;
        const size_t read = root_of_.at(tree_.values[s.source].node);
        if (std::find(run.begin(), run.end(), read) != run.end() &&
            !turn_by_turn(roots_[read], roots_[r], axis))
          return false;
      }
    }
    return true;
  }

  // Whether every store of a run whose loop carries state reads something that the run makes, or
  // runs over the same axes as one of its reductions. Any other store would have its own loops
  // beside the reduction's, in each turn.
  bool stores_fit(const std::vector<size_t>& run,
                  const std::vector<std::vector<size_t>>& left) const {
    const auto alike = [&](size_t a, size_t b) {
      return std::ranges::is_permutation(left[a], left[b]);
    };
    return std::ranges::all_of(run, [&](size_t r) {
      if (roots_[r].task.makes_value()) return true;
      const std::set<size_t> read = read_by(roots_[r]);
      return std::ranges::any_of(run, [&](size_t other) {
        return roots_[other].task.makes_value() && (read.contains(other) || alike(r, other));
      });
    });
  }

  bool carries(const std::vector<size_t>& run, size_t axis) const {
    return std::any_of(run.begin(), run.end(), [&](size_t r) {
      return roots_[r].reduced.contains(axis) || roots_[r].running == axis;
    });
  }
  // Whether some scan of the run goes along the axis in this direction.
  bool goes(const std::vector<size_t>& run, size_t axis, bool reverse) const {
    return std::any_of(run.begin(), run.end(), [&](size_t r) {
      const Root& root = roots_[r];
      // Of terms that replace each other the last one remains, so they go upwards.
      const bool replaces = root.task.replaces && root.reduced.contains(axis) && !reverse;
      return (root.running == axis && root.task.reverse == reverse) || replaces;
    });
  }

  // The axis of the next loop around all roots of a run. An axis without state comes first; among
  // equals, the first axis of the last root.
  std::optional<size_t> shared_axis(const std::vector<size_t>& run,
                                    const std::vector<std::vector<size_t>>& left) const {
    std::optional<size_t> with_state;
    for (const size_t axis : left[run.back()]) {
      if (!shares(run, axis, left)) continue;
      if (!carries(run, axis)) return axis;
      if (!with_state) with_state = axis;
    }
    return with_state;
  }

  LoopRegion nest(const std::vector<size_t>& roots, const std::vector<std::vector<size_t>>& left) {
    LoopRegion out;
    for (size_t begin = 0; begin < roots.size();) {
      std::vector<size_t> run = {roots[begin]};
      std::optional<size_t> axis = shared_axis(run, left);
      while (axis && begin + run.size() < roots.size()) {
        auto longer = run;
        longer.push_back(roots[begin + run.size()]);
        const auto shared = shared_axis(longer, left);
        if (!shared) break;
        run = std::move(longer);
        axis = shared;
      }
      begin += run.size();
      if (!axis) {
        out.emplace_back(std::move(roots_[run[0]].task));
        continue;
      }
      auto inner = left;
      for (const size_t r : run) std::erase(inner[r], *axis);
      Loop loop;
      loop.parallel = !carries(run, *axis);
      loop.levels = {{*axis}};
      loop.down = goes(run, *axis, true);
      // A task leaves its root when it is placed. Until then, other roots still read its body.
      loop.body = nest(run, inner);
      out.emplace_back(std::move(loop));
    }
    return out;
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const Fusion& fusion_;
  const std::map<NodeId, NodeId>& aliases_;
  const std::vector<bool> inside_;
  bool cascade_ = false;  // whether the kernel has several dots
  const std::vector<bool>* relaxed_;
  const std::vector<bool>* coarse_;
  const std::vector<bool>* powers_;
  const std::vector<bool>* approximated_ = nullptr;
  // The result of nodes_of_stores(); empty if no node may be approximated for its sum.
  std::vector<bool> stored_;
  Axes axes_;
  LoopTree tree_;
  std::vector<Root> roots_;
  std::map<NodeId, size_t> root_of_;              // reduction -> the root that computes it
  std::map<NodeId, size_t> value_of_;             // reduction -> value of the tree
  std::map<NodeId, size_t> read_, written_;       // node -> tensor of the tree
  std::map<NodeId, std::vector<size_t>> memory_;  // tensor in memory -> its axes in Axes
  std::map<size_t, size_t> axis_of_;              // digit in Axes -> axis of the tree
};

}  // namespace

LoopTree build_loops(const LoopForms& forms, const Fusion& fusion, std::string_view name,
                     const std::map<NodeId, NodeId>& aliases, const std::vector<bool>* relaxed,
                     const std::vector<bool>* coarse, const std::vector<bool>* powers) {
  return TreeBuilder(forms, fusion, name, aliases, relaxed, coarse, powers).build();
}

}  // namespace braze
