// target.h — Target: a machine that code is generated for, as a value. Like graph.h, it may change
// with any release.
#pragma once

#include "ir/target/target.h"
