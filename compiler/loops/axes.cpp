#include "compiler/loops/axes.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "braze/error.h"

namespace braze {

namespace {

// The quotient a / b, if b divides a whatever the sizes are.
std::optional<Expr> exact_quotient(const Expr& a, const Expr& b) {
  if (a == b && !a.is_constant(0)) return Expr(1);  // also if a size is 0
  if (b.range().min < 1) return std::nullopt;
  const Expr quotient = floordiv(a, b);
  if (!(quotient * b == a)) return std::nullopt;
  return quotient;
}

constexpr char kPrefix[] = "x.";

bool have_common(const std::vector<size_t>& a, const std::vector<size_t>& b) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (*x == *y) return true;
    *x < *y ? ++x : ++y;
  }
  return false;
}

}  // namespace

size_t Axes::add(const Expr& extent, size_t owner) {
  nodes_.push_back({extent, nodes_.size(), {owner}});
  return nodes_.size() - 1;
}

Expr Axes::symbol(size_t axis) const {
  return Expr::index(kPrefix + std::to_string(axis), nodes_[axis].extent);
}

std::optional<size_t> Axes::axis_of(const Expr& coordinate) {
  if (coordinate.kind() != Expr::Kind::Symbol || !coordinate.symbol_name().starts_with(kPrefix))
    return std::nullopt;
  return std::stoul(coordinate.symbol_name().substr(sizeof(kPrefix) - 1));
}

size_t Axes::root(size_t node) const {
  while (nodes_[node].joined != node) node = nodes_[node].joined;
  return node;
}

void Axes::collect(size_t node, std::vector<size_t>& out) const {
  const size_t r = root(node);
  if (!nodes_[r].cut()) {
    out.push_back(r);
    return;
  }
  collect(nodes_[r].outer, out);
  collect(nodes_[r].inner, out);
}

std::vector<size_t> Axes::digits(size_t axis) const {
  std::vector<size_t> out;
  collect(axis, out);
  return out;
}

// One digit of an axis times a factor. The digit has one of the forms x, mod(x, h), floordiv(x, w),
// floordiv(mod(x, h), w) and mod(floordiv(x, w), e).
std::optional<Axes::Part> Axes::part(const Expr& term) const {
  switch (term.kind()) {
    case Expr::Kind::Symbol: {
      const auto axis = axis_of(term);
      if (!axis) return std::nullopt;
      return Part{*axis, 1, nodes_[*axis].extent, 1};
    }
    case Expr::Kind::Product: {
      std::optional<Part> out;
      Expr coefficient = 1;
      for (const Expr& factor : term.operands()) {
        auto digit = part(factor);
        if (digit && out) return std::nullopt;
        if (digit)
          out = std::move(digit);
        else
          coefficient *= factor;
      }
      if (out) out->coefficient *= coefficient;
      return out;
    }
    case Expr::Kind::Mod: {
      auto out = part(term.operands()[0]);
      if (!out || !exact_quotient(out->extent, term.operands()[1])) return std::nullopt;
      out->extent = term.operands()[1];
      return out;
    }
    case Expr::Kind::FloorDiv: {
      auto out = part(term.operands()[0]);
      const Expr& weight = term.operands()[1];
      if (!out || !out->coefficient.is_constant(1)) return std::nullopt;
      const auto left = exact_quotient(out->extent, weight);
      if (!left) return std::nullopt;
      out->low *= weight;
      out->extent = *left;
      return out;
    }
    default:
      return std::nullopt;
  }
}

// The coordinate as digits in mixed radix, the least significant first. There is no result if it
// has another form.
std::optional<std::vector<Axes::Part>> Axes::parts(const Expr& coordinate) const {
  std::vector<Part> found, out;
  const auto take = [&](const Expr& term) {
    auto digit = part(term);
    if (digit) found.push_back(std::move(*digit));
    return digit.has_value();
  };
  if (coordinate.kind() == Expr::Kind::Sum) {
    for (const Expr& term : coordinate.operands())
      if (!take(term)) return std::nullopt;
  } else if (!take(coordinate)) {
    return std::nullopt;
  }
  for (Expr weight = 1; !found.empty(); weight *= out.back().extent) {
    const auto next = std::find_if(found.begin(), found.end(),
                                   [&](const Part& p) { return p.coefficient == weight; });
    if (next == found.end()) return std::nullopt;
    out.push_back(std::move(*next));
    found.erase(next);
  }
  return out;
}

// Cuts the axis at `weight`, so that no digit reaches across it. Returns whether that is possible.
bool Axes::cut_at(size_t axis, const Expr& weight) {
  const auto all = digits(axis);
  Expr below = 1;
  for (size_t i = all.size(); i-- > 0;) {
    if (below == weight) return true;
    const Expr next = below * nodes_[all[i]].extent;
    // An extent that may be zero divides nothing, not even itself.
    if (weight == next || exact_quotient(weight, next)) {
      below = next;
      continue;
    }
    const auto inner = exact_quotient(weight, below);
    const auto outer = inner ? exact_quotient(nodes_[all[i]].extent, *inner) : std::nullopt;
    if (!outer) return false;
    const std::vector<size_t> owners = nodes_[all[i]].owners;
    const size_t first = nodes_.size();
    nodes_.push_back({*outer, first, owners});
    nodes_.push_back({*inner, first + 1, owners});
    nodes_[all[i]].outer = first;
    nodes_[all[i]].inner = first + 1;
    return true;
  }
  return below == weight;
}

std::vector<size_t> Axes::digits_between(size_t axis, const Expr& low, const Expr& extent) {
  if (!cut_at(axis, low) || !cut_at(axis, low * extent)) return {};
  std::vector<size_t> out;
  const auto all = digits(axis);
  Expr below = 1;
  for (size_t i = all.size(); i-- > 0; below *= nodes_[all[i]].extent)
    if (exact_quotient(below, low) && !(exact_quotient(below, low * extent)))
      out.insert(out.begin(), all[i]);
  return out;
}

// Joins two lists of digits, from the least significant on. Of two digits, the longer is cut.
// Digits that have an owner in common are never joined: in a matrix times itself, one tensor has
// the same extent along two different axes. Returns whether the lists have the same digits now.
bool Axes::join(std::vector<size_t> a, std::vector<size_t> b) {
  bool all = true;
  while (!a.empty() && !b.empty()) {
    const size_t x = root(a.back()), y = root(b.back());
    if (nodes_[x].extent == nodes_[y].extent) {
      a.pop_back();
      b.pop_back();
      if (x == y) continue;
      if (have_common(nodes_[x].owners, nodes_[y].owners)) {
        all = false;
        continue;
      }
      nodes_[y].joined = x;
      std::vector<size_t> owners;
      std::ranges::merge(nodes_[x].owners, nodes_[y].owners, std::back_inserter(owners));
      nodes_[x].owners = std::move(owners);
      continue;
    }
    const bool first = exact_quotient(nodes_[x].extent, nodes_[y].extent).has_value();
    auto& longer = first ? a : b;
    const size_t digit = first ? x : y;
    if (!cut_at(digit, nodes_[first ? y : x].extent)) return false;
    longer.pop_back();
    collect(digit, longer);
  }
  return all && a.empty() && b.empty();
}

bool Axes::equate(size_t axis, const Expr& coordinate) {
  // Most coordinates are one axis, which is no sum of digits yet.
  if (const auto other = axis_of(coordinate); other && is_whole(axis) && is_whole(*other) &&
                                              nodes_[axis].extent == nodes_[*other].extent &&
                                              !nodes_[axis].extent.is_constant(1))
    return join({axis}, {*other});
  const auto list = parts(coordinate);
  if (!list) return false;
  Expr weight = 1;
  for (const Part& p : *list) weight *= p.extent;
  if (!(weight == nodes_[axis].extent)) return false;
  weight = 1;
  bool all = true;
  for (const Part& p : *list) {
    auto own = digits_between(axis, weight, p.extent),
         read = digits_between(p.axis, p.low, p.extent);
    all = all && !own.empty() && !read.empty();
    all = join(std::move(own), std::move(read)) && all;
    weight *= p.extent;
  }
  return all;
}

}  // namespace braze
