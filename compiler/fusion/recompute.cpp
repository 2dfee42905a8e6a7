#include "compiler/fusion/recompute.h"

#include <algorithm>

#include "compiler/loops/cost.h"

namespace braze {

double operation_cost(ElementwiseOp op) {
  if (!is_machine(op)) return 18;
  switch (op) {
    case ElementwiseOp::div:
    case ElementwiseOp::sqrt:
      return 10;
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

// What it counts as to look up an element whose place was loaded for it alone: the load waits for
// another one, and neighbours have their elements anywhere. Where a whole row has one place, its
// elements are loaded as those of any row.
constexpr double kLookUp = 8;

// Counts the operations of an evaluation.
class Counter {
 public:
  struct Value {
    bool loaded = false;   // whether it needs anything but indices and constants
    bool of_each = false;  // whether neighbours have different values
  };

  /// `innermost` is the symbol of the innermost axis of what is evaluated.
  explicit Counter(std::string innermost) : innermost_(std::move(innermost)) {}

  Value load(NodeId, const std::vector<Expr>& at, const Conditions&) {
    return {true, std::ranges::any_of(at, [&](const Expr& e) { return is_of_each(e); })};
  }
  Value reduced(NodeId node, const std::vector<Expr>& at, const Conditions& conditions) {
    return load(node, at, conditions);
  }
  Value index(const Expr& e, DType) { return counted({false, is_of_each(e)}, 1); }
  Value constant(DType, uint64_t) { return {}; }
  Value inside(const Conditions& conditions) {
    return counted({}, static_cast<double>(conditions.size()));
  }
  Value apply(ElementwiseOp op, std::span<const Value> arguments, DType) {
    return counted({std::ranges::any_of(arguments, &Value::loaded),
                    std::ranges::any_of(arguments, &Value::of_each)},
                   operation_cost(op));
  }
  Expr as_index(const Value& place, const Expr& extent) {
    if (place.loaded && place.of_each) operations.of_loaded += kLookUp;
    return Expr::symbol("loaded." + std::to_string(loaded_++),
                        {0, std::max<int64_t>(extent.range().max, 1) - 1});
  }
  std::optional<Value> cached(NodeId, const std::vector<Expr>&) { return std::nullopt; }

  Recomputation operations;

 private:
  Value counted(Value value, double more) {
    (value.loaded ? operations.of_loaded : operations.of_indices) += more;
    return value;
  }
  bool is_of_each(const Expr& e) const { return std::ranges::count(e.symbols(), innermost_) > 0; }

  std::string innermost_;
  int loaded_ = 0;
};

}  // namespace

bool may_be_cheaper_again(const LoopForms& forms, NodeId dot, const Target& target) {
  const Graph& graph = forms.graph();
  const bool by_units = target.kind == TargetKind::Gpu && target.matrix_speed > 0 &&
                        is_half(graph[graph[dot].operands[0]].type.dtype);
  // The dot must be this much larger than each factor, because its factors are read again.
  const double least = by_units ? 1 : 2;
  const auto elements = [&](NodeId node) {
    return static_cast<double>(graph[node].type.shape.numel().range().max);
  };
  if (!is_floating(graph[dot].type.dtype)) return false;
  for (NodeId factor : graph[dot].operands)
    if (elements(dot) < least * elements(factor)) return false;
  if (!by_units) return true;
  double terms = 1;
  for (const Expr& extent : forms.find(dot)->reduction)
    terms *= static_cast<double>(extent.range().max);
  const double computing = 2 * terms / matrix_rate(target);
  const double moving =
      2 * static_cast<double>(size_of(graph[dot].type.dtype)) / target.memory_bytes_per_second;
  return computing < moving;
}

Recomputation recomputation(const LoopForms& forms, const std::vector<bool>& inside, NodeId node) {
  const LoopForm* form = inside[node.index] ? forms.find(node) : nullptr;
  if (!form || form->reduces()) return {};
  std::vector<Expr> at;
  for (size_t axis = 0; axis < form->domain.size(); ++axis)
    at.push_back(domain_symbol(axis, form->domain[axis]));
  const bool has_neighbours = !at.empty() && at.back().kind() == Expr::Kind::Symbol;
  Counter counter(has_neighbours ? at.back().symbol_name() : "");
  Inliner<Counter>(forms, inside, counter).value(node, at);
  return counter.operations;
}

}  // namespace braze
