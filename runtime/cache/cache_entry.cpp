#include "runtime/cache/cache_entry.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace braze {

namespace {

constexpr std::string_view kMagic = "BRZCACHE";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = kEntryHeaderBytes, kChecksumBytes = sizeof(Hash128);

template <class Number>
void append(std::string& out, Number value) {
  for (size_t i = 0; i < sizeof(value); ++i)
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

template <class Number>
Number read(std::string_view bytes, size_t at) {
  Number value = 0;
  for (size_t i = sizeof(value); i-- > 0;)
    value = static_cast<Number>(value << 8 | static_cast<unsigned char>(bytes[at + i]));
  return value;
}

std::string checksum(std::string_view bytes) {
  const Hash128 hash = hash128(bytes);
  std::string out;
  append(out, hash.low);
  append(out, hash.high);
  return out;
}

using Lines = std::vector<std::string>;

// The parts of a key's text in order, each with its lines.
std::vector<std::pair<std::string, Lines>> parts_of(std::string_view text) {
  std::vector<std::pair<std::string, Lines>> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view name = line.substr(0, space);
    if (parts.empty() || parts.back().first != name) parts.push_back({std::string(name), {}});
    parts.back().second.emplace_back(line.substr(std::min(space + 1, line.size())));
  }
  return parts;
}

// The lines that `lines` has and `others` does not have; repeated lines are counted.
Lines without(const Lines& lines, Lines others) {
  std::sort(others.begin(), others.end());
  Lines out;
  for (const std::string& line : lines) {
    const auto at = std::lower_bound(others.begin(), others.end(), line);
    if (at != others.end() && *at == line) {
      others.erase(at);
    } else {
      out.push_back(line);
    }
  }
  return out;
}

}  // namespace

void CacheKey::add(std::string_view name, std::string_view value) {
  for (size_t end = 0; end != std::string_view::npos;) {
    end = value.find('\n');
    text_ += name;
    text_ += ' ';
    text_ += value.substr(0, end);
    text_ += '\n';
    if (end != std::string_view::npos) value.remove_prefix(end + 1);
  }
}

std::vector<KeyDifference> differences(std::string_view ours, std::string_view theirs) {
  const auto our_parts = parts_of(ours);
  auto their_parts = parts_of(theirs);
  std::vector<KeyDifference> out;
  for (const auto& [name, lines] : our_parts) {
    const auto same_name = [&n = name](const auto& part) { return part.first == n; };
    const auto other = std::find_if(their_parts.begin(), their_parts.end(), same_name);
    Lines other_lines;
    if (other != their_parts.end()) {
      other_lines = std::move(other->second);
      their_parts.erase(other);
    }
    if (lines != other_lines)
      out.push_back({name, without(lines, other_lines), without(other_lines, lines)});
  }
  for (auto& [name, lines] : their_parts) out.push_back({name, {}, std::move(lines)});
  return out;
}

std::string entry_file(std::string_view key, std::string_view payload) {
  std::string out;
  out.reserve(kHeaderBytes + key.size() + payload.size() + kChecksumBytes);
  out += kMagic;
  append(out, kVersion);
  append(out, uint32_t{0});
  append(out, uint64_t{key.size()});
  append(out, uint64_t{payload.size()});
  out += key;
  out += payload;
  return out += checksum(out);
}

std::string_view header_fault(std::string_view header, uint64_t size) {
  if (size < kHeaderBytes + kChecksumBytes || header.size() < kHeaderBytes)
    return "the file is too short";
  if (!header.starts_with(kMagic)) return "the file is not a cache entry";
  if (read<uint64_t>(header, 8) != kVersion) return "the format has another version";
  const uint64_t room = size - kHeaderBytes - kChecksumBytes;
  const auto key_size = read<uint64_t>(header, 16), payload_size = read<uint64_t>(header, 24);
  if (key_size > room || payload_size != room - key_size)
    return "the length of the file differs from the length in its header";
  return size > kMostEntryBytes ? "the file is larger than an entry may be" : std::string_view();
}

EntryView parse_entry(std::string_view file) {
  const auto broken = [](std::string_view fault) { return EntryView{{}, {}, fault}; };
  if (const auto fault = header_fault(file, file.size()); !fault.empty()) return broken(fault);
  const auto key_size = read<uint64_t>(file, 16), payload_size = read<uint64_t>(file, 24);
  const size_t end = file.size() - kChecksumBytes;
  if (file.substr(end) != checksum(file.substr(0, end))) return broken("the checksum differs");
  return {
      file.substr(kHeaderBytes, key_size), file.substr(kHeaderBytes + key_size, payload_size), {}};
}

}  // namespace braze
