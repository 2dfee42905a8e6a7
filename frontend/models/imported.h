// imported.h — what every importer makes of a file: a graph, and the weights behind its inputs.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// A graph whose inputs are those of the model, then the weights.
struct Imported {
  Graph graph;
  std::vector<std::shared_ptr<const HostTensor>> weights;  ///< of the last inputs
};

/// Weights of a graph under construction, by their inputs.
using BoundWeights = std::map<NodeId, std::shared_ptr<const HostTensor>>;

/// The part of a graph under construction that `outputs` need, without what was known at import and
/// without weights that nothing reads. All `inputs` stay, in this order.
Imported finish_import(Graph& source, const std::vector<NodeId>& inputs,
                       const BoundWeights& weights, std::vector<GraphOutput> outputs);

}  // namespace braze
