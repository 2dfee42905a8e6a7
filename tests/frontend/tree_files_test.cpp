// Trees of arrays to names and back.
#include <filesystem>

#include "tests/frontend/support.h"

namespace braze {
namespace {

using Floats = std::vector<float>;

class TreeFiles : public OnDevice {};

template <class T>
struct Layer {
  T weight, bias;
};
BRAZE_TREE(Layer, weight, bias)

Array row(const Floats& values) {
  return Array::from(values, {static_cast<int64_t>(values.size())});
}

TEST_F(TreeFiles, NamesArePaths) {
  const Parameters p = {{"0.weight", row({1})}, {"0.bias", row({2})}};
  EXPECT_EQ(state_dict(p).at("0.bias").item(), 2);
  EXPECT_EQ(state_dict(p, "mlp").at("mlp.0.weight").item(), 1);
  const std::pair tree(p, std::vector{Layer<Array>{row({3}), row({4})}, {row({5}), row({6})}});
  const std::map<std::string, Array> arrays = state_dict(tree);
  EXPECT_EQ(arrays.size(), 6u);
  EXPECT_EQ(arrays.at("0.0.weight").item(), 1);
  EXPECT_EQ(arrays.at("1.1.weight").item(), 5);
  EXPECT_EQ(state_dict(row({7}), "x").at("x").item(), 7);
  EXPECT_CONTAINS(error_of([] { state_dict(row({7})); }), "single array");
}

TEST_F(TreeFiles, ArraysOfAFileAreParameters) {
  const std::map<std::string, Array> arrays = {{"b.weight", row({2})}, {"a", row({1})}};
  const Parameters p(arrays);
  EXPECT_EQ(p.names(), (std::vector<std::string>{"a", "b.weight"}));
  EXPECT_EQ(jit([](Weights w) { return w["a"] + w["b.weight"]; })(p).item(), 3);
  EXPECT_CONTAINS(error_of([] {
                    Parameters(std::map<std::string, Array>{{"a b", row({1})}});
                  }),
                  "\"a b\" cannot be the name of a parameter");
}

TEST_F(TreeFiles, RestoreIsTheInverse) {
  const std::pair tree(Parameters{{"a.b", row({1, 2})}, {"c", row({})}},
                       std::vector{Layer<Array>{row({3}), row({4})}});
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / "braze-tree.safetensors").string();
  save_safetensors(path, state_dict(tree, "state"));
  const auto read = restore(tree, load_safetensors(path), "state");
  EXPECT_EQ(read.first["a.b"].to_vector<float>(), (Floats{1, 2}));
  EXPECT_EQ(read.first.names(), tree.first.names());
  EXPECT_EQ(read.second[0].bias.item(), 4);
  EXPECT_EQ(read.second[0].weight.device(), test_device());
  std::filesystem::remove(path);
}

TEST_F(TreeFiles, EverythingThatIsWrongIsSaid) {
  const Parameters p = {{"weight", row({1, 2})}, {"bias", row({1})}, {"scale", row({1})}};
  std::map<std::string, Array> arrays = state_dict(p);
  arrays["bias"] = row({1, 2});
  arrays["scale"] = Array::from(Doubles{1}, {1});
  arrays["wieght"] = arrays["weight"];
  arrays.erase("weight");
  const auto attempt = [&] { restore(p, arrays); };
  EXPECT_CONTAINS(error_of(attempt), "\"weight\" is missing; did you mean \"wieght\"?");
  EXPECT_CONTAINS(error_of(attempt), "\"bias\" is f32[2], not f32[1]");
  EXPECT_CONTAINS(error_of(attempt), "\"scale\" is f64[1], not f32[1]");
  EXPECT_CONTAINS(error_of(attempt), "\"wieght\" is not in the tree");
  EXPECT_CONTAINS(error_of(attempt), "tree_files_test.cpp");
  EXPECT_CONTAINS(error_of([&] { restore(p, state_dict(p, "mlp")); }),
                  "\"mlp.weight\" is not in the tree");
}

}  // namespace
}  // namespace braze
