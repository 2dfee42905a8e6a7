// optim.h — optimizers, as functions from (parameters, gradients, state) to (parameters, state).
//
// They build ops, so a whole training step is one compiled function. Donate parameters and state to
// it, and they are updated in place:
//
//   auto step = jit([](Weights w, Weights state, Tensor x, Tensor y) {
//     auto [loss, gradient] = value_and_grad(model)(w, x, y);
//     auto [updated, next] = optim::adamw(w, gradient, state);
//     return std::tuple{updated, next, loss};
//   }, donate{0, 1});
//
// Parameters, gradients and results have the same names, and values of one name have the same
// shape. Parameters and results have the same floating dtypes, and gradients have these dtypes or
// f32. If names or types differ, the functions throw InvalidArgument. Steps of f16 and bf16
// parameters are computed in f32 and rounded once. Their state is f32, because in 16 bits the sums
// of many small steps would not change. Even so, a step smaller than half an ulp of its parameter
// is lost, unless the state has a master copy in f32.
//
// Options are numbers, or Tensors that are floating scalars, such as an argument that is a number.
// One compiled step then serves a learning rate that changes:
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

/// Optimizers: functions from parameters, gradients and state to new parameters and state.
namespace braze::optim {

/// Options of `sgd`.
struct SgdOptions {
  Operand learning_rate = 0.01;  ///< the step for a gradient of 1
  Operand weight_decay = 0;      ///< this times the parameter is added to the gradient
};
/// w - learning_rate * gradient. Here and below, an option that is not a floating scalar throws
/// InvalidArgument.
Weights sgd(const Weights& parameters, const Weights& gradients, const SgdOptions& options = {},
            Where where = Where::current());

/// Options of the initial state of an optimizer.
struct StateOptions {
  /// Keeps an f32 copy of each f16 or bf16 parameter, as "master.NAME". Steps change the copy, and
  /// the parameter is the copy after rounding.
  bool master_weights = false;
};

/// Options of `momentum`.
struct MomentumOptions {
  Operand learning_rate = 0.01;  ///< the step for a gradient of 1
  Operand momentum = 0.9;        ///< the share of the velocity that remains, 0 to 1
  bool nesterov = false;         ///< Nesterov's form, which looks one step ahead
  Operand weight_decay = 0;      ///< this times the parameter is added to the gradient
};
/// The velocity "v.NAME" of each parameter: zeros on the device of the parameter, f64 if the
/// parameter is f64, otherwise f32.
Parameters momentum_state(const Parameters& parameters, const StateOptions& options = {});
/// v' = momentum * v + gradient; w - learning_rate * v' (Nesterov: gradient + momentum * v').
std::pair<Weights, Weights> momentum(const Weights& parameters, const Weights& gradients,
                                     const Weights& state, const MomentumOptions& options = {},
                                     Where where = Where::current());

/// Options of `adamw`.
struct AdamWOptions {
  Operand learning_rate = 1e-3;  ///< the step for a normalised gradient of 1
  Operand beta1 = 0.9;           ///< the share of the first moment that remains
  Operand beta2 = 0.999;         ///< the share of the second moment that remains
  Operand epsilon = 1e-8;        ///< added to the square root of the second moment
  Operand weight_decay = 0.01;   ///< decoupled: w shrinks by learning_rate * weight_decay
};
/// "step" (an i64 scalar), and the first and second moments "m.NAME" and "v.NAME" of each
/// parameter: zeros on the device of the parameter, f64 if the parameter is f64, otherwise f32.
Parameters adamw_state(const Parameters& parameters, const StateOptions& options = {});
/// AdamW with bias correction (Loshchilov and Hutter: Decoupled Weight Decay Regularization).
std::pair<Weights, Weights> adamw(const Weights& parameters, const Weights& gradients,
                                  const Weights& state, const AdamWOptions& options = {},
                                  Where where = Where::current());

// ---- Schedules ----------------------------------------------------------------------------------

/// A number that depends on the number of steps taken, such as a learning rate.
class Schedule {
 public:
  /// Makes a schedule from one generic formula, which takes and returns a double or a Tensor.
  template <class Formula>
  requires std::is_invocable_r_v<double, const Formula&, double> Schedule(  // NOLINT: implicit
      Formula formula)
      : of_number_(formula), of_tensor_(formula) {}

  /// The value after `steps` steps, for an argument of the compiled step.
  double operator()(int64_t steps) const { return of_number_(static_cast<double>(steps)); }
  /// The same inside a compiled function. `steps` is an integer scalar, such as the "step" of
  /// `adamw_state`. The result is an f64 scalar that takes the dtype of the Tensor that it meets.
  Tensor operator()(const Tensor& steps, Where where = Where::current()) const;

  /// The formula for a number, for schedules that are made from others.
  double at(double steps) const { return of_number_(steps); }
  /// The formula for a Tensor, for schedules that are made from others.
  Tensor at(const Tensor& steps) const { return of_tensor_(steps); }

 private:
  std::function<double(double)> of_number_;
  std::function<Tensor(Tensor)> of_tensor_;
};

/// Always `value`.
Schedule constant(double value);
/// From `first` to `last` along half a cosine in `steps` steps, then `last`. Here and below, a
/// number of steps that is not positive throws InvalidArgument.
Schedule cosine(double first, int64_t steps, double last = 0);
/// `first`, multiplied by `factor` after every `interval` steps.
Schedule step_decay(double first, int64_t interval, double factor);
/// Rises to the first value of `after` in `steps` equal parts, beginning with one part. Then it is
/// `after`, which counts its steps from there.
Schedule warmup(int64_t steps, const Schedule& after);

// ---- Gradients before the step ----------------------------------------------------------------

/// The square root of the sum of the squares of all elements: a scalar, f64 if a gradient is f64,
/// otherwise f32.
Tensor global_norm(const Weights& gradients, Where where = Where::current());
/// The gradients, multiplied by max_norm / norm if their global norm exceeds `max_norm`. `max_norm`
/// is a number or a floating scalar. Each gradient keeps its dtype.
Weights clip_by_global_norm(const Weights& gradients, const Operand& max_norm,
                            Where where = Where::current());

/// "count" (an i64 scalar), and the sum "sum.NAME" of the gradients of each parameter: zeros on the
/// device of the parameter, f64 if the parameter is f64, otherwise f32.
Parameters accumulation_state(const Parameters& parameters);

/// What `accumulate` returns.
struct Accumulated {
  Weights gradients;  ///< the mean of the gradients since the last step
  Tensor ready;       ///< a bool scalar: there are enough gradients for a step
  Weights state;      ///< the state for the next call; zeros after a step
};
/// Makes one step from the gradients of `every` calls (at least one), so that a batch need not fit
/// into memory as a whole:
///
///   auto [mean, ready, next_sums] = optim::accumulate(gradient, sums, 8);
///   auto [updated, next] = optim::adamw(w, mean, state);
///   return std::tuple{optim::where(ready, updated, w), optim::where(ready, next, state),
///                     next_sums};
Accumulated accumulate(const Weights& gradients, const Weights& state, int64_t every,
                       Where where = Where::current());

// ---- Loss scaling -----------------------------------------------------------------------------
//
// Gradients in f16 underflow below 6e-8. To avoid this, the loss is multiplied by a scale, which
// also multiplies its gradients. They are divided by the scale again in f32. A step whose gradients
// overflowed is left out. Differentiate
//
//   auto loss = [](Weights w, Weights scale, Tensor x, Tensor y) {
//     return optim::scale_loss(nn::cross_entropy(cast(model(w, x), f32), y), scale);
//   };
//
// and use its gradient in the step:
//
//   auto [slopes, finite, next_scale] = optim::unscale(gradient, scale, options);
//   auto [updated, next] = optim::adamw(w, slopes, state);
//   return std::tuple{optim::where(finite, updated, w), optim::where(finite, next, state),
//                     next_scale};

/// How the scale of a loss changes after finite and after non-finite steps.
struct LossScaleOptions {
  double initial = 65536;   ///< the first scale
  double growth = 2;        ///< the factor after `interval` consecutive finite steps
  double backoff = 0.5;     ///< the factor after a step that was not finite
  int64_t interval = 2000;  ///< 0: the scale does not change
};
/// "scale" (an f32 scalar), and "steps" (an i64 scalar): the finite steps since the scale changed.
Parameters loss_scale_state(const LossScaleOptions& options = {},
                            const Device& device = default_device());
/// The loss times the scale. It throws InvalidArgument for a 16-bit loss, which would overflow.
Tensor scale_loss(const Tensor& loss, const Weights& scale, Where where = Where::current());

/// What `unscale` returns.
struct Unscaled {
  Weights gradients;  ///< divided by the scale; f16 and bf16 become f32
  Tensor finite;      ///< a bool scalar: all gradients are finite
  Weights scale;      ///< the scale for the next step
};
/// Divides the gradients of a scaled loss by the scale. A step that is not finite lowers the scale.
Unscaled unscale(const Weights& gradients, const Weights& scale,
                 const LossScaleOptions& options = {}, Where where = Where::current());
/// `chosen` if `condition` (a bool scalar) is true, otherwise `other`, which has the same names.
Weights where(const Tensor& condition, const Weights& chosen, const Weights& other,
              Where where = Where::current());

}  // namespace braze::optim
