// custom_call.h — calls of functions of the host program inside of compiled functions.
//
//   auto f = jit([](Tensor x) {
//     return 2.0 * custom_call("my.cumsum", {x + 1.0}, x.dtype(), x.shape());
//   });
//
// custom_function.h registers the functions. docs/guides/custom_calls.md has the whole story.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "braze/custom_function.h"
#include "braze/tensor.h"

namespace braze {

/// The gradients of a custom call's operands, in order, for the gradient of its result. Each has
/// the type of its operand, and is an empty Tensor for an operand without a gradient.
using CustomGradient = std::function<std::vector<Tensor>(
    const std::vector<Tensor>& operands, const Tensor& result, const Tensor& gradient)>;

/// How a function of the host program is called.
struct CustomCallOptions {
  /// Bytes that the function gets as they are, such as a text of settings.
  std::string attributes = {};
  /// The call is made exactly once each time the function runs, also if nothing needs its result. A
  /// gradient through a `checkpoint` around it is an error, because that would call it again.
  /// Otherwise equal calls may become one, a call that nothing needs is not made, and a call may be
  /// made again to save memory (`checkpoint`).
  bool side_effects = false;
  /// For `grad` and `value_and_grad`: without it, a call through which a gradient would flow is the
  /// error `not-differentiable`. In one function, calls of the same name with the same attributes
  /// have the gradient of the first that gives one.
  CustomGradient gradient = {};
};

/// The tensor of this type that the registered function `name` makes of the operands. The call is
/// no part of any kernel: operands and result are dense tensors in memory, which it reads and
/// writes. There may be no operands. Where the function runs over a mesh, each device calls it on
/// its own tensors. A call with several results returns one tensor that slices cut. InvalidArgument
/// for an empty name, and for operands of other functions.
Tensor custom_call(std::string_view name, const std::vector<Tensor>& operands, DType dtype,
                   const Dims& shape, CustomCallOptions options = {},
                   Where where = Where::current());

}  // namespace braze
