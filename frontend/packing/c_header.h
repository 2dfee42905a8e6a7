// c_header.h — a C header for the functions of a package.
#pragma once

#include <string>
#include <string_view>

#include "braze/package.h"

namespace braze {

/// The header includes braze/c.h. For each function F of the package it has `F_load`, which loads
/// F, and `F_run`. `F_run` takes a typed pointer for each input and output, and a number for each
/// size that a call decides. The text is deterministic. `file` is the header's name, which its
/// include guard is made of.
std::string c_header(const Package& package, std::string_view file);

}  // namespace braze
