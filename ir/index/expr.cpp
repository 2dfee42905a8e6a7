// The nodes of expressions, and the functions of Expr. The rules that make the canonical form are
// in sum.cpp, division.cpp and extreme.cpp; proofs are in proof.cpp.

#include "ir/index/expr.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "ir/index/expr_p.h"
#include "ir/index/interval.h"

namespace braze {

namespace {

using Kind = Expr::Kind;
using Node = Expr::Node;

Expr make_constant(int64_t value) {
  Node n;
  n.kind = Kind::Constant;
  n.value = value;
  n.range = Interval::point(value);
  n.divisor = value == INT64_MIN ? int64_t{1} << 62 : std::abs(value);
  return make(std::move(n));
}

/// Most constant operands are among these. They are made once and never freed, so no reference
/// counts are kept for them. Otherwise threads that compile at the same time would wait for each
/// other.
const Expr& constant(int64_t value, Expr& storage) {
  constexpr int64_t kFirst = -64;
  constexpr int64_t kLast = 1024;
  struct Constants {
    std::vector<Expr> owners, all;
  };
  static const auto& cache = *[] {
    auto* made = new Constants;
    for (int64_t v = kFirst; v <= kLast; ++v) {
      made->owners.push_back(make_constant(v));
      const std::shared_ptr<const Node> nobody;
      made->all.push_back(ExprBuilder::wrap({nobody, &node(made->owners.back())}));
    }
    return made;
  }();
  if (kFirst <= value && value <= kLast) return cache.all[static_cast<size_t>(value - kFirst)];
  return storage = make_constant(value);
}

}  // namespace
Expr::Expr() : Expr(int64_t{0}) {}

Expr::Expr(int64_t value) {
  Expr storage{nullptr};
  node_ = constant(value, storage).node_;
}

Expr::Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

Expr Expr::symbol(std::string_view name, Interval range, int64_t divisor) {
  BRAZE_CHECK(divisor > 0, "the divisor of a symbol must be positive");
  Node n;
  n.kind = Kind::Symbol;
  n.name = name;
  n.range = range;
  n.divisor = divisor;
  return make(std::move(n));
}

Expr Expr::index(std::string_view name, const Expr& extent, int64_t divisor) {
  BRAZE_CHECK(divisor > 0, "the divisor of a symbol must be positive");
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
  BRAZE_CHECK(node_->kind == Kind::Symbol,
              "this index expression is not a symbol, so it has no name");
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
  constexpr const char* kOverflow = "the value of an index expression does not fit in 64 bits";
  const Node& n = *node_;
  const auto operand = [&](size_t i) { return n.operands[i].evaluate(lookup); };
  switch (n.kind) {
    case Kind::Constant:
      return n.value;
    case Kind::Symbol:
      return lookup(n.name);
    case Kind::Sum: {
      // Partial sums may exceed 64 bits even if the whole sum does not.
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

}  // namespace braze
