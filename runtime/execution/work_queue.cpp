#include "runtime/execution/work_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "braze/trace.h"
#include "runtime/execution/relax.h"

namespace braze {

namespace {

// If more work than this is pending, the submitting thread helps, because pending calls hold
// memory.
constexpr size_t kMostPending = 64;

// A thread that submits does up to this number of submissions of other threads. To relieve it costs
// two changes of threads.
constexpr size_t kMostForOthers = 32;

// Work longer than this is worth the system call that wakes the background thread.
constexpr double kWorthWaking = 50e-6;

// After the background thread has seen work, it looks for more at this interval, this number of
// times. Then it sleeps until it is woken. Callers that mostly wait for their results therefore
// never have to wake it.
constexpr auto kDoze = std::chrono::microseconds(200);
constexpr int kDozes = 250;

constexpr auto kSpin = std::chrono::microseconds(20);

void spin_until_done(const Work& work) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (work.done()) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
}

}  // namespace

void Work::run() noexcept {
  try {
    execute();
  } catch (...) {
    error_ = CapturedError::current();
  }
  release();
  done_.store(true, std::memory_order_release);
}

WorkQueue::~WorkQueue() {
  if (is_forked()) {
    // The thread stayed in the parent process. Its handle can be neither joined nor destroyed.
    new std::thread(std::move(worker_));
    return;
  }
  drain();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void WorkQueue::run_front(Lock& lock, uint32_t id, bool tired) {
  Lane& lane = lanes_.at(id);  // it exists as long as something runs there
  lane.running = std::move(lane.queue.front());
  lane.queue.pop_front();
  lane.tired = tired;
  lock.unlock();
  lane.running->run();
  lock.lock();
  if (!first_error_) first_error_ = lane.running->error();
  lane.running.reset();
  if (waiting_ > 0) finished_.notify_all();
}

void WorkQueue::await_change(Lock& lock) {
  ++waiting_;
  finished_.wait(lock);
  --waiting_;
}

void WorkQueue::make_room(Lock& lock, uint32_t id) {
  for (auto lane = lanes_.find(id);
       lane != lanes_.end() && lane->second.queue.size() >= kMostPending; lane = lanes_.find(id)) {
    if (lane->second.running)
      await_change(lock);
    else
      run_front(lock, id);
  }
}

/// If the thread that works at the lane has done enough for others, waits until it stops, so that
/// this thread takes over. Otherwise that thread also does what this one has submitted.
void WorkQueue::relieve(Lock& lock, uint32_t id) {
  Lane& lane = lanes_.at(id);
  ++lane.relievers;
  while (lane.running && lane.tired) await_change(lock);
  --lane.relievers;
}

/// Every thread that has done work of a lane calls this when it leaves the lane. No waiting thread
/// does the work that is left, so another thread is notified; if there is none, this thread does
/// the work. An empty lane is removed, except the first.
void WorkQueue::leave(Lock& lock, uint32_t id) {
  size_t enough = 0;
  for (size_t turn = 0;; ++turn) {
    const auto at = lanes_.find(id);
    if (at == lanes_.end()) return;
    const Lane& lane = at->second;
    if (lane.running) return;
    if (lane.queue.empty()) {
      if (id != 0 && lane.relievers == 0) lanes_.erase(at);
      return;
    }
    if (mode_ == Mode::Background) return wake(kWorthWaking * 2);
    if (turn == 0) enough = lane.queue.size() + kMostForOthers;
    const bool tired = turn >= enough;
    if (tired && lane.relievers > 0) return;
    run_front(lock, id, tired);
  }
}

void WorkQueue::wake(double seconds) noexcept {
  if (worker_state_ == Worker::None) {
    try {
      worker_ = std::thread([this] { serve(); });
      worker_state_ = Worker::Dozing;
    } catch (const std::exception&) {
      // If a thread cannot be started, the threads that wait do the work.
    }
  } else if (worker_state_ == Worker::Asleep ||
             (worker_state_ == Worker::Dozing && seconds > kWorthWaking)) {
    worker_state_ = Worker::Dozing;
    arrived_.notify_one();
  }
}

bool WorkQueue::has_worker() {
  const std::lock_guard lock(mutex_);
  if (worker_state_ == Worker::None) wake(0);
  return worker_state_ != Worker::None;
}

void WorkQueue::wait(const Work& work) {
  if (work.done()) return;
  refuse_if_forked();
  const TraceSpan span("wait", "wait for work");
  std::unique_lock lock(mutex_);
  bool patient = false;
  while (!work.done()) {
    const Lane& lane = lanes_.at(work.lane_);  // it exists, because it has the work
    if (!lane.running) {
      run_front(lock, work.lane_);
    } else if (!patient) {
      // Another thread executes the work, and may finish before this one would be asleep.
      lock.unlock();
      spin_until_done(work);
      lock.lock();
      patient = true;
    } else {
      await_change(lock);
    }
  }
  leave(lock, work.lane_);
}

void WorkQueue::drain() {
  refuse_if_forked();
  std::unique_lock lock(mutex_);
  const uint64_t last = submitted_;
  const auto is_due = [last](const auto& lane) {
    return !lane.second.idle() && lane.second.oldest().number_ <= last;
  };
  for (auto lane = std::ranges::find_if(lanes_, is_due); lane != lanes_.end();
       lane = std::ranges::find_if(lanes_, is_due)) {
    if (lane->second.running) {
      await_change(lock);
      continue;
    }
    const uint32_t id = lane->first;
    run_front(lock, id);
    leave(lock, id);
  }
}

void WorkQueue::synchronize() {
  drain();
  CapturedError error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(first_error_, {});
  }
  error.rethrow();
}

void WorkQueue::serve() {
  std::unique_lock lock(mutex_);
  int idle = 0;
  while (!stop_) {
    if (!lanes_.at(0).queue.empty() && !lanes_.at(0).running) {
      worker_state_ = Worker::Busy;
      run_front(lock, 0);
      idle = 0;
    } else if (lanes_.at(0).running) {
      worker_state_ = Worker::Dozing;
      await_change(lock);
    } else if (idle < kDozes) {
      worker_state_ = Worker::Dozing;
      arrived_.wait_for(lock, kDoze);
      ++idle;
    } else {
      worker_state_ = Worker::Asleep;
      arrived_.wait(lock);
      idle = 0;
    }
  }
}

}  // namespace braze
