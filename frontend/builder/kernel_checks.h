// kernel_checks.h — judges every kernel of a program alone, on exact inputs.
//
// The bounds of a whole network's results say nothing, because each layer widens them. Those of one
// kernel are tight. So every kernel runs by itself, on the values that the interpreter computes for
// its inputs, and its results are judged by the bounds of what it alone computes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "braze/compile.h"
#include "braze/device.h"
#include "compiler/planning/single_launches.h"
#include "ir/graph/check.h"

namespace braze {

/// The verdict on one kernel, or on equal ones that are launched together.
struct KernelCheck {
  std::string kernel;                ///< its name
  std::vector<std::string> members;  ///< the names of equal kernels; empty for a single one
  size_t nodes = 0;                  ///< of the graph after the passes that it computes
  CheckResult result;                ///< of the values that it writes

  /// The median error of a judged element, divided by its bound; negative if no element has a
  /// bound. It is the smallest of all values. Near 0, the bounds are too wide to tell much.
  double tightness() const;
};

/// Compiles `graph` for the device, and judges all kernels of the program for these inputs, in the
/// order of their launches. What the passes of the compiler do to the graph is not judged, nor are
/// copies. It needs memory for all values that the program stores. Throws what `compile` and
/// `interpret` throw.
std::vector<KernelCheck> check_kernels(const Graph& graph, std::span<const HostTensor> inputs,
                                       const Device& device, const CompileOptions& options = {});

/// The same for launches that were compiled before. `inputs` are those of `all.graph`.
std::vector<KernelCheck> check_kernels(const SingleLaunches& all,
                                       std::span<const HostTensor> inputs, const Device& device);

}  // namespace braze
