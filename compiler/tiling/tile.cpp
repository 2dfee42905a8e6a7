#include "compiler/tiling/tile.h"

#include <span>

#include "compiler/fusion/reasons.h"
#include "compiler/tiling/check_schedule.h"
#include "compiler/tiling/families.h"
#include "ir/support/text.h"

namespace braze {

namespace {

using Family = std::optional<Schedule> (*)(const TilingRequest&, const Space&);

// In the order of preference.
constexpr Family kCpuFamilies[] = {schedule_reduction};
constexpr Family kGpuFamilies[] = {schedule_gpu_contraction, schedule_gpu_reduction};

constexpr Code kNoFamily{"no-schedule", ErrorKind::Unsupported,
                         "No family of schedules can serve the kernel."};

// Results that the last-level cache cannot hold until they are read need not pass through it: a
// line that is written as a whole without being read first costs half the traffic. Unknown sizes
// count as their least value.
bool outlives_cache(const TilingRequest& request) {
  int64_t bytes = 0;
  for (NodeId output : request.fusion.outputs) {
    const TensorType& type = request.forms.graph()[output].type;
    bytes += type.shape.numel().range().min * static_cast<int64_t>(size_of(type.dtype));
  }
  return bytes >= request.target.l3_bytes;
}

}  // namespace

Schedule choose_schedule(const TilingRequest& request, const Space& space) {
  const std::span<const Family> families = request.target.kind == TargetKind::Gpu
                                               ? std::span<const Family>(kGpuFamilies)
                                               : std::span<const Family>(kCpuFamilies);
  for (const Family& family : families) {
    if (auto schedule = family(request, space)) {
      schedule->stream = outlives_cache(request);
      return *schedule;
    }
  }
  fail(kNoFamily, fmt::format("no family of schedules can serve kernel {}", request.name));
}

Space tiling_space(const LoopForms& forms, const Fusion& fusion) {
  auto found = find_space(forms, fusion);
  if (std::holds_alternative<NoSpace>(found)) return {};  // only a loop tree can express it
  auto& space = std::get<Space>(found);
  // A loop tree tiles scans and what is placed, and merges axes itself.
  return space.running || space.placed ? std::move(space) : collapse(forms, fusion, space);
}

TiledKernel tile(const TilingRequest& request, const Space& space,
                 const std::optional<Schedule>& schedule) {
  if (schedule) check_schedule(request, space, *schedule);
  return emit_tiles(request, space, schedule ? *schedule : choose_schedule(request, space));
}

}  // namespace braze
