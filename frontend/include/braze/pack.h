// pack.h — compiles functions ahead of time into a package, which braze/package.h loads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "braze/compile.h"

namespace braze {

/// Targets, weights and compilation of a package.
struct PackOptions {
  /// The targets to generate code for: "x86-64-v3", "x86-64-v4", "sm_80", "sm_90a", "sim:sm_90". If
  /// the list is empty, it is this processor. If a GPU is among them, the package also holds PTX
  /// for sm_80, of functions that can run there. The driver of any later GPU compiles it when it
  /// loads the package.
  std::vector<std::string> targets = {};
  /// A .safetensors file, or the .json index of several. An input gets the tensor with its own
  /// name. If there is none, it gets the tensor with its name after the first dot:
  /// "parameters.0.weight" gets "0.weight".
  std::string weights = {};
  bool embed_weights = false;  ///< true: the package has a copy; false: it names the file
  /// For inputs whose tensor has another name: that name, by the name of the input.
  std::map<std::string, std::string> bind = {};
  /// How to compile, for every target. Schedules are for the targets that are named here.
  CompileOptions compile = {};
  /// The file of a secret key (`braze key new`) that signs the package. If empty, it is not signed.
  std::string sign_key = {};
};

/// A function for a package: Graph IR as text, as from `Jitted::graph`. It has the graph's name.
struct PackedGraph {
  std::string text;            ///< the text of a graph or a kernel
  std::string file = "graph";  ///< its name in messages
};

/// What was written into a package.
struct PackSummary {
  uint64_t bytes = 0;     ///< size of the file
  int programs = 0;       ///< functions times targets
  int bound_weights = 0;  ///< inputs that have a weight
  double seconds = 0;     ///< the time of compilation
};

/// Writes a package. The file is written under another name and then renamed. The same input gives
/// the same bytes. It throws InvalidArgument if graphs, targets or weights do not fit, if a weight
/// of `bind` is missing, if a weight has another type than its input, or if the key is not a secret
/// key. It also throws the errors of compilation, and DataLoss if a file cannot be read or written.
PackSummary save_package(const std::string& path, const std::vector<PackedGraph>& functions,
                         const PackOptions& options = {});

}  // namespace braze
