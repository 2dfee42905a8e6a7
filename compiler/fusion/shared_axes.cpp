#include "compiler/fusion/shared_axes.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/fusion/reasons.h"

namespace braze {

namespace {

// A node at coordinates over axes.
struct Place {
  NodeId node;
  std::vector<Expr> at;
};

// Records what an evaluation accesses: memory, reductions, and the nodes of `anchors` on its way.
class Tracer {
 public:
  struct Value {};

  explicit Tracer(const std::unordered_map<NodeId, size_t>& anchors) : anchors_(anchors) {}

  Value load(NodeId node, std::vector<Expr> at, const Conditions&) {
    loads.push_back({node, std::move(at)});
    return {};
  }
  Value reduced(NodeId node, std::vector<Expr> at, const Conditions&) {
    reductions.push_back({node, std::move(at)});
    return {};
  }
  Value index(const Expr&, DType) { return {}; }
  Value constant(DType, uint64_t) { return {}; }
  Value inside(const Conditions&) { return {}; }
  Value apply(ElementwiseOp, std::span<const Value>, DType) { return {}; }
  Expr as_index(const Value&, const Expr& extent) {
    return Expr::symbol("loaded." + std::to_string(loaded_++),
                        {0, std::max<int64_t>(extent.range().max, 1) - 1});
  }
  std::optional<Value> cached(NodeId node, const std::vector<Expr>& at) {
    if (anchors_.contains(node)) visited.push_back({node, at});
    return std::nullopt;
  }

  std::vector<Place> loads, reductions, visited;

 private:
  const std::unordered_map<NodeId, size_t>& anchors_;
  int loaded_ = 0;
};

// A node whose axes must be found in the kernel: a reduction of the Fusion, or an output.
struct Anchor {
  NodeId node;
  bool reduces = false;
  const RunningAxis* running = nullptr;  // if it is a scan: its axis and direction
  std::vector<int> domain;               // numbers of axes; -1 for extents of 1
  std::vector<int> reduction;            // numbers of axes
  std::vector<Place> loads;
};

class AxisFinder {
 public:
  AxisFinder(const LoopForms& forms, const Fusion& fusion)
      : forms_(forms), fusion_(fusion), inside_(membership(forms.graph(), fusion)) {}

  std::optional<NotShared> refusal() {
    add_anchors();
    if (!join_by_demand()) return problem_;
    join_by_common_loads();
    join_outputs_of_equal_shape();
    if (!check_classes()) return problem_;
    return std::nullopt;
  }

 private:
  bool refuse(const Code& code, NodeId first, NodeId second) {
    problem_ = {&code, first, second};
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
      Tracer tracer(anchor_of_);
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
        if (!join_at(anchors_[anchor_of_.at(node)], at))
          return refuse(reasons::kIndexMap, node, anchor.node);
      }
      for (const auto& [node, at] : tracer.visited)
        if (node != anchor.node) join_at(anchors_[anchor_of_.at(node)], at);
      anchor.loads = plain_loads(std::move(tracer.loads));
    }
    return true;
  }

  // The loads of an anchor that other anchors may share, each place once. Their coordinates are
  // single axes and constants, since coordinates that combine axes are not the same in two anchors.
  static std::vector<Place> plain_loads(std::vector<Place> loads) {
    const auto is_plain = [](const Expr& e) {
      const auto symbols = e.symbols();
      return axis_of(e) || std::none_of(symbols.begin(), symbols.end(), [](const std::string& s) {
               return s.starts_with("axis.") || s.starts_with("loaded.");
             });
    };
    std::set<std::pair<NodeId, std::vector<Expr>>> seen;
    std::erase_if(loads, [&](const Place& load) {
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
    for (const Place& x : a.loads) {
      for (const Place& y : b.loads) {
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
  std::vector<std::pair<int, int>> common_axes(const Anchor& a, const Place& x, const Anchor& b,
                                               const Place& y) {
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
        return refuse(some_cross() ? reasons::kNestedReduction : reasons::kDifferentDomain,
                      leader.node, anchor.node);
    }
    return true;
  }

  // Whether each of two reductions reduces an axis that the other one keeps.
  bool some_cross() {
    const auto meet = [](const std::set<int>& a, const std::set<int>& b) {
      return std::ranges::any_of(a, [&](int axis) { return b.contains(axis); });
    };
    for (const Anchor& a : anchors_)
      for (const Anchor& b : anchors_) {
        if (!a.reduces || !b.reduces || a.node == b.node) continue;
        const bool by_values = meet(classes(a.reduction), classes(b.domain)) &&
                               meet(classes(b.reduction), classes(a.domain));
        if (by_values || crosses(a, b)) return true;
      }
    return false;
  }

  // Whether two reductions read one memory, and each reduces an axis of it that the other one
  // keeps.
  static bool crosses(const Anchor& a, const Anchor& b) {
    const auto has = [](const std::vector<int>& axes, const Expr& e) {
      const auto axis = axis_of(e);
      return axis && std::ranges::count(axes, *axis) > 0;
    };
    for (const Place& x : a.loads)
      for (const Place& y : b.loads) {
        if (x.node != y.node) continue;
        bool first = false, second = false;
        for (size_t d = 0; d < x.at.size(); ++d) {
          first |= has(a.reduction, x.at[d]) && has(b.domain, y.at[d]);
          second |= has(a.domain, x.at[d]) && has(b.reduction, y.at[d]);
        }
        if (first && second) return true;
      }
    return false;
  }

  const LoopForms& forms_;
  const Fusion& fusion_;
  std::vector<bool> inside_;
  NotShared problem_;
  std::vector<Anchor> anchors_;
  std::unordered_map<NodeId, size_t> anchor_of_;
  std::vector<Expr> extents_;
  std::vector<int> parent_;
  std::set<int> parallel_;
  std::optional<int> running_;  // the axis of scans
};

}  // namespace

std::optional<NotShared> refuse_shared_axes(const LoopForms& forms, const Fusion& fusion) {
  return AxisFinder(forms, fusion).refusal();
}

}  // namespace braze
