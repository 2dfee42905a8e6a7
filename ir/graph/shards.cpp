#include "ir/graph/shards.h"

#include <algorithm>

#include "ir/graph/build.h"
#include "ir/graph/interpret.h"
#include "ir/graph/rewrite.h"
#include "ir/support/text.h"

namespace braze {

namespace {

bool by_name(const MeshAxis& a, const MeshAxis& b) { return a.name < b.name; }

AxisSet sorted(AxisSet axes) {
  std::ranges::sort(axes, by_name);
  return axes;
}

class ShardBuilder {
 public:
  ShardBuilder(const Graph& graph, std::span<const MeshAxis> mesh)
      : graph_(graph),
        mesh_(mesh),
        devices_(static_cast<size_t>(device_count(mesh))),
        values_(devices_, std::vector<NodeId>(graph.size())) {
    for (const MeshAxis& axis : graph.mesh_axes())
      BRAZE_CHECK(std::ranges::find(mesh, axis) != mesh.end(),
                  "the mesh does not have the axes of the graph");
    all_.graph = Graph(graph.name());
  }

  AllShards run() {
    add_inputs();
    const std::vector<bool> needed = needed_nodes(graph_);
    for (size_t i = 0; i < graph_.size(); ++i) {
      const Node& node = graph_[NodeId(i)];
      if (!needed[i] || node.as<InputOp>()) continue;
      for (size_t device = 0; device < devices_; ++device) values_[device][i] = value(node, device);
    }
    std::vector<GraphOutput> outputs;
    for (size_t device = 0; device < devices_; ++device)
      for (const GraphOutput& output : graph_.outputs())
        outputs.push_back({values_[device][output.node.index],
                           fmt::format("{} on device {}", output.name, device),
                           {}});
    all_.graph.set_outputs(std::move(outputs));
    return std::move(all_);
  }

 private:
  void add_inputs() {
    all_.inputs.resize(devices_);
    for (const NodeId input : graph_.inputs()) {
      const Node& node = graph_[input];
      for (size_t device = 0; device < devices_; ++device) {
        const std::string name = input_name(*node.as<InputOp>(), device);
        std::optional<NodeId> known = all_.graph.find_input(name);
        if (!known) known = build::input(all_.graph, name, node.type, node.location);
        values_[device][input.index] = *known;
        const auto& inputs = all_.graph.inputs();
        all_.inputs[device].push_back(
            static_cast<uint32_t>(std::ranges::find(inputs, *known) - inputs.begin()));
      }
    }
  }

  std::string input_name(const InputOp& input, size_t device) const {
    const std::vector<int64_t> places = places_of(mesh_, static_cast<int64_t>(device));
    std::string name = input.name;
    for (size_t k = 0; k < mesh_.size(); ++k)
      if (contains(input.varying, mesh_[k].name))
        name += fmt::format(" {} {}", mesh_[k].name, places[k]);
    return name;
  }

  NodeId value(const Node& node, size_t device) {
    if (const auto* collective = node.as<CollectiveOp>())
      return as_declared(together(node, *collective, device), node);
    if (const auto* index = node.as<AxisIndexOp>())
      return build::scalar(all_.graph, DType::I64, static_cast<double>(place(index->axis, device)),
                           node.location);
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(values_[device][operand.index]);
    return build::rebuild(all_.graph, node, std::move(operands));
  }

  int64_t place(const MeshAxis& axis, size_t device) const {
    const auto k = std::ranges::find(mesh_, axis) - mesh_.begin();
    return places_of(mesh_, static_cast<int64_t>(device))[static_cast<size_t>(k)];
  }

  /// `x` with the type that `node` declares. If a symbol has only one value, an extent of blocks is
  /// a number, and so are extents that are computed from it, where the node has the symbol.
  NodeId as_declared(NodeId x, const Node& node) {
    const Shape& shape = node.type.shape;
    if (all_.graph[x].type == node.type) return x;
    return build::slice(all_.graph, x, std::vector<Expr>(shape.rank(), Expr(0)), shape.dims(),
                        std::vector<int64_t>(shape.rank(), 1), node.location);
  }

  NodeId together(const Node& node, const CollectiveOp& op, size_t device) {
    std::vector<NodeId> x;
    for (const int64_t member : group_of(mesh_, op.axis.name, static_cast<int64_t>(device)))
      x.push_back(values_[static_cast<size_t>(member)][node.operands[0].index]);
    const int64_t place = this->place(op.axis, device);
    const auto blocks = [&] {
      std::vector<NodeId> out;
      for (const NodeId operand : x) out.push_back(block(operand, op.axis.size, place, node));
      return out;
    };
    switch (op.kind) {
      case CollectiveKind::AllReduce:
        return combined(op.monoid, x, node);
      case CollectiveKind::AllGather:
        return build::concat(all_.graph, x, 0, node.location);
      case CollectiveKind::ReduceScatter:
        return combined(op.monoid, blocks(), node);
      case CollectiveKind::BroadcastOver:
        return x[static_cast<size_t>(op.offset)];
      case CollectiveKind::Permute:
        return x[static_cast<size_t>((place - op.offset + op.axis.size) % op.axis.size)];
      case CollectiveKind::AllToAll:
        return build::concat(all_.graph, blocks(), 0, node.location);
    }
    return {};
  }

  NodeId combined(Monoid monoid, const std::vector<NodeId>& x, const Node& node) {
    std::vector<NodeId> rows;
    for (const NodeId operand : x) {
      std::vector<Expr> dims = all_.graph[operand].type.shape.dims();
      dims.insert(dims.begin(), Expr(1));
      rows.push_back(build::reshape(all_.graph, operand, Shape(std::move(dims)), node.location));
    }
    all_.combinations.push_back(build::reduce(
        all_.graph, monoid, build::concat(all_.graph, rows, 0, node.location), {0}, node.location));
    return all_.combinations.back();
  }

  NodeId block(NodeId x, int64_t count, int64_t i, const Node& node) {
    const Shape shape = all_.graph[x].type.shape;
    std::vector<Expr> starts(shape.rank(), Expr(0)), limits = shape.dims();
    const Expr extent = floordiv(shape[0], count);
    starts[0] = extent * Expr(i);
    limits[0] = extent * Expr(i + 1);
    return build::slice(all_.graph, x, std::move(starts), std::move(limits),
                        std::vector<int64_t>(shape.rank(), 1), node.location);
  }

  const Graph& graph_;
  const std::span<const MeshAxis> mesh_;
  const size_t devices_;
  std::vector<std::vector<NodeId>> values_;  // for each device, for each node
  AllShards all_;
};

}  // namespace

AxisSet united(const AxisSet& a, const AxisSet& b) {
  AxisSet out;
  std::ranges::set_union(a, b, std::back_inserter(out), by_name);
  return out;
}

AxisSet without(const AxisSet& a, const AxisSet& b) {
  AxisSet out;
  std::ranges::set_difference(a, b, std::back_inserter(out), by_name);
  return out;
}

bool contains(const AxisSet& axes, std::string_view name) {
  return std::ranges::any_of(axes, [&](const MeshAxis& axis) { return axis.name == name; });
}

AxisSet varying_over(const Node& node, std::span<const AxisSet* const> operands) {
  if (const auto* input = node.as<InputOp>()) return sorted(input->varying);
  if (const auto* index = node.as<AxisIndexOp>()) return {index->axis};
  // A barrier does not read its other operands.
  if (node.as<BarrierOp>()) return *operands[0];
  AxisSet all;
  for (const AxisSet* operand : operands)
    if (!operand->empty()) all = united(all, *operand);
  if (const auto* op = node.as<CollectiveOp>())
    return makes_equal(op->kind) ? without(all, {op->axis}) : united(all, {op->axis});
  return all;
}

AxisSet VaryingAxes::of(NodeId node) {
  while (known_.size() <= node.index) {
    const Node& next = graph_[NodeId(known_.size())];
    std::vector<const AxisSet*> operands;
    for (const NodeId operand : next.operands) operands.push_back(&known_[operand.index]);
    known_.push_back(varying_over(next, operands));
  }
  return known_[node.index];
}

std::vector<AxisSet> varying_axes(const Graph& graph) {
  VaryingAxes varying(graph);
  std::vector<AxisSet> all;
  for (size_t i = 0; i < graph.size(); ++i) all.push_back(varying.of(NodeId(i)));
  return all;
}

int64_t device_count(std::span<const MeshAxis> mesh) {
  int64_t count = 1;
  for (const MeshAxis& axis : mesh) count *= axis.size;
  return count;
}

std::vector<int64_t> places_of(std::span<const MeshAxis> mesh, int64_t device) {
  std::vector<int64_t> places(mesh.size());
  for (size_t k = mesh.size(); k-- > 0; device /= mesh[k].size) places[k] = device % mesh[k].size;
  return places;
}

std::vector<int64_t> group_of(std::span<const MeshAxis> mesh, std::string_view axis,
                              int64_t device) {
  int64_t stride = 1;
  for (size_t k = mesh.size(); k-- > 0; stride *= mesh[k].size) {
    if (mesh[k].name != axis) continue;
    const int64_t first = device - places_of(mesh, device)[k] * stride;
    std::vector<int64_t> group;
    for (int64_t i = 0; i < mesh[k].size; ++i) group.push_back(first + i * stride);
    return group;
  }
  return {device};
}

AllShards all_shards(const Graph& graph, std::span<const MeshAxis> mesh) {
  return ShardBuilder(graph, mesh).run();
}

std::vector<HostTensor> inputs_of(const AllShards& all,
                                  std::span<const std::vector<HostTensor>> devices) {
  std::vector<HostTensor> inputs(all.graph.inputs().size());
  for (size_t device = 0; device < devices.size(); ++device)
    for (size_t i = 0; i < devices[device].size(); ++i)
      inputs[all.inputs[device][i]] = devices[device][i];
  return inputs;
}

std::vector<std::vector<HostTensor>> interpret(const Graph& graph, std::span<const MeshAxis> mesh,
                                               std::span<const std::vector<HostTensor>> inputs) {
  const AllShards all = all_shards(graph, mesh);
  std::vector<HostTensor> values = interpret(all.graph, inputs_of(all, inputs));
  std::vector<std::vector<HostTensor>> outputs(inputs.size());
  size_t next = 0;
  for (std::vector<HostTensor>& device : outputs)
    for (size_t o = 0; o < graph.outputs().size(); ++o) device.push_back(std::move(values[next++]));
  return outputs;
}

}  // namespace braze
