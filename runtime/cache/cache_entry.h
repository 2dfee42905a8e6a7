// cache_entry.h — what decides a cached thing, and the file that holds both.
//
// A file is one entry and needs no other:
//
//   bytes  0..7    "BRZCACHE"
//          8..11   version of this format, 1
//         12..15   0
//         16..23   bytes of the key's text
//         24..31   bytes of the payload
//         32..     the key's text, the payload
//   last 16        XXH3-128 of everything before
//
// Numbers are little-endian. The checksum is last, so that a file which ends early never has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/support/hash.h"

namespace braze {

/// Everything that decides a cached thing, as lines `name value`; a value of several lines has its
/// name on each, so that the lines that two keys differ in can be named.
class CacheKey {
 public:
  void add(std::string_view name, std::string_view value);
  /// What is lines `name value` already, each with its end.
  void add_lines(std::string_view lines) { text_ += lines; }

  const std::string& text() const { return text_; }
  /// The name of the entry: 32 hexadecimal digits.
  std::string name() const { return hash128(text_).to_string(); }

 private:
  std::string text_;
};

/// A part of two keys' texts that is not the same.
struct KeyDifference {
  std::string name;
  std::vector<std::string> ours, theirs;  ///< the lines that only one side has
};

/// The parts in which two texts of keys differ, in the order of `ours`, then of `theirs`.
std::vector<KeyDifference> differences(std::string_view ours, std::string_view theirs);

/// The file that holds `payload` under `key`.
std::string entry_file(std::string_view key, std::string_view payload);

/// A view into a file's bytes.
struct EntryView {
  std::string_view key, payload;
  std::string_view fault;  ///< what is wrong with the file; empty: nothing, and the rest is valid

  /// The name that a file of this key has.
  std::string name() const { return hash128(key).to_string(); }
};

inline constexpr size_t kEntryHeaderBytes = 32;
inline constexpr uint64_t kMostEntryBytes = uint64_t{256} << 20;  ///< of a file without signature

/// What the beginning of a file shows to be wrong with it, before the rest is read. `size`: that of
/// the file, without a signature.
std::string_view header_fault(std::string_view header, uint64_t size);

/// Reads a file's bytes, which may be anything.
EntryView parse_entry(std::string_view file);

}  // namespace braze
