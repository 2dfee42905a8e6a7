// windows_gpu.cpp — the rules for folds over windows on a GPU. Neighbours along a line read
// overlapping elements, and so do the taps of a window in neighbouring terms. A thread has several
// of them, loads once what they read alike, and keeps it in registers.
#include "compiler/loops/rules/windows_gpu.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/steps/places.h"

namespace braze {

namespace {

// Terms of a result, taps that are written out, and neighbours of a thread.
constexpr int64_t kFewTerms = 128, kMostTaps = 32, kMostNeighbours = 8;
constexpr int64_t kBlockThreads = 256, kMostRows = 8, kMostWarps = 4;
// Registers of a thread for sums and for what it loads at a time, and those for addresses and
// conditions beside them.
constexpr int64_t kMostRegisters = 140, kOtherRegisters = 20;
// The threads with which a multiprocessor is at work, and with which it hides the latency of its
// memory.
constexpr int64_t kFewThreads = 256, kManyThreads = 1024;
constexpr int64_t kLineBytes = 128, kSectorBytes = 32;
// In operations: what it takes to look up a memory line for each lane, and to bring a byte from
// memory. What blocks take that have one row, relative to those that have many: neighbouring rows
// read the same elements through the first cache.
constexpr double kLookUp = 225, kByte = 3.5, kApart = 0.3;

// Elements `taps` of the windows that move along `line`. Both are axes: either results move along
// the line and sum taps, or terms lie along it and belong to the sums of all taps.
struct Windows {
  size_t line = 0;
  std::vector<size_t> taps;
  int64_t count = 1;  // of all taps
};

int64_t extent(const LoopTree& tree, size_t axis) { return planned_extent(tree, axis); }

// Whether some coordinate of what is loaded moves along both axes.
bool moves_along(const LoopTree& tree, const WalkFacts& facts, size_t a, size_t b) {
  const auto uses = [&](const Expr& e) {
    return e.uses(tree.axes[a].name) && e.uses(tree.axes[b].name);
  };
  return std::ranges::any_of(facts.tasks, [&](const LoopTask* task) {
    return std::ranges::any_of(task->body.steps, [&](const LoopStep& s) {
      return s.kind == LoopStep::Kind::Load && std::ranges::any_of(s.at, uses);
    });
  });
}

// The number of elements that so many neighbours read through all taps, or as many as there are
// reads if it is not known.
int64_t count_reads(const LoopTree& tree, const Windows& windows, const TreeAccess& access,
                    int64_t neighbours) {
  const LoopAxis& line = tree.axes[windows.line];
  std::set<int64_t> places;
  const auto along = access.offset.coefficient_of(line.name);
  bool linear = along && along->as_constant();
  std::vector<int64_t> steps;
  for (const size_t axis : windows.taps) {
    const auto step = access.offset.coefficient_of(tree.axes[axis].name);
    linear = linear && step && step->as_constant();
    if (linear) steps.push_back(*step->as_constant());
  }
  const Expr turn = Expr::symbol("windows.turn", {0, line.extent.range().max / neighbours});
  std::optional<Expr> first;
  for (int64_t n = 0; n < neighbours; ++n)
    for (int64_t number = 0; number < windows.count; ++number) {
      int64_t place = linear ? *along->as_constant() * n : 0, rest = number;
      Expr at = linear ? Expr() : access.offset.substitute(line.name, turn * neighbours + n);
      for (size_t i = 0; i < windows.taps.size(); ++i) {
        const LoopAxis& axis = tree.axes[windows.taps[i]];
        const int64_t length = extent(tree, windows.taps[i]), tap = rest % length;
        rest /= length;
        if (linear)
          place += steps[i] * tap;
        else
          at = at.substitute(axis.name, tap);
      }
      if (!linear) {
        if (!first) first = at;
        const auto distance = (at - *first).as_constant();
        if (!distance) return neighbours * windows.count;
        place = *distance;
      }
      places.insert(place);
    }
  return static_cast<int64_t>(places.size());
}

// Whether two neighbours read something that one of them reads alone.
bool overlap(const LoopTree& tree, const Windows& windows, const WalkFacts& facts) {
  return std::ranges::any_of(facts.touched, [&](const TreeAccess& access) {
    return !access.store &&
           count_reads(tree, windows, access, 2) < 2 * count_reads(tree, windows, access, 1);
  });
}

// Whether neighbours save half of all loads, by what they read alike. Otherwise more threads with
// fewer neighbours each keep the memory busier: a maximum over 3x3 places with stride 2 took 44 us
// on an H200, and 77 with seven neighbours in a thread.
bool saves_loads(const LoopTree& tree, const Windows& windows, const WalkFacts& facts) {
  const int64_t neighbours = std::min(kMostNeighbours, extent(tree, windows.line));
  int64_t together = 0, apart = 0;
  for (const TreeAccess& access : facts.touched) {
    if (access.store) continue;
    together += count_reads(tree, windows, access, neighbours);
    apart += neighbours * count_reads(tree, windows, access, 1);
  }
  return 2 * together <= apart;
}

// The elements that tiles of `tile` elements cover, as a multiple of those that there are.
double covered(int64_t length, int64_t tile) {
  return static_cast<double>(ceil_divide(length, tile) * tile) / static_cast<double>(length);
}

// What a thread does for so many neighbours and all taps.
struct Work {
  int64_t registers = kOtherRegisters;
  double operations = 0;
  int64_t loads = 0, bytes = 1;  // of what differs along the line, and of one of them

  // Operations, and the time of as many until what is loaded is there. The first cache looks up one
  // memory line at a time for the lanes of a warp, of which `across` are neighbours.
  double cost(int64_t across) const {
    const int64_t together = std::clamp(kLineBytes / bytes, int64_t{1}, across);
    return operations + static_cast<double>(loads) * kLookUp / static_cast<double>(together);
  }
};

// The bytes of what is read and written.
double bytes_of(const LoopTree& tree) {
  std::map<size_t, double> bytes;  // by tensor
  for (const TreeAccess& access : accesses(tree)) {
    const auto elements = tree.tensors[access.tensor].type.shape.numel().range().max;
    bytes[access.tensor] = static_cast<double>(elements) * static_cast<double>(access.bytes);
  }
  double out = 0;
  for (const auto& [tensor, own] : bytes) out += own;
  return out;
}

// `sums`: the sums of the thread for one column.
Work work_of(const LoopTree& tree, const Windows& windows, const WalkFacts& facts,
             const LoopAxis& column, int64_t vector, int64_t neighbours, int64_t sums) {
  const auto words = [](int64_t bytes) { return ceil_divide(bytes, int64_t{4}); };
  constexpr double kRound = 2, kLoad = 5;  // with its address and condition
  Work out;
  const auto terms = static_cast<double>(neighbours * windows.count * vector);
  for (const LoopTask* task : facts.tasks) {
    const auto bytes = static_cast<int64_t>(size_of(compute_type(body_dtype(*task))));
    out.registers += sums * vector * words(bytes);
    out.operations += terms;
    // What is rounded on the way to the sums.
    for (const LoopStep& s : task->body.steps) {
      if (s.kind != LoopStep::Kind::Apply || !is_half(s.dtype) || s.op == ElementwiseOp::select)
        continue;
      out.registers += sums * vector;
      out.operations += kRound * terms;
    }
  }
  for (const TreeAccess& access : facts.touched) {
    if (access.store) continue;
    const int64_t reads = count_reads(tree, windows, access, neighbours);
    const auto bytes = static_cast<int64_t>(access.bytes);
    const int64_t own = access.stride(column) != 0 ? vector : 1;
    out.registers += reads * words(own * bytes);
    const int64_t widened = bytes < 4 ? own : 0;
    out.operations += static_cast<double>(reads) * (kLoad + static_cast<double>(widened));
    if (!access.offset.uses(tree.axes[windows.line].name)) continue;
    out.loads += reads;
    out.bytes = std::max(out.bytes, own * bytes);
  }
  return out;
}

// --- Few terms for each of many results ---------------------------------------------------------

std::optional<Windows> find_windows(const LoopTree& tree, const ReductionNest& nest,
                                    const WalkFacts& facts, size_t column) {
  const std::vector<size_t>& walk = nest.walks[0].axes;
  for (size_t i = nest.lines.size(); i-- > 0;) {
    if (nest.lines[i] == column) continue;
    Windows out{nest.lines[i], {}, 1};
    for (size_t w = walk.size(); w-- > 0;) {
      out.taps.push_back(walk[w]);
      out.count *= extent(tree, walk[w]);
      if (out.count > kMostTaps) break;
      if (moves_along(tree, facts, out.line, walk[w]) && overlap(tree, out, facts)) return out;
    }
  }
  return std::nullopt;
}

// How the threads of a block lie on three lines.
struct BlockTile {
  int64_t vector = 1, across = 1;      // columns of a thread, and threads along columns
  int64_t neighbours = 1, beside = 1;  // the same along the line of the windows
  std::optional<size_t> row;           // another line
  int64_t rows = 1;                    // threads along it
};

BlockTile choose_block(const LoopTree& tree, const Windows& windows, const WalkFacts& facts,
                       size_t column, const ReductionNest& nest, const Target& target) {
  const LoopAxis& axis = tree.axes[column];
  const int64_t columns = extent(tree, column), length = extent(tree, windows.line);
  BlockTile out;
  out.vector = vector_along(facts.touched, axis);
  while (out.vector > 1 && columns < out.vector) out.vector /= 2;
  for (const size_t line : nest.lines)
    if (line != column && line != windows.line && extent(tree, line) > 1) out.row = line;
  const int64_t lines = out.row ? extent(tree, *out.row) : 1;
  // For one vector of results.
  const double memory = kByte * bytes_of(tree) / static_cast<double>(facts.lines / out.vector);
  double best = 0;
  const auto consider = [&](const BlockTile& tile, const Work& work) {
    const int64_t warp = tile.across * tile.beside, threads = warp * tile.rows;
    const bool dealt =
        std::has_single_bit(static_cast<uint64_t>(tile.rows)) || warp % kWarpThreads == 0;
    if (!dealt || threads > kBlockThreads) return;
    const int64_t own = tile.beside * tile.neighbours;
    // Fewer registers leave room for more threads, which keep the memory busy.
    const double crowded = 1 + static_cast<double>(work.registers) / kMostRegisters;
    const double cost =
        (memory * crowded + work.cost(tile.across) / static_cast<double>(tile.neighbours)) *
        covered(threads, kWarpThreads) * covered(length, own) *
        covered(columns, tile.across * tile.vector) * covered(lines, tile.rows) *
        (1 + kApart / static_cast<double>(tile.rows)) * (1 + kApart / static_cast<double>(own));
    if (best != 0 && cost >= best) return;
    best = cost;
    out = tile;
  };
  BlockTile tile = out;
  for (tile.neighbours = std::min(kMostNeighbours, length); tile.neighbours >= 1;
       --tile.neighbours) {
    const Work work =
        work_of(tree, windows, facts, axis, tile.vector, tile.neighbours, tile.neighbours);
    if (tile.neighbours > 1 &&
        (work.registers > kMostRegisters ||
         facts.lines / (tile.vector * tile.neighbours) < target.cores * kFewThreads))
      continue;
    const auto is_short = [](int64_t length_of, int64_t threads, int64_t own) {
      return threads > 1 && threads * own >= 2 * length_of;
    };
    for (tile.beside = 1; tile.beside <= kBlockThreads; tile.beside *= 2)
      for (tile.across = 1; tile.across <= kBlockThreads / tile.beside; tile.across *= 2)
        for (tile.rows = 1; tile.rows <= kMostRows && tile.rows < 2 * lines; ++tile.rows)
          if (!is_short(length, tile.beside, tile.neighbours) &&
              !is_short(columns, tile.across, tile.vector))
            consider(tile, work);
  }
  return out;
}

// A block has neighbours along the line, columns, and neighbouring rows. Returns false if the
// results do not fill the machine.
bool tile_few_taps(Scheduled& out, const ReductionNest& nest, const WalkFacts& facts, size_t column,
                   const Target& target) {
  const LoopTree& tree = out.tree;
  const auto windows = find_windows(tree, nest, facts, column);
  if (!windows || !saves_loads(tree, *windows, facts)) return false;
  const BlockTile tile = choose_block(tree, *windows, facts, column, nest, target);
  const int64_t threads = facts.lines / (tile.vector * tile.neighbours);
  if (2 * threads < target.cores * kFewThreads) return false;
  // Few threads have all their loads under way at once.
  Windows all{windows->line, nest.walks[0].axes, facts.elements};
  std::ranges::reverse(all.taps);
  const bool at_once =
      threads < target.cores * kManyThreads && all.count <= kMostTaps &&
      work_of(tree, all, facts, tree.axes[column], tile.vector, tile.neighbours, tile.neighbours)
              .registers <= kMostRegisters;

  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  std::vector<Digit> of_columns = threads_along(1, tile.across);
  if (tile.vector > 1) of_columns.push_back({Resource::Register, 1, tile.vector});
  std::vector<Digit> of_line = threads_along(tile.across, tile.beside);
  if (tile.neighbours > 1) of_line.push_back({Resource::Register, tile.vector, tile.neighbours});
  const std::string lane = name(column);
  std::vector<TiledAxis> tiled = {{lane, tile.across * tile.vector, of_columns},
                                  {name(windows->line), tile.beside * tile.neighbours, of_line}};
  if (tile.row)
    tiled.push_back(
        {name(*tile.row), tile.rows, threads_along(tile.across * tile.beside, tile.rows)});
  const std::vector<std::string> lines = names_of(out.tree, nest.lines);
  std::vector<std::pair<std::string, int64_t>> dealt;
  for (const TiledAxis& axis : tiled) dealt.emplace_back(axis.name, axis.tile);
  std::vector<UnrollStep> unrolled;
  for (const size_t axis : at_once ? all.taps : windows->taps)
    if (extent(tree, axis) > 1) unrolled.push_back({{name(axis)}, extent(tree, axis)});
  deal_lines(out, lines, dealt);
  out.take(LastStep{lane});
  for (UnrollStep& step : unrolled) out.take(std::move(step));
  bind_layouts(out, tiled);
  return true;
}

// --- Many terms for each of few results ---------------------------------------------------------

// A line of a few taps whose windows move along the innermost axis of the walk.
std::optional<Windows> find_taps(const LoopTree& tree, const ReductionNest& nest,
                                 const WalkFacts& facts, size_t column) {
  constexpr int64_t kMostSums = 8;
  for (size_t i = nest.lines.size(); i-- > 0;) {
    const size_t line = nest.lines[i];
    const auto taps = tree.axes[line].extent.as_constant();
    if (line != column && taps && *taps > 1 && *taps <= kMostSums &&
        moves_along(tree, facts, line, facts.along)) {
      Windows out{facts.along, {line}, *taps};
      if (overlap(tree, out, facts)) return out;
    }
  }
  return std::nullopt;
}

// How a block shares the terms: a thread has the sums of all taps for several columns, and takes
// neighbouring terms for them.
struct SumsTile {
  int64_t vector = 1, across = 1;  // columns of a thread, and threads along columns
  int64_t terms = 1, beside = 1;   // neighbouring terms of a thread, and threads along them
  int64_t warps = 1, chunks = 1;   // along the axis around that of the terms
};

std::optional<SumsTile> choose_sums(const LoopTree& tree, const Windows& windows,
                                    const WalkFacts& facts, size_t column, size_t around,
                                    const Target& target) {
  // What masked terms take, because they are not multiplied and added at once; turns of a chunk,
  // totals of chunks that a thread adds at a time, and warps of a multiprocessor.
  constexpr double kMasked = 1.3;
  constexpr int64_t kFewTurns = 4, kMostTotals = 96, kFewWarps = 5, kManyWarps = 16;
  const LoopAxis& axis = tree.axes[column];
  const int64_t columns = extent(tree, column), length = extent(tree, windows.line),
                rows = extent(tree, around);
  // For one term of one column.
  const double memory = kByte * bytes_of(tree) / static_cast<double>(facts.elements * columns);
  std::optional<SumsTile> out;
  double best = 0;
  const auto consider = [&](SumsTile tile, const Work& work) {
    const int64_t own = tile.beside * tile.terms, wide = tile.across * tile.vector;
    if ((tile.across > 1 && wide >= 2 * columns) || (tile.beside > 1 && own >= 2 * length)) return;
    while (2 * tile.warps <= kMostWarps && rows % (2 * tile.warps) == 0) tile.warps *= 2;
    const int64_t instances =
        ceil_divide(columns, wide) * (facts.lines / (columns * windows.count)) * tile.warps;
    const int64_t turns = ceil_divide(length, own) * (rows / tile.warps);
    const int64_t totals = std::max<int64_t>(kMostTotals / (tile.vector * windows.count), 1);
    tile.chunks = std::min({ceil_power_of_two(ceil_divide(target.cores * kManyWarps, instances)),
                            floor_power_of_two(turns / kFewTurns),
                            floor_power_of_two(totals) * tile.warps * tile.beside});
    const int64_t warps = instances * tile.chunks;
    if (warps < target.cores * kFewWarps) return;
    // Fewer registers leave room for more warps.
    const double share = 1 + static_cast<double>(work.registers) / (2 * kMostRegisters);
    const double idle =
        1 + static_cast<double>(target.cores * kFewWarps) / static_cast<double>(warps);
    const double computing = work.cost(tile.across) / static_cast<double>(tile.terms * tile.vector);
    const double cost = (memory + computing) * share * idle * covered(columns, wide) *
                        covered(length, own) * (length % own == 0 ? 1 : kMasked);
    if (best != 0 && cost >= best) return;
    best = cost;
    out = tile;
  };
  for (int64_t vector = vector_along(facts.touched, axis); vector >= 1; vector /= 2)
    for (int64_t terms = std::min(kMostNeighbours, length); terms > 1; --terms) {
      const Work work = work_of(tree, windows, facts, axis, vector, terms, windows.count);
      if (work.registers > kMostRegisters) continue;
      for (int64_t across = 1; across <= kWarpThreads; across *= 2)
        consider({vector, across, terms, kWarpThreads / across}, work);
    }
  return out;
}

// Joins the axes around the innermost one of a walk, where that is possible.
void join_outer(Scheduled& out, const std::vector<size_t>& walk) {
  std::vector<std::string> names = names_of(out.tree, walk);
  for (size_t i = names.size() - 1; i-- > 1;) {
    const size_t outer = *find_axis(out.tree, names[i - 1]), inner = *find_axis(out.tree, names[i]);
    if (!out.try_take(CollapseStep{{names[i - 1]}, {names[i]}})) return;
    names[i - 1] = out.tree.axes[outer - (inner < outer)].name;
  }
}

// The terms are cut into chunks. Returns false if the walk has one axis, or too few terms.
bool tile_sums_of_taps(Scheduled& out, const ReductionNest& first, const std::string& lane,
                       const Target& target) {
  if (first.walks[0].axes.size() < 2) return false;
  Scheduled made = out;
  join_outer(made, first.walks[0].axes);
  const auto nest = reduction_nest(made.tree);
  if (!nest || nest->walks.size() != 1) return false;
  const WalkFacts facts = facts_of(made.tree, *nest);
  const size_t column = *find_axis(made.tree, lane);
  const auto windows = find_taps(made.tree, *nest, facts, column);
  if (!windows) return false;
  const std::vector<size_t>& walk = nest->walks[0].axes;
  const size_t around = walk[walk.size() - 2];
  const auto tile = choose_sums(made.tree, *windows, facts, column, around, target);
  if (!tile) return false;

  const auto name = [&](size_t axis) { return made.tree.axes[axis].name; };
  const int64_t apart = tile->vector * windows->count;  // registers of one term
  std::vector<Digit> of_columns = threads_along(1, tile->across);
  if (tile->vector > 1) of_columns.push_back({Resource::Register, 1, tile->vector});
  std::vector<Digit> of_terms = threads_along(tile->across, tile->beside);
  of_terms.push_back({Resource::Register, apart, tile->terms});
  const std::string taps = name(windows->taps[0]), along = name(windows->line), rows = name(around),
                    chunked = name(walk[0]);
  std::vector<TiledAxis> tiled = {
      {lane, tile->across * tile->vector, of_columns},
      {taps, windows->count, {{Resource::Register, tile->vector, windows->count}}},
      {along, tile->beside * tile->terms, of_terms},
      {rows, tile->warps, digits({{Resource::Warp, 1, tile->warps}})}};
  const std::vector<std::string> lines = names_of(made.tree, nest->lines);
  deal_lines(made, lines, {{lane, tiled[0].tile}, {taps, windows->count}});
  cut_walks(made, along, tiled[2].tile);
  if (tile->warps > 1) cut_walks(made, rows, tile->warps);
  if (tile->chunks > 1) {
    chunk_by_phase(made, chunked, tile->chunks);
    if (made.tree.phases.size() == 1) return false;
    // Threads that were on terms add the totals of the chunks.
    const LoopAxis chunk = made.tree.axes.back();
    const int64_t chunks = *chunk.extent.as_constant();
    const int64_t warps = std::min(tile->warps, chunks);
    const int64_t beside = std::min(tile->beside, chunks / warps);
    std::vector<Digit> of_chunks = digits({{Resource::Warp, 1, warps}});
    for (const Digit& digit : threads_along(tile->across, beside)) of_chunks.push_back(digit);
    for (const Digit& digit : digits({{Resource::Register, apart, chunks / (warps * beside)}}))
      of_chunks.push_back(digit);
    tiled.push_back({chunk.name, chunks, of_chunks});
  }
  made.take(LastStep{lane});
  bind_layouts(made, tiled);
  out = std::move(made);
  return true;
}

}  // namespace

bool tile_windows_for_gpu(Scheduled& out, const Target& target) {
  const LoopTree& tree = out.tree;
  const auto nest = reduction_nest(tree);
  if (!nest || nest->walks.size() != 1 || !nest->begins_with_walk) return false;
  const WalkFacts facts = facts_of(tree, *nest);
  const std::vector<size_t>& walk = nest->walks[0].axes;
  if (std::ranges::any_of(walk, [&](size_t a) { return !tree.axes[a].extent.as_constant(); }) ||
      std::ranges::any_of(facts.tasks,
                          [](const LoopTask* t) { return t->kind != LoopTask::Kind::Fold; }))
    return false;
  std::vector<size_t> axes = nest->lines;
  axes.push_back(facts.along);
  const size_t column = best_lane_axis(tree, facts.touched, axes, kWarpThreads, true);
  // Columns that fill no sector of memory are read together with another line.
  int64_t bytes = 0;
  for (const TreeAccess& access : facts.touched)
    if (access.stride(tree.axes[column]) == 1)
      bytes = std::max(bytes, static_cast<int64_t>(access.bytes) * extent(tree, column));
  if (contains(walk, column) || bytes < kSectorBytes) return false;
  return facts.elements <= kFewTerms
             ? tile_few_taps(out, *nest, facts, column, target)
             : tile_sums_of_taps(out, *nest, tree.axes[column].name, target);
}

}  // namespace braze
