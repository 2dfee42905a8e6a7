// safetensors_arrays.cpp — loads Arrays from .safetensors files and saves them.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "braze/io.h"
#include "ir/support/text.h"
#include "ir/values/host_tensor.h"
#include "runtime/io/file_writer.h"
#include "runtime/io/json.h"
#include "runtime/io/safetensors.h"

namespace braze {

namespace {

constexpr std::string_view kIndexEnding = ".safetensors.index.json";

using Metadata = std::map<std::string, std::string>;

void append_arrays(FileWriter& file, const std::string& path, std::span<const NamedArray> items,
                   const Metadata& metadata) {
  std::vector<TensorHeader> headers;
  std::map<std::string_view, const Array*> arrays;
  for (const NamedArray& item : items) {
    headers.push_back({item.name, item.array.dtype(), item.array.shape()});
    arrays[item.name] = &item.array;
  }
  std::sort(headers.begin(), headers.end(), stored_before);
  file.append(safetensors_header(headers, metadata, path));
  for (const TensorHeader& header : headers) {
    const HostTensor value = arrays.at(header.name)->to_host();
    file.append({value.data(), value.size_bytes()});
  }
}

void write_file(const std::string& path, std::span<const NamedArray> items,
                const Metadata& metadata) {
  FileWriter file(path);
  append_arrays(file, path, items, metadata);
  file.publish();
}

std::vector<NamedArray> items_of(const std::map<std::string, Array>& arrays) {
  std::vector<NamedArray> items;
  for (const auto& [name, array] : arrays) items.push_back({name, array, array.size_bytes()});
  return items;
}

/// Divides the arrays, in the order of their names, into files. Each file gets as many as fit.
std::vector<std::vector<NamedArray>> split(const std::map<std::string, Array>& arrays,
                                           uint64_t most_bytes) {
  std::vector<std::vector<NamedArray>> shards(1);
  uint64_t used = 0;
  for (const auto& [name, array] : arrays) {
    const uint64_t size = array.size_bytes();
    if (!shards.back().empty() && (used > most_bytes || size > most_bytes - used)) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back({name, array, size});
    used += size;
  }
  return shards;
}

}  // namespace

Array to_array(const StoredTensor& tensor, const Device& device) {
  return Array::from_bytes(tensor.bytes, *tensor.dtype, tensor.shape, device);
}

std::map<std::string, Array> load_safetensors(const std::string& path, const Device& device,
                                              const std::vector<std::string>& names) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::map<std::string, Array> out;
  const auto load = [&](const std::string& name) {
    out.emplace(name, to_array(file.at(name), device));
  };
  for (const std::string& name : names) load(name);
  if (names.empty())
    for (const auto& item : file.tensors()) load(item.first);
  return out;
}

Metadata load_safetensors_metadata(const std::string& path) {
  return SafetensorsFile::open(path).metadata();
}

void save_safetensors(const std::string& path, const std::map<std::string, Array>& arrays,
                      const Metadata& metadata) {
  write_file(path, items_of(arrays), metadata);
}

void append_safetensors(FileWriter& file, const std::string& path,
                        const std::map<std::string, Array>& arrays) {
  append_arrays(file, path, items_of(arrays), {});
}

void save_safetensors_shards(const std::string& index_path,
                             const std::map<std::string, Array>& arrays, uint64_t most_bytes,
                             const Metadata& metadata) {
  const std::vector<std::vector<NamedArray>> files = split(arrays, most_bytes);
  save_parts(index_path, files, metadata);
  save_index(index_path, files);
}

namespace {

/// The path of an index without its ending.
std::string stem_of(const std::string& index_path) {
  const std::filesystem::path index(index_path);
  const std::string name = index.filename().string();
  if (!name.ends_with(kIndexEnding) || name.size() == kIndexEnding.size())
    fail(codes::kSafetensorsFormat,
         fmt::format("{} cannot be the name of an index: it does not end in NAME{}", index_path,
                     kIndexEnding));
  return (index.parent_path() / name.substr(0, name.size() - kIndexEnding.size())).string();
}

std::string part_path(const std::string& stem, size_t number, size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, number + 1, count);
}

}  // namespace

void save_parts(const std::string& index_path, std::span<const std::vector<NamedArray>> files,
                const Metadata& metadata) {
  const std::string stem = stem_of(index_path);
  const auto is_here = [](const NamedArray& item) { return item.array.valid(); };
  for (size_t i = 0; i < files.size(); ++i)
    if (std::ranges::all_of(files[i], is_here))
      write_file(part_path(stem, i, files.size()), files[i], metadata);
}

void save_index(const std::string& index_path, std::span<const std::vector<NamedArray>> files) {
  const std::string stem = std::filesystem::path(stem_of(index_path)).filename().string();
  uint64_t total = 0;
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const NamedArray& item : files[i]) {
      total += item.bytes;
      weight_map[item.name] = part_path(stem, i, files.size());
    }
  }
  FileWriter file(index_path);
  file.append(
      fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{", total));
  file.append(join(weight_map, ",", [](const auto& item) {
    return fmt::format("\n    {}: {}", json_string(item.first), json_string(item.second));
  }));
  file.append(weight_map.empty() ? "}\n}\n" : "\n  }\n}\n");
  file.publish();
}

}  // namespace braze
