// cascades_gpu.cpp — the rule for cascades of dots on a GPU. The result of the first dots is a tile
// that never leaves the instance.
//
// The rows of all dots are along one parallel axis, the walk goes along another axis, and their
// other axes are whole. Reductions along the walk join it by the online rule. What multiplies
// differs in who copies and in the tiles:
//
//   asynchronous units   one role copies boxes; groups of 64 rows multiply what lies on chip
//   the units of warps   all threads copy ahead, into a ring; each warp has 16 or 32 rows
//   threads              the same, for factors of f32 (cascades_warps.cpp)
//
// So few rows that one warp multiplies them take no longer than reading what they walk over. Then
// the units of warps are as fast as the others and waste least, several instances share a
// multiprocessor, and chunks of the walk give all multiprocessors work.
#include "compiler/loops/rules/cascades_gpu.h"

#include <algorithm>

#include "compiler/loops/rules/asynchronous.h"
#include "compiler/loops/rules/layouts.h"
#include "ir/code/dot_layouts.h"
#include "ir/support/text.h"
#include "ir/target/features.h"

namespace braze {

namespace {

// Figures of asynchronous dots.
using asynchronous::kGroupRows;
using asynchronous::kGroups;
using asynchronous::kPanelBytes;
using asynchronous::kSlab;
constexpr int64_t kMostTurn = 128;  // indices of a turn of the walk
constexpr int64_t kSlots = 2;       // of the ring
constexpr int64_t kCopyRegisters = 24, kGroupRegisters = 240;
constexpr int64_t kMostGrouped = 8;
// A thread of the phase that looks at integers from memory has those of one turn of the walk.
constexpr WalkRanges kRanges{128, 32};

// A longer axis would be mostly zeros.
constexpr int64_t kMostPadding = 2;
constexpr int64_t kFloatDepth = 4;  // that a thread reads at once

// Pads what the first dots sum to multiples of `depth`, which are whole fragments of the matrix
// units. Of heads that lie side by side in the rows of a tensor, each gets a row of its own, which
// ends where the axis does.
void pad_sums(Scheduled& out, const Cascade& cascade, int64_t depth) {
  std::map<std::string, int64_t> extents;
  for (const auto& [dot, rows_factor] : cascade.dots)
    if (dot->over.size() == 1 && dot->over[0] != cascade.walk)
      if (const auto extent = out.tree.axes[dot->over[0]].extent.as_constant())
        extents.emplace(out.tree.axes[dot->over[0]].name, *extent);
  for (const auto& [axis, extent] : extents) {
    const int64_t padded = ceil_divide(extent, depth) * depth;
    if (padded == extent || padded > kMostPadding * extent) continue;
    std::map<std::string, size_t> joined;  // a dimension of a tensor in which rows lie side by side
    visit_steps(out.tree.phases[0], LoopStep::Kind::Load, [&](const LoopTask&, const LoopStep& s) {
      const LoopTensor& tensor = out.tree.tensors[s.source];
      for (size_t d = 0; d < s.at.size(); ++d)
        if (s.at[d].uses(axis) && tensor.type.shape[d].as_constant() != extent)
          joined.emplace(tensor.name, d);
    });
    Scheduled next = out;
    for (const auto& [tensor, dimension] : joined)
      next.try_take(ResiduesStep{tensor, static_cast<int64_t>(dimension), extent});
    if (next.try_take(PadStep{axis, padded})) out = std::move(next);
  }
}

// Rows become the first dimension of all tiles, and the columns of the dots later ones.
void put_rows_first(Scheduled& out, const Cascade& cascade) {
  std::vector<std::string> columns;
  for (const auto& [dot, rows_factor] : cascade.dots)
    for (const size_t axis : out.tree.values[dot->target].axes)
      if (axis < *cascade.rows && !contains(cascade.nest, axis) && !cascade.around.contains(axis) &&
          axis != cascade.walk)
        columns.push_back(out.tree.axes[axis].name);
  for (const std::string& axis : std::set<std::string>(columns.begin(), columns.end()))
    out.take(LastStep{axis});
}

// Whether all factors of the dots are f32.
bool multiplies_floats(const Cascade& cascade) {
  return std::ranges::all_of(cascade.dots, [&](const CascadeDot& dot) {
    return std::ranges::all_of(dot.task->body.results, [&](uint32_t result) {
      return dot.task->body.steps[result].dtype == DType::F32;
    });
  });
}

// Whether the walk sums what is made of a first dot's sums. Other dots share no more than what they
// read.
bool sums_sums(const LoopTree& tree, const Cascade& cascade) {
  std::set<size_t> made;
  bool out = false;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    const bool reads = std::ranges::any_of(task.body.steps, [&](const LoopStep& s) {
      return s.kind == LoopStep::Kind::Read && made.contains(s.source);
    });
    const bool walks = contains(task.over, cascade.walk);
    out = out || (reads && walks);
    if (task.makes_value() && (reads || (task.kind == LoopTask::Kind::Dot && !walks)))
      made.insert(task.target);
  });
  return out;
}

// The loop that is dealt to the grid, by the name of its first axis.
std::string grid_of(const LoopTree& tree, const Cascade& cascade) {
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows) return tree.axes[axis].name;
  return tree.axes[*cascade.rows].name;
}

}  // namespace

// --- What all units have in common ---------------------------------------------------------------

std::optional<Refusal> find_factors(const LoopTree& tree, const Cascade& cascade, CascadeUnit unit,
                                    CascadeFactors& out) {
  const bool floats = unit == CascadeUnit::Threads;
  out.element_bytes = floats ? 4 : 2;
  const auto is_whole = [&](size_t axis) {
    return axis != *cascade.rows &&
           !(contains(cascade.nest, axis) || cascade.around.contains(axis));
  };
  for (const auto& [dot, rows_factor] : cascade.dots) {
    const bool carried = contains(dot->over, cascade.walk);
    std::vector<size_t> axes = tree.values[dot->target].axes;
    int64_t own = 1;
    for (const size_t axis : axes)
      if (is_whole(axis)) own *= planned_extent(tree, axis);
    out.dots.push_back({tree.values[dot->target].name, rows_factor == 1, !carried, own});
    (carried ? out.columns : out.first_dots) += carried ? own : 1;
    if (carried) out.most_columns = std::max(out.most_columns, own);
    axes.insert(axes.end(), dot->over.begin(), dot->over.end());
    for (const size_t axis : axes)
      if (axis == *cascade.rows || is_whole(axis)) out.tiled.insert(axis);
  }
  for (const auto& [dot, rows_factor] : cascade.dots)
    for (size_t factor = 0; factor < 2; ++factor) {
      const LoopTask only = with_factor(*dot, factor);
      const LoopStep& last = only.body.steps[only.body.results[0]];
      if (floats ? last.dtype != DType::F32 || body_dtype(*dot) != DType::F32
                 : !is_half(last.dtype))
        return no_rule("the factors of the dots of a cascade must all have 16 bits, or all be f32");
      if (!is_load(last)) {
        if (factor != rows_factor)
          return no_rule("the factor of a dot without the rows must be loaded, but is computed");
        ++out.made;
        continue;
      }
      if (unit == CascadeUnit::Asynchronous)
        if (auto refusal = refuse_copies(tree, last, out.tiled, cascade.walk, 0)) return refusal;
      StagedFactor copy{tree.tensors[last.source].name, false, out.element_bytes};
      for (const size_t axis : axes_used(tree, only)) {
        if ((axis == cascade.walk || axis == *cascade.rows) &&
            last.at.back().uses(tree.axes[axis].name))
          copy.across = true;
        if (axis == *cascade.rows) copy.has_rows = true;
        if (axis == cascade.walk)
          copy.in_walk = true;
        else if (out.tiled.contains(axis) && axis != *cascade.rows)
          copy.row_bytes *= planned_extent(tree, axis);
      }
      if (std::ranges::any_of(out.staged,
                              [&](const StagedFactor& s) { return s.tensor == copy.tensor; }))
        continue;
      // A copy outside of the walk has all indices of the loops around the walk.
      if (!copy.in_walk)
        for (const size_t axis : axes_used(tree, only))
          if (cascade.around.contains(axis)) copy.row_bytes *= planned_extent(tree, axis);
      out.staged.push_back(copy);
      if (copy.in_walk)
        out.walked_bytes += static_cast<double>(copy.row_bytes) *
                            static_cast<double>(planned_extent(tree, cascade.walk));
    }
  return std::nullopt;
}

bool is_one_tile(const LoopTree& tree, const Cascade& cascade, int64_t rows) {
  return cascade.nest.size() > 1 && tree.axes[*cascade.rows].extent.is_constant(rows);
}

int64_t instances_of(const LoopTree& tree, const Cascade& cascade) {
  int64_t out = 1;
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows) out *= planned_extent(tree, axis);
  return out;
}

bool has_rows_of_one_warp(const LoopTree& tree, const Cascade& cascade) {
  return tree.axes[*cascade.rows].extent.range().max <= kOneWarpRows;
}

std::optional<Refusal> walk_in_turns(Scheduled& out, const Cascade& cascade,
                                     const CascadeFactors& factors, RowSteps row_steps,
                                     int64_t turn, int64_t chunks, const WalkRanges& ranges) {
  auto& [cut, dealt, one_tile] = row_steps;
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::string rows = name(*cascade.rows), walk = name(cascade.walk),
                    grid = grid_of(out.tree, cascade);
  for (size_t i = 0; i + 1 < cascade.nest.size(); ++i)
    if (cascade.nest[i] == *cascade.rows)
      for (size_t k = i; k + 1 < cascade.nest.size(); ++k)
        if (auto refusal = take_legal(out, ReorderStep{{rows}, {name(cascade.nest[k + 1])}}))
          return refusal;
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows && name(axis) != grid)
      cut.emplace_back(TupleStep{{grid}, {name(axis)}});
  if (grid != rows && !one_tile) cut.emplace_back(TupleStep{{grid}, {rows}});
  cut.emplace_back(OnStep{{grid}, Machine::Grid});
  cut.insert(cut.end(), dealt.begin(), dealt.end());
  for (StepKind& step : cut)
    if (auto refusal = take_legal(out, std::move(step))) return refusal;
  std::set<size_t> walked = cascade.around;
  walked.insert(cascade.walk);
  make_whole(out, walked);
  if (auto refusal = join_walk(out, cascade.walk, turn)) return refusal;
  if (chunks > 1) {
    Scheduled parts = out;
    limit_walk(parts, cascade.walk);
    if (parts.try_take(ChunkStep{{walk}, chunks, Combine::Phase, /*apart=*/true}) &&
        parts.tree.phases.size() > 1)
      out = std::move(parts);
  }
  if (out.tree.phases.size() == 1) part_walk(out, cascade.walk, turn, ranges);
  for (const StagedFactor& s : factors.staged)
    if (auto refusal = take_legal(out, StageStep{{false, s.tensor}, {s.in_walk ? walk : grid}}))
      return refusal;
  return std::nullopt;
}

void deal_tiles(Scheduled& out, const Cascade& cascade, double walked_bytes, const Target& target) {
  const LoopTree& tree = out.tree;
  const Loop& grid = *std::get<Box<Loop>>(tree.phases.back().front());
  std::vector<DealOrder> orders;
  std::optional<size_t> widest;
  for (const LoopLevel& level : grid.levels)
    if (level.axis != *cascade.rows &&
        (!widest || planned_extent(tree, level.axis) > planned_extent(tree, *widest)))
      widest = level.axis;
  int64_t number = kMostGrouped;
  while (number > 1 && static_cast<double>(number) * walked_bytes > target.l3_bytes / 2)
    number /= 2;
  while (widest && number > 1 && !tree.axes[*widest].extent.is_multiple_of(number)) number /= 2;
  if (widest && number > 1)
    orders.push_back({Deal::Order::Grouped, number, tree.axes[*widest].name});
  bool ends_with_rows = false;
  visit_loops(tree.phases.back(), [&](const Loop& loop) {
    if (loop.bounds)
      ends_with_rows |= loop.picks || loop.bounds->second.uses(
                                          end_symbol(tree.axes[*cascade.rows]).symbol_name());
  });
  if (ends_with_rows && grid.levels.back().axis == *cascade.rows)
    orders.push_back({Deal::Order::Longest, 0, ""});
  if (!orders.empty()) out.take(DealStep{{tree.axes[grid.levels[0].axis].name}, orders});
}

namespace {

// --- Asynchronous dots --------------------------------------------------------------------------

// Whether the walk surely has a turn and ends in its only carried dot, and nothing else reads the
// copied factors of that dot, which stay a turn longer. It reads no other copies.
bool may_run_ahead(const LoopTree& tree, size_t walk) {
  bool out = false;
  std::vector<int64_t> turns(tree.axes.size());  // of the loops around the walk, without groups
  visit_loops(tree.phases.back(), [&](const Loop& loop) {
    if (!runs_over(loop, walk)) {
      for (const LoopLevel& level : loop.levels)
        if (loop.on != Machine::Group) turns[level.axis] = level.turn;
      return;
    }
    // The end of a turn is greater than 0.
    const bool to_end =
        loop.bounds && loop.bounds->first.is_constant(0) &&
        (loop.bounds->second.kind() == Expr::Kind::Symbol || loop.bounds->second.range().min > 0);
    const bool has_end = to_end && loop.bounds->second.kind() == Expr::Kind::Symbol;
    const bool nonempty = has_end || surely_has_turn(tree, loop, turns) ||
                          (to_end && tree.axes[walk].extent.range().min > 0);
    size_t carried = 0;
    for (const LoopItem& item : loop.body) {
      const auto* task = std::get_if<LoopTask>(&item);
      if (!task) return;
      carried += task->kind == LoopTask::Kind::Dot && contains(task->over, walk);
    }
    const auto& last = std::get<LoopTask>(loop.body.back());
    std::set<size_t> read_early, read_late;
    for (const LoopItem& item : loop.body)
      for (const LoopStep& s : std::get<LoopTask>(item).body.steps)
        if (s.kind == LoopStep::Kind::Read)
          (&std::get<LoopTask>(item) == &last ? read_late : read_early).insert(s.source);
    const auto is_copied = [&](size_t value) {
      return task_at(tree, maker_of(tree, value)).kind == LoopTask::Kind::Stage;
    };
    // What the last dot computes of copies is computed in the turn itself.
    bool shares = std::ranges::any_of(
        read_late, [&](size_t value) { return read_early.contains(value) && is_copied(value); });
    for (uint32_t i = 0; i < last.body.steps.size(); ++i) {
      const LoopStep& s = last.body.steps[i];
      shares = shares || (s.kind == LoopStep::Kind::Read && is_copied(s.source) &&
                          std::ranges::count(last.body.results, i) == 0);
    }
    out = nonempty && carried == 1 && last.kind == LoopTask::Kind::Dot && !shares;
  });
  return out;
}

std::optional<Refusal> take_asynchronous(Scheduled& out, const Cascade& cascade,
                                         const Target& target, bool picks) {
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::string rows = name(*cascade.rows), walk = name(cascade.walk);
  CascadeFactors factors;
  if (auto refusal = find_factors(out.tree, cascade, CascadeUnit::Asynchronous, factors))
    return refusal;
  const std::set<size_t>& tiled = factors.tiled;

  // Vectors that vary only along the walk are copied with the factors.
  const auto read_along_walk = [&](size_t tensor) {
    std::optional<LoopStep> read;
    for_each_task(out.tree.phases.back(), [&](const LoopTask& task, const auto&) {
      for (const LoopStep& s : task.body.steps)
        if (is_load(s) && s.source == tensor) read = s;
    });
    const auto varies = [&](size_t axis) {
      return std::ranges::any_of(read->at, [&](const Expr& e) { return e.uses(name(axis)); });
    };
    if (read && (!varies(cascade.walk) || std::ranges::any_of(tiled, [&](size_t axis) {
          return axis != cascade.walk && varies(axis);
        })))
      read.reset();
    return read;
  };
  std::vector<std::string> vectors;
  int64_t vector_bytes = 0;  // bytes for one index of the walk
  for (size_t i = 0; i < out.tree.tensors.size(); ++i) {
    if (!read_along_walk(i)) continue;
    const std::string& tensor = out.tree.tensors[i].name;
    out.try_take(FlattenStep{tensor});
    if (refuse_copies(out.tree, *read_along_walk(i), tiled, cascade.walk, 0)) continue;
    vectors.push_back(tensor);
    vector_bytes += static_cast<int64_t>(size_of(out.tree.tensors[i].type.dtype));
  }

  // The tiles: rows for two groups, or for one if all rows fit, and turns of the walk as long as
  // the registers and the chip allow.
  const bool one_group = out.tree.axes[*cascade.rows].extent.range().max <= kGroupRows;
  const int64_t groups = one_group ? 1 : kGroups;
  const bool in_slabs = std::ranges::all_of(factors.dots, [](const NamedDot& dot) {
    return dot.is_first || dot.columns <= 2 * kSlab || dot.columns % kSlab == 0;
  });
  const auto fits = [&](int64_t turn) {
    // Results are stored through the chip, in slabs if they are wide and whole slabs.
    const int64_t stored = in_slabs ? std::min(factors.columns, 2 * kSlab) : factors.columns;
    int64_t bytes = groups * kGroupRows * stored * 2 + vector_bytes * turn * kSlots;
    for (const StagedFactor& s : factors.staged) {
      const int64_t row = (s.row_bytes + kPanelBytes - 1) / kPanelBytes * kPanelBytes;
      bytes += row * (s.in_walk ? turn * kSlots : 1) *
               (s.in_walk && !s.has_rows ? 1 : groups * kGroupRows);
    }
    const int64_t registers = (factors.columns + turn + turn / 2) * kGroupRows / 128 + 40;
    return bytes + 1024 <= target.l1_bytes && registers <= kGroupRegisters;
  };
  // A walk has more than one turn, or a turn that is not whole.
  const auto is_one = [&](int64_t length) {
    return out.tree.axes[cascade.walk].extent.is_constant(length);
  };
  int64_t turn = kMostTurn;
  while (turn > 16 && (!fits(turn) || is_one(turn))) turn /= 2;
  if (!fits(turn)) return no_rule("the sums or the copies of a turn do not fit into the machine");

  // The loops over rows: on the grid, unless an instance has all rows; over groups; over the rows
  // of one of them.
  RowSteps row_steps{
      .cut = {}, .dealt = {}, .one_tile = is_one_tile(out.tree, cascade, groups * kGroupRows)};
  int64_t loop = 1;
  if (!row_steps.one_tile)
    row_steps.cut.emplace_back(SplitStep{{rows, loop++}, groups * kGroupRows, true});
  if (!one_group) {
    row_steps.cut.emplace_back(SplitStep{{rows, loop}, kGroupRows, true});
    row_steps.dealt.emplace_back(OnStep{{rows, loop++}, Machine::Group});
  }
  row_steps.cut.emplace_back(WholeStep{{rows, loop}});
  if (auto refusal = walk_in_turns(out, cascade, factors, std::move(row_steps), turn, /*chunks=*/1,
                                   {kRanges.turns, kRanges.indices, picks}))
    return refusal;
  // A copy that two turns read keeps the first dots from running ahead. What is read only in few of
  // the turns is loaded there instead.
  const Loop& walked = loop_at(out.tree, find_loop(out.tree, {walk}).value());
  const bool ranged = std::ranges::any_of(walked.parts, [&](const IndexComparison& part) {
    return compares_limit(out.tree, walked, part);
  });
  if (!ranged || !may_run_ahead(out.tree, cascade.walk))
    for (const std::string& vector : vectors) out.try_take(StageStep{{false, vector}, {walk}});
  if (auto refusal = take_legal(out, RingStep{{walk}, kSlots})) return refusal;
  if (auto refusal = take_legal(out, RolesStep{kCopyRegisters, kGroupRegisters})) return refusal;
  for (const NamedDot& dot : factors.dots)
    if (auto refusal = take_legal(out, UnitStep{dot.name, Unit::Wgmma, dot.swap})) return refusal;
  // A walk of one turn has no other turn to overlap with.
  const Loop& bounded = loop_at(out.tree, find_loop(out.tree, {walk}).value());
  const bool walks = out.tree.axes[cascade.walk].extent.range().max > turn &&
                     (!bounded.bounds || bounded.bounds->second.range().max > turn);
  if (walks && groups == 2)
    if (auto refusal = take_legal(out, TurnsStep{{walk}})) return refusal;
  // The first dots of the next turn run while this turn computes.
  if (walks && may_run_ahead(out.tree, cascade.walk))
    for (const NamedDot& dot : factors.dots)
      if (dot.is_first) out.try_take(AheadStep{dot.name, 1});
  struct Slab {
    std::string tensor, axis;
  };
  std::vector<Slab> slabs;
  for_each_task(out.tree.phases.back(), [&](const LoopTask& task, const auto&) {
    if (task.makes_value()) return;
    for (const size_t axis : own_axes(out.tree, task))
      if (axis != *cascade.rows && tiled.contains(axis) && axis != cascade.walk &&
          planned_extent(out.tree, axis) > 2 * kSlab && planned_extent(out.tree, axis) % kSlab == 0)
        slabs.push_back({out.tree.tensors[task.target].name, name(axis)});
  });
  for (const Slab& slab : slabs) out.try_take(SlabsStep{{false, slab.tensor}, slab.axis, kSlab});
  deal_tiles(out, cascade, factors.walked_bytes, target);
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> tile_cascade_for_gpu(Scheduled& out, const Target& target) {
  const auto found = find_cascade(out.tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  draw_factors(out);
  if (target.matrix_speed == 0)
    return no_rule("no rule can choose the steps for dots without a matrix unit");
  // Factors may be parts of one tensor, of which some are copied in the walk.
  read_apart(out);
  const bool floats = multiplies_floats(std::get<Cascade>(find_cascade(out.tree)));
  pad_sums(out, std::get<Cascade>(find_cascade(out.tree)), floats ? kFloatDepth : kHalfDotDepth);
  put_rows_first(out, std::get<Cascade>(find_cascade(out.tree)));
  // The tasks of the cascade stay those of the tree before the steps.
  const Scheduled before = out;
  const auto cascade = std::get<Cascade>(find_cascade(before.tree));
  if (floats) {
    if (has_rows_of_one_warp(before.tree, cascade))
      return no_rule("a tile of rows for dots in f32 would be mostly empty");
    if (!sums_sums(before.tree, cascade))
      return no_rule("nothing in f32 is summed that is made of the sums of a dot");
    return take_with_picks(out, target, [&](Scheduled& tree, bool picks) {
      return tile_cascade_by_warps(tree, cascade, target, CascadeUnit::Threads, picks);
    });
  }
  // Where one warp multiplies the rows, and instances with whole walks leave multiprocessors idle,
  // the units of warps come first, whose walks are cut into chunks.
  const bool cuts = has_rows_of_one_warp(before.tree, cascade) &&
                    2 * instances_of(before.tree, cascade) <= target.cores;
  std::optional<Refusal> refused;
  if (cuts) {
    refused = tile_cascade_by_warps(out, cascade, target, CascadeUnit::Warps, /*picks=*/false);
    if (!refused || !target.asynchronous_dots) return refused;
    out = before;
  }
  if (target.asynchronous_dots) {
    refused = take_with_picks(out, target, [&](Scheduled& tree, bool picks) {
      return take_asynchronous(tree, cascade, target, picks);
    });
    if (!refused || cuts) return refused;
    out = before;
  }
  auto refusal = take_with_picks(out, target, [&](Scheduled& tree, bool picks) {
    return tile_cascade_by_warps(tree, cascade, target, CascadeUnit::Warps, picks);
  });
  if (!refusal) out.refused = std::move(refused);
  return refusal && refused ? refused : refusal;
}

}  // namespace braze
