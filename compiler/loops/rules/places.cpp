// places.cpp — the rule for placed reductions. An instance owns a block of places and walks all
// terms. Whatever the steps, an element adds its terms in their order.
#include <algorithm>
#include <bit>
#include <set>

#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"
#include "ir/code/layout.h"

namespace braze {

namespace {

// Cycles, roughly: comparing the place of a term, adding an element of a term, and beginning and
// finishing an element of the result.
constexpr double kCompareCycles = 0.6;
constexpr double kAddCycles = 0.4;
constexpr double kMoveCycles = 0.4;

constexpr int64_t kInstancesPerCore = 4;  // so that places with many terms delay few instances
// GPU: with more warps, more terms are added at the same time, but each block looks at the places
// of all terms. Chosen with 200,000 rows of 128 elements for 20,000 places on an H200.
constexpr int64_t kWarpsPerCore = 12;
// Elements; with shorter rows, comparing is most of the work, and a core has one instance.
constexpr double kLongRow = 16;
// Places that a block should have at least, even if its rows are long.
constexpr int64_t kLeastPlaces = 8;
constexpr int64_t kLeastColumns = 64;  // columns of a block that shares rows with other blocks
constexpr int64_t kScan = 32;
constexpr int64_t kMostHits = 16;  // hits of a group that is compared at once
// GPU: the most threads of a block, terms that each of them compares, blocks of a multiprocessor.
constexpr int64_t kBlockThreads = 256;
constexpr int64_t kThreadScan = 8;
constexpr int64_t kMostThreadScan = 32;  // where few terms of a group are the block's own
constexpr double kFewHits = 4;
constexpr int64_t kBlocksAtOnce = 6;
constexpr int64_t kExchangeBytes = 2048;  // chip memory of a block for exchange between its warps

int64_t round_up(int64_t n, int64_t unit) { return ceil_divide(n, unit) * unit; }

class Rule {
 public:
  Rule(Scheduled& out, const LoopTask& task, const Target& target)
      : out_(out), target_(target), value_(out.tree.values[task.target].name) {
    const LoopTree& tree = out.tree;
    for (const size_t axis : tree.values[task.target].axes) {
      names_.push_back(tree.axes[axis].name);
      extents_.push_back(planned_extent(tree, axis));
      digit_.push_back(contains(task.along, axis));
      if (!task.along.empty() && axis == task.along[0]) places_ = names_.size() - 1;
    }
    for (const size_t axis : task.over) {
      terms_ = std::min(terms_ * planned_extent(tree, axis), int64_t{1} << 40);
      over_.push_back(tree.axes[axis].name);
    }
    if (!task.over.empty()) inner_terms_ = planned_extent(tree, task.over.back());
    sum_bytes_ = static_cast<int64_t>(size_of(sums_dtype(task)));
    block_.assign(names_.size(), 1);
    tile_.assign(names_.size(), 1);
    direct_ = !legal(tree, KeepStep{value_, Storage::Result});
    touched_ = accesses(tree, task);
    for_each_task(tree, [&](const LoopTask& other, const auto&) {
      if (!other.makes_value()) stored_.push_back(tree.tensors[other.target].name);
    });
  }

  void run() {
    if (!names_.empty()) {
      choose_tile();
      if (direct_)
        share_directly();
      else
        share_by_room();
    }
    deal();
    seek();
    out_.take(KeepStep{value_, direct_ ? Storage::Result : Storage::Chip});
    if (on_gpu()) bind();
  }

 private:
  bool on_gpu() const { return target_.kind == TargetKind::Gpu; }
  size_t lane() const { return names_.size() - 1; }
  bool has_places(size_t axis) const { return places_ && axis == *places_; }
  // Only the outermost digit of places is dealt to instances.
  bool is_inner_digit(size_t axis) const { return digit_[axis] && !has_places(axis); }

  void choose_tile() {
    if (on_gpu()) return deal_threads();
    const int64_t lanes = target_.vector_lanes(4);
    int64_t& tile = tile_.back();
    tile = lanes * (target_.vector_registers >= 32 ? 4 : 2);
    while (tile > lanes && tile / 2 >= extents_.back()) tile /= 2;
  }

  // Puts threads along a row. Each has as many neighbours as one access takes.
  void deal_threads() {
    const int64_t extent = extents_.back();
    if (!digit_.back())
      vector_ =
          std::min(vector_along(touched_, axis_of(out_.tree, names_.back())), 16 / sum_bytes_);
    while (vector_ > 1 && extent < kWarpThreads * vector_) vector_ /= 2;
    const auto needed = static_cast<uint64_t>(ceil_divide(extent, vector_));
    threads_ = std::clamp(static_cast<int64_t>(std::bit_ceil(needed)), kWarpThreads, kBlockThreads);
    tile_.back() = threads_ * vector_;
  }

  int64_t tiles(size_t axis, int64_t count) const { return round_up(count, tile_[axis]); }
  size_t first_of_row() const { return places_ ? *places_ + 1 : 0; }
  int64_t places() const { return places_ ? extents_[*places_] : 1; }

  double row_elements() const {
    double row = 1;
    for (size_t p = first_of_row(); p < names_.size(); ++p) row *= static_cast<double>(extents_[p]);
    return row;
  }

  int64_t wanted_instances() const {
    if (row_elements() < kLongRow) return target_.cores;
    const int64_t by_warps = on_gpu() ? kWarpsPerCore * kWarpThreads / threads_ : 1;
    return std::max(kInstancesPerCore, by_warps) * target_.cores;
  }

  int64_t instances() const {
    int64_t count = 1;
    for (size_t p = 0; p < names_.size(); ++p) count *= ceil_divide(extents_[p], block_[p]);
    return count;
  }

  // If the sums can be added directly in the memory of the result, all instances get pieces of rows
  // that are as equal as possible.
  void share_directly() {
    const int64_t wanted = wanted_instances();
    const size_t first = places_.value_or(0);
    for (size_t p = first; p < names_.size(); ++p) block_[p] = tiles(p, extents_[p]);
    for (size_t p = names_.size(); p-- > first && instances() < wanted;) {
      if (is_inner_digit(p)) continue;
      const int64_t least = has_places(p) ? 1 : kLeastColumns;
      const int64_t share = ceil_divide(extents_[p], ceil_divide(wanted, instances()));
      block_[p] = std::min(block_[p], tiles(p, std::max(share, least)));
    }
  }

  // If the sums are on chip, an instance has whole rows, as many as leave room in the caches.
  void share_by_room() {
    if (places_) block_[*places_] = tiles(*places_, places());
    const int64_t bytes =
        on_gpu() ? target_.l1_bytes / kBlocksAtOnce - kExchangeBytes : target_.l2_bytes / 2;
    int64_t room = std::max<int64_t>(bytes / sum_bytes_, 1);
    for (size_t p = names_.size(); p-- > first_of_row();) {
      const int64_t most = std::max<int64_t>(room / kLeastPlaces, 1);
      block_[p] = tiles(p, is_inner_digit(p) ? extents_[p] : std::min(extents_[p], most));
      room = std::max<int64_t>(room / block_[p], 1);
    }
    if (!places_) return;
    const int64_t by_compare = on_gpu() ? 1 : std::min(places_by_compare(), most_places());
    const int64_t shares = ceil_divide(wanted_instances(), instances());
    const int64_t by_cores = ceil_divide(places(), shares);
    block_[*places_] = tiles(
        *places_, std::clamp<int64_t>(std::min(std::max(room, by_compare), by_cores), 1, places()));
  }

  // The number of places of a block with which comparing takes as long as all other work.
  int64_t places_by_compare() const {
    const auto count = static_cast<double>(places());
    const auto terms = static_cast<double>(terms_);
    const double work = row_elements() * (terms * kAddCycles + count * kMoveCycles);
    return static_cast<int64_t>(count * terms * kCompareCycles / work);
  }

  // The number of places whose sums fit in the last-level cache for all cores.
  int64_t most_places() const {
    int64_t bytes = sum_bytes_;
    for (size_t p = first_of_row(); p < names_.size(); ++p) bytes *= block_[p];
    return std::max<int64_t>(target_.l3_bytes / 2 / std::max(target_.cores, 1) / bytes, 1);
  }

  // The number of terms of a group of `terms` that belong to an instance, if all places have as
  // many.
  double hits_of(int64_t terms) const {
    const int64_t block = places_ ? block_[*places_] : 1;
    return static_cast<double>(terms * block) / static_cast<double>(places());
  }

  // Takes the steps. An instance has a block of each axis, and takes it tile by tile: slabs cut the
  // task's terms and the stores. Along places, loops exist already and are split.
  void deal() {
    std::vector<std::string> grid;
    for (size_t p = 0; p < names_.size(); ++p) {
      const std::string& name = names_[p];
      const Expr& extent = axis_of(out_.tree, name).extent;
      bool covered = extent.is_constant(block_[p]);
      if (has_places(p)) {
        covered = extent.as_constant().value_or(block_[p] + 1) <= block_[p];
        // If something reads other places, it needs all of them.
        if (!covered && !out_.try_take(EncloseStep{name, block_[p]})) covered = true;
        if (tile_[p] > 1) cut_stores(name, tile_[p], covered ? 1 : 2);
        if (!covered) grid.push_back(name);
        continue;
      }
      if (is_inner_digit(p)) {
        if (tile_[p] > 1) cut_stores(name, tile_[p], 1);
        continue;
      }
      if (block_[p] == 1) {
        grid.push_back(name);
        continue;
      }
      if (!covered) out_.take(SplitStep{{name}, block_[p], /*padded=*/true});
      out_.take(WholeStep{{name, covered ? 1 : 2}});
      if (!covered) grid.push_back(name);
    }
    for (size_t p = 0; p < names_.size(); ++p) {
      if (digit_[p] || block_[p] == 1) continue;
      out_.take(SlabsStep{{true, value_}, names_[p], tile_[p]});
      for (const std::string& tensor : stored_)
        out_.try_take(SlabsStep{{false, tensor}, names_[p], tile_[p]});
    }
    // The loops of the grid in the order of the tree, from the outermost on.
    std::vector<std::string> outermost;
    for (const LoopRegion* region = &out_.tree.phases[0]; region->size() == 1;) {
      const auto* loop = std::get_if<Box<Loop>>(&region->front());
      if (!loop) break;
      const std::string& name = out_.tree.axes[(*loop)->levels[0].axis].name;
      if (std::ranges::find(grid, name) == grid.end() || !(*loop)->parallel) break;
      if (std::ranges::find(outermost, name) != outermost.end()) break;
      outermost.push_back(name);
      region = &(*loop)->body;
    }
    deal_out(out_, outermost);
  }

  // Cuts the loops over places into tiles, from the n-th loop on. These are the loops of stores.
  void cut_stores(const std::string& name, int64_t tile, int64_t n) {
    int64_t loops = count_loops(out_.tree, name);
    for (; n <= loops; ++n) {
      out_.take(SplitStep{{name, n}, tile, /*padded=*/true});
      // Whether it has several turns.
      const bool cut = find_loop(out_.tree, {name, loops + 1}).has_value();
      out_.take(WholeStep{{name, cut ? n + 1 : n}});
      if (!cut) --n, --loops;
    }
  }

  void seek() {
    if (over_.empty()) return;
    int64_t scan = 1;
    if (on_gpu()) {
      scan = kThreadScan * std::max(threads_, kWarpThreads);
      const int64_t most = kMostThreadScan * std::max(threads_, kWarpThreads);
      while (scan < most && hits_of(2 * scan) <= kFewHits) scan *= 2;
      // Few terms also form groups: taken one by one, each term would be a branch of all threads.
      while (scan > kWarpThreads && scan >= inner_terms_) scan /= 2;
    } else if (hits_of(kScan) < kMostHits) {
      scan = kScan;
    }
    const std::string& terms = over_.back();
    const bool dealt = places_ && block_[*places_] < places();
    const bool groups = dealt && scan > 1 && terms_ >= scan && inner_terms_ > scan;
    if (groups) out_.take(SplitStep{{terms}, scan, /*padded=*/true});
    out_.try_take(SeekStep{{terms, groups ? 2 : 1}});
    // Only the last group reaches beyond the end.
    const LoopAxis& axis = axis_of(out_.tree, terms);
    if (groups && on_gpu() && !axis.extent.is_multiple_of(scan))
      out_.try_take(PartStep{{terms}, before_end(axis)});
  }

  void bind() {
    Layout layout;
    layout.axes.emplace_back();
    const int64_t lanes = std::min(threads_, kWarpThreads);
    for (const Digit& digit :
         {Digit{Resource::Warp, 1, threads_ / lanes}, Digit{Resource::Lane, 1, lanes},
          Digit{Resource::Register, 1, vector_}})
      if (digit.extent > 1) layout.axes[0].push_back(digit);
    for (const std::string& tensor : stored_) out_.try_take(BindStep{{false, tensor}, layout});
  }

  Scheduled& out_;
  const Target& target_;
  const std::string value_;
  std::vector<std::string> names_;  // names of the value's axes
  std::vector<int64_t> extents_, block_, tile_;
  std::vector<bool> digit_;       // by axis of the value: whether it is a digit of the places
  std::optional<size_t> places_;  // the outermost of these digits
  std::vector<std::string> over_, stored_;
  int64_t terms_ = 1, inner_terms_ = 1;
  int64_t sum_bytes_ = 4;
  bool direct_ = false;
  std::vector<TreeAccess> touched_;
  int64_t threads_ = 1, vector_ = 1;
};

}  // namespace

std::optional<Refusal> tile_places(Scheduled& out, const Target& target) {
  const LoopTask* placed = nullptr;
  bool other = false;
  for_each_task(out.tree, [&](const LoopTask& task, const auto&) {
    const bool one = task.kind != LoopTask::Kind::Place && task.over.empty();  // a copy
    other |= task.makes_value() && !one && (placed || task.kind != LoopTask::Kind::Place);
    if (task.kind == LoopTask::Kind::Place) placed = &task;
  });
  if (other)
    return no_rule("no rule can choose the steps for a placed reduction beside other reductions");
  // Collapses the lines (loops around everything), and then the loops over terms around the task.
  for (const bool terms : {false, true}) {
    const ItemPlace place = find_task(out.tree, [](const LoopTask& t) {
                              return t.kind == LoopTask::Kind::Place;
                            }).value();
    std::vector<size_t> nest;
    for (const Loop* loop : loops_around(out.tree, place))
      if (loop->parallel != terms) nest.push_back(loop->levels[0].axis);
    collapse_axes(out, nest);
  }
  const LoopTask task = task_at(out.tree, find_task(out.tree, [](const LoopTask& t) {
                                            return t.kind == LoopTask::Kind::Place;
                                          }).value());
  Rule(out, task, target).run();
  return std::nullopt;
}

}  // namespace braze
