#include "compiler/fusion/inlined_size.h"

#include <algorithm>
#include <functional>
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

double own_size(const LoopForm& form) {
  double size = 0;
  for (const BodyStep& step : form.body) {
    const bool is_math = step.kind == BodyStep::Kind::Apply && !is_machine(step.op);
    size += is_math ? kMathLength : 1;
    for (const Expr& e : step.index) size += operations(e);
    for (const RangeCondition& c : step.conditions)
      size += operations(c.value) + operations(c.min) + operations(c.limit);
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

// Counts the places at which nodes are computed. Users must be added before their operands. All
// users that read a value in place share one place, and every other user has a place of its own.
class InlinedSizes::Places {
 public:
  double of(NodeId node) const {
    const auto found = counts_.find(node.index);
    return found == counts_.end() ? 1 : std::max(found->second.shared + found->second.other, 1.0);
  }
  void add_operands(const Own& user, double places) {
    for (const Load& load : user.loads) {
      Count& count = counts_[load.operand.index];
      if (load.in_place)
        count.shared = std::max(count.shared, places);
      else
        count.other += places;
    }
  }

 private:
  struct Count {
    double shared = 0, other = 0;
  };
  std::unordered_map<uint32_t, Count> counts_;
};

InlinedSizes::InlinedSizes(const LoopForms& forms) : graph_(forms.graph()), own_(graph_.size()) {
  for (size_t i = 0; i < graph_.size(); ++i) {
    const LoopForm* form = forms.find(NodeId(i));
    if (!form) continue;
    Own& own = own_[i];
    own = {true, form->reduces(), own_length(*form), own_size(*form), {}};
    for (const BodyStep& step : form->body)
      if (step.kind == BodyStep::Kind::Load)
        own.loads.push_back({graph_[NodeId(i)].operands[step.operand], in_place(*form, step)});
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
    const double count = next == node ? 1 : places.of(next);
    size += count * own(next).size;
    places.add_operands(own(next), count);
    for (NodeId operand : graph_[next].operands)
      if (inlined[operand.index]) open.insert(operand);
  }
  return size;
}

double InlinedSizes::most_size(const std::vector<double>& sizes, NodeId node) const {
  double size = own(node).size;
  for (const Load& load : own(node).loads) size += sizes[load.operand.index];
  return size;
}

void InlinedSizes::add_roots_by_places(const std::vector<bool>& live,
                                       std::vector<bool>& root) const {
  Places places;
  for (size_t i = live.size(); i-- > 0;) {
    const Own& own = own_[i];
    if (!live[i] || !own.has_form) continue;
    if (!own.reduces && copied_too_often(places.of(NodeId(i)), own.length)) root[i] = true;
    places.add_operands(own, root[i] || own.reduces ? 1 : places.of(NodeId(i)));
  }
}

bool InlinedSizes::within_bounds(const std::vector<NodeId>& nodes) const {
  std::vector<double> lengths(graph_.size());
  for (NodeId node : nodes) {
    if (!own(node).has_form) continue;
    const double length = this->length(lengths, node);
    if (length > kLongestBody) return false;
    if (!own(node).reduces) lengths[node.index] = length;
  }
  Places places;
  double size = 0;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const Own& of_node = own(*node);
    if (!of_node.has_form) continue;
    const double count = of_node.reduces ? 1 : places.of(*node);
    size += count * of_node.size;
    if (copied_too_often(count, of_node.length) || size > kLargestBody) return false;
    places.add_operands(of_node, count);
  }
  return true;
}

}  // namespace braze
