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
#include "braze/stream.h"

namespace braze {

class HostTensor;
class Mesh;
class Sharding;

/// Memory of the host program that an Array is made over.
struct ForeignMemory {
  void* data = nullptr;        ///< the first element
  DType dtype = DType::F32;    ///< the element type; a bool is a byte, 0 if false
  std::vector<int64_t> shape;  ///< extents, outermost first
  std::vector<int64_t> strides =
      {};  ///< in elements, one for each axis; empty: dense and row-major
  /// "cpu": host memory. "cuda:1": memory of that GPU.
  Device device = {};
  /// It is called once, on any thread, when no array and no running work needs the memory any more.
  /// It is also called if the array cannot be made. It may be empty.
  std::function<void()> release = {};
  /// If false, memory that Braze would have to copy is rejected with InvalidArgument.
  bool may_copy = true;
};

/// A dense row-major tensor on one device. It is a cheap handle: copies share the memory, and
/// nothing writes to the memory after the array became visible. Results of compiled functions may
/// still be under computation. Reading waits, and throws if the computation failed. Several threads
/// may read at once.
///
/// An Array may be spread over the devices of a mesh (mesh.h). It then has a shard on each device,
/// and reading it gives the whole value. Functions made by `spmd` and `data_parallel` take and
/// return such arrays.
///
/// An Array that was donated to a call is dead. Using it is an error that names the call.
class Array {
 public:
  /// An empty handle; using it is an error.
  Array() = default;

  /// Copies `values` to `device`, in row-major order. There must be as many values as `shape` has
  /// elements, else InvalidArgument.
  template <class T>
  static Array from(std::span<const T> values, std::vector<int64_t> shape,
                    const Device& device = default_device()) {
    return from_bytes(std::as_bytes(values), DTypeOf<T>::value, std::move(shape), device);
  }
  /// The same for a vector.
  template <class T>
  static Array from(const std::vector<T>& values, std::vector<int64_t> shape,
                    const Device& device = default_device()) {
    return from(std::span<const T>(values), std::move(shape), device);
  }
  /// The same from the bytes of the elements, in the byte order of the host. For bool, every byte
  /// except 0 means true. InvalidArgument if the number of bytes does not fit.
  static Array from_bytes(std::span<const std::byte> bytes, DType dtype, std::vector<int64_t> shape,
                          const Device& device = default_device());
  /// A copy of a tensor of the interpreters.
  static Array from_host(const HostTensor& value, const Device& device = default_device());

  /// An array over memory of the host program, which must not change until it is released. On a GPU
  /// the memory must be ready in the order of this thread's current stream (StreamGuard). Memory
  /// that is strided, or not aligned to 64 bytes, is copied, and a line of the log says so. Memory
  /// that is not on the device is an InvalidArgument, and so is memory of a GPU that is strided
  /// along more than 16 axes. A call cannot overwrite the array (donation).
  static Array borrow(ForeignMemory memory);
  /// A copy of the beginning of pinned memory. The device makes it in this thread's current stream,
  /// while the host continues.
  static Array from_pinned(const PinnedMemory& memory, DType dtype, std::vector<int64_t> shape,
                           const Device& device = default_device());

  DType dtype() const;                        ///< the element type
  const std::vector<int64_t>& shape() const;  ///< extents, outermost first
  int64_t numel() const;                      ///< number of elements
  size_t size_bytes() const;                  ///< numel() times the size of an element
  Device device() const;                      ///< where the elements are
  /// False if default-constructed.
  bool valid() const { return state_ != nullptr || spread_ != nullptr; }

  /// The same value on another device. Returns this array if it is on that device already.
  Array to(const Device& device) const;
  /// The same value spread over a mesh. InvalidArgument, with the fix, if an axis of the mesh does
  /// not divide the extent that it cuts.
  Array to(const Mesh& mesh, const Sharding& sharding) const;
  bool is_spread() const { return spread_ != nullptr; }  ///< whether it is spread over a mesh
  /// The shards on those devices of the mesh that belong to this process, in the order of the
  /// devices. For an array on one device, the array itself.
  std::vector<Array> shards() const;
  /// How it is spread over its mesh; replicated if it is on one device.
  const Sharding& sharding() const;
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
  /// Copies all bytes. `out` must have exactly size_bytes() bytes.
  void copy_to_host(std::span<std::byte> out) const;
  HostTensor to_host() const;  ///< waits and copies; for the interpreters
  /// Copies all bytes to the beginning of `memory` when the value is computed, while the host
  /// continues. The event marks the end of the copy.
  Event copy_to_pinned(const PinnedMemory& memory) const;

  /// The address of the elements, for the host program to read. On a GPU they are ready for this
  /// thread's current stream, and for other streams that wait for an event of it. The address is
  /// valid as long as the array lives and is not donated. Work in a stream that reads it must be
  /// complete before the array dies.
  const void* data() const;

  /// Blocks until the value is computed.
  void wait() const;

  /// Values, shape, dtype and device as text. Long arrays are abbreviated.
  std::string to_string() const;

  struct State;  // runtime/memory/array_state.h
  explicit Array(std::shared_ptr<State> state) : state_(std::move(state)) {}  ///< for Braze itself
  struct Spread;  ///< for Braze itself (runtime/mesh/mesh_state.h)
  explicit Array(std::shared_ptr<const Spread> spread) : spread_(std::move(spread)) {}
  /// For Braze itself: the state of an array on one device. InvalidArgument if it is spread over a
  /// mesh.
  const std::shared_ptr<State>& state() const {
    if (spread_) fail_spread();
    return state_;
  }
  const std::shared_ptr<const Spread>& spread() const { return spread_; }  ///< for Braze itself

 private:
  void check_dtype(DType dtype) const;
  [[noreturn]] void fail_spread() const;
  std::shared_ptr<State> state_;
  std::shared_ptr<const Spread> spread_;  // at most one of state_ and spread_ is set
};

template <>
std::vector<bool> Array::to_vector<bool>() const;  ///< one bool for each element

/// Prints to_string(). Waits for the value.
std::ostream& operator<<(std::ostream& out, const Array& array);

}  // namespace braze
