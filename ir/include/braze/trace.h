// trace.h — a timeline of the process: what the compiler, the devices and the user's own code did,
// and when. Perfetto (ui.perfetto.dev) and chrome://tracing open the file.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

/// The limits of a timeline.
struct TraceOptions {
  /// The size limit of the file. Later events are left out; the last event says how many.
  uint64_t max_bytes = 256 << 20;
};

/// Writes a timeline to `path` until `stop_trace` or the end of the process, and replaces a file
/// that exists. `%p` in the path becomes the process id. Returns false, and prints the reason on
/// stderr, if the file cannot be written or a timeline is being written already. The environment
/// variable BRAZE_TRACE=path does the same, starting with the first use of Braze.
bool start_trace(const std::string& path, const TraceOptions& options = {});

/// Waits for the GPU work in the timeline and completes the file. Does nothing without a timeline.
void stop_trace();

namespace detail {
/// Bits that say which consumers of events are active; 0 if none is. The first read sets them.
extern std::atomic<uint8_t> trace_watchers;
}  // namespace detail

/// A span of time of one thread, from construction to destruction. It is a slice of the timeline,
/// and an NVTX range if a profiler is attached. The spans of a thread nest. While nothing records,
/// a span costs one load of a flag.
class TraceSpan {
 public:
  /// TraceSpan span("load data").
  explicit TraceSpan(std::string_view name) : TraceSpan("user", name) {}
  /// Its name is `name`, or `name subject`; `category` groups spans.
  TraceSpan(std::string_view category, std::string_view name, std::string_view subject = {}) {
    if (detail::trace_watchers.load(std::memory_order_relaxed) != 0) [[unlikely]]
      begin(category, name, subject);
  }
  ~TraceSpan() {
    if (event_) [[unlikely]]
      end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  /// Whether the span is recorded.
  explicit operator bool() const { return event_ != nullptr; }

  /// Adds a value that the viewer shows with the span. Does nothing if the span is not recorded.
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, double value);  ///< a number that the viewer shows
  /// A number that the viewer shows.
  template <std::integral Integer>
  void add(std::string_view key, Integer value) {
    add_integer(key, static_cast<int64_t>(value));
  }

 private:
  struct Event;
  void begin(std::string_view category, std::string_view name, std::string_view subject);
  void end() noexcept;
  void add_integer(std::string_view key, int64_t value);

  Event* event_ = nullptr;
};

}  // namespace braze
