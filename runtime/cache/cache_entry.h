// cache_entry.h — the key of a cached object, and the file that holds the key and the object.
//
// A file is one entry and does not depend on other files:
//
//   bytes  0..7    "BRZCACHE"
//          8..11   version of this format, 1
//         12..15   0
//         16..23   bytes of the key's text
//         24..31   bytes of the payload
//         32..     the key's text, the payload
//   last 16        XXH3-128 of everything before
//
// Numbers are little-endian. The checksum is last, so a file that ends early does not have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/support/hash.h"

namespace braze {

/// Everything that decides a cached object, as lines `name value`. A value of several lines has its
/// name on each line, so that the lines in which two keys differ can be named.
class CacheKey {
 public:
  void add(std::string_view name, std::string_view value);
  /// Adds text that consists of lines `name value`, each with its line end.
  void add_lines(std::string_view lines) { text_ += lines; }

  const std::string& text() const { return text_; }
  /// The name of the entry: 32 hexadecimal digits.
  std::string name() const { return hash128(text_).to_string(); }

 private:
  std::string text_;
};

/// A part in which the texts of two keys differ.
struct KeyDifference {
  std::string name;
  std::vector<std::string> ours, theirs;  ///< the lines that only one of them has
};

/// The parts in which the texts of two keys differ, in the order of `ours`, then of `theirs`.
std::vector<KeyDifference> differences(std::string_view ours, std::string_view theirs);

/// The contents of the file that holds `payload` under `key`.
std::string entry_file(std::string_view key, std::string_view payload);

/// A view of the bytes of a file.
struct EntryView {
  std::string_view key, payload;
  std::string_view fault;  ///< what is wrong with the file; if empty, the rest is valid

  /// The name of a file with this key.
  std::string name() const { return hash128(key).to_string(); }
};

inline constexpr size_t kEntryHeaderBytes = 32;
inline constexpr uint64_t kMostEntryBytes = uint64_t{256}
                                            << 20;  ///< the limit of a file, without signature

/// Finds faults of a file that its first bytes already show. Empty if there are none. `size` is the
/// size of the file without a signature.
std::string_view header_fault(std::string_view header, uint64_t size);

/// Parses the bytes of a file, which may be arbitrary.
EntryView parse_entry(std::string_view file);

}  // namespace braze
