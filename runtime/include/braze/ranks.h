// ranks.h — the processes that run one program together.
//
//   mpirun -n 4 program                                  // or torchrun, srun, BRAZE_RANK ...
//   Mesh mesh({{"data", rank_count()}});                 // contains devices of all of them
//
// A process looks for the others when a Mesh, or one of these functions, first asks for them. The
// guide docs/guides/many_devices.md says how they find each other.
#pragma once

namespace braze {

/// The number of this process, from 0. It is 0 if the process works alone.
int this_rank();

/// The number of processes. It is 1 if the process works alone.
int rank_count();

/// Blocks until all processes have called it. Throws if one of them has failed, died or ended.
void rank_barrier();

}  // namespace braze
