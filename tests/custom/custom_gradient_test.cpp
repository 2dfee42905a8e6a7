// Custom calls as users write them: in functions that are compiled, differentiated and distributed.
#include <optional>

#include "braze/braze.h"
#include "ir/graph/graph.h"
#include "tests/custom/functions.h"
#include "tests/mesh/run.h"

namespace braze {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CustomGradients : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_functions(); }
  DeviceGuard guard_{"cpu"};
};

std::optional<Error> error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// x times `factor`, with a gradient.
Tensor scaled(const Tensor& x, int factor) {
  return custom_call("test.scale", {x}, x.dtype(), x.shape(),
                     {.attributes = std::to_string(factor),
                      .gradient = [factor](const std::vector<Tensor>& operands,
                                           const Tensor& result, const Tensor& g) {
                        EXPECT_EQ(operands.size(), 1u);
                        EXPECT_TRUE(result.shape() == operands[0].shape());
                        return std::vector{g * static_cast<double>(factor)};
                      }});
}

Array three() { return Array::from(std::vector<float>{1, 2, 3}, {3}); }

TEST_F(CustomGradients, ACallInACompiledFunction) {
  const auto f = jit([](Tensor x) { return scaled(x + 1.0, 10) * 2.0; });
  EXPECT_THAT(f(three()).to_vector<float>(), ElementsAre(40, 60, 80));
  const auto no_operands = jit([](Tensor x) {
    return x + custom_call("test.count", {}, f32, {}, {.attributes = "no operands"});
  });
  const int before = testing::calls_of_count;
  EXPECT_THAT(no_operands(three()).to_vector<float>(),
              ElementsAre(before + 2.f, before + 3.f, before + 4.f));
}

TEST_F(CustomGradients, TheGivenGradientIsUsed) {
  // d/dx sum((5 x^2)^2) = 100 x^3
  const auto loss = [](const Tensor& x) {
    const Tensor y = scaled(x * x, 5);
    return sum(y * y);
  };
  const auto f = jit([&](Tensor x) { return value_and_grad(loss)(x); });
  const auto [value, gradient] = f(three());
  EXPECT_EQ(value.item(), 25.0 * (1 + 16 + 81));
  EXPECT_THAT(gradient.to_vector<float>(), ElementsAre(100, 800, 2700));
  // The gradient of the gradient, through the same function.
  const auto second =
      jit([&](Tensor x) { return grad([&](const Tensor& y) { return sum(grad(loss)(y)); })(x); });
  EXPECT_THAT(second(three()).to_vector<float>(), ElementsAre(300, 1200, 2700));
}

TEST_F(CustomGradients, ACheckpointCallsItAgain) {
  const auto block = [](const Tensor& x) { return exp(scaled(x, 2)); };
  const auto kept = jit(
      [&](Tensor x) { return grad([&](const Tensor& y) { return sum(block(y) * block(y)); })(x); });
  const auto again = jit([&](Tensor x) {
    return grad([&](const Tensor& y) {
      const Tensor z = checkpoint(block)(y);
      return sum(z * z);
    })(x);
  });
  const Array x = Array::from(std::vector<float>{0, 0.5, -1}, {3});
  const std::vector<float> a = kept(x).to_vector<float>(), b = again(x).to_vector<float>();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6 * std::abs(a[i]));
}

TEST_F(CustomGradients, WithoutAGradientItIsAnErrorThatSaysWhatToDo) {
  const auto without = [](const Tensor& x) {
    return custom_call("test.scale", {x}, x.dtype(), x.shape(), {.attributes = "3"});
  };
  const auto error = error_of([&] {
    jit([&](Tensor x) { return grad([&](const Tensor& y) { return sum(without(y)); })(x); })(
        three());
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code().name, "not-differentiable");
  EXPECT_THAT(error->what(), HasSubstr("no gradient is known of custom_call(\"test.scale\")"));
  EXPECT_THAT(error->fix(), HasSubstr("`gradient`"));
  EXPECT_THAT(error->location().to_string(), HasSubstr("custom_gradient_test.cpp"));
  // No gradient flows here.
  const auto f = jit([&](Tensor x) {
    return grad([&](const Tensor& y) { return sum(y * without(stop_gradient(y))); })(x);
  });
  EXPECT_THAT(f(three()).to_vector<float>(), ElementsAre(3, 6, 9));
}

TEST_F(CustomGradients, GradientsThatDoNotFitAreErrors) {
  const auto message = [](CustomGradient gradient) {
    const auto error = error_of([&] {
      jit([&](Tensor x) {
        return grad([&](const Tensor& y) {
          return sum(custom_call("test.scale", {y}, f32, y.shape(),
                                 {.attributes = "4", .gradient = gradient}));
        })(x);
      })(three());
    });
    return error ? error->message() : std::string();
  };
  using Tensors = std::vector<Tensor>;
  EXPECT_THAT(message([](const Tensors&, const Tensor&, const Tensor&) { return Tensors(); }),
              HasSubstr("gives 0 tensors, but the call has 1 operand"));
  EXPECT_THAT(
      message([](const Tensors&, const Tensor&, const Tensor& g) { return Tensors{sum(g)}; }),
      HasSubstr("is f32[] for operand 0, which is f32[3]"));
  EXPECT_EQ(message([](const Tensors&, const Tensor&, const Tensor&) { return Tensors(1); }), "");
}

TEST_F(CustomGradients, SideEffectsHappenOnceAlsoUnderAGradient) {
  const auto loss = [](const Tensor& x) {
    // Nothing needs it, and it depends on an argument of the gradient.
    custom_call("test.count", {x * 2.0}, f32, {}, {.side_effects = true});
    return sum(x * x);
  };
  for (const char* device : {"interpreter", "cpu"}) {
    const DeviceGuard here(device);
    const auto f = jit([&](Tensor x) {
      custom_call("test.count", {}, f32, {0}, {.side_effects = true});
      return value_and_grad(loss)(x);
    });
    f(three()).first.wait();
    const int before = testing::calls_of_count;
    EXPECT_THAT(f(three()).second.to_vector<float>(), ElementsAre(2, 4, 6));
    EXPECT_EQ(testing::calls_of_count - before, 2) << device;
  }
  const auto error = error_of([&] {
    const auto block = [](const Tensor& x) {
      return x *
             custom_call("test.count", {stop_gradient(x)}, f32, x.shape(), {.side_effects = true});
    };
    jit([&](Tensor x) {
      return grad([&](const Tensor& y) { return sum(checkpoint(block)(y)); })(x);
    })(three());
  });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("a checkpoint would make it again"));
}

TEST_F(CustomGradients, EveryDeviceOfAMeshCallsItOnItsOwnTensors) {
  const Mesh mesh = testing::cpu_mesh({{"data", 2}});
  const std::vector<float> values = {1, 2, 3, 4};
  const Array x = Array::from(values, {4}, "cpu");
  const auto local = spmd([](Tensor y) { return scaled(y, 3); }, mesh,
                          {.in = {sharded("data")}, .out = {sharded("data")}});
  EXPECT_THAT(local(x).to_vector<float>(), ElementsAre(3, 6, 9, 12));
  EXPECT_TRUE(local.check(x).ok);
  // In a function of whole tensors the operand is made whole: the last element is the last of all.
  const auto whole = distribute(
      [](Tensor y) {
        const Tensor z = constrain(y, sharded("data")) * 2.0;
        return custom_call("test.scale", {z, z}, f32, z.shape(), {.attributes = "1"}) + z;
      },
      mesh, {.in = {sharded("data")}});
  EXPECT_THAT(whole(x).to_vector<float>(), ElementsAre(12, 16, 20, 24));
}

}  // namespace
}  // namespace braze
