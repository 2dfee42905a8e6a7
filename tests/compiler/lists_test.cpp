// Which kernels become one kernel for a list of members of unlike sizes, and why others do not.
#include "compiler/loops/lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "ir/support/text.h"

namespace braze {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LoopTree parsed(const std::string& text) { return parse_loops("braze 1 loops\n" + text, "test"); }

// An update of a matrix.
LoopTree matrix(int64_t rows, int64_t columns, std::string_view name = "w",
                std::string_view rate = "0.5") {
  return parsed(fmt::format(R"(tree @update({2}: inout f32[{0}, {1}], g: in f32[{0}, {1}]) {{
  axis i: {0}
  axis j: {1}
  phase {{
    parallel i {{
      parallel j {{
        store {2}[i, j] - {3} * g[i, j] to {2}[i, j]
      }}
    }}
  }}
}}
)",
                            rows, columns, name, rate));
}
// The same of a vector.
LoopTree vector(int64_t extent) {
  return parsed(fmt::format(R"(tree @update(b: inout f32[{0}], g: in f32[{0}]) {{
  axis i: {0}
  phase {{
    parallel i {{
      store b[i] - 0.5 * g[i] to b[i]
    }}
  }}
}}
)",
                            extent));
}
// The greatest element of each row.
LoopTree rows(int64_t count, int64_t length) {
  return parsed(fmt::format(R"(tree @rows(x: in f32[{0}, {1}], y: out f32[{0}]) {{
  axis i: {0}
  axis r: {1}
  phase {{
    parallel i {{
      stream r {{
        %m[i] = fold max x[i, r] over r
      }}
      store %m to y[i]
    }}
  }}
}}
)",
                            count, length));
}

std::string key_of(const LoopTree& first) {
  const auto key = list_key(list_form(first));
  const auto* refusal = std::get_if<Refusal>(&key);
  return refusal ? "refused: " + refusal->why : std::get<std::string>(key);
}

std::variant<ListTree, Refusal> list_of(const std::vector<LoopTree>& firsts) {
  std::vector<LoopTree> forms;
  for (const LoopTree& first : firsts) forms.push_back(list_form(first));
  std::vector<const LoopTree*> list;
  for (const LoopTree& form : forms) list.push_back(&form);
  return list_tree(list);
}
std::string why_not(const std::vector<LoopTree>& firsts) {
  const auto list = list_of(firsts);
  const auto* refusal = std::get_if<Refusal>(&list);
  return refusal ? refusal->why : "";
}

TEST(Lists, NamesAndSizesMakeNoDifference) {
  EXPECT_EQ(key_of(matrix(768, 3072)), key_of(matrix(768, 3072, "u")));
  EXPECT_EQ(key_of(matrix(768, 3072)), key_of(matrix(64, 5)));
  EXPECT_EQ(key_of(matrix(768, 3072)), key_of(vector(77)));
  EXPECT_EQ(key_of(rows(20, 64)), key_of(rows(3, 64)));
}

TEST(Lists, EverythingElseDoes) {
  EXPECT_NE(key_of(matrix(768, 3072)), key_of(matrix(768, 3072, "w", "0.25"))) << "a constant";
  EXPECT_NE(key_of(rows(20, 64)), key_of(vector(64)));
  LoopTree tree = vector(77);
  tree.tensors[1].type.dtype = DType::BF16;
  EXPECT_NE(key_of(vector(77)), key_of(tree));
  tree = vector(77);
  tree.tensors[1].finite = true;
  EXPECT_NE(key_of(vector(77)), key_of(tree));
}

TEST(Lists, OneTreeHasASymbolForEachExtentThatDiffers) {
  const auto list = list_of({matrix(768, 3072), vector(768), matrix(64, 24)});
  ASSERT_TRUE(std::holds_alternative<ListTree>(list)) << std::get<Refusal>(list).why;
  const auto& [tree, sizes] = std::get<ListTree>(list);
  EXPECT_TRUE(verify(tree).empty());
  EXPECT_THAT(sizes, ElementsAre(ElementsAre(2359296), ElementsAre(768), ElementsAre(1536)));
  EXPECT_EQ(to_text(tree), R"(braze 1 loops
symbol size: 768..2359296%768

tree @update(w: inout f32[size], g: in f32[size]) {
  axis ij: size
  phase {
    parallel ij {
      store w[ij] - 0.5 * g[ij] to w[ij]
    }
  }
}
)");
}

TEST(Lists, ExtentsThatAreEqualEverywhereStayNumbers) {
  const auto list = list_of({rows(20, 64), rows(3, 64)});
  ASSERT_TRUE(std::holds_alternative<ListTree>(list)) << std::get<Refusal>(list).why;
  EXPECT_THAT(to_text(std::get<ListTree>(list).tree), HasSubstr("x: in f32[size, 64]"));
}

TEST(Lists, SumsOfUnlikeLengthsAreRefused) {
  EXPECT_EQ(key_of(rows(20, 64)), key_of(rows(20, 65)));
  EXPECT_EQ(why_not({rows(20, 64), rows(20, 65)}),
            "a sum runs over r, whose extent differs: %m[i] = fold max x[i, r] over r");
}

TEST(Lists, SymbolicSizesAreRefused) {
  const LoopTree tree = parsed(R"(symbol n: 1..100
tree @copy(x: in f32[n], y: out f32[n]) {
  axis i: n
  phase {
    parallel i {
      store x[i] to y[i]
    }
  }
}
)");
  EXPECT_EQ(key_of(tree),
            "refused: its size n is a symbol, and the code of a list contains all sizes");
}

TEST(Lists, DivisionsBySizesThatDifferAreRefused) {
  const auto repeated = [](int64_t period) {
    return parsed(fmt::format(R"(tree @repeat(x: in f32[{0}], y: out f32[4096]) {{
  axis i: 4096
  phase {{
    parallel i {{
      store x[mod(i, {0})] to y[i]
    }}
  }}
}}
)",
                              period));
  };
  EXPECT_THAT(why_not({repeated(64), repeated(96)}),
              HasSubstr("an index is divided by a size that differs"));
}

TEST(Lists, PlacesAndScansAreRefused) {
  const LoopTree tree = parsed(R"(tree @running(x: in f32[8, 64], y: out f32[8, 64]) {
  axis i: 8
  axis j: 64
  phase {
    parallel i {
      stream j {
        %s[i, j] = scan sum x[i, j] over j
        store %s to y[i, j]
      }
    }
  }
}
)");
  EXPECT_THAT(key_of(tree), HasSubstr("refused: the steps of places and scans depend on extents"));
}

TEST(Lists, EqualKernelsAreNoList) {
  EXPECT_EQ(why_not({vector(64), vector(64)}), "the kernels do not differ in their sizes");
}

}  // namespace
}  // namespace braze
