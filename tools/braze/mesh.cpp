#include "tools/braze/mesh.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "braze/device.h"
#include "ir/graph/shards.h"
#include "ir/support/text.h"
#include "runtime/mesh/links.h"
#include "runtime/mesh/mesh_executable.h"
#include "runtime/mesh/mesh_state.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"

namespace braze::tool {

namespace {

/// The axes of a tensor that are cut if it varies over these axes of the mesh: one axis of the
/// tensor for each, from the first on.
Sharding cut_along(const AxisSet& varying, const TensorType& type, std::string_view name) {
  if (varying.size() > type.shape.rank())
    fail_usage(
        fmt::format("{} of {} differs between devices, and has not enough axes to join its "
                    "values along: give it an axis of extent 1",
                    type.to_string(), quote(name)));
  std::vector<std::string> axes;
  for (const MeshAxis& axis : varying) axes.push_back(axis.name);
  return Sharding(axes);
}

/// A graph with collectives is already what each device does.
Distributed as_written(const Graph& graph, std::span<const MeshAxis> mesh) {
  for (const MeshAxis& axis : graph.mesh_axes())
    if (std::ranges::find(mesh, axis) == mesh.end())
      fail_usage(fmt::format("the graph {} is for a mesh with {}={}, which --mesh has to name",
                             quote(graph.name()), axis.name, axis.size));
  Distributed out{graph};
  const std::vector<AxisSet> varying = varying_axes(graph);
  for (const NodeId input : graph.inputs())
    out.inputs.push_back(
        cut_along(varying[input.index], graph[input].type, graph[input].as<InputOp>()->name));
  for (const GraphOutput& output : graph.outputs())
    out.outputs.push_back(
        cut_along(varying[output.node.index], graph[output.node].type, output.name));
  return out;
}

/// The type of a tensor whose shards have the type of `node`.
TensorType whole_type(const Graph& device, NodeId node, const Sharding& sharding,
                      std::span<const MeshAxis> mesh) {
  std::vector<Expr> dims(device[node].type.shape.dims().begin(),
                         device[node].type.shape.dims().end());
  for (size_t i = 0; i < sharding.axes().size(); ++i)
    for (const MeshAxis& axis : mesh)
      if (axis.name == sharding.axes()[i]) dims[i] = dims[i] * Expr(axis.size);
  return {device[node].type.dtype, Shape(std::move(dims))};
}

}  // namespace

struct MeshJob::State {
  Mesh mesh;
  std::vector<Sharding> inputs, outputs;
  MeshExecutable executable;
};

void MeshFlags::add_to(Arguments& arguments) {
  arguments.add_option("--mesh", mesh,
                       "NAME=SIZE,NAME=SIZE: spread the graph over so many devices, as its "
                       "`constrain` ops say, or run the collectives that it has");
}

std::vector<MeshAxis> MeshFlags::axes() const {
  std::vector<MeshAxis> axes;
  for (size_t at = 0; at <= mesh.size();) {
    const std::string part = mesh.substr(at, mesh.find(',', at) - at);
    at += part.size() + 1;
    const size_t equals = part.find('=');
    MeshAxis axis{part.substr(0, equals), 0};
    const char* const begin = part.data() + std::min(part.size(), equals + 1);
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(begin, end, axis.size);
    if (equals == std::string::npos || equals == 0 || error != std::errc() || stop != end ||
        axis.size < 1 || axis.size > kMostDevices)
      fail_usage(
          fmt::format("--mesh is NAME=SIZE,NAME=SIZE with sizes from 1 to {}, as in "
                      "data=2,model=2, and not {}",
                      kMostDevices, mesh));
    axes.push_back(std::move(axis));
  }
  return axes;
}

Distributed MeshFlags::distributed(const Source& source) const {
  const auto* graph = std::get_if<Graph>(&source);
  if (!graph) fail_usage("--mesh spreads graphs: tile and kernel text is for one device");
  if (!graph->mesh_axes().empty()) return as_written(*graph, axes());
  return blame(Exit::Compile, [&] { return distribute(*graph, axes(), {}, {}); });
}

MeshJob::MeshJob(const MeshFlags& flags, const Source& source, const Device& device,
                 const CompileOptions& options) {
  Distributed made = flags.distributed(source);
  const std::vector<MeshAxis> axes = flags.axes();
  int64_t devices = 1;
  for (const MeshAxis& axis : axes) devices *= axis.size;
  if (device.kind() == DeviceKind::Cpu && device_count(DeviceKind::Cpu) < devices)
    set_cpu_device_count(static_cast<int>(devices));
  const DeviceGuard guard(device);
  const Mesh mesh = blame(Exit::Usage, [&] { return Mesh(axes); });
  program_ = cached_source(made.graph, target_of(mesh), options);
  const Graph& graph = made.graph;
  whole_.name = graph.name();
  whole_.symbols = graph.symbols();
  for (size_t i = 0; i < made.inputs.size(); ++i) {
    const NodeId input = graph.inputs()[i];
    whole_.inputs.push_back(
        {graph[input].as<InputOp>()->name, whole_type(graph, input, made.inputs[i], axes)});
  }
  for (size_t i = 0; i < made.outputs.size(); ++i) {
    const GraphOutput& output = graph.outputs()[i];
    whole_.outputs.push_back(
        {.name = output.name, .type = whole_type(graph, output.node, made.outputs[i], axes)});
  }
  mesh_text_ = mesh.to_string();
  state_ = std::make_shared<const State>(State{
      mesh, std::move(made.inputs), std::move(made.outputs), MeshExecutable::load(program_, mesh)});
}

std::vector<Array> MeshJob::arguments(const std::vector<HostTensor>& values) const {
  std::vector<Array> out;
  for (size_t i = 0; i < values.size(); ++i)
    out.push_back(Array::from_host(values[i], "cpu").to(state_->mesh, state_->inputs[i]));
  return out;
}

std::vector<Array> MeshJob::run(std::span<const Array> arguments) const {
  const size_t count = state_->mesh.size();
  std::vector<std::vector<Array>> by_device(count);
  for (const Array& argument : arguments)
    for (size_t place = 0; place < count; ++place)
      by_device[place].push_back(argument.spread()->shards[place]);
  const std::vector<std::vector<Array>> results = state_->executable.run(by_device);
  std::vector<Array> out;
  for (size_t o = 0; o < state_->outputs.size(); ++o) {
    std::vector<Array> shards;
    for (const std::vector<Array>& device : results)
      shards.push_back(device.empty() ? Array() : device[o]);
    out.push_back(spread_array(state_->mesh, state_->outputs[o], std::move(shards)));
  }
  return out;
}

}  // namespace braze::tool
