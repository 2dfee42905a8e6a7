// The library that NVTX opens, with NVTX's interface declared anew.
#include "tests/runtime/nvtx_listener.h"

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace {

using braze::test::HeardRanges;

struct Attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};

enum Callback : unsigned { kRangePush = 4, kRangePop = 5, kDomainCreate = 12 };
constexpr int kCore2 = 5;
constexpr uint32_t kCallbacks = 1;

struct Callbacks {
  size_t size;
  int (*functions)(int module, void**** table, unsigned* size);
};

std::mutex mutex;
HeardRanges heard;

void* create_domain(const char* name) {
  const std::lock_guard lock(mutex);
  heard.domains.emplace_back(name);
  return &heard;
}

int push(void*, const Attributes* range) {
  const std::lock_guard lock(mutex);
  heard.begun.emplace_back(range->message);
  heard.deepest = std::max(heard.deepest, ++heard.open);
  return heard.open - 1;
}

int pop(void*) {
  const std::lock_guard lock(mutex);
  return --heard.open;
}

template <class Function>
void set(void*** table, Callback callback, Function* function) {
  *table[callback] = reinterpret_cast<void*>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
  const auto* callbacks = static_cast<const Callbacks*>(export_table(kCallbacks));
  void*** table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->functions(kCore2, &table, &size) || size <= kDomainCreate) return 0;
  set(table, kDomainCreate, create_domain);
  set(table, kRangePush, push);
  set(table, kRangePop, pop);
  return 1;
}

extern "C" HeardRanges* braze_heard_ranges() { return &heard; }
