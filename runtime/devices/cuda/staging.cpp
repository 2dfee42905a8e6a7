#include "runtime/devices/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace braze {

namespace {

constexpr size_t kPiece = 4 << 20;    // large enough for the full speed of the bus
constexpr size_t kRing = 8 * kPiece;  // the bytes by which uploads can run ahead of the GPU
constexpr size_t kStep = 256;

std::byte* pinned(CudaContext& context, size_t size) {
  void* memory = nullptr;
  context.check(context.api().mem_host_alloc(&memory, size, 0), "pinned memory of the host");
  return static_cast<std::byte*>(memory);
}

cuda::CUdeviceptr address(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

}  // namespace

void Uploads::copy(std::byte* to, std::span<const std::byte> from, cuda::CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (!ring_) ring_ = pinned(context_, kRing);
  while (!from.empty()) {
    const size_t size = std::min(kPiece, from.size());
    std::byte* const piece = reserve(size);
    std::memcpy(piece, from.data(), size);
    context_.check(context_.api().memcpy_h_to_d_async(address(to), piece, size, stream),
                   "a copy to the device");
    const size_t begin = next_;
    next_ = begin + (size + kStep - 1) / kStep * kStep;
    pieces_.push_back({begin, next_, context_.fence(stream)});
    to += size;
    from = from.subspan(size);
  }
}

std::byte* Uploads::reserve(size_t size) {
  if (next_ + size > kRing) {
    // The pieces that are left at the ring's end are older than those at its beginning.
    while (!pieces_.empty() && pieces_.front().begin >= next_) finish_oldest();
    next_ = 0;
  }
  while (!pieces_.empty() && pieces_.front().begin < next_ + size && pieces_.front().end > next_) {
    finish_oldest();
  }
  return ring_ + next_;
}

void Uploads::finish_oldest() {
  pieces_.front().fence->wait();
  pieces_.pop_front();
}

void Downloads::copy(std::span<std::byte> to, const std::byte* from, CudaFence& after) {
  std::byte* const buffer = take_buffer();
  try {
    copy_through(buffer, to, from, after);
  } catch (...) {
    const bool idle = context_.api().stream_synchronize(context_.reads()) == cuda::CUDA_SUCCESS;
    const std::lock_guard lock(mutex_);
    (idle ? unused_ : lost_).push_back(buffer);
    throw;
  }
  const std::lock_guard lock(mutex_);
  unused_.push_back(buffer);
}

void Downloads::copy_through(std::byte* buffer, std::span<std::byte> to, const std::byte* from,
                             CudaFence& after) {
  const cuda::Api& api = context_.api();
  const size_t pieces = (to.size() + kPiece - 1) / kPiece;
  const auto part = [&](size_t i) {
    return to.subspan(i * kPiece).first(std::min(kPiece, to.size() - i * kPiece));
  };
  const auto half = [&](size_t i) { return buffer + i % 2 * kPiece; };
  std::shared_ptr<CudaFence> fences[2];
  for (size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      context_.check(api.memcpy_d_to_h_async(half(i), address(from + i * kPiece), part(i).size(),
                                             context_.reads()),
                     "a copy from the device");
      fences[i % 2] = context_.fence(context_.reads());
    }
    if (i > 0) {
      fences[(i - 1) % 2]->wait();
      std::memcpy(part(i - 1).data(), half(i - 1), part(i - 1).size());
    }
  }
  after.wait();  // does not block any more, and notes that the launches before it are complete
}

std::byte* Downloads::take_buffer() {
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      std::byte* const buffer = unused_.back();
      unused_.pop_back();
      return buffer;
    }
  }
  return pinned(context_, 2 * kPiece);
}

}  // namespace braze
