// launch.h — reads what the launcher says about this process: its number among several processes,
// and how they find each other.
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
  std::string alone;         ///< for Alone, if there are other processes: the reason, and the fix
};

/// Reads a variable of the environment; nullopt if it is unset or empty.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// Finds out from the variables how a process was started. `mpi_is_up` says whether MPI already
/// runs in it. Throws kBadRanks if the variables contradict each other.
Launched read_launch(const Variables& variables, bool mpi_is_up);

/// How this process was started. The variables are read once.
const Launched& launched();

}  // namespace braze
