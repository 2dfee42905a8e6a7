// shards.h — a graph that runs on all devices of a mesh: which values vary between the devices, and
// what the devices compute together.
//
// One graph runs on every device. Inputs say along which axes of the mesh each device has its own
// value; the functions here find out the same for all other nodes. The meaning of collectives is
// defined once, by a graph without them that does the work of all devices. This graph can be
// interpreted, judged and compiled like any other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// Axes of a mesh, each once, ordered by name.
using AxisSet = std::vector<MeshAxis>;

AxisSet united(const AxisSet& a, const AxisSet& b);
AxisSet without(const AxisSet& a, const AxisSet& b);
bool contains(const AxisSet& axes, std::string_view name);

/// The axes over which `node` varies if its operands vary over `operands`. Along all other axes its
/// value is the same on every device.
AxisSet varying_over(const Node& node, std::span<const AxisSet* const> operands);
/// The axes over which each node of a graph varies.
std::vector<AxisSet> varying_axes(const Graph& graph);

/// The axes over which the nodes vary, for a graph that grows.
class VaryingAxes {
 public:
  explicit VaryingAxes(const Graph& graph) : graph_(graph) {}
  AxisSet of(NodeId node);

 private:
  const Graph& graph_;
  std::vector<AxisSet> known_;  // of the first nodes
};

/// The number of devices in a mesh with these axes.
int64_t device_count(std::span<const MeshAxis> mesh);
/// The place of a device along each axis. Devices are numbered in row-major order.
std::vector<int64_t> places_of(std::span<const MeshAxis> mesh, int64_t device);
/// The devices that differ from `device` in their place along `axis` only, itself included, in the
/// order of their places.
std::vector<int64_t> group_of(std::span<const MeshAxis> mesh, std::string_view axis,
                              int64_t device);

/// One graph without collectives that does the work of all devices of a mesh. Its outputs are those
/// of device 0, then those of device 1 ...
struct AllShards {
  Graph graph;
  /// For each device and each input of the original: its place among the inputs of `graph`. Devices
  /// between which an input does not vary share one input.
  std::vector<std::vector<uint32_t>> inputs;
  std::vector<NodeId> combinations;  ///< the reductions over devices
};
/// `mesh` has all axes that the graph names, and may have others.
AllShards all_shards(const Graph& graph, std::span<const MeshAxis> mesh);
/// The inputs of `all.graph`, from the inputs of every device.
std::vector<HostTensor> inputs_of(const AllShards& all,
                                  std::span<const std::vector<HostTensor>> devices);

/// Interprets `graph` on all devices: returns the outputs of every device for its inputs.
std::vector<std::vector<HostTensor>> interpret(const Graph& graph, std::span<const MeshAxis> mesh,
                                               std::span<const std::vector<HostTensor>> inputs);

}  // namespace braze
