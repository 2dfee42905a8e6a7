// file_writer.h — writes files so that each appears whole or not at all.
//
// The bytes go to a temporary file in the same folder, which gets the name of the file when they
// are on disk. Readers see the old file or the new one. A program that has the old file open or
// mapped keeps it. Where the file system allows it, the temporary file has no name, so that nothing
// of it stays if the process is killed. If the path is a symbolic link of this user or root, the
// link stays, and all this happens at the place that it points to.
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
  /// The permissions for files with code, which is not loaded from files that others can write
  /// (trust.h).
  static constexpr mode_t kCode = 0644;

  /// Errors, here and below: kFileUnwritable; kFilePath; kFileKind if something other than a
  /// regular file already has the name. The file gets at most `permissions`. If it replaces another
  /// file, it gets those of them that the other file has; a new file gets those that the umask
  /// allows.
  explicit FileWriter(std::string path, mode_t permissions = kForAll);
  /// Removes the temporary file unless `publish` was called. One without a name is then gone.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  /// The number of bytes appended so far.
  uint64_t size() const { return size_; }
  /// A path by which this process can read what was appended, until the file is published or this
  /// is destroyed. So a file that only this process needs is never published, and stays nowhere.
  std::string reading_path() const;
  /// Waits until the bytes are on disk and gives the file its name. Replaces an existing file.
  void publish();

 private:
  void follow_links();
  void create(mode_t permissions);
  template <class Make>
  void make_temporary(const Make& make);
  void take_over_permissions(mode_t most);
  [[noreturn]] void fail_write(int error) const;

  const std::string path_;
  std::string target_;     // path_ with its links resolved
  std::string temporary_;  // empty when there is no name to remove
  Descriptor file_;
  uint64_t size_ = 0;
};

}  // namespace braze
