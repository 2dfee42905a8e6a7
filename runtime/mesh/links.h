// links.h — how fast the devices of this machine exchange data, as measured by `braze doctor
// --calibrate`.
//
// The figures are fields of Target (`link_seconds`, `link_bytes_per_second`), whose table has
// defaults. The measured figures are kept in the folder of the disk cache as the text of a Target,
// with one file for each kind of machine. They only affect how programs over a mesh are compiled.
#pragma once

#include <string>

#include "braze/error.h"
#include "braze/mesh.h"
#include "ir/target/target.h"

namespace braze {

namespace codes {
inline constexpr Code kLinkFigures{"link-figures", ErrorKind::DataLoss,
                                   "The measured figures of links cannot be read or kept."};
}  // namespace codes

/// The path of the file with the figures for this kind of machine. It is empty if the cache is off
/// or has no folder.
std::string links_file(const Target& target);
/// `target` with the figures of its file, if there is one.
Target with_links(Target target);
/// Writes the file for the figures of `target`.
void keep_links(const Target& target);

/// The target of a mesh's devices, for programs over the mesh. If there are several processes, they
/// all take the figures of rank 0, so that they compile the same program. So all of them must call
/// this, each for its own mesh.
Target target_of(const Mesh& mesh);

}  // namespace braze
