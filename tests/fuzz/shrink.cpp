#include "tests/fuzz/shrink.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/graph/movement.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"

namespace braze::fuzz {
namespace {

const HostTensor& given(const Case& c, NodeId input) {
  const auto& inputs = c.graph.inputs();
  const auto at = std::find(inputs.begin(), inputs.end(), input) - inputs.begin();
  return c.inputs[static_cast<size_t>(at)];
}

/// Copies what the outputs need; inputs that nothing needs go too. `replace` gives a node in the
/// place of `id`, or none to copy it.
using Replace = std::function<NodeId(Case& result, NodeId id, const std::vector<NodeId>& copies)>;

Case copy(const Case& original, const Replace& replace) {
  const Graph& graph = original.graph;
  const std::vector<bool> needed = needed_nodes(graph);
  Case result{Graph(graph.name()), {}};
  std::vector<NodeId> copies(graph.size());
  for (size_t i = 0; i < graph.size(); ++i) {
    if (!needed[i]) continue;
    const Node& node = graph[NodeId(i)];
    copies[i] = replace(result, NodeId(i), copies);
    if (copies[i]) continue;
    if (node.as<InputOp>()) result.inputs.push_back(given(original, NodeId(i)));
    std::vector<NodeId> operands;
    for (NodeId operand : node.operands) operands.push_back(copies[operand.index]);
    copies[i] = build::rebuild(result.graph, node, std::move(operands));
  }
  std::vector<GraphOutput> outputs = graph.outputs();
  for (GraphOutput& output : outputs) {
    output.node = copies[output.node.index];
    output.updates.reset();  // the inputs have new positions
  }
  result.graph.set_outputs(std::move(outputs));
  return result;
}

Case with_outputs(const Case& original, std::vector<GraphOutput> outputs) {
  Case result = original;
  result.graph.set_outputs(std::move(outputs));
  return copy(result, [](auto&&...) { return NodeId(); });
}

/// The value of one node.
HostTensor value_of(const Case& c, NodeId id) {
  Graph graph = c.graph;
  graph.set_outputs({{id, "value", {}}});
  return interpret(graph, c.inputs)[0];
}

/// `id` as an input that has its value, which cuts off what it was computed from.
Case cut(const Case& c, NodeId id) {
  const HostTensor value = value_of(c, id);
  return copy(c, [&](Case& result, NodeId at, auto&&) {
    if (at != id) return NodeId();
    result.inputs.push_back(value);
    const std::string name = "cut" + std::to_string(id.index);
    return build::input(result.graph, name, {value.dtype(), Shape::of(value.shape())});
  });
}

/// `id` replaced by its operand number `operand`.
Case skip(const Case& c, NodeId id, size_t operand) {
  const NodeId by = c.graph[id].operands[operand];
  return copy(c, [&](Case&, NodeId at, const std::vector<NodeId>& copies) {
    return at == id ? copies[by.index] : NodeId();
  });
}

// Extents.

Shape resize(const Shape& shape, const Expr& from, const Expr& to) {
  std::vector<Expr> dims;
  for (const Expr& extent : shape) dims.push_back(extent == from ? to : extent);
  return Shape(std::move(dims));
}

/// Which elements of a tensor stay along every axis that gets shorter.
enum class Keep { First, Last };

HostTensor crop(const HostTensor& x, const std::vector<int64_t>& shape, Keep keep) {
  HostTensor result(x.dtype(), shape);
  const std::vector<int64_t> strides = dense_strides(x.shape());
  const auto offsets = strided_offsets(shape, strides);
  int64_t begin = 0;
  for (size_t axis = 0; keep == Keep::Last && axis < shape.size(); ++axis)
    begin += (x.shape()[axis] - shape[axis]) * strides[axis];
  for (size_t i = 0; i < offsets.size(); ++i)
    result.set_bits(static_cast<int64_t>(i), x.get_bits(begin + offsets[i]));
  return result;
}

/// Every extent `from`, wherever it stands, made `to`. Throws where the graph does not allow it.
Case resize(const Case& c, int64_t from, int64_t to, Keep keep) {
  const auto cropped = [&](const HostTensor& x) {
    std::vector<int64_t> shape = x.shape();
    std::replace(shape.begin(), shape.end(), from, to);
    return crop(x, shape, keep);
  };
  return copy(c, [&](Case& result, NodeId id, const std::vector<NodeId>& copies) {
    Node node = c.graph[id];
    node.type.shape = resize(node.type.shape, from, to);
    std::vector<NodeId> operands;
    for (NodeId operand : node.operands) operands.push_back(copies[operand.index]);
    if (node.as<InputOp>()) result.inputs.push_back(cropped(given(c, id)));
    if (const ConstantOp* op = node.as<ConstantOp>())
      return build::constant(result.graph, cropped(*op->value));
    if (SliceOp* op = std::get_if<SliceOp>(&node.op))
      for (Expr& limit : op->limits)
        if (limit == Expr(from)) limit = to;
    return build::rebuild(result.graph, node, std::move(operands));
  });
}

std::set<int64_t> extents(const Graph& graph) {
  std::set<int64_t> found;
  for (size_t i = 0; i < graph.size(); ++i)
    for (const Expr& extent : graph[NodeId(i)].type.shape)
      if (const auto constant = extent.as_constant()) found.insert(*constant);
  return found;
}

/// Symbols replaced by the sizes at hand.
Case without_symbols(const Case& c) {
  const Sizes sizes = check_inputs(c.graph, c.inputs);
  const auto fixed = [&](std::vector<Expr>& list) {
    for (Expr& e : list) e = sizes(e);
  };
  return copy(c, [&](Case& result, NodeId id, const std::vector<NodeId>& copies) {
    Node node = c.graph[id];
    node.type.shape = Shape::of(sizes(node.type.shape));
    if (node.as<InputOp>()) result.inputs.push_back(given(c, id));
    if (SliceOp* op = std::get_if<SliceOp>(&node.op)) fixed(op->starts), fixed(op->limits);
    if (PadOp* op = std::get_if<PadOp>(&node.op)) fixed(op->low), fixed(op->high);
    if (WindowsOp* op = std::get_if<WindowsOp>(&node.op)) fixed(op->low);
    std::vector<NodeId> operands;
    for (NodeId operand : node.operands) operands.push_back(copies[operand.index]);
    return build::rebuild(result.graph, node, std::move(operands));
  });
}

// Numbers.

using Simplify = double (*)(double);
constexpr Simplify kSimplify[] = {
    [](double) { return 0.0; },
    [](double) { return 1.0; },
    [](double x) { return std::isfinite(x) ? std::round(x) : x; },
    [](double x) { return std::isfinite(x) ? std::round(x * 8) / 8 : x; },
};

/// Input `input` with its elements in [first, last) simplified.
Case simplified(const Case& c, size_t input, int64_t first, int64_t last, Simplify simplify) {
  Case result = c;
  HostTensor& x = result.inputs[input];
  for (int64_t i = first; i < last; ++i) x.set_double(i, simplify(x.get_double(i)));
  return result;
}

class Shrinker {
 public:
  Shrinker(Case failing, const std::function<bool(const Case&)>& fails)
      : best_(std::move(failing)), fails_(fails) {}

  Case run() {
    attempt([&] { return with_outputs(best_, best_.graph.outputs()); });
    attempt([&] { return without_symbols(best_); });
    while (drop_outputs() || drop_nodes() || shrink_extents()) {
    }
    simplify_numbers();
    return std::move(best_);
  }

 private:
  /// Takes the case that `make` gives if it still fails.
  template <class Make>
  bool attempt(Make&& make) {
    if (++attempts_ > kMaxAttempts) return false;
    try {
      Case candidate = make();
      if (!fails_(candidate)) return false;
      best_ = std::move(candidate);
      return true;
    } catch (const Error&) {
      return false;  // the graph does not allow it
    }
  }

  bool drop_outputs() {
    bool progress = false;
    for (size_t i = best_.graph.outputs().size(); i-- > 0 && best_.graph.outputs().size() > 1;) {
      auto outputs = best_.graph.outputs();
      outputs.erase(outputs.begin() + static_cast<int64_t>(i));
      progress |= attempt([&] { return with_outputs(best_, outputs); });
    }
    return progress;
  }

  bool drop_nodes() {
    bool progress = false;
    for (size_t i = best_.graph.size(); i-- > 0;) {
      if (i >= best_.graph.size()) continue;  // fewer are left than when we began
      const NodeId id(i);
      if (best_.graph[id].as<InputOp>()) continue;
      progress |= attempt_smaller([&] { return cut(best_, id); });
      if (i >= best_.graph.size()) continue;
      for (size_t k = 0; k < best_.graph[id].operands.size() && i < best_.graph.size(); ++k)
        if (attempt_smaller([&] { return skip(best_, id, k); })) {
          progress = true;
          break;
        }
    }
    for (size_t i = 0; i < best_.graph.outputs().size(); ++i) progress |= move_output_up(i);
    return progress;
  }

  template <class Make>
  bool attempt_smaller(Make&& make) {
    const size_t before = size(best_.graph);
    return attempt([&] {
      Case candidate = make();
      if (size(candidate.graph) >= before) fail(codes::kInternal, "not smaller");
      return candidate;
    });
  }

  /// Nodes count more than inputs, so that cutting counts as progress.
  static size_t size(const Graph& graph) { return 2 * graph.size() - graph.inputs().size(); }

  bool move_output_up(size_t i) {
    const auto outputs = best_.graph.outputs();
    for (NodeId operand : best_.graph[outputs[i].node].operands) {
      auto moved = outputs;
      moved[i].node = operand;
      if (attempt_smaller([&] { return with_outputs(best_, moved); })) return true;
    }
    return false;
  }

  bool shrink_extents() {
    bool progress = false;
    for (int64_t extent : extents(best_.graph))
      for (int64_t smaller : {int64_t{1}, int64_t{2}, extent / 2, extent - 1})
        if (smaller > 0 && smaller < extent && shrink_extent(extent, smaller)) {
          progress = true;
          break;
        }
    return progress;
  }

  bool shrink_extent(int64_t from, int64_t to) {
    return attempt([&] { return resize(best_, from, to, Keep::First); }) ||
           attempt([&] { return resize(best_, from, to, Keep::Last); });
  }

  void simplify_numbers() {
    for (size_t input = 0; input < best_.inputs.size(); ++input)
      for (Simplify simplify : kSimplify)
        simplify_range(input, 0, best_.inputs[input].numel(), simplify);
  }

  /// All of [first, last) at once, or else each half on its own.
  void simplify_range(size_t input, int64_t first, int64_t last, Simplify simplify) {
    if (first == last || attempt([&] { return simplified(best_, input, first, last, simplify); }))
      return;
    if (last - first == 1) return;
    const int64_t middle = first + (last - first) / 2;
    simplify_range(input, first, middle, simplify);
    simplify_range(input, middle, last, simplify);
  }

  static constexpr int kMaxAttempts = 20'000;
  Case best_;
  const std::function<bool(const Case&)>& fails_;
  int attempts_ = 0;
};

}  // namespace

Case shrink(Case failing, const std::function<bool(const Case&)>& fails) {
  return Shrinker(std::move(failing), fails).run();
}

std::string reproducer(const Case& failing) {
  const Case fixed = without_symbols(with_outputs(failing, failing.graph.outputs()));
  const Case constant = copy(fixed, [&](Case& result, NodeId id, auto&&) {
    if (!fixed.graph[id].as<InputOp>()) return NodeId();
    return build::constant(result.graph, given(fixed, id));
  });
  return to_text(constant.graph);
}

}  // namespace braze::fuzz
