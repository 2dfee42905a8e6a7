// refusal.h — why a step does not apply to a tree, and the codes of these reasons.
#pragma once

#include <optional>
#include <string>

#include "braze/error.h"

namespace braze {

/// Why a step is not legal, and what would be legal.
struct Refusal {
  const Code* code;
  std::string why;
  std::string fix;
};

namespace codes {
inline constexpr Code kNoSuchName{
    "no-such-name", ErrorKind::InvalidArgument,
    "A step names a loop, value or tensor that the tree does not have."};
inline constexpr Code kNotConstant{
    "not-constant", ErrorKind::InvalidArgument,
    "A step needs an extent that is a constant, or a suitable multiple."};
inline constexpr Code kHasState{"has-state", ErrorKind::InvalidArgument,
                                "The turns of a loop change one state, so they must run in order."};
inline constexpr Code kNesting{
    "nesting", ErrorKind::InvalidArgument,
    "A loop does not stand where the part of the machine could take it."};
inline constexpr Code kBetween{"between", ErrorKind::InvalidArgument,
                               "Something stands between two loops that a step takes as one."};
inline constexpr Code kBoundsDepend{"bounds-depend", ErrorKind::InvalidArgument,
                                    "The bounds of a loop would no longer mean the same."};
inline constexpr Code kLevelsDiffer{"levels-differ", ErrorKind::InvalidArgument,
                                    "Two loops do not run over turns that fit each other."};
inline constexpr Code kKindsDiffer{"kinds-differ", ErrorKind::InvalidArgument,
                                   "Loops are of different kinds, or run in different directions."};
inline constexpr Code kMarked{"marked", ErrorKind::InvalidArgument,
                              "A loop or task has marks that the step would make wrong."};
inline constexpr Code kNotAnAxis{"not-an-axis", ErrorKind::InvalidArgument,
                                 "A value depends on an axis that it does not have."};
inline constexpr Code kOtherTurn{"other-turn", ErrorKind::InvalidArgument,
                                 "A turn reads what another turn makes."};
inline constexpr Code kMemoryOrder{
    "memory-order", ErrorKind::InvalidArgument,
    "A tensor is read and written, and the step would change the order."};
inline constexpr Code kCarried{"carried", ErrorKind::InvalidArgument,
                               "A task reads a state that its loop carries."};
inline constexpr Code kScanOrder{"scan-order", ErrorKind::InvalidArgument,
                                 "A scan needs its loops in their order and direction."};
inline constexpr Code kSeenApart{"seen-apart", ErrorKind::InvalidArgument,
                                 "Two axes are not used as one axis everywhere."};
inline constexpr Code kNeedsFinal{"needs-final", ErrorKind::InvalidArgument,
                                  "A loop reads what another loop has only after its last turn."};
inline constexpr Code kNotSeparable{"not-separable", ErrorKind::InvalidArgument,
                                    "A body that reads a running value has no factor to rescale."};
inline constexpr Code kIsState{"is-state", ErrorKind::InvalidArgument,
                               "A value cannot be made again where it is being made."};
inline constexpr Code kNotABox{"not-a-box", ErrorKind::InvalidArgument,
                               "The part of a tensor that a turn reads is not a box."};
inline constexpr Code kComputedAddress{
    "computed-address", ErrorKind::InvalidArgument,
    "The addresses of a copy depend on values that the kernel loads."};
inline constexpr Code kNoRoom{"no-room", ErrorKind::InvalidArgument,
                              "What a step puts on chip does not fit there."};
inline constexpr Code kNoCopies{
    "no-copies", ErrorKind::InvalidArgument,
    "There are no stages for which a ring or a role of copies could serve."};
inline constexpr Code kNotGrid{"not-grid", ErrorKind::InvalidArgument,
                               "Only a loop on grid can be dealt."};
inline constexpr Code kBadDeal{"bad-deal", ErrorKind::InvalidArgument,
                               "Orders of turns contradict each other."};
inline constexpr Code kGroups{"groups", ErrorKind::InvalidArgument, "Turns need two groups."};
inline constexpr Code kNotADot{"not-a-dot", ErrorKind::InvalidArgument,
                               "The step is for dots only."};
inline constexpr Code kUnitShape{"unit-shape", ErrorKind::InvalidArgument,
                                 "The unit cannot multiply tiles of this shape or dtype."};
inline constexpr Code kDigits{"digits", ErrorKind::InvalidArgument,
                              "A layout does not have the extents of the tile that it is for."};
inline constexpr Code kNotAffine{"not-affine", ErrorKind::InvalidArgument,
                                 "A condition or access is not affine in the index of the loop."};
inline constexpr Code kNoLimit{
    "no-limit", ErrorKind::InvalidArgument,
    "No task compares the index of a loop with an integer that is loaded."};
inline constexpr Code kNoRange{
    "no-range", ErrorKind::InvalidArgument,
    "No task compares integers that are loaded along a loop with others."};
inline constexpr Code kNoPick{
    "no-pick", ErrorKind::InvalidArgument,
    "No task chooses by a condition of which an earlier phase could find where it may hold."};
inline constexpr Code kNothingAlike{
    "nothing-alike", ErrorKind::InvalidArgument,
    "Loops compute nothing alike that one of them could make for all."};
inline constexpr Code kCopies{"copies", ErrorKind::InvalidArgument,
                              "A body would be emitted too many times."};
}  // namespace codes

}  // namespace braze
