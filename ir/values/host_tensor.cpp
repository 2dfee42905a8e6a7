#include "ir/values/host_tensor.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ir/support/text.h"
#include "ir/values/elision.h"
#include "ir/values/half.h"

namespace braze {

namespace {

constexpr size_t kAlignment = 64;

std::string shape_text(std::span<const int64_t> shape) {
  return "[" + join(shape, ", ", [](int64_t d) { return fmt::format("{}", d); }) + "]";
}

/// Truncates towards zero, then takes the result modulo 2^64, as integers wrap. NaN and infinities
/// become 0.
int64_t wrap_to_int(double value) {
  if (!std::isfinite(value)) return 0;
  if (std::fabs(value) < 0x1p63) return static_cast<int64_t>(value);
  const double rest = std::fmod(std::trunc(value), 0x1p64);  // exact
  const auto magnitude = static_cast<uint64_t>(std::fabs(rest));
  return static_cast<int64_t>(rest < 0 ? 0 - magnitude : magnitude);
}

/// Truncates towards zero. Out of range, it gives the nearest integer of i64, and 0 for NaN.
int64_t saturate_to_int(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  if (value < -0x1p63) return INT64_MIN;
  return static_cast<int64_t>(value);
}

/// A double that any format of at most 51 bits rounds to the same number as `value`. It is rounded
/// to odd, so that the lost bits still decide a tie.
double for_one_rounding(int64_t value) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (-kExact <= value && value <= kExact) return static_cast<double>(value);
  constexpr int64_t kLost = (1 << 11) - 1;
  const int64_t odd = (value & kLost) ? kLost + 1 : 0;
  return static_cast<double>((value & ~kLost) | odd);
}

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

}  // namespace

int64_t checked_numel(std::span<const int64_t> shape) {
  for (const int64_t extent : shape) {
    if (extent < 0) {
      fail(codes::kNegativeExtent,
           fmt::format("the shape {} has a negative extent", shape_text(shape)));
    }
  }
  // If an extent is zero there are no elements, even if the other extents would overflow.
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
  }
  int64_t numel = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(numel, extent, &numel)) {
      fail(codes::kTooLarge,
           fmt::format("the shape {} has more than 2^63 elements", shape_text(shape)));
    }
  }
  return numel;
}

void HostTensor::Free::operator()(std::byte* p) const { std::free(p); }

HostTensor::HostTensor(DType dtype, std::vector<int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), numel_(checked_numel(shape_)) {
  allocate();
  if (data_) std::memset(data_.get(), 0, size_bytes());
}

HostTensor::HostTensor(const HostTensor& other)
    : dtype_(other.dtype_), shape_(other.shape_), numel_(other.numel_) {
  allocate();
  if (data_) std::memcpy(data_.get(), other.data_.get(), size_bytes());
}

HostTensor::HostTensor(HostTensor&& other) noexcept
    : dtype_(other.dtype_),
      shape_(std::move(other.shape_)),
      numel_(std::exchange(other.numel_, 0)),
      data_(std::move(other.data_)) {
  other.shape_.clear();
}

HostTensor& HostTensor::operator=(HostTensor other) noexcept {
  std::swap(dtype_, other.dtype_);
  std::swap(shape_, other.shape_);
  std::swap(numel_, other.numel_);
  std::swap(data_, other.data_);
  return *this;
}

void HostTensor::allocate() {
  if (numel_ == 0) return;
  size_t bytes = 0;
  void* memory = nullptr;
  // Half of the address space is more than any machine has, and leaves room for rounding up.
  if (!__builtin_mul_overflow(static_cast<size_t>(numel_), size_of(dtype_), &bytes) &&
      bytes <= static_cast<size_t>(PTRDIFF_MAX) - kAlignment) {
    memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  if (!memory) {
    fail(codes::kTooLarge, fmt::format("there is not enough memory for a host tensor {}{}",
                                       name(dtype_), shape_text(shape_)));
  }
  data_.reset(static_cast<std::byte*>(memory));
}

const std::byte* HostTensor::at(int64_t i) const {
  BRAZE_CHECK(0 <= i && i < numel_,
              fmt::format("element {} is outside of a tensor with {} elements", i, numel_));
  return data_.get() + static_cast<size_t>(i) * size_of(dtype_);
}

std::byte* HostTensor::at(int64_t i) { return const_cast<std::byte*>(std::as_const(*this).at(i)); }

double HostTensor::get_double(int64_t i) const {
  const std::byte* p = at(i);
  return visit_dtype(dtype_, [&]<DType D>() -> double {
    if constexpr (D == DType::F8E4M3)
      return f8e4m3_to_float(load<uint8_t>(p));
    else if constexpr (D == DType::F8E5M2)
      return f8e5m2_to_float(load<uint8_t>(p));
    else if constexpr (D == DType::Bool)
      return load<uint8_t>(p) != 0;
    else  // float16 and bfloat16 convert exactly
      return static_cast<double>(load<ElementOf<D>>(p));
  });
}

int64_t HostTensor::get_int(int64_t i) const {
  const std::byte* p = at(i);
  return visit_dtype(dtype_, [&]<DType D>() -> int64_t {
    if constexpr (is_integer(D))
      return static_cast<int64_t>(load<ElementOf<D>>(p));
    else
      return saturate_to_int(get_double(i));
  });
}

void HostTensor::set_double(int64_t i, double value) {
  std::byte* p = at(i);
  visit_dtype(dtype_, [&]<DType D>() {
    if constexpr (D == DType::Bool)
      store<uint8_t>(p, value != 0);
    else if constexpr (D == DType::F16)
      store(p, double_to_f16(value));
    else if constexpr (D == DType::BF16)
      store(p, double_to_bf16(value));
    else if constexpr (D == DType::F8E4M3)
      store(p, double_to_f8e4m3(value));
    else if constexpr (D == DType::F8E5M2)
      store(p, double_to_f8e5m2(value));
    else if constexpr (is_floating(D))
      store(p, static_cast<ElementOf<D>>(value));
    else
      set_int(i, wrap_to_int(value));
  });
}

void HostTensor::set_int(int64_t i, int64_t value) {
  std::byte* p = at(i);
  visit_dtype(dtype_, [&]<DType D>() {
    if constexpr (D == DType::Bool)
      store<uint8_t>(p, value != 0);
    else if constexpr (is_short_float(D))
      set_double(i, for_one_rounding(value));
    else
      store(p, static_cast<ElementOf<D>>(value));
  });
}

uint64_t HostTensor::get_bits(int64_t i) const {
  uint64_t bits = 0;
  std::memcpy(&bits, at(i), size_of(dtype_));  // hosts are little endian
  return bits;
}

void HostTensor::set_bits(int64_t i, uint64_t bits) { std::memcpy(at(i), &bits, size_of(dtype_)); }

bool identical(const HostTensor& a, const HostTensor& b) {
  if (a.dtype_ != b.dtype_ || a.shape_ != b.shape_ || a.numel_ != b.numel_) return false;
  if (a.numel_ == 0 || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return true;
  if (!is_floating(a.dtype_)) return false;
  for (int64_t i = 0; i < a.numel_; ++i) {
    if (a.get_bits(i) == b.get_bits(i)) continue;
    if (!std::isnan(a.get_double(i)) || !std::isnan(b.get_double(i))) return false;
  }
  return true;
}

std::string HostTensor::element_text(int64_t i) const {
  switch (info(dtype_).kind) {
    case NumberKind::Boolean:
      return get_int(i) ? "true" : "false";
    case NumberKind::Signed:
      return std::to_string(get_int(i));
    case NumberKind::Unsigned:
      return std::to_string(static_cast<uint64_t>(get_int(i)));
    default:
      break;
  }
  return dtype_ == DType::F64 ? number_text(get_double(i))
                              : float_text(static_cast<float>(get_double(i)));
}

std::string HostTensor::to_string(int64_t limit) const {
  if (!data_ && shape_.empty()) return "no tensor";
  // Beyond the limit, only both ends of each axis are shown. The budget also limits the text of
  // tensors with many short axes.
  constexpr int64_t kEnds = 3;
  const bool elide = shown_items(shape_) > limit;
  int64_t budget = limit;
  std::string out;
  const auto write = [&](const auto& self, size_t axis, int64_t first, int64_t count) -> void {
    if (axis == shape_.size()) {
      --budget;
      out += element_text(first);
      return;
    }
    const int64_t extent = shape_[axis];
    if (extent == 0) --budget;
    const int64_t stride = extent ? count / extent : 0;
    out += '[';
    for (int64_t i = 0; i < extent; ++i) {
      if (i > 0) out += ", ";
      if (elide && ((i == kEnds && extent > 2 * kEnds) || budget <= 0)) {
        out += "...";
        if (budget <= 0) break;
        i = extent - kEnds;
        out += ", ";
      }
      self(self, axis + 1, first + i * stride, stride);
    }
    out += ']';
  };
  write(write, 0, 0, numel_);
  return out;
}

}  // namespace braze
