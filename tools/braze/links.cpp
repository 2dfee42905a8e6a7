#include "tools/braze/links.h"

#include <vector>

#include "ir/support/text.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "runtime/devices/cuda/nccl.h"

namespace braze::tool {

std::string gpu_links_text() {
  const CudaSystem& system = CudaSystem::get();
  const int count = static_cast<int>(system.gpus().size());
  if (count < 2) return "";
  std::vector<std::string> apart;
  for (int from = 0; from < count; ++from)
    for (int to = from + 1; to < count; ++to)
      if (!system.reaches(from, to) || !system.reaches(to, from))
        apart.push_back(fmt::format("cuda:{} and cuda:{}", from, to));
  if (apart.empty()) return "each GPU reaches the memory of each other one (peer access)";
  const bool all = apart.size() == static_cast<size_t>(count * (count - 1) / 2);
  return fmt::format("no peer access between {}: copies go through the host, and NCCL is slower",
                     all ? "the GPUs" : fmt::format("{}", fmt::join(apart, ", ")));
}

std::string nccl_text() {
  const cuda::OpenedNccl& nccl = cuda::nccl();
  return nccl.api ? fmt::format("{}, {}", cuda::nccl_version_text(nccl.version), nccl.file)
                  : "none: " + nccl.missing;
}

}  // namespace braze::tool
