// expr_p.h — the nodes of an Expr. Private to ir/index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/index/expr.h"

namespace braze {

/// An immutable node with everything that the analysis knows about it.
struct Expr::Node {
  /// What occurs in the expression. Each flag tells the prover to try further methods.
  enum Flag : uint8_t {
    kDivision = 1,  // floordiv, mod
    kChoice = 2,    // min, max
    kExtent = 4,    // a symbol with a symbolic extent
    kProduct = 8,   // a product of two or more atoms
  };

  Kind kind = Kind::Constant;
  uint8_t flags = 0;
  uint16_t depth = 1;
  uint32_t size = 1;  // nodes of the tree
  int64_t value = 0;  // Constant: its value; Product: its coefficient
  int64_t divisor = 1;
  Interval range;
  uint64_t hash = 0;
  std::string name;            // Symbol
  std::vector<Expr> operands;  // those of Expr::operands
  Expr rest{nullptr};          // Product with a coefficient: the product without it
  Expr extent{nullptr};        // Symbol: the symbolic extent, if it has one
};

struct ExprBuilder {
  static const Expr::Node& node(const Expr& e) { return *e.node_; }
  static bool is_null(const Expr& e) { return !e.node_; }
  static Expr wrap(std::shared_ptr<const Expr::Node> node) { return Expr(std::move(node)); }
};

inline const Expr::Node& node(const Expr& e) { return ExprBuilder::node(e); }

/// `coefficient * base`, where the base is an atom or a product of atoms.
struct Term {
  int64_t coefficient;
  Expr base;
};

/// A sum under construction: terms in the order of their bases, each base once.
struct Linear {
  std::vector<Term> terms;
  int64_t constant = 0;

  Linear() = default;
  explicit Linear(const Expr& e);

  /// Adds `scale * e`. Returns false if a coefficient overflows; the sum is then useless.
  [[nodiscard]] bool try_add(const Expr& e, int64_t scale = 1);
  /// The same, but fails with kIndexOverflow.
  void add(const Expr& e, int64_t scale = 1);
  void add(int64_t coefficient, const Expr& base);

  /// The canonical expression.
  Expr build() &&;
};

/// Calls `f(coefficient, base)` for every term of `e` and returns the constant.
template <class F>
int64_t for_each_term(const Expr& e, F&& f) {
  const auto visit = [&](const Expr& term) -> int64_t {
    const Expr::Node& n = node(term);
    if (n.kind == Expr::Kind::Constant) return n.value;
    if (n.kind == Expr::Kind::Product && n.value != 1) {
      f(n.value, n.rest);
    } else {
      f(int64_t{1}, term);
    }
    return 0;
  };
  if (node(e).kind != Expr::Kind::Sum) return visit(e);
  int64_t constant = 0;
  for (const Expr& term : node(e).operands) constant += visit(term);
  return constant;
}

/// The atoms of a base.
inline std::span<const Expr> factors(const Expr& base) {
  if (node(base).kind == Expr::Kind::Product) return node(base).operands;
  return {&base, 1};
}

/// Three-way structural comparison.
int compare(const Expr& a, const Expr& b);

// A malicious text could demand any amount of work. Index maps need only a fraction of this.
inline constexpr size_t kMaxTerms = 2048;

[[noreturn]] void fail_overflow();
[[noreturn]] void fail_too_large();
int64_t checked_add(int64_t a, int64_t b);

/// The greatest common divisor of the magnitudes. gcd(a, 0) is |a|. An operand of magnitude 2^63,
/// which does not fit, counts as its divisor 2^62.
int64_t gcd(int64_t a, int64_t b);
/// A divisor of all values `a * b`, given divisors of the values `a` and `b`.
int64_t product_divisor(int64_t a, int64_t b);

/// Completes a node (its hash, size, flags, depth and the ends of its range), and makes an Expr of
/// it.
Expr make(Expr::Node&& n);
/// A product of atoms, given in order.
Expr make_product(std::vector<Expr> atoms);
/// `coefficient * base`.
Expr make_term(int64_t coefficient, const Expr& base);

/// The product of two bases.
Expr multiply_bases(const Expr& a, const Expr& b);
/// The base without its factor at `index`.
Expr without_factor(const Expr& base, size_t index);
/// `coefficient * base` divided by `d`, if `d` is a single term that divides it exactly.
std::optional<Expr> divide_term(int64_t coefficient, const Expr& base, const Expr& d);
/// `a / d`, if `d` is a single term that divides all terms of `a` exactly.
std::optional<Expr> divide_exactly(const Expr& a, const Expr& d);
/// The largest single term that divides both `coefficient * base` and the single term `d`.
Expr common_factor(int64_t coefficient, const Expr& base, const Expr& d);

/// Adds `scale * a * b` term by term, without building the product. Returns false on overflow.
[[nodiscard]] bool try_add_product(Linear& sum, const Expr& a, const Expr& b, int64_t scale);

/// Symbolic bounds that a proof may use besides the symbols' own.
using Bounds = std::span<const SymbolBound>;

/// True only if `e >= 0` for all values of the symbols.
bool proves_nonnegative(const Expr& e, Bounds bounds = {});

}  // namespace braze
