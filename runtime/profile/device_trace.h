// device_trace.h — the work of devices on the timeline (ir/support/trace.h).
//
// A device with its own queue measures its work, which is written to the timeline when its times
// are known. On other devices, the thread that does the work measures it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ir/support/trace.h"
#include "runtime/devices/driver.h"
#include "runtime/execution/plan.h"

namespace braze {

/// The rows of a device on the timeline. There is one for each order in which it does work.
enum class Lane : uint8_t {
  Work,       ///< launches, fills and copies within the device
  CopiesIn,   ///< from the host
  CopiesOut,  ///< to the host or another device
  Together    ///< collectives with other devices
};

/// Something that a device did.
struct DeviceEvent {
  DeviceDriver* driver = nullptr;
  Lane lane = Lane::Work;
  std::string_view name;                       ///< lives as long as `program`, or for ever
  uint64_t bytes = 0;                          ///< bytes moved; for a launch: model bytes
  std::shared_ptr<Stopwatch> watch = nullptr;  ///< stopped; if it is null, the times below are used
  int64_t begin = 0, end = 0;                  ///< on the clock of trace::now()
  // For a launch.
  std::shared_ptr<const Program> program = nullptr;
  std::shared_ptr<const Binding> binding = nullptr;
  uint32_t launch = 0;
};
void trace_event(DeviceEvent event);

/// Traces the work that is put into a device's queue between its construction and its destruction.
class DeviceSpan {
 public:
  /// `name` lives for ever.
  DeviceSpan(DeviceDriver& driver, DeviceStream* stream, std::string_view name, uint64_t bytes)
      : DeviceSpan(driver, Lane::Work, name, bytes,
                   [&] { return driver.start_stopwatch(stream); }) {}
  /// The same in another queue than that of launches. `start` starts a stopwatch there.
  template <class Start>
  DeviceSpan(DeviceDriver& driver, Lane lane, std::string_view name, uint64_t bytes,
             Start&& start) {
    if (!trace::is_on()) [[likely]]
      return;
    event_ = {.driver = &driver, .lane = lane, .name = name, .bytes = bytes, .watch = start()};
    event_.begin = trace::now();
  }
  ~DeviceSpan() {
    if (event_.driver) [[unlikely]]
      end();
  }
  DeviceSpan(const DeviceSpan&) = delete;
  DeviceSpan& operator=(const DeviceSpan&) = delete;

 private:
  void end() noexcept;
  DeviceEvent event_;
};

/// Records on the device's row that host and device times agree to `nanoseconds`.
void trace_clock_error(const DeviceDriver& driver, int64_t nanoseconds);

/// Makes the timeline begin with the memory in use, and end with the work that is still running.
/// Must be called once.
void connect_devices_to_trace();

}  // namespace braze
