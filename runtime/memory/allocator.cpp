#include "runtime/memory/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "ir/support/trace.h"

namespace braze {

namespace {

constexpr size_t kSmallest = 64;          // one cache line
constexpr size_t kFine = 1024;            // sizes up to here are multiples of a cache line
constexpr size_t kFromSystem = 64 << 10;  // blocks from here on are whole pages
constexpr size_t kWhole = 1 << 20;        // larger blocks may be divided
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kPage = 4096;

constexpr uint64_t kWindow = 4096;          // requests: several steps of a large training loop
constexpr uint64_t kAlwaysKept = 64 << 20;  // a smaller cache is not worth giving back

constexpr size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

/// The number of the list that has the free blocks of a size. Blocks of up to kWhole have one list
/// for each size. Of any two lists, the later one has the larger blocks.
size_t bin_of(size_t size) {
  if (size <= kFine) return size / kSmallest - 1;
  const size_t octave = std::bit_width(size) - 1;  // size is in [2^octave, 2^(octave + 1))
  const size_t eighth = (size - (size_t{1} << octave)) >> (octave - 3);
  return kFine / kSmallest + (octave - std::bit_width(kFine - 1)) * 8 + eighth;
}

}  // namespace

std::byte* HostMemory::allocate(size_t size) {
  if (size < kFromSystem) return static_cast<std::byte*>(std::aligned_alloc(kSmallest, size));
  const bool huge = size >= kHugePage;
  const size_t mapped = round_up(size, kPage) + (huge ? kHugePage : 0);
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(address);
  if (!huge) return begin;
  // Keeps the part of the mapping that begins at a huge page.
  const size_t before =
      round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  const size_t after = kHugePage - before;
  if (before > 0) munmap(begin, before);
  if (after > 0) munmap(begin + mapped - after, after);
  madvise(begin + before, mapped - kHugePage, MADV_HUGEPAGE);
  return begin + before;
}

void HostMemory::free(std::byte* data, size_t size) noexcept {
  if (size < kFromSystem) return std::free(data);
  const size_t mapped = round_up(size, kPage);
  // A hole can need one mapping more than the system allows. Then the addresses stay reserved.
  if (munmap(data, mapped) != 0) madvise(data, mapped, MADV_DONTNEED);
}

struct Buffer::Block : Link<ByAge>, Link<BySize> {
  Block(Allocator* owner_, std::byte* data_, size_t size_, uint32_t pool_)
      : owner(owner_), data(data_), size(size_), pool(pool_) {}

  using Link<ByAge>::insert_before;
  using Link<BySize>::insert_before;
  using Link<BySize>::stand_alone;

  Allocator* owner;
  std::byte* data;
  size_t size;
  uint32_t pool;  // the same for all parts of a piece of the source's memory
  Label label;
  bool is_free = false;
  // The parts of the same piece of the source's memory that lie next to it.
  Block* before = nullptr;
  Block* after = nullptr;
};

Buffer::~Buffer() {
  // A forked child does not use the parent's devices, whose locks may be held for ever.
  if (block_ && !is_forked()) block_->owner->release(block_);
}

std::byte* Buffer::data() const { return block_ ? block_->data : nullptr; }

/// Notes a call of the source, which is made without the lock. The bytes that the call allocates or
/// frees count as held.
class Allocator::SourceCall : public Link<ByTurn> {
 public:
  SourceCall(Allocator& allocator, Lock& lock, uint64_t bytes)
      : number(allocator.source_calls_begun_++), allocator_(allocator), lock_(lock), bytes_(bytes) {
    insert_before(allocator_.source_calls_);
    allocator_.bytes_under_way_ += bytes_;
    lock_.unlock();
  }
  ~SourceCall() {
    lock_.lock();
    unlink();
    allocator_.bytes_under_way_ -= bytes_;
    allocator_.source_call_ended_.notify_all();
  }

  const uint64_t number;

 private:
  Allocator& allocator_;
  Lock& lock_;
  const uint64_t bytes_;
};

Allocator::Allocator(std::string device, std::unique_ptr<MemorySource> source,
                     std::function<void()> drain, std::optional<uint64_t> limit)
    : device_(std::move(device)),
      source_(std::move(source)),
      drain_(std::move(drain)),
      frees_parts_(source_->frees_parts()),
      limit_(limit) {}

Allocator::~Allocator() { empty_cache(); }

uint64_t Allocator::block_size(uint64_t bytes) {
  if (bytes <= kFine) return round_up(bytes, kSmallest);
  const int octave = std::bit_width(bytes - 1) - 1;
  return round_up(bytes, std::min<uint64_t>(uint64_t{1} << (octave - 3), kHugePage));
}

Buffer Allocator::allocate(size_t bytes, const Label& label, uint32_t pool) {
  if (bytes == 0) return {};
  if (bytes > PTRDIFF_MAX / 2) out_of_memory(bytes, label);
  const size_t size = block_size(bytes);
  Lock lock(mutex_);
  const bool fails = must_fail();
  const auto attempt = [&] { return fails ? nullptr : try_allocate(lock, size, label, pool); };
  if (Buffer::Block* block = attempt()) return Buffer(block);
  lock.unlock();
  trace_retry("memory is short: cache emptied", size, label);
  empty_cache();
  lock.lock();
  if (Buffer::Block* block = attempt()) return Buffer(block);
  lock.unlock();
  trace_retry("memory is short: work awaited", size, label);
  drain_();
  empty_cache();
  lock.lock();
  if (Buffer::Block* block = attempt()) return Buffer(block);
  lock.unlock();
  out_of_memory(size, label);
}

bool Allocator::must_fail() {
  if (!served_before_failure_) [[likely]]
    return false;
  if (*served_before_failure_ > 0) {
    --*served_before_failure_;
    return false;
  }
  served_before_failure_.reset();
  return true;
}

uint64_t Allocator::held() const {
  return stats_.live_bytes + stats_.cached_bytes + bytes_under_way_;
}

/// With `live` bytes in use, the limit for the sum of used and cached bytes. It applies where
/// freeing is cheap.
uint64_t Allocator::most_held(uint64_t live) const {
  if (!frees_parts_) return UINT64_MAX;
  const uint64_t peak = std::max({window_peak_, last_window_peak_, live});
  return peak + peak / 4 + kAlwaysKept;
}

Buffer::Block* Allocator::try_allocate(Lock& lock, size_t size, const Label& label, uint32_t pool) {
  Buffer::Block* block = find(size, pool);
  if (block && (!limit_ || held() <= *limit_)) {
    block = take(block, size);
    ++stats_.cache_hits;
  } else {
    block = fetch(lock, size, pool);
    if (!block) return nullptr;
  }
  block->label = label;
  block->insert_before(live_);
  ++stats_.allocations;
  stats_.live_bytes += size;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  if (++requests_in_window_ == kWindow) {
    requests_in_window_ = 0;
    last_window_peak_ = std::exchange(window_peak_, 0);
  }
  window_peak_ = std::max(window_peak_, stats_.live_bytes);
  if (trace::is_on()) [[unlikely]]
    count_live();
  return block;
}

/// The smallest free block of the pool in the first list that has one which is large enough, or
/// null.
Buffer::Block* Allocator::find(size_t size, uint32_t pool) {
  const size_t last = size <= kWhole ? bin_of(size) : kBins - 1;
  for (size_t bin = bin_of(size); bin <= last; ++bin) {
    Buffer::Block* best = nullptr;
    for (Link<BySize>* link = bins_[bin].next; link != &bins_[bin]; link = link->next) {
      auto* const block = static_cast<Buffer::Block*>(link);
      if (block->pool != pool) continue;
      if (block->size == size) return block;
      if (block->size > size && (!best || block->size < best->size)) best = block;
    }
    if (best) return best;
  }
  return nullptr;
}

/// Takes the first `size` bytes of a block out of the cache.
Buffer::Block* Allocator::take(Buffer::Block* block, size_t size) {
  std::unique_ptr<Buffer::Block> rest;
  if (block->size > size) {
    rest =
        std::make_unique<Buffer::Block>(this, block->data + size, block->size - size, block->pool);
  }
  take_out_of_cache(block);
  if (rest) {
    block->size = size;
    rest->before = block;
    rest->after = block->after;
    if (rest->after) rest->after->before = rest.get();
    block->after = rest.get();
    put_into_cache(rest.release());
  }
  return block;
}

Buffer::Block* Allocator::fetch(Lock& lock, size_t size, uint32_t pool) {
  auto fresh = std::make_unique<Buffer::Block>(this, nullptr, size, pool);
  const uint64_t live = stats_.live_bytes + size;
  trim(lock, most_held(live) - live);
  if (!make_room(lock, size)) return nullptr;
  {
    const SourceCall call(*this, lock, size);
    fresh->data = source_->allocate(size);
  }
  return fresh->data ? fresh.release() : nullptr;
}

void Allocator::give_to_main_pool(uint32_t pool) {
  const Lock lock(mutex_);
  for (Link<ByAge>* list : {&live_, &cached_}) {
    for (Link<ByAge>* link = list->next; link != list; link = link->next) {
      auto* const block = static_cast<Buffer::Block*>(link);
      if (block->pool == pool) block->pool = 0;
    }
  }
}

void Allocator::put_into_cache(Buffer::Block* block) {
  stats_.cached_bytes += block->size;
  block->is_free = true;
  block->insert_before(cached_);
  // Small parts of a large block wait until their neighbours are free too.
  if (block->size > kWhole || (!block->before && !block->after)) {
    block->insert_before(*bins_[bin_of(block->size)].next);
  } else {
    block->stand_alone();
  }
}

void Allocator::take_out_of_cache(Buffer::Block* block) {
  stats_.cached_bytes -= block->size;
  block->is_free = false;
  block->Link<ByAge>::unlink();
  block->Link<BySize>::unlink();
}

void Allocator::release(Buffer::Block* block) noexcept {
  Label label;  // is freed after the lock is released
  Lock lock(mutex_);
  label.swap(block->label);
  block->Link<ByAge>::unlink();
  stats_.live_bytes -= block->size;
  if (Buffer::Block* const before = block->before; before && before->is_free) {
    take_out_of_cache(before);
    block->data = before->data;
    block->size += before->size;
    block->before = before->before;
    if (block->before) block->before->after = block;
    delete before;
  }
  if (Buffer::Block* const after = block->after; after && after->is_free) {
    take_out_of_cache(after);
    block->size += after->size;
    block->after = after->after;
    if (block->after) block->after->before = block;
    delete after;
  }
  put_into_cache(block);
  if (trace::is_on()) [[unlikely]]
    count_live();
  const uint64_t most_cached = most_held(stats_.live_bytes) - stats_.live_bytes;
  if (stats_.cached_bytes > most_cached) [[unlikely]]
    trim(lock, most_cached);
}

// Called under the lock, so that changes are reported in their order.
void Allocator::count_live() const noexcept {
  try {
    trace::add_count(device_, "live", "bytes", stats_.live_bytes);
  } catch (const std::bad_alloc&) {
    // A missing event in the timeline is better than a program that fails.
  }
}

void Allocator::trace_live() const {
  const Lock lock(mutex_);
  count_live();
}

void Allocator::trace_retry(std::string_view what, size_t size, const Label& label) const {
  if (!trace::is_on()) return;
  trace::Arguments arguments;
  arguments.add("device", device_);
  arguments.add("bytes", static_cast<uint64_t>(size));
  arguments.add("for", label ? *label : "an array");
  trace::add_instant("memory", what, arguments);
}

/// Returns cached memory to the system until `size` more bytes are within the limit. Returns false
/// if that is impossible. A request that fits does not fail because another thread uses memory or
/// the cache at the same time.
bool Allocator::make_room(Lock& lock, size_t size) {
  while (limit_ && held() + size > *limit_) {
    if (stats_.live_bytes + size > *limit_) return false;
    const uint64_t excess = held() + size - *limit_;
    if (trim(lock, stats_.cached_bytes - std::min(stats_.cached_bytes, excess))) continue;
    if (source_calls_.next == &source_calls_) return false;
    await_source_calls(lock);
  }
  return true;
}

/// Returns the oldest free blocks to the system until at most `most_cached` bytes of free blocks
/// are left. The result says whether there were any to return.
bool Allocator::trim(Lock& lock, uint64_t most_cached) {
  Link<ByAge> doomed;
  uint64_t bytes = 0;
  for (Link<ByAge>* link = cached_.next; link != &cached_ && stats_.cached_bytes > most_cached;) {
    auto* const block = static_cast<Buffer::Block*>(link);
    link = link->next;
    if (!frees_parts_ && (block->before || block->after)) continue;
    take_out_of_cache(block);
    if (block->before) block->before->after = nullptr;
    if (block->after) block->after->before = nullptr;
    bytes += block->size;
    block->insert_before(doomed);
  }
  if (bytes == 0) return false;
  const SourceCall call(*this, lock, bytes);
  while (doomed.next != &doomed) {
    const std::unique_ptr<Buffer::Block> block(static_cast<Buffer::Block*>(doomed.next));
    block->Link<ByAge>::unlink();
    source_->free(block->data, block->size);
  }
  return true;
}

/// Waits until the present calls of the source have ended, so that the memory that they free is
/// available.
void Allocator::await_source_calls(Lock& lock) {
  const uint64_t later = source_calls_begun_;
  source_call_ended_.wait(lock, [&] {
    return source_calls_.next == &source_calls_ ||
           static_cast<SourceCall*>(source_calls_.next)->number >= later;
  });
}

MemoryStats Allocator::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

void Allocator::empty_cache() {
  Lock lock(mutex_);
  trim(lock, 0);
  await_source_calls(lock);
}

void Allocator::set_limit(std::optional<uint64_t> bytes) {
  const Lock lock(mutex_);
  limit_ = bytes;
}

void Allocator::fail_request(std::optional<uint64_t> served) {
  const Lock lock(mutex_);
  served_before_failure_ = served;
}

void Allocator::out_of_memory(size_t size, const Label& label) const {
  struct Live {
    size_t size;
    std::string label;
  };
  std::vector<Live> live;
  std::string message;
  {
    const Lock lock(mutex_);
    for (const Link<ByAge>* link = live_.next; link != &live_; link = link->next) {
      const auto* const block = static_cast<const Buffer::Block*>(link);
      live.push_back({block->size, block->label ? *block->label : "an array"});
    }
    message = fmt::format("{} has no {} for {}: {} are live", device_, bytes_text(size),
                          label ? *label : "an array", bytes_text(stats_.live_bytes));
    if (limit_) message += fmt::format(" of the {} allowed", bytes_text(*limit_));
    if (stats_.cached_bytes > 0) {
      message +=
          fmt::format(", {} are free in pieces between them", bytes_text(stats_.cached_bytes));
    }
  }
  constexpr size_t kShown = 8;
  const size_t shown = std::min(kShown, live.size());
  std::partial_sort(live.begin(), live.begin() + static_cast<ptrdiff_t>(shown), live.end(),
                    [](const Live& a, const Live& b) { return a.size > b.size; });
  if (shown > 0) message += ". The largest:";
  for (size_t i = 0; i < shown; ++i) {
    message += fmt::format("\n  {:>10}  {}", bytes_text(live[i].size), live[i].label);
  }
  if (live.size() > shown) message += fmt::format("\n  and {} more", live.size() - shown);
  fail(codes::kOutOfMemory, std::move(message),
       {.location = {},
        .node = label ? *label : "",
        .fix = fmt::format("drop arrays that are no longer needed, or raise {}",
                           "BRAZE_MEMORY_LIMIT")});
}

}  // namespace braze
