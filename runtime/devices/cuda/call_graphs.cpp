#include "runtime/devices/cuda/call_graphs.h"

#include <algorithm>

namespace braze {

namespace {

// With fewer the launches themselves are as fast.
constexpr size_t kFewestSteps = 3;

constexpr size_t kMostEntries = 32;

// To record costs as much as some calls. A program whose records are repeated less often than this
// has addresses that do not come again.
constexpr int kTrial = 64;
constexpr int kWorthRepeats = 4;

}  // namespace

CallGraphs::~CallGraphs() {
  const CudaContext::Scope scope(context_);
  for (const Entry& entry : entries_) {
    if (entry.graph) context_.api().graph_exec_destroy(entry.graph);
  }
}

bool CallGraphs::is_worth_it(const Program& program) {
  size_t steps = 0;
  for (const Launch& launch : program.launches) {
    steps += launch.zeroed.size() + std::max<size_t>(1, launch.instances.size());
  }
  return steps >= kFewestSteps;
}

CallGraphs::Entry* CallGraphs::find(std::span<void* const> slots,
                                    std::span<const int64_t> symbols) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!std::ranges::equal(entry->slots, slots) || !std::ranges::equal(entry->symbols, symbols)) {
      continue;
    }
    entries_.splice(entries_.begin(), entries_, entry);
    return &entries_.front();
  }
  return nullptr;
}

void CallGraphs::drop_oldest() {
  if (entries_.back().graph) {
    // Its last repetition may be under way.
    context_.api().stream_synchronize(context_.work());
    context_.api().graph_exec_destroy(entries_.back().graph);
  }
  entries_.pop_back();
}

bool CallGraphs::call(std::span<void* const> slots, std::span<const int64_t> symbols,
                      const std::function<void()>& launches) {
  if (off_) {
    launches();
    return false;
  }
  Entry* const entry = find(slots, symbols);
  if (!entry) {
    launches();
    if (entries_.size() == kMostEntries) drop_oldest();
    entries_.push_front({{slots.begin(), slots.end()}, {symbols.begin(), symbols.end()}});
    return false;
  }
  if (!entry->graph) {
    entry->graph = context_.record(launches);
    off_ = !entry->graph || (++recorded_ >= kTrial && repeated_ < kWorthRepeats * recorded_);
    if (!entry->graph) {
      launches();
      return false;
    }
  }
  ++repeated_;
  context_.check(context_.api().graph_launch(entry->graph, context_.work()), "a recorded call");
  return true;
}

}  // namespace braze
