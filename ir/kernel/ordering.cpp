#include "ir/kernel/ordering.h"

#include <algorithm>
#include <utility>

namespace braze {

namespace {

constexpr size_t kKeptFences = 256;

bool at_most(const Stamp& stamp, uint32_t epoch, uint32_t sub) {
  return stamp.epoch < epoch || (stamp.epoch == epoch && stamp.sub <= sub);
}

}  // namespace

// --- Knowledge

void Knowledge::learn(uint16_t agent, uint32_t epoch) {
  if (epochs_.size() <= agent) epochs_.resize(agent + size_t{1});
  epochs_[agent] = std::max(epochs_[agent], epoch);
}

bool Knowledge::covers_part(const Part& part) const {
  if (part.agent < epochs_.size() && epochs_[part.agent] >= part.epoch) return true;
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& p) {
    return p.agent == part.agent && (part.lanes & ~p.lanes) == 0 &&
           std::pair(p.epoch, p.sub) >= std::pair(part.epoch, part.sub);
  });
}

void Knowledge::learn(uint16_t agent, uint32_t lanes, uint32_t epoch, uint32_t sub) {
  const Part made{agent, lanes, epoch, sub};
  if (covers_part(made)) return;
  std::erase_if(parts_, [&](const Part& p) {
    return p.agent == agent && (p.lanes & ~lanes) == 0 &&
           std::pair(p.epoch, p.sub) <= std::pair(epoch, sub);
  });
  parts_.push_back(made);
}

// The knowledge is kept flat: what the other cluster knows about a third one is added here
// directly.
void Knowledge::learn(uint32_t run, const std::shared_ptr<const Knowledge>& other) {
  if (!other->others_.empty()) {
    for (const auto& [third, knowledge] : other->others_) learn(third, knowledge);
    auto own = std::make_shared<Knowledge>();
    own->epochs_ = other->epochs_;
    own->parts_ = other->parts_;
    return learn(run, std::shared_ptr<const Knowledge>(std::move(own)));
  }
  std::shared_ptr<const Knowledge>& known = others_[run];
  if (!known) {
    known = other;
  } else if (known != other) {
    auto both = std::make_shared<Knowledge>(*known);
    both->join(*other);
    known = std::move(both);
  }
}

void Knowledge::join(const Knowledge& other) {
  if (epochs_.size() < other.epochs_.size()) epochs_.resize(other.epochs_.size());
  for (size_t i = 0; i < other.epochs_.size(); ++i)
    epochs_[i] = std::max(epochs_[i], other.epochs_[i]);
  for (const Part& p : other.parts_) learn(p.agent, p.lanes, p.epoch, p.sub);
  std::erase_if(parts_, [&](const Part& p) {
    return p.agent < epochs_.size() && epochs_[p.agent] >= p.epoch;
  });
  for (const auto& [run, knowledge] : other.others_) learn(run, knowledge);
}

void Knowledge::clear() {
  epochs_.clear();
  parts_.clear();
  others_.clear();
}

bool Knowledge::covers(const Stamp& stamp) const {
  if (stamp.agent < epochs_.size() && epochs_[stamp.agent] >= stamp.epoch) return true;
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& p) {
    return p.agent == stamp.agent && (p.lanes >> stamp.lane & 1) != 0 &&
           at_most(stamp, p.epoch, p.sub);
  });
}

bool Knowledge::covers_other(const Stamp& stamp) const {
  const auto found = others_.find(stamp.run);
  return found != others_.end() && found->second->covers(stamp);
}

// --- WarpClock

void WarpClock::reset(uint16_t agent) {
  agent_ = agent;
  epoch_ = 1;
  sub_ = 0;
  common_.clear();
  apart_.clear();
  fences_.clear();
}

bool WarpClock::knows(const Stamp& stamp, size_t lane, uint32_t run, uint32_t base) const {
  if (stamp.run <= base) return true;
  const auto apart = [&](auto covers) {
    return std::any_of(apart_.begin(), apart_.end(), [&](const auto& part) {
      return (part.first >> lane & 1) != 0 && covers(part.second);
    });
  };
  if (stamp.run != run) {
    const auto covers = [&](const Knowledge& k) { return k.covers_other(stamp); };
    return covers(common_) || apart(covers);
  }
  if (stamp.agent == agent_ && (stamp.lane == lane || stamp.epoch < epoch_)) return true;
  const auto covers = [&](const Knowledge& k) { return k.covers(stamp); };
  return covers(common_) || apart(covers);
}

void WarpClock::meet() {
  for (const auto& [lanes, knowledge] : apart_) common_.join(knowledge);
  apart_.clear();
  ++epoch_;
  sub_ = 0;
}

Knowledge WarpClock::release(uint32_t lanes) {
  Knowledge told = common_;
  for (const auto& [owners, knowledge] : apart_)
    if ((owners & lanes) != 0) told.join(knowledge);
  told.learn(agent_, epoch_ - 1);
  told.learn(agent_, lanes, epoch_, sub_);
  ++sub_;
  return told;
}

Knowledge& WarpClock::part_of(uint32_t lanes, uint32_t all_lanes) {
  if (lanes == all_lanes) return common_;
  for (auto& [owners, knowledge] : apart_)
    if (owners == lanes) return knowledge;
  return apart_.emplace_back(lanes, Knowledge()).second;
}

void WarpClock::acquire(const Knowledge& told, uint32_t lanes, uint32_t all_lanes) {
  part_of(lanes, all_lanes).join(told);
}
void WarpClock::acquire(uint32_t run, const std::shared_ptr<const Knowledge>& other, uint32_t lanes,
                        uint32_t all_lanes) {
  part_of(lanes, all_lanes).learn(run, other);
}
void WarpClock::learn(uint16_t agent, uint32_t epoch, uint32_t lanes, uint32_t all_lanes) {
  part_of(lanes, all_lanes).learn(agent, epoch);
}

void WarpClock::fence(uint32_t lanes) {
  if (fences_.size() >= kKeptFences)
    fences_.erase(fences_.begin(), fences_.begin() + kKeptFences / 2);
  fences_.push_back({lanes, stamp(0, 0)});
  ++sub_;
}

std::optional<Stamp> WarpClock::fence_behind(const Stamp& access) const {
  std::optional<Stamp> found;
  for (size_t i = fences_.size(); i-- > 0;) {
    const auto& [lanes, moment] = fences_[i];
    if (std::pair(moment.epoch, moment.sub) < std::pair(access.epoch, access.sub)) break;
    if ((lanes >> access.lane & 1) == 0) continue;
    found = access;
    found->epoch = moment.epoch;
    found->sub = moment.sub;
  }
  return found;
}

}  // namespace braze
