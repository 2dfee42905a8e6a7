#include "compiler/fusion/shared_axes.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/fusion/reasons.h"
#include "compiler/loops/axes.h"

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

constexpr size_t kNone = SIZE_MAX;

// A node whose axes must be found in the kernel: a reduction of the Fusion, or an output.
struct Anchor {
  NodeId node;
  bool reduces = false;
  const RunningAxis* running = nullptr;  // if it is a scan: its axis and direction
  std::vector<size_t> domain;            // numbers of axes; kNone for extents of 1
  std::vector<size_t> reduction;         // numbers of axes
  std::vector<Place> loads;
};

class AxisFinder {
 public:
  AxisFinder(const LoopForms& forms, const Fusion& fusion, bool by_digits)
      : forms_(forms),
        fusion_(fusion),
        by_digits_(by_digits),
        inside_(membership(forms.graph(), fusion)) {}

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

  void add_anchor(NodeId node) {
    if (anchor_of_.contains(node)) return;
    Anchor anchor{.node = node, .domain = {}, .reduction = {}, .loads = {}};
    const LoopForm* form = forms_.find(node);
    anchor.reduces = form && form->reduces();
    if (form && form->running) anchor.running = &*form->running;
    // A placed reduction needs no loop over its places. A scan needs one loop, over its axis.
    const std::optional<size_t> own = anchor.running ? anchor.running->axis : placed_axis(anchor);
    const Shape& shape = forms_.graph()[node].type.shape;
    const auto new_axis = [&](const Expr& extent) { return axes_.add(extent, anchors_.size()); };
    for (size_t axis = 0; axis < shape.rank(); ++axis)
      anchor.domain.push_back(shape[axis].is_constant(1) && own != axis ? kNone
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

  std::vector<Expr> axis_exprs(const std::vector<size_t>& axes) const {
    std::vector<Expr> out;
    for (const size_t axis : axes) out.push_back(axis == kNone ? Expr(0) : axes_.symbol(axis));
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
                         axes_.digits(other.reduction[0]) == axes_.digits(scan->reduction[0]);
      if (!alike)
        return refuse(reasons::kRunning, std::min(scan->node, other.node),
                      std::max(scan->node, other.node));
    }
    running_ = axes_.digits(scan->reduction[0]).front();
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
      return Axes::axis_of(e) ||
             std::none_of(symbols.begin(), symbols.end(), [](const std::string& s) {
               return s.starts_with("x.") || s.starts_with("loaded.");
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
    const std::set<size_t> first = classes(a.domain), second = classes(b.domain);
    return std::any_of(first.begin(), first.end(),
                       [&](size_t axis) { return second.contains(axis); });
  }

  bool join_by_common_load(const Anchor& a, const Anchor& b) {
    for (const Place& x : a.loads) {
      for (const Place& y : b.loads) {
        if (x.node != y.node) continue;
        const auto pairs = common_axes(a, x, b, y);
        for (const auto& [first, second] : pairs) axes_.equate(first, axes_.symbol(second));
        if (!pairs.empty()) return true;
      }
    }
    return false;
  }

  // The pairs of parallel axes that two loads of one place have in common. The list is empty if one
  // of the anchors is a reduction whose domain has further axes, or if an axis is parallel in one
  // reduction and reduced in the other.
  std::vector<std::pair<size_t, size_t>> common_axes(const Anchor& a, const Place& x,
                                                     const Anchor& b, const Place& y) {
    const auto within = [](const std::vector<size_t>& axes, size_t axis) {
      return std::find(axes.begin(), axes.end(), axis) != axes.end();
    };
    std::vector<std::pair<size_t, size_t>> pairs;
    for (size_t d = 0; d < x.at.size(); ++d) {
      const std::optional<size_t> first = Axes::axis_of(x.at[d]), second = Axes::axis_of(y.at[d]);
      if (!first || !second) {
        if (x.at[d] == y.at[d]) continue;  // one constant
        return {};
      }
      const bool parallel = within(a.domain, *first), other_parallel = within(b.domain, *second);
      if (parallel && other_parallel && (a.reduces || b.reduces)) {
        if (!(axes_.extent(*first) == axes_.extent(*second))) return {};
        pairs.emplace_back(*first, *second);
      } else if (parallel != other_parallel && a.reduces && b.reduces) {
        return {};
      }
    }
    for (const Anchor* anchor : {&a, &b}) {
      const auto axes = std::count_if(anchor->domain.begin(), anchor->domain.end(),
                                      [](size_t axis) { return axis != kNone; });
      if (anchor->reduces && axes != static_cast<std::ptrdiff_t>(pairs.size())) return {};
    }
    return pairs;
  }

  bool join_at(const Anchor& producer, const std::vector<Expr>& at) {
    for (size_t i = 0; i < at.size(); ++i) {
      if (producer.domain[i] == kNone) continue;
      if (!by_digits_ && !Axes::axis_of(at[i])) return false;
      if (!axes_.equate(producer.domain[i], at[i])) return false;
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
      bool equal = true;
      for (size_t i = 0; i < first.domain.size(); ++i) {
        if ((first.domain[i] == kNone) != (other.domain[i] == kNone)) equal = false;
        if (equal && first.domain[i] != kNone &&
            !(axes_.extent(first.domain[i]) == axes_.extent(other.domain[i])))
          equal = false;
      }
      if (!equal || connected(first, other)) continue;
      for (size_t i = 0; i < first.domain.size(); ++i)
        if (first.domain[i] != kNone) axes_.equate(first.domain[i], axes_.symbol(other.domain[i]));
    }
  }

  std::set<size_t> classes(const std::vector<size_t>& axes) {
    std::set<size_t> out;
    for (const size_t axis : axes)
      if (axis != kNone)
        for (const size_t digit : axes_.digits(axis)) out.insert(digit);
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
      const std::set<size_t> domain = classes(anchor.domain);
      size_t real = 0;
      for (const size_t axis : anchor.domain)
        if (axis != kNone) real += axes_.digits(axis).size();
      if (domain.size() != real) return refuse(reasons::kIndexMap, leader.node, anchor.node);
      for (const size_t axis : classes(anchor.reduction))
        if (parallel_.contains(axis))
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
    const auto meet = [](const std::set<size_t>& a, const std::set<size_t>& b) {
      return std::ranges::any_of(a, [&](size_t axis) { return b.contains(axis); });
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
    const auto has = [](const std::vector<size_t>& axes, const Expr& e) {
      const auto axis = Axes::axis_of(e);
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
  const bool by_digits_;
  std::vector<bool> inside_;
  NotShared problem_;
  std::vector<Anchor> anchors_;
  std::unordered_map<NodeId, size_t> anchor_of_;
  Axes axes_;
  std::set<size_t> parallel_;
  std::optional<size_t> running_;  // the axis of scans
};

}  // namespace

std::optional<NotShared> refuse_shared_axes(const LoopForms& forms, const Fusion& fusion,
                                            bool by_digits) {
  // The loop of a scan runs over a whole axis.
  const bool scans = std::ranges::any_of(fusion.nodes, [&](NodeId node) {
    const LoopForm* form = forms.find(node);
    return form && form->running;
  });
  return AxisFinder(forms, fusion, by_digits && !scans).refusal();
}

}  // namespace braze
