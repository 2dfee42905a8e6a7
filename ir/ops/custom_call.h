// custom_call.h — which function of the host program an op calls.
#pragma once

#include <string>

namespace braze {

/// A call of a function that the host program has registered under the name `target`
/// (braze/custom_function.h). The function reads the operands and writes the result, all of them
/// dense tensors in memory. Without side effects, equal calls may become one, a call whose result
/// nothing needs is not made, and a call may be made again to save memory. A call with side
/// effects is made exactly once each time the graph runs.
struct CustomCallOp {
  std::string target;
  std::string attributes = {};  ///< any bytes, which the function gets as they are
  bool has_side_effects = false;
  friend bool operator==(const CustomCallOp&, const CustomCallOp&) = default;
};

}  // namespace braze
