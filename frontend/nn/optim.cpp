#include "braze/optim.h"

#include <cmath>

#include "braze/creation.h"
#include "braze/elementwise.h"
#include "frontend/builder/builder.h"

namespace braze::optim {
namespace {

Weights add_decay(const Weights& parameters, const Weights& gradients, double weight_decay) {
  if (weight_decay == 0) return gradients;
  return parameters.zip(gradients,
                        [&](const Tensor& w, const Tensor& g) { return g + weight_decay * w; });
}

Array zeros_like(const Array& array) { return zeros(array.shape(), array.dtype(), array.device()); }

}  // namespace

Weights sgd(const Weights& parameters, const Weights& gradients, const SgdOptions& options,
            Where where) {
  const detail::Place place(where);
  return parameters.zip(
      add_decay(parameters, gradients, options.weight_decay),
      [&](const Tensor& w, const Tensor& g) { return w - options.learning_rate * g; });
}

Parameters momentum_state(const Parameters& parameters) { return parameters.map(zeros_like); }

std::pair<Weights, Weights> momentum(const Weights& parameters, const Weights& gradients,
                                     const Weights& state, const MomentumOptions& options,
                                     Where where) {
  const detail::Place place(where);
  const Weights slopes = add_decay(parameters, gradients, options.weight_decay);
  const Weights velocity =
      state.zip(slopes, [&](const Tensor& v, const Tensor& g) { return options.momentum * v + g; });
  const Weights steps =
      !options.nesterov ? velocity : slopes.zip(velocity, [&](const Tensor& g, const Tensor& v) {
        return g + options.momentum * v;
      });
  return {parameters.zip(steps, [&](const Tensor& w,
                                    const Tensor& s) { return w - options.learning_rate * s; }),
          velocity};
}

Parameters adamw_state(const Parameters& parameters) {
  Parameters state;
  const Device device = parameters.empty() ? default_device() : parameters.begin()->second.device();
  state.add("step", zeros({}, i64, device));
  state.add("m", parameters.map(zeros_like));
  state.add("v", parameters.map(zeros_like));
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
  Weights updated, first, second;
  for (const auto& [name, w] : parameters) {
    const Tensor& g = gradients.at(name);
    const DType wide = compute_type(w.dtype());
    const Tensor m = options.beta1 * state.at("m." + name) + (1 - options.beta1) * g;
    const Tensor v = options.beta2 * state.at("v." + name) + (1 - options.beta2) * square(g);
    // learning_rate * m_hat / (sqrt(v_hat) + epsilon), with the corrections as factors that are the
    // same for all elements.
    const Tensor rate = options.learning_rate / correction(options.beta1, wide);
    const Tensor scale = rsqrt(correction(options.beta2, wide));
    const Tensor move = rate * cast(m, wide) / (sqrt(cast(v, wide)) * scale + options.epsilon);
    const Tensor kept = cast(w, wide) * (1 - options.learning_rate * options.weight_decay);
    updated.add(name, cast(kept - move, w.dtype()));
    first.add(name, m);
    second.add(name, v);
  }
  Weights next;
  next.add("step", step);
  next.add("m", first);
  next.add("v", second);
  return {updated, next};
}

}  // namespace braze::optim
