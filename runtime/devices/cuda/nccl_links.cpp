// nccl_links.cpp — collectives between the GPUs of this process and those of other processes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "ir/graph/shards.h"
#include "ir/support/text.h"
#include "runtime/devices/cuda/cuda_driver.h"
#include "runtime/devices/cuda/nccl.h"
#include "runtime/devices/registry.h"
#include "runtime/profile/device_trace.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace cuda {

namespace {

std::string result_text(ncclResult_t result) {
  const auto name = [&]() -> std::string_view {
#define VALUE(type, value, number)                  \
  if constexpr (std::is_same_v<type, ncclResult_t>) \
    if (static_cast<unsigned>(result) == number) return #value;
#include "runtime/devices/cuda/nccl.def"
    return "an unknown error";
  }();
  return fmt::format("{} ({})", name, static_cast<unsigned>(result));
}

[[noreturn]] void fail_nccl(const std::string& message) {
  fail(codes::kNccl, fmt::format("NCCL: {}", message),
       {.location = {}, .node = "", .fix = "NCCL_DEBUG=WARN makes NCCL say more"});
}

void check(ncclResult_t result, std::string_view what) {
  if (result != ncclSuccess) fail_nccl(fmt::format("{} fails: {}", what, result_text(result)));
}

/// The communicators of one group along one axis, one for each device.
struct GroupComms {
  std::vector<int64_t> members;   // devices of the mesh
  std::vector<ncclComm_t> comms;  // null for devices of other processes
};

/// The communicators of a mesh. They live until one part of a call fails. A kernel that waits for
/// that part would wait for ever, so all communicators are then aborted, and the next call makes
/// new ones. They are not destroyed at the end of the process, because NCCL may have been shut down
/// before.
class Communicators {
 public:
  Communicators(std::span<const MeshAxis> mesh, std::span<const Device> devices, Ranks* ranks) {
    // All ranks make the communicators of a mesh in the same call, so they count them in the same
    // way.
    static uint64_t made = 0;
    if (ranks) ++made;
    for (size_t k = 0; k < mesh.size(); ++k) {
      const MeshAxis& axis = mesh[k];
      std::vector<GroupComms>& groups = by_axis_.emplace_back();
      for (int64_t device = 0; device < static_cast<int64_t>(devices.size()); ++device) {
        GroupComms group{group_of(mesh, axis.name, device), {}};
        if (group.members[0] != device) continue;
        group.comms.resize(group.members.size());
        if (ranks)
          join(group, devices, *ranks, fmt::format("nccl-{}-{}-{}", made, k, device), axis.name);
        else
          make(group, devices, axis.name);
        groups.push_back(std::move(group));
      }
    }
  }

  /// The group of a device along an axis, and its place in the group.
  std::pair<const GroupComms*, size_t> seat(size_t axis, int64_t device) const {
    for (const GroupComms& group : by_axis_[axis]) {
      const auto found = std::ranges::find(group.members, device);
      if (found != group.members.end())
        return {&group, static_cast<size_t>(found - group.members.begin())};
    }
    return {};
  }

  /// Frees the communicators, even while other threads wait in one of their calls, which then
  /// fails.
  void abort(const CapturedError& why) noexcept {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    why_ = why;
    for (const auto& groups : by_axis_)
      for (const GroupComms& group : groups)
        for (const ncclComm_t comm : group.comms)
          if (comm) nccl().api->comm_abort(comm);
  }
  bool aborted() {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }
  /// Throws the reason if the communicators were aborted, so that they must not be called any more.
  void refuse_if_aborted() {
    const std::lock_guard lock(mutex_);
    if (aborted_) why_.rethrow();
  }
  /// Throws if NCCL has found a failure of devices of other processes.
  void refuse_if_broken() {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    for (const auto& groups : by_axis_)
      for (const GroupComms& group : groups)
        for (const ncclComm_t comm : group.comms) {
          ncclResult_t found = ncclSuccess;
          if (!comm || nccl().api->comm_get_async_error(comm, &found) != ncclSuccess) continue;
          if (found != ncclSuccess && found != ncclInProgress)
            fail_nccl(fmt::format("a GPU of another process has failed, or is out of reach: {}",
                                  result_text(found)));
        }
  }

 private:
  /// Makes the communicators of a group whose devices all belong to this process.
  static void make(GroupComms& group, std::span<const Device> devices, const std::string& axis) {
    std::vector<int> indices;
    for (const int64_t member : group.members)
      indices.push_back(devices[static_cast<size_t>(member)].index());
    check(nccl().api->comm_init_all(group.comms.data(), static_cast<int>(indices.size()),
                                    indices.data()),
          fmt::format("connecting {} GPUs along {}", indices.size(), axis));
  }

  /// Makes those of a group of several processes. The process of the group's first device publishes
  /// the id of the group under `name`. Throws if the ranks fail meanwhile.
  static void join(GroupComms& group, std::span<const Device> devices, Ranks& ranks,
                   const std::string& name, const std::string& axis) {
    const NcclApi& api = *nccl().api;
    const int64_t share = static_cast<int64_t>(devices.size()) / ranks.count();
    const auto rank_of = [&](int64_t device) { return static_cast<int>(device / share); };
    const auto is_here = [&](int64_t device) { return rank_of(device) == ranks.rank(); };
    if (std::ranges::none_of(group.members, is_here)) return;
    const std::string text = ranks.share(name, rank_of(group.members[0]), [&] {
      ncclUniqueId made{};
      check(api.get_unique_id(&made), "making the id of a group");
      return std::string(made.internal, sizeof made.internal);
    });
    ncclUniqueId id{};
    std::copy_n(text.data(), std::min(text.size(), sizeof id.internal), id.internal);
    const std::string what = fmt::format("connecting {} GPUs along {} of {} processes",
                                         group.members.size(), axis, ranks.count());
    const auto joining = std::make_shared<Joining>();
    joining->comms.resize(group.members.size());
    std::vector<std::pair<size_t, Device>> here;  // place and device
    for (size_t place = 0; place < group.members.size(); ++place)
      if (is_here(group.members[place]))
        here.emplace_back(place, devices[static_cast<size_t>(group.members[place])]);
    run_aside([joining, here, id, what] {
      try {
        connect(joining->comms, here, id, what);
      } catch (...) {
        joining->error = CapturedError::current();
      }
      const std::lock_guard lock(joining->mutex);
      joining->done = true;
      if (joining->left) joining->abort();
    });
    try {
      while (!joining->is_done()) ranks.pause(std::chrono::milliseconds(1));
    } catch (...) {
      const std::lock_guard lock(joining->mutex);
      joining->left = true;
      if (joining->done) joining->abort();
      throw;
    }
    joining->error.rethrow();
    group.comms = joining->comms;
  }

  /// What a thread that connects GPUs of several processes shares with the one that waits for it.
  /// NCCL waits without a bound for all of them, so if one of the processes fails, nobody waits for
  /// this thread any more.
  struct Joining {
    std::vector<ncclComm_t> comms;
    CapturedError error;
    std::mutex mutex;
    bool done = false, left = false;

    bool is_done() {
      const std::lock_guard lock(mutex);
      return done;
    }
    void abort() const {
      for (const ncclComm_t comm : comms)
        if (comm && !error) nccl().api->comm_abort(comm);
    }
  };

  template <class Function>
  static void run_aside(Function&& function) {
    try {
      std::thread(function).detach();
    } catch (const std::system_error&) {
      function();  // there are no threads
    }
  }

  static void connect(std::vector<ncclComm_t>& comms,
                      std::span<const std::pair<size_t, Device>> here, const ncclUniqueId& id,
                      const std::string& what) {
    const NcclApi& api = *nccl().api;
    check(api.group_start(), what);
    for (const auto& [place, device] : here) {
      const auto& driver = static_cast<CudaDriver&>(Registry::get().driver(device));
      const CudaContext::Scope scope(driver.context());
      check(api.comm_init_rank(&comms[place], static_cast<int>(comms.size()), id,
                               static_cast<int>(place)),
            what);
    }
    check(api.group_end(), what);
  }

  std::vector<std::vector<GroupComms>> by_axis_;  // of the mesh
  std::mutex mutex_;
  bool aborted_ = false;
  CapturedError why_;
};

/// Confirms that the communicators were not aborted before the end.
class NcclVerdict : public Verdict {
 public:
  explicit NcclVerdict(std::shared_ptr<Communicators> comms) : comms_(std::move(comms)) {}
  void confirm() override {
    if (settled_) return;
    comms_->refuse_if_aborted();
    settled_ = true;
  }

 private:
  const std::shared_ptr<Communicators> comms_;
  std::atomic<bool> settled_{false};
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

// NCCL's operation for a monoid. Bools are bytes of 0 and 1.
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

/// NCCL does all calls of this thread, up to `end`, together.
class Group {
 public:
  explicit Group(bool several) {
    if (several) check(nccl().api->group_start(), "a group");
    open_ = several;
  }
  ~Group() {
    if (open_) nccl().api->group_end();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    if (std::exchange(open_, false)) check(nccl().api->group_end(), "a group");
  }

 private:
  bool open_ = false;
};

/// One device's part of a collective, in the queue of its collectives. It comes after the work that
/// makes the operand, and runs at the same time as later work.
class NcclPart : public Together {
 public:
  struct Seat {
    ncclComm_t comm = nullptr;
    size_t place = 0, count = 1;
  };
  NcclPart(std::shared_ptr<Communicators> comms, CudaDriver& driver, StreamRef queue,
           std::vector<Seat> seats, Ranks* ranks)
      : comms_(std::move(comms)),
        driver_(driver),
        queue_(std::move(queue)),
        seats_(std::move(seats)),
        ranks_(ranks) {}

  std::shared_ptr<Fence> run(std::span<const CollectiveArguments> bunch) override {
    uint64_t bytes = 0;
    for (const CollectiveArguments& a : bunch) bytes += a.count * size_of(a.dtype);
    if (bytes == 0) return nullptr;
    comms_->refuse_if_aborted();
    driver_.wait_for(queue_.get(), *driver_.fence(nullptr));
    const auto stream = static_cast<CUstream>(queue_->native());
    try {
      const DeviceSpan span(driver_, Lane::Together, name(bunch[0].what.kind), bytes,
                            [&] { return driver_.start_stopwatch(queue_.get()); });
      Group group(bunch.size() > 1);
      for (const CollectiveArguments& a : bunch)
        if (a.count > 0) issue(a, seats_[a.what.axis], stream);
      group.end();
    } catch (...) {
      // Another part may have failed at the same time and freed the communicators. Then its error
      // is the reason.
      comms_->refuse_if_aborted();
      throw;
    }
    return driver_.fence(queue_.get());
  }

  std::shared_ptr<Verdict> verdict() override {
    // A failure in this process is found before the results are returned.
    if (!ranks_ || !comms_) return nullptr;
    return std::make_shared<NcclVerdict>(comms_);
  }

  void give_up(const CapturedError& why) noexcept override {
    if (ranks_) ranks_->fail_all(why);
    if (comms_) comms_->abort(why);
  }

 private:
  static void issue(const CollectiveArguments& a, const Seat& seat, CUstream stream) {
    const NcclApi& api = *nccl().api;
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

  const std::shared_ptr<Communicators> comms_;
  CudaDriver& driver_;
  const StreamRef queue_;
  const std::vector<Seat> seats_;  // along each of the program's axes
  Ranks* const ranks_;             // null: all GPUs belong to this process
};

class NcclLinks : public DeviceLinks {
 public:
  NcclLinks(std::span<const MeshAxis> mesh, std::span<const Device> devices, Ranks* ranks)
      : mesh_(mesh.begin(), mesh.end()),
        devices_(devices.begin(), devices.end()),
        ranks_(ranks),
        queues_(devices.size()) {}
  ~NcclLinks() override {
    if (watched_) ranks_->forget(*watched_);
  }

  std::vector<std::shared_ptr<Together>> begin(std::span<const MeshAxis> axes) override {
    const std::lock_guard lock(mutex_);
    if (!axes.empty() && (!comms_ || comms_->aborted())) connect();
    std::vector<std::shared_ptr<Together>> parts(devices_.size());
    for (size_t device = 0; device < devices_.size(); ++device) {
      if (!is_here(device)) continue;
      std::vector<NcclPart::Seat> seats;
      for (const MeshAxis& axis : axes) {
        const auto k = static_cast<size_t>(std::ranges::find(mesh_, axis) - mesh_.begin());
        const auto [group, place] = comms_->seat(k, static_cast<int64_t>(device));
        seats.push_back({group->comms[place], place, group->comms.size()});
      }
      auto& driver = static_cast<CudaDriver&>(Registry::get().driver(devices_[device]));
      if (!queues_[device]) queues_[device] = driver.make_stream(std::nullopt);
      parts[device] =
          std::make_shared<NcclPart>(comms_, driver, queues_[device], std::move(seats), ranks_);
    }
    return parts;
  }

 private:
  bool is_here(size_t device) const {
    if (!ranks_) return true;
    const size_t share = devices_.size() / static_cast<size_t>(ranks_->count());
    return device / share == static_cast<size_t>(ranks_->rank());
  }

  void connect() {
    comms_ = std::make_shared<Communicators>(mesh_, devices_, ranks_);
    if (!ranks_ || watched_) return;
    watched_ =
        ranks_->watch({.end = [comms = comms_](const CapturedError& why) { comms->abort(why); },
                       .look = [comms = comms_] { comms->refuse_if_broken(); }});
    try {
      ranks_->check();  // another rank may have failed just before
    } catch (const Error&) {
      comms_->abort(CapturedError::current());
      throw;
    }
  }

  const std::vector<MeshAxis> mesh_;
  const std::vector<Device> devices_;
  Ranks* const ranks_;  // null: all GPUs belong to this process
  std::mutex mutex_;
  std::vector<StreamRef> queues_;  // of each device's collectives
  std::shared_ptr<Communicators> comms_;
  std::optional<Ranks::Handle> watched_;
};

}  // namespace

}  // namespace cuda

std::unique_ptr<DeviceLinks> make_nccl_links(std::span<const MeshAxis> mesh,
                                             std::span<const Device> devices, Ranks* ranks) {
  if (!cuda::nccl().api)
    fail(codes::kNoNccl, fmt::format("GPUs cannot work together here: {}", cuda::nccl().missing),
         {.location = {},
          .node = "",
          .fix = "each GPU alone works, and so do meshes of CPU devices"});
  return std::make_unique<cuda::NcclLinks>(mesh, devices, ranks);
}

}  // namespace braze
