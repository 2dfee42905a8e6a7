// strided_copy.h — dense copies of strided memory on a GPU.
//
// The driver would need some microseconds to copy each row, and a transposed matrix has as many
// rows as columns. So the runtime has its own kernel, as PTX, which the driver compiles at the
// first copy. A thread copies one unit of 1 to 16 bytes at a time: it divides the unit's number by
// the extents of the axes, and adds up the strides.
#pragma once

#include <optional>

#include "runtime/devices/cuda/cuda_module.h"

namespace braze {

class StridedCopies {
 public:
  explicit StridedCopies(CudaContext& context) : context_(context) {}

  /// Puts a copy into `stream`. Any thread may call it, in a Scope.
  void copy(cuda::CUstream stream, std::byte* to, const std::byte* from, const StridedCopy& copy);

  /// The number of bytes that a thread copies at a time. The greatest that is possible is used.
  static constexpr int kUnits[] = {16, 8, 4, 2, 1};
  /// The name of the kernel's entry for units of this number of bytes.
  static std::string entry(int unit);
  /// The text of the kernel, with all its entries.
  static std::string ptx();

  /// The parameters of a launch, in the layout that the text reads.
  struct Parameters {
    struct Axis {
      uint64_t extent;
      int64_t stride;  ///< in bytes
    };
    uint64_t to, from, units, axes;
    Axis axis[StridedCopy::kMostAxes + 1];  ///< the innermost first
  };

 private:
  CudaContext& context_;
  std::mutex mutex_;
  std::optional<CudaModule> module_;  // is loaded at the first copy
};

}  // namespace braze
