#include "compiler/fusion/inlined_size.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <unordered_map>

namespace braze {

namespace {

constexpr double kMathLength = 18;  // the length of a math row, in machine rows

double own_length(const LoopForm& form) {
  double length = 1;
  for (const BodyStep& step : form.body)
    if (step.kind == BodyStep::Kind::Apply) length += is_machine(step.op) ? 1 : kMathLength;
  return length;
}

double operations(const Expr& e) {
  double count = e.operands().empty() ? 0 : static_cast<double>(e.operands().size()) - 1;
  for (const Expr& operand : e.operands()) count += operations(operand);
  return count;
}

double operations_of_conditions(const BodyStep& load) {
  double count = 0;
  for (const RangeCondition& c : load.conditions)
    count += 1 + operations(c.value) + operations(c.min) + operations(c.limit);
  return count;
}

double own_size(const LoopForm& form) {
  double size = 0;
  for (const BodyStep& step : form.body) {
    const bool is_math = step.kind == BodyStep::Kind::Apply && !is_machine(step.op);
    size += is_math ? kMathLength : 1;
    for (const Expr& e : step.index) size += operations(e);
    size += operations_of_conditions(step);
  }
  return size;
}

// A node with one place is never computed too often.
bool copied_too_often(double places, double length) {
  return places > 1 && places * length > kMostCopied;
}

bool in_place(const LoopForm& form, const BodyStep& load) {
  if (!load.conditions.empty() || load.index.size() != form.domain.size()) return false;
  for (size_t axis = 0; axis < load.index.size(); ++axis)
    if (!(load.index[axis] == domain_symbol(axis, form.domain[axis]))) return false;
  return true;
}

}  // namespace

// Counts the places at which nodes are computed. Users must be added before their operands. Users
// that are computed at one place and read a value there share the value; every other load makes a
// place of its own. The conditions of a load hold for all that is computed for it, so the loads at
// the end of a chain have the conditions of the whole chain.
class InlinedSizes::Places {
 public:
  struct Count {
    double places = 0, conditions = 0;  // the operations of conditions, of all places together
  };
  // The places that one load made: one for each place at which the node that loads is computed.
  struct Group {
    size_t load;  // its number; 0: no load made them
    Count count;
  };
  using Groups = std::vector<Group>;  // in the order of their loads

  /// The places of a node whose users have all been added. A node without users has one, which all
  /// such nodes share, because their loops may be one.
  Groups of(NodeId node) const {
    const auto found = groups_.find(node.index);
    return found == groups_.end() ? kRoot : found->second;
  }
  static inline const Groups kRoot{{0, {1, 0}}};
  static Count total(const Groups& groups) {
    Count total;
    for (const auto& [load, count] : groups) {
      total.places += count.places;
      total.conditions += count.conditions;
    }
    return total;
  }
  void add_operands(const Own& user, const Groups& at) {
    const Count all = total(at);
    for (const Load& load : user.loads) {
      Groups& groups = groups_[load.operand.index];
      if (!load.in_place) {
        groups.push_back({loads_++, {all.places, all.conditions + all.places * load.conditions}});
        continue;
      }
      Groups united;
      std::ranges::set_union(groups, at, std::back_inserter(united), {}, &Group::load,
                             &Group::load);
      groups = std::move(united);
    }
  }

 private:
  std::unordered_map<uint32_t, Groups> groups_;
  size_t loads_ = 1;
};

InlinedSizes::InlinedSizes(const LoopForms& forms) : graph_(forms.graph()), own_(graph_.size()) {
  for (size_t i = 0; i < graph_.size(); ++i) {
    const LoopForm* form = forms.find(NodeId(i));
    if (!form) continue;
    Own& own = own_[i];
    own = {true, form->reduces(), own_length(*form), own_size(*form), {}};
    for (const BodyStep& step : form->body)
      if (step.kind == BodyStep::Kind::Load)
        own.loads.push_back({graph_[NodeId(i)].operands[step.operand], in_place(*form, step),
                             operations_of_conditions(step)});
  }
}

double InlinedSizes::length(const std::vector<double>& lengths, NodeId node) const {
  double before = 0;
  for (NodeId operand : graph_[node].operands) before = std::max(before, lengths[operand.index]);
  return before + own(node).length;
}

double InlinedSizes::size(const std::vector<bool>& inlined, NodeId node) const {
  double size = 0;
  Places places;
  std::set<NodeId, std::greater<>> open{node};  // users come before their operands
  while (!open.empty() && size <= kLargestBody) {
    const NodeId next = *open.begin();
    open.erase(open.begin());
    const Places::Groups at = places.of(next);
    const auto [count, conditions] = Places::total(at);
    size += count * own(next).size;
    places.add_operands(own(next), at);
    for (const Load& load : own(next).loads)
      if (inlined[load.operand.index])
        open.insert(load.operand);
      else
        size += conditions;
  }
  return size;
}

InlinedSizes::Most InlinedSizes::most(const std::vector<Most>& operands, NodeId node) const {
  Most most{own(node).size, 0};
  for (const Load& load : own(node).loads) {
    const Most& operand = operands[load.operand.index];
    most.size += operand.size + load.conditions * operand.loads;
    most.loads += operand.loads;
  }
  return most;
}

void InlinedSizes::add_roots_by_places(const std::vector<bool>& live,
                                       std::vector<bool>& root) const {
  Places places;
  for (size_t i = live.size(); i-- > 0;) {
    const Own& own = own_[i];
    if (!live[i] || !own.has_form) continue;
    const Places::Groups at = places.of(NodeId(i));
    // Constants and the like are no longer than the load that would take their place.
    const bool is_load = own.loads.empty() && own.length <= 1;
    if (!own.reduces && !is_load && copied_too_often(Places::total(at).places, own.length))
      root[i] = true;
    places.add_operands(own, root[i] || own.reduces ? Places::kRoot : at);
  }
}

bool InlinedSizes::within_bounds(const std::vector<NodeId>& nodes) const {
  std::vector<double> lengths(graph_.size());
  std::vector<bool> inside(graph_.size());  // whether a node is computed inside its users
  for (NodeId node : nodes) {
    if (!own(node).has_form) continue;
    const double length = this->length(lengths, node);
    if (length > kLongestBody) return false;
    if (!own(node).reduces) {
      lengths[node.index] = length;
      inside[node.index] = true;
    }
  }
  Places places;
  double size = 0;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const Own& of_node = own(*node);
    if (!of_node.has_form) continue;
    const Places::Groups at = of_node.reduces ? Places::kRoot : places.of(*node);
    const auto [count, conditions] = Places::total(at);
    size += count * of_node.size;
    for (const Load& load : of_node.loads)
      if (!inside[load.operand.index]) size += conditions;
    if (copied_too_often(count, of_node.length) || size > kLargestBody) return false;
    places.add_operands(of_node, at);
  }
  return true;
}

}  // namespace braze
