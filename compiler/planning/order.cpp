#include "compiler/planning/order.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "ir/kernel/verify.h"
#include "ir/ops/exchange.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

// Joining may make the memory that is alive at one place greater by this share. Memory that fits
// into the nearest cache does not count.
constexpr double kMoreMemory = 0.125;
// A kernel that runs for less than this many times the price of a launch is worth joining to
// others, even if it fills the machine.
constexpr double kShortRun = 16;
// A bucket of collectives is full when the transfer of its bytes takes this many times its latency.
// Further members would save only a small part of its time, but kernels would wait for them.
constexpr double kFullBucket = 4;
// A join may keep collectives waiting for as long as a full bucket and its latency take.
constexpr double kLongestWait = kFullBucket + 1;
// An exchange beside kernels may take this many times as long as alone, because it may get few
// blocks (beside.h).
constexpr double kSlowExchange = 4;
// One that scatters or gathers took up to eleven times as long (two H200: 29 MB in 0.9 ms).
constexpr double kSlowestExchange = 12;
// After this many kernels that cannot be joined to the first, no more are tried.
constexpr int kMostRefusals = 32;

double most(const Expr& e) { return static_cast<double>(std::max<int64_t>(e.range().max, 0)); }

double bytes_of(const TensorType& type) {
  double bytes = static_cast<double>(size_of(type.dtype));
  for (const Expr& extent : type.shape.dims()) bytes *= most(extent);
  return bytes;
}

// Whether a launch of this kernel alone leaves a part of the machine idle, at any sizes.
bool leaves_room(const Kernel& kernel, const Target& target) {
  const double cores = std::max(target.cores, 1);
  return std::ranges::all_of(kernel.phases, [&](const Phase& phase) {
    double blocks = static_cast<double>(phase.cluster_size);
    for (const GridAxis& axis : phase.grid) blocks *= most(axis.extent);
    const int64_t at_once =
        phase.block > 0
            ? resident_blocks(target, {phase.block, phase.registers, phase.shared_bytes})
            : 1;
    return blocks < cores * static_cast<double>(at_once);
  });
}

// The estimated time of a kernel.
double estimated_seconds(const CompiledFusion& fusion, const Target& target) {
  return std::max(fusion.seconds, target.launch_seconds);
}

class Order {
 public:
  Order(const LoopForms& forms, const std::vector<CompiledFusion>& fusions,
        const std::vector<std::string>& keys, const std::vector<std::string>& list_keys,
        const Updates& updates, const Target& target)
      : forms_(forms),
        graph_(forms.graph()),
        fusions_(fusions),
        keys_(keys),
        list_keys_(list_keys),
        target_(target),
        needs_(fusions.size()),
        users_(fusions.size()),
        place_(fusions.size()) {
    std::map<uint32_t, size_t> writer;
    for (size_t k = 0; k < fusions.size(); ++k)
      for (NodeId output : fusions[k].fusion.outputs) writer[output.index] = k;
    for (size_t k = 0; k < fusions.size(); ++k)
      for (const auto* needed : {&fusions[k].fusion.after, &fusions[k].fusion.inputs})
        for (NodeId value : *needed)
          if (const auto found = writer.find(value.index); found != writer.end())
            needs_[k].push_back(found->second);
    for (const auto& [reader, overwriter] : updates.orders) needs_[overwriter].push_back(reader);
    for (size_t k = 0; k < fusions.size(); ++k)
      for (const size_t needed : needs_[k]) users_[needed].push_back(k);
    note_values();
  }

  std::vector<std::vector<size_t>> run() {
    const std::vector<size_t> order = sorted();
    for (size_t i = 0; i < order.size(); ++i) place_[order[i]] = kFirst + i;
    note_due(order);
    const double bytes = peak();
    most_bytes_ = bytes + std::max(bytes * kMoreMemory, static_cast<double>(target_.l1_bytes));
    note_last(order);
    note_kept(order);
    join_kernels(order, false);
    put_last(order);
    follow_operands(order);
    fill_buckets(order);
    update_kept(order);
    note_begins(order);
    join_kernels(order, true);
    update_in_turn(order);
    start_early();
    std::vector<std::vector<size_t>> launches(order.size());
    for (const size_t k : order) launches[place_[k] - kFirst].push_back(k);
    std::erase_if(launches, [](const auto& launch) { return launch.empty(); });
    return launches;
  }

 private:
  static constexpr size_t kFirst = 1;  // 0 is before all launches

  // The fusions of each launch, in the order of the launches.
  std::map<size_t, std::vector<size_t>> by_place() const {
    std::map<size_t, std::vector<size_t>> launches;
    for (size_t k = 0; k < place_.size(); ++k) launches[place_[k]].push_back(k);
    return launches;
  }

  // The fusions in an order in which each comes after those that it needs, and otherwise in the
  // given order.
  std::vector<size_t> sorted() const {
    std::vector<size_t> order;
    enum class State : uint8_t { Waiting, Entered, Done };
    std::vector<State> states(fusions_.size());
    const std::function<void(size_t)> visit = [&](size_t k) {
      if (states[k] == State::Done) return;
      BRAZE_CHECK(states[k] == State::Waiting, "two kernels need results of each other");
      states[k] = State::Entered;
      for (const size_t needed : needs_[k]) visit(needed);
      states[k] = State::Done;
      order.push_back(k);
    };
    for (size_t k = 0; k < fusions_.size(); ++k) visit(k);
    return order;
  }

  // The estimate includes the price of a launch. A kernel that cannot be fused with any other has
  // no estimate.
  bool is_short(size_t k) const {
    const double seconds = fusions_[k].seconds;
    return seconds > 0 && seconds < (kShortRun + 1) * target_.launch_seconds;
  }

  bool is_worth_joining(size_t k) const {
    const Kernel& kernel = fusions_[k].kernel;
    return !kernel.resident && (is_short(k) || leaves_room(kernel, target_));
  }

  // --- Joining --------------------------------------------------------------------------------

  double seconds_of(size_t k) const { return estimated_seconds(fusions_[k], target_); }

  double least_seconds_of(size_t k) const { return least_seconds(forms_, fusions_[k], target_); }

  // Joins kernels, those that come behind the collectives or all others: first equal ones, and then
  // the launches of kernels that differ in their sizes.
  void join_kernels(const std::vector<size_t>& order, bool last) {
    join_by(keys_, order, last);
    // Beside exchanges, a launch of many sizes would begin when the last of its members can: four
    // H200 took 27.3 ms for a step of training that takes 25.4 without such launches.
    if (!std::ranges::any_of(order, [&](size_t k) { return collective(k) != nullptr; }))
      join_by(list_keys_, order, last);
  }

  void join_by(const std::vector<std::string>& keys, const std::vector<size_t>& order, bool last) {
    std::map<size_t, std::vector<size_t>> launches;
    for (const size_t k : order)
      if (!keys[k].empty() && !collective(k) && !kept_[k] && last_[k] == last)
        launches[place_[k]].push_back(k);
    std::erase_if(launches, [&](const auto& launch) {
      return !std::ranges::all_of(launch.second, [&](size_t k) { return is_worth_joining(k); });
    });
    std::map<std::string_view, std::vector<std::vector<size_t>>> alike;
    std::vector<std::string_view> met;
    for (auto& [place, members] : launches) {
      auto& list = alike[keys[members.front()]];
      if (list.empty()) met.emplace_back(keys[members.front()]);
      list.push_back(std::move(members));
    }
    for (const std::string_view key : met) join_all(std::move(alike[key]));
  }

  // Joins launches of alike kernels, which are given in the order in which they run.
  void join_all(std::vector<std::vector<size_t>> launches) {
    while (launches.size() > 1) {
      std::vector<std::vector<size_t>> taken{launches.front()}, others;
      std::vector<size_t> members = launches.front();
      int refusals = 0;
      for (size_t i = 1; i < launches.size(); ++i) {
        const size_t before = members.size();
        members.insert(members.end(), launches[i].begin(), launches[i].end());
        if (refusals < kMostRefusals && has_room(members) && common_place(members) &&
            !delays_collectives(members) && !waits_for_collectives(members)) {
          taken.push_back(std::move(launches[i]));
          continue;
        }
        members.resize(before);
        others.push_back(std::move(launches[i]));
        ++refusals;
      }
      // Fewer members keep less memory alive.
      while (taken.size() > 1 && !join(members)) {
        const auto half = taken.begin() + static_cast<ptrdiff_t>((taken.size() + 1) / 2);
        others.insert(others.end(), half, taken.end());
        taken.erase(half, taken.end());
        members.clear();
        for (const auto& launch : taken)
          members.insert(members.end(), launch.begin(), launch.end());
        std::ranges::sort(others, {}, [&](const auto& launch) { return place_[launch.front()]; });
      }
      launches = std::move(others);
    }
  }

  // A GPU runs a collective beside kernels, so the earlier its operands exist, the more of it is
  // hidden. Notes, for each fusion, which of the collectives that need it could be done first, and
  // from which place on.
  void note_due(const std::vector<size_t>& order) {
    due_.assign(fusions_.size(), {});
    seconds_before_.assign(order.size() + kFirst + 1, 0);
    for (const size_t k : order) seconds_before_[place_[k] + 1] = collective(k) ? 0 : seconds_of(k);
    std::partial_sum(seconds_before_.begin(), seconds_before_.end(), seconds_before_.begin());
    for (auto k = order.rbegin(); k != order.rend(); ++k) {
      for (const size_t user : users_[*k]) {
        Due due = due_[user];
        if (collective(user)) {
          due = {user, 0};
          for (const size_t needed : needs_[user]) due.place = std::max(due.place, place_[needed]);
        }
        if (due.place < due_[*k].place) due_[*k] = due;
      }
    }
  }

  // Whether collectives would wait long for the last of these members. A wait does not matter if
  // the collectives that wait have few bytes.
  bool delays_collectives(const std::vector<size_t>& members) const {
    if (target_.kind != TargetKind::Gpu) return false;
    const size_t place = *common_place(members);
    std::set<size_t> waiting;
    for (const size_t k : members) {
      const Due& due = due_[k];
      if (due.place < place && seconds_before_[place + 1] - seconds_before_[due.place + 1] >
                                   kLongestWait * target_.link_seconds)
        waiting.insert(due.collective);
    }
    double seconds = 0;
    for (const size_t k : waiting) seconds += transfer_seconds(k);
    return seconds > target_.link_seconds;
  }

  // Notes when each kernel that comes last can begin, by estimates: not before the kernels that do
  // not come last are over, and not before the exchanges that it needs. Kernels count as fast and
  // exchanges as slow, because what is apart needlessly costs one launch.
  void note_begins(const std::vector<size_t>& order) {
    begins_.assign(order.size(), 0);
    if (target_.kind != TargetKind::Gpu || std::ranges::find(last_, true) == last_.end()) return;
    std::vector<double> ends(order.size());  // of collectives
    double now = 0, exchanged = 0;
    for (const auto& [place, members] : by_place()) {
      if (last_[members.front()]) continue;
      if (collective(members.front())) {
        exchanged = std::max(now, exchanged) + target_.link_seconds;
        for (const size_t k : members) exchanged += kSlowExchange * transfer_seconds(k);
        for (const size_t k : members) ends[k] = exchanged;
        continue;
      }
      for (const size_t k : members)
        for (const size_t needed : needs_[k]) now = std::max(now, ends[needed]);
      for (const size_t k : members) now += least_seconds_of(k);
    }
    for (const size_t k : order) {
      if (!last_[k]) continue;
      begins_[k] = now;
      for (const size_t needed : needs_[k])
        begins_[k] = std::max({begins_[k], ends[needed], begins_[needed]});
    }
  }

  // Whether some of these members, which come behind the collectives, could run while the exchange
  // that others need is still under way. One launch would keep them waiting.
  bool waits_for_collectives(const std::vector<size_t>& members) const {
    if (!last_[members.front()]) return false;
    const auto [first, latest] =
        std::ranges::minmax(members, {}, [&](size_t k) { return begins_[k]; });
    return begins_[latest] - begins_[first] > target_.launch_seconds;
  }

  // --- Buckets --------------------------------------------------------------------------------

  const CollectiveOp* collective(size_t k) const {
    return graph_[fusions_[k].fusion.nodes.front()].as<CollectiveOp>();
  }

  // Whether the operands of a bucket of such collectives lie one behind another, and its results.
  bool is_packed(size_t k) const {
    const CollectiveOp* op = collective(k);
    return op && keeps_places(op->kind);
  }

  // The time that the bytes of `k` take, without the latency.
  double transfer_seconds(size_t k) const {
    const CollectiveOp& op = *collective(k);
    const Node& node = graph_[fusions_[k].fusion.nodes.front()];
    const TensorType& type = graph_[node.operands[0]].type;
    const Expr bytes = type.shape.numel() * Expr(static_cast<int64_t>(size_of(type.dtype)));
    return most(received_bytes(op.kind, op.axis.size, bytes)) / target_.link_bytes_per_second;
  }

  // Notes which kernels come last: those that need a collective, and that no collective needs.
  void note_last(const std::vector<size_t>& order) {
    last_.assign(order.size(), false);
    for (const size_t k : order)
      last_[k] = !collective(k) && std::ranges::any_of(needs_[k], [&](size_t needed) {
        return collective(needed) || last_[needed];
      });
    for (const size_t k : std::views::reverse(order))
      if (std::ranges::any_of(users_[k], [&](size_t user) { return !last_[user]; }))
        last_[k] = false;
  }

  // Earlier, those kernels would only wait, and keep collectives from being done at once.
  void put_last(const std::vector<size_t>& order) {
    if (std::ranges::find(last_, true) == last_.end()) return;
    const std::vector<size_t> before = place_;
    for (const size_t k : order)
      if (last_[k]) place_[k] += order.size();
    std::vector<size_t> used = place_;
    std::ranges::sort(used);
    used.erase(std::ranges::unique(used).begin(), used.end());
    for (size_t& place : place_)
      place = kFirst + static_cast<size_t>(std::ranges::lower_bound(used, place) - used.begin());
    if (peak() > most_bytes_) place_ = before;
  }

  // Collectives come in the order in which their operands exist, each directly after the launch
  // that makes its last one. In another order, one whose operand is made late would keep those that
  // are ready from being done, because all devices do collectives in one order.
  void follow_operands(const std::vector<size_t>& order) {
    std::map<size_t, std::vector<size_t>> launches;  // by place
    std::vector<size_t> waiting;                     // collectives
    for (const size_t k : order)
      if (collective(k))
        waiting.push_back(k);
      else
        launches[place_[k]].push_back(k);
    if (waiting.empty()) return;
    std::ranges::stable_sort(waiting, {}, [&](size_t k) { return place_[k]; });
    const std::vector<size_t> before = place_;
    std::vector<bool> done(order.size());
    size_t next = kFirst;
    const auto put = [&](size_t k, size_t place) {
      place_[k] = place;
      done[k] = true;
    };
    const auto put_those_that_can = [&] {
      // One may need another.
      for (size_t left = SIZE_MAX; left != waiting.size();) {
        left = waiting.size();
        std::erase_if(waiting, [&](size_t k) {
          const bool can =
              std::ranges::all_of(needs_[k], [&](size_t needed) { return done[needed]; });
          if (can) put(k, next++);
          return can;
        });
      }
    };
    put_those_that_can();
    for (const auto& [place, members] : launches) {
      for (const size_t k : members) put(k, next);
      ++next;
      put_those_that_can();
    }
    if (peak() > most_bytes_) place_ = before;
  }

  // Collectives with one key go into one bucket, one after the other. A bucket ends when it is
  // full, or when there is no place at which all of them and the next one can be done, because a
  // user of one of them must come first.
  void fill_buckets(const std::vector<size_t>& order) {
    std::vector<size_t> all;
    for (const size_t k : order)
      if (collective(k) && !keys_[k].empty() && !kept_[k]) all.push_back(k);
    std::ranges::stable_sort(all, {}, [&](size_t k) { return place_[k]; });
    struct Bucket {
      std::vector<size_t> members = {};
      double seconds = 0;
    };
    const double full = kFullBucket * target_.link_seconds;
    // The values that wait in a bucket may take as much memory as a full bucket has.
    most_bytes_ = std::max(most_bytes_, peak() + full * target_.link_bytes_per_second);
    std::map<std::string_view, Bucket> open;
    for (const size_t k : all) {
      Bucket& bucket = open[keys_[k]];
      bucket.members.push_back(k);
      if (bucket.members.size() > 1 && !(common_place(bucket.members) && join(bucket.members)))
        bucket = {{k}};
      bucket.seconds += transfer_seconds(k);
      if (bucket.seconds >= full) bucket = {};
    }
  }

  // Kernels behind the last collective, which are what `put_last` put there, come in the order of
  // the collectives that they need. What updates kept parts has its place. So updates of early
  // gradients run while late ones are exchanged.
  void update_in_turn(const std::vector<size_t>& order) {
    size_t last = 0;
    for (const size_t k : order)
      if (collective(k) && !kept_[k]) last = std::max(last, place_[k]);
    std::map<size_t, std::vector<size_t>> launches;  // by place
    for (const size_t k : order)
      if (place_[k] > last && !kept_[k]) launches[place_[k]].push_back(k);
    std::vector<size_t> needed(place_.size());  // by fusion: the place of its last collective
    std::vector<std::pair<size_t, const std::vector<size_t>*>> turns;
    for (const auto& [place, members] : launches) {
      size_t latest = 0;
      for (const size_t k : members)
        for (const size_t other : needs_[k])
          latest = std::max(latest, collective(other) ? place_[other] : needed[other]);
      for (const size_t k : members) needed[k] = latest;
      turns.emplace_back(latest, &members);
    }
    std::ranges::stable_sort(turns, {}, [](const auto& turn) { return turn.first; });
    const std::vector<size_t> before = place_;
    auto place = launches.begin();
    for (const auto& [latest, members] : turns) {
      for (const size_t k : *members) place_[k] = place->first;
      ++place;
    }
    if (peak() > most_bytes_) place_ = before;
  }

  // --- Updates of kept parts ------------------------------------------------------------------

  // Notes the kernels that need a collective, and whose results go only into collectives that
  // nothing in the program waits for; and these collectives. If each device keeps a part of the
  // optimizer's state, these are the updates of its part of the parameters, and the all_gathers of
  // the parts. An update of several kernels is not among them.
  void note_kept(const std::vector<size_t>& order) {
    kept_.assign(order.size(), false);
    if (target_.kind != TargetKind::Gpu) return;
    const auto is_collective = [&](size_t k) { return collective(k) != nullptr; };
    const auto ends = [&](size_t k) { return is_collective(k) && users_[k].empty(); };
    for (const size_t k : order)
      kept_[k] = !is_collective(k) && !users_[k].empty() && std::ranges::all_of(users_[k], ends) &&
                 std::ranges::any_of(needs_[k], is_collective);
    for (const size_t k : order)
      if (ends(k))
        kept_[k] = std::ranges::any_of(needs_[k], [&](size_t needed) { return kept_[needed]; });
  }

  // Puts these kernels, and the collectives of what they make, between the other kernels. At the
  // end, the last collectives would have nothing beside them. A kernel comes directly after the
  // exchange for such kernels that follows those that it needs: these had all the kernels between
  // the two to be over. Behind the last exchange it comes after kernels that take long enough.
  void update_kept(const std::vector<size_t>& order) {
    std::vector<size_t> waiting;
    for (const size_t k : order)
      if (kept_[k]) waiting.push_back(k);
    if (waiting.empty()) return;
    const std::vector<size_t> before = place_;
    std::vector<std::vector<size_t>> first, others;
    for (auto& [place, members] : by_place())
      if (!kept_[members.front()])
        (is_needed_early(members) ? first : others).push_back(std::move(members));
    std::ranges::fill(place_, SIZE_MAX);
    size_t next = kFirst;
    const auto put = [&](const std::vector<size_t>& members) {
      for (const size_t k : members) place_[k] = next;
      ++next;
    };
    const auto put_alike = [&](const auto& can) {
      std::vector<std::vector<size_t>> launches;
      std::erase_if(waiting, [&](size_t k) {
        if (!can(k)) return false;
        const auto alike = std::ranges::find_if(
            launches, [&](const std::vector<size_t>& members) { return can_add(k, members); });
        if (alike == launches.end())
          launches.push_back({k});
        else
          alike->push_back(k);
        return true;
      });
      for (const std::vector<size_t>& members : launches) put(members);
    };
    // Kernels that need only what comes before a place, and then the collectives of what is made.
    const auto update = [&](size_t place) {
      for (const bool gathers : {false, true}) {
        const size_t end = gathers ? next : place;
        put_alike([&](size_t k) {
          return (collective(k) != nullptr) == gathers &&
                 std::ranges::all_of(needs_[k],
                                     [&](size_t needed) { return place_[needed] < end; });
        });
      }
    };
    for (const std::vector<size_t>& members : first) put(members);
    const auto is_exchange = [&](const std::vector<size_t>& members) {
      return collective(members.front()) && has_kept_user(members);
    };
    auto exchanges = std::ranges::count_if(others, is_exchange);
    double left = 0;  // seconds until the last exchange is over
    for (const std::vector<size_t>& members : others) {
      put(members);
      if (is_exchange(members)) {
        update(place_[members.front()]);
        left = target_.link_seconds;
        for (const size_t k : members) left += kSlowestExchange * transfer_seconds(k);
        --exchanges;
      } else if (exchanges == 0 && !collective(members.front()) && left > 0) {
        for (const size_t k : members) left -= least_seconds_of(k);
        if (left <= 0) update(next);
      }
    }
    update(next);
    BRAZE_CHECK(waiting.empty(), "an update needs what comes after it");
    if (peak() <= most_bytes_) return;
    place_ = before;
    kept_.assign(order.size(), false);
    join_kernels(order, false);
    fill_buckets(order);
  }

  bool has_kept_user(const std::vector<size_t>& members) const {
    return std::ranges::any_of(members, [&](size_t k) {
      return std::ranges::any_of(users_[k], [&](size_t user) { return kept_[user]; });
    });
  }

  // Whether a launch can be done at once, is short, and is needed by an update of a kept part.
  bool is_needed_early(const std::vector<size_t>& members) const {
    return has_kept_user(members) && std::ranges::all_of(members, [&](size_t k) {
             return !collective(k) && needs_[k].empty() && is_short(k);
           });
  }

  // Whether `k` can be done with these members, which do not depend on it.
  bool can_add(size_t k, std::vector<size_t> members) const {
    if (keys_[k].empty() || keys_[k] != keys_[members.front()]) return false;
    members.push_back(k);
    return collective(k) || (is_worth_joining(k) && has_room(members));
  }

  // --- Overlap --------------------------------------------------------------------------------

  // A GPU runs a collective at the same time as the kernels after it. Each collective is moved
  // before so many kernels that all those between it and its first user take as long as it does, if
  // its operands exist there and memory allows it. Collectives keep their order.
  void start_early() {
    if (target_.kind != TargetKind::Gpu || place_.empty()) return;
    const auto launches = by_place();
    const size_t end = *std::ranges::max_element(place_) + 1;
    size_t last = 0;  // the place of the collective before
    for (const auto& [place, members] : launches) {
      if (!collective(members.front())) continue;
      size_t earliest = last + 1, user = end;
      double seconds = target_.link_seconds;
      for (const size_t k : members) {
        seconds += transfer_seconds(k);
        for (const size_t needed : needs_[k]) earliest = std::max(earliest, place_[needed] + 1);
        for (const size_t other : users_[k]) user = std::min(user, place_[other]);
      }
      const auto time_of = [&](size_t at) {
        const auto kernel = launch_at(at);
        return kernel ? seconds_of(*kernel) : 0;
      };
      double hidden = 0;
      for (size_t at = place + 1; at < user && hidden < seconds; ++at) hidden += time_of(at);
      size_t start = place;
      while (start > earliest && hidden < seconds) hidden += time_of(--start);
      while (!move_before(start, place, members)) start += (place - start + 1) / 2;
      last = start;
    }
  }

  // A kernel of the launch at this place; none if it is a collective.
  std::optional<size_t> launch_at(size_t place) const {
    const auto found = std::ranges::find(place_, place);
    if (found == place_.end()) return std::nullopt;
    const auto k = static_cast<size_t>(found - place_.begin());
    return collective(k) ? std::nullopt : std::optional(k);
  }

  // Moves a launch from one place to an earlier one. If too much memory would be alive at the same
  // time, it changes nothing and returns false.
  bool move_before(size_t to, size_t from, const std::vector<size_t>& members) {
    if (to == from) return true;
    const std::vector<size_t> before = place_;
    for (size_t& place : place_)
      if (place >= to && place < from) ++place;
    for (const size_t k : members) place_[k] = to;
    if (peak() <= most_bytes_) return true;
    place_ = before;
    return false;
  }

  // The last place of a member that comes after everything that any member needs, and before
  // everything that needs any member. If there is one, no fusion between two members depends on the
  // one and is needed by the other.
  std::optional<size_t> common_place(const std::vector<size_t>& members) const {
    size_t after = 0, before = SIZE_MAX;
    for (const size_t k : members) {
      for (const size_t needed : needs_[k]) {
        if (contains(members, needed)) return std::nullopt;
        after = std::max(after, place_[needed]);
      }
      for (const size_t user : users_[k]) before = std::min(before, place_[user]);
    }
    std::optional<size_t> last;
    for (const size_t k : members)
      if (place_[k] > after && place_[k] < before) last = std::max(last.value_or(0), place_[k]);
    return last;
  }

  bool has_room(const std::vector<size_t>& members) const {
    const auto count = static_cast<int64_t>(members.size());
    const Kernel& kernel = fusions_[members.front()].kernel;
    return count <= kMostMembers && (target_.kind != TargetKind::Gpu ||
                                     parameter_bytes(kernel, count) <= kMostParameterBytes);
  }

  // Joins the members. If too much memory would be alive at the same time, it changes nothing and
  // returns false.
  bool join(const std::vector<size_t>& members) {
    const size_t place = *common_place(members);
    std::vector<size_t> before;
    for (const size_t k : members) before.push_back(std::exchange(place_[k], place));
    if (peak() <= most_bytes_) return true;
    for (size_t i = 0; i < members.size(); ++i) place_[members[i]] = before[i];
    return false;
  }

  static bool contains(const std::vector<size_t>& list, size_t k) {
    return std::ranges::find(list, k) != list.end();
  }

  // --- Memory ---------------------------------------------------------------------------------

  // A value that is alive from its writer to its last reader. A workspace has no reader.
  struct Life {
    double bytes = 0;
    size_t writer = 0;
    std::vector<size_t> readers = {};
    std::optional<size_t> sent_by = {};  // the packed collective whose operand it is
    bool is_received = false;            // whether it is the result of a packed collective
  };

  void note_values() {
    std::map<uint32_t, size_t> found;
    for (size_t k = 0; k < fusions_.size(); ++k) {
      for (NodeId node : fusions_[k].fusion.outputs) {
        found[node.index] = lives_.size();
        lives_.push_back({bytes_of(graph_[node].type), k});
        lives_.back().is_received = is_packed(k);
      }
      for (const Memory& memory : fusions_[k].kernel.memories)
        if (memory.space == MemorySpace::Workspace)
          lives_.push_back({bytes_of({memory.dtype, Shape(memory.shape)}), k});
    }
    for (size_t k = 0; k < fusions_.size(); ++k)
      for (NodeId node : fusions_[k].fusion.inputs)
        if (const auto life = found.find(node.index); life != found.end()) {
          lives_[life->second].readers.push_back(k);
          if (is_packed(k)) lives_[life->second].sent_by = k;
        }
    // Results have their own memory during the whole call.
    for (const GraphOutput& output : graph_.outputs())
      if (const auto life = found.find(output.node.index); life != found.end())
        lives_[life->second].bytes = 0;
  }

  // The most bytes that are alive at one place. The operands of a bucket of packed collectives are
  // one piece of memory, which is alive from the first write to any of them. Its results are
  // another piece, which is alive until the last of them has been read.
  double peak() const {
    std::vector<double> change(fusions_.size() + kFirst + 1);
    std::vector<size_t> begins(change.size(), SIZE_MAX), ends(change.size(), 0);  // of buckets
    const auto last_of = [&](const Life& life) {
      size_t last = place_[life.writer];
      for (const size_t reader : life.readers) last = std::max(last, place_[reader]);
      return last;
    };
    for (const Life& life : lives_) {
      if (life.sent_by) {
        size_t& begin = begins[place_[*life.sent_by]];
        begin = std::min(begin, place_[life.writer]);
      }
      if (life.is_received) {
        size_t& end = ends[place_[life.writer]];
        end = std::max(end, last_of(life));
      }
    }
    for (const Life& life : lives_) {
      const size_t writer = place_[life.writer];
      change[life.sent_by ? begins[place_[*life.sent_by]] : writer] += life.bytes;
      change[(life.is_received ? ends[writer] : last_of(life)) + 1] -= life.bytes;
    }
    double alive = 0, most_alive = 0;
    for (const double bytes : change) most_alive = std::max(most_alive, alive += bytes);
    return most_alive;
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const std::vector<CompiledFusion>& fusions_;
  const std::vector<std::string>&keys_, &list_keys_;
  const Target& target_;
  std::vector<std::vector<size_t>> needs_, users_;  // of a fusion
  std::vector<size_t> place_;  // of a fusion; the members of a launch have the same place
  std::vector<Life> lives_;
  double most_bytes_ = 0;
  struct Due {
    size_t collective = 0;
    size_t place = SIZE_MAX;  // of the launch that makes its last operand
  };
  std::vector<Due> due_;                // of a fusion, in the order before joins
  std::vector<double> seconds_before_;  // of all kernels at earlier places of that order
  std::vector<bool> last_;              // of a fusion: whether it comes behind the collectives
  std::vector<bool> kept_;  // of a fusion: whether it updates a kept part, or gathers such parts
  std::vector<double> begins_;  // of a fusion that comes last: when it can begin
};

}  // namespace

std::vector<std::vector<size_t>> launch_order(const LoopForms& forms,
                                              const std::vector<CompiledFusion>& fusions,
                                              const std::vector<std::string>& keys,
                                              const std::vector<std::string>& list_keys,
                                              const Updates& updates, const Target& target) {
  return Order(forms, fusions, keys, list_keys, updates, target).run();
}

double least_seconds(const LoopForms& forms, const CompiledFusion& fusion, const Target& target) {
  const double estimated = estimated_seconds(fusion, target);
  const auto is_dot = [&](NodeId node) {
    const LoopForm* form = forms.find(node);
    return form && form->is_dot;
  };
  if (std::ranges::any_of(fusion.fusion.nodes, is_dot)) return estimated;
  double bytes = 0;
  for (const auto* values : {&fusion.fusion.inputs, &fusion.fusion.outputs})
    for (const NodeId value : *values) bytes += bytes_of(forms.graph()[value].type);
  return std::min(estimated,
                  std::max(bytes / target.memory_bytes_per_second, target.launch_seconds));
}

std::string collective_key(const Graph& graph, NodeId node) {
  const auto* op = graph[node].as<CollectiveOp>();
  if (!op) return {};
  return fmt::format("{} {} {} over {} of {}", name(op->kind), name(op->monoid), op->offset,
                     op->axis.name, name(graph[node].type.dtype));
}

Kernel joined(Kernel kernel, size_t members) {
  kernel.members = static_cast<int64_t>(members);
  kernel.name += fmt::format("_x{}", members);
  return kernel;
}

}  // namespace braze
