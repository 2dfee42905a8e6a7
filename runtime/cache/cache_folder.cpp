#include "runtime/cache/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>

#include "ir/support/hash.h"
#include "ir/support/text.h"
#include "runtime/cache/cache_entry.h"
#include "runtime/io/signature.h"
#include "runtime/io/trust.h"

namespace braze {

namespace {

constexpr std::string_view kTemporary = "tmp-";
constexpr size_t kNameDigits = 32;

std::error_code last_error() { return {errno, std::generic_category()}; }

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool is_entry(std::string_view name) {
  return name.size() == kNameDigits && std::all_of(name.begin(), name.end(), is_hex);
}

bool is_temporary(std::string_view name) { return name.starts_with(kTemporary); }

// A name that no other writer on any host has.
std::string temporary_name() {
  Hash128 random;
  if (getrandom(&random, sizeof(random), 0) != sizeof(random)) random = {};
  return std::string(kTemporary) + random.to_string();
}

CacheClock::time_point time_of(const struct stat& facts) {
  return CacheClock::time_point(std::chrono::duration_cast<CacheClock::duration>(
      std::chrono::seconds(facts.st_mtim.tv_sec) +
      std::chrono::nanoseconds(facts.st_mtim.tv_nsec)));
}

bool is_trusted(const struct stat& facts) {
  return (facts.st_uid == geteuid() || facts.st_uid == 0) &&
         (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Whether a write would exceed the process's limit of file sizes. Then a signal would end the
// process.
bool exceeds_file_limit(size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         bytes > limit.rlim_cur;
}

std::error_code write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return last_error();
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// The fault that the beginning of a file shows. The file may be signed.
std::string_view fault_of(int fd, uint64_t size) {
  std::string header(kEntryHeaderBytes, '\0');
  const ssize_t got = pread(fd, header.data(), header.size(), 0);
  if (got != static_cast<ssize_t>(header.size())) return {};  // reading it reports what is wrong
  const std::string_view fault = header_fault(header, size);
  if (fault.empty() || size < kSignatureFileBytes) return fault;
  return header_fault(header, size - kSignatureFileBytes).empty() ? std::string_view() : fault;
}

std::error_code read_all(int fd, std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::read(fd, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return last_error();
    if (got == 0) return {EIO, std::generic_category()};  // shorter than it was a moment ago
    at += static_cast<size_t>(got);
  }
  return {};
}

// Folders that do not exist yet are made for this user only, whatever the umask is.
void make_folders(const std::filesystem::path& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno != ENOENT || !path.has_parent_path() ||
      path.parent_path() == path)
    return;  // opening it reports what is wrong
  make_folders(path.parent_path());
  mkdir(path.c_str(), 0700);
}

}  // namespace

CacheFolder CacheFolder::open(const std::string& path, bool make, bool may_be_shared) {
  if (make) make_folders(path);
  try {
    return {open_trusted_folder(path), path, false};
  } catch (const Error& error) {
    if (!may_be_shared || &error.code() != &codes::kFileUntrusted) throw;
  }
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail_open(path, errno);
  return {std::move(folder), path, true};
}

CacheFolder::Reading CacheFolder::read(const std::string& name) const {
  Reading out;
  const Descriptor file(
      openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    out.error = last_error();
    out.untrusted = errno == ELOOP;
    struct stat facts {};
    if (fstatat(folder_.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0)
      out.owner = facts.st_uid;
    return out;
  }
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) {
    out.error = last_error();
  } else if (!S_ISREG(facts.st_mode)) {
    out.untrusted = true;
  } else {
    out.untrusted = shared_ || !is_trusted(facts);
    out.used = time_of(facts);
    out.owner = facts.st_uid;
    // Files can claim to have any size, and hold nothing.
    out.fault = fault_of(file.get(), static_cast<uint64_t>(facts.st_size));
    if (!out.fault.empty()) return out;
    out.bytes.resize(static_cast<size_t>(facts.st_size));
    out.error = read_all(file.get(), out.bytes);
    if (out.error) out.bytes.clear();
  }
  return out;
}

std::error_code CacheFolder::publish(const std::string& name, std::string_view bytes, bool sync,
                                     bool for_all) const {
  const std::string temporary = temporary_name();
  std::error_code error = write(temporary, bytes, sync, for_all ? 0644 : 0600);
  if (!error) error = link(temporary, name);
  unlinkat(folder_.get(), temporary.c_str(), 0);
  return error;
}

std::error_code CacheFolder::write(const std::string& name, std::string_view bytes, bool sync,
                                   mode_t mode) const {
  if (exceeds_file_limit(bytes.size())) return {EFBIG, std::generic_category()};
  Descriptor file(
      openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) return last_error();
  if (const std::error_code error = write_all(file.get(), bytes)) return error;
  if (sync && fdatasync(file.get()) != 0) return last_error();
  return file.close() ? std::error_code()
                      : last_error();  // network folders report failed writes here
}

// The first of two writers wins. The file of the other is as good, and is removed.
std::error_code CacheFolder::link(const std::string& temporary, const std::string& name) const {
  const int at = folder_.get();
  if (linkat(at, temporary.c_str(), at, name.c_str(), 0) == 0 || errno == EEXIST) return {};
  // Some file systems have no links.
  if (renameat2(at, temporary.c_str(), at, name.c_str(), RENAME_NOREPLACE) == 0 || errno == EEXIST)
    return {};
  return renameat(at, temporary.c_str(), at, name.c_str()) == 0 ? std::error_code() : last_error();
}

void CacheFolder::touch(const std::string& name) const {
  utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

std::error_code CacheFolder::remove(const std::string& name) const {
  return unlinkat(folder_.get(), name.c_str(), 0) == 0 ? std::error_code() : last_error();
}

std::vector<CacheFolder::File> CacheFolder::entries() const { return files(is_entry); }

std::vector<CacheFolder::File> CacheFolder::orphans(std::chrono::seconds age) const {
  std::vector<File> found = files(is_temporary);
  const CacheClock::time_point oldest = CacheClock::now() - age;
  std::erase_if(found, [&](const File& file) { return file.used > oldest; });
  return found;
}

std::vector<CacheFolder::File> CacheFolder::files(bool (*wanted)(std::string_view)) const {
  // A descriptor of its own, because a folder that is read has a position.
  const int fd = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd), closedir);
  struct stat here {};
  const uid_t user = geteuid();
  const bool removes_all =
      fstat(fd, &here) == 0 && ((here.st_mode & S_ISVTX) == 0 || here.st_uid == user || user == 0);
  const CacheClock::time_point now = CacheClock::now();
  std::vector<File> out;
  while (const dirent* const found = readdir(folder.get())) {
    struct stat facts {};
    if (!wanted(found->d_name) ||
        fstatat(folder_.get(), found->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    out.push_back({found->d_name, static_cast<uint64_t>(facts.st_size),
                   std::min(time_of(facts), now), removes_all || facts.st_uid == user});
  }
  std::sort(out.begin(), out.end(), [](const File& a, const File& b) {
    return std::tie(a.used, a.name) < std::tie(b.used, b.name);
  });
  return out;
}

std::vector<CacheFolder::File> superfluous(const std::vector<CacheFolder::File>& entries,
                                           uint64_t max_bytes, CacheClock::time_point oldest) {
  uint64_t bytes = 0;
  for (const CacheFolder::File& file : entries) bytes += file.bytes;
  std::vector<CacheFolder::File> out;
  for (const CacheFolder::File& file : entries) {
    if (bytes <= max_bytes && file.used >= oldest) break;
    bytes -= file.bytes;
    out.push_back(file);
  }
  return out;
}

}  // namespace braze
