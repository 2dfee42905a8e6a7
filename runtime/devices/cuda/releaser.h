// releaser.h — releases memory that belongs to others when the GPU no longer uses it.
//
// Braze's own memory is reused in the order of a stream, so nothing has to wait. The host program
// does not follow that order, so a thread waits for the GPU and then calls the deleter. The thread
// is started for the first such memory.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ir/support/condition_variable.h"
#include "runtime/execution/work_queue.h"

namespace braze {

/// Waits for fences in a thread of its own. Thread-safe.
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
