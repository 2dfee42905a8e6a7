// overlap.h — kernels that begin before the kernels before them have ended.
//
// Between two kernels that follow each other on a GPU, the machine stands still for about a
// microsecond: the last block ends, its stores become visible, and only then the next kernel's
// blocks are placed and compute where they stand. A program of many short kernels spends much of
// its time there. A kernel that waits itself for the kernels before it may be placed earlier, while
// these still run, and loses only the rest of that time.
//
// Why no order is lost:
// - A kernel that waits does so in every block (in each of its roles), before it accesses device
//   memory that others may write (rules T17, G10). The wait ends when the kernel before it has
//   ended and its stores are visible.
// - A kernel has ended only when all its blocks have, so after the kernels for which they waited.
//   Hence, by induction, after a wait all earlier kernels of the queue have ended, and not only the
//   last one. Its stores too come after all earlier loads, so memory that the planner gives to
//   another value is not overwritten early.
// - A kernel that does not wait is launched without the permission to begin early. The same holds
//   for the first launch of a program, and for launches after copies, fills, collectives and
//   kernels that may be empty (plan.cpp). Everything else in the queue begins when the kernels
//   before it have ended.
// - So when a kernel begins early, everything that came before its program has ended. What no
//   kernel of the program writes can be loaded before the wait: inputs that are not updated, such
//   as weights, and constants. Then they are on their way while the kernel before still runs.
// - Blocks that wait take only room that is left when all blocks of the kernel before them have
//   begun (griddep.launch), so they never keep a block from beginning for which they wait. Kernels
//   whose own instances wait for each other (`resident`) do not overlap: some of their blocks might
//   find no room.
// - Caches: what a kernel loads before the kernels before it have ended may be old. Kernels that
//   wait therefore never load past the coherent caches.
#pragma once

#include <vector>

#include "compiler/loops/tree.h"
#include "ir/code/code.h"
#include "ir/graph/graph.h"
#include "ir/target/target.h"

namespace braze {

/// Whether kernels for the target can wait for the kernels before them.
bool can_overlap(const Target& target);

/// Whether a kernel is to begin before the kernels before it have ended: it must be possible, and
/// the kernel so short that it matters. Kernels with products whose factors pass through registers
/// do not: they read them again and again, and past the coherent caches that is faster by more than
/// an early begin gains (steps and blocks of transformers on an H200 were 1.1 to 1.6 times slower).
/// Bulk copies use no such cache. `seconds` is the estimate
/// of its time, 0 if there is none; `tree` is the one that the program was emitted from.
bool should_overlap(const TileProgram& program, const LoopTree& tree, double seconds,
                    const Target& target);

/// Puts an await_predecessors into each phase, before its roles and its first access to device
/// memory.
void await_predecessors(TileProgram& program);

/// By node: whether its memory has values that no kernel of the program writes.
std::vector<bool> unwritten_nodes(const Graph& graph);

/// Moves loads of parameters to a place before the wait of their phase, if they stand in front of
/// its first loop, branch and barrier and nothing decides their addresses that comes after the
/// wait. A thread keeps only so many values that enough blocks have room. The bulk copies with
/// which a role begins to fill the slots of a ring move as well, and then each role has a wait of
/// its own. `unwritten` says of each parameter whether no kernel of the program writes it.
void load_before_waits(Kernel& kernel, const std::vector<bool>& unwritten);

}  // namespace braze
