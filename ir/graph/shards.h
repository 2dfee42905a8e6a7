// shards.h — a graph on all devices of a mesh: what varies between them, and what they do together.
//
// One graph runs on every device. Inputs say along which axes of the mesh each device has a value
// of its own; what follows for other nodes is found here. What collectives mean is said once, by a
// graph without them that does what all devices do: it can be interpreted, judged and compiled as
// any other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// Axes of a mesh, each once, by name.
using AxisSet = std::vector<MeshAxis>;

AxisSet united(const AxisSet& a, const AxisSet& b);
AxisSet without(const AxisSet& a, const AxisSet& b);
bool contains(const AxisSet& axes, std::string_view name);

/// The axes over which `node` varies if its operands vary over `operands`. Along all other axes its
/// value is the same on every device.
AxisSet varying_over(const Node& node, std::span<const AxisSet* const> operands);
/// The same for all nodes.
std::vector<AxisSet> varying_axes(const Graph& graph);

/// The same for a graph that grows.
class VaryingAxes {
 public:
  explicit VaryingAxes(const Graph& graph) : graph_(graph) {}
  AxisSet of(NodeId node);

 private:
  const Graph& graph_;
  std::vector<AxisSet> known_;  // of the first nodes
};

/// How many devices a mesh of these axes has.
int64_t device_count(std::span<const MeshAxis> mesh);
/// The place of a device along each axis. Devices are numbered row-major, the last axis fastest.
std::vector<int64_t> places_of(std::span<const MeshAxis> mesh, int64_t device);
/// The devices that differ from `device` in their place along `axis` only, itself included, in the
/// order of their places.
std::vector<int64_t> group_of(std::span<const MeshAxis> mesh, std::string_view axis,
                              int64_t device);

/// What all devices of a mesh do, as one graph without collectives. Its outputs are those of device
/// 0, then those of device 1 ...
struct AllShards {
  Graph graph;
  /// For every device, for every input of the original, its place among the inputs of `graph`:
  /// devices between which an input does not vary share one.
  std::vector<std::vector<uint32_t>> inputs;
};
/// `mesh` has all axes that the graph names, and may have others.
AllShards all_shards(const Graph& graph, std::span<const MeshAxis> mesh);
/// The inputs of `all` for those of every device.
std::vector<HostTensor> inputs_of(const AllShards& all,
                                  std::span<const std::vector<HostTensor>> devices);

/// The outputs on every device for the inputs on every device.
std::vector<std::vector<HostTensor>> interpret(const Graph& graph, std::span<const MeshAxis> mesh,
                                               std::span<const std::vector<HostTensor>> inputs);

}  // namespace braze
