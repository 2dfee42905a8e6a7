// launch_log.h — the launches that happened, for `launch_history`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "ir/program/program.h"
#include "runtime/devices/driver.h"

namespace braze {

bool are_launches_recorded();

/// Times one launch from its construction to its destruction, if launches are recorded: on the
/// device where it has a queue of its own, else on the host.
class LaunchTimer {
 public:
  /// Keeps references to the arguments.
  LaunchTimer(const std::shared_ptr<const Program>& program, uint32_t launch, DeviceDriver& driver,
              uint64_t bytes, uint64_t flops);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

 private:
  const std::shared_ptr<const Program>& program_;
  DeviceDriver& driver_;
  const uint32_t launch_;
  const uint64_t bytes_, flops_;
  const bool on_;
  std::shared_ptr<Stopwatch> watch_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace braze
