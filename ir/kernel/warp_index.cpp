#include "ir/kernel/warp_index.h"

#include <algorithm>
#include <charconv>

#include "ir/code/index_program.h"
#include "ir/ops/scalar.h"

namespace braze {

WarpIndex::WarpIndex(const Expr& e, const ValueType& type, const Names& names)
    : count_(static_cast<size_t>(type.count() * type.lanes)) {
  const size_t last = add(e, type, names);
  if (last + 1 != nodes_.size()) nodes_.push_back(nodes_[last]);
}

size_t WarpIndex::push(Node node) {
  node.data.resize((node.form & kByThread ? kWarpLanes : 1) *
                   (node.form & kByElement ? count_ : 1));
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

size_t WarpIndex::add_symbol(const std::string& name, const ValueType& type, const Names& names) {
  Node node;
  node.kind = Expr::Kind::Symbol;
  if (name[0] == '%') {
    const auto [value, value_type] = names.value(name);
    node.value = value;
    node.dtype = value_type.dtype;
    node.map = broadcast_map(value_type, type);
    node.form = kByThread | kByElement;
    return push(std::move(node));
  }
  if (is_position_symbol(name, 'e')) {
    size_t axis = type.rank();
    if (name != "lane") std::from_chars(name.data() + 1, name.data() + name.size(), axis);
    node.form = kByElement;
    node.fixed = true;
    const size_t i = push(std::move(node));
    nodes_[i].data = element_positions(type, axis);
    return i;
  }
  node.symbol = names.symbol(name);
  node.form = node.symbol.uniform ? 0 : kByThread;
  return push(std::move(node));
}

size_t WarpIndex::add(const Expr& e, const ValueType& type, const Names& names) {
  if (const auto constant = e.as_constant()) {
    Node node;
    node.fixed = true;
    const size_t i = push(std::move(node));
    nodes_[i].data = {*constant};
    return i;
  }
  if (e.kind() == Expr::Kind::Symbol) return add_symbol(e.symbol_name(), type, names);
  std::vector<size_t> operands;
  for (const Expr& operand : e.operands()) operands.push_back(add(operand, type, names));
  // Terms of the same form stand side by side, and narrow forms come first, so that few operations
  // work on all elements.
  if (e.kind() != Expr::Kind::FloorDiv && e.kind() != Expr::Kind::Mod)
    std::stable_sort(operands.begin(), operands.end(), [&](size_t a, size_t b) {
      return std::pair(!nodes_[a].fixed, nodes_[a].form) <
             std::pair(!nodes_[b].fixed, nodes_[b].form);
    });
  size_t made = operands[0];
  for (size_t k = 1; k < operands.size(); ++k) made = combine(e.kind(), made, operands[k]);
  return made;
}

size_t WarpIndex::combine(Expr::Kind kind, size_t a, size_t b) {
  Node node;
  node.kind = kind;
  node.a = a;
  node.b = b;
  node.form = nodes_[a].form | nodes_[b].form;
  node.fixed = nodes_[a].fixed && nodes_[b].fixed;
  const size_t i = push(std::move(node));
  if (nodes_[i].fixed) evaluate_pair(nodes_[i]);
  return i;
}

void WarpIndex::evaluate_pair(const Node& node) const {
  const Node &a = nodes_[node.a], &b = nodes_[node.b];
  // The distances to the next element, and to the next thread, in the data of a form.
  const auto element_step = [](const Node& n) {
    return !(n.form & kByElement) ? 0 : n.form & kByThread ? kWarpLanes : 1;
  };
  const auto thread_step = [](const Node& n) { return n.form & kByThread ? size_t{1} : 0; };
  const size_t elements = node.form & kByElement ? count_ : 1,
               threads = node.form & kByThread ? kWarpLanes : 1;
  const size_t x_step = thread_step(a), y_step = thread_step(b);
  int64_t* out = node.data.data();
  for (size_t e = 0; e < elements; ++e, out += threads) {
    const int64_t* const x = a.data.data() + e * element_step(a);
    const int64_t* const y = b.data.data() + e * element_step(b);
    if (y_step == 0)
      with_operation_by(node.kind, *y, [&](auto op) {
        for (size_t t = 0; t < threads; ++t) out[t] = op(x[t * x_step]);
      });
    else
      with_operation(node.kind, [&](auto op) {
        for (size_t t = 0; t < threads; ++t) out[t] = op(x[t * x_step], y[t]);
      });
  }
}

void WarpIndex::evaluate(const Node& node, const WarpScope& scope) const {
  if (node.kind != Expr::Kind::Symbol) {
    node.changed = nodes_[node.a].changed || nodes_[node.b].changed || !evaluated_;
    if (node.changed) evaluate_pair(node);
    return;
  }
  node.changed = false;
  const auto set = [&](int64_t& to, int64_t from) {
    node.changed |= to != from;
    to = from;
  };
  if (!node.value) {
    const Lanes& lanes = (*scope.symbols)[node.symbol.slot];
    for (size_t t = 0; t < node.data.size(); ++t) set(node.data[t], lanes[t]);
    return;
  }
  const WarpValue& bits = (*scope.values)[node.value.index];
  for (size_t e = 0; e < count_; ++e) {
    const uint64_t* from = bits.data() + (node.map.empty() ? e : node.map[e]) * kWarpLanes;
    for (size_t t = 0; t < kWarpLanes; ++t)
      set(node.data[e * kWarpLanes + t], bits_to_int(node.dtype, from[t]));
  }
}

void WarpIndex::evaluate_all(const WarpScope& scope) const {
  for (const Node& node : nodes_)
    if (!node.fixed) evaluate(node, scope);
  evaluated_ = true;
}

int64_t WarpIndex::scalar(const WarpScope& scope) const {
  evaluate_all(scope);
  return nodes_.back().data[0];
}

const int64_t* WarpIndex::threads(const WarpScope& scope) const {
  evaluate_all(scope);
  const Node& last = nodes_.back();
  if (last.form & kByThread) return last.data.data();
  spread_.assign(kWarpLanes, last.data[0]);
  return spread_.data();
}

const int64_t* WarpIndex::all(const WarpScope& scope) const {
  evaluate_all(scope);
  const Node& last = nodes_.back();
  if (last.form == (kByThread | kByElement)) return last.data.data();
  spread_.resize(count_ * kWarpLanes);
  for (size_t e = 0; e < count_; ++e) {
    int64_t* const out = spread_.data() + e * kWarpLanes;
    if (last.form & kByThread)
      std::copy_n(last.data.begin(), kWarpLanes, out);
    else
      std::fill_n(out, kWarpLanes, last.data[last.form & kByElement ? e : 0]);
  }
  return spread_.data();
}

}  // namespace braze
