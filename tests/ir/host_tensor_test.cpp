#include "ir/values/host_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace braze {
namespace {

template <class Function>
std::string code_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return std::string(error.code().name);
  }
  return "none";
}

TEST(HostTensor, IsZeroedAndAligned) {
  for (const DType dtype : kAllDTypes) {
    const HostTensor t(dtype, {3, 5});
    EXPECT_EQ(t.numel(), 15);
    EXPECT_EQ(t.size_bytes(), 15 * size_of(dtype));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 64, 0u);
    for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(t.get_bits(i), 0u);
  }
}

TEST(HostTensor, HasValueSemantics) {
  HostTensor a(DType::I32, {2});
  a.set_int(0, 7);
  HostTensor b = a;
  b.set_int(0, 8);
  EXPECT_EQ(a.get_int(0), 7);
  const HostTensor c = std::move(b);
  EXPECT_EQ(c.get_int(0), 8);
  EXPECT_EQ(b.numel(), 0);  // NOLINT: what is left of a moved tensor is defined
  b = c;
  EXPECT_TRUE(identical(b, c));
  b = HostTensor(DType::F64, {});
  EXPECT_EQ(b.dtype(), DType::F64);
}

TEST(HostTensor, EmptyTensorsAndScalars) {
  const HostTensor none;
  EXPECT_EQ(none.numel(), 0);
  EXPECT_EQ(none.to_string(), "no tensor");
  EXPECT_TRUE(identical(none, HostTensor(none)));
  const HostTensor empty(DType::F32, {2, 0, 3});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_EQ(empty.to_string(), "[[], []]");
  EXPECT_EQ(HostTensor(DType::F32, {INT64_MAX, INT64_MAX, 0}).numel(), 0);
  const HostTensor scalar(DType::I64, {});
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.to_string(), "0");
}

TEST(HostTensor, RefusesImpossibleShapes) {
  EXPECT_EQ(code_of([] { HostTensor(DType::F32, {-1}); }), "negative-extent");
  EXPECT_EQ(code_of([] { HostTensor(DType::F32, {0, -1}); }), "negative-extent");
  EXPECT_EQ(code_of([] { HostTensor(DType::F32, {INT64_MAX, 2}); }), "too-large");
  EXPECT_EQ(code_of([] { HostTensor(DType::F64, {INT64_MAX / 4}); }), "too-large");
  EXPECT_EQ(code_of([] { HostTensor(DType::Bool, {INT64_MAX}); }), "too-large");
}

TEST(HostTensor, ChecksIndices) {
  HostTensor t(DType::F32, {2});
  EXPECT_EQ(code_of([&] { t.get_double(2); }), "internal");
  EXPECT_EQ(code_of([&] { t.set_int(-1, 0); }), "internal");
  EXPECT_EQ(code_of([] { HostTensor().get_bits(0); }), "internal");
}

TEST(HostTensor, StoresWithOneRounding) {
  HostTensor f16(DType::F16, {1});
  HostTensor bf16(DType::BF16, {1});
  HostTensor f32(DType::F32, {1});
  f16.set_double(0, 1 + 0x1p-11 + 0x1p-40);
  EXPECT_EQ(f16.get_double(0), 1 + 0x1p-10);
  // In f64 this integer would round to the middle of two values of bf16.
  const int64_t above_tie = (int64_t{1} << 60) + (int64_t{1} << 52) + 1;
  bf16.set_int(0, above_tie);
  EXPECT_EQ(bf16.get_double(0), 0x1p60 + 0x1p53);
  bf16.set_int(0, -above_tie);
  EXPECT_EQ(bf16.get_double(0), -0x1p60 - 0x1p53);
  bf16.set_int(0, above_tie - 1);
  EXPECT_EQ(bf16.get_double(0), 0x1p60);
  bf16.set_int(0, INT64_MAX);
  EXPECT_EQ(bf16.get_double(0), 0x1p63);
  bf16.set_int(0, INT64_MIN);
  EXPECT_EQ(bf16.get_double(0), -0x1p63);
  f32.set_int(0, (1 << 24) + 1);
  EXPECT_EQ(f32.get_double(0), 0x1p24);
  f16.set_int(0, 65520);
  EXPECT_EQ(f16.get_double(0), INFINITY);
}

TEST(HostTensor, IntegersWrapAndFloatsSaturate) {
  HostTensor i32(DType::I32, {1});
  HostTensor u32(DType::U32, {1});
  HostTensor boolean(DType::Bool, {1});
  i32.set_int(0, int64_t{1} << 31);
  EXPECT_EQ(i32.get_int(0), INT32_MIN);
  i32.set_double(0, -2.9);
  EXPECT_EQ(i32.get_int(0), -2);
  u32.set_int(0, -1);
  EXPECT_EQ(u32.get_int(0), UINT32_MAX);
  u32.set_double(0, 4e9);
  EXPECT_EQ(u32.get_double(0), 4e9);
  u32.set_double(0, 0x1p70 + 0x1p20);
  EXPECT_EQ(u32.get_int(0), 1 << 20);
  u32.set_double(0, NAN);
  EXPECT_EQ(u32.get_int(0), 0);
  HostTensor u64(DType::U64, {1});
  u64.set_double(0, 0x1p63 + 0x1p20);
  EXPECT_EQ(u64.get_double(0), 0x1p63 + 0x1p20);
  EXPECT_EQ(u64.element_text(0), "9223372036855824384");
  EXPECT_EQ(static_cast<uint64_t>(u64.get_int(0)), (uint64_t{1} << 63) + (1 << 20));
  HostTensor i8(DType::I8, {1});
  i8.set_int(0, 200);
  EXPECT_EQ(i8.get_int(0), -56);
  boolean.set_int(0, 256);
  EXPECT_EQ(boolean.get_bits(0), 1u);
  boolean.set_double(0, 0.25);
  EXPECT_EQ(boolean.get_int(0), 1);
  HostTensor f64(DType::F64, {1});
  for (const auto& [value, expected] :
       {std::pair<double, int64_t>{1e30, INT64_MAX}, {-1e30, INT64_MIN}, {NAN, 0}, {-2.9, -2}}) {
    f64.set_double(0, value);
    EXPECT_EQ(f64.get_int(0), expected);
  }
}

TEST(HostTensor, IdenticalComparesBitsButNotNaNs) {
  HostTensor a(DType::F32, {2});
  HostTensor b(DType::F32, {2});
  a.set_bits(0, 0x7fc00000);
  b.set_bits(0, 0xffc00001);
  EXPECT_TRUE(identical(a, b));
  b.set_double(1, -0.0);
  EXPECT_FALSE(identical(a, b));
  EXPECT_FALSE(identical(a, HostTensor(DType::F32, {2, 1})));
  EXPECT_FALSE(identical(HostTensor(DType::F32, {2}), HostTensor(DType::I32, {2})));
}

TEST(HostTensor, Text) {
  HostTensor t(DType::F32, {2, 2});
  t.set_double(0, 0.1);
  t.set_double(1, -0.0);
  t.set_double(2, NAN);
  t.set_double(3, -INFINITY);
  EXPECT_EQ(t.to_string(), "[[0.1, -0], [nan, -inf]]");
  HostTensor boolean(DType::Bool, {2});
  boolean.set_int(1, 1);
  EXPECT_EQ(boolean.to_string(), "[false, true]");
  HostTensor counted(DType::I32, {10});
  for (int64_t i = 0; i < 10; ++i) counted.set_int(i, i);
  EXPECT_EQ(counted.to_string(9), "[0, 1, 2, ..., 7, 8, 9]");
  // Rows without elements are elided too.
  EXPECT_EQ(HostTensor(DType::I32, {int64_t{1} << 40, 0}).to_string(4),
            "[[], [], [], ..., [], ...]");
  EXPECT_EQ(counted.to_string(10), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]");
  EXPECT_EQ(HostTensor(DType::I32, {3, 2}).to_string(4), "[[0, 0], [0, 0], ...]");
  // Many short axes stay within the limit too.
  EXPECT_LT(HostTensor(DType::Bool, std::vector<int64_t>(20, 2)).to_string(100).size(), 2000u);
}

}  // namespace
}  // namespace braze
