// prepared_weights.h — the weights of a model in the form that its programs take
// (compiler/passes/prepare.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "braze/array.h"
#include "braze/model.h"
#include "compiler/passes/prepare.h"

namespace braze {

/// The values of `prepared.weights`, computed on `device`. `source` gives the inputs of the graph
/// that was prepared.
std::vector<Array> prepared_weights(const Prepared& prepared,
                                    const std::function<Array(size_t input)>& source,
                                    const Device& device, const CompileOptions& options);

/// A model as it is compiled for a target. Behind its inputs, its graph takes these weights.
struct PreparedModel {
  Graph graph;
  std::map<std::string, Array> weights;  ///< by name, on the host
};
PreparedModel prepare_model(const Model& model, const Target& target);

}  // namespace braze
