#include "runtime/devices/cuda/cuda_system.h"

#include "ir/support/env.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/driver_api.h"

namespace braze {

namespace {

// The on-chip storage of a multiprocessor that cannot be shared memory. It is the same on all GPUs
// since 8.0.
constexpr int64_t kCacheOnly = 28 << 10;

GpuFacts read_facts(const cuda::Api& api, int index) {
  cuda::CUdevice device = 0;
  api.device_get(&device, index);
  const auto attribute = [&](cuda::CUdevice_attribute which) {
    int value = 0;
    return api.device_get_attribute(&value, which, device) == cuda::CUDA_SUCCESS ? value : 0;
  };
  GpuFacts gpu;
  char name[256] = "";
  api.device_get_name(name, sizeof name, device);
  gpu.name = name;
  size_t bytes = 0;
  api.device_total_mem(&bytes, device);
  gpu.memory_bytes = bytes;
  gpu.major = attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  gpu.minor = attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  gpu.multiprocessors = attribute(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  gpu.block_shared_bytes = attribute(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  gpu.shared_bytes = attribute(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  gpu.l2_bytes = attribute(cuda::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  gpu.clock_hz = 1e3 * attribute(cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  // Memory sends two bits per clock on every pin.
  gpu.memory_bytes_per_second = 2 * 1e3 * attribute(cuda::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                                attribute(cuda::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8;
  return gpu;
}

/// The row of the table of targets for a compute capability. Code for sm_80 runs on all later GPUs;
/// code for sm_90a uses instructions that only 9.0 has.
const char* row_name(const GpuFacts& gpu) {
  if (gpu.major == 9 && gpu.minor == 0) return "sm_90a";
  return gpu.major >= 8 ? "sm_80" : nullptr;
}

}  // namespace

std::string capability_text(const GpuFacts& gpu) {
  return fmt::format("{}.{}", gpu.major, gpu.minor);
}

std::optional<Target> gpu_target(const GpuFacts& gpu) {
  const char* name = row_name(gpu);
  if (!name) return std::nullopt;
  Target target = *find_target(name);
  const double share = static_cast<double>(gpu.multiprocessors) / target.cores;
  target.cores = gpu.multiprocessors;
  target.l1_bytes = gpu.block_shared_bytes;
  target.l2_bytes = gpu.shared_bytes + kCacheOnly;
  target.l3_bytes = gpu.l2_bytes;
  target.cache_bytes_per_second *= share;
  if (gpu.memory_bytes_per_second > 0) {
    target.memory_bytes_per_second = gpu.memory_bytes_per_second;
  }
  const int lanes = gpu.major == 8 && gpu.minor == 0 ? 64 : 128;
  target.flops_per_second = gpu.clock_hz > 0 ? 2.0 * lanes * gpu.multiprocessors * gpu.clock_hz
                                             : target.flops_per_second * share;
  return target;
}

int capability_major(const Target& target) { return target.capability / 10; }

std::string why_not(const GpuFacts& gpu, const Target& target) {
  if (target.kind != TargetKind::Gpu || target.simulated) return "the code is not for a GPU";
  const char* best = row_name(gpu);
  if (!best)
    return fmt::format("{} has the compute capability {}, below 8.0", gpu.name,
                       capability_text(gpu));
  if (target.name == best || target.name == "sm_80") return "";
  return fmt::format("{} has the compute capability {}", gpu.name, capability_text(gpu));
}

const CudaSystem& CudaSystem::get() {
  static const auto* system = new CudaSystem(read_env(kEnvCudaDriver).value_or("libcuda.so.1"));
  return *system;
}

CudaSystem::CudaSystem(const std::string& library) : forks_(fork_count()) {
  cuda::OpenedDriver driver = cuda::open_driver(library);
  if (driver.version > 0) driver_version_ = cuda::version_text(driver.version);
  missing_ = std::move(driver.missing);
  if (!driver.api) return;
  int count = 0;
  driver.api->device_get_count(&count);
  if (count == 0) {
    missing_ = "the CUDA driver finds no GPU";
    return;
  }
  api_ = std::move(driver.api);
  for (int i = 0; i < count; ++i) {
    gpus_.push_back(read_facts(*api_, i));
    if (!first_usable_ && row_name(gpus_.back())) first_usable_ = i;
  }
}

CudaSystem::~CudaSystem() = default;

bool CudaSystem::reaches(int from, int to) const {
  cuda::CUdevice a = 0, b = 0;
  int can = 0;
  return api_ && api_->device_get(&a, from) == cuda::CUDA_SUCCESS &&
         api_->device_get(&b, to) == cuda::CUDA_SUCCESS &&
         api_->device_can_access_peer(&can, a, b) == cuda::CUDA_SUCCESS && can != 0;
}

bool CudaSystem::has_atomic_link(int from, int to) const {
  cuda::CUdevice a = 0, b = 0;
  int can = 0;
  return api_ && api_->device_get(&a, from) == cuda::CUDA_SUCCESS &&
         api_->device_get(&b, to) == cuda::CUDA_SUCCESS &&
         api_->device_get_p2p_attribute(&can, cuda::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                        a, b) == cuda::CUDA_SUCCESS &&
         can != 0;
}

}  // namespace braze
