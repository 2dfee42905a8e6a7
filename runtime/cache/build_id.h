// build_id.h — identifies the build of a library that this process runs.
#pragma once

#include <string>

namespace braze {

/// The build id that the linker wrote into the library or program around `address`: a hash of its
/// contents, in hexadecimal digits. Empty if there is none.
std::string build_id_around(const void* address);

/// The build id of the library that contains this function.
std::string runtime_build_id();

}  // namespace braze
