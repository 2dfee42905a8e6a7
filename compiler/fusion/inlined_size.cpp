#include "compiler/fusion/inlined_size.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

namespace braze {

namespace {

constexpr double kMathLength = 18;  // the length of a math row, in machine rows

// The length of a node's own body. Index maps count, because the inliner walks through them too.
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

// The size of a node's own body, including the arithmetic of its indices, since an expression over
// many sizes is long.
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
bool copied_too_often(double places, const LoopForm& form) {
  return places > 1 && places * own_length(form) > kMostCopied;
}

// Whether the load reads its operand where the node itself is computed.
bool in_place(const LoopForm& form, const BodyStep& load) {
  if (!load.conditions.empty() || load.index.size() != form.domain.size()) return false;
  for (size_t axis = 0; axis < load.index.size(); ++axis)
    if (!(load.index[axis] == domain_symbol(axis, form.domain[axis]))) return false;
  return true;
}

// Counts the places at which nodes are computed. Users must be added before their operands. All
// users that read a value in place share one place, and every other user has a place of its own.
class Places {
 public:
  double of(NodeId node) const {
    const auto found = counts_.find(node.index);
    return found == counts_.end() ? 1 : std::max(found->second.shared + found->second.other, 1.0);
  }
  void add_operands(const LoopForms& forms, NodeId user, double places) {
    const LoopForm& form = *forms.find(user);
    for (const BodyStep& step : form.body) {
      if (step.kind != BodyStep::Kind::Load) continue;
      Count& count = counts_[forms.graph()[user].operands[step.operand].index];
      if (in_place(form, step))
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

}  // namespace

double inlined_length(const LoopForms& forms, const std::vector<double>& lengths, NodeId node) {
  double before = 0;
  for (NodeId operand : forms.graph()[node].operands)
    before = std::max(before, lengths[operand.index]);
  return before + own_length(*forms.find(node));
}

double inlined_size(const LoopForms& forms, const std::vector<bool>& inlined, NodeId node) {
  double size = 0;
  Places places;
  std::set<NodeId, std::greater<>> open{node};  // users come before their operands
  while (!open.empty() && size <= kLargestBody) {
    const NodeId next = *open.begin();
    open.erase(open.begin());
    const double count = next == node ? 1 : places.of(next);
    size += count * own_size(*forms.find(next));
    places.add_operands(forms, next, count);
    for (NodeId operand : forms.graph()[next].operands)
      if (inlined[operand.index]) open.insert(operand);
  }
  return size;
}

double most_inlined_size(const LoopForms& forms, const std::vector<double>& sizes, NodeId node) {
  const LoopForm& form = *forms.find(node);
  double size = own_size(form);
  for (const BodyStep& step : form.body)
    if (step.kind == BodyStep::Kind::Load)
      size += sizes[forms.graph()[node].operands[step.operand].index];
  return size;
}

void add_roots_by_places(const LoopForms& forms, const std::vector<bool>& live,
                         std::vector<bool>& root) {
  Places places;
  for (size_t i = live.size(); i-- > 0;) {
    const LoopForm* form = live[i] ? forms.find(NodeId(i)) : nullptr;
    if (!form) continue;
    if (!form->reduces() && copied_too_often(places.of(NodeId(i)), *form)) root[i] = true;
    places.add_operands(forms, NodeId(i), root[i] || form->reduces() ? 1 : places.of(NodeId(i)));
  }
}

bool inlines_within_bounds(const LoopForms& forms, const std::vector<NodeId>& nodes) {
  std::vector<double> lengths(forms.graph().size());
  for (NodeId node : nodes) {
    const LoopForm* form = forms.find(node);
    if (!form) continue;
    const double length = inlined_length(forms, lengths, node);
    if (length > kLongestBody) return false;
    if (!form->reduces()) lengths[node.index] = length;
  }
  Places places;
  double size = 0;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const LoopForm* form = forms.find(*node);
    if (!form) continue;
    const double count = form->reduces() ? 1 : places.of(*node);
    size += count * own_size(*form);
    if (copied_too_often(count, *form) || size > kLargestBody) return false;
    places.add_operands(forms, *node, count);
  }
  return true;
}

}  // namespace braze
