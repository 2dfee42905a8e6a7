// Proofs about expressions, which find out more than the interval that every node has.
//
// A proof of e >= 0 looks for the least value of e. While the interval of e does not decide it:
//
//   1. If e only grows, or only falls, with one symbol, that symbol takes its least or greatest
//      value, which may be symbolic (i <= n - 1). This loses nothing if no symbol is left whose
//      bounds depend on it.
//   2. k*min(a, b) + r with k > 0 is never below 0 if neither k*a + r nor k*b + r is. With k < 0,
//   it
//      is enough that one of them is not. For max it is the other way round.
//   3. k*floordiv(x, c) + r is compared after multiplication by c, where c*floordiv(x, c) lies in
//      [x - c + 1, x].
//   4. k*mod(x, c) + r is not below the lesser of r and k*(c - 1) + r.
//   5. In a polynomial of sizes, such as n*n - 2*n + 1 for n >= 2, each size is replaced by its
//   least
//      value plus a new symbol (here n = m + 2, which gives m*m + 2*m + 1). If no coefficient is
//      negative, intervals are exact enough.
//
// Every step costs fuel, so a proof that takes too long is given up.

#include <algorithm>
#include <optional>
#include <set>

#include "ir/index/expr_p.h"
#include "ir/index/interval.h"

namespace braze {

namespace {

using Kind = Expr::Kind;
using Node = Expr::Node;

/// How an expression changes when a symbol grows.
enum class Direction : uint8_t { None, Up, Down, Unknown };

Direction join(Direction a, Direction b) {
  if (a == Direction::None || a == b) return b;
  return b == Direction::None ? a : Direction::Unknown;
}

Direction flip(Direction d) {
  if (d == Direction::Up) return Direction::Down;
  return d == Direction::Down ? Direction::Up : d;
}

Direction direction(const Expr& e, const std::string& symbol) {
  const Node& n = node(e);
  switch (n.kind) {
    case Kind::Constant:
      return Direction::None;
    case Kind::Symbol:
      return n.name == symbol ? Direction::Up : Direction::None;
    case Kind::Sum:
    case Kind::Min:
    case Kind::Max: {
      Direction d = Direction::None;
      for (const Expr& operand : n.operands) d = join(d, direction(operand, symbol));
      return d;
    }
    case Kind::FloorDiv: {
      if (n.operands[1].uses(symbol)) return Direction::Unknown;
      return direction(n.operands[0], symbol);
    }
    case Kind::Mod:
      return e.uses(symbol) ? Direction::Unknown : Direction::None;
    case Kind::Product: {
      // A product is monotone if its factors are, if none of them changes its sign, and if all of
      // them change the product in the same direction.
      Direction d = Direction::None;
      bool negative = false;
      int moving = 0;
      bool all_positive = true;
      for (const Expr& factor : n.operands) {
        const Interval r = node(factor).range;
        const Direction f = direction(factor, symbol);
        if (f != Direction::None) {
          ++moving;
          d = join(d, f);
          all_positive &= r.min >= 0;
        } else if (r.max <= 0) {
          negative = !negative;
        } else if (r.min < 0) {
          // A factor that may have either sign is allowed only if no other factor changes.
          if (e.uses(symbol)) return Direction::Unknown;
        }
      }
      if (moving > 1 && !all_positive) return Direction::Unknown;
      return negative ? flip(d) : d;
    }
  }
  return Direction::Unknown;
}

/// The steps that a proof may take. Proofs build expressions, and building an expression may start
/// another proof. A proof inside another one gets fewer steps, and a proof inside of that gets
/// none.
class Fuel {
 public:
  Fuel() : steps_(depth == 0 ? 64 : depth == 1 ? 6 : 0) { ++depth; }
  ~Fuel() { --depth; }
  Fuel(const Fuel&) = delete;
  Fuel& operator=(const Fuel&) = delete;

  bool take() { return steps_ > 0 && steps_-- > 0; }

 private:
  static thread_local int depth;
  int steps_;
};
thread_local int Fuel::depth = 0;

class Prover {
 public:
  explicit Prover(Bounds bounds) : bounds_(bounds) {}

  bool nonnegative(const Expr& e, int depth = 0) {
    const Node& n = node(e);
    if (n.range.min >= 0) return true;
    if (n.range.max < 0 && bounds_.empty()) return false;
    // The interval of a sum of plain symbols is exact, so there is nothing more to find out.
    if (n.flags == 0 && bounds_.empty()) return false;
    if (depth > kMaxDepth || !fuel_.take()) return false;

    if (const std::optional<Expr> next = eliminate(e)) return nonnegative(*next, depth + 1);
    if (depth == 0 && above_least_values(e)) return true;

    bool decided = false;
    for_each_term(e, [&](int64_t coefficient, const Expr& base) {
      if (decided) return;
      const auto atoms = factors(base);
      for (size_t i = 0; i < atoms.size() && !decided; ++i) {
        const Kind kind = node(atoms[i]).kind;
        if (kind == Kind::Symbol) continue;
        Expr times = coefficient;
        for (size_t j = 0; j < atoms.size(); ++j) {
          if (j != i) times *= atoms[j];
        }
        const Interval sign = node(times).range;
        if (sign.min < 0 && sign.max > 0) continue;
        decided = kind == Kind::Min || kind == Kind::Max
                      ? by_cases(e, atoms[i], times, sign.min >= 0, depth)
                      : by_relaxation(e, atoms[i], times, sign.min >= 0, depth);
      }
    });
    return decided;
  }

  /// Replaces a symbol of `e` by its least or greatest value, where `e` is least. Nullopt if no
  /// symbol allows it.
  std::optional<Expr> eliminate(const Expr& e) {
    std::set<std::string> seen;
    std::optional<Expr> result;
    const auto visit = [&](const auto& self, const Expr& part) -> void {
      if (result) return;
      const Node& n = node(part);
      for (const Expr& operand : n.operands) self(self, operand);
      if (n.kind != Kind::Symbol || result || !seen.insert(n.name).second) return;
      if (is_bound_of_another(e, n.name)) return;
      const Direction d = direction(e, n.name);
      if (d != Direction::Up && d != Direction::Down) return;
      if (const auto bound = bound_of(n, d == Direction::Up)) result = e.substitute(n.name, *bound);
    };
    visit(visit, e);
    return result;
  }

 private:
  static constexpr int kMaxDepth = 24;

  /// The least or the greatest value of a symbol.
  std::optional<Expr> bound_of(const Node& symbol, bool least) const {
    for (const SymbolBound& bound : bounds_) {
      if (bound.name == symbol.name) return least ? bound.min : bound.max;
    }
    if (!least && !ExprBuilder::is_null(symbol.extent)) return symbol.extent - 1;
    const int64_t end = least ? symbol.range.min : symbol.range.max;
    if (end == (least ? INT64_MIN : INT64_MAX)) return std::nullopt;
    return end;
  }

  /// Whether the bounds of another symbol in `e` use `name`, directly or through others.
  bool is_bound_of_another(const Expr& e, const std::string& name, int depth = 0) const {
    if (depth > kMaxDepth) return true;  // the bounds may be circular
    const Node& n = node(e);
    if (n.kind != Kind::Symbol) {
      return std::any_of(n.operands.begin(), n.operands.end(), [&](const Expr& operand) {
        return is_bound_of_another(operand, name, depth);
      });
    }
    const auto mentions = [&](const Expr& bound) {
      return bound.uses(name) || is_bound_of_another(bound, name, depth + 1);
    };
    if (!ExprBuilder::is_null(n.extent) && mentions(n.extent)) return true;
    return std::any_of(bounds_.begin(), bounds_.end(), [&](const SymbolBound& b) {
      return b.name == n.name && (mentions(b.min) || mentions(b.max));
    });
  }

  /// Step 5, for sums of products of sizes.
  static bool above_least_values(const Expr& e) {
    std::unordered_map<std::string, Expr> shifted;
    bool polynomial = false;
    const auto visit = [&](const auto& self, const Expr& part) -> void {
      const Node& n = node(part);
      polynomial = polynomial || (n.kind == Kind::Product && factors(part).size() > 1);
      for (const Expr& operand : n.operands) self(self, operand);
      if (n.kind != Kind::Symbol || n.range.min == INT64_MIN || n.range.max == INT64_MAX) return;
      const Interval above{0, n.range.max - n.range.min};
      shifted.emplace(n.name, Expr::symbol(n.name + ".above", above) + n.range.min);
    };
    visit(visit, e);
    return polynomial && node(e.substitute(shifted)).range.min >= 0;
  }

  bool by_cases(const Expr& e, const Expr& choice, const Expr& times, bool positive, int depth) {
    const bool needs_all = positive == (node(choice).kind == Kind::Min);
    const Expr others = e - times * choice;
    for (const Expr& alternative : node(choice).operands) {
      if (nonnegative(others + times * alternative, depth + 1) != needs_all) return !needs_all;
    }
    return needs_all;
  }

  bool by_relaxation(const Expr& e, const Expr& division, const Expr& times, bool positive,
                     int depth) {
    const Expr& x = node(division).operands[0];
    const Expr& c = node(division).operands[1];
    const Expr others = e - times * division;
    if (node(division).kind == Kind::Mod) {
      return nonnegative(positive ? others : others + times * (c - 1), depth + 1);
    }
    if (!c.as_constant()) return false;  // each step would multiply by a symbol
    // e is an integer, so e >= 0 follows from c*e >= 1 - c.
    return nonnegative(c * others + (c - 1) + times * (positive ? x - (c - 1) : x), depth + 1);
  }

  Bounds bounds_;
  Fuel fuel_;
};

/// `b - a`, unless a coefficient overflows.
std::optional<Expr> difference(const Expr& b, const Expr& a) {
  Linear d(b);
  if (!d.try_add(a, -1)) return std::nullopt;
  return std::move(d).build();
}

}  // namespace

bool proves_nonnegative(const Expr& e, Bounds bounds) {
  // A proof multiplies and substitutes. If that overflows, nothing is proven.
  try {
    return Prover(bounds).nonnegative(e);
  } catch (const Error& error) {
    if (error.code().name != codes::kIndexOverflow.name &&
        error.code().name != codes::kIndexTooLarge.name) {
      throw;
    }
    return false;
  }
}

bool proves_at_most(const Expr& a, const Expr& b) {
  if (node(a).range.max <= node(b).range.min) return true;
  const std::optional<Expr> d = difference(b, a);
  return d && proves_nonnegative(*d);
}

std::optional<bool> proves_less(const Expr& a, const Expr& b) {
  if (node(a).range.max < node(b).range.min) return true;
  if (node(a).range.min >= node(b).range.max) return false;
  const std::optional<Expr> d = difference(b, a);
  if (!d) return std::nullopt;
  if (const auto strict = difference(*d, 1); strict && proves_nonnegative(*strict)) return true;
  if (const auto reversed = difference(0, *d); reversed && proves_nonnegative(*reversed)) {
    return false;
  }
  return std::nullopt;
}

bool proves_in_bounds(const Expr& index, const Expr& extent, std::span<const SymbolBound> bounds) {
  const std::optional<Expr> room = difference(extent, index);
  const std::optional<Expr> last = room ? difference(*room, 1) : std::nullopt;
  return last && proves_nonnegative(index, bounds) && proves_nonnegative(*last, bounds);
}

Interval Expr::range() const {
  Interval range = node_->range;
  if (!(node_->flags & Node::kExtent)) return range;
  // The interval was computed from numeric ranges. Symbolic extents may make it smaller.
  try {
    Prover prover({});
    std::optional<Expr> least = *this;
    std::optional<Expr> most = -*this;
    for (int steps = 0; steps < 16 && (least || most); ++steps) {
      if (least && (least = prover.eliminate(*least))) {
        range.min = std::max(range.min, node(*least).range.min);
      }
      if (most && (most = prover.eliminate(*most))) {
        range.max = std::min(range.max, scale(node(*most).range, -1).max);
      }
    }
  } catch (const Error&) {
    // The expression is too large for proofs, so the numeric interval stays.
  }
  return range;
}

}  // namespace braze
