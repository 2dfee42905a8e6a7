#include "ir/ops/machine_semantics.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "braze/error.h"
#include "ir/values/half.h"

namespace braze {
namespace {

using enum ElementwiseOp;

// The C++ type in which a dtype is computed.
template <DType D>
using ComputeType = ElementOf<compute_type(D)>;

template <DType D>
constexpr int kWidth = static_cast<int>(8 * size_of(D));
template <DType D>
constexpr uint64_t kMask = ~uint64_t{0} >> (64 - kWidth<D>);
template <DType D>
constexpr uint64_t kSignBit = uint64_t{1} << (kWidth<D> - 1);

template <DType D>
ComputeType<D> load(uint64_t bits) {
  if constexpr (D == DType::F16)
    return f16_to_float(static_cast<uint16_t>(bits));
  else if constexpr (D == DType::BF16)
    return bf16_to_float(static_cast<uint16_t>(bits));
  else if constexpr (D == DType::F8E4M3)
    return f8e4m3_to_float(static_cast<uint8_t>(bits));
  else if constexpr (D == DType::F8E5M2)
    return f8e5m2_to_float(static_cast<uint8_t>(bits));
  else if constexpr (D == DType::F32)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (D == DType::F64)
    return std::bit_cast<double>(bits);
  else
    return static_cast<ComputeType<D>>(bits);
}

// Rounds `value` (float, or double for conversions) once to D.
template <DType D, class T>
uint64_t store(T value) {
  if constexpr (is_floating(D)) {
    if (value != value) value = std::numeric_limits<T>::quiet_NaN();
  }
  if constexpr (D == DType::F16) {
    if constexpr (std::is_same_v<T, float>)
      return float_to_f16(value);
    else
      return double_to_f16(value);
  } else if constexpr (D == DType::BF16) {
    if constexpr (std::is_same_v<T, float>)
      return float_to_bf16(value);
    else
      return double_to_bf16(value);
  } else if constexpr (D == DType::F8E4M3) {
    return double_to_f8e4m3(value);
  } else if constexpr (D == DType::F8E5M2) {
    return double_to_f8e5m2(value);
  } else if constexpr (D == DType::F32) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  } else if constexpr (D == DType::F64) {
    return std::bit_cast<uint64_t>(static_cast<double>(value));
  } else {
    return static_cast<uint64_t>(value) & kMask<D>;
  }
}

// Integers are computed in uint64_t, where all operations wrap, and store() truncates them to their
// width.

template <class T>
T divide(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return x / y;
  else if (y == 0)
    return 0;
  else if (std::is_signed_v<T> && y == T(-1))
    return static_cast<T>(0 - static_cast<uint64_t>(x));
  else
    return static_cast<T>(x / y);
}

template <class T>
T remainder(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fmod(x, y);
  else if (y == 0)
    return x;
  else if (std::is_signed_v<T> && y == T(-1))
    return 0;
  else
    return static_cast<T>(x % y);
}

// The operations `minimum` and `maximum` of IEEE 754-2019.
template <class T>
T lesser(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return x;
    if (y != y) return y;
    if (x == y) return std::signbit(x) ? x : y;
  }
  return x < y ? x : y;
}

template <class T>
T greater(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return x;
    if (y != y) return y;
    if (x == y) return std::signbit(x) ? y : x;
  }
  return x < y ? y : x;
}

// Replaces subnormal numbers by zeros.
float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

template <ElementwiseOp op, DType D>
uint64_t apply(uint64_t x_bits, [[maybe_unused]] uint64_t y_bits,
               [[maybe_unused]] uint64_t z_bits) {
  using T = ComputeType<D>;
  constexpr bool kFloat = std::is_floating_point_v<T>;
  using Arithmetic = std::conditional_t<kFloat, T, uint64_t>;
  [[maybe_unused]] const T x = load<D>(x_bits), y = load<D>(y_bits), z = load<D>(z_bits);
  [[maybe_unused]] const auto a = static_cast<Arithmetic>(x), b = static_cast<Arithmetic>(y);

  if constexpr (op == add) return store<D>(a + b);
  if constexpr (op == sub) return store<D>(a - b);
  if constexpr (op == mul) return store<D>(a * b);
  if constexpr (op == div) return store<D>(divide(x, y));
  if constexpr (op == rem) return store<D>(remainder(x, y));
  if constexpr (op == fma) return store<D>(std::fma(x, y, z));
  if constexpr (op == neg) return kFloat ? x_bits ^ kSignBit<D> : store<D>(uint64_t{0} - x_bits);
  if constexpr (op == abs) {
    if constexpr (kFloat)
      return x_bits & ~kSignBit<D>;
    else
      return x < T(0) ? store<D>(uint64_t{0} - x_bits) : x_bits;
  }
  if constexpr (op == min) return store<D>(lesser(x, y));
  if constexpr (op == max) return store<D>(greater(x, y));
  if constexpr (op == sqrt) return store<D>(std::sqrt(x));
  if constexpr (op == floor) return store<D>(std::floor(x));
  if constexpr (op == ceil) return store<D>(std::ceil(x));
  if constexpr (op == round_even) return store<D>(std::nearbyint(x));
  if constexpr (op == trunc) return store<D>(std::trunc(x));
  if constexpr (op == eq) return x == y;
  if constexpr (op == ne) return x != y;
  if constexpr (op == lt) return x < y;
  if constexpr (op == le) return x <= y;
  if constexpr (op == gt) return x > y;
  if constexpr (op == ge) return x >= y;
  if constexpr (op == logical_and) return x_bits & y_bits;
  if constexpr (op == logical_or) return x_bits | y_bits;
  if constexpr (op == logical_xor) return x_bits ^ y_bits;
  if constexpr (op == logical_not) return D == DType::Bool ? x_bits ^ 1 : ~x_bits & kMask<D>;
  if constexpr (op == shl || op == shr) {
    const bool within = y_bits < static_cast<uint64_t>(kWidth<D>);
    if (op == shl) return within ? (x_bits << (y_bits & 63)) & kMask<D> : 0;
    if (within) return store<D>(x >> y_bits);
    return std::is_signed_v<T> && x < T(0) ? kMask<D> : 0;
  }
  if constexpr (op == select) return (x_bits & 1) ? y_bits : z_bits;
  if constexpr (op == is_nan) return x != x;
  if constexpr (op == inverse) return store<D>(T(1) / x);
  if constexpr (op == approx_inverse) return store<D>(flushed(T(1) / flushed(x)));
  if constexpr (op == approx_exp2) return store<D>(flushed(static_cast<T>(std::exp2(double(x)))));
}

// A double that rounds to any shorter format in the same way as the integer: if any bit is set that
// a double cannot hold, its last place is set.
template <class T>
double to_double_sticky(T value) {
  constexpr uint64_t kLost = (1 << 11) - 1;
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (magnitude >> 53 == 0) return static_cast<double>(value);
  const uint64_t kept = (magnitude & ~kLost) | ((magnitude & kLost) ? kLost + 1 : 0);
  return value < 0 ? -static_cast<double>(kept) : static_cast<double>(kept);
}

template <DType From, DType To>
uint64_t convert_bits(uint64_t bits, uint64_t, uint64_t) {
  using S = ComputeType<From>;
  using T = ComputeType<To>;
  const S x = load<From>(bits);
  if constexpr (To == DType::Bool) {
    return x != S(0);
  } else if constexpr (is_floating(To)) {
    // Every dtype except the 64-bit integers is exact in double. For 64-bit integers, the hardware
    // rounds once where it has the conversion.
    constexpr bool kLong = is_integer(From) && size_of(From) == 8;
    if constexpr (kLong && is_short_float(To))
      return store<To>(to_double_sticky(x));
    else if constexpr (kLong)
      return store<To>(static_cast<T>(x));
    else
      return store<To>(static_cast<double>(x));
  } else if constexpr (is_floating(From)) {
    if (x != x) return 0;
    // As S, the greatest integer may round up to 2^31, 2^32 or 2^63. `>=` saturates this value too.
    if (x >= static_cast<S>(std::numeric_limits<T>::max()))
      return store<To>(std::numeric_limits<T>::max());
    if (x <= static_cast<S>(std::numeric_limits<T>::min()))
      return store<To>(std::numeric_limits<T>::min());
    return store<To>(static_cast<T>(x));
  } else {
    return store<To>(x);
  }
}

template <DType D>
uint64_t same_bits(uint64_t bits, uint64_t, uint64_t) {
  return bits & kMask<D>;
}

constexpr TypeSet kRowTypes[] = {
#define MACHINE(name, arity, types, ...) types,
#define MATH(...)
#define FORMULA(...)
#include "ir/ops/elementwise.def"
#undef MACHINE
#undef MATH
#undef FORMULA
};

template <size_t I>
constexpr MachineFunction entry() {
  constexpr auto op = static_cast<ElementwiseOp>(I / kDTypeCount);
  constexpr auto dtype = static_cast<DType>(I % kDTypeCount);
  if constexpr (op == convert || op == bitcast || !kRowTypes[I / kDTypeCount].contains(dtype))
    return nullptr;
  else
    return &apply<op, dtype>;
}

template <size_t I>
constexpr MachineFunction convert_entry() {
  return &convert_bits<static_cast<DType>(I / kDTypeCount), static_cast<DType>(I % kDTypeCount)>;
}

template <size_t... I>
constexpr auto make_functions(std::index_sequence<I...>) {
  return std::array<MachineFunction, sizeof...(I)>{entry<I>()...};
}
template <size_t... I>
constexpr auto make_converts(std::index_sequence<I...>) {
  return std::array<MachineFunction, sizeof...(I)>{convert_entry<I>()...};
}
template <size_t... I>
constexpr auto make_bitcasts(std::index_sequence<I...>) {
  return std::array<MachineFunction, sizeof...(I)>{&same_bits<static_cast<DType>(I)>...};
}

// The functions of rows by [op][dtype], of convert by [from][to], and of bitcast by [dtype].
constexpr auto kFunctions =
    make_functions(std::make_index_sequence<kMachineOpCount * kDTypeCount>());
constexpr auto kConverts = make_converts(std::make_index_sequence<kDTypeCount * kDTypeCount>());
constexpr auto kBitcasts = make_bitcasts(std::make_index_sequence<kDTypeCount>());

}  // namespace

MachineFunction machine_function(ElementwiseOp op, DType operand, DType result) {
  if (!is_machine(op)) return nullptr;
  const auto from = static_cast<size_t>(operand), to = static_cast<size_t>(result);
  if (op == ElementwiseOp::convert) return kConverts[from * kDTypeCount + to];
  if (op == ElementwiseOp::bitcast)
    return have_same_bits(operand, result) ? kBitcasts[from] : nullptr;
  if (result != result_dtype(info(op).result, operand, result)) return nullptr;
  return kFunctions[static_cast<size_t>(op) * kDTypeCount + from];
}

uint64_t evaluate_machine(ElementwiseOp op, DType operand, DType result, uint64_t x, uint64_t y,
                          uint64_t z) {
  const MachineFunction function = machine_function(op, operand, result);
  BRAZE_CHECK(function, std::string(name(op)) + " is no machine row from " +
                            std::string(name(operand)) + " to " + std::string(name(result)));
  return function(x, y, z);
}

}  // namespace braze
