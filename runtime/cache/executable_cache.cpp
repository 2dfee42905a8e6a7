#include "runtime/cache/executable_cache.h"

#include "ir/support/trace.h"

namespace braze {

Executable ExecutableCache::get_or_load(const Hash128& key,
                                        const std::function<Executable()>& make) {
  std::unique_lock lock(mutex_);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    const std::shared_ptr<Entry> entry = found->second;
    made_.wait(lock, [&] { return entry->ready; });
    entry->error.rethrow();
    ++stats_.hits;
    trace::add_instant("cache", "found in memory", {});
    // It may have been evicted while this thread waited.
    if (const auto still = entries_.find(key); still != entries_.end() && still->second == entry) {
      order_.splice(order_.begin(), order_, entry->place);
    }
    return entry->executable;
  }

  ++stats_.misses;
  const auto entry = std::make_shared<Entry>();
  entries_.emplace(key, entry);
  lock.unlock();
  Executable executable;
  CapturedError error;
  try {
    executable = make();
  } catch (...) {
    error = CapturedError::current();
  }

  lock.lock();
  entry->executable = executable;
  entry->error = error;
  entry->ready = true;
  made_.notify_all();
  // After a clear() the key may be someone else's by now.
  const auto mine = entries_.find(key);
  const bool still_mine = mine != entries_.end() && mine->second == entry;
  if (error) {
    if (still_mine) entries_.erase(mine);
    error.rethrow();
  }
  if (still_mine) {
    order_.push_front(key);
    entry->place = order_.begin();
    if (order_.size() > capacity_) {
      entries_.erase(order_.back());
      order_.pop_back();
      ++stats_.evictions;
    }
  }
  return executable;
}

ExecutableCache::Stats ExecutableCache::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.size = order_.size();
  return stats;
}

void ExecutableCache::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  order_.clear();
}

}  // namespace braze
