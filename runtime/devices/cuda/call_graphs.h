// call_graphs.h — records whole calls of a program, so that each takes a single call of the driver.
//
// A launch costs the host about two microseconds. A recorded call costs little more than one, for
// any number of launches. A record holds addresses. The allocator gives the same addresses again
// and again to a program that is called in a loop. A call whose addresses were seen before is
// therefore recorded, and the record is repeated when they occur again.
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

  /// Whether the program has enough launches to be worth recording, and none that cannot be
  /// repeated: a function of the host program may do something else at each call.
  static bool is_worth_it(const Program& program);

  /// Does the call in `stream`. Returns whether it used a record and not `launches`. A call that
  /// cannot be recorded is launched. A single warning says why, and the more attempts fail, the
  /// longer is the pause before the next one.
  bool call(cuda::CUstream stream, std::span<void* const> slots, std::span<const int64_t> symbols,
            const std::function<void()>& launches);

 private:
  // A failure may be temporary (memory of the host or the GPU) or permanent (a driver that cannot
  // record).
  static constexpr int kFirstPause = 16, kLongestPause = 1 << 14;

  struct Entry {
    std::vector<void*> slots;
    std::vector<int64_t> symbols;
    cuda::CUgraphExec graph = nullptr;  // null if its addresses were seen only once
  };

  Entry* find(std::span<void* const> slots, std::span<const int64_t> symbols);
  void drop_oldest();
  void drop_graph(Entry& entry);
  void note_failure(const std::string& why) noexcept;

  CudaContext& context_;
  const std::string program_;
  std::list<Entry> entries_;  // the last one used comes first
  int recorded_ = 0;
  int repeated_ = 0;
  bool are_rare_ = false;  // whether addresses repeat too rarely for records to be worth it
  int pause_ = 0;          // calls until the next attempt, after a failed one
  int next_pause_ = kFirstPause;
  bool warned_ = false;
};

}  // namespace braze
