// Device memory that runs out: at every allocation of the digits demo, by injection, and by limits
// of all sizes. Every shortage is a ResourceExhausted that names what is live, leaves the arguments
// as they were and nothing behind; the next try gives what an undisturbed run gives.
#include <algorithm>
#include <numeric>

#include "examples/digits/data.h"
#include "runtime/devices/registry.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

using Values = std::vector<std::vector<double>>;

Values values_of(const Parameters& parameters) {
  Values values;
  for (const auto& [name, value] : parameters) values.push_back(to_doubles(value));
  return values;
}

/// The training step of the demo on a batch of 64 and on one of 3, and its evaluation.
class Demo {
 public:
  explicit Demo(const Device& device) : device_(device) {}

  /// What the steps return, and the parameters after each. Every operation is tried again after a
  /// shortage, of which `shortages` has the texts.
  Values run(std::vector<std::string>& shortages) {
    const DeviceGuard guard(device_);
    Values trace;
    Parameters parameters, state;
    const auto key = random::Key(1);
    attempt(shortages, [&] {
      parameters = nn::mlp_parameters({digits::kPixels, 256, 128, 10}, key);
    });
    attempt(shortages, [&] { state = optim::adamw_state(parameters); });
    int64_t begin = 0;
    for (const int64_t size : {64, 3}) {
      const digits::Data batch = digits::take(data_, order(), begin, size);
      begin += size;
      Array pixels, labels, loss, accuracy;
      attempt(shortages, [&] { pixels = Array::from(batch.pixels, {size, digits::kPixels}); });
      attempt(shortages, [&] { labels = Array::from(batch.labels, {size}); });
      const Values before = values_of(parameters), state_before = values_of(state);
      const size_t so_far = shortages.size();
      attempt(shortages, [&] {
        if (shortages.size() > so_far) {
          EXPECT_EQ(values_of(parameters), before) << "a failed step changed its arguments";
          EXPECT_EQ(values_of(state), state_before);
        }
        std::tie(parameters, state, loss, accuracy) = step_(parameters, state, pixels, labels);
      });
      trace.push_back({loss.item(), accuracy.item()});
      for (auto& values : values_of(parameters)) trace.push_back(std::move(values));
    }
    const digits::Data test = digits::take(data_, order(), 100, 200);
    Array pixels, labels, accuracy;
    attempt(shortages, [&] { pixels = Array::from(test.pixels, {test.size(), digits::kPixels}); });
    attempt(shortages, [&] { labels = Array::from(test.labels, {test.size()}); });
    attempt(shortages, [&] { accuracy = evaluate_(parameters, pixels, labels); });
    trace.push_back({accuracy.item()});
    return trace;
  }

 private:
  template <class Operation>
  static void attempt(std::vector<std::string>& shortages, const Operation& operation) {
    try {
      return operation();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::ResourceExhausted) << error.what();
      shortages.emplace_back(error.what());
    }
    operation();
  }

  std::vector<int64_t> order() const {
    std::vector<int64_t> all(static_cast<size_t>(data_.size()));
    std::iota(all.begin(), all.end(), int64_t{0});
    return all;
  }

  static std::pair<Tensor, Tensor> loss(Weights parameters, Tensor pixels, Tensor labels) {
    const Tensor logits = nn::mlp(parameters, pixels);
    return {nn::cross_entropy(logits, labels), nn::accuracy(logits, labels)};
  }
  static std::tuple<Weights, Weights, Tensor, Tensor> train(Weights parameters, Weights state,
                                                            Tensor pixels, Tensor labels) {
    const auto [value, gradient] = value_and_grad(loss)(parameters, pixels, labels);
    const auto [updated, next] = optim::adamw(parameters, gradient, state);
    return {updated, next, value.first, value.second};
  }

  const Device device_;
  const digits::Data data_ = digits::load(DIGITS_FILE);
  Jitted<decltype(&train)> step_ = jit(
      &train, {as_given, as_given, spec(f32, {"n:1..64", digits::kPixels}), spec(i64, {"n:1..64"})},
      {.name = "training_step",
       .donate = {0, 1},
       .inputs = {"parameters", "state", "pixels", "labels"}});
  static Tensor score(Weights parameters, Tensor pixels, Tensor labels) {
    return nn::accuracy(nn::mlp(parameters, pixels), labels);
  }
  Jitted<decltype(&score)> evaluate_ = jit(&score);
};

class OutOfMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_.kind() == DeviceKind::Cuda) GTEST_SKIP() << "tests/runtime/cuda has this for GPUs";
    expected_ = demo_.run(shortages_);
    ASSERT_TRUE(shortages_.empty());
    settle();
    live_ = memory_stats(device_).live_bytes;
  }
  void TearDown() override {
    set_memory_limit(device_, std::nullopt);
    allocator().fail_request(std::nullopt);
  }
  Allocator& allocator() { return Registry::get().driver(device_).allocator(); }
  void settle() {
    synchronize(device_);
    empty_cache(device_);
  }
  /// What the demo needs beside what is live, within a few percent. (The peak of the device's
  /// memory is that of all tests before.)
  uint64_t needed_bytes() {
    const auto is_enough = [&](uint64_t bytes) {
      set_memory_limit(device_, live_ + bytes);
      shortages_.clear();
      try {
        demo_.run(shortages_);
      } catch (const Error&) {
        shortages_.emplace_back("twice");
      }
      settle();
      set_memory_limit(device_, std::nullopt);
      return shortages_.empty();
    };
    uint64_t few = 0, enough = 4096;
    while (!is_enough(enough)) few = std::exchange(enough, 2 * enough);
    while (enough - few > enough / 32) {
      const uint64_t middle = few + (enough - few) / 2;
      (is_enough(middle) ? enough : few) = middle;
    }
    return enough;
  }

  const Device device_ = test_device();
  Demo demo_{device_};
  std::vector<std::string> shortages_;
  Values expected_;
  uint64_t live_ = 0;
};

TEST_F(OutOfMemory, AtEveryAllocationOfTheDemo) {
  const uint64_t before = memory_stats(device_).allocations;
  demo_.run(shortages_);
  settle();
  const uint64_t allocations = memory_stats(device_).allocations - before;
  ASSERT_GE(allocations, 30u);
  for (uint64_t served = 0; served < allocations; ++served) {
    SCOPED_TRACE("failing the request behind " + std::to_string(served));
    shortages_.clear();
    allocator().fail_request(served);
    EXPECT_EQ(demo_.run(shortages_), expected_);
    ASSERT_EQ(shortages_.size(), 1u);
    EXPECT_CONTAINS(shortages_[0], device_.name() + " has no ");
    EXPECT_CONTAINS(shortages_[0], " are live");
    settle();
    ASSERT_EQ(memory_stats(device_).live_bytes, live_) << "memory is left behind";
  }
}

// Limits from nothing to enough. What is live is named by the user's names.
TEST_F(OutOfMemory, ByALimit) {
  constexpr int kLimits = 48;
  const uint64_t most = live_ + needed_bytes();
  int short_ones = 0, named = 0;
  for (int i = 0; i <= kLimits; ++i) {
    SCOPED_TRACE("limit " + std::to_string(i));
    set_memory_limit(device_, live_ + (most - live_) * static_cast<uint64_t>(i) / kLimits);
    bool finished = false;
    try {
      shortages_.clear();
      finished = demo_.run(shortages_) == expected_;
    } catch (const Error& error) {  // the second try met the limit too
      EXPECT_EQ(error.kind(), ErrorKind::ResourceExhausted) << error.what();
      ++short_ones;
      named += std::string(error.what()).find(" of @training_step") != std::string::npos;
    }
    EXPECT_TRUE(finished || !shortages_.empty());
    settle();
    ASSERT_EQ(memory_stats(device_).live_bytes, live_) << "memory is left behind";
    set_memory_limit(device_, std::nullopt);
    shortages_.clear();
    if (i % 8 == 0) {
      EXPECT_EQ(demo_.run(shortages_), expected_) << "the next call works";
      settle();
    }
  }
  EXPECT_GT(short_ones, kLimits / 2);
  // The interpreter has no temporaries on its device.
  EXPECT_TRUE(named > 0 || device_.kind() == DeviceKind::Interpreter);
}

}  // namespace
}  // namespace braze
