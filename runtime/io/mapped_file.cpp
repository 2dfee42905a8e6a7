#include "runtime/io/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kMapping{"file-mapping", ErrorKind::ResourceExhausted,
                               "A file does not fit into the address space of the process."};
}  // namespace codes

namespace {

[[noreturn]] void fail_changed(const std::string& path) {
  fail(codes::kFileChanged, fmt::format("{} changed its size while it was opened", quote(path)));
}

// A file without contents can claim to have any size.
void check_memory(uint64_t size, const std::string& path) {
  const uint64_t pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const uint64_t memory = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (size > memory)
    fail(codes::kMapping,
         fmt::format("{} cannot be copied to memory, as it must be where others can write it: {}",
                     quote(path), bytes_text(size)),
         {.fix = "put it where only you can write it (chmod go-w), which lets it be mapped"});
}

}  // namespace

MappedFile::MappedFile(uint64_t size, int mapped, std::string path) : path_(std::move(path)) {
  if (size == 0) return;  // an empty file has no mapping
  void* const start =
      mapped < 0 ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                 : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, mapped, 0);
  if (start == MAP_FAILED && errno == ENOMEM)
    fail(codes::kMapping, fmt::format("{} cannot be mapped: {}", quote(path_), bytes_text(size)));
  if (start == MAP_FAILED) fail_open(path_, errno);
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  return map(open_file(path), path);
}

std::shared_ptr<const MappedFile> MappedFile::open_trusted(const std::string& path) {
  return map(open_trusted_file(path), path);
}

std::shared_ptr<const MappedFile> MappedFile::open_stable(const std::string& path) {
  check_path(path);
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  try {
    return map(open_trusted_file(error ? path : target.string()), path);
  } catch (const Error& refusal) {
    if (&refusal.code() != &codes::kFileUntrusted) throw;
  }
  return copy(path);
}

std::shared_ptr<const MappedFile> MappedFile::copy(const std::string& path) {
  const Descriptor file = open_file(path);
  const uint64_t size = size_of(file, path);
  check_memory(size, path);
  const std::shared_ptr<const MappedFile> copied(new MappedFile(size, -1, path));
  const auto bytes = copied->bytes_;
  auto* const start = const_cast<std::byte*>(bytes.data());
  size_t at = 0;
  for (ssize_t got = 1; at < bytes.size() && got != 0;) {
    got = read(file.get(), start + at, bytes.size() - at);
    if (got < 0 && errno != EINTR) fail_open(path, errno);
    if (got > 0) at += static_cast<size_t>(got);
  }
  if (at < bytes.size() || size_of(file, path) != bytes.size()) fail_changed(path);
  if (!bytes.empty()) mprotect(start, bytes.size(), PROT_READ);
  return copied;
}

// Maps a file. The size is checked again after the mapping, because the span would be wrong if it
// had changed.
std::shared_ptr<const MappedFile> MappedFile::map(const Descriptor& file, const std::string& path) {
  const std::shared_ptr<const MappedFile> mapped(
      new MappedFile(size_of(file, path), file.get(), path));
  if (size_of(file, path) != mapped->bytes_.size()) fail_changed(path);
  return mapped;
}

}  // namespace braze
