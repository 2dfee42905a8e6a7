// cache_folder.h — the folder of a disk cache, in which files appear whole or not at all.
//
// It uses no locks and no memory maps, so a folder can be on a network, and any number of processes
// can use it. A file is written under a temporary name and linked to its own name when it is
// complete. It never changes afterwards. A reader that loses a race sees no file, which is a miss.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/io/descriptor.h"

namespace braze {

using CacheClock = std::chrono::system_clock;

class CacheFolder {
 public:
  /// Opens a folder by the rules of runtime/io/trust.h. With `make` it creates the folder, and the
  /// missing folders above it, for this user alone. With `may_be_shared` it also opens a folder
  /// that the rules refuse. Throws Error.
  static CacheFolder open(const std::string& path, bool make, bool may_be_shared = false);

  const std::string& path() const { return path_; }
  /// Whether users other than this user and root could have put files into it.
  bool shared() const { return shared_; }

  /// Reads the bytes of an entry, which view_entry checks.
  struct Reading {
    std::string bytes;
    std::string_view fault;  ///< a fault of its header; then nothing else was read
    uid_t owner = 0;
    std::error_code error;   ///< no_such_file_or_directory if there is no such file
    bool untrusted = false;  ///< whether users other than this user and root could have written it
    CacheClock::time_point used;
  };
  Reading read(const std::string& name) const;

  /// Creates the entry. An existing entry of that name stays. `sync` waits until the bytes are on
  /// disk. `for_all` lets others read it, as far as this user's umask allows.
  std::error_code publish(const std::string& name, std::string_view bytes, bool sync,
                          bool for_all = false) const;

  /// Records that an entry is used now. Failures are ignored.
  void touch(const std::string& name) const;
  std::error_code remove(const std::string& name) const;

  struct File {
    std::string name;
    uint64_t bytes = 0;
    CacheClock::time_point used;  ///< a time in the future counts as now
    bool removable = true;        ///< whether this user can remove it
  };
  /// All entries; those that were not used for longest come first. Ignores other files.
  std::vector<File> entries() const;
  /// Temporary files of writers that died, if they are older than `age`.
  std::vector<File> orphans(std::chrono::seconds age) const;

 private:
  CacheFolder(Descriptor folder, std::string path, bool shared)
      : folder_(std::move(folder)), path_(std::move(path)), shared_(shared) {}
  std::vector<File> files(bool (*wanted)(std::string_view name)) const;
  std::error_code write(const std::string& name, std::string_view bytes, bool sync,
                        mode_t mode) const;
  std::error_code link(const std::string& temporary, const std::string& name) const;

  Descriptor folder_;
  std::string path_;
  bool shared_ = false;
};

/// The entries that must be removed so that the rest has at most `max_bytes`, and those that were
/// not used since `oldest`. `entries` is in the order of use.
std::vector<CacheFolder::File> superfluous(const std::vector<CacheFolder::File>& entries,
                                           uint64_t max_bytes, CacheClock::time_point oldest = {});

}  // namespace braze
