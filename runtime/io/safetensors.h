// safetensors.h — the .safetensors format: https://huggingface.co/docs/safetensors
//
//   8 bytes    N, the size of the header, little endian
//   N bytes    a JSON object: for each tensor its dtype, its shape and the place of its data,
//              "__metadata__" with strings, and blanks up to N
//   the rest   the data, row-major, little endian, without gaps
//
// Files are untrusted. A file is accepted only if all of it is valid: the data of its tensors are
// adjacent and fill the file to its end, so every byte has one meaning. The reader allocates only
// memory in proportion to the size of the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/array.h"
#include "braze/dtype.h"
#include "braze/error.h"
#include "runtime/io/mapped_file.h"
#include "runtime/io/unknown_tensor.h"

namespace braze {

class FileWriter;

namespace codes {
inline constexpr Code kSafetensorsFile{
    "safetensors-file", ErrorKind::DataLoss,
    "A .safetensors file does not hold the data that its header speaks of."};
inline constexpr Code kSafetensorsFormat{
    "safetensors-format", ErrorKind::InvalidArgument,
    "The header of a .safetensors file, or an index of such files, does not follow the format."};
inline constexpr Code kSafetensorsType{
    "safetensors-type", ErrorKind::Unsupported,
    "A tensor of a .safetensors file has a type that Braze does not have."};
inline constexpr Code kTensorName{"tensor-name", ErrorKind::InvalidArgument,
                                  "A tensor has a name that the file format does not take."};
}  // namespace codes

/// The limit of the format's own library.
inline constexpr uint64_t kMostSafetensorsHeader = 100'000'000;

/// One tensor of a file.
struct StoredTensor {
  std::string type;            ///< the type in the file: "F32"
  std::optional<DType> dtype;  ///< nullopt if Braze does not have it
  std::vector<int64_t> shape;
  /// The data in the mapping, at any alignment. The bytes of bools may have any value.
  std::span<const std::byte> bytes;
};

/// The tensors of one file, or of the files that an index names, by name. Keeps the files mapped,
/// or copies of those that others can write (MappedFile::open_stable).
class SafetensorsFile {
 public:
  /// Maps a file. If the path ends in ".json", maps the files that this index names, which lie in
  /// its folder. Errors: those of open_stable, kSafetensorsFile, kSafetensorsFormat.
  static SafetensorsFile open(const std::string& path);
  /// Reads `bytes`, which must outlive the result. `name` is for messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string name);

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const& { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensor with this name. Fails with kUnknownTensor if there is none, and with
  /// kSafetensorsType if Braze does not have its type.
  const StoredTensor& at(std::string_view name) const;

 private:
  explicit SafetensorsFile(std::string path) : path_(std::move(path)) {}
  static SafetensorsFile open_shard(const std::string& path);
  void read_index(std::span<const std::byte> bytes);

  std::string path_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Copies a tensor, whose dtype Braze must have, to `device`.
Array to_array(const StoredTensor& tensor, const Device& device);

/// An array to write, and its bytes. It has no value if another process writes it.
struct NamedArray {
  std::string name;
  Array array;
  uint64_t bytes = 0;
};
/// Appends the bytes of a whole .safetensors file. `path` is for messages.
void append_safetensors(FileWriter& file, const std::string& path,
                        const std::map<std::string, Array>& arrays);
/// Writes the files of an index, NAME-00001-of-00003.safetensors and so on, except those of which
/// another process has arrays.
void save_parts(const std::string& index_path, std::span<const std::vector<NamedArray>> files,
                const std::map<std::string, std::string>& metadata);
/// Writes the index of these files, once all of them are complete.
void save_index(const std::string& index_path, std::span<const std::vector<NamedArray>> files);

/// A tensor to write.
struct TensorHeader {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
};

/// The part of a file before its data, which follow in the order of `tensors`. The data begin at a
/// multiple of 64 bytes.
std::string safetensors_header(std::span<const TensorHeader> tensors,
                               const std::map<std::string, std::string>& metadata,
                               std::string_view file);

/// The order in which tensors are stored. Tensors whose size is a multiple of 64 bytes come first,
/// which aligns all of them to 64. The others follow by decreasing element size, which aligns each
/// of them. Ties are ordered by name.
bool stored_before(const TensorHeader& a, const TensorHeader& b);

}  // namespace braze
