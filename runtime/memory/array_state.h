// array_state.h — the state to which an Array handle refers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "braze/array.h"
#include "runtime/devices/driver.h"

namespace braze {

/// The pool number of copies to the host, which have their own stream.
inline constexpr uint32_t kCopiesOutPool = UINT32_MAX;

namespace codes {
inline constexpr Code kEmptyArray{"empty-array", ErrorKind::InvalidArgument,
                                  "An Array handle that holds no array was used."};
inline constexpr Code kDonatedArray{"donated-array", ErrorKind::InvalidArgument,
                                    "An array was used after it was donated to a call."};
inline constexpr Code kArrayType{
    "array-type", ErrorKind::InvalidArgument,
    "An array does not have the dtype, shape or size that was asked for."};
inline constexpr Code kForeignMemory{"foreign-memory", ErrorKind::InvalidArgument,
                                     "Memory of the host program cannot be used for an array."};
inline constexpr Code kForeignDonated{
    "foreign-donated", ErrorKind::InvalidArgument,
    "An array over borrowed or exported memory was donated to a call."};
}  // namespace codes

/// Everything except `buffer` and the donation is fixed when the State is made.
///
/// A donation moves the memory to another State, which overwrites it. The admission to the device's
/// work queue determines the order of calls and donations. Pins keep a donation from overwriting
/// memory that is being read. A reader on the host first pins the state and then checks `donated`.
/// A call pins the states that it reads when it is admitted, and releases them when it is in its
/// stream. A donation sets `donated`, and the call that overwrites the memory waits until there is
/// no pin. No circular wait is possible: a reader waits for the value, which is computed before
/// that call.
struct Array::State {
  /// The last use of the memory so far in a stream other than its own.
  struct Use {
    uint32_t pool;  ///< of the stream
    std::shared_ptr<Fence> fence;
  };

  /// `data` belongs to the buffer, or to a buffer that comes later, by donation.
  State(DType dtype, std::vector<int64_t> shape, DeviceDriver& driver, std::byte* data,
        Buffer buffer, std::shared_ptr<Work> ready);

  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const DType dtype;
  const std::vector<int64_t> shape;
  const int64_t numel;
  DeviceDriver& driver;
  std::byte* const data;
  const std::shared_ptr<Work> ready;  ///< null if the value existed from the beginning

  std::shared_ptr<const void> owner;  ///< owner of memory that is not in a buffer
  /// The stream that owns the memory; null: the main stream. Set before others see the array.
  StreamRef home;
  StreamRef made_in;      ///< the stream that makes the value; the main stream if `ready` is null
  std::vector<Use> uses;  ///< guarded by the driver's uses_mutex()
  Buffer buffer;          ///< guarded by the stream's submissions
  std::shared_ptr<const std::string> taken_by;  ///< set before `donated`: the call
  std::atomic<bool> donated{false};
  /// The number of receivers to which the array was exported (dlpack.h). Such an array must not be
  /// donated. `lent` and `donated` are changed under the driver's uses_mutex(), after a check of
  /// the other one.
  std::atomic<int> lent{0};
  std::atomic<int> pins{0};

  size_t size_bytes() const { return static_cast<size_t>(numel) * size_of(dtype); }
  /// "f32[3, 4]".
  std::string type_text() const;
  /// Throws kDonatedArray if donated.
  void check_alive() const;
  /// Waits until the work that makes the value has been executed, and rethrows its failure. The
  /// value may still be under computation in the device's own queue; copies of it come after that.
  void wait() const;
  /// Notes that a stream uses the memory until `fence`.
  void add_use(uint32_t pool, std::shared_ptr<Fence> fence);
  std::vector<Use> uses_so_far();
  /// Makes later work in `stream` come after the work that makes the value. That work must already
  /// have been put into its own stream.
  void order(DeviceStream* stream) const;
  void pin() noexcept { pins.fetch_add(1); }
  /// Removes a pin, and notifies waiting threads if it was the last one.
  void unpin() noexcept {
    if (pins.fetch_sub(1) == 1) pins.notify_all();
  }
  /// Blocks until there is no pin.
  void await_readers() const;
  /// The value's fence in the device's own queue; null if there is none.
  Fence* fence() const { return ready ? ready->fence().get() : nullptr; }
};

/// Keeps a computed value from being overwritten while it is read.
class ArrayPin {
 public:
  /// Waits for the value, as State::wait does.
  explicit ArrayPin(Array::State& state);
  ~ArrayPin();
  ArrayPin(const ArrayPin&) = delete;
  ArrayPin& operator=(const ArrayPin&) = delete;

 private:
  Array::State& state_;
};

/// Work that consists of everything in the device's own queue before `fence`.
class Submitted : public Work {
 public:
  explicit Submitted(std::shared_ptr<Fence> fence) {
    fence_ = std::move(fence);
    run();
  }

 protected:
  void execute() override {}
};

/// An array of uninitialised memory. The caller fills it before others see it.
Array make_array(DType dtype, std::vector<int64_t> shape, const Device& device, const Label& label);

/// An array over host memory, aligned to 64 bytes, on a device whose memory is that of the host.
/// `owner` keeps the memory alive, and nothing writes to it. Donating the array is an error.
Array borrow_array(DType dtype, std::vector<int64_t> shape, const Device& device,
                   std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

std::string type_text(DType dtype, std::span<const int64_t> shape);

}  // namespace braze
