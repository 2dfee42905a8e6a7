// crossed_gpu.h — trees that reduce along rows and along the columns of the same data in one walk,
// as the gradient of a norm does with those of its scale and bias.
#pragma once

#include "compiler/loops/rules/rules.h"

namespace braze {

namespace codes {
inline constexpr Code kLongRows{
    "long-rows", ErrorKind::Unsupported,
    "The threads of a block cannot keep a row and the sums of its columns in registers."};
inline constexpr Code kFewRows{"few-rows", ErrorKind::Unsupported,
                               "There are too few rows for blocks that each walk several of them."};
inline constexpr Code kUncrossed{
    "uncrossed", ErrorKind::Unsupported,
    "The rows and the columns are not those of one walk, or something else stands beside it."};
}  // namespace codes

/// Whether the tree has one walk over rows, in which something is reduced along each row, and
/// something along the columns of all rows.
bool crosses(const LoopTree& tree);

}  // namespace braze
