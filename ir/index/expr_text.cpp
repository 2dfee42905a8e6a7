// Printing and parsing of index expressions.

#include <fmt/format.h>

#include <algorithm>

#include "ir/index/expr_p.h"
#include "ir/support/scanner.h"

namespace braze {

namespace {

using Kind = Expr::Kind;

void print(const Expr& e, std::string& out);

void print_call(std::string_view function, const Expr& e, std::string& out) {
  out += function;
  out += '(';
  bool first = true;
  for (const Expr& operand : e.operands()) {
    if (!first) out += ", ";
    first = false;
    print(operand, out);
  }
  out += ')';
}

/// |v|. For the least int64_t, it would not fit in an int64_t.
uint64_t magnitude(int64_t v) {
  return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

/// A term without its sign: "4*n*m".
void print_magnitude(int64_t coefficient, const Expr& base, std::string& out) {
  bool first = true;
  if (coefficient != 1 && coefficient != -1) {
    out += fmt::format("{}", magnitude(coefficient));
    first = false;
  }
  for (const Expr& atom : factors(base)) {
    if (!first) out += '*';
    first = false;
    print(atom, out);
  }
}

void print_sum(const Expr& e, std::string& out) {
  Linear sum(e);
  // The order is that of an address as people write it: positive terms before negative ones, and
  // large strides first.
  std::stable_sort(sum.terms.begin(), sum.terms.end(), [](const Term& a, const Term& b) {
    if ((a.coefficient < 0) != (b.coefficient < 0)) return b.coefficient < 0;
    if (a.coefficient != b.coefficient) return magnitude(a.coefficient) > magnitude(b.coefficient);
    return factors(a.base).size() > factors(b.base).size();
  });
  bool first = true;
  for (const auto& [coefficient, base] : sum.terms) {
    if (!first) {
      out += coefficient < 0 ? " - " : " + ";
    } else if (coefficient < 0) {
      out += '-';
    }
    first = false;
    print_magnitude(coefficient, base, out);
  }
  if (sum.constant == 0 && !first) return;
  if (first) {
    out += fmt::format("{}", sum.constant);
  } else {
    out += fmt::format(" {} {}", sum.constant < 0 ? '-' : '+', magnitude(sum.constant));
  }
}

void print(const Expr& e, std::string& out) {
  switch (e.kind()) {
    case Kind::Symbol:
      out += e.symbol_name();
      return;
    case Kind::FloorDiv:
      return print_call("floordiv", e, out);
    case Kind::Mod:
      return print_call("mod", e, out);
    case Kind::Min:
      return print_call("min", e, out);
    case Kind::Max:
      return print_call("max", e, out);
    default:
      return print_sum(e, out);
  }
}

class Parser {
 public:
  Parser(Scanner& scanner, const std::function<Expr(std::string_view)>& lookup)
      : scanner_(scanner), lookup_(lookup) {}

  Expr sum() {
    // The whole sum is built at once, so that the rules see the terms of the printed sum.
    Linear total;
    bool negative = false;
    bool first = true;
    while (true) {
      // "- 5" is read as one literal, because 2^63 exists only below zero.
      const bool literal = scanner_.at("-") && scanner_.peek_second().kind == TokenKind::Integer;
      if (literal) {
        negative = false;
      } else if (scanner_.accept("-")) {
        negative = true;
      } else if (first) {
        negative = false;
      } else if (scanner_.accept("+")) {
        negative = false;
      } else {
        return std::move(total).build();
      }
      first = false;
      total.add(product(), negative ? -1 : 1);
    }
  }

 private:
  Expr product() {
    Expr value = factor();
    while (scanner_.accept("*")) value *= factor();
    return value;
  }

  Expr factor() {
    const Token token = scanner_.peek();
    if (token.kind == TokenKind::Integer) return scanner_.expect_integer();
    if (scanner_.at("-")) {
      if (scanner_.peek_second().kind == TokenKind::Integer) return scanner_.expect_integer();
      scanner_.next();
      return nested([&] { return -factor(); });
    }
    if (scanner_.accept("(")) {
      Expr value = nested([&] { return sum(); });
      scanner_.expect(")");
      return value;
    }
    if (token.kind == TokenKind::Value) {
      scanner_.next();
      return lookup_("%" + std::string(token.text));
    }
    const std::string_view name = scanner_.expect_identifier("an index expression");
    if (!scanner_.at("(")) return lookup_(name);
    scanner_.next();
    std::vector<Expr> operands;
    do {
      operands.push_back(nested([&] { return sum(); }));
    } while (scanner_.accept(","));
    scanner_.expect(")");
    if (name == "min") return min(operands);
    if (name == "max") return max(operands);
    if (operands.size() == 2) {
      if (name == "floordiv") return floordiv(operands[0], operands[1]);
      if (name == "ceildiv") return ceildiv(operands[0], operands[1]);
      if (name == "mod") return mod(operands[0], operands[1]);
    }
    scanner_.fail_here(fmt::format("there is no function \"{}\" of {} index expressions",
                                   name.substr(0, 60), operands.size()));
  }

  template <class F>
  Expr nested(F&& parse) {
    constexpr int kMaxDepth = 200;
    if (++depth_ > kMaxDepth) scanner_.fail_here("the index expression is nested too deeply");
    Expr value = parse();
    --depth_;
    return value;
  }

  Scanner& scanner_;
  const std::function<Expr(std::string_view)>& lookup_;
  int depth_ = 0;
};

}  // namespace

std::string Expr::to_string() const {
  std::string out;
  print(*this, out);
  return out;
}

Expr parse_expr(Scanner& scanner, const std::function<Expr(std::string_view)>& lookup) {
  try {
    return Parser(scanner, lookup).sum();
  } catch (const Error& error) {
    // An error of arithmetic has no location, so the present one is added.
    if (error.location()) throw;
    scanner.fail_here(error.message(), error.code());
  }
}

bool is_reserved_symbol(std::string_view name) {
  constexpr std::string_view kWords[] = {"and",  "ceildiv", "false", "floordiv", "inf",
                                         "item", "lane",    "max",   "min",      "mod",
                                         "nan",  "rtid",    "tid",   "true"};
  if (std::find(std::begin(kWords), std::end(kWords), name) != std::end(kWords)) return true;
  if (name.find('.') != name.npos) return true;
  return name.size() > 1 && (name[0] == 'd' || name[0] == 'e') &&
         name.find_first_not_of("0123456789", 1) == name.npos;
}

}  // namespace braze
