// releaser.h — releases memory of others when the GPU no longer uses it.
//
// Braze's own memory is reused in the order of a stream, and nobody waits. The host application
// does not follow that order, so a thread waits for the GPU and then calls the deleter. The thread
// starts with the first such memory.
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

  /// Releases `owner` after `fences`, which may have failed. Never blocks. If there is no memory to
  /// note the release, the owner stays until the process ends.
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
