// The canonical form and the rules that lead to it. Below, c and d are positive, k is an integer
// and "k | x" says that k divides every value of x.
//
//   sums         like terms are collected, products of sums are expanded
//                c*floordiv(x, d)                     = c/g * floordiv(x, d/g)   if d | x, g = gcd
//                x + floordiv(x, d)                   = (d + 1)*floordiv(x, d)   if d | x
//                c*floordiv(x, c) + mod(x, c)         = x              (and any multiple of it)
//                x - c*floordiv(x, c)                 = mod(x, c)
//                floordiv(x, c) - d*floordiv(x, c*d)  = mod(floordiv(x, c), d)
//                c*mod(floordiv(x, c), d) + mod(x, c) = mod(x, c*d)
//   floordiv     floordiv(c*a + b, c)                 = a + floordiv(b, c)
//                floordiv(g*a + b, g*c)               = floordiv(a, c)           if 0 <= b < g
//                floordiv(floordiv(x, c) + y, d)      = floordiv(x + c*y, c*d)
//                floordiv(mod(x, c*d), c)             = mod(floordiv(x, c), d)
//                floordiv(x, c)                       = k              if k*c <= x < k*c + c
//   mod          mod(c*a + b, c)                      = mod(b, c)
//                mod(g*a + b, g*c)                    = g*mod(a, c) + b          if 0 <= b < g
//                mod(mod(x, c*d) + y, c)              = mod(x + y, c)
//                mod(x, c)                            = x - k*c        if k*c <= x < k*c + c
//   min, max     nested ones are flattened, alternatives that cannot win are dropped, terms and
//                factors that all alternatives share are taken out
//
// Divisors may be symbolic wherever a rule names them by a letter. A rule for sums is applied only
// if it leaves a smaller expression, so that rewriting ends.

#include "ir/index/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "ir/index/expr_p.h"
#include "ir/index/interval.h"
#include "ir/support/hash.h"

namespace braze {

namespace {

using Kind = Expr::Kind;
using Node = Expr::Node;

// Far beyond what index maps need; they bound the work that a hostile text can cause.
constexpr size_t kMaxTerms = 2048;
constexpr size_t kMaxFactors = 64;
constexpr uint32_t kMaxSize = 50'000;
constexpr uint16_t kMaxDepth = 400;

[[noreturn]] void fail_overflow() {
  fail(codes::kIndexOverflow, "a constant of the index expression does not fit 64 bits");
}

[[noreturn]] void fail_too_large() {
  fail(codes::kIndexTooLarge, "the index expression has too many terms");
}

int64_t checked_add(int64_t a, int64_t b) {
  if (__builtin_add_overflow(a, b, &a)) fail_overflow();
  return a;
}

/// gcd of magnitudes; 0 is a multiple of everything. 2^63 becomes 2^62, which divides it.
int64_t gcd(int64_t a, int64_t b) {
  if (a == INT64_MIN) a = int64_t{1} << 62;
  if (b == INT64_MIN) b = int64_t{1} << 62;
  return std::gcd(a, b);
}

/// A divisor of all values `a * b`, given divisors of the values `a` and `b`.
int64_t product_divisor(int64_t a, int64_t b) {
  if (a == INT64_MIN) a = int64_t{1} << 62;
  if (b == INT64_MIN) b = int64_t{1} << 62;
  int64_t product = 0;
  if (__builtin_mul_overflow(std::abs(a), std::abs(b), &product)) {
    return std::max(std::abs(a), std::abs(b));
  }
  return product;
}

Expr make(Node&& n) {
  uint64_t hash = hash_combine(static_cast<uint64_t>(n.kind), static_cast<uint64_t>(n.value));
  uint64_t size = 1;
  for (const Expr& operand : n.operands) {
    const Node& o = node(operand);
    hash = hash_combine(hash, o.hash);
    n.flags |= o.flags;
    n.depth = std::max<uint16_t>(n.depth, o.depth + 1);
    size += o.size;
  }
  if (n.kind == Kind::Symbol) hash = hash_combine(hash, hash64(n.name));
  if (size > kMaxSize || n.depth > kMaxDepth) fail_too_large();
  n.hash = hash;
  n.size = static_cast<uint32_t>(size);
  n.range = round_to_multiples(n.range, n.divisor);
  return ExprBuilder::wrap(std::make_shared<const Node>(std::move(n)));
}

Expr make_constant(int64_t value) {
  Node n;
  n.kind = Kind::Constant;
  n.value = value;
  n.range = Interval::point(value);
  n.divisor = value == INT64_MIN ? int64_t{1} << 62 : std::abs(value);
  return make(std::move(n));
}

/// The constants that make up most operands are made once and never freed.
const Expr& constant(int64_t value, Expr& storage) {
  constexpr int64_t kFirst = -64;
  constexpr int64_t kLast = 1024;
  static const auto& cache = *[] {
    auto* all = new std::vector<Expr>;
    for (int64_t v = kFirst; v <= kLast; ++v) all->push_back(make_constant(v));
    return all;
  }();
  if (kFirst <= value && value <= kLast) return cache[static_cast<size_t>(value - kFirst)];
  return storage = make_constant(value);
}

/// A product of atoms, given in order.
Expr make_product(std::vector<Expr> atoms) {
  if (atoms.empty()) return 1;
  if (atoms.size() == 1) return std::move(atoms.front());
  if (atoms.size() > kMaxFactors) fail_too_large();
  Node n;
  n.kind = Kind::Product;
  n.flags = Node::kProduct;
  n.value = 1;
  n.range = Interval::point(1);
  for (size_t i = 0; i < atoms.size();) {
    size_t power = 0;
    Interval range = Interval::point(1);
    for (size_t j = i; j < atoms.size() && atoms[j] == atoms[i]; ++j, ++power) {
      range = multiply(range, node(atoms[i]).range);
      n.divisor = product_divisor(n.divisor, node(atoms[i]).divisor);
    }
    if (power % 2 == 0) range.min = std::max<int64_t>(range.min, 0);
    n.range = multiply(n.range, range);
    i += power;
  }
  n.operands = std::move(atoms);
  return make(std::move(n));
}

Expr make_term(int64_t coefficient, const Expr& base) {
  if (coefficient == 1) return base;
  const std::span<const Expr> atoms = factors(base);
  Node n;
  n.kind = Kind::Product;
  n.flags = node(base).flags;
  n.value = coefficient;
  n.range = scale(node(base).range, coefficient);
  n.divisor = product_divisor(coefficient, node(base).divisor);
  n.operands.reserve(atoms.size() + 1);
  n.operands.push_back(coefficient);
  n.operands.insert(n.operands.end(), atoms.begin(), atoms.end());
  n.rest = base;
  return make(std::move(n));
}

/// The product of two bases.
Expr multiply_bases(const Expr& a, const Expr& b) {
  const auto x = factors(a);
  const auto y = factors(b);
  std::vector<Expr> atoms(x.size() + y.size());
  std::merge(x.begin(), x.end(), y.begin(), y.end(), atoms.begin());
  return make_product(std::move(atoms));
}

/// The base without its factor at `index`.
Expr without_factor(const Expr& base, size_t index) {
  const auto atoms = factors(base);
  std::vector<Expr> rest(atoms.begin(), atoms.end());
  rest.erase(rest.begin() + static_cast<ptrdiff_t>(index));
  return make_product(std::move(rest));
}

/// `coefficient * base` divided by `d`, if `d` is a single term that divides it exactly.
std::optional<Expr> divide_term(int64_t coefficient, const Expr& base, const Expr& d) {
  int64_t by = 1;
  std::span<const Expr> atoms;
  switch (node(d).kind) {
    case Kind::Sum:
      return std::nullopt;
    case Kind::Constant:
      by = node(d).value;
      break;
    default:
      for_each_term(d, [&](int64_t c, const Expr& b) { by = c, atoms = factors(b); });
  }
  if (by == 0 || by == -1 || coefficient % by != 0) return std::nullopt;
  const auto have = factors(base);
  if (!std::includes(have.begin(), have.end(), atoms.begin(), atoms.end())) return std::nullopt;
  std::vector<Expr> rest;
  std::set_difference(have.begin(), have.end(), atoms.begin(), atoms.end(),
                      std::back_inserter(rest));
  return coefficient / by * make_product(std::move(rest));
}

/// `a / d` if the division of the polynomials leaves nothing.
std::optional<Expr> divide_exactly(const Expr& a, const Expr& d) {
  if (node(d).kind == Kind::Sum) return std::nullopt;
  Linear quotient;
  bool exact = true;
  const int64_t k = for_each_term(a, [&](int64_t c, const Expr& base) {
    const std::optional<Expr> q = exact ? divide_term(c, base, d) : std::nullopt;
    if (q) {
      quotient.add(*q);
    } else {
      exact = false;
    }
  });
  if (!exact) return std::nullopt;
  if (k != 0) {
    const std::optional<int64_t> by = d.as_constant();
    if (!by || *by <= 0 || k % *by != 0) return std::nullopt;
    quotient.constant = checked_add(quotient.constant, k / *by);
  }
  return std::move(quotient).build();
}

/// The largest single term that divides both `coefficient * base` and the single term `d`.
Expr common_factor(int64_t coefficient, const Expr& base, const Expr& d) {
  int64_t by = 1;
  std::span<const Expr> atoms;
  if (const auto value = d.as_constant()) {
    by = *value;
  } else {
    for_each_term(d, [&](int64_t c, const Expr& b) { by = c, atoms = factors(b); });
  }
  const auto have = factors(base);
  std::vector<Expr> shared;
  std::set_intersection(have.begin(), have.end(), atoms.begin(), atoms.end(),
                        std::back_inserter(shared));
  return gcd(coefficient, by) * make_product(std::move(shared));
}

// Rules that build expressions inside rules could nest without end in hostile text, where every
// level multiplies the work; index maps nest two or three deep.
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

/// Adds `scale * a * b` term by term. The product as an Expr would be rewritten itself, perhaps by
/// the very rule that asks for it.
[[nodiscard]] bool try_add_product(Linear& sum, const Expr& a, const Expr& b, int64_t scale) {
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

/// Whether the first term of `e` occurs in `sum` with any coefficient: a cheap test before work.
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

/// c*floordiv(x, d) with d | x: reduces the fraction c/d, after adding what there is of x itself.
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

/// mod(x, d) = x - d*floordiv(x, d), where that cancels terms.
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

/// x - d*floordiv(x, d) = mod(x, d).
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

/// Applies the first rule for sums that fits.
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

/// Whether 0 <= a < b, also where that needs symbolic extents.
bool is_within(const Expr& a, const Expr& b) {
  if (node(a).range.min >= 0 && node(a).range.max < node(b).range.min) return true;
  if (!((node(a).flags | node(b).flags) & Node::kExtent)) return false;
  Linear room(b);
  return room.try_add(a, -1) && room.try_add(-1) && proves_nonnegative(a) &&
         proves_nonnegative(std::move(room).build());
}

/// What floordiv and mod make of `a` over `b` before they become a node:
///   a = b * quotient + scale * value + rest  with  0 <= rest < scale  and  b = scale * divisor,
/// hence floordiv(a, b) = quotient + floordiv(value, divisor)
/// and   mod(a, b)      = scale * mod(value, divisor) + rest.
struct Split {
  Expr quotient;
  Expr scale = 1;
  Expr value;
  Expr divisor;
  Expr rest;
};

/// Moves the multiples of `c` in the terms of `a` to `quotient`. False if there are none.
bool take_constant_multiples(Expr& a, int64_t c, Linear& quotient) {
  Linear kept;
  bool found = false;
  const int64_t k = for_each_term(a, [&](int64_t coefficient, const Expr& base) {
    const bool is_multiple = product_divisor(coefficient, node(base).divisor) % c == 0;
    if (!is_multiple || coefficient % c == 0) {
      // Towards zero: a coefficient keeps its sign, and so does what the ends of the range say.
      if (const int64_t q = coefficient / c) {
        quotient.add(q, base);
        found = true;
      }
      if (coefficient %= c) kept.terms.push_back({coefficient, base});
      return;
    }
    // c divides the values, though not the coefficient: divide the atoms that make it so. An atom
    // alone is what floordiv itself is asked for.
    if (coefficient == 1 && node(base).kind != Kind::Product && node(a).kind != Kind::Sum) {
      kept.terms.push_back({coefficient, base});
      return;
    }
    found = true;
    int64_t by = c / gcd(coefficient, c);
    Expr divided = coefficient / gcd(coefficient, c);
    for (const Expr& atom : factors(base)) {
      const int64_t g = gcd(by, node(atom).divisor);
      divided *= floordiv(atom, g);
      by /= g;
    }
    BRAZE_CHECK(by == 1, "a divisor of a product must be one of its factors");
    quotient.add(divided);
  });
  kept.constant = mod(k, c);
  found |= kept.constant != k;
  if (!found) return false;
  quotient.constant = checked_add(quotient.constant, floordiv(k, c));
  a = std::move(kept).build();
  return true;
}

/// Moves the multiples of a symbolic `b` to `quotient`. False if there are none.
bool take_symbolic_multiples(Expr& a, const Expr& b, Linear& quotient) {
  if (node(b).kind != Kind::Sum) {
    Linear kept;
    bool found = false;
    kept.constant = for_each_term(a, [&](int64_t coefficient, const Expr& base) {
      if (const auto q = divide_term(coefficient, base, b)) {
        quotient.add(*q);
        found = true;
      } else {
        kept.terms.push_back({coefficient, base});
      }
    });
    if (found) a = std::move(kept).build();
    return found;
  }
  // A sum divides where its first term does and all others then cancel too.
  const Linear terms(a);
  const size_t b_terms = Linear(b).terms.size();
  for (const auto& [coefficient, base] : terms.terms) {
    const auto q = divide_term(coefficient, base, node(b).operands[0]);
    if (!q) continue;
    Linear kept = terms;
    if (!try_add_product(kept, *q, b, -1)) continue;
    if (kept.terms.size() + b_terms > terms.terms.size()) continue;
    quotient.add(*q);
    a = std::move(kept).build();
    return true;
  }
  return false;
}

/// Moves the multiples of `b` in `a` to `quotient`, also those that show only when others are gone.
void take_multiples(Expr& a, const Expr& b, Linear& quotient) {
  const std::optional<int64_t> c = b.as_constant();
  while (c ? take_constant_multiples(a, *c, quotient) : take_symbolic_multiples(a, b, quotient)) {
  }
}

/// The numbers g for which some terms of `a` and also `b` may be multiples of g: candidates for
/// writing a = g*x + y with 0 <= y < g.
std::vector<Expr> scales(const Expr& a, const Expr& b) {
  std::vector<Expr> found;
  if (const auto c = b.as_constant()) {
    std::set<int64_t, std::greater<>> values;
    for_each_term(a, [&](int64_t coefficient, const Expr& base) {
      values.insert(gcd(*c, product_divisor(coefficient, node(base).divisor)));
    });
    for (const int64_t v : values) found.push_back(v);
  } else if (node(b).kind != Kind::Sum) {
    for_each_term(a, [&](int64_t coefficient, const Expr& base) {
      Expr g = common_factor(coefficient, base, b);
      if (std::find(found.begin(), found.end(), g) == found.end()) found.push_back(std::move(g));
    });
  }
  return found;
}

/// Splits a = x + y by a scale g | x, b with floordiv(y, g) constant, and drops y from the
/// division.
bool drop_remainder(Split& s) {
  for (const Expr& g : scales(s.value, s.divisor)) {
    if (g.is_constant(1)) continue;
    const auto c = g.as_constant();
    Linear multiples;
    Linear others;
    others.constant = for_each_term(s.value, [&](int64_t coefficient, const Expr& base) {
      const bool divides = c ? product_divisor(coefficient, node(base).divisor) % *c == 0
                             : divide_term(coefficient, base, g).has_value();
      (divides ? multiples : others).terms.push_back({coefficient, base});
    });
    if (others.terms.empty() && (!c || others.constant % *c == 0)) continue;
    Expr y = std::move(others).build();
    Expr whole = 0;  // the multiple of g in y
    if (c) {
      const Interval q = floordiv(node(y).range, Interval::point(*c));
      if (q.min != q.max) continue;
      int64_t shift = 0;
      if (__builtin_mul_overflow(q.min, *c, &shift)) continue;
      whole = shift;
    } else if (!is_within(y, g)) {
      continue;
    }
    s.value = std::move(multiples).build() + whole;
    s.rest += s.scale * (y - whole);
    return true;
  }
  return false;
}

/// Divides value and divisor by what they share.
bool cancel_common_factor(Split& s) {
  Expr g = s.divisor;
  if (node(g).kind == Kind::Sum) return false;
  const int64_t k = for_each_term(s.value, [&](int64_t coefficient, const Expr& base) {
    if (!g.is_constant(1)) g = common_factor(coefficient, base, g);
  });
  if (k != 0 && !g.is_constant(1)) {
    // The constant was made smaller than a constant divisor; drop_remainder takes what g does not
    // divide of it.
    int64_t c = 1;
    if (const auto value = g.as_constant()) {
      c = *value;
    } else {
      for_each_term(g, [&](int64_t coefficient, const Expr&) { c = coefficient; });
    }
    g = gcd(c, k);
  }
  if (g.is_constant(1)) return false;
  const auto value = divide_exactly(s.value, g);
  const auto divisor = divide_exactly(s.divisor, g);
  if (!value || !divisor) return false;
  s.scale *= g;
  s.value = *value;
  s.divisor = *divisor;
  return true;
}

Split split(const Expr& a, const Expr& b) {
  Split s;
  s.value = a;
  s.divisor = b;
  Linear quotient;
  while (true) {
    take_multiples(s.value, s.divisor, quotient);
    Interval q = floordiv(node(s.value).range, node(s.divisor).range);
    if (q.min != q.max && is_within(s.value, s.divisor)) q = Interval::point(0);
    if (q.min == q.max) {
      quotient.constant = checked_add(quotient.constant, q.min);
      s.rest += s.scale * (s.value - q.min * s.divisor);
      s.value = 0;
      break;
    }
    if (!drop_remainder(s) && !cancel_common_factor(s)) break;
  }
  s.quotient = std::move(quotient).build();
  return s;
}

void check_divisor(const Expr& b) {
  if (const auto c = b.as_constant(); c && *c < 1) {
    fail(codes::kIndexDivisor, fmt::format("an index expression divides by {}", *c));
  }
}

/// floordiv of what `split` left; `d` is not 1 and does not divide `x`.
Expr floordiv_of_split(const Expr& x, const Expr& d) {
  const Node& n = node(x);
  // One inner quotient takes the whole sum into it: floordiv(floordiv(y, c) + e, d).
  const Expr* inner = nullptr;
  int quotients = 0;
  for_each_term(x, [&](int64_t coefficient, const Expr& base) {
    if (node(base).kind != Kind::FloorDiv) return;
    ++quotients;
    if (coefficient == 1) inner = &base;
  });
  if (quotients == 1 && inner) {
    const Expr& y = node(*inner).operands[0];
    const Expr& c = node(*inner).operands[1];
    const auto c_value = c.as_constant();
    const auto d_value = d.as_constant();
    int64_t product = 0;
    const bool constant =
        c_value && d_value && !__builtin_mul_overflow(*c_value, *d_value, &product);
    if (constant || (n.kind == Kind::FloorDiv && !(c_value && d_value))) {
      return floordiv(y + c * (x - *inner), c * d);
    }
  }
  if (n.kind == Kind::Mod) {
    if (const auto rest = divide_exactly(n.operands[1], d)) {
      return mod(floordiv(n.operands[0], d), *rest);
    }
  }
  // floordiv is monotone, so it goes inside if that leaves at most one division.
  if ((n.kind == Kind::Min || n.kind == Kind::Max) && d.as_constant()) {
    std::vector<Expr> alternatives;
    int left = 0;
    for (const Expr& alternative : n.operands) {
      alternatives.push_back(floordiv(alternative, d));
      left += (node(alternatives.back()).flags & ~node(alternative).flags & Node::kDivision) != 0;
    }
    if (left <= 1) return n.kind == Kind::Min ? min(alternatives) : max(alternatives);
  }
  Node result;
  result.kind = Kind::FloorDiv;
  result.flags = Node::kDivision;
  result.operands = {x, d};
  result.range = floordiv(n.range, node(d).range);
  if (const auto c = d.as_constant(); c && n.divisor % *c == 0) result.divisor = n.divisor / *c;
  return make(std::move(result));
}

Expr mod_of_split(const Expr& x, const Expr& d) {
  // A term k*mod(y, e) with d | k*e is k*y here.
  Linear expanded;
  bool changed = false;
  const int64_t k = for_each_term(x, [&](int64_t coefficient, const Expr& base) {
    const auto atoms = factors(base);
    for (size_t i = 0; i < atoms.size(); ++i) {
      if (node(atoms[i]).kind != Kind::Mod) continue;
      const Expr times = coefficient * without_factor(base, i);
      const Expr period = times * node(atoms[i]).operands[1];
      const auto c = d.as_constant();
      if (c ? node(period).divisor % *c == 0 : divide_exactly(period, d).has_value()) {
        expanded.add(times * node(atoms[i]).operands[0]);
        changed = true;
        return;
      }
    }
    expanded.add(coefficient, base);
  });
  expanded.constant = checked_add(expanded.constant, k);
  if (changed) return mod(std::move(expanded).build(), d);
  Node result;
  result.kind = Kind::Mod;
  result.flags = Node::kDivision;
  result.operands = {x, d};
  result.range = mod(node(x).range, node(d).range);
  result.divisor = gcd(node(x).divisor, node(d).divisor);
  return make(std::move(result));
}

/// min if `sign` is 1, max if -1: the alternative for which sign * value is least.
Expr extreme(std::vector<Expr> alternatives, int sign) {
  BRAZE_CHECK(!alternatives.empty(), "min and max need an alternative");
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

  // An alternative goes if another one is never worse. Of two equal ones the first stays.
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

  // Terms that all share come out, and so does a common factor of what is left.
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
    negative &= rest.constant <= 0;
    for (const Term& t : rest.terms) {
      factor = gcd(factor, t.coefficient);
      negative &= t.coefficient < 0;
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

int compare(const Expr& a, const Expr& b) {
  const Node& x = node(a);
  const Node& y = node(b);
  if (&x == &y) return 0;
  if (x.kind != y.kind) return x.kind < y.kind ? -1 : 1;
  if (x.value != y.value) return x.value < y.value ? -1 : 1;
  if (const int by_name = x.name.compare(y.name)) return by_name;
  if (x.operands.size() != y.operands.size()) return x.operands.size() < y.operands.size() ? -1 : 1;
  for (size_t i = 0; i < x.operands.size(); ++i) {
    if (const int by_operand = compare(x.operands[i], y.operands[i])) return by_operand;
  }
  return 0;
}

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
  return make(std::move(n));
}

Expr::Expr() : Expr(int64_t{0}) {}

Expr::Expr(int64_t value) {
  Expr storage{nullptr};
  node_ = constant(value, storage).node_;
}

Expr::Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

Expr Expr::symbol(std::string_view name, Interval range, int64_t divisor) {
  BRAZE_CHECK(divisor > 0, "the divisor of a symbol is positive");
  Node n;
  n.kind = Kind::Symbol;
  n.name = name;
  n.range = range;
  n.divisor = divisor;
  return make(std::move(n));
}

Expr Expr::index(std::string_view name, const Expr& extent, int64_t divisor) {
  BRAZE_CHECK(divisor > 0, "the divisor of a symbol is positive");
  const int64_t most = node(extent).range.max;
  Node n;
  n.kind = Kind::Symbol;
  n.name = name;
  n.range = {0, most == INT64_MAX ? most : std::max<int64_t>(most, 0) - 1};
  n.divisor = divisor;
  if (!extent.as_constant()) {
    n.flags = Node::kExtent;
    n.depth = node(extent).depth + 1;
    n.extent = extent;
  }
  return make(std::move(n));
}

Expr::Kind Expr::kind() const { return node_->kind; }

std::optional<int64_t> Expr::as_constant() const {
  if (node_->kind != Kind::Constant) return std::nullopt;
  return node_->value;
}

const std::string& Expr::symbol_name() const {
  BRAZE_CHECK(node_->kind == Kind::Symbol, "only a symbol has a name");
  return node_->name;
}

std::span<const Expr> Expr::operands() const { return node_->operands; }

int64_t Expr::divisor() const { return node_->divisor; }

bool Expr::is_multiple_of(int64_t n) const { return n != 0 && node_->divisor % n == 0; }

uint64_t Expr::hash() const { return node_->hash; }

bool operator==(const Expr& a, const Expr& b) {
  return a.node_ == b.node_ || (a.node_->hash == b.node_->hash && compare(a, b) == 0);
}

bool operator<(const Expr& a, const Expr& b) { return compare(a, b) < 0; }

std::vector<std::string> Expr::symbols() const {
  std::set<std::string> names;
  const auto visit = [&](const auto& self, const Expr& e) -> void {
    if (node(e).kind == Kind::Symbol) names.insert(node(e).name);
    for (const Expr& operand : node(e).operands) self(self, operand);
  };
  visit(visit, *this);
  return {names.begin(), names.end()};
}

bool Expr::uses(std::string_view symbol) const {
  if (node_->kind == Kind::Symbol) return node_->name == symbol;
  return std::any_of(node_->operands.begin(), node_->operands.end(),
                     [&](const Expr& operand) { return operand.uses(symbol); });
}

int64_t Expr::evaluate(const std::function<int64_t(std::string_view)>& lookup) const {
  constexpr const char* kOverflow = "the value of an index expression does not fit 64 bits";
  const Node& n = *node_;
  const auto operand = [&](size_t i) { return n.operands[i].evaluate(lookup); };
  switch (n.kind) {
    case Kind::Constant:
      return n.value;
    case Kind::Symbol:
      return lookup(n.name);
    case Kind::Sum: {
      // Partial sums may leave 64 bits where the whole does not.
      __int128 sum = 0;
      for (size_t i = 0; i < n.operands.size(); ++i) sum += operand(i);
      BRAZE_CHECK(INT64_MIN <= sum && sum <= INT64_MAX, kOverflow);
      return static_cast<int64_t>(sum);
    }
    case Kind::Product: {
      int64_t product = 1;
      for (size_t i = 0; i < n.operands.size(); ++i) {
        const bool overflow = __builtin_mul_overflow(product, operand(i), &product);
        BRAZE_CHECK(!overflow, kOverflow);
      }
      return product;
    }
    case Kind::FloorDiv:
    case Kind::Mod: {
      const int64_t value = operand(0);
      const int64_t divisor = operand(1);
      BRAZE_CHECK(divisor > 0, "an index expression divides by a number below 1");
      return n.kind == Kind::FloorDiv ? floordiv(value, divisor) : mod(value, divisor);
    }
    case Kind::Min:
    case Kind::Max: {
      int64_t best = operand(0);
      for (size_t i = 1; i < n.operands.size(); ++i) {
        best = n.kind == Kind::Min ? std::min(best, operand(i)) : std::max(best, operand(i));
      }
      return best;
    }
  }
  return 0;
}

Expr Expr::substitute(const std::unordered_map<std::string, Expr>& replacements) const {
  const Node& n = *node_;
  if (n.kind == Kind::Constant) return *this;
  if (n.kind == Kind::Symbol) {
    if (const auto found = replacements.find(n.name); found != replacements.end()) {
      return found->second;
    }
    if (ExprBuilder::is_null(n.extent)) return *this;
    const Expr extent = n.extent.substitute(replacements);
    return extent == n.extent ? *this : index(n.name, extent, n.divisor);
  }
  std::vector<Expr> operands;
  bool changed = false;
  for (const Expr& operand : n.operands) {
    operands.push_back(operand.substitute(replacements));
    changed |= operands.back().node_ != operand.node_;
  }
  if (!changed) return *this;
  switch (n.kind) {
    case Kind::Sum: {
      Linear sum;
      for (const Expr& operand : operands) sum.add(operand);
      return std::move(sum).build();
    }
    case Kind::Product: {
      Expr product = 1;
      for (const Expr& operand : operands) product *= operand;
      return product;
    }
    case Kind::FloorDiv:
      return floordiv(operands[0], operands[1]);
    case Kind::Mod:
      return mod(operands[0], operands[1]);
    case Kind::Min:
      return min(operands);
    default:
      return max(operands);
  }
}

Expr Expr::substitute(std::string_view symbol, const Expr& replacement) const {
  return substitute({{std::string(symbol), replacement}});
}

std::optional<Expr> Expr::coefficient_of(std::string_view symbol) const {
  Linear coefficient;
  bool linear = true;
  for_each_term(*this, [&](int64_t c, const Expr& base) {
    const auto atoms = factors(base);
    size_t uses = 0;
    size_t where = 0;
    for (size_t i = 0; i < atoms.size(); ++i) {
      if (!atoms[i].uses(symbol)) continue;
      ++uses;
      where = i;
      linear &= node(atoms[i]).kind == Kind::Symbol;
    }
    linear &= uses <= 1;
    if (linear && uses == 1) coefficient.add(without_factor(base, where), c);
  });
  if (!linear) return std::nullopt;
  return std::move(coefficient).build();
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

Expr floordiv(const Expr& a, const Expr& b) {
  check_divisor(b);
  if (b.is_constant(1)) return a;
  if (const auto x = a.as_constant()) {
    if (const auto c = b.as_constant()) return floordiv(*x, *c);
  }
  const Split s = split(a, b);
  if (s.value.is_constant(0)) return s.quotient;
  if (s.divisor.is_constant(1)) return s.quotient + s.value;
  return s.quotient + floordiv_of_split(s.value, s.divisor);
}

Expr mod(const Expr& a, const Expr& b) {
  check_divisor(b);
  if (b.is_constant(1)) return 0;
  if (const auto x = a.as_constant()) {
    if (const auto c = b.as_constant()) return mod(*x, *c);
  }
  const Split s = split(a, b);
  if (s.value.is_constant(0) || s.divisor.is_constant(1)) return s.rest;
  if (const auto c = s.divisor.as_constant(); c && node(s.value).divisor % *c == 0) return s.rest;
  return s.scale * mod_of_split(s.value, s.divisor) + s.rest;
}

Expr ceildiv(const Expr& a, const Expr& b) { return floordiv(a + b - 1, b); }

Expr min(std::span<const Expr> alternatives) {
  return extreme({alternatives.begin(), alternatives.end()}, 1);
}
Expr max(std::span<const Expr> alternatives) {
  return extreme({alternatives.begin(), alternatives.end()}, -1);
}
Expr min(const Expr& a, const Expr& b) { return extreme({a, b}, 1); }
Expr max(const Expr& a, const Expr& b) { return extreme({a, b}, -1); }

}  // namespace braze
