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
// Parameters, gradients and results have the same names, and by name the same shapes; parameters
// and results the same floating dtypes, gradients those or f32. InvalidArgument where names or
// types differ. Steps of f16 and bf16 parameters are computed in f32 and rounded once, and their
// state is f32: sums of many small steps would stand still in 16 bits. A step that is less than
// half an ulp of its parameter is lost all the same, unless the state has an f32 master copy.
#pragma once

#include <cstdint>
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

struct StateOptions {
  /// Keep each f16 or bf16 parameter in f32 too, as "master.NAME": steps change that one, and the
  /// parameter is it, rounded.
  bool master_weights = false;
};

struct MomentumOptions {
  double learning_rate = 0.01;  ///< step, per unit of gradient
  double momentum = 0.9;        ///< share of the velocity that stays, 0 to 1
  bool nesterov = false;        ///< looks one step ahead
  double weight_decay = 0;      ///< added to the gradient: times the parameter
};
/// For each parameter its velocity "v.NAME": zeros on the parameter's device, f64 for f64, else
/// f32.
Parameters momentum_state(const Parameters& parameters, const StateOptions& options = {});
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
/// "step" (i64 scalar), and for each parameter its first and second moments "m.NAME" and "v.NAME":
/// zeros on the parameter's device, f64 for f64, else f32.
Parameters adamw_state(const Parameters& parameters, const StateOptions& options = {});
/// Loshchilov and Hutter: Decoupled Weight Decay Regularization, with bias correction.
std::pair<Weights, Weights> adamw(const Weights& parameters, const Weights& gradients,
                                  const Weights& state, const AdamWOptions& options = {},
                                  Where where = Where::current());

// ---- Loss scaling -----------------------------------------------------------------------------
//
// Gradients in f16 underflow below 6e-8. A loss times a scale has gradients times that scale, which
// are divided by it again in f32; a step whose gradients overflowed is left out. Differentiate
//
//   auto loss = [](Weights w, Weights scale, Tensor x, Tensor y) {
//     return optim::scale_loss(nn::cross_entropy(cast(model(w, x), f32), y), scale);
//   };
//
// and, with `gradient` of that, in the step:
//
//   auto [slopes, finite, next_scale] = optim::unscale(gradient, scale, options);
//   auto [updated, next] = optim::adamw(w, slopes, state);
//   return std::tuple{optim::select(finite, updated, w), optim::select(finite, next, state),
//                     next_scale};

struct LossScaleOptions {
  double initial = 65536;   ///< the scale at first
  double growth = 2;        ///< times this after `interval` steps in a row that were finite
  double backoff = 0.5;     ///< times this after a step that was not
  int64_t interval = 2000;  ///< 0: the scale stays as it is
};
/// "scale" (f32 scalar) and "steps" (i64 scalar), the finite steps since the scale changed.
Parameters loss_scale_state(const LossScaleOptions& options = {},
                            const Device& device = default_device());
/// The loss times the scale. InvalidArgument for a 16-bit loss, which would overflow.
Tensor scale_loss(const Tensor& loss, const Weights& scale, Where where = Where::current());

struct Unscaled {
  Weights gradients;  ///< divided by the scale; f32 where they were f16 or bf16
  Tensor finite;      ///< bool scalar: all of them are finite numbers
  Weights scale;      ///< the next step's scale
};
/// What the gradients of a scaled loss say. A step that is not finite lowers the scale.
Unscaled unscale(const Weights& gradients, const Weights& scale,
                 const LossScaleOptions& options = {}, Where where = Where::current());
/// `chosen` where `condition` (a bool scalar) holds, else `other`, which has the same names.
Weights select(const Tensor& condition, const Weights& chosen, const Weights& other,
               Where where = Where::current());

}  // namespace braze::optim
