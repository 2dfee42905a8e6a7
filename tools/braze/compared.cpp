#include "tools/braze/compared.h"

#include <map>
#include <utility>

#include "compiler/passes/prepare.h"
#include "ir/graph/interpret.h"
#include "tools/braze/source.h"

namespace braze::tool {

Compared::Compared(const std::string& path, const InputFlags& inputs, const ModelFlags& model) {
  if (is_model(path)) {
    read_model(path, inputs, model);
    return;
  }
  model.refuse_for_others();
  graph_ = read_graph(path, "compare");
  inputs_ = make_inputs(signature(graph_.inputs().size()), inputs).values;
}

void Compared::read_model(const std::string& path, const InputFlags& inputs, ModelFlags flags) {
  is_model_ = true;
  flags.symbols = inputs.symbols;
  const Model model = flags.load(path);
  graph_ = model.graph();
  const size_t count = model.inputs().size();
  const std::map<std::string, Array> arrays = model.weights();
  std::vector<const Node*> nodes;
  for (size_t i = count; i < graph_.inputs().size(); ++i) {
    nodes.push_back(&graph_[graph_.inputs()[i]]);
    weights_.push_back(arrays.at(nodes.back()->as<InputOp>()->name).to_host());
  }
  std::vector<GivenShape> shapes;
  for (size_t i = 0; i < nodes.size(); ++i)
    shapes.push_back({nodes[i]->as<InputOp>()->name, &nodes[i]->type.shape, weights_[i].shape()});
  const Program caller = signature(count);
  InputFlags given = inputs;
  given.of_model = true;
  given.symbols = sizes_left_open(caller, inputs.symbols);
  inputs_ = make_inputs(caller, given, shapes).values;
}

std::vector<Subject> Compared::subjects(const Target& target) const {
  if (!is_model_) return {{graph_, inputs_}};
  Prepared prepared = prepare(graph_, inputs_.size(), target);
  std::vector<Subject> out;
  std::vector<HostTensor> values = inputs_;
  for (PreparedWeight& weight : prepared.weights) {
    std::vector<HostTensor> sources;
    for (const size_t input : weight.sources) sources.push_back(weights_[input - inputs_.size()]);
    if (weight.is_source()) {
      values.push_back(std::move(sources[0]));
      continue;
    }
    values.push_back(interpret(weight.graph, sources)[0]);
    out.push_back({std::move(weight.graph), std::move(sources)});
  }
  out.push_back({std::move(prepared.graph), std::move(values)});
  return out;
}

// What a caller sees: the first `count` inputs.
Program Compared::signature(size_t count) const {
  Program program;
  program.name = graph_.name();
  program.symbols = graph_.symbols();
  for (size_t i = 0; i < count; ++i) {
    const Node& node = graph_[graph_.inputs()[i]];
    program.inputs.push_back({node.as<InputOp>()->name, node.type});
  }
  return program;
}

}  // namespace braze::tool
