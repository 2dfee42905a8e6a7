// The reference is a table of all values of a format: a number rounds to the one of its two
// neighbours on whose side of their midpoint it lies. Midpoints are exact in double.

#include "ir/values/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace braze {
namespace {

struct Format {
  int exponent_bits;
  int fraction_bits;
  float (*to_float)(uint16_t);
  uint16_t (*from_float)(float);
  uint16_t (*from_double)(double);

  int infinity() const { return ((1 << exponent_bits) - 1) << fraction_bits; }

  /// The value of a pattern without sign. What stands for infinity counts as the next power of two,
  /// from which on numbers round to it.
  double value(int bits) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = bits >> fraction_bits;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
    return std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }

  std::vector<double> table() const {
    std::vector<double> values;
    for (int bits = 0; bits <= infinity(); ++bits) values.push_back(value(bits));
    return values;
  }
};

const Format kFormats[] = {{5, 10, f16_to_float, float_to_f16, double_to_f16},
                           {8, 7, bf16_to_float, float_to_bf16, double_to_bf16}};

uint16_t round_by_table(const std::vector<double>& table, double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.end()) return sign | static_cast<uint16_t>(table.size() - 1);
  const auto high = static_cast<uint16_t>(above - table.begin());
  if (*above == magnitude) return sign | high;
  const double middle = table[high - 1] + (*above - table[high - 1]) / 2;
  const bool up = magnitude > middle || (magnitude == middle && high % 2 == 0);
  return sign | static_cast<uint16_t>(up ? high : high - 1);
}

TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (const Format& format : kFormats) {
    for (int bits = 0; bits < 0x10000; ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      const float value = format.to_float(pattern);
      const int magnitude = bits & 0x7fff;
      EXPECT_EQ(std::signbit(value), bits >= 0x8000);
      if (magnitude > format.infinity()) {
        EXPECT_TRUE(std::isnan(value));
        EXPECT_TRUE(std::isnan(format.to_float(format.from_float(value))));
        EXPECT_TRUE(std::isnan(format.to_float(format.from_double(value))));
        continue;
      }
      const double expected = magnitude == format.infinity()
                                  ? std::numeric_limits<double>::infinity()
                                  : format.value(magnitude);
      ASSERT_EQ(std::fabs(value), expected) << bits;
      ASSERT_EQ(format.from_float(value), pattern);
      ASSERT_EQ(format.from_double(value), pattern);
    }
  }
}

TEST(Half, BoundariesRoundToNearestEven) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Format& format : kFormats) {
    const std::vector<double> table = format.table();
    for (size_t i = 0; i + 1 < table.size(); ++i) {
      const double middle = table[i] + (table[i + 1] - table[i]) / 2;
      for (const double center : {table[i], middle}) {
        for (const double value :
             {center, std::nextafter(center, 0.0), std::nextafter(center, kInfinity), -center}) {
          ASSERT_EQ(format.from_double(value), round_by_table(table, value)) << value;
          const auto single = static_cast<float>(value);
          ASSERT_EQ(format.from_float(single), round_by_table(table, single)) << single;
        }
        const auto single = static_cast<float>(center);
        for (const float value : {std::nextafter(single, 0.0f), std::nextafter(single, INFINITY)}) {
          ASSERT_EQ(format.from_float(value), round_by_table(table, value)) << value;
        }
      }
    }
  }
}

TEST(Half, RandomPatternsRoundToNearestEven) {
  std::mt19937_64 random(1);
  for (const Format& format : kFormats) {
    const std::vector<double> table = format.table();
    for (int i = 0; i < 1'000'000; ++i) {
      const uint64_t bits = random();
      const auto single = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (!std::isnan(single)) {
        ASSERT_EQ(format.from_float(single), round_by_table(table, single)) << single;
      }
      // Doubles around the range of the format, and all others once in a while.
      auto wide = std::bit_cast<double>(bits);
      if (i % 8 && std::isfinite(wide) && wide != 0)
        wide = std::ldexp(std::ldexp(wide, -std::ilogb(wide)), static_cast<int>(i % 300) - 150);
      if (!std::isnan(wide)) {
        ASSERT_EQ(format.from_double(wide), round_by_table(table, wide)) << wide;
      }
    }
  }
}

TEST(Half, SpecialValues) {
  for (const Format& format : kFormats) {
    const auto infinity = static_cast<uint16_t>(format.infinity());
    EXPECT_EQ(format.from_double(0.0), 0);
    EXPECT_EQ(format.from_double(-0.0), 0x8000);
    EXPECT_EQ(format.from_float(-0.0f), 0x8000);
    EXPECT_EQ(format.from_double(INFINITY), infinity);
    EXPECT_EQ(format.from_float(-INFINITY), infinity | 0x8000);
    EXPECT_EQ(format.from_double(std::numeric_limits<double>::max()), infinity);
    EXPECT_EQ(format.from_double(std::numeric_limits<double>::denorm_min()), 0);
    EXPECT_EQ(format.from_double(-std::numeric_limits<double>::min()), 0x8000);
    // A NaN whose payload lies only in bits that are cut stays a NaN, with its sign.
    const auto nan = std::bit_cast<double>(0xfff0000000000001);
    EXPECT_TRUE(std::isnan(format.to_float(format.from_double(nan))));
    EXPECT_GE(format.from_double(nan), 0x8000);
    const auto single_nan = std::bit_cast<float>(0x7f800001);
    EXPECT_TRUE(std::isnan(format.to_float(format.from_float(single_nan))));
  }
  EXPECT_EQ(double_to_f16(65519.99), 0x7bff);
  EXPECT_EQ(double_to_f16(65520), 0x7c00);
  // Rounding by way of float would make a tie of this.
  EXPECT_EQ(double_to_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(double_to_f16(1 + 0x1p-11 + 0x1p-40), 0x3c01);
}

}  // namespace
}  // namespace braze
