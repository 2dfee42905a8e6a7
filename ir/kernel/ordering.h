// ordering.h — who knows that what happened before: the clocks by which the simulator finds races.
//
// Everything that touches memory is an *agent*: a warp, or something asynchronous (the copies that
// complete on one mbarrier, the groups of one warp group's wgmma, a thread's bulk stores). An
// agent's accesses carry a stamp that grows. Threads learn of accesses through barriers; two
// accesses of one place, one a store, race if neither thread has learnt of the other.
//
// A warp's epoch counts the times that its lanes met; in between the lanes know nothing of each
// other. `sub` counts what lanes alone release in an epoch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace braze {

struct Stamp {
  uint32_t run = 0;  ///< the cluster, in order of running, from 1; 0: nobody
  uint32_t epoch = 0;
  uint32_t sub = 0;
  uint16_t agent = 0;
  uint8_t lane = 0;  ///< of a warp
  bool atomic = false;
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

/// A set of accesses that are known to have happened.
class Knowledge {
 public:
  /// All that `agent` did up to and with `epoch`.
  void learn(uint16_t agent, uint32_t epoch);
  /// What these lanes of a warp did up to this moment.
  void learn(uint16_t agent, uint32_t lanes, uint32_t epoch, uint32_t sub);
  /// What another cluster knew when it told.
  void learn(uint32_t run, const std::shared_ptr<const Knowledge>& other);
  void join(const Knowledge& other);
  void clear();
  /// An access of the cluster whose knowledge this is.
  bool covers(const Stamp& stamp) const;
  /// An access of another cluster.
  bool covers_other(const Stamp& stamp) const;
  const std::map<uint32_t, std::shared_ptr<const Knowledge>>& others() const { return others_; }

 private:
  struct Part {
    uint16_t agent;
    uint32_t lanes, epoch, sub;
  };
  bool covers_part(const Part& part) const;
  std::vector<uint32_t> epochs_;  // by agent
  std::vector<Part> parts_;
  std::map<uint32_t, std::shared_ptr<const Knowledge>> others_;  // by run
};

/// What the threads of a warp know.
class WarpClock {
 public:
  void reset(uint16_t agent);
  uint16_t agent() const { return agent_; }

  Stamp stamp(uint32_t run, size_t lane) const {
    return {run, epoch_, sub_, agent_, static_cast<uint8_t>(lane), false};
  }
  /// True if `lane` knows of the access. `base`: clusters up to it ended before this launch.
  bool knows(const Stamp& stamp, size_t lane, uint32_t run, uint32_t base) const;
  /// All lanes meet: each learns what the others did and knew.
  void meet();
  /// What these lanes can tell others now; what they do from now on is not part of it.
  Knowledge release(uint32_t lanes);
  void acquire(const Knowledge& told, uint32_t lanes, uint32_t all_lanes);
  void acquire(uint32_t run, const std::shared_ptr<const Knowledge>& other, uint32_t lanes,
               uint32_t all_lanes);
  void learn(uint16_t agent, uint32_t epoch, uint32_t lanes, uint32_t all_lanes);

  /// fence.proxy.async of these lanes.
  void fence(uint32_t lanes);
  /// The first fence of the thread behind its access, if there was one, as a stamp: an asynchronous
  /// reader must know of it.
  std::optional<Stamp> fence_behind(const Stamp& access) const;

 private:
  Knowledge& part_of(uint32_t lanes, uint32_t all_lanes);
  struct Fence {
    uint32_t lanes;
    Stamp moment;
  };
  uint16_t agent_ = 0;
  uint32_t epoch_ = 1, sub_ = 0;
  Knowledge common_;
  std::vector<std::pair<uint32_t, Knowledge>> apart_;  // what only some lanes know
  std::vector<Fence> fences_;                          // in order
};

}  // namespace braze
