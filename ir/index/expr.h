// expr.h — integer expressions: dimensions, index maps, addresses, masks and loop bounds.
//
// An Expr is an immutable value in canonical form: a sum of integer multiples of products of atoms,
// where an atom is a symbol, floordiv, mod, min or max. Two equal canonical forms are equal
// expressions, so `==` is structural. All arithmetic is exact in the mathematical integers as long
// as every value fits in 64 bits; floordiv and mod round towards minus infinity, and their divisor
// is positive.
//
// A symbol has its range, a known divisor of its values and, if it is an index into a symbolic
// extent, that extent. So every question ("is this a multiple of 16?", "does it fit in 32 bits?",
// "is it within the tensor?") can be answered from the expression alone.
//
// Simplification is sound for all values of the symbols for which every divisor is positive. It is
// not complete: equal functions may keep different forms, and if something is not proven, it may
// still be true. expr.cpp lists the rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "braze/error.h"

namespace braze {

class Scanner;

namespace codes {
inline constexpr Code kIndexOverflow{"index-overflow", ErrorKind::InvalidArgument,
                                     "A constant of an index expression does not fit in 64 bits."};
inline constexpr Code kIndexDivisor{"index-divisor", ErrorKind::InvalidArgument,
                                    "An index expression divides by a number below 1."};
inline constexpr Code kIndexTooLarge{
    "index-too-large", ErrorKind::ResourceExhausted,
    "An index expression has too many terms or is nested too deeply."};
}  // namespace codes

/// The integers from `min` to `max`, both included. Arithmetic saturates at the limits of int64_t,
/// which stand for "unbounded".
struct Interval {
  int64_t min = INT64_MIN;
  int64_t max = INT64_MAX;

  static constexpr Interval point(int64_t v) { return {v, v}; }
  bool contains(int64_t v) const { return min <= v && v <= max; }
  bool bounded() const { return min != INT64_MIN && max != INT64_MAX; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

class Expr {
 public:
  enum class Kind : uint8_t { Constant, Symbol, Sum, Product, FloorDiv, Mod, Min, Max };

  /// Zero.
  Expr();
  Expr(int64_t value);                                    // NOLINT: implicit on purpose
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}  // NOLINT

  /// A symbol that takes the values of `range` which are multiples of `divisor`. Symbols are equal
  /// if their names are; one name must always come with the same range.
  static Expr symbol(std::string_view name, Interval range, int64_t divisor = 1);
  /// An index into `extent`: a symbol that takes the multiples of `divisor` in [0, extent). The
  /// extent may be symbolic, and is used then: with i < n, `floordiv(i, n)` is 0.
  static Expr index(std::string_view name, const Expr& extent, int64_t divisor = 1);

  Kind kind() const;
  /// The value, if this is a constant.
  std::optional<int64_t> as_constant() const;
  bool is_constant(int64_t value) const { return as_constant() == value; }
  /// The name of a symbol. Only for Kind::Symbol.
  const std::string& symbol_name() const;
  /// The terms of a Sum (the constant last), the factors of a Product (the constant first), the
  /// value and the divisor of FloorDiv and Mod, or the alternatives of Min and Max. Empty for
  /// constants and symbols.
  std::span<const Expr> operands() const;

  /// The tightest interval that the analysis can prove.
  Interval range() const;
  /// A positive integer known to divide every value (0 for the constant 0).
  int64_t divisor() const;
  bool is_multiple_of(int64_t n) const;

  /// The names of all symbols, sorted, each once.
  std::vector<std::string> symbols() const;
  bool uses(std::string_view symbol) const;

  /// The value, where `lookup` gives the value of every symbol. Overflow and a divisor below 1 are
  /// internal errors.
  int64_t evaluate(const std::function<int64_t(std::string_view)>& lookup) const;
  /// This expression with symbols replaced, canonical again. Symbols without a replacement stay,
  /// with the replacements made in their extent.
  Expr substitute(const std::unordered_map<std::string, Expr>& replacements) const;
  Expr substitute(std::string_view symbol, const Expr& replacement) const;

  /// If this is `coefficient * symbol + rest` with `rest` free of the symbol: the coefficient.
  /// Zero if the symbol does not occur. Nullopt if the dependence is not linear.
  std::optional<Expr> coefficient_of(std::string_view symbol) const;

  std::string to_string() const;
  uint64_t hash() const;

  friend bool operator==(const Expr& a, const Expr& b);
  /// A total order without meaning, for sorting.
  friend bool operator<(const Expr& a, const Expr& b);

  struct Node;  // expr_p.h

 private:
  explicit Expr(std::shared_ptr<const Node> node);
  friend struct ExprBuilder;
  std::shared_ptr<const Node> node_;
};

Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator-(const Expr& a);
Expr operator*(const Expr& a, const Expr& b);
Expr floordiv(const Expr& a, const Expr& b);
Expr mod(const Expr& a, const Expr& b);
Expr min(const Expr& a, const Expr& b);
Expr max(const Expr& a, const Expr& b);
Expr min(std::span<const Expr> alternatives);  // at least one
Expr max(std::span<const Expr> alternatives);
/// floordiv(a + b - 1, b).
Expr ceildiv(const Expr& a, const Expr& b);
inline Expr& operator+=(Expr& a, const Expr& b) { return a = a + b; }
inline Expr& operator*=(Expr& a, const Expr& b) { return a = a * b; }

/// Whether `a < b`, if interval analysis can decide it.
std::optional<bool> proves_less(const Expr& a, const Expr& b);
/// True only if `a <= b` for all values of the symbols.
bool proves_at_most(const Expr& a, const Expr& b);

/// A bound that a caller knows for a symbol besides its range: `min <= name <= max`.
struct SymbolBound {
  std::string name;
  Expr min;
  Expr max;
};

/// True only if `0 <= index < extent` for all values of the symbols that satisfy `bounds` (and the
/// symbols' own ranges and extents). Bounds may mention other bounded symbols, but not in a circle.
bool proves_in_bounds(const Expr& index, const Expr& extent,
                      std::span<const SymbolBound> bounds = {});

/// Reads an expression; `lookup` gives the meaning of each name or fails.
/// Grammar: + - * and parentheses, `floordiv(a, b)`, `ceildiv(a, b)`, `mod(a, b)`, `min(a, b)`,
/// `max(a, b)` (also of more alternatives), integers, names, %names (looked up with the %). The
/// depth is limited. Reading the text that `to_string` wrote gives the same expression.
Expr parse_expr(Scanner& scanner, const std::function<Expr(std::string_view)>& lookup);

/// Whether `name` cannot be the name of a size, because it is a word of the languages or a position
/// symbol (d0, e1, lane, tid ...), or has a dot, as names that the compiler makes.
bool is_reserved_symbol(std::string_view name);

}  // namespace braze

template <>
struct std::hash<braze::Expr> {
  size_t operator()(const braze::Expr& e) const noexcept { return e.hash(); }
};
