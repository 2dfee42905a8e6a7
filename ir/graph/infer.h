// infer.h — the type rules of all graph ops. The builder, the parser and the verifier use them.
#pragma once

#include <span>
#include <string>

#include "braze/error.h"
#include "ir/graph/graph.h"

namespace braze {

namespace codes {
inline constexpr Code kShapeMismatch{"shape-mismatch", ErrorKind::InvalidArgument,
                                     "The shapes of the operands do not fit the op."};
inline constexpr Code kDTypeMismatch{
    "dtype-mismatch", ErrorKind::InvalidArgument,
    "The dtypes of the operands do not fit the op; there is no implicit promotion."};
inline constexpr Code kBadAttribute{"bad-attribute", ErrorKind::InvalidArgument,
                                    "An attribute of the op is out of range."};
inline constexpr Code kBadExtent{
    "bad-extent", ErrorKind::InvalidArgument,
    "A tensor type has an extent that may be negative or has no bound, or too many elements."};
}  // namespace codes

/// Limits of a tensor type, so that sizes in bytes and offsets are far from overflow.
inline constexpr size_t kMaxRank = 32;
inline constexpr int64_t kMaxElements = int64_t{1} << 56;

/// The type of `op` on operands of these types. `wanted` gives what the operands do not determine:
/// the type of input, the shape of broadcast, reshape, windows, iota and random_bits, and the dtype
/// of convert, bitcast, iota and dot. If they do not fit together, it throws an InvalidArgument
/// that names the op, the types and `where`.
TensorType infer_type(const Op& op, std::span<const TensorType* const> operands,
                      const TensorType& wanted, SourceLocation where = {});

}  // namespace braze
