#include "tools/braze/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "ir/support/progress.h"

namespace braze::tool {

namespace {

using Clock = std::chrono::steady_clock;

// A line that changes more often cannot be read.
constexpr auto kBetweenLines = std::chrono::milliseconds(100);

// A line that wraps could not be erased.
std::string fitting(std::string_view line) {
  winsize size{};
  const size_t columns =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  return std::string(line.substr(0, columns - 1));
}

}  // namespace

ProgressLine::ProgressLine() {
  if (!isatty(STDERR_FILENO)) return;
  set_progress_listener(
      [is_shown = false, last = Clock::time_point()](std::string_view line) mutable {
        const Clock::time_point now = Clock::now();
        if (line.empty() ? !is_shown : is_shown && now - last < kBetweenLines) return;
        // The cursor goes back to the first column, so that a message overwrites the line.
        fmt::print(stderr, "\r\033[K{}{}", fitting(line), line.empty() ? "" : "\r");
        std::fflush(stderr);
        is_shown = !line.empty();
        last = now;
      });
}

ProgressLine::~ProgressLine() { set_progress_listener({}); }

}  // namespace braze::tool
