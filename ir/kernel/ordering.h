// ordering.h — the clocks by which the simulator finds races: they say which accesses a thread
// knows to have happened before.
//
// Everything that accesses memory is an *agent*: a warp, or something asynchronous (the copies that
// complete on one mbarrier, the groups of one warp group's wgmma, a thread's bulk stores). The
// accesses of an agent have stamps that grow. Threads learn about accesses through barriers. Two
// accesses to one place, one of them a store, are a race if the later one's thread does not know
// about the earlier one.
//
// A warp's epoch counts the times that its lanes met. Between two meetings, the lanes know nothing
// about each other. `sub` counts the releases of single lanes in an epoch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace braze {

struct Stamp {
  uint32_t run = 0;  ///< the number of the cluster, in the order in which they run, from 1; 0: none
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
  /// Learns about everything that `agent` did up to the end of `epoch`.
  void learn(uint16_t agent, uint32_t epoch);
  /// Learns about everything that these lanes of a warp have done so far.
  void learn(uint16_t agent, uint32_t lanes, uint32_t epoch, uint32_t sub);
  /// Learns about everything that another cluster knew when it released.
  void learn(uint32_t run, const std::shared_ptr<const Knowledge>& other);
  void join(const Knowledge& other);
  void clear();
  /// Whether it includes an access of its own cluster.
  bool covers(const Stamp& stamp) const;
  /// Whether it includes an access of another cluster.
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

/// The knowledge of the threads of a warp.
class WarpClock {
 public:
  void reset(uint16_t agent);
  uint16_t agent() const { return agent_; }

  Stamp stamp(uint32_t run, size_t lane) const {
    return {run, epoch_, sub_, agent_, static_cast<uint8_t>(lane), false};
  }
  /// Whether `lane` knows about the access. Clusters up to `base` ended before this launch.
  bool knows(const Stamp& stamp, size_t lane, uint32_t run, uint32_t base) const;
  /// All lanes meet: each learns what the others did and what they know.
  void meet();
  /// What others can learn from these lanes now. It does not include what the lanes do later.
  Knowledge release(uint32_t lanes);
  void acquire(const Knowledge& told, uint32_t lanes, uint32_t all_lanes);
  void acquire(uint32_t run, const std::shared_ptr<const Knowledge>& other, uint32_t lanes,
               uint32_t all_lanes);
  void learn(uint16_t agent, uint32_t epoch, uint32_t lanes, uint32_t all_lanes);

  /// These lanes run fence.proxy.async.
  void fence(uint32_t lanes);
  /// The stamp of the thread's first fence after the given access, if there was one. An
  /// asynchronous reader must know about this fence.
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
  std::vector<std::pair<uint32_t, Knowledge>> apart_;  // knowledge that only some lanes have
  std::vector<Fence> fences_;                          // in order
};

}  // namespace braze
