#include "braze/custom_call.h"

#include "frontend/builder/builder.h"

namespace braze {

Tensor custom_call(std::string_view name, const std::vector<Tensor>& operands, DType dtype,
                   const Dims& shape, CustomCallOptions options, Where call) {
  const SourceLocation where = detail::place(call);
  std::vector<const Tensor*> tensors;
  for (const Tensor& operand : operands) tensors.push_back(&operand);
  const auto& builder = tensors.empty() ? detail::current_builder(where)
                                        : detail::builder_of(tensors, "custom_call", where);
  std::vector<NodeId> nodes;
  for (const Tensor& operand : operands) nodes.push_back(detail::node_of(operand));
  CustomCallOp op{std::string(name), std::move(options.attributes), options.side_effects};
  if (options.gradient) builder->custom_gradients.emplace_back(op, std::move(options.gradient));
  return detail::wrap(builder, build::custom_call(builder->graph, std::move(op), std::move(nodes),
                                                  {dtype, to_shape(shape)}, where));
}

}  // namespace braze
