// driver_api.h — the CUDA driver, which Braze declares itself and opens at run time.
//
// One binary therefore serves machines with and without a GPU, and building it needs no CUDA
// toolkit. Types and constants have the toolkit's names, inside braze::cuda. A test compares them
// with the toolkit's cuda.h if it is available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace braze::cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

enum CUresult : unsigned {};
enum CUdevice_attribute : unsigned {};
enum CUdevice_P2PAttribute : unsigned {};
enum CUpointer_attribute : unsigned {};
enum CUmemorytype : unsigned {};
enum CUstream_flags : unsigned {};
enum CUevent_flags : unsigned {};
enum CUstreamCaptureMode : unsigned {};
enum CUjit_option : unsigned {};
enum CUfunction_attribute : unsigned {};
enum CUlaunchAttributeID : unsigned {};
enum CUtensorMapDataType : unsigned {};
enum CUtensorMapInterleave : unsigned {};
enum CUtensorMapSwizzle : unsigned {};
enum CUtensorMapL2promotion : unsigned {};
enum CUtensorMapFloatOOBfill : unsigned {};

#define VALUE(type, name, number) inline constexpr type name = static_cast<type>(number);
#include "runtime/devices/cuda/driver_api.def"

union CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  void* pointer;  // some attributes are pointers, so the union is aligned like a pointer
};

struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

struct alignas(128) CUtensorMap {
  uint64_t opaque[16];
};

/// The functions of the driver.
struct Api {
#define FUNCTION(member, name, version, ...) CUresult (*member)(__VA_ARGS__) = nullptr;
#include "runtime/devices/cuda/driver_api.def"
};

/// The oldest driver that Braze uses: it can encode tensor maps.
inline constexpr int kOldestDriver = 12000;

struct OpenedDriver {
  std::unique_ptr<const Api> api;  ///< initialised; null if there is no usable driver
  int version = 0;                 ///< 1000 * major + 10 * minor of its CUDA; 0 if unknown
  std::string missing;             ///< one sentence that says why there is none
};

/// Opens the driver called `library` as dlopen finds it. It stays open until the end of the
/// process.
OpenedDriver open_driver(const std::string& library);

/// The name and the text of an error: "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was
/// encountered)".
std::string error_text(const Api& api, CUresult result);

/// The text of a version, such as "12.4".
std::string version_text(int version);

}  // namespace braze::cuda
