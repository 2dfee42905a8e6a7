// ranges.h — how the step `limit` finds the turns of a loop in which comparisons of integers from
// memory may hold, such as those of the documents of keys and queries.
//
// A new first phase takes the least and the greatest of the integers, in each turn of the loop and
// of those around it. From these it finds the first and the last turn in which the comparisons may
// hold, and the first and the last one in which they hold for all indices.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// Why no comparisons bound the loop in this way; nullopt if some do. Turns in which they never
/// hold must change nothing.
std::optional<Refusal> refuse_range(const LoopTree& tree, const ItemPlace& place);
/// The tree with the new phase, bounds, and parts of the loop. No loop of the phase is dealt to the
/// machine or split yet.
LoopTree find_range(const LoopTree& tree, const ItemPlace& place);

}  // namespace braze
