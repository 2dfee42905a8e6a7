// Functions over a mesh, as users write them.
#include <gmock/gmock.h>

#include "braze/braze.h"
#include "tests/error_of.h"
#include "tests/mesh/run.h"

namespace braze {
namespace {

using test::error_of;
using testing::cpu_mesh;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SpmdTest : public ::testing::Test {
 protected:
  DeviceGuard guard_{"cpu"};
};

Array ramp(std::vector<int64_t> shape, double scale = 1) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(float(scale * double(i)));
  return Array::from(values, std::move(shape), "cpu");
}

TEST_F(SpmdTest, EveryDeviceHasItsShard) {
  const Mesh mesh = cpu_mesh({{"data", 4}});
  const auto f = spmd([](Tensor x, Tensor w) { return x * w + cast(axis_index("data"), f32); },
                      mesh, {.in = {sharded("data")}, .out = {sharded("data")}});
  const Array y = f(ramp({4}), 10.0f);
  EXPECT_TRUE(y.is_spread());
  EXPECT_THAT(y.to_vector<float>(), ElementsAre(0, 11, 22, 33));
  EXPECT_TRUE(f.check(ramp({4}), 10.0f).ok);
  // Results go back in as they are.
  EXPECT_THAT(f(y, 1.0f).to_vector<float>(), ElementsAre(0, 12, 24, 36));
}

TEST_F(SpmdTest, CollectivesAlongAnyAxisOfATensor) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const Array x = ramp({4, 6});
  const auto run = [&](auto function, Sharding in, Sharding out) {
    const auto f = spmd(std::move(function), mesh, {.in = {in}, .out = {out}});
    EXPECT_TRUE(f.check(x).ok);
    return f(x).template to_vector<float>();
  };
  const std::vector<float> whole = x.to_vector<float>();
  // Gathered along the axis that was cut it is what it was.
  for (const Sharding& cut : {sharded("data"), sharded({none, "data"})}) {
    const int64_t along = cut.axes().size() == 1 ? 0 : 1;
    EXPECT_EQ(run([=](Tensor t) { return all_gather(t, "data", along); }, cut, replicated), whole);
    EXPECT_EQ(run(
                  [=](Tensor t) {
                    return reduce_scatter(
                        all_gather(t, "data", along) + 0 * cast(axis_index("data"), f32), "data",
                        along, Reduction::Mean);
                  },
                  cut, cut),
              whole);
  }
  // Rows cut become columns cut.
  EXPECT_EQ(run([](Tensor t) { return all_to_all(t, "data", 1, 0); }, sharded("data"),
                sharded({none, "data"})),
            whole);
  // Shifted by one device, the halves change places.
  const std::vector<float> shifted =
      run([](Tensor t) { return permute(t, "data", -1); }, sharded("data"), sharded("data"));
  EXPECT_EQ(shifted[0], 12);
  EXPECT_EQ(shifted[12], 0);
  EXPECT_EQ(run([](Tensor t) { return broadcast(t, "data", 1); }, sharded("data"), replicated)[0],
            12);
  EXPECT_EQ(run([](Tensor t) { return all_gather(sum(t), "data"); }, sharded("data"), replicated),
            (std::vector<float>{66, 210}));
  EXPECT_EQ(run(
                [](Tensor t) {
                  return all_reduce(max(t), "data", Reduction::Max) * float(axis_size("data"));
                },
                sharded("data"), replicated),
            (std::vector<float>{46}));
}

// The mathematics of one device, cut over data and model: a layer whose hidden units are divided.
Tensor layer(Tensor x, Tensor up, Tensor down) { return dot(tanh(dot(x, up)), down); }
Tensor whole_loss(Tensor x, Tensor up, Tensor down) { return mean(square(layer(x, up, down))); }
/// The same where `up` and `down` are cut along the hidden units, and x along its rows.
Tensor cut_loss(Tensor x, Tensor up, Tensor down) {
  return all_reduce(mean(square(all_reduce(layer(x, up, down), "model"))), "data", Reduction::Mean);
}
template <class Loss>
std::tuple<Tensor, Tensor, Tensor> loss_and_gradients(Loss loss, Tensor x, Tensor up, Tensor down) {
  const auto [value, gradients] = value_and_grad<1, 2>(loss)(x, up, down);
  return {value, std::get<0>(gradients), std::get<1>(gradients)};
}

TEST_F(SpmdTest, TensorParallelLayersAreTheWholeOnes) {
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 2}});
  const Array x = ramp({8, 4}, 0.01), up = ramp({4, 6}, 0.02), down = ramp({6, 4}, 0.03);
  const auto whole = jit([](Tensor rows, Tensor first, Tensor second) {
    return loss_and_gradients(whole_loss, rows, first, second);
  });
  const auto function = [](Tensor rows, Tensor first, Tensor second) {
    return loss_and_gradients(cut_loss, rows, first, second);
  };
  const std::vector<Sharding> in = {sharded("data"), sharded({none, "model"}), sharded("model")};
  // The gradients vary as their parameters do, which the default does not say.
  EXPECT_THAT(error_of([&] { spmd(function, mesh, {.in = in, .out = {}})(x, up, down); }),
              HasSubstr("differs between the devices along \"model\""));
  const auto cut = spmd(
      function, mesh, {.in = in, .out = {replicated, sharded({none, "model"}), sharded("model")}});
  EXPECT_TRUE(cut.check(x, up, down).ok);
  const auto [loss, whole_up, whole_down] = whole(x, up, down);
  const auto [l, cut_up, cut_down] = cut(x, up, down);
  EXPECT_NEAR(l.item(), loss.item(), 1e-6);
  for (const auto& [a, b] : {std::pair{cut_up, whole_up}, {cut_down, whole_down}}) {
    const auto got = a.to_vector<float>(), expected = b.to_vector<float>();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5);
  }
}

// Seven rows over four devices: one has a row less, whose place a copy takes that does not count.
TEST_F(SpmdTest, PaddedRowsDoNotCount) {
  const auto step = [](Weights layer, Tensor x, Tensor labels, Tensor mask) {
    const auto loss_of = [](Weights w, Tensor in, Tensor of, Tensor counts) {
      return masked_mean(nn::cross_entropy_rows(nn::linear(w, in), of), counts);
    };
    return std::pair{value_and_grad(loss_of)(layer, x, labels, mask),
                     masked_mean(cast(mean(x, 1), bf16), mask)};
  };
  const auto whole = jit([](Weights layer, Tensor x, Tensor labels) {
    const auto loss_of = [](Weights w, Tensor in, Tensor of) {
      return nn::cross_entropy(nn::linear(w, in), of);
    };
    return std::pair{value_and_grad(loss_of)(layer, x, labels), mean(mean(x, 1))};
  });
  const Parameters layer = nn::linear_parameters(5, 3, random::Key(3));
  const auto parallel = data_parallel(step, cpu_mesh({{"data", 4}}), {.batch = {1, 2, 3}});
  for (const int64_t rows : {7, 1, 299}) {
    std::vector<int64_t> classes;
    for (int64_t i = 0; i < rows; ++i) classes.push_back(i % 3);
    const Array x = random::normal({rows, 5}, random::Key(1)),
                labels = Array::from(classes, {rows});
    const auto [more, more_labels, mask] = pad_batch(4, x, labels);
    EXPECT_EQ(more.shape()[0], (rows + 3) / 4 * 4);
    EXPECT_TRUE(parallel.check(layer, more, more_labels, mask).ok);
    const auto [of_one, mean_of_one] = whole(layer, x, labels);
    const auto [of_all, mean_of_all] = parallel(layer, more, more_labels, mask);
    EXPECT_NEAR(of_all.first.item(), of_one.first.item(), 1e-5);
    EXPECT_NEAR(mean_of_all.item(), mean_of_one.item(), 0.01);
    for (const auto& [name, gradient] : of_one.second) {
      const auto got = of_all.second[name].to_vector<float>();
      const auto wanted = gradient.to_vector<float>();
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << name;
    }
  }
}

TEST_F(SpmdTest, BatchesArePaddedByTheirLastRow) {
  const Array x = ramp({3, 2}), numbers = Array::from(std::vector<int64_t>{4, 5, 6}, {3});
  const auto [rows, more, mask] = pad_batch(4, x, numbers);
  EXPECT_THAT(rows.to_vector<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 4, 5));
  EXPECT_THAT(more.to_vector<int64_t>(), ElementsAre(4, 5, 6, 6));
  EXPECT_EQ(mask.dtype(), boolean);
  EXPECT_THAT(mask.to_vector<bool>(), ElementsAre(true, true, true, false));
  // What fits stays as it is, and so does what has no rows.
  EXPECT_THAT(std::get<1>(pad_batch(3, numbers)).to_vector<bool>(), ElementsAre(true, true, true));
  EXPECT_EQ(std::get<1>(pad_batch(3, ramp({0, 2}))).shape()[0], 0);
  EXPECT_THAT(error_of([&] { pad_batch(0, x); }), HasSubstr("a multiple of 0"));
  EXPECT_THAT(error_of([&] { pad_batch(2, x, ramp({4})); }),
              HasSubstr("array 1 is f32[4], and array 0 is f32[3, 2]"));
  EXPECT_THAT(error_of([&] { pad_batch(2, Array::from(std::vector<float>{1}, {})); }),
              HasSubstr("the first axis of each array is that of the batch"));
  EXPECT_THAT(error_of([&] {
                pad_batch(2, x.to(cpu_mesh({{"data", 3}}), sharded("data")));
              }),
              HasSubstr("is spread over a mesh"));
  EXPECT_THAT(error_of([&] { jit([](Tensor t) { return masked_mean(t, t > 0); })(numbers); }),
              HasSubstr("masked_mean: needs floats and a bool for each of them, and got i64[3]"));
}

TEST_F(SpmdTest, DataParallelTrainingIsTrainingOnTheWholeBatch) {
  const auto step = [](Weights layer, Tensor x, Tensor y, Tensor rate) {
    const auto [loss, gradient] = value_and_grad([](Weights w, Tensor in, Tensor target) {
      return nn::mse(nn::linear(w, in), target);
    })(layer, x, y);
    return std::pair{optim::sgd(layer, gradient, {.learning_rate = rate}), loss};
  };
  const Array x = random::normal({16, 5}, random::Key(1));
  const Array y = random::normal({16, 2}, random::Key(2));
  const Parameters start = nn::linear_parameters(5, 2, random::Key(3));
  const auto one = jit(step);
  for (const int64_t devices : {1, 2, 4, 8}) {
    const Mesh mesh = cpu_mesh({{"data", devices}});
    const auto many = data_parallel(step, mesh, {.batch = {1, 2}});
    Parameters a = start, b = start;
    EXPECT_TRUE(many.check(b, x, y, 0.1).ok);
    for (int i = 0; i < 5; ++i) {
      Array loss_a, loss_b;
      std::tie(a, loss_a) = one(a, x, y, 0.1);
      std::tie(b, loss_b) = many(b, x, y, 0.1);
      EXPECT_NEAR(loss_a.item(), loss_b.item(), 1e-5);
    }
    EXPECT_TRUE(b["weight"].sharding().is_replicated());
    const auto got = b["weight"].to_vector<float>(), expected = a["weight"].to_vector<float>();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5);
    // All devices have the same bits.
    for (const Array& shard : b["weight"].shards()) EXPECT_EQ(shard.to_vector<float>(), got);
  }
}

// Seven rows for two and for four devices: a mask leaves the padding out, of which one device has
// more than the others. The gradients are those of the seven rows on one device.
TEST_F(SpmdTest, PaddingIsLeftOut) {
  const auto step = [](Weights layer, Tensor x, Tensor y, Tensor mask) {
    const auto [loss, gradient] =
        value_and_grad([](Weights w, Tensor in, Tensor target, Tensor seen) {
          const Tensor losses = sum(square(nn::linear(w, in) - target), {1});
          return device_mean(sum(losses * seen)) / device_mean(sum(seen));
        })(layer, x, y, mask);
    return std::pair{optim::sgd(layer, gradient, {.learning_rate = 0.1}), loss};
  };
  const Array x = random::normal({8, 5}, random::Key(1));
  const Array y = random::normal({8, 2}, random::Key(2));
  const Array mask = Array::from(std::vector<float>{1, 1, 1, 1, 1, 1, 1, 0}, {8});
  const Parameters start = nn::linear_parameters(5, 2, random::Key(3));
  // Rows that nobody pads, on one device.
  const auto rows = [](const Array& all, int64_t count) {
    return jit([count](Tensor t) { return slice(t, 0, 0, count); })(all);
  };
  const auto [expected, loss] = jit(step)(start, rows(x, 7), rows(y, 7), ones({7}));
  for (const int64_t devices : {2, 4}) {
    const auto many = data_parallel(step, cpu_mesh({{"data", devices}}), {.batch = {1, 2, 3}});
    const auto [got, same_loss] = many(start, x, y, mask);
    EXPECT_NEAR(loss.item(), same_loss.item(), 1e-5);
    const auto a = got["weight"].to_vector<float>(), b = expected["weight"].to_vector<float>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
  }
}

TEST_F(SpmdTest, DonatedArgumentsAreTakenOver) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto f = spmd([](Tensor state, Tensor x) { return state + all_reduce(x, "data"); }, mesh,
                      {.in = {replicated, sharded("data")}, .out = {replicated}, .donate = {0}});
  const Array state = zeros({1}).to(mesh, replicated);
  const Array next = f(state, ramp({2}));
  EXPECT_EQ(next.item(), 1);
  EXPECT_THAT(error_of([&] { f(state, ramp({2})); }), HasSubstr("was donated to a call of @main"));
}

TEST_F(SpmdTest, RandomKeysOfTheirOwn) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto f = spmd(
      [](Tensor key) { return random::uniform(random::fold_in(key, axis_index("data")), {3}); },
      mesh, {.out = {sharded("data")}});
  const std::vector<float> numbers = f(random::Key(7).array()).to_vector<float>();
  EXPECT_NE(numbers[0], numbers[3]);
  EXPECT_EQ(f(random::Key(7).array()).to_vector<float>(), numbers);
}

TEST_F(SpmdTest, RecomputedLayers) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto loss_of = [](bool again) {
    return [again](Tensor w, Tensor x) {
      const auto block = [](Tensor v, Tensor h) { return tanh(h * v); };
      const Tensor h = again ? checkpoint(block)(w, x) : block(w, x);
      return mean(square(h));
    };
  };
  const Array w = ramp({3}, 0.3), x = ramp({4, 3}, 0.1);
  std::vector<std::vector<float>> gradients;
  for (const bool again : {false, true}) {
    const auto f = data_parallel([&](Tensor v, Tensor t) { return grad(loss_of(again))(v, t); },
                                 mesh, {.batch = {1}});
    gradients.push_back(f(w, x).to_vector<float>());
  }
  const auto whole = jit([&](Tensor v, Tensor t) { return grad(loss_of(false))(v, t); });
  const std::vector<float> expected = whole(w, x).to_vector<float>();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(gradients[0][i], expected[i], 1e-6);
    EXPECT_NEAR(gradients[1][i], expected[i], 1e-6);
  }
}

TEST_F(SpmdTest, RefusesWhatIsWrongWithAFix) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto identity = [](Tensor x) { return x + 1; };
  EXPECT_THAT(error_of([&] { spmd(identity, mesh, {.in = {sharded("data")}})(ramp({2})); }),
              HasSubstr("differs between the devices along \"data\", and is to be replicated"));
  EXPECT_THAT(error_of([&] { spmd(identity, mesh, {.out = {sharded("data")}})(ramp({2})); }),
              HasSubstr("say replicated"));
  EXPECT_THAT(error_of([&] { spmd(identity, mesh, {.in = {sharded("data")}})(ramp({3})); }),
              HasSubstr("pad it to 4"));
  EXPECT_THAT(
      error_of([&] { spmd([](Tensor x) { return all_reduce(x, "data"); }, mesh)(ramp({2})); }),
      HasSubstr("is the same on all devices along \"data\" already"));
  EXPECT_THAT(
      error_of([&] { spmd([](Tensor x) { return all_reduce(x, "rows"); }, mesh)(ramp({2})); }),
      HasSubstr("the mesh has no axis \"rows\"; it has data"));
  EXPECT_THAT(error_of([&] { jit([](Tensor x) { return all_reduce(x, "data"); })(ramp({2})); }),
              HasSubstr("give it to spmd or data_parallel"));
  EXPECT_THAT(error_of([&] {
                data_parallel([](Tensor x) { return sum(x); }, mesh, {.batch = {0}})(ramp({2}));
              }),
              HasSubstr("return device_mean(x)"));
  const Array cut = ramp({2}).to(mesh, sharded("data"));
  EXPECT_THAT(error_of([&] { spmd(identity, mesh)(cut); }),
              HasSubstr("move it with .to(mesh, sharding)"));
  const Array elsewhere = ramp({2}).to(Mesh({{"data", 2}}, {"cpu:1", "cpu"}), replicated);
  EXPECT_THAT(error_of([&] { spmd(identity, mesh)(elsewhere); }),
              HasSubstr("is replicated over the mesh data: 2 of other devices, and has to be"));
  EXPECT_THAT(error_of([&] { jit(identity)(cut); }), HasSubstr("is spread over the 2 devices"));
  const auto shift = spmd([](Tensor x, Tensor by) { return cast(x, i8) + by; }, mesh);
  EXPECT_THAT(error_of([&] { shift(ramp({2}), 300); }), HasSubstr("300 is not a value of i8"));
}

// One compilation serves all sizes that are declared; the function sees those of a shard.
TEST_F(SpmdTest, DeclaredSizes) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  int traced = 0;
  const auto mean_of = [&](Tensor x, Tensor w) {
    ++traced;
    return all_reduce(mean(x * w, 0), "data", Reduction::Mean);
  };
  const std::vector<Spec> types = {spec(f32, {"n:2..64%2", 3})};
  const auto f = spmd(mean_of, mesh, {.in = {sharded("data")}, .types = types});
  for (const int64_t n : {2, 4, 64}) {
    EXPECT_EQ(f(ramp({n, 3}), ramp({3})).to_vector<float>()[0], 0);
    EXPECT_TRUE(f.check(ramp({n, 3}), ramp({3})).ok) << n;
  }
  EXPECT_EQ(traced, 1);
  EXPECT_THAT(f.graph(ramp({4, 3}), ramp({3})), HasSubstr("floordiv(n, 2)"));
  EXPECT_THAT(error_of([&] { f(ramp({3, 3}), ramp({3})); }), HasSubstr("declared as f32[n, 3]"));
  const auto odd =
      spmd(mean_of, mesh, {.in = {sharded("data")}, .types = {spec(f32, {"n:2..64", 3})}});
  EXPECT_THAT(error_of([&] {
                odd(ramp({4, 3}), ramp({3}));
              }),
              HasSubstr("declare it as a multiple: \"n:2..64%2\""));
}

TEST_F(SpmdTest, ShowsWhatItDoes) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto f = spmd([](Tensor x) { return tanh(all_reduce(x * 2, "data")); }, mesh,
                      {.in = {sharded("data")}});
  f(ramp({2}));
  EXPECT_THAT(f.graph(ramp({2})), HasSubstr("all_reduce sum"));
  EXPECT_THAT(f.explain(), HasSubstr("collective"));
  EXPECT_EQ(f.program()->launches.size(), 3u);
}

// Gradients that only updates wait for come as one, with the loss; `explain` says how long that is
// thought to take.
TEST_F(SpmdTest, GradientsAreExchangedAtOnce) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto step = [](Weights w, Tensor x) {
    const auto [loss, gradient] = value_and_grad([](Weights v, Tensor in) {
      return mean(square(tanh(dot(in, v["up"]) + v["shift"]) * v["scale"]));
    })(w, x);
    return std::pair{optim::sgd(w, gradient, {.learning_rate = 0.1}), loss};
  };
  Parameters weights{{"up", ramp({4, 6}, 0.01)}, {"shift", ramp({6})}, {"scale", ramp({6})}};
  const auto f = data_parallel(step, mesh, {.batch = {1}});
  const Array x = ramp({8, 4}, 0.05);
  EXPECT_TRUE(f.check(weights, x).ok);
  f(weights, x);
  size_t collectives = 0, members = 0;
  for (const Launch& launch : f.program()->launches) {
    if (launch.artifact != Launch::kCollective) continue;
    ++collectives;
    members += launch.member_count();
  }
  EXPECT_EQ(collectives, 1u);
  EXPECT_EQ(members, 4u);
  EXPECT_THAT(f.explain(), HasSubstr("all_reduce      over data (2 devices)         148 bytes"));
  EXPECT_THAT(f.explain(), HasSubstr(" us  "));
}

}  // namespace
}  // namespace braze
