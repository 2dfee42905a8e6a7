#include "ir/index/expr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ir/index/interval.h"
#include "ir/support/scanner.h"

namespace braze {
namespace {

// The symbols of the tables below.
Expr lookup(std::string_view name) {
  static const auto& symbols = *[] {
    auto* all = new std::map<std::string, Expr, std::less<>>;
    const auto add = [&](const Expr& e) { all->emplace(e.symbol_name(), e); };
    for (const char* s : {"i", "j", "k"}) add(Expr::symbol(s, {0, 65535}));
    for (const char* s : {"x", "y", "z"}) add(Expr::symbol(s, {}));
    add(Expr::symbol("i4", {0, 3}));
    add(Expr::symbol("i8", {0, 7}));
    add(Expr::symbol("i12", {0, 11}));
    add(Expr::symbol("i32", {0, 31}));
    add(Expr::symbol("n8", {8, 65536}, 8));
    for (const char* s : {"n", "m", "p"}) add(Expr::symbol(s, {1, 65536}));
    // Indices into symbolic extents.
    add(Expr::index("in", all->at("n")));
    add(Expr::index("im", all->at("m")));
    add(Expr::index("ip", all->at("p")));
    add(Expr::index("t", ceildiv(all->at("n"), 64)));
    return all;
  }();
  const auto found = symbols.find(name);
  if (found == symbols.end()) throw std::runtime_error("no symbol " + std::string(name));
  return found->second;
}

Expr parse(std::string_view text) {
  Scanner scanner(text, "test");
  Expr e = parse_expr(scanner, lookup);
  EXPECT_TRUE(scanner.at_end()) << text;
  return e;
}

void check(std::string_view before, std::string_view after) {
  const Expr e = parse(before);
  EXPECT_EQ(e.to_string(), after) << "of " << before;
  EXPECT_EQ(parse(e.to_string()), e) << "of " << before;
}

TEST(Expr, Sums) {
  check("0", "0");
  check("x + 0", "x");
  check("x - x", "0");
  check("m - 1 + 4*n", "4*n + m - 1");
  check("3*x + 4*y - x", "4*y + 2*x");
  check("-(x - y)", "y - x");
  check("(x + 1)*(x - 1)", "x*x - 1");
  check("(n + m)*(n + m)", "2*m*n + m*m + n*n");
  check("n*(m + 3) - m*n", "3*n");
  check("-x - 4", "-x - 4");
  check("2*(x + 3*(y - 2))", "6*y + 2*x - 12");
  check("-9223372036854775808", "-9223372036854775808");
  check("x - 9223372036854775808", "x - 9223372036854775808");
  check("x*-9223372036854775808", "-9223372036854775808*x");
}

TEST(Expr, FloorDiv) {
  check("floordiv(7, 2)", "3");
  check("floordiv(-7, 2)", "-4");
  check("floordiv(x, 1)", "x");
  check("floordiv(4*x, 4)", "x");
  check("floordiv(4*x + y, 4)", "x + floordiv(y, 4)");
  check("floordiv(4*x + i4, 4)", "x");
  check("floordiv(9*x + 9, 8)", "x + floordiv(x + 1, 8) + 1");
  check("floordiv(x - 1, 8)", "floordiv(x + 7, 8) - 1");
  check("floordiv(6*x, 8)", "floordiv(3*x, 4)");
  check("floordiv(6*x + 5, 8)", "floordiv(3*x + 2, 4)");
  check("floordiv(i8, 8)", "0");
  check("floordiv(i8 - 8, 8)", "-1");
  check("floordiv(i8 + 16, 8)", "2");
  check("floordiv(4*x + i4, 8)", "floordiv(x, 2)");
  check("floordiv(32*i + i32, 128)", "floordiv(i, 4)");
  check("floordiv(32*i + 4*i8 + i4, 128)", "floordiv(i, 4)");
  check("floordiv(floordiv(x, 3), 5)", "floordiv(x, 15)");
  check("floordiv(floordiv(x, 3) + 2, 5)", "floordiv(x + 6, 15)");
  check("floordiv(floordiv(x, n), m)", "floordiv(x, m*n)");
  check("floordiv(mod(x, 12), 4)", "mod(floordiv(x, 4), 3)");
  check("floordiv(n8, 8)*8", "n8");
  check("floordiv(n8, 8)*4", "floordiv(n8, 2)");
  check("floordiv(n8 + i8, 8)", "floordiv(n8, 8)");
  check("floordiv(n8*x + i8, 8)", "x*floordiv(n8, 8)");
  check("floordiv(n8 + 3, 16)", "floordiv(n8, 16)");
  check("floordiv(n*x, n)", "x");
  check("floordiv(n*x + y, n)", "x + floordiv(y, n)");
  check("floordiv(6*n*x, 8*n)", "floordiv(3*x, 4)");
  check("floordiv(6*n*x, 4*n)", "x + floordiv(x, 2)");
  check("floordiv(9*n8, 8)", "9*floordiv(n8, 8)");
  check("n8 + floordiv(n8, 8)", "9*floordiv(n8, 8)");
  check("floordiv((n + m)*x, n + m)", "x");
  check("floordiv((n + m)*x + y, n + m)", "x + floordiv(y, m + n)");
  check("floordiv(n*m*x + m*y, n*m)", "x + floordiv(y, n)");
  check("floordiv(-1, n)", "-1");
  check("floordiv(min(n, 64), 128)", "0");
  check("floordiv(min(x, 64), 8)", "min(8, floordiv(x, 8))");
}

TEST(Expr, FloorDivBySymbolicExtents) {
  check("floordiv(in, n)", "0");
  check("floordiv(x*n + in, n)", "x");
  check("floordiv(in*m + im, m)", "in");
  check("floordiv(in*m + im, n*m)", "0");
  check("floordiv(x*n*m + in*m + im, n*m)", "x");
  check("floordiv(x*m + im, n*m)", "floordiv(x, n)");
  check("floordiv(4*in + i4, 4*n)", "0");
  check("floordiv(4*x + i4, 4*n)", "floordiv(x, n)");
  check("mod(in*m + im, m)", "im");
  check("mod(in*m + im, n*m)", "in*m + im");
  check("mod(x*m + im, n*m)", "m*mod(x, n) + im");
}

TEST(Expr, Mod) {
  check("mod(7, 4)", "3");
  check("mod(-7, 4)", "1");
  check("mod(x, 1)", "0");
  check("mod(4*x, 4)", "0");
  check("mod(4*x + y + 9, 4)", "mod(y + 1, 4)");
  check("mod(6*x, 8)", "2*mod(3*x, 4)");
  check("mod(6*x + 1, 8)", "2*mod(3*x, 4) + 1");
  check("mod(i8, 8)", "i8");
  check("mod(i8 - 8, 8)", "i8");
  check("mod(i8 + 24, 8)", "i8");
  check("mod(4*x + i4, 8)", "4*mod(x, 2) + i4");
  check("mod(n8, 8)", "0");
  check("mod(n8 + 3, 16)", "mod(n8, 16) + 3");
  check("mod(mod(x, 12), 4)", "mod(x, 4)");
  check("mod(mod(x, 12) + y, 4)", "mod(x + y, 4)");
  check("mod(mod(x, 4), 12)", "mod(x, 4)");
  check("mod(n*x, n)", "0");
  check("mod(n*x + y, n)", "mod(y, n)");
  check("mod(mod(x, n*m), m)", "mod(x, m)");
  check("mod(n*x, n*m)", "n*mod(x, m)");
}

TEST(Expr, DivisionIdentities) {
  check("4*floordiv(x, 4) + mod(x, 4)", "x");
  check("12*floordiv(x, 4) + 3*mod(x, 4)", "3*x");
  check("y - 4*floordiv(x, 4) - mod(x, 4)", "y - x");
  check("x - 4*floordiv(x, 4)", "mod(x, 4)");
  check("n*floordiv(x, n) + mod(x, n)", "x");
  check("x - n*floordiv(x, n)", "mod(x, n)");
  check("m*n*floordiv(x, n) + m*mod(x, n)", "m*x");
  check("(n + m)*floordiv(x, n + m) + mod(x, n + m)", "x");
  check("mod(x, 4) - x", "-4*floordiv(x, 4)");
  check("floordiv(x, 4) - 3*floordiv(x, 12)", "mod(floordiv(x, 4), 3)");
  check("4*mod(floordiv(x, 4), 3) + mod(x, 4)", "mod(x, 12)");
  // A reshape there and back, with numbers and with symbols.
  check("12*floordiv(x, 12) + 4*mod(floordiv(x, 4), 3) + mod(x, 4)", "x");
  check("n*m*floordiv(x, n*m) + m*mod(floordiv(x, m), n) + mod(x, m)", "x");
  check("20*floordiv(5*x + i4, 20) + mod(5*x + i4, 20)", "5*x + i4");
}

TEST(Expr, MinMax) {
  check("min(3, 5)", "3");
  check("max(3, 5, x, 4)", "max(5, x)");
  check("min(x, x)", "x");
  check("min(x, min(y, 4))", "min(4, x, y)");
  check("min(x + 3, x + 5)", "x + 3");
  check("max(x, x - n)", "x");
  check("min(i8, 7)", "i8");
  check("min(i8, 3 + i8, n8)", "i8");
  check("min(4*x, 8*y)", "4*min(x, 2*y)");
  check("min(x + 4, x + n)", "x + min(4, n)");
  check("max(-x, -y)", "-min(x, y)");
  check("max(-9223372036854775808*x, -y)", "max(-9223372036854775808*x, -y)");
  check("max(-9223372036854775808, -y)", "-y");
  check("min(max(x, y), x)", "x");
  check("max(min(x, y), x)", "x");
  check("min(n - 4*x, 4)", "min(4, n - 4*x)");
}

TEST(Expr, Ranges) {
  // A factor that all terms have.
  const Expr k = Expr::symbol("k", {1, 8});
  EXPECT_EQ((k * k - k).range(), (Interval{0, 56}));
  EXPECT_EQ((k * k * 3 - k * 2).range(), (Interval{1, 176}));
  EXPECT_EQ(parse("4*i8 + i4").range(), (Interval{0, 31}));
  EXPECT_EQ(parse("i4 - i8").range(), (Interval{-7, 3}));
  EXPECT_EQ(parse("mod(x, 8)").range(), (Interval{0, 7}));
  EXPECT_EQ(parse("mod(4*x, 8)").range(), (Interval{0, 4}));
  EXPECT_EQ(parse("i - 8*floordiv(i, 8)").range(), (Interval{0, 7}));
  EXPECT_EQ(parse("x*x").range(), (Interval{0, INT64_MAX}));
  EXPECT_EQ(parse("x").range(), Interval{});
  EXPECT_EQ(parse("x + 1").range(), Interval{});
  EXPECT_EQ(parse("n - 1 - in").range(), (Interval{0, 65535}));
  EXPECT_EQ(parse("in - n").range(), (Interval{-65536, -1}));
  EXPECT_EQ(Expr::symbol("s", {-5, 13}, 4).range(), (Interval{-4, 12}));
}

TEST(Expr, Divisors) {
  EXPECT_EQ(parse("0").divisor(), 0);
  EXPECT_EQ(parse("-12").divisor(), 12);
  EXPECT_EQ(parse("4*x + 6*y").divisor(), 2);
  EXPECT_EQ(parse("4*x*n8").divisor(), 32);
  EXPECT_EQ(parse("mod(n8, 12)").divisor(), 4);
  EXPECT_EQ(parse("floordiv(6*n8, 4)").divisor(), 12);
  EXPECT_EQ(parse("min(n8, 64)").divisor(), 8);
  EXPECT_TRUE(parse("n8 + 16").is_multiple_of(4));
  EXPECT_TRUE(parse("0").is_multiple_of(4));
  EXPECT_FALSE(parse("n8 + 2").is_multiple_of(4));
}

TEST(Expr, Proofs) {
  const auto less = [](const char* a, const char* b) { return proves_less(parse(a), parse(b)); };
  const auto at_most = [](const char* a, const char* b) {
    return proves_at_most(parse(a), parse(b));
  };
  EXPECT_EQ(less("x", "x + 1"), true);
  EXPECT_EQ(less("x", "x"), false);
  EXPECT_EQ(less("x", "y"), std::nullopt);
  EXPECT_EQ(less("i8", "n8"), true);
  EXPECT_EQ(less("in", "n"), true);
  EXPECT_EQ(less("n", "in"), false);
  EXPECT_EQ(less("in*m + im", "n*m"), true);
  EXPECT_EQ(less("in*m*p + im*p + ip", "n*m*p"), true);
  EXPECT_EQ(less("in*m + im + 1", "n*m"), std::nullopt);
  EXPECT_EQ(less("64*t", "n"), true);
  EXPECT_EQ(less("64*t + 63", "n + 64"), true);
  EXPECT_EQ(less("9223372036854775807", "-9223372036854775808 + x"), false);
  EXPECT_EQ(less("x", "-9223372036854775808*x"), std::nullopt);
  EXPECT_TRUE(at_most("n", "n*m"));
  EXPECT_TRUE(at_most("min(x, y)", "x"));
  EXPECT_TRUE(at_most("min(x, y)", "max(y, z)"));
  EXPECT_FALSE(at_most("max(x, y)", "x"));
  EXPECT_TRUE(at_most("4*floordiv(x, 4)", "x"));
  EXPECT_TRUE(at_most("floordiv(n, 2)", "n"));
  EXPECT_TRUE(at_most("n", "64*floordiv(n + 63, 64)"));
  EXPECT_TRUE(at_most("64*t + min(64, n - 64*t)", "n"));
  EXPECT_TRUE(at_most("floordiv(in, 4)", "floordiv(n, 4)"));
  EXPECT_TRUE(at_most("floordiv(in + 3, 4)", "in + 3"));
  EXPECT_TRUE(at_most("2*n", "n*n + 1"));
  EXPECT_FALSE(at_most("3*n", "n*n + 1"));
  EXPECT_TRUE(at_most("n + m", "n*m + 1"));
}

TEST(Expr, ProofsWithBounds) {
  const Expr n = lookup("n");
  const Expr m = lookup("m");
  const Expr a = Expr::symbol("a", {0, 1 << 20});
  const Expr b = Expr::symbol("b", {0, 1 << 20});
  const SymbolBound rows{"a", 0, n - 1};
  const SymbolBound columns{"b", 0, m - 1};
  const SymbolBound triangle{"b", 0, a};
  EXPECT_TRUE(proves_in_bounds(a, n, {{rows}}));
  EXPECT_FALSE(proves_in_bounds(a, n));
  EXPECT_FALSE(proves_in_bounds(a + 1, n, {{rows}}));
  EXPECT_FALSE(proves_in_bounds(a - 1, n, {{rows}}));
  EXPECT_TRUE(proves_in_bounds(n - 1 - a, n, {{rows}}));
  EXPECT_TRUE(proves_in_bounds(a * m + b, n * m, {{rows, columns}}));
  EXPECT_TRUE(proves_in_bounds(b * n + a, n * m, {{rows, columns}}));
  EXPECT_FALSE(proves_in_bounds(a * n + b, n * m, {{rows, columns}}));
  EXPECT_TRUE(proves_in_bounds(b, n, {{rows, triangle}}));
  EXPECT_TRUE(proves_in_bounds(a - b, n, {{triangle, rows}}));
  EXPECT_TRUE(proves_in_bounds(lookup("in"), n));
}

TEST(Expr, Queries) {
  EXPECT_EQ(parse("x*n + in + 3").symbols(), (std::vector<std::string>{"in", "n", "x"}));
  EXPECT_TRUE(parse("floordiv(x, n)").uses("n"));
  EXPECT_FALSE(parse("in").uses("n"));
  EXPECT_EQ(parse("4*x + n*x + y").coefficient_of("x"), parse("n + 4"));
  EXPECT_EQ(parse("y").coefficient_of("x"), Expr(0));
  EXPECT_EQ(parse("x*x").coefficient_of("x"), std::nullopt);
  EXPECT_EQ(parse("mod(x, 4)").coefficient_of("x"), std::nullopt);
  EXPECT_EQ(parse("mod(y, 4)*x").coefficient_of("x"), parse("mod(y, 4)"));
  EXPECT_EQ(parse("floordiv(x, 4) + mod(x, 4)").substitute("x", parse("4*y")), parse("y"));
  EXPECT_EQ(parse("x + y").substitute({{"x", parse("y")}, {"y", parse("x")}}), parse("x + y"));
  // The extent of an index follows the substitution.
  EXPECT_EQ(parse("in").substitute("n", 16).range(), (Interval{0, 15}));
}

TEST(Expr, EmptyExtentsDoNoHarm) {
  const Expr i = Expr::index("i", 0);
  EXPECT_NO_THROW({
    const Expr e = min(floordiv(4 * i + 3, 8), mod(i, 4)) * i;
    e.range();
    proves_less(e, i);
  });
}

TEST(Expr, Errors) {
  const auto code_of = [](std::string_view text) -> std::string {
    try {
      parse(text);
    } catch (const Error& error) {
      EXPECT_TRUE(error.location()) << text;
      return std::string(error.code().name);
    }
    return "none";
  };
  EXPECT_EQ(code_of("floordiv(x, 0)"), "index-divisor");
  EXPECT_EQ(code_of("mod(x, -4)"), "index-divisor");
  EXPECT_EQ(code_of("9223372036854775807 + 1"), "index-overflow");
  EXPECT_EQ(code_of("4611686018427387904*x*2"), "index-overflow");
  EXPECT_EQ(code_of("9223372036854775808"), "syntax");
  EXPECT_EQ(code_of("x +"), "syntax");
  EXPECT_EQ(code_of("x + )"), "syntax");
  EXPECT_EQ(code_of("sqrt(x)"), "syntax");
  EXPECT_EQ(code_of("mod(x)"), "syntax");
  EXPECT_EQ(code_of("(x"), "syntax");
  EXPECT_EQ(code_of(std::string(100000, '(')), "syntax");
  EXPECT_EQ(code_of(std::string(100000, '-')), "syntax");
  std::string power = "(x + y + z + n + m)";
  for (int i = 0; i < 6; ++i) power = power + "*" + power;
  EXPECT_EQ(code_of(power), "index-too-large");
  EXPECT_THAT([] { parse("x*x").evaluate([](std::string_view) { return int64_t{1} << 40; }); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("does not fit in 64 bits")));
  EXPECT_THAT([] { parse("mod(x, n)").evaluate([](std::string_view) { return int64_t{0}; }); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("divides by a number below 1")));
}

// A random expression as a tree that is evaluated as written, next to what Expr makes of it.
class RandomExpression {
 public:
  static constexpr int kSymbols = 7;

  struct Values {
    int64_t of[kSymbols];
  };

  RandomExpression(std::mt19937_64& random, int depth) : random_(random) { root_ = grow(depth); }

  const Expr& expr() const { return nodes_[root_].expr; }
  std::optional<int64_t> evaluate(const Values& values) const { return evaluate(root_, values); }

  /// The tree as it was grown, for messages.
  std::string text() const { return text(root_); }

  static const Expr& symbol(int i) {
    static const Expr all[kSymbols] = {Expr::symbol("a", {-6, 9}),
                                       Expr::symbol("b", {0, 15}),
                                       Expr::symbol("c", {-8, 24}, 4),
                                       Expr::symbol("n", {1, 6}),
                                       Expr::symbol("m", {1, 5}),
                                       Expr::index("i", Expr::symbol("n", {1, 6})),
                                       Expr::index("j", 2 * Expr::symbol("m", {1, 5}))};
    return all[i];
  }

  static Values random_values(std::mt19937_64& random) {
    const auto pick = [&](int64_t min, int64_t max) {
      return std::uniform_int_distribution<int64_t>(min, max)(random);
    };
    Values v{};
    v.of[0] = pick(-6, 9);
    v.of[1] = pick(0, 15);
    v.of[2] = 4 * pick(-2, 6);
    v.of[3] = pick(1, 6);
    v.of[4] = pick(1, 5);
    v.of[5] = pick(0, v.of[3] - 1);
    v.of[6] = pick(0, 2 * v.of[4] - 1);
    return v;
  }

  static int64_t value_of(std::string_view name, const Values& values) {
    for (int i = 0; i < kSymbols; ++i) {
      if (symbol(i).symbol_name() == name) return values.of[i];
    }
    throw std::runtime_error("unknown symbol");
  }

 private:
  enum class Op { Constant, Symbol, Add, Sub, Mul, FloorDiv, Mod, Min, Max, Ceil };
  struct TreeNode {
    Op op;
    int64_t value;
    size_t a, b;
    Expr expr;
  };

  int64_t pick(int64_t min, int64_t max) {
    return std::uniform_int_distribution<int64_t>(min, max)(random_);
  }

  std::string text(size_t id) const {
    static constexpr const char* kNames[] = {"",         "",    "+",   "-",   "*",
                                             "floordiv", "mod", "min", "max", "ceildiv"};
    const TreeNode& n = nodes_[id];
    if (n.op == Op::Constant) return std::to_string(n.value);
    if (n.op == Op::Symbol) return symbol(static_cast<int>(n.value)).symbol_name();
    return std::string("(") + kNames[static_cast<int>(n.op)] + " " + text(n.a) + " " + text(n.b) +
           ")";
  }

  size_t add(Op op, int64_t value, size_t a, size_t b, const Expr& expr) {
    nodes_.push_back({op, value, a, b, expr});
    return nodes_.size() - 1;
  }

  size_t constant(int64_t value) { return add(Op::Constant, value, 0, 0, value); }

  /// A positive expression.
  size_t divisor() {
    switch (pick(0, 5)) {
      case 0:
        return add(Op::Symbol, 3, 0, 0, symbol(3));
      case 1: {
        const size_t n = add(Op::Symbol, 3, 0, 0, symbol(3));
        const size_t m = add(Op::Symbol, 4, 0, 0, symbol(4));
        const bool sum = pick(0, 1);
        return add(sum ? Op::Add : Op::Mul, 0, n, m,
                   sum ? symbol(3) + symbol(4) : symbol(3) * symbol(4));
      }
      case 2: {
        const size_t k = constant(pick(1, 4));
        const size_t m = add(Op::Symbol, 4, 0, 0, symbol(4));
        return add(Op::Mul, 0, k, m, nodes_[k].expr * symbol(4));
      }
      default:
        return constant(pick(0, 1) ? int64_t{1} << pick(0, 4) : pick(1, 12));
    }
  }

  size_t grow(int depth) {
    if (depth == 0 || pick(0, 9) == 0) {
      if (pick(0, 3) == 0) return constant(pick(-9, 16));
      const int64_t i = pick(0, kSymbols - 1);
      return add(Op::Symbol, i, 0, 0, symbol(static_cast<int>(i)));
    }
    switch (pick(0, 11)) {
      case 0:
      case 1:
      case 2:
        return binary(Op::Add, grow(depth - 1), grow(depth - 1));
      case 3:
        return binary(Op::Sub, grow(depth - 1), grow(depth - 1));
      case 4:
      case 5:
        return binary(Op::Mul, grow(depth - 1), constant(pick(-4, 12)));
      case 6:
        return binary(Op::Mul, grow(depth - 1), grow(std::min(depth - 1, 1)));
      case 7:
        return binary(Op::FloorDiv, grow(depth - 1), divisor());
      case 8:
        return binary(Op::Mod, grow(depth - 1), divisor());
      case 9:
        return binary(pick(0, 1) ? Op::Min : Op::Max, grow(depth - 1), grow(depth - 1));
      case 10: {
        // What reshapes make: quotient and remainder of one value by one divisor, put together.
        const size_t x = grow(depth - 1);
        const size_t d = divisor();
        const size_t q = binary(Op::FloorDiv, x, d);
        const size_t r = binary(Op::Mod, x, d);
        if (pick(0, 1)) return binary(Op::Sub, x, binary(Op::Mul, q, d));
        return binary(Op::Add, binary(Op::Mul, q, d), r);
      }
      default:
        return binary(Op::Ceil, grow(depth - 1), divisor());
    }
  }

  size_t binary(Op op, size_t a, size_t b) {
    const Expr x = nodes_[a].expr;
    const Expr y = nodes_[b].expr;
    switch (op) {
      case Op::Add:
        return add(op, 0, a, b, x + y);
      case Op::Sub:
        return add(op, 0, a, b, x - y);
      case Op::Mul:
        return add(op, 0, a, b, x * y);
      case Op::FloorDiv:
        return add(op, 0, a, b, floordiv(x, y));
      case Op::Mod:
        return add(op, 0, a, b, mod(x, y));
      case Op::Min:
        return add(op, 0, a, b, min(x, y));
      case Op::Max:
        return add(op, 0, a, b, max(x, y));
      default:
        return add(op, 0, a, b, ceildiv(x, y));
    }
  }

  /// Nullopt where the value leaves what is interesting.
  std::optional<int64_t> evaluate(size_t id, const Values& values) const {
    const TreeNode& n = nodes_[id];
    if (n.op == Op::Constant) return n.value;
    if (n.op == Op::Symbol) return values.of[n.value];
    const auto x = evaluate(n.a, values);
    const auto y = evaluate(n.b, values);
    if (!x || !y || std::abs(*x) > 1 << 28 || std::abs(*y) > 1 << 28) return std::nullopt;
    switch (n.op) {
      case Op::Add:
        return *x + *y;
      case Op::Sub:
        return *x - *y;
      case Op::Mul:
        return *x * *y;
      case Op::FloorDiv:
        return floordiv(*x, *y);
      case Op::Mod:
        return mod(*x, *y);
      case Op::Min:
        return std::min(*x, *y);
      case Op::Max:
        return std::max(*x, *y);
      default:
        return -floordiv(-*x, *y);
    }
  }

  std::mt19937_64& random_;
  std::vector<TreeNode> nodes_;
  size_t root_ = 0;
};

Expr lookup_random(std::string_view name) {
  for (int i = 0; i < RandomExpression::kSymbols; ++i) {
    if (RandomExpression::symbol(i).symbol_name() == name) return RandomExpression::symbol(i);
  }
  throw std::runtime_error("unknown symbol");
}

TEST(Expr, RandomExpressionsKeepTheirValue) {
  std::mt19937_64 random(20240607);
  int compared = 0;
  for (int round = 0; round < 100'000 && !HasFailure(); ++round) {
    const RandomExpression a(random, 1 + round % 5);
    const RandomExpression b(random, 1 + round % 3);
    const Expr& e = a.expr();
    const std::string text = e.to_string();
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text);

    Scanner scanner(text, "test");
    const Expr again = parse_expr(scanner, lookup_random);
    EXPECT_EQ(again, e) << again.to_string();
    EXPECT_EQ(again.hash(), e.hash());

    const Interval range = e.range();
    const std::optional<bool> less = proves_less(e, b.expr());
    const bool at_most = proves_at_most(e, b.expr());
    const bool inside = proves_in_bounds(e, b.expr());
    const std::optional<Expr> slope = e.coefficient_of("b");
    for (int sample = 0; sample < 8; ++sample) {
      const auto values = RandomExpression::random_values(random);
      const auto value_of = [&](std::string_view name) {
        return RandomExpression::value_of(name, values);
      };
      const auto expected = a.evaluate(values);
      if (!expected) continue;
      ++compared;
      EXPECT_EQ(e.evaluate(value_of), *expected) << a.text();
      EXPECT_TRUE(range.contains(*expected)) << *expected;
      if (e.divisor() == 0) {
        EXPECT_EQ(*expected, 0);
      } else {
        EXPECT_EQ(*expected % e.divisor(), 0);
      }
      std::unordered_map<std::string, Expr> known;
      for (int i = sample % 2; i < RandomExpression::kSymbols; ++i) {
        known[RandomExpression::symbol(i).symbol_name()] = values.of[i];
      }
      EXPECT_EQ(e.substitute(known).evaluate(value_of), *expected);
      if (slope) {
        const int64_t base = e.substitute("b", 0).evaluate(value_of);
        EXPECT_EQ(base + slope->evaluate(value_of) * value_of("b"), *expected);
      }
      const auto other = b.evaluate(values);
      if (!other) continue;
      EXPECT_EQ(b.expr().evaluate(value_of), *other) << b.expr().to_string() << " of " << b.text();
      if (less) {
        EXPECT_EQ(*less, *expected < *other) << b.expr().to_string();
      }
      if (at_most) {
        EXPECT_LE(*expected, *other) << b.expr().to_string();
      }
      if (inside) {
        EXPECT_TRUE(0 <= *expected && *expected < *other) << b.expr().to_string();
      }
    }
  }
  EXPECT_GT(compared, 500'000);
}

// Every way to cut an index space into nested dimensions and put it together again is the identity.
TEST(Expr, ReshapesThereAndBack) {
  std::mt19937_64 random(7);
  const Expr symbols[] = {lookup("n"), lookup("m"), lookup("p"), 2, 3, 4, 8};
  for (int round = 0; round < 300; ++round) {
    std::vector<Expr> shape;
    for (size_t rank = 1 + random() % 4; shape.size() < rank;) {
      shape.push_back(symbols[random() % std::size(symbols)]);
    }
    Expr numel = 1;
    for (const Expr& d : shape) numel *= d;
    const Expr flat = Expr::index("flat", numel);
    Expr stride = 1;
    Expr back = 0;
    for (size_t axis = shape.size(); axis-- > 0;) {
      const Expr i = axis == 0 ? floordiv(flat, stride) : mod(floordiv(flat, stride), shape[axis]);
      EXPECT_TRUE(proves_in_bounds(i, shape[axis])) << i.to_string() << " " << numel.to_string();
      back += i * stride;
      stride *= shape[axis];
    }
    EXPECT_EQ(back, flat) << numel.to_string();

    // And the other way: indices of the dimensions, flattened and taken apart.
    Expr address = 0;
    std::vector<Expr> indices;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      indices.push_back(Expr::index("i" + std::to_string(axis), shape[axis]));
      address = address * shape[axis] + indices.back();
    }
    EXPECT_TRUE(proves_in_bounds(address, numel)) << address.to_string();
    stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      EXPECT_EQ(mod(floordiv(address, stride), shape[axis]), indices[axis]) << address.to_string();
      stride *= shape[axis];
    }
  }
}

}  // namespace
}  // namespace braze
