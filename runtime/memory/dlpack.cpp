#include "braze/dlpack.h"

#include <dlpack/dlpack.h>

#include <mutex>

#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/execution/stream.h"
#include "runtime/memory/array_state.h"

namespace braze {

namespace codes {
inline constexpr Code kDlpack{"dlpack", ErrorKind::Unsupported,
                              "A DLPack tensor is of a kind that Braze does not have."};
}  // namespace codes

namespace {

DLDataType dl_type(DType dtype) {
  const uint8_t code = dtype == DType::Bool       ? kDLBool
                       : dtype == DType::BF16     ? kDLBfloat
                       : dtype == DType::F8E4M3   ? kDLFloat8_e4m3fn
                       : dtype == DType::F8E5M2   ? kDLFloat8_e5m2
                       : is_floating(dtype)       ? kDLFloat
                       : is_signed_integer(dtype) ? kDLInt
                                                  : kDLUInt;
  return {code, static_cast<uint8_t>(8 * size_of(dtype)), 1};
}

DType dtype_of(const DLDataType& type) {
  for (const DType dtype : kAllDTypes) {
    const DLDataType known = dl_type(dtype);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return dtype;
  }
  fail(codes::kDlpack, fmt::format("no element type is DLPack's code {} with {} bits and {} lanes",
                                   type.code, type.bits, type.lanes));
}

Device device_of(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return {};
    case kDLCUDA:
      return Device(fmt::format("cuda:{}", device.device_id));
    default:
      fail(codes::kDlpack, fmt::format("Braze has no device of DLPack's type {}",
                                       static_cast<int>(device.device_type)));
  }
}

DLDevice dl_device(const Device& device) {
  if (device.kind() == DeviceKind::Cuda) return {kDLCUDA, device.index()};
  return {kDLCPU, 0};
}

/// Calls the tensor's deleter, once.
template <class Managed>
std::function<void()> deleter_of(Managed* tensor) {
  return [tensor] {
    if (tensor->deleter) tensor->deleter(tensor);
  };
}

Array import(const DLTensor& tensor, std::function<void()> release, bool may_copy) {
  // Releases the tensor if it does not become the memory of an array.
  const std::shared_ptr<void> owner(nullptr, [&release](void*) {
    if (release) release();
  });
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape))
    fail(codes::kDlpack, fmt::format("a tensor of {} axes {}", tensor.ndim,
                                     tensor.ndim < 0 ? "cannot be" : "has no shape"));
  ForeignMemory memory;
  if (tensor.data) memory.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  memory.dtype = dtype_of(tensor.dtype);
  memory.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (tensor.strides) memory.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  memory.device = device_of(tensor.device);
  memory.release = std::exchange(release, {});
  memory.may_copy = may_copy;
  return Array::borrow(std::move(memory));
}

/// The objects that an exported tensor keeps alive.
struct Lent {
  Array array;
  std::vector<int64_t> shape, strides;
  StreamRef stream;  // the stream in which the receiver uses it
};

template <class Managed>
void take_back(Managed* tensor) noexcept {
  auto* const lent = static_cast<Lent*>(tensor->manager_ctx);
  Array::State& state = *lent->array.state();
  if (!state.driver.has_host_memory() && !is_forked()) {
    try {
      auto used = state.driver.fence(lent->stream.get());
      if (state.home != lent->stream) state.add_use(pool_of(lent->stream.get()), std::move(used));
    } catch (const std::exception&) {
      // A lost device no longer computes anything.
    }
  }
  state.lent.fetch_sub(1);
  delete lent;
  delete tensor;
}

template <class Managed>
Managed* lend(const Array& array) {
  auto tensor = std::make_unique<Managed>();
  auto lent = std::make_unique<Lent>();
  lent->shape = array.shape();
  lent->strides.resize(lent->shape.size());
  // Of an array without elements, the extents that are left may have any product.
  int64_t stride = array.numel() > 0 ? 1 : 0;
  for (size_t axis = lent->shape.size(); axis-- > 0;) {
    lent->strides[axis] = stride;
    stride *= lent->shape[axis];
  }
  Array::State& state = *array.state();
  lent->stream = current_stream_of(state.driver);
  lent->array = array;
  {
    const std::lock_guard lock(state.driver.uses_mutex());
    state.check_alive();
    state.lent.fetch_add(1);
  }
  try {
    tensor->dl_tensor.data = const_cast<void*>(array.data());
  } catch (...) {
    state.lent.fetch_sub(1);
    throw;
  }
  tensor->dl_tensor.device = dl_device(array.device());
  tensor->dl_tensor.ndim = static_cast<int32_t>(lent->shape.size());
  tensor->dl_tensor.dtype = dl_type(array.dtype());
  tensor->dl_tensor.shape = lent->shape.data();
  tensor->dl_tensor.strides = lent->strides.data();
  tensor->dl_tensor.byte_offset = 0;
  tensor->deleter = [](Managed* done) { take_back(done); };
  tensor->manager_ctx = lent.release();
  return tensor.release();
}

}  // namespace

namespace {

void refuse_nothing(const void* tensor) {
  if (!tensor) fail(codes::kDlpack, "the tensor is a null pointer", {.fix = "give a tensor"});
}

}  // namespace

Array from_dlpack(DLManagedTensorVersioned* tensor, bool may_copy) {
  refuse_nothing(tensor);
  if (tensor->version.major != DLPACK_MAJOR_VERSION) {
    const uint32_t major = tensor->version.major;
    deleter_of(tensor)();
    fail(codes::kDlpack, fmt::format("the tensor is of DLPack {}, and Braze reads DLPack {}", major,
                                     DLPACK_MAJOR_VERSION));
  }
  return import(tensor->dl_tensor, deleter_of(tensor), may_copy);
}

Array from_dlpack(DLManagedTensor* tensor, bool may_copy) {
  refuse_nothing(tensor);
  return import(tensor->dl_tensor, deleter_of(tensor), may_copy);
}

DLManagedTensorVersioned* to_dlpack(const Array& array) {
  array.shape();  // throws for an empty handle
  auto* const tensor = lend<DLManagedTensorVersioned>(array);
  tensor->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor->flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  return tensor;
}

DLManagedTensor* to_dlpack_unversioned(const Array& array) {
  array.shape();
  return lend<DLManagedTensor>(array);
}

}  // namespace braze
