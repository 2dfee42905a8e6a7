// cache_folder.h — the folder of a disk cache: files that appear whole or not at all.
//
// Nothing here relies on locks or on memory maps, so that a folder can lie on a network and be used
// by any number of processes: a file is written under a temporary name, linked to its own name once
// it is complete, and never changed again. Readers that lose a race see no file, which is a miss.
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
  /// Opens a folder by the rules of runtime/io/trust.h. `make` makes it, and those above it that
  /// are not there, for this user alone. `may_be_shared` opens also a folder that the rules refuse.
  /// Throws Error.
  static CacheFolder open(const std::string& path, bool make, bool may_be_shared = false);

  const std::string& path() const { return path_; }
  /// Whether others than this user and root could have put files into it.
  bool shared() const { return shared_; }

  /// The bytes of an entry, which view_entry judges.
  struct Reading {
    std::string bytes;
    std::string_view fault;  ///< of its header: nothing else was read, and there are no bytes
    uid_t owner = 0;
    std::error_code error;   ///< no_such_file_or_directory: there is none
    bool untrusted = false;  ///< others than this user and root could have written it
    CacheClock::time_point used;
  };
  Reading read(const std::string& name) const;

  /// Makes the entry, unless there is one of that name, which stays. `sync` waits until the bytes
  /// are on the disk; `for_all` lets others read it, as far as this user's umask does.
  std::error_code publish(const std::string& name, std::string_view bytes, bool sync,
                          bool for_all = false) const;

  /// Notes that an entry is used now. Failure does not matter.
  void touch(const std::string& name) const;
  std::error_code remove(const std::string& name) const;

  struct File {
    std::string name;
    uint64_t bytes = 0;
    CacheClock::time_point used;  ///< a time to come counts as now
    bool removable = true;        ///< by this user
  };
  /// All entries, the longest unused first. Other files in the folder are left alone.
  std::vector<File> entries() const;
  /// What writers that died left behind, if it is older than `age`.
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

/// Those of `entries`, which are in the order of their use, that have to go so that the rest has at
/// most `max_bytes`, and those not used since `oldest`.
std::vector<CacheFolder::File> superfluous(const std::vector<CacheFolder::File>& entries,
                                           uint64_t max_bytes, CacheClock::time_point oldest = {});

}  // namespace braze
