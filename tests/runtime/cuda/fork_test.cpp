// fork_test.cpp — children of a process that uses GPUs.
#include "ir/support/fork.h"

#include "tests/runtime/child.h"
#include "tests/runtime/cuda/cuda_test.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(Cuda, AForkedChildIsRefusedAndEnds) {
  const Executable sixteen = sixteen_program(gpu_);
  const Array x = filled(1000, 1, gpu_);
  // Queued, recorded, and held by what the child destroys at its exit.
  static auto held = std::make_unique<std::vector<Array>>();
  for (int i = 0; i < 4; ++i) *held = run(sixteen, {x});
  const auto refused =
      AllOf(StartsWith("forked-child"), HasSubstr("forked from one that had used"));
  EXPECT_EQ(fate_of_child([&] {
              EXPECT_THAT(error_of([&] { run(sixteen, {x}); }), refused);
              EXPECT_THAT(error_of([&] { (*held)[0].to_vector<float>(); }), refused);
              EXPECT_THAT(error_of([&] { (*held)[0].wait(); }), refused);
              EXPECT_THAT(error_of([&] { x.to("cpu"); }), refused);
              EXPECT_THAT(error_of([&] { synchronize(gpu_); }), refused);
              EXPECT_THAT(error_of([&] { gpu_add_program().load(gpu_); }), refused);
              held.reset();
            }),
            "");
  EXPECT_EQ(fate_of_child([] {}), "");
  EXPECT_THAT((*held)[0].to_vector<float>(), Each(16.f));
  held->clear();
}

TEST_F(Cuda, AChildOfAProcessThatLookedForGpusCannotUseThem) {
  EXPECT_EXIT(
      {
        const int count = device_count(DeviceKind::Cuda);
        const std::string fate = fate_of_child([count] {
          EXPECT_GT(count, 0);
          EXPECT_THAT(error_of([] { filled(10, 1, "cuda:0"); }),
                      AllOf(StartsWith("forked-child"), HasSubstr("had opened the CUDA driver"),
                            HasSubstr("call fork before anything asks for GPUs")));
          EXPECT_THAT(filled(10, 1, "cpu").to_vector<float>(), Each(1.f));
        });
        EXPECT_EQ(fate, "");
        std::exit(testing::Test::HasFailure());
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace braze::test
