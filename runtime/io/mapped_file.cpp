#include "runtime/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>

#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kMapping{"file-mapping", ErrorKind::ResourceExhausted,
                               "A file does not fit into the address space of the process."};
}  // namespace codes

namespace {

size_t size_of(const Descriptor& file, const std::string& path) {
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) fail_open(path, errno);
  if (!S_ISREG(facts.st_mode))
    fail(codes::kFileKind, fmt::format("{} is not a regular file", quote(path)));
  return static_cast<size_t>(facts.st_size);
}

}  // namespace

MappedFile::MappedFile(const Descriptor& file, std::string path) : path_(std::move(path)) {
  const size_t size = size_of(file, path_);
  if (size == 0) return;  // an empty mapping is none
  void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (start == MAP_FAILED && errno == ENOMEM)
    fail(codes::kMapping, fmt::format("{} cannot be mapped: {}", quote(path_), bytes_text(size)));
  if (start == MAP_FAILED) fail_open(path_, errno);
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  // Not to wait for the other end, should it be a pipe.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) fail_open(path, errno);
  return map(file, path);
}

std::shared_ptr<const MappedFile> MappedFile::open_trusted(const std::string& path) {
  return map(open_trusted_file(path), path);
}

// Once more after the mapping: a size that changed would make the span a lie.
std::shared_ptr<const MappedFile> MappedFile::map(const Descriptor& file, const std::string& path) {
  const std::shared_ptr<const MappedFile> mapped(new MappedFile(file, path));
  if (size_of(file, path) != mapped->bytes_.size())
    fail(codes::kFileChanged, fmt::format("{} changed its size while it was opened", quote(path)));
  return mapped;
}

}  // namespace braze
