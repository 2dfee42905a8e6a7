// kernels_p.h — from the Fusions of a graph to their kernels.
//
// Each Fusion becomes a loop tree, rules schedule the tree, one walk over it emits a tile program,
// and lowering makes the kernel. All kernels are made at the same time, those whose first trees are
// alike (compiler/loops/alike.h) once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "braze/compile.h"
#include "compiler/fusion/partition.h"
#include "compiler/loops/tile_loops.h"
#include "compiler/phases_p.h"
#include "compiler/planning/equal.h"
#include "compiler/planning/plan.h"

namespace braze {

/// What the steps behind the partition of a graph share.
struct Compilation {
  const LoopForms& forms;
  const Target& target;
  const CompileOptions& options;
  const Updates& updates;
  /// By node: whether no kernel writes its memory, so that a kernel can load it before the kernel
  /// before it has ended. Empty if no kernel of the target begins so early.
  const std::vector<bool>& unwritten;
  PhaseViewers& viewers;
};

/// A kernel before it is scheduled.
struct Unscheduled {
  LoopTree tree;
  /// The first kernel whose tree is alike. Its steps, tiles and code serve this kernel too.
  size_t like = 0;
};

/// The kernels of a graph, before it is decided which of them are launched together.
struct Kernels {
  std::vector<CompiledFusion> fusions;  ///< all of the partition, collectives too
  std::vector<KernelKey> keys;          ///< by fusion
  std::vector<size_t> numbers;          ///< by kernel: the number of its fusion
  std::vector<Unscheduled> first;       ///< by kernel
};

/// Makes the kernels. Throws InvalidArgument for a schedule of the user that names no kernel or
/// makes none.
Kernels make_kernels(const Compilation& compilation, const Partition& parts);

/// The schedule that the user gave for a kernel; null if there is none.
const std::string* given_schedule(const CompileOptions& options, const std::string& kernel);

/// Lowers a tile program to a kernel and shows it to the viewers. The kernel is not verified yet.
/// `unwritten` says of its parameters whether their values can be loaded before the kernel waits
/// for others.
Kernel lower_shown(const TileProgram& program, const Target& target, PhaseViewers& viewers,
                   const std::vector<bool>* unwritten = nullptr);

/// Does so with the tile program of a scheduled tree. If the kernel, which takes about so many
/// seconds, should begin before the kernel before it has ended, it does. `is_unwritten` says of a
/// parameter, by its number, whether no kernel writes its memory.
Kernel lower_tiling(const Compilation& compilation, TreeTiling& tiling, double seconds,
                    const std::function<bool(size_t)>& is_unwritten);

}  // namespace braze
