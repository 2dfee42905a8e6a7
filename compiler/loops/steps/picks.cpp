#include "compiler/loops/steps/picks.h"

#include <algorithm>
#include <variant>

#include "compiler/loops/steps/skips.h"
#include "compiler/loops/steps/tile_phase.h"
#include "compiler/loops/text.h"
#include "ir/code/comparisons.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

namespace {

using Op = ElementwiseOp;

// --- Conditions ---------------------------------------------------------------------------------

// What a phase can find out about a condition in a turn.
struct Condition {
  enum class Kind : uint8_t {
    Comparison,  // of two numbers, each of which differs along the walk, along rows, or not at all
    Table,       // differs along both, and is loaded
    All,         // whether all parts hold
    Any,         // whether some part holds
    Unknown,     // may hold anywhere
  };
  Kind kind = Kind::Unknown;
  Op op = Op::eq;
  LoopBody sides[2];     // Comparison
  LoopBody table;        // Table
  bool negated = false;  // Table
  // Comparison: whether its bounds are known where the walk begins.
  bool is_simple = false;
  std::vector<Condition> parts;

  // Whether some turns may be left out because of it.
  bool may_fail() const {
    const auto fails = [](const Condition& part) { return part.may_fail(); };
    switch (kind) {
      case Kind::All:
        return std::ranges::any_of(parts, fails);
      case Kind::Any:
        return !parts.empty() && std::ranges::all_of(parts, fails);
      default:
        return kind != Kind::Unknown;
    }
  }
  // Whether it says no more than that all of several such comparisons hold.
  bool is_plain() const {
    if (kind == Kind::All)
      return std::ranges::all_of(parts, [](const Condition& part) { return part.is_plain(); });
    return kind == Kind::Comparison ? is_simple : !may_fail();
  }
};

// The row of a comparison, or of that which holds where it does not.
Op row_of(const ComparisonRow& comparison, bool negated) {
  return negated ? comparison.opposite : comparison.op;
}

bool is_comparison(const LoopStep& s) {
  return s.kind == LoopStep::Kind::Apply && comparison_row(s.op);
}

bool joins_conditions(const LoopStep& s) {
  return s.kind == LoopStep::Kind::Apply && s.dtype == DType::Bool &&
         (s.op == Op::logical_and || s.op == Op::logical_or || s.op == Op::logical_not);
}

// The steps of a body that are conditions by which other steps choose or count.
std::vector<uint32_t> conditions_of(const LoopBody& body) {
  std::set<uint32_t> out;
  for (const LoopStep& s : body.steps) {
    if (s.kind != LoopStep::Kind::Apply || joins_conditions(s)) continue;
    for (const uint32_t argument : s.arguments)
      if (body.steps[argument].dtype == DType::Bool) out.insert(argument);
  }
  return {out.begin(), out.end()};
}

class Conditions {
 public:
  Conditions(const LoopTree& tree, const Loop& loop, std::vector<const Loop*> around)
      : tree_(tree), walk_(loop.levels[0].axis), around_(std::move(around)) {}

  Condition make(const LoopBody& body, uint32_t number) const {
    return count_parts(body, number) > kMostParts ? Condition{} : make(body, number, false);
  }

  // The axis, other than that of the walk, of which a turn takes several indices along which a
  // number differs. Nothing if the phase cannot compute the number's least and greatest value.
  struct Along {
    bool walk = false;
    std::optional<size_t> rows;
  };
  std::optional<Along> along(const LoopBody& number) const {
    if (why_not_loaded(tree_, number)) return std::nullopt;
    Along out;
    for (const size_t axis : axes_used(tree_, number)) {
      if (axis == walk_) {
        out.walk = true;
        continue;
      }
      if (!extent_in(tree_, around_, axis, /*groups=*/false).as_constant()) return std::nullopt;
      if (takes_one(tree_, around_, axis)) continue;
      if (out.rows) return std::nullopt;
      out.rows = axis;
    }
    return out;
  }

 private:
  // A condition with more parts than this is taken as one that may hold anywhere.
  static constexpr size_t kMostParts = 64;
  static size_t count_parts(const LoopBody& body, uint32_t number) {
    std::vector<size_t> parts(number + 1, 1);
    for (uint32_t i = 0; i <= number; ++i) {
      const LoopStep& s = body.steps[i];
      if (!joins_conditions(s)) continue;
      parts[i] = 0;
      for (const uint32_t argument : s.arguments) parts[i] += parts[argument];
      parts[i] = std::min(parts[i], kMostParts + 1);
    }
    return parts[number];
  }

  Condition make(const LoopBody& body, uint32_t number, bool negated) const {
    const LoopStep& s = body.steps[number];
    if (joins_conditions(s)) {
      if (s.op == Op::logical_not) return make(body, s.arguments[0], !negated);
      const bool all = (s.op == Op::logical_and) != negated;
      Condition out{.kind = all ? Condition::Kind::All : Condition::Kind::Any};
      for (const uint32_t argument : s.arguments) {
        Condition part = make(body, argument, negated);
        if (part.kind == out.kind)
          std::ranges::move(part.parts, std::back_inserter(out.parts));
        else
          out.parts.push_back(std::move(part));
      }
      return out;
    }
    Condition out = is_comparison(s) ? compare(body, s, negated) : of_flag(body, number, negated);
    if (out.kind != Condition::Kind::Unknown) return out;
    LoopBody table = part_of(body, number);
    if (is_table(table)) {
      out.kind = Condition::Kind::Table;
      out.table = std::move(table);
      out.negated = negated;
    }
    return out;
  }

  bool is_number(const LoopBody& number) const {
    const auto found = along(number);
    return found && !(found->walk && found->rows);
  }

  Condition comparison(Op op, LoopBody left, LoopBody right, bool is_simple) const {
    Condition out;
    if (!is_number(left) || !is_number(right)) return out;
    out.kind = Condition::Kind::Comparison;
    out.op = op;
    out.is_simple = is_simple;
    out.sides[0] = std::move(left);
    out.sides[1] = std::move(right);
    return out;
  }

  Condition compare(const LoopBody& body, const LoopStep& s, bool negated) const {
    if (const auto indices = comparison_of_indices(body, s)) {
      return compare_index(row_of(comparison_row(indices->kind), negated),
                           indices->left - indices->right, /*is_simple=*/true);
    }
    if (!is_integer(body.steps[s.arguments[0]].dtype)) return {};
    if (auto out = compare_absolute(body, s, negated)) return std::move(*out);
    LoopBody left = part_of(body, s.arguments[0]), right = part_of(body, s.arguments[1]);
    const bool is_simple = is_limit(left, right) || is_limit(right, left);
    return comparison(row_of(*comparison_row(s.op), negated), std::move(left), std::move(right),
                      is_simple);
  }

  // Whether the index of the walk is compared with a number that a turn of the loops around loads
  // once.
  bool is_limit(const LoopBody& index, const LoopBody& number) const {
    const auto found = along(number);
    return index.steps.size() == 1 && index.steps[0].kind == LoopStep::Kind::Index && found &&
           !found->walk && !found->rows;
  }

  // Whether an index is less than 0 (or any other comparison with 0). What differs along the walk
  // is compared with the rest.
  Condition compare_index(Op op, const Expr& difference, bool is_simple) const {
    const std::string& walk = tree_.axes[walk_].name;
    const auto slope = difference.coefficient_of(walk);
    if (!slope || !slope->as_constant()) return {};
    const Expr walked = tree_.axes[walk_].index() * *slope,
               rest = 0 - difference.substitute(walk, 0);
    const Interval narrow{-(int64_t{1} << 31), (int64_t{1} << 31) - 1};
    const auto fits = [&](const Expr& e) {
      return narrow.contains(e.range().min) && narrow.contains(e.range().max);
    };
    const DType dtype = fits(walked) && fits(rest) ? DType::I32 : DType::I64;
    BodyMaker left{tree_}, right{tree_};
    const uint32_t a = left.index(walked, dtype), b = right.index(rest, dtype);
    return comparison(op, left.result(a), right.result(b), is_simple);
  }

  // `abs(index) <= number` are two comparisons.
  std::optional<Condition> compare_absolute(const LoopBody& body, const LoopStep& s,
                                            bool negated) const {
    const LoopStep &left = body.steps[s.arguments[0]], &right = body.steps[s.arguments[1]];
    if (left.kind != LoopStep::Kind::Apply || left.op != Op::abs ||
        right.kind != LoopStep::Kind::Constant || !is_signed_integer(right.dtype))
      return std::nullopt;
    const LoopStep& index = body.steps[left.arguments[0]];
    if (index.kind != LoopStep::Kind::Index) return std::nullopt;
    const int64_t number = bits_to_int(right.dtype, right.bits);
    if (!kLimits.contains(number)) return std::nullopt;
    const Op op = row_of(*comparison_row(s.op), negated);
    const bool less = op == Op::lt || op == Op::le;
    if (!less && op != Op::gt && op != Op::ge) return std::nullopt;
    const Op other = comparison_row(op)->swapped;
    Condition out{.kind = less ? Condition::Kind::All : Condition::Kind::Any};
    out.parts.push_back(compare_index(op, index.at[0] - number, /*is_simple=*/false));
    out.parts.push_back(compare_index(other, index.at[0] + number, /*is_simple=*/false));
    return out;
  }

  // A condition that is loaded, as a number that is not 0.
  Condition of_flag(const LoopBody& body, uint32_t number, bool negated) const {
    LoopBody flag = part_of(body, number);
    if (body.steps[number].dtype != DType::Bool || !loads(flag)) return {};
    flag.results[0] =
        push(flag, {.dtype = DType::I32, .op = Op::convert, .arguments = {flag.results[0]}});
    BodyMaker none{tree_};
    const uint32_t zero = none.push({.kind = LoopStep::Kind::Constant, .dtype = DType::I32});
    return comparison(negated ? Op::eq : Op::ne, std::move(flag), none.result(zero),
                      /*is_simple=*/false);
  }

  static bool loads(const LoopBody& body) {
    return std::ranges::any_of(body.steps,
                               [](const LoopStep& s) { return s.kind == LoopStep::Kind::Load; });
  }

  bool is_table(const LoopBody& table) const {
    const auto found = along(table);
    if (!found || !found->walk || !found->rows) return false;
    const auto uses = [&](const LoopStep& s, size_t axis) {
      return std::ranges::any_of(s.at,
                                 [&](const Expr& e) { return e.uses(tree_.axes[axis].name); });
    };
    return std::ranges::any_of(table.steps, [&](const LoopStep& s) {
      return s.kind == LoopStep::Kind::Load && uses(s, walk_) && uses(s, *found->rows);
    });
  }

  const LoopTree& tree_;
  size_t walk_;
  std::vector<const Loop*> around_;
};

// A condition of the tree, which stands in one task or in several.
struct Found {
  LoopBody body;
  Condition condition;
};

std::variant<std::vector<Found>, Refusal> find_conditions(const LoopTree& tree,
                                                          const ItemPlace& place) {
  const Loop& loop = loop_at(tree, place);
  const std::string& walk = tree.axes[loop.levels[0].axis].name;
  const Conditions conditions(tree, loop, loops_around(tree, place));
  std::vector<Found> out;
  std::optional<Refusal> refusal;
  const auto refuse = [&](const Code& code, std::string why) {
    if (!refusal)
      refusal = Refusal{&code, std::move(why), "leave this step out, so that all turns are taken"};
  };
  bool shifts = false;
  for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
    shifts = shifts || task.shifts;
    for (const uint32_t number : conditions_of(task.body)) {
      Found found{part_of(task.body, number), {}};
      if (!axes_used(tree, found.body).contains(loop.levels[0].axis) ||
          std::ranges::any_of(out, [&](const Found& other) { return other.body == found.body; }))
        continue;
      found.condition = conditions.make(task.body, number);
      if (!found.condition.may_fail()) {
        refuse(codes::kNoPick,
               fmt::format("a condition may hold in any turn, because it compares numbers that "
                           "differ along {} and along other axes, or that are computed",
                           walk));
        continue;
      }
      const auto changes =
          changes_where_false(tree, loop, [&](const LoopBody& body, const LoopStep& s) {
            return s.dtype == DType::Bool &&
                   part_of(body, static_cast<uint32_t>(&s - body.steps.data())) == found.body;
          });
      if (changes)
        refuse(*changes->code, changes->why);
      else
        out.push_back(std::move(found));
    }
  });
  if (!out.empty() && !shifts) return out;
  if (shifts) refuse(codes::kIsState, "the loop follows a mean");
  refuse(codes::kNoPick, fmt::format("no task chooses by a condition that differs along {}", walk));
  return *refusal;
}

// --- The phases that look at them ---------------------------------------------------------------

class PickPhases : TilePhase {
 public:
  PickPhases(LoopTree& tree, const ItemPlace& place)
      : TilePhase(tree, place), conditions_(tree, loop_at(tree, place), around_) {}

  struct Result {
    std::vector<LoopRegion> phases;
    LoopBody limits;  // the number of turns in which conditions are evaluated, and that of all
    LoopPicks picks;
  };

  Result make(const std::vector<Found>& found) {
    for (const Found& f : found) cut_axes(f.condition);
    cut_walk();
    Result out;
    for (const Found& f : found) look_at_tables(f.condition, out.phases);
    const size_t classes = classify(found, out);
    list(classes, out);
    return out;
  }

 private:
  enum Class : uint8_t { kNever, kSometimes, kAlways };

  void cut_axes(const Condition& c) {
    const auto of_body = [&](const LoopBody& body) {
      for (const size_t axis : axes_used(out_, body))
        if (axis != walk_) cut(axis);
    };
    for (const LoopBody& side : c.sides) of_body(side);
    of_body(c.table);
    for (const Condition& part : c.parts) cut_axes(part);
  }

  size_t keep(LoopRegion& region, const char* name, std::vector<size_t> axes, LoopBody body) {
    const size_t out = value(name, dtype_, std::move(axes));
    out_.values[out].storage = Storage::Workspace;
    region.emplace_back(
        LoopTask{.kind = LoopTask::Kind::Compute, .target = out, .body = std::move(body)});
    return out;
  }

  static LoopRegion in_loop(const std::vector<size_t>& axes, LoopRegion body) {
    Loop loop{.parallel = true};
    for (const size_t axis : axes) loop.levels.push_back({axis});
    loop.body = std::move(body);
    LoopRegion out;
    out.emplace_back(std::move(loop));
    return out;
  }

  // A phase for each table: whether some of its elements in a turn hold, and whether all do.
  void look_at_tables(const Condition& c, std::vector<LoopRegion>& phases) {
    for (const Condition& part : c.parts) look_at_tables(part, phases);
    if (c.kind != Condition::Kind::Table || find(tables_, c.table)) return;
    std::vector<size_t> axes, inner;
    for (const size_t axis : axes_used(out_, c.table)) {
      if (axis == walk_) continue;
      const Digits& digits = digits_.at(axis);
      if (digits.number) axes.push_back(*digits.number);
      if (digits.inner) inner.push_back(*digits.inner);
    }
    axes.push_back(tile_);
    if (inner_) inner.push_back(*inner_);
    LoopBody body = placed(c.table);
    body.results[0] =
        push(body, {.dtype = dtype_, .op = Op::convert, .arguments = {body.results[0]}});
    LoopRegion region;
    Extremes found{};
    found.least = fold(region, "span_all", dtype_, Monoid::Min, {}, inner, body);
    found.greatest = fold(region, "span_any", dtype_, Monoid::Max, {}, inner, std::move(body));
    for (size_t i = inner.size(); i-- > 0;) {
      LoopRegion around;
      add_stream(around, inner[i], std::move(region));
      region = std::move(around);
    }
    const auto kept = [&](const char* name, size_t value) {
      BodyMaker b{out_};
      const uint32_t read = b.read(value);
      return keep(region, name, axes, b.result(read));
    };
    tables_.push_back(
        {c.table, {kept("span_alls", found.least), kept("span_anys", found.greatest)}});
    phases.push_back(in_loop(axes, std::move(region)));
  }

  // Finds the least and the greatest value of what conditions compare. Rows are folded before the
  // loop over the turns, what differs along the walk in each of them.
  struct Folds {
    LoopRegion rows, walk, inside;
    std::map<size_t, LoopRegion> inside_rows;
  };
  void look_at_numbers(const Condition& c, Folds& folds) {
    for (const Condition& part : c.parts) look_at_numbers(part, folds);
    if (c.kind != Condition::Kind::Comparison) return;
    for (const LoopBody& side : c.sides) {
      if (find(numbers_of_, side)) continue;
      const auto along = conditions_.along(side).value();
      const auto inner = along.walk   ? inner_
                         : along.rows ? digits_.at(*along.rows).inner
                                      : std::optional<size_t>();
      const std::vector<size_t> axes =
          along.walk ? std::vector<size_t>{tile_} : std::vector<size_t>();
      LoopRegion& outside = along.walk ? folds.walk : folds.rows;
      if (auto ends = ends_of(side, along.walk ? walk_ : along.rows.value_or(walk_), inner, axes,
                              outside)) {
        numbers_of_.push_back({side, *ends});
        continue;
      }
      LoopRegion& region = !inner ? outside : along.walk ? folds.inside : folds.inside_rows[*inner];
      numbers_of_.push_back({side, extremes(side, axes, inner, region)});
    }
  }

  // An index that grows along the axis, or falls, has its extremes at the ends of a turn.
  std::optional<Extremes> ends_of(const LoopBody& number, size_t axis, std::optional<size_t> inner,
                                  const std::vector<size_t>& axes, LoopRegion& region) {
    if (number.steps.size() != 1 || number.steps[0].kind != LoopStep::Kind::Index || !inner)
      return std::nullopt;
    const auto slope = number.steps[0].at[0].coefficient_of(out_.axes[axis].name);
    if (!slope || !slope->as_constant()) return std::nullopt;
    const std::string& name = out_.axes[*inner].name;
    const Expr last = out_.axes[*inner].extent - 1;
    const bool falls = *slope->as_constant() < 0;
    const auto at = [&](const Expr& index) {
      LoopBody body = placed(number);
      for_each_expr(body, [&](Expr& e) { e = e.substitute(name, index); });
      const size_t out = value("span_number", number.steps[0].dtype, axes);
      region.emplace_back(
          LoopTask{.kind = LoopTask::Kind::Compute, .target = out, .body = std::move(body)});
      return out;
    };
    const size_t least = at(falls ? last : Expr(0));
    return Extremes{least, at(falls ? Expr(0) : last)};
  }

  // Whether the condition may hold in a turn, or holds everywhere in it. Nothing where it may hold,
  // and need not hold, whatever is loaded.
  std::optional<uint32_t> holds_in(BodyMaker& b, const Condition& c, bool everywhere) const {
    switch (c.kind) {
      case Condition::Kind::Comparison:
        return holds(b, c.op, *find(numbers_of_, c.sides[0]), *find(numbers_of_, c.sides[1]),
                     everywhere);
      case Condition::Kind::Table: {
        const Extremes& found = *find(tables_, c.table);
        const uint32_t flag = b.read(everywhere == c.negated ? found.greatest : found.least);
        const uint32_t zero = b.index(0, dtype_);
        return b.apply(c.negated ? Op::eq : Op::ne, DType::Bool, {flag, zero});
      }
      case Condition::Kind::Unknown:
        return std::nullopt;
      default:
        break;
    }
    const bool all = c.kind == Condition::Kind::All;
    std::optional<uint32_t> out;
    for (const Condition& part : c.parts) {
      const auto own = holds_in(b, part, everywhere);
      if (!own && all == everywhere) return std::nullopt;
      if (!own) continue;
      out = out ? b.apply(all ? Op::logical_and : Op::logical_or, DType::Bool, {*out, *own}) : own;
    }
    return out;
  }

  // The phase that says of each turn whether the conditions hold in it, and counts the turns.
  size_t classify(const std::vector<Found>& found, Result& out) {
    Folds folds;
    for (const Found& f : found) look_at_numbers(f.condition, folds);
    LoopRegion rows;
    for (auto& [axis, region] : folds.inside_rows) add_stream(rows, axis, std::move(region));
    std::ranges::move(folds.rows, std::back_inserter(rows));
    LoopRegion walk;
    if (!folds.inside.empty()) add_stream(walk, *inner_, std::move(folds.inside));
    std::ranges::move(folds.walk, std::back_inserter(walk));

    Condition all{.kind = Condition::Kind::All};
    for (const Found& f : found) all.parts.push_back(f.condition);
    BodyMaker b{out_};
    const uint32_t may = holds_in(b, all, /*everywhere=*/false).value();
    const uint32_t never = b.index(kNever, dtype_), sometimes = b.index(kSometimes, dtype_);
    uint32_t result = b.apply(Op::select, dtype_, {may, sometimes, never});
    if (auto holds = holds_in(b, all, /*everywhere=*/true)) {
      // The end of the axis is a condition, too.
      const Expr extent = out_.axes[walk_].extent, t = out_.axes[tile_].index();
      if (!extent.is_multiple_of(turn_)) {
        const uint32_t end = b.index((t + 1) * Expr(turn_), dtype_), most = b.index(extent, dtype_);
        const uint32_t whole = b.apply(Op::le, DType::Bool, {end, most});
        holds = b.apply(Op::logical_and, DType::Bool, {*holds, whole});
      }
      result = b.apply(Op::select, dtype_, {*holds, b.index(kAlways, dtype_), result});
    }
    const size_t own = value("span_class", dtype_, {tile_});
    walk.emplace_back(
        LoopTask{.kind = LoopTask::Kind::Compute, .target = own, .body = b.result(result)});
    std::vector<size_t> axes = grid_;
    axes.push_back(tile_);
    BodyMaker copy{out_};
    const uint32_t read = copy.read(own);
    const size_t classes = keep(walk, "span_classes", axes, copy.result(read));
    const auto count = [&](const char* name, Op op, Class with) {
      BodyMaker is_one{out_};
      const uint32_t is =
          is_one.apply(op, DType::Bool, {is_one.read(own), is_one.index(with, dtype_)});
      const uint32_t one = is_one.index(1, dtype_), zero = is_one.index(0, dtype_);
      return fold(walk, name, dtype_, Monoid::Sum, {}, {tile_},
                  is_one.result(is_one.apply(Op::select, dtype_, {is, one, zero})));
    };
    const size_t evaluated = count("span_count", Op::eq, kSometimes),
                 taken = count("span_count", Op::ne, kNever);
    add_stream(rows, tile_, std::move(walk));

    // Without any turn, the first one is taken, and changes nothing.
    const auto limit = [&](const char* name, size_t number) {
      BodyMaker made{out_};
      const uint32_t zero = made.index(0, dtype_), one = made.index(1, dtype_);
      const uint32_t none = made.apply(Op::eq, DType::Bool, {made.read(taken), zero});
      const uint32_t some = made.read(number);
      const size_t kept =
          keep(rows, name, grid_, made.result(made.apply(Op::select, dtype_, {none, one, some})));
      out.limits.results.push_back(static_cast<uint32_t>(out.limits.steps.size()));
      out.limits.steps.push_back(
          {.kind = LoopStep::Kind::Read, .dtype = dtype_, .source = kept, .at = numbers_});
    };
    limit("span_evaluated", evaluated);
    limit("span_taken", taken);
    out.phases.push_back(in_loop(grid_, std::move(rows)));
    return classes;
  }

  // The phases that number the turns of the list, and then write it.
  void list(size_t classes, Result& out) {
    std::vector<size_t> axes = grid_;
    axes.push_back(tile_);
    const LoopAxis walk = out_.axes[walk_];
    const size_t other = new_axis(walk.name + "u", out_.axes[tile_].extent);
    const Expr t = out_.axes[tile_].index(), u = out_.axes[other].index();
    const auto read_other = [&](BodyMaker& b, size_t value) {
      LoopStep s{.kind = LoopStep::Kind::Read, .dtype = dtype_, .source = value};
      for (const size_t axis : grid_) s.at.push_back(out_.axes[axis].index());
      s.at.push_back(u);
      return b.push(std::move(s));
    };
    // For each turn: the body, folded over all other turns.
    const auto fold_others = [&](const char* name, const char* kept, Monoid monoid, LoopBody body) {
      LoopRegion inside, region;
      const size_t made = fold(inside, name, dtype_, monoid, {tile_}, {other}, std::move(body));
      add_stream(region, other, std::move(inside));
      BodyMaker copy{out_};
      const uint32_t read = copy.read(made);
      const size_t value = keep(region, kept, axes, copy.result(read));
      out.phases.push_back(in_loop(grid_, in_loop({tile_}, std::move(region))));
      return value;
    };
    const auto chosen = [&](BodyMaker& b, uint32_t condition, const Expr& number) {
      const uint32_t yes = b.index(number, dtype_), no = b.index(0, dtype_);
      return b.result(b.apply(Op::select, dtype_, {condition, yes, no}));
    };
    BodyMaker before{out_};
    const uint32_t own = before.read(classes), theirs = read_other(before, classes);
    const uint32_t earlier = before.apply(
        Op::logical_and, DType::Bool,
        {before.apply(Op::eq, DType::Bool, {theirs, own}),
         before.apply(Op::lt, DType::Bool, {before.index(u, dtype_), before.index(t, dtype_)})});
    const uint32_t first = before.apply(
        Op::logical_or, DType::Bool, {before.apply(Op::lt, DType::Bool, {theirs, own}), earlier});
    const uint32_t counts = before.apply(
        Op::logical_and, DType::Bool,
        {before.apply(Op::ne, DType::Bool, {theirs, before.index(kNever, dtype_)}), first});
    const size_t places =
        fold_others("span_place", "span_places", Monoid::Sum, chosen(before, counts, 1));
    BodyMaker at{out_};
    const uint32_t here =
        at.apply(Op::eq, DType::Bool, {read_other(at, places), at.index(t, dtype_)});
    const uint32_t listed =
        at.apply(Op::ne, DType::Bool, {read_other(at, classes), at.index(kNever, dtype_)});
    const uint32_t is = at.apply(Op::logical_and, DType::Bool, {listed, here});
    out.picks = {fold_others("span_turn", "span_turns", Monoid::Max, chosen(at, is, u)), numbers_};
  }

  using Known = std::vector<std::pair<LoopBody, Extremes>>;
  static const Extremes* find(const Known& known, const LoopBody& body) {
    for (const auto& [other, extremes] : known)
      if (other == body) return &extremes;
    return nullptr;
  }

  Conditions conditions_;
  Known tables_, numbers_of_;
};

// Marks the conditions as known to hold in some turns. One that is loaded becomes a row that can
// have the mark.
void mark_conditions(LoopBody& body, const std::vector<Found>& found) {
  std::set<uint32_t> marked;
  for (const uint32_t number : conditions_of(body))
    if (std::ranges::any_of(found, [&](const Found& f) { return f.body == part_of(body, number); }))
      marked.insert(number);
  LoopBody out;
  std::vector<uint32_t> number(body.steps.size());
  std::unordered_map<std::string, Expr> symbols;
  for (uint32_t i = 0; i < body.steps.size(); ++i) {
    LoopStep s = body.steps[i];
    for (uint32_t& argument : s.arguments) argument = number[argument];
    for_each_expr(s, [&](Expr& e) { e = e.substitute(symbols); });
    number[i] = push(out, std::move(s));
    symbols.insert_or_assign(loaded_symbol(i).symbol_name(), loaded_symbol(number[i]));
    if (!marked.contains(i)) continue;
    if (out.steps.back().kind != LoopStep::Kind::Apply) {
      const uint32_t no = push(out, {.kind = LoopStep::Kind::Constant, .dtype = DType::Bool});
      number[i] =
          push(out, {.dtype = DType::Bool, .op = Op::logical_or, .arguments = {number[i], no}});
    }
    out.steps.back().bits = 1;
  }
  for (const uint32_t result : body.results) out.results.push_back(number[result]);
  body = std::move(out);
}

}  // namespace

std::optional<Refusal> legal(const LoopTree& tree, const PickStep& step) {
  const auto place = find_loop(tree, step.loop);
  if (!place) return no_such("loop", step.loop.to_string());
  const Loop& loop = loop_at(tree, *place);
  if (auto refusal = marked(tree, loop)) return refusal;
  if (loop.levels.size() != 1 || loop.parallel)
    return Refusal{&codes::kKindsDiffer,
                   fmt::format("`{}` is not a stream over one axis", to_text(tree, loop)),
                   "name a stream"};
  if (loop.bounds || loop.down)
    return Refusal{&codes::kBoundsDepend,
                   fmt::format("`{}` has bounds, or runs down", to_text(tree, loop)),
                   "take this step in place of `skip`, `limit` and `reverse`"};
  const LoopAxis& axis = tree.axes[loop.levels[0].axis];
  if (axis.extent.range().min < 1)
    return Refusal{&codes::kNoPick, fmt::format("{} may be empty", axis.name),
                   "leave this step out"};
  const auto found = find_conditions(tree, *place);
  if (const auto* refusal = std::get_if<Refusal>(&found)) return *refusal;
  return std::nullopt;
}

bool needs_phases(const LoopTree& tree, const PickStep& step) {
  const auto found = find_conditions(tree, find_loop(tree, step.loop).value());
  return std::ranges::any_of(std::get<std::vector<Found>>(found),
                             [](const Found& f) { return !f.condition.is_plain(); });
}

LoopTree take(LoopTree tree, const PickStep& step) {
  const ItemPlace place = find_loop(tree, step.loop).value();
  const auto found = std::get<std::vector<Found>>(find_conditions(tree, place));
  auto made = PickPhases(tree, place).make(found);
  Loop& loop = loop_at(tree, place);
  change_tasks(loop.body, [&](LoopTask& task) { mark_conditions(task.body, found); });
  const LoopAxis& axis = tree.axes[loop.levels[0].axis];
  const Expr turn = loop.levels[0].turn;
  loop.limit = std::move(made.limits);
  loop.picks = std::move(made.picks);
  loop.bounds.emplace(0, max(1, limit_symbol(axis, 1) * turn));
  loop.parts.push_back({axis.index(), IndexComparison::Kind::Ge, limit_symbol(axis) * turn});
  tree.phases.insert(tree.phases.begin(), std::make_move_iterator(made.phases.begin()),
                     std::make_move_iterator(made.phases.end()));
  return tree;
}

}  // namespace braze
