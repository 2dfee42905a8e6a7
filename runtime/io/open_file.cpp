#include "runtime/io/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "ir/support/text.h"

namespace braze {

void fail_open(const std::string& path, int error) {
  switch (error) {
    case ENOTDIR:
      fail(codes::kFileKind,
           fmt::format("{} is not a folder, or a part of the path is not a folder", quote(path)));
    case ENOENT:
      fail(codes::kFileMissing, fmt::format("{} does not exist", quote(path)));
    case EACCES:
    case EPERM:
      fail(codes::kFileDenied, fmt::format("{}: permission denied", quote(path)));
    default:
      fail(codes::kFileUnreadable,
           fmt::format("{} cannot be read: {}", quote(path),
                       std::error_code(error, std::generic_category()).message()));
  }
}

void check_path(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    fail(codes::kFilePath, fmt::format("{} is not a path: it has a NUL byte", quote(path)));
}

Descriptor open_file(const std::string& path) {
  check_path(path);
  // O_NONBLOCK keeps the opening of a pipe from waiting for its other end.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) fail_open(path, errno);
  size_of(file, path);
  return file;
}

uint64_t size_of(const Descriptor& file, const std::string& path) {
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) fail_open(path, errno);
  if (!S_ISREG(facts.st_mode))
    fail(codes::kFileKind, fmt::format("{} is not a regular file", quote(path)));
  return static_cast<uint64_t>(facts.st_size);
}

}  // namespace braze
