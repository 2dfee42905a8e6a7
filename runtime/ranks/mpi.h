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
                             "The MPI that started the processes cannot be used."};
inline constexpr Code kMpi{"mpi", ErrorKind::Device, "MPI failed."};
}  // namespace codes

/// Whether MPI already runs in this process. This call does not start it.
bool is_mpi_up();

/// The files of the plugins for MPI that exist here.
std::vector<std::string> mpi_plugins();

/// The ranks of MPI's world. Throws kNoMpi, which says what is missing and what works without it.
std::unique_ptr<Board> meet_by_mpi();

}  // namespace braze
