// stream.h — Stream, Event and PinnedMemory: the order in which a device works.
//
//   Stream ours(gpu), theirs = Stream::of_host(gpu, cuda_stream);
//   {
//     StreamGuard guard(theirs);   // this thread's calls run there
//     y = f(x);                    // after the work that the host program put into its stream
//   }
//
// By default a device works in the order of its main stream. Calls in different streams can run at
// the same time, and threads that call in different streams of a GPU do not wait for each other
// while they submit. When an array is used in another stream, that stream waits if it must. Memory
// is reused only when all streams have finished with it. On devices that do one thing at a time,
// such as "cpu", all streams are one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "braze/device.h"

namespace braze {

class DeviceDriver;
class DeviceStream;

/// A point in a stream. A cheap handle; any thread may use it.
class Event {
 public:
  /// A point before everything.
  Event() = default;
  /// Waits until all work before it is complete. Throws Device if some of that work failed.
  void wait() const;
  /// Whether all work before it is complete or some of it failed; `wait` reports the failure.
  bool done() const;
  /// The CUevent, for streams of the host program. It is recorded, and lives as long as a copy of
  /// this object. Null on devices that have no such events.
  void* native() const;

  struct State;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}  ///< for Braze itself
  const std::shared_ptr<State>& state() const { return state_; }              ///< for Braze itself

 private:
  std::shared_ptr<State> state_;
};

/// A queue of work on a device. A cheap handle; any thread may use it. Arrays keep alive the stream
/// in which they were made.
class Stream {
 public:
  /// A new stream.
  explicit Stream(const Device& device);
  /// The stream that calls use without a StreamGuard.
  static Stream main(const Device& device);
  /// A stream of the host program on a GPU: a CUstream, or null for CUDA's default stream. It must
  /// live as long as this object, its copies and the arrays made in it. Unsupported on other
  /// devices.
  static Stream of_host(const Device& device, void* cuda_stream);

  Device device() const;  ///< the device of the stream
  /// The CUstream. The host program may put work of its own into it. Null on devices that have no
  /// such streams.
  void* native() const;

  /// A point after all work that is in the stream now.
  Event record() const;
  /// Makes all later work of the stream wait for `event`, which may belong to another device.
  void wait(const Event& event) const;
  /// The same for an event of the host program, a CUevent that has been recorded. Unsupported on
  /// devices that have no such events.
  void wait_native(void* cuda_event) const;
  /// Waits until all work that is in the stream now is complete. Throws Device if some of it
  /// failed.
  void synchronize() const;

  /// For Braze itself.
  Stream(DeviceDriver& driver, std::shared_ptr<DeviceStream> stream)
      : driver_(&driver), stream_(std::move(stream)) {}
  DeviceDriver& driver() const { return *driver_; }                        ///< for Braze itself
  const std::shared_ptr<DeviceStream>& stream() const { return stream_; }  ///< for Braze itself

 private:
  DeviceDriver* driver_;
  std::shared_ptr<DeviceStream> stream_;  // null: the main one
};

/// Makes this thread's calls on the stream's device run in the stream, for a scope.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);  ///< until it goes out of scope
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
};

/// The stream of this thread's innermost StreamGuard for `device`, or its main stream.
Stream current_stream(const Device& device);

/// Host memory that a GPU copies from and to at full speed while the host continues; ordinary
/// memory for other devices. A cheap handle: copies of it share the memory. The memory is freed
/// with the last handle and the last running copy. Array::from_pinned and Array::copy_to_pinned use
/// it.
class PinnedMemory {
 public:
  /// ResourceExhausted if there is not enough memory.
  explicit PinnedMemory(size_t bytes, const Device& device = default_device());
  /// All bytes. Do not change what a running copy reads or writes until that copy is complete.
  std::span<std::byte> bytes() const;

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<State> state_;
};

}  // namespace braze
