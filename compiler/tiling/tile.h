// tile.h — chooses the blocks and tiles for which the cost model prices a space, if its price is
// not read from a tree.
//
// A family is a rule that fills in a Schedule for the kernels that it suits (families.h). The first
// family that accepts a kernel decides.
#pragma once

#include <optional>

#include "compiler/tiling/families.h"

namespace braze {

/// The schedule that the rules choose. Throws Unsupported if no family accepts the fusion.
Schedule choose_schedule(const TilingRequest& request, const Space& space);

/// The space of a fusion, with axes merged if that loses nothing. It is empty if the nodes share no
/// space.
Space tiling_space(const LoopForms& forms, const Fusion& fusion);

/// The space with neighbouring axes merged, if every access of the fusion runs through them with
/// one stride.
Space collapse(const LoopForms& forms, const Fusion& fusion, const Space& space);

}  // namespace braze
