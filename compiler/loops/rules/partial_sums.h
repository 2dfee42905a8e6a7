// partial_sums.h — long sums as sums of shorter ones.
//
// The error of a sum of n numbers that are added one after the other grows with the square root of
// n at best, and with n at worst. If n numbers are added in parts, the lengths of a part and of the
// sum of the parts count, but not n. Parts cost little: a block of sums leaves the registers once
// in some hundred turns.
#pragma once

#include "compiler/loops/rules/rules.h"

namespace braze {

/// Marks streams whose sums of floats have many terms, so that they become sums of partial sums.
/// How many terms these have depends on extents only, and not on the machine.
void sum_in_parts(Scheduled& out);

}  // namespace braze
