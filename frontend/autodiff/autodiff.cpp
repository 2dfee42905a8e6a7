#include "braze/autodiff.h"

#include <set>

#include "frontend/autodiff/gradient.h"
#include "frontend/builder/builder.h"
#include "ir/support/text.h"

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
  return wrap_all(builder, differentiate(builder->graph, node_of(loss), nodes_of(inputs)));
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
  return wrap_all(
      builder, replace(builder->graph, nodes_of(values), nodes_of(stand_ins), nodes_of(arguments)));
}

}  // namespace braze::detail
