// The rules of min and max: nested ones are flattened, alternatives that cannot win are dropped,
// and a term or factor that all alternatives share is taken out.

#include <algorithm>

#include "ir/index/expr_p.h"

namespace braze {

namespace {

using Kind = Expr::Kind;
using Node = Expr::Node;

/// min if `sign` is 1, max if -1: the alternative for which sign * value is least.
Expr extreme(std::vector<Expr> alternatives, int sign) {
  BRAZE_CHECK(!alternatives.empty(), "min and max need at least one operand");
  const Kind kind = sign > 0 ? Kind::Min : Kind::Max;
  std::vector<Expr> all;
  for (Expr& e : alternatives) {
    if (node(e).kind == kind) {
      all.insert(all.end(), node(e).operands.begin(), node(e).operands.end());
    } else {
      all.push_back(std::move(e));
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() > kMaxTerms) fail_too_large();

  // An alternative is dropped if another one is never worse. Of two equal alternatives, the first
  // stays.
  constexpr size_t kMaxCompared = 32;
  const auto never_worse = [&](const Expr& a, const Expr& b) {
    return sign > 0 ? proves_at_most(a, b) : proves_at_most(b, a);
  };
  for (size_t i = 0; i < all.size() && all.size() <= kMaxCompared;) {
    bool beaten = false;
    for (size_t j = 0; j < all.size() && !beaten; ++j) {
      beaten = i != j && never_worse(all[j], all[i]) && !(i < j && never_worse(all[i], all[j]));
    }
    if (beaten) {
      all.erase(all.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  if (all.size() == 1) return std::move(all.front());

  // Terms that all alternatives share are taken out, and so is a common factor of what remains.
  Linear shared(all.front());
  for (size_t i = 1; i < all.size(); ++i) {
    const Linear other(all[i]);
    std::erase_if(shared.terms, [&](const Term& t) {
      return std::none_of(other.terms.begin(), other.terms.end(), [&](const Term& o) {
        return o.coefficient == t.coefficient && o.base == t.base;
      });
    });
    if (other.constant != shared.constant) shared.constant = 0;
  }
  int64_t factor = 0;
  bool negative = true;
  for (Expr& e : all) {
    Linear rest(e);
    if (!rest.try_add(std::move(Linear(shared)).build(), -1)) fail_overflow();
    factor = gcd(factor, rest.constant);
    negative &= rest.constant <= 0 && rest.constant != INT64_MIN;
    for (const Term& t : rest.terms) {
      factor = gcd(factor, t.coefficient);
      negative &= t.coefficient < 0 && t.coefficient != INT64_MIN;
    }
    e = std::move(rest).build();
  }
  if (factor == 0) factor = 1;
  if (negative) factor = -factor;
  if (!shared.terms.empty() || shared.constant != 0 || factor != 1) {
    for (Expr& e : all) {
      Linear rest(e);
      for (Term& t : rest.terms) t.coefficient /= factor;
      rest.constant /= factor;
      e = std::move(rest).build();
    }
    Linear result = std::move(shared);
    result.add(extreme(std::move(all), negative ? -sign : sign), factor);
    return std::move(result).build();
  }

  Node n;
  n.kind = kind;
  n.flags = Node::kChoice;
  n.divisor = 0;
  n.range = node(all.front()).range;
  for (const Expr& e : all) {
    const Interval r = node(e).range;
    n.divisor = gcd(n.divisor, node(e).divisor);
    n.range.min = sign > 0 ? std::min(n.range.min, r.min) : std::max(n.range.min, r.min);
    n.range.max = sign > 0 ? std::min(n.range.max, r.max) : std::max(n.range.max, r.max);
  }
  n.operands = std::move(all);
  return make(std::move(n));
}

}  // namespace

Expr min(std::span<const Expr> alternatives) {
  return extreme({alternatives.begin(), alternatives.end()}, 1);
}
Expr max(std::span<const Expr> alternatives) {
  return extreme({alternatives.begin(), alternatives.end()}, -1);
}
Expr min(const Expr& a, const Expr& b) { return extreme({a, b}, 1); }
Expr max(const Expr& a, const Expr& b) { return extreme({a, b}, -1); }

}  // namespace braze
