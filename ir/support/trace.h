// trace.h — events of the timeline. Spans of a thread are in braze/trace.h.
//
// An event becomes a line of JSON where it happens, and goes into one buffer, which is written to
// the file in pieces. The format is the array form of the Trace Event Format. Viewers open it even
// if its end is missing because the process died. The lines in the files of several processes can
// be joined to one file, because times are those of the host's steady clock, and because the
// numbers of processes and devices differ between the processes of a host.
//
// Everything here is thread-safe, and does nothing while no timeline is written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "braze/trace.h"

namespace braze::trace {

namespace detail {
enum Watcher : uint8_t { kTimeline = 1, kProfiler = 2, kUndecided = 4, kRecorder = 8 };
/// Reads the environment in the first call, and returns which consumers of events are active.
uint8_t decide_watchers();

inline uint8_t watchers() {
  const uint8_t watchers = braze::detail::trace_watchers.load(std::memory_order_relaxed);
  return watchers & kUndecided ? decide_watchers() : watchers;
}
}  // namespace detail

/// Whether a timeline is being written.
inline bool is_on() { return detail::watchers() & detail::kTimeline; }

/// The time of the host's steady clock in nanoseconds.
int64_t now();

/// The values that are shown with an event, as the members of a JSON object.
class Arguments {
 public:
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, int64_t value);
  void add(std::string_view key, uint64_t value);
  void add(std::string_view key, double value);
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<int64_t>& values);

  const std::string& text() const { return text_; }

 private:
  void add_text(std::string_view key, std::string_view value);
  std::string text_;
};

/// From now on, the names of this process and of its devices in timelines begin with "`label`, ",
/// so that a reader can distinguish several processes in one file.
void label_process(std::string_view label);

/// A row of the timeline that belongs to no thread: row `number` of `device`, called `name`.
struct Track {
  std::string_view device;
  int number = 0;
  std::string_view name;
};

/// Adds a span to a track. Times are in nanoseconds. Spans of one track must not overlap.
void add_span(const Track& track, std::string_view category, std::string_view name, int64_t begin,
              int64_t end, const Arguments& arguments);
/// Adds an event without duration, at the present time, to this thread.
void add_instant(std::string_view category, std::string_view name, const Arguments& arguments);
/// Adds an event without duration, at the present time, to a track.
void add_instant(const Track& track, std::string_view category, std::string_view name,
                 const Arguments& arguments);
/// From now on the device's counter "`name` `unit`" is `value`.
void add_count(std::string_view device, std::string_view name, std::string_view unit,
               uint64_t value);

/// A span that has ended. The thread is given by its number in the system. Times are those of
/// `now`.
struct EndedSpan {
  std::string category, name;
  int64_t thread = 0;
  int64_t begin = 0, end = 0;
};

/// Records the spans of all threads that end while this object lives, whether or not a timeline is
/// written. Only one recorder may exist at a time; a second one is an internal error.
class SpanRecorder {
 public:
  SpanRecorder();
  ~SpanRecorder();
  SpanRecorder(const SpanRecorder&) = delete;
  SpanRecorder& operator=(const SpanRecorder&) = delete;

  /// The spans that were recorded so far, in the order in which they ended.
  std::vector<EndedSpan> take();
};

/// Functions that are called when `start_trace` has begun a timeline, and when a timeline is about
/// to end. They may not be set at the same time as a timeline begins or ends.
struct Hooks {
  void (*begun)() = nullptr;
  void (*ends)() = nullptr;
};
void set_hooks(Hooks hooks);

/// Makes sure that the timeline is completed at the end of the process before the libraries that
/// are already open are unloaded.
void stop_at_exit();

/// Whether the last timeline could be written completely. If not, a message in the log has said
/// why.
bool is_whole();

}  // namespace braze::trace
