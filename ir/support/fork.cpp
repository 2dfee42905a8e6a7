#include "ir/support/fork.h"

#include <pthread.h>

#include <atomic>

namespace braze {

namespace {

// The fork handler writes these in the child, before the child has other threads. A fork handler
// must not do much more than this.
std::atomic<int> forks{0};
std::atomic<bool> has_threads{false}, forked{false};

void begin_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
  if (has_threads.load(std::memory_order_relaxed)) forked.store(true, std::memory_order_relaxed);
}

void watch_forks() {
  [[maybe_unused]] static const int watched = pthread_atfork(nullptr, nullptr, begin_child);
}

}  // namespace

void note_threads() {
  watch_forks();
  has_threads.store(true, std::memory_order_relaxed);
}

bool is_forked() noexcept { return forked.load(std::memory_order_relaxed); }

void refuse_if_forked() {
  if (!is_forked()) [[likely]]
    return;
  fail(codes::kForkedChild,
       "this process was forked from one that had used Braze, and the threads and queues of the "
       "devices do not exist here",
       {.location = {},
        .node = "",
        .fix = "fork before the first use of Braze, or let the child execute a program (exec, "
               "posix_spawn)"});
}

int fork_count() {
  watch_forks();
  return forks.load(std::memory_order_relaxed);
}

}  // namespace braze
