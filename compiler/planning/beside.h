// beside.h — how many multiprocessors the collectives of a program take from the kernels that run
// at the same time.
//
// NCCL's blocks hold a multiprocessor each until the exchange is over, also while they wait for
// other GPUs. A kernel whose blocks fill the machine once then runs twice as long: as many of its
// blocks as find no room run after the others, whether they are one or sixteen. With few blocks, a
// collective takes longer, but many kernels leave so few multiprocessors free anyway, so that what
// runs beside it takes no longer. What is best follows from the kernels of the program, so it is
// decided here by a price. All devices do the same, because they have one program.
#pragma once

#include <span>

#include "ir/program/program.h"

namespace braze {

/// The first launch after a collective that reads or writes what it makes; the number of launches
/// if there is none.
uint32_t first_user(const Program& program, uint32_t collective);

/// Sets `Collective::blocks` of the launches of a program for GPUs. `seconds` holds the least
/// time of each launch that is a kernel.
void choose_blocks_of_collectives(Program& program, std::span<const double> seconds);

}  // namespace braze
