#include "runtime/io/zip.h"

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "ir/support/text.h"

namespace braze {

namespace {

constexpr uint32_t kLocal = 0x04034b50, kDirectory = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalSize = 30, kDirectorySize = 46, kEndSize = 22;
constexpr size_t kEnd64Size = 56, kLocator64Size = 20;

constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kEncrypted = 1 | 1 << 6 | 1 << 13;
constexpr uint16_t kDescriptor = 1 << 3;  // sizes follow the data, in at most this many bytes
constexpr uint64_t kMostDescriptor = 24;
constexpr uint16_t kUtf8 = 1 << 11;
constexpr uint16_t kZip64Extra = 1;
constexpr uint64_t kMostExpansion = 1032;  // of deflate
constexpr uint32_t kInZip64 = 0xffffffff;  // replaces a value that the ZIP64 record has
constexpr uint16_t kInZip64Short = 0xffff;

uint32_t crc_of(uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // for a null pointer, zlib would return the initial value
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// --- Reading -----------------------------------------------------------------------------------

/// Reads little-endian fields, one after the other, from bytes that are known to exist.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint16_t u16() { return static_cast<uint16_t>(next(2)); }
  uint32_t u32() { return static_cast<uint32_t>(next(4)); }
  uint64_t u64() { return next(8); }
  void skip(size_t size) { take(size); }
  std::string_view text(size_t size) {
    const auto bytes = take(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> take(size_t size) {
    BRAZE_CHECK(size <= bytes_.size(), "fields are read where they are");
    const auto out = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return out;
  }
  size_t left() const { return bytes_.size(); }

 private:
  uint64_t next(size_t size) {
    uint64_t value = 0;
    const auto bytes = take(size);
    for (size_t i = size; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
    return value;
  }
  std::span<const std::byte> bytes_;
};

class ArchiveReader {
 public:
  ArchiveReader(std::span<const std::byte> bytes, std::string_view file)
      : bytes_(bytes), file_(file) {}

  std::vector<ZipMember> read() {
    find_directory();
    Fields fields(bytes_.subspan(directory_, directory_end_ - directory_));
    if (count_ > fields.left() / kDirectorySize) malformed("has fewer members than it says");
    std::vector<ZipMember> members;
    for (uint64_t i = 0; i < count_; ++i) members.push_back(read_entry(fields));
    if (fields.left() > 0) malformed("has more members than it says");
    check_places();
    return members;
  }

 private:
  struct Place {
    uint64_t begin = 0, end = 0;
    bool has_descriptor = false;
  };

  [[noreturn]] void malformed(std::string_view what) const {
    fail(codes::kZipFormat, fmt::format("{} {}", file_, what));
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(codes::kZipMethod, fmt::format("{} {}", file_, what));
  }
  bool has_signature(uint64_t at, uint32_t signature) const {
    return at <= bytes_.size() && bytes_.size() - at >= 4 &&
           Fields(bytes_.subspan(at)).u32() == signature;
  }

  // The end record must be the last thing in the file, because archives of arrays have no comment.
  uint64_t find_end() const {
    if (bytes_.size() >= kEndSize && has_signature(bytes_.size() - kEndSize, kEnd))
      return bytes_.size() - kEndSize;
    fail(codes::kZipFile,
         fmt::format("{} is not a ZIP archive, or truncated: it does not end as one", file_));
  }

  void find_directory() {
    directory_end_ = find_end();
    Fields end(bytes_.subspan(directory_end_ + 4));
    const uint16_t disk = end.u16(), directory_disk = end.u16();
    const uint16_t here = end.u16(), all = end.u16();
    uint64_t size = end.u32();
    directory_ = end.u32();
    count_ = all;
    if (end.u16() != 0) malformed("has a comment");
    if (directory_end_ >= kLocator64Size &&
        has_signature(directory_end_ - kLocator64Size, kLocator64)) {
      size = find_directory64(all, size, directory_);
    } else if (disk != 0 || directory_disk != 0 || here != all) {
      unsupported("is one of several parts of an archive");
    }
    if (size > directory_end_ || directory_ != directory_end_ - size)
      malformed("has a directory that does not end where its end record begins");
  }

  // Reads the values that do not fit into the end record, and returns the directory's size.
  uint64_t find_directory64(uint16_t count, uint64_t size, uint64_t offset) {
    Fields locator(bytes_.subspan(directory_end_ - kLocator64Size + 4));
    const uint32_t disk = locator.u32();
    const uint64_t at = locator.u64();
    if (disk != 0 || locator.u32() != 1) unsupported("is one of several parts of an archive");
    if (directory_end_ < kLocator64Size + kEnd64Size ||
        at != directory_end_ - kLocator64Size - kEnd64Size || !has_signature(at, kEnd64))
      malformed("has no ZIP64 end record where it should be");
    Fields end(bytes_.subspan(at + 4));
    if (end.u64() != kEnd64Size - 12) malformed("has a ZIP64 end record of another size");
    end.skip(4);  // versions
    const uint32_t this_disk = end.u32(), directory_disk = end.u32();
    const uint64_t here = end.u64();
    count_ = end.u64();
    const uint64_t size64 = end.u64();
    directory_ = end.u64();
    if (this_disk != 0 || directory_disk != 0 || here != count_)
      unsupported("is one of several parts of an archive");
    const auto differs = [](uint64_t plain, uint64_t in_zip64, uint64_t value) {
      return plain != in_zip64 && plain != value;
    };
    if (differs(count, kInZip64Short, count_) || differs(size, kInZip64, size64) ||
        differs(offset, kInZip64, directory_))
      malformed("has two end records that differ");
    directory_end_ = at;
    return size64;
  }

  ZipMember read_entry(Fields& fields) {
    if (fields.left() < kDirectorySize || fields.u32() != kDirectory)
      malformed("has a directory that is not a list of members");
    fields.skip(4);  // versions
    const uint16_t flags = fields.u16(), method = fields.u16();
    fields.skip(4);  // time
    ZipMember member;
    member.crc = fields.u32();
    uint64_t packed = fields.u32();
    member.size = fields.u32();
    const size_t name = fields.u16(), extra = fields.u16(), comment = fields.u16();
    const uint16_t disk = fields.u16();
    fields.skip(6);  // attributes
    uint64_t offset = fields.u32();
    if (fields.left() < name + extra + comment) malformed("has a directory that is cut off");
    member.name = fields.text(name);
    read_zip64(fields.take(extra), {&member.size, &packed, &offset});
    fields.skip(comment);

    if (!names_.insert(member.name).second)
      malformed(fmt::format("has the member {} twice", quote(member.name)));
    if ((flags & kEncrypted) != 0) unsupported(fmt::format("has encrypted {}", quote(member.name)));
    if (disk != 0 && disk != kInZip64Short) unsupported("is one of several parts of an archive");
    if (method != kStored && method != kDeflated)
      unsupported(
          fmt::format("has {} compressed by method {}; Braze knows 0, stored, and 8, "
                      "deflated",
                      quote(member.name), method));
    member.deflated = method == kDeflated;
    if (member.deflated ? member.size / kMostExpansion > packed : member.size != packed)
      malformed(fmt::format("has {} bytes as {}, which cannot be its {}", packed,
                            quote(member.name), member.size));
    member.packed = find_packed(member, method, flags, packed, offset);
    return member;
  }

  // Reads the values for which the entry has no room from the extra field, which has them in this
  // order.
  void read_zip64(std::span<const std::byte> extra, std::array<uint64_t*, 3> values) const {
    Fields fields(extra);
    bool seen = false;
    while (fields.left() > 0) {
      if (fields.left() < 4) malformed("has an extra field that is cut off");
      const uint16_t id = fields.u16(), size = fields.u16();
      if (size > fields.left()) malformed("has an extra field that is cut off");
      Fields field(fields.take(size));
      if (id != kZip64Extra) continue;
      if (std::exchange(seen, true)) malformed("has two ZIP64 fields for one member");
      for (uint64_t* value : values) {
        if (*value != kInZip64) continue;
        if (field.left() < 8) malformed("has a ZIP64 field that is cut off");
        *value = field.u64();
      }
    }
  }

  std::span<const std::byte> find_packed(const ZipMember& member, uint16_t method, uint16_t flags,
                                         uint64_t size, uint64_t offset) {
    const auto wrong = [&] {
      malformed(fmt::format("has a directory that does not fit the member {}", quote(member.name)));
    };
    if (offset > directory_ || directory_ - offset < kLocalSize) wrong();
    Fields local(bytes_.subspan(offset, directory_ - offset));
    if (local.u32() != kLocal) wrong();
    local.skip(2);  // version
    const bool same = ((local.u16() ^ flags) & (kEncrypted | kDescriptor)) == 0;
    if (!same || local.u16() != method) wrong();
    local.skip(4 + 12);  // time, checksum and sizes, which may come later
    const size_t name = local.u16(), extra = local.u16();
    if (local.left() < name + extra || local.text(name) != member.name) wrong();
    local.skip(extra);
    if (size > local.left()) wrong();
    const auto packed = local.take(size);
    places_.push_back({offset, directory_ - local.left(), (flags & kDescriptor) != 0});
    return packed;
  }

  void check_places() {
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) { return a.begin < b.begin; });
    places_.push_back({.begin = directory_});
    Place before;
    for (const Place& place : places_) {
      if (place.begin < before.end) malformed("has members that overlap");
      const uint64_t gap = place.begin - before.end;
      if (gap > (before.has_descriptor ? kMostDescriptor : 0))
        malformed(fmt::format("has {} bytes at {} that belong to no member", gap, before.end));
      before = place;
    }
  }

  const std::span<const std::byte> bytes_;
  const std::string_view file_;
  uint64_t directory_ = 0, directory_end_ = 0, count_ = 0;
  std::set<std::string, std::less<>> names_;
  std::vector<Place> places_;
};

}  // namespace

std::vector<ZipMember> parse_zip(std::span<const std::byte> bytes, std::string_view file) {
  return ArchiveReader(bytes, file).read();
}

// zlib counts in 32 bits, so longer data is passed to it in parts.
constexpr size_t kMostAtOnce = 1 << 30;

struct ZipMemberReader::State {
  State(const ZipMember& m, std::string_view f) : member(m), file(f), packed(m.packed) {
    if (member.deflated && inflateInit2(&stream, -MAX_WBITS) != Z_OK)
      fail(codes::kInternal, "zlib has not started");
  }
  ~State() {
    if (member.deflated) inflateEnd(&stream);
  }

  [[noreturn]] void damaged(std::string_view what) const {
    fail(codes::kZipFile, fmt::format("{}: {} {}", file, quote(member.name), what));
  }

  void copy(std::span<std::byte> out) {
    if (out.size() > packed.size()) damaged("ends too early");
    if (!out.empty()) std::memcpy(out.data(), packed.data(), out.size());
    packed = packed.subspan(out.size());
  }

  /// Unpacks as many bytes as there are, but at most as many as `out` has. Returns their number.
  size_t unpack(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size() && !ended) {
      const auto given = packed.first(std::min(packed.size(), kMostAtOnce));
      const auto wanted = out.subspan(done, std::min(out.size() - done, kMostAtOnce));
      stream.next_in = reinterpret_cast<const Bytef*>(given.data());
      stream.avail_in = static_cast<uInt>(given.size());
      stream.next_out = reinterpret_cast<Bytef*>(wanted.data());
      stream.avail_out = static_cast<uInt>(wanted.size());
      const int result = inflate(&stream, Z_NO_FLUSH);
      packed = packed.subspan(given.size() - stream.avail_in);
      const size_t made = wanted.size() - stream.avail_out;
      done += made;
      ended = result == Z_STREAM_END;
      if (result != Z_OK && result != Z_STREAM_END) damaged("cannot be unpacked");
    }
    return done;
  }

  const ZipMember& member;
  const std::string file;
  std::span<const std::byte> packed;  // the rest of the packed bytes
  z_stream stream{};
  bool ended = false;
  uint32_t crc = 0;
};

ZipMemberReader::ZipMemberReader(const ZipMember& member, std::string_view file)
    : state_(std::make_unique<State>(member, file)) {}

ZipMemberReader::~ZipMemberReader() = default;

void ZipMemberReader::read(std::span<std::byte> out) {
  if (!state_->member.deflated) {
    state_->copy(out);
  } else if (state_->unpack(out) < out.size()) {
    state_->damaged("ends too early");
  }
  state_->crc = crc_of(state_->crc, out);
}

void ZipMemberReader::finish() {
  std::byte more{};
  if (state_->member.deflated && state_->unpack({&more, 1}) > 0)
    state_->damaged("goes on after its end");
  if (!state_->packed.empty()) state_->damaged("goes on after its end");
  if (state_->crc != state_->member.crc) state_->damaged("does not have the right checksum");
}

// --- Writing -----------------------------------------------------------------------------------

namespace {

/// A record of little-endian fields under construction.
struct Record {
  std::string bytes;

  Record& put(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  Record& u16(uint64_t value) { return put(value, 2); }
  Record& u32(uint64_t value) { return put(value, 4); }
  Record& u64(uint64_t value) { return put(value, 8); }
};

constexpr uint16_t kVersion = 20, kVersion64 = 45;  // the version that a reader must support
constexpr uint16_t kFirstDay = 1 << 5 | 1;          // 1980-01-01, the earliest date of the format

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

std::string deflated_bytes(std::initializer_list<std::span<const std::byte>> parts) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    fail(codes::kInternal, "zlib has not started");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, deflateEnd);
  std::string out;
  std::vector<char> buffer(256 << 10);
  const auto feed = [&](std::span<const std::byte> given, int flush) {
    stream.next_in = reinterpret_cast<const Bytef*>(given.data());
    stream.avail_in = static_cast<uInt>(given.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = static_cast<uInt>(buffer.size());
      deflate(&stream, flush);
      out.append(buffer.data(), buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  for (std::span<const std::byte> part : parts)
    while (!part.empty()) {
      const auto given = part.first(std::min(part.size(), kMostAtOnce));
      feed(given, Z_NO_FLUSH);
      part = part.subspan(given.size());
    }
  feed({}, Z_FINISH);
  return out;
}

}  // namespace

ZipWriter::ZipWriter(Append append, uint64_t zip64_from)
    : append_(std::move(append)), zip64_from_(zip64_from) {}

void ZipWriter::put(std::string_view bytes) {
  append_(std::as_bytes(std::span(bytes)));
  size_ += bytes.size();
}

// The fields that the local header and the directory share, from the version to the size of the
// extra field.
std::string ZipWriter::fields_of(const Entry& entry, bool zip64) const {
  Record record;
  record.u16(zip64 ? kVersion64 : kVersion).u16(is_ascii(entry.name) ? 0 : kUtf8);
  record.u16(entry.deflated ? kDeflated : kStored).u16(0).u16(kFirstDay).u32(entry.crc);
  record.u32(zip64 ? kInZip64 : entry.packed).u32(zip64 ? kInZip64 : entry.size);
  record.u16(entry.name.size());
  return record.bytes;
}

void ZipWriter::add(std::string name, std::initializer_list<std::span<const std::byte>> parts,
                    bool deflated) {
  if (name.size() > 0xffff)
    fail(codes::kZipFormat,
         fmt::format("a name of {} bytes is too long for a ZIP archive", name.size()));
  Entry entry{.name = std::move(name), .deflated = deflated, .offset = size_};
  for (const auto part : parts) {
    entry.crc = crc_of(entry.crc, part);
    entry.size += part.size();
  }
  const std::string packed = deflated ? deflated_bytes(parts) : "";
  entry.packed = deflated ? packed.size() : entry.size;
  const bool zip64 = needs_zip64(entry.size) || needs_zip64(entry.packed);
  Record extra;
  if (zip64) extra.u16(kZip64Extra).u16(16).u64(entry.size).u64(entry.packed);
  put(Record().u32(kLocal).bytes + fields_of(entry, zip64) +
      Record().u16(extra.bytes.size()).bytes + entry.name + extra.bytes);
  if (deflated) {
    put(packed);
  } else {
    for (const auto part : parts) append_(part);
    size_ += entry.size;
  }
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const uint64_t begin = size_;
  for (const Entry& entry : entries_) {
    const bool zip64 =
        needs_zip64(entry.size) || needs_zip64(entry.packed) || needs_zip64(entry.offset);
    Record extra;
    if (zip64) extra.u16(kZip64Extra).u16(24).u64(entry.size).u64(entry.packed).u64(entry.offset);
    Record record;
    record.u32(kDirectory).u16(zip64 ? kVersion64 : kVersion);
    record.bytes += fields_of(entry, zip64);
    record.u16(extra.bytes.size()).u16(0).u16(0).u16(0).u32(0);
    put(record.u32(zip64 ? kInZip64 : entry.offset).bytes + entry.name + extra.bytes);
  }
  const uint64_t end = size_, count = entries_.size();
  const bool zip64 = count >= kInZip64Short || needs_zip64(begin) || needs_zip64(end - begin);
  Record record;
  if (zip64) {
    record.u32(kEnd64).u64(kEnd64Size - 12).u16(kVersion64).u16(kVersion64).u32(0).u32(0);
    record.u64(count).u64(count).u64(end - begin).u64(begin);
    record.u32(kLocator64).u32(0).u64(end).u32(1);
  }
  const uint64_t short_count = zip64 ? kInZip64Short : count;
  record.u32(kEnd).u16(0).u16(0).u16(short_count).u16(short_count);
  record.u32(zip64 ? kInZip64 : end - begin).u32(zip64 ? kInZip64 : begin).u16(0);
  put(record.bytes);
}

}  // namespace braze
