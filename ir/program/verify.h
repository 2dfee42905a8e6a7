// verify.h — whether a Program refers only to what it has.
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

/// Everything about `program` that the runtime relies on and sizes do not decide. What they do
/// decide, such as the place of a slot in the arena, is checked when a call binds them.
std::vector<Diagnostic> verify(const Program& program);

}  // namespace braze
