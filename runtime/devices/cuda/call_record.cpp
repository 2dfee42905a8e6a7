#include "runtime/devices/cuda/call_record.h"

#include <algorithm>

namespace braze {

void LaunchParameters::list(std::vector<void*>& out) const {
  out.clear();
  const auto add = [&](const auto& values, bool array) {
    for (const auto& value :
         values.first(array ? std::min<size_t>(values.size(), 1) : values.size()))
      out.push_back(const_cast<void*>(static_cast<const void*>(&value)));
  };
  add(buffers, arrays);
  add(scalars, false);
  add(maps, arrays);
}

void CallRecord::add_launch(const cuda::CUlaunchConfig& config, cuda::CUfunction function,
                            const LaunchParameters& parameters) {
  const auto& [buffers, scalars, maps, arrays] = parameters;
  Launch launch{config,
                function,
                {buffers.begin(), buffers.end()},
                {scalars.begin(), scalars.end()},
                {maps.begin(), maps.end()},
                {}};
  LaunchParameters{launch.buffers, launch.scalars, launch.maps, arrays}.list(launch.parameters);
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
