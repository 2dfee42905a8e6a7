// unknown_tensor.h — the error for a name that a file of tensors does not have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "braze/error.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kUnknownTensor{"unknown-tensor", ErrorKind::InvalidArgument,
                                     "A file has no tensor of the name that is asked for."};
}  // namespace codes

/// Throws kUnknownTensor for `name`, which is none of the `tensors` (a map by name) of `path`.
template <class Tensors>
[[noreturn]] void fail_unknown_tensor(const std::string& path, std::string_view name,
                                      const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& item : tensors) names.emplace_back(item.first);
  fail(codes::kUnknownTensor,
       fmt::format("{} has no tensor {}{}", path, quote(name), did_you_mean(name, names)));
}

}  // namespace braze
