// nccl_api.h — NCCL, which Braze declares itself, as driver_api.h declares the CUDA driver.
#pragma once

#include <cstddef>

#include "runtime/devices/cuda/driver_api.h"

namespace braze::cuda {

using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
/// How a communicator works, as in NCCL 2.18. Later versions have further members, which then have
/// their defaults.
struct ncclConfig_t {
  static constexpr int kUndefined = -2147483647 - 1;
  size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cgaClusterSize = kUndefined;
  int minCTAs = kUndefined;
  int maxCTAs = kUndefined;
  const char* netName = nullptr;
  int splitShare = kUndefined;
};
enum ncclResult_t : unsigned {};
enum ncclDataType_t : unsigned {};
enum ncclRedOp_t : unsigned {};

#define VALUE(type, name, number) inline constexpr type name = static_cast<type>(number);
#include "runtime/devices/cuda/nccl.def"

/// The functions of NCCL.
struct NcclApi {
#define FUNCTION(member, name, version, ...) ncclResult_t (*member)(__VA_ARGS__) = nullptr;
#define OPTIONAL(member, name, version, ...) ncclResult_t (*member)(__VA_ARGS__) = nullptr;
#include "runtime/devices/cuda/nccl.def"
};

}  // namespace braze::cuda
