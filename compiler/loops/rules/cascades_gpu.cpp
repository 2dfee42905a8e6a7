// cascades_gpu.cpp — the rule for cascades of dots on asynchronous matrix units. The result of the
// first dots is a tile that never leaves the instance.
//
// The rows of all dots are along one parallel axis, the walk goes along another axis, and their
// other axes are whole. Reductions along the walk join it by the online rule.
#include <algorithm>

#include "compiler/loops/rules/asynchronous.h"
#include "compiler/loops/rules/cascade.h"
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

// --- Asynchronous dots --------------------------------------------------------------------------

// Whether the walk surely has a turn and ends in its only carried dot, and nothing else reads the
// copied factors of that dot, which stay a turn longer.
bool may_run_ahead(const LoopTree& tree, size_t walk) {
  bool out = false;
  visit_loops(tree.phases[0], [&](const Loop& loop) {
    if (!runs_over(loop, walk)) return;
    // The end of a turn is greater than 0.
    const bool to_end =
        loop.bounds && loop.bounds->first.is_constant(0) &&
        (loop.bounds->second.kind() == Expr::Kind::Symbol || loop.bounds->second.range().min > 0);
    const bool has_end = to_end && loop.bounds->second.kind() == Expr::Kind::Symbol;
    const bool nonempty =
        has_end || ((!loop.bounds || to_end) && tree.axes[walk].extent.range().min > 0);
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
    const bool shares = std::ranges::any_of(read_late, [&](size_t value) {
      return read_early.contains(value) &&
             task_at(tree, maker_of(tree, value)).kind == LoopTask::Kind::Stage;
    });
    out = nonempty && carried == 1 && last.kind == LoopTask::Kind::Dot && !shares;
  });
  return out;
}

bool is_load(const LoopStep& s) { return s.kind == LoopStep::Kind::Load; }

// Deals the tiles: instances that walk over the same data run at the same time, as many as the
// shared cache can serve. If walks end with their rows, the longest come first.
void deal_tiles(Scheduled& out, const Cascade& cascade, double walked_bytes, const Target& target) {
  const LoopTree& tree = out.tree;
  const Loop& grid = *std::get<Box<Loop>>(tree.phases[0].front());
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
  visit_loops(tree.phases[0], [&](const Loop& loop) {
    if (loop.bounds)
      ends_with_rows |=
          loop.bounds->second.uses(end_symbol(tree.axes[*cascade.rows]).symbol_name());
  });
  if (ends_with_rows && grid.levels.back().axis == *cascade.rows)
    orders.push_back({Deal::Order::Longest, 0, ""});
  if (!orders.empty()) out.take(DealStep{{tree.axes[grid.levels[0].axis].name}, orders});
}

std::optional<Refusal> take_asynchronous(Scheduled& out, const Cascade& cascade,
                                         const Target& target) {
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  const std::string rows = name(*cascade.rows), walk = name(cascade.walk);
  std::set<size_t> tiled;
  struct NamedDot {
    std::string name;
    bool swap;
  };
  std::vector<NamedDot> dots;
  for (const auto& [dot, rows_factor] : cascade.dots) {
    dots.push_back({out.tree.values[dot->target].name, rows_factor == 1});
    std::vector<size_t> axes = out.tree.values[dot->target].axes;
    axes.insert(axes.end(), dot->over.begin(), dot->over.end());
    for (const size_t axis : axes)
      if (axis == *cascade.rows || !(contains(cascade.nest, axis) || cascade.around.contains(axis)))
        tiled.insert(axis);
  }
  // The factors to be staged, which are read directly from memory, and where they are staged.
  struct Staged {
    std::string tensor;
    bool in_walk;
    int64_t row_bytes;  // bytes of a row of the tile
  };
  std::vector<Staged> staged;
  for (const auto& [dot, rows_factor] : cascade.dots)
    for (size_t factor = 0; factor < 2; ++factor) {
      const LoopTask only = with_factor(*dot, factor);
      const LoopStep& last = only.body.steps[only.body.results[0]];
      if (!is_half(last.dtype)) return no_rule("asynchronous dots need factors of 16 bits here");
      if (!is_load(last)) {
        if (factor != rows_factor)
          return no_rule("the factor of a dot without the rows must be loaded, but is computed");
        continue;
      }
      if (auto refusal = refuse_copies(out.tree, last, tiled, cascade.walk, 0)) return refusal;
      Staged copy{out.tree.tensors[last.source].name, false, 2};
      for (const size_t axis : axes_used(out.tree, only)) {
        if (axis == cascade.walk)
          copy.in_walk = true;
        else if (tiled.contains(axis) && axis != *cascade.rows)
          copy.row_bytes *= planned_extent(out.tree, axis);
      }
      if (std::ranges::none_of(staged, [&](const Staged& s) { return s.tensor == copy.tensor; }))
        staged.push_back(copy);
    }

  // Vectors that vary only along the walk are copied with the factors.
  const auto read_along_walk = [&](size_t tensor) {
    std::optional<LoopStep> read;
    for_each_task(out.tree.phases[0], [&](const LoopTask& task, const auto&) {
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

  // The tiles: rows for two groups, however few rows there are, and turns of the walk as long as
  // the registers and the chip allow.
  const int64_t groups = kGroups;
  int64_t columns = 0;  // columns of the sums that are carried
  for (const auto& [dot, rows_factor] : cascade.dots)
    if (contains(dot->over, cascade.walk)) {
      int64_t own = 1;
      for (const size_t axis : out.tree.values[dot->target].axes)
        if (tiled.contains(axis) && axis != *cascade.rows) own *= planned_extent(out.tree, axis);
      columns += own;
    }
  const auto fits = [&](int64_t turn) {
    // Results are stored through the chip, in slabs if they are wide.
    int64_t bytes = groups * kGroupRows * std::min<int64_t>(columns, 2 * kSlab) * 2 +
                    vector_bytes * turn * kSlots;
    for (const Staged& s : staged) {
      const int64_t row = (s.row_bytes + kPanelBytes - 1) / kPanelBytes * kPanelBytes;
      bytes += row * (s.in_walk ? turn * kSlots : groups * kGroupRows);
    }
    const int64_t registers = (columns + turn + turn / 2) * kGroupRows / 128 + 40;
    return bytes + 1024 <= target.l1_bytes && registers <= kGroupRegisters;
  };
  double walked_bytes = 0;  // bytes that all tiles of rows read in their walks
  for (const Staged& s : staged)
    if (s.in_walk)
      walked_bytes += static_cast<double>(s.row_bytes) *
                      static_cast<double>(planned_extent(out.tree, cascade.walk));
  int64_t turn = kMostTurn;
  while (turn > 16 && !fits(turn)) turn /= 2;
  if (!fits(turn)) return no_rule("the sums or the copies of a turn do not fit into the machine");

  for (size_t i = 0; i + 1 < cascade.nest.size(); ++i)
    if (cascade.nest[i] == *cascade.rows)
      for (size_t k = i; k + 1 < cascade.nest.size(); ++k) {
        const ReorderStep step{{rows}, {name(cascade.nest[k + 1])}};
        if (auto refusal = legal(out.tree, step)) return refusal;
        out.take(step);
      }
  const auto take = [&](StepKind step) -> std::optional<Refusal> {
    auto refusal = std::visit([&](const auto& kind) { return legal(out.tree, kind); }, step);
    if (!refusal) out.take(std::move(step));
    return refusal;
  };
  std::string grid;
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows && grid.empty()) grid = name(axis);
  if (grid.empty()) grid = rows;
  std::vector<StepKind> steps = {SplitStep{{rows}, groups * kGroupRows, true},
                                 SplitStep{{rows, 2}, kGroupRows, true}, WholeStep{{rows, 3}}};
  for (const size_t axis : cascade.nest)
    if (axis != *cascade.rows && name(axis) != grid)
      steps.push_back(TupleStep{{grid}, {name(axis)}});
  if (grid != rows) steps.push_back(TupleStep{{grid}, {rows}});
  steps.push_back(OnStep{{grid}, Machine::Grid});
  steps.push_back(OnStep{{rows, 2}, Machine::Group});
  for (StepKind& step : steps)
    if (auto refusal = take(std::move(step))) return refusal;
  std::set<size_t> walked = cascade.around;
  walked.insert(cascade.walk);
  make_whole(out, walked);
  if (auto refusal = join_walk(out, cascade.walk, turn)) return refusal;
  part_walk(out, cascade.walk, turn);
  for (const Staged& s : staged)
    if (auto refusal = take(StageStep{{false, s.tensor}, {s.in_walk ? walk : grid}}))
      return refusal;
  for (const std::string& vector : vectors) out.try_take(StageStep{{false, vector}, {walk}});
  if (auto refusal = take(RingStep{{walk}, kSlots})) return refusal;
  if (auto refusal = take(RolesStep{kCopyRegisters, kGroupRegisters})) return refusal;
  for (const auto& [dot, swap] : dots)
    if (auto refusal = take(UnitStep{dot, Unit::Wgmma, swap})) return refusal;
  // A walk of one turn has no other turn to overlap with.
  const bool walks = out.tree.axes[cascade.walk].extent.range().max > turn;
  if (walks && groups == 2)
    if (auto refusal = take(TurnsStep{{walk}})) return refusal;
  // The first dots of the next turn run while this turn computes.
  if (walks && may_run_ahead(out.tree, cascade.walk))
    for (const auto& [dot, swap] : dots) {
      const LoopTask& task = task_at(out.tree, maker_of(out.tree, *find_value(out.tree, dot)));
      if (!contains(task.over, cascade.walk)) out.try_take(AheadStep{dot, 1});
    }
  struct Slab {
    std::string tensor, axis;
  };
  std::vector<Slab> slabs;
  for_each_task(out.tree.phases[0], [&](const LoopTask& task, const auto&) {
    if (task.makes_value()) return;
    for (const size_t axis : own_axes(out.tree, task))
      if (axis != *cascade.rows && tiled.contains(axis) && axis != cascade.walk &&
          planned_extent(out.tree, axis) > 2 * kSlab)
        slabs.push_back({out.tree.tensors[task.target].name, name(axis)});
  });
  for (const Slab& slab : slabs) out.try_take(SlabsStep{{false, slab.tensor}, slab.axis, kSlab});
  deal_tiles(out, cascade, walked_bytes, target);
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> tile_cascade_for_gpu(Scheduled& out, const Target& target) {
  const auto found = find_cascade(out.tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  draw_factors(out);
  if (!target.asynchronous_dots)
    return no_rule("no rule can choose the steps for dots without a matrix unit");
  // The tasks of the cascade stay those of the tree before the steps.
  const LoopTree before = out.tree;
  return take_asynchronous(out, std::get<Cascade>(find_cascade(before)), target);
}

}  // namespace braze
