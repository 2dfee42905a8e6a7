#include "compiler/planning/single_launches.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "ir/graph/build.h"

namespace braze {

namespace {

class Separation {
 public:
  Separation(const LoopForms& whole, const Leeways& leeways,
             const std::vector<CompiledFusion>& fusions, const Updates& updates)
      : whole_(whole), leeways_(leeways), fusions_(fusions), updates_(updates) {}

  SingleLaunch run(const std::vector<size_t>& members, const Target& target, Precision precision) {
    out_.name = fusions_[members.front()].kernel.name;
    out_.graph = Graph(out_.name);
    for (const size_t k : members) add_member(k);
    add_sizes();
    std::vector<size_t> all(copies_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    copied_updates_.in_place = std::move(in_place_);
    out_.graph.set_outputs(std::move(outputs_));
    out_.program = plan(LoopForms(out_.graph), copies_, {all}, copied_updates_, target);
    out_.program.precision = precision;
    out_.leeways.relaxed.resize(out_.graph.size());
    out_.leeways.coarse.resize(out_.graph.size());
    out_.leeways.powers.resize(out_.graph.size());
    return std::move(out_);
  }

 private:
  using Places = std::map<NodeId, NodeId>;  // nodes of the whole graph -> nodes of this one

  const Graph& graph() const { return whole_.graph(); }

  std::string unused_name(std::string name) const {
    while (out_.graph.find_input(name)) name += "_";
    return name;
  }

  // A value that exists before the launch.
  NodeId outside(NodeId node) {
    const auto found = read_.find(node);
    if (found != read_.end()) return found->second;
    const Node& original = graph()[node];
    NodeId place;
    if (original.as<ConstantOp>()) {
      place = out_.graph.add(original);
    } else {
      const std::string name = unused_name(whole_.printer().value(node).substr(1));
      place = build::input(out_.graph, name, original.type, original.location);
      out_.values.push_back(node);
    }
    return read_[node] = place;
  }

  void add_member(size_t k) {
    const CompiledFusion& original = fusions_[k];
    // A cheap value may be computed by one member, and read from memory by another.
    Places places;
    const auto place_of = [&](NodeId node) {
      const auto found = places.find(node);
      return found == places.end() ? outside(node) : found->second;
    };
    CompiledFusion copy = original;
    copy.fusion = {};
    for (const NodeId node : original.fusion.inputs)
      copy.fusion.inputs.push_back(places[node] = outside(node));
    for (const NodeId node : original.fusion.nodes) {
      const NodeId place = places[node] = add_node(node, place_of);
      copy.fusion.nodes.push_back(place);
    }
    std::map<NodeId, NodeId> updated;  // outputs -> the input whose memory they take over
    std::map<NodeId, NodeId> aliases;
    for (const auto& [input, output] : updates_.aliases[k]) {
      updated.emplace(output, input);
      aliases.emplace(place_of(input), place_of(output));
    }
    copied_updates_.aliases.push_back(std::move(aliases));
    for (const NodeId node : original.fusion.outputs) {
      copy.fusion.outputs.push_back(place_of(node));
      GraphOutput output{place_of(node), whole_.printer().value(node).substr(1), std::nullopt};
      if (const auto input = updated.find(node); input != updated.end()) {
        const std::vector<NodeId>& inputs = out_.graph.inputs();
        output.updates = static_cast<uint32_t>(std::ranges::find(inputs, place_of(input->second)) -
                                               inputs.begin());
        in_place_.insert(static_cast<uint32_t>(outputs_.size()));
      }
      outputs_.push_back(std::move(output));
    }
    for (NodeId& node : copy.parameters) node = place_of(node);
    for (NodeId& node : copy.tensors) node = place_of(node);
    copies_.push_back(std::move(copy));
  }

  template <class PlaceOf>
  NodeId add_node(NodeId id, const PlaceOf& place_of) {
    Node node = graph()[id];
    for (NodeId& operand : node.operands) operand = place_of(operand);
    const NodeId place = out_.graph.add(std::move(node));
    out_.nodes += graph()[id].as<ConstantOp>() ? 0 : 1;
    Leeways& to = out_.leeways;
    to.relaxed.resize(out_.graph.size());
    to.coarse.resize(out_.graph.size());
    to.powers.resize(out_.graph.size());
    to.relaxed[place.index] = leeways_.relaxed[id.index];
    to.coarse[place.index] = leeways_.coarse[id.index];
    to.powers[place.index] = leeways_.powers[id.index];
    return place;
  }

  // Inputs that determine the sizes, also those that are in the shape of no value that is read.
  void add_sizes() {
    for (const Expr& symbol : whole_.symbols())
      build::input(out_.graph, unused_name("size_" + symbol.symbol_name()),
                   {DType::Bool, Shape({symbol, 0})});
  }

  const LoopForms& whole_;
  const Leeways& leeways_;
  const std::vector<CompiledFusion>& fusions_;
  const Updates& updates_;
  SingleLaunch out_;
  Places read_;
  std::vector<GraphOutput> outputs_;
  std::vector<CompiledFusion> copies_;
  Updates copied_updates_;
  std::set<uint32_t> in_place_;
};

}  // namespace

SingleLaunches single_launches(const Graph& graph, const std::vector<CompiledFusion>& fusions,
                               const std::vector<std::vector<size_t>>& launches,
                               const Updates& updates, const Target& target, Precision precision) {
  SingleLaunches out{graph, {}};
  const LoopForms whole(out.graph);
  const Leeways all = leeways(graph, precision);
  for (const std::vector<size_t>& members : launches) {
    if (!fusions[members.front()].code) continue;  // a collective
    SingleLaunch launch = Separation(whole, all, fusions, updates).run(members, target, precision);
    launch.members = launch.program.launches.front().members;
    out.launches.push_back(std::move(launch));
  }
  return out;
}

}  // namespace braze
