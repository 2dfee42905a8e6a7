// allocator.h — memory of one device: buffers, and the allocator that keeps freed ones for reuse.
//
// Sizes are rounded up: to multiples of 64 up to 1 KiB, then to eight sizes an octave, and from
// 16 MiB on to multiples of 2 MiB. A freed block of up to 1 MiB serves later requests of its size.
// A larger one also serves smaller requests: it is cut, the rest stays free, and neighbours that
// are free become one block again. Reused memory is not cleared. Statistics count whole blocks, so
// that they are what the process holds.
//
// A cache of host memory is bounded: what was in use at once within the last few thousand requests,
// a quarter of that and 64 MiB are kept, and what is freed beyond goes back to the system, the
// oldest first. To give back memory of a GPU would make it wait, so that there only a shortage or
// `empty_cache` does.
//
// Blocks belong to pools, one for each stream of the device: a block serves again in its own only,
// where what comes next comes behind. The limit, the statistics and the cache are common.
//
// Memory is taken from the source and given back without the lock. Meanwhile it counts as held, so
// that threads together keep within a limit.
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

/// What a piece of memory is for, in the user's words; null is an array made by the user.
using Label = std::shared_ptr<const std::string>;

/// Where an allocator gets its memory. Thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Memory aligned to 64 bytes, or null.
  virtual std::byte* allocate(size_t size) = 0;
  virtual void free(std::byte* data, size_t size) noexcept = 0;
  /// Whether parts of a block of more than 1 MiB, in multiples of 128 KiB, may be freed one by one,
  /// and to free is cheap. Otherwise blocks are freed whole, and only when memory is short.
  virtual bool frees_parts() const { return false; }
};

/// Memory of the host. Large blocks are aligned to pages and ask for huge ones, so that the first
/// touch costs few page faults.
class HostMemory : public MemorySource {
 public:
  std::byte* allocate(size_t size) override;
  void free(std::byte* data, size_t size) noexcept override;
  bool frees_parts() const override { return true; }
};

class Allocator;

/// A member of the list that it is linked into, or the head of a list. Lists of blocks take no
/// memory, so that to free a block cannot fail.
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
  /// Makes a list of nothing else of what is in no list.
  void stand_alone() { previous = next = this; }

  Link* previous = this;
  Link* next = this;
};

struct ByAge;   ///< blocks in use, or those in the cache: the oldest first
struct ByTurn;  ///< calls of the source that are under way: the first begun first
struct BySize;  ///< free blocks of about one size: the last freed first, for it is the warmest

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
  Buffer allocate(size_t bytes, const Label& label, uint32_t pool = 0);
  /// What `pool` has becomes the main pool's, in whose order all its uses are by now.
  void give_to_main_pool(uint32_t pool);

  /// The bytes that a request takes, rounded up.
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
  class SourceCall;
  static constexpr size_t kBins = 16 + 8 * 54;
  using Lock = std::unique_lock<std::mutex>;

  // Those that get a lock may let go of it in between.
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
