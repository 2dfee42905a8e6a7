// expr_p.h — what an Expr is made of. Private to ir/index.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/index/expr.h"

namespace braze {

/// An immutable node with everything that the analysis knows about it.
struct Expr::Node {
  /// What occurs in the expression; each is a reason for the prover to look closer.
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
  std::vector<Expr> operands;  // as Expr::operands
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

  /// Adds `scale * e`. False if a coefficient overflows; the sum is then spoilt.
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

/// Symbolic bounds that a proof may use besides the symbols' own.
using Bounds = std::span<const SymbolBound>;

/// True only if `e >= 0` for all values of the symbols.
bool proves_nonnegative(const Expr& e, Bounds bounds = {});

}  // namespace braze
