// open_file.h — opens files by path, and reports what is wrong with a path.
//
// Braze opens every path by the functions here, by those of trust.h, which have stricter rules, or
// by file_writer.h.
#pragma once

#include <cstdint>
#include <string>

#include "braze/error.h"
#include "runtime/io/descriptor.h"

namespace braze {

namespace codes {
inline constexpr Code kFileMissing{"file-missing", ErrorKind::NotFound,
                                   "A file or folder does not exist."};
inline constexpr Code kFileDenied{"file-denied", ErrorKind::DataLoss,
                                  "The permissions of a file or folder do not allow to open it."};
inline constexpr Code kFileKind{"file-kind", ErrorKind::DataLoss,
                                "A path leads to something other than a regular file or folder."};
inline constexpr Code kFileUnreadable{"file-unreadable", ErrorKind::DataLoss,
                                      "The system could not open or read a file."};
inline constexpr Code kFilePath{"file-path", ErrorKind::InvalidArgument,
                                "A path that no file can have."};
}  // namespace codes

/// Throws the Error for `error`, an errno that occurred when `path` was opened or read.
[[noreturn]] void fail_open(const std::string& path, int error);

/// Throws kFilePath if the path has a NUL byte, because the system would use only the part before
/// it.
void check_path(const std::string& path);

/// Opens a regular file for reading. Errors: kFilePath, kFileMissing, kFileDenied, kFileKind,
/// kFileUnreadable.
Descriptor open_file(const std::string& path);

/// The size of an open file in bytes; kFileKind if it is not regular. `path` is for messages.
uint64_t size_of(const Descriptor& file, const std::string& path);

}  // namespace braze
