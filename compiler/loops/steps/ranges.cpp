#include "compiler/loops/steps/ranges.h"

#include <algorithm>
#include <map>
#include <variant>

#include "compiler/loops/steps/own_names.h"
#include "compiler/loops/steps/skips.h"
#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// --- What is compared ---------------------------------------------------------------------------

constexpr ElementwiseOp kComparisonRows[] = {ElementwiseOp::lt, ElementwiseOp::le,
                                             ElementwiseOp::gt, ElementwiseOp::ge,
                                             ElementwiseOp::eq, ElementwiseOp::ne};

// A comparison of two integers, of which one differs along the axis of the loop and the other along
// axes of which a turn takes several indices.
struct Comparison {
  ElementwiseOp op;
  LoopBody sides[2];
  size_t walked;  // the number of the side that differs along the axis of the loop
  friend bool operator==(const Comparison& a, const Comparison& b) {
    const auto same = [&](size_t i) {
      return a.sides[i].steps == b.sides[i].steps && a.sides[i].results == b.sides[i].results;
    };
    return a.op == b.op && same(0) && same(1);
  }
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
        std::ranges::find(kComparisonRows, s.op) == std::end(kComparisonRows) ||
        !is_integer(body.steps[s.arguments[0]].dtype))
      return std::nullopt;
    Comparison out{s.op, {}, 0};
    bool walks[2];
    for (size_t i = 0; i < 2; ++i) {
      out.sides[i] = {body.steps, {s.arguments[i]}};
      remove_dead_steps(out.sides[i]);
      walks[i] = axes_of(out.sides[i]).contains(walk_);
    }
    const std::string& walk = tree_.axes[walk_].name;
    if (!walks[0] && !walks[1]) return std::nullopt;
    if (walks[0] && walks[1])
      return fail(fmt::format("both numbers that are compared differ along {}", walk));
    out.walked = walks[0] ? 0 : 1;
    for (const LoopBody& side : out.sides)
      if (auto reason = not_loaded(side)) return fail(std::move(*reason));
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

  std::set<size_t> axes_of(const LoopBody& body) const {
    std::set<size_t> out;
    LoopBody copy = body;
    change_exprs(copy, [&](Expr& e) {
      for (const std::string& symbol : e.symbols())
        if (const auto axis = find_axis(tree_, symbol)) out.insert(*axis);
    });
    return out;
  }
  // Whether the loops around take the axis index by index.
  bool is_single(size_t axis) const {
    return is_cut(around_, axis) &&
           extent_in(tree_, around_, axis, /*groups=*/false).is_constant(1);
  }

 private:
  std::optional<std::string> not_loaded(const LoopBody& body) const {
    if (has_loaded_coordinates(body)) return "a number is loaded at an index that is loaded";
    for (const LoopStep& s : body.steps) {
      if (s.kind == LoopStep::Kind::Read)
        return fmt::format("%{} is computed in this kernel, not loaded",
                           tree_.values[s.source].name);
      if (s.kind == LoopStep::Kind::Load && tree_.tensors[s.source].mode != Mode::In)
        return fmt::format("the kernel also writes {}", tree_.tensors[s.source].name);
    }
    return std::nullopt;
  }

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

// Makes the steps of a body, one after the other.
struct Body {
  const LoopTree& tree;
  LoopBody body = {};

  uint32_t push(LoopStep s) {
    body.steps.push_back(std::move(s));
    return static_cast<uint32_t>(body.steps.size() - 1);
  }
  uint32_t read(size_t value) {
    const LoopValue& read = tree.values[value];
    LoopStep s{.kind = LoopStep::Kind::Read, .dtype = read.dtype, .source = value};
    for (const size_t axis : read.axes) s.at.push_back(tree.axes[axis].index());
    return push(std::move(s));
  }
  uint32_t index(const Expr& e, DType dtype) {
    return push({.kind = LoopStep::Kind::Index, .dtype = dtype, .at = {e}});
  }
  uint32_t apply(ElementwiseOp op, DType dtype, std::vector<uint32_t> arguments) {
    return push({.dtype = dtype, .op = op, .arguments = std::move(arguments)});
  }
  LoopBody result(uint32_t step) {
    body.results = {step};
    return std::move(body);
  }
};

class RangePhase {
 public:
  RangePhase(LoopTree& tree, const ItemPlace& place)
      : out_(tree),
        around_(loops_around(tree, place)),
        comparisons_(tree, loop_at(tree, place), around_),
        walk_(loop_at(tree, place).levels[0].axis),
        turn_(loop_at(tree, place).levels[0].turn) {}

  /// Makes the phase for these comparisons. Returns the integers that the loop loads where it
  /// begins: the numbers of its first turn and of that behind its last one, and the same of the
  /// turns that are kept whole.
  LoopBody make(const std::vector<Comparison>& comparisons, LoopRegion& phase) {
    const Expr extent = out_.axes[walk_].extent;
    const Expr tiles = ceildiv(extent, turn_);
    dtype_ = tiles.range().max < (int64_t{1} << 30) ? DType::I32 : DType::I64;
    for (const Comparison& c : comparisons)
      for (const LoopBody& side : c.sides)
        for (const size_t axis : comparisons_.axes_of(side))
          if (axis != walk_) cut(axis);
    if (grid_.empty()) {
      grid_.push_back(new_axis(out_.axes[walk_].name + "g", 1));
      numbers_.emplace_back(0);
    }
    tile_ = new_axis(out_.axes[walk_].name + "t", tiles);
    if (turn_ > 1) inner_ = new_axis(out_.axes[walk_].name + "r", turn_);

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
    const size_t first = fold(walk, "span_first", Monoid::Min, /*all=*/false, t, tiles - 1);
    const size_t end = fold(walk, "span_end", Monoid::Max, false, t + 1, 0);
    const size_t whole = fold(walk, "span_whole", Monoid::Min, /*all=*/true, t, tiles);
    const size_t whole_end = fold(walk, "span_whole_end", Monoid::Max, true, t + 1, 0);
    const size_t count = fold(walk, "span_count", Monoid::Sum, true, 1, 0);
    add_stream(rows, tile_, std::move(walk));

    std::vector<size_t> kept;
    const auto keep = [&](const std::string& name, LoopBody body) {
      kept.push_back(value(name, dtype_, grid_));
      out_.values[kept.back()].storage = Storage::Workspace;
      rows.emplace_back(LoopTask{
          .kind = LoopTask::Kind::Compute, .target = kept.back(), .body = std::move(body)});
    };
    {
      Body b{out_};
      const uint32_t last = b.index(max(0, tiles - 1), dtype_);
      keep("span_begin", b.result(b.apply(ElementwiseOp::min, dtype_, {b.read(first), last})));
    }
    {
      Body b{out_};
      const uint32_t none = b.index(0, dtype_);
      keep("span_stop", b.result(b.apply(ElementwiseOp::max, dtype_, {b.read(end), none})));
    }
    {
      // Turns between those that are whole must be whole too.
      Body b{out_};
      const uint32_t begins = b.read(whole), all = b.read(count);
      const uint32_t behind = b.apply(ElementwiseOp::add, dtype_, {begins, all});
      const uint32_t dense = b.apply(ElementwiseOp::eq, DType::Bool, {behind, b.read(whole_end)});
      const uint32_t none = b.index(tiles, dtype_);
      keep("span_kept", b.result(b.apply(ElementwiseOp::select, dtype_, {dense, begins, none})));
    }
    {
      Body b{out_};
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
  struct Extremes {
    size_t least, greatest;  // values
  };
  struct Compared {
    ElementwiseOp op;
    Extremes a, b;
  };

  size_t new_axis(const std::string& name, const Expr& extent) {
    out_.axes.push_back({unused_axis(out_, name), extent});
    return out_.axes.size() - 1;
  }
  size_t value(const std::string& name, DType dtype, std::vector<size_t> axes) {
    out_.values.push_back({unused_value(out_, name), dtype, std::move(axes)});
    return out_.values.size() - 1;
  }

  // Gives the phase axes for the turns of an axis of the loops around, and for what a turn takes.
  void cut(size_t axis) {
    if (digits_.contains(axis)) return;
    const std::string name = out_.axes[axis].name;
    const Expr extent = out_.axes[axis].extent;
    const int64_t turn = extent_in(out_, around_, axis, /*groups=*/false).as_constant().value_or(1);
    Expr index = 0;
    if (is_cut(around_, axis)) {
      const size_t number = new_axis(name + "t", ceildiv(extent, turn));
      grid_.push_back(number);
      numbers_.push_back(floordiv(out_.axes[axis].index(), turn));
      index = out_.axes[number].index() * Expr(turn);
    }
    std::optional<size_t> inner;
    if (!comparisons_.is_single(axis)) {
      inner = new_axis(name + "r", turn);
      index += out_.axes[*inner].index();
      // The last index stands for those beyond the end.
      if (!extent.is_multiple_of(turn)) index = min(index, extent - 1);
    }
    digits_[axis] = {index, inner};
  }
  std::optional<size_t> inner_of(const Comparison& c) const {
    for (const size_t axis : comparisons_.axes_of(c.sides[1 - c.walked]))
      if (const auto inner = digits_.at(axis).inner) return inner;
    return std::nullopt;
  }

  static void add_stream(LoopRegion& region, size_t axis, LoopRegion body) {
    Loop loop{.levels = {{axis}}};
    loop.body = std::move(body);
    region.emplace_back(std::move(loop));
  }

  // The least and the greatest of a number along the axis `inner`, or the number itself if it does
  // not differ along one. Their tasks are added to the region.
  Extremes extremes(const LoopBody& number, std::vector<size_t> axes, std::optional<size_t> inner,
                    LoopRegion& region) {
    LoopBody body = number;
    std::unordered_map<std::string, Expr> places;
    for (const auto& [axis, digit] : digits_) places.emplace(out_.axes[axis].name, digit.index);
    Expr index = out_.axes[tile_].index() * Expr(turn_);
    if (inner_) index += out_.axes[*inner_].index();
    const Expr extent = out_.axes[walk_].extent;
    if (!extent.is_multiple_of(turn_)) index = min(index, extent - 1);
    places.emplace(out_.axes[walk_].name, index);
    change_exprs(body, [&](Expr& e) { e = e.substitute(places); });
    const DType dtype = body.steps[body.results[0]].dtype;
    if (!inner) {
      const size_t own = value("span_number", dtype, std::move(axes));
      region.emplace_back(
          LoopTask{.kind = LoopTask::Kind::Compute, .target = own, .body = std::move(body)});
      return {own, own};
    }
    const auto add = [&](const char* name, Monoid monoid) {
      const size_t own = value(name, dtype, axes);
      LoopTask task{.kind = LoopTask::Kind::Fold, .target = own, .over = {*inner}, .body = body};
      task.monoid = monoid;
      region.emplace_back(std::move(task));
      return own;
    };
    const size_t least = add("span_least", Monoid::Min);
    return {least, add("span_greatest", Monoid::Max)};
  }

  // Whether a comparison holds for all pairs of numbers in a turn, or for some pair.
  static uint32_t holds(Body& b, const Compared& c, bool all) {
    using Op = ElementwiseOp;
    const auto row = [&](Op op, size_t x, size_t y) {
      return b.apply(op, DType::Bool, {b.read(x), b.read(y)});
    };
    const auto both = [&](uint32_t x, uint32_t y) {
      return b.apply(Op::logical_and, DType::Bool, {x, y});
    };
    const auto either = [&](uint32_t x, uint32_t y) {
      return b.apply(Op::logical_or, DType::Bool, {x, y});
    };
    switch (c.op) {
      case Op::lt:
      case Op::le:
        return all ? row(c.op, c.a.greatest, c.b.least) : row(c.op, c.a.least, c.b.greatest);
      case Op::gt:
      case Op::ge:
        return all ? row(c.op, c.a.least, c.b.greatest) : row(c.op, c.a.greatest, c.b.least);
      case Op::eq:
        return all ? both(row(Op::eq, c.a.least, c.b.greatest),
                          row(Op::eq, c.a.greatest, c.b.least))
                   : both(row(Op::le, c.a.least, c.b.greatest),
                          row(Op::ge, c.a.greatest, c.b.least));
      default:
        return all ? either(row(Op::lt, c.a.greatest, c.b.least),
                            row(Op::gt, c.a.least, c.b.greatest))
                   : either(row(Op::ne, c.a.least, c.b.greatest),
                            row(Op::ne, c.a.greatest, c.b.least));
    }
  }

  // Folds `then` over the turns in which all comparisons hold for all pairs of numbers, or may hold
  // for some, and `otherwise` over all others.
  size_t fold(LoopRegion& region, const char* name, Monoid monoid, bool all, const Expr& then,
              const Expr& otherwise) {
    Body b{out_};
    std::optional<uint32_t> condition;
    for (const Compared& c : compared_) {
      const uint32_t own = holds(b, c, all);
      condition =
          condition ? b.apply(ElementwiseOp::logical_and, DType::Bool, {*condition, own}) : own;
    }
    const uint32_t yes = b.index(then, dtype_), no = b.index(otherwise, dtype_);
    LoopBody body = b.result(b.apply(ElementwiseOp::select, dtype_, {*condition, yes, no}));
    LoopTask task{.kind = LoopTask::Kind::Fold,
                  .target = value(name, dtype_, {}),
                  .over = {tile_},
                  .body = std::move(body)};
    task.monoid = monoid;
    region.emplace_back(std::move(task));
    return std::get<LoopTask>(region.back()).target;
  }

  struct Digits {
    Expr index;                   // of the axis, over those of the phase
    std::optional<size_t> inner;  // the axis of what a turn takes
  };

  LoopTree& out_;
  std::vector<const Loop*> around_;
  Comparisons comparisons_;
  size_t walk_;
  int64_t turn_;
  DType dtype_ = DType::I32;
  size_t tile_ = 0;  // the axis of the loop's turns
  std::optional<size_t> inner_;
  std::vector<size_t> grid_;   // the axes of turns of the loops around
  std::vector<Expr> numbers_;  // the present turns of these loops
  std::map<size_t, Digits> digits_;
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
