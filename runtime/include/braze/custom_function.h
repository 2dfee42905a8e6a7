// custom_function.h — functions of the host program that compiled graphs call by name.
//
//   register_custom_call("my.cumsum", DeviceKind::Cpu, [](const CustomArguments& call) {
//     const std::span<const float> x = call.operands[0].as<float>();
//     std::partial_sum(x.begin(), x.end(), call.result.as<float>().begin());
//     return std::string();
//   });
//
// custom_call.h builds the op that calls it, and docs/guides/custom_calls.md has the whole story.
//
// Several threads may call a function at the same time, because devices and streams work beside
// each other; a function with state of its own must guard it. The calling thread works for a
// device: a function must not run programs, read arrays or wait for a device there. A call that
// fails fails the call of the program: reading its results throws the reason, with the user's line.
#pragma once

#include <string>

#include "braze/custom_arguments.h"
#include "braze/device.h"

namespace braze {

/// Registers the function that graphs call by `name` on devices of this kind. With DeviceKind::Cpu
/// it works on memory of the host, and also serves simulators and the interpreter. With
/// DeviceKind::Cuda its operands and result are memory of a GPU, whose context is current. It must
/// put its work into `stream`, and must not wait for the stream.
///
/// The function stays until the process ends. A program is loaded with the functions that are
/// registered then; a missing one is the error `no-custom-function`. Thread-safe. Throws
/// InvalidArgument for another kind, an empty name or function, and a name that this kind of device
/// has already.
void register_custom_call(std::string name, DeviceKind kind, CustomFunction function);

/// Loads a shared library and calls its C function `braze_custom_calls`, which registers functions
/// (braze_custom_library in c.h). The library stays loaded, and its code has the rights of this
/// process. NotFound if the file does not exist; InvalidArgument if it cannot be loaded, has no
/// such function, or its function fails.
void load_custom_calls(const std::string& path);

}  // namespace braze
