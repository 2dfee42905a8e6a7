#include "runtime/io/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <tuple>
#include <utility>

#include "ir/support/text.h"
#include "ir/support/utf8.h"
#include "ir/values/host_tensor.h"
#include "runtime/io/json.h"

namespace braze {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMetadata = "__metadata__";
constexpr size_t kPrefix = 8;      // the size of the header
constexpr size_t kAlignment = 64;  // of the data: a cache line, which is good for vector loads
constexpr size_t kMostDims = 64;

/// A type of the format that Braze does not have. Sizes are in bits, because some are less than a
/// byte.
struct ForeignType {
  std::string_view name;
  unsigned bits;
};
constexpr ForeignType kForeignTypes[] = {
    {"C64", 64},    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

/// A type of the format: the bits of an element, and the dtype, if Braze has it.
struct StoredType {
  unsigned bits;
  std::optional<DType> dtype;
};

std::optional<StoredType> find_type(std::string_view name) {
  for (const DType dtype : kAllDTypes)
    if (info(dtype).safetensors == name)
      return StoredType{static_cast<unsigned>(8 * size_of(dtype)), dtype};
  for (const ForeignType& type : kForeignTypes)
    if (type.name == name) return StoredType{type.bits, {}};
  return std::nullopt;
}

std::string_view stored_name(DType dtype) { return info(dtype).safetensors; }

std::string type_text(const StoredTensor& tensor) {
  return fmt::format("{}[{}]", tensor.type, fmt::join(tensor.shape, ", "));
}

/// The number of bytes of the data. Nullopt if it is not an integer, or if there are more than 2^64
/// bits.
std::optional<uint64_t> size_of(const StoredTensor& tensor, unsigned bits) {
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) return 0;
  uint64_t size = bits;
  for (const int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(extent), &size)) return std::nullopt;
  if (size % 8 != 0) return std::nullopt;
  return size / 8;
}

// --- Reading -----------------------------------------------------------------------------------

/// The place of a tensor in the data.
struct Place {
  uint64_t begin = 0, end = 0;
  std::string_view name;
};

/// Reads the header's JSON.
class HeaderReader {
 public:
  using Tensors = std::map<std::string, StoredTensor, std::less<>>;
  using Metadata = std::map<std::string, std::string>;

  HeaderReader(std::string_view header, std::span<const std::byte> data, std::string_view file)
      : reader_(header, file), data_(data), file_(file) {}

  void read(Tensors& tensors, Metadata& metadata) {
    bool has_metadata = false;
    reader_.object([&](std::string name) {
      if (name == kMetadata) {
        if (std::exchange(has_metadata, true)) malformed("the metadata come twice");
        return read_metadata(metadata);
      }
      const auto [at, is_new] = tensors.try_emplace(std::move(name));
      if (!is_new) malformed(fmt::format("the tensor {} comes twice", quote(at->first)));
      read_tensor(at->first, at->second);
    });
    reader_.finish();
    check_places();
  }

 private:
  [[noreturn]] void malformed(const std::string& what) const {
    reader_.fail_here(what, codes::kSafetensorsFormat);
  }

  void read_metadata(Metadata& metadata) {
    reader_.object([&](std::string key) {
      const auto [at, is_new] = metadata.try_emplace(std::move(key));
      if (!is_new) malformed(fmt::format("the metadata have {} twice", quote(at->first)));
      at->second = reader_.string();
    });
  }

  void read_tensor(const std::string& name, StoredTensor& tensor) {
    bool has_type = false, has_shape = false, has_place = false;
    Place place{.name = name};
    reader_.object([&](const std::string& key) {
      const auto once = [&](bool& seen) {
        if (std::exchange(seen, true))
          malformed(fmt::format("the tensor {} has {} twice", quote(name), quote(key)));
      };
      if (key == "dtype") {
        once(has_type);
        tensor.type = reader_.string();
      } else if (key == "shape") {
        once(has_shape);
        read_shape(name, tensor.shape);
      } else if (key == "data_offsets") {
        once(has_place);
        read_place(place);
      } else {
        malformed(fmt::format("the tensor {} has an unknown member {}", quote(name), quote(key)));
      }
    });
    if (!has_type || !has_shape || !has_place)
      malformed(fmt::format("the tensor {} lacks dtype, shape or data_offsets", quote(name)));
    check_tensor(place, tensor);
    tensor.bytes = data_.subspan(place.begin, place.end - place.begin);
    places_.push_back(place);
  }

  void read_shape(const std::string& name, std::vector<int64_t>& shape) {
    reader_.array([&] {
      const uint64_t extent = reader_.integer();
      if (extent > uint64_t{std::numeric_limits<int64_t>::max()} || shape.size() == kMostDims)
        malformed(fmt::format("the shape of {} is too large", quote(name)));
      shape.push_back(static_cast<int64_t>(extent));
    });
  }

  void read_place(Place& place) {
    int count = 0;
    reader_.array([&] {
      const uint64_t offset = reader_.integer();
      if (count < 2) (count == 0 ? place.begin : place.end) = offset;
      ++count;
    });
    if (count != 2 || place.begin > place.end)
      malformed(
          fmt::format("the data_offsets of {} are not a begin and an end", quote(place.name)));
  }

  void check_tensor(const Place& place, StoredTensor& tensor) const {
    if (place.end > data_.size())
      fail(codes::kSafetensorsFile,
           fmt::format("{} is truncated: the tensor {} ends at byte {} of the data, which have {}",
                       file_, quote(place.name), place.end, data_.size()));
    const std::optional<StoredType> type = find_type(tensor.type);
    if (!type) return;  // a newer type of the format, whose size is not known
    tensor.dtype = type->dtype;
    const std::optional<uint64_t> size = size_of(tensor, type->bits);
    if (size != place.end - place.begin)
      malformed(fmt::format("the tensor {} is {}, {} bytes, but its data_offsets are {} apart",
                            quote(place.name), type_text(tensor),
                            size ? std::to_string(*size) : "no number of",
                            place.end - place.begin));
  }

  // Checks that the tensors are adjacent and fill the data from the first byte to the last.
  void check_places() {
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t end = 0;
    for (const Place& place : places_) {
      if (place.begin != end)
        fail(codes::kSafetensorsFormat,
             fmt::format("{}: {} before the data of {}, which begin at byte {}: others end at {}",
                         file_, place.begin < end ? "an overlap" : "a gap", quote(place.name),
                         place.begin, end));
      end = place.end;
    }
    if (end < data_.size())
      fail(codes::kSafetensorsFile, fmt::format("{} has {} bytes behind the data of its tensors",
                                                file_, data_.size() - end));
  }

  JsonReader reader_;
  const std::span<const std::byte> data_;
  const std::string_view file_;
  std::vector<Place> places_;
};

/// The path of the file `name` of an index, which must be in the folder of the index.
std::string shard_path(const fs::path& index, const std::string& name) {
  const auto refuse = [&](std::string_view why, std::string fix = "") {
    fail(codes::kSafetensorsFormat,
         fmt::format("{} names the file {}, which {}", index.string(), quote(name), why),
         {.location = {}, .node = "", .fix = std::move(fix)});
  };
  if (name.empty() || name == "." || name == ".." || name.find_first_of({"/\0", 2}) != name.npos)
    refuse("is not the name of a file in the folder of the index");
  const fs::path path = index.parent_path() / name;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path.string();
  // A link may lead to another name in the folder, as it may for the index itself.
  const fs::path folder =
      fs::canonical(index.parent_path().empty() ? "." : index.parent_path(), error);
  const fs::path target = fs::canonical(path, error);
  if (error || target.parent_path() != folder)
    refuse("is a symbolic link out of the folder of the index",
           "copy what you trust with its files: cp -rL FOLDER COPY");
  return target.string();
}

/// The weight_map of an index: the file of each tensor.
std::map<std::string, std::string> read_weight_map(std::string_view text, std::string_view file) {
  JsonReader reader(text, file);
  std::map<std::string, std::string> files;
  bool has_map = false;
  reader.object([&](const std::string& key) {
    if (key != "weight_map") return reader.skip();
    if (std::exchange(has_map, true))
      reader.fail_here("weight_map comes twice", codes::kSafetensorsFormat);
    reader.object([&](std::string name) {
      const auto [at, is_new] = files.try_emplace(std::move(name));
      if (!is_new)
        reader.fail_here(fmt::format("the tensor {} comes twice", quote(at->first)),
                         codes::kSafetensorsFormat);
      at->second = reader.string();
    });
  });
  reader.finish();
  if (!has_map)
    fail(codes::kSafetensorsFormat,
         fmt::format("{} has no weight_map, so it is not an index", file));
  return files;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  if (!path.ends_with(".json")) return open_shard(path);
  SafetensorsFile out(path);
  out.read_index(MappedFile::open_stable(path)->bytes());
  return out;
}

SafetensorsFile SafetensorsFile::open_shard(const std::string& path) {
  auto file = MappedFile::open_stable(path);
  SafetensorsFile out = parse(file->bytes(), path);
  out.files_.push_back(std::move(file));
  return out;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile out(std::move(name));
  if (bytes.size() < kPrefix)
    fail(codes::kSafetensorsFile, fmt::format("{} is not a .safetensors file, or cut off in its "
                                              "first 8 bytes",
                                              out.path_));
  uint64_t size = 0;
  for (size_t i = kPrefix; i-- > 0;) size = size << 8 | std::to_integer<uint64_t>(bytes[i]);
  if (size > kMostSafetensorsHeader)
    fail(codes::kSafetensorsFormat,
         fmt::format("{} is not a .safetensors file: a header of {} is too long", out.path_,
                     bytes_text(size)));
  if (size > bytes.size() - kPrefix)
    fail(codes::kSafetensorsFile, fmt::format("{} is truncated: it ends in its header", out.path_));
  const std::string_view header = text_of(bytes.subspan(kPrefix, size));
  if (!header.starts_with('{'))
    fail(codes::kSafetensorsFormat,
         fmt::format("{} is not a .safetensors file: its header does not begin with a '{{'",
                     out.path_));
  HeaderReader(header, bytes.subspan(kPrefix + size), out.path_).read(out.tensors_, out.metadata_);
  return out;
}

void SafetensorsFile::read_index(std::span<const std::byte> bytes) {
  if (bytes.size() > kMostSafetensorsHeader)
    fail(codes::kSafetensorsFormat,
         fmt::format("{} is {}, too long for an index", path_, bytes_text(bytes.size())));
  std::map<std::string, SafetensorsFile> shards;
  for (const auto& [tensor, name] : read_weight_map(text_of(bytes), path_)) {
    auto shard = shards.find(name);
    if (shard == shards.end())
      shard = shards.emplace(name, open_shard(shard_path(path_, name))).first;
    const auto found = shard->second.tensors_.find(tensor);
    if (found == shard->second.tensors_.end())
      fail(codes::kSafetensorsFormat, fmt::format("{} has the tensor {} in {}, where it is not",
                                                  path_, quote(tensor), quote(name)));
    tensors_.insert(*found);
  }
  for (auto& [name, shard] : shards) {
    metadata_.merge(shard.metadata_);
    std::move(shard.files_.begin(), shard.files_.end(), std::back_inserter(files_));
  }
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail_unknown_tensor(path_, name, tensors_);
  if (!found->second.dtype)
    fail(codes::kSafetensorsType,
         fmt::format("{}: the tensor {} is {}; Braze reads {}", path_, quote(name),
                     type_text(found->second), join(kAllDTypes, ", ", stored_name)));
  return found->second;
}

// --- Writing -----------------------------------------------------------------------------------

namespace {

uint64_t bytes_of(const TensorHeader& tensor) {
  return static_cast<uint64_t>(checked_numel(tensor.shape)) * size_of(tensor.dtype);
}

}  // namespace

bool stored_before(const TensorHeader& a, const TensorHeader& b) {
  const auto key = [](const TensorHeader& t) {
    return std::tuple(bytes_of(t) % kAlignment != 0, -static_cast<int>(size_of(t.dtype)),
                      std::string_view(t.name));
  };
  return key(a) < key(b);
}

std::string safetensors_header(std::span<const TensorHeader> tensors,
                               const std::map<std::string, std::string>& metadata,
                               std::string_view file) {
  const auto string = [file](std::string_view text) {
    if (!is_utf8(text))
      fail(codes::kTensorName, fmt::format("{}: {} is not UTF-8", file, quote(text)));
    return json_string(text);
  };
  std::vector<std::string> members;
  if (!metadata.empty())
    members.push_back(
        json_string(kMetadata) + ":{" +
        join(metadata, ",",
             [&](const auto& item) { return string(item.first) + ":" + string(item.second); }) +
        "}");
  uint64_t end = 0;
  for (const TensorHeader& tensor : tensors) {
    if (tensor.name == kMetadata)
      fail(codes::kTensorName,
           fmt::format("{}: no tensor can have the name {}", file, quote(kMetadata)));
    const uint64_t begin = end;
    end += bytes_of(tensor);
    members.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  string(tensor.name), stored_name(tensor.dtype),
                                  fmt::join(tensor.shape, ","), begin, end));
  }
  std::string header = "{" + join(members, ",", [](const std::string& m) { return m; }) + "}";
  header.resize((kPrefix + header.size() + kAlignment - 1) / kAlignment * kAlignment - kPrefix,
                ' ');
  if (header.size() > kMostSafetensorsHeader)
    fail(codes::kTensorName,
         fmt::format("{}: {} tensors have names of more bytes than the format takes", file,
                     tensors.size()));
  std::string prefix;
  for (size_t i = 0; i < kPrefix; ++i) prefix += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return prefix + header;
}

}  // namespace braze
