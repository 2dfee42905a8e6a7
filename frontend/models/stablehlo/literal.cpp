#include "frontend/models/stablehlo/literal.h"

#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "frontend/models/stablehlo/syntax.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

constexpr std::pair<std::string_view, DType> kElementTypes[] = {
    {"i1", DType::Bool},         {"i8", DType::I8},         {"i16", DType::I16},
    {"i32", DType::I32},         {"i64", DType::I64},       {"si8", DType::I8},
    {"si16", DType::I16},        {"si32", DType::I32},      {"si64", DType::I64},
    {"ui8", DType::U8},          {"ui16", DType::U16},      {"ui32", DType::U32},
    {"ui64", DType::U64},        {"f16", DType::F16},       {"bf16", DType::BF16},
    {"f32", DType::F32},         {"f64", DType::F64},       {"index", DType::I64},
    {"f8E4M3FN", DType::F8E4M3}, {"f8E5M2", DType::F8E5M2},
};

[[noreturn]] void fail_literal(const std::string& message) {
  fail(codes::kStablehloText, "a constant " + message);
}

int digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// Reads "0x00FF": the bytes of all elements, or of one element that stands for all. Each bool has a
// byte, or eight of them share one.
HostTensor from_bytes(std::string_view hex, const TensorType& type, int64_t count) {
  std::vector<uint8_t> bytes;
  if (!hex.starts_with("0x") || hex.size() % 2 != 0) fail_literal("has no bytes in hexadecimal");
  for (size_t i = 2; i < hex.size(); i += 2) {
    if (digit(hex[i]) < 0 || digit(hex[i + 1]) < 0) fail_literal("has no bytes in hexadecimal");
    bytes.push_back(static_cast<uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  const bool is_packed = type.dtype == DType::Bool && static_cast<int64_t>(bytes.size()) != count;
  const auto needed = [&](int64_t elements) {
    return static_cast<size_t>(is_packed ? (elements + 7) / 8
                                         : elements * static_cast<int64_t>(size_of(type.dtype)));
  };
  const bool is_all =
      count <= static_cast<int64_t>(bytes.size()) * 8 && bytes.size() == needed(count);
  if (!is_all && bytes.size() != needed(1))
    fail_literal(fmt::format("of {} has {} bytes", type.to_string(), bytes.size()));
  HostTensor out(type.dtype, is_all ? type.shape.static_dims() : std::vector<int64_t>());
  if (is_packed) {
    for (int64_t i = 0; i < out.numel(); ++i)
      out.set_int(i, (bytes[static_cast<size_t>(i / 8)] >> (i % 8)) & 1);
  } else if (type.dtype == DType::Bool) {
    for (int64_t i = 0; i < out.numel(); ++i) out.set_int(i, bytes[static_cast<size_t>(i)] != 0);
  } else if (!bytes.empty()) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  return out;
}

struct Reader {
  std::string_view text;
  DType dtype;
  size_t position = 0;

  void skip() {
    while (position < text.size() && (text[position] == ' ' || text[position] == '\n')) ++position;
  }
  bool accept(char c) {
    skip();
    if (position >= text.size() || text[position] != c) return false;
    ++position;
    return true;
  }

  void element(HostTensor& out, int64_t i) {
    skip();
    const size_t end = std::min(text.find_first_of(",] \n", position), text.size());
    const std::string_view word = text.substr(position, end - position);
    position = end;
    const char* begin = word.data();
    const char* stop = begin + word.size();
    const auto check = [&](std::from_chars_result result) {
      if (word.empty() || result.ec != std::errc() || result.ptr != stop)
        fail_literal(fmt::format("has an element {}", quote(word)));
    };
    if (dtype == DType::Bool && (word == "true" || word == "false"))
      return out.set_int(i, word == "true");
    if (word.starts_with("0x")) {
      uint64_t bits = 0;
      check(std::from_chars(begin + 2, stop, bits, 16));
      return out.set_bits(i, bits);
    }
    if (is_floating(dtype)) {
      // It is read as an f32, so that it is rounded once. A double would be rounded again.
      if (dtype == DType::F32) {
        float value = 0;
        const auto result = std::from_chars(begin, stop, value);
        // Numbers that are too large or too small for f32 are read as a double below.
        if (result.ec != std::errc::result_out_of_range) check(result);
        if (result.ec == std::errc()) return out.set_double(i, double{value});
      }
      double value = 0;
      check(std::from_chars(begin, stop, value));
      return out.set_double(i, value);
    }
    if (dtype == DType::U64) {
      uint64_t value = 0;
      check(std::from_chars(begin, stop, value));
      return out.set_bits(i, value);
    }
    int64_t value = 0;
    check(std::from_chars(begin, stop, value));
    out.set_int(i, value);
  }

  // Reads nested lists along the axes from `axis` on. `next` is the number of the next element.
  void list(HostTensor& out, size_t axis, int64_t& next) {
    const std::vector<int64_t>& shape = out.shape();
    if (axis == shape.size()) return element(out, next++);
    if (!accept('[')) fail_literal("is no list");
    for (int64_t i = 0; i < shape[axis]; ++i) {
      if (i > 0 && !accept(',')) fail_literal("has too few elements");
      list(out, axis + 1, next);
    }
    if (!accept(']')) fail_literal("has too many elements");
  }
};

}  // namespace

std::optional<DType> element_type(std::string_view text) {
  for (const auto& [name, dtype] : kElementTypes)
    if (name == text) return dtype;
  return std::nullopt;
}

std::shared_ptr<const HostTensor> read_literal(std::string_view text, const TensorType& type) {
  const int64_t count = checked_numel(type.shape.static_dims());
  Reader reader{text, type.dtype};
  reader.skip();
  const std::string_view rest = text.substr(reader.position);
  if (rest.starts_with('"')) {
    const size_t end = rest.rfind('"');
    return std::make_shared<const HostTensor>(
        from_bytes(rest.substr(1, end < 1 ? 0 : end - 1), type, count));
  }
  const bool is_list = rest.starts_with('[');
  const bool is_all = is_list || rest.empty();
  // Each element takes at least two characters.
  if (is_all && count > static_cast<int64_t>(text.size()))
    fail_literal(fmt::format("of {} has too few elements", type.to_string()));
  HostTensor out(type.dtype, is_all ? type.shape.static_dims() : std::vector<int64_t>());
  int64_t next = 0;
  if (!rest.empty())
    reader.list(out, 0, next);
  else if (count != 0)
    fail_literal("has no elements");
  reader.skip();
  if (reader.position != text.size()) fail_literal("goes on behind its elements");
  return std::make_shared<const HostTensor>(std::move(out));
}

}  // namespace braze::stablehlo
