// file.h — the content of an .onnx file: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
//
// The wire format is that of protobuf, and protozero reads it. Files are untrusted. So every length
// is checked against the bytes that exist, the depth of graphs within graphs is limited, and the
// reader takes no more memory than a small multiple of the file. Nothing is interpreted here, since
// import.h does that. Fields that do not affect what is computed (documentation, metadata) are
// skipped.
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

#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kOnnxFile{"onnx-file", ErrorKind::DataLoss,
                                "An .onnx file is cut off or does not follow the format."};
inline constexpr Code kOnnxData{
    "onnx-data", ErrorKind::InvalidArgument,
    "The data of a tensor of an .onnx file are not what its type and shape say."};
}  // namespace codes

namespace onnx {

/// Where the bytes of a tensor are if they are in another file.
struct ExternalData {
  std::string location;  ///< a path, relative to the folder of the file
  uint64_t offset = 0;
  std::optional<uint64_t> length;  ///< nullopt: up to the end of that file
};

/// TensorProto. `type` is the number of an element type (types.h).
struct TensorData {
  std::string name;
  int32_t type = 0;
  std::vector<int64_t> shape;
  std::optional<std::span<const std::byte>> raw;  ///< part of the file's bytes; little endian
  // Else the elements are in the list for their type.
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> integers;  ///< from int32_data or int64_data
  std::vector<uint64_t> unsigned_integers;
  size_t strings = 0;
  std::optional<ExternalData> external;
};

/// An extent of an input: a number, a name, or neither.
struct Extent {
  std::optional<int64_t> value;
  std::string name;
};

/// ValueInfoProto: an input or output of a graph, or a value between its nodes.
struct ValueInfo {
  std::string name;
  bool is_tensor = false;
  std::string_view kind = "of no type";  ///< what it is if it is no tensor: "a sequence"
  int32_t type = 0;
  std::optional<std::vector<Extent>> shape;
};

struct GraphData;

/// AttributeProto.
struct Attribute {
  enum class Kind : uint8_t {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Other = 9,  ///< lists of tensors or graphs, sparse tensors, types
  };
  std::string name;
  std::string reference;  ///< in a function: the call's attribute that gives the value
  Kind kind = Kind::Undefined;
  float real = 0;
  int64_t integer = 0;
  std::string text;
  std::shared_ptr<const TensorData> tensor;
  std::shared_ptr<const GraphData> graph;
  std::vector<float> reals;
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
};

/// NodeProto. An input or output with an empty name is omitted.
struct NodeData {
  std::string name, op, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> attributes;
};

/// GraphProto.
struct GraphData {
  std::string name;
  std::vector<NodeData> nodes;
  std::vector<std::shared_ptr<const TensorData>> weights;  ///< the initializers
  std::vector<ValueInfo> inputs, outputs;
  std::vector<ValueInfo> values;  ///< the types of values between nodes that the file gives
  size_t sparse_weights = 0;
};

/// The version of the operator set of each domain. ONNX's own domain is "".
using Opsets = std::map<std::string, int64_t>;

/// FunctionProto.
struct FunctionData {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> defaults;  ///< attributes that a call may omit
  std::vector<NodeData> nodes;
  Opsets opsets;
};

/// ModelProto.
struct ModelData {
  size_t bytes = 0;  ///< the size of the file
  int64_t ir_version = 0;
  std::string producer;
  Opsets opsets;
  GraphData graph;
  std::vector<FunctionData> functions;
};

/// Reads a model. The result points into `bytes`. Messages name `file`.
ModelData parse_model(std::span<const std::byte> bytes, std::string_view file);
/// Reads a file that contains a single tensor (.pb), such as test data of models.
TensorData parse_tensor(std::span<const std::byte> bytes, std::string_view file);

}  // namespace onnx
}  // namespace braze
