// container.h — a file with numbered sections of bytes, in which packages and programs are stored.
// docs/ir/package.md specifies it.
//
// All numbers are little endian. The file begins with a header of 64 bytes: magic, version, number
// of sections, size of the file, and the XXH3-128 of the header (with zeros in its place) and the
// table. The table has 32 bytes for each section: offset, size, XXH3-128. The sections follow in
// order, each at the next multiple of 64, with zeros between them. Nothing else is allowed, so that
// equal contents are equal bytes.
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

/// The first bytes of every container. Like those of PNG, they are no text, and a program that
/// rewrites line ends damages them.
inline constexpr std::string_view kContainerMagic =
    "\x89"
    "BRZ\r\n\x1a\n";

class ContainerWriter {
 public:
  /// Adds a section with these bytes, which must live until `write`, and returns its number. If an
  /// equal section exists, it returns that section's number.
  uint32_t add(std::span<const std::byte> bytes);

  /// Passes the file to `sink`, from its beginning to its end.
  void write(const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  std::vector<std::span<const std::byte>> sections_;
  std::vector<Hash128> hashes_;
};

/// A file in memory. It refers to the bytes and does not own them.
class Container {
 public:
  static constexpr uint32_t kVersion = 1;

  /// Checks header and table; `name` is for messages.
  Container(std::span<const std::byte> file, std::string_view name);

  size_t size() const { return sections_.size(); }
  /// The bytes of section `i`. Throws DataLoss if there is no such section, or if the bytes do not
  /// have its checksum.
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
