#include "runtime/mesh/mesh_executable.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <system_error>

#include "ir/graph/interpret.h"
#include "ir/graph/shards.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/nccl.h"
#include "runtime/devices/registry.h"
#include "runtime/execution/prepared_call.h"
#include "runtime/mesh/crew.h"
#include "runtime/mesh/mesh_state.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace codes {
inline constexpr Code kNoThread{"no-thread", ErrorKind::ResourceExhausted,
                                "A device has no thread of its own to wait for others with."};
}  // namespace codes

namespace {

// Calls on several devices are submitted one after the other, so that they queue in one order on
// all devices. This holds for calls on different meshes too, because these may share devices.
std::mutex& submission_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

[[noreturn]] void fail_thread(const Device& device) {
  fail(codes::kNoThread, fmt::format("no thread can be started for {}", device.name()));
}

/// The threads that submit the parts of calls on GPUs. Used under the mutex of submissions.
Crew& crew() {
  static auto* const crew = new Crew;
  return *crew;
}

/// A part of a call, on a device of this process.
struct Part {
  size_t place;
  PreparedCall call;
};

std::vector<std::shared_ptr<Together>> begin_on_gpus(const Mesh& mesh, std::span<const Part> parts,
                                                     std::span<const MeshAxis> axes,
                                                     std::span<const int64_t> bounds) {
  Mesh::State& state = *mesh.state();
  if (!state.links) state.links = make_nccl_links(state.axes, state.devices, state.ranks);
  try {
    crew().grow(parts.size());
  } catch (const std::system_error&) {
    fail_thread(state.devices[parts.back().place]);
  }
  return state.links->begin(axes, bounds);
}

/// Puts the parts into the queues of their GPUs, each in a thread of its own, because a collective
/// may wait for the others when it is submitted. All failures are known before results are
/// returned.
void submit_on_gpus(const Mesh& mesh, std::span<const Part> parts,
                    std::span<const std::shared_ptr<Together>> together) {
  const std::vector<Device>& devices = mesh.devices();
  std::vector<CapturedError> errors(parts.size());
  crew().run(parts.size(), [&](size_t i) {
    const auto& [place, call] = parts[i];
    WorkQueue& queue = Registry::get().driver(devices[place]).queue();
    const auto submit = [&queue, &call = call] {
      submit_call(call);
      queue.wait(*call.work);  // another thread may do the work of this queue
      call.work->rethrow();
    };
    try {
      together[place]->submit(std::ref(submit));
    } catch (...) {
      errors[i] = CapturedError::current();
      together[place]->give_up(errors[i]);
      if (!call.work->done()) drop_call(call);
    }
  });
  for (const CapturedError& error : errors) error.rethrow();
}

/// Refuses what NCCL cannot run while nothing is under way: later, all GPUs of the mesh would lose
/// their communicators.
void refuse_what_nccl_lacks(const Program& program) {
  for (const Launch& launch : program.launches) {
    if (launch.artifact != Launch::kCollective) continue;
    const CollectiveKind kind = launch.collective.kind;
    if (kind != CollectiveKind::AllReduce && kind != CollectiveKind::ReduceScatter) continue;
    for (size_t member = 0; member < launch.member_count(); ++member) {
      const DType dtype = program.slots[launch.buffers[2 * member]].type.dtype;
      if (cuda::nccl_combines(dtype)) continue;
      ErrorContext context = context_of(program, launch, member);
      const DType wide = is_floating(dtype) ? DType::F32 : DType::I32;
      context.fix = fmt::format("convert its operand to {}, and its result back", name(wide));
      fail(codes::kNcclType,
           fmt::format("GPUs work together through NCCL, which has no {} of {}", name(kind),
                       name(dtype)),
           std::move(context));
    }
  }
}

/// What ranks compare: everything that a program does together with others, and the devices on
/// which it does so.
std::string identity_of(const Program& program) {
  std::string text = program.name;
  const auto add = [&](const auto& all) {
    for (const auto& one : all) text += fmt::format(" {}", one.type.to_string());
    text += ";";
  };
  add(program.inputs);
  add(program.outputs);
  for (const Launch& launch : program.launches) {
    for (const std::string& op : launch.ops) text += " " + op;
    if (launch.artifact != Launch::kCollective) continue;
    const Collective& what = launch.collective;
    text += fmt::format(" {} {} {} {} {}", name(what.kind), program.mesh[what.axis].name,
                        static_cast<int>(what.monoid), what.offset, what.blocks);
    // Slots that lie one behind another are exchanged as one, so their distances matter as well.
    for (size_t b = 0; b < launch.buffers.size(); ++b) {
      const Slot& slot = program.slots[launch.buffers[b]];
      const Slot& before = program.slots[launch.buffers[b < 2 ? b : b - 2]];
      text += fmt::format(" {} {} {}", slot.type.to_string(), static_cast<int>(slot.kind),
                          (slot.offset - before.offset).to_string());
    }
    text += ";";
  }
  return hash128(text).to_string();
}

/// The text of a program for people: "@step (f32[8, 4]) over data: 2 at main.cpp:12".
std::string place_of(const Program& program) {
  constexpr size_t kMost = 4;
  std::string types;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (i == kMost) types += ", ...";
    if (i < kMost) types += (i > 0 ? ", " : "") + program.inputs[i].type.to_string();
  }
  std::string out = fmt::format("@{} ({})", program.name, types);
  for (const MeshAxis& axis : program.mesh)
    out += fmt::format("{} {}: {}", &axis == program.mesh.data() ? " over" : ",", axis.name,
                       axis.size);
  for (const SourceLocation& location : program.locations) {
    if (location) return fmt::format("{} at {}", out, location.to_string());
  }
  return out;
}

}  // namespace

struct MeshExecutable::Impl {
  Mesh mesh;
  std::shared_ptr<const Program> program;
  std::vector<Executable> parts;  // of each device; empty handles for those of other processes
  std::vector<int64_t> bounds;    // of blocks of the program's collectives, other than 0
  std::string identity, place;    // only if several processes run it
  mutable std::atomic<bool> agreed{false};  // whether all ranks are known to run the same program

  Impl(Mesh m, std::shared_ptr<const Program> p, std::vector<Executable> e)
      : mesh(std::move(m)), program(std::move(p)), parts(std::move(e)) {
    for (const Launch& launch : program->launches)
      if (launch.collective.blocks > 0) bounds.push_back(launch.collective.blocks);
    std::ranges::sort(bounds);
    bounds.erase(std::ranges::unique(bounds).begin(), bounds.end());
    if (!mesh.state()->ranks) return;
    identity = identity_of(*program);
    place = place_of(*program);
  }
};

MeshExecutable MeshExecutable::load(std::shared_ptr<const Program> program, const Mesh& mesh) {
  for (const MeshAxis& axis : program->mesh)
    if (std::ranges::find(mesh.axes(), axis) == mesh.axes().end())
      fail(codes::kNeedsMesh,
           fmt::format("program @{} is for a mesh with the axis {}: {}, and this one is {}",
                       program->name, axis.name, axis.size, mesh.to_string()));
  if (mesh.devices()[0].kind() == DeviceKind::Cuda) refuse_what_nccl_lacks(*program);
  std::vector<Executable> parts;
  for (size_t device = 0; device < mesh.size(); ++device) {
    if (!mesh.is_local(device)) {
      parts.emplace_back();
      continue;
    }
    const std::vector<int64_t> all = places_of(mesh.axes(), static_cast<int64_t>(device));
    std::vector<int64_t> places;
    for (const MeshAxis& axis : program->mesh) {
      const auto k = std::ranges::find(mesh.axes(), axis) - mesh.axes().begin();
      places.push_back(all[static_cast<size_t>(k)]);
    }
    parts.push_back(load_on_mesh(program, mesh.devices()[device], std::move(places)));
  }
  MeshExecutable out;
  out.impl_ = std::make_shared<const Impl>(mesh, std::move(program), std::move(parts));
  return out;
}

const Executable& MeshExecutable::on(size_t device) const { return impl_->parts.at(device); }
const Program& MeshExecutable::program() const { return *impl_->program; }

std::vector<std::vector<Array>> MeshExecutable::run(
    std::span<const std::vector<Array>> arguments) const {
  const std::vector<Device>& devices = impl_->mesh.devices();
  Ranks* const ranks = impl_->mesh.state()->ranks;
  if (ranks) ranks->check();
  const bool on_host = devices[0].kind() == DeviceKind::Cpu;
  std::vector<size_t> places;  // of this process
  for (size_t place = 0; place < devices.size(); ++place)
    if (impl_->mesh.is_local(place)) places.push_back(place);

  std::vector<Part> parts;
  std::vector<std::shared_ptr<Together>> together;
  uint64_t number = 0;
  size_t submitted = 0;
  // Before anything is submitted, a failure concerns this process alone, unless other processes
  // will submit what this one cannot.
  const auto told = [&](auto&& body) {
    try {
      body();
    } catch (const Error& error) {
      if (ranks && error.kind() != ErrorKind::InvalidArgument)
        ranks->fail_all(CapturedError::current());
      throw;
    }
  };
  try {
    told([&] {
      for (const size_t place : places) {
        if (on_host && !Registry::get().driver(devices[place]).queue().has_worker())
          fail_thread(devices[place]);
        parts.push_back({place, prepare_call(impl_->parts[place], arguments[place])});
      }
    });
    const std::lock_guard lock(submission_mutex());
    for (const Part& part : parts) check_arguments(part.call);
    told([&] {
      if (ranks) {
        number = ranks->begin_call(impl_->identity, impl_->place, !impl_->agreed);
        impl_->agreed = true;
      }
      together = on_host ? meet_on_host(impl_->mesh.axes(), devices, ranks, impl_->program->mesh)
                         : begin_on_gpus(impl_->mesh, parts, impl_->program->mesh, impl_->bounds);
    });
    for (const Part& part : parts) join_call(part.call, together[part.place]);
    if (on_host) {
      for (const Part& part : parts) {
        submit_call(part.call);
        ++submitted;
      }
    } else {
      submitted = parts.size();
      submit_on_gpus(impl_->mesh, parts, together);
    }
    if (ranks) {
      std::vector<std::shared_ptr<Work>> works;
      for (const Part& part : parts) works.push_back(part.call.work);
      ranks->note_work(number, std::move(works));
    }
  } catch (...) {
    // Parts that are under way must not wait for parts that will never be submitted.
    const CapturedError why = CapturedError::current();
    for (size_t i = submitted; i < parts.size(); ++i) {
      if (!together.empty()) together[parts[i].place]->give_up(why);
      drop_call(parts[i].call);
    }
    throw;
  }
  std::vector<std::vector<Array>> results(devices.size());
  for (Part& part : parts) results[part.place] = std::move(part.call.results);
  return results;
}

}  // namespace braze
