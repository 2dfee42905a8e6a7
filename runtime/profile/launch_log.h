// launch_log.h — the launches that happened, for `launch_history`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "braze/device.h"
#include "ir/program/program.h"

namespace braze {

/// Times one launch from its construction to its destruction, if launches are recorded.
class LaunchTimer {
 public:
  /// Keeps references to the arguments.
  LaunchTimer(const std::shared_ptr<const Program>& program, uint32_t launch, const Device& device,
              uint64_t bytes, uint64_t flops);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

 private:
  const std::shared_ptr<const Program>& program_;
  const Device& device_;
  const uint32_t launch_;
  const uint64_t bytes_, flops_;
  const bool on_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace braze
