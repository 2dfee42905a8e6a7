#include "braze/array.h"

#include "braze/trace.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "ir/values/bools.h"
#include "ir/values/host_tensor.h"
#include "runtime/devices/registry.h"
#include "runtime/memory/array_state.h"

namespace braze {

namespace {

Array::State& state_of(const std::shared_ptr<Array::State>& state) {
  if (!state) fail(codes::kEmptyArray, "this Array handle holds no array");
  return *state;
}

/// Bytes of a tensor; ResourceExhausted if that is no number.
size_t checked_bytes(DType dtype, std::span<const int64_t> shape) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(checked_numel(shape)), size_of(dtype), &bytes)) {
    fail(codes::kOutOfMemory,
         fmt::format("an array of {} has more bytes than there are", type_text(dtype, shape)));
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

std::string Array::State::type_text() const { return braze::type_text(dtype, shape); }

void Array::State::check_alive() const {
  if (!donated.load()) return;
  fail(codes::kDonatedArray,
       fmt::format("this array, {}, was donated to a call of @{} and holds no value any more",
                   type_text(), *taken_by),
       {.location = {}, .node = "", .fix = "use the result that took its place"});
}

void Array::State::wait() const {
  // What is in the host's memory by now can still be read there.
  if (!driver.has_host_memory()) refuse_if_forked();
  if (!ready) return;
  if (!ready->done()) driver.stream().wait(*ready);
  ready->rethrow();
}

void Array::State::await_readers() const {
  for (int readers = pins.load(); readers > 0; readers = pins.load()) pins.wait(readers);
}

ArrayPin::ArrayPin(Array::State& state) : state_(state) {
  state_.pins.fetch_add(1);
  try {
    state_.check_alive();
    state_.wait();
  } catch (...) {
    let_go();
    throw;
  }
}

ArrayPin::~ArrayPin() { let_go(); }

void ArrayPin::let_go() {
  if (state_.pins.fetch_sub(1) == 1) state_.pins.notify_all();
}

Array make_array(DType dtype, std::vector<int64_t> shape, const Device& device,
                 const Label& label) {
  DeviceDriver& driver = Registry::get().driver(device);
  const size_t bytes = checked_bytes(dtype, shape);
  // What no graph named is told apart by its type.
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
  Array array = make_array(dtype, std::move(shape), device, nullptr);
  array.state_->driver.copy_from_host(array.state_->data, bytes);
  return array;
}

Array Array::from_host(const HostTensor& value, const Device& device) {
  return from_bytes({value.data(), value.size_bytes()}, value.dtype(), value.shape(), device);
}

DType Array::dtype() const { return state_of(state_).dtype; }

const std::vector<int64_t>& Array::shape() const { return state_of(state_).shape; }

int64_t Array::numel() const { return state_of(state_).numel; }

size_t Array::size_bytes() const { return state_of(state_).size_bytes(); }

Device Array::device() const { return state_of(state_).driver.device(); }

Array Array::to(const Device& device) const {
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
  }
  return copy;
}

double Array::item() const {
  const State& state = state_of(state_);
  if (state.numel != 1) {
    fail(codes::kArrayType,
         fmt::format("item() needs an array of one element; this is {}", state.type_text()));
  }
  return to_host().get_double(0);
}

void Array::copy_to_host(std::span<std::byte> out) const {
  State& state = state_of(state_);
  if (out.size() != state.size_bytes()) {
    fail(codes::kArrayType, fmt::format("{} bytes were given to copy {} B of {} to", out.size(),
                                        state.size_bytes(), state.type_text()));
  }
  TraceSpan span("copy", "copy to host");
  span.add("bytes", out.size());
  const ArrayPin pin(state);
  state.driver.copy_to_host(out, state.data, state.fence());
}

HostTensor Array::to_host() const {
  HostTensor out(dtype(), shape());
  copy_to_host({out.data(), out.size_bytes()});
  return out;
}

void Array::wait() const {
  const State& state = state_of(state_);
  state.check_alive();
  state.wait();
  if (Fence* fence = state.fence()) fence->wait();
}

void Array::check_dtype(DType dtype) const {
  const State& state = state_of(state_);
  if (state.dtype == dtype) return;
  fail(codes::kArrayType, fmt::format("this array is {}, not {}", state.type_text(), name(dtype)));
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
