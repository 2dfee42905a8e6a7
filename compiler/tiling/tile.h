// tile.h — Fusion + Target + Schedule -> tile program.
//
// A family is a rule that fills in a Schedule for the fusions it suits; families.h lists them. The
// first family that accepts a fusion tiles it.
#pragma once

#include <optional>

#include "compiler/tiling/emitter.h"

namespace braze {

/// The schedule that the rules choose. Unsupported if no family accepts the fusion.
Schedule choose_schedule(const TilingRequest& request, const Space& space);

/// The space to tile a fusion over, with axes merged where that loses nothing. Unsupported, with
/// the fusion's reason, if its nodes share none.
Space tiling_space(const LoopForms& forms, const Fusion& fusion);

/// Tiles a fusion; by `schedule` if given, else by the rules. InvalidArgument if that does not fit.
TiledKernel tile(const TilingRequest& request, const Space& space,
                 const std::optional<Schedule>& schedule = {});

}  // namespace braze
