#include "ir/type/tensor_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braze/error.h"

namespace braze {
namespace {

const Expr n = Expr::symbol("n", {1, 64});

TEST(DType, NamesReadBack) {
  for (const DType dtype : kAllDTypes) EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  EXPECT_EQ(parse_dtype("f8"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
  EXPECT_TRUE(kFloating.contains(DType::BF16));
  EXPECT_FALSE(kFloating.contains(DType::I64));
  EXPECT_FALSE(kFloating.contains(DType::F8E4M3));
  EXPECT_TRUE(is_floating(DType::F8E4M3));
  EXPECT_TRUE(kAnyType.contains(DType::F8E5M2));
}

TEST(DType, FollowsFromTheRows) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(is_floating(dtype) + is_integer(dtype) + (dtype == DType::Bool), 1) << name(dtype);
    if (is_floating(dtype)) {
      EXPECT_EQ(1 + info(dtype).exponent + info(dtype).fraction, 8 * int(size_of(dtype)));
    }
    visit_dtype(dtype, [&]<DType D>() {
      EXPECT_EQ(D, dtype);
      EXPECT_EQ(DTypeOf<ElementOf<D>>::value, dtype);
      EXPECT_EQ(sizeof(ElementOf<D>), size_of(dtype));
    });
  }
  EXPECT_EQ(name(DType::U16), "u16");
  EXPECT_EQ(compute_type(DType::F8E5M2), DType::F32);
}

TEST(DType, SumsOfIntegersMayBeWider) {
  EXPECT_TRUE(accumulates_as(DType::I8, DType::I32));
  EXPECT_TRUE(accumulates_as(DType::U8, DType::I16));
  EXPECT_TRUE(accumulates_as(DType::U8, DType::U64));
  EXPECT_TRUE(accumulates_as(DType::U32, DType::U32));
  EXPECT_TRUE(accumulates_as(DType::BF16, DType::F32));
  EXPECT_FALSE(accumulates_as(DType::I8, DType::U32));
  EXPECT_FALSE(accumulates_as(DType::U32, DType::I32));
  EXPECT_FALSE(accumulates_as(DType::I32, DType::I8));
  EXPECT_FALSE(accumulates_as(DType::I8, DType::F32));
  EXPECT_FALSE(accumulates_as(DType::F32, DType::F64));
}

TEST(Shape, Numel) {
  EXPECT_EQ(Shape().numel(), Expr(1));
  EXPECT_EQ((Shape{2, 3, 4}).numel(), Expr(24));
  EXPECT_EQ((Shape{n, 4, n}).numel(), 4 * n * n);
  EXPECT_EQ((Shape{INT64_MAX, INT64_MAX, 0}).numel(), Expr(0));
  EXPECT_THAT(
      [] {
        return (Shape{INT64_MAX, INT64_MAX}).numel();
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("does not fit in 64 bits")));
}

TEST(Shape, StaticAndSymbolic) {
  const std::vector<int64_t> dims{2, 0, 5};
  EXPECT_TRUE(Shape::of(dims).is_static());
  EXPECT_EQ(Shape::of(dims).static_dims(), dims);
  EXPECT_FALSE((Shape{2, n}).is_static());
  EXPECT_THAT(
      [] {
        return (Shape{2, n}).static_dims();
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("is not static")));
  EXPECT_EQ((Shape{2, n + 1}).evaluate([](std::string_view) { return 6; }),
            (std::vector<int64_t>{2, 7}));
}

TEST(Shape, RowMajorStrides) {
  EXPECT_EQ(row_major_strides({}), std::vector<Expr>{});
  EXPECT_EQ(row_major_strides({n}), std::vector<Expr>{1});
  EXPECT_EQ(row_major_strides({5, n, 4}), (std::vector<Expr>{4 * n, 4, 1}));
}

TEST(TensorType, Text) {
  EXPECT_EQ((TensorType{DType::F32, {}}).to_string(), "f32[]");
  EXPECT_EQ((TensorType{DType::BF16, {4 * n + 1, 64}}).to_string(), "bf16[4*n + 1, 64]");
}

TEST(TensorType, EqualityAndHash) {
  const TensorType a{DType::F32, {n, 2}};
  EXPECT_EQ(a, (TensorType{DType::F32, {n, 2}}));
  EXPECT_EQ(a.hash(), (TensorType{DType::F32, {n, 2}}).hash());
  for (const TensorType& b : {TensorType{DType::F16, {n, 2}}, TensorType{DType::F32, {2, n}},
                              TensorType{DType::F32, {n, 2, 1}}}) {
    EXPECT_FALSE(a == b);
    EXPECT_NE(a.hash(), b.hash());
  }
}

}  // namespace
}  // namespace braze
