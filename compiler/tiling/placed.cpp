// placed.cpp — reductions whose terms are placed by loaded indices: an instance owns a block of
// places and walks all terms. The order in which an element is summed is that of the terms,
// whatever the schedule.
#include <algorithm>
#include <bit>

#include "compiler/tiling/families.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

// Rough cycles: to compare the place of a term, to add an element of it, to begin and finish an
// element of the result.
constexpr double kCompareCycles = 0.6;
constexpr double kAddCycles = 0.4;
constexpr double kMoveCycles = 0.4;

constexpr int64_t kInstancesPerCore = 4;  // so that places with many terms delay few
constexpr double kLongRow = 16;        // with shorter ones comparing is most of the work: 1 a core
constexpr int64_t kLeastPlaces = 8;    // of a block, rather than long rows
constexpr int64_t kLeastColumns = 64;  // of a block that shares rows with others
constexpr int64_t kScan = 32;
constexpr int64_t kMostHits = 16;  // of a group that is worth comparing at once
// GPU: threads of a block at most, terms that one of them compares, blocks of a multiprocessor.
constexpr int64_t kBlockThreads = 256;
constexpr int64_t kThreadScan = 8;
constexpr int64_t kBlocksAtOnce = 12;
constexpr int64_t kExchangeBytes = 2048;  // between the warps of each

int64_t ceil_divide(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
int64_t round_up(int64_t n, int64_t unit) { return ceil_divide(n, unit) * unit; }

// Whether the sums begin as what lies in the memory of the kernel's only result.
bool begins_in_place(const TilingRequest& request, const SpaceTask& placed) {
  const LoopForm& form = *request.forms.find(placed.node);
  const auto alias = request.aliases.find(start_of(request.forms, placed).node);
  return alias != request.aliases.end() && alias->second == placed.node &&
         request.fusion.outputs == std::vector{placed.node} &&
         form.result == accumulator_type(form);
}

class Rule {
 public:
  Rule(const TilingRequest& request, const Space& space)
      : target_(request.target),
        places_(space.placed->axis),
        rank_(space.parallel.size()),
        terms_(planned_elements(space.passes[space.placed->pass].inner)) {
    for (const SpaceAxis& axis : space.parallel)
      extents_.push_back(std::max<int64_t>(planned_extent(axis.extent), 1));
    const SpaceTask& task = space.passes[space.placed->pass].reduces.front();
    sum_bytes_ = static_cast<int64_t>(size_of(accumulator_type(*request.forms.find(task.node))));
    touched_ = accesses(request, space.passes[space.placed->pass]);
    lane_ = space.parallel.back();
    schedule_ = {.family = "placed",
                 .block = std::vector<int64_t>(rank_, 1),
                 .tile = std::vector<int64_t>(rank_, 1),
                 .lane_axis = static_cast<int64_t>(rank_) - 1,
                 .direct = begins_in_place(request, task)};
  }

  Schedule run() {
    choose_tile();
    if (schedule_.direct)
      share_directly();
    else
      share_by_room();
    if (on_gpu())
      schedule_.scan = kThreadScan * schedule_.threads.back();
    else if (hits_of_a_group() < kMostHits)
      schedule_.scan = kScan;
    if (terms_ < schedule_.scan) schedule_.scan = 1;
    return schedule_;
  }

 private:
  bool on_gpu() const { return target_.kind == TargetKind::Gpu; }

  void choose_tile() {
    if (on_gpu()) return deal_threads();
    const int64_t lanes = target_.vector_lanes(4);
    int64_t& tile = schedule_.tile.back();
    tile = lanes * (target_.vector_registers >= 32 ? 4 : 2);
    while (tile > lanes && tile / 2 >= extents_.back()) tile /= 2;
  }

  // Threads along a row, each with neighbours that one access takes.
  void deal_threads() {
    const int64_t extent = extents_.back();
    int64_t& vector = schedule_.vector;
    if (places_ + 1 < rank_) vector = std::min(gpu_vector(touched_, lane_), 16 / sum_bytes_);
    while (vector > 1 && extent < kWarpThreads * vector) vector /= 2;
    const auto needed = static_cast<uint64_t>(ceil_divide(extent, vector));
    const int64_t along =
        std::clamp(static_cast<int64_t>(std::bit_ceil(needed)), kWarpThreads, kBlockThreads);
    schedule_.threads = {along};
    schedule_.tile.back() = along * vector;
  }

  int64_t tiles(size_t axis, int64_t count) const { return round_up(count, schedule_.tile[axis]); }

  double row_elements() const {
    double row = 1;
    for (size_t p = places_ + 1; p < rank_; ++p) row *= static_cast<double>(extents_[p]);
    return row;
  }

  int64_t wanted_instances() const {
    return (row_elements() < kLongRow ? 1 : kInstancesPerCore) * target_.cores;
  }

  int64_t instances() const {
    int64_t count = 1;
    for (size_t p = 0; p < rank_; ++p) count *= ceil_divide(extents_[p], schedule_.block[p]);
    return count;
  }

  // Rows that lie in memory as they are: pieces of all of them are shared as evenly as can be.
  void share_directly() {
    const int64_t wanted = wanted_instances();
    for (size_t p = places_; p < rank_; ++p) schedule_.block[p] = tiles(p, extents_[p]);
    for (size_t p = rank_; p-- > places_ && instances() < wanted;) {
      const int64_t least = p == places_ ? 1 : kLeastColumns;
      const int64_t share = ceil_divide(extents_[p], ceil_divide(wanted, instances()));
      schedule_.block[p] = std::min(schedule_.block[p], tiles(p, std::max(share, least)));
    }
  }

  // Sums on chip: whole rows, and as many of them as leave the caches some room.
  void share_by_room() {
    schedule_.block[places_] = tiles(places_, extents_[places_]);
    const int64_t bytes =
        on_gpu() ? target_.l1_bytes / kBlocksAtOnce - kExchangeBytes : target_.l2_bytes / 2;
    int64_t room = std::max<int64_t>(bytes / sum_bytes_, 1);
    for (size_t p = rank_; p-- > places_ + 1;) {
      const int64_t most = std::max<int64_t>(room / kLeastPlaces, 1);
      schedule_.block[p] = tiles(p, std::min(extents_[p], most));
      room = std::max<int64_t>(room / schedule_.block[p], 1);
    }
    const int64_t by_compare = on_gpu() ? 1 : std::min(places_by_compare(), most_places());
    const int64_t shares = ceil_divide(wanted_instances(), instances());
    const int64_t by_cores = ceil_divide(extents_[places_], shares);
    schedule_.block[places_] = tiles(
        places_,
        std::clamp<int64_t>(std::min(std::max(room, by_compare), by_cores), 1, extents_[places_]));
  }

  // The places of a block with which comparing takes no longer than all else.
  int64_t places_by_compare() const {
    const auto places = static_cast<double>(extents_[places_]);
    const auto terms = static_cast<double>(terms_);
    const double work = row_elements() * (terms * kAddCycles + places * kMoveCycles);
    return static_cast<int64_t>(places * terms * kCompareCycles / work);
  }

  // Those whose sums the last-level cache holds for all cores.
  int64_t most_places() const {
    int64_t bytes = sum_bytes_;
    for (size_t p = places_ + 1; p < rank_; ++p) bytes *= schedule_.block[p];
    return std::max<int64_t>(target_.l3_bytes / 2 / std::max(target_.cores, 1) / bytes, 1);
  }

  double hits_of_a_group() const {
    return static_cast<double>(kScan * schedule_.block[places_]) /
           static_cast<double>(extents_[places_]);
  }

  const Target& target_;
  const size_t places_, rank_;
  const int64_t terms_;
  std::vector<AccessInfo> touched_;
  SpaceAxis lane_;
  std::vector<int64_t> extents_;
  int64_t sum_bytes_ = 4;
  Schedule schedule_;
};

}  // namespace

std::optional<Schedule> schedule_placed(const TilingRequest& request, const Space& space) {
  if (!space.placed) return std::nullopt;
  return Rule(request, space).run();
}

}  // namespace braze
