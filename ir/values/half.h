// half.h — conversions between f32 and the 16-bit and 8-bit floats. Conversions to f32 are exact.
// The others round to nearest even, and keep subnormals; NaN becomes a quiet NaN. f8e4m3, which has
// no infinities, is NaN beyond its greatest number, 448.
#pragma once

#include <bit>
#include <cstdint>

namespace braze {

float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
uint16_t double_to_f16(double value);  // rounds once

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t float_to_bf16(float value);
uint16_t double_to_bf16(double value);  // rounds once

float f8e4m3_to_float(uint8_t bits);
float f8e5m2_to_float(uint8_t bits);
// These round once.
uint8_t double_to_f8e4m3(double value);
uint8_t double_to_f8e5m2(double value);

}  // namespace braze
