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
//
// Options are numbers or Tensors: floating scalars, such as an argument that is a number. One
// compiled step serves a learning rate that changes:
//
//   auto step = jit([](Weights w, Weights state, Tensor x, Tensor y, Tensor rate) {
//     ...
//     auto [updated, next] = optim::adamw(w, gradient, state, {.learning_rate = rate});
//   }, donate{0, 1});
//   const auto rate = optim::warmup(100, optim::cosine(1e-3, 10000));
//   for (int64_t i = 0; i < 10000; ++i) std::tie(w, state, loss) = step(w, state, x, y, rate(i));
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <utility>

#include "braze/array.h"
#include "braze/named.h"
#include "braze/tensor.h"

namespace braze::optim {

struct SgdOptions {
  Operand learning_rate = 0.01;  ///< step, per unit of gradient
  Operand weight_decay = 0;      ///< added to the gradient: times the parameter
};
/// w - learning_rate * gradient. InvalidArgument, here and below, if an option is no floating
/// scalar.
Weights sgd(const Weights& parameters, const Weights& gradients, const SgdOptions& options = {},
            Where where = Where::current());

/// How the state of an optimizer is made.
struct StateOptions {
  /// Keep each f16 or bf16 parameter in f32 too, as "master.NAME": steps change that one, and the
  /// parameter is it, rounded.
  bool master_weights = false;
};

struct MomentumOptions {
  Operand learning_rate = 0.01;  ///< step, per unit of gradient
  Operand momentum = 0.9;        ///< share of the velocity that stays, 0 to 1
  bool nesterov = false;         ///< looks one step ahead
  Operand weight_decay = 0;      ///< added to the gradient: times the parameter
};
/// For each parameter its velocity "v.NAME": zeros on the parameter's device, f64 for f64, else
/// f32.
Parameters momentum_state(const Parameters& parameters, const StateOptions& options = {});
/// v' = momentum * v + gradient; w - learning_rate * v' (Nesterov: gradient + momentum * v').
std::pair<Weights, Weights> momentum(const Weights& parameters, const Weights& gradients,
                                     const Weights& state, const MomentumOptions& options = {},
                                     Where where = Where::current());

struct AdamWOptions {
  Operand learning_rate = 1e-3;  ///< step, per normalised gradient
  Operand beta1 = 0.9;           ///< share of the first moment that stays
  Operand beta2 = 0.999;         ///< share of the second moment that stays
  Operand epsilon = 1e-8;        ///< added to the root of the second moment
  Operand weight_decay = 0.01;   ///< decoupled: w shrinks by learning_rate * weight_decay
};
/// "step" (i64 scalar), and for each parameter its first and second moments "m.NAME" and "v.NAME":
/// zeros on the parameter's device, f64 for f64, else f32.
Parameters adamw_state(const Parameters& parameters, const StateOptions& options = {});
/// Loshchilov and Hutter: Decoupled Weight Decay Regularization, with bias correction.
std::pair<Weights, Weights> adamw(const Weights& parameters, const Weights& gradients,
                                  const Weights& state, const AdamWOptions& options = {},
                                  Where where = Where::current());

// ---- Schedules ----------------------------------------------------------------------------------

/// A number that depends on how many steps were taken before: a learning rate, say.
class Schedule {
 public:
  /// From one formula for both: `formula` takes a double or a Tensor and returns the same.
  template <class Formula>
  requires std::is_invocable_r_v<double, const Formula&, double> Schedule(  // NOLINT: implicit
      Formula formula)
      : of_number_(formula), of_tensor_(formula) {}

  /// The value after `steps` steps, to be an argument of the compiled step.
  double operator()(int64_t steps) const { return of_number_(static_cast<double>(steps)); }
  /// The same inside of a compiled function, where `steps` is an integer scalar, such as the "step"
  /// of `adamw_state`: an f64 scalar that takes the dtype of what it meets.
  Tensor operator()(const Tensor& steps, Where where = Where::current()) const;

  // The formula, for schedules made of others.
  double at(double steps) const { return of_number_(steps); }
  Tensor at(const Tensor& steps) const { return of_tensor_(steps); }

 private:
  std::function<double(double)> of_number_;
  std::function<Tensor(Tensor)> of_tensor_;
};

/// Always `value`.
Schedule constant(double value);
/// From `first` down to `last` along half a cosine in `steps` steps, then `last`. InvalidArgument,
/// here and below, unless numbers of steps are above zero.
Schedule cosine(double first, int64_t steps, double last = 0);
/// `first`, times `factor` after every `interval` steps.
Schedule step_decay(double first, int64_t interval, double factor);
/// What `after` begins with, in equal parts from one part of `steps` to all of it; from then on
/// `after`, which counts its steps from there.
Schedule warmup(int64_t steps, const Schedule& after);

// ---- Gradients before the step ----------------------------------------------------------------

/// The root of the sum of the squares of all elements: a scalar, f64 if a gradient is, else f32.
Tensor global_norm(const Weights& gradients, Where where = Where::current());
/// The gradients, all times max_norm / norm where their global norm exceeds `max_norm`: a number or
/// floating scalar. Each keeps its dtype.
Weights clip_by_global_norm(const Weights& gradients, const Operand& max_norm,
                            Where where = Where::current());

/// "count" (i64 scalar), and for each parameter the sum of its gradients "sum.NAME": zeros on the
/// parameter's device, f64 for f64, else f32.
Parameters accumulation_state(const Parameters& parameters);

struct Accumulated {
  Weights gradients;  ///< the mean of those since the last step
  Tensor ready;       ///< bool scalar: they are as many as a step takes
  Weights state;      ///< of the next call: zeros after a step
};
/// One step from the gradients of `every` calls (at least one), so that a batch need not fit into
/// memory at once:
///
///   auto [mean, ready, next_sums] = optim::accumulate(gradient, sums, 8);
///   auto [updated, next] = optim::adamw(w, mean, state);
///   return std::tuple{optim::where(ready, updated, w), optim::where(ready, next, state),
///                     next_sums};
Accumulated accumulate(const Weights& gradients, const Weights& state, int64_t every,
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
//   return std::tuple{optim::where(finite, updated, w), optim::where(finite, next, state),
//                     next_scale};

/// How the scale of a loss follows from steps that were finite and steps that were not.
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

/// What `unscale` returns.
struct Unscaled {
  Weights gradients;  ///< divided by the scale; f32 where they were f16 or bf16
  Tensor finite;      ///< bool scalar: all of them are finite numbers
  Weights scale;      ///< the next step's scale
};
/// What the gradients of a scaled loss say. A step that is not finite lowers the scale.
Unscaled unscale(const Weights& gradients, const Weights& scale,
                 const LossScaleOptions& options = {}, Where where = Where::current());
/// `chosen` where `condition` (a bool scalar) holds, else `other`, which has the same names.
Weights where(const Tensor& condition, const Weights& chosen, const Weights& other,
              Where where = Where::current());

}  // namespace braze::optim
