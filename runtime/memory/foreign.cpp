// foreign.cpp — arrays over memory that Braze does not own.
#include <algorithm>
#include <cstring>

#include "braze/array.h"
#include "ir/support/config.h"
#include "ir/support/text.h"
#include "ir/support/warning.h"
#include "ir/values/bools.h"
#include "runtime/devices/registry.h"
#include "runtime/memory/array_state.h"

namespace braze {

namespace {

constexpr size_t kAlignment = 64;  // of memory that kernels access

[[noreturn]] void refuse(const ForeignMemory& memory, const std::string& why,
                         const std::string& fix) {
  fail(codes::kForeignMemory,
       fmt::format("an array of {} cannot use this memory: {}",
                   type_text(memory.dtype, memory.shape), why),
       {.fix = fix});
}

/// The copy that makes the memory dense. It has the axes with more than one element. Neighbouring
/// axes that run through memory as one are merged, and a dense part becomes the copy's element.
StridedCopy dense_copy_of(const ForeignMemory& memory) {
  const auto size = static_cast<int64_t>(size_of(memory.dtype));
  StridedCopy copy{.bytes = size_of(memory.dtype)};
  int64_t dense = size;
  for (size_t i = memory.shape.size(); i-- > 0;) {
    const int64_t extent = memory.shape[i];
    if (extent == 1) continue;
    const int64_t stride = memory.strides.empty() ? dense : memory.strides[i] * size;
    dense *= extent;
    if (copy.axes.empty() && stride == static_cast<int64_t>(copy.bytes)) {
      copy.bytes *= static_cast<size_t>(extent);
    } else if (!copy.axes.empty() && copy.axes.back().stride * copy.axes.back().extent == stride) {
      copy.axes.back().extent *= extent;
    } else {
      copy.axes.push_back({extent, stride});
    }
  }
  std::ranges::reverse(copy.axes);
  return copy;
}

/// The distances of the first and the last byte from the first element. It rejects strides that
/// reach further than any address, so that nothing below overflows.
std::pair<int64_t, int64_t> reach_of(const ForeignMemory& memory, size_t bytes) {
  constexpr int64_t kFurthest = int64_t{1} << 48;
  const auto size = static_cast<int64_t>(size_of(memory.dtype));
  int64_t first = 0, last = size - 1;
  if (memory.strides.empty()) return {0, static_cast<int64_t>(bytes) - 1};
  for (size_t i = 0; i < memory.strides.size(); ++i) {
    int64_t far = 0;
    const bool overflows = __builtin_mul_overflow(memory.strides[i], memory.shape[i] - 1, &far) ||
                           __builtin_mul_overflow(far, size, &far);
    if (overflows || far > kFurthest || far < -kFurthest)
      refuse(memory, fmt::format("its stride {} leads beyond all addresses", memory.strides[i]),
             "pass strides in elements");
    (far < 0 ? first : last) += far;
  }
  return {first, last};
}

/// A dense copy on the device, which is ordered with calls.
class DeviceCopy : public Work {
 public:
  DeviceCopy(DeviceDriver& driver, StreamRef stream, std::byte* to, const std::byte* from,
             StridedCopy copy)
      : driver_(driver), stream_(std::move(stream)), to_(to), from_(from), copy_(std::move(copy)) {}

 protected:
  void execute() override {
    driver_.copy_strided(stream_.get(), to_, from_, copy_);
    fence_ = driver_.fence(stream_.get());
  }

 private:
  DeviceDriver& driver_;
  const StreamRef stream_;
  std::byte* const to_;
  const std::byte* const from_;
  const StridedCopy copy_;
};

Array copy_on_device(const ForeignMemory& memory, DeviceDriver& driver, size_t bytes,
                     std::shared_ptr<const void> owner) {
  StridedCopy dense = dense_copy_of(memory);
  if (dense.axes.size() > StridedCopy::kMostAxes)
    refuse(memory,
           fmt::format("it is strided along {} axes, and a GPU copies along at most {}",
                       dense.axes.size(), StridedCopy::kMostAxes),
           "make it contiguous, in row-major order");
  const StreamRef stream = current_stream(memory.device).stream();
  const Label label = std::make_shared<const std::string>("a copy of memory of others");
  Buffer buffer = driver.allocator().allocate(bytes, label, pool_of(stream.get()));
  std::byte* const to = buffer.data();
  const auto copy = std::make_shared<DeviceCopy>(
      driver, stream, to, static_cast<const std::byte*>(memory.data), std::move(dense));
  auto state = std::make_shared<Array::State>(memory.dtype, memory.shape, driver, to,
                                              std::move(buffer), copy);
  state->home = state->made_in = stream;
  driver.queue().submit(
      copy, 0, [] {}, pool_of(stream.get()));
  driver.queue().wait(*copy);
  driver.release_after(stream.get(), {}, std::move(owner));
  return Array(std::move(state));
}

Array copy_on_host(const ForeignMemory& memory, DeviceDriver& driver, size_t bytes) {
  Array copy = make_array(memory.dtype, memory.shape, memory.device, nullptr);
  std::byte* const to = copy.state()->data;
  driver.copy_strided(nullptr, to, static_cast<const std::byte*>(memory.data),
                      dense_copy_of(memory));
  if (memory.dtype == DType::Bool) make_bools({to, bytes});
  return copy;
}

/// Calls the host program's function. Exceptions are dropped, because no caller could handle them.
void call_release(const std::function<void()>& release) noexcept {
  try {
    release();
  } catch (const std::exception& error) {
    write_log(LogLevel::Error, fmt::format("the function that releases memory of the host program "
                                           "threw: {}",
                                           error.what()));
  } catch (...) {
    write_log(LogLevel::Error, "the function that releases memory of the host program threw");
  }
}

void say_copied(const ForeignMemory& memory, std::string_view why) {
  warn(fmt::format("the memory of the host program for an array of {} was copied: {}",
                   type_text(memory.dtype, memory.shape), why));
}

}  // namespace

Array Array::borrow(ForeignMemory memory) {
  // From here on, the memory is released whatever happens.
  std::shared_ptr<const void> owner;
  if (memory.release) {
    owner = std::shared_ptr<const void>(
        memory.data, [release = std::move(memory.release)](const void*) { call_release(release); });
  }
  const auto elements = static_cast<size_t>(checked_numel(memory.shape));
  size_t bytes = 0;
  if (__builtin_mul_overflow(elements, size_of(memory.dtype), &bytes))
    fail(codes::kOutOfMemory, fmt::format("an array of {} has more bytes than can be addressed",
                                          type_text(memory.dtype, memory.shape)));
  if (bytes > 0 && !memory.data) refuse(memory, "it is null", "pass the first element's address");
  if (!memory.strides.empty() && memory.strides.size() != memory.shape.size())
    refuse(
        memory,
        fmt::format("{} strides are given for {} axes", memory.strides.size(), memory.shape.size()),
        "give one stride for each axis, or none");
  DeviceDriver& driver = Registry::get().driver(memory.device);
  if (bytes > 0) {
    const auto [first, last] = reach_of(memory, bytes);
    const auto* const data = static_cast<const std::byte*>(memory.data);
    if (!driver.owns(data + first) || !driver.owns(data + last))
      refuse(memory, fmt::format("it is not in the memory of {}", driver.name()),
             "name the device that the memory is on");
  }

  const bool on_host = driver.has_host_memory();
  const bool dense = memory.strides.empty() || bytes == 0 || dense_copy_of(memory).axes.empty();
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
  if (!why.empty()) {
    if (!memory.may_copy)
      refuse(memory, why,
             dense ? "allow a copy (may_copy)"
                   : "make it contiguous, in row-major order, or allow a copy (may_copy)");
    Array copy = on_host ? copy_on_host(memory, driver, bytes)
                         : copy_on_device(memory, driver, bytes, std::move(owner));
    say_copied(memory, why);
    return copy;
  }
  const StreamRef stream = on_host ? nullptr : current_stream(memory.device).stream();
  auto state = std::make_shared<State>(
      memory.dtype, memory.shape, driver, static_cast<std::byte*>(memory.data), Buffer(),
      stream ? std::make_shared<Submitted>(driver.fence(stream.get())) : nullptr);
  state->home = state->made_in = stream;
  // An owner marks the memory as not belonging to Braze, even if nothing needs to be released.
  state->owner = owner ? std::move(owner) : std::shared_ptr<const void>(state.get(), [](auto*) {});
  return Array(std::move(state));
}

}  // namespace braze
