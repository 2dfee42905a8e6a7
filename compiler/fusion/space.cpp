#include "compiler/fusion/space.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "compiler/fusion/reasons.h"
#include "ir/support/text.h"

namespace braze {

double operation_cost(ElementwiseOp op) {
  if (!is_machine(op)) return 18;
  switch (op) {
    case ElementwiseOp::div:
    case ElementwiseOp::sqrt:
      return 5;
    case ElementwiseOp::rem:
      return 20;
    case ElementwiseOp::min:
    case ElementwiseOp::max:
      return 3;
    default:
      return 1;
  }
}

namespace {

// Records what an evaluation accesses. Each value knows whether it varies along the innermost loop;
// a value that does not is computed once outside the loop.
class Tracer {
 public:
  struct Value {
    bool varies = true;
  };

  Value load(NodeId node, std::vector<Expr> at, const Conditions& conditions) {
    const Value value{varies(at)};
    const bool indirect =
        std::any_of(at.begin(), at.end(), [](const Expr& e) { return uses_symbol(e, "loaded."); });
    loads.push_back({node, std::move(at), !conditions.empty(), indirect});
    return value;
  }
  Value reduced(NodeId node, std::vector<Expr> at, const Conditions&) {
    const Value value{varies(at)};
    reductions.emplace_back(node, std::move(at));
    return value;
  }
  Value index(const Expr& value, DType) { return counted({varies({value})}, 1); }
  Value constant(DType, uint64_t) { return {false}; }
  Value inside(const Conditions& conditions) {
    bool any = false;
    for (const RangeCondition& c : conditions) any = any || varies({c.value});
    return counted({any}, static_cast<double>(conditions.size()));
  }
  Value apply(ElementwiseOp op, std::span<const Value> arguments, DType) {
    return counted(
        {std::any_of(arguments.begin(), arguments.end(), [](const Value& v) { return v.varies; })},
        operation_cost(op));
  }
  Expr as_index(const Value&, const Expr& extent) {
    return Expr::symbol("loaded." + std::to_string(loaded_++),
                        {0, std::max<int64_t>(extent.range().max, 1) - 1});
  }
  std::optional<Value> cached(NodeId node, const std::vector<Expr>& at) {
    for (const SharedValue& value : kept)
      if (value.node == node && value.at == at) return Value{};
    visited.emplace_back(node, at);
    return std::nullopt;
  }

  std::span<const SharedValue> kept;  // values that need not be computed
  std::string_view loop;              // prefix of the symbols of the innermost loop; empty: no loop

  std::vector<MemoryAccess> loads;
  std::vector<std::pair<NodeId, std::vector<Expr>>> reductions;
  std::vector<std::pair<NodeId, std::vector<Expr>>> visited;
  double flops = 0, uniform_flops = 0;

 private:
  static bool uses_symbol(const Expr& e, std::string_view prefix) {
    const auto symbols = e.symbols();
    return std::any_of(symbols.begin(), symbols.end(),
                       [&](const std::string& s) { return s.starts_with(prefix); });
  }
  bool varies(const std::vector<Expr>& at) const {
    if (loop.empty()) return true;
    return std::any_of(at.begin(), at.end(), [&](const Expr& e) {
      return uses_symbol(e, loop) || uses_symbol(e, "loaded.");
    });
  }
  Value counted(Value value, double operations) {
    (value.varies || loop.empty() ? flops : uniform_flops) += operations;
    return value;
  }

  int loaded_ = 0;
};

// A node whose axes must be found in the space: a reduction of the Fusion, or an output.
struct Anchor {
  NodeId node;
  bool reduces = false;
  const RunningAxis* running = nullptr;  // if it is a scan: its axis and direction
  std::vector<int> domain;               // numbers of axes; -1 for extents of 1
  std::vector<int> reduction;            // numbers of axes
  int level = 0;                         // number of passes that must come before
  std::vector<MemoryAccess> loads;
};

class SpaceFinder {
 public:
  SpaceFinder(const LoopForms& forms, const Fusion& fusion)
      : forms_(forms), fusion_(fusion), inside_(membership(forms.graph(), fusion.nodes)) {}

  std::variant<Space, NoSpace> find() {
    add_anchors();
    if (!join_by_demand()) return problem_;
    join_by_common_loads();
    join_outputs_of_equal_shape();
    if (!check_classes()) return problem_;
    return build();
  }

 private:
  bool refuse(const Code& code, NodeId first, NodeId second, std::string detail = {}) {
    problem_ = {&code, first, second, std::move(detail)};
    return false;
  }

  int new_axis(const Expr& extent) {
    const int id = static_cast<int>(extents_.size());
    extents_.push_back(extent);
    parent_.push_back(id);
    return id;
  }
  int root(int axis) {
    while (parent_[axis] != axis) axis = parent_[axis] = parent_[parent_[axis]];
    return axis;
  }
  bool join(int a, int b) {
    if (!(extents_[static_cast<size_t>(a)] == extents_[static_cast<size_t>(b)])) return false;
    parent_[root(a)] = root(b);
    return true;
  }

  void add_anchor(NodeId node) {
    if (anchor_of_.contains(node)) return;
    Anchor anchor{.node = node, .domain = {}, .reduction = {}, .loads = {}};
    const LoopForm* form = forms_.find(node);
    anchor.reduces = form && form->reduces();
    if (form && form->running) anchor.running = &*form->running;
    // A placed reduction needs no loop over its places. A scan needs one loop, over its axis.
    const std::optional<size_t> own = anchor.running ? anchor.running->axis : placed_axis(anchor);
    const Shape& shape = forms_.graph()[node].type.shape;
    for (size_t axis = 0; axis < shape.rank(); ++axis)
      anchor.domain.push_back(shape[axis].is_constant(1) && own != axis ? -1
                                                                        : new_axis(shape[axis]));
    if (anchor.running)
      anchor.reduction = {anchor.domain[*own]};
    else if (anchor.reduces)
      for (const Expr& extent : form->reduction) anchor.reduction.push_back(new_axis(extent));
    anchor_of_.emplace(node, anchors_.size());
    anchors_.push_back(std::move(anchor));
  }

  void add_anchors() {
    for (NodeId node : fusion_.nodes) {
      const LoopForm* form = forms_.find(node);
      if (form && form->reduces()) add_anchor(node);
    }
    for (NodeId node : fusion_.outputs) add_anchor(node);
  }

  static std::string axis_name(int axis) { return "axis." + std::to_string(axis); }
  Expr axis_expr(int axis) const {
    if (axis < 0) return 0;
    const int64_t last = std::max<int64_t>(extents_[static_cast<size_t>(axis)].range().max, 1) - 1;
    return Expr::symbol(axis_name(axis), {0, last});
  }
  std::vector<Expr> axis_exprs(const std::vector<int>& axes) const {
    std::vector<Expr> out;
    for (int axis : axes) out.push_back(axis_expr(axis));
    return out;
  }

  std::optional<size_t> placed_axis(const Anchor& anchor) const {
    const LoopForm* form = anchor.reduces ? forms_.find(anchor.node) : nullptr;
    return form && form->placement ? std::optional(form->placement->axis) : std::nullopt;
  }

  // A placed reduction walks all of its terms for a block of places, which the loops of other
  // reductions do not.
  bool placed_alone() {
    const auto placed = std::find_if(anchors_.begin(), anchors_.end(),
                                     [&](const Anchor& a) { return placed_axis(a).has_value(); });
    if (placed == anchors_.end()) return true;
    for (const Anchor& other : anchors_)
      if (other.reduces && other.node != placed->node)
        return refuse(reasons::kPlaced, std::min(placed->node, other.node),
                      std::max(placed->node, other.node));
    return true;
  }

  // The loop of a scan runs in one direction, and the value that it carries is read in the same
  // turn.
  bool running_together() {
    const auto scan =
        std::find_if(anchors_.begin(), anchors_.end(), [](const Anchor& a) { return a.running; });
    if (scan == anchors_.end()) return true;
    for (const Anchor& other : anchors_) {
      if (!other.reduces) continue;
      const bool alike = other.running && other.running->reverse == scan->running->reverse &&
                         root(other.reduction[0]) == root(scan->reduction[0]);
      if (!alike)
        return refuse(reasons::kRunning, std::min(scan->node, other.node),
                      std::max(scan->node, other.node));
    }
    running_ = root(scan->reduction[0]);
    return true;
  }

  // Traces every anchor. If an anchor reads another one without an index map, they share their
  // axes.
  bool join_by_demand() {
    if (!placed_alone()) return false;
    for (Anchor& anchor : anchors_) {  // graph order: producers first
      Tracer tracer;
      Inliner<Tracer> inliner(forms_, inside_, tracer);
      if (anchor.reduces) {
        inliner.reduction_body(anchor.node, axis_exprs(anchor.domain),
                               axis_exprs(anchor.reduction));
        if (placed_axis(anchor)) {
          inliner.place(anchor.node, axis_exprs(anchor.reduction));
          inliner.start(anchor.node, axis_exprs(anchor.domain));
        }
      } else {
        inliner.value(anchor.node, axis_exprs(anchor.domain));
      }
      for (const auto& [node, at] : tracer.reductions) {
        const Anchor& producer = anchors_[anchor_of_.at(node)];
        anchor.level = std::max(anchor.level, producer.level + 1);
        if (!join_at(producer, at)) return refuse(reasons::kIndexMap, node, anchor.node);
      }
      for (const auto& [node, at] : tracer.visited) {
        const auto found = anchor_of_.find(node);
        if (found != anchor_of_.end() && node != anchor.node) join_at(anchors_[found->second], at);
      }
      anchor.loads = plain_loads(std::move(tracer.loads));
    }
    return true;
  }

  // The loads of an anchor that other anchors may share, each place once. Their coordinates are
  // single axes and constants, since coordinates that combine axes are not the same in two anchors.
  static std::vector<MemoryAccess> plain_loads(std::vector<MemoryAccess> loads) {
    const auto is_plain = [](const Expr& e) {
      const auto symbols = e.symbols();
      return axis_of(e) || std::none_of(symbols.begin(), symbols.end(), [](const std::string& s) {
               return s.starts_with("axis.") || s.starts_with("loaded.");
             });
    };
    std::set<std::pair<NodeId, std::vector<Expr>>> seen;
    std::erase_if(loads, [&](const MemoryAccess& load) {
      return !std::all_of(load.at.begin(), load.at.end(), is_plain) ||
             !seen.emplace(load.node, load.at).second;
    });
    return loads;
  }

  // Two reductions that no value connects share their parallel axes if they read the same memory
  // along them, as the mean and the maximum of rows do, or the sums of a product's columns.
  void join_by_common_loads() {
    for (size_t i = 1; i < anchors_.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        if (!connected(anchors_[j], anchors_[i]) && join_by_common_load(anchors_[j], anchors_[i]))
          break;
    }
  }

  bool connected(const Anchor& a, const Anchor& b) {
    const std::set<int> first = classes(a.domain), second = classes(b.domain);
    return std::any_of(first.begin(), first.end(), [&](int axis) { return second.contains(axis); });
  }

  bool join_by_common_load(const Anchor& a, const Anchor& b) {
    for (const MemoryAccess& x : a.loads) {
      for (const MemoryAccess& y : b.loads) {
        if (x.node != y.node) continue;
        const auto pairs = common_axes(a, x, b, y);
        for (const auto& [first, second] : pairs) join(first, second);
        if (!pairs.empty()) return true;
      }
    }
    return false;
  }

  // The pairs of parallel axes that two loads of one place have in common. The list is empty if one
  // of the anchors is a reduction whose domain has further axes, or if an axis is parallel in one
  // reduction and reduced in the other.
  std::vector<std::pair<int, int>> common_axes(const Anchor& a, const MemoryAccess& x,
                                               const Anchor& b, const MemoryAccess& y) {
    const auto within = [](const std::vector<int>& axes, int axis) {
      return std::find(axes.begin(), axes.end(), axis) != axes.end();
    };
    std::vector<std::pair<int, int>> pairs;
    for (size_t d = 0; d < x.at.size(); ++d) {
      const std::optional<int> first = axis_of(x.at[d]), second = axis_of(y.at[d]);
      if (!first || !second) {
        if (x.at[d] == y.at[d]) continue;  // one constant
        return {};
      }
      const bool parallel = within(a.domain, *first), other_parallel = within(b.domain, *second);
      if (parallel && other_parallel && (a.reduces || b.reduces)) {
        if (!(extents_[static_cast<size_t>(*first)] == extents_[static_cast<size_t>(*second)]))
          return {};
        pairs.emplace_back(*first, *second);
      } else if (parallel != other_parallel && a.reduces && b.reduces) {
        return {};
      }
    }
    for (const Anchor* anchor : {&a, &b}) {
      const auto axes = std::count_if(anchor->domain.begin(), anchor->domain.end(),
                                      [](int axis) { return axis >= 0; });
      if (anchor->reduces && axes != static_cast<std::ptrdiff_t>(pairs.size())) return {};
    }
    return pairs;
  }

  static std::optional<int> axis_of(const Expr& e) {
    if (e.kind() != Expr::Kind::Symbol || !e.symbol_name().starts_with("axis."))
      return std::nullopt;
    return std::stoi(e.symbol_name().substr(5));
  }

  bool join_at(const Anchor& producer, const std::vector<Expr>& at) {
    for (size_t i = 0; i < at.size(); ++i) {
      if (producer.domain[i] < 0) continue;
      const std::optional<int> axis = axis_of(at[i]);
      if (!axis || !join(producer.domain[i], *axis)) return false;
    }
    return true;
  }

  bool has_reductions() const {
    return std::any_of(anchors_.begin(), anchors_.end(), [](const Anchor& a) { return a.reduces; });
  }

  // Without reductions, outputs of one shape are computed side by side, even if nothing connects
  // them.
  void join_outputs_of_equal_shape() {
    if (has_reductions()) return;
    const Anchor& first = anchors_.front();
    for (const Anchor& other : anchors_) {
      if (other.domain.size() != first.domain.size()) continue;
      bool connected = false, equal = true;
      for (size_t i = 0; i < first.domain.size(); ++i) {
        if ((first.domain[i] < 0) != (other.domain[i] < 0)) equal = false;
        for (int axis : first.domain)
          if (axis >= 0 && other.domain[i] >= 0 && root(axis) == root(other.domain[i]))
            connected = true;
        if (equal && first.domain[i] >= 0 &&
            !(extents_[static_cast<size_t>(first.domain[i])] ==
              extents_[static_cast<size_t>(other.domain[i])]))
          equal = false;
      }
      if (connected || !equal) continue;
      for (size_t i = 0; i < first.domain.size(); ++i)
        if (first.domain[i] >= 0) join(first.domain[i], other.domain[i]);
    }
  }

  std::set<int> classes(const std::vector<int>& axes) {
    std::set<int> out;
    for (int axis : axes)
      if (axis >= 0) out.insert(root(axis));
    return out;
  }

  bool check_classes() {
    if (!running_together()) return false;
    const auto lead =
        std::find_if(anchors_.begin(), anchors_.end(), [](const Anchor& a) { return a.reduces; });
    const Anchor& leader = lead == anchors_.end() ? anchors_.front() : *lead;
    parallel_ = classes(leader.domain);
    if (running_) parallel_.erase(*running_);
    for (int axis : leader.domain)
      if (axis >= 0 && root(axis) != running_) parallel_order_.push_back(root(axis));
    for (const Anchor& anchor : anchors_) {
      const std::set<int> domain = classes(anchor.domain);
      const auto real =
          std::count_if(anchor.domain.begin(), anchor.domain.end(), [](int a) { return a >= 0; });
      if (domain.size() != static_cast<size_t>(real))
        return refuse(reasons::kIndexMap, leader.node, anchor.node);
      for (int axis : anchor.reduction)
        if (parallel_.contains(root(axis)))
          return refuse(reasons::kNestedReduction, leader.node, anchor.node);
      if (running_ ? domain != classes(leader.domain)
          : anchor.reduces
              ? domain != parallel_
              : !std::includes(domain.begin(), domain.end(), parallel_.begin(), parallel_.end()))
        return refuse(reasons::kDifferentDomain, leader.node, anchor.node);
    }
    return true;
  }

  Space build() {
    Space space;
    std::map<int, Expr> parallel_symbol;
    for (size_t i = 0; i < parallel_order_.size(); ++i) {
      const Expr& extent = extents_[static_cast<size_t>(parallel_order_[i])];
      const SpaceAxis axis = space_axis("p." + std::to_string(i), extent);
      parallel_symbol.emplace(parallel_order_[i], axis.symbol);
      space.parallel.push_back(axis);
    }
    if (running_) {
      add_running_pass(space, parallel_symbol);
      return space;
    }
    std::map<std::pair<int, std::string>, size_t> pass_of;  // (level, inner extents)
    std::map<std::string, int> inner_sets;
    for (const Anchor& anchor : anchors_) {
      std::vector<Expr> inner_extents;
      if (anchor.reduces) {
        for (int axis : anchor.reduction)
          inner_extents.push_back(extents_[static_cast<size_t>(axis)]);
      } else {
        for (int axis : anchor.domain)
          if (axis >= 0 && !parallel_.contains(root(axis)))
            inner_extents.push_back(extents_[static_cast<size_t>(axis)]);
      }
      // A placed reduction walks its terms in its own way, so it has a pass of its own.
      const std::string signature =
          (placed_axis(anchor) ? "placed " : "") + join_text(inner_extents);
      const int set =
          inner_sets.emplace(signature, static_cast<int>(inner_sets.size())).first->second;
      const auto [found, added] =
          pass_of.emplace(std::pair(anchor.level, signature), space.passes.size());
      if (added) {
        Pass pass;
        for (size_t i = 0; i < inner_extents.size(); ++i) {
          pass.inner.push_back(space_axis(fmt::format("q.{}.{}", set, i), inner_extents[i]));
        }
        space.passes.push_back(std::move(pass));
        levels_.push_back(anchor.level);
      }
      Pass& pass = space.passes[found->second];
      SpaceTask task{.node = anchor.node, .at = {}, .reduction = {}};
      size_t next_inner = 0;
      for (int axis : anchor.domain) {
        if (axis < 0)
          task.at.push_back(0);
        else if (parallel_.contains(root(axis)))
          task.at.push_back(parallel_symbol.at(root(axis)));
        else
          task.at.push_back(pass.inner[next_inner++].symbol);
      }
      for (size_t i = 0; i < anchor.reduction.size(); ++i)
        task.reduction.push_back(pass.inner[i].symbol);
      const bool is_output = std::find(fusion_.outputs.begin(), fusion_.outputs.end(),
                                       anchor.node) != fusion_.outputs.end();
      task.accumulates = anchor.reduces;
      if (anchor.reduces) pass.reduces.push_back(task);
      if (const auto axis = placed_axis(anchor)) {
        const auto place =
            std::find(parallel_order_.begin(), parallel_order_.end(), root(anchor.domain[*axis]));
        space.placed = {found->second, static_cast<size_t>(place - parallel_order_.begin())};
      }
      if (anchor.reduces && is_output) {
        stored_reductions_.push_back({anchor.node, task.at, {}});
      } else if (is_output) {
        pass.stores.push_back(std::move(task));
      }
    }
    sort_passes(space);
    return space;
  }

  void add_running_pass(Space& space, std::map<int, Expr> symbols) {
    Pass pass;
    pass.inner = {space_axis("q.0.0", extents_[static_cast<size_t>(*running_)])};
    symbols.emplace(*running_, pass.inner[0].symbol);
    for (const Anchor& anchor : anchors_) {
      SpaceTask task{.node = anchor.node, .at = {}, .reduction = {}};
      for (int axis : anchor.domain) task.at.push_back(axis < 0 ? Expr(0) : symbols.at(root(axis)));
      if (std::find(fusion_.outputs.begin(), fusion_.outputs.end(), anchor.node) !=
          fusion_.outputs.end())
        pass.stores.push_back(task);
      if (!anchor.running) continue;
      task.reduction = {pass.inner[0].symbol};
      task.accumulates = true;
      pass.reduces.push_back(std::move(task));
    }
    space.passes = {std::move(pass)};
    space.running = true;
  }

  // Puts the passes in the order of their level. Reductions that are outputs are stored in the last
  // pass if that only stores and has no inner axes, and otherwise in a new pass of this kind.
  void sort_passes(Space& space) {
    std::vector<size_t> order(space.passes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return levels_[a] < levels_[b]; });
    std::vector<Pass> sorted;
    for (size_t i : order) sorted.push_back(std::move(space.passes[i]));
    space.passes = std::move(sorted);
    if (space.placed)
      space.placed->pass = static_cast<size_t>(
          std::find(order.begin(), order.end(), space.placed->pass) - order.begin());
    if (stored_reductions_.empty()) return;
    if (space.passes.back().inner.empty() && space.passes.back().reduces.empty()) {
      auto& stores = space.passes.back().stores;
      stores.insert(stores.end(), stored_reductions_.begin(), stored_reductions_.end());
    } else {
      space.passes.push_back({{}, {}, std::move(stored_reductions_)});
    }
  }

  static SpaceAxis space_axis(const std::string& name, const Expr& extent) {
    const int64_t last = std::max<int64_t>(extent.range().max, 1) - 1;
    return {Expr::symbol(name, {0, last}), extent};
  }
  static std::string join_text(const std::vector<Expr>& list) {
    return braze::join(list, ",", [](const Expr& e) { return e.to_string(); });
  }

  const LoopForms& forms_;
  const Fusion& fusion_;
  std::vector<bool> inside_;
  NoSpace problem_;
  std::vector<Anchor> anchors_;
  std::unordered_map<NodeId, size_t> anchor_of_;
  std::vector<Expr> extents_;
  std::vector<int> parent_;
  std::set<int> parallel_;
  std::vector<int> parallel_order_;
  std::vector<int> levels_;
  std::vector<SpaceTask> stored_reductions_;
  std::optional<int> running_;  // the axis of scans
};

}  // namespace

std::variant<Space, NoSpace> find_space(const LoopForms& forms, const Fusion& fusion) {
  return SpaceFinder(forms, fusion).find();
}

std::vector<SpaceAxis> axes_of(const Space& space, size_t pass) {
  std::vector<SpaceAxis> axes = space.parallel;
  if (space.placed && space.placed->pass == pass)
    axes.erase(axes.begin() + static_cast<ptrdiff_t>(space.placed->axis));
  const std::vector<SpaceAxis>& inner = space.passes[pass].inner;
  axes.insert(axes.end(), inner.begin(), inner.end());
  return axes;
}

bool is_pointwise(const Space& space) {
  return space.passes.size() == 1 && space.passes[0].reduces.empty() &&
         space.passes[0].inner.empty();
}

SpaceTask start_of(const LoopForms& forms, const SpaceTask& placed) {
  const uint32_t start = forms.find(placed.node)->placement->start;
  return {.node = forms.graph()[placed.node].operands[start], .at = placed.at, .reduction = {}};
}

namespace {

void trace_task(const LoopForms& forms, Inliner<Tracer>& inliner, Tracer& tracer,
                const SpaceTask& task) {
  if (task.accumulates) {
    inliner.reduction_body(task.node, task.at, task.reduction);
    if (forms.find(task.node)->placement) inliner.place(task.node, task.reduction);
    tracer.flops += 1;
  } else {
    inliner.value(task.node, task.at);
  }
}

PassTrace result_of(Tracer& tracer) {
  PassTrace result{std::move(tracer.loads), {}, tracer.flops, tracer.uniform_flops};
  for (const auto& [node, at] : tracer.reductions) result.reduced.push_back(node);
  return result;
}

}  // namespace

PassTrace trace(const LoopForms& forms, const Fusion& fusion, const SpaceTask& task) {
  return trace(forms, membership(forms.graph(), fusion.nodes), task);
}

PassTrace trace(const LoopForms& forms, const std::vector<bool>& inside, const SpaceTask& task) {
  Tracer tracer;
  Inliner<Tracer> inliner(forms, inside, tracer);
  trace_task(forms, inliner, tracer, task);
  return result_of(tracer);
}

PassTrace trace(const LoopForms& forms, const Fusion& fusion, const Pass& pass,
                std::span<const SharedValue> kept, std::string_view lane) {
  const std::vector<bool> inside = membership(forms.graph(), fusion.nodes);
  Tracer tracer;
  tracer.kept = kept;
  tracer.loop = pass.inner.empty() ? lane : "q.";
  Inliner<Tracer> inliner(forms, inside, tracer);
  for (const SpaceTask& task : pass.reduces) trace_task(forms, inliner, tracer, task);
  for (const SpaceTask& task : pass.stores) trace_task(forms, inliner, tracer, task);
  return result_of(tracer);
}

std::vector<ValueAt> visited_values(const LoopForms& forms, const Fusion& fusion,
                                    const SpaceTask& task, std::span<const SharedValue> kept) {
  const std::vector<bool> inside = membership(forms.graph(), fusion.nodes);
  Tracer tracer;
  tracer.kept = kept;
  Inliner<Tracer> inliner(forms, inside, tracer);
  trace_task(forms, inliner, tracer, task);
  std::vector<ValueAt> values;
  for (auto& [node, at] : tracer.visited) values.push_back({node, std::move(at)});
  for (MemoryAccess& load : tracer.loads)
    if (!load.conditional && !load.indirect) values.push_back({load.node, std::move(load.at)});
  return values;
}

std::vector<SharedValue> shared_values(const LoopForms& forms, const Fusion& fusion,
                                       const Space& space) {
  constexpr double kWorthKeeping = 3;  // a store and a load
  const std::vector<bool> inside = membership(forms.graph(), fusion.nodes);
  struct Visit {
    NodeId node;
    std::vector<Expr> at;
    size_t pass;
  };
  // The cost of a node's body, down to loads and reductions.
  std::map<uint32_t, double> costs;
  const std::function<double(NodeId)> cost = [&](NodeId node) -> double {
    const LoopForm* form = inside[node.index] ? forms.find(node) : nullptr;
    if (!form || form->reduces()) return 0;
    if (const auto known = costs.find(node.index); known != costs.end()) return known->second;
    double total = 0;
    for (const BodyStep& step : form->body) {
      if (step.kind == BodyStep::Kind::Apply) total += operation_cost(step.op);
      if (step.kind == BodyStep::Kind::Load)
        total += cost(forms.graph()[node].operands[step.operand]);
    }
    return costs[node.index] = total;
  };
  const auto varies =
      [&](const Visit& visit) {  // if it does not vary along its pass, recomputing it is cheap
        const auto& inner = space.passes[visit.pass].inner;
        return std::any_of(visit.at.begin(), visit.at.end(), [&](const Expr& e) {
          return std::any_of(inner.begin(), inner.end(), [&](const SpaceAxis& axis) {
            return e.uses(axis.symbol.symbol_name());
          });
        });
      };
  const auto visits_of = [&](size_t n, const std::vector<SharedValue>& kept) {
    Tracer tracer;
    tracer.kept = kept;
    Inliner<Tracer> inliner(forms, inside, tracer);
    for (const SpaceTask& task : space.passes[n].reduces)
      inliner.reduction_body(task.node, task.at, task.reduction);
    for (const SpaceTask& task : space.passes[n].stores) inliner.value(task.node, task.at);
    return std::move(tracer.visited);
  };

  // If a pass would compute again what an earlier pass has computed, it reads that instead. Users
  // are visited before their operands, so the outermost such value is found first and hides the
  // others.
  std::vector<SharedValue> chosen;
  std::vector<Visit> earlier;
  for (size_t n = 0; n < space.passes.size(); ++n) {
    auto visited = visits_of(n, chosen);
    for (bool found = true; found;) {
      found = false;
      for (const auto& [node, at] : visited) {
        const auto first = std::find_if(
            earlier.begin(), earlier.end(),
            [&, v = node, &where = at](const Visit& e) { return e.node == v && e.at == where; });
        if (first == earlier.end() || cost(node) < kWorthKeeping || !varies(*first)) continue;
        chosen.push_back({first->node, first->at, first->pass});
        visited = visits_of(n, chosen);
        found = true;
        break;
      }
    }
    for (auto& [node, at] : visited) earlier.push_back({node, std::move(at), n});
  }
  return chosen;
}

Expr linear_offset(const std::vector<Expr>& at, const Shape& shape) {
  Expr offset;
  for (size_t axis = 0; axis < at.size(); ++axis) offset = offset * shape[axis] + at[axis];
  return offset;
}

std::vector<bool> membership(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<bool> flags(graph.size());
  for (NodeId node : nodes) flags[node.index] = true;
  return flags;
}

}  // namespace braze
