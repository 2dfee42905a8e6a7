// optim.h — optimizers, as functions from (parameters, gradients, state) to (parameters, state).
//
// They build ops, so a whole training step is one compiled function; donate parameters and state to
// it, and they are updated in place:
//
//   auto step = jit([](Weights w, Weights state, Tensor x, Tensor y) {
//     auto [loss, gradient] = value_and_grad(model)(w, x, y);
//     auto [updated, next] = optim::adamw(w, gradient, state);
//     return std::tuple{updated, next, loss};
//   }, donate{0, 1});
//
// Parameters, gradients and results have the same names, and by name the same shapes and floating
// dtypes; InvalidArgument where names or types differ.
#pragma once

#include <source_location>
#include <utility>

#include "braze/array.h"
#include "braze/named.h"
#include "braze/tensor.h"

namespace braze::optim {

struct SgdOptions {
  double learning_rate = 0.01;  ///< step, per unit of gradient
  double weight_decay = 0;      ///< added to the gradient: times the parameter
};
/// w - learning_rate * gradient.
Weights sgd(const Weights& parameters, const Weights& gradients, const SgdOptions& options = {},
            Where where = Where::current());

struct MomentumOptions {
  double learning_rate = 0.01;  ///< step, per unit of gradient
  double momentum = 0.9;        ///< share of the velocity that stays, 0 to 1
  bool nesterov = false;        ///< looks one step ahead
  double weight_decay = 0;      ///< added to the gradient: times the parameter
};
/// The velocities, zeros like the parameters and on their devices.
Parameters momentum_state(const Parameters& parameters);
/// v' = momentum * v + gradient; w - learning_rate * v' (Nesterov: gradient + momentum * v').
std::pair<Weights, Weights> momentum(const Weights& parameters, const Weights& gradients,
                                     const Weights& state, const MomentumOptions& options = {},
                                     Where where = Where::current());

struct AdamWOptions {
  double learning_rate = 1e-3;  ///< step, per normalised gradient
  double beta1 = 0.9;           ///< share of the first moment that stays
  double beta2 = 0.999;         ///< share of the second moment that stays
  double epsilon = 1e-8;        ///< added to the root of the second moment
  double weight_decay = 0.01;   ///< decoupled: w shrinks by learning_rate * weight_decay
};
/// "step" (i64 scalar), and for each parameter its first and second moments "m.NAME" and "v.NAME",
/// zeros at first.
Parameters adamw_state(const Parameters& parameters);
/// Loshchilov and Hutter: Decoupled Weight Decay Regularization, with bias correction.
std::pair<Weights, Weights> adamw(const Weights& parameters, const Weights& gradients,
                                  const Weights& state, const AdamWOptions& options = {},
                                  Where where = Where::current());

}  // namespace braze::optim
