// Fits a linear layer with 10 inputs and one output to data by gradient descent.
// Usage: linear_train [DEVICE]
#include <braze/braze.h>

#include <iostream>
#include <tuple>

using namespace braze;

int main(int argc, char** argv) {
  try {
    const DeviceGuard guard(argc > 1 ? Device(argv[1]) : default_device());
    const Array inputs = random::normal({64, 10}, random::Key(1));
    const Array truth = random::normal({10, 1}, random::Key(2));
    const Array targets = jit([](Tensor x, Tensor w) { return dot(x, w) + 0.5; })(inputs, truth);

    const auto loss_of = [](Weights layer, Tensor x, Tensor y) {
      return nn::mse(nn::linear(layer, x), y);
    };
    const auto step = jit(
        [=](Weights layer, Tensor x, Tensor y) {
          const auto [loss, gradient] = value_and_grad(loss_of)(layer, x, y);
          return std::pair{optim::sgd(layer, gradient, {.learning_rate = 0.1}), loss};
        },
        donate{0});

    Parameters layer = nn::linear_parameters(10, 1, random::Key(3));
    double first = 0, last = 0;
    for (int i = 0; i <= 100; ++i) {
      Array loss;
      std::tie(layer, loss) = step(layer, inputs, targets);
      last = loss.item();
      if (i == 0) first = last;
      if (i % 20 == 0) std::cout << "step " << i << ": loss " << last << "\n";
    }
    return last < 1e-3 * first ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
