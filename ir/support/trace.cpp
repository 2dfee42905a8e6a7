#include "ir/support/trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "braze/error.h"
#include "ir/support/config.h"
#include "ir/support/env.h"
#include "ir/support/json_string.h"
#include "ir/support/nvtx.h"
#include "ir/support/text.h"

namespace braze {

namespace {

using trace::Arguments;
using trace::detail::kProfiler;
using trace::detail::kRecorder;
using trace::detail::kTimeline;
using trace::detail::kUndecided;

constexpr size_t kPiece = 64 << 10;  // bytes that are written at once

// Devices are shown as separate processes, whose numbers begin here. True process ids are smaller.
constexpr int64_t kDeviceProcesses = int64_t{1} << 22;

void warn(std::string_view text) { write_log(LogLevel::Error, text); }

std::string with_process_id(std::string path) {
  for (size_t at; (at = path.find("%p")) != path.npos;)
    path.replace(at, 2, std::to_string(getpid()));
  return path;
}

void stop_watching() { detail::trace_watchers &= static_cast<uint8_t>(~kTimeline); }
void stop_recording() { detail::trace_watchers &= static_cast<uint8_t>(~kRecorder); }

/// The file of the timeline, and the text that is not yet written to it.
class Timeline {
 public:
  static Timeline& get() {
    static auto* timeline = new Timeline;  // threads may still use it when the process ends
    return *timeline;
  }

  bool open(const std::string& path, const TraceOptions& options);
  void close();

  /// Adds an event: a JSON object.
  void add(std::string_view event);
  void label(std::string_view label);

  /// The number of the timeline in this process; 0 before the first timeline.
  uint64_t number() const { return number_.load(std::memory_order_relaxed); }
  bool is_whole() {
    const std::lock_guard lock(mutex_);
    return is_whole_;
  }
  /// The process number that stands for a device. If the device is new, this adds the event that
  /// names it. If the track has a number that is not negative and is new, this names the row too.
  int64_t process_of(const trace::Track& track);

 private:
  struct Row {
    std::string device;
    int number;
  };

  std::string labelled(std::string_view name) const {
    return label_.empty() ? std::string(name) : fmt::format("{}, {}", label_, name);
  }
  /// The event that names this process, or a device by its position in `devices_`.
  std::string own_name() const;
  std::string name_of(size_t device) const;
  int64_t process_of(size_t device) const {
    return owner_ + static_cast<int64_t>(device + 1) * kDeviceProcesses;
  }
  void append(std::string_view event);
  void flush();
  void give_up(const char* why);

  std::mutex mutex_;
  std::atomic<uint64_t> number_{0};
  std::string path_;
  int file_ = -1;
  pid_t owner_ = 0;
  std::string piece_;
  uint64_t size_ = 0, max_size_ = 0;
  uint64_t dropped_ = 0;
  bool is_whole_ = true;
  std::string label_;
  std::vector<std::string> devices_;
  std::vector<Row> rows_;
};

int64_t thread_id() {
  thread_local const int64_t id = gettid();
  return id;
}

// A time in microseconds, as the format requires: "1234.567".
std::string microseconds(int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string metadata(std::string_view what, int64_t process, int64_t thread,
                     std::string_view value) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, process,
                     thread, value);
}

std::string name_member(std::string_view name) { return "\"name\":" + json_string(name); }

// The first members of an event, which all kinds of events have.
std::string head(char phase, std::string_view category, std::string_view name, int64_t process,
                 int64_t thread, int64_t time) {
  return fmt::format(R"({{"ph":"{}","cat":{},"name":{},"pid":{},"tid":{},"ts":{})", phase,
                     json_string(category), json_string(name), process, thread, microseconds(time));
}

std::string span_text(std::string_view category, std::string_view name, int64_t process,
                      int64_t thread, int64_t begin, int64_t end, const Arguments& arguments) {
  return head('X', category, name, process, thread, begin) +
         fmt::format(R"(,"dur":{},"args":{{{}}}}})", microseconds(end - begin), arguments.text());
}

// `scope` says whether viewers show the event on its thread or across all rows.
std::string instant_text(std::string_view category, std::string_view name, int64_t process,
                         int64_t thread, char scope, const Arguments& arguments) {
  return head('i', category, name, process, thread, trace::now()) +
         fmt::format(R"(,"s":"{}","args":{{{}}}}})", scope, arguments.text());
}

bool Timeline::open(const std::string& path, const TraceOptions& options) {
  const std::lock_guard lock(mutex_);
  if (file_ >= 0 && owner_ == getpid()) {
    warn(
        fmt::format("a second timeline cannot be started while {} is being written", quote(path_)));
    return false;
  }
  path_ = with_process_id(path);
  // O_NONBLOCK keeps the opening of a pipe from waiting for a reader.
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file_ < 0) {
    warn(fmt::format("the timeline {} cannot be written: {}", quote(path_), std::strerror(errno)));
    return false;
  }
  is_whole_ = true;
  owner_ = getpid();
  max_size_ = options.max_bytes;
  dropped_ = size_ = 0;
  devices_.clear();
  rows_.clear();
  piece_ = "[\n" + own_name();
  ++number_;
  detail::trace_watchers |= kTimeline;
  static const bool prepared = [] {
    // A forked child must not write into the file of its parent.
    pthread_atfork(nullptr, nullptr, stop_watching);
    return std::atexit(stop_trace) == 0;
  }();
  static_cast<void>(prepared);
  return true;
}

void Timeline::close() {
  const std::lock_guard lock(mutex_);
  if (file_ < 0) return;
  stop_watching();
  if (dropped_ > 0) {
    const std::string what =
        fmt::format("{} events were left out, because the file is full", dropped_);
    append(instant_text("trace", what, owner_, thread_id(), 'g', {}));
    warn(fmt::format("timeline {}: {}", quote(path_), what));
  }
  piece_ += "\n]\n";
  flush();
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

void Timeline::add(std::string_view event) {
  const std::lock_guard lock(mutex_);
  if (file_ < 0) return;
  if (size_ + event.size() > max_size_) {
    ++dropped_;
  } else {
    append(event);
  }
}

void Timeline::label(std::string_view label) {
  const std::lock_guard lock(mutex_);
  label_ = label;
  if (file_ < 0) return;
  // The later name of a process replaces the earlier one.
  append(own_name());
  for (size_t device = 0; device < devices_.size(); ++device) append(name_of(device));
}

std::string Timeline::own_name() const {
  return metadata("process_name", owner_, 0, name_member(labelled(program_invocation_short_name)));
}

std::string Timeline::name_of(size_t device) const {
  return metadata("process_name", process_of(device), 0, name_member(labelled(devices_[device])));
}

void Timeline::append(std::string_view event) {
  piece_ += ",\n";
  piece_ += event;
  size_ += event.size() + 2;
  if (piece_.size() >= kPiece) flush();
}

void Timeline::flush() {
  std::string_view rest = piece_;
  const off_t begin = lseek(file_, 0, SEEK_CUR);  // -1 if it is not a file
  while (!rest.empty()) {
    const ssize_t written = write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // A truncated file ends with a complete event. A pipe or a device cannot be truncated.
      [[maybe_unused]] const bool is_cut = begin >= 0 && ftruncate(file_, begin) == 0;
      give_up(std::strerror(error));
      break;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  piece_.clear();
}

void Timeline::give_up(const char* why) {
  warn(fmt::format("the timeline ends here, because {} cannot be written: {}", quote(path_), why));
  stop_watching();
  ::close(file_);
  file_ = -1;
  is_whole_ = false;
}

int64_t Timeline::process_of(const trace::Track& track) {
  const std::lock_guard lock(mutex_);
  size_t device = 0;
  while (device < devices_.size() && devices_[device] != track.device) ++device;
  const int64_t process = process_of(device);
  if (file_ < 0) return process;
  if (device == devices_.size()) {
    devices_.emplace_back(track.device);
    append(name_of(device));
    append(
        metadata("process_sort_index", process, 0, fmt::format("\"sort_index\":{}", device + 1)));
  }
  if (track.number < 0) return process;
  for (const Row& row : rows_)
    if (row.number == track.number && row.device == track.device) return process;
  rows_.push_back({std::string(track.device), track.number});
  append(metadata("thread_name", process, track.number, name_member(track.name)));
  return process;
}

// The first event of a thread gives the name of the thread.
void introduce_thread(Timeline& timeline) {
  thread_local uint64_t introduced = 0;
  if (introduced == timeline.number()) return;
  introduced = timeline.number();
  char name[32] = "main";
  if (thread_id() != getpid() && pthread_getname_np(pthread_self(), name, sizeof name) != 0)
    std::strcpy(name, "thread");
  timeline.add(metadata("thread_name", getpid(), thread_id(), name_member(name)));
}

std::atomic<void (*)()> hook_begun{nullptr}, hook_ends{nullptr};

}  // namespace

std::atomic<uint8_t> detail::trace_watchers{kUndecided};

namespace trace {

uint8_t detail::decide_watchers() {
  static const bool decided = [] {
    if (nvtx::is_listening()) braze::detail::trace_watchers |= kProfiler;
    if (const auto path = read_env(kEnvTrace)) Timeline::get().open(*path, {});
    braze::detail::trace_watchers &= static_cast<uint8_t>(~kUndecided);
    return true;
  }();
  static_cast<void>(decided);
  return braze::detail::trace_watchers.load(std::memory_order_relaxed);
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void label_process(std::string_view label) { Timeline::get().label(label); }

void Arguments::add_text(std::string_view key, std::string_view value) {
  if (!text_.empty()) text_ += ',';
  text_ += json_string(key);
  text_ += ':';
  text_ += value;
}

void Arguments::add(std::string_view key, std::string_view value) {
  add_text(key, json_string(value));
}
void Arguments::add(std::string_view key, int64_t value) { add_text(key, std::to_string(value)); }
void Arguments::add(std::string_view key, uint64_t value) { add_text(key, std::to_string(value)); }
void Arguments::add(std::string_view key, double value) {
  const std::string text = number_text(value);
  add_text(key, std::isfinite(value) ? text : json_string(text));
}
void Arguments::add(std::string_view key, const std::vector<std::string>& values) {
  add_text(key, "[" + join(values, ",", json_string) + "]");
}
void Arguments::add(std::string_view key, const std::vector<int64_t>& values) {
  add_text(key, fmt::format("[{}]", fmt::join(values, ",")));
}

void add_span(const Track& track, std::string_view category, std::string_view name, int64_t begin,
              int64_t end, const Arguments& arguments) {
  if (!is_on()) return;
  Timeline& timeline = Timeline::get();
  const int64_t process = timeline.process_of(track);
  timeline.add(span_text(category, name, process, track.number, begin, end, arguments));
}

void add_instant(std::string_view category, std::string_view name, const Arguments& arguments) {
  if (!is_on()) return;
  Timeline& timeline = Timeline::get();
  introduce_thread(timeline);
  timeline.add(instant_text(category, name, getpid(), thread_id(), 't', arguments));
}

void add_instant(const Track& track, std::string_view category, std::string_view name,
                 const Arguments& arguments) {
  if (!is_on()) return;
  Timeline& timeline = Timeline::get();
  const int64_t process = timeline.process_of(track);
  timeline.add(instant_text(category, name, process, track.number, 't', arguments));
}

void add_count(std::string_view device, std::string_view name, std::string_view unit,
               uint64_t value) {
  if (!is_on()) return;
  Timeline& timeline = Timeline::get();
  const int64_t process = timeline.process_of({device, -1, {}});
  timeline.add(head('C', "memory", name, process, 0, now()) +
               fmt::format(R"(,"args":{{"{}":{}}}}})", unit, value));
}

void set_hooks(Hooks hooks) {
  hook_begun = hooks.begun;
  hook_ends = hooks.ends;
}

void stop_at_exit() { std::atexit(stop_trace); }

bool is_whole() { return Timeline::get().is_whole(); }

}  // namespace trace

bool start_trace(const std::string& path, const TraceOptions& options) {
  trace::detail::decide_watchers();
  if (!Timeline::get().open(path, options)) return false;
  if (void (*const begun)() = hook_begun) begun();
  return true;
}

void stop_trace() {
  if (!trace::is_on()) return;
  if (void (*const ends)() = hook_ends) ends();
  Timeline::get().close();
}

struct TraceSpan::Event {
  std::string category, name;
  Arguments arguments;
  bool is_range = false;  // the span is also a range of the profiler
  int64_t begin = 0;
};

void TraceSpan::begin(std::string_view category, std::string_view name, std::string_view subject) {
  const uint8_t watchers = trace::detail::watchers();
  if (watchers == 0) return;
  event_ = new Event{std::string(category), std::string(name)};
  if (!subject.empty()) event_->name.append(" ").append(subject);
  event_->is_range = watchers & kProfiler;
  if (event_->is_range) nvtx::push(event_->name.c_str());
  event_->begin = trace::now();
}

namespace {

// The spans of a recorder. Spans end on any thread, and may end after the recorder is destroyed.
struct Recorded {
  std::mutex mutex;
  bool is_on = false;
  std::vector<trace::EndedSpan> spans;

  static Recorded& get() {
    static auto* recorded = new Recorded;
    return *recorded;
  }
};

}  // namespace

namespace trace {

SpanRecorder::SpanRecorder() {
  Recorded& recorded = Recorded::get();
  const std::lock_guard lock(recorded.mutex);
  BRAZE_CHECK(!recorded.is_on, "spans are already being recorded");
  recorded.is_on = true;
  // In a forked child, a thread that does not exist there could hold the lock for ever.
  static const bool prepared = pthread_atfork(nullptr, nullptr, stop_recording) == 0;
  static_cast<void>(prepared);
  detail::decide_watchers();
  braze::detail::trace_watchers |= kRecorder;
}

SpanRecorder::~SpanRecorder() {
  Recorded& recorded = Recorded::get();
  const std::lock_guard lock(recorded.mutex);
  stop_recording();
  recorded.is_on = false;
  recorded.spans.clear();
}

std::vector<EndedSpan> SpanRecorder::take() {
  Recorded& recorded = Recorded::get();
  const std::lock_guard lock(recorded.mutex);
  return std::exchange(recorded.spans, {});
}

}  // namespace trace

void TraceSpan::end() noexcept {
  const int64_t end = trace::now();
  if (event_->is_range) nvtx::pop();
  try {
    if (trace::is_on()) {
      Timeline& timeline = Timeline::get();
      introduce_thread(timeline);
      timeline.add(span_text(event_->category, event_->name, getpid(), thread_id(), event_->begin,
                             end, event_->arguments));
    }
    if (trace::detail::watchers() & kRecorder) {
      Recorded& recorded = Recorded::get();
      const std::lock_guard lock(recorded.mutex);
      if (recorded.is_on)
        recorded.spans.push_back({event_->category, event_->name, thread_id(), event_->begin, end});
    }
  } catch (const std::bad_alloc&) {
    // A gap in the timeline is better than a program that fails.
  }
  delete event_;
}

void TraceSpan::add(std::string_view key, std::string_view value) {
  if (event_) event_->arguments.add(key, value);
}
void TraceSpan::add(std::string_view key, double value) {
  if (event_) event_->arguments.add(key, value);
}
void TraceSpan::add_integer(std::string_view key, int64_t value) {
  if (event_) event_->arguments.add(key, value);
}

}  // namespace braze
