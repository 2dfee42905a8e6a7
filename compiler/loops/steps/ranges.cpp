#include "compiler/loops/steps/ranges.h"

#include <algorithm>
#include <map>
#include <variant>

#include "compiler/loops/steps/skips.h"
#include "compiler/loops/steps/tile_phase.h"
#include "compiler/loops/text.h"
#include "ir/code/comparisons.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// --- What is compared ---------------------------------------------------------------------------

// A comparison of two integers, of which one differs along the axis of the loop and the other along
// axes of which a turn takes several indices.
struct Comparison {
  ElementwiseOp op;
  LoopBody sides[2];
  size_t walked;  // the number of the side that differs along the axis of the loop
  friend bool operator==(const Comparison&, const Comparison&) = default;
};

class Comparisons {
 public:
  Comparisons(const LoopTree& tree, const Loop& loop, std::vector<const Loop*> around)
      : tree_(tree), walk_(loop.levels[0].axis), around_(std::move(around)) {}

  /// The comparison that a step makes, if the phase can look at it. `why` says why a comparison of
  /// integers that differ along the loop is not one.
  std::optional<Comparison> find(const LoopBody& body, const LoopStep& s,
                                 std::string* why = nullptr) const {
    const auto fail = [&](std::string reason) -> std::optional<Comparison> {
      if (why) *why = std::move(reason);
      return std::nullopt;
    };
    if (s.kind != LoopStep::Kind::Apply || comparison_of_indices(body, s) ||
        !comparison_row(s.op) || !is_integer(body.steps[s.arguments[0]].dtype))
      return std::nullopt;
    Comparison out{s.op, {}, 0};
    bool walks[2];
    for (size_t i = 0; i < 2; ++i) {
      out.sides[i] = part_of(body, s.arguments[i]);
      walks[i] = axes_of(out.sides[i]).contains(walk_);
    }
    const std::string& walk = tree_.axes[walk_].name;
    if (!walks[0] && !walks[1]) return std::nullopt;
    if (walks[0] && walks[1])
      return fail(fmt::format("both numbers that are compared differ along {}", walk));
    out.walked = walks[0] ? 0 : 1;
    for (const LoopBody& side : out.sides)
      if (auto reason = why_not_loaded(tree_, side)) return fail(std::move(*reason));
    for (const size_t axis : axes_of(out.sides[out.walked]))
      if (axis != walk_ && !is_single(axis))
        return fail(fmt::format("a number that is compared differs along both {} and {}", walk,
                                tree_.axes[axis].name));
    size_t several = 0;
    for (const size_t axis : axes_of(out.sides[1 - out.walked])) {
      several += is_single(axis) ? 0 : 1;
      if (!extent_in(tree_, around_, axis, /*groups=*/false).as_constant())
        return fail(
            fmt::format("a number that is compared differs along {}, of which a turn takes "
                        "an unknown number of indices",
                        tree_.axes[axis].name));
    }
    if (several > 1) return fail("a number that is compared differs along several axes of a turn");
    return out;
  }

  std::set<size_t> axes_of(const LoopBody& body) const { return axes_used(tree_, body); }
  // Whether the loops around take the axis index by index.
  bool is_single(size_t axis) const { return takes_one(tree_, around_, axis); }

 private:
  const LoopTree& tree_;
  size_t walk_;
  std::vector<const Loop*> around_;
};

std::variant<std::vector<Comparison>, Refusal> find_comparisons(const LoopTree& tree,
                                                                const ItemPlace& place) {
  const Loop& loop = loop_at(tree, place);
  const Comparisons comparisons(tree, loop, loops_around(tree, place));
  std::vector<Comparison> out;
  std::optional<Refusal> refusal;
  const auto refuse = [&](const Code& code, std::string why) {
    if (!refusal)
      refusal = Refusal{&code, std::move(why), "leave this step out, so that all turns are taken"};
  };
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    for (const LoopStep& s : task.body.steps) {
      std::string why;
      const auto found = comparisons.find(task.body, s, &why);
      if (!why.empty()) refuse(codes::kNotAffine, std::move(why));
      if (!found || std::ranges::find(out, *found) != out.end()) continue;
      const auto changes =
          changes_where_false(tree, loop, [&](const LoopBody& body, const LoopStep& other) {
            const auto same = comparisons.find(body, other);
            return same && *same == *found;
          });
      if (changes)
        refuse(*changes->code, changes->why);
      else
        out.push_back(*found);
    }
  });
  if (!out.empty()) return out;
  refuse(codes::kNoRange, fmt::format("no task compares an integer that is loaded along {} with "
                                      "another integer from memory",
                                      tree.axes[loop.levels[0].axis].name));
  return *refusal;
}

// --- The phase that looks at it -----------------------------------------------------------------

class RangePhase : TilePhase {
 public:
  RangePhase(LoopTree& tree, const ItemPlace& place)
      : TilePhase(tree, place), comparisons_(tree, loop_at(tree, place), around_) {}

  /// Makes the phase for these comparisons. Returns the integers that the loop loads where it
  /// begins: the numbers of its first turn and of that behind its last one, and the same of the
  /// turns that are kept whole.
  LoopBody make(const std::vector<Comparison>& comparisons, LoopRegion& phase) {
    for (const Comparison& c : comparisons)
      for (const LoopBody& side : c.sides)
        for (const size_t axis : comparisons_.axes_of(side))
          if (axis != walk_) cut(axis);
    cut_walk();
    const Expr tiles = out_.axes[tile_].extent;

    // Rows are folded before the loop over the turns, what differs along it in each of them.
    LoopRegion rows, walk, inside;
    std::map<size_t, LoopRegion> inside_rows;
    for (const Comparison& c : comparisons) {
      const auto inner = inner_of(c);
      Extremes found[2];
      found[c.walked] = extremes(c.sides[c.walked], {tile_}, inner_, inner_ ? inside : walk);
      found[1 - c.walked] =
          extremes(c.sides[1 - c.walked], {}, inner, inner ? inside_rows[*inner] : rows);
      compared_.push_back({c.op, found[0], found[1]});
    }
    for (auto& [axis, folds] : inside_rows) add_stream(rows, axis, std::move(folds));
    if (inner_) {
      LoopRegion first;
      add_stream(first, *inner_, std::move(inside));
      walk.insert(walk.begin(), std::make_move_iterator(first.begin()),
                  std::make_move_iterator(first.end()));
    }
    const Expr t = out_.axes[tile_].index();
    // If there are no such turns, the last one begins before the axis ends all the same.
    const size_t first = fold_turns(walk, "span_first", Monoid::Min, /*all=*/false, t, tiles - 1);
    const size_t end = fold_turns(walk, "span_end", Monoid::Max, false, t + 1, 0);
    const size_t whole = fold_turns(walk, "span_whole", Monoid::Min, /*all=*/true, t, tiles);
    const size_t whole_end = fold_turns(walk, "span_whole_end", Monoid::Max, true, t + 1, 0);
    const size_t count = fold_turns(walk, "span_count", Monoid::Sum, true, 1, 0);
    add_stream(rows, tile_, std::move(walk));

    std::vector<size_t> kept;
    const auto keep = [&](const std::string& name, LoopBody body) {
      kept.push_back(value(name, dtype_, grid_));
      out_.values[kept.back()].storage = Storage::Workspace;
      rows.emplace_back(LoopTask{
          .kind = LoopTask::Kind::Compute, .target = kept.back(), .body = std::move(body)});
    };
    {
      BodyMaker b{out_};
      const uint32_t last = b.index(max(0, tiles - 1), dtype_);
      keep("span_begin", b.result(b.apply(ElementwiseOp::min, dtype_, {b.read(first), last})));
    }
    {
      BodyMaker b{out_};
      const uint32_t none = b.index(0, dtype_);
      keep("span_stop", b.result(b.apply(ElementwiseOp::max, dtype_, {b.read(end), none})));
    }
    {
      // Turns between those that are whole must be whole too.
      BodyMaker b{out_};
      const uint32_t begins = b.read(whole), all = b.read(count);
      const uint32_t behind = b.apply(ElementwiseOp::add, dtype_, {begins, all});
      const uint32_t dense = b.apply(ElementwiseOp::eq, DType::Bool, {behind, b.read(whole_end)});
      const uint32_t none = b.index(tiles, dtype_);
      keep("span_kept", b.result(b.apply(ElementwiseOp::select, dtype_, {dense, begins, none})));
    }
    {
      BodyMaker b{out_};
      const uint32_t none = b.index(0, dtype_);
      keep("span_kept_end",
           b.result(b.apply(ElementwiseOp::max, dtype_, {b.read(whole_end), none})));
    }
    Loop grid{.parallel = true};
    for (const size_t axis : grid_) grid.levels.push_back({axis});
    grid.body = std::move(rows);
    phase.emplace_back(std::move(grid));

    LoopBody limits;
    for (const size_t value : kept) {
      LoopStep s{.kind = LoopStep::Kind::Read, .dtype = dtype_, .source = value, .at = numbers_};
      limits.results.push_back(static_cast<uint32_t>(limits.steps.size()));
      limits.steps.push_back(std::move(s));
    }
    return limits;
  }

 private:
  struct Compared {
    ElementwiseOp op;
    Extremes a, b;
  };

  std::optional<size_t> inner_of(const Comparison& c) const {
    for (const size_t axis : comparisons_.axes_of(c.sides[1 - c.walked]))
      if (const auto inner = digits_.at(axis).inner) return inner;
    return std::nullopt;
  }

  // Folds `then` over the turns in which all comparisons hold for all pairs of numbers, or may hold
  // for some, and `otherwise` over all others.
  size_t fold_turns(LoopRegion& region, const char* name, Monoid monoid, bool all, const Expr& then,
                    const Expr& otherwise) {
    BodyMaker b{out_};
    std::optional<uint32_t> condition;
    for (const Compared& c : compared_) {
      const uint32_t own = holds(b, c.op, c.a, c.b, all);
      condition =
          condition ? b.apply(ElementwiseOp::logical_and, DType::Bool, {*condition, own}) : own;
    }
    const uint32_t yes = b.index(then, dtype_), no = b.index(otherwise, dtype_);
    LoopBody body = b.result(b.apply(ElementwiseOp::select, dtype_, {*condition, yes, no}));
    return fold(region, name, dtype_, monoid, {}, {tile_}, std::move(body));
  }

  Comparisons comparisons_;
  std::vector<Compared> compared_;
};

}  // namespace

std::optional<Refusal> refuse_range(const LoopTree& tree, const ItemPlace& place) {
  const Loop& loop = loop_at(tree, place);
  const bool has_range = std::ranges::any_of(
      loop.parts, [&](const IndexComparison& part) { return compares_limit(tree, loop, part); });
  if (has_range || loop.down)
    return Refusal{&codes::kMarked,
                   fmt::format("`{}` has a range, or runs down", to_text(tree, loop)),
                   "take this step once, and leave out `reverse`"};
  const auto found = find_comparisons(tree, place);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  // Comparisons of the index itself gave the loop the limit that it has.
  const bool loads =
      std::ranges::any_of(std::get<std::vector<Comparison>>(found), [](const Comparison& c) {
        return std::ranges::any_of(c.sides[c.walked].steps, [](const LoopStep& s) {
          return s.kind == LoopStep::Kind::Load;
        });
      });
  if (loop.limit && !loads)
    return Refusal{&codes::kMarked, fmt::format("`{}` has a limit", to_text(tree, loop)),
                   "take this step once"};
  return std::nullopt;
}

LoopTree find_range(const LoopTree& tree, const ItemPlace& place) {
  const auto comparisons = std::get<std::vector<Comparison>>(find_comparisons(tree, place));
  const Comparisons finder(tree, loop_at(tree, place), loops_around(tree, place));
  LoopTree out = tree;
  change_tasks(loop_at(out, place).body, [&](LoopTask& task) {
    const LoopBody before = task.body;
    for (LoopStep& s : task.body.steps) {
      const auto found = finder.find(before, s);
      if (found && std::ranges::find(comparisons, *found) != comparisons.end()) s.bits = 1;
    }
  });
  LoopRegion phase;
  LoopBody limits = RangePhase(out, place).make(comparisons, phase);

  Loop& loop = loop_at(out, place);
  const LoopAxis& axis = out.axes[loop.levels[0].axis];
  if (!loop.limit) loop.limit.emplace();
  const size_t first = loop.limit->results.size();
  for (const uint32_t result : limits.results) {
    loop.limit->results.push_back(static_cast<uint32_t>(loop.limit->steps.size()));
    loop.limit->steps.push_back(limits.steps[result]);
  }
  const auto at = [&](size_t n) {
    return limit_symbol(axis, first + n) * Expr(loop.levels[0].turn);
  };
  const Expr low = max(0, at(0)), high = at(1);
  const auto bounds = loop.bounds.value_or(std::pair(Expr(0), axis.extent));
  const bool from_start = bounds.first.is_constant(0), to_end = bounds.second == axis.extent;
  loop.bounds.emplace(from_start ? low : max(bounds.first, low),
                      to_end ? high : min(bounds.second, high));
  // One turn changes nothing either, and a loop that surely has a turn has a first one.
  if (from_start) loop.bounds->second = max(low + 1, loop.bounds->second);
  using Kind = IndexComparison::Kind;
  loop.parts.push_back({axis.index(), Kind::Ge, at(2)});
  loop.parts.push_back({axis.index(), Kind::Lt, at(3)});
  out.phases.insert(out.phases.begin(), std::move(phase));
  return out;
}

}  // namespace braze
