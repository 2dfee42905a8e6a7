// mpi.h — ranks that MPI started, or that run under it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braze/error.h"
#include "runtime/ranks/board.h"

namespace braze {

namespace codes {
inline constexpr Code kNoMpi{"no-mpi", ErrorKind::Unsupported,
                             "MPI, by which processes were started, cannot be used."};
inline constexpr Code kMpi{"mpi", ErrorKind::Device, "MPI failed."};
}  // namespace codes

/// Whether MPI runs in this process already. It is not begun by this.
bool is_mpi_up();

/// The plugins for MPI that are there, by file.
std::vector<std::string> mpi_plugins();

/// The ranks of MPI's world. Throws kNoMpi, with what is missing and what works without.
std::unique_ptr<Board> meet_by_mpi();

}  // namespace braze
