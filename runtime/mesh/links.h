// links.h — how fast the devices of this machine exchange data, as `braze doctor --calibrate` has
// measured it.
//
// The figures are fields of Target (`link_seconds`, `link_bytes_per_second`), whose table has
// defaults. What was measured stands in the folder of the disk cache as a Target's text, one file
// for each kind of machine. It decides how programs over a mesh are compiled, and no others.
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

/// The file of the figures for this kind of machine; empty if the cache is off or has no folder.
std::string links_file(const Target& target);
/// `target` with the figures of its file, if there is one.
Target with_links(Target target);
/// Writes the file for the figures of `target`.
void keep_links(const Target& target);

/// Of the devices of a mesh, for programs over it. Several processes take the figures of rank 0, so
/// that they compile the same program: all of them call this for a mesh of theirs.
Target target_of(const Mesh& mesh);

}  // namespace braze
