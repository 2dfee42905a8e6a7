#include "runtime/devices/cuda/releaser.h"

#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include "ir/support/fork.h"

namespace braze {

Releaser::~Releaser() {
  if (is_forked()) {
    new std::thread(std::move(thread_));  // the thread stayed in the parent
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Releaser::add(std::vector<std::shared_ptr<Fence>> fences,
                   std::shared_ptr<const void> owner) noexcept {
  Held held{std::move(fences), std::move(owner)};
  try {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      note_threads();
      thread_ = std::thread([this] { serve(); });
    }
    held_.push_back(std::move(held));  // if it throws, nothing was moved
    arrived_.notify_one();
  } catch (const std::exception&) {
    // The GPU may still use the memory, so it is kept for ever. What is made in `place` is never
    // destroyed, and needs no memory of the host.
    alignas(Held) std::byte place[sizeof(Held)];
    new (place) Held(std::move(held));
  }
}

void Releaser::serve() {
  std::unique_lock lock(mutex_);
  while (!stop_ || !held_.empty()) {
    if (held_.empty()) {
      arrived_.wait(lock);
      continue;
    }
    Held next = std::move(held_.front());
    held_.pop_front();
    lock.unlock();
    for (const auto& fence : next.fences) {
      try {
        fence->wait();
      } catch (const std::exception&) {
        // A lost GPU no longer reads anything.
      }
    }
    next = {};
    lock.lock();
  }
}

}  // namespace braze
