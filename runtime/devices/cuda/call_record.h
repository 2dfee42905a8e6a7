// call_record.h — keeps what a call puts into a GPU's queue, so that it can be put there later.
//
// While the driver captures a stream, no code of Braze may fail: a capture that stays open would
// take everything that comes into the stream. A call is therefore first kept here, which may throw
// and allocates memory. Then it is passed to the driver, which does neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "runtime/devices/cuda/driver_api.h"

namespace braze {

/// The parameters of a launch, in this order.
struct LaunchParameters {
  std::span<void* const> buffers;
  std::span<const int64_t> scalars;
  std::span<const cuda::CUtensorMap> maps;
  bool arrays = false;  ///< the buffers are one parameter, and so are the maps

  /// Lists the addresses of the parameters' values, as the driver expects them.
  void list(std::vector<void*>& out) const;
};

class CallRecord {
 public:
  /// `config` has no stream yet. Its attributes must outlive this object.
  void add_launch(const cuda::CUlaunchConfig& config, cuda::CUfunction function,
                  const LaunchParameters& parameters);
  /// Fills with zeros.
  void add_fill(cuda::CUdeviceptr to, size_t size) { steps_.emplace_back(Fill{to, size}); }
  void add_copy(cuda::CUdeviceptr to, cuda::CUdeviceptr from, size_t size) {
    steps_.emplace_back(Copy{to, from, size});
  }

  /// Puts everything into `stream`, up to the first driver call that fails, whose result it
  /// returns.
  cuda::CUresult issue(const cuda::Api& api, cuda::CUstream stream) noexcept;

 private:
  struct Launch {
    cuda::CUlaunchConfig config;
    cuda::CUfunction function;
    std::vector<void*> buffers;
    std::vector<int64_t> scalars;
    std::vector<cuda::CUtensorMap> maps;
    std::vector<void*> parameters;  // addresses in the members above
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
