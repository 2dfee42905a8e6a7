// zip.h — ZIP archives of stored and deflated members, including ZIP64, as in .npz files.
// Specification: APPNOTE.TXT 6.3.10 of PKWARE.
//
// Archives are untrusted. An archive is accepted only if it can be read in one way: the end record
// is the end of the file, the central directory ends where the end record begins, and the members
// lie one after another from the first byte to the directory, each once, with local headers that
// agree with it. Nothing is ever extracted to a file. A size must be possible for the bytes that
// exist: deflate turns one byte into at most 1032.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kZipFile{"zip-file", ErrorKind::DataLoss,
                               "A ZIP archive is truncated, or its data are not what was packed."};
inline constexpr Code kZipFormat{"zip-format", ErrorKind::InvalidArgument,
                                 "A ZIP archive does not follow the format."};
inline constexpr Code kZipMethod{"zip-method", ErrorKind::Unsupported,
                                 "A ZIP archive is encrypted, split, or compressed by another "
                                 "method than deflate."};
}  // namespace codes

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t size = 0;                  ///< unpacked
  std::span<const std::byte> packed;  ///< its bytes in the archive
};

/// The members of an archive, in the order of the directory, their names all different. `file` is
/// for messages.
std::vector<ZipMember> parse_zip(std::span<const std::byte> bytes, std::string_view file);

/// Unpacks a member from its beginning to its end.
class ZipMemberReader {
 public:
  ZipMemberReader(const ZipMember& member, std::string_view file);
  ~ZipMemberReader();
  ZipMemberReader(const ZipMemberReader&) = delete;
  ZipMemberReader& operator=(const ZipMemberReader&) = delete;

  /// Reads the next bytes, as many as `out` has. Throws kZipFile if there are fewer.
  void read(std::span<std::byte> out);
  /// Throws kZipFile unless the member ends here and has its checksum.
  void finish();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// Writes an archive. Members have no time and no owner: the same members make the same bytes.
class ZipWriter {
 public:
  using Append = std::function<void(std::span<const std::byte>)>;

  /// Sizes and offsets from `zip64_from` on are written in the form of ZIP64.
  explicit ZipWriter(Append append, uint64_t zip64_from = 0xffffffff);

  /// Adds a member that consists of these parts.
  void add(std::string name, std::initializer_list<std::span<const std::byte>> parts,
           bool deflated);
  /// Writes the directory.
  void finish();

 private:
  struct Entry {
    std::string name;
    bool deflated = false;
    uint32_t crc = 0;
    uint64_t size = 0, packed = 0, offset = 0;
  };
  void put(std::string_view bytes);
  bool needs_zip64(uint64_t value) const { return value >= zip64_from_; }
  std::string fields_of(const Entry& entry, bool zip64) const;

  const Append append_;
  const uint64_t zip64_from_;
  uint64_t size_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace braze
