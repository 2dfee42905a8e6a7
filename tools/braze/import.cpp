// import.cpp — braze import: converts a model to graph text, with its weights beside it.
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "ir/graph/text.h"
#include "ir/support/text.h"
#include "ir/support/words.h"
#include "runtime/io/file_writer.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/files.h"
#include "tools/braze/model.h"
#include "tools/braze/package.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

struct Options {
  std::string file, output;
  bool json = false;
  ModelFlags model;
  LibraryFlags libraries;
};

std::string types_text(const std::vector<Model::Value>& values) {
  return join(values, ", ", [](const Model::Value& value) {
    return fmt::format("{}: {}", printable(value.name), value.type.to_string());
  });
}

Exit import(const Options& options) {
  if (!is_model(options.file))
    fail_usage(fmt::format("{} is not a model, because its name ends neither in .onnx nor in .mlir",
                           options.file));
  const std::string weights =
      std::filesystem::path(options.output).replace_extension(".safetensors").string();
  check_overwrites({{options.file, "is imported"}}, {options.output, weights});
  options.libraries.load();
  const Model model = options.model.load(options.file);
  const std::string text = to_text(model.graph());
  const std::map<std::string, Array> values = model.weights();
  if (!values.empty()) save_weights(values, weights, "braze import");
  FileWriter file(options.output);
  file.append(text);
  file.publish();
  if (options.json) {
    json::print({{"graph", json::string(options.output)},
                 {"weights", values.empty() ? "null" : json::string(weights)},
                 {"ops", std::to_string(model.graph().size())},
                 {"weight_count", std::to_string(values.size())}});
    return Exit::Ok;
  }
  fmt::print("{}: {}\n  inputs   {}\n  outputs  {}\n", options.output,
             count_text(model.graph().size(), "op"), types_text(model.inputs()),
             types_text(model.outputs()));
  if (!values.empty()) fmt::print("  {} in {}\n", count_text(values.size(), "weight"), weights);
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.add_option("FILE", options->file, "Model (.onnx, or .mlir with StableHLO)").required();
  arguments
      .add_option("-o,--output", options->output,
                  "Graph text to write; the weights go into a .safetensors file beside it")
      .required();
  options->model.add_to(arguments);
  options->libraries.add_to(arguments);
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return import(*options); };
}

}  // namespace

const Command kImport = {
    "import", "Converts a model to graph text and weights.",
    "  braze import model.onnx -o model.braze                      # and model.safetensors\n"
    "  braze import model.onnx -o model.braze --symbol batch=1..64 # the range of a size\n"
    "  braze import model.onnx -o model.braze --symbol batch=1 --value axes=0,1\n",
    add};

}  // namespace braze::tool
