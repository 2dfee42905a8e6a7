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
// less often than this, its addresses rarely occur again. A trial is so many calls.
constexpr int kTrial = 64;
constexpr int kWorthRepeats = 4;

}  // namespace

CallGraphs::~CallGraphs() {
  if (is_forked()) return;  // the driver's objects belong to the parent
  const CudaContext::Scope scope(context_);
  for (Entry& entry : entries_)
    std::ranges::for_each(entry.records, [&](Record& r) { drop_graph(r); });
}

bool CallGraphs::is_worth_it(const Program& program, const Stretch& stretch) {
  size_t steps = 0;
  for (uint32_t i = stretch.first; i < stretch.last && steps < kFewestSteps; ++i) {
    const Launch& launch = program.launches[i];
    steps += launch.zeroed.size() + std::max<size_t>(1, launch.instances.size());
  }
  return steps >= kFewestSteps;
}

CallGraphs::Entry* CallGraphs::find(const Stretch& stretch) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!std::ranges::equal(entry->slots, stretch.slots) ||
        !std::ranges::equal(entry->symbols, stretch.symbols)) {
      continue;
    }
    entries_.splice(entries_.begin(), entries_, entry);
    return &entries_.front();
  }
  return nullptr;
}

void CallGraphs::drop_graph(Record& record) {
  if (!record.graph) return;
  // Its last repetition may still be running; the driver frees it after that.
  context_.api().graph_exec_destroy(std::exchange(record.graph, nullptr));
}

void CallGraphs::drop_oldest() {
  for (Record& record : entries_.back().records) drop_graph(record);
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

bool CallGraphs::run(cuda::CUstream stream, const Stretch& stretch,
                     const std::function<void()>& launches) {
  if (are_rare_ || pause_ > 0) {
    if (pause_ > 0) --pause_;
    launches();
    return false;
  }
  Entry* entry = find(stretch);
  if (!entry) {
    // Is allocated before anything is launched.
    std::list<Entry> fresh;
    fresh.push_front({{stretch.slots.begin(), stretch.slots.end()},
                      {stretch.symbols.begin(), stretch.symbols.end()}});
    if (entries_.size() == kMostEntries) drop_oldest();
    entries_.splice(entries_.begin(), fresh);
    entry = &entries_.front();
  }
  auto record = std::ranges::find(entry->records, stretch.first, &Record::first);
  if (record == entry->records.end()) {
    entry->records.reserve(entry->records.size() + 1);
    launches();
    entry->records.push_back({stretch.first});
    return false;
  }
  if (!record->graph) {
    const CudaContext::Recorded recorded = context_.record(launches);
    if (!recorded.graph) {
      note_failure(recorded.failure);
      launches();
      return false;
    }
    record->graph = recorded.graph;
    are_rare_ = ++recorded_ >= kTrial * static_cast<int>(entry->records.size()) &&
                repeated_ < kWorthRepeats * recorded_;
  }
  const cuda::CUresult result = context_.api().graph_launch(record->graph, stream);
  if (result != cuda::CUDA_SUCCESS) {
    // Nothing of the stretch has been done. If the GPU is at fault, the launches will report it.
    drop_graph(*record);
    note_failure(cuda::error_text(context_.api(), result));
    launches();
    return false;
  }
  next_pause_ = kFirstPause;
  ++repeated_;
  return true;
}

}  // namespace braze
