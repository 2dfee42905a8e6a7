#include "compiler/tiling/tile.h"

#include "compiler/fusion/reasons.h"
#include "compiler/tiling/families.h"
#include "ir/support/text.h"

namespace braze {

namespace {

using Family = std::optional<Schedule> (*)(const TilingRequest&, const Space&);

// In order of preference.
constexpr Family kFamilies[] = {schedule_pointwise, schedule_contraction, schedule_reduction};

constexpr Code kNoFamily{"no-schedule", ErrorKind::Unsupported, "No schedule family accepts the fusion."};

}  // namespace

Schedule choose_schedule(const TilingRequest& request, const Space& space) {
  for (const Family& family : kFamilies)
    if (auto schedule = family(request, space)) return *schedule;
  fail(kNoFamily, fmt::format("no schedule family accepts kernel {}", request.name));
}

TiledKernel tile(const TilingRequest& request, const std::optional<Schedule>& schedule) {
  auto found = find_space(request.forms, request.fusion);
  if (const auto* none = std::get_if<NoSpace>(&found))
    fail(*none->code, fmt::format("kernel {}: nodes {} and {} share no iteration space", request.name, none->first.index, none->second.index));
  const Space space = collapse(request.forms, request.fusion, std::get<Space>(found));
  return emit_tiles(request, space, schedule ? *schedule : choose_schedule(request, space));
}

}  // namespace braze
