#include "braze/autodiff.h"

#include <algorithm>
#include <set>

#include "frontend/autodiff/gradient.h"
#include "frontend/builder/builder.h"
#include "ir/support/text.h"
#include "ir/support/words.h"

namespace braze::codes {
inline constexpr Code kBadGradient{"bad-gradient", ErrorKind::InvalidArgument,
                                   "The gradient that was given for a custom call does not fit."};
}  // namespace braze::codes

namespace braze::detail {
namespace {

std::vector<NodeId> nodes_of(const std::vector<Tensor>& tensors) {
  std::vector<NodeId> out;
  for (const Tensor& tensor : tensors) out.push_back(node_of(tensor));
  return out;
}

std::vector<Tensor> wrap_all(const std::shared_ptr<Builder>& builder,
                             const std::vector<NodeId>& nodes) {
  std::vector<Tensor> out;
  for (const NodeId node : nodes) out.push_back(wrap(builder, node));
  return out;
}

/// The gradients of a custom call's operands, by the function that was given with a call like it.
std::vector<NodeId> custom_gradient(const std::shared_ptr<Builder>& builder, NodeId id,
                                    NodeId gradient) {
  const Node call = builder->graph[id];  // a copy, because the graph grows
  const auto& known = builder->custom_gradients;
  const auto found =
      std::ranges::find(known, *call.as<CustomCallOp>(), [](const auto& row) { return row.first; });
  if (found == known.end()) fail_no_gradient(call);
  const CustomGradient function = found->second;
  const std::vector<Tensor> parts =
      function(wrap_all(builder, call.operands), wrap(builder, id), wrap(builder, gradient));
  const auto refuse = [&](const std::string& why) {
    fail(codes::kBadGradient,
         fmt::format("the gradient of custom_call({}) {}", quote(call.as<CustomCallOp>()->target),
                     why),
         {.location = call.location, .node = call.as<CustomCallOp>()->target});
  };
  if (parts.size() != call.operands.size())
    refuse(fmt::format("gives {}, but the call has {}", count_text(parts.size(), "tensor"),
                       count_text(call.operands.size(), "operand")));
  std::vector<NodeId> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    NodeId& part = out.emplace_back();
    if (!parts[i].valid()) continue;
    if (parts[i].builder() != builder) refuse("is a Tensor of another function");
    part = node_of(parts[i]);
    const TensorType& wanted = builder->graph[call.operands[i]].type;
    if (builder->graph[part].type != wanted)
      refuse(fmt::format("is {} for operand {}, which is {}", parts[i].to_string(), i,
                         wanted.to_string()));
  }
  return out;
}

}  // namespace

std::vector<Tensor> stand_ins(const std::vector<Tensor>& arguments, Where call) {
  const SourceLocation where = place(call);
  std::vector<Tensor> out;
  for (const Tensor& argument : arguments) {
    const auto& builder = builder_of(argument, "grad", where);
    if (!is_arithmetic_float(argument.dtype()))
      fail(codes::kNotDifferentiable,
           fmt::format("grad: there is no derivative with respect to {}", argument.to_string()),
           {.location = where,
            .node = "grad",
            .fix = "choose another argument, as in grad<1>(f), or cast this one"});
    Graph& graph = builder->graph;
    // The finished graph does not have this input, because `substitute` replaces it.
    const std::string name = fmt::format("stand-in {}", graph.size());
    const Tensor stand_in = wrap(builder, build::input(graph, name, type_of(argument), where,
                                                       builder->varying.of(node_of(argument))));
    out.push_back(argument.is_number() ? as_number(stand_in) : stand_in);
  }
  return out;
}

std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& inputs, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(loss, "grad", where);
  if (loss.rank() != 0 || !is_arithmetic_float(loss.dtype()))
    fail(codes::kNotDifferentiable,
         fmt::format("grad: the function gives {}, not a floating scalar", loss.to_string()),
         {.location = where, .node = "grad", .fix = "reduce it with sum or mean"});
  const auto custom = [&](NodeId id, NodeId gradient) {
    return custom_gradient(builder, id, gradient);
  };
  return wrap_all(builder, differentiate(builder->graph, node_of(loss), nodes_of(inputs), custom));
}

size_t graph_size(Where call) { return current_builder(place(call))->graph.size(); }

std::vector<Tensor> recomputed(const std::vector<Tensor>& values, size_t begin, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = current_builder(where);
  Graph& graph = builder->graph;
  std::set<NodeId> inside, boundary;
  std::vector<NodeId> open;
  const auto reach = [&](NodeId id) {
    if (id.index < begin) {
      if (!graph[id].as<ConstantOp>()) boundary.insert(id);
    } else if (inside.insert(id).second) {
      open.push_back(id);
    }
  };
  for (const Tensor& value : values) {
    builder_of(value, "checkpoint", where);
    if (value.id() >= begin) reach(node_of(value));
  }
  while (!open.empty()) {
    const std::vector<NodeId> operands = graph[open.back()].operands;
    open.pop_back();
    for (const NodeId operand : operands) reach(operand);
  }
  if (boundary.empty()) return values;
  const std::vector<NodeId> ends(boundary.begin(), boundary.end());
  std::vector<Tensor> out = values;
  for (Tensor& value : out)
    if (value.id() >= begin)
      value =
          wrap(builder, build::barrier(graph, node_of(value), ends, {.recompute = true}, where));
  return out;
}

std::vector<Tensor> substitute(const std::vector<Tensor>& values,
                               const std::vector<Tensor>& stand_ins,
                               const std::vector<Tensor>& arguments) {
  if (values.empty()) return {};
  const auto& builder = values[0].builder();
  std::vector<NodeId> ends = nodes_of(values);
  // A call with side effects is made although no value may need it.
  for (size_t i = 0; i < builder->graph.size(); ++i)
    if (has_side_effects(builder->graph[NodeId(i)])) ends.emplace_back(i);
  std::vector<NodeId> replaced =
      replace(builder->graph, ends, nodes_of(stand_ins), nodes_of(arguments));
  replaced.resize(values.size());
  return wrap_all(builder, replaced);
}

}  // namespace braze::detail
