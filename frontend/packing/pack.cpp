#include "frontend/packing/pack.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "braze/device.h"
#include "braze/version.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/graph/sizes.h"
#include "ir/graph/text.h"
#include "ir/program/package.h"
#include "ir/support/clocks.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"
#include "runtime/io/file_writer.h"
#include "runtime/io/mapped_file.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/signature.h"
#include "runtime/package/package.h"

namespace braze {

namespace {

using fmt::format;

// Its PTX runs on every GPU that Braze serves.
constexpr std::string_view kPortable = "sm_80";

bool is_gpu(const Target& target) { return target.kind == TargetKind::Gpu && !target.simulated; }

// One compilation of a function: its target, and whether GPU code is assembled.
struct Build {
  Target target;
  bool assemble = true;
  bool is_named = true;  // whether the user named the target
};

std::vector<Build> builds_of(const PackOptions& options) {
  std::vector<Build> builds;
  std::set<std::string> names;
  const bool here = options.targets.empty();
  for (const std::string& text :
       here ? std::vector<std::string>{Device("cpu").target().name} : options.targets) {
    Target target = parse_target(text);
    if (!names.insert(variant_target(target)).second)
      fail(codes::kPackTarget, format("the target {} is named twice", variant_target(target)));
    builds.push_back({std::move(target), options.compile.assemble});
  }
  const bool names_portable =
      std::ranges::any_of(builds, [](const Build& b) { return b.target.name == kPortable; });
  const auto needs_portable = [](const Build& b) { return is_gpu(b.target); };
  const auto is_portable = [](const Build& b) { return b.target.name == kPortable && !b.assemble; };
  const bool assembles = options.compile.assemble && ptx_assembler();
  for (Build& build : builds) build.assemble = assembles;
  if (std::ranges::any_of(builds, needs_portable) && std::ranges::none_of(builds, is_portable))
    builds.push_back({*find_target(kPortable), false, names_portable});
  return builds;
}

// --- Weights ------------------------------------------------------------------------------------

class Binder {
 public:
  Binder(const SafetensorsFile& file, const std::map<std::string, std::string>& given)
      : file_(file), given_(given) {
    for (const auto& item : given) unused_.insert(item.first);
  }

  std::vector<WeightBinding> bind(const Program& program) {
    std::vector<WeightBinding> out;
    std::map<std::string, std::string> taken;  // from tensor to input
    for (uint32_t i = 0; i < program.inputs.size(); ++i) {
      const ProgramInput& input = program.inputs[i];
      const std::optional<std::string> weight = tensor_for(input.name);
      if (!weight) continue;
      check(program, i, *weight);
      const auto [other, is_new] = taken.emplace(*weight, input.name);
      if (!is_new && !given_.contains(input.name) && !given_.contains(other->second))
        fail(codes::kPackWeights,
             format("the inputs {} and {} of @{} would both get the weight {}",
                    quote(other->second), quote(input.name), program.name, quote(*weight)),
             {.node = input.name, .fix = "name a tensor for each: --bind INPUT=TENSOR"});
      out.push_back({i, *weight});
    }
    return out;
  }

  /// Throws InvalidArgument if a name in `given` is not the name of an input.
  void finish(const std::vector<std::string>& inputs) const {
    if (unused_.empty()) return;
    fail(codes::kPackWeights, format("there is no input {} to bind{}", quote(*unused_.begin()),
                                     did_you_mean(*unused_.begin(), inputs)));
  }

 private:
  std::optional<std::string> tensor_for(const std::string& input) {
    if (const auto found = given_.find(input); found != given_.end()) {
      unused_.erase(input);
      return found->second;
    }
    if (file_.tensors().contains(input)) return input;
    const size_t dot = input.find('.');
    if (dot != input.npos && file_.tensors().contains(input.substr(dot + 1)))
      return input.substr(dot + 1);
    return std::nullopt;
  }

  void check(const Program& program, uint32_t input, const std::string& weight) const {
    const StoredTensor& tensor = file_.at(weight);
    check_weight(weight, program.inputs[input], *tensor.dtype, tensor.shape, quote(file_.path()));
    for (const ProgramOutput& output : program.outputs)
      if (output.updates == input)
        fail(codes::kPackWeights,
             format("a call updates the input {} of @{}, so no weight can be bound to it",
                    quote(program.inputs[input].name), program.name));
  }

  const SafetensorsFile& file_;
  const std::map<std::string, std::string>& given_;
  std::set<std::string> unused_;
};

// The weights of the package. A weight file beside a package is found by its name only.
PackedWeights weights_of(const std::string& path, const PackOptions& options,
                         std::shared_ptr<const MappedFile>& mapped) {
  if (options.weights.empty()) return {};
  if (!options.embed_weights)
    return {std::filesystem::path(options.weights).filename().string(), {}};
  if (options.weights.ends_with(".json"))
    fail(codes::kPackWeights,
         format("{}: {} is the index of several files, which cannot be embedded", quote(path),
                quote(options.weights)),
         {.fix = "embed one .safetensors file, or leave the weights beside the package"});
  mapped = MappedFile::open(options.weights);
  return {"", mapped->bytes()};
}

using Facts = std::vector<std::pair<std::string, std::string>>;

// Records what made the code, and with which options.
Facts facts_of(const std::vector<Build>& builds, const CompileOptions& options) {
  Facts facts = {{"maker", "braze " BRAZE_VERSION},
                 {"precision", std::string(name(options.precision))}};
  for (const Build& build : builds) {
    CompileOptions compile = options;
    compile.assemble = build.assemble;
    std::istringstream lines(toolchain_text(build.target, compile));
    for (std::string line; std::getline(lines, line);) {
      const size_t blank = line.find(' ');
      // The name and version, without the file's path on this machine.
      const std::string value = line.substr(std::min(blank, line.size() - 1) + 1);
      const std::pair fact(line.substr(0, blank), value.substr(0, value.find(',')));
      if (fact.second == "none") continue;
      if (std::ranges::find(facts, fact) == facts.end()) facts.push_back(fact);
    }
  }
  return facts;
}

// Throws unless the shapes of a call's arguments determine all of its sizes.
void check_sizes(const Program& program) {
  std::vector<const Shape*> shapes;
  for (const ProgramInput& input : program.inputs) shapes.push_back(&input.type.shape);
  check_determined(program.name, shapes, program.symbols);
}

// The program of a function for one target. Nobody asked for the portable code that a package also
// holds, so schedules are not for it, and there is none of a function that only later GPUs can run.
std::optional<Program> built(const PackSource& source, const Build& build,
                             const CompileOptions& options) {
  CompileOptions compile = options;
  compile.assemble = build.assemble;
  if (build.is_named) return source.compile(build.target, compile);
  compile.schedules.clear();
  try {
    return source.compile(build.target, compile);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Unsupported) throw;
    return std::nullopt;
  }
}

std::vector<std::string> input_names(const std::deque<Program>& programs) {
  std::vector<std::string> names;
  for (const Program& program : programs)
    for (const ProgramInput& input : program.inputs)
      if (std::ranges::find(names, input.name) == names.end()) names.push_back(input.name);
  return names;
}

// A text with the first few of many names.
std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(kShown, names.size());
  return format("{}{}",
                fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                shown < names.size() ? ", ..." : "");
}

[[noreturn]] void fail_no_weights(const SafetensorsFile& file,
                                  const std::vector<std::string>& inputs) {
  std::vector<std::string> tensors;
  for (const auto& item : file.tensors()) tensors.push_back(item.first);
  fail(codes::kPackWeights,
       format("no input gets a weight: the inputs are {}; {} holds {}", names_text(inputs),
              quote(file.path()), names_text(tensors)),
       {.fix = "name the tensors: --bind INPUT=TENSOR, or PackOptions::bind"});
}

}  // namespace

std::vector<Target> pack_targets(const PackOptions& options) {
  std::vector<Target> targets;
  for (Build& build : builds_of(options)) targets.push_back(std::move(build.target));
  return targets;
}

PackSummary save_package(const std::string& path, const std::vector<PackSource>& functions,
                         const PackOptions& options) {
  if (functions.empty()) fail(codes::kPackFunction, "a package needs at least one function");
  const std::vector<Build> builds = builds_of(options);
  std::optional<SafetensorsFile> weights;
  if (!options.weights.empty()) weights = SafetensorsFile::open(options.weights);
  std::optional<Binder> binder;
  if (weights) binder.emplace(*weights, options.bind);
  if (!weights && !options.bind.empty())
    fail(codes::kPackWeights, "weights are bound, but no weight file is given");
  std::error_code is_missing;  // a missing file is not equivalent to any other
  if (weights && std::filesystem::equivalent(path, options.weights, is_missing))
    fail(codes::kPackWeights,
         fmt::format("{} holds the weights, and the package would replace it", quote(path)));

  std::optional<Signer> signer;
  if (!options.sign_key.empty()) signer.emplace(SecretKey::read(options.sign_key));

  PackSummary summary;
  PackageContents contents;
  std::deque<Program> programs;  // its programs must not move, since `contents` points to them
  WallClock clock;
  for (const PackSource& source : functions) {
    for (const PackedFunction& other : contents.functions)
      if (other.name == source.name)
        fail(codes::kPackFunction, format("two functions are called @{}", source.name),
             {.fix = "give one of the graphs another name"});
    PackedFunction function{.name = source.name, .programs = {}, .weights = {}};
    for (const Build& build : builds)
      if (auto program = built(source, build, options.compile))
        function.programs.push_back(&programs.emplace_back(std::move(*program)));
    check_sizes(*function.programs.front());
    if (binder) function.weights = binder->bind(*function.programs.front());
    summary.bound_weights += static_cast<int>(function.weights.size());
    contents.functions.push_back(std::move(function));
  }
  summary.seconds = clock.lap();
  summary.programs = static_cast<int>(programs.size());
  if (binder) binder->finish(input_names(programs));
  if (binder && summary.bound_weights == 0) fail_no_weights(*weights, input_names(programs));

  std::shared_ptr<const MappedFile> mapped;
  contents.weights = weights_of(path, options, mapped);
  contents.facts = facts_of(builds, options.compile);
  FileWriter file(path, FileWriter::kCode);
  write_package(contents, [&](std::span<const std::byte> part) {
    file.append(part);
    if (signer) signer->append(part);
  });
  if (signer) file.append(signer->finish());
  summary.bytes = file.size();
  file.publish();
  return summary;
}

PackSummary save_package(const std::string& path, const std::vector<PackedGraph>& functions,
                         const PackOptions& options) {
  std::vector<PackSource> sources;
  for (const PackedGraph& function : functions) {
    auto graph = std::make_shared<const Graph>(parse_graph(function.text, function.file));
    sources.push_back({graph->name(), [graph](const Target& target, const CompileOptions& compile) {
                         return braze::compile(*graph, target, compile);
                       }});
  }
  return save_package(path, sources, options);
}

}  // namespace braze
