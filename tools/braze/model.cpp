#include "tools/braze/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "braze/graph.h"
#include "braze/io.h"
#include "compiler/passes/prepare.h"
#include "ir/support/text.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"

namespace braze::tool {

namespace {

std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// NAME and what stands behind the last '='.
std::pair<std::string, std::string> halves(const std::string& option, const std::string& flag) {
  const size_t equals = flag.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == flag.size())
    fail_usage(fmt::format("{} must be NAME=..., not {}", option, flag));
  return {flag.substr(0, equals), flag.substr(equals + 1)};
}

// "16", "1..64" or "8..1024%8".
Dim size_of(const std::string& name, const std::string& text) {
  const auto value = integer(text);
  if (value && *value >= 0) return Dim(*value);
  std::string symbol = name;
  for (char& c : symbol)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  try {
    return Dim((symbol + ":" + text).c_str());
  } catch (const Error&) {
    fail_usage(fmt::format("--symbol must be NAME=16, NAME=1..64 or NAME=8..1024%8, not {}={}",
                           name, text));
  }
}

// Whole numbers with commas between.
std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto number = integer(std::string_view(text).substr(begin, end - begin));
    if (!number)
      fail_usage(fmt::format("--value must be NAME=a.npy or NAME=1,2,3, not {}", quote(text)));
    numbers.push_back(*number);
    begin = end + 1;
  }
  return numbers;
}

// The name of the metadata that say which command wrote weights.
constexpr const char* kWriter = "written by";

bool wrote(std::string_view command, const std::string& weights) {
  try {
    const auto metadata = load_safetensors_metadata(weights);
    const auto writer = metadata.find(kWriter);
    return writer != metadata.end() && writer->second == command;
  } catch (const Error&) {
    return false;  // not even weights
  }
}

}  // namespace

bool is_model(const std::string& path) {
  return path.ends_with(".onnx") || path.ends_with(".mlir");
}

void ModelFlags::add_to(Arguments& arguments) {
  arguments
      .add_option("--symbol", symbols,
                  "NAME=16 or NAME=1..64: a size that the file of a model leaves open")
      .several();
  add_values_to(arguments);
}

void ModelFlags::add_values_to(Arguments& arguments) {
  arguments
      .add_option("--value", values,
                  "NAME=a.npy or NAME=1,2,3: an input of a model that becomes a constant")
      .several();
}

void ModelFlags::refuse_for_others() const {
  if (!values.empty()) fail_usage("--value is for models (.onnx, .mlir)");
}

Model ModelFlags::load(const std::string& path, const CompileOptions& compile) const {
  return blame(Exit::BadFile, [&] {
    ImportOptions options{.compile = compile};
    for (const std::string& flag : symbols) {
      const auto [name, text] = halves("--symbol", flag);
      options.sizes.insert_or_assign(name, size_of(name, text));
    }
    for (const std::string& flag : values) {
      const auto [name, text] = halves("--value", flag);
      if (text.ends_with(".npy"))
        options.values.insert_or_assign(name, load_npy(text, Device("cpu")));
      else
        options.numbers.insert_or_assign(name, numbers_of(text));
    }
    return load_model(path, options);
  });
}

Graph graph_for(const Model& model, const Target& target) {
  return prepare(model.graph(), model.inputs().size(), target).graph;
}

Runnable load_runnable(const Model& model, const Device& device) {
  Runnable runnable{blame(Exit::Compile, [&] { return model.executable(device); }),
                    std::vector<Array>(model.inputs().size())};
  for (Array& weight : model.weights_on(device)) runnable.bound.push_back(std::move(weight));
  return runnable;
}

void save_weights(const std::map<std::string, Array>& weights, const std::string& path,
                  std::string_view command) {
  if (std::error_code error; std::filesystem::exists(path, error) && !wrote(command, path))
    fail_usage(
        fmt::format("the weights go into {}, but there is such a file already, which `{}` did not "
                    "write\n  fix: choose another name for the output, or remove this file",
                    path, command));
  save_safetensors(path, weights, {{kWriter, std::string(command)}});
}

}  // namespace braze::tool
