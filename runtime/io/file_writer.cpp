#include "runtime/io/file_writer.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ir/support/text.h"

namespace braze {

namespace {

// A path by which an open file without a name can get one.
std::string path_of(const Descriptor& file) { return fmt::format("/proc/self/fd/{}", file.get()); }

}  // namespace

FileWriter::FileWriter(std::string path, mode_t permissions) : path_(std::move(path)) {
  check_path(path_);
  struct stat facts {};
  if (stat(path_.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
    fail(codes::kFileKind, fmt::format("{} is not a regular file", quote(path_)));
  follow_links();
  create(permissions);
  take_over_permissions(permissions);
}

void FileWriter::create(mode_t permissions) {
  // The file that this one replaces may have fewer permissions, so at first only the owner may read
  // it.
  struct stat facts {};
  if (stat(target_.c_str(), &facts) == 0) permissions &= 0600;
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  file_ = Descriptor(
      ::open(folder.empty() ? "." : folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, permissions));
  if (file_ && access(path_of(file_).c_str(), F_OK) == 0) return;
  make_temporary([&] {
    file_ = Descriptor(
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, permissions));
    return static_cast<bool>(file_);
  });
}

// Makes a file under a name that no other file has. `make` makes it as temporary_, or sets errno.
template <class Make>
void FileWriter::make_temporary(const Make& make) {
  // std::random_device of a newer libstdc++ would need a newer glibc, so it is not used.
  const auto random = [] {
    uint32_t value = 0;
    return getrandom(&value, sizeof(value), 0) == sizeof(value) ? value
                                                                : static_cast<uint32_t>(getpid());
  };
  for (int attempt = 0;; ++attempt) {
    temporary_ = fmt::format("{}.{:08x}.tmp", target_, random());
    if (make()) return;
    if (errno == EEXIST && attempt < 100) continue;
    const int error = errno;
    temporary_.clear();
    fail_write(error);
  }
}

void FileWriter::take_over_permissions(mode_t most) {
  struct stat facts {};
  if (stat(target_.c_str(), &facts) != 0) return;
  // Some file systems have no permissions. If they cannot be set, only the owner can read the file.
  [[maybe_unused]] const int ignored = fchmod(file_.get(), facts.st_mode & most);
}

FileWriter::~FileWriter() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

// Follows symbolic links to the file that will be written, whether it exists or not. In a folder in
// which everybody may make files, a link of another user could lead to any file of this user, so
// such links are refused.
void FileWriter::follow_links() {
  constexpr int kMostLinks = 40;  // the limit of the kernel
  target_ = path_;
  struct stat facts {};
  for (int links = 0; lstat(target_.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode); ++links) {
    if (links == kMostLinks) fail_write(ELOOP);
    if (facts.st_uid != geteuid() && facts.st_uid != 0)
      fail(codes::kFileUnwritable,
           fmt::format("{} cannot be written: the symbolic link {} belongs to user {}, neither to "
                       "you (user {}) nor to root",
                       quote(path_), quote(target_), facts.st_uid, geteuid()),
           {.location = {}, .node = "", .fix = "name what the link points to"});
    std::error_code error;
    const std::filesystem::path to = std::filesystem::read_symlink(target_, error);
    if (error) fail_write(error.value());
    target_ = (std::filesystem::path(target_).parent_path() / to).string();
  }
}

void FileWriter::fail_write(int error) const {
  fail(codes::kFileUnwritable,
       fmt::format("{} cannot be written: {}", quote(path_),
                   std::error_code(error, std::generic_category()).message()));
}

void FileWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_write(errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
    size_ += static_cast<uint64_t>(count);
  }
}

std::string FileWriter::reading_path() const {
  return temporary_.empty() ? path_of(file_) : temporary_;
}

void FileWriter::publish() {
  if (fsync(file_.get()) != 0) fail_write(errno);
  if (temporary_.empty()) {
    const std::string unnamed = path_of(file_);
    const auto link_to = [&](const std::string& name) {
      return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    if (link_to(target_)) return;
    if (errno != EEXIST) fail_write(errno);
    // A link replaces no file.
    make_temporary([&] { return link_to(temporary_); });
  }
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail_write(errno);
  temporary_.clear();
}

}  // namespace braze
