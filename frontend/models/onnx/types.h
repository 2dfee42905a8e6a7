// types.h — the element types of ONNX, and the values of its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "frontend/models/onnx/file.h"
#include "ir/values/host_tensor.h"
#include "runtime/io/mapped_file.h"

namespace braze::onnx {

/// An element type. Integers of fewer than 8 bits are kept as i8 or u8, each in its own byte.
struct ElementType {
  DType dtype = DType::F32;
  int bits = 0;  ///< if the file packs several elements into a byte: the bits of one; else 0
};

/// The type that has this number in TensorProto.DataType. It is nullopt if Braze does not have it.
std::optional<ElementType> element_type(int32_t type);
/// The first opset of ONNX that has this type.
int type_since(int32_t type);
/// The name of a type, such as "FLOAT" or "STRING". An unknown type is "type 99".
std::string type_name(int32_t type);

/// Reads the values of tensors from the file, or from files beside it.
class TensorReader {
 public:
  /// `path` is the model's path, or "" if there are no files beside it.
  explicit TensorReader(std::string path) : path_(std::move(path)) {}

  /// It throws kOnnxData if the data do not fit the shape, and Unsupported if Braze does not have
  /// the type. For external data it also throws what open_beside throws.
  HostTensor read(const TensorData& tensor);

 private:
  std::span<const std::byte> external_bytes(const TensorData& tensor, uint64_t size);

  struct Beside {
    std::shared_ptr<const MappedFile> file;
    uint64_t read = 0;  // bytes, all tensors together
  };
  std::string path_;
  std::map<std::string, Beside> files_;
};

/// Opens the file at `location`, relative to the folder of `path`. It throws InvalidArgument if the
/// file is outside of this folder, even if only a link leads there.
std::shared_ptr<const MappedFile> open_beside(const std::string& path, const std::string& location);

}  // namespace braze::onnx
