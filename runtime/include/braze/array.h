// array.h — Array: a tensor value on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/device.h"
#include "braze/dtype.h"
#include "braze/error.h"
#include "braze/half.h"
#include "braze/stream.h"

namespace braze {

class HostTensor;

template <>
struct DTypeOf<float16> {
  static constexpr DType value = DType::F16;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::BF16;
};

/// Memory of the host application's that an Array shall lie over.
struct ForeignMemory {
  void* data = nullptr;               ///< the first element
  DType dtype = DType::F32;           ///< of the elements; bools are bytes of 0 or 1
  std::vector<int64_t> shape;         ///< extents, outermost first
  std::vector<int64_t> strides = {};  ///< in elements, one an axis; empty: dense and row-major
  /// "cpu": the host's memory. "cuda:1": that GPU's.
  Device device = {};
  /// Called once, on any thread, when no array and no work that is under way needs the memory any
  /// more; for a failure to make the array too. May be empty.
  std::function<void()> release = {};
  /// False: InvalidArgument where the memory could only be copied.
  bool may_copy = true;
};

/// A dense row-major tensor on one device. A cheap handle: copies share the memory, which is never
/// written after it became visible. Results of compiled functions may still be computing; reading
/// waits, and rethrows a failure of the computation. Thread-safe to read.
///
/// An Array that was donated to a call is dead: using it is an error that names the call.
class Array {
 public:
  /// An empty handle; using it is an error.
  Array() = default;

  /// Copies `values` (row-major, as many as the shape has elements) to `device`.
  template <class T>
  static Array from(std::span<const T> values, std::vector<int64_t> shape,
                    const Device& device = default_device()) {
    return from_bytes(std::as_bytes(values), DTypeOf<T>::value, std::move(shape), device);
  }
  template <class T>
  static Array from(const std::vector<T>& values, std::vector<int64_t> shape,
                    const Device& device = default_device()) {
    return from(std::span<const T>(values), std::move(shape), device);
  }
  /// The same by their bytes, in the host's order. Of bool any byte but 0 is true.
  static Array from_bytes(std::span<const std::byte> bytes, DType dtype, std::vector<int64_t> shape,
                          const Device& device = default_device());
  static Array from_host(const HostTensor& value, const Device& device = default_device());

  /// An array over memory of the host application's, which must stay as it is until it is released.
  /// On a GPU it is ready where this thread's current stream has come to (StreamGuard). Memory that
  /// is strided, or not aligned to 64 bytes, is copied, and a line of the log says so; strided
  /// memory of a GPU is an InvalidArgument, as is memory that is not on the device. A call cannot
  /// take the array over (donation).
  static Array borrow(ForeignMemory memory);
  /// A copy of the beginning of pinned memory, which the device makes while the host goes on, in
  /// this thread's current stream.
  static Array from_pinned(const PinnedMemory& memory, DType dtype, std::vector<int64_t> shape,
                           const Device& device = default_device());

  DType dtype() const;                              ///< of the elements
  const std::vector<int64_t>& shape() const;        ///< extents, outermost first
  int64_t numel() const;                            ///< number of elements
  size_t size_bytes() const;                        ///< numel() times the size of an element
  Device device() const;                            ///< where the values are
  bool valid() const { return state_ != nullptr; }  ///< not default-constructed

  /// The same value on another device; this array itself if it is there already.
  Array to(const Device& device) const;
  /// The elements in row-major order. InvalidArgument if T is not the dtype.
  template <class T>
  std::vector<T> to_vector() const {
    check_dtype(DTypeOf<T>::value);
    std::vector<T> out(static_cast<size_t>(numel()));
    copy_to_host(std::as_writable_bytes(std::span<T>(out)));
    return out;
  }
  /// The value of a one-element array, as double.
  double item() const;
  /// Copies all bytes; `out` has exactly size_bytes().
  void copy_to_host(std::span<std::byte> out) const;
  HostTensor to_host() const;  ///< waits, and copies; for the interpreters
  /// Copies all bytes to the beginning of `memory` once the value is computed, while the host goes
  /// on; the event tells when that is complete.
  Event copy_to_pinned(const PinnedMemory& memory) const;

  /// Where the elements are, for the host application to read. On a GPU they are there for this
  /// thread's current stream, and for others behind an event of it. Good as long as the array and
  /// until it is donated; what reads it in a stream must be complete before the array goes.
  const void* data() const;

  /// Blocks until the value is computed.
  void wait() const;

  /// Values, shape, dtype and device for people; long arrays are elided.
  std::string to_string() const;

  struct State;  // runtime/memory/array_state.h
  explicit Array(std::shared_ptr<State> state) : state_(std::move(state)) {}  ///< for Braze itself
  const std::shared_ptr<State>& state() const { return state_; }              ///< for Braze itself

 private:
  void check_dtype(DType dtype) const;
  std::shared_ptr<State> state_;
};

template <>
std::vector<bool> Array::to_vector<bool>() const;  ///< one bool an element

std::ostream& operator<<(std::ostream& out, const Array& array);

}  // namespace braze
