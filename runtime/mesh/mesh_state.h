// mesh_state.h — the state behind the handles of braze/mesh.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "braze/error.h"
#include "braze/mesh.h"
#include "runtime/mesh/together.h"

namespace braze {

namespace codes {
inline constexpr Code kBadMesh{"bad-mesh", ErrorKind::InvalidArgument,
                               "A mesh does not have the axes or devices asked for."};
inline constexpr Code kBadSharding{"bad-sharding", ErrorKind::InvalidArgument,
                                   "An array cannot be spread over the mesh in this way."};
inline constexpr Code kSpreadArray{"spread-array", ErrorKind::InvalidArgument,
                                   "An array that is spread over a mesh was used as one device's."};
inline constexpr Code kRemoteShard{"remote-shard", ErrorKind::InvalidArgument,
                                   "Values were read that are in another process."};
}  // namespace codes

class Ranks;

struct Mesh::State {
  std::vector<MeshAxis> axes;
  std::vector<Device> devices;
  Ranks* ranks = nullptr;  ///< the processes that own the devices; each process owns the same
                           ///< number of them. Null if all devices belong to this process
  int rank_of(size_t place) const;  ///< 0 if all devices belong to this process
  /// The collectives of devices with their own queues (GPUs). Made at the first call, and used
  /// by one call at a time.
  std::unique_ptr<DeviceLinks> links;
};

/// The state of an array over a mesh. It is fixed when it is made.
struct Array::Spread {
  Mesh mesh;
  Sharding sharding;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;  ///< of the whole array
  std::vector<Array> shards;   ///< of each device; empty handles for those of other processes
};

/// Copies the whole array to the host, in row-major order. Throws kRemoteShard if a part of it is
/// on no device of this process.
void gather_to_host(const Array::Spread& spread, std::span<std::byte> out);

/// The Array over `mesh` that consists of these shards, which have one type. The handles of shards
/// on devices of other processes are empty.
Array spread_array(const Mesh& mesh, const Sharding& sharding, std::vector<Array> shards);

}  // namespace braze
