// launch_log.h — records launches, for `launch_history` and the timeline.
#pragma once

#include <cstdint>
#include <memory>

#include "ir/program/program.h"
#include "ir/support/trace.h"
#include "runtime/devices/driver.h"
#include "runtime/execution/plan.h"

namespace braze {

bool are_launches_recorded();

/// Whether launches are made one by one, because each is recorded or traced.
inline bool are_launches_watched() { return are_launches_recorded() || trace::is_on(); }

/// Times one launch from its construction to its destruction, if launches are watched. A device
/// with its own queue measures the launch; for other devices the host does.
class LaunchTimer {
 public:
  /// Keeps references to the arguments.
  LaunchTimer(const std::shared_ptr<const Program>& program,
              const std::shared_ptr<const Binding>& binding, uint32_t launch, DeviceDriver& driver,
              DeviceStream* stream)
      : program_(program), binding_(binding), driver_(driver), launch_(launch) {
    if (are_launches_watched()) [[unlikely]]
      start(stream);
  }
  ~LaunchTimer() {
    if (begin_ != 0) [[unlikely]]
      stop();
  }
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

 private:
  void start(DeviceStream* stream);
  void stop() noexcept;

  const std::shared_ptr<const Program>& program_;
  const std::shared_ptr<const Binding>& binding_;
  DeviceDriver& driver_;
  const uint32_t launch_;
  std::shared_ptr<Stopwatch> watch_;
  int64_t begin_ = 0;  // on the clock of trace::now(); 0: it is not timed
};

}  // namespace braze
