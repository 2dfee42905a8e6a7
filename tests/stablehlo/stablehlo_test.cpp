// What the reader of StableHLO takes and refuses.
#include <gtest/gtest.h>

#include "braze/model.h"
#include "ir/graph/graph.h"

namespace braze {
namespace {

Model parse(const std::string& body, const std::string& signature,
            const ImportOptions& options = {}) {
  return parse_stablehlo(
      "module {\n func.func public @main(" + signature + " {\n" + body + "\n }\n}", "m.mlir",
      options);
}

std::string error_of(const std::string& body, const std::string& signature) {
  try {
    parse(body, signature);
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

std::vector<float> run(const Model& model, const std::vector<std::vector<float>>& arguments) {
  std::vector<Array> arrays;
  for (const auto& argument : arguments)
    arrays.push_back(Array::from(argument, {static_cast<int64_t>(argument.size())}, "interpreter"));
  const DeviceGuard guard{Device("interpreter")};
  return model.run(arrays)[0].to_vector<float>();
}

TEST(Stablehlo, KeepsNamesOfArgumentsAndDonation) {
  const Model model = parse(
      "%0 = stablehlo.add %arg0, %arg1 : tensor<2xf32> loc(#loc2)\n return %0 : tensor<2xf32>",
      "%arg0: tensor<2xf32> {tf.aliasing_output = 0 : i32} loc(\"state['w']\"), "
      "%arg1: tensor<2xf32>) -> (tensor<2xf32> {jax.result_info = \"new\"})");
  ASSERT_EQ(model.inputs().size(), 2u);
  EXPECT_EQ(model.inputs()[0].name, "state['w']");
  EXPECT_EQ(model.inputs()[1].name, "arg1");
  EXPECT_EQ(model.outputs()[0].name, "new");
  EXPECT_EQ(model.graph().outputs()[0].updates, 0u);
  const std::vector<Array> arguments = {Array::from(std::vector<float>{1, 2}, {2}, "cpu"),
                                        Array::from(std::vector<float>{3, 4}, {2}, "cpu")};
  EXPECT_EQ(model.run(arguments)[0].to_vector<float>(), (std::vector<float>{4, 6}));
  try {
    arguments[0].to_vector<float>();
    ADD_FAILURE() << "the argument was donated";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("donated"), std::string::npos) << error.message();
  }
}

TEST(Stablehlo, ADonorTakesTheFirstResultOfItsType) {
  const Model model = parse(
      "%0 = stablehlo.negate %a : tensor<2xf32>\n"
      "%1 = stablehlo.constant dense<1.0> : tensor<f32>\n return %1, %0 : tensor<f32>, "
      "tensor<2xf32>",
      "%a: tensor<2xf32> {jax.buffer_donor = true}) -> (tensor<f32>, tensor<2xf32>)");
  EXPECT_FALSE(model.graph().outputs()[0].updates);
  EXPECT_EQ(model.graph().outputs()[1].updates, 0u);
}

TEST(Stablehlo, ListsEveryOperationThatCannotBeImported) {
  const std::string error = error_of(
      "%0 = stablehlo.cholesky %a, lower = true : tensor<2x2xf32>\n"
      "%1 = stablehlo.add %0, %0 : tensor<2x2xf32>\n"
      "%2 = stablehlo.custom_call @lapack_ssyevd(%a) : (tensor<2x2xf32>) -> tensor<2x2xf32>\n"
      "return %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>",
      "%a: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)");
  EXPECT_EQ(error,
            "m.mlir: 2 operations cannot be imported, of 4\n"
            "  line 3 (stablehlo.cholesky): there is no such operation\n"
            "  line 5 (stablehlo.custom_call): a call of \"lapack_ssyevd\", a function of another "
            "library");
}

TEST(Stablehlo, TypesThatTheTextGetsWrongAreErrors) {
  EXPECT_NE(error_of("%0 = stablehlo.add %a, %a : tensor<3xf32>\n return %0 : tensor<3xf32>",
                     "%a: tensor<2xf32>) -> tensor<3xf32>")
                .find("it gives f32[2], and the text says tensor<3xf32>"),
            std::string::npos);
}

TEST(Stablehlo, AnAttributeThatNothingIsKnownOfIsAnError) {
  EXPECT_NE(error_of("%0 = stablehlo.add %a, %a {sideways = true} : tensor<2xf32>\n"
                     "return %0 : tensor<2xf32>",
                     "%a: tensor<2xf32>) -> tensor<2xf32>")
                .find("sideways"),
            std::string::npos);
}

const char* const kLoop =
    "%c = stablehlo.constant dense<LIMIT> : tensor<i32>\n"
    "%zero = stablehlo.constant dense<0> : tensor<i32>\n"
    "%0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<2xf32>\n"
    "cond {\n %p = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> "
    "tensor<i1>\n"
    "stablehlo.return %p : tensor<i1>\n} do {\n"
    "%one = stablehlo.constant dense<1> : tensor<i32>\n"
    "%n = stablehlo.add %i, %one : tensor<i32>\n"
    "%y = stablehlo.add %x, %x : tensor<2xf32>\n"
    "stablehlo.return %n, %y : tensor<i32>, tensor<2xf32>\n}\n return %0#1 : tensor<2xf32>";

std::string loop_to(const std::string& limit) {
  std::string text = kLoop;
  return text.replace(text.find("LIMIT"), 5, limit);
}

TEST(Stablehlo, CountedLoopsAreUnrolled) {
  EXPECT_EQ(run(parse(loop_to("3"), "%a: tensor<2xf32>) -> tensor<2xf32>"), {{1, -2}}),
            (std::vector<float>{8, -16}));
}

TEST(Stablehlo, LongLoopsAreRefused) {
  EXPECT_NE(error_of(loop_to("5000"), "%a: tensor<2xf32>) -> tensor<2xf32>")
                .find("a loop of more than 1024 turns"),
            std::string::npos);
}

TEST(Stablehlo, ALoopThatDependsOnAnArgumentNamesIt) {
  std::string text = loop_to("0");
  text.replace(text.find("%i, %c"), 6, "%i, %n0");
  EXPECT_NE(error_of(text, "%a: tensor<2xf32>, %n0: tensor<i32>) -> tensor<2xf32>")
                .find("it is computed from \"n0\""),
            std::string::npos);
  const Model model = parse(text, "%a: tensor<2xf32>, %n0: tensor<i32>) -> tensor<2xf32>",
                            {.values = {{"n0", Array::from(std::vector<int32_t>{2}, {}, "cpu")}}});
  EXPECT_EQ(run(model, {{1, 1}}), (std::vector<float>{4, 4}));
}

TEST(Stablehlo, ProgramsForSeveralDevicesAreRefused) {
  const auto text = [](const std::string& mesh) {
    return "module {\n sdy.mesh @mesh = <[" + mesh +
           "]>\n func.func @main(%a: tensor<2xf32> "
           "{sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}]>}) -> tensor<2xf32> {\n"
           "%0 = sdy.sharding_constraint %a <@mesh, [{}]> : tensor<2xf32>\n"
           "return %0 : tensor<2xf32>\n }\n}";
  };
  EXPECT_EQ(run(parse_stablehlo(text("\"x\"=1")), {{1, 2}}), (std::vector<float>{1, 2}));
  try {
    parse_stablehlo(text("\"x\"=2"));
    ADD_FAILURE() << "there are two devices";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("a program for several devices"), std::string::npos)
        << error.message();
  }
}

// A place outside takes nothing, whatever else is written.
TEST(Stablehlo, ScattersLeaveOutWhatHasNoPlace) {
  const std::string body =
      "%i = stablehlo.constant dense<[[1], [9], [-1], [1]]> : tensor<4x1xi32>\n"
      "%0 = \"stablehlo.scatter\"(%a, %i, %u) <{scatter_dimension_numbers = "
      "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
      "index_vector_dim = 1>}> ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
      "BODY }) : (tensor<3xf32>, tensor<4x1xi32>, tensor<4xf32>) -> tensor<3xf32>\n"
      "return %0 : tensor<3xf32>";
  const auto with = [&](const std::string& inner) {
    std::string text = body;
    text.replace(text.find("BODY"), 4, inner);
    return run(parse(text, "%a: tensor<3xf32>, %u: tensor<4xf32>) -> tensor<3xf32>"),
               {{1, 2, 3}, {10, 20, 30, 40}});
  };
  EXPECT_EQ(with("stablehlo.return %y : tensor<f32>\n"), (std::vector<float>{1, 40, 3}));
  EXPECT_EQ(with("%z = stablehlo.add %x, %y : tensor<f32>\n stablehlo.return %z : tensor<f32>\n"),
            (std::vector<float>{1, 52, 3}));
  EXPECT_EQ(
      with("%z = stablehlo.minimum %x, %y : tensor<f32>\n stablehlo.return %z : tensor<f32>\n"),
      (std::vector<float>{1, 2, 3}));
}

}  // namespace
}  // namespace braze
