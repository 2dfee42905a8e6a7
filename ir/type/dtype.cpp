#include "braze/dtype.h"

namespace braze {

std::optional<DType> parse_dtype(std::string_view text) {
  for (DType dtype : kAllDTypes) {
    if (name(dtype) == text) return dtype;
  }
  return std::nullopt;
}

}  // namespace braze
