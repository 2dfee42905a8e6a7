#include "braze/optim.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>

#include "braze/creation.h"
#include "braze/elementwise.h"
#include "braze/jit.h"
#include "braze/spmd.h"
#include "frontend/builder/builder.h"
#include "ir/support/text.h"
#include "runtime/mesh/mesh_state.h"

namespace braze::optim {
namespace {

DType wide_type(const Tensor& x) { return compute_type(x.dtype()); }
Tensor widened(const Tensor& x) { return cast(x, wide_type(x)); }

/// The device of the array. If the array is spread, it is the device of the first shard.
Device device_of(const Array& array) { return array.shards()[0].device(); }
Device device_of(const Parameters& parameters) {
  return parameters.empty() ? default_device() : device_of(parameters.begin()->second);
}

/// Zeros of the compute type, spread like the array.
Array wide_zeros_like(const Array& array) {
  const Array zero = zeros(array.shape(), compute_type(array.dtype()), device_of(array));
  return array.is_spread() ? zero.to(array.spread()->mesh, array.sharding()) : zero;
}

std::string master_name(const std::string& name) { return "master." + name; }

void add_master_weights(Parameters& state, const Parameters& parameters,
                        const StateOptions& options) {
  static const auto widen = jit([](Tensor x) { return widened(x); });
  if (!options.master_weights) return;
  // The result is spread like the array.
  const auto widen_parts = [](const Array& array) {
    return distribute([](Tensor x) { return widened(x); }, array.spread()->mesh)(array);
  };
  for (const auto& [name, array] : parameters)
    if (is_half(array.dtype()))
      state.add(master_name(name), array.is_spread() ? widen_parts(array) : widen(array));
}

/// The part of `state` with this name. Its dtype must be the one in which steps of `w` are
/// computed.
const Tensor& state_of(const Weights& state, const std::string& name, const Tensor& w) {
  const Tensor& value = state.at(name);
  if (value.dtype() == wide_type(w)) return value;
  const SourceLocation at = detail::place(Where::current());
  fail(codes::kDTypeMismatch,
       fmt::format("the optimizer's state {} is {}, not {}", name, value.to_string(),
                   braze::name(wide_type(w))),
       {.location = at, .fix = "make the state with the optimizer's own function"});
}

/// The parameters after `step`, and their master copies if `state` has them. `step` computes the
/// next value of a parameter from its name, value and gradient. It computes in the wide dtype.
struct Stepped {
  Weights parameters, masters;

  template <class Step>
  Stepped(const Weights& before, const Weights& gradients, const Weights& state, Step step) {
    // `zip` checks that the names agree.
    before.zip(gradients, [](const Tensor&, const Tensor& g) { return g; });
    for (const auto& [name, w] : before) {
      const bool has_master = state.contains(master_name(name));
      const Tensor value = has_master ? state_of(state, master_name(name), w) : widened(w);
      const Tensor next = step(name, value, cast(gradients.at(name), wide_type(w)));
      parameters.add(name, cast(next, w.dtype()));
      if (has_master) masters.add(name, next);
    }
  }
};

/// A number or Tensor that an optimizer takes. Formulas of numbers are computed here in f64, so
/// that they are rounded once. Formulas of Tensors are computed in the graph.
class Option {
 public:
  Option(const char* name, const Operand& value) : value_(value) {
    if (is_number()) {
      number_ =
          value.kind() == Operand::Kind::Real ? value.real() : static_cast<double>(value.integer());
      return;
    }
    const bool is_array = value.kind() == Operand::Kind::Array;
    const Tensor& tensor = value.tensor();
    if (!is_array && tensor.valid() && tensor.rank() == 0 &&
        (tensor.is_number() || is_floating(tensor.dtype())))
      return;
    fail(
        codes::kBadAttribute,
        fmt::format("the optimizer's {} is {}, but must be a number or a floating Tensor of rank 0",
                    name, is_array ? "an Array" : tensor.to_string()),
        {.location = detail::place(value.where()),
         .fix = is_array ? "make the Array an argument of the function, and pass the Tensor that "
                           "the function gets"
                         : "reshape it to {}, or cast it to f32"});
  }

  bool is_number() const {
    return value_.kind() != Operand::Kind::Tensor && value_.kind() != Operand::Kind::Array;
  }
  double number() const { return number_; }
  bool is(double number) const { return is_number() && number_ == number; }
  /// The value in `dtype`.
  Operand in(DType dtype) const {
    return is_number() ? Operand(number_) : Operand(cast(value_.tensor(), dtype));
  }
  /// `formula` applied to the value. It takes and returns a double or a Tensor.
  template <class Formula>
  Operand of(DType dtype, Formula formula) const {
    return is_number() ? Operand(formula(number_)) : Operand(formula(cast(value_.tensor(), dtype)));
  }

 private:
  Operand value_;
  double number_ = 0;
};

constexpr auto kRest = [](const auto& share) { return 1 - share; };

/// 1 - rate * decay.
Operand shrinking(const Option& rate, const Option& decay, DType dtype) {
  if (rate.is_number())
    return decay.of(dtype, [r = rate.number()](const auto& d) { return 1 - r * d; });
  return 1 - rate.in(dtype).tensor() * decay.in(dtype);
}

/// The gradient, to which a weight decay has been added.
Tensor decayed(const Tensor& g, const Option& decay, const Tensor& w) {
  return decay.is(0) ? g : g + decay.in(w.dtype()) * w;
}

}  // namespace

Weights sgd(const Weights& parameters, const Weights& gradients, const SgdOptions& options,
            Where where) {
  const detail::Place place(where);
  const Option rate("learning_rate", options.learning_rate);
  const Option decay("weight_decay", options.weight_decay);
  return Stepped(parameters, gradients, {},
                 [&](const std::string&, const Tensor& w, const Tensor& g) {
                   return w - rate.in(w.dtype()) * decayed(g, decay, w);
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
  const Option rate("learning_rate", options.learning_rate);
  const Option stays("momentum", options.momentum);
  const Option decay("weight_decay", options.weight_decay);
  Weights velocities;
  const auto step = [&](const std::string& name, const Tensor& w, const Tensor& g) {
    const Tensor slope = decayed(g, decay, w);
    const Operand share = stays.in(w.dtype());
    const Tensor v = share * state_of(state, "v." + name, w) + slope;
    velocities.add(name, v);
    return w - rate.in(w.dtype()) * (options.nesterov ? slope + share * v : v);
  };
  const Stepped stepped(parameters, gradients, state, step);
  Weights next;
  next.add("v", velocities);
  next.add("master", stepped.masters);
  return {stepped.parameters, next};
}

Parameters adamw_state(const Parameters& parameters, const StateOptions& options) {
  Parameters state;
  state.add("step", zeros({}, i64, device_of(parameters)));
  state.add("m", parameters.map(wide_zeros_like));
  state.add("v", parameters.map(wide_zeros_like));
  add_master_weights(state, parameters, options);
  return state;
}

std::pair<Weights, Weights> adamw(const Weights& parameters, const Weights& gradients,
                                  const Weights& state, const AdamWOptions& options, Where where) {
  const detail::Place place(where);
  const Option learning_rate("learning_rate", options.learning_rate);
  const Option beta1("beta1", options.beta1), beta2("beta2", options.beta2);
  const Option epsilon("epsilon", options.epsilon), decay("weight_decay", options.weight_decay);
  const Tensor step = state.at("step") + 1;
  // 1 - beta^step. In the first steps beta^step is near 1, so `expm1` keeps its precision.
  const auto correction = [&](const Option& beta, DType dtype) {
    return -expm1(cast(step, dtype) * beta.of(dtype, [](const auto& b) {
      using std::log;
      return log(b);
    }));
  };
  Weights first, second;
  const auto update = [&](const std::string& name, const Tensor& w, const Tensor& g) {
    const DType dtype = w.dtype();
    const Tensor m = beta1.in(dtype)*state_of(state, "m." + name, w) + beta1.of(dtype, kRest) * g;
    const Tensor v =
        beta2.in(dtype)*state_of(state, "v." + name, w) + beta2.of(dtype, kRest) * square(g);
    first.add(name, m);
    second.add(name, v);
    // This is learning_rate * m_hat / (sqrt(v_hat) + epsilon). The corrections are factors that are
    // the same for all elements.
    const Tensor rate = learning_rate.in(dtype) / correction(beta1, dtype);
    const Tensor scale = rsqrt(correction(beta2, dtype));
    const Tensor move = rate * m / (sqrt(v) * scale + epsilon.in(dtype));
    return w * shrinking(learning_rate, decay, dtype) - move;
  };
  const Stepped stepped(parameters, gradients, state, update);
  Weights next;
  next.add("step", step);
  next.add("m", first);
  next.add("v", second);
  next.add("master", stepped.masters);
  return {stepped.parameters, next};
}

// ---- Schedules --------------------------------------------------------------------------------

namespace {

// These do for numbers what the elementwise functions do for Tensors.
double minimum(double x, double y) { return std::min(x, y); }
double where(bool condition, double x, double y) { return condition ? x : y; }

double checked_steps(const char* schedule, int64_t steps) {
  if (steps < 1)
    fail(codes::kBadAttribute,
         fmt::format("{}: the number of steps must be at least 1, not {}", schedule, steps), {});
  return static_cast<double>(steps);
}

}  // namespace

Tensor Schedule::operator()(const Tensor& steps, Where where) const {
  const detail::Place place(where, "a schedule");
  if (!steps.valid() || steps.rank() != 0 || !is_integer(steps.dtype()))
    fail(codes::kBadAttribute,
         fmt::format("a schedule takes an integer scalar, not {}", steps.to_string()),
         {.location = detail::place(where)});
  return of_tensor_(detail::as_number(cast(steps, f64)));
}

Schedule constant(double value) {
  return [value](const auto& step) { return step * 0 + value; };
}

Schedule cosine(double first, int64_t steps, double last) {
  return [first, last, count = checked_steps("cosine", steps)](const auto& step) {
    using std::cos;
    return last + (first - last) * 0.5 * (1 + cos(minimum(step / count, 1.0) * std::numbers::pi));
  };
}

Schedule step_decay(double first, int64_t interval, double factor) {
  return [first, factor, count = checked_steps("step_decay", interval)](const auto& step) {
    using std::floor, std::pow;
    return first * pow(factor, floor(step / count));
  };
}

Schedule warmup(int64_t steps, const Schedule& after) {
  return [after, peak = after(0), count = checked_steps("warmup", steps)](const auto& step) {
    return where(step < count, peak * minimum((step + 1) / count, 1.0), after.at(step - count));
  };
}

// ---- Gradients before the step ----------------------------------------------------------------

Tensor global_norm(const Weights& gradients, Where where) {
  const detail::Place place(where);
  if (gradients.empty())
    fail(codes::kBadAttribute, "global_norm: there are no gradients",
         {.location = detail::place(where)});
  DType wide = f32;
  for (const auto& item : gradients)
    if (wide_type(item.second) == f64) wide = f64;
  Tensor sum_of_squares = full(wide, {}, 0);
  for (const auto& item : gradients)
    sum_of_squares += cast(sum(square(widened(item.second))), wide);
  return sqrt(sum_of_squares);
}

Weights clip_by_global_norm(const Weights& gradients, const Operand& max_norm, Where where) {
  const detail::Place place(where);
  const Tensor norm = global_norm(gradients);
  const Operand most = Option("max_norm", max_norm).in(norm.dtype());
  const Tensor factor = braze::where(norm > most, most / norm, 1);
  return gradients.map([&](const Tensor& g) {
    const Tensor wide = widened(g);
    return cast(wide * cast(factor, wide.dtype()), g.dtype());
  });
}

Parameters accumulation_state(const Parameters& parameters) {
  Parameters state;
  state.add("count", zeros({}, i64, device_of(parameters)));
  state.add("sum", parameters.map(wide_zeros_like));
  return state;
}

Accumulated accumulate(const Weights& gradients, const Weights& state, int64_t every, Where where) {
  const detail::Place place(where);
  const double calls = checked_steps("accumulate", every);
  const Tensor count = state.at("count") + 1;
  Accumulated out;
  out.ready = count >= every;
  Weights sums;
  for (const auto& [name, g] : gradients) {
    const Tensor total = state_of(state, "sum." + name, g) + widened(g);
    out.gradients.add(name, total / calls);
    sums.add(name, braze::where(out.ready, 0, total));
  }
  out.state.add("count", braze::where(out.ready, 0, count));
  out.state.add("sum", sums);
  return out;
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
  out.finite = full(boolean, {}, 1);
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
  const Tensor grown = braze::where(grows, factor * options.growth, factor);
  // If the next scale would not be finite, the scale stays as it is.
  const Tensor kept = braze::where(grown < INFINITY, grown, factor);
  out.scale.add("scale", braze::where(finite, kept, factor * options.backoff));
  out.scale.add("steps", braze::where(finite & !grows, steps, 0));
  return out;
}

Weights where(const Tensor& condition, const Weights& chosen, const Weights& other, Where where) {
  const detail::Place place(where);
  return chosen.zip(
      other, [&](const Tensor& x, const Tensor& y) { return braze::where(condition, x, y); });
}

}  // namespace braze::optim
