// factors.cpp — finds the factors of a contraction.
#include <algorithm>

#include "compiler/fusion/inliner.h"
#include "compiler/tiling/families.h"

namespace braze {

namespace {

bool uses(const std::vector<Expr>& at, const SpaceAxis& axis) {
  return std::any_of(at.begin(), at.end(),
                     [&](const Expr& e) { return e.uses(axis.symbol.symbol_name()); });
}

bool is_computed(const TilingRequest& request, const ValueAt& value) {
  const auto& nodes = request.fusion.nodes;
  return is_half(request.forms.graph()[value.node].type.dtype) ||
         std::find(nodes.begin(), nodes.end(), value.node) != nodes.end();
}

// The Inliner's sink. The result of a value is the value itself if it is a factor, two factors if
// it is their product, and an empty list otherwise.
struct ProductSink {
  using Value = std::vector<ValueAt>;
  const std::function<bool(const ValueAt&)>& is_factor;

  Value load(NodeId node, const std::vector<Expr>& at, const Conditions& conditions) {
    return conditions.empty() ? cached(node, at).value_or(Value{}) : Value{};
  }
  Value reduced(NodeId, const std::vector<Expr>&, const Conditions&) { return {}; }
  Value index(const Expr&, DType) { return {}; }
  Value constant(DType, uint64_t) { return {}; }
  Value inside(const Conditions&) { return {}; }
  Value apply(ElementwiseOp op, std::span<const Value> arguments, DType result) {
    if (result != DType::F32) return {};
    if (op == ElementwiseOp::convert) return arguments[0];
    if (op != ElementwiseOp::mul || arguments[0].size() != 1 || arguments[1].size() != 1) return {};
    return {arguments[0][0], arguments[1][0]};
  }
  Expr as_index(const Value&, const Expr&) { return 0; }
  std::optional<Value> cached(NodeId node, const std::vector<Expr>& at) {
    return is_factor({node, at}) ? std::optional(Value{{node, at}}) : std::nullopt;
  }
};

bool is_same(const ValueAt& a, const ValueAt& b) { return a.node == b.node && a.at == b.at; }

}  // namespace

std::vector<ValueAt> product_of(const TilingRequest& request, const SpaceTask& task,
                                const std::function<bool(const ValueAt&)>& is_factor) {
  ProductSink sink{is_factor};
  const std::vector<bool> inside = membership(request.forms.graph(), request.fusion.nodes);
  Inliner<ProductSink> inliner(request.forms, inside, sink);
  const auto found = inliner.reduction_body(task.node, task.at, task.reduction);
  return found.size() == 2 ? found : std::vector<ValueAt>{};
}

bool sums_matrix_products(const TilingRequest& request, const Space& space,
                          const std::vector<Factor>& found) {
  if (found.size() != 2 || found[0].lanes == found[1].lanes) return false;
  const SpaceTask& task = space.passes.front().reduces.front();
  const LoopForm* form = request.forms.find(task.node);
  if (form->monoid != Monoid::Sum || form->accumulator != DType::F32) return false;
  const Graph& graph = request.forms.graph();
  for (const Factor& factor : found) {
    const DType dtype = graph[factor.value.node].type.dtype;
    if (!is_half(dtype) && !(dtype == DType::F32 && form->tf32)) return false;
  }
  const auto product = product_of(request, task, [&](const ValueAt& value) {
    return is_same(value, found[0].value) || is_same(value, found[1].value);
  });
  return !product.empty() && !is_same(product[0], product[1]);
}

std::vector<Factor> factors(const TilingRequest& request, const Space& space, const SpaceAxis& lane,
                            const SpaceAxis& row) {
  const Pass& pass = space.passes.front();
  const SpaceAxis& inner = pass.inner.back();
  std::vector<Factor> found;
  std::vector<SharedValue> kept;
  const auto is_new = [&](const ValueAt& value) {
    const bool by_lane = uses(value.at, lane), by_row = uses(value.at, row);
    return by_lane != by_row && uses(value.at, inner) &&
           std::none_of(found.begin(), found.end(),
                        [&](const Factor& f) { return is_same(f.value, value); });
  };
  // A value that was found hides the values from which it is made, so each search begins again.
  for (const SpaceTask& task : pass.reduces) {
    for (bool searching = true; searching;) {
      const auto values = visited_values(request.forms, request.fusion, task, kept);
      const auto next = std::find_if(values.begin(), values.end(), is_new);
      searching = next != values.end();
      if (!searching) break;
      found.push_back({*next, uses(next->at, lane), is_computed(request, *next)});
      kept.push_back({next->node, next->at, 0});
    }
  }
  return found;
}

}  // namespace braze
