// launch.h — what the launcher says about this process: which of several it is, and how they find
// each other.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "braze/error.h"

namespace braze {

namespace codes {
inline constexpr Code kBadRanks{"bad-ranks", ErrorKind::InvalidArgument,
                                "The environment describes the processes that run a program in a "
                                "way that is not possible."};
}  // namespace codes

/// How a process was started.
struct Launched {
  enum class Meeting { Alone, Folder, Mpi };
  Meeting meeting = Meeting::Alone;
  int rank = 0, count = 1;   ///< Folder
  std::string folder;        ///< Folder: new for each run
  std::optional<int> local;  ///< the place among the processes of this host, if it is known
  std::string launcher;      ///< "mpirun", "torchrun"; empty if unknown
  std::string alone;  ///< for Alone although there are other processes: why, and what would help
};

/// A variable of the environment, nullopt if unset or empty.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// What these variables say. `mpi_is_up` tells whether MPI already runs in this process. Throws
/// kBadRanks.
Launched read_launch(const Variables& variables, bool mpi_is_up);

/// Of this process, read once.
const Launched& launched();

}  // namespace braze
