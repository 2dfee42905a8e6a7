// Makes nodes, and does the arithmetic of single terms.

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "ir/index/expr_p.h"
#include "ir/index/interval.h"
#include "ir/support/hash.h"

namespace braze {

namespace {

using Kind = Expr::Kind;
using Node = Expr::Node;

// These are far more than index maps need. They limit the work that a malicious text can cause.
constexpr size_t kMaxFactors = 64;
constexpr uint32_t kMaxSize = 50'000;
constexpr uint16_t kMaxDepth = 400;

}  // namespace

void fail_overflow() {
  fail(codes::kIndexOverflow, "a constant of the index expression does not fit in 64 bits");
}

void fail_too_large() { fail(codes::kIndexTooLarge, "the index expression has too many terms"); }

int64_t checked_add(int64_t a, int64_t b) {
  if (__builtin_add_overflow(a, b, &a)) fail_overflow();
  return a;
}

int64_t gcd(int64_t a, int64_t b) {
  if (a == INT64_MIN) a = int64_t{1} << 62;
  if (b == INT64_MIN) b = int64_t{1} << 62;
  return std::gcd(a, b);
}

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

Expr multiply_bases(const Expr& a, const Expr& b) {
  const auto x = factors(a);
  const auto y = factors(b);
  std::vector<Expr> atoms(x.size() + y.size());
  std::merge(x.begin(), x.end(), y.begin(), y.end(), atoms.begin());
  return make_product(std::move(atoms));
}

Expr without_factor(const Expr& base, size_t index) {
  const auto atoms = factors(base);
  std::vector<Expr> rest(atoms.begin(), atoms.end());
  rest.erase(rest.begin() + static_cast<ptrdiff_t>(index));
  return make_product(std::move(rest));
}

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

}  // namespace braze
