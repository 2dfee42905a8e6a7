// What operators of ONNX mean in one opset and in another: the same node in files of two opsets, or
// as each opset writes it. Values are computed by hand from the operators' definitions.
#include "braze/model.h"
#include "tests/frontend/support.h"
#include "tests/onnx/written.h"

namespace braze {
namespace {

using namespace test::onnx;

// A node with the result y. Its operand x is an input.
struct OfOpset {
  int opset;
  std::vector<int64_t> shape;  // of x
  std::vector<float> x;
  std::string nodes;    // with the weights that they need
  Doubles y;            // empty if there is an error
  std::string error{};  // a part of it
};

std::string file_of(const OfOpset& one) {
  std::string dims;
  for (const int64_t extent : one.shape) dims += field(1, number(1, static_cast<int>(extent)));
  const std::string type = field(2, field(1, number(1, 1) + field(2, dims)));
  return model_of(field(11, field(1, "x") + type) + one.nodes + output("y"), one.opset);
}

class Opsets : public OnDevice {
 protected:
  static void check(const std::vector<OfOpset>& table) {
    for (const OfOpset& one : table) {
      const std::string bytes = file_of(one);
      SCOPED_TRACE("opset " + std::to_string(one.opset) + ": " + one.error);
      const auto load = [&] { return parse_onnx(std::as_bytes(std::span(bytes)), "model"); };
      if (!one.error.empty()) {
        EXPECT_CONTAINS(error_of(load), one.error);
        continue;
      }
      const Doubles y = to_doubles(load()(Array::from(one.x, one.shape)));
      ASSERT_EQ(y.size(), one.y.size());
      for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], one.y[i], 2e-5) << "element " << i;
    }
  }
};

const std::vector<float> kFour = {0, 1, 2, 3};

// Before 13, all axes from the axis on count as one, and the axis is 1.
TEST_F(Opsets, Softmax) {
  const auto of = [](const char* op, const std::string& more = "") {
    return node(op, {"x"}, "y", more);
  };
  const double half = std::log(2.0);
  check({
      {11, {1, 2, 2}, {0, 0, 0, 0}, of("Softmax"), {0.25, 0.25, 0.25, 0.25}},
      {13, {1, 2, 2}, {0, 0, 0, 0}, of("Softmax"), {0.5, 0.5, 0.5, 0.5}},
      {12,
       {2, 2, 1},
       {0, 0, 0, 0},
       of("LogSoftmax", attribute("axis", 0)),
       {-2 * half, -2 * half, -2 * half, -2 * half}},
      {13,
       {2, 2, 1},
       {0, 0, 0, 0},
       of("LogSoftmax", attribute("axis", 0)),
       {-half, -half, -half, -half}},
      {11, {1, 2, 2}, kFour, of("Hardmax"), {0, 0, 0, 1}},
      {13, {1, 2, 2}, kFour, of("Hardmax"), {0, 1, 0, 1}},
  });
}

TEST_F(Opsets, ClipHasItsLimitsAsAttributesUpTo10) {
  const std::string attributes = attribute("min", 0.5F) + attribute("max", 2.0F),
                    limits = floats("low", {}, {0.5F}) + floats("high", {}, {2.0F});
  check({
      {10, {4}, kFour, node("Clip", {"x"}, "y", attributes), {0.5, 1, 2, 2}},
      {10, {4}, kFour, node("Clip", {"x"}, "y", attribute("max", 2.0F)), {0, 1, 2, 2}},
      {11, {4}, kFour, limits + node("Clip", {"x", "low", "high"}, "y"), {0.5, 1, 2, 2}},
      {11, {4}, kFour, limits + node("Clip", {"x", "", "high"}, "y"), {0, 1, 2, 2}},
      {11, {4}, kFour, node("Clip", {"x"}, "y", attributes), {}, "the attribute max only up to"},
      {10,
       {4},
       kFour,
       limits + node("Clip", {"x", "low"}, "y"),
       {},
       "operand 1 only from opset 11"},
  });
}

TEST_F(Opsets, PadHasItsPaddingAsAttributeUpTo10AndAxesFrom18) {
  const std::string attributes = attribute("pads", {0, 1, 0, 1}) + attribute("value", 9.0F),
                    pads = integers("p", {0, 1, 0, 1}) + floats("v", {}, {9}),
                    one_axis = integers("p", {1, 1}) + integers("a", {1});
  const auto along = [&](const char* mode) {
    return one_axis + node("Pad", {"x", "p", "", "a"}, "y", attribute("mode", mode));
  };
  const Doubles padded = {9, 0, 1, 9, 9, 2, 3, 9};
  check({
      {10, {2, 2}, kFour, node("Pad", {"x"}, "y", attributes), padded},
      {11, {2, 2}, kFour, pads + node("Pad", {"x", "p", "v"}, "y"), padded},
      {18, {2, 2}, kFour, along("edge"), {0, 0, 1, 1, 2, 2, 3, 3}},
      {19, {2, 2}, kFour, along("wrap"), {1, 0, 1, 0, 3, 2, 3, 2}},
      {11,
       {2, 2},
       kFour,
       node("Pad", {"x"}, "y", attributes),
       {},
       "the attribute value only up to"},
      {17, {2, 2}, kFour, along("edge"), {}, "it has operand 3 only from opset 18 on"},
      {18, {2, 2}, kFour, along("wrap"), {}, "wrap, which is there from opset 19 on"},
  });
}

TEST_F(Opsets, SliceHasItsPlacesAsAttributesUpTo9) {
  const std::string attributes =
                        attribute("starts", {1}) + attribute("ends", {3}) + attribute("axes", {0}),
                    places = integers("s", {-1}) + integers("e", {-5}) + integers("a", {0}) +
                             integers("step", {-2});
  check({
      {9, {4}, kFour, node("Slice", {"x"}, "y", attributes), {1, 2}},
      {10, {4}, kFour, places + node("Slice", {"x", "s", "e", "a", "step"}, "y"), {3, 1}},
      {10, {4}, kFour, node("Slice", {"x"}, "y", attributes), {}, "only up to opset 9"},
      {9, {4}, kFour, places + node("Slice", {"x", "s", "e"}, "y"), {}, "operand 1 only from"},
  });
}

TEST_F(Opsets, TopKHasItsCountAsAttributeUpTo9AndTheLeastFrom11) {
  const std::string k = integers("k", {2});
  check({
      {9, {4}, {1, 3, 0, 2}, node("TopK", {"x"}, "y", attribute("k", 2)), {3, 2}},
      {10, {4}, {1, 3, 0, 2}, k + node("TopK", {"x", "k"}, "y"), {3, 2}},
      {11, {4}, {1, 3, 0, 2}, k + node("TopK", {"x", "k"}, "y", attribute("largest", 0)), {0, 1}},
      {10,
       {4},
       {1, 3, 0, 2},
       k + node("TopK", {"x", "k"}, "y", attribute("largest", 0)),
       {},
       "the attribute largest only from opset 11 on"},
      {10, {4}, kFour, node("TopK", {"x"}, "y", attribute("k", 2)), {}, "k only up to opset 9"},
  });
}

// x [1, 1, 1, 4] becomes [1, 1, 1, 8], or 3 of 4 elements.
TEST_F(Opsets, ResizeHasOtherPlacesFrom11) {
  const std::string twice = floats("s", {4}, {1, 1, 1, 2}), linear = attribute("mode", "linear");
  const std::string old = twice + node("Resize", {"x", "s"}, "y", linear);
  const auto now = [&](const std::string& more = "") {
    return twice + node("Resize", {"x", "", "s"}, "y", attribute("mode", "linear") + more);
  };
  const std::string to_three = integers("n", {1, 1, 1, 3}),
                    last_axis = floats("s", {1}, {2}) +
                                node("Resize", {"x", "", "s"}, "y", attribute("axes", {3}));
  const auto three = [&](const std::string& more) {
    return to_three + node("Resize", {"x", "", "", "n"}, "y", more);
  };
  const std::vector<int64_t> shape = {1, 1, 1, 4};
  const std::string symmetric = attribute("coordinate_transformation_mode", "half_pixel_symmetric");
  check({
      // Element i is at i / 2, of which opset 10 takes the floor.
      {10, shape, kFour, twice + node("Resize", {"x", "s"}, "y"), {0, 0, 1, 1, 2, 2, 3, 3}},
      {10, shape, kFour, old, {0, 0.5, 1, 1.5, 2, 2.5, 3, 3}},
      // Element i is at (i + 0.5) / 2 - 0.5.
      {11, shape, kFour, now(), {0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3}},
      {13, shape, kFour, now(), {0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3}},
      // A region has no effect on these places.
      {11,
       shape,
       kFour,
       floats("region", {8}, {0, 0, 0, 0, 1, 1, 1, 1}) + twice +
           node("Resize", {"x", "region", "s"}, "y", linear),
       {0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3}},
      // 4 / 3 (i + 0.5) - 0.5 is 1/6, 3/2, 17/6. The half goes down unless the file says otherwise.
      {13, shape, kFour, three(""), {0, 1, 3}},
      {13, shape, kFour, three(attribute("nearest_mode", "round_prefer_ceil")), {0, 2, 3}},
      {18, shape, kFour, last_axis, {0, 0, 1, 1, 2, 2, 3, 3}},
      {18, shape, kFour, three(linear), {1.0 / 6, 1.5, 17.0 / 6}},
      // 2.5 elements become 2, in the middle: element i is at 0.4 + (i + 0.5) / 0.625 - 0.5.
      {19,
       shape,
       kFour,
       floats("s", {4}, {1, 1, 1, 0.625F}) +
           node("Resize", {"x", "", "s"}, "y", linear + symmetric),
       {0.7, 2.3}},
      {13, shape, kFour, three(attribute("antialias", 1)), {}, "antialias only from opset 18 on"},
      {17, shape, kFour, last_axis, {}, "the attribute axes only from opset 18 on"},
      {18, shape, kFour, now(symmetric), {}, "half_pixel_symmetric, which are there from opset 19"},
      {10, shape, kFour, now(), {}, "it has operand 2 only from opset 11 on"},
      {9, shape, kFour, twice + node("Upsample", {"x", "s"}, "y"), {0, 0, 1, 1, 2, 2, 3, 3}},
      {10,
       shape,
       kFour,
       twice + node("Upsample", {"x", "s"}, "y"),
       {},
       "no such operator of this version"},
      {9, shape, kFour, old, {}, "no such operator of this version"},
  });
}

// x [1, 4, 1] in two groups, {0, 2} and {4, 8}, which become {-1, 1} each.
TEST_F(Opsets, GroupNormalizationHasAScaleForEachGroupUpTo20) {
  const auto of = [](std::initializer_list<int> shape, const std::vector<float>& scale,
                     const std::vector<float>& bias) {
    return floats("s", shape, scale) + floats("b", shape, bias) +
           node("GroupNormalization", {"x", "s", "b"}, "y",
                attribute("num_groups", 2) + attribute("epsilon", 0.0F));
  };
  check({
      {18, {1, 4, 1}, {0, 2, 4, 8}, of({2}, {1, 2}, {0, 10}), {-1, 1, 8, 12}},
      {21, {1, 4, 1}, {0, 2, 4, 8}, of({4}, {1, 2, 3, 4}, {0, 10, 20, 30}), {-1, 12, 17, 34}},
      {17, {1, 4, 1}, {0, 2, 4, 8}, of({2}, {1, 2}, {0, 10}), {}, "no such operator of this"},
  });
}

TEST_F(Opsets, GridSampleHasOtherNamesFrom20) {
  // The middle of four elements, and the place of the last one.
  const auto of = [](const char* mode) {
    return floats("g", {1, 1, 2, 2}, {0, 0, 0.5F, 0.5F}) +
           node("GridSample", {"x", "g"}, "y", attribute("mode", mode));
  };
  const std::string cubes =
      floats("g", {1, 1, 1, 1, 3}, {0, 0, 0}) + node("GridSample", {"x", "g"}, "y");
  check({
      {16, {1, 1, 2, 2}, kFour, of("bilinear"), {1.5, 3}},
      {20, {1, 1, 2, 2}, kFour, of("linear"), {1.5, 3}},
      {20, {1, 1, 1, 2, 2}, kFour, cubes, {1.5}},
      {16, {1, 1, 2, 2}, kFour, of("linear"), {}, "the mode is linear"},
      {20, {1, 1, 2, 2}, kFour, of("bilinear"), {}, "the mode is bilinear"},
      {16, {1, 1, 1, 2, 2}, kFour, cubes, {}, "the grid has not one place for each axis"},
      {15, {1, 1, 2, 2}, kFour, of("bilinear"), {}, "no such operator of this version"},
  });
}

TEST_F(Opsets, AxesAreAttributesInOldOpsetsAndOperandsInNewOnes) {
  const std::string axes = integers("a", {0}), given = attribute("axes", {0}),
                    keep = attribute("keepdims", 0);
  const auto old = [&](const char* op, const std::string& more = "") {
    return node(op, {"x"}, "y", given + more);
  };
  const auto now = [&](const char* op, const std::string& more = "") {
    return axes + node(op, {"x", "a"}, "y", more);
  };
  const std::string stays = node("ReduceSum", {"x"}, "y", attribute("noop_with_empty_axes", 1));
  check({
      {12, {2, 2}, kFour, old("ReduceSum", keep), {2, 4}},
      {13, {2, 2}, kFour, now("ReduceSum", keep), {2, 4}},
      {13, {2, 2}, kFour, stays, {0, 1, 2, 3}},
      {17, {2, 2}, kFour, old("ReduceMean", keep), {1, 2}},
      {18, {2, 2}, kFour, now("ReduceMean", keep), {1, 2}},
      {17, {2, 2}, kFour, old("ReduceMax", keep), {2, 3}},
      {18, {2, 2}, kFour, now("ReduceMax", keep), {2, 3}},
      {12, {1, 4}, kFour, old("Squeeze"), {0, 1, 2, 3}},
      {13, {1, 4}, kFour, now("Squeeze"), {0, 1, 2, 3}},
      {12, {4}, kFour, old("Unsqueeze"), {0, 1, 2, 3}},
      {13, {4}, kFour, now("Unsqueeze"), {0, 1, 2, 3}},
      {13, {2, 2}, kFour, old("ReduceSum"), {}, "the attribute axes only up to opset 12"},
      {12, {2, 2}, kFour, now("ReduceSum"), {}, "operand 1 only from opset 13 on"},
      {12, {2, 2}, kFour, stays, {}, "noop_with_empty_axes only from opset 13 on"},
      {18, {2, 2}, kFour, old("ReduceMean"), {}, "the attribute axes only up to opset 17"},
      {17, {2, 2}, kFour, now("ReduceMean"), {}, "operand 1 only from opset 18 on"},
      {13, {1, 4}, kFour, old("Squeeze"), {}, "the attribute axes only up to opset 12"},
      {12, {1, 4}, kFour, now("Squeeze"), {}, "operand 1 only from opset 13 on"},
      {13, {4}, kFour, old("Unsqueeze"), {}, "the attribute axes only up to opset 12"},
  });
}

TEST_F(Opsets, SplitHasItsPartsAsAttributeUpTo12AndTheirNumberFrom18) {
  const auto two = field(2, "y") + field(2, "z");
  const auto of = [&](std::initializer_list<std::string> operands, const std::string& more) {
    std::string text;
    for (const std::string& operand : operands) text += field(1, operand);
    return field(1, text + two + field(3, "the Split") + field(4, "Split") + more);
  };
  const std::string parts = integers("s", {1, 3}), given = attribute("split", {1, 3}),
                    count = attribute("num_outputs", 2);
  check({
      {12, {4}, kFour, of({"x"}, given), {0}},
      {12, {4}, kFour, of({"x"}, ""), {0, 1}},
      {13, {4}, kFour, parts + of({"x", "s"}, ""), {0}},
      {18, {3}, {0, 1, 2}, of({"x"}, count), {0, 1}},  // the last part may be smaller
      {13, {4}, kFour, of({"x"}, given), {}, "the attribute split only up to opset 12"},
      {12, {4}, kFour, parts + of({"x", "s"}, ""), {}, "operand 1 only from opset 13 on"},
      {17, {4}, kFour, of({"x"}, count), {}, "num_outputs only from opset 18 on"},
  });
}

TEST_F(Opsets, NormalisationAndDropoutHaveTrainingFrom14And12) {
  const std::string weights = floats("s", {2}, {1, 2}) + floats("b", {2}, {0, 1}) +
                              floats("m", {2}, {1, 2}) + floats("v", {2}, {4, 1});
  const auto norm = [&](const std::string& more) {
    return weights + node("BatchNormalization", {"x", "s", "b", "m", "v"}, "y",
                          attribute("epsilon", 0.0F) + more);
  };
  const Doubles y = {-0.5, 0, 1, 3};  // (x - m) / sqrt(v) s + b
  const std::string ratio = floats("r", {}, {0.5F});
  const auto drop = [](const std::string& more) { return node("Dropout", {"x"}, "y", more); };
  check({
      {8, {1, 2, 2}, kFour, norm(attribute("spatial", 1)), y},
      {9, {1, 2, 2}, kFour, norm(""), y},
      {14, {1, 2, 2}, kFour, norm(attribute("training_mode", 0)), y},
      {15, {1, 2, 2}, kFour, norm(""), y},
      // In training, by the batch's own mean 0.5 and variance 0.25, and 2.5 and 0.25.
      {15, {1, 2, 2}, kFour, norm(attribute("training_mode", 1)), {-1, 1, -1, 3}},
      {9, {1, 2, 2}, kFour, norm(attribute("spatial", 1)), {}, "spatial only up to opset 8"},
      {13, {1, 2, 2}, kFour, norm(attribute("training_mode", 0)), {}, "only from opset 14 on"},
      {11, {4}, kFour, drop(attribute("ratio", 0.5F)), {0, 1, 2, 3}},
      {12, {4}, kFour, ratio + node("Dropout", {"x", "r"}, "y"), {0, 1, 2, 3}},
      {12, {4}, kFour, drop(attribute("ratio", 0.5F)), {}, "ratio only up to opset 11"},
      {11, {4}, kFour, drop(attribute("seed", 1)), {}, "seed only from opset 12 on"},
      {11, {4}, kFour, ratio + node("Dropout", {"x", "r"}, "y"), {}, "operand 1 only from"},
  });
}

TEST_F(Opsets, TypesOfCastsCameLater) {
  const auto through = [](int type) {
    return node("Cast", {"x"}, "t", attribute("to", type)) +
           node("Cast", {"t"}, "y", attribute("to", 1));
  };
  constexpr int kBf16 = 16, kF8 = 17, kI4 = 22, kI2 = 26;
  const std::vector<float> x = {1.001F, 1.1F, 3.3F, -2};
  check({
      {13, {4}, x, through(kBf16), {1, 1.1015625, 3.296875, -2}},
      {19, {4}, x, through(kF8), {1, 1.125, 3.25, -2}},
      {21, {4}, x, through(kI4), {1, 1, 3, -2}},
      {12, {4}, x, through(kBf16), {}, "BFLOAT16 is a type only from opset 13 on"},
      {18, {4}, x, through(kF8), {}, "FLOAT8E4M3FN is a type only from opset 19 on"},
      {20, {4}, x, through(kI4), {}, "INT4 is a type only from opset 21 on"},
      {24, {4}, x, through(kI2), {}, "INT2 is a type only from opset 25 on"},
      {18,
       {4},
       x,
       node("Cast", {"x"}, "y", attribute("to", 1) + attribute("saturate", 0)),
       {},
       "the attribute saturate only from opset 19 on"},
  });
}

TEST_F(Opsets, ScattersReduceFrom16And18) {
  const auto of = [](const char* op, const std::string& more) {
    return integers("i", {1, 1}) + floats("u", {2}, {10, 20}) +
           node(op, {"x", "i", "u"}, "y", more);
  };
  const auto by = [&](const char* reduction) {
    return of("ScatterElements", attribute("reduction", reduction));
  };
  const std::string one = integers("i", {2}) + floats("u", {1}, {10});
  check({
      {9, {4}, kFour, one + node("Scatter", {"x", "i", "u"}, "y"), {0, 1, 10, 3}},
      {11, {4}, kFour, one + node("ScatterElements", {"x", "i", "u"}, "y"), {0, 1, 10, 3}},
      {16, {4}, kFour, by("add"), {0, 31, 2, 3}},
      {18, {4}, kFour, by("max"), {0, 20, 2, 3}},
      {11, {4}, kFour, by("add"), {}, "the attribute reduction only from opset 16 on"},
      {16, {4}, kFour, by("max"), {}, "max, which is there from opset 18 on"},
      {11, {4}, kFour, one + node("Scatter", {"x", "i", "u"}, "y"), {}, "no such operator of this"},
      {10, {4}, kFour, of("ScatterElements", ""), {}, "no such operator of this version"},
  });
}

TEST_F(Opsets, OperatorsAndAttributesThatCameLaterAreErrors) {
  const auto plain = [](const char* op) { return node(op, {"x"}, "y"); };
  const auto with = [](const char* op, const char* name, int value) {
    return node(op, {"x"}, "y", attribute(name, value));
  };
  const std::string absent = "no such operator of this version";
  check({
      {20, {4}, {0, 1, -1, 2}, plain("Gelu"), {0, 0.841345, -0.158655, 1.9545}},
      {19, {4}, kFour, plain("Gelu"), {}, absent},
      {17, {4}, kFour, plain("Mish"), {}, absent},
      {13, {4}, kFour, plain("HardSwish"), {}, absent},
      {11, {4}, kFour, plain("Celu"), {}, absent},
      {10, {4}, kFour, plain("Round"), {}, absent},
      {8, {4}, kFour, plain("Sign"), {}, absent},
      {13, {2, 2}, kFour, plain("Trilu"), {}, absent},
      {11, {4}, kFour, with("ArgMax", "select_last_index", 1), {}, "only from opset 12 on"},
      {13,
       {4},
       kFour,
       integers("n", {4}) + node("Reshape", {"x", "n"}, "y", attribute("allowzero", 1)),
       {},
       "allowzero only from opset 14 on"},
      {14, {4}, kFour, with("Shape", "start", 0), {}, "start only from opset 15 on"},
      {10,
       {1, 4, 1, 1},
       kFour,
       node("DepthToSpace", {"x"}, "y", attribute("blocksize", 2) + attribute("mode", "CRD")),
       {},
       "mode only from opset 11 on"},
  });
}

// ONNX has it from opset 17 on, but ONNX Runtime, which writes such files, from the first on.
TEST_F(Opsets, LayerNormalizationIsThereInAllOpsets) {
  const std::string layer = floats("s", {2}, {1, 2}) +
                            node("LayerNormalization", {"x", "s"}, "y", attribute("epsilon", 0.0F));
  check({
      {12, {2, 2}, kFour, layer, {-1, 2, -1, 2}},
      {17, {2, 2}, kFour, layer, {-1, 2, -1, 2}},
  });
}

}  // namespace
}  // namespace braze
