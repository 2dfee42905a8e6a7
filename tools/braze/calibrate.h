// calibrate.h — measures how fast devices exchange data, for `braze doctor --calibrate`.
#pragma once

#include <cstddef>
#include <string>

#include "braze/mesh.h"
#include "ir/target/target.h"

namespace braze::tool {

struct Links {
  size_t devices = 0;
  Target target;  ///< of the devices, with the figures of their collectives
  // Copies from one device to another. No decision of the compiler needs them.
  double copy_seconds = 0, copy_bytes_per_second = 0;
};

/// Of the devices of a mesh of one axis, two or more. Several processes call this together.
Links measure_links(const Mesh& mesh);

/// "21.5 us and 4.2 GB/s".
std::string link_text(double seconds, double bytes_per_second);

}  // namespace braze::tool
