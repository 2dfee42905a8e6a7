// exchanges.h — what a Program says of its collectives.
#pragma once

#include <string>

#include "ir/program/program.h"

namespace braze {

/// Fills in what follows from the slots of a collective: its instances, and the bytes that it reads
/// and writes.
void describe_exchange(const Program& program, Launch& launch);

/// The bytes that each device receives in a collective of the program.
Expr received_bytes(const Program& program, const Launch& launch);

/// One line for each collective, in order: what it exchanges, how many bytes each device receives,
/// and how long that takes, at the largest sizes, by the Target. Empty without collectives.
std::string exchanges_text(const Program& program);

}  // namespace braze
