#include "frontend/models/onnx/file.h"

#include <charconv>
#include <functional>
#include <stdexcept>
#include <utility>

// protozero assumes that a field has the wire type that is read. A file may have another type, so
// it is checked.
namespace braze::onnx {
struct WrongWireType : std::exception {};
}  // namespace braze::onnx
#define protozero_assert(x) \
  if (!(x)) throw braze::onnx::WrongWireType()
#include <protozero/pbf_reader.hpp>

#include "ir/support/text.h"

namespace braze::onnx {

namespace {

constexpr int kMostDepth = 16;    // how deeply graphs may be nested in attributes
constexpr size_t kMostRank = 32;  // for a tensor
constexpr int32_t kExternal = 1;  // a value of TensorProto.DataLocation
// An empty message has two bytes in a file, but takes about a hundred bytes here.
constexpr size_t kMostMessages = size_t{1} << 20;
// What a value can be beside a tensor, by its field in TypeProto.
constexpr std::pair<uint32_t, std::string_view> kOtherKinds[] = {
    {4, "a sequence"}, {5, "a map"}, {8, "a sparse tensor"}, {9, "an optional"}};
using Message = protozero::pbf_reader;

std::string text_of(Message& message) { return message.get_string(); }

// Appends the numbers of a repeated field. It holds one number, or several that are packed.
template <class T, class One, class Packed>
void append(Message& message, std::vector<T>& list, const One& one, const Packed& packed) {
  if (message.wire_type() == protozero::pbf_wire_type::length_delimited) {
    const auto range = packed(message);
    // There cannot be more numbers than bytes, because each number takes at least one byte.
    for (const auto value : range) list.push_back(static_cast<T>(value));
  } else {
    list.push_back(static_cast<T>(one(message)));
  }
}
void append_int64(Message& message, std::vector<int64_t>& list) {
  append(message, list, std::mem_fn(&Message::get_int64), std::mem_fn(&Message::get_packed_int64));
}

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  ModelData model(Message message) {
    ModelData out;
    bool has_graph = false;
    while (message.next()) switch (message.tag()) {
        case 1:
          out.ir_version = message.get_int64();
          break;
        case 2:
          out.producer = text_of(message);
          break;
        case 7:
          out.graph = graph(message.get_message(), 0);
          has_graph = true;
          break;
        case 8:
          add_opset(message.get_message(), out.opsets);
          break;
        case 25:
          out.functions.push_back(function(message.get_message()));
          break;
        default:
          message.skip();
      }
    if (!has_graph || out.opsets.empty())
      malformed("it has no graph, or no version of an operator set: this is no ONNX model");
    return out;
  }

  TensorData tensor(Message message) {
    count();
    TensorData out;
    ExternalData external;
    bool is_external = false;
    while (message.next()) switch (message.tag()) {
        case 1:
          append_int64(message, out.shape);
          break;
        case 2:
          out.type = message.get_int32();
          break;
        case 4:
          append(message, out.floats, std::mem_fn(&Message::get_float),
                 std::mem_fn(&Message::get_packed_float));
          break;
        case 5:
          append(message, out.integers, std::mem_fn(&Message::get_int32),
                 std::mem_fn(&Message::get_packed_int32));
          break;
        case 6:
          message.skip();
          ++out.strings;
          break;
        case 7:
          append_int64(message, out.integers);
          break;
        case 8:
          out.name = text_of(message);
          break;
        case 9: {
          const auto view = message.get_view();
          out.raw = std::as_bytes(std::span(view.data(), view.size()));
          break;
        }
        case 10:
          append(message, out.doubles, std::mem_fn(&Message::get_double),
                 std::mem_fn(&Message::get_packed_double));
          break;
        case 11:
          append(message, out.unsigned_integers, std::mem_fn(&Message::get_uint64),
                 std::mem_fn(&Message::get_packed_uint64));
          break;
        case 13:
          add_external(message.get_message(), external);
          break;
        case 14:
          is_external = message.get_enum() == kExternal;
          break;
        default:
          message.skip();
      }
    if (out.shape.size() > kMostRank)
      malformed(fmt::format("the tensor {} has {} axes", quote(out.name), out.shape.size()));
    if (is_external) out.external = std::move(external);
    return out;
  }

  [[noreturn]] void malformed(const std::string& why) const {
    fail(codes::kOnnxFile, fmt::format("{}: {}", file_, why));
  }

 private:
  void count() {
    if (++messages_ > kMostMessages)
      malformed(fmt::format("it has more than {} nodes, attributes and tensors", kMostMessages));
  }

  void add_opset(Message message, Opsets& opsets) {
    count();
    std::string domain;
    int64_t version = 0;
    while (message.next()) switch (message.tag()) {
        case 1:
          domain = text_of(message);
          break;
        case 2:
          version = message.get_int64();
          break;
        default:
          message.skip();
      }
    if (domain == "ai.onnx") domain.clear();  // both names mean the same
    opsets[domain] = version;
  }

  uint64_t number(std::string_view text) const {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      malformed(fmt::format("{} is no size of external data", quote(text)));
    return value;
  }

  void add_external(Message message, ExternalData& external) {
    std::string key, value;
    while (message.next()) switch (message.tag()) {
        case 1:
          key = text_of(message);
          break;
        case 2:
          value = text_of(message);
          break;
        default:
          message.skip();
      }
    if (key == "location") external.location = value;
    if (key == "offset") external.offset = number(value);
    if (key == "length") external.length = number(value);
  }

  Extent extent(Message message) {
    count();
    Extent out;
    while (message.next()) switch (message.tag()) {
        case 1:
          out.value = message.get_int64();
          break;
        case 2:
          out.name = text_of(message);
          break;
        default:
          message.skip();
      }
    return out;
  }

  std::vector<Extent> shape(Message message) {
    std::vector<Extent> out;
    while (message.next(1)) out.push_back(extent(message.get_message()));
    return out;
  }

  void tensor_type(Message message, ValueInfo& info) {
    info.is_tensor = true;
    while (message.next()) switch (message.tag()) {
        case 1:
          info.type = message.get_int32();
          break;
        case 2:
          info.shape = shape(message.get_message());
          break;
        default:
          message.skip();
      }
  }

  ValueInfo value_info(Message message) {
    count();
    ValueInfo out;
    while (message.next()) switch (message.tag()) {
        case 1:
          out.name = text_of(message);
          break;
        case 2: {
          Message type = message.get_message();
          while (type.next()) {
            if (type.tag() == 1) {
              tensor_type(type.get_message(), out);
              continue;
            }
            for (const auto& [tag, kind] : kOtherKinds)
              if (type.tag() == tag) out.kind = kind;
            type.skip();
          }
          break;
        }
        default:
          message.skip();
      }
    return out;
  }

  Attribute attribute(Message message, int depth) {
    count();
    Attribute out;
    while (message.next()) switch (message.tag()) {
        case 1:
          out.name = text_of(message);
          break;
        case 2:
          out.real = message.get_float();
          break;
        case 3:
          out.integer = message.get_int64();
          break;
        case 4:
          out.text = text_of(message);
          break;
        case 5:
          out.tensor = std::make_shared<const TensorData>(tensor(message.get_message()));
          break;
        case 6:
          out.graph = std::make_shared<const GraphData>(graph(message.get_message(), depth + 1));
          break;
        case 7:
          append(message, out.reals, std::mem_fn(&Message::get_float),
                 std::mem_fn(&Message::get_packed_float));
          break;
        case 8:
          append_int64(message, out.integers);
          break;
        case 9:
          out.texts.push_back(text_of(message));
          break;
        case 20: {
          const int32_t kind = message.get_enum();
          const bool is_known = kind > 0 && kind < static_cast<int32_t>(Attribute::Kind::Other);
          out.kind = is_known ? static_cast<Attribute::Kind>(kind) : Attribute::Kind::Other;
          break;
        }
        case 21:
          out.reference = text_of(message);
          break;
        default:
          message.skip();
      }
    const bool is_missing = (out.kind == Attribute::Kind::Tensor && !out.tensor) ||
                            (out.kind == Attribute::Kind::Graph && !out.graph);
    if (is_missing && out.reference.empty())
      malformed(fmt::format("the attribute {} has no value", quote(out.name)));
    return out;
  }

  NodeData node(Message message, int depth) {
    count();
    NodeData out;
    while (message.next()) switch (message.tag()) {
        case 1:
          out.inputs.push_back(text_of(message));
          break;
        case 2:
          out.outputs.push_back(text_of(message));
          break;
        case 3:
          out.name = text_of(message);
          break;
        case 4:
          out.op = text_of(message);
          break;
        case 5:
          out.attributes.push_back(attribute(message.get_message(), depth));
          break;
        case 7:
          out.domain = text_of(message);
          break;
        case 8:
          out.overload = text_of(message);
          break;
        default:
          message.skip();
      }
    if (out.domain == "ai.onnx") out.domain.clear();
    return out;
  }

  GraphData graph(Message message, int depth) {
    if (depth > kMostDepth) malformed("graphs within graphs are too deep");
    GraphData out;
    while (message.next()) switch (message.tag()) {
        case 1:
          out.nodes.push_back(node(message.get_message(), depth));
          break;
        case 2:
          out.name = text_of(message);
          break;
        case 5:
          out.weights.push_back(std::make_shared<const TensorData>(tensor(message.get_message())));
          break;
        case 11:
          out.inputs.push_back(value_info(message.get_message()));
          break;
        case 12:
          out.outputs.push_back(value_info(message.get_message()));
          break;
        case 13:
          out.values.push_back(value_info(message.get_message()));
          break;
        case 15:
          message.skip();
          ++out.sparse_weights;
          break;
        default:
          message.skip();
      }
    return out;
  }

  FunctionData function(Message message) {
    count();
    FunctionData out;
    while (message.next()) switch (message.tag()) {
        case 1:
          out.name = text_of(message);
          break;
        case 4:
          out.inputs.push_back(text_of(message));
          break;
        case 5:
          out.outputs.push_back(text_of(message));
          break;
        case 7:
          out.nodes.push_back(node(message.get_message(), 0));
          break;
        case 9:
          add_opset(message.get_message(), out.opsets);
          break;
        case 10:
          out.domain = text_of(message);
          break;
        case 11:
          out.defaults.push_back(attribute(message.get_message(), 0));
          break;
        case 13:
          out.overload = text_of(message);
          break;
        default:
          message.skip();
      }
    if (out.domain == "ai.onnx") out.domain.clear();
    return out;
  }

  std::string_view file_;
  size_t messages_ = 0;
};

// If the bytes are not a message, protozero throws. That becomes an error of ours.
template <class Read>
auto read(std::span<const std::byte> bytes, std::string_view file, const Read& what) {
  Reader reader(file);
  try {
    return what(reader, Message(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  } catch (const protozero::exception& error) {
    reader.malformed(fmt::format("the bytes are no protobuf message ({})", error.what()));
  } catch (const WrongWireType&) {
    reader.malformed("the bytes are no ONNX message: a field has another type");
  }
}

}  // namespace

ModelData parse_model(std::span<const std::byte> bytes, std::string_view file) {
  ModelData out = read(
      bytes, file, [](Reader& reader, const Message& message) { return reader.model(message); });
  out.bytes = bytes.size();
  return out;
}

TensorData parse_tensor(std::span<const std::byte> bytes, std::string_view file) {
  return read(bytes, file,
              [](Reader& reader, const Message& message) { return reader.tensor(message); });
}

}  // namespace braze::onnx
