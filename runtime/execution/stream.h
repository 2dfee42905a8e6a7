// stream.h — the state behind the handles of braze/stream.h.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "braze/stream.h"
#include "runtime/devices/driver.h"

namespace braze {

/// A fence, or work that may not have been executed yet.
struct Event::State {
  State(DeviceDriver& of, std::shared_ptr<Fence> at) : driver(of), fence(std::move(at)) {}
  State(DeviceDriver& of, std::shared_ptr<Work> behind) : driver(of), work(std::move(behind)) {}

  DeviceDriver& driver;
  std::shared_ptr<Fence> fence;  // null if `work` is not null
  std::shared_ptr<Work> work;    // of a device without its own queue
};

struct PinnedMemory::State {
  State(DeviceDriver& of, size_t bytes);
  ~State();
  /// Notes a copy that reads or writes the memory.
  void add_use(std::shared_ptr<Fence> fence);

  DeviceDriver& driver;
  const size_t size;
  std::byte* const data;
  std::mutex mutex;
  std::vector<std::shared_ptr<Fence>> uses;  // copies that may still be under way
};

/// Called at the beginning and end of a StreamGuard.
void enter_stream(Stream stream);
void leave_stream() noexcept;
/// The stream for this thread's calls on the device.
StreamRef current_stream_of(const DeviceDriver& driver);

}  // namespace braze
