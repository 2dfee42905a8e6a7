// call_record.h — what a call puts into a GPU's queue, kept to be put there later.
//
// While the driver captures a stream nothing of ours may fail: a capture that is left open takes
// whatever comes into the stream. So a call is first kept here, which may throw and takes memory,
// and then handed to the driver, which does neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "runtime/devices/cuda/driver_api.h"

namespace braze {

class CallRecord {
 public:
  /// `config` without its stream; its attributes outlive this. Parameters in this order.
  void add_launch(const cuda::CUlaunchConfig& config, cuda::CUfunction function,
                  std::span<void* const> buffers, std::span<const int64_t> scalars,
                  std::span<const cuda::CUtensorMap> maps);
  /// Fills with zeros.
  void add_fill(cuda::CUdeviceptr to, size_t size) { steps_.emplace_back(Fill{to, size}); }
  void add_copy(cuda::CUdeviceptr to, cuda::CUdeviceptr from, size_t size) {
    steps_.emplace_back(Copy{to, from, size});
  }

  /// Puts everything into `stream`, up to the first call that fails, whose result it returns.
  cuda::CUresult issue(const cuda::Api& api, cuda::CUstream stream) noexcept;

 private:
  struct Launch {
    cuda::CUlaunchConfig config;
    cuda::CUfunction function;
    std::vector<uint64_t> words;  // buffers and scalars
    std::vector<cuda::CUtensorMap> maps;
    std::vector<void*> parameters;  // into the above
  };
  struct Fill {
    cuda::CUdeviceptr to;
    size_t size;
  };
  struct Copy {
    cuda::CUdeviceptr to, from;
    size_t size;
  };

  std::vector<std::variant<Launch, Fill, Copy>> steps_;
};

}  // namespace braze
