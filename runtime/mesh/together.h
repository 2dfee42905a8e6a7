// together.h — what the parts of one call on the devices of a mesh do together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/device.h"
#include "ir/program/program.h"
#include "runtime/execution/captured_error.h"
#include "runtime/execution/work_queue.h"

namespace braze {

/// One collective on one device, with everything evaluated.
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
  /// Does these collectives along one axis, which is cheaper than one after the other where they
  /// are small; all devices of the group along the axis do the same ones in the same order. Throws
  /// if another part of the call has failed. Null if they stand in order with launches; else they
  /// have begun in a queue of their own, behind the launches so far, and later ones that touch
  /// their memory come behind this fence. The collectives of a device stand in one such queue.
  virtual std::shared_ptr<Fence> run(std::span<const CollectiveArguments> bunch) = 0;
  /// What comes out about it after it was put into the device's own queue; null: nothing does.
  virtual std::shared_ptr<Verdict> verdict() { return nullptr; }
  /// This part has failed, or will never run: the others shall not wait for it. By any thread.
  virtual void give_up(const CapturedError& why) noexcept = 0;
};

/// How the devices of a mesh with queues of their own do collectives.
class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;
  /// The parts of one call. `axes`: of the program, which `Collective::axis` counts.
  virtual std::vector<std::shared_ptr<Together>> begin(std::span<const MeshAxis> axes) = 0;
};

class Ranks;

/// The parts of one call on devices whose memory is the host's: each is executed by a thread of its
/// own, which waits for the others. `mesh`, `devices` and `ranks` as in a Mesh; null for places of
/// other processes, with which MPI exchanges what is to go there.
std::vector<std::shared_ptr<Together>> meet_on_host(std::span<const MeshAxis> mesh,
                                                    std::span<const Device> devices, Ranks* ranks,
                                                    std::span<const MeshAxis> axes);

}  // namespace braze
