// executable_cache.h — compiled programs by key, in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "braze/executable.h"
#include "ir/support/condition_variable.h"
#include "ir/support/hash.h"
#include "runtime/execution/captured_error.h"

namespace braze {

/// Thread-safe. Each key is made once, however many threads ask for it; the least recently used
/// entries go when there are too many.
class ExecutableCache {
 public:
  struct Stats {
    uint64_t hits = 0;    ///< found, or made by another thread meanwhile
    uint64_t misses = 0;  ///< made by the asking thread
    uint64_t evictions = 0;
    size_t size = 0;
  };

  explicit ExecutableCache(size_t capacity = 1024) : capacity_(capacity) {}

  /// The entry of `key`, which `make` makes if there is none. Threads that ask while it is being
  /// made wait for it. An error of `make` reaches all of them and leaves no entry.
  Executable get_or_load(const Hash128& key, const std::function<Executable()>& make);

  Stats stats() const;
  void clear();

 private:
  struct Entry {
    Executable executable;
    CapturedError error;
    bool ready = false;  // one of the above is set
    std::list<Hash128>::iterator place;
  };

  const size_t capacity_;
  mutable std::mutex mutex_;
  ConditionVariable made_;
  std::unordered_map<Hash128, std::shared_ptr<Entry>> entries_;
  std::list<Hash128> order_;  // keys of ready entries, the last used first
  Stats stats_;
};

}  // namespace braze
