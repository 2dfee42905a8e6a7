// source.h — the files that the tool reads: a graph, a tile program or a kernel, known by its
// header. A loop tree is read as the tile program that is emitted from it.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "braze/compile.h"
#include "ir/code/code.h"
#include "ir/graph/graph.h"
#include "ir/program/program.h"
#include "ir/target/target.h"

namespace braze::tool {

using Source = std::variant<Graph, TileProgram, Kernel>;

/// Reads a file, or stdin for "-"; of a model (model.h) the graph alone. What is wrong with it is a
/// Failure with Exit::BadFile.
Source read_source(const std::string& path);
/// The same for what is to run. Loop, tile and kernel text is code, for its author chose what its
/// addresses are; it is taken from stdin or by the rules of runtime/io/trust.h, unless
/// `trust_any_owner`. A graph has no addresses.
Source read_runnable_source(const std::string& path, bool trust_any_owner);
/// The same for commands that serve graphs only: Unsupported for the other two. `text` receives
/// what the file holds.
Graph read_graph(const std::string& path, std::string_view command, std::string* text = nullptr);

/// What is wrong with the text for this target is a Failure with Exit::Compile.
Program compile_source(const Source& source, const Target& target, const CompileOptions& options);
/// The same from the cache on disk, where it was compiled before.
std::shared_ptr<const Program> cached_source(const Source& source, const Target& target,
                                             const CompileOptions& options);

}  // namespace braze::tool
