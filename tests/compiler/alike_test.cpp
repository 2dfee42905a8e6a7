// Which first trees are alike, and how the steps of one get the names of another.
#include "compiler/loops/alike.h"

#include <gtest/gtest.h>

#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {
namespace {

// The mean of each row of a tensor, and how far the elements are from it.
LoopTree rows(std::string_view input, std::string_view sum, std::string_view output) {
  return parse_loops(fmt::format(R"(braze 1 loops
tree @rows({0}: in f32[64, 256], {2}: out f32[64, 256]) {{
  axis i: 64
  axis j: 256
  axis r: 256
  phase {{
    parallel i {{
      stream r {{
        %{1}[i] = fold sum {0}[i, r] over r
      }}
      parallel j {{
        store {0}[i, j] - %{1} to {2}[i, j]
      }}
    }}
  }}
}}
)",
                                 input, sum, output),
                     "test");
}

TEST(Alike, NamesMakeNoDifference) {
  const auto text = text_without_names(rows("x", "7", "y"));
  ASSERT_TRUE(text);
  EXPECT_EQ(text, text_without_names(rows("layer.3.in", "19", "t20")));
  EXPECT_EQ(text, text_without_names(rows("y", "x", "t7"))) << "names of others";
}

TEST(Alike, EverythingElseDoes) {
  const auto text = text_without_names(rows("x", "7", "y"));
  LoopTree tree = rows("x", "7", "y");
  tree.tensors[0].finite = true;
  EXPECT_NE(text, text_without_names(tree));
  tree = rows("x", "7", "y");
  tree.tensors[0].type.dtype = DType::F16;
  EXPECT_NE(text, text_without_names(tree));
  tree = rows("x", "7", "y");
  tree.axes[0].name = "k";
  EXPECT_NE(text, text_without_names(tree)) << "steps name axes";
}

// A step could make such names from others, or of its own.
TEST(Alike, NamesThatCouldBeConfused) {
  EXPECT_FALSE(text_without_names(rows("x", "7", "xs"))) << "a factor made from x";
  EXPECT_FALSE(text_without_names(rows("a2", "a", "y"))) << "%a once more";
  EXPECT_FALSE(text_without_names(rows("x", "a", "a_part")));
  EXPECT_FALSE(text_without_names(rows("x", "shared", "y")));
  EXPECT_FALSE(text_without_names(rows("s", "7", "y")));
  EXPECT_FALSE(text_without_names(rows("p2", "7", "y")));
  EXPECT_TRUE(text_without_names(rows("layer", "layer.2", "layer.3")));
  EXPECT_TRUE(text_without_names(rows("scale", "product", "sharedy")));
  EXPECT_TRUE(text_without_names(rows("x", "y", "y"))) << "a value and where it is stored";
}

TEST(Alike, StepsTakeTheNamesOfTheOtherTree) {
  const LoopTree from = rows("x", "7", "y"), to = rows("layer.3.in", "19", "i");
  const LoopTreeSteps steps = parse_steps(
      "flatten x; split j 64; keep %7_part2 chip; keep %xs chip; bind %7 (w1:2); bind y (l1:32); "
      "on i grid; keep %shared2 registers; collapse i j",
      "test");
  EXPECT_EQ(to_text(renamed(steps, from, to)),
            "flatten layer.3.in; split j 64; keep %19_part2 chip; keep %layer.3.ins chip; "
            "bind %19 (w1:2); bind i (l1:32); on i grid; keep %shared2 registers; collapse i j");
  EXPECT_EQ(to_text(renamed(renamed(steps, from, to), to, from)), to_text(steps));
}

}  // namespace
}  // namespace braze
