// import.h — makes a graph from a text of StableHLO.
//
// Operations are built in their order. Each row of a table (node.h) builds one operation from
// public functions of the builder. Calls are inlined. A loop is unrolled if its condition is known
// in each turn. A branch is chosen if its condition is known, and else all branches are computed.
// Some files check values with custom calls named check.*. Each of these becomes further results
// behind the file's own.
//
// If an operation cannot be built, the operations that do not depend on it are still tried. At the
// end, one error names all operations that could not be built.
#pragma once

#include <string>

#include "braze/model.h"
#include "frontend/models/imported.h"
#include "frontend/models/stablehlo/syntax.h"

namespace braze::stablehlo {

/// `name` is the file's name, which messages show.
Imported import_model(const Module& module, const std::string& name, const ImportOptions& options);

}  // namespace braze::stablehlo
