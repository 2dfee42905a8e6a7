#include "runtime/profile/speeds.h"

#include <algorithm>
#include <memory>

#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/registry.h"

namespace braze {

namespace {

// Well above the caches of a GPU.
constexpr size_t kCopied = 256 << 20;
constexpr int kRounds = 5;

/// Copies some times, each with its own stopwatch.
class TimedCopies : public Work {
 public:
  explicit TimedCopies(DeviceDriver& driver)
      : driver_(driver),
        from_(driver.allocator().allocate(kCopied, nullptr)),
        to_(driver.allocator().allocate(kCopied, nullptr)) {}

  /// The shortest; only once done.
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
      watches_.push_back(driver_.start_stopwatch());
      driver_.copy(to_.data(), from_.data(), kCopied);
      watches_.back()->stop();
    }
  }

 private:
  DeviceDriver& driver_;
  const Buffer from_, to_;
  std::vector<std::shared_ptr<Stopwatch>> watches_;
};

Target measure_gpu(DeviceDriver& driver) {
  Target target = driver.target();
  try {
    const auto copies = std::make_shared<TimedCopies>(driver);
    driver.stream().submit(copies, 0, [] {});
    driver.stream().wait(*copies);
    copies->rethrow();
    if (const double seconds = copies->seconds(); seconds > 0) {
      target.memory_bytes_per_second = 2.0 * kCopied / seconds;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::ResourceExhausted) throw;
  }
  return target;
}

}  // namespace

Target measure_speeds(const Device& device) {
  DeviceDriver& driver = Registry::get().driver(device);
  switch (device.kind()) {
    case DeviceKind::Cpu:
      return measure_speeds(driver.target());
    case DeviceKind::Cuda:
      return measure_gpu(driver);
    case DeviceKind::Simulator:
    case DeviceKind::Interpreter:
      break;
  }
  return driver.target();
}

}  // namespace braze
