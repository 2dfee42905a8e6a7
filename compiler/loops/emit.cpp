// emit.cpp — the walk over a loop tree: phases, grids, roles and loops (E1 to E5). emit_p.h lists
// the files that do the rest.
#include "compiler/loops/emit.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "compiler/loops/emit_p.h"
#include "compiler/loops/steps/places.h"
#include "ir/code/walk.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

void TreeEmitter::refuse(const SourceLocation& where, const std::string& message) const {
  fail(codes::kNoEmission, message, {.location = where, .node = "@" + tree_.name, .fix = ""});
}

TileProgram TreeEmitter::emit() {
  code_.name = tree_.name;
  code_.symbols = tree_.symbols;
  for (const Expr& symbol : tree_.symbols) builder_.fresh_name(symbol.symbol_name());
  if (tree_.roles) {
    code_.pipelined = true;
    code_.target = tree_.target;
  }
  code_.registers = tree_.registers;
  declare_parameters();
  note_layouts();
  for (const LoopRegion& region : tree_.phases) phase(region);
  remove_dead_code(code_);
  if (!code_.pipelined) order_layouts();
  return std::move(code_);
}

// A plain program takes the first layout that fits the extents of a tile. What a fold makes of a
// tile has extents of 1, so the layout of another tile may fit it as well. Then the layout of the
// tile that is folded has to come first.
void TreeEmitter::order_layouts() {
  std::vector<NamedLayout>& layouts = code_.layouts;
  bool moved = false;
  const std::function<void(const Region&)> visit = [&](const Region& region) {
    for (const Statement& s : region.statements) {
      for (const Region* inner : regions_of(s)) visit(*inner);
      const auto* fold = s.as<FoldOp>();
      if (!fold || fold->operand.is_literal()) continue;
      const size_t own = first_that_fits(layouts, code_[fold->operand.value].type.extents);
      const size_t found = first_that_fits(layouts, code_[s.results[0]].type.extents);
      if (own == layouts.size() || found >= own) continue;
      const auto axes_differ = [&](size_t axis) {
        return std::ranges::find(fold->axes, static_cast<int64_t>(axis)) == fold->axes.end() &&
               layouts[own].layout.axes[axis] != layouts[found].layout.axes[axis];
      };
      bool differ = false;
      for (size_t axis = 0; axis < layouts[own].layout.rank(); ++axis) differ |= axes_differ(axis);
      if (!differ) continue;
      const auto at = [&](size_t i) { return layouts.begin() + static_cast<ptrdiff_t>(i); };
      std::rotate(at(found), at(own), at(own) + 1);
      moved = true;
    }
  };
  // Lowering refuses the program if there is no order that suits all folds.
  for (size_t i = 0; i < layouts.size(); ++i) {
    moved = false;
    for (const Phase& phase : code_.phases) visit(phase.body);
    if (!moved) return;
  }
}

void TreeEmitter::declare_parameters() {
  for (const LoopTensor& tensor : tree_.tensors)
    builder_.add_memory({.name = tensor.name,
                         .space = MemorySpace::Parameter,
                         .mode = tensor.mode,
                         .dtype = tensor.type.dtype,
                         .shape = tensor.type.shape.dims(),
                         .strides = tensor.strides,
                         .align = tensor.align});
}

// --- Phases and the grid ------------------------------------------------------------------------

void TreeEmitter::phase(const LoopRegion& items) {
  axes_.assign(tree_.axes.size(), {});
  shared_ = axes_;
  counters_.clear();
  note_digits(items);
  plan_kept(items);
  const auto* only = items.size() == 1 ? std::get_if<Box<Loop>>(&items[0]) : nullptr;
  grid_ = only && (*only)->on == Machine::Grid ? &**only : nullptr;
  ranks_ = ranks_of(grid_);
  persistent_ = 0;
  Phase phase;
  builder_.enter(phase.body);
  grid_turns_.clear();
  tiles_ = 1;
  if (grid_) {
    for (size_t i = 0; i < grid_->levels.size(); ++i) {
      const Expr turns = turns_of(*grid_, i);
      grid_turns_.push_back(turns);
      tiles_ *= turns;
    }
    for (const Deal& deal : grid_->deal) {
      if (deal.order == Deal::Order::Persistent) persistent_ = deal.number;
      if (deal.order != Deal::Order::Grouped) continue;
      // The last group is rounded up. Instances beyond the last turn lie outside of their tensors.
      for (size_t i = 0; i < grid_->levels.size(); ++i)
        if (grid_->levels[i].axis == deal.axis) {
          tiles_ = ceildiv(grid_turns_[i], deal.number) * Expr(deal.number);
          for (size_t k = 0; k < grid_->levels.size(); ++k)
            if (k != i) tiles_ *= grid_turns_[k];
        }
    }
  }
  // If no order of turns is given, each level is an axis of the grid.
  by_level_ = grid_ && grid_->deal.empty() && !tree_.roles;
  const auto add_axis = [&](std::string_view hint, const Expr& turns) {
    phase.grid.push_back({builder_.fresh_name(hint), turns});
    return grid_symbol(phase.grid.back().symbol, turns);
  };
  if (by_level_)
    for (size_t i = 0; i < grid_->levels.size(); ++i)
      grid_turns_[i] = add_axis(turn_name(grid_->levels[i].axis), grid_turns_[i]);
  else if (grid_ || tree_.roles)
    // More instances than there are tiles would have nothing to do.
    block_ = add_axis(
        "t", persistent_ > 0 && !proves_at_most(tiles_, persistent_) ? Expr(persistent_) : tiles_);
  if (persistent_ > 0) {
    for (Expr& turns : grid_turns_) turns = builder_.let("turns", turns);
    tiles_ = builder_.let("tiles", tiles_);
  }
  if (ranks_) {
    phase.cluster = builder_.fresh_name("b");
    phase.cluster_size = count_ranks();
    rank_ = grid_symbol(phase.cluster, phase.cluster_size);
  }
  const LoopRegion& body = grid_ ? grid_->body : items;
  if (tree_.roles) {
    plan_pipes(body, grid_ ? std::max<int64_t>(grid_->ring, 1) : 1, /*in_grid=*/true);
    roles();
  } else {
    part_ = Part::All;
    if (grid_)
      instance();
    else
      region(items);
  }
  builder_.leave();
  code_.phases.push_back(std::move(phase));
}

// The loop over the blocks of a cluster. The loop on grid contains nothing else.
const Loop* TreeEmitter::ranks_of(const Loop* grid) const {
  const auto* only =
      grid && grid->body.size() == 1 ? std::get_if<Box<Loop>>(&grid->body[0]) : nullptr;
  if (!only || (*only)->on != Machine::Rank) return nullptr;
  const Loop& loop = **only;
  if (!tree_.roles || loop.levels.size() != 1)
    refuse(loop.location, "a loop on rank must run over one axis, in a tree with roles");
  return &loop;
}

// The blocks of a cluster: the turns of the loop on rank in a turn of the loop on grid.
int64_t TreeEmitter::count_ranks() const {
  const auto [axis, turn] = ranks_->levels[0];
  int64_t outer = extent_of(axis, axes_);
  for (const LoopLevel& level : grid_->levels)
    if (level.axis == axis) outer = level.turn;
  if (outer == 0 || outer % turn != 0)
    refuse(ranks_->location, "a cluster must have a constant number of blocks");
  return outer / turn;
}

namespace {

bool takes_turns(const LoopRegion& region) {
  return std::any_of(region.begin(), region.end(), [](const LoopItem& item) {
    const auto* loop = std::get_if<Box<Loop>>(&item);
    return loop && ((*loop)->turns || takes_turns((*loop)->body));
  });
}

}  // namespace

void TreeEmitter::roles() {
  group_ = nullptr;
  for_each_task(grid_ ? grid_->body : tree_.phases[0],
                [&](const LoopTask&, const std::vector<const Loop*>& around) {
                  for (const Loop* loop : around)
                    if (loop->on == Machine::Group) group_ = loop;
                });
  if (!grid_ || (group_ && group_->levels.size() != 1))
    refuse(grid_ ? grid_->location : SourceLocation(),
           "a tree with roles must be a loop on grid, and a loop on group inside must run over one "
           "axis");
  const auto role = [&](std::string_view name, Part part, int64_t copies, int64_t registers) {
    TileRoleOp op{.name = std::string(name), .copies = copies, .warps = 4, .registers = registers};
    if (copies > 1) {
      op.symbol = builder_.fresh_name("c");
      copy_ = grid_symbol(op.symbol, copies);
    } else {
      copy_ = 0;
    }
    part_ = part;
    front_ = {};
    Region body;
    builder_.enter(body);
    instance();
    builder_.leave();
    body.statements.insert(body.statements.begin(),
                           std::make_move_iterator(front_.statements.begin()),
                           std::make_move_iterator(front_.statements.end()));
    op.body = std::move(body);
    builder_.append(std::move(op), {});
  };
  int64_t groups = 1;
  if (group_) {
    const LoopLevel level = group_->levels[0];
    int64_t outer = extent_of(level.axis, axes_);
    for (const Loop* around : {static_cast<const Loop*>(grid_), ranks_})
      for (const LoopLevel& of_block : around ? around->levels : std::vector<LoopLevel>())
        if (of_block.axis == level.axis) outer = of_block.turn;
    if (outer < level.turn)
      refuse(group_->location,
             "the turns of the loop on group must be parts of the turns of the loops on grid and "
             "rank");
    groups = outer / level.turn;
  }
  if (takes_turns(grid_->body)) {
    token_ = TokenId(code_.tokens.size());
    code_.tokens.push_back({builder_.fresh_name("turn"), groups, "mma", 0});
    builder_.append(TurnsOp{token_}, {});
  }
  if (pipes_.empty()) return role("mma", Part::Rest, groups, 0);
  role("load", Part::Stages, 1, tree_.roles->stages);
  role("mma", Part::Rest, groups, tree_.roles->rest);
}

// Makes the work of one instance: all its turns of the loop on grid.
void TreeEmitter::instance() {
  const auto once = [&](bool begin) {
    for (Pipe& pipe : pipes_) {
      if (!pipe.once) continue;
      if (part_ == Part::Stages && begin) put(pipe);
      if (part_ == Part::Rest && begin) get(pipe);
      if (part_ == Part::Rest && !begin) release(pipe, 0);
    }
  };
  once(true);
  const AxesNow axes = axes_, shared = shared_;
  if (persistent_ > 0) {
    builder_.for_loop("u", block_, tiles_, persistent_, {}, [&](const Expr& u, const auto&) {
      counters_.push_back({floordiv(u - block_, persistent_), 0});
      deal(u);
      region(grid_->body);
      counters_.pop_back();
      return std::vector<ValueOperand>();
    });
  } else {
    deal(block_);
    grid_parts(0);
  }
  axes_ = axes;
  shared_ = shared;
  once(false);
}

// Makes the body twice if the loop on grid has a part: once for turns in which its condition holds
// everywhere, and once for turns in which it may fail.
void TreeEmitter::grid_parts(size_t n) {
  if (n == grid_->parts.size()) return region(grid_->body);
  const IndexComparison& part = grid_->parts[n];
  const auto level = std::find_if(grid_->levels.begin(), grid_->levels.end(),
                                  [&](const LoopLevel& l) { return is_tail(part, l.axis); });
  if (tree_.roles || level == grid_->levels.end())
    refuse(grid_->location,
           "a part of the loop on grid must say that an axis of the loop has not ended, in a tree "
           "without roles");
  const Expr end = axes_[level->axis].begin + level->turn;
  builder_.if_then(
      {{end, IndexComparison::Kind::Le, part.right}},
      [&] {
        decided_.push_back(part);
        grid_parts(n + 1);
        decided_.pop_back();
      },
      [&] { grid_parts(n + 1); });
}

// Decodes turn `number` of the grid's loop: sets where each of its levels stands.
void TreeEmitter::deal(const Expr& number) {
  const size_t n = grid_->levels.size();
  if (by_level_) {
    for (size_t i = 0; i < n; ++i) {
      const LoopLevel& level = grid_->levels[i];
      axes_[level.axis] = shared_[level.axis] = {grid_turns_[i] * Expr(level.turn), level.turn};
    }
    return;
  }
  Deal order{.order = Deal::Order::Columns};
  bool longest = false;
  for (const Deal& d : grid_->deal) {
    if (d.order == Deal::Order::Longest)
      longest = true;
    else if (d.order != Deal::Order::Persistent)
      order = d;
  }
  std::vector<Expr> turn(n);
  Expr rest = number;
  const auto take = [&](size_t level) {
    turn[level] = mod(rest, grid_turns_[level]);
    rest = floordiv(rest, grid_turns_[level]);
  };
  switch (order.order) {
    case Deal::Order::Columns:
      for (size_t i = n; i-- > 1;) take(i);
      turn[0] = rest;
      break;
    case Deal::Order::Rows:
      for (size_t i = 0; i + 1 < n; ++i) take(i);
      turn[n - 1] = rest;
      break;
    case Deal::Order::Band: {
      if (n < 2) refuse(grid_->location, "the order `band` needs a loop over two levels");
      if (n > 2) {
        const Expr both = grid_turns_[0] * grid_turns_[1];
        rest = floordiv(number, both);
        for (size_t i = n; i-- > 2;) take(i);
        rest = builder_.let("tile", mod(number, both));
      }
      const Expr in_band = grid_turns_[1] * Expr(order.number);
      const Expr above = builder_.let("above", floordiv(rest, in_band) * Expr(order.number));
      const Expr height = builder_.let("height", max(1, min(order.number, grid_turns_[0] - above)));
      const Expr inside = builder_.let("inside", mod(rest, in_band));
      turn[0] = above + mod(inside, height);
      turn[1] = floordiv(inside, height);
      break;
    }
    default: {
      size_t grouped = 0;
      while (grid_->levels[grouped].axis != order.axis) ++grouped;
      const Expr inside = mod(rest, order.number);
      rest = floordiv(rest, order.number);
      for (size_t i = n; i-- > 0;)
        if (i != grouped) take(i);
      turn[grouped] = rest * Expr(order.number) + inside;
    }
  }
  // The turns whose inner loops end with the turn are longest at the end, so they are counted down.
  if (longest) turn[n - 1] = grid_turns_[n - 1] - 1 - turn[n - 1];
  for (size_t i = 0; i < n; ++i) {
    const LoopLevel& level = grid_->levels[i];
    const Expr begin = builder_.let(turn_name(level.axis), turn[i]) * Expr(level.turn);
    axes_[level.axis] = shared_[level.axis] = {begin, level.turn};
  }
}

// --- Loops --------------------------------------------------------------------------------------

int64_t TreeEmitter::extent_of(size_t axis, const AxesNow& axes) const {
  if (axes[axis].turn > 0) return axes[axis].turn;
  return tree_.axes[axis].extent.as_constant().value_or(0);
}

namespace {

bool ends_with_turn(const Loop& loop) {
  return loop.bounds && loop.bounds->first.is_constant(0) &&
         loop.bounds->second.kind() == Expr::Kind::Symbol &&
         loop.bounds->second.symbol_name().ends_with(".end");
}

}  // namespace

// The number of turns that a level of the loop has if the loop begins here.
Expr TreeEmitter::turns_of(const Loop& loop, size_t level) {
  const auto [axis, turn] = loop.levels[level];
  if (!loop.bounds) {
    const Expr extent = axes_[axis].turn > 0 ? Expr(axes_[axis].turn) : tree_.axes[axis].extent;
    return ceildiv(extent, turn);
  }
  const auto [low, high] = bounds_of(loop);
  // The end of a turn is greater than 0. Copies mask what lies beyond the ends of tensors.
  if (tree_.roles && ends_with_turn(loop)) return ceildiv(high, turn);
  const int64_t least = tree_.roles && surely_has_turn(loop) ? 1 : 0;
  return max(least, ceildiv(min(high, tree_.axes[axis].extent) - low, turn));
}

// The begin and the end of the loop if it begins here.
std::pair<Expr, Expr> TreeEmitter::bounds_of(const Loop& loop) const {
  const auto now = now_around(loop);
  return {loop.bounds->first.substitute(now), loop.bounds->second.substitute(now)};
}

bool TreeEmitter::surely_has_turn(const Loop& loop) const {
  std::vector<int64_t> turns;
  for (const AxisNow& now : shared_) turns.push_back(now.turn);
  return braze::surely_has_turn(tree_, loop, turns);
}

// What the symbols in the bounds of a loop mean if it begins here.
std::unordered_map<std::string, Expr> TreeEmitter::now_around(const Loop& loop) const {
  std::unordered_map<std::string, Expr> now;
  for (size_t a = 0; a < tree_.axes.size(); ++a) {
    // Groups may share all of an axis.
    const bool whole = shared_[a].turn == 0;
    const Expr begin = whole ? Expr(0) : shared_[a].begin;
    now.insert_or_assign(name_of(a), begin);
    now.insert_or_assign(end_symbol(tree_.axes[a]).symbol_name(),
                         whole ? tree_.axes[a].extent : begin + shared_[a].turn);
  }
  if (loop.limit) {
    const size_t axis = loop.levels[0].axis;
    const std::vector<Expr>& limits = limits_.at(axis);
    for (size_t n = 0; n < limits.size(); ++n)
      now.insert_or_assign(limit_symbol(tree_.axes[axis], n).symbol_name(), limits[n]);
  }
  return now;
}

// Loads the limits of a loop that begins here. An axis means the beginning of its turn.
std::vector<Expr> TreeEmitter::limits_of(const Loop& loop) {
  const LoopBody& body = *loop.limit;
  const AxesNow axes = std::exchange(axes_, shared_);
  TaskTile scalar = tile_of({}, axes_);
  if (tree_.roles) scalar.layout.emplace();
  std::vector<Expr> out;
  for (const uint32_t result : body.results) {
    const DType from = body.steps[result].dtype;
    const DType to = from == DType::I64 || from == DType::U32 ? DType::I64 : DType::I32;
    const ValueOperand number = converted(this->body(body, result, scalar), from, to);
    if (number.is_literal()) {
      out.emplace_back(bits_to_int(to, number.bits));
      continue;
    }
    const Expr value = value_symbol(code_, number.value);
    out.push_back(to == DType::I32
                      ? value
                      : builder_.let("limit", min(max(value, kLimits.min), kLimits.max)));
  }
  axes_ = axes;
  return out;
}

void TreeEmitter::in_turn(const LoopLevel& level, const Expr& begin, bool shared,
                          const std::function<void()>& body) {
  const AxisNow before = axes_[level.axis], before_shared = shared_[level.axis];
  axes_[level.axis] = {begin, level.turn};
  if (shared) shared_[level.axis] = {begin, level.turn};
  body();
  axes_[level.axis] = before;
  shared_[level.axis] = before_shared;
}

// The number of this turn among all turns of the loops around in this instance.
Expr TreeEmitter::item() const {
  Expr out = 0;
  for (size_t i = 0; i < counters_.size(); ++i)
    out = i == 0 ? counters_[i].index : out * counters_[i].count + counters_[i].index;
  return out;
}

namespace {

bool has_stage(const LoopRegion& region) {
  return std::any_of(region.begin(), region.end(), [](const LoopItem& item) {
    const auto* task = std::get_if<LoopTask>(&item);
    return task ? task->kind == LoopTask::Kind::Stage : has_stage(std::get<Box<Loop>>(item)->body);
  });
}

}  // namespace

bool TreeEmitter::read_in(std::span<const LoopItem> items, size_t value) const {
  return std::any_of(items.begin(), items.end(),
                     [&](const LoopItem& item) { return reads(item, value); });
}

namespace {

bool is_store(const LoopItem& item) {
  const auto* task = std::get_if<LoopTask>(&item);
  return task && task->kind == LoopTask::Kind::Store;
}

}  // namespace

void TreeEmitter::region(const LoopRegion& items) {
  for (Pipe& pipe : pipes_)
    if (pipe.region == &items && part_ == Part::Stages && !pipe.once) put(pipe);
  declare_kept(items);
  path_.emplace_back(&items, 0);
  const size_t raised = raised_.size(), fresh = fresh_.size();
  if (tree_.roles && part_ == Part::Rest) raise_loads(items);
  for (size_t i = 0; i < items.size(); ++i) {
    const LoopItem& item = items[i];
    ++path_.back().second;
    const auto run_end =
        std::find_if_not(items.begin() + static_cast<std::ptrdiff_t>(i), items.end(), is_store);
    const auto run = std::span(items).subspan(
        i, std::max<size_t>(static_cast<size_t>(run_end - items.begin()), i + 1) - i);
    if (part_ == Part::Rest)
      for (Pipe& pipe : pipes_)
        if (pipe.region == &items && !pipe.held &&
            std::ranges::any_of(pipe.stages, [&](const LoopTask* stage) {
              return std::ranges::any_of(
                  run, [&](const LoopItem& read) { return reads(read, stage->target); });
            }))
          get(pipe);
    begin_placed(item, items);
    if (is_store(item) && part_ != Part::Stages) {
      stores(run);
      i += run.size() - 1;
      path_.back().second = i + 1;
    } else if (const auto* inner = std::get_if<Box<Loop>>(&item)) {
      if (part_ != Part::Stages || has_stage((*inner)->body)) loop(**inner);
    } else {
      const auto& t = std::get<LoopTask>(item);
      const bool stage = t.kind == LoopTask::Kind::Stage;
      if (ring_ && std::ranges::count(ring_->tasks, &t) > 0) continue;
      if (part_ == Part::All && stage) buffered_stage(t);
      if (part_ != Part::Stages && !stage) task(t);
      if (ring_ && std::ranges::any_of(ring_->tasks, [&](const LoopTask* made) {
            return reads(t.body, made->target);
          }))
        after_step();
    }
    if (part_ == Part::Rest) release_read();
  }
  // Later turns and loops read a value that is kept on chip from there, not from registers.
  for (; fresh_.size() > fresh; fresh_.pop_back()) tiles_of_.erase(fresh_.back());
  if (const auto born = born_.find(&items); born != born_.end())
    for (const size_t value : born->second) kept_.erase(value);
  raised_.resize(raised);
  path_.pop_back();
}

// Releases the items of the grid's turn that nothing after this place reads.
void TreeEmitter::release_read() {
  for (Pipe& pipe : pipes_) {
    if (!pipe.held || pipe.once || pipe.region != &grid_->body || pipe.depth != counters_.size())
      continue;
    bool read = false;
    for (const auto& [items, next] : path_)
      for (size_t i = next; i < items->size(); ++i)
        for (const LoopTask* stage : pipe.stages) read |= reads((*items)[i], stage->target);
    if (read) continue;
    if (!pipe.readers.empty()) wait(0);
    release(pipe, *pipe.held);
    pipe.held.reset();
  }
}

void TreeEmitter::loop(const Loop& loop) {
  if (loop.on == Machine::Group)
    group(loop);
  else if (loop.on == Machine::None)
    in_raised(loop, [&] { stream(loop); });
  else if (&loop == ranks_)
    in_turn(loop.levels[0], axes_[loop.levels[0].axis].begin + rank_ * Expr(loop.levels[0].turn),
            /*shared=*/true, [&] { region(loop.body); });
  else
    refuse(loop.location, "a loop on rank must be alone in the loop on grid");
}

void TreeEmitter::group(const Loop& loop) {
  if (part_ == Part::All) refuse(loop.location, "a loop on group needs the step `roles`");
  if (part_ == Part::Stages) return region(loop.body);
  const LoopLevel& level = loop.levels[0];
  in_turn(level, axes_[level.axis].begin + copy_ * Expr(level.turn), /*shared=*/false,
          [&] { region(loop.body); });
}

// Registers have fixed names. A loop that takes parts of tiles which were made before it must
// therefore be unrolled later. A value that is kept on chip needs only an address.
bool TreeEmitter::is_static(const Loop& loop) const {
  if (!tree_.roles || part_ != Part::Rest) return false;
  return std::ranges::any_of(loop.levels, [&](const LoopLevel& level) {
    bool out = false;
    for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
      out |= !is_kept_on_chip(task) && reads_registers(task, level.axis);
    });
    return out;
  });
}

bool TreeEmitter::is_kept_on_chip(const LoopTask& task) const {
  return task.kind == LoopTask::Kind::Compute && tree_.values[task.target].storage == Storage::Chip;
}

// Whether a task takes parts along the axis of tiles that were made before and lie in registers.
bool TreeEmitter::reads_registers(const LoopTask& task, size_t axis) const {
  return std::ranges::any_of(tiles_of_, [&](const auto& tile) {
    return std::ranges::count(tile.second.dims, axis) > 0 &&
           (reads(task.body, tile.first) || (task.rescale && reads(*task.rescale, tile.first)));
  });
}

void TreeEmitter::for_static(std::string_view hint, int64_t count,
                             const std::function<void(const Expr&)>& body) {
  ForOp loop{.symbol = builder_.fresh_name(hint), .low = 0, .high = count};
  loop.is_static = true;
  Region region;
  builder_.enter(region);
  body(loop_symbol(loop.symbol, loop.low, loop.high, 1));
  builder_.leave();
  loop.body = std::move(region);
  builder_.append(std::move(loop), {});
}

Expr TreeEmitter::Stream::begin(const Expr& index) const {
  if (by_axis) return index;
  if (behind) {
    // The numbers of turns begin anew behind the last one.
    const Expr number = index + *behind, over = max(0, min(1, number - turns + 1));
    return low + max(0, number - turns * over) * Expr(loop.levels[0].turn);
  }
  return low + (loop.down ? turns - 1 - index : index) * Expr(loop.levels[0].turn);
}

// Where a turn begins along the axis of the stream, whose turns may be those of a list.
Expr TreeEmitter::begin_of(const Stream& stream, const Expr& index) {
  const auto& picks = stream.loop.picks;
  if (!picks) return stream.begin(index);
  const auto now = now_around(stream.loop);
  std::vector<Expr> at;
  for (const Expr& e : picks->at) at.push_back(e.substitute(now));
  at.push_back(index);
  const ValueId number = builder_.load(workspaces_.at(picks->value), std::move(at),
                                       {tree_.values[picks->value].dtype, 1, {}}, {}, 0);
  // The list holds turns of the axis, but nobody can prove it.
  const LoopLevel& level = stream.loop.levels[0];
  const Expr last = ceildiv(tree_.axes[level.axis].extent, level.turn) - 1;
  return min(max(0, value_symbol(code_, number)), last) * Expr(level.turn);
}

// Sets where the axes of a stream stand in a turn. If the stream has several levels, one number
// counts their turns, and the innermost level is the fastest.
void TreeEmitter::stand(const Stream& stream, const Expr& index) {
  const std::vector<LoopLevel>& levels = stream.loop.levels;
  Expr rest = index;
  for (size_t i = levels.size(); i-- > 0;) {
    const auto [axis, turn] = levels[i];
    Expr begin;
    if (levels.size() == 1) {
      begin = begin_of(stream, index);
    } else {
      const Expr turns = turns_of(stream.loop, i);
      const Expr number = i == 0 ? rest : mod(rest, turns);
      rest = floordiv(rest, turns);
      begin = axes_[axis].begin + builder_.let(turn_name(axis), number) * Expr(turn);
    }
    axes_[axis] = shared_[axis] = {begin, turn};
  }
}

void TreeEmitter::stream(const Loop& loop) {
  const bool several = loop.levels.size() > 1;
  if (several && (!tree_.roles || loop.down || !loop.parts.empty()))
    refuse(loop.location, "a stream over several axes needs roles, and goes up as a whole");
  const auto [axis, length] = loop.levels[0];
  if (loop.limit) limits_.insert_or_assign(axis, limits_of(loop));
  const bool middle = begins_in_middle(loop);
  Stream stream{.loop = loop,
                .low = axes_[axis].begin,
                .high = axes_[axis].end.value_or(tree_.axes[axis].extent),
                .turns = turns_of(loop, 0),
                .nonempty = tree_.roles && ends_with_turn(loop),
                .by_axis = !tree_.roles && !loop.down && loop.ring == 0 && !middle && !loop.picks,
                .carried = {}};
  for (size_t i = 1; i < loop.levels.size(); ++i) stream.turns *= turns_of(loop, i);
  if (ring_ && ring_->ahead.dot) {  // all steps of a slot, which is 0 beyond the end
    for (int64_t i = 0; i < ring_->ahead.steps; ++i)
      turn(stream, stream.by_axis ? stream.low + length * i : Expr(i));
    return;
  }
  // If the loop makes or reads parts of a value that is kept around it, its turns are counted from
  // the beginning of that value's part.
  const bool parts = stream.by_axis && axes_[axis].turn > 0 && loop.parts.empty() && !loop.bounds &&
                     !loop.seek && takes_kept_parts(loop, axis);
  if (parts) {
    stream.by_axis = false;
    stream.fills = fills_buffers(loop);
    const bool ends =
        stream.high.is_multiple_of(axes_[axis].turn) || is_decided(before_end(tree_.axes[axis]));
    if (!stream.fills && !ends) {
      stream.turns = min(stream.turns, ceildiv(stream.high - stream.low, length));
      fill_kept(loop);
    }
  }
  stream.nonempty |= stream.turns.range().min > 0;
  const auto ends_by = [&](const Expr& end) {
    stream.high = proves_at_most(end, stream.high) ? end : min(end, stream.high);
  };
  if (axes_[axis].turn > 0) ends_by(stream.low + axes_[axis].turn);
  if (loop.bounds) {
    std::tie(stream.low, stream.high) = bounds_of(loop);
    if (stream.by_axis || loop.ring > 0) ends_by(tree_.axes[axis].extent);
  }
  if (middle) keep_middle(stream);
  // A loop of at most one turn carries nothing; its tile is masked. Masks know the end of the axis,
  // but neither its beginning nor the bounds of a loop, so a turn down or within bounds must exist.
  // On a CPU every turn must, because rows beyond the end compute an existing row again.
  const bool ringed = loop.ring > 0 && !tree_.roles;
  const bool within = !loop.bounds || (proves_less(stream.low, bounds_of(loop).second) == true &&
                                       proves_less(stream.low, tree_.axes[axis].extent) == true);
  const bool masked = !loop.down && code_.warps > 0;
  const bool exists = within && (masked || stream.turns.range().min > 0);
  const bool once =
      !tree_.roles && !ringed && !middle && length > 1 && stream.turns.range().max == 1 && exists;
  if (once) return turn(stream, stream.first());
  const std::vector<int64_t> boundaries = boundaries_of(stream);
  if (loop.parts.size() > 1 && boundaries.empty() && !middle)
    refuse(loop.location,
           "a loop in several parts must be cut at constants, or end with one of its conditions "
           "and begin with the other");
  if (part_ != Part::Stages) stream.carried = states_of(loop);
  std::erase_if(stream.carried,
                [](const LoopTask* task) { return task->kind == LoopTask::Kind::Place; });
  if (loop.seek) return seek(stream);
  std::vector<const LoopTask*> begun;
  for (const LoopTask* task : stream.carried)
    if (!states_.contains(task->target) && !totals_.contains(task->target) &&
        !in_slabs_.contains(task->target)) {
      begin_state(*task, loop);
      begun.push_back(task);
    }
  std::erase_if(stream.carried,
                [&](const LoopTask* task) { return in_slabs_.contains(task->target); });
  // A loop without turns is left out, because its body may have no meaning.
  if (stream.turns.range().max <= 0) return end_states(begun);
  if (ringed) {
    ring(stream);
    return end_states(begun);
  }
  const auto constant = stream.turns.as_constant();
  const int64_t started = started_;
  if (const LoopTask* late = late_dot(loop.body)) {
    stream_ahead(stream, *late);
    return end_states(begun);
  }
  const Expr last = stream.last();
  if (tree_.roles && part_ == Part::Rest) open_boxes(loop);
  if (constant && ring_) {
    const bool copies = ring_->after_step && ring_->scope == builder_.scope();
    if (copies) {
      turn(stream, 0);
      after_step();
    }
    if (*constant > copies) turns(stream, copies, last);
  } else if (constant && loop.unroll == *constant) {
    const Expr step = stream.by_axis ? length : 1;
    for (int64_t i = 0; i < *constant; ++i) turn(stream, stream.first() + step * Expr(i));
  } else if (constant && stream.carried.empty() && is_static(loop)) {
    if (*constant == 1)
      turn(stream, 0);
    else
      for_static(turn_name(axis), *constant, [&](const Expr& index) { turn(stream, index); });
  } else if (!boundaries.empty()) {
    // Between two boundaries, all conditions are decided. The turn around a boundary stands alone;
    // several boundaries may lie in one turn.
    const Expr first = stream.first(), base = first.as_constant().value_or(0);
    int64_t made = *base.as_constant();
    // Makes the turns up to `next`, as far as this loop has them.
    const auto make = [&](int64_t next) {
      const int64_t from = std::exchange(made, next);
      if (first.as_constant() || next - from > length || !stream.carried.empty())
        return turns(stream, max(first, from), min(next, last));
      using Kind = IndexComparison::Kind;
      builder_.if_then({{first, Kind::Le, from}, {from, Kind::Lt, last}},
                       [&] { turn(stream, from); });
    };
    for (const int64_t boundary : boundaries)
      for (const Expr& turn : {floordiv(boundary - base, length), ceildiv(boundary - base, length)})
        if (const auto next = (base + turn * Expr(length)).as_constant(); *next > made) make(*next);
    if (!proves_at_most(last, made)) turns(stream, max(first, made), last);
  } else if (!loop.parts.empty() && stream.by_axis && is_tail(loop.parts[0], axis)) {
    // First come turns that begin before the axis does, then whole turns, and then at most one turn
    // in which tiles reach beyond the end.
    Expr first = stream.low;
    if (!proves_at_most(0, first)) {
      turns(stream, first, first + length);
      first += length;
    }
    const Expr whole = builder_.let("whole", first + floordiv(last - first, length) * Expr(length));
    decided_.push_back(loop.parts[0]);
    turns(stream, first, whole);
    decided_.pop_back();
    if (stream.carried.empty())
      builder_.if_then({{whole, IndexComparison::Kind::Lt, last}}, [&] { turn(stream, whole); });
    else
      turns(stream, whole, last);
  } else {
    // First come the turns in which a condition is not decided, and then those in which it holds.
    Expr cut = stream.first();
    if (part_ != Part::Stages) {
      const Expr count = undecided(stream);
      cut += stream.by_axis ? count * Expr(length) : count;
    }
    const bool cuts = !(cut == stream.first());
    if (cuts) turns(stream, stream.first(), cut);
    in_decided(stream, cuts, [&] { turns(stream, cut, last); });
    end_stream(stream, started);
  }
  send_boxes(loop);
  end_states(begun);
}

void TreeEmitter::turn(const Stream& stream, const Expr& index) {
  if (!stream.by_axis) counters_.push_back({index, stream.turns});
  if (stream.loop.turns && part_ == Part::Rest) group_turn_ = {item()};
  const bool early = stream.loop.bounds && !tree_.roles && !proves_at_most(0, stream.begin(index));
  const bool at_run_time = tree_.roles && part_ == Part::Rest && !stream.by_axis &&
                           !stream.loop.down && stream.loop.levels.size() == 1 &&
                           stream.turns.as_constant().value_or(1) > 1;
  if (at_run_time)
    runtime_turns_.push_back(
        {stream.loop.levels[0], index, stream.low, *stream.turns.as_constant()});
  const AxesNow axes = axes_, shared = shared_;
  const size_t axis = stream.loop.levels[0].axis;
  const Expr& extent = tree_.axes[axis].extent;
  // A loop without bounds of its own runs through all of its tile, which may reach beyond the end.
  const bool within =
      stream.loop.bounds || axes_[axis].turn == 0 || axes_[axis].whole || ends_with_tiles(axis);
  stand(stream, index);
  AxisNow& now = axes_[axis];
  now.early = early;
  now.beyond = stream.fills;
  // Every turn of such a loop begins before the axis ends, so it is whole.
  now.whole = tree_.roles && stream.loop.levels.size() == 1 && !ends_with_turn(stream.loop) &&
              within && now.begin.is_multiple_of(now.turn) && extent.is_multiple_of(now.turn);
  if (stream.loop.ring > 0 && !tree_.roles)
    ring_turn(stream, index);
  else
    region(stream.loop.body);
  axes_ = axes;
  shared_ = shared;
  if (at_run_time) runtime_turns_.pop_back();
  if (!stream.by_axis) counters_.pop_back();
}

// Makes the turns from `first` to `last`, in one loop or, if states are sums of partial ones, in a
// loop over the partial sums.
void TreeEmitter::turns(const Stream& stream, const Expr& first, const Expr& last) {
  const int64_t step = stream.by_axis ? stream.loop.levels[0].turn : 1;
  const int64_t part = stream.loop.partial * step;
  if (part == 0 || stream.carried.empty() || proves_at_most(last - first, part))
    return turns_in_one(stream, first, last);
  std::vector<ValueOperand> initial;
  for (const LoopTask* task : stream.carried) initial.emplace_back(states_.at(task->target));
  const auto results = builder_.for_loop(
      turn_name(stream.loop.levels[0].axis), first, last, part, initial,
      [&](const Expr& index, const std::vector<ValueId>& sums) {
        for (const LoopTask* task : stream.carried)
          states_.at(task->target) = nothing_combined(*task);
        const bool whole = (last - first).is_multiple_of(part);
        turns_in_one(stream, index, whole ? index + part : min(index + part, last));
        std::vector<ValueOperand> yields;
        for (size_t i = 0; i < sums.size(); ++i) {
          const LoopTask& task = *stream.carried[i];
          yields.emplace_back(
              builder_.row(info(monoid_of(task)).combine, {sums[i], states_.at(task.target)}));
        }
        return yields;
      });
  for (size_t i = 0; i < results.size(); ++i) states_.at(stream.carried[i]->target) = results[i];
}

// Makes the turns from `first` to `last`: a loop, or the body alone if there is only one turn.
void TreeEmitter::turns_in_one(const Stream& stream, const Expr& first, const Expr& last) {
  const int64_t started = started_;
  const int64_t step = stream.by_axis ? stream.loop.levels[0].turn : 1;
  const auto length = (last - first).as_constant();
  if (length && *length > 0 && *length <= step) {
    turn(stream, first);
    return end_turn(stream.loop, first, started);
  }
  std::vector<ValueOperand> initial;
  for (const ValueId* state : carried(stream)) initial.emplace_back(*state);
  const auto results = builder_.for_loop(
      turn_name(stream.loop.levels[0].axis), first, last, step, initial,
      [&](const Expr& index, const std::vector<ValueId>& values) {
        const auto states = carried(stream);
        for (size_t i = 0; i < states.size(); ++i) *states[i] = values[i];
        for (const LoopTask* task : stream.carried) flying_.erase(task->target);
        turn(stream, index);
        end_turn(stream.loop, index, started);
        std::vector<ValueOperand> yields;
        for (const ValueId* state : states) yields.emplace_back(*state);
        return yields;
      },
      stream.loop.unroll > 0 ? stream.loop.unroll : 1);
  const auto states = carried(stream);
  for (size_t i = 0; i < states.size(); ++i) *states[i] = results[i];
}

// Ends a turn: waits for the dots that the turn before started, while this turn's dots continue. If
// the factor of a dot is in registers, the next turn needs these, and all dots are waited for.
void TreeEmitter::end_turn(const Loop& loop, const Expr& index, int64_t started) {
  if (part_ != Part::Rest) return;
  if (started_ > started && !flying_.empty())
    wait(from_registers_.empty() ? started_ - started : 0);
  group_turn_.reset();
  for (Pipe& pipe : pipes_) {
    if (pipe.region != &loop.body || !pipe.held) continue;
    const Expr held = *pipe.held;
    pipe.held.reset();
    if (pipe.readers.empty())
      release(pipe, held);
    else if (index.range().min > 0)
      release(pipe, held - 1);
    else if (!index.is_constant(0))
      builder_.if_then({{index, IndexComparison::Kind::Gt, 0}}, [&] { release(pipe, held - 1); });
  }
}

void TreeEmitter::end_stream(const Stream& stream, int64_t started) {
  if (part_ != Part::Rest) return;
  std::vector<Pipe*> last;
  for (Pipe& pipe : pipes_)
    if (pipe.region == &stream.loop.body && !pipe.readers.empty()) last.push_back(&pipe);
  if (started_ > started && !flying_.empty()) wait(0);
  counters_.push_back({stream.turns - 1, stream.turns});
  const Expr number = item();
  counters_.pop_back();
  for (Pipe* pipe : last) {
    if (stream.nonempty)
      release(*pipe, number);
    else
      builder_.if_then({{stream.turns, IndexComparison::Kind::Gt, 0}},
                       [&] { release(*pipe, number); });
  }
}

}  // namespace braze
