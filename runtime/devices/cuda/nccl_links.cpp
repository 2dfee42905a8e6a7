// nccl_links.cpp — collectives between the GPUs of this process and those of other processes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "ir/graph/shards.h"
#include "ir/support/fork.h"
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

/// NCCL does all calls of this thread, up to `end`, together. If one of them throws, the group ends
/// all the same: in a group that stays open, no later call of the thread would ever begin.
class Group {
 public:
  explicit Group(std::string_view what, bool several = true) : what_(what) {
    if (several) check(nccl().api->group_start(), what_);
    open_ = several;
  }
  ~Group() {
    if (open_) nccl().api->group_end();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    if (std::exchange(open_, false)) check(nccl().api->group_end(), what_);
  }

 private:
  const std::string_view what_;
  bool open_ = false;
};

/// Whether the process ends, so that NCCL may have been shut down. `note_nccl` was called before.
std::atomic<bool> is_ending{false};

/// Must be called when NCCL is open, so that what it does at the end of the process comes later.
void note_nccl() {
  static const int registered = std::atexit([] { is_ending = true; });
  static_cast<void>(registered);
}

/// The queue of a GPU's collectives, of all meshes. One queue keeps the collectives of different
/// communicators in the order in which they were submitted, which is the same on all GPUs. It is
/// urgent: a collective that begins late keeps the other GPUs waiting.
struct LinkQueue {
  explicit LinkQueue(CudaDriver& of) : driver(of), stream(of.make_urgent_stream()) {}

  CudaDriver& driver;
  const StreamRef stream;
};

LinkQueue& queue_of(const Device& device) {
  static auto& all = *new std::map<int, std::unique_ptr<LinkQueue>>;
  std::unique_ptr<LinkQueue>& queue = all[device.index()];
  if (!queue)
    queue = std::make_unique<LinkQueue>(static_cast<CudaDriver&>(Registry::get().driver(device)));
  return *queue;
}

/// Waits until the GPU has passed the fence. Returns false if it is lost.
bool passes(const std::shared_ptr<Fence>& fence) noexcept {
  try {
    if (fence) fence->wait();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// The communicators of one group of GPUs, one for each of them that belongs to this process. All
/// meshes with this group share them. They live until a part of a call fails: a kernel that waits
/// for that part would wait for ever, so they are aborted, and the next call makes new ones.
class GroupComms {
 public:
  GroupComms(size_t count, Ranks* ranks)
      : ranks_(ranks), comms_(count), last_(count), settled_(count) {}
  GroupComms(const GroupComms&) = delete;
  GroupComms& operator=(const GroupComms&) = delete;
  /// They are freed with the last mesh that has the group.
  ~GroupComms() {
    if (aborted_ || is_ending || is_forked()) return;
    bool lost = false;
    for (const auto& fence : last_) lost = !passes(fence) || lost;
    const NcclApi& api = *nccl().api;
    for_each([&](ncclComm_t comm) { lost ? api.comm_abort(comm) : api.comm_destroy(comm); });
  }

  /// That of a device, by its place in the group, for collectives of at most `blocks` blocks (0: no
  /// bound). If there is none with the bound, it is the one without.
  ncclComm_t at(size_t place, int64_t blocks) const {
    const auto found = bounded_.find(blocks);
    return found == bounded_.end() ? comms_[place] : found->second[place];
  }
  size_t size() const { return comms_.size(); }

  /// Begins a call: all parts of the calls before have been submitted, or have given up.
  void settle() {
    if (!ranks_) settled_ = last_;
  }
  /// Notes the point in a device's queue after its last collective so far.
  void note(size_t place, const std::shared_ptr<Fence>& fence) {
    if (!ranks_) last_[place] = fence;
  }

  /// A thread that calls the communicators. Throws the reason if they were aborted.
  class Caller {
   public:
    explicit Caller(GroupComms& group) : group_(group) {
      ++group_.callers_;
      if (!group_.aborted_) return;
      --group_.callers_;
      group_.why_.rethrow();
    }
    ~Caller() { --group_.callers_; }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    GroupComms& group_;
  };

  /// Frees the communicators, even while other threads wait in one of their calls, which then
  /// fails.
  void abort(const CapturedError& why) noexcept {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    // In one process, all parts of earlier calls are in the queues, so they end. Their results stay
    // valid. Between processes, a verdict tells their readers.
    if (!ranks_)
      for (const auto& fence : settled_) passes(fence);
    why_ = why;
    aborted_ = true;
    // A thread that has just begun a call must not find freed memory. But it may wait in that call
    // for a part that never comes, and then only the abort ends it.
    for (int wait = 0; callers_ > 0 && wait < 100; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for_each([](ncclComm_t comm) { nccl().api->comm_abort(comm); });
  }
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  /// Throws the reason if the communicators were aborted, so that they must not be called any more.
  void refuse_if_aborted() const {
    if (aborted()) why_.rethrow();
  }
  /// Throws if NCCL has found a failure of devices of other processes.
  void refuse_if_broken() {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    for_each([](ncclComm_t comm) {
      ncclResult_t found = ncclSuccess;
      if (nccl().api->comm_get_async_error(comm, &found) != ncclSuccess) return;
      if (found != ncclSuccess && found != ncclInProgress)
        fail_nccl(fmt::format("a GPU of another process has failed, or is out of reach: {}",
                              result_text(found)));
    });
  }

  /// Makes the communicators of a group whose devices all belong to this process.
  void make(std::span<const int64_t> members, std::span<const Device> devices,
            const std::string& axis) {
    std::vector<int> indices;
    for (const int64_t member : members) {
      indices.push_back(devices[static_cast<size_t>(member)].index());
    }
    std::vector<ncclComm_t> made(indices.size());
    check(nccl().api->comm_init_all(made.data(), static_cast<int>(indices.size()), indices.data()),
          fmt::format("connecting {} GPUs along {}", indices.size(), axis));
    comms_ = made;
  }

  /// Makes those of a group of several processes. The process of the group's first device publishes
  /// the id of the group under `name`. Throws if the ranks fail meanwhile.
  void join(std::span<const int64_t> members, std::span<const Device> devices,
            const std::string& name, const std::string& axis) {
    const NcclApi& api = *nccl().api;
    const int64_t share = static_cast<int64_t>(devices.size()) / ranks_->count();
    const auto rank_of = [&](int64_t device) { return static_cast<int>(device / share); };
    const auto is_here = [&](int64_t device) { return rank_of(device) == ranks_->rank(); };
    if (std::ranges::none_of(members, is_here)) return;
    const std::string text = ranks_->share(name, rank_of(members[0]), [&] {
      ncclUniqueId made{};
      check(api.get_unique_id(&made), "making the id of a group");
      return std::string(made.internal, sizeof made.internal);
    });
    ncclUniqueId id{};
    std::copy_n(text.data(), std::min(text.size(), sizeof id.internal), id.internal);
    const std::string what = fmt::format("connecting {} GPUs along {} of {} processes",
                                         members.size(), axis, ranks_->count());
    std::vector<std::pair<size_t, Device>> here;  // place and device
    for (size_t place = 0; place < members.size(); ++place)
      if (is_here(members[place]))
        here.emplace_back(place, devices[static_cast<size_t>(members[place])]);
    comms_ = await([here, id, what, count = members.size()] {
      std::vector<ncclComm_t> made(count);
      connect(made, here, id, what);
      return made;
    });
  }

  /// Whether `bound` has something to do. NCCL may be too old for it.
  bool lacks(int64_t blocks) const {
    return nccl().api->comm_split && !bounded_.contains(blocks) &&
           std::ranges::any_of(comms_, [](ncclComm_t comm) { return comm != nullptr; });
  }
  /// Makes further communicators of the group, whose collectives have at most so many blocks. All
  /// processes of the group call it in the same call. Nothing may be under way in the group.
  void bound(int64_t blocks) {
    if (!lacks(blocks)) return;
    const auto make = [comms = comms_, blocks] { return split(comms, blocks); };
    std::vector<ncclComm_t> made = ranks_ ? await(make) : make();
    const std::lock_guard lock(mutex_);
    if (!aborted_) {
      bounded_.emplace(blocks, std::move(made));
      return;
    }
    for (const ncclComm_t comm : made)
      if (comm) nccl().api->comm_abort(comm);
  }

 private:
  /// Calls `make` in another thread, because NCCL waits there without a bound for other processes.
  /// Throws if the ranks fail meanwhile; then nobody waits for that thread any more.
  std::vector<ncclComm_t> await(const std::function<std::vector<ncclComm_t>()>& make) {
    const auto joining = std::make_shared<Joining>();
    run_aside([joining, make] {
      try {
        joining->comms = make();
      } catch (...) {
        joining->error = CapturedError::current();
      }
      const std::lock_guard lock(joining->mutex);
      joining->done = true;
      if (joining->left) joining->abort();
    });
    try {
      while (!joining->is_done()) ranks_->pause(std::chrono::milliseconds(1));
    } catch (...) {
      const std::lock_guard lock(joining->mutex);
      joining->left = true;
      if (joining->done) joining->abort();
      throw;
    }
    joining->error.rethrow();
    return joining->comms;
  }

  /// Communicators of the same devices.
  static std::vector<ncclComm_t> split(std::span<const ncclComm_t> comms, int64_t blocks) {
    const NcclApi& api = *nccl().api;
    const std::string what = fmt::format("making communicators of {} blocks", blocks);
    ncclConfig_t config;
    config.maxCTAs = static_cast<int>(blocks);
    std::vector<ncclComm_t> made(comms.size());
    Group group(what);
    for (size_t place = 0; place < comms.size(); ++place)
      if (comms[place])
        check(api.comm_split(comms[place], 0, static_cast<int>(place), &made[place], &config),
              what);
    group.end();
    return made;
  }

  template <class Function>
  void for_each(const Function& function) const {
    const auto each = [&](std::span<const ncclComm_t> comms) {
      for (const ncclComm_t comm : comms)
        if (comm) function(comm);
    };
    for (const auto& [blocks, comms] : bounded_) each(comms);
    each(comms_);
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
    Group group(what);
    for (const auto& [place, device] : here) {
      const auto& driver = static_cast<CudaDriver&>(Registry::get().driver(device));
      const CudaContext::Scope scope(driver.context());
      check(api.comm_init_rank(&comms[place], static_cast<int>(comms.size()), id,
                               static_cast<int>(place)),
            what);
    }
    group.end();
  }

  Ranks* const ranks_;             // null: all GPUs belong to this process
  std::vector<ncclComm_t> comms_;  // by place; null for devices of other processes
  // The same for collectives with a bound, by that bound. Changed under the mutex.
  std::map<int64_t, std::vector<ncclComm_t>> bounded_;
  // If all devices belong to this process, by place: after the collectives so far, and after those
  // of calls before the present one.
  std::vector<std::shared_ptr<Fence>> last_, settled_;
  std::mutex mutex_;
  std::atomic<bool> aborted_{false};
  CapturedError why_;  // set before `aborted_`
  std::atomic<int> callers_{0};
};

/// The communicators of a mesh, with a group for each device along each axis.
class Communicators {
 public:
  Communicators(std::span<const MeshAxis> mesh, std::span<const Device> devices, Ranks* ranks) {
    note_nccl();
    // All ranks make the communicators of a mesh in the same call, so they count them in the same
    // way.
    static uint64_t made = 0;
    if (ranks) ++made;
    for (size_t k = 0; k < mesh.size(); ++k) {
      std::vector<Seat>& seats = by_axis_.emplace_back(devices.size());
      for (int64_t device = 0; device < static_cast<int64_t>(devices.size()); ++device) {
        const std::vector<int64_t> members = group_of(mesh, mesh[k].name, device);
        if (members[0] != device) continue;
        groups_.push_back(group(members, devices, ranks,
                                fmt::format("nccl-{}-{}-{}", made, k, device), mesh[k].name));
        for (size_t place = 0; place < members.size(); ++place)
          seats[static_cast<size_t>(members[place])] = {groups_.back().get(), place};
      }
    }
  }

  struct Seat {
    GroupComms* group = nullptr;
    size_t place = 0;
    ncclComm_t comm(int64_t blocks) const { return group->at(place, blocks); }
    size_t count() const { return group->size(); }
  };
  /// Of a device, in its group along an axis of the mesh.
  const Seat& seat(size_t axis, size_t device) const { return by_axis_[axis][device]; }

  void abort(const CapturedError& why) noexcept {
    for (const auto& group : groups_) group->abort(why);
  }
  void settle() {
    for (const auto& group : groups_) group->settle();
  }
  bool lacks(int64_t blocks) const {
    return std::ranges::any_of(groups_, [&](const auto& group) { return group->lacks(blocks); });
  }
  /// Makes communicators for collectives of at most so many blocks. Nothing may be under way.
  void bound(int64_t blocks) {
    for (const auto& group : groups_) group->bound(blocks);
  }
  bool aborted() const {
    return std::ranges::any_of(groups_, [](const auto& group) { return group->aborted(); });
  }
  void refuse_if_aborted() const {
    for (const auto& group : groups_) group->refuse_if_aborted();
  }
  void refuse_if_broken() const {
    for (const auto& group : groups_) group->refuse_if_broken();
  }

 private:
  /// The communicators of a group, which may be known from another mesh.
  static std::shared_ptr<GroupComms> group(std::span<const int64_t> members,
                                           std::span<const Device> devices, Ranks* ranks,
                                           const std::string& name, const std::string& axis) {
    // By the GPUs of this process. Over several processes, by the places among all devices, which
    // mean the same everywhere if each process has the same number of them.
    static auto& known = *new std::map<std::string, std::weak_ptr<GroupComms>>;
    // A process cannot know when another drops its last mesh with a group, so those of several
    // processes are kept.
    static auto& kept = *new std::vector<std::shared_ptr<GroupComms>>;
    std::string key = ranks ? fmt::format("{} places:", devices.size()) : "devices:";
    for (const int64_t member : members)
      key += fmt::format(" {}", ranks ? member : devices[static_cast<size_t>(member)].index());
    std::erase_if(known, [](const auto& one) { return one.second.expired(); });
    if (const auto found = known[key].lock(); found && !found->aborted()) return found;
    auto made = std::make_shared<GroupComms>(members.size(), ranks);
    if (ranks) {
      made->join(members, devices, name, axis);
      kept.push_back(made);
    } else {
      made->make(members, devices, axis);
    }
    known[key] = made;
    return made;
  }

  std::vector<std::shared_ptr<GroupComms>> groups_;
  std::vector<std::vector<Seat>> by_axis_;  // by device
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

std::optional<ncclDataType_t> type_that_sums(DType dtype) {
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
      return std::nullopt;
  }
}

ncclDataType_t type_for_sums(DType dtype) {
  const auto type = type_that_sums(dtype);
  BRAZE_CHECK(type, "a program that NCCL cannot run was loaded");
  return *type;
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

/// One device's part of a collective, in the queue of its collectives. It comes after the work that
/// makes the operand, and runs at the same time as later work.
class NcclPart : public Together {
 public:
  using Seat = Communicators::Seat;
  NcclPart(std::shared_ptr<Communicators> comms, LinkQueue& queue, std::vector<Seat> seats,
           Ranks* ranks)
      : comms_(std::move(comms)), queue_(queue), seats_(std::move(seats)), ranks_(ranks) {}

  void submit(const std::function<void()>& body) override {
    const CudaContext::Scope scope(queue_.driver.context());
    body();
  }

  std::shared_ptr<Fence> run(std::span<const CollectiveArguments> bunch) override {
    uint64_t bytes = 0;
    for (const CollectiveArguments& a : bunch) bytes += a.count * size_of(a.dtype);
    if (bytes == 0) return nullptr;
    comms_->refuse_if_aborted();
    CudaDriver& driver = queue_.driver;
    DeviceStream* const stream = queue_.stream.get();
    driver.wait_for(stream, *driver.fence(nullptr));
    const Seat& seat = seats_[bunch[0].what.axis];
    try {
      const GroupComms::Caller caller(*seat.group);
      const DeviceSpan span(driver, Lane::Together, name(bunch[0].what.kind), bytes,
                            [&] { return driver.start_stopwatch(stream); });
      Group group("a group", bunch.size() > 1);
      for (const CollectiveArguments& a : bunch)
        if (a.count > 0) issue(a, seat, static_cast<CUstream>(stream->native()));
      group.end();
    } catch (...) {
      // Another part may have failed at the same time and freed the communicators. Then its error
      // is the reason.
      comms_->refuse_if_aborted();
      throw;
    }
    auto fence = driver.fence(stream);
    seat.group->note(seat.place, fence);
    return fence;
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
    const size_t bytes = a.count * size_of(a.dtype), n = seat.count();
    const ncclComm_t comm = seat.comm(a.what.blocks);
    const auto what = name(a.what.kind);
    switch (a.what.kind) {
      case CollectiveKind::AllReduce:
        return check(api.all_reduce(a.from, a.to, a.count, type_for_sums(a.dtype),
                                    op_for(a.what.monoid), comm, stream),
                     what);
      case CollectiveKind::ReduceScatter:
        return check(api.reduce_scatter(a.from, a.to, a.count / n, type_for_sums(a.dtype),
                                        op_for(a.what.monoid), comm, stream),
                     what);
      case CollectiveKind::AllGather:
        return check(api.all_gather(a.from, a.to, bytes, ncclInt8, comm, stream), what);
      case CollectiveKind::BroadcastOver:
        return check(api.broadcast(a.from, a.to, bytes, ncclInt8, static_cast<int>(a.what.offset),
                                   comm, stream),
                     what);
      case CollectiveKind::Permute: {
        const auto shift = static_cast<size_t>(a.what.offset);
        Group group(what);
        const auto to = static_cast<int>((seat.place + shift) % n);
        const auto from = static_cast<int>((seat.place + n - shift) % n);
        check(api.send(a.from, bytes, ncclInt8, to, comm, stream), what);
        check(api.recv(a.to, bytes, ncclInt8, from, comm, stream), what);
        return group.end();
      }
      case CollectiveKind::AllToAll: {
        const size_t block = bytes / n;
        Group group(what);
        for (size_t k = 0; k < n; ++k) {
          const auto peer = static_cast<int>(k);
          check(api.send(a.from + k * block, block, ncclInt8, peer, comm, stream), what);
          check(api.recv(a.to + k * block, block, ncclInt8, peer, comm, stream), what);
        }
        return group.end();
      }
    }
  }

  const std::shared_ptr<Communicators> comms_;
  LinkQueue& queue_;
  const std::vector<Seat> seats_;  // along each of the program's axes
  Ranks* const ranks_;             // null: all GPUs belong to this process
};

class NcclLinks : public DeviceLinks {
 public:
  NcclLinks(std::span<const MeshAxis> mesh, std::span<const Device> devices, Ranks* ranks)
      : mesh_(mesh.begin(), mesh.end()), devices_(devices.begin(), devices.end()), ranks_(ranks) {
    for (size_t device = 0; device < devices_.size(); ++device)
      queues_.push_back(is_here(device) ? &queue_of(devices_[device]) : nullptr);
  }
  ~NcclLinks() override {
    if (watched_) ranks_->forget(*watched_);
  }

  std::vector<std::shared_ptr<Together>> begin(std::span<const MeshAxis> axes,
                                               std::span<const int64_t> bounds) override {
    if (!axes.empty() && (!comms_ || comms_->aborted())) connect();
    for (const int64_t blocks : bounds) {
      if (!comms_->lacks(blocks)) continue;
      for (LinkQueue* const queue : queues_)
        if (queue) queue->driver.fence(queue->stream.get())->wait();
      comms_->bound(blocks);
    }
    if (comms_) comms_->settle();
    for (const auto& [of, parts] : parts_)
      if (std::ranges::equal(of, axes)) return parts;
    std::vector<std::shared_ptr<Together>> parts(devices_.size());
    for (size_t device = 0; device < devices_.size(); ++device) {
      if (!queues_[device]) continue;
      std::vector<NcclPart::Seat> seats;
      for (const MeshAxis& axis : axes) {
        const auto k = static_cast<size_t>(std::ranges::find(mesh_, axis) - mesh_.begin());
        seats.push_back(comms_->seat(k, device));
      }
      parts[device] =
          std::make_shared<NcclPart>(comms_, *queues_[device], std::move(seats), ranks_);
    }
    parts_.emplace_back(std::vector<MeshAxis>(axes.begin(), axes.end()), parts);
    return parts;
  }

 private:
  bool is_here(size_t device) const {
    if (!ranks_) return true;
    const size_t share = devices_.size() / static_cast<size_t>(ranks_->count());
    return device / share == static_cast<size_t>(ranks_->rank());
  }

  void connect() {
    parts_.clear();
    comms_.reset();
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
  Ranks* const ranks_;              // null: all GPUs belong to this process
  std::vector<LinkQueue*> queues_;  // by device; null for those of other processes
  std::shared_ptr<Communicators> comms_;
  // The parts of calls, by the axes of their programs.
  std::vector<std::pair<std::vector<MeshAxis>, std::vector<std::shared_ptr<Together>>>> parts_;
  std::optional<Ranks::Handle> watched_;
};

}  // namespace

bool nccl_combines(DType dtype) { return type_that_sums(dtype).has_value(); }

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
