// cascades_cpu.cpp — the rule for cascades of dots on a CPU: an instance takes a few rows, whose
// sums stay in registers, and walks along the other factors. Sums that are wide stay in a buffer of
// the core's cache, and slabs of them come into registers. The results of the first dots are tiles
// in registers; where they are factors of other dots, they pass through a buffer too.
#include <algorithm>

#include "compiler/loops/rules/cascade.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/rules/panels_cpu.h"
#include "compiler/loops/rules/partial_sums.h"

namespace braze {

namespace {

constexpr int64_t kRows = 6, kMostRows = 8;  // of an instance
constexpr int64_t kLeastRows = 32;           // of the kernel
// Indices of the walk in a turn. A long turn finds greatest values and ratios less often; of short
// ones, a mask leaves out more.
constexpr int64_t kLongTurn = 128, kShortTurn = 64;
constexpr int64_t kUnrolled = 4;

// Parts of the sums of a dot, along an axis of its result.
struct Slabs {
  std::string value, axis;
  int64_t columns = 1;
};

struct CascadeTile {
  int64_t rows = 1;
  int64_t panel = 1;            // `panel_of`
  std::vector<Slabs> of_turns;  // of the first dots, whose results are made in each turn
  std::vector<Slabs> of_sums;   // of the dots along the walk
};

// A dot of the walk's turns: what it sums, by name, the innermost axis last.
struct FirstDot {
  std::vector<std::string> summed;
  bool across = false;  // whether its factor without the rows is contiguous along what it sums
};

int64_t registers_for_sums(const Target& target) { return target.vector_registers * 3 / 4; }

// The sums of a vector.
int64_t sums_of_vector(const LoopTree& tree, const Cascade& cascade, const Target& target) {
  size_t bytes = size_of(DType::F32);  // also for factors of 16 bits
  for (const CascadeDot& dot : cascade.dots)
    bytes = std::max(bytes, size_of(tree.values[dot.task->target].dtype));
  return target.vector_lanes(bytes);
}

// The vectors of a slab of each row.
int64_t slab_vectors(const Target& target) { return registers_for_sums(target) / kRows; }

// The indices of the walk for which a first dot is made at once.
int64_t panel_of(const LoopTree& tree, const Cascade& cascade, const Target& target) {
  return slab_vectors(target) * sums_of_vector(tree, cascade, target);
}

// How the sums of an instance come into registers, beside the factors. Nothing if those of one row
// do not fit.
std::optional<CascadeTile> choose_tile(const LoopTree& tree, const Cascade& cascade, int64_t turn,
                                       const Target& target) {
  constexpr int64_t kFewRows = 3;
  const int64_t lanes = sums_of_vector(tree, cascade, target);
  const int64_t registers = registers_for_sums(target), slab = slab_vectors(target);
  CascadeTile out{.panel = panel_of(tree, cascade, target)};
  int64_t most = slab;
  for (const CascadeDot& dot : cascade.dots) {
    if (dot.task->over.empty()) continue;
    const LoopValue& sums = tree.values[dot.task->target];
    int64_t columns = 1;
    std::vector<size_t> axes;
    for (const size_t axis : sums.axes)
      if (axis != *cascade.rows && axis != cascade.walk &&
          std::ranges::count(cascade.nest, axis) == 0) {
        axes.push_back(axis);
        columns *= planned_extent(tree, axis);
      }
    // A result of a first dot has a turn of the walk as its innermost axis.
    if (std::ranges::count(dot.task->over, cascade.walk) == 0) {
      if (out.panel < turn)
        out.of_turns.push_back({sums.name, tree.axes[cascade.walk].name, out.panel});
      most = std::max(most, columns * slab);
      continue;
    }
    int64_t vectors = ceil_divide(columns, lanes), part = slab;
    const bool is_divisible = axes.size() == 1 && columns % lanes == 0 &&
                              tree.axes[axes[0]].extent.as_constant().has_value();
    while (is_divisible && vectors % part != 0) --part;
    if (vectors > slab && is_divisible && (part > 1 || registers / vectors < kFewRows)) {
      out.of_sums.push_back({sums.name, tree.axes[axes[0]].name, part * lanes});
      vectors = part;
    }
    most = std::max(most, vectors);
  }
  if (most > registers) return {};
  out.rows = std::min(registers / most, kMostRows);
  return out;
}

// Puts a loop over slabs around a dot, outside of the loops that sum, and keeps what it makes in a
// buffer.
std::optional<Refusal> cut(Scheduled& out, const Slabs& slabs,
                           const std::vector<std::string>& summed) {
  if (auto refusal = take_legal(out, SlabsStep{{true, slabs.value}, slabs.axis, slabs.columns}))
    return refusal;
  const auto makes = [&](const Loop& loop) {
    return std::ranges::any_of(loop.body, [&](const LoopItem& item) {
      const auto* task = std::get_if<LoopTask>(&item);
      return task && task->makes_value() && out.tree.values[task->target].name == slabs.value;
    });
  };
  const LoopName loop = loop_over(out.tree, slabs.axis, makes).value();
  const size_t axis = *find_axis(out.tree, slabs.axis);
  for (size_t i = summed.size(); i-- > 0;) {
    const auto around = loop_over(out.tree, summed[i], [&](const Loop& l) {
      const Loop* child = only_child(l);
      return child && runs_over(*child, axis);
    });
    if (!around) continue;  // a sum over one element
    if (auto refusal = take_legal(out, ReorderStep{*around, loop})) return refusal;
  }
  return take_legal(out, KeepStep{slabs.value, Storage::Chip});
}

// Cuts what would not fit into the registers into slabs. Stores take slabs of the sums, too.
std::optional<Refusal> take_slabs(Scheduled& out, const CascadeTile& tile,
                                  const std::vector<FirstDot>& firsts) {
  for (size_t i = 0; i < tile.of_turns.size(); ++i)
    if (auto refusal = cut(out, tile.of_turns[i], firsts[i].summed)) return refusal;
  for (const Slabs& slabs : tile.of_sums) {
    if (auto refusal = cut(out, slabs, {})) return refusal;
    std::vector<std::string> stored;
    for_each_task(out.tree.phases[0], [&](const LoopTask& task, const auto&) {
      const bool reads = std::ranges::any_of(task.body.steps, [&](const LoopStep& s) {
        return s.kind == LoopStep::Kind::Read && out.tree.values[s.source].name == slabs.value;
      });
      if (!task.makes_value() && reads) stored.push_back(out.tree.tensors[task.target].name);
    });
    for (const std::string& tensor : stored)
      out.try_take(SlabsStep{{false, tensor}, slabs.axis, slabs.columns});
  }
  return std::nullopt;
}

// Whether the task reads anything at an index that contains the axis.
bool reads_along(const LoopTree& tree, const LoopTask& task, size_t axis) {
  const std::string& name = tree.axes[axis].name;
  return std::ranges::any_of(task.body.steps, [&](const LoopStep& s) {
    return std::ranges::any_of(s.at, [&](const Expr& e) { return e.uses(name); });
  });
}

// A dot whose results are equal along an axis is a sum, and its terms would all be in registers.
bool repeats_results(const LoopTree& tree, const Cascade& cascade) {
  return std::ranges::any_of(cascade.dots, [&](const CascadeDot& dot) {
    return std::ranges::any_of(tree.values[dot.task->target].axes,
                               [&](size_t axis) { return !reads_along(tree, *dot.task, axis); });
  });
}

// Whether a factor of a dot along the walk lies across the columns of its sums, so that each
// element of a vector would come from another memory line. (Such factors of first dots are packed.)
bool gathers(const LoopTree& tree, const Cascade& cascade) {
  return std::ranges::any_of(cascade.dots, [&](const CascadeDot& dot) {
    if (std::ranges::count(dot.task->over, cascade.walk) == 0) return false;
    const size_t columns = *std::ranges::max_element(tree.values[dot.task->target].axes);
    const LoopAxis &own = tree.axes[columns], &rows = tree.axes[*cascade.rows];
    return columns != *cascade.rows &&
           std::ranges::any_of(accesses(tree, *dot.task), [&](const TreeAccess& access) {
             return !access.offset.uses(rows.name) && access.offset.uses(own.name) &&
                    access.stride(own) != 1;
           });
  });
}

// Whether something is stored for each turn and row, with the rows side by side in memory. A vector
// along the walk would then be scattered, an element to each memory line.
bool scatters(const LoopTree& tree, const Cascade& cascade) {
  const LoopAxis &rows = tree.axes[*cascade.rows], &walk = tree.axes[cascade.walk];
  bool out = false;
  for_each_task(tree, [&](const LoopTask& task, const auto&) {
    for (const TreeAccess& access : accesses(tree, task))
      out |= access.store && access.stride(rows) == 1 && access.offset.uses(walk.name) &&
             access.stride(walk) != 1;
  });
  return out;
}

std::vector<FirstDot> first_dots(const LoopTree& tree, const Cascade& cascade) {
  std::vector<FirstDot> out;
  for (const CascadeDot& dot : cascade.dots) {
    if (dot.task->over.empty() || std::ranges::count(dot.task->over, cascade.walk) > 0) continue;
    FirstDot first;
    first.summed = names_of(tree, dot.task->over);
    for (const TreeAccess& access : accesses(tree, *dot.task))
      first.across |= access.stride(tree.axes[*cascade.rows]) == 0 &&
                      access.stride(tree.axes[dot.task->over.back()]) == 1;
    out.push_back(std::move(first));
  }
  return out;
}

std::optional<Refusal> take_rows(Scheduled& out, const Target& target, bool picks, int64_t turn) {
  const LoopTree tree = out.tree;
  const auto found = find_cascade(tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  const auto& cascade = std::get<Cascade>(found);
  if (!cascade.around.empty())
    return no_rule("the results of the first dots have a further axis that is summed");
  if (repeats_results(tree, cascade))
    return no_rule("the results of a dot are equal along an axis");
  if (gathers(tree, cascade)) return no_rule("a factor lies across the vectors of the sums");
  if (scatters(tree, cascade)) return no_rule("what the walk stores lies across its vectors");
  const auto name = [&](size_t axis) { return tree.axes[axis].name; };
  const std::string rows = name(*cascade.rows), walk = name(cascade.walk);
  const auto tile = choose_tile(tree, cascade, turn, target);
  if (!tile) return no_rule("the sums of one row do not fit in the registers");
  // The other factors of few rows are read once, in whichever loop.
  if (planned_extent(tree, *cascade.rows) < kLeastRows)
    return no_rule("a cascade pays for many rows only, which share the other factors");
  const std::vector<FirstDot> firsts = first_dots(tree, cascade);

  std::vector<LoopName> grid;
  for (const size_t axis : cascade.nest) {
    if (axis == *cascade.rows) continue;
    grid.push_back({name(axis)});
    if (std::ranges::find(cascade.nest, axis) > std::ranges::find(cascade.nest, *cascade.rows))
      if (auto refusal = take_legal(out, ReorderStep{{rows}, {name(axis)}})) return refusal;
  }
  grid.push_back({rows});
  if (auto refusal = take_legal(out, SplitStep{{rows}, tile->rows, /*padded=*/true}))
    return refusal;
  if (auto refusal = take_legal(out, WholeStep{{rows, 2}})) return refusal;
  deal_out(out, grid);
  // What one dot sums may be an axis of another one's result: the factor of both is the same.
  std::set<size_t> streams;
  for (const CascadeDot& dot : cascade.dots)
    streams.insert(dot.task->over.begin(), dot.task->over.end());
  make_whole(out, {cascade.walk}, streams);
  if (auto refusal = join_walk(out, cascade.walk, turn)) return refusal;
  if (auto refusal = take_slabs(out, *tile, firsts)) return refusal;
  part_walk(out, cascade.walk, turn, WalkRanges{1, turn, picks});
  // Turns of a walk that begins anywhere are no whole panels.
  const Loop& walked = loop_at(out.tree, *find_loop(out.tree, {walk}));
  const bool from_start = !walked.bounds || walked.bounds->first.is_constant(0);
  for (const FirstDot& first : firsts) {
    const auto sum = sum_loop(out, first.summed.back());
    if (!sum) continue;
    out.try_take(UnrollStep{*sum, kUnrolled});
    if (first.across && from_start)
      pack_lanes(out, first.summed, {walk, rows, tile->panel, first.across}, target);
  }
  sum_in_parts(out);
  return std::nullopt;
}

// The indices of a turn: panels with which the turns of the walk are shortest. What is done once in
// a turn takes as long as some of its indices. All of a walk is one turn only if little of that
// lies beyond the end, since there is no loop then that could end earlier.
int64_t turn_of(int64_t length, int64_t panel, int64_t most) {
  constexpr int64_t kOnce = 16;
  const auto time = [&](int64_t turn) { return ceil_divide(length, turn) * (turn + kOnce); };
  int64_t out = panel;
  for (int64_t turn = panel; turn <= most; turn += panel)
    if (time(turn) <= time(out) && turn - length <= turn / 16) out = turn;
  return out;
}

// Whether the walk leaves out turns.
bool leaves_out(const LoopTree& tree) {
  bool out = false;
  visit_loops(tree.phases.back(),
              [&](const Loop& loop) { out |= loop.bounds || loop.limit || loop.picks; });
  return out;
}

}  // namespace

std::optional<Refusal> tile_cascade_for_cpu(Scheduled& out, const Target& target) {
  const auto found = find_cascade(out.tree);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  const auto& cascade = std::get<Cascade>(found);
  const int64_t length = planned_extent(out.tree, cascade.walk);
  const int64_t panel = panel_of(out.tree, cascade, target);
  draw_factors(out);
  return take_with_picks(out, target, [&](Scheduled& tree, bool picks) -> std::optional<Refusal> {
    Scheduled by_long_turns = tree;
    if (auto refusal = take_rows(by_long_turns, target, picks, turn_of(length, panel, kLongTurn)))
      return refusal;
    if (leaves_out(by_long_turns.tree))
      return take_rows(tree, target, picks, turn_of(length, panel, kShortTurn));
    tree = std::move(by_long_turns);
    return std::nullopt;
  });
}

}  // namespace braze
