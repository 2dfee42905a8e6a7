#include "ir/graph/constant_text.h"

#include <cstring>
#include <limits>
#include <optional>

#include "ir/graph/infer.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {
namespace {

using fmt::format;

// A single number fills at most this many elements, so that short text cannot ask for much memory.
// A larger constant of one value is a scalar and a broadcast. Longer lists are written as bytes.
constexpr int64_t kMaxListed = 64;

// Whether all elements have a decimal text. A NaN with a sign or a payload has none.
bool has_decimal_text(const HostTensor& tensor) {
  if (!is_floating(tensor.dtype())) return true;
  for (int64_t i = 0; i < tensor.numel(); ++i)
    if (constant_bits(tensor.dtype(), tensor.get_double(i)) != tensor.get_bits(i)) return false;
  return true;
}

bool is_uniform(const HostTensor& tensor) {
  for (int64_t i = 1; i < tensor.numel(); ++i)
    if (tensor.get_bits(i) != tensor.get_bits(0)) return false;
  return tensor.numel() > 0;
}

std::string list_text(const HostTensor& tensor, size_t axis, int64_t& next) {
  std::string text = "[";
  for (int64_t i = 0; i < tensor.shape()[axis]; ++i) {
    if (i) text += ", ";
    text += axis + 1 == tensor.shape().size() ? tensor.element_text(next++)
                                              : list_text(tensor, axis + 1, next);
  }
  return text + "]";
}

std::string hex_text(const HostTensor& tensor) {
  std::string text = "hex\"";
  for (size_t i = 0; i < tensor.size_bytes(); ++i)
    text += format("{:02x}", static_cast<unsigned>(tensor.data()[i]));
  return text + "\"";
}

class ConstantParser {
 public:
  ConstantParser(Scanner& scanner, const TensorType& type) : scanner_(scanner), dtype_(type.dtype) {
    if (!type.shape.is_static())
      scanner_.fail_here(format("a constant cannot have the symbolic type {}", type.to_string()));
    dims_ = type.shape.static_dims();
    numel_ = checked_numel(dims_);
  }

  HostTensor parse() {
    if (scanner_.accept("hex")) return from_hex();
    if (scanner_.at("[")) {
      scanner_.next();
      if (scanner_.at("["))
        nested(0);
      else
        flat();
      return from_elements();
    }
    const uint64_t bits = element();
    if (numel_ > kMaxListed)
      scanner_.fail_here(
          format("one number can fill at most {} elements, not {}; use a constant of rank 0 and "
                 "broadcast it",
                 kMaxListed, numel_));
    elements_.assign(static_cast<size_t>(numel_), bits);
    return from_elements();
  }

 private:
  uint64_t element() {
    if (dtype_ == DType::Bool) {
      if (scanner_.accept("true")) return 1;
      scanner_.expect("false");
      return 0;
    }
    if (is_floating(dtype_)) return constant_bits(dtype_, scanner_.expect_number());
    const auto [negative, magnitude] = scanner_.expect_whole_number();
    const auto bits = integer_bits(dtype_, negative, magnitude);
    if (!bits)
      scanner_.fail_here(format("{}{} before this is not a value of {}", negative ? "-" : "",
                                magnitude, name(dtype_)));
    return *bits;
  }

  // Reads what follows "[", up to and including "]".
  int64_t flat() {
    int64_t count = 0;
    while (!scanner_.accept("]")) {
      if (count++) scanner_.expect(",");
      elements_.push_back(element());
    }
    return count;
  }

  // Types limit the rank, which limits the depth of the recursion.
  void nested(size_t axis) {
    int64_t count = 0;
    if (axis + 1 >= dims_.size()) {
      count = flat();
    } else {
      while (!scanner_.accept("]")) {
        if (count++) scanner_.expect(",");
        scanner_.expect("[");
        nested(axis + 1);
      }
    }
    if (axis >= dims_.size() || count != dims_[axis])
      scanner_.fail_here(format(
          "the list before this has {} elements, which is not the extent of axis {}", count, axis));
  }

  HostTensor from_elements() {
    if (static_cast<int64_t>(elements_.size()) != numel_)
      scanner_.fail_here(
          format("{} elements stand before this, but the type has {}", elements_.size(), numel_));
    HostTensor tensor(dtype_, dims_);
    for (size_t i = 0; i < elements_.size(); ++i)
      tensor.set_bits(static_cast<int64_t>(i), elements_[i]);
    return tensor;
  }

  HostTensor from_hex() {
    const std::string_view text = scanner_.expect_string();
    const auto digits = static_cast<int64_t>(text.size());
    if (digits % 2 != 0 || digits / 2 % static_cast<int64_t>(size_of(dtype_)) != 0 ||
        digits / 2 / static_cast<int64_t>(size_of(dtype_)) != numel_)
      scanner_.fail_here(
          format("{} hexadecimal digits stand before this, but {} elements of {} need {} each",
                 digits, numel_, name(dtype_), 2 * size_of(dtype_)));
    HostTensor tensor(dtype_, dims_);
    for (size_t i = 0; i < text.size(); ++i) {
      const int digit = hex_digit(text[i]);
      std::byte& byte = tensor.data()[i / 2];
      byte = (byte << 4) | static_cast<std::byte>(digit);
    }
    if (dtype_ == DType::Bool)
      for (int64_t i = 0; i < numel_; ++i)
        if (tensor.get_bits(i) > 1) scanner_.fail_here("a bool before this is neither 00 nor 01");
    return tensor;
  }

  int hex_digit(char c) const {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    scanner_.fail_here("the text before this has characters other than 0-9 and a-f");
  }

  Scanner& scanner_;
  DType dtype_;
  std::vector<int64_t> dims_;
  int64_t numel_ = 0;
  std::vector<uint64_t> elements_;
};

}  // namespace

std::string constant_text(const HostTensor& tensor) {
  if (tensor.numel() == 0) return "[]";
  if (tensor.numel() > kMaxListed || !has_decimal_text(tensor)) return hex_text(tensor);
  if (is_uniform(tensor)) return tensor.element_text(0);
  int64_t next = 0;
  return list_text(tensor, 0, next);
}

HostTensor parse_constant(Scanner& scanner, const TensorType& type) {
  return ConstantParser(scanner, type).parse();
}

}  // namespace braze
