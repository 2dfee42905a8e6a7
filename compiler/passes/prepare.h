// prepare.h — what a graph computes from its weights alone, so that it is computed once, where the
// weights are loaded, and not in every call.
//
// A weight is an input that has the same value in every call: the tensors that a model's file
// holds. Besides values that depend on weights alone, CPUs gain from factors in panels: a product
// reads a weight as it would copy it before each call otherwise.
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

/// `graph`, whose inputs from `first_weight` on are weights, in two parts. What is prepared takes
/// no more memory than the weights it is made from, up to the last panel of a factor, unless it is
/// small; a weight that is read in two forms is there in both. The results have the same bits as
/// those of `graph`, up to the order of sums.
Prepared prepare(const Graph& graph, size_t first_weight, const Target& target);

}  // namespace braze
