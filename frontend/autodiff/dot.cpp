// dot.cpp — gradients of contractions. Each is a contraction too.
#include <algorithm>
#include <utility>

#include "frontend/autodiff/backward_p.h"
#include "ir/graph/build.h"

namespace braze::autodiff {
namespace {

Axes64 joined(Axes64 first, const Axes64& second, const Axes64& third) {
  first.insert(first.end(), second.begin(), second.end());
  first.insert(first.end(), third.begin(), third.end());
  return first;
}

Axes64 sorted(Axes64 axes) {
  std::sort(axes.begin(), axes.end());
  return axes;
}

/// The gradient of operand `side`, whose axes are `batch`, `free` and `contract`. The other
/// operand's axes are given in the same way. Its free axes begin at `other_at` in the gradient.
NodeId dot_gradient(Backward& b, size_t side, const Axes64& batch, const Axes64& free,
                    const Axes64& contract, const Axes64& other_batch, const Axes64& other_free,
                    const Axes64& other_contract, size_t other_at, bool tf32) {
  const TensorType x = b.operand_type(side);
  DotOp back;
  back.tf32 = tf32;
  for (size_t i = 0; i < batch.size(); ++i) back.batch_left.push_back(static_cast<int64_t>(i));
  back.batch_right = other_batch;
  for (size_t i = 0; i < other_free.size(); ++i)
    back.contract_left.push_back(static_cast<int64_t>(other_at + i));
  back.contract_right = other_free;
  NodeId left = b.convert(b.gradient, x.dtype), right = b.node.operands[1 - side];
  // The product's axes are the batch, this side's free axes, and the other's contracted axes in
  // the other's order. If the factors are swapped, the last two groups are swapped too.
  Axes64 contracted;
  for (const int64_t axis : sorted(other_contract)) {
    const auto pair = std::find(other_contract.begin(), other_contract.end(), axis);
    contracted.push_back(contract[static_cast<size_t>(pair - other_contract.begin())]);
  }
  const Axes64 swapped = joined(batch, contracted, free), plain = joined(batch, free, contracted);
  const bool swaps = std::is_sorted(swapped.begin(), swapped.end());
  if (swaps) {
    std::swap(left, right);
    std::swap(back.batch_left, back.batch_right);
    std::swap(back.contract_left, back.contract_right);
  }
  const NodeId product = build::dot(b.graph, left, right, back, std::nullopt, b.where());
  const Axes64& holds = swaps ? swapped : plain;
  if (std::is_sorted(holds.begin(), holds.end())) return product;
  Axes64 permutation(holds.size());
  for (size_t i = 0; i < holds.size(); ++i) permutation[at(holds[i])] = static_cast<int64_t>(i);
  return build::transpose(b.graph, product, permutation, b.where());
}

}  // namespace

void backward(Backward& b, const DotOp& op) {
  // The gradient has the result's axes: batch, left free, right free. It is contracted with one
  // operand along the free axes of that operand. Then the product's axes are put into the order
  // of the other operand. If swapping the factors is enough for that, no transpose is needed.
  const size_t batch = op.batch_left.size();
  const Axes64 free_left =
      other_axes(b.operand_type(0).shape.rank(), op.batch_left, op.contract_left);
  const Axes64 free_right =
      other_axes(b.operand_type(1).shape.rank(), op.batch_right, op.contract_right);
  if (b.wants(0))
    b.out[0] = dot_gradient(b, 0, op.batch_left, free_left, op.contract_left, op.batch_right,
                            free_right, op.contract_right, batch + free_left.size(), op.tf32);
  if (b.wants(1))
    b.out[1] = dot_gradient(b, 1, op.batch_right, free_right, op.contract_right, op.batch_left,
                            free_left, op.contract_left, batch, op.tf32);
}

}  // namespace braze::autodiff
