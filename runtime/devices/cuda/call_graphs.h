// call_graphs.h — whole calls of a program, recorded so that the driver takes them at once.
//
// A launch costs the host about two microseconds, a recorded call of any number of launches little
// more than one. A record holds addresses. The allocator gives the same ones again and again to a
// program that is called in a loop, so a call whose addresses were seen before is recorded, and
// repeated when they come once more.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "runtime/devices/cuda/cuda_context.h"

namespace braze {

/// The records of one program. Calls are made by the thread that executes the device's stream, in a
/// Scope.
class CallGraphs {
 public:
  explicit CallGraphs(CudaContext& context) : context_(context) {}
  /// Once all calls are complete.
  ~CallGraphs();
  CallGraphs(const CallGraphs&) = delete;
  CallGraphs& operator=(const CallGraphs&) = delete;

  /// Whether the program has enough launches.
  static bool is_worth_it(const Program& program);

  /// Does the call; whether by a record rather than by `launches`.
  bool call(std::span<void* const> slots, std::span<const int64_t> symbols,
            const std::function<void()>& launches);

 private:
  struct Entry {
    std::vector<void*> slots;
    std::vector<int64_t> symbols;
    cuda::CUgraphExec graph = nullptr;  // null while it was seen but once
  };

  Entry* find(std::span<void* const> slots, std::span<const int64_t> symbols);
  void drop_oldest();

  CudaContext& context_;
  std::list<Entry> entries_;  // the last used first
  int recorded_ = 0;
  int repeated_ = 0;
  bool off_ = false;
};

}  // namespace braze
