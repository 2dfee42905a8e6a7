#include "runtime/io/npy.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "braze/io.h"
#include "ir/support/text.h"
#include "ir/values/bools.h"
#include "runtime/io/file_writer.h"
#include "runtime/io/open_file.h"
#include "runtime/memory/array_state.h"

namespace braze {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMostDims = 64;  // the limit of NumPy

// NumPy has no bfloat16: ml_dtypes writes it as two bytes without meaning, and so do we.

/// Parses the Python dictionary in a header. It has exactly three keys, each once, in any order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view file, NpyHeader& header)
      : text_(text), file_(file), header_(header) {}

  void parse() {
    bool has_descr = false, has_order = false, has_shape = false;
    const auto once = [this](bool& seen, std::string_view key) {
      if (std::exchange(seen, true)) malformed(fmt::format("has {} twice", quote(key)));
    };
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr") {
        once(has_descr, key);
        descr();
      } else if (key == "fortran_order") {
        once(has_order, key);
        header_.fortran_order = boolean();
      } else if (key == "shape") {
        once(has_shape, key);
        shape();
      } else {
        malformed(fmt::format("has an unknown key {}", quote(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (position_ != text_.size()) malformed("goes on after its end");
    if (!has_descr || !has_order || !has_shape) malformed("lacks descr, fortran_order or shape");
  }

 private:
  [[noreturn]] void malformed(std::string_view what) const {
    fail(codes::kNpyFormat,
         fmt::format("{}: the header {} (at its byte {})", file_, what, position_));
  }

  void skip_space() {
    while (position_ < text_.size() && std::strchr(" \t\r\n", text_[position_]) != nullptr &&
           text_[position_] != '\0') {
      ++position_;
    }
  }
  bool at(char c) {
    skip_space();
    return position_ < text_.size() && text_[position_] == c;
  }
  bool accept(char c) {
    if (!at(c)) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) malformed(fmt::format("lacks a '{}'", c));
  }

  std::string_view string() {
    const char quote_mark = at('"') ? '"' : '\'';
    expect(quote_mark);
    const size_t end = text_.find(quote_mark, position_);
    if (end == std::string_view::npos) malformed("has a string that does not end");
    const std::string_view value = text_.substr(position_, end - position_);
    position_ = end + 1;
    return value;
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (!text_.substr(position_).starts_with(word)) continue;
      position_ += std::strlen(word);
      return value;
    }
    malformed("has a fortran_order that is neither True nor False");
  }

  void descr() {
    if (at('[')) unsupported("records");
    const std::string_view text = string();
    if (text.empty() || std::strchr("<>|=", text[0]) == nullptr) {
      if (text != "?") unsupported(quote(text));
    }
    for (const DType dtype : kAllDTypes) {
      if (info(dtype).npy.empty()) continue;
      if (text == "?" ? dtype != DType::Bool : text.substr(1) != info(dtype).npy) continue;
      header_.dtype = dtype;
      header_.big_endian = text[0] == '>';
      return;
    }
    if (text.substr(1).starts_with("O")) unsupported("pickled Python objects");
    unsupported(quote(text));
  }

  [[noreturn]] void unsupported(std::string_view what) const {
    std::string known;
    for (const DType dtype : kAllDTypes)
      if (!info(dtype).npy.empty())
        known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", info(dtype).npy, name(dtype));
    fail(codes::kNpyType, fmt::format("{}: holds {}; Braze reads {}", file_, what, known));
  }

  void shape() {
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t extent = 0;
      const char* const begin = text_.data() + position_;
      const auto result = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (result.ec != std::errc() || extent < 0)
        malformed("has an extent that is not a valid size");
      if (*begin == '0' && result.ptr - begin > 1) malformed("has an extent with a leading zero");
      position_ += static_cast<size_t>(result.ptr - begin);
      if (text_.substr(position_).starts_with('L')) ++position_;  // a long integer of Python 2
      if (header_.shape.size() == kMostDims) malformed("has too many dimensions");
      header_.shape.push_back(extent);
      if (!accept(',')) {
        // Without the comma, (3) is a number in Python.
        if (header_.shape.size() == 1) malformed("has a shape that is not a tuple");
        expect(')');
        break;
      }
    }
  }

  const std::string_view text_;
  const std::string_view file_;
  NpyHeader& header_;
  size_t position_ = 0;
};

void read(const Descriptor& file, const std::string& path, std::span<std::byte> out,
          size_t offset) {
  while (!out.empty()) {
    const ssize_t count = pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_open(path, errno);
    if (count == 0) fail(codes::kNpyFile, fmt::format("{} became shorter while it was read", path));
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<size_t>(count);
  }
}

void reverse_bytes(std::span<std::byte> data, size_t element) {
  for (size_t i = 0; i < data.size(); i += element) {
    std::reverse(data.data() + i, data.data() + i + element);
  }
}

/// Copies elements from Fortran order (the first axis is the fastest) to row-major order.
void from_fortran_order(std::span<std::byte> out, std::span<const std::byte> in,
                        std::span<const int64_t> shape, size_t element) {
  std::vector<int64_t> index(shape.size(), 0);
  std::vector<size_t> strides;  // in bytes of `in`
  size_t stride = element;
  for (const int64_t extent : shape) {
    strides.push_back(stride);
    stride *= static_cast<size_t>(extent);
  }
  size_t from = 0;
  for (size_t to = 0; to < out.size(); to += element) {
    std::memcpy(out.data() + to, in.data() + from, element);
    for (size_t axis = shape.size(); axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= strides[axis] * static_cast<size_t>(shape[axis]);
      index[axis] = 0;
    }
  }
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> prefix, uint64_t file_size,
                           std::string_view file) {
  const std::string_view bytes(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  if (!bytes.starts_with(kMagic)) {
    fail(codes::kNpyFormat, fmt::format("{} is not a .npy file", file));
  }
  const auto byte_at = [&](size_t i) -> uint32_t {
    if (i >= bytes.size()) fail(codes::kNpyFile, fmt::format("{} ends in its header", file));
    return static_cast<uint8_t>(bytes[i]);
  };
  const uint32_t version = byte_at(6);
  if (version < 1 || version > 3) {
    fail(codes::kNpyFormat,
         fmt::format("{} has format {}.{}; 1 to 3 can be read", file, version, byte_at(7)));
  }
  // Version 1 has two bytes of length, later ones four.
  size_t length = byte_at(8) | byte_at(9) << 8;
  size_t begin = 10;
  if (version > 1) {
    length |= static_cast<size_t>(byte_at(10)) << 16 | static_cast<size_t>(byte_at(11)) << 24;
    begin = 12;
  }
  if (length > kMostNpyHeader - begin) {
    fail(codes::kNpyFormat,
         fmt::format("{} has a header of {}, which is too long", file, bytes_text(length)));
  }
  if (length > bytes.size() - begin) {
    fail(codes::kNpyFile, fmt::format("{} ends in its header", file));
  }

  NpyHeader header;
  HeaderParser(bytes.substr(begin, length), file, header).parse();
  header.data_offset = begin + length;

  size_t wanted = size_of(header.dtype);
  bool overflow = false;
  for (const int64_t extent : header.shape) {
    overflow |= __builtin_mul_overflow(wanted, static_cast<size_t>(extent), &wanted);
  }
  if (std::count(header.shape.begin(), header.shape.end(), 0) > 0) {
    wanted = 0;
    overflow = false;
  }
  const uint64_t there = file_size - header.data_offset;
  const std::string type = type_text(header.dtype, header.shape);
  if (overflow || wanted > there) {
    fail(codes::kNpyFile,
         fmt::format("{} is truncated: {} needs {} bytes, there are {}", file, type,
                     overflow ? "more than 2^64" : std::to_string(wanted), there));
  }
  if (wanted < there) {
    fail(codes::kNpyFile,
         fmt::format("{} has {} bytes behind the data of its {}", file, there - wanted, type));
  }
  header.data_bytes = wanted;
  return header;
}

HostTensor read_npy(const NpyHeader& header,
                    const std::function<void(std::span<std::byte>)>& read) {
  HostTensor value(header.dtype, header.shape);
  const std::span<std::byte> data(value.data(), header.data_bytes);
  const size_t element = size_of(header.dtype);
  if (header.fortran_order && header.shape.size() > 1) {
    std::vector<std::byte> stored(data.size());
    read(stored);
    from_fortran_order(data, stored, header.shape, element);
  } else {
    read(data);
  }
  if (header.big_endian && element > 1) reverse_bytes(data, element);
  if (header.dtype == DType::Bool) make_bools(data);
  return value;
}

HostTensor parse_npy(std::span<const std::byte> bytes, std::string_view file) {
  const NpyHeader header = parse_npy_header(bytes, bytes.size(), file);
  return read_npy(header, [&](std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), bytes.data() + header.data_offset, out.size());
  });
}

std::string npy_header_text(DType dtype, std::span<const int64_t> shape) {
  if (info(dtype).npy.empty())
    fail(codes::kNpyType, fmt::format("the format of .npy has no {}", name(dtype)),
         {.location = {}, .node = {}, .fix = "save it as .safetensors, or bitcast it to u8"});
  const std::string extents = join(shape, " ", [](int64_t e) { return std::to_string(e) + ","; });
  // The shape as Python writes it: "(3, 4)", but "(3,)" for one axis.
  const std::string_view trimmed =
      shape.size() > 1 ? std::string_view(extents).substr(0, extents.size() - 1) : extents;
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 size_of(dtype) == 1 ? '|' : '<', info(dtype).npy, trimmed);
  constexpr size_t kFixed = 10;  // magic, version, length
  constexpr size_t kAlignment = 64;
  const size_t size = (kFixed + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(size - kFixed - 1, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());
  std::string out(kMagic);
  out += '\1';
  out += '\0';
  out += static_cast<char>(length & 0xff);
  out += static_cast<char>(length >> 8);
  return out + text;
}

std::vector<std::byte> npy_bytes(const HostTensor& value) {
  const std::string header = npy_header_text(value.dtype(), value.shape());
  const auto* const text = reinterpret_cast<const std::byte*>(header.data());
  std::vector<std::byte> out(text, text + header.size());
  out.insert(out.end(), value.data(), value.data() + value.size_bytes());
  return out;
}

Array load_npy(const std::string& path, const Device& device) {
  const Descriptor file = open_file(path);
  const uint64_t size = size_of(file, path);
  std::vector<std::byte> prefix(std::min<uint64_t>(size, kMostNpyHeader));
  read(file, path, prefix, 0);
  const NpyHeader header = parse_npy_header(prefix, size, path);
  const auto read_data = [&](std::span<std::byte> out) {
    read(file, path, out, header.data_offset);
  };
  return Array::from_host(read_npy(header, read_data), device);
}

void save_npy(const std::string& path, const Array& array) {
  const HostTensor value = array.to_host();
  FileWriter file(path);
  file.append(npy_header_text(value.dtype(), value.shape()));
  file.append({value.data(), value.size_bytes()});
  file.publish();
}

}  // namespace braze
