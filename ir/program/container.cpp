#include "ir/program/container.h"

#include <algorithm>
#include <cstring>

#include "ir/support/text.h"

namespace braze {

namespace {

constexpr uint64_t kAlignment = 64;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t sections;
  uint64_t file_bytes;
  uint64_t reserved[3];
  Hash128 hash;
};
static_assert(sizeof(Header) == kAlignment && sizeof(Header::magic) == kContainerMagic.size());

struct Row {
  uint64_t offset;
  uint64_t size;
  Hash128 hash;
};
static_assert(sizeof(Row) == 32);

uint64_t aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Hash128 hash_of(std::span<const std::byte> bytes) { return hash128(as_text(bytes)); }

std::string head_bytes(Header header, std::span<const Row> rows) {
  header.hash = {};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(rows.data()), rows.size_bytes());
  return bytes;
}

}  // namespace

uint32_t ContainerWriter::add(std::span<const std::byte> bytes) {
  const Hash128 hash = hash_of(bytes);
  for (size_t i = 0; i < sections_.size(); ++i) {
    if (hashes_[i] == hash && std::ranges::equal(sections_[i], bytes))
      return static_cast<uint32_t>(i);
  }
  sections_.push_back(bytes);
  hashes_.push_back(hash);
  return static_cast<uint32_t>(sections_.size() - 1);
}

void ContainerWriter::write(const std::function<void(std::span<const std::byte>)>& sink) const {
  Header header{};
  kContainerMagic.copy(header.magic, sizeof(header.magic));
  header.version = Container::kVersion;
  header.sections = static_cast<uint32_t>(sections_.size());
  std::vector<Row> rows;
  uint64_t end = sizeof(Header) + sections_.size() * sizeof(Row);
  for (size_t i = 0; i < sections_.size(); ++i) {
    rows.push_back({aligned(end), sections_[i].size(), hashes_[i]});
    end = rows.back().offset + rows.back().size;
  }
  header.file_bytes = end;
  std::string head = head_bytes(header, rows);
  header.hash = hash128(head);
  std::memcpy(head.data(), &header, sizeof(header));
  sink(std::as_bytes(std::span(head)));
  uint64_t written = head.size();
  for (size_t i = 0; i < sections_.size(); ++i) {
    constexpr std::byte kZeros[kAlignment] = {};
    sink(std::span(kZeros).first(rows[i].offset - written));
    sink(sections_[i]);
    written = rows[i].offset + rows[i].size;
  }
}

Container::Container(std::span<const std::byte> file, std::string_view name) : name_(name) {
  Header header;
  if (!as_text(file).starts_with(kContainerMagic))
    fail(codes::kNoContainer, fmt::format("{} is not a package", quote(name)),
         {.fix = "make a package with `braze compile`"});
  if (file.size() < sizeof(header)) damaged("the file ends within its header");
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.version != kVersion)
    fail(codes::kContainerVersion,
         fmt::format("{} has the format of version {}, but this Braze reads version {}",
                     quote(name), header.version, kVersion),
         {.fix = "compile it again, or use the Braze that made it"});
  if (header.file_bytes != file.size())
    damaged(fmt::format("the file has {} bytes, but its header says {}", file.size(),
                        header.file_bytes));
  if (header.sections > (file.size() - sizeof(header)) / sizeof(Row))
    damaged("its table is longer than the file");
  read_table(file, header.sections);
}

void Container::read_table(std::span<const std::byte> file, uint32_t count) {
  Header header;
  std::memcpy(&header, file.data(), sizeof(header));
  std::vector<Row> rows(count);
  if (count > 0)
    std::memcpy(rows.data(), file.data() + sizeof(header), std::span(rows).size_bytes());
  if (hash128(head_bytes(header, rows)) != header.hash)
    damaged("the checksum of its table does not match");
  uint64_t end = sizeof(header) + std::span(rows).size_bytes();
  for (const Row& row : rows) {
    if (row.offset != aligned(end) || row.offset > file.size() ||
        row.size > file.size() - row.offset)
      damaged("its sections are not in order or exceed the file");
    const auto gap = file.subspan(end, row.offset - end);
    if (std::ranges::any_of(gap, [](std::byte b) { return b != std::byte{0}; }))
      damaged("there are unexpected bytes between its sections");
    sections_.push_back(file.subspan(row.offset, row.size));
    hashes_.push_back(row.hash);
    end = row.offset + row.size;
  }
  if (end != file.size()) damaged("there are unexpected bytes after its sections");
}

std::span<const std::byte> Container::section(uint32_t i) const {
  if (i >= sections_.size()) damaged(fmt::format("the section {} is missing", i));
  if (hash_of(sections_[i]) != hashes_[i])
    damaged(fmt::format("the checksum of section {} does not match", i));
  return sections_[i];
}

std::string_view Container::text(uint32_t i) const { return as_text(section(i)); }

void Container::damaged(std::string_view what) const {
  fail(codes::kContainerDamaged, fmt::format("{} is damaged: {}", quote(name_), what),
       {.fix = "copy the file again, or compile it again"});
}

}  // namespace braze
