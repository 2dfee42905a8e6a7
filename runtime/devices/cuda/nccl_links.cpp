// nccl_links.cpp — collectives of the GPUs of this process, in the main stream of each.
#include <algorithm>
#include <mutex>

#include "ir/graph/shards.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/nccl.h"
#include "runtime/devices/registry.h"

namespace braze {

namespace cuda {

namespace {

void check(ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess) return;
  const auto name = [&]() -> std::string_view {
#define VALUE(type, value, number)                  \
  if constexpr (std::is_same_v<type, ncclResult_t>) \
    if (static_cast<unsigned>(result) == number) return #value;
#include "runtime/devices/cuda/nccl.def"
    return "an unknown error";
  }();
  fail(codes::kNccl,
       fmt::format("NCCL: {} fails: {} ({})", what, name, static_cast<unsigned>(result)),
       {.location = {}, .node = "", .fix = "NCCL_DEBUG=WARN makes NCCL say more"});
}

/// One communicator a device for one group along one axis.
struct GroupComms {
  std::vector<int64_t> members;  // devices of the mesh
  std::vector<ncclComm_t> comms;
};

/// The communicators of a mesh. They live until one part of a call fails, for whoever waits for
/// that part in a kernel waits for ever: then all are aborted, and the next call makes new ones.
/// They are not destroyed at the end of the process, where NCCL's own end may have come before.
class Communicators {
 public:
  Communicators(std::span<const MeshAxis> mesh, std::span<const Device> devices) {
    for (const MeshAxis& axis : mesh) {
      std::vector<GroupComms>& groups = by_axis_.emplace_back();
      for (int64_t device = 0; device < static_cast<int64_t>(devices.size()); ++device) {
        GroupComms group{group_of(mesh, axis.name, device), {}};
        if (group.members[0] != device) continue;
        std::vector<int> indices;
        for (const int64_t member : group.members)
          indices.push_back(devices[static_cast<size_t>(member)].index());
        group.comms.resize(indices.size());
        check(nccl().api->comm_init_all(group.comms.data(), static_cast<int>(indices.size()),
                                        indices.data()),
              fmt::format("connecting {} GPUs along {}", indices.size(), axis.name));
        groups.push_back(std::move(group));
      }
    }
  }

  /// The group and the place in it.
  std::pair<const GroupComms*, size_t> seat(size_t axis, int64_t device) const {
    for (const GroupComms& group : by_axis_[axis]) {
      const auto found = std::ranges::find(group.members, device);
      if (found != group.members.end())
        return {&group, static_cast<size_t>(found - group.members.begin())};
    }
    return {};
  }

  /// Frees the communicators, also while other threads wait in a call of them, which then fails.
  void abort(const CapturedError& why) noexcept {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    why_ = why;
    for (const auto& groups : by_axis_)
      for (const GroupComms& group : groups)
        for (const ncclComm_t comm : group.comms) nccl().api->comm_abort(comm);
  }
  bool aborted() {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }
  /// No communicator may be called any more: throws why.
  void refuse_if_aborted() {
    const std::lock_guard lock(mutex_);
    if (aborted_) why_.rethrow();
  }

 private:
  std::vector<std::vector<GroupComms>> by_axis_;  // of the mesh
  std::mutex mutex_;
  bool aborted_ = false;
  CapturedError why_;
};

ncclDataType_t type_for_sums(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return ncclFloat16;
    case DType::BF16:
      return ncclBfloat16;
    case DType::F32:
      return ncclFloat32;
    case DType::F64:
      return ncclFloat64;
    case DType::I8:
      return ncclInt8;
    case DType::U8:
    case DType::Bool:
      return ncclUint8;
    case DType::I32:
      return ncclInt32;
    case DType::U32:
      return ncclUint32;
    case DType::I64:
      return ncclInt64;
    case DType::U64:
      return ncclUint64;
    default:
      fail(codes::kNcclType, fmt::format("NCCL does not combine {}", name(dtype)),
           {.location = {}, .node = "", .fix = "cast it to i32 or f32 first"});
  }
}

// Bools are bytes of 0 and 1.
ncclRedOp_t op_for(Monoid monoid) {
  switch (monoid) {
    case Monoid::Sum:
      return ncclSum;
    case Monoid::Prod:
      return ncclProd;
    case Monoid::Max:
    case Monoid::Or:
      return ncclMax;
    case Monoid::Min:
    case Monoid::And:
      return ncclMin;
  }
  return ncclSum;
}

class NcclPart : public Together {
 public:
  struct Seat {
    ncclComm_t comm = nullptr;
    size_t place = 0, count = 1;
  };
  NcclPart(std::shared_ptr<Communicators> comms, DeviceDriver& driver, std::vector<Seat> seats)
      : comms_(std::move(comms)), driver_(driver), seats_(std::move(seats)) {}

  void run(const CollectiveArguments& a) override {
    if (a.count == 0) return;
    comms_->refuse_if_aborted();
    const NcclApi& api = *nccl().api;
    const Seat& seat = seats_[a.what.axis];
    const auto stream = static_cast<CUstream>(driver_.main_stream());
    const size_t bytes = a.count * size_of(a.dtype), n = seat.count;
    const auto what = name(a.what.kind);
    switch (a.what.kind) {
      case CollectiveKind::AllReduce:
        return check(api.all_reduce(a.from, a.to, a.count, type_for_sums(a.dtype),
                                    op_for(a.what.monoid), seat.comm, stream),
                     what);
      case CollectiveKind::ReduceScatter:
        return check(api.reduce_scatter(a.from, a.to, a.count / n, type_for_sums(a.dtype),
                                        op_for(a.what.monoid), seat.comm, stream),
                     what);
      case CollectiveKind::AllGather:
        return check(api.all_gather(a.from, a.to, bytes, ncclInt8, seat.comm, stream), what);
      case CollectiveKind::BroadcastOver:
        return check(api.broadcast(a.from, a.to, bytes, ncclInt8, static_cast<int>(a.what.offset),
                                   seat.comm, stream),
                     what);
      case CollectiveKind::Permute: {
        const auto shift = static_cast<size_t>(a.what.offset);
        check(api.group_start(), what);
        const auto to = static_cast<int>((seat.place + shift) % n);
        const auto from = static_cast<int>((seat.place + n - shift) % n);
        check(api.send(a.from, bytes, ncclInt8, to, seat.comm, stream), what);
        check(api.recv(a.to, bytes, ncclInt8, from, seat.comm, stream), what);
        return check(api.group_end(), what);
      }
      case CollectiveKind::AllToAll: {
        const size_t block = bytes / n;
        check(api.group_start(), what);
        for (size_t k = 0; k < n; ++k) {
          const auto peer = static_cast<int>(k);
          check(api.send(a.from + k * block, block, ncclInt8, peer, seat.comm, stream), what);
          check(api.recv(a.to + k * block, block, ncclInt8, peer, seat.comm, stream), what);
        }
        return check(api.group_end(), what);
      }
    }
  }

  void give_up(const CapturedError& why) noexcept override { comms_->abort(why); }

 private:
  const std::shared_ptr<Communicators> comms_;
  DeviceDriver& driver_;
  const std::vector<Seat> seats_;  // along each of the program's axes
};

class NcclLinks : public DeviceLinks {
 public:
  NcclLinks(std::span<const MeshAxis> mesh, std::span<const Device> devices)
      : mesh_(mesh.begin(), mesh.end()), devices_(devices.begin(), devices.end()) {}

  std::vector<std::shared_ptr<Together>> begin(std::span<const MeshAxis> axes) override {
    const std::lock_guard lock(mutex_);
    if (!axes.empty() && (!comms_ || comms_->aborted()))
      comms_ = std::make_shared<Communicators>(mesh_, devices_);
    std::vector<std::shared_ptr<Together>> parts;
    for (size_t device = 0; device < devices_.size(); ++device) {
      std::vector<NcclPart::Seat> seats;
      for (const MeshAxis& axis : axes) {
        const auto k = static_cast<size_t>(std::ranges::find(mesh_, axis) - mesh_.begin());
        const auto [group, place] = comms_->seat(k, static_cast<int64_t>(device));
        seats.push_back({group->comms[place], place, group->comms.size()});
      }
      parts.push_back(std::make_shared<NcclPart>(comms_, Registry::get().driver(devices_[device]),
                                                 std::move(seats)));
    }
    return parts;
  }

 private:
  const std::vector<MeshAxis> mesh_;
  const std::vector<Device> devices_;
  std::mutex mutex_;
  std::shared_ptr<Communicators> comms_;
};

}  // namespace

}  // namespace cuda

std::unique_ptr<DeviceLinks> make_nccl_links(std::span<const MeshAxis> mesh,
                                             std::span<const Device> devices) {
  if (!cuda::nccl().api)
    fail(codes::kNoNccl, fmt::format("GPUs cannot work together here: {}", cuda::nccl().missing),
         {.location = {},
          .node = "",
          .fix = "each GPU alone works, and so do meshes of CPU devices"});
  return std::make_unique<cuda::NcclLinks>(mesh, devices);
}

}  // namespace braze
