// model.h — loads models from files, compiles them when they are called, and runs them.
//
//   Model m = load_model("model.onnx");                 // or "step.mlir": StableHLO, from JAX
//   Array y = m(x);                                     // one result
//   std::vector<Array> all = m.run({x, mask});          // in the order of m.outputs()
//   std::map<std::string, Array> named = m.run({{"x", x}, {"mask", mask}});
//
// A model is compiled for the device of its arguments when it is first called there. Extents that
// the file leaves open become symbols, so one compilation serves their whole range.
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

/// What you know about a model that its file does not say.
struct ImportOptions {
  /// Extents that the file leaves open, by their names in the file ("batch"). An extent without a
  /// name is found by its input and axis ("x_0"). The value is a number, or a symbol with its
  /// range:
  /// {"batch", "batch:1..64"}. Extents that are not given here range from 1 to 8192.
  std::map<std::string, Dim> sizes = {};
  /// The values of inputs that shall be constants, because shapes depend on them.
  std::map<std::string, Array> values = {};
  /// The same for scalars and lists, as numbers. They become values of the input's dtype.
  std::map<std::string, std::vector<int64_t>> numbers = {};
  CompileOptions compile = {};  ///< how to compile the model
};

/// A model. It is a cheap handle: copies share the weights and what was compiled. Any thread may
/// call it.
class Model {
 public:
  /// An input or output.
  struct Value {
    std::string name;  ///< as the file calls it
    Spec type;         ///< its dtype and shape, with symbols for extents that the file leaves open
  };

  std::vector<Value> inputs() const;   ///< in the order of the file
  std::vector<Value> outputs() const;  ///< in the order of the file

  /// Runs the model. The results may still be under computation. All arguments must be on one
  /// device. If one does not fit, InvalidArgument names the input and both types.
  std::vector<Array> run(std::span<const Array> arguments) const;
  /// The same with a list.
  std::vector<Array> run(std::initializer_list<Array> arguments) const {
    return run(std::span<const Array>(arguments.begin(), arguments.size()));
  }
  /// The same by name. It throws InvalidArgument if a name does not belong to an input, or if an
  /// input is missing.
  std::map<std::string, Array> run(const std::map<std::string, Array>& arguments) const;

  /// The result of a model that has one result. It throws InvalidArgument for other models.
  template <std::same_as<Array>... Arrays>
  Array operator()(const Arrays&... arguments) const {
    return only(run({arguments...}));
  }

  /// The graph. Its inputs are those of the model, followed by the weights.
  const Graph& graph() const;
  /// The weights by the names of the graph's inputs, on the host.
  std::map<std::string, Array> weights() const;
  /// The program that runs on a device. Its arguments are the inputs, followed by the Arrays of
  /// `weights_on`.
  Executable executable(const Device& device = default_device()) const;
  /// The weights in the form that the program for a device takes. Some are computed from the
  /// model's weights, once for each device. Others are the model's weights as they are.
  std::vector<Array> weights_on(const Device& device) const;
  /// The kernels of the program for a device, and why each edge was fused or not.
  std::string explain(const Device& device = default_device()) const;

  struct State;  ///< frontend/models
  explicit Model(std::shared_ptr<const State> state) : state_(std::move(state)) {}  ///< for Braze

 private:
  static Array only(std::vector<Array> results);
  std::shared_ptr<const State> state_;
};

/// Loads a model as one of the functions below does: ONNX if the file's name ends in .onnx, and
/// StableHLO if it ends in .mlir. It throws InvalidArgument for other names.
Model load_model(const std::string& path, const ImportOptions& options = {});

/// Loads an ONNX model. docs/guides/onnx.md says which models can be loaded. It throws NotFound if
/// there is no such file, and DataLoss if the file is cut off. If nodes cannot be imported, it
/// throws Unsupported, which lists all of them with the reasons.
Model load_onnx(const std::string& path, const ImportOptions& options = {});
/// The same from memory, which is not needed afterwards. Messages use `name`. Data in other files
/// are an error.
Model parse_onnx(std::span<const std::byte> bytes, const std::string& name = "model",
                 const ImportOptions& options = {});

/// Loads a StableHLO program as text, as JAX prints it. docs/guides/stablehlo.md says which
/// programs can be loaded. Arguments that the program donates are dead after a call. It throws
/// NotFound if there is no such file, and DataLoss if the text is not StableHLO. If operations
/// cannot be imported, it throws Unsupported, which lists all of them with the reasons.
Model load_stablehlo(const std::string& path, const ImportOptions& options = {});
/// The same from memory. Messages use `name`.
Model parse_stablehlo(std::string_view text, const std::string& name = "model",
                      const ImportOptions& options = {});

}  // namespace braze
