// call_graphs.h — records stretches of calls of a program, so that each takes a single call of the
// driver.
//
// A launch costs the host about two microseconds. A recorded stretch costs little more than one,
// for any number of launches. A stretch is a whole call, or what stands between two collectives or
// custom calls. A record never holds a collective, so each process of a mesh may decide alone what
// it records, nor a function of the host program, which may do something else at each call. A
// record holds addresses. The allocator gives the same addresses again and again to a program that
// is called in a loop. A call whose addresses were seen before is therefore recorded, and its
// records are repeated when they occur again.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/devices/cuda/cuda_context.h"

namespace braze {

/// The records of one program. Used by one thread at a time, in a Scope.
class CallGraphs {
 public:
  /// `program` is its name in warnings.
  CallGraphs(CudaContext& context, std::string program)
      : context_(context), program_(std::move(program)) {}
  ~CallGraphs();
  CallGraphs(const CallGraphs&) = delete;
  CallGraphs& operator=(const CallGraphs&) = delete;

  /// Whether the stretch has enough launches to be worth recording.
  static bool is_worth_it(const Program& program, const Stretch& stretch);

  /// Does a stretch in `stream`. Returns whether it used a record and not `launches`. A stretch
  /// that cannot be recorded is launched. A single warning says why, and the more attempts fail,
  /// the longer is the pause before the next one.
  bool run(cuda::CUstream stream, const Stretch& stretch, const std::function<void()>& launches);

 private:
  // A failure may be temporary (memory of the host or the GPU) or permanent (a driver that cannot
  // record).
  static constexpr int kFirstPause = 16, kLongestPause = 1 << 14;

  struct Record {
    uint32_t first = 0;                 // of the stretch
    cuda::CUgraphExec graph = nullptr;  // null if its addresses were seen only once
  };
  /// Calls with the same addresses and symbols.
  struct Entry {
    std::vector<void*> slots;
    std::vector<int64_t> symbols;
    std::vector<Record> records = {};
  };

  Entry* find(const Stretch& stretch);
  void drop_oldest();
  void drop_graph(Record& record);
  void note_failure(const std::string& why) noexcept;

  CudaContext& context_;
  const std::string program_;
  std::list<Entry> entries_;  // the last one used comes first
  int recorded_ = 0;          // stretches, and how often such a record was used
  int repeated_ = 0;
  bool are_rare_ = false;  // whether addresses repeat too rarely for records to be worth it
  int pause_ = 0;          // calls until the next attempt, after a failed one
  int next_pause_ = kFirstPause;
  bool warned_ = false;
};

}  // namespace braze
