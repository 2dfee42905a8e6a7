// staging.h — pinned host memory through which bytes are copied to and from a GPU.
//
// A GPU copies at full speed, while the host continues, only from and to pinned memory. Memory of
// callers is not pinned.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/devices/cuda/cuda_context.h"

namespace braze {

/// Copies to a GPU. Thread-safe.
class Uploads {
 public:
  explicit Uploads(CudaContext& context) : context_(context) {}

  /// Puts a copy into `stream`. When this returns, `from` may change. Must be called in a Scope.
  void copy(std::byte* to, std::span<const std::byte> from, cuda::CUstream stream);

 private:
  /// A part of the ring that the GPU may still read.
  struct Piece {
    size_t begin, end;
    std::shared_ptr<CudaFence> fence;
  };

  std::byte* reserve(size_t size);
  void finish_oldest();

  CudaContext& context_;
  std::mutex mutex_;
  std::byte* ring_ = nullptr;  // pinned; kept until the process ends
  size_t next_ = 0;            // where the next piece begins, if it fits there
  std::deque<Piece> pieces_;   // the oldest first
};

/// Copies from a GPU. Thread-safe.
class Downloads {
 public:
  explicit Downloads(CudaContext& context) : context_(context) {}

  /// Copies memory that was written before `after`. The stream of copies to the host already waits
  /// for that fence. Must be called in a Scope.
  void copy(std::span<std::byte> to, const std::byte* from, CudaFence& after);

 private:
  std::byte* take_buffer();
  void copy_through(std::byte* buffer, std::span<std::byte> to, const std::byte* from,
                    CudaFence& after);

  CudaContext& context_;
  std::mutex mutex_;
  std::vector<std::byte*> unused_;  // pinned buffers of two halves
  std::vector<std::byte*> lost_;    // buffers that a failed GPU may still write
};

}  // namespace braze
