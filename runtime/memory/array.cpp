#include "braze/array.h"

#include "braze/trace.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "ir/values/bools.h"
#include "ir/values/host_tensor.h"
#include "runtime/devices/registry.h"
#include "runtime/execution/stream.h"
#include "runtime/memory/array_state.h"
#include "runtime/mesh/mesh_state.h"

namespace braze {

namespace {

Array::State& state_of(const std::shared_ptr<Array::State>& state) {
  if (!state) fail(codes::kEmptyArray, "this Array handle holds no array");
  return *state;
}

/// The number of bytes of a tensor. Throws ResourceExhausted if it does not fit in 64 bits.
size_t checked_bytes(DType dtype, std::span<const int64_t> shape) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(checked_numel(shape)), size_of(dtype), &bytes)) {
    fail(codes::kOutOfMemory, fmt::format("an array of {} has more bytes than can be addressed",
                                          type_text(dtype, shape)));
  }
  return bytes;
}

}  // namespace

std::string type_text(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{}[{}]", name(dtype),
                     join(shape, ", ", [](int64_t extent) { return std::to_string(extent); }));
}

Array::State::State(DType dtype_, std::vector<int64_t> shape_, DeviceDriver& driver_,
                    std::byte* data_, Buffer buffer_, std::shared_ptr<Work> ready_)
    : dtype(dtype_),
      shape(std::move(shape_)),
      numel(checked_numel(shape)),
      driver(driver_),
      data(data_),
      ready(std::move(ready_)),
      buffer(std::move(buffer_)) {}

Array::State::~State() {
  if (uses.empty() && !owner) return;
  if (is_forked()) return;
  try {
    if (owner && !driver.has_host_memory()) {
      std::vector<std::shared_ptr<Fence>> fences;
      for (Use& use : uses) fences.push_back(std::move(use.fence));
      driver.release_after(home.get(), std::move(fences), std::move(owner));
      return;
    }
    // The next use of the memory must come after all uses so far.
    for (const Use& use : uses) driver.wait_for(home.get(), *use.fence);
  } catch (const std::exception&) {
    // A lost device no longer computes anything.
  }
}

void Array::State::add_use(uint32_t stream_pool, std::shared_ptr<Fence> fence) {
  const std::lock_guard lock(driver.uses_mutex());
  for (Use& use : uses) {
    if (use.pool != stream_pool) continue;
    if (use.fence->number() < fence->number()) use.fence.swap(fence);
    return;
  }
  uses.push_back({stream_pool, std::move(fence)});
}

std::vector<Array::State::Use> Array::State::uses_so_far() {
  const std::lock_guard lock(driver.uses_mutex());
  return uses;
}

void Array::State::order(DeviceStream* stream) const {
  if (made_in.get() == stream) return;
  if (Fence* made = fence()) return driver.wait_for(stream, *made);
  driver.wait_for(stream, *driver.fence(made_in.get()));
}

std::string Array::State::type_text() const { return braze::type_text(dtype, shape); }

void Array::State::check_alive() const {
  if (!donated.load()) return;
  fail(codes::kDonatedArray,
       fmt::format("this array, {}, was donated to a call of @{} and has no value any more",
                   type_text(), *taken_by),
       {.location = {}, .node = "", .fix = "use the result that took its place"});
}

void Array::State::wait() const {
  // Data that is already in host memory can still be read there.
  if (!driver.has_host_memory()) refuse_if_forked();
  if (!ready) return;
  if (!ready->done()) driver.queue().wait(*ready);
  ready->rethrow();
}

void Array::State::await_readers() const {
  for (int readers = pins.load(); readers > 0; readers = pins.load()) pins.wait(readers);
}

ArrayPin::ArrayPin(Array::State& state) : state_(state) {
  state_.pin();
  try {
    state_.check_alive();
    state_.wait();
  } catch (...) {
    state_.unpin();
    throw;
  }
}

ArrayPin::~ArrayPin() { state_.unpin(); }

Array make_array(DType dtype, std::vector<int64_t> shape, const Device& device,
                 const Label& label) {
  DeviceDriver& driver = Registry::get().driver(device);
  const size_t bytes = checked_bytes(dtype, shape);
  // A value without a name in a graph is identified by its type.
  const auto named = label ? label
                           : std::make_shared<const std::string>(
                                 fmt::format("an array {}", type_text(dtype, shape)));
  Buffer buffer = driver.allocator().allocate(bytes, named);
  return Array(std::make_shared<Array::State>(dtype, std::move(shape), driver, buffer.data(),
                                              std::move(buffer), nullptr));
}

Array borrow_array(DType dtype, std::vector<int64_t> shape, const Device& device,
                   std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  DeviceDriver& driver = Registry::get().driver(device);
  BRAZE_CHECK(driver.has_host_memory() && checked_bytes(dtype, shape) == bytes.size(),
              "memory of the host with the bytes of the array");
  auto state = std::make_shared<Array::State>(
      dtype, std::move(shape), driver, const_cast<std::byte*>(bytes.data()), Buffer(), nullptr);
  state->owner = std::move(owner);
  return Array(std::move(state));
}

namespace {

/// An array that `copy(stream, data)` fills in this thread's current stream. `copy` returns a fence
/// after the copy, or null if the stream is the main one.
template <class Copy>
Array upload(DType dtype, std::vector<int64_t> shape, const Device& device, Copy&& copy) {
  const Stream in = current_stream(device);
  const size_t bytes = checked_bytes(dtype, shape);
  const Label label =
      std::make_shared<const std::string>(fmt::format("an array {}", type_text(dtype, shape)));
  Buffer buffer = in.driver().allocator().allocate(bytes, label, pool_of(in.stream().get()));
  std::byte* const data = buffer.data();
  std::shared_ptr<Work> ready;
  if (std::shared_ptr<Fence> fence = copy(in, data)) {
    ready = std::make_shared<Submitted>(std::move(fence));
  }
  auto state = std::make_shared<Array::State>(dtype, std::move(shape), in.driver(), data,
                                              std::move(buffer), std::move(ready));
  state->home = state->made_in = in.stream();
  return Array(std::move(state));
}

}  // namespace

Array Array::from_bytes(std::span<const std::byte> bytes, DType dtype, std::vector<int64_t> shape,
                        const Device& device) {
  const size_t wanted = checked_bytes(dtype, shape);
  if (bytes.size() != wanted) {
    const std::string given = bytes.size() % size_of(dtype) == 0
                                  ? fmt::format("{} elements of {} were given",
                                                bytes.size() / size_of(dtype), name(dtype))
                                  : fmt::format("{} bytes were given", bytes.size());
    fail(codes::kArrayType, fmt::format("{} for an array of {}, which has {} bytes", given,
                                        type_text(dtype, shape), wanted));
  }
  TraceSpan span("copy", "copy from host");
  if (span) span.add("device", device.name());
  span.add("bytes", wanted);
  std::vector<std::byte> bools;
  if (dtype == DType::Bool && !are_bools(bytes)) {
    bools.assign(bytes.begin(), bytes.end());
    make_bools(bools);
    bytes = bools;
  }
  return upload(dtype, std::move(shape), device, [&](const Stream& in, std::byte* to) {
    in.driver().copy_from_host(in.stream().get(), to, bytes);
    return in.stream() ? in.driver().fence(in.stream().get()) : nullptr;
  });
}

Array Array::from_host(const HostTensor& value, const Device& device) {
  return from_bytes({value.data(), value.size_bytes()}, value.dtype(), value.shape(), device);
}

DType Array::dtype() const { return spread_ ? spread_->dtype : state_of(state_).dtype; }

const std::vector<int64_t>& Array::shape() const {
  return spread_ ? spread_->shape : state_of(state_).shape;
}

int64_t Array::numel() const {
  return spread_ ? checked_numel(spread_->shape) : state_of(state_).numel;
}

size_t Array::size_bytes() const { return static_cast<size_t>(numel()) * size_of(dtype()); }

Device Array::device() const { return state_of(state()).driver.device(); }

Array Array::to(const Device& device) const {
  if (spread_) {
    // A replicated value may already be on the device.
    for (const Array& shard : spread_->shards)
      if (spread_->sharding.is_replicated() && shard.valid() && shard.device() == device)
        return shard;
    return from_host(to_host(), device);
  }
  State& state = state_of(state_);
  state.check_alive();
  if (device == state.driver.device()) return *this;
  TraceSpan span("copy", "copy to device");
  if (span) span.add("device", device.name());
  span.add("bytes", state.size_bytes());
  Array copy = make_array(state.dtype, state.shape, device, nullptr);
  const ArrayPin pin(state);
  if (state.numel > 0) {
    copy.state_->driver.copy_from_device(copy.state_->data, state.driver, state.data,
                                         state.size_bytes(), state.fence());
    // The source's main stream waits for the copy.
    if (state.home) state.add_use(0, state.driver.fence(nullptr));
  }
  return copy;
}

double Array::item() const {
  if (numel() != 1) {
    fail(codes::kArrayType, fmt::format("item() needs an array of one element; this is {}",
                                        braze::type_text(dtype(), shape())));
  }
  return to_host().get_double(0);
}

void Array::copy_to_host(std::span<std::byte> out) const {
  if (out.size() != size_bytes()) {
    fail(codes::kArrayType, fmt::format("{} bytes were given to copy {} B of {} to", out.size(),
                                        size_bytes(), braze::type_text(dtype(), shape())));
  }
  if (spread_) return gather_to_host(*spread_, out);
  State& state = state_of(state_);
  TraceSpan span("copy", "copy to host");
  span.add("bytes", out.size());
  const ArrayPin pin(state);
  state.driver.copy_to_host(out, state.data, state.fence());
  if (!state.driver.has_host_memory() && state.dtype == DType::Bool) make_bools(out);
  if (state.ready) state.ready->confirm();
}

namespace {

void check_fits(const PinnedMemory& memory, const std::string& type, size_t bytes) {
  if (memory.bytes().size() >= bytes) return;
  fail(codes::kArrayType, fmt::format("{} of pinned memory cannot hold {}, which has {}",
                                      bytes_text(memory.bytes().size()), type, bytes_text(bytes)));
}

}  // namespace

Array Array::from_pinned(const PinnedMemory& memory, DType dtype, std::vector<int64_t> shape,
                         const Device& device) {
  const size_t bytes = checked_bytes(dtype, shape);
  const std::string type = braze::type_text(dtype, shape);
  check_fits(memory, type, bytes);
  return upload(dtype, std::move(shape), device, [&](const Stream& in, std::byte* to) {
    std::shared_ptr<Fence> fence;
    if (bytes == 0) return fence;
    fence = in.driver().copy_pinned(in.stream().get(), to, memory.bytes().data(), bytes,
                                    /*to_host=*/false, nullptr);
    if (fence) memory.state()->add_use(fence);
    if (!fence && dtype == DType::Bool) make_bools({to, bytes});
    return fence;
  });
}

Event Array::copy_to_pinned(const PinnedMemory& memory) const {
  State& state = state_of(this->state());
  check_fits(memory, state.type_text(), state.size_bytes());
  if (state.numel == 0) return {};
  const ArrayPin pin(state);
  auto fence = state.driver.copy_pinned(state.made_in.get(), memory.bytes().data(), state.data,
                                        state.size_bytes(), /*to_host=*/true, state.fence());
  if (!fence) return {};
  memory.state()->add_use(fence);
  state.add_use(kCopiesOutPool, fence);
  return Event(std::make_shared<Event::State>(state.driver, std::move(fence)));
}

const void* Array::data() const {
  State& state = state_of(this->state());
  state.check_alive();
  state.wait();
  if (!state.driver.has_host_memory())
    state.order(current_stream(state.driver.device()).stream().get());
  return state.data;
}

HostTensor Array::to_host() const {
  HostTensor out(dtype(), shape());
  copy_to_host({out.data(), out.size_bytes()});
  return out;
}

void Array::wait() const {
  if (spread_) {
    for (const Array& shard : spread_->shards)
      if (shard.valid()) shard.wait();
    return;
  }
  const State& state = state_of(state_);
  state.check_alive();
  state.wait();
  if (Fence* fence = state.fence()) {
    fence->wait();
    return state.ready->confirm();
  }
  if (!state.driver.has_host_memory()) state.driver.fence(nullptr)->wait();
}

void Array::check_dtype(DType dtype) const {
  if (this->dtype() == dtype) return;
  fail(codes::kArrayType, fmt::format("this array is {}, not {}",
                                      braze::type_text(this->dtype(), shape()), name(dtype)));
}

template <>
std::vector<bool> Array::to_vector<bool>() const {
  check_dtype(DType::Bool);
  std::vector<std::byte> bytes(size_bytes());
  copy_to_host(bytes);
  std::vector<bool> out(bytes.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = bytes[i] != std::byte{0};
  return out;
}

}  // namespace braze
