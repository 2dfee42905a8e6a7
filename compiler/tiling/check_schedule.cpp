#include "compiler/tiling/check_schedule.h"

#include <algorithm>
#include <bit>

#include "compiler/tiling/families.h"
#include "ir/code/layout.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// A tile becomes code: operations on each of its vectors (CPU), or on each element of a thread
// (GPU).
constexpr int64_t kMostTileElements = 4096;
constexpr int64_t kMostThreadElements = 256;
constexpr int64_t kMostThreads = 1024;   // of a block
constexpr int64_t kMostRegisters = 255;  // of a thread
constexpr int64_t kMostUnrolled = 64;    // steps of a loop
constexpr int64_t kMostSplit = 65'536;   // chunks of a reduction
constexpr int64_t kMostVector = 16;      // neighbours of one thread

std::string list_text(const std::vector<std::string>& list) {
  return join(list, ", ", [](const std::string& text) { return text; });
}

int64_t product(const std::vector<int64_t>& factors) {
  int64_t out = 1;
  for (const int64_t factor : factors) out = std::min(out * factor, int64_t{1} << 20);
  return out;
}

bool is_power_of_two(int64_t n) { return n > 0 && std::has_single_bit(static_cast<uint64_t>(n)); }

class Checker {
 public:
  Checker(const TilingRequest& request, const Space& space, const Schedule& schedule)
      : request_(request),
        space_(space),
        schedule_(schedule),
        on_gpu_(request.target.kind == TargetKind::Gpu),
        rank_(space.parallel.size()) {}

  void run() const {
    check_family();
    check_axes();
    check_meaning();
    check_numbers();
    check_size();
  }

 private:
  [[noreturn]] void refuse(const std::string& what, std::string fix) const {
    fail(codes::kBadSchedule, fmt::format("schedule of @{}: {}", request_.name, what),
         {.fix = std::move(fix)});
  }

  bool is_dot() const { return schedule_.family == "dot"; }
  bool has_inner_axes() const {
    return std::any_of(space_.passes.begin(), space_.passes.end(),
                       [](const Pass& pass) { return !pass.inner.empty(); });
  }
  // A parallel axis, other than the axis of the lanes, along which tiles have rows.
  bool has_rows() const {
    for (size_t p = 0; p < rank_; ++p)
      if (schedule_.tile[p] > 1 && static_cast<int64_t>(p) != schedule_.lane_axis) return true;
    return false;
  }

  std::vector<std::string> families() const {
    std::vector<std::string> out{"row"};
    if (rank_ > 0) out.emplace_back("column");
    if (on_gpu_ && factor_axes(request_, space_)) out.emplace_back("dot");
    return out;
  }

  void check_family() const {
    const std::vector<std::string> known = families();
    if (std::find(known.begin(), known.end(), schedule_.family) != known.end()) return;
    refuse(schedule_.family.empty()
               ? "it names no family"
               : fmt::format("family={} cannot be used for this kernel", schedule_.family),
           "use one of these families: " + list_text(known));
  }

  void check_axes() const {
    for (const auto& [key, list] :
         {std::pair("block", &schedule_.block), {"tile", &schedule_.tile}})
      if (list->size() != rank_)
        refuse(fmt::format("{} has the wrong number of entries, {}", key, list->size()),
               fmt::format("give one entry for each of the {} parallel axes", rank_));
    for (size_t p = 0; p < rank_; ++p) {
      const int64_t block = schedule_.block[p], tile = schedule_.tile[p];
      if (block < 1 || tile < 1 || block % tile != 0)
        refuse(fmt::format("the block {} and the tile {} of axis {} do not fit each other", block,
                           tile, p),
               "both must be at least 1, and the block must be a multiple of the tile");
    }
    const bool by_lanes = schedule_.family == "column" || is_dot();
    const int64_t least = by_lanes ? 0 : -1;
    const int64_t most = schedule_.family == "row" ? -1 : static_cast<int64_t>(rank_) - 1;
    if (schedule_.lane_axis < least || schedule_.lane_axis > most)
      refuse(fmt::format("lane={}", schedule_.lane_axis),
             least == most ? fmt::format("for family={}, use lane={}", schedule_.family, least)
                           : fmt::format("give an axis from {} to {}", least, most));
  }

  // Keys that change nothing for this kernel would mislead.
  void check_meaning() const {
    const bool slices = is_dot() && has_rows();
    const struct {
      std::string_view key;
      bool given, means;
      std::string_view needs;
    } rules[] = {
        {"inner", schedule_.inner_tile != 1, has_inner_axes(), "reductions, or stores along rows"},
        {"unroll", schedule_.unroll != 1, has_inner_axes(), "loops that reduce"},
        {"split", schedule_.split != 1, splits(), "one pass of reductions alone"},
        {"threads", !schedule_.threads.empty(), on_gpu_, "a GPU"},
        {"vector", schedule_.vector != 1, on_gpu_, "a GPU"},
        {"registers", schedule_.registers != 0, on_gpu_, "a GPU"},
        {"slice", schedule_.slice != 0, slices, "family=dot with rows in a tile, on a GPU"},
        {"mma", schedule_.mma, schedule_.slice > 0, "slice"},
        {"stages", schedule_.stages > 0, schedule_.slice > 0, "slice"},
        {"cluster", schedule_.cluster != 1, on_gpu_, "a GPU"},
    };
    for (const auto& rule : rules)
      if (rule.given && !rule.means)
        refuse(fmt::format("{} has no meaning for family={} on {}", rule.key, schedule_.family,
                           request_.target.name),
               fmt::format("leave it out; it needs {}", rule.needs));
    if (on_gpu_ && schedule_.threads.empty())
      refuse("a GPU needs threads", "threads=, one power of two for each dimension of the tiles");
  }

  bool splits() const { return splittable(request_, space_); }

  void check_numbers() const {
    const auto in_range = [&](std::string_view key, int64_t value, int64_t least, int64_t most) {
      if (value < least || value > most)
        refuse(fmt::format("{}={}", key, value),
               fmt::format("{} must be from {} to {}", key, least, most));
    };
    in_range("inner", schedule_.inner_tile, 1, INT64_MAX);
    in_range("unroll", schedule_.unroll, 1, kMostUnrolled);
    in_range("split", schedule_.split, 1, kMostSplit);
    in_range("vector", schedule_.vector, 1, kMostVector);
    in_range("registers", schedule_.registers, 0, kMostRegisters);
    in_range("slice", schedule_.slice, 0, kMostThreadElements);
    in_range("stages", schedule_.stages, 0, INT64_MAX);
    in_range("cluster", schedule_.cluster, 1, INT64_MAX);
    const auto& threads = schedule_.threads;
    if (!std::all_of(threads.begin(), threads.end(), is_power_of_two) ||
        (!threads.empty() &&
         (product(threads) > kMostThreads || product(threads) % kWarpThreads != 0)))
      refuse("threads", fmt::format("use powers of two whose product is from {} to {}",
                                    kWarpThreads, kMostThreads));
    if (!is_power_of_two(schedule_.vector)) refuse("vector", "use a power of two for vector");
  }

  void check_size() const {
    int64_t elements = product(schedule_.tile);
    if (has_inner_axes())
      elements = std::min(elements * std::min(schedule_.inner_tile, int64_t{1} << 20), INT64_MAX);
    const int64_t most = !on_gpu_
                             ? kMostTileElements
                             : kMostThreadElements * product(schedule_.threads) * schedule_.cluster;
    if (elements > most)
      refuse(fmt::format("the tiles have {} elements, which is too many", elements),
             fmt::format("choose tile and inner so that their product is at most {}", most));
  }

  const TilingRequest& request_;
  const Space& space_;
  const Schedule& schedule_;
  const bool on_gpu_;
  const size_t rank_;
};

}  // namespace

void check_schedule(const TilingRequest& request, const Space& space, const Schedule& schedule) {
  Checker(request, space, schedule).run();
}

}  // namespace braze
