#include "runtime/devices/cuda/call_graphs.h"

#include <algorithm>
#include <new>

#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "ir/support/warning.h"

namespace braze {

namespace {

// The least number of launches for which a graph is faster.
constexpr size_t kFewestSteps = 3;

constexpr size_t kMostEntries = 32;

// Recording takes as long as several calls. If after a trial the records of a program were repeated
// less often than this, its addresses rarely occur again.
constexpr int kTrial = 64;
constexpr int kWorthRepeats = 4;

}  // namespace

CallGraphs::~CallGraphs() {
  if (is_forked()) return;  // the driver's objects belong to the parent
  const CudaContext::Scope scope(context_);
  for (const Entry& entry : entries_) {
    if (entry.graph) context_.api().graph_exec_destroy(entry.graph);
  }
}

bool CallGraphs::is_worth_it(const Program& program) {
  size_t steps = 0;
  for (const Launch& launch : program.launches) {
    if (launch.artifact == Launch::kCustomCall) return false;
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

void CallGraphs::drop_graph(Entry& entry) {
  if (!entry.graph) return;
  // Its last repetition may still be running; the driver frees it after that.
  context_.api().graph_exec_destroy(std::exchange(entry.graph, nullptr));
}

void CallGraphs::drop_oldest() {
  drop_graph(entries_.back());
  entries_.pop_back();
}

void CallGraphs::note_failure(const std::string& why) noexcept {
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
  if (warned_) return;
  try {
    warn(fmt::format(
        "{}: a call of @{} cannot be recorded as a CUDA graph: {}. Its kernels are launched one by "
        "one, which takes the host longer; the next attempt is after {} calls",
        context_.device(), program_, why, pause_));
    warned_ = true;
  } catch (const std::bad_alloc&) {
    // There was no memory for the message. The next failure may find some.
  }
}

bool CallGraphs::call(cuda::CUstream stream, std::span<void* const> slots,
                      std::span<const int64_t> symbols, const std::function<void()>& launches) {
  if (are_rare_ || pause_ > 0) {
    if (pause_ > 0) --pause_;
    launches();
    return false;
  }
  Entry* const entry = find(slots, symbols);
  if (!entry) {
    std::list<Entry> fresh;  // is allocated before anything is launched
    fresh.push_front({{slots.begin(), slots.end()}, {symbols.begin(), symbols.end()}});
    launches();
    if (entries_.size() == kMostEntries) drop_oldest();
    entries_.splice(entries_.begin(), fresh);
    return false;
  }
  if (!entry->graph) {
    const CudaContext::Recorded recorded = context_.record(launches);
    if (!recorded.graph) {
      note_failure(recorded.failure);
      launches();
      return false;
    }
    entry->graph = recorded.graph;
    are_rare_ = ++recorded_ >= kTrial && repeated_ < kWorthRepeats * recorded_;
  }
  const cuda::CUresult result = context_.api().graph_launch(entry->graph, stream);
  if (result != cuda::CUDA_SUCCESS) {
    // Nothing of the call has been done. If the GPU is at fault, the launches will report it.
    drop_graph(*entry);
    note_failure(cuda::error_text(context_.api(), result));
    launches();
    return false;
  }
  next_pause_ = kFirstPause;
  ++repeated_;
  return true;
}

}  // namespace braze
