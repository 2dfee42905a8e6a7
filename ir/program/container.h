// container.h — numbered sections of bytes in one file: what packages and programs are stored in.
// docs/ir/package.md specifies it.
//
// All numbers are little endian. A header of 64 bytes: magic, version, number of sections, size of
// the file, and the XXH3-128 of header (with zeros in its place) and table; the table, 32 bytes a
// section: offset, size, XXH3-128; the sections, in order, each at the next multiple of 64, with
// zeros between. Nothing else may stand there, so that equal contents are equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/error.h"
#include "ir/support/hash.h"

namespace braze {

namespace codes {
inline constexpr Code kNoContainer{"not-a-package", ErrorKind::InvalidArgument,
                                   "A file is not a package of Braze."};
inline constexpr Code kContainerVersion{
    "package-version", ErrorKind::Unsupported,
    "A package has a format version that this Braze does not read."};
inline constexpr Code kContainerDamaged{"package-damaged", ErrorKind::DataLoss,
                                        "A package is truncated or altered."};
}  // namespace codes

/// What every container begins with. As PNG's: no text, and altered by whatever rewrites line ends.
inline constexpr std::string_view kContainerMagic =
    "\x89"
    "BRZ\r\n\x1a\n";

class ContainerWriter {
 public:
  /// The number of a section with these bytes, which must live until `write`; the earlier one's
  /// where there is one.
  uint32_t add(std::span<const std::byte> bytes);

  /// Hands the file to `sink`, from its beginning to its end.
  void write(const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  std::vector<std::span<const std::byte>> sections_;
  std::vector<Hash128> hashes_;
};

/// A file in memory. Holds no bytes of its own.
class Container {
 public:
  static constexpr uint32_t kVersion = 1;

  /// Checks header and table; `name` is for messages.
  Container(std::span<const std::byte> file, std::string_view name);

  size_t size() const { return sections_.size(); }
  /// The bytes of section `i`, checked against their checksum. DataLoss if there is none or they
  /// are not what was written.
  std::span<const std::byte> section(uint32_t i) const;
  std::string_view text(uint32_t i) const;

 private:
  [[noreturn]] void damaged(std::string_view what) const;
  void read_table(std::span<const std::byte> file, uint32_t count);

  std::string name_;
  std::vector<std::span<const std::byte>> sections_;
  std::vector<Hash128> hashes_;
};

}  // namespace braze
