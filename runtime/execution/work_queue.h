// work_queue.h — the work of one device, in lanes. The work of a lane is done in the order in which
// it was submitted.
//
// A device has one WorkQueue, with a lane for each of its streams (driver.h). Different threads
// work on the lanes at the same time. Submissions to all lanes have one order, so that checks at
// admission hold until the work is in its lane. Work may wait for any work that was submitted
// before it, in its own lane or in another; therefore no wait is circular.
//
// Submitting never blocks for long. On a host device a background thread does the work. If that
// thread has not begun, a thread that waits for a result does the work itself, so that a
// synchronous caller needs no change of threads. A GPU has its own queue, and passing work to it
// takes microseconds. There the thread that submits does the work: it is done when it is in that
// queue, and its Fence tells when it is complete. If several threads submit at the same time, one
// of them does the work of all, until it has done its own and some more; then the next thread that
// submits relieves it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "ir/support/condition_variable.h"
#include "ir/support/fork.h"
#include "runtime/execution/captured_error.h"

namespace braze {

/// A point in a device's own queue. Thread-safe.
class Fence {
 public:
  virtual ~Fence() = default;
  /// Blocks until everything before it is complete. Throws if some of it failed.
  virtual void wait() = 0;
  /// Whether everything before it is complete, or a part of it failed.
  virtual bool done() = 0;
  /// The driver's own object for it, a CUevent; null if there is none.
  virtual void* native() const { return nullptr; }
  /// Later points of one queue have larger numbers.
  virtual uint64_t number() const { return 0; }
};

/// Finds out, after the fence of some work, whether other devices that took part in it failed.
class Verdict {
 public:
  virtual ~Verdict() = default;
  /// Throws if another device failed. The answer never changes. Any thread may call it, when the
  /// fence is passed.
  virtual void confirm() = 0;
};

/// Work that is done once, with its completion. It is thread-safe after it was submitted.
class Work {
 public:
  virtual ~Work() = default;

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Rethrows the error that `execute` threw. Call it only when the work is done.
  void rethrow() const { error_.rethrow(); }
  const CapturedError& error() const { return error_; }
  /// Its point in the device's own queue; null if there is none. Call it only when the work is
  /// done.
  const std::shared_ptr<Fence>& fence() const { return fence_; }
  /// Throws if the result is not valid because another device failed. Call it only when the work is
  /// done and its fence is passed.
  void confirm() const {
    if (verdict_) verdict_->confirm();
  }

  /// Executes the work and keeps its error. A stream calls it once.
  void run() noexcept;

 protected:
  virtual void execute() = 0;
  /// Releases everything that was needed for executing, before the work counts as done.
  virtual void release() noexcept {}

  std::shared_ptr<Fence> fence_;      ///< set by `execute`
  std::shared_ptr<Verdict> verdict_;  ///< set by `execute`; null if no other device takes part

 private:
  friend class WorkQueue;
  CapturedError error_;
  std::atomic<bool> done_{false};
  uint32_t lane_ = 0;    // from the submission on
  uint64_t number_ = 0;  // among all submissions to the queue
};

/// The queue of a device. In a forked child of a process with a WorkQueue, waiting is an error
/// (fork.h).
class WorkQueue {
 public:
  /// Which thread does the work: a background thread or a thread that waits for it (Background), or
  /// the thread that submits (Immediate).
  enum class Mode : uint8_t { Background, Immediate };

  explicit WorkQueue(Mode mode) : mode_(mode) { note_threads(); }
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Adds `work` to a lane. A queue in the mode Background has only lane 0. `admit` is called
  /// first, with no other submission between it and this one. If it throws, or if there is no
  /// memory, the queue stays unchanged. `seconds` estimates how long the work takes.
  template <class Admit>
  void submit(const std::shared_ptr<Work>& work, double seconds, Admit&& admit, uint32_t lane = 0) {
    refuse_if_forked();
    std::unique_lock lock(mutex_);
    make_room(lock, lane);
    try {
      enqueue(work, admit, lane);
    } catch (...) {
      leave(lock, lane);
      throw;
    }
    if (mode_ == Mode::Immediate) {
      relieve(lock, lane);
      leave(lock, lane);
    } else {
      wake(seconds);
    }
  }

  /// Makes sure that there is a background thread, for work that waits for another device. Returns
  /// false if there can be none.
  bool has_worker();

  /// Blocks until `work`, which was submitted here, is done.
  void wait(const Work& work);
  /// Blocks until everything submitted so far is done.
  void drain();
  /// Drains, and then rethrows the first error since the last call of `synchronize`.
  void synchronize();

 private:
  enum class Worker : uint8_t { None, Busy, Dozing, Asleep };
  using Lock = std::unique_lock<std::mutex>;

  struct Lane {
    std::deque<std::shared_ptr<Work>> queue;
    std::shared_ptr<Work> running;  // what a thread executes; null: no thread works at this lane
    bool tired = false;             // that thread has done enough for others
    int relievers = 0;              // threads that wait to take over from it

    bool idle() const { return !running && queue.empty(); }
    /// The oldest work that is not done. The lane must not be idle.
    const Work& oldest() const { return running ? *running : *queue.front(); }
  };

  template <class Admit>
  void enqueue(const std::shared_ptr<Work>& work, Admit&& admit, uint32_t id) {
    Lane& lane = lanes_[id];
    lane.queue.push_back(work);
    try {
      admit();
    } catch (...) {
      lane.queue.pop_back();
      throw;
    }
    work->lane_ = id;
    work->number_ = ++submitted_;
  }
  void make_room(Lock& lock, uint32_t id);
  void run_front(Lock& lock, uint32_t id, bool tired = false);
  void await_change(Lock& lock);
  void relieve(Lock& lock, uint32_t id);
  void leave(Lock& lock, uint32_t id);
  void wake(double seconds) noexcept;
  void serve();

  const Mode mode_;
  std::mutex mutex_;
  ConditionVariable finished_;  // some work is done
  ConditionVariable arrived_;   // the background thread should look for work
  std::map<uint32_t, Lane> lanes_ = {
      {0, {}}};             // the first lane, and others as long as they are not idle
  uint64_t submitted_ = 0;  // the number of submissions so far
  CapturedError first_error_;
  int waiting_ = 0;  // threads that wait for `finished_`
  bool stop_ = false;
  Worker worker_state_ = Worker::None;
  std::thread worker_;
};

}  // namespace braze
