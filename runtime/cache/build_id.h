// build_id.h — which build of a library this process runs.
#pragma once

#include <string>

namespace braze {

/// The build id that the linker wrote into the library or program around `address`: a hash of its
/// contents, in hexadecimal digits. Empty if it has none.
std::string build_id_around(const void* address);

/// That of the library this function is in.
std::string runtime_build_id();

}  // namespace braze
