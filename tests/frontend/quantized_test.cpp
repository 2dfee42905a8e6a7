#include "braze/quantized.h"

#include "ir/values/host_tensor.h"
#include "tests/frontend/support.h"
#include "tests/source_path.h"

namespace braze {
namespace {

using QuantizedTest = OnDevice;

GgufFile blocks() { return GgufFile::open(test::source_path("tests/runtime/gguf/blocks.gguf")); }

const char* const kTypes[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};

TEST_F(QuantizedTest, ExpressionsGiveTheValuesOfTheFile) {
  const GgufFile file = blocks();
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    const auto f = jit([](Quantized<Tensor> w) { return transpose(dequantize(w)); });
    const Array got = f(file.load_quantized(type, test_device()));
    EXPECT_TRUE(identical(got.to_host(), file.load(type, "cpu").to_host()));
  }
}

TEST_F(QuantizedTest, ProductsExpandTheirWeights) {
  const GgufFile file = blocks();
  const Array x = random::normal({2, 512}, random::Key(1));
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    const auto f = jit([](Tensor in, Quantized<Tensor> w) { return dot(in, dequantize(w)); });
    const auto weight = file.load_quantized(type, test_device());
    EXPECT_EQ(f(x, weight).shape(), (std::vector<int64_t>{2, 3}));
    const CheckReport report = f.check(x, weight);
    EXPECT_TRUE(report.ok) << report.text;
    EXPECT_GT(report.judged, 0.9) << report.text;
    // A GPU may cut the sum of so few rows into parts, which a second kernel adds.
    if (test_device().name() != "interpreter") {
      EXPECT_LE(f.summary().kernels, test_device().kind() == DeviceKind::Cuda ? 2u : 1u);
    }
  }
}

TEST_F(QuantizedTest, ColumnsAreRowsOfTheFile) {
  const GgufFile file = blocks();
  const Array rows = Array::from(std::vector<int32_t>{2, 0, 2, 1}, {4});
  for (const char* type : {"Q8_0", "Q5_1"}) {
    const auto f =
        jit([](Quantized<Tensor> w, Tensor ids) { return transpose(dequantize(columns(w, ids))); });
    const Array got = f(file.load_quantized(type, test_device()), rows);
    const auto expected = jit([](Tensor w, Tensor ids) { return take(w, ids); });
    EXPECT_TRUE(identical(got.to_host(), expected(file.load(type), rows).to_host()));
  }
}

TEST_F(QuantizedTest, PartsThatDoNotFitAreNamed) {
  auto weight = blocks().load_quantized("Q4_1", test_device());
  const auto f = jit([](Quantized<Tensor> w) { return dequantize(w); });
  weight.scales = zeros({7, 3});
  EXPECT_CONTAINS(error_of([&] { f(weight); }), "f32[7, 3]");
  EXPECT_CONTAINS(error_of([&] { f(weight); }), "are not the parts of a quantised tensor");
  weight = blocks().load_quantized("Q6_K", test_device());
  weight.high[0] = zeros({33, 3}, i32);
  EXPECT_CONTAINS(error_of([&] { f(weight); }), "i32[33, 3]");
}

}  // namespace
}  // namespace braze
