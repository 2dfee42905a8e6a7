// check_schedule.h — checks whether a schedule that the user gave fits its kernel and its machine.
#pragma once

#include "braze/error.h"
#include "compiler/tiling/emitter.h"

namespace braze {

namespace codes {
inline constexpr Code kBadSchedule{
    "bad-schedule", ErrorKind::InvalidArgument,
    "The text of a schedule is malformed or does not fit its kernel."};
}  // namespace codes

/// InvalidArgument, with what would fit, if `schedule` has keys without a meaning for the kernel or
/// values that are out of range. A schedule that the rules choose always passes.
void check_schedule(const TilingRequest& request, const Space& space, const Schedule& schedule);

}  // namespace braze
