// allocator.h — memory of one device: buffers, and the allocator that keeps freed ones for reuse.
//
// Sizes are rounded up to classes (multiples of 64 up to 1 KiB, then eight classes an octave), and
// a freed block serves any later request of its class. Reused memory is not cleared. Statistics
// count whole blocks, so that they are what the process holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "braze/device.h"
#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kOutOfMemory{"out-of-memory", ErrorKind::ResourceExhausted,
                                   "A device has no memory left, or the limit set for it is met."};
}  // namespace codes

/// What a piece of memory is for, in the user's words; null is an array made by the user.
using Label = std::shared_ptr<const std::string>;

/// Where an allocator gets its memory.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Memory aligned to 64 bytes, or null.
  virtual std::byte* allocate(size_t size) = 0;
  virtual void free(std::byte* data, size_t size) = 0;
};

/// Memory of the host. Large blocks are aligned to pages and ask for huge ones, so that the first
/// touch costs few page faults.
class HostMemory : public MemorySource {
 public:
  std::byte* allocate(size_t size) override;
  void free(std::byte* data, size_t size) override;
};

class Allocator;

/// Owns a block of memory on a device, or nothing.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Buffer();

  /// Null for a buffer of no bytes.
  std::byte* data() const;

 private:
  friend class Allocator;
  struct Block;
  explicit Buffer(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

/// Thread-safe. Must outlive its buffers.
class Allocator {
 public:
  /// `drain` finishes the device's pending work, which may free memory.
  Allocator(std::string device, std::unique_ptr<MemorySource> source, std::function<void()> drain,
            std::optional<uint64_t> limit);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Uninitialised memory, aligned to 64 bytes. When memory is short, returns what is cached to the
  /// system, then waits for pending work, and then throws ResourceExhausted with the largest live
  /// allocations.
  Buffer allocate(size_t bytes, const Label& label);

  /// The bytes that a request takes: its class.
  static uint64_t block_size(uint64_t bytes);

  MemoryStats stats() const;
  /// Shows the live bytes on the timeline, as every change of them does.
  void trace_live() const;
  void empty_cache();
  void set_limit(std::optional<uint64_t> bytes);

  /// Fault injection: of the requests from now on, the one behind `served` others finds no memory,
  /// however often it tries; nullopt: none.
  void fail_request(std::optional<uint64_t> served);

 private:
  friend class Buffer;
  static constexpr size_t kClasses = 16 + 8 * 54;

  Buffer::Block* try_allocate(size_t size, const Label& label);
  bool must_fail();
  void count_live() const;
  void trace_retry(std::string_view what, size_t size, const Label& label) const;
  void release(Buffer::Block* block);
  void link(Buffer::Block* block);
  void trim();
  [[noreturn]] void out_of_memory(size_t size, const Label& label) const;

  const std::string device_;
  const std::unique_ptr<MemorySource> source_;
  const std::function<void()> drain_;

  mutable std::mutex mutex_;
  std::optional<uint64_t> limit_;
  std::optional<uint64_t> served_before_failure_;
  std::array<std::vector<Buffer::Block*>, kClasses> free_;  // the last freed is the warmest
  Buffer::Block* live_ = nullptr;                           // list of all blocks in use
  MemoryStats stats_;
};

}  // namespace braze
