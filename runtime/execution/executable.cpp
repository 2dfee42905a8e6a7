#include "braze/executable.h"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "ir/graph/custom_calls.h"
#include "ir/graph/interpret.h"
#include "ir/graph/origins.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "ir/values/bools.h"
#include "runtime/devices/registry.h"
#include "runtime/execution/plan.h"
#include "runtime/execution/prepared_call.h"
#include "runtime/execution/stream.h"
#include "runtime/memory/array_state.h"
#include "runtime/profile/device_trace.h"
#include "runtime/profile/launch_log.h"

namespace braze {

struct Executable::Impl {
  Impl(std::shared_ptr<const Program> p, DeviceDriver& d, std::span<const int64_t> on_mesh)
      : program(std::move(p)), driver(d), plan(program, driver), code(driver.load(program)) {
    for (const int64_t place : on_mesh) {
      HostTensor value(DType::I64, {});
      value.set_int(0, place);
      places.push_back(Array::from_host(value, driver.device()));
    }
    const auto text = [this](std::string_view what, std::string_view label) {
      return std::make_shared<const std::string>(
          label.empty() ? fmt::format("{} of @{}", what, program->name)
                        : fmt::format("{} ({} of @{})", label, what, program->name));
    };
    for (const Launch& launch : program->launches) {
      most_buffers = std::max(most_buffers, launch.buffers.size());
      functions.push_back(launch.artifact == Launch::kCustomCall
                              ? need_custom_function(launch.custom, driver.custom_memory(),
                                                     driver.name(), context_of(*program, launch))
                              : nullptr);
    }
    for (const ProgramOutput& output : program->outputs) {
      const std::string& label = program->slots[output.slot].label;
      output_labels.push_back(text("result", label.empty() ? output.name : label));
    }
    arena_label = text("temporaries", "");
    name = std::make_shared<const std::string>(program->name);
    place_constants();
  }

  /// Copies constants to the device if it cannot use them where they are.
  void place_constants() {
    std::vector<bool> wanted(program->constants.size(), !driver.has_host_memory());
    for (const ResultPlan& result : plan.results()) {
      if (result.kind == ResultPlan::Kind::Constant) wanted[result.index] = true;
    }
    constants.resize(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i]) constants[i] = Array::from_host(*program->constants[i], driver.device());
    }
    if (!wanted.empty() || !places.empty()) placed = driver.fence(nullptr);
  }

  /// Kernels do not write to constants.
  void* constant_address(size_t index) const {
    if (constants[index].valid()) return constants[index].state()->data;
    return const_cast<std::byte*>(program->constants[index]->data());
  }

  const std::shared_ptr<const Program> program;
  DeviceDriver& driver;
  const Plan plan;
  const std::unique_ptr<LoadedProgram> code;
  // By launch: the function of the host program that it calls; null if it calls none.
  std::vector<std::shared_ptr<const CustomFunction>> functions;
  size_t most_buffers = 0;  // of a launch
  std::vector<Label> output_labels;
  Label arena_label;
  Label name;
  std::vector<Array> constants;   // by constant; empty if the program's own memory is used
  std::vector<Array> places;      // along each of the program's axes of a mesh, as i64 scalars
  std::shared_ptr<Fence> placed;  // after the copies of these two; null if there are none
};

namespace {

using StateRef = std::shared_ptr<Array::State>;

/// One execution. It keeps everything that it uses alive until it is done. It takes all its memory
/// before it is submitted, including host memory, so that a shortage is found before anything has
/// happened.
class Call : public Work {
 public:
  std::shared_ptr<const Executable::Impl> executable;
  std::shared_ptr<const Binding> binding;
  std::vector<StateRef> arguments;
  std::vector<StateRef> results;
  StreamRef stream;  // null: the main one
  Buffer arena;
  std::shared_ptr<const Scratch> scratch;
  bool is_part = false;                // it is a part of a call on the devices of a mesh
  std::shared_ptr<Together> together;  // of a part; set before it is submitted

  /// Called when it is admitted: until it has been executed, no other call overwrites memory that
  /// it reads.
  void pin() noexcept {
    const std::vector<bool>& donated = executable->plan.donated();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!donated[i]) arguments[i]->pin();
    }
    pinned_ = true;
  }

  /// Must be called when all members above are set.
  void prepare() {
    const size_t slots = executable->program->slots.size();
    addresses_.resize(slots + executable->most_buffers);
    for (size_t i = 0; i < slots; ++i) addresses_[i] = address(i);
  }

  void execute() override {
    if (!together) return execute_here();
    verdict_ = together->verdict();
    try {
      execute_here();
    } catch (...) {
      together->give_up(CapturedError::current());
      throw;
    }
  }

  /// Also breaks the cycle between a call that never ran and its results, which keep their call.
  void release() noexcept override {
    unpin();
    arguments.clear();
    results.clear();
    arena = {};
    scratch.reset();
    together.reset();
    addresses_ = std::vector<void*>();
    binding.reset();
    executable.reset();
  }

 private:
  void execute_here() {
    TraceSpan span("call", "execute", executable->program->name);
    if (span) span.add("device", executable->driver.name());
    for (const StateRef& argument : arguments) {
      // If the computation of an argument failed, this call fails too. The work that makes the
      // arguments was submitted before, but in another lane it may not be done yet.
      if (argument->ready) argument->wait();
    }
    await_readers();
    await_other_streams();
    try {
      launch();
    } catch (const std::exception&) {
      try {
        end();  // some of its work may be under way
      } catch (const std::exception&) {
        // The earlier failure is thrown.
      }
      throw;
    }
    end();
  }

  /// Waits until no reader on the host reads memory that the call will overwrite, and until other
  /// calls that read it are in their streams.
  void await_readers() const {
    const std::vector<bool>& donated = executable->plan.donated();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (donated[i]) arguments[i]->await_readers();
    }
  }

  void unpin() noexcept {
    if (!std::exchange(pinned_, false)) return;
    const std::vector<bool>& donated = executable->plan.donated();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!donated[i]) arguments[i]->unpin();
    }
  }

  uint32_t pool() const { return pool_of(stream.get()); }

  /// Makes the call wait for work in other streams that makes its arguments and, if the call
  /// overwrites them, for work there that reads them.
  void await_other_streams() {
    DeviceDriver& driver = executable->driver;
    DeviceStream* const here = stream.get();
    const std::vector<bool>& donated = executable->plan.donated();
    bool awaits_main = false;
    if (here && executable->placed) driver.wait_for(here, *executable->placed);
    for (size_t i = 0; i < arguments.size(); ++i) {
      Array::State& argument = *arguments[i];
      if (argument.made_in != stream) {
        Fence* const made = argument.fence();
        if (made) driver.wait_for(here, *made);
        awaits_main |= !made;
      }
      if (!donated[i]) continue;
      for (const Array::State::Use& use : argument.uses_so_far()) {
        if (use.pool != pool()) driver.wait_for(here, *use.fence);
      }
      if (argument.home != stream) driver.wait_for(here, *driver.fence(argument.home.get()));
    }
    if (awaits_main) driver.wait_for(here, *driver.fence(nullptr));
  }

  void launch() {
    const auto count = static_cast<uint32_t>(executable->program->launches.size());
    try {
      // A function of `this` alone takes no memory of the host.
      const auto launches = [this] { launch_stretch(first_, last_); };
      for (first_ = 0; first_ < count; first_ = last_) {
        last_ = end_of_stretch(first_);
        if (const auto awaits = binding->launches[first_].awaits) await_collectives(*awaits);
        if (stands_alone(first_) || are_launches_watched())
          launches();  // it is no work of the device alone, or each launch must be visible
        else
          executable->code->run({first_, last_, stream.get(), slots(), binding->symbols}, launches);
      }
    } catch (const std::bad_alloc&) {
      // Interpreters, simulators and CUDA's driver allocate host memory while they run.
      fail(codes::kOutOfMemory,
           fmt::format("the host has no memory left to run @{} on {}", executable->program->name,
                       executable->driver.name()),
           {.location = {}, .node = executable->program->name});
    }
  }

  void do_together(uint32_t i, std::span<void* const> buffers) {
    const Program& program = *executable->program;
    const Launch& launch = program.launches[i];
    exchanges_.clear();
    for (const auto& exchange : binding->launches[i].exchanges) {
      const size_t b = 2 * exchange.member;
      const DType dtype = program.slots[launch.buffers[b]].type.dtype;
      exchanges_.push_back({.what = launch.collective,
                            .from = static_cast<const std::byte*>(buffers[b]),
                            .to = static_cast<std::byte*>(buffers[b + 1]),
                            .dtype = dtype,
                            .count = exchange.bytes / size_of(dtype)});
    }
    if (auto fence = together->run(exchanges_)) under_way_.emplace_back(i, std::move(fence));
  }

  void call_function(uint32_t i, std::span<void* const> buffers) {
    const Launch& launch = executable->program->launches[i];
    const Binding::LaunchValues& values = binding->launches[i];
    std::vector<CustomTensor> tensors;
    for (size_t b = 0; b < buffers.size(); ++b) {
      const DType dtype = executable->program->slots[launch.buffers[b]].type.dtype;
      tensors.push_back({buffers[b], dtype, values.shapes[b], values.sizes[b]});
    }
    const CustomTensor result = tensors.back();
    tensors.pop_back();
    executable->code->call_function({.launch = i, .stream = stream.get()}, [&](void* native) {
      call_custom_function(
          *executable->functions[i],
          {launch.custom.target, launch.custom.attributes, tensors, result, native},
          context_of(*executable->program, launch));
    });
    if (result.dtype == DType::Bool && executable->driver.has_host_memory())
      make_bools({static_cast<std::byte*>(result.data), result.bytes});
  }

  /// Makes later work wait for the collectives up to this launch.
  void await_collectives(uint32_t last) {
    std::shared_ptr<Fence> fence;
    for (; awaited_ < under_way_.size() && under_way_[awaited_].first <= last; ++awaited_)
      fence = std::move(under_way_[awaited_].second);
    if (fence) executable->driver.wait_for(stream.get(), *fence);
  }

  /// Notes the point that the stream has reached. After it, other streams may use their memory
  /// again.
  void end() {
    await_collectives(UINT32_MAX);
    fence_ = executable->driver.fence(stream.get());
    const auto note = [this](const StateRef& state) {
      if (state && state->home != stream) state->add_use(pool(), fence_);
    };
    for (const StateRef& argument : arguments) note(argument);
    for (const StateRef& result : results) note(result);
    if (!stream) return;
    for (const Array& constant : executable->constants) note(constant.state());
  }

  std::span<void* const> slots() const {
    return std::span(addresses_).first(executable->program->slots.size());
  }

  /// Whether a launch may not be repeated from a record: other devices take part in it, or a
  /// function of the host program does it, which may do something else at each call.
  bool stands_alone(uint32_t i) const {
    const uint32_t artifact = executable->program->launches[i].artifact;
    return artifact == Launch::kCollective || artifact == Launch::kCustomCall;
  }

  /// The end of the launches from `first` on that wait for collectives only before the first one.
  uint32_t end_of_stretch(uint32_t first) const {
    const auto count = static_cast<uint32_t>(executable->program->launches.size());
    uint32_t last = first + 1;
    if (stands_alone(first)) return last;
    while (last < count && !stands_alone(last) && !binding->launches[last].awaits) ++last;
    return last;
  }

  void launch_stretch(uint32_t first, uint32_t last) {
    const Program& program = *executable->program;
    const std::span<void* const> slots = this->slots();
    const std::span<void*> places = std::span(addresses_).subspan(slots.size());
    DeviceDriver& driver = executable->driver;
    for (uint32_t i = first; i < last; ++i) {
      const Launch& launch = program.launches[i];
      const Binding::LaunchValues& values = binding->launches[i];
      if (values.empty) continue;
      const std::span<void*> buffers = places.first(launch.buffers.size());
      for (size_t b = 0; b < buffers.size(); ++b) buffers[b] = slots[launch.buffers[b]];
      for (const uint32_t slot : launch.zeroed) {
        const DeviceSpan span(driver, stream.get(), "zero", binding->slot_bytes[slot]);
        driver.zero(stream.get(), static_cast<std::byte*>(slots[slot]), binding->slot_bytes[slot]);
      }
      if (launch.artifact == Launch::kCopy) {
        const DeviceSpan span(driver, stream.get(), "copy", values.sizes[0]);
        driver.copy(stream.get(), static_cast<std::byte*>(buffers[1]),
                    static_cast<std::byte*>(buffers[0]), values.sizes[0]);
        continue;
      }
      const TraceSpan span("launch", "launch", launch.name);
      const LaunchTimer timer(executable->program, binding, i, driver, stream.get());
      if (launch.artifact == Launch::kCollective) {
        do_together(i, buffers);
        continue;
      }
      if (launch.artifact == Launch::kCustomCall) {
        call_function(i, buffers);
        continue;
      }
      executable->code->launch({.launch = i,
                                .stream = stream.get(),
                                .buffers = buffers,
                                .sizes = values.sizes,
                                .scalars = values.scalars,
                                .instances = values.instances,
                                .symbols = binding->symbols,
                                .serial = values.serial,
                                .call_seconds = binding->seconds,
                                .scratch = scratch.get()});
    }
  }

  void* address(size_t slot_index) const {
    const Slot& slot = executable->program->slots[slot_index];
    switch (slot.kind) {
      case Slot::Kind::Input:
        return arguments[slot.index]->data;
      case Slot::Kind::Output:
        return results[slot.index]->data;
      case Slot::Kind::Constant:
        return executable->constant_address(slot.index);
      case Slot::Kind::Place:
        return executable->places[slot.index].state()->data;
      case Slot::Kind::Temporary:
        break;
    }
    return arena.data() + binding->offsets[slot_index];
  }

  std::vector<CollectiveArguments> exchanges_;  // those of the present launch
  // Collectives that run in a queue of their own, each with its launch. The first `awaited_` are
  // waited for already.
  std::vector<std::pair<uint32_t, std::shared_ptr<Fence>>> under_way_;
  size_t awaited_ = 0;
  std::vector<void*> addresses_;   // of the slots, then of the buffers of the present launch
  uint32_t first_ = 0, last_ = 0;  // the present stretch of launches
  bool pinned_ = false;
};

/// Rejects donations of memory that belongs to others, or that others read.
void check_owners(const Plan& plan, std::span<const Array> arguments) {
  const std::vector<bool>& donated = plan.donated();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!donated[i]) continue;
    const Array::State& state = *arguments[i].state();
    const bool lent = state.lent.load() > 0;
    if (!state.owner && !lent) continue;
    const Program& p = plan.program();
    fail(codes::kForeignDonated,
         fmt::format(
             "argument {} (\"{}\") of @{} is donated, but {}", i, p.inputs[i].name, p.name,
             lent ? "was exported to another library" : "uses memory that Braze does not own"),
         {.location = {}, .node = p.inputs[i].name, .fix = "pass a copy"});
  }
}

/// Rejects a donated argument that is passed twice, because the other parameter would see it
/// change.
void check_aliases(const Plan& plan, std::span<const Array> arguments) {
  const std::vector<bool>& donated = plan.donated();
  if (std::ranges::none_of(donated, std::identity())) return;
  std::vector<std::pair<const Array::State*, size_t>> states;
  for (size_t i = 0; i < arguments.size(); ++i) states.emplace_back(arguments[i].state().get(), i);
  std::ranges::sort(states);
  for (size_t k = 1; k < states.size(); ++k) {
    auto [i, j] = std::pair(states[k - 1].second, states[k].second);
    if (states[k - 1].first != states[k].first || !(donated[i] || donated[j])) continue;
    if (!donated[i]) std::swap(i, j);
    const Program& p = plan.program();
    fail(codes::kDonatedTwice,
         fmt::format("argument {} (\"{}\") of @{} is donated, so it cannot be argument {} (\"{}\") "
                     "as well",
                     i, p.inputs[i].name, p.name, j, p.inputs[j].name),
         {.location = {}, .node = p.inputs[i].name, .fix = "pass a copy"});
  }
}

const Executable::Impl& loaded(const std::shared_ptr<const Executable::Impl>& impl) {
  if (!impl) fail(codes::kEmptyExecutable, "this Executable handle holds no program");
  return *impl;
}

/// Fills in `call` and returns its results. If it throws, nothing has happened.
std::vector<Array> prepare(const std::shared_ptr<Call>& call,
                           const std::shared_ptr<const Executable::Impl>& executable,
                           std::span<const Array> arguments) {
  const Executable::Impl& impl = loaded(executable);
  const Plan& plan = impl.plan;
  call->binding = plan.bind(arguments);
  const Binding& binding = *call->binding;
  check_aliases(plan, arguments);
  for (const Array& argument : arguments) argument.state()->check_alive();

  // All memory is allocated before anything happens, so a failure here leaves the arguments as they
  // were.
  Allocator& allocator = impl.driver.allocator();
  const std::span<const ResultPlan> results = plan.results();
  call->executable = executable;
  if (!call->is_part) call->stream = current_stream_of(impl.driver);
  const uint32_t pool = pool_of(call->stream.get());
  call->scratch = impl.code->reserve();
  call->arena = allocator.allocate(binding.arena_bytes, impl.arena_label, pool);
  call->arguments.reserve(arguments.size());
  for (const Array& argument : arguments) call->arguments.push_back(argument.state());
  call->results.resize(results.size());
  std::vector<Array> out(results.size());
  // The memory of a donated argument moves to its result at the very end.
  std::vector<Buffer> fresh(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind != ResultPlan::Kind::Fresh) continue;
    fresh[i] = allocator.allocate(binding.output_bytes[i], impl.output_labels[i], pool);
  }
  const auto make_result = [&](size_t i, std::byte* data) {
    call->results[i] = std::make_shared<Array::State>(impl.program->outputs[i].type.dtype,
                                                      binding.output_shapes[i], impl.driver, data,
                                                      std::move(fresh[i]), call);
    call->results[i]->home = call->results[i]->made_in = call->stream;
    out[i] = Array(call->results[i]);
  };
  for (size_t i = 0; i < results.size(); ++i) {
    const uint32_t index = results[i].index;
    switch (results[i].kind) {
      case ResultPlan::Kind::Fresh:
        make_result(i, fresh[i].data());
        break;
      case ResultPlan::Kind::Updates:
        make_result(i, call->arguments[index]->data);
        call->results[i]->home = call->arguments[index]->home;
        break;
      case ResultPlan::Kind::Same:
        call->results[i] = call->results[index];
        out[i] = out[index];
        break;
      case ResultPlan::Kind::Input:
        call->results[i] = call->arguments[index];
        out[i] = arguments[index];
        break;
      case ResultPlan::Kind::Constant:
        call->results[i] = impl.constants[index].state();
        out[i] = impl.constants[index];
        break;
    }
  }
  call->prepare();
  return out;
}

/// Submits a prepared call. If it throws, nothing has happened.
void submit(const std::shared_ptr<Call>& call, std::span<const Array> arguments, double seconds) {
  const Executable::Impl& impl = *call->executable;
  const Plan& plan = impl.plan;
  const std::span<const ResultPlan> results = plan.results();
  const bool overwrites = std::ranges::any_of(
      results, [](const ResultPlan& r) { return r.kind == ResultPlan::Kind::Updates; });
  const auto admit = [&] {
    // No other call is admitted between this check and the change below.
    for (const StateRef& argument : call->arguments) argument->check_alive();
    // Under this lock, no array is lent between the check and the change.
    std::unique_lock lock(impl.driver.uses_mutex(), std::defer_lock);
    if (overwrites) lock.lock();
    check_owners(plan, arguments);
    call->pin();
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].kind != ResultPlan::Kind::Updates) continue;
      Array::State& argument = *call->arguments[results[i].index];
      call->results[i]->buffer = std::move(argument.buffer);
      argument.taken_by = impl.name;
      argument.donated.store(true);
    }
  };
  impl.driver.queue().submit(call, seconds, admit, pool_of(call->stream.get()));
}

// This is a separate function, because a span of the timeline in it would take registers from the
// fast path.
[[gnu::noinline]] std::vector<Array> start_new_call(
    const std::shared_ptr<const Executable::Impl>& executable, std::span<const Array> arguments) {
  const auto call = std::make_shared<Call>();
  try {
    std::vector<Array> out = prepare(call, executable, arguments);
    submit(call, arguments, call->binding->seconds);
    return out;
  } catch (...) {
    call->release();
    throw;
  }
}

}  // namespace

Executable Executable::load(std::shared_ptr<const Program> program, const Device& device) {
  BRAZE_CHECK(program != nullptr, "a program to load");
  if (!program->mesh.empty())
    fail(codes::kNeedsMesh,
         fmt::format(
             "program @{} is for the devices of a mesh ({}), not for {} alone", program->name,
             join(program->mesh, ", ",
                  [](const MeshAxis& axis) { return fmt::format("{}: {}", axis.name, axis.size); }),
             device.name()),
         {.location = {},
          .node = program->name,
          .fix = "run it over a mesh: by spmd, or by braze run --mesh"});
  return load_on_mesh(std::move(program), device, {});
}

Executable load_on_mesh(std::shared_ptr<const Program> program, const Device& device,
                        std::vector<int64_t> places) {
  TraceSpan span("load", "load", program->name);
  if (span) span.add("device", device.name());
  return Executable(std::make_shared<const Executable::Impl>(
      std::move(program), Registry::get().driver(device), places));
}

ErrorContext context_of(const Program& program, const Launch& launch, size_t member) {
  ErrorContext context{
      .location = {},
      .node = member < launch.members.size() ? launch.members[member] : launch.name};
  const auto node = member < launch.ops.size() ? origin_of(launch.ops[member]) : std::nullopt;
  if (node && *node < program.locations.size()) context.location = program.locations[*node];
  return context;
}

PreparedCall prepare_call(const Executable& executable, std::span<const Array> arguments) {
  refuse_if_forked();
  const auto call = std::make_shared<Call>();
  call->is_part = true;
  try {
    std::vector<Array> results = prepare(call, executable.impl(), arguments);
    return {call, {arguments.begin(), arguments.end()}, std::move(results)};
  } catch (...) {
    call->release();
    throw;
  }
}

void join_call(const PreparedCall& prepared, std::shared_ptr<Together> together) {
  std::static_pointer_cast<Call>(prepared.work)->together = std::move(together);
}

void check_arguments(const PreparedCall& prepared) {
  for (const Array& argument : prepared.arguments) argument.state()->check_alive();
}

void submit_call(const PreparedCall& prepared) {
  // The other devices wait for this part, so waking its thread is worth the cost.
  constexpr double kLong = 1;
  submit(std::static_pointer_cast<Call>(prepared.work), prepared.arguments, kLong);
}

void drop_call(const PreparedCall& prepared) noexcept {
  std::static_pointer_cast<Call>(prepared.work)->release();
}

std::vector<Array> Executable::run(std::span<const Array> arguments) const {
  refuse_if_forked();
  const TraceSpan span("call", "call", impl_ ? std::string_view(impl_->program->name) : "");
  return start_new_call(impl_, arguments);
}

MemoryPlan Executable::memory_plan(std::span<const Array> arguments) const {
  return loaded(impl_).plan.bind(arguments)->memory;
}

const Program& Executable::program() const { return *loaded(impl_).program; }

Device Executable::device() const { return loaded(impl_).driver.device(); }

}  // namespace braze
