// The rules of sums: like terms are collected, products are expanded, and divisions are joined with
// the terms from which they were made. Below, c and d are positive, and "d | x" says that d divides
// every value of x.
//
//   c*floordiv(x, d)                     = c/g * floordiv(x, d/g)     if d | x, g = gcd(c, d)
//   x + floordiv(x, d)                   = (d + 1)*floordiv(x, d)     if d | x
//   c*floordiv(x, c) + mod(x, c)         = x                          and any multiple of it
//   x - c*floordiv(x, c)                 = mod(x, c)
//   floordiv(x, c) - d*floordiv(x, c*d)  = mod(floordiv(x, c), d)
//   c*mod(floordiv(x, c), d) + mod(x, c) = mod(x, c*d)
//
// A rule is applied only if it leaves a smaller expression, so that rewriting ends.

#include <algorithm>
#include <numeric>

#include "ir/index/expr_p.h"
#include "ir/index/interval.h"

namespace braze {

namespace {

using Kind = Expr::Kind;
using Node = Expr::Node;

// Rules build expressions, and this applies rules again. In a malicious text they could nest
// without end, and every level multiplies the work. Index maps nest two or three levels deep.
struct Nesting {
  static constexpr int kLimit = 8;
  static thread_local int depth;
  Nesting() { ++depth; }
  ~Nesting() { --depth; }
};
thread_local int Nesting::depth = 0;

/// A floordiv or mod that is a factor of a term: `coefficient * others * atom`.
struct Division {
  size_t term;
  int64_t coefficient;
  Expr others;
  Expr atom;

  Kind kind() const { return node(atom).kind; }
  const Expr& value() const { return node(atom).operands[0]; }
  const Expr& divisor() const { return node(atom).operands[1]; }
};

bool is_division(const Expr& e) {
  return node(e).kind == Kind::FloorDiv || node(e).kind == Kind::Mod;
}

std::vector<Division> divisions_of(const Linear& sum) {
  std::vector<Division> found;
  for (size_t t = 0; t < sum.terms.size(); ++t) {
    const auto& [coefficient, base] = sum.terms[t];
    if (!(node(base).flags & Node::kDivision)) continue;
    const auto atoms = factors(base);
    for (size_t i = 0; i < atoms.size(); ++i) {
      if (is_division(atoms[i])) {
        found.push_back({t, coefficient, without_factor(base, i), atoms[i]});
      }
    }
  }
  return found;
}

/// `sum` without the terms of the divisions.
Linear without(const Linear& sum, std::initializer_list<const Division*> divisions) {
  Linear rest;
  rest.constant = sum.constant;
  for (size_t t = 0; t < sum.terms.size(); ++t) {
    if (std::none_of(divisions.begin(), divisions.end(),
                     [&](const Division* d) { return d->term == t; })) {
      rest.terms.push_back(sum.terms[t]);
    }
  }
  return rest;
}

/// Whether the first term of `e` occurs in `sum` with any coefficient. This is a cheap test before
/// more work is done.
bool shares_first_term(const Linear& sum, const Expr& e) {
  const Expr* first = nullptr;
  for_each_term(e, [&](int64_t, const Expr& base) {
    if (!first) first = &base;
  });
  if (!first) return true;
  return std::any_of(sum.terms.begin(), sum.terms.end(),
                     [&](const Term& t) { return t.base == *first; });
}

/// Replaces `sum` by `candidate` if that has fewer nodes.
bool accept_if_shorter(Linear& sum, Linear&& candidate) {
  const auto length = [](const Linear& s) {
    return std::accumulate(s.terms.begin(), s.terms.end(), size_t{0},
                           [](size_t n, const Term& t) { return n + 1 + node(t.base).size; });
  };
  if (length(candidate) >= length(sum)) return false;
  sum = std::move(candidate);
  return true;
}

/// For c*floordiv(x, d) with d | x: adds the multiples of x in the sum, and reduces the fraction
/// c/d.
bool reduce_exact_quotient(Linear& sum, const Division& f) {
  const auto d = f.divisor().as_constant();
  if (f.kind() != Kind::FloorDiv || !d || node(f.value()).divisor % *d != 0) return false;
  const Expr whole = f.others * f.value();
  for (const Term& t : sum.terms) {
    int64_t c = 0;
    if (!(t.base == whole) || __builtin_mul_overflow(t.coefficient, *d, &c)) continue;
    Linear candidate = sum;
    if (!candidate.try_add(t.base, -t.coefficient) ||
        !candidate.try_add(sum.terms[f.term].base, c)) {
      continue;
    }
    sum = std::move(candidate);
    return true;
  }
  const int64_t g = gcd(f.coefficient, *d);
  if (g == 1) return false;
  Linear reduced = without(sum, {&f});
  reduced.add(f.others * floordiv(f.value(), *d / g), f.coefficient / g);
  sum = std::move(reduced);
  return true;
}

/// Replaces mod(x, d) by x - d*floordiv(x, d) if that cancels terms.
bool expand_mod(Linear& sum, const Division& m, bool has_quotients) {
  if (m.kind() != Kind::Mod) return false;
  const Expr value = m.others * m.value();
  if (!has_quotients && !shares_first_term(sum, value)) return false;
  Linear candidate = without(sum, {&m});
  return candidate.try_add(value, m.coefficient) &&
         try_add_product(candidate, m.others * m.divisor(), floordiv(m.value(), m.divisor()),
                         -m.coefficient) &&
         accept_if_shorter(sum, std::move(candidate));
}

/// Replaces x - d*floordiv(x, d) by mod(x, d). The product is subtracted term by term, because as
/// an Expr this rule would rewrite it too.
bool collapse_to_mod(Linear& sum, const Division& f) {
  if (f.kind() != Kind::FloorDiv) return false;
  Expr lead = f.divisor();
  if (node(lead).kind == Kind::Sum) lead = node(lead).operands[0];
  const std::optional<Expr> times = divide_term(f.coefficient, f.others, lead);
  if (!times) return false;
  const Expr value = *times * f.value();
  if (!shares_first_term(sum, value)) return false;
  Linear candidate = sum;
  return candidate.try_add(value) && try_add_product(candidate, *times * f.divisor(), f.atom, -1) &&
         candidate.try_add(*times * mod(f.value(), f.divisor()), -1) &&
         accept_if_shorter(sum, std::move(candidate));
}

/// floordiv(x, a) - b*floordiv(x, a*b) = mod(floordiv(x, a), b).
bool collapse_quotients(Linear& sum, const Division& fine, const Division& coarse) {
  if (fine.kind() != Kind::FloorDiv || coarse.kind() != Kind::FloorDiv) return false;
  if (fine.term == coarse.term || !(fine.value() == coarse.value())) return false;
  const std::optional<Expr> b = divide_exactly(coarse.divisor(), fine.divisor());
  if (!b) return false;
  const Expr times = fine.coefficient * fine.others;
  Linear candidate = without(sum, {&fine});
  return try_add_product(candidate, times * *b, coarse.atom, 1) &&
         candidate.try_add(times * mod(fine.atom, *b)) &&
         accept_if_shorter(sum, std::move(candidate));
}

/// a*mod(floordiv(x, a) + e, b) + mod(x, a) = mod(x + a*e, a*b).
bool join_mods(Linear& sum, const Division& high, const Division& low) {
  if (high.kind() != Kind::Mod || low.kind() != Kind::Mod || high.term == low.term) return false;
  const Expr* quotient = nullptr;
  for_each_term(high.value(), [&](int64_t c, const Expr& base) {
    const Node& n = node(base);
    if (c == 1 && n.kind == Kind::FloorDiv && n.operands[0] == low.value() &&
        n.operands[1] == low.divisor()) {
      quotient = &base;
    }
  });
  if (!quotient) return false;
  const Expr times = low.coefficient * low.others;
  if (!(times * low.divisor() == high.coefficient * high.others)) return false;
  const Expr e = high.value() - *quotient;
  Linear candidate = without(sum, {&high, &low});
  return candidate.try_add(times *
                           mod(low.value() + low.divisor() * e, low.divisor() * high.divisor())) &&
         accept_if_shorter(sum, std::move(candidate));
}

/// Applies the first rule for sums that matches. Returns false if none does.
bool rewrite_sum(Linear& sum) {
  const std::vector<Division> divisions = divisions_of(sum);
  for (const Division& a : divisions) {
    if (reduce_exact_quotient(sum, a)) return true;
  }
  if (sum.terms.size() < 2) return false;
  const bool has_quotients = std::any_of(divisions.begin(), divisions.end(),
                                         [](const auto& d) { return d.kind() == Kind::FloorDiv; });
  for (const Division& a : divisions) {
    if (expand_mod(sum, a, has_quotients) || collapse_to_mod(sum, a)) return true;
  }
  for (const Division& a : divisions) {
    for (const Division& b : divisions) {
      if (collapse_quotients(sum, a, b) || join_mods(sum, a, b)) return true;
    }
  }
  return false;
}

void rewrite(Linear& sum) {
  constexpr size_t kMaxRewritten = 64;
  if (sum.terms.size() > kMaxRewritten || Nesting::depth >= Nesting::kLimit) return;
  if (std::none_of(sum.terms.begin(), sum.terms.end(), [](const Term& t) {
        return std::any_of(factors(t.base).begin(), factors(t.base).end(), is_division);
      })) {
    return;
  }
  const Nesting nesting;
  while (rewrite_sum(sum)) {
  }
}

}  // namespace

Linear::Linear(const Expr& e) {
  constant = for_each_term(e, [&](int64_t coefficient, const Expr& base) {
    terms.push_back({coefficient, base});
  });
}

bool Linear::try_add(const Expr& e, int64_t scale) {
  if (scale == 0) return true;
  std::vector<Term> merged;
  bool fits = true;
  auto mine = terms.begin();
  const int64_t k = for_each_term(e, [&](int64_t coefficient, const Expr& base) {
    fits &= !__builtin_mul_overflow(coefficient, scale, &coefficient);
    int order = -1;
    while (mine != terms.end() && (order = compare(mine->base, base)) < 0) {
      merged.push_back(std::move(*mine++));
    }
    if (mine == terms.end() || order > 0) {
      merged.push_back({coefficient, base});
      return;
    }
    fits &= !__builtin_add_overflow(mine->coefficient, coefficient, &coefficient);
    if (coefficient != 0) merged.push_back({coefficient, base});
    ++mine;
  });
  std::move(mine, terms.end(), std::back_inserter(merged));
  terms = std::move(merged);
  int64_t scaled = 0;
  fits &= !__builtin_mul_overflow(k, scale, &scaled);
  fits &= !__builtin_add_overflow(constant, scaled, &constant);
  return fits;
}

void Linear::add(const Expr& e, int64_t scale) {
  if (!try_add(e, scale)) fail_overflow();
}

void Linear::add(int64_t coefficient, const Expr& base) { add(base, coefficient); }

bool try_add_product(Linear& sum, const Expr& a, const Expr& b, int64_t scale) {
  const Linear x(a);
  const Linear y(b);
  if (x.terms.size() * y.terms.size() > kMaxTerms) fail_too_large();
  const auto add = [&](int64_t s, int64_t t, const Expr& base) {
    return !__builtin_mul_overflow(s, t, &s) && !__builtin_mul_overflow(s, scale, &s) &&
           sum.try_add(base, s);
  };
  bool fits = add(x.constant, y.constant, 1);
  for (const Term& s : x.terms) {
    for (const Term& t : y.terms) {
      fits = fits && add(s.coefficient, t.coefficient, multiply_bases(s.base, t.base));
    }
    fits = fits && add(s.coefficient, y.constant, s.base);
  }
  for (const Term& t : y.terms) fits = fits && add(t.coefficient, x.constant, t.base);
  return fits;
}

namespace {

/// A factor that all terms have, if there is one.
std::optional<Expr> common_factor(const Linear& sum) {
  for (const Expr& factor : factors(sum.terms[0].base)) {
    const bool common = std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& t) {
      const auto all = factors(t.base);
      return std::find(all.begin(), all.end(), factor) != all.end();
    });
    if (common) return factor;
  }
  return std::nullopt;
}

/// Narrows the range of a sum by a common factor: n*n - n is n times n - 1, which is not negative.
Interval factored_range(const Linear& sum, Interval range) {
  if (sum.constant != 0) return range;
  const std::optional<Expr> factor = common_factor(sum);
  if (!factor) return range;
  Linear rest;
  for (const Term& t : sum.terms) {
    const std::optional<Expr> quotient = divide_exactly(t.base, *factor);
    if (!quotient || !rest.try_add(*quotient, t.coefficient)) return range;
  }
  const Interval product = multiply(node(*factor).range, node(std::move(rest).build()).range);
  return {std::max(range.min, product.min), std::min(range.max, product.max)};
}

}  // namespace

Expr Linear::build() && {
  rewrite(*this);
  if (terms.empty()) return constant;
  if (terms.size() == 1 && constant == 0) {
    return make_term(terms[0].coefficient, terms[0].base);
  }
  if (terms.size() > kMaxTerms) fail_too_large();
  Node n;
  n.kind = Kind::Sum;
  n.range = Interval::point(constant);
  n.divisor = node(Expr(constant)).divisor;
  n.operands.reserve(terms.size() + 1);
  for (const auto& [coefficient, base] : terms) {
    n.operands.push_back(make_term(coefficient, base));
    n.range = braze::add(n.range, node(n.operands.back()).range);
    n.divisor = gcd(n.divisor, node(n.operands.back()).divisor);
  }
  if (constant != 0) n.operands.push_back(constant);
  n.range = factored_range(*this, n.range);
  return make(std::move(n));
}

Expr operator+(const Expr& a, const Expr& b) {
  if (b.is_constant(0)) return a;
  if (a.is_constant(0)) return b;
  Linear sum(a);
  sum.add(b);
  return std::move(sum).build();
}

Expr operator-(const Expr& a, const Expr& b) {
  if (b.is_constant(0)) return a;
  Linear sum(a);
  sum.add(b, -1);
  return std::move(sum).build();
}

Expr operator-(const Expr& a) {
  Linear sum;
  sum.add(a, -1);
  return std::move(sum).build();
}

Expr operator*(const Expr& a, const Expr& b) {
  if (const auto factor = b.as_constant()) {
    if (*factor == 1) return a;
    Linear product;
    product.add(a, *factor);
    return std::move(product).build();
  }
  if (a.as_constant()) return b * a;
  Linear product;
  if (!try_add_product(product, a, b, 1)) fail_overflow();
  return std::move(product).build();
}

}  // namespace braze
