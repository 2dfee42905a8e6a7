// precision.h — how far results may differ from op-by-op evaluation; docs/guides/numerics.md.
#pragma once

#include <cstdint>
#include <string_view>

namespace braze {

enum class Precision : uint8_t {
  Strict,    ///< values consumed only by reductions round as visible ones do
  Standard,  ///< visible values exact, sums within their bound
  Fast,      ///< visible values too may be up to 4 ulp off and be computed in another order
};

/// "strict", "standard", "fast".
constexpr std::string_view name(Precision precision) {
  constexpr std::string_view kNames[] = {"strict", "standard", "fast"};
  return kNames[static_cast<int>(precision)];
}

}  // namespace braze
