// trace.h — events of the timeline other than spans of a thread, which braze/trace.h has.
//
// An event becomes a line of JSON where it happens and goes into one buffer, which is written to
// the file piece by piece. The format is the array form of the Trace Event Format, which viewers
// open even if its end is missing because the process died. Times are those of the host's steady
// clock, and numbers of processes and devices differ between the processes of a host, so the lines
// of their files can be joined.
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
/// Reads the environment, once, and then returns who watches.
uint8_t decide_watchers();

inline uint8_t watchers() {
  const uint8_t watchers = braze::detail::trace_watchers.load(std::memory_order_relaxed);
  return watchers & kUndecided ? decide_watchers() : watchers;
}
}  // namespace detail

/// Whether a timeline is being written.
inline bool is_on() { return detail::watchers() & detail::kTimeline; }

/// Nanoseconds of the host's steady clock.
int64_t now();

/// What is shown with an event, as the members of a JSON object.
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

/// From now on the rows of this process and of its devices are called "`label`, .." in timelines,
/// so that those of several processes can be told apart in one file.
void label_process(std::string_view label);

/// A row of the timeline that belongs to no thread: row `number` of `device`, called `name`.
struct Track {
  std::string_view device;
  int number = 0;
  std::string_view name;
};

/// What happened on a track, in nanoseconds. Spans of one track must not overlap.
void add_span(const Track& track, std::string_view category, std::string_view name, int64_t begin,
              int64_t end, const Arguments& arguments);
/// A moment, now, on this thread.
void add_instant(std::string_view category, std::string_view name, const Arguments& arguments);
/// The same, on a track.
void add_instant(const Track& track, std::string_view category, std::string_view name,
                 const Arguments& arguments);
/// From now on the device's counter "`name` `unit`" is `value`.
void add_count(std::string_view device, std::string_view name, std::string_view unit,
               uint64_t value);

/// A span that has ended, of a thread by its number in the system. Times are those of `now`.
struct EndedSpan {
  std::string category, name;
  int64_t thread = 0;
  int64_t begin = 0, end = 0;
};

/// Keeps the spans of all threads that end while it lives, whether or not a timeline is written.
/// One at a time: an internal error otherwise.
class SpanRecorder {
 public:
  SpanRecorder();
  ~SpanRecorder();
  SpanRecorder(const SpanRecorder&) = delete;
  SpanRecorder& operator=(const SpanRecorder&) = delete;

  /// The spans that were kept so far, in the order in which they ended.
  std::vector<EndedSpan> take();
};

/// Functions to call when a timeline has begun by `start_trace`, and when one is about to end. Not
/// concurrently with either.
struct Hooks {
  void (*begun)() = nullptr;
  void (*ends)() = nullptr;
};
void set_hooks(Hooks hooks);

/// Completes the timeline at the end of the process, before libraries that were opened until now
/// are torn down.
void stop_at_exit();

/// Whether all of the last timeline could be written. If not, a line on stderr has said why.
bool is_whole();

}  // namespace braze::trace
