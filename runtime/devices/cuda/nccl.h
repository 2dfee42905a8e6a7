// nccl.h — opens NCCL, NVIDIA's library of collectives between GPUs, at run time.
//
// It is searched in this order: among the libraries that this process has already opened (as in a
// process with PyTorch); at the place that BRAZE_NCCL names; in the system's library path; in the
// site-packages of a Python on this machine.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/devices/cuda/nccl_api.h"
#include "runtime/mesh/together.h"

namespace braze {

namespace codes {
inline constexpr Code kNoNccl{"no-nccl", ErrorKind::Unsupported,
                              "NCCL, which GPUs need to work together, is not there."};
inline constexpr Code kNccl{"nccl", ErrorKind::Device, "NCCL failed."};
inline constexpr Code kNcclType{"nccl-type", ErrorKind::Unsupported,
                                "NCCL does not combine values of this dtype."};
}  // namespace codes

namespace cuda {

/// The oldest version with sends and receives in groups, and with bf16.
inline constexpr int kOldestNccl = 21003;

struct OpenedNccl {
  std::unique_ptr<const NcclApi> api;  ///< if it is null, `missing` says why
  int version = 0;
  std::string file;     ///< where it was found
  std::string missing;  ///< one sentence that also says where it is available
};

/// Opens the library in this file.
OpenedNccl open_nccl(const std::string& library);
/// Opens the first of these libraries that can be used. An older one, or something else, is passed
/// over.
OpenedNccl open_first_nccl(std::span<const std::string> libraries);
/// The library of this process, opened at first use and never closed.
const OpenedNccl& nccl();
/// The text of a version, such as "2.28.9".
std::string nccl_version_text(int version);
/// Files that may be NCCL, in the site-packages of the Pythons of this machine.
std::vector<std::string> nccl_in_site_packages();

/// Whether NCCL has reductions of values of this dtype.
bool nccl_combines(DType dtype);

}  // namespace cuda

/// Makes the object by which these GPUs, the devices of a mesh, do collectives. `ranks` is that of
/// the Mesh. Throws kNoNccl.
std::unique_ptr<DeviceLinks> make_nccl_links(std::span<const MeshAxis> mesh,
                                             std::span<const Device> devices, Ranks* ranks);

}  // namespace braze
