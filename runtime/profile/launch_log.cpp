#include "runtime/profile/launch_log.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "braze/executable.h"

namespace braze {

namespace {

constexpr size_t kMostRecords = 65536;

// Stopwatches hold objects of the driver: those of launches longer ago are read.
constexpr ptrdiff_t kMostRunning = 1024;

/// Names are looked up when someone asks, not at every launch.
struct Record {
  std::shared_ptr<const Program> program;
  Device device;
  uint32_t launch;
  double seconds;
  std::shared_ptr<Stopwatch> watch;  // null once `seconds` holds what it says
  uint64_t bytes, flops;

  void read_watch() {
    if (watch) seconds = watch->seconds();
    watch.reset();
  }
};

struct Log {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::deque<Record> records;
};

// Lives to the end of the process, like the devices that write to it.
Log& launch_log() {
  static auto* log = new Log;
  return *log;
}

}  // namespace

bool are_launches_recorded() { return launch_log().on.load(std::memory_order_relaxed); }

LaunchTimer::LaunchTimer(const std::shared_ptr<const Program>& program, uint32_t launch,
                         DeviceDriver& driver, uint64_t bytes, uint64_t flops)
    : program_(program),
      driver_(driver),
      launch_(launch),
      bytes_(bytes),
      flops_(flops),
      on_(are_launches_recorded()) {
  if (!on_) return;
  watch_ = driver.start_stopwatch();
  start_ = std::chrono::steady_clock::now();
}

LaunchTimer::~LaunchTimer() {
  if (!on_) return;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start_;
  if (watch_) watch_->stop();
  Log& log = launch_log();
  const std::lock_guard lock(log.mutex);
  if (log.records.size() == kMostRecords) log.records.pop_front();
  log.records.push_back(
      {program_, driver_.device(), launch_, taken.count(), std::move(watch_), bytes_, flops_});
  if (log.records.size() > kMostRunning) log.records.end()[-kMostRunning].read_watch();
}

void record_launches(bool on) { launch_log().on = on; }

std::vector<LaunchRecord> launch_history() {
  std::deque<Record> records;
  {
    Log& log = launch_log();
    const std::lock_guard lock(log.mutex);
    for (Record& record : log.records) record.read_watch();
    records = log.records;
  }
  std::vector<LaunchRecord> history;
  history.reserve(records.size());
  for (const Record& r : records) {
    history.push_back({r.program->launches[r.launch].name, r.program->name, r.device, r.seconds,
                       r.bytes, r.flops});
  }
  return history;
}

void clear_launch_history() {
  Log& log = launch_log();
  const std::lock_guard lock(log.mutex);
  log.records.clear();
}

}  // namespace braze
