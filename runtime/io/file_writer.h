// file_writer.h — writes a file that appears at once and whole, or not at all.
//
// The bytes go to a temporary file beside it, which takes the name when they have reached the disk.
// Readers see the old file or the new one; who has the old one open or mapped keeps it. Where the
// path is a symbolic link, of this user or root, the link stays, and all this happens where it
// leads to.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/io/descriptor.h"
#include "runtime/io/open_file.h"

namespace braze {

namespace codes {
inline constexpr Code kFileUnwritable{"file-unwritable", ErrorKind::DataLoss,
                                      "The system could not write a file."};
}  // namespace codes

class FileWriter {
 public:
  static constexpr mode_t kForAll = 0666;
  /// For what holds code, which is not taken from files that others can write (trust.h).
  static constexpr mode_t kCode = 0644;

  /// Errors, here and below: kFileUnwritable; kFilePath; kFileKind if something other than a
  /// regular file has the name already.
  /// `permissions`: the most that the file gets. Of these, one in place of another has what that
  /// one had; a new one, what the umask lets through.
  explicit FileWriter(std::string path, mode_t permissions = kForAll);
  /// Leaves nothing behind unless `publish` was called.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  /// Bytes appended so far.
  uint64_t size() const { return size_; }
  /// Waits for the disk and gives the file its name, in place of another one.
  void publish();

 private:
  void follow_links();
  void create(mode_t permissions);
  void take_over_permissions(mode_t most);
  [[noreturn]] void fail_write(int error) const;

  const std::string path_;
  std::string target_;     // path_, links resolved
  std::string temporary_;  // empty when there is none to remove
  Descriptor file_;
  uint64_t size_ = 0;
};

}  // namespace braze
