#include "frontend/models/prepared_weights.h"

#include <utility>

#include "frontend/builder/compiled.h"
#include "ir/support/progress.h"

namespace braze {

std::vector<Array> prepared_weights(const Prepared& prepared,
                                    const std::function<Array(size_t input)>& source,
                                    const Device& device, const CompileOptions& options) {
  std::vector<Array> out;
  Progress progress("preparing weights", "weight", prepared.weights.size());
  for (const PreparedWeight& weight : prepared.weights) {
    std::vector<Array> sources;
    for (const size_t input : weight.sources) sources.push_back(source(input));
    out.push_back(weight.is_source()
                      ? std::move(sources[0])
                      : compiled_executable(weight.graph, device, options).run(sources)[0]);
    progress.advance();
  }
  return out;
}

PreparedModel prepare_model(const Model& model, const Target& target) {
  const Graph& graph = model.graph();
  const std::map<std::string, Array> sources = model.weights();
  Prepared prepared = prepare(graph, model.inputs().size(), target);
  // Prepared weights have the same bits on every device.
  const std::vector<Array> weights = prepared_weights(
      prepared,
      [&](size_t input) { return sources.at(graph[graph.inputs()[input]].as<InputOp>()->name); },
      "cpu", {});
  PreparedModel out{std::move(prepared.graph), {}};
  for (size_t i = 0; i < weights.size(); ++i)
    out.weights.emplace(prepared.weights[i].name, weights[i]);
  return out;
}

}  // namespace braze
