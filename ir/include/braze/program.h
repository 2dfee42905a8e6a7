// program.h — Program: what `compile` makes and an Executable runs. As graph.h, it may change with
// any release.
#pragma once

#include "ir/program/program.h"
#include "ir/program/text.h"
