// import.h — from what a text of StableHLO says to a graph.
//
// Operations are built in their order, by rows of a table (node.h), from the public functions of
// the builder. Calls are inlined. A loop is unrolled whose condition is known turn by turn; a
// branch is chosen where its condition is known, and else both are computed. What a file checks
// (custom calls named check.*) becomes pairs of results behind the file's own.
//
// Operations that cannot be built are collected, with all others that do not depend on them tried:
// one error names them all.
#pragma once

#include <string>

#include "braze/model.h"
#include "frontend/models/imported.h"
#include "frontend/models/stablehlo/syntax.h"

namespace braze::stablehlo {

/// `name` is the file's, for messages.
Imported import_model(const Module& module, const std::string& name, const ImportOptions& options);

}  // namespace braze::stablehlo
