// refusal.h — why a step does not apply to a tree.
#pragma once

#include <optional>
#include <string>

#include "braze/error.h"

namespace braze {

/// Why a step is not legal, and what would be.
struct Refusal {
  const Code* code;
  std::string why;
  std::string fix;
};

namespace codes {
inline constexpr Code kNoSuchName{"no-such-name", ErrorKind::InvalidArgument,
                                  "A step names a loop, value or tensor that the tree has not."};
inline constexpr Code kNotConstant{"not-constant", ErrorKind::InvalidArgument,
                                   "A step needs an extent that is a constant."};
inline constexpr Code kHasState{"has-state", ErrorKind::InvalidArgument,
                                "Turns of a loop change one state, so that they have an order."};
inline constexpr Code kNesting{"nesting", ErrorKind::InvalidArgument,
                               "A loop does not stand where a part of the machine can take it."};
inline constexpr Code kBetween{"between", ErrorKind::InvalidArgument,
                               "Something stands between two loops that a step takes as one."};
inline constexpr Code kBoundsDepend{"bounds-depend", ErrorKind::InvalidArgument,
                                    "The bounds of a loop would change their meaning."};
inline constexpr Code kLevelsDiffer{"levels-differ", ErrorKind::InvalidArgument,
                                    "Loops do not run over the same turns."};
inline constexpr Code kKindsDiffer{"kinds-differ", ErrorKind::InvalidArgument,
                                   "Loops are of unlike kinds, or run in unlike directions."};
inline constexpr Code kMarked{"marked", ErrorKind::InvalidArgument,
                              "A loop has marks that would lose their meaning."};
inline constexpr Code kNotAnAxis{"not-an-axis", ErrorKind::InvalidArgument,
                                 "A value differs along an axis that it does not have."};
inline constexpr Code kOtherTurn{"other-turn", ErrorKind::InvalidArgument,
                                 "What a turn reads is made in another turn."};
inline constexpr Code kMemoryOrder{"memory-order", ErrorKind::InvalidArgument,
                                   "A tensor is read and written, and a step changes the order."};
inline constexpr Code kCarried{"carried", ErrorKind::InvalidArgument,
                               "A task reads what its loop carries."};
inline constexpr Code kScanOrder{"scan-order", ErrorKind::InvalidArgument,
                                 "A scan runs one way along its axis."};
inline constexpr Code kSeenApart{"seen-apart", ErrorKind::InvalidArgument,
                                 "Two axes do not stand everywhere as one."};
inline constexpr Code kNeedsFinal{"needs-final", ErrorKind::InvalidArgument,
                                  "A loop reads what another has only after its last turn."};
inline constexpr Code kNotSeparable{"not-separable", ErrorKind::InvalidArgument,
                                    "A body that reads a running value has no factor to rescale."};
inline constexpr Code kIsState{"is-state", ErrorKind::InvalidArgument,
                               "A value cannot be made again where it is being made."};
inline constexpr Code kNotABox{"not-a-box", ErrorKind::InvalidArgument,
                               "What a turn reads of a tensor is no box."};
inline constexpr Code kComputedAddress{"computed-address", ErrorKind::InvalidArgument,
                                       "Addresses of a copy depend on what the kernel reads."};
inline constexpr Code kNoRoom{"no-room", ErrorKind::InvalidArgument,
                              "What a step puts on chip does not fit there."};
inline constexpr Code kNoCopies{"no-copies", ErrorKind::InvalidArgument,
                                "There are no stages for a ring, or for a role of their own."};
inline constexpr Code kNotGrid{"not-grid", ErrorKind::InvalidArgument,
                               "Only turns of a loop on grid are dealt."};
inline constexpr Code kBadDeal{"bad-deal", ErrorKind::InvalidArgument,
                               "Orders of turns contradict each other."};
inline constexpr Code kGroups{"groups", ErrorKind::InvalidArgument,
                              "Turns are taken by two groups."};
inline constexpr Code kNotADot{"not-a-dot", ErrorKind::InvalidArgument,
                               "Only a dot is done by a unit."};
inline constexpr Code kUnitShape{"unit-shape", ErrorKind::InvalidArgument,
                                 "A dot's tile or dtype is not one that the unit multiplies."};
inline constexpr Code kDigits{"digits", ErrorKind::InvalidArgument,
                              "A layout does not have the extents of the tile that it is for."};
inline constexpr Code kNotAffine{"not-affine", ErrorKind::InvalidArgument,
                                 "A condition is not affine in the index of the loop."};
inline constexpr Code kCopies{"copies", ErrorKind::InvalidArgument,
                              "A body would be emitted too often."};
}  // namespace codes

}  // namespace braze
