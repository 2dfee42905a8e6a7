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
  std::vector<std::string> apart, without_atomics;
  const auto pairs = static_cast<size_t>(count * (count - 1) / 2);
  for (int from = 0; from < count; ++from)
    for (int to = from + 1; to < count; ++to) {
      const std::string both = fmt::format("cuda:{} and cuda:{}", from, to);
      if (!system.reaches(from, to) || !system.reaches(to, from)) apart.push_back(both);
      if (!system.has_atomic_link(from, to)) without_atomics.push_back(both);
    }
  const auto names = [&](const std::vector<std::string>& some) {
    return some.size() == pairs ? "the GPUs" : fmt::format("{}", fmt::join(some, ", "));
  };
  if (!apart.empty())
    return fmt::format("no peer access between {}: copies go through the host, and NCCL is slower",
                       names(apart));
  const std::string reached = "each GPU reaches the memory of each other one (peer access)";
  if (without_atomics.empty()) return reached + ", with atomic operations, as over NVLink";
  return fmt::format("{}, without atomic operations between {}, as over PCIe", reached,
                     names(without_atomics));
}

std::string nccl_text() {
  const cuda::OpenedNccl& nccl = cuda::nccl();
  return nccl.api ? fmt::format("{}, {}", cuda::nccl_version_text(nccl.version), nccl.file)
                  : "none: " + nccl.missing;
}

}  // namespace braze::tool
