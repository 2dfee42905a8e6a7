// verify.h — checks that a Program refers only to things that it contains.
#pragma once

#include <vector>

#include "braze/error.h"
#include "ir/program/program.h"

namespace braze {

namespace codes {
inline constexpr Code kMalformedProgram{
    "malformed-program", ErrorKind::DataLoss,
    "A program refers to something that does not exist, or contradicts itself."};
}  // namespace codes

/// Checks everything on which the runtime relies and that does not depend on sizes. What depends on
/// sizes, such as the place of a slot in the arena, is checked when a call binds them.
std::vector<Diagnostic> verify(const Program& program);

}  // namespace braze
