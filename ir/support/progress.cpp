#include "ir/support/progress.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

namespace braze {

namespace {

struct Listening {
  std::mutex mutex;
  ProgressListener listener;
};

Listening& listening() {
  static Listening all;
  return all;
}

void tell_listener(std::string_view line) {
  const std::lock_guard lock(listening().mutex);
  listening().listener(line);
}

}  // namespace

Progress::Progress(std::string what, std::string_view part, size_t total)
    : is_heard_(listening().listener != nullptr),
      what_(std::move(what)),
      part_(part),
      total_(total) {
  tell(0);
}

Progress::~Progress() {
  if (is_heard_) tell_listener({});
}

void Progress::advance() {
  if (is_heard_) tell(++done_);
}

void Progress::tell(size_t done) const {
  if (!is_heard_) return;
  tell_listener(total_ == 0 ? what_ : fmt::format("{}: {} {} of {}", what_, part_, done, total_));
}

void set_progress_listener(ProgressListener listener) {
  const std::lock_guard lock(listening().mutex);
  listening().listener = std::move(listener);
}

}  // namespace braze
