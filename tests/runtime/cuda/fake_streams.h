// fake_streams.h — what the fake NCCL needs of the fake driver.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/devices/cuda/nccl_api.h"

namespace braze::test {

/// While one exists, no other thread is in the driver.
class FakeLock {
 public:
  FakeLock();
  ~FakeLock();
  FakeLock(const FakeLock&) = delete;
  FakeLock& operator=(const FakeLock&) = delete;
};

// Under the lock.

void fake_misuse(std::string what);
/// How the next call of this kind shall fail, if it shall.
std::optional<cuda::ncclResult_t> fake_nccl_failure(const std::string& kind);
/// Whether a call of this kind stays in NCCL a little longer.
bool fake_nccl_stays(const std::string& kind, bool is_aborted);
/// Of the calling thread.
int fake_current_device();
int fake_device_of(cuda::CUstream stream);
bool fake_is_device(const void* data, size_t size);
uint64_t fake_issued(cuda::CUstream stream);
/// `action` says whether it went well.
void fake_push(cuda::CUstream stream, std::function<bool()> action);
/// Does what was put into the stream before `position`.
void fake_run(cuda::CUstream stream, uint64_t position);
/// Lets other threads into the driver for a while. The stream at hand is theirs no less.
void fake_leave(std::chrono::microseconds nap);

}  // namespace braze::test
