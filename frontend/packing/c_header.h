// c_header.h — a C header for the functions of a package.
#pragma once

#include <string>
#include <string_view>

#include "braze/package.h"

namespace braze {

/// Over braze/c.h, for each function F of the package: `F_load`, which loads it, and `F_run`, with
/// one typed pointer for each input and output and one number for each size that a call decides.
/// Deterministic. `file` is the header's name, for its guard.
std::string c_header(const Package& package, std::string_view file);

}  // namespace braze
