// movement.cpp — operations that move elements, and operations without operands.
#include <algorithm>
#include <numeric>

#include "frontend/models/stablehlo/node.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

Tensor counting(Node& n) {
  const TensorType& type = n.result();
  return arange(type.dtype, to_dims(type.shape), n.integer("iota_dimension"));
}

// Axis i of the operand becomes axis dims[i] of the result. The result's other axes are new.
Tensor broadcast_of(Node& n) {
  n.ignore("known_expanding_dimensions");
  n.ignore("known_nonexpanding_dimensions");
  const std::vector<int64_t> dims = n.integers("broadcast_dimensions");
  const Dims shape = to_dims(n.result().shape);
  Tensor x = n[0];
  if (dims.size() != x.rank()) n.refuse("it names other axes than the operand has");
  std::vector<int64_t> order(dims.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::sort(order, {}, [&](int64_t i) { return dims[static_cast<size_t>(i)]; });
  if (!std::ranges::is_sorted(dims)) x = permute(x, order);
  Dims aligned(shape.size(), Dim(1));
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t axis = dims[static_cast<size_t>(order[i])];
    if (axis < 0 || axis >= static_cast<int64_t>(shape.size()) ||
        (i > 0 && axis == dims[static_cast<size_t>(order[i - 1])]))
      n.refuse("it names an axis that the result has not, or one twice");
    aligned[static_cast<size_t>(axis)] = x.dim(static_cast<int64_t>(i));
  }
  return broadcast_to(reshape(x, aligned), shape);
}

Tensor reshaped(Node& n) { return reshape(n[0], to_dims(n.result().shape)); }
Tensor transposed(Node& n) { return permute(n[0], n.integers("permutation")); }

Tensor sliced(Node& n) {
  return slice(n[0], to_extents(n.integers("start_indices")),
               to_extents(n.integers("limit_indices")),
               n.integers("strides", std::vector<int64_t>(n[0].rank(), 1)));
}

// Negative padding removes elements.
Tensor padded(Node& n) {
  std::vector<int64_t> low = n.integers("edge_padding_low"), high = n.integers("edge_padding_high");
  const std::vector<int64_t> interior = n.integers("interior_padding");
  const size_t rank = n[0].rank();
  if (low.size() != rank || high.size() != rank || interior.size() != rank)
    n.refuse("its padding is of another rank");
  const auto positive = [](const std::vector<int64_t>& list) {
    Dims out;
    for (const int64_t one : list) out.emplace_back(std::max<int64_t>(one, 0));
    return out;
  };
  const Tensor wide = pad(n[0], positive(low), positive(high), n[1], interior);
  Dims starts, limits;
  for (size_t i = 0; i < rank; ++i) {
    starts.emplace_back(std::max<int64_t>(-low[i], 0));
    limits.emplace_back(extent(wide, i) - std::max<int64_t>(-high[i], 0));
  }
  return slice(wide, starts, limits);
}

Tensor joined(Node& n) { return concat(n.operands(0, n.count()), n.integer("dimension")); }

Tensor reversed(Node& n) {
  const std::vector<int64_t> axes = n.integers("dimensions");
  if (axes.empty()) return n[0];
  const auto& builder = n[0].builder();
  std::vector<int64_t> sorted = axes;
  std::ranges::sort(sorted);
  return detail::wrap(builder,
                      build::reverse(builder->graph, detail::node_of(n[0]), std::move(sorted)));
}

// The results are the operands. Our graphs need no such ordering.
Tensors all_operands(Node& n) { return n.operands(0, n.count()); }

}  // namespace

const Rows& movement_rows() {
  static const Rows kRows = {
      {"stablehlo.broadcast_in_dim", broadcast_of},
      {"stablehlo.concatenate", joined},
      {"stablehlo.iota", counting},
      {"stablehlo.optimization_barrier", all_operands},
      {"stablehlo.pad", padded},
      {"stablehlo.reshape", reshaped},
      {"stablehlo.reverse", reversed},
      {"stablehlo.slice", sliced},
      {"stablehlo.transpose", transposed},
  };
  return kRows;
}

}  // namespace braze::stablehlo
