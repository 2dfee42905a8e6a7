// model.h — models that come as files: loaded, compiled where they are called, and run.
//
//   Model m = load_model("model.onnx");                 // or "step.mlir": StableHLO, from JAX
//   Array y = m(x);                                     // one result
//   std::vector<Array> all = m.run({x, mask});          // in the order of m.outputs()
//   std::map<std::string, Array> named = m.run({{"x", x}, {"mask", mask}});
//
// A model is compiled for the device of its arguments when it is first called there. Extents that
// the file leaves open become symbols, so that one compilation serves their range.
#pragma once

#include <concepts>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/array.h"
#include "braze/compile.h"
#include "braze/executable.h"
#include "braze/jit.h"
#include "braze/tensor.h"

namespace braze {

class Graph;

/// What is known of a model besides its file.
struct ImportOptions {
  /// Extents, by the names that the file gives them ("batch"), or of those without one by input and
  /// axis ("x_0"): a number, or a symbol with its range: {"batch", "batch:1..64"}. Others range
  /// from 1 to 8192.
  std::map<std::string, Dim> sizes = {};
  /// Inputs that are constants: those that the shape of something depends on.
  std::map<std::string, Array> values = {};
  CompileOptions compile = {};  ///< how to compile the model
};

/// A model. A cheap handle: copies share weights and what was compiled. May be called from any
/// thread.
class Model {
 public:
  /// An input or output.
  struct Value {
    std::string name;  ///< as the file calls it
    Spec type;         ///< its dtype and shape, with symbols for extents that the file leaves open
  };

  std::vector<Value> inputs() const;   ///< in the order of the file
  std::vector<Value> outputs() const;  ///< in the order of the file

  /// The results, which may still be computing. InvalidArgument names the input that does not fit,
  /// and both types; all arguments are on one device.
  std::vector<Array> run(std::span<const Array> arguments) const;
  /// The same with a list.
  std::vector<Array> run(std::initializer_list<Array> arguments) const {
    return run(std::span<const Array>(arguments.begin(), arguments.size()));
  }
  /// By name. InvalidArgument for a name that is no input's, and for one that is missing.
  std::map<std::string, Array> run(const std::map<std::string, Array>& arguments) const;

  /// The result of a model that has one. InvalidArgument for others.
  template <std::same_as<Array>... Arrays>
  Array operator()(const Arrays&... arguments) const {
    return only(run({arguments...}));
  }

  /// The graph: inputs as above, then the weights.
  const Graph& graph() const;
  /// The weights by the names of the graph's inputs, on the host.
  std::map<std::string, Array> weights() const;
  /// The program that runs on a device; its arguments are the inputs, and then what weights_on
  /// gives.
  Executable executable(const Device& device = default_device()) const;
  /// What is computed from the weights alone, once for a device, and the weights that its program
  /// takes as they are.
  std::vector<Array> weights_on(const Device& device) const;
  /// The kernels of the program for a device and why each edge was fused or not.
  std::string explain(const Device& device = default_device()) const;

  struct State;  ///< frontend/models
  explicit Model(std::shared_ptr<const State> state) : state_(std::move(state)) {}  ///< for Braze

 private:
  static Array only(std::vector<Array> results);
  std::shared_ptr<const State> state_;
};

/// A model in a file: ONNX if its name ends in .onnx, StableHLO if it ends in .mlir.
/// InvalidArgument for other names; else as below.
Model load_model(const std::string& path, const ImportOptions& options = {});

/// A model of ONNX: docs/guides/onnx.md says which. Errors: NotFound and DataLoss for a path that
/// is none and a file cut off; Unsupported, with every node that cannot be imported and why.
Model load_onnx(const std::string& path, const ImportOptions& options = {});
/// The same from memory, which may go afterwards. `name` is for messages. Data in other files are
/// an error.
Model parse_onnx(std::span<const std::byte> bytes, const std::string& name = "model",
                 const ImportOptions& options = {});

/// A program of StableHLO as text, as JAX prints it: docs/guides/stablehlo.md says which. Arguments
/// that the program donates are dead after a call. Errors: NotFound, DataLoss for a text that
/// follows no form of it, and Unsupported, with every operation that cannot be imported and why.
Model load_stablehlo(const std::string& path, const ImportOptions& options = {});
/// The same from memory. `name` is for messages.
Model parse_stablehlo(std::string_view text, const std::string& name = "model",
                      const ImportOptions& options = {});

}  // namespace braze
