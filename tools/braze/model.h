// model.h — models on the command line: files of ONNX and StableHLO, taken wherever graph text is.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"
#include "braze/model.h"
#include "ir/graph/graph.h"
#include "ir/target/target.h"
#include "tools/braze/files.h"
#include "tools/braze/package.h"

namespace braze::tool {

class Arguments;

/// Whether the name of the file is that of a model.
bool is_model(const std::string& path);

/// --symbol and --value: facts about a model that its file does not determine.
struct ModelFlags {
  std::vector<std::string> symbols, values;

  void add_to(Arguments& arguments);
  /// Only --value, for commands whose --symbol has a meaning for texts too.
  void add_values_to(Arguments& arguments);
  /// Usage failure if one was given for a file that is not a model.
  void refuse_for_others() const;
  /// A fault in the file is a Failure with Exit::BadFile.
  Model load(const std::string& path, const CompileOptions& compile = {}) const;
};

/// What is compiled of a model for a target: its graph without what is computed from the weights
/// alone.
Graph graph_for(const Model& model, const Target& target);
/// The model on a device, with its weights.
Runnable load_runnable(const Model& model, const Device& device);

/// Writes the weights that a command puts beside its output as a .safetensors file. `command` is
/// recorded in it. Usage failure if a file of that name exists which `command` did not write: it
/// may be the source of the model.
void save_weights(const std::map<std::string, Array>& weights, const std::string& path,
                  std::string_view command);

}  // namespace braze::tool
