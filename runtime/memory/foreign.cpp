// foreign.cpp — arrays over memory that is not Braze's.
#include <algorithm>
#include <cstring>

#include "braze/array.h"
#include "ir/support/text.h"
#include "ir/support/warning.h"
#include "ir/values/bools.h"
#include "runtime/devices/registry.h"
#include "runtime/memory/array_state.h"

namespace braze {

namespace {

constexpr size_t kAlignment = 64;  // of what kernels are given

[[noreturn]] void refuse(const ForeignMemory& memory, const std::string& why,
                         const std::string& fix) {
  fail(codes::kForeignMemory,
       fmt::format("an array of {} cannot use this memory: {}",
                   type_text(memory.dtype, memory.shape), why),
       {.fix = fix});
}

bool is_dense(const ForeignMemory& memory) {
  int64_t expected = 1;
  for (size_t axis = memory.shape.size(); axis-- > 0;) {
    if (memory.shape[axis] != 1 && memory.strides[axis] != expected) return false;
    expected *= memory.shape[axis];
  }
  return true;
}

/// The elements in row-major order.
std::vector<std::byte> gathered(const ForeignMemory& memory, size_t bytes) {
  std::vector<std::byte> out(bytes);
  const size_t element = size_of(memory.dtype), rank = memory.shape.size();
  const auto* const first = static_cast<const std::byte*>(memory.data);
  std::vector<int64_t> at(rank, 0);
  int64_t offset = 0;
  for (size_t done = 0; done < bytes; done += element) {
    std::memcpy(out.data() + done, first + offset * static_cast<int64_t>(element), element);
    for (size_t axis = rank; axis-- > 0;) {
      offset += memory.strides[axis];
      if (++at[axis] < memory.shape[axis]) break;
      offset -= memory.strides[axis] * memory.shape[axis];
      at[axis] = 0;
    }
  }
  return out;
}

/// A copy on the device, in order with calls.
class DeviceCopy : public Work {
 public:
  DeviceCopy(DeviceDriver& driver, StreamRef stream, std::byte* to, const std::byte* from,
             size_t size)
      : driver_(driver), stream_(std::move(stream)), to_(to), from_(from), size_(size) {}

 protected:
  void execute() override {
    driver_.enter(stream_.get());
    driver_.copy(to_, from_, size_);
    fence_ = driver_.fence(stream_.get());
  }

 private:
  DeviceDriver& driver_;
  const StreamRef stream_;
  std::byte* const to_;
  const std::byte* const from_;
  const size_t size_;
};

Array copy_on_device(const ForeignMemory& memory, DeviceDriver& driver, size_t bytes,
                     std::shared_ptr<const void> owner) {
  const StreamRef stream = current_stream(memory.device).stream();
  const Label label = std::make_shared<const std::string>("a copy of memory of others");
  Buffer buffer = driver.allocator().allocate(bytes, label, stream ? stream->pool() : 0);
  std::byte* const to = buffer.data();
  const auto copy = std::make_shared<DeviceCopy>(driver, stream, to,
                                                 static_cast<const std::byte*>(memory.data), bytes);
  auto state = std::make_shared<Array::State>(memory.dtype, memory.shape, driver, to,
                                              std::move(buffer), copy);
  state->home = state->made_in = stream;
  driver.queue().submit(copy, 0, [] {});
  driver.queue().wait(*copy);
  driver.release_after(stream.get(), {}, std::move(owner));
  return Array(std::move(state));
}

void say_copied(const ForeignMemory& memory, std::string_view why) {
  warn(fmt::format("the memory of the host program for an array of {} was copied: {}",
                   type_text(memory.dtype, memory.shape), why));
}

}  // namespace

Array Array::borrow(ForeignMemory memory) {
  // The memory is let go of whatever happens from here on.
  std::shared_ptr<const void> owner;
  if (memory.release) {
    owner = std::shared_ptr<const void>(
        memory.data, [release = std::move(memory.release)](const void*) { release(); });
  }
  const auto elements = static_cast<size_t>(checked_numel(memory.shape));
  size_t bytes = 0;
  if (__builtin_mul_overflow(elements, size_of(memory.dtype), &bytes))
    fail(codes::kOutOfMemory, "an array has more bytes than can be addressed");
  if (bytes > 0 && !memory.data) refuse(memory, "it is null", "pass the first element's address");
  if (!memory.strides.empty() && memory.strides.size() != memory.shape.size())
    refuse(
        memory,
        fmt::format("{} strides are given for {} axes", memory.strides.size(), memory.shape.size()),
        "give one stride for each axis, or none");
  DeviceDriver& driver = Registry::get().driver(memory.device);
  if (bytes > 0 && !driver.owns(memory.data))
    refuse(memory, fmt::format("it is not in the memory of {}", driver.name()),
           "name the device that the memory is on");

  const bool on_host = driver.has_host_memory();
  const bool dense = memory.strides.empty() || bytes == 0 || is_dense(memory);
  const bool aligned = reinterpret_cast<uintptr_t>(memory.data) % kAlignment == 0;
  std::string why;
  if (!dense) {
    why = "it is strided";
  } else if (bytes > 0 && !aligned) {
    why = fmt::format("it is not aligned to {} bytes", kAlignment);
  } else if (on_host && memory.dtype == DType::Bool &&
             !are_bools({static_cast<const std::byte*>(memory.data), bytes})) {
    why = "its bools are not all 0 or 1";
  }
  if (!why.empty() && (!memory.may_copy || (!dense && !on_host)))
    refuse(memory, why,
           dense ? "allow a copy (may_copy)" : "make it contiguous, in row-major order");

  if (!why.empty()) {
    say_copied(memory, why);
    if (!on_host) return copy_on_device(memory, driver, bytes, std::move(owner));
    if (dense)
      return from_bytes({static_cast<const std::byte*>(memory.data), bytes}, memory.dtype,
                        memory.shape, memory.device);
    return from_bytes(gathered(memory, bytes), memory.dtype, memory.shape, memory.device);
  }
  const StreamRef stream = on_host ? nullptr : current_stream(memory.device).stream();
  auto state = std::make_shared<State>(
      memory.dtype, memory.shape, driver, static_cast<std::byte*>(memory.data), Buffer(),
      stream ? std::make_shared<Submitted>(driver.fence(stream.get())) : nullptr);
  state->home = state->made_in = stream;
  // Memory without an owner of its own is still not Braze's.
  state->owner = owner ? std::move(owner) : std::shared_ptr<const void>(state.get(), [](auto*) {});
  return Array(std::move(state));
}

}  // namespace braze
