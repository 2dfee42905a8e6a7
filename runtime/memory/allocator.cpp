#include "runtime/memory/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "ir/support/text.h"
#include "ir/support/trace.h"

namespace braze {

namespace {

constexpr size_t kSmallest = 64;          // one cache line
constexpr size_t kFine = 1024;            // multiples of a cache line up to here
constexpr size_t kFromSystem = 64 << 10;  // whole pages from here on
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kPage = 4096;

constexpr size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

/// Position of a block size among all of them.
size_t class_of(size_t size) {
  if (size <= kFine) return size / kSmallest - 1;
  const size_t octave = std::bit_width(size - 1) - 1;  // size is in (2^octave, 2^(octave + 1)]
  const size_t eighth = (size - 1 - (size_t{1} << octave)) >> (octave - 3);
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
  // Keeps the part that begins at a huge page.
  const size_t before =
      round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  const size_t after = kHugePage - before;
  if (before > 0) munmap(begin, before);
  if (after > 0) munmap(begin + mapped - after, after);
  madvise(begin + before, mapped - kHugePage, MADV_HUGEPAGE);
  return begin + before;
}

void HostMemory::free(std::byte* data, size_t size) {
  if (size < kFromSystem) {
    std::free(data);
  } else {
    munmap(data, round_up(size, kPage));
  }
}

struct Buffer::Block {
  Allocator* owner;
  std::byte* data;
  size_t size;
  Label label;
  Block* previous = nullptr;
  Block* next = nullptr;
};

Buffer::~Buffer() {
  if (block_) block_->owner->release(block_);
}

std::byte* Buffer::data() const { return block_ ? block_->data : nullptr; }

Allocator::Allocator(std::string device, std::unique_ptr<MemorySource> source,
                     std::function<void()> drain, std::optional<uint64_t> limit)
    : device_(std::move(device)),
      source_(std::move(source)),
      drain_(std::move(drain)),
      limit_(limit) {}

Allocator::~Allocator() { trim(); }

uint64_t Allocator::block_size(uint64_t bytes) {
  if (bytes <= kFine) return round_up(bytes, kSmallest);
  const int octave = std::bit_width(bytes - 1) - 1;
  return round_up(bytes, uint64_t{1} << (octave - 3));
}

Buffer Allocator::allocate(size_t bytes, const Label& label) {
  if (bytes == 0) return {};
  if (bytes > PTRDIFF_MAX / 2) out_of_memory(bytes, label);
  const size_t size = block_size(bytes);
  const bool fails = must_fail();
  const auto attempt = [&] { return fails ? nullptr : try_allocate(size, label); };
  if (Buffer::Block* block = attempt()) return Buffer(block);
  trace_retry("memory is short: cache emptied", size, label);
  empty_cache();
  if (Buffer::Block* block = attempt()) return Buffer(block);
  trace_retry("memory is short: work awaited", size, label);
  drain_();
  empty_cache();
  if (Buffer::Block* block = attempt()) return Buffer(block);
  out_of_memory(size, label);
}

bool Allocator::must_fail() {
  const std::lock_guard lock(mutex_);
  if (!served_before_failure_) return false;
  if (*served_before_failure_ > 0) {
    --*served_before_failure_;
    return false;
  }
  served_before_failure_.reset();
  return true;
}

Buffer::Block* Allocator::try_allocate(size_t size, const Label& label) {
  const std::lock_guard lock(mutex_);
  auto& cached = free_[class_of(size)];
  Buffer::Block* block = nullptr;
  if (!cached.empty()) {
    block = cached.back();
    cached.pop_back();
    stats_.cached_bytes -= size;
    ++stats_.cache_hits;
  } else {
    if (limit_ && stats_.live_bytes + stats_.cached_bytes + size > *limit_) return nullptr;
    auto fresh = std::make_unique<Buffer::Block>(Buffer::Block{this, nullptr, size, nullptr});
    fresh->data = source_->allocate(size);
    if (!fresh->data) return nullptr;
    block = fresh.release();
  }
  block->label = label;
  link(block);
  ++stats_.allocations;
  stats_.live_bytes += size;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  if (trace::is_on()) [[unlikely]]
    count_live();
  return block;
}

void Allocator::link(Buffer::Block* block) {
  block->previous = nullptr;
  block->next = live_;
  if (live_) live_->previous = block;
  live_ = block;
}

void Allocator::release(Buffer::Block* block) {
  const Label label = std::move(block->label);  // freed after the lock
  const std::lock_guard lock(mutex_);
  (block->previous ? block->previous->next : live_) = block->next;
  if (block->next) block->next->previous = block->previous;
  stats_.live_bytes -= block->size;
  stats_.cached_bytes += block->size;
  free_[class_of(block->size)].push_back(block);
  if (trace::is_on()) [[unlikely]]
    count_live();
}

// Under the lock, so that changes are told in their order.
void Allocator::count_live() const {
  trace::add_count(device_, "live", "bytes", stats_.live_bytes);
}

void Allocator::trace_live() const {
  const std::lock_guard lock(mutex_);
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

void Allocator::trim() {
  for (auto& blocks : free_) {
    for (Buffer::Block* block : blocks) {
      source_->free(block->data, block->size);
      delete block;
    }
    blocks.clear();
  }
  stats_.cached_bytes = 0;
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  trim();
}

void Allocator::set_limit(std::optional<uint64_t> bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

void Allocator::fail_request(std::optional<uint64_t> served) {
  const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    for (const Buffer::Block* block = live_; block; block = block->next) {
      live.push_back({block->size, block->label ? *block->label : "an array"});
    }
    message = fmt::format("{} has no {} for {}: {} are live", device_, bytes_text(size),
                          label ? *label : "an array", bytes_text(stats_.live_bytes));
    if (limit_) message += fmt::format(" of the {} allowed", bytes_text(*limit_));
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
