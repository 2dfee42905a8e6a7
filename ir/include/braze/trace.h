// trace.h — a timeline of the process: what the compiler, the devices and the user's own code did,
// and when. The file opens in Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace braze {

struct TraceOptions {
  /// Bytes of the file. What comes later is left out and counted; the last event says how much.
  uint64_t max_bytes = 256 << 20;
};

/// Writes a timeline to `path`, in place of what is there, until `stop_trace` or the end of the
/// process; `%p` in the path becomes the process id. False, with a line on stderr that says why, if
/// the file cannot be written or a timeline is being written already. The environment variable
/// BRAZE_TRACE=path does the same from the first use of Braze on.
bool start_trace(const std::string& path, const TraceOptions& options = {});

/// Completes the file; waits for the GPU work in it. Does nothing if no timeline is written.
void stop_trace();

namespace detail {
/// Who watches; 0: nobody. Not yet decided until first looked at.
extern std::atomic<uint8_t> trace_watchers;
}  // namespace detail

/// A stretch of time of one thread, from construction to destruction: a slice of the timeline, and
/// an NVTX range where a profiler listens. Spans of a thread nest. Costs one load of a flag while
/// nobody watches.
class TraceSpan {
 public:
  /// TraceSpan span("load data").
  explicit TraceSpan(std::string_view name) : TraceSpan("user", name) {}
  /// Called `name`, or `name subject`; `category` groups spans.
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

  /// Whether somebody watches.
  explicit operator bool() const { return event_ != nullptr; }

  /// Shown with the span. Nothing happens while nobody watches.
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, double value);  ///< a number that the viewer shows
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
