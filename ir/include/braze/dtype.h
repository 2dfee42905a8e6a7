// dtype.h — the element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "braze/half.h"

namespace braze {

/// The kind of values of an element type. `Stored` floats are for storage only: they can be
/// converted, moved and compared as bits; arithmetic needs a conversion first.
enum class NumberKind : uint8_t { Boolean, Signed, Unsigned, Float, Stored };

// The bits of formats that are for storage only.

/// An element of f8e4m3.
enum class F8E4M3Bits : uint8_t {};
/// An element of f8e5m2.
enum class F8E5M2Bits : uint8_t {};

// Every element type, one row each:
//
//   BRAZE_DTYPE(id, name, kind, element, exponent, fraction, infinities, safetensors, npy)
//
//   id           the enumerator; its number is that of the row, and c.h has it too: add rows last
//   name         the name in text and messages
//   element      the C++ type of one element in host memory
//   exponent, fraction   the number of bits of these parts of a float; 0 for other types
//   infinities   whether it has infinities, as in IEEE 754; a float without infinities has numbers
//                in their place, and its NaN has all exponent and fraction bits set
//   safetensors, npy     the name in these formats (npy: without the byte order; "" if none)
//
// Everything else about types follows from these rows, or is a DTypeTable, which does not compile
// if a row has no entry in it.
#define BRAZE_DTYPES(BRAZE_DTYPE)                                               \
  BRAZE_DTYPE(Bool, "bool", Boolean, bool, 0, 0, false, "BOOL", "b1")           \
  BRAZE_DTYPE(I32, "i32", Signed, int32_t, 0, 0, false, "I32", "i4")            \
  BRAZE_DTYPE(I64, "i64", Signed, int64_t, 0, 0, false, "I64", "i8")            \
  BRAZE_DTYPE(U32, "u32", Unsigned, uint32_t, 0, 0, false, "U32", "u4")         \
  BRAZE_DTYPE(F16, "f16", Float, float16, 5, 10, true, "F16", "f2")             \
  BRAZE_DTYPE(BF16, "bf16", Float, bfloat16, 8, 7, true, "BF16", "V2")          \
  BRAZE_DTYPE(F32, "f32", Float, float, 8, 23, true, "F32", "f4")               \
  BRAZE_DTYPE(F64, "f64", Float, double, 11, 52, true, "F64", "f8")             \
  BRAZE_DTYPE(I8, "i8", Signed, int8_t, 0, 0, false, "I8", "i1")                \
  BRAZE_DTYPE(U8, "u8", Unsigned, uint8_t, 0, 0, false, "U8", "u1")             \
  BRAZE_DTYPE(I16, "i16", Signed, int16_t, 0, 0, false, "I16", "i2")            \
  BRAZE_DTYPE(U16, "u16", Unsigned, uint16_t, 0, 0, false, "U16", "u2")         \
  BRAZE_DTYPE(U64, "u64", Unsigned, uint64_t, 0, 0, false, "U64", "u8")         \
  BRAZE_DTYPE(F8E4M3, "f8e4m3", Stored, F8E4M3Bits, 4, 3, false, "F8_E4M3", "") \
  BRAZE_DTYPE(F8E5M2, "f8e5m2", Stored, F8E5M2Bits, 5, 2, true, "F8_E5M2", "")

/// An element type. `Bool` is one byte, 0 or 1.
enum class DType : uint8_t {
#define BRAZE_DTYPE(id, ...) id,
  BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE
};

/// A row of the list above.
struct DTypeInfo {
  std::string_view name;         ///< "f32"
  NumberKind kind;               ///< what its values are
  uint8_t bytes;                 ///< the size of one element
  int exponent;                  ///< bits of a float's exponent
  int fraction;                  ///< bits of a float's fraction
  bool infinities;               ///< whether a float has infinities
  std::string_view safetensors;  ///< "BF16": the name in .safetensors
  std::string_view npy;          ///< "f4": the name in .npy without the byte order; "" if none
};

/// The rows of the element types, by their numbers.
inline constexpr DTypeInfo kDTypeInfos[] = {
#define BRAZE_DTYPE(id, name, kind, element, ...) \
  {name, NumberKind::kind, sizeof(element), __VA_ARGS__},
    BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE
};
/// All element types, by their numbers.
inline constexpr DType kAllDTypes[] = {
#define BRAZE_DTYPE(id, ...) DType::id,
    BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE
};
/// The number of element types.
inline constexpr size_t kDTypeCount = std::size(kAllDTypes);

/// The row of an element type.
constexpr const DTypeInfo& info(DType dtype) { return kDTypeInfos[static_cast<size_t>(dtype)]; }

/// The size of one element in bytes.
constexpr size_t size_of(DType dtype) { return info(dtype).bytes; }

/// The name in text and messages: "f32", "bool" ...
constexpr std::string_view name(DType dtype) { return info(dtype).name; }

/// The type whose name is `text`, if there is one.
std::optional<DType> parse_dtype(std::string_view text);

/// Whether the values are floats, including those for storage only.
constexpr bool is_floating(DType dtype) {
  return info(dtype).kind == NumberKind::Float || info(dtype).kind == NumberKind::Stored;
}
/// Floats with arithmetic, on which functions are differentiable.
constexpr bool is_arithmetic_float(DType dtype) { return info(dtype).kind == NumberKind::Float; }
/// f8e4m3 and f8e5m2: floats without arithmetic.
constexpr bool is_stored_float(DType dtype) { return info(dtype).kind == NumberKind::Stored; }
/// i8, i16, i32 or i64.
constexpr bool is_signed_integer(DType dtype) { return info(dtype).kind == NumberKind::Signed; }
/// u8, u16, u32 or u64.
constexpr bool is_unsigned_integer(DType dtype) { return info(dtype).kind == NumberKind::Unsigned; }
/// An integer of 8 to 64 bits; not bool.
constexpr bool is_integer(DType dtype) {
  return is_signed_integer(dtype) || is_unsigned_integer(dtype);
}
/// f16 and bf16: stored in 16 bits, computed in f32.
constexpr bool is_half(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2; }
/// Floats of less than 32 bits. f32 can represent all their values, and they are computed in f32.
constexpr bool is_short_float(DType dtype) { return is_floating(dtype) && size_of(dtype) < 4; }

/// The type in which values of `dtype` are computed and summed: f32 for shorter floats, otherwise
/// the type itself.
constexpr DType compute_type(DType dtype) { return is_short_float(dtype) ? DType::F32 : dtype; }

/// Whether `wide` is an integer type with more bits than `dtype` that can represent all its values.
constexpr bool is_wider_integer(DType wide, DType dtype) {
  return is_integer(wide) && is_integer(dtype) && size_of(wide) > size_of(dtype) &&
         (is_signed_integer(wide) || is_unsigned_integer(dtype));
}

/// Whether sums and products of `dtype` can have the type `result`: the type itself, f32 for 16-bit
/// floats, and for integers every wider type that can represent their values.
constexpr bool accumulates_as(DType dtype, DType result) {
  return result == dtype || result == compute_type(dtype) || is_wider_integer(result, dtype);
}

namespace detail {
template <DType D>
struct Element;
#define BRAZE_DTYPE(id, name, kind, element, ...) \
  template <>                                     \
  struct Element<DType::id> {                     \
    using Type = element;                         \
  };
BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE
}  // namespace detail

/// The C++ type of one element in host memory.
template <DType D>
using ElementOf = typename detail::Element<D>::Type;

/// The DType of a C++ element type.
template <class T>
struct DTypeOf;
#define BRAZE_DTYPE(id, name, kind, element, ...) \
  template <>                                     \
  struct DTypeOf<element> {                       \
    static constexpr DType value = DType::id;     \
  };
BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE

/// Calls the template `f.operator()` with `dtype` as its argument.
template <class F>
constexpr decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
#define BRAZE_DTYPE(id, ...) \
  case DType::id:            \
    return f.template operator()<DType::id>();
    BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE
  }
  __builtin_unreachable();
}

/// A table with one entry for each element type. It does not compile if a type has no entry.
template <class Entry>
class DTypeTable {
 public:
  /// Takes one pair for each element type.
  consteval DTypeTable(std::initializer_list<std::pair<DType, Entry>> list) {
    bool given[kDTypeCount] = {};
    for (const auto& [dtype, entry] : list) {
      entries_[static_cast<size_t>(dtype)] = entry;
      given[static_cast<size_t>(dtype)] = true;
    }
    for (const bool is_given : given)
      if (!is_given) throw "element type without an entry";
  }
  /// The entry of a type.
  constexpr const Entry& operator[](DType dtype) const {
    return entries_[static_cast<size_t>(dtype)];
  }

 private:
  Entry entries_[kDTypeCount] = {};
};

/// A set of element types, with one bit for each.
struct TypeSet {
  uint32_t bits = 0;  ///< bit i stands for the DType with the number i

  /// Whether `dtype` is in the set.
  constexpr bool contains(DType dtype) const { return (bits >> static_cast<int>(dtype)) & 1; }
  friend constexpr TypeSet operator|(TypeSet a, TypeSet b) { return {a.bits | b.bits}; }
  friend constexpr bool operator==(TypeSet, TypeSet) = default;
};

/// The set that has only `dtype`.
constexpr TypeSet only(DType dtype) { return {uint32_t{1} << static_cast<int>(dtype)}; }

/// The types for which `predicate` is true.
constexpr TypeSet types_where(bool (*predicate)(DType)) {
  TypeSet set;
  for (const DType dtype : kAllDTypes)
    if (predicate(dtype)) set = set | only(dtype);
  return set;
}

/// bool.
inline constexpr TypeSet kBoolean = only(DType::Bool);
/// Integers of 8 to 64 bits.
inline constexpr TypeSet kInteger = types_where(is_integer);
/// f16, bf16, f32, f64: the floats with arithmetic.
inline constexpr TypeSet kFloating = types_where(is_arithmetic_float);
/// Integers, and floats with arithmetic.
inline constexpr TypeSet kNumeric = kInteger | kFloating;
/// bool and integers, which have bitwise operations.
inline constexpr TypeSet kLogical = kBoolean | kInteger;
/// The numeric types and bool, which can be compared.
inline constexpr TypeSet kOrdered = kNumeric | kBoolean;
/// All types.
inline constexpr TypeSet kAnyType = kOrdered | types_where(is_stored_float);

}  // namespace braze
