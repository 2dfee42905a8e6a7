#include "runtime/profile/device_trace.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "ir/program/text.h"
#include "runtime/devices/registry.h"

namespace braze {

namespace {

// Stopwatches hold objects of the driver, so those of older events are read early.
constexpr size_t kMostPending = 1024;

struct LaneText {
  std::string_view name, category;
};
constexpr LaneText kLanes[] = {
    {"work", "device"}, {"copies in", "copy"}, {"copies out", "copy"}, {"together", "collective"}};

trace::Track track_of(const DeviceDriver& driver, Lane lane) {
  const int row = static_cast<int>(lane);
  return {driver.name(), row + 1, kLanes[row].name};
}

void add_rate(trace::Arguments& arguments, std::string_view key, uint64_t amount, double seconds) {
  if (amount > 0 && seconds > 0) arguments.add(key, 1e-9 * static_cast<double>(amount) / seconds);
}

void add_launch(trace::Arguments& arguments, const DeviceEvent& event, double seconds) {
  const Launch& launch = event.program->launches[event.launch];
  const Binding::LaunchValues& values = event.binding->launches[event.launch];
  arguments.add("program", event.program->name);
  if (!launch.ops.empty()) arguments.add("ops", op_texts(*event.program, launch));
  arguments.add("flops", values.flops);
  add_rate(arguments, "GFLOP/s", values.flops, seconds);
  if (!launch.members.empty()) arguments.add("members", launch.members);
  arguments.add("instances", values.instances);
  if (!launch.gpu.empty()) {
    std::vector<int64_t> blocks, threads;
    for (size_t i = 0; i < launch.gpu.size(); ++i) {
      blocks.push_back(values.instances[i] * launch.gpu[i].cluster);
      threads.push_back(launch.gpu[i].block);
    }
    arguments.add("blocks", blocks);
    arguments.add("threads", threads);
  }
  if (!launch.schedule.empty()) arguments.add("schedule", launch.schedule);
}

std::string_view category_of(const DeviceEvent& event) {
  if (!event.program) return kLanes[static_cast<int>(event.lane)].category;
  const Launch& launch = event.program->launches[event.launch];
  if (launch.artifact == Launch::kCustomCall) return "custom call";
  return launch.artifact == Launch::kCollective ? "collective" : "kernel";
}

/// Events whose times are not known yet.
class PendingEvents {
 public:
  static PendingEvents& get() {
    static auto* pending = new PendingEvents;  // threads may use it at the end of the process
    return *pending;
  }

  void add(DeviceEvent event) {
    const std::lock_guard lock(mutex_);
    if (!event.watch) return write(event);
    static const bool connected = [] {
      // The driver of the queue is open by now, and stays open.
      trace::stop_at_exit();
      return true;
    }();
    static_cast<void>(connected);
    events_.push_back(std::move(event));
    if (events_.size() > kMostPending) write_oldest();
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    while (!events_.empty()) write_oldest();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
    ends_.clear();
  }

 private:
  void write_oldest() {
    DeviceEvent event = std::move(events_.front());
    events_.pop_front();
    const double seconds = event.watch->seconds();
    event.begin = event.watch->begin();
    if (event.begin == 0) return;  // it failed, or began before the timeline did
    event.end = event.begin + static_cast<int64_t>(1e9 * seconds);
    write(event);
  }

  void write(const DeviceEvent& event) {
    const double seconds = 1e-9 * static_cast<double>(event.end - event.begin);
    // Work of one queue does not overlap, even if it seems to because of the error of the clocks.
    int64_t& last = ends_[{event.driver, event.lane}];
    const int64_t begin = std::max(event.begin, last);
    last = begin + event.end - event.begin;
    trace::Arguments arguments;
    arguments.add("bytes", event.bytes);
    add_rate(arguments, "GB/s", event.bytes, seconds);
    if (event.program) add_launch(arguments, event, seconds);
    trace::add_span(track_of(*event.driver, event.lane), category_of(event), event.name, begin,
                    last, arguments);
  }

  std::mutex mutex_;
  std::deque<DeviceEvent> events_;
  std::map<std::pair<const DeviceDriver*, Lane>, int64_t>
      ends_;  // the end of the last event that was written
};

void begin_devices() {
  PendingEvents::get().clear();
  Registry::get().for_each_driver([](DeviceDriver& driver) { driver.allocator().trace_live(); });
}

void finish_devices() { PendingEvents::get().finish(); }

}  // namespace

void trace_event(DeviceEvent event) { PendingEvents::get().add(std::move(event)); }

void DeviceSpan::end() noexcept {
  try {
    event_.end = trace::now();
    if (event_.watch) event_.watch->stop();
    trace_event(std::move(event_));
  } catch (const std::exception&) {
    // A gap in the timeline is better than a program that fails.
  }
}

void trace_clock_error(const DeviceDriver& driver, int64_t nanoseconds) {
  trace::Arguments arguments;
  arguments.add("error us", 1e-3 * static_cast<double>(nanoseconds));
  trace::add_instant(track_of(driver, Lane::Work), "trace", "clocks aligned", arguments);
}

void connect_devices_to_trace() { trace::set_hooks({begin_devices, finish_devices}); }

}  // namespace braze
