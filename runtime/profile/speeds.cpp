#include "runtime/profile/speeds.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "runtime/devices/cpu/host_speeds.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/registry.h"

namespace braze {

namespace {

// The bytes of copies. The first is much larger than the caches of a GPU, and both are so large
// that the start of a copy does not matter.
constexpr size_t kFarCopy = 256 << 20, kNearCopy = 16 << 20;
constexpr int kRounds = 5;

/// Copies several times, each time with its own stopwatch.
class TimedCopies : public Work {
 public:
  TimedCopies(DeviceDriver& driver, size_t bytes)
      : driver_(driver),
        bytes_(bytes),
        from_(driver.allocator().allocate(bytes, nullptr)),
        to_(driver.allocator().allocate(bytes, nullptr)) {}

  /// The shortest time. Call it only when all copies are done.
  double seconds() const {
    double best = 0;
    for (const auto& watch : watches_) {
      const double taken = watch->seconds();
      best = best > 0 ? std::min(best, taken) : taken;
    }
    return best;
  }

 protected:
  void execute() override {
    for (int i = 0; i < kRounds; ++i) {
      watches_.push_back(driver_.start_stopwatch(nullptr));
      driver_.copy(nullptr, to_.data(), from_.data(), bytes_);
      watches_.back()->stop();
    }
  }

 private:
  DeviceDriver& driver_;
  const size_t bytes_;
  const Buffer from_, to_;
  std::vector<std::shared_ptr<Stopwatch>> watches_;
};

/// The bytes that copies of this size read and write per second; none if there is not enough
/// memory.
std::optional<double> copy_speed(DeviceDriver& driver, size_t bytes) {
  try {
    const auto copies = std::make_shared<TimedCopies>(driver, bytes);
    driver.queue().submit(copies, 0, [] {});
    driver.queue().wait(*copies);
    copies->rethrow();
    if (const double seconds = copies->seconds(); seconds > 0)
      return 2.0 * static_cast<double>(bytes) / seconds;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::ResourceExhausted) throw;
  }
  return std::nullopt;
}

int threads_of(const Target& target) { return std::clamp(target.cores, 1, usable_cores()); }

// A number of bytes that exceeds all caches. The target has the size of one processor's last cache,
// and there may be several processors.
double far_bytes(const Target& target) {
  return std::max(128.0 * (1 << 20), 4.0 * static_cast<double>(target.l3_bytes));
}

}  // namespace

double least_seconds(const Device& device, double read, double written) {
  DeviceDriver& driver = Registry::get().driver(device);
  const Target& target = driver.target();
  const double bytes = read + written, nominal = bytes / target.memory_bytes_per_second;
  if (device.kind() == DeviceKind::Cpu) {
    const double seconds = measure_host_moves(threads_of(target), read, written, far_bytes(target));
    return seconds > 0 ? seconds : nominal;
  }
  if (device.kind() != DeviceKind::Cuda) return nominal;
  const double half = std::clamp<double>(bytes / 2, kNearCopy, kFarCopy);
  const std::optional<double> speed = copy_speed(driver, static_cast<size_t>(half) / 256 * 256);
  return speed ? bytes / *speed : nominal;
}

Speeds measure_speeds(const Device& device) {
  DeviceDriver& driver = Registry::get().driver(device);
  const Target& target = driver.target();
  Speeds speeds{target.memory_bytes_per_second, target.flops_per_second};
  if (device.kind() == DeviceKind::Cuda)
    speeds.copy_bytes_per_second =
        copy_speed(driver, kFarCopy).value_or(speeds.copy_bytes_per_second);
  if (device.kind() != DeviceKind::Cpu) return speeds;
  const double bytes = far_bytes(target), seconds = least_seconds(device, bytes / 2, bytes / 2);
  if (seconds > 0) speeds.copy_bytes_per_second = bytes / seconds;
  if (const double flops = measure_host_flops(threads_of(target), target.vector_bytes); flops > 0)
    speeds.flops_per_second = flops;
  return speeds;
}

}  // namespace braze
