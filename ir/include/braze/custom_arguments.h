// custom_arguments.h — what a function of the host program gets when a graph calls it.
// custom_function.h registers such functions, and custom_call.h calls them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "braze/dtype.h"

namespace braze {

/// A dense row-major tensor in memory that is aligned to 64 bytes: memory of the host, or of the
/// GPU in whose stream the function is called.
struct CustomTensor {
  void* data = nullptr;            ///< the first element; may be null if there are no elements
  DType dtype = DType::F32;        ///< the element type
  std::span<const int64_t> shape;  ///< the extents, outermost first; empty for a scalar
  size_t bytes = 0;                ///< the size of all elements

  /// All elements of host memory, as T, which must be the type of `dtype`.
  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(data), bytes / sizeof(T)};
  }
};

/// One call. Everything in it is valid until the function returns.
struct CustomArguments {
  std::string_view target;                 ///< the name under which the function is registered
  std::string_view attributes;             ///< the bytes that the op gives it
  std::span<const CustomTensor> operands;  ///< must not be written
  CustomTensor result;  ///< must be written, all of it; its bytes begin undefined
  /// The CUstream that the work must be put into; null on the host, where the work must be complete
  /// when the function returns.
  void* stream = nullptr;
};

/// Does one call. It returns "", or the reason why the call failed. It may throw: what a
/// std::exception says becomes the reason.
using CustomFunction = std::function<std::string(const CustomArguments&)>;

}  // namespace braze
