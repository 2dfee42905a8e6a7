// program.h — Program: the result of `compile`, which an Executable runs. Like graph.h, it may
// change with any release.
#pragma once

#include "ir/program/program.h"
#include "ir/program/text.h"
