// The rules of floordiv and mod. Both begin with the same function, which splits the dividend. They
// therefore leave the same remainder, so that sums find equal atoms to join. Below, c and d are
// positive, and k is an integer.
//
//   floordiv(c*a + b, c)             = a + floordiv(b, c)
//   floordiv(g*a + b, g*c)           = floordiv(a, c)                if 0 <= b < g
//   floordiv(floordiv(x, c) + y, d)  = floordiv(x + c*y, c*d)
//   floordiv(mod(x, c*d), c)         = mod(floordiv(x, c), d)
//   floordiv(x, c)                   = k                             if k*c <= x < k*c + c
//   mod(c*a + b, c)                  = mod(b, c)
//   mod(g*a + b, g*c)                = g*mod(a, c) + b               if 0 <= b < g
//   mod(mod(x, c*d) + y, c)          = mod(x + y, c)
//   mod(x, c)                        = x - k*c                       if k*c <= x < k*c + c
//
// All divisors in these rules may be symbolic.

#include <algorithm>
#include <set>

#include "ir/index/expr_p.h"
#include "ir/index/interval.h"

namespace braze {

namespace {

using Kind = Expr::Kind;
using Node = Expr::Node;

/// Whether it can be proven that 0 <= a < b, from numeric ranges or symbolic extents.
bool is_within(const Expr& a, const Expr& b) {
  if (node(a).range.min >= 0 && node(a).range.max < node(b).range.min) return true;
  if (!((node(a).flags | node(b).flags) & Node::kExtent)) return false;
  Linear room(b);
  return room.try_add(a, -1) && room.try_add(-1) && proves_nonnegative(a) &&
         proves_nonnegative(std::move(room).build());
}

/// The form to which floordiv and mod bring `a` over `b` before they become a node:
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

/// Moves the multiples of `c` in the terms of `a` to `quotient`. Returns false if there are none.
bool take_constant_multiples(Expr& a, int64_t c, Linear& quotient) {
  Linear kept;
  bool found = false;
  const int64_t k = for_each_term(a, [&](int64_t coefficient, const Expr& base) {
    const bool is_multiple = product_divisor(coefficient, node(base).divisor) % c == 0;
    if (!is_multiple || coefficient % c == 0) {
      // The division rounds towards zero, so that the coefficient that remains keeps its sign and
      // ranges stay exact.
      if (const int64_t q = coefficient / c) {
        quotient.add(q, base);
        found = true;
      }
      if (coefficient %= c) kept.terms.push_back({coefficient, base});
      return;
    }
    // c divides the values of the term, but not its coefficient, so its atoms are divided. A single
    // atom is left to floordiv itself.
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

/// Moves the multiples of a symbolic `b` to `quotient`. Returns false if there are none.
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
  // A sum is divisible if its first term is and all others then cancel too.
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

/// Moves the multiples of `b` in `a` to `quotient`, including those that appear only after others
/// were moved.
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

/// Divides value and divisor by their common factor.
bool cancel_common_factor(Split& s) {
  Expr g = s.divisor;
  if (node(g).kind == Kind::Sum) return false;
  const int64_t k = for_each_term(s.value, [&](int64_t coefficient, const Expr& base) {
    if (!g.is_constant(1)) g = common_factor(coefficient, base, g);
  });
  if (k != 0 && !g.is_constant(1)) {
    // The constant term is already smaller than a constant divisor. drop_remainder removes the part
    // of it that g does not divide.
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
    fail(codes::kIndexDivisor, "an index expression divides by " + std::to_string(*c));
  }
}

/// The floordiv of the value that `split` left. `d` is not 1 and does not divide `x`.
Expr floordiv_of_split(const Expr& x, const Expr& d) {
  const Node& n = node(x);
  // If there is one inner quotient, the whole sum moves into it: floordiv(floordiv(y, c) + e, d).
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
  // floordiv is monotone, so it can be moved inside of min and max. This is done if it leaves at
  // most one division.
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

}  // namespace

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

}  // namespace braze
