#include "braze/autodiff.h"

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
    if (!is_floating(argument.dtype()))
      fail(codes::kNotDifferentiable,
           fmt::format("grad: there is no derivative with respect to {}", argument.to_string()),
           {.location = where,
            .node = "grad",
            .fix = "choose another argument, as in grad<1>(f), or cast this one"});
    Graph& graph = builder->graph;
    // Never an input of the finished graph: `substitute` takes it out again.
    const std::string name = fmt::format("stand-in {}", graph.size());
    out.push_back(wrap(builder, build::input(graph, name, type_of(argument), where)));
  }
  return out;
}

std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& inputs, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(loss, "grad", where);
  if (loss.rank() != 0 || !is_floating(loss.dtype()))
    fail(codes::kNotDifferentiable,
         fmt::format("grad: the function gives {}, not a floating scalar", loss.to_string()),
         {.location = where, .node = "grad", .fix = "reduce it with sum or mean"});
  return wrap_all(builder, differentiate(builder->graph, node_of(loss), nodes_of(inputs)));
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
