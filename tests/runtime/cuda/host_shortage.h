// host_shortage.h — host memory that runs out, at an allocation of the test's choice.
#pragma once

#include <cstdint>

namespace braze::test {

// The thread sanitizer's operator new cannot be replaced.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BRAZE_NO_HOST_SHORTAGE
#endif
#endif

/// From its construction to its end, the allocation behind `served` others fails, whichever thread
/// makes it; those of the fake driver do not count.
class HostShortage {
 public:
#ifdef BRAZE_NO_HOST_SHORTAGE
  static constexpr bool kIsPossible = false;
#else
  static constexpr bool kIsPossible = true;
#endif

  explicit HostShortage(int64_t served);
  ~HostShortage();
  HostShortage(const HostShortage&) = delete;
  HostShortage& operator=(const HostShortage&) = delete;

  /// Whether an allocation has failed so far.
  static bool happened();
  /// Those since its construction.
  static int64_t allocations();
};

}  // namespace braze::test
