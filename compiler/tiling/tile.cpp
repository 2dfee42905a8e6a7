#include "compiler/tiling/tile.h"

#include <span>

#include "compiler/fusion/reasons.h"
#include "compiler/tiling/families.h"
#include "ir/support/text.h"

namespace braze {

namespace {

using Family = std::optional<Schedule> (*)(const TilingRequest&, const Space&);

// The families in the order of preference.
constexpr Family kCpuFamilies[] = {schedule_reduction};
constexpr Family kGpuFamilies[] = {schedule_gpu_contraction, schedule_gpu_reduction};

constexpr Code kNoFamily{"no-schedule", ErrorKind::Unsupported,
                         "No family of schedules can serve the kernel."};

}  // namespace

Schedule choose_schedule(const TilingRequest& request, const Space& space) {
  const std::span<const Family> families = request.target.kind == TargetKind::Gpu
                                               ? std::span<const Family>(kGpuFamilies)
                                               : std::span<const Family>(kCpuFamilies);
  for (const Family& family : families) {
    if (auto schedule = family(request, space)) {
      return *schedule;
    }
  }
  fail(kNoFamily, fmt::format("no family of schedules can serve kernel {}", request.name));
}

Space tiling_space(const LoopForms& forms, const Fusion& fusion) {
  auto found = find_space(forms, fusion);
  if (std::holds_alternative<NoSpace>(found)) return {};  // only a loop tree can express it
  auto& space = std::get<Space>(found);
  // Loop trees tile scans and placed reductions, and merge their axes themselves.
  return space.running || space.placed ? std::move(space) : collapse(forms, fusion, space);
}

}  // namespace braze
