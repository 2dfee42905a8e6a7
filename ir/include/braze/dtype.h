// dtype.h — the element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace braze {

/// An element type. `Bool` is one byte, 0 or 1.
enum class DType : uint8_t { Bool, I32, I64, U32, F16, BF16, F32, F64 };

inline constexpr int kDTypeCount = 8;
inline constexpr DType kAllDTypes[kDTypeCount] = {DType::Bool, DType::I32,  DType::I64, DType::U32,
                                                  DType::F16,  DType::BF16, DType::F32, DType::F64};

/// Bytes of one element.
constexpr size_t size_of(DType dtype) {
  constexpr uint8_t kBytes[kDTypeCount] = {1, 4, 8, 4, 2, 2, 4, 8};
  return kBytes[static_cast<size_t>(dtype)];
}

/// "f32", "bool" ...: the name in text and messages.
constexpr std::string_view name(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"bool", "i32",  "i64", "u32",
                                                    "f16",  "bf16", "f32", "f64"};
  return kNames[static_cast<size_t>(dtype)];
}

/// The type called `text`, if there is one.
std::optional<DType> parse_dtype(std::string_view text);

constexpr bool is_floating(DType dtype) { return dtype >= DType::F16; }
constexpr bool is_integer(DType dtype) { return dtype >= DType::I32 && dtype <= DType::U32; }
constexpr bool is_signed_integer(DType dtype) { return dtype == DType::I32 || dtype == DType::I64; }
/// f16 and bf16: stored in 16 bits, computed in f32.
constexpr bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

/// The type in which values of `dtype` are computed and summed: f32 for the 16-bit floats,
/// otherwise the type itself.
constexpr DType compute_type(DType dtype) { return is_half(dtype) ? DType::F32 : dtype; }

/// A set of element types, as one bit each.
struct TypeSet {
  uint16_t bits = 0;  ///< one a DType, by its number

  constexpr bool contains(DType dtype) const { return (bits >> static_cast<int>(dtype)) & 1; }
  friend constexpr TypeSet operator|(TypeSet a, TypeSet b) {
    return {static_cast<uint16_t>(a.bits | b.bits)};
  }
  friend constexpr bool operator==(TypeSet, TypeSet) = default;
};

constexpr TypeSet only(DType dtype) {
  return {static_cast<uint16_t>(1u << static_cast<int>(dtype))};
}

inline constexpr TypeSet kBoolean = only(DType::Bool);
inline constexpr TypeSet kInteger = only(DType::I32) | only(DType::I64) | only(DType::U32);
inline constexpr TypeSet kSigned = only(DType::I32) | only(DType::I64);
inline constexpr TypeSet kFloating =
    only(DType::F16) | only(DType::BF16) | only(DType::F32) | only(DType::F64);
inline constexpr TypeSet kNumeric = kInteger | kFloating;
inline constexpr TypeSet kLogical = kBoolean | kInteger;
inline constexpr TypeSet kAnyType = kNumeric | kBoolean;

}  // namespace braze
