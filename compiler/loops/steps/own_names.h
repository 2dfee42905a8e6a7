// own_names.h — the names of values that steps make from nothing that has a name.
//
// All other names that steps make begin with the name of a tensor or value and go on with letters
// and digits. Kernels that are equal except for names depend on this (compiler/loops/alike.h).
#pragma once

#include <string_view>

namespace braze {

inline constexpr std::string_view kFactorName = "s", kPanelName = "p", kSharedName = "shared",
                                  kSpanName = "span";
/// All of them. A number follows where a name is taken.
inline constexpr std::string_view kOwnNames[] = {kFactorName, kPanelName, kSharedName, kSpanName};

}  // namespace braze
