// releaser.h — lets go of memory of others once the GPU is done with it.
//
// Braze's own memory is reused in the order of a stream, and nobody waits. What the host
// application does with its memory is not in that order, so a thread waits for the GPU and then
// tells it. The thread begins with the first such memory.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ir/support/condition_variable.h"
#include "runtime/execution/work_queue.h"

namespace braze {

/// Thread-safe.
class Releaser {
 public:
  Releaser() = default;
  ~Releaser();
  Releaser(const Releaser&) = delete;
  Releaser& operator=(const Releaser&) = delete;

  /// Lets go of `owner` behind `fences`, which may have failed. Never blocks. What cannot be noted
  /// for want of memory stays with the process.
  void add(std::vector<std::shared_ptr<Fence>> fences, std::shared_ptr<const void> owner) noexcept;

 private:
  struct Held {
    std::vector<std::shared_ptr<Fence>> fences;
    std::shared_ptr<const void> owner;
  };
  void serve();

  std::mutex mutex_;
  ConditionVariable arrived_;
  std::deque<Held> held_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace braze
