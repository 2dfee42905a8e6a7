// import.h — from what an .onnx file says to a graph.
//
// Nodes are built in their order, by rows of a table (node.h), from the public functions of the
// builder. Symbolic extents become size symbols; initializers become inputs behind the model's own,
// or constants where they are small. Shape arithmetic needs no case of its own: its nodes are built
// like all others, their values are known (known.h), and what nothing else needs is left behind.
//
// Nodes that cannot be built are collected, with all others that do not depend on them tried: one
// error names them all.
#pragma once

#include <string>

#include "braze/model.h"
#include "frontend/models/imported.h"
#include "frontend/models/onnx/file.h"

namespace braze::onnx {

/// The lowest and greatest version of ONNX's own operators that is read.
inline constexpr int64_t kOldestOpset = 7, kNewestOpset = 28;

/// `path` is for messages and for data beside the file; "" where the model is no file.
Imported import_model(const ModelData& model, const std::string& path,
                      const ImportOptions& options);

}  // namespace braze::onnx
