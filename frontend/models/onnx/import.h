// import.h — from what an .onnx file says to a graph.
//
// Nodes are built in their order, by rows of a table (node.h), from the public functions of the
// builder. Symbolic extents become size symbols. Initializers become inputs after those of the
// model, or constants if they are small. Shape arithmetic is no special case: its nodes are built
// like all others, their values are known (known.h), and nodes that nothing else needs are dropped.
//
// Nodes that cannot be built are collected, and all nodes that do not depend on them are tried. One
// error names them all.
#pragma once

#include <string>

#include "braze/model.h"
#include "frontend/models/imported.h"
#include "frontend/models/onnx/file.h"

namespace braze::onnx {

/// The lowest and greatest version of ONNX's own operators that is read.
inline constexpr int64_t kOldestOpset = 7, kNewestOpset = 28;

/// `path` serves for messages and to find data beside the file. It is "" if the model is not a
/// file.
Imported import_model(const ModelData& model, const std::string& path,
                      const ImportOptions& options);

}  // namespace braze::onnx
