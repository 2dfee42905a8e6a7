// autodiff.h — derivatives. `grad` and `value_and_grad` make functions that compute gradients, and
// `checkpoint` makes gradients use less memory at the cost of time.
//
// Differentiation is in reverse mode on the graph. Nothing is recorded while a function runs. The
// gradient is a larger graph, which can be differentiated again. Use both inside a `jit` function:
//
//   auto step = jit([](Weights w, Tensor x, Tensor y) {
//     auto loss = [](Weights w, Tensor x, Tensor y) { return nn::mse(nn::linear(w, x), y); };
//     auto [value, gradient] = value_and_grad(loss)(w, x, y);
//     return std::tuple{optim::sgd(w, gradient, {.learning_rate = 0.1}), value};
//   });
//
// Paths that are not differentiable (integers, comparisons, rounding, `stop_gradient`) contribute
// zero. The gradient of max and min is split equally among equal elements. A gradient has the dtype
// of its value. 16-bit floats are computed in f32 inside each op.
#pragma once

#include <cstddef>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "braze/collectives.h"
#include "braze/tensor.h"
#include "braze/tree.h"

namespace braze {

namespace detail {

/// New inputs of the same types. They distinguish an argument from equal values elsewhere. It
/// throws InvalidArgument if one is not floating.
std::vector<Tensor> stand_ins(const std::vector<Tensor>& arguments, std::source_location where);
/// d loss / d inputs. It throws InvalidArgument unless `loss` is a floating scalar.
std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& inputs,
                              std::source_location where);
/// `values` with each stand-in replaced by its argument.
std::vector<Tensor> substitute(const std::vector<Tensor>& values,
                               const std::vector<Tensor>& stand_ins,
                               const std::vector<Tensor>& arguments);

/// The number of nodes of the graph under construction.
size_t graph_size(std::source_location where);
/// `values` with a mark for gradients, which compute again all nodes that the graph got after its
/// first `begin` nodes.
std::vector<Tensor> recomputed(const std::vector<Tensor>& values, size_t begin,
                               std::source_location where);

inline const Tensor& loss_of(const Tensor& value) { return value; }
template <class... Parts>
const Tensor& loss_of(const std::tuple<Tensor, Parts...>& value) {
  return std::get<0>(value);
}
template <class Rest>
const Tensor& loss_of(const std::pair<Tensor, Rest>& value) {
  return value.first;
}

template <size_t... Chosen, class F, class... Arguments>
auto differentiate(const F& function, std::source_location where, const Arguments&... arguments) {
  const auto given = std::tie(arguments...);
  std::vector<Tensor> actual;
  auto append = [&actual](const Tensor& leaf) { actual.push_back(leaf); };
  (Tree<std::remove_cvref_t<decltype(std::get<Chosen>(given))>>::each(std::get<Chosen>(given),
                                                                      append),
   ...);
  const std::vector<Tensor> inputs = stand_ins(actual, where);

  std::tuple<Arguments...> replaced(arguments...);
  size_t next = 0;
  ((std::get<Chosen>(replaced) = refill<Tensor>(std::get<Chosen>(given), inputs, next)), ...);
  const auto value = std::apply(function, replaced);
  using Value = std::remove_cvref_t<decltype(value)>;

  std::vector<Tensor> all = leaves<Tensor>(value);
  const size_t value_leaves = all.size();
  all[0] = device_mean(loss_of(value), where);
  const std::vector<Tensor> gradient = gradients(all[0], inputs, where);
  all.insert(all.end(), gradient.begin(), gradient.end());
  all = substitute(all, inputs, actual);

  next = 0;
  Value result = refill<Tensor>(value, all, next);
  next = value_leaves;
  auto take = [&](const auto& argument) { return refill<Tensor>(argument, all, next); };
  if constexpr (sizeof...(Chosen) == 1)
    return std::pair<Value,
                     std::tuple_element_t<
                         0, std::tuple<std::remove_cvref_t<decltype(std::get<Chosen>(given))>...>>>(
        std::move(result), take(std::get<Chosen>(given))...);
  else
    return std::pair(std::move(result),
                     std::tuple<std::remove_cvref_t<decltype(std::get<Chosen>(given))>...>{
                         take(std::get<Chosen>(given))...});
}

}  // namespace detail

/// Makes a function with the arguments of `function` that returns the pair of its value and its
/// gradient. `function` must return a floating scalar, or a pair or tuple that begins with one. The
/// other parts are returned beside it. The gradient has the structure of the chosen argument. If
/// several arguments are chosen, as in `value_and_grad<0, 2>(f)`, it is a tuple. By default the
/// first argument is chosen.
template <size_t... Chosen, class F>
auto value_and_grad(F function, std::source_location where = std::source_location::current()) {
  return [function = std::move(function), where](const auto&... arguments) {
    if constexpr (sizeof...(Chosen) == 0)
      return detail::differentiate<0>(function, where, arguments...);
    else
      return detail::differentiate<Chosen...>(function, where, arguments...);
  };
}

/// Makes a function that returns only the gradient.
template <size_t... Chosen, class F>
auto grad(F function, std::source_location where = std::source_location::current()) {
  return [both = value_and_grad<Chosen...>(std::move(function), where)](const auto&... arguments) {
    return both(arguments...).second;
  };
}

/// Makes a function with the arguments and values of `function`. A gradient through it keeps only
/// the arguments. It computes the values inside again when it needs them, and they use memory only
/// then. Values and gradients are the same. Use it for the layers of a deep model:
///
///   for (const Weights& layer : layers) x = checkpoint(block)(layer, x);
template <class F>
auto checkpoint(F function, std::source_location where = std::source_location::current()) {
  return [function = std::move(function), where](const auto&... arguments) {
    const size_t begin = detail::graph_size(where);
    const auto value = function(arguments...);
    const std::vector<Tensor> marked =
        detail::recomputed(detail::leaves<Tensor>(value), begin, where);
    size_t next = 0;
    return detail::refill<Tensor>(value, marked, next);
  };
}

}  // namespace braze
