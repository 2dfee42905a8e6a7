// host_tensor.h — a tensor of plain bytes on the host, for interpreters, tests and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/dtype.h"
#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kNegativeExtent{"negative-extent", ErrorKind::InvalidArgument,
                                      "A shape has a negative extent."};
inline constexpr Code kTooLarge{"too-large", ErrorKind::ResourceExhausted,
                                "A tensor is larger than the memory for it."};
}  // namespace codes

/// A contiguous row-major tensor with value semantics. Its memory is aligned to 64 bytes and begins
/// as zeros; a tensor without elements has no memory.
class HostTensor {
 public:
  /// The empty state: no elements, until it is assigned. A moved-from tensor is in this state.
  HostTensor() = default;
  /// Throws ResourceExhausted if the size overflows or memory is short.
  HostTensor(DType dtype, std::vector<int64_t> shape);
  HostTensor(const HostTensor& other);
  HostTensor(HostTensor&& other) noexcept;
  HostTensor& operator=(HostTensor other) noexcept;

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t numel() const { return numel_; }
  size_t size_bytes() const { return static_cast<size_t>(numel_) * size_of(dtype_); }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data()), static_cast<size_t>(numel_)};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data()), static_cast<size_t>(numel_)};
  }

  /// Element `i`, in row-major order, as a wide type. get_double is exact for floats. get_int is
  /// exact for integers (u64 modulo 2^64); it truncates floats towards zero and saturates. Here and
  /// below, an `i` out of range is an internal error.
  double get_double(int64_t i) const;
  int64_t get_int(int64_t i) const;
  /// Stores a number. Floats are rounded once, integers are truncated and wrap, and a bool is true
  /// if the number is not 0.
  void set_double(int64_t i, double value);
  void set_int(int64_t i, int64_t value);
  /// The raw bits of element i.
  uint64_t get_bits(int64_t i) const;
  void set_bits(int64_t i, uint64_t bits);

  /// Whether dtype, shape and bits are equal. Every NaN equals every NaN.
  friend bool identical(const HostTensor& a, const HostTensor& b);
  /// The text of element i: "true", "-3", "0.1".
  std::string element_text(int64_t i) const;
  /// The text of all elements: "[[1, 2], [3, 4]]". Beyond `limit` elements, the middle is left out.
  std::string to_string(int64_t limit = 1000) const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  void allocate();
  std::byte* at(int64_t i);
  const std::byte* at(int64_t i) const;

  DType dtype_ = DType::F32;
  std::vector<int64_t> shape_;
  int64_t numel_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

/// The number of elements. Throws ResourceExhausted on overflow, and InvalidArgument for a negative
/// extent.
int64_t checked_numel(std::span<const int64_t> shape);

}  // namespace braze
