#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "braze/half.h"
#include "ir/graph/shards.h"
#include "ir/ops/machine_semantics.h"
#include "ir/support/condition_variable.h"
#include "ir/support/text.h"
#include "runtime/mesh/together.h"
#include "runtime/ranks/mpi.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace codes {
inline constexpr Code kPeerFailed{"peer-failed", ErrorKind::Device,
                                  "Another device of the mesh failed during a call."};
}  // namespace codes

namespace {

/// The devices of one group along one axis, in one call.
struct Group {
  // For each member of this process: the collectives that it does now.
  std::vector<std::span<const CollectiveArguments>> members;
  size_t members_here = 0;
  size_t arrived = 0;
  uint64_t turns = 0;  // how many times all members have arrived
};

/// The state that all parts of a call share.
struct Meeting {
  std::mutex mutex;
  ConditionVariable changed;
  CapturedError failure;
  std::string failed;  // the device that failed; empty if none has
  std::vector<Group> groups;

  /// Blocks until all members of the group have arrived. From then on they use each other's memory.
  /// Throws if a part of the call has failed; then no member of the group begins.
  void begin_turn(Group& group) {
    std::unique_lock lock(mutex);
    refuse_if_failed();
    if (arrive(group)) return;
    const uint64_t turn = group.turns;
    changed.wait(lock, [&] { return group.turns != turn || !failed.empty(); });
    if (group.turns == turn) refuse_if_failed();
  }

  /// Blocks until all members that began have arrived again, so that none of them frees memory that
  /// another one still uses. A failure changes nothing about that.
  void end_turn(Group& group) {
    std::unique_lock lock(mutex);
    if (arrive(group)) return;
    const uint64_t turn = group.turns;
    changed.wait(lock, [&] { return group.turns != turn; });
  }

  /// Whether this member is the last one of its turn.
  bool arrive(Group& group) {
    if (++group.arrived < group.members_here) return false;
    group.arrived = 0;
    ++group.turns;
    changed.notify_all();
    return true;
  }

  void give_up(const std::string& device, const CapturedError& why) noexcept {
    const std::lock_guard lock(mutex);
    if (!failed.empty()) return;
    failed = device;
    failure = why;
    changed.notify_all();
  }

  void refuse_if_failed() const {
    if (failed.empty()) return;
    std::string why = "it never began";
    try {
      failure.rethrow();
    } catch (const std::exception& error) {
      why = error.what();
    }
    fail(codes::kPeerFailed, fmt::format("the call failed on {}: {}", failed, why));
  }
};

// Combining. Sums and products of floats are accumulated in the same way as reductions, in the
// order of the devices, and rounded once, so that every device has the same bits.

using Sources = std::span<const std::byte* const>;

template <class Element, class Total>
void combine_floats(bool is_sum, Sources sources, uint64_t count, std::byte* to) {
  // A block of totals stays in the cache while the sources are read one after the other.
  constexpr uint64_t kBlock = 1024;
  Total totals[kBlock];
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t n = std::min(kBlock, count - begin);
    for (size_t k = 0; k < sources.size(); ++k) {
      const Element* const x = reinterpret_cast<const Element*>(sources[k]) + begin;
      if (k == 0)
        for (uint64_t i = 0; i < n; ++i) totals[i] = static_cast<Total>(x[i]);
      else if (is_sum)
        for (uint64_t i = 0; i < n; ++i) totals[i] += static_cast<Total>(x[i]);
      else
        for (uint64_t i = 0; i < n; ++i) totals[i] *= static_cast<Total>(x[i]);
    }
    Element* const out = reinterpret_cast<Element*>(to) + begin;
    for (uint64_t i = 0; i < n; ++i) out[i] = static_cast<Element>(totals[i]);
  }
}

template <class Element>
void combine_bits(MachineFunction row, Sources sources, uint64_t count, std::byte* to) {
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t total = reinterpret_cast<const Element*>(sources[0])[i];
    for (size_t k = 1; k < sources.size(); ++k)
      total = row(total, reinterpret_cast<const Element*>(sources[k])[i], 0);
    reinterpret_cast<Element*>(to)[i] = static_cast<Element>(total);
  }
}

/// Combines `count` elements of all sources.
void combine(Monoid monoid, DType dtype, Sources sources, uint64_t count, std::byte* to) {
  const bool is_sum = monoid == Monoid::Sum;
  if (is_sum || monoid == Monoid::Prod) {
    switch (dtype) {
      case DType::F64:
        return combine_floats<double, double>(is_sum, sources, count, to);
      case DType::F32:
        return combine_floats<float, float>(is_sum, sources, count, to);
      case DType::F16:
        return combine_floats<float16, float>(is_sum, sources, count, to);
      case DType::BF16:
        return combine_floats<bfloat16, float>(is_sum, sources, count, to);
      default:
        break;
    }
  }
  const MachineFunction row = machine_function(info(monoid).combine, dtype, dtype);
  switch (size_of(dtype)) {
    case 1:
      return combine_bits<uint8_t>(row, sources, count, to);
    case 2:
      return combine_bits<uint16_t>(row, sources, count, to);
    case 4:
      return combine_bits<uint32_t>(row, sources, count, to);
    default:
      return combine_bits<uint64_t>(row, sources, count, to);
  }
}

/// A range of elements.
struct Range {
  uint64_t begin = 0, count = 0;
};

/// The range that device `to` of a group of `n` needs of the operand of device `from`.
Range needed(const Collective& what, uint64_t count, uint64_t n, uint64_t from, uint64_t to) {
  const Range all{0, count}, nothing{};
  switch (what.kind) {
    case CollectiveKind::AllReduce:  // each device combines a part of the elements for all
      return {count * to / n, count * (to + 1) / n - count * to / n};
    case CollectiveKind::AllGather:
      return all;
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
      return {count / n * to, count / n};
    case CollectiveKind::BroadcastOver:
      return from == static_cast<uint64_t>(what.offset) ? all : nothing;
    case CollectiveKind::Permute:
      return (from + static_cast<uint64_t>(what.offset)) % n == to ? all : nothing;
  }
  return nothing;
}

bool combines(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}

/// For a collective that combines nothing: the element of the result at which this range begins.
uint64_t goes_to(const Collective& what, uint64_t count, uint64_t n, uint64_t from) {
  if (what.kind == CollectiveKind::AllGather) return count * from;
  if (what.kind == CollectiveKind::AllToAll) return count / n * from;
  return 0;
}

class HostPart : public Together {
 public:
  struct Seat {
    size_t group, place;  // the group, and the place in it
    std::vector<Parcel>
        others;             // for each member, how parcels reach it; rank -1 means this process
    std::vector<int> tags;  // of the parcels that come from each member
    size_t members_here;
  };
  HostPart(std::shared_ptr<Meeting> meeting, std::string device, std::vector<Seat> seats,
           Ranks* ranks)
      : meeting_(std::move(meeting)),
        device_(std::move(device)),
        seats_(std::move(seats)),
        ranks_(ranks) {}

  std::shared_ptr<Fence> run(std::span<const CollectiveArguments> bunch) override {
    if (bunch.empty()) return nullptr;
    const Seat& seat = seats_[bunch[0].what.axis];
    Group& group = meeting_->groups[seat.group];
    group.members[seat.place] = bunch;
    // They meet twice, however many collectives there are.
    meeting_->begin_turn(group);
    try {
      std::vector<CollectiveArguments> members(group.members.size());
      for (size_t i = 0; i < bunch.size(); ++i) {
        for (size_t k = 0; k < members.size(); ++k)
          if (is_here(seat, k)) members[k] = group.members[k][i];
        do_part(seat, members);
      }
    } catch (...) {
      // The others learn of it before this device waits for them, as they may wait for it.
      give_up(CapturedError::current());
      meeting_->end_turn(group);
      throw;
    }
    meeting_->end_turn(group);
    refuse_if_given_up();
    return nullptr;
  }

  void give_up(const CapturedError& why) noexcept override {
    if (ranks_) ranks_->fail_all(why);
    meeting_->give_up(device_, why);
  }

 private:
  static void copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  /// This device does its part of a collective, after its group has met. The operands in this
  /// process exist, and nobody reads results before all parts are done. `members` has the arguments
  /// of each member of this process.
  void do_part(const Seat& seat, std::span<const CollectiveArguments> members) {
    const CollectiveArguments& mine = members[seat.place];
    const Collective& what = mine.what;
    const uint64_t n = members.size(), me = seat.place, size = size_of(mine.dtype);
    std::vector<Parcel> sent, received;
    if (combines(what.kind)) return combine_all(seat, members);
    for (uint64_t k = 0; k < n; ++k) {
      const Range in = needed(what, mine.count, n, k, me), out = needed(what, mine.count, n, me, k);
      std::byte* const to = mine.to + goes_to(what, mine.count, n, k) * size;
      if (is_here(seat, k)) {
        copy(to, members[k].from + in.begin * size, in.count * size);
        continue;
      }
      add(received, seat, k, /*sends=*/false, to, in.count * size);
      add(sent, seat, k, true, const_cast<std::byte*>(mine.from) + out.begin * size,
          out.count * size);
    }
    exchange(sent, received);
  }

  /// Each member combines its range of the elements, one piece at a time. For an all_reduce it
  /// gives the result to all members. Only one piece of what other processes send is kept.
  void combine_all(const Seat& seat, std::span<const CollectiveArguments> members) {
    const CollectiveArguments& mine = members[seat.place];
    const Collective& what = mine.what;
    const bool for_all = what.kind == CollectiveKind::AllReduce;
    const uint64_t n = members.size(), me = seat.place, size = size_of(mine.dtype);
    const uint64_t piece = kPiece / size;
    std::vector<std::byte> staged;
    uint64_t longest = 0;
    for (uint64_t k = 0; k < n; ++k)
      longest = std::max(longest, needed(what, mine.count, n, 0, k).count);
    for (uint64_t begin = 0; begin < longest; begin += piece) {
      // The piece, within the range of each member.
      const auto part = [&](uint64_t k) {
        const Range range = needed(what, mine.count, n, 0, k);
        const uint64_t skip = std::min(begin, range.count);
        return Range{range.begin + skip, std::min(piece, range.count - skip)};
      };
      const Range own = part(me);
      std::vector<const std::byte*> sources(n);
      std::vector<Parcel> sent, received;
      staged.resize((n - seat.members_here) * own.count * size);
      uint64_t used = 0;
      for (uint64_t k = 0; k < n; ++k) {
        if (is_here(seat, k)) {
          sources[k] = members[k].from + own.begin * size;
          continue;
        }
        std::byte* const room = staged.data() + used++ * own.count * size;
        sources[k] = room;
        add(received, seat, k, false, room, own.count * size);
        const Range theirs = part(k);
        add(sent, seat, k, true, const_cast<std::byte*>(mine.from) + theirs.begin * size,
            theirs.count * size);
      }
      exchange(sent, received);
      std::byte* const result =
          for_all ? mine.to + own.begin * size : mine.to + (own.begin - mine.count / n * me) * size;
      combine(what.monoid, mine.dtype, sources, own.count, result);
      if (!for_all) continue;
      sent.clear();
      received.clear();
      for (uint64_t k = 0; k < n; ++k) {
        if (k == me) continue;
        if (is_here(seat, k)) {
          copy(members[k].to + own.begin * size, result, own.count * size);
          continue;
        }
        const Range theirs = part(k);
        add(sent, seat, k, true, result, own.count * size);
        add(received, seat, k, false, mine.to + theirs.begin * size, theirs.count * size);
      }
      exchange(sent, received);
    }
  }

  static bool is_here(const Seat& seat, size_t member) { return seat.others[member].rank < 0; }

  static void add(std::vector<Parcel>& parcels, const Seat& seat, size_t member, bool sends,
                  std::byte* data, size_t size) {
    if (size == 0) return;
    const Parcel& other = seat.others[member];
    parcels.push_back({other.rank, sends ? other.tag : seat.tags[member], data, size});
  }

  /// Blocks until all parcels have been sent and received. Throws if one of the ranks has failed.
  void exchange(std::span<const Parcel> sent, std::span<const Parcel> received) {
    if (sent.empty() && received.empty()) return;
    const auto under_way = ranks_->board().exchange(sent, received);
    constexpr int kYields = 2000;
    constexpr auto kNap = std::chrono::microseconds(50);
    for (int i = 0; !under_way->done(); ++i) {
      ranks_->check();
      refuse_if_given_up();
      if (i < kYields)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kNap);
    }
  }

  /// The others may be waiting for another device of this process.
  void refuse_if_given_up() {
    const std::lock_guard lock(meeting_->mutex);
    meeting_->refuse_if_failed();
  }

  static constexpr uint64_t kPiece = uint64_t{1} << 20;  // bytes

  const std::shared_ptr<Meeting> meeting_;
  const std::string device_;
  const std::vector<Seat> seats_;  // along each of the program's axes
  Ranks* const ranks_;             // null if all devices belong to this process
};

// A device does its collectives in order, so two devices and a direction are enough to identify a
// parcel.
int tag_of(const Device& from, const Device& to) { return from.index() * 64 + to.index(); }

}  // namespace

std::vector<std::shared_ptr<Together>> meet_on_host(std::span<const MeshAxis> mesh,
                                                    std::span<const Device> devices, Ranks* ranks,
                                                    std::span<const MeshAxis> axes) {
  if (ranks && !ranks->board().carries())
    fail(codes::kNoMpi,
         "CPU devices of several processes work together only through MPI, and these processes met "
         "in "
         "a folder",
         {.location = {},
          .node = "",
          .fix = "start them by mpirun; or use the CPU devices of one process, set by "
                 "BRAZE_CPU_DEVICES"});
  const size_t share = ranks ? devices.size() / static_cast<size_t>(ranks->count()) : 0;
  const auto rank_of = [&](size_t device) { return ranks ? static_cast<int>(device / share) : 0; };
  const int here = ranks ? ranks->rank() : 0;
  const auto meeting = std::make_shared<Meeting>();
  std::vector<std::vector<HostPart::Seat>> seats(devices.size());
  for (const MeshAxis& axis : axes) {
    // A group is made by its first member in this process.
    std::map<int64_t, size_t> groups;  // by the first of all members
    for (size_t device = 0; device < devices.size(); ++device) {
      if (rank_of(device) != here) continue;
      const std::vector<int64_t> group = group_of(mesh, axis.name, static_cast<int64_t>(device));
      HostPart::Seat seat{0, 0, {}, {}, 0};
      for (size_t k = 0; k < group.size(); ++k) {
        const auto other = static_cast<size_t>(group[k]);
        if (other == device) seat.place = k;
        const bool is_here = rank_of(other) == here;
        seat.members_here += is_here;
        seat.others.push_back(
            {is_here ? -1 : rank_of(other), tag_of(devices[device], devices[other]), nullptr, 0});
        seat.tags.push_back(tag_of(devices[other], devices[device]));
      }
      const auto [found, is_new] = groups.emplace(group[0], meeting->groups.size());
      if (is_new)
        meeting->groups.push_back(
            {std::vector<std::span<const CollectiveArguments>>(group.size()), seat.members_here});
      seat.group = found->second;
      seats[device].push_back(std::move(seat));
    }
  }
  std::vector<std::shared_ptr<Together>> parts(devices.size());
  for (size_t device = 0; device < devices.size(); ++device)
    if (rank_of(device) == here)
      parts[device] = std::make_shared<HostPart>(meeting, devices[device].name(),
                                                 std::move(seats[device]), ranks);
  return parts;
}

}  // namespace braze
