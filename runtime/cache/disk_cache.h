// disk_cache.h — what was compiled before, by this process or another, on the disk.
//
// The contract (docs/guides/cache.md): an entry is used only if it is whole (checksum), of the very
// same key (compared, not only hashed) and from a file that nobody but this user and root can have
// written, or that a trusted key has signed. A fault of the cache is never a fault of the program:
// what cannot be read is a miss, what cannot be written is not cached, and one warning says so.
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

/// What is in the cache's file of this name. A fault says why it is not to be used: it is not
/// whole, belongs to another name, or others could have written it and none of `trusted` signed it;
/// or there is a signature, which is not one of theirs. A file whose only fault is who made it has
/// a key all the same.
EntryView view_entry(const CacheFolder::Reading& file, std::string_view name,
                     const PublicKeys& trusted);

/// Thread-safe, and safe with any number of other processes in the same folder.
class DiskCache {
 public:
  struct Stats {
    uint64_t hits = 0, misses = 0;
    uint64_t faulty = 0;    ///< misses whose entry was there and not whole, or not to be trusted
    uint64_t unread = 0;    ///< misses whose entry was there and could not be read
    uint64_t stored = 0;    ///< entries made, or found to be made by another meanwhile
    uint64_t unstored = 0;  ///< entries that could not be made
    uint64_t evicted = 0;
  };
  using Warn = std::function<void(const std::string&)>;

  /// Opens the folder, or makes it, when it is first needed. `warn` gets the one warning there may
  /// be; by default it goes to the log.
  explicit DiskCache(CacheSettings settings, Warn warn = {});

  /// The process's own, with its settings.
  static DiskCache& of_process();

  /// Whether a lookup can find anything: neither switched off nor without a folder to trust.
  bool enabled();

  /// The payload that was stored under an equal key.
  std::optional<std::string> load(const CacheKey& key);
  /// Keeps `payload`, unless there is an entry of this key already.
  void store(const CacheKey& key, std::string_view payload);
  /// Removes an entry whose payload proved to make no sense.
  void remove(const CacheKey& key);

  Stats stats() const;
  const CacheSettings& settings() const { return settings_; }

 private:
  const CacheFolder* folder();
  void open_folder();
  // Where others can write, only what is signed is of use.
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
  std::atomic<bool> read_only_ = false;  // the folder turned out not to take files

  mutable std::mutex mutex_;  // guards what follows
  Stats stats_;
  uint64_t unaccounted_bytes_ = UINT64_MAX;  // stored since the folder's size was looked at
};

}  // namespace braze
