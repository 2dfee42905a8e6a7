// Ordinary functions over a mesh: what is said of a few values, and what Braze makes of it.
#include <gmock/gmock.h>

#include "braze/braze.h"
#include "tests/error_of.h"
#include "tests/mesh/run.h"

namespace braze {
namespace {

using test::error_of;
using testing::cpu_mesh;
using ::testing::HasSubstr;
using ::testing::Not;

class Annotations : public ::testing::Test {
 protected:
  DeviceGuard guard_{"cpu"};
};

constexpr int64_t kWidth = 16, kHeads = 4, kHead = 4, kHidden = 32;

/// A transformer block as it is written for one device.
Tensor block(Weights w, Tensor x) {
  const Tensor h = nn::layer_norm(x, w["norm1.scale"], w["norm1.shift"]);
  const auto heads = [&](const char* name) { return einsum("bsd,dhe->bshe", {h, w[name]}); };
  const Tensor scores = einsum("bqhe,bkhe->bhqk", {heads("q"), heads("k")}) * 0.5;
  const Tensor mixed = einsum("bhqk,bkhe->bqhe", {nn::softmax(scores), heads("v")});
  const Tensor y = x + einsum("bqhe,hed->bqd", {mixed, w["o"]});
  const Tensor n = nn::layer_norm(y, w["norm2.scale"], w["norm2.shift"]);
  return y + dot(gelu(dot(n, w["up"])), w["down"]);
}

Parameters block_parameters() {
  const random::Key key(1);
  uint64_t n = 0;
  const auto normal = [&](std::vector<int64_t> shape) {
    return random::normal(std::move(shape), key.fold_in(n++), 0, 0.25);
  };
  return {{"norm1.scale", ones({kWidth})},        {"norm1.shift", zeros({kWidth})},
          {"q", normal({kWidth, kHeads, kHead})}, {"k", normal({kWidth, kHeads, kHead})},
          {"v", normal({kWidth, kHeads, kHead})}, {"o", normal({kHeads, kHead, kWidth})},
          {"norm2.scale", ones({kWidth})},        {"norm2.shift", zeros({kWidth})},
          {"up", normal({kWidth, kHidden})},      {"down", normal({kHidden, kWidth})}};
}

/// Heads and hidden units are divided over "model".
Sharding sharding_of(std::string_view name) {
  if (name == "q" || name == "k" || name == "v" || name == "up") return sharded({none, "model"});
  if (name == "o" || name == "down") return sharded("model");
  return replicated;
}

Parameters spread(const Parameters& parameters, const Mesh& mesh) {
  Parameters out;
  for (const auto& [name, value] : parameters) out.add(name, value.to(mesh, sharding_of(name)));
  return out;
}

/// What was inserted.
template <class F>
std::string collectives(const F& function) {
  const std::string text = function.explain();
  return text.substr(0, text.find("\n\n"));
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

void expect_near(const Array& got, const Array& wanted, double tolerance) {
  const std::vector<float> a = got.to_vector<float>(), b = wanted.to_vector<float>();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST_F(Annotations, ATransformerBlockHasTwoCollectives) {
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 2}});
  const Parameters whole = block_parameters(), parts = spread(whole, mesh);
  const Array x = random::normal({4, 8, kWidth}, random::Key(2));
  const auto on_mesh = distribute(block, mesh, {.in = {std::nullopt, sharded("data")}});
  const Array y = on_mesh(parts, x);
  EXPECT_EQ(y.sharding(), sharded("data"));
  expect_near(y, jit(block)(whole, x), 1e-5);
  EXPECT_TRUE(on_mesh.check(parts, x).ok);
  const std::string text = collectives(on_mesh);
  EXPECT_EQ(count(text, "over model (2 devices)"), 2) << text;
  EXPECT_EQ(count(text, "over data"), 0) << text;
  EXPECT_EQ(count(text, "all_reduce      over"), 2) << text;
  EXPECT_THAT(text, HasSubstr("partial"));
}

// Its training step: gradients of what is divided are divided as it is.
TEST_F(Annotations, TrainingStepOfATransformerBlock) {
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 2}});
  const auto step = [](Weights w, Tensor x, Tensor target) {
    const auto [loss, gradient] = value_and_grad([](Weights v, Tensor in, Tensor wanted) {
      return nn::mse(block(v, in), wanted);
    })(w, x, target);
    return std::pair{optim::sgd(w, gradient, {.learning_rate = 0.1}), loss};
  };
  const Parameters whole = block_parameters();
  const Array x = random::normal({4, 8, kWidth}, random::Key(2)),
              target = random::normal({4, 8, kWidth}, random::Key(3));
  const auto on_mesh =
      distribute(step, mesh, {.in = {std::nullopt, sharded("data"), sharded("data")}});
  const auto [expected, loss] = jit(step)(whole, x, target);
  const auto [updated, same_loss] = on_mesh(spread(whole, mesh), x, target);
  EXPECT_NEAR(same_loss.item(), loss.item(), 1e-5);
  for (const auto& [name, value] : updated) {
    EXPECT_EQ(value.sharding(), sharding_of(name)) << name;
    expect_near(value, expected[name], 1e-5);
  }
  // No weight is gathered. Forward and backward have two collectives over "model" each; gradients
  // are combined over "data".
  const std::string text = collectives(on_mesh);
  EXPECT_THAT(text, Not(HasSubstr("all_gather")));
  EXPECT_EQ(count(text, "all_reduce      over model"), 4) << text;
}

// Parameters and the optimizer's state are kept in parts, gathered where they are used.
TEST_F(Annotations, FullySharded) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto step = [](Weights w, Weights state, Tensor x, Tensor target) {
    const auto loss_of = [](Weights parts, Tensor in, Tensor wanted) {
      const Weights v = parts.map([](const Tensor& part) { return constrain(part, replicated); });
      return nn::mse(nn::mlp(v, in), wanted);
    };
    const auto [loss, gradient] = value_and_grad(loss_of)(w, x, target);
    const auto [updated, next] = optim::adamw(w, gradient, state);
    return std::tuple{updated, next, loss};
  };
  const Parameters whole = nn::mlp_parameters({8, 16, 4}, random::Key(1));
  const Parameters parts = whole.map([&](const Array& p) { return p.to(mesh, sharded("data")); });
  const Array x = random::normal({8, 8}, random::Key(2)),
              target = random::normal({8, 4}, random::Key(3));
  const auto on_mesh = distribute(
      step, mesh,
      {.in = {std::nullopt, std::nullopt, sharded("data"), sharded("data")}, .donate = {0, 1}});
  const auto [expected, expected_state, loss] =
      jit(step)(whole, optim::adamw_state(whole), x, target);
  const auto [updated, state, same_loss] = on_mesh(parts, optim::adamw_state(parts), x, target);
  EXPECT_NEAR(same_loss.item(), loss.item(), 1e-6);
  for (const auto& [name, value] : updated) {
    EXPECT_EQ(value.sharding(), sharded("data")) << name;
    expect_near(value, expected[name], 1e-5);
  }
  for (const auto& [name, value] : state)
    EXPECT_EQ(value.sharding(), name == "step" ? replicated : sharded("data")) << name;
  // Each of the four parameters is gathered once and its gradient scattered once; the loss is one
  // number.
  const std::string text = collectives(on_mesh);
  EXPECT_EQ(count(text, "all_gather      over"), 4) << text;
  EXPECT_EQ(count(text, "reduce_scatter  over"), 4) << text;
  EXPECT_EQ(count(text, "all_reduce      over"), 1) << text;
}

TEST_F(Annotations, MasterWeightsAreSpreadAsTheParameters) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const Parameters parts = {
      {"w", jit([](Tensor x) { return cast(x, bf16); })(ones({4, 3})).to(mesh, sharded("data"))}};
  const Parameters state = optim::adamw_state(parts, {.master_weights = true});
  EXPECT_EQ(state["master.w"].dtype(), f32);
  EXPECT_EQ(state["master.w"].sharding(), sharded("data"));
  EXPECT_EQ(state["master.w"].to_vector<float>(), std::vector<float>(12, 1));
}

TEST_F(Annotations, DeclaredSizes) {
  const Mesh mesh = cpu_mesh({{"data", 2}, {"model", 2}});
  int traced = 0;
  const auto layer = [&](Tensor x, Tensor up, Tensor down) {
    ++traced;
    const Tensor y = x + dot(tanh(dot(x, up)), down);
    return std::pair{y, mean(square(y))};
  };
  const auto f = distribute(layer, mesh,
                            {.in = {sharded("data"), sharded({none, "model"}), sharded("model")},
                             .types = {spec(f32, {"n:2..64%2", 4})}});
  const Array up = random::normal({4, 6}, random::Key(1)),
              down = random::normal({6, 4}, random::Key(2));
  for (const int64_t n : {2, 6, 64}) {
    const Array x = random::normal({n, 4}, random::Key(3));
    const auto [y, loss] = f(x, up, down);
    const auto [whole, whole_loss] = jit(layer)(x, up, down);
    --traced;
    EXPECT_EQ(y.sharding(), sharded("data"));
    expect_near(y, whole, 1e-5);
    EXPECT_NEAR(loss.item(), whole_loss.item(), 1e-5);
    EXPECT_TRUE(f.check(x, up, down).ok) << n;
  }
  EXPECT_EQ(traced, 1);
}

TEST_F(Annotations, SayNothingOnOneDevice) {
  const auto f = jit([](Tensor x) { return constrain(x, sharded("data")) * 2; });
  EXPECT_EQ(f(ones({3})).to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_THAT(f.graph(ones({3})), HasSubstr("constrain"));
}

TEST_F(Annotations, ArgumentsDecideWhatIsMade) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto f = distribute([](Tensor x) { return sum(x, 0); }, mesh);
  const Array x = ones({4, 2});
  const std::vector<float> wanted = {4, 4};
  EXPECT_EQ(f(x).to_vector<float>(), wanted);
  EXPECT_THAT(f.explain(), Not(HasSubstr("collectives\n")));
  const Array rows = f(x.to(mesh, sharded("data")));
  EXPECT_EQ(rows.to_vector<float>(), wanted);
  EXPECT_TRUE(rows.sharding().is_replicated());
  EXPECT_THAT(f.explain(), HasSubstr("all_reduce"));
  EXPECT_EQ(f(x.to(mesh, sharded({none, "data"}))).sharding(), sharded("data"));
}

TEST_F(Annotations, RefuseWhatCannotBe) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const auto product =
      distribute([](Tensor x) { return dot(x, transpose(x)); }, mesh, {.in = {sharded("data")}});
  EXPECT_THAT(error_of([&] {
                product(ones({4, 4}));
              }),
              HasSubstr("\"data\" of the mesh would cut axis 0 of the result"));
  const auto odd = distribute([](Tensor x) { return constrain(x, sharded("data")) + 1; }, mesh);
  EXPECT_THAT(error_of([&] { odd(ones({3})); }), HasSubstr("which 2 devices do not divide"));
  const auto explicit_one =
      distribute([](Tensor x) { return all_reduce(x, "data"); }, mesh, {.in = {sharded("data")}});
  EXPECT_THAT(error_of([&] { explicit_one(ones({4})); }), HasSubstr("give it to spmd"));
}

}  // namespace
}  // namespace braze
