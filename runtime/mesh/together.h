// together.h — the collectives that the parts of one call on the devices of a mesh do together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/device.h"
#include "ir/program/program.h"
#include "runtime/execution/captured_error.h"
#include "runtime/execution/work_queue.h"

namespace braze {

/// One collective on one device, with the values of all its expressions.
struct CollectiveArguments {
  Collective what;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  DType dtype = DType::F32;
  uint64_t count = 0;  ///< elements of the operand
};

/// One device's part of a call. Used by the thread that executes the call there.
class Together {
 public:
  virtual ~Together() = default;
  /// Calls `body`, which submits this part. What its device needs of the thread is set up once, and
  /// not again for each of its functions.
  virtual void submit(const std::function<void()>& body) { body(); }
  /// Does these collectives, which are all along one axis, in any order. For small ones, this is
  /// cheaper than doing them one after the other. All devices of the group along the axis do the
  /// same collectives in the same order. Throws if another part of the call has failed. Returns
  /// null if the collectives are in order with launches. Otherwise they run in a separate queue,
  /// after the launches so far, and later launches that access their memory have to wait for the
  /// fence that is returned. All collectives of a device are in one such queue.
  virtual std::shared_ptr<Fence> run(std::span<const CollectiveArguments> bunch) = 0;
  /// An object that tells later whether work in the device's own queue has failed; null if it
  /// cannot fail there.
  virtual std::shared_ptr<Verdict> verdict() { return nullptr; }
  /// Says that this part has failed or will never run, so that the others do not wait for it. Any
  /// thread may call it.
  virtual void give_up(const CapturedError& why) noexcept = 0;
};

/// The collectives of a mesh whose devices have their own queues.
class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;
  /// The parts of one call. `axes` are those of the program; `Collective::axis` is a position among
  /// them. `bounds` are the values of `Collective::blocks` that it has, other than 0. Calls do not
  /// overlap, whatever their meshes: all parts of the calls before have been submitted, or have
  /// given up.
  virtual std::vector<std::shared_ptr<Together>> begin(std::span<const MeshAxis> axes,
                                                       std::span<const int64_t> bounds) = 0;
};

class Ranks;

/// The parts of one call on devices whose memory is that of the host. A separate thread executes
/// each part, and waits for the others. `mesh`, `devices` and `ranks` are those of a Mesh. The
/// result is null for places of other processes, with which MPI exchanges data.
std::vector<std::shared_ptr<Together>> meet_on_host(std::span<const MeshAxis> mesh,
                                                    std::span<const Device> devices, Ranks* ranks,
                                                    std::span<const MeshAxis> axes);

}  // namespace braze
