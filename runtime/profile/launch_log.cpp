#include "runtime/profile/launch_log.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "braze/executable.h"
#include "runtime/profile/device_trace.h"

namespace braze {

namespace {

constexpr size_t kMostRecords = 65536;

// Stopwatches hold objects of the driver, so those of older launches are read early.
constexpr ptrdiff_t kMostRunning = 1024;

/// A launch. Names are looked up when they are requested, and not at every launch.
struct Record {
  std::shared_ptr<const Program> program;
  Device device;
  uint32_t launch;
  double seconds;
  std::shared_ptr<Stopwatch> watch;  // null once `seconds` holds its result
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

  void add(Record record) {
    const std::lock_guard lock(mutex);
    if (records.size() == kMostRecords) records.pop_front();
    records.push_back(std::move(record));
    if (records.size() > kMostRunning) records.end()[-kMostRunning].read_watch();
  }
};

// It is never destroyed, like the devices that write to it.
Log& launch_log() {
  static auto* log = new Log;
  return *log;
}

}  // namespace

bool are_launches_recorded() { return launch_log().on.load(std::memory_order_relaxed); }

void LaunchTimer::start(DeviceStream* stream) {
  watch_ = driver_.start_stopwatch(stream);
  begin_ = trace::now();
}

void LaunchTimer::stop() noexcept {
  const int64_t end = trace::now();
  if (watch_) watch_->stop();
  try {
    if (trace::is_on()) {
      trace_event({.driver = &driver_,
                   .name = program_->launches[launch_].name,
                   .bytes = binding_->launches[launch_].bytes,
                   .watch = watch_,
                   .begin = begin_,
                   .end = end,
                   .program = program_,
                   .binding = binding_,
                   .launch = launch_});
    }
    if (are_launches_recorded()) {
      const Binding::LaunchValues& values = binding_->launches[launch_];
      launch_log().add({program_, driver_.device(), launch_,
                        1e-9 * static_cast<double>(end - begin_), std::move(watch_), values.bytes,
                        values.flops});
    }
  } catch (const std::exception&) {
    // A missing launch in the record is better than a program that fails.
  }
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
