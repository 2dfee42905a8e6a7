// ranks.h — the processes that run one program together.
//
//   mpirun -n 4 program                                  // or torchrun, srun, BRAZE_RANK ...
//   Mesh mesh({{"data", rank_count()}});                 // in it: the devices of all of them
//
// A process looks for the others when a Mesh, or one of these functions, first asks for them. How
// they find each other: docs/guides/many_devices.md.
#pragma once

namespace braze {

/// Which of the processes this one is, from 0; 0 in a process alone.
int this_rank();

/// How many there are; 1 for a process alone.
int rank_count();

/// Blocks until all of them have called it. Throws if one of them has failed, died or ended.
void rank_barrier();

}  // namespace braze
