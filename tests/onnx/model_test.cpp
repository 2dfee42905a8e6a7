// Models in files of ONNX: what their results are is tests/onnx's; here is how one calls them, and
// what one is told.
#include "braze/model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "braze/graph.h"
#include "tests/frontend/support.h"
#include "tests/onnx/written.h"
#include "tests/source_path.h"
#include "tests/temporary_folder.h"

namespace braze {
namespace {

namespace fs = std::filesystem;
using namespace test::onnx;

std::string small(const std::string& name) {
  return test::source_path("tests/onnx/small/" + name + "/model.onnx");
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Model parse(const std::string& bytes, const ImportOptions& options = {}) {
  return parse_onnx(std::as_bytes(std::span(bytes)), "model", options);
}

class ModelTest : public OnDevice {};

TEST_F(ModelTest, IsCalledLikeAFunction) {
  const Model m = parse(model_of(input("x", 1, {"2"}) + node("Neg", {"x"}, "y") + output("y")));
  EXPECT_EQ(m(Array::from<float>({1, -2}, {2})).to_vector<float>(), (std::vector<float>{-1, 2}));
}

TEST_F(ModelTest, OneProgramServesARangeOfSizes) {
  const Model m = load_onnx(small("dense"));
  ASSERT_EQ(m.inputs().size(), 1u);
  EXPECT_EQ(m.inputs()[0].name, "x");
  EXPECT_EQ(m.inputs()[0].type.to_string(), "f32[n, 8]");
  EXPECT_EQ(m.outputs()[0].type.to_string(), "f32[n, 5]");
  EXPECT_EQ(m.weights().size(), 2u);  // the bias is small, and a constant
  for (const int64_t n : {1, 3, 7}) {
    const Array y = m(ones({n, 8}));
    EXPECT_EQ(y.shape(), (std::vector<int64_t>{n, 5}));
    const Doubles shares = to_doubles(y);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), static_cast<double>(n), 1e-5);
  }
}

TEST_F(ModelTest, WhatDependsOnWeightsAloneIsComputedOnce) {
  // y = x · (wᵀ + v), z = x · wᵀ
  const Model m =
      parse(model_of(weight("w", {70, 5}) + weight("v", {5, 70}) + input("x", 1, {"16", "5"}) +
                     node("Transpose", {"w"}, "t") + node("Add", {"t", "v"}, "sum") +
                     node("MatMul", {"x", "sum"}, "y") + node("MatMul", {"x", "t"}, "z") +
                     output("y") + output("z")));
  const auto results = m.run({{"x", ones({16, 5})}});
  const std::vector<float> y = results.at("y").to_vector<float>();
  const std::vector<float> z = results.at("z").to_vector<float>();
  for (int64_t i = 0; i < 70; ++i) {
    const auto sum = static_cast<float>(5 * 5 * i + 10);  // of a row of w
    EXPECT_EQ(z[static_cast<size_t>(15 * 70 + i)], sum);
    EXPECT_EQ(y[static_cast<size_t>(15 * 70 + i)], sum + static_cast<float>(700 + 5 * i));
  }
  EXPECT_EQ(m.weights().size(), 2u);
  EXPECT_EQ(m.weights_on(default_device()).size(), 2u);  // the sum, and w
}

TEST_F(ModelTest, IsRunByNames) {
  const Model m = load_onnx(small("shapes"));
  const auto results = m.run({{"x", ones({2, 3, 4})}});
  EXPECT_EQ(results.at("y").to_vector<float>(), std::vector<float>(24, 2));
  EXPECT_CONTAINS(error_of([&] { m.run({{"z", ones({2, 3, 4})}}); }), "is given no \"x\"");
  EXPECT_CONTAINS(error_of([&] { m(ones({2, 3, 4})); }), "this model has 2");
}

TEST_F(ModelTest, SizesAreGivenARangeOrANumber) {
  const ImportOptions range{.sizes = {{"batch", Dim("batch:2..4")}, {"m", 4}}};
  const Model m = load_onnx(small("shapes"), range);
  EXPECT_EQ(m.inputs()[0].type.to_string(), "f32[batch, 3, 4]");
  EXPECT_CONTAINS(error_of([&] { m.run({ones({5, 3, 4})}); }), "batch");
  const ImportOptions wrong{.sizes = {{"bacth", 4}}};
  EXPECT_CONTAINS(error_of([&] { load_onnx(small("shapes"), wrong); }), "has no size \"bacth\"");
}

TEST_F(ModelTest, SizesAreGivenByTheNamesOfTheirSymbolsToo) {
  const std::string bytes =
      model_of(input("x", 1, {"rows / 2", "n"}) + node("Neg", {"x"}, "y") + output("y"));
  EXPECT_EQ(parse(bytes).inputs()[0].type.to_string(), "f32[rows_2, n]");
  for (const char* name : {"rows / 2", "rows_2"})
    EXPECT_EQ(parse(bytes, {.sizes = {{name, 3}}}).inputs()[0].type.to_string(), "f32[3, n]");
}

// As in ONNX Runtime: x[n-5:] and x[:n-5] of three elements are x[1:] and x[:1].
TEST_F(ModelTest, PlacesThatAreNegativeForSomeSizesCountFromTheEndThere) {
  const Model m = parse(model_of(
      input("x", 1, {"n"}) + integers("five", {5}) + integers("begin", {0}) +
      integers("end", {1 << 20}) + node("Shape", {"x"}, "size") +
      node("Sub", {"size", "five"}, "place") + node("Slice", {"x", "place", "end"}, "last") +
      node("Slice", {"x", "begin", "place"}, "first") + output("last") + output("first")));
  using Floats = std::vector<float>;
  const auto results = [&](const Floats& x) {
    const std::vector<Array> out = m.run({Array::from(x, {static_cast<int64_t>(x.size())})});
    return std::pair(out[0].to_vector<float>(), out[1].to_vector<float>());
  };
  EXPECT_EQ(results({0, 1, 2}), std::pair(Floats({1, 2}), Floats({0})));
  EXPECT_EQ(results({0, 1}), std::pair(Floats({0, 1}), Floats({})));
  EXPECT_EQ(results({0, 1, 2, 3, 4}), std::pair(Floats({0, 1, 2, 3, 4}), Floats({})));
  EXPECT_EQ(results({0, 1, 2, 3, 4, 5, 6}), std::pair(Floats({2, 3, 4, 5, 6}), Floats({0, 1})));
}

TEST_F(ModelTest, AShapeThatIsAnInputIsGivenAtImport) {
  const std::string bytes = model_of(input("x", 1, {"6"}) + input("shape", 7, {"2"}) +
                                     node("Reshape", {"x", "shape"}, "y") + output("y"));
  EXPECT_CONTAINS(error_of([&] { parse(bytes); }), "give \"shape\" a value at import");
  const ImportOptions options{.values = {{"shape", Array::from<int64_t>({2, 3}, {2})}}};
  const Model m = parse(bytes, options);
  EXPECT_EQ(m(ones({6})).shape(), (std::vector<int64_t>{2, 3}));
  const Model same = parse(bytes, {.numbers = {{"shape", {3, 2}}}});
  EXPECT_EQ(same(ones({6})).shape(), (std::vector<int64_t>{3, 2}));
  const auto error = [&](const std::string& name, const std::vector<int64_t>& numbers) {
    return error_of([&] { parse(bytes, {.numbers = {{name, numbers}}}); });
  };
  EXPECT_CONTAINS(error("shapes", {3, 2}), "has no input \"shapes\"");
}

TEST_F(ModelTest, NumbersTakeTheTypeOfTheInput) {
  const std::string bytes = model_of(input("x", 1, {"2"}) + input("flag", 9, {}) +
                                     node("Where", {"flag", "x", "x"}, "y") + output("y"));
  EXPECT_EQ(parse(bytes, {.numbers = {{"flag", {1}}}}).inputs().size(), 1u);
  for (const std::vector<int64_t>& numbers : {std::vector<int64_t>{7}, {0, 1}})
    EXPECT_CONTAINS(error_of([&] {
                      parse(bytes, {.numbers = {{"flag", numbers}}});
                    }),
                    "which cannot be bool with 0 axes");
}

TEST_F(ModelTest, OneErrorNamesEveryNodeThatCannotBeImported) {
  const std::string bytes = model_of(input("x", 1, {"n"}) + node("Teleport", {"x"}, "a") +
                                     node("Neg", {"a"}, "b") + node("NonZero", {"x"}, "c") +
                                     node("Fold", {"b"}, "d", field(7, "org.other")) + output("d"));
  const std::string error = error_of([&] { parse(bytes); });
  EXPECT_CONTAINS(error, "3 nodes cannot be imported, of 4");
  EXPECT_CONTAINS(error, "\"the Teleport\" (Teleport, opset 17): there is no such operator");
  EXPECT_CONTAINS(error, "\"the NonZero\" (NonZero, opset 17): the data, which decide the shape,");
  EXPECT_CONTAINS(error, "\"the Fold\" (org.other:Fold, opset not said)");
}

// What it is, in the place of a tensor's type.
std::string other_input(const std::string& name, const std::string& type) {
  return field(11, field(1, name) + field(2, type));
}

TEST_F(ModelTest, OneErrorNamesEveryInputThatCannotBeImportedToo) {
  const std::string tensor = field(1, number(1, 1));  // without a shape
  const auto of_shape = [](int rank, int extent) {
    std::string extents;
    for (int i = 0; i < rank; ++i) extents += field(1, number(1, extent));
    return field(1, number(1, 1) + field(2, extents));
  };
  const std::string inputs = input("x", 1, {"n"}) + input("text", 8, {"2"}) +
                             other_input("list", field(4, "")) + other_input("map", field(5, "")) +
                             other_input("maybe", field(9, "")) + other_input("open", tensor) +
                             other_input("deep", of_shape(33, 1)) +
                             other_input("huge", of_shape(10, 99));
  const std::string nodes = node("Neg", {"text"}, "a") + node("Teleport", {"x"}, "b") +
                            node("Neg", {"x"}, "y") + output("y");
  const std::string error = error_of([&] { parse(model_of(inputs + nodes)); });
  EXPECT_CONTAINS(error,
                  "[onnx-model]: the model: 7 inputs and 1 node cannot be imported, of 8 "
                  "inputs and 3 nodes\n  \"text\" (input, STRING): Braze has no element "
                  "type STRING\n");
  EXPECT_CONTAINS(error, "\"list\" (input, a sequence): Braze has tensors only");
  EXPECT_CONTAINS(error, "\"map\" (input, a map): ");
  EXPECT_CONTAINS(error, "\"maybe\" (input, an optional): ");
  EXPECT_CONTAINS(error, "\"open\" (input, FLOAT): its number of axes is not known; fix: ");
  EXPECT_CONTAINS(error, "\"deep\" (input, FLOAT): input(): the type f32[1, 1");
  EXPECT_CONTAINS(error, "has a rank above 32\n  \"huge\" (input, FLOAT): ");
  EXPECT_CONTAINS(error, "may have more elements than a tensor can have");
  EXPECT_CONTAINS(error, "\"the Teleport\" (Teleport, opset 17): there is no such operator");
  const std::string alone = error_of([&] {
    parse(model_of(input("text", 8, {"2"}) + input("x", 1, {"2"}) + node("Neg", {"x"}, "y") +
                   output("y")));
  });
  EXPECT_CONTAINS(alone, "the model: 1 input cannot be imported, of 2\n");
}

TEST_F(ModelTest, AnAttributeThatNothingIsKnownOfIsAnError) {
  const std::string attribute = field(5, field(1, "speed") + number(3, 1) + "\xa0\x01\x02");
  const std::string bytes =
      model_of(input("x", 1, {"2"}) + node("Neg", {"x"}, "y", attribute) + output("y"));
  EXPECT_CONTAINS(error_of([&] { parse(bytes); }), "attributes that nothing is known of: speed");
}

TEST_F(ModelTest, AnOperandThatNothingIsKnownOfIsAnError) {
  const std::string bytes =
      model_of(input("x", 1, {"2"}) + node("Neg", {"x", "x"}, "y") + output("y"));
  EXPECT_CONTAINS(error_of([&] { parse(bytes); }), "nothing is known of its operand 1, \"x\"");
}

TEST_F(ModelTest, PartsOfNegativeSizesAreAnError) {
  const std::string bytes = model_of(input("x", 1, {"2"}) + integers("sizes", {-1, 3}) +
                                     node("Split", {"x", "sizes"}, "y") + output("y"));
  EXPECT_CONTAINS(error_of([&] { parse(bytes); }), "split: a part has the size -1");
}

// The error of a node with operands x, w, r of these shapes.
struct Misfit {
  std::string op, attributes;
  std::vector<std::vector<int>> operands;
  std::string error, fix;
};

TEST_F(ModelTest, AttributesThatDoNotFitAreErrorsThatNameThem) {
  const std::vector<std::vector<int>> image = {{1, 4, 8, 8}, {6, 4, 3, 3}}, pooled = {{1, 4, 8, 8}},
                                      lstm = {{5, 2, 3}, {1, 16, 3}, {1, 16, 4}},
                                      gru = {{5, 2, 3}, {1, 12, 3}, {1, 12, 4}},
                                      rnn = {{5, 2, 3}, {1, 4, 3}, {1, 4, 4}};
  const std::string windows = attribute("kernel_shape", {3, 3});
  const std::vector<Misfit> misfits = {
      {"Conv", attribute("dilations", {0, 1}), image, "dilations is [0, 1]", "from 1 to"},
      {"Conv", attribute("strides", {1, -1}), image, "strides is [1, -1]", "from 1 to"},
      {"Conv", attribute("pads", {-1, 0, 0, 0}), image, "pads is [-1, 0, 0, 0]", "from 0 to"},
      {"Conv", attribute("pads", {1, 1}), image, "pads has 2 numbers, and this node needs 4",
       "each side"},
      {"Conv", attribute("kernel_shape", {3, 2}), image, "kernel_shape is [3, 2], and the filters",
       "remove kernel_shape"},
      {"ConvTranspose",
       attribute("dilations", {1, 0}),
       {{1, 4, 8, 8}, {4, 6, 3, 3}},
       "dilations is [1, 0]",
       "from 1 to"},
      {"ConvTranspose",
       attribute("output_padding", {1, 0}),
       {{1, 4, 8, 8}, {4, 6, 3, 3}},
       "output_padding is 1 along spatial axis 0",
       "less than the stride or the dilation"},
      {"ConvTranspose",
       attribute("output_shape", {20, 20}),
       {{1, 4, 8, 8}, {4, 6, 3, 3}},
       "output_shape has 20 along spatial axis 0",
       "a smaller number there"},
      {"MaxPool", windows + attribute("pads", {3, 0, 0, 0}), pooled,
       "pads is [3, 0, 0, 0], with windows of [3, 3]", "less than the window"},
      {"MaxPool", windows + attribute("storage_order", 2), pooled, "storage_order is 2",
       "0, by rows"},
      {"AveragePool", attribute("kernel_shape", {0, 3}), pooled, "kernel_shape is [0, 3]",
       "from 1"},
      {"LpPool", windows + attribute("dilations", {0, 1}), pooled, "dilations is [0, 1]", "from 1"},
      {"LSTM", attribute("hidden_size", 5), lstm, "hidden_size is 5, and the weights R",
       "set hidden_size to 4"},
      {"GRU", attribute("hidden_size", -4), gru, "hidden_size is -4, and the weights R",
       "set hidden_size to 4"},
      {"RNN", attribute("hidden_size", 3), rnn, "hidden_size is 3, and the weights R",
       "set hidden_size to 4"},
      {"LSTM",
       "",
       {{5, 2, 3}, {2, 16, 3}, {2, 16, 4}},
       "W (operand 1) is f32[2, 16, 3]",
       "make direction, hidden_size and the weights agree"},
      {"RNN", attribute("layout", 2), rnn, "layout is 2", "1, the batch first"},
      {"Gemm", "", {{1, 3, 4}, {4, 6}}, "A is f32[1, 3, 4]", "MatMul takes more axes"},
      {"Gemm", "", {{3, 4}, {4, 6}, {1, 1, 6}}, "C is f32[1, 1, 6]", "two axes at most"},
      {"Gather", "", {{3, 4}, {2}}, "the indices (operand 1) are f32[2]", "as INT64"},
      {"Transpose", attribute("perm", {0, -1}), {{3, 4}}, "perm is [0, -1]", "from the front"},
  };
  for (const Misfit& misfit : misfits) {
    std::string graph, names[] = {"x", "w", "r"};
    for (size_t i = 0; i < misfit.operands.size(); ++i)
      graph += weight(names[i], misfit.operands[i]);
    const auto given = misfit.operands.size();
    const std::string made = given == 1 ? node(misfit.op, {"x"}, "y", misfit.attributes)
                             : given == 2
                                 ? node(misfit.op, {"x", "w"}, "y", misfit.attributes)
                                 : node(misfit.op, {"x", "w", "r"}, "y", misfit.attributes);
    const std::string error = error_of([&] { parse(model_of(graph + made + output("y"), 22)); });
    EXPECT_CONTAINS(error, "\"the " + misfit.op + "\"");
    EXPECT_CONTAINS(error, misfit.error);
    EXPECT_CONTAINS(error, misfit.fix);
  }
}

TEST_F(ModelTest, UpdatesHaveTheShapeThatTheIndicesAskFor) {
  const std::string bytes = model_of(weight("x", {3, 3}) + integers("i", {0}) + weight("u", {2}) +
                                     node("ScatterND", {"x", "i", "u"}, "y") + output("y"));
  EXPECT_CONTAINS(
      error_of([&] { parse(bytes); }),
      "the updates (operand 2) are f32[2], and with these data and indices they are [3]");
}

// Every element of operand 0 times the number of the attribute "by".
std::string scale(const CustomArguments& call) {
  if (call.attributes != R"({"by": 2.5, "name": "a \"b\"", "sizes": [3, 4], "shares": [0.1]})")
    return "other attributes: " + std::string(call.attributes);
  const std::span<const float> x = call.operands[0].as<float>();
  std::ranges::transform(x, call.result.as<float>().begin(), [](float v) { return 2.5F * v; });
  return "";
}

TEST_F(ModelTest, NodesOfADomainOfOnesOwnCallRegisteredFunctions) {
  if (test_device().kind() == DeviceKind::Cuda) GTEST_SKIP() << "the function is for host memory";
  const auto kind = [](char number) { return std::string("\xa0\x01") + number; };
  const auto real = [](int tag, float value) {
    std::string bytes(4, ' ');
    std::memcpy(bytes.data(), &value, 4);
    return static_cast<char>(tag << 3 | 5) + bytes;
  };
  const std::string more = field(7, "own") + field(5, field(1, "by") + real(2, 2.5F) + kind(1)) +
                           field(5, field(1, "name") + field(4, "a \"b\"") + kind(3)) +
                           field(5, field(1, "sizes") + number(8, 3) + number(8, 4) + kind(7)) +
                           field(5, field(1, "shares") + real(7, 0.1F) + kind(6));
  const std::string nodes = input("x", 1, {"n", "2"}) + node("Neg", {"x"}, "a") +
                            node("Scale", {"a"}, "b", more) + node("Neg", {"b"}, "y") + output("y");
  EXPECT_CONTAINS(error_of([&] { parse(model_of(nodes)); }), "own:Scale, opset not said");
  register_custom_call("own::Scale", DeviceKind::Cpu, scale);
  EXPECT_CONTAINS(error_of([&] { parse(model_of(nodes)); }),
                  "does not say the type and shape of \"b\"");
  const auto with = [&](int type, std::initializer_list<std::string> extents) {
    return model_of(nodes + value(13, "b", type, extents));
  };
  EXPECT_CONTAINS(error_of([&] { parse(with(1, {"m", "2"})); }), "not all numbers or sizes");
  EXPECT_CONTAINS(error_of([&] { parse(with(8, {"n", "2"})); }), "returns STRING");
  const Model m = parse(with(1, {"n", "2"}));
  for (const int64_t n : {1, 3}) {
    const Array y = m(ones({n, 2}));
    EXPECT_EQ(y.shape(), (std::vector<int64_t>{n, 2}));
    EXPECT_EQ(to_doubles(y), Doubles(static_cast<size_t>(2 * n), 2.5));
  }
}

TEST_F(ModelTest, NodesKeepTheirNames) {
  const std::string text = to_text(load_onnx(small("attention")).graph());
  for (const char* name : {"%norm", "%turned", "%attention", "%residual"})
    EXPECT_CONTAINS(text, name);
}

TEST_F(ModelTest, WhatIsNoModelIsAnError) {
  EXPECT_CONTAINS(error_of([] { parse(""); }), "this is no ONNX model");
  EXPECT_CONTAINS(error_of([] { parse("braze 1 graph"); }), "[onnx-file]");
  EXPECT_CONTAINS(error_of([] { load_onnx("nowhere.onnx"); }), "does not exist");
  const std::string whole = read_file(small("dense"));
  ASSERT_FALSE(whole.empty());
  for (size_t size = 0; size < whole.size(); size += 7)
    EXPECT_CONTAINS(error_of([&] { parse(whole.substr(0, size)); }), "[onnx-");
  EXPECT_CONTAINS(error_of([] { parse(model_of(output("y"), 99)); }), "is of opset 99");
}

TEST_F(ModelTest, ANameThatIsThereTwiceIsAnError) {
  const auto why = [](const std::string& graph) {
    return error_of([&] { parse(model_of(input("x", 1, {"2"}) + graph)); });
  };
  const std::string inputs = why(input("x", 1, {"3"}) + node("Neg", {"x"}, "y") + output("y"));
  EXPECT_CONTAINS(inputs, "there are two inputs \"x\"");
  const std::string outputs = why(node("Neg", {"x"}, "y") + output("y") + output("y"));
  EXPECT_CONTAINS(outputs, "there are two outputs \"y\"");
  const std::string results = why(node("Neg", {"x"}, "y") + node("Exp", {"x"}, "y") + output("y"));
  EXPECT_CONTAINS(results, "\"y\" is there twice: \"the Exp\" (Exp, opset 17) computes it again");
  const std::string weights =
      why(weight("w", {2}) + weight("w", {2}) + node("Add", {"x", "w"}, "y") + output("y"));
  EXPECT_CONTAINS(weights, "there are two weights \"w\"");
  const std::string over_input = why(node("Neg", {"x"}, "x") + output("x"));
  EXPECT_CONTAINS(over_input, "\"x\" is there twice");
}

TEST_F(ModelTest, BytesOfAnotherFileThatAreManyTensorsAreAnError) {
  test::TemporaryFolder folder;
  std::ofstream(folder.path / "w.bin") << std::string(400, '\0');
  const std::string place = field(13, field(1, "location") + field(2, "w.bin"));
  const auto load = [&](int tensors) {
    std::string graph, sum = field(4, "Sum") + field(2, "y");
    for (int i = 0; i < tensors; ++i) {
      const std::string name = "w" + std::to_string(i);
      graph += field(5, number(1, 100) + number(2, 1) + field(8, name) + place + number(14, 1));
      sum += field(1, name);
    }
    std::ofstream(folder.path / "m.onnx", std::ios::binary)
        << model_of(graph + field(1, sum) + output("y"));
    return load_onnx(folder.path / "m.onnx");
  };
  EXPECT_EQ(load(4).weights().size(), 4u);
  EXPECT_CONTAINS(error_of([&] { load(8); }), "take the bytes of \"w.bin\" more than 4 times");
}

TEST_F(ModelTest, DataOutsideOfTheFolderAreAnError) {
  test::TemporaryFolder folder;
  const std::string from = fs::path(small("external")).parent_path();
  fs::create_directory(folder.path / "model");
  fs::copy(from + "/model.onnx", folder.path / "model");
  const std::string path = folder.path / "model" / "model.onnx";
  EXPECT_CONTAINS(error_of([&] { load_onnx(path); }), "does not exist");
  // A link out of the folder.
  fs::create_symlink(from + "/weights.bin", folder.path / "model" / "weights.bin");
  EXPECT_CONTAINS(error_of([&] { load_onnx(path); }), "[onnx-path]");
  fs::remove(folder.path / "model" / "weights.bin");
  // Cut off.
  std::ofstream(folder.path / "model" / "weights.bin") << "short";
  EXPECT_CONTAINS(error_of([&] { load_onnx(path); }), "[onnx-data]");
  fs::copy_file(from + "/weights.bin", folder.path / "model" / "weights.bin",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(load_onnx(path).weights().size(), 2u);
  // As the last path, with the same number of letters.
  std::string bytes = read_file(path);
  for (size_t at = 0; (at = bytes.find("weights.bin", at)) != std::string::npos;)
    bytes.replace(at, 11, "../some.bin");
  std::ofstream(path, std::ios::binary) << bytes;
  std::ofstream(folder.path / "some.bin") << "outside";
  EXPECT_CONTAINS(error_of([&] { load_onnx(path); }), "[onnx-path]");
}

}  // namespace
}  // namespace braze
