#include "runtime/devices/cuda/call_record.h"

namespace braze {

void CallRecord::add_launch(const cuda::CUlaunchConfig& config, cuda::CUfunction function,
                            std::span<void* const> buffers, std::span<const int64_t> scalars,
                            std::span<const cuda::CUtensorMap> maps) {
  Launch launch{config, function, {}, {maps.begin(), maps.end()}, {}};
  for (void* const buffer : buffers) launch.words.push_back(reinterpret_cast<uintptr_t>(buffer));
  for (const int64_t scalar : scalars) launch.words.push_back(static_cast<uint64_t>(scalar));
  for (uint64_t& word : launch.words) launch.parameters.push_back(&word);
  for (cuda::CUtensorMap& map : launch.maps) launch.parameters.push_back(&map);
  steps_.emplace_back(std::move(launch));
}

cuda::CUresult CallRecord::issue(const cuda::Api& api, cuda::CUstream stream) noexcept {
  for (auto& step : steps_) {
    cuda::CUresult result = cuda::CUDA_SUCCESS;
    if (auto* const launch = std::get_if<Launch>(&step)) {
      launch->config.hStream = stream;
      result = api.launch_kernel_ex(&launch->config, launch->function, launch->parameters.data(),
                                    nullptr);
    } else if (const auto* const fill = std::get_if<Fill>(&step)) {
      result = api.memset_d8_async(fill->to, 0, fill->size, stream);
    } else if (const auto* const copy = std::get_if<Copy>(&step)) {
      result = api.memcpy_d_to_d_async(copy->to, copy->from, copy->size, stream);
    }
    if (result != cuda::CUDA_SUCCESS) return result;
  }
  return cuda::CUDA_SUCCESS;
}

}  // namespace braze
