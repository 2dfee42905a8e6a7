#include "tools/braze/mesh.h"

#include <charconv>
#include <optional>

#include "braze/device.h"
#include "ir/support/text.h"
#include "runtime/mesh/links.h"
#include "runtime/mesh/mesh_executable.h"
#include "runtime/mesh/mesh_state.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"

namespace braze::tool {

struct MeshJob::State {
  Mesh mesh;
  std::vector<Sharding> inputs, outputs;
  MeshExecutable executable;
};

void MeshFlags::add_to(Arguments& arguments) {
  arguments.add_option("--mesh", mesh,
                       "NAME=SIZE,NAME=SIZE: spread the graph over so many devices, as its "
                       "`constrain` ops say");
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
  const auto& graph = std::get<Graph>(source);
  whole_.name = graph.name();
  whole_.symbols = graph.symbols();
  for (const NodeId input : graph.inputs())
    whole_.inputs.push_back({graph[input].as<InputOp>()->name, graph[input].type});
  for (const GraphOutput& output : graph.outputs())
    whole_.outputs.push_back({.name = output.name, .type = graph[output.node].type});
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
