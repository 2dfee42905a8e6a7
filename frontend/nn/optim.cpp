#include "braze/optim.h"

#include <cmath>
#include <functional>
#include <string>

#include "braze/creation.h"
#include "braze/elementwise.h"
#include "braze/jit.h"
#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze::optim {
namespace {

DType wide_type(const Tensor& x) { return compute_type(x.dtype()); }
Tensor widened(const Tensor& x) { return cast(x, wide_type(x)); }

Array wide_zeros_like(const Array& array) {
  return zeros(array.shape(), compute_type(array.dtype()), array.device());
}

std::string master_name(const std::string& name) { return "master." + name; }

void add_master_weights(Parameters& state, const Parameters& parameters,
                        const StateOptions& options) {
  static const auto widen = jit([](Tensor x) { return widened(x); });
  if (!options.master_weights) return;
  for (const auto& [name, array] : parameters)
    if (is_half(array.dtype())) state.add(master_name(name), widen(array));
}

/// What `state` has by this name, in the dtype of the steps of `w`.
const Tensor& state_of(const Weights& state, const std::string& name, const Tensor& w) {
  const Tensor& value = state.at(name);
  if (value.dtype() == wide_type(w)) return value;
  const SourceLocation at = detail::place(Where::current());
  fail(codes::kDTypeMismatch,
       fmt::format("the optimizer's state {} is {}, not {}", name, value.to_string(),
                   braze::name(wide_type(w))),
       {.location = at, .fix = "make the state with the optimizer's own function"});
}

/// The parameters after `step`, which gives a parameter's next value from its name, its value and
/// its gradient, all in the dtype of the steps; and their master copies, if `state` has them.
struct Stepped {
  Weights parameters, masters;

  template <class Step>
  Stepped(const Weights& before, const Weights& gradients, const Weights& state, Step step) {
    before.zip(gradients, [](const Tensor&, const Tensor& g) { return g; });  // names agree
    for (const auto& [name, w] : before) {
      const bool has_master = state.contains(master_name(name));
      const Tensor value = has_master ? state_of(state, master_name(name), w) : widened(w);
      const Tensor next = step(name, value, cast(gradients.at(name), wide_type(w)));
      parameters.add(name, cast(next, w.dtype()));
      if (has_master) masters.add(name, next);
    }
  }
};

}  // namespace

Weights sgd(const Weights& parameters, const Weights& gradients, const SgdOptions& options,
            Where where) {
  const detail::Place place(where);
  return Stepped(parameters, gradients, {},
                 [&](const std::string&, const Tensor& w, const Tensor& g) {
                   const Tensor slope =
                       options.weight_decay == 0 ? g : g + options.weight_decay * w;
                   return w - options.learning_rate * slope;
                 })
      .parameters;
}

Parameters momentum_state(const Parameters& parameters, const StateOptions& options) {
  Parameters state;
  state.add("v", parameters.map(wide_zeros_like));
  add_master_weights(state, parameters, options);
  return state;
}

std::pair<Weights, Weights> momentum(const Weights& parameters, const Weights& gradients,
                                     const Weights& state, const MomentumOptions& options,
                                     Where where) {
  const detail::Place place(where);
  Weights velocities;
  const auto step = [&](const std::string& name, const Tensor& w, const Tensor& g) {
    const Tensor slope = options.weight_decay == 0 ? g : g + options.weight_decay * w;
    const Tensor v = options.momentum * state_of(state, "v." + name, w) + slope;
    velocities.add(name, v);
    return w - options.learning_rate * (options.nesterov ? slope + options.momentum * v : v);
  };
  const Stepped stepped(parameters, gradients, state, step);
  Weights next;
  next.add("v", velocities);
  next.add("master", stepped.masters);
  return {stepped.parameters, next};
}

Parameters adamw_state(const Parameters& parameters, const StateOptions& options) {
  Parameters state;
  const Device device = parameters.empty() ? default_device() : parameters.begin()->second.device();
  state.add("step", zeros({}, i64, device));
  state.add("m", parameters.map(wide_zeros_like));
  state.add("v", parameters.map(wide_zeros_like));
  add_master_weights(state, parameters, options);
  return state;
}

std::pair<Weights, Weights> adamw(const Weights& parameters, const Weights& gradients,
                                  const Weights& state, const AdamWOptions& options, Where where) {
  const detail::Place place(where);
  const Tensor step = state.at("step") + 1;
  // 1 - beta^step, where beta^step is near 1 at first.
  const auto correction = [&](double beta, DType dtype) {
    return -expm1(cast(step, dtype) * std::log(beta));
  };
  Weights first, second;
  const auto update = [&](const std::string& name, const Tensor& w, const Tensor& g) {
    const Tensor m = options.beta1 * state_of(state, "m." + name, w) + (1 - options.beta1) * g;
    const Tensor v =
        options.beta2 * state_of(state, "v." + name, w) + (1 - options.beta2) * square(g);
    first.add(name, m);
    second.add(name, v);
    // learning_rate * m_hat / (sqrt(v_hat) + epsilon), with the corrections as factors that are the
    // same for all elements.
    const Tensor rate = options.learning_rate / correction(options.beta1, w.dtype());
    const Tensor scale = rsqrt(correction(options.beta2, w.dtype()));
    const Tensor move = rate * m / (sqrt(v) * scale + options.epsilon);
    return w * (1 - options.learning_rate * options.weight_decay) - move;
  };
  const Stepped stepped(parameters, gradients, state, update);
  Weights next;
  next.add("step", step);
  next.add("m", first);
  next.add("v", second);
  next.add("master", stepped.masters);
  return {stepped.parameters, next};
}

// ---- Loss scaling -----------------------------------------------------------------------------

Parameters loss_scale_state(const LossScaleOptions& options, const Device& device) {
  return {{"scale", full({}, options.initial, f32, device)}, {"steps", zeros({}, i64, device)}};
}

Tensor scale_loss(const Tensor& loss, const Weights& scale, Where where) {
  const detail::Place place(where, "scale_loss");
  if (is_half(loss.dtype()))
    fail(codes::kDTypeMismatch, fmt::format("scale_loss: the loss is {}", loss.to_string()),
         {.location = detail::place(where),
          .node = "scale_loss",
          .fix = "compute it in f32, as in cross_entropy(cast(logits, f32), labels)"});
  return loss * cast(scale.at("scale"), loss.dtype());
}

Unscaled unscale(const Weights& gradients, const Weights& scale, const LossScaleOptions& options,
                 Where where) {
  const detail::Place place(where);
  const Tensor& factor = scale.at("scale");
  Unscaled out;
  out.finite = fill(boolean, {}, 1);
  out.gradients = gradients.map([&](const Tensor& g) {
    const Tensor wide = widened(g);
    out.finite = out.finite & all(abs(wide) < INFINITY);
    return wide / cast(factor, wide.dtype());
  });
  const Tensor& finite = out.finite;
  if (options.interval == 0) {
    out.scale = scale;
    return out;
  }
  const Tensor steps = scale.at("steps") + 1, grows = steps >= options.interval;
  const Tensor grown = braze::select(grows, factor * options.growth, factor);
  // A scale without a finite number behind it stays.
  const Tensor kept = braze::select(grown < INFINITY, grown, factor);
  out.scale.add("scale", braze::select(finite, kept, factor * options.backoff));
  out.scale.add("steps", braze::select(finite & !grows, steps, 0));
  return out;
}

Weights select(const Tensor& condition, const Weights& chosen, const Weights& other, Where where) {
  const detail::Place place(where);
  return chosen.zip(
      other, [&](const Tensor& x, const Tensor& y) { return braze::select(condition, x, y); });
}

}  // namespace braze::optim
