// import.h — makes a graph from the content of an .onnx file.
//
// Nodes are built in their order. Each row of a table (node.h) builds one operator from public
// functions of the builder. Symbolic extents become size symbols. Initializers become inputs after
// those of the model, or constants if they are small. Shape arithmetic is no special case: its
// nodes are built like all others, their values are known (known.h), and nodes that nothing else
// needs are dropped.
//
// If a node cannot be built, the nodes that do not depend on it are still tried. At the end, one
// error names all nodes that could not be built.
#pragma once

#include <string>

#include "braze/model.h"
#include "frontend/models/imported.h"
#include "frontend/models/onnx/file.h"

namespace braze::onnx {

/// The lowest and greatest version of ONNX's own operator set that is read.
inline constexpr int64_t kOldestOpset = 7, kNewestOpset = 28;

/// Messages name `path`, and data beside the file are found by it. It is "" if the model is not a
/// file.
Imported import_model(const ModelData& model, const std::string& path,
                      const ImportOptions& options);

}  // namespace braze::onnx
