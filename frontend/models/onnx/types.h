// types.h — element types of ONNX, and the values of its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "frontend/models/onnx/file.h"
#include "ir/values/host_tensor.h"
#include "runtime/io/mapped_file.h"

namespace braze::onnx {

/// Integers of fewer than 8 bits are kept one in each byte, as i8 or u8.
struct ElementType {
  DType dtype = DType::F32;
  int bits = 0;  ///< the bits of an element if the file packs several into a byte; else 0
};

/// The type of a number of TensorProto.DataType; nullopt if Braze has none for it.
std::optional<ElementType> element_type(int32_t type);
/// "FLOAT", "STRING" ..., or "type 99".
std::string type_name(int32_t type);

/// Values of tensors, from the file or from files beside it.
class TensorReader {
 public:
  /// `path` is that of the model; "" if there are no files beside it.
  explicit TensorReader(std::string path) : path_(std::move(path)) {}

  /// Throws kOnnxData if the data do not fit the shape, Unsupported for a type that Braze does not
  /// have, and for external data what open_beside throws.
  HostTensor read(const TensorData& tensor);

 private:
  std::span<const std::byte> external_bytes(const TensorData& tensor, uint64_t size);

  std::string path_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

/// Opens the file at `location`, relative to the folder of `path`. InvalidArgument if it is outside
/// of this folder, also by way of a link.
std::shared_ptr<const MappedFile> open_beside(const std::string& path, const std::string& location);

}  // namespace braze::onnx
