// fake_cuda.h — a CUDA driver of host memory, for tests of what calls it where there is no GPU.
//
// The library fake-cuda has the driver's interface. What is put into a stream happens as late as it
// may: when somebody waits for it. Thus bytes that are overwritten, freed or read too early show,
// on every run. Misuse that a real driver would not notice at once is counted.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/devices/cuda/driver_api.h"

namespace braze::test {

/// A launch that was put into a stream.
struct FakeLaunch {
  std::string kernel;
  unsigned blocks = 0, threads = 0, shared_bytes = 0, cluster = 1;
  bool cooperative = false, overlaps = false;
  unsigned members = 1;
};

/// Code that the driver does not know by name.
struct FakeCode {
  using Parameters = std::vector<std::vector<char>>;
  using IsThere = std::function<bool(const void* data, size_t bytes)>;  ///< memory of the device
  std::vector<size_t> parameters;                                       ///< bytes of each
  /// Does what one launch does. Returns what is wrong with it, if something is.
  std::function<std::string(const Parameters& parameters, const IsThere& is_there)> run;
};

/// The driver's state that tests see and set; all of it before other threads use the driver.
struct FakeCuda {
  int version = 12040;
  int devices = 2;
  cuda::CUresult init_result = cuda::CUDA_SUCCESS;
  uint64_t memory_bytes = 256 << 20;  ///< of each device

  /// The next calls of a function fail: after this many that succeed, with this result, so many
  /// times.
  struct Failure {
    int after = 0;
    cuda::CUresult result{};
    int times = INT_MAX;
  };
  std::map<std::string, Failure> failures;
  std::map<std::string, int> calls;           ///< of each function so far
  void (*at_capture)(bool begins) = nullptr;  ///< called where one begins and ends
  void (*at_launch)() = nullptr;              ///< called before each, without a lock
  /// Whether a call of a collective, such as "all_reduce", stays in the fake NCCL. It is asked
  /// again after every millisecond, under the lock, and learns whether the communicator was
  /// aborted.
  bool (*stays_in_nccl)(const std::string& kind, bool is_aborted) = nullptr;
  /// Makes code of a module's text and the name of a function in it. Without it, the driver takes
  /// PTX only, and runs what it knows by name.
  std::optional<FakeCode> (*compile)(const std::string& text, const std::string& entry) = nullptr;
  bool (*is_inside)() = nullptr;  ///< whether the calling thread is in the driver

  std::vector<FakeLaunch> launches;   ///< put into streams
  std::vector<std::string> executed;  ///< kernels, in the order in which they ran
  int live_blocks = 0, live_modules = 0, live_events = 0, live_graphs = 0;
  /// Things that a real driver leaves undefined: no or another context current, memory that is
  /// freed, code that is unloaded while in use, pageable memory where pinned is due.
  std::vector<std::string> misuse;

  /// Forgets counts and failures; what was allocated stays.
  void reset() {
    failures.clear();
    calls.clear();
    launches.clear();
    executed.clear();
    misuse.clear();
  }
};

/// Of the fake driver, if that is what BRAZE_CUDA_DRIVER names; else null.
FakeCuda* fake_cuda();

}  // namespace braze::test
