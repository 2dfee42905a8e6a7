// pack.h — compiles functions ahead of time into a package, which braze/package.h loads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "braze/compile.h"

namespace braze {

struct PackOptions {
  /// Machines to generate code for: "x86-64-v3", "x86-64-v4", "sm_80", "sm_90a", "sim:sm_90";
  /// empty: this processor. With a GPU among them the package also holds PTX for sm_80, which the
  /// driver of any later GPU compiles when it loads it.
  std::vector<std::string> targets = {};
  /// A .safetensors file, or the .json index of several. An input gets the tensor of its own name,
  /// or of its name behind the first dot: "parameters.0.weight" gets "0.weight".
  std::string weights = {};
  bool embed_weights = false;  ///< puts them into the package; else it names the file beside it
  /// Tensors for inputs, by name, where the names differ.
  std::map<std::string, std::string> bind = {};
  CompileOptions compile = {};  ///< for every target
  /// The file of a secret key (`braze key new`) that signs the package; empty: it is not signed.
  std::string sign_key = {};
};

/// A function to pack: Graph IR as text, as `Jitted::graph` gives it. It is called as its graph.
struct PackedGraph {
  std::string text;            ///< graph text, or that of a kernel
  std::string file = "graph";  ///< for messages
};

/// What was written.
struct PackSummary {
  uint64_t bytes = 0;     ///< size of the file
  int programs = 0;       ///< functions times targets
  int bound_weights = 0;  ///< inputs that have a weight
  double seconds = 0;     ///< of compilation
};

/// Writes a package, by rename; the same input gives the same bytes. InvalidArgument if the graphs,
/// targets or weights do not fit, as when a weight of `bind` is missing or one has another type
/// than its input, or if the key is none; errors of compilation; DataLoss if a file cannot be read
/// or written.
PackSummary save_package(const std::string& path, const std::vector<PackedGraph>& functions,
                         const PackOptions& options = {});

}  // namespace braze
