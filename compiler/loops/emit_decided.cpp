// emit_decided.cpp — in which turns of a loop the conditions of its parts are decided, so that
// tasks need not evaluate them (E13).
#include <algorithm>

#include "compiler/loops/emit_p.h"
#include "ir/support/text.h"

namespace braze {

// The constants at which the conditions of a loop's parts become true, in order, if all of them
// compare the index of the loop with a constant above its first turn, and if it is known how the
// turns lie to these constants. Empty otherwise.
std::vector<int64_t> TreeEmitter::boundaries_of(const Stream& stream) const {
  std::vector<int64_t> out;
  const auto [axis, length] = stream.loop.levels[0];
  const auto first = stream.first().as_constant(), last = stream.last().as_constant();
  const bool aligned = stream.first().is_multiple_of(length) && proves_at_most(0, stream.first());
  if (!stream.by_axis || (!first && !aligned)) return {};
  for (const IndexComparison& part : stream.loop.parts) {
    const auto boundary = part.right.as_constant();
    if (part.kind != IndexComparison::Kind::Ge || !(part.left == tree_.axes[axis].index()) ||
        !boundary || *boundary <= first.value_or(0) || (last && *boundary >= *last))
      return {};
    out.push_back(*boundary);
  }
  std::ranges::sort(out);
  return out;
}

// Whether the condition says that the axis has not ended.
bool TreeEmitter::is_tail(const IndexComparison& part, size_t axis) const {
  return part == before_end(tree_.axes[axis]);
}

// Whether those comparisons hold here that are true in some turns of a loop around.
bool TreeEmitter::keeps_comparisons() const {
  return std::ranges::any_of(decided_, [](const IndexComparison& part) {
    const auto is_limit = [](const std::string& symbol) {
      return symbol.find(".limit") != std::string::npos;
    };
    return std::ranges::any_of(part.left.symbols(), is_limit) ||
           std::ranges::any_of(part.right.symbols(), is_limit);
  });
}

bool TreeEmitter::is_decided(const IndexComparison& part) const {
  return std::find(decided_.begin(), decided_.end(), part) != decided_.end();
}

// Whether a condition that holds here implies that the axis has not ended. It does if it is `axis
// <= other` and the other axis is not longer than this one, since its turns begin before its end.
bool TreeEmitter::is_implied(size_t axis) const {
  return std::any_of(decided_.begin(), decided_.end(), [&](const IndexComparison& part) {
    using Kind = IndexComparison::Kind;
    const bool less = part.kind == Kind::Lt || part.kind == Kind::Le;
    if (part.kind == Kind::Eq || part.kind == Kind::Ne) return false;
    const Expr above = less ? part.left - part.right : part.right - part.left;
    for (size_t other = 0; other < tree_.axes.size(); ++other) {
      if (other == axis || !above.uses(name_of(other))) continue;
      // the condition: axis - other + distance <= 0
      const Expr distance = above - tree_.axes[axis].index() + tree_.axes[other].index();
      if (distance.uses(name_of(axis)) || distance.uses(name_of(other))) return false;
      return proves_at_most(tree_.axes[other].extent, tree_.axes[axis].extent + distance);
    }
    return false;
  });
}

namespace {

constexpr std::string_view kUnfitPart =
    "the condition of a part must be affine, and must stay true once it is true";

}  // namespace

// An index over the stream's axis that is at most 0 where the condition holds for all indices that
// the present turns of other axes take. The condition is affine.
Expr TreeEmitter::above(const Stream& stream, const IndexComparison& part) const {
  const auto unfit = [&] { refuse(stream.loop.location, std::string(kUnfitPart)); };
  using Kind = IndexComparison::Kind;
  const bool less = part.kind == Kind::Lt || part.kind == Kind::Le;
  if (part.kind == Kind::Eq || part.kind == Kind::Ne) unfit();
  Expr out = less ? part.left - part.right : part.right - part.left;
  if (part.kind == Kind::Lt || part.kind == Kind::Gt) out = out + 1;
  for (size_t axis = 0; axis < tree_.axes.size(); ++axis) {
    const auto slope = out.coefficient_of(name_of(axis));
    if (!slope || !slope->as_constant()) unfit();
    const int64_t by = *slope->as_constant();
    if (by == 0 || axis == stream.loop.levels[0].axis) continue;
    const Expr last = shared_[axis].begin + (by > 0 ? extent_of(axis, shared_) - 1 : 0);
    out = out.substitute(name_of(axis), last);
  }
  return out;
}

// The number of turns at the beginning in which a condition is not decided. The condition becomes
// true in some turn and remains true in all later ones.
Expr TreeEmitter::undecided(const Stream& stream, const IndexComparison& part) const {
  Expr above = this->above(stream, part);
  const auto [own, turn] = stream.loop.levels[0];
  const int64_t by = above.coefficient_of(name_of(own))->as_constant().value();
  const int64_t growth = stream.loop.down ? -by * turn : by * turn;
  if (growth >= 0) refuse(stream.loop.location, std::string(kUnfitPart));
  above = above.substitute(name_of(own), stream.begin(stream.first()) + (by > 0 ? turn - 1 : 0));
  const Expr count = max(0, ceildiv(above, -growth)).substitute(now_around(stream.loop));
  return stream.nonempty && count.is_constant(1) ? count : min(count, stream.turns);
}

// The number of turns at the beginning in which the conditions of the loop are not decided.
Expr TreeEmitter::undecided(const Stream& stream) const {
  if (stream.behind) return stream.masked;
  return stream.loop.parts.empty() ? Expr(0) : undecided(stream, stream.loop.parts[0]);
}

// Runs `body`; if `decided`, the conditions of the loop hold in it.
void TreeEmitter::in_decided(const Stream& stream, bool decided,
                             const std::function<void()>& body) {
  if (!decided) return body();
  const size_t axis = stream.loop.levels[0].axis;
  const size_t before = decided_.size();
  decided_.insert(decided_.end(), stream.loop.parts.begin(), stream.loop.parts.end());
  if (stream.behind || stream.loop.picks) decided_.push_back(before_end(tree_.axes[axis]));
  body();
  decided_.resize(before);
}

// Whether the turns in which the conditions of a loop are decided may lie in its middle: a
// condition ends them and another one begins them, or an earlier phase has found where they begin
// and end.
bool TreeEmitter::begins_in_middle(const Loop& loop) const {
  if (loop.parts.size() < 2 || loop.levels.size() != 1) return false;
  const auto slope = [&](const IndexComparison& part) -> int64_t {
    using Kind = IndexComparison::Kind;
    const auto by = (part.left - part.right).coefficient_of(name_of(loop.levels[0].axis));
    if (!by || !by->as_constant() || part.kind == Kind::Eq || part.kind == Kind::Ne) return 0;
    const bool less = part.kind == Kind::Lt || part.kind == Kind::Le;
    return less ? *by->as_constant() : -*by->as_constant();
  };
  const auto rises = [&](const IndexComparison& part) { return slope(part) > 0; };
  const auto falls = [&](const IndexComparison& part) { return slope(part) < 0; };
  return std::ranges::any_of(loop.parts, rises) && std::ranges::any_of(loop.parts, falls);
}

// Finds the turns in the middle of a loop in which all of its conditions are decided.
void TreeEmitter::keep_middle(Stream& stream) {
  const Loop& loop = stream.loop;
  const auto [axis, turn] = loop.levels[0];
  if (loop.down) refuse(loop.location, "a loop whose conditions are decided in its middle runs up");
  const auto now = now_around(loop);
  Expr first = stream.low, end = tree_.axes[axis].extent;
  for (const IndexComparison& part : loop.parts) {
    const Expr above = this->above(stream, part);
    const int64_t by = above.coefficient_of(name_of(axis))->as_constant().value();
    // by * index + rest <= 0
    const Expr rest = above.substitute(name_of(axis), 0).substitute(now);
    if (by > 0)
      end = min(end, floordiv(-rest, by) + 1);
    else if (by < 0)
      first = max(first, ceildiv(rest, -by));
    else
      refuse(loop.location, std::string(kUnfitPart));
  }
  const bool nonempty = stream.nonempty;
  stream.low = builder_.let("low", stream.low);
  stream.turns = builder_.let("turns", stream.turns);
  const Expr begins = max(0, ceildiv(first - stream.low, turn));
  stream.behind =
      builder_.let("behind", max(0, min(stream.turns, floordiv(end - stream.low, turn))));
  stream.masked =
      builder_.let("masked", stream.turns - max(0, *stream.behind - min(begins, stream.turns)));
  stream.nonempty = nonempty || (tree_.roles && surely_has_turn(loop));
}

}  // namespace braze
