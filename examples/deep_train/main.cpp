// Trains a deep residual network: the learning rate warms up and falls, gradients of several
// batches are added up and clipped, and the backward pass computes layers again instead of keeping
// them. Half way everything is saved; training that goes on from the file ends with the same
// numbers. Usage: deep_train [DEVICE]
#include <braze/braze.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

using namespace braze;

/// What a training run is made of. The names are those of the arrays in the file.
template <class T>
struct Training {
  Named<T> model, optimizer, gradients;
};
BRAZE_TREE(Training, model, optimizer, gradients)

namespace {

constexpr int64_t kWidth = 16, kBlocks = 6, kBatch = 64, kBatchesAStep = 2, kSteps = 120;

Training<Array> start(random::Key key) {
  const Initializer he = init::he_normal(), small = init::normal(0.05);
  Parameters model = {{"in", he({2, kWidth}, f32, key.fold_in("in"))},
                      {"out", small({kWidth, 1}, f32, key.fold_in("out"))}};
  for (int64_t i = 0; i < kBlocks; ++i) {
    const std::string name = "block" + std::to_string(i);
    const random::Key own = key.fold_in(name);
    model.add(name, Parameters{{"scale", ones({kWidth})},
                               {"up", he({kWidth, 2 * kWidth}, f32, own.fold_in("up"))},
                               {"down", small({2 * kWidth, kWidth}, f32, own.fold_in("down"))}});
  }
  return {model, optim::adamw_state(model), optim::accumulation_state(model)};
}

Tensor block(const Weights& w, const Tensor& x) {
  return x + dot(gelu(dot(nn::rms_norm(x, w["scale"]), w["up"])), w["down"]);
}

Tensor loss_of(const Weights& w, const Tensor& x, const Tensor& y) {
  Tensor h = dot(x, w["in"]);
  for (int64_t i = 0; i < kBlocks; ++i)
    h = checkpoint(block)(w.group("block" + std::to_string(i)), h);
  return nn::mse(dot(h, w["out"]), y);
}

/// One batch: the gradients join those before, and every kBatchesAStep batches make a step.
std::pair<Training<Tensor>, Tensor> train(const Training<Tensor>& t, const Tensor& x,
                                          const Tensor& y, const Tensor& rate) {
  const auto [loss, gradient] = value_and_grad(loss_of)(t.model, x, y);
  const auto [mean, ready, sums] = optim::accumulate(gradient, t.gradients, kBatchesAStep);
  const Weights clipped = optim::clip_by_global_norm(mean, 1.0);
  const auto [model, state] = optim::adamw(t.model, clipped, t.optimizer, {.learning_rate = rate});
  return {{optim::where(ready, model, t.model), optim::where(ready, state, t.optimizer), sums},
          loss};
}

/// Points of the plane, and a wave above them.
std::pair<Array, Array> batch(int64_t number) {
  static const auto make = jit([](Tensor key) {
    const Tensor x = random::normal(key, {kBatch, 2});
    return std::pair{x, sin(2 * x[{Slice(), Slice(0, 1)}]) + x[{Slice(), Slice(1, 2)}]};
  });
  return make(random::Key(7).fold_in(static_cast<uint64_t>(number)).array());
}

int run() {
  const auto step = jit(train, donate{0});
  const optim::Schedule rate = optim::warmup(10, optim::cosine(0.02, kSteps - 10));
  double first = 0, last = 0;
  const auto go_on = [&](Training<Array> state, int64_t from, int64_t to) {
    for (int64_t i = from * kBatchesAStep; i < to * kBatchesAStep; ++i) {
      const auto [x, y] = batch(i);
      Array loss;
      std::tie(state, loss) = step(state, x, y, rate(i / kBatchesAStep));
      last = loss.item();
      if (i == 0) first = last;
      if (i % 40 == 0)
        std::cout << "batch " << i << ": rate " << rate(i / kBatchesAStep) << ", loss " << last
                  << "\n";
    }
    return state;
  };

  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("deep_train." + std::to_string(getpid()) + ".safetensors");
  Training<Array> training = go_on(start(random::Key(1)), 0, kSteps / 2);
  save_safetensors(file, state_dict(training));
  training = go_on(training, kSteps / 2, kSteps);
  const double loss = last;

  // The structure comes from a new run, the numbers from the file.
  Training<Array> resumed =
      restore(start(random::Key(2)), load_safetensors(file, default_device()));
  std::filesystem::remove(file);
  resumed = go_on(resumed, kSteps / 2, kSteps);
  std::cout << "loss " << first << " -> " << loss << ", resumed " << last << "; compiled "
            << step.compile_count() << " time\n";
  return last == loss && loss < 0.2 * first && step.compile_count() == 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const DeviceGuard guard(argc > 1 ? Device(argv[1]) : default_device());
    return run();
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
