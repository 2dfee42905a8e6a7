#include "runtime/io/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kMapping{"file-mapping", ErrorKind::ResourceExhausted,
                               "A file does not fit into the address space of the process."};
}  // namespace codes

MappedFile::MappedFile(const Descriptor& file, std::string path) : path_(std::move(path)) {
  const uint64_t size = size_of(file, path_);
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
  return map(open_file(path), path);
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
