#include "braze/half.h"
#include "ir/values/half.h"

namespace braze {

float16::float16(float value) : bits(float_to_f16(value)) {}
float16::operator float() const { return f16_to_float(bits); }

bfloat16::bfloat16(float value) : bits(float_to_bf16(value)) {}
bfloat16::operator float() const { return bf16_to_float(bits); }

}  // namespace braze
