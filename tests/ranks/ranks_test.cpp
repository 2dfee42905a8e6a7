// Processes that run one program together: by MPI, with CPU devices, and by a folder, with GPUs of
// the fake driver and its fake NCCL, or with BRAZE_TEST_MESH=cuda with those of this machine. Each
// test starts rank-program (program.cpp) in several processes.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/io/json_value.h"
#include "runtime/ranks/launch.h"
#include "runtime/ranks/mpi.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Environment = std::map<std::string, std::string>;

/// What became of some processes.
struct Outcome {
  std::string output;       // of all
  std::vector<int> status;  // of each: the exit code, or minus the signal
  bool hung = false;
};

/// Runs one command a process, all at once, with these variables more.
Outcome run_all(const std::vector<std::vector<std::string>>& commands,
                const std::vector<Environment>& environments) {
  constexpr auto kDeadline = std::chrono::seconds(90);
  const TemporaryFolder folder;
  const std::string log = folder.path / "log";
  std::ofstream(log).close();
  std::vector<pid_t> children;
  for (size_t i = 0; i < commands.size(); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);  // what a launcher starts ends with it
      if (!std::freopen(log.c_str(), "a", stdout)) _exit(126);
      dup2(STDOUT_FILENO, STDERR_FILENO);
      for (const auto& [name, value] : environments[i]) setenv(name.c_str(), value.c_str(), 1);
      std::vector<char*> words;
      for (const std::string& word : commands[i]) words.push_back(const_cast<char*>(word.c_str()));
      words.push_back(nullptr);
      execvp(words[0], words.data());
      _exit(127);
    }
    children.push_back(child);
  }
  Outcome out;
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  for (const pid_t child : children) {
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        out.hung = true;
        kill(-child, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    out.status.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
  }
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  out.output = text.str();
  return out;
}

bool is_there(const std::string& program) {
  return std::system(("command -v " + program + " > /dev/null 2>&1").c_str()) == 0;
}

/// A variable that has each process write its timeline there.
Environment traces_in(const TemporaryFolder& files) {
  return {{"BRAZE_TRACE", (files.path / "trace-%p.json").string()}};
}

/// How many collectives each row has in the one file that `braze timeline` makes of the timelines
/// there.
std::map<std::string, int> collectives_in(const TemporaryFolder& files) {
  const std::string all_files = files.path / "all.json";
  const std::string command = std::string(BRAZE_TOOL) + " timeline " + files.path.string() +
                              "/trace-*.json -o " + all_files;
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::stringstream text;
  text << std::ifstream(all_files).rdbuf();
  const std::string all = text.str();
  JsonReader reader(all, "all.json");
  const JsonValue events = JsonValue::read(reader);
  std::map<std::string, int> collectives;
  if (!events.list()) return collectives;
  std::map<double, std::string> rows;  // names by numbers of processes
  for (const JsonValue& event : *events.list())
    if (const std::string* kind = event["name"].string(); kind && *kind == "process_name")
      rows[*event["pid"].number()] = *event["args"]["name"].string();
  for (const JsonValue& event : *events.list())
    if (const std::string* kind = event["cat"].string(); kind && *kind == "collective")
      ++collectives[rows[*event["pid"].number()]];
  return collectives;
}

// ---- A folder, with GPUs ------------------------------------------------------------------------

bool on_real_gpus() {
  const char* text = std::getenv("BRAZE_TEST_MESH");
  return text && std::string(text) == "cuda";
}

/// Whether processes can have so many GPUs together, each its own.
bool has_gpus(int count) {
  const std::string command =
      std::string(BRAZE_TOOL) + " devices | grep -q '^  cuda:" + std::to_string(count - 1) + " '";
  return !on_real_gpus() || std::system(command.c_str()) == 0;
}

/// The examples over a mesh of two GPUs; the smallest alone on those of the fake driver, where all
/// take long. A checkpoint goes into `folder`. They end with 0 if their results are those of one
/// device.
std::vector<std::vector<std::string>> examples_on_gpus(const std::string& folder) {
  const std::vector<std::string> linear = {BRAZE_LINEAR_PARALLEL, "2", "cuda:0"};
  if (!on_real_gpus()) return {linear};
  return {linear,
          {BRAZE_FULLY_SHARDED, "2", "cuda:0", folder},
          {BRAZE_TRANSFORMER_PARALLEL, "1", "2", "cuda:0"},
          {BRAZE_TRANSFORMER_PARALLEL, "2", "1", "cuda:0"},
          {BRAZE_ONE_OR_MANY, "2", "cuda:0"},
          {BRAZE_DIGITS, "--device", "cuda:0", "--mesh", "data=2", "--epochs", "3"}};
}

class Folder : public testing::Test {
 protected:
  std::vector<Environment> environments(int count) const {
    std::vector<Environment> all;
    for (int rank = 0; rank < count; ++rank)
      all.push_back(
          {{"BRAZE_RANK", std::to_string(rank)},
           {"BRAZE_WORLD", std::to_string(count)},
           {"BRAZE_RENDEZVOUS", (folder_.path / ("run" + std::to_string(run_))).string()}});
    if (!on_real_gpus())
      for (Environment& one : all) one["BRAZE_CUDA_DRIVER"] = one["BRAZE_NCCL"] = BRAZE_FAKE_CUDA;
    return all;
  }
  Outcome run(const std::string& scenario, const std::vector<Environment>& all,
              const std::string& each = "1") const {
    return run_all({all.size(), {BRAZE_RANK_PROGRAM, scenario, each}}, all);
  }
  Outcome run(const std::string& scenario, int count = 2, const Environment& more = {},
              const std::string& each = "1") const {
    std::vector<Environment> all = environments(count);
    for (Environment& one : all)
      for (const auto& [name, value] : more) one[name] = value;
    return run(scenario, all, each);
  }

  TemporaryFolder folder_;
  int run_ = 0;
};

TEST_F(Folder, RanksMeet) {
  const Outcome out = run("ranks", 4);
  EXPECT_EQ(out.status, std::vector<int>(4, 0)) << out.output;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(out.output, HasSubstr("rank " + std::to_string(rank) + ": of 4"));
}

TEST_F(Folder, AWrongSettingIsReportedAtOnce) {
  const Outcome out = run("ranks", 2, {{"BRAZE_RANK_LIMIT", "soon"}});
  EXPECT_EQ(out.status, (std::vector<int>{4, 4})) << out.output;
  EXPECT_THAT(out.output, HasSubstr("BRAZE_RANK_LIMIT"));
}

// What was measured on each host decides what is compiled there, so all take the first rank's.
TEST_F(Folder, LinksAreThoseOfTheFirstRank) {
  std::vector<Environment> all = environments(3);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::filesystem::path cache = folder_.path / ("cache" + std::to_string(rank));
    std::filesystem::create_directory(cache);
    std::ofstream(cache / "links-sm_90a") << "sm_90a link=" << 3 + rank << "e-05\n";
    all[rank]["BRAZE_CACHE"] = "on";
    all[rank]["BRAZE_CACHE_DIR"] = cache;
  }
  const Outcome out = run("links", all);
  EXPECT_EQ(out.status, std::vector<int>(3, 0)) << out.output;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(out.output, HasSubstr("rank " + std::to_string(rank) + ": latency 3e-05"));
}

TEST_F(Folder, EveryCollectiveOfGpus) {
  for (const int count : {2, 4}) {
    if (!has_gpus(count)) continue;
    ++run_;
    const Outcome out = run("collectives", count);
    EXPECT_EQ(out.status, std::vector<int>(static_cast<size_t>(count), 0)) << out.output;
  }
}

// Compiled programs, on real GPUs, or by the simulator.
TEST_F(Folder, ExamplesRunInSeveralProcesses) {
  if (!has_gpus(2)) GTEST_SKIP() << "fewer than two GPUs";
#ifndef BRAZE_SIMULATED_GPUS
  if (!on_real_gpus()) GTEST_SKIP() << "a sanitizer would have to be the first library";
#endif
  const TemporaryFolder files;
  for (const std::vector<std::string>& example : examples_on_gpus(files.path.string())) {
    ++run_;
    std::vector<Environment> all = environments(2);
#ifdef BRAZE_SIMULATED_GPUS
    if (!on_real_gpus())
      for (Environment& one : all) one["LD_PRELOAD"] = BRAZE_SIMULATED_GPUS;
#endif
    const Outcome out = run_all({2, example}, all);
    EXPECT_EQ(out.status, (std::vector<int>{0, 0})) << example[0] << "\n" << out.output;
  }
}

TEST_F(Folder, SeveralGpusEach) {
  if (!has_gpus(4)) GTEST_SKIP() << "fewer than four GPUs";
  const Outcome out = run("collectives", 2, {}, "2");
  EXPECT_EQ(out.status, (std::vector<int>{0, 0})) << out.output;
}

/// Of the scenario "checkpoint": what the ranks said, and the files that are there.
void expect_checkpoints(const std::string& output, const std::filesystem::path& folder,
                        int devices) {
  EXPECT_THAT(output, HasSubstr("rank 0: every checkpoint is right"));
  EXPECT_THAT(output, HasSubstr("rank 1: every checkpoint is right"));
  EXPECT_THAT(output, HasSubstr("rank 0: device error [checkpoint-rank]: rank 1 could not write "
                                "its part of the checkpoint: "));
  for (int i = 1; i <= devices; ++i)
    EXPECT_TRUE(std::filesystem::exists(folder / ("c-0000" + std::to_string(i) + "-of-0000" +
                                                  std::to_string(devices) + ".safetensors")))
        << i;
  EXPECT_TRUE(std::filesystem::exists(folder / "e.safetensors.index.json"));
  // It would say that all files are complete.
  EXPECT_FALSE(std::filesystem::exists(folder / "d.safetensors.index.json"));
}

TEST_F(Folder, ResultsNeedNotBeRead) {
  if (!has_gpus(2)) GTEST_SKIP() << "fewer than two GPUs";
  const int count = has_gpus(3) ? 3 : 2;
  const Outcome out = run("unread", count);
  EXPECT_EQ(out.status, std::vector<int>(static_cast<size_t>(count), 0)) << out.output;
}

TEST_F(Folder, CheckpointsHaveTheFilesOfAllRanks) {
  if (!has_gpus(4)) GTEST_SKIP() << "fewer than four GPUs";
  const TemporaryFolder files;
  const Outcome out = run("checkpoint", 2, {{"CHECKPOINTS", files.path.string()}}, "2");
  EXPECT_EQ(out.status, (std::vector<int>{0, 0})) << out.output;
  expect_checkpoints(out.output, files.path, 4);
}

TEST_F(Folder, TimelinesOfAllRanksAreOneFile) {
  const TemporaryFolder files;
  const Outcome out = run("collectives", 2, traces_in(files));
  EXPECT_EQ(out.status, (std::vector<int>{0, 0})) << out.output;
  // Eight kinds, three times each: as a step in the order of launches, and as it ran.
  EXPECT_EQ(collectives_in(files),
            (std::map<std::string, int>{{"rank 0, cuda:0", 48}, {"rank 1, cuda:1", 48}}));
}

// Before the five seconds are over after which others say that it is late.
TEST_F(Folder, AProcessThatDiesIsReported) {
  if (!has_gpus(2)) GTEST_SKIP() << "fewer than two GPUs";
  const int count = has_gpus(3) ? 3 : 2;
  const Outcome out = run("dies", count, {{"BRAZE_RANK_LATE", "5"}});
  for (int rank = 0; rank < count; ++rank) {
    EXPECT_EQ(out.status[static_cast<size_t>(rank)], rank == 1 ? -SIGKILL : 3) << out.output;
    if (rank == 1) continue;
    const std::string who = "rank " + std::to_string(rank);
    EXPECT_THAT(out.output, HasSubstr(who + ": device error [rank-lost]"));
    EXPECT_THAT(out.output, HasSubstr(who + ": goes on"));
  }
  EXPECT_THAT(out.output, HasSubstr("the process of rank 1 died"));
  EXPECT_THAT(out.output, Not(HasSubstr("have waited at call 6")));
}

// A kernel of NCCL that waits for another host does not end by itself: only what NCCL says of its
// communicators can end the call.
TEST_F(Folder, WhatNcclFindsLaterIsReported) {
  if (on_real_gpus()) GTEST_SKIP() << "only the fake NCCL fails when asked";
  const Outcome out = run("breaks", 3, {{"BRAZE_RANK_LATE", "5"}});
  EXPECT_FALSE(out.hung);
  EXPECT_EQ(out.status, (std::vector<int>{3, 3, 3})) << out.output;
  const std::string why =
      "NCCL: a GPU of another process has failed, or is out of reach: ncclRemoteError (6)";
  EXPECT_THAT(out.output, HasSubstr("rank 1: device error [nccl]: " + why));
  for (const char* rank : {"rank 0: ", "rank 2: "})
    EXPECT_THAT(out.output,
                HasSubstr(rank + ("device error [rank-failed]: rank 1 failed: " + why)));
  EXPECT_THAT(out.output, Not(HasSubstr("have waited at call")));
}

TEST_F(Folder, AProcessThatThrowsOrEndsIsReported) {
  for (const char* scenario : {"throws", "ends"}) {
    ++run_;
    const Outcome out = run(scenario);
    EXPECT_EQ(out.status[0], 3) << out.output;
    EXPECT_THAT(out.output, HasSubstr("rank 1 has ended, and 0 waits for it in call 6"));
  }
}

TEST_F(Folder, AShortageOnOneReachesAll) {
  const Outcome out = run("no-memory", 2, {{"BRAZE_MEMORY_LIMIT", "160000000"}});
  EXPECT_EQ(out.status, (std::vector<int>{3, 3})) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 1: resource exhausted [out-of-memory]"));
  EXPECT_THAT(out.output, HasSubstr("rank 0: device error [rank-failed]: rank 1 failed: "));
  EXPECT_THAT(out.output, HasSubstr("go on from a checkpoint"));
}

TEST_F(Folder, WhoIsLateIsNamedAndAwaited) {
  const Outcome out = run("sleeps", 2, {{"BRAZE_RANK_LATE", "1"}});
  EXPECT_EQ(out.status, (std::vector<int>{0, 0})) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 1 is late: others have waited at call 6"));
}

TEST_F(Folder, WhoIsVeryLateIsGivenUp) {
  const Outcome out = run("oversleeps", 2, {{"BRAZE_RANK_LATE", "1"}, {"BRAZE_RANK_LIMIT", "6"}});
  EXPECT_EQ(out.status, (std::vector<int>{3, 3})) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 1 is given up, 6 seconds late at call 6"));
}

// When it goes on, it hears that the others have given it up.
TEST_F(Folder, WhoIsStoppedIsGivenUp) {
  if (!has_gpus(2)) GTEST_SKIP() << "fewer than two GPUs";
  const int count = has_gpus(3) ? 3 : 2;
  const TemporaryFolder stops;
  const Outcome out =
      run("stops", count,
          {{"BRAZE_RANK_LATE", "1"}, {"BRAZE_RANK_LIMIT", "3"}, {"STOPS", stops.path.string()}});
  EXPECT_EQ(out.status, std::vector<int>(static_cast<size_t>(count), 3)) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 1 is given up, 3 seconds late at call"));
}

TEST_F(Folder, ProcessesThatDoDifferentThingsAreTold) {
  for (const char* scenario : {"differs", "shapes", "order"}) {
    ++run_;
    const Outcome out = run(scenario);
    EXPECT_EQ(out.status, (std::vector<int>{3, 3})) << scenario << "\n" << out.output;
    EXPECT_THAT(out.output, HasSubstr("over all ranks differs between them: rank "));
  }
}

// The others wait for it in NCCL, which has no bound for that.
TEST_F(Folder, WhoCannotJoinIsReported) {
  if (on_real_gpus()) GTEST_SKIP() << "only the fake NCCL fails when asked";
  const Outcome out = run("cannot-join", 3);
  EXPECT_FALSE(out.hung);
  EXPECT_EQ(out.status, (std::vector<int>{3, 3, 3})) << out.output;
  for (const char* rank : {"rank 0: ", "rank 2: "})
    EXPECT_THAT(
        out.output,
        HasSubstr(
            rank +
            std::string("device error [rank-failed]: rank 1 failed: NCCL: connecting 3 GPUs")));
}

// What all have used before is compared if that is asked for.
TEST_F(Folder, EveryCallCanBeCompared) {
  const Outcome out = run("known", 2, {{"BRAZE_CHECK_RANKS", "1"}});
  EXPECT_EQ(out.status, (std::vector<int>{3, 3})) << out.output;
  EXPECT_THAT(out.output, HasSubstr("call 3 over all ranks differs between them: rank "));
}

TEST_F(Folder, FilesOfAnEarlierRunAreRefused) {
  EXPECT_EQ(run("dies").status[1], -SIGKILL);
  const Outcome again = run("ranks");
  EXPECT_EQ(again.status, (std::vector<int>{4, 4})) << again.output;
  EXPECT_THAT(again.output, HasSubstr("of this run, or of an earlier one"));
  EXPECT_THAT(again.output, HasSubstr("give each run a folder of its own"));
  // A rank that the earlier run did not have finds the file of another one.
  std::filesystem::remove(folder_.path / "run0/rank.0");
  const Outcome first = run("ranks", {environments(2)[0]});
  EXPECT_EQ(first.status, std::vector<int>{4}) << first.output;
  EXPECT_THAT(first.output, HasSubstr("is the file of a rank 1 that has ended"));
}

TEST_F(Folder, TwoProcessesOfOneRankAreRefused) {
  std::vector<Environment> all = environments(2);
  all.push_back(all[1]);
  const Outcome out = run("sleeps", all);
  EXPECT_THAT(out.output, HasSubstr("another process is rank 1 of the run in"));
}

TEST_F(Folder, CpuDevicesNeedMpi) {
  const Outcome out = run("collectives", 2, {{"BRAZE_CUDA_DRIVER", "none"}});
  EXPECT_EQ(out.status, (std::vector<int>{4, 4})) << out.output;
  EXPECT_THAT(out.output,
              HasSubstr("CPU devices of several processes work together only through MPI"));
  EXPECT_THAT(out.output, HasSubstr("BRAZE_CPU_DEVICES"));
}

// Launchers themselves, where they are on the PATH: PyTorch's, and Slurm's where there is a
// cluster.
TEST_F(Folder, ProcessesOfLaunchersMeet) {
  const std::vector<std::vector<std::string>> launchers = {
      {"torchrun", "--nproc-per-node", "2", "--no-python"}, {"srun", "-n", "2", "--overcommit"}};
  bool any = false;
  for (std::vector<std::string> words : launchers) {
    if (!is_there(words[0])) continue;
    if (words[0] == "srun" && std::system("timeout 5 sinfo > /dev/null 2>&1") != 0) continue;
    any = true;
    words.insert(words.end(), {BRAZE_RANK_PROGRAM, "collectives", "1"});
    const Outcome out = run_all({words}, {{{"BRAZE_RENDEZVOUS", folder_.path.string()},
                                           {"BRAZE_CUDA_DRIVER", BRAZE_FAKE_CUDA},
                                           {"BRAZE_NCCL", BRAZE_FAKE_CUDA}}});
    EXPECT_EQ(out.status, std::vector<int>{0}) << words[0] << "\n" << out.output;
    EXPECT_THAT(out.output, AllOf(HasSubstr("rank 0: every collective is right"),
                                  HasSubstr("rank 1: every collective is right")));
  }
  if (!any) GTEST_SKIP() << "neither torchrun nor a cluster of Slurm";
}

// Else each of them would do all of the work unseen.
TEST_F(Folder, ProcessesOfALauncherThatDoNotMeetSaySo) {
  const Outcome out =
      run_all({{BRAZE_RANK_PROGRAM, "collectives", "2"}}, {{{"RANK", "0"},
                                                            {"WORLD_SIZE", "2"},
                                                            {"TORCHELASTIC_RUN_ID", "a"},
                                                            {"BRAZE_CUDA_DRIVER", "none"}}});
  EXPECT_EQ(out.status, std::vector<int>{0}) << out.output;
  EXPECT_THAT(out.output,
              AllOf(HasSubstr("torchrun started 2 processes, and BRAZE_RENDEZVOUS does not say"),
                    HasSubstr("a mesh has the devices of this process alone"),
                    HasSubstr("rank 0: every collective is right")));
}

TEST_F(Folder, WithoutNcclItIsSaidWhatIsMissing) {
  std::vector<Environment> all = environments(2);
  for (Environment& one : all) one["BRAZE_NCCL"] = "libnothing.so";
  const Outcome out = run("collectives", all);
  EXPECT_EQ(out.status, (std::vector<int>{4, 4})) << out.output;
  EXPECT_THAT(out.output, HasSubstr("GPUs cannot work together here: NCCL cannot be opened"));
}

// ---- MPI, with CPU devices ----------------------------------------------------------------------

struct Implementation {
  const char *name, *launcher, *plugin, *library;
};
void PrintTo(const Implementation& one, std::ostream* out) { *out << one.name; }

class Mpi : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (!is_there(GetParam().launcher)) GTEST_SKIP() << "no " << GetParam().launcher;
    if (!std::ifstream(plugin())) GTEST_SKIP() << "no plugin for " << GetParam().name;
  }
  static std::string plugin() {
    return std::string(BRAZE_LIBRARY_FOLDER) + "/" + GetParam().plugin;
  }
  static Outcome run(std::vector<std::string> program, int count = 2,
                     const Environment& more = {}) {
    std::vector<std::string> words = {GetParam().launcher, "-n", std::to_string(count)};
    words.insert(words.end(), program.begin(), program.end());
    // Few cores, and tests that run as root.
    Environment all = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                       {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                       {"OMPI_MCA_mpi_yield_when_idle", "1"},
                       {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                       {"BRAZE_MPI", plugin()},
                       {"BRAZE_CUDA_DRIVER", "none"},
                       {"BRAZE_THREADS", "1"}};
    for (const auto& [name, value] : more) all[name] = value;
    return run_all({words}, {all});
  }
  /// With GPUs: those of this machine, or of the fake driver.
  static Environment gpus() {
    if (on_real_gpus()) return {{"BRAZE_CUDA_DRIVER", ""}};
    return {{"BRAZE_CUDA_DRIVER", BRAZE_FAKE_CUDA}, {"BRAZE_NCCL", BRAZE_FAKE_CUDA}};
  }
  static Outcome scenario(const std::string& name, int count = 2, const Environment& more = {},
                          const std::string& each = "1") {
    return run({BRAZE_RANK_PROGRAM, name, each}, count, more);
  }
};

TEST_P(Mpi, EveryCollective) {
  for (const int count : {2, 3, 4}) {
    const Outcome out = scenario("collectives", count);
    EXPECT_EQ(out.status[0], 0) << out.output;
    for (int rank = 0; rank < count; ++rank)
      EXPECT_THAT(out.output,
                  HasSubstr("rank " + std::to_string(rank) + ": every collective is right"));
  }
}

TEST_P(Mpi, SeveralDevicesEach) {
  const Outcome out = scenario("collectives", 2, {}, "2");
  EXPECT_EQ(out.status[0], 0) << out.output;
}

TEST_P(Mpi, ResultsNeedNotBeRead) {
  const Outcome out = scenario("unread", 3);
  EXPECT_EQ(out.status[0], 0) << out.output;
}

TEST_P(Mpi, CheckpointsHaveTheFilesOfAllRanks) {
  const TemporaryFolder files;
  const Outcome out = scenario("checkpoint", 2, {{"CHECKPOINTS", files.path.string()}});
  EXPECT_EQ(out.status[0], 0) << out.output;
  expect_checkpoints(out.output, files.path, 2);
}

TEST_P(Mpi, TimelinesOfAllRanksAreOneFile) {
  const TemporaryFolder files;
  const Outcome out = scenario("collectives", 3, traces_in(files));
  EXPECT_EQ(out.status[0], 0) << out.output;
  // As with GPUs, but each once, because there is only the order in which they run; and two more
  // that are long.
  EXPECT_EQ(
      collectives_in(files),
      (std::map<std::string, int>{{"rank 0, cpu", 26}, {"rank 1, cpu", 26}, {"rank 2, cpu", 26}}));
}

TEST_P(Mpi, TimelinesOfGpusAreOneFile) {
  if (!has_gpus(2)) GTEST_SKIP() << "fewer than two GPUs";
  const TemporaryFolder files;
  Environment more = traces_in(files);
  more.merge(gpus());
  const Outcome out = scenario("collectives", 2, more);
  EXPECT_EQ(out.status[0], 0) << out.output;
  EXPECT_EQ(collectives_in(files),
            (std::map<std::string, int>{{"rank 0, cuda:0", 48}, {"rank 1, cuda:1", 48}}));
}

TEST_P(Mpi, ThePluginIsFound) {
  const Outcome out = scenario("ranks", 3, {{"BRAZE_MPI", ""}});
  EXPECT_EQ(out.status[0], 0) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 2: of 3"));
}

TEST_P(Mpi, RemotePartsAreNotRead) {
  const Outcome out = scenario("remote");
  EXPECT_EQ(out.status[0], 0) << out.output;
  EXPECT_THAT(out.output, HasSubstr("has 2 parts, of which 1 is in this process"));
  EXPECT_THAT(out.output, HasSubstr("all_gather(x, axis)"));
  EXPECT_THAT(out.output, HasSubstr("[checked-remote]"));
  // Two devices of each process have the same part, or two of four.
  const Outcome two = scenario("remote", 2, {}, "2");
  EXPECT_EQ(two.status[0], 0) << two.output;
  EXPECT_THAT(two.output, AllOf(HasSubstr("has 4 parts, of which 2 are in this process"),
                                HasSubstr("has 2 parts, of which 1 is in this process")));
}

TEST_P(Mpi, GpusMeetByMpi) {
  if (!has_gpus(2)) GTEST_SKIP() << "fewer than two GPUs";
  const Outcome out = scenario("collectives", 2, gpus());
  EXPECT_EQ(out.status[0], 0) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 1: every collective is right"));
}

TEST_P(Mpi, ExamplesRunOnRealGpus) {
  if (!on_real_gpus() || !has_gpus(2)) GTEST_SKIP() << "no two real GPUs";
  const TemporaryFolder files;
  for (const std::vector<std::string>& example : examples_on_gpus(files.path.string())) {
    const Outcome out = run(example, 2, gpus());
    EXPECT_EQ(out.status[0], 0) << example[0] << "\n" << out.output;
  }
}

TEST_P(Mpi, AnMpiThatTheProgramBeganIsUsedAndLeftInTime) {
  const Outcome out = scenario("own-mpi", 2, {{"MPI_LIBRARY", GetParam().library}});
  EXPECT_EQ(out.status[0], 0) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 1: every collective is right"));
  const Outcome one = scenario("own-mpi-of-one-thread", 2, {{"MPI_LIBRARY", GetParam().library}});
  EXPECT_FALSE(one.hung);
  EXPECT_THAT(one.output, HasSubstr("begin it by MPI_Init_thread with MPI_THREAD_SERIALIZED"));
}

// Its launcher ends the others.
TEST_P(Mpi, AProcessThatDiesEndsAll) {
  const Outcome out = scenario("dies", 3);
  EXPECT_NE(out.status[0], 0) << out.output;
  EXPECT_FALSE(out.hung);
}

TEST_P(Mpi, AProcessThatThrowsOrEndsIsReported) {
  for (const char* what : {"throws", "ends"}) {
    const Outcome out = scenario(what);
    EXPECT_FALSE(out.hung);
    EXPECT_NE(out.status[0], 0) << out.output;
    EXPECT_THAT(out.output, HasSubstr("rank 1 has ended, and 0 waits for it in call 6"));
  }
}

TEST_P(Mpi, AFailureOnOneDeviceReachesAll) {
  const Outcome out = scenario("fails", 3, {{"BRAZE_RANK_LATE", "5"}});
  EXPECT_FALSE(out.hung);
  EXPECT_NE(out.status[0], 0) << out.output;
  EXPECT_THAT(out.output,
              AllOf(HasSubstr("[custom-call-failed]"), HasSubstr("rank 0: device error"),
                    HasSubstr("rank 2: device error"), HasSubstr("rank 1 failed: "),
                    HasSubstr("it has had enough"), Not(HasSubstr("have waited at call"))));
}

TEST_P(Mpi, AShortageOnOneReachesAll) {
  const Outcome out = scenario("no-memory", 2, {{"BRAZE_MEMORY_LIMIT", "160000000"}});
  EXPECT_FALSE(out.hung);
  EXPECT_THAT(out.output, HasSubstr("rank 1: resource exhausted [out-of-memory]"));
  EXPECT_THAT(out.output, HasSubstr("rank 0: device error [rank-failed]: rank 1 failed: "));
}

TEST_P(Mpi, ProcessesThatDoDifferentThingsAreTold) {
  for (const char* what : {"differs", "shapes", "order"}) {
    const Outcome out = scenario(what);
    EXPECT_FALSE(out.hung);
    // Either says what both do, with the places of both.
    EXPECT_THAT(out.output, HasSubstr("over all ranks differs between them: rank ")) << what;
    EXPECT_THAT(out.output, HasSubstr("of_rank_0.braze:3")) << what;
    EXPECT_THAT(out.output, HasSubstr("of_rank_1.braze:3")) << what;
  }
}

TEST_P(Mpi, WhoIsLateIsNamedAndAwaited) {
  const Outcome out = scenario("sleeps", 2, {{"BRAZE_RANK_LATE", "1"}});
  EXPECT_EQ(out.status[0], 0) << out.output;
  EXPECT_THAT(out.output, HasSubstr("rank 1 is late: others have waited at call 6"));
}

// It has begun the call in which others wait for it. All ranks end; the mpirun of Open MPI 4.1 does
// not always notice it, so its own end is not judged.
TEST_P(Mpi, WhoIsStoppedIsGivenUp) {
  const TemporaryFolder stops;
  const Outcome out = scenario(
      "stops", 3,
      {{"BRAZE_RANK_LATE", "1"}, {"BRAZE_RANK_LIMIT", "3"}, {"STOPS", stops.path.string()}});
  EXPECT_NE(out.status[0], 0) << out.output;
  EXPECT_THAT(out.output, AllOf(HasSubstr("rank 0: goes on"), HasSubstr("rank 2: goes on")));
  EXPECT_THAT(out.output, HasSubstr("rank 1 is given up, 3 seconds late at call 6"));
}

// MPI itself would wait for it for ever.
TEST_P(Mpi, WhoIsStoppedAtTheEndIsGivenUp) {
  const TemporaryFolder stops;
  const Outcome out = scenario(
      "stops-at-the-end", 3,
      {{"BRAZE_RANK_LATE", "1"}, {"BRAZE_RANK_LIMIT", "3"}, {"STOPS", stops.path.string()}});
  EXPECT_FALSE(out.hung) << out.output;
  EXPECT_THAT(out.output,
              HasSubstr("rank 1 is given up, 3 seconds late at the end of the program"));
}

TEST_P(Mpi, AnotherImplementationsPluginIsRefused) {
  const bool open_mpi = std::string(GetParam().name) == "openmpi";
  const std::string other = std::string(BRAZE_LIBRARY_FOLDER) +
                            (open_mpi ? "/libbraze-mpi-mpich.so" : "/libbraze-mpi-openmpi.so");
  // A plugin that was built elsewhere may be here without its MPI.
  void* plugin = dlopen(other.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (plugin == nullptr) GTEST_SKIP() << "one implementation only: " << dlerror();
  dlclose(plugin);
  const Outcome out = scenario("ranks", 2, {{"BRAZE_MPI", other}});
  EXPECT_THAT(out.output, HasSubstr("2 processes were started by another MPI than"));
}

TEST_P(Mpi, WithoutAPluginItIsSaidWhatIsMissing) {
  const Outcome out = scenario("ranks", 2, {{"BRAZE_MPI", "/nowhere/libbraze-mpi.so"}});
  EXPECT_THAT(out.output, AllOf(HasSubstr("the plugin for MPI cannot be opened"),
                                HasSubstr("/nowhere/libbraze-mpi.so"),
                                HasSubstr("mpicc -shared -fPIC"), HasSubstr("BRAZE_RENDEZVOUS")));
  const Outcome alone = scenario("ranks", 2, {{"BRAZE_MPI", "none"}});
  EXPECT_EQ(alone.status[0], 0) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr("rank 0: of 1"));
}

TEST_P(Mpi, ExamplesRunInSeveralProcesses) {
  const Outcome linear = run({BRAZE_LINEAR_PARALLEL, "2", "cpu"});
  EXPECT_EQ(linear.status[0], 0) << linear.output;
  EXPECT_THAT(linear.output, HasSubstr("as on one device: yes"));
  const Outcome training = run({BRAZE_ONE_OR_MANY, "2", "cpu"});
  EXPECT_EQ(training.status[0], 0) << training.output;
  EXPECT_THAT(training.output, HasSubstr("one training on any number of devices: yes"));
  const TemporaryFolder files;
  const Outcome sharded = run({BRAZE_FULLY_SHARDED, "2", "cpu", files.path.string()});
  EXPECT_EQ(sharded.status[0], 0) << sharded.output;
  EXPECT_THAT(sharded.output, HasSubstr("checkpoint: kept"));
  const Outcome transformer = run({BRAZE_TRANSFORMER_PARALLEL, "1", "2", "cpu"});
  EXPECT_EQ(transformer.status[0], 0) << transformer.output;
  const Outcome digits =
      run({BRAZE_DIGITS, "--device", "cpu", "--mesh", "data=2", "--epochs", "3"});
  EXPECT_EQ(digits.status[0], 0) << digits.output;
}

INSTANTIATE_TEST_SUITE_P(, Mpi,
                         testing::Values(Implementation{"openmpi", "mpirun.openmpi",
                                                        "libbraze-mpi-openmpi.so", "libmpi.so.40"},
                                         Implementation{"mpich", "mpirun.mpich",
                                                        "libbraze-mpi-mpich.so", "libmpich.so.12"}),
                         [](const auto& one) { return std::string(one.param.name); });

// ---- What launchers say -------------------------------------------------------------------------

Launched read(const Environment& variables, bool mpi_is_up = false) {
  return read_launch(
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      mpi_is_up);
}

std::string error_of(const Environment& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Plugins, AreListedOnce) {
  const std::vector<std::string> plugins = mpi_plugins();
  EXPECT_THAT(std::set<std::string>(plugins.begin(), plugins.end()),
              testing::SizeIs(plugins.size()));
  for (const std::string& plugin : plugins) EXPECT_THAT(plugin, testing::Not(HasSubstr("/../")));
}

TEST(ReadLaunch, KnowsLaunchers) {
  EXPECT_EQ(read({}).meeting, Launched::Meeting::Alone);
  EXPECT_EQ(read({}, true).meeting, Launched::Meeting::Mpi);
  EXPECT_EQ(read({{"OMPI_COMM_WORLD_SIZE", "2"}}).meeting, Launched::Meeting::Mpi);
  EXPECT_EQ(read({{"PMI_SIZE", "2"}, {"BRAZE_MPI", "none"}}).meeting, Launched::Meeting::Alone);

  const Launched own =
      read({{"BRAZE_RANK", "1"}, {"BRAZE_WORLD", "4"}, {"BRAZE_RENDEZVOUS", "/shared/7"}});
  EXPECT_EQ(own.meeting, Launched::Meeting::Folder);
  EXPECT_EQ(own.rank, 1);
  EXPECT_EQ(own.count, 4);
  EXPECT_EQ(own.folder, "/shared/7");

  Environment torchrun = {{"RANK", "3"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"TORCHELASTIC_RUN_ID", "abc"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"}};
  EXPECT_THAT(read(torchrun).alone, HasSubstr("torchrun started 8 processes"));
  torchrun["BRAZE_RENDEZVOUS"] = "/shared";
  EXPECT_EQ(read(torchrun).folder, "/shared/run.abc.2");
  EXPECT_EQ(read(torchrun).rank, 3);
  EXPECT_EQ(read(torchrun).local, 1);

  const Launched slurm = read({{"SLURM_PROCID", "2"},
                               {"SLURM_STEP_NUM_TASKS", "4"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_JOB_ID", "77"},
                               {"SLURM_STEP_ID", "0"},
                               {"BRAZE_RENDEZVOUS", "/shared"}});
  EXPECT_EQ(slurm.folder, "/shared/run.77.0");
  EXPECT_EQ(slurm.count, 4);
}

TEST(ReadLaunch, RefusesWhatCannotBe) {
  EXPECT_THAT(error_of({{"BRAZE_RANK", "1"}}), HasSubstr("both or neither"));
  EXPECT_THAT(error_of({{"BRAZE_RANK", "4"}, {"BRAZE_WORLD", "4"}}),
              HasSubstr("BRAZE_RANK is \"4\", and has to be a number from 0 to 3"));
  EXPECT_THAT(error_of({{"BRAZE_RANK", "0"}, {"BRAZE_WORLD", "2"}}),
              HasSubstr("set BRAZE_RENDEZVOUS to a folder that all of them see"));
}

}  // namespace
}  // namespace braze::test
