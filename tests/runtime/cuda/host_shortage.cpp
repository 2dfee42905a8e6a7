#include "tests/runtime/cuda/host_shortage.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/runtime/cuda/fake_cuda.h"

namespace {

std::atomic<bool> armed{false};
std::atomic<int64_t> before_failure{0}, served_first{0};

[[maybe_unused]] bool must_fail() {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const braze::test::FakeCuda* const fake = braze::test::fake_cuda();
  if (fake && fake->is_inside()) return false;
  return before_failure.fetch_sub(1) == 0;
}

[[maybe_unused]] void* checked(void* memory) {
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

#ifndef BRAZE_NO_HOST_SHORTAGE
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return must_fail() ? nullptr : std::malloc(std::max<size_t>(size, 1));
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  const auto align = static_cast<size_t>(alignment);
  const size_t rounded = (size + align - 1) / align * align;
  return must_fail() ? nullptr : std::aligned_alloc(align, rounded);
}
void* operator new(size_t size) { return checked(operator new(size, std::nothrow)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return checked(operator new(size, alignment, std::nothrow));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace braze::test {

HostShortage::HostShortage(int64_t served) {
  fake_cuda();  // found by now, without counting
  before_failure = served_first = served;
  armed = true;
}
HostShortage::~HostShortage() { armed = false; }

bool HostShortage::happened() { return before_failure < 0; }

int64_t HostShortage::allocations() { return served_first - before_failure; }

}  // namespace braze::test
