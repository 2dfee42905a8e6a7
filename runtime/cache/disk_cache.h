// disk_cache.h — the programs on disk that this process or another has compiled.
//
// The contract (docs/guides/cache.md): an entry is used only if it is whole (checksum), has the
// same key (which is compared, not only hashed), and is in a file that only this user and root can
// have written or that a trusted key has signed. A fault of the cache is never a fault of the
// program: an entry that cannot be read is a miss, a failed write is ignored, and one warning says
// so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/cache/cache_entry.h"
#include "runtime/cache/cache_folder.h"
#include "runtime/cache/cache_settings.h"

namespace braze {

/// The contents of the cache file of this name. A fault says why it cannot be used: it is not
/// whole, it belongs to another name, others could have written it and none of `trusted` signed it,
/// or its signature is not by one of them. If the only fault is who made the file, the key is still
/// returned.
EntryView view_entry(const CacheFolder::Reading& file, std::string_view name,
                     const PublicKeys& trusted);

/// Thread-safe. Any number of processes may use the same folder.
class DiskCache {
 public:
  struct Stats {
    uint64_t hits = 0, misses = 0;
    uint64_t faulty = 0;    ///< misses whose entry was not whole, or not trusted
    uint64_t unread = 0;    ///< misses whose entry could not be read
    uint64_t stored = 0;    ///< entries made by this process, or by another at the same time
    uint64_t unstored = 0;  ///< entries that could not be stored
    uint64_t evicted = 0;
  };
  using Warn = std::function<void(const std::string&)>;

  /// Opens or creates the folder when it is first needed. `warn` receives the one possible warning;
  /// by default it goes to the log.
  explicit DiskCache(CacheSettings settings, Warn warn = {});

  /// The cache of the process, with its settings.
  static DiskCache& of_process();

  /// Whether a lookup can find anything: the cache is on and has a folder that can be trusted.
  bool enabled();

  /// The payload that was stored under an equal key; nullopt if there is none.
  std::optional<std::string> load(const CacheKey& key);
  /// Stores `payload`, unless there is an entry of this key already.
  void store(const CacheKey& key, std::string_view payload);
  /// Removes an entry whose payload turned out to be invalid.
  void remove(const CacheKey& key);

  Stats stats() const;
  const CacheSettings& settings() const { return settings_; }

 private:
  const CacheFolder* folder();
  void open_folder();
  // In a folder that others can write, only signed entries can be used.
  bool writable() {
    return settings_.mode == CacheMode::On && !read_only_ &&
           (settings_.sign_key || !folder_->shared());
  }
  void warn_once(const std::string& text);
  void note_write_error(std::error_code error);
  void note_blocked(const CacheFolder::Reading& file, const std::string& name,
                    std::string_view fault);
  void make_room();
  std::optional<std::string> miss();

  const CacheSettings settings_;
  const Warn warn_;
  std::once_flag opened_, warned_;
  std::optional<CacheFolder> folder_;
  std::atomic<bool> read_only_ = false;  // files cannot be written to the folder

  mutable std::mutex mutex_;  // guards what follows
  Stats stats_;
  uint64_t unaccounted_bytes_ = UINT64_MAX;  // stored since the folder's size was looked at
};

}  // namespace braze
