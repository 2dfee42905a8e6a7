// How the parts of a call on devices of the host meet, and leave when one of them fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/mesh/together.h"
#include "tests/mesh/run.h"

namespace braze {
namespace {

CapturedError a_failure() {
  try {
    fail(codes::kInternal, "a failure of the test");
  } catch (const Error&) {
    return CapturedError::current();
  }
}

// The three devices of one row exchange what takes a while, and meanwhile a device of the other row
// fails. Whoever leaves writes to its memory at once, as the next owner of that memory would.
TEST(Meeting, NobodyLeavesWhileOthersUseItsMemory) {
  constexpr size_t kMembers = 3, kCount = 1 << 16, kCollectives = 16;
  constexpr float kOwn = -1;
  const Mesh mesh = testing::cpu_mesh({{"row", 2}, {"column", kMembers}});
  const std::vector<MeshAxis> columns = {mesh.axes()[1]};
  for (int repeat = 0; repeat < 40; ++repeat) {
    const auto parts = meet_on_host(mesh.axes(), mesh.devices(), nullptr, columns);
    std::vector<std::vector<float>> to(kMembers, std::vector<float>(kCount * kCollectives));
    const std::vector<float> from(to[0].size(), 1);
    std::vector<char> left(kMembers, false);
    std::vector<std::jthread> threads;
    for (size_t place = 0; place < kMembers; ++place)
      threads.emplace_back([&, place] {
        std::vector<CollectiveArguments> bunch(kCollectives);
        for (size_t i = 0; i < kCollectives; ++i) {
          bunch[i].from = reinterpret_cast<const std::byte*>(from.data() + i * kCount);
          bunch[i].to = reinterpret_cast<std::byte*>(to[place].data() + i * kCount);
          bunch[i].count = kCount;
        }
        try {
          parts[place]->run(bunch);
        } catch (const Error&) {
          left[place] = true;
          std::ranges::fill(to[place], kOwn);
        }
      });
    std::this_thread::sleep_for(std::chrono::microseconds(100 * repeat));
    parts[kMembers]->give_up(a_failure());
    threads.clear();
    for (size_t place = 0; place < kMembers; ++place)
      EXPECT_EQ(std::ranges::count(to[place], left[place] ? kOwn : float{kMembers}),
                static_cast<ptrdiff_t>(to[place].size()))
          << "device " << place << " of attempt " << repeat;
  }
}

}  // namespace
}  // namespace braze
