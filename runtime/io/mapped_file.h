// mapped_file.h — the bytes of a file, mapped for reading.
//
// The mapping is private and read-only. Pages come from the file when they are touched: a file that
// another program shortens meanwhile ends the process with SIGBUS, so files that may change under
// way are to be read, not mapped. Programs that replace a file by rename, as Braze does, are safe.
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

  /// The same bytes in memory of this process alone, where nobody who can write the file can change
  /// them. Errors: as those of `open`.
  static std::shared_ptr<const MappedFile> copy(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// The whole file; aligned to a page.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  static std::shared_ptr<const MappedFile> map(const Descriptor& file, const std::string& path);
  /// `mapped`: the descriptor of the mapping, -1 for memory without a file.
  MappedFile(uint64_t size, int mapped, std::string path);

  std::span<const std::byte> bytes_;
  std::string path_;
};

}  // namespace braze
