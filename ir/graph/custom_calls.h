// custom_calls.h — the functions of the host program that graphs call by name.
//
// One table for the process. A name has at most one function for memory of the host and one for
// CUDA streams, and a function stays for the life of the process, so nothing that found it can lose
// it. All functions here are thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "braze/custom_arguments.h"
#include "braze/error.h"
#include "ir/ops/custom_call.h"

namespace braze {

namespace codes {
inline constexpr Code kNoCustomFunction{
    "no-custom-function", ErrorKind::InvalidArgument,
    "A graph calls a function of the host program that is not registered."};
inline constexpr Code kCustomFunctionTwice{
    "custom-function-twice", ErrorKind::InvalidArgument,
    "A function of the host program is registered under a name that another has."};
inline constexpr Code kBadCustomFunction{"bad-custom-function", ErrorKind::InvalidArgument,
                                         "A function of the host program cannot be registered."};
inline constexpr Code kCustomCallFailed{"custom-call-failed", ErrorKind::InvalidArgument,
                                        "A function of the host program reported an error."};
}  // namespace codes

/// The memory that a function works on.
enum class CustomMemory : uint8_t {
  Host,  ///< of the host: CPUs, simulators and the interpreter
  Cuda,  ///< of a GPU, in the order of a CUDA stream
};

/// Throws kBadCustomFunction for an empty name or function, and kCustomFunctionTwice if the name
/// has a function for this memory already.
void add_custom_function(std::string target, CustomMemory memory, CustomFunction function);
/// Null if there is none.
std::shared_ptr<const CustomFunction> find_custom_function(std::string_view target,
                                                           CustomMemory memory);
/// The names of all functions for this memory, sorted.
std::vector<std::string> custom_function_names(CustomMemory memory);

/// The function that `op` calls on `device`. Throws kNoCustomFunction, which says how to register
/// it.
std::shared_ptr<const CustomFunction> need_custom_function(const CustomCallOp& op,
                                                           CustomMemory memory,
                                                           std::string_view device,
                                                           ErrorContext context);

/// Makes the call. What the function returns or throws becomes a kCustomCallFailed with `context`.
void call_custom_function(const CustomFunction& function, const CustomArguments& arguments,
                          ErrorContext context);

}  // namespace braze
