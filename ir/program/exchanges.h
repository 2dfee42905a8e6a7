// exchanges.h — what a Program says about its collectives and custom calls.
#pragma once

#include <string>

#include "ir/program/program.h"

namespace braze {

/// Sets the fields of a collective that follow from its slots: its instances, and the bytes that it
/// reads and writes.
void describe_exchange(const Program& program, Launch& launch);

/// Sets the bytes that a custom call reads and writes, which follow from its slots.
void describe_custom_call(const Program& program, Launch& launch);

/// The bytes that each device receives in a collective of the program.
Expr received_bytes(const Program& program, const Launch& launch);

/// One line for each collective, in order: what it exchanges, how many bytes each device receives,
/// how long that takes on the Target at full rate, and its bound of blocks. The sizes are the
/// largest possible ones. It is empty if there are no collectives.
std::string exchanges_text(const Program& program);

}  // namespace braze
