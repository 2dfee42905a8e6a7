#include "runtime/execution/expr_program.h"

#include <gtest/gtest.h>

#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

TEST(ExprProgram, AgreesWithEvaluate) {
  const Expr n = Expr::symbol("n", {-1000, 1000});
  const Expr m = Expr::symbol("m", {1, 50});
  const std::vector<Expr> exprs = {
      0,
      n,
      3 * n + m + 7,
      n * m - 2 * n * n,
      floordiv(n, 7),
      mod(n, 7),
      floordiv(n, m),
      mod(n + 1, m),
      min(n, m) + max(n, 5),
      64 * ceildiv(4 * n, 64),
      floordiv(n, 7) + mod(n, 7),
  };
  const std::vector<Expr> symbols = {n, m};
  ExprProgram program(symbols);
  std::vector<uint32_t> places;
  for (const Expr& e : exprs) places.push_back(program.add(e));
  for (int64_t nv = -1000; nv <= 1000; nv += 13) {
    for (int64_t mv = 1; mv <= 50; mv += 7) {
      const std::vector<int64_t> given = {nv, mv};
      const std::vector<int64_t> got = program.run(given);
      for (size_t i = 0; i < exprs.size(); ++i) {
        EXPECT_EQ(got[places[i]], exprs[i].evaluate([&](std::string_view s) {
          return s == "n" ? nv : mv;
        })) << exprs[i].to_string();
      }
    }
  }
}

TEST(ExprProgram, OverflowIsAnError) {
  const Expr n = Expr::symbol("n", {0, INT64_MAX});
  const std::vector<Expr> symbols = {n};
  ExprProgram program(symbols);
  program.add(n * n);
  const std::vector<int64_t> big = {int64_t{1} << 40}, small = {5};
  EXPECT_TRUE(error_of([&] { program.run(big); }).starts_with("size-overflow"));
  EXPECT_EQ(error_of([&] { program.run(small); }), "");
}

}  // namespace
}  // namespace braze::test
