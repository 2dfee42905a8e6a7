// mapped_file.h — the bytes of a file, mapped for reading.
//
// The mapping is private and read-only. Pages are read from the file when they are first accessed.
// If another program shortens a mapped file, the process ends with SIGBUS. Files that are kept
// open and that other users can write are therefore read, not mapped (open_stable). Programs that
// replace a file by a rename, as Braze does, cause no problem.
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
  /// regular file), kFileChanged, kFileUnreadable; ResourceExhausted if the address space is too
  /// small.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  /// The same for a file that holds code. It must pass the rules of trust.h, else kFileUntrusted.
  static std::shared_ptr<const MappedFile> open_trusted(const std::string& path);

  /// Bytes that no other user can change or remove while they are used. The file is mapped if it
  /// passes the rules of trust.h, through any links. Otherwise it is copied into memory of this
  /// process. Errors are those of `open`, and ResourceExhausted if the copy does not fit into
  /// memory.
  static std::shared_ptr<const MappedFile> open_stable(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// The bytes of the whole file, aligned to a page.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  static std::shared_ptr<const MappedFile> map(const Descriptor& file, const std::string& path);
  static std::shared_ptr<const MappedFile> copy(const std::string& path);
  /// `mapped` is the descriptor of the file, or -1 for memory without a file.
  MappedFile(uint64_t size, int mapped, std::string path);

  std::span<const std::byte> bytes_;
  std::string path_;
};

}  // namespace braze
