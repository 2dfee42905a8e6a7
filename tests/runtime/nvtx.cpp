// Ranges for profilers, with a listener in place of one. Run with NVTX_INJECTION64_PATH set to it.
#include "ir/support/nvtx.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "ir/support/trace.h"
#include "tests/runtime/nvtx_listener.h"
#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::Contains;
using testing::ElementsAre;

TEST(Nvtx, SpansAreRangesWhereAProfilerListens) {
  if (!nvtx::is_built_in()) GTEST_SKIP() << "built without NVTX";
  const char* library = std::getenv("NVTX_INJECTION64_PATH");
  ASSERT_NE(library, nullptr) << "run by ctest, which sets it";
  set_cpu_threads(1);
  const Executable sum = add_program().load();
  EXPECT_FALSE(trace::is_on()) << "a profiler asks for no file";
  {
    const TraceSpan span("mine");
    const Array x = filled(100, 1);
    sum.run({{x, x}})[0].wait();
  }
  void* const listener = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(listener, nullptr) << "nobody has opened it";
  const auto heard = reinterpret_cast<HeardRanges* (*)()>(dlsym(listener, "braze_heard_ranges"))();
  EXPECT_THAT(heard->domains, ElementsAre("braze"));
  for (const char* name : {"load sum", "mine", "call sum", "execute sum", "launch add"})
    EXPECT_THAT(heard->begun, Contains(name));
  EXPECT_EQ(heard->open, 0);
  EXPECT_GE(heard->deepest, 3);
}

}  // namespace
}  // namespace braze::test
