// How much memory files of models take at import. A small file can describe values of any size,
// functions that call functions, and loops within loops. It takes no more than its size justifies.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>

#include "braze/model.h"
#include "tests/onnx/written.h"

// The functions of glibc that its malloc and others call. Those below stand in their place.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);
}

namespace {

// Bytes of the process, and the most there were.
std::atomic<int64_t> held{0}, peak{0};

void* counted(void* memory) {
  const int64_t now = held += static_cast<int64_t>(memory ? malloc_usable_size(memory) : 0);
  for (int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
  }
  return memory;
}

void let_go(void* memory) { held -= static_cast<int64_t>(memory ? malloc_usable_size(memory) : 0); }

}  // namespace

extern "C" {
void* malloc(size_t size) { return counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }
void* realloc(void* memory, size_t size) {
  let_go(memory);
  return counted(__libc_realloc(memory, size));
}
void* aligned_alloc(size_t alignment, size_t size) {
  return counted(__libc_memalign(alignment, size));
}
void free(void* memory) {
  let_go(memory);
  __libc_free(memory);
}
}

namespace braze {
namespace {

using namespace test::onnx;

constexpr int64_t kMost = int64_t{32} << 20;  // for a file of a few thousand bytes

// The error of an import, if there is one, and the bytes that it took when it took most.
struct Taken {
  std::string error;
  int64_t bytes;
};

template <class Import>
Taken taken_by(const Import& import) {
  const int64_t before = held;
  peak = before;
  std::string error;
  try {
    import();
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  return {error, peak - before};
}
Taken taken(const std::string& bytes) {
  return taken_by([&] { parse_onnx(std::as_bytes(std::span(bytes)), "model"); });
}
Taken taken_by_text(const std::string& text) {
  return taken_by([&] { parse_stablehlo(text, "model.mlir"); });
}

std::string contains(const std::string& text, const std::string& part) {
  return text.find(part) == std::string::npos ? "no \"" + part + "\" in: " + text : "";
}

TEST(ImportMemory, IsThatOfTheFileForAModelThatIsItsWeights) {
  const std::string bytes =
      model_of(floats("w", {100, 100, 100}, std::vector<float>(1'000'000)) +
               input("x", 1, {"100"}) + node("Add", {"x", "w"}, "y") + output("y"));
  const Taken import = taken(bytes);
  EXPECT_EQ(import.error, "");
  EXPECT_GT(import.bytes, 4'000'000) << "what is counted is not what is taken";
  EXPECT_LT(import.bytes, 8'000'000);
}

// A value of 2^22 elements, which fifteen steps make one of f64 again and again.
TEST(ImportMemory, FoldedValuesTakeWhatTheFileJustifies) {
  std::string graph = integers("size", {1 << 22}) + node("ConstantOfShape", {"size"}, "c") +
                      node("Cast", {"c"}, "v0", attribute("to", 11));
  for (int i = 0; i < 15; ++i)
    graph += node(i % 2 ? "Cos" : "Exp", {"v" + std::to_string(i)}, "v" + std::to_string(i + 1));
  const Taken large = taken(model_of(graph + node("NonZero", {"v15"}, "y") + output("y")));
  EXPECT_EQ(contains(large.error, "values that are too large"), "");
  EXPECT_LT(large.bytes, kMost);
}

// Forty values, each small enough, are read one after the other.
TEST(ImportMemory, FoldedValuesThatNothingReadsMakeRoom) {
  std::string graph;
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    graph += integers("size" + n, {(1 << 17) + i}) +
             node("ConstantOfShape", {"size" + n}, "c" + n) +
             node("Cast", {"c" + n}, "d" + n, attribute("to", 11)) +
             node("Sin", {"d" + n}, "s" + n) + node("NonZero", {"s" + n}, "z" + n) +
             node("Cast", {"z" + n}, "y" + n, attribute("to", 1)) + output("y" + n);
  }
  const Taken many = taken(model_of(graph));
  EXPECT_EQ(many.error, "");
  EXPECT_LT(many.bytes, kMost);
}

// Each of a hundred shapes has as many extents as the importer reckons with.
TEST(ImportMemory, ListsOfWholeNumbersThatNothingReadsMakeRoom) {
  std::string graph = input("x", 1, {"n"}) + node("Shape", {"x"}, "size") +
                      integers("count", {4096}) + integers("one", {1}) +
                      node("Expand", {"size", "count"}, "v0");
  for (int i = 0; i < 200; ++i) {
    const std::string at = "v" + std::to_string(i), next = "v" + std::to_string(i + 1);
    graph += node("Add", {at, "one"}, next);
  }
  graph += node("ReduceMax", {"v200"}, "most") + node("Expand", {"x", "most"}, "y") + output("y");
  const Taken lists = taken(model_of(graph));
  EXPECT_LT(lists.bytes, kMost);
}

TEST(ImportMemory, ConstantsThatNodesMakeTakeWhatTheFileJustifies) {
  std::string windows = integers("size", {1 << 20});
  for (int i = 0; i < 20; ++i)
    windows +=
        node("HannWindow", {"size"}, "y" + std::to_string(i)) + output("y" + std::to_string(i));
  const Taken made = taken(model_of(windows));
  EXPECT_EQ(contains(made.error, "a file of this size may not have so many"), "");
  EXPECT_LT(made.bytes, kMost);
  const std::string resized = model_of(
      input("x", 1, {"1", "1", "1", "n"}) + integers("small", {1, 1, 1, 2}) +
          integers("large", {1, 1, 1, 60'000}) + node("Resize", {"x", "", "", "large"}, "z") +
          node("Resize", {"z", "", "", "small"}, "y",
               attribute("mode", "linear") + attribute("antialias", 1)) +
          output("y"),
      18);
  const Taken taps = taken_by([&] {
    parse_onnx(std::as_bytes(std::span(resized)), "model", {.sizes = {{"n", 100}}});
  });
  EXPECT_EQ(contains(taps.error, "each element is computed of 60000 elements"), "");
  EXPECT_LT(taps.bytes, kMost);
}

// Function i calls function i - 1 twice, the second time with the result of the first, or with the
// same operand.
std::string functions(int count, const std::string& innermost, bool in_turn = true) {
  const auto call = [](const std::string& op, const std::string& x, const std::string& y,
                       const std::string& domain) {
    return field(7, field(1, x) + field(2, y) + field(4, op) + field(7, domain));
  };
  const std::string opsets = field(9, number(2, 17)) + field(9, field(1, "own") + number(2, 1));
  std::string out;
  for (int i = 0; i < count; ++i) {
    const std::string inner = "f" + std::to_string(i - 1);
    out += field(25, field(1, "f" + std::to_string(i)) + field(4, "a") + field(5, "c") + opsets +
                         field(10, "own") +
                         (i == 0 ? innermost
                                 : call(inner, "a", "b", "own") +
                                       call(inner, in_turn ? "b" : "a", "c", "own")));
  }
  return field(8, field(1, "own") + number(2, 1)) + out;
}
std::string calling(const std::string& function) {
  return model_of(input("x", 1, {"100"}) + node(function, {"x"}, "y", field(7, "own")) +
                  output("y"));
}

TEST(ImportMemory, FunctionsThatCallFunctionsTakeWhatTheFileJustifies) {
  const std::string negate = field(7, field(1, "a") + field(2, "c") + field(4, "Neg"));
  const Taken calls = taken(calling("f29") + functions(30, negate));
  EXPECT_EQ(contains(calls.error, "the most for a file of"), "");
  EXPECT_LT(calls.bytes, kMost);
}

TEST(ImportMemory, AWeightOfAFunctionIsThereOnceForAllCalls) {
  const std::string tensor = floats("", {100, 100}, std::vector<float>(10'000)).substr(1);
  // The message of a tensor without its field, which is 5 here and in an attribute.
  const std::string weight =
      field(7, field(2, "w") + field(4, "Constant") +
                   field(5, field(1, "value") + "\x2a" + tensor + "\xa0\x01\x04"));
  const std::string add = field(7, field(1, "a") + field(1, "w") + field(2, "c") + field(4, "Add"));
  const Taken calls = taken(calling("f10") + functions(11, weight + add));
  EXPECT_EQ(calls.error, "");
  EXPECT_LT(calls.bytes, kMost);
}

TEST(ImportMemory, NamesOfNodesOfAFunctionAreNotThereInFullForEachCall) {
  const auto calls = [](const std::string& op, bool in_turn) {
    const std::string named =
        field(7, field(1, "a") + field(2, "c") + field(3, std::string(50'000, 'n')) + field(4, op));
    return taken(calling("f11") + functions(12, named, in_turn));
  };
  const Taken labels = calls("Neg", true), problems = calls("Teleport", false);
  EXPECT_EQ(labels.error, "");
  EXPECT_LT(labels.bytes, kMost);
  EXPECT_EQ(contains(problems.error.substr(0, 200), "2048 nodes cannot be imported"), "");
  EXPECT_EQ(contains(problems.error.substr(problems.error.size() - 20), " more"), "");
  EXPECT_LT(problems.bytes, kMost);
}

TEST(ImportMemory, LoopsWithinLoopsTakeWhatTheTextJustifies) {
  const auto loop = [](const std::string& i, const std::string& x, const std::string& body) {
    return "stablehlo.while(%" + i + " = %zero, %x" + i + " = %" + x +
           ") : tensor<i32>, tensor<2xf32>\n cond {\n %l" + i + " = stablehlo.compare LT, %" + i +
           ", %most, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %l" + i +
           " : tensor<i1>\n } do {\n" + body + " %n" + i + " = stablehlo.add %" + i +
           ", %one : tensor<i32>\n stablehlo.return %n" + i + ", %r" + i +
           " : tensor<i32>, tensor<2xf32>\n }\n";
  };
  const std::string inner =
      " %w:2 = " + loop("j", "xi", " %rj = stablehlo.negate %xj : tensor<2xf32>\n") +
      " %ri = stablehlo.negate %w#1 : tensor<2xf32>\n";
  const Taken turns = taken_by_text(
      "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
      " %zero = stablehlo.constant dense<0> : tensor<i32>\n"
      " %one = stablehlo.constant dense<1> : tensor<i32>\n"
      " %most = stablehlo.constant dense<1000> : tensor<i32>\n %v:2 = " +
      loop("i", "a", inner) + " return %v#1 : tensor<2xf32>\n}\n");
  EXPECT_EQ(contains(turns.error, "the most for a text of"), "");
  EXPECT_LT(turns.bytes, kMost);
}

}  // namespace
}  // namespace braze
