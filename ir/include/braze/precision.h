// precision.h — how far results may differ from op-by-op evaluation; docs/guides/numerics.md.
#pragma once

#include <cstdint>
#include <string_view>

namespace braze {

/// How far results may differ from evaluation op by op with one rounding for each op.
enum class Precision : uint8_t {
  Strict,    ///< values that only reductions use are rounded like visible values
  Standard,  ///< visible values are exact, sums are within their bound
  Fast,      ///< visible values may be up to 4 ulp off and be computed in another order
};

/// "strict", "standard", "fast".
constexpr std::string_view name(Precision precision) {
  constexpr std::string_view kNames[] = {"strict", "standard", "fast"};
  return kNames[static_cast<int>(precision)];
}

}  // namespace braze
