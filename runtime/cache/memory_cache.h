// memory_cache.h — a cache in memory for objects that are expensive to make, such as programs.
#pragma once

#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ir/support/condition_variable.h"
#include "ir/support/hash.h"
#include "ir/support/trace.h"
#include "runtime/execution/captured_error.h"

namespace braze {

/// Thread-safe. Each key is made once, however many threads ask for it. Different keys are made at
/// the same time. If there are too many entries, the least recently used are dropped. A Value is a
/// handle: it stays valid for its holder when the entry is dropped.
template <class Value>
class MemoryCache {
 public:
  struct Stats {
    uint64_t hits = 0;    ///< found, or made by another thread while this one waited
    uint64_t misses = 0;  ///< the asking thread made the value, or tried
    uint64_t made = 0;    ///< the misses whose value was made
    uint64_t evictions = 0;
    size_t size = 0;
  };

  /// Keeps `capacity` entries, at least one.
  explicit MemoryCache(size_t capacity) : capacity_(capacity) {}

  /// The entry of `key`. If there is none, `make()` makes it, and threads that ask meanwhile wait
  /// for it. A failure leaves no entry: an Error reaches all waiting threads; after any other
  /// exception they try themselves.
  template <class Make>
  Value get_or_make(const Hash128& key, Make&& make) {
    std::list<Key> gone;  // destroyed without the lock, because that may take long
    std::unique_lock lock(mutex_);
    for (auto found = entries_.find(key); found != entries_.end(); found = entries_.find(key)) {
      const std::shared_ptr<Entry> entry = found->second;
      made_.wait(lock, [&] { return entry->value || entry->failed; });
      if (entry->failed) {
        entry->error.rethrow();
        continue;
      }
      ++stats_.hits;
      trace::add_instant("cache", "found in memory", {});
      // It may have been evicted while this thread waited.
      if (entry->is_kept) order_.splice(order_.begin(), order_, entry->place);
      return *entry->value;
    }

    ++stats_.misses;
    const auto entry = std::make_shared<Entry>();
    std::list<Key> place{{key, entry}};  // before anything can fail
    entries_.emplace(key, entry);
    lock.unlock();
    try {
      Value value = make();
      lock.lock();
      ++stats_.made;
      entry->value.emplace(std::move(value));
      made_.notify_all();
      // After a clear() the key may belong to another thread by now.
      if (is_current(key, entry)) {
        entry->place = place.begin();
        entry->is_kept = true;
        order_.splice(order_.begin(), place);
        while (order_.size() > capacity_) evict_last(gone);
      }
      return *entry->value;
    } catch (...) {
      if (!lock.owns_lock()) {
        try {
          throw;
        } catch (const Error&) {
          entry->error = CapturedError::current();
        } catch (...) {
        }
        lock.lock();
      }
      entry->failed = true;
      made_.notify_all();
      if (is_current(key, entry)) entries_.erase(key);
      throw;
    }
  }

  /// The most recently used of the ready entries for which `wanted(value)` is true.
  template <class Wanted>
  std::optional<Value> find(Wanted&& wanted) {
    const std::lock_guard lock(mutex_);
    for (auto place = order_.begin(); place != order_.end(); ++place) {
      if (!wanted(*place->entry->value)) continue;
      ++stats_.hits;
      order_.splice(order_.begin(), order_, place);
      return *order_.front().entry->value;
    }
    return std::nullopt;
  }

  /// The most recently used entry; nullopt if there is none.
  std::optional<Value> last_used() const {
    const std::lock_guard lock(mutex_);
    if (order_.empty()) return std::nullopt;
    return order_.front().entry->value;
  }

  Stats stats() const {
    const std::lock_guard lock(mutex_);
    Stats stats = stats_;
    stats.size = order_.size();
    return stats;
  }

  void clear() {
    std::list<Key> gone;
    const std::lock_guard lock(mutex_);
    for (const Key& key : order_) key.entry->is_kept = false;
    entries_.clear();
    gone.swap(order_);
  }

 private:
  struct Entry;
  struct Key {
    Hash128 key;
    std::shared_ptr<Entry> entry;
  };
  struct Entry {
    std::optional<Value> value;
    bool failed = false;
    CapturedError error;   // of a failure, if it was an Error
    bool is_kept = false;  // it is in `order_`, at `place`
    typename std::list<Key>::iterator place;
  };

  bool is_current(const Hash128& key, const std::shared_ptr<Entry>& entry) const {
    const auto found = entries_.find(key);
    return found != entries_.end() && found->second == entry;
  }

  void evict_last(std::list<Key>& gone) {
    order_.back().entry->is_kept = false;
    entries_.erase(order_.back().key);
    gone.splice(gone.begin(), order_, std::prev(order_.end()));
    ++stats_.evictions;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  ConditionVariable made_;
  std::unordered_map<Hash128, std::shared_ptr<Entry>> entries_;
  std::list<Key> order_;  // ready entries, the last used first
  Stats stats_;
};

}  // namespace braze
