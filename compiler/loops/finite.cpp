#include "compiler/loops/finite.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "compiler/loops/build.h"
#include "ir/ops/scalar.h"

namespace braze {

namespace {

// The conditions under which a step of a body is finite; nullopt if nothing is known.
using Where = std::optional<std::vector<IndexComparison>>;

class Finite {
 public:
  Finite(const LoopForms& forms, const LoopTree& tree, const LoopTask& fold)
      : forms_(forms), tree_(tree), fold_(fold) {}

  bool run() const {
    const Where where = step(fold_.body.results[0]);
    return where && (where->empty() || some_index_satisfies(*where));
  }

 private:
  Where step(uint32_t number) const {
    return known_(fold_.body.steps[number], [&] { return find_step(number); });
  }
  Where find_step(uint32_t number) const {
    const LoopStep& s = fold_.body.steps[number];
    switch (s.kind) {
      case LoopStep::Kind::Load: {
        const LoopTensor& tensor = tree_.tensors[s.source];
        const LoopForm* form = tensor.node ? forms_.find(tensor.node) : nullptr;
        if (!s.conditions.empty() || !form) return std::nullopt;
        return form->is_dot || is_finite(forms_, tensor.node) ? Where(std::in_place) : std::nullopt;
      }
      case LoopStep::Kind::Index:
        return Where(std::in_place);
      case LoopStep::Kind::Constant:
        if (!is_floating(s.dtype)) return Where(std::in_place);
        return std::isfinite(bits_to_double(s.dtype, s.bits)) ? Where(std::in_place) : std::nullopt;
      case LoopStep::Kind::Apply:
        return row(s);
      default:
        return std::nullopt;
    }
  }

  Where row(const LoopStep& s) const {
    const auto argument = [&](size_t i) { return step(s.arguments[i]); };
    const auto always = [](const Where& where) { return where && where->empty(); };
    switch (s.op) {
      case ElementwiseOp::select: {
        const Where a = argument(1), b = argument(2);
        if (always(b)) return a;
        const Where condition = comparisons(s.arguments[0]);
        return a && condition && is_nothing(s.arguments[2]) ? both(*a, *condition) : std::nullopt;
      }
      // An infinite operand of these rows gives a result that is infinite with the same sign.
      case ElementwiseOp::convert:
        return argument(0);
      case ElementwiseOp::add: {
        const Where a = argument(0), b = argument(1);
        return a && b ? both(*a, *b) : std::nullopt;
      }
      case ElementwiseOp::sub:
        return always(argument(1)) ? argument(0) : std::nullopt;
      case ElementwiseOp::mul:
        for (const size_t i : {0, 1})
          if (is_positive(s.arguments[i])) return argument(1 - i);
        [[fallthrough]];
      case ElementwiseOp::abs:
      case ElementwiseOp::fma:
      case ElementwiseOp::max:
      case ElementwiseOp::min:
      case ElementwiseOp::neg:
      case ElementwiseOp::tanh:
        for (size_t i = 0; i < s.arguments.size(); ++i)
          if (!always(argument(i))) return std::nullopt;
        return Where(std::in_place);
      default:
        return std::nullopt;
    }
  }
  std::optional<double> number(uint32_t i) const {
    const LoopStep& s = fold_.body.steps[i];
    if (s.kind != LoopStep::Kind::Constant || !is_floating(s.dtype)) return std::nullopt;
    return bits_to_double(s.dtype, s.bits);
  }
  bool is_positive(uint32_t i) const {
    const auto x = number(i);
    return x && *x > 0 && std::isfinite(*x);
  }
  // Whether the step is the identity of the fold, which changes no result.
  bool is_nothing(uint32_t i) const {
    return number(i) == (fold_.monoid == Monoid::Max ? -HUGE_VAL : HUGE_VAL);
  }

  static Where both(std::vector<IndexComparison> a, const std::vector<IndexComparison>& b) {
    for (const IndexComparison& c : b)
      if (std::ranges::find(a, c) == a.end()) a.push_back(c);
    return a;
  }

  // The comparisons of which a condition consists. All of them must hold.
  Where comparisons(uint32_t number) const {
    return conditions_(fold_.body.steps[number], [&] { return find_comparisons(number); });
  }
  Where find_comparisons(uint32_t number) const {
    const LoopStep& s = fold_.body.steps[number];
    if (s.kind == LoopStep::Kind::Apply && s.op == ElementwiseOp::logical_and) {
      const Where a = comparisons(s.arguments[0]), b = comparisons(s.arguments[1]);
      return a && b ? both(*a, *b) : std::nullopt;
    }
    const auto one = comparison_of_indices(fold_.body, s);
    return one ? Where({*one}) : std::nullopt;
  }

  // Whether all conditions hold at some index of the reduced axis, whatever the other axes are. It
  // tries the first index, the last, and those at which the two sides of a condition are equal.
  bool some_index_satisfies(const std::vector<IndexComparison>& where) const {
    if (fold_.over.size() != 1) return false;
    const LoopAxis& axis = tree_.axes[fold_.over[0]];
    std::vector<Expr> tries = {0, axis.extent - 1};
    for (const IndexComparison& c : where) {
      const Expr difference = c.left - c.right;
      const auto slope = difference.coefficient_of(axis.name);
      if (!slope || !(slope->is_constant(1) || slope->is_constant(-1))) continue;
      const Expr rest = difference.substitute(axis.name, 0);
      tries.push_back(slope->is_constant(1) ? 0 - rest : rest);
    }
    return std::ranges::any_of(tries, [&](const Expr& index) {
      return proves_at_most(0, index) && proves_less(index, axis.extent).value_or(false) &&
             std::ranges::all_of(where, [&](const IndexComparison& c) {
               return holds_always({c.left.substitute(axis.name, index), c.kind,
                                    c.right.substitute(axis.name, index)});
             });
    });
  }

  const LoopForms& forms_;
  const LoopTree& tree_;
  const LoopTask& fold_;
  mutable ByStep<Where> known_, conditions_;
};

// A Fusion of the node and of what it is computed from, up to reductions and memory.
Fusion alone(const LoopForms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  Fusion out;
  std::set<NodeId> nodes, inputs;
  std::vector<NodeId> open = {node};
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    const LoopForm* form = forms.find(next);
    if (!form || (next != node && form->reduces())) {
      inputs.insert(next);
    } else if (nodes.insert(next).second) {
      open.insert(open.end(), graph[next].operands.begin(), graph[next].operands.end());
    }
  }
  out.nodes.assign(nodes.begin(), nodes.end());
  out.inputs.assign(inputs.begin(), inputs.end());
  out.outputs = {node};
  return out;
}

}  // namespace

bool is_finite(const LoopForms& forms, NodeId node) {
  const LoopForm* form = forms.find(node);
  if (!form || form->monoid.value_or(Monoid::Sum) == Monoid::Sum || form->is_dot || form->running ||
      form->placement || form->arg_max ||
      (*form->monoid != Monoid::Max && *form->monoid != Monoid::Min))
    return false;
  const LoopTree tree = build_loops(forms, alone(forms, node), "finite");
  bool out = false;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    if (task.kind == LoopTask::Kind::Fold) out = Finite(forms, tree, task).run();
  });
  return out;
}

}  // namespace braze
