#include "runtime/io/trust.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <filesystem>
#include <system_error>

#include "ir/support/shell.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int kMostLinks = 40;  // the limit of the kernel

[[noreturn]] void distrust(const std::string& path, const std::string& cause,
                           const std::string& fix) {
  fail(codes::kFileUntrusted, fmt::format("{} {}, so code is not loaded from there", path, cause),
       {.location = {}, .node = "", .fix = fix});
}

struct stat facts_of(int fd, const std::string& path) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) fail_open(path, errno);
  return facts;
}

bool others_may_write(const struct stat& facts) {
  return (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

void check_owner(const struct stat& facts, const std::string& path) {
  if (facts.st_uid == geteuid() || facts.st_uid == 0) return;
  distrust(path,
           fmt::format("belongs to user {}, neither to you (user {}) nor to root", facts.st_uid,
                       geteuid()),
           "if you trust what it holds, copy it to a folder of your own");
}

void check_not_writable(const struct stat& facts, const std::string& path) {
  if (!others_may_write(facts)) return;
  const bool all = (facts.st_mode & S_IWOTH) != 0;
  distrust(path, all ? "can be written by everybody" : "can be written by its group",
           fmt::format("if you trust what it holds: chmod go-w {}", shell_path(path)));
}

// Checks a folder on the way to the file.
void check_passage(const struct stat& facts, const std::string& path) {
  check_owner(facts, path);
  if ((facts.st_mode & S_ISVTX) == 0) check_not_writable(facts, path);
}

// Follows a path from / one name at a time, and keeps the folder that it has reached open. So
// nothing that was checked can be exchanged before it is used.
class Walk {
 public:
  explicit Walk(const std::string& path) {
    check_path(path);
    if (path.empty()) fail_open(path, ENOENT);
    std::error_code error;
    push_front(std::filesystem::absolute(path, error));
    if (error) fail_open(path, error.value());
    if (names_.empty()) names_.push_back(".");
    restart();
  }

  /// Enters folders until `left` names of the path are left.
  void enter(size_t left) {
    while (names_.size() > left) step();
  }

  /// Opens the last name, which must not be a link.
  Descriptor open_last(int flags) {
    BRAZE_CHECK(names_.size() == 1, "a path has a last name");
    const std::string path = path_of(names_.front());
    Descriptor last(openat(folder_.get(), names_.front().c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
    if (last) return last;
    struct stat facts {};
    const int error = errno;
    if (fstatat(folder_.get(), names_.front().c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(facts.st_mode))
      distrust(path, "is a symbolic link", "name what the link points to");
    fail_open(path, error);
  }

  std::string last_path() const { return path_of(names_.front()); }

 private:
  void push_front(const std::filesystem::path& path) {
    std::deque<std::string> names;
    for (const std::filesystem::path& name : path.relative_path())
      if (!name.empty() && name != ".") names.push_back(name.string());
    names_.insert(names_.begin(), names.begin(), names.end());
  }

  void restart() {
    folder_ = Descriptor(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder_) fail_open("/", errno);
    at_ = "/";
    check_passage(facts_of(folder_.get(), at_), at_);
  }

  std::string path_of(const std::string& name) const {
    return (std::filesystem::path(at_) / name).string();
  }

  void step() {
    const std::string name = names_.front();
    const std::string path = path_of(name);
    Descriptor next(openat(folder_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next) fail_open(path, errno);
    const struct stat facts = facts_of(next.get(), path);
    names_.pop_front();
    if (S_ISLNK(facts.st_mode)) return follow(next, facts, path);
    if (!S_ISDIR(facts.st_mode)) fail_open(path, ENOTDIR);
    check_passage(facts, path);
    folder_ = std::move(next);
    at_ = std::filesystem::path(path)
              .lexically_normal()
              .string();  // at_ has no links, so removing ".." gives the same place
  }

  void follow(const Descriptor& link, const struct stat& facts, const std::string& path) {
    check_owner(facts, path);
    if (++links_ > kMostLinks) fail_open(path, ELOOP);
    std::array<char, PATH_MAX> target;
    const ssize_t size = readlinkat(link.get(), "", target.data(), target.size());
    if (size < 0) fail_open(path, errno);
    const std::filesystem::path to(std::string(target.data(), static_cast<size_t>(size)));
    push_front(to);
    if (to.is_absolute()) restart();
  }

  std::deque<std::string> names_;  // names that are still to be followed
  Descriptor folder_;
  std::string at_;  // its path, without links
  int links_ = 0;
};

}  // namespace

Descriptor open_trusted_file(const std::string& path) {
  Walk walk(path);
  walk.enter(1);
  const std::string last = walk.last_path();
  // O_NONBLOCK keeps the opening of a pipe from waiting for its other end.
  Descriptor file = walk.open_last(O_RDONLY | O_NONBLOCK);
  size_of(file, path);
  const struct stat facts = facts_of(file.get(), last);
  check_owner(facts, last);
  check_not_writable(facts, last);
  return file;
}

Descriptor open_trusted_folder(const std::string& path) {
  Walk walk(path);
  walk.enter(1);
  const std::string last = walk.last_path();
  Descriptor folder = walk.open_last(O_RDONLY | O_DIRECTORY);
  const struct stat facts = facts_of(folder.get(), last);
  check_owner(facts, last);
  check_not_writable(facts, last);
  return folder;
}

}  // namespace braze
