// allocator.h — the memory of one device: buffers, and the allocator that keeps freed buffers for
// reuse.
//
// Sizes are rounded up: to multiples of 64 up to 1 KiB, then to eight sizes in each octave, and
// from 16 MiB on to multiples of 2 MiB. A freed block of up to 1 MiB is reused for requests of its
// size. A larger block is also reused for smaller requests: it is divided, and neighbours that are
// free become one block again. Reused memory is not cleared. Statistics count whole blocks, so they
// show how much memory the process holds.
//
// The cache of host memory is limited. Used and cached memory together may reach the greatest
// amount that was in use within the last few thousand requests, plus a quarter of that, plus 64
// MiB. Memory beyond that is returned to the system, the oldest first. On a GPU, returning memory
// would make the GPU wait, so it happens only at a shortage or by `empty_cache`.
//
// Blocks belong to pools, one for each stream of the device. A block is reused only in its own
// pool, where the next use comes after the previous one. All pools have one limit, one set of
// statistics and one cache.
//
// Calls of the source are made without the lock. During a call its memory counts as held, so all
// threads together stay within the limit.
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
#include "ir/support/condition_variable.h"

namespace braze {

namespace codes {
inline constexpr Code kOutOfMemory{"out-of-memory", ErrorKind::ResourceExhausted,
                                   "A device has no memory left, or the limit set for it is met."};
}  // namespace codes

/// The purpose of a piece of memory, in the user's words; null is an array made by the user.
using Label = std::shared_ptr<const std::string>;

/// Where an allocator gets its memory. Thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Memory aligned to 64 bytes, or null.
  virtual std::byte* allocate(size_t size) = 0;
  virtual void free(std::byte* data, size_t size) noexcept = 0;
  /// Whether freeing is cheap, and parts of a block of more than 1 MiB, in multiples of 128 KiB,
  /// may be freed one by one. Otherwise blocks are freed as a whole, and only when memory is short.
  virtual bool frees_parts() const { return false; }
};

/// Memory of the host. Large blocks are aligned to pages and ask for huge pages, so that the first
/// access costs few page faults.
class HostMemory : public MemorySource {
 public:
  std::byte* allocate(size_t size) override;
  void free(std::byte* data, size_t size) noexcept override;
  bool frees_parts() const override { return true; }
};

class Allocator;

/// A member of the list into which it is linked, or the head of a list. Lists of blocks need no
/// memory, so freeing a block cannot fail.
template <class List>
struct Link {
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void insert_before(Link& other) {
    previous = other.previous;
    next = &other;
    previous->next = other.previous = this;
  }
  void unlink() {
    previous->next = next;
    next->previous = previous;
  }
  /// Makes a list of this member alone, which must be in no list.
  void stand_alone() { previous = next = this; }

  Link* previous = this;
  Link* next = this;
};

struct ByAge;   ///< blocks in use, or blocks in the cache, the oldest first
struct ByTurn;  ///< present calls of the source, in the order in which they began
struct BySize;  ///< free blocks of about one size; the one that was freed last comes first, because
                ///< it is most likely in a cache of the processor

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

  /// The address of the block; null for a buffer without bytes.
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
  /// `drain` completes the device's pending work, which may free memory.
  Allocator(std::string device, std::unique_ptr<MemorySource> source, std::function<void()> drain,
            std::optional<uint64_t> limit);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Uninitialised memory, aligned to 64 bytes. If memory is short, it returns cached memory to the
  /// system, then waits for pending work, and then throws ResourceExhausted with the largest live
  /// allocations.
  Buffer allocate(size_t bytes, const Label& label, uint32_t pool = 0);
  /// Moves the memory of `pool` to the main pool. Later work in the main stream must already come
  /// after all its uses.
  void give_to_main_pool(uint32_t pool);

  /// The bytes that a request takes, rounded up.
  static uint64_t block_size(uint64_t bytes);

  MemoryStats stats() const;
  /// Shows the live bytes on the timeline, as every change of them does.
  void trace_live() const;
  void empty_cache();
  void set_limit(std::optional<uint64_t> bytes);

  /// Fault injection for tests: from now on, the request after `served` others finds no memory,
  /// however often it tries. With nullopt, all requests are served again.
  void fail_request(std::optional<uint64_t> served);

 private:
  friend class Buffer;
  class SourceCall;
  static constexpr size_t kBins = 16 + 8 * 54;
  using Lock = std::unique_lock<std::mutex>;

  // Functions that receive a lock may release it and take it again.
  Buffer::Block* try_allocate(Lock& lock, size_t size, const Label& label, uint32_t pool);
  Buffer::Block* find(size_t size, uint32_t pool);
  Buffer::Block* take(Buffer::Block* block, size_t size);
  Buffer::Block* fetch(Lock& lock, size_t size, uint32_t pool);
  bool trim(Lock& lock, uint64_t most_cached);
  bool make_room(Lock& lock, size_t size);
  void await_source_calls(Lock& lock);
  uint64_t held() const;
  uint64_t most_held(uint64_t live) const;
  bool must_fail();
  void count_live() const noexcept;
  void trace_retry(std::string_view what, size_t size, const Label& label) const;
  void release(Buffer::Block* block) noexcept;
  void put_into_cache(Buffer::Block* block);
  void take_out_of_cache(Buffer::Block* block);
  [[noreturn]] void out_of_memory(size_t size, const Label& label) const;

  const std::string device_;
  const std::unique_ptr<MemorySource> source_;
  const std::function<void()> drain_;
  const bool frees_parts_;

  mutable std::mutex mutex_;
  std::optional<uint64_t> limit_;
  std::optional<uint64_t> served_before_failure_;
  std::array<Link<BySize>, kBins> bins_;
  Link<ByAge> live_, cached_;
  MemoryStats stats_;
  // The largest live_bytes within this window of requests and within the last one.
  uint64_t requests_in_window_ = 0, window_peak_ = 0, last_window_peak_ = 0;

  ConditionVariable source_call_ended_;
  Link<ByTurn> source_calls_;
  uint64_t source_calls_begun_ = 0;
  uint64_t bytes_under_way_ = 0;  // of those calls
};

}  // namespace braze
