// strided_copy.h — dense copies of strided memory on a GPU.
//
// Copies of rows by the driver would take some microseconds each, and a transposed matrix has as
// many of them as columns. So the runtime has one kernel of its own, as PTX. The driver compiles it
// at the first copy. A thread copies one unit of 1 to 16 bytes at a time: it divides the unit's
// number by the extents of the axes and adds up the strides.
#pragma once

#include <optional>

#include "runtime/devices/cuda/cuda_module.h"

namespace braze {

class StridedCopies {
 public:
  explicit StridedCopies(CudaContext& context) : context_(context) {}

  /// Puts a copy into `stream`. Any thread may call it. In a Scope.
  void copy(cuda::CUstream stream, std::byte* to, const std::byte* from, const StridedCopy& copy);

  /// Bytes that one thread copies at a time; the largest of these that fits is used.
  static constexpr int kUnits[] = {16, 8, 4, 2, 1};
  /// The kernel's entry for units of so many bytes.
  static std::string entry(int unit);
  /// The text of the kernel, with all its entries.
  static std::string ptx();

  /// What a launch is given, in the layout that the text reads.
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
  std::optional<CudaModule> module_;  // since the first copy
};

}  // namespace braze
