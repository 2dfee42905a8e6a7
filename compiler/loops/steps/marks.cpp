#include "compiler/loops/steps/marks.h"

#include <algorithm>

#include "compiler/loops/text.h"
#include "ir/code/dot_layouts.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"

namespace braze {

// --- deal ---------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const DealStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (loop.on != Machine::Grid)
    return Refusal{&codes::kNotGrid, fmt::format("`{}` is not on grid", to_text(tree, loop)),
                   fmt::format("take the step `on {} grid` first", step.loop.to_string())};
  for (size_t i = 0; i < step.orders.size(); ++i) {
    const DealOrder& order = step.orders[i];
    if (order.order == Deal::Order::Persistent && i + 1 < step.orders.size())
      return Refusal{&codes::kBadDeal, "another order follows persistent", "write persistent last"};
    if (order.order != Deal::Order::Grouped) continue;
    const auto axis = find_axis(tree, order.axis);
    if (!axis || !runs_over(loop, *axis))
      return Refusal{&codes::kBadDeal,
                     fmt::format("`{}` does not run over {}", to_text(tree, loop), order.axis),
                     "name an axis of the loop"};
  }
  return std::nullopt;
}

LoopTree take(LoopTree tree, const DealStep& step) {
  Loop& loop = loop_at(tree, find_loop(tree, step.loop).value());
  loop.deal.clear();
  for (const DealOrder& order : step.orders)
    loop.deal.push_back(
        {order.order, order.number, find_axis(tree, order.axis).value_or(loop.levels[0].axis)});
  return tree;
}

// --- turns --------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const TurnsStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = parallel(tree, loop)) return refusal;
  auto around = loops_around(tree, *place);
  while (!around.empty() && around.back()->on != Machine::Group) around.pop_back();
  if (!around.empty()) {
    const Loop& groups = *around.back();
    around.pop_back();
    int64_t count = 1;
    for (const LoopLevel& level : groups.levels) {
      const auto all = extent_in(tree, around, level.axis).as_constant();
      count *= all ? (*all + level.turn - 1) / level.turn : 0;
    }
    if (count == 2) return std::nullopt;
  }
  return Refusal{
      &codes::kGroups,
      fmt::format("`{}` does not stand inside a loop that two groups take", to_text(tree, loop)),
      "put a loop over two halves of a tile `on` group first"};
}

LoopTree take(LoopTree tree, const TurnsStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value()).turns = true;
  return tree;
}

// --- ring ---------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const RingStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  auto around = loops_around(tree, *place);
  around.push_back(&loop);
  Expr bytes;
  bool any = false;
  for (const LoopItem& item : loop.body) {
    const auto* task = std::get_if<LoopTask>(&item);
    if (task && task->ahead >= step.slots)
      return Refusal{
          &codes::kCarried,
          fmt::format("%{} runs {} turns early", tree.values[task->target].name, task->ahead),
          fmt::format("take at least {} slots", task->ahead + 1)};
    if (!task || !is_made_ahead(tree, *task)) continue;
    any = true;
    const LoopValue& value = tree.values[task->target];
    if (value.storage != Storage::Chip) continue;
    Expr box = static_cast<int64_t>(size_of(value.dtype));
    for (const size_t axis : value.axes) box *= extent_in(tree, around, axis, /*groups=*/false);
    bytes += box;
  }
  // The turns of a loop on grid that one block takes run one after the other.
  if (!any || (loop.parallel && loop.on != Machine::Grid))
    return Refusal{&codes::kNoCopies,
                   fmt::format("`{}` is not a stream with stages", to_text(tree, loop)),
                   fmt::format("take the step `stage .. {}` first, or keep factors on chip",
                               step.loop.to_string())};
  if (loop.partial > 0)
    return Refusal{&codes::kMarked, fmt::format("`{}` has partial sums", to_text(tree, loop)),
                   "leave out the step `partial`"};
  const auto target = find_target(tree.target);
  if (target && bytes.range().max * step.slots > target->l1_bytes)
    return Refusal{&codes::kNoRoom,
                   fmt::format("{} slots of {} bytes are needed, but only {} bytes are on chip",
                               step.slots, bytes.to_string(), target->l1_bytes),
                   "take fewer slots or smaller turns"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const RingStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value()).ring = step.slots;
  return tree;
}

// --- registers ----------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const RegistersStep& step) {
  if (tree.roles)
    return Refusal{&codes::kMarked, "the threads of roles have registers of their own",
                   "give their numbers to the step `roles`"};
  if (step.most > kMostThreadRegisters)
    return Refusal{&codes::kNoRoom,
                   fmt::format("a thread can have at most {} registers", kMostThreadRegisters),
                   "take fewer registers"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const RegistersStep& step) {
  tree.registers = step.most;
  return tree;
}

// --- roles --------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const RolesStep& step) {
  const auto stage =
      find_task(tree, [](const LoopTask& task) { return task.kind == LoopTask::Kind::Stage; });
  if (!stage)
    return Refusal{&codes::kNoCopies,
                   "there is no stage, so a role for copies would have nothing to do",
                   "take the step `stage` first"};
  if (tree.registers > 0)
    return Refusal{&codes::kMarked, "the threads of roles have registers of their own",
                   "leave out the step `registers`"};
  bool partial = false;
  visit_loops(tree, [&](const Loop& loop) { partial = partial || loop.partial > 0; });
  if (partial)
    return Refusal{&codes::kMarked, "a loop has partial sums, which roles do not have",
                   "leave out the step `partial`"};
  if (step.stages > kMostThreadRegisters || step.rest > kMostThreadRegisters)
    return Refusal{&codes::kNoRoom,
                   fmt::format("a thread can have at most {} registers", kMostThreadRegisters),
                   "take fewer registers"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const RolesStep& step) {
  tree.roles = LoopRoles{step.stages, step.rest};
  return tree;
}

// --- unit ---------------------------------------------------------------------------------------

namespace {

// The size that one instruction of a unit multiplies. Tiles must be multiples of it.
struct UnitShape {
  int64_t rows, columns, most_columns;
};
constexpr UnitShape kMma{16, 8, INT64_MAX}, kWgmma{64, 8, 256};

// The extents of a dot's tile, by the three kinds of its axes.
struct DotTile {
  Expr left = 1, right = 1, summed = 1;
};

DotTile dot_tile(const LoopTree& tree, const ItemPlace& place) {
  const LoopTask& task = task_at(tree, place);
  const auto around = loops_around(tree, place);
  const std::set<size_t> of_right = axes_of_factor(tree, task, 1);
  DotTile out;
  for (const size_t axis : tree.values[task.target].axes)
    (of_right.contains(axis) ? out.right : out.left) *= extent_in(tree, around, axis);
  for (const size_t axis : task.over) out.summed *= extent_in(tree, around, axis);
  return out;
}

}  // namespace

DType warp_dot_dtype(const LoopTask& dot) {
  const auto dtype = [&](size_t factor) { return dot.body.steps[dot.body.results[factor]].dtype; };
  const bool as_they_are = is_half(dtype(0)) || dtype(0) == DType::F64;
  return as_they_are && dtype(0) == dtype(1) ? dtype(0) : DType::F32;
}

int64_t warp_dot_depth(const LoopTask& dot) {
  return is_half(warp_dot_dtype(dot)) ? kHalfDotDepth : kTf32DotDepth;
}

std::optional<Refusal> legal(const LoopTree& tree, const UnitStep& step) {
  const auto value = find_value(tree, step.value);
  if (!value) return no_such("value", "%" + step.value);
  const ItemPlace place = maker_of(tree, *value);
  const LoopTask& task = task_at(tree, place);
  if (task.kind != LoopTask::Kind::Dot)
    return Refusal{&codes::kNotADot, fmt::format("%{} is not a dot", step.value), "name a dot"};
  const auto refuse = [&](std::string why, std::string fix) {
    return Refusal{&codes::kUnitShape, std::move(why), std::move(fix)};
  };
  if (step.swap && step.unit != Unit::Wgmma)
    return refuse("only the factors of a wgmma can be swapped", "leave `swap` out");
  if (step.unit == Unit::Fma) return std::nullopt;
  const DType dtype = task.body.steps[task.body.results[0]].dtype;
  const bool by_warps = step.unit == Unit::Mma && warp_dot_dtype(task) == DType::F64;
  if (!is_half(dtype) && !(dtype == DType::F32 && task.tf32) && !by_warps)
    return refuse(fmt::format("a matrix unit cannot multiply factors of {}", name(dtype)),
                  "matrix units multiply f16, bf16, and f32 if tf32 is allowed; those of warps "
                  "multiply f64; use fma for others");
  const UnitShape& shape = step.unit == Unit::Mma ? kMma : kWgmma;
  DotTile tile = dot_tile(tree, place);
  if (step.swap) std::swap(tile.left, tile.right);
  const auto check = [&](std::string_view what, const Expr& extent, int64_t multiple,
                         int64_t most) -> std::optional<Refusal> {
    const auto n = extent.as_constant();
    if (n && *n % multiple == 0 && *n <= most) return std::nullopt;
    return refuse(
        fmt::format("the tile has {} {}, which the unit cannot take", extent.to_string(), what),
        most == INT64_MAX ? fmt::format("make it a multiple of {}", multiple)
                          : fmt::format("make it a multiple of {} up to {}", multiple, most));
  };
  if (auto refusal = check("rows", tile.left, shape.rows, INT64_MAX)) return refusal;
  if (auto refusal = check("columns", tile.right, shape.columns, shape.most_columns))
    return refusal;
  const int64_t depth = step.unit == Unit::Mma ? warp_dot_depth(task)
                                               : kWgmmaBytes / static_cast<int64_t>(size_of(dtype));
  return check("summed indices", tile.summed, depth, INT64_MAX);
}

LoopTree take(LoopTree tree, const UnitStep& step) {
  LoopTask& task = task_at(tree, maker_of(tree, find_value(tree, step.value).value()));
  task.unit = step.unit;
  task.swap = step.swap;
  return tree;
}

// --- ahead --------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const AheadStep& step) {
  const auto value = find_value(tree, step.value);
  if (!value) return no_such("value", "%" + step.value);
  const ItemPlace place = maker_of(tree, *value);
  const LoopTask& task = task_at(tree, place);
  const auto around = loops_around(tree, place);
  if (around.empty() || around.back()->parallel)
    return Refusal{&codes::kKindsDiffer, fmt::format("%{} is not made in a stream", step.value),
                   "name a value that a stream makes"};
  const Loop& loop = *around.back();
  if (task.combine != Combine::None || runs_over_any(loop, task.over))
    return Refusal{
        &codes::kCarried,
        fmt::format("%{} is state of the loop, so a turn needs the turn before", step.value),
        "name a value for which a turn needs no other turn"};
  const std::set<size_t> made = values_made(loop.body);
  std::optional<Refusal> refusal;
  for (const LoopStep& s : task.body.steps) {
    if (s.kind != LoopStep::Kind::Read || !made.contains(s.source)) continue;
    const LoopTask& source = task_at(tree, maker_of(tree, s.source));
    const bool early =
        source.kind == LoopTask::Kind::Stage ? loop.ring > step.turns : source.ahead >= step.turns;
    if (!early)
      refusal = Refusal{
          &codes::kCarried,
          fmt::format("%{} reads %{}, which is not ready so early", step.value,
                      tree.values[s.source].name),
          fmt::format(
              "give the loop a ring of {} slots, or take the step `ahead` for what it reads",
              step.turns + 1)};
  }
  if (refusal) return refusal;
  constexpr int64_t kMostTurns = 2;  // each turn is a copy of the task before the loop
  if (step.turns > kMostTurns)
    return Refusal{
        &codes::kCopies,
        fmt::format("{} turns of the task would be copied in front of the loop", step.turns),
        fmt::format("take at most {} turns", kMostTurns)};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const AheadStep& step) {
  task_at(tree, maker_of(tree, find_value(tree, step.value).value())).ahead = step.turns;
  return tree;
}

// --- unroll -------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const UnrollStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = parallel(tree, loop)) return refusal;
  constexpr int64_t kMostTurns = 64;
  if (step.turns > kMostTurns)
    return Refusal{&codes::kCopies, fmt::format("the body would be written {} times", step.turns),
                   fmt::format("take at most {} turns", kMostTurns)};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const UnrollStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value()).unroll = step.turns;
  return tree;
}

// --- partial ------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const PartialStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = parallel(tree, loop)) return refusal;
  if (auto why = no_partial_sums(tree, loop))
    return Refusal{
        &codes::kIsState, *std::move(why),
        "name a stream, without a ring, whose only states are folds and dots that follow "
        "no running value"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const PartialStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value()).partial = step.turns;
  return tree;
}

// --- part ---------------------------------------------------------------------------------------

namespace {

bool is_congruence(const IndexComparison& c, const std::string& axis) {
  return c.kind == IndexComparison::Kind::Eq && c.left.kind() == Expr::Kind::Mod &&
         c.right.as_constant().has_value() && c.left.uses(axis);
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const PartStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  const auto condition = with_axes(tree, step.condition);
  if (!condition)
    return Refusal{&codes::kNoSuchName, "the condition uses a name that is not an axis or a size",
                   "use the names of axes and sizes of the tree"};
  const std::string& axis = step.loop.axis;
  const auto slope = (condition->left - condition->right).coefficient_of(axis);
  const auto sign = slope ? slope->as_constant().value_or(0) : 0;
  if (sign == 0 && !is_congruence(*condition, axis))
    return Refusal{
        &codes::kNotAffine,
        fmt::format("the two sides of the condition do not grow with {} at a constant rate", axis),
        "compare sums of constant multiples of indices, or a remainder with a constant"};
  constexpr std::ptrdiff_t kMostConditions = 2;  // two conditions make three bodies
  const auto found = std::ranges::count_if(
      loop.parts, [&](const IndexComparison& part) { return compares_limit(tree, loop, part); });
  if (std::ssize(loop.parts) - found >= kMostConditions)
    return Refusal{&codes::kCopies, "the body of the loop would be emitted four times",
                   "leave this step out"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const PartStep& step) {
  loop_at(tree, find_loop(tree, step.loop).value())
      .parts.push_back(with_axes(tree, step.condition).value());
  return tree;
}

// --- bind ---------------------------------------------------------------------------------------

std::optional<Refusal> legal(const LoopTree& tree, const BindStep& step) {
  const auto place = find_made(tree, step.made);
  if (!place) return no_such("task that makes", step.made.to_string());
  const LoopTask& task = task_at(tree, *place);
  std::set<size_t> axes = own_axes(tree, task);
  // The summed axes are no dimensions of the result of a unit.
  if (task.unit == Unit::None) axes.insert(task.over.begin(), task.over.end());
  std::vector<int64_t> extents;
  for (const size_t axis : axes) {
    const auto extent = extent_in(tree, loops_around(tree, *place), axis).as_constant();
    if (!extent)
      return Refusal{
          &codes::kNotConstant,
          fmt::format("the extent of the tile along {} is not constant", tree.axes[axis].name),
          "split the loop over it first"};
    if (*extent > 1) extents.push_back(*extent);
  }
  // A tile of one element has no digits; its layout is written (-).
  const bool one = extents.empty() && step.layout.rank() == 1 && step.layout.axes[0].empty();
  bool fits = one || step.layout.rank() == extents.size();
  for (size_t d = 0; fits && d < extents.size(); ++d) fits = step.layout.extent(d) == extents[d];
  if (!fits)
    return Refusal{&codes::kDigits,
                   fmt::format("the tile of {} has the extents [{}]", step.made.to_string(),
                               join(extents, ", ", [](int64_t e) { return std::to_string(e); })),
                   "give digits whose extents multiply to these"};
  constexpr int64_t kMostWarps = 32;  // of a block
  for (const std::vector<Digit>& digits : step.layout.axes)
    for (const Digit& digit : digits)
      if (digit.resource == Resource::Warp && digit.stride * digit.extent > kMostWarps)
        return Refusal{&codes::kNoRoom,
                       fmt::format("a block can have at most {} warps, not {}", kMostWarps,
                                   digit.stride * digit.extent),
                       "give more elements to each thread"};
  return std::nullopt;
}

LoopTree take(LoopTree tree, const BindStep& step) {
  LoopTask& task = task_at(tree, find_made(tree, step.made).value());
  if (step.made.is_value)
    tree.values[task.target].layout = NamedLayout{"", step.layout};
  else
    task.layout = step.layout;
  return tree;
}

// --- cache --------------------------------------------------------------------------------------

namespace {

std::optional<ItemPlace> find_store(const LoopTree& tree, const std::string& tensor) {
  return find_made(tree, {false, tensor});
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const CacheStep& step) {
  if (!find_store(tree, step.tensor)) return no_such("task that makes", step.tensor);
  return std::nullopt;
}

LoopTree take(LoopTree tree, const CacheStep& step) {
  task_at(tree, find_store(tree, step.tensor).value()).cache = step.hint;
  return tree;
}

}  // namespace braze
