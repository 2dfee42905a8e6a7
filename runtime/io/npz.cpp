#include "runtime/io/npz.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "braze/io.h"
#include "ir/support/text.h"
#include "ir/support/utf8.h"
#include "runtime/io/file_writer.h"
#include "runtime/io/mapped_file.h"
#include "runtime/io/npy.h"
#include "runtime/io/zip.h"

namespace braze {

namespace {

constexpr std::string_view kEnding = ".npy";

bool has_path_parts(std::string_view name) {
  while (true) {
    const size_t end = std::min(name.find('/'), name.size());
    const std::string_view part = name.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == name.size()) return true;
    name.remove_prefix(end + 1);
  }
}

HostTensor read_member(const ZipMember& member, std::string_view file) {
  const std::string where = fmt::format("{}: {}", file, member.name);
  ZipMemberReader reader(member, file);
  std::vector<std::byte> begin(std::min<uint64_t>(member.size, kMostNpyHeader));
  reader.read(begin);
  const NpyHeader header = parse_npy_header(begin, member.size, where);
  // Some of the data was read with the header.
  std::span<const std::byte> there = std::span(begin).subspan(header.data_offset);
  HostTensor value = read_npy(header, [&](std::span<std::byte> out) {
    const size_t size = std::min(out.size(), there.size());
    if (size > 0) std::memcpy(out.data(), there.data(), size);
    there = there.subspan(size);
    reader.read(out.subspan(size));
  });
  reader.finish();
  return value;
}

}  // namespace

void check_npz_name(std::string_view name, std::string_view file) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '\\';
  });
  if (!plain || !is_utf8(name) || !has_path_parts(name))
    fail(codes::kNpzMember,
         fmt::format("{}: {} cannot be the name of an array", file, quote(name)));
}

std::map<std::string, HostTensor> parse_npz(std::span<const std::byte> bytes,
                                            std::string_view file) {
  std::map<std::string, HostTensor> out;
  for (const ZipMember& member : parse_zip(bytes, file)) {
    std::string_view name = member.name;
    if (!name.ends_with(kEnding))
      fail(codes::kNpzMember,
           fmt::format("{} holds {}, which is not a .npy file", file, quote(name)));
    name.remove_suffix(kEnding.size());
    check_npz_name(name, file);
    out.emplace(name, read_member(member, file));
  }
  return out;
}

std::map<std::string, Array> load_npz(const std::string& path, const Device& device) {
  const auto file = MappedFile::open(path);
  std::map<std::string, Array> out;
  for (const auto& [name, value] : parse_npz(file->bytes(), path))
    out.emplace(name, Array::from_host(value, device));
  return out;
}

void save_npz(const std::string& path, const std::map<std::string, Array>& arrays,
              Compression compression) {
  for (const auto& item : arrays) check_npz_name(item.first, path);
  FileWriter file(path);
  ZipWriter archive([&](std::span<const std::byte> bytes) { file.append(bytes); });
  for (const auto& [name, array] : arrays) {
    const HostTensor value = array.to_host();
    const std::string header = npy_header_text(value.dtype(), value.shape());
    archive.add(name + std::string(kEnding),
                {std::as_bytes(std::span(header)), {value.data(), value.size_bytes()}},
                compression == Compression::Deflate);
  }
  archive.finish();
  file.publish();
}

}  // namespace braze
