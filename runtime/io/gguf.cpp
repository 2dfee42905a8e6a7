#include "runtime/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "braze/gguf.h"
#include "ir/support/text.h"
#include "ir/values/half.h"
#include "ir/values/host_tensor.h"
#include "runtime/io/gguf_blocks.h"
#include "runtime/io/mapped_file.h"
#include "runtime/io/unknown_tensor.h"

namespace braze {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMostDims = 4;  // the limit of ggml
constexpr int kMostDepth = 8;      // of lists inside each other
constexpr uint64_t kMostAlignment = 1 << 20;
constexpr uint64_t kAlignment = 32;  // if the metadata do not give one

/// The kinds of values, by their numbers in the file.
enum class Kind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, List, U64, I64, F64 };
constexpr uint32_t kKinds = 13;
constexpr std::string_view kKindNames[kKinds] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "a list", "u64", "i64", "f64"};
constexpr size_t kKindBytes[kKinds] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::string_view name_of(Kind kind) { return kKindNames[static_cast<uint32_t>(kind)]; }

/// A value of the metadata, by the place of its bytes, which are valid.
struct Value {
  Kind kind = Kind::U8;
  size_t begin = 0;
};

/// Reads a file from some byte on.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& file, size_t position = 0)
      : bytes_(bytes), file_(file), position_(position) {}

  size_t position() const { return position_; }

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - position_)
      fail(codes::kGgufFile,
           fmt::format("{} is truncated: it ends in its header, at byte {}", file_, bytes_.size()));
    const auto out = bytes_.subspan(position_, count);
    position_ += count;
    return out;
  }
  uint64_t whole(size_t size) {
    uint64_t value = 0;
    const auto bytes = take(size);
    for (size_t i = size; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
    return value;
  }
  uint32_t u32() { return static_cast<uint32_t>(whole(4)); }
  uint64_t u64() { return whole(8); }
  std::string_view string() {
    const auto bytes = take(u64());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  Kind kind() {
    const uint32_t number = u32();
    if (number >= kKinds) malformed(fmt::format("a value has the unknown kind {}", number));
    return static_cast<Kind>(number);
  }
  /// Skips a value.
  void skip(Kind kind, int depth = 0) {
    if (kind == Kind::String) {
      string();
    } else if (kind == Kind::List) {
      if (depth == kMostDepth) malformed(fmt::format("lists are nested more than {} deep", depth));
      const Kind element = this->kind();
      const uint64_t count = u64();
      if (const size_t size = kKindBytes[static_cast<uint32_t>(element)]; size > 0) {
        if (count > bytes_.size() / size) take(std::numeric_limits<uint64_t>::max());
        take(count * size);
      } else {
        for (uint64_t i = 0; i < count; ++i) skip(element, depth + 1);  // ends, as each has bytes
      }
    } else {
      take(kKindBytes[static_cast<uint32_t>(kind)]);
    }
  }
  [[noreturn]] void malformed(const std::string& what) const {
    fail(codes::kGgufFormat, fmt::format("{}: {} (at byte {})", file_, what, position_));
  }

 private:
  const std::span<const std::byte> bytes_;
  const std::string& file_;
  size_t position_;
};

bool is_whole(Kind kind) {
  return kind != Kind::F32 && kind != Kind::F64 && kind != Kind::String && kind != Kind::List;
}
bool is_number(Kind kind) {
  return kind != Kind::Bool && kind != Kind::String && kind != Kind::List;
}

int64_t read_whole(Reader& reader, Kind kind) {
  const size_t size = kKindBytes[static_cast<uint32_t>(kind)];
  const uint64_t bits = reader.whole(size);
  const bool has_sign = kind == Kind::I8 || kind == Kind::I16 || kind == Kind::I32;
  const int shift = has_sign ? 64 - 8 * static_cast<int>(size) : 0;
  return static_cast<int64_t>(bits << shift) >> shift;
}

double read_number(Reader& reader, Kind kind) {
  if (kind == Kind::F32) return std::bit_cast<float>(reader.u32());
  if (kind == Kind::F64) return std::bit_cast<double>(reader.u64());
  const int64_t value = read_whole(reader, kind);
  return kind == Kind::U64 ? static_cast<double>(static_cast<uint64_t>(value))
                           : static_cast<double>(value);
}

uint64_t rounded_up(uint64_t value, uint64_t alignment) {
  return value + (alignment - value % alignment) % alignment;
}

}  // namespace

struct GgufFile::State {
  std::string path;
  std::shared_ptr<const MappedFile> file;  // null: the bytes belong to the caller
  std::span<const std::byte> bytes;
  std::vector<std::pair<std::string_view, Value>> values;
  std::vector<std::pair<std::string_view, GgufTensor>> tensors;
  std::vector<uint32_t> types;  // of the tensors, by their numbers
  std::map<std::string_view, size_t> value_of, tensor_of;

  explicit State(std::string name, std::span<const std::byte> content)
      : path(std::move(name)), bytes(content) {}

  void read();
  void read_metadata(Reader& reader, uint64_t count);
  void read_tensors(Reader& reader, uint64_t count, uint64_t alignment,
                    std::vector<uint64_t>& offsets);
  void place_tensors(uint64_t begin, uint64_t alignment, const std::vector<uint64_t>& offsets);

  const Value* find(std::string_view key) const {
    const auto found = value_of.find(key);
    return found == value_of.end() ? nullptr : &values[found->second].second;
  }
  [[noreturn]] void fail_kind(std::string_view key, Kind kind, std::string_view wanted) const {
    fail(codes::kGgufMetadata,
         fmt::format("{}: {} is {}, not {}", path, quote(key), name_of(kind), wanted));
  }
  const Value& at(std::string_view key) const {
    if (const Value* const value = find(key)) return *value;
    std::vector<std::string> names;
    for (const auto& item : values) names.emplace_back(item.first);
    fail(codes::kGgufMetadata,
         fmt::format("{} has no {} in its metadata{}", path, quote(key), did_you_mean(key, names)));
  }
  /// The elements of a list, which `read` reads. `wanted` says which kinds of elements are
  /// accepted.
  template <class T, class Wanted, class Read>
  std::vector<T> list(std::string_view key, std::string_view what, const Wanted& wanted,
                      const Read& read) const {
    const Value& value = at(key);
    if (value.kind != Kind::List) fail_kind(key, value.kind, fmt::format("a list of {}", what));
    Reader reader(bytes, path, value.begin);
    const Kind kind = reader.kind();
    const uint64_t count = reader.u64();
    if (!wanted(kind)) fail_kind(key, kind, fmt::format("a list of {}", what));
    std::vector<T> out;
    out.reserve(count);
    for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(read(reader, kind)));
    return out;
  }
};

void GgufFile::State::read() {
  const auto begins = [this](std::string_view text) {
    return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
  };
  if (!begins(kMagic))
    fail(codes::kGgufFormat,
         fmt::format("{} is not a .gguf file: it does not begin with {}", path, kMagic));
  Reader reader(bytes, path, kMagic.size());
  const uint32_t version = reader.u32();
  if (version != 2 && version != 3)
    fail(
        codes::kGgufType,
        fmt::format("{} is {}; Braze reads versions 2 and 3, little endian", path,
                    version % 65536 == 0 ? "big endian" : fmt::format("GGUF version {}", version)));
  const uint64_t tensor_count = reader.u64(), value_count = reader.u64();
  read_metadata(reader, value_count);
  uint64_t alignment = kAlignment;
  if (const Value* const value = find("general.alignment")) {
    Reader at_value(bytes, path, value->begin);
    if (value->kind != Kind::U32) fail_kind("general.alignment", value->kind, "u32");
    alignment = at_value.u32();
    if (!std::has_single_bit(alignment) || alignment > kMostAlignment)
      reader.malformed(fmt::format("an alignment of {}", alignment));
  }
  std::vector<uint64_t> offsets;
  read_tensors(reader, tensor_count, alignment, offsets);
  // A file without tensors may end with its header.
  const uint64_t begin = rounded_up(reader.position(), alignment);
  if (tensors.empty()) {
    if (bytes.size() > begin) reader.malformed("bytes behind the header, and no tensor");
    return;
  }
  place_tensors(begin, alignment, offsets);
}

void GgufFile::State::read_metadata(Reader& reader, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = reader.string();
    Value value{.kind = reader.kind(), .begin = reader.position()};
    reader.skip(value.kind);
    if (!value_of.emplace(key, values.size()).second)
      reader.malformed(fmt::format("the metadata have {} twice", quote(key)));
    values.emplace_back(key, value);
  }
}

void GgufFile::State::read_tensors(Reader& reader, uint64_t count, uint64_t alignment,
                                   std::vector<uint64_t>& offsets) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view name = reader.string();
    GgufTensor tensor;
    const uint32_t dims = reader.u32();
    if (dims > kMostDims) reader.malformed(fmt::format("{} has {} dimensions", quote(name), dims));
    for (uint32_t d = 0; d < dims; ++d) {
      const uint64_t extent = reader.u64();
      if (extent > uint64_t{std::numeric_limits<int64_t>::max()})
        reader.malformed(fmt::format("the shape of {} is too large", quote(name)));
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
    }
    const uint32_t type = reader.u32();
    offsets.push_back(reader.u64());
    if (offsets.back() % alignment != 0)
      reader.malformed(fmt::format("the data of {} are not aligned to {}", quote(name), alignment));
    if (const GgufType* const known = find_gguf_type(type)) {
      tensor.type = known->name;
      tensor.dtype = known->dtype;
      tensor.blocks = known->unpack != nullptr;
      const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
      if (row % known->elements != 0)
        reader.malformed(
            fmt::format("{} is {} with rows of {} elements, which is not a multiple of {}",
                        quote(name), known->name, row, known->elements));
    } else {
      tensor.type = fmt::format("type {}", type);
    }
    if (!tensor_of.emplace(name, tensors.size()).second)
      reader.malformed(fmt::format("the tensor {} comes twice", quote(name)));
    tensors.emplace_back(name, std::move(tensor));
    types.push_back(type);
  }
}

// Finds the data of the tensors, which follow each other in the order of the header, each at a
// multiple of the alignment. The data of an unknown type end where the next tensor begins.
void GgufFile::State::place_tensors(uint64_t begin, uint64_t alignment,
                                    const std::vector<uint64_t>& offsets) {
  const uint64_t available = bytes.size() > begin ? bytes.size() - begin : 0;
  std::optional<uint64_t> expected = 0;
  uint64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto& [name, tensor] = tensors[i];
    if (expected ? offsets[i] != *expected : offsets[i] < end)
      fail(codes::kGgufFormat,
           fmt::format("{}: the data of {} begin at byte {}, those before them end at {}", path,
                       quote(name), offsets[i], expected.value_or(end)));
    const GgufType* const type = find_gguf_type(types[i]);
    end = offsets[i];
    expected.reset();
    if (type == nullptr) continue;
    uint64_t elements = 1, size = 0;
    for (const int64_t extent : tensor.shape)
      if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements))
        elements = UINT64_MAX;
    if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) elements = 0;
    const bool fits =
        !__builtin_mul_overflow(elements / type->elements, uint64_t{type->bytes}, &size) &&
        offsets[i] <= available && size <= available - offsets[i];
    if (!fits)
      fail(codes::kGgufFile,
           fmt::format("{} is truncated: {} is {}[{}], and the file ends before it does", path,
                       quote(name), tensor.type, fmt::join(tensor.shape, ", ")));
    // A tensor without elements may begin behind a file that ends with its header.
    tensor.bytes = bytes.subspan(std::min<uint64_t>(begin + offsets[i], bytes.size()), size);
    end = offsets[i] + size;
    expected = rounded_up(end, alignment);
  }
  if (expected && available > *expected)
    fail(codes::kGgufFile, fmt::format("{} has {} bytes behind the data of its tensors", path,
                                       available - *expected));
}

GgufFile GgufFile::open(const std::string& path) {
  auto file = MappedFile::open_stable(path);
  auto state = std::make_shared<State>(path, file->bytes());
  state->file = std::move(file);
  state->read();
  return GgufFile(std::move(state));
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  auto state = std::make_shared<State>(std::move(name), bytes);
  state->read();
  return GgufFile(std::move(state));
}

const std::string& GgufFile::path() const { return state_->path; }

// --- Metadata
// --------------------------------------------------------------------------------------

bool GgufFile::has(std::string_view key) const { return state_->find(key) != nullptr; }

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> out;
  for (const auto& item : state_->values) out.emplace_back(item.first);
  return out;
}

std::string GgufFile::string(std::string_view key) const {
  const Value& value = state_->at(key);
  if (value.kind != Kind::String) state_->fail_kind(key, value.kind, "a string");
  return std::string(Reader(state_->bytes, path(), value.begin).string());
}

int64_t GgufFile::integer(std::string_view key) const {
  const Value& value = state_->at(key);
  if (!is_whole(value.kind)) state_->fail_kind(key, value.kind, "a whole number");
  Reader reader(state_->bytes, path(), value.begin);
  return read_whole(reader, value.kind);
}

double GgufFile::number(std::string_view key) const {
  const Value& value = state_->at(key);
  if (!is_number(value.kind)) state_->fail_kind(key, value.kind, "a number");
  Reader reader(state_->bytes, path(), value.begin);
  return read_number(reader, value.kind);
}

bool GgufFile::boolean(std::string_view key) const {
  const Value& value = state_->at(key);
  if (value.kind != Kind::Bool) state_->fail_kind(key, value.kind, "bool");
  Reader reader(state_->bytes, path(), value.begin);
  return read_whole(reader, value.kind) != 0;
}

std::vector<std::string> GgufFile::strings(std::string_view key) const {
  return state_->list<std::string>(
      key, "strings", [](Kind kind) { return kind == Kind::String; },
      [](Reader& reader, Kind) { return reader.string(); });
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const {
  return state_->list<int64_t>(key, "whole numbers", is_whole, read_whole);
}

std::vector<double> GgufFile::numbers(std::string_view key) const {
  return state_->list<double>(key, "numbers", is_number, read_number);
}

// --- Tensors
// ---------------------------------------------------------------------------------------

std::vector<std::string> GgufFile::tensors() const {
  std::vector<std::string> out;
  for (const auto& item : state_->tensors) out.emplace_back(item.first);
  return out;
}

bool GgufFile::has_tensor(std::string_view name) const { return state_->tensor_of.contains(name); }

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  const auto found = state_->tensor_of.find(name);
  if (found == state_->tensor_of.end()) fail_unknown_tensor(path(), name, state_->tensors);
  return state_->tensors[found->second].second;
}

namespace {

const GgufType& type_of(const GgufTensor& tensor) {
  const auto types = gguf_types();
  return *std::find_if(types.begin(), types.end(),
                       [&](const GgufType& type) { return type.name == tensor.type; });
}

void store(HostTensor& out, int64_t i, float value) {
  const auto at = static_cast<size_t>(i);
  if (out.dtype() == DType::F32)
    out.as<float>()[at] = value;
  else
    out.as<uint16_t>()[at] = out.dtype() == DType::F16 ? float_to_f16(value) : float_to_bf16(value);
}

}  // namespace

Array GgufFile::load(std::string_view name, const Device& device, DType dtype) const {
  const GgufTensor& tensor = this->tensor(name);
  if (tensor.dtype) return Array::from_bytes(tensor.bytes, *tensor.dtype, tensor.shape, device);
  const bool is_known = dtype == DType::F32 || is_half(dtype);
  if (!tensor.blocks || !is_known)
    fail(codes::kGgufType,
         fmt::format("{}: the tensor {} is {}, which Braze does not read as {}", path(),
                     quote(name), tensor.type, braze::name(is_known ? dtype : DType::F32)),
         {.fix = is_known ? "" : "blocks become f32, f16 or bf16"});
  const GgufType& type = type_of(tensor);
  HostTensor out(dtype, tensor.shape);
  GgufBlock block;
  const size_t blocks = tensor.bytes.size() / type.bytes;
  for (size_t b = 0; b < blocks; ++b) {
    type.unpack(tensor.bytes.data() + b * type.bytes, block);
    for (size_t i = 0; i < type.elements; ++i) {
      const size_t group = i / type.group;
      const float product = block.scale[group] * static_cast<float>(block.q[i]);
      store(out, static_cast<int64_t>(b * type.elements + i),
            type.has_offsets ? product + block.offset[group] : product);
    }
  }
  return Array::from_host(out, device);
}

namespace {

constexpr size_t kColumns = 16;  // columns that are written together: a cache line

/// The parts of a Quantized, on the host.
struct Parts {
  HostTensor low, high, scales, offsets;
};

/// Writes one block of up to kColumns columns side by side into the parts of a matrix.
class Packer {
 public:
  Packer(const GgufType& type, int64_t k, int64_t n) : type_(type), k_(k), n_(n) {}

  int64_t low_rows() const { return k_ / 8; }
  // Rows have whole blocks, which are multiples of 32. A tensor without rows may have any number of
  // columns.
  int64_t high_rows() const { return k_ / 32 * (type_.bits - 4); }
  int64_t scale_rows() const { return k_ / type_.group; }

  void pack(std::span<const GgufBlock> blocks, Parts& parts, int64_t matrix, int64_t k,
            int64_t n) const {
    words(blocks, parts.low, matrix * low_rows() + k / 8, 0, 4, n);
    if (type_.bits > 4)
      words(blocks, parts.high, matrix * high_rows() + k * (type_.bits - 4) / 32, 4, type_.bits - 4,
            n);
    const int64_t row = matrix * scale_rows() + k / type_.group;
    numbers(blocks, parts.scales, row, &GgufBlock::scale, n);
    if (type_.has_offsets) numbers(blocks, parts.offsets, row, &GgufBlock::offset, n);
  }

 private:
  // Writes `bits` bits of q, from bit `first` on.
  void words(std::span<const GgufBlock> blocks, HostTensor& out, int64_t row, int first, int bits,
             int64_t n) const {
    const auto each = static_cast<size_t>(32 / bits);
    const std::span<uint32_t> words = out.as<uint32_t>();
    for (size_t w = 0; w < type_.elements / each; ++w)
      for (size_t c = 0; c < blocks.size(); ++c) {
        uint32_t word = 0;
        for (size_t i = each; i-- > 0;) {
          const int q = blocks[c].q[w * each + i];
          word = word << bits | ((static_cast<uint32_t>(q) >> first) & ((1u << bits) - 1));
        }
        words[static_cast<size_t>((row + static_cast<int64_t>(w)) * n_ + n) + c] = word;
      }
  }
  void numbers(std::span<const GgufBlock> blocks, HostTensor& out, int64_t row,
               std::array<float, 16> GgufBlock::*values, int64_t n) const {
    for (size_t g = 0; g < type_.elements / type_.group; ++g)
      for (size_t c = 0; c < blocks.size(); ++c)
        store(out, (row + static_cast<int64_t>(g)) * n_ + n + static_cast<int64_t>(c),
              (blocks[c].*values)[g]);
  }

  const GgufType& type_;
  const int64_t k_, n_;
};

}  // namespace

Quantized<Array> GgufFile::load_quantized(std::string_view name, const Device& device,
                                          std::span<const int64_t> order) const {
  const GgufTensor& tensor = this->tensor(name);
  if (!tensor.blocks || tensor.shape.size() < 2)
    fail(codes::kGgufType,
         fmt::format("{}: the tensor {} is {}[{}], which is not a matrix of blocks", path(),
                     quote(name), tensor.type, fmt::join(tensor.shape, ", ")),
         {.fix = "read it with load"});
  const GgufType& type = type_of(tensor);
  const int64_t k = tensor.shape.back(), rows = tensor.shape[tensor.shape.size() - 2];
  for (const int64_t row : order)
    if (row < 0 || row >= rows)
      fail(codes::kGgufOrder, fmt::format("{}: the order of {} has {}, and it has {} rows", path(),
                                          quote(name), row, rows));
  const int64_t n = order.empty() ? rows : static_cast<int64_t>(order.size());
  std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end() - 2);
  // A tensor without elements may have as many rows or matrices as its file says.
  const int64_t matrices = tensor.bytes.empty() ? 0 : checked_numel(shape);
  const Packer packer(type, k, n);
  const auto part = [&](DType dtype, int64_t part_rows) {
    std::vector<int64_t> out = shape;
    out.insert(out.end(), {part_rows, n});
    return HostTensor(dtype, out);
  };
  const DType word = type.has_offsets ? DType::U32 : DType::I32;
  Parts parts{.low = part(word, packer.low_rows()),
              .high = part(word, packer.high_rows()),
              .scales = part(type.scale_type, packer.scale_rows()),
              .offsets = part(type.scale_type, type.has_offsets ? packer.scale_rows() : 0)};
  const int64_t blocks_of_row = k / type.elements;
  std::array<GgufBlock, kColumns> blocks;
  for (int64_t matrix = 0; matrix < matrices; ++matrix)
    for (int64_t first = 0; first < n; first += static_cast<int64_t>(kColumns)) {
      const auto columns = std::min<int64_t>(kColumns, n - first);
      for (int64_t b = 0; b < blocks_of_row; ++b) {
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t row = order.empty() ? first + c : order[static_cast<size_t>(first + c)];
          const int64_t at = (matrix * rows + row) * blocks_of_row + b;
          type.unpack(tensor.bytes.data() + at * type.bytes, blocks[static_cast<size_t>(c)]);
        }
        packer.pack({blocks.data(), static_cast<size_t>(columns)}, parts, matrix, b * type.elements,
                    first);
      }
    }
  Quantized<Array> out{.low = Array::from_host(parts.low, device),
                       .high = {},
                       .scales = Array::from_host(parts.scales, device),
                       .offsets = {}};
  if (type.bits > 4) out.high.push_back(Array::from_host(parts.high, device));
  if (type.has_offsets) out.offsets.push_back(Array::from_host(parts.offsets, device));
  return out;
}

}  // namespace braze
