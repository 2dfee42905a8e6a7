// single_launches.h — each launch of a program as a program of its own, with the graph of what it
// computes. It serves whoever judges the kernels of a program one by one.
#pragma once

#include <string>
#include <vector>

#include "braze/compile.h"
#include "compiler/planning/plan.h"
#include "ir/graph/reference.h"
#include "ir/program/program.h"

namespace braze {

/// One launch. Its kernel is the one of the whole program, with the same code. If it updates an
/// input in place there, it does so here.
struct SingleLaunch {
  std::string name;                  ///< of the kernel
  std::vector<std::string> members;  ///< as of Launch
  size_t nodes = 0;                  ///< that it computes
  /// Its inputs are the values that the launch reads, followed by one of shape [size, 0] for each
  /// symbol of the whole graph. Its outputs are the values that the launch writes.
  Graph graph;
  Leeways leeways;             ///< of the nodes of `graph`, as the whole graph decides them
  Program program;             ///< for the same inputs and outputs
  std::vector<NodeId> values;  ///< nodes of the whole graph behind the first inputs of `graph`
};

/// All launches of kernels. Copies and collectives are left out.
struct SingleLaunches {
  Graph graph;  ///< the whole graph after the passes, which may change the shapes of its inputs
  std::vector<SingleLaunch> launches;
};

/// Takes the launches of a program apart. The arguments are those from which `plan` makes it, the
/// whole graph with its lines and the precision.
SingleLaunches single_launches(const Graph& graph, const std::vector<CompiledFusion>& fusions,
                               const std::vector<std::vector<size_t>>& launches,
                               const Updates& updates, const Target& target, Precision precision);

/// Compiles a graph as `compile` does, and takes the program apart. It throws what `compile`
/// throws. The target may not be the interpreter, which has no kernels.
SingleLaunches compile_single_launches(const Graph& graph, const Target& target,
                                       const CompileOptions& options = {});

}  // namespace braze
