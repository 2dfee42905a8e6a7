// mesh_axis.h — MeshAxis: a named axis of a mesh of devices.
#pragma once

#include <cstdint>
#include <string>

namespace braze {

/// A named axis of a mesh of devices. In a graph, a name has the same size everywhere.
struct MeshAxis {
  std::string name;  ///< unique in its mesh
  int64_t size = 1;  ///< the number of devices along it
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

/// The greatest number of devices along one axis of a mesh.
inline constexpr int64_t kMostDevices = 4096;

}  // namespace braze
