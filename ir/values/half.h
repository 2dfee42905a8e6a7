// half.h — conversions between the 16-bit floats and f32: exact up, round-to-nearest-even down,
// subnormals kept, NaN stays NaN (quiet).
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

}  // namespace braze
