// stream.h — Stream, Event, PinnedMemory: in which order a device does things, and beside what.
//
//   Stream ours(gpu), theirs = Stream::of_host(gpu, cuda_stream);
//   {
//     StreamGuard guard(theirs);   // this thread's calls run there
//     y = f(x);                    // behind what the host application put into its stream
//   }
//
// A device does what it is told in the order of its main stream. A call may run in another stream,
// beside the calls of the main one and of others; an array that crosses from one to another is
// waited for where it must be, and memory is reused only once all streams are done with it. On
// devices that do one thing at a time, such as "cpu", all streams are one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "braze/device.h"

namespace braze {

class DeviceDriver;
class DeviceStream;

/// A point in a stream. A cheap handle; may be used from any thread.
class Event {
 public:
  /// A point before everything.
  Event() = default;
  /// Blocks until everything before it is complete. Throws Device if some of it failed.
  void wait() const;
  /// Whether everything before it is complete, or some of it failed, which `wait` tells.
  bool done() const;
  /// The CUevent, for the host application's streams; it is recorded, and lives as long as a copy
  /// of this. Null on devices without a driver's events.
  void* native() const;

  struct State;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}  ///< for Braze itself
  const std::shared_ptr<State>& state() const { return state_; }              ///< for Braze itself

 private:
  std::shared_ptr<State> state_;
};

/// An order of work on a device. A cheap handle; may be used from any thread. Arrays keep the
/// stream that they were made in.
class Stream {
 public:
  /// A new stream, beside all others.
  explicit Stream(const Device& device);
  /// The stream that calls use where there is no StreamGuard.
  static Stream main(const Device& device);
  /// A stream of the host application's on a GPU: a CUstream, which may be null for CUDA's default
  /// stream. It must live as long as this, its copies and the arrays made in it. Unsupported on
  /// other devices.
  static Stream of_host(const Device& device, void* cuda_stream);

  Device device() const;  ///< whose it is
  /// The CUstream, into which the host application may put work of its own; null on devices without
  /// a driver's streams.
  void* native() const;

  /// A point behind everything in the stream so far.
  Event record() const;
  /// What comes later into the stream waits for `event`, which may be of another device.
  void wait(const Event& event) const;
  /// The same for an event of the host application's, a CUevent that has been recorded.
  /// Unsupported on devices without a driver's events.
  void wait_native(void* cuda_event) const;
  /// Blocks until everything in the stream so far is complete. Throws Device if some of it failed.
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

/// Has this thread's calls on the stream's device run in `stream`, for a scope.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);  ///< until it goes out of scope
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
};

/// The stream of this thread's innermost StreamGuard for `device`, else its main stream.
Stream current_stream(const Device& device);

/// Memory of the host that a GPU copies from and to at full speed while the host goes on; ordinary
/// memory for other devices. A cheap handle: copies of it are the same memory, which goes with the
/// last of them and the last copy that is under way. Array::from_pinned and Array::copy_to_pinned
/// use it.
class PinnedMemory {
 public:
  /// ResourceExhausted where memory ends.
  explicit PinnedMemory(size_t bytes, const Device& device = default_device());
  /// All of it. What a copy reads or writes must be left alone until that copy is complete.
  std::span<std::byte> bytes() const;

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<State> state_;
};

}  // namespace braze
