// dtype.h — the element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace braze {

/// What the values of an element type are. `Stored` are floats for storage alone: they convert,
/// move and are compared as bits, and arithmetic is of what they convert to.
enum class NumberKind : uint8_t { Boolean, Signed, Unsigned, Float, Stored };

// Formats that C++ has no numbers of, by their bits.
enum class F16Bits : uint16_t {};    ///< an element of f16
enum class BF16Bits : uint16_t {};   ///< an element of bf16
enum class F8E4M3Bits : uint8_t {};  ///< an element of f8e4m3
enum class F8E5M2Bits : uint8_t {};  ///< an element of f8e5m2

// Every element type, one row each:
//
//   BRAZE_DTYPE(id, name, kind, element, exponent, fraction, infinities, safetensors, npy)
//
//   id           the enumerator; its number is the row's, and c.h shows it: new rows come last
//   name         in text and messages
//   element      one element in the memory of a host, in C++
//   exponent, fraction   bits of a float's parts; 0 for others
//   infinities   whether it has infinities, as IEEE 754 says; a float without them has numbers
//                there, but for NaN, which is all ones
//   safetensors, npy     the type's name in these formats (npy: without the byte order; "" if none)
//
// All that is said of types elsewhere follows from these rows, or is a DTypeTable, which does not
// compile while a row has no entry there.
#define BRAZE_DTYPES(BRAZE_DTYPE)                                               \
  BRAZE_DTYPE(Bool, "bool", Boolean, bool, 0, 0, false, "BOOL", "b1")           \
  BRAZE_DTYPE(I32, "i32", Signed, int32_t, 0, 0, false, "I32", "i4")            \
  BRAZE_DTYPE(I64, "i64", Signed, int64_t, 0, 0, false, "I64", "i8")            \
  BRAZE_DTYPE(U32, "u32", Unsigned, uint32_t, 0, 0, false, "U32", "u4")         \
  BRAZE_DTYPE(F16, "f16", Float, F16Bits, 5, 10, true, "F16", "f2")             \
  BRAZE_DTYPE(BF16, "bf16", Float, BF16Bits, 8, 7, true, "BF16", "V2")          \
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
  std::string_view name;
  NumberKind kind;
  uint8_t bytes;  ///< of one element
  int exponent;
  int fraction;
  bool infinities;
  std::string_view safetensors;
  std::string_view npy;
};

inline constexpr DTypeInfo kDTypeInfos[] = {
#define BRAZE_DTYPE(id, name, kind, element, ...) \
  {name, NumberKind::kind, sizeof(element), __VA_ARGS__},
    BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE
};
inline constexpr DType kAllDTypes[] = {
#define BRAZE_DTYPE(id, ...) DType::id,
    BRAZE_DTYPES(BRAZE_DTYPE)
#undef BRAZE_DTYPE
};
inline constexpr size_t kDTypeCount = std::size(kAllDTypes);

constexpr const DTypeInfo& info(DType dtype) { return kDTypeInfos[static_cast<size_t>(dtype)]; }

/// Bytes of one element.
constexpr size_t size_of(DType dtype) { return info(dtype).bytes; }

/// "f32", "bool" ...: the name in text and messages.
constexpr std::string_view name(DType dtype) { return info(dtype).name; }

/// The type called `text`, if there is one.
std::optional<DType> parse_dtype(std::string_view text);

/// Whether the values are floats, be it for storage alone.
constexpr bool is_floating(DType dtype) {
  return info(dtype).kind == NumberKind::Float || info(dtype).kind == NumberKind::Stored;
}
/// Floats with arithmetic, on which functions are differentiable.
constexpr bool is_arithmetic_float(DType dtype) { return info(dtype).kind == NumberKind::Float; }
/// f8e4m3 and f8e5m2: floats without arithmetic.
constexpr bool is_stored_float(DType dtype) { return info(dtype).kind == NumberKind::Stored; }
constexpr bool is_signed_integer(DType dtype) { return info(dtype).kind == NumberKind::Signed; }
constexpr bool is_unsigned_integer(DType dtype) { return info(dtype).kind == NumberKind::Unsigned; }
constexpr bool is_integer(DType dtype) {
  return is_signed_integer(dtype) || is_unsigned_integer(dtype);
}
/// f16 and bf16: stored in 16 bits, computed in f32.
constexpr bool is_half(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2; }
/// Floats of less than 32 bits: all their values are f32's, in which they are computed.
constexpr bool is_short_float(DType dtype) { return is_floating(dtype) && size_of(dtype) < 4; }

/// The type in which values of `dtype` are computed and summed: f32 for shorter floats, otherwise
/// the type itself.
constexpr DType compute_type(DType dtype) { return is_short_float(dtype) ? DType::F32 : dtype; }

/// Whether the integers of `wide` are more than those of `dtype` and hold all of them.
constexpr bool is_wider_integer(DType wide, DType dtype) {
  return is_integer(wide) && is_integer(dtype) && size_of(wide) > size_of(dtype) &&
         (is_signed_integer(wide) || is_unsigned_integer(dtype));
}

/// Whether sums and products of `dtype` can be had as `result`: the type itself, f32 for 16-bit
/// floats, and for integers any that holds them.
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

/// One element in the memory of a host.
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

/// Calls f.operator()<D>() for the D that `dtype` is.
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

/// A table with one entry per element type. A type without an entry does not compile.
template <class Entry>
class DTypeTable {
 public:
  consteval DTypeTable(std::initializer_list<std::pair<DType, Entry>> list) {
    bool given[kDTypeCount] = {};
    for (const auto& [dtype, entry] : list) {
      entries_[static_cast<size_t>(dtype)] = entry;
      given[static_cast<size_t>(dtype)] = true;
    }
    for (const bool is_given : given)
      if (!is_given) throw "element type without an entry";
  }
  constexpr const Entry& operator[](DType dtype) const {
    return entries_[static_cast<size_t>(dtype)];
  }

 private:
  Entry entries_[kDTypeCount] = {};
};

/// A set of element types, as one bit each.
struct TypeSet {
  uint32_t bits = 0;  ///< one a DType, by its number

  constexpr bool contains(DType dtype) const { return (bits >> static_cast<int>(dtype)) & 1; }
  friend constexpr TypeSet operator|(TypeSet a, TypeSet b) { return {a.bits | b.bits}; }
  friend constexpr bool operator==(TypeSet, TypeSet) = default;
};

constexpr TypeSet only(DType dtype) { return {uint32_t{1} << static_cast<int>(dtype)}; }

/// The types of which `predicate` is true.
constexpr TypeSet types_where(bool (*predicate)(DType)) {
  TypeSet set;
  for (const DType dtype : kAllDTypes)
    if (predicate(dtype)) set = set | only(dtype);
  return set;
}

inline constexpr TypeSet kBoolean = only(DType::Bool);
inline constexpr TypeSet kInteger = types_where(is_integer);
inline constexpr TypeSet kFloating = types_where(is_arithmetic_float);
inline constexpr TypeSet kNumeric = kInteger | kFloating;
inline constexpr TypeSet kLogical = kBoolean | kInteger;
inline constexpr TypeSet kOrdered = kNumeric | kBoolean;
inline constexpr TypeSet kAnyType = kOrdered | types_where(is_stored_float);

}  // namespace braze
