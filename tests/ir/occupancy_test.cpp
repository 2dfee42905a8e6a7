#include "ir/target/occupancy.h"

#include <gtest/gtest.h>

namespace braze {
namespace {

TEST(Occupancy, IsBoundByWhatRunsOutFirst) {
  const Target sm_90a = *find_target("sm_90a"), sm_80 = *find_target("sm_80");
  EXPECT_EQ(resident_blocks(sm_90a, {256, 32, 0}), 8);          // threads
  EXPECT_EQ(resident_blocks(sm_90a, {32, 16, 0}), 32);          // blocks
  EXPECT_EQ(resident_blocks(sm_90a, {256, 64, 0}), 4);          // registers
  EXPECT_EQ(resident_blocks(sm_90a, {256, 33, 0}), 6);          // registers come in eights
  EXPECT_EQ(resident_blocks(sm_90a, {384, 168, 229440}), 1);    // shared memory
  EXPECT_EQ(resident_blocks(sm_90a, {128, 32, 100 << 10}), 2);  // 1 KiB of each is reserved
  EXPECT_EQ(resident_blocks(sm_80, {128, 32, 100 << 10}), 1);
  EXPECT_EQ(resident_blocks(sm_90a, {1024, 128, 0}), 0);  // more registers than there are
  EXPECT_EQ(resident_blocks(sm_90a, {128, 32, 228 << 10}), 0);
}

}  // namespace
}  // namespace braze
