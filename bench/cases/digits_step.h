// digits_step.h — the training step of examples/digits, which the speed tables of all devices have.
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "braze/braze.h"

namespace braze::bench {

// The step of examples/digits: forward, gradients and AdamW of an MLP, in place.
inline std::pair<Tensor, Tensor> loss_and_accuracy(Weights parameters, Tensor pixels,
                                                   Tensor labels) {
  const Tensor logits = nn::mlp(parameters, pixels);
  return {nn::cross_entropy(logits, labels), nn::accuracy(logits, labels)};
}

inline auto training_step() {
  return jit(
      [](Weights parameters, Weights state, Tensor pixels, Tensor labels) {
        const auto [value, gradient] =
            value_and_grad(loss_and_accuracy)(parameters, pixels, labels);
        const auto [updated, next] = optim::adamw(parameters, gradient, state);
        return std::tuple{updated, next, value.first, value.second};
      },
      {as_given, as_given, spec(f32, {"n:1..64", 64}), spec(i64, {"n:1..64"})},
      {.name = "training_step", .donate = {0, 1}});
}

struct Digits {
  Parameters parameters = nn::mlp_parameters({64, 256, 128, 10}, random::Key(1));
  Parameters state = optim::adamw_state(parameters);
  Array pixels = random::uniform({64, 64}, random::Key(2));
  Array labels = Array::from(std::vector<int64_t>(64, 3), {64});

  /// Runs a step to its end.
  template <class Step>
  void run(const Step& step) {
    Array loss, accuracy;
    std::tie(parameters, state, loss, accuracy) = step(parameters, state, pixels, labels);
    loss.wait();
    accuracy.wait();
  }
};

}  // namespace braze::bench
