// mapped_file.h — the bytes of a file, mapped for reading.
//
// The mapping is private and read-only. Pages come from the file when they are touched: a file that
// another program shortens meanwhile ends the process with SIGBUS, so what is kept open and what
// other users can write is read, not mapped (open_stable). Programs that replace a file by rename,
// as Braze does, are safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "runtime/io/trust.h"

namespace braze {

namespace codes {
inline constexpr Code kFileChanged{"file-changed", ErrorKind::DataLoss,
                                   "A file changed its size while it was opened."};
}  // namespace codes

class MappedFile {
 public:
  /// Maps a regular file, which may be empty. Errors: kFileMissing, kFileDenied, kFileKind (not a
  /// regular file), kFileChanged, kFileUnreadable; ResourceExhausted where address space ends.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  /// The same for a file that holds code: by the rules of trust.h, or kFileUntrusted.
  static std::shared_ptr<const MappedFile> open_trusted(const std::string& path);

  /// Bytes that no other user can change or take away while they are used: mapped if the file is
  /// one to trust by trust.h, through whatever links; else a copy in memory of this process alone.
  /// Errors: as those of `open`; ResourceExhausted if the copy is more than the machine's memory.
  static std::shared_ptr<const MappedFile> open_stable(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// The whole file; aligned to a page.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  static std::shared_ptr<const MappedFile> map(const Descriptor& file, const std::string& path);
  static std::shared_ptr<const MappedFile> copy(const std::string& path);
  /// `mapped`: the descriptor of the mapping, -1 for memory without a file.
  MappedFile(uint64_t size, int mapped, std::string path);

  std::span<const std::byte> bytes_;
  std::string path_;
};

}  // namespace braze
