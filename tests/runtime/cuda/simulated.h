// simulated.h — compiled kernels on the fake driver: it gets their text, and the simulator runs it.
#pragma once

#include "ir/program/program.h"

namespace braze::test {

/// From now on the fake driver runs the code of `for_fake`. What the simulator finds counts as
/// misuse.
void simulate_on_fake();

/// A program that was compiled for a simulated GPU, as one for the fake driver.
Program for_fake(Program program);

}  // namespace braze::test
