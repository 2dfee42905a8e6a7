#include "braze/model.h"

#include <algorithm>
#include <mutex>

#include "frontend/builder/builder.h"
#include "frontend/builder/compiled.h"
#include "frontend/models/onnx/import.h"
#include "frontend/models/prepared_weights.h"
#include "frontend/models/stablehlo/import.h"
#include "ir/graph/origins.h"
#include "ir/program/program.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"
#include "runtime/io/mapped_file.h"

namespace braze {

namespace codes {
inline constexpr Code kModelCall{"model-call", ErrorKind::InvalidArgument,
                                 "The arguments or results of a call are not those of the model."};
inline constexpr Code kModelName{"model-name", ErrorKind::InvalidArgument,
                                 "The name of a file does not say what kind of model it is."};
}  // namespace codes

namespace {

Spec spec_of(const TensorType& type) { return spec(type.dtype, to_dims(type.shape)); }

}  // namespace

struct Model::State {
  Imported model;
  CompileOptions compile;

  // What was loaded on one device.
  struct OnDevice {
    Executable executable;
    std::vector<Array> weights;
  };

  State(Imported imported, CompileOptions options)
      : model(std::move(imported)), compile(std::move(options)) {}

  const Graph& graph() const { return model.graph; }
  size_t input_count() const { return graph().inputs().size() - model.weights.size(); }
  const std::string& input_name(size_t i) const {
    return graph()[graph().inputs()[i]].as<InputOp>()->name;
  }

  const OnDevice& on(const Device& device) const {
    const std::lock_guard lock(mutex);
    const auto found = devices.find(device.name());
    if (found != devices.end()) return found->second;
    const Prepared prepared = prepare(graph(), input_count(), device.target());
    OnDevice made{compiled_executable(prepared.graph, device, compile),
                  prepared_weights(
                      prepared,
                      [&](size_t input) {
                        return Array::from_host(*model.weights[input - input_count()], device);
                      },
                      device, compile)};
    return devices.emplace(device.name(), std::move(made)).first->second;
  }

  mutable std::mutex mutex;
  mutable std::map<std::string, OnDevice> devices;
};

std::vector<Model::Value> Model::inputs() const {
  std::vector<Value> out;
  for (size_t i = 0; i < state_->input_count(); ++i)
    out.push_back({state_->input_name(i), spec_of(graph()[graph().inputs()[i]].type)});
  return out;
}

std::vector<Model::Value> Model::outputs() const {
  std::vector<Value> out;
  for (const GraphOutput& output : graph().outputs())
    out.push_back({output.name, spec_of(graph()[output.node].type)});
  return out;
}

std::vector<Array> Model::run(std::span<const Array> arguments) const {
  if (arguments.size() != state_->input_count())
    fail(codes::kModelCall, fmt::format("{} takes {} arguments and is given {}", graph().name(),
                                        state_->input_count(), arguments.size()));
  const Device device = arguments.empty() ? default_device() : arguments[0].device();
  const State::OnDevice& made = state_->on(device);
  std::vector<Array> all(arguments.begin(), arguments.end());
  all.insert(all.end(), made.weights.begin(), made.weights.end());
  return made.executable.run(all);
}

std::map<std::string, Array> Model::run(const std::map<std::string, Array>& arguments) const {
  std::vector<Array> in_order;
  std::vector<std::string> names;
  for (size_t i = 0; i < state_->input_count(); ++i) {
    names.push_back(state_->input_name(i));
    const auto found = arguments.find(names.back());
    if (found == arguments.end())
      fail(codes::kModelCall,
           fmt::format("{} is given no {}", graph().name(), quote(names.back())));
    in_order.push_back(found->second);
  }
  for (const auto& [name, value] : arguments)
    if (std::ranges::find(names, name) == names.end())
      fail(codes::kModelCall, fmt::format("{} has no input {}{}", graph().name(), quote(name),
                                          did_you_mean(name, names)));
  std::vector<Array> results = run(in_order);
  std::map<std::string, Array> out;
  for (size_t i = 0; i < results.size(); ++i)
    out.emplace(graph().outputs()[i].name, std::move(results[i]));
  return out;
}

Array Model::only(std::vector<Array> results) {
  if (results.size() != 1)
    fail(codes::kModelCall,
         fmt::format("a call like a function gives one result, and this model has {}",
                     results.size()),
         {.location = {}, .node = {}, .fix = "use run, which gives all"});
  return std::move(results[0]);
}

const Graph& Model::graph() const { return state_->graph(); }

std::map<std::string, Array> Model::weights() const {
  std::map<std::string, Array> out;
  for (size_t i = 0; i < state_->model.weights.size(); ++i)
    out.emplace(state_->input_name(state_->input_count() + i),
                Array::from_host(*state_->model.weights[i], "cpu"));
  return out;
}

Executable Model::executable(const Device& device) const { return state_->on(device).executable; }
std::vector<Array> Model::weights_on(const Device& device) const {
  return state_->on(device).weights;
}

std::string Model::explain(const Device& device) const {
  const Program& program = state_->on(device).executable.program();
  return with_locations(program.report, program.locations);
}

namespace {

Model import_bytes(std::span<const std::byte> bytes, const std::string& name,
                   const std::string& path, const ImportOptions& options) {
  const onnx::ModelData data = onnx::parse_model(bytes, name);
  return Model(std::make_shared<const Model::State>(onnx::import_model(data, path, options),
                                                    options.compile));
}

}  // namespace

Model load_model(const std::string& path, const ImportOptions& options) {
  if (path.ends_with(".onnx")) return load_onnx(path, options);
  if (path.ends_with(".mlir")) return load_stablehlo(path, options);
  fail(codes::kModelName, fmt::format("{} ends neither in .onnx nor in .mlir", quote(path)),
       {.location = {}, .node = {}, .fix = "call load_onnx or load_stablehlo"});
}

Model load_onnx(const std::string& path, const ImportOptions& options) {
  const auto file = MappedFile::open_stable(path);
  return import_bytes(file->bytes(), path, path, options);
}

Model parse_onnx(std::span<const std::byte> bytes, const std::string& name,
                 const ImportOptions& options) {
  return import_bytes(bytes, name, "", options);
}

namespace {

Model import_text(std::string_view text, const std::string& name, const ImportOptions& options) {
  return Model(std::make_shared<const Model::State>(
      stablehlo::import_model(stablehlo::parse_module(text, name), name, options),
      options.compile));
}

}  // namespace

Model load_stablehlo(const std::string& path, const ImportOptions& options) {
  const auto file = MappedFile::open_stable(path);
  const std::span<const std::byte> bytes = file->bytes();
  return import_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, options);
}

Model parse_stablehlo(std::string_view text, const std::string& name,
                      const ImportOptions& options) {
  return import_text(text, name, options);
}

}  // namespace braze
