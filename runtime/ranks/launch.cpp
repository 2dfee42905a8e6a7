#include "runtime/ranks/launch.h"

#include <charconv>
#include <cstdlib>

#include "ir/support/env.h"
#include "ir/support/text.h"
#include "runtime/ranks/mpi.h"

namespace braze {

namespace {

constexpr int kMostRanks = 1 << 16;

[[noreturn]] void refuse(std::string message, std::string fix = "") {
  fail(codes::kBadRanks, std::move(message), {.location = {}, .node = "", .fix = std::move(fix)});
}

/// The names of the variables that a launcher sets.
struct Launcher {
  const char* name;
  const char *rank, *count, *local;  // `local` is null if the launcher does not set it
  const char* run[2];  // both together name the run; null if there is no such variable
};

// Slurm sets the variables of a step only for processes that srun starts.
constexpr Launcher kOwn = {"BRAZE_RANK", kEnvRank.name, kEnvWorld.name, nullptr, {}};
constexpr Launcher kTorchrun = {"torchrun",
                                "RANK",
                                "WORLD_SIZE",
                                "LOCAL_RANK",
                                {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}};
constexpr Launcher kSlurm = {"srun",
                             "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_LOCALID",
                             {"SLURM_JOB_ID", "SLURM_STEP_ID"}};

int number(const Variables& variables, const char* name, int least, int most) {
  const std::string text = variables(name).value_or("");
  int value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < least || value > most)
    refuse(fmt::format("{} is {}, and has to be a number from {} to {}", name, quote(text), least,
                       most));
  return value;
}

std::optional<int> local_place(const Variables& variables) {
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID"})
    if (variables(name)) return number(variables, name, 0, kMostRanks);
  return std::nullopt;
}

void read_ranks(const Variables& variables, const Launcher& launcher, Launched& out) {
  out.launcher = launcher.name;
  out.count = number(variables, launcher.count, 1, kMostRanks);
  out.rank = number(variables, launcher.rank, 0, out.count - 1);
}

}  // namespace

Launched read_launch(const Variables& variables, bool mpi_is_up) {
  Launched out;
  out.local = local_place(variables);
  const std::optional<std::string> folder = variables(kEnvRendezvous.name);
  // Braze's own variables come first.
  if (variables(kEnvRank.name) || variables(kEnvWorld.name)) {
    if (!variables(kEnvRank.name) || !variables(kEnvWorld.name))
      refuse(fmt::format("{} and {} are set both or neither", kEnvRank.name, kEnvWorld.name));
    read_ranks(variables, kOwn, out);
    if (out.count == 1) return out;
    if (!folder)
      refuse(fmt::format("{} says that there are {} processes, and {} does not say where they meet",
                         kEnvWorld.name, out.count, kEnvRendezvous.name),
             fmt::format("set {} to a folder that all of them see, new for each run",
                         kEnvRendezvous.name));
    out.meeting = Launched::Meeting::Folder;
    out.folder = *folder;
    return out;
  }
  const bool by_mpirun = variables("OMPI_COMM_WORLD_SIZE") || variables("PMI_SIZE") ||
                         variables("PMIX_RANK") || variables("PMI_RANK");
  if ((by_mpirun || mpi_is_up) && variables(kEnvMpi.name) != "none") {
    out.meeting = Launched::Meeting::Mpi;
    out.launcher = by_mpirun ? "mpirun" : "MPI";
    return out;
  }
  for (const Launcher& launcher : {kTorchrun, kSlurm}) {
    if (!variables(launcher.rank) || !variables(launcher.count)) continue;
    read_ranks(variables, launcher, out);
    if (out.count == 1) return out;
    if (!folder) {
      out.alone = fmt::format("{} started {} processes, and {} does not say where they meet",
                              launcher.name, out.count, kEnvRendezvous.name);
      out.rank = 0;
      out.count = 1;
      return out;
    }
    out.meeting = Launched::Meeting::Folder;
    out.folder = *folder + "/run";
    for (const char* part : launcher.run)
      if (const auto value = variables(part)) out.folder += "." + *value;
    return out;
  }
  return out;
}

const Launched& launched() {
  static const Launched read = read_launch(
      [](const char* name) -> std::optional<std::string> {
        const char* const value = std::getenv(name);
        if (!value || !*value) return std::nullopt;
        return value;
      },
      is_mpi_up());
  return read;
}

}  // namespace braze
