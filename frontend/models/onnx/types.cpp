#include "frontend/models/onnx/types.h"

#include <cstring>
#include <filesystem>

#include "ir/support/text.h"

namespace braze::onnx {

namespace {

namespace codes {
inline constexpr Code kOnnxPath{"onnx-path", ErrorKind::DataLoss,
                                "A model names a file outside of its own folder."};
inline constexpr Code kOnnxType{"onnx-type", ErrorKind::Unsupported,
                                "A tensor of a model has a type that Braze does not have."};
}  // namespace codes
using braze::codes::kOnnxData;

// How often tensors can read another file from end to end.
constexpr uint64_t kMostReadings = 4;

struct TypeRow {
  std::string_view name;
  std::optional<ElementType> type;
  int since = 1;  // the first opset that has it
};

// The types in the order of their numbers in TensorProto.DataType.
constexpr TypeRow kTypes[] = {
    {"UNDEFINED", {}},
    {"FLOAT", ElementType{DType::F32}},
    {"UINT8", ElementType{DType::U8}},
    {"INT8", ElementType{DType::I8}},
    {"UINT16", ElementType{DType::U16}},
    {"INT16", ElementType{DType::I16}},
    {"INT32", ElementType{DType::I32}},
    {"INT64", ElementType{DType::I64}},
    {"STRING", {}},
    {"BOOL", ElementType{DType::Bool}},
    {"FLOAT16", ElementType{DType::F16}},
    {"DOUBLE", ElementType{DType::F64}},
    {"UINT32", ElementType{DType::U32}},
    {"UINT64", ElementType{DType::U64}},
    {"COMPLEX64", {}},
    {"COMPLEX128", {}},
    {"BFLOAT16", ElementType{DType::BF16}, 13},
    {"FLOAT8E4M3FN", ElementType{DType::F8E4M3}, 19},
    {"FLOAT8E4M3FNUZ", {}, 19},
    {"FLOAT8E5M2", ElementType{DType::F8E5M2}, 19},
    {"FLOAT8E5M2FNUZ", {}, 19},
    {"UINT4", ElementType{DType::U8, 4}, 21},
    {"INT4", ElementType{DType::I8, 4}, 21},
    {"FLOAT4E2M1", {}, 23},
    {"FLOAT8E8M0", {}, 24},
    {"UINT2", ElementType{DType::U8, 2}, 25},
    {"INT2", ElementType{DType::I8, 2}, 25},
};

[[noreturn]] void fail_data(const TensorData& tensor, const std::string& why) {
  fail(kOnnxData, fmt::format("the tensor {} {}", quote(tensor.name), why));
}

// One element of a byte that contains several. The first one is in the lowest bits.
uint64_t unpacked(std::byte byte, size_t place, const ElementType& type) {
  const auto bits = static_cast<uint64_t>(byte) >> (place * static_cast<size_t>(type.bits));
  const uint64_t mask = (uint64_t{1} << type.bits) - 1;
  const uint64_t value = bits & mask;
  const bool is_negative = is_signed_integer(type.dtype) && (value >> (type.bits - 1)) != 0;
  return is_negative ? value | (0xff & ~mask) : value;
}

void copy_raw(HostTensor& out, const ElementType& type, std::span<const std::byte> bytes) {
  if (type.bits == 0) {
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    if (type.dtype == DType::Bool)  // any byte other than 0 is true
      for (int64_t i = 0; i < out.numel(); ++i) out.set_bits(i, bytes[size_t(i)] != std::byte{0});
    return;
  }
  const auto per_byte = static_cast<size_t>(8 / type.bits);
  for (size_t i = 0; i < static_cast<size_t>(out.numel()); ++i)
    out.set_bits(static_cast<int64_t>(i), unpacked(bytes[i / per_byte], i % per_byte, type));
}

uint64_t raw_size(const ElementType& type, int64_t count) {
  const auto elements = static_cast<uint64_t>(count);
  if (type.bits == 0) return elements * size_of(type.dtype);
  const auto per_byte = static_cast<uint64_t>(8 / type.bits);
  return (elements + per_byte - 1) / per_byte;
}

// Whether the list of integers holds the bits of the elements.
bool is_kept_as_bits(DType dtype) { return is_floating(dtype) && size_of(dtype) < 4; }

size_t list_size(const TensorData& tensor, DType dtype) {
  switch (dtype) {
    case DType::F32:
      return tensor.floats.size();
    case DType::F64:
      return tensor.doubles.size();
    case DType::U32:
    case DType::U64:
      return tensor.unsigned_integers.size();
    default:
      return tensor.integers.size();
  }
}

void copy_list(HostTensor& out, const TensorData& tensor, const ElementType& type) {
  const DType dtype = type.dtype;
  const auto per_byte = static_cast<size_t>(type.bits ? 8 / type.bits : 1);
  const auto count = static_cast<size_t>(out.numel());
  if (list_size(tensor, dtype) != (count + per_byte - 1) / per_byte)
    fail_data(tensor, fmt::format("has {} elements, and its shape {}",
                                  list_size(tensor, dtype) * per_byte, count));
  for (size_t i = 0; i < count; ++i) {
    const auto at = static_cast<int64_t>(i);
    if (type.bits)
      out.set_bits(
          at, unpacked(static_cast<std::byte>(tensor.integers[i / per_byte]), i % per_byte, type));
    else if (dtype == DType::F32)
      out.set_double(at, tensor.floats[i]);
    else if (dtype == DType::F64)
      out.set_double(at, tensor.doubles[i]);
    else if (dtype == DType::U32 || dtype == DType::U64)
      out.set_int(at, static_cast<int64_t>(tensor.unsigned_integers[i]));
    else if (is_kept_as_bits(dtype))
      out.set_bits(at, static_cast<uint64_t>(tensor.integers[i]) &
                           ((uint64_t{1} << (8 * size_of(dtype))) - 1));
    else
      out.set_int(at, tensor.integers[i]);
  }
}

}  // namespace

std::optional<ElementType> element_type(int32_t type) {
  if (type < 0 || static_cast<size_t>(type) >= std::size(kTypes)) return std::nullopt;
  return kTypes[type].type;
}

int type_since(int32_t type) {
  return type < 0 || static_cast<size_t>(type) >= std::size(kTypes) ? 1 : kTypes[type].since;
}

std::string type_name(int32_t type) {
  if (type < 0 || static_cast<size_t>(type) >= std::size(kTypes))
    return fmt::format("type {}", type);
  return std::string(kTypes[type].name);
}

std::shared_ptr<const MappedFile> open_beside(const std::string& path,
                                              const std::string& location) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path file(path);
  const fs::path folder =
      fs::weakly_canonical(file.has_parent_path() ? file.parent_path() : fs::path("."), error);
  const fs::path relative(location);
  bool is_inside = !error && !location.empty() && relative.is_relative() &&
                   location.find('\0') == std::string::npos;
  for (const fs::path& part : relative) is_inside &= part != "..";
  // `weakly_canonical` follows links.
  fs::path target;
  if (is_inside) {
    target = fs::weakly_canonical(folder / relative, error);
    const fs::path way = target.lexically_relative(folder);
    is_inside = !error && !way.empty() && *way.begin() != "..";
  }
  if (!is_inside)
    fail(codes::kOnnxPath,
         fmt::format("the model's data lie in {}, which is not below the folder of {}",
                     quote(location), quote(path)),
         {.fix = "put the file beside the model, and name it by its path from there"});
  return MappedFile::open_stable(target.string());
}

std::span<const std::byte> TensorReader::external_bytes(const TensorData& tensor, uint64_t size) {
  const ExternalData& place = *tensor.external;
  if (path_.empty()) fail_data(tensor, "lies in another file, and there is none here");
  Beside& beside = files_[place.location];
  if (!beside.file) beside.file = open_beside(path_, place.location);
  const auto bytes = beside.file->bytes();
  const bool fits = place.offset <= bytes.size() && size <= bytes.size() - place.offset;
  if (!fits || (place.length && *place.length != size))
    fail_data(
        tensor,
        fmt::format("takes {} bytes from {} on of {}, which has {}{}", size, place.offset,
                    quote(place.location), bytes.size(),
                    place.length ? fmt::format("; the model speaks of {}", *place.length) : ""));
  // Tensors may share bytes, but a few bytes are not many tensors.
  if (beside.read += size; beside.read / kMostReadings > bytes.size())
    fail_data(tensor, fmt::format("is one of those that together take the bytes of {} more than {} "
                                  "times",
                                  quote(place.location), kMostReadings));
  return bytes.subspan(place.offset, size);
}

HostTensor TensorReader::read(const TensorData& tensor) {
  const auto type = element_type(tensor.type);
  if (!type)
    fail(codes::kOnnxType,
         fmt::format("the tensor {} is of {}", quote(tensor.name), type_name(tensor.type)));
  const int64_t count = checked_numel(tensor.shape);
  const uint64_t size = raw_size(*type, count);
  // Before memory is taken, it is checked that the file has this many bytes.
  std::span<const std::byte> raw;
  if (tensor.external) raw = external_bytes(tensor, size);
  if (tensor.raw && !tensor.external) raw = *tensor.raw;
  const bool is_raw = tensor.external || tensor.raw;
  if (is_raw && raw.size() != size)
    fail_data(tensor, fmt::format("has {} bytes, and its shape {}", raw.size(), size));
  const auto most = static_cast<uint64_t>(list_size(tensor, type->dtype)) * 4;
  if (!is_raw && static_cast<uint64_t>(count) > most)
    fail_data(tensor, fmt::format("has {} elements, and its shape {}",
                                  list_size(tensor, type->dtype), count));
  HostTensor out(type->dtype, tensor.shape);
  if (is_raw)
    copy_raw(out, *type, raw);
  else
    copy_list(out, tensor, *type);
  return out;
}

}  // namespace braze::onnx
