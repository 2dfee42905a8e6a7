// monoid.h — the combining operations of reductions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "braze/dtype.h"
#include "ir/ops/elementwise.h"

namespace braze {

/// The ops `any` and `all` are Or and And on bool. arg_min and arg_max are no monoids here: they
/// reduce pairs of value and index. The first index of the least or greatest value wins, and NaN
/// counts as the least and as the greatest.
enum class Monoid : uint8_t { Sum, Prod, Max, Min, And, Or };

struct MonoidInfo {
  std::string_view name;
  ElementwiseOp combine;
  TypeSet types;
  /// The bits of the neutral element for `dtype`.
  uint64_t (*identity)(DType dtype);

  /// A neutral element that also keeps negative zeros. Sums of floats are padded with -0 and not
  /// with 0, because 0 + -0 is 0.
  uint64_t padding(DType dtype) const;
};

const MonoidInfo& info(Monoid monoid);
inline std::string_view name(Monoid monoid) { return info(monoid).name; }
std::optional<Monoid> parse_monoid(std::string_view text);
/// The dtype in which values of `dtype` are accumulated: f32 for 16-bit floats with Sum and Prod.
DType accumulation_type(Monoid monoid, DType dtype);

}  // namespace braze
