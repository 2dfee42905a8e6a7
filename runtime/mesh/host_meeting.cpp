#include <algorithm>
#include <cstring>
#include <mutex>

#include "braze/half.h"
#include "ir/graph/shards.h"
#include "ir/ops/machine_semantics.h"
#include "ir/support/condition_variable.h"
#include "ir/support/text.h"
#include "runtime/mesh/together.h"

namespace braze {

namespace codes {
inline constexpr Code kPeerFailed{"peer-failed", ErrorKind::Device,
                                  "Another device of the mesh failed during a call."};
}  // namespace codes

namespace {

/// The devices of one group along one axis, in one call.
struct Group {
  std::vector<CollectiveArguments> members;  // what each has come with
  size_t arrived = 0;
  uint64_t turns = 0;  // how often all had arrived
};

/// What all parts of a call share.
struct Meeting {
  std::mutex mutex;
  ConditionVariable changed;
  CapturedError failure;
  std::string failed;  // the device; empty: none
  std::vector<Group> groups;

  /// Blocks until all members of the group have arrived.
  void await_all(Group& group) {
    std::unique_lock lock(mutex);
    refuse_if_failed();
    if (++group.arrived == group.members.size()) {
      group.arrived = 0;
      ++group.turns;
      changed.notify_all();
      return;
    }
    const uint64_t turn = group.turns;
    changed.wait(lock, [&] { return group.turns != turn || !failed.empty(); });
    if (group.turns == turn) refuse_if_failed();
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

// Combining. Sums and products of floats are accumulated as reductions are, in the order of the
// devices, and rounded once, so that every device has the same bits.

template <class Element, class Total>
void combine_floats(bool is_sum, std::span<const CollectiveArguments> members, uint64_t begin,
                    uint64_t count, uint64_t skip, std::byte* to) {
  for (uint64_t i = 0; i < count; ++i) {
    Total total = is_sum ? Total(0) : Total(1);
    bool first = true;
    for (const CollectiveArguments& member : members) {
      const auto x = static_cast<Total>(reinterpret_cast<const Element*>(member.from)[begin + i]);
      total = first ? x : is_sum ? total + x : total * x;
      first = false;
    }
    reinterpret_cast<Element*>(to)[skip + i] = static_cast<Element>(total);
  }
}

template <class Element>
void combine_bits(MachineFunction row, std::span<const CollectiveArguments> members, uint64_t begin,
                  uint64_t count, uint64_t skip, std::byte* to) {
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t total = reinterpret_cast<const Element*>(members[0].from)[begin + i];
    for (size_t k = 1; k < members.size(); ++k)
      total = row(total, reinterpret_cast<const Element*>(members[k].from)[begin + i], 0);
    reinterpret_cast<Element*>(to)[skip + i] = static_cast<Element>(total);
  }
}

/// Elements [begin, begin + count) of all operands, combined, to place `skip` on of `to`.
void combine(Monoid monoid, DType dtype, std::span<const CollectiveArguments> members,
             uint64_t begin, uint64_t count, uint64_t skip, std::byte* to) {
  const bool is_sum = monoid == Monoid::Sum;
  if (is_sum || monoid == Monoid::Prod) {
    switch (dtype) {
      case DType::F64:
        return combine_floats<double, double>(is_sum, members, begin, count, skip, to);
      case DType::F32:
        return combine_floats<float, float>(is_sum, members, begin, count, skip, to);
      case DType::F16:
        return combine_floats<float16, float>(is_sum, members, begin, count, skip, to);
      case DType::BF16:
        return combine_floats<bfloat16, float>(is_sum, members, begin, count, skip, to);
      default:
        break;
    }
  }
  const MachineFunction row = machine_function(info(monoid).combine, dtype, dtype);
  switch (size_of(dtype)) {
    case 1:
      return combine_bits<uint8_t>(row, members, begin, count, skip, to);
    case 2:
      return combine_bits<uint16_t>(row, members, begin, count, skip, to);
    case 4:
      return combine_bits<uint32_t>(row, members, begin, count, skip, to);
    default:
      return combine_bits<uint64_t>(row, members, begin, count, skip, to);
  }
}

/// Device `me` does its part of what its group has met for. All operands are there, and nobody
/// reads results before all parts are done.
void do_part(std::span<const CollectiveArguments> members, size_t me) {
  const CollectiveArguments& mine = members[me];
  const uint64_t n = members.size(), size = size_of(mine.dtype), bytes = mine.count * size;
  const auto copy = [](std::byte* to, const std::byte* from, uint64_t count) {
    if (count > 0) std::memcpy(to, from, count);
  };
  switch (mine.what.kind) {
    case CollectiveKind::AllReduce: {
      // Each combines a part of the elements, for all.
      const uint64_t begin = mine.count * me / n, end = mine.count * (me + 1) / n;
      combine(mine.what.monoid, mine.dtype, members, begin, end - begin, begin, mine.to);
      for (size_t k = 0; k < n; ++k)
        if (k != me)
          copy(members[k].to + begin * size, mine.to + begin * size, (end - begin) * size);
      return;
    }
    case CollectiveKind::AllGather:
      for (size_t k = 0; k < n; ++k) copy(mine.to + k * bytes, members[k].from, bytes);
      return;
    case CollectiveKind::ReduceScatter:
      return combine(mine.what.monoid, mine.dtype, members, mine.count / n * me, mine.count / n, 0,
                     mine.to);
    case CollectiveKind::BroadcastOver:
      return copy(mine.to, members[static_cast<size_t>(mine.what.offset)].from, bytes);
    case CollectiveKind::Permute:
      return copy(mine.to, members[(me + n - static_cast<size_t>(mine.what.offset)) % n].from,
                  bytes);
    case CollectiveKind::AllToAll:
      for (size_t k = 0; k < n; ++k)
        copy(mine.to + k * (bytes / n), members[k].from + me * (bytes / n), bytes / n);
      return;
  }
}

class HostPart : public Together {
 public:
  struct Seat {
    size_t group, place;  // in that group
  };
  HostPart(std::shared_ptr<Meeting> meeting, std::string device, std::vector<Seat> seats)
      : meeting_(std::move(meeting)), device_(std::move(device)), seats_(std::move(seats)) {}

  void run(const CollectiveArguments& arguments) override {
    const auto [index, place] = seats_[arguments.what.axis];
    Group& group = meeting_->groups[index];
    group.members[place] = arguments;
    meeting_->await_all(group);
    do_part(group.members, place);
    meeting_->await_all(group);
  }

  void give_up(const CapturedError& why) noexcept override {
    const std::lock_guard lock(meeting_->mutex);
    if (!meeting_->failed.empty()) return;
    meeting_->failed = device_;
    meeting_->failure = why;
    meeting_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const std::string device_;
  const std::vector<Seat> seats_;  // along each of the program's axes
};

}  // namespace

std::vector<std::shared_ptr<Together>> meet_on_host(std::span<const MeshAxis> mesh,
                                                    std::span<const Device> devices,
                                                    std::span<const MeshAxis> axes) {
  const auto meeting = std::make_shared<Meeting>();
  std::vector<std::vector<HostPart::Seat>> seats(devices.size());
  for (const MeshAxis& axis : axes) {
    // A group is made by its first member.
    std::vector<size_t> group_of_first(devices.size());
    for (size_t device = 0; device < devices.size(); ++device) {
      const std::vector<int64_t> group = group_of(mesh, axis.name, static_cast<int64_t>(device));
      const auto first = static_cast<size_t>(group[0]);
      if (first == device) {
        group_of_first[first] = meeting->groups.size();
        meeting->groups.push_back({std::vector<CollectiveArguments>(group.size())});
      }
      const auto place = std::ranges::find(group, static_cast<int64_t>(device)) - group.begin();
      seats[device].push_back({group_of_first[first], static_cast<size_t>(place)});
    }
  }
  std::vector<std::shared_ptr<Together>> parts;
  for (size_t device = 0; device < devices.size(); ++device)
    parts.push_back(
        std::make_shared<HostPart>(meeting, devices[device].name(), std::move(seats[device])));
  return parts;
}

}  // namespace braze
