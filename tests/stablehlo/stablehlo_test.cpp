// What the reader of StableHLO takes and refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "braze/custom_function.h"
#include "braze/model.h"
#include "ir/graph/graph.h"
#include "ir/graph/text.h"

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
            "library; fix: register a function of this name before the import");
}

TEST(Stablehlo, ListsArgumentsOfTypesThatBrazeHasNotToo) {
  const std::string error = error_of(
      "%0 = stablehlo.cholesky %a, lower = true : tensor<2x2xf32>\n"
      "%1 = stablehlo.negate %c : tensor<2xcomplex<f32>>\n"
      "return %0 : tensor<2x2xf32>",
      "%a: tensor<2x2xf32>, %c: tensor<2xcomplex<f32>>) -> tensor<2x2xf32>");
  EXPECT_EQ(error,
            "m.mlir: 1 input and 1 operation cannot be imported, of 2 inputs and 3 operations\n"
            "  line 2 (argument \"c\"): Braze has no type tensor<2xcomplex<f32>>\n"
            "  line 3 (stablehlo.cholesky): there is no such operation");
}

TEST(Stablehlo, CallsOfRegisteredFunctionsAreImported) {
  static const bool registered = [] {
    register_custom_call("stablehlo.test", DeviceKind::Cpu, [](const CustomArguments& call) {
      const std::span<const float> x = call.operands[0].as<float>();
      for (size_t i = 0; i < x.size(); ++i)
        call.result.as<float>()[i] = x[i] + static_cast<float>(call.attributes.size());
      return std::string();
    });
    return true;
  }();
  ASSERT_TRUE(registered);
  const auto text = [](const std::string& more) {
    return "%0 = stablehlo.custom_call @stablehlo.test(%a) {" + more +
           "} : (tensor<2x3xf32>) -> tensor<2x3xf32>\n return %0 : tensor<2x3xf32>";
  };
  const std::string types = "%a: tensor<2x3xf32>) -> tensor<2x3xf32>";
  const Model model =
      parse(text("backend_config = \"four\", has_side_effect = true, called_computations = [], "
                 "operand_layouts = [dense<[1, 0]> : tensor<2xindex>], "
                 "result_layouts = [dense<[1, 0]> : tensor<2xindex>], api_version = 2 : i32"),
            types);
  EXPECT_NE(to_text(model.graph())
                .find("custom_call %a {target: \"stablehlo.test\", attributes: \"four\", "
                      "side_effects: true} : f32[2, 3]"),
            std::string::npos)
      << to_text(model.graph());
  const DeviceGuard guard{Device("interpreter")};
  const Array x = Array::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}, "interpreter");
  EXPECT_EQ(model.run(std::vector{x})[0].to_vector<float>(),
            (std::vector<float>{5, 6, 7, 8, 9, 10}));
  for (const auto& [more, why] : {
           std::pair("operand_layouts = [dense<[0, 1]> : tensor<2xindex>]", "not row-major"),
           std::pair("result_layouts = [1]", "not row-major"),
           std::pair("backend_config = {key = 1 : i32}", "would not get: backend_config"),
           std::pair("sideways = 1 : i32", "would not get: sideways"),
       })
    EXPECT_NE(error_of(text(more), types).find(why), std::string::npos)
        << error_of(text(more), types);
  // What has side effects is not called in a branch that is not taken.
  EXPECT_NE(error_of("%1 = \"stablehlo.if\"(%p) ({\n"
                     "  %2 = stablehlo.custom_call @stablehlo.test(%a) {has_side_effect = true} : "
                     "(tensor<2xf32>) -> tensor<2xf32>\n"
                     "  stablehlo.return %2 : tensor<2xf32>\n}, {\n"
                     "  stablehlo.return %a : tensor<2xf32>\n}) : (tensor<i1>) -> tensor<2xf32>\n"
                     "return %1 : tensor<2xf32>",
                     "%a: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32>")
                .find("in a branch that is computed whether it is taken or not"),
            std::string::npos);
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

TEST(Stablehlo, ANameThatIsThereTwiceIsAnError) {
  EXPECT_EQ(error_of("%0 = stablehlo.abs %a : tensor<2xf32>\n%0 = stablehlo.negate %a : "
                     "tensor<2xf32>\n return %0 : tensor<2xf32>",
                     "%a: tensor<2xf32>) -> tensor<2xf32>"),
            "m.mlir:4: %0 is there twice");
  EXPECT_EQ(error_of("return %a : tensor<2xf32>",
                     "%a: tensor<2xf32>, %a: tensor<3xf32>) -> tensor<2xf32>"),
            "m.mlir:2: %a is there twice");
}

TEST(Stablehlo, ResultsAreOfTheTypesThatTheFunctionSays) {
  EXPECT_EQ(error_of("return %a : tensor<2xf32>", "%a: tensor<2xf32>) -> tensor<3xf32>"),
            "m.mlir:2: result 0 is said to be tensor<3xf32>, and is f32[2]");
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
                .find("it is computed from \"n0\"; fix: give \"n0\" a value at import"),
            std::string::npos);
  const Model model = parse(text, "%a: tensor<2xf32>, %n0: tensor<i32>) -> tensor<2xf32>",
                            {.values = {{"n0", Array::from(std::vector<int32_t>{2}, {}, "cpu")}}});
  EXPECT_EQ(run(model, {{1, 1}}), (std::vector<float>{4, 4}));
  const Model same = parse(text, "%a: tensor<2xf32>, %n0: tensor<i32>) -> tensor<2xf32>",
                           {.numbers = {{"n0", {2}}}});
  EXPECT_EQ(run(same, {{1, 1}}), (std::vector<float>{4, 4}));
}

// As JAX prints them with as_text(debug_info=True).
TEST(Stablehlo, AliasesOfLocationsStandBeforeTheModuleAndBehindIt) {
  const Model model = parse_stablehlo(
      "#loc = loc(unknown)\n#loc1 = loc(\"state['w']\")\n#loc2 = loc(\"/a/step.py\":4:10 to :31)\n"
      "module @jit_step attributes {mhlo.num_partitions = 1 : i32} {\n"
      " func.func public @main(%arg0: tensor<2xf32> loc(\"state['w']\")) -> (tensor<2xf32>) {\n"
      "  %0 = stablehlo.negate %arg0 : tensor<2xf32> loc(#loc3)\n"
      "  return %0 : tensor<2xf32> loc(#loc)\n } loc(#loc)\n} loc(#loc)\n"
      "#loc3 = loc(\"jit(step)/neg\"(#loc2))\n");
  EXPECT_EQ(model.inputs()[0].name, "state['w']");
  EXPECT_EQ(run(model, {{1, 2}}), (std::vector<float>{-1, -2}));
}

// The greatest distance to known values, in units of the last place.
double units_apart(const std::string& op, const std::vector<float>& x,
                   const std::vector<double>& expected) {
  const std::string type = fmt::format("tensor<{}xf32>", x.size());
  const std::vector<float> got =
      run(parse(fmt::format("%0 = chlo.{} %a : {} -> {}\n return %0 : {}", op, type, type, type),
                fmt::format("%a: {}) -> {}", type, type)),
          {x});
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto e = static_cast<float>(expected[i]);
    if (got[i] == e || (std::isnan(got[i]) && std::isnan(e))) continue;
    const double unit = std::nextafter(std::abs(e), INFINITY) - std::abs(e);
    worst = std::max(worst, std::abs(got[i] - expected[i]) / unit);
  }
  return worst;
}

// The values are those of mpmath with 40 digits.
TEST(Stablehlo, FunctionsOfProbabilityAreAccurate) {
  const double nan = NAN;
  EXPECT_LE(units_apart("erf_inv",
                        {1e-30f, 0.00100000005f, -0.25f, 0.5f, 0.75f, -0.899999976f, 0.999000013f,
                         0.999999881f, 1, -1, 1.5f},
                        {8.862269282630517e-31, 0.0008862271995601054, -0.2253120550121781,
                         0.47693627620446987, 0.81341984759761854, -1.1630870719457722,
                         2.3267563267961548, 3.7439211627767996, INFINITY, -INFINITY, nan}),
            1);
  EXPECT_LE(units_apart(
                "lgamma",
                {9.99999968e-21f, 0.100000001f, 0.5f, 0.899999976f, 1.00097656f, 1.75f, 2.00099993f,
                 2.5f, 6, 8.5f, 1000, 1.00000002e+30f, -0.5f, -3.5f, 1, 2, 0, -1, -INFINITY},
                {46.051701891615392, 2.2527126362016008, 0.57236494292470009, 0.066376257733604591,
                 -0.00056290317999120463, -0.084401121020485556, 0.00042307604498146539,
                 0.28468287047291916, 4.787491742782046, 9.5492672573009977, 5905.2204232091812,
                 6.8077553829263513e+31, 1.2655121234846454, -1.309006684993042, 0, 0, INFINITY,
                 INFINITY, INFINITY}),
            4);
  EXPECT_LE(units_apart(
                "digamma",
                {9.99999997e-07f, 0.25f, 0.5f, 1, 3, 9.5f, 1000, 1.00000002e+20f, -0.25f, -1.25f, 0,
                 -3, INFINITY},
                {-1000000.5797387773, -4.2274535333762654, -1.9635100260214235,
                 -0.57721566490153286, 0.92278433509846714, 2.1977378764029495, 6.9072551956488121,
                 46.051701879921791, 2.9141391202135278, 3.7141391202135278, nan, nan, INFINITY}),
            8);
}

TEST(Stablehlo, TheNextNumberCrossesZeroAndEndsAtTheSecond) {
  const Model model = parse(
      "%0 = chlo.next_after %a, %b : tensor<8xf32>, tensor<8xf32> -> tensor<8xf32>\n"
      " return %0 : tensor<8xf32>",
      "%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32>");
  const std::vector<float> x = {1, 1, -1, -1, 0, -0.0f, 2, INFINITY};
  const std::vector<float> y = {2, 0, 0, -2, 1, -1, 2, 0};
  const std::vector<float> got = run(model, {x, y});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(got[i], std::nextafter(x[i], y[i])) << i;
  EXPECT_TRUE(std::isnan(run(model, {{NAN, 1, 1, 1, 1, 1, 1, 1}, y})[0]));
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

// Keys are found in the function of a sort, whichever side of a comparison they stand on.
class Sorts : public ::testing::Test {
 protected:
  // The function of a sort of %a and %b. The first two of its arguments are elements of %a.
  static std::string sort_by(const std::string& function) {
    return "%0:2 = \"stablehlo.sort\"(%a, %b) <{dimension = 0 : i64, is_stable = true}> ({\n"
           "^bb0(%x: tensor<f32>, %y: tensor<f32>, %u: tensor<f32>, %v: tensor<f32>):\n" +
           function +
           "stablehlo.return %r : tensor<i1>\n"
           "}) : (tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>)\n"
           "return %0#1 : tensor<6xf32>";
  }
  static std::string compare(const std::string& result, const std::string& how,
                             const std::string& left, const std::string& right) {
    return fmt::format(
        "%{} = stablehlo.compare {}, %{}, %{}, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n",
        result, how, left, right);
  }
  static std::string both(const std::string& result, const std::string& op, const std::string& left,
                          const std::string& right) {
    return fmt::format("%{} = stablehlo.{} %{}, %{} : tensor<i1>\n", result, op, left, right);
  }
  static std::vector<float> sorted(const std::string& function) {
    return run(parse(sort_by(function), kSignature), {{2, 1, 2, 1, 3, 2}, {7, 9, 5, 8, 4, 6}});
  }
  static constexpr const char* kSignature =
      "%a: tensor<6xf32>, %b: tensor<6xf32>) -> tensor<6xf32>";
};

TEST_F(Sorts, ByOneKey) {
  EXPECT_EQ(sorted(compare("r", "LT", "x", "y")), (std::vector<float>{9, 8, 7, 5, 6, 4}));
  EXPECT_EQ(sorted(compare("r", "GT", "x", "y")), (std::vector<float>{4, 7, 5, 6, 9, 8}));
  EXPECT_EQ(sorted(compare("r", "GT", "y", "x")), (std::vector<float>{9, 8, 7, 5, 6, 4}));
  EXPECT_EQ(sorted(compare("r", "LT", "u", "v")), (std::vector<float>{4, 5, 6, 7, 8, 9}));
}

TEST_F(Sorts, BySeveralKeys) {
  const std::string keys =
      compare("f", "LT", "x", "y") + compare("e", "EQ", "x", "y") + compare("s", "LT", "u", "v");
  EXPECT_EQ(sorted(keys + both("t", "and", "e", "s") + both("r", "or", "f", "t")),
            (std::vector<float>{8, 9, 5, 6, 7, 4}));
  EXPECT_EQ(sorted(keys + both("t", "and", "s", "e") + both("r", "or", "t", "f")),
            (std::vector<float>{8, 9, 5, 6, 7, 4}));
}

TEST_F(Sorts, ByAnotherFunctionAreRefused) {
  const auto refused = [](const std::string& function) {
    return error_of(sort_by(function), kSignature).find("a sort by a function") !=
           std::string::npos;
  };
  // Elements of different tensors, the equality of others, a key of both sides, one side alone.
  EXPECT_TRUE(refused(compare("r", "LT", "x", "v")));
  EXPECT_TRUE(refused(compare("f", "LT", "x", "y") + compare("e", "EQ", "u", "v") +
                      compare("s", "LT", "u", "v") + both("t", "and", "e", "s") +
                      both("r", "or", "f", "t")));
  EXPECT_TRUE(
      refused("%p = stablehlo.multiply %x, %y : tensor<f32>\n"
              "%q = stablehlo.subtract %x, %y : tensor<f32>\n" +
              compare("r", "LT", "p", "q")));
  EXPECT_TRUE(refused(compare("r", "LT", "x", "x")));
  EXPECT_TRUE(refused(compare("r", "LE", "x", "y")));
}

}  // namespace
}  // namespace braze
