// suggest.h — finds the known name that the user may have meant by a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braze {

/// "; did you mean \"run\"?" if one of `known` is close to `wrong`, else "".
std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& known);

}  // namespace braze
