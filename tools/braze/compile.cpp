// compile.cpp — braze compile: compiles functions for several machines into one package.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "braze/io.h"
#include "braze/package.h"
#include "frontend/models/prepared_weights.h"
#include "frontend/packing/c_header.h"
#include "frontend/packing/pack.h"
#include "ir/support/text.h"
#include "ir/support/words.h"
#include "runtime/io/file_writer.h"
#include "runtime/io/safetensors.h"
#include "runtime/package/package.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/files.h"
#include "tools/braze/model.h"
#include "tools/braze/options.h"
#include "tools/braze/package.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

struct Options {
  std::vector<std::string> files, targets, bind;
  std::string weights, output, header, sign_key;
  bool embed = false, no_assembler = false, trust = false, json = false;
  CompileFlags compile;
  ModelFlags model;
  LibraryFlags libraries;
};

std::string name_of(const Source& source) {
  if (const auto* graph = std::get_if<Graph>(&source)) return graph->name();
  if (const auto* tile = std::get_if<TileProgram>(&source)) return tile->name;
  return std::get<Kernel>(source).name;
}

std::vector<std::string> split_targets(const std::vector<std::string>& lists) {
  std::vector<std::string> targets;
  for (const std::string& list : lists)
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      if (begin == end)
        fail_usage(fmt::format(
            "--target takes machines with commas between, but one of {} is empty", quote(list)));
      targets.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  return targets;
}

PackOptions pack_options(const Options& options) {
  PackOptions pack;
  pack.targets = split_targets(options.targets);
  std::vector<Target> targets;
  for (const std::string& target : pack.targets) targets.push_back(find_target_of(target));
  if (targets.empty()) targets.push_back(find_target_of(""));
  pack.weights = options.weights;
  pack.embed_weights = options.embed;
  pack.sign_key = options.sign_key;
  pack.compile = options.compile.options(targets);
  pack.compile.assemble = !options.no_assembler;
  for (const std::string& text : options.bind) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      fail_usage(fmt::format("--bind must be INPUT=TENSOR, not {}", text));
    pack.bind[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return pack;
}

std::vector<PackSource> sources_of(const Options& options) {
  std::vector<PackSource> sources;
  for (const std::string& file : options.files) {
    if (is_model(file)) continue;
    auto source = std::make_shared<const Source>(read_runnable_source(file, options.trust));
    sources.push_back(
        {name_of(*source), [source](const Target& target, const CompileOptions& compile) {
           return compile_source(*source, target, compile);
         }});
  }
  return sources;
}

// A model has its own weights. They are written beside the package. Those that are embedded are in
// a file of their own, `embedded`, until then. It is never published, so nothing of it stays.
void add_model(const Options& options, std::vector<PackSource>& sources, PackOptions& pack,
               std::optional<FileWriter>& embedded) {
  if (std::ranges::none_of(options.files, is_model)) return options.model.refuse_for_others();
  if (options.files.size() != 1)
    fail_usage("compile a model alone, because its weights become the weights of the package");
  if (!options.weights.empty()) fail_usage("--weights is for text; a model has its own weights");
  options.libraries.load();
  const Model model = options.model.load(options.files[0]);
  sources.push_back(
      {model.graph().name(), [model](const Target& target, const CompileOptions& compile) {
         return compile_source(graph_for(model, target), target, compile);
       }});
  constexpr std::string_view kEnding = ".safetensors";
  const std::string file =
      std::filesystem::path(options.output).replace_extension(kEnding).string();
  if (!options.embed) check_overwrites({{options.files[0], "is compiled"}}, {options.output, file});
  // Targets that take a weight in the same form share it.
  std::map<std::string, Array> weights;
  for (const Target& target : pack_targets(pack))
    weights.merge(prepare_model(model, target).weights);
  if (weights.empty()) return;
  if (options.embed) {
    append_safetensors(embedded.emplace(options.output), options.output, weights);
    pack.weights = embedded->reading_path();
  } else {
    pack.weights = file;
    save_weights(weights, file, "braze compile");
  }
}

void write_header(const Options& options) {
  // The written package is read again to describe it. Which keys are trusted does not matter for
  // that.
  const Package package(
      std::make_shared<const Package::State>(MappedFile::open(options.output), PackageOptions{}));
  FileWriter file(options.header);
  file.append(c_header(package, options.header));
  file.publish();
}

void check_files(const Options& options) {
  std::vector<ReadFile> read = {{options.weights, "holds the weights"},
                                {options.sign_key, "holds the secret key"}};
  for (const std::string& file : options.files) read.push_back({file, "is compiled"});
  check_overwrites(read, {options.output, options.header});
}

// A package looks for its weights in its own folder.
void warn_of_folder(const Options& options) {
  namespace fs = std::filesystem;
  if (options.weights.empty() || options.embed) return;
  std::error_code error;
  const fs::path here = fs::absolute(options.output).parent_path();
  const fs::path beside = here / fs::path(options.weights).filename();
  if (fs::equivalent(beside, options.weights, error)) return;
  fmt::print(stderr, "braze: the package looks for its weights in its own folder; copy {} to {}\n",
             options.weights, here.string());
}

Exit compile(const Options& options) {
  check_files(options);
  if (options.embed && options.weights.empty() && std::ranges::none_of(options.files, is_model))
    fail_usage("--embed-weights needs --weights FILE");
  std::vector<PackSource> sources = sources_of(options);
  PackOptions pack = pack_options(options);
  std::optional<FileWriter> embedded;
  add_model(options, sources, pack, embedded);
  const PackSummary summary = save_package(options.output, sources, pack);
  if (!options.header.empty()) write_header(options);
  warn_of_folder(options);
  if (options.json) {
    json::print({{"package", json::string(options.output)},
                 {"bytes", std::to_string(summary.bytes)},
                 {"programs", std::to_string(summary.programs)},
                 {"bound_weights", std::to_string(summary.bound_weights)},
                 {"compile_s", json::number(summary.seconds)}});
    return Exit::Ok;
  }
  fmt::print("{}: {}, {} in {}\n", options.output, bytes_text(summary.bytes),
             count_text(static_cast<size_t>(summary.programs), "program"),
             seconds_text(summary.seconds));
  if (!pack.weights.empty())
    fmt::print("  {} from the weights\n",
               count_text(static_cast<size_t>(summary.bound_weights), "input"));
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments
      .add_option(
          "FILES", options->files,
          "Graph, loop, tile or kernel text, one function in each file; - stands for stdin; or "
          "one model (.onnx, .mlir)")
      .required();
  arguments.add_option("-o,--output", options->output, "Package to write").required();
  arguments
      .add_option("--target", options->targets,
                  "Machines to compile for, with commas between: x86-64-v3, x86-64-v4, sm_80, "
                  "sm_90a, sim:... (default: this processor)")
      .repeatable();
  arguments.add_option(
      "--weights", options->weights,
      "Safetensors file, or index of several files; inputs get the tensors of their names");
  arguments.add_flag("--embed-weights", options->embed,
                     "Put the weights into the package; otherwise they stay in a file beside it");
  arguments
      .add_option("--bind", options->bind,
                  "INPUT=TENSOR: the tensor of an input, if the names differ")
      .repeatable();
  arguments.add_flag("--no-assembler", options->no_assembler,
                     "Leave GPU code as PTX, which the CUDA driver compiles when it is loaded");
  arguments.add_option("--sign", options->sign_key,
                       "Secret key (`braze key new`) that signs the package");
  arguments.add_flag("--trust", options->trust,
                     "Accept loop, tile and kernel text from files that other users can write");
  arguments.add_option("--header", options->header, "C header to write, for programs in C");
  options->compile.add_to(arguments);
  options->model.add_to(arguments);
  options->libraries.add_to(arguments);
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return compile(*options); };
}

}  // namespace

const Command kCompile = {
    "compile", "Compiles functions into a package that runs without a compiler.",
    "  braze compile digits.braze -o digits.bzp                         # for this processor\n"
    "  braze compile digits.braze --target x86-64-v3,sm_80,sm_90a --weights w.safetensors "
    "-o digits.bzp\n"
    "  braze compile f.braze g.braze --weights w.safetensors --embed-weights -o both.bzp\n"
    "  braze compile digits.braze --sign release.key -o digits.bzp\n"
    "  braze compile model.onnx --embed-weights -o model.bzp            # a model\n"
    "  braze compile digits.braze --header digits.h -o digits.bzp       # for programs in C\n",
    add};

}  // namespace braze::tool
