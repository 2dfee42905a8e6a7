// npz.h — .npz files: ZIP archives of .npy files, as numpy.savez writes them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "braze/error.h"
#include "ir/values/host_tensor.h"

namespace braze {

namespace codes {
inline constexpr Code kNpzMember{"npz-member", ErrorKind::InvalidArgument,
                                 "A member of a .npz file, or an array that is to be one, has a "
                                 "name that no array can have."};
}  // namespace codes

/// Reads the arrays of a whole file in memory, by their names without ".npy". Errors: those of
/// zip.h and npy.h, and kNpzMember. `file` is for messages.
std::map<std::string, HostTensor> parse_npz(std::span<const std::byte> bytes,
                                            std::string_view file);

/// Fails with kNpzMember for a name that is empty, is not UTF-8, has control characters or a
/// backslash, or, read as a path, is absolute or has empty, "." or ".." parts.
void check_npz_name(std::string_view name, std::string_view file);

}  // namespace braze
