// The code that pages show. What stands between `// [name]` and `// [end]` here is on a page below
// `<!-- code: tests/docs/code_test.cpp name -->`; check.py compares the two.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "braze/braze.h"

namespace braze {
namespace {

constexpr int64_t kRows = 32, kPixels = 8, kClasses = 4;

Tensor loss_of(Weights w, Tensor x, Tensor y) { return nn::cross_entropy(nn::mlp(w, x), y); }

class PageCode : public ::testing::Test {
 protected:
  void SetUp() override { set_cpu_device_count(4); }

  /// Expects that these are the whole values of `wanted`.
  static void expect_near(const Parameters& got, const Parameters& wanted) {
    for (const auto& [name, value] : wanted) expect_near(got[name], value, name);
  }
  static void expect_near(const Array& got, const Array& wanted, const std::string& what) {
    const auto a = got.to("cpu").to_vector<float>(), b = wanted.to("cpu").to_vector<float>();
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << what;
  }
  /// Two steps of AdamW on one device.
  template <class Step>
  void expect_two_steps(const Step& step, const Parameters& got) const {
    Parameters w = start_, state = optim::adamw_state(start_);
    Array loss;
    const auto alone = jit(step);
    for (int i = 0; i < 2; ++i) std::tie(w, state, loss) = alone(w, state, images_, labels_);
    expect_near(got, w);
  }

  const DeviceGuard guard_{"cpu"};
  const Parameters start_ = nn::mlp_parameters({kPixels, 16, kClasses}, random::Key(1));
  const Array images_ = random::normal({kRows, kPixels}, random::Key(2));
  const Array labels_ = jit([](Tensor of) {
    return argmax(of[{ellipsis, Slice(0, kClasses)}], -1);
  })(images_);
  const std::vector<std::pair<Array, Array>> loader_ = {{images_, labels_}, {images_, labels_}};
};

TEST_F(PageCode, TenLines) {
  Parameters weights = start_;
  const Array images = images_, labels = labels_;
  // [ten-lines]
  auto train_step = [](Weights w, Tensor x, Tensor y) {  // as for one device
    auto [loss, gradient] = value_and_grad(loss_of)(w, x, y);
    return std::pair{optim::sgd(w, gradient, {.learning_rate = 0.1}), loss};
  };
  set_cpu_device_count(2);  // not needed for GPUs: those of this process are there
  Mesh mesh({{"data", 2}});
  auto step = data_parallel(train_step, mesh, {.batch = {1, 2}, .donate = {0}});  // x and y are cut
  Array loss;
  for (int i = 0; i < 20; ++i)  // each device takes its part of the batch
    std::tie(weights, loss) = step(weights, images, labels);
  // [end]
  Parameters one = start_;
  Array loss_of_one;
  const auto alone = jit(train_step);
  for (int i = 0; i < 20; ++i) std::tie(one, loss_of_one) = alone(one, images, labels);
  EXPECT_NEAR(loss.item(), loss_of_one.item(), 1e-5);
  expect_near(weights, one);
}

TEST_F(PageCode, DistributedDataParallel) {
  Parameters parameters = start_, state = optim::adamw_state(parameters);
  const auto& loader = loader_;
  // [ddp]
  auto train_step = [](Weights w, Weights moments, Tensor x, Tensor y) {
    auto [loss, gradient] = value_and_grad(loss_of)(w, x, y);
    auto [updated, next] = optim::adamw(w, gradient, moments);
    return std::tuple{updated, next, loss};
  };
  Mesh mesh({{"data", 4}});
  auto step = data_parallel(train_step, mesh, {.batch = {2, 3}, .donate = {0, 1}});
  Array loss;
  for (const auto& [images, labels] : loader)  // whole batches: each device takes its part
    std::tie(parameters, state, loss) = step(parameters, state, images, labels);
  // [end]
  expect_two_steps(train_step, parameters);
}

TEST_F(PageCode, DataParallel) {
  const Parameters parameters = start_;
  const Array images = random::normal({30, kPixels}, random::Key(4));
  // [data-parallel]
  Mesh mesh({{"data", 4}});
  auto model = [](Weights w, Tensor x) { return nn::mlp(w, x); };
  auto parallel = data_parallel(model, mesh, {.batch = {1}});
  auto [rows, mask] = pad_batch(4, images);   // of 30 images, for example, it makes 32
  Array logits = parallel(parameters, rows);  // the rows of all devices, in order
  // [end]
  EXPECT_EQ(logits.shape()[0], 32);
  EXPECT_EQ(mask.shape()[0], 32);
  expect_near(logits, jit(model)(parameters, rows), "logits");
}

// [fsdp-loss]
Tensor sharded_loss(Weights parts, Tensor x, Tensor y) {
  Weights w = parts.map([](const Tensor& part) { return constrain(part, replicated); });
  return nn::cross_entropy(nn::mlp(w, x), y);
}
// [end]

/// A step of AdamW, as for one device.
template <class Loss>
auto adamw_step(Loss loss_of_step) {
  return [loss_of_step](Weights w, Weights moments, Tensor x, Tensor y) {
    auto [loss, gradient] = value_and_grad(loss_of_step)(w, x, y);
    auto [updated, next] = optim::adamw(w, gradient, moments);
    return std::tuple{updated, next, loss};
  };
}

TEST_F(PageCode, FullyShardedDataParallel) {
  const Parameters parameters = start_;
  const auto& loader = loader_;
  const auto train_step = adamw_step(sharded_loss);
  // [fsdp]
  Mesh mesh({{"data", 4}});
  Parameters parts = parameters.map([&](const Array& p) { return p.to(mesh, sharded("data")); });
  Parameters state = optim::adamw_state(parts);  // spread as the parameters are
  const auto given = std::nullopt;               // parameters and state are spread already
  auto step = distribute(
      train_step, mesh, {.in = {given, given, sharded("data"), sharded("data")}, .donate = {0, 1}});
  Array loss;
  for (const auto& [images, labels] : loader)
    std::tie(parts, state, loss) = step(parts, state, images, labels);
  // [end]
  EXPECT_EQ(parts["0.weight"].shards()[0].shape()[0], kPixels / 4);
  expect_two_steps(train_step, parts);
}

TEST_F(PageCode, DividedState) {
  Parameters parameters = start_;
  const Mesh mesh({{"data", 4}});
  const Array images = images_, labels = labels_;
  const auto train_step = adamw_step(loss_of);
  Array loss;
  parameters = parameters.map([&](const Array& x) { return x.to(mesh, replicated); });
  // [divided-state]
  Parameters divided = optim::adamw_state(parameters).map([&](const Array& x) {
    return x.to(mesh, x.shape().size() > 1 ? sharded("data") : replicated);  // matrices only
  });
  auto step = distribute(
      train_step, mesh,
      {.in = {replicated, std::nullopt, sharded("data"), sharded("data")}, .donate = {0, 1}});
  std::tie(parameters, divided, loss) = step(parameters, divided, images, labels);
  // [end]
  std::tie(parameters, divided, loss) = step(parameters, divided, images, labels);
  EXPECT_EQ(divided["m.0.weight"].shards()[0].shape()[0], kPixels / 4);
  EXPECT_EQ(parameters["0.weight"].shards()[0].shape()[0], kPixels);
  expect_two_steps(train_step, parameters);
}

TEST_F(PageCode, TensorParallel) {
  const Parameters parameters = start_;
  const Array images = images_;
  // [tensor-parallel]
  Mesh mesh({{"model", 4}});
  Parameters parts{{"0.weight", parameters["0.weight"].to(mesh, sharded({none, "model"}))},
                   {"0.bias", parameters["0.bias"].to(mesh, sharded("model"))},
                   {"1.weight", parameters["1.weight"].to(mesh, sharded("model"))},
                   {"1.bias", parameters["1.bias"].to(mesh, replicated)}};
  auto block = [](Weights w, Tensor x) { return nn::mlp(w, x); };  // as for one device
  auto parallel = distribute(block, mesh, {.in = {std::nullopt, replicated}});
  Array y = parallel(parts, images);
  std::string text = parallel.explain();  // one all_reduce, behind the second product
  // [end]
  text.resize(text.find("reasons"));
  EXPECT_NE(text.find("all_reduce"), std::string::npos);
  EXPECT_EQ(text.find("all_reduce"), text.rfind("all_reduce"));
  expect_near(y, jit(block)(parameters, images), "y");
}

}  // namespace
}  // namespace braze
