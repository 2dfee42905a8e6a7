// prepare.h — separates what a graph computes from its weights alone. This part is computed once,
// where the weights are loaded, and not in every call.
//
// A weight is an input that has the same value in every call, such as a tensor of a model's file.
// On CPUs, second factors of products are also prepared, in panels: otherwise a product would copy
// them to panels in each call.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// A value that is made from weights once.
struct PreparedWeight {
  std::string name;             ///< of the input of Prepared::graph that takes it
  Graph graph;                  ///< its inputs stand for `sources`; one output
  std::vector<size_t> sources;  ///< inputs of the original

  /// Whether it is a weight of the original, unchanged.
  bool is_source() const;
};

struct Prepared {
  Graph graph;  ///< the inputs of the original that are no weights, then `weights`
  std::vector<PreparedWeight> weights;
};

/// Divides `graph`, whose inputs from `first_weight` on are weights, into two parts. A prepared
/// value takes no more memory than the weights from which it is made, unless it is small, or is the
/// last panel of a factor; a weight that is read in two forms is stored in both. The results have
/// the same bits as those of `graph`, except where sums have another order.
Prepared prepare(const Graph& graph, size_t first_weight, const Target& target);

}  // namespace braze
