// reductions_gpu.cpp — the rule for reductions on a GPU. Along rows: if one row or several fit in
// the registers of a block or a cluster, they stay there; otherwise the whole block walks them.
// Along columns: lanes are on neighbouring columns and warps on rows, and warps are folded at the
// end.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/rules/reductions.h"
#include "compiler/loops/rules/windows_gpu.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

constexpr int64_t kBlockThreads = 256;
constexpr int64_t kMostThreads = 1024;
// Elements of a row that a thread can keep without spilling: of one input, and of all inputs
// together.
constexpr int64_t kMostKept = 32, kMostLoaded = 96;
// Bytes that a thread can keep for later walks.
constexpr int64_t kMostKeptBytes = 160;
// Bytes of an input that a thread should have: two accesses. Kernels are slower with one access;
// with four they are no faster and have twice the code.
constexpr int64_t kFewBytes = 32;
// Threads of each block of a cluster that shares a row. The first number with which the row fits is
// taken.
constexpr int64_t kClusterThreads[] = {256, 512};
// Elements of a thread at each step of a row that is walked once, and of one that is walked several
// times, because following a running value costs something at each step. The latter needs
// registers, of which small blocks leave more. Besides, several blocks of a multiprocessor load and
// store at different times.
constexpr int64_t kWalkElements = 4, kWalkElementsAgain = 8;
constexpr int64_t kWalkThreadsAgain = 256;
// A reduction with few results is cut into chunks. Their number is part of the schedule, because it
// determines the order of the sum.
constexpr int64_t kMostChunks = 256;
constexpr int64_t kChunkElements = 8192;
// The number of threads with which a multiprocessor hides the latency of its memory.
constexpr int64_t kMultiprocessorThreads = 1024;
constexpr int64_t kLineBytes = 128, kAccessBytes = 16;
// Blocks of a multiprocessor that walk the same several times, and share its memory.
constexpr int64_t kMultiprocessorBlocks = 4;
// Bytes that a multiprocessor loads at a time, so that its share of the memory's rate is used: this
// rate times the latency of memory.
constexpr int64_t kBytesInFlight = 32 << 10;
// Bytes that a block loads in the time that a second phase takes to combine chunks.
constexpr int64_t kPhaseBytes = 4 * kBytesInFlight;

// Whether the reduction is cut into chunks, because there are few threads and much to reduce.
bool takes_chunks(bool one_pass, int64_t instances, int64_t per_instance, const Target& target,
                  int64_t threads = kMostThreads) {
  return one_pass && instances * threads < 2 * target.cores * kMostThreads &&
         per_instance >= 2 * kChunkElements;
}
// `units`: what cannot be cut further, of the whole.
int64_t count_chunks(int64_t instances, int64_t per_instance, int64_t units, const Target& target,
                     int64_t most = kMostChunks) {
  const int64_t wanted = ceil_power_of_two(8 * target.cores / std::max<int64_t>(instances, 1));
  return floor_power_of_two(std::min({wanted, most, per_instance / kChunkElements, units}));
}
bool carries_ratios(const LoopTree& tree) {
  bool out = false;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    out = out || (task.rescale && !task.shifts);
  });
  return out;
}
void chunk_walk(Scheduled& out, const ReductionNest& nest, size_t walks, int64_t instances,
                int64_t per_instance, int64_t turn, const Target& target,
                int64_t threads = kMostThreads, int64_t most = kMostChunks) {
  if (!takes_chunks(nest.begins_with_walk && walks == 1, instances, per_instance, target, threads))
    return;
  const size_t outermost = nest.walks[0].axes[0];
  const bool cut = count_loops(out.tree, out.tree.axes[outermost].name) > 1;
  const int64_t units = ceil_divide(planned_extent(out.tree, outermost), cut ? turn : 1);
  const int64_t chunks = count_chunks(instances, per_instance, units, target, most);
  // Extremes and what follows them are walked by whole blocks as long as these fill half of the
  // machine, because their second phase computes more.
  if (carries_ratios(out.tree) && 2 * instances > target.cores) return;
  if (chunks > 1) chunk_by_phase(out, out.tree.axes[outermost].name, chunks);
}

// --- Rows ---------------------------------------------------------------------------------------

struct Row {
  int64_t along = kWarpThreads, cluster = 1, vector = 1, tile = 1;
  int64_t rows = 1;   // rows of a block
  int64_t each = 1;   // rows of a thread, which read the same elements
  int64_t outer = 1;  // threads along the outer of two axes that are walked
  int64_t outer_tile = 1;
  bool resident = false;                  // whether the row fits in registers
  int64_t elements = kWalkElementsAgain;  // of a thread at each step, if the row is walked
  std::string lead;                       // a tensor: turns begin at its memory lines
  int64_t lead_step = 1;
};

// How many neighbours along the row one thread should access together. The row is padded to a
// multiple of all threads' vectors, which costs registers and instructions, more of them per byte
// for narrow elements. Longer vectors are worth 7 % of a row of 2-byte elements and 14 % of one of
// 4-byte elements, or more if a warp would otherwise access less than 128 bytes. The alignment of
// rows matters less, because tiles may begin before the row (`lead`). `kept` is the number of
// elements that a thread may keep of a row in registers; 0 if the row is walked.
int64_t row_vector(const WalkFacts& facts, const LoopAxis& axis, int64_t threads, int64_t kept,
                   bool may_lead) {
  constexpr int64_t kLaneBytes = 4;
  const int64_t aligned = vector_along(facts.touched, axis);
  int64_t least = kAccessBytes;
  bool contiguous = false, apart = false;
  for (const TreeAccess& access : facts.touched) {
    apart = apart || access.stride(axis) > 1;
    if (access.stride(axis) != 1) continue;
    contiguous = true;
    least = std::min(least, static_cast<int64_t>(access.bytes));
  }
  const bool leads = may_lead && contiguous && !apart;
  int64_t vector = leads ? std::min<int64_t>(kAccessBytes / least, 8) : aligned;
  const auto fits = [&] {
    const int64_t covered = facts.length + (vector > aligned ? vector - 1 : 0);
    const int64_t padded = ceil_divide(covered, threads * vector) * threads * vector;
    const bool fills = 28 * padded <= (28 + least) * facts.length || vector * least <= kLaneBytes;
    return facts.length >= kWarpThreads * vector &&
           (kept == 0 || (fills && padded <= threads * kept));
  };
  while (vector > 1 && !fits()) vector /= 2;
  return vector;
}

// Chooses the tensor that has most bytes along the row, if the position of its rows in memory lines
// varies.
void choose_lead(const LoopTree& tree, const WalkFacts& facts, const LoopAxis& axis, Row& row) {
  size_t least = kLineBytes;
  for (const TreeAccess& access : facts.touched)
    if (!access.irregular && access.stride(axis) == 1) least = std::min(least, access.bytes);
  int64_t step = kLineBytes / static_cast<int64_t>(least);
  const auto fits = [&] {
    return facts.length >= step && (!row.resident || facts.length + step - 1 <= row.tile);
  };
  while (step > row.vector && !fits()) step /= 2;
  if (!fits()) return;
  // By first position in a line: bytes, and a tensor.
  std::map<std::string, std::pair<size_t, size_t>> bytes;
  size_t most = 0;
  Expr lead;
  for (const TreeAccess& access : facts.touched) {
    if (access.irregular || access.stride(axis) != 1) continue;
    const Expr first = mod(access.offset.substitute(axis.name, 0), step);
    auto& [sum, tensor] = bytes.try_emplace(first.to_string(), 0, access.tensor).first->second;
    sum += access.bytes;
    if (sum <= most) continue;
    most = sum;
    lead = first;
    row.lead = tree.tensors[tensor].name;
  }
  // The lead must use all symbols that the accesses use: a tensor within one memory line would
  // begin at the same position for every row.
  for (const TreeAccess& access : facts.touched)
    if (!access.irregular && access.stride(axis) == 1) {
      const Expr first = access.offset.substitute(axis.name, 0);
      for (const std::string& symbol : first.symbols())
        if (!(first - lead).uses(symbol)) row.lead.clear();
    }
  if (lead.is_constant(0)) row.lead.clear();
  row.lead_step = step;
}

// Lets short rows share a warp or a block.
void share_block(const LoopTree& tree, const ReductionNest& nest, const WalkFacts& facts,
                 const Target& target, Row& out) {
  const int64_t used =
      std::min(out.along, ceil_power_of_two(ceil_divide(facts.length, out.vector)));
  out.rows = std::min({std::max<int64_t>(kBlockThreads / used, 1),
                       ceil_power_of_two(planned_extent(tree, nest.lines.back())),
                       floor_power_of_two(facts.lines / (2 * target.cores))});
  if (out.rows * used >= kWarpThreads && used < out.along && out.resident) {
    out.along = used;
    out.tile = ceil_divide(facts.length, used * out.vector) * used * out.vector;
  }
  out.rows = std::min(out.rows, std::max<int64_t>(kBlockThreads / out.along, 1));
}

// The bytes that one element has in all tensors that several walks along the axis read.
int64_t bytes_read_again(const LoopTree& tree, const ReductionNest& nest, size_t along) {
  std::set<size_t> before, again;
  for (const Walk& walk : nest.walks) {
    if (walk.along() != along) continue;
    std::set<size_t> loaded;
    for (const LoopTask* task : walk.tasks)
      for (const TreeAccess& access : accesses(tree, *task))
        if (!access.store && access.offset.uses(tree.axes[along].name))
          loaded.insert(access.tensor);
    std::ranges::set_intersection(before, loaded, std::inserter(again, again.end()));
    before.merge(loaded);
  }
  int64_t bytes = 0;
  for (const size_t tensor : again)
    bytes += static_cast<int64_t>(size_of(tree.tensors[tensor].type.dtype));
  return bytes;
}

// If lines are walked along two axes and the inner one is short, puts the threads that it leaves
// idle along the outer one.
void deal_outer_axis(const LoopTree& tree, const ReductionNest& nest, const WalkFacts& facts,
                     const Target& target, Row& out) {
  const std::vector<size_t>& axes = nest.walks[0].axes;
  const auto alike = [&](const Walk& walk) { return walk.axes == axes; };
  if (axes.size() != 2 || !std::all_of(nest.walks.begin(), nest.walks.end(), alike)) return;
  // Vectors are whole along the inner axis, because the outer one fills warps.
  const LoopAxis& inner = tree.axes[facts.along];
  const int64_t vector = std::max(
      out.vector, std::min(vector_along(facts.touched, inner), floor_power_of_two(facts.length)));
  const int64_t along = std::min(out.along, ceil_power_of_two(ceil_divide(facts.length, vector)));
  const int64_t registers = ceil_divide(facts.length, along * vector);
  if (registers * vector > kMostKept) return;
  const int64_t length = planned_extent(tree, axes[0]);
  // Enough threads to keep the machine at work, and at least a warp.
  const int64_t wanted =
      ceil_power_of_two(ceil_divide(target.cores * kMultiprocessorThreads, facts.lines * along));
  const int64_t outer =
      std::min({std::max(wanted, kWarpThreads / along), std::max<int64_t>(kBlockThreads / along, 1),
                ceil_power_of_two(length)});
  if (outer <= 1 || outer * along < kWarpThreads) return;
  // Loads of a thread overlap, as many as the rate of the memory needs; those of several tensors do
  // so anyway, and leave fewer registers.
  constexpr int64_t kMostElements = 16;
  int64_t bytes = 0, loads = 0;  // for an element
  for (const TreeAccess& access : facts.touched)
    if (!access.store && access.offset.uses(inner.name)) {
      bytes += static_cast<int64_t>(access.bytes);
      ++loads;
    }
  const int64_t busy =
      std::min(facts.lines * outer / target.cores * ceil_divide(facts.length, vector),
               2 * kMultiprocessorThreads);
  const int64_t usual = vector > out.vector ? 2 * vector : kWalkElements;
  const int64_t needed = floor_power_of_two(kBytesInFlight / std::max<int64_t>(busy * bytes, 1));
  const int64_t elements = loads > 1 ? usual : std::clamp(needed, usual, kMostElements);
  out.along = along;
  out.vector = vector;
  out.tile = along * registers * vector;
  out.outer = outer;
  out.outer_tile =
      outer * std::clamp<int64_t>(elements / (registers * vector), 1, ceil_divide(length, outer));
}

// Whether all walks only fold and can become one walk. A row is then read once even if nothing is
// kept.
bool folds_in_one_walk(const Scheduled& scheduled, const ReductionNest& nest,
                       const WalkFacts& facts) {
  for (const LoopTask* task : facts.tasks)
    if (task->kind != LoopTask::Kind::Fold) return false;
  Scheduled merged = scheduled;
  const std::string along = merged.tree.axes[facts.along].name;
  merge_walks(merged, along, /*means=*/false);
  return nest.walks.size() > 1 && count_loops(merged.tree, along) == 1;
}

// Many rows, each too short to fill a warp with whole vectors: a warp takes several of them, each
// thread has a few vectors, and neighbouring threads read whole sectors of memory. Returns false if
// there are too few rows.
bool choose_short_row(const LoopTree& tree, const ReductionNest& nest, const WalkFacts& facts,
                      const Target& target, Row& out) {
  constexpr int64_t kSectorBytes = 32;
  const LoopAxis& axis = tree.axes[facts.along];
  int64_t least = sizeof(double);
  for (const TreeAccess& access : facts.touched)
    if (access.offset.uses(axis.name)) least = std::min(least, static_cast<int64_t>(access.bytes));
  const int64_t vector = vector_along(facts.touched, axis);
  if (nest.lines.empty() || facts.length >= kWarpThreads * vector) return false;
  const int64_t most = ceil_power_of_two(ceil_divide(facts.length, vector));
  const int64_t threads =
      std::clamp(ceil_power_of_two(ceil_divide(facts.length * least, kFewBytes)),
                 std::min(ceil_divide(kSectorBytes, vector * least), most), most);
  const int64_t rows = kBlockThreads / threads;
  if (planned_extent(tree, nest.lines.back()) < rows || facts.lines < 2 * target.cores * rows)
    return false;
  out.along = threads;
  out.rows = rows;
  out.vector = vector;
  out.tile = ceil_divide(facts.length, threads * vector) * threads * vector;
  out.resident = true;
  return true;
}

// If several rows read the same elements, lets a thread take several rows and load these once.
void share_loads(const LoopTree& tree, const ReductionNest& nest, const WalkFacts& facts,
                 const Target& target, Row& out) {
  constexpr int64_t kRows = 4;
  if (nest.lines.empty() || out.cluster > 1 || out.outer > 1) return;
  const LoopAxis& along = tree.axes[facts.along];
  const LoopAxis& line = tree.axes[nest.lines.back()];
  bool loads = false;
  for (const TreeAccess& access : facts.touched) {
    if (!access.offset.uses(along.name)) continue;
    if (access.store || access.offset.uses(line.name)) return;
    loads = true;
  }
  const int64_t elements = out.tile / out.along;
  if (!loads || kRows * elements > kMostKept || planned_extent(tree, nest.lines.back()) < kRows ||
      facts.lines < 2 * target.cores * kRows * out.rows)
    return;
  out.each = kRows;
  out.lead.clear();
}

// A row that is walked several times: all blocks of a cluster walk it together, because the fewer
// bytes are read by all blocks until they are read again, the more of them are still in a cache. If
// a block's part of a long row does not leave room for those of other blocks in the cache of a
// multiprocessor, blocks are larger, and fewer. Math rows need small blocks, which compute at
// different times, and few steps that follow a running value.
void share_walk(const LoopTree& tree, const ReductionNest& nest, const WalkFacts& facts,
                const Target& target, Row& out) {
  out.along = std::min(out.along, kWalkThreadsAgain);
  if (target.cluster_blocks == 1) return;
  while (2 * out.cluster <= target.cluster_blocks &&
         2 * out.cluster * out.along * kWalkElementsAgain <= facts.length)
    out.cluster *= 2;
  const bool math = std::ranges::any_of(facts.tasks, [](const LoopTask* task) {
    return std::ranges::any_of(task->body.steps, [](const LoopStep& s) {
      return s.kind == LoopStep::Kind::Apply && !is_machine(s.op);
    });
  });
  const int64_t part = bytes_read_again(tree, nest, facts.along) * facts.length / out.cluster;
  const auto fits = [&] {
    return part * (kMultiprocessorThreads / out.along) <= target.l1_bytes / 4 * 3;
  };
  while (!math && out.along < kMostThreads && !fits()) out.along *= 2;
  if (math || out.along > kWalkThreadsAgain) out.elements *= 2;
}

Row choose_row(const Scheduled& scheduled, const ReductionNest& nest, const WalkFacts& facts,
               const Target& target) {
  Row out;
  const LoopTree& tree = scheduled.tree;
  const LoopAxis& axis = tree.axes[facts.along];
  const int64_t length = facts.length;
  int64_t inputs = 0;
  size_t least = sizeof(double), bytes = 0;
  for (const TreeAccess& access : facts.touched) {
    if (!access.offset.uses(axis.name)) continue;
    inputs += !access.store;
    least = std::min(least, access.bytes);
    bytes += access.bytes;
  }
  // Whether operations take longer than memory. Large blocks, which are alone on a multiprocessor,
  // have too few threads for that.
  const bool computes = operations(tree).varying / elementwise_rate(target) >
                        static_cast<double>(bytes) / target.memory_bytes_per_second;
  const bool single = std::all_of(nest.walks.begin(), nest.walks.end(),
                                  [](const Walk& walk) { return walk.axes.size() == 1; });
  if (single && choose_short_row(tree, nest, facts, target, out)) return out;
  out.vector = vector_along(facts.touched, axis);
  while (out.vector > 1 && length < kWarpThreads * out.vector) out.vector /= 2;
  const int64_t kept = std::clamp<int64_t>(
      std::min(kMostLoaded / std::max<int64_t>(inputs, 1),
               kMostKeptBytes / std::max<int64_t>(bytes_read_again(tree, nest, facts.along), 1)),
      out.vector, kMostKept);
  const int64_t few = kFewBytes / static_cast<int64_t>(least);
  // A warp that works alone needs no barriers. A longer row gets as many threads as it can use: the
  // power of two that gives each thread about `few` elements, or more threads if a thread could not
  // keep its part.
  if (length > kWarpThreads * kept) {
    const int64_t wanted = std::max(ceil_divide(2 * length, 3 * few), ceil_divide(length, kept));
    out.along = std::clamp(ceil_power_of_two(wanted), kWarpThreads, kMostThreads);
    // Two blocks of a multiprocessor load and store at different times. A thread that keeps one
    // input has registers for it.
    if (inputs == 1 && length <= kMostThreads / 2 * kept)
      out.along = std::min(out.along, kMostThreads / 2);
  }
  // A large block would first only load and then only compute. Small blocks that walk do both at
  // once, if there are enough of them.
  const bool walks = out.along > kBlockThreads && facts.lines >= 2 * target.cores &&
                     folds_in_one_walk(scheduled, nest, facts);
  out.resident = single && length <= out.along * kept && !walks;
  // Whether a later walk reads the same elements again.
  const bool again = single && facts.walks > 1;
  if (walks) {
    out.along = kWalkThreadsAgain;
  } else if (again && (!out.resident || (inputs == 1 && out.along == kMostThreads))) {
    // Several small blocks keep what one block cannot, or only one that is alone on its
    // multiprocessor. A multiprocessor then loads for one block while it stores for another.
    for (const int64_t threads : kClusterThreads) {
      const int64_t blocks = ceil_power_of_two(ceil_divide(length, threads * kept));
      if (blocks > target.cluster_blocks || (threads > kBlockThreads && computes)) continue;
      out.along = threads;
      out.cluster = blocks;
      out.resident = true;
      break;
    }
    if (!out.resident) share_walk(tree, nest, facts, target, out);
  }
  const int64_t aligned = out.vector, threads = out.along * out.cluster;
  const bool may_lead = single && out.along > kWarpThreads &&
                        !takes_chunks(facts.one_pass, facts.lines, facts.elements, target);
  out.vector = row_vector(facts, axis, threads, out.resident ? kept : 0, may_lead);
  const bool leads = out.vector > aligned;
  const int64_t unit = threads * out.vector;
  const int64_t covered = length + (leads ? out.vector - 1 : 0);
  if (!again) out.elements = kWalkElements;
  out.tile = out.resident ? ceil_divide(covered, unit) * unit
                          : threads * std::max({out.elements, out.vector, walks ? few : 0});
  if (!single) deal_outer_axis(tree, nest, facts, target, out);
  if (!leads && !nest.lines.empty() && out.outer == 1) share_block(tree, nest, facts, target, out);
  if (out.rows == 1 && may_lead) choose_lead(tree, facts, axis, out);
  share_loads(tree, nest, facts, target, out);
  return out;
}

// Walks along several axes whose innermost one is a few neighbours in memory, such as sums over
// taps and the channels of a group: each thread makes whole sums, and takes all neighbours at once.
// Threads lie along as many lines as give them neighbours in memory, and each makes sums of several
// lines if these read some elements alike. Returns false if the tree is not such a walk.
bool tile_few_neighbours(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts,
                         const Target& target) {
  constexpr int64_t kMostNeighbours = 16, kEach = 4, kMostUnrolled = 8;
  const LoopTree& tree = out.tree;
  const LoopAxis& along = tree.axes[facts.along];
  if (nest.walks.size() != 1 || nest.walks[0].axes.size() < 2 ||
      nest.walks[0].along() != facts.along || !along.extent.is_constant(facts.length) ||
      facts.length > kMostNeighbours || !std::has_single_bit(static_cast<uint64_t>(facts.length)))
    return false;
  std::vector<TreeAccess> loads;
  int64_t bytes = kAccessBytes;  // of an element
  for (const TreeAccess& access : facts.touched)
    if (!access.store && access.offset.uses(along.name)) {
      loads.push_back(access);
      bytes = std::min(bytes, static_cast<int64_t>(access.bytes));
    }
  const int64_t vector = vector_along(loads, along);
  if (vector < facts.length && vector * bytes < kAccessBytes) return false;

  std::vector<TiledAxis> tiled = {
      {along.name, facts.length, digits({{Resource::Register, 1, facts.length}})}};
  std::vector<std::pair<std::string, int64_t>> dealt;
  int64_t threads = 1;
  size_t n = nest.lines.size();
  for (; n > 0 && threads < kBlockThreads; --n) {
    const LoopAxis& line = tree.axes[nest.lines[n - 1]];
    const auto extent = line.extent.as_constant();
    const bool whole = extent && *extent <= kBlockThreads / threads &&
                       std::has_single_bit(static_cast<uint64_t>(*extent));
    const int64_t count = whole ? *extent : kBlockThreads / threads;
    tiled.push_back({line.name, count, threads_along(threads, count)});
    dealt.emplace_back(line.name, count);
    threads *= count;
  }
  // Neighbouring threads read neighbouring vectors, or the same one.
  const bool adjoin = std::ranges::all_of(loads, [&](const TreeAccess& access) {
    return std::ranges::any_of(dealt, [&](const auto& line) {
      return access.stride(axis_of(tree, line.first)) == facts.length;
    });
  });
  if (!adjoin || facts.lines < 2 * target.cores * threads) return false;
  if (n > 0 && facts.lines >= 2 * target.cores * threads * kEach) {
    const LoopAxis& line = tree.axes[nest.lines[n - 1]];
    const bool shared = std::ranges::any_of(
        loads, [&](const TreeAccess& access) { return !access.offset.uses(line.name); });
    if (shared && planned_extent(tree, nest.lines[n - 1]) >= kEach) {
      tiled.push_back({line.name, kEach, digits({{Resource::Register, facts.length, kEach}})});
      dealt.emplace_back(line.name, kEach);
    }
  }
  const std::string inner = along.name;
  const size_t walked = nest.walks[0].axes[nest.walks[0].axes.size() - 2];
  const std::string walk = tree.axes[walked].name;
  const auto turns = tree.axes[walked].extent.as_constant();
  std::vector<std::string> lines;
  for (const size_t line : nest.lines) lines.push_back(tree.axes[line].name);
  deal_lines(out, lines, dealt);
  cut_walks(out, inner, facts.length);
  out.try_take(LastStep{inner});
  if (turns && *turns <= kMostUnrolled) out.try_take(UnrollStep{{walk}, *turns});
  bind_layouts(out, tiled);
  return true;
}

void tile_rows(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts,
               const Target& target) {
  if (tile_few_neighbours(out, nest, facts, target)) return;
  const Row row = choose_row(out, nest, facts, target);
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::vector<std::string> lines = names_of(out.tree, nest.lines);
  const std::string along = name(facts.along);
  // Walks along other axes use the same threads.
  std::vector<TiledAxis> tiled;
  const auto add = [&](const std::string& axis, int64_t vector, int64_t tile) {
    const int64_t lanes = std::min(row.along, kWarpThreads);
    tiled.push_back(
        {axis, tile,
         digits({{Resource::Register, vector, tile / (row.cluster * row.along * vector)},
                 {Resource::Block, 1, row.cluster},
                 {Resource::Warp, 1, row.along / lanes},
                 {Resource::Lane, 1, lanes},
                 {Resource::Register, 1, vector}})});
  };
  add(along, row.vector, row.tile);
  std::string outer;
  if (row.outer > 1) {
    outer = name(nest.walks[0].axes[0]);
    std::vector<Digit> of_outer =
        digits({{Resource::Register, row.tile / row.along, row.outer_tile / row.outer}});
    for (const Digit& digit : threads_along(row.along, row.outer)) of_outer.push_back(digit);
    tiled.push_back({outer, row.outer_tile, of_outer});
  }
  const int64_t rows = row.rows * row.each;
  if (rows > 1) {
    std::vector<Digit> of_rows = digits({{Resource::Register, row.tile / row.along, row.each}});
    for (const Digit& digit : threads_along(row.along, row.rows)) of_rows.push_back(digit);
    tiled.push_back({lines.back(), rows, of_rows});
  }
  std::set<std::string> others;
  for (const Walk& walk : nest.walks)
    if (walk.along() != facts.along) others.insert(name(walk.along()));
  for (const std::string& axis : others) add(axis, 1, row.cluster * row.along);
  int64_t instances = facts.lines / rows;

  if (rows > 1)
    deal_lines(out, lines, {{lines.back(), rows}});
  else
    deal_lines(out, lines, {});
  for (const TiledAxis& t : tiled)
    if (lines.empty() || rows == 1 || t.name != lines.back()) cut_walks(out, t.name, t.tile);
  size_t left = nest.walks.size();
  if (!row.resident) {
    const bool means = reads_far(out.tree, facts, rows, kMultiprocessorBlocks, target);
    const size_t merges = outer.empty() ? 0 : merge_walks(out, outer, means);
    left -= std::max(merges, merge_walks(out, along, means));
  }
  chunk_walk(out, nest, left, instances, facts.elements, outer.empty() ? row.tile : row.outer_tile,
             target);
  if (out.tree.phases.size() > 1) {
    const LoopAxis chunk = out.tree.axes.back();
    const int64_t chunks = *chunk.extent.as_constant();
    tiled.push_back(
        {chunk.name, chunks, spread({chunks}, {std::min(chunks, kWarpThreads)}, 1).axes[0]});
  }
  if (row.vector > 1 && rows > 1 &&
      *find_axis(out.tree, along) < *find_axis(out.tree, lines.back()))
    out.take(LastStep{along});
  if (!row.lead.empty())
    for (int64_t n = 1; find_loop(out.tree, {along, n}); ++n)
      out.try_take(LeadStep{{along, n}, row.lead, row.lead_step});
  if (!row.resident) part_walks(out, along, row.tile);
  if (!outer.empty()) {
    part_walks(out, outer, row.outer_tile);
    if (*find_axis(out.tree, along) < *find_axis(out.tree, outer)) out.take(LastStep{along});
  }
  bind_layouts(out, tiled);
}

// --- Columns ------------------------------------------------------------------------------------

// How the threads of a block lie on columns and rows.
struct ColumnBlock {
  const LoopAxis& axis;
  int64_t vector, across, rows;  // columns of a thread, threads along columns and along rows
  int64_t instances;             // blocks that together have all columns
  bool follows_means;            // whether a thread follows means
};

// The number of rows that a thread loads at a time.
int64_t turns_at_once(const LoopTree& tree, const WalkFacts& facts, const ColumnBlock& block,
                      const Target& target) {
  int64_t least = sizeof(double), loads = 0;
  for (const TreeAccess& access : facts.touched) {
    if (!access.offset.uses(block.axis.name) || !access.offset.uses(tree.axes[facts.along].name))
      continue;
    least = std::min(least, static_cast<int64_t>(access.bytes));
    loads += !access.store;
  }
  // If accesses are narrow, as in rows of odd length, more of them must be under way.
  const int64_t usual = std::max(kWalkElements, kFewBytes / (block.vector * least));
  // More inputs, or means, would take too many registers.
  if (!facts.one_pass || loads != 1 || block.follows_means) return usual;
  const int64_t columns = block.across * block.vector, threads = block.across * block.rows;
  int64_t blocks = block.instances;
  if (takes_chunks(facts.one_pass, block.instances, facts.elements * columns, target, threads))
    blocks *= count_chunks(block.instances, facts.elements * columns,
                           ceil_divide(facts.length, block.rows * usual), target);
  blocks = std::min(blocks, target.cores * kMultiprocessorThreads * 2 / threads);
  // Loads of two turns overlap; those of four are worth their registers where blocks are few.
  const int64_t bytes = blocks * threads * 2 * usual * block.vector * least;
  return bytes < target.cores * kBytesInFlight ? 4 * usual : 2 * usual;
}

// Lanes are on columns. If the columns alone do not fill the machine, warps are on rows.
void tile_columns(Scheduled& out, const ReductionNest& nest, WalkFacts facts, size_t column,
                  const Target& target) {
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::string lane = name(column), along = name(facts.along);
  const LoopAxis axis = out.tree.axes[column];
  const int64_t extent = planned_extent(out.tree, column);
  int64_t vector = std::min<int64_t>(vector_along(facts.touched, axis), 4);
  while (vector > 1 && extent < kWarpThreads * vector) vector /= 2;
  const bool means =
      reads_far(out.tree, facts, kWarpThreads * vector, kMultiprocessorBlocks, target);
  const bool follows = means && follows_means(out, nest, along);
  facts.one_pass |= follows;
  const int64_t threads = ceil_divide(facts.lines, vector);
  const int64_t filling =
      ceil_power_of_two(ceil_divide(target.cores * kMultiprocessorThreads, threads));
  // Columns that are walked several times are not cut into chunks, so that larger blocks of fewer
  // columns fill the machine, as long as a row of a block is a memory line.
  const int64_t most = facts.one_pass && !follows ? kBlockThreads : 2 * kBlockThreads;
  const int64_t warps = std::min({most / kWarpThreads, ceil_power_of_two(facts.length), filling});
  int64_t across = std::min(warps == filling ? most / warps : kWarpThreads,
                            ceil_power_of_two(ceil_divide(extent, vector)));
  int64_t column_bytes = sizeof(double);
  for (const TreeAccess& access : facts.touched)
    if (access.stride(axis) == 1)
      column_bytes = std::min(column_bytes, static_cast<int64_t>(access.bytes));
  while (!facts.one_pass && across * vector * column_bytes > kLineBytes &&
         facts.lines / (across * vector) < kMultiprocessorBlocks * target.cores)
    across /= 2;
  // If there are few columns, a warp takes several rows.
  const int64_t rows_of_warp = std::max<int64_t>(kWarpThreads / across, 1);
  const int64_t rows = warps * rows_of_warp;
  const int64_t instances = ceil_divide(facts.lines, across * vector);
  const int64_t deep =
      turns_at_once(out.tree, facts, {axis, vector, across, rows, instances, follows}, target);
  const int64_t registers = std::min(deep, ceil_power_of_two(ceil_divide(facts.length, rows)));
  const int64_t tile = rows * registers;

  const std::vector<std::string> lines = names_of(out.tree, nest.lines);
  std::vector<Digit> of_lanes = threads_along(1, across);
  if (vector > 1) of_lanes.push_back({Resource::Register, 1, vector});
  std::vector<Digit> of_rows = digits({{Resource::Register, vector, registers}});
  for (const Digit& digit : threads_along(across, rows)) of_rows.push_back(digit);
  std::vector<TiledAxis> tiled = {{lane, across * vector, of_lanes}, {along, tile, of_rows}};

  deal_lines(out, lines, {{lane, across * vector}});
  if (tile > 1) cut_walks(out, along, tile);
  const size_t left = nest.walks.size() - merge_walks(out, along, means);
  // A thread combines means of few chunks, because it keeps several numbers of each.
  constexpr int64_t kMeansOfThread = 8;
  chunk_walk(out, nest, left, instances, facts.elements * across * vector, tile, target,
             across * rows, follows ? std::min(kMeansOfThread * rows, kMostChunks) : kMostChunks);
  if (tile > 1) part_walks(out, along, tile);
  if (out.tree.phases.size() > 1) {
    // Threads that were on rows reduce the totals of the chunks.
    const LoopAxis chunk = out.tree.axes.back();
    const int64_t chunks = *chunk.extent.as_constant();
    const int64_t shared = std::min(rows, chunks);
    std::vector<Digit> of_chunks = digits({{Resource::Register, vector, chunks / shared}});
    for (const Digit& digit : threads_along(across, shared)) of_chunks.push_back(digit);
    tiled.push_back({chunk.name, chunks, of_chunks});
  }
  out.take(LastStep{lane});
  part_tail(out, {lane}, across * vector);
  bind_layouts(out, tiled);
}

// The bytes that an instance with so many neighbours along `column` loads.
int64_t bytes_loaded(const LoopTree& tree, const ReductionNest& nest, const WalkFacts& facts,
                     size_t column, int64_t columns) {
  std::map<size_t, double> loaded;  // by tensor
  for (const TreeAccess& access : facts.touched) {
    if (access.store) continue;
    double elements = 1;
    for (const Expr& dim : tree.tensors[access.tensor].type.shape.dims())
      elements *= static_cast<double>(dim.range().max);
    for (const size_t line : nest.lines)
      if (access.offset.uses(tree.axes[line].name))
        elements /= static_cast<double>(planned_extent(tree, line)) /
                    static_cast<double>(line == column ? columns : 1);
    loaded[access.tensor] =
        std::max(loaded[access.tensor], elements * static_cast<double>(access.bytes));
  }
  double out = 0;
  for (const auto& [tensor, bytes] : loaded) out += bytes;
  return static_cast<int64_t>(out);
}

// Few columns, and few bytes in each: a block takes a memory line of columns, and its warps share
// the terms. This takes less time than chunks, whose sums a second phase combines. Of terms along
// two axes, a thread has all along the inner one, because they often read the same elements.
// Returns false if there are many columns or many bytes.
bool tile_lines_of_columns(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts,
                           size_t column, const Target& target) {
  constexpr int64_t kMostInner = 32, kTermsAtOnce = 8, kFewWarps = 16, kMostWarps = 32;
  constexpr int64_t kUsualVector = 4;
  const LoopTree& tree = out.tree;
  const LoopAxis& axis = tree.axes[column];
  if (!facts.one_pass || nest.walks[0].axes.size() > 2) return false;
  int64_t widest = 1;
  for (const TreeAccess& access : facts.touched)
    if (access.stride(axis) == 1) widest = std::max(widest, static_cast<int64_t>(access.bytes));
  const int64_t vector = std::min(std::max<int64_t>(kLineBytes / kWarpThreads / widest, 1),
                                  vector_along(facts.touched, axis));
  const int64_t columns = kWarpThreads * vector, usual = kWarpThreads * kUsualVector;
  const int64_t instances = ceil_divide(facts.lines, usual), terms = facts.elements * usual;
  if (planned_extent(tree, column) < columns ||
      !takes_chunks(true, instances, terms, target, kBlockThreads) ||
      count_chunks(instances, terms, facts.elements, target) == 1 ||
      bytes_loaded(tree, nest, facts, column, columns) > kPhaseBytes)
    return false;
  const bool two = nest.walks[0].axes.size() == 2;
  const Expr inner = tree.axes[facts.along].extent;
  if (two && (!inner.is_constant(facts.length) || facts.length * vector > kMostInner)) return false;

  const auto name = [&](size_t a) { return tree.axes[a].name; };
  const std::string lane = name(column), along = name(facts.along);
  const std::string outer = name(nest.walks[0].axes[0]);
  const int64_t turns = two ? planned_extent(tree, nest.walks[0].axes[0]) : facts.length;
  // More warps have too few registers for several sums.
  const int64_t most = facts.tasks.size() == 1 && turns >= 2 * kMostWarps ? kMostWarps : kFewWarps;
  const int64_t warps = std::min(most, ceil_power_of_two(turns));
  const int64_t each =
      two ? 1 : std::min(kTermsAtOnce, ceil_power_of_two(ceil_divide(turns, warps)));
  const std::vector<std::string> lines = names_of(tree, nest.lines);
  std::vector<Digit> of_lanes = threads_along(1, kWarpThreads);
  if (vector > 1) of_lanes.push_back({Resource::Register, 1, vector});
  std::vector<TiledAxis> tiled = {
      {lane, columns, of_lanes},
      {outer, warps * each,
       digits({{Resource::Register, vector, each}, {Resource::Warp, 1, warps}})}};
  if (two)
    tiled.push_back({along, facts.length, digits({{Resource::Register, vector, facts.length}})});

  deal_lines(out, lines, {{lane, columns}});
  if (two) cut_walks(out, along, facts.length);
  cut_walks(out, outer, warps * each);
  part_walks(out, outer, warps * each);
  out.take(LastStep{lane});
  part_tail(out, {lane}, columns);
  bind_layouts(out, tiled);
  return true;
}

// Few terms for each of many results: every thread has its own results, neighbours along the
// columns in a few lines, which share what they load alike. Returns false if the results do not
// fill the machine, or if there are many terms.
bool tile_few_terms(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts,
                    size_t column, const Target& target) {
  constexpr int64_t kFewTerms = 128, kLinesOfThread = 2;
  const LoopAxis axis = out.tree.axes[column];
  const int64_t extent = planned_extent(out.tree, column);
  // The innermost other line, because its indices read overlapping elements.
  std::optional<size_t> beside;
  for (const size_t line : nest.lines)
    if (line != column && planned_extent(out.tree, line) > kLinesOfThread) beside = line;
  // If no term lies along the columns, the results do.
  const bool has_terms = std::ranges::any_of(
      facts.touched, [&](const TreeAccess& access) { return access.offset.uses(axis.name); });
  const int64_t vector = vector_along(has_terms ? facts.touched : accesses(out.tree), axis);
  // Narrow tiles read short pieces of memory; wide tiles may reach far beyond the end.
  int64_t across = ceil_power_of_two(ceil_divide(extent, vector));
  const auto cost = [&](int64_t threads) {
    return static_cast<double>(ceil_divide(extent, threads * vector) * threads) *
           (1 + 0.5 / static_cast<double>(threads));
  };
  for (int64_t threads = across / 2; threads > 1; threads /= 2)
    if (cost(threads) < cost(across)) across = threads;
  if (!facts.one_pass || facts.elements > kFewTerms || !beside || across >= kBlockThreads ||
      facts.lines / (vector * kLinesOfThread) < target.cores * kMultiprocessorThreads)
    return false;
  // As many lines as fill a block; or half of them, if fewer lie beyond the end then.
  const int64_t length = planned_extent(out.tree, *beside);
  const auto padded = [&](int64_t lines) { return ceil_divide(length, lines) * lines; };
  int64_t threads = std::min(kBlockThreads / across, ceil_power_of_two(length));
  int64_t each = length >= threads * kLinesOfThread ? kLinesOfThread : 1;
  if (threads * across > kWarpThreads && padded(threads * each / 2) < padded(threads * each))
    threads /= 2;
  const auto name = [&](size_t a) { return out.tree.axes[a].name; };
  std::vector<Digit> of_lanes = threads_along(1, across);
  if (vector > 1) of_lanes.push_back({Resource::Register, 1, vector});
  std::vector<Digit> of_lines = digits({{Resource::Register, vector, each}});
  for (const Digit& digit : threads_along(across, threads)) of_lines.push_back(digit);
  const std::string lane = name(column), line = name(*beside);
  const std::vector<std::string> lines = names_of(out.tree, nest.lines);
  deal_lines(out, lines, {{lane, across * vector}, {line, threads * each}});
  out.take(LastStep{lane});
  bind_layouts(out, {{lane, across * vector, of_lanes}, {line, threads * each, of_lines}});
  return true;
}

// The innermost line, if all its neighbours read the same terms, and what is their own lies side by
// side in memory, and there are enough lines for all threads: comparisons of all pairs in many
// short rows. Then every thread makes whole sums. A term is loaded for a warp at once, and no sums
// are folded.
std::optional<size_t> line_of_shared_terms(const LoopTree& tree, const ReductionNest& nest,
                                           const WalkFacts& facts, const Target& target) {
  if (!facts.one_pass || nest.lines.empty() ||
      facts.lines < 2 * target.cores * kMultiprocessorThreads)
    return std::nullopt;
  const size_t line = nest.lines.back();
  if (planned_extent(tree, line) < kWarpThreads) return std::nullopt;
  bool loads = false;
  for (const TreeAccess& access : facts.touched) {
    const bool terms = access.uses(tree.axes[facts.along]);
    loads |= terms;
    if (!access.uses(tree.axes[line])) continue;
    if (terms || access.stride(tree.axes[line]) != 1) return std::nullopt;
  }
  return loads ? std::optional(line) : std::nullopt;
}

}  // namespace

std::optional<Refusal> tile_reductions_for_gpu(Scheduled& out, const Target& target) {
  if (tile_windows_for_gpu(out, target)) return std::nullopt;
  const auto nest = collapsed_reductions(out);
  if (!nest) return unserved_reduction(out.tree);
  const WalkFacts facts = facts_of(out.tree, *nest);
  std::vector<size_t> axes = nest->lines;
  axes.push_back(facts.along);
  size_t lane = best_lane_axis(out.tree, facts.touched, axes, kWarpThreads, true);
  if (lane == facts.along)
    lane = line_of_shared_terms(out.tree, *nest, facts, target).value_or(lane);
  if (lane == facts.along)
    tile_rows(out, *nest, facts, target);
  else if (!tile_few_terms(out, *nest, facts, lane, target) &&
           !tile_lines_of_columns(out, *nest, facts, lane, target))
    tile_columns(out, *nest, facts, lane, target);
  return std::nullopt;
}

}  // namespace braze
