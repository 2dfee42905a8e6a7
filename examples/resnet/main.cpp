// A small ResNet learns handwritten digits of 8x8 pixels: a convolution, two residual blocks of two
// convolutions with batch norm, the mean over the image, a linear layer. One compiled function is a
// whole step: forward, gradients, running statistics, AdamW, in place.
// Usage: resnet [--device NAME] [--epochs N] [--seed N] [--rate R]
#include <braze/braze.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>

#include "data.h"

using namespace braze;

namespace {

constexpr int64_t kBatch = 64, kSide = 8, kTrained = 1347;  // the others are held out
constexpr int kDefaultEpochs = 60;

struct Options {
  Device device = default_device();
  int epochs = kDefaultEpochs;
  uint64_t seed = 1;
  double rate = 8e-3;  // at the beginning; it falls along half a cosine
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) throw std::runtime_error(option + " needs a value");
    if (option == "--device")
      options.device = Device(argv[i + 1]);
    else if (option == "--epochs")
      options.epochs = std::stoi(argv[i + 1]);
    else if (option == "--seed")
      options.seed = std::stoull(argv[i + 1]);
    else if (option == "--rate")
      options.rate = std::stod(argv[i + 1]);
    else
      throw std::runtime_error("usage: resnet [--device NAME] [--epochs N] [--seed N] [--rate R]");
  }
  return options;
}

// ---- The model --------------------------------------------------------------------------------

/// A convolution without bias and the batch norm behind it.
struct Layer {
  std::string name;
  std::vector<int64_t> taps;
  int64_t in, out, stride;
};

const std::vector<Layer> kLayers = {
    {"stem", {3, 3}, 1, 32, 1},           {"block1.first", {3, 3}, 32, 32, 1},
    {"block1.second", {3, 3}, 32, 32, 1}, {"block2.first", {3, 3}, 32, 64, 2},
    {"block2.second", {3, 3}, 64, 64, 1}, {"block2.shortcut", {1, 1}, 32, 64, 2},
};

Parameters make_parameters(random::Key key) {
  Parameters out;
  for (const Layer& layer : kLayers) {
    const Parameters conv = nn::conv_parameters(layer.taps, layer.in, layer.out,
                                                key.fold_in(layer.name), init::he_normal());
    out.add(layer.name + ".weight", conv.at("weight"));
    out.add(layer.name + ".norm", nn::batch_norm_parameters(layer.out));
  }
  out.add("head", nn::linear_parameters(64, 10, key.fold_in("head")));
  return out;
}

Parameters make_statistics() {
  Parameters out;
  for (const Layer& layer : kLayers) out.add(layer.name, nn::batch_norm_statistics(layer.out));
  return out;
}

/// One pass through the network: by the statistics of the batch, from which the running ones
/// follow, or by the running ones.
class ResNet {
 public:
  ResNet(const Weights& parameters, const Weights& statistics, bool training)
      : parameters_(parameters), statistics_(statistics), training_(training) {}

  Tensor logits(const Tensor& images) {
    const Tensor x = relu(layer("stem", images));
    const Tensor y = relu(x + layer("block1.second", relu(layer("block1.first", x))));
    const Tensor z =
        relu(layer("block2.shortcut", y) + layer("block2.second", relu(layer("block2.first", y))));
    return nn::linear(parameters_.group("head"), mean(z, {1, 2}));
  }
  const Weights& moved() const { return moved_; }

 private:
  Tensor layer(const std::string& name, const Tensor& x) {
    const auto found = std::ranges::find(kLayers, name, &Layer::name);
    const Dim edge = found->taps[0] / 2;
    const Tensor y = conv(
        x, parameters_.at(name + ".weight"),
        {.strides = {found->stride, found->stride}, .low = {edge, edge}, .high = {edge, edge}});
    const Weights norm = parameters_.group(name + ".norm"), running = statistics_.group(name);
    if (!training_)
      return nn::batch_norm(y, norm.at("scale"), norm.at("shift"), running.at("mean"),
                            running.at("variance"));
    const nn::BatchNormed normed = nn::batch_norm(y, norm.at("scale"), norm.at("shift"));
    moved_.add(name, nn::running_statistics(running, normed));
    return normed.value;
  }

  const Weights &parameters_, &statistics_;
  bool training_;
  Weights moved_;
};

/// (parameters, state, statistics, images, labels, rate) -> the first three moved on, and the loss.
auto make_step() {
  return jit(
      [](Weights parameters, Weights state, Weights statistics, Tensor images, Tensor labels,
         Tensor rate) {
        const auto loss_of = [&](Weights w) {
          ResNet net(w, statistics, true);
          const Tensor loss = nn::cross_entropy(net.logits(images), labels);
          return std::pair{loss, net.moved()};
        };
        const auto [value, gradients] = value_and_grad(loss_of)(parameters);
        // In the order of the statistics that are donated.
        Weights moved;
        for (const auto& [name, old] : statistics) moved.add(name, value.second.at(name));
        const auto [updated, next] =
            optim::adamw(parameters, gradients, state, {.learning_rate = rate});
        return std::tuple{updated, next, moved, value.first};
      },
      {.name = "training_step", .donate = {0, 1, 2}});
}

int run(const Options& options) {
  const DeviceGuard guard(options.device);
  const digits::Data data = digits::load(DIGITS_FILE);
  std::vector<int64_t> order(kTrained), held_out(static_cast<size_t>(data.size() - kTrained));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::iota(held_out.begin(), held_out.end(), kTrained);
  const auto images_of = [](const digits::Data& some) {
    return Array::from(some.pixels, {some.size(), kSide, kSide, 1});
  };
  const auto labels_of = [](const digits::Data& some) {
    return Array::from(some.labels, {some.size()});
  };

  const auto step = make_step();
  Parameters parameters = make_parameters(random::Key(options.seed)),
             state = optim::adamw_state(parameters), statistics = make_statistics();
  std::mt19937_64 shuffle(options.seed);
  const int64_t steps = kTrained / kBatch;  // an epoch; what is left over waits for the next
  const auto rate = optim::cosine(options.rate, options.epochs * steps);
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[shuffle() % i]);
    double total = 0;
    for (int64_t i = 0; i < steps; ++i) {
      const digits::Data batch = digits::take(data, order, i * kBatch, kBatch);
      Array loss;
      std::tie(parameters, state, statistics, loss) =
          step(parameters, state, statistics, images_of(batch), labels_of(batch),
               rate((epoch - 1) * steps + i));
      total += loss.item() / static_cast<double>(steps);
    }
    std::printf("epoch %2d/%d  loss %.4f\n", epoch, options.epochs, total);
    std::fflush(stdout);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const digits::Data test = digits::take(data, held_out, 0, data.size());
  const auto evaluate = jit([](Weights w, Weights running, Tensor images, Tensor labels) {
    return nn::accuracy(ResNet(w, running, false).logits(images), labels);
  });
  const double accuracy = evaluate(parameters, statistics, images_of(test), labels_of(test)).item();
  const CompileSummary summary = step.summary();
  std::printf("accuracy on %d held-out images  %.1f %%\n", static_cast<int>(test.size()),
              100 * accuracy);
  std::printf("a step: %d ops in %d kernels, %.2f ms with reading and compiling\n", summary.ops,
              summary.kernels, 1e3 * seconds / static_cast<double>(options.epochs * steps));
  return options.epochs < kDefaultEpochs || accuracy >= 0.97 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
