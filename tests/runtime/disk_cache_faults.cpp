// What the disk cache does when the system says no: calls of this program and its libraries go
// through the functions below, which fail on request.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>

#include "tests/runtime/cache_support.h"

namespace {

// Which calls fail, and how.
struct Faults {
  int read = 0, write = 0, close = 0, open_new = 0, linkat = 0, renameat2 = 0, fdatasync = 0;
  size_t most_read = SIZE_MAX, most_written = SIZE_MAX;  // bytes of one call
  size_t room = SIZE_MAX;                                // bytes until `write` fails
} faults;

bool fails(int error) {
  if (error != 0) errno = error;
  return error != 0;
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* to, size_t size) {
  if (fails(faults.read)) return -1;
  return syscall(SYS_read, fd, to, std::min(size, faults.most_read));
}

ssize_t write(int fd, const void* from, size_t size) {
  if (fd <= 2) return syscall(SYS_write, fd, from, size);
  if (faults.room == 0 && fails(faults.write)) return -1;
  const ssize_t done =
      syscall(SYS_write, fd, from, std::min({size, faults.most_written, faults.room}));
  if (faults.room != SIZE_MAX) faults.room -= static_cast<size_t>(done);
  return done;
}

int close(int fd) {
  const long result = syscall(SYS_close, fd);
  return fails(faults.close) ? -1 : static_cast<int>(result);
}

int openat(int folder, const char* path, int flags, ...) {
  if ((flags & O_CREAT) != 0 && fails(faults.open_new)) return -1;
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  if (fails(faults.linkat)) return -1;
  return static_cast<int>(syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  if (fails(faults.renameat2)) return -1;
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int fdatasync(int fd) {
  return fails(faults.fdatasync) ? -1 : static_cast<int>(syscall(SYS_fdatasync, fd));
}

}  // extern "C"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class DiskCacheFaults : public testing::Test {
 protected:
  void SetUp() override { cache_.store(key_of(0), "there before"); }
  void TearDown() override { faults = {}; }

  CacheSettings settings() const { return {.folder = temporary_.path / "cache", .sync = true}; }
  size_t files() const { return names_in(settings().folder).size(); }

  /// Stores with the faults in place: nothing is kept, nothing is left, and what was there serves.
  /// After `lasting` ones nothing more is tried.
  void expect_not_stored(const std::string& why, bool lasting) {
    const std::string large(100'000, 'x');
    cache_.store(key_of(1), large);
    EXPECT_EQ(cache_.stats().unstored, 1u);
    ASSERT_THAT(warnings_, SizeIs(1));
    EXPECT_THAT(warnings_[0], HasSubstr(why));
    faults = {};
    EXPECT_THAT(names_in(settings().folder), SizeIs(1));
    EXPECT_EQ(cache_.load(key_of(0)), "there before");
    EXPECT_EQ(cache_.load(key_of(1)), std::nullopt);
    cache_.store(key_of(1), large);
    EXPECT_EQ(cache_.load(key_of(1)).has_value(), !lasting);
    EXPECT_EQ(cache_.stats().unstored, 1u);
    EXPECT_THAT(warnings_, SizeIs(1));
  }

  TemporaryFolder temporary_;
  std::vector<std::string> warnings_;
  DiskCache cache_{settings(), [this](const std::string& text) { warnings_.push_back(text); }};
};

TEST_F(DiskCacheFaults, FullDisk) {
  faults.write = ENOSPC;
  faults.room = 4096;
  expect_not_stored("No space left on device", true);
}

TEST_F(DiskCacheFaults, FullQuota) {
  faults.write = EDQUOT;
  faults.room = 0;
  expect_not_stored("quota exceeded", true);
}

TEST_F(DiskCacheFaults, ReadOnlyFileSystem) {
  faults.open_new = EROFS;
  expect_not_stored("Read-only file system", true);
}

TEST_F(DiskCacheFaults, FoldersThatMayNotBeWritten) {
  faults.open_new = EACCES;
  expect_not_stored("Permission denied", true);
}

TEST_F(DiskCacheFaults, WriteThatFailsForOnce) {
  faults.write = EIO;
  faults.room = 10'000;
  expect_not_stored("Input/output error", false);
}

// Network folders write when a file is closed.
TEST_F(DiskCacheFaults, LateWriteThatFails) {
  faults.close = EDQUOT;
  expect_not_stored("quota exceeded", true);
}

TEST_F(DiskCacheFaults, SyncThatFails) {
  faults.fdatasync = EIO;
  expect_not_stored("Input/output error", false);
}

TEST_F(DiskCacheFaults, ReadThatFailsIsAMissAndTheEntryStays) {
  for (const int error : {EIO, ESTALE, ETIMEDOUT}) {
    faults.read = error;
    EXPECT_EQ(cache_.load(key_of(0)), std::nullopt);
    faults = {};
    EXPECT_EQ(cache_.load(key_of(0)), "there before");
  }
  EXPECT_EQ(cache_.stats().unread, 3u);
  EXPECT_EQ(cache_.stats().faulty, 0u);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheFaults, ShortReadsAndWritesAreGoneOnWith) {
  faults.most_read = 1000;
  faults.most_written = 777;
  cache_.store(key_of(7), payload_of(7));
  EXPECT_EQ(cache_.load(key_of(7)), payload_of(7));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheFaults, FileSystemsWithoutLinks) {
  faults.linkat = EPERM;
  cache_.store(key_of(1), "by renameat2");
  cache_.store(key_of(1), "comes second");
  EXPECT_EQ(cache_.load(key_of(1)), "by renameat2");
  faults.renameat2 = EINVAL;
  cache_.store(key_of(2), "by renameat");
  EXPECT_EQ(cache_.load(key_of(2)), "by renameat");
  EXPECT_EQ(files(), 3u) << "and nothing temporary";
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace braze::test
