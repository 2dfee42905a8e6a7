// build.cpp — the first tree of a kernel: 0003, sections 1.2 and 1.3.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/fusion/space.h"
#include "compiler/loops/axes.h"
#include "compiler/loops/tree.h"

namespace braze {

namespace {

/// The Inliner's sink: steps of a body.
struct BodySink {
  using Value = uint32_t;
  std::vector<LoopValue>* body = nullptr;

  Value push(LoopValue value) {
    body->push_back(std::move(value));
    return static_cast<Value>(body->size() - 1);
  }
  Value load(NodeId node, std::vector<Expr> at, const Conditions& conditions) {
    return push({.kind = LoopValue::Kind::Load,
                 .dtype = graph->operator[](node).type.dtype,
                 .node = node,
                 .at = std::move(at),
                 .conditions = conditions});
  }
  Value reduced(NodeId node, std::vector<Expr> at, const Conditions& conditions) {
    return push({.kind = LoopValue::Kind::Read,
                 .dtype = graph->operator[](node).type.dtype,
                 .node = node,
                 .at = std::move(at),
                 .conditions = conditions});
  }
  Value index(const Expr& value, DType dtype) {
    return push({.kind = LoopValue::Kind::Index, .dtype = dtype, .at = {value}});
  }
  Value constant(DType dtype, uint64_t bits) {
    return push({.kind = LoopValue::Kind::Constant, .dtype = dtype, .bits = bits});
  }
  Value inside(const Conditions& conditions) {
    return push({.kind = LoopValue::Kind::Inside, .dtype = DType::Bool, .conditions = conditions});
  }
  Value apply(ElementwiseOp op, std::span<const Value> arguments, DType result) {
    return push({.kind = LoopValue::Kind::Apply,
                 .dtype = result,
                 .op = op,
                 .arguments = {arguments.begin(), arguments.end()}});
  }
  Expr as_index(Value value, const Expr& extent) {
    return Expr::symbol("v" + std::to_string(value),
                        {0, std::max<int64_t>(extent.range().max, 1) - 1});
  }
  std::optional<Value> cached(NodeId, const std::vector<Expr>&) { return std::nullopt; }

  const Graph* graph = nullptr;
};

/// A value that has loops of its own: a reduction, or what is stored.
struct Root {
  LoopTask task;
  std::vector<size_t> domain, reduction;  // of Axes; kNone for extents of 1 and for places
  std::vector<size_t> loops;              // axes of the tree that its loops run over
  std::set<size_t> reduced;               // those of them that it combines
};
constexpr size_t kNone = SIZE_MAX;

class TreeBuilder {
 public:
  TreeBuilder(const LoopForms& forms, const Fusion& fusion)
      : forms_(forms), graph_(forms.graph()), inside_(membership(graph_, fusion.nodes)) {
    for (const NodeId node : fusion.nodes) {
      const LoopForm* form = forms.find(node);
      if (form && form->reduces()) add_root(node, form);
    }
    for (const NodeId node : fusion.outputs) add_root(node, nullptr);
  }

  LoopTree build() {
    for (size_t r = 0; r < roots_.size(); ++r) add_equations(r);
    number_axes();
    std::vector<size_t> all(roots_.size());
    std::vector<std::vector<size_t>> left;
    for (size_t r = 0; r < roots_.size(); ++r) {
      all[r] = r;
      left.push_back(roots_[r].loops);
    }
    tree_.body = nest(all, left);
    return std::move(tree_);
  }

 private:
  // `form` is that of a reduction; without one the node's value is stored.
  void add_root(NodeId node, const LoopForm* form) {
    const size_t number = roots_.size();
    Root root;
    const Shape& shape = graph_[node].type.shape;
    const auto new_axis = [&](const Expr& extent) {
      return extent.is_constant(1) ? kNone : axes_.add(extent, number);
    };
    for (const Expr& extent : shape) root.domain.push_back(new_axis(extent));
    root.task.node = node;
    root.task.kind = LoopTask::Kind::Store;
    if (form) {
      for (const Expr& extent : form->reduction) root.reduction.push_back(new_axis(extent));
      root.task.kind = form->placement ? LoopTask::Kind::Place
                       : form->arg_max ? LoopTask::Kind::Arg
                       : form->is_dot  ? LoopTask::Kind::Dot
                                       : LoopTask::Kind::Fold;
      value_of_[node] = number;
    }
    BodySink sink{.body = &root.task.body, .graph = &graph_};
    Inliner<BodySink> inliner(forms_, inside_, sink);
    const auto at = symbols(root.domain);
    if (form && form->placement) {
      root.task.placed_axis = form->placement->axis;
      // First what the sums begin with: it is asked for before their terms are there.
      root.task.start = inliner.start(node, at);
      root.task.place = inliner.place(node, symbols(root.reduction));
    }
    if (form && form->monoid) root.task.monoid = *form->monoid;
    if (form) root.task.arg_max = form->arg_max.value_or(false);
    root.task.value =
        form ? inliner.reduction_body(node, at, symbols(root.reduction)) : inliner.value(node, at);
    root.task.at = at;
    roots_.push_back(std::move(root));
  }

  std::vector<Expr> symbols(const std::vector<size_t>& axes) const {
    std::vector<Expr> out;
    for (const size_t axis : axes) out.push_back(axis == kNone ? Expr(0) : axes_.symbol(axis));
    return out;
  }

  // What a root reads says which axes are one.
  void add_equations(size_t r) {
    for (const LoopValue& value : roots_[r].task.body) {
      if (value.kind == LoopValue::Kind::Read) {
        equate(roots_[value_of_.at(value.node)].domain, value.at);
      } else if (value.kind == LoopValue::Kind::Load) {
        auto [found, added] = memory_.try_emplace(value.node);
        if (added)
          for (const Expr& extent : graph_[value.node].type.shape)
            found->second.push_back(extent.is_constant(1)
                                        ? kNone
                                        : axes_.add(extent, roots_.size() + value.node.index));
        equate(found->second, value.at);
      }
    }
  }
  void equate(const std::vector<size_t>& axes, const std::vector<Expr>& at) {
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] != kNone) axes_.equate(axes[i], at[i]);
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

  // Axes of the tree are the digits that loops run over, in the order of the results, then of
  // what is summed.
  void number_axes() {
    std::set<std::string> taken;
    for (const Expr& symbol : graph_.symbols()) taken.insert(symbol.symbol_name());
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

  // The index along an axis, put together from its digits.
  Expr whole(size_t axis) const {
    Expr out;
    for (const size_t digit : axes_.digits(axis))
      out = out * axes_.extent(digit) + tree_.axes[axis_of_.at(digit)].index();
    return out;
  }

  void rename(Root& root, const std::unordered_map<std::string, Expr>& index) {
    const auto bind = [&](Expr& e) { e = e.substitute(index); };
    LoopTask& task = root.task;
    for (Expr& e : task.at) bind(e);
    for (LoopValue& value : task.body) {
      for (Expr& e : value.at) bind(e);
      for (RangeCondition& c : value.conditions) {
        bind(c.value);
        bind(c.min);
        bind(c.limit);
      }
    }
    const LoopForm* form = forms_.find(task.node);
    for (size_t i = 0; i < root.domain.size(); ++i) {
      if (root.domain[i] == kNone) continue;
      for (const size_t digit : axes_.digits(root.domain[i])) {
        task.axes.push_back(axis_of_.at(digit));
        // No loop runs over the places of a placed reduction: its terms name them.
        if (task.kind == LoopTask::Kind::Place && form->placement->axis == i) continue;
        root.loops.push_back(axis_of_.at(digit));
      }
    }
    for (const size_t axis : root.reduction) {
      if (axis == kNone) continue;
      for (const size_t digit : axes_.digits(axis)) {
        task.over.push_back(axis_of_.at(digit));
        root.loops.push_back(axis_of_.at(digit));
        root.reduced.insert(axis_of_.at(digit));
      }
    }
  }

  // --- Loops --------------------------------------------------------------------------------

  // Whether `reader` needs, in a turn of a loop over `axis`, only what `read` has in that turn.
  bool turn_by_turn(const Root& read, const Root& reader, size_t axis) const {
    if (read.reduced.contains(axis)) return false;
    const Expr index = tree_.axes[axis].index();
    for (const LoopValue& value : reader.task.body) {
      if (value.kind != LoopValue::Kind::Read || value.node != read.task.node) continue;
      for (size_t i = 0; i < value.at.size(); ++i) {
        if (read.domain[i] == kNone) continue;
        Expr below = 1;
        const auto digits = axes_.digits(read.domain[i]);
        for (size_t d = digits.size(); d-- > 0; below *= axes_.extent(digits[d])) {
          if (axis_of_.at(digits[d]) != axis) continue;
          const Expr digit = mod(floordiv(value.at[i], below), axes_.extent(digits[d]));
          if (!(digit == index)) return false;
        }
      }
    }
    return true;
  }
  bool shares(const std::vector<size_t>& run, size_t axis,
              const std::vector<std::vector<size_t>>& left) const {
    for (const size_t r : run) {
      if (std::find(left[r].begin(), left[r].end(), axis) == left[r].end()) return false;
      for (const LoopValue& value : roots_[r].task.body) {
        if (value.kind != LoopValue::Kind::Read) continue;
        const size_t read = value_of_.at(value.node);
        if (std::find(run.begin(), run.end(), read) != run.end() &&
            !turn_by_turn(roots_[read], roots_[r], axis))
          return false;
      }
    }
    return true;
  }

  bool carries(const std::vector<size_t>& run, size_t axis) const {
    return std::any_of(run.begin(), run.end(),
                       [&](size_t r) { return roots_[r].reduced.contains(axis); });
  }

  // The axis of the next loop around all roots of a run: one without state before others, then the
  // outermost of the last root.
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
      auto loop = std::make_unique<Loop>();
      loop->parallel = !carries(run, *axis);
      loop->axis = *axis;
      // A task leaves its root when it is placed, and its body is asked for until then.
      loop->body = nest(run, inner);
      out.emplace_back(std::move(loop));
    }
    return out;
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const std::vector<bool> inside_;
  Axes axes_;
  LoopTree tree_;
  std::vector<Root> roots_;
  std::map<NodeId, size_t> value_of_;             // the root that computes a reduction
  std::map<NodeId, std::vector<size_t>> memory_;  // axes of tensors
  std::map<size_t, size_t> axis_of_;              // of the tree, by digit
};

}  // namespace

LoopTree build_loops(const LoopForms& forms, const Fusion& fusion) {
  return TreeBuilder(forms, fusion).build();
}

}  // namespace braze
