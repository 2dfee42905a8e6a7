#include "runtime/mesh/mesh_executable.h"

#include <algorithm>

#include "ir/graph/interpret.h"
#include "ir/graph/shards.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/nccl.h"
#include "runtime/devices/registry.h"
#include "runtime/execution/prepared_call.h"
#include "runtime/mesh/mesh_state.h"

namespace braze {

namespace codes {
inline constexpr Code kNoThread{"no-thread", ErrorKind::ResourceExhausted,
                                "A device has no thread of its own to wait for others with."};
}  // namespace codes

namespace {

// Calls on several devices are submitted one after the other, so that they queue in one order on
// all of them; of any meshes, for these may share devices.
std::mutex& submission_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::vector<std::shared_ptr<Together>> begin_on_gpus(const Mesh& mesh,
                                                     std::span<const MeshAxis> axes) {
  Mesh::State& state = *mesh.state();
  const std::lock_guard lock(state.mutex);
  if (!state.links) state.links = make_nccl_links(state.axes, state.devices);
  while (state.crew.size() < state.devices.size())
    state.crew.push_back(std::make_unique<WorkQueue>(WorkQueue::Mode::Background));
  return state.links->begin(axes);
}

/// Puts one part into the queue of its GPU.
class Submission : public Work {
 public:
  Submission(const PreparedCall& call, Together& together, WorkQueue& queue)
      : call_(call), together_(together), queue_(queue) {}

 protected:
  void execute() override {
    try {
      submit_call(call_);
    } catch (...) {
      together_.give_up(CapturedError::current());
      drop_call(call_);
      throw;
    }
    queue_.wait(*call_.work);
    call_.work->rethrow();
  }

 private:
  const PreparedCall& call_;
  Together& together_;
  WorkQueue& queue_;  // of the GPU
};

/// Each part by a thread of its own: a collective may wait for the others when it is submitted.
/// What fails is known before anybody has results.
void submit_on_gpus(const Mesh& mesh, std::span<const PreparedCall> calls,
                    std::span<const std::shared_ptr<Together>> together) {
  Mesh::State& state = *mesh.state();
  std::vector<std::shared_ptr<Submission>> parts;
  for (size_t device = 0; device < calls.size(); ++device) {
    parts.push_back(std::make_shared<Submission>(
        calls[device], *together[device], Registry::get().driver(state.devices[device]).queue()));
    constexpr double kLong = 1;
    state.crew[device]->submit(parts.back(), kLong, [] {});
  }
  for (size_t device = 0; device < parts.size(); ++device) state.crew[device]->wait(*parts[device]);
  for (const auto& part : parts) part->rethrow();
}

}  // namespace

struct MeshExecutable::Impl {
  Mesh mesh;
  std::shared_ptr<const Program> program;
  std::vector<Executable> parts;  // of each device
};

MeshExecutable MeshExecutable::load(std::shared_ptr<const Program> program, const Mesh& mesh) {
  for (const MeshAxis& axis : program->mesh)
    if (std::ranges::find(mesh.axes(), axis) == mesh.axes().end())
      fail(codes::kNeedsMesh,
           fmt::format("program @{} is for a mesh with the axis {}: {}, and this one is {}",
                       program->name, axis.name, axis.size, mesh.to_string()));
  std::vector<Executable> parts;
  for (size_t device = 0; device < mesh.size(); ++device) {
    const std::vector<int64_t> all = places_of(mesh.axes(), static_cast<int64_t>(device));
    std::vector<int64_t> places;
    for (const MeshAxis& axis : program->mesh) {
      const auto k = std::ranges::find(mesh.axes(), axis) - mesh.axes().begin();
      places.push_back(all[static_cast<size_t>(k)]);
    }
    parts.push_back(load_on_mesh(program, mesh.devices()[device], std::move(places)));
  }
  MeshExecutable out;
  out.impl_ = std::make_shared<const Impl>(Impl{mesh, std::move(program), std::move(parts)});
  return out;
}

const Executable& MeshExecutable::on(size_t device) const { return impl_->parts.at(device); }

std::vector<std::vector<Array>> MeshExecutable::run(
    std::span<const std::vector<Array>> arguments) const {
  const std::vector<Device>& devices = impl_->mesh.devices();
  const bool on_host = devices[0].kind() == DeviceKind::Cpu;
  std::vector<std::shared_ptr<Together>> together =
      on_host ? meet_on_host(impl_->mesh.axes(), devices, impl_->program->mesh)
              : begin_on_gpus(impl_->mesh, impl_->program->mesh);
  for (size_t device = 0; device < devices.size(); ++device) {
    WorkQueue& queue = on_host ? Registry::get().driver(devices[device]).queue()
                               : *impl_->mesh.state()->crew[device];
    if (!queue.has_worker())
      fail(codes::kNoThread,
           fmt::format("there is no thread to be had for {}", devices[device].name()));
  }

  std::vector<PreparedCall> calls;
  size_t submitted = 0;
  try {
    for (size_t device = 0; device < devices.size(); ++device)
      calls.push_back(prepare_call(impl_->parts[device], arguments[device], together[device]));
    const std::lock_guard lock(submission_mutex());
    for (const PreparedCall& call : calls) check_arguments(call);
    if (on_host) {
      for (const PreparedCall& call : calls) {
        submit_call(call);
        ++submitted;
      }
    } else {
      submitted = calls.size();
      submit_on_gpus(impl_->mesh, calls, together);
    }
  } catch (...) {
    // Parts that are under way shall not wait for those that will never be.
    const CapturedError why = CapturedError::current();
    for (size_t device = submitted; device < calls.size(); ++device) {
      together[device]->give_up(why);
      drop_call(calls[device]);
    }
    throw;
  }
  std::vector<std::vector<Array>> results;
  for (PreparedCall& call : calls) results.push_back(std::move(call.results));
  return results;
}

}  // namespace braze
