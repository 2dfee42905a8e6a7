// crossed_gpu.cpp — the rule for reductions along rows and columns in one walk, on a GPU. Each
// instance walks a chunk of the rows. The threads of its block have a row in registers (or several
// short ones), fold along it, and add it to the sums of the columns, of which each thread has those
// of its own elements. A second phase adds the sums of the chunks, in their order.
#include "compiler/loops/rules/crossed_gpu.h"

#include <algorithm>
#include <array>
#include <set>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/steps/stage.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

constexpr int64_t kBlockThreads = 256, kMostThreads = 512;
// Elements of a row that a thread takes: enough for loads of whole vectors from several inputs. It
// takes more only where a row would not fit into a block.
constexpr int64_t kElements = 16, kMostElements = 32;
// What a thread can have of numbers that there are for each of its elements: loaded ones, and sums
// of columns. The rest of its registers holds what is computed from them.
constexpr int64_t kElementRegisters = 80;
// Registers of a thread: those of a multiprocessor suffice for so many of 512 threads.
constexpr int64_t kThreadRegisters = 128;
// Rows of a thread that are under way at the same time.
constexpr int64_t kMostRowsOfThread = 4;
// Blocks of a multiprocessor. One loads while another one folds or stores.
constexpr int64_t kBlocks = 2;
// Rows of a block after which the sums of its columns are worth a second phase.
constexpr int64_t kLeastRows = 4;
constexpr int64_t kAccessBytes = 4;  // the least that a copy past the registers moves

bool is_plain(const Loop& loop) { return loop.levels.size() == 1 && !loop.down && !loop.bounds; }

// The walk over rows: loops around it, the loop over rows (several, if rows have several axes), and
// loops along a row inside of it, the outermost first.
struct Crossed {
  std::vector<size_t> lines, rows, along;
  size_t loops = 0;                    // loops along rows that stand side by side
  std::vector<const LoopTask*> tasks;  // of the walk
};

// The axes of a nest of loops that contains only tasks in the innermost one.
std::optional<std::vector<size_t>> nest_of(const Loop& outermost) {
  std::vector<size_t> out;
  for (const Loop* loop = &outermost;;) {
    if (!is_plain(*loop)) return std::nullopt;
    out.push_back(loop->levels[0].axis);
    if (const Loop* child = only_child(*loop)) {
      loop = child;
      continue;
    }
    if (std::ranges::any_of(loop->body, [](const LoopItem& item) { return as_loop(item); }))
      return std::nullopt;
    return out;
  }
}

// Whether the walk reads memory after a task before has overwritten it.
bool reads_what_it_overwrites(const std::vector<const LoopTask*>& tasks) {
  std::set<size_t> written;
  for (const LoopTask* task : tasks) {
    for (const LoopStep& s : task->body.steps)
      if (s.kind == LoopStep::Kind::Load && task->makes_value() && written.contains(s.source))
        return true;
    if (!task->makes_value()) written.insert(task->target);
  }
  return false;
}

// Whether several walks read the same rows, as those of products do.
bool reads_again(const LoopTree& tree, const Crossed& nest) {
  const auto uses = [&](const Expr& offset, size_t axis) {
    return offset.uses(tree.axes[axis].name);
  };
  for (const LoopTask* task : nest.tasks)
    for (const TreeAccess& access : accesses(tree, *task))
      for (const size_t line : nest.lines)
        if (!uses(access.offset, line) &&
            std::ranges::any_of(nest.rows, [&](size_t row) { return uses(access.offset, row); }))
          return true;
  return false;
}

std::optional<Crossed> crossed(const LoopTree& tree) {
  Crossed out;
  if (tree.phases.size() != 1) return std::nullopt;
  const LoopRegion* region = &tree.phases[0];
  while (region->size() == 1) {
    const Loop* loop = as_loop(region->front());
    if (!loop || !loop->parallel || !is_plain(*loop)) break;
    out.lines.push_back(loop->levels[0].axis);
    region = &loop->body;
  }
  if (region->size() != 2) return std::nullopt;
  // The loop behind the walk stores the sums of columns.
  const Loop *walk = as_loop(region->front()), *results = as_loop(region->back());
  if (!walk || !results || !results->parallel) return std::nullopt;
  const Loop* innermost = walk;
  for (const Loop* loop = walk; loop && !loop->parallel; loop = only_child(*loop)) {
    if (!is_plain(*loop)) return std::nullopt;
    innermost = loop;
    out.rows.push_back(loop->levels[0].axis);
  }
  if (out.rows.empty()) return std::nullopt;
  for (const LoopItem& item : innermost->body) {
    const Loop* loop = as_loop(item);
    if (!loop) continue;
    const auto axes = nest_of(*loop);
    if (!axes || (out.loops > 0 && *axes != out.along)) return std::nullopt;
    out.along = *axes;
    ++out.loops;
  }
  const auto stored = nest_of(*results);
  if (out.loops == 0 || !stored || *stored != out.along) return std::nullopt;
  bool along_rows = false, along_columns = false, served = true;
  for_each_task(innermost->body, [&](const LoopTask& task, const auto&) {
    out.tasks.push_back(&task);
    const auto over = [&](const std::vector<size_t>& axes) {
      return std::ranges::any_of(task.over, [&](size_t axis) { return contains(axes, axis); });
    };
    served &= task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Dot ||
              task.kind == LoopTask::Kind::Store;
    if (!task.has_state()) return;
    const bool of_row = over(out.along), of_column = over(out.rows);
    served &= of_row != of_column;
    along_rows |= of_row;
    along_columns |= of_column;
  });
  if (!served || !along_rows || !along_columns || reads_what_it_overwrites(out.tasks) ||
      reads_again(tree, out))
    return std::nullopt;
  return out;
}

Refusal uncrossed(std::string why) { return {&codes::kUncrossed, std::move(why), ""}; }

// How the threads of a block lie on rows and along them.
struct RowBlock {
  int64_t along = 1, vector = 1, tile = 1;  // threads, neighbours of a thread, elements
  int64_t rows = 1, each = 1;               // rows of a block beside each other, and of a thread
  int64_t threads() const { return along * rows; }
  int64_t elements() const { return tile / along; }
};

// What the walk loads along rows.
std::vector<TreeAccess> loads_along(const LoopTree& tree, const Crossed& nest) {
  std::vector<TreeAccess> out = accesses(tree, nest.tasks);
  std::erase_if(out, [&](const TreeAccess& access) {
    return access.store || !access.offset.uses(tree.axes[nest.along[0]].name);
  });
  return out;
}

// Whether what the walk loads is contiguous from row to row, and not along rows.
bool follow_rows(const LoopTree& tree, const Crossed& nest) {
  std::vector<TreeAccess> loads = loads_along(tree, nest);
  std::erase_if(loads, [&](const TreeAccess& load) {
    return !load.offset.uses(tree.axes[nest.rows[0]].name);
  });
  const auto is_along = [&](size_t axis) {
    return [&tree, axis](const TreeAccess& load) {
      const auto slope = load.offset.coefficient_of(tree.axes[axis].name);
      return slope && slope->is_constant(1);
    };
  };
  return std::ranges::any_of(loads, is_along(nest.rows[0])) &&
         std::ranges::none_of(loads, is_along(nest.along[0]));
}

std::variant<RowBlock, Refusal> choose_block(const LoopTree& tree, const Crossed& nest,
                                             int64_t length, int64_t rows, const Target& target) {
  const LoopAxis& axis = tree.axes[nest.along[0]];
  std::vector<TreeAccess> touched;
  for (const LoopTask* task : nest.tasks)
    for (TreeAccess& access : accesses(tree, *task))
      if (access.offset.uses(axis.name)) touched.push_back(std::move(access));
  const auto registers = [](DType dtype) {
    return ceil_divide(static_cast<int64_t>(size_of(dtype)), int64_t{4});
  };
  int64_t numbers = 0;
  for (const LoopTask* task : nest.tasks)
    if (task->has_state() && contains(task->over, nest.rows[0]))
      numbers += registers(body_dtype(*task));
  for (const TreeAccess& load : loads_along(tree, nest))
    numbers += registers(tree.tensors[load.tensor].type.dtype);
  const int64_t most = length > kMostThreads * kElements ? kMostElements : kElements;
  const int64_t room =
      std::min(most, floor_power_of_two(kElementRegisters / std::max<int64_t>(numbers, 1)));
  RowBlock out;
  out.vector = std::min({vector_along(touched, axis), floor_power_of_two(length), room});
  out.along = ceil_power_of_two(ceil_divide(length, room));
  if (out.along > kMostThreads)
    return Refusal{&codes::kLongRows,
                   "a row has " + std::to_string(length) + " elements, and a block has registers " +
                       "for " + std::to_string(kMostThreads * room) + " of them and their sums",
                   ""};
  // Few rows are dealt to many threads.
  while (2 * out.along <= std::min(kMostThreads, ceil_divide(length, out.vector)) &&
         rows * out.along < target.cores * kBlocks * kBlockThreads)
    out.along *= 2;
  // Shorter vectors may cover the row exactly, which saves masks.
  int64_t least = sizeof(double);
  for (const TreeAccess& access : touched)
    least = std::min(least, static_cast<int64_t>(access.bytes));
  for (int64_t vector = out.vector; vector * least >= kAccessBytes; vector /= 2)
    if (length % (out.along * vector) == 0) {
      out.vector = vector;
      break;
    }
  const int64_t unit = out.along * out.vector;
  out.tile = ceil_divide(length, unit) * unit;
  // Several rows share a block, as long as there are enough for all blocks.
  const int64_t few = target.cores * kBlocks;
  while (2 * out.threads() <= kBlockThreads &&
         (out.threads() < kWarpThreads || 2 * out.rows * few <= rows))
    out.rows *= 2;
  while (2 * out.each * out.elements() <= room && out.each < kMostRowsOfThread &&
         2 * out.each * out.rows * few <= rows)
    out.each *= 2;
  return out;
}

// The tiles of the second phase: the threads of a block share the chunks of its columns.
struct Second {
  int64_t columns = 1, chunks = 1;
  std::vector<Digit> of_columns, of_chunks;
};

// Whether a plain program, which finds layouts by extents, could take a tile for another one.
bool are_alike(const std::vector<Digit>& a, const std::vector<Digit>& b) {
  bool out = false;
  for (size_t d = 0; a.size() == b.size() && d < a.size(); ++d)
    out |= a[d].extent == b[d].extent && !(a[d] == b[d]);
  return out;
}

// Chooses as many columns as a warp has lanes, or fewer. `first`: the digits of rows, and along
// them, in the tiles of the first phase.
std::optional<Second> choose_second(int64_t chunks, int64_t length, const RowBlock& block,
                                    const std::array<std::vector<Digit>, 2>& first) {
  const auto joined = [](std::vector<Digit> a, const std::vector<Digit>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  for (int64_t columns = std::min(kWarpThreads, floor_power_of_two(length)); columns > 0;
       columns /= 2) {
    if (columns == block.tile) continue;
    const int64_t share = std::max(block.threads() / columns, int64_t{1});
    Second out{columns,
               chunks > share ? chunks / share * share : floor_power_of_two(chunks),
               threads_along(1, columns),
               {}};
    const int64_t sharing = std::min(share, out.chunks);
    out.of_chunks = digits({{Resource::Register, 1, out.chunks / sharing}});
    for (const Digit& digit : threads_along(columns, sharing)) out.of_chunks.push_back(digit);
    bool alike = false;
    for (const auto& a : {first[0], first[1], joined(first[0], first[1])})
      for (const auto& b : {out.of_columns, joined(out.of_chunks, out.of_columns)})
        alike |= are_alike(a, b);
    if (!alike) return out;
  }
  return std::nullopt;
}

// If a row belongs to several warps, which wait for each other in each turn, and all turns are
// whole, what a turn reads of the rows is copied on chip a turn early.
void copy_rows(Scheduled& out, const std::vector<TreeAccess>& loads, const std::string& row,
               const RowBlock& block, const Target& target) {
  constexpr int64_t kSlots = 2;
  const int64_t turn = block.rows * block.each;
  const Expr& extent = axis_of(out.tree, row).extent;
  if (block.along <= kWarpThreads || !extent.is_multiple_of(turn) || extent.range().min < 1) return;
  std::set<std::string> tensors;
  int64_t bytes = 0;
  for (const TreeAccess& access : loads) {
    if (!access.offset.uses(row)) continue;
    const auto own = static_cast<int64_t>(access.bytes);
    if (own * block.vector < kAccessBytes) return;
    bytes += own * block.tile * turn;
    tensors.insert(out.tree.tensors[access.tensor].name);
  }
  if (kSlots * bytes * kMostThreads > target.l1_bytes * block.threads()) return;
  Scheduled copied = out;
  for (const std::string& tensor : tensors)
    if (!copied.try_take(StageStep{{false, tensor}, {row}})) return;
  if (copied.try_take(RingStep{{row}, kSlots})) out = std::move(copied);
}

// Makes a level of a loop whole. Returns false if it must stay a loop.
bool make_whole(Scheduled& out, const LoopName& loop, int64_t tile) {
  const bool covered = axis_of(out.tree, loop.axis).extent.is_constant(tile);
  return (covered || out.try_take(SplitStep{loop, tile, /*padded=*/true})) &&
         out.try_take(WholeStep{{loop.axis, covered ? loop.number : loop.number + 1}});
}

// The same for the loops along a row: of those that stand first in the tree, `count`.
bool keep_rows(Scheduled& out, const std::string& along, int64_t tile, size_t count) {
  const bool covered = axis_of(out.tree, along).extent.is_constant(tile);
  for (int64_t n = 1; count > 0; --count, n += !covered)
    if (!make_whole(out, {along, n}, tile)) return false;
  return true;
}

// Deals loops inside each other to the grid as one.
bool deal(Scheduled& out, const std::vector<std::string>& loops) {
  bool dealt = loops.empty() || out.try_take(OnStep{{loops[0]}, Machine::Grid});
  for (size_t i = 1; i < loops.size(); ++i)
    dealt = dealt && out.try_take(TupleStep{{loops[0]}, {loops[i]}});
  return dealt;
}

}  // namespace

bool crosses(const LoopTree& tree) { return crossed(tree).has_value(); }

std::optional<Refusal> tile_crossed_for_gpu(Scheduled& out, const Target& target) {
  auto nest = crossed(out.tree);
  if (!nest) return uncrossed("no walk over rows reduces both along them and along columns");
  collapse_axes(out, nest->lines);
  nest = crossed(out.tree);
  collapse_axes(out, nest->rows);
  nest = crossed(out.tree);
  collapse_axes(out, nest->along);
  nest = crossed(out.tree);
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  if (nest->rows.size() != 1 || nest->along.size() != 1)
    return uncrossed("rows or columns have several axes that are not used as one");
  const std::string row = name(nest->rows[0]), along = name(nest->along[0]);
  const auto length = out.tree.axes[nest->along[0]].extent.as_constant();
  if (!length) return uncrossed("the length of a row is not constant");
  const int64_t rows = planned_extent(out.tree, nest->rows[0]);
  int64_t lines = 1;
  std::vector<std::string> around;
  for (const size_t line : nest->lines) {
    lines *= planned_extent(out.tree, line);
    around.push_back(name(line));
  }
  const auto chosen = choose_block(out.tree, *nest, *length, rows * lines, target);
  if (const auto* refusal = std::get_if<Refusal>(&chosen)) return *refusal;
  const auto block = std::get<RowBlock>(chosen);
  // The number of chunks is part of the schedule, because it determines the order of the sums.
  const int64_t wanted = ceil_divide(
      target.cores * kBlocks * std::max(kBlockThreads / block.threads(), int64_t{1}), lines);
  const int64_t turn = block.rows * block.each;
  int64_t most = std::min(wanted, ceil_divide(rows, std::max(turn, kLeastRows)));
  const int64_t turns = ceil_divide(rows, turn);
  most = ceil_divide(turns, ceil_divide(turns, most));  // as many turns in each, but for one
  const int64_t elements = block.elements();
  // Neighbours in memory are neighbouring lanes of a warp, also where they belong to several rows.
  const int64_t beside =
      follow_rows(out.tree, *nest) ? std::min(block.rows, kWarpThreads) : int64_t{1};
  const int64_t lanes = std::min(block.along, kWarpThreads / beside);
  std::vector<Digit> of_rows = digits({{Resource::Register, elements, block.each}});
  if (beside > 1)
    of_rows.push_back({Resource::Lane, 1, beside});
  else
    for (const Digit& digit : threads_along(block.along, block.rows)) of_rows.push_back(digit);
  const std::vector<Digit> of_along =
      digits({{Resource::Register, block.vector, elements / block.vector},
              {Resource::Warp, 1, block.along / lanes},
              {Resource::Lane, beside, lanes},
              {Resource::Register, 1, block.vector}});
  const auto second = choose_second(most, *length, block, {of_rows, of_along});
  if (!second) return uncrossed("the tiles of the two phases could not be told apart");
  const auto& [columns, chunks, of_columns, of_chunks] = *second;
  if (2 * chunks * lines < target.cores)
    return Refusal{&codes::kFewRows,
                   std::to_string(rows * lines) + " rows are enough for " +
                       std::to_string(chunks * lines) + " blocks",
                   ""};

  const size_t loops = nest->loops;
  const std::vector<TreeAccess> loads = loads_along(out.tree, *nest);
  const Refusal loops_stay = uncrossed("a loop cannot become a tile, or be dealt to the machine");
  if (!deal(out, around) || !keep_rows(out, along, block.tile, loops) ||
      (turn > 1 && !make_whole(out, {row}, turn)))
    return loops_stay;
  const std::string chunk = unused_axis(out.tree, row + "c");
  if (!out.try_take(ChunkStep{{row}, chunks, Combine::Phase}))
    return uncrossed("the sums of chunks of rows cannot be combined by a second phase");
  // Tiles that reach beyond the row have loops of their own, and load there.
  if (block.tile == *length) copy_rows(out, loads, row, block, target);
  const LoopAxis& rows_axis = axis_of(out.tree, row);
  if (!rows_axis.extent.is_multiple_of(turn)) out.try_take(PartStep{{row}, before_end(rows_axis)});
  const int64_t number = count_loops(out.tree, along);
  if (columns > 1 && !make_whole(out, {along, number}, columns)) return loops_stay;
  const bool dealt = around.empty() ? out.try_take(OnStep{{along, number}, Machine::Grid})
                                    : out.try_take(TupleStep{{around[0], 2}, {along, number}});
  if (!dealt) return loops_stay;
  out.take(LastStep{along});

  // The assembler would rather spill than use the registers that the blocks leave.
  out.take(RegistersStep{kThreadRegisters});
  bind_layouts(out, {{along, block.tile, of_along},
                     {row, turn, of_rows},
                     {along, columns, of_columns},
                     {chunk, chunks, of_chunks}});
  return std::nullopt;
}

}  // namespace braze
