// imported.h — what every importer makes from a file: a graph, and weights for its last inputs.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// A graph whose inputs are first those of the model, and then the weights.
struct Imported {
  Graph graph;
  std::vector<std::shared_ptr<const HostTensor>> weights;  ///< the values of the last inputs
};

/// For each input of a graph under construction that is a weight, its value.
using BoundWeights = std::map<NodeId, std::shared_ptr<const HostTensor>>;

/// The part of a graph under construction that is needed to compute `outputs`. It has no nodes
/// whose value was known at import, and no weights that nothing reads. All `inputs` stay, in this
/// order.
Imported finish_import(Graph& source, const std::vector<NodeId>& inputs,
                       const BoundWeights& weights, std::vector<GraphOutput> outputs);

}  // namespace braze
