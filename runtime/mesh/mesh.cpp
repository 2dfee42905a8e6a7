#include "braze/mesh.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "ir/graph/shards.h"
#include "ir/support/config.h"
#include "ir/support/env.h"
#include "ir/support/scanner.h"
#include "ir/support/text.h"
#include "ir/values/host_tensor.h"
#include "runtime/devices/registry.h"
#include "runtime/memory/array_state.h"
#include "runtime/mesh/mesh_state.h"
#include "runtime/ranks/launch.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace {

[[noreturn]] void fail_mesh(std::string message, std::string fix = "") {
  fail(codes::kBadMesh, std::move(message), {.location = {}, .node = "", .fix = std::move(fix)});
}

std::string axes_text(std::span<const MeshAxis> axes) {
  return join(axes, ", ",
              [](const MeshAxis& axis) { return fmt::format("{}: {}", axis.name, axis.size); });
}

/// Whether texts can hold this name of an axis. "none" stands for no axis there.
bool can_be_written(std::string_view name) {
  try {
    return name != "none" && Scanner(name, "a mesh").expect_identifier("a name") == name;
  } catch (const Error&) {
    return false;
  }
}

int64_t checked_count(const std::vector<MeshAxis>& axes) {
  int64_t count = 1;
  for (size_t k = 0; k < axes.size(); ++k) {
    const MeshAxis& axis = axes[k];
    if (axis.name.empty() || axis.size < 1 || axis.size > kMostDevices)
      fail_mesh(fmt::format("an axis of a mesh has a name and 1 to {} devices, not {}: {}",
                            kMostDevices, quote(axis.name), axis.size));
    if (!can_be_written(axis.name))
      fail_mesh(fmt::format("{} cannot be the name of an axis of a mesh", quote(axis.name)),
                "a letter, then letters, digits, _ and inner dots; \"none\" stands for no axis");
    for (size_t j = 0; j < k; ++j)
      if (axes[j].name == axis.name)
        fail_mesh(fmt::format("a mesh has two axes called {}", quote(axis.name)), "rename one");
    count *= axis.size;
    if (count > kMostDevices)
      fail_mesh(fmt::format("the mesh {} has more than {} devices", axes_text(axes), kMostDevices));
  }
  return count;
}

/// `count` devices of the same kind as the default device, after the first `skipped` ones if there
/// are enough.
std::vector<Device> first_devices(const std::vector<MeshAxis>& axes, int64_t count,
                                  int64_t skipped) {
  const DeviceKind kind = default_device().kind();
  std::vector<Device> all;
  for (const Device& device : Registry::get().devices(kind == DeviceKind::Cuda))
    if (device.kind() == kind) all.push_back(device);
  const auto there = static_cast<int64_t>(all.size());
  if (there < count) {
    const std::string& alone = launched().alone;
    fail_mesh(
        fmt::format("the mesh {} has {} devices{}, and of the kind of {} there {} {}{}",
                    axes_text(axes), device_count(axes),
                    count < device_count(axes) ? fmt::format(", {} of each process", count) : "",
                    default_device().name(), there == 1 ? "is" : "are", there,
                    alone.empty() ? "" : "; " + alone),
        !alone.empty() ? fmt::format("set {} to a folder that all processes see, new for each run",
                                     kEnvRendezvous.name)
        : kind == DeviceKind::Cpu
            ? fmt::format("set_cpu_device_count({0}), or BRAZE_CPU_DEVICES={0}", count)
            : "name the devices, or make the mesh smaller");
  }
  const int64_t first = there >= skipped + count ? skipped : 0;
  return {all.begin() + first, all.begin() + first + count};
}

/// Warns once if a launcher started this process as one of several, and they do not meet. Each of
/// them would do all of the work.
void warn_if_alone() {
  if (launched().alone.empty()) return;
  static std::once_flag once;
  std::call_once(once, [] {
    write_log(
        LogLevel::Warning,
        fmt::format("{}: a mesh has the devices of this process alone; set {} to a folder that "
                    "all processes see, or name the devices of the mesh",
                    launched().alone, kEnvRendezvous.name));
  });
}

/// Calls `visit(offset in the whole, offset in the shard, bytes)` for every run of bytes of the
/// shard of `device` that is contiguous in the whole.
template <class Visit>
void each_run(const Mesh& mesh, const Sharding& sharding, std::span<const int64_t> whole,
              std::span<const int64_t> shard, size_t element, size_t device, Visit&& visit) {
  const std::vector<int64_t> places = places_of(mesh.axes(), static_cast<int64_t>(device));
  std::vector<int64_t> first(whole.size(), 0);
  size_t cut = 0;  // the number of axes up to the last one that is cut
  for (size_t axis = 0; axis < sharding.axes().size(); ++axis) {
    const std::string& name = sharding.axes()[axis];
    if (name.empty()) continue;
    const auto k = std::ranges::find(mesh.axes(), name, &MeshAxis::name) - mesh.axes().begin();
    first[axis] = places[static_cast<size_t>(k)] * shard[axis];
    cut = axis + 1;
  }
  // The axes after the last one that is cut are contiguous with it.
  size_t run = element;
  for (size_t axis = cut == 0 ? 0 : cut - 1; axis < shard.size(); ++axis)
    run *= static_cast<size_t>(shard[axis]);
  const size_t outer = cut == 0 ? 0 : cut - 1;
  size_t count = 1;
  for (size_t axis = 0; axis < outer; ++axis) count *= static_cast<size_t>(shard[axis]);
  if (run == 0) return;
  std::vector<size_t> strides(whole.size() + 1, element);  // in bytes, of the whole
  for (size_t axis = whole.size(); axis-- > 0;)
    strides[axis] = strides[axis + 1] * static_cast<size_t>(whole[axis]);
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i, offset = 0;
    for (size_t axis = outer; axis-- > 0;) {
      const auto extent = static_cast<size_t>(shard[axis]);
      offset += (rest % extent + static_cast<size_t>(first[axis])) * strides[axis + 1];
      rest /= extent;
    }
    if (cut > 0) offset += static_cast<size_t>(first[outer]) * strides[outer + 1];
    visit(offset, i * run, run);
  }
}

}  // namespace

namespace {

void check_alike(const std::vector<Device>& devices) {
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceKind kind = devices[i].kind();
    if (kind != DeviceKind::Cpu && kind != DeviceKind::Cuda)
      fail_mesh(fmt::format("a mesh is made of CPUs or of GPUs, not of {}", devices[i].name()));
    if (kind != devices[0].kind() || devices[i].target().name != devices[0].target().name)
      fail_mesh(fmt::format("the devices {} and {} of a mesh do not run the same code",
                            devices[0].name(), devices[i].name()));
    for (size_t j = 0; j < i; ++j)
      if (devices[j] == devices[i])
        fail_mesh(fmt::format("the device {} is in the mesh twice", devices[i].name()));
  }
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes) : state_(std::make_shared<State>()) {
  const int64_t count = checked_count(axes);
  Ranks* const ranks = Ranks::get();
  if (ranks && count % ranks->count() != 0)
    fail_mesh(fmt::format("the mesh {} has {} devices, and {} processes cannot have the same "
                          "number of them each",
                          axes_text(axes), count, ranks->count()),
              "make it as large as there are processes, or a multiple of that; a mesh of this "
              "process alone names its devices: Mesh(axes, devices)");
  const int64_t share = ranks ? count / ranks->count() : count;
  // Processes of one host that see the same GPUs share them. Each process has its own CPU devices.
  const bool shares = ranks && default_device().kind() == DeviceKind::Cuda;
  const std::vector<Device> mine =
      first_devices(axes, share, shares ? ranks->local_rank() * share : 0);
  check_alike(mine);
  for (int64_t begin = 0; begin < count; begin += share)
    state_->devices.insert(state_->devices.end(), mine.begin(), mine.end());
  if (count > 1) warn_if_alone();
  state_->axes = std::move(axes);
  state_->ranks = ranks;
}

Mesh::Mesh(std::vector<MeshAxis> axes, std::vector<Device> devices)
    : state_(std::make_shared<State>()) {
  const int64_t count = checked_count(axes);
  if (static_cast<int64_t>(devices.size()) != count)
    fail_mesh(fmt::format("the mesh {} has {} devices, and {} are given", axes_text(axes), count,
                          devices.size()));
  check_alike(devices);
  state_->axes = std::move(axes);
  state_->devices = std::move(devices);
}

const std::vector<MeshAxis>& Mesh::axes() const { return state_->axes; }
const std::vector<Device>& Mesh::devices() const { return state_->devices; }

int Mesh::State::rank_of(size_t place) const {
  return ranks ? static_cast<int>(place / (devices.size() / static_cast<size_t>(ranks->count())))
               : 0;
}
bool Mesh::is_local(size_t place) const {
  return !state_->ranks || state_->rank_of(place) == state_->ranks->rank();
}
bool Mesh::is_local() const { return !state_->ranks || state_->ranks->count() == 1; }

int64_t Mesh::size(std::string_view axis) const {
  for (const MeshAxis& known : axes())
    if (known.name == axis) return known.size;
  fail_mesh(fmt::format("the mesh {} has no axis {}", to_string(), quote(axis)));
}

std::string Mesh::to_string() const { return axes_text(axes()); }

bool operator==(const Mesh& a, const Mesh& b) {
  return a.state_ == b.state_ ||
         (a.axes() == b.axes() && a.devices() == b.devices() && a.state_->ranks == b.state_->ranks);
}

Sharding sharded(std::string axis) { return Sharding({std::move(axis)}); }
Sharding sharded(std::initializer_list<std::string> axes) {
  return Sharding(std::vector<std::string>(axes));
}

std::vector<int64_t> shard_shape(const std::vector<int64_t>& shape, const Sharding& sharding,
                                 const Mesh& mesh, std::string_view what) {
  const auto refuse = [&](const std::string& why, std::string fix = "") {
    fail(codes::kBadSharding, fmt::format("{} cannot be {}: {}", what, sharding.to_string(), why),
         {.location = {}, .node = "", .fix = std::move(fix)});
  };
  std::vector<int64_t> out = shape;
  if (sharding.axes().size() > shape.size()) refuse(fmt::format("it has {} axes", shape.size()));
  for (size_t axis = 0; axis < sharding.axes().size(); ++axis) {
    const std::string& name = sharding.axes()[axis];
    if (name.empty()) continue;
    if (std::ranges::count(sharding.axes(), name) > 1)
      refuse(fmt::format("the axis {} of the mesh cuts one axis only", name));
    const int64_t parts = mesh.size(name);
    if (shape[axis] % parts != 0)
      refuse(fmt::format("its axis {} has extent {}, which {} devices do not divide", axis,
                         shape[axis], parts),
             fmt::format("pad it to {}, with a mask for what is added, or leave out the last {}",
                         (shape[axis] / parts + 1) * parts, shape[axis] % parts));
    out[axis] = shape[axis] / parts;
  }
  return out;
}

// ---- Arrays over a mesh -----------------------------------------------------------------------

Array spread_array(const Mesh& mesh, const Sharding& sharding, std::vector<Array> shards) {
  const Array& mine = *std::ranges::find_if(shards, &Array::valid);
  auto spread = std::make_shared<Array::Spread>(
      Array::Spread{mesh, sharding, mine.dtype(), mine.shape(), std::move(shards)});
  for (size_t axis = 0; axis < sharding.axes().size(); ++axis)
    if (!sharding.axes()[axis].empty()) spread->shape[axis] *= mesh.size(sharding.axes()[axis]);
  return Array(std::shared_ptr<const Array::Spread>(std::move(spread)));
}

Array Array::to(const Mesh& mesh, const Sharding& sharding) const {
  if (spread_ && spread_->mesh == mesh && spread_->sharding == sharding) return *this;
  const std::vector<int64_t> part =
      shard_shape(shape(), sharding, mesh, type_text(dtype(), shape()));
  const HostTensor whole = to_host();
  HostTensor shard(dtype(), part);
  std::vector<Array> shards(mesh.size());
  for (size_t device = 0; device < mesh.size(); ++device) {
    if (!mesh.is_local(device)) continue;
    each_run(mesh, sharding, whole.shape(), part, size_of(dtype()), device,
             [&](size_t from, size_t to, size_t bytes) {
               std::memcpy(shard.data() + to, whole.data() + from, bytes);
             });
    shards[device] = from_host(shard, mesh.devices()[device]);
  }
  return spread_array(mesh, sharding, std::move(shards));
}

std::vector<Array> Array::shards() const {
  if (!spread_) return {*this};
  std::vector<Array> here;
  for (const Array& shard : spread_->shards)
    if (shard.valid()) here.push_back(shard);
  return here;
}

const Sharding& Array::sharding() const { return spread_ ? spread_->sharding : replicated; }

void gather_to_host(const Array::Spread& spread, std::span<std::byte> out) {
  const Array& mine = *std::ranges::find_if(spread.shards, &Array::valid);
  if (spread.sharding.is_replicated()) return mine.copy_to_host(out);
  std::vector<std::byte> bytes(mine.size_bytes());
  std::vector<size_t> parts;  // the positions where the shards of this process begin
  for (size_t device = 0; device < spread.shards.size(); ++device) {
    const Array& shard = spread.shards[device];
    if (shard.valid()) shard.copy_to_host(bytes);
    bool first = true;
    each_run(spread.mesh, spread.sharding, spread.shape, mine.shape(), size_of(spread.dtype),
             device, [&](size_t to, size_t from, size_t count) {
               if (std::exchange(first, false) && shard.valid()) parts.push_back(to);
               if (shard.valid()) std::memcpy(out.data() + to, bytes.data() + from, count);
             });
  }
  std::ranges::sort(parts);
  const auto repeated = std::ranges::unique(parts);
  const size_t here = parts.size() - repeated.size();
  size_t wanted = 1;
  for (const std::string& axis : spread.sharding.axes())
    if (!axis.empty()) wanted *= static_cast<size_t>(spread.mesh.size(axis));
  if (here == wanted || bytes.empty()) return;
  fail(codes::kRemoteShard,
       fmt::format("this array, {} {}, has {} parts, of which {} {} in this process",
                   type_text(spread.dtype, spread.shape), spread.sharding.to_string(), wanted, here,
                   here == 1 ? "is" : "are"),
       {.location = {},
        .node = "",
        .fix = "read the parts by shards(), or have a function over the mesh gather it: "
               "all_gather(x, axis), with the result replicated"});
}

void Array::fail_spread() const {
  fail(codes::kSpreadArray,
       fmt::format("this array, {}, is spread over the {} devices of the mesh {}",
                   type_text(spread_->dtype, spread_->shape), spread_->mesh.size(),
                   spread_->mesh.to_string()),
       {.location = {},
        .node = "",
        .fix = fmt::format("bring it to one device with .to(\"{}\"), or give it to a function made "
                           "by spmd or data_parallel",
                           spread_->mesh.devices()[0].name())});
}

}  // namespace braze
