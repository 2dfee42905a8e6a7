// What the parsers of Tile IR and Kernel IR do with texts that nobody should write.
#include <gtest/gtest.h>

#include <string>

#include "ir/code/text.h"
#include "ir/code/vectors.h"
#include "ir/support/text.h"

namespace braze {
namespace {

std::string tile(const std::string& body) {
  return "braze 1 tile\nkernel @k(%x: in f32[8], %y: out f32[8]) {\n  phase grid(i: 2) {\n" + body +
         "\n  }\n}\n";
}

std::string error_of(const std::string& text) {
  try {
    parse_tile(text, "t");
  } catch (const Error& error) {
    return fmt::format("{}: {}", error.location().to_string(), error.message());
  }
  return "no error";
}

std::string repeat(std::string_view text, int n) {
  std::string out;
  while (n-- > 0) out += text;
  return out;
}

TEST(CodeText, NamesTheGuiltyPlace) {
  EXPECT_EQ(error_of(tile("%a = load %x[d0] : f32[8]\n%a = neg %a : f32[8]")),
            "t:5:1: %a is defined twice");
  EXPECT_EQ(error_of(tile("let i = 3")), "t:4:5: the symbol i is already defined");
  EXPECT_EQ(error_of(tile("let d7 = 3")),
            "t:4:5: d7 is a word of the language and cannot name a symbol");
  EXPECT_EQ(error_of(tile("frob %x")), "t:4:1: \"frob\" is not a statement");
  EXPECT_EQ(error_of(tile("%a = const 1.5 : i32[2]")),
            "t:4:12: this literal is not a value of i32");
  EXPECT_EQ(error_of(tile("%a = const 4294967296 : u32[2]")),
            "t:4:12: this literal is not a value of u32");
  EXPECT_EQ(error_of(tile("%a = const bits(0x1ffffffff) : f32")),
            "t:4:12: this literal is not a value of f32");
  EXPECT_EQ(error_of(tile("%a = load %x[d0]")),
            "t:4:11: this statement needs its type at the end, as in `: f32[64]`");
}

TEST(CodeText, IsBounded) {
  EXPECT_NE(error_of(tile("%a = const 0.0 : f32[1048576, 1048576, 1048576, 1048576]")).find("2^20"),
            std::string::npos);
  EXPECT_NE(
      error_of(tile(repeat("if (i < 1) {\n", 5000) + repeat("}\n", 5000))).find("nested too deep"),
      std::string::npos);
  EXPECT_NE(error_of(tile("let a = " + repeat("(", 5000) + "1" + repeat(")", 5000)))
                .find("nested too deep"),
            std::string::npos);
}

// Every byte cut off, and every byte changed, is read or refused.
TEST(CodeText, SurvivesDamage) {
  const std::string text = tile(
      "%a = load %x[d0 + i] mask (d0 < 3 and i != 2) fill -1.5 : f32[8]\n"
      "%b, %c = for k: 0..8 step 2 carry(%d = %a, %e = %a) {\n%f = fma %d, 0x1.8p-3, nan : "
      "f32[8]\nyield %f, %e\n}\n"
      "if (i > 0) {\nstore %b, %y[d0] cache stream\n} else {\nstore %c, %y[d0]\n}");
  ASSERT_EQ(error_of(text), "no error");
  for (size_t i = 0; i < text.size(); ++i) {
    error_of(text.substr(0, i));
    std::string changed = text;
    for (const char c : {'%', '9', '[', '\n'}) {
      changed[i] = c;
      error_of(changed);
    }
  }
}

TEST(CodeText, KeepsEveryBitOfLiterals) {
  const std::string text = to_text(parse_tile(
      tile("%a = const bits(0xffc00001) : f32\n%b = const 0x1p-149 : f32\n%c = const -0.0 : f64\n"
           "%d = const 16777217 : f32\n%e = const -9223372036854775808 : i64\n%f = const 0.1 : "
           "bf16"),
      "t"));
  EXPECT_NE(text.find("const bits(0xffc00001) : f32"), std::string::npos) << text;
  EXPECT_NE(text.find("const -0.0 : f64"), std::string::npos) << text;
  EXPECT_NE(text.find("const -9223372036854775808 : i64"), std::string::npos) << text;
  EXPECT_EQ(to_text(parse_tile(text, "t")), text);
}

// Every bound at a multiple of the lanes, and next to it.
TEST(CodeVectors, AreCutWholeIfAllLanesAgree) {
  using Kind = IndexComparison::Kind;
  constexpr int64_t kLanes = 4;
  const Expr lane = Expr::symbol("lane", {0, kLanes - 1}), i = Expr::symbol("i", {-5, 5});
  int whole = 0;
  for (const Kind kind : {Kind::Lt, Kind::Le, Kind::Gt, Kind::Ge, Kind::Eq, Kind::Ne})
    for (int64_t bound = -9; bound <= 9; ++bound)
      for (const bool swap : {false, true}) {
        const Expr place = i * kLanes + lane;
        const IndexComparison c =
            swap ? IndexComparison{bound, kind, place} : IndexComparison{place, kind, bound};
        bool agree = true;
        for (int64_t turn = -5; turn <= 5; ++turn) {
          const auto at = [&](int64_t l) {
            const int64_t x = turn * kLanes + l;
            return swap ? holds(kind, bound, x) : holds(kind, x, bound);
          };
          for (int64_t l = 1; l < kLanes; ++l) agree = agree && at(l) == at(0);
        }
        const bool ordered = kind != Kind::Eq && kind != Kind::Ne;
        EXPECT_EQ(is_cut_whole(c, kLanes), agree && ordered)
            << static_cast<int>(kind) << " " << bound << " " << swap;
        whole += is_cut_whole(c, kLanes);
      }
  EXPECT_EQ(whole, 40);
  EXPECT_TRUE(is_cut_whole({i, Kind::Eq, 3}, kLanes));
  EXPECT_FALSE(is_cut_whole({2 * lane, Kind::Lt, i * kLanes}, kLanes));
}

}  // namespace
}  // namespace braze
