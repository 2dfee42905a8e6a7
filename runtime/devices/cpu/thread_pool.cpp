#include "runtime/devices/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "braze/error.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/execution/relax.h"

namespace braze {

namespace codes {
inline constexpr Code kHostLoop{
    "host-loop", ErrorKind::InvalidArgument,
    "The host program's parallel_for threw, or called a part that there "
    "is not, or one part twice."};
}  // namespace codes

namespace {

constexpr uint32_t kOpen = 1u << 31;

// A thread takes one part in this number of what is left of its share at a time. Pieces are large
// at first, because taking one costs a cache line that others may want. They are small at the end,
// because the slowest thread decides when a region ends.
constexpr int64_t kPieces = 4;

// Of the share of another thread, which has not come or is slow, all threads may want a piece.
constexpr int64_t kPiecesOfOthers = 2;

// How long a worker spins for the next region: long enough for the gap between two kernels of one
// program, and short compared with a time slice of the scheduler.
constexpr auto kSpin = std::chrono::microseconds(50);

// A leader that has waited this many turns for a worker lets other threads run, because the worker
// may have lost its core.
constexpr int kPatience = 256;

[[noreturn]] void fail_host_loop(const std::exception_ptr& thrown) {
  std::string text = "something that is not a std::exception";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
  }
  fail(codes::kHostLoop, fmt::format("parallel_for of the host program threw: {}", text),
       {.fix = "let parallel_for call all parts, in the calling thread if it has no other"});
}

}  // namespace

ThreadPool::~ThreadPool() {
  if (is_forked()) {
    // The threads stayed in the parent process. Their handles can be neither joined nor destroyed.
    new std::vector<std::thread>(std::move(workers_));
    return;
  }
  stop();
}

void ThreadPool::set_threads(int count) {
  refuse_if_forked();
  if (count == threads_) return;
  stop();
  threads_ = count;
  shares_ = std::vector<Share>(static_cast<size_t>(count));
}

void ThreadPool::start() {
  note_threads();
  try {
    for (int worker = 1; worker < threads_; ++worker) {
      workers_.emplace_back([this, worker] { serve(worker); });
    }
  } catch (const std::exception&) {
    // If there are no more threads, or there is no memory for them, the existing threads do the
    // work.
  }
}

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  opened_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  stop_ = false;
}

void ThreadPool::run_region(int64_t count, bool wake, Function function, const void* context) {
  refuse_if_forked();
  if (!host_ && workers_.empty()) start();
  function_ = function;
  context_ = context;
  for (int worker = 0; worker < threads_; ++worker) {
    const auto first = [&](int64_t of) {
      return count / threads_ * of + std::min(of, count % threads_);
    };
    Share& share = shares_[static_cast<size_t>(worker)];
    share.next.store(first(worker), std::memory_order_relaxed);
    share.end = first(worker + 1);
  }
  if (host_) return run_on_host();
  state_.store(kOpen, std::memory_order_release);
  region_.fetch_add(1, std::memory_order_seq_cst);
  if (wake && sleepers_.load(std::memory_order_seq_cst) > 0) {
    // A worker that is about to sleep holds the mutex from its last look until it sleeps.
    { const std::lock_guard lock(mutex_); }
    opened_.notify_all();
  }
  work(0);
  close_region();
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::set_host(ParallelFor host) {
  host_ = std::move(host);
  host_task_ = [this](int worker) { take_part(worker); };
}

/// Runs the work on the threads of the host program. Its loop may return, or throw, while threads
/// still run parts, which use memory of this region. So the region ends when they have left it.
void ThreadPool::run_on_host() {
  begun_ = std::vector<std::atomic<bool>>(static_cast<size_t>(threads_));
  is_wrong_ = false;
  state_.store(kOpen, std::memory_order_release);
  std::exception_ptr thrown;
  try {
    host_(threads_, host_task_);
  } catch (...) {
    thrown = std::current_exception();
  }
  close_region();
  if (!thrown) work(0);  // the pieces that the host program has left, if any
  const std::exception_ptr error = std::exchange(error_, nullptr);
  failed_ = false;
  if (thrown) fail_host_loop(thrown);
  if (error) std::rethrow_exception(error);
  if (!is_wrong_) return;
  const int wrong = wrong_;
  fail(codes::kHostLoop,
       fmt::format("parallel_for of the host program called its task with the index {}, {}", wrong,
                   wrong >= 0 && wrong < threads_ ? "which it had called before"
                                                  : fmt::format("of {} parts", threads_)),
       {.location = {},
        .node = "",
        .fix = fmt::format("call it once for each index from 0 to {}", threads_ - 1)});
}

/// A call of the host program. Calls with the same index would use the same memory, so an index
/// that is given twice is an error.
void ThreadPool::take_part(int worker) noexcept {
  if (!enter()) return;
  if (worker >= 0 && worker < threads_ && !begun_[static_cast<size_t>(worker)].exchange(true)) {
    work(worker);
  } else {
    wrong_ = worker;
    is_wrong_ = true;
  }
  leave();
}

/// Whether the region is open. If so, it stays until this thread leaves.
bool ThreadPool::enter() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  while (state & kOpen)
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed))
      return true;
  return false;
}

void ThreadPool::close_region() {
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int turn = 0; state_.load(std::memory_order_acquire) != 0; ++turn) {
    if (turn < kPatience) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

/// Does what is left of a share, a piece of so many at a time.
void ThreadPool::work_on(Share& share, int64_t pieces, int worker) {
  for (int64_t begin = share.next.load(std::memory_order_relaxed); begin < share.end;) {
    const int64_t end = begin + std::max<int64_t>(1, (share.end - begin) / pieces);
    if (!share.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
    function_(context_, begin, end, worker);
    begin = share.next.load(std::memory_order_relaxed);
  }
}

/// Does the thread's own share, and then helps the others, its neighbours first.
void ThreadPool::work(int worker) noexcept {
  try {
    work_on(shares_[static_cast<size_t>(worker)], kPieces, worker);
    for (int next = 1; next < threads_; ++next) {
      const int other = (worker + next) % threads_;
      work_on(shares_[static_cast<size_t>(other)], kPiecesOfOthers * threads_, worker);
    }
  } catch (...) {
    if (!failed_.exchange(true)) error_ = std::current_exception();
  }
}

uint32_t ThreadPool::await_region(uint32_t seen) {
  const auto changed = [&] { return region_.load(std::memory_order_seq_cst) != seen || stop_; };
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (changed()) return region_.load();
      relax();
    }
    // On a busy machine, the leader may be waiting for this very core.
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  opened_.wait(lock, changed);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return region_.load();
}

void ThreadPool::serve(int worker) {
  uint32_t seen = 0;
  for (;;) {
    seen = await_region(seen);
    if (stop_) return;
    if (!enter()) continue;
    work(worker);
    leave();
  }
}

}  // namespace braze
